//! Channels of ISA DMA: a pair of 8237, the first of which is cascaded through the first channel of the second.
//!
//! No driver has access to their ports. Only this server programs a channel's address, and only with one in memory that
//! devices reach and that belongs to the driver; so whatever a driver requests, its device reaches no byte of anybody
//! else. Every channel is masked except between a request that starts it and one that stops it, or the end of its
//! driver.

use crate::refusal::{Refusal, Thing};

/// Number of channels.
pub const CHANNELS: u8 = 8;
/// The channel through which the first controller is cascaded, which no driver can have.
pub const CASCADE: u8 = 4;
/// From this one on, channels move words of two bytes.
const WIDE: u8 = 5;

/// The end of the addresses that a channel can reach.
const END: u64 = 16 << 20;

/// The ports of both controllers and of the pages: first, and how many.
pub const PORTS: [(u16, u64); 3] = [(0x00, 0x10), (0x80, 0x10), (0xc0, 0x20)];

/// The registers of a controller behind those of its channels, by the first controller's ports. Those of the other
/// controller are two ports apart.
const MASK: u16 = 0x0a;
const MODE: u16 = 0x0b;
/// Selects the half of an address or count that comes next: the lower one after a write to this register.
const FLIP_FLOP: u16 = 0x0c;

/// In [`MASK`]: the channel does nothing.
const MASKED: u8 = 4;
/// In [`MODE`]: one unit per request of the device; restart at the end; the direction; and the cascade.
const SINGLE: u8 = 0x40;
const AGAIN: u8 = 0x10;
const TO_MEMORY: u8 = 4;
const FROM_MEMORY: u8 = 8;
const CASCADED: u8 = 0xc0;

/// The port of the upper bits of a channel's address.
const PAGES: [u16; CHANNELS as usize] = [0x87, 0x83, 0x81, 0x82, 0x8f, 0x8b, 0x89, 0x8a];

/// The ports.
pub trait Pair {
    /// Reads a byte.
    fn read(&mut self, port: u16) -> u8;
    /// Writes a byte.
    fn write(&mut self, port: u16, byte: u8);
}

/// A channel that a driver can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel(u8);

/// A transfer of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The physical address.
    pub physical: u64,
    /// How many bytes.
    pub size: u64,
    /// From the device into memory.
    pub to_memory: bool,
    /// Over and over.
    pub again: bool,
}

impl Transfer {
    /// Whether a range of physical memory and that of this transfer have a byte in common.
    #[must_use]
    pub fn touches(&self, start: u64, size: u64) -> bool {
        self.physical < start.saturating_add(size) && start < self.physical + self.size
    }
}

