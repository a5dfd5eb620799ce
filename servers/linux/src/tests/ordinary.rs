//! Calls that ordinary programs make beside reading and writing.

use super::*;
use linux_raw_sys::ioctl;
use std::format;

const TEXT: u64 = 0x10_0000;
const INTO: u64 = 0x10_1000;

/// A call whose first argument is this path, followed by `further`.
fn on_path(one: &mut One, host: &mut Fake, number: u64, path: &str, further: &[u64]) -> i64 {
    let bytes = format!("{path}\0");
    host.write_memory(TEXT, bytes.as_bytes()).unwrap();
    let arguments: Vec<u64> = [TEXT].iter().chain(further).copied().collect();
    one.result(host, number, &arguments)
}

/// Servers set who gets the signals of their descriptors (`F_SETOWN`, `F_SETSIG`), and give up if that fails.
#[test]
fn who_is_told_of_a_descriptor_is_kept() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe, &[INTO]), 0);
    let mut fds = [0; 4];
    host.read_memory(INTO, &mut fds).unwrap();
    let fd = u64::from(u32::from_le_bytes(fds));
    let own = u64::from(process.task.number);
    let asynchronous = |one: &mut One, host: &mut Fake, fd: u64, on: u8| {
        host.write_memory(TEXT, &[on, 0, 0, 0]).unwrap();
        one.result(host, nr::ioctl, &[fd, u64::from(ioctl::FIOASYNC), TEXT])
    };
    let control = |one: &mut One, host: &mut Fake, command: u32, argument: u64| {
        one.result(host, nr::fcntl, &[fd, u64::from(command), argument])
    };
    for (on, flag) in [(1, open_flags::FASYNC), (0, 0)] {
        assert_eq!(asynchronous(&mut process, &mut host, fd, on), 0);
        let flags = control(&mut process, &mut host, linux::F_GETFL, 0);
        assert_eq!(flags as u32 & open_flags::FASYNC, flag);
    }
    let refused = ENOTTY.rax() as i64;
    assert_eq!(asynchronous(&mut process, &mut host, 4, 1), refused);
    let group = -(process.system.find(process.task.pid).unwrap().group as i32);
    let none = ESRCH.rax() as i64;
    let bad = EINVAL.rax() as i64;
    for (command, argument, result) in [
        (linux::F_GETOWN, 0, 0),
        (linux::F_SETOWN, own, 0),
        (linux::F_GETOWN, 0, own as i64),
        (linux::F_SETOWN, u64::from(group as u32), 0),
        (linux::F_GETOWN, 0, i64::from(group)),
        (linux::F_SETOWN, 4711, none),
        (linux::F_SETOWN, u64::from(i32::MIN as u32), bad),
        (linux::F_SETSIG, 65, bad),
        (linux::F_SETSIG, 40, 0),
        (linux::F_GETSIG, 0, 40),
        (linux::F_GETOWN_EX, INTO, 0),
        (linux::F_SETOWN_EX, INTO, 0),
        (linux::F_GETOWN, 0, i64::from(group)),
    ] {
        let got = control(&mut process, &mut host, command, argument);
        assert_eq!(got, result, "{command} {argument}");
    }
    let mut words = [0; 8];
    host.read_memory(INTO, &mut words).unwrap();
    assert_eq!(words[..4], [2, 0, 0, 0]);
    // An image has the owner and the signal.
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(control(&mut again, &mut host, linux::F_GETSIG, 0), 40);
    // An owner of an unknown kind cannot be saved.
    process.files().fds[fd as u32]
        .description
        .borrow_mut()
        .owner = Some(Box::new(crate::process::AsyncOwner {
        kind: 3,
        ..Default::default()
    }));
    assert!(process.save(&mut host).is_err());
}

/// Symbolic links can lead to names that the file server does not know, as `/dev/stdout`, and paths can go through
/// links of `/proc`.
#[test]
fn links_lead_to_names_that_are_no_files() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe, &[INTO]), 0);
    let mut fds = [0; 8];
    host.read_memory(INTO, &mut fds).unwrap();
    let (reader, writer) = (u64::from(fds[0]), u64::from(fds[4]));
    let dup = [writer, 1];
    assert_eq!(process.result(&mut host, nr::dup2, &dup), 1);
    for (target, link) in [
        ("/dev/stdout", "/tmp/out"),
        ("out", "/tmp/further"),
        ("/proc/self/fd/1", "/tmp/one"),
        ("/tmp/new", "/tmp/dangling"),
        ("/proc/self/cwd/file", "/tmp/way"),
        ("circle", "/tmp/circle"),
    ] {
        host.write_memory(INTO, format!("{link}\0").as_bytes())
            .unwrap();
        let made = on_path(&mut process, &mut host, nr::symlink, target, &[INTO]);
        assert_eq!(made, 0);
    }
    let made = u64::from(open_flags::WRONLY | open_flags::CREAT | open_flags::APPEND);
    let plain = u64::from(open_flags::WRONLY);
    for link in ["/tmp/out", "/tmp/further", "/tmp/one"] {
        for flags in [made, plain] {
            let fd = on_path(&mut process, &mut host, nr::open, link, &[flags, 0o600]);
            assert!(fd > 1, "{link} {flags:#x}: {fd}");
            let write = [fd as u64, TEXT, 1];
            assert_eq!(process.result(&mut host, nr::write, &write), 1);
            let read = [reader, INTO, 10];
            assert_eq!(process.result(&mut host, nr::read, &read), 1);
            assert_eq!(process.result(&mut host, nr::close, &[fd as u64]), 0);
        }
        let stat = on_path(&mut process, &mut host, nr::stat, link, &[INTO]);
        assert_eq!(stat, 0, "{link}");
        let mut mode = [0; 4];
        host.read_memory(INTO + 24, &mut mode).unwrap();
        assert_eq!(u32::from_le_bytes(mode) & 0o170_000, 0o010_000, "{link}");
    }
    assert!(host.files.borrow_mut().stat("/dev/stdout", false).is_err());
    // Dangling and circular links, and `O_NOFOLLOW`, are as usual.
    let fd = on_path(&mut process, &mut host, nr::open, "/tmp/dangling", &[plain]);
    assert_eq!(fd, ENOENT.rax() as i64);
    let fd = on_path(
        &mut process,
        &mut host,
        nr::open,
        "/tmp/dangling",
        &[made, 0o600],
    );
    assert!(fd > 1 && host.files.borrow_mut().stat("/tmp/new", false).is_ok());
    for flags in [made, plain] {
        let fd = on_path(&mut process, &mut host, nr::open, "/tmp/circle", &[flags]);
        assert_eq!(fd, ELOOP.rax() as i64);
    }
    let refused = made | u64::from(open_flags::NOFOLLOW);
    let fd = on_path(&mut process, &mut host, nr::open, "/tmp/out", &[refused]);
    assert_eq!(fd, ELOOP.rax() as i64);
    // Paths through links of `/proc` and `/dev/fd`.
    let directory = on_path(&mut process, &mut host, nr::open, "/tmp", &[0]);
    let number = process.task.number;
    for way in [
        String::from("/tmp/way"),
        String::from("/proc/self/cwd/file"),
        format!("/proc/{number}/cwd/./file"),
        String::from("/proc/self/root/tmp/file"),
        String::from("/proc/self/root/proc/self/cwd/file"),
        format!("/proc/self/fd/{directory}/file"),
        format!("/dev/fd/{directory}/file"),
    ] {
        let fd = on_path(&mut process, &mut host, nr::open, &way, &[0]);
        assert!(fd > 1, "{way}: {fd}");
        let stat = on_path(&mut process, &mut host, nr::stat, &way, &[INTO]);
        assert_eq!(stat, 0, "{way}");
    }
    for (way, errno) in [
        ("/proc/self/fd/4/file", ENOTDIR),
        ("/proc/self/fd/99/file", ENOENT),
        ("/proc/self/exe/file", ENOENT),
        ("/proc/4711/cwd/file", ENOENT),
    ] {
        let fd = on_path(&mut process, &mut host, nr::open, way, &[0]);
        assert_eq!(fd, errno.rax() as i64, "{way}");
    }
}

