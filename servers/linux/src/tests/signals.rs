//! Calls that signals interrupt, queued signals, and the signals of terminals.

use super::*;
use crate::signal::Origin;
use alloc::format;

const EXAMPLE: u64 = 0x10_0000;
/// The address of the tests' handlers.
const HANDLER: u64 = 0x5000;
/// `SIGUSR1`.
const USR1: u32 = 10;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_RESTART: u64 = 0x1000_0000;

fn word(host: &mut Fake, at: u64) -> u64 {
    let mut bytes = [0; 8];
    host.read_memory(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// A process that handles [`USR1`].
fn handling(host: &mut Fake, flags: u64) -> One {
    let mut process = example(host);
    handle(&mut process, host, flags);
    process
}

fn handle(process: &mut One, host: &mut Fake, flags: u64) {
    words(host, EXAMPLE, &[HANDLER, SA_RESTORER | flags, EXAMPLE, 0]);
    let act = [u64::from(USR1), EXAMPLE, 0, 8];
    assert_eq!(process.result(host, nr::rt_sigaction, &act), 0);
}

fn send(process: &mut One, signal: u32) {
    let of_process = &mut process.system.process(process.task.pid).pending;
    of_process.add(signal, Origin::default());
}

fn go(outcome: Outcome) -> Registers {
    match outcome {
        Outcome::Go { registers, .. } => registers,
        outcome => panic!("{outcome:?}"),
    }
}

/// A pipe: the descriptor to read from, and the one to write to.
fn pipe(process: &mut One, host: &mut Fake) -> [u64; 2] {
    assert_eq!(process.result(host, nr::pipe2, &[EXAMPLE + 0x800, 0]), 0);
    let both = word(host, EXAMPLE + 0x800);
    [both & 0xffff_ffff, both >> 32]
}

/// `pselect6` with another mask takes a signal only if nothing is ready: otherwise the signal stays pending for the
/// next call.
#[test]
fn a_signal_that_only_the_wait_lets_in_comes_with_eintr_or_not_at_all() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    process.task.signals.mask = bit(USR1);
    let [from, to] = pipe(&mut process, &mut host);
    let (sets, mask, open, zero) = (
        EXAMPLE + 0x900,
        EXAMPLE + 0xa00,
        EXAMPLE + 0xa10,
        EXAMPLE + 0xa20,
    );
    words(&mut host, mask, &[open, 8, 0, 0, 0]);
    let select = |timeout| registers(nr::pselect6, &[from + 1, sets, 0, 0, timeout, mask]);
    send(&mut process, USR1);
    assert_eq!(process.result(&mut host, nr::write, &[to, EXAMPLE, 1]), 1);
    words(&mut host, sets, &[1 << from]);
    let rule = "a call that succeeds delivers nothing that its caller blocks";
    let came = go(process.call(&mut host, &select(0)));
    assert_eq!((came.rax, came.rip), (1, 0x10_0102), "{rule}");
    assert_eq!(process.task.signals.mask, bit(USR1), "{rule}");
    assert_eq!(process.result(&mut host, nr::read, &[from, EXAMPLE, 1]), 1);
    // Nothing is ready, and there is no time to wait: the signal is delivered all the same.
    words(&mut host, sets, &[1 << from]);
    let came = go(process.call(&mut host, &select(zero)));
    assert_eq!(came.rip, HANDLER, "a wait for no time lets signals in");
}

/// `FUTEX_LOCK_PI` begins again after a handler, for glibc takes `EINTR` to mean that it has the lock.
#[test]
fn who_waits_for_a_lock_hears_of_no_signal() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    let mut thread = thread_of(&mut process, &mut host);
    words(&mut host, WORD, &[u64::from(thread.thread)]);
    let entry = futex(linux::FUTEX_LOCK_PI, 0, 0, 0, 0);
    assert!(matches!(process.call(&mut host, &entry), Outcome::Park(_)));
    send(&mut process, USR1);
    let came = go(process.call(&mut host, &entry));
    assert_eq!(came.rip, HANDLER);
    let all = frame(&mut host, &came);
    assert!(
        all.contains(&entry.rip) && !all.contains(&(entry.rip + 2)),
        "a call for a lock begins again behind a handler: {all:x?}"
    );
    thread.close_files(&mut process.system, &mut host);
}

