//! `futex`, and what is done at the end of a thread: the word at its `clear_child_tid` address is cleared, and its
//! robust list is processed.
//!
//! The state of a lock is in two places: the word in the program's memory, and the wait queue in
//! [`crate::futex::Futexes`]. The word of a lock with an owner is changed here only by compare-and-exchange, since the
//! program changes it without a call.

use linux_raw_sys::general as linux;

use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{EAGAIN, EDEADLK, EINVAL, ENOSYS, EPERM, ESRCH, ETIMEDOUT};
use crate::futex::{Waiter, Word, GRANTED};
use crate::host::Host;
use crate::memory::{READ, WRITE};
use crate::process::{Memory, Task};
use crate::system::System;
use crate::wire::{u32_at, u64_at};

/// Most entries of a robust list that are looked at when a thread ends.
pub const MAX_ROBUST: usize = 2048;
/// Bytes of `struct robust_list_head`.
const ROBUST_HEAD: u64 = 24;

/// The arguments of a call.
struct Request {
    address: u64,
    operation: u32,
    value: u32,
    /// The address of a timeout, or how many waiters to requeue.
    timeout: u64,
    second: u64,
    third: u32,
}

/// The futex of this memory only at an address, which must be writable.
fn word(c: &Caller, address: u64) -> Result<Word> {
    c.check(address, 4, WRITE)?;
    Ok(Word::new(&c.p.memory, address))
}

