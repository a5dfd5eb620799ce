//! Hostile callers: several threads in a jail make every call with random arguments, set random states of
//! threads, their own included, and unmap the memory that they use, while the kernel checks its structures at
//! every exit.
//!
//! The jail is a space with one segment and nothing else. A thread takes the registers of its calls
//! from the segment, one call after the other. The *warden* is the keeper of the space: it lets a thread that
//! caused an exception make its next call. A *neighbour* in another space computes the same sum again and
//! again. After each round the neighbour's sum must be right; every page that the jail can reach must be one of
//! its own; and when the jail is gone, there must be as many objects as before it was built.

use super::fixture::{on, region};
use super::probe::Probe;
use crate::harness::{ok, reply_registers, Failure, Must, Random, Receiver};
use abi::state::{MappingState, Registers, SpaceState, ThreadState};
use abi::{Call, Code, Common, Type, OBJECT_SIZE, PAGE_SIZE, SYSCALLS, TYPES, USER_END};
use alloc::format;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rt::obj::{Mapping, Ref, RefAt, Region, Space, Thread};
use rt::sys;
use rt::window::Window;

/// Where the jail's segment is for those inside.
const JAIL: u64 = 0x4000_0000;
/// Its pages: code, objects, states, and one of registers for each thread.
const PAGES: u64 = 4 + THREADS;
const OBJECTS: u64 = 1;
const STATES: u64 = 2;
const FREE: u64 = 3;
/// Threads in the jail.
const THREADS: u64 = 4;
/// Words of a call's registers, and how many calls a thread makes in a round.
const WORDS: u64 = 13;
const CALLS: u64 = 36;
/// Kernel memory that the jail may use.
const QUOTA: u64 = 48 << 10;
/// The last word of each page of the jail is this and the page's number.
const MARK: u64 = 0x6a61_696c << 32;
/// How long a round takes, in nanoseconds. Most of it goes into the kernel's checks.
const TIME: u64 = 50_000_000;
/// The ranges of addresses in which the jail may have mappings.
const REACH: [(u64, u64); 2] = [(0, 16 << 20), (JAIL - (1 << 20), JAIL + (16 << 20))];
/// Priority of the hostile threads: below the manager's and above that of idle work.
const PRIORITY: u64 = 5;
/// Priority of the warden: above the hostile threads'.
const WARDEN: u64 = 20;

global_asm!(
    // A hostile thread: takes the registers of a call from its stack, makes the call, and again.
    ".globl fermata_hostile",
    "fermata_hostile:",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rbx",
    "pop rbp",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "syscall",
    "inc qword ptr [rip + fermata_hostile_calls]",
    "jmp fermata_hostile",
    // How many calls returned.
    ".balign 8",
    ".globl fermata_hostile_calls",
    "fermata_hostile_calls:",
    ".quad 0",
    ".globl fermata_hostile_end",
    "fermata_hostile_end:",
);

extern "C" {
    fn fermata_hostile();
    fn fermata_hostile_calls();
    fn fermata_hostile_end();
}

/// The space of a round with all that is in it.
struct Jail {
    space: Space,
    space_ref: Ref,
    _mapping: Mapping,
    /// The objects of the jail, for the manager to destroy.
    inside: Ref,
    _region: Region,
    /// A reference to the region of all addresses that the jail can have mappings at.
    reach: Ref,
    _reach: Region,
    threads: Vec<Thread>,
}

/// What is made once and used in all rounds.
pub struct Hostile {
    probe: Probe,
    segment: rt::memory::Segment,
    window: Window,
    random: Random,
    neighbour: Thread,
    _stack: Vec<u8>,
    /// A reference to the warden's port.
    warden: Ref,
    /// How many calls returned, and how many exceptions the warden handled.
    pub calls: (u64, u64),
}

/// How many sums the neighbour has computed, and whether one was wrong.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn sum() -> u64 {
    (0..20_000u64).fold(1, |x, n| {
        (x ^ n).wrapping_mul(0x100_0000_01b3).rotate_left(7)
    })
}

extern "C" fn work(expected: u64) -> ! {
    loop {
        if sum() != expected {
            WRONG.store(1, Relaxed);
        }
        ROUNDS.fetch_add(1, Relaxed);
        sys::thread_yield();
    }
}

/// How many exceptions the warden handled.
static EXCEPTIONS: AtomicU64 = AtomicU64::new(0);

