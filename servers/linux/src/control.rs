//! The interfaces that other servers use: the manager of Linux processes, and the ports at which it is reached.

use abi::message::ExceptionMessage;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use interface::server::{
    own_port, Either, Event, Host, Reply, Request, Resumption, SharedService, Visitor, OWN,
};
use interface::{Answer, Server};
use personality::keeper::{alias_of, number_of};
use process::debug::Debugging;
use process::held::{Frozen, Held, Known, Manager};
use proto::Error;
use rt::obj::{Port, Ref, RefAt};
use rt::Code;
use services::process::{
    encoded, DebugClient, DebugStub, Info, Pid, ProcessStub, Processes, ProcessesClient,
    ProcessesStub, Program, Status, Supervisor, SupervisorStub,
};

use crate::table::Table;
use crate::NEWS;

/// Alias of the control port of a process, with the number of the process added.
const CONTROL: u64 = OWN;
/// Alias of the supervisor port.
const SUPERVISOR: u64 = OWN << 2;

/// The process whose port of this kind has the alias.
fn pid_of(alias: u64, kind: u64) -> Option<Pid> {
    Pid::try_from(alias.checked_sub(kind)?).ok()
}

/// The control port of a process.
pub(crate) fn control_port(portset: RefAt, pid: Pid) -> Result<Port, Code> {
    own_port(portset, CONTROL | u64::from(pid))
}

/// The port that is the keeper of a Linux process's space.
pub(crate) fn keeper(portset: RefAt, number: u64) -> Result<Port, Code> {
    own_port(portset, alias_of(number))
}

/// Makes the supervisor port, which lives as long as the server; returns a reference to it.
pub(crate) fn supervisor(portset: RefAt) -> Result<Ref, Code> {
    let port = own_port(portset, SUPERVISOR)?;
    let reference = port.reference()?;
    core::mem::forget(port);
    Ok(reference)
}

type Shared = Rc<RefCell<Table>>;

/// A session opened at the door.
pub(crate) struct AnyOne(Shared);

impl Processes for AnyOne {
    async fn spawn(
        &self,
        owner: Ref,
        passed: Vec<Ref>,
        program: Vec<u8>,
    ) -> Result<(u32, Ref), Error> {
        let Program { path, start } = Program::from_bytes(&program)?;
        let mut table = self.0.borrow_mut();
        let owner = table.owner(&owner)?;
        let pid = table.spawn(&path, &start, owner, passed)?;
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

    fn count_as_one(&self) -> Result<(), Error> {
        Err(Error::Unsupported)
    }
}

impl Manager for Table {
    fn known(&mut self, known: Known) -> Result<(), Error> {
        Table::known(self, known)
    }

    fn status(&mut self, pid: Pid) -> Result<Status, Error> {
        Table::status(self, pid)
    }

    fn reap(&mut self, pid: Pid) -> Result<Status, Error> {
        Table::reap(self, pid)
    }

    fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        Table::kill(self, pid)
    }

    fn killed(&mut self, pid: Pid) -> Result<(), Error> {
        Table::killed(self, pid)
    }

    fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        Table::stop(self, pid)
    }

    fn go_on(&mut self, pid: Pid) -> Result<(), Error> {
        Table::resume(self, pid)
    }

    fn typed(&mut self, pid: Pid, suspend: bool) -> Result<bool, Error> {
        Table::typed(self, pid, suspend)
    }

    fn info(&mut self, pid: Pid) -> Result<Info, Error> {
        Table::info(self, pid)
    }

    fn freeze(&mut self, pid: Pid, how: u32) -> Result<Frozen, Error> {
        Table::freeze(self, pid, how)
    }

    fn frozen(&mut self, pid: Pid) -> Result<Frozen, Error> {
        Table::frozen(self, pid)
    }

    fn give_up(&mut self, pid: Pid) {
        self.give_up_saving(pid);
    }

    fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        Table::part(self, pid, offset, room)
    }

    fn member(&mut self, pid: Pid, number: u32) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        Table::member(self, pid, number)
    }

    fn files(&mut self, pid: Pid, from: u32, room: usize) -> Result<Vec<u8>, Error> {
        Table::files(self, pid, from, room)
    }

    fn copy(&mut self, pid: Pid, number: u32) -> Result<Vec<Ref>, Error> {
        Table::copy(self, pid, number)
    }

    fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        Table::thaw(self, pid)
    }

    fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        Table::let_go(self, pid)
    }

    fn adopt_member(&mut self, pid: Pid, shared: bool) -> Result<(u32, Vec<Ref>), Error> {
        Table::adopt_member(self, pid, shared)
    }

    fn populate(
        &mut self,
        pid: Pid,
        member: u32,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        Table::populate(self, pid, member, control, offset, size)
    }

    fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error> {
        Table::rebuild(self, pid, offset, length, clock_offset, piece)
    }

    fn rebuilt(&mut self, pid: Pid) -> Result<(), Error> {
        Table::rebuilt(self, pid)
    }

    fn said(&mut self, pid: Pid, offset: u32, room: usize) -> Result<Vec<u8>, Error> {
        Table::said(self, pid, offset, room)
    }

    fn why(&mut self) -> String {
        core::mem::take(&mut self.why)
    }
}

/// The supervisor interface, served at the supervisor port.
struct All(Shared);

impl Supervisor for All {
    fn next(&self, from: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let info = self.0.borrow().next(from)?;
        encoded(&info, room)
    }

    fn control(&self, pid: u32) -> Result<Ref, Error> {
        self.0.borrow_mut().control(pid)
    }
}

type Sessions = Either<
    ProcessesStub<AnyOne>,
    Either<ProcessStub<Held<Shared, Rc<Event>>>, DebugStub<Debugging<Shared, Rc<Event>>>>,
>;

/// The host of all the server's sessions and ports.
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
            alias if visitor.interface != ProcessesClient::ID => {
                let pid = pid_of(alias, CONTROL).ok_or(Error::Unsupported)?;
                let (serial, event, end) = self.0.borrow().identity(pid)?;
                let (table, known) = (self.0.clone(), (pid, serial));
                Ok(Either::Second(match visitor.interface {
                    DebugClient::ID => {
                        let debugging = Debugging::new(table, known, event, end);
                        Either::Second(DebugStub(debugging).into()).into()
                    }
                    _ => Either::First(ProcessStub(Held::new(table, known, event)).into()).into(),
                }))
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

    fn exception(&mut self, alias: u64, message: &ExceptionMessage, resumption: &mut Resumption) {
        if let Some(keeper) = number_of(alias) {
            self.0.borrow_mut().exception(keeper, message, resumption);
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        self.0.borrow_mut().deadline()
    }

    #[inline(always)]
    fn settle(&mut self) {
        let mut table = self.0.borrow_mut();
        if NEWS.swap(false, Ordering::AcqRel) {
            table.console_news();
        }
        table.settle();
    }
}
