//! Stopping, freezing and saving processes, and rebuilding them.

use abi::Code;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use personality::part::{self, Refusal};
use personality::signal::sig;
use process::Process;
use proto::layout::CONTROL_THREAD;
use proto::Error;
use rt::obj::Ref;
use services::process::Pid;

use super::{Adopting, Entry, Group, Living, Table, MAX_HOLDS};
use crate::world::{short, Seat, View};

impl Table {
    /// Freezes a process and makes its part: the length of that, the name, and references.
    pub(crate) fn freeze(&mut self, pid: Pid) -> Result<(u64, Vec<u8>, Vec<Ref>), Error> {
        if self.proven(pid)?.frozen >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        let one = self.one_of(pid).ok_or(Error::NotFound)?;
        let name = short(&one.task.name());
        let first = self.seat_of_first(pid).ok_or(Error::Broken)?;
        if first.thread != CONTROL_THREAD && Rc::strong_count(&first.memory) == self.places(pid) {
            rt::log!(
                "{name} ({pid}): cannot be saved: it is in the memory of a process that has ended"
            );
            return Err(Error::Unsupported);
        }
        let regions = {
            let memory = first.memory.borrow();
            let region = memory.body.memory().region.copy().map_err(rt::error_of)?;
            let control = memory.body.control().region.copy().map_err(rt::error_of)?;
            Vec::from([region, control])
        };
        self.stop_all(pid).map_err(rt::error_of)?;
        match self.save(pid) {
            Ok(part) => self.group(pid)?.part = part,
            Err(refusal) => {
                self.resume_all(pid);
                let other = self.other(pid, &refusal);
                rt::log!(
                    "{name} ({pid}): cannot be saved: {}",
                    refusal.sentence(&other)
                );
                return Err(Error::Unsupported);
            }
        }
        let group = self.group(pid)?;
        group.frozen += 1;
        let length = group.part.len() as u64;
        self.hold_still(pid);
        Ok((length, name.into_bytes(), regions))
    }

    /// Where the first task of a process is, or was.
    fn seat_of_first(&self, pid: Pid) -> Option<&Seat> {
        match self.entries.get(&pid)? {
            Entry::Living(Group {
                first: Some(seat), ..
            }) => Some(seat),
            _ => self.one_of(pid).map(|living| &living.seat),
        }
    }

    /// How many threads a process has, its first one included if that has ended.
    fn places(&self, pid: Pid) -> usize {
        let first = matches!(self.entries.get(&pid), Some(Entry::Living(g)) if g.first.is_some());
        self.tasks_of(pid).len() + usize::from(first)
    }

    /// What is saved of a process.
    fn save(&mut self, pid: Pid) -> Result<Vec<u8>, Refusal> {
        let tasks = self.tasks_of(pid);
        let living = tasks.iter().filter_map(|tid| self.tasks.get(tid));
        let tasks: Vec<_> = living.map(|l| (l.seat.thread, &l.task)).collect();
        let mut view = View {
            root: pid,
            seat: None,
            world: &mut self.world,
        };
        part::save(&tasks, &self.system, &mut view)
    }

    /// Stops all threads of a process once more, or none.
    pub(super) fn stop_all(&self, pid: Pid) -> Result<(), Code> {
        let tasks = self.tasks_of(pid);
        for (n, tid) in tasks.iter().enumerate() {
            let stopped = self.tasks.get(tid).map_or(Ok(()), |living| living.stop());
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

    /// Notes for the tasks of a process whether it is frozen or stopped.
    pub(super) fn hold_still(&mut self, pid: Pid) {
        let held = self.group(pid).is_ok_and(|group| group.holds_still());
        for tid in self.tasks_of(pid) {
            if let Some(living) = self.tasks.get_mut(&tid) {
                living.held = held;
            }
            if held {
                self.world.disk.stands_still(tid);
            }
            self.schedule(tid);
        }
        self.schedule_alarm(pid);
    }

    /// Does what was held back while the process was stopped or frozen.
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
            self.deliver_signals(tid);
        }
    }

    /// The process, and if others have no power over it but through the root of its tree, all that are in that.
    pub(super) fn together(&self, pid: Pid) -> Vec<Pid> {
        match self.system.find(pid) {
            Some(process) if process.root == pid => self.system.tree(pid),
            _ => Vec::from([pid]),
        }
    }

