//! Finds design errors by exploring the specification.
//!
//! The comparison of kernel and specification cannot find errors that both share. So the [specification](spec) is
//! explored on its own: in small [scenes], a hostile party makes every call that its handles allow, a manager stops,
//! saves, destroys and makes anew, and honest threads do their work, in every order. The [properties], which are
//! written from the rules of the design, must hold in every state that can be reached; a violation is printed as the
//! shortest list of [moves] that leads to it. The search is done by the model checker stateright.
//!
//! `./fermata prove --model` explores; `docs/model.md` is the page to read first.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod explore;
pub mod key;
pub mod moves;
pub mod plant;
pub mod properties;
pub mod scene;
pub mod scenes;

#[cfg(test)]
mod tests;
