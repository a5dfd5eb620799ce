//! The clock is the time-stamp counter, the timer is the local APIC's.
//!
//! The rates of both are measured against the 8254, whose frequency is known. Under a hypervisor a measured frequency
//! of almost 1 GHz is taken as exactly 1 GHz: emulated timers tick in virtual nanoseconds, and so does the time-stamp
//! counter of an emulator that counts instructions.

use super::cpu::cpu;
use super::instructions::{inb, outb, rdmsr, rdtsc, wrmsr, MSR_APIC_BASE};
use super::memory::DEVICE_BASE;
use super::{interrupts, Global};
use crate::mask::{MaskMethod, METHOD};
use abi::PAGE_SIZE;
use core::arch::x86_64::__cpuid;
use core::cell::Cell;

/// Whether the timer is the 8254, because only the 8259s can be masked.
const BY_8254: bool = matches!(METHOD, MaskMethod::Pic);
/// Whether there are no device interrupts, because only the local APIC can be masked.
const NO_LINES: bool = matches!(METHOD, MaskMethod::Cr8 | MaskMethod::LapicTpr);

/// The vector of the timer.
pub(super) const VECTOR: u8 = if BY_8254 {
    interrupts::LINE_0
} else {
    interrupts::TIMER
};
/// The vector of spurious interrupts of the local APIC, which need no acknowledgement.
const SPURIOUS: u8 = 0xff;

/// Registers of the local APIC.
#[derive(Clone, Copy)]
enum Apic {
    TaskPriority = 0x80,
    EndOfInterrupt = 0xb0,
    Spurious = 0xf0,
    /// The first of eight registers, 16 bytes apart: a bit for each vector that is requested.
    Requested = 0x200,
    Command = 0x300,
    Timer = 0x320,
    Lint0 = 0x350,
    Lint1 = 0x360,
    Error = 0x370,
    InitialCount = 0x380,
    CurrentCount = 0x390,
    Divide = 0x3e0,
}

const MASKED: u32 = 1 << 16;

impl Apic {
    fn address(self) -> *mut u32 {
        (DEVICE_BASE + self as u64) as *mut u32
    }

    fn read(self) -> u32 {
        // SAFETY: the registers are mapped there, uncached.
        unsafe { self.address().read_volatile() }
    }

    /// Reads the register `index` places behind this one.
    fn read_at(self, index: u64) -> u32 {
        assert!(index < 8);
        // SAFETY: the registers are mapped there, uncached; callers read only the first of eight registers in
        // a row, and a read of any other address in the page would change no memory either.
        unsafe { self.address().byte_add(16 * index as usize).read_volatile() }
    }

    fn write(self, value: u32) {
        // SAFETY: the registers are mapped there, uncached; they change no memory.
        unsafe { self.address().write_volatile(value) };
    }
}

/// The rates measured at boot. All time-stamp counters of a machine run at the same rate and show the same time, and
/// all its local APICs run at the same rate.
struct Clock {
    /// The time-stamp counter at the clock's 0.
    start: Cell<u64>,
    /// Nanoseconds per tick of the time-stamp counter, in units of 2^-32.
    nanoseconds: Cell<u64>,
    /// Ticks of the local APIC per nanosecond, in units of 2^-32.
    timer_ticks: Cell<u64>,
}

static CLOCK: Global<Clock> = Global(Clock {
    start: Cell::new(0),
    nanoseconds: Cell::new(0),
    timer_ticks: Cell::new(0),
});

/// The physical address of the local APIC's registers.
pub(super) fn apic_physical() -> u64 {
    rdmsr(MSR_APIC_BASE) & 0x000f_ffff_ffff_f000
}

/// Nanoseconds since boot.
#[inline]
pub fn now() -> u64 {
    time_of(ticks())
}

/// The time in units of the time-stamp counter, which is cheaper to read than [`now`]; [`time_of`] converts it.
#[inline(always)]
pub fn ticks() -> u64 {
    rdtsc()
}

