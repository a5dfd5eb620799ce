//! A world to test in: the first space, a manager in it, and simulated threads that run programs.
//!
//! A program is a list of [`Instr`]; the thread's program counter says which comes next, so that a simulated thread
//! consists of registers and memory only, as on the real machine. The *manager* is the first thread, at the highest
//! priority; its program is the test itself, which makes calls with [`World::sys`]. [`World::run`] lets the other
//! threads go on. After every trap the invariants of the kernel are checked.

use crate::check;
use crate::object::thread::{Run, Thread};
use crate::object::Object;
use crate::{FirstMapping, FirstSpace, Kernel, K};
use abi::registers::ARGUMENTS;
use abi::{access, boot, Call, Code, PAGE_SIZE, REGISTER_WORDS, ROLES};
use core::cell::{Cell, RefCell};
use hal::{Context, Kernel as _, Pfn, Trap};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec::Vec;

/// The address at which all RAM is mapped in the first space.
pub(super) const RAM: u64 = 0x1000_0000;
/// The address of programs: program n is at `CODE + n * CODE_STEP`.
pub(super) const CODE: u64 = 0x4000_0000;
/// Room for a program.
pub(super) const CODE_STEP: u64 = 0x1_0000;
/// Priority of the manager.
pub(super) const TOP: u64 = 31;
/// The line that calls the manager.
pub(super) const LINE: u8 = 7;
/// Nanoseconds per step.
const TICK: u64 = 100;

/// The value of a register in a frame, by its role.
pub(super) type R = fn(&Context) -> &Cell<u64>;
/// The word of the call, which is its result when it is complete.
pub(super) const RESULT: R = |c| c.call();
macro_rules! parameters {
    ($($name:ident $n:literal),*) => {
        $(pub(super) const $name: R = |c| c.parameter($n);)*
    };
}
// The parameters of calls, by number: `abi::registers` says what those of IPC calls are.
parameters!(
    A0 0, A1 1, A2 2, A3 3, A4 4, A5 5, A6 6, A7 7, A8 8, A9 9, A10 10, A11 11
);
/// Parameters of ordinary calls.
pub(super) const ARGS: [R; ARGUMENTS] = [A0, A1, A2, A3, A4, A5];

// Words of a thread's state: registers, and the fields behind them.
pub(super) const PC_WORD: usize = ROLES.pc as usize;
pub(super) const FLAGS_WORD: usize = ROLES.flags as usize;
pub(super) const BASE_WORD: usize = ROLES.bases[0] as usize;
pub(super) const TAG_WORD: usize = REGISTER_WORDS;
pub(super) const PRIORITY_WORD: usize = TAG_WORD + 1;
pub(super) const STOPS_WORD: usize = TAG_WORD + 2;
pub(super) const INTERRUPT_WORD: usize = TAG_WORD + 3;
pub(super) const CLIENT_WORD: usize = TAG_WORD + 4;
pub(super) const SERVER_WORD: usize = TAG_WORD + 5;
pub(super) const DELIVERED_WORD: usize = TAG_WORD + 6;

/// The instruction to go on at, if not the next one.
type Branch = dyn Fn(&Context) -> Option<usize>;
/// An address, and the word to store there.
type Word = dyn Fn(&Context) -> (u64, u64);

/// What a simulated thread can do in one step.
pub(super) enum Instr {
    /// Compute on registers.
    Op(Box<dyn Fn(&Context)>),
    /// The instruction that makes a call.
    Syscall,
    /// Store a word at an address.
    Store(Box<Word>),
    /// Load a word.
    Load(Box<dyn Fn(&Context) -> u64>, R),
    /// Go on elsewhere.
    Jump(Box<Branch>),
    /// An instruction that the processor refuses with this vector.
    Bad(u8),
    /// A loop for ever, which counts as a wait.
    Park,
}

/// A program under construction.
#[derive(Default)]
pub(super) struct Program(Vec<Instr>);

