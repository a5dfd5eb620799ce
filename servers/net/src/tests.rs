//! Two machines and a wire between them that loses, doubles, reorders and alters frames; and hostile frames.

use crate::batch::Batch;
use crate::leaving::Leaving;
use crate::session::{Session, Shared};
use crate::stack::{Address, Options, Stack, STREAM};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::net::IpAddr;
use core::ops::Deref;
use core::pin::{pin, Pin};
use core::task::{Context, Poll, Waker};
use fastrand::Rng;
use proto::Error;
use services::link::{FRAME, MOST};
use services::net::{words, Kind, Network, Place, BACKLOG, SOCKETS};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    Icmpv4Packet, Icmpv4Repr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, TcpSeqNumber,
    UdpPacket, UdpRepr,
};

extern crate std;

/// The time between two turns of a machine, in nanoseconds.
const TICK: u64 = 1_000_000;
const CARD: u64 = 0x5254_0012_3456;

std::thread_local! {
    /// The number that the machines take for random.
    static RANDOM: Cell<u64> = const { Cell::new(5) };
    /// The present time: that of the last turn unless a test sets it.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn enough(_: u64) -> Result<(), Error> {
    Ok(())
}

fn options(number: u64) -> Options {
    Options {
        card: CARD + number,
        address: Address::read(&format!("10.0.3.{}/24", number + 1)),
        seeds: [77 + number, !number],
        random: || Ok(RANDOM.get()),
        clock: || NOW.get(),
        reserve: enough,
        watcher: |_| Ok(Waker::noop().clone()),
    }
}

/// Appends a frame to a batch.
fn push(batch: &mut Batch, frame: &[u8]) {
    batch.push(frame.len()).copy_from_slice(frame);
}

/// The frames of a batch.
fn frames(batch: &Batch) -> impl Iterator<Item = &[u8]> {
    services::link::frames(batch.bytes())
}

/// A machine with a stack.
struct Machine {
    shared: Shared,
    /// Frames on their way to it.
    coming: Vec<Vec<u8>>,
}

impl Machine {
    fn new(options: Options) -> Self {
        Machine {
            shared: Rc::new(RefCell::new(Stack::new(options, 0))),
            coming: Vec::new(),
        }
    }

    fn session(&self) -> Session {
        Session::new(&self.shared, 1)
    }

    /// Gives the stack the frames that have come, and returns those that leave.
    fn turn(&mut self, now: u64) -> Vec<Vec<u8>> {
        NOW.set(now);
        let mut stack = self.shared.borrow_mut();
        let mut leaves = Vec::new();
        let mut batch = Batch::new();
        for coming in self.coming.chunks(MOST) {
            batch.clear();
            for frame in coming {
                push(&mut batch, frame);
            }
            stack.came(&mut batch);
            stack.turn(now);
            while stack.has_leaving() {
                stack.take_leaving(&mut batch);
                leaves.extend(frames(&batch).map(<[u8]>::to_vec));
                batch.clear();
                stack.turn(now);
            }
        }
        self.coming.clear();
        stack.turn(now);
        while stack.has_leaving() {
            stack.take_leaving(&mut batch);
            leaves.extend(frames(&batch).map(<[u8]>::to_vec));
            stack.turn(now);
        }
        leaves
    }
}

/// How bad a wire is: one frame in this many is lost, doubled, put before another one, or altered; 0 for none.
#[derive(Clone, Copy, Default)]
struct Wire {
    lost: u32,
    doubled: u32,
    reordered: u32,
    altered: u32,
}

struct World {
    machines: [Machine; 2],
    wire: Wire,
    random: Rng,
    now: u64,
    /// The last frame that asked for a connection.
    begin: Option<Vec<u8>>,
}

impl World {
    fn new(wire: Wire, seed: u64) -> Self {
        World {
            machines: [0, 1].map(|number| Machine::new(options(number))),
            wire,
            random: Rng::with_seed(seed),
            now: 0,
            begin: None,
        }
    }

    fn happens(random: &mut Rng, one_in: u32) -> bool {
        one_in != 0 && random.u32(..one_in) == 0
    }

    fn turn(&mut self) {
        self.now += TICK;
        for n in 0..2 {
            for mut frame in self.machines[n].turn(self.now) {
                if is_begin(&frame) {
                    self.begin = Some(frame.clone());
                }
                let (random, wire) = (&mut self.random, self.wire);
                let coming = &mut self.machines[1 - n].coming;
                if Self::happens(random, wire.lost) {
                    continue;
                }
                if Self::happens(random, wire.doubled) {
                    coming.push(frame.clone());
                }
                // Not ARP packets: they have no checksum, and rely on that of the card.
                let is_checked = frame[12..14] != [8, 6];
                if is_checked && Self::happens(random, wire.altered) {
                    let at = random.usize(..frame.len());
                    frame[at] ^= 1 << random.u32(..8);
                }
                let place = match Self::happens(random, wire.reordered) {
                    true => random.usize(..=coming.len()),
                    false => coming.len(),
                };
                coming.insert(place, frame);
            }
        }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }
}

fn at(address: &str, port: u16) -> (u64, u64, u64) {
    let address: IpAddr = address.parse().unwrap();
    Place { address, port }.to_words()
}

fn listen(session: &Session, port: u64, backlog: u64) -> u64 {
    let socket = session.socket(Kind::Stream).unwrap();
    assert_eq!(session.bind(socket, port), Ok(port));
    assert_eq!(session.listen(socket, backlog), Ok(()));
    socket
}

fn connect(session: &Session, address: &str, port: u16) -> u64 {
    let socket = session.socket(Kind::Stream).unwrap();
    let (high, low, port) = at(address, port);
    assert_eq!(session.connect(socket, high, low, port), Ok(()));
    socket
}

/// Makes a connection. Returns its sockets: the client's and the accepted one.
fn joined(world: &mut World, client: &Session, server: &Session) -> (u64, u64) {
    let listening = listen(server, 80, 1);
    let socket = connect(client, "10.0.3.2", 80);
    world.turns(10);
    let (accepted, ..) = server.accept(listening).unwrap();
    (socket, accepted)
}

fn read(session: &Session, socket: u64, most: usize) -> Result<Vec<u8>, Error> {
    session
        .read(socket, most as u64, most)
        .map(|bytes| bytes.deref().to_vec())
}

fn why(session: &Session) -> String {
    let why = session.why(256).unwrap();
    String::from_utf8(why.deref().to_vec()).unwrap()
}

/// Polls a future once.
fn poll<F: Future + ?Sized>(future: core::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Bytes that differ by position and by `whose`.
fn content(bytes: usize, whose: u32) -> Vec<u8> {
    let word = |n: u32| (n + whose).wrapping_mul(0x9e37_79b9);
    let mut all: Vec<u8> = (0..bytes.div_ceil(4) as u32)
        .flat_map(|n| word(n).to_le_bytes())
        .collect();
    all.truncate(bytes);
    all
}

/// Sends bytes each way at once, over a connection that is made for that.
fn transfer(wire: Wire, seed: u64, bytes: usize, address: &str) {
    let mut world = World::new(wire, seed);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 2);
    let socket = connect(&client, address, 80);
    let mut accepted = None;
    // What each end sends, and what it has received.
    let sends = [content(bytes, 1), content(bytes / 3, 99)];
    let (mut sent, mut got, mut over) = ([0; 2], [Vec::new(), Vec::new()], [false; 2]);
    let mut turns = 0;
    while over != [true; 2] {
        world.turn();
        turns += 1;
        assert!(
            turns < 400_000,
            "seed {seed}: {sent:?} {} {}",
            got[0].len(),
            got[1].len()
        );
        if accepted.is_none() {
            accepted = server.accept(listening).ok().map(|(socket, ..)| socket);
        }
        let ends = [(&client, Some(socket)), (&server, accepted)];
        for (n, (session, socket)) in ends.into_iter().enumerate() {
            let Some(socket) = socket else {
                continue;
            };
            let rest = &sends[n][sent[n]..];
            if !rest.is_empty() {
                match session.write(socket, &rest[..rest.len().min(5000)]) {
                    Ok(taken) => sent[n] += taken as usize,
                    Err(error) => assert_eq!(error, Error::WouldBlock, "seed {seed}"),
                }
                if sent[n] == sends[n].len() {
                    assert_eq!(session.shut(socket), Ok(()));
                }
            }
            match read(session, socket, 3000) {
                Ok(bytes) if bytes.is_empty() => over[n] = true,
                Ok(bytes) => got[n].extend(bytes),
                Err(error) => assert_eq!(error, Error::WouldBlock, "seed {seed}"),
            }
        }
    }
    assert!(got[1] == sends[0] && got[0] == sends[1], "seed {seed}");
}

#[test]
fn a_connection_carries_all_bytes_over_a_bad_wire() {
    transfer(Wire::default(), 1, 300_000, "10.0.3.2");
    transfer(Wire::default(), 2, 50_000, "fe80::5054:ff:fe12:3457");
    for seed in 0..12 {
        let one_in = |most| Rng::with_seed(seed).u32(5..most);
        let wire = Wire {
            lost: one_in(30),
            doubled: 20,
            reordered: 10,
            // Not often: a checksum of 16 bits lets one in 65,536 pass.
            altered: 50,
        };
        transfer(wire, seed, 40_000, "10.0.3.2");
    }
}

#[test]
fn a_machine_talks_to_itself() {
    let mut machine = Machine::new(options(0));
    for (n, address) in ["127.0.0.1", "::1", "10.0.3.1", "127.9.9.9"]
        .into_iter()
        .enumerate()
    {
        let session = machine.session();
        let listening = listen(&session, 80, 1);
        let socket = connect(&session, address, 80);
        let mut now = n as u64 * 100 * TICK;
        let mut step = |machine: &mut Machine| {
            now += TICK;
            assert!(machine.turn(now).is_empty(), "nothing goes over the wire");
        };
        step(&mut machine);
        let (accepted, ..) = match address {
            // The address is in the machine's loopback network, but is not an address of the machine.
            "127.9.9.9" => {
                assert_eq!(session.accept(listening), Err(Error::WouldBlock));
                continue;
            }
            _ => session.accept(listening).unwrap(),
        };
        assert_eq!(session.write(socket, b"hello"), Ok(5));
        step(&mut machine);
        assert_eq!(read(&session, accepted, 100).as_deref(), Ok(&b"hello"[..]));
        let echo = session.socket(Kind::Echo).unwrap();
        let (high, low, _) = at(address, 9);
        assert_eq!(session.send(echo, high, low, 9, b"there?"), Ok(()));
        step(&mut machine);
        let (_, _, number, bytes) = session.receive(echo, 100).unwrap();
        assert_eq!((number, &bytes[..]), (9, &b"there?"[..]));
    }
}

