//! Shares of what the system has: what programs of one tree can take from others.

use super::*;
use crate::node;
use crate::system::Payer;
use std::format;

/// A task of another tree, with the memory of [`example`].
fn stranger(process: &mut One) -> Task {
    let pid = process.system.create(None).unwrap();
    let task = Task::new(pid, "/tmp".to_string());
    task.shares.memory.borrow_mut().areas = process.memory().areas.clone();
    task
}

/// A host that opens as many files as it is asked to.
fn large() -> Fake {
    let mut host = Fake::new();
    host.session = Session::new(&host.files, 0, 1 << 20);
    host
}

/// The result of a task's call.
fn answer(
    task: &mut Task,
    system: &mut System,
    host: &mut Fake,
    number: u64,
    arguments: &[u64],
) -> i64 {
    match call(task, system, host, &registers(number, arguments)) {
        Outcome::Go { registers, .. } => registers.rax as i64,
        outcome => panic!("{outcome:?}"),
    }
}

/// A task of another tree connects to a server and sends it descriptors, as often as it can: its own payer pays for
/// that until the server accepts a connection.
#[test]
fn what_strangers_send_is_at_their_expense() {
    const ADDRESS: u64 = 0x10_0000;
    const MESSAGE: u64 = 0x10_0100;
    let (full, many) = (ENFILE.rax() as i64, ETOOMANYREFS.rax() as i64);
    let mut host = Fake::new();
    let mut server = example(&mut host);
    let mut other = stranger(&mut server);
    host.write_memory(ADDRESS, b"\x01\0\0server").unwrap();
    let listening = server.result(&mut host, nr::socket, &[1, 1 | 0o4000, 0]) as u64;
    let bind = [listening, ADDRESS, 9];
    assert_eq!(server.result(&mut host, nr::bind, &bind), 0);
    assert_eq!(server.result(&mut host, nr::listen, &[listening, 128]), 0);
    let mut connected = 0;
    let mut first = 0;
    loop {
        let mut ask = |number, arguments: &[u64]| {
            answer(&mut other, &mut server.system, &mut host, number, arguments)
        };
        let socket = ask(nr::socket, &[1, 1 | 0o4000, 0]);
        if socket < 0 {
            assert_eq!(socket, full);
            break;
        }
        if ask(nr::connect, &[socket as u64, ADDRESS, 9]) == 0 {
            connected += 1;
            first = if connected == 1 { socket as u64 } else { first };
        }
    }
    assert!(connected > 100, "{connected}");
    // The server still has its share; connections that it has not accepted do not count.
    let mut own = 0;
    let error = loop {
        match server.result(&mut host, nr::socket, &[1, 1, 0]) {
            0.. => own += 1,
            error => break error,
        }
    };
    assert_eq!((error, own), (full, 255), "S2: who causes it pays for it");
    // A connection that the server accepts counts as its own: with a full share it accepts nothing, and nothing is
    // lost.
    let accept = [listening, 0, 0, 0o4000];
    assert_eq!(server.result(&mut host, nr::accept4, &accept), full);
    assert_eq!(server.result(&mut host, nr::close, &[listening + 1]), 0);
    assert!(server.result(&mut host, nr::accept4, &accept) > 0);
    assert_eq!(server.result(&mut host, nr::accept4, &accept), full);
    let again = answer(
        &mut other,
        &mut server.system,
        &mut host,
        nr::socket,
        &[1, 1, 0],
    );
    assert!(again > 0, "who is accepted pays no more: {again}");
    // A message of one byte and a control message with `rights` descriptors.
    let send =
        |task: Option<&mut Task>, server: &mut One, host: &mut Fake, fd: u64, rights: u64| {
            let header = [0, 0, MESSAGE + 0x80, 1, MESSAGE + 0x100, 16 + 4 * rights, 0];
            let vector = [ADDRESS, 1];
            let control = [16 + 4 * rights, 1 | 1 << 32];
            for (at, words) in [
                (MESSAGE, &header[..]),
                (MESSAGE + 0x80, &vector),
                (MESSAGE + 0x100, &control),
            ] {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                host.write_memory(at, &bytes).unwrap();
            }
            let rights: Vec<u8> = (0..rights)
                .flat_map(|_| (fd as u32).to_le_bytes())
                .collect();
            host.write_memory(MESSAGE + 0x110, &rights).unwrap();
            let arguments = [fd, MESSAGE, 0x4000];
            match task {
                Some(task) => answer(task, &mut server.system, host, nr::sendmsg, &arguments),
                None => server.result(host, nr::sendmsg, &arguments),
            }
        };
    let mut sent = 0;
    let error = loop {
        match send(Some(&mut other), &mut server, &mut host, first, 8) {
            1 => sent += 8,
            error => break error,
        }
    };
    assert_eq!((error, sent), (many, 256));
    for fd in 0..2 {
        server.result(&mut host, nr::close, &[listening + 2 + fd]);
    }
    assert_eq!(
        server.result(&mut host, nr::socketpair, &[1, 2 | 0o4000, 0, MESSAGE]),
        0
    );
    let mut pair = [0; 4];
    host.read_memory(MESSAGE, &mut pair).unwrap();
    let pair = u64::from(u32::from_le_bytes(pair));
    let sent = send(None, &mut server, &mut host, pair, 8);
    assert_eq!(sent, 1, "S2: who causes it pays for it");
    other.close_files(&mut server.system, &mut host);
    server.close_all(&mut host);
    assert!(server.system.has_no_sockets());
}

