//! System V IPC: shared memory, semaphore sets and message queues.
//!
//! All of these belong to a *tree* ([`Ipc`]): their keys and identifiers mean nothing to other trees, and they end with
//! the tree. Each of the three kinds is a table of things by index ([`Things`]); an identifier is an index and a count
//! of how often indexes had been reused before.
//!
//! * Shared memory is a memory object ([`crate::object`]), which the table holds a use of until the shared memory is
//!   removed. After that it lasts as long as some memory maps it.
//! * A task that waits stands in a queue, in the order of arrival, and is served there: operations on semaphores are
//!   done as soon as they are possible, a message is handed to the first task that wants it. The call finds the outcome
//!   when it is made again, so it does not matter when that is, nor whether an image was made in between.
//!
//! Everything has a limit. A call that changes semaphores tries the operations of waiters at most [`MAX_TRIES`] times;
//! if that was not enough each waiter tries its own when its call is made again.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::RangeBounds;
use serde::{Deserialize, Serialize};
use services::process::Pid;

use crate::errno::{Errno, EACCES, EEXIST, EIDRM, EINVAL, ENOENT, ENOSPC, EPERM, ERANGE};
use crate::errno::{E2BIG, EAGAIN, ENOMSG};
use crate::object::{Objects, Use};
use crate::process::Ids;
use crate::system::{Key, Payer, System, Thing, Tid};

/// Most things of one kind in a tree.
pub const MAX_THINGS: usize = 128;
/// Most semaphores in a set.
pub const MAX_SEMAPHORES: usize = 250;
/// Most operations in one call of `semop`.
pub const MAX_OPERATIONS: usize = 64;
/// Highest value of a semaphore.
pub const MAX_VALUE: u16 = 32_767;
/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 8192;
/// Most bytes in a queue by default, and most that a process other than root can set.
pub const QUEUE_BYTES: u64 = 16_384;
/// Most bytes that root can set for a queue.
pub const MOST_QUEUE_BYTES: u64 = 65_536;
/// Most messages in a queue.
pub const MAX_MESSAGES: usize = 1024;
/// Most waiters that a call tries to serve at once; each try takes up to [`MAX_OPERATIONS`] steps.
pub const MAX_TRIES: usize = 300;
/// Tickets in an image must be below this.
const MAX_TICKET: u64 = 1 << 62;
/// Most semaphore adjustments (`SEM_UNDO`) of all processes of a payer.
pub const MAX_UNDO: usize = Thing::Undo.most_of_one();
/// An identifier is the index plus a multiple of this number.
const INDEXES: u32 = 1 << 15;
/// The multiples are below this number.
const TURNS: u32 = u16::MAX as u32 >> 1;

/// Flags of calls, and bits of modes.
pub mod flag {
    /// `IPC_CREAT`.
    pub const CREATE: u32 = 0o1000;
    /// `IPC_EXCL`.
    pub const EXCLUSIVE: u32 = 0o2000;
    /// `IPC_NOWAIT`.
    pub const NOWAIT: u32 = 0o4000;
    /// `SEM_UNDO`.
    pub const UNDO: u32 = 0x1000;
    /// `MSG_NOERROR`.
    pub const NOERROR: u32 = 0o10000;
    /// `MSG_EXCEPT`.
    pub const EXCEPT: u32 = 0o20000;
    /// `SHM_DEST` of a mode: the shared memory ends with its last use.
    pub const GOES: u32 = 0o1000;
    /// `SHM_LOCKED`, of a mode.
    pub const LOCKED: u32 = 0o2000;
    /// Read permission of owner, group and others.
    pub const READ: u32 = 0o444;
    /// Write permission of owner, group and others.
    pub const WRITE: u32 = 0o222;
}

/// Owner, creator and permissions (`struct ipc_perm`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The key under which the thing can be found; 0 for none.
    pub key: i32,
    /// User that owns the thing.
    pub uid: u32,
    /// Group that owns the thing.
    pub gid: u32,
    /// User and group of the creator.
    pub made_by: (u32, u32),
    /// Permissions, and the flags of shared memory.
    pub mode: u32,
}

impl Owner {
    /// The owner of a thing that a process with these ids makes.
    fn new(key: i32, ids: &Ids, flags: u32) -> Self {
        Owner {
            key,
            uid: ids.uid[1],
            gid: ids.gid[1],
            made_by: (ids.uid[1], ids.gid[1]),
            mode: flags & 0o777,
        }
    }

    /// Fails with `EACCES` unless a process with these ids has the wanted permissions.
    pub fn check(&self, ids: &Ids, wanted: u32) -> Result<(), Errno> {
        let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
        let granted = match ids.uid[1] {
            uid if uid == self.uid || uid == self.made_by.0 => self.mode >> 6,
            _ if ids.gid[1] == self.gid || ids.gid[1] == self.made_by.1 => self.mode >> 3,
            _ => self.mode,
        };
        let allowed = ids.uid[1] == 0 || wanted & !granted == 0;
        allowed.then_some(()).ok_or(EACCES)
    }

    /// Fails with `EPERM` unless a process with these ids may change or remove the thing.
    pub fn check_owner(&self, ids: &Ids) -> Result<(), Errno> {
        let uid = ids.uid[1];
        let allowed = uid == 0 || uid == self.uid || uid == self.made_by.0;
        allowed.then_some(()).ok_or(EPERM)
    }

    const fn is_sound(&self) -> bool {
        self.mode & !(0o777 | flag::GOES | flag::LOCKED) == 0
    }
}

/// A thing with an [`Owner`].
pub trait Owned {
    /// Owner and permissions.
    fn owner(&self) -> &Owner;
}

/// The things of one kind in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Things<T> {
    all: BTreeMap<u32, (u32, T)>,
    /// How often indexes have been reused.
    turn: u32,
    /// The index of the thing that was added last.
    last: Option<u32>,
}

impl<T> Default for Things<T> {
    fn default() -> Self {
        Things {
            all: BTreeMap::new(),
            turn: 0,
            last: None,
        }
    }
}

