//! Sockets that reach other machines.
//!
//! A *link* is what a socket of the network's server ([`services::net`]) is here. Of a connection it has two sockets of
//! the table: the *near* one, which the program has, and the *far* one, which nobody has and which stands for the other
//! machine. So a connection to another machine is for programs what one within this machine is, with the same queues
//! and waits; what is in the far queue is passed on, what comes is put into the near one as far as there is room. A
//! socket for datagrams has a far one too, into which it sends what is for other machines. A socket that listens has
//! none: for each connection that comes a far one is made, which connects to it.
//!
//! What is to be done is a list of [`Request`]s, which a thread does and answers ([`System::answered`]). It does one
//! after the other, those of payers in turn ([`Requests`]), and of each link at most two are under way: one that brings
//! something (read, receive, accept) and one that sends. Nothing here waits.
//!
//! A link lives until its near socket is closed; or until it has failed. It counts until the thread has heard of its
//! end and, if it is a connection, until what that has sent has been taken by the network's server or is given up, of
//! which the other machine is told: what a payer may have is so the bound of what it may have asked for.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;
use core::net::Ipv6Addr;
use core::ops::Bound;

use crate::errno::{
    Errno, EADDRINUSE, ECONNREFUSED, ECONNRESET, ENETDOWN, ENETUNREACH, ENOBUFS, EPIPE, ETIMEDOUT,
};
use crate::socket::{
    is_any, is_loopback, is_mapped, mapped, Family, Message, Name, Sender, State, Style,
};
use crate::system::{Key, Payer, System, Thing};
use proto::Error;
use services::net::{BACKLOG, DATAGRAM};
use services::process::Pid;

/// Most bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Connections that the network's server has ready for a socket that listens.
const READY: u64 = BACKLOG / 2;
/// How many ports are tried if the program has asked for none.
const TRIES: u32 = 32;
/// The near socket of a link that has none yet.
const NOBODY: u64 = u64::MAX;
/// Longest message that can be sent outside.
pub const LONGEST: usize = DATAGRAM;

/// What tells a link from others.
pub type Link = u64;

/// An address, those of IPv4 as `::ffff:a.b.c.d`, and a port.
pub type Place = (u128, u16);

/// The addresses of this machine in the world, and what it reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Addresses, those of the loopback left out, and the bits of their networks.
    pub addresses: Vec<(u128, u8)>,
    /// Whether what is for other networks of IPv4 goes anywhere.
    pub routes: bool,
}

impl Here {
    /// The own address on the way to this one, if there is a way.
    #[must_use]
    pub fn way(&self, to: u128) -> Option<u128> {
        if is_loopback(to) {
            return Some(to);
        }
        let four = is_mapped(to);
        let mut of_family = self
            .addresses
            .iter()
            .filter(|(own, _)| is_mapped(*own) == four);
        let bits = |bits: u8| u32::from(bits) + if four { 96 } else { 0 };
        let near = of_family.clone().find(|(own, its)| {
            let apart = 128u32.saturating_sub(bits(*its));
            (own ^ to).checked_shr(apart).unwrap_or(0) == 0
        });
        let far = || of_family.next().filter(|_| four && self.routes);
        near.or_else(far).map(|(own, _)| *own)
    }

    /// Whether this is one of the addresses.
    #[must_use]
    pub fn has(&self, address: u128) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }
}

/// The network's card, and what the network's server tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its address, 48 bits.
    pub address: u64,
    /// Most bytes of a packet.
    pub mtu: u32,
    /// The addresses of the machine there.
    pub here: Here,
    /// Who carries further what is for other networks.
    pub router: Option<u128>,
    /// Frames that have come, that were of no use, that have left, for which there was no room.
    pub counters: [u64; 4],
}

/// What is known of the card.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// It is being asked for.
    is_asked: bool,
    /// How often it was told.
    answers: u64,
    /// What was said last; `None`: there is none, or nobody who knows it.
    card: Option<Card>,
}

/// The link for which the card is asked for, which is none.
const OF_CARD: Link = u64::MAX;

/// Something that the thread is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// For this link.
    pub link: Link,
    /// Which counts for this payer.
    pub payer: Payer,
    /// This.
    pub what: Ask,
}

