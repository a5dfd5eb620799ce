//! Client of the process managers, and the end of one's own process.
//!
//! A [`Client`] starts programs and returns a [`Process`], the power over the new process.
use crate::names::init;
use crate::obj::{Ref, RefAt};
use crate::start::names;
use crate::sync::Mutex;
use abi::PAGE_SIZE;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proto::{Error, MAX_BULK};
pub use services::process::keep;
use services::process::{
    self, Named, ProcessClient, ProcessesClient, Program, SupervisorClient, MAX_WHY, ROOM,
};
pub use services::process::{Info, Pid, Start, Status, Stdio, Thread};

/// Ends the process with this status; or with a status other than 0 if output of the program is lost.
pub fn exit(status: u8) -> ! {
    let is_whole = crate::io::finish();
    let status = if is_whole { status } else { status.max(1) };
    crate::log::finish();
    loop {
        // There is no reply: the process ends while it waits for one.
        let _ = init().exit(status);
        crate::time::sleep(10_000_000);
    }
}

/// A manager of processes: `native` or `linux`.
#[derive(Debug)]
pub struct Client {
    session: Mutex<ProcessesClient>,
}

impl Client {
    /// The manager of that name.
    pub fn new(manager: &str) -> Result<Self, Error> {
        Client::at(crate::names::lookup(manager)?)
    }

    /// The manager of that name. All processes that this client starts for servers count as one job.
    pub fn of_one_job(manager: &str) -> Result<Self, Error> {
        let client = Client::new(manager)?;
        client.session.lock().count_as_one()?;
        Ok(client)
    }

    /// The manager behind a door.
    pub fn at(door: Ref) -> Result<Self, Error> {
        let session = Mutex::new(ProcessesClient::open_known(&door)?);
        Ok(Client { session })
    }

    /// Starts a program; `refs` are passed on to it (by the manager `native`).
    pub fn spawn(&self, path: &str, start: &Start, refs: &[&RefAt]) -> Result<Process, Error> {
        self.spawn_for(&names(), path, start, refs)
    }

    /// As [`Client::spawn`], for the job of the process whose port at init is `owner`.
    pub fn spawn_for(
        &self,
        owner: &RefAt,
        path: &str,
        start: &Start,
        refs: &[&RefAt],
    ) -> Result<Process, Error> {
        let program = Program {
            path: path.to_string(),
            start: start.clone(),
        };
        let refs: Vec<RefAt> = refs.iter().map(|reference| **reference).collect();
        let mut session = self.session.lock();
        let (pid, port) = session.spawn(owner, &refs, &program.to_bytes()?)?;
        Ok(Process::at(pid, port))
    }

    /// A process to be rebuilt, which counts for the job of the process whose port at init is `owner`.
    pub fn adopt(&self, owner: &RefAt) -> Result<Adopted, Error> {
        let (pid, refs) = self.session.lock().adopt(owner)?;
        let mut refs = refs.into_iter();
        let mut next = || refs.next().ok_or(Error::Broken);
        let (port, keeper, memory, control) = (next()?, next()?, next()?, next()?);
        Ok(Adopted {
            process: Process::at(pid, port),
            keeper,
            memory,
            control,
            account: next().or_else(|_| reference())?,
        })
    }

    /// Whether this is the control port of a process of this manager; if so it can be called without the risk of
    /// waiting for ever.
    pub fn verify(&self, control: &RefAt) -> Result<Process, Error> {
        let port = control.copy().map_err(crate::error_of)?;
        let pid = self.session.lock().verify(&port)?;
        Ok(Process::at(pid, port))
    }
}

fn reference() -> Result<Ref, Error> {
    Ref::new().map_err(crate::error_of)
}

/// All processes of a manager: for holders of the system port.
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

    /// All processes, by their numbers. Each is queried separately, so the list is no snapshot.
    pub fn list(&self) -> Result<Vec<Info>, Error> {
        let supervisor = SupervisorClient::at(*self.port);
        let mut bytes = alloc::vec![0; ROOM];
        let mut list: Vec<Info> = Vec::new();
        let mut next = 0;
        loop {
            match supervisor.next(next, &mut bytes) {
                Ok(came) => {
                    let info = process::info(&bytes[..came.min(ROOM)])?;
                    if info.pid < next {
                        return Err(Error::Broken);
                    }
                    next = info.pid.saturating_add(1);
                    list.push(info);
                }
                Err(Error::NotFound) => return Ok(list),
                Err(error) => return Err(error),
            }
        }
    }

    /// The process with this number.
    pub fn process(&self, pid: Pid) -> Result<Process, Error> {
        let port = SupervisorClient::at(*self.port).control(pid)?;
        Ok(Process::at(pid, port))
    }
}