const fn identifier(turn: u32, index: u32) -> i32 {
    (turn * INDEXES + index) as i32
}

/// How a call names the thing whose state it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// By identifier: `IPC_STAT`.
    ById(i32),
    /// By index: `SEM_STAT`, `SHM_STAT`, `MSG_STAT`.
    ByIndex(i32),
    /// By index and without a check of permissions: `SEM_STAT_ANY` and the like.
    ByIndexToAny(i32),
}

impl<T: Owned> Things<T> {
    /// The thing whose state is asked for, with its identifier. Errors: `EINVAL`, `EACCES`.
    pub fn shown(&self, shown: Shown, ids: &Ids) -> Result<(i32, &T), Errno> {
        let id = match shown {
            Shown::ById(id) => id,
            Shown::ByIndex(index) | Shown::ByIndexToAny(index) => {
                let index = u32::try_from(index).map_err(|_| EINVAL)?;
                let (turn, _) = self.all.get(&index).ok_or(EINVAL)?;
                identifier(*turn, index)
            }
        };
        let one = self.get(id)?;
        if !matches!(shown, Shown::ByIndexToAny(_)) {
            one.owner().check(ids, flag::READ)?;
        }
        Ok((id, one))
    }

    /// The identifiers, by rising index.
    pub fn ids(&self) -> impl Iterator<Item = i32> + '_ {
        let all = self.all.iter();
        all.map(|(index, (turn, _))| identifier(*turn, *index))
    }

    /// All things.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.all.values().map(|(_, one)| one)
    }

    /// All things, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.all.values_mut().map(|(_, one)| one)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The highest index in use; 0 if there is none, as in Linux.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.all
            .last_key_value()
            .map_or(0, |(index, _)| u64::from(*index))
    }

    /// The thing with this identifier. Errors: `EINVAL`.
    pub fn get(&self, id: i32) -> Result<&T, Errno> {
        let id = u32::try_from(id).map_err(|_| EINVAL)?;
        let found = self.all.get(&(id % INDEXES));
        let found = found.filter(|(turn, _)| *turn == id / INDEXES);
        found.map(|(_, one)| one).ok_or(EINVAL)
    }

    /// The thing with this identifier, to be changed. Errors: `EINVAL`.
    pub fn get_mut(&mut self, id: i32) -> Result<&mut T, Errno> {
        let id = u32::try_from(id).map_err(|_| EINVAL)?;
        let found = self.all.get_mut(&(id % INDEXES));
        let found = found.filter(|(turn, _)| *turn == id / INDEXES);
        found.map(|(_, one)| one).ok_or(EINVAL)
    }

    /// The identifier of the thing with this key. Looks at all things, of which there are at most [`MAX_THINGS`].
    fn by_key(&self, key: i32) -> Option<i32> {
        let of_key = |(_, (_, one)): &(&u32, &(u32, T))| one.owner().key == key;
        let (index, (turn, _)) = self.all.iter().find(of_key)?;
        Some(identifier(*turn, *index))
    }

    /// The identifier that a `get` call with this key and these flags returns; `None` if it has to make a new thing.
    /// `fits` makes further checks of an existing one. Errors: `ENOENT`, `EEXIST`, `EACCES`, and those of `fits`.
    pub fn find(
        &self,
        key: i32,
        flags: u32,
        ids: &Ids,
        fits: impl FnOnce(&T) -> Result<(), Errno>,
    ) -> Result<Option<i32>, Errno> {
        let found = self.by_key(key).filter(|_| key != 0);
        let Some(id) = found else {
            let makes = key == 0 || flags & flag::CREATE != 0;
            return makes.then_some(None).ok_or(ENOENT);
        };
        if flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0 {
            return Err(EEXIST);
        }
        let one = self.get(id)?;
        fits(one)?;
        one.owner().check(ids, flags)?;
        Ok(Some(id))
    }

    /// Adds a thing and returns its identifier. There must be room ([`Things::has_room`]).
    fn add(&mut self, one: T) -> i32 {
        let index = (0..)
            .find(|index| !self.all.contains_key(index))
            .unwrap_or(0);
        if self.last.is_some_and(|last| index <= last) {
            self.turn = (self.turn + 1) % TURNS;
        }
        self.last = Some(index);
        self.all.insert(index, (self.turn, one));
        identifier(self.turn, index)
    }

    /// Puts a thing at an index without any check.
    #[cfg(test)]
    pub(crate) fn forge(&mut self, index: u32, one: T) {
        self.all.insert(index, (0, one));
    }

    fn has_room(&self) -> bool {
        self.all.len() < MAX_THINGS
    }

    fn remove(&mut self, id: i32) -> Option<T> {
        self.get(id).ok()?;
        self.all.remove(&(id as u32 % INDEXES)).map(|(_, one)| one)
    }

    fn is_sound(&self, each: impl Fn(&T) -> bool) -> bool {
        let mut keys = Vec::new();
        self.all.len() <= MAX_THINGS
            && self.turn < TURNS
            && self.last.is_none_or(|last| last < INDEXES)
            && self.all.iter().all(|(index, (turn, one))| {
                let key = one.owner().key;
                keys.push(key);
                *index < MAX_THINGS as u32 && *turn < TURNS && one.owner().is_sound() && each(one)
            })
            && {
                keys.retain(|key| *key != 0);
                keys.sort_unstable();
                keys.windows(2).all(|w| w[0] != w[1])
            }
    }
}

/// Times in seconds, and process numbers as programs see them, of the last uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Time of the last attach, operation or send.
    pub first: u64,
    /// Time of the last detach or receive.
    pub second: u64,
    /// Time of the creation or the last change.
    pub changed: u64,
    /// Process that created the memory, or that sent last.
    pub first_by: u32,
    /// Process that attached or detached last, or that received last.
    pub second_by: u32,
}

/// Shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Owner and permissions.
    pub owner: Owner,
    /// Its size in bytes.
    pub size: u64,
    /// The identity of its memory object.
    pub object: u64,
    /// The table's use of the memory object, until the shared memory is removed.
    #[serde(skip)]
    pub used: Option<Rc<Use>>,
    /// Times and processes of the last uses.
    pub marks: Marks,
}

