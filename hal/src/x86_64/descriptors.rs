//! Descriptor tables: segments, the task state with its stacks and port permissions, and the interrupt gates.

use super::cpu::{cpu, gates, Cpu};
use super::instructions::{wrmsr, MSR_STAR};
use super::{stack, trap};
use crate::context::needs::PORTS_SHIFT;
use crate::mask::{Irq, IRQ};
use core::arch::asm;
use core::cell::Cell;
use core::mem::offset_of;

pub(super) const KERNEL_CODE: u16 = 0x08;
pub(super) const KERNEL_DATA: u16 = 0x10;
/// `sysret` finds the user segments relative to this selector, which is itself not used.
const SYSRET_BASE: u16 = 0x18 | 3;
pub(super) const USER_DATA: u16 = 0x20 | 3;
pub(super) const USER_CODE: u16 = 0x28 | 3;
const TASK: u16 = 0x30;
/// The segments of collocated programs, which run in ring 1.
pub(super) const INNER_CODE: u16 = 0x40 | 1;
pub(super) const INNER_DATA: u16 = 0x48 | 1;

/// The size (in bytes) and number of interrupt stacks, for traps that may come at any instant or with a bad stack
/// pointer. They must hold only the words that the entry code moves away at once, and the frames of `die`.
pub(super) const IST_BYTES: usize = 8192;
pub(super) const IST_COUNT: usize = 5;
/// Vectors on interrupt stacks: debug and protection (a `sysret` to a wrong address would raise
/// the latter with the user's stack pointer), NMI, double fault, machine check.
const IST_OF: [(u8, u8); 5] = [(1, 4), (13, 4), (2, 2), (8, 1), (18, 3)];
/// The stack of interrupts, if they may come in the entry and exit code, where the stack pointer is the user's.
const IST_OF_INTERRUPTS: u8 = 5;

/// Number of 32-bit words in the bitmap of 65,536 ports; a word of ones follows the bitmap.
const PORT_WORDS: usize = 65536 / 32;

/// The task state segment. Its 64-bit fields are misaligned, hence 32-bit words.
#[repr(C)]
pub(super) struct TaskState {
    reserved0: Cell<u32>,
    /// Stacks for privilege levels 0 to 2.
    rsp: [Cell<u32>; 6],
    reserved1: [Cell<u32>; 2],
    ist: [[Cell<u32>; 2]; 7],
    reserved2: [Cell<u32>; 2],
    reserved3: Cell<u16>,
    /// Offset of the port permissions; beyond the end: no port is allowed.
    ports_offset: Cell<u16>,
    /// A set bit forbids a port.
    ports: [Cell<u32>; PORT_WORDS],
    end: Cell<u32>,
}

const PORTS_ON: u16 = offset_of!(TaskState, ports) as u16;
const PORTS_OFF: u16 = 0xffff;

impl TaskState {
    /// No stacks yet, and no ports.
    pub(super) const fn new() -> Self {
        TaskState {
            reserved0: Cell::new(0),
            rsp: [const { Cell::new(0) }; 6],
            reserved1: [const { Cell::new(0) }; 2],
            ist: [const { [const { Cell::new(0) }; 2] }; 7],
            reserved2: [const { Cell::new(0) }; 2],
            reserved3: Cell::new(0),
            ports_offset: Cell::new(PORTS_OFF),
            ports: [const { Cell::new(u32::MAX) }; PORT_WORDS],
            end: Cell::new(u32::MAX),
        }
    }
}

/// The segments, without that of the task state.
#[allow(
    clippy::declare_interior_mutable_const,
    reason = "each processor has its own"
)]
pub(super) const SEGMENTS: [Cell<u64>; 10] = [
    Cell::new(0),
    // Present, 64-bit code; present, writable data.
    Cell::new(0x00af_9b00_0000_ffff),
    Cell::new(0x00cf_9300_0000_ffff),
    Cell::new(0),
    // The same for privilege level 3.
    Cell::new(0x00cf_f300_0000_ffff),
    Cell::new(0x00af_fb00_0000_ffff),
    Cell::new(0),
    Cell::new(0),
    // The same for privilege level 1, code first.
    Cell::new(0x00af_bb00_0000_ffff),
    Cell::new(0x00cf_b300_0000_ffff),
];

/// An entry of the interrupt descriptor table.
#[repr(C)]
pub(super) struct Gate {
    low: Cell<u64>,
    high: Cell<u64>,
}

impl Gate {
    /// A gate that leads nowhere.
    pub(super) const fn new() -> Self {
        Gate {
            low: Cell::new(0),
            high: Cell::new(0),
        }
    }
}

/// The operand of `lgdt` and `lidt`.
#[repr(C, packed(2))]
struct TablePointer {
    limit: u16,
    address: u64,
}

impl TablePointer {
    fn to<T>(table: &'static T) -> TablePointer {
        TablePointer {
            limit: (size_of::<T>() - 1) as u16,
            address: core::ptr::from_ref(table) as u64,
        }
    }
}

