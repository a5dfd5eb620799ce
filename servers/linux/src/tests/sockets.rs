//! Sockets: what an image can have of them, whatever other programs do, and how calls that wait for them end.

use super::*;
use crate::outside::{Answer, Ask, Here, Link, Said};
use crate::socket::mapped;
use proto::Error;
use std::format;

const NAME: u64 = 0x10_0000;
const MESSAGE: u64 = 0x10_0400;
const BYTES: u64 = 0x10_1000;
const STREAM: u64 = 1 | 0o4000;
const DATAGRAM: u64 = 2 | 0o4000;
const PACKETS: u64 = 5 | 0o4000;
/// `MSG_TRUNC`: the call returns the whole length of a message.
const TRUNC: u64 = 0x20;
/// `MSG_NOSIGNAL`.
const NOSIGNAL: u64 = 0x4000;

/// An error as a call returns it.
fn rax(errno: Errno) -> i64 {
    errno.rax() as i64
}

/// A task of another tree, with the memory of [`example`].
fn stranger(process: &mut One) -> Task {
    let pid = process.system.create(None).unwrap();
    let task = Task::new(pid, "/tmp".to_string());
    task.shares.memory.borrow_mut().areas = process.memory().areas.clone();
    task
}

/// Writes an IPv4 address and port to [`NAME`].
fn write_port(host: &mut Fake, address: [u8; 4], port: u16) {
    let name = [&[2, 0][..], &port.to_be_bytes(), &address, &[0; 8]].concat();
    host.write_memory(NAME, &name).unwrap();
}

impl One {
    /// A socket at port 7,000 of the loopback, and one that is connected to it.
    fn ports(&mut self, host: &mut Fake, style: u64) -> [u64; 2] {
        write_port(host, [127, 0, 0, 1], 7000);
        let [bound, other] = [0, 1].map(|_| self.result(host, nr::socket, &[2, style, 0]) as u64);
        assert_eq!(self.result(host, nr::bind, &[bound, NAME, 16]), 0);
        if style & 0xf == 2 {
            assert_eq!(self.result(host, nr::connect, &[other, NAME, 16]), 0);
            return [bound, other];
        }
        assert_eq!(self.result(host, nr::listen, &[bound, 3]), 0);
        let connect = self.result(host, nr::connect, &[other, NAME, 16]);
        assert!([0, rax(EINPROGRESS)].contains(&connect), "{connect}");
        let end = self.result(host, nr::accept4, &[bound, 0, 0, style & 0o4000]);
        assert_eq!(self.result(host, nr::close, &[bound]), 0);
        [end as u64, other]
    }

    /// Sends so many bytes in one message, from ranges that are all the same page.
    fn sends(&mut self, host: &mut Fake, fd: u64, length: u64) -> i64 {
        let mut ranges: Vec<u64> = [BYTES, PAGE].repeat((length / PAGE) as usize);
        ranges.extend([BYTES, length % PAGE]);
        words(
            host,
            MESSAGE,
            &[0, 0, MESSAGE + 0x80, ranges.len() as u64 / 2, 0, 0, 0],
        );
        words(host, MESSAGE + 0x80, &ranges);
        self.result(host, nr::sendmsg, &[fd, MESSAGE, NOSIGNAL])
    }

    /// Takes the next message, and returns its length.
    fn takes(&mut self, host: &mut Fake, fd: u64) -> i64 {
        self.result(host, nr::recvfrom, &[fd, BYTES, 1, TRUNC, 0, 0])
    }

    fn hears(&mut self, link: Link, said: Said) {
        self.system.answered(Answer { link, said });
    }

    /// The requests that the network's thread is to take.
    fn asks_for(&mut self) -> Vec<(Link, Ask)> {
        let requests = self.system.take_requests().into_iter();
        requests.map(|one| (one.link, one.what)).collect()
    }
}

/// Every name that a program can bind can be in an image.
#[test]
fn names_are_as_long_as_an_image_can_have_them() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for length in 108..=128 {
        let mut name = vec![b'n'; length as usize];
        name[..3].copy_from_slice(&[1, 0, 0]);
        host.write_memory(NAME, &name).unwrap();
        let [one, other] = [0, 1].map(|_| process.result(&mut host, nr::socket, &[1, DATAGRAM, 0]));
        let [one, other] = [one, other].map(|fd| fd as u64);
        let expected = if length <= 110 { 0 } else { rax(EINVAL) };
        for (number, fd) in [(nr::bind, one), (nr::connect, other)] {
            let done = process.result(&mut host, number, &[fd, NAME, length]);
            assert_eq!(done, expected, "{length}");
        }
        let send = [other, BYTES, 1, 0, NAME, length];
        let sent = process.result(&mut host, nr::sendto, &send);
        assert_eq!(sent, if length <= 110 { 1 } else { expected });
    }
    let saved = process.save(&mut host).expect("A6: what runs can be saved");
    process.close_all(&mut host);
    One::adopt(&saved, 0, &mut host).expect("A6: and restored");
}

