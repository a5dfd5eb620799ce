//! The table of entrypoints: the single source of truth about system calls.
//!
//! One row per entrypoint: documentation, number, variant of [`Call`], name, object, class, typed
//! parameters in their order, result codes. The kernel's table of handlers is computed from these rows when it is
//! compiled, so that a row without a handler does not compile; the C header, the names in `ps`, the list that
//! `./fermata syscalls` prints, and the tests are made from the same rows.
//!
//! [`crate::registers`] says once for all calls which registers carry a call's number, its parameters and its
//! result, and what the parameters of IPC calls mean.

use crate::code::{Code, Exception};
use crate::registers::{self, PARAMETERS};
use crate::{Type, TYPES};

/// How long a call can take (Ford et al., section 4.2 and Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Always runs to completion.
    Trivial,
    /// Usually runs to completion; a page fault rolls it back.
    Short,
    /// Can sleep indefinitely.
    Long,
    /// Can sleep indefinitely and be interrupted at points in the middle.
    MultiStage,
}

impl Class {
    /// The class in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Trivial => "trivial",
            Class::Short => "short",
            Class::Long => "long",
            Class::MultiStage => "multi-stage",
        }
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// The handle of an object of this type.
    Object(Type),
    /// The handle of a reference, or 0 for none.
    OptReference,
    /// An address at which an object is to be created.
    Fresh,
    /// The address of the object's state structure.
    State,
    /// Ignored: the object has no simple state.
    Unused,
    /// The address of registers for a thread to go on with ([`crate::Registers`]).
    Registers,
    /// The address of an FPU's state ([`crate::state::FpuState`]), or 0 to keep the thread's own.
    OptFpu,
    /// A number.
    Word,
    /// Rights, of [`crate::access`].
    Rights,
    /// A time on the space's clock, in nanoseconds.
    Deadline,
    /// Segment, list and references to send ([`registers::SEND`]).
    SendBuffer,
    /// Segment, list and references to receive into ([`registers::RECEIVE`]).
    ReceiveBuffer,
    /// Up to 64 bytes in registers ([`registers::WORDS`]).
    ShortBuffer,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    /// The variant of [`Call`].
    pub call: Call,
    /// The number, in the low byte of the word of the call.
    pub number: u8,
    /// The name.
    pub name: &'static str,
    /// The object or, for IPC, the role that the call belongs to.
    pub object: &'static str,
    /// How long the call can take.
    pub class: Class,
    /// Names and types of the parameters.
    pub params: &'static [(&'static str, Param)],
    /// The result codes that the call can return.
    pub codes: &'static [Code],
    /// What the call does.
    pub doc: &'static str,
}

/// An object or thread of a call whose identity the call may find vacant or dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// The object at the handle in this parameter.
    Handle(usize),
    /// The target of the reference in this parameter, if the call uses the target.
    Named(usize),
    /// The other end of the caller's connection.
    Peer,
}

/// What becomes of a call that finds an identity vacant or dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The call waits until the identity has a body again, and goes on.
    Waits,
    /// The call raises this exception.
    Raises(Exception),
    /// The call returns this code.
    Returns(Code),
}

/// The stable name of a row, and of its conformance test: the object, and the row's number among the
/// rows of the object, as in `PORT0003`. New rows are appended to the table, so a name never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowId {
    object: &'static str,
    ordinal: u16,
}

impl core::fmt::Display for RowId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for c in self.object.chars() {
            write!(f, "{}", c.to_ascii_uppercase())?;
        }
        write!(f, "{:04}", self.ordinal)
    }
}

/// The parameters of a register message: words, and references to send or to receive.
const SHORT_SEND: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, registers::WORDS_REFS];
const SHORT_RECEIVE: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, registers::RECEIVE[4]];

/// Each parameter by itself.
const EACH: &[[usize; 1]; PARAMETERS] =
    &[[0], [1], [2], [3], [4], [5], [6], [7], [8], [9], [10], [11]];

