//! Memory objects: pages that several processes map (`MAP_SHARED`).
//!
//! The host has a segment for each object, beside the segments of the processes' own memories. An area of a process
//! names its object and the offset in it ([`crate::memory::Kind::Shared`]). An object lives as long as some memory has
//! areas of it, for which the memory holds a [`Use`]; dropping the last use reports the object as unused, however the
//! process ended.
//!
//! The object of a file has those parts of the file that have been mapped. While it exists, writes to the file also go
//! to the object, and reads of the file take these parts from the object, so Linux programs see one content. Changes
//! made through mappings reach the file system when the object is *written back*: by `msync` and `fsync`, and before
//! the object ends. Writing back compares pages with the file, since no record of writes to the pages exists, and is
//! done in steps, between which programs have a turn. A task that unmaps a file or ends waits for it if no other memory
//! maps the file, so that the next reader finds the file as the task left it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use serde::{Deserialize, Serialize};
use services::fs::ON_DISK;

use crate::emulate::STEP;
use crate::errno::{Errno, EBUSY, EIO, ENOMEM};
use crate::files::{Reply, Request};
use crate::host::{Host, OutOfMemory};
use crate::memory::{page_up, Areas, Kind, END, PAGE};
use crate::process::{Description, Shared};
use crate::system::{Key, Payer, System, Thing};

/// Bytes that are read, compared and written in one piece.
const CHUNK: usize = proto::MAX_BULK;

/// A reference to an object. When the last one is dropped the object is not needed any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Use {
    id: u64,
    unused: Rc<RefCell<Vec<u64>>>,
}

impl Use {
    /// The object's identity.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.unused.borrow_mut().push(self.id);
    }
}

/// The objects of which a memory has areas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(BTreeMap<u64, Rc<Use>>);

impl Uses {
    /// Adds an object of which the memory has an area.
    pub fn insert(&mut self, used: Rc<Use>) {
        self.0.insert(used.id, used);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identities of the objects.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Drops the uses of objects of which the memory has no area left.
    pub fn tidy(&mut self, areas: &Areas) {
        if self.0.is_empty() {
            return;
        }
        let left: BTreeSet<u64> = areas.list().iter().filter_map(|a| a.object()).collect();
        self.0.retain(|id, _| left.contains(id));
    }
}

/// The file of an object.
#[derive(Debug)]
struct File {
    ino: u64,
    /// The description through which the file was first mapped, which stays open as long as the object lives, as in
    /// Linux.
    description: Shared<Description>,
}

/// An object.
#[derive(Debug)]
struct Object {
    payer: Payer,
    file: Option<File>,
    /// The parts of the file that it has.
    loaded: Loaded,
    /// Whether programs may have written to it: it has no file, or its file was mapped through a writable description.
    is_writable: bool,
    /// The offset from which it is still to be written back; `None` if it is not being written back.
    back: Option<u64>,
    /// Times of the last request to write it back, of the beginning of the present pass over it, and of the beginning
    /// of the last complete pass. Time is the number of requests ([`Objects::asked`]).
    wanted: u64,
    begun: u64,
    done: u64,
    /// The time and the error of the last pass, if it was given up.
    failed: Option<(u64, Errno)>,
    /// It has been written back and cannot have been changed since.
    is_clean: bool,
    used: Weak<Use>,
}

/// Most parts of a file that an object can have.
const MAX_PARTS: usize = 1024;

/// The parts of a file that an object has, in whole pages.
#[derive(Debug, Default)]
struct Loaded {
    /// The end of each part by its start. Adjacent parts are merged.
    parts: BTreeMap<u64, u64>,
}

impl Loaded {
    /// The first part that ends behind `at`, cut to begin at `at` if it begins before.
    fn part(&self, at: u64) -> Option<(u64, u64)> {
        let before = self.parts.range(..=at).next_back();
        let around = before.filter(|(_, end)| **end > at);
        let (start, end) = around.or_else(|| self.parts.range(at..).next())?;
        Some((at.max(*start), *end))
    }

