//! Interrupts: a thread for each line that a driver has asked for (section 4.5 of Van Maren).
use crate::set::{acknowledge, ask, interrupt, outside, Gate, Set, LOCK, THREADS};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use interface::Error;
use rt::obj::Ref;
use rt::sync::Lazy;
use rt::thread;
use services::device::Function;
use virtio::{Idle, IDLE_PAUSE};

/// The most lines.
const LINES: usize = 16;
/// `OSENV_IRQ_PROBE`: no message is written if the driver cannot have the line.
const PROBE: c_int = 2;
/// How far the priority of interrupt threads is above that of the process-level thread.
const ABOVE: u64 = 1;

/// Returns whether its device had anything to do.
type Handler = extern "C" fn(*mut c_void) -> c_int;

/// The result of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rang {
    /// Its thread is to wait at the gate.
    Waits,
    /// The handler was called, and has returned whether its device had anything to do.
    Served(bool),
}

/// A line.
struct Line {
    /// Its handler, 0 for none, and the argument that the handler is called with.
    handler: AtomicUsize,
    data: AtomicPtr<c_void>,
    /// The line is attached for this driver.
    attached: AtomicBool,
    disabled: AtomicBool,
    /// An interrupt has come that the handler could not take, and its thread waits at the gate.
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

/// A thread that serves a line, and another line when that has been given back.
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
    /// Serves interrupts. The line is masked from when it rings until the thread waits again.
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

    /// Its thread, made when it is first given a line.
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
    /// Serves one interrupt.
    fn rings(&self) -> Rang {
        let mut rang = Rang::Served(true);
        interrupt(|| {
            if !self.attached.load(Ordering::Acquire) {
                // The interrupt came before the line was given back.
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

    /// Lets the thread go on whose interrupt came while the line was disabled or had no handler.
    fn let_through(&self) {
        if self.pending.swap(false, Ordering::AcqRel) {
            self.gate.open();
        }
    }
}

/// Offset of the pin by which a PCI function interrupts: 0 for none.
const PIN: u64 = 0x3d;

/// This driver's function, if it has an interrupt pin. A function without one, such as a disk controller at the
/// legacy ports, raises a line that the manifest gives the driver.
fn function(set: &mut Set) -> Result<Option<Function>, Error> {
    let Some(&function) = set.functions.first() else {
        return Ok(None);
    };
    let pin = set.devices.config_read(function, PIN, 1)?;
    Ok((pin != 0).then_some(function))
}

/// Attaches a thread to the line. The thread gets the interrupts of this driver's function, whatever line number the
/// function has noted, or of the line itself if no function has a pin.
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

/// Gives a line back, unless it is a function's: other drivers may share that line, which stays attached as long as
/// this driver has the function.
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

/// A.1.1: the handler is called when the line rings. Returns 0, or an error: there is no such line, it is taken, or
/// it is not this driver's.
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

/// A.1.2: the handler is not called any more, and the line is free when this returns. The line of a PCI function
/// stays this driver's.
#[no_mangle]
extern "C" fn osenv_irq_free(irq: c_int, _handler: Option<Handler>, _data: *mut c_void) {
    if let Some(line) = line(irq) {
        outside(|| line.handler.store(0, Ordering::Release));
        if line.attached.load(Ordering::Acquire) {
            detach(irq, line);
        }
    }
}

/// A.1.3: the handler is not called until the line is enabled again.
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

/// A.1.7: handlers run again; pending interrupts are served first. Does nothing in a handler.
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
        // No thread waits at the gate here: the test lets it through itself.
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