/// The warden: lets a thread that caused an exception make its next call. Behind the last registers on its page
/// the thread begins at the first again.
fn keep(mut port: Receiver) {
    loop {
        let got = port.receive(1_000_000_000);
        if got.code != Code::Exception {
            continue;
        }
        EXCEPTIONS.fetch_add(1, Relaxed);
        let mut registers = Registers::from_words(&core::array::from_fn(|n| port.word(4 + n)));
        let (own, page) = (
            (JAIL + 4 * PAGE_SIZE)..(JAIL + PAGES * PAGE_SIZE),
            registers.rsp,
        );
        let left = WORDS * CALLS * 8 - WORDS * 8;
        if !own.contains(&page) {
            registers.rsp = own.start + EXCEPTIONS.load(Relaxed) % THREADS * PAGE_SIZE;
        } else if page % PAGE_SIZE > left {
            registers.rsp = page & !(PAGE_SIZE - 1);
        }
        registers.rip = JAIL;
        let _ = reply_registers(&registers);
    }
}

impl Hostile {
    /// Makes what stays.
    pub fn new(probe: Probe) -> Result<Self, Failure> {
        let segment = rt::memory::create(PAGES * PAGE_SIZE).must("a segment")?;
        let window = Window::map(&segment.region, 0, PAGES * PAGE_SIZE, abi::access::ALL)
            .must("a window")?;
        let neighbour = Thread::new().must("a thread")?;
        let stack = alloc::vec![1; 16 << 10];
        let state = ThreadState {
            registers: Registers {
                rip: work as *const () as u64,
                rsp: ((stack.as_ptr() as u64 + stack.len() as u64) & !15) - 8,
                rdi: sum(),
                rflags: 0x202,
                ..Registers::default()
            },
            priority: PRIORITY,
            ..ThreadState::default()
        };
        neighbour.set_state(&state, 0, 0, 0).must("a neighbour")?;
        neighbour.resume().must("resume")?;
        let port = Receiver::new(6)?;
        let warden = port.port_ref.copy().must("a reference")?;
        rt::thread::spawn_at(WARDEN, move || keep(port)).must("a warden")?;
        let mut hostile = Hostile {
            probe,
            warden,
            segment,
            window,
            random: Random(1),
            neighbour,
            _stack: stack,
            calls: (0, 0),
        };
        // The pages of the segment are there from now on.
        let jail = hostile.build()?;
        hostile.take_down(jail)?;
        Ok(hostile)
    }

    fn set(&self, offset: u64, word: u64) {
        // SAFETY: within the window, which holds no Rust value.
        unsafe { ((self.window.address() + offset) as *mut u64).write_volatile(word) };
    }

    fn get(&self, offset: u64) -> u64 {
        // SAFETY: as above.
        unsafe { ((self.window.address() + offset) as *const u64).read_volatile() }
    }

