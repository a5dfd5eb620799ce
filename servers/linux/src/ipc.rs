//! System V IPC: shared memory, sets of semaphores and queues of messages.
//!
//! What there is of it is of a *tree* ([`Ipc`]): its keys and identifiers mean nothing to others, and it goes when the
//! tree does. Each of the three kinds is a table of things by index ([`Things`]); an identifier is an index and how
//! often indexes have been used anew before.
//!
//! * Shared memory is a memory object ([`crate::object`]), which the table has a use of until it is removed. Then it
//!   lasts as long as some memory has it.
//! * Who waits stands in a queue, in the order in which it came, and what happens to it is decided there and then: an
//!   operation on semaphores that has become possible is done, a message is handed to the first one who wants it. The
//!   call finds that when it is made again, so it does not matter when that is, nor whether an image was made in
//!   between.
//!
//! Everything has a most. A call that changes semaphores tries [`MAX_TRIES`] times at the most what others wait for; if
//! that was not enough each of them tries by itself, when its call is made again.

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

/// Most things of a kind in a tree.
pub const MAX_THINGS: usize = 128;
/// Most semaphores of a set.
pub const MAX_SEMAPHORES: usize = 250;
/// Most operations on semaphores at once.
pub const MAX_OPERATIONS: usize = 64;
/// Highest value of a semaphore.
pub const MAX_VALUE: u16 = 32_767;
/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 8192;
/// Most bytes in a queue, unless it was said otherwise, and most of all that can be said.
pub const QUEUE_BYTES: u64 = 16_384;
/// The same, however it is said.
pub const MOST_QUEUE_BYTES: u64 = 65_536;
/// Most messages in a queue.
pub const MAX_MESSAGES: usize = 1024;
/// How often a call tries at once what others wait for: each try takes up to [`MAX_OPERATIONS`] steps.
pub const MAX_TRIES: usize = 300;
/// Places in queues are below this.
const MAX_TICKET: u64 = 1 << 62;
/// Most semaphores of processes of one tree that the end of the process changes.
pub const MAX_UNDO: usize = Thing::Undo.most_of_one();
/// An identifier is an index plus a multiple of this.
const INDEXES: u32 = 1 << 15;
/// Multiples go up to this.
const TURNS: u32 = u16::MAX as u32 >> 1;

/// Flags of calls and modes.
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
    /// `SHM_DEST`, of a mode: it goes with its last use.
    pub const GOES: u32 = 0o1000;
    /// `SHM_LOCKED`, of a mode.
    pub const LOCKED: u32 = 0o2000;
    /// To read, of whoever asks.
    pub const READ: u32 = 0o444;
    /// To write.
    pub const WRITE: u32 = 0o222;
}

/// Whose something is, and who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The key by which it is found; 0 for none.
    pub key: i32,
    /// User and group who have it.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Those who made it.
    pub made_by: (u32, u32),
    /// Permissions, and flags of shared memory.
    pub mode: u32,
}

impl Owner {
    /// Of what is made by these.
    fn new(key: i32, ids: &Ids, flags: u32) -> Self {
        Owner {
            key,
            uid: ids.uid[1],
            gid: ids.gid[1],
            made_by: (ids.uid[1], ids.gid[1]),
            mode: flags & 0o777,
        }
    }

    /// Fails with `EACCES` unless these may do what the permission bits say.
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

    /// Fails with `EPERM` unless these may change or remove it.
    pub fn check_owner(&self, ids: &Ids) -> Result<(), Errno> {
        let uid = ids.uid[1];
        let allowed = uid == 0 || uid == self.uid || uid == self.made_by.0;
        allowed.then_some(()).ok_or(EPERM)
    }

    const fn is_sound(&self) -> bool {
        self.mode & !(0o777 | flag::GOES | flag::LOCKED) == 0
    }
}

/// What all three kinds have.
pub trait Owned {
    /// Whose it is.
    fn owner(&self) -> &Owner;
}

/// Things of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Things<T> {
    all: BTreeMap<u32, (u32, T)>,
    /// How often indexes were used anew.
    turn: u32,
    /// The index of the last new one.
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

/// The one whose state is asked for: by its identifier, by its index, or by its index whatever its permissions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// `IPC_STAT`.
    ById(i32),
    /// `SEM_STAT` and its like.
    ByIndex(i32),
    /// `SEM_STAT_ANY` and its like.
    ByIndexToAny(i32),
}

impl<T: Owned> Things<T> {
    /// The one whose state is asked for, with its identifier. Errors: `EINVAL`, `EACCES`.
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

