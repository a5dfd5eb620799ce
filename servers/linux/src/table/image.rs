//! Stopping, freezing, saving and rebuilding processes, each with its descendants.

use abi::Code;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use personality::host::OutOfMemory;
use personality::part::{self, Adopted, Gathered, Rebuilding, Refusal, Seated, What};
use personality::signal::{sig, Origin};
use personality::system::{Payer, Thing, Tid, To};
use process::held::Frozen;
use process::{account, Process};
use proto::Error;
use rt::obj::{Ref, ThreadAt};
use services::process::{keep, Named, Pid};

use super::{Adopting, Entry, Group, Living, Saving, Starter, Table, MAX_HOLDS};
use crate::disk;
use crate::world::{short, Memory, Seat, View};

impl Table {
    /// Freezes the tree of a process, or what [`What::set`] finds for it, and makes the part. `how` are bits of
    /// [`mod@keep`]. Returns the length of the part, the name of the process, and references to its regions. Either all
    /// of the tree is stopped before anything of it is looked at, or nothing is. [`Error::WouldBlock`]: it is frozen,
    /// and the part waits for files on a disk or for a turn ([`Table::frozen`]).
    pub(crate) fn freeze(&mut self, pid: Pid, how: u32) -> Result<Frozen, Error> {
        let what = What {
            root: pid,
            files: how & keep::FILES != 0,
            cut: how & keep::CUT != 0,
        };
        if self.proven(pid)?.saving.is_some() {
            return Err(Error::Limit);
        }
        if self.group(pid)?.ending.is_some() {
            return Err(Error::Ended);
        }
        let set = what.set(&self.system);
        let mut tree = set.clone();
        tree.retain(|pid| matches!(self.entries.get(pid), Some(Entry::Living(_))));
        for member in &tree {
            if self.proven(*member)?.frozen.is_some() {
                return Err(Error::Limit);
            }
            let one = self.one_of(*member).ok_or(Error::NotFound)?;
            if let Some(native) = &one.native {
                let name = short(&one.task.name());
                let sentence = format!("it stands for the native program {}", native.number());
                return Err(self.cannot_save((pid, *member), &name, &sentence));
            }
            if let Some(sentence) = self.traced_across(*member, &tree) {
                let name = short(&one.task.name());
                return Err(self.cannot_save((pid, *member), &name, &sentence));
            }
        }
        for (n, member) in tree.iter().enumerate() {
            if let Err(code) = self.stop_all(*member) {
                for member in &tree[..n] {
                    self.resume_all(*member);
                }
                return Err(rt::error_of(code));
            }
        }
        for member in tree {
            let group = self.group(member)?;
            group.frozen = Some(pid);
            self.debug_freeze(member);
            self.trace_freeze(member);
            self.hold_still(member);
        }
        self.make_part(pid, Saving::new(what, set))
    }

    /// The result of a `freeze` that waited; `WouldBlock` while it still does.
    pub(crate) fn frozen(&mut self, pid: Pid) -> Result<Frozen, Error> {
        let saving = &mut self.group(pid)?.saving;
        match saving.take() {
            None => Err(Error::Ended),
            Some(waits) if !waits.is_due => {
                *saving = Some(waits);
                Err(Error::WouldBlock)
            }
            Some(saving) => self.make_part(pid, saving),
        }
    }

    /// Undoes a `freeze` for whose result nobody waits any more.
    pub(crate) fn give_up_saving(&mut self, pid: Pid) {
        if self
            .group(pid)
            .is_ok_and(|group| group.saving.take().is_some())
        {
            self.world.disk.forget(disk::of_tree(pid));
            let _ = self.thaw(pid);
        }
    }

    /// Must be called before a process ends: whoever closes its descriptors must hold the last references. A tree that
    /// is saved with it is looked at again.
    pub(super) fn forget_saving_of(&mut self, pid: Pid) {
        let tids = self.tasks_of(pid);
        for entry in self.entries.values_mut() {
            if let Entry::Living(group) = entry {
                if let Some(saving) = &mut group.saving {
                    saving.gathered.forget_if_of(&tids);
                }
            }
        }
    }

    /// Tells whoever saves or rebuilds a tree that what it waited for, a file or its turn, has come.
    pub(super) fn tree_is_due(&mut self, root: Pid) {
        match self.entries.get_mut(&root) {
            Some(Entry::Living(group)) => {
                if let Some(saving) = &mut group.saving {
                    saving.is_due = true;
                }
            }
            Some(Entry::Adopting(adopting)) => adopting.is_due = true,
            _ => {}
        }
        self.announce(root);
    }

    /// Makes the part of a frozen tree, as far as its files are there. On failure the tree is thawed.
    fn make_part(&mut self, pid: Pid, mut saving: Box<Saving>) -> Result<Frozen, Error> {
        let made = match self.group(pid)?.dies {
            // Somebody has killed it meanwhile.
            true => Err(Error::Ended),
            false => self.try_part(pid, &mut saving),
        };
        match made {
            Err(Error::WouldBlock) => {
                saving.is_due = false;
                self.group(pid)?.saving = Some(saving);
            }
            Err(_) => {
                saving.gathered.forget_tasks();
                self.world.disk.forget(disk::of_tree(pid));
                let _ = self.thaw(pid);
            }
            Ok(_) => {}
        }
        made
    }

