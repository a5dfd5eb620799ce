//! The plays: for every entrypoint of the table, and for every reason why it can wait or fault, the
//! preconditions, the calls of the two victims, and what the manager does when neither can go on.
//!
//! Nearly all of them are made from the table of calls: ordinary ones by the types of their
//! parameters ([`ordinary`]), those of IPC by their stages, with a partner whose calls are the other
//! half ([`exchange`]). Each is then played with every page absent that it uses ([`Play::absent`]).

use super::fixture::instruction;
use super::fixture::{Fixture, Page, AUTHORITY, CLIENT, KEPT, NULL, RECEIVED, SENT, SERVER};
use crate::harness::Failure;
use abi::ipc::{plan, plan_of_number, Plan};
use abi::state::Stage;
use abi::syscalls::{Class, Param};
use abi::{ref_list, Call, Common, Type, SYSCALLS, TYPES};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rt::sys::IpcRegs;

/// Something that is made so before the victims begin. A `usize` is the side, [`CLIENT`] or [`SERVER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The object of this type, and a reference to it.
    Object(usize, Type),
    /// A reference that names nothing, in a slot.
    NullReference(usize, Page, u64),
    /// A reference to the device authority.
    Authority(usize),
    /// The state of the object stands on the page for states.
    StateOf(usize, Type),
    /// The object of type thread waits for an answer to an exception, whose registers stand on the page for states.
    Excepted(usize),
    /// The mutex is locked.
    Locked(usize),
    /// The object has lost its body; the reference in [`KEPT`] keeps its identity.
    Kept(usize, Type),
    /// The object has lost its body, until [`Act::Restore`].
    Vacant(usize, Type),
    /// The client has a reference to the server's port.
    Service,
    /// The client's reference is the only one to the server's port, whose flags ask for the notice
    /// `Unreferenced`.
    OnlyReference,
    /// References to send, and null references to receive into.
    Messages,
    /// The other victim has lost its body.
    VacantVictim(usize),
    /// The server's port is the keeper of the client's space, which may be foreign.
    SpaceKeeper { foreign: bool },
    /// The pager replies to faults without supplying pages.
    KeeperSuppliesNothing,
    /// The pager is stopped until [`Act::ResumeKeeper`].
    KeeperStopped,
    /// The client is attached to a device's line.
    Line,
    /// The space that the client has a reference to has been granted [`IO_PORTS`].
    IoPorts,
}

/// The device's line that the client may be attached to; no device has it.
pub const INTERRUPT_LINE: u64 = 6;
/// I/O ports, first and count, that no device has.
pub const IO_PORTS: (u64, u64) = (0x5000, 8);

/// What the manager does when no thread can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Lets a victim begin.
    Start(usize),
    /// The vacant object gets its body again.
    Restore(usize, Type),
    RestoreVictim(usize),
    Unlock(usize),
    Lock(usize),
    Signal(usize),
    Interrupt(usize),
    /// Waits until the deadline of the play has passed.
    WaitForDeadline,
    /// A victim is stopped and goes on.
    Stop(usize),
    /// A victim is destroyed.
    Kill(usize),
    /// The device raises its line.
    Raise,
    /// Prepares the reply to the exception that the server has received: the client goes on behind the
    /// instruction, which has this many bytes.
    PrepareReply(u64),
    /// The same for a server that receives and replies in registers.
    PrepareShortReply(u64),
    /// The pager goes on.
    ResumeKeeper,
}

/// A call of a victim: its registers, and whether `rdi`, `rdx` or `rbp` is a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub regs: IpcRegs,
    pub deadline: bool,
}

/// A situation in which calls are cut; see the glossary.
#[derive(Clone, Debug)]
pub struct Play {
    /// The call that is tested; `None` if it is another instruction.
    pub call: Option<Call>,
    /// What distinguishes it from other plays of that call.
    pub name: String,
    pub preconditions: Vec<Precondition>,
    pub steps: [Vec<Step>; 2],
    /// The call with which a victim goes on after its last one, if any.
    pub again: [Option<usize>; 2],
    /// If the victims are connected at first: the stages of the client end and the server end.
    pub ends: Option<[Stage; 2]>,
    pub acts: Vec<Act>,
    /// Pages that the play uses, as bits ([`Page::bit`]).
    pub used: u32,
    /// Pages that are absent at first.
    pub absent: u32,
    /// The server may see a request twice (rule A8), so what it received is not compared.
    pub twice: bool,
    /// Whether the kernel's fast paths are switched off.
    pub general: bool,
}

impl Play {
    fn new(call: Call, name: &str) -> Self {
        Self::about(Some(call), name)
    }

    fn about(call: Option<Call>, name: &str) -> Self {
        Play {
            call,
            name: name.to_string(),
            preconditions: Vec::new(),
            steps: [Vec::new(), Vec::new()],
            again: [None; 2],
            ends: None,
            acts: vec![Act::Start(CLIENT)],
            used: 0,
            absent: 0,
            twice: false,
            general: true,
        }
    }

    /// The name of the call that is tested, or `instruction`.
    #[must_use]
    pub fn subject(&self) -> &'static str {
        self.call.map_or("instruction", Call::name)
    }

    fn given(mut self, precondition: Precondition) -> Self {
        if !self.preconditions.contains(&precondition) {
            self.preconditions.push(precondition);
        }
        self
    }

    fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    fn named(mut self, name: &str) -> Self {
        match (self.name.is_empty(), name.is_empty()) {
            (_, true) => {}
            (true, _) => self.name = name.to_string(),
            _ => self.name = format!("{}, {name}", self.name),
        }
        self
    }

    fn step(mut self, side: usize, regs: IpcRegs, deadline: bool) -> Self {
        self.steps[side].push(Step { regs, deadline });
        self
    }

    /// Adds the play itself, and copies of it with the pages absent that it uses, one at a time and all together.
    fn absences(self, into: &mut Vec<Play>) {
        let mut sets: Vec<(String, u32)> = Vec::new();
        for side in [CLIENT, SERVER] {
            for page in super::fixture::PAGES {
                if self.used & page.bit(side) != 0 {
                    let whose = if side == CLIENT { "client" } else { "server" };
                    sets.push((format!("{whose}'s {page:?} absent"), page.bit(side)));
                }
            }
        }
        if sets.len() > 1 {
            sets.push(("all absent".to_string(), self.used));
        }
        for (name, absent) in sets {
            let mut play = self.clone().named(&name);
            play.absent = absent;
            into.push(play);
        }
        into.push(self);
    }
}