#[test]
fn datagrams_arrive_with_their_senders() {
    let mut world = World::new(Wire::default(), 3);
    let sessions = [0, 1].map(|n| world.machines[n].session());
    let sockets = sessions
        .each_ref()
        .map(|s| s.socket(Kind::Datagram).unwrap());
    assert_eq!(sessions[1].bind(sockets[1], 5000), Ok(5000));
    let (high, low, port) = at("10.0.3.2", 5000);
    let long = content(1472, 5);
    assert_eq!(sessions[0].send(sockets[0], high, low, port, &long), Ok(()));
    let longer = content(1473, 5);
    let refused = sessions[0].send(sockets[0], high, low, port, &longer);
    assert_eq!(refused, Err(Error::Invalid));
    assert_eq!(
        why(&sessions[0]),
        "a datagram has at most 1,472 bytes, of an echo 1,464"
    );
    world.turns(5);
    let (high, low, port, bytes) = sessions[1].receive(sockets[1], 2000).unwrap();
    assert!(bytes == long);
    assert_eq!((high, low), words("10.0.3.1".parse().unwrap()));
    assert_eq!(
        sessions[1].send(sockets[1], high, low, port, b"back"),
        Ok(())
    );
    world.turns(5);
    let (.., bytes) = sessions[0].receive(sockets[0], 2).unwrap();
    assert_eq!(bytes, b"ba", "what there is room for");
    assert_eq!(sessions[0].receive(sockets[0], 2), Err(Error::WouldBlock));
}

#[test]
fn refusals_are_sentences() {
    let mut world = World::new(Wire::default(), 4);
    let session = world.machines[0].session();
    let socket = session.socket(Kind::Stream).unwrap();
    let (high, low, port) = at("10.0.3.2", 9);
    let refused = |result: Result<(), Error>, error, sentence: &str| {
        assert_eq!((result, &why(&session)[..]), (Err(error), sentence));
    };
    let none = "the session has no such socket";
    for number in [1, SOCKETS, u64::MAX] {
        refused(session.close(number), Error::NotFound, none);
        refused(session.listen(number, 1), Error::NotFound, none);
    }
    refused(
        session.listen(socket, 1),
        Error::Invalid,
        "the socket has no port to listen at",
    );
    let range = "a listening socket has 1 to 8 connections ready";
    refused(session.listen(socket, 0), Error::Invalid, range);
    refused(session.listen(socket, BACKLOG + 1), Error::Invalid, range);
    let bad_port = "there is no such port";
    refused(
        session.bind(socket, 65536).map(drop),
        Error::Invalid,
        bad_port,
    );
    refused(
        session.connect(socket, high, low, 0),
        Error::Invalid,
        bad_port,
    );
    refused(
        session.connect(socket, high, low, 1 << 40),
        Error::Invalid,
        bad_port,
    );
    for far in [
        "8.8.8.8",
        "0.0.0.0",
        "255.255.255.255",
        "10.0.3.255",
        "224.0.0.1",
        "2001:db8::1",
        "::",
        "ff02::1",
    ] {
        let (high, low, port) = at(far, 80);
        let way = "there is no way to this address";
        refused(
            session.connect(socket, high, low, port),
            Error::Unreachable,
            way,
        );
    }
    let kind = "sockets of this kind do not do that";
    refused(
        session.send(socket, high, low, port, b"x"),
        Error::Unsupported,
        kind,
    );
    refused(
        read(&session, socket, 1).map(drop),
        Error::Unsupported,
        kind,
    );
    // Nobody listens at this port.
    assert_eq!(session.connect(socket, high, low, port), Ok(()));
    refused(
        read(&session, socket, 1).map(drop),
        Error::WouldBlock,
        "nothing yet",
    );
    world.turns(10);
    let sentence = "the other end does not want the connection, or nobody answers";
    refused(
        read(&session, socket, 1).map(drop),
        Error::Refused,
        sentence,
    );
    refused(
        session.write(socket, b"x").map(drop),
        Error::Refused,
        sentence,
    );
    let other = world.machines[0].session();
    assert_eq!(listen(&other, 80, 1), 0);
    let socket = session.socket(Kind::Stream).unwrap();
    refused(
        session.bind(socket, 80).map(drop),
        Error::Exists,
        "the port is taken",
    );
    drop(other);
    assert_eq!(session.bind(socket, 80), Ok(80), "it went with its session");
    let mut asked = pin!(session.resolve("example".to_string(), 100));
    assert_eq!(poll(asked.as_mut()), Poll::Ready(Err(Error::Unreachable)));
    assert_eq!(why(&session), "there is nobody to ask for names");
}

#[test]
fn a_job_has_so_many_sockets_and_others_have_theirs() {
    let machine = Machine::new(options(0));
    let fill = |job: u32, kind: Kind| {
        let mut sessions = Vec::new();
        let mut count = 0;
        loop {
            let session = Session::new(&machine.shared, job);
            let more = (0..SOCKETS)
                .take_while(|_| session.socket(kind).is_ok())
                .count();
            count += more;
            let sentence = why(&session);
            sessions.push(session);
            if more < SOCKETS as usize {
                return (sessions, count, sentence);
            }
        }
    };
    let job = "the programs of this job have as many sockets as they may have";
    let (_first, count, sentence) = fill(1, Kind::Stream);
    assert_eq!((count, &sentence[..]), (128, job), "S2: a job's sockets");
    let (second, count, sentence) = fill(2, Kind::Datagram);
    assert_eq!((count, &sentence[..]), (64, job), "each is two");
    // Each further job has half of what was left to it.
    let rule = "S2: a job leaves as many as it has";
    let (_third, count, sentence) = fill(3, Kind::Stream);
    assert_eq!((count, &sentence[..]), (64, job), "{rule}");
    let (_fourth, count, _) = fill(4, Kind::Echo);
    assert_eq!(count, 16, "{rule}");
    let (fifth, count, _) = fill(5, Kind::Stream);
    assert_eq!(count, 16, "{rule}");
    drop((second, fifth));
    let (_fifth, count, _) = fill(5, Kind::Stream);
    assert_eq!(count, 80, "they went with their sessions");
    // A server's sessions, each of which is for another client, have the rest.
    let (_sessions, count, sentence) = fill(0, Kind::Stream);
    assert_eq!(
        (count, &sentence[..]),
        (80, "there are as many sockets as there may be")
    );
}

#[test]
fn connections_that_are_closed_go() {
    let mut world = World::new(Wire::default(), 5);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 4);
    for round in 0..300 {
        let socket = connect(&client, "10.0.3.2", 80);
        world.turns(4);
        let (accepted, ..) = server
            .accept(listening)
            .unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert_eq!(client.write(socket, b"x"), Ok(1));
        world.turn();
        assert_eq!(client.close(socket), Ok(()));
        world.turns(3);
        assert_eq!(read(&server, accepted, 10).as_deref(), Ok(&b"x"[..]));
        assert_eq!(read(&server, accepted, 10).as_deref(), Ok(&[][..]));
        assert_eq!(server.close(accepted), Ok(()));
    }
    // An end dies with its session in the middle: the other end reads all of it.
    let socket = connect(&client, "10.0.3.2", 80);
    world.turns(4);
    let (accepted, ..) = server.accept(listening).unwrap();
    assert_eq!(client.write(socket, &content(10_000, 1)), Ok(10_000));
    drop(client);
    world.turns(100);
    let all = read(&server, accepted, 20_000).unwrap();
    assert!(all == content(10_000, 1));
    assert_eq!(read(&server, accepted, 1).as_deref(), Ok(&[][..]));
}

/// When one end gives a connection up, the other end is told, so that it does not take what it has received for
/// everything.
#[test]
fn a_connection_that_is_given_up_has_no_end() {
    let mut world = World::new(Wire::default(), 31);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    // More than the other end has room for.
    let mut written = 0;
    for _ in 0..20 {
        written += client.write(socket, &content(9000, 3)).unwrap_or(0) as usize;
        world.turn();
    }
    assert_eq!(client.abort(socket), Ok(()));
    assert_eq!(client.abort(socket), Err(Error::NotFound));
    world.turns(5);
    let mut got = 0;
    let end = loop {
        match read(&server, accepted, 4000) {
            Ok(bytes) if bytes.is_empty() => break Ok(()),
            Ok(bytes) => got += bytes.len(),
            Err(error) => break Err(error),
        }
    };
    assert!((1..written).contains(&got), "{got} of {written} bytes");
    assert_eq!(end, Err(Error::Reset), "S3: a part is not taken for all");
}

/// The other end of an aborted connection hears of that also if the wire is full at that moment. If it stays full, nothing
/// is left of the connection after five seconds.
#[test]
fn a_connection_is_given_up_when_the_wire_is_full() {
    let mut world = World::new(Wire::default(), 32);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    // Another connection, from a port of its own, which is free again when nothing is left of the connection.
    let bound = client.socket(Kind::Stream).unwrap();
    assert_eq!(client.bind(bound, 700), Ok(700));
    let (high, low, port) = at("10.0.3.2", 80);
    assert_eq!(client.connect(bound, high, low, port), Ok(()));
    world.turns(10);
    // Nobody takes frames off the wire, until it is full.
    let fill = |world: &mut World| {
        for _ in 0..2 * MOST {
            let packets = client.socket(Kind::Datagram).unwrap();
            let (high, low, port) = at("10.0.3.2", 9);
            let _ = client.send(packets, high, low, port, b"x");
            world.now += TICK;
            world.machines[0].shared.borrow_mut().turn(world.now);
            assert_eq!(client.close(packets), Ok(()));
        }
    };
    fill(&mut world);
    let is_due = |world: &mut World| {
        let mut stack = world.machines[0].shared.borrow_mut();
        let next = stack.turn(world.now);
        (stack.is_due(), next.is_some_and(|next| next <= world.now))
    };
    assert_eq!(client.abort(socket), Ok(()));
    assert_eq!(client.abort(bound), Ok(()));
    assert_eq!(
        is_due(&mut world),
        (false, false),
        "a full wire is waited for"
    );
    world.turns(10);
    assert_eq!(
        read(&server, accepted, 1),
        Err(Error::Reset),
        "S3: the other end hears of a connection that was given up when the wire was full"
    );
    let again = client.socket(Kind::Stream).unwrap();
    assert_eq!(client.bind(again, 700), Ok(700), "the port is free");
    assert_eq!(client.connect(again, high, low, port), Ok(()));
    world.turns(10);
    // The wire stays full.
    fill(&mut world);
    assert_eq!(client.abort(again), Ok(()));
    for second in 0..10 {
        world.now += 1_000_000_000;
        world.machines[0].shared.borrow_mut().turn(world.now);
        let next = client.socket(Kind::Stream).unwrap();
        let is_over = client.bind(next, 700).is_ok();
        assert_eq!(client.close(next), Ok(()));
        assert_eq!(is_over, second >= 5, "after {second} s");
    }
}

#[test]
fn a_machine_that_has_forgotten_a_connection_resets_it() {
    let mut world = World::new(Wire::default(), 6);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    let socket = connect(&client, "10.0.3.2", 80);
    world.turns(4);
    assert!(server.accept(listening).is_ok());
    // The other machine's network server has died, and another one was started.
    world.machines[1] = Machine::new(options(1));
    assert_eq!(client.write(socket, b"x"), Ok(1));
    // The reset comes when the data is sent again: the first time, the new server has to ask for our card.
    world.turns(3000);
    assert_eq!(client.write(socket, b"x"), Err(Error::Reset));
    assert_eq!(read(&client, socket, 1), Err(Error::Reset));
}

/// Whether a frame asks for a connection.
fn is_begin(frame: &[u8]) -> bool {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok();
    packet.is_some_and(|packet| {
        packet.next_header() == IpProtocol::Tcp
            && TcpPacket::new_checked(packet.payload()).is_ok_and(|tcp| tcp.syn() && !tcp.ack())
    })
}

