//! Timers: functions that are called periodically, like handlers of interrupts; and waiting without sleeping.
use crate::set::{interrupt, outside};
use alloc::vec::Vec;
use core::ffi::{c_int, c_long};
use rt::obj::Ref;
use rt::sync::{Lazy, Mutex};
use rt::{sys, thread, time};

type Function = extern "C" fn();

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// A function, its period, and the time of its next call, in nanoseconds. Times are multiples of the period, so that
/// they do not drift.
#[derive(Clone, Copy)]
struct Timer {
    function: Function,
    period: u64,
    next: u64,
}

static TIMERS: Mutex<Vec<Timer>> = Mutex::new(Vec::new());
static THREAD: Lazy<Ref> = Lazy::new();

/// The functions that are due, each once however late it is, and when the next one is due.
fn due(now: u64) -> (Vec<Function>, u64) {
    let mut due = Vec::new();
    let mut next = u64::MAX;
    for timer in TIMERS.lock().iter_mut() {
        if timer.next <= now {
            due.push(timer.function);
            timer.next += ((now - timer.next) / timer.period + 1) * timer.period;
        }
        next = next.min(timer.next);
    }
    (due, next)
}

fn serve() {
    loop {
        let (due, next) = due(time::now());
        for function in due {
            interrupt(|| function());
        }
        let _ = sys::thread_wait_interrupt_until(next);
    }
}

/// A.6.1: makes the thread on which timers run. To be called before the other functions of this section.
#[no_mangle]
extern "C" fn osenv_timer_init() {
    let made =
        outside(|| THREAD.get(|| thread::spawn_at(rt::start::priority() + 1, serve)?.reference()));
    if made.is_err() {
        crate::log::panic("there is no memory for a thread");
    }
}

/// A.6.2: returns after so many nanoseconds. Threads of lower priority do not run meanwhile.
#[no_mangle]
extern "C" fn osenv_timer_spin(nanoseconds: c_long) {
    let end = time::now().saturating_add(nanoseconds.max(0) as u64);
    while time::now() < end {
        core::hint::spin_loop();
    }
}

/// A.6.3: calls the function `frequency` times a second, as a handler. A call that would come too late is left out.
#[no_mangle]
extern "C" fn osenv_timer_register(function: Option<Function>, frequency: c_int) {
    let Some(function) = function.filter(|_| (1..=1_000_000).contains(&frequency)) else {
        return;
    };
    let period = SECOND / frequency as u64;
    outside(|| {
        TIMERS.lock().push(Timer {
            function,
            period,
            next: time::now() + period,
        });
        if let Ok(thread) = THREAD.get(|| Err(())) {
            let _ = thread.interrupt();
        }
    });
}

/// A.6.4: stops calling the function at this frequency.
#[no_mangle]
extern "C" fn osenv_timer_unregister(function: Option<Function>, frequency: c_int) {
    let Some(function) = function.filter(|_| frequency > 0) else {
        return;
    };
    let period = SECOND / frequency as u64;
    outside(|| {
        let mut timers = TIMERS.lock();
        let same =
            |timer: &Timer| timer.function as usize == function as usize && timer.period == period;
        if let Some(place) = timers.iter().position(same) {
            timers.swap_remove(place);
        }
    });
}

/// The time since the machine began, in nanoseconds. (`oskit_rtc_get`, the date, is missing.)
#[no_mangle]
extern "C" fn osenv_timer_now() -> u64 {
    time::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn one() {}
    extern "C" fn other() {
        core::hint::black_box(1);
    }

    #[test]
    fn a_function_that_is_taken_back_is_called_no_more() {
        let _alone = crate::set::ALONE.lock();
        let add = |function: Function, frequency: u64| {
            let period = SECOND / frequency;
            let next = period;
            TIMERS.lock().push(Timer {
                function,
                period,
                next,
            });
        };
        add(one, 100);
        add(other, 100);
        add(one, 50);
        add(one, 100);
        let called = |now: u64| {
            let (due, next) = due(now);
            let ones = due
                .iter()
                .filter(|f| **f as usize == one as Function as usize);
            (ones.count(), due.len(), next)
        };
        assert_eq!(called(SECOND), (3, 4, SECOND + SECOND / 100));
        // Timers that were never registered: another function, another frequency, or no valid frequency.
        osenv_timer_unregister(Some(other), 50);
        osenv_timer_unregister(Some(one), 0);
        osenv_timer_unregister(Some(one), -100);
        osenv_timer_unregister(None, 100);
        assert_eq!(called(2 * SECOND).1, 4, "all are still called");
        // One of two equal timers.
        osenv_timer_unregister(Some(one), 100);
        assert_eq!(called(3 * SECOND).0, 2);
        osenv_timer_unregister(Some(one), 100);
        assert_eq!(called(4 * SECOND), (1, 2, 4 * SECOND + SECOND / 100));
        osenv_timer_unregister(Some(other), 100);
        osenv_timer_unregister(Some(one), 50);
        assert_eq!(called(5 * SECOND), (0, 0, u64::MAX), "nothing is called");
    }
}
