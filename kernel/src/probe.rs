//! The probe: counts and stops calls in the kernel for cut tests (`--cfg fermata_probe`).
//!
//! Every access to a user's memory, every lookup of a handle and every wait calls [`site`] or [`wait`];
//! preemption points call [`preempts`]. A site is identified by its source location in the handler, not in the helpers
//! in between, which are marked `track_caller` in this build. When the probe is armed for the n-th site of certain
//! threads, it stops the call there with [`Stop::Cut`], which every caller treats as a fault of that access that no
//! longer occurs when the call restarts. Then it raises its interrupt line, so that the thread attached to the line
//! runs. `abi::probe` says how a test drives it.
//!
//! In an ordinary kernel all of this is empty functions. The counters are statics, because waits begin in
//! functions that have no reference to the kernel.

use crate::config::CONFIG;
use crate::object::thread::Thread;
use crate::Stop;
pub(crate) use abi::probe::Kind;
use abi::probe::{ROLES, SITES, SWEEP, WATCHED};
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A counter. A load and a store need not be one atomic step: one processor at a time is in the kernel, and nothing
/// interrupts this module.
struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Count(AtomicU64::new(0))
    }
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }
}

/// The tag of the running thread.
static RUNNING: Count = Count::new();
/// The state of the running thread's call: a hash of the frame and of the progress since the trap.
static FRAME: Count = Count::new();
/// The states in which the probe has fired during this sweep, as a hash table.
static STATES: [Count; 1 << 13] = [const { Count::new() }; 1 << 13];
/// The number of the site at which the probe fires, [`SWEEP`] in a sweep, 0 if it does not fire.
static ARMED: Count = Count::new();
/// The roles of the threads whose sites count, as a bit mask.
static MASK: Count = Count::new();
/// Number of sites passed since the probe was armed.
static PASSED: Count = Count::new();
/// The site at which the probe has fired, and the role of the thread.
static FIRED: [Count; 2] = [const { Count::new() }; 2];
/// The state in which the probe fired last; and the time from the last progress until the thread reached that
/// state again.
static LAST: Count = Count::new();
static AGAIN: Count = Count::new();
/// The probe has fired, and its interrupt line has not been raised yet.
static RING: AtomicBool = AtomicBool::new(false);
/// Bytes of messages moved since the probe was armed.
static MOVED: Count = Count::new();
/// The time when the running thread's call began or last saved its progress, in [`hal::ticks`] like all times
/// here. On a machine whose clock counts instructions, times are numbers of instructions.
static PROGRESS: Count = Count::new();
/// The total time that the probe itself has used.
static OWN: Count = Count::new();
/// The time that passing a site costs in addition, outside of what [`uncounted`] measures.
static AROUND: Count = Count::new();
/// The value of [`OWN`] at the last progress.
static OWN_THEN: Count = Count::new();
/// Number of exits from the kernel, and the number of exits from one check of the kernel's structures to the
/// next.
static EXITS: Count = Count::new();
static PERIOD: Count = Count::new();
/// Number of times that a thread has been preempted in the kernel.
static PREEMPTED: Count = Count::new();
static GENERAL: AtomicBool = AtomicBool::new(false);
/// Whether sites are being passed a second time by [`again`], so that they do not count.
static PASSED_BEFORE: AtomicBool = AtomicBool::new(false);

/// An entry of the table of sites: the site, and how often it was passed.
struct Passed([Count; 2]);

static TABLE: [Passed; SITES as usize] =
    [const { Passed([const { Count::new() }; 2]) }; SITES as usize];

/// Passes a site of the running thread. `Err` if the call must stop here.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn site(kind: Kind) -> Result<(), Stop> {
    if CONFIG.probe && !PASSED_BEFORE.load(Relaxed) && pass_by(kind, Location::caller()) {
        return Err(Stop::Cut);
    }
    Ok(())
}

#[inline(never)]
fn pass_by(kind: Kind, at: &Location<'_>) -> bool {
    uncounted(|begin| pass(kind, at, RUNNING.get(), FRAME.get(), begin))
}

/// Repeats lookups that have just succeeded in the same call. Nothing has changed in between, so they cannot fail, and
/// their sites do not count.
#[inline(always)]
pub(crate) fn again<R>(look: impl FnOnce() -> R) -> R {
    if !CONFIG.probe {
        return look();
    }
    PASSED_BEFORE.store(true, Relaxed);
    let found = look();
    PASSED_BEFORE.store(false, Relaxed);
    found
}

/// Passes the site of a thread that begins to wait. Its frame is complete, so the call need not be stopped.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn wait(t: &Thread) {
    if CONFIG.probe {
        let at = Location::caller();
        uncounted(|begin| pass(Kind::Wait, at, t.ctx.tag.get(), frame(t), begin));
    }
}

