//! What the plays are played on: two victims with spaces of their own, a segment of memory that a
//! keeper supplies page by page, and objects that live in it.
//!
//! Every page of the segment has a purpose ([`Page`]), once for the client and once for the server. The
//! manager sees the whole segment all the time in a window; the victims see it through a region with a
//! keeper, so that any page can be absent for them.

use super::probe::tag;
use crate::harness::{common, Failure, Must, CREATE, DESTROY, REFERENCE};
use abi::message::EXCEPTION_WORDS;
use abi::probe::ROLES;
use abi::state::{
    space_flags, MappingState, RegionState, Registers, SpaceState, Stage as End, ThreadState,
    REGISTER_WORDS,
};
use abi::{Call, Code, Type, OBJECT_SIZE, PAGE_SIZE, PRIORITIES, TYPES};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rt::obj::{Mapping, Port, Portset, Ref, RefAt, Region, Space, Thread};
use rt::sys::{self, IpcRegs};
use rt::window::Window;

/// The state of a victim's space, unless a play asks for another.
const SPACE: SpaceState = SpaceState {
    flags: 0,
    quota: 64 << 10,
    used: 0,
    clock_offset: 0,
    max_priority: PRIORITIES as u64 - 1,
};

/// What a page of one side is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Page {
    /// Objects that calls are made on.
    Handles = 0,
    /// A state.
    State = 1,
    /// The message to send, two pages.
    Send = 2,
    SendMore = 3,
    /// Further segments to send.
    SendList = 4,
    /// Receives messages, two pages.
    Receive = 5,
    ReceiveMore = 6,
    /// Further segments to receive into.
    ReceiveList = 7,
    /// References to send and to receive.
    References = 8,
    /// Free slots in which calls create objects.
    Fresh = 9,
}

/// All of them.
pub const PAGES: [Page; 10] = [
    Page::Handles,
    Page::State,
    Page::Send,
    Page::SendMore,
    Page::SendList,
    Page::Receive,
    Page::ReceiveMore,
    Page::ReceiveList,
    Page::References,
    Page::Fresh,
];

impl Page {
    /// Its number, on this side.
    #[must_use]
    pub const fn on(self, side: usize) -> u64 {
        self as u64 + side as u64 * SIDE
    }

    /// The set of pages that has only this one.
    #[must_use]
    pub const fn bit(self, side: usize) -> u32 {
        1 << self.on(side)
    }
}

/// Pages per side, and in all.
const SIDE: u64 = 10;
pub const ALL_PAGES: u64 = 2 * SIDE;
/// Where the victims see the segment.
const VIEW: u64 = 0x2000_0000_0000;
/// Where a mapping that a play creates begins.
const ELSEWHERE: u64 = 0x3000_0000_0000;
/// The client's place and the server's.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
/// The role of the keeper of the segment.
pub const KEEPER: u64 = 2;
/// Slots of references: to the object of type n at `REFERENCES + n`, to keep an identity, to nothing,
/// to the device authority.
pub const REFERENCES: u64 = 16;
pub const KEPT: u64 = 26;
pub const BLANK: u64 = 27;
pub const AUTHORITY: u64 = 31;
/// Slots on the page of references: to be sent, to be received into.
pub const SENT: u64 = 1;
pub const RECEIVED: u64 = 8;

/// Priorities: of what waits for nobody to be ready, of victims, of the keeper, of the manager.
const IDLE: u64 = 1;
const VICTIM: u64 = 4;
const PAGER: u64 = 20;
pub const MANAGER: u64 = 28;

/// Most calls in a script.
const STEPS: usize = 8;

/// The calls that a victim makes one after the other, and their results.
#[repr(C)]
struct Script {
    count: AtomicU64,
    done: AtomicU64,
    /// After the last call go on with this one; [`STEPS`]: park.
    again: u64,
    steps: [IpcRegs; STEPS],
    results: [IpcRegs; STEPS],
}

/// Instructions that a step can be instead of a call: what its `rax` holds. The `rdi` of the two that
/// touch memory is the address.
pub mod instruction {
    /// `ud2`.
    pub const WRONG: u64 = 0x100;
    /// `mov rax, [rdi]`.
    pub const READ: u64 = 0x200;
    /// `mov [rdi], rax`.
    pub const WRITE: u64 = 0x300;
    /// `syscall` with a number that no call has.
    pub const NO_CALL: u64 = 0x4fe;

