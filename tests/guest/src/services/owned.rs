//! Things besides memory that a client owns and that a server could wait for: an answer that the client does not
//! take, references that it sends, the objects of its processes, its speed.

use super::ceiling::start;
use super::error;
use super::honest::spawn;
use super::references::{ReferencePool, SilentKeeper};
use super::table::{with_power, IDLE, PLACE, PROGRAM};
use abi::access::{ALL, OBJECTS, READ, WRITE};
use abi::state::MappingState;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use interface::client::{keep, open_kept, Kept};
use interface::Session;
use proto::layout::{CONTROL_MAPPINGS, CONTROL_SIZE, CONTROL_SPACE, CONTROL_THREAD};
use proto::Error;
use rt::net::{Network, ALWAYS};
use rt::obj::{Mapping, MappingAt, Mutex, Ref, RefAt, SpaceAt, ThreadAt};
use rt::process::{Client, Process, Status};
use rt::window::Window;
use services::block::{self, BlockClient};
use services::checkpoint::CheckpointClient;
use services::console::ConsoleClient;
use services::device::DevicesClient;
use services::entropy::EntropyClient;
use services::fs::FilesClient;
use services::link::LinkClient;
use services::memory::AccountClient;
use services::net::NetworkClient;
use services::process::{ProcessClient, ProcessesClient};
use services::random::RandomClient;
use services::sound::{Format, SoundClient};

/// A way to hold a service.
pub struct Other {
    /// A description.
    pub words: &'static str,
    /// The services to which it applies.
    pub services: &'static [&'static str],
    /// Holds the service of that name. Returns whether everything went as it should.
    pub hold: fn(&'static str) -> Result<bool, Error>,
}

/// All such ways.
pub const OTHERS: [Other; 3] = [
    Other {
        words: "requests are never done",
        services: &[
            "native",
            "linux",
            "console",
            "checkpoint",
            "net",
            "link",
            "disk",
            "sound",
        ],
        hold: endless,
    },
    Other {
        words: "references of every kind come with requests",
        services: &[
            "memory",
            "names",
            "native",
            "linux",
            "fs",
            "console",
            "checkpoint",
            "random",
            "device",
            "net",
            "link",
            "entropy",
            "ext4",
            "disk",
            "sound",
        ],
        hold: offered,
    },
    Other {
        words: "objects of processes are taken away",
        services: &["native", "linux", "checkpoint"],
        hold: taken,
    },
];

/// How long a waiting thread is watched, in nanoseconds.
const LOOK: u64 = 2_000_000;
/// The longest time that a server may take to answer a request with references.
const ANSWER: u64 = 2_000_000_000;

/// A thread that does this again and again; it should not return from the first time.
fn never(once: impl Fn() -> Result<(), Error> + Send + 'static) -> Result<bool, Error> {
    let thread = rt::thread::spawn(move || {
        let _ = once();
    });
    let thread = thread.map_err(error)?;
    rt::time::sleep(LOOK);
    Ok(!thread.is_finished())
}

fn idle(manager: &str) -> Result<Process, Error> {
    match manager {
        "linux" => spawn("linux", "/bin/busybox", &["busybox", "sleep", "100000"]),
        _ => spawn("native", PROGRAM, &["services", IDLE]),
    }
}

