//! IPC: connections, idempotent calls, and the kernel's own messages.
//!
//! A call is a sequence of stages ([`abi::ipc::plan`]). [`System::ipc`] does the first stage that is left, writes
//! into the frame which call the rest is, and goes on with the next stage.
//!
//! Bytes move when one end sends and the other receives. One of the two threads runs, the other waits, and the
//! running thread does the work of both. If a page of the waiting thread is absent, its keeper is [asked on that
//! thread's behalf](System::settle_for); whatever else only the waiting thread can settle is [left to
//! it](System::leave_to).

use crate::memory::Missing;
use crate::message::{Moved, Side};
use crate::object::{Answer, Body, End, Port};
use crate::wait::{reliable, Asked, Meets, Status, Waiting};
use crate::{Handled, Id, Outcome, Stop, System};
use abi::ipc::{next, plan, Plan};
use abi::message::SHORT_ANSWER_WORDS;
use abi::registers::DEADLINE;
use abi::state::{Stage, REGISTER_WORDS};
use abi::{Call, Code, Exception, RefKind, Registers, Type, MAX_IDEMPOTENT};

/// Most servers that the kernel sends away because they cannot take its message about a thread that does not run:
/// that thread then meets its fault by itself.
const KEEPERS_FOR_ANOTHER: u64 = 2;

/// How a stage ended.
enum Step {
    /// The stage is done; if the result is not `Ok`, so is the call.
    Done(Code),
    /// The call is complete, result and all.
    Finished,
    /// The thread waits.
    Wait,
}

impl System {
    /// Does the stages that are left.
    pub(crate) fn ipc(&mut self, t: Id, mut call: Call) -> Handled {
        loop {
            let stages = plan(call);
            let step = match stages.first() {
                Some(Plan::CONNECT) => self.connect(t)?,
                Some(Plan::ACK) => self.ack(t, stages)?,
                Some(Plan::REPLY) => self.reply(t, stages)?,
                Some(Plan::CALL) => return self.call_idempotent(t, stages),
                Some(Plan::SEND) => self.send(t, stages)?,
                Some(Plan::OVER) => self.over(t, stages)?,
                Some(Plan::WAIT) => self.wait_for_client(t, stages)?,
                Some(Plan::RECEIVE) => return self.receive(t, stages),
                _ => self.disconnect(t, stages),
            };
            match (step, next(call)) {
                (Step::Wait, _) => return Ok(Outcome::Wait),
                (Step::Finished, _) => return Ok(Outcome::Done),
                (Step::Done(Code::Ok), Some(rest)) => {
                    self.become_stage(t, call, rest);
                    call = rest;
                }
                (Step::Done(code), _) => {
                    self.finish(t, code);
                    return Ok(Outcome::Done);
                }
            }
        }
    }

    /// The first stage is done. The byte count of a register message that has still to be sent stays in the frame.
    fn become_stage(&mut self, t: Id, from: Call, rest: Call) {
        let sends = plan(rest).has(Plan::SEND) && plan(from).has(Plan::SEND);
        let count = self.thread(t).registers.call() & 0xff00;
        self.become_call(t, rest);
        if sends && plan(rest).has(Plan::SHORT) {
            let r = &mut self.thread_mut(t).registers;
            r.set_call(r.call() | count);
        }
    }

    /// The first stage of a waiting thread is done. Its call is complete, or the thread waits on in the stages that
    /// are left; the wait for another client it begins itself.
    fn advance(&mut self, t: Id) {
        match self.frame_call(t).map(|call| (call, next(call))) {
            Some((call, Some(rest))) => {
                self.become_stage(t, call, rest);
                if plan(rest).first() == Some(Plan::WAIT) {
                    self.wake(t);
                }
            }
            _ => self.complete(t, Code::Ok),
        }
    }

    /// Result of a receive: a register message has its count beside the code.
    fn finish_receive(&mut self, t: Id, code: Code) {
        let short = self.stages(t).is_some_and(|s| s.has(Plan::SHORT));
        let count = if short { self.thread(t).registers.call() & 0xff00 } else { 0 };
        self.finish_with(t, code as u64 | count);
    }

    fn complete_receive(&mut self, t: Id, code: Code) {
        self.finish_receive(t, code);
        self.wake(t);
    }

