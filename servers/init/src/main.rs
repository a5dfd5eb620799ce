//! The first program. README.md lists what it starts, in order.
#![no_std]
#![no_main]

extern crate alloc;

mod control;
mod drivers;
mod first;
mod keeper;
mod names;
mod native;
mod reader;
mod slow;

use abi::access::{OBJECTS, READ, WRITE};
use abi::boot::{
    BootInfo, AUTHORITY, BOOT_INFO, BOOT_MAPPINGS, FIRST_MAPPING, MAGIC, MAX_RANGES, ROOT_SPACE,
    ROOT_THREAD,
};
use abi::state::{MappingState, RegionState};
use abi::{OBJECT_SIZE, PAGE_SIZE};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use archive::{Kind, Member, Members};
use core::iter;
use drivers::Drivers;
use fermata_init::{Driver, Frames, Options};
use first::ROOT;
use native::{complaint, Collocated, Launch, Manager, Processes, Serving};
use proto::layout::{
    HEAP_START, PRIORITY_FILES, PRIORITY_MEMORY, PRIORITY_PROGRAM, PRIORITY_SERVER, PRIORITY_SHELL,
};
use rt::obj::{MappingAt, Portset, Ref, RefAt, Region, SpaceAt, ThreadAt};
use rt::window::Window;
use rt::{thread, time, Code};
use services::process::Start;

rt::program!();

/// Init's heap is one part in this many of the largest range of free memory, within the two limits that follow. It is
/// taken before the memory server runs.
const HEAP_PART: u64 = 16;
const HEAP_LEAST: u64 = 2 << 20;
const HEAP_MOST: u64 = 16 << 20;
/// Bytes of the heap for object slots.
const HEAP_SLOTS: u64 = 512 << 10;
/// Init's priority: above that of its clients.
const PRIORITY: u64 = PRIORITY_SERVER + 1;
/// How long a server may take to register its name, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;

#[no_mangle]
extern "C" fn fermata_main() -> ! {
    rt::panic::set_hook(|info| {
        control::write(&[format!(
            "panic init: {}\n",
            fermata_init::line(info.to_string().as_bytes())
        )
        .as_bytes()]);
        control::end();
    });
    if open_control().is_none() {
        control::end();
    }
    // SAFETY: boot has written the structure there, and nobody changes it.
    let info = unsafe { &*(BOOT_INFO as *const BootInfo) };
    let count = (info.range_count as usize).min(MAX_RANGES);
    // The heap is made first; nothing before this line may allocate.
    let ranges = if info.magic == MAGIC {
        heap(&info.ranges[..count])
    } else {
        None
    };
    let Some(ranges) = ranges else {
        control::write(&[b"panic init: there is too little memory\n"]);
        control::end();
    };
    if let Err(why) = start(info, Frames::new(&ranges)) {
        control::write(&[b"panic init: ", why.as_bytes(), b"\n"]);
    }
    control::end()
}

/// The address of init's own object with this index in the boot page, behind the mappings that boot made.
const fn own(index: u64) -> u64 {
    FIRST_MAPPING + (BOOT_MAPPINGS + index) * OBJECT_SIZE
}

/// Gets the I/O ports of the control channel, without allocating memory.
fn open_control() -> Option<()> {
    let space = RefAt(own(0));
    space.create().ok()?;
    SpaceAt(ROOT_SPACE).reference_into(space).ok()?;
    control::open(RefAt(AUTHORITY), space).ok()
}

/// Makes the heap from the start of the largest range, and returns the ranges without it.
fn heap(ranges: &[abi::boot::PhysRange]) -> Option<Vec<abi::boot::PhysRange>> {
    let (index, range) = ranges
        .iter()
        .enumerate()
        .max_by_key(|(_, range)| range.size)?;
    let physical = range.start.checked_next_multiple_of(PAGE_SIZE)?;
    let size = (range.size / HEAP_PART)
        .clamp(HEAP_LEAST, HEAP_MOST)
        .next_multiple_of(PAGE_SIZE);
    let end = range.start + range.size;
    if physical + size > end {
        return None;
    }
    let mapping = MappingAt(own(1));
    mapping.create().ok()?;
    let state = MappingState {
        start: HEAP_START,
        size,
        offset: physical,
        protection: READ | WRITE | OBJECTS,
    };
    mapping.set_state(&state, ROOT.0, 0).ok()?;
    // SAFETY: free memory that is mapped here and nowhere else; there are no other threads and
    // there was no allocation.
    unsafe {
        core::ptr::write_bytes(HEAP_START as *mut u8, 0, size as usize);
        rt::heap::init(HEAP_START, HEAP_START + size, HEAP_SLOTS, HEAP_START + size);
    }
    let mut ranges = ranges.to_vec();
    ranges[index] = abi::boot::PhysRange {
        start: physical + size,
        size: end - physical - size,
    };
    Some(ranges)
}

