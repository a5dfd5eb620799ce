//! PCI functions: their enumeration, their base addresses, and the placement of those that the firmware did not place.
//!
//! The registers of a function are hostile: it may have base addresses of any size and place, which only lead to
//! refusals later on.

use crate::refusal::Thing;
use alloc::vec::Vec;
use pci_types::{ConfigRegionAccess, HeaderType, PciAddress, PciHeader, PciPciBridgeHeader};
use services::device::Place;

/// The configuration of all functions, four bytes at an offset that is a multiple of four.
pub trait Config {
    /// Reads a register. All ones if there is no such function.
    fn read(&self, function: u16, offset: u8) -> u32;
    /// Writes a register.
    fn write(&self, function: u16, offset: u8, value: u32) {
        self.write_part(function, offset, 4, value);
    }
    /// Writes 1, 2 or 4 bytes, at an offset that is a multiple of the size. The neighbouring bytes are not written, so
    /// that bits in them that are cleared by writing 1 stay as they are.
    fn write_part(&self, function: u16, offset: u8, size: u64, value: u32);
}

/// Offset of command (lower half) and status (upper half).
pub const COMMAND: u8 = 0x04;
/// Offset of the first base address.
pub const BASES: u8 = 0x10;
/// Offset of the base address of the ROM.
pub const ROM: u8 = 0x30;
/// Offset of the register with the offset of the first capability.
const CAPABILITIES: u8 = 0x34;
/// Offset of the interrupt line and pin.
const INTERRUPT: u8 = 0x3c;

/// In the command: the function answers at its I/O ports and its memory.
pub const DECODE: u32 = 3;
/// In the command: the function reaches memory (bus mastering).
pub const MASTER: u32 = 1 << 2;
/// In the command: the function raises no interrupts.
pub const NO_INTERRUPTS: u32 = 1 << 10;
/// In command and status: the function has a pending interrupt, whether or not it may raise it.
pub const INTERRUPTS: u32 = 1 << 19;
/// The bits of the command that are written back unchanged; the status, whose bits are cleared by ones, is not written.
const COMMAND_BITS: u32 = 0xffff;

/// The configuration in the form that `pci_types` needs.
struct Access<'a, C>(&'a C);

impl<C: Config> ConfigRegionAccess for Access<'_, C> {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        self.0.read(number(address), offset as u8)
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        self.0.write(number(address), offset as u8, value);
    }
}

/// Bus, device and function in 8, 5 and 3 bits.
fn number(address: PciAddress) -> u16 {
    u16::from(address.bus()) << 8 | u16::from(address.device()) << 3 | u16::from(address.function())
}

/// A base address of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// What it leads to.
    pub place: Place,
    /// Its start; 0 if it is not placed.
    pub start: u64,
    /// Its size, a power of two; 0 if there is no base address.
    pub size: u64,
    /// It has 64 bits, and takes the next one's register as well.
    pub wide: bool,
}

impl Base {
    const NONE: Base = Base {
        place: Place::None,
        start: 0,
        size: 0,
        wide: false,
    };

    /// The resource that a driver can have; memory is rounded to whole pages.
    #[must_use]
    pub fn thing(&self) -> Option<Thing> {
        if self.start == 0 {
            return None;
        }
        let page = abi::PAGE_SIZE;
        match self.place {
            Place::None => None,
            Place::Ports => Some(Thing::Ports(self.start, self.size)),
            Place::Memory => {
                let start = self.start / page * page;
                let end = self.start.checked_add(self.size)?;
                Some(Thing::Memory(
                    start,
                    end.checked_next_multiple_of(page)? - start,
                ))
            }
        }
    }

    /// The bits of its registers with its type.
    #[must_use]
    pub fn kind(&self, low: u32) -> u32 {
        match self.place {
            Place::Ports => low & 3,
            _ => low & 15,
        }
    }
}

