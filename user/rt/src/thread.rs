//! Threads.
//!
//! A spawned thread has a stack from the heap and a control block, whose address is its tag. When
//! its function returns it marks itself finished and waits for ever; the next `spawn` takes it
//! apart.
use crate::obj::{Ref, Thread, ThreadAt};
use crate::start::thread;
use crate::sync::{below, Mutex};
use crate::sys;
use abi::state::{Registers, ThreadState};
use abi::Code;
use alloc::alloc::{alloc, dealloc, Layout};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a spawned thread's stack.
pub const STACK: usize = 128 * 1024;

struct Block {
    /// Taken when the thread is taken apart.
    thread: Mutex<Option<Thread>>,
    stack: *mut u8,
    run: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    finished: AtomicBool,
}

// SAFETY: the stack is only touched by its thread, and freed after the thread is gone.
unsafe impl Send for Block {}
// SAFETY: as above; the other fields are made for sharing.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.take_apart();
        // SAFETY: it was allocated with this layout, and its thread is gone.
        unsafe { dealloc(self.stack, layout()) };
    }
}

impl Block {
    /// Destroys the thread, before its stack may be freed.
    fn take_apart(&self) {
        let thread = self.thread.lock().take();
        if thread.is_some() {
            drop(thread);
            below::remove(self.stack as u64);
        }
    }
}

/// All spawned threads that have not been taken apart: a thread keeps its own block alive here.
static BLOCKS: Mutex<Vec<Arc<Block>>> = Mutex::new(Vec::new());

fn layout() -> Layout {
    // The constants are a valid layout.
    Layout::from_size_align(STACK, 4096).unwrap_or(Layout::new::<u64>())
}

/// A thread that nobody joins. Dropping this leaves the thread alone.
#[derive(Clone)]
pub struct JoinlessThread(Arc<Block>);

impl core::fmt::Debug for JoinlessThread {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("JoinlessThread")
            .field(&*self.0.thread.lock())
            .finish()
    }
}

impl JoinlessThread {
    /// Does something with the thread's handle; `Dead` when the thread has been taken apart.
    pub fn with<R>(&self, f: impl FnOnce(ThreadAt) -> Result<R, Code>) -> Result<R, Code> {
        match &*self.0.thread.lock() {
            Some(thread) => f(thread.at()),
            None => Err(Code::Dead),
        }
    }

    /// A reference to the thread.
    pub fn reference(&self) -> Result<Ref, Code> {
        self.with(ThreadAt::reference)
    }

    /// Whether the thread's function has returned.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.finished.load(Ordering::Acquire)
    }
}

/// Starts a thread at the priority of the first one.
pub fn spawn(f: impl FnOnce() + Send + 'static) -> Result<JoinlessThread, Code> {
    spawn_at(crate::start::priority(), f)
}

/// Starts a thread at this priority.
pub fn spawn_at(priority: u64, f: impl FnOnce() + Send + 'static) -> Result<JoinlessThread, Code> {
    start(priority, None, f)
}

/// Starts a thread at this priority that holds locks at the priority `locked`: it works on something less important,
/// and other threads that share locks with it need not wait until it gets the processor. It begins with the priority
/// `locked`, and gets its own when it drops the argument of `f`. At most [`below::MOST`] such threads at a time, more
/// are [`Code::NoMemory`].
pub fn spawn_below(
    priority: u64,
    locked: u64,
    f: impl FnOnce(below::Raised) + Send + 'static,
) -> Result<JoinlessThread, Code> {
    start(locked, Some(priority), || f(below::Raised::first()))
}

fn start(
    priority: u64,
    below: Option<u64>,
    f: impl FnOnce() + Send + 'static,
) -> Result<JoinlessThread, Code> {
    clear_finished();
    let thread = Thread::new()?;
    // SAFETY: the size is not 0.
    let stack = unsafe { alloc(layout()) };
    if stack.is_null() {
        return Err(Code::NoMemory);
    }
    let block = Arc::new(Block {
        thread: Mutex::new(None),
        stack,
        run: Mutex::new(Some(Box::new(f))),
        finished: AtomicBool::new(false),
    });
    let tag = Arc::as_ptr(&block) as u64;
    let state = ThreadState {
        registers: Registers::starting(
            begin as *const () as u64,
            // The stack pointer is as after a call: 8 below a multiple of 16.
            stack as u64 + STACK as u64 - 8,
            tag,
        ),
        tag,
        priority,
        stop_count: 1,
        ..ThreadState::default()
    };
    thread.set_state(&state, 0, 0, 0)?;
    let at = thread.at();
    *block.thread.lock() = Some(thread);
    let range = stack as u64..stack as u64 + STACK as u64;
    if below.is_some_and(|own| !below::add(range, at, own, priority)) {
        return Err(Code::NoMemory);
    }
    BLOCKS.lock().push(block.clone());
    if let Err(code) = at.resume() {
        BLOCKS.lock().retain(|b| !Arc::ptr_eq(b, &block));
        return Err(code);
    }
    Ok(JoinlessThread(block))
}

extern "C" fn begin(block: *const Block) -> ! {
    {
        // SAFETY: the list keeps the block alive until it is marked finished.
        let block = unsafe { &*block };
        let run = block.run.lock().take();
        if let Some(run) = run {
            run();
        }
        block.finished.store(true, Ordering::Release);
    }
    loop {
        sys::thread_wait_interrupt();
    }
}

/// Takes finished threads apart.
fn clear_finished() {
    loop {
        let finished = {
            let mut blocks = BLOCKS.lock();
            let position = blocks
                .iter()
                .position(|b| b.finished.load(Ordering::Acquire));
            position.map(|position| blocks.swap_remove(position))
        };
        match finished {
            Some(block) => {
                block.take_apart();
            }
            None => return,
        }
    }
}

/// A reference to the calling thread.
pub fn current() -> Result<Ref, Code> {
    let tag = sys::thread_self();
    let known = BLOCKS
        .lock()
        .iter()
        .find(|b| Arc::as_ptr(b) as u64 == tag)
        .cloned();
    match known {
        Some(block) => JoinlessThread(block).reference(),
        None => thread().copy(),
    }
}
