//! The device server.
//!
//! Arguments: `driver=LINE` for each line of the boot manifest ([`manifest`](fermata_device::manifest)), and
//! `pool=START+SIZE` for each range of physical memory that devices may reach. References: the device authority, then
//! the region of each such range.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{READ, WRITE};
use abi::state::RegionState;
use abi::{Code, PAGE_SIZE};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::convert::Infallible;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use fermata_device::channel::{self, Channel, Transfer};
use fermata_device::clock;
use fermata_device::config::{check, ones, Claimed};
use fermata_device::death::{self, Step};
use fermata_device::ledger::Ledger;
use fermata_device::lines::{Joined, Lines, Next, LINES};
use fermata_device::manifest::{range, Entry};
use fermata_device::pci::{self, Base, Config, Found, Windows};
use fermata_device::pool::Pool;
use fermata_device::refusal::{Refusal, Thing};
use fermata_device::Driver;
use interface::server::{Either, Event, Host, Visitor};
use interface::{Error, Server};
use rt::obj::{Ref, RefAt, Region};
use rt::sync::Mutex;
use rt::window::Window;
use rt::{sys, thread, time};
use services::device::{
    DeviceControl, DeviceControlClient, DeviceControlStub, Devices, DevicesClient, DevicesStub,
    Function, Line, LinePart, PciFunction, Place, Reach, Way, MOST_TOLD,
};
use services::system::encoded;

rt::entry!(main);

/// The ports by which configurations are read and written: address and data.
const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
/// In [`ADDRESS`]: enable.
const ENABLE: u32 = 1 << 31;

/// The port of the real-time clock that selects a register; the next port has its value.
const CLOCK: u16 = 0x70;

/// Where base addresses are placed that the firmware did not place: above the memory that a machine has below 4 GB, and
/// below the interrupt controllers; and at the ports that firmware uses for that.
const WINDOWS: Windows = Windows {
    ports: (0xc000, 0x3f00),
    memory: (0xe000_0000, 0x1e00_0000),
};

/// The doors: 0, which everybody can find and which opens no sessions; init's; then one for each driver.
const CONTROL: u64 = 1;
const FIRST_DRIVER: u64 = 2;

/// Most memory of devices that one region shows.
const MOST_MEMORY: u64 = 64 << 20;

/// The configurations, by the ports of the PCI host bridge.
#[derive(Clone, Copy)]
struct Ports;

/// Held from the selection of a register until it was read or written, since lines have threads of their own.
static ACCESS: Mutex<()> = Mutex::new(());

/// The functions that have lines, and the threads that are interrupted. Held while the command register of such a
/// function is changed.
static ON_LINES: Mutex<Lines<Ref>> = Mutex::new(Lines::new());

/// Sets and clears bits in the command register of a function that may be on a line.
fn command(function: u16, set: u32, clear: u32) {
    let _lines = ON_LINES.lock();
    pci::command(&Ports, function, set, clear);
}

/// Lets a function pull its line, if it was silenced. `lines` is [`ON_LINES`], which is locked meanwhile, so that no
/// thread sees a function as silenced that pulls.
fn allow(lines: &mut Lines<Ref>, line: u8, function: u16) {
    if lines.allow(line, function) {
        pci::command(&Ports, function, 0, pci::NO_INTERRUPTS);
    }
}

/// The page for drivers: a word for each line, which is 1 while the line is shared.
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_SIZE as usize / 8]);

static SHARED: Page = Page([const { AtomicU64::new(0) }; PAGE_SIZE as usize / 8]);

/// How long a line stays masked that rings without a function that pulls it, in nanoseconds.
const LINE_PAUSE: u64 = 1_000_000;

/// The thread that has a shared line.
fn serve_line(line: u8) {
    loop {
        sys::thread_wait_interrupt();
        let pulls = |function| {
            let pulls = Ports.read(function, pci::COMMAND) & pci::INTERRUPTS != 0;
            if pulls {
                pci::command(&Ports, function, pci::NO_INTERRUPTS, 0);
            }
            pulls
        };
        let tell = |thread: &Ref| {
            // If the thread is gone, its function stays silenced.
            let _ = thread.interrupt();
        };
        let next = ON_LINES.lock().rings(line, pulls, tell);
        if next == Next::Pause {
            time::sleep(LINE_PAUSE);
        }
    }
}

