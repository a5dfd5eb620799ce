//! System V IPC: shared memory, semaphores and messages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::memory;
use crate::emulate::{Caller, Keys, Result, Stop, Wake};
use crate::errno::{
    Errno, E2BIG, EAGAIN, EFAULT, EFBIG, EIDRM, EINVAL, ENOMEM, ENOSPC, EPERM, ERANGE,
};
use crate::ipc::{
    flag, Marks, Memory, Message, Operation, Owner, Queue, Set, Shown, Wait, Wanted, MAX_MESSAGE,
    MAX_OPERATIONS, MAX_SEMAPHORES, MAX_THINGS, MAX_VALUE, MOST_QUEUE_BYTES, QUEUE_BYTES,
};
use crate::memory::{page_up, Area, Prot, Source, END, EXECUTE, LOWEST, PAGE, READ, WRITE};
use crate::proc::Seen;
use crate::process::Ids;
use crate::system::{Key, Thing};
use crate::wire::{u16_at, u32_at, u64_at, Writer};

/// Commands of `shmctl`, `semctl` and `msgctl`.
mod command {
    pub(super) const REMOVE: u32 = 0;
    pub(super) const SET: u32 = 1;
    pub(super) const STAT: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const SEM_GETPID: u32 = 11;
    pub(super) const SEM_GETVAL: u32 = 12;
    pub(super) const SEM_GETALL: u32 = 13;
    pub(super) const SEM_GETNCNT: u32 = 14;
    pub(super) const SEM_GETZCNT: u32 = 15;
    pub(super) const SEM_SETVAL: u32 = 16;
    pub(super) const SEM_SETALL: u32 = 17;
    pub(super) const SEM_STAT: u32 = 18;
    pub(super) const SEM_INFO: u32 = 19;
    pub(super) const SEM_STAT_ANY: u32 = 20;
    pub(super) const SHM_LOCK: u32 = 11;
    pub(super) const SHM_UNLOCK: u32 = 12;
    pub(super) const SHM_STAT: u32 = 13;
    pub(super) const SHM_INFO: u32 = 14;
    pub(super) const SHM_STAT_ANY: u32 = 15;
    pub(super) const MSG_STAT: u32 = 11;
    pub(super) const MSG_INFO: u32 = 12;
    pub(super) const MSG_STAT_ANY: u32 = 13;
}

/// Flags of `shmat`.
mod attach {
    pub(super) const READ_ONLY: u32 = 0o10000;
    pub(super) const ROUND: u32 = 0o20000;
    pub(super) const REMAP: u32 = 0o40000;
    pub(super) const EXECUTE: u32 = 0o100000;
}

/// Bytes of `struct ipc64_perm`.
const PERM: usize = 48;

fn ids(c: &mut Caller) -> Ids {
    c.process().ids
}

/// The date in seconds, and the number of the process.
fn mark(c: &mut Caller) -> (u64, u32) {
    (c.date() / 1_000_000_000, c.p.task.number)
}

/// `struct ipc64_perm`. The sequence number is the upper part of the identifier: how often its index was used before.
fn perm(owner: &Owner, id: i32) -> Writer {
    Writer::new()
        .u32(owner.key as u32)
        .u32(owner.uid)
        .u32(owner.gid)
        .u32(owner.made_by.0)
        .u32(owner.made_by.1)
        .u32(owner.mode)
        .u16((id as u32 >> 15) as u16)
        .pad_to(PERM)
}

/// Sets the owner and mode that `IPC_SET` gives.
fn set_owner(owner: &mut Owner, raw: &[u8]) {
    owner.uid = u32_at(raw, 4);
    owner.gid = u32_at(raw, 8);
    owner.mode = owner.mode & !0o777 | u32_at(raw, 20) & 0o777;
}

/// Reads the argument of `IPC_SET`. As in Linux, the invalid user and group numbers (-1) are refused.
fn read_set(c: &mut Caller, at: u64, size: usize) -> Result<Vec<u8>> {
    let raw = c.read(at, size)?;
    if [4, 8]
        .into_iter()
        .any(|field| u32_at(&raw, field) == u32::MAX)
    {
        return Err(EINVAL.into());
    }
    Ok(raw)
}

