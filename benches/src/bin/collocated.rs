//! Benchmarks of the small operations of a collocated program, in instructions: `collocated [FILTER]`. It has to be
//! placed in the kernel.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use benches::fluke::{self, MANY};
use benches::loops::Loop;
use benches::report::{Outcome, Report};

rt::entry!(main);

/// A row, and the function that measures it.
type Measured = (&'static str, fn() -> Outcome);

/// All rows. The client of `rpc_0` and `rpc_4096` is a process, that of `rpc_0_within` a thread of the server's
/// program.
const ROWS: [Measured; 4] = [
    ("collocated_null_call", fluke::null_call),
    ("collocated_rpc_0", || {
        fluke::rpc_short(0, Loop::Rpc0Client, Loop::Rpc0Server)
    }),
    ("collocated_rpc_0_within", fluke::rpc_within),
    ("collocated_rpc_4096", || fluke::rpc_long(4096, MANY / 2)),
];

fn main() -> u8 {
    let report = Report::from_arguments();
    let mut good = true;
    for (name, run) in ROWS {
        good &= report.value(name, "instructions", || {
            if base::place::start() == 0 {
                return Err(String::from("the program is in a process"));
            }
            let sample = run()?;
            // Where instructions are counted, the counter counts them.
            Ok((sample.ticks / sample.operations, sample.operations))
        });
    }
    u8::from(!good)
}
