//! The kernel memory of jobs. The account of a job is that of a space in which nothing runs. The quotas of the job's
//! processes come out of it, and objects that they leave in memory that stays are charged to it (`space_set_payer`). So
//! these objects count for the job until they are gone, and init pays for none of them.
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

/// What a job has beside the quota of each process, in bytes: 384 that a space's account costs its payer, and the rest
/// for the last objects of processes that have ended and are being taken apart.
const BESIDE_QUOTA: u64 = 1024;

/// The account of a job that has processes, or has had some that may have left objects.
pub(super) struct Job {
    space: Space,
    payer: Ref,
    /// Bytes that the job may have in use: as many as the most processes of a job may have together.
    most: u64,
}

impl Job {
    /// A job whose processes may each have `quota` bytes.
    fn new(quota: u64) -> Result<Self, abi::Code> {
        let space = Space::new()?;
        let payer = space.reference()?;
        Ok(Job {
            space,
            payer,
            most: (quota + BESIDE_QUOTA) * MAX_JOB as u64,
        })
    }

    /// Sets the job's quota to what is in use plus `more` bytes, and returns the bytes in use. [`Error::Limit`] if the
    /// sum is more than a job may have.
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

    /// Gives back the quota that is not in use. Returns whether some of it is in use.
    fn shrink(&self) -> bool {
        self.grow(0) != Ok(0)
    }
}

/// The jobs, by their numbers.
#[derive(Default)]
pub(super) struct Jobs(BTreeMap<Pid, Job>);

impl Jobs {
    /// Whether there is an account of this job.
    pub(super) fn has(&self, job: Pid) -> bool {
        self.0.contains_key(&job)
    }

    /// Forgets the jobs without processes that have nothing in use. Returns how many jobs without processes remain.
    /// `in_use`: the jobs that have processes.
    pub(super) fn forget(&mut self, in_use: &[Pid]) -> usize {
        let idle = |job: &Pid| !in_use.contains(job);
        self.0.retain(|number, job| !idle(number) || job.shrink());
        self.0.keys().filter(|number| idle(number)).count()
    }

    /// Gives back the quota that a job does not use, after a process of it has ended or could not be made.
    pub(super) fn settle(&self, job: Pid) {
        if let Some(job) = self.0.get(&job) {
            job.shrink();
        }
    }
}

impl Manager {
    /// Makes a process of a job, without a program. Its quota comes out of the job's: [`Error::Limit`] if the job's
    /// processes have left too much that is not gone yet.
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

    /// The job of each process, one entry per process.
    pub(super) fn jobs_in_use(&self) -> Vec<Pid> {
        let coming = self.coming.values().map(|coming| coming.job);
        let jobs = self.entries.values().map(|entry| entry.job);
        jobs.chain(coming).collect()
    }
}