/// How a `STAT` command names its object; `any` is the command that needs no permission.
fn shown(id: i32, what: u32, any: u32) -> Shown {
    match what {
        command::STAT => Shown::ById(id),
        _ if what == any => Shown::ByIndexToAny(id),
        _ => Shown::ByIndex(id),
    }
}

// --- Shared memory ---

/// `shmget`.
pub fn shmget(c: &mut Caller, key: i32, size: u64, flags: u32) -> Result {
    let (pid, ids) = (c.p.task.pid, ids(c));
    c.s.tidy_shared(pid);
    let fits = |memory: &Memory| match memory.size < size {
        true => Err(EINVAL),
        false => Ok(()),
    };
    if let Some(id) = c.s.ipc(pid).memories.find(key, flags, &ids, fits)? {
        return Ok(id as u64);
    }
    const MOST: u64 = u64::MAX - (1 << 24);
    if size == 0 || size > MOST {
        return Err(EINVAL.into());
    }
    let whole = page_up(size).ok_or(ENOMEM)?;
    if c.s.ipc(pid).memories.count() >= MAX_THINGS {
        return Err(ENOSPC.into());
    }
    memory::afford(c, whole)?;
    let payer = c.process().payer;
    let used = c.s.new_object(c.h, payer).map_err(|_| ENOSPC)?;
    let mark = mark(c);
    let id = c.s.new_shared(pid, (key, flags, &ids), size, used, mark)?;
    Ok(id as u64)
}

/// `shmat`.
pub fn shmat(c: &mut Caller, id: i32, at: u64, flags: u32) -> Result {
    let (pid, ids) = (c.p.task.pid, ids(c));
    let mut at = at;
    let reads = flags & attach::READ_ONLY != 0;
    if id < 0 {
        return Err(EINVAL.into());
    }
    if at != 0 {
        if !at.is_multiple_of(PAGE) {
            if flags & attach::ROUND == 0 {
                return Err(EINVAL.into());
            }
            at -= at % PAGE;
            if at == 0 && flags & attach::REMAP != 0 {
                return Err(EINVAL.into());
            }
        }
    } else if flags & attach::REMAP != 0 {
        return Err(EINVAL.into());
    }
    c.s.tidy_shared(pid);
    let shared = c.s.ipc(pid).memories.get(id)?;
    let wanted = match reads {
        true => flag::READ,
        false => flag::READ | flag::WRITE,
    };
    shared.owner.check(&ids, wanted)?;
    let (object, size) = (shared.object, page_up(shared.size).ok_or(ENOMEM)?);
    let mut prot: Prot = if reads { READ } else { READ | WRITE };
    if flags & attach::EXECUTE != 0 {
        prot |= EXECUTE;
    }
    let start = if at != 0 {
        let end = at.checked_add(size).ok_or(EINVAL)?;
        if flags & attach::REMAP == 0 && !c.p.memory.areas.is_free(at, end) {
            return Err(EINVAL.into());
        }
        if at < LOWEST {
            return Err(EPERM.into());
        }
        if end > END {
            return Err(ENOMEM.into());
        }
        at
    } else {
        c.p.memory.areas.find_free(size, 0).ok_or(ENOMEM)?
    };
    memory::may_replace(c, start, start + size, false)?;
    let used = c.s.use_again(object)?;
    // Attaching detaches what was attached in the range.
    let areas = &c.p.memory.areas;
    let before = areas.list()[areas.first_after(start)..].iter();
    let before = before.take_while(|area| area.start < start + size);
    let before: BTreeSet<u64> = before.filter_map(Area::object).collect();
    memory::map_used(c, (start, start + size), prot, used, 0, !reads)?;
    touched(c, &before, false);
    touched(c, &BTreeSet::from([object]), true);
    Ok(start)
}

/// Marks the shared memories of these objects as attached, or detached, by the caller at this time.
fn touched(c: &mut Caller, objects: &BTreeSet<u64>, attached: bool) {
    let (now, by) = mark(c);
    let pid = c.p.task.pid;
    for memory in c.s.ipc(pid).memories.values_mut() {
        if objects.contains(&memory.object) {
            memory.marks.second_by = by;
            match attached {
                true => memory.marks.first = now,
                false => memory.marks.second = now,
            }
        }
    }
}

