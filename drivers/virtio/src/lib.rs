//! What drivers of virtio devices share: what `virtio-drivers` needs of the machine, which the device server provides
//! (configuration, registers, memory that the device reaches), the reset of the device, and the handling of its
//! interrupts.
#![no_std]

extern crate alloc;

mod bounded;
mod idle;

use abi::access::{READ, WRITE};
use abi::PAGE_SIZE;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bounded::Bounded;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{fence, AtomicU64, AtomicUsize, Ordering};
pub use idle::{Idle, IDLE_PAUSE};
use interface::Error;
use rt::obj::RefAt;
use rt::sync::Mutex;
use rt::window::Window;
use rt::{thread, time};
use services::device::{DevicesClient, Function, Place, Reach};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::{DeviceStatus, Transport};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Whether the device must be notified of new buffers in a queue. The buffers must be visible before the driver reads
/// whether the device wants notifications; without the fence that load could be done before the store in front of it
/// is visible (virtio 1.2, section 2.7.13.4.1).
pub fn must_notify<H: Hal, const SIZE: usize>(queue: &VirtQueue<H, SIZE>) -> bool {
    fence(Ordering::SeqCst);
    queue.should_notify()
}

/// Sets whether the device is to interrupt, before the driver checks what it has done; the fence is for the same
/// reason as in [`must_notify`].
pub fn interrupts<H: Hal, const SIZE: usize>(queue: &mut VirtQueue<H, SIZE>, wanted: bool) {
    queue.set_dev_notify(wanted);
    fence(Ordering::SeqCst);
}

/// Memory that the device reaches.
#[derive(Debug)]
pub struct Arena {
    physical: u64,
    window: Window,
    /// Offset of the next page for a queue, from the beginning of the arena.
    next: AtomicUsize,
    /// Where the pages for queues end.
    end: usize,
}

impl Arena {
    fn inside(&self, at: usize, size: usize) -> *mut u8 {
        let end = at.checked_add(size);
        assert!(end.is_some_and(|end| end as u64 <= self.window.size()));
        (self.window.address() as usize + at) as *mut u8
    }

    /// Writes bytes at an offset.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.inside(at, bytes.len());
        // SAFETY: inside the arena, which is mapped for as long as the driver runs, and no Rust object's memory.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// The bytes at an offset, for the device to read.
    pub fn slice(&'static self, at: usize, size: usize) -> &'static [u8] {
        // SAFETY: as above; the driver writes to no slot that is being read.
        unsafe { core::slice::from_raw_parts(self.inside(at, size), size) }
    }

    /// The bytes at an offset, for the device to write.
    #[allow(
        clippy::mut_from_ref,
        reason = "no Rust object's memory; a slot is one request's"
    )]
    pub fn slice_mut(&'static self, at: usize, size: usize) -> &'static mut [u8] {
        // SAFETY: as above; a slot is one request's at a time, and handed to the queue only.
        unsafe { core::slice::from_raw_parts_mut(self.inside(at, size), size) }
    }
}

/// The arena, when there is one.
static ARENA: Mutex<Option<&'static Arena>> = Mutex::new(None);
/// Mapped registers: physical address, and window.
static REGISTERS: Mutex<Vec<(u64, Window)>> = Mutex::new(Vec::new());

/// The functions that `virtio-drivers` calls.
#[derive(Debug)]
pub struct Glue;

