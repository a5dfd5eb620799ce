//! The checkpointer.
use crate::process::Pid;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What one can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Saves processes together in one image. When the reply comes the image is complete and the
    /// processes go on. References: the control ports of the processes. Reply: `Saved`.
    Save {
        /// The manager (`native`, `linux`) of each process, in the order of the references.
        managers: Vec<String>,
        /// Absolute path of the image file.
        path: String,
    },
    /// Makes processes from an image and nothing else. Reference: the caller's own port at init
    /// (`START_NAMES`), for whom they count. Reply: `Restored`, and the control ports of the processes.
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