/// Seeking to a place in an open directory finds the entries from there on.
#[test]
fn a_place_in_a_directory_is_found_again() {
    const FILES: usize = 1_500;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.session.mkdir(0o700, "/tmp/many").unwrap();
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    for n in 0..FILES {
        let path = format!("/tmp/many/{n:05}");
        let (ino, ..) = host.session.open_file(create.bits(), 0o600, &path).unwrap();
        host.session.close(ino).unwrap();
    }
    let fd = on_path(&mut process, &mut host, nr::open, "/tmp/many", &[0]) as u64;
    // The next entries, each with its name and the place behind it, and the number of turns.
    let list = |one: &mut One, host: &mut Fake| {
        let entry = registers(nr::getdents64, &[fd, INTO, 700]);
        let (got, turns) = loaded_in_turns(one, host, &entry);
        let mut bytes = vec![0; got as usize];
        host.read_memory(INTO, &mut bytes).unwrap();
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let place = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
            let length = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
            let name = bytes[19..length].split(|byte| *byte == 0).next().unwrap();
            entries.push((String::from_utf8(name.to_vec()).unwrap(), place));
            bytes.drain(..length);
        }
        (entries, turns)
    };
    let mut all = Vec::new();
    loop {
        let (entries, _) = list(&mut process, &mut host);
        if entries.is_empty() {
            break;
        }
        all.extend(entries);
    }
    assert_eq!(all.len(), FILES + 2);
    let mut most = 0;
    for at in [700, 3, 0, 1, 62, 64, 1_499, 59, 60, 61] {
        let seek = [fd, all[at].1, 0];
        assert_eq!(
            process.result(&mut host, nr::lseek, &seek),
            all[at].1 as i64
        );
        let mut from = at + 1;
        for _ in 0..2 {
            let (entries, turns) = list(&mut process, &mut host);
            most = most.max(turns);
            assert_eq!(entries[..], all[from..from + entries.len()], "{at}");
            assert!(!entries.is_empty() || from == all.len());
            from += entries.len();
        }
    }
    assert!(most > 1, "others have had their turns");
    let seek = [fd, 1 << 20, 0];
    assert_eq!(process.result(&mut host, nr::lseek, &seek), 1 << 20);
    assert!(list(&mut process, &mut host).0.is_empty());
}

/// Makes a call that is done in turns: its result, and the number of attempts.
fn loaded_in_turns(process: &mut One, host: &mut Fake, entry: &Registers) -> (i64, u32) {
    for turns in 1.. {
        match process.attempt(host, entry) {
            Outcome::Turn => {}
            Outcome::Go { registers, .. } => return (registers.rax as i64, turns),
            outcome => panic!("{outcome:?}"),
        }
    }
    unreachable!()
}

/// Profilers set timers by processor time. They go by the clock, each with its own signal.
#[test]
fn there_are_three_timers_of_setitimer() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (new, old) = (TEXT, INTO);
    for which in 0..3u64 {
        let words = [0, 10 * (which + 1), 1 + which, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        host.write_memory(new, &bytes).unwrap();
        let set = [which, new, old];
        assert_eq!(process.result(&mut host, nr::setitimer, &set), 0);
    }
    let timers = &mut process.system.process(process.task.pid).timers;
    assert_eq!(timers.armed(), 3);
    let rung = timers.ring(host.now + 2_000_000_000, 0, |_, _, _| false);
    let signals: Vec<u32> = rung.iter().map(|rung| rung.signal).collect();
    assert_eq!(signals, [sig::ALRM, sig::VTALRM]);
    for which in 0..3 {
        assert_eq!(process.result(&mut host, nr::getitimer, &[which, old]), 0);
        let mut interval = [0; 16];
        host.read_memory(old, &mut interval).unwrap();
        assert_eq!(u64::from(interval[8]), 10 * (which + 1));
    }
    let saved = process.save(&mut host).unwrap();
    let again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(again.system.find(again.task.pid).unwrap().timers.armed(), 3);
    let bad = EINVAL.rax() as i64;
    assert_eq!(process.result(&mut host, nr::setitimer, &[3, 0, 0]), bad);
    assert_eq!(process.result(&mut host, nr::getitimer, &[3, old]), bad);
}

#[test]
fn shared_anonymous_memory_begins_at_its_beginning() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let flags = u64::from(linux::MAP_SHARED | linux::MAP_ANONYMOUS);
    for offset in [PAGE, 1 << 62] {
        let map = [0, PAGE, 3, flags, u64::MAX, offset];
        let at = process.result(&mut host, nr::mmap, &map);
        assert!(at > 0, "{at}");
        let source = process.memory().areas.find(at as u64).unwrap().source();
        let begins = matches!(source, crate::memory::Source::Object { offset: 0, .. });
        assert!(begins, "{source:?}");
    }
}

/// A position-independent image of one segment at this address, whose entry is `entry` bytes behind that.
fn image_at(address: u64, entry: u64) -> Vec<u8> {
    let mut elf = tiny_elf();
    elf[16] = 3;
    elf[24..32].copy_from_slice(&address.wrapping_add(entry).to_le_bytes());
    elf[80..88].copy_from_slice(&address.to_le_bytes());
    elf
}

/// A program with an interpreter, whose name is in its segment.
fn with_interpreter(path: &str) -> Vec<u8> {
    let mut elf = tiny_elf();
    elf[56] = 2;
    let mut headers = elf.split_off(64);
    headers.truncate(56);
    let name = format!("{path}\0");
    let place = 64 + 2 * 56u64;
    let mut second = std::vec![0; 56];
    second[0] = 3;
    second[8..16].copy_from_slice(&place.to_le_bytes());
    second[32..40].copy_from_slice(&(name.len() as u64).to_le_bytes());
    elf.extend(headers);
    elf.extend(second);
    elf.extend(name.bytes());
    elf
}

/// An interpreter's address can be where no program has room: it is moved, as any other, or refused.
#[test]
fn an_interpreter_can_be_at_any_address() {
    const TOP: u64 = crate::memory::MMAP_TOP;
    for (address, entry, runs) in [
        (0, 0x78, true),
        (0x40_0000, 0x78, true),
        (TOP - 0x1000, 0x78, true),
        (TOP, 0x78, true),
        (0xf_0000_0000, 0x78, true),
        ((1 << 36) - 0x3000, 0x78, true),
        ((1 << 36) - 0x1000, 0x78, false),
        (1 << 46, 0, false),
        (0x40_0000, 0x4000, false),
        (0xf_0000_0000, 0u64.wrapping_sub(0x1000), false),
    ] {
        let mut host = Fake::new();
        let mut process = One::new("/");
        add_program(&mut host, &with_interpreter("/tmp/ld"));
        add_executable(&mut host, "/tmp/ld", &image_at(address, entry));
        let args = std::vec![b"program".to_vec()];
        match process.prepare(&mut host, "/tmp/program", args) {
            Ok(prepared) => {
                assert!(runs, "{address:#x} + {entry:#x}");
                let start = process.commit(&mut host, prepared).unwrap();
                let areas = &process.memory().areas;
                assert!(
                    areas.allows(start.rip, 2, crate::memory::EXECUTE),
                    "{address:#x}"
                );
                host.agrees_with(areas);
            }
            Err(failure) => assert!(!runs, "{address:#x}: {}", failure.sentence),
        }
    }
}