    fn build(&mut self) -> Result<Jail, Failure> {
        for page in 0..PAGES {
            for word in 0..511 {
                self.set(page * PAGE_SIZE + word * 8, 0);
            }
            self.set(page * PAGE_SIZE + 511 * 8, MARK | page);
        }
        let (first, end) = (
            fermata_hostile as *const () as u64,
            fermata_hostile_end as *const () as u64,
        );
        for at in first..end {
            // SAFETY: the program's own code is read, and the window written.
            unsafe {
                ((self.window.address() + at - first) as *mut u8)
                    .write_volatile((at as *const u8).read());
            }
        }
        let space = Space::new().must("a space")?;
        space
            .set_state(
                &SpaceState {
                    quota: QUOTA,
                    ..space.get_state(0).must("the state of a space")?
                },
                self.warden.handle(),
            )
            .must("the state of a space")?;
        let space_ref = space.reference().must("a reference")?;
        let mapping = Mapping::new().must("a mapping")?;
        let state = MappingState {
            start: JAIL,
            size: PAGES * PAGE_SIZE,
            offset: 0,
            protection: abi::access::ALL,
        };
        mapping
            .set_state(&state, self.segment.region.handle(), space_ref.handle())
            .must("the state of a mapping")?;
        let named = |start, size, space: u64| -> Result<(Region, Ref), Failure> {
            let region = region(start, size, space, 0)?;
            let reference = region.reference().must("a reference")?;
            Ok((region, reference))
        };
        let (all, inside) = named(self.window.address(), PAGES * PAGE_SIZE, 0)?;
        let (everything, reach) = named(0, USER_END, space_ref.handle())?;
        // Of each type two, and a reference to each; the threads are those that make the calls.
        for ty in TYPES {
            for n in 0..2 {
                let slot = ty as u64 * 2 + n;
                let at = self.window.address() + OBJECTS * PAGE_SIZE + slot * OBJECT_SIZE;
                let reference = at + 32 * OBJECT_SIZE;
                ok(on(ty, Common::Create, [at, 0, 0, 0, 0])).must(ty.name())?;
                ok(sys::reference_create(reference, 0)).must("a reference")?;
                ok(on(ty, Common::Reference, [at, reference, 0, 0, 0])).must("a reference")?;
            }
        }
        let ports =
            [10, 11].map(|slot| self.window.address() + OBJECTS * PAGE_SIZE + slot * OBJECT_SIZE);
        let sets = [12, 13]
            .map(|slot| self.window.address() + OBJECTS * PAGE_SIZE + (slot + 32) * OBJECT_SIZE);
        for (port, set) in ports.into_iter().zip(sets) {
            ok(sys::port_set_state(
                port,
                &abi::state::PortState {
                    alias: 5,
                    ..abi::state::PortState::default()
                },
                set,
            ))
            .must("a port")?;
        }
        let mut threads = Vec::new();
        for n in 0..THREADS {
            let thread = Thread::new().must("a thread")?;
            let state = ThreadState {
                registers: Registers {
                    rip: JAIL,
                    rsp: JAIL + (4 + n) * PAGE_SIZE,
                    rflags: 0x202,
                    ..Registers::default()
                },
                priority: PRIORITY,
                ..ThreadState::default()
            };
            thread
                .set_state(&state, space_ref.handle(), 0, 0)
                .must("the state of a thread")?;
            // References to two of the threads, for calls of the jail.
            if n < 2 {
                let at = self.window.address() + OBJECTS * PAGE_SIZE + (60 + n) * OBJECT_SIZE;
                ok(sys::reference_create(at, 0)).must("a reference")?;
                thread.reference_into(RefAt(at)).must("a reference")?;
            }
            threads.push(thread);
        }
        Ok(Jail {
            space,
            space_ref,
            _mapping: mapping,
            inside,
            _region: all,
            reach,
            _reach: everything,
            threads,
        })
    }

    /// A random argument: often an address in the jail, sometimes an edge or any number.
    fn word(&mut self) -> u64 {
        let r = &mut self.random;
        match r.below(16) {
            0..=4 => JAIL + OBJECTS * PAGE_SIZE + r.below(64) * OBJECT_SIZE,
            5 => JAIL + FREE * PAGE_SIZE + r.below(250) * OBJECT_SIZE,
            6 => JAIL + STATES * PAGE_SIZE + r.below(4) * 1024,
            7 => JAIL + r.below(PAGES) * PAGE_SIZE + r.below(PAGE_SIZE),
            8 => r.below(16),
            9 => r.below(64) << 12,
            10 => 0,
            11 => rt::time::now() + r.below(100_000),
            12 => u64::MAX - r.below(3),
            13 => USER_END - r.below(8192),
            14 => (JAIL + OBJECTS * PAGE_SIZE + (32 + r.below(28)) * OBJECT_SIZE) | r.below(16),
            _ => r.number(),
        }
    }

    fn fill(&mut self) {
        for thread in 0..THREADS {
            for call in 0..CALLS {
                for word in 0..WORDS {
                    let value = match word {
                        0 => {
                            let row = self.random.below(SYSCALLS.len() as u64 + 3);
                            (row + 1) | self.random.below(80) << 8
                        }
                        _ => self.word(),
                    };
                    self.set((4 + thread) * PAGE_SIZE + (call * WORDS + word) * 8, value);
                }
                // A reference without a body cannot be destroyed, and the jail must go in the end.
                let at = (4 + thread) * PAGE_SIZE + call * WORDS * 8;
                if self.get(at) as u8 == Call::ReferenceDestroy as u8 {
                    self.set(at + 16, 0);
                }
            }
        }
        // States of threads: valid but for a few words.
        for n in 0..4 {
            let at = STATES * PAGE_SIZE + n * 1024;
            let mut state = ThreadState {
                priority: self.random.below(8),
                stop_count: 1 + self.random.below(2),
                tag: self.random.below(100),
                ..ThreadState::default()
            };
            state.registers.rip = JAIL + self.random.below(3) * 22;
            state.registers.rsp = JAIL + (4 + self.random.below(THREADS)) * PAGE_SIZE;
            state.registers.rflags = 0x202;
            // SAFETY: a state is words without padding.
            let words = unsafe {
                core::slice::from_raw_parts(
                    core::ptr::from_ref(&state).cast::<u64>(),
                    core::mem::size_of::<ThreadState>() / 8,
                )
            };
            for (i, word) in words.iter().enumerate().take(124) {
                self.set(at + i as u64 * 8, *word);
            }
            for _ in 0..self.random.below(4) {
                let (i, word) = (self.random.below(96), self.word());
                self.set(at + i * 8, word);
            }
        }
    }