#[test]
fn a_frame_that_begins_a_connection_may_come_again_at_any_time() {
    let mut world = World::new(Wire::default(), 7);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 4);
    let mut open: Option<(u64, u64)> = None;
    for round in 0..6 {
        let socket = connect(&client, "10.0.3.2", 80);
        world.turns(5);
        // The last connection ends only here, so the next listening socket takes its place, before this connection.
        if let Some((socket, accepted)) = open {
            assert_eq!(client.close(socket), Ok(()));
            world.turns(3);
            assert_eq!(server.close(accepted), Ok(()));
            world.turns(3);
        }
        let (accepted, ..) = server.accept(listening).unwrap();
        world.turn();
        let begin = world.begin.take().expect("a connection was begun");
        world.machines[1].coming.push(begin);
        world.turns(3);
        assert_eq!(client.write(socket, b"x"), Ok(1), "round {round}");
        world.turns(3);
        let came = read(&server, accepted, 10);
        assert_eq!(came.as_deref(), Ok(&b"x"[..]), "round {round}");
        assert_eq!(client.write(socket, b"y"), Ok(1), "round {round}");
        world.turns(30);
        let came = read(&server, accepted, 10);
        assert_eq!(came.as_deref(), Ok(&b"y"[..]), "round {round}");
        open = Some((socket, accepted));
    }
}

#[test]
fn probes_that_cross_hold_up_nobody() {
    let mut world = World::new(Wire::default(), 9);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    let ends = [(&client, socket), (&server, accepted)];
    let bytes = content(100_000, 3);
    let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    let (mut turns, mut reads, mut under_way) = (0, false, [Vec::new(), Vec::new()]);
    while got.iter().any(|got| got.len() < bytes.len()) {
        for (n, (session, socket)) in ends.into_iter().enumerate() {
            sent[n] += session.write(socket, &bytes[sent[n]..]).unwrap_or(0) as usize;
            if reads {
                if let Ok(came) = read(session, socket, 50_000) {
                    got[n].extend(came);
                }
            }
        }
        // Frames are on their way for a turn.
        world.now += TICK;
        let leaves = [0, 1].map(|n| world.machines[n].turn(world.now));
        let [of_client, of_server] = core::mem::replace(&mut under_way, leaves);
        world.machines[0].coming.extend(of_server);
        world.machines[1].coming.extend(of_client);
        // Nobody reads until only two probes are under way; then both ends read before the probes arrive.
        reads |= turns > 200 && under_way.iter().all(|frames| !frames.is_empty());
        turns += 1;
        let came = [got[0].len(), got[1].len()];
        assert!(turns < 20_000, "{sent:?} written, {came:?} read");
    }
    assert!(got.iter().all(|got| *got == bytes));
}

std::thread_local! {
    /// Whether there is memory.
    static MEMORY: Cell<bool> = const { Cell::new(true) };
}

/// Options of a machine that has memory while [`MEMORY`] says so.
fn with_memory(number: u64) -> Options {
    let reserve = |_| match MEMORY.get() {
        true => Ok(()),
        false => Err(Error::NoMemory),
    };
    Options {
        reserve,
        ..options(number)
    }
}

/// Reading takes memory; without memory, bytes of a connection and datagrams stay where they are.
#[test]
fn what_is_read_has_memory_or_stays() {
    let rule = "S3: nothing is taken unasked";
    let mut world = World::new(Wire::default(), 14);
    world.machines[1] = Machine::new(with_memory(1));
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    let socket = connect(&client, "10.0.3.2", 80);
    let (waits, sender) = (
        server.socket(Kind::Datagram).unwrap(),
        client.socket(Kind::Datagram).unwrap(),
    );
    assert_eq!(server.bind(waits, 99), Ok(99));
    world.turns(4);
    let (accepted, ..) = server.accept(listening).unwrap();
    let bytes = content(16 * 1024, 1);
    assert_eq!(client.write(socket, &bytes), Ok(bytes.len() as u64));
    let (high, low, port) = at("10.0.3.2", 99);
    assert_eq!(client.send(sender, high, low, port, b"datagram"), Ok(()));
    let echo = server.socket(Kind::Echo).unwrap();
    let (high, low, _) = at("10.0.3.1", 9);
    assert_eq!(server.send(echo, high, low, 9, b"there?"), Ok(()));
    world.turns(50);
    MEMORY.set(false);
    assert_eq!(
        read(&server, accepted, 50_000),
        Err(Error::NoMemory),
        "{rule}"
    );
    let mut next = pin!(server.next(accepted, u64::MAX, 50_000));
    let refused = Poll::Ready(Err(Error::NoMemory));
    assert_eq!(poll(next.as_mut()), refused, "{rule}");
    for socket in [waits, echo] {
        let refused = server.receive(socket, 2000).map(drop);
        assert_eq!(refused, Err(Error::NoMemory), "{rule}");
    }
    MEMORY.set(true);
    let came = read(&server, accepted, 50_000);
    assert!(came == Ok(bytes), "{rule}: all of it is there");
    for (socket, sent) in [(waits, &b"datagram"[..]), (echo, b"there?")] {
        let (.., came) = server.receive(socket, 2000).unwrap();
        assert_eq!(came, sent, "{rule}");
    }
    // An empty result takes no memory.
    MEMORY.set(false);
    assert_eq!(read(&server, accepted, 9), Err(Error::WouldBlock));
    assert_eq!(server.receive(waits, 9), Err(Error::WouldBlock));
    MEMORY.set(true);
}

/// Connecting takes memory, and is refused without it.
#[test]
fn a_connection_is_begun_with_memory() {
    let machine = Machine::new(with_memory(0));
    let session = machine.session();
    let socket = session.socket(Kind::Stream).unwrap();
    let (high, low, port) = at("10.0.3.2", 80);
    MEMORY.set(false);
    let refused = session.connect(socket, high, low, port);
    assert_eq!(
        refused,
        Err(Error::NoMemory),
        "S3: nothing is taken unasked"
    );
    MEMORY.set(true);
    assert_eq!(session.connect(socket, high, low, port), Ok(()));
}

/// A program that sends to addresses which nobody has keeps no other program from reaching its neighbours.
#[test]
fn absent_neighbours_hold_up_nobody_else() {
    absent_neighbours(b"x", true);
    // An empty datagram waits, too.
    absent_neighbours(b"", false);
}

/// While a job sends to addresses that nobody has, another sends these bytes to the other machine, and may connect to
/// it.
fn absent_neighbours(bytes: &[u8], connects: bool) {
    let mut world = World::new(Wire::default(), 11);
    let silent: Vec<Session> = (0..2)
        .map(|_| Session::new(&world.machines[0].shared, 7))
        .collect();
    for n in 0..60 {
        let session = &silent[n % 2];
        let socket = session.socket(Kind::Datagram).unwrap();
        for m in 0..4 {
            let (high, low, port) = at(&format!("10.0.3.{}", 10 + n * 4 + m), 9);
            assert_eq!(session.send(socket, high, low, port, b"x"), Ok(()));
        }
        world.turn();
    }
    world.turns(1500);
    let rule = "S3: neighbours that are absent hold up nobody";
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (to, from) = (
        server.socket(Kind::Datagram).unwrap(),
        client.socket(Kind::Datagram).unwrap(),
    );
    assert_eq!(server.bind(to, 99), Ok(99));
    let (high, low, port) = at("10.0.3.2", 99);
    assert_eq!(client.send(from, high, low, port, bytes), Ok(()));
    let listening = listen(&server, 80, 2);
    if connects {
        connect(&client, "10.0.3.2", 80);
    }
    world.turns(3500);
    assert!(server.receive(to, 100).is_ok(), "{rule}: {bytes:?}");
    assert_eq!(server.accept(listening).is_ok(), connects, "{rule}");
}

/// A neighbour that sends anyway is seldom asked for by ARP.
#[test]
fn who_is_known_is_seldom_asked_for() {
    let mut world = World::new(Wire::default(), 12);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 2);
    let socket = connect(&client, "10.0.3.2", 80);
    let mut questions = 0;
    for turn in 0..20_000 {
        world.now += TICK;
        for n in 0..2 {
            for frame in world.machines[n].turn(world.now) {
                questions += u32::from(frame[12..14] == [8, 6]);
                world.machines[1 - n].coming.push(frame);
            }
        }
        if turn % 1000 == 999 {
            assert_eq!(client.write(socket, b"x"), Ok(1));
        }
    }
    assert!(server.accept(listening).is_ok());
    assert!(questions <= 2, "{questions} questions and answers");
}

/// A segment like this one of a connection, with this many bytes, changed by `change`.
fn like(sent: &[u8], bytes: usize, change: impl FnOnce(&mut TcpPacket<&mut [u8]>)) -> Vec<u8> {
    let mut frame = sent[..14 + 20 + 20].to_vec();
    frame.extend(vec![7; bytes]);
    frame[16..18].copy_from_slice(&(40 + bytes as u16).to_be_bytes());
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    packet.fill_checksum();
    let ends = (packet.src_addr().into(), packet.dst_addr().into());
    let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
    segment.set_header_len(20);
    change(&mut segment);
    segment.fill_checksum(&ends.0, &ends.1);
    frame
}

/// A reset of the connection that this segment belongs to, `ahead` numbers behind the segment's and with this many
/// bytes.
fn reset(sent: &[u8], ahead: usize, bytes: usize) -> Vec<u8> {
    like(sent, bytes, |segment| {
        segment.clear_flags();
        segment.set_rst(true);
        segment.set_seq_number(segment.seq_number() + ahead);
    })
}

/// This holds for an accepted connection over which nothing has been sent yet.
#[test]
fn a_connection_that_has_come_is_reset_by_its_number_only() {
    let rule = "S2: a connection is given up by who knows its number";
    let mut world = World::new(Wire::default(), 13);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    let socket = connect(&client, "10.0.3.2", 80);
    world.turns(10);
    let (accepted, ..) = server.accept(listening).unwrap();
    let begin = world.begin.take().expect("a connection was begun");
    // The first byte is behind the beginning.
    for ahead in [2, 1000, 0] {
        world.machines[1].coming.push(reset(&begin, ahead, 0));
        world.turns(3);
        let came = read(&server, accepted, 10);
        assert_eq!(came, Err(Error::WouldBlock), "{rule}: {ahead}");
    }
    assert_eq!(client.write(socket, b"x"), Ok(1));
    world.turns(3);
    assert_eq!(
        read(&server, accepted, 10).as_deref(),
        Ok(&b"x"[..]),
        "{rule}"
    );
    // Another connection, which is reset by the right number.
    let listening = listen(&server, 81, 1);
    connect(&client, "10.0.3.2", 81);
    world.turns(10);
    let (accepted, ..) = server.accept(listening).unwrap();
    let begin = world.begin.take().expect("a connection was begun");
    world.machines[1].coming.push(reset(&begin, 1, 0));
    world.turns(3);
    assert_eq!(read(&server, accepted, 10), Err(Error::Reset), "{rule}");
}