/// What that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A socket with this port, if the link has none yet.
    Bind {
        /// For what.
        style: Style,
        /// The port.
        port: u16,
    },
    /// A connection, from the port that the socket was bound to or from any.
    Connect(Place),
    /// What the addresses of this machine are now, for a link that has a port.
    Look,
    /// Connections are taken, so many at a time.
    Listen(u64),
    /// The next connection, which is the link `next` then.
    Accept {
        /// It.
        next: Link,
    },
    /// At most so many bytes.
    Read(usize),
    /// All of this is sent.
    Write(Vec<u8>),
    /// Nothing more is sent.
    Shut,
    /// This is sent, and then the connection is over; if the other machine does not take it before long, it is told
    /// that the connection was given up. The link is over, and counts until then.
    Finish(Vec<Vec<u8>>),
    /// A datagram is sent.
    Send(Place, Vec<u8>),
    /// The next datagram.
    Receive,
    /// The link is over. What was asked before and has no answer yet has none.
    Close,
    /// As [`Ask::Close`], and the other machine is told that the connection was given up.
    Abort,
    /// What the card is, for no link.
    Card,
}

/// What the thread has still to do, by payer: who asks for little does not wait behind who has asked for much.
#[derive(Debug, Default)]
pub struct Requests {
    waiting: BTreeMap<Payer, VecDeque<Request>>,
    /// Whose the last one was that was taken.
    last: Option<Payer>,
}

impl Requests {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Requests {
            waiting: BTreeMap::new(),
            last: None,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// One more. What was asked for a link that is to be closed is not begun any more.
    pub fn put(&mut self, request: Request) {
        let queue = self.waiting.entry(request.payer).or_default();
        if matches!(request.what, Ask::Close | Ask::Abort) {
            queue.retain(|other| other.link != request.link);
        }
        queue.push_back(request);
    }

    /// The next ones, so many at most: of each payer one, and then of each one more.
    pub fn take(&mut self, most: usize) -> Vec<Request> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
            let mut behind = self.waiting.range((behind, Bound::Unbounded));
            let next = behind.next().or_else(|| self.waiting.first_key_value());
            let Some(payer) = next.map(|(payer, _)| *payer) else {
                break;
            };
            if let Entry::Occupied(mut queue) = self.waiting.entry(payer) {
                taken.extend(queue.get_mut().pop_front());
                if queue.get().is_empty() {
                    queue.remove();
                }
            }
            self.last = Some(payer);
        }
        taken
    }
}

/// What the thread has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For this link.
    pub link: Link,
    /// This.
    pub said: Said,
}

/// What that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has its port, and this machine these addresses.
    Bound(Here),
    /// A connection is being made, from this port; 0: the one that it has.
    Begun(u16, Here),
    /// It is there.
    Connected,
    /// Connections are taken.
    Listening,
    /// One has come, which is this link, from there.
    Came(Link, Place, Here),
    /// Bytes have come; none at the end.
    Read(Vec<u8>),
    /// All that was to be sent was taken; or that nothing more is.
    Written,
    /// A datagram has come, from there.
    Received(Place, Vec<u8>),
    /// What was to be sent was not: only that if it was a datagram, else nothing more can be sent.
    Unsent(Error),
    /// The link is over.
    Failed(Error),
    /// There is no network.
    Nowhere,
    /// Nobody has answered.
    Silence,
    /// The network's server has ended.
    Down,
    /// The thread knows that the link is over.
    Closed,
    /// What the card is.
    Card(Card),
}

impl Said {
    /// Why it did not work.
    const fn errno(&self) -> Errno {
        match self {
            Said::Failed(error) | Said::Unsent(error) => match error {
                Error::Exists => EADDRINUSE,
                Error::Refused => ECONNREFUSED,
                Error::Reset => ECONNRESET,
                Error::Limit | Error::NoMemory => ENOBUFS,
                Error::Broken => ENETDOWN,
                _ => ENETUNREACH,
            },
            Said::Silence => ETIMEDOUT,
            Said::Down => ENETDOWN,
            _ => ENETUNREACH,
        }
    }
}

/// How far a link has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The thread has been asked for a port, a connection or to listen: who has asked waits for that.
    Asked,
    /// It has a port.
    Bound(Here),
    /// A connection is being made; whether who asks for it has been told.
    Connecting(bool),
    /// There is a connection.
    Connected,
    /// Connections are taken.
    Listening,
    /// It has not become what it was to be, for this reason, which has not been told.
    Failed(Errno),
    /// There is no network.
    Nowhere,
}

/// A link.
#[derive(Clone, Debug)]
struct Linked {
    payer: Payer,
    style: Style,
    /// How many buffers of the network's server it may take.
    charge: usize,
    /// What the program has.
    near: u64,
    /// What stands for the other machine.
    far: Option<u64>,
    stage: Stage,
    /// Something is being fetched, or sent.
    fetches: bool,
    sends: bool,
    /// It was said that nothing more is sent.
    shut: bool,
    /// Nothing more comes.
    at_end: bool,
    /// Nothing more can be sent.
    mute: bool,
    /// The tree that is being put together, which waits for its port.
    root: Option<Pid>,
    /// How many ports were tried, and the last one.
    tries: u32,
    port: u16,
}