impl Memory {
    /// Whether it ends with its last use.
    #[must_use]
    pub const fn goes(&self) -> bool {
        self.owner.mode & flag::GOES != 0
    }
}

/// A semaphore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphore {
    /// Its value.
    pub value: u16,
    /// Number of the process that changed it last.
    pub by: u32,
}

/// A semaphore set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// Owner and permissions.
    pub owner: Owner,
    /// Its semaphores.
    pub semaphores: Vec<Semaphore>,
    /// Times of the last uses.
    pub marks: Marks,
    /// The waiting tasks by ticket.
    #[serde(skip)]
    queue: BTreeMap<u64, Tid>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its type, above 0.
    pub kind: i64,
    /// Its text.
    pub text: Vec<u8>,
}

/// A message queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Owner and permissions.
    pub owner: Owner,
    /// The messages, oldest first.
    pub messages: VecDeque<Message>,
    /// Bytes of the messages.
    pub bytes: u64,
    /// Most bytes of messages.
    pub most: u64,
    /// Times and processes of the last uses.
    pub marks: Marks,
    /// The tasks that wait for a message, by ticket.
    #[serde(skip)]
    queue: BTreeMap<u64, Tid>,
    /// The tasks that wait for room.
    #[serde(skip)]
    senders: BTreeSet<Tid>,
}

impl Queue {
    /// Whether there is room for a message of this many bytes.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        let count = self.messages.len() as u64 + 1;
        self.bytes + length as u64 <= self.most
            && count <= self.most
            && self.messages.len() < MAX_MESSAGES
    }

    /// The place of the first message that a receiver wants.
    fn find(&self, wanted: &Wanted) -> Option<usize> {
        let mut kinds = self.messages.iter().map(|message| message.kind);
        if !wanted.except && wanted.kind < 0 {
            // A negative type asks for the oldest message of the lowest type.
            let kinds = self.messages.iter().map(|message| message.kind).enumerate();
            let lowest = kinds.filter(|(_, kind)| wanted.is(*kind));
            return lowest.min_by_key(|(_, kind)| *kind).map(|(at, _)| at);
        }
        kinds.position(|kind| wanted.is(kind))
    }

    fn take(&mut self, at: usize) -> Option<Message> {
        let message = self.messages.remove(at)?;
        self.bytes -= message.text.len() as u64;
        Some(message)
    }
}

macro_rules! things {
    ($($name:ident)*) => {$(
        impl Owned for $name {
            fn owner(&self) -> &Owner {
                &self.owner
            }
        }
    )*};
}
things!(Memory Set Queue);

/// One operation of a call of `semop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Number of the semaphore in the set.
    pub number: u16,
    /// The number to add; 0 waits until the semaphore is 0.
    pub add: i16,
    /// `IPC_NOWAIT` and `SEM_UNDO`.
    pub flags: u16,
}

/// The messages that a receiver wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// 0 for any type, above 0 for this type, below 0 for the lowest type that is at most its absolute value.
    pub kind: i64,
    /// Any type but `kind`.
    pub except: bool,
    /// Most bytes of text.
    pub most: u64,
    /// Whether a longer text is cut; otherwise the call fails with `E2BIG`.
    pub cuts: bool,
}

impl Wanted {
    fn is(&self, kind: i64) -> bool {
        match self.kind {
            0 => true,
            wanted if self.except => kind != wanted,
            wanted if wanted < 0 => kind <= wanted.saturating_neg(),
            wanted => kind == wanted,
        }
    }

    fn fits(&self, message: &Message) -> bool {
        self.cuts || message.text.len() as u64 <= self.most
    }
}

/// What a task waits for, and the outcome once there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// For its operations on semaphores to be possible.
    Operations {
        /// The set.
        id: i32,
        /// Its place in the queue.
        ticket: u64,
        /// The operations.
        operations: Vec<Operation>,
        /// The index of the operation that could not be done in the last attempt.
        blocking: u32,
        /// The outcome: 0 or the error.
        done: Option<i32>,
    },
    /// For a message.
    Receive {
        /// The queue.
        id: i32,
        /// Its place in the queue.
        ticket: u64,
        /// The messages that it wants.
        wanted: Wanted,
        /// The outcome: the message or the error.
        done: Option<Result<Message, i32>>,
    },
    /// For room for a message.
    Send {
        /// The queue.
        id: i32,
        /// Whether the queue has been removed.
        is_gone: bool,
    },
}

impl Wait {
    /// Its place in the queue, unique in the tree.
    #[must_use]
    pub const fn ticket(&self) -> Option<u64> {
        match self {
            Wait::Operations { ticket, .. } | Wait::Receive { ticket, .. } => Some(*ticket),
            Wait::Send { .. } => None,
        }
    }

    /// Whether there is an outcome, which the call returns when it is made again.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match self {
            Wait::Operations { done, .. } => done.is_some(),
            Wait::Receive { done, .. } => done.is_some(),
            Wait::Send { .. } => false,
        }
    }

    /// Its approximate size in bytes when encoded.
    #[must_use]
    pub fn size(&self) -> u64 {
        let rest = match self {
            Wait::Operations { operations, .. } => 8 * operations.len(),
            Wait::Receive {
                done: Some(Ok(message)),
                ..
            } => message.text.len(),
            Wait::Receive { .. } | Wait::Send { .. } => 0,
        };
        64 + rest as u64
    }

    fn is_sound(&self, ipc: &Ipc) -> bool {
        if self.ticket().is_some_and(|ticket| ticket > ipc.ticket) {
            // A later waiter would get the same ticket.
            return false;
        }
        let is_error = |error: i32| (1..4096).contains(&error);
        match self {
            Wait::Operations {
                id,
                operations,
                blocking,
                done,
                ..
            } => {
                let set = ipc.sets.get(*id);
                let fit = |set: &Set| {
                    let mut numbers = operations.iter().map(|o| usize::from(o.number));
                    numbers.all(|number| number < set.semaphores.len())
                };
                operations.len() <= MAX_OPERATIONS
                    && (*blocking as usize) < operations.len()
                    && match done {
                        Some(done) => *done == 0 || is_error(*done),
                        None => set.is_ok_and(fit),
                    }
            }
            Wait::Receive { id, done, .. } => match done {
                None => ipc.queues.get(*id).is_ok(),
                Some(Ok(message)) => message.kind > 0 && message.text.len() <= MAX_MESSAGE,
                Some(Err(error)) => is_error(*error),
            },
            Wait::Send { id, is_gone } => *is_gone || ipc.queues.get(*id).is_ok(),
        }
    }
}

