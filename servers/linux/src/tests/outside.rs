//! Sockets that reach other machines, against a simulated network.

use super::*;
use crate::outside::{Answer, Ask, Card, Here, Link, Place, Request, Requests, Said, Stage};
use crate::socket::{mapped, Style};
use crate::system::Payer;
use alloc::collections::BTreeSet;
use proto::Error;

const ADDRESS: u64 = 0x10_0000;
const LENGTH: u64 = 0x10_0080;
const BYTES: u64 = 0x10_1000;
const STREAM: u64 = 1 | 0o4000;
const DATAGRAM: u64 = 2 | 0o4000;

/// 10.0.3.1 of a network of 24 bits, and a router.
fn here() -> Here {
    Here {
        addresses: vec![(mapped(0x0a00_0301), 24)],
        routes: true,
    }
}

/// Port 80 of 10.0.3.2.
const OTHER: Place = (mapped(0x0a00_0302), 80);

fn write_name(host: &mut Fake, address: [u8; 4], port: u16) {
    let name = [&[2, 0][..], &port.to_be_bytes(), &address, &[0; 8]].concat();
    host.write_memory(ADDRESS, &name).unwrap();
    host.write_memory(LENGTH, &[16, 0, 0, 0]).unwrap();
}

fn read_name(host: &mut Fake) -> ([u8; 4], u16) {
    let mut name = [0; 16];
    host.read_memory(ADDRESS, &mut name).unwrap();
    let [.., a, b, c, d] = *name[..8].first_chunk::<8>().unwrap();
    ([a, b, c, d], u16::from_be_bytes([name[2], name[3]]))
}

/// A machine with a network.
fn machine() -> (Fake, One) {
    let mut host = Fake::new();
    host.network = true;
    let process = example(&mut host);
    (host, process)
}