    /// How long it is, for who steps over it.
    #[must_use]
    pub const fn length(which: u64) -> u64 {
        match which {
            READ | WRITE => 3,
            _ => 2,
        }
    }
}

/// Executes one.
fn instruction(regs: &mut IpcRegs) {
    let (rax, rdi) = (regs.rax, regs.rdi);
    // SAFETY: what an exception does to the thread is its keeper's affair, which changes `rax` only;
    // the addresses are those of the stage, where no Rust value lives, or of nothing.
    unsafe {
        match rax {
            instruction::WRONG => asm!("ud2", inlateout("rax") rax => regs.rax),
            instruction::READ => {
                asm!("mov rax, [rdi]", inlateout("rax") rax => regs.rax, in("rdi") rdi);
            }
            instruction::WRITE => {
                asm!("mov [rdi], rax", inlateout("rax") rax => regs.rax, in("rdi") rdi);
            }
            _ => {
                asm!("syscall", inlateout("rax") rax => regs.rax, lateout("rcx") _, lateout("r11") _)
            }
        }
    }
}

extern "C" fn play(script: u64) -> ! {
    // SAFETY: the manager passes the address of a script that lives as long as the thread, and
    // looks at it only while the thread does not run.
    let script = unsafe { &mut *(script as *mut Script) };
    let mut n = 0;
    while n < script.count.load(Relaxed) as usize {
        let mut regs = script.steps[n];
        match Call::from_number(regs.rax as u8) {
            // SAFETY: the registers name memory of the stage, which holds no Rust value.
            Some(call) => drop(unsafe { sys::ipc(call, &mut regs) }),
            None => instruction(&mut regs),
        }
        script.results[n] = regs;
        n += 1;
        script.done.store(n as u64, Relaxed);
        if n == script.count.load(Relaxed) as usize {
            n = script.again as usize;
        }
    }
    loop {
        sys::thread_wait_interrupt();
    }
}

/// A thread that is cut.
pub struct Victim {
    pub thread: Thread,
    pub reference: Ref,
    /// To its ends.
    pub ends: [Ref; 2],
    script: Box<Script>,
    stack: Vec<u8>,
}

const STACK: usize = 16 * 1024;

impl Victim {
    fn new() -> Result<Self, Failure> {
        let thread = Thread::new().must("a thread")?;
        let reference = thread.reference().must("a reference")?;
        let ends = [
            Ref::new().must("a reference")?,
            Ref::new().must("a reference")?,
        ];
        thread.client_end_into(*ends[CLIENT]).must("an end")?;
        thread.server_end_into(*ends[SERVER]).must("an end")?;
        let regs = IpcRegs::default();
        Ok(Victim {
            thread,
            reference,
            ends,
            script: Box::new(Script {
                count: AtomicU64::new(0),
                done: AtomicU64::new(0),
                again: STEPS as u64,
                steps: [regs; STEPS],
                results: [regs; STEPS],
            }),
            stack: vec![0; STACK],
        })
    }

    /// Puts it, stopped, before the first of these calls. With `ends` it is at an end of a
    /// connection: which one, the stage, the peer's end.
    fn prepare(
        &mut self,
        role: u64,
        steps: &[IpcRegs],
        again: Option<usize>,
        space: &RefAt,
        end: Option<(usize, End, &RefAt)>,
    ) -> Result<(), Failure> {
        let script = &mut *self.script;
        script.count.store(steps.len() as u64, Relaxed);
        script.done.store(0, Relaxed);
        script.again = again.unwrap_or(STEPS) as u64;
        script.steps[..steps.len()].copy_from_slice(steps);
        script.results = [IpcRegs::default(); STEPS];
        let mut state = ThreadState {
            registers: Registers {
                rip: play as *const () as u64,
                rsp: ((self.stack.as_ptr() as u64 + STACK as u64) & !15) - 8,
                rdi: core::ptr::from_ref(script) as u64,
                rflags: 0x202,
                ..Registers::default()
            },
            tag: tag(role),
            priority: VICTIM,
            stop_count: 1,
            ..ThreadState::default()
        };
        let mut peers = [0; 2];
        if let Some((side, stage, peer)) = end {
            peers[side] = peer.0;
            match side {
                CLIENT => state.client_stage = stage as u64,
                _ => state.server_stage = stage as u64,
            }
        }
        self.thread
            .set_state(&state, space.0, peers[CLIENT], peers[SERVER])
            .must("a victim's state")
    }