fn output(port: u16, value: u32) {
    // SAFETY: the ports of the host bridge touch no memory; what is written there is decided in `pci` and `config`.
    unsafe {
        core::arch::asm!("out dx, eax", in("eax") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
}

fn output_byte(port: u16, value: u8) {
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("out dx, al", in("al") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
}

fn output_half(port: u16, value: u16) {
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("out dx, ax", in("ax") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
}

fn input(port: u16) -> u32 {
    let value;
    // SAFETY: reading the ports of the host bridge touches no memory.
    unsafe {
        core::arch::asm!("in eax, dx", out("eax") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
    value
}

impl clock::Registers for Ports {
    fn read(&mut self, register: u8) -> u8 {
        let value;
        // SAFETY: the ports of the clock touch no memory. The highest bit, which is zero, leaves NMIs enabled.
        unsafe {
            core::arch::asm!("out dx, al", "inc edx", "in al, dx",
                inlateout("al") register => value, inout("edx") u32::from(CLOCK) => _,
                options(nomem, nostack));
        }
        value
    }

    fn pause(&mut self) {
        const PAUSE: u64 = 1_000_000;
        time::sleep(PAUSE);
    }
}

impl channel::Pair for Ports {
    fn read(&mut self, port: u16) -> u8 {
        let value: u8;
        // SAFETY: reading a port touches no memory.
        unsafe {
            core::arch::asm!("in al, dx", out("al") value, in("dx") port,
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    fn write(&mut self, port: u16, byte: u8) {
        // SAFETY: `channel` decides which transfers are programmed; the memory that a channel reaches is a driver's,
        // which knows that devices reach it.
        unsafe {
            core::arch::asm!("out dx, al", in("al") byte, in("dx") port,
                options(nomem, nostack, preserves_flags));
        }
    }
}

impl Config for Ports {
    fn read(&self, function: u16, offset: u8) -> u32 {
        let _access = ACCESS.lock();
        output(
            ADDRESS,
            ENABLE | u32::from(function) << 8 | u32::from(offset & !3),
        );
        input(DATA)
    }

    fn write_part(&self, function: u16, offset: u8, size: u64, value: u32) {
        let _access = ACCESS.lock();
        output(
            ADDRESS,
            ENABLE | u32::from(function) << 8 | u32::from(offset & !3),
        );
        let port = DATA + u16::from(offset & 3);
        match size {
            1 => output_byte(port, value as u8),
            2 => output_half(port, value as u16),
            _ => output(DATA, value),
        }
    }
}

/// The state that sessions share.
struct Shared {
    authority: RefAt,
    manifest: Vec<Entry>,
    found: Vec<Found>,
    ledger: Ledger,
    pool: Pool,
    /// The pool's memory: physical address, and the window on it.
    memory: Vec<(u64, Window)>,
    /// The drivers that have a session.
    busy: Vec<bool>,
    /// The date at which the machine's clock was zero.
    origin: Option<u64>,
    /// The region of the page that shows drivers which lines are shared.
    page: Region,
    /// The threads that have shared lines: made when they are first needed.
    line_threads: [Option<Ref>; LINES],
}

impl Shared {
    /// Notes that a driver has something, if no driver has it.
    fn take(&mut self, driver: Driver, thing: Thing) -> Result<(), Refusal> {
        let manifest = &self.manifest;
        let name = |driver: Driver| manifest.get(driver).map_or("", |entry| &*entry.name);
        self.ledger.take(driver, thing, name)
    }

    fn entry(&self, driver: Driver) -> Result<&Entry, Refusal> {
        let entry = self.manifest.get(driver);
        entry.ok_or(Refusal::Absent("there is no such driver"))
    }

    /// The name of a driver.
    fn name(&self, driver: Driver) -> String {
        let entry = self.manifest.get(driver);
        entry.map_or_else(String::new, |entry| entry.name.clone())
    }

    /// Whether a driver may claim a function.
    fn may_claim(&self, driver: Driver, found: &Found) -> bool {
        self.manifest
            .get(driver)
            .is_some_and(|entry| entry.pci.contains(&found.id))
    }

    /// Whether a device answers at a port of ISA: a port without one reads as all ones.
    fn answers(&self, port: u16) -> bool {
        let (authority, space) = (self.authority.handle(), rt::start::space().handle());
        if sys::device_grant_ports(authority, space, u64::from(port), 1) != Code::Ok {
            return false;
        }
        let byte = channel::Pair::read(&mut Ports, port);
        let _ = sys::device_revoke_ports(authority, space, u64::from(port), 1);
        byte != u8::MAX
    }

    /// Attaches a line to a driver's thread.
    fn attach(&mut self, driver: Driver, line: u8, thread: RefAt) -> Result<(), Refusal> {
        let thing = Thing::Line(line);
        self.take(driver, thing)?;
        let code = self.attach_thread(line, thread);
        self.granted(driver, thing, code)
    }

    fn attach_thread(&self, line: u8, thread: RefAt) -> Code {
        sys::device_attach_interrupt(self.authority.handle(), thread.handle(), u64::from(line))
    }

    /// Turns interrupts of a function into interrupts of a thread. Returns the part of its line that it has then.
    fn attach_function(
        &mut self,
        driver: Driver,
        found: &Found,
        thread: RefAt,
    ) -> Result<Thing, Refusal> {
        let line = found.line;
        let line = line.ok_or(Refusal::Absent("this function has no interrupt line"))?;
        let function = found.function;
        let thing = Thing::Level {
            line,
            function,
            shares: found.shares,
        };
        self.take(driver, thing)?;
        let code = self.join(line, function, thread);
        let code = code.unwrap_or_else(|code| code);
        if code != Code::Ok {
            self.leave(line, function);
        }
        self.granted(driver, thing, code)?;
        Ok(thing)
    }

    /// Puts a function on a line, which it may pull from then on. If it is the second one, a thread of this server
    /// takes over the line.
    fn join(&mut self, line: u8, function: u16, thread: RefAt) -> Result<Code, Code> {
        let kept = thread.copy()?;
        let mut lines = ON_LINES.lock();
        let own = match lines.next(line).ok_or(Code::Invalid)? {
            Joined::Alone => None,
            // Steps that can fail come before any change. A spurious interrupt checks that `thread` is a thread, and
            // does no harm.
            Joined::Second | Joined::More => {
                thread.interrupt()?;
                Some(self.line_thread(line)?)
            }
        };
        let joined = lines.join(line, function, kept);
        let code = match (joined, own) {
            (Some(Joined::Second), Some(own)) => {
                // Before any function is silenced, so that its driver knows that it has to acknowledge.
                SHARED.0[usize::from(line)].store(1, Ordering::Release);
                let _ = sys::device_detach_interrupt(self.authority.handle(), u64::from(line));
                self.attach_thread(line, own)
            }
            (_, Some(_)) => Code::Ok,
            (_, None) => self.attach_thread(line, thread),
        };
        if code == Code::Ok {
            allow(&mut lines, line, function);
        }
        Ok(code)
    }

    /// Removes a function from its line, which is detached if it was the last one.
    fn leave(&self, line: u8, function: u16) {
        let mut lines = ON_LINES.lock();
        if lines.leave(line, function) {
            let _ = sys::device_detach_interrupt(self.authority.handle(), u64::from(line));
            SHARED.0[usize::from(line)].store(0, Ordering::Release);
        }
    }

    /// The thread of this server for a shared line.
    fn line_thread(&mut self, line: u8) -> Result<RefAt, Code> {
        let place = self.line_threads.get_mut(usize::from(line));
        let place = place.ok_or(Code::Invalid)?;
        if place.is_none() {
            // Above the drivers that it interrupts.
            let priority = rt::start::priority() + 1;
            let thread = thread::spawn_at(priority, move || serve_line(line))?;
            *place = Some(thread.reference()?);
        }
        place.as_deref().copied().ok_or(Code::NoMemory)
    }

    /// Takes a line, or the part of it that a function has, from its driver.
    fn detach(&self, thing: Thing) {
        match thing {
            Thing::Level { line, function, .. } => self.leave(line, function),
            Thing::Line(line) => {
                let _ = sys::device_detach_interrupt(self.authority.handle(), u64::from(line));
            }
            _ => {}
        }
    }

    /// Lets a space use ports.
    fn grant(&mut self, driver: Driver, ports: (u64, u64), space: RefAt) -> Result<Ref, Refusal> {
        let thing = Thing::Ports(ports.0, ports.1);
        let kept = space.copy().map_err(|_| Refusal::NoMemory)?;
        self.take(driver, thing)?;
        let authority = self.authority.handle();
        let code = sys::device_grant_ports(authority, space.handle(), ports.0, ports.1);
        self.granted(driver, thing, code)?;
        Ok(kept)
    }

    /// A region of the memory of a device.
    fn map(&mut self, driver: Driver, start: u64, size: u64) -> Result<Region, Refusal> {
        let thing = Thing::Memory(start, size);
        let whole = start.is_multiple_of(PAGE_SIZE) && size.is_multiple_of(PAGE_SIZE);
        if !whole || size == 0 || size > MOST_MEMORY {
            return Err(Refusal::Nonsense(
                "memory of devices comes in whole pages, at most 64 MB at once",
            ));
        }
        let region = Region::new().map_err(|_| Refusal::NoMemory)?;
        self.take(driver, thing)?;
        let authority = self.authority.handle();
        let code = sys::device_map_physical(authority, region.handle(), start, size);
        self.granted(driver, thing, code)?;
        Ok(region)
    }

    /// Handles the kernel's answer to a grant: if it refuses, the thing is free again.
    fn granted(&mut self, driver: Driver, thing: Thing, code: Code) -> Result<(), Refusal> {
        if code == Code::Ok {
            return Ok(());
        }
        self.ledger.give(driver, thing)?;
        Err(match code {
            Code::Dead | Code::Vacant => {
                Refusal::Nonsense("the reference is not to a thread or space that lives")
            }
            Code::InUse => Refusal::Kernel(thing, "it is taken"),
            Code::NoMemory => Refusal::Kernel(thing, "kernel memory is out"),
            _ => Refusal::Kernel(thing, "there is no such thing"),
        })
    }

    /// Where memory of the pool is mapped.
    fn address(&self, start: u64) -> Option<(&Window, u64)> {
        mapped(&self.memory, start)
    }

    /// Clears some of the memory that drivers had. Returns whether there was any.
    fn clear_some(&mut self) -> bool {
        const ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
        let memory = &self.memory;
        self.pool.clear_some(|page| {
            if let Some((window, offset)) = mapped(memory, page) {
                let _ = window.write(offset, &ZEROS);
            }
        })
    }

    /// Does a step of taking back from a driver that has ended or gives something back.
    fn take_back(&mut self, driver: Driver, held: &mut Held, step: Step) {
        let authority = self.authority.handle();
        match step {
            Step::Silence(function) => command(function, pci::NO_INTERRUPTS, 0),
            Step::StopMastering(function) => command(function, 0, pci::MASTER),
            Step::StopDecoding(function) => command(function, 0, pci::DECODE),
            Step::Mask(place) => {
                if let Some((channel, moves)) = held.channels.get_mut(place) {
                    channel.stop(&mut Ports);
                    *moves = None;
                }
            }
            Step::Detach(thing) => self.detach(thing),
            Step::Revoke(place) => {
                if let Some(((first, count), space)) = held.ports.get(place) {
                    let _ = sys::device_revoke_ports(authority, space.handle(), *first, *count);
                }
            }
            Step::Withdraw => {
                held.memory.clear();
                held.dma.clear();
            }
            Step::Hold => self.pool.hold(driver),
            Step::Free => self.pool.free_all(driver, false),
        }
    }
}

/// Where memory of the pool with this physical address is mapped.
fn mapped(memory: &[(u64, Window)], at: u64) -> Option<(&Window, u64)> {
    let inside = |(start, window): &&(u64, Window)| *start <= at && at < *start + window.size();
    let (start, window) = memory.iter().find(inside)?;
    Some((window, at - start))
}

/// A function that a driver has claimed.
struct Own {
    claimed: Claimed,
    /// It reaches memory, or has done so.
    reaches: bool,
    /// The part of its line that it has.
    line: Option<Thing>,
}

impl Own {
    /// Bus, device and function.
    fn address(&self) -> u16 {
        self.claimed.found.function
    }
}

/// The resources of a driver, which are withdrawn when its session ends.
#[derive(Default)]
struct Held {
    functions: Vec<Own>,
    lines: Vec<u8>,
    /// Ports, and the space that may use them.
    ports: Vec<((u64, u64), Ref)>,
    /// Memory of devices: start, size, and the region that shows it.
    memory: Vec<(u64, u64, Region)>,
    /// Memory that devices reach: its physical address, and the region that shows it.
    dma: Vec<(u64, Region)>,
    /// Channels of ISA DMA, and the transfer of each.
    channels: Vec<(Channel, Option<Transfer>)>,
}

impl Held {
    fn function(&mut self, function: Function) -> Result<&mut Own, Refusal> {
        let thing = Thing::Function(u16::try_from(function).unwrap_or(u16::MAX));
        let mut own = self.functions.iter_mut();
        own.find(|own| u64::from(own.claimed.found.function) == function)
            .ok_or(Refusal::NotYours(thing))
    }

    /// The index of a channel.
    fn channel(&self, number: u64) -> Result<usize, Refusal> {
        let channel = Channel::new(number)?;
        let place = self.channels.iter().position(|own| own.0 == channel);
        place.ok_or(Refusal::NotYours(channel.thing()))
    }

    fn base(&mut self, function: Function, index: u64) -> Result<Base, Refusal> {
        let found = self.function(function)?.claimed.found;
        let base = usize::try_from(index).ok().and_then(|i| found.bases.get(i));
        base.copied()
            .ok_or(Refusal::Nonsense("a function has six base addresses"))
    }
}

/// Happens when some of the memory that drivers had was cleared.
static CLEARED: Event = Event::new();

/// A driver's session.
struct Session {
    shared: Rc<RefCell<Shared>>,
    driver: Driver,
    held: RefCell<Held>,
    why: RefCell<String>,
}

impl Session {
    /// Does a request, and keeps the sentence if it is refused.
    fn serve<T>(
        &self,
        f: impl FnOnce(&mut Shared, &mut Held, Driver) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        let result = f(
            &mut self.shared.borrow_mut(),
            &mut self.held.borrow_mut(),
            self.driver,
        );
        result.map_err(|refusal| {
            *self.why.borrow_mut() = refusal.to_string();
            refusal.error()
        })
    }
}

/// Does the steps of [`fermata_device::death`].
impl Drop for Session {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        let mut held = core::mem::take(self.held.get_mut());
        let functions: Vec<u16> = held.functions.iter().map(Own::address).collect();
        let of_functions = held.functions.iter().filter_map(|own| own.line);
        let lines = held.lines.iter().copied().map(Thing::Line);
        let lines: Vec<Thing> = of_functions.chain(lines).collect();
        let reaches = held.functions.iter().any(|own| own.reaches);
        for step in death::steps(
            &functions,
            held.channels.len(),
            &lines,
            held.ports.len(),
            reaches,
        ) {
            shared.take_back(self.driver, &mut held, step);
        }
        let things: Vec<Thing> = shared.ledger.of(self.driver).collect();
        for thing in things {
            let _ = shared.ledger.give(self.driver, thing);
        }
        if let Some(busy) = shared.busy.get_mut(self.driver) {
            *busy = false;
        }
    }
}

impl Devices for Session {
    fn why(&self, _room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        Ok(self.why.borrow().clone().into_bytes())
    }

    fn attach_line(&self, line: u64, thread: &RefAt) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let line = u8::try_from(line).ok().filter(|line| *line < 16);
            let line = line.ok_or(Refusal::Nonsense("interrupt lines have numbers below 16"))?;
            if !shared.entry(driver)?.lines.contains(&line) {
                return Err(Refusal::NotGiven(Thing::Line(line)));
            }
            shared.attach(driver, line, *thread)?;
            held.lines.push(line);
            Ok(())
        })
    }

    fn detach_line(&self, line: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.lines.iter().position(|own| u64::from(*own) == line);
            let thing = Thing::Line(u8::try_from(line).unwrap_or(u8::MAX));
            held.lines
                .swap_remove(place.ok_or(Refusal::NotYours(thing))?);
            shared.detach(thing);
            shared.ledger.give(driver, thing)
        })
    }

    fn grant_ports(&self, first: u64, count: u64, space: &RefAt) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            if !Entry::covers(&shared.entry(driver)?.ports, first, count) {
                return Err(Refusal::NotGiven(Thing::Ports(first, count)));
            }
            let space = shared.grant(driver, (first, count), *space)?;
            held.ports.push(((first, count), space));
            Ok(())
        })
    }

    fn revoke_ports(&self, first: u64, count: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.ports.iter().position(|own| own.0 == (first, count));
            let thing = Thing::Ports(first, count);
            let (_, space) = held
                .ports
                .swap_remove(place.ok_or(Refusal::NotYours(thing))?);
            let authority = shared.authority.handle();
            let _ = sys::device_revoke_ports(authority, space.handle(), first, count);
            shared.ledger.give(driver, thing)
        })
    }

    fn map(&self, start: u64, size: u64) -> Result<Ref, Error> {
        self.serve(|shared, held, driver| {
            if !Entry::covers(&shared.entry(driver)?.memory, start, size) {
                return Err(Refusal::NotGiven(Thing::Memory(start, size)));
            }
            let region = shared.map(driver, start, size)?;
            let reference = region.reference().map_err(|_| Refusal::NoMemory);
            held.memory.push((start, size, region));
            reference
        })
    }

    fn unmap(&self, start: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.memory.iter().position(|own| own.0 == start);
            let place = place.ok_or(Refusal::NotYours(Thing::Memory(start, 1)))?;
            let (start, size, region) = held.memory.swap_remove(place);
            drop(region);
            shared.ledger.give(driver, Thing::Memory(start, size))
        })
    }

    fn function(&self, index: u64) -> Result<(Function, u64, u64), Error> {
        self.serve(|shared, _, driver| {
            let mut own = shared.found.iter().filter(|f| shared.may_claim(driver, f));
            let found = usize::try_from(index).ok().and_then(|index| own.nth(index));
            let found = found.ok_or(Refusal::Absent("there are no more functions"))?;
            let id = u64::from(found.id.1) << 16 | u64::from(found.id.0);
            Ok((u64::from(found.function), id, u64::from(found.class)))
        })
    }

    fn claim(&self, function: Function) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let found = shared
                .found
                .iter()
                .find(|f| u64::from(f.function) == function);
            let found = *found.ok_or(Refusal::Absent("there is no such function"))?;
            let thing = Thing::Function(found.function);
            if !shared.may_claim(driver, &found) {
                return Err(Refusal::NotGiven(thing));
            }
            shared.take(driver, thing)?;
            command(found.function, pci::NO_INTERRUPTS, pci::MASTER);
            command(found.function, pci::DECODE, 0);
            held.functions.push(Own {
                claimed: Claimed::new(found),
                reaches: false,
                line: None,
            });
            Ok(())
        })
    }

    fn release(&self, function: Function) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let own = held.function(function)?;
            let (found, line) = (own.claimed.found, own.line);
            for step in death::silence(found.function) {
                shared.take_back(driver, held, step);
            }
            if let Some(line) = line {
                shared.take_back(driver, held, Step::Detach(line));
                shared.ledger.give(driver, line)?;
            }
            let other = |own: &Own| own.claimed.found.function != found.function;
            held.functions.retain(other);
            // The function's memory and ports are withdrawn.
            for thing in found.bases.iter().filter_map(Base::thing) {
                let authority = shared.authority.handle();
                match thing {
                    Thing::Ports(first, count) => held.ports.retain(|(own, space)| {
                        let is = *own == (first, count);
                        if is {
                            let _ =
                                sys::device_revoke_ports(authority, space.handle(), first, count);
                        }
                        !is
                    }),
                    Thing::Memory(start, _) => held.memory.retain(|own| own.0 != start),
                    _ => {}
                }
                let _ = shared.ledger.give(driver, thing);
            }
            shared.ledger.give(driver, Thing::Function(found.function))
        })
    }

    fn config_read(&self, function: Function, offset: u64, size: u64) -> Result<u64, Error> {
        self.serve(|_, held, _| {
            check(offset, size)?;
            match held.function(function) {
                Ok(own) => own.claimed.read(&Ports, offset, size),
                // Reads as an absent function.
                Err(_) => Ok(ones(size)),
            }
        })
    }

    fn config_write(
        &self,
        function: Function,
        offset: u64,
        size: u64,
        value: u64,
    ) -> Result<(), Error> {
        self.serve(|_, held, _| {
            let own = held.function(function)?;
            own.claimed.write(&Ports, offset, size, value)
        })
    }

    fn base(&self, function: Function, index: u64) -> Result<(Place, u64, u64), Error> {
        self.serve(|_, held, _| {
            let base = held.base(function, index)?;
            Ok((base.place, base.start, base.size))
        })
    }

    fn grant_base(&self, function: Function, index: u64, space: &RefAt) -> Result<(), Error> {
        self.serve(
            |shared, held, driver| match held.base(function, index)?.thing() {
                Some(Thing::Ports(first, count)) => {
                    let space = shared.grant(driver, (first, count), *space)?;
                    held.ports.push(((first, count), space));
                    Ok(())
                }
                _ => Err(Refusal::Absent(
                    "this base address does not lead to I/O ports",
                )),
            },
        )
    }

    fn map_base(&self, function: Function, index: u64) -> Result<Ref, Error> {
        self.serve(
            |shared, held, driver| match held.base(function, index)?.thing() {
                Some(Thing::Memory(start, size)) => {
                    let region = shared.map(driver, start, size)?;
                    let reference = region.reference().map_err(|_| Refusal::NoMemory);
                    held.memory.push((start, size, region));
                    reference
                }
                _ => Err(Refusal::Absent("this base address does not lead to memory")),
            },
        )
    }

    fn attach_function(&self, function: Function, thread: &RefAt) -> Result<(u64, Ref), Error> {
        self.serve(|shared, held, driver| {
            let own = held.function(function)?;
            let page = shared.page.reference().map_err(|_| Refusal::NoMemory)?;
            let found = own.claimed.found;
            own.line = Some(shared.attach_function(driver, &found, *thread)?);
            Ok((u64::from(found.line.unwrap_or_default()), page))
        })
    }

    fn acknowledge(&self, function: Function) -> Result<(), Error> {
        self.serve(|_, held, _| {
            let own = held.function(function)?;
            let Some(Thing::Level { line, function, .. }) = own.line else {
                return Err(Refusal::Absent("the function has not been attached"));
            };
            allow(&mut ON_LINES.lock(), line, function);
            Ok(())
        })
    }

    fn reaches_memory(&self, function: Function) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let own = held.function(function)?;
            if shared.entry(driver)?.dma == 0 {
                return Err(Refusal::Allowance(0));
            }
            own.reaches = true;
            // Frees memory that was held for a device, which has been reset now.
            shared.pool.free_all(driver, true);
            command(own.address(), pci::MASTER, 0);
            Ok(())
        })
    }

    async fn dma(&self, size: u64, align: u64, reach: Reach) -> Result<(u64, Ref), Error> {
        let physical = self.serve(|shared, _, driver| {
            let most = shared.entry(driver)?.dma;
            shared.pool.take(driver, most, (size, align, reach))
        })?;
        // Others are served while the piece is cleared. If the session ends meanwhile, it is given back with all
        // others.
        let is_clear = || self.shared.borrow().pool.is_clear(physical, size);
        CLEARED.until(|| is_clear().then_some(())).await;
        self.serve(|shared, held, _| {
            let made = || {
                let (window, offset) = shared.address(physical)?;
                let state = RegionState {
                    start: window.address() + offset,
                    size,
                    protection: READ | WRITE,
                };
                let region = Region::new().ok()?;
                region.set_state(&state, 0, 0).ok()?;
                Some((region.reference().ok()?, region))
            };
            match made() {
                Some((reference, region)) => {
                    held.dma.push((physical, region));
                    Ok((physical, reference))
                }
                None => {
                    shared.pool.free(physical);
                    Err(Refusal::NoMemory)
                }
            }
        })
    }

    fn free_dma(&self, physical: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            if held.functions.iter().any(|own| own.reaches) {
                return Err(Refusal::Nonsense(
                    "a device may still write to it: release the function first",
                ));
            }
            let place = held.dma.iter().position(|own| own.0 == physical);
            let place = place.ok_or(Refusal::NotYours(Thing::Memory(physical, 1)))?;
            let piece = shared.pool.at(driver, physical);
            let size = piece.map_or(0, |piece| piece.size);
            let moves = |(_, moves): &(Channel, Option<Transfer>)| {
                moves.is_some_and(|transfer| transfer.touches(physical, size))
            };
            if held.channels.iter().any(moves) {
                return Err(Refusal::Nonsense(
                    "a channel moves what is there: stop it first",
                ));
            }
            drop(held.dma.swap_remove(place));
            shared.pool.free(physical);
            Ok(())
        })
    }

    fn claim_channel(&self, channel: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let channel = Channel::new(channel)?;
            if !shared.entry(driver)?.channels.contains(&channel.number()) {
                return Err(Refusal::NotGiven(channel.thing()));
            }
            shared.take(driver, channel.thing())?;
            held.channels.push((channel, None));
            Ok(())
        })
    }

    fn release_channel(&self, channel: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.channel(channel)?;
            shared.take_back(driver, held, Step::Mask(place));
            let (channel, _) = held.channels.swap_remove(place);
            shared.ledger.give(driver, channel.thing())
        })
    }

    fn start_channel(
        &self,
        channel: u64,
        physical: u64,
        size: u64,
        way: Way,
        again: bool,
    ) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.channel(channel)?;
            let (channel, moves) = &mut held.channels[place];
            let transfer = Transfer {
                physical,
                size,
                to_memory: way == Way::ToMemory,
                again,
            };
            channel.check(&transfer)?;
            if !shared.pool.covers(driver, physical, size) {
                return Err(Refusal::NotYours(Thing::Memory(physical, size)));
            }
            channel.start(&mut Ports, &transfer);
            *moves = Some(transfer);
            Ok(())
        })
    }

    fn stop_channel(&self, channel: u64) -> Result<(), Error> {
        self.serve(|shared, held, driver| {
            let place = held.channel(channel)?;
            shared.take_back(driver, held, Step::Mask(place));
            Ok(())
        })
    }

    fn left(&self, channel: u64) -> Result<u64, Error> {
        self.serve(|_, held, _| {
            let (channel, moves) = held.channels[held.channel(channel)?];
            let transfer = moves.ok_or(Refusal::Nonsense("the channel was not started"))?;
            Ok(channel.left(&mut Ports, &transfer))
        })
    }
}

