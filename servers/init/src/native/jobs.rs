//! Who pays for the kernel memory of a job: a space of its own, in which nothing runs. The quotas of the job's
//! processes come out of it, and what they leave in memory that stays is charged to it (`space_set_payer`), so that it
//! counts for the job until it is gone, and init pays for nobody.
use super::{error_of, Manager};
use abi::state::SpaceState;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use process::account::Supply;
use process::Process;
use proto::Error;
use rt::memory::Limits;
use rt::obj::{Ref, RefAt, Space};
use services::process::{Pid, MAX_JOB};

/// What a job has beside the quotas of its processes, for each of them, in bytes: what a space's account costs who pays
/// for it (384), and the rest for the last objects of processes that have ended and are being taken apart.
const BESIDE_QUOTA: u64 = 1024;

/// A job that has, or may have left, something.
pub(super) struct Job {
    space: Space,
    payer: Ref,
    /// Bytes that it may have in use: as much as the most processes may that a job can have.
    most: u64,
}

impl Job {
    /// One whose processes may each have so much.
    fn new(quota: u64) -> Result<Self, abi::Code> {
        let space = Space::new()?;
        let payer = space.reference()?;
        Ok(Job {
            space,
            payer,
            most: (quota + BESIDE_QUOTA) * MAX_JOB as u64,
        })
    }

    /// Sets its quota to what is in use, and so much more. [`Error::Limit`] if that is more than a job may have.
    fn grow(&self, more: u64) -> Result<u64, Error> {
        let mut state = self.space.get_state(0).map_err(error_of)?;
        let used = state.used;
        if more > 0 && used.saturating_add(more) > self.most {
            return Err(Error::Limit);
        }
        state.quota = used + more;
        self.space.set_state(&state, 0).map_err(error_of)?;
        Ok(used)
    }

    /// Gives back what is not in use. Whether something is.
    fn shrink(&self) -> bool {
        self.grow(0) != Ok(0)
    }
}

/// The jobs, by their numbers.
#[derive(Default)]
pub(super) struct Jobs(BTreeMap<Pid, Job>);

impl Jobs {
    /// Whether the number is a job's.
    pub(super) fn has(&self, job: Pid) -> bool {
        self.0.contains_key(&job)
    }

    /// Forgets which have left nothing, of those that have no processes any more. How many of these have.
    pub(super) fn forget(&mut self, in_use: &[Pid]) -> usize {
        let idle = |job: &Pid| !in_use.contains(job);
        self.0.retain(|number, job| !idle(number) || job.shrink());
        self.0.keys().filter(|number| idle(number)).count()
    }

    /// A process of a job has ended, or there will be none: what the job does not use goes back.
    pub(super) fn settle(&self, job: Pid) {
        if let Some(job) = self.0.get(&job) {
            job.shrink();
        }
    }
}

impl Manager {
    /// A new process of a job, without a program, whose quota comes out of the job's: [`Error::Limit`] if the job has too
    /// much with what its processes have left, and which is not gone.
    pub(super) fn process_of(
        &mut self,
        job: Pid,
        limits: fn(u64) -> Limits,
        space: &SpaceState,
        keeper: &RefAt,
    ) -> Result<Process, Error> {
        if !self.jobs.has(job) {
            let new = Job::new(space.quota).map_err(error_of)?;
            self.jobs.0.insert(job, new);
        }
        let known = self.jobs.0.get(&job).ok_or(Error::Broken)?;
        known.grow(space.quota + BESIDE_QUOTA)?;
        let supply = Supply {
            payer: Some(*known.payer),
            ..self.supply(limits)
        };
        let made = Process::create(&supply, space, Some(keeper));
        made.map_err(|error| self.nothing_of(job, error))
    }

    /// The jobs of all processes that count for one.
    pub(super) fn jobs_in_use(&self) -> Vec<Pid> {
        let coming = self.coming.values().map(|coming| coming.job);
        let jobs = self.entries.values().map(|entry| entry.job);
        jobs.chain(coming).collect()
    }
}
