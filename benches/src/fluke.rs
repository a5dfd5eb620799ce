//! The small operations of the kernel.
//!
//! Named after the test of Ford et al., Interface and Execution Models in the Fluke Kernel, section
//! 5.3. `docs/bench.md` says what each name measures.
use crate::loops::Loop;
use crate::pages::Pages;
use crate::report::{Outcome, Report, Sample};
use crate::run::{alone, same, Must, Pair, Role, PASSES};
use crate::twin::Twin;
use abi::state::PortState;
use abi::{Call, Code, Common, Type, PAGE_SIZE, TYPES};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rt::obj::{MutexAt, Port, Portset, Ref};

/// Operations of a pass, unless a benchmark has a number of its own.
pub const MANY: u64 = 2000;
/// Objects that are created and destroyed side by side.
const OBJECTS: u64 = 128;
/// Objects whose kernel memory is measured.
const WEIGHED: u64 = 128;
/// Kernel memory for a twin that creates objects.
const QUOTA: u64 = 3 << 20;

/// Runs the benchmarks that the report asks for. False if one failed.
pub fn all(report: &Report) -> bool {
    let mut good = true;
    let short = [
        ("rpc_0", 0, Loop::Rpc0Client, Loop::Rpc0Server),
        ("rpc_8", 8, Loop::Rpc8Client, Loop::Rpc8Server),
        ("rpc_32", 32, Loop::Rpc32Client, Loop::Rpc32Server),
        ("rpc_64", 64, Loop::Rpc64Client, Loop::Rpc64Server),
    ];
    for (name, bytes, client, server) in short {
        good &= report.bench(name, "rpc", || rpc_short(bytes, client, server));
    }
    for (name, bytes, repetitions) in [
        ("rpc_512", 512, MANY),
        ("rpc_4096", 4096, MANY / 2),
        ("rpc_1m", 1 << 20, 8),
    ] {
        good &= report.bench(name, "rpc", || rpc_long(bytes, repetitions));
    }
    good &= report.bench("rpc_0_fpu", "rpc", rpc_fpu);
    good &= report.bench("call_0", "call", call);
    good &= report.bench("exception_rt", "exception", || {
        exception(Loop::ExceptionServer)
    });
    good &= report.bench("exception_long_rt", "exception", || {
        exception(Loop::ExceptionLongServer)
    });
    good &= report.bench("fault_rt", "fault", || fault(Loop::GrowingKeeper));
    good &= report.bench("fault_move_rt", "fault", || fault(Loop::MovingKeeper));
    good &= report.bench("notify_rt", "round-trip", notify);
    good &= report.bench("yield_2", "round-trip", yield_2);
    good &= report.bench("lock_unlock", "pair", lock_unlock);
    good &= report.bench("lock_unlock_contested", "pair", lock_unlock_contested);
    good &= report.bench("null_call", "call", null_call);
    good &= report.bench("null_handle_call", "call", null_handle_call);
    good &= report.bench("search_1024", "call", search);
    for kind in TYPES {
        for (word, which) in [("create", Common::Create), ("destroy", Common::Destroy)] {
            let name = format!("{}_{word}", kind.name());
            good &= report.bench(&name, "call", || create_destroy(kind, which));
        }
    }
    for kind in TYPES.into_iter().filter(|kind| *kind != Type::Thread) {
        let name = format!("{}_bytes", kind.name());
        good &= report.value(&name, "bytes", || weigh(kind));
    }
    good & crate::service::all(report)
}

/// A port in a portset of its own.
pub struct Door {
    // In the order in which they must be dropped.
    /// A reference to the port.
    pub port_ref: Ref,
    _port: Port,
    /// The portset.
    pub portset: Portset,
}

/// The alias of the port of a [`Door`].
pub const ALIAS: u64 = 0xa11a5;

impl Door {
    /// A port in a portset at which no server waits yet.
    pub fn new() -> Result<Self, String> {
        let portset = Portset::new().must("a portset")?;
        let set = portset.reference().must("a reference")?;
        let state = PortState {
            alias: ALIAS,
            ..PortState::default()
        };
        let port = Port::in_portset(&state, *set).must("a port")?;
        let port_ref = port.reference().must("a reference")?;
        Ok(Door {
            port_ref,
            _port: port,
            portset,
        })
    }
}

