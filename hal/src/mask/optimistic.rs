//! Optimistic interrupt protection: the common case, in which no interrupt comes during a section,
//! costs two stores, a load and a test.
//!
//! [`Optimistic`] is the state of one processor. A section stores its level ([`Optimistic::raise`]); at its end it
//! restores the previous level and checks for kept interrupts ([`Optimistic::restore`]). The machine calls
//! [`Optimistic::arrive`] for each interrupt: either the interrupt is to be handled now, or it has become an
//! *interrupt continuation*, kept here, and the machine raises the hardware mask so that no other interrupt of a
//! masked level arrives.
//!
//! There is one place for a continuation per level. It is free whenever an interrupt of that level arrives,
//! because *the hardware masks every level whose place is taken*: the mask is raised when the place is taken,
//! and lowered only when it is free. Hence no interrupt is lost, and within a level their order is kept.
//!
//! The machine implements [`Controllers`]: the real machine, or the model in the tests below.

#[cfg(not(test))]
use core::sync::atomic::{AtomicU16, AtomicU8};
#[cfg(test)]
use tests::{AtomicU16, AtomicU8};

use super::Level;
use core::sync::atomic::{compiler_fence, Ordering};

/// The machine's part in optimistic masking.
pub(crate) trait Controllers {
    /// Holds back, by hardware, interrupts of `level` and below, and lets all others through.
    fn hold_back(&self, level: Level);
    /// Handles the interrupt of this vector. Everything is masked, by hardware too.
    fn handle(&self, vector: u8);
}

/// The decision about an interrupt that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The interrupt is not masked: the machine must call [`Optimistic::handle_kept`] now.
    Now,
    /// The interrupt is kept for later. The hardware must now hold back interrupts of this level and below.
    Later(Level),
}

/// The masks of a processor. An interrupt may read and write all of them at any instruction, hence atomics. No other
/// processor accesses them, so plain loads and stores suffice.
#[repr(C)]
pub(crate) struct Optimistic {
    /// The level that is masked.
    pub(crate) level: AtomicU8,
    /// The level that the hardware holds back for this mask.
    pub(crate) held: AtomicU8,
    /// The continuations: for each level from `Low` to `Clock` the vector, with [`TAKEN`].
    places: [AtomicU16; 3],
}

/// The levels that have a place, in the order of `places`.
const PLACES: [Level; 3] = [Level::Low, Level::High, Level::Clock];
/// Marks a place that is taken.
const TAKEN: u16 = 0x100;

impl Optimistic {
    /// The state in which a processor begins: everything masked, nothing kept.
    pub(crate) const fn new() -> Self {
        Optimistic {
            level: AtomicU8::new(Level::All as u8),
            held: AtomicU8::new(Level::None as u8),
            places: [const { AtomicU16::new(0) }; 3],
        }
    }

    /// The level that is masked.
    #[inline(always)]
    pub(crate) fn level(&self) -> Level {
        level_in(&self.level)
    }

    /// The level that the hardware holds back for this mask.
    #[inline(always)]
    pub(crate) fn held(&self) -> Level {
        level_in(&self.held)
    }

    /// Masks `level` and below, and returns the level that was masked before.
    #[inline(always)]
    pub(crate) fn raise(&self, level: Level) -> Level {
        let before = self.level();
        if level > before {
            self.set(level);
        }
        before
    }

    /// Masks `previous` and below, and handles the kept interrupts above it.
    #[inline(always)]
    pub(crate) fn restore(&self, previous: Level, machine: &impl Controllers) {
        self.set(previous);
        // An interrupt that arrives from here on is handled at once if it is above `previous`; if it is not,
        // the hardware will not hold back more than `previous` for it.
        if self.held.load(Ordering::Relaxed) > previous as u8 {
            self.catch_up(previous, machine);
        }
    }

    #[cold]
    #[inline(never)]
    fn catch_up(&self, previous: Level, machine: &impl Controllers) {
        let rest = self.handle_kept(previous, machine);
        machine.hold_back(rest);
    }

