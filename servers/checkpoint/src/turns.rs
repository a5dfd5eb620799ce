//! Which requests may begin: one of each job at a time, and a few of all jobs.
//!
//! Job 0, the shell's, does not wait for other jobs.

use alloc::vec::Vec;

/// A job, by its number.
pub type Job = u32;
/// Most requests at a time, those of job 0 not counted.
pub const MOST: usize = 4;

/// Names a request among those of a [`Turns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// Which requests are under way, and which wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct Turns {
    next: u64,
    begun: Vec<(Ticket, Job)>,
    waiting: Vec<(Ticket, Job)>,
}

impl Turns {
    /// No requests.
    #[must_use]
    pub const fn new() -> Self {
        Turns {
            next: 0,
            begun: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Adds a request of this job; `None` if `most` of its requests wait already.
    pub fn come(&mut self, job: Job, most: usize) -> Option<Ticket> {
        let of_job = self.waiting.iter().filter(|(_, other)| *other == job);
        if of_job.count() >= most {
            return None;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push((ticket, job));
        self.begin();
        Some(ticket)
    }

    /// Whether it has begun.
    #[must_use]
    pub fn has_begun(&self, ticket: Ticket) -> bool {
        self.begun.iter().any(|(begun, _)| *begun == ticket)
    }

    /// Removes a request that is done or given up.
    pub fn end(&mut self, ticket: Ticket) {
        self.begun.retain(|(begun, _)| *begun != ticket);
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.begin();
    }

    /// Lets all requests begin that may.
    fn begin(&mut self) {
        while let Some(at) = self.waiting.iter().position(|(_, job)| self.may(*job)) {
            let first = self.waiting.remove(at);
            self.begun.push(first);
        }
    }

    fn may(&self, job: Job) -> bool {
        let busy = self.begun.iter().any(|(_, other)| *other == job);
        let others = self.begun.iter().filter(|(_, other)| *other != 0);
        !busy && (job == 0 || others.count() < MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ticket, Turns, MOST};
    use alloc::vec::Vec;

    fn come(turns: &mut Turns, job: u32) -> Ticket {
        turns.come(job, 2).expect("a place")
    }

    #[test]
    fn one_of_a_job_in_the_order_in_which_they_came() {
        let mut turns = Turns::new();
        let [first, second, third] = [1, 1, 1].map(|job| come(&mut turns, job));
        assert_eq!(turns.come(1, 2), None, "a third one waits");
        let other = come(&mut turns, 2);
        let begun = |turns: &Turns| [first, second, third, other].map(|t| turns.has_begun(t));
        let one = [true, false, false, true];
        assert_eq!(begun(&turns), one, "S2: one request of a job at a time");
        turns.end(first);
        assert_eq!(begun(&turns), [false, true, false, true]);
        // A request that is given up before it has begun.
        turns.end(third);
        turns.end(second);
        assert_eq!(begun(&turns), [false, false, false, true]);
        let again = come(&mut turns, 1);
        assert!(turns.has_begun(again), "its place is free");
    }

    #[test]
    fn a_few_of_all_jobs_but_the_shell_never_waits_for_them() {
        let mut turns = Turns::new();
        let jobs: Vec<Ticket> = (1..=MOST as u32 + 2)
            .map(|job| come(&mut turns, job))
            .collect();
        let count = |turns: &Turns| jobs.iter().filter(|t| turns.has_begun(**t)).count();
        assert_eq!(count(&turns), MOST, "S2: so many of all jobs at a time");
        let shell = [come(&mut turns, 0), come(&mut turns, 0)];
        assert_eq!(shell.map(|t| turns.has_begun(t)), [true, false]);
        turns.end(shell[0]);
        assert!(turns.has_begun(shell[1]), "the shell's second one");
        assert_eq!(count(&turns), MOST, "the shell's place is its own");
        turns.end(jobs[1]);
        assert!(turns.has_begun(jobs[MOST]), "the next one has not begun");
        assert!(!turns.has_begun(jobs[MOST + 1]), "too many have begun");
        assert_eq!(count(&turns), MOST);
    }
}
