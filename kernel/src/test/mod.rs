//! Unit tests on the simulated machine.
//!
//! [`world`] runs small programs of simulated threads against the kernel, one step at a time; `crate::check`
//! looks at every link, count and cache of the kernel and is called after every trap. [`lockstep`] runs the
//! kernel beside its specification (`spec/`) and compares everything that can be observed; [`sequence`] has the
//! scene and the language of programs for that. The tests: `conformance` (a test for every row of the table of
//! calls; what they do stands in `calls` and `ipc`), `cut` (rules A6 and A8), `hostile` (random callers),
//! `counters` (what is counted), `fuzz` (random programs, beside the specification), `model` (trees, accounts,
//! deadlines against simple models), `order` (who runs next, and for how long), `limits` (where ranges, lists
//! and hierarchies end), `remains` (what is not left behind when something ends or changes), `cost` (what calls
//! cost, counted in accesses of the machine), `devices` (lines and ports), `places` (collocated spaces), `regress` (what has been wrong
//! once).

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
