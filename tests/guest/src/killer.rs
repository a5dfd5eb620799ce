//! A thread that kills drivers, or servers that stand on them, again and again, at instants that follow from a seed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proto::Error;
use rt::time;

static KILLED: AtomicU64 = AtomicU64::new(0);
static ENOUGH: AtomicBool = AtomicBool::new(false);

/// Kills the process of that name, if there is one now. Needs the system port.
fn kill(name: &str) -> Result<(), Error> {
    let native = rt::system::supervisor("native")?;
    let processes = native.list()?;
    let victim = processes.iter().find(|process| process.name == name);
    native.process(victim.ok_or(Error::NotFound)?.pid)?.kill()
}

/// Kills so many times, with at most `pause` nanoseconds in between.
pub fn run(name: &str, seed: u64, kills: u64, pause: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while killed() < kills {
        time::sleep(random.u64(..pause));
        if kill(name).is_ok() {
            KILLED.fetch_add(1, Ordering::Relaxed);
        }
    }
    ENOUGH.store(true, Ordering::Release);
}

/// How often it has killed.
pub fn killed() -> u64 {
    KILLED.load(Ordering::Relaxed)
}

/// Whether that is all.
pub fn is_done() -> bool {
    ENOUGH.load(Ordering::Acquire)
}