/// `shmdt`.
pub fn shmdt(c: &mut Caller, at: u64) -> Result {
    let pid = c.p.task.pid;
    if !at.is_multiple_of(PAGE) {
        return Err(EINVAL.into());
    }
    c.s.tidy_shared(pid);
    // An area belongs to an attachment at `at` if its offset fits, also if the first part was unmapped.
    let of = |area: &Area| match area.source() {
        Source::Object { id, offset } if area.start >= at && offset == area.start - at => Some(id),
        _ => None,
    };
    let memories = c.s.ipc(pid).memories.values();
    let sizes: BTreeMap<u64, u64> = memories
        .filter_map(|memory| Some((memory.object, page_up(memory.size)?)))
        .collect();
    let areas = &c.p.memory.areas;
    let first = areas.list()[areas.first_from(at)..].iter();
    let mut first = first.filter_map(|area| of(area).and_then(|id| sizes.get_key_value(&id)));
    let (object, size) = first.next().map(|(id, size)| (*id, *size)).ok_or(EINVAL)?;
    let end = at.saturating_add(size);
    memory::unmap_object(c, |area| of(area) == Some(object) && area.end <= end)?;
    touched(c, &BTreeSet::from([object]), false);
    c.s.tidy_shared(pid);
    Ok(0)
}

/// The shared memory of the caller's tree that this memory object belongs to: its identifier and its key, which is 0
/// for a private or a removed one. `None` if the object is no shared memory of the tree.
#[must_use]
pub fn memory_of(c: &Caller, object: u64) -> Option<(u32, i32)> {
    let memories = &c.s.ipcs.of(c.s.root_of(c.p.task.pid))?.memories;
    let mut all = memories.ids().zip(memories.values());
    let (id, memory) = all.find(|(_, memory)| memory.object == object)?;
    Some((id as u32, memory.owner.key))
}

/// Most areas that are looked at to count attachments: a tree could have 2 million.
const MOST_AREAS: usize = 200_000;

/// How often each shared memory of the tree is attached: memory objects in rising order, with their counts.
fn attachments(c: &Caller) -> Vec<(u64, u64)> {
    let root = c.s.root_of(c.p.task.pid);
    let ipc = c.s.ipcs.of(root);
    let memories = ipc.into_iter().flat_map(|ipc| ipc.memories.values());
    let mut counts: Vec<(u64, u64)> = memories.map(|memory| (memory.object, 0)).collect();
    counts.sort_unstable();
    let mut left = MOST_AREAS;
    let mut seen: Vec<Seen> = Vec::new();
    for pid in c.s.tree(root) {
        let Some(process) = c.s.find(pid).filter(|p| p.status.is_none()) else {
            continue;
        };
        if seen.iter().any(|other| other.shares_memory(&process.seen)) {
            continue;
        }
        seen.push(process.seen.clone());
        process.seen.areas(&c.p.memory, |areas| {
            let looked = areas.list().iter().take(left);
            left -= looked.len();
            for id in looked.filter_map(Area::object) {
                if let Ok(at) = counts.binary_search_by_key(&id, |(id, _)| *id) {
                    counts[at].1 += 1;
                }
            }
        });
    }
    counts
}

/// The count of one memory object in the result of [`attachments`].
fn attached(counts: &[(u64, u64)], object: u64) -> u64 {
    let at = counts.binary_search_by_key(&object, |(id, _)| *id);
    at.map_or(0, |at| counts[at].1)
}

/// `struct shmid64_ds`.
fn shared_state(memory: &Memory, id: i32, attached: u64) -> Vec<u8> {
    let Marks {
        first,
        second,
        changed,
        first_by,
        second_by,
    } = memory.marks;
    perm(&memory.owner, id)
        .u64(memory.size)
        .u64(first)
        .u64(second)
        .u64(changed)
        .u32(first_by)
        .u32(second_by)
        .u64(attached)
        .pad_to(112)
        .done()
}

