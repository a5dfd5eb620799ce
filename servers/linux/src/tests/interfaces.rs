//! Network interfaces by `ioctl`, by netlink and in files, against a simulated network.

use super::*;
use crate::interfaces::Interfaces;
use crate::outside::{Answer, Ask, Card, Here, Said};
use crate::socket::{mapped, Name};
use crate::wire::{u16_at, u32_at, Writer};
use alloc::format;
use linux_raw_sys::ioctl;
use linux_raw_sys::net::{AF_NETLINK, SOCK_DGRAM, SOCK_RAW};

const REQUEST: u64 = 0x10_0000;
const BYTES: u64 = 0x10_1000;
const ROOM: u64 = 0x2000;
const ADDRESS: u64 = 0x10_0400;
const LENGTH: u64 = 0x10_0500;

/// 10.0.2.15 of a network of 24 bits, a router, and an address of IPv6.
fn card() -> Card {
    Card {
        address: 0x5254_0012_3456,
        mtu: 1500,
        here: Here {
            addresses: vec![(mapped(0x0a00_020f), 24), (0xfe80 << 112 | 9, 64)],
            routes: true,
        },
        router: Some(mapped(0x0a00_0202)),
        counters: [7, 1, 8, 2],
    }
}

fn machine(has_network: bool) -> (Fake, One) {
    let mut host = Fake::new();
    host.network = has_network;
    let process = example(&mut host);
    (host, process)
}

/// A call that has waited for the card takes the answer that came, though another caller has asked again before it
/// runs.
#[test]
fn nobody_asks_the_answer_away_from_others() {
    let (mut host, mut process) = machine(true);
    let fd = process.netlink(&mut host);
    let entry = registers(nr::ioctl, &[fd, u64::from(ioctl::SIOCGIFCONF), REQUEST]);
    host.write_memory(REQUEST, &[0; 16]).unwrap();
    assert!(matches!(process.call(&mut host, &entry), Outcome::Park(_)));
    let asked = process.system.take_requests();
    let (link, said) = (asked[0].link, Said::Card(card()));
    process.system.answered(Answer { link, said });
    process.system.outside.ask_for_card();
    assert!(
        matches!(process.call(&mut host, &entry), Outcome::Go { .. }),
        "S1: others' questions keep a call waiting"
    );
}

impl One {
    /// The result of a call, where a request for the card is answered with `card()`. The call may ask once.
    fn told(&mut self, host: &mut Fake, number: u64, arguments: &[u64]) -> i64 {
        let registers = registers(number, arguments);
        let mut asked = 0;
        loop {
            match self.call(host, &registers) {
                Outcome::Go { registers, .. } => {
                    return registers.rax as i64;
                }
                Outcome::Park(wake) => {
                    assert!(wake.firm);
                    let requests = self.system.take_requests();
                    assert_eq!(requests.len(), 1);
                    assert_eq!(requests[0].what, Ask::Card);
                    asked += 1;
                    assert!(asked <= 1, "A2: a call asks for the card once");
                    let (link, said) = (requests[0].link, Said::Card(card()));
                    self.system.answered(Answer { link, said });
                }
                outcome => panic!("{outcome:?}"),
            }
        }
    }

    /// The result of an interface `ioctl`, and the 24 bytes that are behind the name afterwards.
    fn asked_of(&mut self, host: &mut Fake, fd: u64, what: u32, name: &str) -> (i64, Vec<u8>) {
        let raw = Writer::new().bytes(name.as_bytes()).pad_to(40).done();
        host.write_memory(REQUEST, &raw).unwrap();
        let result = self.told(host, nr::ioctl, &[fd, u64::from(what), REQUEST]);
        let mut back = [0; 40];
        host.read_memory(REQUEST, &mut back).unwrap();
        (result, back[16..].to_vec())
    }