/// Init's session.
struct Control {
    shared: Rc<RefCell<Shared>>,
    doors: Rc<RefCell<Vec<Ref>>>,
}

impl DeviceControl for Control {
    fn door(&self, driver: u64) -> Result<Ref, Error> {
        let doors = self.doors.borrow();
        let door = usize::try_from(driver).ok().and_then(|n| doors.get(n));
        door.ok_or(Error::NotFound)?.copy().map_err(rt::error_of)
    }

    fn is_present(&self, driver: u64) -> Result<bool, Error> {
        let shared = self.shared.borrow();
        let driver = usize::try_from(driver).map_err(|_| Error::Invalid)?;
        let mut isa = shared
            .manifest
            .get(driver)
            .into_iter()
            .flat_map(|entry| &entry.isa);
        let mut found = shared.found.iter();
        Ok(found.any(|found| shared.may_claim(driver, found))
            || isa.any(|port| shared.answers(*port)))
    }

    fn origin(&self) -> Result<u64, Error> {
        self.shared.borrow().origin.ok_or(Error::NotFound)
    }

    fn line(&self, line: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let line = u8::try_from(line).map_err(|_| Error::NotFound)?;
        if usize::from(line) >= LINES {
            return Err(Error::NotFound);
        }
        let shared = self.shared.borrow();
        let mut told = Line::default();
        for (driver, function) in shared.ledger.on_line(line) {
            told.parts.push(LinePart {
                driver: shared.name(driver),
                function,
                silenced: false,
            });
        }
        // The threads of shared lines need the lock: nothing is allocated while it is held.
        let lines = ON_LINES.lock();
        told.shared = lines.is_shared(line);
        for part in &mut told.parts {
            part.silenced = part.function.is_some_and(|f| lines.is_silenced(line, f));
        }
        drop(lines);
        encoded(&told, room)
    }