/// Converts a value of [`ticks`] to nanoseconds since boot.
#[inline]
pub fn time_of(ticks: u64) -> u64 {
    let ticks = ticks.wrapping_sub(CLOCK.0.start.get());
    ((u128::from(ticks) * u128::from(CLOCK.0.nanoseconds.get())) >> 32) as u64
}

/// How to compute the clock from the time-stamp counter: its value at time 0, and the nanoseconds per tick in units of
/// 2^-32.
pub fn clock() -> (u64, u64) {
    (CLOCK.0.start.get(), CLOCK.0.nanoseconds.get())
}

/// Sets the timer to an absolute time in nanoseconds since boot; `u64::MAX`: none. For a time that has passed
/// it fires at once.
pub fn set_timer(deadline: u64) {
    cpu().deadline.set(deadline);
    if BY_8254 {
        return set_8254(deadline);
    }
    if deadline == u64::MAX {
        Apic::InitialCount.write(0);
        return;
    }
    let wait = u128::from(deadline.saturating_sub(now()));
    // Rounded up. If the counter does not reach that far, the timer is set again when it fires.
    let ticks = ((wait * u128::from(CLOCK.0.timer_ticks.get())) >> 32) + 1;
    Apic::InitialCount.write(ticks.min(u128::from(u32::MAX)) as u32);
}

/// [`set_timer`] for the 8254, whose counter has 16 bits.
fn set_8254(deadline: u64) {
    interrupts::irq_mask(0);
    if deadline == u64::MAX {
        return;
    }
    let wait = u128::from(deadline.saturating_sub(now()));
    let ticks = (wait * u128::from(PIT_HZ) / u128::from(GHZ) + 1).min(0xffff) as u16;
    // Counts down once.
    outb(0x43, 0x30);
    ticks
        .to_le_bytes()
        .into_iter()
        .for_each(|byte| outb(0x40, byte));
    interrupts::irq_unmask(0);
}

/// The task priority in the local APIC.
#[inline(always)]
pub(super) fn task_priority() -> u32 {
    Apic::TaskPriority.read()
}

/// Sets the task priority in the local APIC.
#[inline(always)]
pub(super) fn set_task_priority(priority: u32) {
    Apic::TaskPriority.write(priority);
}

/// Acknowledges the interrupt that has arrived from the local APIC.
pub(super) fn end_of_interrupt() {
    Apic::EndOfInterrupt.write(0);
}

/// Makes the processor interrupt itself with this vector. Returns false if the vector is requested already.
pub(super) fn raise(vector: u8) -> bool {
    /// An interrupt to itself, edge-triggered, by vector.
    const TO_ITSELF: u32 = 1 << 18 | 1 << 14;
    let (word, bit) = (u64::from(vector / 32), vector % 32);
    if Apic::Requested.read_at(word) & 1 << bit != 0 {
        return false;
    }
    Apic::Command.write(TO_ITSELF | u32::from(vector));
    true
}

/// Acknowledges the timer's interrupt. Returns whether the deadline has passed; if not, the timer is set again.
pub(super) fn fired() -> bool {
    if BY_8254 {
        interrupts::fired(VECTOR);
    } else {
        end_of_interrupt();
    }
    let deadline = cpu().deadline.get();
    if deadline == u64::MAX {
        return false;
    }
    if now() < deadline {
        set_timer(deadline);
        return false;
    }
    cpu().deadline.set(u64::MAX);
    true
}

/// Starts the local APIC, and measures the frequencies of the clock and the timer.
pub(super) fn init() {
    const ENABLED: u64 = 1 << 11;
    const EXTENDED: u64 = 1 << 10;
    let base = rdmsr(MSR_APIC_BASE);
    // SAFETY: the way back from x2APIC mode leads over a disabled APIC; the registers stay where
    // they are mapped.
    unsafe {
        if base & EXTENDED != 0 {
            wrmsr(MSR_APIC_BASE, base & !(ENABLED | EXTENDED));
        }
        wrmsr(MSR_APIC_BASE, base & !EXTENDED | ENABLED);
    }
    Apic::Spurious.write(0x100 | u32::from(SPURIOUS));
    Apic::TaskPriority.write(0);
    Apic::Error.write(MASKED);
    // LINT0 passes on the 8259's interrupts, LINT1 non-maskable ones.
    Apic::Lint0.write(0x700 | if NO_LINES { MASKED } else { 0 });
    Apic::Lint1.write(0x400);
    // No division, one shot.
    Apic::Divide.write(0b1011);
    Apic::Timer.write(u32::from(VECTOR));

    let (tsc, apic) = measured();
    CLOCK
        .0
        .nanoseconds
        .set(((u128::from(GHZ) << 32) / u128::from(tsc)) as u64);
    CLOCK
        .0
        .timer_ticks
        .set(((u128::from(apic) << 32) / u128::from(GHZ)) as u64);
    CLOCK.0.start.set(rdtsc());
    super::log(format_args!("clock {tsc} Hz, timer {apic} Hz"));
}