/// However many programs take all processes and things that they can have, something is left for the next one.
#[test]
fn who_takes_all_leaves_as_much_to_others() {
    let mut system = System::new();
    let trees: Vec<_> = (0..6).map(|_| system.create(None).unwrap()).collect();
    for pid in trees.iter().skip(1) {
        system.forget(*pid);
    }
    let mut taken = Vec::new();
    for n in 0..6 {
        let root = match n {
            0 => Ok(trees[0]),
            _ => system.create(None),
        };
        assert!(root.is_ok(), "S2: something is left for program {n}");
        let root = root.unwrap();
        let left = system.left(system.find(root).unwrap().payer);
        let more = (0..300)
            .take_while(|_| system.fork(root, 17).is_ok())
            .count();
        assert_eq!(left, more);
        taken.push(1 + more);
    }
    assert_eq!(taken, [128, 64, 32, 16, 8, 4], "S2: something is left");
    let pipes = |n| {
        let one = |_: &usize| system.count_thing(Thing::Pipe, Payer::Tree(n)).is_ok();
        (0..2000).take_while(one).count()
    };
    let taken: Vec<_> = (1000..1007).map(pipes).collect();
    assert_eq!(
        taken,
        [256, 256, 256, 128, 64, 32, 16],
        "S2: something is left"
    );
    // What moves counts in the other payer's share; what has no room there stays where it is.
    let mut moved = |from, to| system.move_thing(Thing::Pipe, Payer::Tree(from), Payer::Tree(to));
    assert_eq!(moved(1006, 1007), Ok(()));
    assert_eq!(moved(1006, 1000), Err(ENFILE));
    assert_eq!(
        system.counted_things(Thing::Pipe),
        3 * 256 + 128 + 64 + 32 + 16
    );
}

