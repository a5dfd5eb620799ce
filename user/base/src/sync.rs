//! Locks.
//!
//! The fast path of [`RawLock`] is one atomic word. A thread that has to wait does so on a kernel mutex, which is made,
//! locked, at the first contention; each holder that leaves while others have announced themselves unlocks it, and so
//! grants the lock to exactly one of them. No thread of a program ever spins, so a strict priority cannot starve the
//! holder. A lock lives wholly in the program's memory, so it is saved and restored with it.
//!
//! A thread of a lower priority than others of its program ([`below`]) holds locks at the priority of the others: a
//! thread that waits for such a lock waits only for the work that is done under it, and not for third threads.
use crate::{obj, slots, sys};
use abi::state::MutexState;
use abi::Code;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether this is a test on a host, where threads have no kernel to wait with.
const NO_KERNEL: bool = cfg!(not(target_os = "none"));

/// A lock without data.
#[derive(Debug)]
pub struct RawLock {
    /// Holder and waiters.
    users: AtomicU32,
    /// Handle of the kernel mutex, or 0 while there has been no contention.
    mutex: AtomicU64,
}

impl RawLock {
    /// An unlocked lock.
    #[must_use]
    pub const fn new() -> Self {
        RawLock {
            users: AtomicU32::new(0),
            mutex: AtomicU64::new(0),
        }
    }

    /// Gives the lock its kernel mutex beforehand (the slab's lock cannot take it from the slab).
    pub fn prepare(&self, handle: u64) {
        self.mutex.store(handle, Ordering::Release);
    }

    /// The kernel mutex on which waiters wait; each unlock of it grants the lock to one of them.
    fn queue(&self) -> Option<u64> {
        let handle = self.mutex.load(Ordering::Acquire);
        if handle != 0 {
            return Some(handle);
        }
        let fresh = slots::allocate(1)?;
        let made = make_queue(fresh);
        if made
            && self
                .mutex
                .compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            return Some(fresh);
        }
        if made {
            sys::mutex_destroy(fresh, 0);
        }
        slots::free(fresh, 1);
        match self.mutex.load(Ordering::Acquire) {
            0 => None,
            handle => Some(handle),
        }
    }

    /// Locks.
    pub fn lock(&self) {
        if NO_KERNEL {
            while !self.try_lock() {
                core::hint::spin_loop();
            }
            return;
        }
        below::enter();
        if self.users.fetch_add(1, Ordering::Acquire) == 0 {
            return;
        }
        loop {
            match self.queue() {
                Some(handle) => {
                    sys::mutex_lock(handle);
                    return;
                }
                // No kernel memory for the queue: let others run and free some.
                None => {
                    sys::thread_sleep_until(crate::time::now() + 1_000_000);
                }
            }
        }
    }

    /// Locks if nobody holds the lock.
    pub fn try_lock(&self) -> bool {
        below::enter();
        let locked = self
            .users
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !locked {
            below::leave();
        }
        locked
    }

    /// Unlocks. Only for the holder.
    pub fn unlock(&self) {
        self.release();
        below::leave();
    }

    fn release(&self) {
        if self.users.fetch_sub(1, Ordering::Release) == 1 {
            return;
        }
        loop {
            match self.queue() {
                Some(handle) => {
                    sys::mutex_unlock(handle);
                    return;
                }
                None => {
                    sys::thread_sleep_until(crate::time::now() + 1_000_000);
                }
            }
        }
    }
}

impl Drop for RawLock {
    /// The borrow checker ensures that no thread holds the lock, waits for it, or is still leaving it. A lock without
    /// contention has no kernel mutex.
    fn drop(&mut self) {
        let handle = core::mem::take(self.mutex.get_mut());
        if handle != 0 {
            sys::mutex_destroy(handle, 0);
            slots::free(handle, 1);
        }
    }
}

impl Default for RawLock {
    fn default() -> Self {
        RawLock::new()
    }
}

/// Makes a locked kernel mutex at the handle.
pub fn make_queue(handle: u64) -> bool {
    if sys::mutex_create(handle, 0) != Code::Ok {
        return false;
    }
    sys::mutex_set_state(handle, &MutexState { locked: 1 }) == Code::Ok
}

/// Threads that run below the others of their program, and hold locks at the priority of the others.
pub mod below {
    use crate::obj::ThreadAt;
    use core::ops::Range;
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Most of these threads at a time.
    pub const MOST: usize = 16;

    /// One such thread. Only the thread itself changes `depth`.
    struct Low {
        /// Where its stack begins: a thread finds its entry by its stack pointer, without asking the kernel. 0 in a
        /// free entry, and the last address of all in an entry that is being filled.
        stack: AtomicU64,
        /// Where its stack ends.
        end: AtomicU64,
        /// Its handle.
        thread: AtomicU64,
        own: AtomicU64,
        locked: AtomicU64,
        /// How many locks it holds or waits for.
        depth: AtomicU32,
    }

    static LOW: [Low; MOST] = [const {
        Low {
            stack: AtomicU64::new(0),
            end: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            own: AtomicU64::new(0),
            locked: AtomicU64::new(0),
            depth: AtomicU32::new(0),
        }
    }; MOST];
    /// How many there are. In a program without any, a lock costs only this check.
    static COUNT: AtomicU32 = AtomicU32::new(0);