// SAFETY: memory comes from the arena, page by page, and is never given out twice; registers are mapped ones.
unsafe impl Hal for Glue {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let size = pages * PAGE_SIZE as usize;
        let arena = *ARENA.lock();
        let taken = arena.and_then(|arena| {
            let at = arena.next.fetch_add(size, Ordering::Relaxed);
            let fits = at.checked_add(size)? <= arena.end;
            fits.then(|| {
                (
                    arena.physical + at as u64,
                    NonNull::new(arena.inside(at, size)),
                )
            })
        });
        match taken {
            Some((physical, Some(address))) => (physical, address),
            // An address of 0 tells the crate that there is no memory.
            _ => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        // The arena goes as a whole, with the session at the device server.
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, size: usize) -> NonNull<u8> {
        let registers = REGISTERS.lock();
        let found = registers.iter().find_map(|(start, window)| {
            let offset = physical.checked_sub(*start)?;
            let end = offset.checked_add(size as u64)?;
            (end <= window.size()).then_some(window.address() + offset)
        });
        let address = found.expect("the device describes registers that it does not have");
        NonNull::new(address as *mut u8).expect("a window is not at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        let arena = ARENA.lock().expect("there are buffers in the arena only");
        let offset = buffer.cast::<u8>().as_ptr() as u64 - arena.window.address();
        assert!(
            offset < arena.window.size(),
            "a buffer outside of the arena"
        );
        arena.physical + offset
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The configuration of our function.
struct Configuration(Arc<Session>);

/// The session at the device server, and the function.
struct Session {
    devices: Mutex<DevicesClient>,
    function: Function,
}

impl ConfigurationAccess for Configuration {
    fn read_word(&self, place: DeviceFunction, offset: u8) -> u32 {
        let function =
            u64::from(place.bus) << 8 | u64::from(place.device) << 3 | u64::from(place.function);
        let mut devices = self.0.devices.lock();
        let word = devices.config_read(function, u64::from(offset), 4);
        word.map_or(u32::MAX, |word| word as u32)
    }

    fn write_word(&mut self, place: DeviceFunction, offset: u8, value: u32) {
        let function =
            u64::from(place.bus) << 8 | u64::from(place.device) << 3 | u64::from(place.function);
        let mut devices = self.0.devices.lock();
        // The device does not need what the server refuses: it answers at its base addresses.
        let _ = devices.config_write(function, u64::from(offset), 4, u64::from(value));
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Configuration(Arc::clone(&self.0))
    }
}

/// How long the session of the previous driver may take to end, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;
/// The pause between two checks for that, in nanoseconds.
const PAUSE: u64 = 100_000;
/// The pause between two checks of the device while it resets, in nanoseconds: at first, and later.
const RESET_PAUSES: [u64; 2] = [10_000, 1_000_000];

/// The registers of a device. They are left as they are when the driver ends: the next driver resets the device
/// before it lets the device reach memory. (Dropping the crate's type would reset the device, and ask it for ever
/// whether that is done: with a device that never says so, the driver would spin above all programs, where an error
/// was to end it.)
pub type Registers = ManuallyDrop<PciTransport>;

const _: () = assert!(!core::mem::needs_drop::<Registers>());

/// Opens a session at the device server, once the session of the previous driver has ended.
///
/// # Errors
/// `Exists` if that session does not end; errors of the device server.
pub fn session(door: &RefAt) -> Result<DevicesClient, Error> {
    let deadline = time::now() + PATIENCE;
    loop {
        match DevicesClient::open_known(door) {
            Err(Error::Exists) if time::now() < deadline => time::sleep(PAUSE),
            session => return session,
        }
    }
}

/// The device that this driver drives.
pub struct Device(Arc<Session>);

impl Device {
    /// Claims the first function that the manifest lets this driver have, and maps its registers.
    ///
    /// # Errors
    /// `NotFound` if there is none; errors of the device server.
    pub fn find(door: RefAt) -> Result<Self, Error> {
        let mut devices = session(&door)?;
        let (function, _, _) = devices.function(0)?;
        devices.claim(function)?;
        for index in 0..6 {
            let (place, start, size) = devices.base(function, index)?;
            if place == Place::Memory && start != 0 {
                let first = start / PAGE_SIZE * PAGE_SIZE;
                let size = (start - first + size).next_multiple_of(PAGE_SIZE);
                let region = devices.map_base(function, index)?;
                let window = Window::map(&region, 0, size, READ | WRITE)?;
                REGISTERS.lock().push((first, window));
            }
        }
        Ok(Device(Arc::new(Session {
            devices: Mutex::new(devices),
            function,
        })))
    }

    /// Its registers, for `virtio-drivers`. The device has been reset: it knows no address of an earlier driver's,
    /// and reaches memory from here on.
    ///
    /// # Errors
    /// `Unsupported` if this is no virtio device; errors of the device server.
    pub fn transport(&self) -> Result<Registers, Error> {
        let mut root = PciRoot::new(Bounded::new(Configuration(Arc::clone(&self.0))));
        let place = DeviceFunction {
            bus: (self.0.function >> 8) as u8,
            device: (self.0.function >> 3 & 31) as u8,
            function: (self.0.function & 7) as u8,
        };
        let transport = PciTransport::new::<Glue, _>(&mut root, place).map(ManuallyDrop::new);
        let mut transport = transport.map_err(|_| Error::Unsupported)?;
        transport.set_status(DeviceStatus::empty());
        let [mut pause, longest] = RESET_PAUSES;
        while transport.get_status() != DeviceStatus::empty() {
            time::sleep(pause);
            pause = (2 * pause).min(longest);
        }
        let mut devices = self.0.devices.lock();
        devices.reaches_memory(self.0.function)?;
        Ok(transport)
    }

    /// Memory that the device reaches: `begin` bytes for its queues, and behind them up to `most` slots of `slot`
    /// bytes, as many as there is memory for. Returns the arena and the number of slots.
    ///
    /// # Errors
    /// `NoMemory` or `Limit` if there is too little for one slot.
    pub fn arena_of_slots(
        &self,
        begin: usize,
        slot: usize,
        most: usize,
    ) -> Result<(&'static Arena, usize), Error> {
        let mut slots = most;
        loop {
            match self.arena((begin + slots * slot) as u64, begin) {
                Err(Error::NoMemory | Error::Limit) if slots > 1 => slots /= 2,
                arena => return Ok((arena?, slots)),
            }
        }
    }

    /// Memory that the device reaches; up to `pages` bytes at its beginning are for pages of its queues.
    fn arena(&self, size: u64, pages: usize) -> Result<&'static Arena, Error> {
        let mut devices = self.0.devices.lock();
        let (physical, region) = devices.dma(size, PAGE_SIZE, Reach::All)?;
        let arena: &'static Arena = Box::leak(Box::new(Arena {
            physical,
            window: Window::map(&region, 0, size, READ | WRITE)?,
            next: AtomicUsize::new(0),
            end: pages,
        }));
        *ARENA.lock() = Some(arena);
        Ok(arena)
    }

    /// Sends its interrupts to a thread of this priority, which calls `serve` after each; `serve` returns whether the
    /// device had a reason to interrupt. A device that interrupts without a reason is served only now and then.
    ///
    /// # Errors
    /// `NoMemory` for the thread, and errors of the device server.
    pub fn interrupts(&self, priority: u64, serve: fn() -> bool) -> Result<(), Error> {
        let thread = thread::spawn_at(priority, move || serve_interrupts(serve));
        let thread = thread.and_then(|thread| thread.reference());
        let thread = thread.map_err(rt::error_of)?;
        // Held, so that the thread finds the line at its first interrupt.
        let mut attached = ATTACHED.lock();
        let mut devices = self.0.devices.lock();
        let line = Line::attach(&mut devices, self.0.function, &thread)?;
        drop(devices);
        *attached = Some((line, Arc::clone(&self.0)));
        Ok(())
    }
}