impl Program {
    pub(super) fn new() -> Self {
        Program(Vec::new())
    }
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn push(mut self, instr: Instr) -> Self {
        self.0.push(instr);
        self
    }
    pub(super) fn op(self, f: impl Fn(&Context) + 'static) -> Self {
        self.push(Instr::Op(Box::new(f)))
    }
    /// Sets the entrypoint and registers and makes the call.
    pub(super) fn call(self, call: Call, registers: &[(R, u64)]) -> Self {
        self.call_short(call, 0, registers)
    }
    /// As `call`, with the byte count of a register message.
    pub(super) fn call_short(self, call: Call, count: u64, registers: &[(R, u64)]) -> Self {
        let registers = registers.to_vec();
        self.op(move |c| {
            for &(register, value) in &registers {
                register(c).set(value);
            }
            c.call().set(call as u64 | count << 8);
        })
        .push(Instr::Syscall)
    }
    /// A call whose registers are set already, except the entrypoint.
    pub(super) fn again(self, call: Call) -> Self {
        self.op(move |c| c.call().set(call as u64))
            .push(Instr::Syscall)
    }
    pub(super) fn store(self, f: impl Fn(&Context) -> (u64, u64) + 'static) -> Self {
        self.push(Instr::Store(Box::new(f)))
    }
    /// Stores a register.
    pub(super) fn keep(self, address: u64, register: R) -> Self {
        self.store(move |c| (address, register(c).get()))
    }
    pub(super) fn load(self, address: u64, into: R) -> Self {
        self.push(Instr::Load(Box::new(move |_| address), into))
    }
    pub(super) fn jump(self, to: usize) -> Self {
        self.push(Instr::Jump(Box::new(move |_| Some(to))))
    }
    pub(super) fn jump_if(self, f: impl Fn(&Context) -> bool + 'static, to: usize) -> Self {
        self.push(Instr::Jump(Box::new(move |c| f(c).then_some(to))))
    }
    /// The end: waits for ever.
    pub(super) fn end(self) -> Self {
        let here = self.len();
        self.again(Call::ThreadWaitInterrupt).jump(here)
    }
}

/// The result of [`World::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// A step was made; whether the kernel was called.
    Step(bool),
    /// It is the manager's turn.
    Manager,
    /// No thread can go on.
    Idle,
}

/// A kernel on a simulated machine, with the memory and the threads of one test.
pub(super) struct World {
    pub(super) k: K,
    pub(super) manager: &'static Thread,
    programs: RefCell<Vec<Rc<Vec<Instr>>>>,
    frames: u64,
    next_page: Cell<u64>,
    /// The thread that runs, or ran last.
    pub(super) current: Cell<&'static Thread>,
    next_object: Cell<u64>,
    /// Traps since the beginning.
    pub(super) traps: Cell<u64>,
    /// The most accesses to memory and page tables of a trap so far, by call (255: of other traps).
    pub(super) longest: [Cell<u64>; 256],
    /// The most accesses that a trap may make, by call.
    pub(super) bound: Cell<fn(Option<Call>) -> u64>,
    /// Check the invariants after every trap.
    pub(super) checked: Cell<bool>,
    /// The results that calls have returned at once, and how often.
    pub(super) returned: RefCell<BTreeMap<(u8, u8), u64>>,
}

impl World {
    pub(super) fn with_frames(frames: u32) -> World {
        hal::host::reset(frames);
        let k = Kernel::new().expect("a kernel");
        hal::host::set_kernel(k);
        let first = u64::from(hal::host::FIRST_FRAME) * PAGE_SIZE;
        let mappings = [
            FirstMapping {
                start: boot::BOOT_PAGE,
                size: PAGE_SIZE,
                physical: first,
                rights: access::ALL,
            },
            FirstMapping {
                start: RAM,
                size: u64::from(frames) * PAGE_SIZE,
                physical: first,
                rights: access::ALL,
            },
        ];
        let manager = k.first_space(&FirstSpace {
            mappings: &mappings,
            entry: CODE,
            stack: 0,
        });
        let manager = manager.expect("a first space");
        let world = World {
            k,
            manager,
            current: Cell::new(manager),
            programs: RefCell::new(Vec::new()),
            frames: u64::from(frames),
            // The boot page is the first one.
            next_page: Cell::new(1),
            next_object: Cell::new(0),
            traps: Cell::new(0),
            longest: [const { Cell::new(0) }; 256],
            bound: Cell::new(|_| u64::MAX),
            checked: Cell::new(true),
            returned: RefCell::new(BTreeMap::new()),
        };
        world.ok(Call::ThreadSetPriority, &[boot::ROOT_THREAD, TOP]);
        let me = world.object();
        world.ok(Call::ReferenceCreate, &[me, 0]);
        world.ok(Call::ThreadReference, &[boot::ROOT_THREAD, me]);
        world.ok(
            Call::DeviceAttachInterrupt,
            &[boot::AUTHORITY, me, u64::from(LINE)],
        );
        world
    }

    // ---- memory ----------------------------------------------------------------------------------

