//! The checkpointer.
use crate::process::Pid;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Saves processes together in one image. When the reply comes the image is complete and the
    /// processes go on. Reply: `Saved`.
    Save {
        /// Managers (`native`, `linux`) and numbers.
        processes: Vec<(String, Pid)>,
        /// Absolute path of the image file.
        path: String,
    },
    /// Makes processes from an image and nothing else. Reply: `Restored`.
    Restore {
        /// Absolute path of the image file.
        path: String,
    },
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The image is complete.
    Saved {
        /// Bytes of the image.
        bytes: u64,
        /// For each thread saved, what it was doing, in words.
        doing: Vec<String>,
    },
    /// The processes run.
    Restored {
        /// Managers and numbers, in the order of the image.
        processes: Vec<(String, Pid)>,
        /// Their names.
        names: Vec<String>,
    },
    /// Refused, with a sentence that names the cause.
    Refused(String),
}