fn twin(keeper: u64) -> Result<Twin, String> {
    Twin::new(0, keeper).must("a second space")
}

/// An RPC with so many bytes in registers each way, from a second space.
pub fn rpc_short(bytes: u64, client: Loop, server: Loop) -> Outcome {
    let (door, twin) = (Door::new()?, twin(0)?);
    let client = Role::within(twin.space_ref.handle(), client, &[door.port_ref.handle()]);
    let server = Role::new(server, &[door.portset.handle()]);
    let seen = Pair::new(&client, Some(&server))?.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], MANY * (bytes << 8))?;
    same(
        "the last word",
        seen.seen[1],
        if bytes > 0 { MANY } else { 0 },
    )?;
    Ok(seen.sample)
}

/// The shortest RPC, within one space.
pub fn rpc_within() -> Outcome {
    let door = Door::new()?;
    let client = Role::new(Loop::Rpc0Client, &[door.port_ref.handle()]);
    let server = Role::new(Loop::Rpc0Server, &[door.portset.handle()]);
    let seen = Pair::new(&client, Some(&server))?.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    Ok(seen.sample)
}

/// An RPC with so many bytes in memory each way, from a second space.
pub fn rpc_long(bytes: u64, repetitions: u64) -> Outcome {
    let (door, twin) = (Door::new()?, twin(0)?);
    // A buffer for each side, whose pages are present.
    let mut buffers = [
        vec![1u64; bytes as usize / 8],
        vec![2u64; bytes as usize / 8],
    ];
    buffers[0][0] = 0;
    let address = |buffer: &Vec<u64>| buffer.as_ptr() as u64;
    let client = Role::within(
        twin.space_ref.handle(),
        Loop::RpcLongClient,
        &[door.port_ref.handle(), bytes, address(&buffers[0])],
    );
    let server = Role::new(
        Loop::RpcLongServer,
        &[door.portset.handle(), bytes, address(&buffers[1])],
    );
    let seen = Pair::new(&client, Some(&server))?.run(repetitions, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    same("what is left to receive", seen.seen[1], 0)?;
    // Read with `read_volatile`, because other threads have written there.
    let word = |buffer: usize, index: usize| {
        // SAFETY: an element of a live vector.
        unsafe { buffers[buffer].as_ptr().add(index).read_volatile() }
    };
    same("the first word", word(0, 0), repetitions * PASSES)?;
    for index in 1..bytes as usize / 8 {
        same("a word of the server's", word(1, index), 1)?;
    }
    Ok(seen.sample)
}

fn rpc_fpu() -> Outcome {
    let (door, twin) = (Door::new()?, twin(0)?);
    let client = Role::within(
        twin.space_ref.handle(),
        Loop::Rpc0FpuClient,
        &[door.port_ref.handle()],
    );
    let server = Role::new(Loop::Rpc0FpuServer, &[door.portset.handle()]);
    let seen = Pair::new(&client, Some(&server))?.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    same("the client's xmm0", seen.seen[1], MANY)?;
    let state = seen.second.ok_or("no server")?;
    let xmm0 = state.fpu[160..168].iter().rev();
    let xmm0 = xmm0.fold(0, |word, byte| word << 8 | u64::from(*byte));
    same("the server's xmm0", xmm0, MANY * PASSES)?;
    Ok(seen.sample)
}

fn call() -> Outcome {
    let (door, twin) = (Door::new()?, twin(0)?);
    let client = Role::within(
        twin.space_ref.handle(),
        Loop::Call0Client,
        &[door.port_ref.handle()],
    );
    let server = Role::new(Loop::Call0Server, &[door.portset.handle()]);
    let seen = Pair::new(&client, Some(&server))?.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    Ok(seen.sample)
}

fn exception(handler: Loop) -> Outcome {
    let door = Door::new()?;
    let twin = twin(door.port_ref.handle())?;
    let mut room = [0u64; abi::message::EXCEPTION_WORDS];
    let client = Role::within(twin.space_ref.handle(), Loop::ExceptionClient, &[]);
    let server = Role::new(handler, &[door.portset.handle(), room.as_mut_ptr() as u64]);
    Ok(Pair::new(&client, Some(&server))?.run(MANY, PASSES)?.sample)
}

fn fault(way: Loop) -> Outcome {
    let (door, twin) = (Door::new()?, twin(0)?);
    let mut pages = Pages::new(MANY * PASSES, &twin, door.port_ref.handle())?;
    let client = Role::within(twin.space_ref.handle(), Loop::FaultClient, &[pages.base()]);
    let keeper = pages.keeper(way, door.portset.handle())?;
    let seen = Pair::new(&client, None)?.with(&keeper)?.run(MANY, PASSES)?;
    same("what the pages hold", seen.seen[0], 0)?;
    same(
        "the last page",
        pages.supplied_to(),
        pages.base() + MANY * PASSES * PAGE_SIZE,
    )?;
    Ok(seen.sample)
}

fn notify() -> Outcome {
    let twin = twin(0)?;
    let (to_first, to_second) = (
        Ref::new().must("a reference")?,
        Ref::new().must("a reference")?,
    );
    let client = Role::within(twin.space_ref.handle(), Loop::NotifyClient, &[]);
    let server = Role::new(Loop::NotifyServer, &[]);
    let mut pair = Pair::new(&client, Some(&server))?;
    pair.introduce(*to_first, *to_second)?;
    let seen = pair.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    let state = seen.second.ok_or("no second thread")?;
    same("the answers", state.registers.rbp, MANY * PASSES)?;
    Ok(seen.sample)
}

fn yield_2() -> Outcome {
    let pair = Pair::new(
        &Role::new(Loop::YieldClient, &[]),
        Some(&Role::new(Loop::YieldServer, &[])),
    )?;
    let seen = pair.run(MANY, PASSES)?;
    // Answers are also counted for yields before and after the measurement.
    let answers = seen.second.ok_or("no second thread")?.registers.rbp;
    if answers < MANY * PASSES {
        return Err(format!("only {answers} turns of the second thread"));
    }
    Ok(seen.sample)
}

fn new_mutex() -> Result<rt::obj::Mutex, String> {
    rt::obj::Mutex::new().must("a mutex")
}

fn lock_unlock() -> Outcome {
    let mutex = new_mutex()?;
    let calls = [
        mutex.handle(),
        Call::MutexLock as u64,
        Call::MutexUnlock as u64,
    ];
    let seen = alone(Loop::TwoCalls, &calls, MANY)?;
    same("the sum of results", seen.seen[0], 0)?;
    Ok(seen.sample)
}

/// How often the contested mutex is tried until no time slice has ended in a run.
const ATTEMPTS: usize = 5;

/// Each thread unlocks in favour of the other and then waits for it: every lock waits. By the host's time, a slice
/// may end between the two, and from then on the mutex is free; such a run is no measurement.
fn lock_unlock_contested() -> Outcome {
    let mut outcome = lock_unlock_contested_once();
    for _ in 1..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        outcome = lock_unlock_contested_once();
    }
    outcome
}

