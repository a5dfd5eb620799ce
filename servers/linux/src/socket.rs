//! Sockets within the machine: `AF_UNIX`, `AF_INET` and `AF_INET6` over the loopback, and `AF_NETLINK`, at whose other
//! end is this server ([`crate::calls::socket::netlink`]).
//!
//! All sockets are in one table, known by identities, so that ends name each other without keeping each other. What was
//! sent is in the queue of who receives it: of bounded size, and of who has made that socket. A connection is two sockets
//! that name each other; one that has not been accepted yet is in the list of the socket that listens, and goes with it. Until
//! then both count for who connects.
//!
//! Descriptors on their way (`SCM_RIGHTS`) keep what they name open, and count for who sent them. Sockets that are open
//! only in their own queues, in a circle, are found when a socket is closed and their queues emptied
//! ([`System::clear_circles`]).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::net::{IPV6_V6ONLY, SOL_SOCKET, SO_LINGER, SO_REUSEADDR, SO_REUSEPORT};
use serde::{Deserialize, Serialize};

use crate::epoll::ALL;
use crate::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, ECONNRESET, EINVAL, EPIPE, EPROTOTYPE,
    ETOOMANYREFS,
};
use crate::outside::Link;
use crate::process::{Description, Kind, Shared};
use crate::system::{Key, Payer, System, Thing};

/// Most bytes that wait in a socket, what is kept beside them included: any datagram of UDP fits.
const LARGE: usize = (64 << 10) + OVERHEAD;
/// The same for those beyond [`LARGE_SOCKETS`] of a payer.
const SMALL: usize = 8 << 10;
const LARGE_SOCKETS: usize = 32;
/// What a message counts beside its bytes.
const OVERHEAD: usize = 128;
/// Messages of a stream that are shorter are lengthened.
const SHORT: usize = 4 << 10;
/// Most connections that wait to be accepted.
const MAX_BACKLOG: usize = 128;
/// Most descriptors in a message.
pub const MAX_RIGHTS: usize = 253;
/// Most options that are kept of a socket.
pub const MAX_OPTIONS: usize = 64;
/// The ports that are given out to who asks for none.
const PORTS: core::ops::Range<u16> = 32_768..61_000;

/// The level of options of IPv6.
pub const IPPROTO_IPV6: u32 = 41;

/// Which names it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// Paths, and names that are no paths.
    Unix,
    /// Addresses of IPv4 and ports.
    V4,
    /// Addresses of IPv6 and ports.
    V6,
    /// Numbers, for requests to what Linux's kernel knows of its network. It stands last, so that images without it stay
    /// what they are.
    Netlink,
}

/// What it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Style {
    /// Bytes.
    Stream,
    /// Messages, each for itself.
    Datagram,
    /// Messages over a connection.
    Packets,
}

/// The name of a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Name {
    /// A file: the path as it was given, and the inode.
    File(Vec<u8>, u64),
    /// A name that is no path.
    Abstract(Vec<u8>),
    /// An address, those of IPv4 as `::ffff:a.b.c.d`, and a port.
    Port(u128, u16),
    /// A number, and the groups whose messages are wanted, of netlink. Nothing is found by it.
    Number(u32, u32),
}

/// Where a socket is looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    File(u64),
    Abstract(Vec<u8>),
    Port(Style, u16),
}

/// Addresses of IPv4 in the form of those of IPv6.
const MAPPED: u128 = 0xffff_0000_0000;
/// The address of the loopback, of IPv4.
pub const LOOPBACK_4: u128 = MAPPED | 0x7f00_0001;
/// The address of the loopback, of IPv6.
pub const LOOPBACK_6: u128 = 1;

/// An address of IPv4 in the form of one of IPv6.
#[must_use]
pub const fn mapped(address: u32) -> u128 {
    MAPPED | address as u128
}

/// Whether it is an address of IPv4.
#[must_use]
pub const fn is_mapped(address: u128) -> bool {
    address >> 32 == MAPPED >> 32
}

/// Whether it stands for all addresses.
#[must_use]
pub const fn is_any(address: u128) -> bool {
    address == 0 || address == MAPPED
}

/// Whether it is one of the loopback.
#[must_use]
pub const fn is_loopback(address: u128) -> bool {
    address == LOOPBACK_6 || is_mapped(address) && address as u32 >> 24 == 127
}

/// Who sent something: process, user, group, as programs see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender(pub u32, pub u32, pub u32);