/// A supervisor finds a process by its name, which for a script is the script's; and a program without arguments gets
/// one.
#[test]
fn a_script_has_its_own_name_and_everybody_has_an_argument() {
    let mut host = Fake::new();
    let mut process = One::new("/");
    add_program(&mut host, &tiny_elf());
    add_executable(&mut host, "/tmp/script.sh", b"#!/tmp/program\n");
    let args = std::vec![b"name".to_vec()];
    let prepared = process.prepare(&mut host, "/tmp/script.sh", args).unwrap();
    process.commit(&mut host, prepared).unwrap();
    assert_eq!(process.task.shown.comm().as_slice(), b"script.sh");
    assert_eq!(process.memory().exe, "/tmp/program");
    let prepared = process
        .prepare(&mut host, "/tmp/program", Vec::new())
        .unwrap();
    let start = process.commit(&mut host, prepared).unwrap();
    let mut count = [0; 8];
    host.read_memory(start.rsp, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 1, "arguments");
}

#[test]
fn a_place_that_cannot_be_is_no_reason_not_to_map() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let private = u64::from(linux::MAP_PRIVATE | linux::MAP_ANONYMOUS);
    for hint in [0u64.wrapping_sub(PAGE), u64::MAX, crate::memory::MMAP_TOP] {
        let at = process.result(
            &mut host,
            nr::mmap,
            &[hint, 2 * PAGE, 3, private, u64::MAX, 0],
        );
        assert!(at > 0, "{hint:#x}: {at}");
    }
}

/// A place far behind in a long list is looked for in turns.
#[test]
fn a_far_place_in_maps_is_looked_for_in_turns() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let private = u64::from(linux::MAP_PRIVATE | linux::MAP_ANONYMOUS);
    let at = process.result(
        &mut host,
        nr::mmap,
        &[0, 4000 * PAGE, 3, private, u64::MAX, 0],
    ) as u64;
    for n in 0..2000 {
        let page = at + 2 * n * PAGE;
        assert_eq!(process.result(&mut host, nr::mprotect, &[page, PAGE, 1]), 0);
    }
    let fd = on_path(
        &mut process,
        &mut host,
        nr::open,
        "/proc/self/maps",
        &[0, 0],
    ) as u64;
    let entry = registers(nr::pread64, &[fd, INTO, 1, 1 << 40]);
    let mut turns = 0;
    let got = loop {
        let One { task, system } = &mut process;
        match emulate::call(task, system, &mut host, &entry) {
            Outcome::Turn => turns += 1,
            Outcome::Go { registers, .. } => break registers.rax,
            outcome => panic!("{outcome:?}"),
        }
        assert!(turns < 20, "it comes to an end");
    };
    assert_eq!(got, 0);
    assert_eq!(turns, 8, "of some 4,000 lines");
}

/// Threads that end with their process share one bound of entries of their lists of robust locks.
#[test]
fn the_lists_of_those_that_end_together_have_one_bound() {
    use crate::calls::futex;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (head, entry) = (TEXT + 0x100, TEXT + 0x200);
    for word in [head, entry] {
        host.write_memory(word, &entry.to_le_bytes()).unwrap();
    }
    host.write_memory(head + 8, &[0; 16]).unwrap();
    process.task.robust = head;
    let mut entries = 3000;
    futex::leave(&process.task, &mut process.system, &mut host, &mut entries);
    assert_eq!(entries, 0, "a circle is walked as long as it may be");
    futex::leave(&process.task, &mut process.system, &mut host, &mut entries);
    assert_eq!(entries, 0);
}

/// Whatever the arguments are, the title of a process is short enough for an image.
#[test]
fn a_title_is_not_too_long() {
    use crate::process::MAX_TITLE;
    let long = std::vec![b'a'; MAX_TITLE - 4];
    let empty: Vec<&[u8]> = std::vec![b""; 2000];
    let full: Vec<&[u8]> = std::vec![&long, b"bbb", b"c", b"d"];
    for args in [&empty, &full] {
        let title = crate::exec::title(args.iter().copied());
        assert!(title.len() <= MAX_TITLE, "{} bytes", title.len());
    }
    assert_eq!(
        crate::exec::title([&b"a"[..], b"", b"b"].into_iter()),
        "a  b"
    );
}

/// Segments must not overlap, for a small file would be read as often as it has segments.
#[test]
fn segments_do_not_lie_upon_each_other() {
    let size = 0x8000u64;
    for (count, runs) in [(1u8, true), (2, false), (60, false)] {
        let mut elf = tiny_elf();
        let mut header = elf.split_off(64);
        header.truncate(56);
        for at in [32, 40] {
            header[at..at + 8].copy_from_slice(&size.to_le_bytes());
        }
        elf[56] = count;
        for _ in 0..count {
            elf.extend(&header);
        }
        elf.resize(size as usize, 0);
        let mut host = Fake::new();
        let process = &mut One::new("/");
        add_program(&mut host, &elf);
        let args = std::vec![b"program".to_vec()];
        let prepared = process.prepare(&mut host, "/tmp/program", args);
        assert_eq!(prepared.is_ok(), runs, "{count} segments");
    }
}

/// Many mapped files that are written back by one call have a turn each.
#[test]
fn many_files_are_written_back_in_turns() {
    const FILES: u64 = 6;
    const SIZE: u64 = 1 << 20;
    let mut host = Fake::new();
    let mut one = example(&mut host);
    let mut places = Vec::new();
    for n in 0..FILES {
        let flags = u64::from(linux::O_RDWR | linux::O_CREAT);
        let path = format!("/tmp/mapped{n}");
        let fd = on_path(&mut one, &mut host, nr::open, &path, &[flags, 0o600]) as u64;
        assert_eq!(one.result(&mut host, nr::ftruncate, &[fd, SIZE]), 0);
        let map = [0, SIZE, 3, linux::MAP_SHARED.into(), fd, 0];
        places.push(one.result(&mut host, nr::mmap, &map) as u64);
    }
    let (first, last) = (places[FILES as usize - 1], places[0]);
    assert_eq!(last - first, (FILES - 1) * SIZE, "they are side by side");
    let sync = registers(nr::msync, &[first, FILES * SIZE, linux::MS_SYNC.into()]);
    let parked = one.call(&mut host, &sync);
    assert!(matches!(parked, Outcome::Park(_)), "{parked:?}");
    let mut turns = 0;
    while one.system.objects.is_due() {
        one.system.settle_objects(&mut host);
        turns += 1;
    }
    assert!(turns >= FILES - 1, "S1: {turns} turns for {FILES} files");
    let done = one.call(&mut host, &sync);
    assert!(matches!(done, Outcome::Go { registers, .. } if registers.rax == 0));
}