    fn frame_call(&self, t: Id) -> Option<Call> {
        Call::from_number(self.thread(t).registers.call() as u8)
    }

    fn space_of(&self, t: Id) -> Result<Id, Stop> {
        self.thread(t).space.ok_or(Stop::Exception(Exception::NoSpace, 0))
    }

    /// This thread's end in a call of that side.
    fn end_of(&self, t: Id, stages: Plan) -> End {
        let t = self.thread(t);
        if stages.has(Plan::CLIENT) {
            t.client
        } else {
            t.server
        }
    }

    fn end_mut(&mut self, t: Id, stages: Plan) -> &mut End {
        let t = self.thread_mut(t);
        if stages.has(Plan::CLIENT) {
            &mut t.client
        } else {
            &mut t.server
        }
    }

    /// The peer at the other end, if both ends name each other.
    pub(crate) fn connected(&self, t: Id, stages: Plan) -> Option<Id> {
        let end = self.end_of(t, stages);
        let p = self.live(end.peer, Type::Thread)?;
        let theirs = self.end_of(p, other(stages));
        let both = theirs.peer == Some(t) && reliable(theirs.stage) && reliable(end.stage);
        both.then_some(p)
    }

    /// The peer, for a stage of a connection. If the connection has ended, this thread's end is cleared.
    fn peer(&mut self, t: Id, stages: Plan) -> Result<Id, Stop> {
        if !reliable(self.end_of(t, stages).stage) {
            return Err(Stop::Code(Code::WrongStage));
        }
        let peer = self.connected(t, stages);
        if peer.is_none() {
            *self.end_mut(t, stages) = End::default();
        }
        peer.ok_or(Stop::Code(Code::Disconnected))
    }

    /// The stages that the peer has left, if it waits on this connection.
    pub(crate) fn peer_waits(&self, p: Id, stages: Plan) -> Option<Plan> {
        let theirs = self.stages(p).filter(|_| self.waits(p, Waiting::Peer))?;
        (theirs.has(Plan::SERVER) == stages.has(Plan::CLIENT)).then_some(theirs)
    }

    fn wait_for_peer(&mut self, t: Id) -> Result<Step, Stop> {
        self.wait(t, Waiting::Peer, None);
        Ok(Step::Wait)
    }

    /// Leaves `stop` to the peer: it does its call again, and meets this first.
    fn leave_to(&mut self, p: Id, stop: Stop) {
        if let Stop::Vacant(met) = stop {
            return self.wait(p, Waiting::Vacant, Some(met));
        }
        self.wake(p);
        self.thread_mut(p).meets = match stop {
            Stop::Fault(fault) => Some(Meets::Page(fault.address, fault.access)),
            Stop::Device(address, access) => Some(Meets::Page(address, access)),
            Stop::Exception(code, address) => Some(Meets::Wrong(code, address)),
            _ => None,
        };
    }

    /// Settles what stopped a message at the peer's side. For a missing page the keeper is asked at once, as the peer
    /// would ask if it went on.
    fn settle_for(&mut self, p: Id, stop: Stop) {
        let Stop::Fault(fault) = stop else {
            return self.leave_to(p, stop);
        };
        self.leave(p);
        self.fault(p, fault);
    }

    /// Moves the message of one thread to another; each is given with the stages that it has left.
    fn move_message(&mut self, from: (Id, Plan), to: (Id, Plan)) -> Moved {
        let mut source = Side::sender(self, from.0, from.1);
        let mut sink = Side::receiver(self, to.0, to.1, true);
        let moved = self.transfer(&mut source, &mut sink, [from.0, to.0]);
        source.save_sender(&mut self.thread_mut(from.0).registers);
        sink.save_receiver(&mut self.thread_mut(to.0).registers);
        moved
    }
}

fn other(stages: Plan) -> Plan {
    if stages.has(Plan::CLIENT) {
        Plan::SERVER
    } else {
        Plan::CLIENT
    }
}

// ---- stages of a connection ----------------------------------------------------------------------