const GHZ: u64 = 1_000_000_000;
const PIT_HZ: u64 = 1_193_182;
/// The length of a measurement, about 5 ms, in ticks of the 8254.
const WINDOW: u16 = 5966;
/// If the 8254's count does not change in so many readings, the machine has no 8254.
const PATIENCE: u32 = 1 << 20;

/// The current count of the 8254's third counter.
fn pit_count() -> u16 {
    outb(0x43, 0x80);
    u16::from_le_bytes([inb(0x42), inb(0x42)])
}

/// Most rounds of measuring, a multiple of three.
const ROUNDS: usize = 21;

/// The frequencies (Hz) of the time-stamp counter and of the local APIC on which two rounds agree. If an emulator does
/// not run for a while in the middle of a round, that round is wrong by any factor, since the 8254's count wraps every
/// 55 ms. Without agreement, the median of all rounds.
fn measured() -> (u64, u64) {
    let mut rounds = [(0, 0); ROUNDS];
    let mut count = 0;
    loop {
        for round in &mut rounds[count..count + 3] {
            *round = measure();
        }
        count += 3;
        let rounds = &mut rounds[..count];
        rounds.sort_unstable();
        let near = |a: u64, b: u64| a.abs_diff(b) <= a / 100;
        let agreed =
            |pair: &&[(u64, u64)]| near(pair[0].0, pair[1].0) && near(pair[0].1, pair[1].1);
        if let Some(pair) = rounds.windows(2).find(agreed) {
            return pair[1];
        }
        if count == ROUNDS {
            return rounds[count / 2];
        }
    }
}

/// One measurement of the two frequencies.
fn measure() -> (u64, u64) {
    // Gate on, speaker off; count down from 65,536.
    outb(0x61, inb(0x61) & !2 | 1);
    outb(0x43, 0xb0);
    outb(0x42, 0);
    outb(0x42, 0);
    Apic::InitialCount.write(u32::MAX);

    // Both readings are taken right after the counter has stepped.
    let step = |until: &dyn Fn(u16) -> bool| {
        let readings = (0..PATIENCE)
            .map(|_| pit_count())
            .find(|&count| until(count));
        let Some(count) = readings else {
            panic!("there is no 8254 timer to measure the clock by")
        };
        (count, rdtsc(), Apic::CurrentCount.read())
    };
    let first = pit_count();
    let (count0, tsc0, apic0) = step(&|count| count != first);
    let target = count0.wrapping_sub(WINDOW);
    let (count1, tsc1, apic1) =
        step(&|count| count.wrapping_sub(target) > WINDOW || count == target);
    Apic::InitialCount.write(0);

    let steps = u64::from(count0.wrapping_sub(count1)).max(1);
    // `tolerance`: how far from 1 GHz a frequency may be to be taken as 1 GHz on an emulated machine.
    let hz = |ticks: u64, tolerance: u64| {
        let hz = ticks * PIT_HZ / steps;
        let emulated = __cpuid(1).ecx & 1 << 31 != 0;
        if emulated && hz.abs_diff(GHZ) < tolerance {
            GHZ
        } else {
            hz.max(1)
        }
    };
    (
        hz(tsc1 - tsc0, GHZ / 10_000),
        hz(u64::from(apic0 - apic1), GHZ / 100),
    )
}

const _: () = assert!(PAGE_SIZE > Apic::Divide as u64);
