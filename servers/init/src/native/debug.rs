//! The manager's side of debugging a native program.
use super::{Entry, Frozen, Manager};
use crate::slow;
use abi::message::ExceptionMessage;
use abi::state::ThreadState;
use abi::{Code, Exception, RefKind};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use process::debug::{self, clear_step, set_step, Breakpoints, Taken};
use process::watch::{Watch, Watched};
use process::{words, Process};
use proto::Error;
use rt::error_of;
use rt::obj::{Ref, ThreadAt};
use services::process::{Pid, Spotted, Status, EVERY, MAX_POPULATE};

/// A thread that is stopped for the debugger.
struct Standing {
    thread: ThreadAt,
    /// A reference to the thread: the program can destroy the thread and create another in its place, which is not
    /// stopped. `None` if there was no memory for the reference; then the thread is known by its place alone.
    itself: Option<Ref>,
}

impl Standing {
    /// Whether `found`, which is in this thread's place, is this thread.
    fn is(&self, found: ThreadAt) -> bool {
        let Some(itself) = &self.itself else {
            return true;
        };
        match found.reference() {
            Ok(found) => itself.same_as(*found),
            Err(Code::NoMemory) => itself.kind() == RefKind::Thread,
            Err(_) => false,
        }
    }
}

/// The manager's state for the debugger of a process.
#[derive(Default)]
pub(super) struct Debugged {
    /// The threads that are stopped for the debugger, by their spots. Each has one more stop, except while the process
    /// is frozen.
    held: BTreeMap<u64, Standing>,
    breakpoints: Breakpoints,
    watched: Watched,
    taken: Taken,
    /// Threads that were to make a single step when the process was frozen.
    stepping: Vec<ThreadAt>,
}

impl Debugged {
    /// Stops a thread for the debugger. Returns whether it was not stopped already.
    fn hold(&mut self, spot: u64, thread: ThreadAt, frozen: bool) -> bool {
        if self.holds(spot, thread) {
            return false;
        }
        if self.held.remove(&spot).is_some() {
            // The exception is one of the thread that was at this spot before.
            self.taken.goes_on(spot);
        }
        let new = frozen || thread.stop().is_ok();
        if new {
            let itself = thread.reference().ok();
            self.held.insert(spot, Standing { thread, itself });
        }
        new
    }

    /// Whether the thread that was found at this spot is stopped for the debugger.
    fn holds(&self, spot: u64, found: ThreadAt) -> bool {
        self.held.get(&spot).is_some_and(|one| one.is(found))
    }

    /// Whether all threads of the process are stopped for the debugger.
    pub(super) fn holds_all(&self, process: &Process) -> bool {
        let spots = process.spots();
        spots
            .iter()
            .all(|(spot, thread)| self.holds(*spot, *thread))
    }

    /// Forgets the held threads that do not exist any more, and their exceptions. `spots`: the threads that exist.
    fn settle(&mut self, spots: &[(u64, ThreadAt)]) {
        let mut before = core::mem::take(&mut self.held);
        for (spot, thread) in spots {
            if before.get(spot).is_some_and(|one| one.is(*thread)) {
                self.held.extend(before.remove_entry(spot));
            }
        }
        // Forgets their exceptions, too.
        let gone = before.into_keys();
        gone.for_each(|spot| self.taken.goes_on(spot));
    }

    /// The threads that are stopped for the debugger.
    fn all_held(&self) -> Vec<ThreadAt> {
        self.held.values().map(|one| one.thread).collect()
    }

    /// Takes the exceptions that threads have met. Returns whether there were any.
    pub(super) fn take(&mut self, process: &Process, frozen: bool) -> bool {
        let before = self.taken.count();
        let spots = process.spots();
        self.settle(&spots);
        self.taken
            .keep(|spot| spots.iter().any(|(known, _)| *known == spot));
        for &(spot, thread) in &spots {
            // A failed guarded access is the program's own affair, unless the page lacks the right only for the
            // debugger.
            let is_watched = thread
                .get_state(0, 0, 0)
                .is_ok_and(|state| self.denies(&state));
            if !is_watched {
                debug::let_guarded_go_on(thread);
            }
            let met = thread
                .get_state(0, 0, 0)
                .is_ok_and(|state| state.exception_delivered != 0);
            if met {
                self.hold(spot, thread, frozen);
                let one = debug::undo(spot, thread);
                if let Some(one) = one.filter(|one| self.taken.of(spot) != Ok(*one)) {
                    self.taken.add(one);
                }
            }
        }
        self.taken.count() != before
    }

