//! Decisions of init that need no kernel call: the command line ([`Options`]), the boot manifest ([`manifest`]), the
//! division of memory ([`Frames`]), the part of a native program in an image ([`Part`]), and [`line()`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod wanted;

use abi::boot::PhysRange;
use abi::{Exception, PAGE_SIZE};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use proto::layout::{PRIORITY_FILES, PRIORITY_PROGRAM, PRIORITY_SERVER, PRIORITY_SHELL};
use serde::{Deserialize, Serialize};
use services::names::{MAX_JOB_NAMES, RESERVED};
use services::system::{Death, DriverState};

/// A driver of the boot manifest, or a server that is kept alive like one.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The path of the program in the boot archive.
    pub program: &'static str,
    /// The reserved name of the service that it offers, and what it may ask the device server for
    /// (`servers/device/src/manifest.rs` describes the format).
    pub line: &'static str,
    /// The driver whose service this server uses. The server is started when that driver is, whatever devices there
    /// are, and may control it.
    pub uses: Option<&'static str>,
    /// The priority of its first thread.
    pub priority: u64,
    /// Whether it is given the system port; it offers no service then.
    pub system: bool,
    /// The highest priority of its threads. A driver that never rests, or never acknowledges an interrupt, takes the
    /// processor from everybody below this priority.
    pub ceiling: u64,
}

impl Driver {
    /// Whether it may have a channel for ISA DMA.
    #[must_use]
    pub fn has_channel(&self) -> bool {
        self.line
            .split_ascii_whitespace()
            .any(|word| word.starts_with("channel="))
    }

    /// The name of the service.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.line.split(' ').next().unwrap_or_default()
    }
}

/// The drivers that every machine may have. [`manifest`] adds those that the boot archive names.
pub const DRIVERS: [Driver; 6] = [
    Driver {
        program: "sbin/console",
        line: "console ports=3f8+8 line=4",
        uses: None,
        system: false,
        priority: PRIORITY_FILES,
        ceiling: PRIORITY_FILES + 1,
    },
    Driver {
        program: "sbin/virtio-blk",
        line: "disk pci=1af4:1001 pci=1af4:1042 dma=400000",
        uses: None,
        system: false,
        priority: PRIORITY_SERVER,
        ceiling: PRIORITY_SERVER + 1,
    },
    Driver {
        program: "sbin/ext4",
        line: "ext4",
        uses: Some("disk"),
        system: false,
        priority: PRIORITY_FILES,
        ceiling: PRIORITY_FILES + 1,
    },
    Driver {
        program: "sbin/virtio-net",
        line: "link pci=1af4:1000 pci=1af4:1041 dma=60000",
        uses: None,
        system: false,
        priority: PRIORITY_SERVER,
        ceiling: PRIORITY_SERVER + 1,
    },
    Driver {
        program: "sbin/virtio-rng",
        line: "entropy pci=1af4:1005 pci=1af4:1044 dma=8000",
        uses: None,
        system: false,
        // Nobody waits for the driver's service.
        priority: PRIORITY_PROGRAM,
        ceiling: PRIORITY_PROGRAM,
    },
    Driver {
        program: "sbin/network",
        line: "net",
        uses: Some("link"),
        system: false,
        // Input from the network is handled in turn with programs, however much of it there is.
        priority: PRIORITY_PROGRAM,
        ceiling: PRIORITY_PROGRAM,
    },
];

/// The debugger's server, for a machine that is started with the word `gdb`.
pub const DEBUGGER: Driver = Driver {
    program: "sbin/gdb",
    line: "gdb ports=2e8+8 line=7",
    uses: None,
    system: true,
    // The server must get a turn beside programs that compute.
    priority: PRIORITY_SHELL,
    ceiling: PRIORITY_SHELL,
};

/// The drivers in whose place the boot archive can name another program.
const REPLACED: [&str; 2] = ["disk", "link"];

