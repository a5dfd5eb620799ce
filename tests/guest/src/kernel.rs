//! Runs tests of the kernel in this process: `kernel [FILTER]`, with comma-separated words. It prints one line per
//! test; the exit status is 1 if one failed. `kernel --names [FILTER]` lists the tests, and runs none.
//!
//! The tests are modules of this program, not of the library, so that no other program contains them.
#![no_std]
#![no_main]

extern crate alloc;

#[allow(unreachable_pub)] // Their pages of the reference show them as they are.
mod examples;
mod tests;

use alloc::vec::Vec;
use guest_tests::harness::{is_wanted, Test, TESTS};

rt::entry!(main);

/// All tests whose name contains one of the words of `filter`, by name.
fn matching(filter: &str) -> Vec<&'static Test> {
    let tests = TESTS.iter().filter(|test| is_wanted(test.name, filter));
    let mut tests: Vec<&Test> = tests.collect();
    tests.sort_unstable_by_key(|test| test.name);
    tests
}

fn main() -> u8 {
    let args: Vec<&str> = rt::start()
        .args
        .iter()
        .skip(1)
        .map(|a| a.as_str())
        .collect();
    let (names, filter) = match args[..] {
        ["--names", ref rest @ ..] => (true, rest),
        ref rest => (false, rest),
    };
    let tests = matching(filter.first().unwrap_or(&""));
    if names {
        for test in tests {
            rt::println!("{}", test.name);
        }
        return 0;
    }
    let mut failed = tests.is_empty();
    for test in tests {
        match (test.run)() {
            Ok(()) => rt::println!("{} ok", test.name),
            Err(why) => {
                failed = true;
                rt::println!("{} FAILED {why}", test.name);
            }
        }
    }
    u8::from(failed)
}