    /// The parts between two offsets, cut to these.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        core::iter::from_fn(move || {
            let (start, end) = self.part(at).filter(|(start, _)| *start < to)?;
            at = end.min(to);
            Some((start, at))
        })
    }

    /// The first range between two offsets that is not there.
    fn gap(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut at = from;
        while at < to {
            match self.part(at) {
                Some((start, end)) if start == at => at = end,
                next => return Some((at, next.map_or(to, |(start, _)| start.min(to)))),
            }
        }
        None
    }

    /// Whether there is room for one more part.
    fn has_room(&self) -> bool {
        self.parts.len() < MAX_PARTS
    }

    /// Adds a range that was not there, merging it with adjacent parts.
    fn add(&mut self, mut from: u64, mut to: u64) {
        if let Some((start, _)) = self
            .parts
            .range(..=from)
            .next_back()
            .filter(|p| *p.1 == from)
        {
            from = *start;
        }
        if let Some(end) = self.parts.remove(&to) {
            to = end;
        }
        self.parts.insert(from, to);
    }
}

/// An object in an image, apart from its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedObject {
    /// Its identity, as areas name it.
    pub(crate) id: u64,
    /// The number of the description of its file, if it has a file.
    pub(crate) description: Option<u32>,
    /// Whether programs may have written to it.
    pub(crate) is_writable: bool,
    /// Whether it is being written back. A task may wait for that.
    is_behind: bool,
    /// Start and end of the parts of the file that it has.
    pub(crate) loaded: Vec<(u64, u64)>,
}

impl SavedObject {
    /// An inconsistent copy: being written back although it cannot have changed.
    #[cfg(test)]
    pub(crate) fn behind_unwritten(&self) -> Self {
        SavedObject {
            is_writable: false,
            is_behind: true,
            ..self.clone()
        }
    }

    /// Whether an object of an image is consistent by itself.
    pub(crate) fn is_sound(&self) -> bool {
        let is_whole = |at: u64| at.is_multiple_of(PAGE) && at <= END;
        let mut parts = self.loaded.iter();
        self.loaded.len() <= MAX_PARTS
            && (self.loaded.is_empty() && !self.is_behind || self.description.is_some())
            && (!self.is_behind || self.is_writable)
            && parts.all(|(start, end)| start < end && is_whole(*start) && is_whole(*end))
            && self.loaded.windows(2).all(|w| w[0].1 < w[1].0)
    }
}

/// All objects.
#[derive(Debug, Default)]
pub struct Objects {
    all: BTreeMap<u64, Object>,
    by_ino: BTreeMap<u64, u64>,
    /// Objects whose last use has been dropped since the last look.
    unused: Rc<RefCell<Vec<u64>>>,
    /// Objects that are being written back, or are to be ended.
    due: BTreeSet<u64>,
    /// The object in `due` that had the last turn.
    last: u64,
    /// The number of requests to write an object back: the time that waiting tasks compare with.
    asked: u64,
}

impl Object {
    /// Requests that it be written back as it is now (`now` is the number of the request). A pass that is under way is
    /// not begun again, so repeated requests do not keep earlier waiters waiting.
    fn write_back(&mut self, now: u64) {
        self.wanted = now;
        self.is_clean = false;
        if matches!(self.back, None | Some(0)) {
            (self.back, self.begun) = (Some(0), now);
        }
    }

    /// A pass has been completed: returns whether another one begins, for requests that came during this one.
    fn is_wanted_again(&mut self, now: u64) -> bool {
        self.done = self.begun;
        let again = self.wanted > self.done;
        if again {
            (self.back, self.begun) = (Some(0), now);
        }
        again
    }

    /// Whether it has no use and need not be written back.
    fn is_over(&self) -> bool {
        self.used.strong_count() == 0 && self.back.is_none() && self.wanted <= self.begun
    }
}

