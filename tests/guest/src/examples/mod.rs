//! One example per page of the API reference.
//!
//! Each is in a file of its own, which its page shows unchanged; here they are tests, so that the code in the
//! reference has been compiled and has run. An example is a function `example() -> Result<(), Code>` that uses `rt`
//! and nothing of the test harness.

use guest_tests::guest_test;
use guest_tests::harness::Must;

mod client;
mod clock;
mod cond;
mod device;
mod idempotent;
mod mapping;
mod mutex;
mod port;
mod portset;
mod reference;
mod region;
mod server;
mod space;
mod thread;

/// Makes tests of examples. A module that is missing here is dead code, which the compiler reports.
macro_rules! examples {
    ($($name:ident)*) => {
        $(guest_test!(
            concat!("example_", stringify!($name)),
            || $name::example().must(concat!("the example ", stringify!($name)))
        );)*
    };
}

examples!(mutex cond mapping region port portset space thread reference client server idempotent
    clock device);