/// A socket that is bound to a name, which is at [`NAME`] afterwards.
fn named(one: &mut One, host: &mut Fake, kind: u64) -> u64 {
    host.write_memory(NAME, b"\x01\0\0server").unwrap();
    let bound = one.result(host, nr::socket, &[1, kind, 0]) as u64;
    assert_eq!(one.result(host, nr::bind, &[bound, NAME, 9]), 0);
    bound
}

/// A connection counts for the program that has connected until it is accepted, so a server may have more waiting
/// connections than its share of sockets. An image has them all; as many as the share allows are restored, the first
/// ones.
#[test]
fn connections_that_strangers_left_are_no_reason_to_refuse_an_image() {
    let mut host = Fake::new();
    let mut server = example(&mut host);
    let mut other = stranger(&mut server);
    let bound = named(&mut server, &mut host, STREAM);
    assert_eq!(server.result(&mut host, nr::listen, &[bound, 128]), 0);
    let own = 200;
    for _ in 1..own {
        assert!(server.result(&mut host, nr::socket, &[1, STREAM, 0]) > 0);
    }
    for n in 0..129 {
        let mut ask = |host: &mut Fake, number, arguments: &[u64]| {
            returns(
                &mut other,
                &mut server.system,
                host,
                &registers(number, arguments),
            )
        };
        let fd = ask(&mut host, nr::socket, &[1, STREAM, 0]) as u64;
        assert_eq!(ask(&mut host, nr::connect, &[fd, NAME, 9]), 0);
        host.write_memory(BYTES, &[n]).unwrap();
        assert_eq!(ask(&mut host, nr::write, &[fd, BYTES, 1]), 1);
        assert_eq!(ask(&mut host, nr::close, &[fd]), 0);
    }
    let rule = "A6: others do not make an image that cannot be restored";
    let saved = server.save(&mut host).expect(rule);
    server.close_all(&mut host);
    let mut again = One::adopt(&saved, 0, &mut host).expect(rule);
    assert_eq!(
        again.system.counted_things(Thing::Socket),
        256,
        "S2: its share"
    );
    for n in 0..256 - own {
        let fd = again.result(&mut host, nr::accept4, &[bound, 0, 0, 0]);
        assert_eq!(again.result(&mut host, nr::read, &[fd as u64, BYTES, 9]), 1);
        let mut byte = [0];
        host.read_memory(BYTES, &mut byte).unwrap();
        assert_eq!(u64::from(byte[0]), n, "those that came first");
    }
    let none = again.result(&mut host, nr::accept4, &[bound, 0, 0, 0]);
    assert_eq!(none, rax(EAGAIN));
    again.close_all(&mut host);
    assert!(again.system.has_no_sockets());
}

/// Descriptors on their way count for their sender. A tree that has more of them than its own share is not saved, with
/// a sentence, for its image could not be restored.
#[test]
fn what_is_too_much_for_an_image_is_refused_when_a_large_tree_is_saved() {
    let mut host = Fake::new();
    let mut server = example(&mut host);
    named(&mut server, &mut host, DATAGRAM);
    // More than is read again at once.
    for _ in 0..2 {
        let [one, _] = socket_pair(&mut server, &mut host, STREAM);
        while server.result(&mut host, nr::write, &[one, BYTES, 0x1000]) > 0 {}
    }
    assert!(server.save(&mut host).unwrap().len() > 100_000);
    host.write_memory(NAME, b"\x01\0\0server").unwrap();
    for _ in 0..2 {
        let mut other = stranger(&mut server);
        let mut ask = |host: &mut Fake, number, arguments: &[u64]| {
            returns(
                &mut other,
                &mut server.system,
                host,
                &registers(number, arguments),
            )
        };
        let fd = ask(&mut host, nr::socket, &[1, DATAGRAM, 0]) as u64;
        let file = ask(&mut host, nr::epoll_create1, &[0]) as u64;
        assert_eq!(ask(&mut host, nr::connect, &[fd, NAME, 9]), 0);
        words(
            &mut host,
            MESSAGE,
            &[0, 0, MESSAGE + 0x80, 1, MESSAGE + 0x100, 416, 0],
        );
        words(&mut host, MESSAGE + 0x80, &[BYTES, 1]);
        words(&mut host, MESSAGE + 0x100, &[416, 1 | 1 << 32]);
        words(&mut host, MESSAGE + 0x110, &[file | file << 32; 50]);
        for _ in 0..2 {
            assert_eq!(ask(&mut host, nr::sendmsg, &[fd, MESSAGE, NOSIGNAL]), 1);
        }
        other.close_files(&mut server.system, &mut host);
    }
    // There are 400 in all.
    match server.save(&mut host) {
        Err(part::Refusal::Because(sentence)) => {
            assert!(
                sentence.contains("400 descriptors on their way"),
                "{sentence}"
            );
        }
        other => panic!("A6: an image that cannot be restored: {other:?}"),
    }
}

