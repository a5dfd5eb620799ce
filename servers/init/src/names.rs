//! The name service, the system port, and the keeper of native programs.
//!
//! One thread answers every request at once and calls no server but the memory server, so that every other server can
//! always reach it.
use crate::drivers::{self, manifest};
use crate::native::{Manager, Met, Processes};
use crate::{control, slow};
use abi::message::ExceptionMessage;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Deref;
use interface::server::{
    own_port, park, Host, Reply, Request, Resumption, SharedService, Visitor, OWN,
};
use interface::{Answer, Server};
use proto::Error;
use rt::obj::{Port, Portset, Ref, RefAt};
use rt::sync::{Lazy, Mutex};
use services::names::{Names, NamesStub, MAX_JOB_NAMES};
use services::process::Pid;
use services::system::{encoded, System, SystemStub};

/// The own port of a process has this alias, plus the number of the process.
const PROCESS: u64 = OWN;
/// Alias of the system port.
const SYSTEM: u64 = OWN << 1;

/// Most names.
const MAX_NAMES: usize = 4096;
/// Most bytes of a name.
const MAX_NAME: usize = 64;

/// The entry of a registered name.
struct Known {
    port: Ref,
    /// The supervisor port of the server, if it has one.
    supervisor: Option<Ref>,
    /// The process that registered it; 0 for init.
    owner: Pid,
    /// The job that the name is counted for.
    job: Pid,
}

/// A reference to the system port, which init presents as its own port.
static SYSTEM_PORT: Lazy<Ref> = Lazy::new();

/// The own port of a process.
pub(crate) fn process_port(portset: RefAt, pid: Pid) -> Result<Port, abi::Code> {
    own_port(portset, PROCESS | u64::from(pid))
}

/// Makes the system port, and returns a reference to it.
pub(crate) fn system_port(portset: RefAt) -> Result<RefAt, abi::Code> {
    let port = own_port(portset, SYSTEM)?;
    let reference = port.reference()?;
    core::mem::forget(port);
    SYSTEM_PORT.set(reference);
    SYSTEM_PORT
        .get(|| Err(abi::Code::NotFound))
        .map(|port| **port)
}

/// The port that init presents as its own to services that identify their clients.
pub(crate) fn own() -> Result<RefAt, Error> {
    let port = SYSTEM_PORT.get(|| Err(Error::Broken))?;
    Ok(**port)
}

/// The date at which the machine's clock was zero.
pub(crate) static ORIGIN: Lazy<u64> = Lazy::new();

static TABLE: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

/// A copy of the port with this name. `Broken` if its server is being started, for the first time or again.
pub(crate) fn find(name: &str) -> Result<Ref, Error> {
    let table = TABLE.lock();
    let known = table.get(name).ok_or(Error::NotFound)?;
    if is_kept_alive(name) && !is_port(&known.port) {
        return Err(Error::Broken);
    }
    known.port.copy().map_err(rt::error_of)
}

fn is_port(reference: &Ref) -> bool {
    reference.kind() == abi::RefKind::Port
}

/// Whether the server with this name is started again when it has ended.
fn is_kept_alive(name: &str) -> bool {
    manifest().iter().any(|driver| driver.name() == name)
}

/// A copy of the supervisor port of the server with this name. `Broken` if the server is being started.
pub(crate) fn supervisor(name: &str) -> Result<Ref, Error> {
    let table = TABLE.lock();
    let known = table.get(name).ok_or(Error::NotFound)?;
    match &known.supervisor {
        Some(supervisor) => supervisor.copy().map_err(rt::error_of),
        None if is_kept_alive(name) && !is_port(&known.port) => Err(Error::Broken),
        None => Err(Error::NotFound),
    }
}

/// The names that a process has registered, and their ports. A name whose port cannot be copied is left out.
pub(crate) fn names_of(owner: Pid) -> Vec<(String, Ref)> {
    let table = TABLE.lock();
    let known = table.iter().filter(|(_, known)| known.owner == owner);
    known
        .filter_map(|(name, known)| Some((name.clone(), known.port.copy().ok()?)))
        .collect()
}