/// A call with a timeout of its own fails with `EINTR`: begun again, it would wait for the whole time each time.
#[test]
fn a_wait_with_a_timeout_does_not_begin_again() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, SA_RESTART);
    let pair = [1, 1, 0, EXAMPLE + 0x800];
    assert_eq!(process.result(&mut host, nr::socketpair, &pair), 0);
    let socket = word(&mut host, EXAMPLE + 0x800) & 0xffff_ffff;
    for (size, result) in [(3, -i64::from(EINVAL.0)), (4, 0)] {
        // The size of a buffer is an `int`.
        let set = [
            socket,
            1,
            u64::from(linux_raw_sys::net::SO_SNDBUF),
            EXAMPLE,
            size,
        ];
        assert_eq!(process.result(&mut host, nr::setsockopt, &set), result);
    }
    let receive = registers(nr::recvfrom, &[socket, EXAMPLE, 1, 0, 0, 0]);
    for (timeout, restarts) in [(0, true), (100_000, false)] {
        words(&mut host, EXAMPLE, &[0, timeout]);
        let set = [socket, 1, 20, EXAMPLE, 16];
        assert_eq!(process.result(&mut host, nr::setsockopt, &set), 0);
        assert!(matches!(
            process.call(&mut host, &receive),
            Outcome::Park(_)
        ));
        send(&mut process, USR1);
        let came = go(process.call(&mut host, &receive));
        assert_eq!(came.rip, HANDLER);
        let all = frame(&mut host, &came);
        assert_eq!(
            all.contains(&receive.rip),
            restarts,
            "a receive with a timeout is told of a signal: {timeout}"
        );
        process.task.signals.mask = 0;
    }
}

/// `select` stores the time that was left, whatever ended it.
#[test]
fn select_tells_what_is_left_of_its_time() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    let [from, to] = pipe(&mut process, &mut host);
    let (sets, time) = (EXAMPLE + 0x900, EXAMPLE + 0xa00);
    let select = registers(nr::select, &[from + 1, sets, 0, 0, time]);
    for ended_by in ["a byte", "its time", "a signal"] {
        words(&mut host, sets, &[1 << from]);
        // More microseconds than a second has.
        words(&mut host, time, &[1, 4_000_000]);
        assert!(matches!(process.call(&mut host, &select), Outcome::Park(_)));
        let passes = [3_000_000_000, 9_000_000_000][usize::from(ended_by == "its time")];
        host.now += passes;
        match ended_by {
            "a byte" => assert_eq!(
                process.result_beside(&mut host, nr::write, &[to, EXAMPLE, 1]),
                1
            ),
            "a signal" => send(&mut process, USR1),
            _ => {}
        }
        go(process.call(&mut host, &select));
        let left = [word(&mut host, time), word(&mut host, time + 8)];
        let expected = [2, 0][usize::from(ended_by == "its time")];
        assert_eq!(
            left,
            [expected, 0],
            "what is left when it is ended by {ended_by}"
        );
        if ended_by == "a byte" {
            assert_eq!(process.result(&mut host, nr::read, &[from, EXAMPLE, 1]), 1);
        }
    }
}

/// The wait of `vfork` is ended by `SIGKILL`, whatever else is pending.
#[test]
fn who_is_killed_waits_for_nothing() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    let vfork = registers(nr::vfork, &[]);
    assert!(matches!(process.call(&mut host, &vfork), Outcome::Park(wake) if wake.firm));
    send(&mut process, USR1);
    assert!(matches!(process.call(&mut host, &vfork), Outcome::Park(wake) if wake.firm));
    send(&mut process, sig::KILL);
    let outcome = process.call(&mut host, &vfork);
    assert!(
        matches!(outcome, Outcome::End(Status::Killed(9))),
        "SIGKILL ends every wait: {outcome:?}"
    );
}

/// A restored process gets a signal before it has made the call again that it was saved in: the outcome of the call.
fn met_by_a_signal(process: &mut One, host: &mut Fake, entry: &Registers) -> Outcome {
    send(process, USR1);
    let One { task, system } = process;
    let outcome = emulate::interrupt(task, system, host, entry);
    let rule = "S3: a restored call is what a signal meets";
    assert_eq!(go(outcome), *entry, "{rule}");
    process.call(host, entry)
}

/// Whether the handler returns behind the call `entry`, with this value.
fn behind_handler(host: &mut Fake, came: &Registers, entry: &Registers, value: i64) -> bool {
    assert_eq!(came.rip, HANDLER);
    let all = frame(host, came);
    all.contains(&(entry.rip + 2)) && !all.contains(&entry.rip) && all.contains(&(value as u64))
}