/// Something that was sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of them have been taken.
    pub taken: usize,
    /// From whom.
    pub from: Option<Name>,
    /// Who that is.
    pub sender: Sender,
    /// Descriptors.
    #[serde(skip)]
    pub rights: Vec<Shared<Description>>,
    /// For whom they count.
    #[serde(skip)]
    pub payer: Payer,
}

impl Message {
    /// What is left of it.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn size(&self) -> usize {
        OVERHEAD + self.bytes.len()
    }
}

/// How far a socket has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It is not connected.
    Idle,
    /// It takes connections.
    Listening,
    /// It is connected, or was; datagrams have somebody to whom they go.
    Connected,
}

/// A socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// Which names it has.
    pub family: Family,
    /// What it carries.
    pub style: Style,
    #[serde(skip)]
    payer: Payer,
    /// How far it has come.
    pub state: State,
    /// Its name.
    pub name: Option<Name>,
    /// The other end, as long as that is there.
    pub peer: Option<u64>,
    /// The name of the other end.
    pub peer_name: Option<Name>,
    /// Who the other end is; of one that listens, who listens.
    pub owner: Sender,
    /// What has come.
    pub queue: VecDeque<Message>,
    /// How much that is.
    used: usize,
    /// How many descriptors come with it.
    #[serde(skip)]
    rights: usize,
    capacity: usize,
    /// Nothing is read any more, nothing written.
    pub shut: (bool, bool),
    /// What went wrong since.
    pub error: Option<i32>,
    /// Connections that have not been accepted.
    pub ready: VecDeque<u64>,
    backlog: usize,
    /// It has been connected, and who asked for that without waiting has not been told.
    pub is_news: bool,
    /// Options by level and number, and their values.
    pub options: BTreeMap<(u32, u32), u64>,
    /// Sockets whose other end this is, and that cannot take anything because this one was full.
    #[serde(skip)]
    blocked: BTreeSet<u64>,
    /// Somebody is to be told when there is room.
    #[serde(skip)]
    is_awaited: bool,
    /// The link by which it reaches other machines.
    #[serde(skip)]
    pub link: Option<Link>,
    /// The program has asked for any port.
    #[serde(skip)]
    pub any_port: bool,
}

impl Socket {
    /// As if all sockets had been closed that are not among these.
    pub fn leave_others(&mut self, is_own: impl Fn(&u64) -> bool) {
        self.peer = self.peer.filter(&is_own);
        self.blocked.retain(is_own);
    }

    /// How much more may be sent to it.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.used)
    }

    /// How many bytes a message may have that is put into its queue.
    pub(crate) fn room_for_bytes(&self) -> usize {
        self.room().saturating_sub(OVERHEAD)
    }

    /// For whom it counts.
    pub(crate) const fn payer(&self) -> Payer {
        self.payer
    }

    /// Whether one more connection may wait to be accepted.
    pub(crate) fn takes_connections(&self) -> bool {
        self.state == State::Listening && !self.shut.0 && self.ready.len() <= self.backlog
    }

    /// Whether it sends to addresses of this kind, and hears of them.
    pub(crate) fn speaks_with(&self, address: u128) -> bool {
        match self.family {
            Family::Unix | Family::Netlink => false,
            Family::V4 => is_mapped(address),
            Family::V6 => !self.is_v6_only() || !is_mapped(address),
        }
    }

    /// About how many bytes of memory it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.used + (1 << 10)
    }

    /// Longest message that can be sent to it.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.capacity - OVERHEAD
    }

    /// The value of an option.
    #[must_use]
    pub fn option(&self, level: u32, number: u32) -> u64 {
        self.options.get(&(level, number)).copied().unwrap_or(0)
    }

    /// Whether nothing that was sent is waited for when it is closed (`SO_LINGER` with no time): the other end is told
    /// that the connection was given up.
    fn ends_at_once(&self) -> bool {
        let linger = self.option(SOL_SOCKET, SO_LINGER);
        let (is_on, seconds) = (linger as u32 != 0, linger >> 32);
        let is_port = matches!(self.family, Family::V4 | Family::V6);
        is_port && self.style == Style::Stream && is_on && seconds == 0
    }

    fn place(&self) -> Option<Place> {
        Some(match self.name.as_ref()? {
            Name::File(_, ino) => Place::File(*ino),
            Name::Abstract(name) => Place::Abstract(name.clone()),
            Name::Port(_, port) => Place::Port(self.style, *port),
            Name::Number(..) => return None,
        })
    }

    /// Whether what is sent to this address comes to it: 2 if just to that, 1 if to all, 0 if not.
    pub(crate) fn covers(&self, address: u128) -> u8 {
        match self.name {
            Some(Name::Port(own, _)) => covers(own, self.is_v6_only(), address),
            _ => 0,
        }
    }

    fn is_v6_only(&self) -> bool {
        self.option(IPPROTO_IPV6, IPV6_V6ONLY) != 0
    }

    /// Whether both may have the same port.
    fn may_share(&self, other: &Socket) -> bool {
        let both =
            |option| self.option(SOL_SOCKET, option) != 0 && other.option(SOL_SOCKET, option) != 0;
        let listens = self.state == State::Listening || other.state == State::Listening;
        both(SO_REUSEPORT) || both(SO_REUSEADDR) && (self.style == Style::Datagram || !listens)
    }

    /// Whether one from a checkpoint makes sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.queue.iter().all(|message| message.rights.is_empty()) && self.can_be_saved()
    }

    /// Whether one from a checkpoint would make sense that is as this one, but for descriptors on their way.
    #[must_use]
    pub fn can_be_saved(&self) -> bool {
        let used: usize = self.queue.iter().map(Message::size).sum();
        let name = |name: &Option<Name>| match name {
            Some(Name::File(path, _)) => self.family == Family::Unix && path.len() <= 108,
            Some(Name::Abstract(name)) => self.family == Family::Unix && name.len() <= 107,
            Some(Name::Port(..)) => matches!(self.family, Family::V4 | Family::V6),
            Some(Name::Number(..)) => self.family == Family::Netlink,
            None => true,
        };
        let bytes = |message: &Message| message.taken <= message.bytes.len() && name(&message.from);
        used == self.used
            && (SMALL..=LARGE).contains(&self.capacity)
            && self.used <= self.capacity
            && self.queue.iter().all(bytes)
            && name(&self.name)
            && name(&self.peer_name)
            && self.backlog <= MAX_BACKLOG
            && self.ready.len() <= MAX_BACKLOG + 1
            && self.options.len() <= MAX_OPTIONS
            && self.error.is_none_or(|error| (1..4096).contains(&error))
            && (self.family == Family::Unix || self.style != Style::Packets)
            && (self.family != Family::Netlink
                || self.style == Style::Datagram && self.peer.is_none())
    }
}

