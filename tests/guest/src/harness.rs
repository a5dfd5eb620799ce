//! The vocabulary of the guest's tests: assertions that name their line, threads that make one call ([`Actor`]),
//! receivers, and memory that is absent until the test supplies it.

use abi::registers::{Area, DEADLINE};
use abi::state::{Registers, Stage, ThreadState, Waiting};
use abi::{Call, Code};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::fmt::{self, Display, Formatter};
use core::panic::Location;
use linkme::distributed_slice;
use rt::obj::{Mapping, Port, Portset, Ref, RefAt, RefBlock, Region, Space, Thread, ThreadAt};
use rt::sys::{self, IpcRegs};

/// Why a test failed, and the place of the failed assertion.
#[derive(Clone, Debug)]
pub struct Failure {
    at: &'static Location<'static>,
    why: String,
}

impl Failure {
    /// A failure at the line that calls this.
    #[track_caller]
    pub fn new(why: impl Into<String>) -> Self {
        Failure {
            at: Location::caller(),
            why: why.into(),
        }
    }

    /// The same failure, with the activity at the time in front of its reason.
    #[must_use]
    pub fn during(self, what: impl Display) -> Self {
        Failure {
            why: format!("{what}: {}", self.why),
            ..self
        }
    }
}

/// `FILE:LINE: REASON`.
impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.file(), self.at.line(), self.why)
    }
}

/// For `ok_or("...")?`: the failure is at the line of the `?`.
impl From<&str> for Failure {
    #[track_caller]
    fn from(why: &str) -> Self {
        Failure::new(why)
    }
}

impl From<String> for Failure {
    #[track_caller]
    fn from(why: String) -> Self {
        Failure::new(why)
    }
}

/// The result of a test.
pub type Outcome = Result<(), Failure>;

/// A test; [`guest_test!`](crate::guest_test) makes them.
pub struct Test {
    /// A stable name: subject, number, words.
    pub name: &'static str,
    /// What it does.
    pub run: fn() -> Outcome,
}

/// All tests of the program. [`guest_test!`](crate::guest_test) puts them into a section of the
/// program's file, which the linker collects: there is no list to keep.
#[distributed_slice]
pub static TESTS: [Test];

/// Whether a filter matches the test of this name: the name contains one of its comma-separated words, or the filter
/// is empty.
#[must_use]
pub fn is_wanted(name: &str, filter: &str) -> bool {
    filter.split(',').any(|word| name.contains(word))
}

/// Makes a test of a function: `guest_test!(MUTEXES0001, lock_trylock_unlock);` above
/// `fn lock_trylock_unlock() -> Outcome` is the test `MUTEXES0001_lock_trylock_unlock`.
#[macro_export]
macro_rules! guest_test {
    ($id:ident, $name:ident) => {
        $crate::guest_test!(concat!(stringify!($id), "_", stringify!($name)), $name);
    };
    ($name:expr, $run:expr) => {
        const _: () = {
            #[linkme::distributed_slice($crate::harness::TESTS)]
            static TEST: $crate::harness::Test = $crate::harness::Test {
                name: $name,
                run: $run,
            };
        };
    };
}

/// Fails the test at this line, for a reason in the words of `format!`.
#[macro_export]
macro_rules! fail {
    ($($words:tt)+) => {
        return Err($crate::harness::Failure::new(alloc::format!($($words)+)))
    };
}

/// Fails the test at this line unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr) => {
        $crate::check!($condition, "{} is false", stringify!($condition))
    };
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            $crate::fail!($($words)+);
        }
    };
}

/// Fails the test at this line unless both are equal.
#[macro_export]
macro_rules! check_eq {
    ($is:expr, $wanted:expr) => {
        match (&$is, &$wanted) {
            (is, wanted) => {
                if is != wanted {
                    $crate::fail!("{} is {is:?} and not {wanted:?}", stringify!($is));
                }
            }
        }
    };
    ($is:expr, $wanted:expr, $($words:tt)+) => {
        match (&$is, &$wanted) {
            (is, wanted) => {
                if is != wanted {
                    $crate::fail!(
                        "{}: {is:?} and not {wanted:?}",
                        alloc::format!($($words)+)
                    );
                }
            }
        }
    };
}

