//! Client of the name service.
use crate::obj::{Port, Ref};
use crate::rpc::{self, Io};
use crate::start::NAMES;
use alloc::string::ToString;
use proto::names::{Reply, Request};
use proto::Error;

/// A reference to the port of that name.
pub fn lookup(name: &str) -> Result<Ref, Error> {
    let port = Ref::new().map_err(crate::error_of)?;
    let mut io = Io {
        refs_in: &[&port],
        ..Io::default()
    };
    rpc::call::<_, Reply>(
        &NAMES,
        &Request::Lookup {
            name: name.to_string(),
        },
        &mut io,
    )?;
    if io.refs_len == 1 {
        Ok(port)
    } else {
        Err(Error::Broken)
    }
}

/// As [`lookup`], but waits until the name is there or the deadline passes.
pub fn wait_for(name: &str, deadline: u64) -> Result<Ref, Error> {
    loop {
        match lookup(name) {
            Err(Error::NotFound) if crate::time::now() < deadline => {
                crate::time::sleep_until((crate::time::now() + 1_000_000).min(deadline));
            }
            result => return result,
        }
    }
}

/// Makes the port known by that name.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    let mut io = Io {
        refs: &[&reference],
        ..Io::default()
    };
    rpc::call::<_, Reply>(
        &NAMES,
        &Request::Register {
            name: name.to_string(),
        },
        &mut io,
    )?;
    Ok(())
}

/// Powers the machine off with this exit status. Returns only if that is refused.
pub fn power_off(status: u8) -> Result<(), Error> {
    rpc::ask::<_, Reply>(&NAMES, &Request::PowerOff { status })?;
    Ok(())
}

/// Writes a line to the control channel, over which tests report to whoever runs the machine.
pub fn control(line: &str) -> Result<(), Error> {
    let mut io = Io {
        bulk: line.as_bytes(),
        ..Io::default()
    };
    rpc::call::<_, Reply>(&NAMES, &Request::Control, &mut io)?;
    Ok(())
}
