//! Tasks that are stopped for their tracer: their threads are stopped once more.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use personality::system::Tid;
use services::process::Pid;

use super::{Living, Table};
use crate::world::{short, World};

impl Living {
    /// Stops the thread of a task that is at a stop for its tracer, and lets the tracer's calls find its memory and
    /// thread. While the process is frozen the thread is not stopped again.
    pub(super) fn stop_for_tracer(&mut self, world: &mut World, frozen: bool) {
        if self.traced || self.native.is_some() || !frozen && self.stop().is_err() {
            return;
        }
        (self.traced, self.held) = (true, true);
        self.let_be_found(world);
    }

    fn let_be_found(&self, world: &mut World) {
        let peer = (Rc::downgrade(&self.seat.memory), self.seat.thread);
        world.peers.insert(self.task.tid, peer);
    }
}

impl Table {
    /// Stops the thread of a task that is at a stop for its tracer.
    pub(super) fn hold_traced(&mut self, tid: Tid) {
        if !self.system.is_trace_stopped(tid) {
            return;
        }
        let frozen = self.is_frozen(self.system.task_process(tid));
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        living.stop_for_tracer(&mut self.world, frozen);
        living.note_work(&mut self.system);
        self.schedule(tid);
    }

    /// Lets a task go on whose stop for its tracer is over.
    pub(super) fn release_traced(&mut self, tid: Tid) {
        if self.system.is_trace_stopped(tid) {
            return;
        }
        let frozen = self.is_frozen(self.system.task_process(tid));
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        let (pid, parked) = (living.task.pid, living.parked.is_some());
        if core::mem::take(&mut living.traced) {
            self.world.peers.remove(&tid);
            if !frozen {
                let _ = living.resume();
            }
        }
        self.hold_still(pid);
        if parked {
            self.due.insert(tid);
        }
        self.deliver_signals_in_turn(tid);
    }

    /// Takes away the stops for tracers from a process that is being frozen, since its image must not have them.
    pub(super) fn trace_freeze(&self, pid: Pid) {
        for tid in self.tasks_of(pid) {
            if let Some(living) = self.tasks.get(&tid).filter(|living| living.traced) {
                let _ = living.resume();
            }
        }
    }

    /// Undoes [`Table::trace_freeze`] before the process goes on.
    pub(super) fn trace_thaw(&mut self, pid: Pid) {
        for tid in self.tasks_of(pid) {
            let living = self.tasks.get_mut(&tid);
            if let Some(living) = living.filter(|living| living.traced) {
                let _ = living.stop();
                living.let_be_found(&mut self.world);
            }
        }
    }

    /// Why a tree cannot be saved, if a task of this process has a tracer outside the tree or the process traces a task
    /// outside; `None` otherwise.
    pub(super) fn traced_across(&self, pid: Pid, tree: &[Pid]) -> Option<String> {
        let name = |pid: Pid| {
            let name = self.one_of(pid).map(|one| short(&one.task.name()));
            format!("{} ({pid})", name.unwrap_or_default())
        };
        for tid in self.tasks_of(pid) {
            let trace = self.system.trace(tid).filter(|trace| !trace.leaves);
            if let Some(trace) = trace.filter(|trace| !tree.contains(&trace.tracer)) {
                let tracer = name(trace.tracer);
                return Some(format!(
                    "it is traced by {tracer}, which is not saved with it"
                ));
            }
        }
        let tracees = self.system.tracees(pid).into_iter();
        let mut tracees = tracees.map(|tid| self.system.task_process(tid));
        let other = tracees.find(|tracee| !tree.contains(tracee))?;
        Some(format!(
            "it traces {}, which is not saved with it",
            name(other)
        ))
    }
}
