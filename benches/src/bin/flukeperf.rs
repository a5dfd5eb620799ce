//! The small operations of the kernel: `flukeperf [FILTER]`.
#![no_std]
#![no_main]

use benches::fluke;
use benches::report::Report;

rt::entry!(main);

fn main() -> u8 {
    u8::from(!fluke::all(&Report::from_arguments()))
}