/// A process that was saved in a call that waits meets a signal as if it had not been saved: the handler does not run
/// before the call is made again, which would then wait for another signal.
#[test]
fn a_restored_call_is_interrupted_like_any_other() {
    const MASK: u64 = EXAMPLE + 0xa00;
    const TIME: u64 = EXAMPLE + 0xa10;
    for restarts in [false, true] {
        let mut host = Fake::new();
        let flags = if restarts { SA_RESTART } else { 0 };
        let mut process = handling(&mut host, flags);
        let [from, _to] = pipe(&mut process, &mut host);
        words(&mut host, MASK, &[0]);
        words(&mut host, TIME, &[5, 0]);
        process.task.signals.mask = bit(USR1);
        let waits = [
            registers(nr::rt_sigsuspend, &[MASK, 8]),
            registers(nr::ppoll, &[EXAMPLE, 0, TIME, MASK, 8]),
            registers(nr::pause, &[]),
            registers(nr::nanosleep, &[TIME, 0]),
            registers(nr::read, &[from, EXAMPLE, 1]),
        ];
        for entry in waits {
            if entry.rax == nr::pause {
                process.task.signals.mask = 0;
            }
            let outcome = process.call(&mut host, &entry);
            assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
            let saved = process.save(&mut host).unwrap();
            let mut again = One::adopt(&saved, 0, &mut host).unwrap();
            let came = go(met_by_a_signal(&mut again, &mut host, &entry));
            let begins_again = restarts && entry.rax == nr::read;
            let fails = behind_handler(&mut host, &came, &entry, EINTR.rax() as i64);
            assert_eq!(fails, !begins_again, "call {}", entry.rax);
            // `SIGKILL` does not wait for the call.
            let mut again = One::adopt(&saved, 0, &mut host).unwrap();
            send(&mut again, sig::KILL);
            let One { task, system } = &mut again;
            let outcome = emulate::interrupt(task, system, &mut host, &entry);
            assert!(matches!(outcome, Outcome::End(Status::Killed(9))));
        }
    }
}

/// What a call has done before the process was saved in it is done once: a started child, sent bytes.
#[test]
fn a_restored_call_keeps_what_it_has_done() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    handle(&mut process, &mut host, SA_RESTART);
    let pair = [1, 1, 0, EXAMPLE + 0x800];
    assert_eq!(process.result(&mut host, nr::socketpair, &pair), 0);
    let socket = word(&mut host, EXAMPLE + 0x800) & 0xffff_ffff;
    let send = registers(nr::sendto, &[socket, AT, LARGE, 0, 0, 0]);
    let outcome = process.call(&mut host, &send);
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let sent = process.task.wait.unwrap().progress;
    assert!(sent > 0 && sent < LARGE);
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    let mut on_stack = send;
    on_stack.rsp = AT + 2 * LARGE;
    again.task.wait.as_mut().unwrap().key[1] = on_stack.rsp;
    let came = go(met_by_a_signal(&mut again, &mut host, &on_stack));
    let rule = "S3: what is sent is sent once";
    let says = behind_handler(&mut host, &came, &send, sent as i64);
    assert!(says, "{rule}");

    let mut host = Fake::new();
    let mut process = handling(&mut host, SA_RESTART);
    let vfork = registers(nr::vfork, &[]);
    let outcome = process.call(&mut host, &vfork);
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let child = child_of(&mut process, &mut host);
    let tasks = [(FIRST, &process.task), (0x200, &child)];
    let saved = save(&tasks, None, &process.system, &mut host).unwrap();
    let mut system = System::new();
    let root = system.create(None).unwrap();
    let adopted = part::adopt(&saved, (1, 0), 0, root, &mut system, &mut host).unwrap();
    let mut tasks: Vec<Task> = adopted.tasks.into_iter().map(|one| one.task).collect();
    tasks.sort_by_key(|task| task.pid != root);
    let mut child = tasks.pop().unwrap();
    let task = tasks.pop().unwrap();
    let mut again = One { task, system };
    let outcome = met_by_a_signal(&mut again, &mut host, &vfork);
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let rule = "S3: vfork starts one child";
    assert!(host.born.is_empty(), "{rule}");
    let exit = registers(nr::exit, &[0]);
    emulate::call(&mut child, &mut again.system, &mut host, &exit);
    let came = go(again.call(&mut host, &vfork));
    let number = i64::from(child.number);
    assert!(behind_handler(&mut host, &came, &vfork, number), "{rule}");
}