    /// Sets the level that is masked. A barrier for the compiler: accesses of a section do not move across it.
    #[inline(always)]
    pub(crate) fn set(&self, level: Level) {
        compiler_fence(Ordering::SeqCst);
        self.level.store(level as u8, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Decides about an interrupt of `level` that has arrived while `masked` is masked, and puts it into its place. No
    /// other interrupt may arrive before the machine has acted on the result.
    pub(crate) fn arrive(&self, vector: u8, level: Level, masked: Level) -> Arrival {
        let before = self
            .place(level)
            .swap(TAKEN | u16::from(vector), Ordering::Relaxed);
        assert!(
            before == 0,
            "vector {vector:#x} came while {before:#x} of its level was held back"
        );
        if level > masked {
            return Arrival::Now;
        }
        let held = masked.max(self.held());
        self.held.store(held as u8, Ordering::Relaxed);
        Arrival::Later(held)
    }

    fn place(&self, level: Level) -> &AtomicU16 {
        &self.places[(level as u8).trailing_ones() as usize - 1]
    }

    /// Takes the continuation of the highest level above `previous`. Returns its vector, if there is one.
    /// Called while the hardware holds everything back.
    pub(crate) fn take(&self, previous: Level) -> Option<u8> {
        let above = PLACES.into_iter().rev().filter(|level| *level > previous);
        above
            .map(|level| self.place(level).swap(0, Ordering::Relaxed))
            .find(|vector| *vector != 0)
            .map(|vector| vector as u8)
    }

    /// Goes on keeping the kept interrupts, while everything is masked. For the real processor only.
    #[cfg(target_os = "none")]
    pub(crate) fn put_off(&self) -> Arrival {
        self.held.store(Level::All as u8, Ordering::Relaxed);
        Arrival::Later(Level::All)
    }

    /// Makes the hardware hold everything back.
    pub(crate) fn close(&self, machine: &impl Controllers) {
        machine.hold_back(Level::All);
        self.held.store(Level::All as u8, Ordering::Relaxed);
    }

    /// The highest level that has a kept interrupt.
    pub(crate) fn kept(&self) -> Level {
        let taken = |level: &Level| self.place(*level).load(Ordering::Relaxed) != 0;
        let kept = PLACES.into_iter().rev().find(taken);
        kept.unwrap_or(Level::None)
    }

    /// Notes and returns the level that the hardware must hold back for the kept interrupts. The caller must make the
    /// hardware do so.
    fn rest(&self) -> Level {
        let rest = self.kept();
        self.held.store(rest as u8, Ordering::Relaxed);
        rest
    }

    /// Handles all kept interrupts above `previous`, the highest first. Afterwards `previous` is masked, but the
    /// hardware still holds everything back: the caller lowers the hardware's level to the returned one.
    pub(crate) fn handle_kept(&self, previous: Level, machine: &impl Controllers) -> Level {
        loop {
            // Each time again, because the handler may have switched to another thread and back.
            self.close(machine);
            self.set(Level::All);
            let Some(vector) = self.take(previous) else {
                break;
            };
            machine.handle(vector);
        }
        self.set(previous);
        self.rest()
    }
}

/// The level in one of the two bytes.
#[inline(always)]
fn level_in(byte: &AtomicU8) -> Level {
    let raw = byte.load(Ordering::Relaxed);
    debug_assert!(Level::EVERY.iter().any(|level| *level as u8 == raw));
    // SAFETY: in the two bytes of `Optimistic` only the numbers of levels are ever stored; the entry code
    // stores those of `None` and `All`.
    unsafe { core::mem::transmute::<u8, Level>(raw) }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Controllers, Level, Optimistic};
    use std::boxed::Box;
    use std::cell::Cell;

    /// The atomics of the tests: before each access an interrupt may come.
    pub(crate) struct AtomicU8(core::sync::atomic::AtomicU8);
    pub(crate) struct AtomicU16(core::sync::atomic::AtomicU16);

    impl AtomicU8 {
        pub(crate) const fn new(value: u8) -> Self {
            Self(core::sync::atomic::AtomicU8::new(value))
        }

        pub(crate) fn load(&self, order: super::Ordering) -> u8 {
            instant();
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u8, order: super::Ordering) {
            instant();
            self.0.store(value, order);
        }
    }

    impl AtomicU16 {
        pub(crate) const fn new(value: u16) -> Self {
            Self(core::sync::atomic::AtomicU16::new(value))
        }

        pub(crate) fn load(&self, order: super::Ordering) -> u16 {
            instant();
            self.0.load(order)
        }

        pub(crate) fn swap(&self, value: u16, order: super::Ordering) -> u16 {
            instant();
            self.0.swap(value, order)
        }
    }

    std::thread_local! {
        static PROCESSOR: Cell<Option<&'static Processor>> = const { Cell::new(None) };
    }

    /// The instant before an instruction.
    #[inline(always)]
    fn instant() {
        if let Some(processor) = PROCESSOR.get() {
            processor.instant();
        }
    }

    const LEVELS: [Level; 3] = [Level::Low, Level::High, Level::Clock];

    /// The vector of an interrupt by its number among those of its level. Consecutive interrupts have different
    /// vectors.
    fn vector_of(index: usize, number: u64) -> u8 {
        let scrambled = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8;
        (index as u8 + 1) << 4 | scrambled
    }

    /// The interrupts of a level, counted at each of the stations, which they pass in order.
    #[derive(Default)]
    struct Line {
        raised: Cell<u64>,
        accepted: Cell<u64>,
        handled: Cell<u64>,
    }

    fn count(cell: &Cell<u64>) -> u64 {
        cell.replace(cell.get() + 1)
    }

    /// A processor with controllers, devices that interrupt at random, and a program.
    struct Processor {
        mask: Optimistic,
        /// The level that the hardware holds back.
        held: Cell<Level>,
        lines: [Line; 3],
        /// The level that the program wants masked; while the program changes it, the lower of the two levels.
        wanted: Cell<Level>,
        random: Cell<u64>,
        /// Number of interrupts that the devices still have to raise.
        left: Cell<u64>,
        /// Number of interrupts that were kept.
        kept: Cell<u64>,
        /// Number of handlers that run, nested.
        handlers: Cell<u32>,
        /// Whether to break the rule on hardware masks, which a test must notice.
        broken: bool,
    }

    impl Processor {
        fn new(seed: u64, interrupts: u64, broken: bool) -> &'static Processor {
            Box::leak(Box::new(Processor {
                mask: Optimistic::new(),
                held: Cell::new(Level::All),
                lines: Default::default(),
                wanted: Cell::new(Level::All),
                random: Cell::new(seed),
                left: Cell::new(interrupts),
                kept: Cell::new(0),
                handlers: Cell::new(0),
                broken,
            }))
        }

        fn random(&self) -> u64 {
            let mut random = fastrand::Rng::with_seed(self.random.get());
            let number = random.u64(..);
            self.random.set(random.get_seed());
            number
        }

        /// Lets a device raise an interrupt, at random, and then delivers interrupts that the hardware lets through.
        fn instant(&self) {
            let dice = self.random();
            // Fewer interrupts while one is being handled, so that the program gets time.
            let rare = if self.held.get() == Level::All { 63 } else { 7 };
            if dice & rare == 0 && self.left.get() > 0 {
                let line = &self.lines[(dice >> 8) as usize % LEVELS.len()];
                // A controller holds only a few interrupts of a line.
                if line.raised.get() - line.accepted.get() < 4 {
                    count(&line.raised);
                    self.left.set(self.left.get() - 1);
                }
            }
            self.accept();
        }

        /// Delivers the interrupts that the hardware lets through, the highest level first.
        fn accept(&self) {
            loop {
                let comes = |index: &usize| {
                    let line = &self.lines[*index];
                    LEVELS[*index] > self.held.get() && line.raised.get() > line.accepted.get()
                };
                let Some(index) = (0..LEVELS.len()).rev().find(comes) else {
                    return;
                };
                let number = count(&self.lines[index].accepted);
                self.interrupted(vector_of(index, number), LEVELS[index]);
            }
        }

        /// Does what the entry code of the real machine does.
        fn interrupted(&self, vector: u8, level: Level) {
            let before = self.held.replace(Level::All);
            let masked = self.mask.level();
            match self.mask.arrive(vector, level, masked) {
                Arrival::Now => {
                    let rest = self.mask.handle_kept(masked, self);
                    self.held.set(rest);
                }
                Arrival::Later(masked) => {
                    count(&self.kept);
                    let masked = if self.broken { Level::None } else { masked };
                    assert!(self.broken || masked >= before);
                    self.held.set(masked);
                }
            }
        }

        fn masked(&self, level: Level) {
            let before = self.wanted.get();
            let previous = self.mask.raise(level);
            assert_eq!(previous, before);
            self.wanted.set(before.max(level));
            let steps = if self.handlers.get() == 0 { 8 } else { 2 };
            for _ in 0..self.random() % steps {
                self.step();
            }
            self.wanted.set(before);
            self.mask.restore(previous, self);
            self.accept();
            for (line, level) in self.lines.iter().zip(LEVELS) {
                // In a handler the hardware holds everything back.
                if level > previous && self.handlers.get() == 0 {
                    let late = line.raised.get() - line.handled.get();
                    assert_eq!(late, 0, "an interrupt was held back beyond its section");
                }
            }
        }

        /// One step of the program.
        fn step(&self) {
            let dice = self.random();
            match dice % 8 {
                0 => self.masked(Level::EVERY[(dice >> 8) as usize % Level::EVERY.len()]),
                _ => self.instant(),
            }
        }

        /// Runs the program until all interrupts have been handled.
        fn run(&'static self) {
            PROCESSOR.set(Some(self));
            self.wanted.set(Level::None);
            self.mask.restore(Level::None, self);
            self.held.set(Level::None);
            while self.left.get() > 0 {
                self.step();
            }
            self.accept();
            PROCESSOR.set(None);
            for line in &self.lines {
                assert_eq!(
                    line.raised.get(),
                    line.handled.get(),
                    "an interrupt was lost"
                );
            }
            assert_eq!(self.mask.held(), Level::None);
            assert_eq!(
                self.held.get(),
                Level::None,
                "the hardware holds something back"
            );
        }
    }

