//! What `/proc` tells of memory and descriptors: `maps`, `mem`, `auxv` and `fdinfo`.

use super::*;
use crate::process::{Mapped, MAX_FDS};
use crate::signal::{sig, Origin};
use std::format;

const TEXT: u64 = 0x10_0000;
const INTO: u64 = 0x10_1000;
const PRIVATE: u64 = linux::MAP_PRIVATE as u64;
const SHARED: u64 = linux::MAP_SHARED as u64;
const FIXED: u64 = linux::MAP_FIXED as u64;

fn open(one: &mut One, host: &mut Fake, path: &str, flags: u32) -> i64 {
    let bytes = format!("{path}\0");
    host.write_memory(TEXT, bytes.as_bytes()).unwrap();
    one.result(host, nr::open, &[TEXT, u64::from(flags), 0o600])
}

/// A new file of four pages, which is open.
fn file(one: &mut One, host: &mut Fake, path: &str) -> u64 {
    let fd = open(one, host, path, open_flags::RDWR | open_flags::CREAT) as u64;
    let size = [fd, 4 * PAGE];
    assert_eq!(one.result(host, nr::ftruncate, &size), 0);
    fd
}

/// Maps `pages` of an open file, and returns the address.
fn map(one: &mut One, host: &mut Fake, fd: u64, pages: u64, flags: u64, offset: u64) -> u64 {
    let at = one.result(host, nr::mmap, &[0, pages * PAGE, 1, flags, fd, offset]);
    u64::try_from(at).expect("a mapping")
}

/// The line of a `maps` file about an address, behind the range: rights, offset, device, file number, name.
fn line(one: &mut One, host: &mut Fake, path: &str, at: u64) -> String {
    let all = text(one, host, path, 1000, |_, _| {});
    let is_in = |line: &&str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        (start..end).contains(&at)
    };
    let line = all.lines().find(is_in).expect("a line");
    assert!(line.len() <= 73 || line[..73].ends_with(' '), "{line}");
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    words.join(" ")
}

fn renames(one: &mut One, host: &mut Fake, from: &str, to: &str) {
    let names = format!("{from}\0{to}\0");
    host.write_memory(TEXT, names.as_bytes()).unwrap();
    let arguments = [TEXT, TEXT + from.len() as u64 + 1];
    assert_eq!(one.result(host, nr::rename, &arguments), 0);
}

fn number_of(one: &One, fd: u64) -> u64 {
    one.files().get(fd as u32).unwrap().ino().unwrap()
}