/// Nothing is stored for a process that does not exist.
#[test]
fn nobody_leaves_nothing() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let before = process.system.count();
    process
        .system
        .process(77)
        .pending
        .add(USR1, Origin::default());
    assert_eq!(
        process.system.count(),
        before,
        "a process that is not there takes no place"
    );
    assert_eq!(process.system.process(77).pending.set(), 0);
}

/// Makes the process one with a session and a terminal of its own; returns descriptors of the terminal's two ends.
fn own_terminal(process: &mut One, host: &mut Fake) -> [u64; 2] {
    assert!(process.result(host, nr::fork, &[]) > 0);
    process.task = child_of(process, host);
    assert!(process.result(host, nr::setsid, &[]) > 0);
    let open = [linux::AT_FDCWD as u64, EXAMPLE, 2, 0];
    host.write_memory(EXAMPLE, b"/dev/ptmx\0").unwrap();
    let master = process.result(host, nr::openat, &open) as u64;
    words(host, EXAMPLE, &[0]);
    let unlock = [master, 0x4004_5431, EXAMPLE];
    assert_eq!(process.result(host, nr::ioctl, &unlock), 0);
    host.write_memory(EXAMPLE, b"/dev/pts/0\0").unwrap();
    let slave = process.result(host, nr::openat, &open);
    assert!(slave > master as i64);
    [master, slave as u64]
}

/// A write to a terminal that hangs up meanwhile returns what was written; the next one fails.
#[test]
fn what_a_terminal_took_before_it_hung_up_was_written() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [master, slave] = own_terminal(&mut process, &mut host);
    let page = EXAMPLE + 0x1000;
    host.write_memory(page, &[b'a'; 4096]).unwrap();
    for place in 0..20 {
        words(&mut host, EXAMPLE + 0x2000 + 16 * place, &[page, 4096]);
    }
    let write = registers(nr::writev, &[slave, EXAMPLE + 0x2000, 20]);
    let mut outcome = process.call(&mut host, &write);
    while let Outcome::Turn = outcome {
        outcome = process.call(&mut host, &write);
    }
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    let written = process.task.wait.unwrap().progress;
    let wait = process.task.wait;
    assert_eq!(process.result(&mut host, nr::close, &[master]), 0);
    process.task.wait = wait;
    let came = go(process.call(&mut host, &write));
    assert_eq!((came.rax, written > 0), (written, true), "a short write");
    let failed = process.result(&mut host, nr::write, &[slave, page, 1]);
    assert_eq!(failed, -i64::from(crate::errno::EIO.0), "it has hung up");
}

/// A long text that is typed into a terminal which nobody reads is taken in turns, and a turn sends few signals.
#[test]
fn a_terminal_takes_a_long_text_in_turns() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [master, _] = own_terminal(&mut process, &mut host);
    // A page of Ctrl-C, 400 times.
    let page = EXAMPLE + 0x1000;
    host.write_memory(page, &[3; 4096]).unwrap();
    for place in 0..400 {
        words(&mut host, EXAMPLE + 0x2000 + 16 * place, &[page, 4096]);
    }
    let write = registers(nr::writev, &[master, EXAMPLE + 0x2000, 400]);
    let One { task, system } = &mut process;
    let outcome = emulate::call(task, system, &mut host, &write);
    assert!(
        matches!(outcome, Outcome::Turn),
        "a long text is typed in turns: {outcome:?}"
    );
    let (sent, turn) = (system.take_sent().len(), emulate::STEP / 16);
    let done = task.wait.unwrap().progress;
    assert_eq!(done, turn, "a long text is typed in turns");
    assert_eq!(sent, 1, "what is typed in one turn is signalled once");
    // The same in the smallest ranges, with three signals in each: the processes of a group are many.
    system.take_woken();
    host.write_memory(page, &[3, 28, 26]).unwrap();
    for place in 0..400 {
        words(&mut host, EXAMPLE + 0x2000 + 16 * place, &[page, 3]);
    }
    task.wait = None;
    let came = go(emulate::call(task, system, &mut host, &write));
    assert_eq!((came.rax, system.take_sent().len()), (1200, 3));
    assert!(system.take_woken().len() <= 4, "one wake-up for one write");
}

