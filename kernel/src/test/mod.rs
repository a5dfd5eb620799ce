//! Unit tests on the simulated machine.
//!
//! [`world`] runs small programs of simulated threads against the kernel, one step at a time;
//! `crate::check` looks at every link, count and cache of the kernel and is called after every trap.
//! [`lockstep`] runs the kernel beside its specification (`spec/`) and compares all there is to see;
//! [`sequence`] is the scene and the language for that.
//! The tests: `conformance` (a test for every row of the table of calls; what they do stands in `calls`
//! and `ipc`), `cut` (rules A6 and A8), `hostile` (random
//! callers), `counters` (what is counted), `fuzz` (random programs, beside the specification), `model`
//! (trees, accounts, deadlines against simple models), `regress` (what has been wrong once).

mod calls;
mod conformance;
mod counters;
mod cut;
mod fuzz;
mod hostile;
mod ipc;
mod lockstep;
mod model;
mod regress;
mod sequence;
mod world;
