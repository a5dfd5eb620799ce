//! The fixture that all plays run on: two victims with spaces of their own, a segment of memory that a
//! pager supplies page by page, and objects that live in it.
//!
//! Every page of the segment has a purpose ([`Page`]), once for the client and once for the server. The
//! manager (the test's own thread) sees the whole segment all the time in a window; the victims see it through
//! a region with a keeper, so that any page can be absent for them.

use super::probe::tag;
use crate::harness::{Failure, Must};
use abi::message::EXCEPTION_WORDS;
use abi::probe::ROLES;
use abi::state::{
    space_flags, MappingState, RegionState, Registers, SpaceState, Stage, ThreadState,
    REGISTER_WORDS,
};
use abi::{Call, Code, Common, Type, OBJECT_SIZE, PAGE_SIZE, PRIORITIES, TYPES};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::global_asm;
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
    /// Objects that calls are made on, in the slot with the number of their type, and references.
    Handles = 0,
    /// A state that a call reads or writes.
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

/// All purposes.
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
    /// The page's number in the segment, for this side.
    #[must_use]
    pub const fn on(self, side: usize) -> u64 {
        self as u64 + side as u64 * SIDE
    }

    /// The page as a bit of a set of pages ([`super::plays::Play::used`]).
    #[must_use]
    pub const fn bit(self, side: usize) -> u32 {
        1 << self.on(side)
    }
}

/// Pages per side, and in all.
const SIDE: u64 = 10;
pub const ALL_PAGES: u64 = 2 * SIDE;
/// The address at which the victims see the segment, from where their memory begins ([`base`]).
const VIEW: u64 = 0x200_0000_0000;
/// The address at which a mapping that a play creates begins, from there.
const ELSEWHERE: u64 = 0x300_0000_0000;

/// Where the memory of either victim begins.
static BASES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Has the victim of this side run in a collocated space, in ring 1. Before the fixture and the plays are made.
pub fn collocate(side: usize) {
    BASES[side].store(abi::collocated::range(place(side)).0, Relaxed);
}

/// Where the memory of the victim of this side begins: at 0, or at its place if it is collocated.
#[must_use]
pub fn base(side: usize) -> u64 {
    BASES[side].load(Relaxed)
}

/// The place of the victim of this side, if it is collocated: servers of the machine have the first ones.
const fn place(side: usize) -> u64 {
    abi::collocated::COUNT - 1 - side as u64
}
/// The two sides, as indices and as roles for the probe.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
/// The role of the keeper of the segment.
pub const KEEPER: u64 = 2;
/// Slots on the page of handles: references to the object of type n at `REFERENCES + n`; one that keeps an
/// identity; the first of some null references; one to the device authority.
pub const REFERENCES: u64 = 16;
pub const KEPT: u64 = 26;
pub const NULL: u64 = 27;
pub const AUTHORITY: u64 = 31;
/// Slots on the page of references: the first that is sent, the first that is received into.
pub const SENT: u64 = 1;
pub const RECEIVED: u64 = 8;

/// Priorities: of the thread that runs when no other is ready, of victims, of the pager, of the manager.
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
    /// The call that follows the last one; [`STEPS`] if the victim then waits for ever.
    again: u64,
    steps: [IpcRegs; STEPS],
    results: [IpcRegs; STEPS],
}

/// Instructions that a step can be instead of a call: what its `rax` holds. The `rdi` of the two that
/// touch memory is the address; it is memory of the segment, where no Rust value lives, or not mapped.
pub mod instruction {
    /// `ud2`.
    pub const WRONG: u64 = 0x100;
    /// `mov rax, [rdi]`.
    pub const READ: u64 = 0x200;
    /// `mov [rdi], rax`.
    pub const WRITE: u64 = 0x300;
    /// `syscall` with a number that no call has.
    pub const NO_CALL: u64 = 0x4fe;

    /// Bytes of the instruction, for a keeper that steps over it.
    #[must_use]
    pub const fn length(which: u64) -> u64 {
        match which {
            READ | WRITE => 3,
            _ => 2,
        }
    }
}

/// Bytes of the registers of a call.
const REGISTERS: usize = size_of::<IpcRegs>();
const _: () = assert!(core::mem::offset_of!(Script, steps) == 24 && REGISTERS == 13 * 8);