/// FIFOs that ended programs have left make room for those of others, except one that is in use.
#[test]
fn what_the_dead_have_left_makes_room() {
    let mut host = large();
    let mut system = System::new();
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let mut made = 0;
    let mut fill = |system: &mut System, host: &mut Fake, payer| {
        let before = made;
        loop {
            let path = format!("/tmp/fifo-{made}");
            let (ino, ..) = host.session.open_file(flags.bits(), 0o600, &path).unwrap();
            host.session.close(ino).unwrap();
            if system.new_node(host, ino, node::FIFO, payer).is_err() {
                return (made - before, ino);
            }
            made += 1;
        }
    };
    // An open of the first FIFO waits for the other end.
    let first = system.create(None).unwrap();
    let (ino, ..) = host
        .session
        .open_file(flags.bits(), 0o600, "/tmp/used")
        .unwrap();
    let payer = system.find(first).unwrap().payer;
    system.new_node(&mut host, ino, node::FIFO, payer).unwrap();
    assert!(!system.nodes.meets(ino, 20_000, false));
    system.forget(first);
    for round in 0..20 {
        let root = system.create(None).unwrap();
        let payer = system.find(root).unwrap().payer;
        let (count, _) = fill(&mut system, &mut host, payer);
        assert_eq!(
            count, 256,
            "S2: the dead take nothing from others ({round})"
        );
        assert!(system.counted_things(Thing::Node) <= 1024);
        system.forget(root);
    }
    assert_eq!(system.nodes.mode(ino), Some(node::FIFO), "it is in use");
    // FIFOs of living programs stay.
    let living: Vec<_> = (0..6).map(|_| system.create(None).unwrap()).collect();
    let all = living.iter().map(|root| {
        let payer = system.find(*root).unwrap().payer;
        fill(&mut system, &mut host, payer).0
    });
    assert_eq!(all.collect::<Vec<_>>(), [256, 256, 256, 128, 64, 32]);
}

/// A native program removes a FIFO and the name of a socket, without this server being told: nothing of the files
/// remains, and others can have their names.
#[test]
fn a_native_program_removes_a_fifo() {
    const PATH: u64 = 0x10_0000;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let native = Session::new(&host.files, 1, 10);
    let room = |host: &Fake| {
        let mut files = host.files.borrow_mut();
        (files.files(), files.budget().used())
    };
    let before = room(&host);
    for _ in 0..2 {
        host.write_memory(PATH, b"/tmp/fifo\0").unwrap();
        let mkfifo = [PATH, (node::FIFO | 0o600).into(), 0];
        assert_eq!(process.result(&mut host, nr::mknod, &mkfifo), 0);
        host.write_memory(PATH, b"\x01\0/tmp/socket").unwrap();
        let socket = process.result(&mut host, nr::socket, &[1, 1, 0]) as u64;
        let bind = [socket, PATH, 13];
        assert_eq!(process.result(&mut host, nr::bind, &bind), 0);
        for name in ["/tmp/fifo", "/tmp/socket"] {
            native.unlink(name).unwrap();
        }
        assert_eq!(room(&host), before, "S4: a file without a name stays open");
        assert_eq!(process.result(&mut host, nr::close, &[socket]), 0);
    }
}

/// A file of `memfd_create` needs no name, which others could have taken.
#[test]
fn a_file_of_memory_needs_no_name() {
    let mut host = large();
    let mut process = example(&mut host);
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    for n in 0..1001 {
        let path = format!("/tmp/.memfd-{n}");
        host.session.open_file(flags.bits(), 0o600, &path).unwrap();
    }
    host.write_memory(0x10_0000, b"x\0").unwrap();
    let fd = process.result(&mut host, nr::memfd_create, &[0x10_0000, 0]);
    assert!(fd >= 0, "{fd}");
}

