//! Sockets that reach other machines.
//!
//! A *link* is the emulation's side of a socket of the network server ([`services::net`]). The link of a connection has
//! two sockets in the table: the *near* one, which the program has, and the *far* one, which no program has and which
//! stands for the other machine. So programs use a connection to another machine like one within this machine, with the
//! same queues and waits. Data in the far socket's queue is sent on; data that arrives is put into the near socket's
//! queue as far as there is room. A datagram socket has a far socket, too, to which it sends what is for other
//! machines. A listening socket has none: for each connection that arrives a far socket is made, which connects to it.
//!
//! The work is a list of [`Request`]s, which a thread carries out and answers ([`System::answered`]), one after the
//! other, in turns among the payers ([`Requests`]). Of each link at most two are under way: one that receives (read,
//! receive, accept) and one that sends. Nothing here waits.
//!
//! A link lives until its near socket is closed or the link has failed. It counts for its payer until the thread has
//! reported its end and, if it is a connection, until the network server has accepted the unsent data, or this is given
//! up and the connection reset. So the payer's limit also bounds the data that can wait to be sent.

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

/// Most bytes of one read.
const PIECE: usize = 16 << 10;
/// Accepted connections that the network server may hold for a listening socket.
const READY: u64 = BACKLOG / 2;
/// How many ports are tried if the program has not asked for a particular one.
const TRIES: u32 = 32;
/// The near socket of a link that has none yet.
const NOBODY: u64 = u64::MAX;
/// Longest datagram that can be sent to other machines.
pub const LONGEST: usize = DATAGRAM;

/// The identity of a link.
pub type Link = u64;

/// An address, with IPv4 addresses mapped into IPv6, and a port.
pub type Place = (u128, u16);

/// The addresses of this machine, and whether it has a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Addresses without those of the loopback, and the prefix lengths of their networks.
    pub addresses: Vec<(u128, u8)>,
    /// Whether there is a route to other IPv4 networks.
    pub routes: bool,
}

impl Here {
    /// The source address for packets to this address, if there is a route.
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

    /// Whether the machine has this address.
    #[must_use]
    pub fn has(&self, address: u128) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }
}

/// The network card, as the network server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its hardware address, 48 bits.
    pub address: u64,
    /// Most bytes of a packet (MTU).
    pub mtu: u32,
    /// The machine's addresses.
    pub here: Here,
    /// The router to other networks.
    pub router: Option<u128>,
    /// Frames received, dropped as useless, sent, and dropped for lack of room.
    pub counters: [u64; 4],
}

/// The last answer about the card.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Whether a request for the card is under way.
    is_asked: bool,
    /// The number of answers so far.
    answers: u64,
    /// The card of the last answer; `None` if there is no card or no network server.
    card: Option<Card>,
}

/// The link of requests for the card, which belong to no link.
const OF_CARD: Link = u64::MAX;

/// A request to the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The link.
    pub link: Link,
    /// The payer for whom the link counts.
    pub payer: Payer,
    /// What to do.
    pub what: Ask,
}

/// The action of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Make a socket with this port, if the link has none yet.
    Bind {
        /// Stream or datagram.
        style: Style,
        /// The port.
        port: u16,
    },
    /// Connect, from the port that the socket is bound to or from any.
    Connect(Place),
    /// Report this machine's addresses again, for a link that has a port.
    Look,
    /// Listen, with this backlog.
    Listen(u64),
    /// Accept the next connection, as the link `next`.
    Accept {
        /// The new link.
        next: Link,
    },
    /// Read at most this many bytes.
    Read(usize),
    /// Write all these bytes.
    Write(Vec<u8>),
    /// Shut down the sending side.
    Shut,
    /// Write these buffers and then close the connection, or reset it if the other machine does not accept them in
    /// time. The link is over for the emulation, and counts for its payer until then.
    Finish(Vec<Vec<u8>>),
    /// Send a datagram.
    Send(Place, Vec<u8>),
    /// Receive a datagram.
    Receive,
    /// Close the link. Earlier requests without an answer get none.
    Close,
    /// As [`Ask::Close`], and reset the connection.
    Abort,
    /// Report the card, for no link.
    Card,
}

/// The requests that the thread has not taken, by payer, so that a payer with few requests does not wait for those of
/// one with many.
#[derive(Debug, Default)]
pub struct Requests {
    waiting: BTreeMap<Payer, VecDeque<Request>>,
    /// The payer of the last request that was taken.
    last: Option<Payer>,
}

