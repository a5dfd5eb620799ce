//! Hostile programs: `/test/attack WAY`. Each way tries to harm others with what an ordinary program has, and prints
//! the results. `docs/security.md` lists what each of them shows; the scenarios whose names begin with `attack_` run
//! them and check the state of the machine afterwards.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{OBJECTS, READ, WRITE};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use guest_tests::harness::{call_site, Absent, Actor, Twin};
use interface::client::{open_kept, Asked, Kept};
use interface::query_interface;
use interface::wire::{self, WORDS};
use proto::layout::{CONTROL_SIZE, CONTROL_SPACE, CONTROL_THREAD};
use proto::Error;
use rt::checkpoint::Sentence;
use rt::obj::{Cond, Mapping, Port, Portset, Ref, SpaceAt, Thread, ThreadAt};
use rt::process::{Client, Process, Start, Status, Stdio};
use rt::window::Window;
use rt::{println, time};
use services::checkpoint::CheckpointClient;
use services::console::{ConsoleClient, ConsoleControlCalls, ConsoleControlClient};
use services::fs::FilesClient;
use services::names::RESERVED;
use services::process::{DebugClient, ProcessClient, ProcessesClient, SupervisorClient, ROOM};
use services::system::SystemClient;

rt::entry!(main);

type Done = Result<(), Error>;

/// A way to attack.
struct Way {
    name: &'static str,
    run: fn() -> Done,
}

const fn way(name: &'static str, run: fn() -> Done) -> Way {
    Way { name, run }
}

/// All ways to attack.
const WAYS: [Way; 34] = [
    way("beside", beside),
    way("large", large),
    way("saves", saves),
    way("control", control),
    way("crashes", crashes),
    way("crash", crash),
    way("bomb", bomb),
    way("checkpointer", checkpointer),
    way("console-power", console_power),
    way("console-read", console_read),
    way("console-sessions", console_sessions),
    way("counts", counts),
    way("freezes", freezes),
    way("frozen", frozen),
    way("hollow", hollow),
    way("inside", inside),
    way("keeper-calls", keeper_calls),
    way("keeper-faults", keeper_faults),
    way("names", names),
    way("part", part),
    way("peek", peek),
    way("placed", placed),
    way("power", power),
    way("priority", priority),
    way("strings", strings),
    way("many", many),
    way("resumes", resumes),
    way("restores", || restores("/tmp/restores")),
    way("restores-beside", || restores("/tmp/restores-beside")),
    way("vacant", vacant),
    way("vacant-exit", vacant_exit),
    way("wait", wait),
    way("watch", watch),
    way("wild", wild),
];

fn main() -> u8 {
    let wanted = rt::start().args.get(1).map_or("", String::as_str);
    let Some(way) = WAYS.iter().find(|way| way.name == wanted) else {
        println!("attack: no such way");
        return 2;
    };
    match (way.run)() {
        Ok(()) => 0,
        Err(error) => {
            println!("{wanted}: could not try: {}", error.text());
            1
        }
    }
}

/// Ports of every service that an ordinary program has or can get. They answer requests, and are not its keepers.
fn service_ports() -> Result<Vec<(&'static str, Ref)>, Error> {
    let segment = rt::memory::create(CONTROL_SIZE)?;
    let mut ports = [
        ("its account", rt::start::memory().copy().map_err(code)?),
        ("its segment", segment.control),
    ]
    .into_iter()
    .collect::<Vec<_>>();
    for name in ["native", "linux", "fs", "console", "checkpoint"] {
        ports.push((name, rt::names::lookup(name)?));
    }
    let door = rt::names::lookup("console")?;
    let session = ConsoleClient::open_known(&door)?;
    let port = session.session().kept().0.copy().map_err(code)?;
    ports.push(("a session", port));
    core::mem::forget(session);
    Ok(ports)
}

extern "C" fn touch(address: u64) {
    // SAFETY: the memory there, if there is any, is not in use.
    unsafe { (address as *mut u64).write_volatile(1) };
}

