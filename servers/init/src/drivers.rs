//! Starts the drivers of the boot manifest and the servers that use them, and starts them again when they have ended.
use crate::native::{Launch, Processes};
use crate::{find, names, slow, words, PRIORITY};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::iter;
use fermata_init::{Deaths, Driver, History};
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::sync::{Lazy, Mutex};
use rt::{sys, thread, time};
use services::device::DeviceControlClient;
use services::process::{Pid, Start, Status};
use services::system::{self, Death};

/// Kernel memory of a driver, and of a server that uses one, in percent of what the servers share.
const PERCENT: u64 = 2;
const PERCENT_SERVER: u64 = 5;

/// How often a restart of a driver is tried, and the pause between two tries in nanoseconds: ten seconds in all.
const TRIES: u32 = 100;
const PAUSE: u64 = 100_000_000;

/// The drivers that have ended, by their numbers in the manifest, and their final statuses.
type Ended = Arc<Mutex<Vec<(usize, Status)>>>;

/// The list by which the manager of processes tells the starter that drivers have ended.
#[derive(Default)]
pub(crate) struct Drivers {
    ended: Ended,
}

/// The thread that starts drivers again.
static STARTER: Lazy<Ref> = Lazy::new();

/// The boot manifest.
static MANIFEST: Lazy<Vec<Driver>> = Lazy::new();

/// The boot manifest; before [`read_manifest`], without what the boot archive adds.
pub(crate) fn manifest() -> &'static [Driver] {
    let made: Result<_, Infallible> = MANIFEST.get(|| Ok(fermata_init::manifest("", false)));
    match made {
        Ok(drivers) => drivers,
    }
}

/// Reads what the boot archive adds to the manifest, and adds the debugger's server if `debugger` says so.
pub(crate) fn read_manifest(archive: &'static [u8], debugger: bool) {
    let added = find(archive, "etc/drivers").unwrap_or_default();
    let added = core::str::from_utf8(added).unwrap_or_default();
    MANIFEST.set(fermata_init::manifest(added, debugger));
}

/// The deaths of each driver and whether it was given up, in the order of the manifest.
static HISTORY: Mutex<Vec<History>> = Mutex::new(Vec::new());

/// Calls `f` with the history of a driver.
fn history<R>(number: usize, f: impl FnOnce(&mut History) -> R) -> R {
    let mut all = HISTORY.lock();
    if all.len() <= number {
        all.resize_with(number + 1, History::default);
    }
    f(&mut all[number])
}

/// What is reported of the driver with this number in the manifest. `pid`: its process, if it has one.
pub(crate) fn told(number: usize, pid: Option<Pid>) -> Result<system::Driver, Error> {
    let driver = manifest().get(number).ok_or(Error::NotFound)?;
    let history = history(number, |history| history.clone());
    Ok(system::Driver {
        name: driver.name().to_string(),
        program: driver.program.to_string(),
        uses: driver.uses.map(ToString::to_string),
        state: history.state(pid.is_some()),
        pid: pid.unwrap_or(0),
        deaths: history.deaths,
        wanted: history.wanted,
        last: history.last,
    })
}

impl Drivers {
    /// Notes that a driver has ended and wakes the starter. `why`: the exception that ended it, in words, or empty.
    pub(crate) fn ended(&self, driver: usize, status: Status, why: String) {
        history(driver, |history| {
            let wanted = status == Status::Killed(crate::native::SIGKILL);
            let at_ns = time::now();
            history.died(Death { at_ns, status, why }, wanted);
        });
        self.ended.lock().push((driver, status));
        if let Ok(starter) = STARTER.get(|| Err(Error::NotFound)) {
            let _ = starter.interrupt();
        }
    }
}

/// A session with control over the device server.
fn control() -> Result<DeviceControlClient, Error> {
    let control = names::supervisor("device")?;
    DeviceControlClient::open_as(&control, names::own()?)
}

/// The door of a driver of the manifest at the device server.
pub(crate) fn door(name: &str) -> Result<Ref, String> {
    let number = manifest().iter().position(|driver| driver.name() == name);
    let number = number.ok_or_else(|| format!("{name} is no driver of the manifest"))?;
    let door = control().and_then(|mut control| control.door(number as u64));
    door.map_err(|error| format!("the device server: {}", error.text()))
}

/// Whether the machine has a device for the driver with this name.
pub(crate) fn is_present(name: &str) -> Result<bool, Error> {
    let number = manifest().iter().position(|driver| driver.name() == name);
    match number {
        Some(number) => control()?.is_present(number as u64),
        None => Ok(false),
    }
}

/// Asks the device server for the date at which the machine's clock was zero, from which init computes the date.
pub(crate) fn set_date() -> Result<(), Error> {
    names::ORIGIN.set(control()?.origin()?);
    Ok(())
}

/// Starts drivers: all at boot, then each again when it has ended.
struct Starter {
    archive: &'static [u8],
    processes: &'static Processes,
    /// Kernel memory in bytes that all servers share.
    shared: u64,
    ended: Ended,
    /// The doors at the device server of the drivers that were started, in the order of the manifest.
    doors: Vec<Option<Ref>>,
    deaths: Vec<Deaths>,
    /// A number of this boot, the same for every start of a driver.
    boot: u64,
    /// See [`fermata_init::Options::address`].
    address: Option<String>,
    /// The system port.
    system: RefAt,
}