    fn text(&mut self, host: &mut Fake, path: &str) -> Result<String, i64> {
        host.write_memory(REQUEST, format!("{path}\0").as_bytes())
            .unwrap();
        let fd = self.told(host, nr::open, &[REQUEST, 0]);
        if fd < 0 {
            return Err(fd);
        }
        let length = self.told(host, nr::read, &[fd as u64, BYTES, ROOM]);
        self.result(host, nr::close, &[fd as u64]);
        let mut text = vec![0; length as usize];
        host.read_memory(BYTES, &mut text).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    fn netlink(&mut self, host: &mut Fake) -> u64 {
        let arguments = [u64::from(AF_NETLINK), u64::from(SOCK_RAW) | 0o4000, 0];
        self.result(host, nr::socket, &arguments) as u64
    }

    /// Sends a request, and returns the result of `sendto`.
    fn requests(&mut self, host: &mut Fake, fd: u64, request: &[u8]) -> i64 {
        host.write_memory(BYTES, request).unwrap();
        let length = request.len() as u64;
        self.told(host, nr::sendto, &[fd, BYTES, length, 0, 0, 0])
    }

    /// The next message as it is received, or the error.
    fn next_answer(&mut self, host: &mut Fake, fd: u64) -> Result<Vec<u8>, i64> {
        let length = self.result(host, nr::recvfrom, &[fd, BYTES, ROOM, 0, 0, 0]);
        if length < 0 {
            return Err(length);
        }
        let mut bytes = vec![0; length as usize];
        host.read_memory(BYTES, &mut bytes).unwrap();
        Ok(bytes)
    }

    /// Sends a request and reads all answers: kind and body of each.
    fn answers(&mut self, host: &mut Fake, fd: u64, request: &[u8]) -> Vec<(u16, Vec<u8>)> {
        assert_eq!(self.requests(host, fd, request), request.len() as i64);
        let mut all = Vec::new();
        while let Ok(bytes) = self.next_answer(host, fd) {
            assert!(bytes.len() <= 4096, "glibc has room for no more");
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let length = u32_at(rest, 0) as usize;
                assert_eq!(u32_at(rest, 8), 77, "of this request");
                all.push((u16_at(rest, 4), rest[16..length].to_vec()));
                rest = &rest[length.next_multiple_of(4)..];
            }
        }
        all
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u32;
    let head = Writer::new().u32(length).u16(kind).u16(flags);
    head.u32(77).u32(0).bytes(body).done()
}

const GET: u16 = 1;
const DUMP: u16 = 0x301;
const LINK: u16 = 18;
const ADDRESSES: u16 = 22;
const ROUTES: u16 = 26;
const DONE: u16 = 3;
const ERROR: u16 = 2;

/// The value of the attribute `kind` in a body whose first `fixed` bytes are a header.
fn value(body: &[u8], fixed: usize, kind: u16) -> Option<&[u8]> {
    let mut rest = &body[fixed..];
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0));
        if u16_at(rest, 2) == kind {
            return Some(&rest[4..length]);
        }
        rest = &rest[length.next_multiple_of(4)..];
    }
    None
}

fn errno(error: Errno) -> i64 {
    error.rax() as i64
}

#[test]
fn interfaces_are_asked_for_by_ioctl() {
    let (mut host, mut process) = machine(true);
    let fd = process.result(&mut host, nr::socket, &[2, u64::from(SOCK_DGRAM), 0]) as u64;
    let mut ask = |what, name| process.asked_of(&mut host, fd, what, name);
    let four = |a: [u8; 4]| [&[2, 0, 0, 0][..], &a, &[0; 8]].concat();
    for (what, name, value) in [
        (ioctl::SIOCGIFADDR, "lo", four([127, 0, 0, 1])),
        (ioctl::SIOCGIFNETMASK, "lo", four([255, 0, 0, 0])),
        (ioctl::SIOCGIFBRDADDR, "lo", four([0; 4])),
        (ioctl::SIOCGIFADDR, "eth0", four([10, 0, 2, 15])),
        (ioctl::SIOCGIFADDR, "eth0:1", four([10, 0, 2, 15])),
        (ioctl::SIOCGIFNETMASK, "eth0", four([255, 255, 255, 0])),
        (ioctl::SIOCGIFBRDADDR, "eth0", four([10, 0, 2, 255])),
        (ioctl::SIOCGIFINDEX, "eth0", vec![2, 0, 0, 0]),
        (ioctl::SIOCGIFMTU, "eth0", vec![0xdc, 5, 0, 0]),
        (ioctl::SIOCGIFMTU, "lo", vec![0, 0, 1, 0]),
        (ioctl::SIOCGIFFLAGS, "lo", vec![0x49, 0]),
        (ioctl::SIOCGIFFLAGS, "eth0", vec![0x43, 0x10]),
        (
            ioctl::SIOCGIFHWADDR,
            "eth0",
            vec![1, 0, 0x52, 0x54, 0, 0x12, 0x34, 0x56],
        ),
        (ioctl::SIOCGIFHWADDR, "lo", vec![4, 3]),
    ] {
        let (result, back) = ask(what, name);
        assert_eq!((result, &back[..value.len()]), (0, &value[..]), "{what:x}");
    }
    assert_eq!(ask(ioctl::SIOCGIFMTU, "eth1").0, errno(ENODEV));
    assert_eq!(ask(ioctl::SIOCGIFMTU, "").0, errno(ENODEV));
    for what in [
        ioctl::SIOCSIFADDR,
        ioctl::SIOCSIFFLAGS,
        ioctl::SIOCADDRT,
        ioctl::SIOCSIFMTU,
    ] {
        let rule = "S1: no program changes an interface";
        assert_eq!(ask(what, "eth0").0, errno(EPERM), "{rule}");
    }
    assert_eq!(ask(0x8999, "lo").0, errno(ENOTTY));
    let wild = [fd, u64::from(ioctl::SIOCGIFMTU), 8];
    assert_eq!(process.told(&mut host, nr::ioctl, &wild), errno(EFAULT));
    // Names of interfaces by their numbers.
    for (index, result) in [(1, 0), (2, 0), (3, errno(ENODEV)), (-1, errno(ENODEV))] {
        let raw = Writer::new().pad_to(16).u32(index as u32).pad_to(40).done();
        host.write_memory(REQUEST, &raw).unwrap();
        let arguments = [fd, u64::from(ioctl::SIOCGIFNAME), REQUEST];
        assert_eq!(process.told(&mut host, nr::ioctl, &arguments), result);
    }
    let unix = process.result(&mut host, nr::socket, &[1, 1, 0]) as u64;
    let (of_all, _) = process.asked_of(&mut host, unix, ioctl::SIOCGIFINDEX, "lo");
    let (of_four, _) = process.asked_of(&mut host, unix, ioctl::SIOCGIFADDR, "lo");
    assert_eq!((of_all, of_four), (0, errno(ENOTTY)));
}

