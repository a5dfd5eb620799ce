//! Kernel memory of threads that are blocked in all possible ways: `threads [FILTER]`.
//!
//! After Ford et al., Interface and Execution Models in the Fluke Kernel, Table 7. The threads live in
//! a space of their own whose account has paid for nothing else.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::{Registers, SpaceState, ThreadState, Waiting, FPU_BYTES};
use abi::{Call, Code, OBJECT_SIZE};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use benches::fluke::Door;
use benches::loops::Loop;
use benches::pages::Pages;
use benches::report::Report;
use benches::run::{same, Must, Pair, Role};
use benches::twin::Twin;
use rt::obj::{Cond, Mutex, ThreadAt};

rt::entry!(main);

/// How many threads are weighed.
const THREADS: u64 = 77 * WAYS;
/// The kernel memory that is requested first, and the steps by which the request is lowered until it is granted.
const MOST: u64 = 200 << 20;
const STEP: u64 = 1 << 20;
/// A deadline that never comes.
const NEVER: u64 = 1 << 62;
/// How many ways to block [`Scene::way`] knows.
const WAYS: u64 = 13;

fn main() -> u8 {
    let report = Report::from_arguments();
    let names = ["thread_bytes", "thread_bytes_fpu"];
    if !names.iter().any(|name| report.wants(name)) {
        return 0;
    }
    let found = weigh();
    let mut good = true;
    for (name, fpu) in names.into_iter().zip([0, FPU_BYTES as u64]) {
        good &= report.value(name, "bytes", || {
            let bytes = found.clone()?;
            Ok((bytes - FPU_BYTES as u64 + fpu, THREADS))
        });
    }
    u8::from(!good)
}

/// How a thread blocks.
struct Way {
    code: Loop,
    registers: Registers,
    waiting: Waiting,
}

/// The objects that the threads wait at.
struct Scene {
    mutex: Mutex,
    /// `cond_wait` unlocks it; it is locked again for the next thread.
    turn: Mutex,
    cond: Cond,
    /// A door without a server.
    empty: Door,
    /// A door without clients.
    lonely: Door,
    /// A door whose servers block before they answer.
    busy: Door,
}

impl Scene {
    fn new() -> Result<Self, String> {
        let scene = Scene {
            mutex: Mutex::new().must("a mutex")?,
            turn: Mutex::new().must("a mutex")?,
            cond: Cond::new().must("a cond")?,
            empty: Door::new()?,
            lonely: Door::new()?,
            busy: Door::new()?,
        };
        scene.mutex.lock();
        Ok(scene)
    }

    /// The way of thread number `index`, and the absent page.
    fn way(&self, index: u64, absent: u64) -> Way {
        let call = |call: Call, rdi: u64| Registers {
            rax: call as u64,
            rdi,
            ..Registers::default()
        };
        let block = |waiting, registers| Way {
            code: Loop::Block,
            registers,
            waiting,
        };
        let (empty, busy) = (self.empty.port_ref.handle(), self.busy.port_ref.handle());
        match index % WAYS {
            0 => block(Waiting::Mutex, call(Call::MutexLock, self.mutex.handle())),
            1 => block(
                Waiting::Cond,
                Registers {
                    rsi: self.turn.handle(),
                    ..call(Call::CondWait, self.cond.handle())
                },
            ),
            2 => block(Waiting::Deadline, call(Call::ThreadSleepUntil, NEVER)),
            3 => block(Waiting::Interrupt, call(Call::ThreadWaitInterrupt, 0)),
            4 => block(
                Waiting::Port,
                call(Call::ClientConnectSendOverReceive, empty),
            ),
            5 => block(Waiting::Port, call(Call::CallShort, empty)),
            6 => block(
                Waiting::Portset,
                call(Call::ServerWaitReceive, self.lonely.portset.handle()),
            ),
            // A page fault and an exception that no keeper answers.
            7 => Way {
                code: Loop::Access,
                ..block(Waiting::Port, call(Call::ThreadSelf, absent))
            },
            8 => Way {
                code: Loop::Invalid,
                ..block(Waiting::Port, call(Call::ThreadSelf, 0))
            },
            // A server that has a request and blocks, and its client.
            9 | 11 => Way {
                code: Loop::ThenBlock,
                registers: Registers {
                    rbp: self.mutex.handle(),
                    ..call(Call::ServerWaitReceiveShort, self.busy.portset.handle())
                },
                waiting: Waiting::Mutex,
            },
            10 => block(Waiting::Reply, call(Call::CallShort, busy)),
            _ => block(
                Waiting::Peer,
                call(Call::ClientConnectSendOverReceiveShort, busy),
            ),
        }
    }
}

/// A space for the threads, with as much kernel memory as can be had. One step of it is left for the program itself.
fn rich_twin(keeper: u64) -> Result<Twin, String> {
    let mut quota = MOST;
    let twin = loop {
        match Twin::new(quota, keeper) {
            Err(Code::NoMemory) if quota > 2 * STEP => quota -= STEP,
            other => break other.must("a space for the threads")?,
        }
    };
    let now = twin.space.get_state(0).must("the state of a space")?;
    let state = SpaceState {
        quota: quota - STEP,
        ..now
    };
    twin.space
        .set_state(&state, keeper)
        .must("the state of a space")?;
    Ok(twin)
}

/// Kernel memory of a thread, FPU area included.
fn weigh() -> Result<u64, String> {
    let scene = Scene::new()?;
    let twin = rich_twin(scene.empty.port_ref.handle())?;
    let pages = Pages::new(1, &twin, scene.empty.port_ref.handle())?;
    let memory: Vec<u128> = vec![0; THREADS as usize];
    let first = memory.as_ptr() as u64;
    let used = || -> Result<u64, String> {
        Ok(twin.space.get_state(0).must("the state of a space")?.used)
    };
    let sweep = |call: Call| -> Result<(), String> {
        let role = Role::within(twin.space_ref.handle(), Loop::Sweep, &[first, call as u64]);
        let seen = Pair::new(&role, None)?.run(THREADS, 1)?;
        same("the sum of results", seen.seen[0], 0)
    };
    let before = used()?;
    sweep(Call::ThreadCreate)?;
    let thread = |index: u64| ThreadAt(first + index * OBJECT_SIZE);
    let ways = || (0..THREADS).map(|index| (thread(index), scene.way(index, pages.base())));
    for (thread, way) in ways() {
        if way.waiting == Waiting::Cond {
            scene.turn.try_lock();
        }
        let state = ThreadState {
            registers: Registers {
                rip: way.code.address(),
                rflags: 0x202,
                ..way.registers
            },
            // It runs as soon as it is resumed, until it blocks.
            priority: u64::from(abi::PRIORITIES) - 1,
            ..ThreadState::default()
        };
        thread
            .set_state(&state, twin.space_ref.handle(), 0, 0)
            .must("the state of a thread")?;
        thread.resume().must("resume")?;
    }
    for (index, (thread, way)) in ways().enumerate() {
        let state = thread.get_state(0, 0, 0).must("get_state")?;
        same(
            &format!("what thread {index} waits for"),
            state.waiting,
            way.waiting as u64,
        )?;
    }
    let all = used()? - before;
    sweep(Call::ThreadDestroy)?;
    same("the use afterwards", used()?, before)?;
    Ok(all / THREADS)
}
