//! Instances of `inotify`: who watches which files and directories, and what has happened to these.
//!
//! * A [`Mark`] is a file that somebody watches, by inode. It keeps the file open as long as it has a name, so that its
//!   path can be asked for.
//! * An [`Instance`] has a [`Queue`] of records as programs read them, byte for byte.
//! * A [`Place`] is where an open file is found, its directory and its name there: who watches a directory is told of
//!   what happens to what is in it. It is looked for when a description is opened while anybody watches directories,
//!   or, of a file in memory, when something first happens to it, and then kept ([`crate::calls::inotify`]).
//!
//! While nobody watches anything all of it is one look at an empty table ([`Inotifies::is_unwatched`]). What happens is
//! told of where calls do it ([`crate::calls::inotify`]) and where descriptions end ([`System::closed_watched`]).
//!
//! A file ends for who watches it (`IN_DELETE_SELF`) when it has no name and nobody has it open ([`crate::busy`]).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use services::fs::ON_DISK;

use crate::errno::{Errno, EEXIST, EINVAL, EMFILE, ENOSPC};
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::process::{Description, Kind};
use crate::system::{Key, Payer, System, Thing};

/// Bytes of a record without a name.
pub const RECORD: usize = 16;
/// Names are filled up with zeros to a multiple of so many bytes.
const NAMES: usize = 16;
/// Most bytes that wait to be read, and that for instances of a payer beyond the first [`LARGE`].
pub const CAPACITY: usize = 64 << 10;
/// See [`CAPACITY`].
const SMALL_CAPACITY: usize = 8 << 10;
/// See [`CAPACITY`].
const LARGE: usize = 8;
/// What can be asked for.
pub const EVENTS: u32 = linux::IN_ALL_EVENTS;
/// What is kept of what is asked for beside events.
pub const HOW: u32 = linux::IN_EXCL_UNLINK | linux::IN_ONESHOT;
/// What is told of what is in a directory that is watched, by what is done with it.
pub const OF_CHILDREN: u32 = linux::IN_ACCESS
    | linux::IN_MODIFY
    | linux::IN_ATTRIB
    | linux::IN_CLOSE_WRITE
    | linux::IN_CLOSE_NOWRITE
    | linux::IN_OPEN;

/// How programs read what has happened: `struct inotify_event`.
fn record(wd: i32, mask: u32, cookie: u32, name: &str) -> Vec<u8> {
    let room = match name.len() {
        0 => 0,
        length => (length + 1).next_multiple_of(NAMES),
    };
    let mut bytes = Vec::with_capacity(RECORD + room);
    for word in [wd as u32, mask, cookie, room as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(RECORD + room, 0);
    bytes
}

/// Records that wait to be read.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
    /// Bytes of the last one; 0 if there is none.
    last: usize,
    /// One of them says that there were more.
    lost: bool,
}

