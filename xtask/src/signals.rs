//! Turns the signals that end a process into a flag, so that a machine, its files and the
//! terminal are put away first.

use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

/// Begins to catch SIGINT, SIGTERM, SIGHUP and SIGQUIT.
pub(crate) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores into an atomic, which is safe at any instant.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signal that asked this process to end, if any did.
pub(crate) fn caught() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed))
        .ok()
        .filter(|signal| *signal != 0)
}