impl Linked {
    const fn new(payer: Payer, style: Style, charge: usize, near: u64) -> Self {
        Linked {
            payer,
            style,
            charge,
            near,
            far: None,
            stage: Stage::Asked,
            fetches: false,
            sends: false,
            shut: false,
            at_end: false,
            mute: false,
            root: None,
            tries: 0,
            port: 0,
        }
    }
}

/// All links.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    all: BTreeMap<Link, Linked>,
    /// Links that have to be looked at.
    due: BTreeSet<Link>,
    requests: Vec<Request>,
    /// Links that are over and of which the thread does not know that yet: for whom they count, and how much.
    closing: BTreeMap<Link, (Payer, usize)>,
    /// Trees that are being put together, for which something has been done.
    rebuilt: Vec<Pid>,
    /// What is known of the card.
    card: Seen,
}

impl Outside {
    /// What was said of the card last; `None`: there is none, or nobody who knows it, or who has asked.
    #[must_use]
    pub const fn card(&self) -> Option<&Card> {
        self.card.card.as_ref()
    }

    /// How often that was said.
    #[must_use]
    pub const fn answers(&self) -> u64 {
        self.card.answers
    }

    /// Asks for the card, once for all who wait for that ([`Key::Card`]). What was said last stays known: others may have
    /// waited for it and not looked yet.
    pub fn ask_for_card(&mut self) {
        if !core::mem::replace(&mut self.card.is_asked, true) {
            self.requests.push(Request {
                link: OF_CARD,
                payer: Payer::Nobody,
                what: Ask::Card,
            });
        }
    }

    /// Whether nothing is to be done.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.due.is_empty() && self.requests.is_empty() && self.rebuilt.is_empty()
    }

    /// How many links there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Something has happened at a socket of this link.
    pub(crate) fn happens(&mut self, link: Option<Link>) {
        self.due.extend(link);
    }

    fn ask(&mut self, link: Link, what: Ask) {
        if let Some(linked) = self.all.get(&link) {
            self.requests.push(Request {
                link,
                payer: linked.payer,
                what,
            });
        }
    }
}

/// An address and a port as people write them.
#[must_use]
pub fn text((address, port): Place) -> String {
    match Ipv6Addr::from_bits(address).to_ipv4_mapped() {
        Some(four) => format!("{four}:{port}"),
        None => format!("[{}]:{port}", Ipv6Addr::from_bits(address)),
    }
}

/// Whether an address is one of another machine, or of this one in the world.
#[must_use]
pub const fn is_outside(address: u128) -> bool {
    !is_any(address) && !is_loopback(address)
}

impl System {
    /// The link of a socket, and how far it has come.
    #[must_use]
    pub fn link(&self, id: u64) -> Option<(Link, &Stage)> {
        let link = self.sockets.find(id)?.link?;
        Some((link, &self.outside.all.get(&link)?.stage))
    }

    /// The port that the link of a socket has, or asks for.
    #[must_use]
    pub fn link_port(&self, id: u64) -> Option<u16> {
        let link = self.sockets.find(id)?.link?;
        Some(self.outside.all.get(&link)?.port)
    }

    /// Whether a connection to another machine is being made.
    #[must_use]
    pub fn is_connecting(&self, id: u64) -> bool {
        matches!(self.link(id), Some((_, Stage::Connecting(_))))
    }

    /// The socket that takes what a socket sends to other machines, in messages.
    #[must_use]
    pub fn outbox(&self, id: u64) -> Option<u64> {
        let link = self.sockets.find(id)?.link?;
        let linked = self.outside.all.get(&link)?;
        linked.far.filter(|_| linked.style == Style::Datagram)
    }

    /// Whether a socket is nobody's, and stands for another machine.
    #[must_use]
    pub fn is_far(&self, id: u64) -> bool {
        let link = self.sockets.find(id).and_then(|socket| socket.link);
        let linked = link.and_then(|link| self.outside.all.get(&link));
        linked.is_some_and(|linked| linked.near != id)
    }