/// `shmctl`.
pub fn shmctl(c: &mut Caller, id: i32, what: u32, at: u64) -> Result {
    use command::{
        INFO, REMOVE, SET, SHM_INFO, SHM_LOCK, SHM_STAT, SHM_STAT_ANY, SHM_UNLOCK, STAT,
    };
    if id < 0 || what as i32 >> 31 != 0 {
        return Err(EINVAL.into());
    }
    let (pid, ids) = (c.p.task.pid, ids(c));
    c.s.tidy_shared(pid);
    match what {
        INFO => {
            let info = Writer::new()
                .u64(END)
                .u64(1)
                .u64(MAX_THINGS as u64)
                .u64(MAX_THINGS as u64)
                .u64(MAX_THINGS as u64 * (END / PAGE))
                .pad_to(72);
            c.write(at, &info.done())?;
            Ok(c.s.ipc(pid).memories.highest())
        }
        SHM_INFO => {
            let memories = &c.s.ipc(pid).memories;
            let pages: u64 = memories.values().map(|m| m.size.div_ceil(PAGE)).sum();
            let info = Writer::new()
                .u32(memories.count() as u32)
                .pad_to(8)
                .u64(pages)
                .u64(pages)
                .pad_to(48);
            let highest = memories.highest();
            c.write(at, &info.done())?;
            Ok(highest)
        }
        STAT | SHM_STAT | SHM_STAT_ANY => {
            let shown = shown(id, what, SHM_STAT_ANY);
            let (found, memory) = c.s.ipc(pid).memories.shown(shown, &ids)?;
            let memory = memory.clone();
            let attached = attached(&attachments(c), memory.object);
            c.write(at, &shared_state(&memory, found, attached))?;
            Ok(if what == STAT { 0 } else { found as u64 })
        }
        SET => {
            let raw = read_set_after(c, at, 112, |c| {
                let memory = c.s.ipc(pid).memories.get(id)?;
                memory.owner.check_owner(&ids)
            })?;
            let (now, _) = mark(c);
            let memory = c.s.ipc(pid).memories.get_mut(id)?;
            set_owner(&mut memory.owner, &raw);
            memory.marks.changed = now;
            Ok(0)
        }
        REMOVE => {
            let memory = c.s.ipc(pid).memories.get_mut(id)?;
            memory.owner.check_owner(&ids)?;
            // It cannot be found by its key any more, and is removed when the last attachment goes.
            memory.owner.key = 0;
            memory.owner.mode |= flag::GOES;
            memory.used = None;
            c.s.tidy_shared(pid);
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => {
            let memory = c.s.ipc(pid).memories.get_mut(id)?;
            memory.owner.check_owner(&ids)?;
            match what {
                SHM_LOCK => memory.owner.mode |= flag::LOCKED,
                _ => memory.owner.mode &= !flag::LOCKED,
            }
            Ok(0)
        }
        _ => Err(EINVAL.into()),
    }
}

/// Checks that the argument of `IPC_SET` is readable, then the permission, then the argument: the order of Linux's
/// errors.
fn read_set_after(
    c: &mut Caller,
    at: u64,
    size: usize,
    may: impl FnOnce(&mut Caller) -> core::result::Result<(), Errno>,
) -> Result<Vec<u8>> {
    c.check(at, size as u64, READ)?;
    may(c)?;
    read_set(c, at, size)
}

// --- Semaphores ---

/// `semget`.
pub fn semget(c: &mut Caller, key: i32, count: i32, flags: u32) -> Result {
    let (pid, ids) = (c.p.task.pid, ids(c));
    if !(0..=MAX_SEMAPHORES as i32).contains(&count) {
        return Err(EINVAL.into());
    }
    let fits = |set: &Set| match set.semaphores.len() < count as usize {
        true => Err(EINVAL),
        false => Ok(()),
    };
    if let Some(id) = c.s.ipc(pid).sets.find(key, flags, &ids, fits)? {
        return Ok(id as u64);
    }
    if count == 0 {
        return Err(EINVAL.into());
    }
    let (now, _) = mark(c);
    let id = c.s.new_set(pid, (key, flags, &ids), count as usize, now)?;
    Ok(id as u64)
}

/// The state of the task's wait in a queue; `None` if it does not wait.
fn waited(c: &mut Caller) -> Option<Wait> {
    c.s.ipcs.wait(c.p.task.tid).cloned()
}

/// Parks the call until something has become of the task's wait in a queue.
fn park(c: &mut Caller, deadline: Option<u64>) -> Stop {
    c.wait();
    Stop::Park(Wake {
        keys: Keys::from_buf([Key::Ipc(c.p.task.tid)]),
        deadline,
        ..Wake::default()
    })
}

/// `semop`; `semtimedop` if `timeout` is the address of one.
pub fn semop(c: &mut Caller, id: i32, at: u64, count: u64, timeout: Option<u64>) -> Result {
    let (tid, pid, ids) = (c.p.task.tid, c.p.task.pid, ids(c));
    if let Some(Wait::Operations { .. }) = waited(c) {
        let (now, _) = mark(c);
        let outcome = c.s.outcome((tid, pid), now);
        let deadline = c.p.task.wait.and_then(|wait| wait.deadline);
        let is_over = deadline.is_some_and(|deadline| c.now() >= deadline);
        if outcome.is_none() && !is_over {
            return Err(park(c, deadline));
        }
        c.s.leave_ipc(tid);
        return match outcome {
            Some(0) => Ok(0),
            Some(error) => Err(Errno(error).into()),
            None => Err(EAGAIN.into()),
        };
    }
    let timeout = match timeout {
        None | Some(0) => None,
        Some(at) => {
            let raw = c.read(at, 16)?;
            Some((u64_at(&raw, 0), u64_at(&raw, 8)))
        }
    };
    let count = count as u32 as usize;
    if count > MAX_OPERATIONS {
        return Err(E2BIG.into());
    }
    if count == 0 {
        return Err(EINVAL.into());
    }
    let raw = c.read(at, count * 6)?;
    if id < 0 {
        return Err(EINVAL.into());
    }
    let timeout = match timeout {
        Some((seconds, rest)) if seconds >> 63 != 0 || rest >= 1_000_000_000 => {
            return Err(EINVAL.into())
        }
        Some((seconds, rest)) => Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest)),
        None => None,
    };
    let operations: Vec<Operation> = raw
        .chunks_exact(6)
        .map(|raw| Operation {
            number: u16_at(raw, 0),
            add: u16_at(raw, 2) as i16,
            flags: u16_at(raw, 4),
        })
        .collect();
    let set = c.s.ipc(pid).sets.get(id)?;
    let mut numbers = operations.iter().map(|o| usize::from(o.number));
    if numbers.any(|number| number >= set.semaphores.len()) {
        return Err(EFBIG.into());
    }
    let alters = operations.iter().any(|operation| operation.add != 0);
    let wanted = if alters { flag::WRITE } else { flag::READ };
    set.owner.check(&ids, wanted)?;
    let mark = mark(c);
    match c.s.operate((tid, pid), id, operations, mark)? {
        Some(()) => Ok(0),
        None => {
            let deadline = timeout.map(|timeout| c.deadline_after(timeout));
            Err(park(c, deadline))
        }
    }
}