/// A handler returns to the whole of MXCSR: programs that treat denormals as zeros (`-ffast-math`) set its bit 6.
#[test]
fn a_handler_changes_no_rounding() {
    const FPU: usize = 1 + 5 + 23;
    const MXCSR: u32 = 0x9fc0;
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    send(&mut process, USR1);
    let came = go(process.call(&mut host, &registers(nr::getppid, &[])));
    let at = frame(&mut host, &came)[FPU];
    assert_ne!(at, 0, "the frame has the registers");
    host.write_memory(at + 24, &MXCSR.to_le_bytes()).unwrap();
    let mut back = registers(nr::rt_sigreturn, &[]);
    back.rsp = came.rsp + 8;
    let Outcome::Go { fpu: Some(fpu), .. } = process.call(&mut host, &back) else {
        panic!("the registers are loaded");
    };
    let loaded = u32::from_le_bytes(fpu.0[24..28].try_into().unwrap());
    assert_eq!(loaded, MXCSR, "A3: what a handler returns to");
}

/// A frame that does not fit onto the alternate stack is not written below it.
#[test]
fn a_frame_stays_on_its_stack() {
    const SA_ONSTACK: u64 = 0x0800_0000;
    let mut host = Fake::new();
    let mut process = handling(&mut host, SA_ONSTACK);
    let base = EXAMPLE + 0x2000;
    for (size, fits) in [(0x1000, true), (0x200, false)] {
        process.task.signals.stack = crate::signal::Stack { base, size };
        process.task.signals.mask = 0;
        send(&mut process, USR1);
        let outcome = process.call(&mut host, &registers(nr::getppid, &[]));
        let handles = matches!(outcome, Outcome::Go { registers, .. } if registers.rip == HANDLER);
        assert_eq!(
            handles, fits,
            "S2: what is below the stack is another's: {size}"
        );
    }
}

/// A process begins when it was forked, not when its tree was started.
#[test]
fn a_child_has_its_own_beginning() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert!(process.result(&mut host, nr::fork, &[]) > 0);
    let child = child_of(&mut process, &mut host);
    let [own, its] = [process.task.pid, child.pid].map(|pid| process.system.process(pid).started);
    assert!(its > own, "{own} {its}");
}

/// The superuser gives itself more descriptors again, up to what there is.
#[test]
fn a_limit_of_descriptors_can_be_raised_again() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let files = u64::from(linux::RLIMIT_NOFILE);
    for (limit, result) in [(256, 0), (1024, 0), (1025, -i64::from(EPERM.0))] {
        words(&mut host, EXAMPLE, &[limit, limit]);
        let set = process.result(&mut host, nr::setrlimit, &[files, EXAMPLE]);
        assert_eq!(set, result, "{limit}");
    }
}

/// Unlocking needs no room for a lock, unless it leaves one lock in two pieces.
#[test]
fn what_is_unlocked_is_unlocked() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let at = EXAMPLE + 0x800;
    let mut lock = |process: &mut One, kind: u32, start: u64, length: u64| {
        words(&mut host, at, &[u64::from(kind), start, length, 0]);
        process.result(&mut host, nr::fcntl, &[4, u64::from(linux::F_SETLK), at])
    };
    let mut made = 0;
    while lock(&mut process, linux::F_WRLCK, 10 * made, 3) == 0 {
        made += 1;
    }
    assert!(made > 16, "{made}");
    let full = -i64::from(ENOLCK.0);
    assert_eq!(
        lock(&mut process, linux::F_UNLCK, 1, 1),
        full,
        "two for one"
    );
    assert_eq!(
        lock(&mut process, linux::F_UNLCK, 0, 3),
        0,
        "who gives a lock up needs no room for another one"
    );
    assert_eq!(
        lock(&mut process, linux::F_UNLCK, 11, 1),
        0,
        "there is room now"
    );
    assert_eq!(lock(&mut process, linux::F_UNLCK, 10, 1), 0);
}

/// Advice that would keep memory from a child is refused, for the personality cannot follow it.
#[test]
fn what_a_child_is_not_to_have_is_not_promised() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for advice in [linux::MADV_DONTFORK, linux::MADV_WIPEONFORK] {
        let advise = [EXAMPLE, 0x1000, u64::from(advice)];
        let rule = "what madvise does not do it does not promise";
        assert_eq!(
            process.result(&mut host, nr::madvise, &advise),
            -i64::from(EINVAL.0),
            "{rule}"
        );
    }
}