#[test]
fn maps_name_the_files_that_are_mapped() {
    const OWN: &str = "/proc/self/maps";
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let fd = file(&mut process, &mut host, "/tmp/library");
    let ino = number_of(&process, fd);
    let at = map(&mut process, &mut host, fd, 3, PRIVATE, PAGE);
    // Each piece of a mapping that was cut shows its own offset.
    let protect = [at + PAGE, PAGE, 3];
    assert_eq!(process.result(&mut host, nr::mprotect, &protect), 0);
    for (page, rights) in [(0, "r--p"), (1, "rw-p"), (2, "r--p")] {
        let expected = format!(
            "{rights} {:08x} 00:14 {ino} /tmp/library",
            (page + 1) * PAGE
        );
        let found = line(&mut process, &mut host, OWN, at + page * PAGE);
        assert_eq!(found, expected);
    }
    // A mapping that is moved still shows the same part of the file.
    let free = at - 20 * PAGE;
    let flags = u64::from(linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED);
    let moved = [at + 2 * PAGE, PAGE, PAGE, flags, free];
    assert_eq!(process.result(&mut host, nr::mremap, &moved), free as i64);
    let there =
        |rights: &str, offset: u64, name: &str| format!("{rights} {offset:08x} 00:14 {ino} {name}");
    let found = line(&mut process, &mut host, OWN, free);
    let moved = there("r--p", 3 * PAGE, "/tmp/library");
    assert_eq!(
        found, moved,
        "the place in the file of a mapping that was moved"
    );
    // A mapping that continues the one before it in the file is joined with it, others are not.
    for (page, offset) in [(1, 0), (2, PAGE), (3, 0)] {
        let arguments = [free + page * PAGE, PAGE, 1, PRIVATE | FIXED, fd, offset];
        assert!(process.result(&mut host, nr::mmap, &arguments) > 0);
    }
    let areas = process.memory().areas.clone();
    let area = *areas.find(free + PAGE).unwrap();
    assert_eq!((area.start, area.end), (free + PAGE, free + 3 * PAGE));
    // Shared mappings show `s`, those of a file and anonymous ones.
    let shared = map(&mut process, &mut host, fd, 1, SHARED, 2 * PAGE);
    let found = line(&mut process, &mut host, OWN, shared);
    assert_eq!(found, there("r--s", 2 * PAGE, "/tmp/library"));
    let reads = open(&mut process, &mut host, "/tmp/library", 0) as u64;
    let anonymous = [
        0,
        PAGE,
        3,
        SHARED | u64::from(linux::MAP_ANONYMOUS),
        u64::MAX,
        0,
    ];
    let nobody = process.result(&mut host, nr::mmap, &anonymous) as u64;
    let found = line(&mut process, &mut host, OWN, nobody);
    assert!(found.starts_with("rw-s 00000000 00:01 ") && found.ends_with(" /dev/zero (deleted)"));
    // Another file takes the name: mappings of the old one are shown as deleted, and keep their numbers.
    let other = file(&mut process, &mut host, "/tmp/other");
    renames(&mut process, &mut host, "/tmp/other", "/tmp/library");
    let found = line(&mut process, &mut host, OWN, at);
    assert_eq!(found, there("r--p", PAGE, "/tmp/library (deleted)"));
    let again = map(&mut process, &mut host, other, 1, PRIVATE, 0);
    let found = line(&mut process, &mut host, OWN, again);
    let new = number_of(&process, other);
    assert_eq!(found, format!("r--p 00000000 00:14 {new} /tmp/library"));
    let found = line(&mut process, &mut host, OWN, at);
    assert_eq!(
        found,
        there("r--p", PAGE, "/tmp/library (deleted)"),
        "two of one name"
    );
    // A newline in a name is escaped.
    let fed = file(&mut process, &mut host, "/tmp/a\nb");
    let fed_at = map(&mut process, &mut host, fed, 1, PRIVATE, 0);
    assert!(line(&mut process, &mut host, OWN, fed_at).ends_with(" /tmp/a\\012b"));
    for fd in [fd, reads, other, fed] {
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }
    // A restored process has the names. (There is no memory object in this image.)
    for shared in [shared, nobody] {
        assert_eq!(process.result(&mut host, nr::munmap, &[shared, PAGE]), 0);
    }
    let saved = process.save(&mut host).unwrap();
    host.slots.clear();
    let mut restored = One::adopt(&saved, 0, &mut host).unwrap();
    let found = line(&mut restored, &mut host, OWN, again);
    assert_eq!(
        found,
        format!("r--p 00000000 00:14 {new} /tmp/library"),
        "A6: a name is lost"
    );
    assert!(line(&mut restored, &mut host, OWN, fed_at).ends_with(" /tmp/a\\012b"));
    host.session.unlink("/tmp/a\nb").unwrap();
    let found = line(&mut restored, &mut host, OWN, fed_at);
    assert_eq!(found, "r--p 00000000 00:14 0 /tmp/a\\012b (deleted)");
}