/// Whether what is sent to `address` comes to who is bound to `own`.
const fn covers(own: u128, v6_only: bool, address: u128) -> u8 {
    let all = match own {
        0 => !v6_only || !is_mapped(address),
        MAPPED => is_mapped(address),
        _ => false,
    };
    match own == address {
        true => 2,
        false => all as u8,
    }
}

/// All sockets.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    all: BTreeMap<u64, Socket>,
    places: BTreeSet<(Place, u64)>,
    /// The last port that was given out.
    last_port: u16,
    /// Descriptors that are on their way.
    under_way: usize,
    /// How often all sockets were gone through for circles.
    #[cfg(test)]
    pub(crate) passes: usize,
}

impl Sockets {
    /// A socket.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<&Socket> {
        self.all.get(&id)
    }

    /// All sockets, in the order of their identities.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Socket)> {
        self.all.iter().map(|(id, socket)| (*id, socket))
    }

    /// Bytes of memory that the queue of a socket takes for one more message, beside those of the message.
    #[must_use]
    pub fn growth(&self, id: u64) -> u64 {
        let queue = self.find(id).map(|socket| &socket.queue);
        let full = queue.filter(|queue| queue.len() == queue.capacity());
        full.map_or(0, |queue| {
            2 * (queue.capacity().max(4) * size_of::<Message>()) as u64
        })
    }

    /// Whether a socket is found by its name.
    #[must_use]
    pub fn is_found(&self, id: u64) -> bool {
        let place = self.all.get(&id).and_then(Socket::place);
        place.is_some_and(|place| self.places.contains(&(place, id)))
    }

    /// The sockets at a place, in the order of their identities.
    fn at(&self, place: Place) -> impl Iterator<Item = (u64, &Socket)> {
        let range = (place.clone(), 0)..=(place, u64::MAX);
        let found = self.places.range(range);
        found.filter_map(|(_, id)| Some((*id, self.all.get(id)?)))
    }

    /// Whether a socket has the name that is this file.
    #[must_use]
    pub fn has_file(&self, ino: u64) -> bool {
        self.at(Place::File(ino)).next().is_some()
    }

    /// The socket of this name.
    #[must_use]
    pub fn by_name(&self, name: &Name, style: Style) -> Option<u64> {
        let (place, address) = match name {
            Name::File(_, ino) => (Place::File(*ino), None),
            Name::Abstract(name) => (Place::Abstract(name.clone()), None),
            Name::Port(address, port) => (Place::Port(style, *port), Some(*address)),
            Name::Number(..) => return None,
        };
        let Some(address) = address else {
            return self.at(place).next().map(|(id, _)| id);
        };
        // Who is bound to just this address comes first, then who listens.
        let weigh = |(id, socket): (u64, &Socket)| {
            let listens = socket.state == State::Listening || style == Style::Datagram;
            let covers = socket.covers(address);
            (covers > 0).then_some((listens, covers, core::cmp::Reverse(id)))
        };
        let best = self.at(place).filter_map(weigh).max();
        best.map(|(.., id)| id.0)
    }

    /// Whether a socket could have this port at this address.
    fn is_free(&self, id: u64, address: u128, port: u16) -> bool {
        let Some(own) = self.all.get(&id) else {
            return false;
        };
        self.at(Place::Port(own.style, port))
            .all(|(other, socket)| {
                let Some(Name::Port(theirs, _)) = socket.name else {
                    return true;
                };
                // Connections have the port of who accepted them.
                let is_connection = socket.state == State::Connected && own.style == Style::Stream;
                let meets = covers(address, own.is_v6_only(), theirs) != 0;
                let apart = socket.covers(address) == 0 && !meets;
                other == id || is_connection || apart || own.may_share(socket)
            })
    }
}