/// Passes a preemption point. Returns whether the call must stop here.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
pub(crate) fn preempts() -> bool {
    #[cfg(test)]
    if points::stops() {
        return true;
    }
    let at = Location::caller();
    CONFIG.probe && pass_by(Kind::Point, at)
}

/// The role of the thread with this tag, if the probe watches it.
#[inline(always)]
fn role(tag: u64) -> Option<u64> {
    let role = tag.wrapping_sub(WATCHED);
    (role < ROLES).then_some(role)
}

/// Mixes a word into a hash.
fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23)
}

/// Does work of the probe, whose time is subtracted from measurements. `work` gets the time at which the work began.
#[inline(always)]
fn uncounted<R>(work: impl FnOnce(u64) -> R) -> R {
    let begin = hal::ticks();
    let result = work(begin);
    OWN.add(hal::ticks() - begin + AROUND.get());
    result
}

/// Measures what passing a site costs outside of what [`uncounted`] measures.
fn calibrate() {
    AROUND.set(0);
    let looks = [hal::ticks(), hal::ticks(), hal::ticks()];
    let own = OWN.get();
    // No watched thread runs now, so this is not counted as a site.
    let _ = pass_by(Kind::Point, Location::caller());
    let all = hal::ticks() - looks[2];
    AROUND.set(all - (looks[2] - looks[1]) - (OWN.get() - own));
}

#[inline(never)]
fn pass(kind: Kind, at: &Location<'_>, tag: u64, frame: u64, begin: u64) -> bool {
    let Some(role) = role(tag) else { return false };
    let id = abi::probe::site(at.file(), kind, at.line(), at.column());
    let own = OWN.get().wrapping_sub(OWN_THEN.get());
    let stretch = if tag == RUNNING.get() {
        begin.saturating_sub(PROGRESS.get()).saturating_sub(own)
    } else {
        0
    };
    note(id);
    let mut fires = false;
    if MASK.get() & 1 << role != 0 {
        PASSED.add(1);
        let state = mix(mix(frame, id), role);
        // The thread is again in the state in which it was cut: everything since its last progress was done twice.
        if state == LAST.get() {
            AGAIN.set(stretch);
            LAST.set(0);
        }
        fires = match ARMED.get() {
            0 => false,
            SWEEP => is_new(state),
            n => PASSED.get() == n,
        };
        if fires {
            LAST.set(state);
            fire(id, role);
        }
    }
    fires
}

/// Fires. A debugger that waits for a cut sets its breakpoint here.
#[inline(never)]
fn fire(id: u64, role: u64) {
    ARMED.set(0);
    FIRED[0].set(id);
    FIRED[1].set(role);
    RING.store(true, Relaxed);
}

/// Enters a state into the table of states in which the probe has fired. Returns whether it was new; if the
/// table is full it returns false.
fn is_new(state: u64) -> bool {
    let state = state | 1;
    let mut index = (state >> 32) as usize % STATES.len();
    for _ in 0..64 {
        if STATES[index].get() == state {
            return false;
        }
        if STATES[index].get() == 0 {
            STATES[index].set(state);
            return true;
        }
        index = (index + 1) % STATES.len();
    }
    false
}

/// Counts a pass of a site in the table of sites.
fn note(id: u64) {
    let mut index = (id ^ id >> 36) as usize % TABLE.len();
    for _ in 0..TABLE.len() {
        let [number, times] = &TABLE[index].0;
        if number.get() == 0 {
            number.set(id);
        }
        if number.get() == id {
            times.add(1);
            return;
        }
        index = (index + 1) % TABLE.len();
    }
}

/// Notes that a trap of the thread begins.
#[inline(always)]
pub(crate) fn enter(t: &Thread) {
    #[cfg(test)]
    points::enter();
    if CONFIG.probe {
        RUNNING.set(t.ctx.tag.get());
        if role(t.ctx.tag.get()).is_some() {
            uncounted(|_| FRAME.set(frame(t)));
        }
        progress();
    }
}

/// A hash of the thread's frame.
#[inline(never)]
fn frame(t: &Thread) -> u64 {
    let words = t.ctx.registers().to_words();
    words.into_iter().fold(0, mix)
}

/// Notes that the running call has saved progress, in its frame or in values that will be written to its frame.
#[inline(always)]
pub(crate) fn progress() {
    #[cfg(test)]
    points::progress();
    if CONFIG.probe {
        FRAME.set(mix(FRAME.get(), 1));
        OWN_THEN.set(OWN.get());
        PROGRESS.set(hal::ticks());
    }
}

/// Notes that bytes of a message have been moved. `saved`: a restart does not move them again.
#[inline(always)]
pub(crate) fn moved(bytes: u64, saved: bool) {
    if CONFIG.probe {
        MOVED.add(bytes);
    }
    if saved {
        progress();
    }
}

