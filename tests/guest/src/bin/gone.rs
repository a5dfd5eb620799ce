//! A program to be checkpointed: two threads access memory that is gone, so that at most instants a thread is in the
//! middle of that exception. Each access must fail with an error, and none may end the program.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{OBJECTS, READ, WRITE};
use abi::state::RegionState;
use abi::PAGE_SIZE;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::obj::{MutexAt, Region};
use rt::window::Window;
use rt::{Code, Error};

rt::entry!(main);

/// How often each thread does all accesses.
const ROUNDS: u64 = 2_000;
const THREADS: u64 = 2;

/// Accesses a window on nothing in each way. Returns how many accesses failed as they should.
fn touch(window: &Window) -> u64 {
    let mut bytes = [0; 100];
    let all = [
        window.read(50, &mut bytes) == Err(Error::Ended),
        window.write(50, &bytes) == Err(Error::Ended),
        window.exchange(8, 0, 1) == Err(Error::Ended),
        window.is_zero(0, PAGE_SIZE) == Err(Error::Ended),
        MutexAt(window.address()).create() == Err(Code::NoObject),
    ];
    all.iter().map(|told| u64::from(*told)).sum()
}

fn main() -> u8 {
    match run() {
        Ok(told) => {
            rt::println!("{told} accesses to what is gone failed");
            u8::from(told != ROUNDS * THREADS * 5)
        }
        Err(error) => {
            rt::println!("cannot begin: {}", error.text());
            2
        }
    }
}

fn run() -> Result<u64, Error> {
    // Part of its own memory: with a reference to another program's memory it could not be saved.
    let memory = alloc::vec![0u8; 2 * PAGE_SIZE as usize];
    let state = RegionState {
        start: (memory.as_ptr() as u64).next_multiple_of(PAGE_SIZE),
        size: PAGE_SIZE,
        protection: READ | WRITE | OBJECTS,
    };
    let region = Region::new().map_err(rt::error_of)?;
    region.set_state(&state, 0, 0).map_err(rt::error_of)?;
    let reference = region.reference().map_err(rt::error_of)?;
    let window = Window::map(&reference, 0, PAGE_SIZE, READ | WRITE | OBJECTS)?;
    window.write(0, &[1])?;
    drop((region, reference));
    let shared = Arc::new((window, AtomicU64::new(0), AtomicU64::new(0)));
    for _ in 0..THREADS {
        let shared = Arc::clone(&shared);
        let work = move || {
            let (window, told, done) = &*shared;
            for _ in 0..ROUNDS {
                told.fetch_add(touch(window), Ordering::Relaxed);
            }
            done.fetch_add(1, Ordering::Relaxed);
        };
        rt::thread::spawn(work).map_err(rt::error_of)?;
    }
    let (_, told, done) = &*shared;
    while done.load(Ordering::Relaxed) < THREADS {
        rt::time::sleep(1_000_000);
    }
    Ok(told.load(Ordering::Relaxed))
}