impl System {
    /// Connects to a port: to a server that waits there; otherwise waits for one.
    fn connect(&mut self, t: Id) -> Result<Step, Stop> {
        let handle = self.thread(t).registers.parameter(0);
        let port = self.find_target(self.space_of(t)?, handle, Type::Port)?;
        if self.port(port).calls_only {
            return Err(Stop::Code(Code::Denied));
        }
        if self.thread(t).client.stage != Stage::None {
            return Err(Stop::Code(Code::WrongStage));
        }
        let Some(server) = self.waiting_server(port) else {
            return Ok(self.wait_for_server(t, port, false));
        };
        self.link(t, server, port);
        Ok(Step::Done(Code::Ok))
    }

    /// Waits for a server, which is to do the call in the thread's frame or, if `tells`, to receive the kernel's
    /// message about the thread.
    fn wait_for_server(&mut self, t: Id, port: Id, tells: bool) -> Step {
        self.wait(t, Waiting::Port, Some(port));
        self.thread_mut(t).tells = tells;
        Step::Wait
    }

    /// A server that waits for clients of the port.
    pub(crate) fn waiting_server(&self, port: Id) -> Option<Id> {
        let Port { holds, portset, .. } = *self.port(port);
        let set = self.live(portset.filter(|_| !holds), Type::Portset)?;
        self.first(self.open(set).ok()?, Waiting::Portset)
    }

    /// Makes the connection. The server, if it waited for a client, has that stage done.
    fn link(&mut self, client: Id, server: Id, port: Id) {
        self.thread_mut(client).client = End { stage: Stage::Sending, peer: Some(server) };
        self.thread_mut(server).server = End { stage: Stage::Receiving, peer: Some(client) };
        let alias = self.port(port).alias;
        self.thread_mut(server).registers.set_parameter(0, alias);
        if self.waits(server, Waiting::Portset) {
            self.connected_now(server);
        }
    }

    /// A waiting thread has found its other end: that stage is done. If what it sends next seems to be empty, it goes
    /// on by itself, since an empty message is sent without the other end's help.
    fn connected_now(&mut self, t: Id) {
        match self.frame_call(t).map(|call| (call, next(call))) {
            Some((call, Some(rest))) => {
                self.leave(t);
                self.become_stage(t, call, rest);
                let stages = abi::ipc::plan(rest);
                let sends = stages.first() == Some(Plan::SEND);
                if sends && Side::sender(self, t, stages).seems_empty() {
                    self.wake(t);
                } else {
                    self.wait(t, Waiting::Peer, None);
                }
            }
            _ => self.complete(t, Code::Ok),
        }
    }

    /// Takes the direction that the peer turned round.
    fn ack(&mut self, t: Id, stages: Plan) -> Result<Step, Stop> {
        let p = self.peer(t, stages)?;
        if self.end_of(t, stages).stage != Stage::Ack {
            return Err(Stop::Code(Code::WrongStage));
        }
        self.open(p)?;
        self.end_mut(t, stages).stage = Stage::Sending;
        self.end_mut(p, other(stages)).stage = Stage::Receiving;
        Ok(Step::Done(Code::Ok))
    }

    /// Sends until nothing is left. An empty message is sent without the other end's help.
    fn send(&mut self, t: Id, stages: Plan) -> Result<Step, Stop> {
        let p = self.peer(t, stages)?;
        if self.end_of(t, stages).stage != Stage::Sending {
            return Err(Stop::Code(Code::WrongStage));
        }
        let receives = |theirs: &Plan| theirs.first() == Some(Plan::RECEIVE);
        let Some(theirs) = self.peer_waits(p, stages).filter(receives) else {
            let mut source = Side::sender(self, t, stages);
            let empty = source.is_empty(self);
            source.save_sender(&mut self.thread_mut(t).registers);
            if empty? {
                return Ok(Step::Done(Code::Ok));
            }
            return self.wait_for_peer(t);
        };
        match self.move_message((t, stages), (p, theirs)) {
            Moved::All => return Ok(Step::Done(Code::Ok)),
            Moved::Full => self.complete_receive(p, Code::More),
            Moved::Enough => return Err(Stop::Again),
            Moved::Sender(stop) => return Err(stop),
            Moved::Receiver(stop) => self.settle_for(p, stop),
        }
        self.wait_for_peer(t)
    }