/// The System V IPC of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipc {
    /// Shared memory.
    pub memories: Things<Memory>,
    /// Semaphore sets.
    pub sets: Things<Set>,
    /// Message queues.
    pub queues: Things<Queue>,
    /// What is added to semaphores when a process ends (`SEM_UNDO`), by process, set and number.
    #[serde(skip)]
    undo: BTreeMap<(Pid, i32, u16), i16>,
    /// The last ticket given to a waiter.
    ticket: u64,
    #[serde(skip)]
    payer: Payer,
}

impl Ipc {
    /// Whether the tree has no IPC and never had any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self
            == Ipc {
                payer: self.payer,
                ..Ipc::default()
            }
    }

    /// A copy without shared memory that was removed and has no use left.
    pub(crate) fn kept(&self, objects: &Objects) -> Self {
        let mut kept = self.clone();
        let is_used = |memory: &Memory| memory.used.is_some() || objects.uses(memory.object) > 0;
        kept.memories.all.retain(|_, (_, memory)| is_used(memory));
        kept
    }

    /// Its approximate size in bytes when encoded.
    #[must_use]
    pub fn size(&self) -> u64 {
        let queues = self.queues.values();
        let messages = queues.map(|queue| 20 * queue.messages.len() as u64 + queue.bytes + 200);
        let sets = self
            .sets
            .values()
            .map(|set| 8 * set.semaphores.len() as u64 + 200);
        let memories = 200 * self.memories.count() as u64;
        let undo = 20 * self.undo.len() as u64;
        messages.sum::<u64>() + sets.sum::<u64>() + memories + undo
    }

    /// Whether the IPC of an image is consistent; `object` tells whether a memory object exists.
    #[must_use]
    pub fn is_sound(&self, object: impl Fn(u64) -> bool) -> bool {
        let size = |size: u64| size > 0 && crate::memory::page_up(size).is_some();
        let messages = |queue: &Queue| {
            let lengths = queue.messages.iter().map(|message| message.text.len());
            let sound = queue
                .messages
                .iter()
                .all(|m| m.kind > 0 && m.text.len() <= MAX_MESSAGE);
            sound
                && queue.messages.len() <= MAX_MESSAGES
                && lengths.sum::<usize>() as u64 == queue.bytes
        };
        let mut objects: Vec<u64> = self.memories.values().map(|m| m.object).collect();
        objects.sort_unstable();
        self.ticket < MAX_TICKET
            && self
                .memories
                .is_sound(|memory| size(memory.size) && object(memory.object))
            && objects.windows(2).all(|w| w[0] != w[1])
            && self.sets.is_sound(|set| {
                (1..=MAX_SEMAPHORES).contains(&set.semaphores.len())
                    && set.semaphores.iter().all(|s| s.value <= MAX_VALUE)
            })
            && self.queues.is_sound(|queue| {
                queue.most <= MOST_QUEUE_BYTES && queue.bytes <= MOST_QUEUE_BYTES && messages(queue)
            })
    }

    /// Puts a waiting task into its queue (`stands`) or takes it out. `None`: the set or queue has been removed.
    fn line_up(&mut self, tid: Tid, wait: &Wait, stands: bool) -> Option<()> {
        let (queue, ticket) = match wait {
            Wait::Operations { id, ticket, .. } => {
                (&mut self.sets.get_mut(*id).ok()?.queue, *ticket)
            }
            Wait::Receive { id, ticket, .. } => {
                (&mut self.queues.get_mut(*id).ok()?.queue, *ticket)
            }
            Wait::Send { id, .. } => {
                let senders = &mut self.queues.get_mut(*id).ok()?.senders;
                match stands {
                    true => senders.insert(tid),
                    false => senders.remove(&tid),
                };
                return Some(());
            }
        };
        match stands {
            true => queue.insert(ticket, tid),
            false => queue.remove(&ticket),
        };
        Some(())
    }

    /// Drops the adjustments of these semaphores of a set for all processes; returns how many there were.
    fn forget_undo(&mut self, id: i32, numbers: impl RangeBounds<usize>) -> usize {
        let before = self.undo.len();
        self.undo
            .retain(|(_, of, number), _| *of != id || !numbers.contains(&usize::from(*number)));
        before - self.undo.len()
    }

    /// The things that are counted for the payer, with this many adjustments.
    fn counted(&self, undo: usize) -> [(Thing, usize); 3] {
        [
            (Thing::Set, self.sets.count()),
            (Thing::Queue, self.queues.count()),
            (Thing::Undo, undo),
        ]
    }

    /// Whether the wait of a task of an image is consistent.
    #[must_use]
    pub fn wait_is_sound(&self, wait: &Wait) -> bool {
        wait.is_sound(self)
    }

    /// The adjustments that the end of a process makes, as an image has them: set, number of the semaphore, addend.
    pub fn undo_of(&self, pid: Pid) -> impl Iterator<Item = (i32, u16, i16)> + '_ {
        let all = self
            .undo
            .range((pid, i32::MIN, 0)..=(pid, i32::MAX, u16::MAX));
        all.map(|((_, id, number), add)| (*id, *number, *add))
    }

    /// Uses up all tickets.
    #[cfg(test)]
    pub(crate) fn end_tickets(&mut self) {
        self.ticket = u64::MAX;
    }

    /// Whether an adjustment of an image names a semaphore.
    #[must_use]
    pub fn undo_is_sound(&self, (id, number, _): &(i32, u16, i16)) -> bool {
        let set = self.sets.get(*id);
        set.is_ok_and(|set| usize::from(*number) < set.semaphores.len())
    }
}

