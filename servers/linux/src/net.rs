//! The network: a thread that makes the requests of links, the sockets to other machines ([`personality::outside`]), to
//! the network server.
//!
//! None of its requests waits. The thread waits for interrupts instead: from [`put`], from the network server when a
//! watched socket may be ready ([`services::net::Network::watch`]), and from a second thread, which has a session
//! without sockets and so learns of the end of the network server.
//!
//! Each payer with sockets has a session of its own, so payers do not take each other's sockets, and the limit of a
//! session is the limit of a payer. Requests are taken from the payers in turn.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use core::sync::atomic::{AtomicBool, Ordering};
use personality::outside::{Answer, Ask, Card, Here, Link, Place, Request, Requests, Said};
use personality::socket::{is_loopback, Style};
use personality::system::Payer;
use proto::Error;
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{sys, thread, time};
use services::net::{words, Kind, NetworkClient, Place as Far, DATAGRAM, SOCKETS};

/// Bytes of memory that an answer takes beside its data.
const ROOM: u64 = 16 << 10;
/// Nanoseconds for which the other machine may accept nothing of the unsent rest of a closed connection.
const FINISH: u64 = 60_000_000_000;
/// Nanoseconds after which a request that found no room is tried again.
const AGAIN: u64 = 500_000_000;
/// Most sessions without sockets that are kept.
const IDLE: usize = 16;
/// Nanoseconds after which a failed connection attempt counts as unanswered and not as refused: the network server
/// gives up after 130 s.
const SILENCE: u64 = 100_000_000_000;
/// Most addresses of the machine that are read.
const ADDRESSES: u64 = 16;
/// Requests that are taken before the sockets are looked at.
const AT_ONCE: usize = 32;

static WORK: Mutex<Work> = Mutex::new(Work {
    requests: Requests::new(),
    thread: None,
});
/// Wakes the server to take answers.
static BELL: Mutex<Option<Ref>> = Mutex::new(None);
static ANSWERS: Mutex<Vec<Answer>> = Mutex::new(Vec::new());
/// Whether `ANSWERS` has any.
static ANSWERED: AtomicBool = AtomicBool::new(false);
/// Whether a network has ever been found.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// The session without sockets, on its way to the second thread.
static SENTRY: Mutex<Option<NetworkClient>> = Mutex::new(None);
/// The second thread, which is started with the first session.
static SENTRY_THREAD: Mutex<Option<Ref>> = Mutex::new(None);
/// Set when the network server has ended.
static LOST: AtomicBool = AtomicBool::new(false);

struct Work {
    requests: Requests,
    /// The thread that makes the requests, started with the first one.
    thread: Option<Ref>,
}

/// Sets the reference through which the server is woken to take answers.
pub(crate) fn set_bell(bell: Ref) {
    *BELL.lock() = Some(bell);
}

/// Whether the machine has a network, or had one.
pub(crate) fn is_there() -> bool {
    if KNOWN.load(Ordering::Relaxed) {
        return true;
    }
    // A network server that is only being started does not count: it may never come, and a machine without a network
    // has its loopback. One that existed is restarted when it ends.
    let is_there = rt::names::lookup("net").is_ok();
    KNOWN.store(is_there, Ordering::Relaxed);
    is_there
}

/// Queues requests for the thread.
pub(crate) fn put(requests: Vec<Request>) {
    if requests.is_empty() {
        return;
    }
    let mut work = WORK.lock();
    if work.thread.is_none() {
        match thread::spawn(run).and_then(|thread| thread.reference()) {
            Ok(thread) => work.thread = Some(thread),
            Err(_) => {
                let failed = |request: Request| Answer {
                    link: request.link,
                    said: match request.what {
                        Ask::Close | Ask::Abort | Ask::Finish(_) => Said::Closed,
                        _ => Said::Failed(Error::NoMemory),
                    },
                };
                ANSWERS.lock().extend(requests.into_iter().map(failed));
                ANSWERED.store(true, Ordering::Release);
                return;
            }
        }
    }
    for request in requests {
        work.requests.put(request);
    }
    if let Some(thread) = &work.thread {
        let _ = thread.interrupt();
    }
}

