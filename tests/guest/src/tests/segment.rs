//! The memory server's segments, and the ends of native programs that make mistakes.

use abi::access::{ALL, READ};
use abi::state::{port_flags, PortState};
use abi::{RefKind, OBJECT_SIZE, PAGE_SIZE};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use guest_tests::harness::{eventually, Absent, Failure, Must, Outcome};
use guest_tests::{check, check_eq, guest_test};
use interface::{query_interface, Session};
use rt::memory::Segment;
use rt::obj::{MutexAt, Port, Portset, Ref, RefAt};
use rt::process::Client;
use rt::window::Window;
use rt::{fs, memory, Error};
use services::memory::{AccountClient, AccountControlCalls, MemorySupervisorClient};
use services::process::{Start, Status, Stdio, NATIVE_NOTE};

/// Several chunks, and a part of one.
const PAGES: u64 = 40;

fn get(window: &Window, page: u64) -> Result<u64, Error> {
    let mut word = [0; 8];
    window.read(page * PAGE_SIZE + 8, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn put(window: &Window, page: u64, value: u64) -> Result<(), Error> {
    window.write(page * PAGE_SIZE + 8, &value.to_le_bytes())
}

fn make() -> Result<(Segment, Window), Error> {
    let segment = memory::create(PAGES * PAGE_SIZE)?;
    let window = Window::map(&segment.region, 0, PAGES * PAGE_SIZE, ALL)?;
    Ok((segment, window))
}

/// How many pages of a segment are present.
fn present(segment: &Segment) -> u64 {
    let mut count = 0;
    let mut offset = 0;
    while let Ok((found, _)) = segment.region.search(offset, PAGES * PAGE_SIZE, 1) {
        count += 1;
        offset = found + PAGE_SIZE;
    }
    count
}

guest_test!(SEGMENT0001, zero_and_discard);
fn zero_and_discard() -> Outcome {
    let (segment, window) = make().must("a segment")?;
    for page in 0..PAGES {
        check_eq!(get(&window, page), Ok(0));
        put(&window, page, page + 1).must("write")?;
    }
    check_eq!(present(&segment), PAGES);
    // In the middle of a chunk, at its edges, over several.
    for (first, count) in [(5, 1), (0, 2), (14, 20), (39, 1)] {
        segment
            .discard(first * PAGE_SIZE, count * PAGE_SIZE)
            .must("discard")?;
    }
    for page in 0..PAGES {
        let gone = page == 5 || page < 2 || (14..34).contains(&page) || page == 39;
        check_eq!(
            get(&window, page),
            Ok(if gone { 0 } else { page + 1 }),
            "page {page}"
        );
    }
    drop(window);
    segment.destroy().must("destroy")
}

guest_test!(SEGMENT0002, copy_on_write);
fn copy_on_write() -> Outcome {
    let (first, a) = make().must("a segment")?;
    for page in 0..PAGES - 3 {
        put(&a, page, 100 + page).must("write")?;
    }
    let before = memory::usage().must("usage")?.resident;
    let second = first.copy().must("a copy")?;
    let b = Window::map(&second.region, 0, PAGES * PAGE_SIZE, ALL).must("a window")?;
    let third = second.copy().must("a copy of the copy")?;
    let c = Window::map(&third.region, 0, PAGES * PAGE_SIZE, ALL).must("a window")?;
    check_eq!(memory::usage().must("usage")?.resident, before);
    for window in [&a, &b, &c] {
        for page in 0..PAGES - 3 {
            check_eq!(get(window, page), Ok(100 + page));
        }
    }
    put(&a, 3, 1).must("write")?;
    put(&b, 3, 2).must("write")?;
    put(&c, 20, 3).must("write")?;
    check_eq!(
        [get(&a, 3), get(&b, 3), get(&c, 3)],
        [Ok(1), Ok(2), Ok(103)]
    );
    check_eq!(
        [get(&a, 20), get(&b, 20), get(&c, 20)],
        [Ok(120), Ok(120), Ok(3)]
    );
    // The original is destroyed; the copies stay.
    drop(a);
    first.destroy().must("destroy")?;
    check_eq!([get(&b, 4), get(&c, 4)], [Ok(104), Ok(104)]);
    put(&b, 4, 5).must("write")?;
    second.discard(0, 16 * PAGE_SIZE).must("discard")?;
    check_eq!([get(&b, 4), get(&c, 4)], [Ok(0), Ok(104)]);
    check_eq!(get(&c, PAGES - 1), Ok(0));
    drop((b, c));
    second.destroy().must("destroy")?;
    third.destroy().must("destroy")
}

guest_test!(SEGMENT0003, objects_end_with_their_page);
fn objects_end_with_their_page() -> Outcome {
    let (segment, window) = make().must("a segment")?;
    let at = |page: u64| RefAt(window.address() + page * PAGE_SIZE + OBJECT_SIZE);
    for page in [2, 3, 30] {
        put(&window, page, page).must("write")?;
        at(page).create().must("an object")?;
    }
    let kinds = 1 << abi::Type::Reference as u64;
    let end = PAGES * PAGE_SIZE;
    let copy = segment.copy().must("a copy")?;
    check!(
        copy.region.search(0, end, kinds).is_err(),
        "a copy has no objects"
    );
    let copied = Window::map(&copy.region, 0, end, ALL).must("a window")?;
    check_eq!(get(&copied, 3), Ok(3));
    drop(copied);
    copy.destroy().must("destroy")?;

    let names = |page: u64| at(page).reference();
    let (two, thirty) = (
        names(2).must("a reference")?,
        names(30).must("a reference")?,
    );
    check_eq!(two.kind(), RefKind::Reference);
    segment.discard(2 * PAGE_SIZE, PAGE_SIZE).must("discard")?;
    check_eq!(two.kind(), RefKind::Null);
    check_eq!(
        segment.region.search(0, end, kinds),
        Ok((3 * PAGE_SIZE + OBJECT_SIZE, abi::Type::Reference as u64))
    );
    // The page is there again, without the object.
    at(2)
        .create()
        .must("an object in the page that came back")?;
    drop(window);
    segment.destroy().must("destroy")?;
    check_eq!(thirty.kind(), RefKind::Null);
    Ok(())
}

guest_test!(SEGMENT0004, populate);
fn populate() -> Outcome {
    let (segment, window) = make().must("a segment")?;
    put(&window, 7, 7).must("write")?;
    segment
        .populate(3 * PAGE_SIZE + 1, 30 * PAGE_SIZE)
        .must("populate")?;
    let usage = segment.usage().must("usage")?;
    check!(present(&segment) >= 31, "{} pages", present(&segment));
    check_eq!(usage.resident, present(&segment) * PAGE_SIZE);
    check_eq!(get(&window, 7), Ok(7));
    drop(window);
    segment.destroy().must("destroy")
}

guest_test!(SEGMENT0005, refusals);
fn refusals() -> Outcome {
    check_eq!(memory::create(0).map(drop), Err(Error::Invalid));
    check_eq!(memory::create(PAGE_SIZE + 1).map(drop), Err(Error::Invalid));
    check_eq!(memory::create(1 << 60).map(drop), Err(Error::Invalid));
    let (segment, window) = make().must("a segment")?;
    let end = PAGES * PAGE_SIZE;
    check_eq!(segment.discard(0, end + PAGE_SIZE), Err(Error::Invalid));
    check_eq!(segment.discard(1, PAGE_SIZE), Err(Error::Invalid));
    check_eq!(
        segment.discard(u64::MAX - PAGE_SIZE + 1, PAGE_SIZE),
        Err(Error::Invalid)
    );
    check_eq!(segment.populate(end, 1), Err(Error::Invalid));
    check_eq!(segment.populate(PAGE_SIZE, u64::MAX), Err(Error::Invalid));
    // The ports of the server take the requests of their own interface only.
    let mut wrong = account(&segment.control, 1)?;
    check_eq!(wrong.create(PAGE_SIZE).map(drop), Err(Error::Unsupported));
    check!(
        memory::discard(&rt::start::memory(), 0, PAGE_SIZE).is_err(),
        "an account is no segment"
    );
    let own = rt::start::memory();
    check!(
        MemorySupervisorClient::at(own)
            .create_account(0, 1 << 20, 1)
            .is_err(),
        "an account makes no accounts"
    );
    let control = query_interface::<dyn AccountControlCalls>(&mut account(&own, OTHER)?);
    check!(
        control.err() == Some(Error::Unsupported),
        "an account does not end itself"
    );
    check_eq!(
        account(&own, OTHER)?.copy(&segment.region).map(drop),
        Err(Error::NotFound)
    );
    let control = segment.control.copy().must("a copy")?;
    drop(window);
    segment.destroy().must("destroy")?;
    check!(memory::destroy(&control).is_err(), "a segment ends once");
    check_eq!(
        account(&own, OTHER)?.copy(&control).map(drop),
        Err(Error::NotFound)
    );
    Ok(())
}

/// Numbers of requests beyond those of the program's own requests.
const OTHER: u64 = 1 << 40;

/// The session at an account's port, whose next request has this number.
fn account(port: &RefAt, number: u64) -> Result<AccountClient, Failure> {
    let port = port.copy().must("a copy")?;
    Ok(AccountClient::resume(Session::resume(port, number)))
}

guest_test!(SEGMENT0007, a_segment_is_made_once);
fn a_segment_is_made_once() -> Outcome {
    // A client that is stopped or restored while it waits for the reply asks again with the same number.
    let ask = || {
        account(&rt::start::memory(), OTHER + 1)?
            .create(PAGE_SIZE)
            .must("a segment")
    };
    let (region, control) = ask()?;
    let (again, _) = ask()?;
    check!(region.same_as(*again), "it is the same segment");
    let copy = || {
        account(&rt::start::memory(), OTHER + 2)?
            .copy(&control)
            .must("a copy")
    };
    let (complete, copied, copied_control) = copy()?;
    let (_, again, _) = copy()?;
    check!(complete && copied.same_as(*again), "it is the same copy");
    check!(!copied.same_as(*region), "it is another segment");
    // The next request is a different one, and so is one with an old number: the holder of an account orders its
    // requests.
    let (other, other_control) = account(&rt::start::memory(), OTHER + 3)?
        .create(PAGE_SIZE)
        .must("a segment")?;
    check!(!other.same_as(*region), "it is another segment");
    // A refused request is refused again.
    for _ in 0..2 {
        let refused = account(&rt::start::memory(), OTHER + 4)?.create(1);
        check_eq!(refused.map(drop), Err(Error::Invalid));
    }
    for control in [control, copied_control, other_control] {
        memory::destroy(&control).must("destroy")?;
    }
    Ok(())
}

guest_test!(SEGMENT0006, memory_runs_out_and_comes_back);
fn memory_runs_out_and_comes_back() -> Outcome {
    const STEP: u64 = 4 << 20;
    let before = memory::usage().must("usage")?;
    let segment = memory::create(1 << 36).must("a segment")?;
    let mut taken = 0;
    let refused = loop {
        match segment.populate(taken, STEP) {
            Ok(()) => taken += STEP,
            Err(error) => break error,
        }
        check!(taken <= before.total, "more than there is");
    };
    check_eq!(refused, Error::NoMemory);
    check_eq!(memory::usage().must("usage")?.free, 0);
    check!(taken + 2 * STEP > before.free, "{taken} of {}", before.free);
    // The servers continue with the memory that is promised to them, and programs are started with memory that is
    // reserved for that.
    check!(fs::stat("/sbin", true).is_ok(), "the file system answers");
    let start = Start {
        args: vec!["sleep".to_string(), "0".to_string()],
        ..Start::default()
    };
    let native = Client::new("native").must("the manager")?;
    let process = native
        .spawn("/sbin/tools", &start, &[])
        .must("a program on its promise")?;
    eventually("the end of a program", || {
        process.status() == Ok(Status::Exited(0))
    })?;
    process.reap().must("its status")?;
    segment.destroy().must("destroy")?;
    // This program itself, and the servers, may use more memory by now.
    eventually("the return of the memory", || {
        memory::usage().is_ok_and(|after| after.free + (1 << 20) > before.free)
    })?;
    Ok(())
}

/// A native program with these instructions.
fn program(code: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x1000u64, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0; 4]);
    for half in [64u16, 56, 2, 64, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    let mut header = |kind: u32, flags: u32, words: [u64; 6]| {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&flags.to_le_bytes());
        for word in words {
            file.extend_from_slice(&word.to_le_bytes());
        }
    };
    let length = code.len() as u64;
    header(1, 5, [0x1000, 0x1000, 0x1000, length, length, 0x1000]);
    header(4, 4, [0x200, 0, 0, 20, 20, 4]);
    file.resize(0x200, 0);
    for word in [NATIVE_NOTE.len() as u32 + 1, 0, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(NATIVE_NOTE.as_bytes());
    file.resize(0x1000, 0);
    file.extend_from_slice(code);
    file
}

/// Runs a program. Returns how it ended.
fn run(native: &Client, file: &[u8]) -> Result<Status, Error> {
    const PATH: &str = "/tmp/wrong-program";
    fs::write_all(PATH, file, 0o755)?;
    let start = Start {
        args: vec!["wrong-program".to_string()],
        stdio: vec![Stdio::Null, Stdio::Null, Stdio::Null],
        ..Start::default()
    };
    let process = native.spawn(PATH, &start, &[])?;
    let ended = eventually("the end of a program", || {
        !matches!(process.status(), Ok(Status::Running | Status::Stopped))
    });
    fs::unlink(PATH)?;
    if ended.is_err() {
        process.kill()?;
    }
    process.reap()
}

guest_test!(SEGMENT0008, what_is_gone_is_told);
/// An access through a window fails when its memory is gone; this neither ends the program nor prevents later
/// accesses.
fn what_is_gone_is_told() -> Outcome {
    let segment = memory::create(4 * PAGE_SIZE).must("a segment")?;
    let window = Window::map(&segment.region, 0, 4 * PAGE_SIZE, ALL).must("a window")?;
    window.write(PAGE_SIZE - 1, &[1, 2]).must("writing")?;
    let mut bytes = [0; 2];
    let object = MutexAt(window.address() + 2 * PAGE_SIZE);
    check_eq!(object.create(), Ok(()));
    check_eq!(object.destroy(), Ok(()));
    segment.destroy().must("the end of the segment")?;
    for round in 0..3 {
        check_eq!(
            window.read(PAGE_SIZE - 1, &mut bytes),
            Err(Error::Ended),
            "{round}"
        );
        check_eq!(window.write(0, &[1; 5000]), Err(Error::Ended), "{round}");
        check_eq!(window.exchange(4, 0, 1), Err(Error::Ended), "{round}");
        check_eq!(window.is_zero(0, PAGE_SIZE), Err(Error::Ended), "{round}");
        check_eq!(object.create(), Err(rt::Code::NoObject), "{round}");
    }
    check_eq!(bytes, [0; 2], "nothing was read");
    let other = memory::create(PAGE_SIZE).must("another segment")?;
    let there = Window::map(&other.region, 0, PAGE_SIZE, ALL).must("its window")?;
    check_eq!(there.write(6, &[3, 4]), Ok(()));
    check_eq!(there.read(6, &mut bytes), Ok(()));
    check_eq!(bytes, [3, 4], "what is there is reached as before");
    Ok(())
}

guest_test!(SEGMENT0009, what_never_comes_is_not_waited_for);
/// A guarded read of memory whose keeper never answers ends at its time limit; a read succeeds if the memory is
/// there, or arrives in time.
fn what_never_comes_is_not_waited_for() -> Outcome {
    const WHILE: u64 = 2_000_000;
    let (port, _set) = silent_port().must("a port that takes faults and never answers")?;
    let mut absent = Absent::new(2 * PAGE_SIZE, port.handle())?;
    let window = Window::map(&absent.region_ref, 0, 2 * PAGE_SIZE, READ).must("a window")?;
    let part = |length| window.read_within(PAGE_SIZE - 4, length, WHILE);
    // More often than there is room for threads that stay blocked.
    for round in 0..40 {
        let before = rt::time::now();
        check_eq!(part(8), Err(Error::WouldBlock), "{round}");
        let took = rt::time::now() - before;
        check!(took >= WHILE, "round {round} took {took}");
        check!(took < 100 * WHILE, "round {round} took {took}");
    }
    absent.supply(0)?;
    check_eq!(part(4), Ok(vec![0; 4]), "what is there");
    check_eq!(part(8), Err(Error::WouldBlock), "one byte is absent");
    absent.supply(PAGE_SIZE)?;
    check_eq!(part(8), Ok(vec![0; 8]), "all is there");
    check_eq!(
        window.read_within(PAGE_SIZE, 4097, WHILE),
        Err(Error::Invalid)
    );
    Ok(())
}

/// A port whose faults are never answered, with its set.
fn silent_port() -> Result<(Ref, (Port, Portset)), rt::Code> {
    let (set, port) = (Portset::new()?, Port::new()?);
    let state = PortState {
        alias: 0,
        flags: port_flags::CALLS_ONLY,
    };
    port.set_state(&state, set.reference()?.handle())?;
    Ok((port.reference()?, (port, set)))
}

guest_test!(PROCESS0001, programs_that_do_wrong_are_ended);
fn programs_that_do_wrong_are_ended() -> Outcome {
    let native = Client::new("native").must("the manager")?;
    let cases: [(&str, &[u8], u8); 7] = [
        ("ud2", &[0x0f, 0x0b], 4),
        ("int3", &[0xcc], 5),
        ("a division by zero", &[0x31, 0xc9, 0xf7, 0xf1], 8),
        ("hlt", &[0xf4], 11),
        // A load from address 0.
        ("a null pointer", &[0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], 11),
        // Call number 255.
        (
            "an unknown entrypoint",
            &[0xb8, 0xff, 0, 0, 0, 0x0f, 0x05],
            31,
        ),
        // mutex_lock of an address without an object
        (
            "no object",
            &[0xb8, 55, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05],
            11,
        ),
    ];
    for (what, code, signal) in cases {
        check_eq!(
            run(&native, &program(code)),
            Ok(Status::Killed(signal)),
            "{what}"
        );
    }
    Ok(())
}

guest_test!(PROCESS0002, corrupt_executables_are_refused);
fn corrupt_executables_are_refused() -> Outcome {
    let native = Client::new("native").must("the manager")?;
    let good = program(&[0x0f, 0x0b]);
    check_eq!(run(&native, &good), Ok(Status::Killed(4)));
    for cut in [0, 1, 63, 64, 150, 0x1000, 0x1001] {
        check_eq!(
            run(&native, &good[..cut]),
            Err(Error::BadFormat),
            "cut at {cut}"
        );
    }
    for (position, value) in [
        (0, 0),
        (4, 1),
        (18, 3),
        (16, 9),
        (24, 0xff),
        (64 + 16 + 5, 0xff),
    ] {
        let mut bad = good.clone();
        bad[position] = value;
        check_eq!(run(&native, &bad), Err(Error::BadFormat), "byte {position}");
    }
    check_eq!(
        native.spawn("/nowhere", &Start::default(), &[]).map(drop),
        Err(Error::NotFound)
    );
    check_eq!(
        native.spawn("/tmp", &Start::default(), &[]).map(drop),
        Err(Error::IsDirectory)
    );
    check_eq!(
        native.spawn("/etc/gets", &Start::default(), &[]).map(drop),
        Err(Error::Denied)
    );
    Ok(())
}
