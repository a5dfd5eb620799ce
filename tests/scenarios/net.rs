//! The network: its driver, its server, two machines that talk.

use super::{expect_at_work, frames};
use crate::scenario::{Ctx, Failure, Output, Run};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use xtask_build::linux::Program;
use xtask_build::project::temp_dir;
use xtask_machine::net::{Net, Pair};

/// Bytes in which each word depends on its position.
pub(super) fn content(words: u32, whose: u32) -> Vec<u8> {
    let word = |n: u32| (n + whose).wrapping_mul(0x9e37_79b9) ^ n;
    (0..words).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// A free TCP port of this host.
pub(super) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| error.to_string())
}

/// The two ends of a wire.
pub(super) fn wire(directory: &Path) -> [Net; 2] {
    [0, 1].map(|end| {
        Net::Pair(Pair {
            directory: directory.into(),
            end,
        })
    })
}

/// Runs a machine while the host sends these bytes to a port of its own that leads to the machine, again and again
/// until an answer comes. Returns the machine's output, and the answer.
pub(super) fn run_beside_peer(
    ctx: &mut Ctx,
    run: Run,
    port: u16,
    bytes: &[u8],
) -> (
    Result<Output, Failure>,
    std::thread::Result<Option<Vec<u8>>>,
) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| loop {
            match exchange(port, bytes) {
                Ok(got) if !got.is_empty() => return Some(got),
                _ if over.load(Ordering::Relaxed) => return None,
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        });
        let output = ctx.run(run);
        over.store(true, Ordering::Relaxed);
        (output, peer.join())
    })
}

/// Connects, sends everything and reads to the end. The port forwarder accepts connections before the machine does,
/// and closes them.
fn exchange(port: u16, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut writer = stream.try_clone()?;
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let sent = writer.write_all(sent);
            sent.and_then(|()| writer.shutdown(std::net::Shutdown::Write))
        });
        stream.read_to_end(&mut got)
    })?;
    Ok(got)
}

/// A machine on QEMU's network gets an address, an answer, and connections from this host; it talks to itself; its
/// frames are written to a file.
pub(crate) fn user(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let pcap = directory.path().join("frames");
    let port = free_port()?;
    let (of_host, of_guest) = (content(50_000, 1), content(70_000, 2));
    let script = "\
net up
ping 10.0.2.2 2 > /tmp/pings
busybox cut -d ' ' -f 1-4 /tmp/pings
ping localhost 1 > /tmp/pings
ping ::1 1 >> /tmp/pings
ping 10.0.2.15 1 >> /tmp/pings
busybox cut -d ' ' -f 1-4 /tmp/pings
net > /tmp/net
busybox grep 10.0.2 /tmp/net
tcp -l 7 < /tmp/of-guest > /tmp/got
tcp -l 8 < /tmp/of-guest > /tmp/twice &
tcp -w 127.0.0.1 8 < /tmp/got > /tmp/again
wait
cmp /tmp/again /tmp/of-guest
cmp /tmp/twice /tmp/got
";
    let run = Run::script(script)
        .add("/tmp/of-guest", of_guest.clone())
        .get("/tmp/got")
        .pcap(&pcap)
        .net(Net::User {
            forwards: vec![(port, 7)],
        });
    let (output, got) = run_beside_peer(ctx, run, port, &of_host);
    let output = output?;
    output.expect_status(0)?.expect_stdout(
        "answer 1 from 10.0.2.2\nanswer 2 from 10.0.2.2\n\
         answer 1 from 127.0.0.1\nanswer 1 from ::1\nanswer 1 from 10.0.2.15\n\
         address 10.0.2.15/24\n",
    )?;
    assert!(output.file("/tmp/got")? == of_host, "what the host sent");
    assert!(
        matches!(got, Ok(Some(got)) if got == of_guest),
        "what the host got"
    );
    let frames = std::fs::read(&pcap).map_err(|error| error.to_string())?;
    assert!(frames.len() > of_host.len() + of_guest.len());
    assert!(
        frames.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]),
        "the magic number of such files"
    );
    Ok(())
}

