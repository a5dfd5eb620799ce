//! The ends of connections, which belong to identities of threads, and how a connection ends.

use super::thread::Thread;
use super::Link;
use crate::K;
use abi::ipc::{plan, Plan};
use abi::state::{Stage, Waiting};
use abi::Code;
use core::cell::Cell;

/// One end of a connection.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// The thread at the other end. The connection exists while both name each other.
    pub(super) peer: &'a Cell<Link<Thread>>,
    pub(crate) stage: &'a Cell<Stage>,
}

impl End<'_> {
    /// The thread at the other end.
    #[inline(always)]
    pub(crate) fn peer(self) -> Link<Thread> {
        self.peer.get()
    }

    #[inline(always)]
    pub(crate) fn set(self, stage: Stage, peer: Link<Thread>) {
        self.peer.set(peer);
        self.stage.set(stage);
    }

    #[inline(always)]
    pub(crate) fn clear(self) {
        self.stage.set(Stage::None);
    }

    /// Whether this end names `peer` in a connection. The connection exists only if the peer's end names this thread,
    /// too.
    pub(crate) fn connects(self, peer: &'static Thread) -> bool {
        self.peer() == Link::to(peer) && is_of_connection(self.stage.get())
    }

    /// The peer as `get_state` shows it: none once the server has ended the connection.
    pub(crate) fn shown(self) -> Link<Thread> {
        match self.stage.get() {
            Stage::None | Stage::Finished => Link::NONE,
            _ => self.peer(),
        }
    }
}

/// Whether the stage is one of a connection.
pub(crate) fn is_of_connection(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::Sending | Stage::Receiving | Stage::Over | Stage::Ack
    )
}

impl Thread {
    /// Completes a waiting thread's receive.
    pub(crate) fn complete_receive(&'static self, k: K, code: Code) {
        self.finish_receive(code);
        self.wake(k);
    }

    /// Writes the result of a receive: the code, and for a register message the byte count.
    pub(crate) fn finish_receive(&self, code: Code) {
        let short = self.call().is_some_and(|c| plan(c).has(Plan::SHORT));
        let count = if short {
            self.ctx.call().get() & 0xff00
        } else {
            0
        };
        self.finish_with(code as u64 | count);
    }

    /// Ends the connection at the client's end.
    pub(crate) fn drop_client_end(&'static self, k: K) {
        let peer = self.client().peer();
        self.client().clear();
        if let Some(s) = peer.get() {
            if s.server().connects(self) {
                tell_disconnected(k, s, Plan::SERVER, s.server());
            }
        }
    }

    /// Ends the connection at the server's end, or drops the request to which the server owes a reply.
    pub(crate) fn drop_server_end(&'static self, k: K) {
        let (stage, peer) = (self.server().stage.get(), self.server().peer());
        self.server().clear();
        let Some(c) = peer.get() else { return };
        match stage {
            // The client sends its request again, perhaps to another server.
            Stage::Call | Stage::Fault
                if c.waits_for(Waiting::Reply) && c.served_by() == (Link::to(self), stage) =>
            {
                c.wake(k);
            }
            _ if is_of_connection(stage) && c.client().connects(self) => {
                tell_disconnected(k, c, Plan::CLIENT, c.client());
            }
            _ => {}
        }
    }
}

/// Completes the call of a peer that waits on the connection with `Disconnected`. A peer that does not wait finds out
/// when it next uses its end.
fn tell_disconnected(k: K, p: &'static Thread, side: Plan, end: End<'_>) {
    if p.waits_for(Waiting::Peer) && p.call().is_some_and(|c| plan(c).has(side)) {
        end.clear();
        if p.call().and_then(|c| plan(c).first()) == Some(Plan::RECEIVE) {
            p.complete_receive(k, Code::Disconnected);
        } else {
            p.complete(k, Code::Disconnected);
        }
    }
}