    /// Identifiers, by rising index.
    pub fn ids(&self) -> impl Iterator<Item = i32> + '_ {
        let all = self.all.iter();
        all.map(|(index, (turn, _))| identifier(*turn, *index))
    }

    /// All of them.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.all.values().map(|(_, one)| one)
    }

    /// All of them, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.all.values_mut().map(|(_, one)| one)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The highest index, as Linux says it: 0 if there is none.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.all
            .last_key_value()
            .map_or(0, |(index, _)| u64::from(*index))
    }

    /// The one with this identifier. Errors: `EINVAL`.
    pub fn get(&self, id: i32) -> Result<&T, Errno> {
        let id = u32::try_from(id).map_err(|_| EINVAL)?;
        let found = self.all.get(&(id % INDEXES));
        let found = found.filter(|(turn, _)| *turn == id / INDEXES);
        found.map(|(_, one)| one).ok_or(EINVAL)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: i32) -> Result<&mut T, Errno> {
        let id = u32::try_from(id).map_err(|_| EINVAL)?;
        let found = self.all.get_mut(&(id % INDEXES));
        let found = found.filter(|(turn, _)| *turn == id / INDEXES);
        found.map(|(_, one)| one).ok_or(EINVAL)
    }

    /// The one with this key: there are at most [`MAX_THINGS`].
    fn by_key(&self, key: i32) -> Option<i32> {
        let of_key = |(_, (_, one)): &(&u32, &(u32, T))| one.owner().key == key;
        let (index, (turn, _)) = self.all.iter().find(of_key)?;
        Some(identifier(*turn, *index))
    }

    /// The one that a call with this key and these flags means; `None`: a new one is to be made. `fits` says what else an old one must be.
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

    /// Adds one: its identifier. There must be room ([`Things::has_room`]).
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

    /// Puts one where none was made.
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

/// Times and who did it last, in seconds and numbers as programs see them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Attached, operated on, or sent.
    pub first: u64,
    /// Detached, or received.
    pub second: u64,
    /// Made or changed.
    pub changed: u64,
    /// Who made it, or who sent.
    pub first_by: u32,
    /// Who attached or detached, or who received.
    pub second_by: u32,
}

/// Shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Whose it is.
    pub owner: Owner,
    /// Bytes.
    pub size: u64,
    /// The memory object.
    pub object: u64,
    /// The use that the table has of that, until it is removed.
    #[serde(skip)]
    pub used: Option<Rc<Use>>,
    /// Times.
    pub marks: Marks,
}

impl Memory {
    /// Whether it goes with its last use.
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
    /// Who changed it last.
    pub by: u32,
}

/// A set of semaphores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// Whose it is.
    pub owner: Owner,
    /// They.
    pub semaphores: Vec<Semaphore>,
    /// Times.
    pub marks: Marks,
    /// Who waits, in their order.
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

/// A queue of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Whose it is.
    pub owner: Owner,
    /// What is in it.
    pub messages: VecDeque<Message>,
    /// Bytes of that.
    pub bytes: u64,
    /// Most bytes.
    pub most: u64,
    /// Times.
    pub marks: Marks,
    /// Who waits for a message, in their order.
    #[serde(skip)]
    queue: BTreeMap<u64, Tid>,
    /// Who waits for room.
    #[serde(skip)]
    senders: BTreeSet<Tid>,
}

impl Queue {
    /// Whether a message of so many bytes has room.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        let count = self.messages.len() as u64 + 1;
        self.bytes + length as u64 <= self.most
            && count <= self.most
            && self.messages.len() < MAX_MESSAGES
    }

    /// The place of the message that this one is to have.
    fn find(&self, wanted: &Wanted) -> Option<usize> {
        let mut kinds = self.messages.iter().map(|message| message.kind);
        if !wanted.except && wanted.kind < 0 {
            // The first one of the lowest type.
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

/// One of several operations on semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Which one.
    pub number: u16,
    /// What is added to it; 0 waits until it is 0.
    pub add: i16,
    /// Flags.
    pub flags: u16,
}

/// Which messages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Any for 0, one of this type, or one of the lowest type up to its negative.
    pub kind: i64,
    /// Of any type but this one.
    pub except: bool,
    /// Most bytes.
    pub most: u64,
    /// A longer message is cut.
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

/// What a task waits for, and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// That operations on semaphores can be done.
    Operations {
        /// The set.
        id: i32,
        /// Its place in the queue.
        ticket: u64,
        /// They.
        operations: Vec<Operation>,
        /// The one that cannot be done.
        blocking: u32,
        /// What has become of them: 0, or the error.
        done: Option<i32>,
    },
    /// A message.
    Receive {
        /// The queue.
        id: i32,
        /// Its place among those who wait.
        ticket: u64,
        /// Which messages.
        wanted: Wanted,
        /// The message, or the error.
        done: Option<Result<Message, i32>>,
    },
    /// Room for a message.
    Send {
        /// The queue.
        id: i32,
        /// It has been removed.
        is_gone: bool,
    },
}