impl Queue {
    /// The records, if these bytes are some as [`Queue::push`] makes them.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut queue = Queue::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = |at: usize| crate::wire::u32_at(rest, at);
            let length = RECORD.checked_add(word(12) as usize)?;
            let name = rest.get(RECORD..length)?;
            let end = name.iter().position(|byte| *byte == 0);
            let text = core::str::from_utf8(&name[..end.unwrap_or(0)]).ok()?;
            let made = record(word(0) as i32, word(4), word(8), text);
            if made != rest[..length] || text.len() > 255 {
                return None;
            }
            queue.lost |= word(4) == linux::IN_Q_OVERFLOW;
            queue.last = length;
            rest = &rest[length..];
        }
        queue.bytes = bytes.iter().copied().collect();
        (queue.len() <= CAPACITY + RECORD).then_some(queue)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// How many bytes of memory it may take to put this record behind the others.
    fn growth(&self, record: &[u8]) -> usize {
        // What is lost can be said without more.
        match self.bytes.len() + record.len() + RECORD > self.bytes.capacity() {
            true => 2 * (self.bytes.capacity().max(256) + record.len()),
            false => 0,
        }
    }

    /// Puts a record behind the others, of which there are at most `most` bytes: whether there is one more. The same
    /// again is nothing new; instead of what has no room (or no memory, if `has_room` says so) there is one that says
    /// that something is lost.
    fn push(&mut self, record: &[u8], most: usize, has_room: bool) -> bool {
        if self.bytes.len() + record.len() > most || !has_room {
            let lost = core::mem::replace(&mut self.lost, true);
            if !lost {
                self.append(&self::record(-1, linux::IN_Q_OVERFLOW, 0, ""));
            }
            return !lost;
        }
        if self.ends_with(record) {
            return false;
        }
        self.append(record);
        true
    }

    fn append(&mut self, record: &[u8]) {
        // With room for the one that says that something is lost.
        self.bytes.reserve(record.len() + RECORD);
        self.bytes.extend(record);
        self.last = record.len();
    }

    /// Whether the last record says the same: all but its cookie, and never that a watch is gone.
    fn ends_with(&self, record: &[u8]) -> bool {
        if self.last != record.len() || crate::wire::u32_at(record, 4) & linux::IN_IGNORED != 0 {
            return false;
        }
        let last = self.bytes.range(self.bytes.len() - self.last..);
        let mut both = last.zip(record).zip(0usize..);
        both.all(|((a, b), at)| a == b || (8..12).contains(&at))
    }

    /// Bytes of the first records that have room in so many; `None` if not even one has.
    #[must_use]
    pub fn fitting(&self, most: u64) -> Option<usize> {
        let mut length = 0;
        while length < self.bytes.len() {
            let word: [u8; 4] = core::array::from_fn(|n| self.bytes[length + 12 + n]);
            let next = length + RECORD + u32::from_le_bytes(word) as usize;
            if next as u64 > most {
                break;
            }
            length = next;
        }
        (length > 0).then_some(length)
    }

    /// Takes the first bytes, which are whole records ([`Queue::fitting`]).
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.bytes.drain(..length).collect();
        let mut at = 0;
        while at < taken.len() {
            if crate::wire::u32_at(&taken, at + 4) == linux::IN_Q_OVERFLOW {
                self.lost = false;
            }
            at += RECORD + crate::wire::u32_at(&taken, at + 12) as usize;
        }
        if self.bytes.is_empty() {
            *self = Queue::default();
        }
        taken
    }
}

/// An instance.
#[derive(Clone, Debug, Default)]
struct Instance {
    payer: Payer,
    queue: Queue,
    /// Most bytes in it.
    most: usize,
    /// The files by the numbers of the watches.
    watches: BTreeMap<i32, u64>,
    /// The last number of a watch.
    last: i32,
}

/// What an instance asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its number in the instance.
    pub wd: i32,
    /// Of [`EVENTS`] and [`HOW`].
    pub asks: u32,
}

/// A file that is watched.
#[derive(Clone, Debug, Default)]
struct Mark {
    is_directory: bool,
    /// By instance.
    watches: BTreeMap<u64, Watch>,
    /// It has no name any more, and is not kept open by the mark.
    is_nameless: bool,
}

/// Where an open file is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: u64,
    /// Its name there.
    pub name: Rc<str>,
    /// It had that name, and has none in its place.
    pub is_gone: bool,
}

/// The place of a description.
#[derive(Clone, Debug)]
struct Placed {
    ino: u64,
    place: Place,
    payer: Payer,
}

/// What is asked for on a file system, in memory or on the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// How many files are watched.
    marks: usize,
    /// How many watches of directories ask for each event.
    counts: [u32; EVENTS.count_ones() as usize],
    /// Those that are asked for.
    events: u32,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Inotifies {
    all: BTreeMap<u64, Instance>,
    marks: BTreeMap<u64, Mark>,
    /// In memory, and on the disk.
    asked: [Asked; 2],
    /// By the address of the description.
    places: BTreeMap<usize, Placed>,
    /// File and address of those.
    by_ino: BTreeSet<(u64, usize)>,
    /// The last number that tells one renaming from others.
    cookie: u32,
}