/// The result of [`Process::freeze`].
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
    /// The process's memory account, if the process has a reference to it; else names nothing.
    pub account: Ref,
    /// Its further memories, if it has several.
    pub members: Vec<Member>,
    /// Files that it has open, executes or maps and of which the part has the name only.
    pub files: Vec<Named>,
}

/// A further memory of a frozen process.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its memory region.
    pub memory: Ref,
    /// Its control region; shared memory has none.
    pub control: Option<Ref>,
}

/// The result of [`Process::adopt_member`].
#[derive(Debug)]
pub struct AdoptedMember {
    /// Its number.
    pub number: u32,
    /// Its memory region.
    pub memory: Ref,
    /// Its control region, and the port to set as the keeper of its space; nothing if it is shared.
    pub own: Option<(Ref, Ref)>,
}

/// The result of [`Client::adopt`].
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
    /// Its memory account, if the process will have a reference to it.
    pub account: Ref,
}

/// A process, and the power over it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    port: Ref,
    /// Opened at the first request.
    session: Mutex<Option<ProcessClient>>,
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
        Process {
            pid,
            port,
            session: Mutex::new(None),
        }
    }

    /// Makes a request in the session of this value.
    fn ask<T>(
        &self,
        request: impl FnOnce(&mut ProcessClient) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut session = self.session.lock();
        let session = match &mut *session {
            Some(known) => known,
            none => none.insert(self.open()?),
        };
        request(session)
    }

    /// Opens a session. A request that waits needs one of its own.
    pub fn open(&self) -> Result<ProcessClient, Error> {
        ProcessClient::open_known(&self.port)
    }

    /// The status of the process.
    pub fn status(&self) -> Result<Status, Error> {
        self.ask(ProcessClient::status)
    }

    /// Waits until it has ended, and returns the final status. Other threads can use this value meanwhile.
    pub fn ended(&self) -> Result<Status, Error> {
        self.open()?.ended()
    }

    /// Waits until its status is not `from`, and returns the status. As [`Process::ended`].
    pub fn changed(&self, from: Status) -> Result<Status, Error> {
        self.open()?.changed(from)
    }

    /// Reaps the process, which has ended, and returns its status.
    pub fn reap(&self) -> Result<Status, Error> {
        self.ask(ProcessClient::reap)
    }

    /// What it has said to who started it.
    pub fn said(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = alloc::vec![0; process::MAX_SAID];
        let came = self.ask(|process| process.said(0, &mut bytes))?;
        bytes.truncate(came);
        Ok(bytes)
    }

    /// Ends it.
    pub fn kill(&self) -> Result<(), Error> {
        self.ask(ProcessClient::kill)
    }

    /// Stops all its threads.
    pub fn stop(&self) -> Result<(), Error> {
        self.ask(ProcessClient::stop)
    }

    /// Undoes one `stop`.
    pub fn resume(&self) -> Result<(), Error> {
        self.ask(ProcessClient::go_on)
    }

    /// Tells the manager that Ctrl-C, or Ctrl-Z (`suspend`), was typed. Returns whether the process gets a signal.
    pub fn typed(&self, suspend: bool) -> Result<bool, Error> {
        self.ask(|process| process.typed(suspend))
    }

    /// Name, threads, memory.
    pub fn info(&self) -> Result<Info, Error> {
        let mut bytes = alloc::vec![0; ROOM];
        let came = self.ask(|process| process.info(&mut bytes))?;
        process::info(&bytes[..came.min(ROOM)])
    }

    /// Freezes it and reads the manager's part of its state, in these ways of [`mod@keep`]. It is thawed when
    /// this value is dropped, at the latest.
    pub fn freeze(&self, how: u32) -> Result<Frozen, Error> {
        self.ask(|process| {
            // The process is stopped meanwhile, so the buffer is small: most parts are short.
            let mut bytes = alloc::vec![0; 2 * PAGE_SIZE as usize];
            let (length, name, refs) = process.freeze(how, &mut bytes)?;
            let frozen = frozen(process, length, &mut bytes, name, refs);
            if frozen.is_err() {
                let _ = process.thaw();
            }
            frozen
        })
    }

    /// Why the last [`Process::freeze`], [`Process::thaw`], [`Process::adopt_member`] or [`Process::rebuild`] was
    /// refused: a sentence for people; empty if the error says all. The sentence can have names in it that programs
    /// have chosen.
    pub fn why(&self) -> String {
        let mut bytes = [0; MAX_WHY];
        let came = self.ask(|process| process.why(&mut bytes));
        let bytes = bytes.get(..came.unwrap_or(0)).unwrap_or(&[]);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// A frozen copy of the memory of the process with this number (0 is its own), while the process is frozen.
    pub fn copy(&self, number: u32) -> Result<Copy, Error> {
        let refs: Vec<Ref> = self.ask(|process| process.copy(number))?;
        let mut refs = refs.into_iter();
        let mut next = || refs.next().ok_or(Error::Broken);
        Ok(Copy {
            region: next()?,
            control: next()?,
            _account: next()?,
        })
    }

    /// Undoes one `freeze`.
    pub fn thaw(&self) -> Result<(), Error> {
        self.ask(ProcessClient::thaw)
    }

    /// Adds a memory to a process that is being rebuilt, or one that others share.
    pub fn adopt_member(&self, shared: bool) -> Result<AdoptedMember, Error> {
        let (number, refs) = self.ask(|process| process.adopt_member(shared))?;
        let mut refs = refs.into_iter();
        let mut next = || refs.next().ok_or(Error::Broken);
        Ok(AdoptedMember {
            number,
            memory: next()?,
            own: match shared {
                true => None,
                false => Some((next()?, next()?)),
            },
        })
    }

    /// Makes pages of the memory with this number present, at most `MAX_POPULATE` bytes, in a process that is being
    /// rebuilt.
    pub fn populate(
        &self,
        member: u32,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        self.ask(|process| process.populate(member, control, offset, size))
    }

    /// The port of the supplier of the memory with this number, for a process that is being rebuilt
    /// ([`crate::memory::Supplier`]).
    pub fn supplier(&self, member: u32) -> Result<Ref, Error> {
        self.ask(|process| process.supplier(member))
    }

    /// Gives the manager its part of a process that is being rebuilt.
    pub fn rebuild(&self, part: &[u8], clock_offset: u64) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let piece = &part[offset..part.len().min(offset + MAX_BULK)];
            let length = part.len() as u64;
            self.ask(|process| process.rebuild(offset as u64, length, clock_offset, piece))?;
            offset += piece.len();
            if offset == part.len() {
                return Ok(());
            }
        }
    }
}

