//! The tests, a module per object or subject. Each registers itself by
//! [`guest_test!`](guest_tests::guest_test).

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