#[test]
fn a_program_and_what_it_has_beside_its_file_are_told_apart() {
    const OWN: &str = "/proc/self/maps";
    let mut host = Fake::new();
    let mut process = One::new("/");
    add_program(&mut host, &tiny_elf());
    let args = vec![b"first".to_vec(), b"second".to_vec()];
    let prepared = process.prepare(&mut host, "/tmp/program", args).unwrap();
    process.commit(&mut host, prepared).unwrap();
    let whole = Some((READ | WRITE, Kind::Anonymous));
    let with = process.memory().areas.replaced(0x10_0000, 0x10_4000, whole);
    process.memory().areas.apply(&mut host, with).unwrap();
    let ino = process.memory().executed.as_ref().unwrap().ino();
    let found = line(&mut process, &mut host, OWN, 0x40_0000);
    assert_eq!(found, format!("r-xp 00000000 00:14 {ino} /tmp/program"));
    // The pages behind the bytes of the file have no name.
    assert_eq!(
        line(&mut process, &mut host, OWN, 0x40_1000),
        "r-xp 00000000 00:00 0"
    );
    let heap = process.memory().brk;
    assert_eq!(
        process.result(&mut host, nr::brk, &[heap + PAGE]),
        (heap + PAGE) as i64
    );
    assert_eq!(
        line(&mut process, &mut host, OWN, heap),
        "rw-p 00000000 00:00 0 [heap]"
    );
    let top = crate::memory::STACK_TOP;
    assert_eq!(
        line(&mut process, &mut host, OWN, top - 1),
        "rw-p 00000000 00:00 0 [stack]"
    );
    // Only the part of the stack at its top is called `[stack]`.
    let protect = [top - 100 * PAGE, PAGE, 1];
    assert_eq!(process.result(&mut host, nr::mprotect, &protect), 0);
    let found = line(&mut process, &mut host, OWN, top - 100 * PAGE);
    assert_eq!(found, "r--p 00000000 00:00 0");
    assert_eq!(
        line(&mut process, &mut host, OWN, top - 1),
        "rw-p 00000000 00:00 0 [stack]"
    );
    // `auxv` shows the auxiliary vector in the program's memory, up to its end.
    let fd = open(&mut process, &mut host, "/proc/self/auxv", 0) as u64;
    let got = process.result(&mut host, nr::read, &[fd, INTO, 1000]);
    let mut words = vec![0; usize::try_from(got).unwrap()];
    host.read_memory(INTO, &mut words).unwrap();
    let words: Vec<u64> = words
        .chunks(8)
        .map(|word| crate::wire::u64_at(word, 0))
        .collect();
    let pairs: Vec<&[u64]> = words.chunks(2).collect();
    assert_eq!(pairs.last().unwrap(), &[0, 0]);
    assert!(pairs.contains(&&[u64::from(linux_raw_sys::auxvec::AT_ENTRY), 0x40_0078][..]));
    assert!(pairs[..pairs.len() - 1].iter().all(|pair| pair[0] != 0));
    // With `args` at any other place `auxv` is empty.
    for at in [0, 5, 200, PAGE, crate::memory::END, u64::MAX] {
        process.memory().args = (at, 3);
        let got = process.result(&mut host, nr::pread64, &[fd, INTO, 1000, 0]);
        assert_eq!(got, 0, "{at:#x}");
    }
}

/// The number of mapped files that are remembered is bounded, and files that were unmapped are forgotten before those
/// that are mapped.
#[test]
fn files_that_are_mapped_are_kept_in_bounded_memory() {
    const OWN: &str = "/proc/self/maps";
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let name = |n: usize| format!("/tmp/{n}");
    let mut first = None;
    for n in 0..2 * Mapped::MOST {
        let fd = file(&mut process, &mut host, &name(n));
        let at = map(&mut process, &mut host, fd, 1, PRIVATE, 0);
        assert!(line(&mut process, &mut host, OWN, at).ends_with(&name(n)));
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
        match first {
            // The first file stays mapped.
            None => first = Some(at),
            Some(_) => assert_eq!(process.result(&mut host, nr::munmap, &[at, PAGE]), 0),
        }
    }
    let first = first.unwrap();
    assert!(
        line(&mut process, &mut host, OWN, first).ends_with(&name(0)),
        "a name of one that is mapped goes"
    );
    for n in 0..Mapped::MOST {
        let fd = file(&mut process, &mut host, &name(n + 1000));
        map(&mut process, &mut host, fd, 1, PRIVATE, 0);
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }
    assert_eq!(
        process.memory().mapped.list().len(),
        Mapped::MOST,
        "S2: it grows"
    );
    let all = text(&mut process, &mut host, OWN, 4096, |_, _| {});
    let named = all.lines().filter(|line| line.contains("/tmp/"));
    assert_eq!(
        named.count(),
        Mapped::MOST,
        "those that have room are named"
    );
    // Fewer files with long names are remembered, and one that is unmapped makes room.
    let long = |n: usize| format!("/tmp/{}/{}{n:03}", "d".repeat(200), "f".repeat(200));
    let mut another = Fake::new();
    another.session.mkdir(0o755, &long(0)[..205]).unwrap();
    let mut other = example(&mut another);
    let most = Mapped::BYTES / long(0).len();
    let mut places = vec![];
    for n in 0..=most {
        let fd = file(&mut other, &mut another, &long(n));
        places.push(map(&mut other, &mut another, fd, 1, PRIVATE, 0));
        assert_eq!(other.result(&mut another, nr::close, &[fd]), 0);
        let rule = "S2: nobody takes memory that he is not charged for";
        assert_eq!(
            other.memory().mapped.list().len(),
            most.min(n + 1),
            "{rule}"
        );
    }
    assert_eq!(
        other.result(&mut another, nr::munmap, &[places[1], PAGE]),
        0
    );
    let fd = file(&mut other, &mut another, &long(most));
    let at = map(&mut other, &mut another, fd, 1, PRIVATE, 0);
    assert!(line(&mut other, &mut another, OWN, at).ends_with(&long(most)));
    assert_eq!(other.memory().mapped.list().len(), most);
    // An image with the most files is accepted.
    let saved = process.save(&mut host).unwrap();
    assert!(One::adopt(&saved, 0, &mut host).is_ok());
}

