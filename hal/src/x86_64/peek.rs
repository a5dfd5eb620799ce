//! Reading a word of the running program through its own translations, so that the hardware does
//! the walk and checks the right to read.

use super::{Global, CPU};
use abi::USER_END;
use core::arch::naked_asm;
use core::cell::Cell;

/// 1 when user memory must be opened with `stac` before the kernel reads it.
static GUARDED: Global<Cell<u64>> = Global(Cell::new(0));

/// SMAP is on.
pub(super) fn guard() {
    GUARDED.0.set(1);
}

/// The word at an address of the running program, if a translation for reading is at hand. Any
/// address may be asked for; one that is not the program's, or not aligned to 8, has no word.
#[inline]
pub fn peek(address: u64) -> Option<u64> {
    if address >= USER_END || address % 8 != 0 || CPU.0.current.get().is_none() {
        return None;
    }
    let mut word = 0;
    // SAFETY: the address is in the user half and aligned. `peek_word` touches nothing else, and
    // a fault on it ends in `peek_absent` (see `continuation`).
    let found = if GUARDED.0.get() != 0 {
        unsafe { guarded_peek(address, &mut word) }
    } else {
        unsafe { open_peek(address, &mut word) }
    };
    (found != 0).then_some(word)
}

/// Reads `[rdi]` into `[rsi]`. `rax`: whether there was something to read.
#[unsafe(naked)]
unsafe extern "C" fn guarded_peek(address: u64, word: &mut u64) -> u64 {
    naked_asm!(
        "stac",
        ".global hal_peek_guarded",
        "hal_peek_guarded:",
        "mov rax, [rdi]",
        "clac",
        "mov [rsi], rax",
        "mov eax, 1",
        "ret",
    )
}

#[unsafe(naked)]
unsafe extern "C" fn open_peek(address: u64, word: &mut u64) -> u64 {
    naked_asm!(
        ".global hal_peek_open",
        "hal_peek_open:",
        "mov rax, [rdi]",
        "mov [rsi], rax",
        "mov eax, 1",
        "ret",
    )
}

#[unsafe(naked)]
unsafe extern "C" fn peek_absent_guarded() {
    naked_asm!("clac", "xor eax, eax", "ret")
}

#[unsafe(naked)]
unsafe extern "C" fn peek_absent_open() {
    naked_asm!("xor eax, eax", "ret")
}

extern "C" {
    fn hal_peek_guarded();
    fn hal_peek_open();
}

/// Where the kernel goes on after a page fault at `rip`, if that is the read of a [`peek`].
pub(super) fn continuation(rip: u64) -> Option<u64> {
    if rip == hal_peek_guarded as *const () as u64 {
        Some(peek_absent_guarded as *const () as u64)
    } else if rip == hal_peek_open as *const () as u64 {
        Some(peek_absent_open as *const () as u64)
    } else {
        None
    }
}