/// The feature of devices that conform to version 1 of the standard.
pub const VERSION_1: u64 = 1 << 32;

/// Negotiates features with the device. Returns which of the `wanted` ones both have.
///
/// # Errors
/// `Unsupported` if a `needed` one is not among them, or if the device rejects the choice.
pub fn negotiate(transport: &mut Registers, wanted: u64, needed: u64) -> Result<u64, Error> {
    let status = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(status);
    let features = transport.read_device_features() & (wanted | needed);
    if features & needed != needed {
        return Err(Error::Unsupported);
    }
    transport.write_driver_features(features);
    transport.set_status(status | DeviceStatus::FEATURES_OK);
    match transport.get_status().contains(DeviceStatus::FEATURES_OK) {
        true => Ok(features),
        false => Err(Error::Unsupported),
    }
}

/// Lets the device begin, once features are negotiated and its queues are made.
pub fn begin(transport: &mut Registers) {
    let agreed = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER | DeviceStatus::FEATURES_OK;
    transport.set_status(agreed | DeviceStatus::DRIVER_OK);
}

/// The line of a function that has been attached.
#[derive(Debug)]
pub struct Line {
    page: Window,
    number: u64,
}

impl Line {
    /// Attaches a function to a thread.
    ///
    /// # Errors
    /// Errors of the device server.
    pub fn attach(
        devices: &mut DevicesClient,
        function: Function,
        thread: &RefAt,
    ) -> Result<Self, Error> {
        let (number, page) = devices.attach_function(function, thread)?;
        let page = Window::map(&page, 0, PAGE_SIZE, READ)?;
        match number < page.size() / 8 {
            true => Ok(Line { page, number }),
            false => Err(Error::Broken),
        }
    }

    /// Whether other drivers have the line, too: then this driver acknowledges each interrupt. To be called after the
    /// device was served.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let word = (self.page.address() + 8 * self.number) as *const AtomicU64;
        // SAFETY: a word of the page, which is mapped for as long as this is there; the device server alone writes to it.
        unsafe { &*word }.load(Ordering::Acquire) != 0
    }
}

/// The line of this driver's device.
static ATTACHED: Mutex<Option<(Line, Arc<Session>)>> = Mutex::new(None);

/// The thread of a device's interrupts.
fn serve_interrupts(serve: fn() -> bool) {
    let mut idle = Idle::new();
    loop {
        rt::sys::thread_wait_interrupt();
        let pauses = idle.served(serve());
        acknowledge();
        if pauses {
            // The line is masked until this thread waits again.
            time::sleep(IDLE_PAUSE);
        }
    }
}

/// Tells the device server that the interrupt has been handled, if other drivers share the line.
fn acknowledge() {
    if let Some((line, session)) = &*ATTACHED.lock() {
        if line.is_shared() {
            // If the device server is gone there are no interrupts either.
            let _ = session.devices.lock().acknowledge(session.function);
        }
    }
}