    /// Turns the direction round, once the peer is there to take it.
    fn over(&mut self, t: Id, stages: Plan) -> Result<Step, Stop> {
        let p = self.peer(t, stages)?;
        if self.end_of(t, stages).stage != Stage::Sending {
            return Err(Stop::Code(Code::WrongStage));
        }
        if self.peer_waits(p, stages).and_then(Plan::first) != Some(Plan::RECEIVE) {
            return self.wait_for_peer(t);
        }
        self.end_mut(t, stages).stage = Stage::Over;
        self.end_mut(p, other(stages)).stage = Stage::Ack;
        self.complete_receive(p, Code::Ok);
        Ok(Step::Done(Code::Ok))
    }

    /// Receives until the peer turns the direction round, the buffer is full, or the connection has
    /// ended.
    fn receive(&mut self, t: Id, stages: Plan) -> Handled {
        if self.end_of(t, stages).stage == Stage::Finished {
            *self.end_mut(t, stages) = End::default();
            self.finish_receive(t, Code::Ok);
            return Ok(Outcome::Done);
        }
        let p = match self.peer(t, stages) {
            Err(Stop::Code(code)) => {
                self.finish_receive(t, code);
                return Ok(Outcome::Done);
            }
            peer => peer?,
        };
        if !matches!(self.end_of(t, stages).stage, Stage::Receiving | Stage::Over) {
            self.finish_receive(t, Code::WrongStage);
            return Ok(Outcome::Done);
        }
        if let Some(theirs) = self.peer_waits(p, stages).filter(|s| s.first() == Some(Plan::SEND)) {
            match self.move_message((p, theirs), (t, stages)) {
                Moved::All => self.advance(p),
                Moved::Full => {
                    self.finish_receive(t, Code::More);
                    return Ok(Outcome::Done);
                }
                Moved::Enough => return Err(Stop::Again),
                Moved::Receiver(stop) => return Err(stop),
                Moved::Sender(stop) => self.settle_for(p, stop),
            }
        }
        if self.peer_waits(p, stages).and_then(Plan::first) == Some(Plan::OVER) {
            self.end_mut(p, other(stages)).stage = Stage::Over;
            self.end_mut(t, stages).stage = Stage::Ack;
            self.advance(p);
            self.finish_receive(t, Code::Ok);
            return Ok(Outcome::Done);
        }
        self.wait(t, Waiting::Peer, None);
        Ok(Outcome::Wait)
    }

    fn disconnect(&mut self, t: Id, stages: Plan) -> Step {
        if stages.has(Plan::CLIENT) {
            self.drop_client_end(t);
        } else if self.thread(t).server.stage != Stage::None {
            self.drop_server_end(t);
        }
        Step::Done(Code::Ok)
    }

    /// Ends the connection at the client's end.
    pub(crate) fn drop_client_end(&mut self, t: Id) {
        let end = std::mem::take(&mut self.thread_mut(t).client);
        if let Some(s) = self.live(end.peer, Type::Thread) {
            let theirs = self.thread(s).server;
            if theirs.peer == Some(t) && reliable(theirs.stage) {
                self.tell_disconnected(s, Plan::SERVER);
            }
        }
    }

    /// Ends what the server's end holds: a connection, or a request, which the client then sends again.
    pub(crate) fn drop_server_end(&mut self, s: Id) {
        let end = std::mem::take(&mut self.thread_mut(s).server);
        let Some(c) = self.live(end.peer, Type::Thread) else {
            return;
        };
        let theirs = self.thread(c).client;
        if matches!(end.stage, Stage::Call | Stage::Fault) {
            let owed = self.thread(c).served_by() == Some((s, end.stage));
            if self.waits(c, Waiting::Reply) && owed {
                self.wake(c);
            }
        } else if reliable(end.stage) && theirs.peer == Some(s) && reliable(theirs.stage) {
            self.tell_disconnected(c, Plan::CLIENT);
        }
    }

    /// A peer that waits on the connection learns at once that it has ended; any other peer learns it when it next
    /// uses its end.
    fn tell_disconnected(&mut self, p: Id, side: Plan) {
        let theirs = self.stages(p).filter(|s| s.has(side) && self.waits(p, Waiting::Peer));
        if let Some(theirs) = theirs {
            *self.end_mut(p, side) = End::default();
            if theirs.first() == Some(Plan::RECEIVE) {
                self.complete_receive(p, Code::Disconnected);
            } else {
                self.complete(p, Code::Disconnected);
            }
        }
    }
}