    /// The answer to the exception that its first call has received is what its third one sends: the
    /// thread steps over the instruction, with another `rax`.
    pub fn answer(&mut self, length: u64) {
        let told = self.script.results[0];
        let reply = &mut self.script.steps[2];
        // Of the eight words of a message the last four are `rip rsp rflags rax`, as in the answer.
        (reply.rsi, reply.rdx, reply.r10) = (told.r9.wrapping_add(length), told.r12, told.r13);
        reply.r8 = 0x5a00;
    }

    /// How many calls it has made, and what came of them.
    #[must_use]
    pub fn results(&self) -> &[IpcRegs] {
        let done = self.script.done.load(Relaxed) as usize;
        &self.script.results[..done.min(STEPS)]
    }
}

/// A space in which the program's memory is where it always is, and the segment at [`VIEW`].
pub struct Twin {
    pub space: Space,
    pub reference: Ref,
    pub memory: Mapping,
    pub view: Mapping,
}

/// The machinery of the plays: victims, keeper, segment and probe.
pub struct Stage {
    pub victims: [Victim; 2],
    pub twins: [Twin; 2],
    pub keeper: Victim,
    /// The program's memory, the segment as the keeper supplies it, and the segment as the manager sees it.
    pub memory: Region,
    pub kept: Region,
    pub keeper_port: Port,
    pub keeper_set: Portset,
    pub all: Region,
    pub all_ref: Ref,
    window: Window,
    pub pager: Box<Pager>,
    idle: Victim,
    authority: RefAt,
    manager: Ref,
}

/// The data of the keeper's thread.
pub struct Pager {
    set: u64,
    segment: u64,
    base: u64,
    pages: Vec<Mapping>,
    present: [AtomicBool; ALL_PAGES as usize],
    /// Whether it answers faults without supplying pages.
    pub deaf: AtomicBool,
}

impl Pager {
    fn set(&self, page: u64, present: bool) -> Code {
        let state = MappingState {
            start: self.base + page * PAGE_SIZE,
            size: if present { PAGE_SIZE } else { 0 },
            offset: page * PAGE_SIZE,
            protection: abi::access::ALL,
        };
        self.present[page as usize].store(present, Relaxed);
        sys::mapping_set_state(self.pages[page as usize].handle(), &state, self.segment, 0)
    }
}

/// The keeper: supplies whatever page it is told is absent.
extern "C" fn supply(pager: u64) -> ! {
    // SAFETY: the stage passes the address of a pager that lives as long as the thread.
    let pager = unsafe { &*(pager as *const Pager) };
    let wait = IpcRegs {
        rdi: pager.set,
        ..IpcRegs::default()
    };
    let mut call = Call::ServerWaitReceiveShort;
    loop {
        let mut regs = wait;
        // SAFETY: register messages touch no memory.
        let code = unsafe { sys::ipc(call, &mut regs) };
        call = Call::ServerWaitReceiveShort;
        if code == Code::Fault {
            let page = regs.rsi / PAGE_SIZE;
            // A fault message may be delivered twice (rule A8).
            let deaf = pager.deaf.load(Relaxed);
            if page < ALL_PAGES && !deaf && !pager.present[page as usize].load(Relaxed) {
                pager.set(page, true);
            }
            call = Call::ReplyWaitReceiveShort;
        }
    }
}

/// The number of the manager's last question whether no other thread is ready ([`Stage::ask`]).
static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Runs when no other thread is ready, and tells the manager so.
extern "C" fn idle(manager: u64) -> ! {
    loop {
        sys::thread_wait_interrupt();
        ANSWERED.store(ASKED.load(Relaxed), Relaxed);
        sys::thread_interrupt(manager);
    }
}

