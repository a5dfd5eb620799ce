//! What others hold and see of processes.

use abi::state::ThreadState;
use abi::Exception;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use interface::server::Event;
use personality::emulate;
use personality::system::Key;
use process::debug::End;
use process::held::Known;
use process::{words, MOST_TOLD};
use proto::Error;
use rt::obj::{Ref, RefAt};
use services::process::{Info, Pid, Status};

use super::{Entry, Hold, Living, Starter, Table};
use crate::control::control_port;
use crate::world::short;

impl Table {
    /// Wakes those that wait for the status of a process, which has changed or is about to be forgotten.
    pub(super) fn announce(&self, pid: Pid) {
        if let Some(hold) = self.holds.get(&pid) {
            // The event is looked at by this same thread, after what it does here.
            hold.event.happened();
        }
    }

    /// A copy of the owner's port at init, and the job of the owner.
    pub(crate) fn owner(&self, owner: &RefAt) -> Result<(Ref, Option<Pid>), Error> {
        let owner = owner.copy().map_err(rt::error_of)?;
        let job = rt::names::job_of(&owner)?;
        Ok((owner, (job != 0).then_some(job)))
    }

    /// Makes what is kept of a new process for others.
    pub(super) fn hold(&mut self, pid: Pid, starter: Starter, job: Option<Pid>) {
        self.last_serial += 1;
        let hold = Hold {
            door: None,
            starter,
            job,
            serial: self.last_serial,
            event: Rc::new(Event::new()),
            end: Arc::default(),
        };
        self.holds.insert(pid, hold);
    }

    /// A reference to the control port of a process.
    pub(crate) fn control(&mut self, pid: Pid) -> Result<Ref, Error> {
        let hold = self.holds.get_mut(&pid).ok_or(Error::NotFound)?;
        if hold.door.is_none() {
            let port = control_port(*self.world.portset, pid).map_err(rt::error_of)?;
            let reference = port.reference().map_err(rt::error_of)?;
            hold.door = Some((port, reference));
        }
        let (_, reference) = hold.door.as_ref().ok_or(Error::Broken)?;
        reference.copy().map_err(rt::error_of)
    }

    /// The process with this control port.
    pub(crate) fn by_control_port(&self, port: &RefAt) -> Result<Pid, Error> {
        let is = |hold: &Hold| hold.door.as_ref().is_some_and(|door| door.1.same_as(*port));
        let found = self.holds.iter().find(|(_, hold)| is(hold));
        found.map(|(pid, _)| *pid).ok_or(Error::Denied)
    }

    /// The serial number of a process, the event of its status, and its end.
    pub(crate) fn identity(&self, pid: Pid) -> Result<(u64, Rc<Event>, Arc<End>), Error> {
        let hold = self.holds.get(&pid).ok_or(Error::NotFound)?;
        Ok((hold.serial, Rc::clone(&hold.event), Arc::clone(&hold.end)))
    }

    /// Whether the process with this number is still the one with this serial number.
    pub(crate) fn known(&self, (pid, serial): Known) -> Result<(), Error> {
        let hold = self.holds.get(&pid);
        hold.filter(|hold| hold.serial == serial)
            .map(|_| ())
            .ok_or(Error::NotFound)
    }

    pub(crate) fn status(&self, pid: Pid) -> Result<Status, Error> {
        match self.entries.get(&pid) {
            Some(Entry::Living(group)) if group.stops > 0 || group.halted => Ok(Status::Stopped),
            Some(Entry::Living(_) | Entry::Adopting(_)) => Ok(Status::Running),
            Some(Entry::Ended { status, .. }) => Ok(*status),
            None => Err(Error::NotFound),
        }
    }