/// However many large sockets an image has, no more are restored as large ones than the share allows, and nothing that
/// is in them is lost.
#[test]
fn restored_sockets_are_not_larger_than_others() {
    let mut host = Fake::new();
    let mut server = example(&mut host);
    let bound = named(&mut server, &mut host, STREAM);
    assert_eq!(server.result(&mut host, nr::listen, &[bound, 128]), 0);
    let mut last = 0;
    for _ in 0..4 {
        let mut other = stranger(&mut server);
        for _ in 0..15 {
            let mut ask = |host: &mut Fake, number, arguments: &[u64]| {
                returns(
                    &mut other,
                    &mut server.system,
                    host,
                    &registers(number, arguments),
                )
            };
            let fd = ask(&mut host, nr::socket, &[1, STREAM, 0]) as u64;
            assert_eq!(ask(&mut host, nr::connect, &[fd, NAME, 9]), 0);
            for _ in 0..5 {
                assert_eq!(ask(&mut host, nr::write, &[fd, BYTES, 0x1000]), 0x1000);
            }
            last = server.result(&mut host, nr::accept4, &[bound, 0, 0, 0o4000]) as u64;
        }
        other.close_files(&mut server.system, &mut host);
    }
    let large = |one: &One| {
        one.system
            .sockets
            .all()
            .filter(|(_, s)| s.longest() > 30_000)
            .count()
    };
    assert!(large(&server) > 60);
    let saved = server.save(&mut host).unwrap();
    server.close_all(&mut host);
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(large(&again), 32, "S2: an image has no more than its share");
    assert!(again.system.sockets_are_bounded());
    let mut read = 0;
    while let got @ 1.. = again.result(&mut host, nr::read, &[last, BYTES, 0x1000]) {
        read += got;
    }
    assert_eq!(read, 5 * 0x1000, "A6: nothing is lost");
    // The restored tree can be saved again.
    let saved = again.save(&mut host).unwrap();
    again.close_all(&mut host);
    One::adopt(&saved, 0, &mut host).unwrap();
}

