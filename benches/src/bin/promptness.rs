//! The longest time for stopping a thread and reading its state: `promptness [FILTER]`.
//!
//! A thread is held in every state in which it can wait ([`guest_tests::holds`]), stopped, and its state is read with
//! references to its space and both peers, into memory that crosses a page border. The kernel has to look up every
//! handle anew. The number covers both calls from the first instruction to the last, and includes the two readings of
//! the time-stamp counter around them.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::ToString;
use benches::report::Report;
use guest_tests::harness::Failure;
use guest_tests::holds::{self, Asker};

rt::entry!(main);

fn main() -> u8 {
    let report = Report::from_arguments();
    u8::from(!report.value("promptness_worst", "instructions", || {
        worst().map_err(|why| why.to_string())
    }))
}

/// The longest answer in ticks, and how many states were measured.
fn worst() -> Result<(u64, u64), Failure> {
    let mut asker = Asker::new()?;
    let (mut worst, mut states) = (0, 0);
    // Twice, because the first time the program takes faults for its own pages.
    for _ in 0..2 {
        (worst, states) = (0, 0);
        holds::each(|held| {
            asker.make_lookups_cold()?;
            let ticks = held.stop_and_read(&mut asker)?.ticks;
            worst = worst.max(ticks);
            states += 1;
            Ok(())
        })?;
    }
    Ok((worst, states))
}
