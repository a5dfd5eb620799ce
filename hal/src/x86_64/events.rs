//! Events that a counting emulator sees.
//!
//! An event is a nop of seven bytes whose displacement contains the event's number; `tools/count` counts how often each
//! nop is executed. So the kernel has no counters of events, and no call to read them.

use core::arch::{asm, global_asm};

/// The number of different events.
pub const EVENTS: u8 = 96;

extern "C" {
    /// The code for event 0; the others follow.
    fn hal_events();
}

// Eight bytes for each: the nop, and the return.
global_asm!(
    r#"
    .balign 8
    .global hal_events
hal_events:
    .set hal_event, 0
    .rept {events}
    .byte 0x0f, 0x1f, 0x80
    .long 0x4d524700 + hal_event
    ret
    .set hal_event, hal_event + 1
    .endr
    "#,
    events = const EVENTS,
);

/// Tells a counting emulator of an event.
#[inline(always)]
pub fn event(number: u8) {
    assert!(number < EVENTS, "there is no such event");
    let code = hal_events as *const () as u64 + 8 * u64::from(number);
    // SAFETY: executes a nop and returns.
    unsafe { asm!("call {}", in(reg) code, options(nomem, preserves_flags)) };
}