/// The System V IPC of all trees, and the waiting tasks.
#[derive(Debug, Default)]
pub struct Ipcs {
    trees: BTreeMap<Pid, Ipc>,
    waits: BTreeMap<Tid, (Pid, Wait)>,
}

impl Ipcs {
    /// The IPC of a tree, if it has ever had some.
    #[must_use]
    pub fn of(&self, root: Pid) -> Option<&Ipc> {
        self.trees.get(&root)
    }

    /// What a task waits for.
    #[must_use]
    pub fn wait(&self, tid: Tid) -> Option<&Wait> {
        self.waits.get(&tid).map(|(_, wait)| wait)
    }
}

/// The result of trying the operations of a call.
enum Tried {
    /// All were done.
    Done,
    /// The operation with this index cannot be done yet; none was done.
    Blocks(usize),
    Failed(Errno),
}

/// Does the operations of a process, all or none. `undo` gives the present adjustment of a semaphore.
fn try_operations(
    set: &mut Set,
    operations: &[Operation],
    by: u32,
    undo: impl Fn(u16) -> i16,
) -> Tried {
    let mut done = 0;
    let mut result = Tried::Done;
    let mut undone: BTreeMap<u16, i32> = BTreeMap::new();
    for (at, operation) in operations.iter().enumerate() {
        let Some(semaphore) = set.semaphores.get_mut(usize::from(operation.number)) else {
            result = Tried::Failed(EINVAL);
            break;
        };
        let new = i32::from(semaphore.value) + i32::from(operation.add);
        if operation.add == 0 && semaphore.value != 0 || new < 0 {
            result = match u32::from(operation.flags) & flag::NOWAIT {
                0 => Tried::Blocks(at),
                _ => Tried::Failed(EAGAIN),
            };
            break;
        }
        if new > i32::from(MAX_VALUE) {
            result = Tried::Failed(ERANGE);
            break;
        }
        if u32::from(operation.flags) & flag::UNDO != 0 {
            let before = undone
                .entry(operation.number)
                .or_insert_with(|| i32::from(undo(operation.number)));
            *before -= i32::from(operation.add);
            if !(-32_768..=32_767).contains(before) {
                result = Tried::Failed(ERANGE);
                break;
            }
        }
        semaphore.value = new as u16;
        done = at + 1;
    }
    if let Tried::Done = result {
        for operation in operations {
            if let Some(semaphore) = set.semaphores.get_mut(usize::from(operation.number)) {
                semaphore.by = by;
            }
        }
        return result;
    }
    // Restores the values from before the call.
    for operation in &operations[..done] {
        if let Some(semaphore) = set.semaphores.get_mut(usize::from(operation.number)) {
            semaphore.value = (i32::from(semaphore.value) - i32::from(operation.add)) as u16;
        }
    }
    result
}

impl System {
    /// The root of the tree of a process.
    pub(crate) fn root_of(&self, pid: Pid) -> Pid {
        self.find(pid).map_or(pid, |process| process.root)
    }

    /// The IPC of the tree of a process, to be changed. Makes an empty one if there is none.
    pub fn ipc(&mut self, pid: Pid) -> &mut Ipc {
        let (root, payer) = self
            .find(pid)
            .map_or((pid, Payer::Nobody), |p| (p.root, p.payer));
        let ipc = self.ipcs.trees.entry(root).or_default();
        ipc.payer = payer;
        ipc
    }

    /// Ends the IPC of a tree.
    pub(crate) fn end_ipc(&mut self, root: Pid) {
        if let Some(ipc) = self.ipcs.trees.remove(&root) {
            self.uncount_ipc(&ipc, ipc.undo.len());
        }
    }

    /// Drops shared memory that was removed and has no use left.
    pub(crate) fn tidy_shared(&mut self, pid: Pid) {
        let root = self.root_of(pid);
        let Some(ipc) = self.ipcs.trees.get_mut(&root) else {
            return;
        };
        let objects = &self.objects;
        ipc.memories
            .all
            .retain(|_, (_, memory)| memory.used.is_some() || objects.uses(memory.object) > 0);
    }

    /// Makes shared memory of a memory object that the caller has made; returns its identifier. Errors: `ENOSPC`.
    pub fn new_shared(
        &mut self,
        pid: Pid,
        (key, flags, ids): (i32, u32, &Ids),
        size: u64,
        used: Rc<Use>,
        (now, by): (u64, u32),
    ) -> Result<i32, Errno> {
        let ipc = self.ipc(pid);
        if !ipc.memories.has_room() {
            return Err(ENOSPC);
        }
        Ok(ipc.memories.add(Memory {
            owner: Owner::new(key, ids, flags),
            size,
            object: used.id(),
            used: Some(used),
            marks: Marks {
                changed: now,
                first_by: by,
                ..Marks::default()
            },
        }))
    }

    /// Makes a semaphore set; returns its identifier. Errors: `ENOSPC`.
    pub fn new_set(
        &mut self,
        pid: Pid,
        (key, flags, ids): (i32, u32, &Ids),
        count: usize,
        now: u64,
    ) -> Result<i32, Errno> {
        let payer = self.ipc(pid).payer;
        if !self.ipc(pid).sets.has_room() || self.count_thing(Thing::Set, payer).is_err() {
            return Err(ENOSPC);
        }
        Ok(self.ipc(pid).sets.add(Set {
            owner: Owner::new(key, ids, flags),
            semaphores: alloc::vec![Semaphore::default(); count],
            marks: Marks {
                changed: now,
                ..Marks::default()
            },
            queue: BTreeMap::new(),
        }))
    }