/// A PCI function that was found by enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bus, device and function in 8, 5 and 3 bits.
    pub function: u16,
    /// Vendor and device.
    pub id: (u16, u16),
    /// Class, subclass, interface and revision, a byte each from the top.
    pub class: u32,
    /// Base addresses.
    pub bases: [Base; 6],
    /// Its interrupt line, if it has one.
    pub line: Option<u8>,
    /// It can be kept from interrupting, and shows a pending interrupt: all functions since PCI 2.3 do.
    pub shares: bool,
}

/// The class of bridges.
const BRIDGE: u32 = 6;
/// Devices of the board, as interrupt controllers and timers, are below this port.
const OWN_PORTS: u64 = 0x1000;
/// Most functions that are enumerated.
const MOST: usize = 1024;

/// All ordinary functions of the machine, including those behind bridges, if the firmware has numbered their buses.
pub fn find_all(config: &impl Config) -> Vec<Found> {
    let access = Access(config);
    let mut found = Vec::new();
    let mut seen = [false; 256];
    let mut buses = Vec::from([0u8]);
    seen[0] = true;
    while let Some(bus) = buses.pop() {
        for device in 0..32 {
            for function in 0..8 {
                let header = PciHeader::new(PciAddress::new(0, bus, device, function));
                let id = header.id(&access);
                if id.0 == 0xffff {
                    if function == 0 {
                        break;
                    }
                    continue;
                }
                let kind = header.header_type(&access);
                let several = header.has_multiple_functions(&access);
                match kind {
                    HeaderType::Endpoint if found.len() < MOST => {
                        found.push(describe(config, number(header.address()), id));
                    }
                    HeaderType::PciPciBridge => {
                        let bridge = PciPciBridgeHeader::from_header(header, &access);
                        let next = bridge.map_or(0, |b| b.secondary_bus_number(&access));
                        if !core::mem::replace(&mut seen[usize::from(next)], true) {
                            buses.push(next);
                        }
                    }
                    _ => {}
                }
                if function == 0 && !several {
                    break;
                }
            }
        }
    }
    route(config, &mut found);
    decode_disks(config, &found);
    found
}

/// Vendor and device of the disk controller beside [`ROUTER`], and the offset of the register that enables its first
/// channel at the legacy ports, and sets its timing.
const DISKS: (u16, u16) = (0x8086, 0x7010);
const CHANNEL: u8 = 0x40;
const DECODES: u32 = 1 << 15;

/// Lets disks answer at the legacy ports, as firmware does except qboot. Drivers check that.
fn decode_disks(config: &impl Config, found: &[Found]) {
    for disks in found.iter().filter(|f| f.id == DISKS) {
        let channel = config.read(disks.function, CHANNEL) & 0xffff;
        config.write_part(disks.function, CHANNEL, 2, channel | DECODES);
    }
}

/// Vendor and device of the bridge that routes interrupt pins to lines on the supported machines (the PIIX3), and the
/// offset of the routing register: a byte for each of its four inputs, with [`NOT_ROUTED`] for none.
const ROUTER: (u16, u16) = (0x8086, 0x7000);
const ROUTES: u8 = 0x60;
const NOT_ROUTED: u8 = 1 << 7;

/// Finds the actual lines of functions of the first bus. A function's own register has only what the firmware wrote
/// there, and qboot writes another line than the one to which the bridge routes the pin.
fn route(config: &impl Config, found: &mut [Found]) {
    let Some(router) = found.iter().find(|f| f.id == ROUTER).map(|f| f.function) else {
        return;
    };
    let routes = config.read(router, ROUTES).to_le_bytes();
    for function in found.iter_mut().filter(|f| f.function < 0x100) {
        let interrupt = config.read(function.function, INTERRUPT);
        let pin = (interrupt >> 8) as u8;
        // The pins of a device are connected to the inputs in turn, beginning with another one for each device.
        let device = function.function >> 3;
        let input = u16::from(pin)
            .wrapping_sub(1)
            .wrapping_add(device)
            .wrapping_sub(1)
            & 3;
        let line = routes[usize::from(input)];
        if !(1..=4).contains(&pin) || line & NOT_ROUTED != 0 || line >= 16 {
            function.line = None;
            continue;
        }
        function.line = Some(line);
        let noted = interrupt & !0xff | u32::from(line);
        config.write(function.function, INTERRUPT, noted);
    }
}