/// Whether calls may take fast paths.
#[inline(always)]
pub(crate) fn fast_paths() -> bool {
    !CONFIG.probe || !GENERAL.load(Relaxed)
}

/// Whether the probe's interrupt line must be raised before another thread runs.
#[inline(always)]
pub(crate) fn rings() -> bool {
    CONFIG.probe && RING.load(Relaxed)
}

/// Whether the probe has fired and the caller must raise its interrupt line now; the line counts as raised then.
#[inline(always)]
pub(crate) fn takes_ring() -> bool {
    CONFIG.probe && RING.swap(false, Relaxed)
}

/// Counts the end of a trap. Returns whether it is time to check the kernel's structures.
#[inline(always)]
pub(crate) fn is_check_due() -> bool {
    CONFIG.probe && counts_to_period()
}

#[inline(never)]
fn counts_to_period() -> bool {
    EXITS.add(1);
    let period = PERIOD.get();
    period != 0 && EXITS.get().is_multiple_of(period)
}

/// Arms the probe for the `n`-th site from now on, or goes on with a sweep, for threads with these roles.
pub(crate) fn arm(n: u64, roles: u64) {
    if n != SWEEP {
        PASSED.set(0);
        MOVED.set(0);
    }
    FIRED.iter().for_each(|word| word.set(0));
    calibrate();
    AGAIN.set(0);
    ARMED.set(n);
    MASK.set(roles);
}

/// The probe's results: sites passed since it was armed; the site at which it fired; the role of the thread; the time
/// of the work that was repeated after the last cut; bytes moved; the time that the probe itself has used; preemptions
/// in the kernel.
pub(crate) fn read() -> [u64; 7] {
    let [site, role] = FIRED.each_ref().map(Count::get);
    [
        PASSED.get(),
        site,
        role,
        AGAIN.get(),
        MOVED.get(),
        OWN.get(),
        PREEMPTED.get(),
    ]
}

/// Counts that a thread is preempted in the kernel.
#[inline(always)]
pub(crate) fn preempted() {
    if CONFIG.probe {
        PREEMPTED.add(1);
    }
}

/// An entry of the table of sites: the site, and how often it was passed.
pub(crate) fn passed(index: u64) -> [u64; 2] {
    let place = usize::try_from(index).ok().and_then(|i| TABLE.get(i));
    place.map_or([0; 2], |p| p.0.each_ref().map(Count::get))
}

/// Clears the table of sites.
pub(crate) fn forget() {
    let words = TABLE.iter().flat_map(|place| &place.0);
    words.for_each(|word| word.set(0));
}

/// Begins a sweep: the probe has fired in no state yet.
pub(crate) fn fresh() {
    PASSED.set(0);
    MOVED.set(0);
    STATES.iter().for_each(|state| state.set(0));
}

/// Sets the number of exits between two checks, and whether all calls take the general path.
pub(crate) fn set(period: u64, general: bool) {
    PERIOD.set(period);
    GENERAL.store(general, Relaxed);
}

/// The preemption points at which a test on the host stops calls.
#[cfg(test)]
pub(crate) mod points {
    use std::cell::Cell;

    std::thread_local! {
        static EVERY: Cell<u64> = const { Cell::new(0) };
        static PASSED: Cell<u64> = const { Cell::new(0) };
        static PROGRESS: Cell<bool> = const { Cell::new(false) };
        static REFUSALS: Cell<Option<u32>> = const { Cell::new(None) };
        static KEEPERS: Cell<bool> = const { Cell::new(false) };
    }

    /// From now on calls stop at every `n`-th point that they reach with progress saved since the last point; 0: at
    /// none.
    pub(crate) fn stop_at_every(n: u64) {
        EVERY.set(n);
        PASSED.set(0);
    }

    /// Whether calls stop at some points.
    pub(crate) fn are_on() -> bool {
        EVERY.get() != 0
    }

    /// Notes that a call pauses (`Again`) because it has refused so many threads of the other side.
    pub(crate) fn note_refusals(count: u32) {
        REFUSALS.set(Some(count));
    }

    /// Notes that the refused threads were servers that could not take the message about the thread's fault or
    /// exception.
    pub(crate) fn they_were_keepers() {
        KEEPERS.set(true);
    }

    /// The number of refusals after which the last call paused, if that was the reason, and whether keepers were
    /// refused. Clears both.
    pub(crate) fn take_refusals() -> Option<(u32, bool)> {
        let by_keepers = KEEPERS.take();
        REFUSALS.take().map(|count| (count, by_keepers))
    }

    pub(super) fn enter() {
        PROGRESS.set(false);
    }

    pub(super) fn progress() {
        PROGRESS.set(true);
    }

    pub(super) fn stops() -> bool {
        if EVERY.get() == 0 || !PROGRESS.replace(false) {
            return false;
        }
        PASSED.set(PASSED.get() + 1);
        PASSED.get().is_multiple_of(EVERY.get())
    }
}
