//! The plays: for every entrypoint of the table, and for every reason why it can wait or fault, a
//! situation, what the victims do in it, and what the manager does meanwhile.
//!
//! Nearly all of them are made from the table of calls: ordinary ones by the types of their
//! parameters ([`ordinary`]), those of IPC by their stages, with a partner whose calls are the other
//! half ([`exchange`]). Each is then played with every page absent that it uses ([`Play::absent`]).

use super::stage::{
    common, Page, Stage, AUTHORITY, BLANK, CLIENT, CREATE, DESTROY, KEPT, RECEIVED, SENT, SERVER,
    SET,
};
use abi::ipc::{plan, Plan};
use abi::state::Stage as End;
use abi::syscalls::Param;
use abi::{ref_list, Call, Type, SYSCALLS, TYPES};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rt::sys::IpcRegs;

/// What there is before the victims begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prop {
    /// The object of this type, and a reference to it.
    Object(usize, Type),
    /// A reference that names nothing.
    Blank(usize, Page, u64),
    /// A reference to the device authority.
    Authority(usize),
    /// The state of the object stands on the page for states.
    StateOf(usize, Type),
    /// The mutex is locked.
    Locked(usize),
    /// The object has lost its body; the reference in [`KEPT`] keeps its identity.
    Kept(usize, Type),
    /// The object has lost its body, until [`Act::Restore`].
    Vacant(usize, Type),
    /// The client has a reference to the server's port.
    Service,
    /// References that are sent and received.
    Messages,
    /// The other victim has lost its body.
    VacantVictim(usize),
}

/// What the manager does when nobody goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Lets a victim begin.
    Start(usize),
    /// The vacant object gets its body.
    Restore(usize, Type),
    RestoreVictim(usize),
    Unlock(usize),
    Lock(usize),
    Signal(usize),
    Interrupt(usize),
    /// Waits until the deadlines of the play have passed.
    Until,
    /// A victim is stopped and goes on.
    Stop(usize),
    /// A victim dies.
    Kill(usize),
}

/// A call of a victim: its registers, and whether `rdi`, `rdx` or `rbp` is a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub regs: IpcRegs,
    pub deadline: bool,
}

/// A situation, and what is done in it.
#[derive(Clone, Debug)]
pub struct Play {
    /// The call that it is about.
    pub call: Call,
    /// What distinguishes it from others of that call.
    pub name: String,
    pub props: Vec<Prop>,
    pub steps: [Vec<Step>; 2],
    /// After its last call a victim goes on with this one.
    pub again: [Option<usize>; 2],
    /// The stages of a connection between the two.
    pub ends: Option<[End; 2]>,
    pub acts: Vec<Act>,
    /// Pages that the play uses.
    pub used: u32,
    /// Pages that are absent at first.
    pub absent: u32,
    /// The server may see a request twice (rule A8): what it saw does not count.
    pub twice: bool,
    /// No short ways.
    pub general: bool,
}

