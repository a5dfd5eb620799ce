//! A simulated machine for tests, one per thread of the test runner.
//!
//! [`reset`] makes a fresh machine; with the other functions a test observes it and decides what happens next.
//! The host runs the interrupt model: there is no user mode to start and no stack to switch to, so a test calls
//! [`Kernel::trap`] itself. Nothing in here is `unsafe`.

mod registers;

pub use registers::Frame;

use crate::context::context_of;
use crate::mask::{Level, MaskMethod};
use crate::{Context, Kernel, Pfn, Trap};
use abi::{collocated, PAGE_SIZE};
use core::cell::{Cell, RefCell};
use core::fmt::Arguments;
use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The lowest frame of RAM; those below stand for the low megabyte.
pub const FIRST_FRAME: u32 = 256;
/// One more than the highest frame that the processor can address, with 40 bits.
pub const END_FRAME: u32 = 1 << 28;
/// Device interrupt lines.
pub const IRQ_LINES: u8 = 16;
/// The processor's own lines.
pub const OWN_LINES: Range<u8> = IRQ_LINES..IRQ_LINES + 12;
/// Whether contexts have room for stacks of their own.
pub(crate) const OWN_STACKS: bool = true;
/// Bytes of a kernel stack.
pub const STACK_BYTES: usize = 16384;
/// The number of different events.
pub const EVENTS: u8 = 96;

struct Machine {
    ram: Vec<u8>,
    pool_total: u64,
    pool_used: u64,
    /// Number of allocations that still succeed.
    allocations_left: u64,
    table_limit: u32,
    tables_used: u32,
    now: u64,
    deadline: u64,
    /// The lines that are raised and whose interrupts have not been delivered.
    pending: VecDeque<u8>,
    unmasked: u16,
    /// The level that the kernel masks. The kernel is entered with everything masked.
    level: Level,
    ports: (u16, Vec<(u16, u16)>),
    command_line: &'static str,
    log: Vec<String>,
    kernel: Option<Rc<dyn Fn(Trap)>>,
    /// The number of times that each event came.
    events: [u64; EVENTS as usize],
    /// See [`accesses`].
    accesses: u64,
    /// The page table that is loaded, and how often a page table has been loaded.
    loaded: Root,
    loads: u64,
}

impl Machine {
    fn new(frames: u32) -> Machine {
        Machine {
            ram: vec![0; frames as usize * PAGE_SIZE as usize],
            pool_total: 64 << 20,
            pool_used: 0,
            allocations_left: u64::MAX,
            table_limit: u32::MAX,
            tables_used: 0,
            now: 0,
            deadline: u64::MAX,
            pending: VecDeque::new(),
            unmasked: 0,
            level: Level::All,
            ports: (0, Vec::new()),
            command_line: "",
            log: Vec::new(),
            kernel: None,
            events: [0; EVENTS as usize],
            accesses: 0,
            loaded: 0,
            loads: 0,
        }
    }

    /// `length` bytes of a frame from `offset` on.
    fn frame(&mut self, pfn: Pfn, offset: u64, length: usize) -> &mut [u8] {
        self.accesses += 1;
        let frames = (self.ram.len() / PAGE_SIZE as usize) as u32;
        assert!(
            pfn.0.wrapping_sub(FIRST_FRAME) < frames,
            "not a frame of user memory: {pfn:?}"
        );
        assert!(
            offset <= PAGE_SIZE && length as u64 <= PAGE_SIZE - offset,
            "an access that crosses a page: offset {offset}, {length} bytes"
        );
        let start = (pfn.0 - FIRST_FRAME) as usize * PAGE_SIZE as usize + offset as usize;
        &mut self.ram[start..start + length]
    }
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new(1024));
}

fn with<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with(|machine| f(&mut machine.borrow_mut()))
}

// ---- what tests may do ---------------------------------------------------------------------------

/// Makes a fresh machine with that many zeroed frames of user memory, from [`FIRST_FRAME`] on; 64 MiB of kernel
/// memory; table pages without limit; time 0; every line masked.
pub fn reset(frames: u32) {
    with(|m| *m = Machine::new(frames));
}

/// Whether the frame begins with these bytes.
pub fn holds(pfn: Pfn, bytes: &[u8]) -> bool {
    with(|m| m.frame(pfn, 0, bytes.len()) == bytes)
}

