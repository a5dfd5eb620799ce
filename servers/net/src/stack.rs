//! The sockets of all sessions: ports, quotas, connections that are being closed. `smoltcp` implements the protocols,
//! once for the wire and once for the machine itself; a socket that both can reach has a socket of the stack on each.

mod datagrams;
pub(crate) mod names;
mod neighbours;
mod streams;

use crate::batch::Batch;
use crate::queue::Queue;
use crate::segments::Ends;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::task::Waker;
use proto::Error;
use rt::obj::RefAt;
use services::link::{FRAME, MOST};
use services::net::{Kind, Place, DATAGRAM};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Medium;
use smoltcp::socket::{dhcpv4, dns, icmp, tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint, Ipv6Cidr};
use streams::has_come;

/// Bytes of a connection's buffer, in each direction.
pub(crate) const STREAM: usize = 16 * 1024;
/// Most datagrams that wait in a socket, and most bytes of them, in each direction.
const WAITING: usize = 16;
const WAITING_BYTES: usize = 8 * 1024;
/// Bytes of memory that are reserved for each socket of the stack, of any kind.
pub(crate) const CHARGE: u64 = 2 * STREAM as u64 + 1024;
/// Most sockets of the stack for the sockets of one job, and for all. (A socket for datagrams takes two; a listening
/// one takes two for each connection that it can have ready.)
const JOB_MOST: usize = 128;
const ALL_MOST: usize = 384;
/// Most connections that were closed and are not over.
const CLOSING_MOST: usize = 64;
/// How long the other end may take to confirm what was sent over a closed connection, even if it answers, in
/// nanoseconds.
const CLOSING: u64 = 600_000_000_000;
/// How long the other end may continue to send when it has confirmed everything, in nanoseconds.
const HALF_CLOSED: u64 = 60_000_000_000;
/// How long the stack tries to tell the other end that a connection was given up, in nanoseconds: the wire may be full, and
/// the other end's card not known.
const TELLING: u64 = 5_000_000_000;
/// How long a listening socket waits for the confirmation of a connection that was asked for: it takes no other one
/// meanwhile.
const HALF_OPEN: Duration = Duration::from_secs(30);
/// How long a connection that is being made may get no answer before it is given up: time for seven attempts, each of
/// which waits twice as long as the one before.
const CONNECTING: Duration = Duration::from_secs(130);
/// The same for an established connection. A driver that dies again and again must not end connections.
const SILENCE: Duration = Duration::from_secs(300);
/// How often the other end of an idle connection is asked whether it is still there: a machine that was started again
/// answers that it is not.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Most names that are being asked for at a time, by all jobs together.
const QUERIES: usize = 32;
/// The ports for sockets that ask for no particular one.
const ANY: core::ops::Range<u16> = 49152..65535;
/// How many datagrams the sockets of a party together may give the stack for the wire between two of its turns. The
/// stack sends datagrams of older sockets first, so otherwise one party could fill each batch.
const SHARE: usize = MOST / 4;
/// How often the machine's packets to itself are turned round before others get a turn.
const ROUNDS: usize = 8;

/// The number of a socket, among those of all sessions.
pub type Id = u64;

/// An address of the machine, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// The prefix length in bits.
    pub bits: u8,
}

impl Address {
    /// Parses `10.0.3.1/24`; `None` if it is no unicast address with a possible prefix length.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let bits = bits.parse().ok()?;
        let fits = match address {
            IpAddr::V4(_) => bits <= 32,
            IpAddr::V6(_) => bits <= 128,
        };
        let address = Address { address, bits };
        (fits && address.to_cidr().address().is_unicast()).then_some(address)
    }

    fn to_cidr(self) -> IpCidr {
        IpCidr::new(self.address.into(), self.bits)
    }
}

/// The parameters of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The card's address, in the low 48 bits.
    pub card: u64,
    /// The machine's address in its network; `None` to ask for one by DHCP.
    pub address: Option<Address>,
    /// Secret random numbers, for the wire and for the machine itself, from which the first sequence numbers of
    /// connections and the numbers of queries follow.
    pub seeds: [u64; 2],
    /// Returns a random number that nobody can guess.
    pub random: fn() -> Result<u64, Error>,
    /// Returns the present time, for the beginning of waits. (The time of the last turn may be long ago.)
    pub clock: fn() -> u64,
    /// Makes sure that there is memory for this many bytes more, or fails.
    pub reserve: fn(u64) -> Result<(), Error>,
    /// Makes a waker that interrupts the named thread.
    pub watcher: fn(&RefAt) -> Result<Waker, Error>,
}

