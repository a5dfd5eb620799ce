//! Memory objects: pages that several processes have in their memory (`MAP_SHARED`).
//!
//! The host has a segment for each object, beside those of the processes' own memory. An area of a process names the object and
//! where in it the area begins ([`crate::memory::Kind::Shared`]). An object lives as long as some memory has areas of it, which
//! hold a [`Use`] each; the last one that goes says so by itself, however the process ended.
//!
//! The object of a file has the parts of it that somebody has mapped. While it is there what is written to the
//! file is written to the object, too, and what is read of the file comes from the object, so Linux programs see one content. The
//! file system sees what was changed in memory when it is *written back*: by `msync` and `fsync`, and before the object goes. That
//! compares pages, since nobody tells which ones were written to, and is done in steps, between which programs have a turn. Who unmaps a
//! file or ends waits for that, if nobody else has it mapped, so that whoever comes next finds the file as it left it.

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

/// Bytes that are read, compared and written at once.
const CHUNK: usize = proto::MAX_BULK;

/// Somebody's share in an object. When the last one goes the object is not needed any more.
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
    /// The memory has an area of this object.
    pub fn insert(&mut self, used: Rc<Use>) {
        self.0.insert(used.id, used);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their identities.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Gives up those of which no area is left.
    pub fn tidy(&mut self, areas: &Areas) {
        if self.0.is_empty() {
            return;
        }
        let left: BTreeSet<u64> = areas.list().iter().filter_map(|a| a.object()).collect();
        self.0.retain(|id, _| left.contains(id));
    }
}

/// The file whose bytes an object has.
#[derive(Debug)]
struct File {
    ino: u64,
    /// What was open when it was first mapped: as on Linux it stays open.
    description: Shared<Description>,
}

/// An object.
#[derive(Debug)]
struct Object {
    payer: Payer,
    file: Option<File>,
    /// Bytes of the file that are there.
    loaded: Loaded,
    /// Whether somebody could write to it.
    is_writable: bool,
    /// How far it is written back, while that is done.
    back: Option<u64>,
    /// When somebody last asked for that, when what is done now was begun, and when what was last done, as [`Objects::asked`].
    wanted: u64,
    begun: u64,
    done: u64,
    /// It is written back, and nobody can have changed it since.
    is_clean: bool,
    used: Weak<Use>,
}

/// Most parts of a file that an object can have, with others between them that it does not have.
const MAX_PARTS: usize = 1024;

/// The parts of a file that an object has, whole pages each.
#[derive(Debug, Default)]
struct Loaded {
    /// By their beginnings: where each ends. None touches the next one.
    parts: BTreeMap<u64, u64>,
}

impl Loaded {
    /// The first part from `at` on, or what is left of one from there.
    fn part(&self, at: u64) -> Option<(u64, u64)> {
        let before = self.parts.range(..=at).next_back();
        let around = before.filter(|(_, end)| **end > at);
        let (start, end) = around.or_else(|| self.parts.range(at..).next())?;
        Some((at.max(*start), *end))
    }

    /// The parts between two places.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        core::iter::from_fn(move || {
            let (start, end) = self.part(at).filter(|(start, _)| *start < to)?;
            at = end.min(to);
            Some((start, at))
        })
    }

    /// The first bytes between two places that are not there.
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

    /// Whether one more part, which may touch others, is not too much.
    fn has_room(&self) -> bool {
        self.parts.len() < MAX_PARTS
    }

    /// These bytes, which were not there, are.
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

/// What an image has of an object beside its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedObject {
    /// As areas name it.
    pub(crate) id: u64,
    /// The number of the description of the file whose object it is.
    pub(crate) description: Option<u32>,
    /// Whether somebody could write to it.
    pub(crate) is_writable: bool,
    /// It is being written back, and somebody may wait for that.
    is_behind: bool,
    /// The parts of the file that are there: where they begin and end.
    pub(crate) loaded: Vec<(u64, u64)>,
}

impl SavedObject {
    /// The same, of which nobody could change anything that is to be written back.
    #[cfg(test)]
    pub(crate) fn behind_unwritten(&self) -> Self {
        SavedObject {
            is_writable: false,
            is_behind: true,
            ..self.clone()
        }
    }

    /// Whether one from an image makes sense by itself.
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
    /// Objects of which the last use has gone since.
    unused: Rc<RefCell<Vec<u64>>>,
    /// Objects that are written back, or are to go.
    due: BTreeSet<u64>,
    /// The one of them that had the last turn.
    last: u64,
    /// How often it was asked for something to be written back: the time for who waits.
    asked: u64,
}