/// `struct semid64_ds`.
fn set_state(set: &Set, id: i32) -> Vec<u8> {
    perm(&set.owner, id)
        .u64(set.marks.first)
        .u64(0)
        .u64(set.marks.changed)
        .u64(0)
        .u64(set.semaphores.len() as u64)
        .pad_to(104)
        .done()
}

/// `struct seminfo`.
fn set_info(used: u32, semaphores: u32) -> Vec<u8> {
    let all = (MAX_THINGS * MAX_SEMAPHORES) as u32;
    let undo = Thing::Undo.most_of_one() as u32;
    [
        all,
        MAX_THINGS as u32,
        all,
        all,
        MAX_SEMAPHORES as u32,
        MAX_OPERATIONS as u32,
        undo,
        used,
        u32::from(MAX_VALUE),
        semaphores,
    ]
    .into_iter()
    .fold(Writer::new(), Writer::u32)
    .done()
}

/// `semctl`.
pub fn semctl(c: &mut Caller, id: i32, number: i32, what: u32, argument: u64) -> Result {
    use command::{
        INFO, REMOVE, SEM_GETALL, SEM_GETNCNT, SEM_GETPID, SEM_GETVAL, SEM_GETZCNT, SEM_INFO,
        SEM_SETALL, SEM_SETVAL, SEM_STAT, SEM_STAT_ANY, SET, STAT,
    };
    if id < 0 {
        return Err(EINVAL.into());
    }
    let (pid, ids) = (c.p.task.pid, ids(c));
    match what {
        INFO | SEM_INFO => {
            let sets = &c.s.ipc(pid).sets;
            let all: usize = sets.values().map(|set| set.semaphores.len()).sum();
            let info = match what {
                INFO => set_info(20, u32::from(MAX_VALUE)),
                _ => set_info(sets.count() as u32, all as u32),
            };
            let highest = c.s.ipc(pid).sets.highest();
            c.write(argument, &info)?;
            Ok(highest)
        }
        STAT | SEM_STAT | SEM_STAT_ANY => {
            let shown = shown(id, what, SEM_STAT_ANY);
            let (found, set) = c.s.ipc(pid).sets.shown(shown, &ids)?;
            let state = set_state(set, found);
            c.write(argument, &state)?;
            Ok(if what == STAT { 0 } else { found as u64 })
        }
        SEM_SETVAL => {
            let value = argument as i32;
            if !(0..=i32::from(MAX_VALUE)).contains(&value) {
                return Err(ERANGE.into());
            }
            let set = c.s.ipc(pid).sets.get(id)?;
            let number = within(set, number)?;
            set.owner.check(&ids, flag::WRITE)?;
            let mark = mark(c);
            c.s.set_values(pid, id, (number, &[value as u16]), mark)?;
            Ok(0)
        }
        SEM_GETALL => {
            let set = c.s.ipc(pid).sets.get(id)?;
            set.owner.check(&ids, flag::READ)?;
            let values = set.semaphores.iter().map(|semaphore| semaphore.value);
            let values = values.fold(Writer::new(), Writer::u16).done();
            c.write(argument, &values)?;
            Ok(0)
        }
        SEM_SETALL => {
            let set = c.s.ipc(pid).sets.get(id)?;
            set.owner.check(&ids, flag::WRITE)?;
            let count = set.semaphores.len();
            let raw = c.read(argument, 2 * count)?;
            let values: Vec<u16> = raw.chunks_exact(2).map(|raw| u16_at(raw, 0)).collect();
            if values.iter().any(|value| *value > MAX_VALUE) {
                return Err(ERANGE.into());
            }
            let mark = mark(c);
            c.s.set_values(pid, id, (0, &values), mark)?;
            Ok(0)
        }
        SEM_GETPID | SEM_GETVAL | SEM_GETNCNT | SEM_GETZCNT => {
            let set = c.s.ipc(pid).sets.get(id)?;
            set.owner.check(&ids, flag::READ)?;
            let number = within(set, number)?;
            let semaphore = set.semaphores.get(usize::from(number)).ok_or(EINVAL)?;
            Ok(match what {
                SEM_GETPID => u64::from(semaphore.by),
                SEM_GETVAL => u64::from(semaphore.value),
                _ => c.s.waiters(pid, id, number, what == SEM_GETZCNT) as u64,
            })
        }
        SET => {
            let raw = read_set_after(c, argument, 104, |c| {
                let set = c.s.ipc(pid).sets.get(id)?;
                set.owner.check_owner(&ids)
            })?;
            let (now, _) = mark(c);
            let set = c.s.ipc(pid).sets.get_mut(id)?;
            set_owner(&mut set.owner, &raw);
            set.marks.changed = now;
            Ok(0)
        }
        REMOVE => {
            c.s.ipc(pid).sets.get(id)?.owner.check_owner(&ids)?;
            c.s.remove_set(pid, id)?;
            Ok(0)
        }
        _ => Err(EINVAL.into()),
    }
}