/// Which of the file systems has a file.
const fn system_of(ino: u64) -> usize {
    (ino & ON_DISK != 0) as usize
}

impl Inotifies {
    /// Whether nobody watches any file.
    #[must_use]
    #[inline(always)]
    pub fn is_unwatched(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether somebody watches a file of this file system.
    #[must_use]
    pub const fn has_marks(&self, on_disk: bool) -> bool {
        self.asked[on_disk as usize].marks > 0
    }

    /// Which of these events of what is in a directory somebody asks for on this file system.
    #[must_use]
    pub const fn of_children(&self, on_disk: bool, events: u32) -> u32 {
        self.asked[on_disk as usize].events & events
    }

    /// The queue of an instance.
    #[must_use]
    pub fn queue(&self, id: u64) -> Option<&Queue> {
        self.all.get(&id).map(|instance| &instance.queue)
    }

    /// The same, to take something.
    pub fn queue_mut(&mut self, id: u64) -> Option<&mut Queue> {
        self.all.get_mut(&id).map(|instance| &mut instance.queue)
    }

    /// The watches of an instance by their numbers: the file, what is asked of it, and whether it has no name any more.
    /// And the last number.
    #[must_use]
    pub fn watches(&self, id: u64) -> (Vec<(u64, Watch, bool)>, i32) {
        let Some(instance) = self.all.get(&id) else {
            return (Vec::new(), 0);
        };
        let watches = instance.watches.values().filter_map(|ino| {
            let mark = self.marks.get(ino)?;
            Some((*ino, *mark.watches.get(&id)?, mark.is_nameless))
        });
        (watches.collect(), instance.last)
    }

    /// The place of a description, if it is known.
    #[must_use]
    pub fn place(&self, address: usize) -> Option<&Place> {
        self.places.get(&address).map(|placed| &placed.place)
    }

    /// The file that a watch of an instance watches.
    #[must_use]
    pub fn watched(&self, id: u64, wd: i32) -> Option<u64> {
        self.all.get(&id)?.watches.get(&wd).copied()
    }

    /// Notes that a watch asks for these events, or (`!more`) does not any more.
    fn ask(&mut self, ino: u64, is_directory: bool, events: u32, more: bool) {
        let asked = &mut self.asked[system_of(ino)];
        if !is_directory {
            return;
        }
        for (bit, count) in asked.counts.iter_mut().enumerate() {
            if events & EVENTS & 1 << bit == 0 {
                continue;
            }
            *count = match more {
                true => *count + 1,
                false => count.saturating_sub(1),
            };
            match *count {
                0 => asked.events &= !(1 << bit),
                _ => asked.events |= 1 << bit,
            }
        }
    }

    /// The descriptions of a file whose place is this one.
    fn at(&self, ino: u64, directory: u64, name: &str) -> Vec<usize> {
        let all = self.by_ino.range((ino, 0)..=(ino, usize::MAX));
        let is_there = |address: &usize| {
            self.place(*address).is_some_and(|place| {
                place.directory == directory && &*place.name == name && !place.is_gone
            })
        };
        all.map(|(_, address)| *address).filter(is_there).collect()
    }

    /// A file has lost this name.
    pub fn lost_name(&mut self, ino: u64, directory: u64, name: &str) {
        for address in self.at(ino, directory, name) {
            if let Some(placed) = self.places.get_mut(&address) {
                placed.place.is_gone = true;
            }
        }
    }

    /// A file has another name instead of this one.
    pub fn renamed(&mut self, ino: u64, (directory, name): (u64, &str), to: (u64, &str)) {
        for address in self.at(ino, directory, name) {
            if let Some(placed) = self.places.get_mut(&address) {
                placed.place.directory = to.0;
                placed.place.name = Rc::from(to.1);
            }
        }
    }

    /// A number that tells a renaming from others.
    pub fn new_cookie(&mut self) -> u32 {
        self.cookie = self.cookie.wrapping_add(1).max(1);
        self.cookie
    }

    /// The last of these numbers.
    #[must_use]
    pub const fn cookie(&self) -> u32 {
        self.cookie
    }
}

impl System {
    /// Whether there is no instance, and nothing is left of any.
    #[cfg(test)]
    pub(crate) fn is_without_inotify(&self) -> bool {
        let all = &self.inotify;
        let none = all.asked.iter().all(|a| (a.marks, a.events) == (0, 0));
        let counted = [Thing::Inotify, Thing::Mark, Thing::Place].map(|t| self.counted_things(t));
        all.all.is_empty()
            && all.marks.is_empty()
            && all.places.is_empty()
            && all.by_ino.is_empty()
            && none
            && counted == [0; 3]
    }