impl Objects {
    /// Whether objects are to be written back or ended: [`System::settle_objects`] is to be called when programs have
    /// had a turn.
    #[must_use]
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty() || !self.unused.borrow().is_empty()
    }

    /// An object as an image has it; `number` gives the number of its file's description.
    pub(crate) fn saved(
        &self,
        id: u64,
        number: impl Fn(&Shared<Description>) -> Option<u32>,
    ) -> Option<SavedObject> {
        let object = self.all.get(&id)?;
        let description = match &object.file {
            None => None,
            Some(file) => Some(number(&file.description)?),
        };
        let loaded = object.loaded.parts.iter();
        Some(SavedObject {
            id,
            description,
            is_writable: object.is_writable,
            is_behind: object.back.is_some(),
            loaded: loaded.map(|(start, end)| (*start, *end)).collect(),
        })
    }

    /// The number of uses of an object.
    pub(crate) fn uses(&self, id: u64) -> usize {
        let object = self.all.get(&id);
        object.map_or(0, |object| object.used.strong_count())
    }

    /// The description through which the file of an object was first mapped.
    pub(crate) fn description(&self, id: u64) -> Option<&Shared<Description>> {
        Some(&self.all.get(&id)?.file.as_ref()?.description)
    }

    /// The objects of files.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_ino.values().copied()
    }

    /// The object of a file, and the parts that it has.
    fn of(&self, ino: u64) -> Option<(u64, &Loaded)> {
        let id = self.by_ino.get(&ino)?;
        Some((*id, &self.all.get(id)?.loaded))
    }

    /// The inode of the file of an object.
    #[must_use]
    pub fn ino(&self, id: u64) -> Option<u64> {
        Some(self.all.get(&id)?.file.as_ref()?.ino)
    }

    /// Whether the object of a file is in use and may have been changed through a mapping.
    #[must_use]
    pub fn is_writable(&self, ino: u64) -> bool {
        let object = self.by_ino.get(&ino).and_then(|id| self.all.get(id));
        object.is_some_and(|object| object.is_writable && object.used.strong_count() > 0)
    }

    /// Whether a file is open for writing only because its unused object is still to be written back.
    #[must_use]
    pub fn keeps_writable(&self, ino: u64) -> bool {
        let object = self.by_ino.get(&ino).and_then(|id| self.all.get(id));
        let file = object
            .filter(|object| object.used.strong_count() == 0)
            .and_then(|object| object.file.as_ref());
        file.is_some_and(|file| {
            Rc::strong_count(&file.description) == 1 && file.description.borrow().writable()
        })
    }

    /// Requests that the object of a file be written back; returns the time of the request for [`Objects::is_behind`].
    /// `None` if it cannot have been changed, or if the caller does not wait and a pass is under way.
    pub fn write_back(&mut self, id: u64, waits: bool) -> Option<u64> {
        let object = self.all.get_mut(&id)?;
        if object.file.is_none() || !object.is_writable {
            return None;
        }
        if !waits && object.back.is_some() {
            return None;
        }
        self.asked += 1;
        object.write_back(self.asked);
        self.due.insert(id);
        Some(self.asked)
    }

    /// Whether this is the last use of the object of a file that may have been changed.
    #[must_use]
    pub fn goes_with(&self, id: u64) -> bool {
        let object = self.all.get(&id).filter(|object| object.file.is_some());
        object.is_some_and(|object| object.is_writable && object.used.strong_count() == 1)
    }

    /// Marks an object as clean whose last use was dropped after it had been written back, if its process has not run
    /// in between.
    pub fn is_as_written(&mut self, id: u64) {
        let object = self.all.get_mut(&id).filter(|object| {
            object.back.is_none() && object.failed.is_none() && object.used.strong_count() == 0
        });
        if let Some(object) = object {
            object.is_clean = true;
        }
    }

    /// The error because of which the request made at time `asked` to write the object back was given up. After a restore
    /// the times begin anew, so a time that is still to come is taken for the last one.
    #[must_use]
    pub fn failure(&self, id: u64, asked: u64) -> Option<Errno> {
        let (at, error) = self.all.get(&id)?.failed?;
        (at >= asked.min(self.asked)).then_some(error)
    }

    /// The first object of these files that is due: to be written back or to be ended.
    #[must_use]
    pub fn behind(&self, inos: &[u64]) -> Option<u64> {
        let due = |id: &u64| self.due.contains(id) || self.unused.borrow().contains(id);
        inos.iter().find_map(|ino| self.of_ino(*ino).filter(due))
    }

    /// The object of a file, if it has one.
    #[must_use]
    pub fn of_ino(&self, ino: u64) -> Option<u64> {
        self.by_ino.get(&ino).copied()
    }

    /// Whether the request made at time `asked` to write the object back is still to be fulfilled.
    #[must_use]
    pub fn is_behind(&self, id: u64, asked: u64) -> bool {
        let object = self.all.get(&id).filter(|object| object.back.is_some());
        object.is_some_and(|object| object.done < asked)
    }
}

