//! Waits: how they begin and end, and why a thread may go on waiting.
//!
//! While a thread waits, its frame says what it is about to do. A wait ends in one of two ways
//! (rule A8): another thread or an event [completes](System::complete) the call in the frame, or the thread is
//! [woken](System::wake) with nothing granted and does what its frame says, again.

use crate::memory::Missing;
use crate::object::Thread;
use crate::{Id, System};
use abi::ipc::Plan;
use abi::state::Stage;
pub use abi::state::Waiting;
use abi::{Call, Code, Exception, ROLES};

/// Whether a thread can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It runs, or could.
    Ready,
    /// It waits.
    Waiting(Waiting),
    /// It is stopped, or has no body or no space.
    Stopped,
}

/// A thread's question that has reached a server. It lasts as long as the wait for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The server that owes the answer: an answer from any other comes too late.
    pub server: Id,
    /// The missing page, if the thread asks for one; otherwise the question is an idempotent call.
    pub missing: Option<Missing>,
}

/// What a thread does first when it goes on, before it does what its frame says: a fault belongs to the thread whose
/// memory it is, whichever thread came upon it (rule A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// Another thread, which did the work of both, could not use this address with this right.
    Page(u64, u64),
    /// Another thread, which did the work of both, came upon this wrong use.
    Wrong(Exception, u64),
    /// The thread's keeper was asked for this page and has answered without supplying it. If the page is still
    /// missing it is an exception now. If a call needed the page, the right that it needed: an exchange that begins
    /// again looks for the page first.
    Refused(u64, Option<u64>),
}

impl System {
    /// Writes a result into the frame and moves the program counter behind the call.
    pub(crate) fn finish(&mut self, t: Id, code: Code) {
        self.finish_with(t, code as u64);
    }

    /// As [`System::finish`], with the byte count of a register message.
    pub(crate) fn finish_with(&mut self, t: Id, word: u64) {
        let r = &mut self.thread_mut(t).registers;
        r.set_call(word);
        r.set_pc(r.pc().wrapping_add(ROLES.call_bytes));
    }

    /// The frame becomes another call (rule A3).
    pub(crate) fn become_call(&mut self, t: Id, call: Call) {
        self.thread_mut(t).registers.set_call(call as u64);
    }

    /// Begins a wait, at an object if one is given.
    pub(crate) fn wait(&mut self, t: Id, why: Waiting, at: Option<Id>) {
        self.leave(t);
        let t = self.thread_mut(t);
        (t.status, t.at) = (Status::Waiting(why), at);
    }

    /// Ends the wait of a thread by completing its call.
    pub(crate) fn complete(&mut self, t: Id, code: Code) {
        self.finish(t, code);
        self.wake(t);
    }

    /// Ends the wait of a thread with nothing granted.
    pub(crate) fn wake(&mut self, t: Id) {
        self.leave(t);
        self.go_on(t);
    }

    /// Ends the wait: nothing is left of it but what the frame says.
    pub(crate) fn leave(&mut self, t: Id) {
        let t = self.thread_mut(t);
        (t.deadline, t.at, t.asked, t.tells, t.cond) = (None, None, None, false, 0);
        if t.status != Status::Stopped {
            t.status = Status::Ready;
        }
    }

    /// Makes the thread ready if nothing keeps it from running; otherwise it is stopped, or waits.
    pub(crate) fn go_on(&mut self, id: Id) {
        let t = self.thread(id);
        let space = t.space;
        if t.stops > 0 || !self.is_open(id) {
            self.thread_mut(id).status = Status::Stopped;
        } else if space.is_none() {
            self.halt(id, Exception::NoSpace, 0);
        } else if space.is_some_and(|s| !self.is_open(s)) {
            self.wait(id, Waiting::Vacant, space);
        } else if t.exception_delivered {
            self.wait(id, Waiting::Exception, None);
        } else {
            self.thread_mut(id).status = Status::Ready;
        }
    }

    /// No keeper can help the thread: it stops with the exception in its state.
    pub(crate) fn halt(&mut self, t: Id, code: Exception, address: u64) {
        self.stop(t);
        let t = self.thread_mut(t);
        (t.exception, t.waited) = ((code as u8, address), (Waiting::Nothing, 0));
    }

    /// Stops the thread once more. Its frame is complete, and no call is completed in it while it is stopped.
    pub(crate) fn stop(&mut self, t: Id) {
        self.thread_mut(t).waited = self.thread(t).waits_for();
        self.leave(t);
        let t = self.thread_mut(t);
        t.stops = (t.stops + 1).min(u64::from(u32::MAX));
        t.status = Status::Stopped;
    }

    /// An interrupt for the thread: completes its wait for one, or stays pending.
    pub(crate) fn interrupt(&mut self, t: Id) {
        if self.waits(t, Waiting::Interrupt) {
            self.complete(t, Code::Ok);
        } else {
            self.thread_mut(t).interrupt = true;
        }
    }

    /// Whether the thread waits for this.
    #[must_use]
    pub fn waits(&self, t: Id, why: Waiting) -> bool {
        self.thread(t).status == Status::Waiting(why)
    }

