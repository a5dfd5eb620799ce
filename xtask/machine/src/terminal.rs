//! The terminal of `./fermata run`, in raw mode while a machine uses it.

use std::io::IsTerminal;

use rustix::stdio::stdin;
use rustix::termios::{tcgetattr, tcsetattr, OptionalActions, Termios};

/// Whether standard input is a terminal.
pub fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Raw mode: every key goes to the guest. Dropping this restores the earlier mode.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Switches the terminal on standard input to raw mode; none if it is not a terminal.
    pub fn enter() -> Option<Self> {
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        // The guest ends its lines with CR LF or LF; both look right with output processing on.
        raw.output_modes = before.output_modes;
        tcsetattr(stdin(), OptionalActions::Drain, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A failure can be reported to no one any more.
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}