/// Two machines send a file to each other over one connection, by IPv4 and by IPv6.
pub(crate) fn pair(ctx: &mut Ctx) -> Result<(), Failure> {
    pair_of(ctx, [None, None], 300_000)
}

/// The same with these drivers of their cards, and files of so many words.
pub(crate) fn pair_of(
    ctx: &mut Ctx,
    drivers: [Option<Program>; 2],
    words: u32,
) -> Result<(), Failure> {
    let [of_first, of_second] = drivers;
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, second] = wire(directory.path());
    let (one, two) = (content(words, 3), content(words / 3 * 2, 4));
    let listens = "\
tcp -l 7 < /tmp/one > /tmp/got
tcp -l 8 < /tmp/one > /tmp/got2
cmp /tmp/got2 /tmp/got
";
    let connects = "\
tcp -w 10.0.3.1 7 < /tmp/two > /tmp/got
tcp -w fe80::5054:ff:fe12:3456 8 < /tmp/two > /tmp/got2
cmp /tmp/got2 /tmp/got
";
    let [listens, connects] = ctx.run_both(
        Run::script(listens)
            .add("/tmp/one", one.clone())
            .get("/tmp/got")
            .net(first)
            .driver(of_first)
            .stays(),
        Run::script(connects)
            .add("/tmp/two", two.clone())
            .get("/tmp/got")
            .net(second)
            .driver(of_second)
            .stays(),
    )?;
    listens.expect_status(0)?.expect_stdout("")?;
    connects.expect_status(0)?.expect_stdout("")?;
    assert!(listens.file("/tmp/got")? == two);
    assert!(connects.file("/tmp/got")? == one);
    Ok(())
}

/// A machine ends its script as soon as `tcp` is done, though the other one reads slowly: the other one gets
/// everything.
pub(crate) fn slow_reader(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, second] = wire(directory.path());
    // More than fits into the sockets and pipes on the way.
    let one = content(100_000, 5);
    let reads = "tcp -w 10.0.3.1 7 < /dev/null | busybox sh -c 'dd bs=1 count=1 2> /dev/null; sleep 3; cat' > /tmp/got\n";
    let [sends, reads] = ctx.run_both(
        Run::script("tcp -l 7 < /tmp/one\n")
            .add("/tmp/one", one.clone())
            .net(first),
        Run::script(reads).get("/tmp/got").net(second).stays(),
    )?;
    sends.expect_status(0)?.expect_stdout("")?;
    reads.expect_status(0)?.expect_stdout("")?;
    assert!(reads.file("/tmp/got")? == one);
    Ok(())
}