/// Reads `length` bytes at the address `at` of a descriptor: the count, or the error.
fn peek(one: &mut One, host: &mut Fake, fd: u64, at: u64, length: u64) -> i64 {
    one.result(host, nr::pread64, &[fd, INTO, length, at])
}

#[test]
fn the_memory_of_a_process_is_a_file_for_itself() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let fd = open(&mut process, &mut host, "/proc/self/mem", open_flags::RDWR) as u64;
    let [io, invalid] = [EIO, EINVAL].map(|errno| errno.rax() as i64);
    let anonymous = PRIVATE | u64::from(linux::MAP_ANONYMOUS);
    let at = process.result(
        &mut host,
        nr::mmap,
        &[0, 4 * PAGE, 3, anonymous, u64::MAX, 0],
    ) as u64;
    host.write_memory(at, b"something").unwrap();
    assert_eq!(peek(&mut process, &mut host, fd, at, 9), 9);
    let mut bytes = [0; 9];
    host.read_memory(INTO, &mut bytes).unwrap();
    assert_eq!(&bytes, b"something");
    // A read ends before a hole; the program's own access rights do not matter.
    assert_eq!(process.result(&mut host, nr::munmap, &[at + PAGE, PAGE]), 0);
    assert_eq!(process.result(&mut host, nr::mprotect, &[at, PAGE, 0]), 0);
    assert_eq!(
        process.result(&mut host, nr::mprotect, &[at + 2 * PAGE, PAGE, 1]),
        0
    );
    assert_eq!(
        peek(&mut process, &mut host, fd, at + PAGE - 3, 2 * PAGE),
        3,
        "S1: over a hole"
    );
    for write in [at, at + 2 * PAGE] {
        host.write_memory(INTO, b"new").unwrap();
        assert_eq!(
            process.result(&mut host, nr::pwrite64, &[fd, INTO, 3, write]),
            3
        );
        let mut bytes = [0; 3];
        host.read_memory(write, &mut bytes).unwrap();
        assert_eq!(&bytes, b"new");
    }
    // Addresses where nothing is mapped, and where nothing can be.
    for nowhere in [
        0,
        8,
        at + PAGE,
        crate::memory::END - 4,
        crate::memory::END,
        i64::MAX as u64 - 7,
    ] {
        assert_eq!(
            peek(&mut process, &mut host, fd, nowhere, 8),
            io,
            "{nowhere:#x}"
        );
        assert_eq!(
            process.result(&mut host, nr::pwrite64, &[fd, INTO, 8, nowhere]),
            io
        );
        assert_eq!(peek(&mut process, &mut host, fd, nowhere, 0), 0);
    }
    for negative in [1 << 63, u64::MAX - 7, u64::MAX] {
        assert_eq!(peek(&mut process, &mut host, fd, negative, 8), invalid);
        assert_eq!(
            process.result(&mut host, nr::pwrite64, &[fd, INTO, 8, negative]),
            invalid
        );
    }
    // A memory object that the program may only read is not written to, and one that it may not access is not read.
    let shared = file(&mut process, &mut host, "/tmp/shared");
    let object = process.result(&mut host, nr::mmap, &[0, PAGE, 3, SHARED, shared, 0]) as u64;
    assert_eq!(
        process.result(&mut host, nr::pwrite64, &[fd, INTO, 3, object]),
        3
    );
    assert_eq!(
        process.result(&mut host, nr::mprotect, &[object, PAGE, 1]),
        0
    );
    assert_eq!(
        process.result(&mut host, nr::pwrite64, &[fd, INTO, 3, object]),
        io,
        "S1: sealed"
    );
    assert_eq!(peek(&mut process, &mut host, fd, object, 3), 3);
    assert_eq!(
        process.result(&mut host, nr::mprotect, &[object, PAGE, 0]),
        0
    );
    assert_eq!(peek(&mut process, &mut host, fd, object, 3), io);
    // A long transfer is done in turns, from the offset of the description.
    let large = 3 << 20;
    let from = process.result(&mut host, nr::mmap, &[0, large, 3, anonymous, u64::MAX, 0]) as u64;
    let to = process.result(&mut host, nr::mmap, &[0, large, 3, anonymous, u64::MAX, 0]) as u64;
    host.write_memory(from + large - 4, b"last").unwrap();
    for (number, target) in [(nr::write, to), (nr::read, from)] {
        assert_eq!(
            process.result(&mut host, nr::lseek, &[fd, target, 0]),
            target as i64
        );
        let entry = registers(
            number,
            &[fd, if number == nr::write { from } else { to }, large],
        );
        let (got, turns) = in_turns(&mut process, &mut host, &entry);
        assert_eq!((got, turns), (large as i64, 3), "{number}");
        let now = process.result(&mut host, nr::lseek, &[fd, 0, 1]);
        assert_eq!(now, (target + large) as i64);
        let mut bytes = [0; 4];
        host.read_memory(to + large - 4, &mut bytes).unwrap();
        assert_eq!(&bytes, b"last");
    }
    assert_eq!(process.result(&mut host, nr::lseek, &[fd, 0, 2]), invalid);
    // The descriptor is restored from an image. (There is no memory object in this one.)
    assert_eq!(process.result(&mut host, nr::munmap, &[object, PAGE]), 0);
    let saved = process.save(&mut host).unwrap();
    host.slots.clear();
    let mut restored = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(peek(&mut restored, &mut host, fd, at, 3), 3);
}

