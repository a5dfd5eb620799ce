//! Tasks that stand still for who traces them: their threads are stopped once more.

use alloc::rc::Rc;
use personality::system::Tid;
use services::process::Pid;

use super::{Living, Table};
use crate::world::World;

impl Living {
    /// It has stopped for its tracer, whose calls find its memory and its thread from now on.
    pub(super) fn stop_for_tracer(&mut self, world: &mut World) {
        if self.traced || self.native.is_some() || self.stop().is_err() {
            return;
        }
        (self.traced, self.held) = (true, true);
        let peer = (Rc::downgrade(&self.seat.memory), self.seat.thread);
        world.peers.insert(self.task.tid, peer);
    }
}

impl Table {
    /// Holds a task still that has stopped for its tracer.
    pub(super) fn hold_traced(&mut self, tid: Tid) {
        if !self.system.is_trace_stopped(tid) {
            return;
        }
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        living.stop_for_tracer(&mut self.world);
        self.schedule(tid);
    }

    /// Lets a task go on that has stopped for its tracer.
    pub(super) fn release_traced(&mut self, tid: Tid) {
        if self.system.is_trace_stopped(tid) {
            return;
        }
        let Some(living) = self.tasks.get_mut(&tid) else {
            return;
        };
        let (pid, parked) = (living.task.pid, living.parked.is_some());
        if core::mem::take(&mut living.traced) {
            self.world.peers.remove(&tid);
            let _ = living.resume();
        }
        self.hold_still(pid);
        if parked {
            self.due.insert(tid);
        }
        self.deliver_signals_in_turn(tid);
    }

    /// Who traces a task of this process, and which: numbers as programs see them.
    pub(super) fn tracer_of(&self, pid: Pid) -> Option<(u32, u32)> {
        let mut tasks = self.tasks_of(pid).into_iter();
        tasks.find_map(|tid| {
            let trace = self.system.trace(tid)?;
            let tracer = self.system.find(trace.tracer).map_or(0, |p| p.number);
            Some((tracer, trace.number))
        })
    }
}
