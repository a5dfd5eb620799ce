//! A task that lives, and its thread.

use abi::message::ExceptionMessage;
use abi::state::ThreadState;
use abi::{Exception, Registers, Type};
use personality::emulate::{self, Answer, Outcome};
use personality::host::Fpu;
use personality::memory::NO_SLOT;
use personality::process::Task;
use personality::system::System;
use proto::layout::{CONTROL_MAPPINGS, PRIORITY_PROGRAM};
use rt::obj::ThreadAt;

use super::native::Running;
use super::Parked;
use crate::clock;
use crate::world::{Seat, View, World};

/// A task that lives.
pub(super) struct Living {
    pub(super) task: Task,
    pub(super) seat: Seat,
    pub(super) parked: Option<Parked>,
    /// The message of the call that waits, or of an earlier one.
    pub(super) message: ExceptionMessage,
    /// When its call is to be made again, as noted in the table's `timers`.
    pub(super) timer: Option<u64>,
    /// Whether the thread is stopped for any reason: its process is frozen, stopped or ends, or a debugger or tracer
    /// holds it.
    pub(super) held: bool,
    /// Whether a debugger holds it.
    pub(super) stays: bool,
    /// Its call goes on although it is held, because the task is being saved and what the call has begun on a disk
    /// cannot be begun again.
    pub(super) finishes: bool,
    /// Whether its tracer holds it.
    pub(super) traced: bool,
    /// The native program that it stands for.
    pub(super) native: Option<Running>,
}

impl Living {
    pub(super) fn new(task: Task, seat: Seat) -> Self {
        Living {
            task,
            seat,
            parked: None,
            message: ExceptionMessage::default(),
            timer: None,
            held: false,
            stays: false,
            finishes: false,
            traced: false,
            native: None,
        }
    }

    pub(super) fn thread(&self) -> ThreadAt {
        self.seat.thread()
    }

    /// Stops the thread once more, for somebody who may change its registers or answer its exception. A call that waits
    /// is then made again with the registers that the thread has by then.
    pub(super) fn stop(&mut self) -> Result<(), abi::Code> {
        if let Some(parked) = &mut self.parked {
            parked.is_stale = true;
        }
        self.thread().stop()
    }

    pub(super) fn resume(&self) -> Result<(), abi::Code> {
        self.thread().resume()
    }

    pub(super) fn state(&self) -> Result<ThreadState, abi::Code> {
        self.thread().get_state(0, 0, 0)
    }

    /// The task, with the host for its calls.
    pub(super) fn parts<'a>(
        &'a mut self,
        system: &System,
        world: &'a mut World,
    ) -> (&'a mut Task, View<'a>) {
        let root = system.find(self.task.pid).map_or(0, |p| p.root);
        let view = View {
            root,
            seat: Some(&mut self.seat),
            world,
        };
        (&mut self.task, view)
    }

    /// Emulates the call or exception of a message.
    pub(super) fn emulate(
        &mut self,
        system: &mut System,
        world: &mut World,
        message: &ExceptionMessage,
    ) -> Outcome {
        let answer = self.answer(system, world, message);
        answer.outcome(&message.registers)
    }

    /// As [`Living::emulate`], where most calls only return a value.
    pub(super) fn answer(
        &mut self,
        system: &mut System,
        world: &mut World,
        message: &ExceptionMessage,
    ) -> Answer {
        if message.code == Exception::ForeignCall as u64 {
            let (task, mut view) = self.parts(system, world);
            emulate::answer(task, system, &mut view, &message.registers)
        } else {
            let (task, mut view) = self.parts(system, world);
            emulate::exception(task, system, &mut view, message).into()
        }
    }

    /// Lets a new thread, or one that waits for an answer to its exception, go on with these registers.
    pub(super) fn set_registers(
        &mut self,
        registers: &Registers,
        fpu: Option<Fpu>,
    ) -> Result<(), abi::Code> {
        if core::mem::take(&mut self.seat.fresh) {
            if let Some(old) = self.seat.old.take() {
                old.leave();
            }
            let state = ThreadState {
                registers: *registers,
                fpu: fpu.map_or_else(abi::state::initial_fpu, |fpu| fpu.0),
                tag: u64::from(self.task.tid),
                priority: PRIORITY_PROGRAM,
                ..ThreadState::default()
            };
            let memory = self.seat.memory.borrow();
            let started = memory.body.start_thread(self.seat.thread, state);
            return started.map_err(|_| abi::Code::Invalid);
        }
        let thread = self.thread();
        match thread.answer(registers, fpu.as_deref()) {
            Err(abi::Code::WrongStage) => {}
            answered => return answered,
        }
        thread.stop()?;
        let result = thread.get_state(0, 0, 0).and_then(|mut state| {
            state.registers = *registers;
            state.exception_delivered = 0;
            if let Some(fpu) = fpu {
                state.fpu = fpu.0;
            }
            let memory = self.seat.memory.borrow();
            thread.set_state(&state, memory.body.space_ref().handle(), 0, 0)
        });
        thread.resume()?;
        result
    }

    /// Notes whether the task uses the processor: it neither waits nor is held.
    pub(super) fn note_work(&mut self, system: &mut System) {
        let runs = self.parked.is_none() && !self.held;
        system.task_runs(&mut self.task, runs, clock::now);
    }

    /// When its call is to be made again, on the machine's clock; `None` while it is held.
    pub(super) fn deadline(&self) -> Option<u64> {
        let deadline = self.parked.as_ref()?.wake.deadline?;
        (!self.held).then(|| self.machines(deadline, clock::now()))
    }

    /// Converts a time on the task's clock to the machine's, which shows `now`.
    pub(super) fn machines(&self, time: u64, now: u64) -> u64 {
        let own_now = now.wrapping_add(self.task.clock_offset);
        now.saturating_add(time.saturating_sub(own_now))
    }

    /// Whether the mapping objects of all its areas exist.
    pub(super) fn has_mappings(&self) -> bool {
        let memory = self.seat.memory.borrow();
        let shared = self.task.shares.memory.borrow();
        let mut areas = shared.areas.list().iter().filter(|a| a.slot != NO_SLOT);
        areas.all(|area| {
            let at = CONTROL_MAPPINGS + u64::from(area.slot) * abi::OBJECT_SIZE;
            memory.body.has(at, Type::Mapping)
        })
    }

    /// Sets the tag of its thread to the task. Returns how often the thread is stopped, not counting the checkpoint's
    /// stop.
    pub(super) fn claim(&self) -> Result<u32, abi::Code> {
        let thread = self.thread();
        let mut state = thread.get_state(0, 0, 0)?;
        if state.tag != u64::from(self.task.tid) {
            state.tag = u64::from(self.task.tid);
            let memory = self.seat.memory.borrow();
            thread.set_state(&state, memory.body.space_ref().handle(), 0, 0)?;
        }
        Ok(state.stop_count.saturating_sub(1).min(1 << 16) as u32)
    }
}