/// Who waits in vain is told by this.
pub enum Delivery {
    /// It is there, so much of it.
    Taken(usize),
    /// It has to wait until something changes there.
    Full(u64),
}

impl System {
    /// Whether there is no socket, and nothing is left of any.
    #[cfg(test)]
    pub(crate) fn has_no_sockets(&self) -> bool {
        self.sockets.all.is_empty()
            && self.sockets.places.is_empty()
            && self.sockets.under_way == 0
            && self.counted_things(Thing::Socket) == 0
            && self.counted_things(Thing::Right) == 0
    }

    /// Every queue is counted and within its bounds, and who is told of room can still be told.
    #[cfg(test)]
    pub(crate) fn sockets_are_bounded(&self) -> bool {
        let all = &self.sockets.all;
        all.iter().all(|(id, socket)| {
            let used: usize = socket.queue.iter().map(Message::size).sum();
            let kept: usize = socket.queue.iter().map(|m| m.bytes.capacity()).sum();
            let is_peer = |who: &u64| all.get(who).is_some_and(|who| who.peer == Some(*id));
            used == socket.used
                && used <= socket.capacity
                && kept <= 2 * socket.capacity
                && socket.blocked.iter().all(is_peer)
        })
    }

    /// A new socket. Errors: `ENFILE`.
    pub fn new_socket(&mut self, family: Family, style: Style, payer: Payer) -> Result<u64, Errno> {
        let count = self.count_thing(Thing::Socket, payer)?;
        let id = self.new_identity();
        let socket = Socket {
            family,
            style,
            payer,
            state: State::Idle,
            name: None,
            peer: None,
            peer_name: None,
            owner: Sender::default(),
            queue: VecDeque::new(),
            used: 0,
            rights: 0,
            capacity: if count <= LARGE_SOCKETS { LARGE } else { SMALL },
            shut: (false, false),
            error: None,
            ready: VecDeque::new(),
            backlog: 0,
            is_news: false,
            options: BTreeMap::new(),
            blocked: BTreeSet::new(),
            is_awaited: false,
            link: None,
            any_port: false,
        };
        self.sockets.all.insert(id, socket);
        Ok(id)
    }

    /// How many sockets more of this payer may be large, whatever an image says.
    #[must_use]
    pub fn large_sockets_left(&self, payer: Payer) -> usize {
        let all = self.sockets.all.values();
        let own = all.filter(|socket| socket.payer == payer && socket.capacity > SMALL);
        LARGE_SOCKETS.saturating_sub(own.count())
    }

    /// Puts a socket of an image into the table: without connections, and not found by its name. It is as large as it was if
    /// so many more may be, and else has room for what is in it. Errors: `ENFILE`.
    pub fn restore_socket(
        &mut self,
        socket: Socket,
        payer: Payer,
        large: &mut usize,
    ) -> Result<u64, Errno> {
        self.count_thing(Thing::Socket, payer)?;
        let id = self.new_identity();
        let is_large = socket.capacity > SMALL && *large > 0;
        *large -= usize::from(is_large);
        let socket = Socket {
            payer,
            capacity: if is_large {
                LARGE
            } else {
                SMALL.max(socket.used)
            },
            peer: None,
            ready: VecDeque::new(),
            ..socket
        };
        self.sockets.all.insert(id, socket);
        Ok(id)
    }

