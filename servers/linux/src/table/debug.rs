//! Requests of a debugger. Each process is debugged by itself, whatever its tree.

use abi::access::WRITE;
use abi::message::ExceptionMessage;
use abi::Exception;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::server::park;
use personality::emulate;
use personality::memory::NO_SLOT;
use personality::system::Tid;
use process::debug::{self, clear_step, set_step, Exceptional, Taken};
use process::watch::Watch;
use proto::Error;
use rt::obj::Ref;
use services::process::{Pid, Spotted, EVERY, MAX_POPULATE, TOUCHED};

use super::image::regions_of;
use super::info::doing;
use super::{Entry, Table};
use crate::world::{place_of, Memory};

/// What is kept for the debugger of a process.
#[derive(Default)]
pub(super) struct Debugged {
    taken: Taken,
    /// Threads that were single-stepping when the process was frozen.
    stepping: Vec<Tid>,
    /// Whether the debugger has ever watched something.
    watches: bool,
}

impl Table {
    fn debugged(&mut self, pid: Pid) -> Result<&mut Debugged, Error> {
        self.group(pid)?.debugged.as_mut().ok_or(Error::Invalid)
    }

    pub(super) fn is_frozen(&mut self, pid: Pid) -> bool {
        self.group(pid).is_ok_and(|group| group.frozen.is_some())
    }

    /// The memory of a process.
    fn memory_of(&self, pid: Pid) -> Result<Rc<RefCell<Memory>>, Error> {
        let one = self.one_of(pid).ok_or(Error::Ended)?;
        Ok(Rc::clone(&one.seat.memory))
    }

    /// Whether another process in the same memory (`vfork`, `CLONE_VM`) is debugged: breakpoints and watches belong to
    /// the memory.
    fn is_memory_debugged(&self, pid: Pid) -> Result<bool, Error> {
        let memory = self.memory_of(pid)?;
        let mut others = self.tasks.values();
        Ok(others.any(|other| {
            let is_debugged = match self.entries.get(&other.task.pid) {
                Some(Entry::Living(group)) => group.debugged.is_some(),
                _ => false,
            };
            is_debugged && Rc::ptr_eq(&other.seat.memory, &memory)
        }))
    }

    /// Stops a thread for the debugger. A frozen process gets the stop when it is thawed.
    fn stay(&mut self, tid: Tid, frozen: bool) {
        if let Some(living) = self.tasks.get_mut(&tid) {
            if !living.stays && (frozen || living.stop().is_ok()) {
                living.stays = true;
            }
        }
    }

    /// Takes an exception that came to the keeper with this number, if it is for a debugger. Returns whether the thread
    /// goes on with its registers as they are; `None` if the exception is not for a debugger.
    #[cold]
    pub(super) fn take(
        &mut self,
        keeper: u64,
        tid: Tid,
        message: &ExceptionMessage,
    ) -> Option<bool> {
        let living = self.tasks.get(&tid)?;
        let (pid, spot) = (living.task.pid, living.seat.thread);
        let memory = Rc::clone(&living.seat.memory);
        if memory.borrow().id != keeper {
            return None;
        }
        if self.debugged(pid).is_err() {
            let mut memory = memory.borrow_mut();
            let makes_way = match message.code {
                code if code == Exception::Breakpoint as u64 => {
                    memory.make_way(message.registers.rip, spot)
                }
                code if code == Exception::Memory as u64 => memory.give_way(message.address, spot),
                _ => false,
            };
            return makes_way.then_some(true);
        }
        if self.finds_memory(tid, message) {
            return Some(true);
        }
        park();
        let frozen = self.is_frozen(pid);
        self.stay(tid, frozen);
        let thread = self.tasks.get(&tid).map(|living| living.thread());
        let met = thread.and_then(|thread| debug::undo(spot, thread));
        let is_step = met.is_some_and(|one| one.code == Exception::Debug as u64);
        if let Some(living) = self.tasks.get_mut(&tid).filter(|_| is_step) {
            living.task.signals.steps = false;
        }
        if let (Some(one), Ok(debugged)) = (met, self.debugged(pid)) {
            debugged.taken.add(Exceptional {
                detail: message.detail,
                ..one
            });
        }
        self.hold_still(pid);
        self.announce(pid);
        Some(false)
    }

    /// Whether an exception was only for lack of memory that is there by now. A watched page never counts as there.
    fn finds_memory(&mut self, tid: Tid, message: &ExceptionMessage) -> bool {
        let Some((living, system, world)) = self.split(tid) else {
            return false;
        };
        let is_watched = living
            .seat
            .memory
            .borrow()
            .watched
            .has_page(message.address);
        let (task, mut view) = living.parts(system, world);
        !is_watched && emulate::finds_memory(task, &mut view, message)
    }