    /// Makes a message queue; returns its identifier. Errors: `ENOSPC`.
    pub fn new_queue(
        &mut self,
        pid: Pid,
        (key, flags, ids): (i32, u32, &Ids),
        now: u64,
    ) -> Result<i32, Errno> {
        let payer = self.ipc(pid).payer;
        if !self.ipc(pid).queues.has_room() || self.count_thing(Thing::Queue, payer).is_err() {
            return Err(ENOSPC);
        }
        Ok(self.ipc(pid).queues.add(Queue {
            owner: Owner::new(key, ids, flags),
            messages: VecDeque::new(),
            bytes: 0,
            most: QUEUE_BYTES,
            marks: Marks {
                changed: now,
                ..Marks::default()
            },
            queue: BTreeMap::new(),
            senders: BTreeSet::new(),
        }))
    }

    // --- Waiting ---

    /// A new ticket of the tree.
    fn next_ticket(&mut self, pid: Pid) -> u64 {
        let ipc = self.ipc(pid);
        ipc.ticket += 1;
        ipc.ticket
    }

    /// Whether the wait of a task has an outcome.
    pub(crate) fn has_outcome(&self, tid: Tid) -> bool {
        self.ipcs.wait(tid).is_some_and(Wait::is_done)
    }

    /// Has a task wait.
    fn wait_for(&mut self, tid: Tid, root: Pid, wait: Wait) {
        let Some(ipc) = self.ipcs.trees.get_mut(&root) else {
            return;
        };
        if !wait.is_done() {
            ipc.line_up(tid, &wait, true);
        }
        self.ipcs.waits.insert(tid, (root, wait));
    }

    /// Ends the wait of a task and returns it.
    pub(crate) fn leave_ipc(&mut self, tid: Tid) -> Option<Wait> {
        let (root, wait) = self.ipcs.waits.remove(&tid)?;
        if let Some(ipc) = self.ipcs.trees.get_mut(&root) {
            ipc.line_up(tid, &wait, false);
        }
        Some(wait)
    }

    /// Wakes a task whose wait may have an outcome: its call is made again.
    fn told(&mut self, tid: Tid) {
        self.wake(Key::Ipc(tid));
    }

    // --- Semaphores ---

    /// Does operations on a set for a task; `None` if the task has to wait, which is noted. Errors: `EAGAIN`, `ERANGE`,
    /// `ENOSPC`; `EINVAL` if there is no such set or semaphore.
    pub fn operate(
        &mut self,
        (tid, pid): (Tid, Pid),
        id: i32,
        operations: Vec<Operation>,
        (now, by): (u64, u32),
    ) -> Result<Option<()>, Errno> {
        match self.try_for(pid, id, &operations, by)? {
            Tried::Done => {
                self.ipc(pid).sets.get_mut(id)?.marks.first = now;
                self.grant_operations(pid, id, now);
                Ok(Some(()))
            }
            Tried::Failed(error) => Err(error),
            Tried::Blocks(blocking) => {
                let wait = Wait::Operations {
                    id,
                    ticket: self.next_ticket(pid),
                    operations,
                    blocking: blocking as u32,
                    done: None,
                };
                self.wait_for(tid, self.root_of(pid), wait);
                Ok(None)
            }
        }
    }

    /// Tries the operations of a process, and notes the adjustments of those with `SEM_UNDO`.
    fn try_for(
        &mut self,
        pid: Pid,
        id: i32,
        operations: &[Operation],
        by: u32,
    ) -> Result<Tried, Errno> {
        let undoes = |o: &&Operation| u32::from(o.flags) & flag::UNDO != 0 && o.add != 0;
        let ipc = self.ipc(pid);
        let payer = ipc.payer;
        let undone = operations.iter().filter(undoes).map(|o| o.number);
        let undone: BTreeSet<u16> = undone.collect();
        let is_new = |number: &u16| !ipc.undo.contains_key(&(pid, id, *number));
        let new = undone.into_iter().filter(is_new).count();
        if new > 0 && self.left_things(Thing::Undo, payer) < new {
            return Err(ENOSPC);
        }
        let Ipc { sets, undo, .. } = self.ipc(pid);
        let set = sets.get_mut(id)?;
        let before = |number| undo.get(&(pid, id, number)).copied().unwrap_or(0);
        let tried = try_operations(set, operations, by, before);
        if let Tried::Done = tried {
            for operation in operations.iter().filter(undoes) {
                let add = undo.entry((pid, id, operation.number)).or_default();
                *add = add.wrapping_sub(operation.add);
            }
            for _ in 0..new {
                // The free places were counted above, so this cannot fail.
                let _ = self.count_thing(Thing::Undo, payer);
            }
        }
        Ok(tried)
    }

    /// Serves the waiters of a set whose values have changed, in their order, as far as possible.
    pub fn grant_operations(&mut self, pid: Pid, id: i32, now: u64) {
        self.grant_some(pid, id, now, &mut MAX_TRIES.clone());
    }

    /// The same with at most `left` tries. When these are used up all waiters are woken, and each tries its operations
    /// when its call is made again, one server turn after the other (`outcome`).
    fn grant_some(&mut self, pid: Pid, id: i32, now: u64, left: &mut usize) {
        let root = self.root_of(pid);
        let mut after = 0;
        loop {
            let set = self.ipcs.of(root).and_then(|ipc| ipc.sets.get(id).ok());
            let Some(set) = set else { return };
            let Some((ticket, tid)) = set.queue.range(after..).next() else {
                return;
            };
            let (ticket, tid) = (*ticket, *tid);
            if *left == 0 {
                let told: Vec<Tid> = set.queue.values().copied().collect();
                told.into_iter().for_each(|tid| self.told(tid));
                return;
            }
            *left -= 1;
            after = ticket + 1;
            if self.try_waiter(tid, now) {
                // The change may let earlier waiters go on.
                after = 0;
            }
        }
    }