impl Channel {
    /// The channel of this number.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn new(number: u64) -> Result<Self, Refusal> {
        match u8::try_from(number) {
            Ok(channel) if channel < CHANNELS && channel != CASCADE => Ok(Channel(channel)),
            _ => Err(Refusal::Nonsense(
                "channels of ISA DMA have numbers below 8, of which 4 is the controller's own",
            )),
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its name in the ledger.
    #[must_use]
    pub fn thing(self) -> Thing {
        Thing::Channel(self.0)
    }

    fn is_wide(self) -> bool {
        self.0 >= WIDE
    }

    /// A register of its controller.
    fn port(self, register: u16) -> u16 {
        if self.0 >= CASCADE {
            0xc0 + 2 * register
        } else {
            register
        }
    }

    /// The register of its address (0) or its count (1).
    fn own(self, register: u16) -> u16 {
        self.port(2 * u16::from(self.0 & 3) + register)
    }

    /// Checks whether the channel itself can do this transfer.
    ///
    /// # Errors
    /// The transfer is beyond the channel's address bits, across a boundary at which its counter wraps, or of half a
    /// word.
    pub fn check(self, transfer: &Transfer) -> Result<(), Refusal> {
        let (unit, boundary) = if self.is_wide() {
            (2, 128 << 10)
        } else {
            (1, 64 << 10)
        };
        let (start, size) = (transfer.physical, transfer.size);
        let end = start.checked_add(size).filter(|end| *end <= END);
        let end = end.ok_or(Refusal::Nonsense("ISA DMA reaches the first 16 MB"))?;
        if size == 0 || !start.is_multiple_of(unit) || !size.is_multiple_of(unit) {
            return Err(Refusal::Nonsense(
                "a channel moves whole bytes, from 5 on pairs of them, and not none",
            ));
        }
        if start / boundary != (end - 1) / boundary {
            return Err(Refusal::Nonsense(
                "a channel does not cross a boundary of 64 KB, from 5 on of 128 KB",
            ));
        }
        Ok(())
    }

    /// Masks the channel.
    pub fn stop(self, pair: &mut impl Pair) {
        pair.write(self.port(MASK), MASKED | self.0 & 3);
    }

    /// Starts a transfer that was [checked](Channel::check), which the channel does at its device's requests.
    pub fn start(self, pair: &mut impl Pair, transfer: &Transfer) {
        let unit = if self.is_wide() { 2 } else { 1 };
        let mode = SINGLE
            | if transfer.to_memory {
                TO_MEMORY
            } else {
                FROM_MEMORY
            }
            | if transfer.again { AGAIN } else { 0 };
        let halves = |value: u64| (value as u16).to_le_bytes();
        // What is written half would be an address of nobody's choosing.
        self.stop(pair);
        pair.write(self.port(MODE), mode | self.0 & 3);
        pair.write(self.port(FLIP_FLOP), 0);
        for half in halves(transfer.physical / unit) {
            pair.write(self.own(0), half);
        }
        // For wide channels the lowest bit belongs to the address register.
        let page = (transfer.physical >> 16) as u8;
        let page = if self.is_wide() { page & !1 } else { page };
        pair.write(PAGES[usize::from(self.0)], page);
        pair.write(self.port(FLIP_FLOP), 0);
        for half in halves(transfer.size / unit - 1) {
            pair.write(self.own(1), half);
        }
        pair.write(self.port(MASK), self.0 & 3);
    }

    /// Bytes that are left of a transfer; for one that is repeated, of this round. 0 at the end of one that is not
    /// repeated; also before its beginning if it has the largest size between two boundaries, since the counter has the
    /// same value then.
    #[must_use]
    pub fn left(self, pair: &mut impl Pair, transfer: &Transfer) -> u64 {
        const TRIES: usize = 4;
        let mut read = || {
            pair.write(self.port(FLIP_FLOP), 0);
            let low = pair.read(self.own(1));
            u16::from_le_bytes([low, pair.read(self.own(1))])
        };
        let mut count = read();
        // The counter can change between the reads of the halves. If it does so at each try the last value is good
        // enough.
        for _ in 0..TRIES {
            let before = core::mem::replace(&mut count, read());
            if before >> 8 == count >> 8 {
                break;
            }
        }
        // The counter is all ones behind the end, and at the beginning of a round of the largest size.
        let units = match transfer.again {
            true => u64::from(count) + 1,
            false => u64::from(count.wrapping_add(1)),
        };
        let left = units * if self.is_wide() { 2 } else { 1 };
        left.min(transfer.size)
    }
}

/// Masks all channels, whatever firmware has left, except the cascade.
pub fn begin(pair: &mut impl Pair) {
    for number in 0..CHANNELS {
        Channel(number).stop(pair);
    }
    let cascade = Channel(CASCADE);
    pair.write(cascade.port(MODE), CASCADED);
    pair.write(cascade.port(MASK), 0);
}

#[cfg(test)]
mod tests {
    use super::{begin, Channel, Pair, Transfer, CASCADE, CHANNELS, PORTS};
    use alloc::vec::Vec;

    /// Both controllers, as in their data sheet: a model with its own table of ports.
    #[derive(Default)]
    struct Model {
        address: [u32; 8],
        count: [u16; 8],
        page: [u8; 8],
        mode: [u8; 8],
        masked: [bool; 8],
        upper: [bool; 2],
        /// Each read of a count decrements it by this.
        step: u16,
        /// Set if a channel was written to while it was not masked.
        torn: bool,
    }