/// `sendfile` to a socket with messages sends messages, none longer than there is room for.
#[test]
fn a_file_is_sent_in_messages() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let ino = process.files().get(4).unwrap().ino().unwrap();
    for part in 0..2 {
        host.session
            .write(ino, part * 50_000, &[7; 50_000])
            .unwrap();
    }
    let file = |process: &mut One, host: &mut Fake, fd: u64, count: u64| {
        words(host, MESSAGE, &[0]);
        process.result(host, nr::sendfile, &[fd, 4, MESSAGE, count])
    };
    // The socket is not connected.
    let alone = process.result(&mut host, nr::socket, &[2, DATAGRAM, 0]) as u64;
    assert_eq!(file(&mut process, &mut host, alone, 10), rax(EDESTADDRREQ));
    let alone = process.result(&mut host, nr::socket, &[1, DATAGRAM, 0]) as u64;
    assert_eq!(file(&mut process, &mut host, alone, 10), rax(ENOTCONN));
    let [to, from] = process.ports(&mut host, DATAGRAM);
    for count in [100, 5000, 60_000, 65_507] {
        assert_eq!(file(&mut process, &mut host, from, count), count as i64);
        assert_eq!(process.takes(&mut host, to), count as i64, "it is there");
    }
    assert_eq!(
        process.sends(&mut host, from, 5),
        5,
        "nothing is wrong then"
    );
    assert_eq!(process.takes(&mut host, to), 5);
    for fd in [to, from] {
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }
    // A nonblocking call sends what there is room for; a blocking one goes on when there is more room.
    let [to, from] = socket_pair(&mut process, &mut host, STREAM);
    let blocks = [from, u64::from(linux::F_SETFL), 0];
    assert_eq!(process.result(&mut host, nr::fcntl, &blocks), 0);
    // So that there is room for a part of a piece.
    assert_eq!(process.sends(&mut host, from, 5), 5);
    words(&mut host, MESSAGE, &[0]);
    let entry = registers(nr::sendfile, &[from, 4, MESSAGE, 100_000]);
    let drain = |process: &mut One, host: &mut Fake, fd: u64| {
        let bytes = [
            fd,
            BYTES,
            4096,
            u64::from(linux_raw_sys::net::MSG_DONTWAIT),
            0,
            0,
        ];
        let next = || Some(process.result(host, nr::recvfrom, &bytes)).filter(|came| *came > 0);
        core::iter::from_fn(next).sum::<i64>()
    };
    let (mut taken, mut waits) = (0, 0);
    let sent = loop {
        match process.call(&mut host, &entry) {
            Outcome::Park(_) => waits += 1,
            Outcome::Go { registers, .. } => break registers.rax,
            outcome => panic!("{outcome:?}"),
        }
        assert!(waits < 50, "it goes on");
        let wait = process.task.wait;
        taken += drain(&mut process, &mut host, to);
        process.task.wait = wait;
    };
    taken += drain(&mut process, &mut host, to);
    assert_eq!(
        (sent, taken, waits > 0),
        (100_000, 100_005, true),
        "all of it"
    );
    for fd in [to, from] {
        process.result(&mut host, nr::close, &[fd]);
    }
    for style in [DATAGRAM, PACKETS] {
        let [to, from] = socket_pair(&mut process, &mut host, style);
        assert_eq!(file(&mut process, &mut host, from, 100), 100);
        assert_eq!(process.takes(&mut host, to), 100);
        let sent = file(&mut process, &mut host, from, 100_000);
        assert_eq!(process.takes(&mut host, to), sent, "one message");
        assert!(sent >= 0x1_0000, "{sent}");
    }
    // A program that takes a short count for a full queue waits for room.
    let [to, from] = socket_pair(&mut process, &mut host, STREAM);
    let epoll = process.result(&mut host, nr::epoll_create1, &[0]) as u64;
    // EPOLLOUT, by edges.
    words(&mut host, MESSAGE, &[1 << 31 | 4]);
    let add = [epoll, 1, from, MESSAGE];
    assert_eq!(process.result(&mut host, nr::epoll_ctl, &add), 0);
    let edges = |process: &mut One, host: &mut Fake| {
        process.result(host, nr::epoll_wait, &[epoll, MESSAGE, 4, 0])
    };
    assert_eq!(edges(&mut process, &mut host), 1);
    assert_eq!(process.sends(&mut host, from, 5), 5);
    let sent = file(&mut process, &mut host, from, 100_000);
    assert!((1..100_000).contains(&sent), "{sent}");
    edges(&mut process, &mut host);
    while process.takes(&mut host, to) > 0 {}
    assert_eq!(
        edges(&mut process, &mut host),
        1,
        "S1: who waits for room is told"
    );
    process.result(&mut host, nr::close, &[epoll]);
    // Sockets beyond the first ones have smaller queues.
    while process.system.counted_things(Thing::Socket) < 60 {
        process.result(&mut host, nr::socket, &[1, DATAGRAM, 0]);
    }
    // A datagram that does not fit is lost, which is not an error of the sender.
    let [to, from] = process.ports(&mut host, DATAGRAM);
    assert_eq!(process.sends(&mut host, from, 20_000), 20_000);
    assert_eq!(process.takes(&mut host, to), rax(EAGAIN));
    assert_eq!(process.sends(&mut host, from, 5), 5);
    assert_eq!(process.takes(&mut host, to), 5);
    for style in [DATAGRAM, PACKETS] {
        let [to, from] = socket_pair(&mut process, &mut host, style);
        let sent = file(&mut process, &mut host, from, 100_000);
        assert!(
            process.system.sockets_are_bounded(),
            "S2: a queue has an end"
        );
        assert_eq!(process.takes(&mut host, to), sent);
        assert!((1..=8 << 10).contains(&sent), "{sent}");
    }
}

/// The longest datagram of UDP fits into a queue.
#[test]
fn the_longest_datagram_goes_over_the_loopback() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [to, from] = process.ports(&mut host, DATAGRAM);
    for length in [65_408, 65_409, 65_507] {
        assert_eq!(process.sends(&mut host, from, length), length as i64);
        assert_eq!(process.takes(&mut host, to), length as i64);
    }
    assert_eq!(process.sends(&mut host, from, 65_508), rax(EMSGSIZE));
}

/// Reading no bytes takes no message, and `writev` of no bytes sends none; `write` of no bytes sends an empty message.
#[test]
fn nothing_is_read_and_written() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    words(&mut host, MESSAGE, &[BYTES, 0]);
    for style in [STREAM, DATAGRAM, PACKETS] {
        let [to, from] = socket_pair(&mut process, &mut host, style);
        let mut nothing = |number, fd, at, count| {
            let done = process.result(&mut host, number, &[fd, at, count]);
            assert_eq!(done, 0, "{number} {style}");
        };
        for _ in 0..2 {
            nothing(nr::read, to, BYTES, 0);
            nothing(nr::readv, to, MESSAGE, 1);
            nothing(nr::readv, to, MESSAGE, 0);
            nothing(nr::writev, from, MESSAGE, 1);
            nothing(nr::writev, from, MESSAGE, 0);
        }
        let empty = process.result(&mut host, nr::read, &[to, BYTES, 9]);
        assert_eq!(empty, rax(EAGAIN), "{style}");
        assert_eq!(process.result(&mut host, nr::write, &[from, BYTES, 3]), 3);
        for (number, at, count) in [(nr::read, BYTES, 0), (nr::readv, MESSAGE, 1)] {
            assert_eq!(process.result(&mut host, number, &[to, at, count]), 0);
        }
        assert_eq!(process.result(&mut host, nr::read, &[to, BYTES, 9]), 3);
        assert_eq!(process.result(&mut host, nr::write, &[from, BYTES, 0]), 0);
        let expected = if style == STREAM { rax(EAGAIN) } else { 0 };
        let found = process.result(&mut host, nr::read, &[to, BYTES, 9]);
        assert_eq!(found, expected, "a message without a byte");
    }
}

