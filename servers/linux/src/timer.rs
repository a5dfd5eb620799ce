//! The timers of a process: those of `alarm` and `setitimer`, and those of `timer_create`.
//!
//! A repeating timer keeps its rhythm: its next time is its first time plus a multiple of the interval. The number of
//! times that were missed before the signal could be sent, or while the signal before was still pending, is the timer's
//! *overrun*, which goes with the signal. All times are on the process's clock, in nanoseconds.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::signal::{sig, Origin, SIGNALS};
use linux_raw_sys::general as linux;

/// Most timers of `timer_create` of a process.
pub const MAX_TIMERS: usize = 64;

/// The highest number of a timer, which programs store in an `int`.
const LAST: u32 = u32::MAX >> 1;

/// When a timer goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The next time at which the timer goes off.
    pub deadline: u64,
    /// After how many nanoseconds it goes off again; 0 for never.
    pub interval: u64,
}

impl Alarm {
    /// How often the timer should have gone off by `now`, the first time included.
    const fn times(&self, now: u64) -> u64 {
        match now.checked_sub(self.deadline) {
            None => 0,
            Some(late) => match late.checked_div(self.interval) {
                None => 1,
                Some(more) => more.saturating_add(1),
            },
        }
    }

    /// The alarm after the timer has gone off so often; `None` if it does not go off again.
    fn after(self, times: u64) -> Option<Self> {
        let further = self.interval.saturating_mul(times);
        (self.interval != 0).then_some(Alarm {
            deadline: self.deadline.saturating_add(further),
            ..self
        })
    }
}

/// The signal that a timer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The signal's number.
    pub signal: u32,
    /// The value of `si_value`.
    pub value: u64,
    /// The number of the thread that gets the signal; `None` for any thread of the process.
    pub thread: Option<u32>,
}

/// A timer of `timer_create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// The clock (`CLOCK_*`) by which the program sets and reads the timer.
    pub clock: u32,
    /// The signal that the timer sends; `None` if it only shows its time.
    pub notice: Option<Notice>,
    /// When it goes off; `None` if it is not set.
    alarm: Option<Alarm>,
    /// Whether it was set to a date, as a time of `CLOCK_REALTIME`.
    by_date: bool,
    /// The overrun of the signal that was sent last.
    missed: u64,
    /// The overrun of the signal before that, which is the one delivered last while the other is pending.
    missed_before: u64,
}

/// A signal that a timer has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The signal's number.
    pub signal: u32,
    /// The origin that its receiver is told.
    pub origin: Origin,
    /// The number of the thread that gets the signal; `None` for any thread of the process.
    pub thread: Option<u32>,
}

/// All timers of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timers {
    /// The timer of `alarm` and of `setitimer` by real time.
    pub alarm: Option<Alarm>,
    /// The timers of `setitimer` by processor time, of the program alone and with its calls. Here they go by the clock.
    by_work: [Option<Alarm>; 2],
    /// The timers of `timer_create`, by number.
    own: BTreeMap<u32, Timer>,
    /// The number to try for the next timer.
    next: u32,
    /// [`Timers::earliest`] is not before this time for repeating timers.
    #[serde(skip)]
    pause: u64,
}