impl Requests {
    /// No requests.
    #[must_use]
    pub const fn new() -> Self {
        Requests {
            waiting: BTreeMap::new(),
            last: None,
        }
    }

    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Adds a request. A request to close a link drops the waiting requests of the link.
    pub fn put(&mut self, request: Request) {
        let queue = self.waiting.entry(request.payer).or_default();
        if matches!(request.what, Ask::Close | Ask::Abort) {
            queue.retain(|other| other.link != request.link);
        }
        queue.push_back(request);
    }

    /// Takes up to `most` requests, one of each payer in turn.
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

/// The thread's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The link.
    pub link: Link,
    /// The outcome.
    pub said: Said,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The link has its port; this machine's addresses.
    Bound(Here),
    /// A connection is being made, from this port; 0 for the port that the link has already.
    Begun(u16, Here),
    /// The connection is established.
    Connected,
    /// The link is listening.
    Listening,
    /// A connection was accepted, as this link, from this place.
    Came(Link, Place, Here),
    /// Bytes that were read; none at the end of the stream.
    Read(Vec<u8>),
    /// All bytes of a write were accepted, or the sending side was shut down.
    Written,
    /// A datagram, and its sender.
    Received(Place, Vec<u8>),
    /// Sending failed: of a datagram, only this one; of a connection, nothing more can be sent.
    Unsent(Error),
    /// The link has failed and is over.
    Failed(Error),
    /// There is no network.
    Nowhere,
    /// The connection attempt was not answered.
    Silence,
    /// The network server has ended.
    Down,
    /// The thread has closed the link.
    Closed,
    /// The card.
    Card(Card),
}

impl Said {
    /// The error that the program gets.
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

/// The stage of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A port, a connection or listening was requested. The task that did so waits for the answer.
    Asked,
    /// The link has a port.
    Bound(Here),
    /// A connection is being made; whether `connect` has reported that.
    Connecting(bool),
    /// The connection is established.
    Connected,
    /// The link is listening.
    Listening,
    /// The request failed with this error, which has not been reported yet.
    Failed(Errno),
    /// The request failed because the machine has no network.
    Nowhere,
}

/// A link.
#[derive(Clone, Debug)]
struct Linked {
    payer: Payer,
    style: Style,
    /// Buffers of the network server for which it is charged.
    charge: usize,
    /// The program's socket.
    near: u64,
    /// The socket that stands for the other machine.
    far: Option<u64>,
    stage: Stage,
    /// Whether a receiving request is under way, and a sending one.
    fetches: bool,
    sends: bool,
    /// Whether shutting down the sending side was requested.
    shut: bool,
    /// The end of the incoming stream has been reached.
    at_end: bool,
    /// Nothing more can be sent.
    mute: bool,
    /// The root of the tree that is being restored and waits for this link's port.
    root: Option<Pid>,
    /// How many ports were tried, and the last one of them.
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
    /// Links whose sockets have changed, to be looked at for new requests.
    due: BTreeSet<Link>,
    requests: Vec<Request>,
    /// Links that are over, but not yet reported closed by the thread: payer and charge.
    closing: BTreeMap<Link, (Payer, usize)>,
    /// Roots of trees being restored, for which a port was taken or refused.
    rebuilt: Vec<Pid>,
    /// The last answer about the card.
    card: Seen,
}

impl Outside {
    /// The card of the last answer; `None` if there is no card or no network server, or no request was made yet.
    #[must_use]
    pub const fn card(&self) -> Option<&Card> {
        self.card.card.as_ref()
    }

    /// The number of answers about the card.
    #[must_use]
    pub const fn answers(&self) -> u64 {
        self.card.answers
    }

    /// Requests the card, once for all tasks that wait for it ([`Key::Card`]). The last answer stays available, since
    /// other tasks may not have read it yet.
    pub fn ask_for_card(&mut self) {
        if !core::mem::replace(&mut self.card.is_asked, true) {
            self.requests.push(Request {
                link: OF_CARD,
                payer: Payer::Nobody,
                what: Ask::Card,
            });
        }
    }

    /// Whether there is nothing to do.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.due.is_empty() && self.requests.is_empty() && self.rebuilt.is_empty()
    }

    /// The number of links.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// A socket of this link has changed.
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

/// An address and a port in text form.
#[must_use]
pub fn text((address, port): Place) -> String {
    match Ipv6Addr::from_bits(address).to_ipv4_mapped() {
        Some(four) => format!("{four}:{port}"),
        None => format!("[{}]:{port}", Ipv6Addr::from_bits(address)),
    }
}

/// Whether an address is that of another machine, or an address of this one other than the loopback.
#[must_use]
pub const fn is_outside(address: u128) -> bool {
    !is_any(address) && !is_loopback(address)
}