    fn pci_function(&self, index: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let shared = self.shared.borrow();
        let found = usize::try_from(index)
            .ok()
            .and_then(|n| shared.found.get(n));
        let found = found.ok_or(Error::NotFound)?;
        let driver = shared.ledger.owner(found.function);
        let told = PciFunction {
            function: found.function,
            vendor: found.id.0,
            device: found.id.1,
            class: found.class,
            line: found.line,
            shares: found.shares,
            driver: driver.map(|driver| shared.name(driver)),
        };
        encoded(&told, room)
    }

    fn holdings(&self, driver: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let shared = self.shared.borrow();
        let driver = usize::try_from(driver).map_err(|_| Error::NotFound)?;
        if driver >= shared.manifest.len() {
            return Err(Error::NotFound);
        }
        let things = shared.ledger.of(driver).take(MOST_TOLD);
        let mut told: Vec<String> = things.map(|thing| thing.to_string()).collect();
        let dma = shared.pool.used(driver);
        if dma > 0 && told.len() < MOST_TOLD {
            told.push(format!("{} KB of memory that devices reach", dma / 1024));
        }
        encoded(&told, room)
    }
}

/// A region that shows [`SHARED`], to be read.
fn page() -> Result<Region, Code> {
    let region = Region::new()?;
    let state = RegionState {
        start: &raw const SHARED as u64,
        size: PAGE_SIZE,
        protection: READ,
    };
    region.set_state(&state, 0, 0)?;
    Ok(region)
}