/// A second `listen` with a longer queue wakes a caller that waits to connect.
#[test]
fn a_longer_queue_wakes_who_waits_to_connect() {
    const NAME: u64 = 0x10_0000;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(NAME, b"\x01\0\0name").unwrap();
    let socket =
        |process: &mut One, host: &mut Fake| process.result(host, nr::socket, &[1, 1, 0]) as u64;
    let listener = socket(&mut process, &mut host);
    assert_eq!(process.result(&mut host, nr::bind, &[listener, NAME, 7]), 0);
    assert_eq!(process.result(&mut host, nr::listen, &[listener, 0]), 0);
    let first = socket(&mut process, &mut host);
    assert_eq!(process.result(&mut host, nr::connect, &[first, NAME, 7]), 0);
    let second = socket(&mut process, &mut host);
    let connect = registers(nr::connect, &[second, NAME, 7]);
    let Outcome::Park(wake) = process.call(&mut host, &connect) else {
        panic!("the queue is full")
    };
    let is_woken = |process: &mut One, wake: &emulate::Wake| {
        let woken = process.system.take_woken();
        woken.iter().any(|(key, _)| wake.keys.contains(key))
    };
    is_woken(&mut process, &wake);
    let listen = |process: &mut One, host: &mut Fake, most| {
        process.result_beside(host, nr::listen, &[listener, most])
    };
    assert_eq!(listen(&mut process, &mut host, 0), 0);
    assert!(!is_woken(&mut process, &wake));
    assert_eq!(listen(&mut process, &mut host, 1), 0);
    assert!(is_woken(&mut process, &wake), "A8: a lost wake-up");
    assert!(
        matches!(process.call(&mut host, &connect), Outcome::Go { registers, .. } if registers.rax == 0)
    );
}

/// A host with a disk, which answers late if `late`; a process; and its descriptor of a file on the disk.
fn with_disk(late: bool) -> (Fake, One, u64) {
    let mut host = Fake::new();
    (host.disk, host.late) = (true, late.then(Late::new));
    let mut process = example(&mut host);
    host.session.mkdir(0o755, "/tmp/disk").unwrap();
    let made = u64::from(open_flags::RDWR | open_flags::CREAT);
    let fd = until_done(
        &mut process,
        &mut host,
        nr::open,
        "/disk/log",
        &[made, 0o600],
    );
    assert!(fd >= 0, "{fd}");
    (host, process, fd as u64)
}

/// A call on a path that may wait for the disk.
fn until_done(one: &mut One, host: &mut Fake, number: u64, path: &str, further: &[u64]) -> i64 {
    host.write_memory(TEXT, format!("{path}\0").as_bytes())
        .unwrap();
    let arguments: Vec<u64> = [TEXT].iter().chain(further).copied().collect();
    until_answered(one, host, number, &arguments)
}

fn until_answered(one: &mut One, host: &mut Fake, number: u64, arguments: &[u64]) -> i64 {
    for _ in 0..20 {
        match one.call(host, &registers(number, arguments)) {
            Outcome::Go { registers, .. } => return registers.rax as i64,
            Outcome::Park(_) => assert!(host.late.is_some()),
            other => panic!("{other:?}"),
        }
    }
    panic!("it waits for ever");
}

/// `sync` and `syncfs` make durable what is open on the disk.
#[test]
fn sync_makes_durable_what_is_open_on_the_disk() {
    for late in [false, true] {
        let (mut host, mut process, fd) = with_disk(late);
        let opens = host.opens;
        assert_eq!(until_answered(&mut process, &mut host, nr::sync, &[]), 0);
        assert_eq!(host.syncs, 1);
        assert_eq!(
            until_answered(&mut process, &mut host, nr::syncfs, &[fd]),
            0
        );
        assert_eq!(host.syncs, 2);
        // A file in memory needs no `sync`.
        assert_eq!(until_answered(&mut process, &mut host, nr::syncfs, &[4]), 0);
        let none = until_answered(&mut process, &mut host, nr::syncfs, &[999]);
        assert_eq!((none, host.syncs), (EBADF.rax() as i64, 2));
        assert_eq!(host.opens, opens, "the directory is closed again");
    }
    // Only `syncfs` reports a failure; without a disk there is nothing to do.
    let (mut host, mut process, fd) = with_disk(false);
    host.cannot_sync = true;
    assert_eq!(process.result(&mut host, nr::sync, &[]), 0);
    assert_eq!(
        process.result(&mut host, nr::syncfs, &[fd]),
        EIO.rax() as i64
    );
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::sync, &[]), 0);
    assert_eq!(host.syncs, 0);
}

/// `statfs` of a path on the disk reports the size and the free blocks of the disk.
#[test]
fn room_on_the_disk_is_told_of_the_disk() {
    let (mut host, mut process, fd) = with_disk(false);
    let told = |host: &mut Fake| {
        let mut words = [0; 56];
        host.read_memory(INTO, &mut words).unwrap();
        let words: Vec<u64> = (0..7)
            .map(|at| crate::wire::u64_at(&words, 8 * at))
            .collect();
        words
    };
    for path in ["/disk", "/disk/log"] {
        let done = on_path(&mut process, &mut host, nr::statfs, path, &[INTO]);
        assert_eq!(done, 0, "{path}");
        let words = told(&mut host);
        assert_eq!((words[0], words[1], words[5]), (0xef53, 4096, 1000));
        assert!((25_500..=25_600).contains(&words[2]), "{words:?}");
        assert!(words[3] <= words[2] && words[3] > 20_000 && words[6] < 1000);
    }
    assert_eq!(process.result(&mut host, nr::fstatfs, &[fd, INTO]), 0);
    assert_eq!(told(&mut host)[0], 0xef53);
    assert_eq!(
        on_path(&mut process, &mut host, nr::statfs, "/", &[INTO]),
        0
    );
    assert_eq!(told(&mut host)[0], 0x0102_1994);
}

/// The nice value that a process has set is told again; children inherit it, and an image has it.
#[test]
fn how_nice_a_process_is_is_kept() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let [one, group, user] =
        [linux::PRIO_PROCESS, linux::PRIO_PGRP, linux::PRIO_USER].map(u64::from);
    let set = |process: &mut One, host: &mut Fake, which: u64, who: u64, nice: i64| {
        process.result(host, nr::setpriority, &[which, who, nice as u64])
    };
    let get = |process: &mut One, host: &mut Fake, which: u64, who: u64| {
        20 - process.result(host, nr::getpriority, &[which, who])
    };
    assert_eq!(get(&mut process, &mut host, one, 0), 0);
    for (nice, kept) in [(5, 5), (100, 19), (-100, -20), (7, 7)] {
        assert_eq!(set(&mut process, &mut host, one, 0, nice), 0);
        assert_eq!(get(&mut process, &mut host, one, 0), kept);
    }
    // A child begins with the nice value of its parent.
    assert!(process.result(&mut host, nr::fork, &[]) > 0);
    let child = child_of(&mut process, &mut host);
    let number = u64::from(child.number);
    assert_eq!(get(&mut process, &mut host, one, number), 7);
    assert_eq!(set(&mut process, &mut host, one, number, 3), 0);
    assert_eq!(get(&mut process, &mut host, one, 0), 7);
    // Of several processes the lowest value is told.
    for which in [group, user] {
        assert_eq!(get(&mut process, &mut host, which, 0), 3);
    }
    assert_eq!(set(&mut process, &mut host, group, 0, 9), 0);
    assert_eq!(get(&mut process, &mut host, one, number), 9);
    let path = format!("/proc/{number}/stat");
    let fd = on_path(&mut process, &mut host, nr::open, &path, &[0]);
    let length = process.result(&mut host, nr::read, &[fd as u64, INTO, 4096]);
    let mut text = vec![0; length as usize];
    host.read_memory(INTO, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    assert_eq!(words[17..19], ["29", "9"], "{text}");
    process.result(&mut host, nr::close, &[fd as u64]);
    // There is no such process, group or user, and no such kind.
    let none = ESRCH.rax() as i64;
    assert_eq!(set(&mut process, &mut host, one, 4711, 0), none);
    for (which, result) in [
        (one, none),
        (group, none),
        (user, none),
        (3, EINVAL.rax() as i64),
    ] {
        let got = process.result(&mut host, nr::getpriority, &[which, 4711]);
        assert_eq!(got, result, "{which}");
    }
    // A process that is not root can only make itself nicer, and cannot change others.
    process.system.process(process.task.pid).ids.uid = [1000; 3];
    let refused = EACCES.rax() as i64;
    assert_eq!(set(&mut process, &mut host, one, 0, 8), refused);
    assert_eq!(set(&mut process, &mut host, one, 0, 10), 0);
    let others = EPERM.rax() as i64;
    assert_eq!(set(&mut process, &mut host, one, number, 10), others);
    let mut host = Fake::new();
    let mut only = example(&mut host);
    assert_eq!(set(&mut only, &mut host, one, 0, -4), 0);
    let saved = only.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(get(&mut again, &mut host, one, 0), -4);
}