/// Fills the tables and loads them.
pub(super) fn init() {
    let Cpu { task, segments, .. } = cpu();
    let top = stack::cpu_stack_top();
    task.rsp[0].set(top as u32);
    task.rsp[1].set((top >> 32) as u32);
    for (i, slot) in task.ist.iter().take(IST_COUNT).enumerate() {
        let top = stack::ist_stack_top(i);
        slot[0].set(top as u32);
        slot[1].set((top >> 32) as u32);
    }

    let base = core::ptr::from_ref(task) as u64;
    let limit = size_of::<TaskState>() as u64 - 1;
    let low = limit & 0xffff
        | (base & 0xff_ffff) << 16
        | 0x89 << 40
        | (limit >> 16) << 48
        | (base >> 24 & 0xff) << 56;
    segments[usize::from(TASK / 8)].set(low);
    segments[usize::from(TASK / 8) + 1].set(base >> 32);

    for vector in 0..=255u8 {
        let handler = trap::stub(vector);
        let ist = match vector {
            32.. if IRQ == Irq::Optimistic => u64::from(IST_OF_INTERRUPTS),
            _ => IST_OF
                .iter()
                .find(|of| of.0 == vector)
                .map_or(0, |of| u64::from(of.1)),
        };
        // An interrupt gate. Only the vector of breakpoints may be raised by user mode.
        let kind = if vector == 3 { 0xee } else { 0x8e };
        let gate = &gates()[usize::from(vector)];
        gate.low.set(
            handler & 0xffff
                | u64::from(KERNEL_CODE) << 16
                | ist << 32
                | kind << 40
                | (handler >> 16 & 0xffff) << 48,
        );
        gate.high.set(handler >> 32);
    }

    let segments = TablePointer::to(segments);
    let gates = TablePointer::to(gates());
    // SAFETY: the tables are complete and live for ever; the selectors loaded are those of the code
    // and the data that the kernel runs with already.
    unsafe {
        asm!(
            "lgdt [{segments}]",
            "lidt [{gates}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {data:e}",
            "xor {scratch:e}, {scratch:e}",
            "mov ds, {scratch:e}",
            "mov es, {scratch:e}",
            "mov fs, {scratch:e}",
            "mov gs, {scratch:e}",
            "ltr {task:x}",
            segments = in(reg) &raw const segments,
            gates = in(reg) &raw const gates,
            code = const KERNEL_CODE,
            data = in(reg) u32::from(KERNEL_DATA),
            task = in(reg) u32::from(TASK),
            scratch = out(reg) _,
        );
        wrmsr(
            MSR_STAR,
            u64::from(SYSRET_BASE) << 48 | u64::from(KERNEL_CODE) << 32,
        );
    }
}

/// The most ranges of [`LoadedPorts`] that are recorded.
const MOST_RANGES: usize = 32;
pub(super) struct LoadedPorts {
    ranges: [Cell<(u16, u16)>; MOST_RANGES],
    count: Cell<usize>,
}

impl LoadedPorts {
    pub(super) const fn none() -> Self {
        LoadedPorts {
            ranges: [const { Cell::new((0, 0)) }; MOST_RANGES],
            count: Cell::new(0),
        }
    }
}

/// Takes all I/O ports from user mode. The ports of the next thread are loaded before it runs, even if it is the thread
/// that ran last.
pub fn forget_ports() {
    load_ports(0, &[]);
    cpu().current.set(None);
}

/// Sets the I/O ports that user mode may use, as (first, count), and the number by which contexts name this set. Cheap
/// for no ports, and for the ports that were loaded last.
pub fn load_ports(number: u16, ranges: &[(u16, u16)]) {
    let cpu = cpu();
    let others = cpu.plain.get() & ((1 << PORTS_SHIFT) - 1);
    cpu.plain.set(others | u32::from(number) << PORTS_SHIFT);
    let task = &cpu.task;
    if ranges.is_empty() {
        task.ports_offset.set(PORTS_OFF);
        return;
    }
    let loaded = &cpu.ports;
    let count = loaded.count.get();
    let same = count == ranges.len()
        && ranges
            .iter()
            .zip(&loaded.ranges)
            .all(|(range, loaded)| *range == loaded.get());
    if !same {
        if count > MOST_RANGES {
            task.ports.iter().for_each(|word| word.set(u32::MAX));
        } else {
            loaded.ranges[..count]
                .iter()
                .for_each(|range| task.set_ports(range.get(), true));
        }
        ranges
            .iter()
            .for_each(|&range| task.set_ports(range, false));
        loaded.count.set(ranges.len());
        for (slot, &range) in loaded.ranges.iter().zip(ranges) {
            slot.set(range);
        }
    }
    task.ports_offset.set(PORTS_ON);
}

impl TaskState {
    /// Sets or clears the bits of ports, a word at a time: a driver may have many.
    fn set_ports(&self, (first, count): (u16, u16), forbidden: bool) {
        let (first, end) = (usize::from(first), usize::from(first) + usize::from(count));
        let end = end.min(65536);
        let change = |word: &Cell<u32>, bits: u32| {
            word.set(if forbidden {
                word.get() | bits
            } else {
                word.get() & !bits
            });
        };
        // The bits of a word from this port on.
        let from = |port: usize| u32::MAX << (port % 32);
        let (head, tail) = (first / 32, end / 32);
        if head == tail {
            if first < end {
                change(&self.ports[head], from(first) & !from(end));
            }
            return;
        }
        change(&self.ports[head], from(first));
        for word in &self.ports[head + 1..tail] {
            word.set(if forbidden { u32::MAX } else { 0 });
        }
        if !end.is_multiple_of(32) {
            change(&self.ports[tail], !from(end));
        }
    }
}
