//! The end of processes and of single threads.

use alloc::string::String;
use personality::calls::futex::MAX_ROBUST;
use personality::emulate;
use personality::signal::{sig, Origin};
use personality::system::{Tid, To};
use proto::Error;
use services::process::{Pid, Status};

use super::{Entry, Living, Table, Timer, CLOSES, PROCESS_CLOSES, TASK_CLOSES};
use crate::clock;
use crate::disk;
use crate::world::View;

impl Table {
    /// Forgets a process, whose number is then free again.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.announce(pid);
        self.entries.remove(&pid);
        self.holds.remove(&pid);
        let root = self.system.forget(pid).map_or(pid, |process| process.root);
        let is_reaped = matches!(
            self.entries.get(&root),
            Some(Entry::Ended { reaped: true, .. })
        );
        if is_reaped && !self.runs_on(root) {
            self.forget(root);
        }
    }

    /// Whether other processes live in the tree of this root.
    fn runs_on(&self, root: Pid) -> bool {
        let tree = self.system.tree(root);
        let is_living = |pid: &Pid| matches!(self.entries.get(pid), Some(Entry::Living(_)));
        tree.iter().any(|pid| *pid != root && is_living(pid))
    }

    /// Removes a task from the table.
    fn remove_task(&mut self, tid: Tid) -> Option<Living> {
        self.unpark(tid);
        self.world.disk.forget(tid);
        self.world.peers.remove(&tid);
        let mut living = self.tasks.remove(&tid)?;
        self.system.task_runs(&mut living.task, false, clock::now);
        if living.finishes {
            self.finished(tid);
        }
        if let Some(timer) = living.timer {
            self.timers.remove(&(timer, Timer::Call(tid)));
        }
        Some(*living)
    }

    /// Removes a task that has ended while others of its process go on.
    pub(super) fn leave(&mut self, tid: Tid) {
        let Some(Living { task, seat, .. }) = self.remove_task(tid) else {
            return;
        };
        if tid != task.pid {
            seat.leave();
            return;
        }
        // An image needs the first thread, and so does a task that takes the first one's place.
        let _ = seat.thread().stop();
        if let Ok(group) = self.group(task.pid) {
            group.first = Some(seat);
        }
    }

    /// Ends all other tasks of the process of `tid`, which becomes its first task: it gets the number of the process,
    /// and goes on in the first thread.
    pub(super) fn end_others(&mut self, tid: Tid) {
        let Some(pid) = self.tasks.get(&tid).map(|living| living.task.pid) else {
            return;
        };
        let mut entries = MAX_ROBUST;
        for other in self.tasks_of(pid) {
            if other != tid {
                self.end_task(other, pid, &mut entries);
            }
        }
        let first = self.group(pid).ok().and_then(|group| group.first.take());
        if tid == pid {
            return;
        }
        let (Some(mut living), Some(mut seat)) = (self.remove_task(tid), first) else {
            return;
        };
        core::mem::swap(&mut living.seat, &mut seat);
        living.seat.fresh = true;
        living.seat.next = seat.next.take();
        living.seat.old = Some(seat.into());
        (living.task.tid, living.task.thread) = (pid, living.task.number);
        self.system.becomes_first(pid, tid);
        self.tasks.insert(pid, living.into());
        self.note_work(pid);
    }

    /// Ends one of the tasks of a process that all end.
    fn end_task(&mut self, tid: Tid, pid: Pid, entries: &mut usize) {
        if let Some((living, system, world)) = self.split(tid) {
            let (task, mut view) = living.parts(system, world);
            emulate::abandon(task, system, &mut view, entries);
        }
        self.leave(tid);
        self.system.forget_thread(pid, tid);
    }

    /// Ends a process whose files the emulation has closed and whose parent it has told.
    pub(super) fn finish(&mut self, pid: Pid, status: Status) {
        if self.group(pid).is_err() {
            return;
        }
        let name = self.one_of(pid).map_or_else(String::new, |l| l.task.name());
        self.debug_ends(pid);
        let mut entries = MAX_ROBUST;
        for tid in self.tasks_of(pid) {
            self.end_task(tid, pid, &mut entries);
        }
        if let Some(hold) = self.holds.get(&pid) {
            hold.end.set(status);
        }
        let ended = Entry::ended(status, name);
        if let Some(Entry::Living(group)) = self.entries.insert(pid, ended) {
            if let Some(alarm) = group.alarm {
                self.timers.remove(&(alarm, Timer::Alarm(pid)));
            }
            if let Some(first) = group.first {
                first.leave();
            }
            if group.saving.is_some() {
                self.world.disk.forget(disk::of_tree(pid));
            }
        }
        if self.system.find(pid).is_some_and(|p| p.root != pid) {
            // Nobody else could thaw what was frozen with it.
            let _ = self.thaw(pid);
        }
        self.announce(pid);
    }

    /// Ends a process by a signal. If much has been closed in this turn already, the process is stopped and ends in a
    /// later one.
    pub(super) fn end_by(&mut self, pid: Pid, signal: u8) {
        let Ok(group) = self.group(pid) else { return };
        if group.ending.is_some() {
            return;
        }
        if self.may_end(pid) {
            return self.end_now(pid, signal);
        }
        if let Ok(group) = self.group(pid) {
            group.ending = Some(signal);
        }
        let _ = self.stop_all(pid);
        self.hold_still(pid);
        self.ending.push_back(pid);
    }

    /// Whether there is time in this turn to end a process; if so, takes it. The first process of a turn always may
    /// end.
    fn may_end(&mut self, pid: Pid) -> bool {
        let tasks = self.system.find(pid).map_or(0, |p| p.tasks.len());
        let fds = |living: &Living| living.task.shares.files.borrow().fds.len();
        let fds = self.one_of(pid).map_or(0, fds);
        let closes = PROCESS_CLOSES + fds + TASK_CLOSES * tasks;
        let may = closes <= self.closes || self.closes == CLOSES;
        if may {
            self.closes = self.closes.saturating_sub(closes);
        }
        may
    }

    /// Whether there is time in this turn for the signals of a task, which may end its process.
    pub(super) fn may_get_signals(&mut self, tid: Tid) -> bool {
        let Some((living, system, _)) = self.split(tid) else {
            return true;
        };
        if living.held {
            // A held process is ended by `end_by`, which has its own check.
            return true;
        }
        let pid = living.task.pid;
        let of_process = &system.process(pid).pending;
        let has_any = living.task.signals.deliverable(of_process).is_some();
        !has_any || self.may_end(pid)
    }

    /// Delivers the signals of a task, or makes it due for the next turn if there is no time in this one.
    pub(super) fn deliver_signals_in_turn(&mut self, tid: Tid) {
        if self.may_get_signals(tid) {
            self.deliver_signals(tid);
        } else {
            self.due.insert(tid);
        }
    }

    /// Ends processes that wait for their turn to end, as many as there is time for.
    pub(super) fn end_next(&mut self) {
        while let Some(pid) = self.ending.front().copied() {
            let signal = self.group(pid).ok().and_then(|group| group.ending);
            if signal.is_some() && !self.may_end(pid) {
                return;
            }
            self.ending.pop_front();
            let root = self.system.find(pid).map_or(pid, |process| process.root);
            if let Some(signal) = signal {
                self.end_now(pid, signal);
            }
            // Whoever has killed the tree waits for all of it.
            self.announce(root);
        }
    }

    /// Closes a process's files and ends it.
    fn end_now(&mut self, pid: Pid, signal: u8) {
        let status = Status::Killed(signal);
        self.forget_saving_of(pid);
        let one = self.one_of(pid).map(|living| living.task.tid);
        if let Some((living, system, world)) = one.and_then(|tid| self.split(tid)) {
            let (task, mut view) = living.parts(system, world);
            emulate::end(task, system, &mut view, status);
        }
        self.finish(pid, status);
    }

    /// Returns the status of a process that has ended, and forgets the process unless others of its tree live.
    pub(crate) fn reap(&mut self, pid: Pid) -> Result<Status, Error> {
        if let Some(signal) = self.group(pid).ok().and_then(|group| group.ending) {
            self.end_now(pid, signal);
        }
        let runs_on = self.runs_on(pid);
        match self.entries.get_mut(&pid) {
            Some(Entry::Ended { status, reaped, .. }) => {
                let status = *status;
                *reaped = true;
                if !runs_on {
                    self.forget(pid);
                }
                Ok(status)
            }
            Some(_) => Err(Error::Invalid),
            None => Err(Error::NotFound),
        }
    }

    /// Ends a process. The root of a tree ends all of the tree, also if it has ended itself.
    pub(crate) fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        if let Some(Entry::Adopting(_)) = self.entries.get(&pid) {
            self.abandon(pid);
            return Ok(());
        }
        if !self.runs_on(pid) {
            self.group(pid)?;
        }
        if self.stands_for_part(pid) {
            // It ends when it is thawed, and with it what is frozen with it.
            let to = To::Process(pid);
            self.system.send(to, sig::KILL, Origin::kernel());
            self.group(pid)?.dies = true;
            return Ok(());
        }
        // The root is ended first: it can start no others meanwhile, and does not see its children end.
        for pid in self.together(pid) {
            self.end_by(pid, sig::KILL as u8);
        }
        Ok(())
    }

    /// [`Error::WouldBlock`] while the process, or one of its tree, still waits to be ended.
    pub(crate) fn killed(&self, pid: Pid) -> Result<(), Error> {
        let waits = |pid: &Pid| self.ending.contains(pid);
        let dies = match self.entries.get(&pid) {
            Some(Entry::Living(group)) => group.dies,
            _ => false,
        };
        match dies || waits(&pid) || self.system.tree(pid).iter().any(waits) {
            true => Err(Error::WouldBlock),
            false => Ok(()),
        }
    }

    /// Ends a process whose rebuilding is not complete.
    pub(super) fn abandon(&mut self, pid: Pid) {
        if let Some(Entry::Adopting(adopting)) = self.entries.remove(&pid) {
            for (_, body, _) in adopting.bodies {
                body.destroy();
            }
            if let Some((rebuilding, _)) = adopting.rebuilding {
                let mut view = View {
                    root: pid,
                    seat: None,
                    world: &mut self.world,
                };
                rebuilding.give_up(&mut self.system, &mut view);
                self.world.disk.forget(disk::of_tree(pid));
            }
            let status = Status::Killed(sig::KILL as u8);
            self.entries
                .insert(pid, Entry::ended(status, String::new()));
            self.system.end(pid, status);
            self.announce(pid);
        }
    }
}