/// Another tree sends a connection, or descriptors in a message, to a tree that is stopped and gathered in turns: the
/// tree is not saved, for the image could not be restored.
#[test]
fn what_strangers_send_while_a_tree_is_looked_at_is_not_saved() {
    const SERVER: u64 = 0x10_0000;
    const MESSAGE: u64 = 0x10_0100;
    const STREAM: u64 = 1 | 0o4000;
    const DATAGRAM: u64 = 2 | 0o4000;
    for style in [STREAM, DATAGRAM] {
        for sends in [false, true] {
            let mut host = large();
            let mut server = example(&mut host);
            let mut other = stranger(&mut server);
            host.write_memory(SERVER, b"\x01\0\0server").unwrap();
            let bound = server.result(&mut host, nr::socket, &[1, style, 0]) as u64;
            assert_eq!(server.result(&mut host, nr::bind, &[bound, SERVER, 9]), 0);
            if style == STREAM {
                assert_eq!(server.result(&mut host, nr::listen, &[bound, 8]), 0);
            }
            // The children have so many descriptors that gathering takes more than a turn.
            let mut children = Vec::new();
            for _ in 0..3 {
                server.result(&mut host, nr::fork, &[]);
                let mut task = child_of(&mut server, &mut host);
                while answer(&mut task, &mut server.system, &mut host, nr::dup, &[bound]) >= 0 {}
                children.push(task);
            }
            let mut gathered = part::Gathered::default();
            let mut step = |server: &One, host: &mut Fake| {
                let first = core::iter::once(&server.task);
                let tasks = first.chain(&children).map(|task| (FIRST, task));
                let tasks: Vec<(u64, &Task)> = tasks.collect();
                let known = |_| (None, String::new());
                let what = whole(server.task.pid);
                let set = what.set(&server.system);
                part::save(
                    (what, &set),
                    &mut gathered,
                    &tasks,
                    known,
                    &server.system,
                    host,
                )
            };
            let turn = step(&server, &mut host);
            assert!(matches!(turn, Err(part::Refusal::Turn)), "there is a turn");
            if sends {
                let mut ask = |host: &mut Fake, number, arguments: &[u64]| {
                    answer(&mut other, &mut server.system, host, number, arguments)
                };
                let fd = ask(&mut host, nr::socket, &[1, style, 0]) as u64;
                assert_eq!(ask(&mut host, nr::connect, &[fd, SERVER, 9]), 0);
                if style == DATAGRAM {
                    let header = [0, 0, MESSAGE + 0x80, 1, MESSAGE + 0x100, 20, 0];
                    let control = [20, 1 | 1 << 32, fd];
                    for (at, words) in [
                        (MESSAGE, &header[..]),
                        (MESSAGE + 0x80, &[SERVER, 1]),
                        (MESSAGE + 0x100, &control),
                    ] {
                        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                        let bytes: Vec<u8> = bytes.collect();
                        host.write_memory(at, &bytes).unwrap();
                    }
                    assert_eq!(ask(&mut host, nr::sendmsg, &[fd, MESSAGE, 0x4000]), 1);
                }
            }
            let made = loop {
                match step(&server, &mut host) {
                    Err(part::Refusal::Turn) => {}
                    made => break made.map(|_| ()),
                }
            };
            match (sends, made) {
                (false, Ok(())) | (true, Err(part::Refusal::Shared(_))) => {}
                (_, made) => panic!("S2: an image has what a stranger has, too: {made:?}"),
            }
        }
    }
}

/// The ranges of a message can be overwritten while a call waits, also by the message itself. An address that is added
/// to what had come before must not overflow.
#[test]
fn ranges_that_change_while_a_message_waits() {
    const HEADER: u64 = 0x10_0100;
    const RANGES: u64 = 0x10_0200;
    const WAITALL: u64 = 0x100;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let fds = socket_pair(&mut process, &mut host, 1);
    words(&mut host, HEADER, &[0, 0, RANGES, 1, 0, 0, 0]);
    words(&mut host, RANGES, &[RANGES, 0x800]);
    words(&mut host, 0x10_0020, &[0xffff_ffff_ffff_fff8, 0x7000_0000]);
    let receive = registers(nr::recvmsg, &[fds[0], HEADER, WAITALL]);
    let sends = |process: &mut One, host: &mut Fake, length: u64| {
        let outcome = process.call(host, &receive);
        assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
        let sent = process.result_beside(host, nr::write, &[fds[1], 0x10_0020, length]);
        assert_eq!(sent, length as i64);
    };
    sends(&mut process, &mut host, 16);
    sends(&mut process, &mut host, 1);
    let outcome = process.call(&mut host, &receive);
    assert!(
        matches!(outcome, Outcome::Go { .. }),
        "a range that is nowhere is refused: {outcome:?}"
    );
}