/// Makes ports of services the keepers of its own memory, and touches that memory.
fn keeper_faults() -> Done {
    const STEP: u64 = 64 << 10;
    let failed = |_| Error::Broken;
    for (name, port) in service_ports()? {
        let size = if name == "its account" {
            32 << 20
        } else {
            1 << 20
        };
        let absent = Absent::new(size, port.handle()).map_err(failed)?;
        let at = rt::window::take_addresses(size, STEP).ok_or(Error::NoMemory)?;
        // Without a keeper, a thread that meets an exception stops.
        let twin = Twin::new(0, 0).map_err(failed)?;
        let mapping = Mapping::new().map_err(code)?;
        let state = abi::state::MappingState {
            start: at,
            size,
            offset: 0,
            protection: READ | WRITE,
        };
        mapping
            .set_state(&state, absent.region_ref.handle(), twin.space_ref.handle())
            .map_err(code)?;
        let mut stopped = 0;
        for offset in (0..size).step_by(STEP as usize) {
            let actor = Actor::within(&twin.space_ref).map_err(failed)?;
            actor.function(touch, at + offset).map_err(failed)?;
            for _ in 0..20 {
                time::sleep(100_000);
                if actor.state().stop_count == 1 {
                    stopped += 1;
                    break;
                }
            }
        }
        let all = stopped == size / STEP;
        println!(
            "keeper-faults: {name}: {}",
            if all { "nothing came" } else { "DONE" }
        );
    }
    Ok(())
}

/// Makes ports of services the keepers of a space of its own, and makes Linux calls and exceptions there.
fn keeper_calls() -> Done {
    let failed = |_| Error::Broken;
    let mut ports = service_ports()?;
    let linux = Client::new("linux")?;
    let adopted = linux.adopt(&*rt::start::names().copy().map_err(code)?)?;
    ports.push(("a Linux process", adopted.keeper));
    let start = Start {
        args: ["busybox", "sleep", "1000"]
            .map(ToString::to_string)
            .to_vec(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        ..Start::default()
    };
    let child = linux.spawn("/bin/busybox", &start, &[])?;
    time::sleep(50_000_000);
    child.stop()?;
    let frozen = child.freeze(0)?;
    let window = Window::map(&frozen.control, 0, CONTROL_SIZE, READ | WRITE | OBJECTS)?;
    let keeper = Ref::new().map_err(code)?;
    SpaceAt(window.address() + CONTROL_SPACE)
        .get_state(keeper.handle())
        .map_err(code)?;
    child.thaw()?;
    child.resume()?;
    ports.push(("a Linux process that runs", keeper));
    for (name, port) in ports {
        for flags in [abi::state::space_flags::FOREIGN, 0] {
            let twin = Twin::new(flags, port.handle()).map_err(failed)?;
            // Left out: calls that end the process, or after which its own thread is elsewhere.
            let ends = |number: &u64| matches!(number, 15 | 59 | 60 | 231 | 322);
            for number in (0..if flags == 0 { 4 } else { 470 }).filter(|n| flags == 0 || !ends(n)) {
                let actor = Actor::within(&twin.space_ref).map_err(failed)?;
                let mut begin = abi::state::Registers::starting(call_site(), 0, number);
                begin.set_call(number);
                begin.set_parameter(1, 0x1000);
                begin.set_parameter(2, u64::MAX);
                if flags == 0 {
                    begin.set_pc(number);
                }
                actor.start(&begin).map_err(failed)?;
                time::sleep(if name.starts_with("a Linux") {
                    300_000
                } else {
                    20_000
                });
            }
        }
        println!("keeper-calls: {name}");
    }
    let _ = end(&child);
    Ok(())
}

/// The result of an attempt, in words.
fn said<T>(result: Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "DONE",
        Err(error) => error.text(),
    }
}