fn registers(call: Call, p: [u64; 5]) -> IpcRegs {
    IpcRegs {
        rax: call as u64,
        rdi: p[0],
        rsi: p[1],
        rdx: p[2],
        r10: p[3],
        r8: p[4],
        ..IpcRegs::default()
    }
}

/// The type of this name.
fn type_of(name: &str) -> Option<Type> {
    TYPES.into_iter().find(|ty| ty.name() == name)
}

/// A call that is not IPC, with valid parameters made from its row. `identity` passes a reference for the identity.
fn ordinary(call: Call, identity: bool) -> Play {
    let row = call.row();
    let mut play = Play::new(call, "");
    let mut p = [0; 5];
    let mut deadline = false;
    let (own, common) = call.common().unzip();
    let setting = common == Some(Common::SetState);
    let mut null = NULL;
    for (index, &(name, param)) in row.params.iter().enumerate() {
        let named = type_of(name).filter(|ty| *ty != Type::Reference || row.object == "Reference");
        let mut reference = |mut play: Play, named: Option<Type>, p: &mut u64| {
            match named {
                Some(ty) => {
                    play = play.given(Precondition::Object(CLIENT, ty));
                    *p = Fixture::reference(CLIENT, ty);
                }
                None => {
                    play = play.given(Precondition::NullReference(CLIENT, Page::Handles, null));
                    *p = Fixture::handle(CLIENT, Page::Handles, null);
                    null += 1;
                }
            }
            play.used |= Page::Handles.bit(CLIENT);
            play
        };
        match param {
            Param::Object(Type::Reference) if name == "authority" => {
                play = play.given(Precondition::Authority(CLIENT));
                p[index] = Fixture::handle(CLIENT, Page::Handles, AUTHORITY);
                play.used |= Page::Handles.bit(CLIENT);
            }
            Param::Object(Type::Reference) if own != Some(Type::Reference) || index > 0 => {
                play = reference(
                    play,
                    named.filter(|_| name != "other" || row.object != "Reference"),
                    &mut p[index],
                );
            }
            Param::Object(ty) => {
                play = play.given(Precondition::Object(CLIENT, ty));
                p[index] = Fixture::handle(CLIENT, Page::Handles, ty as u64);
                play.used |= Page::Handles.bit(CLIENT);
            }
            Param::OptReference if name == "identity" => {
                if identity {
                    p[index] = Fixture::handle(CLIENT, Page::Handles, KEPT);
                    play = play.given(Precondition::NullReference(CLIENT, Page::Handles, KEPT));
                    play.used |= Page::Handles.bit(CLIENT);
                    if let Some(ty) = own.filter(|_| common == Some(Common::Create)) {
                        play = play
                            .given(Precondition::Object(CLIENT, ty))
                            .given(Precondition::Kept(CLIENT, ty));
                    }
                }
            }
            // The caller's own space.
            Param::OptReference if name == "payer" => {}
            Param::OptReference if setting => {
                let named = match name {
                    "keeper" => Some(Type::Port),
                    "client_end" | "server_end" => None,
                    "target" => Some(Type::Mutex),
                    other => type_of(other),
                };
                play = reference(play, named, &mut p[index]);
            }
            Param::OptReference => play = reference(play, None, &mut p[index]),
            Param::Fresh => {
                p[index] = Fixture::handle(CLIENT, Page::Fresh, 3);
                play.used |= Page::Fresh.bit(CLIENT);
            }
            Param::State => {
                p[index] = Fixture::victim_address(CLIENT, Page::State, 0);
                play.used |= Page::State.bit(CLIENT);
                if let Some(ty) = own.filter(|_| setting) {
                    play = play
                        .given(Precondition::Object(CLIENT, ty))
                        .given(Precondition::StateOf(CLIENT, ty));
                }
            }
            Param::Registers => {
                p[index] = Fixture::victim_address(CLIENT, Page::State, 0);
                play.used |= Page::State.bit(CLIENT);
                play = play.given(Precondition::Excepted(CLIENT));
            }
            // Behind the registers.
            Param::OptFpu => {
                p[index] = Fixture::victim_address(CLIENT, Page::State, 512);
            }
            Param::Rights => p[index] = abi::access::READ,
            Param::Deadline => {
                p[index] = LATER;
                deadline = true;
            }
            Param::Word => p[index] = word(call, name),
            _ => {}
        }
    }
    // The line or the ports that the call takes away.
    play = match call {
        Call::DeviceDetachInterrupt => play.given(Precondition::Line),
        Call::DeviceRevokePorts => play.given(Precondition::IoPorts),
        _ => play,
    };
    play.step(CLIENT, registers(call, p), deadline)
}

/// An address at which victims have nothing mapped.
const NOWHERE: u64 = 0x1fff_ffff_f000;
/// A slot that never holds an object.
const NOTHING: u64 = 40;

/// The deadline of a play, in nanoseconds after its beginning.
pub const LATER: u64 = 40_000;

/// A valid value for the parameter of this name.
fn word(call: Call, name: &str) -> u64 {
    match (call, name) {
        (Call::RegionSearch, "end") => super::fixture::ALL_PAGES * abi::PAGE_SIZE,
        // Spaces only: one on the page of handles, and one on a later page.
        (Call::RegionSearch, "kinds") => 1 << Type::Space as u64,
        (Call::ThreadSetPriority, _) => 2,
        (Call::DeviceAttachInterrupt, "line") => 5,
        (Call::DeviceDetachInterrupt, "line") => INTERRUPT_LINE,
        (Call::DeviceGrantPorts | Call::DeviceRevokePorts, "first") => IO_PORTS.0,
        (Call::DeviceGrantPorts | Call::DeviceRevokePorts, "count") => IO_PORTS.1,
        (Call::DeviceMapPhysical, "start") => 0xb_8000,
        (Call::DeviceCollocate, "place") => 2,
        (Call::DeviceMapPhysical, "size") => abi::PAGE_SIZE,
        _ => 0,
    }
}