/// Sets the number of bytes of kernel memory.
pub fn set_pool(bytes: u64) {
    with(|m| m.pool_total = bytes);
}

/// Makes calls of [`alloc_slice`] and [`alloc_stack`] fail after the next `n` calls. `u64::MAX`: they no longer fail.
pub fn fail_allocations_after(n: u64) {
    with(|m| m.allocations_left = n);
}

/// Sets the number of table pages that all page tables may hold together.
pub fn set_table_limit(pages: u32) {
    with(|m| m.table_limit = pages);
}

/// The number of table pages that all page tables hold together.
pub fn tables_used() -> u32 {
    with(|m| m.tables_used)
}

/// Sets the command line.
pub fn set_command_line(line: &'static str) {
    with(|m| m.command_line = line);
}

/// Sets the clock, which must not go back, in nanoseconds.
pub fn set_now(now: u64) {
    with(|m| {
        assert!(now >= m.now, "time does not run backwards");
        m.now = now;
    });
}

/// The number of times that this event came.
pub fn events(number: u8) -> u64 {
    with(|m| m.events[usize::from(number)])
}

/// The number of accesses to user memory and page tables, as a measure of what a call costs: each range of bytes, each
/// entry and each loading of a page table counts as one.
pub fn accesses() -> u64 {
    with(|m| m.accesses)
}

/// The number of links between objects that were followed: another measure of what a call costs.
pub fn links() -> u64 {
    LINKS.get()
}

thread_local! {
    /// Number of links between objects that were followed.
    static LINKS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a link between objects that is followed.
pub(crate) fn follow() {
    LINKS.set(LINKS.get() + 1);
}

/// The time for which the timer is set; `u64::MAX`: none.
pub fn deadline() -> u64 {
    with(|m| m.deadline)
}

/// Sets the kernel whose [`Kernel::interrupt`] is called.
pub fn set_kernel<K: Kernel>(kernel: &'static K) {
    with(|m| m.kernel = Some(Rc::new(|trap| kernel.interrupt(trap))));
}

/// Raises the line of a device. The next [`take_interrupt`] or [`wait_for_interrupt`] that finds the line
/// unmasked delivers it.
pub fn raise(line: u8) {
    assert!(line < IRQ_LINES);
    raise_line(line);
}

/// Raises a line. Returns false if it is raised already.
fn raise_line(line: u8) -> bool {
    with(|m| {
        let new = !m.pending.contains(&line);
        if new {
            m.pending.push_back(line);
        }
        new
    })
}

/// Takes the interrupt that would now interrupt a running program: the timer when its deadline has passed, else
/// the first line that is raised and not masked. A test hands it to [`Kernel::trap`].
pub fn take_interrupt() -> Option<Trap> {
    take_above(Level::None)
}

/// Takes the next interrupt of a level above `masked`.
fn take_above(masked: Level) -> Option<Trap> {
    with(|m| {
        if m.now >= m.deadline && Level::Clock > masked {
            m.deadline = u64::MAX;
            return Some(Trap::Timer);
        }
        let comes = |line: &u8| {
            Level::of_line(*line) > masked && (*line >= IRQ_LINES || m.unmasked & 1 << line != 0)
        };
        let at = m.pending.iter().position(comes)?;
        let line = m.pending.remove(at)?;
        if line < IRQ_LINES {
            m.unmasked &= !(1 << line);
        }
        Some(Trap::Irq(line))
    })
}

/// The level that the kernel masks at present.
pub fn masked() -> Level {
    with(|m| m.level)
}

/// Whether the line is unmasked.
pub fn irq_unmasked(line: u8) -> bool {
    with(|m| m.unmasked & 1 << line != 0)
}

/// The ports that the running space may use.
pub fn ports() -> Vec<(u16, u16)> {
    with(|m| m.ports.1.clone())
}

/// Takes the lines logged so far.
pub fn take_log() -> Vec<String> {
    with(|m| std::mem::take(&mut m.log))
}

/// The error of [`run`]: the processor would have waited for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle;

/// Runs `f`. If `f` comes to [`wait_for_interrupt`] and nothing can ever happen (no timer set, no
/// line raised), stops `f` there and returns `Idle`.
pub fn run<R>(f: impl FnOnce() -> R) -> Result<R, Idle> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => Ok(result),
        Err(payload) if payload.is::<Idle>() => Err(Idle),
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

// ---- the interface of the machine ----------------------------------------------------------------

/// Panics: on the host a test calls [`Kernel::trap`] itself.
pub fn start<K: Kernel>(_kernel: &'static K, _first: &'static K::Thread) -> ! {
    panic!("the simulated machine has no user mode to start");
}

/// Makes `n` values of `T` in the kernel's pool, for ever. `None` if the pool is used up.
pub fn alloc_slice<T: 'static>(n: usize, init: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let bytes = (core::mem::size_of::<T>() as u64).checked_mul(n as u64)?;
    take_pool(bytes)?;
    Some(Box::leak(
        (0..n).map(init).collect::<Vec<T>>().into_boxed_slice(),
    ))
}

