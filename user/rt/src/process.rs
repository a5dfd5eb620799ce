//! Client of the process managers, and the end of one's own process.
//!
//! A [`Client`] starts programs; what comes back is a [`Process`], the power over it.
use crate::obj::{Ref, RefAt};
use crate::rpc::{self, Io};
use crate::start::NAMES;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proto::process::{Control, Reply, Request, Supervise};
pub use proto::process::{Info, Pid, Start, Status, Stdio, Thread};
use proto::{Error, MAX_BULK};
use serde::Serialize;

/// Ends the process with this status.
pub fn exit(status: u8) -> ! {
    loop {
        // There is no reply: the process ends while it waits for one.
        let request = proto::names::Request::Exit(status);
        let _ = rpc::ask::<_, proto::names::Reply>(&NAMES, &request);
        crate::time::sleep(10_000_000);
    }
}

/// A request that is answered by `Done`.
fn done<Q: Serialize>(port: &RefAt, request: &Q, io: &mut Io<'_>) -> Result<(), Error> {
    match rpc::call(port, request, io)? {
        Reply::Done => Ok(()),
        _ => Err(Error::Broken),
    }
}

/// A request that is answered by a number and a control port.
fn process<Q: Serialize>(port: &RefAt, request: &Q, refs: &[&RefAt]) -> Result<Process, Error> {
    let control = reference()?;
    let mut io = Io {
        refs,
        refs_in: &[&control],
        ..Io::default()
    };
    match rpc::call(port, request, &mut io)? {
        Reply::Pid(pid) if io.refs_len == 1 => Ok(Process { pid, port: control }),
        _ => Err(Error::Broken),
    }
}

fn reference() -> Result<Ref, Error> {
    Ref::new().map_err(crate::error_of)
}

/// A manager of processes: `native` or `linux`.
#[derive(Debug)]
pub struct Client {
    port: Ref,
}

impl Client {
    /// The manager of that name.
    pub fn new(manager: &str) -> Result<Self, Error> {
        Ok(Client {
            port: crate::names::lookup(manager)?,
        })
    }

    /// The manager behind a port.
    #[must_use]
    pub const fn at(port: Ref) -> Self {
        Client { port }
    }

    /// Starts a program; `refs` are passed on to it (by the manager `native`).
    pub fn spawn(&self, path: &str, start: &Start, refs: &[&RefAt]) -> Result<Process, Error> {
        self.spawn_for(&NAMES, path, start, refs)
    }

    /// As [`Client::spawn`], for the job of the process whose port at init is `owner`.
    pub fn spawn_for(
        &self,
        owner: &RefAt,
        path: &str,
        start: &Start,
        refs: &[&RefAt],
    ) -> Result<Process, Error> {
        let request = Request::Spawn {
            path: path.to_string(),
            start: start.clone(),
        };
        let mut all = alloc::vec![owner];
        all.extend_from_slice(refs);
        process(&self.port, &request, &all)
    }

    /// A process to be rebuilt, for the process whose port at init is `owner`.
    pub fn adopt(&self, owner: &RefAt) -> Result<Adopted, Error> {
        let refs = [reference()?, reference()?, reference()?, reference()?];
        let account = reference()?;
        let mut io = Io {
            refs: &[owner],
            refs_in: &[&refs[0], &refs[1], &refs[2], &refs[3], &account],
            ..Io::default()
        };
        let Reply::Pid(pid) = rpc::call(&self.port, &Request::Adopt, &mut io)? else {
            return Err(Error::Broken);
        };
        if io.refs_len < refs.len() {
            return Err(Error::Broken);
        }
        let [port, keeper, memory, control] = refs;
        Ok(Adopted {
            process: Process { pid, port },
            keeper,
            memory,
            control,
            account,
        })
    }

    /// Whether this is the control port of a process of this manager; if so it can be called without
    /// fear that nobody answers.
    pub fn verify(&self, control: &RefAt) -> Result<Process, Error> {
        let port = control.copy().map_err(crate::error_of)?;
        let mut io = Io {
            refs: &[&port],
            ..Io::default()
        };
        match rpc::call(&self.port, &Request::Verify, &mut io)? {
            Reply::Pid(pid) => Ok(Process { pid, port }),
            _ => Err(Error::Broken),
        }
    }

    /// For a manager: the job for which a process counts whose port at init this is.
    pub fn job(&self, owner: &RefAt) -> Result<Pid, Error> {
        let mut io = Io {
            refs: &[owner],
            ..Io::default()
        };
        match rpc::call(&self.port, &Request::Job, &mut io)? {
            Reply::Pid(pid) => Ok(pid),
            _ => Err(Error::Broken),
        }
    }
}

/// A manager's processes, all of them: for whoever has the system port.
#[derive(Debug)]
pub struct Supervisor {
    port: Ref,
}

impl Supervisor {
    /// Behind a supervisor port.
    #[must_use]
    pub const fn at(port: Ref) -> Self {
        Supervisor { port }
    }

    /// All processes, by their numbers. Each is asked about by itself, as it is then.
    pub fn list(&self) -> Result<Vec<Info>, Error> {
        let mut list = Vec::new();
        let mut next = 0;
        loop {
            match rpc::ask(&self.port, &Supervise::Next(next)) {
                Ok(Reply::Info(info)) if info.pid >= next => {
                    next = info.pid.saturating_add(1);
                    list.push(info);
                }
                Ok(_) => return Err(Error::Broken),
                Err(Error::NotFound) => return Ok(list),
                Err(error) => return Err(error),
            }
        }
    }

