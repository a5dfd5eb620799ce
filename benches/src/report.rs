//! The lines on the control channel: one per result.
//!
//! `bench NAME UNIT OPERATIONS TICKS NANOSECONDS MARKS` is a sample: so many operations of that unit took so long,
//! and its stretch is the last of MARKS that were marked since the line before. `bench-value NAME UNIT VALUE COUNT
//! MARKS` is a value without a duration, an average over COUNT. `bench-failed NAME MARKS WHY` is a benchmark that has
//! failed.
use crate::loops;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A measured stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Operations in it.
    pub operations: u64,
    /// Time stamp counter.
    pub ticks: u64,
    /// Nanoseconds on the space's clock.
    pub nanoseconds: u64,
}

impl Sample {
    /// The stretch whose times are in the block.
    #[must_use]
    pub fn of_block(operations: u64) -> Self {
        let block = loops::block();
        Sample {
            operations,
            ticks: block.ticks[1].wrapping_sub(block.ticks[0]),
            nanoseconds: block.clock[1].wrapping_sub(block.clock[0]),
        }
    }
}

/// The result of a benchmark: a sample, or why there is none.
pub type Outcome = Result<Sample, String>;

/// Writes a line. If that fails it cannot be reported either.
fn say(line: &str) {
    let _ = rt::system::report(line);
}

/// Takes the number of stretches that were marked since this was last called.
fn take_marks() -> u64 {
    let mut block = loops::block();
    let marks = core::mem::take(&mut block.marks);
    loops::set_block(block);
    marks
}

/// Which benchmarks are wanted, and whether their results are reported.
#[derive(Debug)]
pub struct Report {
    filter: Option<String>,
    /// Why unreported benchmarks failed.
    unsaid: RefCell<Vec<String>>,
}

impl Report {
    /// The benchmarks of the first argument: parts of names, separated by commas.
    #[must_use]
    pub fn from_arguments() -> Self {
        Report::of_filter(rt::start().args.get(1).map_or("", String::as_str))
    }

    /// The benchmarks of this filter.
    #[must_use]
    pub fn of_filter(filter: &str) -> Self {
        Report {
            filter: Some(filter.into()),
            unsaid: RefCell::default(),
        }
    }

    /// Runs all benchmarks without reporting them.
    #[must_use]
    pub const fn silent() -> Self {
        Report {
            filter: None,
            unsaid: RefCell::new(Vec::new()),
        }
    }

    /// Which unreported benchmarks failed, and why.
    #[must_use]
    pub fn unsaid(&self) -> String {
        self.unsaid.borrow().join(", ")
    }

    /// Whether the benchmark of this name is wanted.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        let filter = self.filter.as_deref().unwrap_or_default();
        filter.split(',').any(|part| name.contains(part))
    }

    /// Runs a benchmark if it is wanted, and reports it. False if it failed.
    pub fn bench(&self, name: &str, unit: &str, run: impl FnOnce() -> Outcome) -> bool {
        self.run(name, run, |sample, marks| {
            let Sample {
                operations,
                ticks,
                nanoseconds,
            } = sample;
            format!("bench {name} {unit} {operations} {ticks} {nanoseconds} {marks}")
        })
    }

    /// As [`Report::bench`], for a value without a duration: an average, and the number of items.
    pub fn value(
        &self,
        name: &str,
        unit: &str,
        find: impl FnOnce() -> Result<(u64, u64), String>,
    ) -> bool {
        self.run(name, find, |(value, count), marks| {
            format!("bench-value {name} {unit} {value} {count} {marks}")
        })
    }

    fn run<T>(
        &self,
        name: &str,
        run: impl FnOnce() -> Result<T, String>,
        words: impl FnOnce(T, u64) -> String,
    ) -> bool {
        if !self.wants(name) {
            return true;
        }
        let outcome = run();
        let marks = take_marks();
        let good = outcome.is_ok();
        match (outcome, &self.filter) {
            (Ok(found), Some(_)) => say(&words(found, marks)),
            (Err(why), Some(_)) => say(&format!("bench-failed {name} {marks} {why}")),
            (Err(why), None) => self.unsaid.borrow_mut().push(format!("{name}: {why}")),
            (Ok(_), None) => {}
        }
        good
    }
}