impl Play {
    fn new(call: Call, name: &str) -> Self {
        Play {
            call,
            name: name.to_string(),
            props: Vec::new(),
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

    fn prop(mut self, prop: Prop) -> Self {
        if !self.props.contains(&prop) {
            self.props.push(prop);
        }
        self
    }

    fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    fn named(mut self, name: &str) -> Self {
        self.name = if self.name.is_empty() {
            name.to_string()
        } else {
            format!("{}, {name}", self.name)
        };
        self
    }

    fn step(mut self, side: usize, regs: IpcRegs, deadline: bool) -> Self {
        self.steps[side].push(Step { regs, deadline });
        self
    }

    /// The same with every page absent that it uses, one at a time and all together.
    fn absences(self, into: &mut Vec<Play>) {
        let mut sets: Vec<(String, u32)> = Vec::new();
        for side in [CLIENT, SERVER] {
            for page in super::stage::PAGES {
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

/// An ordinary call with parameters that make sense, made from its row.
fn ordinary(call: Call, identity: bool) -> Play {
    let row = call.row();
    let mut play = Play::new(call, "");
    let mut p = [0; 5];
    let mut deadline = false;
    let own = TYPES
        .into_iter()
        .find(|ty| (*ty as u8 - 1) * 6 < row.number && row.number <= *ty as u8 * 6);
    let setting = own.is_some_and(|ty| common(ty, SET) == call);
    let mut blank = BLANK;
    for (index, &(name, param)) in row.params.iter().enumerate() {
        let named = type_of(name).filter(|ty| *ty != Type::Reference || row.object == "Reference");
        let mut reference = |mut play: Play, named: Option<Type>, p: &mut u64| {
            match named {
                Some(ty) => {
                    play = play.prop(Prop::Object(CLIENT, ty));
                    *p = Stage::reference(CLIENT, ty);
                }
                None => {
                    play = play.prop(Prop::Blank(CLIENT, Page::Handles, blank));
                    *p = Stage::handle(CLIENT, Page::Handles, blank);
                    blank += 1;
                }
            }
            play.used |= Page::Handles.bit(CLIENT);
            play
        };
        match param {
            Param::Object(Type::Reference) if name == "authority" => {
                play = play.prop(Prop::Authority(CLIENT));
                p[index] = Stage::handle(CLIENT, Page::Handles, AUTHORITY);
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
                play = play.prop(Prop::Object(CLIENT, ty));
                p[index] = Stage::handle(CLIENT, Page::Handles, ty as u64);
                play.used |= Page::Handles.bit(CLIENT);
            }
            Param::OptReference if name == "identity" => {
                if identity {
                    p[index] = Stage::handle(CLIENT, Page::Handles, KEPT);
                    play = play.prop(Prop::Blank(CLIENT, Page::Handles, KEPT));
                    play.used |= Page::Handles.bit(CLIENT);
                    if let Some(ty) = own.filter(|ty| common(*ty, CREATE) == call) {
                        play = play
                            .prop(Prop::Object(CLIENT, ty))
                            .prop(Prop::Kept(CLIENT, ty));
                    }
                }
            }
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
                p[index] = Stage::handle(CLIENT, Page::Fresh, 3);
                play.used |= Page::Fresh.bit(CLIENT);
            }
            Param::State => {
                p[index] = Stage::user(CLIENT, Page::State, 0);
                play.used |= Page::State.bit(CLIENT);
                if let Some(ty) = own.filter(|_| setting) {
                    play = play
                        .prop(Prop::Object(CLIENT, ty))
                        .prop(Prop::StateOf(CLIENT, ty));
                }
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
    play.step(CLIENT, registers(call, p), deadline)
}

/// A deadline of a play, to which the time is added when it begins.
pub const LATER: u64 = 40_000;

/// Numbers that make sense.
fn word(call: Call, name: &str) -> u64 {
    match (call, name) {
        (Call::RegionSearch, "end") => super::stage::ALL_PAGES * abi::PAGE_SIZE,
        // Objects only: what is on the page for handles and what is behind.
        (Call::RegionSearch, "kinds") => 1 << Type::Space as u64,
        (Call::ThreadSetPriority, _) => 2,
        (Call::DeviceAttachInterrupt, "line") => 5,
        (Call::DeviceGrantPorts, "first") => 0x5000,
        (Call::DeviceGrantPorts, "count") => 8,
        (Call::DeviceMapPhysical, "start") => 0xb_8000,
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
            r.r15 = ref_list(Stage::handle(side, Page::References, SENT), 1);
        }
    } else {
        if send {
            r.rsi = Stage::user(side, Page::Send, 3000);
            r.rdx = 2000;
            r.r10 = Stage::user(side, Page::SendList, 0);
            r.r8 = 2;
            r.r9 = ref_list(Stage::handle(side, Page::References, SENT), 2);
        }
        if receive {
            r.r12 = Stage::user(side, Page::Receive, 3900);
            r.r13 = 300;
            r.r14 = Stage::user(side, Page::ReceiveList, 0);
            r.r15 = 1;
        }
    }
    if receive {
        r.rbx = ref_list(Stage::handle(side, Page::References, RECEIVED), 3);
    }
    if stages.has(Plan::CONNECT) || stages.has(Plan::CALL) {
        r.rdi = Stage::reference(side, Type::Port);
    }
    if stages.has(Plan::WAIT) {
        r.rdi = Stage::handle(side, Page::Handles, Type::Portset as u64);
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
fn other_half(call: Call) -> (Vec<Call>, Option<[End; 2]>, Option<Call>) {
    let stages = plan(call);
    let client = stages.has(Plan::CLIENT);
    let pick = |for_client: Call, for_server: Call| if client { for_client } else { for_server };
    let ends = match stages.first() {
        Some(Plan::ACK) => Some((End::Ack, End::Over)),
        Some(Plan::SEND | Plan::OVER | Plan::DISCONNECT) => Some((End::Sending, End::Receiving)),
        Some(Plan::RECEIVE) => Some((End::Receiving, End::Sending)),
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
        calls.push(if short { Call::CallShort } else { Call::Call });
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

/// A call of IPC with a partner that does the other half.
fn exchange(call: Call) -> Play {
    let stages = plan(call);
    let (this, that) = if stages.has(Plan::CLIENT) {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    let (calls, ends, before) = other_half(call);
    let mut play = Play::new(call, "").prop(Prop::Service).prop(Prop::Messages);
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
    play.acts = vec![Act::Start(this), Act::Start(that)];
    play
}

/// The server answers every request that comes, in registers: the short way.
fn short_service(call: Call, general: bool) -> Play {
    let idempotent = matches!(call, Call::CallShort | Call::ReplyWaitReceiveShort);
    let (request, answer) = if idempotent {
        (Call::CallShort, Call::ReplyWaitReceiveShort)
    } else {
        (
            Call::ClientConnectSendOverReceiveShort,
            Call::ServerAckSendWaitReceiveShort,
        )
    };
    let strip = |mut r: IpcRegs| {
        // References keep a message from the short way.
        r.r15 = 0;
        r
    };
    let mut play = Play::new(call, "in registers")
        .prop(Prop::Service)
        .prop(Prop::Messages);
    play.used = Page::Handles.bit(CLIENT) | Page::Handles.bit(SERVER);
    for _ in 0..2 {
        play = play.step(CLIENT, strip(ipc(request, CLIENT)), false);
        if !idempotent {
            play = play.step(CLIENT, ipc(Call::ClientDisconnect, CLIENT), false);
        }
    }
    play = play
        .step(
            SERVER,
            strip(ipc(Call::ServerWaitReceiveShort, SERVER)),
            false,
        )
        .step(SERVER, strip(ipc(answer, SERVER)), false);
    play.again[SERVER] = Some(1);
    play.twice = true;
    play.general = general;
    play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
    play.named(if general {
        "the general way"
    } else {
        "the short way"
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
    }
    plays
}

fn of_ordinary(call: Call, plays: &mut Vec<Play>) {
    let row = call.row();
    let own = TYPES
        .into_iter()
        .find(|ty| (*ty as u8 - 1) * 6 < row.number && row.number <= *ty as u8 * 6);
    let is = |which: u8| own.is_some_and(|ty| common(ty, which) == call);
    let handle = |ty: Type| Stage::handle(CLIENT, Page::Handles, ty as u64);
    match call {
        Call::MutexLock => {
            ordinary(call, false).named("free").absences(plays);
            ordinary(call, false)
                .named("locked")
                .prop(Prop::Locked(CLIENT))
                .act(Act::Unlock(CLIENT))
                .absences(plays);
            plays.push(
                ordinary(call, false)
                    .named("locked, stopped")
                    .prop(Prop::Locked(CLIENT))
                    .act(Act::Stop(CLIENT))
                    .act(Act::Unlock(CLIENT)),
            );
        }
        Call::MutexUnlock => {
            ordinary(call, false)
                .prop(Prop::Locked(CLIENT))
                .absences(plays);
            let mut play = ordinary(call, false)
                .named("handed over")
                .prop(Prop::Locked(CLIENT));
            play = play.step(
                SERVER,
                registers(Call::MutexLock, [handle(Type::Mutex), 0, 0, 0, 0]),
                false,
            );
            play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
            plays.push(play);
        }
        Call::CondWait | Call::CondWaitUntil => {
            let play = ordinary(call, false).prop(Prop::Locked(CLIENT));
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
                plays.push(play.clone().named("timed out").act(Act::Until));
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
                .prop(Prop::Object(CLIENT, Type::Mutex))
                .prop(Prop::Locked(CLIENT));
            let wait = registers(
                Call::CondWait,
                [handle(Type::Cond), handle(Type::Mutex), 0, 0, 0],
            );
            play = play.step(SERVER, wait, false);
            play.acts = vec![Act::Start(SERVER), Act::Start(CLIENT)];
            plays.push(play);
        }
        Call::ThreadSleepUntil => {
            plays.push(ordinary(call, false).act(Act::Until));
            plays.push(
                ordinary(call, false)
                    .named("stopped")
                    .act(Act::Stop(CLIENT))
                    .act(Act::Until),
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
            if call == Call::ThreadWaitInterruptUntil {
                plays.push(play.named("timed out").act(Act::Until));
            }
        }
        Call::RegionSearch => {
            let mut play = ordinary(call, false)
                .prop(Prop::Object(CLIENT, Type::Space))
                .prop(Prop::Object(SERVER, Type::Space));
            let mut next = play.steps[CLIENT][0];
            next.regs.rsi = Page::Handles.on(SERVER) * abi::PAGE_SIZE;
            play.steps[CLIENT].push(next);
            play.absences(plays);
        }
        _ => ordinary(call, false).absences(plays),
    }
    if is(CREATE) || is(DESTROY) {
        ordinary(call, true).named("identity kept").absences(plays);
    }
    // The object of the call, or what its reference names, is vacant until the manager is back.
    let first = row.params.first().and_then(|&(name, param)| match param {
        Param::Object(Type::Reference) if call != Call::ReferenceCheck => type_of(name),
        Param::Object(ty) => Some(ty),
        _ => None,
    });
    let waits = !is(CREATE) && !matches!(call, Call::ThreadInterrupt | Call::ReferenceCheck);
    if let Some(ty) = first.filter(|_| waits) {
        let mut play = ordinary(call, false);
        if matches!(
            call,
            Call::MutexUnlock | Call::CondWait | Call::CondWaitUntil
        ) {
            play = play.prop(Prop::Locked(CLIENT));
        }
        play = play
            .named("vacant")
            .prop(Prop::Vacant(CLIENT, ty))
            .act(Act::Restore(CLIENT, ty));
        if matches!(call, Call::CondWait | Call::CondWaitUntil) {
            play = play.act(Act::Signal(CLIENT));
        }
        plays.push(play);
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
    // The partner is there first.
    let mut late = play.clone().named("partner first");
    late.acts.reverse();
    let mut absent = late.clone().named("all absent");
    absent.absent = absent.used;
    plays.extend([late, absent]);
    let alone = |name: &str| {
        let mut play = play.clone().named(name);
        play.acts = vec![Act::Start(this)];
        play
    };
    if play.ends.is_some() {
        plays.push(alone("partner dies").act(Act::Kill(that)));
        plays.push(
            alone("partner vacant")
                .prop(Prop::VacantVictim(that))
                .act(Act::RestoreVictim(that))
                .act(Act::Start(that)),
        );
    } else {
        plays.push(
            alone("port vacant")
                .prop(Prop::Vacant(SERVER, Type::Port))
                .act(Act::Restore(SERVER, Type::Port))
                .act(Act::Start(that)),
        );
        plays.push(
            alone("portset vacant")
                .prop(Prop::Vacant(SERVER, Type::Portset))
                .act(Act::Restore(SERVER, Type::Portset))
                .act(Act::Start(that)),
        );
    }
    plays.push(alone("stopped").act(Act::Stop(this)).act(Act::Start(that)));
    if stages.has(Plan::UNTIL) {
        plays.push(alone("timed out").act(Act::Until));
    }
    if matches!(
        call,
        Call::ClientConnectSendOverReceiveShort
            | Call::ServerAckSendWaitReceiveShort
            | Call::CallShort
            | Call::ReplyWaitReceiveShort
    ) {
        plays.push(short_service(call, false));
        plays.push(short_service(call, true));
    }
}