/// Turns an error into a failure.
pub trait Must<T> {
    /// The value, or a failure at the line that calls this, which says that `what` could not be done.
    fn must(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: core::fmt::Debug> Must<T> for Result<T, E> {
    #[track_caller]
    fn must(self, what: &str) -> Result<T, Failure> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => fail!("{what}: {error:?}"),
        }
    }
}

/// `Ok` for [`Code::Ok`].
pub fn ok(code: Code) -> Result<(), Code> {
    rt::obj::done(code)
}

/// How long a test waits for something before it fails, in nanoseconds of the guest.
pub const PATIENCE: u64 = 60_000_000_000;

/// Waits until `condition` holds, in short sleeps that let other threads run.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Outcome {
    let end = rt::time::now() + PATIENCE;
    while !condition() {
        if rt::time::now() > end {
            fail!("{what} never happened");
        }
        rt::time::sleep(50_000);
    }
    Ok(())
}

/// A generator of numbers from a seed, which is its whole state.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.0);
        let number = random.u64(..);
        self.0 = random.get_seed();
        number
    }

    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }
}

global_asm!(
    // An actor begins here, with the registers of its call and its stack pointer at the end of a
    // `Frame`: it makes the call, writes all registers into the frame, and parks.
    ".globl fermata_test_call",
    "fermata_test_call:",
    "syscall",
    ".globl fermata_test_returned",
    "fermata_test_returned:",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbp",
    "push rbx",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "fermata_test_park:",
    "mov eax, {wait}",
    ".globl fermata_test_parked",
    "fermata_test_parked:",
    "syscall",
    "jmp fermata_test_park",
    wait = const Call::ThreadWaitInterrupt as u32,
);

extern "C" {
    fn fermata_test_call();
    fn fermata_test_returned();
    fn fermata_test_parked();
}

/// Address of the `syscall` instruction of an actor that makes a call.
#[must_use]
pub fn call_site() -> u64 {
    fermata_test_call as *const () as u64
}

/// Bytes of an actor's stack.
const STACK: usize = 64 * 1024;

/// Priority of actors: below that of the test, so that the test gets the processor whenever it wakes.
pub const ACTOR_PRIORITY: u64 = 4;

/// A thread that does one thing at a time for a test.
pub struct Actor {
    /// The thread.
    pub thread: Thread,
    stack: Vec<u8>,
}

impl Actor {
    /// An actor in the test's own space.
    pub fn new() -> Result<Self, Failure> {
        Self::made(0)
    }

    /// An actor in another space, in which the test's memory has the same addresses.
    pub fn within(space: &RefAt) -> Result<Self, Failure> {
        Self::made(space.handle())
    }

    fn made(space: u64) -> Result<Self, Failure> {
        let actor = Actor {
            thread: Thread::new().must("a thread")?,
            stack: vec![0; STACK],
        };
        let parked = fermata_test_parked as *const () as u64;
        let mut registers = Registers::starting(parked, actor.top(), 0);
        registers.set_call(Call::ThreadWaitInterrupt as u64);
        let state = ThreadState {
            registers,
            priority: ACTOR_PRIORITY,
            ..ThreadState::default()
        };
        actor
            .thread
            .set_state(&state, space, 0, 0)
            .must("the state of an actor")?;
        actor.thread.resume().must("resume")?;
        Ok(actor)
    }

    fn top(&self) -> u64 {
        (self.stack.as_ptr() as u64 + STACK as u64) & !15
    }

    /// Its state, without references to the peers of its connections.
    pub fn state(&self) -> ThreadState {
        self.thread.get_state(0, 0, 0).unwrap_or_default()
    }