    /// A fresh page, as an address in the first space.
    pub(super) fn page(&self) -> u64 {
        self.pages(1)
    }

    pub(super) fn pages(&self, n: u64) -> u64 {
        let page = self.next_page.replace(self.next_page.get() + n);
        assert!(page + n <= self.frames, "out of RAM");
        RAM + page * PAGE_SIZE
    }

    /// A place for an object in the first space.
    pub(super) fn object(&self) -> u64 {
        if self.next_object.get().is_multiple_of(PAGE_SIZE) {
            self.next_object.set(self.page());
        }
        self.next_object
            .replace(self.next_object.get() + abi::OBJECT_SIZE)
    }

    /// The physical address behind an address that [`World::page`] gave.
    pub(super) fn physical(&self, address: u64) -> u64 {
        address - RAM + u64::from(hal::host::FIRST_FRAME) * PAGE_SIZE
    }

    fn frame(&self, address: u64) -> Pfn {
        Pfn((self.physical(address) / PAGE_SIZE) as u32)
    }

    pub(super) fn poke(&self, address: u64, word: u64) {
        hal::write_word(self.frame(address), address % PAGE_SIZE, word);
    }

    pub(super) fn peek(&self, address: u64) -> u64 {
        hal::read_word(self.frame(address), address % PAGE_SIZE)
    }

