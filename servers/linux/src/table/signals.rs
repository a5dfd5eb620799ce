//! Signals and timers of the processes in the table.

use personality::emulate::{self, Outcome};
use personality::signal::{bit, sig, Origin, STOPS, UNBLOCKABLE};
use personality::system::{Tid, To};
use personality::timer::Rung;
use proto::Error;
use services::process::Pid;

use alloc::vec::Vec;

use super::{put_timer, Entry, Table, Timer};
use crate::clock;

/// Least nanoseconds between two expirations of periodic timers, of all processes together. An expiration costs the
/// program nothing, and this server thousands of instructions.
const RING: u64 = 100_000;

/// Least nanoseconds between two looks whether a process has reached its limit of processor time.
const LOOK: u64 = 100_000_000;

impl Table {
    /// Sets the table's timer to the next timer of a process.
    pub(super) fn schedule_alarm(&mut self, pid: Pid) {
        let earliest = self.system.find(pid).and_then(|p| p.timers.earliest());
        // The timer of a process that a signal has stopped may send it a signal that continues it.
        let goes_on = self.group(pid).is_ok_and(|group| group.is_of_its_signals());
        let at = earliest.filter(|_| goes_on).and_then(|deadline| {
            let living = self.one_of(pid)?;
            (!living.stays && !living.traced).then(|| living.machines(deadline, clock::now()))
        });
        let at = at.into_iter().chain(self.work_is_over(pid)).min();
        if let Some(Entry::Living(group)) = self.entries.get_mut(&pid) {
            put_timer(&mut self.timers, Timer::Alarm(pid), &mut group.alarm, at);
        }
    }

    /// When to look whether a process has reached its limit of processor time: no earlier than it can have.
    fn work_is_over(&mut self, pid: Pid) -> Option<u64> {
        let now = clock::now();
        let left = self.system.work_left(pid, self.system.work.each(now))?;
        let goes_on = self.group(pid).is_ok_and(|group| group.is_of_its_signals());
        goes_on.then(|| now.saturating_add(left.max(LOOK)))
    }

    /// Sends a signal to a task or process. Tasks that can take it are added to `signalled`.
    pub(super) fn post(&mut self, to: To, signal: u32, origin: Origin, signalled: &mut Vec<Tid>) {
        let pid = match to {
            To::Task(tid) => self.tasks.get(&tid).map(|living| living.task.pid),
            To::Process(pid) => Some(pid),
        };
        // The receiver may have ended since the signal was sent.
        let Some(pid) = pid.filter(|pid| self.system.find(*pid).is_some()) else {
            return;
        };
        self.cancel(pid, signal);
        match to {
            To::Task(tid) => {
                let traced = self.system.is_traced(tid);
                if let Some(living) = self.tasks.get_mut(&tid) {
                    let actions = living.task.shares.actions.borrow();
                    if traced {
                        // The tracer is told even of ignored signals.
                        living.task.signals.pending.add(signal, origin);
                    } else {
                        living.task.signals.post(&actions, signal, origin);
                    }
                    drop(actions);
                    if living.task.awaits & bit(signal) != 0 {
                        self.due.insert(tid);
                    }
                    signalled.push(tid);
                }
            }
            To::Process(pid) => self.post_to_any(pid, signal, origin, signalled),
        }
    }

    /// Sends the signal of Ctrl-C or (`suspend`) Ctrl-Z to the foreground group of a tree that has the console. Returns
    /// whether it was sent: Ctrl-Z in a tree without job control is left to whoever started the tree.
    pub(crate) fn typed(&mut self, pid: Pid, suspend: bool) -> Result<bool, Error> {
        self.group(pid)?;
        Ok(self.system.typed(pid, suspend))
    }

    /// Removes the pending signals that this one cancels: `SIGCONT` and the stopping signals cancel each other.
    fn cancel(&mut self, pid: Pid, signal: u32) {
        let cancelled = match signal {
            sig::CONT => STOPS,
            _ if bit(signal) & STOPS != 0 => bit(sig::CONT),
            _ => return,
        };
        self.system.process(pid).pending.take_all(cancelled);
        for tid in self.tasks_of(pid) {
            if let Some(living) = self.tasks.get_mut(&tid) {
                living.task.signals.pending.take_all(cancelled);
            }
        }
        if signal == sig::CONT {
            self.continue_halted(pid);
        }
    }

    /// Stops the threads of a process that a signal has stopped, once none is about to get an answer.
    pub(super) fn halt(&mut self, pid: Pid) {
        let stopped = self.system.find(pid).is_some_and(|p| p.stopped.is_some());
        if !stopped || !self.group(pid).is_ok_and(|group| !group.halted) {
            return;
        }
        // A stopped thread would not get its answer.
        let is_answered = |tid: &Tid| {
            let living = self.tasks.get(tid).filter(|living| living.parked.is_none());
            let state = living.and_then(|living| living.state().ok());
            state.is_some_and(|state| state.exception_delivered == 1)
        };
        if self.tasks_of(pid).iter().any(is_answered) {
            self.halting.push(pid);
            return;
        }
        if self.stop_all(pid).is_ok() {
            if let Ok(group) = self.group(pid) {
                group.halted = true;
            }
            self.hold_still(pid);
            self.announce(pid);
        }
    }

    /// Continues a process that a signal has stopped. Returns whether it was stopped.
    pub(super) fn continue_halted(&mut self, pid: Pid) -> bool {
        let was = self.system.go_on(pid);
        let halted = self
            .group(pid)
            .is_ok_and(|group| core::mem::take(&mut group.halted));
        if halted {
            self.resume_all(pid);
            self.go_on(pid);
            self.announce(pid);
        }
        was || halted
    }

