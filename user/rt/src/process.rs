//! Client of the process managers, and the end of one's own process.
use crate::obj::{Ref, RefAt};
use crate::rpc::{self, Io};
use crate::start::MANAGER;
use alloc::string::ToString;
use alloc::vec::Vec;
pub use proto::process::{Info, Pid, Start, Status, Stdio, Thread};
use proto::process::{Reply, Request};
use proto::{Error, MAX_BULK};

/// Ends the process with this status.
pub fn exit(status: u8) -> ! {
    loop {
        // There is no reply: the process ends while it waits for one.
        let _ = rpc::ask::<_, Reply>(&MANAGER, &Request::Exit(status));
        crate::time::sleep(10_000_000);
    }
}

/// A manager of processes: `native` or `linux`.
#[derive(Debug)]
pub struct Client {
    port: Ref,
}

/// What [`Client::freeze`] gives.
#[derive(Debug)]
pub struct Frozen {
    /// The process's name.
    pub name: alloc::string::String,
    /// The manager's part of the state, whole.
    pub part: Vec<u8>,
    /// The process's memory region.
    pub memory: Ref,
    /// The process's control region.
    pub control: Ref,
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

    /// The manager's port.
    #[must_use]
    pub const fn port(&self) -> &Ref {
        &self.port
    }

    fn done(&self, request: &Request, refs: &[&RefAt]) -> Result<(), Error> {
        let mut io = Io {
            refs,
            ..Io::default()
        };
        match rpc::call(&self.port, request, &mut io)? {
            Reply::Done => Ok(()),
            _ => Err(Error::Broken),
        }
    }

    fn status_of(&self, request: &Request) -> Result<Status, Error> {
        match rpc::ask(&self.port, request)? {
            Reply::Status(status) => Ok(status),
            _ => Err(Error::Broken),
        }
    }

    /// Starts a program; `refs` are passed on to it (by the manager `native`).
    pub fn spawn(&self, path: &str, start: &Start, refs: &[&RefAt]) -> Result<Pid, Error> {
        let request = Request::Spawn {
            path: path.to_string(),
            start: start.clone(),
        };
        let mut io = Io {
            refs,
            ..Io::default()
        };
        match rpc::call(&self.port, &request, &mut io)? {
            Reply::Pid(pid) => Ok(pid),
            _ => Err(Error::Broken),
        }
    }

    /// From now on the thread is interrupted whenever a process changes its status.
    pub fn watch(&self, thread: &RefAt) -> Result<(), Error> {
        self.done(&Request::Watch, &[thread])
    }

    /// What a process is doing.
    pub fn status(&self, pid: Pid) -> Result<Status, Error> {
        self.status_of(&Request::Status(pid))
    }

    /// Forgets an ended process: its status.
    pub fn reap(&self, pid: Pid) -> Result<Status, Error> {
        self.status_of(&Request::Reap(pid))
    }

    /// Ends it.
    pub fn kill(&self, pid: Pid) -> Result<(), Error> {
        self.done(&Request::Kill(pid), &[])
    }

    /// Stops all its threads.
    pub fn stop(&self, pid: Pid) -> Result<(), Error> {
        self.done(&Request::Stop(pid), &[])
    }

    /// Undoes one `stop`.
    pub fn resume(&self, pid: Pid) -> Result<(), Error> {
        self.done(&Request::Continue(pid), &[])
    }

    /// All processes.
    pub fn list(&self) -> Result<Vec<Info>, Error> {
        match rpc::ask(&self.port, &Request::List)? {
            Reply::List(list) => Ok(list),
            _ => Err(Error::Broken),
        }
    }

    /// Freezes it and reads the manager's part of its state.
    pub fn freeze(&self, pid: Pid) -> Result<Frozen, Error> {
        let memory = Ref::new().map_err(crate::error_of)?;
        let control = Ref::new().map_err(crate::error_of)?;
        let mut bulk = alloc::vec![0; MAX_BULK];
        let mut io = Io {
            bulk_in: &mut bulk,
            refs_in: &[&memory, &control],
            ..Io::default()
        };
        let Reply::Frozen { length, name } = rpc::call(&self.port, &Request::Freeze(pid), &mut io)?
        else {
            return Err(Error::Broken);
        };
        let (first, refs) = (io.bulk_len, io.refs_len);
        let mut part = bulk[..first].to_vec();
        let rest = self.rest_of_part(pid, length, &mut part, &mut bulk);
        if let (Err(error), _) | (Ok(()), Err(error)) = (
            rest,
            if refs == 2 {
                Ok(())
            } else {
                Err(Error::Broken)
            },
        ) {
            let _ = self.thaw(pid);
            return Err(error);
        }
        Ok(Frozen {
            name,
            part,
            memory,
            control,
        })
    }

    fn rest_of_part(
        &self,
        pid: Pid,
        length: u64,
        part: &mut Vec<u8>,
        bulk: &mut [u8],
    ) -> Result<(), Error> {
        while (part.len() as u64) < length {
            let mut io = Io {
                bulk_in: bulk,
                ..Io::default()
            };
            let request = Request::Part(pid, part.len() as u64);
            match rpc::call(&self.port, &request, &mut io)? {
                Reply::Done if io.bulk_len > 0 => {
                    let length = io.bulk_len;
                    part.extend_from_slice(&bulk[..length]);
                }
                _ => return Err(Error::Broken),
            }
        }
        Ok(())
    }

    /// Undoes one `freeze`.
    pub fn thaw(&self, pid: Pid) -> Result<(), Error> {
        self.done(&Request::Thaw(pid), &[])
    }

    /// Hands a rebuilt process over. `refs`: memory region and control port, control region and
    /// control port. The number, and the port to set as the keeper of the space.
    pub fn adopt(
        &self,
        part: &[u8],
        clock_offset: u64,
        refs: [&RefAt; 4],
    ) -> Result<(Pid, Ref), Error> {
        let keeper = Ref::new().map_err(crate::error_of)?;
        let first = &part[..part.len().min(MAX_BULK)];
        let mut io = Io {
            bulk: first,
            refs: &refs,
            refs_in: &[&keeper],
            ..Io::default()
        };
        let request = Request::Adopt {
            length: part.len() as u64,
            clock_offset,
        };
        let Reply::Pid(pid) = rpc::call(&self.port, &request, &mut io)? else {
            return Err(Error::Broken);
        };
        if io.refs_len != 1 {
            return Err(Error::Broken);
        }
        let mut offset = first.len();
        while offset < part.len() {
            let next = &part[offset..part.len().min(offset + MAX_BULK)];
            let mut io = Io {
                bulk: next,
                ..Io::default()
            };
            match rpc::call(&self.port, &Request::AdoptPart(pid, offset as u64), &mut io)? {
                Reply::Done => offset += next.len(),
                _ => return Err(Error::Broken),
            }
        }
        Ok((pid, keeper))
    }
}