    /// A new instance. Errors: `EMFILE`.
    pub fn new_inotify(&mut self, payer: Payer) -> Result<u64, Errno> {
        let count = self.count_thing(Thing::Inotify, payer);
        let most = match count.map_err(|_| EMFILE)? {
            0..=LARGE => CAPACITY,
            _ => SMALL_CAPACITY,
        };
        let id = self.new_identity();
        let instance = Instance {
            payer,
            most,
            ..Instance::default()
        };
        self.inotify.all.insert(id, instance);
        Ok(id)
    }

    /// What an instance of an image had: its records, the last number of a watch, and that of a renaming.
    pub fn restore_inotify(&mut self, id: u64, queue: Queue, (last, cookie): (i32, u32)) {
        self.inotify.cookie = self.inotify.cookie.max(cookie);
        if let Some(instance) = self.inotify.all.get_mut(&id) {
            (instance.queue, instance.last) = (queue, last);
        }
    }

    /// An instance is gone.
    pub fn forget_inotify(&mut self, host: &mut dyn Host, id: u64) {
        let Some(instance) = self.inotify.all.get(&id) else {
            return;
        };
        let inos: Vec<u64> = instance.watches.values().copied().collect();
        for ino in inos {
            self.unwatch_file(host, id, ino);
        }
        if let Some(instance) = self.inotify.all.remove(&id) {
            self.uncount_thing(Thing::Inotify, instance.payer);
        }
    }

    /// What an instance asks of a file, if it watches it.
    fn watch_of(&self, id: u64, ino: u64) -> Option<Watch> {
        self.inotify.marks.get(&ino)?.watches.get(&id).copied()
    }

    /// Whether an instance watches a file.
    #[must_use]
    pub fn watches_file(&self, id: u64, ino: u64) -> bool {
        self.watch_of(id, ino).is_some()
    }

    /// Has an instance watch a file, which is open once for that: the number of the watch, and whether the file stays
    /// open for it. `asks` is as the call says it. Errors: `EEXIST`, `ENOSPC`; the file is to be closed then.
    pub fn watch_file(
        &mut self,
        id: u64,
        (ino, is_directory): (u64, bool),
        asks: u32,
    ) -> Result<(i32, bool), Errno> {
        let new = asks & (EVENTS | HOW);
        let Some(known) = self.watch_of(id, ino) else {
            let last = self.inotify.all.get(&id).ok_or(EINVAL)?.last;
            let wd = last.checked_add(1).ok_or(ENOSPC)?;
            let watch = Watch { wd, asks: new };
            let stays = self.add_watch(id, (ino, is_directory, false), watch)?;
            return Ok((wd, stays));
        };
        if asks & linux::IN_MASK_CREATE != 0 {
            return Err(EEXIST);
        }
        let before = match asks & linux::IN_MASK_ADD {
            0 => 0,
            _ => known.asks,
        };
        self.inotify.ask(ino, is_directory, known.asks, false);
        self.inotify.ask(ino, is_directory, before | new, true);
        let mark = self.inotify.marks.get_mut(&ino);
        if let Some(watch) = mark.and_then(|mark| mark.watches.get_mut(&id)) {
            watch.asks = before | new;
        }
        Ok((known.wd, false))
    }