/// Starts the drivers whose devices the machine has, and a thread that starts them again whenever they end. Returns the
/// names of their services.
pub(crate) fn start(
    archive: &'static [u8],
    processes: &'static Processes,
    shared: u64,
    address: Option<String>,
    system: RefAt,
) -> Result<Vec<&'static str>, String> {
    let mut starter = Starter {
        archive,
        processes,
        shared,
        ended: processes.with(|manager| Arc::clone(&manager.drivers().ended)),
        doors: manifest().iter().map(|_| None).collect(),
        deaths: manifest().iter().map(|_| Deaths::default()).collect(),
        boot: time::now(),
        address,
        system,
    };
    let mut started = Vec::new();
    for (number, driver) in manifest().iter().enumerate() {
        let present = match driver.uses {
            Some(used) => Ok(started.contains(&used)),
            None if driver.system => Ok(true),
            None => control().and_then(|mut control| control.is_present(number as u64)),
        };
        if present.map_err(|error| error.text())? {
            if driver.uses.is_none() {
                starter.doors[number] = Some(door(driver.name())?);
            }
            match starter.launch(number) {
                Ok(()) if driver.system => {}
                Ok(()) => {
                    names::expect(driver.name()).map_err(|error| error.text())?;
                    started.push(driver.name());
                }
                Err(why) => {
                    history(number, |history| history.give_up(why.clone()));
                    slow::say(why);
                }
            }
        }
    }
    let thread = thread::spawn_at(PRIORITY, move || starter.run()).map_err(words)?;
    STARTER.set(thread.reference().map_err(words)?);
    // The starter was not known yet when a driver ended before this.
    if let Ok(starter) = STARTER.get(|| Err(Error::NotFound)) {
        let _ = starter.interrupt();
    }
    Ok(started)
}

impl Starter {
    fn launch(&self, number: usize) -> Result<(), String> {
        let Driver {
            program,
            uses,
            system,
            priority,
            ceiling,
            ..
        } = manifest()[number];
        let complaint = |why: &str| crate::complaint(program, why);
        let file =
            find(self.archive, program).ok_or_else(|| complaint("not in the boot archive"))?;
        let door = self.doors.get(number).and_then(Option::as_ref);
        // The system port is at index `services::system::PASSED`; the door follows it.
        let system = system.then_some(&self.system);
        let refs: Vec<&RefAt> = system.into_iter().chain(door.map(|door| &**door)).collect();
        let name = program.rsplit('/').next().unwrap_or(program);
        let launch = Launch {
            start: &Start {
                args: [name.to_string(), manifest()[number].name().to_string()].into(),
                env: iter::once(format!("BOOT={}", self.boot))
                    .chain(
                        self.address
                            .iter()
                            .map(|address| format!("ADDRESS={address}")),
                    )
                    .collect(),
                cwd: "/".to_string(),
                ..Start::default()
            },
            priority,
            ceiling,
            quota: self.shared / 100 * uses.map_or(PERCENT, |_| PERCENT_SERVER),
            server: true,
            limits: match (uses, system) {
                (None, None) => process::account::driver,
                _ => process::account::server,
            },
            essential: true,
            driver: Some(number),
            service: Some(manifest()[number].name()),
            collocated: false,
            job: None,
            owner: 0,
            refs: &refs,
        };
        let launched = self.processes.with(|manager| manager.launch(&launch, file));
        launched.map(drop).map_err(|(_, why)| complaint(why))
    }

    /// Starts ended drivers again, on a thread of its own, for as long as the machine runs.
    fn run(mut self) {
        // The drivers that could not be started yet, and how often that was tried.
        let mut waiting: Vec<(usize, u32)> = Vec::new();
        loop {
            let ended = core::mem::take(&mut *self.ended.lock());
            match (ended.is_empty(), waiting.is_empty()) {
                (true, true) => {
                    sys::thread_wait_interrupt();
                }
                (true, false) => time::sleep(PAUSE),
                (false, _) => {
                    // Opening a session makes the device server end the sessions of clients that have ended. So what a
                    // driver had is taken back, even if it passed its session to somebody else and no driver follows
                    // it.
                    let _ = control();
                }
            }
            for (number, tries) in core::mem::take(&mut waiting) {
                if let Err(why) = self.launch(number) {
                    match tries < TRIES {
                        true => waiting.push((number, tries + 1)),
                        false => {
                            names::give_up(manifest()[number].name());
                            history(number, |history| history.give_up(why.clone()));
                            slow::say(why);
                        }
                    }
                }
            }
            for (number, status) in ended {
                let name = manifest()[number].name();
                // A driver that somebody has killed is started again without a message, and the death is not counted.
                let wanted = status == Status::Killed(crate::native::SIGKILL);
                if !wanted && self.deaths[number].add(time::now()) {
                    names::give_up(name);
                    let why = "it ended again and again".to_string();
                    history(number, |history| history.give_up(why));
                    slow::say(format!(
                        "init: the server of {name} has ended again and again, and is not started any more"
                    ));
                    continue;
                }
                if !wanted {
                    slow::say(format!(
                        "init: the server of {name} has ended, and is started anew"
                    ));
                }
                // The start can fail because others have the memory, the account or the segment for a moment.
                if self.launch(number).is_err() {
                    waiting.push((number, 1));
                }
            }
        }
    }
}
