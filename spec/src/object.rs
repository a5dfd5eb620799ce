//! Objects: identities, bodies, references, and the accounts that pay for them.
//!
//! An object is an *identity*, which references and other objects name, and a *body*, its state. It lives at a
//! [`Place`] in memory, and its handle is any address that leads there. `destroy` may leave the identity to a
//! reference that keeps it; the identity is then *vacant*. Calls that use a vacant identity wait until `create` has
//! given it a new body and `set_state` has opened that body; calls that manage it return a code instead
//! ([`abi::Syscall::manages`]). When no reference keeps the identity, or its manager destroys it once more, it ends:
//! nothing that names it finds it any more.

use crate::ipc::answered;
use crate::wait::{Asked, Meets, Status, Waiting};
use crate::{Id, Place, Stop, System};
use abi::registers::Lost;
use abi::state::{initial_fpu, Stage, FPU_BYTES};
use abi::{access, Code, Exception, RefKind, Registers, Type, OBJECT_ALIGN, ROLES};
use std::sync::Arc;

/// The life of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The identity has a body.
    Active,
    /// It has no body.
    Vacant,
    /// It has a new body that `set_state` has not opened yet: to all calls but those that manage an object by its
    /// handle it is vacant.
    Fresh,
}

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Where it lives.
    pub place: Place,
    /// Whether it has a body.
    pub phase: Phase,
    /// The account that pays for it, as an index in [`System::accounts`].
    pub payer: usize,
    /// Its state.
    pub body: Body,
}

/// What a reference names: an identity in a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The role.
    pub kind: RefKind,
    /// The identity, dead or alive; 0 for `Null` and `Authority`.
    pub id: Id,
    /// For a client end that the state of a server showed: the reference is good only for what that server has of the
    /// client.
    pub of_server: bool,
}

impl Target {
    /// Nothing.
    pub const NULL: Target = Target { kind: RefKind::Null, id: 0, of_server: false };
}

/// A mutex has no owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutex {
    /// Whether it is locked.
    pub locked: bool,
}

/// Imports a part of a region into a space. Its range stays taken in the space even while it is vacant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As in `abi::state::MappingState`.
pub struct Mapping {
    pub start: u64,
    pub size: u64,
    pub offset: u64,
    pub protection: u64,
    pub region: Option<Id>,
    pub space: Option<Id>,
}

/// What a region exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A range of its space.
    #[default]
    Space,
    /// Physical memory: offsets are physical addresses.
    Memory,
    /// A physical range of a device.
    Device,
}

/// Exports a range of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As in `abi::state::RegionState`.
pub struct Region {
    pub source: Source,
    pub start: u64,
    pub size: u64,
    pub protection: u64,
    pub space: Option<Id>,
    pub keeper: Option<Id>,
}

/// Where clients connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// A word for the server that receives from the port.
    pub alias: u64,
    /// Clients can only call it, not connect to it.
    pub calls_only: bool,
    /// The server is to be told when nothing names the port.
    pub notify: bool,
    /// Its clients wait even if a server waits for clients.
    pub holds: bool,
    /// Where its clients are received.
    pub portset: Option<Id>,
}

/// An address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The `syscall` instruction is an exception for the keeper.
    pub foreign: bool,
    /// The difference of its clock to the machine's, in nanoseconds.
    pub clock_offset: u64,
    /// The highest priority that threads in it can be given.
    pub max_priority: u64,
    /// The port to which its threads' exceptions are sent.
    pub keeper: Option<Id>,
    /// Its account, in [`System::accounts`].
    pub account: usize,
    /// I/O ports that it may use: first and count.
    pub ports: Vec<(u64, u64)>,
    /// Its place among collocated spaces, which no other living space has.
    pub place: Option<u64>,
}

/// One end of a connection. The connection exists while both ends name each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The end's stage in the protocol.
    pub stage: Stage,
    /// The thread at the other end.
    pub peer: Option<Id>,
}