/// Reads the arguments, and finds and places the functions of the machine.
fn set_up() -> Result<Shared, Error> {
    let passed = |index| rt::start::passed(index).ok_or(Error::Invalid);
    let authority = passed(0)?;
    let space = rt::start::space().handle();
    let own = [(ADDRESS, 8), (CLOCK, 2)];
    for (first, count) in own.into_iter().chain(channel::PORTS) {
        let code = sys::device_grant_ports(authority.handle(), space, u64::from(first), count);
        rt::obj::done(code).map_err(rt::error_of)?;
    }
    channel::begin(&mut Ports);
    let date = clock::read(&mut Ports).and_then(|date| date.checked_mul(1_000_000_000));
    let (mut manifest, mut memory) = (Vec::new(), Vec::new());
    for argument in rt::start().args.iter().skip(1) {
        match argument.split_once('=') {
            Some(("driver", line)) => manifest.push(Entry::read(line).ok_or(Error::Invalid)?),
            Some(("pool", text)) => {
                let (start, size) = range(text).ok_or(Error::Invalid)?;
                let region = passed(1 + memory.len())?;
                memory.push((start, Window::map(&region, 0, size, READ | WRITE)?));
            }
            _ => return Err(Error::Invalid),
        }
    }
    let mut found = pci::find_all(&Ports);
    pci::place(&Ports, &mut found, WINDOWS);
    let ranges = memory.iter().map(|(start, window)| (*start, window.size()));
    Ok(Shared {
        authority,
        busy: manifest.iter().map(|_| false).collect(),
        manifest,
        found,
        ledger: Ledger::new(),
        pool: Pool::new(ranges.collect()),
        memory,
        origin: date.and_then(|date| date.checked_sub(time::now())),
        page: page().map_err(rt::error_of)?,
        line_threads: [const { None }; LINES],
    })
}

