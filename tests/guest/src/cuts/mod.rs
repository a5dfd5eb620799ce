//! Cuts at every site of the kernel (rules A5 to A8), in a kernel with the probe.
//!
//! * [`plays`] says what is played: every entrypoint, in every situation in which it can wait or fault.
//! * [`stage`] is where: two victims, a segment whose pages can be absent, objects in it.
//! * [`knife`] takes objects apart and makes them again.
//! * [`run`] plays undisturbed, then cut at every site in every way, and compares.
//! * [`hostile`] is another play for that kernel: callers that do what they like.
//! * [`probe`] drives the kernel's probe.

pub mod hostile;
pub mod knife;
pub mod plays;
pub mod probe;
pub mod run;
pub mod stage;
