//! A page that shows the machine, and lets whoever has the token act on it.
//!
//! * [`http`]: what comes from the network, bounded and checked;
//! * [`answer`]: which request gets what, and who may act;
//! * [`state`]: what is shown, as JSON;
//! * [`work`]: what takes long;
//! * [`crowd`]: how many connections there are.
//!
//! All of that is tested on the host. The program itself (`main.rs`) has the connections.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
pub mod crowd;
pub mod http;
pub mod state;
pub mod work;

#[cfg(test)]
mod tests;