/// Old images have only the death signal in this word.
#[test]
fn what_a_process_chooses_is_read_from_old_images() {
    use crate::system::Chosen;
    let old = postcard::to_allocvec(&15u32).unwrap();
    let read: Chosen = postcard::from_bytes(&old).unwrap();
    let expected = Chosen {
        death_signal: 15,
        ..Chosen::default()
    };
    assert_eq!(read, expected);
    assert_eq!(postcard::to_allocvec(&read).unwrap(), old);
    let (mut wrong, sound) = (0, [-20, -1, 0, 19]);
    for nice in sound {
        let chosen = Chosen {
            death_signal: 64,
            nice,
            adopts: true,
            gains_nothing: nice > 0,
            kill_score: 50 * i16::from(nice),
        };
        assert!(chosen.is_sound());
        assert_eq!(Chosen::from(u32::from(chosen)), chosen);
    }
    for word in [65, 20 << 8, 1001 << 18, 1 << 29, u32::MAX] {
        wrong += u32::from(!Chosen::from(word).is_sound());
    }
    assert_eq!(wrong, 5);
}

/// A subreaper, as service managers are, becomes the parent of its descendants' orphans, living or ended.
#[test]
fn orphans_come_to_who_has_chosen_that() {
    let option = u64::from(linux_raw_sys::prctl::PR_SET_CHILD_SUBREAPER);
    let asks = u64::from(linux_raw_sys::prctl::PR_GET_CHILD_SUBREAPER);
    for adopts in [true, false] {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        let set = [option, u64::from(adopts)];
        assert_eq!(process.result(&mut host, nr::prctl, &set), 0);
        assert_eq!(process.result(&mut host, nr::prctl, &[asks, INTO]), 0);
        let mut told = [0; 4];
        host.read_memory(INTO, &mut told).unwrap();
        assert_eq!(told, [u8::from(adopts), 0, 0, 0]);
        // A child with two children: one lives, the other has ended.
        assert!(process.result(&mut host, nr::fork, &[]) > 0);
        let mut child = child_of(&mut process, &mut host);
        assert!(!process.system.find(child.pid).unwrap().chosen.adopts);
        let mut below = || {
            let made = call(
                &mut child,
                &mut process.system,
                &mut host,
                &registers(nr::fork, &[]),
            );
            assert!(matches!(made, Outcome::Go { .. }));
            host.born.pop().unwrap().task
        };
        let (mut living, mut ended) = (below(), below());
        let exit = registers(nr::exit_group, &[7]);
        for task in [&mut ended, &mut child] {
            let over = call(task, &mut process.system, &mut host, &exit);
            assert!(matches!(over, Outcome::End(_)));
        }
        let own = process.task.pid;
        let system = &mut process.system;
        let expected = adopts.then_some(own);
        assert_eq!(system.find(living.pid).unwrap().parent, expected);
        let number = if adopts { process.task.number } else { 1 };
        assert_eq!(system.parent_number(living.pid), number);
        assert_eq!(system.take_gone().contains(&ended.pid), !adopts);
        // An adopted process is waited for as any other child.
        let over = call(&mut living, system, &mut host, &exit);
        assert!(matches!(over, Outcome::End(_)));
        let mut waited = Vec::new();
        while let Ok(number) =
            u32::try_from(process.result(&mut host, nr::wait4, &[u64::MAX, 0, 0, 0]))
        {
            waited.push(number);
        }
        waited.sort_unstable();
        let mut all = vec![child.number];
        if adopts {
            all.extend([living.number, ended.number]);
        }
        all.sort_unstable();
        assert_eq!(waited, all);
        if adopts {
            for pid in process.system.take_gone() {
                process.system.forget(pid);
            }
            let saved = process.save(&mut host).unwrap();
            let again = One::adopt(&saved, 0, &mut host).unwrap();
            let pid = again.task.pid;
            assert!(again.system.find(pid).unwrap().chosen.adopts);
        }
    }
}

/// `/proc/self/fd/N` of an open directory is entered, as it is by its descriptor.
#[test]
fn a_directory_is_entered_by_its_descriptor_s_name() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.session.mkdir(0o755, "/tmp/below").unwrap();
    let fd = on_path(&mut process, &mut host, nr::open, "/tmp/below", &[0]);
    assert!(fd >= 0);
    let name = format!("/proc/self/fd/{fd}");
    assert_eq!(on_path(&mut process, &mut host, nr::chdir, &name, &[]), 0);
    assert_eq!(process.result(&mut host, nr::getcwd, &[INTO, 100]), 11);
    let mut cwd = [0; 11];
    host.read_memory(INTO, &mut cwd).unwrap();
    assert_eq!(&cwd, b"/tmp/below\0");
    let directory = [u64::from(open_flags::DIRECTORY)];
    assert!(on_path(&mut process, &mut host, nr::open, &name, &directory) >= 0);
    let refused = |number: i64, path: &str, one: &mut One, host: &mut Fake| {
        assert_eq!(on_path(one, host, nr::chdir, path, &[]), number, "{path}");
    };
    refused(
        ENOTDIR.rax() as i64,
        "/proc/self/fd/4",
        &mut process,
        &mut host,
    );
    refused(
        ENOENT.rax() as i64,
        "/proc/self/fd/99",
        &mut process,
        &mut host,
    );
}

/// What a process makes belongs to its effective user and group; opening what exists does not change the owner.
#[test]
fn what_is_made_belongs_to_who_makes_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let create = u64::from(linux::O_CREAT | linux::O_WRONLY);
    let make = |process: &mut One, host: &mut Fake, name: &str| {
        let [file, only, directory, fifo, plain] = ["file", "only", "directory", "fifo", "plain"]
            .map(|kind| format!("/tmp/{name}-{kind}"));
        for (path, flags) in [(&file, create), (&only, create | u64::from(linux::O_EXCL))] {
            assert!(on_path(process, host, nr::open, path, &[flags, 0o644]) >= 0);
        }
        assert_eq!(on_path(process, host, nr::mkdir, &directory, &[0o755]), 0);
        for (path, kind) in [(&fifo, 0o010_644), (&plain, 0o644)] {
            assert_eq!(on_path(process, host, nr::mknod, path, &[kind, 0]), 0);
        }
        let link = format!("/tmp/{name}-link");
        host.write_memory(INTO, format!("{link}\0").as_bytes())
            .unwrap();
        assert_eq!(on_path(process, host, nr::symlink, &file, &[INTO]), 0);
        [file, only, directory, fifo, plain, link]
    };
    let owner = |process: &mut One, host: &mut Fake, path: &str| {
        assert_eq!(
            on_path(process, host, nr::lstat, path, &[INTO]),
            0,
            "{path}"
        );
        let mut attr = [0; 144];
        host.read_memory(INTO, &mut attr).unwrap();
        [28, 32].map(|at| crate::wire::u32_at(&attr, at))
    };
    let of_root = make(&mut process, &mut host, "root");
    assert_eq!(process.result(&mut host, nr::setresgid, &[20, 21, 22]), 0);
    assert_eq!(process.result(&mut host, nr::setresuid, &[10, 11, 12]), 0);
    let of_user = make(&mut process, &mut host, "user");
    assert!(
        on_path(
            &mut process,
            &mut host,
            nr::open,
            &of_root[0],
            &[create, 0o644]
        ) >= 0
    );
    for (paths, expected) in [(of_root, [0, 0]), (of_user, [11, 21])] {
        for path in paths {
            assert_eq!(owner(&mut process, &mut host, &path), expected, "{path}");
        }
    }
}