/// The content of a file of the boot archive.
fn find<'a>(archive: &'a [u8], path: &str) -> Option<&'a [u8]> {
    let is = |member: &Member<'_>| member.header.kind == Kind::File && member.is_at(path);
    let mut members = Members::new(archive).filter_map(Result::ok);
    members.find(is).map(|member| member.content)
}

/// The content of a program of the boot archive, by its path from the root.
fn find_program<'a>(archive: &'a [u8], path: &str) -> Option<&'a [u8]> {
    let path = path.trim_start_matches('/');
    // `/bin` is a link to `/usr/bin`.
    find(archive, path).or_else(|| find(archive, &["usr/", path].concat()))
}

fn words(code: Code) -> String {
    format!("{code:?}")
}

/// Starts all servers and programs, then serves as their manager.
fn start(info: &BootInfo, mut frames: Frames) -> Result<(), String> {
    let authority = RefAt(AUTHORITY);
    let length = (info.command_line_len as usize).min(info.command_line.len());
    let options = Options::new(&String::from_utf8_lossy(&info.command_line[..length]));
    let own_thread = ThreadAt(ROOT_THREAD);
    own_thread.set_priority(PRIORITY).map_err(words)?;
    keeper::start(PRIORITY).map_err(words)?;
    if options.test && !keeper::works() {
        return Err("init does not get its own exceptions".to_string());
    }

    // Maps the boot archive for as long as init runs.
    let offset = info.archive.start % PAGE_SIZE;
    let window = Window::map(
        &ROOT,
        info.archive.start - offset,
        (offset + info.archive.size).next_multiple_of(PAGE_SIZE),
        READ,
    )
    .map_err(|error| format!("the boot archive cannot be mapped: {}", error.text()))?;
    // SAFETY: mapped for as long as init runs, and nobody writes to it.
    let archive: &'static [u8] = unsafe {
        core::slice::from_raw_parts(
            (window.address() + offset) as *const u8,
            info.archive.size as usize,
        )
    };
    let window: &'static Window = Box::leak(Box::new(window));
    // A program that was to run in the kernel's rings must not run as a process unnoticed.
    for (path, _) in options
        .places
        .iter()
        .filter(|(path, _)| path.starts_with('/'))
    {
        let file = find_program(archive, path);
        let file =
            file.ok_or_else(|| format!("{path} cannot be placed: it is not in the boot archive"))?;
        if !process::executable::is_native(file) {
            return Err(format!(
                "{path} cannot be placed: it is not a program for Fermata"
            ));
        }
    }
    drivers::read_manifest(archive, options.gdb);
    // Read from the archive, since programs can write to the file that the file system makes of it.
    let gets = slow::Gets {
        paths: find(archive, "etc/gets").unwrap_or_default(),
        largest: frames.total(),
    };
    slow::start(PRIORITY, &options, gets).map_err(words)?;

    let kernel_memory = SpaceAt(ROOT_SPACE).get_state(0).map_err(words)?.quota;
    slow::log(&format!("kernel memory: {kernel_memory}"));
    // The servers share the kernel memory beyond the quota of one program.
    let shared = kernel_memory / 100 * (100 - options.program_quota.unwrap_or(0));
    // Low memory is set apart only if a driver may have a channel of ISA DMA; other drivers get some of it when the
    // other pool is used up.
    let has_channel = drivers::manifest().iter().any(Driver::has_channel);
    let low = has_channel.then(|| frames.take_low()).flatten();
    let pools = low.into_iter().chain(frames.take_pool());
    let pools = pools.map(Pool::new).collect::<Result<Vec<_>, _>>()?;
    let program = find(archive, "sbin/memory").ok_or("the boot archive has no sbin/memory")?;
    let starter = own_thread.reference().map_err(words)?;
    let memory_supervisor = first::start(program, frames, shared / 100 * 35, *starter)
        .map_err(|why| format!("sbin/memory: {why}"))?;

    // Two portsets: one for the processes' own ports (names, exits, exceptions), one for the ports to manage them.
    let portset = Portset::new().map_err(words)?;
    let portset_ref = portset.reference().map_err(words)?;
    let system = names::system_port(*portset_ref).map_err(words)?;
    let manager_portset = Portset::new().map_err(words)?;
    let manager_portset_ref = manager_portset.reference().map_err(words)?;
    let manager = Manager::new(
        *portset_ref,
        *manager_portset_ref,
        memory_supervisor.copy().map_err(words)?,
        match options.program_quota {
            Some(percent) => kernel_memory / 100 * percent,
            None => kernel_memory / 256,
        },
        // The tests' programs try all priorities that a manager can give.
        options.program_ceiling.unwrap_or(if options.test {
            u64::from(abi::PRIORITIES) - 1
        } else {
            PRIORITY_PROGRAM
        }),
        Drivers::default(),
        Collocated {
            authority,
            places: options.places.clone(),
            archive,
        },
    );
    let processes =
        Processes::start(manager, PRIORITY).map_err(|error| error.text().to_string())?;
    let (serving, [native, supervisor]) =
        Serving::new(manager_portset, processes).map_err(|error| error.text().to_string())?;
    names::register("native", native, Some(supervisor), 0, 0)
        .map_err(|error| format!("the name native: {}", error.text()))?;
    thread::spawn_at(PRIORITY, move || {
        if let Err(error) = names::run(portset, processes) {
            slow::log(error.text());
        }
    })
    .map_err(words)?;
    // The references live as long as init.
    core::mem::forget((portset_ref, manager_portset_ref));

    let boot = Boot {
        archive,
        processes,
        shared,
        system,
        memory_supervisor,
        pools,
        clock: format!("clock={}:{}", info.clock_start, info.clock_rate),
    };
    boot.servers(&options, authority, window, offset)?;
    boot.last(&options, authority)?;
    serving.run()
}

