//! The driver of QEMU's `edu` device, for tests: it does what it is told, even what no driver may do.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{READ, WRITE};
use abi::PAGE_SIZE;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use guest_tests::edu::{word, Attempt, Edu, EduClient, EduStub, WORDS};
use interface::client::Session;
use interface::server::Visitor;
use interface::{Error, Server};
use rt::obj::{Port, Ref, RefAt, Thread};
use rt::window::Window;
use rt::{sys, thread, time};
use services::device::{DevicesClient, Function, Place, Reach, Way};

rt::entry!(main);

/// Registers.
mod register {
    pub(crate) const INTERRUPTS: u64 = 0x24;
    pub(crate) const RAISE: u64 = 0x60;
    pub(crate) const ACKNOWLEDGE: u64 = 0x64;
    pub(crate) const FROM: u64 = 0x80;
    pub(crate) const TO: u64 = 0x88;
    pub(crate) const COUNT: u64 = 0x90;
    pub(crate) const COMMAND: u64 = 0x98;
}

/// Command bits: start a transfer, from the device, interrupt at its end.
const RUN: u64 = 1;
const BACK: u64 = 2;
const INTERRUPT: u64 = 4;
/// Where the device's buffer is, for transfers.
const BUFFER: u64 = 0x4_0000;
/// The interrupt status that a driver raises itself.
const HAND: u32 = 1;

/// The line, the ports and the memory that the manifest grants, as a whole and in pieces.
const LINE: u64 = 5;
const PORTS: [(u64, u64); 2] = [(0x280, 8), (0x288, 8)];
/// The channels of each of the two drivers; the manifest grants both to both.
const CHANNELS: [u64; 2] = [5, 6];
const MEMORY: u64 = 0x4_0000;
const PIECES: [u64; 4] = [1, 3, 20, 40];
const _: () = assert!((1 + 3 + 20 + 40) * PAGE_SIZE == MEMORY);

/// Nanoseconds within which an interrupt must come, and between two checks.
const PATIENCE: u64 = 10_000_000_000;
const LOOK: u64 = 100_000;
/// How often a driver allocates and frees.
const ROUNDS: usize = 100;
/// Most bytes of a report.
const REPORT: usize = 4096;

/// The address of the mapped registers, for the thread that takes interrupts; 0: not mapped.
static REGISTERS: AtomicU64 = AtomicU64::new(0);
/// Interrupts that came.
static CAME: AtomicU64 = AtomicU64::new(0);
/// The driver acknowledges no interrupt any more.
static IS_SILENT: AtomicBool = AtomicBool::new(false);
/// Interrupts since then.
static STORM: AtomicU64 = AtomicU64::new(0);

/// Memory that the device reaches.
struct Piece {
    physical: u64,
    window: Window,
}

impl Piece {
    fn at(&self, index: u64) -> *mut u64 {
        assert!(index < self.window.size() / 8);
        (self.window.address() + 8 * index) as *mut u64
    }

    /// Writes the words of a seed. No other memory contains them.
    fn fill(&self, seed: u64, words: u64) {
        for index in 0..words {
            // SAFETY: inside the window, which is no Rust object's memory.
            unsafe { self.at(index).write_volatile(word(seed, index)) };
        }
    }

    /// Whether the piece begins with so many words of a seed.
    fn has(&self, seed: u64, words: u64) -> bool {
        // SAFETY: as above.
        let is = |index| unsafe { self.at(index).read_volatile() } == word(seed, index);
        (0..words).all(is)
    }

    fn clear(&self) {
        for index in 0..self.window.size() / 8 {
            // SAFETY: as above.
            unsafe { self.at(index).write_volatile(0) };
        }
    }
}

/// The device, when the driver has it.
struct Device {
    function: Function,
    registers: Window,
    pieces: Vec<Piece>,
}

struct Driver {
    devices: DevicesClient,
    door: RefAt,
    /// Which of the two drivers this is.
    number: usize,
    thread: Ref,
    /// The line of its function, when that was attached.
    line: Option<virtio::Line>,
    device: Option<Device>,
    /// Pieces of memory, and the seeds of what is in them.
    watched: Vec<(Piece, u64)>,
}

