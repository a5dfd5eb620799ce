//! Sockets within the machine: `AF_UNIX`, `AF_INET` and `AF_INET6` over the loopback, and `AF_NETLINK`, whose other end
//! is this server ([`crate::calls::socket::netlink`]).
//!
//! All sockets are in one table by identity, so that peers refer to each other without keeping each other alive. What
//! was sent is in the queue of the receiving socket; the queue is bounded, and charged to whoever made that socket. A
//! connection is two sockets that are each other's peers. Until it is accepted, one of them is in the list of the
//! listening socket and is closed with it, and both are charged to whoever connects.
//!
//! Descriptors on their way (`SCM_RIGHTS`) keep open what they refer to, and are charged to the sender. Sockets that
//! are open only in each other's queues, in a circle, are found when a socket is closed, and their queues are emptied
//! ([`System::clear_circles`]).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::net::{
    IPV6_V6ONLY, SOL_SOCKET, SO_LINGER, SO_PASSCRED, SO_REUSEADDR, SO_REUSEPORT,
};
use serde::{Deserialize, Serialize};

use crate::epoll::ALL;
use crate::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, ECONNRESET, EINVAL, EPIPE, EPROTOTYPE,
    ETOOMANYREFS,
};
use crate::outside::Link;
use crate::process::{Description, Kind, Shared};
use crate::system::{Key, Payer, System, Thing};

/// Capacity of a socket's queue in bytes, with [`OVERHEAD`] for each message: any UDP datagram fits.
const LARGE: usize = (64 << 10) + OVERHEAD;
/// The capacity of sockets beyond the first [`LARGE_SOCKETS`] of a payer.
const SMALL: usize = 8 << 10;
const LARGE_SOCKETS: usize = 32;
/// What each message counts in addition to its bytes.
const OVERHEAD: usize = 128;
/// A stream's last message is extended while it is shorter than this, in bytes.
const SHORT: usize = 4 << 10;
/// Most connections that wait to be accepted.
const MAX_BACKLOG: usize = 128;
/// Most descriptors in a message.
pub const MAX_RIGHTS: usize = 253;
/// Most options that a socket keeps.
pub const MAX_OPTIONS: usize = 64;
/// The ports that are chosen for programs that ask for any.
const PORTS: core::ops::Range<u16> = 32_768..61_000;

/// The level of options of IPv6.
pub const IPPROTO_IPV6: u32 = 41;

/// The family of a socket, and so the kind of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// `AF_UNIX`: paths, and abstract names.
    Unix,
    /// `AF_INET`: addresses of IPv4 and ports.
    V4,
    /// `AF_INET6`: addresses of IPv6 and ports.
    V6,
    /// `AF_NETLINK`: numbers, for requests about the network. It stands last, so that the encoding of the others in
    /// images does not change.
    Netlink,
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Style {
    /// Bytes.
    Stream,
    /// Single messages.
    Datagram,
    /// Messages over a connection.
    Packets,
}

/// The name of a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Name {
    /// A file: the path as it was given, and the inode.
    File(Vec<u8>, u64),
    /// An abstract name, which is no path.
    Abstract(Vec<u8>),
    /// An address, with those of IPv4 as `::ffff:a.b.c.d`, and a port.
    Port(u128, u16),
    /// Netlink: a number, and the groups whose messages are wanted. No socket is looked up by it.
    Number(u32, u32),
}

/// The key by which a socket is looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    File(u64),
    Abstract(Vec<u8>),
    Port(Style, u16),
}

/// The bits that make an address of IPv4 one of IPv6.
const MAPPED: u128 = 0xffff_0000_0000;
/// The loopback address of IPv4.
pub const LOOPBACK_4: u128 = MAPPED | 0x7f00_0001;
/// The loopback address of IPv6.
pub const LOOPBACK_6: u128 = 1;

/// An address of IPv4 in the form of IPv6.
#[must_use]
pub const fn mapped(address: u32) -> u128 {
    MAPPED | address as u128
}

/// Whether this is an address of IPv4.
#[must_use]
pub const fn is_mapped(address: u128) -> bool {
    address >> 32 == MAPPED >> 32
}

/// Whether this is the wildcard address.
#[must_use]
pub const fn is_any(address: u128) -> bool {
    address == 0 || address == MAPPED
}