#[test]
fn a_list_of_interfaces_has_the_room_that_it_has() {
    let (mut host, mut process) = machine(true);
    let fd = process.result(&mut host, nr::socket, &[2, u64::from(SOCK_DGRAM), 0]) as u64;
    for (room, into, used) in [
        (0, 0, 80),
        (200, BYTES, 80),
        (79, BYTES, 40),
        (39, BYTES, 0),
        (-1, BYTES, errno(EINVAL)),
        (200, 8, errno(EFAULT)),
    ] {
        let raw = Writer::new().u32(room as u32).u32(0).u64(into).done();
        host.write_memory(REQUEST, &raw).unwrap();
        let arguments = [fd, u64::from(ioctl::SIOCGIFCONF), REQUEST];
        let result = process.told(&mut host, nr::ioctl, &arguments);
        let mut back = [0; 4];
        host.read_memory(REQUEST, &mut back).unwrap();
        match used {
            0.. => assert_eq!((result, back), (0, (used as u32).to_le_bytes())),
            error => assert_eq!(result, error),
        }
    }
    let mut first = [0; 24];
    host.read_memory(BYTES, &mut first).unwrap();
    assert_eq!(&first[..3], b"lo\0");
    assert_eq!(&first[16..], [2, 0, 0, 0, 127, 0, 0, 1]);
}

#[test]
fn netlink_tells_of_all_that_there_is() {
    let (mut host, mut process) = machine(true);
    let fd = process.netlink(&mut host);
    let links = process.answers(&mut host, fd, &request(LINK, DUMP, &[0]));
    let kinds: Vec<u16> = links.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [16, 16, DONE]);
    assert_eq!(value(&links[0].1, 16, 3), Some(&b"lo\0"[..]));
    assert_eq!(value(&links[1].1, 16, 3), Some(&b"eth0\0"[..]));
    let hardware = value(&links[1].1, 16, 1);
    assert_eq!(hardware, Some(&[0x52, 0x54, 0, 0x12, 0x34, 0x56][..]));
    assert_eq!(value(&links[1].1, 16, 23).map(<[u8]>::len), Some(192));
    for (family, count) in [(0, 4), (2, 2), (10, 2), (99, 4)] {
        let all = process.answers(&mut host, fd, &request(ADDRESSES, DUMP, &[family]));
        assert_eq!(all.len(), count + 1, "{family}");
        assert_eq!(all[count], (DONE, vec![0; 4]));
    }
    let four = process.answers(&mut host, fd, &request(ADDRESSES, DUMP, &[2]));
    assert_eq!(four[1].1[..8], [2, 24, 0x80, 0, 2, 0, 0, 0]);
    assert_eq!(value(&four[1].1, 8, 2), Some(&[10, 0, 2, 15][..]));
    let routes = process.answers(&mut host, fd, &request(ROUTES, DUMP, &[2]));
    let main: Vec<_> = routes
        .iter()
        .filter(|(_, body)| body.get(4) == Some(&254))
        .collect();
    assert_eq!(main.len(), 2);
    assert_eq!(value(&main[0].1, 12, 5), Some(&[10, 0, 2, 2][..]));
    assert_eq!(value(&main[1].1, 12, 1), Some(&[10, 0, 2, 0][..]));
}