impl System {
    /// Makes an object of zeros. Errors: `ENOMEM`.
    pub fn new_object(&mut self, host: &mut dyn Host, payer: Payer) -> Result<Rc<Use>, Errno> {
        let mut counted = self.count_thing(Thing::Object, payer);
        if counted.is_err() && self.end_unused(host, payer) {
            counted = self.count_thing(Thing::Object, payer);
        }
        counted.map_err(|_| ENOMEM)?;
        let id = self.new_identity();
        if let Err(error) = host.new_object(id) {
            self.uncount_thing(Thing::Object, payer);
            return Err(error);
        }
        let used = Rc::new(Use {
            id,
            unused: Rc::clone(&self.objects.unused),
        });
        let object = Object {
            payer,
            file: None,
            loaded: Loaded::default(),
            is_writable: true,
            back: None,
            wanted: 0,
            begun: 0,
            done: 0,
            failed: None,
            is_clean: false,
            used: Rc::downgrade(&used),
        };
        self.objects.all.insert(id, object);
        Ok(used)
    }

    /// The object of a file, made if there is none; `description` is the one through which the file is mapped. Errors:
    /// `ENOMEM`.
    pub fn object_of_file(
        &mut self,
        host: &mut dyn Host,
        payer: Payer,
        ino: u64,
        description: &Shared<Description>,
    ) -> Result<Rc<Use>, Errno> {
        let used = match self.objects.by_ino.get(&ino).copied() {
            Some(id) => self.use_again(id)?,
            None => {
                let used = self.new_object(host, payer)?;
                let object = self.objects.all.get_mut(&used.id).ok_or(EIO)?;
                object.is_writable = false;
                object.file = Some(File {
                    ino,
                    description: Rc::clone(description),
                });
                self.objects.by_ino.insert(ino, used.id);
                used
            }
        };
        let object = self.objects.all.get_mut(&used.id).ok_or(EIO)?;
        object.is_writable |= description.borrow().writable();
        Ok(used)
    }

    /// Makes an object of an image. The host has its pages under `number`; `description` is its file's, if it has a
    /// file. Errors: `ENFILE`; `EBUSY` if the file has an object already; `EIO` if the file is on a disk; those of the
    /// host.
    pub(crate) fn restore_object(
        &mut self,
        host: &mut dyn Host,
        (saved, number): (&SavedObject, usize),
        description: Option<&Shared<Description>>,
        payer: Payer,
    ) -> Result<Rc<Use>, Errno> {
        let file = description.and_then(|description| {
            let ino = description.borrow().ino()?;
            let description = Rc::clone(description);
            Some(File { ino, description })
        });
        let ino = file.as_ref().map(|file| file.ino);
        // Files on a disk have no memory objects: writing one back would make the whole server wait for the disk.
        if ino.is_some_and(|ino| ino & ON_DISK != 0) {
            return Err(EIO);
        }
        if ino.is_some_and(|ino| self.objects.by_ino.contains_key(&ino)) {
            return Err(EBUSY);
        }
        self.count_thing(Thing::Object, payer)?;
        let id = self.new_identity();
        if let Err(error) = host.adopt_object(id, number) {
            self.uncount_thing(Thing::Object, payer);
            return Err(error);
        }
        let used = Rc::new(Use {
            id,
            unused: Rc::clone(&self.objects.unused),
        });
        // The waiting tasks' times are of another boot, so they wait until all requests are fulfilled.
        self.objects.asked += u64::from(saved.is_behind);
        let now = self.objects.asked;
        let object = Object {
            payer,
            file,
            loaded: Loaded {
                parts: saved.loaded.iter().copied().collect(),
            },
            is_writable: saved.is_writable,
            back: saved.is_behind.then_some(0),
            wanted: now,
            begun: now,
            done: 0,
            failed: None,
            is_clean: false,
            used: Rc::downgrade(&used),
        };
        self.objects.all.insert(id, object);
        if let Some(ino) = ino {
            self.objects.by_ino.insert(ino, id);
        }
        if saved.is_behind {
            self.objects.due.insert(id);
        }
        Ok(used)
    }