// What a victim does: the calls of its script (rdi). It is assembly because it must not know where it is, and uses no
// table, for a victim in a collocated space runs it at another address than that for which the program's tables were
// made. The registers of a call have no room for its own: its stack has the number of the call, and the script.
global_asm!(
    r#"
    .globl fermata_test_victim
fermata_test_victim:
    push rdi
    push 0
2:  mov rcx, [rsp]
    mov rdx, [rsp + 8]
    cmp rcx, [rdx]
    jae 8f
    imul rcx, rcx, {registers}
    lea rdi, [rdx + rcx + {steps}]
    mov rax, [rdi]
    mov rsi, [rdi + 0x10]
    mov rdx, [rdi + 0x18]
    mov r10, [rdi + 0x20]
    mov r8, [rdi + 0x28]
    mov r9, [rdi + 0x30]
    mov rbx, [rdi + 0x38]
    mov rbp, [rdi + 0x40]
    mov r12, [rdi + 0x48]
    mov r13, [rdi + 0x50]
    mov r14, [rdi + 0x58]
    mov r15, [rdi + 0x60]
    mov rdi, [rdi + 0x08]
    cmp rax, {wrong}
    je 3f
    cmp rax, {read}
    je 4f
    cmp rax, {write}
    je 5f
    syscall
    jmp 6f
3:  ud2
    jmp 6f
4:  mov rax, [rdi]
    jmp 6f
5:  mov [rdi], rax
6:  mov rcx, [rsp]
    imul rcx, rcx, {registers}
    add rcx, [rsp + 8]
    mov [rcx + {results}], rax
    mov [rcx + {results} + 0x08], rdi
    mov [rcx + {results} + 0x10], rsi
    mov [rcx + {results} + 0x18], rdx
    mov [rcx + {results} + 0x20], r10
    mov [rcx + {results} + 0x28], r8
    mov [rcx + {results} + 0x30], r9
    mov [rcx + {results} + 0x38], rbx
    mov [rcx + {results} + 0x40], rbp
    mov [rcx + {results} + 0x48], r12
    mov [rcx + {results} + 0x50], r13
    mov [rcx + {results} + 0x58], r14
    mov [rcx + {results} + 0x60], r15
    mov rdx, [rsp + 8]
    mov rcx, [rsp]
    inc rcx
    mov [rdx + 8], rcx
    cmp rcx, [rdx]
    jne 7f
    mov rcx, [rdx + 16]
7:  mov [rsp], rcx
    jmp 2b
8:  mov eax, {wait}
    syscall
    jmp 8b
"#,
    registers = const REGISTERS,
    steps = const core::mem::offset_of!(Script, steps),
    results = const core::mem::offset_of!(Script, results),
    wrong = const instruction::WRONG,
    read = const instruction::READ,
    write = const instruction::WRITE,
    wait = const Call::ThreadWaitInterrupt as u64,
);

extern "C" {
    /// Plays the script. It does not return.
    fn fermata_test_victim(script: u64);
}

/// A thread that is cut.
pub struct Victim {
    pub thread: Thread,
    pub reference: Ref,
    /// References to its client end and its server end.
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

