//! A thread that kills drivers, or servers that stand on them, again and again, at instants that follow from a seed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proto::Error;
use rt::time;
use services::process::Pid;

static KILLED: AtomicU64 = AtomicU64::new(0);
static ENOUGH: AtomicBool = AtomicBool::new(false);

/// Kills a process of that name, if there is one now beside `spared`. Needs the system port.
pub fn kill_but(name: &str, spared: Pid) -> Result<(), Error> {
    let native = rt::system::supervisor("native")?;
    let processes = native.list()?;
    let mut all = processes.iter();
    let victim = all.find(|process| process.name == name && process.pid != spared);
    native.process(victim.ok_or(Error::NotFound)?.pid)?.kill()
}

/// Kills so many times, with at most `pause` nanoseconds in between.
pub fn run(name: &str, seed: u64, kills: u64, pause: u64) {
    run_but(name, 0, seed, kills, pause);
}

/// The same, where one process of that name lives on.
pub fn run_but(name: &str, spared: Pid, seed: u64, kills: u64, pause: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while killed() < kills {
        time::sleep(random.u64(..pause));
        if kill_but(name, spared).is_ok() {
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