/// The servers and programs that are started from the boot archive, and what they get.
struct Boot {
    archive: &'static [u8],
    processes: &'static Processes,
    /// Kernel memory in bytes that the servers share.
    shared: u64,
    /// The system port.
    system: RefAt,
    /// The memory server's supervisor port, for managers of processes.
    memory_supervisor: Ref,
    /// Memory that devices reach.
    pools: Vec<Pool>,
    /// The start and the rate of the machine's clock, as an argument for a server.
    clock: String,
}

/// Contiguous memory that devices reach. Only the device server gets it.
struct Pool {
    start: u64,
    size: u64,
    /// A region that exports the memory.
    region: Ref,
}

impl Pool {
    /// Clears the memory, which was taken from the free frames, and exports it.
    fn new((start, size): (u64, u64)) -> Result<Self, String> {
        let window = Window::map(&ROOT, start, size, READ | WRITE).map_err(|error| error.text())?;
        // SAFETY: fresh memory, all of it in the window.
        unsafe { core::ptr::write_bytes(window.address() as *mut u8, 0, size as usize) };
        let region = export(&window, READ | WRITE)?;
        // The window stays as long as the machine runs.
        core::mem::forget(window);
        Ok(Pool {
            start,
            size,
            region,
        })
    }
}

/// Exports a window's memory as a region, for as long as the machine runs.
fn export(window: &Window, protection: u64) -> Result<Ref, String> {
    let region = Region::new().map_err(words)?;
    let state = RegionState {
        start: window.address(),
        size: window.size(),
        protection,
    };
    region.set_state(&state, 0, 0).map_err(words)?;
    let reference = region.reference().map_err(words)?;
    core::mem::forget(region);
    Ok(reference)
}

impl Boot {
    fn launch(
        &self,
        path: &str,
        args: Vec<String>,
        priority: u64,
        percent: u64,
        refs: &[&RefAt],
    ) -> Result<(), String> {
        let file =
            find(self.archive, path).ok_or_else(|| complaint(path, "not in the boot archive"))?;
        let start = &Start {
            args,
            cwd: "/".to_string(),
            ..Start::default()
        };
        let quota = self.shared / 100 * percent;
        let launch = Launch {
            start,
            priority,
            ceiling: match path {
                // The tests try all priorities that a manager can give.
                _ if path.starts_with("test/") => u64::from(abi::PRIORITIES) - 1,
                _ if priority == PRIORITY_SHELL => PRIORITY_SHELL,
                _ => PRIORITY_MEMORY,
            },
            quota,
            server: true,
            limits: match path {
                "sbin/device" | "sbin/console" => process::account::driver,
                _ => process::account::server,
            },
            essential: priority != PRIORITY_SHELL,
            driver: None,
            service: services::names::RESERVED
                .into_iter()
                .find(|name| path.strip_prefix("sbin/") == Some(name)),
            collocated: false,
            job: None,
            owner: 0,
            refs,
        };
        let launched = self.processes.with(|manager| manager.launch(&launch, file));
        launched
            .map(|_| ())
            .map_err(|(_, why)| complaint(path, why))
    }