/// Two machines on a wire that loses the first FIN of each direction of a connection, and the first answer to the
/// repeated FIN: both machines get everything.
pub(crate) fn lost_ends(ctx: &mut Ctx) -> Result<(), Failure> {
    let directories = [temp_dir(), temp_dir()];
    let [of_first, of_second] = directories.map(|made| made.map_err(|error| error.message));
    let (of_first, of_second) = (of_first?, of_second?);
    let ([first, _], [_, second]) = (wire(of_first.path()), wire(of_second.path()));
    // Each end of the wire, and the socket in the middle to which its machine sends.
    let (Net::Pair(one), Net::Pair(two)) = (&first, &second) else {
        return Err("no wire".into());
    };
    let middle = |socket| {
        let socket = UnixDatagram::bind(socket).map_err(|error| error.to_string())?;
        let often = socket.set_read_timeout(Some(Duration::from_millis(50)));
        often.map_err(|error| error.to_string())?;
        Ok::<_, Failure>(socket)
    };
    let sockets = [middle(one.socket(1))?, middle(two.socket(0))?];
    let machines = [one.socket(0), two.socket(1)];
    let (over, answers, lost) = (
        AtomicBool::new(false),
        [AtomicBool::new(false), AtomicBool::new(false)],
        AtomicU32::new(0),
    );
    let carry = |from: usize| {
        let to = 1 - from;
        let mut ends = 0;
        let mut frame = [0; 2048];
        while !over.load(Ordering::Relaxed) {
            let Ok(length) = sockets[from].recv(&mut frame) else {
                continue;
            };
            let frame = &frame[..length];
            let mut is_lost = answers[from].swap(false, Ordering::Relaxed);
            if !is_lost && frames::is_end(frame) {
                ends += 1;
                is_lost = ends == 1;
                answers[to].fetch_or(ends == 2, Ordering::Relaxed);
            }
            match is_lost {
                true => drop(lost.fetch_add(1, Ordering::Relaxed)),
                // A machine that is not there gets no frame.
                false => drop(sockets[to].send_to(frame, &machines[to])),
            }
        }
    };
    // The second machine sends its FIN after it has received that of the first one, though late.
    let answers_late = "busybox sleep 5 | tcp -w 10.0.3.1 7 > /tmp/got\n";
    let one = content(1000, 6);
    let outputs = std::thread::scope(|scope| {
        let carry = &carry;
        for from in 0..2 {
            scope.spawn(move || carry(from));
        }
        let outputs = ctx.run_both(
            Run::script("tcp -l 7 < /tmp/one\n")
                .add("/tmp/one", one.clone())
                .net(first.clone())
                .stays(),
            Run::script(answers_late)
                .get("/tmp/got")
                .net(second.clone())
                .stays(),
        );
        over.store(true, Ordering::Relaxed);
        outputs
    });
    let [listens, connects] = outputs?;
    listens.expect_status(0)?.expect_stdout("")?;
    connects.expect_status(0)?.expect_stdout("")?;
    assert!(connects.file("/tmp/got")? == one);
    let lost = lost.load(Ordering::Relaxed);
    assert_eq!(lost, 4, "frames that were lost: two ends, two answers");
    Ok(())
}

/// On a machine without a network the program says so, and senseless arguments are refused with a message.
pub(crate) fn refusals(ctx: &mut Ctx) -> Result<(), Failure> {
    let none = "there is no network: run --net user";
    let output = ctx.run(Run::script("net\nping localhost\ntcp localhost 7\n"))?;
    output
        .expect_status(1)?
        .expect_stdout(&format!("net: {none}\nping: {none}\ntcp: {none}\n"))?;
    let script = "\
ping 192.0.2.1
ping nobody.example
tcp 10.0.3.1 9
tcp 10.0.3.255 9
tcp ::1 9
ping
tcp -l 0
net down
";
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let output = ctx.run(Run::script(script).net(first))?;
    let refused = "tcp: the other end does not want the connection, or nobody answers\n";
    output.expect_status(2)?.expect_stdout(&format!(
        "ping: there is no way to this address\n\
         ping: there is nobody to ask for names\n\
         {refused}\
         tcp: there is no way to this address\n\
         {refused}\
         usage: ping HOST [COUNT]\n\
         usage: tcp HOST PORT     connect\n       tcp -w HOST PORT  connect, when somebody listens there\n       tcp -l PORT       wait for one connection\n\
         Standard input is sent, a line or a block at a time; what comes goes to standard output, until the other end has closed.\n\
         usage: net            addresses, router, frames\n       net up [S]     wait for an address, at most S seconds (10)\n"
    ))?;
    Ok(())
}

/// A machine that sends while `whom` is killed again and again, and a machine that sends back. The card of the first
/// has this driver.
pub(crate) fn kills(
    ctx: &mut Ctx,
    driver: Option<Program>,
    whom: &str,
    seed: u64,
    kills: u64,
) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, second] = wire(directory.path());
    // Half of the kills wait for work, which may be slow if the connection has slowed down.
    let time = 3600 + 4 * kills;
    let load = format!("trust /test/nets load 10.0.3.2 7 {whom} {seed} {kills} 2> /tmp/counts\n");
    let [loads, serves] = ctx.run_both(
        Run::script(load)
            .get("/tmp/counts")
            .net(first)
            .driver(driver)
            .timeout(time)
            .stays(),
        Run::script("/test/nets serve 7\n")
            .net(second)
            .timeout(time)
            .stays(),
    )?;
    let text = loads.expect_status(0)?.text();
    let at_work = text
        .strip_prefix(&format!("nets: {kills} kills, "))
        .and_then(|rest| rest.strip_suffix(" at work\n")?.parse().ok())
        .ok_or_else(|| format!("the console holds\n{text}"))?;
    expect_at_work(at_work, kills)?;
    serves.expect_status(0)?.expect_stdout("")?;
    let counts = String::from_utf8_lossy(loads.file("/tmp/counts")?).into_owned();
    let counts = counts.trim();
    ctx.note(format!(
        "seed {seed}, {kills} kills, {at_work} at work, {counts}"
    ));
    Ok(())
}

