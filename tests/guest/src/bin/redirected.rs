//! A program for the test of the call gate: it makes calls of several kinds, counts them, and writes the result to
//! the mailbox whose address is in `r12`. It is not started as a process, but placed into the space of the test, and
//! calls only the kernel.
#![no_std]
#![no_main]

extern crate alloc;

use abi::Code;
use core::arch::global_asm;
use core::sync::atomic::Ordering;
use guest_tests::redirected::{Mailbox, WRONG};
use rt::obj::RefAt;
use rt::sys;

rt::program!();

global_asm!(
    ".globl fermata_main",
    "fermata_main:",
    "mov rdi, r12",
    "jmp {run}",
    run = sym run,
);

unsafe extern "C" fn run(mailbox: *const Mailbox) -> ! {
    // SAFETY: the test keeps its mailbox for as long as this thread lives.
    let mailbox = unsafe { &*mailbox };
    let mut calls = 0;
    let right = calls_go_well(mailbox, &mut calls);
    let result = if right { calls } else { WRONG };
    mailbox.result.store(result, Ordering::Release);
    loop {
        sys::thread_wait_interrupt();
    }
}

/// Makes one call after the other, until a result is wrong.
fn calls_go_well(mailbox: &Mailbox, calls: &mut u64) -> bool {
    let mutex = mailbox.slot;
    let mut check = |right: bool| {
        *calls += 1;
        right
    };
    let first = sys::clock_get();
    check(first > 0)
        && check(sys::mutex_create(mutex, 0) == Code::Ok)
        && check(sys::mutex_lock(mutex) == Code::Ok)
        && check(sys::mutex_trylock(mutex) == Code::WouldBlock)
        && check(sys::mutex_unlock(mutex) == Code::Ok)
        // One that waits, and one that moves a message through all registers.
        && check(sys::thread_sleep_until(first + 100_000) == Code::Ok)
        && check(RefAt(mailbox.port).poke() == Ok(()))
        && check(sys::mutex_destroy(mutex, 0) == Code::Ok)
        && check(sys::clock_get() >= first + 100_000)
}
