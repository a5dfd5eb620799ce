//! Programs that try to harm others. The first argument is the way; each is a scenario whose name begins with
//! `attack`.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::ALL;
use abi::ipc::{plan, Plan};
use abi::state::PortState;
use abi::{Call, Code, RefKind, PAGE_SIZE};
use alloc::string::String;
use alloc::vec::Vec;
use guest_tests::harness::Random;
use guest_tests::services::pending::PendingCall;
use interface::Session;
use proto::layout::{CHUNK, PROGRAM_BASE};
use proto::Error;
use rt::fs;
use rt::memory::{self, Segment};
use rt::obj::{Mutex, Port, Portset, Ref, RefAt};
use rt::process::{Client, Start};
use rt::start::memory;
use rt::sys::{self, IpcRegs};
use rt::window::Window;
use services::block::BlockClient;
use services::checkpoint::CheckpointClient;
use services::console::{ConsoleClient, ConsoleControlClient};
use services::fs::FilesClient;
use services::link::LinkClient;
use services::memory::AccountClient;
use services::net::NetworkClient;
use services::process::{ProcessClient, ProcessesClient};
use services::random::RandomClient;
use services::sound::SoundClient;
use services::system::SystemClient;

rt::entry!(main);

/// Bytes of the largest segment.
const LARGE: u64 = 1 << 36;
/// How much is requested at once.
const STEP: u64 = 1 << 20;
/// Exit status of a run in which everything was refused or allowed as expected.
const AS_EXPECTED: u8 = 7;

fn main() -> u8 {
    let how = rt::start().args.get(1).map(String::as_str);
    let done = match how {
        Some("hog") => hog(),
        Some("touch") => touch(),
        Some("share") => share(),
        Some("reserve") => reserve(),
        Some("segments") => segments(),
        Some("vacant") => vacant(),
        Some("objects") => objects(),
        Some("heirs") => heirs(),
        Some("leave") => leave(),
        Some("churn") => churn(),
        Some("neighbour") => neighbour(),
        Some("hold") => hold(),
        Some("grow") => grow(),
        Some("heavy") => heavy(),
        Some("nodisk") => nodisk(),
        Some("odd") => odd(),
        Some("watched") => watched(),
        Some("crash") => crash(),
        // For the scenario: the console, which was not read so far, has to be read from now on.
        Some("tell") => rt::system::report("log the console is to be read"),
        _ => Err(Error::Invalid),
    };
    match done {
        Ok(()) => AS_EXPECTED,
        Err(error) => {
            rt::println!("hostile: {}", error.text());
            1
        }
    }
}

/// Keeps what it has, until it is killed.
fn stay() -> ! {
    loop {
        sys::thread_wait_interrupt();
    }
}

/// Takes all memory that the memory server gives it.
fn take_all() -> Result<Segment, Error> {
    let segment = memory::create(LARGE)?;
    let mut taken = 0;
    loop {
        match segment.populate(taken, STEP) {
            Ok(()) => taken += STEP,
            Err(Error::NoMemory) => return Ok(segment),
            Err(error) => return Err(error),
        }
    }
}

/// Takes all memory that it gets, and keeps it.
fn hog() -> Result<(), Error> {
    let _segment = take_all()?;
    stay()
}

/// Makes the memory server show a little memory in as many places as allowed, takes as much memory as it can in
/// addition, and keeps all of it.
fn share() -> Result<(), Error> {
    const COPIES: u64 = 5;
    let most = memory::usage()?.total / 4 * 3;
    let size = (most - STEP) / (COPIES + 1) / CHUNK * CHUNK;
    let segment = memory::create(size)?;
    segment.populate(0, size)?;
    let mut copies = Vec::new();
    while copies.len() < COPIES as usize - 1 {
        let Ok(copy) = segment.copy() else {
            break;
        };
        copies.push(copy);
    }
    let _segment = take_all()?;
    stay()
}