/// A read of a pipe fills as many ranges as there are bytes for.
#[test]
fn a_pipe_fills_all_ranges() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [from, to] = pipe(&mut process, &mut host);
    host.write_memory(EXAMPLE, b"some bytes").unwrap();
    assert_eq!(process.result(&mut host, nr::write, &[to, EXAMPLE, 10]), 10);
    let [into, list] = [EXAMPLE + 0x1000, EXAMPLE + 0x2000];
    words(
        &mut host,
        list,
        &[into, 0, into, 4, into + 16, 3, into + 32, 8],
    );
    assert_eq!(process.result(&mut host, nr::readv, &[from, list, 4]), 10);
    let mut read = [0; 40];
    host.read_memory(into, &mut read).unwrap();
    assert_eq!(
        (&read[..4], &read[16..19], &read[32..35]),
        (&b"some"[..], &b" by"[..], &b"tes"[..])
    );
}

/// Real-time signals come as often as they were sent, in their order, each with its value, also after a restore; their
/// number is bounded.
#[test]
fn signals_of_real_time_are_queued() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (signal, info, set, zero) = (34, EXAMPLE + 0x800, EXAMPLE + 0x900, EXAMPLE + 0xa00);
    let own = u64::from(process.task.number);
    process.task.signals.mask = bit(34) | bit(USR1);
    let queue = |process: &mut One, host: &mut Fake, signal: u64, code: i32, value: u64| {
        let code = u64::from(code as u32);
        words(host, info, &[signal, code, own | 7 << 32, value]);
        process.result(host, nr::rt_sigqueueinfo, &[own, signal, info])
    };
    for value in [1 << 40 | 5, 3, 4] {
        assert_eq!(queue(&mut process, &mut host, signal, -1, value), 0);
        assert_eq!(
            queue(&mut process, &mut host, u64::from(USR1), -1, value),
            0
        );
    }
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    for process in [&mut process, &mut again] {
        let mut came = Vec::new();
        words(&mut host, set, &[bit(34) | bit(USR1), 0]);
        loop {
            let wait = [set, info, zero, 8];
            let signal = process.result(&mut host, nr::rt_sigtimedwait, &wait);
            if signal < 0 {
                break;
            }
            came.push((signal as u64, word(&mut host, info + 24)));
        }
        let rule = "signals of real time come as often as they were sent";
        let first = 1 << 40 | 5;
        assert_eq!(came, [(10, first), (34, first), (34, 3), (34, 4)], "{rule}");
    }
    let most = (0..)
        .take_while(|_| queue(&mut process, &mut host, signal, -1, 0) == 0)
        .count();
    assert_eq!(most, crate::signal::MAX_PENDING);
    let full = queue(&mut process, &mut host, signal, -1, 0);
    assert_eq!(full, -i64::from(EAGAIN.0), "not more than there may be");
    assert_eq!(
        process.result(&mut host, nr::kill, &[own, signal]),
        0,
        "but without a value"
    );
    // A process cannot tell another one that a signal is from the kernel.
    assert!(process.result(&mut host, nr::fork, &[]) > 0);
    let child = u64::from(child_of(&mut process, &mut host).number);
    for (code, refused) in [(0, true), (-6, true), (-1, false)] {
        words(&mut host, info, &[signal, u64::from(code as u32), own, 0]);
        let result = process.result(&mut host, nr::rt_sigqueueinfo, &[child, signal, info]);
        assert_eq!(
            result,
            if refused { -i64::from(EPERM.0) } else { 0 },
            "{code}"
        );
    }
}

