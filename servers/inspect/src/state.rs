//! The state of the machine that the page shows, as JSON.
use crate::work::Work;
use abi::state::Waiting;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;
use services::device;
use services::process::{Info, Pid, Status};
use services::system::{self, DriverState, On};

/// The machine.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct State {
    /// Nanoseconds since the machine began.
    pub now_ns: u64,
    /// Bytes of physical memory, and bytes that are in no segment.
    pub memory_total: u64,
    pub memory_free: u64,
    /// Bytes and number of the files in memory.
    pub file_bytes: u64,
    pub files: u64,
    pub processes: Vec<Process>,
    pub drivers: Vec<Driver>,
    /// The interrupt lines that drivers have.
    pub lines: Vec<Line>,
    pub functions: Vec<Function>,
    /// The long actions that clients have asked for.
    pub work: Vec<Work>,
    /// A sentence for each thing that could not be found out, with the reason.
    pub missing: Vec<String>,
}

/// A process.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Process {
    /// The manager of the process: `native` or `linux`.
    pub manager: &'static str,
    pub pid: u32,
    pub name: String,
    /// `running`, `stopped`, `exited N` or `killed by signal N`.
    pub status: String,
    pub resident_bytes: u64,
    pub objects: u32,
    pub threads: Vec<Thread>,
}

/// A thread, as its exported state shows it.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Thread {
    /// What the thread is about to do, in words.
    pub doing: String,
    /// The instruction pointer in hexadecimal, since not every reader of JSON has 64 bits.
    pub instruction: String,
    pub stops: u32,
    /// Whom the thread waits for, if it does.
    pub waits: Option<Waits>,
    #[serde(skip)]
    waiting: u8,
    /// The thread is in a Linux call, or has met an exception.
    #[serde(skip)]
    in_exception: bool,
}

/// Whom a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Waits {
    /// The process that is waited for, if a manager knows it: its manager and its number there.
    pub manager: Option<&'static str>,
    pub pid: Option<Pid>,
    /// Who is waited for, in words.
    pub on: String,
    /// The address, in the thread's own process, of the object at which the thread waits; empty if there is none.
    pub at: String,
}

/// A driver, or a server that is kept alive like one.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Driver {
    pub name: String,
    pub program: String,
    pub uses: Option<String>,
    /// `running`, `no device`, `being started anew` or `given up`.
    pub state: &'static str,
    /// Why the driver was given up.
    pub why: String,
    /// Its process at `native`; 0 if there is none.
    pub pid: Pid,
    /// How often the driver ended, and how many of these ends were kills by request.
    pub deaths: u32,
    pub wanted: u32,
    pub last: Option<Death>,
    /// The devices and resources that the device server has given it, in words.
    pub has: Vec<String>,
}

/// The last end of a driver.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Death {
    pub at_ns: u64,
    /// The final status, as that of a process.
    pub status: String,
    /// The exception that ended the driver; empty if none did.
    pub why: String,
}

/// An interrupt line.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Line {
    pub line: usize,
    pub shared: bool,
    pub parts: Vec<Part>,
}

/// A driver's share of an interrupt line.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Part {
    pub driver: String,
    /// The PCI function, as `00:04.0`; `None` for the whole line.
    pub function: Option<String>,
    /// Whether it is masked until its driver has acknowledged an interrupt.
    pub masked: bool,
}

/// A PCI function.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Function {
    /// Bus, device and function, as `00:04.0`.
    pub function: String,
    /// Vendor and device, in hexadecimal.
    pub id: String,
    /// Class and subclass, in hexadecimal.
    pub class: String,
    pub line: Option<u8>,
    pub shares: bool,
    /// The driver that has the function.
    pub driver: Option<String>,
}

/// Kernel objects of a process: those of one answer.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Objects {
    pub manager: &'static str,
    pub pid: u32,
    pub objects: Vec<Object>,
    /// The spot to ask for next, as the field `from`; `None` after the last object.
    pub next: Option<String>,
    /// Whether all links between these objects and others are listed.
    pub all_links: bool,
}

