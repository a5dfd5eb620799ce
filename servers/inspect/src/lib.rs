//! A page that shows the machine, and lets whoever has the token act on it.
//!
//! * [`http`]: requests from the network, bounded and checked;
//! * [`answer`]: the answers, and who may act;
//! * [`state`]: what the page shows, as JSON;
//! * [`work`]: long actions and their progress;
//! * [`crowd`]: the limit on simultaneous connections.
//!
//! All of that is tested on the host. The program itself (`main.rs`) handles the connections.
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