    /// The other machine to which a socket has a connection, or to which one is being made.
    #[must_use]
    pub fn other_machine(&self, id: u64) -> Option<Place> {
        let socket = self.sockets.find(id)?;
        match (self.link(id)?.1, &socket.peer_name) {
            (Stage::Connecting(_) | Stage::Connected, Some(Name::Port(address, port))) => {
                Some((*address, *port))
            }
            _ => None,
        }
    }

    /// A new link of this socket. Errors: `ENOBUFS`, `ENFILE`.
    fn new_link(&mut self, near: u64, style: Style) -> Result<Link, Errno> {
        let payer = self.socket(near)?.payer();
        let charge = match style {
            Style::Datagram => 2,
            _ => 1,
        };
        self.charge(payer, charge)?;
        let link = self.new_identity();
        self.put_link(link, Linked::new(payer, style, charge, near));
        Ok(link)
    }

    fn put_link(&mut self, link: Link, linked: Linked) {
        for id in [Some(linked.near), linked.far].into_iter().flatten() {
            if let Ok(socket) = self.socket(id) {
                socket.link = Some(link);
            }
        }
        self.outside.all.insert(link, linked);
    }

    /// Gives a link its far socket. Errors: `ENOBUFS`, `ENFILE`; then there is no link any more.
    fn put_far(&mut self, link: Link) -> Result<(), Errno> {
        let Some(linked) = self.outside.all.get(&link) else {
            return Ok(());
        };
        let (near, style, payer) = (linked.near, linked.style, linked.payer);
        let family = self.socket(near)?.family;
        match self.new_socket(family, style, payer) {
            Ok(far) => {
                self.socket(far)?.link = Some(link);
                if let Some(linked) = self.outside.all.get_mut(&link) {
                    linked.far = Some(far);
                }
                Ok(())
            }
            Err(error) => {
                self.unlink(near);
                Err(error)
            }
        }
    }

    fn charge(&mut self, payer: Payer, count: usize) -> Result<(), Errno> {
        for done in 0..count {
            if self.count_thing(Thing::Outside, payer).is_err() {
                self.discharge(payer, done);
                return Err(ENOBUFS);
            }
        }
        Ok(())
    }

    fn discharge(&mut self, payer: Payer, count: usize) {
        for _ in 0..count {
            self.uncount_thing(Thing::Outside, payer);
        }
        // Those that wait for that.
        let listen = self.outside.all.iter();
        let listen = listen.filter(|(_, linked)| linked.stage == Stage::Listening);
        self.outside.due.extend(listen.map(|(link, _)| *link));
    }