    /// Whether a thread may have met a page that lacks a right only for the debugger.
    fn denies(&self, state: &ThreadState) -> bool {
        state.exception == Exception::Memory as u64
            && self.watched.has_page(state.exception_address)
    }

    /// The same as [`Debugged::denies`], for the message of an exception.
    pub(super) fn may_deny(&self, message: &ExceptionMessage) -> bool {
        message.code == Exception::Memory as u64 && self.watched.has_page(message.address)
    }

    /// Takes the debugger's effects out of a process that is stopped for a checkpointer, which must find it as it would
    /// be without a debugger.
    pub(super) fn freeze(&mut self, process: &Process) {
        self.settle(&process.spots());
        let held = self.all_held();
        self.take(process, true);
        self.breakpoints.take_out(process);
        self.watched.take_out(process);
        let threads = process.threads().into_iter();
        self.stepping = threads.filter(|thread| clear_step(*thread)).collect();
        process.resume_all(&held);
    }

    /// Puts the debugger's effects back, before the process continues.
    pub(super) fn thaw(&mut self, process: &Process) {
        self.settle(&process.spots());
        self.held.retain(|_, one| one.thread.stop().is_ok());
        let there = process.threads();
        for thread in core::mem::take(&mut self.stepping) {
            if there.contains(&thread) {
                let _ = set_step(thread, true);
            }
        }
        self.breakpoints.put_back(process);
        if !self.watched.put_back(process) {
            slow::log("a debugger's watchpoints are gone: there is no memory for them");
        }
    }

    /// Undoes all effects of the debugger, which has gone.
    fn leave(mut self, process: &Process, frozen: bool) {
        self.breakpoints.clear_all(process);
        self.watched.clear(process);
        for thread in process.threads() {
            if thread.stop().is_ok() {
                clear_step(thread);
                let _ = thread.resume();
            }
        }
        if !frozen {
            self.settle(&process.spots());
            process.resume_all(&self.all_held());
        }
    }
}

/// A live process, the state for its debugger, and whether the process is frozen.
fn parts(entry: &mut Entry) -> Result<(&Process, &mut Debugged, bool), Error> {
    let live = entry.live.as_mut().ok_or(Error::Ended)?;
    let frozen = live.frozen.is_some();
    let debugged = live.debugged.as_mut().ok_or(Error::Invalid)?;
    Ok((&live.process, debugged, frozen))
}

impl Manager {
    /// The same as [`parts`], for the process with this number.
    fn debugged(&mut self, pid: Pid) -> Result<(&Process, &mut Debugged, bool), Error> {
        parts(self.entry(pid)?)
    }

    /// Takes the exceptions of a process if it is debugged. Returns whether it is.
    pub(super) fn take_exceptions(&mut self, pid: Pid) -> bool {
        let Ok((process, debugged, frozen)) = self.debugged(pid) else {
            return false;
        };
        if debugged.take(process, frozen) {
            self.announce(pid);
        }
        true
    }
}

impl debug::Manager for Manager {
    fn debug(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.is_trusted() {
            return Err(Error::Denied);
        }
        if entry.arriving.is_some() {
            return Err(Error::Invalid);
        }
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if matches!(live.frozen, Some(Frozen::Rebuilt)) {
            return Err(Error::Invalid);
        }
        if live.debugged.is_some() {
            return Err(Error::Exists);
        }
        let mut debugged = Debugged::default();
        if live.frozen.is_some() {
            debugged.freeze(&live.process);
        }
        live.debugged = Some(debugged);
        Ok(())
    }

    fn leave(&mut self, pid: Pid) {
        if let Ok(live) = self.live(pid) {
            if let Some(debugged) = live.debugged.take() {
                let frozen = live.frozen.is_some();
                debugged.leave(&live.process, frozen);
                if !frozen {
                    // Exceptions that could not be undone have their usual effect.
                    self.late_exception(pid);
                }
            }
        }
        self.announce(pid);
    }

    fn regions(&mut self, pid: Pid) -> Result<Vec<Ref>, Error> {
        let (process, ..) = self.debugged(pid)?;
        let regions = [process.memory(), process.control()];
        let copies = regions.map(|segment| segment.region.copy().map_err(error_of));
        copies.into_iter().collect()
    }

