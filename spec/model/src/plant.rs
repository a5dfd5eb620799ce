//! Rules broken on purpose, so that tests show that the exploration finds what it looks for. Each is a small change
//! of one step of the specification.

use crate::moves::manages;
use crate::scene::{role, Role, CALL_BYTES, THEIRS};
use abi::ipc::{plan, Plan};
use abi::state::Stage;
use abi::{Call, Code, PAGE_SIZE};
use spec::object::{Body, End, Phase, Thread};
use spec::wait::{Status, Waiting};
use spec::{Event, Id, Seen, System};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Calls that manage an object wait for its body, as calls that use it do.
    ManagerWaits,
    /// A thread with a reference to a client's end can claim to have that client's exception, and is believed.
    TakesOver,
    /// A thread that has no reason to wait any more, and was given nothing, is not woken.
    ForgetsToWake,
    /// An interrupt for a thread that does not wait for one is dropped.
    DropsInterrupt,
    /// A new body loses the pending interrupt that the old state had.
    ForgetsPending,
    /// `port_get_state` gives the caller a reference to our space, that of the port's server.
    Leaks,
    /// A reply is given to a client that waits for one, even if another thread owes it.
    RepliesForAnother,
    /// A thread gets the priority that is asked for, whatever the ceiling of its space.
    IgnoresCeiling,
    /// A thread that disconnects makes all waiting threads begin their calls again.
    WakesEverybody,
    /// A holder of a space can raise its quota, at the cost of the space's creator.
    AnybodyGives,
}

fn word(system: &System, who: Id) -> Option<Call> {
    Call::from_number(system.thread(who).registers.call() as u8)
}

/// The object at an address of the shared page.
fn at(system: &System, address: u64) -> Option<Id> {
    // The frame of the page that both spaces see at the same address.
    (address & !(PAGE_SIZE - 1) == THEIRS).then(|| system.object_at((3, address % PAGE_SIZE)))?
}

impl Plant {
    /// Whether the broken rule changes this step.
    #[must_use]
    pub fn changes(self, system: &System, event: Event, who: Id) -> bool {
        if event != Event::Syscall {
            return false;
        }
        let Some(call) = word(system, who) else { return false };
        let first = || at(system, system.thread(who).registers.parameter(0));
        match self {
            Plant::ManagerWaits => {
                let manager = role(&system.thread(who).registers) == Some(Role::Manager);
                let vacant = |id: Id| system.objects[&id].phase == Phase::Vacant;
                manager && manages(call) && first().is_some_and(vacant)
            }
            Plant::TakesOver => {
                call == Call::ThreadSetState
                    || plan(call).has(Plan::REPLY)
                        && system.thread(who).server.stage == Stage::Exception
            }
            Plant::DropsInterrupt => call == Call::ThreadInterrupt,
            Plant::ForgetsToWake => false,
            Plant::ForgetsPending => call == Call::ThreadSetState,
            Plant::Leaks => call == Call::PortGetState,
            Plant::RepliesForAnother => {
                let hostile = role(&system.thread(who).registers) == Some(Role::Hostile);
                hostile && call == Call::ReplyShort && owes_another(system, who).is_some()
            }
            Plant::IgnoresCeiling => call == Call::ThreadSetPriority,
            Plant::WakesEverybody => call == Call::ServerDisconnect,
            Plant::AnybodyGives => call == Call::SpaceSetState,
        }
    }