    /// Tries the operations of a waiting task; returns whether semaphores have changed.
    fn try_waiter(&mut self, tid: Tid, now: u64) -> bool {
        let Some((
            _,
            Wait::Operations {
                id,
                operations,
                ticket,
                done: None,
                ..
            },
        )) = self.ipcs.waits.get(&tid)
        else {
            return false;
        };
        let (id, operations, ticket) = (*id, operations.clone(), *ticket);
        let of = self.task_process(tid);
        let by = self.find(of).map_or(0, |process| process.number);
        let outcome = match self.try_for(of, id, &operations, by) {
            Ok(Tried::Done) => 0,
            Ok(Tried::Failed(error)) | Err(error) => error.0,
            Ok(Tried::Blocks(at)) => {
                if let Some((_, Wait::Operations { blocking, .. })) = self.ipcs.waits.get_mut(&tid)
                {
                    *blocking = at as u32;
                }
                return false;
            }
        };
        if let Some((_, Wait::Operations { done, .. })) = self.ipcs.waits.get_mut(&tid) {
            *done = Some(outcome);
        }
        if let Ok(set) = self.ipc(of).sets.get_mut(id) {
            set.queue.remove(&ticket);
            if outcome == 0 {
                set.marks.first = now;
            }
        }
        self.told(tid);
        outcome == 0 && operations.iter().any(|operation| operation.add != 0)
    }

    /// The outcome of a task's operations, for its call that is made again: 0 or the error; `None` if it has to wait
    /// on.
    pub fn outcome(&mut self, (tid, pid): (Tid, Pid), now: u64) -> Option<i32> {
        if self.try_waiter(tid, now) {
            if let Some(Wait::Operations { id, .. }) = self.ipcs.wait(tid) {
                self.grant_operations(pid, *id, now);
            }
        }
        match self.ipcs.wait(tid) {
            Some(Wait::Operations { done, .. }) => *done,
            _ => None,
        }
    }

    /// How many tasks wait for a semaphore to become 0 (`zero`), or to grow.
    #[must_use]
    pub fn waiters(&self, pid: Pid, id: i32, number: u16, zero: bool) -> usize {
        let set = self
            .ipcs
            .of(self.root_of(pid))
            .and_then(|ipc| ipc.sets.get(id).ok());
        let waits = set.into_iter().flat_map(|set| set.queue.values());
        let counts = |tid: &&Tid| match self.ipcs.wait(**tid) {
            Some(Wait::Operations {
                operations,
                blocking,
                ..
            }) => {
                let operation = operations.get(*blocking as usize);
                operation.is_some_and(|o| o.number == number && (o.add == 0) == zero)
            }
            _ => false,
        };
        waits.filter(counts).count()
    }

    /// Sets the values of semaphores and drops all adjustments of them.
    pub fn set_values(
        &mut self,
        pid: Pid,
        id: i32,
        (first, values): (u16, &[u16]),
        (now, by): (u64, u32),
    ) -> Result<(), Errno> {
        let ipc = self.ipc(pid);
        let payer = ipc.payer;
        let set = ipc.sets.get_mut(id)?;
        let first = usize::from(first);
        let places = set.semaphores.iter_mut().skip(first);
        for (semaphore, value) in places.zip(values) {
            *semaphore = Semaphore { value: *value, by };
        }
        set.marks.changed = now;
        let forgotten = ipc.forget_undo(id, first..first + values.len());
        self.uncount_things(Thing::Undo, forgotten, payer);
        self.grant_operations(pid, id, now);
        Ok(())
    }

    /// Removes a set; its waiters get `EIDRM`.
    pub fn remove_set(&mut self, pid: Pid, id: i32) -> Result<(), Errno> {
        let ipc = self.ipc(pid);
        let payer = ipc.payer;
        let set = ipc.sets.remove(id).ok_or(EINVAL)?;
        let forgotten = ipc.forget_undo(id, ..);
        self.uncount_things(Thing::Undo, forgotten, payer);
        self.uncount_thing(Thing::Set, payer);
        for tid in set.queue.into_values() {
            if let Some((_, Wait::Operations { done, .. })) = self.ipcs.waits.get_mut(&tid) {
                *done = Some(EIDRM.0);
            }
            self.told(tid);
        }
        Ok(())
    }

    /// A process has ended: ends the waits of its tasks and applies its adjustments. If it was the last living process
    /// of its tree, ends the tree's IPC.
    pub(crate) fn leave_tree(&mut self, pid: Pid) {
        let Some(process) = self.find(pid) else {
            return;
        };
        let (root, by) = (process.root, process.number);
        if !self.ipcs.trees.contains_key(&root) {
            return;
        }
        let tasks: Vec<Tid> = process.tasks.iter().copied().collect();
        for tid in tasks {
            self.leave_ipc(tid);
        }
        self.undo_operations(pid, root, by);
        let lives = |pid: &Pid| {
            self.find(*pid)
                .is_some_and(|process| process.status.is_none())
        };
        if !self.tree(root).iter().any(lives) {
            self.end_ipc(root);
        }
    }

    fn undo_operations(&mut self, pid: Pid, root: Pid, by: u32) {
        let Some(ipc) = self.ipcs.trees.get_mut(&root) else {
            return;
        };
        let all: Vec<_> = ipc.undo_of(pid).collect();
        let payer = ipc.payer;
        let mut changed: Vec<(i32, u64)> = Vec::new();
        for (id, number, add) in &all {
            ipc.undo.remove(&(pid, *id, *number));
            let Ok(set) = ipc.sets.get_mut(*id) else {
                continue;
            };
            let then = set.marks.first;
            if let Some(semaphore) = set.semaphores.get_mut(usize::from(*number)) {
                let new = i32::from(semaphore.value) + i32::from(*add);
                let value = new.clamp(0, i32::from(MAX_VALUE)) as u16;
                *semaphore = Semaphore { value, by };
            }
            if changed.last().is_none_or(|(last, _)| last != id) {
                changed.push((*id, then));
            }
        }
        self.uncount_things(Thing::Undo, all.len(), payer);
        let mut left = MAX_TRIES;
        for (id, then) in changed {
            self.grant_some(pid, id, then, &mut left);
        }
    }

    // --- Messages ---

