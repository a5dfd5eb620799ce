//! Linux programs that reach other machines. Most of the tests are in `servers/linux/tests/world.c`.

use super::linux_program;
use super::net::{content, free_port, run_beside_peer, wire};
use crate::scenario::{Ctx, Failure, Run};
use xtask_build::project::temp_dir;
use xtask_machine::net::Net;

/// The program; `None` if it cannot be made here.
fn world(ctx: &mut Ctx) -> Result<Option<Vec<u8>>, Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    match linux_program(ctx, scratch.path(), "world") {
        Some(program) => Ok(Some(std::fs::read(program).map_err(|e| e.to_string())?)),
        None => Ok(None),
    }
}

/// What programs learn about the card and the routes: by `ioctl`, by netlink and in files.
pub(crate) fn interfaces(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let script = "\
net up
busybox ifconfig eth0
busybox ip addr show
busybox ip route show
busybox route -n
busybox cat /sys/class/net/eth0/address
busybox ifconfig eth0 down
";
    let output = ctx.run(Run::script(script).net(first))?;
    let text = output.text();
    for expected in [
        "HWaddr 52:54:00:12:34:56",
        "inet addr:10.0.3.1  ",
        "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500",
        "    inet 10.0.3.1/24 ",
        "    inet6 fe80::5054:ff:fe12:3456/64 scope link",
        "10.0.3.0/24 dev eth0",
        "10.0.3.0        0.0.0.0         255.255.255.0   U ",
        "\n52:54:00:12:34:56\n",
        "Operation not permitted",
    ] {
        if !text.contains(expected) {
            return Err(format!(
                "'{expected}' is not there:\n{text}\n{}",
                output.stderr
            ));
        }
    }
    Ok(())
}

/// Two machines: each of the four pairs of a Linux and a native program, with either as the listener, by IPv4 and by
/// IPv6; pages, names and datagrams.
pub(crate) fn pair(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, second] = wire(directory.path());
    let (one, two) = (content(60_000, 7), content(90_000, 8));
    let listens = "\
busybox httpd -p 80 -h /tmp
/bin/world know 10.0.3.1 &
/bin/world answer 54 &
/bin/world accept :: 7 < /tmp/one > /tmp/got
tcp -l 8 < /tmp/one > /tmp/got2
/bin/world accept 0.0.0.0 9 < /tmp/one > /tmp/got3
/bin/world echo 10 1
cmp /tmp/got2 /tmp/got
cmp /tmp/got3 /tmp/got
";
    let connects = "\
/bin/world connect 10.0.3.1 7 < /tmp/two > /tmp/got 2> /tmp/names
/bin/world connect fe80::5054:ff:fe12:3456 8 < /tmp/two > /tmp/got2 2>> /tmp/names
tcp -w 10.0.3.1 9 < /tmp/two > /tmp/got3
/bin/world ask 10.0.3.1 54 20 2>> /tmp/names
busybox wget -q -O /tmp/page http://first.lab/one
/bin/world connect 10.0.3.1 10 < /tmp/two > /tmp/got4 2>> /tmp/names
cmp /tmp/got2 /tmp/got
cmp /tmp/got3 /tmp/got
cmp /tmp/page /tmp/got
cmp /tmp/got4 /tmp/two
cat /tmp/names
";
    let [listens, connects] = ctx.run_both(
        Run::script(listens)
            .add_program("/bin/world", world.clone())
            .add("/tmp/one", one.clone())
            .get("/tmp/got")
            .net(first)
            .stays(),
        Run::script(connects)
            .add_program("/bin/world", world)
            .add("/tmp/two", two.clone())
            .add("/etc/resolv.conf", b"nameserver 10.0.3.1\n".to_vec())
            .get("/tmp/got")
            .net(second)
            .stays(),
    )?;
    connects.expect_status(0)?.expect_stdout(
        "from 10.0.3.2\nto 10.0.3.1 7\n\
         from fe80::5054:ff:fe12:3457\nto fe80::5054:ff:fe12:3456 8\n\
         from 10.0.3.2\nto 10.0.3.1 54\n\
         from 10.0.3.2\nto 10.0.3.1 10\n",
    )?;
    listens.expect_status(0)?.expect_stdout("")?;
    assert!(listens.file("/tmp/got")? == two);
    assert!(connects.file("/tmp/got")? == one);
    Ok(())
}