/// Checks that the set has a semaphore with this number. Errors: `EINVAL`.
fn within(set: &Set, number: i32) -> Result<u16> {
    let number = u16::try_from(number).map_err(|_| EINVAL)?;
    let is_one = usize::from(number) < set.semaphores.len();
    Ok(is_one.then_some(number).ok_or(EINVAL)?)
}

// --- Messages ---

/// `msgget`.
pub fn msgget(c: &mut Caller, key: i32, flags: u32) -> Result {
    let (pid, ids) = (c.p.task.pid, ids(c));
    if let Some(id) = c.s.ipc(pid).queues.find(key, flags, &ids, |_| Ok(()))? {
        return Ok(id as u64);
    }
    let (now, _) = mark(c);
    let id = c.s.new_queue(pid, (key, flags, &ids), now)?;
    Ok(id as u64)
}

/// `msgsnd`.
pub fn msgsnd(c: &mut Caller, id: i32, at: u64, length: u64, flags: u32) -> Result {
    let (tid, pid, ids) = (c.p.task.tid, c.p.task.pid, ids(c));
    let waits = waited(c);
    if let Some(Wait::Send { is_gone: true, .. }) = waits {
        c.s.leave_ipc(tid);
        return Err(EIDRM.into());
    }
    let kind = c.word(at)? as i64;
    if length > MAX_MESSAGE as u64 || id < 0 || kind < 1 {
        return Err(EINVAL.into());
    }
    let text = c.read(at.checked_add(8).ok_or(EFAULT)?, length as usize)?;
    let queue = c.s.ipc(pid).queues.get(id)?;
    queue.owner.check(&ids, flag::WRITE)?;
    if !queue.has_room(text.len()) && flags & flag::NOWAIT != 0 {
        return Err(EAGAIN.into());
    }
    let mark = mark(c);
    match c
        .s
        .send_message((tid, pid), id, Message { kind, text }, mark)?
    {
        Some(()) => {
            c.s.leave_ipc(tid);
            Ok(0)
        }
        None => Err(park(c, None)),
    }
}