fn start(
    victim: &Victim,
    f: extern "C" fn(u64) -> !,
    argument: u64,
    priority: u64,
    tag: u64,
) -> Result<(), Failure> {
    let state = ThreadState {
        registers: Registers {
            rip: f as *const () as u64,
            rsp: ((victim.stack.as_ptr() as u64 + STACK as u64) & !15) - 8,
            rdi: argument,
            rflags: 0x202,
            ..Registers::default()
        },
        tag,
        priority,
        stop_count: 1,
        ..ThreadState::default()
    };
    victim
        .thread
        .set_state(&state, 0, 0, 0)
        .must("the state of a helper")?;
    victim.thread.resume().must("resume")
}

fn region(start: u64, size: u64, space: u64, keeper: u64) -> Result<Region, Failure> {
    let region = Region::new().must("a region")?;
    let state = RegionState {
        start,
        size,
        protection: abi::access::ALL,
    };
    region
        .set_state(&state, space, keeper)
        .must("the state of a region")?;
    Ok(region)
}

/// Makes a common call on an object.
pub fn on(ty: Type, which: u8, parameters: [u64; 5]) -> Code {
    let [a, b, c, d, e] = parameters;
    // SAFETY: handles and states are those of the stage, where no Rust value lives, or buffers of the
    // caller's that it passes for this.
    unsafe { sys::syscall(common(ty, which), [a, b, c, d, e, 0]) }.code
}

impl Stage {
    /// Creates what all plays use.
    pub fn new(authority: RefAt, manager: Ref) -> Result<Self, Failure> {
        use proto::layout::{HEAP_END, STACK_TOP, START_PAGE};
        let size = STACK_TOP.max(HEAP_END) - START_PAGE;
        let memory = region(START_PAGE, size, 0, 0)?;
        let memory_ref = memory.reference().must("a reference")?;
        let segment = rt::memory::create(ALL_PAGES * PAGE_SIZE).must("a segment")?;
        let bytes = ALL_PAGES * PAGE_SIZE;
        let window = Window::map(&segment.region, 0, bytes, abi::access::ALL).must("a window")?;
        let all = region(window.address(), bytes, 0, 0)?;
        let all_ref = all.reference().must("a reference")?;
        let base = rt::window::take_addresses(bytes, PAGE_SIZE).ok_or("no addresses")?;

        let keeper_set = Portset::new().must("a portset")?;
        let set_ref = keeper_set.reference().must("a reference")?;
        let keeper_port = Port::new().must("a port")?;
        keeper_port
            .set_state(
                &abi::state::PortState {
                    alias: 0,
                    ..abi::state::PortState::default()
                },
                set_ref.handle(),
            )
            .must("the state of a port")?;
        let port_ref = keeper_port.reference().must("a reference")?;
        let kept = region(base, bytes, 0, port_ref.handle())?;
        let kept_ref = kept.reference().must("a reference")?;
        let mut pages = Vec::new();
        for _ in 0..ALL_PAGES {
            pages.push(Mapping::new().must("a mapping")?);
        }
        let pager = Box::new(Pager {
            set: keeper_set.handle(),
            segment: segment.region.handle(),
            base,
            pages,
            present: [const { AtomicBool::new(false) }; ALL_PAGES as usize],
            deaf: AtomicBool::new(false),
        });
        core::mem::forget(segment);

        let twin = || -> Result<Twin, Failure> {
            let space = Space::new().must("a space")?;
            space.set_state(&SPACE, 0).must("the state of a space")?;
            let reference = space.reference().must("a reference")?;
            let map = |region: &Ref, start, size| -> Result<Mapping, Failure> {
                let mapping = Mapping::new().must("a mapping")?;
                let state = MappingState {
                    start,
                    size,
                    offset: 0,
                    protection: abi::access::ALL,
                };
                mapping
                    .set_state(&state, region.handle(), reference.handle())
                    .must("the state of a mapping")?;
                Ok(mapping)
            };
            Ok(Twin {
                memory: map(&memory_ref, START_PAGE, size)?,
                view: map(&kept_ref, VIEW, bytes)?,
                space,
                reference,
            })
        };
        let twins = [twin()?, twin()?];
        let (keeper, idler) = (Victim::new()?, Victim::new()?);
        start(
            &keeper,
            supply,
            core::ptr::from_ref(&*pager) as u64,
            PAGER,
            tag(KEEPER),
        )?;
        start(&idler, idle, manager.handle(), IDLE, 0)?;
        Ok(Stage {
            victims: [Victim::new()?, Victim::new()?],
            twins,
            keeper,
            memory,
            kept,
            keeper_port,
            keeper_set,
            all,
            all_ref,
            window,
            pager,
            idle: idler,
            authority,
            manager,
        })
    }