/// A Linux program is reached from this host, and by native programs of its machine.
pub(crate) fn user(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let port = free_port()?;
    let sent = content(50_000, 9);
    let script = "\
net up
busybox httpd -p 80 -h /tmp
busybox wget -q -O /tmp/a http://127.0.0.1/text
busybox wget -q -O /tmp/b http://10.0.2.15/text
cmp /tmp/a /tmp/text
cmp /tmp/b /tmp/text
/bin/world echo 9 2 &
tcp -w 127.0.0.1 9 < /tmp/text > /tmp/c
tcp -w 10.0.2.15 9 < /tmp/text > /tmp/d
wait
cmp /tmp/c /tmp/text
cmp /tmp/d /tmp/text
/bin/world echo 10 1
sleep 3
";
    // The last data is still on its way when its program has ended: the machine stays on for that.
    let run = Run::script(script)
        .add_program("/bin/world", world)
        .add("/tmp/text", content(3000, 10))
        .net(Net::User {
            forwards: vec![(port, 10)],
        });
    let (output, got) = run_beside_peer(ctx, run, port, &sent);
    output?.expect_status(0)?.expect_stdout("")?;
    assert!(
        matches!(got, Ok(Some(got)) if got == sent),
        "what came back"
    );
    Ok(())
}

/// A listening program is saved, and gets its port again; a program with a connection to another machine is refused
/// with a reason, and so is a port that another program has.
pub(crate) fn saved(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let script = "\
net up
busybox httpd -f -p 80 -h /tmp &
until busybox wget -q -O /tmp/b http://10.0.2.15/text 2> /dev/null; do sleep 0.1; done
sleep 0.5
checkpoint --stop %1 /tmp/image
kill %1
restore /tmp/image
busybox wget -q -O /tmp/b http://10.0.2.15/text
cmp /tmp/b /tmp/text
kill %1
tcp -l 80 < /dev/null > /dev/null &
sleep 3
restore /tmp/image
kill %1
/bin/world echo 7 1 &
/bin/world hold 10.0.2.15 7 2> /tmp/names &
until [ -s /tmp/names ]; do sleep 0.1; done
checkpoint %2 /tmp/image
kill %2
";
    let run = Run::script(script)
        .add_program("/bin/world", world)
        .add("/tmp/text", content(3000, 11))
        .net(Net::User { forwards: vec![] });
    let output = ctx.run(run)?;
    // The personality reports it, too.
    for (who, sentence) in [
        (
            "restore: ",
            "port 80, which one of its sockets has, is another one's now",
        ),
        (
            "checkpoint: ",
            "has a connection to another machine, 10.0.2.15:7",
        ),
    ] {
        let text = output.text();
        let says = |line: &&str| line.starts_with(who) && line.ends_with(sentence);
        if text.lines().filter(says).count() != 1 {
            return Err(format!("{who}'{sentence}' is not there once:\n{text}"));
        }
    }
    Ok(())
}