fn read32(address: u64) -> u32 {
    // SAFETY: a register of the device, mapped for as long as the driver has it.
    unsafe { (address as *const u32).read_volatile() }
}

fn write32(address: u64, value: u32) {
    // SAFETY: as above.
    unsafe { (address as *mut u32).write_volatile(value) };
}

/// Waits until an interrupt has come since `before`.
fn wait_for(before: u64) -> Result<(), Error> {
    let deadline = time::now() + PATIENCE;
    while CAME.load(Relaxed) == before {
        if time::now() > deadline {
            return Err(Error::Broken);
        }
        time::sleep(LOOK);
    }
    Ok(())
}

fn take_interrupts() {
    loop {
        sys::thread_wait_interrupt();
        if IS_SILENT.load(Relaxed) {
            STORM.fetch_add(1, Relaxed);
            continue;
        }
        let registers = REGISTERS.load(Relaxed);
        if registers != 0 {
            let which = read32(registers + register::INTERRUPTS);
            write32(registers + register::ACKNOWLEDGE, which);
        }
        CAME.fetch_add(1, Relaxed);
    }
}

impl Device {
    fn wide(&self, register: u64) -> *mut u64 {
        (self.registers.address() + register) as *mut u64
    }

    fn is_busy(&self) -> bool {
        // SAFETY: a register of the device, which is mapped.
        unsafe { self.wide(register::COMMAND).read_volatile() & RUN != 0 }
    }

    /// Starts a transfer of the first words of a piece to the device's buffer, or back.
    fn begin(&self, piece: usize, command: u64) {
        let memory = self.pieces[piece].physical;
        let (from, to) = if command & BACK == 0 {
            (memory, BUFFER)
        } else {
            (BUFFER, memory)
        };
        for (register, value) in [
            (register::FROM, from),
            (register::TO, to),
            (register::COUNT, 8 * WORDS),
            (register::COMMAND, command | RUN | INTERRUPT),
        ] {
            // SAFETY: a register of the device; the transfer is of a page that is the driver's.
            unsafe { self.wide(register).write_volatile(value) };
        }
    }

    /// Waits for the end of a started transfer, and for its interrupt.
    fn settle(&self) {
        while self.is_busy() {
            time::sleep(10 * LOOK);
        }
        time::sleep(LOOK);
    }

    /// Does a whole transfer.
    fn transfer(&self, piece: usize, command: u64) -> Result<(), Error> {
        self.settle();
        let before = CAME.load(Relaxed);
        self.begin(piece, command);
        wait_for(before)
    }

    fn ring(&self) -> Result<(), Error> {
        let before = CAME.load(Relaxed);
        write32(self.registers.address() + register::RAISE, HAND);
        wait_for(before)
    }
}

/// Reports the result of a request.
fn say<T>(report: &mut String, devices: &mut DevicesClient, what: &str, result: Result<T, Error>) {
    let mut why = [0; 256];
    let sentence = match result {
        Ok(_) => "DONE",
        Err(error) => {
            let length = devices.why(&mut why).unwrap_or(0);
            let text = core::str::from_utf8(why.get(..length).unwrap_or(&[]));
            let _ = write!(report, "{what}: {}: ", error.text());
            text.unwrap_or("?")
        }
    };
    let _ = match result {
        Ok(_) => writeln!(report, "{what}: {sentence}"),
        Err(_) => writeln!(report, "{sentence}"),
    };
}

/// The comparison of results without a value.
const fn done((): &(), (): &()) -> bool {
    true
}

/// The comparison of regions of memory that shows a device, or that devices reach.
fn same_region(one: &Ref, other: &Ref) -> bool {
    one.same_as(**other)
}

/// The comparison of a region and a number: a physical address, or a line.
fn same_pair(one: &(u64, Ref), other: &(u64, Ref)) -> bool {
    one.0 == other.0 && one.1.same_as(*other.1)
}

