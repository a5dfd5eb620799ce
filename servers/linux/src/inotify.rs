//! Instances of `inotify`: which instance watches which files and directories, and the events that have happened to
//! these.
//!
//! * A [`Mark`] is a file that is watched, by inode. It keeps the file open as long as the file has a name, so that the
//!   file system can be asked for its path.
//! * An [`Instance`] has a [`Queue`] of records in the byte format that programs read.
//! * A [`Place`] is the directory and the name of an open file, needed to report events of the file to the watches of
//!   its directory. It is looked up when a description is opened while a directory is watched, or, for a file in
//!   memory, at the first event; it is then kept ([`crate::calls::inotify`]).
//!
//! While nothing is watched all of this costs one look at an empty table ([`Inotifies::is_unwatched`]). Events are
//! reported where calls cause them ([`crate::calls::inotify`]) and where descriptions end ([`System::closed_watched`]).
//!
//! Watches of a file end (`IN_DELETE_SELF`) when it has no name and no description ([`crate::busy`]).

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

/// Bytes of a record without a name (`struct inotify_event`).
pub const RECORD: usize = 16;
/// Names are padded with zeros to a multiple of this many bytes.
const NAMES: usize = 16;
/// Most bytes in the queue of each of a payer's first [`LARGE`] instances.
pub const CAPACITY: usize = 64 << 10;
/// Most bytes in the queue of each further instance of a payer.
const SMALL_CAPACITY: usize = 8 << 10;
/// How many instances of a payer have a queue of [`CAPACITY`].
const LARGE: usize = 8;
/// The events that a watch can ask for.
pub const EVENTS: u32 = linux::IN_ALL_EVENTS;
/// The flags of `inotify_add_watch` that a watch keeps beside its events.
pub const HOW: u32 = linux::IN_EXCL_UNLINK | linux::IN_ONESHOT;
/// The events of a file that are also reported to watches of its directory.
pub const OF_CHILDREN: u32 = linux::IN_ACCESS
    | linux::IN_MODIFY
    | linux::IN_ATTRIB
    | linux::IN_CLOSE_WRITE
    | linux::IN_CLOSE_NOWRITE
    | linux::IN_OPEN;

/// A record as programs read it: `struct inotify_event` with the padded name.
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

/// The records of an instance that wait to be read.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
    /// Bytes of the last record; 0 if there is none.
    last: usize,
    /// One of the records is `IN_Q_OVERFLOW`.
    lost: bool,
}

impl Queue {
    /// Parses records from an image; `None` unless they are as [`Queue::push`] makes them.
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

    /// Bytes of all records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The records as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// Most bytes of memory that appending this record may take.
    fn growth(&self, record: &[u8]) -> usize {
        // The overflow record always has room (see `append`).
        match self.bytes.len() + record.len() + RECORD > self.bytes.capacity() {
            true => 2 * (self.bytes.capacity().max(256) + record.len()),
            false => 0,
        }
    }

    /// Appends a record unless it equals the last one; returns whether a record was added. If the queue would exceed
    /// `most` bytes, or if there is no memory (`!has_room`), one `IN_Q_OVERFLOW` record is appended instead.
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
        // Reserves room for a later overflow record.
        self.bytes.reserve(record.len() + RECORD);
        self.bytes.extend(record);
        self.last = record.len();
    }

    /// Whether the last record is the same apart from its cookie. `IN_IGNORED` records are never merged.
    fn ends_with(&self, record: &[u8]) -> bool {
        if self.last != record.len() || crate::wire::u32_at(record, 4) & linux::IN_IGNORED != 0 {
            return false;
        }
        let last = self.bytes.range(self.bytes.len() - self.last..);
        let mut both = last.zip(record).zip(0usize..);
        both.all(|((a, b), at)| a == b || (8..12).contains(&at))
    }

    /// Bytes of the leading records that fit in `most` bytes; `None` if not even the first one fits.
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

    /// Removes and returns the first `length` bytes, which are whole records ([`Queue::fitting`]).
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

/// An instance of `inotify`.
#[derive(Clone, Debug, Default)]
struct Instance {
    payer: Payer,
    queue: Queue,
    /// Most bytes in its queue.
    most: usize,
    /// The watched files by watch number (`wd`).
    watches: BTreeMap<i32, u64>,
    /// The last watch number.
    last: i32,
}

/// The watch of an instance on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its watch number in the instance.
    pub wd: i32,
    /// Event bits of [`EVENTS`] and flags of [`HOW`].
    pub asks: u32,
}

/// A file that is watched.
#[derive(Clone, Debug, Default)]
struct Mark {
    is_directory: bool,
    /// The watches by instance.
    watches: BTreeMap<u64, Watch>,
    /// The file has no name any more, so the mark does not keep it open.
    is_nameless: bool,
}