/// Whether this is a loopback address.
#[must_use]
pub const fn is_loopback(address: u128) -> bool {
    address == LOOPBACK_6 || is_mapped(address) && address as u32 >> 24 == 127
}

/// The sender of something: process, user and group as programs see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender(pub u32, pub u32, pub u32);

/// A message in a queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of the bytes have been taken.
    pub taken: usize,
    /// The name of the sending socket.
    pub from: Option<Name>,
    /// The sending process.
    pub sender: Sender,
    /// Descriptors that come with it (`SCM_RIGHTS`).
    #[serde(skip)]
    pub rights: Vec<Shared<Description>>,
    /// The payer that the descriptors are charged to.
    #[serde(skip)]
    pub payer: Payer,
}

impl Message {
    /// The bytes that have not been taken.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn size(&self) -> usize {
        OVERHEAD + self.bytes.len()
    }
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not connected.
    Idle,
    /// Accepts connections.
    Listening,
    /// Connected, or was. For datagrams: has a default destination.
    Connected,
}

/// A socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// Which kind of names it has.
    pub family: Family,
    /// What it carries.
    pub style: Style,
    #[serde(skip)]
    payer: Payer,
    /// Whether it listens or is connected.
    pub state: State,
    /// Its name.
    pub name: Option<Name>,
    /// The socket at the other end, while that exists.
    pub peer: Option<u64>,
    /// The name of the peer.
    pub peer_name: Option<Name>,
    /// The process of the peer; of a listening socket, the process that listens.
    pub owner: Sender,
    /// Messages that have come.
    pub queue: VecDeque<Message>,
    /// Bytes in the queue, [`OVERHEAD`] included.
    used: usize,
    /// Descriptors in the queue.
    #[serde(skip)]
    rights: usize,
    capacity: usize,
    /// Whether the socket is shut down for reading, and for writing.
    pub shut: (bool, bool),
    /// An error to be reported at the next call.
    pub error: Option<i32>,
    /// Connections that wait to be accepted.
    pub ready: VecDeque<u64>,
    backlog: usize,
    /// A connection that was begun without waiting is made, and the program has not been told.
    pub is_news: bool,
    /// Options by level and number, with their values.
    pub options: BTreeMap<(u32, u32), u64>,
    /// Sockets whose peer this is, and that found its queue full.
    #[serde(skip)]
    blocked: BTreeSet<u64>,
    /// Whether somebody waits for room.
    #[serde(skip)]
    is_awaited: bool,
    /// The link to other machines.
    #[serde(skip)]
    pub link: Option<Link>,
    /// Whether the program has left the choice of the port to the system.
    #[serde(skip)]
    pub any_port: bool,
}

impl Socket {
    /// Forgets all sockets but `is_own`, as if the others had been closed.
    pub fn leave_others(&mut self, is_own: impl Fn(&u64) -> bool) {
        self.peer = self.peer.filter(&is_own);
        self.blocked.retain(is_own);
    }

    /// Bytes of room in the queue.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.used)
    }

    /// How many bytes a new message in the queue may have.
    pub(crate) fn room_for_bytes(&self) -> usize {
        self.room().saturating_sub(OVERHEAD)
    }

    /// The payer that the socket is charged to.
    pub(crate) const fn payer(&self) -> Payer {
        self.payer
    }

    /// Whether one more connection may wait to be accepted.
    pub(crate) fn takes_connections(&self) -> bool {
        self.state == State::Listening && !self.shut.0 && self.ready.len() <= self.backlog
    }

    /// Whether the socket sends to and receives from addresses of this kind.
    pub(crate) fn speaks_with(&self, address: u128) -> bool {
        match self.family {
            Family::Unix | Family::Netlink => false,
            Family::V4 => is_mapped(address),
            Family::V6 => !self.is_v6_only() || !is_mapped(address),
        }
    }

    /// Approximate memory that the socket takes, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.used + (1 << 10)
    }

    /// Length of the longest message that can be sent to it, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.capacity - OVERHEAD
    }

    /// The value of an option.
    #[must_use]
    pub fn option(&self, level: u32, number: u32) -> u64 {
        self.options.get(&(level, number)).copied().unwrap_or(0)
    }

    /// Whether closing the socket drops unsent data and resets the connection (`SO_LINGER` with time 0).
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

    /// How well the name covers this address: 2 if it is the very address, 1 if it is a wildcard for it, 0 if not at
    /// all.
    pub(crate) fn covers(&self, address: u128) -> u8 {
        match self.name {
            Some(Name::Port(own, _)) => covers(own, self.is_v6_only(), address),
            _ => 0,
        }
    }

    fn is_v6_only(&self) -> bool {
        self.option(IPPROTO_IPV6, IPV6_V6ONLY) != 0
    }

    /// Whether both sockets may have the same port.
    fn may_share(&self, other: &Socket) -> bool {
        let both =
            |option| self.option(SOL_SOCKET, option) != 0 && other.option(SOL_SOCKET, option) != 0;
        let listens = self.state == State::Listening || other.state == State::Listening;
        both(SO_REUSEPORT) || both(SO_REUSEADDR) && (self.style == Style::Datagram || !listens)
    }

    /// Whether a socket from an image is possible.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.queue.iter().all(|message| message.rights.is_empty()) && self.can_be_saved()
    }

    /// Whether the socket would be accepted from an image, apart from descriptors on their way.
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