    /// Sends a signal to a process. A task that does not block it takes it, preferably the first task.
    fn post_to_any(&mut self, pid: Pid, signal: u32, origin: Origin, signalled: &mut Vec<Tid>) {
        let Some(first) = self.one_of(pid).map(|living| living.task.tid) else {
            return;
        };
        let mut dropped = true;
        let mut taker = None;
        for tid in core::iter::once(first).chain(self.tasks_of(pid)) {
            let Some(living) = self.tasks.get(&tid) else {
                continue;
            };
            let task = &living.task;
            dropped &= !self.system.is_traced(tid)
                && task.signals.drops(&task.shares.actions.borrow(), signal);
            if task.awaits & bit(signal) != 0 {
                self.due.insert(tid);
            }
            if taker.is_none() && bit(signal) & task.signals.mask & !UNBLOCKABLE == 0 {
                taker = Some(tid);
            }
        }
        if !dropped {
            self.system.process(pid).pending.add(signal, origin);
            signalled.extend(taker);
        }
    }

    /// Handles the timers that have expired by `now`.
    pub(super) fn ring(&mut self, now: u64, signalled: &mut Vec<Tid>) {
        while let Some((deadline, timer)) = self.timers.first().copied() {
            if deadline > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Call(tid) => {
                    if let Some(living) = self.tasks.get_mut(&tid) {
                        // It is set again when the call is made again.
                        living.timer = None;
                        self.due.insert(tid);
                    }
                }
                Timer::Alarm(pid) => self.alarm(pid, now, signalled),
            }
        }
    }

    /// Handles expired timers of a process.
    fn alarm(&mut self, pid: Pid, now: u64, signalled: &mut Vec<Tid>) {
        let Ok(group) = self.group(pid) else { return };
        group.alarm = None;
        let offset = self
            .one_of(pid)
            .map_or(0, |living| living.task.clock_offset);
        let own_now = now.wrapping_add(offset);
        let others = self.timers.iter();
        let others = others.filter(|(_, timer)| matches!(timer, Timer::Alarm(_)));
        let rings = others.count() + self.system.process(pid).timers.armed();
        let pause = own_now.saturating_add(RING * rings as u64);
        for rung in self.ring_of(pid, own_now, pause) {
            let to = match rung.thread {
                None => Some(To::Process(pid)),
                Some(number) => {
                    let thread = self.system.thread_by_number(pid, number);
                    let own = thread.filter(|(_, of)| *of == pid);
                    own.map(|(tid, _)| To::Task(tid))
                }
            };
            // The signal of a timer for a thread that has ended is dropped.
            if let Some(to) = to {
                self.post(to, rung.signal, rung.origin, signalled);
            }
        }
        let each = self.system.work.each(now);
        if let Some(signal) = self.system.pass_work_limit(pid, each) {
            self.post(To::Process(pid), signal, Origin::kernel(), signalled);
        }
        self.schedule_alarm(pid);
    }

    /// Advances the timers of a process to `own_now`, and returns their signals. Those that begin again rest until
    /// `pause`.
    fn ring_of(&mut self, pid: Pid, own_now: u64, pause: u64) -> Vec<Rung> {
        let mut timers = core::mem::take(&mut self.system.process(pid).timers);
        let rung = timers.ring(own_now, pause, |id, notice, overrun| {
            let Some(number) = notice.thread else {
                return self.system.process(pid).pending.add_overrun(id, overrun);
            };
            let thread = self.system.thread_by_number(pid, number);
            let own = thread.filter(|(_, of)| *of == pid);
            let living = own.and_then(|(tid, _)| self.tasks.get_mut(&tid));
            living.is_some_and(|living| living.task.signals.pending.add_overrun(id, overrun))
        });
        self.system.process(pid).timers = timers;
        rung
    }

    /// Delivers pending signals of a task.
    pub(super) fn deliver_signals(&mut self, tid: Tid) {
        let Some((living, system, world)) = self.split(tid) else {
            return;
        };
        let pid = living.task.pid;
        let looks = system.is_to_be_looked_at(tid);
        let of_process = &system.process(pid).pending;
        if living.task.signals.deliverable(of_process).is_none() && !looks {
            return;
        }
        if living.held {
            let pending = of_process.set() | living.task.signals.pending.set();
            if pending & bit(sig::KILL) != 0 {
                self.kill_held(pid);
            }
            return;
        }
        if living.parked.is_some() {
            self.due.insert(tid);
            return;
        }
        // It runs, or is about to make a call. A call whose exception is under way is made again after the handler.
        let thread = living.thread();
        if thread.stop().is_err() {
            return;
        }
        let mut outcome = None;
        if let Ok(mut state) = thread.get_state(0, 0, 0) {
            if state.exception_delivered == 0 {
                let (task, mut view) = living.parts(system, world);
                let result = emulate::interrupt(task, system, &mut view, &state.registers);
                if let Outcome::Go { registers, .. } = &result {
                    state.registers = *registers;
                    let memory = living.seat.memory.borrow();
                    let _ = thread.set_state(&state, memory.body.space_ref().handle(), 0, 0);
                }
                outcome = Some(result);
            }
        }
        let _ = thread.resume();
        self.hold_traced(tid);
        match outcome {
            Some(Outcome::End(status)) => self.finish(pid, status),
            Some(_) => {}
            None => self.signalled.push(tid),
        }
    }

    /// Ends a process that is held; if it is frozen, its thaw delivers the signal.
    fn kill_held(&mut self, pid: Pid) {
        if self.group(pid).is_ok_and(|group| group.frozen.is_none()) {
            self.end_by(pid, sig::KILL as u8);
        }
    }
}