// ---- the server's wait ---------------------------------------------------------------------------

impl System {
    /// Ends the connection, and takes the next client or waits for one.
    fn wait_for_client(&mut self, t: Id, stages: Plan) -> Result<Step, Stop> {
        let handle = self.thread(t).registers.parameter(0);
        let set = self.find(self.space_of(t)?, handle, Type::Portset)?;
        self.leave_client(t);
        if let Some(port) = self.unreferenced(set) {
            let alias = self.no_longer_notify(port);
            self.thread_mut(t).registers.set_parameter(0, alias);
            return Ok(Step::Done(Code::Unreferenced));
        }
        let mut refused = 0;
        while let Some((client, port)) = self.waiting_client(set) {
            if self.seen.refused == Some(refused) {
                return Err(Stop::Again);
            }
            refused += 1;
            let wants = self.stages(client).and_then(Plan::first);
            match wants.filter(|_| !self.thread(client).tells) {
                Some(Plan::CONNECT) => {
                    self.link(client, t, port);
                    self.connected_now(client);
                    return Ok(Step::Done(Code::Ok));
                }
                Some(Plan::CALL) => {
                    if self.take_call(t, client, port)? {
                        return Ok(Step::Finished);
                    }
                }
                // The client meets its fault again, and then finds this server waiting.
                _ => self.wake(client),
            }
        }
        let mut deadline = None;
        if stages.has(Plan::UNTIL) {
            let at = self.thread(t).registers.parameter(DEADLINE);
            deadline = self.machine_time(self.space_of(t)?, at);
            if deadline.is_some_and(|at| at <= self.now) {
                return Err(Stop::Code(Code::TimedOut));
            }
        }
        self.wait(t, Waiting::Portset, Some(set));
        self.thread_mut(t).deadline = deadline;
        Ok(Step::Wait)
    }

    /// A port of the set that no reference names and whose server is to be told so. Of several, the first in the
    /// given order.
    pub(crate) fn unreferenced(&self, set: Id) -> Option<Id> {
        let told = self.seen.told.iter().copied();
        let all = told.chain(self.all(Type::Port).map(|(id, _)| id));
        all.into_iter().find(|&id| {
            self.is_open(id)
                && self.port(id).notify
                && self.port(id).portset == Some(set)
                && !self.is_named(id)
        })
    }

    /// Whether a reference names the port, or it is the keeper of a region or a space.
    fn is_named(&self, port: Id) -> bool {
        self.objects.values().any(|object| match &object.body {
            Body::Reference(r) => r.target.kind == RefKind::Port && r.target.id == port,
            Body::Region(r) => r.keeper == Some(port),
            Body::Space(s) => s.keeper == Some(port),
            _ => false,
        })
    }

    fn no_longer_notify(&mut self, port: Id) -> u64 {
        let port = self.port_mut(port);
        port.notify = false;
        port.alias
    }

    /// Tells waiting servers of the ports that nothing names any more.
    pub(crate) fn tell_unreferenced(&mut self) {
        let sets: Vec<Id> = self.all(Type::Portset).map(|(id, _)| id).collect();
        for set in sets {
            while let Some((server, port)) =
                self.first(set, Waiting::Portset).zip(self.unreferenced(set))
            {
                let alias = self.no_longer_notify(port);
                self.thread_mut(server).registers.set_parameter(0, alias);
                self.complete(server, Code::Unreferenced);
            }
        }
    }