    /// Ends an object of an image that is not restored after all, without writing it back.
    pub(crate) fn give_up_object(&mut self, host: &mut dyn Host, id: u64) {
        self.objects.due.remove(&id);
        if let Some(object) = self.objects.all.remove(&id) {
            self.end_object(host, id, object);
        }
    }

    fn end_object(&mut self, host: &mut dyn Host, id: u64, object: Object) {
        host.end_object(id);
        self.uncount_thing(Thing::Object, object.payer);
        if let Some(file) = object.file {
            self.objects.by_ino.remove(&file.ino);
            self.dropped.push(file.description);
            crate::process::release_dropped(self, host);
        }
    }

    /// Loads the range of a file into its object, at most [`STEP`] bytes at once; returns whether all of the range is
    /// there. Errors: `ENOMEM`, and those of reading.
    pub fn load_object(
        &mut self,
        host: &mut dyn Host,
        id: u64,
        (from, to): (u64, u64),
    ) -> Result<bool, Errno> {
        let object = self.objects.all.get_mut(&id).ok_or(EIO)?;
        let Some(ino) = object.file.as_ref().map(|file| file.ino) else {
            return Ok(true);
        };
        let (from, to) = (from - from % PAGE, page_up(to).ok_or(ENOMEM)?);
        let mut left = STEP;
        let mut chunk = Vec::new();
        while let Some((start, end)) = object.loaded.gap(from, to) {
            if left == 0 {
                return Ok(false);
            }
            if !object.loaded.has_room() {
                return Err(ENOMEM);
            }
            if chunk.is_empty() {
                host.room(2 * CHUNK as u64)?;
                chunk.resize(CHUNK, 0);
            }
            let want = (end - start).min(CHUNK as u64).min(left) as usize;
            let mut got = 0;
            while got < want {
                let request = Request::Read {
                    ino,
                    offset: start + got as u64,
                    length: (want - got) as u32,
                };
                let (_, more) = host.fs_now(&request, &[], &mut chunk[got..want])?;
                if more == 0 {
                    break;
                }
                got = want.min(got + more);
            }
            put(host, id, start, &chunk[..got])?;
            // Pages behind the end of the file are zeros.
            let end = if got < want { end } else { start + want as u64 };
            object.loaded.add(start, end);
            left -= want as u64;
        }
        Ok(true)
    }

    /// A further use of an existing object. Errors: `EIO` if there is none.
    pub fn use_again(&mut self, id: u64) -> Result<Rc<Use>, Errno> {
        let object = self.objects.all.get_mut(&id).ok_or(EIO)?;
        Ok(object.used.upgrade().unwrap_or_else(|| {
            let used = Rc::new(Use {
                id,
                unused: Rc::clone(&self.objects.unused),
            });
            object.used = Rc::downgrade(&used);
            object.is_clean = false;
            used
        }))
    }

    /// Replaces bytes that were read from a file at `offset` by the bytes of its object, where the object has any.
    pub fn read_object(
        &self,
        host: &mut dyn Host,
        ino: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), OutOfMemory> {
        let Some((id, loaded)) = self.objects.of(ino) else {
            return Ok(());
        };
        for (from, to) in loaded.parts(offset, offset.saturating_add(into.len() as u64)) {
            let (start, end) = ((from - offset) as usize, (to - offset) as usize);
            host.read_object(id, from, &mut into[start..end])?;
        }
        Ok(())
    }

    /// Makes present what the object of a file has of this range, so that [`System::write_object`] does not fail behind
    /// the write to the file. The pages count for who has mapped the file, whose account may be full.
    pub fn hold_object(
        &self,
        host: &mut dyn Host,
        ino: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), OutOfMemory> {
        let Some((id, loaded)) = self.objects.of(ino) else {
            return Ok(());
        };
        for (from, to) in loaded.parts(offset, offset.saturating_add(length)) {
            host.hold_object(id, from, to - from)?;
        }
        Ok(())
    }