    /// Sends a message; `None` if there is no room and the task has to wait, which is noted. Errors: `EINVAL` if there
    /// is no such queue.
    pub fn send_message(
        &mut self,
        (tid, pid): (Tid, Pid),
        id: i32,
        message: Message,
        (now, by): (u64, u32),
    ) -> Result<Option<()>, Errno> {
        let root = self.root_of(pid);
        let queue = self.ipc(pid).queues.get_mut(id)?;
        if !queue.has_room(message.text.len()) {
            self.wait_for(tid, root, Wait::Send { id, is_gone: false });
            return Ok(None);
        }
        queue.marks.first = now;
        queue.marks.first_by = by;
        // Hands the message to the first waiting task that wants it, and removes waiters for which it is too long
        // (`E2BIG`).
        let waiting: Vec<Tid> = queue.queue.values().copied().collect();
        for receiver in waiting {
            let Some((_, Wait::Receive { wanted, ticket, .. })) = self.ipcs.waits.get(&receiver)
            else {
                continue;
            };
            if !wanted.is(message.kind) {
                continue;
            }
            let (fits, ticket) = (wanted.fits(&message), *ticket);
            let number = self
                .find(self.task_process(receiver))
                .map_or(0, |p| p.number);
            let queue = self.ipc(pid).queues.get_mut(id)?;
            queue.queue.remove(&ticket);
            if fits {
                queue.marks.second = now;
                queue.marks.second_by = number;
            }
            let outcome = if fits {
                Ok(message.clone())
            } else {
                Err(E2BIG.0)
            };
            if let Some((_, Wait::Receive { done, .. })) = self.ipcs.waits.get_mut(&receiver) {
                *done = Some(outcome);
            }
            self.told(receiver);
            if fits {
                return Ok(Some(()));
            }
        }
        let queue = self.ipc(pid).queues.get_mut(id)?;
        queue.bytes += message.text.len() as u64;
        queue.messages.push_back(message);
        Ok(Some(()))
    }

    /// Takes a message; `None` if there is none and the task has to wait, which is noted if it `waits`. Errors:
    /// `E2BIG`, `ENOMSG`; `EINVAL` if there is no such queue.
    pub fn receive_message(
        &mut self,
        (tid, pid): (Tid, Pid),
        id: i32,
        (wanted, waits): (Wanted, bool),
        (now, by): (u64, u32),
    ) -> Result<Option<Message>, Errno> {
        let queue = self.ipc(pid).queues.get_mut(id)?;
        let Some(at) = queue.find(&wanted) else {
            if !waits {
                return Err(ENOMSG);
            }
            let wait = Wait::Receive {
                id,
                ticket: self.next_ticket(pid),
                wanted,
                done: None,
            };
            self.wait_for(tid, self.root_of(pid), wait);
            return Ok(None);
        };
        if queue.messages.get(at).is_some_and(|m| !wanted.fits(m)) {
            return Err(E2BIG);
        }
        let message = queue.take(at);
        queue.marks.second = now;
        queue.marks.second_by = by;
        self.tell_senders(pid, id);
        Ok(message)
    }

    /// Wakes the tasks that wait for room in a queue.
    pub(crate) fn tell_senders(&mut self, pid: Pid, id: i32) {
        let senders = match self.ipc(pid).queues.get(id) {
            Ok(queue) => queue.senders.clone(),
            Err(_) => return,
        };
        senders.into_iter().for_each(|tid| self.told(tid));
    }

    /// Removes a queue; its waiters get `EIDRM`.
    pub fn remove_queue(&mut self, pid: Pid, id: i32) -> Result<(), Errno> {
        let ipc = self.ipc(pid);
        let payer = ipc.payer;
        let queue = ipc.queues.remove(id).ok_or(EINVAL)?;
        self.uncount_thing(Thing::Queue, payer);
        for tid in queue.queue.into_values() {
            if let Some((_, Wait::Receive { done, .. })) = self.ipcs.waits.get_mut(&tid) {
                *done = Some(Err(EIDRM.0));
            }
            self.told(tid);
        }
        for tid in queue.senders {
            if let Some((_, Wait::Send { is_gone, .. })) = self.ipcs.waits.get_mut(&tid) {
                *is_gone = true;
            }
            self.told(tid);
        }
        Ok(())
    }

    // --- Images ---

    /// Counts the IPC of an image, with this many adjustments, for a payer. `uses` has the uses of the memory objects
    /// by their identities in the image. Errors: `ENOSPC`; then nothing has changed.
    pub(crate) fn count_ipc(
        &mut self,
        payer: Payer,
        ipc: &mut Ipc,
        undo: usize,
        uses: &BTreeMap<u64, Rc<Use>>,
    ) -> Result<(), Errno> {
        let wanted = ipc.counted(undo);
        let has_room = |(thing, count)| count == 0 || self.left_things(thing, payer) >= count;
        if !wanted.into_iter().all(has_room) {
            return Err(ENOSPC);
        }
        for (thing, count) in wanted {
            for _ in 0..count {
                let _ = self.count_thing(thing, payer);
            }
        }
        for memory in ipc.memories.values_mut() {
            if let Some(used) = uses.get(&memory.object) {
                memory.object = used.id();
                memory.used = (!memory.goes()).then(|| Rc::clone(used));
            }
        }
        ipc.payer = payer;
        Ok(())
    }

    /// Uncounts what [`System::count_ipc`] has counted.
    pub(crate) fn uncount_ipc(&mut self, ipc: &Ipc, undo: usize) {
        for (thing, count) in ipc.counted(undo) {
            self.uncount_things(thing, count, ipc.payer);
        }
    }

    /// Gives a tree the IPC of an image, which has been counted.
    pub(crate) fn restore_ipc(&mut self, root: Pid, ipc: Ipc) {
        self.ipcs.trees.insert(root, ipc);
    }

    /// Gives a process the adjustments of an image, which have been counted.
    pub(crate) fn restore_undo(&mut self, pid: Pid, all: Vec<(i32, u16, i16)>) {
        for (id, number, add) in all {
            self.ipc(pid).undo.insert((pid, id, number), add);
        }
    }

    /// Has a task of an image wait.
    pub(crate) fn restore_wait(&mut self, pid: Pid, tid: Tid, wait: Wait) {
        let root = self.root_of(pid);
        self.wait_for(tid, root, wait);
    }
}
