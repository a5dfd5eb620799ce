//! The manager's interfaces, and the ports at which it serves them.
use super::start::{load, load_file, Launch, Starting};
use super::{pid_of, processes, Pid, Processes, SUPERVISOR};
use crate::{names, slow};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Deref;
use interface::server::{own_port, Either, Event, Host, Reply, Request, SharedService, Visitor};
use interface::{Answer, Server, Service};
use process::account;
use process::debug::Debugging;
use process::held::Held;
use proto::layout::PRIORITY_PROGRAM;
use proto::Error;
use rt::error_of;
use rt::obj::{Portset, Ref, RefAt};
use services::fs::PATH_ROOM;
use services::process::{
    self as interfaces, DebugStub, ProcessStub, ProcessesStub, Program, SupervisorStub,
};

/// A session at the manager's door.
struct AnyOne {
    processes: &'static Processes,
    /// Set if the programs that this client starts for servers count as one job: the last job that was begun, 0 before
    /// the first.
    one_job: Cell<Option<Pid>>,
}

impl AnyOne {
    /// Begins to start a program. Returns its path, its file if it is loaded from the boot archive, and the new
    /// process.
    fn begin(
        &self,
        owner: &RefAt,
        passed: &[Ref],
        program: &[u8],
    ) -> Result<(String, Option<&'static [u8]>, Starting), Error> {
        let Program { path, start } = Program::from_bytes(program)?;
        if path.len() > PATH_ROOM {
            return Err(Error::NameTooLong);
        }
        let refs: Vec<&RefAt> = passed.iter().map(|reference| &**reference).collect();
        let (file, new) = self.processes.with(|manager| {
            let file = manager.collocated.program(&path);
            let launch = Launch {
                start: &start,
                priority: PRIORITY_PROGRAM,
                ceiling: manager.ceiling,
                quota: 0,
                server: false,
                limits: account::program,
                essential: false,
                driver: None,
                service: None,
                collocated: file.is_some(),
                owner: manager.by_own_port(owner)?,
                job: self.one_job.get(),
                refs: &refs,
            };
            let begun = manager.begin(&launch).map_err(|(error, why)| {
                slow::log(&[&path, ": ", why].concat());
                error
            });
            begun.map(|new| (file, new))
        })?;
        if self.one_job.get().is_some() {
            self.one_job.set(Some(new.job()));
        }
        Ok((path, file, Starting::new(self.processes, new)))
    }
}

impl interfaces::Processes for AnyOne {
    async fn spawn(
        &self,
        owner: Ref,
        passed: Vec<Ref>,
        program: Vec<u8>,
    ) -> Result<(u32, Ref), Error> {
        let (path, file, mut new) = self.begin(&owner, &passed, &program)?;
        // While the file is waited for, nothing is kept but the new process, which counts for its job.
        drop((owner, passed, program));
        let loaded = match file {
            Some(file) => load_file(file, &new),
            None => load(&path, &mut new).await,
        };
        let started = loaded.and_then(|loading| new.finish(loading));
        started.map_err(|(error, why)| {
            slow::log(&[&path, ": ", why].concat());
            error
        })
    }

    fn adopt(&self, owner: &RefAt) -> Result<(u32, Vec<Ref>), Error> {
        self.processes.with(|manager| {
            let owner = manager.by_own_port(owner)?;
            manager.adopt(owner)
        })
    }

    fn verify(&self, control: &RefAt) -> Result<u32, Error> {
        self.processes
            .with(|manager| manager.by_control_port(control))
    }

    fn count_as_one(&self) -> Result<(), Error> {
        self.one_job.set(self.one_job.get().or(Some(0)));
        Ok(())
    }
}

/// The manager's supervisor port.
struct All(&'static Processes);

impl interfaces::Supervisor for All {
    fn next(&self, from: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.0.with(|manager| manager.next(from))?;
        interfaces::encoded(&info, room)
    }

    fn control(&self, pid: u32) -> Result<Ref, Error> {
        self.0.with(|manager| manager.control(pid))
    }
}

type Sessions = Either<
    ProcessesStub<AnyOne>,
    Either<
        ProcessStub<Held<&'static Processes, Arc<Event>>>,
        DebugStub<Debugging<&'static Processes, Arc<Event>>>,
    >,
>;

/// The host of the manager's server.
struct Native(&'static Processes);

impl Host<Sessions> for Native {
    const BYTES: bool = true;

    fn open(&mut self, visitor: &Visitor) -> Result<Sessions, Error> {
        match visitor.door {
            0 if visitor.interface == interfaces::ProcessesClient::ID => {
                let one = AnyOne {
                    processes: self.0,
                    one_job: Cell::new(None),
                };
                Ok(Either::First(ProcessesStub(one).into()))
            }
            alias if visitor.interface != interfaces::ProcessesClient::ID => {
                let pid = pid_of(alias).ok_or(Error::Unsupported)?;
                let (known, event, end) = self.0.with(|manager| {
                    let entry = manager.entry(pid)?;
                    let known = (pid, entry.serial);
                    Ok((known, Arc::clone(&entry.event), Arc::clone(&entry.end)))
                })?;
                Ok(Either::Second(match visitor.interface {
                    interfaces::DebugClient::ID => {
                        let debugging = Debugging::new(self.0, known, event, end);
                        Either::Second(DebugStub(debugging).into()).into()
                    }
                    _ => Either::First(ProcessStub(Held::new(self.0, known, event)).into()).into(),
                }))
            }
            _ => Err(Error::Unsupported),
        }
    }

    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        if alias == SUPERVISOR {
            return SupervisorStub(All(self.0)).answer(request, reply);
        }
        reply.set::<()>(Err(Error::Unsupported));
        Answer::Now
    }
}

/// The manager's server.
pub(crate) struct Serving(Server<Sessions, Native>);

/// The job of a client that opens a session, from its own port.
fn job_of(client: &RefAt) -> Result<u32, Error> {
    names::job_of(processes()?, client)
}

impl Serving {
    /// Makes the server on the calling thread, and references to the manager's two ports: the one for its name, and the
    /// supervisor's.
    pub(crate) fn new(
        portset: Portset,
        processes: &'static Processes,
    ) -> Result<(Self, [Ref; 2]), Error> {
        let own = portset.reference().map_err(error_of)?;
        let supervisor = own_port(*own, SUPERVISOR).map_err(error_of)?;
        let supervisor_ref = supervisor.reference().map_err(error_of)?;
        core::mem::forget(supervisor);
        let mut server = Server::on(portset, Native(processes))?;
        // No reply that the server keeps has bytes: a reply with bytes has references, too, or its request may be
        // repeated.
        const { assert!(!<Sessions as Service>::KEEPS_BYTES) };
        server.knows(job_of, |_| Err(Error::NoMemory));
        let door = server.door().reference().map_err(error_of)?;
        Ok((Serving(server), [door, supervisor_ref]))
    }

    /// Serves requests, on the calling thread.
    pub(crate) fn run(self) -> ! {
        self.0.run()
    }
}