/// `msgrcv`.
pub fn msgrcv(c: &mut Caller, id: i32, at: u64, most: u64, kind: i64, flags: u32) -> Result {
    let (tid, pid, ids) = (c.p.task.tid, c.p.task.pid, ids(c));
    if let Some(Wait::Receive { done, .. }) = waited(c) {
        let Some(done) = done else {
            return Err(park(c, None));
        };
        c.s.leave_ipc(tid);
        let message = done.map_err(Errno)?;
        return deliver(c, &message, at, most);
    }
    /// `MSG_COPY`, which Linux supports only if it was built with `CONFIG_CHECKPOINT_RESTORE`.
    const COPY: u32 = 0o40000;
    if id < 0 || most as i64 >> 63 != 0 || flags & COPY != 0 {
        return Err(if flags & COPY != 0 && id >= 0 {
            crate::errno::ENOSYS
        } else {
            EINVAL
        }
        .into());
    }
    let wanted = Wanted {
        kind,
        except: flags & flag::EXCEPT != 0 && kind > 0,
        most,
        cuts: flags & flag::NOERROR != 0,
    };
    let queue = c.s.ipc(pid).queues.get(id)?;
    queue.owner.check(&ids, flag::READ)?;
    let waits = flags & flag::NOWAIT == 0;
    let mark = mark(c);
    match c.s.receive_message((tid, pid), id, (wanted, waits), mark)? {
        Some(message) => deliver(c, &message, at, most),
        None => Err(park(c, None)),
    }
}

/// Writes a message to the program's buffer, with at most `most` bytes of its text.
fn deliver(c: &mut Caller, message: &Message, at: u64, most: u64) -> Result {
    let length = message
        .text
        .len()
        .min(usize::try_from(most).unwrap_or(usize::MAX));
    let bytes = Writer::new()
        .u64(message.kind as u64)
        .bytes(&message.text[..length])
        .done();
    c.write(at, &bytes)?;
    Ok(length as u64)
}

/// `struct msqid64_ds`.
fn queue_state(queue: &Queue, id: i32) -> Vec<u8> {
    perm(&queue.owner, id)
        .u64(queue.marks.first)
        .u64(queue.marks.second)
        .u64(queue.marks.changed)
        .u64(queue.bytes)
        .u64(queue.messages.len() as u64)
        .u64(queue.most)
        .u32(queue.marks.first_by)
        .u32(queue.marks.second_by)
        .pad_to(120)
        .done()
}

/// `struct msginfo`.
fn queue_info(pool: u32, map: u32, messages: u32) -> Vec<u8> {
    [
        pool,
        map,
        MAX_MESSAGE as u32,
        QUEUE_BYTES as u32,
        MAX_THINGS as u32,
        16,
        messages,
    ]
    .into_iter()
    .fold(Writer::new(), Writer::u32)
    .u16(0xffff)
    .pad_to(32)
    .done()
}