    /// Where the victims see a byte of a page.
    #[must_use]
    pub const fn user(side: usize, page: Page, offset: u64) -> u64 {
        VIEW + page.on(side) * PAGE_SIZE + offset
    }

    /// The handle of a slot, for the victims.
    #[must_use]
    pub const fn handle(side: usize, page: Page, slot: u64) -> u64 {
        Self::user(side, page, slot * OBJECT_SIZE)
    }

    /// Where the manager sees a byte of a page.
    #[must_use]
    pub fn mine(&self, side: usize, page: Page, offset: u64) -> u64 {
        self.window.address() + page.on(side) * PAGE_SIZE + offset
    }

    /// The handle of a slot, for the manager.
    #[must_use]
    pub fn slot(&self, side: usize, page: Page, slot: u64) -> u64 {
        self.mine(side, page, slot * OBJECT_SIZE)
    }

    /// A word as the manager sees it.
    #[must_use]
    pub fn word(&self, side: usize, page: Page, index: u64) -> u64 {
        // SAFETY: within the window, which holds no Rust value.
        unsafe { (self.mine(side, page, index * 8) as *const u64).read_volatile() }
    }

    /// Sets a word.
    pub fn set_word(&self, side: usize, page: Page, index: u64, value: u64) {
        // SAFETY: as above.
        unsafe { (self.mine(side, page, index * 8) as *mut u64).write_volatile(value) };
    }

    /// Fills a page with zeros.
    pub fn zero(&self, side: usize, page: Page) {
        // SAFETY: as above.
        unsafe { core::ptr::write_bytes(self.mine(side, page, 0) as *mut u64, 0, 512) };
    }

    /// A hash of all that is on a page.
    #[must_use]
    pub fn hash(&self, side: usize, page: Page) -> u64 {
        let first = self.mine(side, page, 0) as *const u64;
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for i in 0..512 {
            // SAFETY: as above.
            let word = unsafe { first.add(i).read_volatile() };
            hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(9);
        }
        hash
    }

    /// Asks to be told when no other thread is ready: the manager is interrupted then.
    pub fn ask(&self) {
        ASKED.fetch_add(1, Relaxed);
        sys::thread_interrupt(self.idle.reference.handle());
    }

    /// Whether the last question has been answered.
    #[must_use]
    pub fn quiet(&self) -> bool {
        ANSWERED.load(Relaxed) == ASKED.load(Relaxed)
    }

    /// Every object of the stage: offset and type.
    #[must_use]
    pub fn objects(&self) -> Vec<(u64, Type)> {
        let mut all = Vec::new();
        let (mut at, end) = (0, ALL_PAGES * PAGE_SIZE);
        while let Ok((offset, ty)) = self.all_ref.search(at, end, 0x3fe) {
            if let Some(ty) = Type::from_raw(ty) {
                all.push((offset, ty));
            }
            at = offset + OBJECT_SIZE;
        }
        all
    }

    /// The manager's handle of what [`Stage::objects`] has found.
    #[must_use]
    pub fn found(&self, offset: u64) -> u64 {
        self.window.address() + offset
    }

