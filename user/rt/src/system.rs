//! Client of init's system port, for the few programs that were given it.
use crate::obj::{Port, Ref, RefAt};
use crate::process::Supervisor;
use crate::sync::Mutex;
use alloc::vec;
use alloc::vec::Vec;
use proto::{Error, MAX_BULK};
use services::device::{self, DeviceControlClient, Line, PciFunction};
use services::process::Pid;
use services::system::{decoded, SystemClient, NOBODY, NOWHERE, PASSED};
pub use services::system::{Death, Driver, DriverState, Link, Object, On, Wait};

static SESSION: Mutex<Option<SystemClient>> = Mutex::new(None);

/// The system port; [`Error::Denied`] if this program was not given it.
pub fn port() -> Result<RefAt, Error> {
    crate::start::passed(PASSED)
        .filter(|port| port.kind() == abi::RefKind::Port)
        .ok_or(Error::Denied)
}

/// Makes a request in the program's session, which is opened at the first one.
fn ask<T>(request: impl FnOnce(&mut SystemClient) -> Result<T, Error>) -> Result<T, Error> {
    let mut session = SESSION.lock();
    let session = match &mut *session {
        Some(known) => known,
        none => none.insert(SystemClient::open(&port()?)?),
    };
    request(session)
}

/// Powers the machine off with this exit status. Returns only if that is refused.
pub fn power_off(status: u8) -> Result<(), Error> {
    ask(|system| system.power_off(status))
}

/// Writes a line to the control channel, over which tests report to the host.
pub fn report(line: &str) -> Result<(), Error> {
    let line = &line.as_bytes()[..line.len().min(MAX_BULK)];
    ask(|system| system.report(line))
}

/// All processes of a manager.
pub fn supervisor(manager: &str) -> Result<Supervisor, Error> {
    control(manager).map(Supervisor::at)
}

/// The port by which a server is controlled.
pub fn control(server: &str) -> Result<Ref, Error> {
    ask(|system| system.control(server))
}

/// Makes the port known by a name, even a reserved one.
pub fn register(name: &str, port: &Port) -> Result<(), Error> {
    let reference = port.reference().map_err(crate::error_of)?;
    ask(|system| system.register(&reference, name))
}

/// Most drivers and PCI functions that are listed.
const MOST_DRIVERS: u32 = 64;
const MOST_FUNCTIONS: u64 = 64;
/// Most steps of one search. The number of processes and objects has no useful bound.
const MOST_STEPS: usize = 64;

/// The drivers of the boot manifest, in its order.
pub fn drivers() -> Result<Vec<Driver>, Error> {
    let (mut all, mut bytes) = (Vec::new(), vec![0; MAX_BULK]);
    for number in 0..MOST_DRIVERS {
        match ask(|system| system.driver(number, &mut bytes)) {
            Ok(came) => all.push(decoded(bytes.get(..came).unwrap_or_default())?),
            Err(Error::NotFound) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Kernel objects of a native process, the first ones from this spot on, and the spot from which there may be more.
pub fn objects(pid: Pid, from: u64) -> Result<(Vec<Object>, Option<u64>), Error> {
    let mut bytes = vec![0; MAX_BULK];
    let (next, came) = ask(|system| system.objects(pid, from, &mut bytes))?;
    let objects = decoded(bytes.get(..came).unwrap_or_default())?;
    Ok((objects, (next != NOWHERE).then_some(next)))
}

/// Searches all native processes, in steps that do not delay other clients: each step takes a place and returns the
/// next one, and what it has found. Returns whether the search is complete.
fn search<T>(
    mut step: impl FnMut(Pid, u64) -> Result<(Pid, u64, T), Error>,
    mut found: impl FnMut(T),
) -> Result<bool, Error> {
    let mut place = (0, 0);
    for _ in 0..MOST_STEPS {
        let (other, at, list) = step(place.0, place.1)?;
        found(list);
        if other == NOBODY {
            return Ok(true);
        }
        place = (other, at);
    }
    Ok(false)
}

/// What the threads of a native process wait for.
pub fn waits(pid: Pid) -> Result<Vec<Wait>, Error> {
    let (mut all, mut bytes): (Vec<Wait>, _) = (Vec::new(), vec![0; MAX_BULK]);
    search(
        |other, at| {
            let (other, at, came) = ask(|system| system.waits(pid, other, at, &mut bytes))?;
            Ok((other, at, decoded(bytes.get(..came).unwrap_or_default())?))
        },
        |list: Vec<Wait>| {
            for wait in list {
                match all.iter_mut().find(|other| other.thread == wait.thread) {
                    // A later step knows more about a wait that was unknown.
                    Some(known) if wait.on != On::Unknown => *known = wait,
                    Some(_) => {}
                    None => all.push(wait),
                }
            }
        },
    )?;
    Ok(all)
}

/// The links of the objects that [`objects`] lists for `from`, at most `most`, and whether these are all.
pub fn links(pid: Pid, from: u64, most: usize) -> Result<(Vec<Link>, bool), Error> {
    let (mut all, mut bytes): (Vec<Link>, _) = (Vec::new(), vec![0; MAX_BULK]);
    let mut is_all = true;
    let came_to_end = search(
        |other, at| {
            let (other, at, came) = ask(|system| system.links(pid, from, other, at, &mut bytes))?;
            Ok((other, at, decoded(bytes.get(..came).unwrap_or_default())?))
        },
        |list: Vec<Link>| {
            is_all &= all.len() + list.len() <= most;
            all.extend(list.into_iter().take(most.saturating_sub(all.len())));
        },
    )?;
    Ok((all, is_all && came_to_end))
}

/// The control session of the device server, which describes the machine. It is power over all devices.
#[derive(Debug)]
pub struct Devices {
    session: DeviceControlClient,
}

impl Devices {
    /// Opens a session.
    pub fn open() -> Result<Self, Error> {
        let session = DeviceControlClient::open_known(&*control("device")?)?;
        Ok(Devices { session })
    }

    /// The interrupt lines, by their numbers.
    pub fn lines(&mut self) -> Result<Vec<Line>, Error> {
        let mut bytes = vec![0; MAX_BULK];
        let line = |number| {
            let came = self.session.line(number, &mut bytes)?;
            decoded(bytes.get(..came).unwrap_or_default())
        };
        (0..device::LINES).map(line).collect()
    }

    /// The PCI functions, of very many the first ones.
    pub fn functions(&mut self) -> Result<Vec<PciFunction>, Error> {
        let (mut all, mut bytes) = (Vec::new(), vec![0; MAX_BULK]);
        for index in 0..MOST_FUNCTIONS {
            match self.session.pci_function(index, &mut bytes) {
                Ok(came) => all.push(decoded(bytes.get(..came).unwrap_or_default())?),
                Err(Error::NotFound) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// What the driver with this number in the manifest has, in words.
    pub fn holdings(&mut self, driver: u64) -> Result<Vec<alloc::string::String>, Error> {
        let mut bytes = vec![0; MAX_BULK];
        let came = self.session.holdings(driver, &mut bytes)?;
        decoded(bytes.get(..came).unwrap_or_default())
    }
}