    /// Which of the threads that wait for this at an object goes on: one of the highest priority. Of several, the
    /// first in the given order.
    #[must_use]
    pub fn first(&self, at: Id, why: Waiting) -> Option<Id> {
        let all = || {
            let here = move |t: &Thread| t.status == Status::Waiting(why) && t.at == Some(at);
            self.threads().filter(move |(_, t)| here(t)).map(|(id, t)| (id, t.priority))
        };
        let highest = all().map(|(_, priority)| priority).max()?;
        let may = |id: Id| all().any(|t| t == (id, highest));
        let seen = self.seen.order.iter().copied().find(|&id| may(id));
        seen.or_else(|| all().find(|t| t.1 == highest).map(|t| t.0))
    }

    /// A waiting thread begins its call again. This may happen at any time.
    pub fn restart(&mut self, t: Id) {
        if let Status::Waiting(_) = self.thread(t).status {
            self.wake(t);
        }
    }

    /// Whether a thread that waits has a reason to: if not, a wake-up was lost.
    #[must_use]
    pub fn may_wait(&self, id: Id) -> bool {
        let t = self.thread(id);
        let Status::Waiting(why) = t.status else {
            return true;
        };
        let open = t.at.is_some_and(|at| self.is_open(at));
        match why {
            Waiting::Nothing => false,
            // Until other threads leave the kernel: a matter of the execution model, not of any call.
            Waiting::Kernel => true,
            Waiting::Mutex => open && t.at.is_some_and(|m| self.mutex(m).locked),
            // Until a signal, or for any shorter time.
            Waiting::Cond => open,
            Waiting::Deadline => true,
            Waiting::Interrupt => !t.interrupt,
            Waiting::Port => {
                let connects =
                    !t.tells && self.stages(id).and_then(Plan::first) == Some(Plan::CONNECT);
                let may = |port: Id| !(connects && self.port(port).calls_only);
                open && t.at.is_some_and(|port| self.waiting_server(port).is_none() && may(port))
            }
            Waiting::Portset => open && t.at.is_some_and(|set| self.unreferenced(set).is_none()),
            Waiting::Reply => t.served_by().is_some_and(|(s, stage)| {
                let s = self.live(Some(s), abi::Type::Thread).map(|s| self.thread(s).server);
                s.is_some_and(|end| end.peer == Some(id) && end.stage == stage)
            }),
            Waiting::Exception => t.exception_delivered,
            Waiting::Vacant => {
                t.at.is_some_and(|met| self.objects.contains_key(&met) && !self.is_open(met))
            }
            Waiting::Peer => self.may_wait_for_peer(id),
        }
    }

    /// Whether the other end of the connection exists, and is not ready for what this end is about to do.
    fn may_wait_for_peer(&self, t: Id) -> bool {
        let Some(stages) = self.stages(t) else {
            return false;
        };
        let Some(p) = self.connected(t, stages) else {
            return false;
        };
        let theirs = self.peer_waits(p, stages).and_then(Plan::first);
        match (stages.first(), theirs) {
            (Some(Plan::RECEIVE), Some(Plan::SEND | Plan::OVER)) => false,
            (Some(Plan::SEND | Plan::OVER), Some(Plan::RECEIVE)) => false,
            (Some(Plan::SEND | Plan::OVER | Plan::RECEIVE), _) => true,
            _ => false,
        }
    }

    /// The stages of the call in a thread's frame.
    pub(crate) fn stages(&self, t: Id) -> Option<Plan> {
        Call::from_number(self.thread(t).registers.call() as u8).map(abi::ipc::plan)
    }
}

impl Thread {
    /// What the thread waits for, or waited for when it was stopped, and a word with a handle, an address or a time.
    #[must_use]
    pub fn waits_for(&self) -> (Waiting, u64) {
        let why = match self.status {
            Status::Ready => Waiting::Nothing,
            Status::Waiting(why) => why,
            Status::Stopped => return self.waited,
        };
        let what = match why {
            Waiting::Cond => self.cond,
            Waiting::Exception => self.exception.1,
            Waiting::Reply => {
                let missing = self.asked.and_then(|asked| asked.missing);
                missing.map_or(self.registers.parameter(0), |(page, ..)| page)
            }
            Waiting::Mutex | Waiting::Port | Waiting::Portset | Waiting::Deadline => {
                self.registers.parameter(0)
            }
            _ => 0,
        };
        (why, what)
    }

    /// The thread that owes it a reply, and the stage that says to what.
    #[must_use]
    pub fn served_by(&self) -> Option<(Id, Stage)> {
        let stage = |missing| if missing { Stage::Fault } else { Stage::Call };
        self.asked.map(|asked| (asked.server, stage(asked.missing.is_some())))
    }
}

/// Whether the stage is one of a connection.
pub(crate) fn reliable(stage: Stage) -> bool {
    matches!(stage, Stage::Sending | Stage::Receiving | Stage::Over | Stage::Ack)
}