/// Requests for one interface or one route, for what does not exist, and for what no program may do.
#[test]
fn netlink_answers_single_requests_and_refuses_others() {
    let (mut host, mut process) = machine(true);
    let fd = process.netlink(&mut host);
    let named = |name: &str| {
        let body = [&[0; 16][..], &[9, 0, 3, 0], name.as_bytes(), &[0; 4]].concat();
        request(LINK, GET, &body)
    };
    let numbered = |index: u32| {
        let body = Writer::new().u32(0).u32(index).pad_to(16).done();
        request(LINK, GET, &body)
    };
    let way = |to: [u8; 4]| {
        let body = [&[2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0][..], &to].concat();
        request(ROUTES, GET, &body)
    };
    for asked in [named("eth0"), numbered(2)] {
        let answers = process.answers(&mut host, fd, &asked);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].0, u32_at(&answers[0].1, 4)), (16, 2));
    }
    let near = process.answers(&mut host, fd, &way([10, 0, 2, 2]));
    assert_eq!(value(&near[0].1, 12, 5), None);
    assert_eq!(value(&near[0].1, 12, 7), Some(&[10, 0, 2, 15][..]));
    let far = process.answers(&mut host, fd, &way([8, 8, 8, 8]));
    assert_eq!(value(&far[0].1, 12, 5), Some(&[10, 0, 2, 2][..]));
    let own = process.answers(&mut host, fd, &way([10, 0, 2, 15]));
    assert_eq!(value(&own[0].1, 12, 4), Some(&[1, 0, 0, 0][..]));
    let empty_link = request(LINK, GET, &[0; 16]);
    let rule = "S1: what netlink refuses it refuses as Linux does";
    for (asked, error) in [
        (named("eth7"), ENODEV),
        (numbered(9), ENODEV),
        (empty_link, EINVAL),
        (request(LINK, GET, &[0; 4]), EINVAL),
        (request(ROUTES, GET, &[2; 12]), EINVAL),
        (request(ROUTES, GET, &[7; 12]), ENOTSUP),
        (request(16, GET, &[0; 16]), EPERM),
        (request(17, GET | 4, &[0; 16]), EPERM),
        (request(20, DUMP, &[0; 16]), EPERM),
        (request(24, GET, &[0; 16]), EPERM),
        (request(30, DUMP, &[0; 16]), ENOTSUP),
        (request(22, GET, &[0; 16]), ENOTSUP),
        (request(200, GET, &[0; 16]), ENOTSUP),
        (request(u16::MAX, DUMP, &[0; 16]), ENOTSUP),
    ] {
        let answers = process.answers(&mut host, fd, &asked);
        assert_eq!(answers.len(), 1, "{rule}: {asked:?}");
        let (kind, body) = &answers[0];
        let code = u32_at(body, 0) as i32;
        assert_eq!((*kind, code), (ERROR, -error.0), "{rule}: {asked:?}");
        assert_eq!(body[4..], asked, "with the request");
    }
    // A request that succeeds is acknowledged if it asks for that; bytes that are no request have no answer.
    let answers = process.answers(&mut host, fd, &[numbered(1), vec![0; 3]].concat());
    assert_eq!(answers.len(), 1);
    let mut acknowledged = numbered(1);
    acknowledged[6] |= 4;
    let answers = process.answers(&mut host, fd, &acknowledged);
    assert_eq!((answers.len(), answers[1].0), (2, ERROR));
    assert_eq!(answers[1].1.len(), 20);
    for nothing in [
        vec![],
        vec![1; 15],
        vec![0; 64],
        vec![0xff; 64],
        request(LINK, 0, &[0; 16]),
        request(LINK, DUMP, &[]),
    ] {
        assert_eq!(process.answers(&mut host, fd, &nothing), [], "{nothing:?}");
    }
}