/// Makes a request, and repeats it twice under the same number, as a client does that was stopped before the answer
/// came. Returns the result of the first. `is_same` compares two answers.
fn thrice<T>(
    report: &mut String,
    devices: &mut DevicesClient,
    what: &str,
    is_same: fn(&T, &T) -> bool,
    ask: impl Fn(&mut DevicesClient) -> Result<T, Error>,
) -> Result<T, Error> {
    let (port, number) = devices.session().kept();
    let first = ask(devices);
    let said = |result: &Result<T, Error>| match result {
        Ok(_) => "DONE",
        Err(error) => error.text(),
    };
    let mut told = String::from(said(&first));
    for _ in 0..2 {
        let port = port.copy().map_err(rt::error_of)?;
        let again = ask(&mut DevicesClient::resume(Session::resume(port, number)));
        let is_same = match (&first, &again) {
            (Ok(first), Ok(again)) => is_same(first, again),
            (Err(first), Err(again)) => first == again,
            _ => false,
        };
        let _ = match is_same {
            true => write!(told, ", the same"),
            false => write!(told, ", ANOTHER: {}", said(&again)),
        };
    }
    let _ = writeln!(report, "{what}: {told}");
    first
}

impl Driver {
    fn new(door: RefAt, number: usize) -> Result<Self, Error> {
        let devices = virtio::session(&door)?;
        let attach =
            || thread::spawn_at(proto::layout::PRIORITY_PROGRAM, take_interrupts)?.reference();
        let thread = attach().map_err(rt::error_of)?;
        Ok(Driver {
            devices,
            door,
            number,
            thread,
            line: None,
            device: None,
            watched: Vec::new(),
        })
    }

    /// Allocates memory that devices reach, which must be all zeros.
    fn piece(&mut self, pages: u64) -> Result<Piece, Error> {
        let size = pages * PAGE_SIZE;
        let (physical, region) = self.devices.dma(size, PAGE_SIZE, Reach::Bits32)?;
        let window = Window::map(&region, 0, size, READ | WRITE)?;
        match window.is_zero(0, size)? {
            true => Ok(Piece { physical, window }),
            false => Err(Error::Broken),
        }
    }

    /// Claims the function, and maps its registers.
    fn claim(&mut self) -> Result<(Function, Window), Error> {
        let (function, _, _) = self.devices.function(self.number as u64)?;
        self.devices.claim(function)?;
        let (place, _, size) = self.devices.base(function, 0)?;
        if place != Place::Memory {
            return Err(Error::Unsupported);
        }
        let region = self.devices.map_base(function, 0)?;
        let registers = Window::map(&region, 0, size, READ | WRITE)?;
        REGISTERS.store(registers.address(), Relaxed);
        let line = virtio::Line::attach(&mut self.devices, function, &self.thread)?;
        self.line = Some(line);
        Ok((function, registers))
    }

    /// Acknowledges an interrupt of the device.
    fn acknowledge(&mut self, function: Function) -> Result<(), Error> {
        match self.line.as_ref().is_some_and(virtio::Line::is_shared) {
            true => self.devices.acknowledge(function),
            false => Ok(()),
        }
    }

    fn ring(&mut self) -> Result<(), Error> {
        let device = self.device()?;
        let function = device.function;
        device.ring()?;
        self.acknowledge(function)
    }

    /// Raises an interrupt, never acknowledges it to the device, and so often to the device server.
    fn mute(&mut self, acknowledged: u64, report: &mut String) -> Result<(), Error> {
        let device = self.device()?;
        let function = device.function;
        let before = STORM.load(Relaxed);
        IS_SILENT.store(true, Relaxed);
        write32(device.registers.address() + register::RAISE, HAND);
        for _ in 0..acknowledged {
            time::sleep(LOOK);
            self.acknowledge(function)?;
        }
        time::sleep(100 * LOOK);
        let told = STORM.load(Relaxed) - before;
        let _ = writeln!(report, "told {told} times");
        Ok(())
    }