/// The directory and the name of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Inode of the directory.
    pub directory: u64,
    /// Its name in the directory.
    pub name: Rc<str>,
    /// The name has been removed; the file keeps it here for reports.
    pub is_gone: bool,
}

/// A description's place, with the payer for whom it is counted.
#[derive(Clone, Debug)]
struct Placed {
    ino: u64,
    place: Place,
    payer: Payer,
}

/// What is watched on one file system, in memory or on the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// How many files are watched.
    marks: usize,
    /// For each event bit, how many watches of directories ask for it.
    counts: [u32; EVENTS.count_ones() as usize],
    /// The event bits whose counts are not 0.
    events: u32,
}

/// All instances, marks and places.
#[derive(Clone, Debug, Default)]
pub struct Inotifies {
    all: BTreeMap<u64, Instance>,
    marks: BTreeMap<u64, Mark>,
    /// The memory file system's, and the disk's.
    asked: [Asked; 2],
    /// Places by the address of the description.
    places: BTreeMap<usize, Placed>,
    /// Inode and description address of each place.
    by_ino: BTreeSet<(u64, usize)>,
    /// The last cookie, which connects the two records of a renaming.
    cookie: u32,
}

/// Index in [`Inotifies::asked`] of the file system that has the file.
const fn system_of(ino: u64) -> usize {
    (ino & ON_DISK != 0) as usize
}

impl Inotifies {
    /// Whether no file is watched.
    #[must_use]
    #[inline(always)]
    pub fn is_unwatched(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether a file of this file system is watched.
    #[must_use]
    pub const fn has_marks(&self, on_disk: bool) -> bool {
        self.asked[on_disk as usize].marks > 0
    }

    /// The events among `events` that some watch of a directory on this file system asks for.
    #[must_use]
    pub const fn of_children(&self, on_disk: bool, events: u32) -> u32 {
        self.asked[on_disk as usize].events & events
    }

    /// The queue of an instance.
    #[must_use]
    pub fn queue(&self, id: u64) -> Option<&Queue> {
        self.all.get(&id).map(|instance| &instance.queue)
    }

    /// The queue of an instance, to be changed.
    pub fn queue_mut(&mut self, id: u64) -> Option<&mut Queue> {
        self.all.get_mut(&id).map(|instance| &mut instance.queue)
    }

    /// The watches of an instance by rising number: the file, the watch, and whether the file has no name any more.
    /// Also the last watch number.
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

    /// Counts (`more`) or uncounts the events that a watch of a directory asks for.
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

    /// Addresses of the descriptions of a file whose place is this directory and name.
    fn at(&self, ino: u64, directory: u64, name: &str) -> Vec<usize> {
        let all = self.by_ino.range((ino, 0)..=(ino, usize::MAX));
        let is_there = |address: &usize| {
            self.place(*address).is_some_and(|place| {
                place.directory == directory && &*place.name == name && !place.is_gone
            })
        };
        all.map(|(_, address)| *address).filter(is_there).collect()
    }

    /// Marks the places of a file under this name as gone.
    pub fn lost_name(&mut self, ino: u64, directory: u64, name: &str) {
        for address in self.at(ino, directory, name) {
            if let Some(placed) = self.places.get_mut(&address) {
                placed.place.is_gone = true;
            }
        }
    }

    /// Moves the places of a file from one directory and name to another.
    pub fn renamed(&mut self, ino: u64, (directory, name): (u64, &str), to: (u64, &str)) {
        for address in self.at(ino, directory, name) {
            if let Some(placed) = self.places.get_mut(&address) {
                placed.place.directory = to.0;
                placed.place.name = Rc::from(to.1);
            }
        }
    }

    /// A new cookie for the two records of a renaming.
    pub fn new_cookie(&mut self) -> u32 {
        self.cookie = self.cookie.wrapping_add(1).max(1);
        self.cookie
    }

    /// The last cookie.
    #[must_use]
    pub const fn cookie(&self) -> u32 {
        self.cookie
    }
}

impl System {
    /// Whether there is no instance, and no mark, place or count is left over.
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

    /// Makes an instance and returns its identity. Errors: `EMFILE`.
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

    /// Restores an instance from an image: its queue, the last watch number and the last cookie.
    pub fn restore_inotify(&mut self, id: u64, queue: Queue, (last, cookie): (i32, u32)) {
        self.inotify.cookie = self.inotify.cookie.max(cookie);
        if let Some(instance) = self.inotify.all.get_mut(&id) {
            (instance.queue, instance.last) = (queue, last);
        }
    }

    /// Removes an instance and its watches.
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

    /// The watch of an instance on a file, if there is one.
    fn watch_of(&self, id: u64, ino: u64) -> Option<Watch> {
        self.inotify.marks.get(&ino)?.watches.get(&id).copied()
    }

    /// Whether an instance watches a file.
    #[must_use]
    pub fn watches_file(&self, id: u64, ino: u64) -> bool {
        self.watch_of(id, ino).is_some()
    }