/// A thread of control.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its registers; those that a call loses are void while `in_call`.
    pub registers: Registers,
    /// It has made a call, which loses some registers, since its registers were last all set.
    pub in_call: bool,
    /// The state of its FPU.
    pub fpu: [u8; FPU_BYTES],
    /// A word of its manager's.
    pub tag: u64,
    /// Scheduling priority.
    pub priority: u64,
    /// Stops that have not been resumed.
    pub stops: u64,
    /// An interrupt is pending.
    pub interrupt: bool,
    /// Where it runs.
    pub space: Option<Id>,
    /// Its connection as a client.
    pub client: End,
    /// Its connection as a server, or the request that it holds.
    pub server: End,
    /// A keeper has its exception and owes the answer.
    pub exception_delivered: bool,
    /// That keeper: no other thread may answer.
    pub keeper: Option<Id>,
    /// If its keeper has answered while it has no body: with which registers. The identity keeps them.
    pub answer: Option<Answer>,
    /// The last exception, and its address.
    pub exception: (u8, u64),
    /// Whether it can run.
    pub status: Status,
    /// What it waited for when it was stopped, as [`Thread::waits_for`]: for display only.
    pub waited: (Waiting, u64),
    /// The mutex, cond, port or portset at which it waits, or the vacant identity.
    pub at: Option<Id>,
    /// Until when it waits, on the machine's clock, in nanoseconds.
    pub deadline: Option<u64>,
    /// The question whose answer it waits for.
    pub asked: Option<Asked>,
    /// It waits at a port for a server that is to receive the kernel's message about its fault or exception, not to
    /// do its call.
    pub tells: bool,
    /// The handle of the cond at which it waits, which its frame no longer has: for display only.
    pub cond: u64,
    /// What happens to it before it does what its frame says.
    pub meets: Option<Meets>,
}

/// The registers that a keeper's answer to an exception sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All.
    Whole,
    /// Those that control the thread.
    Control,
}

/// Names another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// What it names.
    pub target: Target,
    /// It keeps that identity, which is vacant.
    pub keeps: bool,
}

/// The states of the nine types.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Body {
    Mutex(Mutex),
    Cond,
    Mapping(Mapping),
    Region(Region),
    Port(Port),
    Portset,
    Space(Space),
    Thread(Box<Thread>),
    Reference(Reference),
}

impl Body {
    /// The type.
    #[must_use]
    pub fn ty(&self) -> Type {
        match self {
            Body::Mutex(_) => Type::Mutex,
            Body::Cond => Type::Cond,
            Body::Mapping(_) => Type::Mapping,
            Body::Region(_) => Type::Region,
            Body::Port(_) => Type::Port,
            Body::Portset => Type::Portset,
            Body::Space(_) => Type::Space,
            Body::Thread(_) => Type::Thread,
            Body::Reference(_) => Type::Reference,
        }
    }

    /// What a new object is like.
    fn new(ty: Type) -> Body {
        match ty {
            Type::Mutex => Body::Mutex(Mutex::default()),
            Type::Cond => Body::Cond,
            Type::Mapping => Body::Mapping(Mapping::default()),
            Type::Region => Body::Region(Region::default()),
            Type::Port => Body::Port(Port::default()),
            Type::Portset => Body::Portset,
            Type::Space => Body::Space(Space::default()),
            Type::Thread => Body::Thread(Box::default()),
            Type::Reference => Body::Reference(Reference { target: Target::NULL, keeps: false }),
        }
    }
}

impl Default for Thread {
    fn default() -> Self {
        Thread {
            registers: sanitised(Registers::default()),
            in_call: false,
            fpu: crate::state::clean(&initial_fpu()),
            tag: 0,
            priority: 0,
            stops: 1,
            interrupt: false,
            space: None,
            client: End::default(),
            server: End::default(),
            exception_delivered: false,
            exception: (0, 0),
            status: Status::Stopped,
            waited: (Waiting::Nothing, 0),
            at: None,
            deadline: None,
            keeper: None,
            answer: None,
            asked: None,
            tells: false,
            cond: 0,
            meets: None,
        }
    }
}

impl Thread {
    /// The registers as a state or a message shows them; those that a call loses, as the call leaves them.
    #[must_use]
    pub fn registers(&self) -> Registers {
        let mut r = self.registers;
        if self.in_call {
            for &(register, lost) in ROLES.lost {
                r.set(
                    register,
                    match lost {
                        Lost::Next => r.pc().wrapping_add(ROLES.call_bytes),
                        Lost::Flags => r.flags(),
                    },
                );
            }
        }
        r
    }

    pub(crate) fn set_registers(&mut self, registers: Registers) {
        self.registers = sanitised(registers);
        self.in_call = false;
    }
}

/// The registers with only those flags that a program can change by itself, and those that are always set.
fn sanitised(mut registers: Registers) -> Registers {
    registers.set_flags(registers.flags() & ROLES.user_flags | ROLES.fixed_flags);
    registers
}

/// Kernel memory that the objects made from one space may use. It is taken from the creator's account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The creator's account.
    pub parent: Option<usize>,
    /// The most that it may use, in bytes.
    pub quota: u64,
    /// Bytes in use, including what the accounts of spaces made from this one use or were lent.
    pub used: u64,
    /// The space has ended.
    pub closed: bool,
}

