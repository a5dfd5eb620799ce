//! Keeps a machine that counts instructions busy while the host does something for it, so that its clock goes on with these.

use super::Sentence;
use alloc::format;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rt::time;

/// The priority below all others: it takes time from nobody.
const LOWEST: u64 = 0;
/// How often the thread looks whether it is wanted, in nanoseconds.
const LOOK: u64 = 1_000_000;

/// Whether the thread is there.
static STARTED: AtomicBool = AtomicBool::new(false);
/// How many want it to run.
static WANTED: AtomicU64 = AtomicU64::new(0);

/// While it lives, the machine always has something to do.
pub(super) struct Awake(());

impl Awake {
    /// Has the thread run, which the first one starts.
    pub(super) fn begin() -> Result<Self, Sentence> {
        WANTED.fetch_add(1, Relaxed);
        let awake = Awake(());
        if !STARTED.swap(true, Relaxed) {
            rt::thread::spawn_at(LOWEST, run)
                .map_err(|code| format!("a thread below all others: {code:?}"))?;
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Relaxed);
    }
}

fn run() {
    let mut turns = 0u64;
    loop {
        // Without the hint that it does nothing: an emulator takes its time for that.
        while WANTED.load(Relaxed) > 0 {
            turns = core::hint::black_box(turns.wrapping_add(1));
        }
        time::sleep(LOOK);
    }
}
