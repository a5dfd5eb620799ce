//! A thread that kills drivers, or servers that depend on them, again and again, at instants that follow from a seed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proto::Error;
use rt::time;
use services::process::Pid;

/// How long to wait until a driver has served a request, and the pause between two checks, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
const LOOK: u64 = 500_000;

static KILLED: AtomicU64 = AtomicU64::new(0);
/// The requests of the load that were served, and the kills before which some request had been served since the
/// previous kill.
static SERVED: AtomicU64 = AtomicU64::new(0);
static AT_WORK: AtomicU64 = AtomicU64::new(0);
static ENOUGH: AtomicBool = AtomicBool::new(false);

/// Kills a process of that name, if there is one besides `spared`. Needs the system port.
pub fn kill_but(name: &str, spared: Pid) -> Result<(), Error> {
    let native = rt::system::supervisor("native")?;
    let processes = native.list()?;
    let mut all = processes.iter();
    let victim = all.find(|process| process.name == name && process.pid != spared);
    native.process(victim.ok_or(Error::NotFound)?.pid)?.kill()
}

/// Kills so many times, with at most `pause` nanoseconds between two kills.
pub fn run(name: &str, seed: u64, kills: u64, pause: u64) {
    run_but(name, 0, seed, kills, pause);
}

/// The same, where one process of that name is spared.
pub fn run_but(name: &str, spared: Pid, seed: u64, kills: u64, pause: u64) {
    go(name, spared, seed, kills, pause, 0);
}

/// The same, but before every second kill it waits until something was [`served`]: a driver that takes longer than
/// `pause` to start would otherwise only be killed while it starts, when its device does nothing yet.
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

/// Reports that a request of the load was served.
pub fn served() {
    SERVED.fetch_add(1, Ordering::Relaxed);
}

/// How many kills there were with something served since the previous kill.
pub fn at_work() -> u64 {
    AT_WORK.load(Ordering::Relaxed)
}

/// The number of kills.
pub fn killed() -> u64 {
    KILLED.load(Ordering::Relaxed)
}

/// Whether all kills are done.
pub fn is_done() -> bool {
    ENOUGH.load(Ordering::Acquire)
}
