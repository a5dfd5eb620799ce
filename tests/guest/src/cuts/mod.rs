//! Cuts at every site of the kernel (rules A5 to A8), in a kernel with the probe.
//!
//! * [`plays`] is the list of plays: every entrypoint, in every situation in which it can wait or fault.
//! * [`fixture`] is what they run on: two victims, a segment whose pages can be absent, objects in it.
//! * [`knife`] takes objects apart and makes them again from their states.
//! * [`run`] runs each play undisturbed, then with every kind of cut at every site, and compares the outcomes.
//! * [`hostile`] is not about cuts: random callers, in the same kernel because it checks its structures.
//! * [`probe`] drives the kernel's probe.

pub mod fixture;
pub mod hostile;
pub mod knife;
pub mod plays;
pub mod probe;
pub mod run;
