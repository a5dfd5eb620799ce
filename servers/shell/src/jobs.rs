//! The table of jobs.
//!
//! A job has the lowest number that is free when it starts. Its number becomes free when the user knows that it has
//! ended: it was waited for, killed, or reported. Its final state is kept until the number is given to another job, so
//! that it can still be queried.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use services::process::{Pid, Status};

/// A server that manages processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manager {
    /// Fermata's own programs.
    Native,
    /// Linux programs.
    Linux,
}

impl Manager {
    /// Every manager.
    pub const ALL: [Manager; 2] = [Manager::Native, Manager::Linux];

    /// Its name at the name service.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Manager::Native => "native",
            Manager::Linux => "linux",
        }
    }

    /// The manager of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manager| manager.name() == name)
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Runs or waits.
    Running,
    /// Stopped.
    Stopped,
    /// Ended with this exit status.
    Ended(u8),
}

impl State {
    /// From a manager's status. The end by a signal has the status 128 and its number.
    #[must_use]
    pub const fn from_status(status: Status) -> Self {
        match status {
            Status::Running => State::Running,
            Status::Stopped => State::Stopped,
            Status::Exited(status) => State::Ended(status),
            Status::Killed(signal) => State::Ended(128u8.wrapping_add(signal)),
        }
    }

    /// Its name in lists of jobs.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            State::Running => "running".into(),
            State::Stopped => "stopped".into(),
            State::Ended(0) => "done".into(),
            State::Ended(status @ 129..) => format!("killed by signal {}", status - 128),
            State::Ended(status) => format!("exit {status}"),
        }
    }
}

/// A program that the shell has started, in the foreground or the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The manager of its process.
    pub manager: Manager,
    /// The number of its process.
    pub pid: Pid,
    /// How it was started.
    pub source: String,
    /// Its state, as far as the shell knows.
    pub state: State,
    /// Whether the user knows that it has ended.
    known: bool,
    /// When it was last in the foreground or started, for `fg` without a job.
    recent: u64,
    /// When it was added.
    added: u64,
}

impl Job {
    /// Whether it has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }
}

/// The jobs by number.
#[derive(Debug, Default)]
pub struct Jobs {
    table: BTreeMap<u32, Job>,
    clock: u64,
}

impl Jobs {
    /// No jobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job; returns its number.
    pub fn add(&mut self, manager: Manager, pid: Pid, source: String, state: State) -> u32 {
        self.clock += 1;
        let taken = |number: &u32| self.table.get(number).is_some_and(|job| !job.known);
        let number = (1..).find(|number| !taken(number)).unwrap_or(u32::MAX);
        let job = Job {
            manager,
            pid,
            source,
            state,
            known: false,
            recent: self.clock,
            added: self.clock,
        };
        self.table.insert(number, job);
        number
    }