    /// The process with this number.
    pub fn process(&self, pid: Pid) -> Result<Process, Error> {
        process(&self.port, &Supervise::Control(pid), &[])
    }
}

/// What [`Process::freeze`] gives.
#[derive(Debug)]
pub struct Frozen {
    /// The process's name.
    pub name: String,
    /// The manager's part of the state, whole.
    pub part: Vec<u8>,
    /// The process's memory region.
    pub memory: Ref,
    /// The process's control region.
    pub control: Ref,
    /// The process's memory account, of a process that knows it.
    pub account: Ref,
}

/// What [`Client::adopt`] gives.
#[derive(Debug)]
pub struct Adopted {
    /// The process.
    pub process: Process,
    /// The port to set as the keeper of its space.
    pub keeper: Ref,
    /// Its memory region.
    pub memory: Ref,
    /// Its control region.
    pub control: Ref,
    /// Its memory account, of a process that will know it.
    pub account: Ref,
}

/// A process, and the power over it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    port: Ref,
}

impl Process {
    /// Its number, for people.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Its control port, to be passed on.
    #[must_use]
    pub const fn port(&self) -> &Ref {
        &self.port
    }

    /// The process with this number behind a control port.
    #[must_use]
    pub const fn at(pid: Pid, port: Ref) -> Self {
        Process { pid, port }
    }

    fn done(&self, request: Control) -> Result<(), Error> {
        done(&self.port, &request, &mut Io::default())
    }

    fn status_of(&self, request: Control) -> Result<Status, Error> {
        match rpc::ask(&self.port, &request)? {
            Reply::Status(status) => Ok(status),
            _ => Err(Error::Broken),
        }
    }

    /// From now on the thread is interrupted whenever the process changes its status.
    pub fn watch(&self, thread: &RefAt) -> Result<(), Error> {
        let mut io = Io {
            refs: &[thread],
            ..Io::default()
        };
        done(&self.port, &Control::Watch, &mut io)
    }

    /// What it is doing.
    pub fn status(&self) -> Result<Status, Error> {
        self.status_of(Control::Status)
    }

    /// Forgets it, which has ended: its status.
    pub fn reap(&self) -> Result<Status, Error> {
        self.status_of(Control::Reap)
    }

    /// Ends it.
    pub fn kill(&self) -> Result<(), Error> {
        self.done(Control::Kill)
    }

    /// Stops all its threads.
    pub fn stop(&self) -> Result<(), Error> {
        self.done(Control::Stop)
    }

    /// Undoes one `stop`.
    pub fn resume(&self) -> Result<(), Error> {
        self.done(Control::Continue)
    }

    /// Name, threads, memory.
    pub fn info(&self) -> Result<Info, Error> {
        match rpc::ask(&self.port, &Control::Info)? {
            Reply::Info(info) => Ok(info),
            _ => Err(Error::Broken),
        }
    }

    /// Freezes it and reads the manager's part of its state.
    pub fn freeze(&self) -> Result<Frozen, Error> {
        let (memory, control) = (reference()?, reference()?);
        let account = reference()?;
        let mut bulk = alloc::vec![0; MAX_BULK];
        let mut io = Io {
            bulk_in: &mut bulk,
            refs_in: &[&memory, &control, &account],
            ..Io::default()
        };
        let Reply::Frozen { length, name } = rpc::call(&self.port, &Control::Freeze, &mut io)?
        else {
            return Err(Error::Broken);
        };
        let (first, refs) = (io.bulk_len, io.refs_len);
        let mut part = bulk[..first].to_vec();
        let rest = self.rest_of_part(length, &mut part, &mut bulk);
        let whole = if refs >= 2 { rest } else { Err(Error::Broken) };
        if let Err(error) = whole {
            let _ = self.thaw();
            return Err(error);
        }
        Ok(Frozen {
            name,
            part,
            memory,
            control,
            account,
        })
    }

    fn rest_of_part(&self, length: u64, part: &mut Vec<u8>, bulk: &mut [u8]) -> Result<(), Error> {
        while (part.len() as u64) < length {
            let mut io = Io {
                bulk_in: bulk,
                ..Io::default()
            };
            done(&self.port, &Control::Part(part.len() as u64), &mut io)?;
            if io.bulk_len == 0 {
                return Err(Error::Broken);
            }
            let length = io.bulk_len;
            part.extend_from_slice(&bulk[..length]);
        }
        Ok(())
    }

    /// Undoes one `freeze`.
    pub fn thaw(&self) -> Result<(), Error> {
        self.done(Control::Thaw)
    }

    /// Makes pages of a process present that is being rebuilt, at most `MAX_POPULATE` bytes of them.
    pub fn populate(&self, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        self.done(Control::Populate {
            control,
            offset,
            size,
        })
    }

    /// Gives the manager its part of a process that is being rebuilt.
    pub fn rebuild(&self, part: &[u8], clock_offset: u64) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let piece = &part[offset..part.len().min(offset + MAX_BULK)];
            let mut io = Io {
                bulk: piece,
                ..Io::default()
            };
            let request = Control::Rebuild {
                offset: offset as u64,
                length: part.len() as u64,
                clock_offset,
            };
            done(&self.port, &request, &mut io)?;
            offset += piece.len();
            if offset == part.len() {
                return Ok(());
            }
        }
    }
}
