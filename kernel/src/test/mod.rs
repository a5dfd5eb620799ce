//! Unit tests on the simulated machine.
//!
//! [`world`] runs small programs of simulated threads against the kernel, one step at a time;
//! `crate::check` looks at every link, count and cache of the kernel and is called after every trap.
//! The tests: `calls` (every entrypoint), `ipc`, `cut` (rules A6 and A8), `hostile` (random
//! callers), `counters` (what is counted), `model` (trees, accounts, deadlines against simple
//! models), `regress` (what has been wrong once).

mod calls;
mod counters;
mod cut;
mod hostile;
mod ipc;
mod model;
mod regress;
mod world;