/// A process with bound names and an open FIFO is restored where those files do not exist; if the restore fails, no
/// file is left.
#[test]
fn names_and_fifos_are_made_where_they_are_not() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(NAME, b"/tmp/a/fifo\0").unwrap();
    host.write_memory(MESSAGE, b"/tmp/a\0").unwrap();
    assert_eq!(process.result(&mut host, nr::mkdir, &[MESSAGE, 0o755]), 0);
    assert_eq!(
        process.result(&mut host, nr::mknod, &[NAME, 0o010_666, 0]),
        0
    );
    let ends = [0o4000, 1].map(|how| process.result(&mut host, nr::open, &[NAME, how]));
    let [reads, writes] = ends.map(|fd| fd as u64);
    assert_eq!(process.result(&mut host, nr::write, &[writes, BYTES, 5]), 5);
    let mut bound = Vec::new();
    for name in [&b"\x01\0/tmp/a/b"[..], b"\x01\0/tmp/c/d"] {
        if name.ends_with(b"d") {
            host.write_memory(MESSAGE, b"/tmp/c\0").unwrap();
            assert_eq!(process.result(&mut host, nr::mkdir, &[MESSAGE, 0o755]), 0);
        }
        host.write_memory(NAME, name).unwrap();
        let fd = process.result(&mut host, nr::socket, &[1, STREAM, 0]) as u64;
        let bind = [fd, NAME, name.len() as u64];
        assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
        assert_eq!(process.result(&mut host, nr::listen, &[fd, 3]), 0);
        bound.push(fd);
    }
    let saved = process.save(&mut host).unwrap();
    // Another machine, in which another file has one of the names.
    let mut host = Fake::new();
    drop(example(&mut host));
    host.session.mkdir(0o755, "/tmp/c").unwrap();
    add_executable(&mut host, "/tmp/c/d", b"something");
    let opens = host.opens;
    let refused = One::adopt(&saved, 0, &mut host).unwrap_err();
    assert!(refused.contains("/tmp/c/d"), "{refused}");
    for path in ["/tmp/a/fifo", "/tmp/a/b"] {
        let found = host.session.open_file(0, 0, path).map(|_| ());
        assert_eq!(found, Err(Error::NotFound), "what was made is gone: {path}");
    }
    assert_eq!(host.opens, opens, "and closed");
    // Empty files that have the names are what they were if the restore fails.
    for name in ["/tmp/a/fifo", "/tmp/a/b"] {
        add_executable(&mut host, name, b"");
    }
    let mut system = System::new();
    let pid = system.create(None).unwrap();
    let refused = part::adopt(&saved, (1, 0), 0, pid, &mut system, &mut host).unwrap_err();
    assert!(refused.contains("/tmp/c/d"), "{refused}");
    assert!(
        system.nodes.is_empty(),
        "somebody's files are FIFOs and names of sockets"
    );
    for name in ["/tmp/a/fifo", "/tmp/a/b", "/tmp/c/d"] {
        host.session.unlink(name).unwrap();
    }
    let mut again = One::adopt(&saved, 0, &mut host).expect("there is nothing in its way");
    assert_eq!(again.result(&mut host, nr::read, &[reads, BYTES, 99]), 5);
    host.write_memory(NAME, b"\x01\0/tmp/a/b").unwrap();
    let fd = again.result(&mut host, nr::socket, &[1, STREAM, 0]) as u64;
    assert_eq!(again.result(&mut host, nr::connect, &[fd, NAME, 10]), 0);
    let accept = [bound[0], 0, 0, 0];
    assert!(again.result(&mut host, nr::accept4, &accept) > 0);
    // The FIFO can be opened by its name.
    host.write_memory(NAME, b"/tmp/a/fifo\0").unwrap();
    let more = again.result(&mut host, nr::open, &[NAME, 1]) as u64;
    assert_eq!(again.result(&mut host, nr::write, &[more, BYTES, 3]), 3);
    assert_eq!(again.result(&mut host, nr::read, &[reads, BYTES, 99]), 3);
    // The other name is in a directory that the restore has made.
    let found = host
        .session
        .open_file(0, 0, "/tmp/c/d")
        .map(|(.., size)| size);
    assert_eq!(found, Ok(0));
}