/// The value of the word at an address.
fn load(c: &mut Caller, address: u64) -> Result<u32> {
    c.check(address, 4, READ)?;
    let mut bytes = [0; 4];
    c.h.read_memory(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Replaces the value of a writable word atomically; returns the old value.
fn update(
    host: &mut dyn Host,
    address: u64,
    change: impl Fn(u32) -> u32,
) -> core::result::Result<u32, crate::host::OutOfMemory> {
    let mut bytes = [0; 4];
    host.read_memory(address, &mut bytes)?;
    let mut found = u32::from_le_bytes(bytes);
    loop {
        let before = host.exchange(address, found, change(found))?;
        if before == found {
            return Ok(found);
        }
        found = before;
    }
}

/// `futex`.
pub fn futex(
    c: &mut Caller,
    [address, operation, value, timeout, second, third]: [u64; 6],
) -> Result {
    let r = Request {
        address,
        operation: operation as u32,
        value: value as u32,
        timeout,
        second,
        third: third as u32,
    };
    if !address.is_multiple_of(4) {
        return Err(EINVAL.into());
    }
    match r.operation & linux::FUTEX_CMD_MASK as u32 {
        linux::FUTEX_WAIT => wait(c, &r, u32::MAX, false),
        linux::FUTEX_WAIT_BITSET => wait(c, &r, r.third, true),
        linux::FUTEX_WAKE => wake(c, &r, u32::MAX),
        linux::FUTEX_WAKE_BITSET => wake(c, &r, r.third),
        linux::FUTEX_REQUEUE => requeue(c, &r, None),
        linux::FUTEX_CMP_REQUEUE => requeue(c, &r, Some(r.third)),
        linux::FUTEX_WAKE_OP => wake_op(c, &r),
        linux::FUTEX_LOCK_PI => lock(c, &r, linux::CLOCK_REALTIME),
        linux::FUTEX_LOCK_PI2 => {
            let clock = clock(&r);
            lock(c, &r, clock)
        }
        linux::FUTEX_TRYLOCK_PI => match take(c, &r)? {
            None => Ok(0),
            Some(_) => Err(EAGAIN.into()),
        },
        linux::FUTEX_UNLOCK_PI => unlock(c, &r),
        _ => Err(ENOSYS.into()),
    }
}

impl Request {
    /// The futex at this address, private to this memory or shared, as the call's flags say.
    fn word(&self, c: &Caller, address: u64) -> Word {
        let private = self.operation & linux::FUTEX_PRIVATE_FLAG != 0;
        Word::at(&c.p.memory, address, private)
    }
}

const fn clock(r: &Request) -> u32 {
    match r.operation & linux::FUTEX_CLOCK_REALTIME {
        0 => linux::CLOCK_MONOTONIC,
        _ => linux::CLOCK_REALTIME,
    }
}

/// The number of waiters that `value` stands for.
fn count(value: u32) -> usize {
    // As on Linux, numbers below 1 count as 1.
    usize::try_from(value as i32).unwrap_or(1).max(1)
}

/// The result of a call that has waited before; `None` if this is its first attempt.
fn again(c: &mut Caller) -> Option<Result> {
    let tid = c.p.task.tid;
    let kept = c.p.task.wait?;
    if kept.progress == GRANTED {
        return Some(Ok(0));
    }
    if !c.s.futexes.waits(tid) {
        return None;
    }
    if kept.deadline.is_some_and(|deadline| c.now() >= deadline) {
        return Some(Err(ETIMEDOUT.into()));
    }
    Some(Err(Stop::Park(Wake::at(kept.deadline))))
}

/// Enters the call into the futex's wait queue. Errors: `ETIMEDOUT` if the deadline has passed already.
fn stand(c: &mut Caller, word: Word, waiter: Waiter, deadline: Option<u64>) -> Result {
    if deadline.is_some_and(|deadline| c.now() >= deadline) {
        return Err(ETIMEDOUT.into());
    }
    c.wait().deadline = deadline;
    c.s.futexes.wait(c.p.task.tid, word, waiter);
    Err(Stop::Park(Wake::at(deadline)))
}

fn wait(c: &mut Caller, r: &Request, bits: u32, absolute: bool) -> Result {
    if bits == 0 {
        return Err(EINVAL.into());
    }
    if let Some(result) = again(c) {
        return result;
    }
    let time = match r.timeout {
        0 => None,
        at => Some(super::time::read_timespec(c, at)?),
    };
    if load(c, r.address)? != r.value {
        return Err(EAGAIN.into());
    }
    let deadline = match time {
        None => None,
        Some(time) if absolute => Some(super::time::deadline_at(c, clock(r), time)?),
        Some(time) => Some(c.deadline_after(time)),
    };
    let word = r.word(c, r.address);
    stand(c, word, Waiter { bits, locks: None }, deadline)
}

fn wake(c: &mut Caller, r: &Request, bits: u32) -> Result {
    if bits == 0 {
        return Err(EINVAL.into());
    }
    c.check(r.address, 4, READ)?;
    let word = r.word(c, r.address);
    Ok(c.s.futexes.wake(word, count(r.value), bits) as u64)
}

fn requeue(c: &mut Caller, r: &Request, expected: Option<u32>) -> Result {
    let (most, moved) = (r.value as i32, r.timeout as i32);
    if most < 0 || moved < 0 || !r.second.is_multiple_of(4) {
        return Err(EINVAL.into());
    }
    c.check(r.address, 4, READ)?;
    c.check(r.second, 4, READ)?;
    if let Some(expected) = expected {
        if load(c, r.address)? != expected {
            return Err(EAGAIN.into());
        }
    }
    let (from, to) = (r.word(c, r.address), r.word(c, r.second));
    let woken = c.s.futexes.wake(from, most as usize, u32::MAX);
    if from == to {
        return Ok(woken as u64);
    }
    let moved = c.s.futexes.requeue(from, to, moved as usize);
    Ok((woken + moved) as u64)
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and those of the second if its old value
/// compares as asked.
fn wake_op(c: &mut Caller, r: &Request) -> Result {
    let code = r.third;
    let (operation, comparison) = (code >> 28 & 7, code >> 24 & 15);
    let sign = |value: u32| ((value << 20) as i32) >> 20;
    let mut argument = sign(code >> 12 & 0xfff) as u32;
    let compared = sign(code & 0xfff);
    if code >> 28 & linux::FUTEX_OP_OPARG_SHIFT != 0 {
        argument = 1 << (argument & 31);
    }
    if !r.second.is_multiple_of(4) {
        return Err(EINVAL.into());
    }
    c.check(r.address, 4, READ)?;
    c.check(r.second, 4, WRITE)?;
    if operation > linux::FUTEX_OP_XOR || comparison > linux::FUTEX_OP_CMP_GE {
        return Err(ENOSYS.into());
    }
    let old = update(c.h, r.second, |old| match operation {
        linux::FUTEX_OP_SET => argument,
        linux::FUTEX_OP_ADD => old.wrapping_add(argument),
        linux::FUTEX_OP_OR => old | argument,
        linux::FUTEX_OP_ANDN => old & !argument,
        _ => old ^ argument,
    })? as i32;
    let (first, second) = (r.word(c, r.address), r.word(c, r.second));
    let mut woken = c.s.futexes.wake(first, count(r.value), u32::MAX);
    let holds = match comparison {
        linux::FUTEX_OP_CMP_EQ => old == compared,
        linux::FUTEX_OP_CMP_NE => old != compared,
        linux::FUTEX_OP_CMP_LT => old < compared,
        linux::FUTEX_OP_CMP_LE => old <= compared,
        linux::FUTEX_OP_CMP_GT => old > compared,
        _ => old >= compared,
    };
    if holds {
        woken += c.s.futexes.wake(second, count(r.timeout as u32), u32::MAX);
    }
    Ok(woken as u64)
}

/// Takes the lock if it has no owner and returns `None`; else returns its owner. Errors: `EDEADLK` if the caller owns
/// it.
fn take(c: &mut Caller, r: &Request) -> Result<Option<u32>> {
    word(c, r.address)?;
    let own = c.p.task.thread;
    loop {
        let found = load(c, r.address)?;
        let owner = found & linux::FUTEX_TID_MASK;
        if owner == own {
            return Err(EDEADLK.into());
        }
        if owner != 0 {
            return Ok(Some(owner));
        }
        let waited = c.s.futexes.first_locker(Word::new(&c.p.memory, r.address));
        let waiters = if waited.is_some() {
            linux::FUTEX_WAITERS
        } else {
            0
        };
        let new = own | found & linux::FUTEX_OWNER_DIED | waiters;
        if c.h.exchange(r.address, found, new)? == found {
            return Ok(None);
        }
    }
}

/// `FUTEX_LOCK_PI`: waits until the caller owns the lock.
fn lock(c: &mut Caller, r: &Request, clock: u32) -> Result {
    if let Some(result) = again(c) {
        return result;
    }
    let time = match r.timeout {
        0 => None,
        at => Some(super::time::read_timespec(c, at)?),
    };
    let Some(owner) = take(c, r)? else {
        return Ok(0);
    };
    let (owner, pid) = c.s.thread_by_number(c.p.task.pid, owner).ok_or(ESRCH)?;
    if pid != c.p.task.pid {
        return Err(ESRCH.into());
    }
    let deadline = match time {
        None => None,
        Some(time) => Some(super::time::deadline_at(c, clock, time)?),
    };
    update(c.h, r.address, |word| word | linux::FUTEX_WAITERS)?;
    let word = word(c, r.address)?;
    let waiter = Waiter {
        bits: u32::MAX,
        locks: Some(c.p.task.thread),
    };
    let stood = stand(c, word, waiter, deadline);
    if c.s.futexes.waits(c.p.task.tid) {
        c.s.futexes.own(owner, word);
    }
    stood
}

fn unlock(c: &mut Caller, r: &Request) -> Result {
    let word = word(c, r.address)?;
    let found = load(c, r.address)?;
    if found & linux::FUTEX_TID_MASK != c.p.task.thread {
        return Err(EPERM.into());
    }
    pass_on(c.s, c.h, word, 0)?;
    Ok(0)
}

/// Gives a lock to its first waiter, or leaves it without an owner. `died` is or'ed into the word.
fn pass_on(
    system: &mut System,
    host: &mut dyn Host,
    word: Word,
    died: u32,
) -> core::result::Result<(), crate::host::OutOfMemory> {
    let next = system.futexes.first_locker(word);
    let new = next.map_or(0, |(_, number)| number | linux::FUTEX_WAITERS);
    update(host, word.address, |_| new | died)?;
    hand_over(system, word);
    Ok(())
}

/// Makes the first waiter of a lock its owner, without touching the word.
fn hand_over(system: &mut System, word: Word) {
    if let Some((tid, _)) = system.futexes.first_locker(word) {
        system.futexes.hand_over(word, tid);
    }
}

/// `set_robust_list`.
pub fn set_robust_list(c: &mut Caller, head: u64, length: u64) -> Result {
    if length != ROBUST_HEAD {
        return Err(EINVAL.into());
    }
    c.p.task.robust = head;
    Ok(0)
}

/// `get_robust_list`, for the calling thread only.
pub fn get_robust_list(c: &mut Caller, thread: u32, head_at: u64, length_at: u64) -> Result {
    if thread != 0 && thread != c.p.task.thread {
        return Err(EPERM.into());
    }
    let head = c.p.task.robust;
    c.check(length_at, 8, WRITE)?;
    c.write(head_at, &head.to_le_bytes())?;
    c.write(length_at, &ROBUST_HEAD.to_le_bytes())?;
    Ok(0)
}

/// A task leaves memory that other tasks use, too: passes on the locks that it owns, marks those of its robust list
/// `FUTEX_OWNER_DIED`, and clears the word at its `clear_child_tid` address, waking a waiter there. `entries`: how many
/// entries of robust lists may still be looked at in this step; it counts down over all tasks that end in the step.
pub fn leave(task: &Task, system: &mut System, host: &mut dyn Host, entries: &mut usize) {
    system.futexes.leave(task.tid);
    let memory = task.shares.memory.borrow();
    if task.robust != 0 {
        // Processing of an invalid list stops at the first bad entry.
        let _ = leave_list((task, &memory), system, host, entries);
    }
    for word in system.futexes.locks_of(task.tid) {
        // Since the waiters came, the program may have mapped something there that it may not write to, for example a
        // sealed file of another program. The waiters must go on nevertheless.
        let is_its = memory.areas.allows(word.address, 4, WRITE);
        if !is_its || pass_on(system, host, word, linux::FUTEX_OWNER_DIED).is_err() {
            hand_over(system, word);
        }
    }
    let at = task.clear_at;
    if at != 0 && is_there(&memory, host, at, 4) && host.write_memory(at, &[0; 4]).is_ok() {
        system
            .futexes
            .wake(Word::at(&memory, at, false), 1, u32::MAX);
    }
}

/// Whether the program may write to the range and its pages are present: a page that was never touched holds no lock.
fn is_there(memory: &Memory, host: &mut dyn Host, address: u64, length: u64) -> bool {
    memory.areas.allows(address, length, WRITE) && host.is_present(address, length)
}

fn leave_list(
    (task, memory): (&Task, &Memory),
    system: &mut System,
    host: &mut dyn Host,
    entries: &mut usize,
) -> Option<()> {
    let read = |host: &mut dyn Host, at: u64| {
        let mut bytes = [0; 8];
        if !is_there(memory, host, at, 8) {
            return None;
        }
        host.read_memory(at, &mut bytes).ok()?;
        Some(u64_at(&bytes, 0))
    };
    let head = task.robust;
    let mut entry = read(host, head)?;
    let offset = read(host, head.checked_add(8)?)?;
    let pending = read(host, head.checked_add(16)?)?;
    while entry & !1 != head && *entries > 0 {
        let next = read(host, entry & !1);
        if entry & !1 != pending & !1 {
            died((task, memory), system, host, (entry, false), offset)?;
        }
        entry = next?;
        *entries -= 1;
    }
    if pending & !1 != 0 {
        died((task, memory), system, host, (pending, true), offset)?;
    }
    Some(())
}

/// Releases the lock of one entry of a robust list. The lowest bit of `entry` is set for a lock with an owner
/// (`FUTEX_LOCK_PI`). `is_pending`: the task was just taking or releasing the lock.
fn died(
    (task, memory): (&Task, &Memory),
    system: &mut System,
    host: &mut dyn Host,
    (entry, is_pending): (u64, bool),
    offset: u64,
) -> Option<()> {
    let at = (entry & !1).wrapping_add(offset);
    if !at.is_multiple_of(4) || !is_there(memory, host, at, 4) {
        return None;
    }
    let mut bytes = [0; 4];
    host.read_memory(at, &mut bytes).ok()?;
    let found = u32_at(&bytes, 0);
    let word = Word::new(memory, at);
    // A waiter is queued at the shared word or at the private one.
    let wake = |system: &mut System| {
        let all = Word::at(memory, at, false);
        if system.futexes.wake(all, 1, u32::MAX) == 0 {
            system.futexes.wake(word, 1, u32::MAX);
        }
    };
    let owner = found & linux::FUTEX_TID_MASK;
    if is_pending && owner == 0 && entry & 1 == 0 {
        // The task has released the lock and not woken the next one, or was woken for it and has not taken it.
        wake(system);
    }
    if owner != task.thread {
        return Some(());
    }
    if entry & 1 != 0 && system.futexes.first_locker(word).is_some() {
        // [`leave`] passes it on, with all other locks of the task.
        return Some(());
    }
    let left = |word| word & linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
    update(host, at, left).ok()?;
    if found & linux::FUTEX_WAITERS != 0 && entry & 1 == 0 {
        wake(system);
    }
    Some(())
}

/// Whether a wait can be restarted behind a signal handler (`SA_RESTART`): not if it has a timeout.
#[must_use]
pub const fn can_restart(operation: u64, timeout: u64) -> bool {
    timeout == 0
        || !matches!(
            operation as u32 & linux::FUTEX_CMD_MASK as u32,
            linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET
        )
}

/// Whether the call is restarted behind every signal handler: `FUTEX_LOCK_PI` never fails with `EINTR` on Linux, and
/// its callers would take that for success. Its deadline is absolute, so a restart does not change it.
#[must_use]
pub const fn always_restarts(operation: u64) -> bool {
    matches!(
        operation as u32 & linux::FUTEX_CMD_MASK as u32,
        linux::FUTEX_LOCK_PI | linux::FUTEX_LOCK_PI2
    )
}
