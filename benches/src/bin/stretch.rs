//! The longest stretches in which the kernel handles no interrupt, whatever a program does: `stretch [FILTER]`.
//!
//! A thread of the highest priority sleeps until a deadline that comes every 10,007 nanoseconds, which are
//! instructions where instructions are counted. Below it the program makes the calls whose work a hostile program can
//! make as large as it likes (`docs/proof.md`, loops). The greatest lateness of the thread is the longest stretch,
//! including the switch to the thread.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::{
    space_flags, MappingState, MutexState, PortState, RegionState, Registers, SpaceState,
    ThreadState, Waiting,
};
use abi::{access, Call, MAX_ENTRIES, MAX_IDEMPOTENT, OBJECT_SIZE, PAGE_SIZE, PRIORITIES};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use benches::fluke::{Door, ALIAS};
use benches::loops::{self, Lateness, Loop};
use benches::report::Report;
use benches::run::{same, Must};
use benches::twin::Twin;
use proto::layout::{MEMORY_SIZE, START_PAGE};
use rt::obj::{done, Cond, Mapping, Mutex, Ref, Region, ThreadAt};
use rt::{sys, time};

rt::entry!(main);

/// Nanoseconds from one deadline of the watcher to the next.
const PERIOD: u64 = 10_007;
/// How many threads wait at the same object.
const CROWD: u64 = 1000;
/// A priority below the watcher's and above the program's.
const ABOVE: u64 = PRIORITIES as u64 - 2;
/// A priority below the program's.
const BELOW: u64 = 1;
/// How often each call is measured. The deadlines interrupt it at another place each time.
const TIMES: u64 = 4;