fn take_pool(bytes: u64) -> Option<()> {
    with(|m| {
        if m.allocations_left == 0 || m.pool_total.saturating_sub(m.pool_used) < bytes {
            return None;
        }
        if m.allocations_left != u64::MAX {
            m.allocations_left -= 1;
        }
        m.pool_used += bytes;
        Some(())
    })
}

/// The number of bytes of the kernel's pool: all, and free.
pub fn pool_bytes() -> (u64, u64) {
    with(|m| (m.pool_total, m.pool_total.saturating_sub(m.pool_used)))
}

/// Whether the frame is RAM that belongs to users.
pub fn user_frame(pfn: Pfn) -> bool {
    with(|m| pfn.0.wrapping_sub(FIRST_FRAME) < (m.ram.len() / PAGE_SIZE as usize) as u32)
}

/// Whether the frame may be mapped as device memory: it is not RAM, and the processor can address it.
pub fn device_frame(pfn: Pfn) -> bool {
    device_frames(pfn, 1)
}

/// Whether all of `count` frames from `first` on may be mapped as device memory.
pub fn device_frames(first: Pfn, count: u32) -> bool {
    let (start, end) = (u64::from(first.0), u64::from(first.0) + u64::from(count));
    let ram = u64::from(frame_limit());
    start >= ram && end <= u64::from(END_FRAME)
}

/// One more than the highest frame of RAM.
pub fn frame_limit() -> u32 {
    with(|m| FIRST_FRAME + (m.ram.len() / PAGE_SIZE as usize) as u32)
}

/// Reads the aligned word at `offset` of the frame.
pub fn read_word(pfn: Pfn, offset: u64) -> u64 {
    assert!(
        offset.is_multiple_of(8),
        "a misaligned word: offset {offset}"
    );
    let mut word = [0; 8];
    read_bytes(pfn, offset, &mut word);
    u64::from_le_bytes(word)
}

/// Writes the aligned word at `offset` of the frame.
pub fn write_word(pfn: Pfn, offset: u64, value: u64) {
    assert!(
        offset.is_multiple_of(8),
        "a misaligned word: offset {offset}"
    );
    write_bytes(pfn, offset, &value.to_le_bytes());
}

/// Reads aligned words from `offset` of the frame on. Panics if they do not lie within it.
pub fn read_words(pfn: Pfn, offset: u64, into: &mut [u64]) {
    for (word, at) in into.iter_mut().zip((offset..).step_by(8)) {
        *word = read_word(pfn, at);
    }
}

/// Reads `N` aligned words from `offset` of the frame on. Panics if they do not lie within it.
pub fn read_array<const N: usize>(pfn: Pfn, offset: u64) -> [u64; N] {
    core::array::from_fn(|i| read_word(pfn, offset + 8 * i as u64))
}

/// Writes aligned words from `offset` of the frame on. Panics if they do not lie within it.
pub fn write_words(pfn: Pfn, offset: u64, from: &[u64]) {
    for (word, at) in from.iter().zip((offset..).step_by(8)) {
        write_word(pfn, at, *word);
    }
}

/// Reads bytes from `offset` of the frame on. Panics if they do not lie within it.
pub fn read_bytes(pfn: Pfn, offset: u64, into: &mut [u8]) {
    with(|m| into.copy_from_slice(m.frame(pfn, offset, into.len())));
}

/// Writes bytes from `offset` of the frame on. Panics if they do not lie within it.
pub fn write_bytes(pfn: Pfn, offset: u64, from: &[u8]) {
    with(|m| m.frame(pfn, offset, from.len()).copy_from_slice(from));
}