/// A sender that waits for room at its peer is told when its socket is disconnected.
#[test]
fn who_waits_to_send_is_told_of_the_end_of_its_connection() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [_, from] = socket_pair(&mut process, &mut host, DATAGRAM);
    while process.result(&mut host, nr::write, &[from, BYTES, 0x1000]) > 0 {}
    assert_eq!(process.result(&mut host, nr::fcntl, &[from, 4, 0]), 0);
    let mut thread = thread_of(&mut process, &mut host);
    let write = registers(nr::write, &[from, BYTES, 0x1000]);
    let Outcome::Park(wake) = call(&mut thread, &mut process.system, &mut host, &write) else {
        panic!()
    };
    process.system.take_woken();
    host.write_memory(NAME, &[0; 16]).unwrap();
    assert_eq!(process.result(&mut host, nr::connect, &[from, NAME, 16]), 0);
    let woken = process.system.take_woken();
    let is_woken = woken.iter().any(|(key, _)| wake.keys.contains(key));
    assert!(is_woken, "it would wait for ever");
    let sent = returns(&mut thread, &mut process.system, &mut host, &write);
    assert_eq!(sent, rax(ENOTCONN));
}

/// Each of several messages is sent once, however late the file system answers for their names.
#[test]
fn messages_to_late_names_are_sent_once() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut receivers = Vec::new();
    for n in 0..3 {
        let name = format!("\u{1}\0/tmp/{n}");
        host.write_memory(NAME + 0x20 * n, name.as_bytes()).unwrap();
        let fd = process.result(&mut host, nr::socket, &[1, DATAGRAM, 0]) as u64;
        let bind = [fd, NAME + 0x20 * n, 8];
        assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
        receivers.push(fd);
        let header = [NAME + 0x20 * n, 8, MESSAGE + 0x200, 1, 0, 0, 0, 0];
        words(&mut host, MESSAGE + 64 * n, &header);
    }
    words(&mut host, MESSAGE + 0x200, &[BYTES, 3]);
    let fd = process.result(&mut host, nr::socket, &[1, DATAGRAM, 0]) as u64;
    host.late = Some(Late::new());
    let send = registers(nr::sendmmsg, &[fd, MESSAGE, 3, 0]);
    let mut attempts = 0;
    let sent = loop {
        match process.call(&mut host, &send) {
            Outcome::Park(_) => attempts += 1,
            Outcome::Go { registers, .. } => break registers.rax,
            outcome => panic!("{outcome:?}"),
        }
        assert!(attempts < 20, "it ends");
    };
    assert!(attempts > 2, "it has waited for each");
    host.late = None;
    assert_eq!(sent, 3);
    for fd in receivers {
        assert_eq!(process.takes(&mut host, fd), 3);
        let more = process.result(&mut host, nr::recvfrom, &[fd, BYTES, 1, 0, 0, 0]);
        assert_eq!(more, rax(EAGAIN), "A4: it is sent once");
    }
}

/// A call that has moved bytes returns their number, and the next call returns the error.
#[test]
fn who_was_cut_off_hears_of_it() {
    const WAITALL: u64 = 0x100;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    // The receiver reads what came before the reset.
    let [end, one] = process.ports(&mut host, STREAM);
    assert_eq!(process.result(&mut host, nr::write, &[one, BYTES, 1]), 1);
    assert_eq!(process.result(&mut host, nr::write, &[end, BYTES, 3]), 3);
    assert_eq!(process.result(&mut host, nr::close, &[end]), 0);
    let receive = [one, BYTES, 10, WAITALL, 0, 0];
    assert_eq!(process.result(&mut host, nr::recvfrom, &receive), 3);
    let told = process.result(&mut host, nr::recvfrom, &receive);
    assert_eq!(told, rax(ECONNRESET), "a reset is no end");
    assert_eq!(process.result(&mut host, nr::recvfrom, &receive), 0);
    // The sender sends more than there is room for.
    let [end, one] = process.ports(&mut host, 1);
    let send = [one, BYTES, 0x3000, NOSIGNAL, 0, 0];
    let mut full = 0;
    let outcome = loop {
        match process.call(&mut host, &registers(nr::sendto, &send)) {
            Outcome::Go { .. } => full += 1,
            outcome => break outcome,
        }
        assert!(full < 100);
    };
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let moved = process.task.wait.map_or(0, |wait| wait.progress) as i64;
    assert!(moved > 0);
    assert_eq!(process.result_beside(&mut host, nr::close, &[end]), 0);
    let mut send = |process: &mut One| process.result(&mut host, nr::sendto, &send);
    assert_eq!(send(&mut process), moved);
    assert_eq!(send(&mut process), rax(ECONNRESET), "a reset is told");
    assert_eq!(send(&mut process), rax(EPIPE));
}

/// 10.0.3.1 of a network of 24 bits.
fn here() -> Here {
    Here {
        addresses: vec![(mapped(0x0a00_0301), 24)],
        routes: false,
    }
}

