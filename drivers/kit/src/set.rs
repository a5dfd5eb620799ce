//! The driver set: its process-level thread, its locks, its session at the device server.
use crate::lock::{Lock, Threads};
use alloc::string::String;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use interface::Error;
use rt::obj::{Ref, ThreadAt};
use rt::sync::{make_queue, Lazy, Mutex, RawLock};
use rt::{slots, sys, thread};
use services::device::{DevicesClient, Function, Reach};

/// The locks of this program's driver set.
pub(crate) static LOCK: Lock = Lock::of(AtomicU32::new(0));
/// Operations of the locks on threads.
pub(crate) static THREADS: Kernel = Kernel {
    process: AtomicU64::new(0),
    gate: Gate::new(),
    interrupts: RawLock::new(),
};

/// The kernel's threads.
pub(crate) struct Kernel {
    /// Handle of the process-level thread.
    process: AtomicU64,
    gate: Gate,
    interrupts: RawLock,
}

impl Threads for Kernel {
    fn stop(&self) {
        let _ = ThreadAt(self.process.load(Ordering::Relaxed)).stop();
    }
    fn resume(&self) {
        let _ = ThreadAt(self.process.load(Ordering::Relaxed)).resume();
    }
    fn wait_enabled(&self) {
        self.gate.wait();
    }
    fn enabled(&self) {
        self.gate.open();
    }
    fn lock(&self) {
        self.interrupts.lock();
    }
    fn unlock(&self) {
        self.interrupts.unlock();
    }
}

/// A thread waits here, once for each time that another thread opens it: a kernel mutex that is locked in between.
pub(crate) struct Gate(AtomicU64);

impl Gate {
    pub(crate) const fn new() -> Self {
        Gate(AtomicU64::new(0))
    }

    /// Makes the mutex, unless it was made before. Must be called before any other use.
    pub(crate) fn make(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let handle = slots::allocate(1).ok_or(Error::NoMemory)?;
        if !make_queue(handle) {
            return Err(Error::NoMemory);
        }
        self.0.store(handle, Ordering::Release);
        Ok(())
    }

    /// Waits until it is opened, and closes it again.
    pub(crate) fn wait(&self) {
        sys::mutex_lock(self.0.load(Ordering::Acquire));
    }

    /// Lets one waiting thread through.
    pub(crate) fn open(&self) {
        sys::mutex_unlock(self.0.load(Ordering::Acquire));
    }
}

/// What the set has of the device server.
pub struct Set {
    pub(crate) devices: DevicesClient,
    /// Bytes of memory that the driver wants.
    pub(crate) arena: u64,
    /// Where that memory has to be.
    pub(crate) reach: Reach,
    /// The functions that this driver has claimed.
    pub(crate) functions: alloc::vec::Vec<Function>,
    /// The line of the first of them, when that is attached.
    pub(crate) line: Option<virtio::Line>,
    /// Memory of devices that is mapped, and its physical address.
    pub(crate) mapped: alloc::vec::Vec<(u64, rt::window::Window)>,
}

impl core::fmt::Debug for Set {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Set")
            .field("functions", &self.functions)
            .finish()
    }
}

static SET: Mutex<Option<Set>> = Mutex::new(None);

/// Held by tests of what a program has only once: [`LOCK`] and its threads.
#[cfg(test)]
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Makes a request of the device server.
pub(crate) fn ask<T>(f: impl FnOnce(&mut Set) -> Result<T, Error>) -> Result<T, Error> {
    outside(|| f(SET.lock().as_mut().ok_or(Error::Broken)?))
}

/// Tells the device server that the interrupt of the driver's function has been handled, if other drivers share its
/// line. For threads that are not in the driver and do not hold up any thread that is.
pub(crate) fn acknowledge() {
    let mut set = SET.lock();
    let Some(set) = &mut *set else {
        return;
    };
    let shared = set.line.as_ref().is_some_and(virtio::Line::is_shared);
    if let (true, Some(function)) = (shared, set.functions.first()) {
        // If the device server is gone there are no interrupts either.
        let _ = set.devices.acknowledge(*function);
    }
}

/// Writes why the device server has refused the last request. The text is allocated and freed outside the driver: a
/// handler that came meanwhile could wait for the heap for ever.
pub(crate) fn complain(error: Error) {
    outside(|| crate::log::say(crate::log::ERR, &why(error)));
}