/// Each timer has one pending signal, beside others of the same number; a signal from another source is pending once.
#[test]
fn timers_of_one_signal_each_have_theirs() {
    let mut pending = crate::signal::Pending::default();
    let of = |timer| Origin {
        code: linux::SI_TIMER,
        pid: timer,
        timer: Some(timer),
        ..Origin::default()
    };
    pending.add(USR1, Origin::default());
    pending.add(USR1, of(3));
    pending.add(USR1, of(4));
    pending.add(USR1, Origin::default());
    assert_eq!((pending.count(bit(USR1)), pending.is_sound()), (3, true));
    assert!(pending.add_overrun(4, 9) && !pending.add_overrun(5, 9));
    assert!(pending.has_of_timer(3) && !pending.has_of_timer(5));
    let taken = core::iter::from_fn(|| pending.take(USR1));
    let taken: Vec<_> = taken.map(|o| (o.code, o.pid, o.uid)).collect();
    assert_eq!(taken, [(0, 0, 0), (-2, 3, 0), (-2, 4, 9)]);
    assert_eq!(pending.set(), 0);
    // A signal whose sender only claims to be a timer is not a timer's.
    pending.add(USR1, of(3));
    let forged = Origin {
        timer: None,
        ..of(4)
    };
    pending.add(USR1, forged);
    pending.add(40, forged);
    pending.add(40, of(5));
    let rule = "a signal is pending once, but for those of timers";
    assert_eq!(pending.count(bit(USR1)), 1, "{rule}");
    assert!(!pending.add_overrun(4, 1), "{rule}");
    // A new program has no pending signals of the old one's timers.
    pending.forget_timers();
    assert_eq!((pending.set(), pending.count(u64::MAX)), (bit(40), 1));
}

/// Ignoring a signal drops all that are pending.
#[test]
fn ignoring_a_signal_drops_all_of_it() {
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    let queued = 40;
    process.task.signals.mask = bit(queued);
    for _ in 0..3 {
        send(&mut process, queued);
        process.task.signals.pending.add(queued, Origin::default());
    }
    words(&mut host, EXAMPLE, &[1, SA_RESTORER, EXAMPLE, 0]);
    let act = [u64::from(queued), EXAMPLE, 0, 8];
    assert_eq!(process.result(&mut host, nr::rt_sigaction, &act), 0);
    let left = process.system.process(process.task.pid).pending.set();
    assert_eq!((left, process.task.signals.pending.set()), (0, 0));
}

/// Pages of memory objects are given back in turns; a range that several areas show is one request, and no handler runs
/// between turns.
#[test]
fn pages_of_objects_are_given_back_in_turns() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let count = 3 * crate::calls::memory::RANGES_AT_ONCE as u64;
    host.write_memory(0x10_0000, b"memory\0").unwrap();
    let fd = process.result(&mut host, nr::memfd_create, &[0x10_0000, 0]) as u64;
    let size = [fd, count * PAGE];
    assert_eq!(process.result(&mut host, nr::ftruncate, &size), 0);
    let shared = u64::from(linux::MAP_SHARED);
    let map = |process: &mut One, host: &mut Fake, at: u64, pages: u64, flags: u32| {
        let flags = shared | u64::from(flags);
        process.result(host, nr::mmap, &[at, pages * PAGE, 3, flags, fd, 0]) as u64
    };
    let advice = u64::from(linux::MADV_REMOVE);
    // One mapping that is many areas.
    let whole = map(&mut process, &mut host, 0, count, 0);
    for page in (0..count).step_by(2) {
        let protect = [whole + page * PAGE, PAGE, 7];
        assert_eq!(process.result(&mut host, nr::mprotect, &protect), 0);
    }
    let id = process
        .memory()
        .areas
        .find(whole)
        .unwrap()
        .object()
        .unwrap();
    host.write_object(id, 7 * PAGE, b"theirs").unwrap();
    let remove = [whole, count * PAGE, advice];
    assert_eq!(process.result(&mut host, nr::madvise, &remove), 0);
    let mut left = [1];
    host.read_object(id, 7 * PAGE, &mut left).unwrap();
    assert_eq!(left, [0]);
    // Every area shows the first page.
    for page in 0..count {
        map(
            &mut process,
            &mut host,
            whole + page * PAGE,
            1,
            linux::MAP_FIXED,
        );
    }
    let entry = registers(nr::madvise, &remove);
    let mut turns = 0;
    let result = loop {
        match process.attempt(&mut host, &entry) {
            Outcome::Turn => turns += 1,
            Outcome::Go { registers, .. } => break registers.rax,
            outcome => panic!("{outcome:?}"),
        }
        let actions = Rc::clone(&process.task.shares.actions);
        let handler = crate::signal::Action {
            handler: 0x10_0000,
            ..Default::default()
        };
        actions.borrow_mut().set(10, handler);
        process
            .task
            .signals
            .post(&actions.borrow(), 10, Origin::default());
        let One { task, system } = &mut process;
        let outcome = emulate::interrupt(task, system, &mut host, &entry);
        assert!(matches!(outcome, Outcome::Go { registers, .. } if registers == entry));
        process.task.signals.pending.take_all(bit(10));
    };
    assert_eq!((result, turns), (0, 2));
    // Memory that is no object's, or may only be read, is refused.
    let refused = EINVAL.rax() as i64;
    assert_eq!(
        process.result(&mut host, nr::mprotect, &[whole, PAGE, 1]),
        0
    );
    assert_eq!(process.result(&mut host, nr::madvise, &remove), refused);
    let own = [0x10_0000, PAGE, advice];
    assert_eq!(process.result(&mut host, nr::madvise, &own), refused);
}

