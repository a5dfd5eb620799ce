//! A program to be debugged: three threads take turns, under a mutex and a condition, and each turn is a call of
//! [`tread`]. A lost wake-up makes it wait for ever; calls that return early are counted.
//!
//! `debugged NAME [ROUNDS]`: begins when [`GATE`] is 1, and continues from the middle when it is 2; the debugger
//! writes these values. With `free` as a further argument it does not wait. `trust debugged kill NAME` ends the
//! server of that name.
//! `debugged NAME watch [ROUNDS]`: the program, the kernel and a server write and read bytes of one page, while a
//! further thread writes beside them; begins and continues as above.
//! `debugged NAME replace`: a thread takes the place of another one when [`GATE`] is 1, and counts turns until it is
//! 2.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::abi::state::MutexState;
use rt::fs::{self, File, Flags};
use rt::obj::{Cond, Mutex};
use rt::thread::{self, JoinlessThread};
use rt::{sys, time};

rt::entry!(main);

/// Threads that take turns.
const THREADS: u64 = 3;
/// The pause between two checks of the gate, in nanoseconds.
const PAUSE: u64 = 1_000_000;

/// How far the program may go.
#[no_mangle]
static GATE: AtomicU64 = AtomicU64::new(0);
/// Turns taken.
#[no_mangle]
static TURNS: AtomicU64 = AtomicU64::new(0);
/// The value of the gate that the program waits for, or waited for last.
#[no_mangle]
static WAITS: AtomicU64 = AtomicU64::new(0);

/// The address of the page that is watched.
#[no_mangle]
static PLACE: AtomicU64 = AtomicU64::new(0);

/// A turn.
#[no_mangle]
#[inline(never)]
extern "C" fn tread(turn: u64) -> u64 {
    let square = core::hint::black_box(turn) * turn;
    core::hint::black_box(square)
}

struct Ring {
    turns: u64,
    lock: Mutex,
    turned: Cond,
    sum: AtomicU64,
    /// Sleeps that were over before their time.
    early: AtomicU64,
    done: AtomicU64,
}