/// Copies bytes between frames (frame, offset). Panics if they do not lie within one frame on each side.
/// Ranges that overlap are copied from the lowest byte up.
pub fn copy_bytes(to: (Pfn, u64), from: (Pfn, u64), length: u64) {
    assert!(length <= PAGE_SIZE, "a copy of more than a page");
    for i in 0..length {
        let mut byte = [0];
        read_bytes(from.0, from.1 + i, &mut byte);
        write_bytes(to.0, to.1 + i, &byte);
    }
    // Makes the checks for a copy of no bytes, too.
    read_bytes(from.0, from.1, &mut []);
    write_bytes(to.0, to.1, &[]);
}

/// The page table of one space: a cache of the mapping hierarchy. It counts table pages as the real machine
/// does, with four levels of 512 entries.
#[derive(Default)]
pub struct PageTable {
    entries: RefCell<BTreeMap<u64, (Pfn, u64)>>,
    /// The number of entries in use of each table page; a table page is named by its level and the address
    /// divided by the bytes that it covers. The root has level 4.
    tables: RefCell<BTreeMap<(u32, u64), u32>>,
    /// The number of its place, if it is collocated.
    place: Cell<Option<u64>>,
}

impl PageTable {
    /// An empty page table, which needs no table pages.
    pub const fn new() -> PageTable {
        PageTable {
            entries: RefCell::new(BTreeMap::new()),
            tables: RefCell::new(BTreeMap::new()),
            place: Cell::new(None),
        }
    }

    /// The number of levels of tables that belong to this page table alone: all places share the upper two.
    fn levels(&self) -> u32 {
        if self.is_collocated() {
            2
        } else {
            4
        }
    }

    fn key(level: u32, address: u64) -> (u32, u64) {
        (level, address >> (12 + 9 * level))
    }

    /// The frame at `address` and the rights that it is mapped with.
    pub fn lookup(&self, address: u64) -> Option<(Pfn, u64)> {
        with(|m| m.accesses += 1);
        self.entries.borrow().get(&(address / PAGE_SIZE)).copied()
    }

    /// Maps the page around `address`, and replaces any translation that it had. Rights are of
    /// [`abi::access`]. `None`, with nothing changed, if there is no memory for a table page.
    pub fn insert(&self, address: u64, pfn: Pfn, rights: u64, device: bool) -> Option<()> {
        let (start, end) = self.reach();
        assert!(
            (start..end).contains(&address),
            "not an address of this space: {address:#x}"
        );
        assert!(
            user_frame(pfn) || device && device_frame(pfn),
            "not for users: {pfn:?}"
        );
        let mut tables = self.tables.borrow_mut();
        let missing = (1..=self.levels())
            .filter(|&l| !tables.contains_key(&Self::key(l, address)))
            .count();
        with(|m| {
            if (m.tables_used as u64) + missing as u64 > u64::from(m.table_limit) {
                return None;
            }
            m.tables_used += missing as u32;
            m.accesses += 1;
            Some(())
        })?;
        let old = self
            .entries
            .borrow_mut()
            .insert(address / PAGE_SIZE, (pfn, rights));
        let mut new_below = old.is_none();
        for level in 1..=self.levels() {
            let new_here = !tables.contains_key(&Self::key(level, address));
            *tables.entry(Self::key(level, address)).or_insert(0) += u32::from(new_below);
            new_below = new_here;
        }
        Some(())
    }

    /// Maps `pages` pages from `address` on to consecutive frames from `first` on, except pages that are mapped already
    /// and frames that do not belong to users. One table of the lowest level must translate them all; if that table
    /// does not exist, nothing happens.
    pub fn fill(&self, address: u64, pages: u64, first: Pfn, rights: u64) {
        assert!(
            address / PAGE_SIZE % 512 + pages <= 512,
            "pages of two tables"
        );
        let mut tables = self.tables.borrow_mut();
        let Some(count) = tables.get_mut(&Self::key(1, address)) else {
            return;
        };
        let mut entries = self.entries.borrow_mut();
        for i in 0..pages {
            with(|m| m.accesses += 1);
            let pfn = Pfn(first.0.wrapping_add(i as u32));
            if !entries.contains_key(&(address / PAGE_SIZE + i)) && user_frame(pfn) {
                entries.insert(address / PAGE_SIZE + i, (pfn, rights));
                *count += 1;
            }
        }
    }

