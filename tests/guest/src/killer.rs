//! A thread that kills drivers, or servers that stand on them, again and again, at instants that follow from a seed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proto::Error;
use rt::time;
use services::process::Pid;

/// How long is waited for a driver to serve somebody, and how often is looked, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
const LOOK: u64 = 500_000;

static KILLED: AtomicU64 = AtomicU64::new(0);
/// What the load has had done, and how many kills came when something had been since the kill before.
static SERVED: AtomicU64 = AtomicU64::new(0);
static AT_WORK: AtomicU64 = AtomicU64::new(0);
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
    go(name, spared, seed, kills, pause, 0);
}

/// The same, but that before every second kill it waits until something was [`served`]: a driver that takes longer to begin
/// than `pause` would be killed while it begins only, when its device does nothing yet.
pub fn run_at_work(name: &str, seed: u64, kills: u64, pause: u64) {
    go(name, 0, seed, kills, pause, PATIENCE);
}

fn go(name: &str, spared: Pid, seed: u64, kills: u64, pause: u64, patience: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut before = SERVED.load(Ordering::Relaxed);
    while killed() < kills {
        let mut left = if killed().is_multiple_of(2) {
            patience
        } else {
            0
        };
        while left > 0 && SERVED.load(Ordering::Relaxed) == before {
            time::sleep(LOOK);
            left -= LOOK;
        }
        time::sleep(random.u64(..pause));
        let now = SERVED.load(Ordering::Relaxed);
        if kill_but(name, spared).is_ok() {
            KILLED.fetch_add(1, Ordering::Relaxed);
            AT_WORK.fetch_add((now != before).into(), Ordering::Relaxed);
            before = SERVED.load(Ordering::Relaxed);
        }
    }
    ENOUGH.store(true, Ordering::Release);
}

/// The load had something done.
pub fn served() {
    SERVED.fetch_add(1, Ordering::Relaxed);
}

/// How many kills came when something had been served since the kill before.
pub fn at_work() -> u64 {
    AT_WORK.load(Ordering::Relaxed)
}

/// How often it has killed.
pub fn killed() -> u64 {
    KILLED.load(Ordering::Relaxed)
}

/// Whether that is all.
pub fn is_done() -> bool {
    ENOUGH.load(Ordering::Acquire)
}