fn lock_unlock_contested_once() -> Outcome {
    let (twin, mutex) = (twin(0)?, new_mutex()?);
    // The mutex is locked for the first thread, so that the second waits for it from the beginning.
    MutexAt(mutex.handle()).lock();
    let (lock, unlock) = (Call::MutexLock as u64, Call::MutexUnlock as u64);
    let first = Role::within(
        twin.space_ref.handle(),
        Loop::TwoCalls,
        &[mutex.handle(), unlock, lock],
    );
    let second = Role::new(Loop::TwoCallsServer, &[mutex.handle(), lock, unlock]);
    let seen = Pair::new(&first, Some(&second))?.run(MANY, PASSES)?;
    same("the sum of results", seen.seen[0], 0)?;
    let turns = seen.second.ok_or("no second thread")?.registers.rbp;
    if turns < MANY * PASSES {
        return Err(format!("only {turns} turns of the second thread"));
    }
    // In each turn both threads lock and unlock once.
    Ok(Sample {
        operations: 2 * seen.sample.operations,
        ..seen.sample
    })
}

/// The shortest call.
pub fn null_call() -> Outcome {
    let seen = alone(Loop::OneCall, &[0, Call::ThreadSelf as u64], MANY)?;
    same("the sum of results", seen.seen[0], 0)?;
    Ok(seen.sample)
}

