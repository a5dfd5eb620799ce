//! Client of the name service.
use crate::obj::{Port, Ref, RefAt};
use crate::start::names;
use core::convert::Infallible;
use interface::server::{Host, Service};
use interface::Server;
use proto::Error;
use services::names::NamesClient;

/// The program's own port at init.
pub(crate) fn init() -> NamesClient {
    NamesClient::at(names())
}

/// A reference to the port of that name. Errors: `NotFound` if there is none; `Broken` if its server is being started,
/// for the first time or again.
pub fn lookup(name: &str) -> Result<Ref, Error> {
    init().lookup(name)
}

/// As [`lookup`], but waits until the name is there or the deadline passes.
pub fn wait_for(name: &str, deadline: u64) -> Result<Ref, Error> {
    loop {
        match lookup(name) {
            Err(Error::NotFound | Error::Broken) if crate::time::now() < deadline => {
                crate::time::sleep_until((crate::time::now() + 1_000_000).min(deadline));
            }
            result => return result,
        }
    }
}

/// Makes the port known by that name, as long as this process lives.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    init().register(&reference, name)
}

/// As [`register`], for a server with a control port, which goes to init.
pub fn register_with(name: &str, port: &RefAt, control: &RefAt) -> Result<(), Error> {
    init().register_with(port, control, name)
}

/// Serves for ever under that name: at door 0, which clients find by the name, and at door 1, by which the server is
/// controlled. Clients are known by their jobs.
pub fn serve<S: Service, H: Host<S>>(name: &str, host: H) -> Result<Infallible, Error> {
    let mut server = Server::new(host)?;
    server.knows(job_of, crate::heap::want);
    let (_, control) = server.add_door()?;
    let door = server.door().reference().map_err(crate::error_of)?;
    register_with(name, &door, &control)?;
    server.run()
}

/// For a server: the control port of another server that it uses according to the boot manifest.
pub fn control(server: &str) -> Result<Ref, Error> {
    init().control(server)
}

/// For a server: the job of the client whose own port at init this is; 0 for servers, the shell and init.
pub fn job_of(client: &RefAt) -> Result<u32, Error> {
    init().job(client)
}
