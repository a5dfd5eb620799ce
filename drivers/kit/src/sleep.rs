//! Sleep and wakeup (section 4.4): the process-level thread waits, out of the driver, until a handler wakes it.
use crate::set::{Gate, LOCK, THREADS};
use core::ptr::addr_of_mut;
use interface::Error;

/// Where the process-level thread sleeps.
static GATE: Gate = Gate::new();

pub(crate) fn make() -> Result<(), Error> {
    GATE.make()
}

/// A sleep record: two words.
#[derive(Debug)]
#[repr(C)]
pub struct SleepRecord {
    /// It has been woken.
    woken: usize,
    /// It sleeps.
    asleep: usize,
}

/// A.2.1: makes a sleep record.
#[no_mangle]
extern "C" fn osenv_sleep_init(record: *mut SleepRecord) {
    // SAFETY: the caller says that this is a sleep record of its own.
    unsafe {
        record.write_volatile(SleepRecord {
            woken: 0,
            asleep: 0,
        });
    }
}

/// A.2.2: waits until the record is woken; not at all if it has been. Only the process-level thread may sleep: in a
/// handler this is a mistake, which ends the program. Handlers run meanwhile, whether interrupts were disabled or
/// not.
#[no_mangle]
extern "C" fn osenv_sleep(record: *mut SleepRecord) {
    if LOCK.in_handler() {
        crate::log::panic("it sleeps in a handler");
    }
    let enabled = LOCK.disable();
    // SAFETY: the caller's, which stays until this returns; handlers, which write it as well, do not run while interrupts are disabled.
    let (woken, asleep) = unsafe {
        (
            addr_of_mut!((*record).woken),
            addr_of_mut!((*record).asleep),
        )
    };
    // SAFETY: as above.
    unsafe {
        if woken.read_volatile() == 0 {
            asleep.write_volatile(1);
            LOCK.leave(&THREADS);
            GATE.wait();
            LOCK.enter(&THREADS);
            LOCK.disable();
        }
        woken.write_volatile(0);
    }
    if enabled {
        LOCK.enable(&THREADS);
    }
}

/// A.2.3: wakes the thread that sleeps there, or the next one that will.
#[no_mangle]
extern "C" fn osenv_wakeup(record: *mut SleepRecord) {
    let enabled = LOCK.disable();
    // SAFETY: as in `osenv_sleep`.
    unsafe {
        let asleep = addr_of_mut!((*record).asleep);
        addr_of_mut!((*record).woken).write_volatile(1);
        if asleep.read_volatile() != 0 {
            asleep.write_volatile(0);
            GATE.open();
        }
    }
    if enabled {
        LOCK.enable(&THREADS);
    }
}
