//! Turns the signals that end a process into a flag, so that a machine, its files and the
//! terminal are put away first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_usize;

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
