//! Processor time, as far as the personality can know it.
//!
//! Nobody counts what each thread has of the processor: that would cost every switch. But who waits in a call, or
//! stands still, has none of it, and the personality knows who does. Time that passes while some tasks do neither is
//! divided evenly among those: on one processor, on which equals take turns, each has about that. What native programs
//! and servers have meanwhile counts as theirs, too.
//!
//! [`Work`] knows what one task would have that has never waited; what a task or process has is a difference of that
//! ([`Spent`]). So each wait is two steps, however many tasks there are.

use alloc::rc::Rc;
use core::cell::Cell;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What tasks that do not wait have, in nanoseconds of the machine's clock.
#[derive(Debug, Default)]
pub struct Work {
    /// How many do not wait.
    running: u64,
    /// What one has that has never waited.
    each: u64,
    /// What all have together: the time in which there was one.
    all: u64,
    /// The time up to which these are true.
    until: u64,
}

impl Work {
    /// What one task has by now that has never waited.
    #[must_use]
    pub fn each(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.until);
        self.each + passed.checked_div(self.running).unwrap_or(0)
    }

    /// What all have by now.
    #[must_use]
    pub fn all(&self, now: u64) -> u64 {
        match self.running {
            0 => self.all,
            _ => self.all + now.saturating_sub(self.until),
        }
    }

    /// One more does not wait, or one less: what one has up to now.
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

/// What a task, or the tasks of a process together, have had. An image has what that was; nobody runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Up to when it changed last.
    done: u64,
    /// How many of them do not wait.
    #[serde(skip)]
    running: u32,
    /// What one had then that has never waited.
    #[serde(skip)]
    since: u64,
}

impl Spent {
    /// A task that has had so much.
    #[must_use]
    pub const fn new(done: u64) -> Self {
        Spent {
            done,
            running: 0,
            since: 0,
        }
    }

    /// How much that is, where one that has never waited has `each`.
    #[must_use]
    pub fn total(&self, each: u64) -> u64 {
        let more = u64::from(self.running) * each.saturating_sub(self.since);
        self.done.saturating_add(more)
    }

    /// Whether one of them does not wait.
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

/// What the tasks of a process have had together: each of them has it at hand.
#[derive(Clone, Debug, Default)]
pub struct Common(Rc<Cell<Spent>>);

impl Common {
    /// What somebody has had.
    #[must_use]
    pub fn new(spent: Spent) -> Self {
        Common(Rc::new(Cell::new(spent)))
    }

    /// How much that is.
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

/// Where what a task has had is noted, beside what it has had alone.
#[derive(Debug, Default)]
pub struct Own {
    /// That of its process, as soon as it has run.
    common: Option<Common>,
}

impl Own {
    /// The task, which has had `alone`, does not wait any longer (`runs`), or waits from now on. If that is news `now` is asked, and, once, for
    /// what its process has had.
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

    /// What an image has of it goes on from there.
    #[test]
    fn what_was_spent_stays_so() {
        let mut spent = Spent::new(50);
        spent.change(1_000_000, true);
        assert_eq!(spent.total(1_000_007), 57);
        let again = Spent::new(spent.total(1_000_007));
        assert_eq!(again.total(5), 57);
    }
}