/// The name of the sound driver, which only the boot archive can add. The driver gets the priority of servers, since
/// playback has gaps if the driver does not run in time.
const SOUND: &str = "sound";

/// The boot manifest: [`DRIVERS`], [`DEBUGGER`] if `debugger` says so, and the lines of the boot archive's
/// `etc/drivers` (`added`). Such a line is `PROGRAM NAME WORDS...`, where name and words are a [`Driver::line`]. A line
/// for `disk` or `link` replaces the program and line of that driver. Every other line adds a driver, with the priority
/// of programs and handlers one above it; the driver for `sound` has the priority of servers. Lines of another form,
/// and lines with a name that is taken, are left out. A driver's number is its index in the result.
#[must_use]
pub fn manifest(added: &'static str, debugger: bool) -> Vec<Driver> {
    let mut drivers = DRIVERS.to_vec();
    drivers.extend(debugger.then_some(DEBUGGER));
    for line in added.lines() {
        let Some((program, line)) = line.split_once(' ') else {
            continue;
        };
        let mut driver = Driver {
            program,
            line,
            uses: None,
            system: false,
            priority: PRIORITY_PROGRAM,
            // The handlers of a driver that is made with the kit have a higher priority than its process-level thread.
            ceiling: PRIORITY_PROGRAM + 1,
        };
        let name = driver.name();
        if name == SOUND {
            driver.priority = PRIORITY_SERVER;
            driver.ceiling = PRIORITY_SERVER + 1;
        }
        let replaced = drivers.iter().position(|other| other.name() == name);
        match replaced.filter(|_| REPLACED.contains(&name)) {
            Some(number) => {
                drivers[number].program = program;
                drivers[number].line = line;
            }
            None if name == SOUND && replaced.is_none() => drivers.push(driver),
            None if !name.is_empty() && !is_reserved(name, &drivers) => drivers.push(driver),
            None => {}
        }
    }
    drivers
}

/// Whether only the server of this name may register it.
#[must_use]
pub fn is_reserved(name: &str, manifest: &[Driver]) -> bool {
    RESERVED.contains(&name) || manifest.iter().any(|driver| driver.name() == name)
}

/// Servers that are in no manifest, and the one driver that each uses.
const USERS: [(&str, &str); 1] = [("random", "entropy")];

/// Whether a process that offers this `service`, or is this driver, may control the driver with this name.
#[must_use]
pub fn may_control(service: Option<&str>, driver: Option<&Driver>, name: &str) -> bool {
    let uses = driver.is_some_and(|driver| driver.uses == Some(name));
    uses || USERS
        .iter()
        .any(|user| (service, name) == (Some(user.0), user.1))
}

/// Memory that devices reach: one part in this many of the free memory, and at most this many bytes.
const POOL_PART: u64 = 64;
const POOL_MOST: u64 = 4 << 20;

/// Memory that channels of ISA DMA reach, a pool of its own below 16 MB: its size, and the distance of the boundaries
/// that a channel's transfer cannot cross, at one of which it begins.
const LOW_POOL: u64 = 0x4_0000;
const LOW_BOUNDARY: u64 = 0x1_0000;
const LOW_END: u64 = 16 << 20;

/// Most unwanted deaths of a driver within [`DEATHS_TIME`]; with one more, init gives the driver up.
const DEATHS: usize = 5;
/// The time in which [`DEATHS`] are counted, in nanoseconds.
const DEATHS_TIME: u64 = 10_000_000_000;

/// The times of a driver's recent deaths, without those that somebody wanted.
#[derive(Clone, Debug, Default)]
pub struct Deaths(Vec<u64>);

impl Deaths {
    /// Adds a death. Returns whether the driver is to be given up.
    pub fn add(&mut self, now: u64) -> bool {
        self.0.retain(|then| now - then.min(&now) < DEATHS_TIME);
        self.0.push(now);
        self.0.len() > DEATHS
    }
}