    /// Does the step with the rule broken.
    pub fn step(self, system: &mut System, event: Event, now: u64, seen: Seen) {
        let who = system.running;
        let before = system.clone();
        let registers = system.thread(who).registers;
        match self {
            Plant::ManagerWaits => {
                let met = at(system, registers.parameter(0));
                let thread = system.thread_mut(who);
                (thread.status, thread.at) = (Status::Waiting(Waiting::Vacant), met);
                return;
            }
            Plant::RepliesForAnother => {
                let Some(server) = owes_another(system, who) else { return };
                // The reply of the thread that owes it, with the words of the one that does not.
                let own = system.thread(server).registers;
                system.thread_mut(server).registers = registers;
                system.running = server;
                system.step(event, now, seen);
                system.running = who;
                system.thread_mut(server).registers = own;
                let caller = &mut system.thread_mut(who).registers;
                caller.set_pc(registers.pc() + CALL_BYTES);
                caller.set_call(Code::Ok as u64);
                return;
            }
            Plant::TakesOver if word(system, who) != Some(Call::ThreadSetState) => {
                if let Some(peer) = system.thread(who).server.peer {
                    system.thread_mut(peer).keeper = Some(who);
                }
            }
            _ => {}
        }
        system.step(event, now, seen);
        match self {
            Plant::TakesOver if word(&before, who) == Some(Call::ThreadSetState) => {
                let (target, end) = (at(&before, registers.parameter(0)), registers.parameter(4));
                let peer = at(&before, end).and_then(|r| match &before.objects[&r].body {
                    Body::Reference(r) => Some(r.target.id),
                    _ => None,
                });
                let given = Stage::from_raw(stage_in_memory(&before));
                let (Some(target), Some(peer)) = (target, peer) else { return };
                let stopped = before.objects.get(&target).is_some_and(|o| match &o.body {
                    Body::Thread(t) => t.stops > 0,
                    _ => false,
                });
                if stopped && given == Some(Stage::Exception) {
                    let thread = system.thread_mut(target);
                    thread.server = End { stage: Stage::Exception, peer: Some(peer) };
                    thread.registers = abi::Registers::starting(crate::scene::HOSTILE, 0, 0);
                    let caller = &mut system.thread_mut(who).registers;
                    caller.set_pc(registers.pc() + CALL_BYTES);
                    caller.set_call(Code::Ok as u64);
                }
            }
            Plant::DropsInterrupt => {
                let target = at(&before, registers.parameter(0))
                    .or_else(|| before.object_at((2, registers.parameter(0) % PAGE_SIZE)));
                let target = target.and_then(|r| match &before.objects[&r].body {
                    Body::Reference(r) => Some(r.target.id),
                    _ => None,
                });
                let old = target.and_then(|t| before.objects.get(&t)).map(|o| o.body.clone());
                let (Some(target), Some(Body::Thread(old))) = (target, old) else { return };
                let waited = old.status == Status::Waiting(Waiting::Interrupt);
                if !waited {
                    system.thread_mut(target).interrupt = old.interrupt;
                }
            }
            Plant::ForgetsPending => {
                if let Some(target) = at(&before, registers.parameter(0)) {
                    if let Some(Body::Thread(_)) = system.objects.get(&target).map(|o| &o.body) {
                        system.thread_mut(target).interrupt = false;
                    }
                }
            }
            Plant::Leaks => {
                let ours = system.all(abi::Type::Space).next().map(|(id, _)| id);
                let reference = at(&before, registers.parameter(2));
                if let (Some(ours), Some(reference)) = (ours, reference) {
                    let target = spec::object::Target {
                        kind: abi::RefKind::Space,
                        id: ours,
                        of_server: false,
                    };
                    system.reference_mut(reference).target = target;
                }
            }
            Plant::IgnoresCeiling => {
                let wanted = registers.parameter(1);
                if let Some(target) = at(&before, registers.parameter(0)) {
                    system.thread_mut(target).priority = wanted;
                }
            }
            Plant::AnybodyGives => {
                let space = at(&before, registers.parameter(0))
                    .and_then(|id| before.objects.get(&id))
                    .and_then(|object| match &object.body {
                        Body::Space(space) => Some(space.account),
                        _ => None,
                    });
                let denied = system.thread(who).registers.call() == Code::Denied as u64;
                let (Some(account), true) = (space, denied) else { return };
                let (old, quota) = (before.accounts[account].quota, word_in_memory(&before, 1));
                if let Some(parent) = before.accounts[account].parent.filter(|_| quota > old) {
                    system.accounts[parent].used += quota - old;
                    system.accounts[account].quota = quota;
                }
            }
            Plant::WakesEverybody => {
                let waiting = |(_, t): &(Id, &Thread)| matches!(t.status, Status::Waiting(_));
                let all: Vec<Id> = before.threads().filter(waiting).map(|(id, _)| id).collect();
                all.into_iter().for_each(|id| system.restart(id));
            }
            Plant::ManagerWaits
            | Plant::TakesOver
            | Plant::ForgetsToWake
            | Plant::RepliesForAnother => {}
        }
    }
}

/// Another thread that owes a reply to a waiting one.
fn owes_another(system: &System, who: Id) -> Option<Id> {
    let mut waiting = system.threads().filter(|(_, t)| t.status == Status::Waiting(Waiting::Reply));
    waiting.find_map(|(_, t)| t.served_by().map(|(server, _)| server).filter(|s| *s != who))
}

/// The stage of the server's end in the state that a hostile thread has stored.
fn stage_in_memory(system: &System) -> u64 {
    word_in_memory(system, abi::REGISTER_WORDS + 5)
}

/// A word of the state that a hostile thread has stored.
fn word_in_memory(system: &System, number: usize) -> u64 {
    let bytes = system.peek(5, number as u64 * 8, 8);
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}