/// Takes the answers so far.
pub(crate) fn take_answers() -> Vec<Answer> {
    match ANSWERED.swap(false, Ordering::AcqRel) {
        true => take(&mut *ANSWERS.lock()),
        false => Vec::new(),
    }
}

/// Whether there are no answers to take.
pub(crate) fn is_settled() -> bool {
    !ANSWERED.load(Ordering::Acquire)
}

/// The second thread: waits for the end of the network server, again and again.
fn watch_server() {
    loop {
        let session = SENTRY.lock().take();
        let Some(mut session) = session else {
            sys::thread_wait_interrupt();
            continue;
        };
        while session.wait(0, 0, u64::MAX).is_ok() {}
        LOST.store(true, Ordering::Release);
        if let Some(thread) = &WORK.lock().thread {
            let _ = thread.interrupt();
        }
    }
}

/// What the thread is to receive for a link.
#[derive(Clone, Copy, Debug)]
enum Fetch {
    Bytes(usize),
    Datagram,
    Connection(Link),
}

/// A socket of the network server.
struct Socket {
    number: u64,
    /// The time at which connecting began, while it is not done.
    making: Option<u64>,
    fetch: Option<Fetch>,
    /// Buffers to be sent, the bytes of the first one that are sent already, and the receiver of datagrams.
    sends: VecDeque<Vec<u8>>,
    sent: usize,
    to: Option<Place>,
    /// Whether the sending side is to be shut down after the last buffer.
    shut: bool,
    /// Set if the socket is to be closed after the last buffer: the time at which it is given up.
    finish: Option<u64>,
}

impl Socket {
    /// Whether the thread waits for the socket to become readable, and writable.
    fn wanted(&self) -> (bool, bool) {
        let sends = self.making.is_some() || !self.sends.is_empty() || self.shut;
        (self.fetch.is_some(), sends)
    }
}

/// A payer's session with the network server.
struct Session {
    client: NetworkClient,
    sockets: BTreeMap<Link, Socket>,
    /// Until this time nothing is accepted, because there was no room for another connection.
    full: Option<u64>,
    /// When its last socket was closed.
    closed: u64,
    /// Until this time nothing is received, because there was no memory for it.
    short: Option<u64>,
}

/// The state of the thread.
#[derive(Default)]
struct Net {
    sessions: BTreeMap<Payer, Session>,
    /// The payer of each link.
    payers: BTreeMap<Link, Payer>,
    answers: Vec<Answer>,
}

fn run() {
    let mut net = Net::default();
    loop {
        let again = net.turn();
        net.ring();
        if again {
            continue;
        }
        match net.deadline() {
            None => drop(sys::thread_wait_interrupt()),
            Some(deadline) => drop(sys::thread_wait_interrupt_until(deadline)),
        }
    }
}

impl Net {
    fn say(&mut self, link: Link, said: Said) {
        self.answers.push(Answer { link, said });
    }

    /// Hands the answers over to the server and wakes it.
    fn ring(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        ANSWERS.lock().append(&mut self.answers);
        if !ANSWERED.swap(true, Ordering::AcqRel) {
            if let Some(bell) = &*BELL.lock() {
                let _ = bell.poke();
            }
        }
    }

    /// The earliest time at which something has to be done.
    fn deadline(&self) -> Option<u64> {
        let sockets = self.sessions.values().flat_map(|s| s.sockets.values());
        let finish = sockets.filter_map(|socket| socket.finish);
        finish
            .chain(
                self.sessions
                    .values()
                    .flat_map(|s| [s.full, s.short])
                    .flatten(),
            )
            .min()
    }

    /// Does what can be done at once; returns whether there may be more.
    fn turn(&mut self) -> bool {
        if LOST.swap(false, Ordering::AcqRel) {
            self.lose();
        }
        let requests = WORK.lock().requests.take(AT_ONCE);
        let mut again = !requests.is_empty();
        for request in requests {
            self.begin(request);
        }
        let payers: Vec<Payer> = self.sessions.keys().copied().collect();
        for payer in payers {
            again |= self.attend(payer);
        }
        again
    }