    impl Model {
        /// The controller and register of a port.
        fn register(port: u16) -> Option<(usize, u16)> {
            match port {
                0..=0xf => Some((0, port)),
                0xc0..=0xde if port.is_multiple_of(2) => Some((1, (port - 0xc0) / 2)),
                _ => None,
            }
        }

        /// First and last byte that the channel reaches.
        fn range(&self, channel: usize) -> (u64, u64) {
            let unit = if channel >= 5 { 2 } else { 1 };
            let page = u64::from(self.page[channel]) << 16;
            let start = page + unit * u64::from(self.address[channel]);
            (
                start,
                start + unit * (u64::from(self.count[channel]) + 1) - 1,
            )
        }

        fn half(&mut self, controller: usize) -> u32 {
            self.upper[controller] = !self.upper[controller];
            if self.upper[controller] {
                0
            } else {
                8
            }
        }
    }

    impl Pair for Model {
        fn read(&mut self, port: u16) -> u8 {
            let (controller, register) = Model::register(port).expect("a register");
            assert!(register < 8 && register % 2 == 1, "only counts are read");
            let channel = 4 * controller + usize::from(register / 2);
            let byte = self.count[channel] >> self.half(controller);
            self.count[channel] = self.count[channel].wrapping_sub(self.step);
            byte as u8
        }

        fn write(&mut self, port: u16, byte: u8) {
            assert!(PORTS.iter().any(|(first, count)| (u64::from(*first)
                ..u64::from(*first) + count)
                .contains(&port.into())));
            let Some((controller, register)) = Model::register(port) else {
                let order = [0x87, 0x83, 0x81, 0x82, 0x8f, 0x8b, 0x89, 0x8a];
                let channel = order.iter().position(|page| *page == port);
                let channel = channel.expect("a page");
                self.torn |= !self.masked[channel];
                self.page[channel] = byte;
                return;
            };
            let named = 4 * controller + usize::from(byte & 3);
            match register {
                0..=7 => {
                    let channel = 4 * controller + usize::from(register / 2);
                    self.torn |= !self.masked[channel];
                    let shift = self.half(controller);
                    let put = |was: u32| was & !(0xff << shift) | u32::from(byte) << shift;
                    if register % 2 == 0 {
                        self.address[channel] = put(self.address[channel]);
                    } else {
                        self.count[channel] = put(self.count[channel].into()) as u16;
                    }
                }
                0xa => self.masked[named] = byte & 4 != 0,
                0xb => {
                    self.torn |= !self.masked[named];
                    self.mode[named] = byte & !3;
                }
                0xc => self.upper[controller] = false,
                _ => panic!("register {register:#x} is written"),
            }
        }
    }

    fn transfer(physical: u64, size: u64) -> Transfer {
        Transfer {
            physical,
            size,
            to_memory: false,
            again: true,
        }
    }

    #[test]
    fn all_are_masked_but_the_cascade() {
        let mut model = Model::default();
        begin(&mut model);
        let masked: Vec<bool> = (0..8).map(|channel| channel != 4).collect();
        assert_eq!(model.masked.to_vec(), masked);
        assert_eq!(model.mode[4], 0xc0);
    }

    /// The rule on which all memory depends: a channel reaches exactly the checked bytes, and nothing while it is being
    /// programmed.
    #[test]
    fn a_channel_reaches_what_it_was_told_and_no_more() {
        for number in (0..CHANNELS).filter(|number| *number != CASCADE) {
            let channel = Channel::new(number.into()).unwrap();
            let mut model = Model::default();
            begin(&mut model);
            let whole = if number >= 5 { 0x2_0000 } else { 0x1_0000 };
            let least = if number >= 5 { 2 } else { 1 };
            for (physical, size) in [
                (0x12_3456, 0x1000),
                (0x40_0000, whole),
                (0xfe_0000, whole),
                (0, least),
                (0x100_0000 - least, least),
                (0x31_fffe, 2),
                (0x33_0000, 0x8000),
            ] {
                let wanted = transfer(physical, size);
                assert_eq!(channel.check(&wanted), Ok(()), "{physical:#x}+{size:#x}");
                channel.start(&mut model, &wanted);
                // The transfer before was not stopped.
                assert!(!model.torn, "S2: it moves while it is told");
                assert!(!model.masked[usize::from(number)]);
                let range = model.range(usize::from(number));
                assert_eq!(range, (physical, physical + size - 1), "S2: {number}");
                assert_eq!(model.mode[usize::from(number)], 0x58);
            }
            channel.stop(&mut model);
            assert!(model.masked[usize::from(number)], "S2: it was stopped");
            let others = (0..8).filter(|other| *other != 4 && *other != usize::from(number));
            assert!(others.into_iter().all(|other| model.masked[other]));
        }
    }