/// How well a socket bound to `own` covers `address`, as [`Socket::covers`].
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

/// The table of all sockets.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    all: BTreeMap<u64, Socket>,
    places: BTreeSet<(Place, u64)>,
    /// The last port that was chosen.
    last_port: u16,
    /// Descriptors that are on their way.
    under_way: usize,
    /// How often all sockets were searched for circles.
    #[cfg(test)]
    pub(crate) passes: usize,
}

impl Sockets {
    /// The socket with this identity.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<&Socket> {
        self.all.get(&id)
    }

    /// All sockets, in the order of their identities.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Socket)> {
        self.all.iter().map(|(id, socket)| (*id, socket))
    }

    /// Bytes that the queue of a socket would grow by for one more message, not counting the message's own bytes.
    #[must_use]
    pub fn growth(&self, id: u64) -> u64 {
        let queue = self.find(id).map(|socket| &socket.queue);
        let full = queue.filter(|queue| queue.len() == queue.capacity());
        full.map_or(0, |queue| {
            2 * (queue.capacity().max(4) * size_of::<Message>()) as u64
        })
    }

    /// Whether a socket can be looked up by its name.
    #[must_use]
    pub fn is_found(&self, id: u64) -> bool {
        let place = self.all.get(&id).and_then(Socket::place);
        place.is_some_and(|place| self.places.contains(&(place, id)))
    }

    /// The sockets with this key, by rising identity.
    fn at(&self, place: Place) -> impl Iterator<Item = (u64, &Socket)> {
        let range = (place.clone(), 0)..=(place, u64::MAX);
        let found = self.places.range(range);
        found.filter_map(|(_, id)| Some((*id, self.all.get(id)?)))
    }

    /// Whether this file is the name of a socket.
    #[must_use]
    pub fn has_file(&self, ino: u64) -> bool {
        self.at(Place::File(ino)).next().is_some()
    }

    /// The socket that receives what is sent to this name.
    #[must_use]
    pub fn by_name(&self, name: &Name, style: Style) -> Option<u64> {
        self.receiver(name, style, None)
    }

    /// The same, of a datagram from this sender: not a socket that is connected to another one, and first of all one that
    /// is connected to the sender.
    #[must_use]
    pub fn receiver(&self, name: &Name, style: Style, from: Option<&Name>) -> Option<u64> {
        let (place, address) = match name {
            Name::File(_, ino) => (Place::File(*ino), None),
            Name::Abstract(name) => (Place::Abstract(name.clone()), None),
            Name::Port(address, port) => (Place::Port(style, *port), Some(*address)),
            Name::Number(..) => return None,
        };
        let Some(address) = address else {
            return self.at(place).next().map(|(id, _)| id);
        };
        // Listening sockets come first, then those that are bound to the very address.
        let weigh = |(id, socket): (u64, &Socket)| {
            let listens = socket.state == State::Listening || style == Style::Datagram;
            let covers = socket.covers(address);
            let only = socket.peer_name.as_ref().filter(|_| from.is_some());
            let takes = only.is_none() || only == from;
            (covers > 0 && takes).then_some((
                listens,
                only.is_some(),
                covers,
                core::cmp::Reverse(id),
            ))
        };
        let best = self.at(place).filter_map(weigh).max();
        best.map(|(.., id)| id.0)
    }

    /// Whether a socket could be bound to this port at this address.
    fn is_free(&self, id: u64, address: u128, port: u16) -> bool {
        let Some(own) = self.all.get(&id) else {
            return false;
        };
        self.at(Place::Port(own.style, port))
            .all(|(other, socket)| {
                let Some(Name::Port(theirs, _)) = socket.name else {
                    return true;
                };
                // Accepted connections have the port of the socket that listened.
                let is_connection = socket.state == State::Connected && own.style == Style::Stream;
                let meets = covers(address, own.is_v6_only(), theirs) != 0;
                let apart = socket.covers(address) == 0 && !meets;
                other == id || is_connection || apart || own.may_share(socket)
            })
    }
}

