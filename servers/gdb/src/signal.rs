//! Exceptions and Linux's signals as GDB's signals, whose numbers are those of `include/gdb/signals.def` in GDB's
//! sources and not Linux's.
use abi::Exception;
use gdbstub::common::Signal;

/// The signal that stands for an exception.
#[must_use]
pub fn of_exception(code: u64) -> Signal {
    match Exception::from_raw(code) {
        Some(Exception::Divide | Exception::X87 | Exception::Simd) => Signal::SIGFPE,
        Some(Exception::Debug | Exception::Breakpoint) => Signal::SIGTRAP,
        Some(Exception::InvalidOpcode) => Signal::SIGILL,
        Some(Exception::Alignment) => Signal::SIGBUS,
        Some(Exception::NoCall | Exception::ForeignCall) => Signal::SIGSYS,
        _ => Signal::SIGSEGV,
    }
}

/// GDB's signal for a Linux signal number.
#[must_use]
pub const fn of_linux(number: u8) -> Signal {
    match number {
        // HUP INT QUIT ILL TRAP ABRT, FPE, KILL, SEGV, PIPE ALRM TERM
        1..=6 | 8 | 9 | 11 | 13..=15 => Signal(number),
        7 => Signal::SIGBUS,
        10 => Signal::SIGUSR1,
        12 => Signal::SIGUSR2,
        31 => Signal::SIGSYS,
        _ => Signal::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::{of_exception, of_linux};
    use abi::Exception;
    use gdbstub::common::Signal;

    #[test]
    fn numbers_are_those_of_gdb() {
        assert_eq!(of_exception(Exception::Memory as u64), Signal(11));
        assert_eq!(of_exception(Exception::Breakpoint as u64), Signal(5));
        assert_eq!(of_exception(Exception::NoCall as u64), Signal(12));
        assert_eq!(of_linux(9), Signal(9));
        assert_eq!(of_linux(7), Signal(10));
        assert_eq!(of_linux(10), Signal(30));
    }
}