    /// Starts the servers one after the other, since each looks up the names of those before it.
    fn servers(
        &self,
        options: &Options,
        authority: RefAt,
        window: &Window,
        offset: u64,
    ) -> Result<(), String> {
        // The device server alone has the device authority; whoever needs a device asks it.
        let drivers = drivers::manifest().iter();
        let drivers = drivers.map(|driver| format!("driver={}", driver.line));
        let pools = self.pools.iter();
        let pools = pools.map(|pool| format!("pool={:x}+{:x}", pool.start, pool.size));
        let args = iter::once("device".to_string()).chain(drivers).chain(pools);
        let mut refs = vec![&authority];
        refs.extend(self.pools.iter().map(|pool| &*pool.region));
        self.launch("sbin/device", args.collect(), PRIORITY_FILES, 2, &refs)?;
        self.await_names(&["device"]);
        if let Err(error) = drivers::set_date() {
            slow::say(format!("init: the date: {}", error.text()));
        }

        // The region that the file system gets shows the archive and nothing else.
        let archive = export(window, READ)?;
        let numbers = vec![
            "fs".to_string(),
            offset.to_string(),
            self.archive.len().to_string(),
        ];
        self.launch("sbin/fs", numbers, PRIORITY_FILES, 2, &[&archive])?;
        self.await_names(&["fs"]);
        let door = drivers::door("console")?;

        let mut args = vec!["console".to_string()];
        if options.script.is_some() {
            args.push("script".to_string());
        }
        self.launch("sbin/console", args, PRIORITY_FILES, 2, &[&door])?;
        self.await_names(&["console"]);
        if options.cut.is_some() {
            // The test of cuts needs no other servers, and the kernel checks all objects after every step.
            return Ok(());
        }
        let console = names::supervisor("console");
        let mut for_linux: Vec<&RefAt> = vec![&self.memory_supervisor];
        for_linux.extend(console.iter().map(|console| &**console));
        let words = [("verbose", options.verbose), ("trace", options.trace)];
        let words = words.into_iter().filter(|(_, is_set)| *is_set);
        let words = words.map(|(word, _)| word);
        let words: Vec<&str> = words.chain([&*self.clock]).collect();
        // The server of random bytes asks the `entropy` driver, if the machine has the device.
        let device = drivers::is_present("entropy") == Ok(true);
        let for_random: &[&str] = if device { &["device"] } else { &[] };
        let optional: [(&str, &[&str], u64, &[&RefAt]); 3] = [
            ("random", for_random, 1, &[]),
            ("linux", &words, 15, &for_linux),
            ("checkpoint", &[], 14, &[]),
        ];
        let started: Vec<&str> = optional
            .into_iter()
            .filter(|(name, words, percent, refs)| self.optional(name, words, *percent, refs))
            .map(|(name, ..)| name)
            .collect();
        self.await_names(&started);
        let drivers = drivers::start(
            self.archive,
            self.processes,
            self.shared,
            options.address.clone(),
            self.system,
        )?;
        self.await_names(&drivers);
        Ok(())
    }

    /// Starts a server without which the machine is still useful. Returns whether it was started.
    fn optional(&self, name: &str, words: &[&str], percent: u64, refs: &[&RefAt]) -> bool {
        let path = format!("sbin/{name}");
        let args = iter::once(&name).chain(words);
        let args = args.map(ToString::to_string).collect();
        match self.launch(&path, args, PRIORITY_SERVER, percent, refs) {
            Ok(()) => true,
            Err(why) => {
                slow::say(why);
                false
            }
        }
    }

    fn await_names(&self, names: &[&str]) {
        let deadline = time::now() + PATIENCE;
        for name in names {
            while names::find(name).is_err() && time::now() < deadline {
                time::sleep(100_000);
            }
            if names::find(name).is_ok() {
                slow::log(&format!("{name} is there"));
            } else {
                slow::say(format!("init: {name} has not started"));
            }
        }
    }

    /// Starts the test of cuts, the test runner or the shell, as the command line says.
    fn last(&self, options: &Options, authority: RefAt) -> Result<(), String> {
        // The system port comes first, since its index is `services::system::PASSED`.
        const _: () = assert!(services::system::PASSED == 0);
        let system = &self.system;
        if let Some(arguments) = &options.cut {
            let mut args = vec!["cut".to_string()];
            args.extend(arguments.iter().cloned());
            return self.launch("test/cut", args, PRIORITY_SHELL, 10, &[system, &authority]);
        }
        if options.test {
            let mut args = vec!["runner".to_string()];
            args.extend(options.filter.clone());
            return self.launch("test/runner", args, PRIORITY_SHELL, 10, &[system]);
        }
        let mut args = vec!["shell".to_string()];
        args.extend(options.script.clone());
        self.launch("sbin/shell", args, PRIORITY_SHELL, 2, &[system])
    }
}
