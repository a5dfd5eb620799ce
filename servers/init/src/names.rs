//! The name service, and the keeper of native programs.
//!
//! This thread answers everything at once and calls no server but the memory server, so that every
//! other server can always reach it.
use crate::native::Manager;
use crate::{control, slow};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proto::names::{self, MAX_JOB_NAMES};
use proto::process::Pid;
use proto::{system, Error};
use rt::obj::{Ref, RefAt};
use rt::server::{decode, Event, Server};
use rt::sync::{Lazy, Mutex};

/// Alias of the system port. Processes have their numbers as aliases, from 1 on.
pub(crate) const SYSTEM: u64 = u64::MAX;

/// Most names.
const MAX_NAMES: usize = 4096;
/// Most bytes of a name.
const MAX_NAME: usize = 64;

/// An entry of the table of names.
struct Known {
    port: Ref,
    /// The supervisor port of the server, if it has one.
    supervisor: Option<Ref>,
    /// Who has registered it; 0 for init.
    owner: Pid,
    /// The job that the name is counted for.
    job: Pid,
}

/// What init presents as its own port.
static SYSTEM_PORT: Lazy<RefAt> = Lazy::new();

static TABLE: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

/// A copy of what is known by the name.
pub(crate) fn find(name: &str) -> Result<Ref, Error> {
    let table = TABLE.lock();
    let known = table.get(name).ok_or(Error::NotFound)?;
    known.port.copy().map_err(rt::error_of)
}

/// A copy of the port by which the server of that name is controlled.
pub(crate) fn supervisor(name: &str) -> Result<Ref, Error> {
    let table = TABLE.lock();
    let known = table.get(name).ok_or(Error::NotFound)?;
    let supervisor = known.supervisor.as_ref().ok_or(Error::NotFound)?;
    supervisor.copy().map_err(rt::error_of)
}

/// Whether a process has registered names.
pub(crate) fn has_names(owner: Pid) -> bool {
    TABLE.lock().values().any(|known| known.owner == owner)
}

/// The names that a process has registered for a port.
pub(crate) fn names_of(owner: Pid, port: RefAt) -> Vec<String> {
    let table = TABLE.lock();
    let known = table
        .iter()
        .filter(|(_, known)| known.owner == owner && known.port.same_as(port));
    known.map(|(name, _)| name.clone()).collect()
}

/// Forgets the names of a process, which has ended.
pub(crate) fn forget(owner: Pid) {
    TABLE.lock().retain(|_, known| known.owner != owner);
}

/// Registers a port under a name, unless the name is taken. A name whose port is dead is free.
pub(crate) fn register(
    name: &str,
    port: Ref,
    supervisor: Option<Ref>,
    owner: Pid,
    job: Pid,
) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    let is_port = |reference: &Ref| reference.kind() == abi::RefKind::Port;
    if !is_port(&port) {
        return Err(Error::Invalid);
    }
    let mut table = TABLE.lock();
    if table.get(name).is_some_and(|known| is_port(&known.port)) {
        return Err(Error::Exists);
    }
    table.remove(name);
    let ordinary = !names::RESERVED.contains(&name);
    if ordinary && table.values().filter(|known| known.job == job).count() >= MAX_JOB_NAMES {
        table.retain(|_, known| known.job != job || is_port(&known.port));
        if table.values().filter(|known| known.job == job).count() >= MAX_JOB_NAMES {
            return Err(Error::Limit);
        }
    }
    if ordinary && table.len() >= MAX_NAMES {
        return Err(Error::Limit);
    }
    // Init is a client of these two servers itself.
    let for_init = port.copy().map_err(rt::error_of)?;
    match name {
        "fs" => rt::fs::set_door(for_init, *SYSTEM_PORT.get(|| Err(Error::Broken))?),
        "console" => {
            rt::console::set_door(for_init, *SYSTEM_PORT.get(|| Err(Error::Broken))?);
            control::write(&[b"ready\n"]);
        }
        _ => {}
    }
    let known = Known {
        port,
        supervisor,
        owner,
        job,
    };
    table.insert(name.to_string(), known);
    Ok(())
}

/// What is answered: also a reference.
type Reply = (names::Reply, Option<Ref>);
const DONE: Reply = (names::Reply::Done, None);

fn found(port: Ref) -> Reply {
    (names::Reply::Done, Some(port))
}

/// Answers a request from a process's own port; `None`: it ends, without an answer.
fn serve(
    manager: &Mutex<Manager>,
    pid: Pid,
    request: names::Request,
    refs: Vec<Ref>,
) -> Option<Result<Reply, Error>> {
    Some(match request {
        names::Request::Lookup { name } => find(&name).map(found),
        names::Request::Job => job(manager, refs.first()).map(|job| (names::Reply::Job(job), None)),
        names::Request::Register { name } => {
            // While the manager is locked the process cannot end.
            let manager = manager.lock();
            let mut refs = refs.into_iter();
            manager.may_register(pid, &name).and_then(|job| {
                let port = refs.next().ok_or(Error::Invalid)?;
                register(&name, port, refs.next(), pid, job).map(|()| DONE)
            })
        }
        names::Request::Exit(status) => {
            manager.lock().exit(pid, status);
            return None;
        }
    })
}

/// The job of the client whose own port this is.
fn job(manager: &Mutex<Manager>, own: Option<&Ref>) -> Result<Pid, Error> {
    let system = SYSTEM_PORT.get(|| Err(Error::Broken))?;
    match own {
        Some(own) if own.same_as(*system) => Ok(0),
        own => manager.lock().job_at(own),
    }
}

/// Answers a request to the system port.
fn serve_system(request: system::Request, bulk: &[u8], refs: Vec<Ref>) -> Result<Reply, Error> {
    match request {
        system::Request::PowerOff { status } => slow::power_off(status),
        system::Request::Report => {
            control::write(&[fermata_init::line(bulk).as_bytes(), b"\n"]);
        }
        system::Request::Supervisor { manager } => return supervisor(&manager).map(found),
        system::Request::Register { name } => {
            let mut refs = refs.into_iter();
            let port = refs.next().ok_or(Error::Invalid)?;
            TABLE.lock().remove(&name);
            register(&name, port, refs.next(), 0, 0)?;
        }
    }
    Ok(DONE)
}

/// What was received, without borrows of the server.
enum Came {
    /// A request, with its reply.
    Answer(Result<Reply, Error>),
    Exception {
        pid: u64,
        message: abi::message::ExceptionMessage,
    },
    Other,
}

/// The thread.
pub(crate) fn run(mut server: Server, manager: &'static Mutex<Manager>, system: RefAt) -> ! {
    SYSTEM_PORT.set(system);
    loop {
        let came = match server.next(None) {
            Event::Request {
                alias: SYSTEM,
                header,
                bulk,
                refs,
            } => Came::Answer(decode(header).and_then(|request| serve_system(request, bulk, refs))),
            Event::Request {
                alias,
                header,
                refs,
                ..
            } => match decode(header) {
                Ok(request) => {
                    serve(manager, alias as Pid, request, refs).map_or(Came::Other, Came::Answer)
                }
                Err(error) => Came::Answer(Err(error)),
            },
            Event::Exception { alias, message } => Came::Exception {
                pid: alias,
                message,
            },
            _ => Came::Other,
        };
        match came {
            Came::Answer(Ok((reply, port))) => {
                let refs: Vec<&RefAt> = port.iter().map(|port| &**port).collect();
                server.reply(&Ok(reply), &[], &refs);
            }
            Came::Answer(Err(error)) => server.reply::<names::Reply>(&Err(error), &[], &[]),
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