    fn drive(&mut self) -> Result<bool, Error> {
        if self.device.is_some() {
            return Err(Error::Exists);
        }
        let (function, registers) = self.claim()?;
        if self.number == 0 {
            self.devices.attach_line(LINE, &self.thread)?;
        }
        let (first, count) = PORTS[self.number];
        self.devices
            .grant_ports(first, count, &rt::start::space())?;
        self.devices.claim_channel(CHANNELS[self.number])?;
        let mut device = Device {
            function,
            registers,
            pieces: Vec::new(),
        };
        // A transfer that an earlier driver has started cannot be stopped; it reaches no memory, since this function
        // does not.
        let busy = device.is_busy();
        device.settle();
        let registers = device.registers.address();
        write32(registers + register::ACKNOWLEDGE, u32::MAX);
        // That transfer interrupted as soon as the function was attached, if the earlier driver had not acknowledged
        // it.
        self.acknowledge(function)?;
        self.devices.reaches_memory(function)?;
        // Everything that the driver may have, to the last page: nothing of an earlier driver's is missing.
        for pages in PIECES {
            let piece = self.piece(pages)?;
            device.pieces.push(piece);
        }
        device.transfer(0, BACK)?;
        self.device = Some(device);
        self.acknowledge(function)?;
        Ok(busy)
    }

    fn device(&self) -> Result<&Device, Error> {
        self.device.as_ref().ok_or(Error::NotFound)
    }

    fn begin(&self, seed: u64, back: bool) -> Result<(), Error> {
        let device = self.device()?;
        device.settle();
        device.pieces[1].fill(seed, WORDS);
        match back {
            false => device.begin(1, 0),
            true => {
                device.transfer(1, 0)?;
                device.pieces[1].clear();
                device.begin(1, BACK);
            }
        }
        Ok(())
    }

    fn echo(&self, seed: u64) -> Result<(), Error> {
        let device = self.device()?;
        device.settle();
        // The content of the device's buffer when the device was claimed.
        device.pieces[0].clear();
        device.pieces[1].fill(seed, WORDS);
        device.transfer(1, 0)?;
        device.transfer(2, BACK)?;
        match device.pieces[2].has(seed, WORDS) {
            true => Ok(()),
            false => Err(Error::Broken),
        }
    }