fn describe(config: &impl Config, function: u16, id: (u16, u16)) -> Found {
    let command = config.read(function, COMMAND) & COMMAND_BITS;
    // The function must not answer while its base addresses are all ones.
    config.write(function, COMMAND, command & !DECODE);
    let mut bases = [Base::NONE; 6];
    let mut index = 0;
    while index < 6 {
        bases[index] = measure(config, function, index);
        index += 1 + usize::from(bases[index].wide);
    }
    let class = config.read(function, 0x08);
    // No driver has claimed it: it is silenced, so that it does not pull a line of others, and may not reach memory,
    // which the firmware may have enabled. Bridges are excepted, since they forward accesses of others.
    let silent = match class >> 24 {
        BRIDGE => command,
        _ => command & !MASTER,
    };
    config.write(function, COMMAND, silent | NO_INTERRUPTS);
    let shares = config.read(function, COMMAND) & NO_INTERRUPTS != 0;
    let interrupt = config.read(function, INTERRUPT);
    let (line, pin) = (interrupt as u8, (interrupt >> 8) as u8);
    Found {
        function,
        id,
        class,
        bases,
        line: (pin != 0 && line < 16).then_some(line),
        shares,
    }
}

/// The offset of a base address.
const fn register(index: usize) -> u8 {
    BASES + 4 * index as u8
}

/// Determines the type, start and size of a base address.
fn measure(config: &impl Config, function: u16, index: usize) -> Base {
    let size_of = |offset: u8| {
        let was = config.read(function, offset);
        config.write(function, offset, u32::MAX);
        let mask = config.read(function, offset);
        config.write(function, offset, was);
        (was, mask)
    };
    let (low, mask) = size_of(register(index));
    if mask == 0 || mask == u32::MAX && low == u32::MAX {
        return Base::NONE;
    }
    if low & 1 == 1 {
        // A function may not implement the upper half of an I/O base address.
        let mask = mask & 0xfffc;
        // Ports below are the board's own: a function with a start there is placed again.
        let start = match u64::from(low & 0xfffc) {
            start if start < OWN_PORTS => 0,
            start => start,
        };
        return match mask {
            0 => Base::NONE,
            mask => Base {
                place: Place::Ports,
                start,
                size: 1 << mask.trailing_zeros(),
                wide: false,
            },
        };
    }
    let wide = low & 6 == 4 && index < 5;
    let (high, high_mask) = match wide {
        true => size_of(register(index + 1)),
        false => (0, u32::MAX),
    };
    let mask = u64::from(mask & !15) | u64::from(high_mask) << 32;
    if mask == 0 || mask == u64::from(u32::MAX) << 32 {
        return Base { wide, ..Base::NONE };
    }
    Base {
        place: Place::Memory,
        start: u64::from(low & !15) | u64::from(high) << 32,
        size: 1 << mask.trailing_zeros(),
        wide,
    }
}

/// Where base addresses can be placed: first and count.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// I/O ports.
    pub ports: (u64, u64),
    /// Memory.
    pub memory: (u64, u64),
}

/// Places the base addresses that have no place. Those for which there is no room stay unplaced.
pub fn place(config: &impl Config, found: &mut [Found], windows: Windows) {
    let mut taken: Vec<Thing> = all_bases(found).filter_map(|base| base.thing()).collect();
    let mut wanted: Vec<(usize, usize)> = Vec::new();
    for (f, function) in found.iter().enumerate() {
        let needs = |b: &usize| function.bases[*b].size != 0 && function.bases[*b].start == 0;
        wanted.extend((0..6).filter(needs).map(|b| (f, b)));
    }
    // Large ones first, so that least is lost by alignment.
    wanted.sort_by_key(|&(f, b)| core::cmp::Reverse(found[f].bases[b].size));
    for (f, b) in wanted {
        let base = &mut found[f].bases[b];
        let window = match base.place {
            Place::Ports => windows.ports,
            _ => windows.memory,
        };
        let Some(start) = room(&taken, *base, window) else {
            continue;
        };
        base.start = start;
        taken.extend(base.thing());
        let (base, function) = (*base, found[f].function);
        let command = config.read(function, COMMAND) & COMMAND_BITS;
        config.write(function, COMMAND, command & !DECODE);
        config.write(function, register(b), start as u32);
        if base.wide {
            config.write(function, register(b + 1), (start >> 32) as u32);
        }
        config.write(function, COMMAND, command);
    }
}