impl Object {
    /// It is to be written back as it is now, at this time. What others asked for goes on: whoever asks, and however often,
    /// keeps none of them waiting.
    fn write_back(&mut self, now: u64) {
        self.wanted = now;
        self.is_clean = false;
        if matches!(self.back, None | Some(0)) {
            (self.back, self.begun) = (Some(0), now);
        }
    }

    /// All of it has been written back: whether it has to be once more, for those who have asked meanwhile.
    fn is_wanted_again(&mut self, now: u64) -> bool {
        self.done = self.begun;
        let again = self.wanted > self.done;
        if again {
            (self.back, self.begun) = (Some(0), now);
        }
        again
    }

    /// Whether nobody uses it, and it need not be written back.
    fn is_over(&self) -> bool {
        self.used.strong_count() == 0 && self.back.is_none() && self.wanted <= self.begun
    }
}

impl Objects {
    /// Whether something is to be written back, or to go: [`System::settle_objects`] is called when programs have had a turn.
    #[must_use]
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty() || !self.unused.borrow().is_empty()
    }

    /// What an image has of an object; `number` says which description is that of its file.
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

    /// How often an object is used.
    pub(crate) fn uses(&self, id: u64) -> usize {
        let object = self.all.get(&id);
        object.map_or(0, |object| object.used.strong_count())
    }

    /// What the file of an object is open as.
    pub(crate) fn description(&self, id: u64) -> Option<&Shared<Description>> {
        Some(&self.all.get(&id)?.file.as_ref()?.description)
    }

    /// The objects of files.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_ino.values().copied()
    }

    /// The object of a file, and what of that is there.
    fn of(&self, ino: u64) -> Option<(u64, &Loaded)> {
        let id = self.by_ino.get(&ino)?;
        Some((*id, &self.all.get(id)?.loaded))
    }

    /// The inode of the file whose object it is.
    #[must_use]
    pub fn ino(&self, id: u64) -> Option<u64> {
        Some(self.all.get(&id)?.file.as_ref()?.ino)
    }

    /// The object of a file, if somebody has mapped that so that it could be written to.
    #[must_use]
    pub fn is_writable(&self, ino: u64) -> bool {
        let object = self.by_ino.get(&ino).and_then(|id| self.all.get(id));
        object.is_some_and(|object| object.is_writable && object.used.strong_count() > 0)
    }

    /// Whether a file is open for writing only because its object, which nobody uses any more, is still to be written back.
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

    /// Has the file of an object written back, if it can have been changed: what [`Objects::is_behind`] is asked by. For who does
    /// not wait, once is enough if that is being done.
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

    /// Whether the object of a file, which can have been changed, goes when this use of it does.
    #[must_use]
    pub fn goes_with(&self, id: u64) -> bool {
        let object = self.all.get(&id).filter(|object| object.file.is_some());
        object.is_some_and(|object| object.is_writable && object.used.strong_count() == 1)
    }

    /// It has been written back before its last use went, and who had that has not run meanwhile.
    pub fn is_as_written(&mut self, id: u64) {
        let object = self.all.get_mut(&id);
        if let Some(object) = object.filter(|o| o.back.is_none() && o.used.strong_count() == 0) {
            object.is_clean = true;
        }
    }

    /// Whether one of these files has an object that is still to be written back.
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

    /// Whether the object is still to be written back for who asked then.
    #[must_use]
    pub fn is_behind(&self, id: u64, asked: u64) -> bool {
        let object = self.all.get(&id).filter(|object| object.back.is_some());
        object.is_some_and(|object| object.done < asked)
    }
}

