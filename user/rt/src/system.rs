//! Client of init's system port, for the few programs that were given it.
use crate::obj::{Port, Ref, RefAt};
use crate::process::Supervisor;
use crate::sync::Mutex;
use proto::{Error, MAX_BULK};
use services::system::{SystemClient, PASSED};

static SESSION: Mutex<Option<SystemClient>> = Mutex::new(None);

/// The system port; [`Error::Denied`] if this program was not given it.
pub fn port() -> Result<RefAt, Error> {
    crate::start::passed(PASSED)
        .filter(|port| port.kind() == abi::RefKind::Port)
        .ok_or(Error::Denied)
}

/// Asks in the program's session, which is opened at the first request.
fn ask<T>(request: impl FnOnce(&mut SystemClient) -> Result<T, Error>) -> Result<T, Error> {
    let mut session = SESSION.lock();
    let session = match &mut *session {
        Some(known) => known,
        none => none.insert(SystemClient::open(&port()?)?),
    };
    request(session)
}

/// Powers the machine off with this exit status. Returns only if that is refused.
pub fn power_off(status: u8) -> Result<(), Error> {
    ask(|system| system.power_off(status))
}

/// Writes a line to the control channel, over which tests report to whoever runs the machine.
pub fn report(line: &str) -> Result<(), Error> {
    let line = &line.as_bytes()[..line.len().min(MAX_BULK)];
    ask(|system| system.report(line))
}

/// All processes of a manager.
pub fn supervisor(manager: &str) -> Result<Supervisor, Error> {
    control(manager).map(Supervisor::at)
}

/// The port by which a server is controlled.
pub fn control(server: &str) -> Result<Ref, Error> {
    ask(|system| system.control(server))
}

/// Makes the port known by a name, even a reserved one.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    ask(|system| system.register(&reference, name))
}