    /// A client that waits at one of the ports of the set, of the highest priority, and the port. A client that has
    /// had its turn and waits again comes behind the others.
    fn waiting_client(&mut self, set: Id) -> Option<(Id, Id)> {
        let here = |id: &Id| {
            let t = self.thread(*id);
            let port = t.at.and_then(|port| self.objects.contains_key(&port).then_some(port));
            t.status == Status::Waiting(Waiting::Port)
                && port
                    .map(|port| self.port(port))
                    .is_some_and(|p| p.portset == Some(set) && !p.holds)
        };
        let all: Vec<Id> = self.threads().map(|(id, _)| id).filter(here).collect();
        let highest = all.iter().map(|&id| self.thread(id).priority).max()?;
        let may = |id: &Id| all.contains(id) && self.thread(*id).priority == highest;
        let seen = self.seen.order.iter().copied().find(|id| may(id));
        let client = seen.or_else(|| all.iter().copied().find(may))?;
        self.seen.order.retain(|&id| id != client);
        self.seen.order.push(client);
        Some((client, self.thread(client).at?))
    }

    /// Takes the call of a client that waits. An obstacle on the client's side is left to the client; only the
    /// server's own absent page stops the server.
    fn take_call(&mut self, s: Id, c: Id, port: Id) -> Result<bool, Stop> {
        let Some(stages) = self.stages(c) else {
            self.wake(c);
            return Ok(false);
        };
        match self.deliver(s, port, Side::sender(self, c, stages), Code::Call) {
            Moved::All => {
                self.leave(c);
                self.owe_reply(c, s);
                return Ok(true);
            }
            Moved::Full | Moved::Enough => self.complete(c, Code::TooLarge),
            Moved::Receiver(stop) => return Err(stop),
            Moved::Sender(stop) => self.settle_for(c, stop),
        }
        Ok(false)
    }

    fn owe_reply(&mut self, c: Id, s: Id) {
        self.thread_mut(s).server = End { stage: Stage::Call, peer: Some(c) };
        self.wait_for_answer(c, Asked { server: s, missing: None });
    }

    fn wait_for_answer(&mut self, c: Id, asked: Asked) {
        self.wait(c, Waiting::Reply, None);
        self.thread_mut(c).asked = Some(asked);
    }

    /// A server goes on to its next client. If it has the direction, it ends the connection in order; otherwise it
    /// drops the connection.
    fn leave_client(&mut self, s: Id) {
        let client = self.connected(s, Plan::SERVER);
        let (Stage::Sending, Some(c)) = (self.thread(s).server.stage, client) else {
            if self.thread(s).server.stage != Stage::None {
                self.drop_server_end(s);
            }
            return;
        };
        self.thread_mut(s).server = End::default();
        if self.peer_waits(c, Plan::SERVER).and_then(Plan::first) == Some(Plan::RECEIVE) {
            self.thread_mut(c).client = End::default();
            self.complete_receive(c, Code::Ok);
        } else {
            self.thread_mut(c).client.stage = Stage::Finished;
        }
    }
}

// ---- idempotent messages -------------------------------------------------------------------------

impl System {
    /// Gives a whole message to a server that waits or is about to, and completes its call with `code`. The frame
    /// changes only if the whole message arrives; the result is `Full` if it does not fit.
    fn deliver(&mut self, s: Id, port: Id, mut source: Side, code: Code) -> Moved {
        let call = self.frame_call(s).map(|call| (call, next(call)));
        let Some((call, Some(rest))) =
            call.filter(|c| c.1.is_some_and(|r| plan(r).has(Plan::RECEIVE)))
        else {
            return Moved::Full;
        };
        let mut sink = Side::receiver(self, s, plan(rest), false);
        match self.transfer_whole(&mut source, &mut sink, false) {
            Moved::All => {}
            // Too many empty segments: there is no progress to keep.
            Moved::Sender(Stop::Again) | Moved::Receiver(Stop::Again) => return Moved::Full,
            other => return other,
        }
        self.become_stage(s, call, rest);
        sink.save_receiver(&mut self.thread_mut(s).registers);
        let alias = self.port(port).alias;
        self.thread_mut(s).registers.set_parameter(0, alias);
        self.finish_receive(s, code);
        Moved::All
    }