/// Reserves all memory that it gets, touches none of it, and keeps it reserved.
fn reserve() -> Result<(), Error> {
    let mut account = AccountClient::resume(Session::beside(memory()));
    let mut size = memory::usage()?.total;
    while account.reserve(size) == Err(Error::NoMemory) {
        size = size.checked_sub(CHUNK).ok_or(Error::NoMemory)?;
    }
    stay()
}

/// Touches one page after the other, until it is killed.
fn touch() -> Result<(), Error> {
    let segment = memory::create(LARGE)?;
    let window = Window::map(&segment.region, 0, LARGE, ALL)?;
    // Accesses without a guard.
    for page in 0..LARGE / PAGE_SIZE {
        let at = (window.address() + page * PAGE_SIZE) as *mut u8;
        // SAFETY: inside the window, which is no Rust object's memory.
        unsafe { at.write_volatile(1) };
    }
    Ok(())
}

/// Makes segments until that is refused, and ends with all of them.
fn segments() -> Result<(), Error> {
    let mut made = Vec::new();
    loop {
        match memory::create(LARGE) {
            Ok(segment) => {
                segment.populate(0, STEP)?;
                made.push(segment);
            }
            Err(Error::NoMemory) if !made.is_empty() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Leaves identities without bodies in its memory, each kept by the reference behind it, and ends.
fn vacant() -> Result<(), Error> {
    const SIZE: u64 = 16 * PAGE_SIZE;
    let segment = memory::create(SIZE)?;
    let window = Window::map(&segment.region, 0, SIZE, ALL)?;
    type Make = fn(u64, u64) -> Code;
    let kinds: [(Make, Make); 9] = [
        (sys::thread_create, sys::thread_destroy),
        (sys::space_create, sys::space_destroy),
        (sys::mapping_create, sys::mapping_destroy),
        (sys::region_create, sys::region_destroy),
        (sys::port_create, sys::port_destroy),
        (sys::portset_create, sys::portset_destroy),
        (sys::mutex_create, sys::mutex_destroy),
        (sys::cond_create, sys::cond_destroy),
        (sys::reference_create, sys::reference_destroy),
    ];
    for (n, (create, destroy)) in (0..).zip(kinds) {
        let object = window.address() + n * abi::OBJECT_SIZE;
        let keeper = RefAt(object + PAGE_SIZE);
        keeper.create().map_err(rt::error_of)?;
        for code in [create(object, 0), destroy(object, keeper.0)] {
            if code != Code::Ok {
                return Err(rt::error_of(code));
            }
        }
    }
    // The program does not unmap its own memory.
    core::mem::forget(window);
    Ok(())
}

/// Creates objects until that is refused, and ends.
fn objects() -> Result<(), Error> {
    let segment = memory::create(PART)?;
    fill(&segment.region, 0)
}

/// Room for as many objects as a program can make.
const PART: u64 = 4 << 20;

/// Makes as many objects as its quota allows, in memory that stays when the program has ended.
fn fill(region: &RefAt, from: u64) -> Result<(), Error> {
    let window = Window::map(region, from, PART, ALL)?;
    let mut made = 0u64;
    for at in (0..PART).step_by(abi::OBJECT_SIZE as usize) {
        if RefAt(window.address() + at).create().is_err() {
            break;
        }
        made += 1;
    }
    core::mem::forget(window);
    if made > 100 {
        Ok(())
    } else {
        Err(Error::NoMemory)
    }
}

/// Starts one program after the other, each of which leaves as many objects as its quota allows in memory that stays,
/// until another start is refused. `heirs stay` keeps all of them.
fn heirs() -> Result<(), Error> {
    const MOST: u64 = 400;
    let segment = memory::create(MOST * PART)?;
    let manager = Client::new("native")?;
    let mut ended = 0;
    let refused = loop {
        let start = Start {
            args: ["hostile", "leave"].map(String::from).to_vec(),
            env: [ended].map(|n| alloc::format!("PART={n}")).to_vec(),
            ..Start::default()
        };
        match manager.spawn("/test/hostile", &start, &[&segment.region]) {
            Ok(child) => {
                child.ended()?;
                child.reap()?;
            }
            Err(error) => break error,
        }
        ended += 1;
        if ended == MOST {
            break Error::Ended;
        }
    };
    rt::println!("heirs: {ended} programs, then: {}", refused.text());
    match rt::start().args.get(2) {
        Some(_) => stay(),
        None => Ok(()),
    }
}

/// One of those programs.
fn leave() -> Result<(), Error> {
    let part = rt::start()
        .env
        .iter()
        .find_map(|set| set.strip_prefix("PART="));
    let part: u64 = part
        .and_then(|part| part.parse().ok())
        .ok_or(Error::Invalid)?;
    fill(&rt::start::passed(0).ok_or(Error::Invalid)?, part * PART)
}

/// Fills, copies, frees and destroys large segments, until it is killed.
fn churn() -> Result<(), Error> {
    loop {
        let segment = memory::create(LARGE)?;
        let _ = segment.populate(0, 16 * STEP);
        if let Ok(copy) = segment.copy() {
            let _ = copy.discard(0, LARGE);
            copy.destroy()?;
        }
        segment.destroy()?;
    }
}

/// An ordinary program beside the hostile ones: touches a new page now and then, and prints the longest time that
/// took.
fn neighbour() -> Result<(), Error> {
    const PAGES: u64 = 64;
    /// Nanoseconds, each an instruction: without hostile programs a fault takes a few thousand; three of them may
    /// each take a turn.
    const BOUND: u64 = 100_000_000;
    let segment = memory::create(PAGES * PAGE_SIZE)?;
    let window = Window::map(&segment.region, 0, PAGES * PAGE_SIZE, ALL)?;
    let mut worst = 0;
    for page in 0..PAGES {
        rt::time::sleep(500_000);
        let before = rt::time::now();
        window.write(page * PAGE_SIZE, &[1])?;
        worst = worst.max(rt::time::now() - before);
    }
    if worst > BOUND {
        rt::println!("the neighbour waited {worst} ns for a page");
        return Err(Error::Broken);
    }
    Ok(())
}

/// Accesses memory that is not there. The program has the name of the driver as which it is started.
fn crash() -> Result<(), Error> {
    const NOWHERE: *const u8 = core::ptr::without_provenance(8);
    // SAFETY: nothing is mapped there: the access is an exception, which ends the program.
    unsafe { NOWHERE.read_volatile() };
    Ok(())
}

/// Waits in ways that show little from outside, with as many objects in its memory as allowed, until it is killed:
/// half of its callers wait at a port by a reference that is gone, and others for a mutex that is never unlocked.
fn watched() -> Result<(), Error> {
    const CALLERS: usize = 8;
    let portset = Portset::new().map_err(code)?;
    let port = Port::in_portset(
        &PortState::default(),
        portset.reference().map_err(code)?.at(),
    );
    let (port, mutex) = (port.map_err(code)?, Mutex::new().map_err(code)?);
    let mut handles = Vec::new();
    for _ in 0..CALLERS {
        let reference = port.reference().map_err(code)?;
        let handle = reference.at();
        core::mem::forget(reference);
        handles.push(handle);
        // No server ever receives there.
        let call = move || {
            let _ = handle.poke();
        };
        rt::thread::spawn(call).map_err(code)?;
    }
    mutex.lock();
    let handle = mutex.at();
    rt::thread::spawn(move || handle.lock()).map_err(code)?;
    rt::time::sleep(20_000_000);
    for handle in handles.iter().step_by(2) {
        handle.destroy().map_err(code)?;
    }
    while let Ok(reference) = Ref::new() {
        core::mem::forget(reference);
    }
    core::mem::forget((portset, port, mutex));
    stay()
}

/// The beginning of a native executable with one segment of so many bytes, which follows and is all zeros: the
/// program ends by its first instruction.
fn beginning(size: u64) -> Vec<u8> {
    const WHERE: u64 = PAGE_SIZE;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // An executable for x86-64, of version 1.
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [PROGRAM_BASE, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    // No flags; the sizes of the headers; one program header.
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // A loadable segment; readable, writable and executable.
    file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
    for word in [WHERE, PROGRAM_BASE, PROGRAM_BASE, size, size, PAGE_SIZE] {
        file.extend(word.to_le_bytes());
    }
    file
}

/// Makes an executable of [`beginning`] with that size. Returns the open file, and its size.
fn executable(path: &str, size: u64) -> Result<(fs::Ino, u64), Error> {
    let flags = fs::Flags {
        create: true,
        ..fs::Flags::default()
    };
    let file = fs::open(path, flags, 0o755)?.ino;
    let whole = PAGE_SIZE + size;
    fs::append(file, &beginning(size))?;
    fs::truncate(file, whole)?;
    Ok((file, whole))
}

/// Starts an executable that grows and shrinks while it is read, until starts have both failed and succeeded.
fn grow() -> Result<(), Error> {
    const PATH: &str = "/tmp/grow";
    const MOST: u32 = 300;
    let native = Client::new("native")?;
    let (file, whole) = executable(PATH, 1 << 20)?;
    let change = move || {
        // Sometimes more and sometimes less than reading takes: a fixed time would stay in step with it.
        let mut random = Random(1);
        loop {
            let _ = fs::truncate(file, whole / 2);
            let _ = fs::append(file, b"x");
            let _ = fs::truncate(file, whole);
            rt::time::sleep(random.below(40_000_000));
        }
    };
    rt::thread::spawn(change).map_err(rt::error_of)?;
    let (mut ran, mut refused) = (0, 0);
    while ran < 3 || refused < 3 {
        match native.spawn(PATH, &Start::default(), &[]) {
            Err(Error::BadFormat) => refused += 1,
            Err(error) => return Err(error),
            Ok(child) => {
                child.ended()?;
                child.reap()?;
                ran += 1;
            }
        }
        if ran + refused > MOST {
            rt::println!("grow: ran {ran} times, refused {refused} times");
            return Err(Error::Broken);
        }
    }
    Ok(())
}

/// Starts large executables all the time, several at once, until it is killed.
fn heavy() -> Result<(), Error> {
    const AT_ONCE: usize = 6;
    executable("/tmp/heavy", 64 << 20)?;
    let once = || {
        let child = Client::new("native")
            .and_then(|native| native.spawn("/tmp/heavy", &Start::default(), &[]));
        if let Ok(child) = child {
            let _ = child.ended();
            let _ = child.reap();
        }
    };
    for _ in 1..AT_ONCE {
        rt::thread::spawn(move || loop {
            once();
        })
        .map_err(rt::error_of)?;
    }
    loop {
        once();
    }
}

/// Starts so many executables of every odd kind, whose names end in numbers. They end by themselves, if they begin.
fn odd() -> Result<(), Error> {
    let native = Client::new("native")?;
    let count = rt::start().args.get(2).and_then(|count| count.parse().ok());
    let (mut ran, mut refused) = (0, 0);
    for n in 0..count.unwrap_or(0) {
        match native.spawn(&alloc::format!("/tmp/odd.{n}"), &Start::default(), &[]) {
            Ok(child) => {
                child.ended()?;
                child.reap()?;
                ran += 1;
            }
            Err(Error::BadFormat | Error::NoMemory) => refused += 1,
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    rt::println!("odd: {ran} ran, {refused} were refused");
    Ok(())
}

/// On a machine without a disk, requests for it fail, and fail soon.
fn nodisk() -> Result<(), Error> {
    /// Nanoseconds, each an instruction.
    const AT_ONCE: u64 = 100_000_000;
    let began = rt::time::now();
    match Client::new("native")?.spawn("/disk/program", &Start::default(), &[]) {
        Err(Error::NotFound) if rt::time::now() - began < AT_ONCE => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Broken),
    }
}

/// The interface of the sessions that a service opens for programs.
const SESSIONS: [(&str, u64); 10] = [
    ("native", ProcessesClient::ID),
    ("linux", ProcessesClient::ID),
    ("fs", FilesClient::ID),
    ("ext4", FilesClient::ID),
    ("console", ConsoleClient::ID),
    ("checkpoint", CheckpointClient::ID),
    ("random", RandomClient::ID),
    ("net", NetworkClient::ID),
    ("link", LinkClient::ID),
    ("sound", SoundClient::ID),
];

fn code(code: Code) -> Error {
    rt::error_of(code)
}

/// The ports of a service: the one by which it is found, the one by which it is controlled, and one of every kind
/// that it hands out. The objects behind them are kept for ever.
fn ports(name: &str) -> Result<Vec<Ref>, Error> {
    let mut ports = Vec::new();
    match name {
        "memory" => {
            ports.push(memory().copy().map_err(code)?);
            ports.push(memory::create(CHUNK)?.control);
            return Ok(ports);
        }
        "names" => {
            ports.push(rt::start::names().copy().map_err(code)?);
            let door = rt::system::port()?.copy().map_err(code)?;
            ports.push(session(&door, SystemClient::ID)?);
            ports.push(door);
            return Ok(ports);
        }
        _ => ports.push(rt::names::lookup(name)?),
    }
    // The console and a driver hand out more only at that door.
    if let Ok(control) = rt::system::control(name) {
        ports.push(control);
    }
    if let Some((_, id)) = SESSIONS.iter().find(|(other, _)| *other == name) {
        let door = if name == "link" {
            ports.last()
        } else {
            ports.first()
        };
        ports.push(session(door.ok_or(Error::Broken)?, *id)?);
    }
    match name {
        "native" | "linux" => {
            let adopted = Client::new(name)?.adopt(&rt::start::names())?;
            let port = adopted.process.port();
            ports.push(session(port, ProcessClient::ID)?);
            ports.push(port.copy().map_err(code)?);
            ports.extend([adopted.keeper, adopted.account]);
            core::mem::forget(adopted.process);
        }
        "console" => ports.push(session(&ports[1], ConsoleControlClient::ID)?),
        "disk" => ports.push(session(&ports[1], BlockClient::ID)?),
        _ => {}
    }
    ports.retain(|port| port.kind() == RefKind::Port);
    Ok(ports)
}

/// The port of a session that stays open.
fn session(door: &RefAt, id: u64) -> Result<Ref, Error> {
    let session = Session::open_known(door, id)?;
    let port = session.kept().0.copy().map_err(code)?;
    core::mem::forget(session);
    Ok(port)
}

/// Connects to every port of a service, by every call that connects, and sends nothing.
fn hold() -> Result<(), Error> {
    let name = rt::start().args.get(2).map_or("memory", String::as_str);
    let ports = ports(name)?;
    for port in &ports {
        for call in (0..=u8::MAX).filter_map(Call::from_number) {
            if !plan(call).has(Plan::CONNECT) {
                continue;
            }
            match connect(call, port)? {
                Some(Code::Denied) => {}
                other => rt::println!("hold: {name}: {}: {other:?}", call.name()),
            }
        }
    }
    rt::println!("hold: {name}: {} ports take no connections", ports.len());
    Ok(())
}

/// How often the result of a call is checked.
const TRIES: usize = 1000;

/// The result of such a call, if there is one after a while.
fn connect(call: Call, port: &Ref) -> Result<Option<Code>, Error> {
    let regs = IpcRegs::to(port.handle());
    let held = [port.copy().map_err(code)?].into();
    // SAFETY: nothing is sent, and there is no room for a message.
    let pending = unsafe { PendingCall::new(call, regs, held) }?;
    // On a busy host a millisecond may pass in which the call does not begin, but not each of so many.
    for _ in 0..TRIES {
        rt::time::sleep(1_000_000);
        if let code @ Some(_) = pending.code() {
            return Ok(code);
        }
    }
    Ok(None)
}
