//! Keeps a machine that counts instructions busy while the host does something for it, so that the machine's clock
//! advances by these instructions.

use super::Sentence;
use alloc::format;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rt::time;

/// The priority below all others, which takes time from no thread.
const LOWEST: u64 = 0;
/// The pause between two checks whether the thread is wanted, in nanoseconds.
const LOOK: u64 = 1_000_000;

/// Whether the thread was started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// How many clients want it to run.
static WANTED: AtomicU64 = AtomicU64::new(0);

/// While it lives, the machine always has something to do.
pub(super) struct Awake(());

impl Awake {
    /// Makes the thread run; the first call starts it.
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
        // Without the processor's pause hint, for which an emulator takes its time.
        while WANTED.load(Relaxed) > 0 {
            turns = core::hint::black_box(turns.wrapping_add(1));
        }
        time::sleep(LOOK);
    }
}
