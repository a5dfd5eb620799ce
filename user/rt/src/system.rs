//! Client of init's system port, for the few programs that were given it.
use crate::obj::{Port, Ref, RefAt};
use crate::process::Supervisor;
use crate::rpc::{self, Io};
use alloc::string::ToString;
use proto::system::{Reply, Request, PASSED};
use proto::Error;

/// The system port; [`Error::Denied`] if this program was not given it.
pub fn port() -> Result<RefAt, Error> {
    crate::start::passed(PASSED)
        .filter(|port| port.kind() == abi::RefKind::Port)
        .ok_or(Error::Denied)
}

/// Powers the machine off with this exit status. Returns only if that is refused.
pub fn power_off(status: u8) -> Result<(), Error> {
    rpc::ask::<_, Reply>(&port()?, &Request::PowerOff { status }).map(|_| ())
}

/// Writes a line to the control channel, over which tests report to whoever runs the machine.
pub fn report(line: &str) -> Result<(), Error> {
    let mut io = Io {
        bulk: line.as_bytes(),
        ..Io::default()
    };
    rpc::call::<_, Reply>(&port()?, &Request::Report, &mut io).map(|_| ())
}

/// All processes of a manager.
pub fn supervisor(manager: &str) -> Result<Supervisor, Error> {
    control(manager).map(Supervisor::at)
}

/// The port by which a server is controlled.
pub fn control(server: &str) -> Result<Ref, Error> {
    let supervisor = Ref::new().map_err(crate::error_of)?;
    let mut io = Io {
        refs_in: &[&supervisor],
        ..Io::default()
    };
    let request = Request::Supervisor {
        manager: server.to_string(),
    };
    rpc::call::<_, Reply>(&port()?, &request, &mut io)?;
    match io.refs_len {
        1 => Ok(supervisor),
        _ => Err(Error::Broken),
    }
}

/// Makes the port known by a name, even a reserved one.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    let mut io = Io {
        refs: &[&reference],
        ..Io::default()
    };
    let request = Request::Register {
        name: name.to_string(),
    };
    rpc::call::<_, Reply>(&self::port()?, &request, &mut io).map(|_| ())
}