    /// Has an instance watch a file that it does not watch, and whether that has no name but is open. Whether nobody
    /// watched it, so that it stays open for that. Errors: `ENOSPC`; nothing has changed then.
    pub fn add_watch(
        &mut self,
        id: u64,
        (ino, is_directory, is_nameless): (u64, bool, bool),
        watch: Watch,
    ) -> Result<bool, Errno> {
        let payer = self.inotify.all.get(&id).ok_or(EINVAL)?.payer;
        self.count_thing(Thing::Mark, payer).map_err(|_| ENOSPC)?;
        let all = &mut self.inotify;
        let is_new = !all.marks.contains_key(&ino);
        all.asked[system_of(ino)].marks += usize::from(is_new);
        all.ask(ino, is_directory, watch.asks, true);
        let mark = all.marks.entry(ino).or_insert_with(|| Mark {
            is_directory,
            watches: BTreeMap::new(),
            is_nameless,
        });
        mark.watches.insert(id, watch);
        if let Some(instance) = all.all.get_mut(&id) {
            instance.last = instance.last.max(watch.wd);
            instance.watches.insert(watch.wd, ino);
        }
        Ok(is_new)
    }

    /// An instance does not watch a file any more.
    fn unwatch_file(&mut self, host: &mut dyn Host, id: u64, ino: u64) {
        let Some(mark) = self.inotify.marks.get_mut(&ino) else {
            return;
        };
        let Some(watch) = mark.watches.remove(&id) else {
            return;
        };
        let (is_directory, is_open) = (mark.is_directory, !mark.is_nameless);
        let is_last = mark.watches.is_empty();
        self.inotify.ask(ino, is_directory, watch.asks, false);
        if let Some(instance) = self.inotify.all.get_mut(&id) {
            instance.watches.remove(&watch.wd);
            let payer = instance.payer;
            self.uncount_thing(Thing::Mark, payer);
        }
        if is_last {
            self.inotify.marks.remove(&ino);
            self.inotify.asked[system_of(ino)].marks -= 1;
            if is_open {
                let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            }
        }
        if self.inotify.marks.is_empty() {
            for placed in core::mem::take(&mut self.inotify.places).into_values() {
                self.uncount_thing(Thing::Place, placed.payer);
            }
            self.inotify.by_ino.clear();
        }
    }

    /// An instance does not watch a file any more, and is told so.
    fn end_watch(&mut self, host: &mut dyn Host, id: u64, ino: u64) {
        if let Some(watch) = self.watch_of(id, ino) {
            self.put_record(host, id, &record(watch.wd, linux::IN_IGNORED, 0, ""));
            self.unwatch_file(host, id, ino);
        }
    }

    /// `inotify_rm_watch`. Errors: `EINVAL`.
    pub fn remove_watch_of_file(
        &mut self,
        host: &mut dyn Host,
        id: u64,
        wd: i32,
    ) -> Result<(), Errno> {
        let instance = self.inotify.all.get(&id);
        let ino = instance.and_then(|instance| instance.watches.get(&wd));
        let ino = *ino.ok_or(EINVAL)?;
        self.end_watch(host, id, ino);
        Ok(())
    }

    /// Puts a record into the queue of an instance.
    fn put_record(&mut self, host: &mut dyn Host, id: u64, record: &[u8]) {
        let Some(instance) = self.inotify.all.get_mut(&id) else {
            return;
        };
        let growth = instance.queue.growth(record);
        let has_room = growth == 0 || host.room(growth as u64).is_ok();
        if instance.queue.push(record, instance.most, has_room) {
            self.wake_for(Key::Inotify(id), linux::POLLIN);
        }
    }