/// Numbers of parameters, and the names of their registers.
type Carriers = (&'static [usize], &'static [&'static str]);

const fn one(n: usize) -> Carriers {
    const NAMES: &[[&str; 1]; PARAMETERS] = &{
        let mut names = [[""]; PARAMETERS];
        let mut n = 0;
        while n < PARAMETERS {
            names[n] = [registers::name(n)];
            n += 1;
        }
        names
    };
    (&EACH[n], &NAMES[n])
}

impl Syscall {
    const fn carriers(&self, index: usize) -> Carriers {
        const SEND: [&str; 5] = registers::names(registers::SEND);
        const RECEIVE: [&str; 5] = registers::names(registers::RECEIVE);
        const SHORT_SENT: [&str; 9] = registers::names(SHORT_SEND);
        const SHORT_RECEIVED: [&str; 9] = registers::names(SHORT_RECEIVE);
        match self.params[index].1 {
            Param::SendBuffer => (&registers::SEND, &SEND),
            Param::ReceiveBuffer => (&registers::RECEIVE, &RECEIVE),
            Param::ShortBuffer if matches!(self.params[index].0.as_bytes(), b"send") => {
                (&SHORT_SEND, &SHORT_SENT)
            }
            Param::ShortBuffer => (&SHORT_RECEIVE, &SHORT_RECEIVED),
            Param::Deadline if crate::ipc::plan(self.call).is_ipc() => one(registers::DEADLINE),
            _ => one(index),
        }
    }

    /// The parameters ([`registers`]) that carry the parameter `index` of the row. For a register
    /// message the word of the call also carries the number of bytes.
    ///
    /// # Panics
    /// If there is no such parameter in the row.
    #[must_use]
    pub const fn parameters(&self, index: usize) -> &'static [usize] {
        self.carriers(index).0
    }

    /// The names of the registers that carry the parameter `index`.
    ///
    /// # Panics
    /// If there is no such parameter.
    #[must_use]
    pub const fn registers(&self, index: usize) -> &'static [&'static str] {
        self.carriers(index).1
    }

    /// The results besides the code: their names, and the parameters that carry them. (Parameters of
    /// buffers return what is left of the buffer.)
    #[must_use]
    pub const fn results(&self) -> &'static [(&'static str, usize)] {
        match self.call {
            Call::ThreadSelf => &[("tag", 0)],
            Call::ClockGet => &[("time", 0)],
            Call::ReferenceCheck => &[("kind", 0)],
            Call::RegionSearch => &[("found_offset", 1), ("found_type", 4)],
            call if crate::ipc::plan(call).has(crate::ipc::Plan::WAIT) => &[("alias", 0)],
            _ => &[],
        }
    }

    /// Its stable name.
    #[must_use]
    pub const fn id(&self) -> RowId {
        let (mut ordinal, mut i) = (0, 0);
        while i < self.number as usize {
            if same(SYSCALLS[i].object, self.object) {
                ordinal += 1;
            }
            i += 1;
        }
        RowId {
            object: self.object,
            ordinal,
        }
    }

    /// The exceptions that wrong use of this call raises, to the keeper of the caller's space. In a
    /// foreign space every call raises [`Exception::ForeignCall`]. If the object that a call manages is not there,
    /// the call returns the code [`Code::NoObject`] instead.
    #[must_use]
    pub const fn exceptions(&self) -> &'static [Exception] {
        let (mut handles, mut lists, mut memory, mut manages) = (false, false, false, false);
        let mut i = 0;
        while i < self.params.len() {
            match self.params[i].1 {
                Param::Unused | Param::Word | Param::Rights | Param::Deadline => {}
                Param::ShortBuffer => lists = true,
                Param::Fresh | Param::State | Param::Registers | Param::OptFpu => memory = true,
                _ if self.manages(i) => manages = true,
                _ => handles = true,
            }
            i += 1;
        }
        match (handles, lists, memory, manages) {
            (true, ..) => &[
                Exception::Memory,
                Exception::NoObject,
                Exception::WrongType,
                Exception::Misaligned,
            ],
            // Words in registers are never misaligned, nor is a list of references.
            (_, true, ..) => &[Exception::Memory, Exception::NoObject, Exception::WrongType],
            (_, _, true, _) => &[Exception::Memory, Exception::Misaligned],
            (_, _, _, true) => &[Exception::Misaligned],
            _ => &[],
        }
    }

    /// Whether the parameter is a reference whose target the call uses; other references are only
    /// set or kept.
    #[must_use]
    pub const fn names(&self, index: usize) -> bool {
        let (name, kind) = self.params[index];
        match kind {
            Param::Object(Type::Reference) if same(self.object, "Reference") => {
                self.looks_at_references()
            }
            // A parameter that is to be pointed at an object is called just `reference`.
            Param::Object(Type::Reference) => !same(name, "reference") && !same(name, "authority"),
            Param::OptReference => self.creates() || self.sets(),
            _ => false,
        }
    }

    const fn looks_at_references(&self) -> bool {
        matches!(self.call, Call::ReferenceCheck | Call::ReferenceEqual)
    }

    const fn creates(&self) -> bool {
        matches!(self.params, [(_, Param::Fresh), ..])
    }

    const fn sets(&self) -> bool {
        ends_with(self.name.as_bytes(), b"set_state")
    }

    /// All parties whose identities the call may find vacant or dead.
    pub fn parties(&'static self) -> impl Iterator<Item = Party> {
        let handles = self.params.iter().enumerate().filter_map(|(i, (_, kind))| {
            matches!(kind, Param::Object(_) | Param::OptReference).then_some(Party::Handle(i))
        });
        let named = (0..self.params.len())
            .filter(|&i| self.names(i))
            .map(Party::Named);
        let peer = self.codes.contains(&Code::Disconnected);
        handles.chain(named).chain(peer.then_some(Party::Peer))
    }

    /// Whether the call manages the object at the handle in this parameter, in contrast to a call that uses it. The
    /// object may be in the memory of another program, which may take away the object or its page at any time: then
    /// such a call returns [`Code::NoObject`]. A vacant identity never makes a manager wait: the call returns
    /// [`Code::Vacant`], and `destroy` ends the identity. Reference objects are managed only by their own common calls;
    /// all other calls use them, to find the target or to set it.
    #[must_use]
    pub const fn manages(&self, index: usize) -> bool {
        let uses = matches!(
            self.call,
            Call::MutexLock
                | Call::MutexTrylock
                | Call::MutexUnlock
                | Call::CondWait
                | Call::CondWaitUntil
                | Call::CondSignal
                | Call::CondBroadcast
        );
        match self.params[index].1 {
            _ if uses || crate::ipc::plan(self.call).is_ipc() => false,
            Param::Object(Type::Reference) => {
                index == 0 && same(self.object, "Reference") && !self.looks_at_references()
            }
            Param::Object(_) => true,
            _ => false,
        }
    }

    const fn destroys(&self) -> bool {
        ends_with(self.name.as_bytes(), b"_destroy")
    }

    /// What becomes of the call when the identity of one of its parties is vacant.
    #[must_use]
    pub const fn vacant(&self, party: Party) -> Fate {
        match (party, self.call) {
            (Party::Handle(0), _) if self.destroys() => Fate::Returns(Code::Ok),
            // These calls change the identity, which need not have a body.
            (Party::Named(_), Call::ThreadInterrupt | Call::DeviceRevokePorts) => {
                Fate::Returns(Code::Ok)
            }
            (Party::Named(_), _) if self.creates() || self.sets() || self.looks_at_references() => {
                Fate::Returns(Code::Ok)
            }
            (Party::Handle(index), _) if self.manages(index) => Fate::Returns(Code::Vacant),
            // The holder of the device authority does not wait for a driver, nor does a manager for the payer.
            (Party::Named(_), Call::SpaceSetPayer) => Fate::Returns(Code::Vacant),
            (Party::Named(_), _) if same(self.object, "Device") => Fate::Returns(Code::Vacant),
            _ => Fate::Waits,
        }
    }

    /// What becomes of the call when the identity of one of its parties is dead.
    #[must_use]
    pub const fn dead(&self, party: Party) -> Fate {
        match (party, self.call) {
            (Party::Handle(index), _) if self.manages(index) => Fate::Returns(Code::NoObject),
            (Party::Handle(_), _) => Fate::Raises(Exception::NoObject),
            // A reference to a dead identity can be copied, too.
            (Party::Named(_), Call::ReferenceSetState) => Fate::Returns(Code::Ok),
            (Party::Named(_), _) => Fate::Returns(Code::Dead),
            (Party::Peer, _) => Fate::Returns(Code::Disconnected),
        }
    }
}