    /// Removes the translations of a range of whole pages. Returns the number of translations removed.
    pub fn remove(&self, from: u64, to: u64) -> u32 {
        assert!(
            from.is_multiple_of(PAGE_SIZE) && to.is_multiple_of(PAGE_SIZE),
            "parts of pages"
        );
        let (first, end) = (from / PAGE_SIZE, to / PAGE_SIZE);
        let pages: Vec<u64> = self
            .entries
            .borrow()
            .range(first..end.max(first))
            .map(|(&page, _)| page)
            .collect();
        let removed = pages.len() as u32;
        with(|m| m.accesses += u64::from(removed));
        let mut tables = self.tables.borrow_mut();
        for page in pages {
            self.entries.borrow_mut().remove(&page);
            for level in 1..=self.levels() {
                let key = Self::key(level, page * PAGE_SIZE);
                let used = tables
                    .get_mut(&key)
                    .expect("a table page above every entry");
                *used -= 1;
                if *used > 0 {
                    break;
                }
                tables.remove(&key);
                with(|m| m.tables_used = m.tables_used.saturating_sub(1));
            }
        }
        removed
    }

    /// Removes all translations and frees every table page.
    pub fn clear(&self) {
        let (start, end) = self.reach();
        self.remove(start, end);
    }

    /// Frees about `most` table pages with all translations in them; all of them if it has no more.
    pub fn clear_some(&self, most: u32) {
        /// Bytes below a table of the lowest level.
        const TABLE_REACH: u64 = 512 * PAGE_SIZE;
        let (start, end) = self.reach();
        let before = self.pages();
        while self.pages() > before.saturating_sub(most) {
            let first = self.entries.borrow().keys().next().copied();
            let Some(first) = first else { return };
            let from = (first * PAGE_SIZE) & !(TABLE_REACH - 1);
            self.remove(from.max(start), (from + TABLE_REACH).min(end));
        }
    }

    /// The number of table pages that this page table has.
    pub fn pages(&self) -> u32 {
        self.tables.borrow().len() as u32
    }

    /// Its name in a context.
    pub(crate) fn root_of(&'static self) -> Root {
        if self.is_collocated() {
            0
        } else {
            core::ptr::from_ref(self) as usize
        }
    }

    /// Whether a context with this root means this page table.
    pub(crate) fn is_root(&'static self, root: Root) -> bool {
        self.root_of() == root
    }

    /// Makes this the page table of a place ([`abi::collocated`]). `None` if there is no such place, or the table has
    /// translations or a place already.
    pub fn collocate(&self, place: u64) -> Option<()> {
        if place >= collocated::COUNT || self.pages() > 0 || self.is_collocated() {
            return None;
        }
        self.place.set(Some(place));
        Some(())
    }

    /// Whether every page table already leads to the place. Page tables here share nothing.
    #[must_use]
    pub const fn leads_to(_: u64) -> bool {
        false
    }

    /// Whether this is the page table of a place.
    pub fn is_collocated(&self) -> bool {
        self.place.get().is_some()
    }

    /// Clears the page table, and makes it an ordinary one.
    pub fn leave_place(&self) {
        self.clear();
        self.place.set(None);
    }

    /// Its addresses: the first, and the end.
    pub fn reach(&self) -> (u64, u64) {
        let place = self.place.get();
        place.map_or((0, collocated::START), collocated::range)
    }
}

/// The address of a page table, for comparison only; 0: whichever is loaded.
pub(crate) type Root = usize;

/// The page table of a thread that has none.
pub(crate) fn no_root() -> Root {
    0
}

/// A kernel stack.
pub struct Stack(());

/// Allocates a kernel stack. `None` if the pool is used up.
pub fn alloc_stack() -> Option<&'static Stack> {
    take_pool(STACK_BYTES as u64)?;
    Some(Box::leak(Box::new(Stack(()))))
}

/// Panics: the host runs the interrupt model.
pub fn switch_stack(_from: &'static Context, _to: &'static Context) {
    panic!("the simulated machine has no stacks to switch");
}

/// As [`switch_stack`].
pub fn stack_handoff(_from: &'static Context, _to: &'static Context) {
    panic!("the simulated machine has no stacks to hand over");
}

/// As [`switch_stack`].
pub fn stack_attach<K: Kernel>(_thread: &'static K::Thread, _stack: &'static Stack) {
    panic!("the simulated machine has no stacks to attach");
}