    /// A socket of an image has this other end, and these connections wait at it.
    pub fn join(&mut self, id: u64, peer: Option<u64>, ready: impl Iterator<Item = u64>) {
        if let Some(socket) = self.sockets.all.get_mut(&id) {
            socket.peer = peer;
            socket.ready = ready.collect();
        }
    }

    /// A socket that is to be changed.
    pub fn socket(&mut self, id: u64) -> Result<&mut Socket, Errno> {
        self.sockets.all.get_mut(&id).ok_or(EINVAL)
    }

    /// Something has happened at a socket.
    fn happens_at(&mut self, id: u64, events: u32) {
        self.outside
            .happens(self.sockets.find(id).and_then(|socket| socket.link));
        self.wake_for(Key::Socket(id), events);
    }

    /// Connects two new sockets.
    pub fn pair(&mut self, one: u64, other: u64, owner: Sender) {
        for (id, peer) in [(one, other), (other, one)] {
            if let Some(socket) = self.sockets.all.get_mut(&id) {
                socket.state = State::Connected;
                socket.peer = Some(peer);
                socket.owner = owner;
            }
        }
    }

    /// Gives a socket a name. Errors: `EADDRINUSE`.
    pub fn name_socket(&mut self, id: u64, name: Name) -> Result<(), Errno> {
        let is_free = match &name {
            Name::Port(address, port) => self.sockets.is_free(id, *address, *port),
            name => self.sockets.by_name(name, Style::Stream).is_none(),
        };
        if !is_free {
            return Err(EADDRINUSE);
        }
        self.set_name(id, name);
        Ok(())
    }

    /// A socket has this name, whoever else has it.
    pub fn set_name(&mut self, id: u64, name: Name) {
        let Some(socket) = self.sockets.all.get_mut(&id) else {
            return;
        };
        let old = socket.place();
        socket.name = Some(name);
        let new = socket.place();
        if let Some(old) = old {
            self.sockets.places.remove(&(old, id));
        }
        self.sockets.places.extend(new.map(|new| (new, id)));
    }

    /// Whether a socket could have this port at this address.
    #[must_use]
    pub fn is_free(&self, id: u64, address: u128, port: u16) -> bool {
        self.sockets.is_free(id, address, port)
    }

    /// Whether another socket reaches other machines from this port.
    #[must_use]
    pub fn is_linked(&self, style: Style, port: u16) -> bool {
        let mut others = self.sockets.at(Place::Port(style, port));
        others.any(|(_, socket)| socket.link.is_some() && socket.state != State::Connected)
    }

    /// A port that is free at this address. Errors: `EADDRINUSE`.
    pub fn free_port(&mut self, id: u64, address: u128) -> Result<u16, Errno> {
        for _ in PORTS {
            let next = self.sockets.last_port.wrapping_add(1);
            let port = if PORTS.contains(&next) {
                next
            } else {
                PORTS.start
            };
            self.sockets.last_port = port;
            let style = self.sockets.all.get(&id).ok_or(EINVAL)?.style;
            if self.sockets.at(Place::Port(style, port)).next().is_none()
                && self.sockets.is_free(id, address, port)
            {
                return Ok(port);
            }
        }
        Err(EADDRINUSE)
    }

    /// A name that is no path and that nobody has.
    pub fn free_name(&mut self) -> Name {
        loop {
            let number = self.new_identity() & 0xf_ffff;
            let name = Name::Abstract(alloc::format!("{number:05x}").into_bytes());
            if self.sockets.by_name(&name, Style::Stream).is_none() {
                return name;
            }
        }
    }

