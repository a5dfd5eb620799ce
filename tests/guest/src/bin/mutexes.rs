//! A program to be checkpointed: four threads move units from one account to another, under two
//! mutexes, and wait on a condition now and then. No unit may be lost or made.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::obj::{Cond, Mutex};

rt::entry!(main);

/// Units in all.
const UNITS: u64 = 40_000;
const THREADS: u64 = 4;

struct Bank {
    first: Mutex,
    second: Mutex,
    changed: Cond,
    from: AtomicU64,
    to: AtomicU64,
    wrong: AtomicU64,
    done: AtomicU64,
}

fn work(bank: &Bank) {
    loop {
        bank.first.lock();
        let from = bank.from.load(Ordering::Relaxed);
        if from == 0 {
            break;
        }
        bank.second.lock();
        let to = bank.to.load(Ordering::Relaxed);
        if from + to != UNITS {
            bank.wrong.fetch_add(1, Ordering::Relaxed);
        }
        bank.from.store(from - 1, Ordering::Relaxed);
        // The loop takes long, so that the program is often stopped between the two stores.
        for n in 0..100u64 {
            core::hint::black_box(n);
        }
        bank.to.store(to + 1, Ordering::Relaxed);
        bank.second.unlock();
        if from.is_multiple_of(8) {
            bank.changed.broadcast();
        }
        if from.is_multiple_of(3) {
            bank.changed
                .wait_until(bank.first.at(), rt::time::now() + 30_000);
        }
        bank.first.unlock();
    }
    bank.done.fetch_add(1, Ordering::Relaxed);
    bank.changed.broadcast();
    bank.first.unlock();
}

fn main() -> u8 {
    match run() {
        Ok((moved, wrong)) => {
            rt::println!("{moved} units moved, {wrong} times out of balance");
            u8::from(moved != UNITS || wrong != 0)
        }
        Err(code) => {
            rt::println!("cannot begin: {code:?}");
            2
        }
    }
}

fn run() -> Result<(u64, u64), rt::Code> {
    let bank = Arc::new(Bank {
        first: Mutex::new()?,
        second: Mutex::new()?,
        changed: Cond::new()?,
        from: AtomicU64::new(UNITS),
        to: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    for _ in 0..THREADS {
        let bank = bank.clone();
        rt::thread::spawn(move || work(&bank))?;
    }
    bank.first.lock();
    while bank.done.load(Ordering::Relaxed) < THREADS {
        bank.changed.wait(bank.first.at());
    }
    bank.first.unlock();
    Ok((
        bank.to.load(Ordering::Relaxed),
        bank.wrong.load(Ordering::Relaxed),
    ))
}
