//! Interrupts: a thread for each line that a driver has asked for (section 4.5).
use crate::set::{acknowledge, ask, interrupt, outside, Gate, Set, LOCK, THREADS};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use interface::Error;
use rt::obj::Ref;
use rt::sync::Lazy;
use rt::thread;
use services::device::Function;
use virtio::{Idle, IDLE_PAUSE};

/// Lines that there can be.
const LINES: usize = 16;
/// `OSENV_IRQ_PROBE`: nothing is said if the line cannot be had.
const PROBE: c_int = 2;
/// Above the process-level thread.
const ABOVE: u64 = 1;

/// Says whether its device had anything to do.
type Handler = extern "C" fn(*mut c_void) -> c_int;

/// What came of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rang {
    /// Its thread is to wait at the gate.
    Waits,
    /// The handler was called, and says whether there was anything to do.
    Served(bool),
}

/// A line.
struct Line {
    /// Its handler, 0 for none, and what that is called with.
    handler: AtomicUsize,
    data: AtomicPtr<c_void>,
    /// It is this driver's.
    attached: AtomicBool,
    disabled: AtomicBool,
    /// An interrupt has come meanwhile, and its thread waits at the gate.
    pending: AtomicBool,
    gate: Gate,
}

static LINE: [Line; LINES] = [const {
    Line {
        handler: AtomicUsize::new(0),
        data: AtomicPtr::new(core::ptr::null_mut()),
        attached: AtomicBool::new(false),
        disabled: AtomicBool::new(false),
        pending: AtomicBool::new(false),
        gate: Gate::new(),
    }
}; LINES];

/// A thread that serves a line, and another one when that is given back.
struct Server {
    /// The number of its line, or [`NONE`].
    line: AtomicUsize,
    thread: Lazy<Ref>,
}

/// No line.
const NONE: usize = LINES;

static SERVERS: [Server; LINES] = [const {
    Server {
        line: AtomicUsize::new(NONE),
        thread: Lazy::new(),
    }
}; LINES];

impl Server {
    /// The line is masked from when it rings until the thread waits again.
    fn serve(&self) {
        let mut idle = Idle::new();
        loop {
            rt::sys::thread_wait_interrupt();
            if let Some(line) = LINE.get(self.line.load(Ordering::Acquire)) {
                let found = loop {
                    match line.rings() {
                        Rang::Waits => line.gate.wait(),
                        Rang::Served(found) => break found,
                    }
                };
                // Others on the line are served meanwhile.
                acknowledge();
                if idle.served(found) {
                    // The line is masked until this waits again.
                    rt::time::sleep(IDLE_PAUSE);
                }
            }
        }
    }

    /// Its thread, made when there is a first line for it.
    fn thread(&'static self) -> Result<&'static Ref, Error> {
        let priority = rt::start::priority() + ABOVE;
        let make = || thread::spawn_at(priority, move || self.serve())?.reference();
        outside(|| self.thread.get(make)).map_err(rt::error_of)
    }
}

fn line(irq: c_int) -> Option<&'static Line> {
    LINE.get(usize::try_from(irq).ok()?)
}

impl Line {
    /// One interrupt.
    fn rings(&self) -> Rang {
        let mut rang = Rang::Served(true);
        interrupt(|| {
            if !self.attached.load(Ordering::Acquire) {
                // It came before the line went.
                return;
            }
            let handler = self.handler.load(Ordering::Acquire);
            if handler == 0 || self.disabled.load(Ordering::Acquire) {
                self.pending.store(true, Ordering::Release);
                rang = Rang::Waits;
                return;
            }
            // SAFETY: the address was stored by `osenv_irq_alloc`, which was given a function.
            let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };
            rang = Rang::Served(handler(self.data.load(Ordering::Acquire)) != 0);
        });
        rang
    }

    /// Lets an interrupt through that has come while the line was disabled or had no handler.
    fn let_through(&self) {
        if self.pending.swap(false, Ordering::AcqRel) {
            self.gate.open();
        }
    }
}

/// Offset of the pin by which a PCI function interrupts: 0 for none.
const PIN: u64 = 0x3d;

/// This driver's function, if that has a pin: one that has none, as a controller of disks at the ports of old, pulls a
/// line that is the driver's by the manifest.
fn function(set: &mut Set) -> Result<Option<Function>, Error> {
    let Some(&function) = set.functions.first() else {
        return Ok(None);
    };
    let pin = set.devices.config_read(function, PIN, 1)?;
    Ok((pin != 0).then_some(function))
}

/// Gives a thread to the line: it gets the interrupts of this driver's function, whatever number that has noted, or of
/// the line if there is no function that has one.
fn attach(irq: c_int) -> Result<(), Error> {
    let number = usize::try_from(irq).map_err(|_| Error::Invalid)?;
    let line = LINE.get(number).ok_or(Error::Invalid)?;
    outside(|| line.gate.make())?;
    let free = |server: &&Server| {
        let had = &server.line;
        had.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    };
    let server = SERVERS.iter().find(free).ok_or(Error::Limit)?;
    let attached = server.thread().and_then(|thread| {
        ask(|set| match function(set)? {
            Some(function) => {
                set.line = Some(virtio::Line::attach(&mut set.devices, function, thread)?);
                Ok(())
            }
            None => set.devices.attach_line(number as u64, thread),
        })
    });
    if attached.is_err() {
        server.line.store(NONE, Ordering::Release);
    }
    attached
}

