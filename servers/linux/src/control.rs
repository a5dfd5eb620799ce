//! What others ask of the personality: the interfaces of a manager of processes, and the ports where it is asked.

use abi::message::ExceptionMessage;
use abi::Registers;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use core::sync::atomic::Ordering;
use interface::server::{
    own_port, Either, Event, Host, Reply, Request, SharedService, Visitor, OWN,
};
use interface::{Answer, Server};
use proto::Error;
use rt::obj::{Port, Ref, RefAt};
use rt::Code;
use services::process::{
    self, Pid, Process, ProcessClient, ProcessStub, Processes, ProcessesClient, ProcessesStub,
    Program, Status, Supervisor, SupervisorStub,
};

use crate::table::Table;
use crate::NEWS;

/// The control port of a process has this alias with the number of the process added.
const CONTROL: u64 = OWN;
/// The keeper of a space has this alias with its number added.
const KEEPER: u64 = OWN << 1;
/// Alias of the supervisor's port.
const SUPERVISOR: u64 = OWN << 2;

/// The process that an alias stands for.
fn pid_of(alias: u64, kind: u64) -> Option<Pid> {
    Pid::try_from(alias.checked_sub(kind)?).ok()
}

/// The control port of a process.
pub(crate) fn control_port(portset: RefAt, pid: Pid) -> Result<Port, Code> {
    own_port(portset, CONTROL | u64::from(pid))
}

/// The port that is the keeper of a space.
pub(crate) fn keeper(portset: RefAt, number: u32) -> Result<Port, Code> {
    own_port(portset, KEEPER | u64::from(number))
}

/// Makes the supervisor's port, which lives as long as the server: a reference to it.
pub(crate) fn supervisor(portset: RefAt) -> Result<Ref, Code> {
    let port = own_port(portset, SUPERVISOR)?;
    let reference = port.reference()?;
    core::mem::forget(port);
    Ok(reference)
}

type Shared = Rc<RefCell<Table>>;

/// A session at the door.
pub(crate) struct AnyOne(Shared);

impl Processes for AnyOne {
    async fn spawn(&self, owner: Ref, _: Vec<Ref>, program: Vec<u8>) -> Result<(u32, Ref), Error> {
        let Program { path, start } = Program::from_bytes(&program)?;
        let mut table = self.0.borrow_mut();
        let owner = table.owner(&owner)?;
        let pid = table.spawn(&path, &start, owner)?;
        Ok((pid, table.control(pid)?))
    }

    fn adopt(&self, owner: &RefAt) -> Result<(u32, Vec<Ref>), Error> {
        let mut table = self.0.borrow_mut();
        let owner = table.owner(owner)?;
        table.adopt(owner)
    }

    fn verify(&self, control: &RefAt) -> Result<u32, Error> {
        self.0.borrow().by_control_port(control)
    }
}

/// A process by its number, and a number that no other process ever has.
pub(crate) type Known = (Pid, u64);

/// A session at the control port of a process.
pub(crate) struct Held {
    table: Shared,
    known: Known,
    event: Rc<Event>,
    /// How often this session has frozen it.
    freezes: Cell<u32>,
}

impl Held {
    /// Does something with the process, if it is still known.
    fn with<R>(&self, f: impl FnOnce(&mut Table, Pid) -> Result<R, Error>) -> Result<R, Error> {
        let mut table = self.table.borrow_mut();
        table.known(self.known)?;
        f(&mut table, self.known.0)
    }

    /// Waits for a status.
    async fn wait_for(&self, wanted: impl Fn(Status) -> bool) -> Result<Status, Error> {
        let look = || match self.status() {
            Ok(status) if !wanted(status) => None,
            status => Some(status),
        };
        self.event.until(look).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for _ in 0..self.freezes.get() {
            let _ = self.with(Table::thaw);
        }
    }
}

impl Process for Held {
    fn status(&self) -> Result<Status, Error> {
        self.with(|table, pid| table.status(pid))
    }