/// A socket that was bound before the machine had an address reaches others once it has one.
#[test]
fn who_was_bound_before_there_was_an_address_reaches_others() {
    let mut host = Fake::new();
    host.network = true;
    let mut process = example(&mut host);
    let fd = process.result(&mut host, nr::socket, &[2, DATAGRAM, 0]) as u64;
    write_port(&mut host, [0; 4], 500);
    let parks = |process: &mut One, host: &mut Fake, number, arguments: &[u64]| {
        let outcome = process.call(host, &registers(number, arguments));
        assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
        let mut asked = process.asks_for();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    };
    let bind = [fd, NAME, 16];
    let (link, _) = parks(&mut process, &mut host, nr::bind, &bind);
    process.hears(link, Said::Bound(Here::default()));
    assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
    assert_eq!(process.asks_for(), [(link, Ask::Receive)]);
    write_port(&mut host, [10, 0, 3, 2], 80);
    let send = [fd, BYTES, 4, 0, NAME, 16];
    // There is no address yet: each call asks once.
    for _ in 0..2 {
        assert_eq!(
            parks(&mut process, &mut host, nr::sendto, &send),
            (link, Ask::Look)
        );
        process.hears(link, Said::Bound(Here::default()));
        assert_eq!(
            process.result(&mut host, nr::sendto, &send),
            rax(ENETUNREACH)
        );
    }
    assert_eq!(
        parks(&mut process, &mut host, nr::sendto, &send),
        (link, Ask::Look)
    );
    process.hears(link, Said::Bound(here()));
    assert_eq!(process.result(&mut host, nr::sendto, &send), 4);
    let to = (mapped(0x0a00_0302), 80);
    assert_eq!(process.asks_for(), [(link, Ask::Send(to, vec![0; 4]))]);
    process.hears(link, Said::Written);
    // The address is known from then on.
    assert_eq!(process.result(&mut host, nr::connect, &[fd, NAME, 16]), 0);
    assert_eq!(process.result(&mut host, nr::write, &[fd, BYTES, 4]), 4);
    assert_eq!(process.asks_for().len(), 1);
}

/// A connection to another machine is one line in `/proc/net/tcp`.
#[test]
fn a_connection_outside_is_listed_once() {
    let mut host = Fake::new();
    host.network = true;
    let mut process = example(&mut host);
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_port(&mut host, [10, 0, 3, 2], 80);
    let connect = registers(nr::connect, &[fd, NAME, 16]);
    assert!(matches!(
        process.call(&mut host, &connect),
        Outcome::Park(_)
    ));
    let link = process.asks_for()[0].0;
    process.hears(link, Said::Begun(50_000, here()));
    process.hears(link, Said::Connected);
    assert_eq!(process.result(&mut host, nr::connect, &[fd, NAME, 16]), 0);
    let list = opened_to_read(&mut process, &mut host, "/proc/net/tcp");
    let length = process.result(&mut host, nr::read, &[list, BYTES, 0x1000]);
    let mut text = vec![0; length as usize];
    host.read_memory(BYTES, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let own: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(own.len(), 1, "{text}");
    assert!(own[0].contains("0103000A:C350 0203000A:0050 01"), "{text}");
}

fn opened_to_read(process: &mut One, host: &mut Fake, path: &str) -> u64 {
    host.write_memory(MESSAGE, format!("{path}\0").as_bytes())
        .unwrap();
    process.result(host, nr::open, &[MESSAGE, 0]) as u64
}

/// The network's server ends while a connection is being made, and the next server makes what was asked for: the call
/// is told of the end, and the new socket is closed.
#[test]
fn what_comes_after_the_end_is_closed() {
    let mut host = Fake::new();
    host.network = true;
    let mut process = example(&mut host);
    for said in [Said::Begun(50_000, here()), Said::Bound(here())] {
        let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
        write_port(&mut host, [10, 0, 3, 2], 80);
        let connect = registers(nr::connect, &[fd, NAME, 16]);
        assert!(matches!(
            process.call(&mut host, &connect),
            Outcome::Park(_)
        ));
        let link = process.asks_for()[0].0;
        process.hears(link, Said::Down);
        process.hears(link, said);
        assert_eq!(
            process.asks_for(),
            [(link, Ask::Close)],
            "S2: nothing stays"
        );
        process.hears(link, Said::Closed);
        let told = process.result(&mut host, nr::connect, &[fd, NAME, 16]);
        assert_eq!(told, rax(ENETDOWN), "the call has an end");
    }
    process.close_all(&mut host);
    assert_eq!(process.system.counted_things(Thing::Outside), 0);
}

/// A second `listen`, after the first has failed, is reached from outside.
#[test]
fn who_listens_again_listens_outside() {
    let mut host = Fake::new();
    host.network = true;
    let mut process = example(&mut host);
    let fd = process.result(&mut host, nr::socket, &[2, STREAM, 0]) as u64;
    write_port(&mut host, [0; 4], 500);
    let (bind, listen) = ([fd, NAME, 16], [fd, 3]);
    let asks = |process: &mut One, host: &mut Fake, number, arguments: &[u64]| {
        let outcome = process.call(host, &registers(number, arguments));
        assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
        let mut asked = process.asks_for();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    };
    let (link, _) = asks(&mut process, &mut host, nr::bind, &bind);
    process.hears(link, Said::Bound(here()));
    assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
    let (link, what) = asks(&mut process, &mut host, nr::listen, &listen);
    assert!(matches!(what, Ask::Listen(_)));
    process.hears(link, Said::Failed(Error::Limit));
    assert_eq!(process.result(&mut host, nr::listen, &listen), rax(ENOBUFS));
    let (link, what) = asks(&mut process, &mut host, nr::listen, &listen);
    assert!(matches!(what, Ask::Bind { port: 500, .. }), "{what:?}");
    process.hears(link, Said::Bound(here()));
    let (link, what) = asks(&mut process, &mut host, nr::listen, &listen);
    assert!(matches!(what, Ask::Listen(_)));
    process.hears(link, Said::Listening);
    assert_eq!(process.result(&mut host, nr::listen, &listen), 0);
    let (.., what) = process.asks_for().remove(0);
    assert!(matches!(what, Ask::Accept { .. }), "{what:?}");
}

/// Of several sockets at one port a datagram reaches the one that is connected to its sender, else one that is not
/// connected; not one that is connected to somebody else.
#[test]
fn a_datagram_reaches_who_wants_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let socket = |process: &mut One, host: &mut Fake, port: u16, peer: u16| {
        let fd = process.result(host, nr::socket, &[2, DATAGRAM, 0]) as u64;
        host.write_memory(BYTES, &[1, 0, 0, 0]).unwrap();
        let share = [fd, 1, u64::from(linux_raw_sys::net::SO_REUSEADDR), BYTES, 4];
        assert_eq!(process.result(host, nr::setsockopt, &share), 0);
        write_port(host, [127, 0, 0, 1], port);
        assert_eq!(process.result(host, nr::bind, &[fd, NAME, 16]), 0);
        if peer > 0 {
            write_port(host, [127, 0, 0, 1], peer);
            assert_eq!(process.result(host, nr::connect, &[fd, NAME, 16]), 0);
        }
        fd
    };
    let friend = socket(&mut process, &mut host, 6000, 5000);
    let stranger = socket(&mut process, &mut host, 6001, 5000);
    let open = socket(&mut process, &mut host, 5000, 0);
    let faithful = socket(&mut process, &mut host, 5000, 6000);
    for (from, to, length) in [(friend, faithful, 3), (stranger, open, 4)] {
        assert_eq!(process.sends(&mut host, from, length), length as i64);
        let came = process.takes(&mut host, to);
        assert_eq!(
            came, length as i64,
            "S2: who is connected to the sender comes first"
        );
    }
}