/// Forgets the names of a process that has ended. The name of a server that is started again stays, so that clients do
/// not take the server for one that the machine does not have.
pub(crate) fn forget(owner: Pid) {
    TABLE.lock().retain(|name, known| {
        let others = known.owner != owner;
        if !others {
            known.owner = 0;
            // The port lives on in memory that is still to be taken apart: the server that takes this one's place must
            // not be refused its name because of that.
            let _ = known.port.clear();
            known.supervisor = None;
        }
        others || is_kept_alive(name)
    });
}

/// Notes that the server with this name is being started. Until it has registered, clients wait for it as for a server
/// that has ended; otherwise a client that looks while the machine starts would conclude that the machine does not have
/// the service.
pub(crate) fn expect(name: &str) -> Result<(), Error> {
    let expected = Known {
        port: Ref::new().map_err(rt::error_of)?,
        supervisor: None,
        owner: 0,
        job: 0,
    };
    TABLE.lock().entry(name.to_string()).or_insert(expected);
    if name == "ext4" {
        rt::fs::expect_disk();
    }
    Ok(())
}

/// Forgets the name of a server that will not be started again.
pub(crate) fn give_up(name: &str) {
    TABLE.lock().remove(name);
}

/// Registers a port under a name. `Exists` if the name is taken; a name whose port is dead is free.
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
    if !is_port(&port) {
        return Err(Error::Invalid);
    }
    let mut table = TABLE.lock();
    if let Some(known) = table.get(name).filter(|known| is_port(&known.port)) {
        // A process that was stopped before it had the reply may ask again.
        return match known.owner == owner && owner != 0 && known.port.same_as(port.at()) {
            true => Ok(()),
            false => Err(Error::Exists),
        };
    }
    table.remove(name);
    let ordinary = !fermata_init::is_reserved(name, manifest());
    if ordinary && table.values().filter(|known| known.job == job).count() >= MAX_JOB_NAMES {
        table.retain(|_, known| known.job != job || is_port(&known.port));
        if table.values().filter(|known| known.job == job).count() >= MAX_JOB_NAMES {
            return Err(Error::Limit);
        }
    }
    if ordinary && table.len() >= MAX_NAMES {
        return Err(Error::Limit);
    }
    // Init itself is a client of these servers.
    let for_init = port.copy().map_err(rt::error_of)?;
    match name {
        "fs" => rt::fs::set_door(for_init, **SYSTEM_PORT.get(|| Err(Error::Broken))?),
        "ext4" => rt::fs::set_disk_door(for_init, **SYSTEM_PORT.get(|| Err(Error::Broken))?),
        "console" => {
            rt::console::set_door(for_init, **SYSTEM_PORT.get(|| Err(Error::Broken))?);
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

/// The job of the client with this own port; 0 for init and servers.
pub(crate) fn job_of(processes: &Processes, own: &RefAt) -> Result<Pid, Error> {
    let system = SYSTEM_PORT.get(|| Err(Error::Broken))?;
    match own.same_as(system.at()) {
        true => Ok(0),
        false => processes.with(|manager| manager.job_at(own)),
    }
}

/// The requests of a process at its own port.
struct Own<'a> {
    pid: Pid,
    processes: &'a Processes,
}

impl Own<'_> {
    fn offer(&self, name: &str, port: &RefAt, control: Option<&RefAt>) -> Result<(), Error> {
        let copy = |port: &RefAt| port.copy().map_err(rt::error_of);
        let (port, control) = (copy(port)?, control.map(copy).transpose()?);
        // The process cannot end while the manager is locked.
        self.processes.with(|manager| {
            let job = manager.may_register(self.pid, name)?;
            register(name, port, control, self.pid, job)
        })
    }
}