/// A connection that is given up before it is established leaves nothing behind in the listening socket, however much
/// later the next one comes: the stack computes how long the answer was under way.
#[test]
fn a_socket_that_listens_again_listens_anew() {
    for seed in 0..12 {
        let mut world = World::new(Wire::default(), seed);
        let seeded = |number: u64, seed: u64| Options {
            seeds: [seed, !seed],
            ..options(number)
        };
        world.machines[1] = Machine::new(seeded(1, seed));
        let (server, client) = (world.machines[1].session(), world.machines[0].session());
        let listening = listen(&server, 80, 1);
        connect(&client, "10.0.3.2", 80);
        while world.begin.is_none() {
            world.turn();
        }
        // The answer is under way.
        let answer = &world.machines[0].coming;
        assert!(!answer.is_empty(), "seed {seed}");
        let begin = world.begin.take().unwrap();
        world.machines[1].coming.push(reset(&begin, 1, 0));
        world.now += TICK;
        world.machines[1].turn(world.now);
        // The machine that gave up has been started again.
        world.machines[0] = Machine::new(seeded(0, seed + 100));
        let client = world.machines[0].session();
        if seed % 3 != 0 {
            world.now += 8 * 24 * 3600 * 1_000_000_000;
        }
        let socket = connect(&client, "10.0.3.2", 80);
        world.turns(3000);
        let (accepted, ..) = server.accept(listening).unwrap();
        for byte in 0..20 {
            assert_eq!(server.write(accepted, &[byte]), Ok(1));
            world.turns(30);
            assert_eq!(read(&client, socket, 10).as_deref(), Ok(&[byte][..]));
        }
    }
}

/// A reset by somebody who sees nothing of the connection and guesses a number in the window is ignored; that of the
/// other end is not.
#[test]
fn a_connection_is_reset_by_its_number_only() {
    let mut world = World::new(Wire::default(), 13);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    assert_eq!(client.write(socket, b"x"), Ok(1));
    world.now += TICK;
    let mut leaves = world.machines[0].turn(world.now);
    let sent = leaves.pop().expect("a segment");
    world.machines[1].coming.push(sent.clone());
    world.turns(30);
    assert_eq!(read(&server, accepted, 10).as_deref(), Ok(&b"x"[..]));
    world.turns(30);
    // Resets whose numbers begin with the one behind the sent byte.
    let reset = |ahead: usize, more: usize| reset(&sent, 1 + ahead, more);
    let rule = "S2: a connection is given up by who knows its number";
    for (ahead, more) in [(1, 0), (1000, 0), (1, 5)] {
        world.machines[1].coming.push(reset(ahead, more));
        world.turns(30);
        assert_eq!(
            read(&server, accepted, 10),
            Err(Error::WouldBlock),
            "{rule}"
        );
    }
    assert_eq!(client.write(socket, b"y"), Ok(1));
    world.turns(30);
    assert_eq!(
        read(&server, accepted, 10).as_deref(),
        Ok(&b"y"[..]),
        "{rule}"
    );
    // This end has taken another byte, so this is the right number.
    let frame = reset(1, 0);
    world.machines[1].coming.push(frame);
    world.turns(3);
    assert_eq!(read(&server, accepted, 10), Err(Error::Reset), "{rule}");
}

/// A hostile machine fills the window of a connection and ends its stream, and then, before there is an answer, sends a
/// byte whose number is half of the number space ahead.
#[test]
fn a_byte_from_nowhere_is_dropped() {
    let mut world = World::new(Wire::default(), 13);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    assert_eq!(client.write(socket, b"x"), Ok(1));
    world.now += TICK;
    let sent = world.machines[0].turn(world.now).pop().expect("a segment");
    let segment = |ahead: u32, bytes: usize, ends: bool| {
        like(&sent, bytes, |segment| {
            segment.set_fin(ends);
            let number = segment.seq_number().0.wrapping_add(ahead as i32);
            segment.set_seq_number(TcpSeqNumber(number));
        })
    };
    let (room, most) = (STREAM as u32, 1024);
    for at in (0..room).step_by(most) {
        let is_last = at + most as u32 == room;
        world.machines[1].coming.push(segment(at, most, is_last));
    }
    world.machines[1]
        .coming
        .push(segment(room + 1 + 0x7fff_ffff, 1, false));
    let turns = std::panic::AssertUnwindSafe(|| world.turns(30));
    let ended = std::panic::catch_unwind(turns);
    assert!(ended.is_ok(), "whatever is in a frame, the server goes on");
    let came = read(&server, accepted, 10);
    assert_eq!(came.as_deref(), Ok(&[7; 10][..]), "the server goes on");
}

/// Connections one after another, while the driver of one end dies again and again, mostly for a moment. Part of its
/// batch may have left, the next driver sends the whole batch again, and what came meanwhile is lost.
fn dying_driver(seed: u64, connections: u32) {
    let mut world = World::new(Wire::default(), seed);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 4);
    let mut random = Rng::with_seed(seed);
    let bytes = content(12_000, seed as u32);
    // The batch that the driver has, and for how many turns there will be no driver.
    let (mut batch, mut down): (Vec<Vec<u8>>, u32) = (Vec::new(), 0);
    let mut turn = move |world: &mut World| {
        world.now += TICK;
        let now = world.now;
        let [first, second] = &mut world.machines;
        if down > 0 {
            down -= 1;
            first.coming.clear();
        }
        batch.extend(first.turn(now));
        let back = second.turn(now);
        if down == 0 {
            first.coming.extend(back);
            if random.u32(..50) == 0 {
                // Few last long: the pause before sending again doubles each time.
                let most = if random.u32(..100) == 0 { 2500 } else { 30 };
                down = random.u32(..most);
                let left = random.usize(..=batch.len());
                second.coming.extend(batch[..left].iter().cloned());
            } else {
                second.coming.append(&mut batch);
            }
        }
    };
    for connection in 0..connections {
        let socket = connect(&client, "10.0.3.2", 80);
        let (mut accepted, mut sent, mut got, mut echoed) = (None, 0, 0, Vec::new());
        let mut over = false;
        for turns in 0.. {
            turn(&mut world);
            let say = |error| format!("seed {seed}, connection {connection}: {error:?}");
            assert!(turns < 400_000, "{}", say(Error::Broken));
            if accepted.is_none() {
                accepted = server.accept(listening).ok().map(|(socket, ..)| socket);
            }
            if sent < bytes.len() {
                match client.write(socket, &bytes[sent..]) {
                    Ok(taken) => sent += taken as usize,
                    Err(error) => assert_eq!(error, Error::WouldBlock, "{}", say(error)),
                }
                if sent == bytes.len() {
                    assert_eq!(client.shut(socket), Ok(()));
                }
            }
            if let Some(end) = accepted.filter(|_| !over) {
                match read(&server, end, 3000) {
                    Ok(bytes) if bytes.is_empty() => over = true,
                    Ok(bytes) => echoed.extend(bytes),
                    Err(error) => assert_eq!(error, Error::WouldBlock, "{}", say(error)),
                }
                if !echoed.is_empty() {
                    if let Ok(taken) = server.write(end, &echoed) {
                        echoed.drain(..taken as usize);
                    }
                }
                if over {
                    assert!(echoed.is_empty());
                    assert_eq!(server.close(end), Ok(()));
                }
            }
            match read(&client, socket, 3000) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => got += bytes.len(),
                Err(error) => assert_eq!(error, Error::WouldBlock, "{}", say(error)),
            }
        }
        assert_eq!(got, bytes.len());
        assert_eq!(client.close(socket), Ok(()));
    }
}

#[test]
fn a_driver_that_dies_loses_no_connection() {
    for seed in 0..20 {
        dying_driver(seed, 30);
    }
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_else() {
    let mut world = World::new(Wire::default(), 7);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 2);
    let idle = connect(&client, "10.0.3.2", 80);
    world.turns(4);
    let (never, ..) = server.accept(listening).unwrap();
    let mut taken = 0;
    for _ in 0..1000 {
        taken += client.write(idle, &content(4096, 1)).unwrap_or(0);
        world.turn();
    }
    assert!(taken <= 2 * 16 * 1024, "what waits is bounded: {taken}");
    let socket = connect(&client, "10.0.3.2", 80);
    world.turns(4);
    let (accepted, ..) = server.accept(listening).unwrap();
    assert_eq!(client.write(socket, b"alive"), Ok(5));
    world.turns(4);
    assert_eq!(read(&server, accepted, 10).as_deref(), Ok(&b"alive"[..]));
    // Datagrams that nobody takes are dropped.
    let (idle, sender) = (
        server.socket(Kind::Datagram).unwrap(),
        client.socket(Kind::Datagram).unwrap(),
    );
    assert_eq!(server.bind(idle, 99), Ok(99));
    let (high, low, port) = at("10.0.3.2", 99);
    for _ in 0..1000 {
        let _ = client.send(sender, high, low, port, &content(1000, 1));
        world.turn();
    }
    let waiting = core::iter::from_fn(|| server.receive(idle, 2000).ok()).count();
    assert!((1..=16).contains(&waiting), "{waiting}");
    let _ = never;
}

#[test]
fn a_wait_ends_with_what_is_waited_for_or_with_its_time() {
    let mut world = World::new(Wire::default(), 8);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    let mut accepts = pin!(server.wait(1 << listening, 0, u64::MAX));
    assert_eq!(poll(accepts.as_mut()), Poll::Pending);
    let socket = connect(&client, "10.0.3.2", 80);
    let mut made = pin!(client.wait(1 << socket, 1 << socket, u64::MAX));
    assert_eq!(poll(made.as_mut()), Poll::Pending);
    world.turns(4);
    assert_eq!(poll(made.as_mut()), Poll::Ready(Ok((0, 1 << socket))));
    assert_eq!(poll(accepts.as_mut()), Poll::Ready(Ok((1 << listening, 0))));
    let mut short = pin!(client.wait(1 << socket, 0, 5 * TICK));
    assert_eq!(poll(short.as_mut()), Poll::Pending);
    world.turns(6);
    assert_eq!(poll(short.as_mut()), Poll::Ready(Ok((0, 0))));
    let mut none = pin!(client.wait(1 << 63, 0, 5));
    assert_eq!(poll(none.as_mut()), Poll::Ready(Err(Error::NotFound)));
}

/// A client with a single socket waits for datagrams in one request: it gets the next datagram whenever that comes, or
/// learns that the time is over.
#[test]
fn the_next_datagram_is_waited_for() {
    let mut world = World::new(Wire::default(), 8);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let socket = server.socket(Kind::Datagram).unwrap();
    assert_eq!(server.bind(socket, 99), Ok(99));
    let sender = client.socket(Kind::Datagram).unwrap();
    let (high, low, port) = at("10.0.3.2", 99);
    let send = |bytes: &[u8]| assert_eq!(client.send(sender, high, low, port, bytes), Ok(()));
    type Came = Result<(u64, u64, u64, Vec<u8>), Error>;
    let came = |answer: Poll<Came>| match answer {
        Poll::Ready(Ok((.., bytes))) => bytes,
        other => panic!("S3: a datagram for who waits: {other:?}"),
    };
    let mut next = pin!(server.next(socket, u64::MAX, 2000));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    world.turns(3);
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    send(b"one");
    send(b"two");
    world.turns(4);
    assert_eq!(came(poll(next.as_mut())), b"one");
    let mut next = pin!(server.next(socket, 0, 2));
    assert_eq!(
        came(poll(next.as_mut())),
        b"tw",
        "what is there needs no time"
    );
    let mut next = pin!(server.next(socket, 5 * TICK, 2000));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    world.turns(6);
    assert_eq!(poll(next.as_mut()), Poll::Ready(Err(Error::WouldBlock)));
    let stream = server.socket(Kind::Stream).unwrap();
    for (socket, why) in [(stream, Error::Unsupported), (1 << 40, Error::NotFound)] {
        let mut next = pin!(server.next(socket, u64::MAX, 2000));
        assert_eq!(poll(next.as_mut()), Poll::Ready(Err(why)));
    }
    let deadline = |world: &World| world.machines[1].shared.borrow_mut().turn(world.now);
    let mut next = pin!(server.next(socket, 50 * TICK, 2000));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    assert!(deadline(&world).is_some_and(|at| at <= world.now + 50 * TICK));
    next.set(server.next(socket, 0, 2000));
    assert!(
        deadline(&world).is_none_or(|at| at > world.now + 50 * TICK),
        "S2: a timer of a request that was given up stays"
    );
}

