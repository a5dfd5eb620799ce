//! Unit tests on the simulated machine.
//!
//! [`world`] runs small programs of simulated threads against the kernel, one step at a time; `crate::check`
//! checks every link, count and cache of the kernel after every trap. [`lockstep`] runs the kernel beside its
//! specification (`spec/`) and compares everything that can be observed; [`sequence`] has the scene and the language
//! of programs for that. The tests: `conformance` (a test for every row of the table of calls; `calls` and `ipc` have
//! the situations), `cut` (rules A6 and A8), `hostile` (random callers), `counters` (the reported events), `fuzz`
//! (random programs, beside the specification), `model` (trees, accounts, deadlines against simple models), `order`
//! (which thread runs next, and for how long), `limits` (the ends of ranges, lists and hierarchies), `remains` (nothing
//! is left behind when an object ends or changes), `cost` (the costs of calls, in accesses of the machine), `devices`
//! (lines and I/O ports), `places` (collocated spaces), `regress` (corrected mistakes).

mod calls;
mod conformance;
mod cost;
mod counters;
mod cut;
mod devices;
mod fuzz;
mod hostile;
mod ipc;
mod limits;
mod lockstep;
mod model;
mod order;
mod places;
mod regress;
mod remains;
mod sequence;
mod world;
