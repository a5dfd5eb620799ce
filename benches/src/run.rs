//! Runs a loop, or two against each other.
use crate::loops::{self, Block, Loop};
use crate::report::Sample;
use crate::twin::address_in;
use abi::state::{Registers, ThreadState};
use alloc::format;
use alloc::string::String;
use rt::obj::{RefAt, Thread};
use rt::{sys, thread, time};

/// How long a measurement may take, in nanoseconds of the guest.
const PATIENCE: u64 = 20_000_000_000;
/// The time for a server to reach its wait, in nanoseconds of the guest.
const SETTLE: u64 = 200_000;

/// A thread to create.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The loop that it runs.
    pub code: Loop,
    /// A reference to its space; 0 for the program's own.
    pub space: u64,
    /// Its parameters.
    pub parameters: [u64; 8],
}

impl Role {
    /// A role in the program's own space.
    #[must_use]
    pub fn new(code: Loop, parameters: &[u64]) -> Self {
        Role::within(0, code, parameters)
    }

    /// A role in a twin. Parameters that are addresses of this program become addresses in the twin.
    #[must_use]
    pub fn within(space: u64, code: Loop, parameters: &[u64]) -> Self {
        let mut all = [0; 8];
        for (to, from) in all.iter_mut().zip(parameters) {
            *to = address_in(space, *from);
        }
        Role {
            code,
            space,
            parameters: all,
        }
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct Seen {
    /// The last pass.
    pub sample: Sample,
    /// [`Block::seen`] of the first loop.
    pub seen: [u64; 2],
    /// The state of the second thread.
    pub second: Option<ThreadState>,
}

/// Turns an error into a sentence.
pub trait Must<T> {
    /// The value, or a sentence that says `what` could not be done.
    fn must(self, what: &str) -> Result<T, String>;
}

impl<T, E: core::fmt::Debug> Must<T> for Result<T, E> {
    fn must(self, what: &str) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error:?}"))
    }
}

/// Two or three threads that have been created and not started.
pub struct Pair {
    first: Thread,
    second: Option<Thread>,
    third: Option<Thread>,
    /// The space of the first thread, as in [`Role::space`].
    space: u64,
    parameters: [[u64; 8]; 3],
}

fn make(role: &Role) -> Result<Thread, String> {
    let thread = Thread::new().must("a thread")?;
    let state = ThreadState {
        registers: Registers {
            rip: address_in(role.space, role.code.address()),
            rflags: 0x202,
            ..Registers::default()
        },
        priority: rt::start::priority(),
        ..ThreadState::default()
    };
    thread
        .set_state(&state, role.space, 0, 0)
        .must("the state of a thread")?;
    Ok(thread)
}

impl Pair {
    /// The threads for these roles.
    pub fn new(first: &Role, second: Option<&Role>) -> Result<Self, String> {
        Ok(Pair {
            first: make(first)?,
            second: second.map(make).transpose()?,
            third: None,
            space: first.space,
            parameters: [
                first.parameters,
                second.map_or([0; 8], |s| s.parameters),
                [0; 8],
            ],
        })
    }

    /// Adds a third thread that serves the others. It must be waiting when they begin.
    pub fn with(mut self, third: &Role) -> Result<Self, String> {
        self.third = Some(make(third)?);
        self.parameters[2] = third.parameters;
        Ok(self)
    }

    /// Sets parameter 0 of each thread to a reference to the other.
    pub fn introduce(&mut self, to_first: RefAt, to_second: RefAt) -> Result<(), String> {
        self.first.reference_into(to_first).must("a reference")?;
        if let Some(second) = &self.second {
            second.reference_into(to_second).must("a reference")?;
        }
        self.parameters[0][0] = address_in(self.space, to_second.handle());
        self.parameters[1][0] = to_first.handle();
        Ok(())
    }

    /// Lets the threads run: the second first, so that it waits when the first begins. Of two passes, the first fills
    /// caches of all kinds.
    pub fn run(self, repetitions: u64, passes: u64) -> Result<Seen, String> {
        let me = thread::current().must("this thread")?;
        let marks = loops::block().marks;
        loops::set_block(Block {
            repetitions,
            passes,
            // The first thread wakes this thread when it is done.
            waiter: address_in(self.space, me.handle()),
            marks,
            first: self.parameters[0],
            second: self.parameters[1],
            third: self.parameters[2],
            ..Block::default()
        });
        for helper in [&self.third, &self.second].into_iter().flatten() {
            helper.resume().must("resume")?;
            time::sleep(SETTLE);
        }
        self.first.resume().must("resume")?;
        let end = time::now() + PATIENCE;
        while loops::block().passes > 0 && time::now() < end {
            sys::thread_wait_interrupt_until(end);
        }
        let block = loops::block();
        if let Some(third) = &self.third {
            third.stop().must("stop")?;
        }
        self.first.stop().must("stop")?;
        let second = match &self.second {
            Some(second) => {
                second.stop().must("stop")?;
                Some(second.get_state(0, 0, 0).must("get_state")?)
            }
            None => None,
        };
        if block.passes > 0 {
            let first = self.first.get_state(0, 0, 0).must("get_state")?;
            let words = |state: &ThreadState| {
                format!(
                    "rip {:#x} rax {:#x} waits {} stages {} {} exception {}",
                    state.registers.rip,
                    state.registers.rax,
                    state.waiting,
                    state.client_stage,
                    state.server_stage,
                    state.exception
                )
            };
            let second = second.as_ref().map_or(String::new(), words);
            return Err(format!("not done in time ({}; {second})", words(&first)));
        }
        Ok(Seen {
            sample: Sample::of_block(repetitions),
            seen: block.seen,
            second,
        })
    }
}

/// Passes of a measurement, of which the last is reported.
pub const PASSES: u64 = 2;

/// Runs one loop alone, in the program's own space.
pub fn alone(code: Loop, parameters: &[u64], repetitions: u64) -> Result<Seen, String> {
    Pair::new(&Role::new(code, parameters), None)?.run(repetitions, PASSES)
}

/// An error unless both are equal.
pub fn same(what: &str, is: u64, wanted: u64) -> Result<(), String> {
    if is == wanted {
        return Ok(());
    }
    Err(format!("{what} is {is:#x} and not {wanted:#x}"))
}