    /// Writes bytes that were written to a file at `offset` to its object, too.
    pub fn write_object(
        &self,
        host: &mut dyn Host,
        ino: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), OutOfMemory> {
        let Some((id, loaded)) = self.objects.of(ino) else {
            return Ok(());
        };
        for (from, to) in loaded.parts(offset, offset.saturating_add(bytes.len() as u64)) {
            let (start, end) = ((from - offset) as usize, (to - offset) as usize);
            host.write_object(id, from, &bytes[start..end])?;
        }
        Ok(())
    }

    /// The file was cut or extended to this size: clears what its object has beyond.
    pub fn cut_object(&self, host: &mut dyn Host, ino: u64, size: u64) -> Result<(), OutOfMemory> {
        let Some((id, loaded)) = self.objects.of(ino) else {
            return Ok(());
        };
        let end = size.next_multiple_of(PAGE);
        for (from, to) in loaded.parts(size, end) {
            // A page that is absent is not made present for its zeros.
            let mut bytes = [0; PAGE as usize];
            let rest = &mut bytes[..(to - from) as usize];
            host.read_object(id, from, rest)?;
            if rest.iter().any(|byte| *byte != 0) {
                rest.fill(0);
                host.write_object(id, from, rest)?;
            }
        }
        for (from, to) in loaded.parts(end, u64::MAX) {
            host.discard_object(id, from, to - from);
        }
        Ok(())
    }

    /// Does a step of writing back or ending one of the due objects, which take turns.
    pub fn settle_objects(&mut self, host: &mut dyn Host) {
        self.note_unused(host);
        let due = &self.objects.due;
        let after = due.range(self.objects.last.saturating_add(1)..).next();
        if let Some(id) = after.or_else(|| due.first()).copied() {
            self.objects.last = id;
            self.settle_object(host, id);
        }
    }

    /// Has the objects whose last use was dropped written back if necessary, and ended.
    fn note_unused(&mut self, host: &mut dyn Host) {
        let mut unused = core::mem::take(&mut *self.objects.unused.borrow_mut());
        unused.sort_unstable();
        unused.dedup();
        for id in unused {
            let Some(object) = self.objects.all.get_mut(&id) else {
                continue;
            };
            let is_changed = object.is_writable && !object.is_clean;
            // A pass that is under way may have passed a page before its last change, and no later request follows the
            // last use.
            let begins = object.used.strong_count() == 0 || object.back.is_none();
            let is_open = |file: &File| self.busy.descriptions(file.ino) > 1;
            let is_open = object.file.as_ref().is_some_and(is_open);
            if is_changed && begins && (is_open || is_wanted(host, object)) {
                self.objects.asked += 1;
                object.write_back(self.objects.asked);
            }
            // An object that is in use again stays due, because a task may wait for it.
            self.objects.due.insert(id);
        }
    }

    /// Ends an unused object of a payer that need not be written back, if there is one, so that a payer that has
    /// dropped objects gets their places at once. Returns whether there was one.
    pub fn end_unused(&mut self, host: &mut dyn Host, payer: Payer) -> bool {
        self.note_unused(host);
        let is_over = |id: &&u64| {
            let object = self.objects.all.get(id);
            object.is_some_and(|object| object.payer == payer && object.is_over())
        };
        let found = self.objects.due.iter().find(is_over).copied();
        found.inspect(|id| self.settle_object(host, *id)).is_some()
    }

    /// Does a step of writing an object back; ends it when it is written back and unused.
    pub fn settle_object(&mut self, host: &mut dyn Host, id: u64) {
        if let Some(object) = self.objects.all.get_mut(&id) {
            let was_behind = object.back.is_some();
            match step(host, id, object) {
                Ok(()) if was_behind && object.back.is_none() => object.failed = None,
                Ok(()) => {}
                Err(error) => {
                    (object.back, object.begun) = (None, object.wanted);
                    object.failed = Some((self.objects.asked, error));
                    host.log(&alloc::format!(
                        "what was changed in a mapped file could not be written back: error {}",
                        error.0
                    ));
                }
            }
            if object.back.is_some() {
                return;
            }
            if object.is_wanted_again(self.objects.asked) {
                self.wake(Key::Object(id));
                return;
            }
        }
        self.objects.due.remove(&id);
        self.wake(Key::Object(id));
        let is_used = |object: &Object| object.used.strong_count() > 0;
        if self.objects.all.get(&id).is_some_and(is_used) {
            return;
        }
        if let Some(object) = self.objects.all.remove(&id) {
            self.end_object(host, id, object);
        }
    }

