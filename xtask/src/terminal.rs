//! The terminal that `./fermata run` sits at, in raw mode while a machine has it.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

const STDIN: RawFd = 0;

/// Whether standard input is a terminal.
pub(crate) fn stdin_is_terminal() -> bool {
    // SAFETY: isatty only inspects a descriptor number.
    unsafe { libc::isatty(STDIN) == 1 }
}

/// Raw mode: every key goes to the guest. Dropping it restores what was there before.
pub(crate) struct RawMode {
    before: libc::termios,
}

impl RawMode {
    /// Switches the terminal on standard input to raw mode; none if it is not a terminal.
    pub(crate) fn enter() -> Option<Self> {
        let mut before = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr writes a whole termios if it returns 0.
        let before = unsafe {
            if libc::tcgetattr(STDIN, before.as_mut_ptr()) != 0 {
                return None;
            }
            before.assume_init()
        };
        let mut raw = before;
        // SAFETY: cfmakeraw only changes the structure it is given.
        unsafe { libc::cfmakeraw(&mut raw) };
        // The guest ends its lines with CR LF or LF; both look right with output processing on.
        raw.c_oflag = before.c_oflag;
        // SAFETY: tcsetattr only reads the structure it is given.
        if unsafe { libc::tcsetattr(STDIN, libc::TCSADRAIN, &raw) } != 0 {
            return None;
        }
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // SAFETY: tcsetattr only reads the structure it is given.
        unsafe { libc::tcsetattr(STDIN, libc::TCSADRAIN, &self.before) };
    }
}