/// The name of a benchmark, and what it does while the watcher measures.
type Act = (&'static str, fn(&Watcher) -> Result<u64, String>);

const ACTS: [Act; 16] = [
    ("stretch_broadcast", broadcast),
    ("stretch_sleepers", sleepers),
    ("stretch_sleep", sleep_among_sleepers),
    ("stretch_ready", ready),
    ("stretch_timed_waits", timed_waits),
    ("stretch_port_end", port_end),
    ("stretch_space_end", space_end),
    ("stretch_space_body", space_body),
    ("stretch_clock", clock),
    ("stretch_body", body),
    ("stretch_importers", importers),
    ("stretch_regions", regions),
    ("stretch_tables", tables),
    ("stretch_clients", clients),
    ("stretch_entries", entries),
    ("stretch_call_longest", longest_call),
];

fn main() -> u8 {
    let report = Report::from_arguments();
    if !ACTS.iter().any(|(name, _)| report.wants(name)) {
        return 0;
    }
    let watcher = Watcher::new();
    let mut good = true;
    for (name, act) in ACTS {
        good &= report.value(name, "instructions", || {
            let watcher = watcher.as_ref().map_err(Clone::clone)?;
            let mut worst = 0;
            for _ in 0..TIMES {
                worst = worst.max(act(watcher)?);
            }
            Ok((worst, TIMES))
        });
    }
    u8::from(!good)
}

/// The thread of the highest priority whose lateness is measured.
struct Watcher {
    _thread: rt::obj::Thread,
}

impl Watcher {
    fn new() -> Result<Self, String> {
        // The first reading brings code and data into the caches; the second is used.
        let origin = (origin(), origin()).1;
        loops::set_lateness(Lateness {
            period: PERIOD,
            ..Lateness::default()
        });
        let thread = rt::obj::Thread::new().must("a thread")?;
        let state = ThreadState {
            registers: Registers {
                rip: Loop::Latency.address(),
                rflags: 0x202,
                rbx: time::now() + 100 * PERIOD,
                rbp: origin,
                ..Registers::default()
            },
            priority: u64::from(PRIORITIES) - 1,
            ..ThreadState::default()
        };
        thread
            .set_state(&state, 0, 0, 0)
            .must("the state of a thread")?;
        thread.resume().must("resume")?;
        Ok(Watcher { _thread: thread })
    }

    /// The watcher's greatest lateness while `act` runs.
    fn during<T>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<u64, String> {
        time::sleep(10 * PERIOD);
        loops::set_lateness(Lateness {
            period: PERIOD,
            ..Lateness::default()
        });
        act()?;
        time::sleep(10 * PERIOD);
        let found = loops::lateness();
        if found.runs < 5 {
            return Err(format!("the watcher ran {} times", found.runs));
        }
        Ok(found.worst)
    }
}

/// The time-stamp counter at time 0 of the clock. It is read before the clock, so that no thread seems to run earlier
/// than it does.
fn origin() -> u64 {
    // SAFETY: reads a counter.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    ticks.wrapping_sub(time::now())
}

/// Many threads that wait at the same object.
struct Crowd {
    memory: Vec<u128>,
    /// How many threads have been created.
    made: u64,
}

impl Crowd {
    /// Threads in a space (a reference, 0 for the program's own) that make a call and wait in it for `waiting`.
    fn new(registers: Registers, space: u64, waiting: Waiting) -> Result<Self, String> {
        Crowd::after(registers, space, waiting, || {})
    }

    /// Threads in a space that sleep for ever.
    fn asleep(space: u64) -> Result<Self, String> {
        let sleep = call(Call::ThreadSleepUntil, 1 << 62);
        Crowd::new(sleep, space, Waiting::Deadline)
    }

    /// Threads that compute whenever no other thread runs.
    fn busy() -> Result<Self, String> {
        let mut crowd = Crowd::empty();
        for index in 0..CROWD {
            let thread = crowd.thread(index);
            thread.create().must("a thread of a crowd")?;
            crowd.made += 1;
            let state = ThreadState {
                registers: Registers {
                    rip: Loop::Busy.address(),
                    rflags: 0x202,
                    ..Registers::default()
                },
                priority: BELOW,
                ..ThreadState::default()
            };
            thread
                .set_state(&state, 0, 0, 0)
                .must("the state of a thread")?;
            thread.resume().must("resume")?;
        }
        Ok(crowd)
    }

    /// No threads yet, and the memory for all.
    fn empty() -> Self {
        let words = CROWD * OBJECT_SIZE / 16;
        Crowd {
            memory: vec![0; words as usize + 1],
            made: 0,
        }
    }

    /// As [`Crowd::new`], with a function that runs before each thread begins.
    fn after(
        registers: Registers,
        space: u64,
        waiting: Waiting,
        before: impl Fn(),
    ) -> Result<Self, String> {
        let mut crowd = Crowd::empty();
        for index in 0..CROWD {
            let thread = crowd.thread(index);
            thread.create().must("a thread of a crowd")?;
            crowd.made += 1;
            thread
                .set_state(&above(registers), space, 0, 0)
                .must("the state of a thread")?;
            before();
            thread.resume().must("resume")?;
        }
        for thread in (0..CROWD).map(|index| crowd.thread(index)) {
            let state = thread.get_state(0, 0, 0).must("get_state")?;
            same("what a thread waits for", state.waiting, waiting as u64)?;
            // When it is woken later it must not run before the program.
            thread.set_priority(BELOW).must("set_priority")?;
        }
        Ok(crowd)
    }

    fn thread(&self, index: u64) -> ThreadAt {
        let first = (self.memory.as_ptr() as u64).next_multiple_of(OBJECT_SIZE);
        ThreadAt(first + index * OBJECT_SIZE)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for index in 0..self.made {
            // A thread that cannot be destroyed goes with the space.
            let _ = self.thread(index).destroy();
        }
    }
}

fn call(call: Call, rdi: u64) -> Registers {
    Registers {
        rax: call as u64,
        rdi,
        ..Registers::default()
    }
}

/// Wakes all threads of the crowd, which wait on one cond.
fn broadcast(watcher: &Watcher) -> Result<u64, String> {
    let (cond, mutex) = (Cond::new().must("a cond")?, Mutex::new().must("a mutex")?);
    let wait = Registers {
        rsi: mutex.handle(),
        ..call(Call::CondWait, cond.handle())
    };
    // `cond_wait` needs the mutex locked, and unlocks it.
    let _crowd = Crowd::after(wait, 0, Waiting::Cond, || {
        mutex.try_lock();
    })?;
    watcher.during(|| {
        cond.broadcast();
        Ok(())
    })
}

/// The deadlines of all threads of the crowd come at the same instant.
fn sleepers(watcher: &Watcher) -> Result<u64, String> {
    let at = time::now() + 400_000_000;
    let _crowd = Crowd::new(call(Call::ThreadSleepUntil, at), 0, Waiting::Deadline)?;
    if time::now() >= at {
        return Err("the crowd took too long to fall asleep".into());
    }
    time::sleep(at - time::now() - 20 * PERIOD);
    watcher.during(|| {
        time::sleep(20 * PERIOD);
        Ok(())
    })
}

/// A thread begins to sleep, and wakes, while the whole crowd sleeps.
fn sleep_among_sleepers(watcher: &Watcher) -> Result<u64, String> {
    let _crowd = Crowd::asleep(0)?;
    watcher.during(|| {
        for n in 0..20 {
            time::sleep(n * 100);
        }
        Ok(())
    })
}

/// The whole crowd computes, and is preempted again and again.
fn ready(watcher: &Watcher) -> Result<u64, String> {
    let _crowd = Crowd::busy()?;
    watcher.during(|| {
        time::sleep(20 * PERIOD);
        Ok(())
    })
}

/// The deadlines of a crowd come while it waits on a cond. The crowd is more important than the program, which makes
/// calls meanwhile: the timer rings in the middle of one.
fn timed_waits(watcher: &Watcher) -> Result<u64, String> {
    let (cond, mutex) = (Cond::new().must("a cond")?, Mutex::new().must("a mutex")?);
    let at = time::now() + 400_000_000;
    let wait = Registers {
        rsi: mutex.handle(),
        rdx: at,
        ..call(Call::CondWaitUntil, cond.handle())
    };
    let crowd = Crowd::after(wait, 0, Waiting::Cond, || {
        mutex.try_lock();
    })?;
    for index in 0..CROWD {
        crowd
            .thread(index)
            .set_priority(ABOVE)
            .must("set_priority")?;
    }
    if time::now() >= at {
        return Err("the crowd took too long to begin its wait".into());
    }
    time::sleep(at - time::now() - 20 * PERIOD);
    watcher.during(|| {
        while time::now() < at + 20 * PERIOD {
            crowd.thread(0).get_state(0, 0, 0).must("get_state")?;
        }
        Ok(())
    })
}

/// Destroys a port at which all threads of the crowd wait.
fn port_end(watcher: &Watcher) -> Result<u64, String> {
    let door = Door::new()?;
    let port = rt::obj::Port::new().must("a port")?;
    let set = door.portset.reference().must("a reference")?;
    port.set_state(&PortState::default(), set.handle())
        .must("the state of a port")?;
    let reference = port.reference().must("a reference")?;
    let _crowd = Crowd::new(call(Call::CallShort, reference.handle()), 0, Waiting::Port)?;
    watcher.during(|| {
        drop(port);
        Ok(())
    })
}

/// Destroys the space that contains all threads of the crowd.
fn space_end(watcher: &Watcher) -> Result<u64, String> {
    let twin = Twin::new(0, 0).must("a second space")?;
    let _crowd = Crowd::asleep(twin.space_ref.handle())?;
    watcher.during(|| {
        drop(twin);
        Ok(())
    })
}

/// Destroys the body of the space that contains all threads of the crowd, and makes a new one.
fn space_body(watcher: &Watcher) -> Result<u64, String> {
    let twin = Twin::new(0, 0).must("a second space")?;
    let _crowd = Crowd::asleep(twin.space_ref.handle())?;
    change_body(watcher, &twin)
}

/// Destroys the body of a space, and makes a new one with the same state.
fn change_body(watcher: &Watcher, twin: &Twin) -> Result<u64, String> {
    let (space, identity) = (twin.space.handle(), Ref::new().must("a reference")?);
    let state = twin.space.get_state(0).must("get_state")?;
    watcher.during(|| {
        done(sys::space_destroy(space, identity.handle())).must("space_destroy")?;
        done(sys::space_create(space, identity.handle())).must("space_create")?;
        twin.space.set_state(&state, 0).must("set_state")
    })
}

/// Sets the clock of the space in which all threads of the crowd sleep.
fn clock(watcher: &Watcher) -> Result<u64, String> {
    let twin = Twin::new(0, 0).must("a second space")?;
    let _crowd = Crowd::asleep(twin.space_ref.handle())?;
    let state = twin.space.get_state(0).must("get_state")?;
    let later = SpaceState {
        clock_offset: state.clock_offset + 1000,
        flags: state.flags | space_flags::FOREIGN,
        ..state
    };
    watcher.during(|| twin.space.set_state(&later, 0).must("set_state"))
}

/// Makes the body of a mutex for which all threads of the crowd wait.
fn body(watcher: &Watcher) -> Result<u64, String> {
    let mutex = Mutex::new().must("a mutex")?;
    let (handle, identity) = (mutex.handle(), Ref::new().must("a reference")?);
    done(sys::mutex_destroy(handle, identity.handle())).must("mutex_destroy")?;
    let lock = call(Call::MutexLock, handle);
    let _crowd = Crowd::new(lock, 0, Waiting::Vacant)?;
    watcher.during(|| {
        done(sys::mutex_create(handle, identity.handle())).must("mutex_create")?;
        mutex.set_state(&MutexState { locked: 1 }).must("set_state")
    })
}

/// Removes the translations of a region that has as many importers as a crowd has threads.
fn importers(watcher: &Watcher) -> Result<u64, String> {
    let (region, reference) = exported(START_PAGE, PAGE_SIZE)?;
    let state = region.get_state(0, 0).must("get_state")?;
    let mut mappings = Vec::new();
    for index in 0..CROWD {
        mappings.push(page_of(&reference, index)?);
    }
    watcher.during(|| region.set_state(&state, 0, 0).must("set_state"))
}

/// The first page of a region, mapped as page number `index` behind the program's memory.
fn page_of(region: &Ref, index: u64) -> Result<Mapping, String> {
    mapped(region, MEMORY_SIZE + index * PAGE_SIZE, PAGE_SIZE)
}

/// The beginning of a region, mapped for reading.
fn mapped(region: &Ref, start: u64, size: u64) -> Result<Mapping, String> {
    let mapping = Mapping::new().must("a mapping")?;
    let state = MappingState {
        start,
        size,
        offset: 0,
        protection: access::READ,
    };
    mapping
        .set_state(&state, region.handle(), 0)
        .must("set_state")?;
    Ok(mapping)
}

/// A region of the program's own addresses, for reading, and a reference to it.
fn exported(start: u64, size: u64) -> Result<(Region, Ref), String> {
    let region = Region::new().must("a region")?;
    let state = RegionState {
        start,
        size,
        protection: access::READ,
    };
    region.set_state(&state, 0, 0).must("set_state")?;
    let reference = region.reference().must("a reference")?;
    Ok((region, reference))
}

/// Destroys a mapping that has filled half of all page tables: with a page in each gigabyte, so that each has two
/// tables of its own, in one of which the page is the last entry. A few objects suffice, since regions of mappings
/// are mapped in turn.
fn tables(watcher: &Watcher) -> Result<u64, String> {
    const GIGABYTE: u64 = 1 << 30;
    const FEW: u64 = 16;
    const TIMES_FEW: u64 = 32;
    const ALL: u64 = FEW * TIMES_FEW;
    let last_in = |gigabyte: u64| (gigabyte + 1) * GIGABYTE - PAGE_SIZE;
    let (_page, page) = exported(START_PAGE, PAGE_SIZE)?;
    let few = MEMORY_SIZE / GIGABYTE;
    let mut mappings = Vec::new();
    for index in 0..FEW {
        mappings.push(mapped(&page, last_in(few + index), PAGE_SIZE)?);
    }
    let (_few, region) = exported(few * GIGABYTE, FEW * GIGABYTE)?;
    let many = few + FEW;
    for index in 0..TIMES_FEW {
        let start = (many + index * FEW) * GIGABYTE;
        mappings.push(mapped(&region, start, FEW * GIGABYTE)?);
    }
    let (_many, region) = exported(many * GIGABYTE, ALL * GIGABYTE)?;
    let all = many + ALL;
    let mapping = mapped(&region, all * GIGABYTE, ALL * GIGABYTE)?;
    for index in 0..ALL {
        // SAFETY: a page of the program that is mapped there for reading.
        unsafe { (last_in(all + index) as *const u8).read_volatile() };
    }
    watcher.during(|| {
        drop(mapping);
        Ok(())
    })
}

/// Destroys the body of a space that has many regions, which are imported by a space with as many regions of its own.
fn regions(watcher: &Watcher) -> Result<u64, String> {
    let twin = Twin::new(0, 0).must("a second space")?;
    let (mut regions, mut mappings) = (Vec::new(), Vec::new());
    for index in 0..CROWD / 2 {
        let exported = RegionState {
            start: index * PAGE_SIZE,
            size: PAGE_SIZE,
            protection: access::READ,
        };
        for space in [twin.space_ref.handle(), 0] {
            let region = Region::new().must("a region")?;
            region.set_state(&exported, space, 0).must("set_state")?;
            regions.push(region);
        }
        let theirs = &regions[regions.len() - 2];
        let reference = theirs.reference().must("a reference")?;
        mappings.push(page_of(&reference, index)?);
    }
    change_body(watcher, &twin)
}

/// A server waits for requests at a port where all threads of the crowd wait, with messages whose last piece is
/// absent.
fn clients(watcher: &Watcher) -> Result<u64, String> {
    let door = Door::new()?;
    let absent = vec![0u8; 2 * PAGE_SIZE as usize];
    let mut list: Vec<[u64; 2]> = vec![[0, 0]; MAX_ENTRIES as usize / 2];
    let last = (absent.as_ptr() as u64).next_multiple_of(PAGE_SIZE);
    *list.last_mut().ok_or("a list")? = [last, 8];
    let send = Registers {
        r10: list.as_ptr() as u64,
        r8: list.len() as u64,
        ..call(Call::Call, door.port_ref.handle())
    };
    let _crowd = Crowd::new(send, 0, Waiting::Port)?;
    let server = stopped_in(call(Call::ServerWaitReceive, door.portset.handle()))?;
    watcher.during(|| server.resume().must("resume"))
}

/// The state of a thread of this space, with these registers, that runs as soon as it is resumed.
fn above(registers: Registers) -> ThreadState {
    ThreadState {
        registers: Registers {
            rip: Loop::Block.address(),
            rflags: 0x202,
            ..registers
        },
        priority: ABOVE,
        ..ThreadState::default()
    }
}

/// A stopped thread with that state.
fn stopped_in(registers: Registers) -> Result<rt::obj::Thread, String> {
    let thread = rt::obj::Thread::new().must("a thread")?;
    thread
        .set_state(&above(registers), 0, 0, 0)
        .must("the state of a thread")?;
    Ok(thread)
}

/// Sends an idempotent request with these scatter lists to a server.
fn request(
    watcher: &Watcher,
    send: (u64, u64, u64, u64),
    receive: (u64, u64, u64, u64),
) -> Result<u64, String> {
    let door = Door::new()?;
    let server = stopped_in(Registers {
        r12: receive.0,
        r13: receive.1,
        r14: receive.2,
        r15: receive.3,
        ..call(Call::ServerWaitReceive, door.portset.handle())
    })?;
    server.resume().must("resume")?;
    let client = stopped_in(Registers {
        rsi: send.0,
        rdx: send.1,
        r10: send.2,
        r8: send.3,
        ..call(Call::Call, door.port_ref.handle())
    })?;
    let worst = watcher.during(|| client.resume().must("resume"))?;
    let state = server.get_state(0, 0, 0).must("get_state")?;
    // By now the server waits for its next request; the alias of the last one is still in its register.
    same("the alias of the port", state.registers.rdi, ALIAS)?;
    Ok(worst)
}

/// A message with the longest scatter lists, all entries empty, at both sides.
fn entries(watcher: &Watcher) -> Result<u64, String> {
    let half = MAX_ENTRIES / 2;
    let list: Vec<[u64; 2]> = vec![[0, 0]; half as usize];
    let list = (0, 0, list.as_ptr() as u64, half);
    request(watcher, list, list)
}

/// The longest message of the idempotent form, between pages that are present.
fn longest_call(watcher: &Watcher) -> Result<u64, String> {
    let (from, into) = (
        vec![1u8; MAX_IDEMPOTENT as usize],
        vec![2u8; MAX_IDEMPOTENT as usize],
    );
    let worst = request(
        watcher,
        (from.as_ptr() as u64, MAX_IDEMPOTENT, 0, 0),
        (into.as_ptr() as u64, MAX_IDEMPOTENT, 0, 0),
    )?;
    if from != into {
        return Err("the message has not arrived".into());
    }
    Ok(worst)
}
