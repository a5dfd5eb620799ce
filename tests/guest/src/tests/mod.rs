//! The tests, a module per subject.

mod bad;
mod common;
mod cond;
mod cut;
mod exception;
mod gate;
mod ipc;
mod memory;
mod mutex;
mod prompt;
mod segment;
mod service;
mod space;
mod thread;

use crate::harness::Test;

/// All tests, in the order in which they are run.
pub const ALL: &[&[Test]] = &[
    common::TESTS,
    mutex::TESTS,
    cond::TESTS,
    thread::TESTS,
    ipc::TESTS,
    memory::TESTS,
    segment::TESTS,
    exception::TESTS,
    service::TESTS,
    gate::TESTS,
    space::TESTS,
    bad::TESTS,
    cut::TESTS,
    prompt::TESTS,
    crate::examples::TESTS,
];

/// All tests whose name contains `filter`.
pub fn matching(filter: &str) -> impl Iterator<Item = &'static Test> + '_ {
    ALL.iter()
        .copied()
        .flatten()
        .filter(move |test| test.name.contains(filter))
}