/// Capabilities, scheduling and clocks are told as Linux tells root and another user.
#[test]
fn privileges_and_ways_of_scheduling_are_told() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let header = |host: &mut Fake, version: u32, number: u32| {
        let [version, number] = [version, number].map(u64::from);
        host.write_memory(TEXT, &(version | number << 32).to_le_bytes())
            .unwrap();
    };
    let told = |host: &mut Fake| {
        let mut sets = [0; 24];
        host.read_memory(INTO, &mut sets).unwrap();
        [0, 4, 8, 12, 16, 20].map(|at| crate::wire::u32_at(&sets, at))
    };
    header(&mut host, 1, 0);
    assert_eq!(process.result(&mut host, nr::capget, &[TEXT, 0]), 0);
    assert_eq!(
        process.result(&mut host, nr::capget, &[TEXT, INTO]),
        0,
        "the version is told"
    );
    let all = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
    assert_eq!(told(&mut host), all);
    assert_eq!(process.result(&mut host, nr::capset, &[TEXT, INTO]), 0);
    let bound = u64::from(linux_raw_sys::prctl::PR_CAPBSET_READ);
    assert_eq!(process.result(&mut host, nr::prctl, &[bound, 40]), 1);
    assert_eq!(
        process.result(&mut host, nr::prctl, &[bound, 41]),
        EINVAL.rax() as i64
    );
    header(&mut host, 0x2008_0522, 4711);
    assert_eq!(
        process.result(&mut host, nr::capget, &[TEXT, INTO]),
        ESRCH.rax() as i64
    );
    header(&mut host, 0x2008_0522, 0);
    assert_eq!(process.result(&mut host, nr::setuid, &[7]), 0);
    assert_eq!(
        process.result(&mut host, nr::capset, &[TEXT, INTO]),
        EPERM.rax() as i64
    );
    assert_eq!(process.result(&mut host, nr::capget, &[TEXT, INTO]), 0);
    assert_eq!(told(&mut host), [0; 6]);

    // There is one processor, which every mask must have.
    for (mask, expected) in [
        (1, 0),
        (3, 0),
        (2, EINVAL.rax() as i64),
        (0, EINVAL.rax() as i64),
    ] {
        host.write_memory(INTO, &[mask]).unwrap();
        let set = [0, 8, INTO];
        assert_eq!(
            process.result(&mut host, nr::sched_setaffinity, &set),
            expected
        );
    }
    let [normal, fifo] = [linux::SCHED_NORMAL, linux::SCHED_FIFO].map(u64::from);
    for (number, policy, expected) in [
        (nr::sched_get_priority_max, fifo, 99),
        (nr::sched_get_priority_min, fifo, 1),
        (nr::sched_get_priority_max, normal, 0),
        (nr::sched_get_priority_max, 9, EINVAL.rax() as i64),
    ] {
        assert_eq!(process.result(&mut host, number, &[policy]), expected);
    }
    for (policy, priority, expected) in [
        (normal, 0u32, 0),
        (normal, 1, EINVAL.rax() as i64),
        (fifo, 5, EPERM.rax() as i64),
        (fifo, 100, EINVAL.rax() as i64),
    ] {
        host.write_memory(TEXT, &priority.to_le_bytes()).unwrap();
        let arguments = [0, policy, TEXT];
        assert_eq!(
            process.result(&mut host, nr::sched_setscheduler, &arguments),
            expected
        );
    }
    host.write_memory(TEXT, &[0; 208]).unwrap();
    assert_eq!(process.result(&mut host, nr::adjtimex, &[TEXT]), 5);
    host.write_memory(TEXT, &[1]).unwrap();
    assert_eq!(
        process.result(&mut host, nr::adjtimex, &[TEXT]),
        EPERM.rax() as i64
    );
}

/// A mapping of a file does not grow by `mremap`: the new pages would not show what follows in the file.
#[test]
fn a_mapping_of_a_file_does_not_grow() {
    let mut host = Fake::new();
    let (mut process, _, entry) = that_maps(&mut host);
    let (at, _) = loaded(&mut process, &mut host, &entry);
    let at = at as u64;
    let moves = u64::from(linux::MREMAP_MAYMOVE);
    for flags in [0, moves] {
        let arguments = [at, LARGE, LARGE + PAGE, flags, 0];
        assert_eq!(
            process.result(&mut host, nr::mremap, &arguments),
            ENOMEM.rax() as i64
        );
    }
    let arguments = [at, LARGE, LARGE - PAGE, 0, 0];
    assert_eq!(process.result(&mut host, nr::mremap, &arguments), at as i64);
}

/// What programs look up about the system and themselves.
#[test]
fn what_programs_look_up_is_there() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let text = |process: &mut One, host: &mut Fake, path: &str| {
        let fd = on_path(process, host, nr::open, path, &[0, 0]);
        assert!(fd >= 0, "{path}: {fd}");
        let length = process.result(host, nr::read, &[fd as u64, INTO, 4000]);
        let mut bytes = alloc::vec![0; length as usize];
        host.read_memory(INTO, &mut bytes).unwrap();
        assert_eq!(process.result(host, nr::close, &[fd as u64]), 0);
        std::string::String::from_utf8(bytes).unwrap()
    };
    // The identifier of a boot is made from its random bytes.
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let boot = text(&mut process, &mut host, BOOT);
    let known = process.system.boot.unwrap();
    process.system.boot = Some(known.map(|byte| !byte));
    let other = text(&mut process, &mut host, BOOT);
    assert_eq!((boot.len(), boot == other), (37, false));
    for (path, expected) in [
        ("/proc/self/cgroup", "0::/\n"),
        ("/proc/self/oom_score", "0\n"),
        ("/proc/self/oom_score_adj", "0\n"),
        ("/proc/diskstats", ""),
        ("/proc/modules", ""),
    ] {
        assert_eq!(text(&mut process, &mut host, path), expected, "{path}");
    }
    let counts = text(&mut process, &mut host, "/proc/vmstat");
    assert!(counts.starts_with("nr_free_pages ") && counts.contains("\npswpin 0\n"));

    // The type of file system that `statfs` and `fstatfs` report.
    for (path, expected) in [
        ("/proc", 0x9fa0),
        ("/proc/self/status", 0x9fa0),
        ("/dev/pts", 0x1cd1),
        ("/sys/devices/system/cpu/online", 0x6265_6572),
        ("/dev/null", 0x0102_1994),
        ("/tmp", 0x0102_1994),
    ] {
        let kind = |host: &mut Fake| {
            let mut kind = [0; 8];
            host.read_memory(INTO, &mut kind).unwrap();
            u64::from_le_bytes(kind)
        };
        let done = on_path(&mut process, &mut host, nr::statfs, path, &[INTO]);
        assert_eq!((done, kind(&mut host)), (0, expected), "{path}");
        let fd = on_path(&mut process, &mut host, nr::open, path, &[0, 0]) as u64;
        assert_eq!(process.result(&mut host, nr::fstatfs, &[fd, INTO]), 0);
        assert_eq!(kind(&mut host), expected, "{path}");
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }

    // `PR_SET_NO_NEW_PRIVS` holds for children, and is shown.
    let [set, get] = [
        linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS,
        linux_raw_sys::prctl::PR_GET_NO_NEW_PRIVS,
    ]
    .map(u64::from);
    let status = |process: &mut One, host: &mut Fake| text(process, host, "/proc/self/status");
    let before = status(&mut process, &mut host);
    assert!(before.contains("\nCapEff:\t000001ffffffffff\n"), "{before}");
    assert!(before.contains("\nNoNewPrivs:\t0\n"), "{before}");
    let invalid = EINVAL.rax() as i64;
    assert_eq!(process.result(&mut host, nr::prctl, &[set, 2]), invalid);
    assert_eq!(process.result(&mut host, nr::prctl, &[set, 1]), 0);
    assert_eq!(process.result(&mut host, nr::prctl, &[get, 0]), 1);
    let child = process.system.fork(process.task.pid, 17).unwrap();
    assert!(process.system.find(child).unwrap().chosen.gains_nothing);
    assert!(status(&mut process, &mut host).contains("\nNoNewPrivs:\t1\n"));
    assert_eq!(process.result(&mut host, nr::setuid, &[7]), 0);
    assert!(status(&mut process, &mut host).contains("\nCapEff:\t0000000000000000\n"));
}