impl System {
    /// The link of a socket, and its stage.
    #[must_use]
    pub fn link(&self, id: u64) -> Option<(Link, &Stage)> {
        let link = self.sockets.find(id)?.link?;
        Some((link, &self.outside.all.get(&link)?.stage))
    }

    /// The port that the link of a socket has or asks for.
    #[must_use]
    pub fn link_port(&self, id: u64) -> Option<u16> {
        let link = self.sockets.find(id)?.link?;
        Some(self.outside.all.get(&link)?.port)
    }

    /// Whether a connection of this socket to another machine is being made.
    #[must_use]
    pub fn is_connecting(&self, id: u64) -> bool {
        matches!(self.link(id), Some((_, Stage::Connecting(_))))
    }

    /// The far socket to which a datagram socket sends messages for other machines.
    #[must_use]
    pub fn outbox(&self, id: u64) -> Option<u64> {
        let link = self.sockets.find(id)?.link?;
        let linked = self.outside.all.get(&link)?;
        linked.far.filter(|_| linked.style == Style::Datagram)
    }

    /// Whether a socket is the far one of a link.
    #[must_use]
    pub fn is_far(&self, id: u64) -> bool {
        let link = self.sockets.find(id).and_then(|socket| socket.link);
        let linked = link.and_then(|link| self.outside.all.get(&link));
        linked.is_some_and(|linked| linked.near != id)
    }

    /// The other machine to which a socket is connected or is being connected.
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

    /// Makes a link for this socket. Errors: `ENOBUFS`.
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