/// Requests that wait for events that never come, one of each kind that the service has.
fn endless(service: &'static str) -> Result<bool, Error> {
    match service {
        "native" | "linux" => {
            let (one, two) = (idle(service)?, idle(service)?);
            let frozen = idle(service)?;
            // The session ends with this program.
            let mut session = frozen.open()?;
            let mut name = alloc::vec![0; services::process::ROOM];
            session.freeze(0, &mut name)?;
            core::mem::forget((session, frozen));
            Ok(never(move || one.ended().map(drop))?
                & never(move || two.changed(Status::Running).map(drop))?)
        }
        "console" => never(|| rt::console::read(&mut [0; 64]).map(drop)),
        "checkpoint" => {
            let port = Box::leak(Box::new(idle("native")?)).port().at();
            let path = format!("{PLACE}-saved");
            let mut all = true;
            for _ in 0..4 {
                let path = path.clone();
                all &= never(move || loop {
                    let _ = rt::checkpoint::save(&[port], &path);
                })?;
            }
            Ok(all)
        }
        "net" => {
            let accepts = never(|| {
                let mut net = Network::open()?;
                let (socket, _) = net.listen(0, 1)?;
                net.accept(socket).map(drop)
            })?;
            let receives = never(|| {
                let mut net = Network::open()?;
                let (socket, _) = net.datagrams(0)?;
                net.wait(1 << socket, 0, ALWAYS).map(drop)
            })?;
            Ok(accepts & receives)
        }
        "link" => never(|| {
            let mut link = LinkClient::open_known(&*with_power("link")?)?;
            link.ended()
        }),
        "disk" => {
            // Reads whose results are never fetched.
            let mut disk = BlockClient::open_known(&*with_power("disk")?)?;
            for tag in 0..block::OUTSTANDING as u64 {
                disk.read(tag, tag, 1)?;
            }
            let full = disk.read(block::OUTSTANDING as u64, 0, 1) == Err(Error::WouldBlock);
            core::mem::forget(disk);
            Ok(full)
        }
        // It keeps the card from then on, and waits for the end of what it plays, over and over.
        "sound" => never(|| {
            let mut card = SoundClient::open_known(&*with_power("sound")?)?;
            while card.begin(4000, 1, Format::S16) == Err(Error::Exists) {
                rt::time::sleep(LOOK);
            }
            loop {
                while card.write(&[0; 4096])? > 0 {}
                card.drain()?;
            }
        }),
        _ => Err(Error::Unsupported),
    }
}

/// The interface of the sessions of a service, if a program can open one.
fn session_id(service: &str) -> Option<u64> {
    Some(match service {
        "native" | "linux" => ProcessesClient::ID,
        "fs" | "ext4" => FilesClient::ID,
        "console" => ConsoleClient::ID,
        "checkpoint" => CheckpointClient::ID,
        "random" => RandomClient::ID,
        "device" => DevicesClient::ID,
        "net" => NetworkClient::ID,
        "link" => LinkClient::ID,
        "entropy" => EntropyClient::ID,
        "disk" => BlockClient::ID,
        "sound" => SoundClient::ID,
        _ => return None,
    })
}

/// Makes every request of the service that takes references, with this one. The results do not matter, but there must
/// be one.
fn offer(service: &'static str, reference: &RefAt) -> Result<(), Error> {
    if let Some(id) = session_id(service) {
        let door = with_power(service)?;
        let _ = Session::open_as(&door, id, *reference);
        let kept = keep(&door, reference).unwrap_or(Kept {
            words: [0; interface::wire::KEPT_WORDS],
            bytes: alloc::vec::Vec::new(),
        });
        let _ = open_kept(&door, &kept, *reference);
    }
    match service {
        "memory" => {
            let _ = AccountClient::resume(Session::beside(rt::start::memory())).copy(reference);
        }
        "names" => {
            let _ = rt::names::register_with("hostile-offer", reference, reference);
            let _ = rt::names::job_of(reference);
        }
        "native" | "linux" => {
            let manager = Client::new(service)?;
            let own = rt::start::names();
            let (path, args): (_, &[&str]) = match service {
                "native" => (PROGRAM, &["services", "nothing"]),
                _ => ("/bin/busybox", &["busybox", "true"]),
            };
            for (owner, passed) in [(*reference, own), (own, *reference)] {
                if let Ok(process) = manager.spawn_for(&owner, path, &start(args), &[&passed]) {
                    let _ = process.kill();
                    let _ = process.reap();
                }
            }
            let _ = manager.verify(reference);
            if let Ok(adopted) = manager.adopt(reference) {
                let _ = adopted.process.kill();
                let _ = adopted.process.reap();
            }
            // A control port that is not one.
            let _ = Session::open_as(&own, ProcessClient::ID, *reference);
        }
        "checkpoint" => {
            let path = format!("{PLACE}-offered");
            let _ = rt::checkpoint::save(&[*reference], &path);
            let _ = rt::checkpoint::save(&[rt::start::names(), *reference], &path);
        }
        _ => {}
    }
    Ok(())
}

/// References to live, dead and vacant objects of every type, with every request that takes one: each must be
/// answered.
fn offered(service: &'static str) -> Result<bool, Error> {
    let silent = SilentKeeper::new()?;
    let pool = Box::leak(Box::new(ReferencePool::new(&silent)?));
    core::mem::forget(silent);
    let done = Arc::new(AtomicUsize::new(0));
    let (count, counted) = (pool.all().len(), done.clone());
    let offer_all = move || {
        for reference in pool.all() {
            if offer(service, reference).is_err() {
                return;
            }
            counted.fetch_add(1, Relaxed);
        }
    };
    let thread = rt::thread::spawn(offer_all).map_err(error)?;
    let end = rt::time::now() + ANSWER;
    while !thread.is_finished() && rt::time::now() < end {
        rt::time::sleep(LOOK);
    }
    Ok(done.load(Relaxed) == count)
}