    /// The network server has ended: reports that to all links.
    fn lose(&mut self) {
        let sessions = take(&mut self.sessions);
        for (link, payer) in take(&mut self.payers) {
            let session = sessions.get(&payer);
            let socket = session.and_then(|session| session.sockets.get(&link));
            let is_over = socket.is_some_and(|socket| socket.finish.is_some());
            self.say(link, if is_over { Said::Closed } else { Said::Down });
        }
    }

    /// The session of a payer, a new one if it has none. Errors: `NotFound` if there is no network.
    fn session(&mut self, payer: Payer) -> Result<&mut Session, Error> {
        if !self.sessions.contains_key(&payer) {
            rt::heap::want(ROOM)?;
            let door = rt::names::lookup("net")?;
            if self.sessions.is_empty() {
                // The second thread's session is at the same door, so it ends together with the others.
                let sentry = NetworkClient::open_known(&door)?;
                let mut thread = SENTRY_THREAD.lock();
                if thread.is_none() {
                    let spawned = thread::spawn(watch_server).and_then(|t| t.reference());
                    *thread = Some(spawned.map_err(rt::error_of)?);
                }
                *SENTRY.lock() = Some(sentry);
                if let Some(thread) = &*thread {
                    let _ = thread.interrupt();
                }
            }
            let mut client = NetworkClient::open_known(&door)?;
            let own = match &WORK.lock().thread {
                Some(thread) => thread.copy().map_err(rt::error_of)?,
                None => return Err(Error::Broken),
            };
            client.tell(&own)?;
            let session = Session {
                client,
                sockets: BTreeMap::new(),
                full: None,
                closed: 0,
                short: None,
            };
            self.sessions.insert(payer, session);
        }
        self.sessions.get_mut(&payer).ok_or(Error::Broken)
    }

    /// The session and the socket of a link.
    fn find(&mut self, link: Link) -> Option<(&mut NetworkClient, &mut Socket)> {
        let payer = self.payers.get(&link)?;
        let session = self.sessions.get_mut(payer)?;
        Some((&mut session.client, session.sockets.get_mut(&link)?))
    }

    /// The number of the socket of a link, a new one if it has none.
    fn open(&mut self, link: Link, payer: Payer, style: Style) -> Result<u64, Error> {
        if let Some((_, socket)) = self.find(link) {
            return Ok(socket.number);
        }
        let kind = match style {
            Style::Datagram => Kind::Datagram,
            _ => Kind::Stream,
        };
        let session = self.session(payer)?;
        let number = session.client.socket(kind)?;
        self.insert(link, payer, Socket::new(number));
        Ok(number)
    }

    fn insert(&mut self, link: Link, payer: Payer, socket: Socket) {
        if let Some(session) = self.sessions.get_mut(&payer) {
            session.sockets.insert(link, socket);
            self.payers.insert(link, payer);
        }
    }