impl Wait {
    /// Its place in a queue, which no other one has.
    #[must_use]
    pub const fn ticket(&self) -> Option<u64> {
        match self {
            Wait::Operations { ticket, .. } | Wait::Receive { ticket, .. } => Some(*ticket),
            Wait::Send { .. } => None,
        }
    }

    /// Whether something has become of it that the call that is made again is told.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match self {
            Wait::Operations { done, .. } => done.is_some(),
            Wait::Receive { done, .. } => done.is_some(),
            Wait::Send { .. } => false,
        }
    }

    /// About how many bytes it is, encoded.
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
            // Somebody else would get that place.
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

/// What a tree has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipc {
    /// Shared memory.
    pub memories: Things<Memory>,
    /// Sets of semaphores.
    pub sets: Things<Set>,
    /// Queues of messages.
    pub queues: Things<Queue>,
    /// What is added to semaphores when a process ends: by process, set and number.
    #[serde(skip)]
    undo: BTreeMap<(Pid, i32, u16), i16>,
    /// The last place in a queue.
    ticket: u64,
    #[serde(skip)]
    payer: Payer,
}

impl Ipc {
    /// Whether there is nothing, and never was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self
            == Ipc {
                payer: self.payer,
                ..Ipc::default()
            }
    }

    /// A copy, without what was removed and is not used any more.
    pub(crate) fn kept(&self, objects: &Objects) -> Self {
        let mut kept = self.clone();
        let is_used = |memory: &Memory| memory.used.is_some() || objects.uses(memory.object) > 0;
        kept.memories.all.retain(|_, (_, memory)| is_used(memory));
        kept
    }

    /// About how many bytes it is, encoded.
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

    /// Whether one from an image makes sense; `object` says whether there is a memory object.
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

    /// A task that waits for this stands in its queue from now on, or does not any more. `None`: that is gone.
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

    /// Nothing is to be undone any more of these semaphores of a set: how much was.
    fn forget_undo(&mut self, id: i32, numbers: impl RangeBounds<usize>) -> usize {
        let before = self.undo.len();
        self.undo
            .retain(|(_, of, number), _| *of != id || !numbers.contains(&usize::from(*number)));
        before - self.undo.len()
    }

    /// What is counted for the payer, with so many things to be undone.
    fn counted(&self, undo: usize) -> [(Thing, usize); 3] {
        [
            (Thing::Set, self.sets.count()),
            (Thing::Queue, self.queues.count()),
            (Thing::Undo, undo),
        ]
    }

    /// Whether what a task waits for makes sense.
    #[must_use]
    pub fn wait_is_sound(&self, wait: &Wait) -> bool {
        wait.is_sound(self)
    }

    /// What is to be done at the end of a process, in the form of an image.
    pub fn undo_of(&self, pid: Pid) -> impl Iterator<Item = (i32, u16, i16)> + '_ {
        let all = self
            .undo
            .range((pid, i32::MIN, 0)..=(pid, i32::MAX, u16::MAX));
        all.map(|((_, id, number), add)| (*id, *number, *add))
    }

    /// As if so many had waited that there is no place for a further one.
    #[cfg(test)]
    pub(crate) fn end_tickets(&mut self) {
        self.ticket = u64::MAX;
    }

    /// Whether such a thing from an image makes sense.
    #[must_use]
    pub fn undo_is_sound(&self, (id, number, _): &(i32, u16, i16)) -> bool {
        let set = self.sets.get(*id);
        set.is_ok_and(|set| usize::from(*number) < set.semaphores.len())
    }
}

/// The IPC of all trees, and who waits.
#[derive(Debug, Default)]
pub struct Ipcs {
    trees: BTreeMap<Pid, Ipc>,
    waits: BTreeMap<Tid, (Pid, Wait)>,
}

impl Ipcs {
    /// That of a tree, if it has ever had some.
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

/// How several operations on semaphores go.
enum Tried {
    /// They are done.
    Done,
    /// This one cannot be.
    Blocks(usize),
    Failed(Errno),
}

/// Does operations for a process, all of them or none. `undo` is what its end will do.
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
    // Each has the value of before the call again.
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

    /// What the tree of a process has, to be changed.
    pub fn ipc(&mut self, pid: Pid) -> &mut Ipc {
        let (root, payer) = self
            .find(pid)
            .map_or((pid, Payer::Nobody), |p| (p.root, p.payer));
        let ipc = self.ipcs.trees.entry(root).or_default();
        ipc.payer = payer;
        ipc
    }

    /// What a tree has goes.
    pub(crate) fn end_ipc(&mut self, root: Pid) {
        if let Some(ipc) = self.ipcs.trees.remove(&root) {
            self.uncount_ipc(&ipc, ipc.undo.len());
        }
    }

    /// What was removed and is not used any more is forgotten.
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