/// The part of a message that was sent before the call waited is not taken for a part of the next message.
#[test]
fn each_of_several_messages_is_sent_whole() {
    const HEADERS: u64 = 0x10_0100;
    const FIRST: u64 = 0x10_0400;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let fds = socket_pair(&mut process, &mut host, 1 | 0o4000);
    let mut filled = 0;
    while let sent @ 1.. = process.result(&mut host, nr::write, &[fds[1], FIRST, 1024]) {
        filled += sent;
    }
    // There is room for a part of the first message.
    let read = |process: &mut One, host: &mut Fake, length: u64| {
        process.result_beside(host, nr::read, &[fds[0], 0x10_0800, length])
    };
    assert_eq!(process.result(&mut host, nr::fcntl, &[fds[1], 4, 0]), 0);
    for _ in 0..8 {
        filled -= read(&mut process, &mut host, 512);
    }
    // The first message is larger than that: the same 300 bytes twenty times.
    for (n, vector, ranges) in [(0, 0x10_0200, 20), (1, 0x10_0340, 1)] {
        let header = [0, 0, vector, ranges, 0, 0, 0, 0];
        words(&mut host, HEADERS + 64 * n, &header);
    }
    words(&mut host, 0x10_0200, &[FIRST, 300].repeat(20));
    words(&mut host, 0x10_0340, &[FIRST + 300, 5]);
    let content: Vec<u8> = (0..305u32).map(|n| n as u8).collect();
    host.write_memory(FIRST, &content).unwrap();
    let send = registers(nr::sendmmsg, &[fds[1], HEADERS, 2, 0]);
    let outcome = process.call(&mut host, &send);
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let moved = process.task.wait.map_or(0, |wait| wait.progress);
    assert!(
        (1..6000).contains(&moved),
        "a part of the first message is sent: {moved}"
    );
    while filled > 0 {
        filled -= read(&mut process, &mut host, 512.min(filled as u64));
    }
    let Outcome::Go { registers, .. } = process.call(&mut host, &send) else {
        panic!("it waits on");
    };
    assert_eq!(registers.rax, 2);
    let mut all = Vec::new();
    while let came @ 1.. = read(&mut process, &mut host, 512) {
        let mut bytes = vec![0; came as usize];
        host.read_memory(0x10_0800, &mut bytes).unwrap();
        all.extend(bytes);
    }
    let wanted = [content[..300].repeat(20), content[300..].to_vec()].concat();
    assert!(all == wanted, "each message is sent once, and whole");
}

/// The owner of a lock ends when it may no longer write to the lock's word: the word stays as it is, and the thread
/// that waits has the lock.
#[test]
fn the_end_of_an_owner_writes_nothing_that_he_may_only_read() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut owner = thread_of(&mut process, &mut host);
    let mut waiter = thread_of(&mut process, &mut host);
    let system = &mut process.system;
    let lock = futex(linux::FUTEX_LOCK_PI, 0, 0, 0, 0);
    assert_eq!(returns(&mut owner, system, &mut host, &lock), 0);
    parks(&mut waiter, system, &mut host, &lock);
    let read_only = [WORD & !(PAGE - 1), PAGE, u64::from(READ)];
    assert_eq!(process.result(&mut host, nr::mprotect, &read_only), 0);
    let word = |host: &mut Fake| {
        let mut word = [0; 4];
        host.read_memory(WORD, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    let before = word(&mut host);
    let exit = registers(nr::exit, &[0]);
    let left = emulate::call(&mut owner, &mut process.system, &mut host, &exit);
    assert!(matches!(left, Outcome::Left));
    assert_eq!(word(&mut host), before);
    assert_eq!(process.system.futexes.take_granted(), [waiter.tid]);
}

/// Process groups belong to a tree, though all trees are in one session.
#[test]
fn nobody_joins_the_group_of_another_tree() {
    let mut process = One::new("/");
    let own = process.task.pid;
    let system = &mut process.system;
    let other = system.create(None).unwrap();
    let group = system.find(other).unwrap().group;
    let sessions = [own, other].map(|pid| system.find(pid).unwrap().session);
    assert_eq!(sessions[0], sessions[1]);
    assert_eq!(system.set_group(own, own, group), Err(EPERM));
    assert!(!system.is_group_of_session(own, group));
    assert!(system.those(own, Which::Group(group)).is_empty());
    assert_eq!(system.those(other, Which::Group(group))[..], [other]);
}

/// A file with `F_SEAL_FUTURE_WRITE` is written by mappings that were there before, and has no new writable ones.
#[test]
fn what_is_sealed_for_the_future_has_no_new_writable_mappings() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"memory\0").unwrap();
    let seals = u64::from(linux::MFD_ALLOW_SEALING);
    let fd = process.result(&mut host, nr::memfd_create, &[0x10_0000, seals]) as u64;
    assert_eq!(process.result(&mut host, nr::ftruncate, &[fd, PAGE]), 0);
    let shared = u64::from(linux::MAP_SHARED);
    let (reads, writes) = (u64::from(READ), u64::from(READ | WRITE));
    let map = |process: &mut One, host: &mut Fake, prot: u64| {
        process.result(host, nr::mmap, &[0, PAGE, prot, shared, fd, 0])
    };
    let old = map(&mut process, &mut host, writes) as u64;
    let seal = [
        fd,
        u64::from(linux::F_ADD_SEALS),
        u64::from(linux::F_SEAL_FUTURE_WRITE),
    ];
    assert_eq!(process.result(&mut host, nr::fcntl, &seal), 0);
    assert_eq!(map(&mut process, &mut host, writes), EPERM.rax() as i64);
    let new = map(&mut process, &mut host, reads) as u64;
    for (at, outcome) in [(new, EACCES.rax() as i64), (old, 0)] {
        let protect = [at, PAGE, writes];
        assert_eq!(process.result(&mut host, nr::mprotect, &protect), outcome);
    }
    // An image has the seal's effect.
    let saved = process.save(&mut host).unwrap();
    let mut system = System::new();
    let pid = system.create(None).unwrap();
    let mut host = Fake::new();
    example(&mut host);
    let adopted = part::adopt(&saved, (1, 1), 0, pid, &mut system, &mut host);
    let task = adopted.unwrap().tasks.remove(0).task;
    let mut again = One { task, system };
    let protect = [new, PAGE, writes];
    let refused = again.result(&mut host, nr::mprotect, &protect);
    assert_eq!(refused, EACCES.rax() as i64);
}

