//! Events that requests wait for, and how their server learns that they can continue.
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use base::obj::{Ref, RefAt};
use base::sync::Mutex;
use base::sys;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use proto::Error;

/// State that wakers and the server share.
pub(super) struct Bell {
    /// Whether `woken` has entries; checked before each wait.
    pub(super) rung: AtomicBool,
    /// Aliases of the sessions whose requests are to be polled again.
    pub(super) woken: Mutex<Vec<u64>>,
    /// The server's thread.
    pub(super) thread: u64,
    /// A reference to the port that wakes the server.
    pub(super) port: Ref,
}

/// Wakes one session's request.
pub(super) struct Alarm {
    pub(super) bell: Arc<Bell>,
    pub(super) alias: u64,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let first = {
            let mut woken = self.bell.woken.lock();
            woken.push(self.alias);
            !self.bell.rung.swap(true, Ordering::AcqRel)
        };
        // The server's own thread checks `rung` before it waits.
        if first && sys::thread_self() != self.bell.thread {
            let _ = self.bell.port.poke();
        }
    }
}

/// Something that requests of one server wait for. After each [`Event::happened`] a request checks its condition again.
#[derive(Default)]
pub struct Event {
    /// By the session that they wake.
    wakers: Mutex<BTreeMap<usize, Waker>>,
}

impl Event {
    /// No event yet.
    #[must_use]
    pub const fn new() -> Self {
        Event {
            wakers: Mutex::new(BTreeMap::new()),
        }
    }

    /// Wakes all that wait. A thread other than the server's must not hold a lock meanwhile that the server may wait
    /// for.
    pub fn happened(&self) {
        let wakers = core::mem::take(&mut *self.wakers.lock());
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Waits until `ready` returns a value; calls it at once and after each event.
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        // A request that is given up is not to be woken, and its waker not to be kept until the next event, which may
        // never come.
        let mut waits = Waits {
            event: self,
            place: None,
        };
        core::future::poll_fn(|context| {
            if let Some(value) = ready() {
                return Poll::Ready(value);
            }
            let waker = context.waker();
            let place = waker.data() as usize;
            waits.place = Some(place);
            self.wakers.lock().insert(place, waker.clone());
            // For an event in another thread since the first check.
            ready().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// A request that waits for an event, until this value is dropped.
struct Waits<'a> {
    event: &'a Event,
    /// Where its waker is.
    place: Option<usize>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.event.wakers.lock().remove(&place);
        }
    }
}

/// Threads of clients that are interrupted when something happens. A client that waits for other things as well waits
/// for interrupts, and not in a request.
#[derive(Default)]
pub struct Watchers {
    /// By the number of the session that named them.
    all: Mutex<Vec<(u64, Ref)>>,
}

impl Watchers {
    /// Nobody.
    #[must_use]
    pub const fn new() -> Self {
        Watchers {
            all: Mutex::new(Vec::new()),
        }
    }

    /// Sets the thread to interrupt for the session with this number, in place of an earlier one.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn tell(&self, session: u64, thread: &RefAt) -> Result<(), Error> {
        let thread = thread.copy().map_err(base::error_of)?;
        let mut all = self.all.lock();
        if let Some((_, place)) = all.iter_mut().find(|(its, _)| *its == session) {
            *place = thread;
            return Ok(());
        }
        all.try_reserve(1).map_err(|_| Error::NoMemory)?;
        all.push((session, thread));
        Ok(())
    }

    /// Removes the thread of the session with this number, which has ended.
    pub fn forget(&self, session: u64) {
        self.all.lock().retain(|(its, _)| *its != session);
    }

    /// Interrupts all, from any thread.
    pub fn happened(&self) {
        for (_, thread) in &*self.all.lock() {
            // A thread that is gone need not be told.
            let _ = thread.interrupt();
        }
    }
}