/// The driver is killed at seeded instants under load: no connection is lost, and all bytes come back.
pub(crate) fn driver_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill_driver(ctx, 20_261_123, 200)
}

/// The same with this seed, and so many kills.
pub(crate) fn kill_driver(ctx: &mut Ctx, seed: u64, count: u64) -> Result<(), Failure> {
    kills(ctx, None, "virtio-net", seed, count)
}

/// The server is killed at seeded instants under load: connections are reset, and others can be made.
pub(crate) fn server_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kills(ctx, None, "network", 7, 60)
}

/// Frames of 64 bytes as fast as they can be sent, all of them for the machine: the user at the console notices
/// little.
pub(crate) fn flood(ctx: &mut Ctx) -> Result<(), Failure> {
    flood_of(ctx, None, 1000)
}

/// How many times as many instructions work under a flood may take as without one.
const FLOODED: u64 = 5;

/// The same with this driver of its card. The machine works, repeatedly, until more than `least` frames have got
/// through: how fast they arrive depends on the host. The machine counts instructions: its work takes at most
/// [`FLOODED`] times as many as without a flood.
pub(crate) fn flood_of(ctx: &mut Ctx, driver: Option<Program>, least: u64) -> Result<(), Failure> {
    const ROUNDS: usize = 4;
    let work = "\
time busybox sha256sum /bin/busybox > /tmp/sum
time ps > /tmp/ps
time busybox seq 100000 > /tmp/numbers
time cp /tmp/numbers /tmp/more
time cmp /tmp/numbers /tmp/more
";
    let rounds = format!("echo one\n{}echo two\n", work.repeat(ROUNDS));
    let directory = temp_dir().map_err(|error| error.message)?;
    let [quiet, _] = wire(directory.path());
    let run = Run::script(&*rounds).driver(driver.clone()).deterministic();
    let output = ctx.run(run.net(quiet))?;
    output.expect_status(0)?;
    let alone = instructions(&output.text(), 5 * ROUNDS)?;

    let script = format!(
        "\
{rounds}came=0
until [ \"$came\" -gt {least} ]
do
busybox seq 100000 > /tmp/numbers
net > /tmp/net
came=$(busybox sed -n 's/^frames \\([0-9]*\\) in.*/\\1/p' /tmp/net)
done
"
    );
    // Datagrams to a closed port, each of which gets an answer.
    let run = Run::script(script).get("/tmp/net").driver(driver);
    let (output, sent) = under(ctx, run.deterministic(), |number| {
        small_frame(number as u16)
    })?;
    output.expect_status(0)?;
    let flooded = instructions(&output.text(), 5 * ROUNDS)?;
    let net = String::from_utf8_lossy(output.file("/tmp/net")?).into_owned();
    let frames = net.lines().find_map(|line| line.strip_prefix("frames "));
    let came = frames.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    let came = came.ok_or("no counters")?;
    let times = flooded / (alone / 10).max(1);
    let times = format!("{}.{} times the instructions", times / 10, times % 10);
    ctx.note(format!(
        "{came} frames came, of {sent} that were sent; {times}"
    ));
    if flooded > FLOODED * alone {
        return Err(format!("S1: a flood is noticed: {times}"));
    }
    Ok(())
}

/// How many instructions so many commands took, from the lines of `time` between two lines.
fn instructions(text: &str, things: usize) -> Result<u64, Failure> {
    let wrong = || format!("the console holds\n{text}");
    let rest = text.strip_prefix("one\n").ok_or_else(wrong)?;
    let (lines, _) = rest.split_once("two\n").ok_or_else(wrong)?;
    let one = |line: &str| -> Option<u64> {
        let (seconds, nanoseconds) = line.strip_suffix(" s")?.split_once('.')?;
        let (seconds, nanoseconds): (u64, u64) = (seconds.parse().ok()?, nanoseconds.parse().ok()?);
        Some(seconds * 1_000_000_000 + nanoseconds)
    };
    let all: Option<Vec<u64>> = lines.lines().map(one).collect();
    let all = all.filter(|all| all.len() == things).ok_or_else(wrong)?;
    Ok(all.into_iter().sum())
}

/// Frames that are truncated, fragmented, or have wrong checksums and lengths, that open connections and end others
/// by guessed numbers, lie about addresses, or are chains of headers: a connection between two programs goes on and
/// loses no byte, another one can be made, and the console is served.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    const SEED: u64 = 1 << 32;
    const PAUSE: Duration = Duration::from_millis(2);
    const FRAMES: u64 = 10_000;
    let script = format!(
        "\
/test/nets serve 9 &
/test/nets serve 7 &
/test/nets talk 10.0.3.1 7 {FRAMES} 2> /tmp/counts &
echo one
busybox sha256sum /bin/busybox > /tmp/sum
wait %3
kill %1
busybox sha256sum -c /tmp/sum
"
    );
    let run = Run::script(script).get("/tmp/counts");
    // With pauses: a flood is another test.
    let (output, sent) = under(ctx, run, |number| {
        std::thread::sleep(PAUSE);
        frames::hostile(SEED + number)
    })?;
    output
        .expect_status(0)?
        .expect_stdout("one\n/bin/busybox: OK\n")?;
    let counts = String::from_utf8_lossy(output.file("/tmp/counts")?).into_owned();
    ctx.note(format!("{}; {sent} were sent", counts.trim()));
    Ok(())
}