    /// Writes the objects of these files back completely, however long that takes. Call it before the files are read in
    /// another way than through their objects.
    pub fn settle_files(&mut self, host: &mut dyn Host, inos: &[u64]) {
        self.note_unused(host);
        while let Some(id) = self.objects.behind(inos) {
            self.settle_object(host, id);
        }
    }
}

/// Whether the file of an object can still be read when the object is gone although nobody else has opened it: it has a
/// name, or others share the description that the object keeps.
fn is_wanted(host: &mut dyn Host, object: &Object) -> bool {
    let Some(file) = &object.file else {
        return false;
    };
    if Rc::strong_count(&file.description) > 1 {
        return true;
    }
    let attr = host.fs_now(&Request::StatIno { ino: file.ino }, &[], &mut []);
    !matches!(attr, Ok((Reply::Attr(attr), _)) if attr.links == 0)
}

/// Reads a range of an object. Absent pages read as zeros and stay absent: who reads must not take memory, least of all
/// that of the object's payer. `present` gives the first pages from an offset on that are present, as offset and bytes,
/// and `read` reads such pages.
pub fn read_sparse<E>(
    offset: u64,
    into: &mut [u8],
    mut present: impl FnMut(u64) -> Result<Option<(u64, u64)>, E>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    while done < into.len() {
        let at = offset.saturating_add(done as u64);
        let rest = &mut into[done..];
        let left = rest.len() as u64;
        let found = present(at)?.map(|(start, size)| (start, start.saturating_add(size)));
        let Some((start, end)) = found.filter(|(_, end)| *end > at) else {
            rest.fill(0);
            break;
        };
        // The pages may begin before the place, or behind the range.
        let from = start.saturating_sub(at).min(left) as usize;
        let to = (end - at).min(left) as usize;
        rest[..from].fill(0);
        if from < to {
            read(at + from as u64, &mut rest[from..to])?;
        }
        done += to;
    }
    Ok(())
}

/// Writes bytes into a range of an object that is zero. Pages of zeros are skipped, so they take no memory.
fn put(host: &mut dyn Host, id: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    for (n, page) in bytes.chunks(PAGE as usize).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            let at = offset + n as u64 * PAGE;
            host.write_object(id, at, page).map_err(|_| ENOMEM)?;
        }
    }
    Ok(())
}

/// Writes back those of the next [`STEP`] bytes of an object that differ from the file.
fn step(host: &mut dyn Host, id: u64, object: &mut Object) -> Result<(), Errno> {
    let (Some(file), Some(start)) = (&object.file, object.back) else {
        object.back = None;
        return Ok(());
    };
    let ino = file.ino;
    let Reply::Attr(attr) = host.fs_now(&Request::StatIno { ino }, &[], &mut [])?.0 else {
        return Err(EIO);
    };
    // Memory may be short: unmapping a file did not ask for any.
    let chunk = match host.room(2 * CHUNK as u64) {
        Ok(()) => CHUNK as u64,
        Err(_) => PAGE,
    };
    let (mut old, mut new) = (
        alloc::vec![0; chunk as usize],
        alloc::vec![0; chunk as usize],
    );
    let mut left = STEP;
    let mut next = Some(start);
    while let Some(from) = next {
        let part = object.loaded.part(from).filter(|p| p.0 < attr.size);
        let Some((at, end)) = part.filter(|_| left > 0) else {
            next = part.map(|(at, _)| at);
            break;
        };
        let want = (end.min(attr.size) - at).min(chunk).min(left) as usize;
        let length = want as u32;
        let request = Request::Read {
            ino,
            offset: at,
            length,
        };
        let got = host.fs_now(&request, &[], &mut old[..want])?.1;
        old[got.min(want)..want].fill(0);
        let read = host.read_object(id, at, &mut new[..want]);
        read.map_err(|_| ENOMEM)?;
        for (n, page) in new[..want].chunks(PAGE as usize).enumerate() {
            let from = n * PAGE as usize;
            if page != &old[from..from + page.len()] {
                let offset = at + from as u64;
                let append = false;
                let request = Request::Write {
                    ino,
                    offset,
                    append,
                };
                host.fs_now(&request, page, &mut [])?;
            }
        }
        left -= want as u64;
        next = Some(at + want as u64);
    }
    object.back = next;
    Ok(())
}