/// What programs are told when there is no network, no route, or no peer.
pub(crate) fn errors(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let none = "connect ENETUNREACH\nsendto ENETUNREACH\nconnect ENETUNREACH\n";
    let run = Run::script("/bin/world errors 192.0.2.1 80\n/bin/world errors fe80::1 80\n");
    let output = ctx.run(run.add_program("/bin/world", world.clone()))?;
    output.expect_status(0)?.expect_stdout(&none.repeat(2))?;
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let script = "\
/bin/world errors 192.0.2.1 80
/bin/world errors 10.0.3.1 9
tcp -l 7 &
sleep 0.5
/bin/world accept 0.0.0.0 7
/bin/world answer 99 &
sleep 0.3
/bin/world answer 99
busybox nc 10.0.3.1 9
";
    // The listener has started when so many instructions have passed: there is no outside partner to signal it.
    let run = Run::script(script).add_program("/bin/world", world);
    let output = ctx.run(run.net(first).deterministic())?;
    output.expect_status(1)?.expect_stdout(&format!(
        "{none}connect ECONNREFUSED\nsendto 0\nconnect 0\n\
         bind: EADDRINUSE\nbind: EADDRINUSE\n\
         nc: can't connect to remote host (10.0.3.1): Connection refused\n"
    ))?;
    Ok(())
}

/// A tree that takes all sockets that it can get has only its share, and native programs and other trees have theirs;
/// a peer that never reads holds up only the sender.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let script = "\
/bin/world many > /tmp/many &
sleep 2
cat /tmp/many
/bin/world echo 9 1 &
tcp -w 10.0.3.1 9 < /tmp/text > /tmp/c
cmp /tmp/c /tmp/text
ping 10.0.3.1 1 > /tmp/ping
kill %1
sleep 0.3
/bin/world many > /tmp/again &
sleep 2
kill %1
cmp /tmp/many /tmp/again
busybox sh -c 'nc -l -p 10 < /dev/null | sleep 1000' &
/bin/world fill 10.0.3.1 10 > /tmp/fill 2> /tmp/names &
sleep 6
cat /tmp/fill
";
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let run = Run::script(script)
        .add_program("/bin/world", world)
        .add("/tmp/text", content(3000, 12));
    let output = ctx.run(run.net(first))?;
    output.expect_status(0)?.expect_stdout(
        "48 datagram sockets, then ENOBUFS\n0 more, then ENOBUFS\nwithin: 0\nheld up\n",
    )?;
    Ok(())
}

/// Programs close connections with much that was not taken yet. All of it comes, over more of them than a listening
/// socket has places; who takes nothing for long is told that there was more, and does not read to an end.
pub(crate) fn left(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let script = "\
/bin/world leave 9 40 /tmp/nine &
/bin/world leave 10 2 /tmp/ten &
/bin/world late 10.0.3.1 9 40 /tmp/nine 5 > /tmp/all &
/bin/world late 10.0.3.1 10 2 /tmp/ten 80 > /tmp/some &
wait
cat /tmp/all /tmp/some
";
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let run = Run::script(script).add_program("/bin/world", world);
    let output = ctx.run(run.net(first).deterministic())?;
    output
        .expect_status(0)?
        .expect_stdout("40 ends, 0 resets, all\n0 ends, 2 resets, some\n")?;
    Ok(())
}

/// The network server is killed: a connection is reset, a listener is told, and later connections can be made.
pub(crate) fn server_ends(ctx: &mut Ctx) -> Result<(), Failure> {
    let Some(world) = world(ctx)? else {
        return Ok(());
    };
    let script = "\
/bin/world echo 10 2 > /tmp/echo &
sleep 0.3
/bin/world hold 10.0.3.1 10 2> /tmp/names > /tmp/held &
sleep 1
trust /test/nets kill network
wait
cat /tmp/held
cat /tmp/echo
/bin/world echo 9 1 &
/bin/world connect 10.0.3.1 9 < /tmp/text > /tmp/c 2> /tmp/names
cmp /tmp/c /tmp/text
";
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, _] = wire(directory.path());
    let run = Run::script(script)
        .add_program("/bin/world", world)
        .add("/tmp/text", content(3000, 13));
    // As above.
    let output = ctx.run(run.net(first).deterministic())?;
    output
        .expect_status(0)?
        .expect_stdout("read -1 ECONNRESET\naccept: ENETDOWN\n")?;
    Ok(())
}