/// What became of a message.
pub enum Delivery {
    /// This many of its bytes were taken.
    Taken(usize),
    /// The queue of this socket is full; the sender must wait.
    Full(u64),
}

impl System {
    /// Whether no socket, and nothing charged for any, is left.
    #[cfg(test)]
    pub(crate) fn has_no_sockets(&self) -> bool {
        self.sockets.all.is_empty()
            && self.sockets.places.is_empty()
            && self.sockets.under_way == 0
            && self.counted_things(Thing::Socket) == 0
            && self.counted_things(Thing::Right) == 0
    }

    /// Whether every queue is counted right and within its bounds, and all that wait for room can still be woken.
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

    /// Makes a socket. Errors: `ENFILE`.
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

    /// How many more large sockets a restore may give this payer, whatever the image says.
    #[must_use]
    pub fn large_sockets_left(&self, payer: Payer) -> usize {
        let all = self.sockets.all.values();
        let own = all.filter(|socket| socket.payer == payer && socket.capacity > SMALL);
        LARGE_SOCKETS.saturating_sub(own.count())
    }

    /// Puts a socket from an image into the table, without connections, and not to be found by its name. It is large if
    /// it was and `large` allows one more, and otherwise has just room for what is in its queue. Errors: `ENFILE`.
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

    /// Sets the peer of a socket from an image, and the connections that wait at it.
    pub fn join(&mut self, id: u64, peer: Option<u64>, ready: impl Iterator<Item = u64>) {
        if let Some(socket) = self.sockets.all.get_mut(&id) {
            socket.peer = peer;
            socket.ready = ready.collect();
        }
    }

    /// The socket with this identity, to be changed.
    pub fn socket(&mut self, id: u64) -> Result<&mut Socket, Errno> {
        self.sockets.all.get_mut(&id).ok_or(EINVAL)
    }

    /// Wakes those that wait for these events at a socket, and the link to other machines.
    fn happens_at(&mut self, id: u64, events: u32) {
        self.outside
            .happens(self.sockets.find(id).and_then(|socket| socket.link));
        self.wake_for(Key::Socket(id), events);
    }

    /// Connects two new sockets with each other.
    pub fn pair(&mut self, one: u64, other: u64, owner: Sender) {
        for (id, peer) in [(one, other), (other, one)] {
            if let Some(socket) = self.sockets.all.get_mut(&id) {
                socket.state = State::Connected;
                socket.peer = Some(peer);
                socket.owner = owner;
            }
        }
    }

    /// Binds a socket to a name. Errors: `EADDRINUSE`.
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

    /// Sets the name of a socket, whether or not another one has it.
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

    /// Whether a socket could be bound to this port at this address.
    #[must_use]
    pub fn is_free(&self, id: u64, address: u128, port: u16) -> bool {
        self.sockets.is_free(id, address, port)
    }

    /// Whether another unconnected socket has a link to other machines at this port.
    #[must_use]
    pub fn is_linked(&self, style: Style, port: u16) -> bool {
        let mut others = self.sockets.at(Place::Port(style, port));
        others.any(|(_, socket)| socket.link.is_some() && socket.state != State::Connected)
    }

    /// Chooses a port that is free at this address. Errors: `EADDRINUSE`.
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

    /// Chooses an abstract name that is free.
    pub fn free_name(&mut self) -> Name {
        loop {
            let number = self.new_identity() & 0xf_ffff;
            let name = Name::Abstract(alloc::format!("{number:05x}").into_bytes());
            if self.sockets.by_name(&name, Style::Stream).is_none() {
                return name;
            }
        }
    }