/// Why a request was refused: the error for programs, the sentence for people.
pub(crate) type Refusal = (Error, &'static str);

pub(crate) mod refusal {
    use super::{Error, Refusal};

    pub(crate) const NONE: Refusal = (Error::NotFound, "the session has no such socket");
    pub(crate) const KIND: Refusal = (Error::Unsupported, "sockets of this kind do not do that");
    pub(crate) const SESSION: Refusal = (
        Error::Limit,
        "the session has as many sockets as it may have",
    );
    pub(crate) const JOB: Refusal = (
        Error::Limit,
        "the programs of this job have as many sockets as they may have",
    );
    pub(crate) const ALL: Refusal = (Error::Limit, "there are as many sockets as there may be");
    pub(crate) const MEMORY: Refusal = (Error::NoMemory, "there is no memory for it");
    pub(crate) const RANDOM: Refusal = (Error::Broken, "there are no random numbers");
    pub(crate) const BOUND: Refusal = (Error::Invalid, "the socket has a port already");
    pub(crate) const UNBOUND: Refusal = (Error::Invalid, "the socket has no port to listen at");
    pub(crate) const TAKEN: Refusal = (Error::Exists, "the port is taken");
    pub(crate) const PORTS: Refusal = (Error::Limit, "all ports are taken");
    pub(crate) const PORT: Refusal = (Error::Invalid, "there is no such port");
    pub(crate) const BACKLOG: Refusal = (
        Error::Invalid,
        "a listening socket has 1 to 8 connections ready",
    );
    pub(crate) const NOWHERE: Refusal = (Error::Unreachable, "there is no way to this address");
    pub(crate) const REFUSED: Refusal = (
        Error::Refused,
        "the other end does not want the connection, or nobody answers",
    );
    pub(crate) const RESET: Refusal = (Error::Reset, "the other end has given up the connection");
    pub(crate) const SHUT: Refusal = (
        Error::Invalid,
        "this end said that it would write nothing more",
    );
    pub(crate) const WAIT: Refusal = (Error::WouldBlock, "nothing yet");
    pub(crate) const LONG: Refusal = (
        Error::Invalid,
        "a datagram has at most 1,472 bytes, of an echo 1,464",
    );
    pub(crate) const NO_SERVER: Refusal = (Error::Unreachable, "there is nobody to ask for names");
    pub(crate) const BAD_NAME: Refusal = (Error::Invalid, "that is no name");
    pub(crate) const LONG_NAME: Refusal = (
        Error::NameTooLong,
        "a name has at most 255 bytes, 63 between dots",
    );
    pub(crate) const NO_NAME: Refusal = (Error::NotFound, "nobody knows this name");
    pub(crate) const QUERIES: Refusal = (Error::Limit, "too many names are being asked for");
}

type Done<T> = Result<T, Refusal>;

/// One of the two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The wire.
    Wire,
    /// The machine itself.
    Own,
}

/// The stack on one network.
struct Net {
    interface: Interface,
    sockets: SocketSet<'static>,
    queue: Queue,
    /// Whether something was asked for or has come since the stack's last turn.
    changed: bool,
    /// When the stack needs its next turn.
    deadline: Option<u64>,
}

/// A socket of the stack.
type Handle = (Which, SocketHandle);

enum Socket {
    /// A socket for connections that has none yet.
    Idle,
    /// A connection, also one that is being made or was lost.
    Stream {
        at: Handle,
        /// Whether the connection was ever established.
        made: bool,
        /// Whether this end has ended its output.
        shut: bool,
        /// The connection's ends, unless it was lost before anybody looked; and whether the other end has confirmed all
        /// that was sent and the end of the stream.
        ends: Option<Ends>,
        confirmed: bool,
        /// What had come and was not read when both ends had ended the connection. It is moved here, since the stack
        /// forgets it after TIME-WAIT.
        rest: Option<Vec<u8>>,
    },
    /// A socket that takes connections: the stack's sockets that wait for one or have one ready.
    Listening { ready: Vec<Handle> },
    /// A socket for datagrams or echoes: the stack's sockets on the wire and for the machine itself.
    Packets { kind: Kind, at: [Handle; 2] },
}