impl crate::memory::Area {
    /// The object that it shows; `None` if it is private memory.
    #[must_use]
    pub const fn object(&self) -> Option<u64> {
        match self.kind {
            Kind::Shared { id, .. } => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{read_sparse, Loaded, MAX_PARTS, PAGE};
    use alloc::vec;
    use core::cell::RefCell;
    use fastrand::Rng;

    /// Reading an object reads its present pages and no other, which are zeros.
    #[test]
    fn absent_pages_are_read_as_zeros_and_stay_absent() {
        const PAGES: usize = 12;
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let there: [bool; PAGES] = core::array::from_fn(|_| random.bool());
            let byte = |at: u64| match there.get((at / PAGE) as usize) {
                Some(true) => 1 + (at % 251) as u8,
                _ => 0,
            };
            let offset = random.u64(..PAGES as u64 * PAGE);
            let length = random.usize(..3 * PAGE as usize);
            let touched = RefCell::new([false; PAGES]);
            let mut into = vec![0xff; length];
            let next = |at: u64| {
                let first = ((at / PAGE) as usize..PAGES).find(|page| there[*page]);
                let found = first.map(|first| {
                    let run = there[first..].iter().take_while(|is| **is).count();
                    (first as u64 * PAGE, run as u64 * PAGE)
                });
                Ok::<_, ()>(found)
            };
            let read = |at: u64, into: &mut [u8]| {
                for (byte_of, at) in into.iter_mut().zip(at..) {
                    touched.borrow_mut()[(at / PAGE) as usize] = true;
                    *byte_of = byte(at);
                }
                Ok(())
            };
            read_sparse(offset, &mut into, next, read).unwrap();
            let mut all = into.iter().zip(offset..);
            assert!(
                all.all(|(is, at)| *is == byte(at)),
                "S3: seed {seed}: other bytes than those of the object"
            );
            let touched = touched.into_inner();
            let mut pages = touched.iter().zip(&there);
            assert!(
                pages.all(|(touched, there)| !touched || *there),
                "S2: seed {seed}: an absent page is touched, which takes memory of who pays for the object"
            );
        }
    }

    #[test]
    fn parts_are_what_was_added() {
        const PAGES: usize = 40;
        for seed in 0..50 {
            let mut random = Rng::with_seed(seed);
            let (mut loaded, mut model) = (Loaded::default(), [false; PAGES]);
            for _ in 0..40 {
                let (a, b) = (random.usize(..PAGES), random.usize(..PAGES));
                let (from, to) = (a.min(b), a.max(b) + 1);
                let [first, last] = [from, to].map(|n| n as u64 * PAGE);
                let there = loaded.parts(first, last);
                let there: u64 = there.map(|(start, end)| end - start).sum();
                let expected = model[from..to].iter().filter(|is| **is).count();
                assert_eq!(there, expected as u64 * PAGE);
                let gap = loaded.gap(first, last);
                let start = (from..to).find(|n| !model[*n]);
                assert_eq!(gap.map(|gap| gap.0), start.map(|n| n as u64 * PAGE));
                let Some((start, end)) = gap else { continue };
                let end = start + PAGE * random.u64(1..=(end - start) / PAGE);
                loaded.add(start, end);
                model[(start / PAGE) as usize..(end / PAGE) as usize].fill(true);
                // Adjacent parts are merged.
                let edges = (1..PAGES).filter(|n| model[*n] && !model[n - 1]).count();
                assert_eq!(loaded.parts.len(), edges + usize::from(model[0]));
            }
        }
    }

    #[test]
    fn parts_are_not_too_many() {
        let mut loaded = Loaded::default();
        let mut page = 0;
        while loaded.has_room() {
            loaded.add(page * PAGE, (page + 1) * PAGE);
            page += 2;
        }
        assert_eq!(loaded.parts.len(), MAX_PARTS);
    }
}