/// The registers of a call of IPC, with everything in them that it can take.
fn ipc(call: Call, side: usize) -> IpcRegs {
    let stages = plan(call);
    let mut r = IpcRegs {
        rax: call as u64,
        ..IpcRegs::default()
    };
    let send = stages.has(Plan::SEND) || stages.has(Plan::REPLY) || stages.has(Plan::CALL);
    let receive = stages.has(Plan::RECEIVE) || stages.has(Plan::CALL);
    if stages.has(Plan::SHORT) {
        if send {
            r.rax |= 40 << 8;
            (r.rsi, r.rdx, r.r10, r.r8, r.r9) = (11, 22, 33, 44, 55);
            r.r15 = ref_list(Fixture::handle(side, Page::References, SENT), 1);
        }
    } else {
        if send {
            r.rsi = Fixture::victim_address(side, Page::Send, 3000);
            r.rdx = 2000;
            r.r10 = Fixture::victim_address(side, Page::SendList, 0);
            r.r8 = 2;
            r.r9 = ref_list(Fixture::handle(side, Page::References, SENT), 2);
        }
        if receive {
            r.r12 = Fixture::victim_address(side, Page::Receive, 3900);
            r.r13 = 300;
            r.r14 = Fixture::victim_address(side, Page::ReceiveList, 0);
            r.r15 = 1;
        }
    }
    if receive {
        r.rbx = ref_list(Fixture::handle(side, Page::References, RECEIVED), 3);
    }
    if stages.has(Plan::CONNECT) || stages.has(Plan::CALL) {
        r.rdi = Fixture::reference(side, Type::Port);
    }
    if stages.has(Plan::WAIT) {
        r.rdi = Fixture::handle(side, Page::Handles, Type::Portset as u64);
    }
    if stages.has(Plan::UNTIL) {
        r.rbp = LATER;
    }
    r
}

/// Pages that a call of IPC uses.
fn pages(call: Call, side: usize) -> u32 {
    let stages = plan(call);
    let short = stages.has(Plan::SHORT);
    let mut used = 0;
    if stages.has(Plan::SEND) || stages.has(Plan::REPLY) || stages.has(Plan::CALL) {
        used |= Page::References.bit(side);
        if !short {
            used |= Page::Send.bit(side) | Page::SendMore.bit(side) | Page::SendList.bit(side);
        }
    }
    if stages.has(Plan::RECEIVE) || stages.has(Plan::CALL) {
        used |= Page::References.bit(side);
        if !short {
            used |=
                Page::Receive.bit(side) | Page::ReceiveMore.bit(side) | Page::ReceiveList.bit(side);
        }
    }
    if stages.has(Plan::CONNECT) || stages.has(Plan::CALL) || stages.has(Plan::WAIT) {
        used |= Page::Handles.bit(side);
    }
    used
}

/// The other half of a call: the calls of its partner, the stages of the connection before them,
/// and a call that must come first.
fn other_half(call: Call) -> (Vec<Call>, Option<[Stage; 2]>, Option<Call>) {
    let stages = plan(call);
    let client = stages.has(Plan::CLIENT);
    let pick = |for_client: Call, for_server: Call| if client { for_client } else { for_server };
    let ends = match stages.first() {
        Some(Plan::ACK) => Some((Stage::Ack, Stage::Over)),
        Some(Plan::SEND | Plan::OVER | Plan::DISCONNECT) => {
            Some((Stage::Sending, Stage::Receiving))
        }
        Some(Plan::RECEIVE) => Some((Stage::Receiving, Stage::Sending)),
        _ => None,
    };
    let ends = ends.map(|(mine, theirs)| {
        if client {
            [mine, theirs]
        } else {
            [theirs, mine]
        }
    });
    let mut calls = Vec::new();
    let mut before = None;
    if stages.has(Plan::CALL) {
        return (vec![Call::ServerWaitReceive, Call::Reply], None, None);
    }
    if stages.has(Plan::CONNECT) {
        calls.push(Call::ServerWait);
    }
    if stages.has(Plan::REPLY) {
        let short = stages.has(Plan::SHORT);
        before = Some(if short {
            Call::ServerWaitReceiveShort
        } else {
            Call::ServerWaitReceive
        });
        let request = if short { Call::CallShort } else { Call::Call };
        calls.push(request);
        if stages.has(Plan::WAIT) {
            // The server replies and waits for the next request.
            return (vec![request; 2], None, before);
        }
    }
    if stages.has(Plan::SEND)
        || stages.has(Plan::OVER)
        || stages.has(Plan::DISCONNECT)
        || stages.first() == Some(Plan::ACK)
    {
        calls.push(pick(Call::ServerReceive, Call::ClientReceive));
    }
    if stages.has(Plan::WAIT) {
        calls.push(match stages.has(Plan::RECEIVE) {
            true => Call::ClientConnectSendOver,
            false => Call::ClientConnect,
        });
    } else if stages.first() == Some(Plan::RECEIVE) {
        calls.push(pick(Call::ServerSendOver, Call::ClientSendOver));
    } else if stages.has(Plan::RECEIVE) {
        calls.push(pick(Call::ServerAckSendOver, Call::ClientAckSendOver));
    }
    (calls, ends, before)
}