/// Circles of descriptors in messages are looked for among the sockets of all programs: once for all descriptors that a
/// call closes, and once for all that it drops.
#[test]
fn circles_are_looked_for_once_in_a_call() {
    const MANY: u64 = 1000;
    const MESSAGES: u64 = 20;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let ends = socket_pair(&mut process, &mut host, 5);
    // Messages of one byte and a descriptor, which are received without room for the descriptor.
    words(&mut host, 0x10_0080, &[0x10_0200, 1]);
    words(&mut host, 0x10_0100, &[20, 1 | 1 << 32, ends[0]]);
    words(
        &mut host,
        0x10_0000,
        &[0, 0, 0x10_0080, 1, 0x10_0100, 20, 0],
    );
    for n in 0..MESSAGES {
        let header = [0, 0, 0x10_0080, 1, 0, 0, 0, 0];
        words(&mut host, 0x10_1000 + 64 * n, &header);
    }
    let send = [ends[0], 0x10_0000, 0x4040];
    for _ in 0..=MESSAGES {
        assert_eq!(process.result(&mut host, nr::sendmsg, &send), 1);
    }
    let before = process.system.sockets.passes;
    let receive = [ends[1], 0x10_1000, MESSAGES, 0, 0];
    let received = process.result(&mut host, nr::recvmmsg, &receive);
    let passes = process.system.sockets.passes - before;
    assert_eq!((received, passes), (MESSAGES as i64, 1), "S2: messages");
    // The last message was not received.
    assert_eq!(process.system.counted_things(Thing::Right), 1);
    let first = 16;
    for fd in first..first + MANY {
        let made = process.result(&mut host, nr::dup2, &[ends[0], fd]);
        assert_eq!(made, fd as i64);
    }
    let before = process.system.sockets.passes;
    let close = [first, first + MANY - 1, 0];
    assert_eq!(process.result(&mut host, nr::close_range, &close), 0);
    let passes = process.system.sockets.passes - before;
    assert_eq!(passes, 1, "S2: descriptors");
    assert_eq!(
        process.result(&mut host, nr::fcntl, &[first, 1, 0]),
        EBADF.rax() as i64
    );
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}