    /// Destroys every object of the stage. References go first: with them go the identities that
    /// they keep, and operations on those would wait.
    pub fn clear(&self) -> Result<(), Failure> {
        // The first of them is the one that may keep another.
        let kept = self.slot(CLIENT, Page::Handles, KEPT);
        if self
            .objects()
            .iter()
            .any(|(offset, _)| self.found(*offset) == kept)
        {
            let code = on(Type::Reference, DESTROY, [kept, 0, 0, 0, 0]);
            crate::harness::ok(code).must("destroy")?;
        }
        for references in [true, false] {
            for (offset, ty) in self.objects() {
                if !references || ty == Type::Reference {
                    let code = on(ty, DESTROY, [self.found(offset), 0, 0, 0, 0]);
                    if code != Code::Ok {
                        crate::fail!("a {} cannot be destroyed: {code:?}", ty.name());
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes exactly these pages absent, and has all translations of the segment forgotten.
    pub fn pages(&self, absent: u32) -> Result<(), Failure> {
        for page in 0..ALL_PAGES {
            let wanted = absent & 1 << page == 0;
            if self.pager.present[page as usize].load(Relaxed) != wanted {
                crate::harness::ok(self.pager.set(page, wanted)).must("a page")?;
            }
        }
        for twin in &self.twins {
            twin.view.protect(abi::access::ALL).must("protect")?;
        }
        Ok(())
    }

    /// Puts both victims, stopped, before their calls.
    pub fn prepare(
        &mut self,
        steps: [&[IpcRegs]; 2],
        again: [Option<usize>; 2],
        ends: Option<[End; 2]>,
    ) -> Result<(), Failure> {
        let peers = [
            self.victims[SERVER].ends[SERVER].at(),
            self.victims[CLIENT].ends[CLIENT].at(),
        ];
        for side in [CLIENT, SERVER] {
            let space = self.twins[side].reference.at();
            let end = ends.map(|stages| (side, stages[side], &peers[side]));
            self.victims[side].prepare(side as u64, steps[side], again[side], &space, end)?;
        }
        Ok(())
    }

    /// Makes the object of this type in its slot, those that its state names, and a reference to it.
    pub fn object(&self, side: usize, ty: Type, made: &mut u32) -> Result<(), Failure> {
        let bit = 1 << (ty as u32 + 16 * side as u32);
        if *made & bit != 0 {
            return Ok(());
        }
        *made |= bit;
        let handle = self.slot(side, Page::Handles, ty as u64);
        let reference = |ty: Type| self.slot(side, Page::Handles, REFERENCES + ty as u64);
        let must = |code: Code, what: &str| crate::harness::ok(code).must(what);
        must(on(ty, CREATE, [handle, 0, 0, 0, 0]), ty.name())?;
        match ty {
            Type::Mapping => {
                self.object(side, Type::Region, made)?;
                let state = MappingState {
                    start: ELSEWHERE,
                    size: PAGE_SIZE,
                    offset: 0,
                    protection: abi::access::READ,
                };
                let space = self.twins[side].reference.handle();
                must(
                    sys::mapping_set_state(handle, &state, reference(Type::Region), space),
                    "a mapping's state",
                )?;
            }
            Type::Region => {
                let state = RegionState {
                    start: VIEW,
                    size: ALL_PAGES * PAGE_SIZE,
                    protection: abi::access::ALL,
                };
                let space = self.twins[side].reference.handle();
                must(
                    sys::region_set_state(handle, &state, space, 0),
                    "a region's state",
                )?;
            }
            Type::Port => {
                self.object(side, Type::Portset, made)?;
                let state = abi::state::PortState {
                    alias: 77,
                    ..abi::state::PortState::default()
                };
                must(
                    sys::port_set_state(handle, &state, reference(Type::Portset)),
                    "a port's state",
                )?;
            }
            Type::Thread => {
                let mut state = ThreadState {
                    priority: 3,
                    tag: 99,
                    stop_count: 2,
                    ..ThreadState::default()
                };
                state.registers.rbx = 1234;
                state.registers.rflags = 0x202;
                let space = self.twins[side].reference.handle();
                must(
                    sys::thread_set_state(handle, &state, space, 0, 0),
                    "a thread's state",
                )?;
            }
            Type::Reference => {
                self.object(side, Type::Mutex, made)?;
                must(
                    on(
                        Type::Mutex,
                        REFERENCE,
                        [
                            self.slot(side, Page::Handles, Type::Mutex as u64),
                            handle,
                            0,
                            0,
                            0,
                        ],
                    ),
                    "a reference",
                )?;
            }
            _ => {}
        }
        let place = reference(ty);
        must(
            on(Type::Reference, CREATE, [place, 0, 0, 0, 0]),
            "a reference",
        )?;
        must(on(ty, REFERENCE, [handle, place, 0, 0, 0]), "a reference")
    }

    /// The victims' handle of the reference to the object of a type.
    #[must_use]
    pub const fn reference(side: usize, ty: Type) -> u64 {
        Self::handle(side, Page::Handles, REFERENCES + ty as u64)
    }

    /// Makes a reference that names nothing.
    pub fn blank(&self, side: usize, page: Page, slot: u64) -> Result<(), Failure> {
        crate::harness::ok(sys::reference_create(self.slot(side, page, slot), 0))
            .must("a reference")
    }

    /// Makes a reference to the device authority.
    pub fn authority(&self, side: usize) -> Result<(), Failure> {
        self.blank(side, Page::Handles, AUTHORITY)?;
        RefAt(self.slot(side, Page::Handles, AUTHORITY))
            .point_to(self.authority)
            .must("the authority")
    }

    /// Another one.
    pub fn anew(&self) -> Result<Self, Failure> {
        Stage::new(
            self.authority,
            self.manager.at().copy().must("a reference")?,
        )
    }

    /// Sets whether a victim's space is foreign, and the keeper of its exceptions.
    pub fn govern(&self, side: usize, foreign: bool, keeper: Option<RefAt>) -> Result<(), Failure> {
        let state = SpaceState {
            flags: if foreign { space_flags::FOREIGN } else { 0 },
            ..SPACE
        };
        self.twins[side]
            .space
            .set_state(&state, keeper.map_or(0, |port| port.0))
            .must("the state of a space")
    }

    /// The answer to the exception message that the server has received at [`Stage::MESSAGE`]: the
    /// thread steps over the instruction, with another `rax`. It stands on the page for states.
    pub fn answer(&self, length: u64) {
        let word = |i| self.word(SERVER, Page::Receive, Self::MESSAGE / 8 + i);
        let before = EXCEPTION_WORDS - REGISTER_WORDS;
        let mut registers =
            Registers::from_words(&core::array::from_fn(|i| word((before + i) as u64)));
        registers.rip = registers.rip.wrapping_add(length);
        registers.rax = 0x5a00;
        for (i, word) in registers.to_words().into_iter().enumerate() {
            self.set_word(SERVER, Page::State, i as u64, word);
        }
        let rest = [
            Self::user(SERVER, Page::State, Self::FIRST),
            REGISTER_WORDS as u64 * 8 - Self::FIRST,
            Self::user(SERVER, Page::State, 0),
            0,
        ];
        for (i, word) in rest.into_iter().enumerate() {
            self.set_word(SERVER, Page::State, Self::REST / 8 + i as u64, word);
        }
    }

    /// The answer is sent in two pieces and an empty one: how long the first is, and where on the page
    /// the list stands that names the others.
    pub const FIRST: u64 = 72;
    pub const REST: u64 = 1024;

    /// Where the server receives exception messages, on its page for that and the next one.
    pub const MESSAGE: u64 = PAGE_SIZE - 64;

    /// The device authority.
    #[must_use]
    pub fn device_authority(&self) -> RefAt {
        self.authority
    }

    /// A reference to the manager's own thread.
    #[must_use]
    pub fn manager(&self) -> RefAt {
        self.manager.at()
    }

    /// Everything beside the victims and what is in the segment that a cut can take apart.
    #[must_use]
    pub fn fixtures(&self) -> Vec<(Type, u64)> {
        let mut all = vec![
            (Type::Region, self.memory.handle()),
            (Type::Region, self.kept.handle()),
            (Type::Port, self.keeper_port.handle()),
            (Type::Portset, self.keeper_set.handle()),
        ];
        for twin in &self.twins {
            all.push((Type::Space, twin.space.handle()));
            all.push((Type::Mapping, twin.memory.handle()));
            all.push((Type::Mapping, twin.view.handle()));
        }
        all
    }
}

const _: () = assert!(KEEPER < ROLES && TYPES.len() < 10);
