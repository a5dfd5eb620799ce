//! The device server, the only source of hardware resources for drivers.
//!
//! Each driver of the boot manifest has a door of its own, which init gives it as the first passed reference. The
//! holder of the door is that driver, and may request what its line in the manifest allows. Everything granted belongs
//! to its **session**, of which there is one at a time: when the session ends, for whatever reason, everything is
//! withdrawn, as `docs/adr/0027-drivers-and-what-they-hold.md` says.
//!
//! A request that is refused gets an error: `Denied` for something that the driver may not request, `Exists` for
//! something that another one has, `Invalid` for a request that makes no sense, `Limit` for more than it may have.
//! [`Devices::why`] explains it in a sentence for people.
use alloc::string::String;
use alloc::vec::Vec;
use interface::{interface, plain, Error};
use serde::{Deserialize, Serialize};

/// A PCI function: bus, device and function, in 8, 5 and 3 bits.
pub type Function = u64;

plain! {
    /// How far down in physical memory a device can reach.
    pub enum Reach {
        /// The first 16 MB: the DMA controller of ISA devices.
        Low = 0,
        /// The first 4 GB: devices with 32 address bits.
        Bits32 = 1,
        /// All physical memory.
        All = 2,
    }
}

plain! {
    /// What a base address of a function leads to.
    pub enum Place {
        /// Nothing.
        None = 0,
        /// I/O ports.
        Ports = 1,
        /// Memory of the device.
        Memory = 2,
    }
}

plain! {
    /// Which way a channel of ISA DMA moves bytes.
    pub enum Way {
        /// From memory to the device.
        ToDevice = 0,
        /// From the device to memory.
        ToMemory = 1,
    }
}

/// The requests of a driver. Those that grant, take back or start something are done once: a driver that was stopped in
/// the middle of one gets the reply that it would have got, and not the error that it has the thing already (`Exists`)
/// or no longer (`Denied`). The others, which ask or set something, may be repeated.
#[interface]
pub trait Devices {
    /// A sentence that says why the last refused request of this session was refused; empty if none was. Errors: none
    /// of its own. May be repeated.
    fn why(&self) -> Result<Bytes, Error>;

    /// Turns interrupts of the line into interrupts of the thread. The line is masked when it rings, until the thread
    /// waits for its next interrupt. Errors: `Denied`, `Exists`; `Invalid` if there is no such line or no such thread;
    /// `Broken` if the kernel refuses. Must not be repeated.
    #[once]
    fn attach_line(&self, line: u64, thread: &RefAt) -> Result<(), Error>;
    /// Gives a line back. Errors: `Denied` if the driver does not have the line. Must not be repeated.
    #[once]
    fn detach_line(&self, line: u64) -> Result<(), Error>;

    /// Lets the space of the driver use I/O ports. Errors: `Denied`, `Exists`; `Invalid` if there is no such space;
    /// `NoMemory`; `Broken` if the kernel refuses. Must not be repeated.
    #[once]
    fn grant_ports(&self, first: u64, count: u64, space: &RefAt) -> Result<(), Error>;
    /// Gives I/O ports back, a range as it was granted. Errors: `Denied` if the driver does not have just these. Must
    /// not be repeated.
    #[once]
    fn revoke_ports(&self, first: u64, count: u64) -> Result<(), Error>;

    /// A region with the memory of a device at a physical address, whole pages, uncached. The region is empty when the
    /// session has ended or has given the memory back. Errors: `Denied`, `Exists`; `Invalid` if start and size are not
    /// whole pages; `NoMemory`; `Broken` if the kernel refuses. Must not be repeated.
    #[once]
    fn map(&self, start: u64, size: u64) -> Result<Ref, Error>;
    /// Gives memory of a device back. Errors: `Denied` if the driver has no memory that begins at `start`. Must not be
    /// repeated.
    #[once]
    fn unmap(&self, start: u64) -> Result<(), Error>;