/// As glibc and `ip` use a socket: addresses, peeking at a message before it is received, several requests at once.
#[test]
fn netlink_sockets_have_numbers_and_are_looked_into() {
    let (mut host, mut process) = machine(false);
    let fd = process.netlink(&mut host);
    let other = process.netlink(&mut host);
    let own = process.task.number;
    let name = |number: u32, groups: u32| {
        let out = Writer::new().u16(AF_NETLINK as u16).u16(0);
        out.u32(number).u32(groups).done()
    };
    let mut bind = |process: &mut One, fd, number, groups| {
        host.write_memory(ADDRESS, &name(number, groups)).unwrap();
        process.result(&mut host, nr::bind, &[fd, ADDRESS, 12])
    };
    assert_eq!(bind(&mut process, fd, 0, 0), 0);
    assert_eq!(bind(&mut process, fd, own, 0x41), 0, "groups are joined");
    assert_eq!(bind(&mut process, fd, own + 1, 0), errno(EINVAL));
    let rule = "S2: of a payer's sockets each has a number of its own";
    assert_eq!(
        bind(&mut process, other, own, 0),
        errno(EADDRINUSE),
        "{rule}"
    );
    assert_eq!(bind(&mut process, other, 0, 0), 0);
    let mut named = |process: &mut One, fd| {
        host.write_memory(LENGTH, &[12, 0, 0, 0]).unwrap();
        process.result(&mut host, nr::getsockname, &[fd, ADDRESS, LENGTH]);
        let mut back = [0; 12];
        host.read_memory(ADDRESS, &mut back).unwrap();
        back.to_vec()
    };
    assert_eq!(named(&mut process, fd), name(own, 0x41));
    assert_eq!(named(&mut process, other), name(u32::MAX - 4096, 0));
    assert_eq!(
        process.result(&mut host, nr::bind, &[fd, ADDRESS, 11]),
        errno(EINVAL)
    );
    // Without a network there is the loopback interface only, and the network's server is not asked.
    let asked = request(LINK, DUMP, &[0; 16]);
    let both = [&asked[..], &request(ADDRESSES, DUMP, &[0; 8])].concat();
    assert_eq!(process.requests(&mut host, fd, &both), both.len() as i64);
    let whole = process.result(&mut host, nr::recvfrom, &[fd, BYTES, 0, 0x22, 0, 0]);
    let first = process.next_answer(&mut host, fd).unwrap();
    assert_eq!(whole, first.len() as i64, "the whole length is told");
    let count = core::iter::from_fn(|| process.next_answer(&mut host, fd).ok()).count();
    assert_eq!(count, 3);
    // Nothing can be sent to other sockets, and other protocols and calls are refused.
    host.write_memory(ADDRESS, &name(own, 0)).unwrap();
    let sent = process.result(&mut host, nr::sendto, &[fd, BYTES, 16, 0, ADDRESS, 12]);
    assert_eq!(sent, errno(ECONNREFUSED));
    let family = u64::from(AF_NETLINK);
    for (kind, protocol, error) in [
        (SOCK_RAW, 4, EPROTONOSUPPORT),
        (1, 0, ESOCKTNOSUPPORT),
        (5, 0, ESOCKTNOSUPPORT),
    ] {
        let arguments = [family, u64::from(kind), protocol];
        assert_eq!(
            process.result(&mut host, nr::socket, &arguments),
            errno(error)
        );
    }
    for number in [nr::listen, nr::shutdown, nr::accept] {
        let result = process.result(&mut host, number, &[fd, 0, 0]);
        assert_eq!(result, errno(ENOTSUP));
    }
    let far = process.result(&mut host, nr::sendto, &[fd, BYTES, 20_000, 0, 0, 0]);
    assert!(far == errno(EMSGSIZE) || far == errno(EFAULT));
}

