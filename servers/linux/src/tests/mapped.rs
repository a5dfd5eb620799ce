//! Memory that is mapped: files and their memory objects, what memory they take and what becomes of their changes, and
//! calls that change mappings.

use super::*;

const PRIVATE: u64 = linux::MAP_PRIVATE as u64;
const SHARED: u64 = linux::MAP_SHARED as u64;
const ANONYMOUS: u64 = linux::MAP_ANONYMOUS as u64;
const BOTH: u64 = (READ | WRITE) as u64;
/// The open file of [`example`].
const FILE: u64 = 4;

/// Maps two pages of the example's file; returns the address, the file and its object.
fn shared_file(process: &mut One, host: &mut Fake) -> (u64, u64, u64) {
    let size = [FILE, 2 * PAGE];
    assert_eq!(process.result(host, nr::ftruncate, &size), 0);
    let map = [0, 2 * PAGE, BOTH, SHARED, FILE, 0];
    let at = process.result(host, nr::mmap, &map) as u64;
    let ino = process.files().get(FILE as u32).unwrap().ino().unwrap();
    let object = process.system.objects.of_ino(ino).unwrap();
    (at, ino, object)
}

fn settle(process: &mut One, host: &mut Fake) {
    while process.system.objects.is_due() {
        process.system.settle_objects(host);
    }
}

/// `msync` and `fsync` fail if what was changed cannot be written back, and succeed when it can be again. `munmap`
/// succeeds, as on Linux, and the changes are written when that is possible.
#[test]
fn who_has_changes_written_back_hears_of_a_failure() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (at, ino, object) = shared_file(&mut process, &mut host);
    host.write_object(object, PAGE, b"x").unwrap();
    let sync = [at, 2 * PAGE, u64::from(linux::MS_SYNC)];
    host.cannot_write = true;
    for _ in 0..2 {
        let failed = process.result(&mut host, nr::msync, &sync);
        assert!(
            failed < 0,
            "A6: msync says that what was lost is in the file"
        );
        let failed = process.result(&mut host, nr::fsync, &[FILE]);
        assert!(
            failed < 0,
            "A6: fsync says that what was lost is in the file"
        );
    }
    host.cannot_write = false;
    assert_eq!(process.result(&mut host, nr::msync, &sync), 0);
    assert_eq!(stored(&mut host, ino, PAGE), b'x');
    host.write_object(object, PAGE, b"y").unwrap();
    host.cannot_write = true;
    let unmap = [at, 2 * PAGE];
    assert_eq!(process.result(&mut host, nr::munmap, &unmap), 0);
    host.cannot_write = false;
    settle(&mut process, &mut host);
    assert_eq!(
        stored(&mut host, ino, PAGE),
        b'y',
        "S3: a change that could not be written at once is lost"
    );
}

/// A file without a name is changed by a mapping whose process is killed, and another process has opened it on its own:
/// it reads the changes.
#[test]
fn changes_of_a_file_without_a_name_reach_who_has_opened_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"memory\0").unwrap();
    let fd = process.result(&mut host, nr::memfd_create, &[0x10_0000, 0]) as u64;
    assert_eq!(process.result(&mut host, nr::ftruncate, &[fd, PAGE]), 0);
    let path = std::format!("/proc/self/fd/{fd}\0");
    host.write_memory(0x10_0000, path.as_bytes()).unwrap();
    let reads = process.result(&mut host, nr::open, &[0x10_0000, 0, 0]);
    assert!(reads > 0);
    let map = [0, PAGE, BOTH, SHARED, fd, 0];
    let at = process.result(&mut host, nr::mmap, &map) as u64;
    let ino = process.files().get(fd as u32).unwrap().ino().unwrap();
    let object = process.system.objects.of_ino(ino).unwrap();
    host.write_object(object, 0, b"x").unwrap();
    assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    // The areas go as those of a process that is killed: without a call that writes the file back.
    let slots: Vec<u32> = host.slots.keys().copied().collect();
    {
        let mut memory = process.memory();
        assert!(memory.areas.find(at).is_some());
        memory.areas = Areas::default();
        let areas = memory.areas.clone();
        memory.objects.tidy(&areas);
        slots.into_iter().for_each(|slot| host.unmap(slot));
    }
    settle(&mut process, &mut host);
    assert_eq!(process.system.objects.of_ino(ino), None);
    assert_eq!(
        stored(&mut host, ino, 0),
        b'x',
        "S3: what was changed is not there for who has the file open"
    );
}

