//! Processes that are debugged: each by itself, whatever tree it is of.

use abi::message::ExceptionMessage;
use abi::Exception;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::server::park;
use personality::system::Tid;
use process::debug::{self, clear_step, Exceptional, Taken, SINGLE_STEP};
use proto::Error;
use rt::obj::Ref;
use services::process::{Pid, Spotted, EVERY, MAX_POPULATE};

use super::image::regions_of;
use super::info::doing;
use super::{Entry, Table};
use crate::world::Memory;

/// What is kept for the debugger of a process.
#[derive(Default)]
pub(super) struct Debugged {
    taken: Taken,
    /// Threads that were in a single step when the process was frozen.
    stepping: Vec<Tid>,
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

    /// A thread stands still for the debugger: it is stopped once more, but while the process is frozen.
    fn stay(&mut self, tid: Tid, frozen: bool) {
        if let Some(living) = self.tasks.get_mut(&tid) {
            if !living.stays && (frozen || living.stop().is_ok()) {
                living.stays = true;
            }
        }
    }

    /// Takes an exception of a task that came to the keeper with this number, if it is a debugger's: whether the thread
    /// goes on with the registers that it has.
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
            let is_breakpoint = message.code == Exception::Breakpoint as u64;
            let at = message.registers.rip;
            return (is_breakpoint && memory.borrow_mut().make_way(at, spot)).then_some(true);
        }
        park();
        let frozen = self.is_frozen(pid);
        self.stay(tid, frozen);
        let thread = self.tasks.get(&tid).map(|living| living.thread());
        let met = thread.and_then(|thread| debug::undo(spot, thread));
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

    /// A process that is debugged stands still for a checkpointer, which finds it as it would be without a debugger.
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

    /// Undoes that, before the process goes on.
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
                let _ = living
                    .thread()
                    .change(|state| state.registers.rflags |= SINGLE_STEP);
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
            // There is nothing of it but that it waits for the native program.
            return Err(Error::Unsupported);
        }
        self.group(pid)?.debugged = Some(Debugged::default());
        if self.is_frozen(pid) {
            self.debug_freeze(pid);
        }
        Ok(())
    }

    fn leave(&mut self, pid: Pid) {
        let was = self.group(pid).ok().and_then(|group| group.debugged.take());
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
}