    /// Ends a link. The other machine receives all that was sent, unless `hard`: then the connection is reset.
    fn end(&mut self, link: Link, hard: bool) {
        let Some(payer) = self.payers.remove(&link) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&payer) else {
            return;
        };
        let mut was_over = false;
        if let Some(socket) = session.sockets.remove(&link) {
            was_over = socket.finish.is_some();
            let _ = match hard {
                true => session.client.abort(socket.number),
                false => session.client.close(socket.number),
            };
        }
        session.full = None;
        if session.sockets.is_empty() {
            session.closed = time::now();
            self.forget_idle();
        }
        if was_over {
            // The link has counted for its payer until now.
            self.say(link, Said::Closed);
        }
    }

    fn close(&mut self, link: Link) {
        self.end(link, false);
    }

    /// Ends the session that has been without sockets longest if more than [`IDLE`] have none. The others are kept
    /// because the network server divides its resources by session: a payer with a new session for each socket would
    /// get more than its share.
    fn forget_idle(&mut self) {
        let all = self.sessions.iter();
        let idle = || {
            all.clone()
                .filter(|(_, session)| session.sockets.is_empty())
        };
        let first = idle().min_by_key(|(_, session)| session.closed);
        if let Some(payer) = first
            .map(|(payer, _)| *payer)
            .filter(|_| idle().count() > IDLE)
        {
            self.sessions.remove(&payer);
        }
    }

    /// Ends a link because of an error.
    fn fail(&mut self, link: Link, error: Error) {
        self.close(link);
        let said = match error {
            Error::NotFound => Said::Nowhere,
            error => Said::Failed(error),
        };
        self.say(link, said);
    }

    /// Begins to carry out a request.
    fn begin(&mut self, request: Request) {
        let Request { link, payer, what } = request;
        let done = match what {
            Ask::Bind { style, port } => self.bind(link, payer, style, port),
            Ask::Look => self.look(link),
            Ask::Card => self.card(link, payer),
            Ask::Connect(to) => self.connect(link, payer, to),
            Ask::Listen(backlog) => self.listen(link, backlog),
            Ask::Accept { next } => self.fetch(link, Fetch::Connection(next)),
            Ask::Read(most) => self.fetch(link, Fetch::Bytes(most)),
            Ask::Receive => self.fetch(link, Fetch::Datagram),
            Ask::Write(bytes) => self.send(link, None, bytes),
            Ask::Send(to, bytes) => self.send(link, Some(to), bytes),
            Ask::Shut => {
                if let Some((_, socket)) = self.find(link) {
                    socket.shut = true;
                }
                self.write(link)
            }
            Ask::Finish(rest) => {
                self.finish(link, rest);
                Ok(())
            }
            end @ (Ask::Close | Ask::Abort) => {
                self.end(link, end == Ask::Abort);
                self.say(link, Said::Closed);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.fail(link, error);
        }
    }

    fn bind(&mut self, link: Link, payer: Payer, style: Style, port: u16) -> Result<(), Error> {
        self.open(link, payer, style)?;
        let (client, socket) = self.find(link).ok_or(Error::Broken)?;
        client.bind(socket.number, port.into())?;
        let here = here(client)?;
        self.say(link, Said::Bound(here));
        Ok(())
    }

    fn look(&mut self, link: Link) -> Result<(), Error> {
        let (client, _) = self.find(link).ok_or(Error::Broken)?;
        let here = here(client)?;
        self.say(link, Said::Bound(here));
        Ok(())
    }

    fn card(&mut self, link: Link, payer: Payer) -> Result<(), Error> {
        let client = &mut self.session(payer)?.client;
        let (address, mtu) = client.card()?;
        let (came, useless, left, dropped) = client.counters()?;
        let router = client.router().ok();
        let card = Card {
            address,
            mtu: mtu.min(u32::MAX.into()) as u32,
            here: here(client)?,
            router: router.map(|(high, low)| u128::from(high) << 64 | u128::from(low)),
            counters: [came, useless, left, dropped],
        };
        self.say(link, Said::Card(card));
        Ok(())
    }

    fn connect(&mut self, link: Link, payer: Payer, to: Place) -> Result<(), Error> {
        let is_new = self.find(link).is_none();
        self.open(link, payer, Style::Stream)?;
        let (client, socket) = self.find(link).ok_or(Error::Broken)?;
        let number = socket.number;
        let port = match is_new {
            true => client.bind(number, 0)?,
            false => 0,
        };
        let (high, low) = halves(to.0);
        client.connect(number, high, low, to.1.into())?;
        socket.making = Some(time::now());
        let here = here(client)?;
        self.say(link, Said::Begun(port as u16, here));
        Ok(())
    }

    fn listen(&mut self, link: Link, backlog: u64) -> Result<(), Error> {
        let (client, socket) = self.find(link).ok_or(Error::Broken)?;
        client.listen(socket.number, backlog)?;
        self.say(link, Said::Listening);
        Ok(())
    }

    fn fetch(&mut self, link: Link, fetch: Fetch) -> Result<(), Error> {
        if let Some((_, socket)) = self.find(link) {
            socket.fetch = Some(fetch);
        }
        Ok(())
    }

    fn send(&mut self, link: Link, to: Option<Place>, bytes: Vec<u8>) -> Result<(), Error> {
        let Some((_, socket)) = self.find(link) else {
            return Ok(());
        };
        socket.sends.push_back(bytes);
        socket.to = to;
        self.write(link)
    }

    /// Closes a connection after this last data. `Closed` is reported when it has been sent; until then it counts for
    /// the payer, which bounds how much can wait.
    fn finish(&mut self, link: Link, rest: Vec<Vec<u8>>) {
        let Some((_, socket)) = self.find(link) else {
            self.say(link, Said::Closed);
            return;
        };
        socket.sends.extend(rest);
        socket.fetch = None;
        socket.finish = Some(time::now().saturating_add(FINISH));
        if self.write(link).is_err() {
            self.close(link);
        }
    }

    /// Sends as much as is accepted. Errors: those that end the link.
    fn write(&mut self, link: Link) -> Result<(), Error> {
        let Some((client, socket)) = self.find(link) else {
            return Ok(());
        };
        if socket.making.is_some() {
            return Ok(());
        }
        let mut done = false;
        let result = loop {
            let Some(first) = socket.sends.front() else {
                break Ok(());
            };
            let sent = match socket.to {
                Some(to) => {
                    let (high, low) = halves(to.0);
                    let sent = client.send(socket.number, high, low, to.1.into(), first);
                    sent.map(|()| first.len())
                }
                None => {
                    let rest = first.get(socket.sent..).unwrap_or_default();
                    let sent = client.write(socket.number, rest);
                    sent.map(|sent| socket.sent.saturating_add(sent as usize))
                }
            };
            match sent {
                Ok(sent) => {
                    socket.finish = socket.finish.map(|_| time::now().saturating_add(FINISH));
                    socket.sent = sent;
                    if sent >= first.len() {
                        socket.sends.pop_front();
                        (socket.sent, done) = (0, true);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let result = match result {
            Ok(()) if socket.shut => client.shut(socket.number).map(|()| {
                (socket.shut, done) = (false, true);
            }),
            result => result,
        };
        let is_over = socket.finish.is_some();
        match result {
            Err(Error::WouldBlock) => {}
            Err(Error::Broken) => return Err(Error::Broken),
            _ if is_over => self.close(link),
            Ok(()) if done => self.say(link, Said::Written),
            Ok(()) => {}
            Err(error) => {
                (socket.sent, socket.shut) = (0, false);
                socket.sends.clear();
                self.say(link, Said::Unsent(error));
            }
        }
        Ok(())
    }

    /// Does what can be done at once for a session; returns whether there may be more.
    fn attend(&mut self, payer: Payer) -> bool {
        let now = time::now();
        let Some(session) = self.sessions.get_mut(&payer) else {
            return false;
        };
        session.full = session.full.filter(|until| *until > now);
        session.short = session.short.filter(|until| *until > now);
        let (mut readable, mut writable) = (0, 0);
        let mut late = Vec::new();
        for (link, socket) in &session.sockets {
            let (reads, writes) = socket.wanted();
            let waits = session.short.is_some()
                || matches!(socket.fetch, Some(Fetch::Connection(_))) && session.full.is_some();
            readable |= u64::from(reads && !waits) << (socket.number % SOCKETS);
            writable |= u64::from(writes) << (socket.number % SOCKETS);
            if socket.finish.is_some_and(|until| until <= now) {
                late.push(*link);
            }
        }
        let ready = match (readable, writable) {
            (0, 0) => Ok((0, 0)),
            _ => session.client.watch(readable, writable),
        };
        let (reads, writes) = match ready {
            Ok(ready) => ready,
            Err(_) => {
                // The network server has ended.
                self.lose();
                return true;
            }
        };
        let is_ready = |socket: &Socket, set: u64| set >> (socket.number % SOCKETS) & 1 != 0;
        let all = session.sockets.iter();
        let ready: Vec<(Link, bool, bool)> = all
            .map(|(link, socket)| (*link, is_ready(socket, reads), is_ready(socket, writes)))
            .filter(|(_, reads, writes)| *reads || *writes)
            .collect();
        for link in late {
            // Resets the connection, so that the other machine does not take what it has received for all the data.
            self.end(link, true);
        }
        let again = !ready.is_empty();
        for (link, reads, writes) in ready {
            let mut done = Ok(());
            if writes {
                done = self.made(link).and_then(|()| self.write(link));
            }
            if reads {
                done = done.and_then(|()| self.read(link));
            }
            if let Err(error) = done {
                self.fail(link, error);
            }
        }
        again
    }

    /// Reports a connection that was being made and is established, or has failed.
    fn made(&mut self, link: Link) -> Result<(), Error> {
        let Some((client, socket)) = self.find(link) else {
            return Ok(());
        };
        let Some(since) = socket.making else {
            return Ok(());
        };
        match client.write(socket.number, &[]) {
            Ok(_) => {
                socket.making = None;
                self.say(link, Said::Connected);
                Ok(())
            }
            Err(Error::WouldBlock) => Ok(()),
            Err(_) if time::now().saturating_sub(since) >= SILENCE => {
                self.close(link);
                self.say(link, Said::Silence);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Receives what the link asks for, if it is there.
    fn read(&mut self, link: Link) -> Result<(), Error> {
        let Some((client, socket)) = self.find(link) else {
            return Ok(());
        };
        let Some(fetch) = socket.fetch else {
            return Ok(());
        };
        let number = socket.number;
        let said = match fetch {
            Fetch::Bytes(most) => room(most).and_then(|mut bytes| {
                let length = client.read(number, most as u64, &mut bytes)?;
                bytes.truncate(length);
                bytes.shrink_to_fit();
                Ok(Said::Read(bytes))
            }),
            Fetch::Datagram => room(DATAGRAM).and_then(|mut bytes| {
                let (high, low, port, length) = client.receive(number, &mut bytes)?;
                bytes.truncate(length);
                bytes.shrink_to_fit();
                Ok(Said::Received(place(high, low, port)?, bytes))
            }),
            Fetch::Connection(next) => {
                let came = rt::heap::want(ROOM).and_then(|()| {
                    let (new, high, low, port) = client.accept(number)?;
                    Ok((new, place(high, low, port)?, here(client)?))
                });
                came.map(|(new, from, here)| {
                    let payer = self.payers.get(&link).copied().unwrap_or_default();
                    self.insert(next, payer, Socket::new(new));
                    Said::Came(next, from, here)
                })
            }
        };
        match said {
            Ok(said) => {
                if let Some((_, socket)) = self.find(link) {
                    socket.fetch = None;
                }
                self.say(link, said);
            }
            Err(Error::WouldBlock) => {}
            Err(error @ (Error::Limit | Error::NoMemory))
                if error == Error::NoMemory || matches!(fetch, Fetch::Connection(_)) =>
            {
                let until = Some(time::now().saturating_add(AGAIN));
                let payer = self.payers.get(&link).copied().unwrap_or_default();
                if let Some(session) = self.sessions.get_mut(&payer) {
                    match fetch {
                        Fetch::Connection(_) => session.full = until,
                        _ => session.short = until,
                    }
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Socket {
    const fn new(number: u64) -> Self {
        Socket {
            number,
            making: None,
            fetch: None,
            sends: VecDeque::new(),
            sent: 0,
            to: None,
            shut: false,
            finish: None,
        }
    }
}

/// A buffer of this many bytes. Errors: `NoMemory`.
fn room(bytes: usize) -> Result<Vec<u8>, Error> {
    rt::heap::want(ROOM + 2 * bytes as u64)?;
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::NoMemory)?;
    room.resize(bytes, 0);
    Ok(room)
}

fn halves(address: u128) -> (u64, u64) {
    ((address >> 64) as u64, address as u64)
}

/// An address and a port of the network server in the emulation's form.
fn place(high: u64, low: u64, port: u64) -> Result<Place, Error> {
    let Far { address, port } = Far::from_words(high, low, port)?;
    let (high, low) = words(address);
    Ok((u128::from(high) << 64 | u128::from(low), port))
}

/// The machine's addresses.
fn here(client: &mut NetworkClient) -> Result<Here, Error> {
    let mut here = Here::default();
    for index in 0..ADDRESSES {
        match client.address(index) {
            Ok((high, low, bits)) => {
                let (address, _) = place(high, low, 0)?;
                if !is_loopback(address) {
                    here.addresses.push((address, bits.min(128) as u8));
                }
            }
            Err(Error::NotFound) => break,
            Err(error) => return Err(error),
        }
    }
    here.routes = client.router().is_ok();
    Ok(here)
}