    fn watch(&mut self, seed: u64) -> Result<(), Error> {
        let words = PAGE_SIZE / 8;
        if !self
            .watched
            .iter()
            .all(|(piece, seed)| piece.has(*seed, words))
        {
            return Err(Error::Broken);
        }
        if !self.watched.is_empty() {
            let place = seed as usize % self.watched.len();
            let (piece, _) = self.watched.swap_remove(place);
            piece.clear();
            let Piece { physical, window } = piece;
            drop(window);
            self.devices.free_dma(physical)?;
        }
        // The lowest free memory comes first, which other drivers may have had before.
        loop {
            match self.piece(1) {
                Ok(piece) => {
                    let seed = !seed ^ self.watched.len() as u64;
                    piece.fill(seed, words);
                    self.watched.push((piece, seed));
                }
                Err(Error::Limit) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn taken(&mut self, report: &mut String) -> Result<(), Error> {
        let own = self.device()?.function;
        let (other, _, _) = self.devices.function(1 - self.number as u64)?;
        let (thread, space) = (
            self.thread.copy().map_err(rt::error_of)?,
            rt::start::space(),
        );
        let d = &mut self.devices;
        let mut try_it =
            |what: &str, ask: &mut dyn FnMut(&mut DevicesClient) -> Result<(), Error>| {
                let result = ask(d);
                say(report, d, what, result);
            };
        try_it("the console's line", &mut |d| d.attach_line(4, &thread));
        try_it("no line", &mut |d| d.attach_line(16, &thread));
        try_it("its own line again", &mut |d| d.attach_line(LINE, &thread));
        try_it("a line that it does not have", &mut |d| d.detach_line(4));
        try_it("the console's ports", &mut |d| {
            d.grant_ports(0x3f8, 8, &space)
        });
        try_it("all configurations", &mut |d| {
            d.grant_ports(0xcf8, 8, &space)
        });
        try_it("a port more", &mut |d| d.grant_ports(0x280, 9, &space));
        try_it("a part again", &mut |d| d.grant_ports(0x284, 1, &space));
        try_it("a part back", &mut |d| d.revoke_ports(0x284, 1));
        try_it("memory", &mut |d| d.map(0x10_0000, 0x1000).map(drop));
        try_it("memory that it does not have", &mut |d| d.unmap(0x10_0000));
        try_it("the bridge", &mut |d| d.claim(0));
        try_it("no function", &mut |d| d.claim(u64::MAX));
        try_it("its own function again", &mut |d| d.claim(own));
        try_it("the other's function", &mut |d| d.claim(other));
        try_it("its registers", &mut |d| d.map_base(other, 0).map(drop));
        try_it("its line", &mut |d| {
            d.attach_function(other, &thread).map(drop)
        });
        try_it("its mastering", &mut |d| d.reaches_memory(other));
        try_it("its release", &mut |d| d.release(other));
        try_it("its command", &mut |d| d.config_write(other, 4, 2, 7));
        try_it("a seventh base address", &mut |d| {
            d.map_base(own, 6).map(drop)
        });
        try_it("its memory while the device reaches it", &mut |d| {
            d.free_dma(0)
        });
        let seen = d.config_read(other, 0, 4);
        let _ = writeln!(
            report,
            "the other's configuration reads {:#x}",
            seen.unwrap_or(0)
        );
        let second = DevicesClient::open_known(&self.door).map(drop);
        let _ = writeln!(
            report,
            "a second session: {}",
            second.map_or_else(|e| e.text(), |()| "DONE")
        );
        Ok(())
    }

    fn configuration(&mut self, report: &mut String) -> Result<(), Error> {
        let own = self.device()?.function;
        let d = &mut self.devices;
        let all = |d: &mut DevicesClient| -> Vec<u64> {
            let words = (0..64).map(|word| d.config_read(own, 4 * word, 4));
            words.map(|word| word.unwrap_or(u64::MAX)).collect()
        };
        let before = all(d);
        // The messages by which the device interrupts (MSI): an address in memory, and a word.
        let messages = before[13] & 0xfc;
        for (what, offset, size, value) in [
            ("vendor", 0, 4, 0),
            ("mastering", 4, 2, 7),
            ("mastering and all else", 4, 4, 0xffff_ffff),
            ("base address 0", 0x10, 4, 0xfee0_0000),
            ("half a base address", 0x12, 2, 0x1000),
            ("the ROM", 0x30, 4, 0xfee0_0001),
            ("line", 0x3c, 1, 4),
            ("messages on", messages + 2, 2, 1),
            ("where messages go", messages + 4, 4, 0x1000),
            ("across registers", 3, 2, 0),
            ("eight bytes", 0x10, 8, 0),
            ("behind the last", 256, 4, 0),
            ("far behind", u64::MAX - 3, 4, 0),
        ] {
            let result = d.config_write(own, offset, size, value);
            say(report, d, what, result);
        }
        let same = all(d) == before;
        let _ = writeln!(
            report,
            "the configuration is {}",
            if same { "the same" } else { "ANOTHER" }
        );
        Ok(())
    }

    fn everything(&mut self, report: &mut String) -> Result<(), Error> {
        let device = self.device.take().ok_or(Error::NotFound)?;
        let thread = self.thread.copy().map_err(rt::error_of)?;
        let space = rt::start::space();
        let d = &mut self.devices;
        let lines = (0..256)
            .filter(|line| d.attach_line(*line, &thread).is_ok())
            .count();
        let ports = (0..0x1_0000)
            .step_by(16)
            .filter(|first| d.grant_ports(*first, 16, &space).is_ok())
            .count();
        let memory = (0..4096u64)
            .filter(|n| d.map(n << 20, 1 << 20).is_ok())
            .count();
        let functions = (0..256)
            .filter(|function| d.claim(*function).is_ok())
            .count();
        let _ = writeln!(
            report,
            "{lines} lines, {ports} ranges of ports, {memory} MB of memory, {functions} functions"
        );
        for (what, size, align) in [
            ("a page more", PAGE_SIZE, PAGE_SIZE),
            ("half a page", PAGE_SIZE / 2, PAGE_SIZE),
            ("none", 0, PAGE_SIZE),
            (
                "all there can be",
                u64::MAX / PAGE_SIZE * PAGE_SIZE,
                PAGE_SIZE,
            ),
            ("an alignment that is none", PAGE_SIZE, 3),
        ] {
            let result = d.dma(size, align, Reach::All);
            say(report, d, what, result);
        }
        // Allocates all its memory again, in single pages.
        d.release(device.function)?;
        for piece in &device.pieces {
            d.free_dma(piece.physical)?;
        }
        drop(device);
        REGISTERS.store(0, Relaxed);
        let far = d.dma(PAGE_SIZE, 1 << 63, Reach::All);
        say(report, d, "an alignment beyond all memory", far);
        let mut pages = Vec::new();
        while let Ok((physical, _)) = d.dma(PAGE_SIZE, PAGE_SIZE, Reach::All) {
            pages.push(physical);
        }
        let _ = writeln!(report, "{} pages of {}", pages.len(), MEMORY / PAGE_SIZE);
        for physical in pages {
            d.free_dma(physical)?;
        }
        d.detach_line(LINE)?;
        let (first, count) = PORTS[self.number];
        d.revoke_ports(first, count)?;
        d.release_channel(CHANNELS[self.number])?;
        self.drive().map(drop)
    }

    fn channels(&mut self, report: &mut String) -> Result<(), Error> {
        let device = self.device.take().ok_or(Error::NotFound)?;
        let (own, other) = (CHANNELS[self.number], CHANNELS[1 - self.number]);
        let d = &mut self.devices;
        d.release(device.function)?;
        for piece in &device.pieces {
            d.free_dma(piece.physical)?;
        }
        drop(device);
        REGISTERS.store(0, Relaxed);
        let (page, _) = d.dma(PAGE_SIZE, PAGE_SIZE, Reach::Low)?;
        let start = |d: &mut DevicesClient, channel, physical, size| {
            d.start_channel(channel, physical, size, Way::ToMemory, true)
        };
        for (what, channel) in [
            ("a channel that it was not given", 1),
            ("the controller's own", 4),
            ("no channel", 8),
            ("far from any", u64::MAX),
            ("its own again", own),
            ("the other's", other),
        ] {
            let result = d.claim_channel(channel);
            say(report, d, what, result);
        }
        let results = [
            ("the other's, to move", start(d, other, page, PAGE_SIZE)),
            ("to stop", d.stop_channel(other)),
            ("to give back", d.release_channel(other)),
            ("to look at", d.left(other).map(drop)),
        ];
        for (what, result) in results {
            let told = result.map_or_else(|error| error.text(), |()| "DONE");
            let _ = writeln!(report, "{what}: {told}");
        }
        let result = d.left(own);
        say(report, d, "what is left of nothing", result);
        for (what, physical, size) in [
            ("memory that is not its own", 0x1f_0000, PAGE_SIZE),
            ("the first page", 0, PAGE_SIZE),
            ("beyond 16 MB", 16 << 20, PAGE_SIZE),
            ("the end of 16 MB", (16 << 20) - PAGE_SIZE, 2 * PAGE_SIZE),
            ("around all memory", u64::MAX - 1, 4),
            ("across a boundary", 0x2_0000 - PAGE_SIZE, 2 * PAGE_SIZE),
            ("half a word", 0x10_0001, 2),
            ("a word and a half", 0x10_0000, 3),
            ("nothing", page, 0),
        ] {
            let result = start(d, own, physical, size);
            say(report, d, what, result);
        }
        // The addresses differ from one build to the next.
        let _ = writeln!(
            report,
            "a page before its own is refused: {}",
            start(d, own, page - PAGE_SIZE, 2 * PAGE_SIZE).is_err()
        );
        start(d, own, page, PAGE_SIZE)?;
        let _ = writeln!(report, "{} bytes are left", d.left(own)?);
        let result = d.free_dma(page);
        say(report, d, "its memory while a channel moves it", result);
        d.stop_channel(own)?;
        d.free_dma(page)?;
        let _ = writeln!(
            report,
            "memory that it has given back is refused: {}",
            start(d, own, page, PAGE_SIZE) == Err(Error::Denied)
        );
        d.detach_line(LINE)?;
        let (first, count) = PORTS[self.number];
        d.revoke_ports(first, count)?;
        d.release_channel(own)?;
        let result = d.release_channel(own);
        say(report, d, "back again", result);
        self.drive().map(drop)
    }

    fn repeats(&mut self, report: &mut String) -> Result<(), Error> {
        let device = self.device.take().ok_or(Error::NotFound)?;
        let own = device.function;
        let thread = self.thread.copy().map_err(rt::error_of)?;
        let (space, channel) = (rt::start::space(), CHANNELS[self.number]);
        let (first, count) = PORTS[self.number];
        let d = &mut self.devices;
        thrice(report, d, "release", done, |d| d.release(own))?;
        for piece in &device.pieces {
            d.free_dma(piece.physical)?;
        }
        drop(device);
        REGISTERS.store(0, Relaxed);
        thrice(report, d, "claim", done, |d| d.claim(own))?;
        thrice(report, d, "map_base", same_region, |d| d.map_base(own, 0))?;
        let attach = |d: &mut DevicesClient| d.attach_function(own, &thread);
        thrice(report, d, "attach_function", same_pair, attach)?;
        // The allocated pieces show whether one was given more than once.
        let page = |d: &mut DevicesClient| d.dma(PAGE_SIZE, PAGE_SIZE, Reach::All);
        let (physical, _) = thrice(report, d, "dma", same_pair, page)?;
        let mut others = Vec::new();
        while let Ok((physical, _)) = page(d) {
            others.push(physical);
        }
        let _ = writeln!(report, "{} pages more", others.len());
        let result = thrice(report, d, "a page more", same_pair, page);
        say(report, d, "which is", result);
        thrice(report, d, "free_dma", done, |d| d.free_dma(physical))?;
        for physical in others {
            d.free_dma(physical)?;
        }
        let (low, _) = d.dma(PAGE_SIZE, PAGE_SIZE, Reach::Low)?;
        thrice(report, d, "start_channel", done, |d| {
            d.start_channel(channel, low, PAGE_SIZE, Way::ToMemory, true)
        })?;
        thrice(report, d, "stop_channel", done, |d| d.stop_channel(channel))?;
        d.free_dma(low)?;
        let release = |d: &mut DevicesClient| d.release_channel(channel);
        thrice(report, d, "release_channel", done, release)?;
        let claim = |d: &mut DevicesClient| d.claim_channel(channel);
        thrice(report, d, "claim_channel", done, claim)?;
        thrice(report, d, "detach_line", done, |d| d.detach_line(LINE))?;
        let attach = |d: &mut DevicesClient| d.attach_line(LINE, &thread);
        thrice(report, d, "attach_line", done, attach)?;
        let revoke = |d: &mut DevicesClient| d.revoke_ports(first, count);
        thrice(report, d, "revoke_ports", done, revoke)?;
        let grant = |d: &mut DevicesClient| d.grant_ports(first, count, &space);
        thrice(report, d, "grant_ports", done, grant)?;
        // The message is that of the refusal, also for a repeated request.
        let result = thrice(report, d, "grant_base", done, |d| {
            d.grant_base(own, 0, &space)
        });
        say(report, d, "which is", result);
        let result = thrice(report, d, "unmap", done, |d| d.unmap(0x10_0000));
        say(report, d, "which is", result);
        d.detach_line(LINE)?;
        d.revoke_ports(first, count)?;
        d.release_channel(channel)?;
        d.release(own)?;
        self.drive().map(drop)
    }

    fn round(&mut self) -> Result<(), Error> {
        let function = self.device()?.function;
        let thread = self.thread.copy().map_err(rt::error_of)?;
        let (first, count) = PORTS[self.number];
        let d = &mut self.devices;
        d.detach_line(LINE)?;
        d.attach_line(LINE, &thread)?;
        d.revoke_ports(first, count)?;
        d.grant_ports(first, count, &rt::start::space())?;
        d.release(function)?;
        let (function, registers) = self.claim()?;
        self.devices.reaches_memory(function)?;
        if let Some(device) = &mut self.device {
            device.registers = registers;
        }
        Ok(())
    }

    fn references(&mut self, report: &mut String) -> Result<(), Error> {
        let own = self.device()?.function;
        let port = Port::new()
            .and_then(|port| port.reference())
            .map_err(rt::error_of)?;
        let gone = || {
            let thread = Thread::new()?;
            let reference = thread.reference()?;
            drop(thread);
            Ok(reference)
        };
        let gone = gone().map_err(rt::error_of)?;
        // One that was never made: an identity without a body is vacant.
        let (space, thread) = (
            rt::start::space(),
            self.thread.copy().map_err(rt::error_of)?,
        );
        let d = &mut self.devices;
        d.detach_line(LINE)?;
        let (first, count) = PORTS[self.number];
        d.revoke_ports(first, count)?;
        for (what, reference) in [
            ("a port", &*port),
            ("a space", &space),
            ("a thread that is gone", &*gone),
        ] {
            let result = d.attach_line(LINE, reference);
            say(report, d, what, result);
            let result = d.attach_function(own, reference);
            say(report, d, "for its function", result);
        }
        for (what, reference) in [
            ("a port", &*port),
            ("a thread", &*thread),
            ("a thread that is gone", &*gone),
        ] {
            let result = d.grant_ports(first, count, reference);
            say(report, d, what, result);
        }
        d.grant_ports(first, count, &space)?;
        d.attach_line(LINE, &thread)
    }

    fn attempt(&mut self, what: Attempt) -> Result<String, Error> {
        let mut report = String::new();
        match what {
            Attempt::Taken => self.taken(&mut report)?,
            Attempt::Configuration => self.configuration(&mut report)?,
            Attempt::Everything => self.everything(&mut report)?,
            Attempt::Loop => {
                for _ in 0..ROUNDS {
                    self.round()?;
                }
                let _ = writeln!(report, "{ROUNDS} rounds");
            }
            Attempt::Channels => self.channels(&mut report)?,
            Attempt::Repeats => self.repeats(&mut report)?,
            Attempt::References => self.references(&mut report)?,
            Attempt::Mute => self.mute(0, &mut report)?,
            Attempt::Careless => self.mute(100, &mut report)?,
            Attempt::Silence => {
                IS_SILENT.store(true, Relaxed);
                write32(self.device()?.registers.address() + register::RAISE, HAND);
                while STORM.load(Relaxed) < 1000 {
                    time::sleep(LOOK);
                }
                report.push_str("it interrupts without an end\n");
            }
        }
        Ok(report)
    }
}

struct Client(&'static RefCell<Driver>);

impl Edu for Client {
    fn drive(&self) -> Result<bool, Error> {
        self.0.borrow_mut().drive()
    }

    fn had(&self, seed: u64) -> Result<bool, Error> {
        Ok(self.0.borrow().device()?.pieces[0].has(seed, WORDS))
    }

    fn begin(&self, seed: u64, back: bool) -> Result<(), Error> {
        self.0.borrow().begin(seed, back)
    }

    fn echo(&self, seed: u64) -> Result<(), Error> {
        self.0.borrow().echo(seed)
    }

    fn ring(&self) -> Result<(), Error> {
        self.0.borrow_mut().ring()
    }

    fn watch(&self, seed: u64) -> Result<(), Error> {
        self.0.borrow_mut().watch(seed)
    }

    fn attempt(
        &self,
        what: Attempt,
        room: usize,
    ) -> Result<impl core::ops::Deref<Target = [u8]>, Error> {
        let report = self.0.borrow_mut().attempt(what)?;
        match report.len() <= room.min(REPORT) {
            true => Ok(report.into_bytes()),
            false => Err(Error::Limit),
        }
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let door = rt::start::passed(0).ok_or(Error::Invalid)?;
    let name = rt::start().args.get(1).ok_or(Error::Invalid)?;
    let number = guest_tests::edu::NAMES.iter().position(|own| own == name);
    let driver = Driver::new(door, number.ok_or(Error::Invalid)?)?;
    let driver: &'static RefCell<Driver> =
        alloc::boxed::Box::leak(alloc::boxed::Box::new(RefCell::new(driver)));
    let mut server = Server::new(move |visitor: &Visitor| {
        if visitor.door == 0 || visitor.interface != EduClient::ID {
            return Err(Error::Denied);
        }
        Ok(EduStub(Client(driver)))
    })?;
    server.knows(rt::names::job_of, rt::heap::want);
    let (_, control) = server.add_door()?;
    let door = server.door().reference().map_err(rt::error_of)?;
    rt::names::register_with(name, &door, &control)?;
    server.run()
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::println!("edu: {}", error.text());
    1
}
