//! What a stopped thread is doing, in words.
//!
//! The first word is one of `user`, `fault` and `call`, so that experiments can count.

use crate::meta::{thread_state, Meta, Object, State, Target};
use abi::state::{space_flags, ThreadState, Waiting};
use abi::{Call, Exception};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The bytes of the `syscall` instruction.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What each thread of an image is doing, in words. `code_at` returns the two bytes at an address of a process, as far
/// as they are present.
pub fn all(meta: &Meta, mut code_at: impl FnMut(u32, u64) -> Vec<u8>) -> Vec<String> {
    let mut words = Vec::new();
    for object in &meta.objects {
        let State::Thread { words: thread, fpu } = &object.state else {
            continue;
        };
        let state = thread_state(thread, fpu);
        // The space determines whether calls are redirected, and in which process's memory `rip` is.
        let (mut foreign, mut process) = (false, object.place.process);
        if let Some(Target::Object(space)) = object.refs.first() {
            if let Some(Object {
                state: State::Space { flags, .. },
                place,
                ..
            }) = meta.objects.get(*space as usize)
            {
                foreign = flags & space_flags::FOREIGN != 0;
                process = place.process;
            }
        }
        let code = code_at(process, state.registers.rip);
        words.push(doing(&state, foreign, &code));
    }
    words
}

/// A description of what the thread is doing. `foreign`: its space redirects system calls; `at` holds the bytes at its
/// `rip` as far as they are present.
#[must_use]
pub fn doing(state: &ThreadState, foreign: bool, at: &[u8]) -> String {
    let r = &state.registers;
    let exception = Exception::from_raw(state.exception);
    let waiting = Waiting::from_raw(state.waiting).unwrap_or_default();
    if state.exception_delivered != 0 || waiting == Waiting::Exception {
        return match exception {
            Some(Exception::ForeignCall) => format!("call: Linux {}, with the personality", r.rax),
            Some(Exception::Memory) => {
                format!(
                    "fault: access to {:#x}, with the keeper",
                    state.exception_address
                )
            }
            Some(other) => format!("fault: {other:?} at {:#x}, with the keeper", r.rip),
            None => format!("fault: exception at {:#x}, with the keeper", r.rip),
        };
    }
    if at.starts_with(&SYSCALL) {
        if foreign {
            return format!("call: Linux {}, about to begin", r.rax);
        }
        let name = Call::from_number(r.rax as u8).map_or("unknown", Call::name);
        return match waiting {
            Waiting::Nothing => format!("call: {name}, about to begin"),
            other => format!("call: {name}, waiting ({other:?})"),
        };
    }
    if matches!(waiting, Waiting::Reply | Waiting::Port) {
        return format!("fault: at {:#x}, page asked for", r.rip);
    }
    // An absent page at `rip` itself: the instruction cannot have begun.
    if at.is_empty() {
        return format!("fault: code at {:#x} not there yet", r.rip);
    }
    format!("user: {:#x}", r.rip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_with_what_is_counted() {
        let mut state = ThreadState::default();
        state.registers.rip = 0x40_1000;
        assert_eq!(doing(&state, true, &[0x90, 0x90]), "user: 0x401000");
        state.registers.rax = 1;
        assert_eq!(
            doing(&state, true, &SYSCALL),
            "call: Linux 1, about to begin"
        );
        state.exception_delivered = 1;
        state.exception = Exception::ForeignCall as u64;
        assert_eq!(
            doing(&state, true, &SYSCALL),
            "call: Linux 1, with the personality"
        );
        state.exception = Exception::Memory as u64;
        state.exception_address = 0x1000;
        assert_eq!(
            doing(&state, true, &[]),
            "fault: access to 0x1000, with the keeper"
        );
        state.exception_delivered = 0;
        state.waiting = Waiting::Mutex as u64;
        state.registers.rax = Call::MutexLock as u64;
        assert_eq!(
            doing(&state, false, &SYSCALL),
            "call: mutex_lock, waiting (Mutex)"
        );
        state.waiting = Waiting::Reply as u64;
        assert_eq!(
            doing(&state, false, &[0x90]),
            "fault: at 0x401000, page asked for"
        );
        state.waiting = 0;
        assert_eq!(
            doing(&state, false, &[]),
            "fault: code at 0x401000 not there yet"
        );
    }
}
