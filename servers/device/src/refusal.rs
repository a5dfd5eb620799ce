//! Reasons for refusals: an error for the program, a sentence for people.

use alloc::string::String;
use core::fmt;
use proto::Error;

/// Something that a driver can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// An interrupt line, as a whole.
    Line(u8),
    /// The part that a PCI function has in its interrupt line, which is level-triggered.
    Level {
        /// The line.
        line: u8,
        /// The function.
        function: u16,
        /// The function shows pending interrupts, and can be kept from raising them: it can share the line.
        shares: bool,
    },
    /// I/O ports: first and count.
    Ports(u64, u64),
    /// Physical memory: start and size.
    Memory(u64, u64),
    /// A PCI function: bus, device and function in 8, 5 and 3 bits.
    Function(u16),
    /// A channel of ISA DMA.
    Channel(u8),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Thing::Line(line) | Thing::Level { line, .. } => write!(f, "interrupt line {line}"),
            Thing::Ports(first, 1) => write!(f, "the I/O port {first:#x}"),
            Thing::Ports(first, count) => {
                let last = first.saturating_add(count).saturating_sub(1);
                write!(f, "the I/O ports {first:#x} to {last:#x}")
            }
            Thing::Memory(start, size) => {
                let last = start.saturating_add(size).saturating_sub(1);
                write!(f, "the physical memory {start:#x} to {last:#x}")
            }
            Thing::Channel(channel) => write!(f, "the ISA DMA channel {channel}"),
            Thing::Function(address) => write!(
                f,
                "the PCI function {:02x}:{:02x}.{}",
                address >> 8,
                address >> 3 & 31,
                address & 7
            ),
        }
    }
}

/// The reason for which a request of a driver is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The manifest does not give it to the driver.
    NotGiven(Thing),
    /// The driver of this name has it.
    Taken(Thing, String),
    /// The driver of this name has it, and this function, of one of the two drivers, cannot share it.
    Unshared(Thing, String, u16),
    /// The driver has it already.
    Twice(Thing),
    /// The driver does not have it.
    NotYours(Thing),
    /// The request makes no sense.
    Nonsense(&'static str),
    /// The machine does not have it.
    Absent(&'static str),
    /// The driver has reached its limit of so many bytes.
    Allowance(u64),
    /// There is no such memory.
    NoMemory,
    /// A write to the configuration of a function at this offset, which is reserved.
    Reserved(u64),
    /// The kernel refused.
    Kernel(Thing, &'static str),
}

impl Refusal {
    /// The error for the program.
    #[must_use]
    pub fn error(&self) -> Error {
        match self {
            Refusal::NotGiven(_) | Refusal::NotYours(_) | Refusal::Reserved(_) => Error::Denied,
            Refusal::Taken(..) | Refusal::Unshared(..) | Refusal::Twice(_) => Error::Exists,
            Refusal::Nonsense(_) => Error::Invalid,
            Refusal::Absent(_) => Error::NotFound,
            Refusal::Allowance(_) => Error::Limit,
            Refusal::NoMemory => Error::NoMemory,
            Refusal::Kernel(..) => Error::Broken,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotGiven(thing) => {
                write!(f, "the boot manifest does not give {thing} to this driver")
            }
            Refusal::Taken(thing, by) => write!(f, "{by} has {thing}, or a part"),
            Refusal::Unshared(thing, by, function) => write!(
                f,
                "{by} has {thing}, and {} cannot share it: it does not say whether it interrupts",
                Thing::Function(*function)
            ),
            Refusal::Twice(thing) => write!(f, "this driver has {thing} already, or a part"),
            Refusal::NotYours(thing) => write!(f, "this driver does not have {thing}"),
            Refusal::Nonsense(what) => write!(f, "{what}"),
            Refusal::Absent(what) => write!(f, "{what}"),
            Refusal::Allowance(most) => write!(
                f,
                "this driver may have {most} bytes of memory that devices reach"
            ),
            Refusal::NoMemory => write!(f, "no such memory that devices reach is free"),
            Refusal::Reserved(offset) => {
                write!(f, "a driver may not write the configuration at {offset:#x}")
            }
            Refusal::Kernel(thing, why) => write!(f, "the kernel does not give {thing}: {why}"),
        }
    }
}