/// The memory of another process can be opened by its tracer, while that process is stopped.
#[test]
fn the_memory_of_others_is_for_their_tracers() {
    let mut host = Fake::new();
    let mut root = example(&mut host);
    root.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut root, &mut host);
    let number = child.number;
    let path = format!("/proc/{number}/mem");
    let [access, permission, none] = [EACCES, crate::errno::EPERM, ENOENT].map(|e| e.rax() as i64);
    let by_thread = format!("/proc/{number}/task/{number}/mem");
    for path in [&path, &by_thread] {
        assert_eq!(
            open(&mut root, &mut host, path, 0),
            access,
            "S1: not traced"
        );
    }
    assert_eq!(open(&mut root, &mut host, "/proc/4711/mem", 0), none);
    // Nor can the child open its parent's memory.
    host.write_memory(TEXT, format!("/proc/{}/mem\0", root.task.number).as_bytes())
        .unwrap();
    let opens = registers(nr::open, &[TEXT, 2]);
    assert_eq!(
        returns(&mut child, &mut root.system, &mut host, &opens),
        access
    );
    // The child's auxiliary vector is shown as empty.
    let vector = open(&mut root, &mut host, &format!("/proc/{number}/auxv"), 0) as u64;
    assert_eq!(root.result(&mut host, nr::read, &[vector, INTO, 100]), 0);
    let trace = registers(nr::ptrace, &[0]);
    assert_eq!(returns(&mut child, &mut root.system, &mut host, &trace), 0);
    assert_eq!(
        open(&mut root, &mut host, &path, 0),
        access,
        "S1: it does not stand still"
    );
    child.signals.pending.add(sig::STOP, Origin::default());
    let at = registers(0, &[]);
    let _ = emulate::interrupt(&mut child, &mut root.system, &mut host, &at);
    let fd = open(&mut root, &mut host, &path, open_flags::RDWR) as u64;
    assert!(fd < MAX_FDS.into());
    assert!(open(&mut root, &mut host, &by_thread, 0) > 0);
    assert_eq!(peek(&mut root, &mut host, fd, TEXT, 8), 8);
    assert_eq!(
        root.result(&mut host, nr::pwrite64, &[fd, INTO, 8, TEXT]),
        8
    );
    // Once the tracer has detached, its descriptor is of no use.
    let detach = [17, u64::from(number), 0, 0];
    assert_eq!(root.result(&mut host, nr::ptrace, &detach), 0);
    assert_eq!(
        peek(&mut root, &mut host, fd, TEXT, 8),
        permission,
        "S1: not traced any more"
    );
    assert_eq!(
        root.result(&mut host, nr::pwrite64, &[fd, INTO, 8, TEXT]),
        permission
    );
    assert_eq!(peek(&mut root, &mut host, fd, TEXT, 0), 0);
    // A process that has ended has no memory.
    let One { task: _, system } = &mut root;
    emulate::end(&mut child, system, &mut host, Status::Exited(0));
    drop(child);
    assert_eq!(peek(&mut root, &mut host, fd, TEXT, 8), 0);
    assert_eq!(
        root.result(&mut host, nr::pwrite64, &[fd, INTO, 8, TEXT]),
        0
    );
}