impl One {
    /// Makes a call that waits, and returns the one request that it has for the network's thread.
    fn asks(&mut self, host: &mut Fake, number: u64, arguments: &[u64]) -> Request {
        let outcome = self.call(host, &registers(number, arguments));
        assert!(
            matches!(&outcome, Outcome::Park(wake) if wake.firm),
            "{outcome:?}"
        );
        let mut requests = self.system.take_requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    fn says(&mut self, link: Link, said: Said) {
        self.system.answered(Answer { link, said });
    }

    /// All requests that are made by now. Those that end a socket are answered at once.
    fn asked(&mut self) -> Vec<Ask> {
        let mut asked = Vec::new();
        loop {
            let requests = self.system.take_requests();
            if requests.is_empty() {
                return asked;
            }
            for Request { link, what, .. } in requests {
                if matches!(what, Ask::Close | Ask::Abort | Ask::Finish(_)) {
                    self.says(link, Said::Closed);
                }
                asked.push(what);
            }
        }
    }

    /// As [`One::adopt`], where `answer` answers for the network.
    fn adopt_with(
        bytes: &[u8],
        host: &mut Fake,
        answer: &mut dyn FnMut(&mut System),
    ) -> Result<Self, String> {
        let mut system = System::new();
        let pid = system.create(None).unwrap();
        let mut rebuilding = part::Rebuilding::new(bytes, (1, 0), host)?;
        while let Err(refusal) = rebuilding.open(host) {
            assert_eq!(refusal, part::Refusal::Later);
        }
        loop {
            match rebuilding.bind(pid, &mut system, host) {
                Ok(true) => break,
                Ok(false) => answer(&mut system),
                Err(sentence) => {
                    rebuilding.give_up(&mut system, host);
                    assert_eq!(system.outside.count(), 0);
                    return Err(sentence);
                }
            }
        }
        assert_eq!(system.take_rebuilt(), [pid]);
        let mut adopted = rebuilding.finish(0, pid, &mut system, host)?;
        let task = adopted.tasks.remove(0).task;
        Ok(One { task, system })
    }

    /// A connection to [`OTHER`]: its descriptor and its link.
    fn connected(&mut self, host: &mut Fake) -> (u64, Link) {
        let fd = self.result(host, nr::socket, &[2, STREAM, 0]) as u64;
        write_name(host, [10, 0, 3, 2], 80);
        let connect = [fd, ADDRESS, 16];
        let Request { link, what, .. } = self.asks(host, nr::connect, &connect);
        assert_eq!(what, Ask::Connect(OTHER));
        self.says(link, Said::Begun(50_000, here()));
        let in_progress = self.result(host, nr::connect, &connect);
        assert_eq!(in_progress, EINPROGRESS.rax() as i64);
        self.says(link, Said::Connected);
        assert_eq!(self.result(host, nr::connect, &connect), 0);
        assert_eq!(self.asked(), [Ask::Read(16 << 10)]);
        (fd, link)
    }

    /// The events that `poll` reports for a descriptor.
    fn polled(&mut self, host: &mut Fake, fd: u64) -> u16 {
        let entry = [&(fd as u32).to_le_bytes()[..], &[0xff, 0x20, 0, 0]].concat();
        host.write_memory(0x10_0100, &entry).unwrap();
        self.result(host, nr::poll, &[0x10_0100, 1, 0]);
        let mut events = [0; 2];
        host.read_memory(0x10_0106, &mut events).unwrap();
        u16::from_le_bytes(events)
    }
}

const IN: u16 = 0x41;
const OUT: u16 = 4;
const ERR: u16 = 8;
const HUP: u16 = 0x10;
const RDHUP: u16 = 0x2000;

#[test]
fn the_way_to_an_address() {
    let four = |text: u32| mapped(text);
    let mut here = here();
    let own = Some(mapped(0x0a00_0301));
    assert_eq!(here.way(four(0x0a00_03ff)), own);
    assert_eq!(here.way(four(0x0808_0808)), own);
    assert_eq!(here.way(four(0x7f00_0001)), Some(four(0x7f00_0001)));
    assert_eq!(here.way(0xfe80 << 112 | 7), None, "there is no IPv6");
    here.routes = false;
    assert_eq!(here.way(four(0x0808_0808)), None);
    let six = 0xfe80 << 112 | 1;
    here.addresses.push((six, 64));
    assert_eq!(here.way(0xfe80 << 112 | 7), Some(six));
    assert_eq!(here.way(0x2001 << 112), None);
    for bits in [0, 1, 31, 32, 127, 128, 255] {
        here.addresses = vec![(mapped(0), bits), (0, bits)];
        let _ = here.way(u128::MAX);
        let _ = here.way(mapped(u32::MAX));
    }
}

#[test]
fn a_connection_is_made_used_and_closed() {
    let (mut host, mut process) = machine();
    let (fd, link) = process.connected(&mut host);
    assert_eq!(process.polled(&mut host, fd), OUT);
    process.result(&mut host, nr::getsockname, &[fd, ADDRESS, LENGTH]);
    assert_eq!(read_name(&mut host), ([10, 0, 3, 1], 50_000));
    process.result(&mut host, nr::getpeername, &[fd, ADDRESS, LENGTH]);
    assert_eq!(read_name(&mut host), ([10, 0, 3, 2], 80));
    // Written bytes are passed on piece by piece.
    host.write_memory(BYTES, b"question").unwrap();
    assert_eq!(process.result(&mut host, nr::write, &[fd, BYTES, 8]), 8);
    assert_eq!(process.asked(), [Ask::Write(b"question".to_vec())]);
    assert_eq!(process.result(&mut host, nr::write, &[fd, BYTES, 4]), 4);
    assert_eq!(process.asked(), [], "one at a time");
    assert_eq!(process.result(&mut host, nr::shutdown, &[fd, 1]), 0);
    process.says(link, Said::Written);
    assert_eq!(process.asked(), [Ask::Write(b"ques".to_vec())]);
    process.says(link, Said::Written);
    assert_eq!(process.asked(), [Ask::Shut]);
    process.says(link, Said::Written);
    assert_eq!(process.asked(), []);
    // What comes is read.
    process.says(link, Said::Read(b"answer".to_vec()));
    assert_eq!(process.polled(&mut host, fd) & IN, IN);
    assert_eq!(process.result(&mut host, nr::read, &[fd, BYTES, 100]), 6);
    assert_eq!(process.asked(), [Ask::Read(16 << 10)]);
    process.says(link, Said::Read(Vec::new()));
    assert_eq!(process.result(&mut host, nr::read, &[fd, BYTES, 100]), 0);
    assert_eq!(process.polled(&mut host, fd), IN | OUT | HUP | RDHUP);
    assert_eq!(process.asked(), []);
    assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    assert_eq!(process.asked(), [Ask::Finish(Vec::new())]);
    assert!(process.system.has_no_sockets());
    assert_eq!(process.system.outside.count(), 0);
}

/// A peer that never reads holds up the sender and nobody else; one that never stops sending fills a bounded queue.
#[test]
fn both_ways_are_bounded() {
    let (mut host, mut process) = machine();
    let (fd, link) = process.connected(&mut host);
    let mut sent = 0;
    loop {
        match process.result(&mut host, nr::write, &[fd, BYTES, 4000]) {
            count @ 1.. => sent += count,
            error => {
                assert_eq!(error, EAGAIN.rax() as i64);
                break;
            }
        }
        process.asked();
    }
    assert!((60_000..90_000).contains(&sent), "S2: {sent}");
    assert_eq!(process.polled(&mut host, fd) & OUT, 0);
    let (mut came, mut most) = (0, 16 << 10);
    loop {
        let length = most.min(8000);
        process.says(link, Said::Read(vec![1; length]));
        came += length;
        match process.asked()[..] {
            [Ask::Read(next)] => most = next,
            [] => break,
            ref other => panic!("{other:?}"),
        }
        assert!(most > 0);
    }
    assert!(came <= 64 << 10, "S2: {came}");
    assert!(process.system.sockets_are_bounded());
    // The socket is closed after all has been read: the network's thread passes on the bytes that were not sent.
    while process.result(&mut host, nr::read, &[fd, BYTES, 4000]) > 0 {}
    process.asked();
    process.close_all(&mut host);
    match &process.asked()[..] {
        [Ask::Finish(rest)] => {
            let rest: usize = rest.iter().map(Vec::len).sum();
            assert!((50_000..70_000).contains(&rest), "{rest}");
        }
        other => panic!("{other:?}"),
    }
    assert!(process.system.has_no_sockets());
}

#[test]
fn who_is_refused_is_told() {
    let (mut host, mut process) = machine();
    write_name(&mut host, [10, 0, 3, 2], 80);
    let at_once = [
        (Said::Nowhere, ENETUNREACH),
        (Said::Failed(Error::Unreachable), ENETUNREACH),
        (Said::Failed(Error::Limit), ENOBUFS),
        (Said::Down, ENETDOWN),
    ];
    for (said, errno) in at_once {
        let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
        let request = process.asks(&mut host, nr::connect, &[fd, ADDRESS, 16]);
        process.says(request.link, said);
        let result = process.result(&mut host, nr::connect, &[fd, ADDRESS, 16]);
        assert_eq!(result, errno.rax() as i64);
        process.result(&mut host, nr::close, &[fd]);
        process.asked();
    }
    let later = [
        (Said::Failed(Error::Refused), ECONNREFUSED),
        (Said::Silence, ETIMEDOUT),
        (Said::Down, ENETDOWN),
    ];
    for (said, errno) in later {
        let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
        let request = process.asks(&mut host, nr::connect, &[fd, ADDRESS, 16]);
        process.says(request.link, Said::Begun(50_000, here()));
        let connect = [fd, ADDRESS, 16];
        let ask = |process: &mut One, host: &mut Fake| process.result(host, nr::connect, &connect);
        assert_eq!(ask(&mut process, &mut host), EINPROGRESS.rax() as i64);
        assert_eq!(ask(&mut process, &mut host), EALREADY.rax() as i64);
        assert_eq!(process.polled(&mut host, fd), 0, "it is being made");
        let read = process.result(&mut host, nr::read, &[fd, BYTES, 1]);
        assert_eq!(read, EAGAIN.rax() as i64);
        process.says(request.link, said);
        assert_eq!(process.polled(&mut host, fd) & (OUT | ERR), OUT | ERR);
        assert_eq!(ask(&mut process, &mut host), errno.rax() as i64);
        process.result(&mut host, nr::close, &[fd]);
        process.asked();
    }
    // A connection that is established is reset, or the network's server ends.
    for said in [Said::Failed(Error::Reset), Said::Down] {
        let (fd, link) = process.connected(&mut host);
        process.says(link, said);
        let read = process.result(&mut host, nr::read, &[fd, BYTES, 1]);
        assert_eq!(read, ECONNRESET.rax() as i64);
        assert_eq!(process.result(&mut host, nr::read, &[fd, BYTES, 1]), 0);
        process.result(&mut host, nr::close, &[fd]);
        assert_eq!(process.asked(), []);
    }
    assert!(process.system.has_no_sockets());
    // Without a network nothing is asked for.
    host.network = false;
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(&mut host, [10, 0, 3, 2], 80);
    let none = ENETUNREACH.rax() as i64;
    assert_eq!(
        process.result(&mut host, nr::connect, &[fd, ADDRESS, 16]),
        none
    );
    let fd = process.result(&mut host, nr::socket, &[2, DATAGRAM, 0]) as u64;
    let send = [fd, BYTES, 4, 0, ADDRESS, 16];
    assert_eq!(process.result(&mut host, nr::sendto, &send), none);
    assert_eq!(process.asked(), []);
}

/// A connection that has ended in both directions, one after the other, still has a socket in the network's thread: the
/// thread is told to close it, and the socket counts until it has.
#[test]
fn who_is_cut_off_both_ways_leaves_no_socket() {
    for comes_first in [true, false] {
        let (mut host, mut process) = machine();
        let (fd, link) = process.connected(&mut host);
        assert_eq!(process.result(&mut host, nr::write, &[fd, BYTES, 8]), 8);
        assert_eq!(process.asked(), [Ask::Write(vec![0; 8])]);
        let (mut first, mut second) = (Said::Read(Vec::new()), Said::Unsent(Error::Reset));
        if !comes_first {
            core::mem::swap(&mut first, &mut second);
        }
        process.says(link, first);
        assert_eq!(process.asked(), []);
        process.says(link, second);
        let rule = "S2: what the thread has it is told to close";
        let requests = process.system.take_requests();
        let asked: Vec<_> = requests.iter().map(|one| (one.link, &one.what)).collect();
        assert_eq!(asked, [(link, &Ask::Close)], "{rule}");
        let broken = EPIPE.rax() as i64;
        let send = [fd, BYTES, 8, 0x4000, 0, 0];
        assert_eq!(process.result(&mut host, nr::sendto, &send), broken);
        process.result(&mut host, nr::close, &[fd]);
        assert_eq!(process.asked(), []);
        let counted = |process: &One| process.system.counted_things(Thing::Outside);
        assert_eq!(counted(&process), 1, "S2: it counts until it is closed");
        process.says(link, Said::Closed);
        assert_eq!((counted(&process), process.system.outside.count()), (0, 0));
    }
}

/// A program that writes to a connection that was reset is told once, though it does not read; what came before the
/// reset is read all the same.
#[test]
fn who_only_writes_hears_of_a_reset() {
    let (mut host, mut process) = machine();
    let (fd, link) = process.connected(&mut host);
    let mut came = 0;
    let mut most = 16 << 10;
    loop {
        process.says(link, Said::Read(vec![1; most]));
        came += most;
        match process.asked()[..] {
            [Ask::Read(next)] => most = next,
            [] => break,
            ref other => panic!("{other:?}"),
        }
    }
    let send = [fd, BYTES, 8, 0x4000, 0, 0];
    assert_eq!(process.result(&mut host, nr::sendto, &send), 8);
    assert_eq!(process.asked(), [Ask::Write(vec![0; 8])]);
    process.says(link, Said::Unsent(Error::Reset));
    assert_eq!(process.asked(), []);
    let polled = process.polled(&mut host, fd);
    assert_eq!(polled & ERR, ERR, "S3: a reset is seen");
    let sent = process.result(&mut host, nr::sendto, &send);
    assert_eq!(sent, ECONNRESET.rax() as i64, "who writes is told");
    let sent = process.result(&mut host, nr::sendto, &send);
    assert_eq!(sent, EPIPE.rax() as i64, "and never succeeds again");
    // All that had come is read, and then what the network's server still has.
    let read = [fd, BYTES, 4 << 10];
    let mut got = 0;
    while got < came {
        let more = process.result(&mut host, nr::read, &read);
        assert!(more > 0, "{more} behind {got} of {came} bytes");
        got += more as usize;
    }
    assert!(matches!(process.asked()[..], [Ask::Read(_)]));
    let empty = process.result(&mut host, nr::read, &read);
    assert_eq!(empty, EAGAIN.rax() as i64, "there may be more");
    process.says(link, Said::Read(b"last".to_vec()));
    assert_eq!(process.result(&mut host, nr::read, &read), 4);
    assert_eq!(process.asked().len(), 1);
    process.says(link, Said::Failed(Error::Reset));
    assert_eq!(process.result(&mut host, nr::read, &read), 0);
    process.result(&mut host, nr::close, &[fd]);
    assert_eq!(process.asked(), []);
    assert!(process.system.has_no_sockets());
    assert_eq!(process.system.counted_things(Thing::Outside), 0);
}

/// A read or write waits until the connection is established; that it could not be made is told once.
#[test]
fn who_comes_before_the_connection_waits() {
    for reads in [true, false] {
        for comes in [true, false] {
            let (mut host, mut process) = machine();
            let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
            write_name(&mut host, [10, 0, 3, 2], 80);
            let connect = [fd, ADDRESS, 16];
            let Request { link, .. } = process.asks(&mut host, nr::connect, &connect);
            process.says(link, Said::Begun(50_000, here()));
            let result = process.result(&mut host, nr::connect, &connect);
            assert_eq!(result, EINPROGRESS.rax() as i64);
            let number = if reads { nr::read } else { nr::write };
            let arguments = [fd, BYTES, 4];
            let result = process.result(&mut host, number, &arguments);
            assert_eq!(result, EAGAIN.rax() as i64, "it must not wait");
            // F_SETFL.
            assert_eq!(process.result(&mut host, nr::fcntl, &[fd, 4, 0]), 0);
            let waits = process.call(&mut host, &registers(number, &arguments));
            assert!(matches!(waits, Outcome::Park(_)), "{waits:?}");
            let expected = match comes {
                true => {
                    process.says(link, Said::Connected);
                    process.asked();
                    process.says(link, Said::Read(b"here".to_vec()));
                    4
                }
                false => {
                    process.says(link, Said::Failed(Error::Refused));
                    ECONNREFUSED.rax() as i64
                }
            };
            let result = process.result(&mut host, number, &arguments);
            assert_eq!(result, expected, "reads: {reads}");
            process.close_all(&mut host);
            process.asked();
            assert!(process.system.has_no_sockets());
        }
    }
}

/// Bytes that are received with `MSG_TRUNC` are dropped, whatever the address of the buffer is.
#[test]
fn bytes_are_dropped_unseen() {
    let (mut host, mut process) = machine();
    let (fd, link) = process.connected(&mut host);
    process.says(link, Said::Read(b"in front, wanted".to_vec()));
    let drops = [fd, 0, 10, 0x20, 0, 0];
    assert_eq!(process.result(&mut host, nr::recvfrom, &drops), 10);
    assert_eq!(process.result(&mut host, nr::read, &[fd, BYTES, 9]), 6);
    let mut bytes = [0; 6];
    host.read_memory(BYTES, &mut bytes).unwrap();
    assert_eq!(&bytes, b"wanted");
    process.close_all(&mut host);
}

/// A connection is reset if it is closed before all is read or with a linger time of zero, and if its listener is
/// closed before it was accepted.
#[test]
fn who_closes_without_reading_resets() {
    for lingers in [false, true] {
        let (mut host, mut process) = machine();
        let (fd, link) = process.connected(&mut host);
        process.result(&mut host, nr::write, &[fd, BYTES, 8]);
        assert_eq!(process.asked(), [Ask::Write(vec![0; 8])]);
        if lingers {
            host.write_memory(BYTES, &[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            let option = [fd, 1, 13, BYTES, 8];
            assert_eq!(process.result(&mut host, nr::setsockopt, &option), 0);
        } else {
            process.says(link, Said::Read(b"unread".to_vec()));
            process.asked();
        }
        process.result(&mut host, nr::close, &[fd]);
        assert_eq!(process.asked(), [Ask::Abort], "S3: not an end: {lingers}");
        // With a linger time above zero, and all read, the connection ends in order.
        let (fd, _) = process.connected(&mut host);
        host.write_memory(BYTES, &[1, 0, 0, 0, 9, 0, 0, 0]).unwrap();
        let option = [fd, 1, 13, BYTES, 8];
        assert_eq!(process.result(&mut host, nr::setsockopt, &option), 0);
        process.result(&mut host, nr::close, &[fd]);
        assert_eq!(process.asked(), [Ask::Finish(Vec::new())]);
        assert!(process.system.has_no_sockets());
        assert_eq!(process.system.counted_things(Thing::Outside), 0);
    }
    let (mut host, mut process) = machine();
    let (fd, link) = listening(&mut host, &mut process);
    let Some(Ask::Accept { next }) = process.asked().pop() else {
        panic!("it takes no connections");
    };
    process.says(link, Said::Came(next, (OTHER.0, 5000), here()));
    process.asked();
    process.result(&mut host, nr::close, &[fd]);
    let asked = process.asked();
    assert!(asked.contains(&Ask::Abort), "never accepted: {asked:?}");
    assert!(process.system.has_no_sockets());
}

/// A socket that listens at port 7 of all addresses: its descriptor and its link.
fn listening(host: &mut Fake, process: &mut One) -> (u64, Link) {
    let fd = process.result(host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(host, [0; 4], 7);
    let request = process.asks(host, nr::bind, &[fd, ADDRESS, 16]);
    let (style, port) = (Style::Stream, 7);
    assert_eq!(request.what, Ask::Bind { style, port });
    let link = request.link;
    process.says(link, Said::Bound(here()));
    assert_eq!(process.result(host, nr::bind, &[fd, ADDRESS, 16]), 0);
    let request = process.asks(host, nr::listen, &[fd, 3]);
    assert_eq!((request.link, request.what), (link, Ask::Listen(4)));
    process.says(link, Said::Listening);
    assert_eq!(process.result(host, nr::listen, &[fd, 3]), 0);
    (fd, link)
}

#[test]
fn who_listens_is_reached_from_both_sides() {
    let (mut host, mut process) = machine();
    let (fd, link) = listening(&mut host, &mut process);
    let accept = [fd, ADDRESS, LENGTH, 0o4000];
    // A connection from this machine.
    let client = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(&mut host, [127, 0, 0, 1], 7);
    let connect = process.result(&mut host, nr::connect, &[client, ADDRESS, 16]);
    assert_eq!(connect, EINPROGRESS.rax() as i64);
    assert!(process.result(&mut host, nr::accept4, &accept) > 0);
    // Connections from outside, as many as may wait, and then no more.
    let mut ends = Vec::new();
    let mut next = match process.asked()[..] {
        [Ask::Accept { next }] => next,
        ref other => panic!("{other:?}"),
    };
    for port in 0..4 {
        process.says(link, Said::Came(next, (OTHER.0, 5000 + port), here()));
        ends.push(next);
        let asked = process.asked();
        assert!(asked.contains(&Ask::Read(16 << 10)), "{asked:?}");
        let more = asked.iter().find_map(|ask| match ask {
            Ask::Accept { next } => Some(*next),
            _ => None,
        });
        assert_eq!(more.is_some(), port < 3, "the list is full with four");
        next = more.unwrap_or(0);
    }
    let end = process.result(&mut host, nr::accept4, &accept) as u64;
    assert_eq!(read_name(&mut host), ([10, 0, 3, 2], 5000));
    process.result(&mut host, nr::getsockname, &[end, ADDRESS, LENGTH]);
    assert_eq!(read_name(&mut host), ([10, 0, 3, 1], 7));
    assert!(matches!(process.asked()[..], [Ask::Accept { .. }]));
    process.says(ends[0], Said::Read(b"hello".to_vec()));
    assert_eq!(process.result(&mut host, nr::read, &[end, BYTES, 9]), 5);
    // A tree that has a connection to another machine is not saved, whether it was accepted or waits.
    let refused = process
        .save(&mut host)
        .err()
        .map(|refusal| refusal.sentence("", false));
    let sentence = refused.unwrap_or_default();
    assert!(
        sentence.contains("has a connection to another machine, 10.0.3.2:500"),
        "{sentence}"
    );
    // The network's server ends: the listener is told.
    process.says(link, Said::Down);
    let down = ENETDOWN.rax() as i64;
    assert_eq!(process.polled(&mut host, fd) & ERR, ERR);
    assert_eq!(process.result(&mut host, nr::accept4, &accept), down);
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}

/// Servers have a socket for each family at one port: each is reached by its own addresses, whichever came first.
#[test]
fn both_families_of_a_port_are_reached() {
    let (mut host, mut process) = machine();
    let six = process.result(&mut host, nr::socket, &[10, STREAM, 0]) as u64;
    host.write_memory(BYTES, &[1, 0, 0, 0]).unwrap();
    let only = [
        six,
        41,
        u64::from(linux_raw_sys::net::IPV6_V6ONLY),
        BYTES,
        4,
    ];
    assert_eq!(process.result(&mut host, nr::setsockopt, &only), 0);
    let mut name = [0; 28];
    (name[0], name[3]) = (10, 7);
    host.write_memory(ADDRESS, &name).unwrap();
    let bind = [six, ADDRESS, 28];
    let request = process.asks(&mut host, nr::bind, &bind);
    let link = request.link;
    process.says(link, Said::Bound(here()));
    assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
    process.asks(&mut host, nr::listen, &[six, 3]);
    process.says(link, Said::Listening);
    assert_eq!(process.result(&mut host, nr::listen, &[six, 3]), 0);
    let four = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(&mut host, [0; 4], 7);
    assert_eq!(process.result(&mut host, nr::bind, &[four, ADDRESS, 16]), 0);
    assert_eq!(process.result(&mut host, nr::listen, &[four, 3]), 0);
    let next = match process.asked()[..] {
        [Ask::Accept { next }] => next,
        ref other => panic!("{other:?}"),
    };
    process.says(link, Said::Came(next, (OTHER.0, 5000), here()));
    let accept = |fd| [fd, ADDRESS, LENGTH, 0o4000];
    let end = process.result(&mut host, nr::accept4, &accept(four));
    assert!(end > 0, "the socket of the other family is reached: {end}");
    process.close_all(&mut host);
}

/// A port that another program has is refused if it was asked for; if none was asked for, another one is tried.
#[test]
fn ports_that_are_taken() {
    let (mut host, mut process) = machine();
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(&mut host, [0; 4], 7);
    let bind = [fd, ADDRESS, 16];
    let request = process.asks(&mut host, nr::bind, &bind);
    process.says(request.link, Said::Failed(Error::Exists));
    let in_use = EADDRINUSE.rax() as i64;
    assert_eq!(process.result(&mut host, nr::bind, &bind), in_use);
    write_name(&mut host, [0; 4], 0);
    let first = process.asks(&mut host, nr::bind, &bind);
    process.says(first.link, Said::Failed(Error::Exists));
    let second = process.system.take_requests().remove(0);
    assert_ne!(first.what, second.what);
    process.says(second.link, Said::Bound(here()));
    assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
    // The address of another machine cannot be bound.
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_name(&mut host, [10, 0, 3, 9], 9);
    let request = process.asks(&mut host, nr::bind, &[fd, ADDRESS, 16]);
    process.says(request.link, Said::Bound(here()));
    let result = process.result(&mut host, nr::bind, &[fd, ADDRESS, 16]);
    assert_eq!(result, EADDRNOTAVAIL.rax() as i64);
    assert_eq!(process.asked(), [Ask::Close]);
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}

#[test]
fn datagrams_go_and_come() {
    let (mut host, mut process) = machine();
    let fd = process.result(&mut host, nr::socket, &[2, DATAGRAM, 0]) as u64;
    write_name(&mut host, [10, 0, 3, 2], 80);
    host.write_memory(BYTES, b"ping").unwrap();
    let send = [fd, BYTES, 4, 0, ADDRESS, 16];
    let request = process.asks(&mut host, nr::sendto, &send);
    let link = request.link;
    assert!(matches!(
        request.what,
        Ask::Bind {
            style: Style::Datagram,
            ..
        }
    ));
    process.says(link, Said::Bound(here()));
    assert_eq!(process.result(&mut host, nr::sendto, &send), 4);
    let asked = process.asked();
    assert!(asked.contains(&Ask::Send(OTHER, b"ping".to_vec())) && asked.contains(&Ask::Receive));
    process.says(link, Said::Received((OTHER.0, 81), b"pong!".to_vec()));
    let receive = [fd, BYTES, 100, 0, ADDRESS, LENGTH];
    assert_eq!(process.result(&mut host, nr::recvfrom, &receive), 5);
    assert_eq!(read_name(&mut host), ([10, 0, 3, 2], 81));
    write_name(&mut host, [10, 0, 3, 2], 80);
    let long = [fd, BYTES, 1473, 0, ADDRESS, 16];
    let result = process.result(&mut host, nr::sendto, &long);
    assert_eq!(result, EMSGSIZE.rax() as i64);
    // A connected socket receives from nobody else.
    assert_eq!(
        process.result(&mut host, nr::connect, &[fd, ADDRESS, 16]),
        0
    );
    process.result(&mut host, nr::getsockname, &[fd, ADDRESS, LENGTH]);
    assert_eq!(read_name(&mut host).0, [10, 0, 3, 1]);
    process.says(link, Said::Received((OTHER.0, 81), b"other".to_vec()));
    process.says(link, Said::Received(OTHER, b"this".to_vec()));
    assert_eq!(process.result(&mut host, nr::read, &[fd, BYTES, 100]), 4);
    // Datagrams that nobody reads are lost beyond a bound, and a network that takes nothing holds up the sender.
    for _ in 0..1000 {
        process.says(link, Said::Received(OTHER, vec![0; 1472]));
    }
    assert!(process.system.sockets_are_bounded());
    let full = loop {
        match process.result(&mut host, nr::write, &[fd, BYTES, 1000]) {
            1000 => {}
            error => break error,
        }
    };
    assert_eq!(full, EAGAIN.rax() as i64);
    assert_eq!(process.polled(&mut host, fd) & OUT, 0);
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}

/// A payer has a share of the network's sockets, all kinds together.
#[test]
fn a_payer_has_a_share_outside() {
    let (mut host, mut process) = machine();
    let (listener, _) = listening(&mut host, &mut process);
    let mut made = 0;
    write_name(&mut host, [10, 0, 3, 2], 80);
    let error = loop {
        let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
        match process.call(&mut host, &registers(nr::connect, &[fd, ADDRESS, 16])) {
            Outcome::Park(_) => made += 1,
            Outcome::Go { registers, .. } => break registers.rax,
            other => panic!("{other:?}"),
        }
    };
    // One for each connection; nine for the socket that listens.
    assert_eq!((error, made), (ENOBUFS.rax(), 96 - 9), "S2");
    // The listener takes no connection before there is room for it.
    assert!(!process
        .asked()
        .iter()
        .any(|ask| matches!(ask, Ask::Accept { .. })));
    process.result(&mut host, nr::close, &[listener + 1]);
    let asked = process.asked();
    assert!(
        asked.iter().any(|ask| matches!(ask, Ask::Accept { .. })),
        "{asked:?}"
    );
    process.close_all(&mut host);
    process.asked();
    assert!(process.system.has_no_sockets());
    assert_eq!(process.system.counted_things(Thing::Outside), 0);
}

/// The network never answers: a program that binds port after port and closes the sockets asks for no more than its
/// share, and others do not wait behind it.
#[test]
fn what_is_asked_for_is_bounded_though_it_is_closed() {
    let (mut host, mut process) = machine();
    let mut requests = Requests::new();
    let (mut parked, mut refused, mut most) = (0, 0, 0);
    for port in 0..10_000u16 {
        let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
        write_name(&mut host, [0; 4], 1 + port);
        match process.call(&mut host, &registers(nr::bind, &[fd, ADDRESS, 16])) {
            Outcome::Park(_) => parked += 1,
            Outcome::Go { registers, .. } => {
                assert_eq!(registers.rax, ENOBUFS.rax());
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
        let asked = process.system.take_requests();
        asked.into_iter().for_each(|request| requests.put(request));
        most = most.max(requests.count());
    }
    assert_eq!((parked, refused), (96, 10_000 - 96), "S2");
    // A request whose socket is closed before the thread has taken it is dropped.
    assert_eq!(most, 96, "S2: {most} requests wait");
    // A payer with one request is among the first.
    let payer = Payer::Tree(99);
    let what = Ask::Listen(1);
    let (link, style) = (u64::MAX, Style::Stream);
    requests.put(Request { link, payer, what });
    let first = requests.take(2);
    assert!(first.iter().any(|request| request.payer == payer));
    // Once the thread has closed all, the share is free again.
    let rest = requests.take(usize::MAX);
    for Request { link, what, .. } in first.into_iter().chain(rest) {
        if what == Ask::Close {
            process.says(link, Said::Closed);
        }
    }
    assert_eq!(process.system.counted_things(Thing::Outside), 0);
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    let port = 7;
    write_name(&mut host, [0; 4], port);
    let request = process.asks(&mut host, nr::bind, &[fd, ADDRESS, 16]);
    assert_eq!(request.what, Ask::Bind { style, port });
    process.close_all(&mut host);
    process.asked();
    assert_eq!(process.system.counted_things(Thing::Outside), 0);
}

/// Requests of one payer are taken in their order, and payers in turn.
#[test]
fn requests_of_payers_are_taken_in_turn() {
    let mut requests = Requests::new();
    for (tree, count) in [(1, 5), (2, 1), (3, 3)] {
        for number in 0..count {
            let (link, payer) = (10 * u64::from(tree) + number, Payer::Tree(tree));
            let what = Ask::Listen(0);
            requests.put(Request { link, payer, what });
        }
    }
    let mut taken = Vec::new();
    for most in [2, 1, 4, 9] {
        taken.extend(requests.take(most).into_iter().map(|request| request.link));
    }
    assert_eq!(taken, [10, 20, 30, 11, 31, 12, 32, 13, 14]);
    assert_eq!(requests.count(), 0);
}

/// A socket that is bound and has no connection to another machine is saved, and bound again at the restore, which
/// fails if another program has the port.
#[test]
fn ports_are_taken_again_after_a_restore() {
    for taken in [false, true] {
        let (mut host, mut process) = machine();
        let (fd, _) = listening(&mut host, &mut process);
        process.asked();
        let saved = process.save(&mut host).unwrap();
        process.close_all(&mut host);
        process.asked();
        assert!(process.system.has_no_sockets());
        let adopted = One::adopt_with(&saved, &mut host, &mut |system| {
            for Request { link, what, .. } in system.take_requests() {
                let said = match what {
                    Ask::Bind { port: 7, .. } if taken => Said::Failed(Error::Exists),
                    Ask::Bind { port: 7, .. } => Said::Bound(here()),
                    other => panic!("{other:?}"),
                };
                system.answered(Answer { link, said });
            }
        });
        let mut process = match (adopted, taken) {
            (Ok(process), false) => process,
            (Err(sentence), true) => {
                assert!(sentence.contains("port 7"), "{sentence}");
                continue;
            }
            (adopted, _) => panic!("{:?}", adopted.err()),
        };
        let request = process.system.take_requests().remove(0);
        assert_eq!(request.what, Ask::Listen(4));
        process.says(request.link, Said::Listening);
        let Some(Ask::Accept { next }) = process.asked().pop() else {
            panic!("it takes no connections");
        };
        process.says(request.link, Said::Came(next, (OTHER.0, 5000), here()));
        assert!(process.result(&mut host, nr::accept4, &[fd, 0, 0, 0o4000]) > 0);
        process.close_all(&mut host);
        assert!(process.system.has_no_sockets());
    }
}

/// The links for which the network's thread has a socket.
#[derive(Default)]
struct Has {
    open: BTreeSet<Link>,
    /// Links that were closed: what was asked for them before is not begun.
    closed: BTreeSet<Link>,
}

impl Has {
    /// Notes what the thread says of a link.
    fn says(&mut self, link: Link, said: &Said) {
        match said {
            Said::Closed => {
                self.open.remove(&link);
                self.closed.insert(link);
            }
            Said::Bound(_) | Said::Begun(..) if !self.closed.contains(&link) => {
                self.open.insert(link);
            }
            Said::Came(next, ..) => {
                self.open.insert(*next);
            }
            // The thread closes a socket whose request has failed.
            Said::Failed(_) | Said::Nowhere | Said::Silence | Said::Down => {
                self.open.remove(&link);
            }
            _ => {}
        }
    }
}

/// Random calls of a program, and random answers of the network in random order: nothing panics, queues are bounded,
/// and nothing is left, neither here nor in the network's thread.
#[test]
fn wild_networks_leave_nothing() {
    for seed in 0..80 {
        let mut random = Rng::with_seed(seed);
        let (mut host, mut process) = machine();
        let mut open: Vec<Request> = Vec::new();
        let mut thread = Has::default();
        let places: [([u8; 4], u16); 5] = [
            ([10, 0, 3, 2], 80),
            ([127, 0, 0, 1], 7),
            ([0; 4], 7),
            ([0; 4], 0),
            ([10, 0, 3, 1], 9),
        ];
        for _ in 0..400 {
            let fd = random.u64(4..16);
            let (address, port) = places[random.usize(..5)];
            write_name(&mut host, address, port);
            let (number, arguments): (u64, &[u64]) = match random.u32(..14) {
                0 | 1 => (nr::socket, &[2, random.u64(1..3) | 0o4000, 0]),
                2 | 3 => (nr::bind, &[fd, ADDRESS, 16]),
                4 => (nr::listen, &[fd, 3]),
                5 | 6 => (nr::connect, &[fd, ADDRESS, 16]),
                7 => (nr::accept4, &[fd, 0, 0, 0o4000]),
                8 => (nr::close, &[fd]),
                9 => (nr::shutdown, &[fd, random.u64(..3)]),
                10 => (nr::sendto, &[fd, BYTES, 1000, 0x4000, ADDRESS, 16]),
                11 => (nr::sendto, &[fd, BYTES, 3000, 0x4000, 0, 0]),
                12 => (nr::recvfrom, &[fd, BYTES, 900, 0, 0, 0]),
                _ => (nr::dup2, &[fd, random.u64(4..16)]),
            };
            let outcome = process.call(&mut host, &registers(number, arguments));
            let waits = matches!(&outcome, Outcome::Park(wake) if wake.firm);
            assert!(
                waits || matches!(outcome, Outcome::Go { .. }),
                "{outcome:?}"
            );
            open.extend(process.system.take_requests());
            while !open.is_empty() && random.u32(..4) > 0 {
                let Request { link, what, .. } = open.swap_remove(random.usize(..open.len()));
                let said = match (random.u32(..12), what) {
                    // These have only one answer.
                    (_, Ask::Finish(_) | Ask::Close | Ask::Abort) => Said::Closed,
                    (0, _) => Said::Down,
                    (1, _) => Said::Failed(Error::Exists),
                    (2 | 5 | 6, Ask::Write(_) | Ask::Send(..)) => Said::Unsent(Error::Reset),
                    (2, _) => Said::Nowhere,
                    (3, _) => Said::Failed(Error::Reset),
                    (4..8, Ask::Bind { .. }) => Said::Bound(Here::default()),
                    (_, Ask::Look) if !thread.open.contains(&link) => Said::Failed(Error::Broken),
                    (_, Ask::Bind { .. } | Ask::Look) => Said::Bound(here()),
                    (n, Ask::Connect(_)) if n % 2 == 0 => Said::Begun(50_000, here()),
                    (_, Ask::Connect(_)) => {
                        let begun = Said::Begun(50_000, here());
                        thread.says(link, &begun);
                        process.says(link, begun);
                        Said::Connected
                    }
                    (_, Ask::Listen(_)) => Said::Listening,
                    (_, Ask::Accept { next }) => Said::Came(next, (OTHER.0, 5000), here()),
                    (4..=6, Ask::Read(_)) => Said::Read(Vec::new()),
                    (_, Ask::Read(most)) => Said::Read(vec![7; random.usize(1..=most)]),
                    (_, Ask::Receive) => Said::Received(OTHER, vec![7; random.usize(..1472)]),
                    (_, Ask::Write(_) | Ask::Send(..) | Ask::Shut) => Said::Written,
                    (_, Ask::Card) => Said::Card(Card::default()),
                };
                thread.says(link, &said);
                process.says(link, said);
                open.extend(process.system.take_requests());
            }
            assert!(process.system.sockets_are_bounded(), "seed {seed}");
        }
        process.close_all(&mut host);
        open.extend(process.system.take_requests());
        for Request { link, what, .. } in &open {
            if matches!(what, Ask::Finish(_) | Ask::Close | Ask::Abort) {
                thread.says(*link, &Said::Closed);
                process.says(*link, Said::Closed);
            }
        }
        assert_eq!(process.asked(), [], "seed {seed}");
        let rule = "S2: whatever the thread has it was told to close";
        assert!(
            thread.open.is_empty(),
            "seed {seed}: {rule}: {:?}",
            thread.open
        );
        assert!(process.system.has_no_sockets(), "seed {seed}");
        assert_eq!(process.system.outside.count(), 0, "seed {seed}");
        assert_eq!(process.system.counted_things(Thing::Outside), 0);
        // An answer that nobody waits for has no effect.
        for Request { link, .. } in open {
            process.says(link, Said::Connected);
        }
        assert!(!matches!(process.system.stage(1), Some(Stage::Connected)));
    }
}