impl System {
    pub(crate) fn charge(&mut self, account: usize, bytes: u64) -> Result<(), Stop> {
        let account = &mut self.accounts[account];
        let used = account.used.checked_add(bytes).filter(|&used| used <= account.quota);
        account.used = used.ok_or(Stop::Code(Code::NoMemory))?;
        Ok(())
    }

    /// Gives bytes back. If the account's space has ended they go on to its creator, and, once nothing is in use any
    /// more, so does the account's own cost.
    pub(crate) fn discharge(&mut self, account: usize, bytes: u64) {
        let a = &mut self.accounts[account];
        a.used -= bytes;
        if a.closed {
            a.quota -= bytes;
            let itself = if a.used == 0 { self.machine.account_cost } else { 0 };
            if let Some(parent) = a.parent {
                self.discharge(parent, bytes + itself);
            }
        }
    }
}

macro_rules! bodies {
    ($($get:ident $get_mut:ident $Type:ident;)*) => {
        impl System {$(
            /// The body of an object of this type that lives.
            ///
            /// # Panics
            /// If there is no such object.
            #[must_use]
            pub fn $get(&self, id: Id) -> &$Type {
                match self.objects.get(&id).map(|o| &o.body) {
                    Some(Body::$Type(body)) => body,
                    other => panic!(concat!("no ", stringify!($get), ": {:?} {:?}"), id, other),
                }
            }

            /// The same, to be changed.
            ///
            /// # Panics
            /// If there is no such object.
            pub fn $get_mut(&mut self, id: Id) -> &mut $Type {
                match self.objects.get_mut(&id).map(|o| &mut Arc::make_mut(o).body) {
                    Some(Body::$Type(body)) => body,
                    other => panic!(concat!("no ", stringify!($get), ": {:?} {:?}"), id, other),
                }
            }
        )*}
    };
}

bodies! {
    mutex mutex_mut Mutex;
    mapping mapping_mut Mapping;
    region region_mut Region;
    port port_mut Port;
    space space_mut Space;
    thread thread_mut Thread;
    reference reference_mut Reference;
}

// ---- handles and references ----------------------------------------------------------------------

impl System {
    /// The object at a place, if there is one.
    #[must_use]
    pub fn object_at(&self, place: Place) -> Option<Id> {
        self.objects.iter().find(|(_, o)| o.place == place).map(|(&id, _)| id)
    }

    /// The object at a handle, in whatever phase.
    pub(crate) fn look_up(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        aligned(handle)?;
        let frame = self.translate(space, handle, access::OBJECTS)?;
        let id = self.object_at((frame, handle % abi::PAGE_SIZE));
        let id = id.ok_or(Stop::Exception(Exception::NoObject, handle))?;
        if self.objects[&id].body.ty() == ty {
            Ok(id)
        } else {
            Err(Stop::Exception(Exception::WrongType, handle))
        }
    }

    /// The object at a handle, in whatever phase, for its manager. That there is none is a result and not an
    /// exception, since the memory may belong to another.
    pub(crate) fn look_up_managed(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        match self.look_up(space, handle, ty) {
            Err(Stop::Exception(Exception::NoObject | Exception::WrongType, _)) => {
                Err(Stop::Code(Code::NoObject))
            }
            Err(Stop::Fault(fault)) => Err(Stop::Absent(fault)),
            other => other,
        }
    }

    /// The object at a handle, for an operation on it.
    pub(crate) fn find(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        self.look_up(space, handle, ty).and_then(|id| self.open(id))
    }

    /// The object at a handle, for its manager: also one that has not been opened yet. A manager
    /// never waits for a body.
    pub(crate) fn find_body(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        let id = self.look_up_managed(space, handle, ty)?;
        match self.objects[&id].phase {
            Phase::Vacant => Err(Stop::Code(Code::Vacant)),
            _ => Ok(id),
        }
    }

    /// The open object at a handle, for a call that manages.
    pub(crate) fn find_open(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        self.look_up_managed(space, handle, ty).and_then(|id| self.open_now(id))
    }

    fn open_now(&self, id: Id) -> Result<Id, Stop> {
        if self.is_open(id) {
            Ok(id)
        } else {
            Err(Stop::Code(Code::Vacant))
        }
    }

    /// The open object that the reference at a handle names, for a call that does not wait for it.
    pub(crate) fn find_open_target(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        let target = self.reference(self.find(space, handle, Type::Reference)?).target;
        self.open_now(self.named(target, ty).ok_or(Stop::Code(Code::Dead))?)
    }