    fn try_part(&mut self, pid: Pid, saving: &mut Saving) -> Result<Frozen, Error> {
        let tree = self.look_at_set(saving);
        let ends = |pid: &Pid| self.ending.contains(pid);
        if tree.iter().any(ends) {
            // Processes that wait to be ended are not to be in the image.
            self.saving.push(pid);
            return Err(Error::WouldBlock);
        }
        if self.finish_calls(&tree) {
            return Err(Error::WouldBlock);
        }
        let name = self.one_of(pid).ok_or(Error::NotFound)?.task.name();
        let made = loop {
            self.world.disk.begin(disk::of_tree(pid));
            let made = self.save(&tree, saving);
            let waits = self.world.disk.end();
            match made {
                Err(Refusal::Later) if waits => return Err(Error::WouldBlock),
                Err(Refusal::Later) => saving.hold.set(saving.gathered.size())?,
                Err(Refusal::Turn) => {
                    saving.hold.set(saving.gathered.size())?;
                    self.saving.push(pid);
                    return Err(Error::WouldBlock);
                }
                made => break made,
            }
        };
        let (part, memories, objects, files) = made.map_err(|refusal| {
            let (other, is_elsewhere) = self.other(pid, &tree, &refusal);
            let sentence = refusal.sentence(&other, is_elsewhere);
            self.cannot_save((pid, pid), &short(&name), &sentence)
        })?;
        let regions = regions(memories.first())?;
        let group = self.group(pid)?;
        (group.part, group.memories, group.objects) = (part, memories, objects);
        group.files = files;
        let length = group.part.len() as u64;
        Ok((length, short(&name).into_bytes(), regions))
    }

    /// Says why process `pid` in the tree of `root` cannot be saved, to the log and to whoever saves the tree.
    fn cannot_save(&mut self, (root, pid): (Pid, Pid), name: &str, sentence: &str) -> Error {
        rt::log!("{name} ({pid}): cannot be saved: {sentence}");
        self.why = match pid == root {
            true => String::from(sentence),
            false => format!("{name} ({pid}): {sentence}"),
        };
        Error::Unsupported
    }

    /// Says why a tree cannot be restored, to the log and to whoever restores it.
    fn cannot_restore(&mut self, sentence: String) -> Error {
        rt::log!("a process cannot be restored: {sentence}");
        self.why = sentence;
        Error::BadFormat
    }

    /// Lets those calls of a tree that is being saved continue that have begun something on a disk which cannot be
    /// begun again: an image can only have a call made from the start. Returns whether there are any.
    fn finish_calls(&mut self, tree: &[Pid]) -> bool {
        let tids = tree.iter().flat_map(|pid| self.tasks_of(*pid));
        let begun: Vec<_> = tids.filter(|tid| self.world.disk.has_begun(*tid)).collect();
        for tid in &begun {
            if let Some(living) = self.tasks.get_mut(tid) {
                living.finishes = true;
                // The disk's answer may have come while the task was held.
                self.due.insert(*tid);
            }
        }
        !begun.is_empty()
    }

    /// If the call of a task that continued for [`Table::finish_calls`] is complete, or the task has ended, has the
    /// waiting saves look again.
    pub(super) fn finished(&mut self, tid: Tid) {
        if self.world.disk.has_begun(tid) {
            return;
        }
        if let Some(living) = self.tasks.get_mut(&tid) {
            living.finishes = false;
        }
        let waits = |entry: &Entry| match entry {
            Entry::Living(group) => group.saving.as_ref().is_some_and(|saving| !saving.is_due),
            _ => false,
        };
        let saved = self.entries.iter().filter(|(_, entry)| waits(entry));
        let saved: Vec<Pid> = saved.map(|(pid, _)| *pid).collect();
        for root in saved {
            self.tree_is_due(root);
        }
    }