    /// Something has happened to a file, or to something in it if there is a name: those who watch it for that are
    /// told. `is_gone`: it has no name any more.
    fn tell_watchers(
        &mut self,
        host: &mut dyn Host,
        ino: u64,
        (mask, cookie): (u32, u32),
        (name, is_gone): (&str, bool),
    ) {
        let Some(mark) = self.inotify.marks.get(&ino) else {
            return;
        };
        let is_asked = |watch: &Watch| {
            watch.asks & mask & EVENTS != 0 && !(is_gone && watch.asks & linux::IN_EXCL_UNLINK != 0)
        };
        let told = mark.watches.iter().filter(|(_, watch)| is_asked(watch));
        let told: Vec<(u64, Watch)> = told.map(|(id, watch)| (*id, *watch)).collect();
        for (id, watch) in told {
            self.put_record(host, id, &record(watch.wd, mask, cookie, name));
            if watch.asks & linux::IN_ONESHOT != 0 {
                self.end_watch(host, id, ino);
            }
        }
    }

    /// Something has happened to a file.
    pub fn tell_file(&mut self, host: &mut dyn Host, ino: u64, mask: u32) {
        self.tell_watchers(host, ino, (mask, 0), ("", false));
    }

    /// Something has happened to a file that has this place: who watches its directory is told first.
    pub fn tell_both(&mut self, host: &mut dyn Host, ino: u64, mask: u32, place: Option<&Place>) {
        let is_gone = place.is_some_and(|place| place.is_gone);
        if let Some(place) = place {
            self.tell_watchers(host, place.directory, (mask, 0), (&place.name, is_gone));
        }
        self.tell_watchers(host, ino, (mask, 0), ("", is_gone));
    }

    /// A name in a directory has come, gone or been exchanged.
    pub fn tell_directory(
        &mut self,
        host: &mut dyn Host,
        (directory, name): (u64, &str),
        mask: u32,
        cookie: u32,
    ) {
        self.tell_watchers(host, directory, (mask, cookie), (name, false));
    }

    /// A file has lost its last name.
    pub fn lost_last_name(&mut self, host: &mut dyn Host, ino: u64) {
        let Some(mark) = self.inotify.marks.get_mut(&ino) else {
            return;
        };
        if !core::mem::replace(&mut mark.is_nameless, true) {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            self.let_go(host, ino);
        }
    }

    /// Nobody may have a file any more: then it ends for those who watch it.
    pub fn let_go(&mut self, host: &mut dyn Host, ino: u64) {
        let mark = self.inotify.marks.get(&ino);
        if !mark.is_some_and(|mark| mark.is_nameless) || self.busy.is_open(ino) {
            return;
        }
        self.tell_file(host, ino, linux::IN_DELETE_SELF);
        let mark = self.inotify.marks.get(&ino);
        let ids: Vec<u64> =
            mark.map_or_else(Vec::new, |mark| mark.watches.keys().copied().collect());
        for id in ids {
            self.end_watch(host, id, ino);
        }
    }

    /// A file that an instance of an image watched is not there any more.
    pub fn lost_meanwhile(&mut self, host: &mut dyn Host, id: u64, watch: Watch) {
        if watch.asks & linux::IN_DELETE_SELF != 0 {
            self.put_record(host, id, &record(watch.wd, linux::IN_DELETE_SELF, 0, ""));
        }
        self.put_record(host, id, &record(watch.wd, linux::IN_IGNORED, 0, ""));
    }

    /// Keeps the place of a description, if its payer may have one more kept and there is memory.
    pub fn keep_place(
        &mut self,
        host: &mut dyn Host,
        (address, ino): (usize, u64),
        place: &Place,
        payer: Payer,
    ) {
        if self.inotify.places.contains_key(&address)
            || host.room(1 << 10).is_err()
            || self.count_thing(Thing::Place, payer).is_err()
        {
            return;
        }
        let placed = Placed {
            ino,
            place: place.clone(),
            payer,
        };
        self.inotify.places.insert(address, placed);
        self.inotify.by_ino.insert((ino, address));
    }