fn wait_for_gate(ring: &Ring, wanted: u64) {
    WAITS.store(wanted, Ordering::Release);
    while GATE.load(Ordering::Acquire) < wanted {
        let until = time::now() + PAUSE;
        time::sleep_until(until);
        if time::now() < until {
            ring.early.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn run(ring: &Ring, own: u64, name: &str) {
    loop {
        ring.lock.lock();
        let mut turn = TURNS.load(Ordering::Relaxed);
        while turn < ring.turns && turn % THREADS != own {
            ring.turned.wait(ring.lock.at());
            turn = TURNS.load(Ordering::Relaxed);
        }
        if turn >= ring.turns {
            break;
        }
        ring.sum.fetch_add(tread(turn), Ordering::Relaxed);
        if turn == ring.turns / 2 {
            // It reports this by a file, for which others can wait.
            let flags = Flags {
                create: true,
                ..Flags::default()
            };
            if let Ok(file) = fs::open(&format!("/tmp/half-{name}"), flags, 0o644) {
                let _ = fs::close(file.ino);
            }
            wait_for_gate(ring, 2);
        }
        TURNS.store(turn + 1, Ordering::Relaxed);
        ring.turned.broadcast();
        ring.lock.unlock();
    }
    ring.done.fetch_add(1, Ordering::Relaxed);
    ring.turned.broadcast();
    ring.lock.unlock();
}

fn play(name: &str, rounds: u64) -> Result<bool, rt::Code> {
    let ring = Arc::new(Ring {
        turns: THREADS * rounds,
        lock: Mutex::new()?,
        turned: Cond::new()?,
        sum: AtomicU64::new(0),
        early: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    wait_for_gate(&ring, 1);
    for own in 0..THREADS {
        let (ring, name) = (ring.clone(), String::from(name));
        thread::spawn(move || run(&ring, own, &name))?;
    }
    ring.lock.lock();
    while ring.done.load(Ordering::Relaxed) < THREADS {
        ring.turned.wait(ring.lock.at());
    }
    ring.lock.unlock();
    let [turns, sum, early] = [&TURNS, &ring.sum, &ring.early].map(|n| n.load(Ordering::Relaxed));
    let right = (0..ring.turns).map(|turn| turn * turn).sum::<u64>() == sum;
    let said = if right { "right" } else { "wrong" };
    rt::println!("{name}: {turns} turns, {said}, {early} early");
    Ok(right && early == 0)
}

/// Words that the debugger watches, in a page of their own.
#[repr(C, align(4096))]
#[derive(Default)]
struct Watched {
    /// Written by the program, with another value in every second round.
    own: AtomicU64,
    /// Written in every round.
    beside: AtomicU64,
    /// Written by a call of the kernel.
    kernel: MutexState,
    /// Written by the kernel, with data from a server.
    file: [u8; 8],
    /// Only read.
    read: AtomicU64,
    /// Written by another thread.
    others: AtomicU64,
    /// Read by the kernel, for a server.
    sent: [u8; 8],
}

/// Counts in `word`, and in `counted`, until `over` is set.
fn count_beside(word: &AtomicU64, over: &AtomicU64, counted: &AtomicU64) {
    while over.load(Ordering::Acquire) == 0 {
        word.fetch_add(1, Ordering::Relaxed);
        counted.fetch_add(1, Ordering::Relaxed);
        time::sleep(PAUSE);
    }
    over.store(2, Ordering::Release);
}

fn wait_for(wanted: u64) {
    WAITS.store(wanted, Ordering::Release);
    while GATE.load(Ordering::Acquire) < wanted {
        time::sleep(PAUSE);
    }
}

fn watched(name: &str, rounds: u64) -> Result<bool, rt::Error> {
    static OVER: AtomicU64 = AtomicU64::new(0);
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    let page: &'static mut Watched = Box::leak(Box::default());
    PLACE.store(core::ptr::from_ref(page) as u64, Ordering::Release);
    let Watched {
        own,
        beside,
        kernel,
        file,
        read,
        others,
        sent,
    } = page;
    let others: &'static AtomicU64 = others;
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    // After a restore the file is opened again.
    let content = File::open(&format!("/tmp/watched-{name}"), create, 0o644)?;
    let lock = Mutex::new().map_err(rt::error_of)?;
    wait_for(1);
    thread::spawn(move || count_beside(others, &OVER, &COUNTED)).map_err(rt::error_of)?;
    let mut right = true;
    for n in 1..=rounds {
        beside.store(n, Ordering::Relaxed);
        own.store(n / 2, Ordering::Relaxed);
        if n % 2 == 0 {
            lock.lock();
        } else if n > 1 {
            lock.unlock();
        }
        right &= sys::mutex_get_state(lock.at().0, kernel) == rt::Code::Ok;
        right &= kernel.locked == u64::from(n % 2 == 0);
        *sent = n.to_le_bytes();
        content.write(0, sent)?;
        right &= content.read(0, file)? == 8 && *file == *sent;
        right &= read.load(Ordering::Relaxed) == 0;
        right &= own.load(Ordering::Relaxed) == n / 2;
        if n == rounds / 2 {
            fs::close(fs::open(&format!("/tmp/half-{name}"), create, 0o644)?.ino)?;
            wait_for(2);
        }
    }
    OVER.store(1, Ordering::Release);
    while OVER.load(Ordering::Acquire) < 2 {
        time::sleep(PAUSE);
    }
    right &= others.load(Ordering::Relaxed) == COUNTED.load(Ordering::Relaxed);
    let said = if right { "right" } else { "wrong" };
    rt::println!("{name}: {rounds} rounds, {said}");
    Ok(right)
}

/// A thread that has ended is destroyed when another one begins, which gets its place.
fn replace(name: &str) -> Result<bool, rt::Code> {
    let place = |thread: &JoinlessThread| thread.with(|at| Ok(at.0));
    let first = thread::spawn(|| {})?;
    let before = place(&first)?;
    while !first.is_finished() {
        time::sleep(PAUSE);
    }
    WAITS.store(1, Ordering::Release);
    while GATE.load(Ordering::Acquire) < 1 {
        time::sleep(PAUSE);
    }
    let second = thread::spawn(|| {
        while GATE.load(Ordering::Acquire) < 2 {
            TURNS.fetch_add(1, Ordering::Relaxed);
            time::sleep(PAUSE);
        }
    })?;
    let same = place(&second)? == before;
    while !second.is_finished() {
        time::sleep(PAUSE);
    }
    rt::println!("{name}: in the same place: {same}");
    Ok(same)
}

/// Ends the native process of this name.
fn kill(name: &str) -> Result<(), rt::Error> {
    let supervisor = rt::system::supervisor("native")?;
    let list = supervisor.list()?;
    let found = list.iter().find(|info| info.name == name);
    supervisor
        .process(found.ok_or(rt::Error::NotFound)?.pid)?
        .kill()
}

fn main() -> u8 {
    let args = &rt::start().args;
    let word = |n: usize| args.get(n).map_or("", String::as_str);
    if word(1) == "kill" {
        return u8::from(kill(word(2)).is_err());
    }
    if word(2) == "replace" {
        return u8::from(!replace(word(1)).is_ok_and(|same| same));
    }
    if word(2) == "watch" {
        let rounds = word(3).parse().unwrap_or(100);
        return match watched(word(1), rounds) {
            Ok(right) => u8::from(!right),
            Err(error) => {
                rt::println!("{}: {}", word(1), error.text());
                2
            }
        };
    }
    let rounds = word(2).parse().unwrap_or(100);
    if word(3) == "free" {
        GATE.store(2, Ordering::Release);
    }
    match play(word(1), rounds) {
        Ok(right) => u8::from(!right),
        Err(code) => {
            rt::println!("cannot begin: {code:?}");
            2
        }
    }
}