/// A program that asks and never reads fills its queue, and is told so (`ENOBUFS`).
#[test]
fn answers_of_netlink_are_bounded() {
    let (mut host, mut process) = machine(false);
    let fd = process.netlink(&mut host);
    let one = request(ROUTES, DUMP, &[0; 12]);
    let many: Vec<u8> = one.iter().copied().cycle().take(one.len() * 100).collect();
    for _ in 0..20 {
        let sent = process.requests(&mut host, fd, &many);
        let rule = "S2: what nobody reads is bounded, and is told of";
        assert!(
            sent == many.len() as i64 || sent == errno(ENOBUFS),
            "{rule}"
        );
        assert!(process.system.sockets_are_bounded(), "{rule}");
        let queued: usize = process
            .system
            .sockets
            .all()
            .map(|(_, its)| its.size())
            .sum();
        assert!(queued <= 128 << 10, "{rule}: {queued}");
    }
    let (mut errors, mut read) = (0, 0);
    for _ in 0..2000 {
        match process.next_answer(&mut host, fd) {
            Ok(_) => read += 1,
            Err(error) if error == errno(ENOBUFS) => errors += 1,
            Err(error) => {
                assert_eq!(error, errno(EAGAIN));
                break;
            }
        }
    }
    let rule = "S2: what nobody reads is bounded, and is told of";
    assert!(read > 10 && errors == 1, "{rule}: {read} {errors}");
}

#[test]
fn interfaces_are_found_in_files() {
    let (mut host, mut process) = machine(true);
    for (path, text) in [
        ("/sys/class/net/lo/address", "00:00:00:00:00:00\n"),
        ("/sys/class/net/lo/operstate", "unknown\n"),
        ("/sys/class/net/eth0/address", "52:54:00:12:34:56\n"),
        ("/sys/class/net/eth0/mtu", "1500\n"),
        ("/sys/class/net/eth0/flags", "0x1003\n"),
        ("/sys/class/net/eth0/type", "1\n"),
        ("/sys/class/net/eth0/carrier", "1\n"),
        ("/sys/class/net/eth0/statistics/rx_packets", "7\n"),
    ] {
        assert_eq!(process.text(&mut host, path).as_deref(), Ok(text), "{path}");
    }
    let routes = process.text(&mut host, "/proc/net/route").unwrap();
    let mut lines = routes.lines().skip(1);
    let default = "eth0\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\t0\t0\t0";
    let near = "eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
    assert_eq!(lines.next().map(str::trim_end), Some(default));
    assert_eq!(lines.next().map(str::trim_end), Some(near));
    assert!(routes.lines().all(|line| line.len() == 127), "as in Linux");
    let sixes = process.text(&mut host, "/proc/net/if_inet6").unwrap();
    assert_eq!(
        sixes,
        "00000000000000000000000000000001 01 80 10 80       lo\n\
         fe800000000000000000000000000009 02 40 20 80     eth0\n"
    );
    let counters = process.text(&mut host, "/proc/net/dev").unwrap();
    assert_eq!(counters.lines().count(), 4);
    // A machine without a network has the loopback only.
    let (mut host, mut process) = machine(false);
    for path in ["/sys/class/net/eth0", "/sys/class/net/eth0/mtu"] {
        assert_eq!(process.text(&mut host, path), Err(errno(ENOENT)), "{path}");
    }
    assert_eq!(
        process.text(&mut host, "/sys/class/net/lo/mtu").unwrap(),
        "65536\n"
    );
    let counters = process.text(&mut host, "/proc/net/dev").unwrap();
    assert_eq!(counters.lines().count(), 3);
}

/// A checkpoint image has a netlink socket with the answers that were not read.
#[test]
fn netlink_sockets_are_saved() {
    let (mut host, mut process) = machine(false);
    let fd = process.netlink(&mut host);
    let asked = request(LINK, DUMP, &[0; 16]);
    assert_eq!(process.requests(&mut host, fd, &asked), asked.len() as i64);
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    let rule = "A7: what was not read is read after a restore";
    let first = again.next_answer(&mut host, fd).expect(rule);
    assert_eq!(u16_at(&first, 4), 16, "{rule}");
    assert!(again.next_answer(&mut host, fd).is_ok(), "{rule}");
    assert_eq!(again.answers(&mut host, fd, &asked).len(), 2);
    let names = again.system.sockets.all().map(|(_, its)| its.name.clone());
    let names: Vec<_> = names.flatten().collect();
    assert_eq!(names, [Name::Number(process.task.number, 0)]);
}

/// Any addresses that the network's server reports have routes, without a panic.
#[test]
fn ways_are_of_any_addresses() {
    for bits in [0, 1, 31, 32, 33, 64, 127, 128, 255] {
        let mut card = card();
        card.here.addresses = vec![(mapped(u32::MAX), bits), (u128::MAX, bits), (0, bits)];
        let all = Interfaces::new(Some(&card));
        for route in all.routes() {
            assert!(route.to.1 <= if route.is_four() { 32 } else { 128 });
        }
        let _ = (all.way(mapped(0)), all.way(1), all.way(u128::MAX));
    }
}
