//! Whose kernel memory the objects of restored processes are.
//!
//! The kernel charges an object to the space that creates it, so all that is restored is charged to the checkpointer. It
//! keeps account of it: a job may have a part of its kernel memory for what lives of what was restored for it, and all
//! jobs a larger part. The shell, job 0, has no limit.

use crate::turns::Job;
use alloc::vec::Vec;

/// The part of the kernel memory that a job may have.
const JOB_PART: u64 = 4;
/// The part of it that is kept from all jobs.
const KEPT_PART: u64 = 4;

/// A charge, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u64);

/// How much kernel memory each job is charged for.
#[derive(Debug, Default)]
pub struct Charges {
    next: u64,
    taken: Vec<(Number, Job, u64)>,
}

impl Charges {
    /// No charges.
    #[must_use]
    pub const fn new() -> Self {
        Charges {
            next: 0,
            taken: Vec::new(),
        }
    }

    /// Charges a job for so many bytes of kernel memory, of `total`; nothing if it has too many then.
    pub fn take(&mut self, job: Job, bytes: u64, total: u64) -> Option<Number> {
        let sum = |of: &dyn Fn(Job) -> bool| -> u64 {
            let those = self.taken.iter().filter(|(_, job, _)| of(*job));
            those.map(|(_, _, bytes)| *bytes).sum()
        };
        let own = sum(&|other| other == job).saturating_add(bytes);
        let all = sum(&|other| other != 0).saturating_add(bytes);
        if job != 0 && (own > total / JOB_PART || all > total - total / KEPT_PART) {
            return None;
        }
        let number = Number(self.next);
        self.next += 1;
        self.taken.push((number, job, bytes));
        Some(number)
    }

    /// What was charged is not there any more.
    pub fn give(&mut self, number: Number) {
        self.taken.retain(|(taken, _, _)| *taken != number);
    }
}

#[cfg(test)]
mod tests {
    use super::Charges;

    #[test]
    fn a_job_has_its_part_and_leaves_theirs_to_others() {
        let mut charges = Charges::new();
        assert_eq!(charges.take(1, 26, 100), None, "more than its part");
        let first = charges.take(1, 20, 100).expect("room");
        assert_eq!(charges.take(1, 6, 100), None, "more than its part in two");
        for job in 2..4 {
            charges.take(job, 25, 100).expect("another job's part");
        }
        assert_eq!(charges.take(4, 6, 100), None, "what is kept from all");
        charges.take(0, 60, 100).expect("the shell has no limit");
        charges
            .take(4, 5, 100)
            .expect("the shell takes from nobody");
        charges.give(first);
        charges.take(1, 20, 100).expect("what was given back");
        assert_eq!(charges.take(1, u64::MAX, 100), None);
    }
}
