//! Turns the signals that end a process into a flag, so that machines, their files and the terminal are cleaned up
//! first. A function that waits must check the flag.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_usize;

use crate::error::Error;

/// The last signal that was caught, or 0.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Begins to catch SIGINT, SIGTERM, SIGHUP and SIGQUIT.
pub fn catch() {
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        // It fails only for signals that cannot be caught.
        let _ = register_usize(signal, Arc::clone(&CAUGHT), signal.unsigned_abs() as usize);
    }
}

/// The signal that asked this process to end, if any did.
pub fn caught() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed))
        .ok()
        .filter(|signal| *signal != 0)
}

/// An error if a signal asked this process to end.
pub fn check() -> Result<(), Error> {
    caught().map_or(Ok(()), |signal| Err(interrupted(signal)))
}

/// The error of a command that this signal ended.
pub fn interrupted(signal: u8) -> Error {
    Error {
        message: "interrupted".into(),
        status: 128 + signal,
    }
}