    /// Starts a call with these registers.
    pub fn call(&self, call: Call, regs: IpcRegs) -> Outcome {
        let mut registers = Registers::starting(call_site(), self.top(), regs.value());
        registers.set_call((regs.rax & !0xff) | call as u64);
        registers.set_send(&regs.unsent());
        registers.set_receive(&regs.left());
        registers.set_parameter(DEADLINE, regs.rbp);
        self.start(&registers)
    }

    /// Starts an ordinary call.
    pub fn ordinary(&self, call: Call, p: [u64; 6]) -> Outcome {
        let mut registers = Registers::starting(call_site(), self.top(), 0);
        registers.set_call(call as u64);
        for (n, value) in p.into_iter().enumerate() {
            registers.set_parameter(n, value);
        }
        self.start(&registers)
    }

    /// Starts a function.
    pub fn function(&self, f: extern "C" fn(u64), argument: u64) -> Outcome {
        let sp = self.top() - 8;
        // SAFETY: the last word of the actor's own stack, which it does not use while it parks.
        unsafe { (sp as *mut u64).write_volatile(fermata_test_returned as *const () as u64) };
        self.start(&Registers::starting(f as *const () as u64, sp, argument))
    }

    /// Starts with these registers, keeping space and connections.
    pub fn start(&self, registers: &Registers) -> Outcome {
        let (space, client, server) = refs3()?;
        self.thread.stop().must("stop")?;
        let mut state = self
            .thread
            .get_state(space.handle(), client.handle(), server.handle())
            .must("get_state")?;
        state.registers = *registers;
        self.thread
            .set_state(&state, space.handle(), client.handle(), server.handle())
            .must("set_state")?;
        self.thread.resume().must("resume")
    }

    /// Whether the actor has finished its call or function.
    pub fn is_finished(&self) -> bool {
        let state = self.state();
        state.registers.pc() == fermata_test_parked as *const () as u64
            && state.waiting == Waiting::Interrupt as u64
    }

    /// Waits until the actor has finished. Returns the registers that the call left.
    #[track_caller]
    pub fn finish(&self) -> Result<IpcRegs, Failure> {
        let end = rt::time::now() + PATIENCE;
        while !self.is_finished() {
            if rt::time::now() > end {
                let s = self.state();
                fail!(
                    "an actor did not finish: at {:#x} call {:#x} of {:#x} waiting {} stops {} \
                     exception {} at {:#x}",
                    s.registers.pc(),
                    s.registers.call(),
                    s.registers.parameter(0),
                    s.waiting,
                    s.stop_count,
                    s.exception,
                    s.exception_address,
                );
            }
            rt::time::sleep(20_000);
        }
        // SAFETY: thirteen words that the actor pushed before it parked.
        Ok(unsafe { ((self.top() - 13 * 8) as *const IpcRegs).read_volatile() })
    }

    /// Waits until the actor has finished. Returns the result code.
    #[track_caller]
    pub fn finish_code(&self) -> Result<Code, Failure> {
        let regs = self.finish()?;
        Ok(regs.code())
    }

    /// Waits until the actor waits for `why` within its call.
    #[track_caller]
    pub fn settle(&self, why: Waiting) -> Outcome {
        eventually(&format!("waiting for {why:?}"), || {
            self.state().waiting == why as u64
        })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.thread.stop();
    }
}

/// Three references that name nothing.
pub fn refs3() -> Result<(Ref, Ref, Ref), Failure> {
    let new = || Ref::new().must("a reference");
    Ok((new()?, new()?, new()?))
}