    /// Tells the debugger what a call of this task did to watched bytes, and stops the task. `is_over`: the call is
    /// complete. Returns whether there was something.
    #[cold]
    pub(super) fn note_touched(&mut self, tid: Tid, is_over: bool) -> bool {
        let Some(living) = self.tasks.get(&tid) else {
            return false;
        };
        let (pid, spot) = (living.task.pid, living.seat.thread);
        let memory = Rc::clone(&living.seat.memory);
        if self.debugged(pid).is_err() {
            return false;
        }
        let touched = memory.borrow_mut().watched.take_touched();
        // A call that is made again reads again, so its reads are told when it is complete.
        let touched = touched.filter(|(_, access)| is_over || access & WRITE != 0);
        let Some((address, access)) = touched else {
            return false;
        };
        let frozen = self.is_frozen(pid);
        self.stay(tid, frozen);
        if let Ok(debugged) = self.debugged(pid) {
            debugged.taken.add_past(Exceptional {
                spot,
                code: TOUCHED | access,
                address,
                detail: 0,
            });
        }
        self.hold_still(pid);
        self.announce(pid);
        true
    }

    /// Takes the debugger's breakpoints out of the memory that a process has left by `execve` while others stay there
    /// (`vfork`, `CLONE_VM`): nobody could take them out later.
    #[cold]
    pub(super) fn debug_moved(&mut self, pid: Pid) {
        if self.debugged(pid).is_err() {
            return;
        }
        let seat = self.one_of(pid).map(|one| &one.seat);
        let before = seat.and_then(|seat| {
            let old = seat.old.as_deref()?;
            (!Rc::ptr_eq(&old.memory, &seat.memory)).then(|| Rc::clone(&old.memory))
        });
        if let Some(before) = before {
            before.borrow_mut().clear_breakpoints(false);
        }
    }

    /// Takes the debugger's breakpoints out when a process ends: others may go on in its memory.
    pub(super) fn debug_ends(&mut self, pid: Pid) {
        if self.debugged(pid).is_err() {
            return;
        }
        let frozen = self.is_frozen(pid);
        if let Ok(memory) = self.memory_of(pid) {
            memory.borrow_mut().clear_breakpoints(frozen);
        }
    }

    /// Makes a process that is being frozen look as without a debugger: takes out breakpoints, single steps and stops.
    pub(super) fn debug_freeze(&mut self, pid: Pid) {
        if self.debugged(pid).is_err() {
            return;
        }
        if let Ok(memory) = self.memory_of(pid) {
            memory.borrow_mut().take_out();
        }
        let mut stepping = Vec::new();
        for tid in self.tasks_of(pid) {
            let Some(living) = self.tasks.get(&tid) else {
                continue;
            };
            if clear_step(living.thread()) {
                stepping.push(tid);
            }
            if living.stays {
                let _ = living.resume();
            }
        }
        if let Ok(debugged) = self.debugged(pid) {
            debugged.stepping = stepping;
        }
    }

    /// Undoes [`Table::debug_freeze`] before the process goes on.
    pub(super) fn debug_thaw(&mut self, pid: Pid) {
        let Ok(debugged) = self.debugged(pid) else {
            return;
        };
        let stepping = core::mem::take(&mut debugged.stepping);
        for tid in self.tasks_of(pid) {
            let Some(living) = self.tasks.get_mut(&tid) else {
                continue;
            };
            if living.stays {
                let _ = living.stop();
            }
            if stepping.contains(&tid) {
                let _ = set_step(living.thread(), true);
            }
        }
        if let Ok(memory) = self.memory_of(pid) {
            memory.borrow_mut().put_back();
        }
    }
}

impl debug::Manager for Table {
    fn debug(&mut self, pid: Pid) -> Result<(), Error> {
        if self.proven(pid)?.debugged.is_some() {
            return Err(Error::Exists);
        }
        let one = self.one_of(pid).ok_or(Error::Ended)?;
        if one.native.is_some() {
            // A stand-in for a native program runs no code of its own.
            return Err(Error::Unsupported);
        }
        if self.is_memory_debugged(pid)? {
            return Err(Error::Exists);
        }
        self.group(pid)?.debugged = Some(Debugged::default());
        if self.is_frozen(pid) {
            self.debug_freeze(pid);
        }
        Ok(())
    }

    fn leave(&mut self, pid: Pid) {
        let was = self.group(pid).ok().and_then(|group| group.debugged.take());
        // Even if the process has ended: while something is watched, the calls of all processes are checked.
        let watches = |entry: &Entry| match entry {
            Entry::Living(group) => group.debugged.as_ref().is_some_and(|d| d.watches),
            _ => false,
        };
        self.world.watches = self.entries.values().any(watches);
        if was.is_none() {
            return;
        }
        let frozen = self.is_frozen(pid);
        if let Ok(memory) = self.memory_of(pid) {
            memory.borrow_mut().clear_breakpoints(frozen);
        }
        for tid in self.tasks_of(pid) {
            let Some(living) = self.tasks.get_mut(&tid) else {
                continue;
            };
            let stayed = core::mem::take(&mut living.stays);
            living.task.signals.steps = false;
            if living.stop().is_ok() {
                let _ = clear_step(living.thread());
                let _ = living.resume();
            }
            if stayed && !frozen {
                let _ = living.resume();
            }
        }
        self.go_on(pid);
        self.announce(pid);
    }