/// A timer whose first time has passed keeps its rhythm, and counts the times that it has missed.
#[test]
fn what_should_have_begun_keeps_its_rhythm() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    const SECOND: u64 = 1_000_000_000;
    host.now = 100 * SECOND;
    let arguments = [u64::from(linux::CLOCK_MONOTONIC), 0o4000];
    let fd = process.result(&mut host, nr::timerfd_create, &arguments) as u64;
    for (begins, interval, missed, left) in [(75, 10, 3, 5), (100, 10, 1, 10), (75, 0, 1, 0)] {
        let setting = [interval, 0, begins, 0].map(u64::to_le_bytes).concat();
        host.write_memory(INTO, &setting).unwrap();
        let set = [fd, u64::from(linux::TFD_TIMER_ABSTIME), INTO, 0];
        assert_eq!(process.result(&mut host, nr::timerfd_settime, &set), 0);
        assert_eq!(process.result(&mut host, nr::read, &[fd, INTO, 8]), 8);
        assert_eq!(
            process.result(&mut host, nr::timerfd_gettime, &[fd, INTO + 8]),
            0
        );
        let mut told = [0; 40];
        host.read_memory(INTO, &mut told).unwrap();
        let told = [0, 24].map(|at| crate::wire::u64_at(&told, at));
        assert_eq!(told, [missed, left], "{begins} {interval}");
    }
}

/// Capabilities that a program has dropped stay dropped, also for its children, and that is shown.
#[test]
fn what_is_dropped_stays_dropped() {
    use linux_raw_sys::prctl as of;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut ask = |option: u32, arguments: &[u64]| {
        let all = [&[u64::from(option)], arguments].concat();
        process.result(&mut host, nr::prctl, &all)
    };
    let (invalid, forbidden) = (EINVAL.rax() as i64, EPERM.rax() as i64);
    assert_eq!(ask(of::PR_CAPBSET_READ, &[12]), 1);
    assert_eq!(ask(of::PR_CAPBSET_DROP, &[12]), 0);
    assert_eq!(ask(of::PR_CAPBSET_DROP, &[41]), invalid);
    let told = [12, 13, 41].map(|n| ask(of::PR_CAPBSET_READ, &[n]));
    assert_eq!(told, [0, 1, invalid]);
    let raise = u64::from(of::PR_CAP_AMBIENT_RAISE);
    let clear = u64::from(of::PR_CAP_AMBIENT_CLEAR_ALL);
    for (arguments, expected) in [
        ([raise, 12, 0], forbidden),
        ([raise, 41, 0], invalid),
        ([clear, 0, 0], 0),
        ([clear, 1, 0], invalid),
        ([clear, 0, 1], invalid),
        ([9, 0, 0], invalid),
    ] {
        let done = ask(of::PR_CAP_AMBIENT, &arguments);
        assert_eq!(done, expected, "{arguments:?}");
    }
    assert_eq!(ask(of::PR_GET_SECUREBITS, &[]), 0);
    assert_eq!(ask(of::PR_SET_SECUREBITS, &[1]), forbidden);
    let child = process.system.fork(process.task.pid, 17).unwrap();
    assert_eq!(process.system.find(child).unwrap().dropped, 1 << 12);
    let status = text(
        &mut process,
        &mut host,
        "/proc/self/status",
        4096,
        |_, _| {},
    );
    assert!(status.contains("\nCapBnd:\t000001ffffffefff\n"), "{status}");
    assert_eq!(process.result(&mut host, nr::setuid, &[7]), 0);
    let drop = [u64::from(of::PR_CAPBSET_DROP), 13];
    assert_eq!(process.result(&mut host, nr::prctl, &drop), forbidden);
}

/// A write that a limit cuts short is durable, and ends; so is one while a signal is pending, and one by `sendfile`.
#[test]
fn what_was_written_of_a_call_is_durable() {
    for late in [false, true] {
        let (mut host, mut process, _) = with_disk(late);
        let how = u64::from(open_flags::RDWR | open_flags::DSYNC);
        let fd = until_done(&mut process, &mut host, nr::open, "/disk/log", &[how, 0]) as u64;
        process
            .system
            .set_limit(process.task.pid, linux::RLIMIT_FSIZE, (50, u64::MAX));
        let done = until_answered(&mut process, &mut host, nr::write, &[fd, INTO, 100]);
        assert_eq!((done, host.syncs), (50, 1), "A6: {late}: cut by a limit");
        let create = u64::from(linux::O_CREAT | linux::O_RDWR);
        let (path, flags) = ("/tmp/from", [create, 0o600]);
        let from = until_done(&mut process, &mut host, nr::open, path, &flags) as u64;
        until_answered(&mut process, &mut host, nr::ftruncate, &[from, 20]);
        until_answered(&mut process, &mut host, nr::lseek, &[fd, 0, 0]);
        let done = until_answered(&mut process, &mut host, nr::sendfile, &[fd, from, 0, 100]);
        assert_eq!((done, host.syncs), (20, 2), "A6: {late}: sent");
        // A pending signal is taken after the write.
        process.task.signals.pending.add(15, Origin::default());
        let entry = registers(nr::pwrite64, &[fd, INTO, 5, 0]);
        let mut attempts = 0;
        while let Outcome::Park(_) = process.call(&mut host, &entry) {
            attempts += 1;
            assert!(late && attempts < 20);
        }
        assert_eq!(host.syncs, 3, "A6: {late}: amid a signal");
    }
}