/// As [`switch_stack`].
pub fn stack_detach(_context: &'static Context) -> Option<&'static Stack> {
    None
}

/// As [`switch_stack`].
pub fn switch_context(_to: &'static Context) -> ! {
    panic!("the simulated machine has no stacks to switch");
}

/// As [`switch_stack`].
pub fn call_continuation<K: Kernel>(_thread: &'static K::Thread) -> ! {
    panic!("the simulated machine has no stacks to call on");
}

pub(crate) fn set_stack(context: &Context, _stack: &'static Stack) {
    context.on_stack().top.set(1);
}

/// Does nothing: a simulated stack is empty.
pub fn reset_stack<K: Kernel>(thread: &'static K::Thread) {
    let context = context_of::<K>(thread);
    assert!(
        context.on_stack().top.get() != 0,
        "the thread has no stack of its own"
    );
    context.on_stack().activation.set(1);
}

pub(crate) fn cpu_stack_top() -> u64 {
    0
}

pub(crate) fn fpu_flush(_context: &Context) {}

pub(crate) fn fpu_drop(_context: &Context) {}

pub(crate) fn fpu_mask() -> u32 {
    0xffff
}

/// As [`now`]: the simulated machine counts time in nanoseconds only.
pub fn ticks() -> u64 {
    now()
}

/// Converts a value of [`ticks`] to nanoseconds.
pub fn time_of(ticks: u64) -> u64 {
    ticks
}

/// The clock's value at time 0, and nanoseconds per tick in units of 2^-32, as on the real machine.
pub fn clock() -> (u64, u64) {
    (0, 1 << 32)
}

/// Nanoseconds since the machine was made.
pub fn now() -> u64 {
    with(|m| m.now)
}

/// Sets the timer to an absolute time; `u64::MAX`: none.
pub fn set_timer(deadline: u64) {
    with(|m| m.deadline = deadline);
}

/// The latest deadline to which time jumps, in nanoseconds; a later deadline never comes.
const HORIZON: u64 = 1 << 62;

/// Delivers pending interrupts to [`Kernel::interrupt`]; if there are none, time jumps to the timer's deadline.
pub fn wait_for_interrupt() {
    let trap = take_interrupt().or_else(|| {
        if with(|m| m.deadline) > HORIZON {
            return None;
        }
        with(|m| m.now = m.now.max(m.deadline));
        take_interrupt()
    });
    let Some(trap) = trap else {
        std::panic::resume_unwind(Box::new(Idle))
    };
    let kernel = with(|m| m.kernel.clone());
    kernel.expect("a test that waits names its kernel by set_kernel")(trap);
}

/// Delivers pending interrupts to [`Kernel::interrupt`].
pub fn let_interrupts_in() {
    let masked = with(|m| m.level);
    mask_restore(Level::None);
    with(|m| m.level = masked);
}

pub(crate) fn mask_raise(level: Level) -> Level {
    with(|m| {
        let before = m.level;
        m.level = level.max(before);
        before
    })
}

/// Interrupts come only when the mask is lowered, and are handled with everything masked.
pub(crate) fn mask_restore(previous: Level) {
    while let Some(trap) = take_above(previous) {
        let kernel = with(|m| m.kernel.clone());
        with(|m| m.level = Level::All);
        kernel.expect("a test with preemption names its kernel by set_kernel")(trap);
    }
    with(|m| m.level = previous);
}

/// Masks everything: the simulated machine has one method of masking.
pub(crate) fn begin_section(_: MaskMethod) -> u64 {
    mask_raise(Level::All) as u64
}

/// See [`begin_section`].
pub(crate) fn end_section(_: MaskMethod, before: u64) {
    let before = Level::EVERY
        .into_iter()
        .find(|level| *level as u64 == before);
    mask_restore(before.expect("a level"));
}

/// Raises one of the processor's own lines. Returns false if it is raised already and has not arrived yet.
pub fn irq_raise(line: u8) -> bool {
    assert!(OWN_LINES.contains(&line), "not the processor's own line");
    raise_line(line)
}

/// Masks the line.
pub fn irq_mask(line: u8) {
    assert!(line < IRQ_LINES);
    with(|m| m.unmasked &= !(1 << line));
}

/// Unmasks the line.
pub fn irq_unmask(line: u8) {
    assert!(line < IRQ_LINES);
    with(|m| m.unmasked |= 1 << line);
}

/// Takes all I/O ports from user mode, until those of the next thread are loaded.
pub fn forget_ports() {
    load_ports(0, &[]);
}

/// Sets the I/O ports that user mode may use, as (first, count), and the number by which contexts name this set.
pub fn load_ports(number: u16, ranges: &[(u16, u16)]) {
    with(|m| m.ports = (number, ranges.to_vec()));
}

/// Does what the machine does before it runs a thread: loads the thread's I/O ports and page table.
pub fn enter_user<K: Kernel>(kernel: &'static K, thread: &'static K::Thread) {
    let root = context_of::<K>(thread).table.get();
    with(|m| {
        if root != 0 && m.loaded != root {
            m.loaded = root;
            m.loads += 1;
            m.accesses += 1;
        }
    });
    if with(|m| m.ports.0) != context_of::<K>(thread).ports() {
        kernel.change_ports(thread);
    }
}

/// How often a page table has been loaded.
pub fn loads() -> u64 {
    with(|m| m.loads)
}

/// Calls `f` for each range (start, size) of free user memory.
pub fn free_ranges(f: &mut dyn FnMut(u64, u64)) {
    let size = with(|m| m.ram.len()) as u64;
    f(u64::from(FIRST_FRAME) * PAGE_SIZE, size);
}

/// Physical start and size of the boot archive: the simulated machine has none.
pub fn archive() -> (u64, u64) {
    (0, 0)
}

/// The kernel's command line.
pub fn command_line() -> &'static str {
    with(|m| m.command_line)
}

