//! How late a thread of the highest priority runs after its deadline: `latency [FILTER]`.
//!
//! After Ford et al., Interface and Execution Models in the Fluke Kernel, Table 6. A thread of the
//! highest priority sleeps until a deadline that comes every million nanoseconds, which are
//! instructions where instructions are counted, while `flukeperf` runs again and again. It reads the
//! time-stamp counter with the first instruction behind its sleep.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::{Registers, ThreadState};
use abi::PRIORITIES;
use alloc::format;
use alloc::string::String;
use benches::fluke;
use benches::loops::{self, Lateness, Loop};
use benches::report::Report;
use benches::run::Must;
use rt::obj::Thread;
use rt::time;

rt::entry!(main);

/// Nanoseconds from one deadline to the next.
const PERIOD: u64 = 1_000_000;
/// How many deadlines are measured at least.
const PERIODS: u64 = 1000;
/// Nanoseconds from the start to the first deadline.
const SOON: u64 = 10 * PERIOD;
/// The highest priority.
const HIGHEST: u64 = PRIORITIES as u64 - 1;

fn main() -> u8 {
    let report = Report::from_arguments();
    let names = [
        ("latency_avg", "instructions"),
        ("latency_worst", "instructions"),
        ("latency_runs", "runs"),
        ("latency_missed", "periods"),
    ];
    if !names.iter().any(|(name, _)| report.wants(name)) {
        return 0;
    }
    let found = measure();
    let mut good = true;
    for (index, (name, unit)) in names.into_iter().enumerate() {
        good &= report.value(name, unit, || {
            let all = found.clone()?;
            let average = all.sum / all.runs.max(1);
            let values = [average, all.worst, all.runs, all.missed];
            Ok((values[index], all.runs))
        });
    }
    u8::from(!good)
}

/// The time-stamp counter at time 0 of the clock. It is read before the clock, so that no thread seems to run earlier
/// than it does.
fn origin() -> u64 {
    // SAFETY: reads a counter.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    ticks.wrapping_sub(time::now())
}

fn measure() -> Result<Lateness, String> {
    // The first reading brings code and data into the caches; the second is used.
    let origin = (origin(), origin()).1;
    loops::set_lateness(Lateness {
        period: PERIOD,
        ..Lateness::default()
    });
    let late = Thread::new().must("a thread")?;
    let state = ThreadState {
        registers: Registers {
            rip: Loop::Latency.address(),
            rflags: 0x202,
            rbx: time::now() + SOON,
            rbp: origin,
            ..Registers::default()
        },
        priority: HIGHEST,
        ..ThreadState::default()
    };
    late.set_state(&state, 0, 0, 0)
        .must("the state of a thread")?;
    late.resume().must("resume")?;
    let silent = Report::silent();
    loop {
        if !fluke::all(&silent) {
            return Err(format!("a benchmark failed: {}", silent.unsaid()));
        }
        let found = loops::lateness();
        if found.runs + found.missed >= PERIODS {
            late.stop().must("stop")?;
            return Ok(found);
        }
    }
}
