//! Accounting of the kernel memory that restored processes' objects take.
//!
//! The kernel charges an object to the space that creates it, so all that is restored is charged to the checkpointer.
//! It keeps account of that: living objects that were restored for a job may take a part of the checkpointer's kernel
//! memory, and those of all jobs a larger part. The shell, job 0, has no limit.
//!
//! Objects can outlive the processes: a thread in a restored space can make objects in another process's memory, and
//! when the space ends the checkpointer pays for them as long as they live. So a charge is given back only when the
//! kernel memory that the checkpointer pays for has become less by that amount.

use crate::turns::Job;
use alloc::vec::Vec;

/// The part of the kernel memory that a job may have.
const JOB_PART: u64 = 4;
/// The part of it that jobs cannot have.
const KEPT_PART: u64 = 4;

/// A charge, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u64);

/// A charge of a job.
#[derive(Debug)]
struct Taken {
    number: Number,
    job: Job,
    bytes: u64,
    /// The processes have ended. Their objects may live on for a while, and objects that they left elsewhere for ever.
    is_over: bool,
}

/// How much kernel memory each job is charged for.
#[derive(Debug, Default)]
pub struct Charges {
    next: u64,
    taken: Vec<Taken>,
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

    /// Charges a job for so many bytes of kernel memory, of `total`; `None` if it would have too many then.
    pub fn take(&mut self, job: Job, bytes: u64, total: u64) -> Option<Number> {
        let sum = |of: &dyn Fn(Job) -> bool| -> u64 {
            let those = self.taken.iter().filter(|taken| of(taken.job));
            those.map(|taken| taken.bytes).sum()
        };
        let own = sum(&|other| other == job).saturating_add(bytes);
        let all = sum(&|other| other != 0).saturating_add(bytes);
        if job != 0 && (own > total / JOB_PART || all > total - total / KEPT_PART) {
            return None;
        }
        let number = Number(self.next);
        self.next += 1;
        self.taken.push(Taken {
            number,
            job,
            bytes,
            is_over: false,
        });
        Some(number)
    }

    /// Notes that the processes of this charge have ended. [`Charges::settle`] gives it back.
    pub fn end(&mut self, number: Number) {
        let taken = self.taken.iter_mut().find(|taken| taken.number == number);
        if let Some(taken) = taken {
            taken.is_over = true;
        }
        // A charge without objects ends at once, whatever else is in use.
        self.taken.retain(|taken| !taken.is_over || taken.bytes > 0);
    }

    /// Whether charges of processes that have ended are still to be given back.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.taken.iter().any(|taken| taken.is_over)
    }

    /// Gives back charges of processes that have ended, as long as the remaining charges cover all memory in use:
    /// `is_in` returns whether no more than so many bytes are in use. Later charges are given back first, so that a
    /// process which has left objects behind keeps its charge, and not one that was restored later.
    pub fn settle(&mut self, is_in: impl Fn(u64) -> bool) {
        let mut all: u64 = self.taken.iter().map(|taken| taken.bytes).sum();
        for place in (0..self.taken.len()).rev() {
            let taken = &self.taken[place];
            let others = all - taken.bytes;
            if taken.is_over && is_in(others) {
                all = others;
                self.taken.remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Charges, Number};
    use alloc::vec::Vec;

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
        assert!(!charges.has_ended());
        charges.end(first);
        charges.settle(|_| true);
        charges.take(1, 20, 100).expect("what was given back");
        assert_eq!(charges.take(1, u64::MAX, 100), None);
    }

    #[test]
    fn what_had_nothing_leaves_nothing() {
        let mut charges = Charges::new();
        for _ in 0..1000 {
            let none = charges.take(1, 0, 100).expect("room");
            charges.end(none);
            charges.settle(|_| false);
        }
        assert!(charges.taken.is_empty(), "S2: charges of nothing stay");
    }

    #[test]
    fn what_is_left_of_the_dead_is_charged_until_it_is_gone() {
        let mut charges = Charges::new();
        let other = charges.take(2, 10, 100).expect("room");
        for _ in 0..5 {
            // Each time all of it stays in another process's memory: 20 more than the other job has.
            let first = charges.take(1, 20, 100).expect("room");
            charges.end(first);
            charges.settle(|bytes| bytes >= 30);
            assert!(charges.has_ended());
            assert_eq!(charges.take(1, 20, 100), None, "S2: it takes all there is");
            // The objects are destroyed.
            charges.settle(|bytes| bytes >= 10);
            assert!(!charges.has_ended());
        }
        // No charge of living processes is given back, however little is in use.
        charges.settle(|_| true);
        assert_eq!(charges.take(2, 16, 100), None);
        // Objects that one left do not keep the charge of one that ends after it.
        let first = charges.take(1, 20, 100).expect("room");
        charges.end(first);
        charges.settle(|bytes| bytes >= 30);
        charges.end(other);
        charges.settle(|bytes| bytes >= 20);
        assert_eq!(charges.take(1, 6, 100), None);
        charges.take(2, 25, 100).expect("all of its part");
        // A process that has left a little keeps all of its charge, since the owners of single objects are not known.
        charges.settle(|bytes| bytes >= 26);
        assert!(charges.has_ended());
        charges.settle(|bytes| bytes >= 25);
        assert!(!charges.has_ended());
    }

    /// In whatever order processes end, the charges cover the memory in use.
    #[test]
    fn nothing_in_use_is_charged_to_nobody() {
        let mut random = 1u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let mut charges = Charges::new();
        // For each charge its number, the memory in use, and whether it has ended.
        let mut all: Vec<(Number, u64, bool)> = Vec::new();
        for _ in 0..5000 {
            let bytes = u64::from(1 + next(20));
            if let Some(number) = charges.take(1 + next(6), bytes, 400) {
                all.push((number, bytes, false));
            }
            if all.is_empty() {
                continue;
            }
            let one = next(all.len() as u32) as usize;
            let (number, used, has_ended) = &mut all[one];
            // It ends and leaves some objects, or more of them are destroyed.
            charges.end(*number);
            *has_ended = true;
            *used = u64::from(next(*used as u32 + 1));
            all.retain(|(_, used, has_ended)| *used > 0 || !has_ended);
            let used: u64 = all.iter().map(|(_, used, _)| used).sum();
            charges.settle(|bytes| bytes >= used);
            let charged: u64 = charges.taken.iter().map(|taken| taken.bytes).sum();
            assert!(charged >= used, "S2: {charged} of {used}");
        }
        assert!(charges.next > 1000);
    }
}