/// A copy of a process's memory, which can be read. The copy ends when this is dropped.
#[derive(Debug)]
pub struct Copy {
    /// Its region.
    pub region: Ref,
    /// Its control port, of a segment of the memory server.
    pub control: Ref,
    /// The copy ends when nothing refers to this port.
    _account: Ref,
}

/// Makes the further requests about a frozen process. The first `name` of the bytes are its name.
fn frozen(
    process: &mut ProcessClient,
    length: u64,
    bytes: &mut [u8],
    name: usize,
    refs: Vec<Ref>,
) -> Result<Frozen, Error> {
    // A vector that grows takes more memory meanwhile.
    crate::heap::want(length.saturating_mul(3))?;
    let name = bytes.get(..name).ok_or(Error::Broken)?;
    let name = String::from_utf8_lossy(name).into_owned();
    let mut part = Vec::new();
    while (part.len() as u64) < length {
        let came = process.part(part.len() as u64, bytes)?;
        let piece = bytes.get(..came).filter(|piece| !piece.is_empty());
        part.extend_from_slice(piece.ok_or(Error::Broken)?);
    }
    let mut members = Vec::new();
    while let Some(member) = member(process, members.len() as u32 + 1, bytes)? {
        members.push(member);
    }
    let files = files(process, bytes)?;
    let mut refs = refs.into_iter();
    let mut next = || refs.next().ok_or(Error::Broken);
    Ok(Frozen {
        name,
        part,
        memory: next()?,
        control: next()?,
        account: next().or_else(|_| reference())?,
        members,
        files,
    })
}

/// The files that a frozen process names. A path is shorter than the buffer, so an empty answer is the end.
fn files(process: &mut ProcessClient, bytes: &mut [u8]) -> Result<Vec<Named>, Error> {
    let mut all: Vec<Named> = Vec::new();
    loop {
        let came = process.files(all.len() as u32, bytes)?;
        let more = Named::from_bytes(bytes.get(..came).ok_or(Error::Broken)?)?;
        if more.is_empty() {
            return Ok(all);
        }
        // A server without memory for them gets an error here, and does not end later.
        let size = |file: &Named| size_of::<Named>() + file.path.len();
        crate::heap::want(3 * more.iter().map(size).sum::<usize>() as u64)?;
        all.extend(more);
    }
}

/// The further memory with this number; `None` behind the last one.
fn member(
    process: &mut ProcessClient,
    number: u32,
    bytes: &mut [u8],
) -> Result<Option<Member>, Error> {
    let (name, refs) = match process.member(number, bytes) {
        Err(Error::NotFound) => return Ok(None),
        made => made?,
    };
    let name = bytes.get(..name).ok_or(Error::Broken)?;
    let name = String::from_utf8_lossy(name).into_owned();
    let mut refs = refs.into_iter();
    Ok(Some(Member {
        name,
        memory: refs.next().ok_or(Error::Broken)?,
        control: refs.next(),
    }))
}