    /// The function with this number among those that the driver may claim: its address, its ids (vendor in the
    /// lower 16 bits, device in the next 16), its class (class, subclass, interface, revision, a byte each from
    /// the top). Errors: `NotFound` behind the last. May be repeated.
    fn function(&self, index: u64) -> Result<(Function, u64, u64), Error>;
    /// Makes the function the driver's: the function answers at its base addresses, and does not reach memory yet.
    /// Errors: `NotFound` if there is no such function, `Denied`, `Exists`. Must not be repeated.
    #[once]
    fn claim(&self, function: Function) -> Result<(), Error>;
    /// Gives a function back: it no longer raises interrupts or reaches memory. Errors: `Denied` if the driver has not
    /// claimed the function. Must not be repeated.
    #[once]
    fn release(&self, function: Function) -> Result<(), Error>;
    /// Reads a function's configuration: 1, 2 or 4 bytes at an offset that is a multiple of the size. All ones for a
    /// function that this driver has not claimed. Errors: `Invalid` for another size or offset. May be repeated.
    fn config_read(&self, function: Function, offset: u64, size: u64) -> Result<u64, Error>;
    /// Writes a function's configuration. A base address accepts all ones, after which it reads as its size until it is
    /// written again; it does not change. Other writes outside of the vendor's own capabilities are `Denied`: to
    /// command, status, base addresses, interrupt line, message signalled interrupts. Errors: `Denied` also if the
    /// driver has not claimed the function, `Invalid` as of `config_read`. Must not be repeated.
    #[once]
    fn config_write(
        &self,
        function: Function,
        offset: u64,
        size: u64,
        value: u64,
    ) -> Result<(), Error>;
    /// What a base address of the function leads to: the kind, the start and the size. Errors: `Denied` if the driver
    /// has not claimed the function, `Invalid` if there is no such base address. May be repeated.
    fn base(&self, function: Function, index: u64) -> Result<(Place, u64, u64), Error>;
    /// Lets the space use the I/O ports that a base address leads to. Errors: those of `base` and `grant_ports`;
    /// `NotFound` if the base address does not lead to I/O ports. Must not be repeated.
    #[once]
    fn grant_base(&self, function: Function, index: u64, space: &RefAt) -> Result<(), Error>;
    /// A region with the memory that a base address leads to, from the page on in which that memory begins. Errors:
    /// those of `base` and `map`; `NotFound` if the base address does not lead to memory. Must not be repeated.
    #[once]
    fn map_base(&self, function: Function, index: u64) -> Result<Ref, Error>;
    /// Turns the function's interrupts into interrupts of the thread. Returns the number of its line, which is
    /// level-triggered, and a page to be read, in which the word with that number is 1 while other functions share the
    /// line. The thread reads the word each time after it has served the device, and if it is 1 acknowledges the
    /// interrupt ([`Devices::acknowledge`]). Interrupts can be spurious. Errors: `Denied` if the driver has not claimed
    /// the function, `NotFound` if the function has no line; those of `attach_line`. Must not be repeated.
    #[once]
    fn attach_function(&self, function: Function, thread: &RefAt) -> Result<(u64, Ref), Error>;
    /// Tells that the driver has served an interrupt of its function: on a shared line the function may interrupt
    /// again, which it does at once if it has a reason to. Errors: `Denied` if the driver has not claimed the function,
    /// `NotFound` if the function has not been attached. May be repeated.
    fn acknowledge(&self, function: Function) -> Result<(), Error>;
    /// Tells that the driver has reset the device, so that the device has no address from before. From then on the
    /// function reaches memory, if the manifest gives the driver some. Errors: `Denied` if the driver has not claimed
    /// the function, `Limit` if the manifest gives the driver no such memory. May be repeated.
    fn reaches_memory(&self, function: Function) -> Result<(), Error>;

    /// Memory that devices reach: `size` bytes (a multiple of the page size), contiguous, aligned to a power of two,
    /// zeroed, never moved. Returns its physical address, and the region. Errors: `Invalid` for another size or
    /// alignment, or for one piece more than 256; `Limit` if it is more than the manifest gives; `NoMemory`. Must not
    /// be repeated; each request gives another piece, and the session has all of them. Waits while the server clears
    /// the memory.
    async fn dma(&self, size: u64, align: u64, reach: Reach) -> Result<(u64, Ref), Error>;
    /// Gives such memory back. Errors: `Denied` if the driver does not have it; `Invalid` while a function of the
    /// driver reaches memory and has not been released, or one of its channels moves bytes of it. Must not be repeated.
    #[once]
    fn free_dma(&self, physical: u64) -> Result<(), Error>;