    fn hold(&mut self, pid: Pid) -> Result<(), Error> {
        let (process, debugged, frozen) = self.debugged(pid)?;
        // A thread can create others before it is stopped itself.
        let mut more = true;
        while core::mem::take(&mut more) {
            for (spot, thread) in process.spots() {
                more |= debugged.hold(spot, thread, frozen);
            }
        }
        Ok(())
    }

    fn let_run(&mut self, pid: Pid, spot: u64) -> Result<(), Error> {
        let (process, debugged, frozen) = self.debugged(pid)?;
        let spots = process.spots();
        debugged.settle(&spots);
        let go: BTreeMap<_, _> = match spot {
            EVERY => core::mem::take(&mut debugged.held),
            spot => debugged.held.remove_entry(&spot).into_iter().collect(),
        };
        for spot in go.keys() {
            debugged.taken.goes_on(*spot);
        }
        if !frozen {
            let threads: Vec<ThreadAt> = go.values().map(|one| one.thread).collect();
            process.resume_all(&threads);
        }
        match spot {
            EVERY => Ok(()),
            spot if spots.iter().any(|(known, _)| *known == spot) => Ok(()),
            _ => Err(Error::NotFound),
        }
    }

    fn threads(&mut self, pid: Pid) -> Result<Vec<Spotted>, Error> {
        let (process, ..) = self.debugged(pid)?;
        let doing = |thread: ThreadAt| {
            thread.get_state(0, 0, 0).map_or_else(
                |_| String::new(),
                |state| words::doing(&state, process.is_call(state.registers.rip)),
            )
        };
        let threads = process.spots().into_iter();
        Ok(threads
            .map(|(spot, thread)| Spotted {
                spot,
                doing: doing(thread),
            })
            .collect())
    }

    fn taken(&mut self, pid: Pid) -> Result<&mut Taken, Error> {
        let (_, debugged, _) = self.debugged(pid)?;
        Ok(&mut debugged.taken)
    }

    fn pass(&mut self, pid: Pid, spot: u64) -> Result<(), Error> {
        let (process, debugged, _) = self.debugged(pid)?;
        let one = debugged.taken.of(spot)?;
        let thread = process.spots().into_iter().find(|(p, _)| *p == spot);
        let state = thread.and_then(|(_, thread)| thread.get_state(0, 0, 0).ok());
        let rip = state.map_or(0, |state| state.registers.rip);
        if let Some(line) = self.describe(pid, one.code, one.address, rip) {
            slow::say(line);
        }
        self.end(pid, Status::Killed(words::signal(one.code)));
        Ok(())
    }

    fn breakpoint(&mut self, pid: Pid, offset: u64, set: bool) -> Result<(), Error> {
        let (process, debugged, _) = self.debugged(pid)?;
        match set {
            true => debugged.breakpoints.set(process, offset),
            false => {
                debugged.breakpoints.clear(process, offset);
                Ok(())
            }
        }
    }

    fn make_present(&mut self, pid: Pid, offset: u64, size: u64) -> Result<(), Error> {
        let (process, ..) = self.debugged(pid)?;
        if size > MAX_POPULATE {
            return Err(Error::Invalid);
        }
        process.memory().populate(offset, size)
    }

    fn watch(&mut self, pid: Pid, watch: Watch, set: bool) -> Result<(), Error> {
        let (process, debugged, _) = self.debugged(pid)?;
        let find = |page| process.mapping_of(page);
        debugged.watched.set(process, watch, set, find)
    }

    fn give(&mut self, pid: Pid, address: u64, given: bool) -> Result<(), Error> {
        let (process, debugged, _) = self.debugged(pid)?;
        debugged.watched.give(process, address, given)
    }

    fn step(&mut self, pid: Pid, spot: u64, steps: bool) -> Result<(), Error> {
        let (process, debugged, frozen) = self.debugged(pid)?;
        let spots = process.spots();
        let found = spots.iter().find(|(known, _)| *known == spot);
        let thread = found.ok_or(Error::NotFound)?.1;
        if !frozen {
            return set_step(thread, steps);
        }
        // The checkpointer must not find the step in the thread's state.
        debugged.stepping.retain(|other| *other != thread);
        if steps {
            debugged.stepping.push(thread);
        }
        Ok(())
    }
}