impl System {
    /// A new object with nothing but zeros in it. Errors: `ENFILE`, `ENOMEM`.
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
            is_clean: false,
            used: Rc::downgrade(&used),
        };
        self.objects.all.insert(id, object);
        Ok(used)
    }

    /// The object of a file; `description` is what it is open as. Errors: `ENFILE`, `ENOMEM`.
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

    /// An object of an image, which has the bytes that the image has of it: the host has it under this number.
    /// `description` is what its file is open as here. Errors: `ENFILE`; `EBUSY` if the file has an object here; `EIO`
    /// if it is on a disk; those of the host.
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
        // No program maps a file of the disk so: writing it back would have everybody wait for the disk.
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
        // Who waited has a time of another machine, and so waits until nobody wants it to be written back.
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

    /// An object of an image that is not restored after all goes. Nothing of it gets into its file.
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

    /// Has the object of a file have these bytes of it, or [`STEP`] of them: whether all are there. Errors: `ENOMEM`, and those of
    /// reading.
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
            // Behind the end of the file are zeros.
            let end = if got < want { end } else { start + want as u64 };
            object.loaded.add(start, end);
            left -= want as u64;
        }
        Ok(true)
    }

    /// One more use of an object that is there.
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

    /// What was read of a file from `offset` on is replaced by what is in its object.
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

    /// What was written to a file at `offset` is written to its object, too.
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

    /// A file has this size now: what its object has beyond is gone.
    pub fn cut_object(&self, host: &mut dyn Host, ino: u64, size: u64) -> Result<(), OutOfMemory> {
        let Some((id, loaded)) = self.objects.of(ino) else {
            return Ok(());
        };
        let end = size.next_multiple_of(PAGE);
        for (from, to) in loaded.parts(size, end) {
            host.write_object(id, from, &[0; PAGE as usize][..(to - from) as usize])?;
        }
        for (from, to) in loaded.parts(end, u64::MAX) {
            host.discard_object(id, from, to - from);
        }
        Ok(())
    }

    /// Writes back and ends what is due, a step of it. They take turns.
    pub fn settle_objects(&mut self, host: &mut dyn Host) {
        self.note_unused(host);
        let due = &self.objects.due;
        let after = due.range(self.objects.last.saturating_add(1)..).next();
        if let Some(id) = after.or_else(|| due.first()).copied() {
            self.objects.last = id;
            self.settle_object(host, id);
        }
    }

    /// Objects of which the last use has gone are written back and go.
    fn note_unused(&mut self, host: &mut dyn Host) {
        let mut unused = core::mem::take(&mut *self.objects.unused.borrow_mut());
        unused.sort_unstable();
        unused.dedup();
        for id in unused {
            let Some(object) = self.objects.all.get_mut(&id) else {
                continue;
            };
            let is_changed = object.is_writable && !object.is_clean;
            // What is behind already may have changed since, and nobody else asks for it once the last use has gone.
            let begins = object.used.strong_count() == 0 || object.back.is_none();
            if is_changed && begins && is_wanted(host, object) {
                self.objects.asked += 1;
                object.write_back(self.objects.asked);
            }
            // Also if it is used again: somebody may wait for it.
            self.objects.due.insert(id);
        }
    }

    /// Ends an object of a payer that nobody uses any more and that nobody waits for, if there is one: whoever has
    /// given up as many as it may have has room for others at once.
    pub fn end_unused(&mut self, host: &mut dyn Host, payer: Payer) -> bool {
        self.note_unused(host);
        let is_over = |id: &&u64| {
            let object = self.objects.all.get(id);
            object.is_some_and(|object| object.payer == payer && object.is_over())
        };
        let found = self.objects.due.iter().find(is_over).copied();
        found.inspect(|id| self.settle_object(host, *id)).is_some()
    }

    /// A step of writing one back, or its end.
    pub fn settle_object(&mut self, host: &mut dyn Host, id: u64) {
        if let Some(object) = self.objects.all.get_mut(&id) {
            if let Err(error) = step(host, id, object) {
                (object.back, object.begun) = (None, object.wanted);
                host.log(&alloc::format!(
                    "what was changed in a mapped file could not be written back: error {}",
                    error.0
                ));
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

    /// Has these files in the file system as programs see them, however long that takes: before something reads them past their objects.
    pub fn settle_files(&mut self, host: &mut dyn Host, inos: &[u64]) {
        self.note_unused(host);
        while let Some(id) = self.objects.behind(inos) {
            self.settle_object(host, id);
        }
    }
}

/// Whether anybody can see the file of an object again when that is gone.
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

/// Puts bytes into an object that is known to have zeros there: pages of zeros take no memory.
fn put(host: &mut dyn Host, id: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    for (n, page) in bytes.chunks(PAGE as usize).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            let at = offset + n as u64 * PAGE;
            host.write_object(id, at, page).map_err(|_| ENOMEM)?;
        }
    }
    Ok(())
}

/// Writes the next [`STEP`] bytes back that are not in the file as they are in the object.
fn step(host: &mut dyn Host, id: u64, object: &mut Object) -> Result<(), Errno> {
    let (Some(file), Some(start)) = (&object.file, object.back) else {
        object.back = None;
        return Ok(());
    };
    let ino = file.ino;
    let Reply::Attr(attr) = host.fs_now(&Request::StatIno { ino }, &[], &mut [])?.0 else {
        return Err(EIO);
    };
    // There may be no memory for much: who is done with a mapping has asked for none.
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
    /// The object that it shows, if it is not the process's own memory.
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
    use super::{Loaded, MAX_PARTS, PAGE};
    use fastrand::Rng;

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
                // Those that touch are one.
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