    fn regions(&mut self, pid: Pid) -> Result<Vec<Ref>, Error> {
        let memory = self.memory_of(pid)?;
        let memory = memory.borrow();
        Ok(regions_of(&memory.body)?.into())
    }

    fn hold(&mut self, pid: Pid) -> Result<(), Error> {
        self.debugged(pid)?;
        let frozen = self.is_frozen(pid);
        for tid in self.tasks_of(pid) {
            self.stay(tid, frozen);
        }
        self.hold_still(pid);
        Ok(())
    }

    fn let_run(&mut self, pid: Pid, spot: u64) -> Result<(), Error> {
        self.debugged(pid)?;
        let frozen = self.is_frozen(pid);
        let mut found = spot == EVERY;
        for tid in self.tasks_of(pid) {
            let Some(living) = self.tasks.get_mut(&tid) else {
                continue;
            };
            let own = living.seat.thread;
            if spot != EVERY && own != spot {
                continue;
            }
            found = true;
            if core::mem::take(&mut living.stays) && !frozen {
                let _ = living.resume();
            }
            self.debugged(pid)?.taken.goes_on(own);
        }
        self.go_on(pid);
        found.then_some(()).ok_or(Error::NotFound)
    }

    fn threads(&mut self, pid: Pid) -> Result<Vec<Spotted>, Error> {
        self.debugged(pid)?;
        let tasks = self.tasks_of(pid).into_iter();
        let living = tasks.filter_map(|tid| self.tasks.get(&tid));
        Ok(living
            .map(|living| Spotted {
                spot: living.seat.thread,
                doing: living
                    .state()
                    .map_or_else(|_| String::new(), |state| doing(living, &state)),
            })
            .collect())
    }

    fn taken(&mut self, pid: Pid) -> Result<&mut Taken, Error> {
        Ok(&mut self.debugged(pid)?.taken)
    }

    fn pass(&mut self, pid: Pid, spot: u64) -> Result<(), Error> {
        let one = self.debugged(pid)?.taken.of(spot)?;
        let is = |tid: &Tid| self.tasks.get(tid).is_some_and(|l| l.seat.thread == spot);
        let tid = self.tasks_of(pid).into_iter().find(is);
        let tid = tid.ok_or(Error::NotFound)?;
        self.debugged(pid)?.taken.goes_on(spot);
        let (living, system, world) = self.split(tid).ok_or(Error::NotFound)?;
        let message = ExceptionMessage {
            code: one.code,
            address: one.address,
            detail: one.detail,
            tag: u64::from(tid),
            registers: living.state().map_err(rt::error_of)?.registers,
        };
        let outcome = living.emulate(system, world, &message);
        self.carry_out(tid, &message, outcome);
        match self.entries.get(&pid) {
            Some(Entry::Living(_)) => Ok(()),
            _ => Err(Error::Ended),
        }
    }

    fn breakpoint(&mut self, pid: Pid, offset: u64, set: bool) -> Result<(), Error> {
        self.debugged(pid)?;
        let memory = self.memory_of(pid)?;
        let mut memory = memory.borrow_mut();
        memory.breakpoint(offset, set)
    }

    fn make_present(&mut self, pid: Pid, offset: u64, size: u64) -> Result<(), Error> {
        self.debugged(pid)?;
        if size > MAX_POPULATE {
            return Err(Error::Invalid);
        }
        let memory = self.memory_of(pid)?;
        let memory = memory.borrow();
        memory.body.memory().populate(offset, size)
    }

    fn watch(&mut self, pid: Pid, watch: Watch, set: bool) -> Result<(), Error> {
        self.debugged(pid)?;
        let one = self.one_of(pid).ok_or(Error::Ended)?;
        let shared = one.task.shares.memory.borrow();
        let mut memory = one.seat.memory.borrow_mut();
        let find = |page| {
            let area = shared.areas.find(page).filter(|area| area.slot != NO_SLOT);
            area.map(|area| place_of(area.slot))
        };
        let Memory { body, watched, .. } = &mut *memory;
        watched.set(body, watch, set, find)?;
        drop((shared, memory));
        self.debugged(pid)?.watches |= set;
        self.world.watches |= set;
        Ok(())
    }

    fn give(&mut self, pid: Pid, address: u64, given: bool) -> Result<(), Error> {
        self.debugged(pid)?;
        let memory = self.memory_of(pid)?;
        let mut memory = memory.borrow_mut();
        let Memory { body, watched, .. } = &mut *memory;
        watched.give(body, address, given)
    }

    fn step(&mut self, pid: Pid, spot: u64, steps: bool) -> Result<(), Error> {
        self.debugged(pid)?;
        let frozen = self.is_frozen(pid);
        for tid in self.tasks_of(pid) {
            let own = self.tasks.get_mut(&tid);
            let Some(living) = own.filter(|living| living.seat.thread == spot) else {
                continue;
            };
            living.task.signals.steps = steps;
            if !frozen {
                return set_step(living.thread(), steps);
            }
            // The image must not have the trap flag.
            let stepping = &mut self.debugged(pid)?.stepping;
            stepping.retain(|other| *other != tid);
            if steps {
                stepping.push(tid);
            }
            return Ok(());
        }
        Err(Error::NotFound)
    }
}
