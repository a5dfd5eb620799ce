//! How much memory a piece of code allocates, for tests on the host of what servers do with hostile
//! input. A test that links this crate has its allocator; each thread is counted alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed. Below zero if it frees what another allocated.
    static NOW: Cell<isize> = const { Cell::new(0) };
    /// The most that [`NOW`] has been since it was last set.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.get() + layout.size() as isize;
        NOW.set(now);
        MOST.set(MOST.get().max(now));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What making a value has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The most bytes at a time.
    pub most: usize,
    /// Bytes that are still allocated; 0 if it freed more than it allocated.
    pub kept: usize,
}

/// Makes a value, and counts what that allocates.
pub fn counted<T>(make: impl FnOnce() -> T) -> (T, Allocated) {
    let before = NOW.get();
    MOST.set(before);
    let value = make();
    let since = |bytes: isize| usize::try_from(bytes - before).unwrap_or(0);
    let allocated = Allocated {
        most: since(MOST.get()),
        kept: since(NOW.get()),
    };
    (value, allocated)
}

#[cfg(test)]
mod tests {
    use super::{counted, Allocated};

    #[test]
    fn the_most_and_what_is_kept_are_counted() {
        let (kept, allocated) = counted(|| {
            drop(vec![0u8; 5000]);
            vec![0u8; 1000]
        });
        assert_eq!(
            allocated,
            Allocated {
                most: 5000,
                kept: 1000
            }
        );
        let (_, allocated) = counted(|| drop(kept));
        assert_eq!(allocated, Allocated { most: 0, kept: 0 });
    }
}