    #[test]
    fn directions_and_ends() {
        let channel = Channel::new(1).unwrap();
        let mut model = Model::default();
        begin(&mut model);
        for (to_memory, again, mode) in [
            (true, true, 0x54),
            (true, false, 0x44),
            (false, false, 0x48),
        ] {
            let wanted = Transfer {
                to_memory,
                again,
                ..transfer(0x1000, 16)
            };
            channel.start(&mut model, &wanted);
            assert_eq!(model.mode[1], mode);
        }
    }

    #[test]
    fn what_no_channel_can_do_is_refused() {
        let narrow = Channel::new(3).unwrap();
        let wide = Channel::new(7).unwrap();
        for (channel, physical, size) in [
            (narrow, 0x100_0000, 1),
            (narrow, 0xff_ffff, 2),
            (narrow, u64::MAX, 1),
            (narrow, 1, u64::MAX),
            (narrow, 0x1000, 0),
            (narrow, 0xffff, 2),
            (narrow, 0, 0x1_0001),
            (wide, 0x1001, 2),
            (wide, 0x1000, 3),
            (wide, 0x1_fffe, 4),
            (wide, 0, 0x2_0002),
        ] {
            let refused = channel.check(&transfer(physical, size));
            let refused = refused.expect_err("S2: a channel reaches what was not asked for");
            assert_eq!(refused.error(), proto::Error::Invalid, "{physical:#x}");
        }
        for number in [4, 8, 255, 256, u64::MAX] {
            let refused = Channel::new(number).unwrap_err();
            assert_eq!(refused.error(), proto::Error::Invalid, "{number}");
        }
    }

    #[test]
    fn what_is_left_is_told() {
        for (number, unit) in [(1, 1), (5, 2)] {
            let channel = Channel::new(number).unwrap();
            let mut model = Model::default();
            begin(&mut model);
            let wanted = transfer(0x1_0000, 0x2000);
            channel.start(&mut model, &wanted);
            assert_eq!(channel.left(&mut model, &wanted), 0x2000);
            let index = number as usize;
            model.count[index] = 0x0fff;
            assert_eq!(channel.left(&mut model, &wanted), 0x1000 * unit);
            // Behind the end.
            model.count[index] = 0xffff;
            let once = Transfer {
                again: false,
                ..wanted
            };
            assert_eq!(channel.left(&mut model, &once), 0);
            // For a repeated transfer that is the beginning.
            let longest = transfer(0x2_0000, 0x1_0000 * unit);
            assert_eq!(channel.left(&mut model, &longest), longest.size);
            // A change between the halves: never off by a page.
            model.count[index] = 0x0800;
            model.step = 1;
            let left = channel.left(&mut model, &wanted);
            assert!((0x7f0 * unit..=0x801 * unit).contains(&left), "{left:#x}");
            // A counter that changes at every read, and an arbitrary value.
            model.step = 0x777;
            assert!(channel.left(&mut model, &wanted) <= 0x2000);
        }
    }

    #[test]
    fn a_transfer_touches_what_it_reaches() {
        let wanted = transfer(0x2000, 0x1000);
        for (start, size, touches) in [
            (0x1000, 0x1000, false),
            (0x3000, 0x1000, false),
            (0x1000, 0x1001, true),
            (0x2fff, 1, true),
            (0, u64::MAX, true),
        ] {
            assert_eq!(wanted.touches(start, size), touches, "{start:#x}");
        }
    }
}