    /// Adds or changes the watch of an instance on a file, which the caller has opened once more for this. `asks` is
    /// the mask of `inotify_add_watch`. Returns the watch number, and whether the new mark takes over the caller's
    /// open; otherwise, and on errors, the caller closes the file. Errors: `EINVAL` (no such instance), `EEXIST`,
    /// `ENOSPC`.
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

    /// Adds the watch of an instance on a file that it does not watch. `is_nameless`: the file is open but has no name.
    /// Returns whether the file had no watch before, so that the new mark takes over the caller's open. Errors:
    /// `EINVAL` (no such instance), `ENOSPC`; then nothing has changed.
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

    /// Removes the watch of an instance on a file; with the last one the mark closes the file.
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

    /// Removes a watch after an `IN_IGNORED` record.
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

    /// Puts a record into the queue of an instance and wakes its readers.
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

    /// Reports an event of a file, or of the entry `name` of a directory, to the watches that ask for it. `is_gone`:
    /// the entry's name has been removed.
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

    /// Reports an event to the watches of a file.
    pub fn tell_file(&mut self, host: &mut dyn Host, ino: u64, mask: u32) {
        self.tell_watchers(host, ino, (mask, 0), ("", false));
    }

    /// Reports an event of a file that has this place, first to the watches of its directory.
    pub fn tell_both(&mut self, host: &mut dyn Host, ino: u64, mask: u32, place: Option<&Place>) {
        let is_gone = place.is_some_and(|place| place.is_gone);
        if let Some(place) = place {
            self.tell_watchers(host, place.directory, (mask, 0), (&place.name, is_gone));
        }
        self.tell_watchers(host, ino, (mask, 0), ("", is_gone));
    }

    /// Reports that a name in a directory has been added, removed or replaced.
    pub fn tell_directory(
        &mut self,
        host: &mut dyn Host,
        (directory, name): (u64, &str),
        mask: u32,
        cookie: u32,
    ) {
        self.tell_watchers(host, directory, (mask, cookie), (name, false));
    }

    /// Reports that a file has lost its last name: its mark closes the file.
    pub fn lost_last_name(&mut self, host: &mut dyn Host, ino: u64) {
        let Some(mark) = self.inotify.marks.get_mut(&ino) else {
            return;
        };
        if !core::mem::replace(&mut mark.is_nameless, true) {
            let _ = host.fs(&Request::Close { ino }, &[], &mut []);
            self.let_go(host, ino);
        }
    }

    /// Ends the watches of a nameless file, with `IN_DELETE_SELF`, if no description of it is open.
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

    /// Reports to an instance of an image that a file it watched does not exist any more.
    pub fn lost_meanwhile(&mut self, host: &mut dyn Host, id: u64, watch: Watch) {
        if watch.asks & linux::IN_DELETE_SELF != 0 {
            self.put_record(host, id, &record(watch.wd, linux::IN_DELETE_SELF, 0, ""));
        }
        self.put_record(host, id, &record(watch.wd, linux::IN_IGNORED, 0, ""));
    }

    /// Keeps the place of a description, if the payer may have one more and there is memory.
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

    /// The description at this address has ended: reports `IN_CLOSE_WRITE` or `IN_CLOSE_NOWRITE` and forgets its place.
    /// Call it before the file is closed, if any file is watched.
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
            // A close cannot wait for a disk. The place of a file on the disk was looked up when it was opened
            // ([`crate::calls::inotify::find_opened`]).
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

/// Looks up the place of an open file; `None` if it has no name. `ask` sends a request to the file system.
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

/// The same for a file in memory, whose file system answers at once.
pub fn find_place_now(host: &mut dyn Host, ino: u64) -> Option<Place> {
    find_place(ino, |request| Ok(host.fs_now(request, &[], &mut [])?.0))
}

/// The directory and the last name of an absolute path; `None` if there is no name.
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

    /// Takes all records, one by one.
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
        // Only the last record is compared.
        assert!(queue.push(&moved(1), CAPACITY, true));
        let ignored = record(1, linux::IN_IGNORED, 0, "");
        assert!(queue.push(&ignored, CAPACITY, true) && queue.push(&ignored, CAPACITY, true));
        assert_eq!(records(&mut queue).len(), 7);
        // Once the equal record has been read, the event is recorded again.
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
        // After a record is read the next one has room, though the overflow record is still queued.
        let first = queue.fitting(40).unwrap();
        assert_eq!(queue.take(first), name(0));
        assert!(queue.push(&name(99), 1024, true) && queue.lost);
        let all = records(&mut queue);
        assert_eq!((all.len(), queue.lost), (32, false));
        assert_eq!(all[30], record(-1, linux::IN_Q_OVERFLOW, 0, ""));
        assert_eq!(all[31], name(99));
        // Without memory a record is lost as well.
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
        // Any one byte of a length or of padding that differs makes the bytes invalid.
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