/// `mutex_trylock` of a locked mutex: a handle is looked up, and nothing changes.
fn null_handle_call() -> Outcome {
    let mutex = new_mutex()?;
    mutex.lock();
    let seen = alone(
        Loop::OneCall,
        &[mutex.handle(), Call::MutexTrylock as u64],
        MANY,
    )?;
    same(
        "the sum of results",
        seen.seen[0],
        MANY * Code::WouldBlock as u64,
    )?;
    Ok(seen.sample)
}

/// `region_search` for objects in 1,024 pages of the memory server, which has none there.
fn search() -> Outcome {
    const PAGES_SEARCHED: u64 = 1024;
    const SEARCHES: u64 = 20;
    let size = PAGES_SEARCHED * PAGE_SIZE;
    let segment = rt::memory::create(size).must("a segment")?;
    segment.populate(0, size).must("populate")?;
    let objects = TYPES.into_iter().map(|ty| 1 << ty as u64).sum();
    let region = segment.region.handle();
    let parameters = [region, size, Call::RegionSearch as u64, objects];
    let seen = alone(Loop::Search, &parameters, SEARCHES)?;
    let nothing = SEARCHES * Code::NotFound as u64;
    same("the sum of results", seen.seen[0], nothing)?;
    // The segment would stay, and all of this is repeated.
    segment.destroy().must("destroy a segment")?;
    Ok(seen.sample)
}

/// Memory in which objects are created side by side.
struct Places {
    memory: Vec<u128>,
}

impl Places {
    fn new(count: u64) -> Self {
        Places {
            memory: vec![0; count as usize],
        }
    }

    fn first(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn destroy(&self, kind: Type, place: u64) -> Result<(), String> {
        let handle = self.first() + place * abi::OBJECT_SIZE;
        let call = Common::Destroy.of(kind);
        // SAFETY: changes nothing but the object.
        let code = unsafe { rt::sys::syscall(call, [handle, 0, 0, 0, 0, 0]) }.code;
        rt::obj::done(code).must("destroy")
    }
}

/// Measures creating or destroying objects side by side. Both are done once before, so that the kernel has memory for
/// them.
fn create_destroy(kind: Type, which: Common) -> Outcome {
    let places = Places::new(OBJECTS);
    let sweep = |which: Common| -> Outcome {
        let role = Role::new(Loop::Sweep, &[places.first(), which.of(kind) as u64]);
        let seen = Pair::new(&role, None)?.run(OBJECTS, 1)?;
        same("the sum of results", seen.seen[0], 0)?;
        Ok(seen.sample)
    };
    sweep(Common::Create)?;
    sweep(Common::Destroy)?;
    let created = sweep(Common::Create)?;
    if which == Common::Destroy {
        return sweep(Common::Destroy);
    }
    // The last measured stretch counts.
    for place in 0..OBJECTS {
        places.destroy(kind, place)?;
    }
    Ok(created)
}

/// Kernel memory of an object: what creating many adds to the use of a space.
fn weigh(kind: Type) -> Result<(u64, u64), String> {
    let twin = Twin::new(QUOTA, 0).must("a second space")?;
    let places = Places::new(WEIGHED);
    let used = || -> Result<u64, String> {
        Ok(twin.space.get_state(0).must("the state of a space")?.used)
    };
    let sweep = |which: Common| -> Result<(), String> {
        let role = Role::within(
            twin.space_ref.handle(),
            Loop::Sweep,
            &[places.first(), which.of(kind) as u64],
        );
        let seen = Pair::new(&role, None)?.run(WEIGHED, 1)?;
        same("the sum of results", seen.seen[0], 0)
    };
    let before = used()?;
    sweep(Common::Create)?;
    let bytes = (used()? - before) / WEIGHED;
    sweep(Common::Destroy)?;
    same("the use afterwards", used()?, before)?;
    Ok((bytes, WEIGHED))
}