/// An image can claim that a call has done more than its range, or a part of a page: only pages of the range are given
/// back.
#[test]
fn a_wait_beyond_its_range_gives_nothing_back() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let flags = u64::from(linux::MAP_SHARED | linux::MAP_ANONYMOUS);
    let map = [0, 4 * PAGE, 3, flags, u64::MAX, 0];
    let at = process.result(&mut host, nr::mmap, &map) as u64;
    let id = process.memory().areas.find(at).unwrap().object().unwrap();
    for page in 0..4 {
        host.write_object(id, page * PAGE, b"theirs").unwrap();
    }
    let remove = [at, PAGE, u64::from(linux::MADV_REMOVE)];
    let entry = registers(nr::madvise, &remove);
    let wait = |progress| crate::process::Wait {
        progress,
        ..crate::process::Wait::new(emulate::key_of(&entry))
    };
    let left = |host: &mut Fake| {
        let mut left = [0; 4];
        for (page, byte) in (0..).zip(&mut left) {
            let byte = core::slice::from_mut(byte);
            host.read_object(id, page * PAGE, byte).unwrap();
        }
        left
    };
    for progress in [PAGE, 2 * PAGE, 2 * PAGE + 1, u64::MAX] {
        process.task.wait = Some(wait(progress));
        let outcome = process.attempt(&mut host, &entry);
        let value = |outcome| match outcome {
            Outcome::Go { registers, .. } => Some(registers.rax),
            _ => None,
        };
        assert_eq!(value(outcome), Some(0), "S1: {progress} bytes are done");
        assert_eq!(left(&mut host), [b't'; 4], "S1: {progress} bytes are done");
    }
    // A part of a page that is done counts as nothing.
    process.task.wait = Some(wait(1));
    assert!(matches!(
        process.attempt(&mut host, &entry),
        Outcome::Go { .. }
    ));
    let rule = "S1: a part of a page is done";
    assert_eq!(left(&mut host), [0, b't', b't', b't'], "{rule}");
}

/// A frame in which a handler returns has no step flag of a debugger, who may be gone by then.
#[test]
fn a_debuggers_step_is_in_no_frame() {
    use crate::trace::STEP_FLAG;
    // Words of the frame before the flags: the return address, five words of `ucontext`, and seventeen registers.
    const FLAGS: usize = 1 + 5 + 17;
    let mut host = Fake::new();
    let mut process = handling(&mut host, 0);
    for by_debugger in [true, false] {
        process.task.signals.steps = by_debugger;
        let in_frame = if by_debugger { 0 } else { STEP_FLAG };
        let rule = format!("S3: a step of the debugger ({by_debugger}) is no state of the program");
        for is_call in [true, false] {
            process.task.signals.mask = 0;
            send(&mut process, USR1);
            let mut entry = registers(nr::getppid, &[]);
            entry.rflags |= STEP_FLAG;
            let outcome = match is_call {
                true => process.call(&mut host, &entry),
                false => {
                    let (task, system) = (&mut process.task, &mut process.system);
                    emulate::interrupt(task, system, &mut host, &entry)
                }
            };
            let came = go(outcome);
            assert_eq!(came.rip, HANDLER);
            let kept = frame(&mut host, &came)[FLAGS];
            assert_eq!(kept & STEP_FLAG, in_frame, "{rule}");
            let goes_on = came.rflags & STEP_FLAG != 0;
            assert_eq!(
                goes_on, by_debugger,
                "a debugger's step goes on in the handler"
            );
            // The handler returns, with a debugger's next step or without.
            for step in [STEP_FLAG, 0] {
                let mut back = registers(nr::rt_sigreturn, &[]);
                back.rsp = came.rsp + 8;
                back.rflags |= step;
                let went = go(process.call(&mut host, &back));
                assert_eq!(went.rsp, entry.rsp);
                let steps = if by_debugger { step } else { STEP_FLAG };
                assert_eq!(went.rflags & STEP_FLAG, steps, "{rule}");
            }
        }
    }
}