    /// Sets the thread's state so that it is stopped before the first of these calls. `end` makes it one end
    /// of a connection: which end, its stage, a reference to the peer's end.
    fn prepare(
        &mut self,
        role: u64,
        steps: &[IpcRegs],
        again: Option<usize>,
        (space, base): (&RefAt, u64),
        end: Option<(usize, Stage, &RefAt)>,
    ) -> Result<(), Failure> {
        let script = &mut *self.script;
        script.count.store(steps.len() as u64, Relaxed);
        script.done.store(0, Relaxed);
        script.again = again.unwrap_or(STEPS) as u64;
        script.steps[..steps.len()].copy_from_slice(steps);
        script.results = [IpcRegs::default(); STEPS];
        let mut state = ThreadState {
            registers: Registers {
                rip: base + fermata_test_victim as *const () as u64,
                rsp: base + ((self.stack.as_ptr() as u64 + STACK as u64) & !15) - 8,
                rdi: base + core::ptr::from_ref(script) as u64,
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

    /// Writes into the third call the reply to the exception that the first call has received: the faulting
    /// thread steps over its instruction, which has `length` bytes, with another `rax`.
    pub fn prepare_reply(&mut self, length: u64) {
        let told = self.script.results[0];
        let reply = &mut self.script.steps[2];
        // The last four of the eight words received are `rip rsp rflags rax`, in the order of the reply.
        (reply.rsi, reply.rdx, reply.r10) = (told.r9.wrapping_add(length), told.r12, told.r13);
        reply.r8 = 0x5a00;
    }

    /// The registers after each call that it has made.
    #[must_use]
    pub fn results(&self) -> &[IpcRegs] {
        let done = self.script.done.load(Relaxed) as usize;
        &self.script.results[..done.min(STEPS)]
    }
}

/// A second space with the program's memory at the same addresses from its [`base`] on, and the segment at [`VIEW`].
pub struct Twin {
    pub space: Space,
    pub reference: Ref,
    pub memory: Mapping,
    pub view: Mapping,
}

/// What all plays use: victims with their spaces, the pager and the segment.
pub struct Fixture {
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

/// The data of the pager's thread.
pub struct Pager {
    set: u64,
    segment: u64,
    base: u64,
    pages: Vec<Mapping>,
    present: [AtomicBool; ALL_PAGES as usize],
    /// Whether it replies to faults without supplying pages.
    pub supplies_nothing: AtomicBool,
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

/// The pager: supplies each page that a fault message names.
extern "C" fn supply(pager: u64) -> ! {
    // SAFETY: the fixture passes the address of a pager that lives as long as the thread.
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
            let supplies_nothing = pager.supplies_nothing.load(Relaxed);
            // A fault message may be delivered twice (rule A8): the page may be present already.
            if page < ALL_PAGES && !supplies_nothing && !pager.present[page as usize].load(Relaxed)
            {
                pager.set(page, true);
            }
            call = Call::ReplyWaitReceiveShort;
        }
    }
}

/// Number of the manager's last question whether no other thread is ready ([`Fixture::ask_whether_idle`]), and of the
/// last one that was answered.
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

pub(super) fn region(start: u64, size: u64, space: u64, keeper: u64) -> Result<Region, Failure> {
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
pub fn on(ty: Type, which: Common, parameters: [u64; 5]) -> Code {
    let [a, b, c, d, e] = parameters;
    // SAFETY: handles and states are in the segment, where no Rust value lives, or in buffers that the
    // caller passes for this.
    unsafe { sys::syscall(which.of(ty), [a, b, c, d, e, 0]) }.code
}

impl Fixture {
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
            supplies_nothing: AtomicBool::new(false),
        });
        core::mem::forget(segment);

        let twin = |side| -> Result<Twin, Failure> {
            let space = Space::new().must("a space")?;
            space.set_state(&SPACE, 0).must("the state of a space")?;
            let reference = space.reference().must("a reference")?;
            let base = self::base(side);
            if base != 0 {
                let code = sys::device_collocate(authority.0, reference.handle(), place(side));
                crate::harness::ok(code)
                    .must("a place (after a failure there is no second one)")?;
            }
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
                memory: map(&memory_ref, base + START_PAGE, size)?,
                view: map(&kept_ref, base + VIEW, bytes)?,
                space,
                reference,
            })
        };
        let twins = [twin(CLIENT)?, twin(SERVER)?];
        let (keeper, idler) = (Victim::new()?, Victim::new()?);
        start(
            &keeper,
            supply,
            core::ptr::from_ref(&*pager) as u64,
            PAGER,
            tag(KEEPER),
        )?;
        start(&idler, idle, manager.handle(), IDLE, 0)?;
        Ok(Fixture {
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

    /// The victims' address of a byte of a page.
    #[must_use]
    pub fn victim_address(side: usize, page: Page, offset: u64) -> u64 {
        base(side) + VIEW + page.on(side) * PAGE_SIZE + offset
    }

    /// The handle of a slot, for the victims.
    #[must_use]
    pub fn handle(side: usize, page: Page, slot: u64) -> u64 {
        Self::victim_address(side, page, slot * OBJECT_SIZE)
    }

    /// The manager's address of a byte of a page.
    #[must_use]
    pub fn manager_address(&self, side: usize, page: Page, offset: u64) -> u64 {
        self.window.address() + page.on(side) * PAGE_SIZE + offset
    }

    /// The handle of a slot, for the manager.
    #[must_use]
    pub fn slot(&self, side: usize, page: Page, slot: u64) -> u64 {
        self.manager_address(side, page, slot * OBJECT_SIZE)
    }

    /// A word as the manager sees it.
    #[must_use]
    pub fn word(&self, side: usize, page: Page, index: u64) -> u64 {
        // SAFETY: within the window, which holds no Rust value.
        unsafe { (self.manager_address(side, page, index * 8) as *const u64).read_volatile() }
    }

    /// Sets a word.
    pub fn set_word(&self, side: usize, page: Page, index: u64, value: u64) {
        // SAFETY: as above.
        unsafe { (self.manager_address(side, page, index * 8) as *mut u64).write_volatile(value) };
    }

    /// Fills a page with zeros.
    pub fn zero(&self, side: usize, page: Page) {
        // SAFETY: as above.
        unsafe { core::ptr::write_bytes(self.manager_address(side, page, 0) as *mut u64, 0, 512) };
    }

    /// A hash of all that is on a page.
    #[must_use]
    pub fn hash(&self, side: usize, page: Page) -> u64 {
        let first = self.manager_address(side, page, 0) as *const u64;
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for i in 0..512 {
            // SAFETY: as above.
            let word = unsafe { first.add(i).read_volatile() };
            hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(9);
        }
        hash
    }

    /// Asks to be told when no other thread is ready: the manager is interrupted then.
    pub fn ask_whether_idle(&self) {
        ASKED.fetch_add(1, Relaxed);
        sys::thread_interrupt(self.idle.reference.handle());
    }

    /// Whether no other thread was ready since [`Fixture::ask_whether_idle`].
    #[must_use]
    pub fn is_idle(&self) -> bool {
        ANSWERED.load(Relaxed) == ASKED.load(Relaxed)
    }

    /// Every object in the segment: offset and type.
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

    /// The manager's handle of an object at an offset in the segment, as [`Fixture::objects`] returns it.
    #[must_use]
    pub fn handle_at(&self, offset: u64) -> u64 {
        self.window.address() + offset
    }

    /// Destroys every object in the segment. References go first, because an identity that a reference keeps
    /// is vacant, and operations on it would wait.
    pub fn clear(&self) -> Result<(), Failure> {
        // Before all others the reference that may keep another reference's identity.
        let kept = self.slot(CLIENT, Page::Handles, KEPT);
        if self
            .objects()
            .iter()
            .any(|(offset, _)| self.handle_at(*offset) == kept)
        {
            let code = on(Type::Reference, Common::Destroy, [kept, 0, 0, 0, 0]);
            crate::harness::ok(code).must("destroy")?;
        }
        for references in [true, false] {
            for (offset, ty) in self.objects() {
                if !references || ty == Type::Reference {
                    let code = on(ty, Common::Destroy, [self.handle_at(offset), 0, 0, 0, 0]);
                    if code != Code::Ok {
                        crate::fail!("a {} cannot be destroyed: {code:?}", ty.name());
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes exactly these pages absent, and makes the kernel drop all translations of the segment.
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

    /// Puts both victims, stopped, before the first of their calls; `again` and `ends` are as in a play.
    pub fn prepare(
        &mut self,
        steps: [&[IpcRegs]; 2],
        again: [Option<usize>; 2],
        ends: Option<[Stage; 2]>,
    ) -> Result<(), Failure> {
        let peers = [
            self.victims[SERVER].ends[SERVER].at(),
            self.victims[CLIENT].ends[CLIENT].at(),
        ];
        for side in [CLIENT, SERVER] {
            let space = self.twins[side].reference.at();
            let end = ends.map(|stages| (side, stages[side], &peers[side]));
            let at = (&space, base(side));
            self.victims[side].prepare(side as u64, steps[side], again[side], at, end)?;
        }
        Ok(())
    }

    /// Makes the object of this type in its slot, those that its state names, and a reference to it, unless
    /// `made` says that they are there.
    pub fn object(&self, side: usize, ty: Type, made: &mut u32) -> Result<(), Failure> {
        let bit = 1 << (ty as u32 + 16 * side as u32);
        if *made & bit != 0 {
            return Ok(());
        }
        *made |= bit;
        let handle = self.slot(side, Page::Handles, ty as u64);
        let reference = |ty: Type| self.slot(side, Page::Handles, REFERENCES + ty as u64);
        let must = |code: Code, what: &str| crate::harness::ok(code).must(what);
        must(on(ty, Common::Create, [handle, 0, 0, 0, 0]), ty.name())?;
        match ty {
            Type::Mapping => {
                self.object(side, Type::Region, made)?;
                let state = MappingState {
                    start: base(side) + ELSEWHERE,
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
                    start: base(side) + VIEW,
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
            Type::Thread => self.set_thread(side, &Self::thread_state())?,
            Type::Reference => {
                self.object(side, Type::Mutex, made)?;
                must(
                    on(
                        Type::Mutex,
                        Common::Reference,
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
            on(Type::Reference, Common::Create, [place, 0, 0, 0, 0]),
            "a reference",
        )?;
        must(
            on(ty, Common::Reference, [handle, place, 0, 0, 0]),
            "a reference",
        )
    }

    /// The state of the victim's object of type thread.
    fn thread_state() -> ThreadState {
        let mut state = ThreadState {
            priority: 3,
            tag: 99,
            stop_count: 2,
            ..ThreadState::default()
        };
        state.registers.rbx = 1234;
        state.registers.rflags = 0x202;
        state
    }

    fn set_thread(&self, side: usize, state: &ThreadState) -> Result<(), Failure> {
        let handle = self.slot(side, Page::Handles, Type::Thread as u64);
        let space = self.twins[side].reference.handle();
        let code = sys::thread_set_state(handle, state, space, 0, 0);
        crate::harness::ok(code).must("a thread's state")
    }

    /// The victim's object of type thread waits for an answer to an exception, which no keeper has. The registers to answer with
    /// stand on the page for states.
    pub fn excepted(&self, side: usize) -> Result<(), Failure> {
        let mut state = Self::thread_state();
        (state.exception_delivered, state.exception) = (1, 1);
        self.set_thread(side, &state)?;
        state.registers.rbx = 4321;
        for (i, word) in state.registers.to_words().into_iter().enumerate() {
            self.set_word(side, Page::State, i as u64, word);
        }
        Ok(())
    }

    /// The victims' handle of the reference to the object of a type.
    #[must_use]
    pub fn reference(side: usize, ty: Type) -> u64 {
        Self::handle(side, Page::Handles, REFERENCES + ty as u64)
    }

    /// Makes a reference that names nothing.
    pub fn null_reference(&self, side: usize, page: Page, slot: u64) -> Result<(), Failure> {
        crate::harness::ok(sys::reference_create(self.slot(side, page, slot), 0))
            .must("a reference")
    }

    /// Makes a reference to the device authority.
    pub fn authority(&self, side: usize) -> Result<(), Failure> {
        self.null_reference(side, Page::Handles, AUTHORITY)?;
        RefAt(self.slot(side, Page::Handles, AUTHORITY))
            .point_to(self.authority)
            .must("the authority")
    }

    /// A new fixture, after a failure has left this one in an unknown state.
    pub fn another(&self) -> Result<Self, Failure> {
        Fixture::new(
            self.authority,
            self.manager.at().copy().must("a reference")?,
        )
    }

    /// Sets whether a victim's space is foreign, and the keeper of that space.
    pub fn set_keeper(
        &self,
        side: usize,
        foreign: bool,
        keeper: Option<RefAt>,
    ) -> Result<(), Failure> {
        let state = SpaceState {
            flags: if foreign { space_flags::FOREIGN } else { 0 },
            ..SPACE
        };
        self.twins[side]
            .space
            .set_state(&state, keeper.map_or(0, |port| port.0))
            .must("the state of a space")
    }

    /// Writes, on the page for states, the reply to the exception message that the server has received at
    /// [`Fixture::MESSAGE`]: the thread steps over its instruction, with another `rax`.
    pub fn prepare_reply(&self, length: u64) {
        let word = |i| self.word(SERVER, Page::Receive, Self::MESSAGE / 8 + i);
        let before = EXCEPTION_WORDS - REGISTER_WORDS;
        let mut registers =
            Registers::from_words(&core::array::from_fn(|i| word((before + i) as u64)));
        registers.rip = registers.rip.wrapping_add(length);
        registers.rax = 0x5a00;
        for (i, word) in registers.to_words().into_iter().enumerate() {
            self.set_word(SERVER, Page::State, i as u64, word);
        }
        let control = [
            registers.rip,
            registers.rsp,
            registers.rflags,
            registers.rax,
        ];
        for (i, word) in control.into_iter().enumerate() {
            self.set_word(SERVER, Page::State, Self::CONTROL / 8 + i as u64, word);
        }
        let rest = [
            Self::victim_address(SERVER, Page::State, Self::FIRST),
            REGISTER_WORDS as u64 * 8 - Self::FIRST,
            Self::victim_address(SERVER, Page::State, 0),
            0,
        ];
        for (i, word) in rest.into_iter().enumerate() {
            self.set_word(SERVER, Page::State, Self::REST / 8 + i as u64, word);
        }
    }

    /// The reply is sent in three pieces, the last of them empty: the bytes of the first piece, and the offset
    /// on the page of the scatter list that names the others.
    pub const FIRST: u64 = 72;
    pub const REST: u64 = 1024;

    /// The offset on the page of the reply at which the control registers alone stand.
    pub const CONTROL: u64 = 2048;

    /// The offset on its page at which the server receives exception messages, which end on the next page.
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

    /// The objects that a cut can take apart besides the victims and the objects in the segment.
    #[must_use]
    pub fn surroundings(&self) -> Vec<(Type, u64)> {
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
