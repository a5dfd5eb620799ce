//! The probe of the kernel, from the side of the program that drives it; see [`abi::probe`].

use abi::probe::{
    ARM, CALL, CENSUS, FORGET, FRESH, GENERAL_PATH, LINE, RAISE, READ, SET, SITE, SITES, SWEEP,
    WATCHED,
};
use abi::Code;
use alloc::vec::Vec;
use core::arch::asm;
use rt::obj::RefAt;

/// The right to drive the probe.
#[derive(Clone, Copy)]
pub struct Probe(RefAt);

/// Where the probe has fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// The site.
    pub site: u64,
    /// The role of the thread.
    pub role: u64,
}

/// What the probe has counted since it was armed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Sites passed.
    pub passed: u64,
    /// Bytes of messages moved.
    pub moved: u64,
    /// Instructions that the probe itself has used since the machine started.
    pub own: u64,
    /// How often a thread has been preempted in the kernel since the machine started.
    pub preempted: u64,
    /// Instructions that were done again until the thread was where it had been cut before, or 0.
    pub again: u64,
    /// Where it has fired, if it has.
    pub fired: Option<Fired>,
}

/// A site that was passed.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// See [`abi::probe::site`].
    pub id: u64,
    /// How often it was passed.
    pub times: u64,
}

impl Probe {
    /// Makes the thread the one that is interrupted; `None` if this kernel has no probe.
    pub fn attach(authority: RefAt, thread: RefAt) -> Option<Self> {
        let code = rt::sys::device_attach_interrupt(authority.0, thread.0, LINE);
        (code == Code::Ok).then_some(Probe(authority))
    }

    fn call(self, operation: u64, argument: u64, more: u64) -> [u64; 9] {
        let mut out = [0; 9];
        // SAFETY: the probe's call touches no memory.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") u64::from(CALL) => _,
                inlateout("rdi") self.0.0 => out[0],
                inlateout("rsi") operation => out[1],
                inlateout("rdx") argument => out[2],
                inlateout("r10") more => out[3],
                lateout("r8") out[4],
                lateout("r9") out[5],
                lateout("r12") out[6],
                lateout("r13") out[7],
                lateout("r14") out[8],
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        out
    }

    /// Arms for the `n`th site from now on (0: none) of threads whose role is in the mask.
    pub fn arm(self, n: u64, roles: u64) {
        self.call(ARM, n, roles);
    }

    /// Begins a sweep: fires at the first site in each state, when [`Probe::sweep`] says so.
    pub fn fresh(self) {
        self.call(FRESH, 0, 0);
    }

    /// Arms for the next state of the sweep.
    pub fn sweep(self, roles: u64) {
        self.call(ARM, SWEEP, roles);
    }

    /// What has happened since the probe was armed.
    #[must_use]
    pub fn read(self) -> Counted {
        let [passed, site, role, again, moved, own, preempted, ..] = self.call(READ, 0, 0);
        let fired = Fired { site, role };
        Counted {
            passed,
            moved,
            own,
            preempted,
            again,
            fired: (site != 0).then_some(fired),
        }
    }

    /// All sites that watched threads have passed.
    #[must_use]
    pub fn sites(self) -> Vec<Site> {
        (0..SITES)
            .map(|index| self.call(SITE, index, 0))
            .filter(|words| words[0] != 0)
            .map(|[id, times, ..]| Site { id, times })
            .collect()
    }

    /// Forgets all sites.
    pub fn forget(self) {
        self.call(FORGET, 0, 0);
    }

    /// Has the kernel check its structures at every `period`th exit, and lets calls take fast paths
    /// or not.
    pub fn set(self, period: u64, general: bool) {
        self.call(SET, period, if general { GENERAL_PATH } else { 0 });
    }

    /// A device raises its line.
    pub fn raise(self, line: u64) {
        self.call(RAISE, line, 0);
    }

    /// How many objects of each type the kernel has.
    #[must_use]
    pub fn census(self) -> [u64; 9] {
        self.call(CENSUS, 0, 0)
    }
}

/// The tag of a watched thread with this role.
#[must_use]
pub const fn tag(role: u64) -> u64 {
    WATCHED | role
}