impl Timers {
    /// Whether timers from an image make sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_sound = |timer: &Timer| {
            let signal = timer.notice.map_or(sig::ALRM, |notice| notice.signal);
            (1..=SIGNALS).contains(&signal)
        };
        let numbers = self.own.keys().chain([&self.next]);
        self.own.len() <= MAX_TIMERS
            && self.own.values().all(is_sound)
            && numbers.into_iter().all(|id| *id <= LAST)
    }

    /// Whether there is no timer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.alarm.is_none() && self.by_work == [None; 2] && self.own.is_empty()
    }

    /// Deletes the timers of `timer_create`, as `execve` does.
    pub fn forget(&mut self) {
        self.own.clear();
    }

    /// The timer of `setitimer` with this number (`ITIMER_*`); `None` if the number is wrong.
    pub fn interval(&mut self, which: u32) -> Option<&mut Option<Alarm>> {
        match which {
            linux::ITIMER_REAL => Some(&mut self.alarm),
            linux::ITIMER_VIRTUAL => Some(&mut self.by_work[0]),
            linux::ITIMER_PROF => Some(&mut self.by_work[1]),
            _ => None,
        }
    }

    /// Creates a timer with this clock, and returns its number; `None` if there are too many. `what` returns the
    /// timer's signal, given the number.
    pub fn create(&mut self, clock: u32, what: impl FnOnce(u32) -> Option<Notice>) -> Option<u32> {
        if self.own.len() >= MAX_TIMERS {
            return None;
        }
        while self.own.contains_key(&self.next) {
            self.next = (self.next + 1) & LAST;
        }
        let id = self.next;
        self.next = (id + 1) & LAST;
        let timer = Timer {
            clock,
            notice: what(id),
            alarm: None,
            by_date: false,
            missed: 0,
            missed_before: 0,
        };
        self.own.insert(id, timer);
        Some(id)
    }

    /// The timer of `timer_create` with this number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Timer> {
        self.own.get(&id)
    }

    /// Sets a timer, to a date if `by_date`, or stops it (`None`), and clears its overrun.
    pub fn set(&mut self, id: u32, alarm: Option<Alarm>, by_date: bool) {
        if let Some(timer) = self.own.get_mut(&id) {
            (timer.alarm, timer.by_date) = (alarm, by_date);
            (timer.missed, timer.missed_before) = (0, 0);
        }
    }

    /// Makes the timers that are set to a date go off `later` nanoseconds earlier on the process's clock, which has
    /// stood still for as long while the date went on.
    pub fn keep_dates(&mut self, later: i64) {
        for timer in self.own.values_mut().filter(|timer| timer.by_date) {
            if let Some(alarm) = &mut timer.alarm {
                alarm.deadline = sooner(alarm.deadline, later, alarm.interval);
            }
        }
    }

    /// Deletes a timer: whether there was one.
    pub fn delete(&mut self, id: u32) -> bool {
        self.own.remove(&id).is_some()
    }

    /// The time at which [`Timers::ring`] is to be called next; `None` if no timer will send a signal.
    #[must_use]
    pub fn earliest(&self) -> Option<u64> {
        let own = self.own.values().filter(|timer| timer.notice.is_some());
        let by_work = self.by_work.iter().flatten().copied();
        let alarms = own.filter_map(|timer| timer.alarm);
        let alarms = alarms.chain(self.alarm).chain(by_work);
        let time = |alarm: Alarm| match alarm.interval {
            0 => alarm.deadline,
            _ => alarm.deadline.max(self.pause),
        };
        alarms.map(time).min()
    }

    /// How many timers are set.
    #[must_use]
    pub fn armed(&self) -> usize {
        let own = self.own.values().filter(|timer| timer.alarm.is_some());
        own.count() + usize::from(self.alarm.is_some()) + self.by_work.iter().flatten().count()
    }

    /// The signals of the timers that are due at `now`. Repeating timers ask for no call before `pause`.
    /// `is_pending` says whether a signal of the timer with this number is still pending, and if so adds the overrun to
    /// it.
    pub fn ring(
        &mut self,
        now: u64,
        pause: u64,
        mut is_pending: impl FnMut(u32, Notice, i32) -> bool,
    ) -> Vec<Rung> {
        let mut rung = Vec::new();
        let mut is_due = false;
        let [virtual_time, all_time] = &mut self.by_work;
        for (timer, signal) in [
            (&mut self.alarm, sig::ALRM),
            (virtual_time, sig::VTALRM),
            (all_time, sig::PROF),
        ] {
            let Some(alarm) = *timer else { continue };
            let times = alarm.times(now);
            if times > 0 {
                is_due = true;
                *timer = alarm.after(times);
                rung.push(Rung {
                    signal,
                    origin: Origin::kernel(),
                    thread: None,
                });
            }
        }
        for (id, timer) in &mut self.own {
            let (Some(alarm), Some(notice)) = (timer.alarm, timer.notice) else {
                continue;
            };
            let times = alarm.times(now);
            if times == 0 {
                continue;
            }
            is_due = true;
            timer.alarm = alarm.after(times);
            if is_pending(*id, notice, overrun(timer.missed.saturating_add(times))) {
                timer.missed = timer.missed.saturating_add(times);
                continue;
            }
            timer.missed_before = core::mem::replace(&mut timer.missed, times - 1);
            rung.push(Rung {
                signal: notice.signal,
                origin: Origin {
                    code: linux::SI_TIMER,
                    pid: *id,
                    uid: overrun(timer.missed) as u32,
                    value: notice.value,
                    timer: Some(*id),
                    ..Origin::default()
                },
                thread: notice.thread,
            });
        }
        if is_due {
            self.pause = pause;
        }
        rung
    }
}