/// The session that holds a socket, and its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The job; 0 for a session of a server, which opens one for each client of its own.
    pub(crate) job: u32,
    /// The number of the session.
    pub(crate) session: u64,
}

/// The unit by which resources are shared out: a job, or one session of a server.
pub(crate) type Party = (u32, u64);

impl Holder {
    pub(crate) fn party(self) -> Party {
        match self.job {
            0 => (0, self.session),
            job => (job, 0),
        }
    }
}

struct Entry {
    holder: Holder,
    /// The socket's port, if it has one.
    port: Option<u16>,
    socket: Socket,
    /// The destinations on the wire of the last datagrams that were sent since none was waiting to leave.
    sends: Vec<IpAddress>,
    /// Until when an empty datagram may be waiting to leave: the stack counts only the bytes that wait.
    empty_until: u64,
}

/// A connection that was closed and is not over.
struct Closing {
    /// The holder of the closed socket.
    holder: Holder,
    at: Handle,
    port: Option<u16>,
    /// When the connection is given up; for one that was given up, until when the other end may still be told.
    until: u64,
    /// Whether the other end has confirmed all that was sent.
    confirmed: bool,
}

/// The sockets of all sessions, on both networks.
pub struct Stack {
    options: Options,
    wire: Net,
    own: Net,
    dhcp: Option<SocketHandle>,
    dns: SocketHandle,
    /// The servers that are asked for names.
    name_servers: Vec<IpAddress>,
    queries: names::Queries,
    neighbours: neighbours::Neighbours,
    entries: BTreeMap<Id, Entry>,
    next: Id,
    /// How many sessions there have been.
    sessions: u64,
    /// Taken ports, each with its kind.
    ports: BTreeSet<(u8, u16)>,
    /// Closed connections that are not over, in the order in which they were closed.
    closing: Vec<Closing>,
    /// How many datagrams each party has given the stack for the wire since its last turn, and the wakers of clients
    /// that wait for the next turn.
    given: Vec<(Party, usize)>,
    waiting: Vec<Waker>,
    /// Connections that were not established when they were looked at last.
    making: BTreeSet<Id>,
    now: u64,
    /// When the first of the closed connections is to be reset.
    closing_until: Option<u64>,
    /// The earliest deadline of both networks and of the closed connections.
    deadline: Option<u64>,
    /// The wakers of waits with a time limit. One entry is never woken: it keeps the tree's memory allocated when there
    /// are no others.
    timers: BTreeMap<(u64, u64), Waker>,
    /// The time of the first of them; `u64::MAX` if there is none.
    first_timer: u64,
    next_timer: u64,
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1000) as i64)
}

impl Net {
    fn new(medium: Medium, address: HardwareAddress, seed: u64, now: u64) -> Self {
        let mut queue = Queue::new(medium);
        let mut config = Config::new(address);
        config.random_seed = seed;
        Net {
            interface: Interface::new(config, &mut queue, instant(now)),
            sockets: SocketSet::new(Vec::new()),
            queue,
            changed: true,
            deadline: None,
        }
    }

    /// Whether the stack has something to do.
    fn is_due(&self, now: u64) -> bool {
        self.changed || is_due(self.deadline, now)
    }

    fn poll(&mut self, now: u64) {
        self.changed = false;
        if self.queue.came_some() {
            let sockets = &self.sockets;
            let connections = || sockets.iter().filter_map(|(_, socket)| connection(socket));
            self.queue.segments.set_connections(connections);
        }
        self.interface
            .poll(instant(now), &mut self.queue, &mut self.sockets);
    }

    /// Finds out when the stack needs its next turn. There is no deadline while there is no room for what it wants to
    /// send.
    fn set_deadline(&mut self, now: u64) {
        self.deadline = None;
        if self.queue.is_full() {
            return;
        }
        let at = self.interface.poll_at(instant(now), &self.sockets);
        // The stack's clock is rounded down to microseconds, so the time that it returns can be before `now`.
        let nanoseconds = |at: Instant| (at.total_micros().max(0) as u64).saturating_mul(1000);
        self.deadline = at.map(|at| nanoseconds(at).max(now));
    }
}

