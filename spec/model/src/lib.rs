//! Design errors are found by exploring the specification.
//!
//! The comparison of kernel and specification cannot see what both get wrong. So the
//! [specification](spec) is explored on its own: small [scenes], in which a hostile party
//! makes every call that its handles allow, a manager stops, saves, destroys and makes anew, and
//! honest threads do their work, in every order. In every state that can be reached the
//! [properties] must hold, which are written from the rules of the design; what breaks one is printed
//! as the shortest list of [moves] that leads there. The search is the model checker stateright's.
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