    /// Gives a link its far socket. Errors: `ENFILE`; then the link is closed.
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
        // Listening links may accept a connection again.
        let listen = self.outside.all.iter();
        let listen = listen.filter(|(_, linked)| linked.stage == Stage::Listening);
        self.outside.due.extend(listen.map(|(link, _)| *link));
    }

    /// Begins to bind a port towards other machines, for a socket without a link. Errors: `ENOBUFS`, `ENFILE`.
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

    /// Requests this machine's addresses again for a bound socket, whose stage is [`Stage::Asked`] until the answer. It
    /// may have been bound before the machine had an address.
    pub fn look_again(&mut self, id: u64) {
        let Some((link, Stage::Bound(_))) = self.link(id) else {
            return;
        };
        if let Some(linked) = self.outside.all.get_mut(&link) {
            linked.stage = Stage::Asked;
        }
        self.outside.ask(link, Ask::Look);
    }

    /// Begins to bind a port towards other machines, for a socket that does not exist yet in the tree of `root`
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

    /// The stage of a link.
    #[must_use]
    pub fn stage(&self, link: Link) -> Option<&Stage> {
        self.outside.all.get(&link).map(|linked| &linked.stage)
    }

    /// Closes a link that [`System::reserve`] has made.
    pub fn give_back(&mut self, link: Link) {
        self.close_link(link, Ask::Close);
    }

    /// Gives a socket the link that [`System::reserve`] has made. Errors: `ENOBUFS`, `ENFILE`.
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

    /// Takes the roots of trees being restored for which a port was taken or refused.
    pub fn take_rebuilt(&mut self) -> Vec<Pid> {
        take(&mut self.outside.rebuilt)
    }

    /// Begins to listen towards other machines, for a socket that is bound there. Errors: `ENOBUFS`.
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

    /// Begins to connect a stream socket to another machine. Errors: `ENOBUFS`, `ENFILE`.
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

    /// Notes that `connect` has reported that the connection is being made.
    pub fn told_of_connecting(&mut self, id: u64) {
        let link = self.sockets.find(id).and_then(|socket| socket.link);
        let linked = link.and_then(|link| self.outside.all.get_mut(&link));
        if let Some(Stage::Connecting(told)) = linked.map(|linked| &mut linked.stage) {
            *told = true;
        }
    }

    /// The error with which the link of a socket failed, if it did. The link is removed.
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

    /// Closes the link of a socket, if it has one.
    pub fn unlink(&mut self, id: u64) {
        if let Some(link) = self.sockets.find(id).and_then(|socket| socket.link) {
            self.close_link(link, Ask::Close);
        }
    }

    /// Has the thread close a link, which counts for its payer until that is done. It is forgotten here at once.
    fn close_link(&mut self, link: Link, how: Ask) {
        self.outside.ask(link, how);
        if let Some(linked) = self.outside.all.get_mut(&link) {
            let counts = (linked.payer, take(&mut linked.charge));
            self.outside.closing.insert(link, counts);
        }
        self.end_link(link);
    }

    /// Forgets a link and closes its far socket.
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

    /// The near socket of a link is closed: closes the link. If `is_reset`, because of unread data or by the socket's
    /// option, the connection is reset and unsent data dropped.
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

    /// Takes the requests to the thread, after looking at the links that are due.
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

    /// Requests the next connection if the listening socket and the payer have room for one.
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

    /// Requests a read if the near socket has room, and a write if the far socket has data.
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

    /// Requests the next datagram if there is room, and sends one.
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

    /// Handles an answer of the thread.
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
            // The link is closed already. A connection accepted for it is reset.
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
            // The link has failed since the request was made, when the network server ended, so the thread's new socket
            // is closed.
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
                // A program that only writes learns of the error here: as long as it does not read, no receiving
                // request reports it.
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

    /// The port is in use: returns whether another one is tried, which is done if the program has not asked for a
    /// particular one.
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

    /// A link's request has failed: puts the link into this stage and wakes the task that waits for it.
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

    /// A link has failed.
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
                // The error is reported once: a failed write may have reported it.
                if !is_known {
                    self.set_error(near, errno);
                }
            }
        }
    }

    /// Whether the other machine accepts nothing more, but data that it sent before is still to come.
    #[must_use]
    pub fn still_comes(&self, id: u64) -> bool {
        let socket = self.sockets.find(id).filter(|socket| !socket.shut.0);
        let linked = socket.and_then(|socket| self.outside.all.get(&socket.link?));
        linked.is_some_and(|linked| linked.mute && linked.style == Style::Stream)
    }

    /// Closes a link on which nothing more comes and nothing more can be sent. The thread has reported these two
    /// separately, and still has the socket.
    fn is_done(&mut self, link: Link) {
        if let Some(near) = self.outside.all.get(&link).map(|linked| linked.near) {
            self.close_link(link, Ask::Close);
            self.set_error(near, EPIPE);
        }
    }

    /// A connection is being made: names the near socket.
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

    /// A connection has been established: connects the near and far sockets.
    fn connected(&mut self, link: Link) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        if let (near, Some(far)) = (linked.near, linked.far) {
            self.pair(near, far, Sender::default());
            self.set_stage(link, Stage::Connected);
        }
    }

    /// The name by which another machine reaches this one at the port of a socket: the port, and the address that this
    /// machine has towards the other one. `None` if the socket has no port, or there is no way back.
    fn called(&self, near: u64, here: &Here, from: Place) -> Option<Name> {
        let Some(Name::Port(_, port)) = self.sockets.find(near)?.name else {
            return None;
        };
        Some(Name::Port(here.way(from.0)?, port))
    }

    /// A connection has arrived at a listening socket.
    fn came(&mut self, link: Link, next: Link, from: Place, here: &Here) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        let (payer, near) = (linked.payer, linked.near);
        // Sockets of one port at different addresses share the link of the first one.
        let meant = self.called(near, here, from).and_then(|called| {
            let found = self.sockets.by_name(&called, Style::Stream)?;
            let socket = self.sockets.find(found)?;
            socket.takes_connections().then(|| (found, socket.payer()))
        });
        let (near, payer) = meant.unwrap_or((near, payer));
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

    /// Makes the two ends of a connection that has arrived at a listening socket, and charges its payer. Errors:
    /// `ENOBUFS`, `ENFILE`, `ECONNREFUSED`, and those of [`System::connect`].
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
        // The name is set without registering it, so it is not found by lookups.
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

    /// Bytes have been read; none at the end of the stream.
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
        // Only this link puts data there, and it asked for no more than there was room for.
        let _ = self.deliver(near, message);
    }

    /// A datagram has been received.
    fn received(&mut self, link: Link, from: Place, bytes: Vec<u8>) {
        let Some(linked) = self.outside.all.get(&link) else {
            return;
        };
        let name = Name::Port(from.0, from.1);
        // Sockets of one port at different addresses share the link of the first one.
        let called = match &linked.stage {
            Stage::Bound(here) => self.called(linked.near, here, from),
            _ => None,
        };
        let of_name = |called| {
            let all = &self.sockets;
            all.receiver(&called, Style::Datagram, Some(&name))
        };
        let meant = called.and_then(of_name);
        let near = meant.unwrap_or(linked.near);
        let Some(socket) = self.sockets.find(near) else {
            return;
        };
        let only = socket.peer_name.as_ref();
        if !socket.speaks_with(from.0) || only.is_some_and(|only| *only != name) || socket.shut.0 {
            return;
        }
        let message = Message {
            bytes,
            from: Some(name),
            ..Message::default()
        };
        // A datagram without room is lost, as on any network.
        let _ = self.deliver(near, message);
    }
}