/// The kinds of sessions: a driver's, or init's.
type Sessions = Either<DevicesStub<Session>, DeviceControlStub<Control>>;

/// The server, besides its sessions.
struct Machine {
    shared: Rc<RefCell<Shared>>,
    doors: Rc<RefCell<Vec<Ref>>>,
}

impl Host<Sessions> for Machine {
    fn open(&mut self, visitor: &Visitor) -> Result<Sessions, Error> {
        match (visitor.door, visitor.interface) {
            (CONTROL, DeviceControlClient::ID) => {
                Ok(Either::Second(Rc::new(DeviceControlStub(Control {
                    shared: Rc::clone(&self.shared),
                    doors: Rc::clone(&self.doors),
                }))))
            }
            // Drivers belong to no job: a client of a job that got a driver's door from it is refused.
            (FIRST_DRIVER.., DevicesClient::ID) if visitor.job != 0 => Err(Error::Denied),
            (FIRST_DRIVER.., DevicesClient::ID) => {
                let driver = (visitor.door - FIRST_DRIVER) as usize;
                let mut shared = self.shared.borrow_mut();
                let busy = shared.busy.get_mut(driver).ok_or(Error::Denied)?;
                if core::mem::replace(busy, true) {
                    return Err(Error::Exists);
                }
                Ok(Either::First(Rc::new(DevicesStub(Session {
                    shared: Rc::clone(&self.shared),
                    driver,
                    held: RefCell::default(),
                    why: RefCell::default(),
                }))))
            }
            _ => Err(Error::Denied),
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        // The server continues clearing when it has served the waiting requests.
        (!self.shared.borrow().pool.is_all_clear()).then_some(0)
    }

    fn settle(&mut self) {
        let cleared = self.shared.borrow_mut().clear_some();
        if cleared {
            CLEARED.happened();
        }
    }
}

fn serve() -> Result<Infallible, Error> {
    let shared = Rc::new(RefCell::new(set_up()?));
    let doors = Rc::new(RefCell::new(Vec::new()));
    let host = Machine {
        shared: Rc::clone(&shared),
        doors: Rc::clone(&doors),
    };
    let mut server = Server::new(host)?;
    server.knows(rt::names::job_of, rt::heap::want);
    let (_, control) = server.add_door()?;
    for _ in 0..shared.borrow().manifest.len() {
        let (_, door) = server.add_door()?;
        doors.borrow_mut().push(door);
    }
    let door = server.door().reference().map_err(rt::error_of)?;
    rt::names::register_with("device", &door, &control)?;
    server.run()
}

fn main() -> u8 {
    let Err(_) = serve();
    1
}