    /// Stops a process once more; the root of a tree with all that are in that.
    pub(crate) fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops >= MAX_HOLDS {
            return Err(Error::Limit);
        }
        for pid in self.together(pid) {
            if self.proven(pid).is_ok() && self.stop_all(pid).is_ok() {
                self.group(pid)?.stops += 1;
                self.hold_still(pid);
                self.announce(pid);
            }
        }
        Ok(())
    }

    /// Undoes one `stop`.
    pub(crate) fn resume(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.stops == 0 {
            // What a signal has stopped goes on as by a signal.
            return match self.continue_halted(pid) {
                true => Ok(()),
                false => Err(Error::Invalid),
            };
        }
        for pid in self.together(pid) {
            let stopped = self.proven(pid).ok().filter(|group| group.stops > 0);
            let Some(group) = stopped else { continue };
            group.stops -= 1;
            self.resume_all(pid);
            self.go_on(pid);
            self.announce(pid);
        }
        Ok(())
    }

    /// What `freeze` made, from the offset on.
    pub(crate) fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        let group = self.group(pid)?;
        let start = usize::try_from(offset).map_err(|_| Error::Invalid)?;
        let rest = group.part.get(start..).ok_or(Error::Invalid)?;
        Ok(rest[..rest.len().min(room)].to_vec())
    }

    /// Makes pages of a process present that is being rebuilt.
    pub(crate) fn populate(
        &mut self,
        pid: Pid,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        match self.entries.get(&pid) {
            Some(Entry::Adopting(adopting)) => adopting.body.populate(control, offset, size),
            Some(Entry::Living(group)) if group.unproven => {
                let first = self.seat_of_first(pid).ok_or(Error::Broken)?;
                let memory = first.memory.borrow();
                memory.body.populate(control, offset, size)
            }
            _ => Err(Error::Invalid),
        }
    }

    /// A living process whose objects are known to be there.
    fn proven(&mut self, pid: Pid) -> Result<&mut Group, Error> {
        let group = self.group(pid)?;
        if group.unproven {
            return Err(Error::Invalid);
        }
        Ok(group)
    }

    /// The process because of which another one cannot be saved, for people.
    fn other(&self, pid: Pid, refusal: &Refusal) -> String {
        let other = match refusal {
            Refusal::Child(other) | Refusal::Parent(other) => Some(*other),
            Refusal::Because(_) => None,
            Refusal::Shared(_) => match self.entries.get(&pid) {
                Some(Entry::Living(_)) => self.one_of(pid).and_then(|one| {
                    let others = self.tasks.values().map(|other| &other.task);
                    let mut others = others.filter(|other| other.pid != pid);
                    let other = others.find(|other| part::share(&one.task, other))?;
                    Some(other.pid)
                }),
                _ => None,
            },
        };
        match other.and_then(|pid| Some((pid, self.entries.get(&pid)?))) {
            Some((pid, Entry::Living(_))) => {
                let name = self.one_of(pid).map(|living| short(&living.task.name()));
                format!("{} ({pid})", name.unwrap_or_default())
            }
            Some((pid, Entry::Ended { name, .. })) => {
                format!("{} ({pid}), which has ended", short(name))
            }
            _ => String::from("another process"),
        }
    }

    /// Lets a process go that was rebuilt.
    pub(crate) fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        match self.group(pid)?.unproven {
            true => self.thaw(pid),
            false => Err(Error::Invalid),
        }
    }

    /// Undoes one `freeze`.
    pub(crate) fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        let group = self.group(pid)?;
        if group.frozen == 0 {
            return Err(Error::Invalid);
        }
        if group.unproven && self.prove(pid).is_err() {
            rt::log!("a restored process has not all of its objects");
            self.end_by(pid, sig::KILL as u8);
            return Err(Error::BadFormat);
        }
        let group = self.group(pid)?;
        group.frozen -= 1;
        if group.frozen == 0 {
            group.part = Vec::new();
        }
        self.resume_all(pid);
        self.go_on(pid);
        self.announce(pid);
        Ok(())
    }

    /// Whether space, threads and mappings are there. From now on it is one like all others.
    fn prove(&mut self, pid: Pid) -> Result<(), Code> {
        let first = self.seat_of_first(pid).ok_or(Code::Dead)?;
        let mut own = Vec::from([first.thread()?]);
        {
            let mut memory = first.memory.borrow_mut();
            if !memory.body.has_objects() {
                return Err(Code::Dead);
            }
            memory.body.learn().map_err(|_| Code::Dead)?;
        }
        if !self.one_of(pid).ok_or(Code::Dead)?.has_mappings() {
            return Err(Code::Dead);
        }
        let mut stops = 0;
        for tid in self.tasks_of(pid) {
            let living = self.tasks.get(&tid).ok_or(Code::Dead)?;
            // Its exceptions say whose they are.
            stops = living.claim()?;
            own.push(living.thread()?);
        }
        // Threads of nobody are not let go.
        let memory = self.seat_of_first(pid).ok_or(Code::Dead)?.memory.borrow();
        let others = memory.body.threads();
        for thread in others.iter().filter(|thread| !own.contains(thread)) {
            thread.destroy()?;
        }
        drop(memory);
        let group = self.group(pid).map_err(|_| Code::Dead)?;
        group.unproven = false;
        // What it was stopped for besides the checkpoint goes on being so.
        group.stops = stops;
        Ok(())
    }

    /// A process to be rebuilt: with a space and a thread, and nothing else.
    pub(crate) fn adopt(
        &mut self,
        (owner, job): (Ref, Option<Pid>),
    ) -> Result<(Pid, Vec<Ref>), Error> {
        let pid = self.new_pid(job)?;
        self.hold(pid, Some(owner), job);
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
        let regions = (body.memory().region.copy(), body.control().region.copy());
        let (Ok(memory), Ok(segment)) = regions else {
            body.destroy();
            return Err(Error::NoMemory);
        };
        let adopting = Adopting {
            bytes: Vec::new(),
            keeper: id,
            body,
            port,
        };
        self.entries
            .insert(pid, Entry::Adopting(Box::new(adopting)));
        Ok(Vec::from([control, keeper, memory, segment]))
    }

    /// A piece of the part of a process that is being rebuilt. When all is there it is checked, and the process
    /// is one of ours, frozen.
    pub(crate) fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        bulk: &[u8],
    ) -> Result<(), Error> {
        // One part at a time, for each job.
        let job = self.holds.get(&pid).and_then(|hold| hold.job);
        let other = |(other, entry): (&Pid, &Entry)| {
            matches!(entry, Entry::Adopting(a) if !a.bytes.is_empty())
                && *other != pid
                && self.holds.get(other).and_then(|hold| hold.job) == job
        };
        if self.entries.iter().any(other) {
            return Err(Error::Limit);
        }
        let Some(Entry::Adopting(adopting)) = self.entries.get_mut(&pid) else {
            return Err(Error::Invalid);
        };
        let end = adopting.bytes.len() as u64 + bulk.len() as u64;
        // It grows while both lengths are there, and so does what is decoded of it in the end.
        self.world.room.add(6 * end.min(part::MAX_PART))?;
        if offset != adopting.bytes.len() as u64 || end > length || length > part::MAX_PART {
            self.abandon(pid);
            return Err(Error::BadFormat);
        }
        adopting.bytes.extend_from_slice(bulk);
        if end < length {
            return Ok(());
        }
        let mut view = View {
            root: pid,
            seat: None,
            world: &mut self.world,
        };
        let system = &mut self.system;
        let adopted = adopting
            .body
            .set_clock(clock_offset)
            .map_err(|error| String::from(error.text()))
            .and_then(|()| part::adopt(&adopting.bytes, clock_offset, pid, system, &mut view));
        let adopted = match adopted {
            Ok(adopted) => adopted,
            Err(sentence) => {
                rt::log!("a process cannot be restored: {sentence}");
                self.abandon(pid);
                return Err(Error::BadFormat);
            }
        };
        let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) else {
            return Err(Error::Invalid);
        };
        let Adopting {
            body, port, keeper, ..
        } = *adopting;
        let first = Seat::first(keeper, body, port);
        for (thread, task) in adopted {
            let seat = first.beside(thread);
            let mut living = Living::new(task, seat);
            living.held = true;
            self.tasks.insert(living.task.tid, Box::new(living));
        }
        let group = Group {
            frozen: 1,
            unproven: true,
            // Its first thread, if that has ended, is nobody's.
            first: (!self.tasks_of(pid).contains(&pid)).then_some(first),
            ..Group::default()
        };
        self.entries.insert(pid, Entry::Living(group));
        Ok(())
    }
}