    /// The job with that number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Job> {
        self.table.get(&number)
    }

    /// Notes the state of the job.
    pub fn set_state(&mut self, number: u32, state: State) {
        if let Some(job) = self.table.get_mut(&number) {
            job.state = state;
        }
    }

    /// Notes that the job is the most recent one.
    pub fn touch(&mut self, number: u32) {
        self.clock += 1;
        if let Some(job) = self.table.get_mut(&number) {
            job.recent = self.clock;
        }
    }

    /// Notes that the user knows that the job has ended: its number is free.
    pub fn know(&mut self, number: u32) {
        if let Some(job) = self.table.get_mut(&number) {
            job.known = job.has_ended();
        }
    }

    /// Forgets the job altogether, as if it had never had a number.
    pub fn remove(&mut self, number: u32) {
        self.table.remove(&number);
    }

    /// The jobs that run or are stopped, and those that ended unnoticed.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Job)> {
        self.table
            .iter()
            .filter(|(_, job)| !job.known)
            .map(|(number, job)| (*number, job))
    }

    /// The numbers of the jobs that have not ended.
    #[must_use]
    pub fn live(&self) -> Vec<u32> {
        self.iter()
            .filter(|(_, job)| !job.has_ended())
            .map(|(number, _)| number)
            .collect()
    }

    /// The number of the job that is this process.
    #[must_use]
    pub fn find(&self, manager: Manager, pid: Pid) -> Option<u32> {
        let is = |job: &&Job| job.manager == manager && job.pid == pid && !job.has_ended();
        self.table
            .iter()
            .find(|(_, job)| is(job))
            .map(|(number, _)| *number)
    }

    /// Whether no job that was added later has or had the same process number: numbers of ended processes are reused.
    #[must_use]
    pub fn is_last_of_process(&self, number: u32) -> bool {
        let Some(job) = self.table.get(&number) else {
            return false;
        };
        let of_it = |other: &&Job| (other.manager, other.pid) == (job.manager, job.pid);
        let mut others = self.table.values().filter(of_it);
        others.all(|other| other.added <= job.added)
    }

    /// The job that was started or in the foreground last.
    #[must_use]
    pub fn recent(&self) -> Option<u32> {
        let live = self.iter().filter(|(_, job)| !job.has_ended());
        live.max_by_key(|(_, job)| job.recent)
            .map(|(number, _)| number)
    }

    /// The number in `%N` or `N`, of a job that exists or existed.
    ///
    /// # Errors
    /// A sentence.
    pub fn number(&self, word: &str) -> Result<u32, String> {
        let digits = word.strip_prefix('%').unwrap_or(word);
        let number = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten();
        match number {
            Some(number) if self.table.contains_key(&number) => Ok(number),
            Some(_) => Err(format!("{word}: no such job")),
            None => Err(format!("{word}: not a job: jobs are %1, %2, ...")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(jobs: &mut Jobs, pid: Pid) -> u32 {
        jobs.add(
            Manager::Native,
            pid,
            format!("job of {pid}"),
            State::Running,
        )
    }

    #[test]
    fn numbers_are_the_lowest_free_ones() {
        let mut jobs = Jobs::new();
        assert_eq!(
            (add(&mut jobs, 10), add(&mut jobs, 11), add(&mut jobs, 12)),
            (1, 2, 3)
        );
        jobs.set_state(2, State::Ended(0));
        // The user does not know yet.
        assert_eq!(add(&mut jobs, 13), 4);
        jobs.know(2);
        // It can still be queried.
        assert_eq!(jobs.number("%2"), Ok(2));
        assert_eq!(jobs.get(2).unwrap().state, State::Ended(0));
        assert_eq!(add(&mut jobs, 14), 2);
        assert_eq!(jobs.get(2).unwrap().state, State::Running);
        jobs.know(1);
        assert_eq!(add(&mut jobs, 15), 5);
        jobs.remove(5);
        assert_eq!(add(&mut jobs, 16), 5);
    }

    #[test]
    fn jobs_are_found() {
        let mut jobs = Jobs::new();
        add(&mut jobs, 10);
        add(&mut jobs, 11);
        assert_eq!(jobs.number("1"), Ok(1));
        assert_eq!(jobs.number("%3"), Err("%3: no such job".into()));
        assert_eq!(
            jobs.number("%x"),
            Err("%x: not a job: jobs are %1, %2, ...".into())
        );
        for word in ["%", "", "-1", "+1", "99999999999", "%%1"] {
            assert!(jobs.number(word).is_err(), "{word}");
        }
        assert_eq!(jobs.find(Manager::Native, 11), Some(2));
        assert_eq!(jobs.find(Manager::Linux, 11), None);
        assert_eq!(jobs.recent(), Some(2));
        jobs.touch(1);
        assert_eq!(jobs.recent(), Some(1));
        jobs.set_state(1, State::Ended(137));
        assert_eq!(jobs.live(), [2]);
        assert_eq!(jobs.recent(), Some(2));
        assert_eq!(jobs.iter().count(), 2);
        jobs.know(1);
        assert_eq!(jobs.iter().count(), 1);
    }

    #[test]
    fn a_number_of_a_process_is_the_last_jobs_that_had_it() {
        let mut jobs = Jobs::new();
        add(&mut jobs, 10);
        assert!(jobs.is_last_of_process(1));
        jobs.set_state(1, State::Ended(0));
        assert!(jobs.is_last_of_process(1), "what it has started may run on");
        add(&mut jobs, 10);
        assert!(!jobs.is_last_of_process(1), "its number is another's now");
        assert!(jobs.is_last_of_process(2));
        jobs.touch(1);
        assert!(!jobs.is_last_of_process(1));
        assert!(!jobs.is_last_of_process(3));
    }

    #[test]
    fn states_in_words() {
        assert_eq!(State::from_status(Status::Killed(11)), State::Ended(139));
        assert_eq!(State::from_status(Status::Exited(3)).text(), "exit 3");
        assert_eq!(State::Ended(137).text(), "killed by signal 9");
        assert_eq!(State::Ended(0).text(), "done");
        assert_eq!(Manager::from_name("linux"), Some(Manager::Linux));
        assert_eq!(Manager::from_name("x"), None);
    }
}
