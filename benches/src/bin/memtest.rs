//! Touches 16 MB of fresh memory, a byte at a time, whose pages the memory server supplies: `memtest [FILTER]`.
//!
//! After the test of the same name of Ford et al., section 5.3: kernel fault handling, messages to
//! the keeper, and user code.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use benches::loops::Loop;
use benches::report::{Outcome, Report};
use benches::run::{same, Must, Pair, Role};
use rt::access::{READ, WRITE};
use rt::window::Window;

rt::entry!(main);

/// Bytes that are touched.
const SIZE: u64 = 16 << 20;

fn main() -> u8 {
    u8::from(!Report::from_arguments().bench("memtest", "run", memtest))
}

fn memtest() -> Outcome {
    let segment = rt::memory::create(SIZE).must("a segment")?;
    let window = Window::map(&segment.region, 0, SIZE, READ | WRITE).must("a window")?;
    let role = Role::new(Loop::Bytes, &[window.address()]);
    let seen = Pair::new(&role, None)?.run(SIZE, 1)?;
    same("the end", seen.seen[0], window.address() + SIZE)?;
    let usage = segment.usage().must("usage")?;
    same("what is present", usage.resident, SIZE)?;
    let mut last = [0];
    window.read(SIZE - 1, &mut last).must("read")?;
    same("the last byte", last[0].into(), 1)?;
    drop(window);
    segment.destroy().must("destroy")?;
    // The whole run counts as one operation.
    let mut sample = seen.sample;
    sample.operations = 1;
    Ok::<_, String>(sample)
}