    pub(super) fn write(&self, mut address: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = bytes.len().min((PAGE_SIZE - address % PAGE_SIZE) as usize);
            hal::write_bytes(self.frame(address), address % PAGE_SIZE, &bytes[..n]);
            address += n as u64;
            bytes = &bytes[n..];
        }
    }

    pub(super) fn read(&self, mut address: u64, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let n = (length - all.len()).min((PAGE_SIZE - address % PAGE_SIZE) as usize);
            let mut bytes = std::vec![0; n];
            hal::read_bytes(self.frame(address), address % PAGE_SIZE, &mut bytes);
            all.extend(bytes);
            address += n as u64;
        }
        all
    }

    pub(super) fn words(&self, address: u64, words: &[u64]) {
        for (i, &word) in words.iter().enumerate() {
            self.poke(address + i as u64 * 8, word);
        }
    }

    // ---- the manager -----------------------------------------------------------------------------

    /// Makes a call of the manager. Other threads run while it waits.
    pub(super) fn sys(&self, call: Call, args: &[u64]) -> Code {
        self.begin(call, args);
        let mut steps = 0;
        while self.step() != Met::Manager {
            steps += 1;
            assert!(
                steps < 100_000,
                "the manager waits for ever in {}",
                call.name()
            );
        }
        self.result(call)
    }

    /// Begins a call of the manager, which may wait.
    pub(super) fn begin(&self, call: Call, args: &[u64]) {
        assert!(self.managing(), "it is not the manager's turn");
        for (register, &arg) in ARGS.iter().zip(args) {
            register(&self.manager.ctx).set(arg);
        }
        self.manager.ctx.call().set(call as u64);
        self.manager.ctx.pc().set(CODE);
        self.manager.ctx.set_full(false);
        self.trap(Trap::Syscall);
    }

    /// The result of a call of the manager, which must be one that the table of calls lists.
    pub(super) fn result(&self, call: Call) -> Code {
        assert_eq!(
            self.manager.ctx.pc().get(),
            CODE + ROLES.call_bytes,
            "{} has no result",
            call.name()
        );
        let code = Code::from_word(self.manager.ctx.call().get());
        assert!(
            call.row().codes.contains(&code),
            "{} returns {code:?}",
            call.name()
        );
        code
    }

    /// As [`World::sys`]; the result must be `Ok`.
    pub(super) fn ok(&self, call: Call, args: &[u64]) {
        assert_eq!(self.sys(call, args), Code::Ok, "{} {args:x?}", call.name());
    }

    pub(super) fn managing(&self) -> bool {
        core::ptr::eq(self.current.get(), self.manager) && self.manager.run.get() == Run::Running
    }

    /// Interrupts the manager, so that it is the manager's turn again after [`World::release`].
    pub(super) fn call_manager(&self) {
        if !self.managing() {
            self.trap(Trap::Irq(LINE));
            assert!(self.managing(), "the manager does not come");
        }
    }

    /// Makes the manager wait until it is interrupted.
    pub(super) fn release(&self) {
        if self.managing() {
            self.begin(Call::ThreadWaitInterrupt, &[]);
        }
    }

    /// Lets the other threads run until no thread can go on; then it is the manager's turn again.
    pub(super) fn run(&self) {
        self.release();
        let mut steps = 0;
        while self.step() != Met::Idle {
            steps += 1;
            assert!(steps < 1_000_000, "it never ends");
        }
        self.call_manager();
    }

    // ---- everybody -------------------------------------------------------------------------------

    /// A trap of the running thread.
    pub(super) fn trap(&self, trap: Trap) {
        let t = self.current.get();
        self.traps.set(self.traps.get() + 1);
        let (number, pc) = (t.ctx.call().get() as u8, t.ctx.pc().get());
        let work = || hal::host::accesses() + hal::host::links();
        let before = work();
        let next = hal::host::run(|| match trap {
            Trap::Syscall => self.k.syscall(t),
            _ => self.k.trap(t, trap),
        });
        let cost = work() - before;
        let call = Call::from_number(number).filter(|_| trap == Trap::Syscall);
        let longest = &self.longest[call.map_or(255, |call| call as usize)];
        longest.set(cost.max(longest.get()));
        assert!(
            cost <= self.bound.get()(call),
            "A9: {trap:?} of {call:?} took {cost} accesses"
        );
        if let Ok(next) = next {
            assert_eq!(next.run.get(), Run::Running);
            self.current.set(next);
            hal::host::enter_user(self.k, next);
        }
        if trap == Trap::Syscall && t.ctx.pc().get() == pc.wrapping_add(ROLES.call_bytes) {
            let result = (number, t.ctx.call().get() as u8);
            *self.returned.borrow_mut().entry(result).or_insert(0) += 1;
        }
        if self.checked.get() {
            check::invariants(self.k);
        }
    }

    /// The next step of the running thread.
    pub(super) fn step(&self) -> Met {
        let t = self.current.get();
        if t.run.get() != Run::Running {
            return Met::Idle;
        }
        hal::host::set_now(hal::now().saturating_add(TICK));
        if let Some(trap) = hal::host::take_interrupt() {
            self.trap(trap);
            return Met::Step(true);
        }
        if core::ptr::eq(t, self.manager) {
            return Met::Manager;
        }
        let c = &t.ctx;
        let at = c.pc().get().wrapping_sub(CODE);
        let program = self
            .programs
            .borrow()
            .get((at / CODE_STEP) as usize)
            .cloned();
        let instr = program
            .as_ref()
            .and_then(|p| p.get((at % CODE_STEP / ROLES.call_bytes) as usize));
        let Some(instr) = instr else {
            self.fault(t, c.pc().get(), false, true);
            return Met::Step(true);
        };
        match instr {
            Instr::Op(f) => f(c),
            Instr::Syscall => {
                c.set_full(false);
                self.trap(Trap::Syscall);
                return Met::Step(true);
            }
            Instr::Store(f) => {
                let (address, value) = f(c);
                let Some(pfn) = self.translate(t, address, access::WRITE) else {
                    self.fault(t, address, true, false);
                    return Met::Step(true);
                };
                hal::write_word(pfn, address % PAGE_SIZE, value);
            }
            Instr::Load(f, register) => {
                let address = f(c);
                let Some(pfn) = self.translate(t, address, access::READ) else {
                    self.fault(t, address, false, false);
                    return Met::Step(true);
                };
                register(c).set(hal::read_word(pfn, address % PAGE_SIZE));
            }
            Instr::Jump(f) => {
                if let Some(to) = f(c) {
                    let program = c.pc().get() / CODE_STEP * CODE_STEP;
                    c.pc().set(program + to as u64 * ROLES.call_bytes);
                    return Met::Step(false);
                }
            }
            Instr::Park => {
                // A thread of the least priority runs when no other can.
                t.ctx.set_full(true);
                if t.priority.get() > 0 {
                    lower(self.k, t);
                    self.trap(Trap::Timer);
                    return Met::Step(true);
                }
                return Met::Idle;
            }
            Instr::Bad(vector) => {
                c.set_full(true);
                self.trap(Trap::Exception {
                    vector: *vector,
                    error: 0,
                });
                return Met::Step(true);
            }
        }
        // Every instruction is as long as the call instruction.
        c.pc().set(c.behind_call());
        Met::Step(false)
    }

    fn translate(&self, t: &'static Thread, address: u64, need: u64) -> Option<Pfn> {
        let (pfn, rights) = t.space()?.table.lookup(address)?;
        (rights & need == need && hal::user_frame(pfn)).then_some(pfn)
    }

    fn fault(&self, t: &'static Thread, address: u64, write: bool, execute: bool) {
        t.ctx.set_full(true);
        self.trap(Trap::PageFault {
            address,
            write,
            execute,
            present: false,
        });
    }

    // ---- building --------------------------------------------------------------------------------

    /// Loads a program. Returns its number.
    pub(super) fn load(&self, program: Program) -> u64 {
        let mut programs = self.programs.borrow_mut();
        // Number 0 is the manager's.
        if programs.is_empty() {
            programs.push(Rc::new(Vec::new()));
        }
        programs.push(Rc::new(program.0));
        programs.len() as u64 - 1
    }

    /// An object of a type, made by the manager; its state is not set.
    pub(super) fn create(&self, create: Call) -> u64 {
        let at = self.object();
        self.ok(create, &[at, 0]);
        at
    }

    /// A reference to an object of the manager.
    pub(super) fn reference(&self, point: Call, object: u64) -> u64 {
        let at = self.create(Call::ReferenceCreate);
        self.ok(point, &[object, at]);
        at
    }

    /// A port at a portset: (port, reference to the port).
    pub(super) fn port(&self, portset: u64, alias: u64) -> (u64, u64) {
        let port = self.create(Call::PortCreate);
        let set = self.reference(Call::PortsetReference, portset);
        let state = self.page();
        self.poke(state, alias);
        self.ok(Call::PortSetState, &[port, state, set]);
        (port, self.reference(Call::PortReference, port))
    }

    /// The kernel memory that a space has in use.
    pub(super) fn used(&self, space: u64) -> u64 {
        let state = self.page();
        self.ok(Call::SpaceGetState, &[space, state, 0]);
        self.peek(state + 16)
    }

    /// A space with a quota: (space, reference).
    pub(super) fn space(&self, quota: u64, flags: u64, keeper: u64) -> (u64, u64) {
        let space = self.create(Call::SpaceCreate);
        let state = self.page();
        self.words(state, &[flags, quota, 0, 0, TOP]);
        self.ok(Call::SpaceSetState, &[space, state, keeper]);
        (space, self.reference(Call::SpaceReference, space))
    }

    /// A mapping of a region into a space (0: the first one).
    pub(super) fn map(&self, space: u64, start: u64, size: u64, region: u64, offset: u64) -> u64 {
        let mapping = self.create(Call::MappingCreate);
        let state = self.page();
        self.words(state, &[start, size, offset, access::ALL]);
        self.ok(Call::MappingSetState, &[mapping, state, region, space]);
        mapping
    }

    /// A region of a range of a space (0: the first one): (region, reference).
    pub(super) fn region(&self, space: u64, start: u64, size: u64, keeper: u64) -> (u64, u64) {
        let region = self.create(Call::RegionCreate);
        let state = self.page();
        self.words(state, &[start, size, access::ALL]);
        self.ok(Call::RegionSetState, &[region, state, space, keeper]);
        (region, self.reference(Call::RegionReference, region))
    }

    /// A thread in a space (0: the first one) that runs a program; resumed.
    pub(super) fn thread(&self, space: u64, program: Program, priority: u64) -> u64 {
        let number = self.load(program);
        let thread = self.create(Call::ThreadCreate);
        let state = self.page();
        let mut words = [0; abi::state::THREAD_WORDS];
        words[PC_WORD] = CODE + number * CODE_STEP;
        words[TAG_WORD] = number;
        words[PRIORITY_WORD] = priority;
        words[STOPS_WORD] = 1;
        self.words(state, &words);
        let fpu = state + abi::state::THREAD_WORDS as u64 * 8;
        self.write(fpu, &abi::state::initial_fpu());
        self.ok(Call::ThreadSetState, &[thread, state, space, 0, 0]);
        self.ok(Call::ThreadResume, &[thread]);
        thread
    }

    /// The thread object at a handle in the first space.
    pub(super) fn thread_at(&self, handle: u64) -> &'static Thread {
        let pfn = self.frame(handle);
        let mut found = None;
        crate::object::objects_in(self.k, pfn, |offset, id| {
            if offset == handle % PAGE_SIZE {
                found = self.k.threads.iter().find(|t| t.head().id() == id);
            }
            found.is_none()
        });
        found.expect("a thread at the handle")
    }
}

/// Gives the running thread the lowest priority and ends its turn, so that all other threads run first.
fn lower(k: K, t: &'static Thread) {
    t.priority.set(0);
    k.cpu().sched.yield_turn();
}