    /// What the reference at a handle names; nothing for the handle 0.
    pub(crate) fn target_at(&self, space: Id, handle: u64) -> Result<Target, Stop> {
        if handle == 0 {
            return Ok(Target::NULL);
        }
        Ok(self.reference(self.find(space, handle, Type::Reference)?).target)
    }

    /// The object that the reference at a handle names, for use.
    pub(crate) fn find_target(&self, space: Id, handle: u64, ty: Type) -> Result<Id, Stop> {
        let reference = self.find(space, handle, Type::Reference)?;
        let target = self.reference(reference).target;
        self.open(self.named(target, ty).ok_or(Stop::Code(Code::Dead))?)
    }

    /// What the target names, if that is an object of this type in its plain role and lives.
    pub(crate) fn named(&self, target: Target, ty: Type) -> Option<Id> {
        (target.kind as u8 == ty as u8 && self.alive(target)).then_some(target.id)
    }

    /// Whether the target names something that lives, or that need not live.
    pub(crate) fn alive(&self, target: Target) -> bool {
        target.kind == RefKind::Authority || self.objects.contains_key(&target.id)
    }

    /// The identity, if it lives.
    pub(crate) fn live(&self, id: Option<Id>, ty: Type) -> Option<Id> {
        id.filter(|id| id >> 24 == ty as u32 && self.objects.contains_key(id))
    }

    /// A target that names the object in its plain role.
    pub(crate) fn target(&self, id: Id) -> Target {
        let kind = RefKind::from_raw(u64::from(id >> 24)).unwrap_or(RefKind::Null);
        Target { kind, id, of_server: false }
    }

    /// A place where an object can be made: nothing is there, or only the identity `same`.
    pub(crate) fn find_place(&self, space: Id, at: u64, same: Option<Id>) -> Result<Place, Stop> {
        aligned(at)?;
        let mapping = self.mapping_at(space, at);
        if mapping.is_some_and(|m| self.mapping(m).protection & access::OBJECTS == 0) {
            return Err(Stop::Code(Code::Denied));
        }
        let place = (self.translate(space, at, access::OBJECTS)?, at % abi::PAGE_SIZE);
        match self.object_at(place) {
            Some(other) if Some(other) != same => Err(Stop::Code(Code::InUse)),
            _ => Ok(place),
        }
    }
}

fn aligned(address: u64) -> Result<(), Stop> {
    if address.is_multiple_of(OBJECT_ALIGN) {
        Ok(())
    } else {
        Err(Stop::Exception(Exception::Misaligned, address))
    }
}

// ---- life and death ------------------------------------------------------------------------------

impl System {
    /// A new object with a new identity.
    pub(crate) fn make(&mut self, ty: Type, place: Place, payer: usize) -> Result<Id, Stop> {
        let account = if ty == Type::Space { self.machine.account_cost } else { 0 };
        self.charge(payer, self.cost(ty) + account)?;
        if self.seen.no_memory {
            self.discharge(payer, self.cost(ty) + account);
            return Err(Stop::Code(Code::NoMemory));
        }
        self.last += 1;
        let object = Object { place, phase: Phase::Active, payer, body: Body::new(ty) };
        let id = crate::id(ty, self.last);
        self.objects.insert(id, Arc::new(object));
        Ok(id)
    }

    /// What an object of this type costs.
    #[must_use]
    pub fn cost(&self, ty: Type) -> u64 {
        self.machine.costs[ty as usize - 1]
    }

    /// A new body for a vacant identity: as for a new object, but for what belongs to the identity.
    pub(crate) fn embody(&mut self, id: Id, place: Place) {
        self.relocate(id, place);
        let mapped = match &self.objects[&id].body {
            Body::Mapping(m) => self.live(m.space, Type::Space).is_some(),
            _ => false,
        };
        let Some(object) = self.objects.get_mut(&id).map(Arc::make_mut) else {
            return;
        };
        object.phase = Phase::Fresh;
        match &mut object.body {
            Body::Mutex(m) => *m = Mutex::default(),
            Body::Port(p) => *p = Port::default(),
            Body::Region(r) => *r = Region::default(),
            Body::Reference(r) => (r.target, r.keeps) = (Target::NULL, false),
            // What others rely on: the space's ceiling, its account and what was lent to it.
            Body::Space(s) => {
                (s.foreign, s.clock_offset, s.keeper) = (false, 0, None);
            }
            // Interrupts that have come meanwhile, the connections, and the keeper that has its exception.
            Body::Thread(t) => {
                let old = std::mem::take(&mut **t);
                (t.interrupt, t.client, t.server) = (old.interrupt, old.client, old.server);
                (t.keeper, t.answer) = (old.keeper, old.answer);
                if let Some(answer) = old.answer {
                    t.set_registers(answered(t.registers(), old.registers(), answer));
                }
            }
            // Its range in a space, where accesses wait.
            Body::Mapping(_) if mapped => {}
            Body::Mapping(m) => *m = Mapping { region: m.region, ..Mapping::default() },
            Body::Cond | Body::Portset => {}
        }
    }