    /// Name and regions of a further memory, or of a memory object, of a frozen tree.
    pub(crate) fn member(&mut self, pid: Pid, number: u32) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        let group = self.group(pid)?;
        let (memories, number) = (&group.memories, number as usize);
        let memory = memories.get(number).filter(|_| number > 0);
        if let Some((_, name)) = memory {
            return Ok((name.clone().into_bytes(), regions(memory)?));
        }
        let object = number.checked_sub(memories.len());
        let object = object.and_then(|number| group.objects.get(number).copied());
        let id = object.filter(|_| number > 0).ok_or(Error::NotFound)?;
        let object = self.world.find_object(id).ok_or(Error::Ended)?.borrow();
        let region = object.body().segment().region.copy();
        Ok((SHARED.into(), Vec::from([region.map_err(rt::error_of)?])))
    }

    /// The living ones of the processes that are being saved. Drops from the set those that are not frozen any more,
    /// and those that have ended without a parent in the set.
    fn look_at_set(&self, saving: &mut Saving) -> Vec<Pid> {
        let mut living = Vec::new();
        saving.set.retain(|pid| match self.entries.get(pid) {
            Some(Entry::Living(group)) => {
                let stands = group.frozen == Some(saving.what.root);
                living.extend(stands.then_some(*pid));
                stands
            }
            Some(Entry::Ended { .. }) => {
                let parent = self.system.find(*pid).and_then(|process| process.parent);
                parent.is_some_and(|parent| living.contains(&parent))
            }
            _ => false,
        });
        living
    }

    /// Makes the part of a tree, and lists its memories with their names.
    fn save(&mut self, tree: &[Pid], saving: &mut Saving) -> Result<Saved, Refusal> {
        let tasks = tree.iter().flat_map(|pid| self.tasks_of(*pid));
        let living = tasks.filter_map(|tid| self.tasks.get(&tid));
        let tasks: Vec<_> = living.map(|l| (l.seat.thread, &l.task)).collect();
        let entries = &self.entries;
        let known = |pid: Pid| match entries.get(&pid) {
            Some(Entry::Living(group)) => (group.first.as_ref().map(|s| s.thread), String::new()),
            Some(Entry::Ended { name, .. }) => (None, name.clone()),
            _ => (None, String::new()),
        };
        let what = (saving.what, &saving.set[..]);
        let mut view = View {
            root: saving.what.root,
            seat: None,
            world: &mut self.world,
        };
        let gathered = &mut saving.gathered;
        let made = part::save(what, gathered, &tasks, known, &self.system, &mut view)?;
        let memories = made.memories.iter().filter_map(|tid| {
            let living = self.tasks.get(tid)?;
            let name = short(&living.task.name());
            Some((Rc::downgrade(&living.seat.memory), name))
        });
        Ok((made.part, memories.collect(), made.objects, made.files))
    }

    /// Stops all threads of a process once more, or none.
    pub(super) fn stop_all(&mut self, pid: Pid) -> Result<(), Code> {
        let tasks = self.tasks_of(pid);
        for (n, tid) in tasks.iter().enumerate() {
            let stopped = self
                .tasks
                .get_mut(tid)
                .map_or(Ok(()), |living| living.stop());
            if stopped.is_err() {
                for tid in &tasks[..n] {
                    let _ = self.tasks.get(tid).map(|living| living.resume());
                }
                return stopped;
            }
        }
        Ok(())
    }

    pub(super) fn resume_all(&self, pid: Pid) {
        for tid in self.tasks_of(pid) {
            let _ = self.tasks.get(&tid).map(|living| living.resume());
        }
    }

    /// Notes for the tasks of a process whether it is held.
    pub(super) fn hold_still(&mut self, pid: Pid) {
        let held = self.group(pid).is_ok_and(|group| group.holds_still());
        for tid in self.tasks_of(pid) {
            if let Some(living) = self.tasks.get_mut(&tid) {
                living.finishes &= held;
                living.held = held || living.stays || living.traced;
                if let Some(native) = &mut living.native {
                    native.hold_still(held);
                }
            }
            if self.tasks.get(&tid).is_some_and(|living| living.held) {
                self.world.disk.stands_still(tid);
            }
            self.note_work(tid);
            self.schedule(tid);
        }
        self.schedule_alarm(pid);
    }

    /// Does what was put off while the process was held.
    pub(super) fn go_on(&mut self, pid: Pid) {
        self.hold_still(pid);
        for tid in self.tasks_of(pid) {
            if self
                .tasks
                .get(&tid)
                .is_some_and(|living| living.parked.is_some())
            {
                self.due.insert(tid);
            }
            self.deliver_signals_in_turn(tid);
        }
    }

    /// The process alone or, if it is the root of a tree, the whole tree: only the root gives power over the others.
    pub(super) fn together(&self, pid: Pid) -> Vec<Pid> {
        match self.system.find(pid) {
            Some(process) if process.root == pid => self.system.tree(pid),
            _ => Vec::from([pid]),
        }
    }

    /// Stops a process once more, or the whole tree of a root. If a part of a tree is frozen with the process,
    /// `SIGSTOP` stops that part instead, as its shell would, so that the shell can also continue it.
    pub(crate) fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        if self.stands_for_part(pid) {
            for member in self.frozen_with(pid) {
                let to = To::Process(member);
                self.system.send(to, sig::STOP, Origin::kernel());
            }
            return Ok(());
        }
        for pid in self.together(pid) {
            let Ok(group) = self.proven(pid) else {
                continue;
            };
            if group.frozen.is_some() {
                group.owed += 1;
            } else if self.stop_all(pid).is_err() {
                continue;
            }
            self.group(pid)?.stops += 1;
            self.hold_still(pid);
            self.announce(pid);
        }
        Ok(())
    }

    /// Undoes one `stop`.
    pub(crate) fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops == 0 {
            if self.stands_for_part(pid) {
                for member in self.frozen_with(pid) {
                    let to = To::Process(member);
                    self.system.send(to, sig::CONT, Origin::kernel());
                }
                return Ok(());
            }
            // What a signal has stopped continues as by `SIGCONT`, with all processes that would be saved with it.
            let cut = What {
                root: pid,
                files: false,
                cut: true,
            };
            let mut has_any = false;
            for pid in cut.set(&self.system) {
                has_any |= self.group(pid).is_ok() && self.continue_halted(pid);
            }
            return match has_any {
                true => Ok(()),
                false => Err(Error::Invalid),
            };
        }
        for pid in self.together(pid) {
            let stopped = self.proven(pid).ok().filter(|group| group.stops > 0);
            let Some(group) = stopped else { continue };
            group.stops -= 1;
            if group.frozen.is_some() {
                group.owed -= 1;
            } else {
                self.resume_all(pid);
            }
            self.go_on(pid);
            self.announce(pid);
        }
        Ok(())
    }

    /// At most `room` bytes of the part that `freeze` made, from `offset` on.
    pub(crate) fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        let group = self.group(pid)?;
        let start = usize::try_from(offset).map_err(|_| Error::Invalid)?;
        let rest = group.part.get(start..).ok_or(Error::Invalid)?;
        Ok(rest[..rest.len().min(room)].to_vec())
    }

    /// The files that the part of a frozen tree only names, from number `from` on, encoded in at most `room` bytes.
    pub(crate) fn files(&mut self, pid: Pid, from: u32, room: usize) -> Result<Vec<u8>, Error> {
        let files = &self.group(pid)?.files;
        Ok(Named::to_bytes(
            files.get(from as usize..).unwrap_or(&[]),
            room,
        ))
    }

    /// References to a frozen copy of a memory, or of a memory object, of a frozen tree.
    pub(crate) fn copy(&mut self, pid: Pid, number: u32) -> Result<Vec<Ref>, Error> {
        let job = self.holds.get(&pid).and_then(|hold| hold.job).unwrap_or(0);
        let group = self.group(pid)?;
        let (memories, number) = (&group.memories, number as usize);
        if let Some((memory, _)) = memories.get(number) {
            let memory = memory.upgrade().ok_or(Error::Ended)?;
            let supply = self.world.supply_of(account::copy)?;
            let memory = memory.borrow();
            let copies = &mut self.world.copies;
            return memory.body.freeze_memory(&supply, copies, job);
        }
        let object = group.objects.get(number - memories.len()).copied();
        let id = object.ok_or(Error::NotFound)?;
        let supply = self.world.supply_of(account::copy)?;
        let object = Rc::clone(self.world.find_object(id).ok_or(Error::Ended)?);
        let object = object.borrow();
        object.body().freeze(&supply, &mut self.world.copies, job)
    }

    /// Makes pages of a memory or memory object of a tree present that is being rebuilt.
    pub(crate) fn populate(
        &mut self,
        pid: Pid,
        member: u32,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        let member = member as usize;
        match self.entries.get(&pid) {
            Some(Entry::Adopting(adopting)) => {
                if let Some((_, body, _)) = adopting.bodies.get(member) {
                    return body.populate(control, offset, size);
                }
                let object = adopting.objects.get(member - adopting.bodies.len());
                let object = object.filter(|_| !control).ok_or(Error::Invalid)?;
                object.populate(offset, size)
            }
            Some(Entry::Living(group)) if group.unproven => {
                let memory = group.memories.get(member).and_then(|(m, _)| m.upgrade());
                let memory = memory.ok_or(Error::Invalid)?;
                let memory = memory.borrow();
                memory.body.populate(control, offset, size)
            }
            _ => Err(Error::Invalid),
        }
    }

    /// The group of a living process whose kernel objects have been checked.
    pub(super) fn proven(&mut self, pid: Pid) -> Result<&mut Group, Error> {
        let group = self.group(pid)?;
        if group.unproven {
            return Err(Error::Invalid);
        }
        Ok(group)
    }

    /// The other process because of which a tree cannot be saved, for people, and whether it is of another tree.
    fn other(&self, root: Pid, tree: &[Pid], refusal: &Refusal) -> (String, bool) {
        let other = match refusal {
            Refusal::Parent(other) => Some(*other),
            Refusal::Because(_) | Refusal::Later | Refusal::Turn => None,
            Refusal::Shared(_) => {
                let tasks = || self.tasks.values().map(|living| &living.task);
                let own = tasks().filter(|task| tree.contains(&task.pid));
                let common = part::Common::of(own, &self.system);
                let mut others = tasks().filter(|task| !tree.contains(&task.pid));
                let other = others.find(|other| common.has(other, &self.system));
                other.map(|other| other.pid)
            }
        };
        let other = other.filter(|other| *other != root);
        let of = |pid: Pid| self.system.find(pid).map(|process| process.root);
        let is_elsewhere = other.is_some_and(|other| of(other) != of(root));
        let name = match other.and_then(|pid| Some((pid, self.entries.get(&pid)?))) {
            Some((pid, Entry::Living(_))) => {
                let name = self.one_of(pid).map(|living| short(&living.task.name()));
                format!("{} ({pid})", name.unwrap_or_default())
            }
            Some((pid, Entry::Ended { name, .. })) => {
                format!("{} ({pid}), which has ended", short(name))
            }
            _ => String::from("another process"),
        };
        (name, is_elsewhere)
    }

    /// Lets a process run that was rebuilt.
    pub(crate) fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        match self.group(pid)?.unproven {
            true => self.thaw(pid),
            false => Err(Error::Invalid),
        }
    }

    /// The processes that are frozen with this one.
    fn frozen_with(&self, pid: Pid) -> Vec<Pid> {
        let is = |entry: &Entry| match entry {
            Entry::Living(group) => group.frozen == Some(pid),
            _ => false,
        };
        let all = self.entries.iter().filter(|(_, entry)| is(entry));
        all.map(|(pid, _)| *pid).collect()
    }

    /// Whether a part of a tree is frozen with this process, which is not the root.
    pub(super) fn stands_for_part(&mut self, pid: Pid) -> bool {
        let is_root = self.system.find(pid).is_some_and(|p| p.root == pid);
        !is_root && self.group(pid).is_ok_and(|group| group.frozen == Some(pid))
    }

    /// Undoes one `freeze`.
    pub(crate) fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        let tree = self.frozen_with(pid);
        if tree.is_empty() {
            return Err(Error::Invalid);
        }
        let unproven = self.group(pid).is_ok_and(|group| group.unproven);
        if unproven && self.prove(&tree).is_err() {
            for pid in tree {
                self.end_by(pid, sig::KILL as u8);
            }
            return Err(self.cannot_restore("it has not all of its objects".into()));
        }
        for pid in &tree {
            let group = self.group(*pid)?;
            group.frozen = None;
            let owed = core::mem::take(&mut group.owed);
            if let Some(saving) = &mut group.saving {
                saving.gathered.forget_tasks();
            }
            (group.part, group.memories) = (Vec::new(), Vec::new());
            (group.objects, group.files) = (Vec::new(), Vec::new());
            self.debug_thaw(*pid);
            self.trace_thaw(*pid);
            self.settle_stops(*pid, owed);
            self.resume_all(*pid);
        }
        for pid in tree {
            self.go_on(pid);
            self.announce(pid);
        }
        Ok(())
    }

    /// Gives the threads of a process the stops that came while it was frozen, or undoes those that ended then.
    fn settle_stops(&mut self, pid: Pid, owed: i32) {
        for _ in owed..0 {
            self.resume_all(pid);
        }
        for _ in 0..owed {
            if self.stop_all(pid).is_err() {
                if let Ok(group) = self.group(pid) {
                    group.stops = group.stops.saturating_sub(1);
                }
            }
        }
    }

    /// Checks that the kernel objects of rebuilt processes (spaces, threads, mappings) exist. The processes are then
    /// like all others.
    fn prove(&mut self, tree: &[Pid]) -> Result<(), Code> {
        // Each memory, with those of its threads that belong to a task or to the process itself.
        let mut memories: Vec<(Rc<RefCell<Memory>>, Vec<ThreadAt>)> = Vec::new();
        for pid in tree {
            let first = match self.entries.get(pid) {
                Some(Entry::Living(group)) => group.first.as_ref(),
                _ => None,
            };
            let tasks = self.tasks_of(*pid);
            let living = tasks.iter().filter_map(|tid| self.tasks.get(tid));
            for seat in living.map(|living| &living.seat).chain(first) {
                let known = |(memory, _): &&mut (_, _)| Rc::ptr_eq(memory, &seat.memory);
                match memories.iter_mut().find(known) {
                    Some((_, own)) => own.push(seat.thread()),
                    None => {
                        let mut memory = seat.memory.borrow_mut();
                        if !memory.body.has_objects() {
                            return Err(Code::Dead);
                        }
                        memory.body.learn().map_err(|_| Code::Dead)?;
                        drop(memory);
                        let memory = Rc::clone(&seat.memory);
                        let own = Vec::from([memory.borrow().body.thread(), seat.thread()]);
                        memories.push((memory, own));
                    }
                }
            }
        }
        for pid in tree {
            if !self.one_of(*pid).ok_or(Code::Dead)?.has_mappings() {
                return Err(Code::Dead);
            }
            let mut stops = u32::MAX;
            for tid in self.tasks_of(*pid) {
                let living = self.tasks.get(&tid).ok_or(Code::Dead)?;
                // The tag lets exceptions of the thread find the task.
                stops = stops.min(living.claim()?);
                self.set_clock(living).map_err(|_| Code::NoMemory)?;
            }
            let group = self.group(*pid).map_err(|_| Code::Dead)?;
            group.unproven = false;
            // Stops in the image besides the checkpoint's stay in effect.
            group.halted &= stops > 0;
            group.stops = stops - u32::from(group.halted);
            let is_stopped = self.system.find(*pid).is_some_and(|p| p.stopped.is_some());
            if is_stopped && stops == 0 {
                // It was about to be stopped when it was saved.
                self.halting.push(*pid);
            }
        }
        // Threads of no task must not run.
        for (memory, own) in memories {
            let others = memory.borrow().body.threads();
            for thread in others.iter().filter(|thread| !own.contains(thread)) {
                thread.destroy()?;
            }
        }
        Ok(())
    }

    /// Corrects the clock that the vDSO of a restored task reads, and changes its number, so that a reading in progress
    /// is repeated. Done for each task, although several may share the memory: any change of the number will do.
    fn set_clock(&self, living: &Living) -> Result<(), OutOfMemory> {
        let shared = living.task.shares.memory.borrow();
        let Some(clock) = self.world.clock().filter(|_| shared.areas.have_clock()) else {
            return Ok(());
        };
        let clock = vdso::Clock {
            offset: living.task.clock_offset,
            ..clock
        };
        let mut memory = living.seat.memory.borrow_mut();
        let at = personality::memory::VDSO + vdso::CLOCK;
        let mut number = [0; 8];
        memory.read(at, &mut number)?;
        let number = u64::from_le_bytes(number).wrapping_add(1);
        memory.write(at, &clock.to_bytes(number))
    }

    /// Makes a process to be rebuilt: with empty segments, a space and a thread. Returns its number and references.
    pub(crate) fn adopt(
        &mut self,
        (owner, job): (Ref, Option<Pid>),
    ) -> Result<(Pid, Vec<Ref>), Error> {
        let pid = self.new_pid(job)?;
        let starter = Starter {
            owner: Some(owner),
            ..Starter::default()
        };
        self.hold(pid, starter, job);
        let adopted = self.adopt_as(pid);
        if adopted.is_err() {
            self.forget(pid);
        }
        adopted.map(|references| (pid, references))
    }

    fn adopt_as(&mut self, pid: Pid) -> Result<Vec<Ref>, Error> {
        let (id, port, space) = self.world.new_keeper(0)?;
        let keeper = port.reference().map_err(rt::error_of)?;
        let control = self.control(pid)?;
        let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
        let regions = match regions_of(&body) {
            Ok(regions) => regions,
            Err(error) => {
                body.destroy();
                return Err(error);
            }
        };
        let adopting = Adopting {
            bytes: Vec::new(),
            rebuilding: None,
            clock_offset: 0,
            is_due: false,
            bodies: Vec::from([(id, body, port)]),
            objects: Vec::new(),
        };
        self.entries
            .insert(pid, Entry::Adopting(Box::new(adopting)));
        Ok([control, keeper].into_iter().chain(regions).collect())
    }

    /// Adds a memory or (`shared`) a memory object to a tree that is to be rebuilt. Returns its number and references.
    pub(crate) fn adopt_member(
        &mut self,
        pid: Pid,
        shared: bool,
    ) -> Result<(u32, Vec<Ref>), Error> {
        let payer = self.system.find(pid).map(|p| p.payer);
        if shared {
            return self.adopt_object(pid, payer);
        }
        // Each memory will have at least one process, so memories of the payer that have none yet count as processes.
        let mut further = 0;
        for (other, entry) in &self.entries {
            let is_payers = || self.system.find(*other).map(|p| p.payer) == payer;
            match entry {
                Entry::Adopting(adopting) if is_payers() => further += adopting.bodies.len() - 1,
                _ => {}
            }
        }
        let left = payer.map_or(0, |payer| self.system.left(payer));
        self.adopting(pid)?;
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Err(Error::Invalid);
        };
        if further >= left {
            return Err(Error::Limit);
        }
        if !adopting.objects.is_empty() {
            // Memory objects are numbered behind all memories.
            return Err(Error::Invalid);
        }
        let number = adopting.bodies.len();
        self.world.room.add(64 << 10)?;
        let (id, port, space) = self.world.new_keeper(0)?;
        let keeper = port.reference().map_err(rt::error_of)?;
        let (_, root, _) = adopting.bodies.first().ok_or(Error::Invalid)?;
        let body = root.beside(&space, &keeper)?;
        let regions = match regions_of(&body) {
            Ok(regions) => regions,
            Err(error) => {
                body.destroy();
                return Err(error);
            }
        };
        adopting.bodies.push((id, body, port));
        let references = regions.into_iter().chain([keeper]).collect();
        Ok((number as u32, references))
    }

    fn adopt_object(&mut self, pid: Pid, payer: Option<Payer>) -> Result<(u32, Vec<Ref>), Error> {
        let payer = payer.ok_or(Error::Invalid)?;
        // Objects of the payer that are not in the emulation's table yet count, too.
        let further = self.entries.iter().map(|(other, entry)| match entry {
            Entry::Adopting(adopting)
                if self.system.find(*other).is_some_and(|p| p.payer == payer) =>
            {
                adopting.objects.len()
            }
            _ => 0,
        });
        let further: usize = further.sum();
        let mut is_full = further >= self.system.left_things(Thing::Object, payer);
        if is_full {
            // Objects of a tree that has just ended may still be there.
            let mut view = View {
                root: pid,
                seat: None,
                world: &mut self.world,
            };
            is_full = !self.system.end_unused(&mut view, payer);
        }
        self.adopting(pid)?;
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Err(Error::Invalid);
        };
        if is_full {
            return Err(Error::Limit);
        }
        self.world.room.add(64 << 10)?;
        let (_, root, _) = adopting.bodies.first().ok_or(Error::Invalid)?;
        let object = root.common()?;
        let region = object.segment().region.copy().map_err(rt::error_of)?;
        adopting.objects.push(object);
        let number = adopting.bodies.len() + adopting.objects.len() - 1;
        Ok((number as u32, Vec::from([region])))
    }

    /// Adds bytes to the part of a tree that is being rebuilt. When all have come the part is checked, and the tree is
    /// taken into the table, frozen.
    pub(crate) fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        bulk: &[u8],
    ) -> Result<(), Error> {
        // Only one part at a time is read for each job.
        let job = self.holds.get(&pid).and_then(|hold| hold.job);
        let other = |(other, entry): (&Pid, &Entry)| {
            matches!(entry, Entry::Adopting(a) if a.has_begun())
                && *other != pid
                && self.holds.get(other).and_then(|hold| hold.job) == job
        };
        if self.entries.iter().any(other) {
            return Err(Error::Limit);
        }
        let end = self.adopting(pid)?.bytes.len() as u64 + bulk.len() as u64;
        // While the bytes grow both the old and the new buffer are there; at the end the decoded part is, too.
        self.world.room.add(6 * end.min(part::MAX_PART))?;
        let adopting = self.adopting(pid)?;
        if offset != adopting.bytes.len() as u64 || end > length || length > part::MAX_PART {
            self.abandon(pid);
            return Err(Error::BadFormat);
        }
        adopting.bytes.extend_from_slice(bulk);
        adopting.clock_offset = clock_offset;
        if end < length {
            return Ok(());
        }
        let made = self.begin_rebuilding(pid);
        self.go_on_rebuilding(pid, made)
    }

    /// A tree that is being rebuilt and whose part is not complete. After that it must not be changed.
    fn adopting(&mut self, pid: Pid) -> Result<&mut Adopting, Error> {
        match self.entries.get_mut(&pid) {
            Some(Entry::Adopting(adopting)) if adopting.rebuilding.is_none() => Ok(adopting),
            _ => Err(Error::Invalid),
        }
    }

    /// The result of a `rebuild` that waited; `WouldBlock` while it still does.
    pub(crate) fn rebuilt(&mut self, pid: Pid) -> Result<(), Error> {
        match self.entries.get(&pid) {
            Some(Entry::Adopting(adopting)) if !adopting.is_due => Err(Error::WouldBlock),
            Some(Entry::Adopting(_)) => self.go_on_rebuilding(pid, Ok(())),
            _ => Err(Error::Ended),
        }
    }

    /// Checks the part of a tree, which is complete.
    fn begin_rebuilding(&mut self, pid: Pid) -> Result<(), String> {
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Ok(());
        };
        let bytes = core::mem::take(&mut adopting.bytes);
        let text = |error: Error| String::from(error.text());
        for (_, body, _) in &adopting.bodies {
            body.set_clock(adopting.clock_offset).map_err(text)?;
        }
        let counts = (adopting.bodies.len(), adopting.objects.len());
        let hold = rt::heap::Hold::new(2 * bytes.len() as u64).map_err(text)?;
        let mut view = View {
            root: pid,
            seat: None,
            world: &mut self.world,
        };
        adopting.rebuilding = Some((Rebuilding::new(&bytes, counts, &mut view)?, hold));
        Ok(())
    }

    /// Opens the files of a tree, as far as they are there, and takes the tree into the table once all are. Ends it if
    /// the part is invalid.
    fn go_on_rebuilding(&mut self, pid: Pid, begun: Result<(), String>) -> Result<(), Error> {
        match begun.and_then(|()| self.open_files(pid)) {
            Ok(None) => Err(Error::WouldBlock),
            Ok(Some(adopted)) => self.seat(pid, adopted),
            Err(sentence) => {
                self.abandon(pid);
                Err(self.cannot_restore(sentence))
            }
        }
    }

    fn open_files(&mut self, pid: Pid) -> Result<Option<Adopted>, String> {
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Ok(None);
        };
        adopting.is_due = false;
        let Some((rebuilding, _)) = &mut adopting.rebuilding else {
            return Ok(None);
        };
        let mut view = View {
            root: pid,
            seat: None,
            world: &mut self.world,
        };
        loop {
            view.world.disk.begin(disk::of_tree(pid));
            let open = rebuilding.open(&mut view);
            let waits = view.world.disk.end();
            match open {
                Ok(()) => break,
                Err(Refusal::Later) if waits => return Ok(None),
                Err(Refusal::Later) => {}
                Err(Refusal::Turn) => {
                    self.saving.push(pid);
                    return Ok(None);
                }
                Err(refusal) => return Err(refusal.sentence("", false)),
            }
        }
        if !rebuilding.bind(pid, &mut self.system, &mut view)? {
            return Ok(None);
        }
        let clock_offset = adopting.clock_offset;
        let rebuilding = adopting.rebuilding.take();
        let objects = core::mem::take(&mut adopting.objects);
        view.world.adopted = objects.into_iter().map(Some).collect();
        let made = rebuilding
            .map(|(all, _)| all.finish(clock_offset, pid, &mut self.system, &mut view))
            .transpose();
        self.world.adopted.clear();
        made
    }

    /// Gives up a tree of which two tasks have one identity, and closes what its tasks have open.
    #[cold]
    fn refuse(&mut self, root: Pid, adopted: Adopted) -> Error {
        let mut view = View {
            root,
            seat: None,
            world: &mut self.world,
        };
        for mut seated in adopted.tasks {
            seated.task.close_files(&mut self.system, &mut view);
        }
        for member in adopted.members.iter().filter(|member| member.pid != root) {
            self.system.forget(member.pid);
        }
        self.abandon(root);
        self.cannot_restore("two of its tasks are one".into())
    }

    /// Takes an adopted tree into the table, frozen.
    fn seat(&mut self, root: Pid, adopted: Adopted) -> Result<(), Error> {
        let mut tids = BTreeSet::new();
        let mut all = adopted.tasks.iter().map(|seated| seated.task.tid);
        if !all.all(|tid| tids.insert(tid) && !self.tasks.contains_key(&tid)) {
            return Err(self.refuse(root, adopted));
        }
        let Some(Entry::Adopting(adopting)) = self.entries.remove(&root) else {
            return Err(Error::Invalid);
        };
        let job = self.holds.get(&root).and_then(|hold| hold.job);
        let bodies = adopting.bodies.into_iter();
        let seats: Vec<Seat> = bodies
            .map(|(keeper, body, port)| Seat::first(keeper, body, port))
            .collect();
        // The check of the part has seen to it that each task's memory exists.
        let at = |memory: usize, place: u64| seats[memory.min(seats.len() - 1)].beside(place);
        let mut names = alloc::vec![String::new(); seats.len()];
        for Seated {
            memory,
            place,
            task,
        } in adopted.tasks
        {
            if let Some(name) = names.get_mut(memory) {
                if name.is_empty() {
                    let areas = &task.shares.memory.borrow().areas;
                    let mut of = seats[memory].memory.borrow_mut();
                    of.learn_ranges(areas, &self.world);
                }
                *name = short(&task.name());
            }
            let mut living = Living::new(task, at(memory, place));
            living.held = true;
            // The image does not include the stop of the tracer.
            living.traced = self.system.is_trace_stopped(living.task.tid);
            self.tasks.insert(living.task.tid, Box::new(living));
        }
        for member in adopted.members {
            let entry = match member.ended {
                Some((status, name)) => Entry::ended(status, name),
                None => Entry::Living(Box::new(Group {
                    frozen: Some(root),
                    unproven: true,
                    halted: member.is_stopped,
                    // The first thread, if its task has ended, belongs to no task.
                    first: member.first.map(|(memory, place)| at(memory, place)),
                    ..Group::default()
                })),
            };
            self.entries.insert(member.pid, entry);
            if member.pid != root {
                self.hold(member.pid, Starter::default(), job);
            }
        }
        let memories = seats.iter().map(|seat| Rc::downgrade(&seat.memory));
        self.group(root)?.memories = memories.zip(names).collect();
        Ok(())
    }
}