/// The deaths of a driver and whether it was given up, for people.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// How often it has ended.
    pub deaths: u32,
    /// How many of these deaths were kills by request.
    pub wanted: u32,
    /// The last death.
    pub last: Option<Death>,
    given_up: Option<String>,
}

impl History {
    /// Notes a death. `wanted`: whether somebody killed the driver.
    pub fn died(&mut self, death: Death, wanted: bool) {
        self.deaths = self.deaths.saturating_add(1);
        self.wanted = self.wanted.saturating_add(u32::from(wanted));
        self.last = Some(death);
    }

    /// Notes that the driver is not started any more, and why.
    pub fn give_up(&mut self, why: String) {
        self.given_up = Some(why);
    }

    /// The driver's state. `runs`: whether it has a process.
    #[must_use]
    pub fn state(&self, runs: bool) -> DriverState {
        match (&self.given_up, &self.last) {
            _ if runs => DriverState::Running,
            (Some(why), _) => DriverState::GivenUp(why.clone()),
            (None, Some(_)) => DriverState::Starting,
            (None, None) => DriverState::Absent,
        }
    }
}

/// The words of the kernel's command line that concern init.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Run this script and power the machine off.
    pub script: Option<String>,
    /// The machine is deterministic: its clock counts instructions.
    pub deterministic: bool,
    /// Write the log to the control channel.
    pub verbose: bool,
    /// Start the debugger's server, and give it the system port.
    pub gdb: bool,
    /// Make the Linux personality log each call.
    pub trace: bool,
    /// Run the tests instead of a shell.
    pub test: bool,
    /// Run the test of cuts at every site, with these arguments. It needs a kernel with the probe.
    pub cut: Option<Vec<String>>,
    /// Run only the tests with this in their names.
    pub filter: Option<String>,
    /// Kernel memory that each native program may use, in percent of the machine's.
    pub program_quota: Option<u64>,
    /// The highest priority that a native program can give its threads.
    pub program_ceiling: Option<u64>,
    /// The machine's network address and prefix length, as `10.0.0.1/24`; init passes it on unread.
    pub address: Option<String>,
    /// Services (by name, or `all`) and programs of the boot archive (by path), and whether each runs collocated in the
    /// kernel's rings. See [`is_placed`].
    pub places: Vec<(String, bool)>,
}

impl Options {
    /// Reads a command line. Unknown words are ignored, since they are meant for others.
    #[must_use]
    pub fn new(command_line: &str) -> Self {
        let mut options = Options::default();
        for word in command_line.split_ascii_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("script", path) => options.script = Some(path.to_string()),
                ("deterministic", "") => options.deterministic = true,
                ("verbose", "") => options.verbose = true,
                ("gdb", "") => options.gdb = true,
                ("trace", "") => options.trace = true,
                ("program-quota", percent) => {
                    options.program_quota = percent.parse().ok().filter(|p| (1..=100).contains(p));
                }
                ("program-ceiling", most) => {
                    let valid = |most: &u64| *most < abi::PRIORITIES.into();
                    options.program_ceiling = most.parse().ok().filter(valid);
                }
                ("place", places) => {
                    let placed = places.split(',').filter_map(|one| one.split_once('='));
                    let placed = placed.map(|(name, place)| (name.to_string(), place == "kernel"));
                    options.places.extend(placed);
                }
                ("address", address) => options.address = Some(address.to_string()),
                ("test", "") => options.test = true,
                ("cut", arguments) => {
                    let arguments = arguments.split(';').filter(|a| !a.is_empty());
                    options.cut = Some(arguments.map(str::to_string).collect());
                }
                ("filter", text) => {
                    options.test = true;
                    options.filter = Some(text.to_string());
                }
                _ => {}
            }
        }
        options
    }
}