/// A wait lasts as long as the client says, however long ago the machine's last turn was.
#[test]
fn time_to_wait_begins_when_it_is_asked_for() {
    let mut world = World::new(Wire::default(), 8);
    let server = world.machines[1].session();
    let socket = server.socket(Kind::Datagram).unwrap();
    server.bind(socket, 7).map(drop).unwrap();
    world.turns(2);
    // Nothing happens for a while.
    let begin = world.now + 1000 * TICK;
    NOW.set(begin);
    let mut next = pin!(server.next(socket, 100 * TICK, 2000));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    let mut wait = pin!(server.wait(1 << socket, 0, 100 * TICK));
    assert_eq!(poll(wait.as_mut()), Poll::Pending);
    for (now, is_over) in [(begin + 99 * TICK, false), (begin + 100 * TICK, true)] {
        world.machines[1].turn(now);
        let rule = "a wait lasts as long as was said";
        assert_eq!(poll(next.as_mut()).is_ready(), is_over, "{rule}");
        assert_eq!(poll(wait.as_mut()).is_ready(), is_over, "{rule}");
    }
    let mut wait = pin!(server.wait(1 << socket, 0, 0));
    assert!(
        poll(wait.as_mut()).is_ready(),
        "who only looks does not wait"
    );
}

/// What a request has left to do since the last turn makes a turn due, without any other event.
#[test]
fn what_is_left_to_do_is_due() {
    let mut world = World::new(Wire::default(), 8);
    let machine = |world: &World| Rc::clone(&world.machines[0].shared);
    world.turns(3);
    assert!(!machine(&world).borrow().is_due(), "there is nothing to do");
    let session = world.machines[0].session();
    let socket = session.socket(Kind::Datagram).unwrap();
    session.bind(socket, 7).map(drop).unwrap();
    world.turns(1);
    let (high, low, port) = at("10.0.3.2", 7);
    session.send(socket, high, low, port, b"x").unwrap();
    assert!(
        machine(&world).borrow().is_due(),
        "S1: what a request has changed has a turn"
    );
    world.turns(1);
    assert!(!machine(&world).borrow().is_due(), "it is done");
}

/// A client with one connection waits in the same way: for bytes, the end, or the loss of the connection.
#[test]
fn the_next_bytes_are_waited_for() {
    let mut world = World::new(Wire::default(), 8);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    let socket = connect(&client, "10.0.3.2", 80);
    // Nothing is read before there is a connection.
    let mut early = pin!(client.next(socket, 2 * TICK, 100));
    assert_eq!(poll(early.as_mut()), Poll::Pending);
    world.turns(4);
    assert_eq!(poll(early.as_mut()), Poll::Ready(Err(Error::WouldBlock)));
    let (accepted, ..) = server.accept(listening).unwrap();
    let mut next = pin!(server.next(accepted, u64::MAX, 4));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    assert_eq!(client.write(socket, b"bytes"), Ok(5));
    world.turns(3);
    for expected in [&b"byte"[..], b"s"] {
        let answer = poll(next.as_mut());
        assert_eq!(answer, Poll::Ready(Ok((0, 0, 0, expected.to_vec()))), "S3");
        next.set(server.next(accepted, u64::MAX, 4));
    }
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    assert_eq!(client.shut(socket), Ok(()));
    world.turns(3);
    let end = Poll::Ready(Ok((0, 0, 0, Vec::new())));
    assert_eq!(poll(next.as_mut()), end, "the other end writes no more");
    let nobody = connect(&client, "10.0.3.2", 81);
    let mut next = pin!(client.next(nobody, u64::MAX, 4));
    assert_eq!(poll(next.as_mut()), Poll::Pending);
    world.turns(4);
    assert_eq!(poll(next.as_mut()), Poll::Ready(Err(Error::Refused)));
}

/// A writer is woken when half of the buffer is free, not for each confirmed byte; and it is always woken in the end.
#[test]
fn who_writes_waits_for_half_of_the_room() {
    let mut world = World::new(Wire::default(), 8);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    while client.write(socket, &[1; 16 * 1024]).is_ok() {
        world.turns(4);
    }
    let mut waits = pin!(client.wait(0, 1 << socket, u64::MAX));
    assert_eq!(poll(waits.as_mut()), Poll::Pending);
    // At the latest when all of it was read.
    let woken = (0..100).any(|_| {
        let _ = read(&server, accepted, 1000);
        world.turns(2);
        poll(waits.as_mut()).is_ready()
    });
    assert!(woken, "S1: there is room, and who waits for it sleeps");
    let room = client.write(socket, &[1; 16 * 1024]).unwrap();
    assert!((8..=16).contains(&(room / 1024)), "{room}");
}

/// `sent` waits until the other end has confirmed everything: bytes that it had no room for, and the end of the output.
#[test]
fn sent_is_what_the_other_end_has_confirmed() {
    let mut world = World::new(Wire::default(), 12);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 1);
    assert_eq!(
        poll(pin!(client.sent(0)).as_mut()),
        Poll::Ready(Err(Error::NotFound))
    );
    let begin = |world: &mut World| {
        let socket = connect(&client, "10.0.3.2", 80);
        world.turns(4);
        let (accepted, ..) = server.accept(listening).unwrap();
        (socket, accepted)
    };
    let (socket, accepted) = begin(&mut world);
    // More than the other end has room for.
    let bytes = content(30_000, 7);
    let mut written = 0;
    while written < bytes.len() {
        match client.write(socket, &bytes[written..]) {
            Ok(taken) => written += taken as usize,
            Err(error) => assert_eq!((error, written > 16_384), (Error::WouldBlock, true)),
        }
        if written < bytes.len() {
            world.turns(4);
        }
    }
    assert_eq!(client.shut(socket), Ok(()));
    let mut sent = pin!(client.sent(socket));
    world.turns(50);
    assert_eq!(
        poll(sent.as_mut()),
        Poll::Pending,
        "S3: sent is what has arrived"
    );
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(read(&server, accepted, 50_000).unwrap_or_default());
        world.turns(4);
    }
    assert!(got == bytes);
    // A confirmation may be delayed, in case there is data to send with it.
    world.turns(20);
    assert_eq!(poll(sent.as_mut()), Poll::Ready(Ok(())));
    // The end of the output is confirmed like the bytes before it.
    let (socket, accepted) = begin(&mut world);
    assert_eq!(client.write(socket, b"all"), Ok(3));
    world.turns(20);
    assert_eq!(
        poll(pin!(client.sent(socket)).as_mut()),
        Poll::Ready(Ok(()))
    );
    assert_eq!(client.shut(socket), Ok(()));
    let mut sent = pin!(client.sent(socket));
    assert_eq!(
        poll(sent.as_mut()),
        Poll::Pending,
        "S3: sent is what has arrived"
    );
    world.turns(20);
    assert_eq!(poll(sent.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(read(&server, accepted, 9).as_deref(), Ok(&b"all"[..]));
    // Nobody confirms what was written to a machine that is gone.
    let (socket, accepted) = begin(&mut world);
    assert_eq!(
        client.write(socket, &bytes).map(|taken| taken > 0),
        Ok(true)
    );
    world.turns(4);
    assert_eq!(client.write(socket, b"more"), Ok(4));
    let mut sent = pin!(client.sent(socket));
    assert_eq!(poll(sent.as_mut()), Poll::Pending);
    world.machines[1] = Machine::new(options(1));
    let _ = accepted;
    world.turns(20_000);
    assert_eq!(poll(sent.as_mut()), Poll::Ready(Err(Error::Reset)));
}

/// A flood of datagrams from as many sockets as a job can have does not keep another job from sending.
#[test]
fn a_flood_of_datagrams_leaves_others_room() {
    let mut world = World::new(Wire::default(), 33);
    let server = world.machines[1].session();
    let hostile = Session::new(&world.machines[0].shared, 1);
    let victim = Session::new(&world.machines[0].shared, 2);
    // The stack sends the datagrams of older sockets first.
    let flood = [(); 60].map(|()| hostile.socket(Kind::Datagram).unwrap());
    let socket = victim.socket(Kind::Datagram).unwrap();
    let receives = server.socket(Kind::Datagram).unwrap();
    assert_eq!(server.bind(receives, 5000), Ok(5000));
    // The other machine's card is known from here on.
    let (high, low, port) = at("10.0.3.2", 5000);
    assert_eq!(victim.send(socket, high, low, port, b"first"), Ok(()));
    world.turns(10);
    let shared = &world.machines[0].shared;
    let (mut sent, mut left, mut frames_left) = (0, 0, 0);
    let mut batch = Batch::new();
    for round in 1..200 {
        for socket in flood {
            while hostile.send(socket, high, low, 9, b"").is_ok() {}
        }
        sent += usize::from(victim.send(socket, high, low, port, b"mine").is_ok());
        let now = world.now + round * TICK;
        shared.borrow_mut().turn(now);
        shared.borrow_mut().take_leaving(&mut batch);
        frames_left += frames(&batch).count();
        left += frames(&batch)
            .filter(|frame| frame.ends_with(b"mine"))
            .count();
    }
    assert!(sent > 100 && left == sent, "S2: {left} of {sent} have left");
    assert!(
        frames_left > 1000,
        "the other one sends, too: {frames_left}"
    );
    // A party that has sent its share can send again after the next turn.
    while hostile.send(flood[0], high, low, 9, b"").is_ok() {}
    let mut wait = pin!(hostile.wait(0, 1 << flood[1], u64::MAX));
    assert_eq!(poll(wait.as_mut()), Poll::Pending);
    shared.borrow_mut().turn(world.now + 200 * TICK);
    assert_eq!(poll(wait.as_mut()), Poll::Ready(Ok((0, 1 << flood[1]))));
}

/// Written data leaves at once, though earlier data is not confirmed.
#[test]
fn what_is_written_leaves_at_once() {
    let mut world = World::new(Wire::default(), 34);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    // The frame leaves, and the other machine, which may delay its confirmation, has no turn.
    for text in [b"one", b"two"] {
        assert_eq!(client.write(socket, text), Ok(3));
        world.now += TICK;
        let leaves = world.machines[0].turn(world.now);
        assert!(
            leaves.iter().any(|frame| frame.ends_with(text)),
            "{text:?} waits for what was before it"
        );
        world.machines[1].coming.extend(leaves);
    }
    world.turns(5);
    assert_eq!(read(&server, accepted, 9).as_deref(), Ok(&b"onetwo"[..]));
}

/// Data and an end of output that were lost before the other end confirmed them do not count as sent: the other machine
/// was started again, or this one has another address.
#[test]
fn what_nobody_confirmed_was_not_sent() {
    let rule = "S3: sent is what has arrived";
    let mut world = World::new(Wire::default(), 14);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, _) = joined(&mut world, &client, &server);
    assert_eq!(client.write(socket, b"all"), Ok(3));
    world.turns(20);
    let sent = poll(pin!(client.sent(socket)).as_mut());
    assert_eq!(sent, Poll::Ready(Ok(())));
    world.machines[1] = Machine::new(options(1));
    assert_eq!(client.shut(socket), Ok(()));
    let mut sent = pin!(client.sent(socket));
    assert_eq!(poll(sent.as_mut()), Poll::Pending, "{rule}");
    world.turns(3000);
    let reset = Poll::Ready(Err(Error::Reset));
    assert_eq!(poll(sent.as_mut()), reset, "{rule}: the end was not");
    let mut world = World::new(Wire::default(), 15);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, _) = joined(&mut world, &client, &server);
    assert_eq!(client.write(socket, b"all"), Ok(3));
    world.machines[0].shared.borrow_mut().set_addresses(&[]);
    world.turns(20);
    let sent = poll(pin!(client.sent(socket)).as_mut());
    assert_eq!(sent, reset, "{rule}: nothing was");
    // The end that ends second and asks much later still learns that all has arrived.
    let mut world = World::new(Wire::default(), 16);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    for (session, end) in [(&client, socket), (&server, accepted)] {
        assert_eq!(session.write(end, b"all"), Ok(3));
        assert_eq!(session.shut(end), Ok(()));
        world.turns(20);
    }
    world.turns(20_000);
    for (session, end) in [(&client, socket), (&server, accepted)] {
        let sent = poll(pin!(session.sent(end)).as_mut());
        assert_eq!(sent, Poll::Ready(Ok(())));
    }
}

