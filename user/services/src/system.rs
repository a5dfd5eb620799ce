//! Power over the machine. Its door is the system port of init, which init gives to the shell and to the test runner,
//! in [`PASSED`]; they may pass it on.
use interface::{interface, Error};

/// Where the system port stands among the references that a program is started with.
pub const PASSED: usize = 0;

/// What the holder of the system port can ask.
#[interface]
pub trait System {
    /// Powers the machine off with this exit status, after the files that `/etc/gets` of the boot archive lists
    /// have gone out over the control channel. Errors: none of its own. May be repeated.
    fn power_off(&self, status: u8) -> Result<(), Error>;
    /// Writes one line to the control channel, over which tests report. Errors: none of its own. Must not be
    /// repeated.
    #[once]
    fn report(&self, line: &[u8]) -> Result<(), Error>;
    /// The port by which a server is controlled: the supervisor port of a manager of processes, `native` or `linux`;
    /// the control of the `console`. Errors: `NotFound`. May be repeated.
    fn control(&self, server: &str) -> Result<Ref, Error>;
    /// Makes the port known by that name, even if it is reserved, instead of what was known by it. Nobody who has the
    /// old port is told. Errors: `NameTooLong`, `Invalid` if it is no port, `Limit` if there are
    /// as many names as there may be. May be repeated.
    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error>;
}