/// Whether a service, or the program at a path that begins with a slash, runs in the kernel's rings: the last entry
/// that concerns it counts. `all` stands for all services.
#[must_use]
pub fn is_placed(places: &[(String, bool)], name: &str) -> bool {
    let concerns = |line: &str| line == name || line == "all" && !name.starts_with('/');
    let last = places.iter().rfind(|(line, _)| concerns(line));
    last.is_some_and(|(_, in_kernel)| *in_kernel)
}

/// The range of places among the collocated spaces from which a service, or else a program, gets one. The first places
/// are for services alone, as many as there can be placed services, so that a service that has died finds a place again
/// however many programs are started.
#[must_use]
pub fn places_of(service: bool, places: &[(String, bool)], manifest: &[Driver]) -> Range<u64> {
    /// Services that always run in processes.
    const NEVER: [&str; 3] = ["names", "memory", "native"];
    let count = abi::collocated::COUNT;
    if service {
        return 0..count;
    }
    let added = manifest.iter().map(Driver::name);
    let added = added.filter(|name| !RESERVED.contains(name));
    let reserved = RESERVED
        .iter()
        .copied()
        .filter(|name| !NEVER.contains(name));
    let kept = reserved.chain(added).filter(|name| is_placed(places, name));
    (kept.count() as u64).min(count)..count
}

/// Physical memory before there is a memory server: handed out page by page, never taken back.
#[derive(Clone, Debug)]
pub struct Frames {
    ranges: Vec<PhysRange>,
}

impl Frames {
    /// The whole pages of these ranges.
    #[must_use]
    pub fn new(ranges: &[PhysRange]) -> Self {
        let whole = |range: &PhysRange| {
            let start = range.start.checked_next_multiple_of(PAGE_SIZE)?;
            let end = range.start.checked_add(range.size)? / PAGE_SIZE * PAGE_SIZE;
            (start < end).then_some(PhysRange {
                start,
                size: end - start,
            })
        };
        Frames {
            ranges: ranges.iter().filter_map(whole).collect(),
        }
    }

    /// Takes `size` bytes (rounded up to pages) from the start of the largest range.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(PAGE_SIZE)?;
        let range = self.ranges.iter_mut().max_by_key(|range| range.size)?;
        if range.size < size {
            return None;
        }
        let start = range.start;
        range.start += size;
        range.size -= size;
        Some(start)
    }

    /// Takes the memory that devices reach, from the lowest range that has room for it: start and size. `None` if there
    /// is too little.
    pub fn take_pool(&mut self) -> Option<(u64, u64)> {
        let size = (self.total() / POOL_PART).min(POOL_MOST) / PAGE_SIZE * PAGE_SIZE;
        let fits = |range: &&mut PhysRange| range.size >= size && size > 0;
        let lowest = self.ranges.iter_mut().filter(fits);
        let range = lowest.min_by_key(|range| range.start)?;
        let start = range.start;
        range.start += size;
        range.size -= size;
        Some((start, size))
    }

    /// Takes the memory that channels of ISA DMA reach: start and size. `None` if there is too little.
    pub fn take_low(&mut self) -> Option<(u64, u64)> {
        let found = self.ranges.iter_mut().find_map(|range| {
            let start = range.start.checked_next_multiple_of(LOW_BOUNDARY)?;
            let (end, end_of_range) = (start.checked_add(LOW_POOL)?, range.start + range.size);
            (end <= end_of_range && end <= LOW_END).then_some((range, start))
        });
        let (range, start) = found?;
        let behind = PhysRange {
            start: start + LOW_POOL,
            size: range.start + range.size - start - LOW_POOL,
        };
        range.size = start - range.start;
        self.ranges.push(behind);
        self.ranges.retain(|range| range.size > 0);
        Some((start, LOW_POOL))
    }

    /// The ranges that are left.
    #[must_use]
    pub fn rest(&self) -> &[PhysRange] {
        &self.ranges
    }

    /// The number of bytes that are left.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|range| range.size).sum()
    }
}