/// Takes a thread apart and makes it anew from its state (rule A6), which it must not notice. With `keep` its
/// identity is kept meanwhile, which its peers and referents can see.
pub fn cut(thread: ThreadAt, keep: bool) -> Result<ThreadState, Failure> {
    let (space, client, server) = refs3()?;
    let identity = Ref::new().must("a reference")?;
    thread.stop().must("stop")?;
    let state = thread
        .get_state(space.handle(), client.handle(), server.handle())
        .must("get_state")?;
    let kept = if keep { identity.handle() } else { 0 };
    ok(sys::thread_destroy(thread.handle(), kept)).must("destroy")?;
    ok(sys::thread_create(thread.handle(), kept)).must("create")?;
    thread
        .set_state(&state, space.handle(), client.handle(), server.handle())
        .map_err(|code| {
            Failure::new(format!(
                "set_state: {code:?} (at {:#x} call {:#x} stages {} {} delivered {})",
                state.registers.pc(),
                state.registers.call(),
                state.client_stage,
                state.server_stage,
                state.exception_delivered
            ))
        })?;
    thread.resume().must("resume")?;
    Ok(state)
}

/// A port in a portset of its own, with room to receive.
pub struct Receiver {
    /// The portset.
    pub portset: Portset,
    /// The port in it.
    pub port: Port,
    /// References to the two.
    pub portset_ref: Ref,
    /// Reference to the port.
    pub port_ref: Ref,
    /// Receives the bytes of messages.
    pub buffer: Vec<u8>,
    /// Receives the references of messages.
    pub refs: RefBlock,
}

/// The result of a receive of a [`Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// The result code.
    pub code: Code,
    /// Bytes in the buffer.
    pub length: usize,
    /// The alias of the port.
    pub alias: u64,
    /// How many references were received.
    pub refs: usize,
}

impl Receiver {
    /// A port with this alias.
    pub fn new(alias: u64) -> Result<Self, Failure> {
        let portset = Portset::new().must("a portset")?;
        let portset_ref = portset.reference().must("reference")?;
        let state = abi::state::PortState {
            alias,
            ..abi::state::PortState::default()
        };
        let port = Port::in_portset(&state, *portset_ref).must("a port")?;
        let port_ref = port.reference().must("reference")?;
        let refs = RefBlock::new(4).must("references")?;
        Ok(Receiver {
            portset,
            port,
            portset_ref,
            port_ref,
            buffer: vec![0; 8192],
            refs,
        })
    }

    /// Registers of a receive into the buffer.
    pub fn receive_regs(&mut self) -> IpcRegs {
        self.receive_regs_of(self.buffer.len())
    }

    /// Registers of a receive into the first bytes of the buffer.
    pub fn receive_regs_of(&mut self, length: usize) -> IpcRegs {
        IpcRegs::to(self.portset.handle()).receiving(Area {
            refs: self.refs.list(4),
            ..Area::new(self.buffer[..length].as_mut_ptr() as u64, length as u64)
        })
    }

    /// Ends the connection, waits for a client at most `patience` nanoseconds, and receives.
    pub fn receive(&mut self, patience: u64) -> Got {
        let regs = self.receive_regs().until(rt::time::now() + patience);
        self.run(Call::ServerWaitReceiveUntil, regs)
    }

    /// Makes a call that receives.
    pub fn run(&mut self, call: Call, mut regs: IpcRegs) -> Got {
        let wanted = regs.left().length;
        // SAFETY: the registers name the buffer and references of this receiver; a message that a caller sends is
        // only read.
        let code = unsafe { sys::ipc(call, &mut regs) };
        Got {
            code,
            length: (wanted - regs.left().length) as usize,
            alias: regs.value(),
            refs: 4 - (regs.left().refs & abi::MAX_LIST_REFS) as usize,
        }
    }

    /// A word of the message.
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        let bytes = self.buffer.get(index * 8..index * 8 + 8);
        bytes
            .and_then(|b| b.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    }
}

/// Answers an idempotent request, fault or exception with `bytes`.
pub fn reply(bytes: &[u8]) -> Code {
    let mut regs = IpcRegs::default().sending_bytes(bytes);
    // SAFETY: the bytes are only read.
    unsafe { sys::ipc(Call::Reply, &mut regs) }
}

/// Answers an exception with registers.
pub fn reply_registers(registers: &Registers) -> Code {
    let words = registers.to_words();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    reply(&bytes)
}