    /// Gives the object another place.
    pub(crate) fn relocate(&mut self, id: Id, place: Place) {
        self.clear_word(id);
        self.objects.entry(id).and_modify(|o| Arc::make_mut(o).place = place);
    }

    /// The word at a handle is the kernel's while the object is there. The object leaves it as zero.
    fn clear_word(&mut self, id: Id) {
        let (frame, offset) = self.objects[&id].place;
        self.poke(frame, offset, &[0; 8]);
    }

    /// Destroys an object: its body, and unless `keep` its identity.
    pub(crate) fn destroy(&mut self, id: Id, keep: bool) {
        if self.objects[&id].phase != Phase::Vacant {
            self.set_phase(id, Phase::Vacant);
            match self.objects[&id].body.ty() {
                Type::Region => {
                    let region = self.region_mut(id);
                    (region.space, region.source, region.keeper) = (None, Source::Space, None);
                }
                Type::Port => self.port_mut(id).portset = None,
                Type::Space => {
                    self.space_mut(id).keeper = None;
                    self.suspend_threads(id);
                }
                Type::Thread => {
                    self.leave(id);
                    let thread = self.thread_mut(id);
                    (thread.status, thread.space) = (Status::Stopped, None);
                }
                Type::Reference => self.point(id, Target::NULL),
                _ => {}
            }
        }
        if !keep {
            self.end(id);
        }
    }

    /// Ends an identity without a body, and whatever belonged to the identity.
    fn end(&mut self, id: Id) {
        match self.objects[&id].body.ty() {
            Type::Thread => {
                self.drop_client_end(id);
                self.drop_server_end(id);
                for line in self.lines.iter_mut().filter(|line| **line == Some(id)) {
                    *line = None;
                }
            }
            Type::Space => {
                let inside: Vec<Id> =
                    self.threads().filter(|(_, t)| t.space == Some(id)).map(|(t, _)| t).collect();
                for t in inside {
                    self.thread_mut(t).space = None;
                    self.suspend(t);
                }
                let exports =
                    |o: &Object| matches!(&o.body, Body::Region(r) if r.space == Some(id));
                for object in self.objects.values_mut().filter(|o| exports(o)) {
                    if let Body::Region(r) = &mut Arc::make_mut(object).body {
                        (r.space, r.source) = (None, Source::Space);
                    }
                }
                // The unused part goes back at once, the rest when the objects that it pays for end.
                let account = self.space(id).account;
                let a = &mut self.accounts[account];
                let unused = a.quota - a.used;
                (a.used, a.closed) = (a.quota, true);
                self.discharge(account, unused);
            }
            _ => {}
        }
        self.clear_word(id);
        if let Some(object) = self.objects.remove(&id) {
            self.discharge(object.payer, self.cost(object.body.ty()));
        }
    }

    /// Points a reference at something else. If it kept an identity, that identity ends.
    pub(crate) fn point(&mut self, id: Id, target: Target) {
        let reference = self.reference_mut(id);
        let old = std::mem::replace(&mut reference.target, target);
        let kept = std::mem::take(&mut reference.keeps);
        if kept && self.objects.get(&old.id).is_some_and(|o| o.phase == Phase::Vacant) {
            self.end(old.id);
        }
    }

    /// The new body of a vacant identity is open, once its state is set.
    pub(crate) fn opened(&mut self, id: Id) {
        self.set_phase(id, Phase::Active);
    }

    fn set_phase(&mut self, id: Id, phase: Phase) {
        self.objects.entry(id).and_modify(|o| Arc::make_mut(o).phase = phase);
    }

    fn suspend_threads(&mut self, space: Id) {
        let inside: Vec<Id> =
            self.threads().filter(|(_, t)| t.space == Some(space)).map(|(t, _)| t).collect();
        for t in inside {
            self.suspend(t);
        }
    }

    /// The thread's space has lost its body or its identity: the thread cannot go on for now.
    fn suspend(&mut self, t: Id) {
        if self.thread(t).status != Status::Stopped {
            self.wake(t);
        }
    }
}