/// Init's part of a native program in an image: what init knows of the program beside its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The name of the process.
    pub name: String,
    /// Whether the process was stopped by `stop`.
    pub stopped: bool,
    /// The names under which its ports are registered, and the addresses of these ports in its memory.
    pub names: Vec<(String, u64)>,
}

/// The first byte of an encoded part, which identifies this format.
const PART_FORM: u8 = 3;

/// Most bytes of an encoded part: more than the most names that a job can have, each of the greatest length, take. A
/// job may have [`services::process::MAX_JOB`] parts waiting in init's memory.
pub const MAX_PART: u64 = 8 * 1024;

impl Part {
    /// Encodes the part.
    pub fn to_bytes(&self) -> Result<Vec<u8>, proto::Error> {
        postcard::to_allocvec(&(PART_FORM, self)).map_err(|_| proto::Error::NoMemory)
    }

    /// Decodes a part from an image, whose bytes are hostile.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, proto::Error> {
        match postcard::take_from_bytes::<(u8, Part)>(bytes) {
            Ok(((PART_FORM, part), [])) if part.names.len() <= MAX_JOB_NAMES => Ok(part),
            _ => Err(proto::Error::BadFormat),
        }
    }
}

/// Whether a process may register this name: a reserved one only if the process offers the `service` of that name.
#[must_use]
pub fn may_have(name: &str, service: Option<&str>, manifest: &[Driver]) -> bool {
    !is_reserved(name, manifest) || service == Some(name)
}

/// Text as one line: control characters and what is not UTF-8 are replaced.
#[must_use]
pub fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\n')
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Whether an exception of a collocated thread is an access to the kernel's memory. Such a stray pointer may have
/// overwritten anything of the kernel's before, so nothing can be relied on any more.
#[must_use]
pub fn met_kernel(code: u64, address: u64) -> bool {
    code == Exception::Memory as u64 && address >> 63 != 0
}