/// Received data can be read when both ends have ended and the stack has waited for stragglers.
#[test]
fn what_has_come_outlives_the_connection() {
    let mut world = World::new(Wire::default(), 35);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let (socket, accepted) = joined(&mut world, &client, &server);
    assert_eq!(client.shut(socket), Ok(()));
    world.turns(20);
    assert_eq!(server.write(accepted, &content(5000, 4)), Ok(5000));
    assert_eq!(server.shut(accepted), Ok(()));
    world.turns(12_000);
    let ready = poll(pin!(client.wait(1 << socket, 0, 0)).as_mut());
    assert_eq!(ready, Poll::Ready(Ok((1 << socket, 0))));
    assert!(read(&client, socket, 3000).as_deref() == Ok(&content(5000, 4)[..3000]));
    assert!(read(&client, socket, 3000).as_deref() == Ok(&content(5000, 4)[3000..]));
    assert_eq!(read(&client, socket, 3000).as_deref(), Ok(&[][..]));
    assert_eq!(client.close(socket), Ok(()));
}

/// A request for a connection to a port with no free socket succeeds when there is one; a request to a port where
/// nobody listens is refused.
#[test]
fn who_finds_no_place_asks_again() {
    let mut world = World::new(Wire::default(), 32);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let listening = listen(&server, 80, 2);
    // The other machine's card is known from here on.
    let first = connect(&client, "10.0.3.2", 80);
    world.turns(10);
    assert!(server.accept(listening).is_ok());
    let nobody = connect(&client, "10.0.3.2", 81);
    let sockets = [80; 5].map(|port| connect(&client, "10.0.3.2", port));
    world.turns(10);
    assert_eq!(client.write(nobody, b""), Err(Error::Refused));
    let mut made = 0;
    for _ in 0..8000 {
        world.turn();
        made += usize::from(server.accept(listening).is_ok());
    }
    let written = sockets.map(|socket| client.write(socket, b"x"));
    assert_eq!(written, [Ok(1); 5], "a place is waited for");
    assert_eq!(made, 5);
    assert_eq!(client.write(first, b"x"), Ok(1));
}

/// A DNS and DHCP server for one machine.
struct Servers {
    answers: Vec<(&'static str, IpAddr)>,
    /// The source address of its packets.
    from: core::net::Ipv4Addr,
    /// The times of a lease in seconds: how long it lasts, when to renew it with this server, and when with any server.
    lease: [u32; 3],
}

impl Servers {
    const CARD: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
    const ADDRESS: core::net::Ipv4Addr = core::net::Ipv4Addr::new(10, 0, 2, 2);
    const GIVEN: core::net::Ipv4Addr = core::net::Ipv4Addr::new(10, 0, 2, 15);

    /// A server that knows these names.
    fn new(answers: &[(&'static str, &str)]) -> Self {
        let answers = answers.iter();
        Servers {
            answers: answers
                .map(|(name, address)| (*name, address.parse().unwrap()))
                .collect(),
            from: Self::ADDRESS,
            lease: [512, 256, 448],
        }
    }

    /// The answer to a frame, if it has one.
    fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        match frame.ethertype() {
            EthernetProtocol::Arp => {
                let packet = ArpPacket::new_checked(frame.payload()).ok()?;
                let ArpRepr::EthernetIpv4 {
                    source_hardware_addr,
                    source_protocol_addr,
                    target_protocol_addr,
                    ..
                } = ArpRepr::parse(&packet).ok()?
                else {
                    return None;
                };
                if target_protocol_addr != Self::ADDRESS {
                    return None;
                }
                let answer = ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Reply,
                    source_hardware_addr: Self::CARD,
                    source_protocol_addr: Self::ADDRESS,
                    target_hardware_addr: source_hardware_addr,
                    target_protocol_addr: source_protocol_addr,
                };
                let mut bytes = vec![0; 14 + answer.buffer_len()];
                let mut out = EthernetFrame::new_unchecked(&mut bytes[..]);
                out.set_src_addr(Self::CARD);
                out.set_dst_addr(source_hardware_addr);
                out.set_ethertype(EthernetProtocol::Arp);
                answer.emit(&mut ArpPacket::new_unchecked(out.payload_mut()));
                Some(bytes)
            }
            EthernetProtocol::Ipv4 => {
                let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
                let udp = UdpPacket::new_checked(packet.payload()).ok()?;
                let (to, payload) = match udp.dst_port() {
                    67 => (core::net::Ipv4Addr::BROADCAST, self.lease(udp.payload())?),
                    53 => (Self::GIVEN, self.name(udp.payload())?),
                    _ => return None,
                };
                Some(datagram(
                    frame.src_addr(),
                    (self.from, udp.dst_port()),
                    (to, udp.src_port()),
                    &payload,
                ))
            }
            _ => None,
        }
    }

    /// DHCP: an offer to a discovery, a lease to a request.
    fn lease(&self, asked: &[u8]) -> Option<Vec<u8>> {
        let kind = asked[240..]
            .windows(3)
            .find(|option| option[..2] == [53, 1])?[2];
        let mut answer = asked[..240].to_vec();
        answer[0] = 2;
        answer[16..20].copy_from_slice(&Self::GIVEN.octets());
        answer.extend([53, 1, if kind == 1 { 2 } else { 5 }]);
        for (option, value) in [(54, Self::ADDRESS), (3, Self::ADDRESS), (6, Self::ADDRESS)] {
            answer.extend([option, 4]);
            answer.extend(value.octets());
        }
        answer.extend([1, 4, 255, 255, 255, 0]);
        for (option, seconds) in [51, 58, 59].into_iter().zip(self.lease) {
            answer.extend([option, 4]);
            answer.extend(seconds.to_be_bytes());
        }
        answer.push(255);
        Some(answer)
    }

    /// DNS: the address of a name, or that there is no such name.
    fn name(&self, asked: &[u8]) -> Option<Vec<u8>> {
        let question = &asked[12..];
        let end = question.iter().position(|byte| *byte == 0)? + 1;
        let kind = question[end + 1];
        let found = self.answers.iter().find(|(name, address)| {
            let mut wire = Vec::new();
            for part in name.split('.') {
                wire.push(part.len() as u8);
                wire.extend(part.bytes());
            }
            question.starts_with(&wire) && kind == if address.is_ipv4() { 1 } else { 28 }
        });
        let mut answer = asked[..12 + end + 4].to_vec();
        answer[2..4].copy_from_slice(&[0x81, if found.is_some() { 0x80 } else { 0x83 }]);
        if let Some((_, address)) = found {
            answer[6..8].copy_from_slice(&[0, 1]);
            answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60]);
            match address {
                IpAddr::V4(address) => {
                    answer.extend([0, 4]);
                    answer.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    answer.extend([0, 16]);
                    answer.extend(address.octets());
                }
            }
        }
        Some(answer)
    }
}

