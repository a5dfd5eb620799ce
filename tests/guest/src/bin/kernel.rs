//! Runs tests of the kernel in this process: `kernel [FILTER]`. One line per test; the exit status
//! is 1 if one failed.
#![no_std]
#![no_main]

extern crate alloc;

rt::entry!(main);

fn main() -> u8 {
    let filter = rt::start().args.get(1).map_or("", |a| a.as_str());
    let (mut failed, mut run) = (0, 0);
    for test in guest_tests::tests::matching(filter) {
        run += 1;
        match (test.run)() {
            Ok(()) => rt::println!("{} ok", test.name),
            Err(why) => {
                failed += 1;
                rt::println!("{} FAILED {why}", test.name);
            }
        }
    }
    u8::from(failed > 0 || run == 0)
}