/// What is written to a file that was opened with `O_DSYNC` is durable when each call returns, and is written once.
#[test]
fn what_is_written_so_is_durable_at_once() {
    for late in [false, true] {
        let (mut host, mut process, plain) = with_disk(late);
        let how = u64::from(open_flags::RDWR | open_flags::DSYNC);
        let fd = until_done(&mut process, &mut host, nr::open, "/disk/log", &[how, 0]) as u64;
        host.write_memory(INTO, b"abcdef").unwrap();
        for (fd, offset, length, syncs) in [(fd, 0, 3, 1), (fd, 3, 2, 2), (plain, 5, 1, 2)] {
            let (call, arguments) = match fd == plain {
                true => (nr::pwrite64, [fd, INTO + offset, length, offset]),
                false => (nr::write, [fd, INTO + offset, length, 0]),
            };
            let done = until_answered(&mut process, &mut host, call, &arguments);
            let expected = (length as i64, syncs);
            assert_eq!(
                (done, host.syncs),
                expected,
                "A6: what is written is durable: {late} {offset}"
            );
        }
        let nothing = until_answered(&mut process, &mut host, nr::write, &[fd, INTO, 0]);
        assert_eq!((nothing, host.syncs), (0, 2));
        let read = [fd, INTO + 100, 9, 0];
        let came = until_answered(&mut process, &mut host, nr::pread64, &read);
        let mut bytes = [0; 6];
        host.read_memory(INTO + 100, &mut bytes).unwrap();
        assert_eq!((came, &bytes), (6, b"abcdef"));
    }
}

/// A write of several requests that begins again after each, because the disk answers late, is not taken for done
/// before its last one: the data of the others would be written once more by the program.
#[test]
fn a_long_write_is_done_before_it_is_durable() {
    for late in [false, true] {
        let (mut host, mut process, _) = with_disk(late);
        let how = u64::from(open_flags::RDWR | open_flags::DSYNC | open_flags::APPEND);
        let fd = until_done(&mut process, &mut host, nr::open, "/disk/log", &[how, 0]) as u64;
        // The same memory several times.
        let (count, each) = (9u64, 0x3000u64);
        let ranges: Vec<u64> = (0..count).flat_map(|_| [INTO, each]).collect();
        words(&mut host, TEXT, &ranges);
        let arguments = [fd, TEXT, count];
        let done = until_answered(&mut process, &mut host, nr::writev, &arguments);
        let all = (count * each) as i64;
        assert_eq!((done, host.syncs), (all, 1), "A6: {late}: all, and once");
        let end = [fd, 0, u64::from(linux_raw_sys::general::SEEK_END)];
        let size = until_answered(&mut process, &mut host, nr::lseek, &end);
        assert_eq!(size, all, "A6: {late}: written once");
    }
}

/// Tools find out who has a file open: `stat` of another process's descriptor follows it to the file, and each text of
/// `/proc` has a file number of its own.
#[test]
fn descriptors_of_others_are_followed() {
    let mut host = Fake::new();
    let mut root = example(&mut host);
    let create = u64::from(linux::O_CREAT | linux::O_RDWR);
    let fd = on_path(
        &mut root,
        &mut host,
        nr::open,
        "/tmp/open",
        &[create, 0o640],
    );
    root.result(&mut host, nr::fork, &[]);
    let child = child_of(&mut root, &mut host);
    let mut attributes = |number: u64, path: &str| {
        let done = on_path(&mut root, &mut host, number, path, &[INTO]);
        let mut attr = [0; 144];
        host.read_memory(INTO, &mut attr).unwrap();
        let ino = crate::wire::u64_at(&attr, 8);
        (done, ino, crate::wire::u32_at(&attr, 24))
    };
    let of_child = format!("/proc/{}/fd/{fd}", child.number);
    let file = attributes(nr::stat, "/tmp/open");
    assert_eq!(file.2, 0o100_640);
    assert_eq!(attributes(nr::stat, &of_child), file);
    assert_eq!(attributes(nr::lstat, &of_child).2, 0o120_777);
    let texts = [
        "/proc/meminfo",
        "/proc/stat",
        "/proc/self/limits",
        "/proc/self/status",
    ];
    let mut numbers: Vec<u64> = texts.map(|path| attributes(nr::stat, path).1).to_vec();
    numbers.push(attributes(nr::stat, &format!("/proc/{}/limits", child.number)).1);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5, "no two texts are one file");
}

/// The shell believes what a program has said to who started it: nobody else says anything there.
#[test]
fn only_the_program_that_was_started_says_something() {
    const SAID: &str = "/proc/self/said";
    let mut host = Fake::new();
    add_program(&mut host, &tiny_elf());
    let mut process = example(&mut host);
    let flags = [open_flags::WRONLY | open_flags::APPEND, open_flags::CREAT];
    let flags = u64::from(flags[0] | flags[1]);
    let fd = on_path(&mut process, &mut host, nr::open, SAID, &[flags, 0]);
    assert!(fd >= 0, "{fd}");
    let write = |length| registers(nr::write, &[fd as u64, INTO, length]);
    let refused = |error: crate::errno::Errno| error.rax() as i64;
    let own = process.task.pid;
    let said = |process: &mut One| process.system.process(own).said.bytes().to_vec();
    host.write_memory(INTO, b"\n/tmp").unwrap();
    let says = |process: &mut One, host: &mut Fake, length| {
        process.result(host, nr::write, &[fd as u64, INTO, length])
    };
    // One that was restored, or that a restored one has started, has nobody who listens.
    assert_eq!(says(&mut process, &mut host, 1), refused(EACCES));
    process.system.process(own).said.begin();
    assert_eq!(says(&mut process, &mut host, 1), 1);
    assert_eq!(says(&mut process, &mut host, 5), 5);
    let all = b"\n\n/tmp";
    assert_eq!(said(&mut process), all);

    // Its child says nothing for it, by the descriptor that it has from it or by its number, nor for itself.
    assert!(process.result(&mut host, nr::fork, &[]) > 0);
    let mut child = child_of(&mut process, &mut host);
    let rule = "S2: nobody says something for another process";
    let mut ask = |process: &mut One, host: &mut Fake, registers: &Registers| match call(
        &mut child,
        &mut process.system,
        host,
        registers,
    ) {
        Outcome::Go { registers, .. } => registers.rax as i64,
        outcome => panic!("{outcome:?}"),
    };
    let by_fd = ask(&mut process, &mut host, &write(1));
    assert_eq!(by_fd, refused(EACCES), "{rule}");
    for path in [&format!("/proc/{}/said", process.task.number), SAID] {
        let bytes = format!("{path}\0");
        host.write_memory(TEXT, bytes.as_bytes()).unwrap();
        let opens = registers(nr::open, &[TEXT, flags, 0]);
        let fd = ask(&mut process, &mut host, &opens);
        let by_path = registers(nr::write, &[fd as u64, INTO, 1]);
        let wrote = ask(&mut process, &mut host, &by_path);
        assert_eq!(wrote, refused(EACCES), "{rule}");
    }
    assert_eq!(said(&mut process), all, "{rule}");

    // What is too long says nothing, and nothing more is said: half of it would be taken for all.
    let most = services::process::MAX_SAID as u64;
    let whole = Some((crate::memory::READ, Kind::Anonymous));
    let new =
        process
            .memory()
            .areas
            .replaced(0x40_0000, 0x40_0000 + most.next_multiple_of(4096), whole);
    process.memory().areas.apply(&mut host, new).unwrap();
    let long = [fd as u64, 0x40_0000, most - 5];
    let wrote = process.result(&mut host, nr::write, &long);
    assert_eq!(wrote, refused(ENOSPC));
    assert_eq!(says(&mut process, &mut host, 1), refused(EACCES));
    assert_eq!(said(&mut process), all);

    // Nor does what is executed in its place say something.
    process.system.process(own).said.begin();
    let executes = on_path(&mut process, &mut host, nr::execve, "/tmp/program", &[0, 0]);
    assert_eq!(executes, 0);
    let wrote = process.result(&mut host, nr::write, &[fd as u64, 0, 0]);
    assert_eq!(wrote, refused(EACCES), "another program is executed");
    assert_eq!(said(&mut process), all);
}