fn all_bases(found: &[Found]) -> impl Iterator<Item = &Base> {
    found.iter().flat_map(|function| &function.bases)
}

/// The first place for a base address in a window.
fn room(taken: &[Thing], base: Base, (first, count): (u64, u64)) -> Option<u64> {
    let align = match base.place {
        // No page belongs to two functions.
        Place::Memory => base.size.max(abi::PAGE_SIZE),
        _ => base.size,
    };
    let mut start = first.checked_next_multiple_of(align)?;
    loop {
        let end = start.checked_add(base.size)?;
        if end > first + count {
            return None;
        }
        let in_the_way = taken.iter().find_map(|thing| match (*thing, base.place) {
            (Thing::Ports(f, n), Place::Ports) | (Thing::Memory(f, n), Place::Memory) => {
                (f < end && start < f.saturating_add(n)).then(|| f.saturating_add(n))
            }
            _ => None,
        });
        match in_the_way {
            None => return Some(start),
            Some(end) => start = end.checked_next_multiple_of(align)?,
        }
    }
}

/// Sets and clears bits in the command register.
pub fn command(config: &impl Config, function: u16, set: u32, clear: u32) {
    let command = config.read(function, COMMAND) & COMMAND_BITS;
    config.write(function, COMMAND, command & !clear | set);
}