/// `msgctl`.
pub fn msgctl(c: &mut Caller, id: i32, what: u32, at: u64) -> Result {
    use command::{INFO, MSG_INFO, MSG_STAT, MSG_STAT_ANY, REMOVE, SET, STAT};
    if id < 0 || what as i32 >> 31 != 0 {
        return Err(EINVAL.into());
    }
    let (pid, ids) = (c.p.task.pid, ids(c));
    match what {
        INFO | MSG_INFO => {
            let queues = &c.s.ipc(pid).queues;
            let messages = queues.values().map(|q| q.messages.len() as u32).sum();
            let bytes = queues.values().map(|q| q.bytes as u32).sum();
            let all = MAX_THINGS as u32 * QUEUE_BYTES as u32;
            let info = match what {
                INFO => queue_info(all / 1024, QUEUE_BYTES as u32, QUEUE_BYTES as u32),
                _ => queue_info(queues.count() as u32, messages, bytes),
            };
            let highest = queues.highest();
            c.write(at, &info)?;
            Ok(highest)
        }
        STAT | MSG_STAT | MSG_STAT_ANY => {
            let shown = shown(id, what, MSG_STAT_ANY);
            let (found, queue) = c.s.ipc(pid).queues.shown(shown, &ids)?;
            let state = queue_state(queue, found);
            c.write(at, &state)?;
            Ok(if what == STAT { 0 } else { found as u64 })
        }
        SET => {
            let raw = read_set_after(c, at, 120, |c| {
                let queue = c.s.ipc(pid).queues.get(id)?;
                queue.owner.check_owner(&ids)
            })?;
            let most = u64_at(&raw, 88);
            // Root may raise the limit above the default, but not without bound.
            if most > QUEUE_BYTES && !ids.is_root() || most > MOST_QUEUE_BYTES {
                return Err(EPERM.into());
            }
            let (now, _) = mark(c);
            let queue = c.s.ipc(pid).queues.get_mut(id)?;
            set_owner(&mut queue.owner, &raw);
            (queue.most, queue.marks.changed) = (most, now);
            c.s.tell_senders(pid, id);
            Ok(0)
        }
        REMOVE => {
            c.s.ipc(pid).queues.get(id)?.owner.check_owner(&ids)?;
            c.s.remove_queue(pid, id)?;
            Ok(0)
        }
        _ => Err(EINVAL.into()),
    }
}

// --- Lists ---

/// A list in `/proc/sysvipc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum List {
    Memories,
    Sets,
    Queues,
}

/// The contents of the list.
pub fn list(c: &mut Caller, which: List) -> core::result::Result<String, Errno> {
    let pid = c.p.task.pid;
    c.h.room(64 << 10)?;
    c.s.tidy_shared(pid);
    let counts = match which {
        List::Memories => attachments(c),
        _ => Vec::new(),
    };
    let ipc = c.s.ipc(pid);
    let mut text = String::from(match which {
        List::Memories => "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n",
        List::Sets => "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n",
        List::Queues => "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n",
    });
    let owner = |o: &Owner| {
        let (uid, gid) = o.made_by;
        format!("{:5} {:5} {uid:5} {gid:5}", o.uid, o.gid)
    };
    match which {
        List::Memories => {
            for (id, m) in ipc.memories.ids().zip(ipc.memories.values()) {
                let (o, marks) = (&m.owner, &m.marks);
                let attached = attached(&counts, m.object);
                text.push_str(&format!(
                    "{:10} {id:10}  {:4o} {:21} {:5} {:5}  {attached:5} {} {:10} {:10} {:10} {:21} {:21}\n",
                    o.key, o.mode, m.size, marks.first_by, marks.second_by, owner(o), marks.first, marks.second,
                    marks.changed, m.size.next_multiple_of(PAGE), 0,
                ));
            }
        }
        List::Sets => {
            for (id, set) in ipc.sets.ids().zip(ipc.sets.values()) {
                let (o, marks) = (&set.owner, &set.marks);
                text.push_str(&format!(
                    "{:10} {id:10}  {:4o} {:10} {} {:10} {:10}\n",
                    o.key,
                    o.mode,
                    set.semaphores.len(),
                    owner(o),
                    marks.first,
                    marks.changed,
                ));
            }
        }
        List::Queues => {
            for (id, queue) in ipc.queues.ids().zip(ipc.queues.values()) {
                let (o, marks) = (&queue.owner, &queue.marks);
                text.push_str(&format!(
                    "{:10} {id:10}  {:4o}  {:10} {:10} {:5} {:5} {} {:10} {:10} {:10}\n",
                    o.key,
                    o.mode,
                    queue.bytes,
                    queue.messages.len(),
                    marks.first_by,
                    marks.second_by,
                    owner(o),
                    marks.first,
                    marks.second,
                    marks.changed,
                ));
            }
        }
    }
    Ok(text)
}