/// Whether two names are the same.
const fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && ends_with(a.as_bytes(), b.as_bytes())
}

const fn ends_with(name: &[u8], end: &[u8]) -> bool {
    let mut i = 0;
    while i < end.len() {
        if i >= name.len() || name[name.len() - 1 - i] != end[end.len() - 1 - i] {
            return false;
        }
        i += 1;
    }
    true
}

macro_rules! calls {
    ($($(#[doc = $doc:literal])+ $number:literal $variant:ident $name:ident $object:ident $class:ident
       ($($param:ident: $kind:expr),*) [$($code:ident)*];)*) => {
        /// An entrypoint.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Call {
            $($(#[doc = $doc])+ $variant = $number,)*
        }

        #[allow(unused_imports)]
        mod rows {
            use super::{Call, Class, Code, Param::{self, *}, Syscall, Type};

            pub(super) const ROWS: &[Syscall] = &[$(Syscall {
                call: Call::$variant,
                number: $number,
                name: stringify!($name),
                object: stringify!($object),
                class: Class::$class,
                params: { const P: &[(&str, Param)] = &[$((stringify!($param), $kind)),*]; P },
                codes: &[$(Code::$code),*],
                doc: concat!($($doc),+),
            }),*];
        }
    };
}

/// Every entrypoint, in numerical order; row `i` has number `i + 1`.
pub const SYSCALLS: &[Syscall] = rows::ROWS;

const _: () = {
    let mut i = 0;
    while i < SYSCALLS.len() {
        assert!(
            SYSCALLS[i].number as usize == i + 1,
            "the rows must be numbered from 1 on"
        );
        i += 1;
    }
};

/// The calls by their numbers.
static CALLS: [Option<Call>; 256] = {
    let mut calls = [None; 256];
    let mut i = 0;
    while i < SYSCALLS.len() {
        calls[i + 1] = Some(SYSCALLS[i].call);
        i += 1;
    }
    calls
};

/// The six calls that every type has. They come first in the table, six rows for each type, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Common {
    /// Makes an object, or gives an identity a body.
    Create,
    /// Takes an object's body, and ends its identity unless a reference keeps that.
    Destroy,
    /// Changes the address at which an object lives.
    Move,
    /// Points a reference at an object.
    Reference,
    /// Reads an object's state.
    GetState,
    /// Sets an object's state.
    SetState,
}

impl Common {
    /// All six, in the order of the table.
    pub const ALL: [Common; 6] = [
        Common::Create,
        Common::Destroy,
        Common::Move,
        Common::Reference,
        Common::GetState,
        Common::SetState,
    ];

    /// This call, for objects of a type.
    #[must_use]
    pub const fn of(self, ty: Type) -> Call {
        SYSCALLS[self.row(ty)].call
    }

    /// The index of its row in [`SYSCALLS`].
    const fn row(self, ty: Type) -> usize {
        (ty as usize - 1) * Self::ALL.len() + self as usize
    }
}

impl Call {
    /// The type and the kind, if this is one of the six calls that every type has.
    #[must_use]
    pub fn common(self) -> Option<(Type, Common)> {
        let mut all = TYPES
            .into_iter()
            .flat_map(|ty| Common::ALL.map(|common| (ty, common)));
        all.find(|(ty, common)| common.of(*ty) == self)
    }

    /// The entrypoint with this number, if there is one.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        CALLS[number as usize]
    }

    /// Its row in the table.
    #[must_use]
    pub const fn row(self) -> &'static Syscall {
        &SYSCALLS[self as usize - 1]
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The call that this call has become when its first stage is done (rule A3): the entrypoint that a
    /// restart then finds in the frame. `None` if the call has one stage; it then restarts as
    /// itself, with its progress in its parameters.
    #[must_use]
    pub const fn rest(self) -> Option<Self> {
        match self {
            Call::CondWait | Call::CondWaitUntil => Some(Call::MutexLock),
            call => crate::ipc::next(call),
        }
    }
}