/// Gives a line back, if it is not that of a function: others may share that one, which stays as long as this driver has the function.
fn detach(irq: c_int, line: &Line) {
    let detached = ask(|set| match function(set)? {
        Some(_) => Err(Error::Unsupported),
        None => set.devices.detach_line(irq as u64),
    });
    if detached.is_err() {
        return;
    }
    line.attached.store(false, Ordering::Release);
    // Its thread may wait at the gate.
    line.let_through();
    let had = |server: &&Server| server.line.load(Ordering::Acquire) == irq as usize;
    if let Some(server) = SERVERS.iter().find(had) {
        server.line.store(NONE, Ordering::Release);
    }
}

/// A.1.1: the handler is called when the line rings. 0, or an error: the line is none, or taken, or not this driver's.
#[no_mangle]
extern "C" fn osenv_irq_alloc(
    irq: c_int,
    handler: Option<Handler>,
    data: *mut c_void,
    flags: c_int,
) -> c_int {
    let (Some(line), Some(handler)) = (line(irq), handler) else {
        return -1;
    };
    if line.handler.load(Ordering::Acquire) != 0 {
        return -1;
    }
    line.data.store(data, Ordering::Release);
    line.handler.store(handler as usize, Ordering::Release);
    if line.attached.swap(true, Ordering::AcqRel) {
        line.let_through();
        return 0;
    }
    match attach(irq) {
        Ok(()) => 0,
        Err(error) => {
            if flags & PROBE == 0 {
                crate::set::complain(error);
            }
            line.handler.store(0, Ordering::Release);
            line.attached.store(false, Ordering::Release);
            -1
        }
    }
}

/// A.1.2: the handler is not called any more, and when this returns the line is nobody's. That of a PCI function stays this driver's.
#[no_mangle]
extern "C" fn osenv_irq_free(irq: c_int, _handler: Option<Handler>, _data: *mut c_void) {
    if let Some(line) = line(irq) {
        outside(|| line.handler.store(0, Ordering::Release));
        if line.attached.load(Ordering::Acquire) {
            detach(irq, line);
        }
    }
}

/// A.1.3: the line's handler is not called until it is enabled again.
#[no_mangle]
extern "C" fn osenv_irq_disable(irq: c_int) {
    if let Some(line) = line(irq) {
        line.disabled.store(true, Ordering::Release);
    }
}

/// A.1.4: the line's handler is called again, at once if it has rung meanwhile.
#[no_mangle]
extern "C" fn osenv_irq_enable(irq: c_int) {
    if let Some(line) = line(irq) {
        line.disabled.store(false, Ordering::Release);
        line.let_through();
    }
}

/// A.1.5: whether the line has rung while it was disabled.
#[no_mangle]
extern "C" fn osenv_irq_pending(irq: c_int) -> c_int {
    line(irq).map_or(0, |line| line.pending.load(Ordering::Acquire).into())
}

/// A.1.6: no handler runs until interrupts are enabled.
#[no_mangle]
extern "C" fn osenv_intr_disable() {
    LOCK.disable();
}

/// A.1.7: handlers run again, those first for which there was an interrupt meanwhile. In a handler: nothing.
#[no_mangle]
extern "C" fn osenv_intr_enable() {
    LOCK.enable(&THREADS);
}

/// A.1.8: whether they are enabled. In a handler they are not.
#[no_mangle]
extern "C" fn osenv_intr_enabled() -> c_int {
    LOCK.is_enabled().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_disabled_and_pending_is_told() {
        const IRQ: c_int = 5;
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn handler(_: *mut c_void) -> c_int {
            assert_eq!(osenv_intr_enabled(), 0, "in a handler they are not");
            // The first one is for somebody else.
            CALLS.fetch_add(1, Ordering::Relaxed).min(1) as c_int
        }
        let _alone = crate::set::ALONE.lock();
        assert_eq!(osenv_intr_enabled(), 1);
        osenv_intr_disable();
        assert_eq!(osenv_intr_enabled(), 0);
        osenv_intr_disable();
        osenv_intr_enable();
        assert_eq!(osenv_intr_enabled(), 1, "they are not counted");

        for none in [-1, LINES as c_int, c_int::MAX, c_int::MIN] {
            assert_eq!(osenv_irq_pending(none), 0, "there is no such line");
        }
        let line = line(IRQ).unwrap();
        line.attached.store(true, Ordering::Release);
        line.handler
            .store(handler as Handler as usize, Ordering::Release);
        assert_eq!(line.rings(), Rang::Served(false), "the handler says so");
        assert_eq!(
            (CALLS.load(Ordering::Relaxed), osenv_irq_pending(IRQ)),
            (1, 0)
        );
        osenv_irq_disable(IRQ);
        assert_eq!(osenv_irq_pending(IRQ), 0, "it has not rung");
        assert_eq!(line.rings(), Rang::Waits, "its thread waits");
        assert_eq!(
            (CALLS.load(Ordering::Relaxed), osenv_irq_pending(IRQ)),
            (1, 1)
        );
        assert_eq!(osenv_irq_pending(IRQ - 1), 0, "another line");
        // Nobody waits at the gate here: it is let through by hand.
        line.pending.store(false, Ordering::Release);
        osenv_irq_enable(IRQ);
        assert_eq!(line.rings(), Rang::Served(true));
        assert_eq!(
            (CALLS.load(Ordering::Relaxed), osenv_irq_pending(IRQ)),
            (2, 0)
        );
        line.attached.store(false, Ordering::Release);
        line.handler.store(0, Ordering::Release);
    }
}