/// A space in which the test's memory appears at the same addresses.
pub struct Twin {
    /// The space.
    pub space: Space,
    /// A reference to it.
    pub space_ref: Ref,
    _mapping: Mapping,
    _region: Region,
}

impl Twin {
    /// A twin with these flags and this keeper (a reference or 0).
    pub fn new(flags: u64, keeper: u64) -> Result<Self, Failure> {
        use proto::layout::{HEAP_END, STACK_TOP, START_PAGE};
        let (start, size) = (START_PAGE, STACK_TOP.max(HEAP_END) - START_PAGE);
        let space = Space::new().must("a space")?;
        let space_ref = space.reference().must("reference")?;
        let state = abi::state::SpaceState {
            flags,
            ..space.get_state(0).must("the state of a space")?
        };
        space
            .set_state(&state, keeper)
            .must("the state of a space")?;
        let region = Region::new().must("a region")?;
        let state = abi::state::RegionState {
            start,
            size,
            protection: abi::access::ALL,
        };
        region
            .set_state(&state, 0, 0)
            .must("the state of a region")?;
        let region_ref = region.reference().must("reference")?;
        let mapping = Mapping::new().must("a mapping")?;
        let state = abi::state::MappingState {
            start,
            size,
            offset: 0,
            protection: abi::access::ALL,
        };
        mapping
            .set_state(&state, region_ref.handle(), space_ref.handle())
            .must("the state of a mapping")?;
        Ok(Twin {
            space,
            space_ref,
            _mapping: mapping,
            _region: region,
        })
    }
}

/// A range of the test's own addresses where nothing is mapped, exported by a region with a keeper, and the memory
/// that the test can supply there.
pub struct Absent {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// A reference to the region that exports the range.
    pub region_ref: Ref,
    _region: Region,
    segment: rt::memory::Segment,
    pages: Vec<Mapping>,
}

impl Absent {
    /// `size` bytes that are absent; the port in `keeper` receives the faults.
    pub fn new(size: u64, keeper: u64) -> Result<Self, Failure> {
        let base = rt::window::take_addresses(size, abi::PAGE_SIZE).ok_or("no addresses")?;
        let region = Region::new().must("a region")?;
        let state = abi::state::RegionState {
            start: base,
            size,
            protection: abi::access::ALL,
        };
        region
            .set_state(&state, 0, keeper)
            .must("the state of a region")?;
        let region_ref = region.reference().must("reference")?;
        let segment = rt::memory::create(size).must("a segment")?;
        Ok(Absent {
            base,
            size,
            region_ref,
            _region: region,
            segment,
            pages: Vec::new(),
        })
    }

    /// Puts a page of memory at this offset.
    pub fn supply(&mut self, offset: u64) -> Outcome {
        let offset = offset & !(abi::PAGE_SIZE - 1);
        let mapping = Mapping::new().must("a mapping")?;
        let state = abi::state::MappingState {
            start: self.base + offset,
            size: abi::PAGE_SIZE,
            offset,
            protection: abi::access::ALL,
        };
        mapping
            .set_state(&state, self.segment.region.handle(), 0)
            .must("supply a page")?;
        self.pages.push(mapping);
        Ok(())
    }

    /// Takes all pages away again.
    pub fn withdraw(&mut self) {
        self.pages.clear();
    }

    /// Maps the range of absent pages at `address` of the test's space.
    pub fn map_at(&self, address: u64, offset: u64, size: u64) -> Result<Mapping, Failure> {
        let mapping = Mapping::new().must("a mapping")?;
        let state = abi::state::MappingState {
            start: address,
            size,
            offset,
            protection: abi::access::ALL,
        };
        mapping
            .set_state(&state, self.region_ref.handle(), 0)
            .must("map absent pages")?;
        Ok(mapping)
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        self.withdraw();
        let _ = rt::memory::destroy(&self.segment.control);
        rt::window::give_addresses(self.base, self.size);
    }
}

/// The stage of an end, as a number in a state.
#[must_use]
pub const fn stage(stage: Stage) -> u64 {
    stage as u64
}