/// What a holder of the control port does to the objects of a process.
type Harm = fn(u64, &SilentKeeper) -> Result<(), rt::Code>;

const HARMS: [Harm; 5] = [
    // The objects are destroyed.
    |control, _| {
        SpaceAt(control + CONTROL_SPACE).destroy()?;
        ThreadAt(control + CONTROL_THREAD).destroy()
    },
    // Their identities are kept and have no bodies.
    |control, _| {
        let kept = [Ref::new()?, Ref::new()?];
        let at = control + CONTROL_SPACE;
        rt::obj::done(rt::sys::space_destroy(at, kept[0].handle()))?;
        let at = control + CONTROL_THREAD;
        rt::obj::done(rt::sys::thread_destroy(at, kept[1].handle()))?;
        core::mem::forget(kept);
        Ok(())
    },
    // Other objects are in their places.
    |control, _| {
        let others = [Mutex::new()?, Mutex::new()?];
        SpaceAt(control + CONTROL_SPACE).destroy()?;
        ThreadAt(control + CONTROL_THREAD).destroy()?;
        for (other, at) in others.iter().zip([CONTROL_SPACE, CONTROL_THREAD]) {
            rt::obj::done(rt::sys::mutex_move(other.handle(), control + at))?;
        }
        core::mem::forget(others);
        Ok(())
    },
    // The process's memory never comes.
    |control, silent| {
        let mapping = MappingAt(control + CONTROL_MAPPINGS);
        let state = mapping.get_state(0, 0)?;
        let space = SpaceAt(control + CONTROL_SPACE);
        let to = Ref::new()?;
        space.reference_into(to.at())?;
        mapping.destroy()?;
        let never = Mapping::new()?;
        let state = MappingState {
            size: state.size.min(super::references::SILENT_BYTES),
            offset: 0,
            protection: ALL,
            ..state
        };
        never.set_state(&state, silent.region.handle(), to.handle())?;
        core::mem::forget((never, to));
        Ok(())
    },
    // The keeper of the process's exceptions never answers.
    |control, silent| {
        let space = SpaceAt(control + CONTROL_SPACE);
        let state = space.get_state(0)?;
        space.set_state(&state, silent.port.handle())
    },
];

/// Processes that lose their objects without their manager's knowledge, in all ways: every request about them must be
/// answered. The last process of each kind stays, frozen.
fn taken(service: &'static str) -> Result<bool, Error> {
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let thread = rt::thread::spawn(move || {
        let Ok(silent) = SilentKeeper::new() else {
            return;
        };
        for harm in HARMS {
            if take(service, harm, &silent).is_err() {
                return;
            }
            counted.fetch_add(1, Relaxed);
        }
        core::mem::forget(silent);
    });
    let thread = thread.map_err(error)?;
    let end = rt::time::now() + ANSWER;
    while !thread.is_finished() && rt::time::now() < end {
        rt::time::sleep(LOOK);
    }
    Ok(done.load(Relaxed) == HARMS.len())
}

fn take(service: &str, harm: Harm, silent: &SilentKeeper) -> Result<(), Error> {
    let manager = if service == "linux" {
        "linux"
    } else {
        "native"
    };
    let process = idle(manager)?;
    rt::time::sleep(LOOK);
    let mut name = alloc::vec![0; services::process::ROOM];
    let mut session = process.open()?;
    let (_, _, refs) = session.freeze(0, &mut name)?;
    let control = refs.get(1).ok_or(Error::Broken)?;
    let window = Window::map(control, 0, CONTROL_SIZE, READ | WRITE | OBJECTS)?;
    harm(window.address(), silent).map_err(error)?;
    // Any answer is right.
    let _ = process.info();
    let _ = session.thaw();
    // A client that saves a process freezes it itself.
    let save = || {
        if service == "checkpoint" {
            let _ = rt::checkpoint::save(&[process.port().at()], &format!("{PLACE}-taken"));
        }
    };
    save();
    let _ = process.resume();
    let _ = process.stop();
    let _ = process.info();
    let _ = process.resume();
    save();
    let _ = session.freeze(0, &mut name);
    core::mem::forget((session, process, window, refs));
    Ok(())
}