/// Plays in which a buffer lies where nothing is mapped, whichever victim begins; no space has a keeper.
fn wrong_buffers(call: Call, play: &Play, plays: &mut Vec<Play>) {
    let stages = plan(call);
    if stages.has(Plan::SHORT) {
        return;
    }
    let this = if stages.has(Plan::CLIENT) {
        CLIENT
    } else {
        SERVER
    };
    let send = stages.has(Plan::SEND) || stages.has(Plan::REPLY) || stages.has(Plan::CALL);
    let receive = stages.has(Plan::RECEIVE) || stages.has(Plan::CALL);
    for (name, wanted, sent) in [
        ("sends from nowhere", send, true),
        // Not for replies: the server would fail and stay stopped, and the client, which may ask again, would
        // wait for ever.
        (
            "receives nowhere",
            receive && !stages.has(Plan::REPLY),
            false,
        ),
    ] {
        if !wanted {
            continue;
        }
        let mut play = play.clone().named(name);
        if let Some(step) = play.steps[this].last_mut() {
            let register = if sent {
                &mut step.regs.rsi
            } else {
                &mut step.regs.r12
            };
            *register = NOWHERE;
        }
        let mut late = play.clone().named("partner first");
        late.acts.reverse();
        plays.extend([play, late]);
    }
}