    /// Nobody has this description, which had this address, any more. To be called before its file is closed, if anybody watches files.
    #[cold]
    pub fn closed_watched(
        &mut self,
        host: &mut dyn Host,
        address: usize,
        description: &Description,
    ) {
        let placed = self.inotify.places.remove(&address);
        if let Some(placed) = &placed {
            self.inotify.by_ino.remove(&(placed.ino, address));
            self.uncount_thing(Thing::Place, placed.payer);
        }
        let Some(ino) = description.ino() else {
            return;
        };
        let mask = match description.writable() {
            true => linux::IN_CLOSE_WRITE,
            false => linux::IN_CLOSE_NOWRITE,
        };
        if !description.is_path() {
            let mut place = placed.map(|placed| placed.place);
            // Nobody can wait for a disk here: what is there was looked for when it was opened ([`crate::calls::inotify::find_opened`]).
            if place.is_none() && ino & ON_DISK == 0 && self.inotify.of_children(false, mask) != 0 {
                place = find_place_now(host, ino);
            }
            let directory = matches!(description.kind, Kind::Directory { .. });
            let mask = mask | if directory { linux::IN_ISDIR } else { 0 };
            self.tell_both(host, ino, mask, place.as_ref());
        }
        self.let_go(host, ino);
    }
}

/// Where a file that is open is found, if it is.
pub fn find_place(
    ino: u64,
    mut ask: impl FnMut(&Request) -> Result<Reply, proto::Error>,
) -> Option<Place> {
    let Ok(Reply::Path(path)) = ask(&Request::PathOf { ino }) else {
        return None;
    };
    let (parent, name) = split(&path)?;
    let stat = Request::Stat {
        path: parent.into(),
        follow: true,
    };
    match ask(&stat) {
        Ok(Reply::Attr(attr)) => Some(Place {
            directory: attr.ino,
            name: Rc::from(name),
            is_gone: false,
        }),
        _ => None,
    }
}

/// The same of a file in memory, for which nobody waits.
pub fn find_place_now(host: &mut dyn Host, ino: u64) -> Option<Place> {
    find_place(ino, |request| Ok(host.fs_now(request, &[], &mut [])?.0))
}

/// The directory of an absolute path, and the name there.
#[must_use]
pub fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.trim_end_matches('/').rsplit_once('/')?;
    let parent = if parent.is_empty() { "/" } else { parent };
    (!name.is_empty()).then_some((parent, name))
}

#[cfg(test)]
mod tests {
    use super::{record, split, Queue, CAPACITY, RECORD};
    use alloc::format;
    use alloc::vec::Vec;
    use linux_raw_sys::general as linux;

