//! One example per page of the API reference.
//!
//! Each stands in a file of its own, which its page shows as it is; here they are tests, so that
//! what the reference shows has been compiled and has run. An example is a function
//! `example() -> Result<(), Code>` that uses `rt` and nothing of the test harness.

pub mod client;
pub mod clock;
pub mod cond;
pub mod device;
pub mod idempotent;
pub mod mapping;
pub mod mutex;
pub mod port;
pub mod portset;
pub mod reference;
pub mod region;
pub mod server;
pub mod space;
pub mod thread;

use crate::harness::{Must, Test};

macro_rules! examples {
    ($($name:ident)*) => {
        /// The examples as tests.
        pub(crate) const TESTS: &[Test] = &[$(Test {
            name: concat!("example_", stringify!($name)),
            run: || $name::example().must("the example"),
        }),*];
    };
}

examples!(mutex cond mapping region port portset space thread reference client server idempotent
    clock device);