/// A frame with a datagram.
fn datagram(
    card: EthernetAddress,
    from: (core::net::Ipv4Addr, u16),
    to: (core::net::Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let checksums = ChecksumCapabilities::default();
    let udp = UdpRepr {
        src_port: from.1,
        dst_port: to.1,
    };
    let ip = Ipv4Repr {
        src_addr: from.0,
        dst_addr: to.0,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; 14 + ip.buffer_len() + ip.payload_len];
    let mut out = EthernetFrame::new_unchecked(&mut bytes[..]);
    out.set_src_addr(Servers::CARD);
    out.set_dst_addr(card);
    out.set_ethertype(EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(out.payload_mut());
    ip.emit(&mut packet, &checksums);
    udp.emit(
        &mut UdpPacket::new_unchecked(packet.payload_mut()),
        &IpAddress::Ipv4(from.0),
        &IpAddress::Ipv4(to.0),
        payload.len(),
        |room| room.copy_from_slice(payload),
        &checksums,
    );
    bytes
}

/// Runs a machine that asks for its address, and the servers that answer, for some turns.
fn served(servers: &Servers, machine: &mut Machine, now: &mut u64, turns: usize) {
    for _ in 0..turns {
        *now += TICK;
        for frame in machine.turn(*now) {
            machine.coming.extend(servers.answer(&frame));
        }
    }
}

#[test]
fn addresses_and_names_are_asked_for() {
    let servers = Servers::new(&[
        ("four.example", "10.0.2.77"),
        ("six.example", "2001:db8::7"),
    ]);
    let mut machine = Machine::new(Options {
        address: None,
        ..options(0)
    });
    let session = machine.session();
    let mut now = 0;
    served(&servers, &mut machine, &mut now, 20);
    let addresses: Vec<_> = (0..).map_while(|n| session.address(n).ok()).collect();
    let given = words(Servers::GIVEN.into());
    assert!(addresses.contains(&(given.0, given.1, 24)), "{addresses:?}");
    assert_eq!(session.router(), Ok(words(Servers::ADDRESS.into())));
    assert_eq!(session.card(), Ok((CARD, 1500)), "what the card is");
    let mut names = |name: &str| {
        let mut asked = pin!(session.resolve(name.to_string(), 256));
        for _ in 0..20_000 {
            if let Poll::Ready(answer) = poll(asked.as_mut()) {
                return answer;
            }
            served(&servers, &mut machine, &mut now, 1);
        }
        panic!("no answer for {name}");
    };
    let bytes = |address: &str| {
        let (high, low) = words(address.parse().unwrap());
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    };
    assert_eq!(names("four.example"), Ok(bytes("10.0.2.77")));
    assert_eq!(names("six.example"), Ok(bytes("2001:db8::7")));
    assert_eq!(names("192.0.2.1"), Ok(bytes("192.0.2.1")));
    assert_eq!(names("localhost").map(|all| all.len()), Ok(32));
    for (room, length) in [(0, 0), (4, 0), (16, 16), (31, 16), (32, 32)] {
        let mut asked = pin!(session.resolve("localhost".to_string(), room));
        let answer = poll(asked.as_mut()).map_ok(|all| all.len());
        let rule = "S3: a reply has no more bytes than there is room for";
        assert_eq!(answer, Poll::Ready(Ok(length)), "{rule}: {room}");
    }
    assert_eq!(names("nobody.example"), Err(Error::NotFound));
    assert_eq!(names(""), Err(Error::Invalid));
    assert_eq!(names("a..b"), Err(Error::Invalid));
    assert_eq!(names(&"x".repeat(64)), Err(Error::NameTooLong));
    assert_eq!(names(&"x.".repeat(128)), Err(Error::NameTooLong));
    // Queries are given up in the middle, again and again.
    for _ in 0..100 {
        let mut asked = pin!(session.resolve("four.example".to_string(), 256));
        assert_eq!(poll(asked.as_mut()), Poll::Pending);
    }
}

/// A DHCP server that answers from 0.0.0.0 is ignored, so that nothing is ever sent there: the stack panics if it sends
/// there, as it would when it renews the lease.
#[test]
fn nobody_gives_no_addresses() {
    let rule = "S1: nobody is not answered";
    let mut machine = Machine::new(Options {
        address: None,
        ..options(0)
    });
    let session = machine.session();
    let has = |session: &Session| (0..).map_while(|n| session.address(n).ok()).count();
    let before = has(&session);
    let rogue = Servers {
        from: core::net::Ipv4Addr::UNSPECIFIED,
        lease: [3, 1, 2],
        ..Servers::new(&[])
    };
    let mut now = 0;
    // Longer than the lease lasts.
    served(&rogue, &mut machine, &mut now, 3_000);
    let [came, useless, ..] = session.counters().map(|(a, b, c, d)| [a, b, c, d]).unwrap();
    assert!(came > 0 && useless == came, "{rule}: {came}, {useless}");
    assert_eq!(has(&session), before, "{rule}");
    let good = Servers {
        lease: [3, 1, 2],
        ..Servers::new(&[])
    };
    // The stack asks again after some time, and renews the lease of this server several times.
    served(&good, &mut machine, &mut now, 20_000);
    assert_eq!(has(&session), before + 1, "who is somebody is heard");
    let sent_to_nobody = datagram(
        EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
        (Servers::ADDRESS, 9),
        (core::net::Ipv4Addr::UNSPECIFIED, 9),
        b"x",
    );
    let [_, useless, ..] = machine.shared.borrow().counters();
    machine.coming.push(sent_to_nobody);
    served(&good, &mut machine, &mut now, 1);
    assert_eq!(machine.shared.borrow().counters()[1], useless + 1, "{rule}");
}

type Answer = Result<Vec<u8>, Error>;

/// Asks for the address of a name. Returns the first result, and the future.
fn ask(session: &Session) -> (Poll<Answer>, Pin<Box<dyn Future<Output = Answer> + '_>>) {
    let mut asked: Pin<Box<dyn Future<Output = Answer> + '_>> =
        Box::pin(session.resolve("four.example".to_string(), 256));
    (poll(asked.as_mut()), asked)
}

/// However many names a job asks for, another job may then ask for as many as the first has left; the queries that were
/// given up for that fail.
#[test]
fn a_job_leaves_others_names_to_ask_for() {
    let servers = Servers::new(&[("four.example", "10.0.2.77")]);
    let mut machine = Machine::new(Options {
        address: None,
        ..options(0)
    });
    let mut now = 0;
    served(&servers, &mut machine, &mut now, 20);
    let of_job = |job| -> Vec<_> {
        (0..40)
            .map(|_| Session::new(&machine.shared, job))
            .collect()
    };
    let (many, few) = (of_job(1), of_job(2));
    let mut first: Vec<_> = many.iter().map(ask).collect();
    let waits = first.iter().filter(|(now, _)| now.is_pending()).count();
    assert_eq!(waits, 32, "alone it may have all");
    let second: Vec<_> = few.iter().map(ask).collect();
    let waits = second.iter().filter(|(now, _)| now.is_pending()).count();
    assert_eq!(
        waits, 16,
        "S2: what a client takes is counted and has a limit"
    );
    let why_few = why(&few[39]);
    assert_eq!(why_few, "too many names are being asked for");
    // The last queries of the first job were given up.
    for (n, (_, asked)) in first.iter_mut().take(32).enumerate() {
        let lost = Poll::Ready(Err(Error::Limit));
        let expected = if n < 16 { Poll::Pending } else { lost };
        assert_eq!(poll(asked.as_mut()), expected, "{n}");
    }
    drop(first);
    let third = Session::new(&machine.shared, 3);
    // The other queries are answered.
    let all = second.into_iter().chain([ask(&third)]);
    let all: Vec<_> = all.filter(|(now, _)| now.is_pending()).collect();
    assert_eq!(all.len(), 17);
    for (_, mut asked) in all {
        let mut answer = Poll::Pending;
        for _ in 0..100 {
            if answer.is_pending() {
                served(&servers, &mut machine, &mut now, 1);
                answer = poll(asked.as_mut());
            }
        }
        assert!(matches!(answer, Poll::Ready(Ok(_))), "{answer:?}");
    }
}

/// The machine survives frames with arbitrary contents, and real ones with some bytes changed.
#[test]
fn whatever_comes_the_machine_goes_on() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let asks = seed % 2 == 0;
        let servers = Servers::new(&[]);
        let mut machine = Machine::new(Options {
            address: if asks { None } else { options(0).address },
            ..options(0)
        });
        let mut now = 0;
        let session = machine.session();
        let listening = listen(&session, 80, 4);
        let datagrams = session.socket(Kind::Datagram).unwrap();
        assert_eq!(session.bind(datagrams, 5000), Ok(5000));
        // Real frames, of another machine and of servers.
        let mut samples: Vec<Vec<u8>> = Vec::new();
        let mut other = Machine::new(options(1));
        let peer = other.session();
        let mut talk = connect(&peer, if asks { "10.0.3.15" } else { "10.0.3.1" }, 80);
        for round in 0..600 {
            now += TICK * random.u64(1..50);
            let sent = other.turn(now);
            samples.extend(sent.iter().cloned());
            machine.coming.extend(sent);
            for frame in machine.turn(now) {
                let answers = servers.answer(&frame);
                samples.extend(answers.iter().cloned());
                machine.coming.extend(answers);
                other.coming.push(frame);
            }
            if peer.write(talk, &content(random.usize(1..2000), 1)) == Err(Error::Reset) {
                let _ = peer.close(talk);
                talk = connect(&peer, "10.0.3.1", 80);
            }
            while let Ok((socket, ..)) = session.accept(listening) {
                let _ = read(&session, socket, 100);
                let _ = session.write(socket, b"answer");
                if random.bool() {
                    let _ = session.close(socket);
                }
            }
            while session.receive(datagrams, 2000).is_ok() {}
            for _ in 0..8 {
                let mut frame = match samples.is_empty() || random.u8(..4) == 0 {
                    true => {
                        let mut frame: Vec<u8> =
                            (0..random.usize(..FRAME)).map(|_| random.u8(..)).collect();
                        // To this card, of a protocol that the stack knows.
                        let head = [0x52, 0x54, 0, 0x12, 0x34, 0x56, 2, 0, 0, 0, 0, 9];
                        let kinds = [[8, 0, 0x45], [8, 6, 0], [0x86, 0xdd, 0x60]];
                        let kind = kinds[random.usize(..3)];
                        for (to, from) in frame.iter_mut().zip(head.into_iter().chain(kind)) {
                            *to = from;
                        }
                        frame
                    }
                    false => samples[random.usize(..samples.len())].clone(),
                };
                for _ in 0..random.usize(..6) {
                    if !frame.is_empty() {
                        let at = random.usize(..frame.len());
                        frame[at] = random.u8(..);
                    }
                }
                frame.truncate(random.usize(..=FRAME));
                repair(&mut frame, &mut random);
                machine.coming.push(frame);
            }
            if samples.len() > 200 {
                samples.drain(..100);
            }
            let _ = round;
        }
        // The machine still answers.
        let (high, low, _) = at("127.0.0.1", 1);
        let echo = session.socket(Kind::Echo).unwrap();
        assert_eq!(
            session.send(echo, high, low, 1, b"there?"),
            Ok(()),
            "seed {seed}"
        );
        machine.turn(now + TICK);
        assert!(session.receive(echo, 100).is_ok(), "seed {seed}");
    }
}

/// Corrects lengths and checksums of most frames, so that the stack looks further into them.
fn repair(frame: &mut [u8], random: &mut Rng) {
    if random.u8(..8) == 0 {
        return;
    }
    let Ok(mut ethernet) = EthernetFrame::new_checked(frame) else {
        return;
    };
    if ethernet.ethertype() != EthernetProtocol::Ipv4 || ethernet.payload_mut().len() < 20 {
        return;
    }
    let payload = ethernet.payload_mut();
    let length = payload.len() as u16;
    let mut packet = Ipv4Packet::new_unchecked(payload);
    packet.set_version(4);
    packet.set_header_len(20);
    packet.set_total_len(length);
    packet.clear_flags();
    packet.set_frag_offset(0);
    packet.fill_checksum();
    let (from, to) = (
        IpAddress::Ipv4(packet.src_addr()),
        IpAddress::Ipv4(packet.dst_addr()),
    );
    let protocol = packet.next_header();
    let inner = packet.payload_mut();
    match protocol {
        IpProtocol::Tcp if inner.len() >= 20 => {
            TcpPacket::new_unchecked(inner).fill_checksum(&from, &to);
        }
        IpProtocol::Udp if inner.len() >= 8 => {
            let length = inner.len() as u16;
            let mut udp = UdpPacket::new_unchecked(inner);
            udp.set_len(length);
            udp.fill_checksum(&from, &to);
        }
        IpProtocol::Icmp if inner.len() >= 8 => Icmpv4Packet::new_unchecked(inner).fill_checksum(),
        _ => {}
    }
}

/// The port and the first sequence number of a connection that a machine begins.
fn begins(options: Options, port: u64) -> (u16, i32) {
    RANDOM.set(port);
    let mut machine = Machine::new(options);
    let session = machine.session();
    connect(&session, "10.0.3.2", 80);
    let mut other = Machine::new(self::options(1));
    let mut now = 0;
    for _ in 0..10 {
        now += TICK;
        for frame in machine.turn(now) {
            let ethernet = EthernetFrame::new_checked(&frame).unwrap();
            if ethernet.ethertype() == EthernetProtocol::Ipv4 {
                let packet = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
                let begin = TcpPacket::new_checked(packet.payload()).unwrap();
                return (begin.src_port(), begin.seq_number().0);
            }
            other.coming.push(frame);
        }
        machine.coming.extend(other.turn(now));
    }
    panic!("no connection was begun");
}

#[test]
fn ports_and_first_numbers_follow_from_random_ones_only() {
    let seeded = |seed| Options {
        seeds: [seed, 0],
        ..options(0)
    };
    let (port, number) = begins(seeded(1), 1);
    assert_eq!(begins(seeded(1), 1), (port, number));
    let (other_port, same) = begins(seeded(1), 2);
    assert_ne!(other_port, port);
    assert_eq!(same, number);
    assert_ne!(begins(seeded(2), 1).1, number);
    let none = Options {
        random: || Err(Error::NotFound),
        ..options(0)
    };
    let machine = Machine::new(none);
    let session = machine.session();
    let socket = session.socket(Kind::Stream).unwrap();
    let (high, low, port) = at("10.0.3.2", 80);
    assert_eq!(session.connect(socket, high, low, port), Err(Error::Broken));
    assert_eq!(why(&session), "there are no random numbers");
}