    /// Runs the round with this seed.
    pub fn round(&mut self, seed: u64) -> Result<(), Failure> {
        self.random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let before = self.probe.census();
        let jail = self.build()?;
        self.fill();
        let rounds = ROUNDS.load(Relaxed);
        self.probe.set(1, false);
        for thread in &jail.threads {
            thread.resume().must("resume")?;
        }
        // After this time the threads are stopped, wherever they are.
        rt::time::sleep(TIME);
        for thread in &jail.threads {
            thread.stop().must("stop")?;
        }
        self.probe.set(0, false);
        let at = fermata_hostile_calls as *const () as u64 - fermata_hostile as *const () as u64;
        self.calls = (self.calls.0 + self.get(at), EXCEPTIONS.load(Relaxed));
        // All pages that the jail can reach must be its own.
        for (start, end) in REACH {
            self.reach(&jail, start, end)?;
        }
        let state = jail.space.get_state(0).must("the space")?;
        if state.used > state.quota {
            crate::fail!("{} of {} bytes used", state.used, state.quota);
        }
        if WRONG.load(Relaxed) != 0 {
            return Err("the neighbour computed something else".into());
        }
        self.take_down(jail)?;
        if ROUNDS.load(Relaxed) == rounds {
            rt::time::sleep(2_000_000);
            if ROUNDS.load(Relaxed) == rounds {
                return Err("the neighbour does not run".into());
            }
        }
        let after = self.probe.census();
        match before.iter().zip(&after).position(|(a, b)| a != b) {
            Some(i) => Err(Failure::new(format!(
                "{} objects of type {} before and {} after",
                before[i],
                TYPES[i].name(),
                after[i]
            ))),
            None => Ok(()),
        }
    }

    /// Whether all pages that the jail reaches in a range are pages of its segment.
    fn reach(&self, jail: &Jail, start: u64, end: u64) -> Result<(), Failure> {
        let mut at = start;
        while let Ok((offset, _)) = jail.reach.search(at, end, 1) {
            let page =
                Window::map(&jail.reach, offset, PAGE_SIZE, abi::access::READ).must("a window")?;
            let mut word = [0; 8];
            if page.read(PAGE_SIZE - 8, &mut word).is_err() {
                return Err("a page of the jail cannot be read".into());
            }
            let word = u64::from_le_bytes(word);
            let own = (0..PAGES).any(|page| self.get(page * PAGE_SIZE + 511 * 8) == word);
            if !own {
                crate::fail!("the jail reaches a page that is not its own, at {offset:#x}");
            }
            at = offset + PAGE_SIZE;
        }
        Ok(())
    }

    fn take_down(&self, jail: Jail) -> Result<(), Failure> {
        let mut vacant = 0;
        // References first: with them go the identities that they keep.
        for references in [true, false] {
            let mut at = 0;
            while let Ok((offset, ty)) = jail.inside.search(at, PAGES * PAGE_SIZE, 0x3fe) {
                at = offset + OBJECT_SIZE;
                let Some(ty) = Type::from_raw(ty) else {
                    continue;
                };
                if references && ty != Type::Reference {
                    continue;
                }
                let code = on(
                    ty,
                    Common::Destroy,
                    [self.window.address() + offset, 0, 0, 0, 0],
                );
                vacant += u64::from(code != Code::Ok);
            }
        }
        let Jail {
            space,
            space_ref,
            threads,
            ..
        } = jail;
        drop(threads);
        drop(space_ref);
        drop(space);
        if vacant > 0 {
            crate::fail!("{vacant} objects of the jail cannot be destroyed");
        }
        Ok(())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // Before its stack is freed.
        let _ = self.neighbour.stop();
    }
}