/// A mapping of a file takes no more memory than the file has: programs map small files with much room behind.
#[test]
fn a_small_file_is_mapped_with_much_room() {
    const ROOM: u64 = 1 << 30;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(
        process.result(&mut host, nr::ftruncate, &[FILE, 1 << 20]),
        0
    );
    host.free = crate::exec::RESERVE + (2 << 20);
    for flags in [SHARED, PRIVATE] {
        let map = [0, ROOM, u64::from(READ), flags, FILE, 0];
        let at = process.result(&mut host, nr::mmap, &map);
        assert!(at > 0, "S3: room behind a file counts as memory: {at}");
        let unmap = [at as u64, ROOM];
        assert_eq!(process.result(&mut host, nr::munmap, &unmap), 0);
        settle(&mut process, &mut host);
    }
    // What the file has must be there.
    host.free = crate::exec::RESERVE + (1 << 19);
    let full = ENOMEM.rax() as i64;
    for (offset, expected) in [(0, true), (0xc_0000, false)] {
        let map = [0, ROOM, u64::from(READ), PRIVATE, FILE, offset];
        let at = process.result(&mut host, nr::mmap, &map);
        assert_eq!(at == full, expected, "{offset:#x}: {at}");
    }
}

/// `mremap` that makes a range smaller unmaps its tail, in whatever areas it is.
#[test]
fn a_range_of_several_areas_becomes_smaller() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let flags = PRIVATE | ANONYMOUS;
    let map = [0, 4 * PAGE, BOTH, flags, u64::MAX, 0];
    let at = process.result(&mut host, nr::mmap, &map) as u64;
    for page in [1, 3] {
        let protect = [at + page * PAGE, PAGE, u64::from(READ)];
        assert_eq!(process.result(&mut host, nr::mprotect, &protect), 0);
    }
    for moves in [0, u64::from(linux::MREMAP_MAYMOVE)] {
        let larger = [at, 4 * PAGE, 5 * PAGE, moves];
        let refused = EFAULT.rax() as i64;
        assert_eq!(process.result(&mut host, nr::mremap, &larger), refused);
    }
    let smaller = [at, 4 * PAGE, 2 * PAGE, 0];
    assert_eq!(
        process.result(&mut host, nr::mremap, &smaller),
        at as i64,
        "a range of several areas does not become smaller"
    );
    {
        let areas = &process.memory().areas;
        assert!(areas.covers(at, at + 2 * PAGE));
        assert!(areas.is_free(at + 2 * PAGE, at + 4 * PAGE));
        host.agrees_with(areas);
    }
    let nowhere = [at + 2 * PAGE, PAGE, PAGE, 0];
    let refused = EFAULT.rax() as i64;
    assert_eq!(process.result(&mut host, nr::mremap, &nowhere), refused);
}

/// What a program may write or execute it may read, in calls as by itself; not what it may not access.
#[test]
fn calls_read_what_may_be_written_or_executed() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for (prot, reads) in [(WRITE, true), (EXECUTE, true), (0, false)] {
        let flags = PRIVATE | ANONYMOUS;
        let map = [0, PAGE, u64::from(prot), flags, u64::MAX, 0];
        let at = process.result(&mut host, nr::mmap, &map) as u64;
        let written = process.result(&mut host, nr::pwrite64, &[FILE, at, 3, 0]);
        let expected = if reads { 3 } else { EFAULT.rax() as i64 };
        assert_eq!(
            written, expected,
            "a call reads memory with the rights {prot:#b}"
        );
    }
    let map = [0, PAGE, u64::from(READ), PRIVATE | ANONYMOUS, u64::MAX, 0];
    let at = process.result(&mut host, nr::mmap, &map) as u64;
    let read = process.result(&mut host, nr::pread64, &[FILE, at, 3, 0]);
    assert_eq!(read, EFAULT.rax() as i64, "what may be read is not written");
}

/// `MADV_FREE` gives private memory of the program's own back, and refuses other memory.
#[test]
fn memory_that_is_free_is_given_back() {
    let free = u64::from(linux::MADV_FREE);
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let map = [0, 2 * PAGE, BOTH, PRIVATE | ANONYMOUS, u64::MAX, 0];
    let at = process.result(&mut host, nr::mmap, &map) as u64;
    host.write_memory(at, b"x").unwrap();
    host.write_memory(at + PAGE, b"y").unwrap();
    assert_eq!(process.result(&mut host, nr::madvise, &[at, PAGE, free]), 0);
    let there = [at, at + PAGE].map(|at| host.pages.contains_key(&(at / PAGE)));
    assert_eq!(there, [false, true], "what is free stays in memory");
    let (shared, ..) = shared_file(&mut process, &mut host);
    let map = [0, PAGE, BOTH, PRIVATE, FILE, 0];
    let copy = process.result(&mut host, nr::mmap, &map) as u64;
    for other in [shared, copy] {
        let refused = process.result(&mut host, nr::madvise, &[other, PAGE, free]);
        assert_eq!(refused, EINVAL.rax() as i64);
    }
}