    impl Controllers for Processor {
        fn hold_back(&self, level: Level) {
            self.held.set(level);
            // A pending interrupt arrives here at the latest.
            self.accept();
        }

        fn handle(&self, vector: u8) {
            let index = usize::from(vector >> 4) - 1;
            let line = &self.lines[index];
            assert!(
                LEVELS[index] > self.wanted.get(),
                "a masked interrupt was handled"
            );
            assert_eq!(self.mask.level(), Level::All);
            let number = count(&line.handled);
            assert!(
                number < line.accepted.get(),
                "an interrupt was handled twice"
            );
            assert_eq!(
                vector,
                vector_of(index, number),
                "an interrupt overtook another"
            );
            // A handler has sections too.
            let wanted = self.wanted.replace(Level::All);
            self.handlers.set(self.handlers.get() + 1);
            self.masked(LEVELS[self.random() as usize % LEVELS.len()]);
            self.handlers.set(self.handlers.get() - 1);
            self.wanted.set(wanted);
        }
    }

    /// Runs a processor with `interrupts` interrupts at random instants, with random masks.
    fn campaign(seed: u64, interrupts: u64) {
        let processor = Processor::new(seed, interrupts, false);
        processor.run();
        let kept = processor.kept.get();
        assert!(
            (interrupts / 10..interrupts).contains(&kept),
            "of {interrupts} interrupts {kept} were kept: that tests little"
        );
    }

    #[test]
    fn none_of_a_hundred_million_interrupts_is_lost_doubled_or_reordered() {
        const EACH: u64 = 25_000_000;
        std::thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || campaign(0x1234_5678_9abc_def1 ^ seed << 32, EACH));
            }
        });
    }

    #[test]
    #[should_panic(expected = "of its level was held back")]
    fn a_hardware_mask_that_is_not_raised_is_noticed() {
        Processor::new(99, 100_000, true).run();
    }

    #[test]
    fn a_section_without_interrupts_changes_nothing_else() {
        let processor = Processor::new(1, 0, false);
        let mask = &processor.mask;
        mask.set(Level::None);
        for level in Level::EVERY {
            assert_eq!(mask.raise(level), Level::None);
            assert_eq!(mask.level(), level);
            assert_eq!(mask.raise(Level::Low), level);
            assert_eq!(mask.level(), level.max(Level::Low));
            mask.restore(Level::None, processor);
            assert_eq!(mask.level(), Level::None);
        }
        assert_eq!(processor.held.get(), Level::All);
    }
}