/// A kernel object.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Object {
    pub kind: String,
    /// The object's offset in its segment, in hexadecimal, and the segment: `memory` or `control`.
    pub at: String,
    pub segment: &'static str,
    /// The object's state in words.
    pub what: String,
    /// The references that processes have to the object; or, for a reference, the object that it names.
    pub links: Vec<Link>,
}

/// The other end of a reference.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Link {
    pub pid: Pid,
    pub name: String,
    pub at: String,
}

/// Most links in one answer.
pub const MOST_LINKS: usize = 256;

impl Process {
    /// A process, from what its manager says of it.
    #[must_use]
    pub fn new(manager: &'static str, info: Info) -> Self {
        let mut doing = info.doing.into_iter();
        let threads = info.threads.iter().map(|thread| Thread {
            doing: doing.next().unwrap_or_default(),
            instruction: format!("{:#x}", thread.rip),
            stops: thread.stops,
            waits: None,
            waiting: thread.waiting,
            in_exception: thread.exception != 0,
        });
        Process {
            manager,
            pid: info.pid,
            name: info.name,
            status: words(info.status),
            resident_bytes: info.resident,
            objects: info.objects,
            threads: threads.collect(),
        }
    }

    /// Whether it is worth finding out whom its threads wait for. A thread that sleeps, or that waits for clients as a
    /// server, waits for nobody.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.threads.iter().any(Thread::may_wait)
    }
}

impl Thread {
    /// Whether the thread waits for somebody, as far as its state tells.
    fn may_wait(&self) -> bool {
        let waiting = Waiting::from_raw(u64::from(self.waiting)).unwrap_or_default();
        self.in_exception
            || matches!(
                waiting,
                Waiting::Mutex
                    | Waiting::Cond
                    | Waiting::Port
                    | Waiting::Peer
                    | Waiting::Reply
                    | Waiting::Exception
            )
    }
}

impl State {
    /// Notes whom the threads of a native process wait for.
    pub fn add_waits(&mut self, pid: Pid, waits: &[system::Wait]) {
        for wait in waits {
            let on = self.other_end(wait.on);
            let native = |process: &&mut Process| process.manager == "native" && process.pid == pid;
            let process = self.processes.iter_mut().find(native);
            let thread = process.and_then(|p| p.threads.get_mut(wait.thread as usize));
            // Threads may have come and gone since they were listed.
            if let Some(thread) = thread.filter(|thread| thread.may_wait()) {
                thread.waits = Some(Waits {
                    at: match wait.at {
                        0 => String::new(),
                        at => format!("{at:#x}"),
                    },
                    ..on
                });
            }
        }
    }

    fn name(&self, pid: Pid) -> Option<&str> {
        let mut all = self.processes.iter();
        let found = all.find(|process| process.manager == "native" && process.pid == pid);
        found.map(|process| &*process.name)
    }

    fn other_end(&self, on: On) -> Waits {
        let words = match on {
            On::Process(pid) => {
                return Waits {
                    manager: Some("native"),
                    pid: Some(pid),
                    on: self.name(pid).unwrap_or("(it has ended)").to_string(),
                    at: String::new(),
                }
            }
            On::Anybody => "whoever lets it go on (a mutex has no owner)",
            On::Memory => "a page of its memory",
            On::Manager => "init (it has met an exception)",
            On::Init => "init",
            On::Dead => "nobody (what it waits at is dead)",
            // No process of init's manager has the port, the thread's reference is gone, or the search was given up.
            On::Unknown => "somebody who was not found (init, the memory server, or unknown)",
        };
        Waits {
            manager: None,
            pid: None,
            on: words.to_string(),
            at: String::new(),
        }
    }