/// The line that reports such an access, for people and for xtask, which adds the function and the source line.
#[must_use]
pub fn kernel_line(name: &str, address: u64, rip: u64) -> String {
    line(format!("{name}: kernel address {address:#x} at {rip:#x}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{
        is_placed, kernel_line, line, manifest, may_control, may_have, met_kernel, places_of,
        Death, Deaths, Driver, DriverState, Frames, History, Options, Part, DEATHS, DEATHS_TIME,
        DRIVERS, PRIORITY_PROGRAM, PRIORITY_SERVER,
    };
    use abi::boot::PhysRange;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn the_command_line() {
        let options = Options::new("interrupt-np script=/etc/script  deterministic foo=bar");
        assert_eq!(options.script.as_deref(), Some("/etc/script"));
        assert!(options.deterministic && !options.test && !options.verbose);
        assert_eq!(Options::new("filter=ipc").filter.as_deref(), Some("ipc"));
        assert!(Options::new("filter=ipc").test);
        assert!(Options::new("trace").trace && !Options::new("verbose").trace);
        assert_eq!(Options::new("program-quota=40").program_quota, Some(40));
        assert_eq!(Options::new("program-quota=101").program_quota, None);
        let ceiling = |text| Options::new(text).program_ceiling;
        assert_eq!(ceiling("program-ceiling=31"), Some(31));
        assert_eq!(ceiling("program-ceiling=32"), None);
        let options = Options::new("address=10.0.0.1/24");
        assert_eq!(options.address.as_deref(), Some("10.0.0.1/24"));
        assert_eq!(Options::new(""), Options::default());
    }

    #[test]
    fn what_is_placed_is_what_the_last_line_says() {
        let placed = |word: &str, name: &str| is_placed(&Options::new(word).places, name);
        for (word, name, is) in [
            ("", "fs", false),
            ("place=fs=kernel", "fs", true),
            ("place=fs=kernel", "linux", false),
            ("place=fs=kernel", "f", false),
            ("place=fs=process", "fs", false),
            ("place=fs=kernels", "fs", false),
            ("place=all=kernel", "fs", true),
            ("place=all=kernel,linux=process", "linux", false),
            ("place=all=kernel,linux=process", "fs", true),
            ("place=linux=process,all=kernel", "linux", true),
            ("place=fs=kernel place=fs=process", "fs", false),
            ("place=/bin/hello=kernel", "/bin/hello", true),
            ("place=/bin/hello=kernel", "hello", false),
            // `all` stands for services only, and a program is not a service, whatever its name.
            ("place=all=kernel", "/bin/hello", false),
            ("place=hello=kernel", "/bin/hello", false),
        ] {
            assert_eq!(
                placed(word, name),
                is,
                "S2: {name:?} by {word:?} is in the kernel"
            );
        }
    }

    #[test]
    fn programs_leave_the_places_of_services() {
        let edu = manifest("test/edu edu pci=1234:11e8", true);
        for (word, first) in [
            ("", 0),
            ("place=/bin/hello=kernel", 0),
            ("place=fs=kernel,/bin/hello=kernel", 1),
            ("place=all=kernel", 12),
            ("place=all=kernel,linux=process", 11),
        ] {
            let places = Options::new(word).places;
            let (own, all) = (
                places_of(false, &places, &DRIVERS),
                places_of(true, &places, &DRIVERS),
            );
            assert_eq!((own, all), (first..16, 0..16), "S1: {word:?}");
        }
        // The debugger's server and the archive's driver count, too.
        let places = Options::new("place=all=kernel").places;
        assert_eq!(
            places_of(false, &places, &edu),
            14..16,
            "S1: added services count"
        );
    }

    #[test]
    fn frames_come_from_the_largest_range() {
        let mut frames = Frames::new(&[
            PhysRange {
                start: 0x1001,
                size: 0x2fff,
            },
            PhysRange {
                start: 0x10_0000,
                size: 0x8000,
            },
            PhysRange {
                start: u64::MAX - 3,
                size: 3,
            },
            PhysRange {
                start: 0x20_0800,
                size: 0x1000,
            },
        ]);
        assert_eq!(frames.total(), 0x2000 + 0x8000);
        assert_eq!(frames.take(0x1001), Some(0x10_0000));
        assert_eq!(frames.take(0x7000), None);
        assert_eq!(frames.take(0x6000), Some(0x10_2000));
        assert_eq!(frames.take(0x1000), Some(0x2000));
        assert_eq!(frames.total(), 0x1000);
    }

    #[test]
    fn devices_reach_memory_as_far_down_as_there_is_room() {
        let range = |start, size| PhysRange { start, size };
        let mut frames = Frames::new(&[
            range(1 << 32, 1 << 30),
            range(0x20_0000, 0x40_0000),
            range(0x1000, 0x9_0000),
        ]);
        let total = frames.total();
        let pool = frames.take_pool();
        assert_eq!(
            pool,
            Some((0x20_0000, 0x40_0000)),
            "S2: the lowest that fits"
        );
        assert_eq!(frames.total(), total - 0x40_0000);
        let mut small = Frames::new(&[range(0, 0x100_0000)]);
        assert_eq!(small.take_pool(), Some((0, 0x4_0000)), "a small machine");
        assert_eq!(Frames::new(&[range(0, 0x1000)]).take_pool(), None);
    }

    #[test]
    fn channels_reach_memory_that_is_far_down() {
        let range = |start, size| PhysRange { start, size };
        let mut frames = Frames::new(&[
            range(0x1000, 0x4_e000),
            range(0x10_1000, 0x10_0000),
            range(0x200_0000, 0x1000_0000),
        ]);
        let total = frames.total();
        assert_eq!(frames.take_low(), Some((0x11_0000, 0x4_0000)));
        assert_eq!(frames.total(), total - 0x4_0000, "memory is lost");
        assert_eq!(frames.take_low(), Some((0x15_0000, 0x4_0000)));
        assert_eq!(frames.take_low(), Some((0x19_0000, 0x4_0000)));
        assert_eq!(frames.take_low(), None, "S2: beyond what a channel reaches");
        let rest = frames.rest().iter().map(|r| (r.start, r.size));
        let rest: alloc::vec::Vec<(u64, u64)> = rest.collect();
        let expected = [
            (0x1000, 0x4_e000),
            (0x10_1000, 0xf000),
            (0x200_0000, 0x1000_0000),
            (0x1d_0000, 0x3_1000),
        ];
        assert_eq!(rest, expected);
        let mut far = Frames::new(&[
            range(0xfd_0000, 0x100_0000),
            range(u64::MAX - 0x2000, 0x1000),
        ]);
        assert_eq!(far.take_low(), None);
    }

    #[test]
    fn a_driver_that_dies_again_and_again_is_given_up() {
        let mut deaths = Deaths::default();
        assert!((0..DEATHS as u64).all(|now| !deaths.add(now)));
        let mut later = deaths.clone();
        let given_up = deaths.add(DEATHS_TIME - 1);
        assert!(given_up, "S1: a driver dies for ever");
        assert!(!later.add(DEATHS_TIME + 5), "all others are long ago");
        assert!(!later.add(0), "a clock that goes back");
    }

    #[test]
    fn what_became_of_a_driver_is_kept() {
        let mut history = History::default();
        assert_eq!(history.state(false), DriverState::Absent);
        assert_eq!(history.state(true), DriverState::Running);
        let death = |at_ns| Death {
            at_ns,
            status: services::process::Status::Killed(11),
            why: "bad access".to_string(),
        };
        history.died(death(1), false);
        assert_eq!(history.state(false), DriverState::Starting);
        history.died(death(2), true);
        assert_eq!((history.deaths, history.wanted), (2, 1));
        assert_eq!(history.last, Some(death(2)));
        history.give_up("it ended".to_string());
        assert_eq!(
            history.state(false),
            DriverState::GivenUp("it ended".to_string())
        );
    }

    #[test]
    fn services_of_drivers_have_reserved_names() {
        assert_eq!(
            DRIVERS.map(|driver| Driver::name(&driver)),
            ["console", "disk", "ext4", "link", "entropy", "net"]
        );
        let is_reserved = |driver: &Driver| services::names::RESERVED.contains(&driver.name());
        assert!(DRIVERS.iter().all(is_reserved));
    }

    #[test]
    fn reserved_names_are_for_who_offers_the_service() {
        let manifest = manifest("test/edu edu pci=1234:11e8", false);
        assert!(may_have("own", None, &manifest));
        for name in ["fs", "edu"] {
            assert!(may_have(name, Some(name), &manifest));
            for service in [None, Some("net"), Some("f"), Some("fs2")] {
                let denied = !may_have(name, service, &manifest);
                assert!(denied, "S2: {service:?} has the name of the server {name}");
            }
        }
        assert!(may_have("edu", None, &DRIVERS), "it is nobody's");
    }

    #[test]
    fn drivers_are_controlled_by_who_uses_them() {
        let named = |name: &str| DRIVERS.iter().find(|driver| driver.name() == name);
        for (service, driver, name) in [
            (Some("random"), None, "entropy"),
            (Some("ext4"), named("ext4"), "disk"),
            (Some("net"), named("net"), "link"),
        ] {
            assert!(may_control(service, driver, name), "{service:?}, {name}");
        }
        for name in ["entropy", "disk", "link", "random", "fs"] {
            assert!(!may_control(None, None, name), "a program, {name}");
            for service in ["linux", "fs", "entropy", "checkpoint"] {
                let may = may_control(Some(service), named(service), name);
                assert!(!may, "S2: {service} has power over {name}");
            }
        }
        assert!(!may_control(Some("random"), None, "disk"));
        assert!(!may_control(Some("net"), named("net"), "entropy"));
    }

    #[test]
    fn the_archive_adds_drivers() {
        let count = DRIVERS.len();
        assert_eq!(manifest("", false).len(), count);
        let added = manifest(
            "test/edu edu pci=1234:11e8 line=5\ntest/edu edu2 dma=1000\n",
            false,
        );
        let [first, second] = &added[count..] else {
            panic!("two are added: {added:?}");
        };
        assert_eq!((first.program, first.name()), ("test/edu", "edu"));
        assert_eq!(first.line, "edu pci=1234:11e8 line=5");
        assert_eq!(
            (second.name(), second.ceiling),
            ("edu2", PRIORITY_PROGRAM + 1)
        );
        for wrong in ["test/edu", "\n", "test/edu fs", "test/edu net", "test/edu "] {
            assert_eq!(manifest(wrong, false).len(), count, "{wrong:?}");
        }
        let other = manifest("sbin/e100 link pci=8086:1229 dma=140000", false);
        assert_eq!(other.len(), count, "another driver of the network card");
        let number = other.iter().position(|driver| driver.name() == "link");
        let other = number.map(|number| other[number]);
        assert!(other.is_some_and(|other| other.program == "sbin/e100"
            && other.line == "link pci=8086:1229 dma=140000"
            && other.priority == PRIORITY_SERVER));
        assert_eq!(
            manifest("sbin/e100 console ports=3f8+8", false)[0].program,
            "sbin/console"
        );
        let sound = manifest("sbin/sb16 sound channel=5\nx sound\n", false);
        let [card] = &sound[count..] else {
            panic!("one card: {sound:?}");
        };
        let as_servers = (PRIORITY_SERVER, PRIORITY_SERVER + 1);
        assert_eq!((card.priority, card.ceiling), as_servers);
        assert!(card.has_channel() && !other.is_some_and(|other| other.has_channel()));
        assert!(
            crate::is_reserved("sound", &DRIVERS),
            "S2: a program without a card"
        );
        assert_eq!(
            manifest("a b\nc b", false).len(),
            count + 1,
            "one name, two drivers"
        );
    }

    #[test]
    fn parts_of_images() {
        let part = Part {
            name: "demo".to_string(),
            stopped: true,
            names: vec![("demo-service".to_string(), 0x1000_0020)],
        };
        let mut bytes = part.to_bytes().unwrap();
        assert_eq!(Part::from_bytes(&bytes), Ok(part));
        for length in 0..bytes.len() {
            assert!(Part::from_bytes(&bytes[..length]).is_err());
        }
        bytes.push(0);
        let longer = Part::from_bytes(&bytes);
        assert!(longer.is_err(), "S3: a part with more behind it is taken");
        bytes.pop();
        bytes[0] = 9;
        assert!(Part::from_bytes(&bytes).is_err());
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(line(b"test a ... ok\n"), "test a ... ok");
        let forged = line(b"a\nexit 0\r");
        assert_eq!(forged, "a exit 0 ", "S2: a line that a program forges");
        assert_eq!(line(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn a_stray_pointer_into_the_kernel_is_told_from_others() {
        let memory = abi::Exception::Memory as u64;
        let kernel = 0xffff_8000_0000_0000;
        for (code, address, is_kernels) in [
            (memory, kernel, true),
            (memory, u64::MAX, true),
            (memory, 0, false),
            (memory, abi::USER_END, false),
            (memory, abi::collocated::START, false),
            (abi::Exception::NoObject as u64, kernel, false),
            (abi::Exception::Protection as u64, kernel, false),
        ] {
            assert_eq!(met_kernel(code, address), is_kernels, "{code} {address:#x}");
        }
        // Programs choose the names of processes.
        assert_eq!(
            kernel_line("a\nexit 0", kernel, 7),
            "a exit 0: kernel address 0xffff800000000000 at 0x7"
        );
    }
}
