//! Descriptions of what a thread is doing, from its exported state alone.
use abi::state::{ThreadState, Waiting};
use abi::{Call, Exception};
use alloc::format;
use alloc::string::{String, ToString};
use services::process::Thread;

/// The thread, as `ps` shows it.
#[must_use]
pub fn summary(state: &ThreadState) -> Thread {
    Thread {
        rip: state.registers.rip,
        rax: state.registers.rax,
        waiting: state.waiting as u8,
        stops: u32::try_from(state.stop_count).unwrap_or(u32::MAX),
        exception: u8::from(state.exception_delivered != 0),
    }
}

/// What the thread is about to do. `at_call`: whether there is a `syscall` instruction at its
/// `rip`, as far as that is known.
#[must_use]
pub fn doing(state: &ThreadState, at_call: bool) -> String {
    let stopped = if state.stop_count > 0 {
        ", stopped"
    } else {
        ""
    };
    let rip = state.registers.rip;
    if state.exception_delivered != 0 {
        return format!(
            "{}{stopped}",
            exception(state.exception, state.exception_address, rip)
        );
    }
    let waiting = Waiting::from_raw(state.waiting).unwrap_or_default();
    let call = Call::from_number(state.registers.rax as u8).map(Call::name);
    match (waiting, call) {
        (Waiting::Nothing, Some(call)) if at_call => format!("about to {call}{stopped}"),
        (Waiting::Nothing, _) => format!("in user code at {rip:#x}{stopped}"),
        // A fault is not a call: its reply can be awaited at any instruction.
        (Waiting::Reply, call) if !at_call || call.is_none() => {
            format!("at {rip:#x}, waiting for its memory{stopped}")
        }
        (Waiting::Exception, _) => {
            format!(
                "{}{stopped}",
                exception(state.exception, state.exception_address, rip)
            )
        }
        (waiting, call) => {
            let call = call.map_or_else(|| format!("at {rip:#x}"), ToString::to_string);
            format!("{call}, {}{stopped}", reason(waiting))
        }
    }
}

/// What a thread waits for.
#[must_use]
pub const fn reason(waiting: Waiting) -> &'static str {
    match waiting {
        Waiting::Nothing => "running",
        Waiting::Mutex => "waiting for a mutex",
        Waiting::Cond => "waiting for a condition",
        Waiting::Deadline => "sleeping",
        Waiting::Interrupt => "waiting for an interrupt",
        Waiting::Port => "waiting for a server",
        Waiting::Portset => "waiting for a client",
        Waiting::Peer => "waiting for its peer",
        Waiting::Reply => "waiting for a reply",
        Waiting::Exception => "waiting for its manager",
        Waiting::Vacant => "waiting for an object to come back",
        Waiting::Kernel => "waiting to be let into the kernel",
    }
}

/// An exception in words: the kind, the address, and the instruction.
#[must_use]
pub fn exception(code: u64, address: u64, rip: u64) -> String {
    let what = match Exception::from_raw(code) {
        Some(Exception::Memory) => return format!("bad access to {address:#x} at {rip:#x}"),
        Some(Exception::NoObject) => return format!("no object at {address:#x}, used at {rip:#x}"),
        Some(Exception::WrongType) => {
            return format!("an object of another type at {address:#x}, used at {rip:#x}")
        }
        Some(Exception::Misaligned) => return format!("misaligned {address:#x} at {rip:#x}"),
        Some(Exception::ForeignCall) => return format!("in a foreign call at {rip:#x}"),
        Some(Exception::Divide) => "division by zero",
        Some(Exception::Debug) => "debug trap",
        Some(Exception::Breakpoint) => "breakpoint",
        Some(Exception::Overflow) => "overflow",
        Some(Exception::Bound) => "bound exceeded",
        Some(Exception::InvalidOpcode) => "invalid instruction",
        Some(Exception::Protection) => "protection fault",
        Some(Exception::X87 | Exception::Simd) => "floating point error",
        Some(Exception::Alignment) => "misaligned access",
        Some(Exception::NoCall) => "unknown entrypoint",
        Some(Exception::NoSpace) => "its space is gone",
        Some(Exception::Processor) | None => "processor exception",
    };
    format!("{what} at {rip:#x}")
}

/// The Linux signal that stands for an exception.
#[must_use]
pub const fn signal(code: u64) -> u8 {
    match Exception::from_raw(code) {
        Some(Exception::Divide | Exception::X87 | Exception::Simd) => 8,
        Some(Exception::Debug | Exception::Breakpoint) => 5,
        Some(Exception::InvalidOpcode) => 4,
        Some(Exception::Alignment) => 7,
        Some(Exception::NoCall | Exception::ForeignCall) => 31,
        _ => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::{doing, exception, signal};
    use abi::state::{ThreadState, Waiting};
    use abi::{Call, Exception};

    fn state(rax: u64, waiting: Waiting, stops: u64) -> ThreadState {
        let mut state = ThreadState {
            waiting: waiting as u64,
            stop_count: stops,
            ..ThreadState::default()
        };
        state.registers.rax = rax;
        state.registers.rip = 0x40_1234;
        state
    }

    #[test]
    fn threads_in_words() {
        let lock = Call::MutexLock as u64;
        assert_eq!(
            doing(&state(lock, Waiting::Mutex, 0), true),
            "mutex_lock, waiting for a mutex"
        );
        assert_eq!(
            doing(&state(lock, Waiting::Nothing, 0), false),
            "in user code at 0x401234"
        );
        assert_eq!(
            doing(&state(lock, Waiting::Nothing, 1), true),
            "about to mutex_lock, stopped"
        );
        assert_eq!(
            doing(&state(lock, Waiting::Reply, 0), false),
            "at 0x401234, waiting for its memory"
        );
        let call = Call::CallShort as u64;
        assert_eq!(
            doing(&state(call, Waiting::Reply, 0), true),
            "call_short, waiting for a reply"
        );
        let mut delivered = state(0, Waiting::Exception, 0);
        delivered.exception_delivered = 1;
        delivered.exception = Exception::ForeignCall as u64;
        assert_eq!(doing(&delivered, true), "in a foreign call at 0x401234");
    }

    #[test]
    fn exceptions_in_words() {
        assert_eq!(exception(32, 0, 0x10), "bad access to 0x0 at 0x10");
        assert_eq!(exception(0, 0, 0x10), "division by zero at 0x10");
        assert_eq!(exception(999, 0, 0x10), "processor exception at 0x10");
        assert_eq!(signal(32), 11);
        assert_eq!(signal(0), 8);
    }
}