/// `fdinfo` describes a descriptor, also the one by which it is read.
#[test]
fn descriptors_are_told_of() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    process.system.process(process.task.pid).seen = crate::proc::Seen::of(&process.task.shares);
    let cloexec = open_flags::RDWR | open_flags::CREAT | open_flags::CLOEXEC;
    let fd = open(&mut process, &mut host, "/tmp/one", cloexec) as u64;
    let ino = number_of(&process, fd);
    assert_eq!(process.result(&mut host, nr::lseek, &[fd, 77, 0]), 77);
    let path = format!("/proc/self/fdinfo/{fd}");
    let flags = process.files().get(fd as u32).unwrap().flags | open_flags::CLOEXEC;
    for size in [3, 100] {
        let told = text(&mut process, &mut host, &path, size, |_, _| {});
        let expected = format!("pos:\t77\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{ino}\n");
        assert_eq!(told, expected);
    }
    let own = open(&mut process, &mut host, &path, 0) as u64;
    let target = [own, fd, 0];
    assert_eq!(process.result(&mut host, nr::dup3, &target), fd as i64);
    let got = process.result(&mut host, nr::read, &[fd, INTO, 6]);
    let mut bytes = [0; 6];
    host.read_memory(INTO, &mut bytes).unwrap();
    assert_eq!((got, &bytes), (6, b"pos:\t0"));
    assert_eq!(
        process.result(&mut host, nr::pread64, &[fd, INTO, 6, u64::MAX >> 1]),
        0
    );
    for other in [own, fd] {
        assert_eq!(process.result(&mut host, nr::close, &[other]), 0);
    }
    let none = ENOENT.rax() as i64;
    for path in [
        "/proc/self/fdinfo/3000000",
        "/proc/self/fdinfo/03",
        "/proc/4711/fdinfo/0",
    ] {
        assert_eq!(open(&mut process, &mut host, path, 0), none, "{path}");
    }
    // The descriptor is closed between the opening and the reading of its `fdinfo`.
    let fd = open(&mut process, &mut host, "/tmp/one", 0) as u64;
    let told = open(
        &mut process,
        &mut host,
        &format!("/proc/self/fdinfo/{fd}"),
        0,
    ) as u64;
    assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    assert_eq!(
        process.result(&mut host, nr::read, &[told, INTO, 100]),
        none
    );
}

/// A breakpoint does not move with its page: no debugger would know the new place, and nobody would remove it.
#[test]
fn what_moves_takes_no_breakpoint_along() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (at, to) = (0x10_0000, 0x30_0000);
    host.write_memory(at, &[1, INT3, 3]).unwrap();
    host.breakpoint = Some((at + 1, 2));
    let flags = u64::from(linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED);
    let moved = [at, PAGE, PAGE, flags, to];
    assert_eq!(process.result(&mut host, nr::mremap, &moved), to as i64);
    let mut bytes = [0; 3];
    host.read_memory(to, &mut bytes).unwrap();
    assert_eq!(
        bytes,
        [1, 2, 3],
        "S2: what moves is what the program has there"
    );
}