/// Starts this program again, with another way.
fn again(way: &str) -> Result<Process, Error> {
    let start = Start {
        args: ["attack", way].map(ToString::to_string).to_vec(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        ..Start::default()
    };
    Client::new("native")?.spawn("/test/attack", &start, &[])
}

/// The file in which `counts` counts.
const COUNT: &str = "/tmp/count";

/// Counts in a file.
fn counts() -> Done {
    for count in 0u64.. {
        rt::fs::write_all(COUNT, &count.to_le_bytes(), 0o644)?;
        time::sleep(1_000_000);
    }
    Ok(())
}

/// Freezes the process that was passed to this program, and keeps the session until this program ends.
fn freezes() -> Done {
    let port = rt::start::passed(0).ok_or(Error::NotFound)?;
    let mut session = Process::at(0, port.copy().map_err(code)?).open()?;
    session.freeze(0, &mut [0; ROOM])?;
    session.ended().map(drop)
}

/// A process that another one has frozen goes on when that one is gone, whatever the frozen process was waiting for.
fn frozen() -> Done {
    let counts = || {
        let before = rt::fs::read_all(COUNT).unwrap_or_default();
        time::sleep(100_000_000);
        Ok::<_, Error>(rt::fs::read_all(COUNT)? != before)
    };
    let is_seen = |wanted| (0..50).any(|_| counts() == Ok(wanted));
    let counter = again("counts")?;
    println!("frozen: before: {}", is_seen(true));
    let start = Start {
        args: ["attack", "freezes"].map(ToString::to_string).to_vec(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        ..Start::default()
    };
    let holder = Client::new("native")?.spawn("/test/attack", &start, &[counter.port()])?;
    // So that no session is opened later: that is when a server checks which clients have ended.
    holder.status()?;
    println!("frozen: it stands still: {}", is_seen(false));
    holder.kill()?;
    println!("frozen: it goes on: {}", is_seen(true));
    holder.reap()?;
    end(&counter).map(drop)
}

/// Starts this program again until that is refused. Returns the reason.
fn all_that_there_may_be(made: &mut Vec<Process>) -> Error {
    loop {
        match again("wait") {
            Ok(process) => made.push(process),
            Err(error) => break error,
        }
    }
}

/// Ends a process and lets its manager remove it.
fn end(process: &Process) -> Result<Status, Error> {
    process.kill()?;
    process.reap()
}

fn code(code: rt::Code) -> Error {
    rt::error_of(code)
}

/// The console's door gives no control, no session to a program under another's name, and nothing of another's
/// session.
fn console_power() -> Done {
    let door = rt::names::lookup("console")?;
    let control = ConsoleControlClient::open_known(&door);
    println!("console: control at its door: {}", said(control));
    println!(
        "console: control from init: {}",
        said(rt::system::control("console"))
    );
    let mut session = ConsoleClient::open_known(&door)?;
    let asked = query_interface::<dyn ConsoleControlCalls>(&mut session);
    println!(
        "console: control of a session: {}",
        if asked.is_ok() { "DONE" } else { "none" }
    );
    // The numbers of methods of control, which a session does not have.
    let done = (5..=8)
        .map(|method| {
            session
                .session()
                .ask::<u64>(method, [MaybeUninit::new(0); WORDS], 2)
        })
        .filter(Result::is_ok)
        .count();
    println!("console: methods of control that a session has: {done}");
    let own = Port::new().map_err(code)?.reference().map_err(code)?;
    for (who, port) in [("a port of its own", *own), ("the door", *door)] {
        let opened = ConsoleClient::open_as(&door, port);
        println!("console: a session for {who}: {}", said(opened));
        let kept = interface::client::keep(&door, &port);
        println!("console: what is kept of {who}: {}", said(kept));
    }
    Ok(())
}

/// Makes one after the other until that is refused. Returns what was made, and the reason.
fn until_refused<T>(mut make: impl FnMut() -> Result<T, Error>) -> (Vec<T>, Error) {
    let mut made = Vec::new();
    loop {
        match make() {
            Ok(one) => made.push(one),
            Err(error) => break (made, error),
        }
    }
}

/// Opens sessions until there are no more.
fn console_sessions() -> Done {
    let door = rt::names::lookup("console")?;
    println!("sessions: one to write");
    let (sessions, error) = until_refused(|| ConsoleClient::open_known(&door));
    println!("sessions: {} more, then: {}", sessions.len(), error.text());
    Ok(())
}

/// Reads what is typed for others, with one request for each of its threads, for ever.
fn console_read() -> Done {
    for _ in 0..4 {
        rt::thread::spawn(|| {
            let read = || {
                let mut into = [0; 100];
                ConsoleClient::open_known(&*rt::names::lookup("console")?)?.read(&mut into)
            };
            println!("console: read: {}", said(read()));
        })
        .map_err(code)?;
    }
    println!("console: it reads");
    wait()
}

/// Does nothing, until it is killed.
fn wait() -> Done {
    loop {
        time::sleep(1_000_000_000);
    }
}

/// The managers' ports answer what every program may ask, and nothing that needs power over a process.
fn peek() -> Done {
    for manager in ["native", "linux"] {
        let port = rt::names::lookup(manager)?;
        let mut bytes = alloc::vec![0; ROOM];
        let list = SupervisorClient::at(*port).next(0, &mut bytes);
        println!("peek: all processes of {manager}: {}", said(list));
        for pid in 1..=3 {
            if SupervisorClient::at(*port).control(pid).is_ok() {
                println!("peek: a process of {manager}: DONE");
            }
        }
        println!(
            "peek: power at the door of {manager}: {}",
            said(ProcessClient::open_known(&port))
        );
        let supervisor = rt::system::supervisor(manager);
        println!("peek: the supervisor of {manager}: {}", said(supervisor));
    }
    Ok(())
}

/// Tries what only the holder of the system port may do.
fn power() -> Done {
    println!("power: off: {}", said(rt::system::power_off(1)));
    println!("power: a report: {}", said(rt::system::report("exit 0")));
    // No other port can open such sessions.
    for port in [
        rt::start::names().copy().map_err(code)?,
        rt::names::lookup("native")?,
    ] {
        let refused = match SystemClient::open_known(&port) {
            Ok(mut system) => system.power_off(1).is_err(),
            Err(_) => true,
        };
        println!(
            "power: off by another port: {}",
            if refused { "refused" } else { "DONE" }
        );
    }
    // The control channel also gets what the log says about programs.
    let native = Client::new("native")?;
    let path = "/tmp/none\npanic is not true\n";
    let spawned = native.spawn(path, &Start::default(), &[]);
    println!("power: a line of the log: {}", said(spawned));
    Ok(())
}

/// A control port is the power over one process; no other port is.
fn control() -> Done {
    let child = again("wait")?;
    let other = again("wait")?;
    let native = Client::new("native")?;
    println!("control: of its own: {}", said(native.verify(child.port())));
    let own = rt::start::names().copy().map_err(code)?;
    println!("control: of its own port: {}", said(native.verify(&own)));
    println!(
        "control: of a service: {}",
        said(native.verify(&*rt::names::lookup("fs")?))
    );
    let killed = Process::at(1, own).kill();
    println!(
        "control: kill by its own port: {}",
        if killed.is_err() { "refused" } else { "DONE" }
    );
    end(&child)?;
    println!("control: what is forgotten: {}", said(child.status()));
    println!("control: the other: {:?}", other.status()?);
    end(&other)?;
    Ok(())
}

/// A process that loses its essential objects by the holder of its control port, without its manager's knowledge.
fn hollow() -> Done {
    let child = again("wait")?;
    time::sleep(50_000_000);
    child.stop()?;
    let frozen = child.freeze(0)?;
    let rights = READ | WRITE | OBJECTS;
    let window = Window::map(&frozen.control, 0, CONTROL_SIZE, rights)?;
    SpaceAt(window.address() + CONTROL_SPACE)
        .destroy()
        .map_err(code)?;
    ThreadAt(window.address() + CONTROL_THREAD)
        .destroy()
        .map_err(code)?;
    // Any answer is right, but there must be one.
    let _ = child.info();
    let _ = child.thaw();
    let _ = child.resume();
    let _ = child.stop();
    let _ = child.resume();
    let _ = child.freeze(0);
    let _ = child.thaw();
    println!("hollow: {:?}", end(&child)?);
    Ok(())
}

/// Whether this program runs in the kernel's rings.
fn is_collocated_here() -> bool {
    placed as *const () as u64 >= abi::collocated::START
}

/// Exits successfully if it runs in the kernel's rings.
fn inside() -> Done {
    is_collocated_here().then_some(()).ok_or(Error::Invalid)
}

/// Whether this program, started again, runs in the kernel's rings.
fn is_collocated() -> Result<bool, Error> {
    let child = again("inside")?;
    let status = child.ended()?;
    child.reap()?;
    Ok(matches!(status, Status::Exited(0)))
}

/// Tries to take what a program has that runs in the kernel when it is started by this path: its memory, its threads,
/// its file, and all places. The attacker itself runs in a process, started by another spelling of the path.
fn placed() -> Done {
    const ROUNDS: u32 = 40;
    println!("placed: itself: {}", is_collocated_here());
    let child = again("wait")?;
    println!("placed: a child: {}", is_collocated()?);
    println!("placed: its memory: {}", said(child.freeze(0)));
    let mut debugger = DebugClient::open_known(child.port())?;
    println!(
        "placed: its threads: {}, {}",
        said(debugger.hold()),
        said(debugger.regions())
    );
    println!(
        "placed: its stop: {}",
        said(child.stop().and_then(|()| child.resume()))
    );
    rt::fs::write_all("/test/attack", b"anything", 0o755)?;
    let other = again("wait")?;
    println!("placed: by another file: {}", is_collocated()?);
    let mut made = alloc::vec![child, other];
    let refused = all_that_there_may_be(&mut made);
    println!("placed: {} of them, then: {}", made.len(), refused.text());
    for process in made {
        end(&process)?;
    }
    // More often than there are places: a place is free when its process has ended.
    for _ in 0..ROUNDS {
        end(&again("wait")?)?;
    }
    println!("placed: and {ROUNDS} one after the other");
    Ok(())
}

/// Reads the word at an address in hexadecimal digits, and survives only if it can be read or, with `guarded`, if it
/// cannot.
fn wild() -> Done {
    let args = &rt::start().args;
    let address = args.get(2).map_or("", String::as_str);
    let address = u64::from_str_radix(address, 16).map_err(|_| Error::Invalid)?;
    if args.get(3).is_some() {
        println!("wild: {:?}", rt::guard::are_zero(address, 1));
    } else {
        read_wildly(address);
        println!("wild: read");
    }
    Ok(())
}

#[inline(never)]
fn read_wildly(address: u64) {
    // SAFETY: nothing is written, and the memory there, if there is any, is not in use.
    let _ = unsafe { (address as *const u64).read_volatile() };
}

/// Starts processes until that is refused.
fn bomb() -> Done {
    let mut made = Vec::new();
    let refused = all_that_there_may_be(&mut made);
    println!("bomb: {} processes, then: {}", made.len(), refused.text());
    // The processes stay; they end with the job.
    Ok(())
}

/// A port at which no server waits, and its portset.
fn silent_port() -> Result<(Portset, Port), abi::Code> {
    let set = Portset::new()?;
    let port = Port::in_portset(&abi::state::PortState::default(), *set.reference()?)?;
    Ok((set, port))
}

/// Ends by an exception, for which init prints a line.
fn crash() -> Done {
    touch(0);
    Ok(())
}

/// Keeps init printing lines about crashed programs, for ever.
fn crashes() -> Done {
    loop {
        let children: Vec<_> = core::iter::from_fn(|| again("crash").ok()).collect();
        for child in children {
            let _ = child.ended();
            let _ = child.reap();
        }
    }
}

/// Registers reserved names, and names of its own until that is refused.
fn names() -> Done {
    let (_set, port) = silent_port().map_err(code)?;
    for name in RESERVED {
        println!("names: {name}: {}", said(rt::names::register(name, &port)));
    }
    println!(
        "names: with the system port: {}",
        said(rt::system::register("fs", &port))
    );
    let mut made = 0;
    let refused = loop {
        match rt::names::register(&format!("attack-{made}"), &port) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    println!("names: {made} of its own, then: {}", refused.text());
    Ok(())
}

/// Opens sessions at the control port of a process until that is refused.
fn watch() -> Done {
    let child = again("wait")?;
    let (sessions, refused) = until_refused(|| child.open());
    println!(
        "watch: {} sessions, then: {}",
        sessions.len(),
        refused.text()
    );
    // Ended sessions make room.
    drop(sessions);
    println!("watch: {}", said(child.status()));
    end(&child)?;
    Ok(())
}

/// Gives the checkpointer ports that never answer, as if they were those of processes and of a client.
fn checkpointer() -> Done {
    let (_set, port) = silent_port().map_err(code)?;
    let silent = port.reference().map_err(code)?;
    const IMAGE: &str = "/tmp/attack";
    fn refused<T>(result: Result<T, Sentence>) -> Sentence {
        result.map_or_else(|why| why, |_| "DONE".to_string())
    }
    for ports in [&[*silent][..], &[]] {
        let saved = rt::checkpoint::save(ports, IMAGE);
        println!("checkpointer: save: {}", refused(saved));
    }
    let child = again("wait")?;
    let both = [**child.port(), *silent];
    let saved = rt::checkpoint::save(&both, IMAGE);
    println!("checkpointer: save: {}", refused(saved));
    let saved = rt::checkpoint::save(&both[..1], IMAGE);
    println!("checkpointer: save its own: {}", refused(saved));
    end(&child)?;
    // A restore on another's account.
    let door = rt::names::lookup("checkpoint")?;
    println!(
        "checkpointer: for another: {}",
        said(CheckpointClient::open_as(&door, *silent))
    );
    let restored = rt::checkpoint::restore(IMAGE);
    for (.., process) in restored.iter().flatten() {
        end(process)?;
    }
    println!("checkpointer: restore its own: {}", refused(restored));
    Ok(())
}

/// Makes as many objects as a program may, and waits.
fn many() -> Done {
    let mut made = Vec::new();
    while let Ok(cond) = Cond::new() {
        made.push(cond);
    }
    wait()
}

/// Restores a process with many objects again and again until that is refused, and keeps the results for two seconds.
fn restores(image: &str) -> Done {
    let child = again("many")?;
    time::sleep(200_000_000);
    if let Err(why) = rt::checkpoint::save(&[**child.port()], image) {
        println!("restores: save: {why}");
    }
    end(&child)?;
    let mut kept = Vec::new();
    let why = loop {
        match rt::checkpoint::restore(image) {
            Ok(processes) => kept.extend(processes),
            Err(why) => break why,
        }
    };
    println!(
        "restores: {}, then: {why}",
        if kept.len() > 1 { "some" } else { "none" }
    );
    time::sleep(2_000_000_000);
    for (_, _, process) in &kept {
        end(process)?;
    }
    let restored = rt::checkpoint::restore(image);
    for (_, _, process) in restored.iter().flatten() {
        end(process)?;
    }
    println!(
        "restores: when these have ended: {}",
        restored.map_or_else(|why| why, |_| "DONE".to_string())
    );
    Ok(())
}

/// Bytes of a process that takes a while to save.
const LARGE: usize = 2 << 20;

/// A process of that size, which ends by itself, since the program that saves it may be killed first.
fn large() -> Done {
    let bytes: Vec<u8> = (0..LARGE).map(|n| (n >> 3) as u8 ^ n as u8).collect();
    core::hint::black_box(&bytes);
    time::sleep(3_000_000_000);
    Ok(())
}

/// Saves a process of its own again and again, from several threads, for ever.
fn saves() -> Done {
    let child = again("large")?;
    time::sleep(20_000_000);
    let port = **child.port();
    let save = move || loop {
        let _ = rt::checkpoint::save(&[port], "/tmp/saves");
    };
    rt::thread::spawn(save).map_err(code)?;
    // As many threads as it gets: in the process model each has a stack in the kernel.
    for _ in 0..7 {
        if rt::thread::spawn(save).is_err() {
            break;
        }
    }
    wait()
}

/// Measures what a program experiences that runs beside others: the worst times of the checkpointer's answers, of the
/// file system's, and of some work of its own, against bounds.
fn beside() -> Done {
    // With so many other programs at most, this one gets a turn of 10 M instructions after theirs.
    const ANSWER: u64 = 120_000_000;
    const WORK: u64 = 20_000_000;
    let mut worst = [0; 3];
    for _ in 0..20 {
        let mut took = |of: usize, work: &mut dyn FnMut() -> bool| {
            let before = time::now();
            let right = work();
            worst[of] = worst[of].max(time::now() - before);
            if right {
                Ok(())
            } else {
                Err(Error::Broken)
            }
        };
        took(0, &mut || {
            let restored = rt::checkpoint::restore("/tmp/no image");
            restored.is_err_and(|why| why.starts_with("/tmp/no image: "))
        })?;
        took(1, &mut || rt::fs::stat("/tmp", true).is_ok())?;
        took(2, &mut || {
            let until = time::now() + WORK;
            while time::now() < until {
                core::hint::spin_loop();
            }
            true
        })?;
    }
    let bounds = [ANSWER, ANSWER, WORK + ANSWER];
    if worst
        .iter()
        .zip(bounds)
        .all(|(worst, bound)| *worst <= bound)
    {
        println!("beside: answered in time");
    } else {
        println!("beside: {worst:?}, more than {bounds:?}");
    }
    Ok(())
}

/// Begins to rebuild processes, and never finishes, with parts that make no sense.
fn part() -> Done {
    let native = Client::new("native")?;
    let own = rt::start::names().copy().map_err(code)?;
    println!(
        "part: for a port that is nobody's: {}",
        said(native.adopt(&*Ref::new().map_err(code)?))
    );
    for manager in ["native", "linux"] {
        let adopted = Client::new(manager)?.adopt(&own)?;
        let all = adopted.process.populate(0, false, 0, 1 << 30);
        println!("part: all its pages at once, of {manager}: {}", said(all));
        end(&adopted.process)?;
    }
    let adopted = native.adopt(&own)?;
    println!(
        "part: nonsense: {}",
        said(adopted.process.rebuild(&[0xff; 100], 0))
    );
    println!("part: then: {:?}", adopted.process.status()?);
    adopted.process.reap()?;
    let (begun, refused) = until_refused(|| native.adopt(&own));
    println!("part: {} begun, then: {}", begun.len(), refused.text());
    if let Some(one) = begun.first() {
        println!("part: go on with nothing: {}", said(one.process.thaw()));
    }
    for one in &begun {
        let _ = end(&one.process);
    }
    Ok(())
}

/// Resumes sessions as a restored program does, each with as many bytes of a kept reply as allowed: the server keeps
/// them.
fn resumes() -> Done {
    let services = [
        ("native", ProcessesClient::ID),
        ("fs", FilesClient::ID),
        ("console", ConsoleClient::ID),
    ];
    for (name, interface) in services {
        let door = rt::names::lookup(name)?;
        let mut kept = Kept {
            words: [0; wire::KEPT_WORDS],
            bytes: alloc::vec![7; wire::KEPT_BYTES],
        };
        (kept.words[0], kept.words[1]) = (interface, 1 << 48 | 5);
        let (sessions, refused) = until_refused(|| open_kept(&door, &kept, rt::start::names()));
        println!(
            "resumes: {name}: {} sessions, then: {}",
            sessions.len(),
            refused.text()
        );
    }
    Ok(())
}

/// Messages that are short, but long in the memory of the server that reads them: lists of empty strings.
fn strings() -> Done {
    let many = alloc::vec![String::new(); 50_000];
    let start = Start {
        args: many,
        ..Start::default()
    };
    for manager in ["native", "linux"] {
        let refused = Client::new(manager)?.spawn("/test/attack", &start, &[]);
        println!("strings: arguments for {manager}: {}", said(refused));
    }
    // A part: its form, no name, not stopped, and as many names as there is room for.
    let native = Client::new("native")?;
    let own = rt::start::names().copy().map_err(code)?;
    let part = |length: usize| {
        let mut part = [3, 0, 0, 0x80, 0x80, 1].to_vec();
        part.resize(length, 0);
        part
    };
    for length in [8 << 10, 256 << 10] {
        let mut refused = Vec::new();
        for _ in 0..16 {
            let adopted = native.adopt(&own)?;
            refused.push(said(adopted.process.rebuild(&part(length), 0)));
            adopted.process.reap()?;
        }
        refused.dedup();
        println!("strings: parts of {length} bytes: {}", refused.join(", "));
    }
    Ok(())
}

/// Asks for a thread of the highest priority, which would never let other threads run.
fn priority() -> Done {
    let until = time::now() + 500_000_000;
    for priority in [31, 16, 14, 12, 9] {
        let spin = rt::thread::spawn_at(priority, move || while time::now() < until {});
        println!(
            "priority: {priority}: {}",
            if spin.is_ok() { "DONE" } else { "refused" }
        );
    }
    Ok(())
}

/// A thread without a body, whose identity a reference keeps.
fn leave_vacant() -> Done {
    let thread = Thread::new().map_err(code)?;
    let kept = Ref::new().map_err(code)?;
    let destroyed = rt::sys::thread_destroy(thread.at().0, kept.at().0);
    println!("vacant: {destroyed:?}");
    core::mem::forget((thread, kept));
    Ok(())
}

/// Another program asks for the state of this process.
fn vacant() -> Done {
    leave_vacant()?;
    wait()
}

/// The memory of this process is freed when it ends.
fn vacant_exit() -> Done {
    leave_vacant()
}