    /// Sends the request and waits for the reply. Until the reply is there, the frame says to do all of the call
    /// again.
    fn call_idempotent(&mut self, t: Id, stages: Plan) -> Handled {
        let handle = self.thread(t).registers.parameter(0);
        let port = self.find_target(self.space_of(t)?, handle, Type::Port)?;
        let source = Side::sender(self, t, stages);
        if source.known_length() > MAX_IDEMPOTENT {
            return Err(Stop::Code(Code::TooLarge));
        }
        // The reply should not meet an absent page.
        Side::receiver(self, t, stages, false).probe(self)?;
        let mut refused = 0;
        while self.seen.refused != Some(refused) {
            let Some(s) = self.waiting_server(port) else {
                self.wait_for_server(t, port, false);
                return Ok(Outcome::Wait);
            };
            refused += 1;
            match self.deliver(s, port, source, Code::Call) {
                Moved::All => {
                    self.wake(s);
                    self.owe_reply(t, s);
                    return Ok(Outcome::Wait);
                }
                Moved::Full | Moved::Enough => return Err(Stop::Code(Code::TooLarge)),
                Moved::Sender(stop) => return Err(stop),
                // This server must settle something of its own first: perhaps another one waits.
                Moved::Receiver(stop) => self.settle_for(s, stop),
            }
        }
        Err(Stop::Again)
    }

    /// The kernel's message about the exception that begins with these words. A server that receives in registers
    /// gets only the registers that control the thread, any other server gets all of them.
    fn exception_message(&self, t: Id, s: Id, begin: [u64; 4]) -> Vec<u64> {
        let r = self.thread(t).registers();
        let short = self.frame_call(s).is_some_and(|call| plan(call).has(Plan::SHORT));
        let control = [r.pc(), r.sp(), r.flags(), r.call()];
        let rest: &[u64] = if short { &control } else { &r.to_words() };
        begin.iter().chain(rest).copied().collect()
    }

    /// Sends the kernel's message on behalf of a thread that met a fault or an exception.
    pub(crate) fn send_from_kernel(
        &mut self,
        t: Id,
        port: Id,
        words: [u64; 4],
        missing: Option<Missing>,
    ) {
        let (code, stage) = match missing {
            Some(_) => (Code::Fault, Stage::Fault),
            None => (Code::Exception, Stage::Exception),
        };
        // On behalf of a thread that does not run, only few servers are tried.
        let most = if t == self.running { self.seen.keepers } else { Some(KEEPERS_FOR_ANOTHER) };
        let mut refused = 0;
        while let Some(s) = self.waiting_server(port) {
            if most == Some(refused) {
                return self.wake(t);
            }
            refused += 1;
            let words = match missing {
                Some(_) => words.to_vec(),
                None => self.exception_message(t, s, words),
            };
            match self.deliver(s, port, Side::kernel(&words), code) {
                Moved::All => {
                    self.wake(s);
                    self.thread_mut(s).server = End { stage, peer: Some(t) };
                    if missing.is_some() {
                        return self.wait_for_answer(t, Asked { server: s, missing });
                    }
                    let thread = self.thread_mut(t);
                    (thread.exception_delivered, thread.keeper) = (true, Some(s));
                    return self.wait(t, Waiting::Exception, None);
                }
                // The server has room for less than the kernel's message: its own call ends with `TooLarge`.
                Moved::Full | Moved::Enough => self.complete(s, Code::TooLarge),
                Moved::Receiver(stop) => self.leave_to(s, stop),
                Moved::Sender(_) => self.wake(s),
            }
        }
        self.wait_for_server(t, port, true);
    }

    /// Answers what the server's end holds. An answer to a client that is gone is dropped.
    fn reply(&mut self, t: Id, stages: Plan) -> Result<Step, Stop> {
        self.space_of(t)?;
        let end = self.thread(t).server;
        let source = Side::sender(self, t, stages);
        // The client that still waits for this answer: both ends must agree on what it answers.
        let owed = self.live(end.peer, Type::Thread).filter(|&c| {
            self.waits(c, Waiting::Reply) && self.thread(c).served_by() == Some((t, end.stage))
        });
        match end.stage {
            Stage::Call if source.known_length() > MAX_IDEMPOTENT => {
                return Err(Stop::Code(Code::TooLarge));
            }
            Stage::Call => {
                if let Some(c) = owed {
                    self.reply_call(c, source)?;
                }
            }
            Stage::Fault => {
                if let Some(c) = owed {
                    let missing = self.thread(c).asked.and_then(|asked| asked.missing);
                    let space = self.thread(c).space;
                    let refused =
                        missing.filter(|&m| space.is_some_and(|s| self.still_missing(s, m)));
                    self.wake(c);
                    let client = self.thread_mut(c);
                    client.meets = refused.map(|(page, need, _)| {
                        Meets::Refused(page, Some(need).filter(|_| client.in_call))
                    });
                }
            }
            Stage::Exception => {
                let short =
                    stages.has(Plan::SHORT) || source.is_piece(SHORT_ANSWER_WORDS as u64 * 8);
                let answer = if short { Answer::Control } else { Answer::Whole };
                self.reply_exception(t, end, source, answer)?;
            }
            _ => return Err(Stop::Code(Code::WrongStage)),
        }
        self.thread_mut(t).server = End::default();
        Ok(Step::Done(Code::Ok))
    }