    /// What there is, one record after the other.
    fn records(queue: &mut Queue) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(first) = (RECORD..600).find_map(|most| queue.fitting(most as u64)) {
            all.push(queue.take(first));
        }
        all
    }

    #[test]
    fn records_are_as_programs_know_them() {
        let bare = record(7, linux::IN_OPEN, 0, "");
        assert_eq!(bare, [7, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (length, room) in [(1, 16), (15, 16), (16, 32), (31, 32), (255, 256)] {
            let name = "n".repeat(length);
            let made = record(-1, linux::IN_CREATE, 5, &name);
            assert_eq!(made.len(), RECORD + room, "a name of {length} bytes");
            assert_eq!(made[12..16], (room as u32).to_le_bytes());
            assert_eq!(&made[RECORD..RECORD + length], name.as_bytes());
            assert!(made[RECORD + length..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_same_again_is_nothing_new() {
        let mut queue = Queue::default();
        let moved = |cookie| record(1, linux::IN_MOVED_TO, cookie, "name");
        assert!(queue.push(&moved(1), CAPACITY, true));
        assert!(
            !queue.push(&moved(2), CAPACITY, true),
            "O1: the same again is one record"
        );
        assert!(queue.push(&record(2, linux::IN_MOVED_TO, 1, "name"), CAPACITY, true));
        assert!(queue.push(&record(2, linux::IN_MOVED_TO, 1, "nama"), CAPACITY, true));
        assert!(queue.push(&record(2, linux::IN_MOVED_FROM, 1, "nama"), CAPACITY, true));
        // What is before the last one does not matter.
        assert!(queue.push(&moved(1), CAPACITY, true));
        let ignored = record(1, linux::IN_IGNORED, 0, "");
        assert!(queue.push(&ignored, CAPACITY, true) && queue.push(&ignored, CAPACITY, true));
        assert_eq!(records(&mut queue).len(), 7);
        // Once it has been read it is new.
        assert!(queue.push(&moved(1), CAPACITY, true));
        assert_eq!(queue.len(), 32);
        records(&mut queue);
        assert!(queue.is_empty() && queue.push(&moved(1), CAPACITY, true));
    }

    #[test]
    fn what_has_no_room_is_said_once() {
        let mut queue = Queue::default();
        let name = |n: usize| record(1, linux::IN_CREATE, 0, &format!("{n}"));
        let mut put = 0;
        while queue.push(&name(put), 1000, true) && !queue.lost {
            put += 1;
        }
        assert_eq!(
            (put, queue.len()),
            (31, 31 * 32 + 16),
            "O2: a queue ends where it is full"
        );
        assert!(!queue.push(&name(put), 1000, true));
        // Something is read, and what comes then has room.
        let first = queue.fitting(40).unwrap();
        assert_eq!(queue.take(first), name(0));
        assert!(queue.push(&name(99), 1024, true) && queue.lost);
        let all = records(&mut queue);
        assert_eq!((all.len(), queue.lost), (32, false));
        assert_eq!(all[30], record(-1, linux::IN_Q_OVERFLOW, 0, ""));
        assert_eq!(all[31], name(99));
        // Nor has it without memory.
        assert!(queue.push(&name(1), 1000, false) && !queue.push(&name(1), 1000, false));
        assert_eq!(
            records(&mut queue),
            [record(-1, linux::IN_Q_OVERFLOW, 0, "")]
        );
    }

    #[test]
    fn whole_records_are_read() {
        let mut queue = Queue::default();
        for name in ["", "name", "a longer name than others"] {
            queue.push(&record(1, linux::IN_OPEN, 0, name), CAPACITY, true);
        }
        let fits = |most| queue.fitting(most);
        assert_eq!(
            (fits(0), fits(15), fits(16), fits(47)),
            (None, None, Some(16), Some(16))
        );
        assert_eq!(
            (fits(48), fits(95), fits(96), fits(u64::MAX)),
            (Some(48), Some(48), Some(96), Some(96))
        );
    }

    #[test]
    fn a_queue_of_an_image_is_one_that_there_can_be() {
        let mut queue = Queue::default();
        for name in ["", "name", "a longer name than others"] {
            queue.push(&record(3, linux::IN_OPEN, 9, name), CAPACITY, true);
        }
        queue.push(&record(3, linux::IN_OPEN, 9, "x"), 100, true);
        let bytes = queue.to_bytes();
        let again = Queue::from_bytes(&bytes).unwrap();
        assert_eq!(
            (again.last, again.lost, again.to_bytes()),
            (RECORD, true, bytes.clone())
        );
        for length in 1..bytes.len() {
            let whole = [16, 48, 96].contains(&length);
            assert_eq!(
                Queue::from_bytes(&bytes[..length]).is_some(),
                whole,
                "{length}"
            );
        }
        // Any one byte of length or filling that is another one.
        for at in (12..16).chain(28..32).chain(37..48) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Queue::from_bytes(&other).is_none(), "{at}");
        }
        let many = record(1, linux::IN_OPEN, 0, "").repeat(CAPACITY / RECORD + 2);
        assert!(Queue::from_bytes(&many).is_none());
        assert!(Queue::from_bytes(&many[..CAPACITY + RECORD]).is_some());
    }

    #[test]
    fn paths_have_a_directory_and_a_name() {
        assert_eq!(split("/a/b"), Some(("/a", "b")));
        assert_eq!(split("/a/b//"), Some(("/a", "b")));
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!((split("/"), split("")), (None, None));
    }
}