/// Runs a machine while another sends it one frame after the other, as fast as possible. Returns the output, and the
/// number of frames.
fn under(
    ctx: &mut Ctx,
    run: Run,
    frame: impl Fn(u64) -> Vec<u8> + Sync,
) -> Result<(Output, u64), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let pair = match &first {
        Net::Pair(pair) => pair.clone(),
        _ => return Err("no wire".into()),
    };
    let over = AtomicBool::new(false);
    let socket = UnixDatagram::bind(pair.socket(1));
    let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    let socket = socket.map_err(|error| error.to_string())?;
    let (output, sent) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u64;
            while !over.load(Ordering::Relaxed) {
                // The frames that the machine sends are ignored, but the emulator stops if they are not read.
                while socket.recv(&mut [0]).is_ok() {}
                match socket.send_to(&frame(sent), pair.socket(0)) {
                    Ok(_) => sent += 1,
                    Err(_) => std::thread::sleep(Duration::from_micros(100)),
                }
            }
            sent
        });
        let output = ctx.run(run.net(first));
        over.store(true, Ordering::Relaxed);
        // The sender may be waiting for room.
        let _ = std::fs::remove_file(pair.socket(0));
        (output, sender.join())
    });
    Ok((output?, sent.unwrap_or(0)))
}

/// A frame of 64 bytes including its checksum, so 60 here, for the first machine of a pair: a datagram from an
/// unknown machine.
fn small_frame(number: u16) -> Vec<u8> {
    let mut frame = vec![
        0x52, 0x54, 0, 0x12, 0x34, 0x56, 0x52, 0x54, 0, 0x12, 0x34, 0x57, 8, 0,
    ];
    let mut ip = vec![
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 3, 2, 10, 0, 3, 1,
    ];
    ip[4..6].copy_from_slice(&number.to_be_bytes());
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.extend(ip);
    frame.extend([0x30, 0x39, 0x30, 0x39, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}