    /// Lets a socket accept connections. Errors: `EADDRINUSE`.
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
            // Wakes those that wait to connect. Nothing has changed for those that wait to accept.
            self.wake_for(Key::Socket(id), 0);
        }
        Ok(())
    }

    /// Connects a socket to a listening one. The socket made for the other end waits there to be accepted, and is
    /// charged to `payer` until then. Errors: `ECONNREFUSED`, `EPROTOTYPE`, `EAGAIN` if the backlog is full, `ENFILE`.
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
        // As on Linux an accepted `AF_UNIX` socket is a new one: a timeout of `accept` is not that of its reads.
        let is_kept = |option: &(u32, u32)| {
            listener.family != Family::Unix || *option == (SOL_SOCKET, SO_PASSCRED)
        };
        let options = listener
            .options
            .iter()
            .filter(|(option, _)| is_kept(option));
        let options = options.map(|(option, value)| (*option, *value)).collect();
        let listens = listener.owner;
        let own = match (&name, &listener.name) {
            // The new end has the address that the client asked for, even if the listener is bound to a wildcard.
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

    /// Takes the first waiting connection, if there is one, and charges it to `payer`. Errors: `ENFILE`; the connection
    /// goes on waiting then.
    pub fn accept(&mut self, id: u64, payer: Payer) -> Result<Option<u64>, Errno> {
        let Some(end) = self.socket(id)?.ready.front().copied() else {
            return Ok(None);
        };
        let before = self.socket(end)?.payer;
        self.move_thing(Thing::Socket, before, payer)?;
        self.socket(end)?.payer = payer;
        self.socket(id)?.ready.pop_front();
        // Wakes those that wait to connect.
        self.happens_at(id, 0);
        Ok(Some(end))
    }

    /// Lets a socket accept no more connections, and closes those that wait.
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

    /// Notes that `who` could not send because `full` was full. When there is room, waiters for [`Key::Room`] are
    /// woken, and watchers of `who` if `full` is its peer.
    pub fn blocks(&mut self, full: u64, who: u64) {
        let is_peer = self.sockets.find(who).and_then(|socket| socket.peer) == Some(full)
            || self.outbox(who) == Some(full);
        if let Some(socket) = self.sockets.all.get_mut(&full) {
            socket.is_awaited = true;
            // Only sockets whose peer this is are noted: no others are ever taken out again.
            if is_peer {
                socket.blocked.insert(who);
            }
        }
    }

    /// Sets or clears the default destination of a datagram socket.
    pub fn set_peer(&mut self, id: u64, peer: Option<u64>) {
        let Some(socket) = self.sockets.all.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut socket.peer, peer);
        self.unblock(before, id);
    }

    /// Notes that a socket does not wait for room at its former peer.
    fn unblock(&mut self, peer: Option<u64>, id: u64) {
        if let Some(peer) = peer.and_then(|peer| self.sockets.all.get_mut(&peer)) {
            peer.blocked.remove(&id);
        }
    }

    /// Puts a message into the queue of a socket; of a stream, as much of it as fits.
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
            // A message without bytes takes room as well.
            let fits = match is_stream {
                true => room > 0,
                false => message.size() <= socket.room(),
            };
            let mut message = message;
            if fits && is_stream {
                message.bytes.truncate(room);
                // The memory that is kept must be what is counted.
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

    /// Notes that `bytes` of the first message were taken, or all of it if `whole`. Returns the descriptors that came
    /// with it.
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

    /// Takes the first message of a socket whose messages never have descriptors.
    pub(crate) fn take_message(&mut self, id: u64) -> Option<Message> {
        let socket = self.sockets.all.get_mut(&id)?;
        let message = socket.queue.pop_front()?;
        socket.used -= message.size();
        self.has_room(id);
        Some(message)
    }

    /// Adds descriptors to a message of an image. Errors: `ETOOMANYREFS`.
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

    /// Wakes those that wait for room in a socket.
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

    /// Shuts a socket down for reading, writing or both.
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

    /// Closes a socket, with the connections that wait at it. Descriptors on their way to it go to `System::dropped`.
    pub fn close_socket(&mut self, id: u64) {
        // Identity, and whether it was accepted or never had to be: connections that were not are reset.
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
        // By socket, how often it is on its way, and its description.
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
        // The map itself holds one more reference to each description.
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

    /// Gives a socket the name that it needs to send to this address, unless it has one. Errors: `EADDRINUSE`,
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
