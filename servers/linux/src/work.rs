//! Processor time, as far as the personality can know it.
//!
//! The kernel does not count the processor time of threads, which would cost something at every switch. But a task that
//! waits in a call or is stopped uses none, and the personality knows which tasks do. The time that passes while others
//! run is divided evenly among those: on one processor, which threads of equal priority share in turns, each has about
//! that much. The time of native programs and servers counts as theirs, too.
//!
//! [`Work`] counts the time of an imagined task that never waits; the time of a real task or process is a difference of
//! two such counts ([`Spent`]). So each wait takes constant time, however many tasks there are.

use alloc::rc::Rc;
use core::cell::Cell;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The processor time of tasks that run, which are those that do not wait, in nanoseconds of the machine's clock.
#[derive(Debug, Default)]
pub struct Work {
    /// How many tasks run.
    running: u64,
    /// The time of a task that has never waited.
    each: u64,
    /// The time in which any task ran.
    all: u64,
    /// The time up to which these are counted.
    until: u64,
}

impl Work {
    /// The time by `now` of a task that has never waited.
    #[must_use]
    pub fn each(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.until);
        self.each + passed.checked_div(self.running).unwrap_or(0)
    }

    /// The time by `now` in which any task ran.
    #[must_use]
    pub fn all(&self, now: u64) -> u64 {
        match self.running {
            0 => self.all,
            _ => self.all + now.saturating_sub(self.until),
        }
    }

    /// From `now` on one task more runs, or one less; returns the time of a task that has never waited.
    fn change(&mut self, now: u64, runs: bool) -> u64 {
        (self.each, self.all) = (self.each(now), self.all(now));
        self.until = self.until.max(now);
        self.running = match runs {
            true => self.running + 1,
            false => self.running.saturating_sub(1),
        };
        self.each
    }
}

/// The processor time of a task, or of all tasks of a process together. An image has the time only: nothing runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The time up to the last change, in nanoseconds.
    done: u64,
    /// How many of the tasks run.
    #[serde(skip)]
    running: u32,
    /// The time of a task that has never waited, at the last change.
    #[serde(skip)]
    since: u64,
}

impl Spent {
    /// The time `done` of a task that does not run.
    #[must_use]
    pub const fn new(done: u64) -> Self {
        Spent {
            done,
            running: 0,
            since: 0,
        }
    }

    /// The time so far, if a task that has never waited has had `each`.
    #[must_use]
    pub fn total(&self, each: u64) -> u64 {
        let more = u64::from(self.running) * each.saturating_sub(self.since);
        self.done.saturating_add(more)
    }

    /// Whether one of the tasks runs.
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.running > 0
    }

    fn change(&mut self, each: u64, runs: bool) {
        self.done = self.total(each);
        self.since = each;
        self.running = match runs {
            true => self.running + 1,
            false => self.running.saturating_sub(1),
        };
    }
}

/// The processor time of a process, which each of its tasks refers to.
#[derive(Clone, Debug, Default)]
pub struct Common(Rc<Cell<Spent>>);

impl Common {
    /// The time of a process that begins with this.
    #[must_use]
    pub fn new(spent: Spent) -> Self {
        Common(Rc::new(Cell::new(spent)))
    }

    /// The time as of the last change.
    #[must_use]
    pub fn get(&self) -> Spent {
        self.0.get()
    }
}

fn change(of: &Cell<Spent>, each: u64, runs: bool) {
    let mut spent = of.get();
    spent.change(each, runs);
    of.set(spent);
}

impl Serialize for Common {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Common {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Common::new(Spent::deserialize(deserializer)?))
    }
}

/// The time of a task's process, which changes with the task's own.
#[derive(Debug, Default)]
pub struct Own {
    /// The process's time, once the task has run.
    common: Option<Common>,
}

impl Own {
    /// The task, whose own time is `alone`, begins to run (`runs`) or to wait. If that is a change, `now` is asked,
    /// and, the first time, `common` for the time of its process.
    #[inline]
    pub fn change(
        &mut self,
        alone: &Cell<Spent>,
        work: &mut Work,
        runs: bool,
        now: impl FnOnce() -> u64,
        common: impl FnOnce() -> Common,
    ) {
        if alone.get().runs() == runs {
            return;
        }
        let each = work.change(now(), runs);
        change(alone, each, runs);
        change(&self.common.get_or_insert_with(common).0, each, runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks of one process and one of another, which wait at times.
    #[test]
    fn time_is_divided_among_those_who_do_not_wait() {
        let mut work = Work::default();
        let mut tasks = [const { Own { common: None } }; 3];
        let alone = [const { Cell::new(Spent::new(0)) }; 3];
        let processes = [const { Common::default }; 2].map(|new| new());
        let mut step = |now: u64, task: usize, runs: bool| {
            let common = || processes[task / 2].clone();
            tasks[task].change(&alone[task], &mut work, runs, || now, common);
            let each = work.each(now);
            (
                [0, 1, 2].map(|n| alone[n].get().total(each)),
                [0, 1].map(|n| processes[n].get().total(each)),
                work.all(now),
            )
        };
        assert_eq!(step(1000, 0, true), ([0, 0, 0], [0, 0], 0));
        assert_eq!(step(1600, 1, true), ([600, 0, 0], [600, 0], 600));
        assert_eq!(step(1600, 1, true).2, 600, "said twice");
        let rule = "who waits has nothing, and the others all of it";
        assert_eq!(
            step(1800, 2, true),
            ([700, 100, 0], [800, 0], 800),
            "{rule}"
        );
        assert_eq!(
            step(2100, 0, false),
            ([800, 200, 100], [1000, 100], 1100),
            "{rule}"
        );
        assert_eq!(
            step(2200, 1, false),
            ([800, 250, 150], [1050, 150], 1200),
            "{rule}"
        );
        assert_eq!(
            step(2300, 2, false),
            ([800, 250, 250], [1050, 250], 1300),
            "{rule}"
        );
        // Nobody runs.
        assert_eq!(
            step(9000, 0, true),
            ([800, 250, 250], [1050, 250], 1300),
            "{rule}"
        );
        assert_eq!(
            step(9001, 0, false),
            ([801, 250, 250], [1051, 250], 1301),
            "{rule}"
        );
    }

    /// A time that an image has is counted on after the restore.
    #[test]
    fn what_was_spent_stays_so() {
        let mut spent = Spent::new(50);
        spent.change(1_000_000, true);
        assert_eq!(spent.total(1_000_007), 57);
        let again = Spent::new(spent.total(1_000_007));
        assert_eq!(again.total(5), 57);
    }
}