impl Timer {
    /// Nanoseconds until the timer goes off, at least 1 if it is set, and its interval; zeros if it is not set.
    #[must_use]
    pub fn left(&self, now: u64) -> (u64, u64) {
        let Some(alarm) = self.alarm else {
            return (0, 0);
        };
        // Times that have passed are skipped. After the last one a timer without a signal is at rest, one with a signal
        // is about to send it.
        let next = match alarm.times(now) {
            0 => Some(alarm),
            times => alarm.after(times),
        };
        let is_silent = self.notice.is_none();
        match next {
            None if is_silent => (0, 0),
            next => {
                let deadline = next.map_or(0, |next| next.deadline);
                (deadline.saturating_sub(now).max(1), alarm.interval)
            }
        }
    }

    /// The overrun of the signal that was delivered last. `is_pending`: a later signal of the timer is pending.
    #[must_use]
    pub fn overrun(&self, is_pending: bool) -> i32 {
        overrun(match is_pending {
            true => self.missed_before,
            false => self.missed,
        })
    }
}

/// The time that is `by` nanoseconds before a time of a process's clock, or after it if `by` is negative. If that is
/// before the clock's beginning, it is the beginning, or the first time from there on that keeps the rhythm of
/// `interval`.
pub(crate) fn sooner(time: u64, by: i64, interval: u64) -> u64 {
    let time = i128::from(time) - i128::from(by);
    let time = match interval {
        1.. if time < 0 => time.rem_euclid(i128::from(interval)),
        _ => time.max(0),
    };
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// An overrun as programs are told it, at most `DELAYTIMER_MAX`.
fn overrun(missed: u64) -> i32 {
    i32::try_from(missed).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: Notice = Notice {
        signal: 40,
        value: 7,
        thread: None,
    };

    fn with(alarm: Alarm, notice: Option<Notice>) -> (Timers, u32) {
        let mut timers = Timers::default();
        let id = timers.create(linux::CLOCK_MONOTONIC, |_| notice);
        let id = id.expect("it is the first one");
        timers.set(id, Some(alarm), false);
        (timers, id)
    }

    /// A timer that begins again keeps its rhythm, however late it is looked at, and says how many times were missed.
    #[test]
    fn a_timer_keeps_its_rhythm() {
        let alarm = Alarm {
            deadline: 100,
            interval: 10,
        };
        let (mut timers, id) = with(alarm, Some(NOTICE));
        assert_eq!(timers.ring(99, 0, |_, _, _| false), []);
        let rung = timers.ring(134, 150, |_, _, _| false);
        let origin = rung[0].origin;
        assert_eq!((rung.len(), rung[0].signal, origin.value), (1, 40, 7));
        let overrun = "the times that were missed go with the signal";
        assert_eq!(
            (origin.code, origin.pid, origin.uid),
            (-2, id, 3),
            "{overrun}"
        );
        assert_eq!(timers.get(id).unwrap().overrun(false), 3, "{overrun}");
        // The timer rests until `pause`, and keeps its rhythm.
        let rhythm = "a timer goes off at multiples of its interval";
        assert_eq!(timers.get(id).unwrap().left(134), (6, 10), "{rhythm}");
        assert_eq!(timers.earliest(), Some(150), "nobody rings all the time");
        // The signal is still pending: its overrun is raised, and it is not sent twice.
        let mut told = None;
        let rung = timers.ring(150, 200, |of, notice, overrun| {
            told = Some((of, notice, overrun));
            true
        });
        assert_eq!((rung, told), (Vec::new(), Some((id, NOTICE, 5))));
        assert_eq!(timers.earliest(), Some(200), "nobody rings all the time");
        let rung = timers.ring(160, 200, |_, _, _| false);
        assert_eq!(rung[0].origin.uid, 0, "{overrun}");
        let timer = timers.get(id).unwrap();
        assert_eq!((timer.overrun(true), timer.overrun(false)), (5, 0));
    }

    /// The shortest interval there is, looked at after a very long time, is no more work.
    #[test]
    fn a_hostile_interval_takes_no_time() {
        let alarm = Alarm {
            deadline: 1,
            interval: 1,
        };
        let (mut timers, id) = with(alarm, Some(NOTICE));
        let rung = timers.ring(u64::MAX - 1, u64::MAX, |_, _, _| false);
        assert_eq!(rung[0].origin.uid, i32::MAX as u32);
        assert_eq!(timers.get(id).unwrap().left(u64::MAX - 1), (1, 1));
    }

    #[test]
    fn a_timer_that_tells_nobody_shows_its_time() {
        let alarm = Alarm {
            deadline: 100,
            interval: 30,
        };
        let (mut timers, id) = with(alarm, None);
        assert_eq!((timers.earliest(), timers.armed()), (None, 1));
        assert_eq!(timers.get(id).unwrap().left(165), (25, 30));
        assert_eq!(timers.ring(165, 0, |_, _, _| false), []);
        let once = Alarm {
            interval: 0,
            ..alarm
        };
        timers.set(id, Some(once), false);
        assert_eq!(timers.get(id).unwrap().left(99), (1, 0));
        assert_eq!(timers.get(id).unwrap().left(100), (0, 0));
    }

    #[test]
    fn what_was_due_before_the_clock_began_keeps_its_rhythm() {
        assert_eq!(sooner(100, 30, 60), 70);
        assert_eq!(sooner(100, -30, 60), 130);
        assert_eq!(sooner(100, 130, 60), 30);
        assert_eq!(sooner(100, 130, 0), 0);
        assert_eq!(sooner(u64::MAX, i64::MIN, 0), u64::MAX);
        assert_eq!(sooner(0, i64::MAX, u64::MAX), u64::MAX - i64::MAX as u64);
    }

    #[test]
    fn there_are_so_many_timers_and_no_more() {
        let mut timers = Timers::default();
        let mut create = || timers.create(0, |_| None);
        let ids: Vec<u32> = core::iter::from_fn(&mut create).collect();
        assert_eq!(ids, Vec::from_iter(0..MAX_TIMERS as u32));
        assert!(timers.delete(5) && !timers.delete(5));
        assert_eq!(timers.create(0, |_| None), Some(MAX_TIMERS as u32));
        assert!(timers.is_sound());
        timers.forget();
        assert!(timers.is_empty());
        // Numbers begin again, and none is given twice.
        timers.next = LAST;
        assert_eq!(timers.create(0, |_| None), Some(LAST));
        timers.next = LAST;
        assert_eq!(timers.create(0, |_| None), Some(0));
        timers.next = LAST + 1;
        assert!(!timers.is_sound(), "no image has a number that is none");
    }
}