    /// New shared memory, of which the caller has made the object: its identifier. Errors: `ENOSPC`.
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

    /// A new set of semaphores: its identifier. Errors: `ENOSPC`.
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

    /// A new queue of messages: its identifier. Errors: `ENOSPC`.
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

    /// The next place in a queue of the tree.
    fn next_ticket(&mut self, pid: Pid) -> u64 {
        let ipc = self.ipc(pid);
        ipc.ticket += 1;
        ipc.ticket
    }

    /// Whether something has become of what a task waits for.
    pub(crate) fn has_outcome(&self, tid: Tid) -> bool {
        self.ipcs.wait(tid).is_some_and(Wait::is_done)
    }

    /// A task waits from now on.
    fn wait_for(&mut self, tid: Tid, root: Pid, wait: Wait) {
        let Some(ipc) = self.ipcs.trees.get_mut(&root) else {
            return;
        };
        if !wait.is_done() {
            ipc.line_up(tid, &wait, true);
        }
        self.ipcs.waits.insert(tid, (root, wait));
    }

    /// A task waits no more.
    pub(crate) fn leave_ipc(&mut self, tid: Tid) -> Option<Wait> {
        let (root, wait) = self.ipcs.waits.remove(&tid)?;
        if let Some(ipc) = self.ipcs.trees.get_mut(&root) {
            ipc.line_up(tid, &wait, false);
        }
        Some(wait)
    }

    /// Something has become of what a task waits for: its call is to be made again.
    fn told(&mut self, tid: Tid) {
        self.wake(Key::Ipc(tid));
    }

    // --- Semaphores ---

    /// Operations on semaphores of a set, for a task: `None` if it waits from now on. Errors: `EAGAIN`, `ERANGE`,
    /// `ENOSPC`, and those of the set.
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

    /// Tries operations for a process, and notes what its end undoes of them.
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
                // There is room, as was seen before.
                let _ = self.count_thing(Thing::Undo, payer);
            }
        }
        Ok(tried)
    }

    /// Values of a set have changed: what its waiters wait for is done, as far as it can be, in their order.
    pub fn grant_operations(&mut self, pid: Pid, id: i32, now: u64) {
        self.grant_some(pid, id, now, &mut MAX_TRIES.clone());
    }

    /// The same, with so many tries left for it. When there are none any more, all who wait are told, and each of them
    /// tries when its call is made again, one in the turn of another: `outcome`.
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
                // Those before may be able to go on by it.
                after = 0;
            }
        }
    }

    /// Tries what a task waits for: whether semaphores have changed by it.
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

    /// What has become of the operations that a task waits for, whose call is made again: 0, or the error; `None` if it waits on.
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

    /// How many wait for a semaphore to grow, or to be 0.
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

    /// Values of semaphores are set: nothing is to be undone of these any more.
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

    /// Removes a set; who waits is told.
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

    /// A process has ended: its tasks wait no more, and what it had asked for is done to its semaphores. With the last
    /// one of its tree goes what that has.
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

    /// Sends a message: `None` if there is no room, and the task waits from now on. Errors: those of the queue.
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
        // The first one who wants it has it.
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

    /// Takes a message: `None` if there is none, and the task waits from now on, if it `waits`. Errors: `E2BIG`,
    /// `ENOMSG`, and those of the queue.
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

    /// Who waits for room in a queue looks again.
    pub(crate) fn tell_senders(&mut self, pid: Pid, id: i32) {
        let senders = match self.ipc(pid).queues.get(id) {
            Ok(queue) => queue.senders.clone(),
            Err(_) => return,
        };
        senders.into_iter().for_each(|tid| self.told(tid));
    }

    /// Removes a queue; who waits is told.
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

    /// Counts what an image has for a payer, with so many things to be undone. `uses` are those of the memory objects,
    /// by their identities in the image. Errors: `ENOSPC`; nothing has changed then.
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

    /// What was counted is not used after all.
    pub(crate) fn uncount_ipc(&mut self, ipc: &Ipc, undo: usize) {
        for (thing, count) in ipc.counted(undo) {
            self.uncount_things(thing, count, ipc.payer);
        }
    }

    /// What was counted is that of a tree.
    pub(crate) fn restore_ipc(&mut self, root: Pid, ipc: Ipc) {
        self.ipcs.trees.insert(root, ipc);
    }

    /// A process of an image has this to be undone, which was counted.
    pub(crate) fn restore_undo(&mut self, pid: Pid, all: Vec<(i32, u16, i16)>) {
        for (id, number, add) in all {
            self.ipc(pid).undo.insert((pid, id, number), add);
        }
    }

    /// A task of an image waits.
    pub(crate) fn restore_wait(&mut self, pid: Pid, tid: Tid, wait: Wait) {
        let root = self.root_of(pid);
        self.wait_for(tid, root, wait);
    }
}