/// The capabilities of a function: id and offset. A cyclic list ends.
pub fn capabilities(config: &impl Config, function: u16) -> impl Iterator<Item = (u8, u8)> + '_ {
    const HAS_LIST: u32 = 1 << 20;
    let listed = config.read(function, COMMAND) & HAS_LIST != 0;
    let first = match listed {
        true => config.read(function, CAPABILITIES) as u8 & !3,
        false => 0,
    };
    let next = move |at: &u8| Some((config.read(function, *at) >> 8) as u8 & !3);
    core::iter::successors(Some(first), next)
        .take_while(|at| *at >= 0x40)
        .take(48)
        .map(move |at| (config.read(function, at) as u8, at))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{capabilities, command, find_all, place, Config, Windows, DECODE, MASTER};
    use alloc::collections::BTreeMap;
    use core::cell::RefCell;
    use services::device::Place;

    /// A simulated function: its registers, and which bits of each can be written.
    #[derive(Clone)]
    pub(crate) struct Fake {
        pub(crate) words: [u32; 64],
        pub(crate) writable: [u32; 64],
        pub(crate) cleared_by_ones: [u32; 64],
    }

    impl Fake {
        pub(crate) fn new(vendor: u16, device: u16) -> Self {
            let mut fake = Fake {
                words: [0; 64],
                writable: [0; 64],
                cleared_by_ones: [0; 64],
            };
            fake.words[0] = u32::from(device) << 16 | u32::from(vendor);
            fake.writable[1] = 0xffff;
            fake
        }

        pub(crate) fn base(mut self, index: usize, kind: u32, size: u64) -> Self {
            let mask = !(size - 1);
            let flags = if kind & 1 == 1 { 3 } else { 15 };
            self.words[4 + index] = kind;
            self.writable[4 + index] = mask as u32 & !flags;
            if kind & 7 == 4 {
                self.writable[5 + index] = (mask >> 32) as u32;
            }
            self
        }
    }

    #[derive(Default)]
    pub(crate) struct Machine {
        pub(crate) functions: RefCell<BTreeMap<u16, Fake>>,
    }

    impl Config for Machine {
        fn read(&self, function: u16, offset: u8) -> u32 {
            assert!(offset.is_multiple_of(4));
            let functions = self.functions.borrow();
            functions
                .get(&function)
                .map_or(u32::MAX, |f| f.words[usize::from(offset / 4)])
        }
        fn write_part(&self, function: u16, offset: u8, size: u64, value: u32) {
            assert!(matches!(size, 1 | 2 | 4) && u64::from(offset).is_multiple_of(size));
            if let Some(f) = self.functions.borrow_mut().get_mut(&function) {
                let index = usize::from(offset / 4);
                let shift = u32::from(offset % 4 * 8);
                let written = (crate::config::ones(size) as u32) << shift;
                let (mask, value) = (f.writable[index] & written, value << shift & written);
                f.words[index] = f.words[index] & !mask | value & mask;
                f.words[index] &= !(value & f.cleared_by_ones[index]);
            }
        }
    }

    impl Machine {
        pub(crate) fn with(self, function: u16, fake: Fake) -> Self {
            self.functions.borrow_mut().insert(function, fake);
            self
        }
    }

    const WINDOWS: Windows = Windows {
        ports: (0xc000, 0x1000),
        memory: (0xe000_0000, 0x100_0000),
    };

    /// A machine like QEMU's `pc` under qboot, which places nothing.
    fn machine() -> Machine {
        let disk = Fake::new(0x1af4, 0x1001)
            .base(0, 1, 0x80)
            .base(1, 0, 0x1000)
            .base(4, 0xc, 0x4000);
        let mut host = Fake::new(0x8086, 0x1237);
        host.words[3] = 0;
        let mut disk = disk;
        disk.words[15] = 0x010b;
        disk.words[1] = 0x0010_0000;
        disk.words[13] = 0x40;
        disk.words[16] = 0x0010_0009;
        Machine::default().with(0, host).with(0x18, disk)
    }

    #[test]
    fn what_the_firmware_did_not_place_is_placed() {
        let machine = machine();
        let mut found = find_all(&machine);
        assert_eq!(found.len(), 2);
        let disk = found[1];
        assert_eq!(
            (disk.function, disk.id, disk.line),
            (0x18, (0x1af4, 0x1001), Some(11))
        );
        assert!(disk.bases.iter().all(|base| base.start == 0));
        place(&machine, &mut found, WINDOWS);
        let [ports, small, _, _, large, _] = found[1].bases;
        assert_eq!(
            (ports.place, ports.start, ports.size),
            (Place::Ports, 0xc000, 0x80)
        );
        assert_eq!(
            (large.place, large.start, large.size),
            (Place::Memory, 0xe000_0000, 0x4000)
        );
        assert_eq!(
            (small.place, small.start, small.size),
            (Place::Memory, 0xe000_4000, 0x1000)
        );
        // The registers have these values, and another enumeration finds the same: placed base addresses are not moved.
        assert_eq!(machine.read(0x18, 0x10), 0xc001);
        assert_eq!(machine.read(0x18, 0x20), 0xe000_000c);
        let mut again = find_all(&machine);
        assert_eq!(again, found);
        place(&machine, &mut again, WINDOWS);
        assert_eq!(again, found);
    }

    #[test]
    fn lines_are_where_the_bridge_leads_the_pins() {
        let mut router = Fake::new(0x8086, 0x7000);
        router.words[24] = 0x800b_0b0a;
        let pins = |device: u16, pin: u32| {
            let mut fake = Fake::new(1, device);
            fake.words[15] = pin << 8 | 9;
            fake.writable[15] = 0xff;
            fake
        };
        let machine = Machine::default()
            .with(8, router)
            .with(0x10, pins(2, 1))
            .with(0x18, pins(3, 4))
            .with(0x20, pins(4, 1))
            .with(0x28, pins(5, 0))
            .with(0x30, pins(6, 0xff));
        let found = find_all(&machine);
        let lines: alloc::vec::Vec<_> = found.iter().skip(1).map(|f| f.line).collect();
        let expected = [Some(11), Some(11), None, None, None];
        assert_eq!(
            lines, expected,
            "the fourth input leads nowhere, the fourth has no pin"
        );
        assert_eq!(machine.read(0x10, 0x3c), 0x10b, "and so it is noted");
    }

    #[test]
    fn disks_answer_at_the_ports_of_old() {
        let channels = |vendor| {
            let mut fake = Fake::new(vendor, 0x7010);
            fake.words[16] = 0x0307_2301;
            fake.writable[16] = u32::MAX;
            fake
        };
        let machine = Machine::default()
            .with(8, channels(0x8086))
            .with(0x10, channels(1));
        find_all(&machine);
        assert_eq!(machine.read(8, 0x40), 0x0307_a301, "the rest stays");
        assert_eq!(machine.read(0x10, 0x40), 0x0307_2301, "another one's");
    }

    #[test]
    fn where_there_is_no_room_nothing_is_placed() {
        let large = Fake::new(1, 2).base(0, 4, 1 << 40).base(2, 0, 1 << 31);
        let machine = Machine::default().with(8, large);
        let mut found = find_all(&machine);
        assert_eq!(found[0].bases[0].size, 1 << 40);
        place(&machine, &mut found, WINDOWS);
        assert!(found[0].bases.iter().all(|base| base.thing().is_none()));
    }

    #[test]
    fn a_function_that_lies_is_survived() {
        for kind in [0, 1, 2, 4, 6, 12] {
            for mask in [0, 1, 8, u32::MAX, 0xffff_0000, 0x8000_0000, 0x10] {
                let mut fake = Fake::new(1, 2);
                for index in 4..10 {
                    fake.words[index] = kind;
                    fake.writable[index] = mask;
                }
                // A cyclic list of capabilities.
                fake.words[1] = 0x10_0000;
                fake.words[13] = 0x40;
                fake.words[16] = 0x4000;
                let machine = Machine::default().with(0, fake);
                let mut found = find_all(&machine);
                place(&machine, &mut found, WINDOWS);
                assert!(capabilities(&machine, 0).count() <= 48);
            }
        }
    }

    #[test]
    fn functions_behind_bridges_are_found_and_circles_end() {
        let mut bridge = Fake::new(1, 1);
        bridge.words[3] = 0x81_0000;
        bridge.words[6] = 0x01_0100;
        let mut back = bridge.clone();
        back.words[6] = 0x00_0000;
        let machine = Machine::default()
            .with(0, bridge)
            .with(0x100, back)
            .with(0x109, Fake::new(5, 6))
            .with(0x108, Fake::new(5, 5));
        let ids: alloc::vec::Vec<_> = find_all(&machine).iter().map(|f| f.function).collect();
        assert_eq!(
            ids,
            [0x108],
            "a second function of a device that has only one"
        );
    }

    #[test]
    fn functions_are_silent_and_those_before_pci_2_3_cannot_be() {
        let mut old = Fake::new(0x1106, 0x3038);
        old.writable[1] = 0x3ff;
        let mut masters = Fake::new(1, 2);
        masters.words[1] = MASTER;
        let machine = Machine::default().with(8, masters).with(0x10, old);
        let found = find_all(&machine);
        let shares: alloc::vec::Vec<_> = found.iter().map(|f| f.shares).collect();
        assert_eq!(shares, [true, false]);
        assert_eq!(
            machine.read(8, 4),
            1 << 10,
            "it may interrupt, or reach memory"
        );
    }

    #[test]
    fn commands_leave_the_rest_alone() {
        let machine = machine();
        command(&machine, 0x18, DECODE | MASTER, 0);
        assert_eq!(machine.read(0x18, 4), 0x10_0007);
        command(&machine, 0x18, 1 << 10, MASTER);
        assert_eq!(machine.read(0x18, 4), 0x10_0403);
    }
}