/// What `accept` returns has none of the options of the socket that listens, but `SO_PASSCRED`.
#[test]
fn an_accepted_socket_has_its_own_options() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let listener = named(&mut process, &mut host, STREAM);
    words(&mut host, BYTES, &[0, 100_000]);
    let timeout = u64::from(linux_raw_sys::net::SO_RCVTIMEO);
    let set = [listener, 1, timeout, BYTES, 16];
    assert_eq!(process.result(&mut host, nr::setsockopt, &set), 0);
    assert_eq!(process.result(&mut host, nr::listen, &[listener, 3]), 0);
    let client = process.result(&mut host, nr::socket, &[1, STREAM, 0]) as u64;
    assert_eq!(
        process.result(&mut host, nr::connect, &[client, NAME, 9]),
        0
    );
    let end = process.result(&mut host, nr::accept4, &[listener, 0, 0, 0]) as u64;
    words(&mut host, MESSAGE, &[16]);
    let get = [end, 1, timeout, BYTES, MESSAGE];
    assert_eq!(process.result(&mut host, nr::getsockopt, &get), 0);
    let mut value = [1; 16];
    host.read_memory(BYTES, &mut value).unwrap();
    assert_eq!(value, [0; 16], "a timeout of accept is none of reads");
}

/// A FIFO is one for who has opened its name only, and cannot be cut.
#[test]
fn a_fifo_is_one_by_any_descriptor() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(NAME, b"/tmp/fifo\0").unwrap();
    let make = [NAME, 0o010_666, 0];
    assert_eq!(process.result(&mut host, nr::mknod, &make), 0);
    let name_only = u64::from(open_flags::PATH);
    let fd = process.result(&mut host, nr::open, &[NAME, name_only]) as u64;
    assert_eq!(process.result(&mut host, nr::fstat, &[fd, BYTES]), 0);
    let mut mode = [0; 4];
    host.read_memory(BYTES + 24, &mut mode).unwrap();
    let kind = u32::from_le_bytes(mode) & linux_raw_sys::general::S_IFMT;
    assert_eq!(kind, linux_raw_sys::general::S_IFIFO);
    let cut = process.result(&mut host, nr::truncate, &[NAME, 5]);
    assert_eq!(cut, rax(EINVAL));
}