/// Whether this time has come.
fn is_due(at: Option<u64>, now: u64) -> bool {
    at.is_some_and(|at| at <= now)
}

/// The ends of a connection that is being made or established, and whether it is half open: it came to a listening
/// socket and is not confirmed. A connection in TIME-WAIT does not count, since it may be made anew.
fn connection(socket: &smoltcp::socket::Socket<'_>) -> Option<(Ends, bool)> {
    let smoltcp::socket::Socket::Tcp(socket) = socket else {
        return None;
    };
    let listens = socket.listen_endpoint().port != 0;
    match socket.state() {
        tcp::State::TimeWait => None,
        state => Some((
            (socket.local_endpoint()?, socket.remote_endpoint()?),
            listens && state == tcp::State::SynReceived,
        )),
    }
}

/// The link-local address that a card has without asking anybody.
fn link_local(card: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = card.map(u16::from);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        (a ^ 2) << 8 | b,
        c << 8 | 0xff,
        0xfe00 | d,
        e << 8 | f,
    )
}

fn stream() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; STREAM]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_timeout(Some(CONNECTING));
    socket.set_keep_alive(Some(KEEP_ALIVE));
    // Writers put together what belongs together, and all that waits leaves in one turn. So data need not wait until
    // earlier data are confirmed, which the other end may delay.
    socket.set_nagle_enabled(false);
    socket
}

/// Makes a socket of the stack for packets of a protocol: `udp` or `icmp`, which have no trait in common.
macro_rules! packets {
    ($protocol:ident) => {{
        let buffer = || {
            let waiting = vec![$protocol::PacketMetadata::EMPTY; WAITING];
            $protocol::PacketBuffer::new(waiting, vec![0; WAITING_BYTES])
        };
        $protocol::Socket::new(buffer(), buffer())
    }};
}

/// Whether such a socket has something to read and room to write. The waker is woken when that changes.
macro_rules! packets_ready {
    ($socket:expr, $reads:expr, $writes:expr, $waker:expr) => {{
        let socket = $socket;
        if $reads {
            socket.register_recv_waker($waker);
        }
        if $writes {
            socket.register_send_waker($waker);
        }
        let room = socket.payload_send_capacity() - socket.send_queue();
        (
            socket.can_recv(),
            socket.can_send() && fits(room) || !socket.is_open(),
        )
    }};
}

/// Whether the longest datagram fits into this much room of a ring buffer, wherever the ring's end is.
const fn fits(room: usize) -> bool {
    room >= 2 * DATAGRAM
}

/// One of the two networks, borrowed apart from the other fields of the [`Stack`].
fn one_of<'a>((wire, own): (&'a mut Net, &'a mut Net), which: Which) -> &'a mut Net {
    match which {
        Which::Wire => wire,
        Which::Own => own,
    }
}

impl Stack {
    /// A stack without sockets.
    #[must_use]
    pub fn new(options: Options, now: u64) -> Self {
        let [.., a, b, c, d, e, f] = options.card.to_be_bytes();
        // A card's address never has the group bit, whatever the driver says.
        let card = [a & !1, b, c, d, e, f];
        let address = HardwareAddress::Ethernet(EthernetAddress(card));
        let [of_wire, of_own] = options.seeds;
        let mut wire = Net::new(Medium::Ethernet, address, of_wire, now);
        let own = Net::new(Medium::Ip, HardwareAddress::Ip, of_own, now);
        let dhcp = options
            .address
            .is_none()
            .then(|| wire.sockets.add(dhcpv4::Socket::new()));
        let dns = wire.sockets.add(dns::Socket::new(&[], Vec::new()));
        let mut stack = Stack {
            options,
            wire,
            own,
            dhcp,
            dns,
            name_servers: Vec::new(),
            queries: names::Queries::default(),
            neighbours: neighbours::Neighbours::default(),
            entries: BTreeMap::new(),
            next: 1,
            sessions: 0,
            ports: BTreeSet::new(),
            closing: Vec::new(),
            given: Vec::new(),
            waiting: Vec::new(),
            making: BTreeSet::new(),
            now,
            closing_until: None,
            deadline: None,
            first_timer: u64::MAX,
            timers: BTreeMap::from([((u64::MAX, 0), Waker::noop().clone())]),
            next_timer: 0,
        };
        let link_local = IpCidr::Ipv6(Ipv6Cidr::new(link_local(card), 64));
        let fixed = options.address.map(Address::to_cidr);
        stack.set_addresses(
            &[Some(link_local), fixed]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>(),
        );
        stack
    }

