//! What the counter and its clients say to each other.
#![no_std]

extern crate alloc;

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The name that it is known by.
pub const NAME: &str = "counter";
/// How many counters there can be: a client must not be able to fill the server's memory.
pub const MOST: usize = 100;
/// The longest name of a counter, in bytes.
pub const LONGEST: usize = 32;

/// A request. All may be repeated: a client that is restored in the middle of one asks again.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Request {
    /// The value of a counter. `NotFound` if there is none of this name.
    Get {
        /// Its name.
        name: String,
    },
    /// Makes the value of a counter `value`, and makes the counter if there is none of this name. `Invalid` if
    /// the name is empty or longer than [`LONGEST`], `NoMemory` if there are [`MOST`] already.
    Set {
        /// Its name.
        name: String,
        /// Its value.
        value: u64,
    },
    /// How many counters there are.
    Count,
}

/// The answer to each.
pub type Reply = u64;