    /// Makes a channel of ISA DMA the driver's, which moves nothing yet. Errors: `Denied`, `Exists`; `Invalid` if there
    /// is no such channel. Must not be repeated.
    #[once]
    fn claim_channel(&self, channel: u64) -> Result<(), Error>;
    /// Gives a channel back: it moves nothing any more. Errors: `Denied` if the driver does not have the channel. Must
    /// not be repeated.
    #[once]
    fn release_channel(&self, channel: u64) -> Result<(), Error>;
    /// Makes a channel move bytes between its device and a part of a piece of `dma`, at the device's requests, once to
    /// the end or over and over; this replaces an earlier transfer. Errors: `Denied` if the driver does not have the
    /// channel, or if the part is not within one piece of its memory; `Invalid` for what no channel can do: memory
    /// beyond 16 MB or across a boundary of 64 KB (128 KB from channel 5 on), half a word (from channel 5 on), no
    /// bytes. Must not be repeated.
    #[once]
    fn start_channel(
        &self,
        channel: u64,
        physical: u64,
        size: u64,
        way: Way,
        again: bool,
    ) -> Result<(), Error>;
    /// Stops the channel: it moves nothing any more. Errors: `Denied` if the driver does not have the channel. May be
    /// repeated.
    fn stop_channel(&self, channel: u64) -> Result<(), Error>;
    /// Bytes that the channel has still to move, in this round if it moves them over and over. Errors: `Denied` if the
    /// driver does not have the channel; `Invalid` if the channel was not started. May be repeated.
    fn left(&self, channel: u64) -> Result<u64, Error>;
}

/// The requests of init.
#[interface]
pub trait DeviceControl {
    /// The door of a driver, by its number in the manifest. Errors: `NotFound` if the manifest has no such driver;
    /// `NoMemory`. May be repeated.
    fn door(&self, driver: u64) -> Result<Ref, Error>;
    /// Whether the machine has a function that a driver may claim, or the ISA device of the driver, for which the
    /// server reads the device's first port. Errors: none of its own. May be repeated.
    fn is_present(&self, driver: u64) -> Result<bool, Error>;
    /// The date at which the machine's clock was zero, in nanoseconds since the beginning of 1970, UTC: as read from
    /// the machine's real-time clock when the device server began, so accurate to a second. Errors: `NotFound` if the
    /// real-time clock has no valid date. May be repeated.
    fn origin(&self) -> Result<u64, Error>;
    /// For people: the [`Line`] with this number, encoded. Errors: `NotFound` if there is no such line. May be
    /// repeated.
    fn line(&self, line: u64) -> Result<Bytes, Error>;
    /// For people: the machine's PCI function with this number, a [`PciFunction`], encoded. Errors: `NotFound` behind
    /// the last. May be repeated.
    fn pci_function(&self, index: u64) -> Result<Bytes, Error>;
    /// For people: what the driver with this number in the manifest has, in words: a list of at most [`MOST_TOLD`],
    /// encoded. Errors: `NotFound` if the manifest has no such driver. May be repeated.
    fn holdings(&self, driver: u64) -> Result<Bytes, Error>;
}

/// Most things that `holdings` lists of one driver.
pub const MOST_TOLD: usize = 64;
/// Interrupt lines that there can be.
pub const LINES: u64 = 16;

/// An interrupt line, and the drivers that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Whether a thread of the device server has the line, for several functions.
    pub shared: bool,
    /// The drivers that have it, or a part of it.
    pub parts: Vec<LinePart>,
}

/// A driver that has an interrupt line, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePart {
    /// The driver, by the name of its service.
    pub driver: String,
    /// The function whose interrupts come there; none for a line as a whole.
    pub function: Option<u16>,
    /// The function may not interrupt since the shared line last rang, until its driver acknowledges that.
    pub silenced: bool,
}

/// A PCI function of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Bus, device and function, in 8, 5 and 3 bits.
    pub function: u16,
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Class, subclass, interface, revision, a byte each from the top.
    pub class: u32,
    /// Its interrupt line.
    pub line: Option<u8>,
    /// Whether it can share that with other functions.
    pub shares: bool,
    /// The driver that has claimed it.
    pub driver: Option<String>,
}