    async fn changed(&self, from: Status) -> Result<Status, Error> {
        self.wait_for(|status| status != from).await
    }

    async fn ended(&self) -> Result<Status, Error> {
        self.wait_for(Status::has_ended).await
    }

    fn reap(&self) -> Result<Status, Error> {
        self.with(Table::reap)
    }

    fn kill(&self) -> Result<(), Error> {
        self.with(Table::kill)
    }

    fn stop(&self) -> Result<(), Error> {
        self.with(Table::stop)
    }

    fn go_on(&self) -> Result<(), Error> {
        self.with(Table::resume)
    }

    fn info(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.with(|table, pid| table.info(pid))?;
        process::encoded(&info, room)
    }

    fn freeze(&self, room: usize) -> Result<(u64, Vec<u8>, Vec<Ref>), Error> {
        let (length, mut name, refs) = self.with(Table::freeze)?;
        self.freezes.set(self.freezes.get() + 1);
        name.truncate(room);
        Ok((length, name, refs))
    }

    fn part(&self, offset: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        if self.freezes.get() == 0 {
            return Err(Error::Invalid);
        }
        self.with(|table, pid| table.part(pid, offset, room))
    }

    fn thaw(&self) -> Result<(), Error> {
        let freezes = self.freezes.get();
        self.with(|table, pid| match freezes {
            0 => table.let_go(pid),
            _ => table.thaw(pid),
        })?;
        self.freezes.set(freezes.saturating_sub(1));
        Ok(())
    }

    fn populate(&self, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        self.with(|table, pid| table.populate(pid, control, offset, size))
    }

    fn rebuild(
        &self,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error> {
        self.with(|table, pid| table.rebuild(pid, offset, length, clock_offset, piece))
    }
}

/// What comes to the supervisor's port.
struct All(Shared);

impl Supervisor for All {
    fn next(&self, from: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.0.borrow().next(from)?;
        process::encoded(&info, room)
    }

    fn control(&self, pid: u32) -> Result<Ref, Error> {
        self.0.borrow_mut().control(pid)
    }
}

type Sessions = Either<ProcessesStub<AnyOne>, ProcessStub<Held>>;

/// What comes to the server.
pub(crate) struct Personality(Shared);

pub(crate) type PersonalityServer = Server<Sessions, Personality>;

impl Personality {
    pub(crate) fn new(table: Shared) -> Self {
        Personality(table)
    }
}

impl Host<Sessions> for Personality {
    const BYTES: bool = true;

    fn open(&mut self, visitor: &Visitor) -> Result<Sessions, Error> {
        match visitor.door {
            0 if visitor.interface == ProcessesClient::ID => {
                Ok(Either::First(ProcessesStub(AnyOne(self.0.clone())).into()))
            }
            alias if visitor.interface == ProcessClient::ID => {
                let pid = pid_of(alias, CONTROL).ok_or(Error::Unsupported)?;
                let (serial, event) = self.0.borrow().identity(pid)?;
                let held = Held {
                    table: self.0.clone(),
                    known: (pid, serial),
                    event,
                    freezes: Cell::new(0),
                };
                Ok(Either::Second(ProcessStub(held).into()))
            }
            _ => Err(Error::Unsupported),
        }
    }

    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        if alias == SUPERVISOR {
            return SupervisorStub(All(self.0.clone())).answer(request, reply);
        }
        reply.set::<()>(Err(Error::Unsupported));
        Answer::Now
    }

    fn exception(&mut self, alias: u64, message: &ExceptionMessage) -> Option<Registers> {
        self.0
            .borrow_mut()
            .exception(pid_of(alias, KEEPER)?, message)
    }

    fn deadline(&mut self) -> Option<u64> {
        self.0.borrow().deadline()
    }

    fn settle(&mut self) {
        let mut table = self.0.borrow_mut();
        if NEWS.swap(false, Ordering::AcqRel) {
            table.console_news();
        }
        table.settle();
    }
}