/// A thread ends while it gives up a lock that it notes as pending, between the store of 0 and the call that wakes the
/// next one. Who waits is woken; not by an entry of the list that is not pending, nor by a lock of another.
#[test]
fn who_ends_before_it_wakes_the_next_one_wakes_it() {
    const OTHERS: u32 = 0x1234;
    for (is_pending, word, woken) in [(true, 0, true), (false, 0, false), (true, OTHERS, false)] {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        let mut owner = thread_of(&mut process, &mut host);
        let mut waiter = thread_of(&mut process, &mut host);
        let wait = futex(linux::FUTEX_WAIT, 0, 0, 0, 0);
        parks(&mut waiter, &mut process.system, &mut host, &wait);
        host.write_memory(WORD, &word.to_le_bytes()).unwrap();
        let (head, entry) = (WORD + 0x100, WORD - 16);
        let list = match is_pending {
            true => [head, 16, entry],
            false => [entry, 16, 0],
        };
        words(&mut host, head, &list);
        words(&mut host, entry, &[head]);
        let set = registers(nr::set_robust_list, &[head, 24]);
        assert_eq!(returns(&mut owner, &mut process.system, &mut host, &set), 0);
        let exit = registers(nr::exit, &[0]);
        let left = emulate::call(&mut owner, &mut process.system, &mut host, &exit);
        assert!(matches!(left, Outcome::Left));
        let granted = process.system.futexes.take_granted();
        assert_eq!(
            granted.contains(&waiter.tid),
            woken,
            "S1: who waits for a lock of the dead: {is_pending} {word:#x}"
        );
    }
}

/// The account of who has mapped a file is full: who writes to the file hears that there is no room, before anything is
/// written; and who cuts it needs none.
#[test]
fn who_writes_does_not_end_for_who_maps() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (_, ino, object) = shared_file(&mut process, &mut host);
    host.write_object(object, 10, b"z").unwrap();
    host.objects_are_full = true;
    words(&mut host, 0x10_0000, &[u64::MAX]);
    let write = [FILE, 0x10_0000, 1, PAGE];
    let full = ENOSPC.rax() as i64;
    let outcome = process.call(&mut host, &registers(nr::pwrite64, &write));
    let fails = matches!(&outcome, Outcome::Go { registers, .. } if registers.rax as i64 == full);
    assert!(fails, "S2: who writes ends for who maps: {outcome:?}");
    assert_eq!(stored(&mut host, ino, PAGE), 0, "S1: a write that failed");
    // Nothing of the object is where the file is cut.
    let cut = [FILE, PAGE + 5];
    assert_eq!(process.result(&mut host, nr::ftruncate, &cut), 0);
    host.objects_are_full = false;
    assert_eq!(process.result(&mut host, nr::ftruncate, &[FILE, 5]), 0);
    let mut byte = [1];
    host.read_object(object, 10, &mut byte).unwrap();
    assert_eq!(byte, [0], "what was cut off");
}

/// Who touches shared memory for which there is no memory gets a signal that it can handle; for its own memory it ends.
#[test]
fn no_memory_for_shared_memory_is_a_signal() {
    for (flags, is_handled) in [(SHARED, true), (PRIVATE, false)] {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        let map = [0, PAGE, BOTH, flags | ANONYMOUS, u64::MAX, 0];
        let at = process.result(&mut host, nr::mmap, &map) as u64;
        let handler = crate::signal::Action {
            handler: 0x10_0040,
            restorer: 0x10_0080,
            flags: u64::from(linux::SA_RESTORER),
            ..Default::default()
        };
        let actions = Rc::clone(&process.task.shares.actions);
        actions.borrow_mut().set(sig::BUS, handler);
        let message = abi::message::ExceptionMessage {
            code: abi::Exception::Memory as u64,
            address: at,
            detail: u64::from(WRITE),
            registers: registers(0, &[]),
            ..Default::default()
        };
        let One { task, system } = &mut process;
        let outcome = emulate::exception(task, system, &mut host, &message);
        let runs = matches!(&outcome, Outcome::Go { registers, .. } if registers.rip == 0x10_0040);
        assert_eq!(
            runs, is_handled,
            "S2: who shares memory ends for who pays for it: {outcome:?}"
        );
    }
}