    /// What a process has told its starter (`/proc/self/said`), from this offset on, as far as there is room.
    pub(crate) fn said(&self, pid: Pid, offset: u32, room: usize) -> Result<Vec<u8>, Error> {
        let process = self.system.find(pid).ok_or(Error::NotFound)?;
        let said = process.said.bytes().get(offset as usize..);
        let said = said.unwrap_or_default();
        let said = &said[..said.len().min(room)];
        let mut copy = Vec::new();
        copy.try_reserve_exact(said.len())
            .map_err(|_| Error::NoMemory)?;
        copy.extend_from_slice(said);
        Ok(copy)
    }

    /// A description of a process for people.
    pub(crate) fn info(&self, pid: Pid) -> Result<Info, Error> {
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        Ok(self.info_of(pid, entry))
    }

    pub(super) fn info_of(&self, pid: Pid, entry: &Entry) -> Info {
        let name = match entry {
            Entry::Ended { name, .. } => name.clone(),
            Entry::Adopting(_) => String::from("(being restored)"),
            Entry::Living(_) => {
                let one = self.one_of(pid);
                one.map_or_else(String::new, |living| living.task.name())
            }
        };
        let mut info = Info {
            pid,
            name: short(&name),
            status: self.status(pid).unwrap_or(Status::Running),
            threads: Vec::new(),
            doing: Vec::new(),
            resident: 0,
            objects: 0,
        };
        if let Entry::Living(group) = entry {
            if !group.unproven {
                for tid in self.tasks_of(pid).into_iter().take(MOST_TOLD) {
                    let Some(living) = self.tasks.get(&tid) else {
                        continue;
                    };
                    if let Ok(state) = living.state() {
                        info.threads.push(words::summary(&state));
                        info.doing.push(doing(living, &state));
                    }
                }
                if let Some(living) = self.one_of(pid) {
                    let memory = living.seat.memory.borrow();
                    info.objects = memory.body.object_count();
                    info.resident = memory.body.memory().usage().map_or(0, |u| u.resident);
                }
            }
        }
        info
    }

    /// Describes the first process with this number or a higher one.
    pub(crate) fn next(&self, pid: Pid) -> Result<Info, Error> {
        let (pid, entry) = self.entries.range(pid..).next().ok_or(Error::NotFound)?;
        Ok(self.info_of(*pid, entry))
    }
}

/// What a thread is about to do, in words.
pub(super) fn doing(living: &Living, state: &ThreadState) -> String {
    let in_call = state.exception_delivered == 1
        && state.exception == Exception::ForeignCall as u64
        || living
            .seat
            .memory
            .borrow()
            .body
            .is_call(state.registers.rip);
    if !in_call {
        return words::doing(state, false);
    }
    let mut text = emulate::describe(&state.registers, true);
    if let Some(parked) = &living.parked {
        text.push_str(match (parked.wake.keys.first(), parked.wake.deadline) {
            (Some(Key::Console), _) => ", waiting for the console",
            (Some(Key::Pipe(_) | Key::Node(_)), _) => ", waiting for a pipe",
            (Some(Key::Counter(_) | Key::Epoll(_) | Key::Inotify(_)), _) => {
                ", waiting for an event"
            }
            (Some(Key::Socket(_) | Key::Room(_)), _) => ", waiting for a socket",
            (Some(Key::Signals(_)), _) => ", waiting for a signal",
            (Some(Key::Children(_) | Key::Left(_)), _) => ", waiting for a child",
            (None, _) if state.registers.rax == personality::number::futex => ", waiting at a word",
            (None, Some(_)) => ", waiting for its time",
            (Some(Key::Object(_)), _) => ", waiting until a mapped file is written back",
            (Some(Key::Pty(_)), _) => ", waiting for a terminal",
            (Some(Key::Lock(_)), _) => ", waiting for a lock on a file",
            (Some(Key::Card), _) => ", waiting for the network",
            (Some(Key::Ipc(_)), _) => ", waiting for a semaphore or a message",
            (None, None) => ", waiting",
        });
    }
    if state.stop_count > 0 {
        text.push_str(", stopped");
    }
    text
}
