//! The name service, and the keeper of native programs.
//!
//! This thread answers everything at once and calls no server but the memory server, so that every
//! other server can always reach it.
use crate::native::Manager;
use crate::{control, slow};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use proto::names::{Reply, Request};
use proto::process;
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::server::{decode, Event, Server};
use rt::sync::Mutex;

/// Alias of the name service's port. Processes have their numbers as aliases, from 1 on.
pub(crate) const NAMES: u64 = 0;

/// Most names.
const MAX_NAMES: usize = 1024;
/// Most bytes of a name.
const MAX_NAME: usize = 64;

static TABLE: Mutex<BTreeMap<String, Ref>> = Mutex::new(BTreeMap::new());

/// A copy of what is known by the name.
pub(crate) fn find(name: &str) -> Result<Ref, Error> {
    let table = TABLE.lock();
    let port = table.get(name).ok_or(Error::NotFound)?;
    port.copy().map_err(rt::error_of)
}

/// The names of a port.
pub(crate) fn names_of(port: RefAt) -> Vec<String> {
    let table = TABLE.lock();
    let known = table.iter().filter(|(_, known)| known.same_as(port));
    known.map(|(name, _)| name.clone()).collect()
}

/// Makes something known. A name whose port is dead is free.
pub(crate) fn register(name: String, port: Ref) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    if port.kind() != abi::RefKind::Port {
        return Err(Error::Invalid);
    }
    let mut table = TABLE.lock();
    if table
        .get(&name)
        .is_some_and(|known| known.kind() == abi::RefKind::Port)
    {
        return Err(Error::Exists);
    }
    if table.len() >= MAX_NAMES {
        table.retain(|_, port| port.kind() == abi::RefKind::Port);
        if table.len() >= MAX_NAMES {
            return Err(Error::NoMemory);
        }
    }
    // Init is a client of these two itself.
    let for_init = port.copy().map_err(rt::error_of)?;
    match name.as_str() {
        "fs" => rt::fs::set_port(for_init),
        "console" => {
            rt::console::set_port(for_init);
            control::write(&[b"ready\n"]);
        }
        _ => {}
    }
    table.insert(name, port);
    Ok(())
}

/// Answers a request to the name service.
fn serve(request: Request, bulk: &[u8], refs: Vec<Ref>) -> Result<Option<Ref>, Error> {
    match request {
        Request::Lookup { name } => return find(&name).map(Some),
        Request::Register { name } => {
            register(name, refs.into_iter().next().ok_or(Error::Invalid)?)?;
        }
        Request::PowerOff { status } => slow::power_off(status),
        Request::Control => {
            control::write(&[fermata_init::line(bulk).as_bytes(), b"\n"]);
        }
    }
    Ok(None)
}

/// What came, without borrows of the server.
enum Came {
    Names(Result<Option<Ref>, Error>),
    Exit {
        pid: u64,
        status: u8,
    },
    Exception {
        pid: u64,
        message: abi::message::ExceptionMessage,
    },
    Other,
}

/// The thread.
pub(crate) fn run(mut server: Server, manager: &'static Mutex<Manager>) -> ! {
    loop {
        let came = match server.next(None) {
            Event::Request {
                alias: NAMES,
                header,
                bulk,
                refs,
            } => Came::Names(decode(header).and_then(|request| serve(request, bulk, refs))),
            Event::Request { alias, header, .. } => match decode(header) {
                Ok(process::Request::Exit(status)) => Came::Exit { pid: alias, status },
                _ => Came::Other,
            },
            Event::Exception { alias, message } => Came::Exception {
                pid: alias,
                message,
            },
            _ => Came::Other,
        };
        match came {
            Came::Names(Ok(port)) => {
                let refs: Vec<&RefAt> = port.iter().map(|port| &**port).collect();
                server.reply(&Ok(Reply::Done), &[], &refs);
            }
            Came::Names(Err(error)) => server.reply::<Reply>(&Err(error), &[], &[]),
            Came::Exit { pid, status } => {
                server.drop_client();
                manager.lock().exit(pid, status);
            }
            Came::Exception { pid, message } => {
                server.release_exception();
                if let Some(line) = manager.lock().exception(pid, &message) {
                    slow::say(line);
                }
            }
            Came::Other => server.drop_client(),
        }
    }
}