    /// Notes that Linux threads in a call wait for the Linux personality. For what it waits is in the description of
    /// what the thread is about to do.
    pub fn add_linux_waits(&mut self) {
        let mut all = self.processes.iter();
        let personality =
            all.find(|process| process.manager == "native" && process.name == "linux");
        let waits = Waits {
            manager: personality.map(|_| "native"),
            pid: personality.map(|process| process.pid),
            on: "linux".to_string(),
            at: String::new(),
        };
        for process in self.processes.iter_mut().filter(|p| p.manager == "linux") {
            for thread in process.threads.iter_mut().filter(|t| t.in_exception) {
                thread.waits = Some(waits.clone());
            }
        }
    }

    /// Adds the interrupt lines that drivers have. `lines`: all lines in the order of their numbers.
    pub fn add_lines(&mut self, lines: Vec<device::Line>) {
        let all = lines.into_iter().enumerate();
        let had = all.filter(|(_, line)| !line.parts.is_empty());
        self.lines.extend(had.map(|(number, line)| Line {
            line: number,
            shared: line.shared,
            parts: line.parts.into_iter().map(Part::new).collect(),
        }));
    }
}

impl Part {
    fn new(part: device::LinePart) -> Self {
        Part {
            driver: part.driver,
            function: part.function.map(place),
            masked: part.silenced,
        }
    }
}

impl Function {
    /// A PCI function, from what the device server says of it.
    #[must_use]
    pub fn new(told: device::PciFunction) -> Self {
        Function {
            function: place(told.function),
            id: format!("{:04x}:{:04x}", told.vendor, told.device),
            class: format!("{:04x}", told.class >> 16),
            line: told.line,
            shares: told.shares,
            driver: told.driver,
        }
    }
}

impl Driver {
    /// A driver, from what init says of it and a list of what the device server has given it.
    #[must_use]
    pub fn new(told: system::Driver, has: Vec<String>) -> Self {
        let (state, why) = match told.state {
            DriverState::Running => ("running", String::new()),
            DriverState::Absent => ("no device", String::new()),
            DriverState::Starting => ("being started anew", String::new()),
            DriverState::GivenUp(why) => ("given up", why),
        };
        Driver {
            name: told.name,
            program: told.program,
            uses: told.uses,
            state,
            why,
            pid: told.pid,
            deaths: told.deaths,
            wanted: told.wanted,
            last: told.last.map(|death| Death {
                at_ns: death.at_ns,
                status: words(death.status),
                why: death.why,
            }),
            has,
        }
    }
}

impl Objects {
    /// Objects, from what init says of them. `names` returns the name of a process.
    #[must_use]
    pub fn new(
        pid: Pid,
        (objects, next): (Vec<system::Object>, Option<u64>),
        (links, all_links): (&[system::Link], bool),
        names: impl Fn(Pid) -> String,
    ) -> Self {
        let next = next.map(|spot| format!("{spot:#x}"));
        let objects = objects.into_iter().map(|object| {
            let own = links.iter().filter(|link| link.spot == object.spot);
            let links = own.map(|link| Link {
                pid: link.other,
                name: names(link.other),
                at: spot(link.at).0,
            });
            let (at, segment) = spot(object.spot);
            Object {
                links: links.collect(),
                kind: object.kind,
                at,
                segment,
                what: object.what,
            }
        });
        Objects {
            manager: "native",
            pid,
            objects: objects.collect(),
            next,
            all_links,
        }
    }
}

/// A spot as an offset in hexadecimal and the segment that it is in.
fn spot(spot: u64) -> (String, &'static str) {
    use services::process::IN_MEMORY;
    match spot & IN_MEMORY {
        0 => (format!("{spot:#x}"), "control"),
        _ => (format!("{:#x}", spot & !IN_MEMORY), "memory"),
    }
}

/// The address of a PCI function as people write it.
fn place(function: u16) -> String {
    let (bus, device, function) = (function >> 8, function >> 3 & 31, function & 7);
    format!("{bus:02x}:{device:02x}.{function}")
}

fn words(status: Status) -> String {
    match status {
        Status::Running => "running".into(),
        Status::Stopped => "stopped".into(),
        Status::Exited(status) => format!("exited {status}"),
        Status::Killed(signal) => format!("killed by signal {signal}"),
    }
}