/// Plays in which the connection is in another stage than the call expects, and then the peer is destroyed.
fn wrong_stages(call: Call, play: &Play, plays: &mut Vec<Play>) {
    let client = plan(call).has(Plan::CLIENT);
    let (this, that) = if client {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    let natural = play.ends.map(|ends| ends[this]);
    for (name, mine, theirs) in [
        ("sending", Stage::Sending, Stage::Receiving),
        ("receiving", Stage::Receiving, Stage::Sending),
        ("over", Stage::Over, Stage::Ack),
        ("ack", Stage::Ack, Stage::Over),
    ] {
        if natural == Some(mine) {
            continue;
        }
        let mut play = play.clone().named(&format!("in stage {name}"));
        play.ends = Some(if client {
            [mine, theirs]
        } else {
            [theirs, mine]
        });
        // The call alone, without what would come before it.
        let last = play.steps[this].len() - 1;
        play.steps[this].drain(..last);
        play.again = [None; 2];
        play.acts = vec![Act::Start(this), Act::Kill(that)];
        plays.push(play);
    }
}

/// An IPC call with a partner whose calls are the other half.
fn exchange(call: Call) -> Play {
    let stages = plan(call);
    let (this, that) = if stages.has(Plan::CLIENT) {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    let (calls, ends, before) = other_half(call);
    let mut play = Play::new(call, "")
        .given(Precondition::Service)
        .given(Precondition::Messages);
    for call in before.into_iter().chain([call]) {
        play.used |= pages(call, this);
        play = play.step(this, ipc(call, this), plan(call).has(Plan::UNTIL));
    }
    for call in calls {
        play.used |= pages(call, that);
        play = play.step(that, ipc(call, that), false);
    }
    play.ends = ends;
    play.twice = stages.has(Plan::CALL) || stages.has(Plan::REPLY);
    if play.twice {
        // A request that is sent again must find a server that receives.
        let again = play.steps[SERVER]
            .iter()
            .rposition(|step| plan_of(step).has(Plan::WAIT));
        play.again[SERVER] = again;
    }
    play.acts = vec![Act::Start(this), Act::Start(that)];
    play
}

fn plan_of(step: &Step) -> Plan {
    plan_of_number(step.regs.rax as u8)
}

/// The same play with a message so long that the copy passes preemption points.
fn long(mut play: Play) -> Play {
    for side in [CLIENT, SERVER] {
        for step in &mut play.steps[side] {
            let stages = plan_of(step);
            if stages.has(Plan::SHORT) {
                continue;
            }
            if stages.has(Plan::SEND) {
                step.regs.r10 = Fixture::victim_address(side, Page::SendList, 32);
            }
            if stages.has(Plan::RECEIVE) {
                step.regs.r14 = Fixture::victim_address(side, Page::ReceiveList, 16);
                step.regs.r15 = 3;
            }
        }
    }
    play.named("long")
}

/// Plays in which the step causes an exception, and the server is the keeper of the client's space.
fn excepted(step: Play, foreign: bool, length: u64, plays: &mut Vec<Play>) {
    let mut play = step.given(Precondition::SpaceKeeper { foreign });
    play.used |= Page::Handles.bit(SERVER)
        | Page::Receive.bit(SERVER)
        | Page::ReceiveMore.bit(SERVER)
        | Page::State.bit(SERVER);
    let receive = IpcRegs {
        rdi: Fixture::handle(SERVER, Page::Handles, Type::Portset as u64),
        r12: Fixture::victim_address(SERVER, Page::Receive, Fixture::MESSAGE),
        r13: 8 * abi::message::EXCEPTION_WORDS as u64,
        rax: Call::ServerWaitReceive as u64,
        ..IpcRegs::default()
    };
    let pause = registers(Call::ThreadWaitInterrupt, [0; 5]);
    let reply = IpcRegs {
        rax: Call::Reply as u64,
        rsi: Fixture::victim_address(SERVER, Page::State, 0),
        rdx: Fixture::FIRST,
        r10: Fixture::victim_address(SERVER, Page::State, Fixture::REST),
        r8: 2,
        ..IpcRegs::default()
    };
    let released = registers(Call::ServerRelease, [0; 5]);
    let with = |name: &str, steps: &[IpcRegs], acts: &[Act]| {
        let mut play = play.clone().named(name);
        for regs in steps {
            play = play.step(SERVER, *regs, false);
        }
        play.acts = acts.to_vec();
        play
    };
    let whole = [receive, pause, reply];
    let (client, server) = (Act::Start(CLIENT), Act::Start(SERVER));
    let (answer, go) = (Act::PrepareReply(length), Act::Interrupt(SERVER));
    let first = with("", &whole, &[server, client, answer, go]);
    plays.extend(excepted_short(&play, length));
    let on_a_page = IpcRegs {
        r12: Fixture::victim_address(SERVER, Page::Receive, 0),
        ..receive
    };
    let steps = [on_a_page, released];
    let mut straight = with(
        "released, on a page, the fast path",
        &steps,
        &[server, client],
    );
    straight.general = false;
    plays.push(straight);
    if foreign {
        // The other plays would be the same for all calls.
        plays.push(first);
        return;
    }
    first.absences(plays);
    let reply_on_a_page = IpcRegs {
        rax: Call::ReplyWaitReceive as u64,
        rsi: Fixture::victim_address(SERVER, Page::State, 0),
        rdx: 8 * abi::state::REGISTER_WORDS as u64,
        ..receive
    };
    let mut straight = with(
        "answered on a page, the fast path",
        &[receive, pause, reply_on_a_page],
        &[server, client, answer, go],
    );
    straight.general = false;
    plays.push(straight);
    let reply_with_control = IpcRegs {
        rsi: Fixture::victim_address(SERVER, Page::State, Fixture::CONTROL),
        rdx: 8 * abi::message::SHORT_ANSWER_WORDS as u64,
        ..reply_on_a_page
    };
    for (name, general) in [
        ("answered by control registers, the fast path", false),
        ("answered by control registers", true),
    ] {
        let calls = [receive, pause, reply_with_control];
        let mut play = with(name, &calls, &[server, client, answer, go]);
        play.general = general;
        plays.push(play);
    }
    plays.push(with("keeper late", &whole, &[client, server, answer, go]));
    let stop = Act::Stop(CLIENT);
    plays.push(with("stopped", &whole, &[server, client, stop, answer, go]));
    plays.push(with(
        "stopped before",
        &whole,
        &[client, stop, server, answer, go],
    ));
    plays.push(with(
        "keeper dies",
        &whole,
        &[server, client, Act::Kill(SERVER)],
    ));
    plays.push(with("released", &[receive, released], &[server, client]));
    let restore = Act::Restore(SERVER, Type::Port);
    plays.push(
        with(
            "keeper vacant",
            &whole,
            &[client, restore, server, answer, go],
        )
        .given(Precondition::Vacant(SERVER, Type::Port)),
    );
}

/// The same with a keeper that receives and replies in registers: by the fast path and the general path.
fn excepted_short(play: &Play, length: u64) -> [Play; 2] {
    let handle = Fixture::handle(SERVER, Page::Handles, Type::Portset as u64);
    let with = |call: Call, rax: u64| IpcRegs {
        rdi: handle,
        rax: call as u64 | rax,
        ..IpcRegs::default()
    };
    let steps = [
        with(Call::ServerWaitReceiveShort, 0),
        registers(Call::ThreadWaitInterrupt, [0; 5]),
        // `Act::PrepareShortReply` writes the words of the reply.
        with(
            Call::ReplyWaitReceiveShort,
            (abi::message::SHORT_ANSWER_WORDS as u64) << 11,
        ),
    ];
    [false, true].map(|general| {
        let mut play = play.clone().named("keeper in registers");
        for regs in steps {
            play = play.step(SERVER, regs, false);
        }
        play.used = Page::Handles.bit(SERVER) | play.used & Page::Handles.bit(CLIENT);
        play.acts = vec![
            Act::Start(SERVER),
            Act::Start(CLIENT),
            Act::PrepareShortReply(length),
            Act::Interrupt(SERVER),
        ];
        play.general = general;
        play.named(if general {
            "the general path"
        } else {
            "the fast path"
        })
    })
}

/// Plays about exceptions and faults of instructions that are not calls.
fn of_instructions(plays: &mut Vec<Play>) {
    let step = |which: u64, name: &str, address: u64| {
        let regs = IpcRegs {
            rax: which,
            rdi: address,
            ..IpcRegs::default()
        };
        Play::about(None, name).step(CLIENT, regs, false)
    };
    let wrong = [
        ("ud2", instruction::WRONG, 0),
        ("read of nothing", instruction::READ, NOWHERE),
        ("write to nothing", instruction::WRITE, NOWHERE),
        ("no call", instruction::NO_CALL, 0),
    ];
    for (name, which, address) in wrong {
        let play = step(which, name, address);
        excepted(play.clone(), false, instruction::length(which), plays);
        plays.push(play.named("no keeper"));
    }
    let here = Fixture::victim_address(CLIENT, Page::State, 8);
    for (name, which) in [("read", instruction::READ), ("write", instruction::WRITE)] {
        let mut play = step(which, name, here);
        play.used = Page::State.bit(CLIENT);
        play.clone().absences(plays);
        play.absent = play.used;
        let mut straight = play.clone().named("absent, the fast path");
        straight.general = false;
        plays.push(straight);
        faulted(&play, plays);
        let absent_for_good = play
            .named("absent for good")
            .given(Precondition::KeeperSuppliesNothing);
        excepted(
            absent_for_good.clone(),
            false,
            instruction::length(which),
            plays,
        );
        plays.push(absent_for_good.named("no keeper"));
    }
}

/// Plays in which the first access meets an absent page, and the pager is stopped for a while.
fn faulted(play: &Play, plays: &mut Vec<Play>) {
    let held = |name: &str, acts: &[Act]| {
        let mut play = play.clone().named(name).given(Precondition::KeeperStopped);
        let rest = play.acts.split_off(1);
        play.acts.extend_from_slice(acts);
        play.acts.push(Act::ResumeKeeper);
        play.acts.extend(rest);
        play
    };
    plays.push(held("keeper late", &[]));
    if let Some(&Act::Start(side)) = play.acts.first() {
        plays.push(held("keeper late, stopped", &[Act::Stop(side)]));
    }
}

/// Plays for every call: its space is foreign, or its first handle names no object.
fn of_any(call: Call, plays: &mut Vec<Play>) {
    let regs = |regs: IpcRegs, name: &str| Play::new(call, name).step(CLIENT, regs, false);
    let ipc_call = plan(call).is_ipc();
    let ordinary_call = (!ipc_call).then(|| ordinary(call, false));
    let right = match &ordinary_call {
        Some(play) => play.steps[CLIENT][0].regs,
        None => ipc(call, CLIENT),
    };
    excepted(regs(right, "foreign"), true, 2, plays);
    let row = call.row();
    let handle = match row.params.first() {
        Some((_, Param::Object(_) | Param::Fresh)) => true,
        _ => right.rdi != 0 && ipc_call,
    };
    if !handle {
        return;
    }
    for (name, rdi) in [
        (
            "nothing there",
            Fixture::handle(CLIENT, Page::Handles, NOTHING),
        ),
        ("misaligned", Fixture::handle(CLIENT, Page::Handles, 1) + 8),
        ("handle nowhere", NOWHERE),
    ] {
        // An object can be created where nothing is.
        if name == "nothing there" && matches!(row.params[0].1, Param::Fresh) {
            continue;
        }
        let mut play = regs(IpcRegs { rdi, ..right }, name);
        play.used = Page::Handles.bit(CLIENT);
        let mut all = Vec::new();
        excepted(play.clone(), false, 2, &mut all);
        // Everything that can happen to an exception happens to one call; to the others the plain case.
        let whole = call == Call::MutexLock || call == Call::Call;
        let plain = |p: &Play| p.name == name || p.name.ends_with("the fast path");
        all.retain(|p| whole || plain(p));
        plays.extend(all);
        plays.push(play.named("no keeper"));
    }
}

/// A play of two RPCs, in registers or on one page, which the fast path can do unless `general`.
fn service(call: Call, general: bool) -> Play {
    let idempotent = plan(call).has(Plan::CALL) || plan(call).has(Plan::REPLY);
    let short = plan(call).has(Plan::SHORT);
    let (request, wait, answer) = match (idempotent, short) {
        (true, true) => (
            Call::CallShort,
            Call::ServerWaitReceiveShort,
            Call::ReplyWaitReceiveShort,
        ),
        (true, false) => (Call::Call, Call::ServerWaitReceive, Call::ReplyWaitReceive),
        (false, true) => (
            Call::ClientConnectSendOverReceiveShort,
            Call::ServerWaitReceiveShort,
            Call::ServerAckSendWaitReceiveShort,
        ),
        (false, false) => (
            Call::ClientConnectSendOverReceive,
            Call::ServerWaitReceive,
            Call::ServerAckSendWaitReceive,
        ),
    };
    let strip = |mut r: IpcRegs| {
        // The fast path takes no references, no scatter lists, and no message that lies on two pages.
        if short {
            r.r15 = 0;
        } else {
            let next = |address: u64| (address & !(abi::PAGE_SIZE - 1)) + 64;
            (r.rsi, r.rdx, r.r10, r.r8, r.r9) = (next(r.rsi), 700, 0, 0, 0);
            (r.r12, r.r13, r.r14, r.r15) = (next(r.r12), 900, 0, 0);
        }
        r
    };
    let mut play = Play::new(call, if short { "in registers" } else { "on a page" })
        .given(Precondition::Service)
        .given(Precondition::Messages);
    for side in [CLIENT, SERVER] {
        play.used |= Page::Handles.bit(side);
        if !short {
            play.used |= Page::Send.bit(side) | Page::Receive.bit(side);
        }
    }
    for _ in 0..2 {
        play = play.step(CLIENT, strip(ipc(request, CLIENT)), false);
        if !idempotent {
            play = play.step(CLIENT, ipc(Call::ClientDisconnect, CLIENT), false);
        }
    }
    play = play.step(SERVER, strip(ipc(wait, SERVER)), false).step(
        SERVER,
        strip(ipc(answer, SERVER)),
        false,
    );
    play.again[SERVER] = Some(1);
    // Of reliable ones as well: after a cut the general path moves, and counts, what the fast path had in registers.
    play.twice = true;
    play.general = general;
    play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
    play.named(if general {
        "the general path"
    } else {
        "the fast path"
    })
}

/// All plays, in the order of the table.
#[must_use]
pub fn all() -> Vec<Play> {
    let mut plays = Vec::new();
    for row in SYSCALLS {
        let call = row.call;
        if plan(call).is_ipc() {
            of_ipc(call, &mut plays);
        } else {
            of_ordinary(call, &mut plays);
        }
        of_any(call, &mut plays);
    }
    of_instructions(&mut plays);
    plays
}

/// The plays that are cut at every instruction, in configurations whose kernel is preemptible.
const AT_INSTANTS: &[(&str, &str)] = &[
    ("mutex_lock", "locked"),
    ("cond_wait", "signalled while locked"),
    ("thread_wait_interrupt", "device"),
    (
        "client_connect_send_over_receive_short",
        "in registers, the fast path",
    ),
    (
        "client_connect_send_over_receive_short",
        "in registers, the general path",
    ),
    ("call_short", "in registers, the fast path"),
    ("client_send", "partner first"),
    ("client_receive", ""),
    ("server_wait_receive", "partner first"),
    ("server_ack_send_wait_receive", ""),
    (
        "client_connect_send_over_receive",
        "on a page, the fast path",
    ),
    ("call", "on a page, the general path"),
    ("thread_self", "foreign"),
    ("instruction", "ud2"),
    ("instruction", "ud2, keeper in registers, the fast path"),
    ("instruction", "read, absent, the fast path"),
];

/// Keeps only the plays of [`AT_INSTANTS`]. Fails if one of these does not exist.
pub fn keep_main(plays: &mut Vec<Play>) -> Result<(), Failure> {
    let is = |p: &Play, &(subject, name): &(&str, &str)| p.subject() == subject && p.name == name;
    if let Some((subject, name)) = AT_INSTANTS.iter().find(|m| !plays.iter().any(|p| is(p, m))) {
        crate::fail!("there is no play {subject}, {name}");
    }
    plays.retain(|p| AT_INSTANTS.iter().any(|m| is(p, m)));
    Ok(())
}

/// Plays in which the client destroys the last reference to the port, and the server gets the notice.
fn unreferenced(call: Call, plays: &mut Vec<Play>) {
    let reference = Fixture::reference(CLIENT, Type::Port);
    let mut play = Play::new(call, "unreferenced")
        .given(Precondition::Service)
        .given(Precondition::Messages)
        .given(Precondition::OnlyReference)
        .step(SERVER, ipc(call, SERVER), plan(call).has(Plan::UNTIL))
        .step(
            CLIENT,
            registers(Call::ReferenceDestroy, [reference, 0, 0, 0, 0]),
            false,
        );
    play.used = pages(call, SERVER) | Page::Handles.bit(CLIENT);
    play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
    let mut before = play.clone().named("before");
    before.acts.reverse();
    plays.extend([play, before]);
}

/// What the plays leave out: calls of the table, and reasons for which these wait or fault.
#[must_use]
pub fn missing(plays: &[Play]) -> Vec<String> {
    let mut missing = Vec::new();
    for row in SYSCALLS {
        let of: Vec<&Play> = plays.iter().filter(|p| p.call == Some(row.call)).collect();
        let mut must = |what: &str, there: bool| {
            if !there {
                missing.push(format!("{}: {what}", row.name));
            }
        };
        let foreign = |p: &&Play| {
            p.preconditions
                .contains(&Precondition::SpaceKeeper { foreign: true })
        };
        must("no play in a foreign space", of.iter().any(foreign));
        let plain = |p: &&Play| {
            !p.preconditions
                .iter()
                .any(|p| matches!(p, Precondition::SpaceKeeper { .. }))
        };
        must("no play", of.iter().any(plain));
        let used = of
            .iter()
            .filter(|p| plain(p))
            .fold(0, |all, p| all | p.used);
        for page in 0..32 {
            let alone = |p: &&Play| p.absent == 1 << page;
            let absent = used & 1 << page == 0 || of.iter().any(alone);
            must(&format!("page {page} is never absent alone"), absent);
        }
        if matches!(row.class, Class::Long | Class::MultiStage) {
            let goes_on = |p: &&Play| {
                let later = |act: &Act| {
                    !matches!(
                        act,
                        Act::Start(_) | Act::PrepareReply(_) | Act::PrepareShortReply(_)
                    )
                };
                p.acts.iter().any(later) || p.steps.iter().all(|steps| !steps.is_empty())
            };
            must("never waits", of.iter().filter(|p| plain(p)).any(goes_on));
            let stopped = |p: &&Play| p.acts.iter().any(|act| matches!(act, Act::Stop(_)));
            must("is never stopped", of.iter().any(stopped));
        }
        if plan(row.call).has(Plan::UNTIL) || row.params.iter().any(|p| p.1 == Param::Deadline) {
            let late = |p: &&Play| p.acts.contains(&Act::WaitForDeadline);
            must("is never late", of.iter().any(late));
        }
    }
    missing
}

fn of_ordinary(call: Call, plays: &mut Vec<Play>) {
    let row = call.row();
    let common = call.common().map(|(_, common)| common);
    let is = |which: Common| common == Some(which);
    let handle = |ty: Type| Fixture::handle(CLIENT, Page::Handles, ty as u64);
    match call {
        Call::MutexLock => {
            ordinary(call, false).named("free").absences(plays);
            ordinary(call, false)
                .named("locked")
                .given(Precondition::Locked(CLIENT))
                .act(Act::Unlock(CLIENT))
                .absences(plays);
            plays.push(
                ordinary(call, false)
                    .named("locked, stopped")
                    .given(Precondition::Locked(CLIENT))
                    .act(Act::Stop(CLIENT))
                    .act(Act::Unlock(CLIENT)),
            );
        }
        Call::MutexUnlock => {
            ordinary(call, false)
                .given(Precondition::Locked(CLIENT))
                .absences(plays);
            let mut play = ordinary(call, false)
                .named("handed over")
                .given(Precondition::Locked(CLIENT));
            play = play.step(
                SERVER,
                registers(Call::MutexLock, [handle(Type::Mutex), 0, 0, 0, 0]),
                false,
            );
            play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
            plays.push(play);
        }
        Call::CondWait | Call::CondWaitUntil => {
            let play = ordinary(call, false).given(Precondition::Locked(CLIENT));
            play.clone()
                .named("signalled")
                .act(Act::Signal(CLIENT))
                .absences(plays);
            let contended = play
                .clone()
                .act(Act::Lock(CLIENT))
                .act(Act::Signal(CLIENT))
                .act(Act::Unlock(CLIENT));
            plays.push(contended.named("signalled while locked"));
            if call == Call::CondWaitUntil {
                plays.push(play.clone().named("timed out").act(Act::WaitForDeadline));
            }
            plays.push(
                play.named("stopped")
                    .act(Act::Stop(CLIENT))
                    .act(Act::Signal(CLIENT)),
            );
        }
        Call::CondSignal | Call::CondBroadcast => {
            ordinary(call, false).absences(plays);
            let mut play = ordinary(call, false)
                .named("somebody waits")
                .given(Precondition::Object(CLIENT, Type::Mutex))
                .given(Precondition::Locked(CLIENT));
            let wait = registers(
                Call::CondWait,
                [handle(Type::Cond), handle(Type::Mutex), 0, 0, 0],
            );
            play = play.step(SERVER, wait, false);
            play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
            plays.push(play);
        }
        Call::ThreadSleepUntil => {
            plays.push(ordinary(call, false).act(Act::WaitForDeadline));
            plays.push(
                ordinary(call, false)
                    .named("stopped")
                    .act(Act::Stop(CLIENT))
                    .act(Act::WaitForDeadline),
            );
        }
        Call::ThreadWaitInterrupt | Call::ThreadWaitInterruptUntil => {
            let play = ordinary(call, false);
            plays.push(
                play.clone()
                    .named("interrupted")
                    .act(Act::Interrupt(CLIENT)),
            );
            plays.push(
                play.clone()
                    .named("stopped")
                    .act(Act::Stop(CLIENT))
                    .act(Act::Interrupt(CLIENT)),
            );
            let mut pending = play.clone().named("pending");
            pending.acts = vec![Act::Interrupt(CLIENT), Act::Start(CLIENT)];
            plays.push(pending);
            let device = play.clone().given(Precondition::Line);
            plays.push(device.clone().named("device").act(Act::Raise));
            plays.push(
                device
                    .clone()
                    .named("device, stopped")
                    .act(Act::Stop(CLIENT))
                    .act(Act::Raise),
            );
            let mut pending = device.clone().named("device, pending");
            pending.acts = vec![Act::Raise, Act::Start(CLIENT)];
            plays.push(pending);
            let mut vacant = device
                .named("device, vacant")
                .given(Precondition::VacantVictim(CLIENT));
            vacant.acts = vec![Act::Raise, Act::RestoreVictim(CLIENT), Act::Start(CLIENT)];
            plays.push(vacant);
            if call == Call::ThreadWaitInterruptUntil {
                plays.push(play.named("timed out").act(Act::WaitForDeadline));
            }
        }
        Call::RegionSearch => {
            let mut play = ordinary(call, false)
                .given(Precondition::Object(CLIENT, Type::Space))
                .given(Precondition::Object(SERVER, Type::Space));
            let mut next = play.steps[CLIENT][0];
            next.regs.rsi = Page::Handles.on(SERVER) * abi::PAGE_SIZE;
            play.steps[CLIENT].push(next);
            play.absences(plays);
        }
        Call::SpaceSetPayer => {
            ordinary(call, false).absences(plays);
            // Another than the caller's own: the space itself, which the caller cannot make pay.
            let mut play = ordinary(call, false).named("a payer by reference");
            play.steps[CLIENT][0].regs.rsi = Fixture::reference(CLIENT, Type::Space);
            play.absences(plays);
        }
        _ => ordinary(call, false).absences(plays),
    }
    if is(Common::Create) || is(Common::Destroy) {
        ordinary(call, true).named("identity kept").absences(plays);
    }
    // The object of the call, or what its reference names, is vacant until the manager is back.
    let first = row.params.first().and_then(|&(name, param)| match param {
        Param::Object(Type::Reference) if call != Call::ReferenceCheck => type_of(name),
        Param::Object(ty) => Some(ty),
        _ => None,
    });
    let waits =
        !is(Common::Create) && !matches!(call, Call::ThreadInterrupt | Call::ReferenceCheck);
    if let Some(ty) = first.filter(|_| waits) {
        let mut play = ordinary(call, false);
        if matches!(
            call,
            Call::MutexUnlock | Call::CondWait | Call::CondWaitUntil
        ) {
            play = play.given(Precondition::Locked(CLIENT));
        }
        play = play.named("vacant").given(Precondition::Vacant(CLIENT, ty));
        // `destroy` ends the vacant identity, so there is nothing to restore.
        if !is(Common::Destroy) {
            play = play.act(Act::Restore(CLIENT, ty));
        }
        if matches!(call, Call::CondWait | Call::CondWaitUntil) {
            play = play.act(Act::Signal(CLIENT));
        }
        plays.push(play.clone());
        // Calls that manage objects do not wait, so they cannot be stopped while waiting.
        if !row.manages(0) {
            let mut stopped = play.named("stopped");
            stopped.acts.insert(1, Act::Stop(CLIENT));
            plays.push(stopped);
        }
    }
    let mut absent = ordinary(call, false);
    absent.absent = absent.used;
    if absent.used != 0 {
        let mut late = Vec::new();
        faulted(&absent, &mut late);
        // Being stopped at a fault is the same for all calls, so one of them shows it.
        late.truncate(if call == Call::MutexLock { 2 } else { 1 });
        plays.extend(late);
    }
}

fn of_ipc(call: Call, plays: &mut Vec<Play>) {
    let stages = plan(call);
    let (this, that) = if stages.has(Plan::CLIENT) {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    let play = exchange(call);
    play.clone().absences(plays);
    if play.steps[that].is_empty() {
        return;
    }
    // The partner makes its call first.
    let mut late = play.clone().named("partner first");
    late.acts.reverse();
    let mut absent = late.clone().named("all absent");
    absent.absent = absent.used;
    plays.extend([late, absent]);
    let sends = |step: &Step| plan_of(step).has(Plan::SEND) && !plan_of(step).has(Plan::SHORT);
    if play.steps.iter().flatten().any(sends) {
        let mut late = long(play.clone());
        late.acts.reverse();
        plays.extend([long(play.clone()), late.named("partner first")]);
    }
    let mut held = play.clone();
    held.absent = held.used & (Page::Send.bit(this) | Page::Receive.bit(this));
    if held.absent != 0 {
        faulted(&held, plays);
    }
    let alone = |name: &str| {
        let mut play = play.clone().named(name);
        play.acts = vec![Act::Start(this)];
        play
    };
    if play.ends.is_some() {
        plays.push(alone("partner dies").act(Act::Kill(that)));
        plays.push(
            alone("partner vacant")
                .given(Precondition::VacantVictim(that))
                .act(Act::RestoreVictim(that))
                .act(Act::Start(that)),
        );
    } else {
        plays.push(
            alone("port vacant")
                .given(Precondition::Vacant(SERVER, Type::Port))
                .act(Act::Restore(SERVER, Type::Port))
                .act(Act::Start(that)),
        );
        plays.push(
            alone("portset vacant")
                .given(Precondition::Vacant(SERVER, Type::Portset))
                .act(Act::Restore(SERVER, Type::Portset))
                .act(Act::Start(that)),
        );
    }
    plays.push(alone("stopped").act(Act::Stop(this)).act(Act::Start(that)));
    plays.push(
        alone("interrupted")
            .act(Act::Interrupt(this))
            .act(Act::Start(that)),
    );
    // The peer is destroyed before the call has finished.
    let mut gone = play.clone().named("partner dies later");
    gone.steps[that].truncate(1);
    if that == SERVER {
        gone.again = [None; 2];
    }
    gone.acts.push(Act::Kill(that));
    plays.push(gone);
    if stages.first() == Some(Plan::WAIT) {
        unreferenced(call, plays);
    }
    wrong_buffers(call, &play, plays);
    wrong_stages(call, &play, plays);
    if stages.has(Plan::UNTIL) {
        plays.push(alone("timed out").act(Act::WaitForDeadline));
    }
    if matches!(
        call,
        Call::ClientConnectSendOverReceiveShort
            | Call::ServerAckSendWaitReceiveShort
            | Call::CallShort
            | Call::ReplyWaitReceiveShort
            | Call::ClientConnectSendOverReceive
            | Call::ServerAckSendWaitReceive
            | Call::Call
            | Call::ReplyWaitReceive
    ) {
        plays.push(service(call, false));
        plays.push(service(call, true));
    }
}