calls! {
    /// Creates a mutex at the address in its first parameter. With an `identity` kept by
    /// `mutex_destroy`, the mutex gets that identity, which stays vacant until the first
    /// `mutex_set_state`.
    1 MutexCreate mutex_create Mutex Short (mutex: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the mutex. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the mutex is vacant already, its identity ends.
    2 MutexDestroy mutex_destroy Mutex Short (mutex: Object(Type::Mutex), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the mutex to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the mutex, unless it does so already, directly or through others.
    3 MutexMove mutex_move Mutex Short (mutex: Object(Type::Mutex), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the mutex.
    4 MutexReference mutex_reference Mutex Short (mutex: Object(Type::Mutex), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the mutex: whether it is locked. References that are not wanted are 0.
    /// Never changes the mutex.
    5 MutexGetState mutex_get_state Mutex Short (mutex: Object(Type::Mutex), state: State) [Ok Vacant NoObject];

    /// Sets the state of the mutex: whether it is locked. A vacant identity with a new body opens
    /// with this call.
    6 MutexSetState mutex_set_state Mutex Short (mutex: Object(Type::Mutex), state: State) [Ok Invalid Vacant NoObject];

    /// Creates a cond at the address in its first parameter. With an `identity` kept by
    /// `cond_destroy`, the cond gets that identity, which stays vacant until the first
    /// `cond_set_state`.
    7 CondCreate cond_create Cond Short (cond: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the cond. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the cond is vacant already, its identity ends.
    8 CondDestroy cond_destroy Cond Short (cond: Object(Type::Cond), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the cond to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the cond, unless it does so already, directly or through others.
    9 CondMove cond_move Cond Short (cond: Object(Type::Cond), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the cond.
    10 CondReference cond_reference Cond Short (cond: Object(Type::Cond), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Does nothing but find the cond: a condition has no state of its own.
    11 CondGetState cond_get_state Cond Short (cond: Object(Type::Cond), state: Unused) [Ok Vacant NoObject];

    /// Opens a vacant identity with a new body; a condition has no state of its own.
    12 CondSetState cond_set_state Cond Short (cond: Object(Type::Cond), state: Unused) [Ok Vacant NoObject];

    /// Creates a mapping at the address in its first parameter. With an `identity` kept by
    /// `mapping_destroy`, the mapping gets that identity, which stays vacant until the first
    /// `mapping_set_state`.
    13 MappingCreate mapping_create Mapping Short (mapping: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the mapping. With a reference in `identity`, only the body goes: the reference
    /// keeps the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the mapping is vacant already, its identity ends.
    14 MappingDestroy mapping_destroy Mapping Short (mapping: Object(Type::Mapping), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the mapping to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the mapping, unless it does so already, directly or through others.
    15 MappingMove mapping_move Mapping Short (mapping: Object(Type::Mapping), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the mapping.
    16 MappingReference mapping_reference Mapping Short (mapping: Object(Type::Mapping), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the mapping: its range, offset and rights, its region and space.
    /// References that are not wanted are 0. Never changes the mapping.
    17 MappingGetState mapping_get_state Mapping Short (mapping: Object(Type::Mapping), state: State, region: OptReference, space: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the mapping: its range, offset and rights, its region and space. A
    /// reference of 0 stands for none; for the space it stands for the caller's own.
    18 MappingSetState mapping_set_state Mapping Short (mapping: Object(Type::Mapping), state: State, region: OptReference, space: OptReference) [Ok Invalid Dead InUse Vacant NoObject];

    /// Creates a region at the address in its first parameter. With an `identity` kept by
    /// `region_destroy`, the region gets that identity, which stays vacant until the first
    /// `region_set_state`.
    19 RegionCreate region_create Region Short (region: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the region. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the region is vacant already, its identity ends.
    20 RegionDestroy region_destroy Region Short (region: Object(Type::Region), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the region to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the region, unless it does so already, directly or through others.
    21 RegionMove region_move Region Short (region: Object(Type::Region), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the region.
    22 RegionReference region_reference Region Short (region: Object(Type::Region), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the region: its range and rights, its space and keeper. References that
    /// are not wanted are 0. Never changes the region.
    23 RegionGetState region_get_state Region Short (region: Object(Type::Region), state: State, space: OptReference, keeper: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the region: its range and rights, its space and keeper. A reference of 0
    /// stands for none; for the space it stands for the caller's own.
    24 RegionSetState region_set_state Region Short (region: Object(Type::Region), state: State, space: OptReference, keeper: OptReference) [Ok Invalid Dead Vacant NoObject];

    /// Creates a port at the address in its first parameter. With an `identity` kept by
    /// `port_destroy`, the port gets that identity, which stays vacant until the first
    /// `port_set_state`.
    25 PortCreate port_create Port Short (port: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the port. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the port is vacant already, its identity ends.
    26 PortDestroy port_destroy Port Short (port: Object(Type::Port), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the port to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the port, unless it does so already, directly or through others.
    27 PortMove port_move Port Short (port: Object(Type::Port), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the port.
    28 PortReference port_reference Port Short (port: Object(Type::Port), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the port: its alias, flags and portset. References that are not wanted are 0.
    /// Never changes the port.
    29 PortGetState port_get_state Port Short (port: Object(Type::Port), state: State, portset: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the port: its alias, flags and portset. A reference of 0 stands for none.
    30 PortSetState port_set_state Port Short (port: Object(Type::Port), state: State, portset: OptReference) [Ok Invalid Dead Vacant NoObject];

    /// Creates a portset at the address in its first parameter. With an `identity` kept by
    /// `portset_destroy`, the portset gets that identity, which stays vacant until the first
    /// `portset_set_state`.
    31 PortsetCreate portset_create Portset Short (portset: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the portset. With a reference in `identity`, only the body goes: the reference
    /// keeps the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the portset is vacant already, its identity ends.
    32 PortsetDestroy portset_destroy Portset Short (portset: Object(Type::Portset), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the portset to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the portset, unless it does so already, directly or through others.
    33 PortsetMove portset_move Portset Short (portset: Object(Type::Portset), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the portset.
    34 PortsetReference portset_reference Portset Short (portset: Object(Type::Portset), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Does nothing but find the portset: a portset has no state of its own.
    35 PortsetGetState portset_get_state Portset Short (portset: Object(Type::Portset), state: Unused) [Ok Vacant NoObject];

    /// Opens a vacant identity with a new body; a portset has no state of its own.
    36 PortsetSetState portset_set_state Portset Short (portset: Object(Type::Portset), state: Unused) [Ok Vacant NoObject];

    /// Creates a space at the address in its first parameter. With an `identity` kept by
    /// `space_destroy`, the space gets that identity, which stays vacant until the first
    /// `space_set_state`.
    37 SpaceCreate space_create Space Short (space: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the space. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the space is vacant already, its identity ends.
    38 SpaceDestroy space_destroy Space Short (space: Object(Type::Space), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the space to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the space and for its quota, unless it does so already, directly or through others.
    39 SpaceMove space_move Space Short (space: Object(Type::Space), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the space.
    40 SpaceReference space_reference Space Short (space: Object(Type::Space), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the space: its flags, quota, use, clock and ceiling, and its keeper. References
    /// that are not wanted are 0. Never changes the space.
    41 SpaceGetState space_get_state Space Short (space: Object(Type::Space), state: State, keeper: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the space: its flags, quota, use, clock and ceiling, and its keeper. A reference of
    /// 0 stands for none.
    42 SpaceSetState space_set_state Space Short (space: Object(Type::Space), state: State, keeper: OptReference) [Ok Invalid Dead NoMemory Denied Vacant NoObject];

    /// Creates a thread at the address in its first parameter. With an `identity` kept by
    /// `thread_destroy`, the thread gets that identity, which stays vacant until the first
    /// `thread_set_state`.
    43 ThreadCreate thread_create Thread Short (thread: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the thread. With a reference in `identity`, only the body goes: the reference keeps
    /// the identity, calls that use it wait, and the identity ends when the reference does.
    /// If the thread is vacant already, its identity ends.
    44 ThreadDestroy thread_destroy Thread Short (thread: Object(Type::Thread), identity: OptReference) [Ok Vacant NoObject];

    /// Moves the thread to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the thread, unless it does so already, directly or through others.
    45 ThreadMove thread_move Thread Short (thread: Object(Type::Thread), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the reference at the thread.
    46 ThreadReference thread_reference Thread Short (thread: Object(Type::Thread), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the thread: its registers, FPU, scheduling and connection state, and its
    /// space and peers. References that are not wanted are 0. Never changes the thread.
    47 ThreadGetState thread_get_state Thread Short (thread: Object(Type::Thread), state: State, space: OptReference, client_end: OptReference, server_end: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the thread: its registers, FPU, scheduling and connection state, and its
    /// space and peers. A reference of 0 stands for none; for the space it stands for the caller's
    /// own.
    48 ThreadSetState thread_set_state Thread Short (thread: Object(Type::Thread), state: State, space: OptReference, client_end: OptReference, server_end: OptReference) [Ok Invalid NotStopped Dead Denied Vacant NoObject NoMemory];

    /// Creates a reference at the address in its first parameter. With an `identity` kept by
    /// `reference_destroy`, the reference gets that identity, which stays vacant until the first
    /// `reference_set_state`.
    49 ReferenceCreate reference_create Reference Short (reference: Fresh, identity: OptReference) [Ok NoMemory InUse Dead Invalid Denied];

    /// Destroys the reference. With another reference in `identity`, only the body goes: that reference
    /// keeps the identity, calls that use it wait, and the identity ends when that reference does.
    /// If the reference is vacant already, its identity ends.
    50 ReferenceDestroy reference_destroy Reference Short (reference: Object(Type::Reference), identity: OptReference) [Ok Invalid Vacant NoObject];

    /// Moves the reference to another address in the caller's memory. References to it stay valid. The account of the
    /// caller's space then pays for the reference, unless it does so already, directly or through others.
    51 ReferenceMove reference_move Reference Short (reference: Object(Type::Reference), to: Fresh) [Ok InUse Denied Vacant NoObject];

    /// Points the other reference at the first one, as an identity that can be kept.
    52 ReferenceReference reference_reference Reference Short (reference: Object(Type::Reference), other: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Writes the state of the reference: what it names. References that are not wanted are 0.
    /// Never changes the reference.
    53 ReferenceGetState reference_get_state Reference Short (reference: Object(Type::Reference), state: State, target: OptReference) [Ok Vacant NoObject];

    /// Sets the state of the reference: what it names. A reference of 0 stands for none.
    54 ReferenceSetState reference_set_state Reference Short (reference: Object(Type::Reference), state: State, target: OptReference) [Ok Invalid Vacant NoObject];

    /// Locks the mutex, waiting while it is locked.
    55 MutexLock mutex_lock Mutex Long (mutex: Object(Type::Mutex)) [Ok];

    /// Locks the mutex if it is free.
    56 MutexTrylock mutex_trylock Mutex Short (mutex: Object(Type::Mutex)) [Ok WouldBlock];

    /// Unlocks the mutex. If threads wait, the first waiter gets the mutex and its call is complete.
    /// `Invalid` if the mutex was not locked.
    57 MutexUnlock mutex_unlock Mutex Short (mutex: Object(Type::Mutex)) [Ok Invalid];

    /// Unlocks the mutex and waits for the condition, then locks the mutex again. Restarts as
    /// `mutex_lock` once the wait has begun, so the call may return spuriously. `Invalid` if the mutex
    /// was not locked.
    58 CondWait cond_wait Cond MultiStage (cond: Object(Type::Cond), mutex: Object(Type::Mutex)) [Ok Invalid];

    /// As `cond_wait`, but waits for the condition no longer than the deadline on the space's clock. The
    /// result is `Ok` also after a time-out, so the caller must read the clock to find out.
    59 CondWaitUntil cond_wait_until Cond MultiStage (cond: Object(Type::Cond), mutex: Object(Type::Mutex), deadline: Deadline) [Ok Invalid];

    /// Wakes one thread that waits for the condition.
    60 CondSignal cond_signal Cond Short (cond: Object(Type::Cond)) [Ok];

    /// Wakes all threads that wait for the condition.
    61 CondBroadcast cond_broadcast Cond Short (cond: Object(Type::Cond)) [Ok];

    /// Changes the rights of the mapping.
    62 MappingProtect mapping_protect Mapping Short (mapping: Object(Type::Mapping), protection: Rights) [Ok Invalid Vacant NoObject];

    /// Changes the rights that mappings of the region can have at most.
    63 RegionProtect region_protect Region Short (region: Object(Type::Region), protection: Rights) [Ok Invalid Vacant NoObject];

    /// Searches the range `offset..end` of the region for the next object whose type is in `kinds`
    /// (bit n for type n) or, with bit 0, for the next page that is present. On success `offset` is the
    /// offset of the object or page, and parameter 4 its type (0: a page). Progress: `offset` advances.
    64 RegionSearch region_search Region MultiStage (region: Object(Type::Reference), offset: Word, end: Word, kinds: Word) [Ok NotFound Dead Invalid];

    /// Returns the thread's tag.
    65 ThreadSelf thread_self Thread Trivial () [Ok];

    /// Lets the next thread of the same priority run.
    66 ThreadYield thread_yield Thread Trivial () [Ok];

    /// Waits for the deadline on the space's clock.
    67 ThreadSleepUntil thread_sleep_until Thread Long (deadline: Deadline) [Ok];

    /// Adds one to the thread's stop count. When the call returns the thread is stopped and its
    /// state is complete.
    68 ThreadStop thread_stop Thread Short (thread: Object(Type::Thread)) [Ok Vacant NoObject];

    /// Takes one from the thread's stop count; at 0 the thread goes on. `Invalid` if it is not stopped.
    69 ThreadResume thread_resume Thread Short (thread: Object(Type::Thread)) [Ok Invalid Vacant NoObject];

    /// Makes an interrupt pending for the thread.
    70 ThreadInterrupt thread_interrupt Thread Short (thread: Object(Type::Reference)) [Ok Dead];

    /// Waits until an interrupt is pending, and takes it. First unmasks the interrupt lines of devices
    /// that are attached to the thread.
    71 ThreadWaitInterrupt thread_wait_interrupt Thread Long () [Ok];

    /// As `thread_wait_interrupt`, but no longer than the deadline on the space's clock.
    72 ThreadWaitInterruptUntil thread_wait_interrupt_until Thread Long (deadline: Deadline) [Ok TimedOut];

    /// Sets the thread's scheduling priority. `Denied` if it is above the ceiling of the caller's space
    /// or of the thread's space.
    73 ThreadSetPriority thread_set_priority Thread Short (thread: Object(Type::Thread), priority: Word) [Ok Invalid Denied Vacant NoObject];

    /// Points the reference at the client end of the thread: the right to be its server.
    74 ThreadReferenceClientEnd thread_reference_client_end Thread Short (thread: Object(Type::Thread), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Points the reference at the server end of the thread: the right to be its client.
    75 ThreadReferenceServerEnd thread_reference_server_end Thread Short (thread: Object(Type::Thread), reference: Object(Type::Reference)) [Ok Vacant NoObject];

    /// Returns the kind of the reference's target, which may be vacant. `Dead` if the reference is null
    /// or its target is dead.
    76 ReferenceCheck reference_check Reference Short (reference: Object(Type::Reference)) [Ok Dead];

    /// Compares two references: `NotFound` if they differ, otherwise (the same object in the same role)
    /// `Ok` if the object is alive and `Dead` if it is not.
    77 ReferenceEqual reference_equal Reference Short (reference: Object(Type::Reference), other: Object(Type::Reference)) [Ok NotFound Dead];

    /// Returns the space's clock, in nanoseconds.
    78 ClockGet clock_get Clock Trivial () [Ok];

    /// Turns interrupts of the line into thread interrupts of the thread, until the thread's identity
    /// ends or `device_detach_interrupt` is called.
    79 DeviceAttachInterrupt device_attach_interrupt Device Short (authority: Object(Type::Reference), thread: Object(Type::Reference), line: Word) [Ok Denied Dead InUse Invalid Vacant];

    /// Lets the space use the I/O ports, until its identity ends or `device_revoke_ports` is called. A space can have
    /// 32 ranges of at most 65,535 ports; `InUse` for one range more, and for ports that any space has already.
    80 DeviceGrantPorts device_grant_ports Device Short (authority: Object(Type::Reference), space: Object(Type::Reference), first: Word, count: Word) [Ok Denied Dead InUse Invalid Vacant];

    /// Makes the region export device memory at a physical address. `Invalid` for memory that does not
    /// belong to a device, and for addresses that the processor does not have.
    81 DeviceMapPhysical device_map_physical Device Short (authority: Object(Type::Reference), region: Object(Type::Region), start: Word, size: Word) [Ok Denied Invalid Vacant NoObject];

    /// The client connects to the port. `Denied` if the port is for calls only.
    82 ClientConnect client_connect Client Long (port: Object(Type::Reference)) [Ok Dead WrongStage Denied];

    /// The client connects to the port and sends.
    83 ClientConnectSend client_connect_send Client MultiStage (port: Object(Type::Reference), send: SendBuffer) [Ok Dead WrongStage Denied Disconnected];

    /// The client connects to the port, sends and turns the direction round.
    84 ClientConnectSendOver client_connect_send_over Client MultiStage (port: Object(Type::Reference), send: SendBuffer) [Ok Dead WrongStage Denied Disconnected];

    /// The client connects to the port, sends, turns the direction round and receives.
    85 ClientConnectSendOverReceive client_connect_send_over_receive Client MultiStage (port: Object(Type::Reference), send: SendBuffer, receive: ReceiveBuffer) [Ok Dead WrongStage Denied Disconnected More];

    /// The client sends.
    86 ClientSend client_send Client MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The client sends and turns the direction round.
    87 ClientSendOver client_send_over Client MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The client sends, turns the direction round and receives.
    88 ClientSendOverReceive client_send_over_receive Client MultiStage (send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The client turns the direction round.
    89 ClientOver client_over Client Long () [Ok Disconnected WrongStage];

    /// The client turns the direction round and receives.
    90 ClientOverReceive client_over_receive Client MultiStage (receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The client receives.
    91 ClientReceive client_receive Client MultiStage (receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The client accepts the direction that the peer turned round.
    92 ClientAck client_ack Client Short () [Ok Disconnected WrongStage];

    /// The client accepts the direction that the peer turned round and sends.
    93 ClientAckSend client_ack_send Client MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The client accepts the direction that the peer turned round, sends and turns the direction
    /// round.
    94 ClientAckSendOver client_ack_send_over Client MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The client accepts the direction that the peer turned round, sends, turns the direction
    /// round and receives.
    95 ClientAckSendOverReceive client_ack_send_over_receive Client MultiStage (send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The client ends the connection, if there is one.
    96 ClientDisconnect client_disconnect Client Short () [Ok];

    /// The client connects to the port, sends, turns the direction round and receives. Up to 64
    /// bytes travel in registers.
    97 ClientConnectSendOverReceiveShort client_connect_send_over_receive_short Client MultiStage (port: Object(Type::Reference), send: ShortBuffer, receive: ShortBuffer) [Ok Dead WrongStage Denied Disconnected More];

    /// The client sends, turns the direction round and receives. Up to 64 bytes travel in
    /// registers.
    98 ClientSendOverReceiveShort client_send_over_receive_short Client MultiStage (send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The client turns the direction round and receives. Up to 64 bytes travel in registers.
    99 ClientOverReceiveShort client_over_receive_short Client MultiStage (receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The client receives. Up to 64 bytes travel in registers.
    100 ClientReceiveShort client_receive_short Client MultiStage (receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The client accepts the direction that the peer turned round, sends, turns the direction
    /// round and receives. Up to 64 bytes travel in registers.
    101 ClientAckSendOverReceiveShort client_ack_send_over_receive_short Client MultiStage (send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The server ends the connection and waits for the next client.
    102 ServerWait server_wait Server Long (portset: Object(Type::Portset)) [Ok TooLarge Unreferenced];

    /// The server ends the connection and waits for the next client and receives.
    103 ServerWaitReceive server_wait_receive Server MultiStage (portset: Object(Type::Portset), receive: ReceiveBuffer) [Ok Disconnected More Call Fault Exception TooLarge Unreferenced];

    /// The server ends the connection and waits for the next client and receives. It waits for a
    /// client no longer than the deadline, on the space's clock.
    104 ServerWaitReceiveUntil server_wait_receive_until Server MultiStage (portset: Object(Type::Portset), receive: ReceiveBuffer, deadline: Deadline) [Ok TimedOut Disconnected More Call Fault Exception TooLarge Unreferenced];

    /// The server receives.
    105 ServerReceive server_receive Server MultiStage (receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The server accepts the direction that the peer turned round.
    106 ServerAck server_ack Server Short () [Ok Disconnected WrongStage];

    /// The server accepts the direction that the peer turned round and sends.
    107 ServerAckSend server_ack_send Server MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The server accepts the direction that the peer turned round, sends and turns the direction
    /// round.
    108 ServerAckSendOver server_ack_send_over Server MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The server accepts the direction that the peer turned round, sends, turns the direction
    /// round and receives.
    109 ServerAckSendOverReceive server_ack_send_over_receive Server MultiStage (send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The server accepts the direction that the peer turned round, sends, ends the connection and
    /// waits for the next client and receives.
    110 ServerAckSendWaitReceive server_ack_send_wait_receive Server MultiStage (portset: Object(Type::Portset), send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More Call Fault Exception TooLarge Unreferenced];

    /// The server sends.
    111 ServerSend server_send Server MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The server sends and turns the direction round.
    112 ServerSendOver server_send_over Server MultiStage (send: SendBuffer) [Ok Disconnected WrongStage];

    /// The server sends, turns the direction round and receives.
    113 ServerSendOverReceive server_send_over_receive Server MultiStage (send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The server sends, ends the connection and waits for the next client and receives.
    114 ServerSendWaitReceive server_send_wait_receive Server MultiStage (portset: Object(Type::Portset), send: SendBuffer, receive: ReceiveBuffer) [Ok Disconnected WrongStage More Call Fault Exception TooLarge Unreferenced];

    /// The server turns the direction round.
    115 ServerOver server_over Server Long () [Ok Disconnected WrongStage];

    /// The server turns the direction round and receives.
    116 ServerOverReceive server_over_receive Server MultiStage (receive: ReceiveBuffer) [Ok Disconnected WrongStage More];

    /// The server ends the connection, if there is one.
    117 ServerDisconnect server_disconnect Server Short () [Ok];

    /// The server ends the connection and waits for the next client and receives. Up to 64 bytes
    /// travel in registers.
    118 ServerWaitReceiveShort server_wait_receive_short Server MultiStage (portset: Object(Type::Portset), receive: ShortBuffer) [Ok Disconnected More Call Fault Exception Unreferenced];

    /// The server receives. Up to 64 bytes travel in registers.
    119 ServerReceiveShort server_receive_short Server MultiStage (receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The server accepts the direction that the peer turned round, sends, ends the connection and
    /// waits for the next client and receives. Up to 64 bytes travel in registers.
    120 ServerAckSendWaitReceiveShort server_ack_send_wait_receive_short Server MultiStage (portset: Object(Type::Portset), send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More Call Fault Exception Unreferenced];

    /// The server sends, ends the connection and waits for the next client and receives. Up to 64
    /// bytes travel in registers.
    121 ServerSendWaitReceiveShort server_send_wait_receive_short Server MultiStage (portset: Object(Type::Portset), send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More Call Fault Exception Unreferenced];

    /// The server accepts the direction that the peer turned round, sends, turns the direction
    /// round and receives. Up to 64 bytes travel in registers.
    122 ServerAckSendOverReceiveShort server_ack_send_over_receive_short Server MultiStage (send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The server sends, turns the direction round and receives. Up to 64 bytes travel in
    /// registers.
    123 ServerSendOverReceiveShort server_send_over_receive_short Server MultiStage (send: ShortBuffer, receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// The server turns the direction round and receives. Up to 64 bytes travel in registers.
    124 ServerOverReceiveShort server_over_receive_short Server MultiStage (receive: ShortBuffer) [Ok Disconnected WrongStage More];

    /// Sends an idempotent request and waits for the reply. After a restart the request is sent
    /// again. All of it arrives, its references included, or nothing.
    125 Call call Idempotent Long (port: Object(Type::Reference), send: SendBuffer, receive: ReceiveBuffer) [Ok Dead TooLarge Truncated];

    /// Sends an idempotent request and waits for the reply. After a restart the request is sent
    /// again. All of it arrives, its references included, or nothing. Up to 64 bytes travel in registers, each way.
    126 CallShort call_short Idempotent Long (port: Object(Type::Reference), send: ShortBuffer, receive: ShortBuffer) [Ok Dead TooLarge Truncated];

    /// Replies to an idempotent request, a memory fault (with an empty message) or an exception (with a
    /// `Registers` structure, or a `ShortAnswer` in one segment). A reply that no thread waits for any more
    /// is dropped.
    127 Reply reply Idempotent Short (send: SendBuffer) [Ok WrongStage Invalid TooLarge];

    /// As `reply`, but the reply to an exception is a `ShortAnswer` structure. Up to 64 bytes travel in
    /// registers.
    128 ReplyShort reply_short Idempotent Short (send: ShortBuffer) [Ok WrongStage Invalid];

    /// Answers as `reply` does, then waits for the next client and receives. Restarts as
    /// `server_wait_receive` once the reply is given.
    129 ReplyWaitReceive reply_wait_receive Idempotent MultiStage (portset: Object(Type::Portset), send: SendBuffer, receive: ReceiveBuffer) [Ok WrongStage Invalid More Disconnected Call Fault Exception TooLarge Unreferenced];

    /// As `reply_wait_receive`, but an exception is answered with a `ShortAnswer` structure. Up to 64
    /// bytes travel in registers, each way.
    130 ReplyWaitReceiveShort reply_wait_receive_short Idempotent MultiStage (portset: Object(Type::Portset), send: ShortBuffer, receive: ShortBuffer) [Ok WrongStage Invalid More Disconnected Call Fault Exception Unreferenced];

    /// Gives up the duty to reply to an exception, without a reply. The thread goes on waiting until its
    /// manager replies (`thread_answer`) or sets its state.
    131 ServerRelease server_release Server Short () [Ok WrongStage];

    /// The server ends the connection and waits for the next client and receives. It waits for a
    /// client no longer than the deadline, on the space's clock. Up to 64 bytes travel in registers.
    132 ServerWaitReceiveShortUntil server_wait_receive_short_until Server MultiStage (portset: Object(Type::Portset), receive: ShortBuffer, deadline: Deadline) [Ok TimedOut Disconnected More Call Fault Exception Unreferenced];

    /// Answers as `reply` does, then waits for the next client, no longer than the deadline, on the
    /// space's clock, and receives. Restarts as `server_wait_receive_until` once the reply is given.
    133 ReplyWaitReceiveUntil reply_wait_receive_until Idempotent MultiStage (portset: Object(Type::Portset), send: SendBuffer, receive: ReceiveBuffer, deadline: Deadline) [Ok WrongStage Invalid TimedOut More Disconnected Call Fault Exception TooLarge Unreferenced];

    /// As `reply_wait_receive_until`, but an exception is answered with a `ShortAnswer` structure. Up to
    /// 64 bytes travel in registers, each way.
    134 ReplyWaitReceiveShortUntil reply_wait_receive_short_until Idempotent MultiStage (portset: Object(Type::Portset), send: ShortBuffer, receive: ShortBuffer, deadline: Deadline) [Ok WrongStage Invalid TimedOut More Disconnected Call Fault Exception Unreferenced];

    /// Detaches the line from the thread that is attached to it, and masks the line. `NotFound` if no thread is
    /// attached. A thread interrupt that the line has caused already stays pending.
    135 DeviceDetachInterrupt device_detach_interrupt Device Short (authority: Object(Type::Reference), line: Word) [Ok Denied NotFound Invalid];

    /// Takes a granted range of I/O ports from the space. `NotFound` if the space was not granted exactly this range.
    /// When the call returns, the space's threads cannot use the ports any more.
    136 DeviceRevokePorts device_revoke_ports Device Short (authority: Object(Type::Reference), space: Object(Type::Reference), first: Word, count: Word) [Ok Denied Dead NotFound];

    /// Gives the space a place among those of collocated spaces (`abi::collocated`), until the space ends: its
    /// addresses are those of the place, and its threads run in ring 1, where they can access all of the kernel's
    /// memory and are trusted like the kernel. `InUse`: another space has the place, or the space has a place, a
    /// mapping or a thread already. `Invalid`: there is no such place, the processor cannot keep ring 1 away from the
    /// memory of programs, or there is no memory for the place's page tables.
    137 DeviceCollocate device_collocate Device Short (authority: Object(Type::Reference), space: Object(Type::Reference), place: Word) [Ok Denied Dead InUse Invalid Vacant];

    /// Ends the exception of the thread that a keeper has received, also if the keeper has not replied or has
    /// released it: the thread goes on with these registers (a stopped thread when it is resumed), and with this FPU
    /// state, if one is given. `WrongStage`: no exception of the thread has been received. `Invalid`: no thread can
    /// have these registers.
    138 ThreadAnswer thread_answer Thread Short (thread: Object(Type::Thread), registers: Registers, fpu: OptFpu) [Ok Invalid WrongStage Vacant NoObject];

    /// Makes the account of the space that `payer` names pay for the account of the space: for its quota and, after
    /// the space has ended, for the objects that outlive it. A reference of 0 stands for the caller's own space.
    /// `Denied` unless the payer's account is that of the caller's space, or gets its quota from that, directly or
    /// through others. `NoMemory`: the payer has less left than the quota and the cost of the account itself. The
    /// payer is not part of a space's state.
    139 SpaceSetPayer space_set_payer Space Short (space: Object(Type::Space), payer: OptReference) [Ok Denied Dead NoMemory Vacant NoObject];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the rows agree with the order that [`Common::of`] relies on.
    #[test]
    fn common_calls_are_where_they_are_looked_for() {
        let words = [
            "create",
            "destroy",
            "move",
            "reference",
            "get_state",
            "set_state",
        ];
        for ty in TYPES {
            for (common, word) in Common::ALL.into_iter().zip(words) {
                let call = common.of(ty);
                assert_eq!(call.name().split_once('_'), Some((ty.name(), word)));
                assert_eq!(call.common(), Some((ty, common)));
            }
        }
        assert_eq!(Call::MutexLock.common(), None);
    }
}
