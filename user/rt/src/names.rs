//! Client of the name service.
use crate::obj::{Port, Ref, RefAt};
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

/// Makes the port known by that name, as long as this process lives.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    offer(name, &[&reference])
}

/// As [`register`], for a server that has a port by which it is controlled: that goes to init.
pub fn register_with(name: &str, port: &RefAt, control: &RefAt) -> Result<(), Error> {
    offer(name, &[port, control])
}

/// For a server: the job of the client whose own port at init this is ([`Request::Job`]).
pub fn job_of(client: &RefAt) -> Result<proto::process::Pid, Error> {
    let mut io = Io {
        refs: &[client],
        ..Io::default()
    };
    match rpc::call(&NAMES, &Request::Job, &mut io)? {
        Reply::Job(job) => Ok(job),
        Reply::Done => Err(Error::Broken),
    }
}

fn offer(name: &str, refs: &[&RefAt]) -> Result<(), Error> {
    let mut io = Io {
        refs,
        ..Io::default()
    };
    let name = name.to_string();
    rpc::call::<_, Reply>(&NAMES, &Request::Register { name }, &mut io).map(|_| ())
}