    /// A socket takes connections from now on. Errors: `EADDRINUSE`.
    pub fn listen(&mut self, id: u64, backlog: usize, owner: Sender) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        let was = socket.state;
        socket.state = State::Listening;
        if let Some(Name::Port(address, port)) = socket.name {
            if !self.sockets.is_free(id, address, port) {
                self.socket(id)?.state = was;
                return Err(EADDRINUSE);
            }
        }
        let socket = self.sockets.all.get_mut(&id).ok_or(EINVAL)?;
        let before = core::mem::replace(&mut socket.backlog, backlog.min(MAX_BACKLOG));
        socket.owner = owner;
        let has_more_room = socket.backlog > before;
        self.outside.happens(socket.link);
        if has_more_room {
            // For whoever waits until he can connect. Nothing has come for who accepts.
            self.wake_for(Key::Socket(id), 0);
        }
        Ok(())
    }

    /// Connects a socket to one that listens; the other end waits there to be accepted, and counts for `payer` until
    /// then. Errors: `ECONNREFUSED`, `EPROTOTYPE`, `EAGAIN` if it has to wait until somebody is accepted, `ENFILE`.
    pub fn connect(
        &mut self,
        id: u64,
        to: u64,
        (name, owner): (Option<Name>, Sender),
        payer: Payer,
    ) -> Result<(), Errno> {
        let socket = self.sockets.all.get(&id).ok_or(EINVAL)?;
        let listener = self.sockets.all.get(&to).ok_or(ECONNREFUSED)?;
        if socket.style != listener.style {
            return Err(EPROTOTYPE);
        }
        if listener.state != State::Listening || listener.shut.0 {
            return Err(ECONNREFUSED);
        }
        if listener.ready.len() > listener.backlog {
            return Err(EAGAIN);
        }
        let (family, style) = (listener.family, listener.style);
        let (options, listens) = (listener.options.clone(), listener.owner);
        let own = match (&name, &listener.name) {
            // It is reached at the address that was asked for.
            (Some(name @ Name::Port(..)), _) => Some(name.clone()),
            (_, own) => own.clone(),
        };
        let end = self.new_socket(family, style, payer)?;
        let peer_name = self.socket(id)?.name.clone();
        let is_port = matches!(own, Some(Name::Port(..)));
        let new = self.socket(end)?;
        *new = Socket {
            state: State::Connected,
            peer: Some(id),
            peer_name,
            owner,
            options,
            name: if is_port { None } else { own.clone() },
            ..new.clone()
        };
        if let Some(name) = own.clone().filter(|_| is_port) {
            self.set_name(end, name);
        }
        let socket = self.socket(id)?;
        socket.state = State::Connected;
        socket.peer = Some(end);
        socket.peer_name = own;
        socket.owner = listens;
        socket.error = None;
        self.socket(to)?.ready.push_back(end);
        self.happens_at(to, linux::EPOLLIN);
        self.happens_at(id, ALL);
        Ok(())
    }

    /// Takes the first connection that waits at a socket, if one does, which counts for `payer` from then on. Errors: `ENFILE`; it
    /// waits on then.
    pub fn accept(&mut self, id: u64, payer: Payer) -> Result<Option<u64>, Errno> {
        let Some(end) = self.socket(id)?.ready.front().copied() else {
            return Ok(None);
        };
        let before = self.socket(end)?.payer;
        self.move_thing(Thing::Socket, before, payer)?;
        self.socket(end)?.payer = payer;
        self.socket(id)?.ready.pop_front();
        // Who waits to be connected may try again.
        self.happens_at(id, 0);
        Ok(Some(end))
    }

    /// A socket takes no connections any more.
    pub fn stop_listening(&mut self, id: u64) {
        let Ok(socket) = self.socket(id) else { return };
        if socket.state == State::Listening {
            self.unlink(id);
            let Ok(socket) = self.socket(id) else { return };
            socket.state = State::Idle;
            let ready = core::mem::take(&mut socket.ready);
            for end in ready {
                self.close_socket(end);
            }
            self.happens_at(id, ALL);
        }
    }

    /// A socket could not send because another one was full. When there is room, who waits for that
    /// ([`Key::Room`]) is told, and who watches the socket, if the full one is its other end.
    pub fn blocks(&mut self, full: u64, who: u64) {
        let is_peer = self.sockets.find(who).and_then(|socket| socket.peer) == Some(full)
            || self.outbox(who) == Some(full);
        if let Some(socket) = self.sockets.all.get_mut(&full) {
            socket.is_awaited = true;
            // No more of them than have this one for their other end: nobody else takes them out again.
            if is_peer {
                socket.blocked.insert(who);
            }
        }
    }

    /// A socket for datagrams has this other end, or none.
    pub fn set_peer(&mut self, id: u64, peer: Option<u64>) {
        let Some(socket) = self.sockets.all.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut socket.peer, peer);
        self.unblock(before, id);
    }

    /// A socket does not wait for room in its other end any more.
    fn unblock(&mut self, peer: Option<u64>, id: u64) {
        if let Some(peer) = peer.and_then(|peer| self.sockets.all.get_mut(&peer)) {
            peer.blocked.remove(&id);
        }
    }

    /// Puts a message into the queue of a socket, or as much of it as fits if bytes are what counts.
    pub fn deliver(&mut self, to: u64, message: Message) -> Result<Delivery, Errno> {
        let socket = self.sockets.all.get_mut(&to).ok_or(EPIPE)?;
        let length = message.bytes.len();
        let room = socket.room();
        let last = socket.queue.back_mut().filter(|last| {
            socket.style == Style::Stream
                && message.rights.is_empty()
                && last.rights.is_empty()
                && last.sender == message.sender
                && last.bytes.len() < SHORT
        });
        let taken = if let Some(last) = last {
            let taken = length.min(room);
            last.bytes.extend_from_slice(&message.bytes[..taken]);
            socket.used += taken;
            taken
        } else {
            let room = room.saturating_sub(OVERHEAD);
            let is_stream = socket.style == Style::Stream;
            // A message without bytes needs room too.
            let fits = match is_stream {
                true => room > 0,
                false => message.size() <= socket.room(),
            };
            let mut message = message;
            if fits && is_stream {
                message.bytes.truncate(room);
                // What is kept is what is counted.
                message.bytes.shrink_to_fit();
            }
            if !fits {
                return Ok(Delivery::Full(to));
            }
            let payer = message.payer;
            for n in 0..message.rights.len() {
                if self.count_thing(Thing::Right, payer).is_err() {
                    self.uncount_rights(n, payer);
                    return Err(ETOOMANYREFS);
                }
            }
            self.sockets.under_way += message.rights.len();
            let socket = self.socket(to)?;
            let taken = message.bytes.len();
            socket.used += message.size();
            socket.rights += message.rights.len();
            socket.queue.push_back(message);
            taken
        };
        if taken == 0 && length > 0 {
            return Ok(Delivery::Full(to));
        }
        self.happens_at(to, linux::EPOLLIN);
        Ok(Delivery::Taken(taken))
    }

    /// So many bytes of the first message have been taken, or all of it: the descriptors that came with it.
    pub fn taken(&mut self, id: u64, bytes: usize, whole: bool) -> Vec<Shared<Description>> {
        let Some(socket) = self.sockets.all.get_mut(&id) else {
            return Vec::new();
        };
        let Some(first) = socket.queue.front_mut() else {
            return Vec::new();
        };
        let (rights, payer) = (core::mem::take(&mut first.rights), first.payer);
        first.taken += bytes;
        if whole || first.taken >= first.bytes.len() {
            socket.used -= first.size();
            socket.queue.pop_front();
        }
        socket.rights -= rights.len();
        self.sockets.under_way -= rights.len();
        self.uncount_rights(rights.len(), payer);
        self.has_room(id);
        rights
    }

    /// Takes the first message that waits in a socket, which has no descriptors.
    pub(crate) fn take_message(&mut self, id: u64) -> Option<Message> {
        let socket = self.sockets.all.get_mut(&id)?;
        let message = socket.queue.pop_front()?;
        socket.used -= message.size();
        self.has_room(id);
        Some(message)
    }

    /// These descriptors come with a message of an image. Errors: `ETOOMANYREFS`.
    pub fn put_rights(
        &mut self,
        id: u64,
        message: usize,
        rights: Vec<Shared<Description>>,
    ) -> Result<(), Errno> {
        let payer = self.socket(id)?.payer;
        for n in 0..rights.len() {
            if self.count_thing(Thing::Right, payer).is_err() {
                self.uncount_rights(n, payer);
                return Err(ETOOMANYREFS);
            }
        }
        self.sockets.under_way += rights.len();
        let socket = self.socket(id)?;
        socket.rights += rights.len();
        if let Some(message) = socket.queue.get_mut(message) {
            (message.rights, message.payer) = (rights, payer);
        }
        Ok(())
    }

    fn uncount_rights(&mut self, count: usize, payer: Payer) {
        for _ in 0..count {
            self.uncount_thing(Thing::Right, payer);
        }
    }

    /// There is room again in a socket.
    fn has_room(&mut self, id: u64) {
        let Some(socket) = self.sockets.all.get_mut(&id) else {
            return;
        };
        self.outside.happens(socket.link);
        if core::mem::take(&mut socket.is_awaited) {
            let blocked = core::mem::take(&mut socket.blocked);
            self.wake(Key::Room(id));
            for who in blocked {
                self.happens_at(who, linux::EPOLLOUT);
            }
        }
    }

    /// Nothing is read any more, or nothing written.
    pub fn shut_socket(&mut self, id: u64, read: bool, write: bool) {
        let Ok(socket) = self.socket(id) else { return };
        socket.shut.0 |= read;
        socket.shut.1 |= write;
        let peer = socket.peer;
        self.happens_at(id, ALL);
        self.has_room(id);
        if let Some(peer) = peer {
            self.happens_at(peer, ALL);
        }
    }

    /// The socket is nobody's any more. What was on its way to it is in `dropped`.
    pub fn close_socket(&mut self, id: u64) {
        // With whether it was accepted, or has not been a connection.
        let mut closing = Vec::from([(id, true)]);
        while let Some((id, was_accepted)) = closing.pop() {
            let Some(mut socket) = self.sockets.all.remove(&id) else {
                continue;
            };
            if let Some(place) = socket.place() {
                self.sockets.places.remove(&(place, id));
            }
            self.uncount_thing(Thing::Socket, socket.payer);
            closing.extend(socket.ready.iter().map(|end| (*end, false)));
            let is_reset = !was_accepted || !socket.queue.is_empty() || socket.ends_at_once();
            self.empty(&mut socket.queue);
            self.unblock(socket.peer, id);
            if let Some(peer) = socket.peer.filter(|_| socket.style != Style::Datagram) {
                if let Some(end) = self.sockets.all.get_mut(&peer) {
                    end.peer = None;
                    if is_reset {
                        end.error = Some(ECONNRESET.0);
                    }
                }
                self.happens_at(peer, ALL);
            }
            if socket.is_awaited {
                self.wake(Key::Room(id));
            }
            for who in socket.blocked {
                self.happens_at(who, ALL);
            }
            self.happens_at(id, ALL);
            if let Some(link) = socket.link {
                self.link_closes(link, id, is_reset);
            }
        }
    }

    fn empty(&mut self, queue: &mut VecDeque<Message>) {
        for message in core::mem::take(queue) {
            self.sockets.under_way -= message.rights.len();
            self.uncount_rights(message.rights.len(), message.payer);
            self.dropped.extend(message.rights);
        }
    }

    /// Empties the queues of sockets that are open only because descriptors of them are on their way to one another.
    pub fn clear_circles(&mut self) {
        if self.sockets.under_way == 0 {
            return;
        }
        #[cfg(test)]
        {
            self.sockets.passes += 1;
        }
        // How often each socket is on its way, and its description.
        let mut under_way: BTreeMap<u64, (usize, Shared<Description>)> = BTreeMap::new();
        let carriers = self.sockets.all.values().filter(|s| s.rights > 0);
        for message in carriers.flat_map(|s| &s.queue) {
            for right in &message.rights {
                if let Kind::Socket { id } = right.borrow().kind {
                    let entry = under_way.entry(id);
                    entry.or_insert_with(|| (0, Rc::clone(right))).0 += 1;
                }
            }
        }
        let waiting: BTreeSet<u64> = self
            .sockets
            .all
            .values()
            .flat_map(|s| s.ready.iter().copied())
            .collect();
        // One more of each description is in the table.
        let is_held = |id: &u64| match under_way.get(id) {
            Some((count, right)) => Rc::strong_count(right) > count + 1,
            None => !waiting.contains(id),
        };
        let mut reached: BTreeSet<u64> = self.sockets.all.keys().copied().filter(is_held).collect();
        let mut next: Vec<u64> = reached.iter().copied().collect();
        while let Some(id) = next.pop() {
            let Some(socket) = self.sockets.all.get(&id) else {
                continue;
            };
            let carries = socket.rights > 0;
            let messages = socket.queue.iter().filter(|_| carries);
            let named =
                messages
                    .flat_map(|m| &m.rights)
                    .filter_map(|right| match right.borrow().kind {
                        Kind::Socket { id } => Some(id),
                        _ => None,
                    });
            for id in named.chain(socket.ready.iter().copied()) {
                if reached.insert(id) {
                    next.push(id);
                }
            }
        }
        drop(under_way);
        let lost: Vec<u64> = self
            .sockets
            .all
            .keys()
            .copied()
            .filter(|id| !reached.contains(id))
            .collect();
        for id in lost {
            let Ok(socket) = self.socket(id) else {
                continue;
            };
            let mut queue = core::mem::take(&mut socket.queue);
            (socket.used, socket.rights) = (0, 0);
            self.empty(&mut queue);
        }
    }

    /// The name that a socket gets when it has none and needs one to send to this address. Errors: `EADDRINUSE`,
    /// `EADDRNOTAVAIL`.
    pub fn own_name(&mut self, id: u64, to: u128) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        let address = match socket.name {
            Some(Name::Port(address, _)) if !is_any(address) => return Ok(()),
            _ if is_mapped(to) => LOOPBACK_4,
            _ => LOOPBACK_6,
        };
        let port = match socket.name {
            Some(Name::Port(_, port)) => port,
            Some(_) => return Err(EADDRNOTAVAIL),
            None => self.free_port(id, address)?,
        };
        self.set_name(id, Name::Port(address, port));
        Ok(())
    }
}
