//! A checkpointer: saves a worker in the middle of its work, destroys it, and makes it anew from a file.
//!
//! The worker is a thread whose stack, data and mutex lie in a segment of the memory server. It does not know that it
//! is saved. Saving it means stopping the thread, and writing down the states that the kernel has of the objects and
//! the content of the memory:
//!
//! * the thread: its registers say exactly what it is about to do, even in the middle of a system call;
//! * the mutex: locked or not. The kernel finds it for us: [`RefAt::search`](rt::obj::RefAt::search);
//! * the memory, without the bytes of objects, which are the kernel's.
//!
//! Restoring it is the reverse. The program lets one worker run undisturbed and saves, destroys and restores another
//! one twenty times; both must have the same result.
//!
//! `servers/checkpoint` does the same for whole processes, with all nine types of objects and the references
//! between them.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;
use rt::abi::state::{MutexState, Registers, ThreadState, THREAD_WORDS};
use rt::abi::{access, Type, OBJECT_SIZE, PAGE_SIZE, REGISTER_WORDS};
use rt::memory::Segment;
use rt::obj::{MutexAt, Thread};
use rt::window::Window;
use rt::Code;

rt::entry!(main);

/// The worker's memory: data and a mutex in the first page, the stack behind it.
const SIZE: u64 = 4 * PAGE_SIZE;
/// The offset of the mutex in that memory.
const MUTEX: u64 = 256;
/// The file of the image.
const IMAGE: &str = "/tmp/worker.image";
/// How often the worker is saved.
const TIMES: usize = 20;

/// The data of the worker, at the beginning of its memory.
#[repr(C)]
struct Data {
    /// Steps that are done.
    steps: u64,
    sum: u64,
    /// 1 at the end.
    done: u64,
}

/// The worker: it locks its mutex, does a step, and unlocks it, many times.
extern "C" fn work(memory: u64) -> ! {
    const STEPS: u64 = 1_000_000;
    let data = memory as *mut Data;
    let mutex = MutexAt(memory + MUTEX);
    // SAFETY: the memory is the worker's; the checkpointer touches it only while the worker is stopped.
    unsafe {
        while data.read_volatile().steps < STEPS {
            mutex.lock();
            let Data { steps, sum, .. } = data.read_volatile();
            let sum = (sum ^ steps)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23);
            (*data).sum = sum;
            (*data).steps = steps + 1;
            mutex.unlock();
        }
        (&raw mut (*data).done).write_volatile(1);
    }
    loop {
        rt::sys::thread_wait_interrupt();
    }
}

/// A worker, and its memory.
struct Worker {
    segment: Segment,
    memory: Window,
    /// None while it exists only in the file.
    thread: Option<Thread>,
}

impl Worker {
    /// A worker at its beginning.
    fn new() -> Result<Self, Code> {
        let segment = rt::memory::create(SIZE).map_err(|_| Code::NoMemory)?;
        let memory =
            Window::map(&segment.region, 0, SIZE, access::ALL).map_err(|_| Code::NoMemory)?;
        MutexAt(memory.address() + MUTEX).create()?;
        let mut registers = Registers::default();
        registers.set_pc(work as *const () as u64);
        // The stack as after a call: 8 below a multiple of 16.
        registers.set_sp(memory.address() + SIZE - 8);
        registers.set_parameter(0, memory.address());
        let state = ThreadState {
            registers,
            priority: rt::start::priority(),
            stop_count: 1,
            ..ThreadState::default()
        };
        let mut worker = Worker {
            segment,
            memory,
            thread: None,
        };
        worker.go_on(&state)?;
        Ok(worker)
    }

    /// A new thread with this state.
    fn go_on(&mut self, state: &ThreadState) -> Result<(), Code> {
        let thread = Thread::new()?;
        thread.set_state(state, 0, 0, 0)?;
        thread.resume()?;
        self.thread = Some(thread);
        Ok(())
    }

    fn data(&self) -> Result<Data, Code> {
        let mut words = [0; 24];
        self.memory.read(0, &mut words).map_err(|_| Code::Invalid)?;
        let word = |n: usize| u64::from_le_bytes(core::array::from_fn(|i| words[n * 8 + i]));
        Ok(Data {
            steps: word(0),
            sum: word(1),
            done: word(2),
        })
    }