    /// Adds the thread with this stack, before it runs. Its priority is `own`, and `locked` while it holds a lock or is
    /// [`Raised`], as it is at first ([`Raised::first`]). Returns whether there was room for it.
    #[must_use]
    pub fn add(stack: Range<u64>, thread: ThreadAt, own: u64, locked: u64) -> bool {
        let free = |low: &&Low| {
            low.stack
                .compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(low) = LOW.iter().find(free) else {
            return false;
        };
        low.thread.store(thread.0, Ordering::Relaxed);
        low.own.store(own, Ordering::Relaxed);
        low.locked.store(locked, Ordering::Relaxed);
        low.depth.store(1, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::AcqRel);
        low.end.store(stack.end, Ordering::Relaxed);
        low.stack.store(stack.start, Ordering::Release);
        true
    }

    /// Removes the thread whose stack begins there, which has ended; does nothing if it was not added.
    pub fn remove(stack: u64) {
        if let Some(low) = LOW
            .iter()
            .find(|low| low.stack.load(Ordering::Acquire) == stack)
        {
            low.stack.store(0, Ordering::Release);
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The calling thread, if it was added.
    #[inline(always)]
    fn own() -> Option<&'static Low> {
        if COUNT.load(Ordering::Relaxed) == 0 {
            return None;
        }
        find()
    }

    #[cold]
    fn find() -> Option<&'static Low> {
        let mark = 0u8;
        let here = core::ptr::from_ref(&mark) as u64;
        LOW.iter().find(|low| {
            let start = low.stack.load(Ordering::Acquire);
            start != 0 && (start..low.end.load(Ordering::Relaxed)).contains(&here)
        })
    }

    /// While this value exists, the calling thread has the priority at which it holds locks, if it was added with
    /// [`add`].
    #[derive(Debug)]
    pub struct Raised(());

    impl Raised {
        /// The value with which an added thread begins; to be made once for each.
        #[must_use]
        pub const fn first() -> Self {
            Raised(())
        }

        /// Raises the priority of the calling thread.
        #[must_use]
        pub fn now() -> Self {
            enter();
            Raised(())
        }
    }

    impl Drop for Raised {
        fn drop(&mut self) {
            leave();
        }
    }

    /// Before a lock is taken.
    #[inline(always)]
    pub(super) fn enter() {
        if let Some(low) = own() {
            if low.depth.fetch_add(1, Ordering::Relaxed) == 0 {
                set(low, &low.locked);
            }
        }
    }

    /// After a lock was released.
    #[inline(always)]
    pub(super) fn leave() {
        if let Some(low) = own() {
            if low.depth.fetch_sub(1, Ordering::Relaxed) == 1 {
                set(low, &low.own);
            }
        }
    }

    fn set(low: &Low, priority: &AtomicU64) {
        // The call does not fail: the thread was created with the higher priority, so its space may have both.
        let _ = ThreadAt(low.thread.load(Ordering::Relaxed))
            .set_priority(priority.load(Ordering::Relaxed));
    }
}

/// A lock around data.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    raw: RawLock,
    data: UnsafeCell<T>,
}

// SAFETY: the data is only reached by the holder of the lock.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked lock around `data`.
    pub const fn new(data: T) -> Self {
        Mutex {
            raw: RawLock::new(),
            data: UnsafeCell::new(data),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks until the guard is dropped.
    pub fn lock(&self) -> Guard<'_, T> {
        self.raw.lock();
        Guard { mutex: self }
    }

    /// Locks if nobody holds the lock.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.raw.try_lock().then_some(Guard { mutex: self })
    }
}

/// The right to the data of a locked [`Mutex`].
#[derive(Debug)]
pub struct Guard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is exclusively borrowed.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

/// A value made at its first use.
#[derive(Debug)]
pub struct Lazy<T: 'static> {
    value: Mutex<Option<&'static T>>,
}

impl<T: Send + Sync + 'static> Lazy<T> {
    /// A value that is made when it is first asked for.
    pub const fn new() -> Self {
        Lazy {
            value: Mutex::new(None),
        }
    }

    /// The value, made by `make` if it is not there.
    pub fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let mut value = self.value.lock();
        if let Some(value) = *value {
            return Ok(value);
        }
        let made: &'static T = alloc::boxed::Box::leak(alloc::boxed::Box::new(make()?));
        *value = Some(made);
        Ok(made)
    }

    /// Makes the value, unless it is there already.
    pub fn set(&self, made: T) {
        let _: Result<_, core::convert::Infallible> = self.get(|| Ok(made));
    }
}

impl<T: Send + Sync + 'static> Default for Lazy<T> {
    fn default() -> Self {
        Lazy::new()
    }
}

/// A condition to wait for with a kernel mutex; both are kernel objects.
pub type Cond = obj::Cond;

#[cfg(test)]
mod tests {
    extern crate std;
    use super::Mutex;

    /// Tests on a host share locks, as that of the heap, and have no Fermata kernel: a kernel call would be one of the
    /// host's.
    #[test]
    fn threads_of_a_host_wait_for_each_other() {
        static COUNT: Mutex<u64> = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut count = COUNT.lock();
                        let before = *count;
                        core::hint::black_box(&mut count);
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 80_000);
    }
}