    /// Moves the answer into the client's buffer and completes its call.
    fn reply_call(&mut self, c: Id, mut source: Side) -> Result<(), Stop> {
        let Some(call) = self.frame_call(c) else {
            return Ok(());
        };
        let mut sink = Side::receiver(self, c, plan(call), false);
        let code = match self.transfer_whole(&mut source, &mut sink, true) {
            Moved::All => Code::Ok,
            Moved::Full | Moved::Enough | Moved::Receiver(Stop::Again) => Code::Truncated,
            Moved::Sender(Stop::Again) => return Err(Stop::Code(Code::TooLarge)),
            Moved::Sender(stop) => return Err(stop),
            // The client does its call again once its page is there: it is idempotent.
            Moved::Receiver(stop) => {
                self.settle_for(c, stop);
                return Ok(());
            }
        };
        self.become_call(c, call);
        sink.save_receiver(&mut self.thread_mut(c).registers);
        self.complete_receive(c, code);
        Ok(())
    }

    /// Sets the registers with which a thread goes on after its exception, stopped or not: all of them, or those that
    /// control it if the message is in registers or is one segment of just their length. An answer from any thread
    /// but the one that has the exception is too late.
    fn reply_exception(
        &mut self,
        t: Id,
        end: End,
        source: Side,
        answer: Answer,
    ) -> Result<(), Stop> {
        let count = match answer {
            Answer::Control => SHORT_ANSWER_WORDS,
            Answer::Whole => REGISTER_WORDS,
        };
        let bytes = self.read_exactly(source, count as u64 * 8)?;
        let mut words = [0; REGISTER_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        let over = |registers| match answer {
            Answer::Control => control(registers, &words),
            Answer::Whole => Registers::from_words(&words),
        };
        if !crate::state::sound(&over(Registers::default())) {
            return Err(Stop::Code(Code::Invalid));
        }
        let mine = |c: &Id| self.thread(*c).keeper == Some(t);
        let Some(c) = self.live(end.peer, Type::Thread).filter(mine) else {
            return Ok(());
        };
        let (open, thread) = (self.is_open(c), self.thread_mut(c));
        if open && !thread.exception_delivered {
            return Ok(());
        }
        thread.set_registers(over(thread.registers()));
        if open {
            self.end_exception(c);
        } else {
            // The identity keeps the answer until a state is set that says that the exception is delivered.
            (thread.keeper, thread.answer) = (None, Some(answer));
        }
        Ok(())
    }

    /// A thread goes on behind its exception, which no keeper has any more.
    pub(crate) fn end_exception(&mut self, id: Id) {
        let thread = self.thread_mut(id);
        (thread.exception_delivered, thread.keeper) = (false, None);
        if self.waits(id, Waiting::Exception) {
            self.wake(id);
        }
    }
}

/// The registers of a thread whose exception was answered while it had no body.
pub(crate) fn answered(mut registers: Registers, by: Registers, answer: Answer) -> Registers {
    if answer == Answer::Whole {
        return by;
    }
    registers.set_pc(by.pc());
    registers.set_sp(by.sp());
    registers.set_flags(by.flags());
    registers.set_call(by.call());
    registers
}

/// These registers, controlled by the words of a short answer.
fn control(mut registers: Registers, words: &[u64; REGISTER_WORDS]) -> Registers {
    let [pc, sp, flags, call, ..] = *words;
    registers.set_pc(pc);
    registers.set_sp(sp);
    registers.set_flags(flags);
    registers.set_call(call);
    registers
}