    /// The only object in the memory, found by the kernel.
    fn mutex(&self) -> Result<MutexAt, Code> {
        let kinds = 1 << Type::Mutex as u64;
        let (offset, _) = self.segment.region.search(0, SIZE, kinds)?;
        Ok(MutexAt(self.memory.address() + offset))
    }

    /// Stops the worker, writes all of it to the file, and destroys it.
    fn save(&mut self) -> Result<(), Code> {
        let thread = self.thread.take().ok_or(Code::NotFound)?;
        thread.stop()?;
        let state = thread.get_state(0, 0, 0)?;
        let mutex = self.mutex()?;
        let locked = mutex.get_state()?.locked;
        drop(thread);
        mutex.destroy()?;
        let mut image = Vec::new();
        for word in words(&state)
            .into_iter()
            .chain([locked, mutex.0 - self.memory.address()])
        {
            image.extend_from_slice(&word.to_le_bytes());
        }
        image.extend_from_slice(&state.fpu);
        let mut memory = vec![0; SIZE as usize];
        self.memory
            .read(0, &mut memory)
            .map_err(|_| Code::Invalid)?;
        image.extend_from_slice(&memory);
        // Nothing of it is left in memory.
        self.memory
            .write(0, &vec![0xee; SIZE as usize])
            .map_err(|_| Code::Invalid)?;
        rt::fs::write_all(IMAGE, &image, 0o644).map_err(|_| Code::NoMemory)
    }

    /// Makes the worker anew from the file.
    fn restore(&mut self) -> Result<(), Code> {
        let image = rt::fs::read_all(IMAGE).map_err(|_| Code::NotFound)?;
        let (numbers, rest) = image
            .split_at_checked((THREAD_WORDS + 2) * 8)
            .ok_or(Code::Truncated)?;
        let mut state = ThreadState::default();
        let (fpu, memory) = rest
            .split_at_checked(state.fpu.len())
            .ok_or(Code::Truncated)?;
        let word = |n: usize| u64::from_le_bytes(core::array::from_fn(|i| numbers[n * 8 + i]));
        state.registers = Registers::from_words(&core::array::from_fn(word));
        state.tag = word(REGISTER_WORDS);
        state.priority = word(REGISTER_WORDS + 1);
        state.stop_count = 1;
        state.interrupt = word(REGISTER_WORDS + 3);
        state.fpu.copy_from_slice(fpu);
        let (locked, offset) = (word(THREAD_WORDS), word(THREAD_WORDS + 1));
        self.memory.write(0, memory).map_err(|_| Code::Invalid)?;
        if offset % OBJECT_SIZE != 0 || offset >= SIZE {
            return Err(Code::Invalid);
        }
        let mutex = MutexAt(self.memory.address() + offset);
        mutex.create()?;
        mutex.set_state(&MutexState { locked })?;
        // The kernel checks the state, and refuses it if it is invalid.
        self.go_on(&state)
    }
}

/// The fields of a state that are words.
fn words(state: &ThreadState) -> Vec<u64> {
    let mut words = state.registers.to_words().to_vec();
    words.extend([state.tag, state.priority, state.stop_count, state.interrupt]);
    words.resize(THREAD_WORDS, 0);
    words
}

/// Lets a worker run to its end, and saves it so many times on the way. Returns its result.
fn run(times: usize) -> Result<u64, Code> {
    let mut worker = Worker::new()?;
    let mut saved = 0;
    while worker.data()?.done == 0 {
        // Another pause each time, so that the worker is stopped at many places.
        rt::time::sleep(50_000 + saved as u64 * 7919 % 50_000);
        if saved < times {
            worker.save()?;
            worker.restore()?;
            saved += 1;
        }
    }
    if saved < times {
        rt::println!("the worker was too fast: it was saved only {saved} times");
        return Err(Code::TimedOut);
    }
    let sum = worker.data()?.sum;
    drop(worker.thread.take());
    worker.mutex()?.destroy()?;
    Ok(sum)
}

fn main() -> u8 {
    match (run(0), run(TIMES)) {
        (Ok(undisturbed), Ok(disturbed)) => {
            rt::println!("undisturbed: {undisturbed:#x}");
            rt::println!("saved and restored {TIMES} times: {disturbed:#x}");
            u8::from(undisturbed != disturbed)
        }
        (undisturbed, disturbed) => {
            rt::println!("checkpointer: {undisturbed:?}, {disturbed:?}");
            2
        }
    }
}