#[test]
fn nobody_outside_is_the_machine_itself() {
    let mut machine = Machine::new(options(0));
    let session = machine.session();
    let socket = session.socket(Kind::Datagram).unwrap();
    assert_eq!(session.bind(socket, 99), Ok(99));
    let card = EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    let mut comes = |from: [u8; 4], to: [u8; 4]| {
        let frame = datagram(card, (from.into(), 5), (to.into(), 99), b"hello");
        machine.coming.push(frame);
        machine.turn(TICK);
        session.receive(socket, 100).is_ok()
    };
    assert!(comes([10, 0, 3, 9], [10, 0, 3, 1]));
    assert!(
        !comes([127, 0, 0, 1], [10, 0, 3, 1]),
        "from the machine itself"
    );
    assert!(
        !comes([10, 0, 3, 9], [127, 0, 0, 1]),
        "to the machine itself"
    );
    assert!(!comes([10, 0, 3, 9], [10, 0, 3, 7]), "to another one");
    assert!(
        !comes([10, 0, 3, 1], [10, 0, 3, 1]),
        "from the machine's own address"
    );
}

/// The stack does not check checksums itself, but altered packets do not reach it.
#[test]
fn what_was_altered_arrives_nowhere() {
    let mut machine = Machine::new(options(0));
    let session = machine.session();
    let socket = session.socket(Kind::Datagram).unwrap();
    assert_eq!(session.bind(socket, 99), Ok(99));
    let card = EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    let (from, to) = (([10, 0, 3, 9].into(), 5), ([10, 0, 3, 1].into(), 99));
    let good = datagram(card, from, to, b"hello");
    let mut comes = |at: usize| {
        let mut frame = good.clone();
        if at != 0 {
            frame[at] ^= 1;
        }
        machine.coming.push(frame);
        machine.turn(TICK);
        session.receive(socket, 100).is_ok()
    };
    assert!(comes(0));
    for at in 34..good.len() {
        assert!(!comes(at), "S2: a datagram with byte {at} altered");
    }
    let [came, useless, ..] = machine.shared.borrow().counters();
    assert_eq!((came, useless), (14, 13), "S2: they are counted");
}

#[test]
fn answers_without_room_are_dropped() {
    let mut machine = Machine::new(options(0));
    let question = Icmpv4Repr::EchoRequest {
        ident: 1,
        seq_no: 1,
        data: b"x",
    };
    let ip = Ipv4Repr {
        src_addr: [10, 0, 3, 9].into(),
        dst_addr: [10, 0, 3, 1].into(),
        next_header: IpProtocol::Icmp,
        payload_len: question.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let mut frame = vec![0; 14 + ip.buffer_len() + ip.payload_len];
    let mut out = EthernetFrame::new_unchecked(&mut frame[..]);
    out.set_src_addr(Servers::CARD);
    out.set_dst_addr(EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
    out.set_ethertype(EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(out.payload_mut());
    ip.emit(&mut packet, &checksums);
    question.emit(
        &mut Icmpv4Packet::new_unchecked(packet.payload_mut()),
        &checksums,
    );
    // The sender's card is known, so no ARP request is needed for the answers.
    let mut batch = Batch::new();
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: Servers::CARD,
        source_protocol_addr: [10, 0, 3, 9].into(),
        target_hardware_addr: EthernetAddress::BROADCAST,
        target_protocol_addr: [10, 0, 3, 1].into(),
    };
    let mut asks = vec![0; 14 + arp.buffer_len()];
    let mut out = EthernetFrame::new_unchecked(&mut asks[..]);
    out.set_src_addr(Servers::CARD);
    out.set_dst_addr(EthernetAddress::BROADCAST);
    out.set_ethertype(EthernetProtocol::Arp);
    arp.emit(&mut ArpPacket::new_unchecked(out.payload_mut()));
    machine.coming.push(asks);
    machine.turn(TICK);
    let mut stack = machine.shared.borrow_mut();
    // Nobody takes the leaving frames.
    for turn in 1..100 {
        for _ in 0..MOST {
            push(&mut batch, &frame);
        }
        stack.came(&mut batch);
        stack.turn(turn * TICK);
    }
    stack.take_leaving(&mut batch);
    assert_eq!(frames(&batch).count(), MOST, "S2: frames that wait");
    let [came, _, left, dropped] = stack.counters();
    assert_eq!(came, 99 * MOST as u64 + 1);
    assert!(
        left >= MOST as u64 && dropped >= 98 * MOST as u64,
        "{left} {dropped}"
    );
}

/// Frames that are to leave while the sending thread is busy leave when it has sent its batch, without any other event.
#[test]
fn what_leaves_waits_for_the_batch_before_it_only() {
    let mut world = World::new(Wire::default(), 13);
    let session = world.machines[0].session();
    let socket = session.socket(Kind::Datagram).unwrap();
    assert!(session.bind(socket, 0).is_ok());
    let (high, low, port) = at("10.0.3.2", 5000);
    let send = || assert_eq!(session.send(socket, high, low, port, b"x"), Ok(()));
    // The other machine's card is known from here on.
    send();
    world.turns(5);
    let stack = &world.machines[0].shared;
    let (mut leaving, mut spare, mut batch) = (Leaving::new(), Batch::new(), Batch::new());
    let now = world.now;
    let mut settle = |leaving: &mut Leaving| {
        let mut stack = stack.borrow_mut();
        stack.turn(now);
        leaving.give(&mut stack, &mut spare)
    };
    assert!(!settle(&mut leaving));
    send();
    assert!(settle(&mut leaving));
    leaving.take(&mut batch);
    assert_eq!(frames(&batch).count(), 1);
    for _ in 0..3 {
        send();
        assert!(!settle(&mut leaving), "it is busy");
    }
    batch.clear();
    assert!(leaving.sent(), "S1: what leaves waits for no request");
    assert!(settle(&mut leaving), "S1: what leaves waits for no request");
    leaving.take(&mut batch);
    assert_eq!(frames(&batch).count(), 3);
    batch.clear();
    assert!(!leaving.sent());
    leaving.take(&mut batch);
    assert!(batch.is_empty() && !settle(&mut leaving));
}

/// A machine with nothing to do waits: its next deadline is in the future, so it does not ask the stack again and
/// again.
#[test]
fn nothing_to_do_takes_no_time() {
    let mut world = World::new(Wire::default(), 9);
    let (server, client) = (world.machines[1].session(), world.machines[0].session());
    let idle = |world: &mut World, what: &str| {
        world.turns(20);
        for machine in &world.machines {
            let mut stack = machine.shared.borrow_mut();
            let deadline = stack.turn(world.now);
            assert!(
                deadline.is_none_or(|at| at > world.now),
                "{what}: {deadline:?} at {}",
                world.now
            );
        }
    };
    idle(&mut world, "at first");
    let listening = listen(&server, 80, 1);
    let socket = connect(&client, "10.0.3.2", 80);
    idle(&mut world, "a connection that nobody accepts");
    let (accepted, ..) = server.accept(listening).unwrap();
    idle(&mut world, "a connection");
    while client.write(socket, &content(1000, 1)).is_ok() {
        world.turn();
    }
    idle(&mut world, "nobody reads");
    while read(&server, accepted, 700).is_ok() {
        world.turn();
    }
    idle(&mut world, "all of it was read");
    assert_eq!(client.shut(socket), Ok(()));
    idle(&mut world, "half of it was closed");
    drop(client);
    idle(&mut world, "one end was closed");
    drop(server);
    idle(&mut world, "it was closed");
    let client = world.machines[0].session();
    let nobody = connect(&client, "10.0.3.77", 80);
    idle(&mut world, "nobody answers");
    assert_eq!(client.close(nobody), Ok(()));
    idle(&mut world, "nobody is asked any more");
}

/// What a program has written before it closes a connection arrives, however many connections another program closes
/// meanwhile.
#[test]
fn what_was_closed_arrives_whatever_others_close() {
    closed_while_others_close(1, 2);
    // With sessions of a server that has one for each of its clients, as the personality of Linux programs has. Each of
    // the other client's two sessions has more connections than the victim.
    closed_while_others_close(0, 0);
}

/// The victim's job is `job`; the other program has two sessions of the job `others`.
fn closed_while_others_close(job: u32, others: u32) {
    let mut world = World::new(Wire::default(), 5);
    let server = world.machines[1].session();
    let victim = Session::new(&world.machines[0].shared, job);
    let hostile = Session::new(&world.machines[0].shared, others);
    let more = Session::new(&world.machines[0].shared, others);
    let listening = listen(&server, 80, 2);
    let socket = connect(&victim, "10.0.3.2", 80);
    world.turns(4);
    let (accepted, ..) = server.accept(listening).unwrap();
    // As much as there is room for, at both ends.
    let all = content(100_000, 1);
    let mut sent = 0;
    for _ in 0..100 {
        sent += victim.write(socket, &all[sent..]).unwrap_or(0) as usize;
        world.turn();
    }
    assert!(sent > 20_000, "{sent}");
    assert_eq!(victim.close(socket), Ok(()));
    world.turns(4);
    // The other program closes ends of connections to itself, whose other ends stay.
    let own = [listen(&hostile, 90, 1), listen(&more, 91, 1)];
    let mut kept = Vec::new();
    for n in 0..80 {
        let sessions = [&hostile, &more];
        let session = sessions[n % 2];
        let Ok(end) = session.socket(Kind::Stream) else {
            break;
        };
        let (high, low, port) = at("127.0.0.1", 90 + (n % 2) as u16);
        assert_eq!(session.connect(end, high, low, port), Ok(()));
        world.turns(4);
        let Ok((peer, ..)) = session.accept(own[n % 2]) else {
            break;
        };
        kept.push(peer);
        assert_eq!(session.close(end), Ok(()));
        world.turns(2);
    }
    // With the victim's connection, these are more than may be closing.
    assert!(kept.len() >= 64, "{}", kept.len());
    // The reader begins to read.
    let mut got = Vec::new();
    let mut end = Ok(());
    for _ in 0..400 {
        match read(&server, accepted, 4000) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => got.extend(bytes),
            Err(Error::WouldBlock) => {}
            Err(error) => {
                end = Err(error);
                break;
            }
        }
        world.turn();
    }
    assert!(
        end.is_ok() && got.len() == sent,
        "{} of {sent} bytes came, {end:?}; {} closed",
        got.len(),
        kept.len()
    );
    // The connections that were closed first are reset first, and their other ends are told.
    let mut lost = kept.iter().enumerate().map(|(n, peer)| {
        let written = [&hostile, &more][n % 2].write(*peer, b"x");
        assert!(matches!(written, Ok(1) | Err(Error::Reset)), "{written:?}");
        written.is_err()
    });
    let count = lost.by_ref().take_while(|is_lost| *is_lost).count();
    assert_eq!(count, kept.len() + 1 - 64, "job {job}: the oldest");
    assert!(!lost.any(|is_lost| is_lost), "job {job}: the oldest only");
}