impl Names for Own<'_> {
    fn exit(&self, status: u8) -> Result<(), Error> {
        self.processes
            .with(|manager| manager.exit(self.pid, status))
    }

    fn lookup(&self, name: &str) -> Result<Ref, Error> {
        find(name)
    }

    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error> {
        self.offer(name, port, None)
    }

    fn register_with(&self, port: &RefAt, control: &RefAt, name: &str) -> Result<(), Error> {
        self.offer(name, port, Some(control))
    }

    fn control(&self, server: &str) -> Result<Ref, Error> {
        let may = |manager: &mut Manager| manager.may_control(self.pid, server);
        match self.processes.with(may) {
            true => supervisor(server),
            false => Err(Error::Denied),
        }
    }

    fn job(&self, client: &RefAt) -> Result<u32, Error> {
        job_of(self.processes, client)
    }

    fn date(&self) -> Result<u64, Error> {
        let origin = ORIGIN.get(|| Err(Error::NotFound))?;
        Ok(origin.saturating_add(rt::time::now()))
    }
}

/// A session at the system port.
struct Power(&'static Processes);

impl System for Power {
    fn power_off(&self, status: u8) -> Result<(), Error> {
        slow::power_off(status);
        Ok(())
    }

    fn report(&self, line: &[u8]) -> Result<(), Error> {
        control::write(&[fermata_init::line(line).as_bytes(), b"\n"]);
        Ok(())
    }

    fn control(&self, server: &str) -> Result<Ref, Error> {
        supervisor(server)
    }

    fn register(&self, port: &RefAt, name: &str) -> Result<(), Error> {
        let port = port.copy().map_err(rt::error_of)?;
        if !is_port(&port) {
            return Err(Error::Invalid);
        }
        TABLE.lock().remove(name);
        register(name, port, None, 0, 0)
    }

    fn driver(&self, number: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let number = usize::try_from(number).map_err(|_| Error::NotFound)?;
        let pid = self.0.with(|manager| manager.driver(number));
        encoded(&drivers::told(number, pid)?, room)
    }

    fn objects(&self, pid: u32, from: u64, room: usize) -> Result<(u64, Vec<u8>), Error> {
        let (next, objects) = self.0.with(|manager| manager.objects(pid, from))?;
        Ok((next, encoded(&objects, room)?))
    }

    fn waits(
        &self,
        pid: u32,
        other: u32,
        at: u64,
        room: usize,
    ) -> Result<(u32, u64, Vec<u8>), Error> {
        let found = self.0.with(|manager| manager.waits(pid, (other, at)))?;
        Ok((found.next.0, found.next.1, encoded(&found.list, room)?))
    }

    fn links(
        &self,
        pid: u32,
        from: u64,
        other: u32,
        at: u64,
        room: usize,
    ) -> Result<(u32, u64, Vec<u8>), Error> {
        let found = self
            .0
            .with(|manager| manager.links(pid, from, (other, at)))?;
        Ok((found.next.0, found.next.1, encoded(&found.list, room)?))
    }
}

/// The host of this thread's server.
struct Init(&'static Processes);

/// The process whose own port has this alias.
fn pid_of(alias: u64) -> Option<Pid> {
    Pid::try_from(alias.checked_sub(PROCESS)?).ok()
}

impl Host<SystemStub<Power>> for Init {
    const BYTES: bool = true;
    const REFS: usize = NamesStub::<Own<'_>>::REFS;

    fn open(&mut self, visitor: &Visitor) -> Result<SystemStub<Power>, Error> {
        match visitor.door {
            SYSTEM => Ok(SystemStub(Power(self.0))),
            _ => Err(Error::Denied),
        }
    }

    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        match pid_of(alias) {
            Some(pid) => NamesStub(Own {
                pid,
                processes: self.0,
            })
            .answer(request, reply),
            None => {
                reply.set::<()>(Err(Error::Unsupported));
                Answer::Now
            }
        }
    }

    fn exception(&mut self, alias: u64, message: &ExceptionMessage, resumption: &mut Resumption) {
        let Some(pid) = pid_of(alias) else {
            return park();
        };
        match self.0.with(|manager| manager.exception(pid, message)) {
            Met::GoesOn(registers) => resumption.all(&registers),
            Met::Parked(line) => {
                park();
                if let Some(line) = line {
                    slow::say(line);
                }
            }
        }
    }
}

/// Serves requests, on the calling thread.
pub(crate) fn run(portset: Portset, processes: &'static Processes) -> Result<(), Error> {
    Server::on(portset, Init(processes))?.run()
}