/// Keeps the line for [`take_log`].
pub fn log(line: Arguments) {
    let line = line.to_string();
    with(|m| m.log.push(line));
}

/// Counts the event.
pub fn event(number: u8) {
    with(|m| m.events[usize::from(number)] += 1);
}

/// Panics with the message.
pub fn die(message: Arguments) -> ! {
    panic!("{message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::access::{READ, WRITE};
    use abi::registers::Lost;
    use abi::ROLES;

    const PAGE: u64 = PAGE_SIZE;

    #[test]
    fn interrupts_wait_for_the_level_that_lets_them_in() {
        struct Log(RefCell<Vec<Trap>>);
        impl Kernel for Log {
            type Thread = Context;
            fn context(context: &'static Context) -> &'static Context {
                context
            }
            fn trap(&'static self, context: &'static Context, _: Trap) -> &'static Context {
                context
            }
            fn interrupt(&'static self, trap: Trap) {
                assert_eq!(masked(), Level::All);
                self.0.borrow_mut().push(trap);
            }
        }
        reset(1);
        let log: &'static Log = Box::leak(Box::new(Log(RefCell::new(Vec::new()))));
        set_kernel(log);
        let came = || std::mem::take(&mut *log.0.borrow_mut());
        let (low, high, clock) = (OWN_LINES.start, OWN_LINES.start + 4, OWN_LINES.end - 1);
        for line in [low, high, clock] {
            assert!(irq_raise(line));
            assert!(!irq_raise(line));
        }
        crate::mask::restore(Level::High);
        assert_eq!(came(), [Trap::Irq(clock)]);
        assert_eq!(crate::mask::raise(Level::Low), Level::High);
        assert_eq!(masked(), Level::High);
        crate::mask::restore(Level::None);
        assert_eq!(came(), [Trap::Irq(low), Trap::Irq(high)]);
        crate::mask::masked(Level::Clock, || {
            raise(3);
            irq_unmask(3);
            set_timer(0);
            assert_eq!(came(), []);
        });
        assert_eq!(came(), [Trap::Timer, Trap::Irq(3)]);
    }

    #[test]
    fn frames_hold_what_was_written() {
        reset(4);
        let (a, b) = (Pfn(FIRST_FRAME), Pfn(FIRST_FRAME + 3));
        write_word(a, 4088, 0x0102_0304_0506_0708);
        copy_bytes((b, 1), (a, 4089), 7);
        assert_eq!(read_word(b, 0), 0x0102_0304_0506_0700);
        assert!(user_frame(b) && !user_frame(Pfn(FIRST_FRAME + 4)) && !user_frame(Pfn(0)));
        assert_eq!(frame_limit(), FIRST_FRAME + 4);
    }

    #[test]
    #[should_panic(expected = "not a frame of user memory")]
    fn other_frames_are_refused() {
        reset(4);
        read_word(Pfn(FIRST_FRAME + 4), 0);
    }

    #[test]
    #[should_panic(expected = "crosses a page")]
    fn accesses_stay_within_a_page() {
        reset(4);
        write_bytes(Pfn(FIRST_FRAME), 4090, &[0; 7]);
    }

    #[test]
    fn allocations_fail_when_told_to() {
        reset(1);
        fail_allocations_after(2);
        assert!(alloc_slice(1, |i| i).is_some() && alloc_stack().is_some());
        assert!(alloc_slice(1, |i| i).is_none());
        fail_allocations_after(u64::MAX);
        set_pool(pool_bytes().0 - pool_bytes().1 + 80);
        assert!(alloc_slice(11, |_| 0u64).is_none());
        assert_eq!(
            alloc_slice(10, |i| i as u64 * 2).map(|slice| slice[9]),
            Some(18)
        );
        assert_eq!(pool_bytes().1, 0);
    }

    #[test]
    fn tables_count_their_pages_and_give_them_back() {
        reset(4);
        let table = PageTable::new();
        let frame = Pfn(FIRST_FRAME);
        for page in 0..600 {
            table.insert(page * PAGE, frame, READ, false).unwrap();
        }
        table.insert(1 << 40, frame, WRITE, false).unwrap();
        // Table pages: the root; for the low pages one table on each of the levels 3 and 2 and two on level 1;
        // for the far one three.
        assert_eq!((table.pages(), tables_used()), (8, 8));
        assert_eq!(table.lookup((1 << 40) + 4095), Some((frame, WRITE)));
        table.remove(0, 512 * PAGE);
        assert_eq!((table.pages(), table.lookup(511 * PAGE)), (7, None));
        assert_eq!(table.lookup(512 * PAGE), Some((frame, READ)));
        table.clear();
        assert_eq!((table.pages(), tables_used()), (0, 0));
    }

    #[test]
    fn an_insertion_without_memory_changes_nothing() {
        reset(4);
        let table = PageTable::new();
        let frame = Pfn(FIRST_FRAME);
        set_table_limit(6);
        table.insert(0, frame, READ, false).unwrap();
        assert_eq!(table.insert(1 << 40, frame, READ, false), None);
        assert_eq!((table.pages(), table.lookup(1 << 40)), (4, None));
        table.insert(PAGE, frame, READ, false).unwrap();
    }

    #[test]
    fn time_and_interrupts_come_when_told_to() {
        reset(1);
        set_timer(100);
        assert_eq!(take_interrupt(), None);
        raise(4);
        assert_eq!(take_interrupt(), None);
        irq_unmask(4);
        assert_eq!(take_interrupt(), Some(Trap::Irq(4)));
        assert!(!irq_unmasked(4));
        set_now(100);
        assert_eq!(take_interrupt(), Some(Trap::Timer));
        assert_eq!(run(wait_for_interrupt), Err(Idle));
    }

    #[test]
    fn registers_are_sanitised() {
        let context = Context::new();
        let mut registers = abi::Registers::starting(0x1000, 0, 0);
        registers.set_flags(u64::MAX);
        let (link, lost) = ROLES.lost[0];
        assert_eq!(lost, Lost::Next);
        registers.set(link, 7);
        context.set_registers(&registers);
        // Only the flags that a program may set.
        let flags = ROLES.user_flags | ROLES.fixed_flags;
        assert_eq!(context.registers().flags(), flags);
        assert_eq!(context.registers().get(link), 7);
        context.set_full(false);
        assert_eq!(context.registers().get(link), 0x1000 + ROLES.call_bytes);
        for (pc, base) in [(1 << 47, 0), (u64::MAX, 0), (0, 1 << 47), (0, 0xfff0 << 48)] {
            let mut wrong = abi::Registers::starting(pc, 0, 0);
            wrong.set(ROLES.bases[0], base);
            assert!(!crate::user_registers_ok(&wrong), "{pc:#x} {base:#x}");
        }
    }

    #[test]
    fn fpu_state_is_sanitised_and_stable() {
        use abi::state::FPU_BYTES;
        let context = Context::new();
        context.set_fpu(&[0xff; FPU_BYTES]);
        let clean = context.fpu();
        // The control word has 16 bits.
        assert_eq!(clean[..9], [255, 255, 0, 0, 0, 0, 0, 0, 255]);
        context.set_fpu(&clean);
        assert_eq!(context.fpu(), clean);
    }
}