    /// Begins to have this port outside, for a socket that has no link. Errors: `ENOBUFS`, `ENFILE`.
    pub fn begin_bind(&mut self, id: u64, port: u16) -> Result<(), Errno> {
        let style = self.socket(id)?.style;
        let link = self.new_link(id, style)?;
        if style == Style::Datagram {
            self.put_far(link)?;
        }
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.port = port;
        }
        self.outside.ask(link, Ask::Bind { style, port });
        Ok(())
    }

    /// What a socket knows of the addresses of this machine is asked for again, and waited for. It may have had its port for longer
    /// than the machine has had an address.
    pub fn look_again(&mut self, id: u64) {
        let Some((link, Stage::Bound(_))) = self.link(id) else {
            return;
        };
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.stage = Stage::Asked;
        }
        self.outside.ask(link, Ask::Look);
    }

    /// Begins to have this port outside, for a socket of the tree of process `root`, which there is not yet
    /// ([`System::give_link`]). Errors: `ENOBUFS`.
    pub fn reserve(&mut self, root: Pid, style: Style, port: u16) -> Result<Link, Errno> {
        let payer = self.process(root).payer;
        let charge = match style {
            Style::Datagram => 2,
            _ => 1,
        };
        self.charge(payer, charge)?;
        let link = self.new_identity();
        let mut linked = Linked::new(payer, style, charge, NOBODY);
        (linked.root, linked.port) = (Some(root), port);
        self.outside.all.insert(link, linked);
        self.outside.ask(link, Ask::Bind { style, port });
        Ok(link)
    }

    /// How far a link has come.
    #[must_use]
    pub fn stage(&self, link: Link) -> Option<&Stage> {
        self.outside.all.get(&link).map(|linked| &linked.stage)
    }

    /// Gives back what [`System::reserve`] has taken.
    pub fn give_back(&mut self, link: Link) {
        self.close_link(link, Ask::Close);
    }

    /// A socket has what [`System::reserve`] has taken. Errors: `ENOBUFS`, `ENFILE`.
    pub fn give_link(&mut self, link: Link, id: u64) -> Result<(), Errno> {
        let Some(linked) = self.outside.all.get_mut(&link) else {
            return Ok(());
        };
        if !matches!(linked.stage, Stage::Bound(_)) {
            // There is no network.
            self.give_back(link);
            return Ok(());
        }
        (linked.near, linked.root) = (id, None);
        let style = linked.style;
        let socket = self.socket(id)?;
        socket.link = Some(link);
        let listens = socket.state == State::Listening;
        match (style, listens) {
            (Style::Datagram, _) => self.put_far(link)?,
            (_, true) => self.begin_listen(id)?,
            _ => {}
        }
        self.outside.happens(Some(link));
        Ok(())
    }

    /// The trees that are being put together and for which a port was taken, or not.
    pub fn take_rebuilt(&mut self) -> Vec<Pid> {
        take(&mut self.outside.rebuilt)
    }

    /// Begins to listen outside, for a socket that is bound there. Errors: `ENOBUFS`, `ENFILE`.
    pub fn begin_listen(&mut self, id: u64) -> Result<(), Errno> {
        let Some((link, Stage::Bound(_))) = self.link(id) else {
            return Ok(());
        };
        let payer = self.outside.all.get(&link).map(|linked| linked.payer);
        let more = 2 * READY as usize;
        self.charge(payer.unwrap_or_default(), more)?;
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.charge += more;
            linked.stage = Stage::Asked;
        }
        self.outside.ask(link, Ask::Listen(READY));
        Ok(())
    }

    /// Begins to connect a socket for connections to another machine. Errors: `ENOBUFS`, `ENFILE`.
    pub fn begin_connect(&mut self, id: u64, to: Place) -> Result<(), Errno> {
        let style = self.socket(id)?.style;
        let link = match self.sockets.find(id).and_then(|socket| socket.link) {
            Some(link) => link,
            None => self.new_link(id, style)?,
        };
        self.put_far(link)?;
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.stage = Stage::Asked;
        }
        let socket = self.socket(id)?;
        socket.peer_name = Some(Name::Port(to.0, to.1));
        socket.is_news = true;
        self.outside.ask(link, Ask::Connect(to));
        Ok(())
    }

    /// Who asks for a connection knows that it is being made.
    pub fn told_of_connecting(&mut self, id: u64) {
        let link = self.sockets.find(id).and_then(|socket| socket.link);
        let linked = link.and_then(|link| self.outside.all.get_mut(&link));
        if let Some(Stage::Connecting(told)) = linked.map(|linked| &mut linked.stage) {
            *told = true;
        }
    }

    /// Why a link has not become what it was to be. It is gone then.
    pub fn take_failure(&mut self, id: u64) -> Option<Errno> {
        let (link, stage) = self.link(id)?;
        let errno = match stage {
            Stage::Failed(errno) => *errno,
            Stage::Nowhere => ENETUNREACH,
            _ => return None,
        };
        self.end_link(link);
        Some(errno)
    }

    /// A socket has no link any more.
    pub fn unlink(&mut self, id: u64) {
        if let Some(link) = self.sockets.find(id).and_then(|socket| socket.link) {
            self.close_link(link, Ask::Close);
        }
    }

    /// Has the thread end a link, which counts until it has. It is forgotten here.
    fn close_link(&mut self, link: Link, how: Ask) {
        self.outside.ask(link, how);
        if let Some(linked) = self.outside.all.get_mut(&link) {
            let counts = (linked.payer, take(&mut linked.charge));
            self.outside.closing.insert(link, counts);
        }
        self.end_link(link);
    }

    /// Forgets a link: its far socket is closed.
    fn end_link(&mut self, link: Link) {
        let Some(linked) = self.outside.all.remove(&link) else {
            return;
        };
        self.outside.due.remove(&link);
        self.discharge(linked.payer, linked.charge);
        for id in [Some(linked.near), linked.far].into_iter().flatten() {
            if let Ok(socket) = self.socket(id) {
                socket.link = None;
            }
        }
        self.wake(Key::Socket(linked.near));
        if let Some(far) = linked.far {
            self.close_socket(far);
        }
    }

    /// The near socket of a link is closed. If it is reset, by what has come and was not read or by its option, the
    /// other machine is told so, and gets nothing more.
    pub(crate) fn link_closes(&mut self, link: Link, id: u64, is_reset: bool) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        if linked.near != id {
            return;
        }
        let mut rest = Vec::new();
        if let Some(far) = linked.far.filter(|_| linked.style == Style::Stream) {
            while let Some(message) = self.take_message(far) {
                rest.push(message.bytes);
            }
        }
        let is_connected =
            self.outside.all.get(&link).map(|linked| &linked.stage) == Some(&Stage::Connected);
        let ask = match (is_connected, is_reset) {
            (true, false) => Ask::Finish(rest),
            (true, true) => Ask::Abort,
            (false, _) => Ask::Close,
        };
        self.close_link(link, ask);
    }

    /// What the thread is to do.
    pub fn take_requests(&mut self) -> Vec<Request> {
        for link in take(&mut self.outside.due) {
            let of = self.outside.all.get(&link);
            match of.map(|linked| (&linked.stage, linked.style)) {
                Some((Stage::Connected, _)) => self.look_at_connection(link),
                Some((Stage::Listening, _)) => self.look_at_listener(link),
                Some((Stage::Bound(_), Style::Datagram)) => self.look_at_datagrams(link),
                _ => None,
            };
        }
        take(&mut self.outside.requests)
    }

    /// Asks for the next connection if there is room for one.
    fn look_at_listener(&mut self, link: Link) -> Option<()> {
        let linked = self.outside.all.get(&link)?;
        let has_room = self.sockets.find(linked.near)?.takes_connections();
        let payer = linked.payer;
        let may = self.left_things(Thing::Outside, payer) > 0;
        if linked.fetches || !has_room || !may {
            return None;
        }
        let next = self.new_identity();
        self.outside.all.get_mut(&link)?.fetches = true;
        self.outside.ask(link, Ask::Accept { next });
        Some(())
    }

    /// Asks for what a connection can take and send.
    fn look_at_connection(&mut self, link: Link) -> Option<()> {
        let linked = self.outside.all.get_mut(&link)?;
        let (near, far) = (self.sockets.find(linked.near)?, linked.far?);
        let is_shut = near.shut.1;
        let room = match near.shut.0 {
            true => 0,
            false => near.room_for_bytes(),
        };
        if !linked.fetches && !linked.at_end && room > 0 {
            linked.fetches = true;
            self.outside.ask(link, Ask::Read(room.min(PIECE)));
        }
        let linked = self.outside.all.get(&link)?;
        if linked.sends {
            return None;
        }
        let (mute, shut) = (linked.mute, linked.shut);
        let mut next = self.take_message(far);
        while mute && next.is_some() {
            next = self.take_message(far);
        }
        let ask = match next {
            Some(message) => Ask::Write(message.bytes),
            None if is_shut && !shut && !mute => Ask::Shut,
            None => return None,
        };
        let linked = self.outside.all.get_mut(&link)?;
        linked.sends = true;
        linked.shut |= ask == Ask::Shut;
        self.outside.ask(link, ask);
        Some(())
    }

    /// Asks for the next datagram, and sends one.
    fn look_at_datagrams(&mut self, link: Link) -> Option<()> {
        let linked = self.outside.all.get_mut(&link)?;
        let near = self.sockets.find(linked.near)?;
        let (sends, far) = (linked.sends, linked.far?);
        if !linked.fetches && near.room_for_bytes() >= DATAGRAM {
            linked.fetches = true;
            self.outside.ask(link, Ask::Receive);
        }
        if sends {
            return None;
        }
        let message = self.take_message(far)?;
        let Some(Name::Port(address, port)) = message.from else {
            return None;
        };
        self.outside.all.get_mut(&link)?.sends = true;
        self.outside
            .ask(link, Ask::Send((address, port), message.bytes));
        Some(())
    }

    /// The thread has done something.
    pub fn answered(&mut self, answer: Answer) {
        let Answer { link, said } = answer;
        if link == OF_CARD {
            self.outside.card = Seen {
                is_asked: false,
                answers: self.outside.card.answers + 1,
                card: match said {
                    Said::Card(card) => Some(card),
                    _ => None,
                },
            };
            self.wake(Key::Card);
            return;
        }
        if said == Said::Closed {
            if let Some((payer, charge)) = self.outside.closing.remove(&link) {
                self.discharge(payer, charge);
            }
            return;
        }
        let Some(linked) = self.outside.all.get_mut(&link) else {
            // Nobody waits for it any more, and the thread has been told or is told now.
            if let Said::Came(next, ..) = said {
                self.outside.requests.push(Request {
                    link: next,
                    payer: Payer::Nobody,
                    what: Ask::Abort,
                });
            }
            return;
        };
        let stage = linked.stage.clone();
        let is_late = match said {
            Said::Bound(_) | Said::Listening => stage != Stage::Asked,
            Said::Begun(..) => stage != Stage::Asked || linked.far.is_none(),
            _ => false,
        };
        match said {
            // The link has failed since it was asked for, with the server that there was then. Nobody has what the thread has made.
            _ if is_late => self.outside.ask(link, Ask::Close),
            Said::Bound(here) => self.set_stage(link, Stage::Bound(here)),
            Said::Listening => self.set_stage(link, Stage::Listening),
            Said::Begun(port, here) => self.begun(link, port, &here),
            Said::Connected => self.connected(link),
            Said::Came(next, from, here) => {
                linked.fetches = false;
                self.came(link, next, from, &here);
            }
            Said::Read(bytes) => {
                linked.fetches = false;
                self.has_read(link, bytes);
            }
            Said::Written => linked.sends = false,
            Said::Received(from, bytes) => {
                linked.fetches = false;
                self.received(link, from, bytes);
            }
            Said::Unsent(_) if linked.style == Style::Datagram => {
                linked.sends = false;
                let near = linked.near;
                self.set_error(near, said.errno());
            }
            Said::Unsent(_) => {
                (linked.sends, linked.mute) = (false, true);
                let (near, is_done) = (linked.near, linked.at_end);
                // Who only writes hears of it here: while it does not read, nothing is fetched that would say so.
                self.set_error(near, said.errno());
                if is_done {
                    self.is_done(link);
                }
            }
            Said::Failed(Error::Exists) if stage == Stage::Asked && self.tries_another(link) => {}
            Said::Nowhere if stage == Stage::Asked => self.fail_with(link, Stage::Nowhere),
            said => {
                let errno = match said {
                    Said::Down if stage == Stage::Connected => ECONNRESET,
                    said => said.errno(),
                };
                self.fail(link, errno);
            }
        }
        self.outside.happens(Some(link));
    }

    fn set_stage(&mut self, link: Link, stage: Stage) {
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.stage = stage;
            let near = linked.near;
            self.outside.rebuilt.extend(linked.root);
            self.wake(Key::Socket(near));
        }
    }

    fn set_error(&mut self, id: u64, errno: Errno) {
        if let Ok(socket) = self.socket(id) {
            socket.error = Some(errno.0);
        }
        self.wake(Key::Socket(id));
    }

    /// A port is another one's; whether another one is tried, which is so if the program has named none.
    fn tries_another(&mut self, link: Link) -> bool {
        let Some(linked) = self.outside.all.get_mut(&link) else {
            return false;
        };
        linked.tries += 1;
        let (style, near, tries) = (linked.style, linked.near, linked.tries);
        let Some(socket) = self.sockets.find(near) else {
            return false;
        };
        let any = match socket.family {
            Family::V4 => mapped(0),
            _ => 0,
        };
        if tries > TRIES || !socket.any_port {
            return false;
        }
        let Ok(port) = self.free_port(near, any) else {
            return false;
        };
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.port = port;
        }
        self.outside.ask(link, Ask::Bind { style, port });
        true
    }

    /// A link has not become what it was to be: who has asked waits, and is told.
    fn fail_with(&mut self, link: Link, stage: Stage) {
        let Some(linked) = self.outside.all.get_mut(&link) else {
            return;
        };
        let near = linked.near;
        let far = linked.far.take();
        if let Ok(near) = self.socket(near) {
            if near.state == State::Idle && near.style == Style::Stream {
                (near.is_news, near.peer_name) = (false, None);
            }
        }
        if let Some(far) = far {
            if let Ok(far) = self.socket(far) {
                far.link = None;
            }
            self.close_socket(far);
        }
        self.set_stage(link, stage);
    }

    /// A link is over.
    fn fail(&mut self, link: Link, errno: Errno) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        let (near, is_known) = (linked.near, linked.mute);
        match (&linked.stage, linked.style) {
            (Stage::Asked, _) | (Stage::Bound(_), Style::Stream) => {
                self.fail_with(link, Stage::Failed(errno));
            }
            (Stage::Connecting(_), _) => {
                if let Ok(near) = self.socket(near) {
                    (near.is_news, near.peer_name) = (false, None);
                }
                self.end_link(link);
                self.set_error(near, errno);
            }
            _ => {
                self.end_link(link);
                // It is said once: who writes may have been told.
                if !is_known {
                    self.set_error(near, errno);
                }
            }
        }
    }

    /// Whether the other machine takes nothing any more, and what it had sent before is still to come.
    #[must_use]
    pub fn still_comes(&self, id: u64) -> bool {
        let socket = self.sockets.find(id).filter(|socket| !socket.shut.0);
        let linked = socket.and_then(|socket| self.outside.all.get(&socket.link?));
        linked.is_some_and(|linked| linked.mute && linked.style == Style::Stream)
    }

    /// Nothing more comes and nothing more can be sent, so the link is over. The thread, which has said each of the two for
    /// itself, still has its socket.
    fn is_done(&mut self, link: Link) {
        if let Some(near) = self.outside.all.get(&link).map(|linked| linked.near) {
            self.close_link(link, Ask::Close);
            self.set_error(near, EPIPE);
        }
    }

    /// A connection is being made.
    fn begun(&mut self, link: Link, port: u16, here: &Here) {
        let Some(linked) = self.outside.all.get_mut(&link) else {
            return;
        };
        if port != 0 {
            linked.port = port;
        }
        let (near, port) = (linked.near, linked.port);
        let to = self
            .sockets
            .find(near)
            .and_then(|socket| socket.peer_name.clone());
        if let Some(Name::Port(to, _)) = to {
            let any = if is_mapped(to) { mapped(0) } else { 0 };
            self.set_name(near, Name::Port(here.way(to).unwrap_or(any), port));
        }
        self.set_stage(link, Stage::Connecting(false));
    }

    /// A connection is there.
    fn connected(&mut self, link: Link) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        if let (near, Some(far)) = (linked.near, linked.far) {
            self.pair(near, far, Sender::default());
            self.set_stage(link, Stage::Connected);
        }
    }

    /// A connection has come to a socket that listens.
    fn came(&mut self, link: Link, next: Link, from: Place, here: &Here) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        let (payer, near) = (linked.payer, linked.near);
        match self.take_connection(near, payer, from, here) {
            Ok((end, far)) => {
                let mut linked = Linked::new(payer, Style::Stream, 1, end);
                (linked.far, linked.stage) = (Some(far), Stage::Connected);
                self.put_link(next, linked);
                self.outside.happens(Some(next));
            }
            Err(_) => self.outside.requests.push(Request {
                link: next,
                payer,
                what: Ask::Abort,
            }),
        }
    }

    /// The two ends of a connection that has come to a socket that listens, which is charged for it. Errors: those of [`System::connect`].
    fn take_connection(
        &mut self,
        listener: u64,
        payer: Payer,
        from: Place,
        here: &Here,
    ) -> Result<(u64, u64), Errno> {
        let socket = self.socket(listener)?;
        let (family, style) = (socket.family, socket.style);
        let Some(Name::Port(address, port)) = socket.name else {
            return Err(ECONNREFUSED);
        };
        let own = here.way(from.0).unwrap_or(address);
        if socket.covers(own) == 0 {
            return Err(ECONNREFUSED);
        }
        self.charge(payer, 1)?;
        let far = match self.new_socket(family, style, payer) {
            Ok(far) => far,
            Err(error) => {
                self.discharge(payer, 1);
                return Err(error);
            }
        };
        // It is not found by that.
        self.socket(far)?.name = Some(Name::Port(from.0, from.1));
        let name = Name::Port(own, port);
        let made = self.connect(far, listener, (Some(name), Sender::default()), payer);
        let end = self.sockets.find(far).and_then(|far| far.peer);
        match (made, end) {
            (Ok(()), Some(end)) => Ok((end, far)),
            (made, _) => {
                self.close_socket(far);
                self.discharge(payer, 1);
                Err(made.err().unwrap_or(ECONNREFUSED))
            }
        }
    }

    /// Bytes have come; none: the end.
    fn has_read(&mut self, link: Link, bytes: Vec<u8>) {
        let Some(linked) = self.outside.all.get_mut(&link) else {
            return;
        };
        let (near, far) = (linked.near, linked.far);
        if bytes.is_empty() {
            linked.at_end = true;
            if linked.mute {
                self.is_done(link);
            } else if let Some(far) = far {
                self.shut_socket(far, false, true);
            }
            return;
        }
        let message = Message {
            bytes,
            ..Message::default()
        };
        // There is room: nobody else puts something there.
        let _ = self.deliver(near, message);
    }

    /// A datagram has come.
    fn received(&mut self, link: Link, from: Place, bytes: Vec<u8>) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        let near = linked.near;
        let Some(socket) = self.sockets.find(near) else {
            return;
        };
        let name = Name::Port(from.0, from.1);
        let only = socket.peer_name.as_ref();
        if !socket.speaks_with(from.0) || only.is_some_and(|only| *only != name) || socket.shut.0 {
            return;
        }
        let message = Message {
            bytes,
            from: Some(name),
            ..Message::default()
        };
        // What has no room is lost, as on any network.
        let _ = self.deliver(near, message);
    }
}