/// The sentence with which the device server refused the last request, or the meaning of `error` if it has none.
fn why(error: Error) -> String {
    let mut room = [0; 160];
    let said = ask(|set| set.devices.why(&mut room)).unwrap_or(0);
    match core::str::from_utf8(room.get(..said).unwrap_or_default()) {
        Ok(said) if !said.is_empty() => outside(|| said.into()),
        _ => outside(|| error.text().into()),
    }
}

/// Runs `f` in the driver: handlers are atomic to it. Only the process-level thread may call this, and not from in
/// the driver.
pub fn inside<T>(f: impl FnOnce() -> T) -> T {
    LOCK.enter(&THREADS);
    let value = f();
    LOCK.leave(&THREADS);
    value
}

/// Runs `f`, which takes locks of the runtime, from in the driver: no handler runs meanwhile.
pub fn outside<T>(f: impl FnOnce() -> T) -> T {
    let enabled = LOCK.disable();
    let value = f();
    if enabled {
        LOCK.enable(&THREADS);
    }
    value
}

/// The functions that handlers have asked [`later`] to run.
static LATER: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// The thread that runs them.
static LATER_THREAD: Lazy<Ref> = Lazy::new();

/// Runs `f`, which may wait for the process-level thread: if a handler asks for it, soon and on a thread of its own;
/// otherwise at once. There are at most four such functions.
pub fn later(f: fn()) {
    if !LOCK.in_handler() {
        return outside(f);
    }
    let word = f as usize;
    for place in &LATER {
        let was = place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire);
        if was.is_ok() || was == Err(word) {
            return;
        }
    }
    crate::log::panic("handlers want too much done later");
}

/// Runs a handler, and wakes the thread that does what the handler wants done later. That is not done here, since it
/// may wait for the process-level thread, which may sleep until the next interrupt.
pub(crate) fn interrupt(handler: impl FnOnce()) {
    LOCK.interrupt(&THREADS, handler);
    if LATER.iter().any(|place| place.load(Ordering::Acquire) != 0) {
        if let Ok(thread) = LATER_THREAD.get(|| Err(())) {
            let _ = thread.interrupt();
        }
    }
}

fn serve_later() {
    loop {
        sys::thread_wait_interrupt();
        for place in &LATER {
            let word = place.swap(0, Ordering::AcqRel);
            if word != 0 {
                // SAFETY: `later` stored a function there.
                let f = unsafe { core::mem::transmute::<usize, fn()>(word) };
                f();
            }
        }
    }
}

/// Runs `main` on the process-level thread. Its arena has `arena` bytes that devices with this `reach` can access
/// (fewer, down to an eighth, if there are not so many). The arena is requested when the driver first allocates: by
/// then the driver has reset a device that may still access its predecessor's memory, which stays charged until then.
/// Ends the program with the status that `main` returns.
///
/// # Errors
/// The device server's error.
pub fn run(arena: u64, reach: Reach, main: fn() -> u8) -> Result<core::convert::Infallible, Error> {
    let door = rt::start::passed(0).ok_or(Error::Invalid)?;
    let devices = virtio::session(&door)?;
    THREADS.gate.make()?;
    let above = rt::start::priority() + 1;
    let later = || thread::spawn_at(above, serve_later)?.reference();
    LATER_THREAD.set(later().map_err(rt::error_of)?);
    crate::sleep::make()?;
    *SET.lock() = Some(Set {
        devices,
        arena,
        reach,
        functions: alloc::vec::Vec::new(),
        line: None,
        mapped: alloc::vec::Vec::new(),
    });
    let handle = Gate::new();
    handle.make()?;
    let handle: &'static Gate = alloc::boxed::Box::leak(alloc::boxed::Box::new(handle));
    let process = thread::spawn(move || {
        // The thread waits until its handle is known.
        handle.wait();
        rt::process::exit(main());
    });
    let process = process.map_err(rt::error_of)?;
    let known = process.with(|thread| {
        THREADS.process.store(thread.0, Ordering::Release);
        Ok(())
    });
    known.map_err(rt::error_of)?;
    handle.open();
    loop {
        sys::thread_wait_interrupt();
    }
}