    fn net(&mut self, which: Which) -> &mut Net {
        one_of((&mut self.wire, &mut self.own), which)
    }

    fn tcp(&mut self, (which, handle): Handle) -> &mut tcp::Socket<'static> {
        self.net(which).sockets.get_mut(handle)
    }

    fn udp(&mut self, (which, handle): Handle) -> &mut udp::Socket<'static> {
        self.net(which).sockets.get_mut(handle)
    }

    fn icmp(&mut self, (which, handle): Handle) -> &mut icmp::Socket<'static> {
        self.net(which).sockets.get_mut(handle)
    }

    /// Sets the machine's addresses on the wire, under which the machine reaches itself, too.
    pub(crate) fn set_addresses(&mut self, addresses: &[IpCidr]) {
        self.wire.queue.own = addresses.iter().map(IpCidr::address).collect();
        self.wire.interface.update_ip_addrs(|all| {
            all.clear();
            all.extend(addresses.iter().copied());
        });
        let loopback = [
            IpCidr::new(Ipv4Addr::LOCALHOST.into(), 8),
            IpCidr::new(Ipv6Addr::LOCALHOST.into(), 128),
        ];
        let own = addresses.iter().map(|cidr| {
            let address = cidr.address();
            let bits = match address {
                IpAddress::Ipv4(_) => 32,
                IpAddress::Ipv6(_) => 128,
            };
            IpCidr::new(address, bits)
        });
        self.own.changed = true;
        self.own.interface.update_ip_addrs(|all| {
            all.clear();
            all.extend(loopback.into_iter().chain(own));
        });
    }

    /// Takes a batch that has come over the wire; all of the last one must have been taken. `batch` is left with memory
    /// only.
    pub fn came(&mut self, batch: &mut Batch) {
        self.wire.queue.put(batch);
        self.wire.changed = true;
    }

    /// Takes the batch that is to leave over the wire, in exchange for memory.
    pub fn take_leaving(&mut self, batch: &mut Batch) {
        // There may be more frames, which have found no room.
        self.wire.changed |= self.wire.queue.is_full();
        self.wire.queue.take(batch);
    }

    /// Whether something has changed since the last turn that a turn can handle: a full queue to the wire must be
    /// emptied first.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.own.changed || self.wire.changed && !self.wire.queue.is_full()
    }

    /// Whether frames are to leave over the wire.
    #[must_use]
    pub fn has_leaving(&self) -> bool {
        self.wire.queue.leaves_some()
    }

    /// Handles all that has happened until `now`: frames, requests, deadlines. Returns the latest time for the next
    /// turn, if there has to be one.
    pub fn turn(&mut self, now: u64) -> Option<u64> {
        self.now = now;
        let wire = self.wire.is_due(now);
        if wire {
            self.look_at_listeners(Which::Wire);
            self.wire.poll(now);
            self.given.clear();
            self.waiting.drain(..).for_each(Waker::wake);
            self.learn();
            self.ask_neighbours();
        }
        let own = self.own.is_due(now);
        let mut rounds = 0;
        while own && rounds < ROUNDS {
            self.look_at_listeners(Which::Own);
            self.own.poll(now);
            if !self.own.queue.turn_round() {
                break;
            }
            rounds += 1;
        }
        if wire || own || is_due(self.closing_until, now) {
            self.tend();
            self.closing_until = self.closing.iter().map(|closing| closing.until).min();
            for (net, turned) in [(&mut self.wire, wire), (&mut self.own, own)] {
                if turned || net.changed {
                    net.set_deadline(now);
                }
            }
            if rounds == ROUNDS {
                self.own.deadline = Some(now);
            }
            let all = [self.wire.deadline, self.own.deadline, self.closing_until];
            self.deadline = all.into_iter().flatten().min();
        }
        if self.first_timer <= now {
            while let Some(entry) = self
                .timers
                .first_entry()
                .filter(|entry| entry.key().0 <= now)
            {
                entry.remove().wake();
            }
            self.find_first_timer();
        }
        let timer = (self.first_timer != u64::MAX).then_some(self.first_timer);
        match (self.deadline, timer) {
            (Some(deadline), Some(timer)) => Some(deadline.min(timer)),
            (deadline, timer) => deadline.or(timer),
        }
    }

    /// Notes at which ports of a network sockets listen, and how many of them are free, if frames have come over that
    /// network.
    fn look_at_listeners(&mut self, which: Which) {
        let net = one_of((&mut self.wire, &mut self.own), which);
        if !net.queue.came_some() {
            return;
        }
        let all = &mut net.queue.segments.listeners;
        all.clear();
        for entry in self.entries.values() {
            let (Socket::Listening { ready }, Some(port)) = (&entry.socket, entry.port) else {
                continue;
            };
            let here = ready.iter().filter(|(its, _)| *its == which);
            let sockets = here.map(|(_, handle)| net.sockets.get::<tcp::Socket<'_>>(*handle));
            all.push((port, sockets.filter(|socket| socket.is_listening()).count()));
        }
    }

    /// The network that leads to an address.
    fn way(&self, address: IpAddr) -> Which {
        match address.is_loopback() || self.own.interface.has_ip_addr(IpAddress::from(address)) {
            true => Which::Own,
            false => Which::Wire,
        }
    }

    /// The destination as an endpoint of the stack. Errors: `PORT` for port 0, `NOWHERE` if nothing leads to the
    /// address.
    fn check_way(&mut self, which: Which, to: Place) -> Done<IpEndpoint> {
        let address = IpAddress::from(to.address);
        if to.port == 0 {
            return Err(refusal::PORT);
        }
        let interface = &self.net(which).interface;
        let is_near = interface
            .ip_addrs()
            .iter()
            .any(|cidr| cidr.contains_addr(&address));
        let is_all = interface
            .ip_addrs()
            .iter()
            .any(|cidr| match (cidr, address) {
                (IpCidr::Ipv4(cidr), IpAddress::Ipv4(address)) => cidr.broadcast() == Some(address),
                _ => false,
            });
        let is_far = matches!(address, IpAddress::Ipv4(_))
            && interface.routes().get_default_ipv4_route().is_some();
        match address.is_unicast() && !is_all && (is_near || is_far) {
            true => Ok(IpEndpoint::new(address, to.port)),
            false => Err(refusal::NOWHERE),
        }
    }

    /// Takes a port; for 0, a random free one.
    fn take_port(&mut self, kind: Kind, wanted: u16) -> Done<u16> {
        if wanted != 0 {
            return match self.ports.insert((kind as u8, wanted)) {
                true => Ok(wanted),
                false => Err(refusal::TAKEN),
            };
        }
        let count = ANY.len() as u64;
        let first = (self.options.random)().map_err(|_| refusal::RANDOM)? % count;
        let mut all = (0..count).map(|n| ANY.start + ((first + n) % count) as u16);
        let free = all.find(|port| !self.ports.contains(&(kind as u8, *port)));
        let port = free.ok_or(refusal::PORTS)?;
        self.ports.insert((kind as u8, port));
        Ok(port)
    }

    fn free_port(&mut self, kind: Kind, port: Option<u16>) {
        if let Some(port) = port {
            self.ports.remove(&(kind as u8, port));
        }
    }

    /// Makes sure that there is memory for this many bytes for a client: they are copied once, and kept with its
    /// session until its next request. Called before the bytes are taken out of a socket, since they must stay there
    /// otherwise.
    fn room_to_give(&self, bytes: usize) -> Done<()> {
        match bytes {
            0 => Ok(()),
            _ => (self.options.reserve)(2 * bytes as u64).map_err(|_| refusal::MEMORY),
        }
    }

    /// Makes sure that a job may have `count` sockets of the stack more, and that there is memory for them. A job has
    /// at most one socket more than it leaves to others.
    fn charge(&self, job: u32, count: usize) -> Done<()> {
        let of = |entry: &Entry| match &entry.socket {
            Socket::Idle | Socket::Stream { .. } => 1,
            Socket::Listening { ready } => ready.len(),
            Socket::Packets { .. } => 2,
        };
        let entries = self.entries.values();
        let own = entries.filter(|entry| entry.holder.job == job).map(of);
        let own = own.sum::<usize>() + count;
        let all = self.entries.values().map(of).sum::<usize>() + count;
        if all > ALL_MOST {
            return Err(refusal::ALL);
        }
        if job != 0 && (own > JOB_MOST || own > ALL_MOST.saturating_sub(all) + 1) {
            return Err(refusal::JOB);
        }
        (self.options.reserve)(count as u64 * CHARGE).map_err(|_| refusal::MEMORY)
    }

    fn add(&mut self, holder: Holder, port: Option<u16>, socket: Socket) -> Id {
        let id = self.next;
        self.next += 1;
        let entry = Entry {
            holder,
            port,
            socket,
            sends: Vec::new(),
            empty_until: 0,
        };
        self.entries.insert(id, entry);
        id
    }

    fn entry(&mut self, id: Id) -> Done<&mut Entry> {
        self.entries.get_mut(&id).ok_or(refusal::NONE)
    }

    /// The holder of the sockets of a new session of this job.
    pub(crate) fn holder(&mut self, job: u32) -> Holder {
        self.sessions += 1;
        Holder {
            job,
            session: self.sessions,
        }
    }

    /// Opens a socket.
    pub(crate) fn open(&mut self, holder: Holder, kind: Kind) -> Done<Id> {
        let count = match kind {
            Kind::Stream => 1,
            _ => 2,
        };
        self.charge(holder.job, count)?;
        let socket = match kind {
            Kind::Stream => Socket::Idle,
            _ => Socket::Packets {
                kind,
                at: [Which::Wire, Which::Own].map(|which| {
                    let sockets = &mut self.net(which).sockets;
                    let socket = match kind {
                        Kind::Echo => sockets.add(packets!(icmp)),
                        _ => sockets.add(packets!(udp)),
                    };
                    (which, socket)
                }),
            },
        };
        Ok(self.add(holder, None, socket))
    }

    /// Gives a socket a port; for 0, any.
    pub(crate) fn bind(&mut self, id: Id, port: u64) -> Done<u16> {
        let wanted = u16::try_from(port).map_err(|_| refusal::PORT)?;
        let entry = self.entry(id)?;
        let kind = match entry.socket {
            _ if entry.port.is_some() => return Err(refusal::BOUND),
            Socket::Idle => Kind::Stream,
            Socket::Packets { kind, .. } => kind,
            _ => return Err(refusal::BOUND),
        };
        let port = self.take_port(kind, wanted)?;
        let entry = self.entry(id)?;
        entry.port = Some(port);
        if let Socket::Packets { at, .. } = entry.socket {
            for at in at {
                // Cannot fail: the port is not 0, and the socket has not been bound before.
                let _ = match kind {
                    Kind::Echo => self.icmp(at).bind(icmp::Endpoint::Ident(port)).is_ok(),
                    _ => self.udp(at).bind(port).is_ok(),
                };
            }
        }
        Ok(port)
    }

    /// Closes a socket. Its connection goes on until what was written has arrived, unless this is `hard`.
    pub(crate) fn close(&mut self, id: Id, hard: bool) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        (self.wire.changed, self.own.changed) = (true, true);
        match entry.socket {
            Socket::Idle => self.free_port(Kind::Stream, entry.port),
            Socket::Stream { at, made, .. } => {
                self.close_stream((entry.holder, at), entry.port, hard || !made);
            }
            Socket::Listening { ready } => {
                for at in ready {
                    self.close_stream((entry.holder, at), None, true);
                }
                self.free_port(Kind::Stream, entry.port);
            }
            Socket::Packets { kind, at } => {
                for (which, handle) in at {
                    self.net(which).sockets.remove(handle);
                }
                self.free_port(kind, entry.port);
            }
        }
    }

    /// Whether a socket is ready for a client that reads and for one that writes. If not, the waker is woken when that
    /// changes.
    pub(crate) fn ready(
        &mut self,
        id: Id,
        (reads, writes): (bool, bool),
        waker: &Waker,
    ) -> (bool, bool) {
        let Some(entry) = self.entries.get(&id) else {
            return (reads, writes);
        };
        let (can_read, can_write) = match &entry.socket {
            Socket::Idle => (false, false),
            Socket::Stream { rest: Some(_), .. } => (true, true),
            Socket::Stream { at, .. } => {
                let socket = self.tcp(*at);
                if reads {
                    socket.register_recv_waker(waker);
                }
                if writes {
                    socket.register_send_waker(waker);
                }
                let is_making = matches!(
                    socket.state(),
                    tcp::State::SynSent | tcp::State::SynReceived
                );
                (
                    socket.can_recv() || !socket.may_recv() && !is_making,
                    // Half of the buffer has to be free, as with Linux: a writer that is woken for each confirmed byte
                    // writes few at a time.
                    socket.may_send() && socket.send_queue() <= STREAM / 2
                        || !socket.may_send() && !is_making,
                )
            }
            Socket::Listening { ready } => {
                let ready = ready.clone();
                let mut some = false;
                for at in ready {
                    let socket = self.tcp(at);
                    socket.register_recv_waker(waker);
                    some |= has_come(socket);
                }
                (some, false)
            }
            Socket::Packets { kind, at } => {
                let (kind, at, party) = (*kind, *at, entry.holder.party());
                let both = at.map(|at| match kind {
                    Kind::Echo => packets_ready!(self.icmp(at), reads, writes, waker),
                    _ => packets_ready!(self.udp(at), reads, writes, waker),
                });
                let [wire, own] = both;
                let may = !writes || !self.waits_for_turn(party, waker);
                (wire.0 || own.0, wire.1 && own.1 && may)
            }
        };
        (reads && can_read, writes && can_write)
    }

    /// The present time; see [`Options::clock`].
    pub(crate) fn clock(&self) -> u64 {
        (self.options.clock)()
    }

    /// The time of the last turn.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Starts a timer that wakes the waker at this time.
    pub(crate) fn start_timer(&mut self, at: u64, waker: &Waker) -> (u64, u64) {
        self.next_timer += 1;
        self.timers.insert((at, self.next_timer), waker.clone());
        self.first_timer = self.first_timer.min(at);
        (at, self.next_timer)
    }

    /// Stops a timer.
    pub(crate) fn stop_timer(&mut self, timer: (u64, u64)) {
        self.timers.remove(&timer);
        if timer.0 == self.first_timer {
            self.find_first_timer();
        }
    }

    fn find_first_timer(&mut self) {
        let first = self.timers.first_key_value();
        self.first_timer = first.map_or(u64::MAX, |((at, _), _)| *at);
    }

    /// The machine's address with this index; the loopback addresses are last.
    pub(crate) fn address(&self, index: u64) -> Option<Address> {
        let all = self.wire.interface.ip_addrs();
        let loopback = self.own.interface.ip_addrs().iter().take(2);
        let cidr = all.iter().chain(loopback).nth(index.try_into().ok()?)?;
        Some(Address {
            address: cidr.address().into(),
            bits: cidr.prefix_len(),
        })
    }

    /// The router for other networks.
    pub(crate) fn router(&self) -> Option<IpAddr> {
        let route = self.wire.interface.routes().get_default_ipv4_route()?;
        Some(route.via_router.into())
    }

    /// The server with this index that is asked for names.
    pub(crate) fn name_server(&self, index: u64) -> Option<IpAddr> {
        let index = usize::try_from(index).ok()?;
        self.name_servers.get(index).copied().map(IpAddr::from)
    }

    /// A waker that interrupts the named thread.
    pub(crate) fn watcher(&self, thread: &RefAt) -> Result<Waker, Error> {
        (self.options.watcher)(thread)
    }

    /// Counters of frames on the wire: came, came but useless, left, dropped for lack of room.
    pub(crate) fn counters(&self) -> [u64; 4] {
        self.wire.queue.counters
    }

    /// The card's address, and the most bytes of an IP packet.
    pub(crate) fn card(&self) -> (u64, u64) {
        let address = match self.wire.interface.hardware_addr() {
            HardwareAddress::Ethernet(EthernetAddress([a, b, c, d, e, f])) => {
                u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            }
            HardwareAddress::Ip => 0,
        };
        // An Ethernet header is two addresses and the protocol.
        (address, FRAME as u64 - 14)
    }
}

fn place(end: Option<IpEndpoint>) -> Place {
    match end {
        Some(end) => Place {
            address: end.addr.into(),
            port: end.port,
        },
        // The connection was lost before anybody looked.
        None => Place {
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: 0,
        },
    }
}