impl Saving {
    fn new(what: What, set: Vec<Pid>) -> Box<Self> {
        Box::new(Saving {
            what,
            set,
            gathered: Gathered::default(),
            is_due: false,
            hold: rt::heap::Hold::default(),
        })
    }
}

impl Adopting {
    /// Whether some of its part has come.
    fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.rebuilding.is_some()
    }
}

/// A part; the memories in it with their names; its memory objects; and the files that it only names.
type Saved = (
    Vec<u8>,
    Vec<(Weak<RefCell<Memory>>, String)>,
    Vec<u64>,
    Vec<Named>,
);

/// The name of memory objects in an image.
const SHARED: &str = "shared memory";

/// References to the regions of a memory: of its contents, and of its control segment.
fn regions(memory: Option<&(Weak<RefCell<Memory>>, String)>) -> Result<Vec<Ref>, Error> {
    let memory = memory.and_then(|(memory, _)| memory.upgrade());
    let memory = memory.ok_or(Error::Ended)?;
    let memory = memory.borrow();
    Ok(regions_of(&memory.body)?.into())
}

pub(super) fn regions_of(body: &Process) -> Result<[Ref; 2], Error> {
    let memory = body.memory().region.copy().map_err(rt::error_of)?;
    let control = body.control().region.copy().map_err(rt::error_of)?;
    Ok([memory, control])
}
