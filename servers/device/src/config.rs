//! A driver's access to the configuration of its function.
//!
//! It can read everything. It can write to the vendor's own capabilities. It can query the size of a base address, as
//! all drivers do, by writing all ones; that write does not reach the device. Base addresses, bus mastering, interrupts
//! and messages (which are writes to memory) are controlled by the device server alone.

use crate::pci::{capabilities, Base, Config, Found, BASES, ROM};
use crate::refusal::Refusal;
use services::device::Place;

/// A function that a driver has.
#[derive(Clone, Copy, Debug)]
pub struct Claimed {
    /// The function, as found by enumeration.
    pub found: Found,
    /// A bit for each register whose size was queried: six base addresses, then the ROM's.
    asked: u8,
}

/// The id of a vendor's own capability.
const VENDORS: u8 = 9;

impl Claimed {
    /// No size was queried yet.
    #[must_use]
    pub const fn new(found: Found) -> Self {
        Claimed { found, asked: 0 }
    }

    /// Reads 1, 2 or 4 bytes.
    pub fn read(&self, config: &impl Config, offset: u64, size: u64) -> Result<u64, Refusal> {
        let (register, shift) = check(offset, size)?;
        let word = match self.base_at(register) {
            Some(index) if self.asked & 1 << index != 0 => self.mask(config, index),
            _ => config.read(self.found.function, register),
        };
        Ok(u64::from(word >> shift) & ones(size))
    }

    /// Writes 1, 2 or 4 bytes.
    pub fn write(
        &mut self,
        config: &impl Config,
        offset: u64,
        size: u64,
        value: u64,
    ) -> Result<(), Refusal> {
        let (register, shift) = check(offset, size)?;
        if let Some(index) = self.base_at(register) {
            let was = config.read(self.found.function, register);
            let mask = (ones(size) as u32) << shift;
            let word = was & !mask | (value as u32) << shift & mask;
            let asks = word == u32::MAX;
            if !asks && word != was {
                return Err(Refusal::Reserved(offset));
            }
            self.asked = self.asked & !(1 << index) | u8::from(asks) << index;
            return Ok(());
        }
        if !self.is_vendors(config, offset, size) {
            return Err(Refusal::Reserved(offset));
        }
        let part = (value & ones(size)) as u32;
        config.write_part(self.found.function, offset as u8, size, part);
        Ok(())
    }

    /// The index of the base address in a register; 6 for the ROM's.
    fn base_at(&self, register: u8) -> Option<usize> {
        match register {
            ROM => Some(6),
            BASES..0x28 => Some(usize::from((register - BASES) / 4)),
            _ => None,
        }
    }

    /// The value of a base address after its size was queried.
    fn mask(&self, config: &impl Config, index: usize) -> u32 {
        let own = self.found.bases.get(index);
        let below = index.checked_sub(1).and_then(|i| self.found.bases.get(i));
        let of = |base: &Base| base.size.wrapping_neg();
        match (own, below) {
            // The upper half of the base address before it.
            (_, Some(below)) if below.wide => (of(below) >> 32) as u32,
            (Some(base), _) if base.place != Place::None => {
                let low = config.read(self.found.function, BASES + 4 * index as u8);
                of(base) as u32 | base.kind(low)
            }
            _ => 0,
        }
    }

    /// Whether these bytes are in a vendor's own capability, behind its header.
    fn is_vendors(&self, config: &impl Config, offset: u64, size: u64) -> bool {
        let function = self.found.function;
        let mut own = capabilities(config, function).filter(|(id, _)| *id == VENDORS);
        own.any(|(_, at)| {
            let length = u64::from(config.read(function, at) >> 16 & 0xff);
            let at = u64::from(at);
            offset >= at + 3 && offset + size <= at + length
        })
    }
}

/// All ones in so many bytes.
#[must_use]
pub const fn ones(size: u64) -> u64 {
    (1 << (8 * size)) - 1
}

/// The register of an access, and the bit at which it begins.
pub fn check(offset: u64, size: u64) -> Result<(u8, u32), Refusal> {
    let sound = matches!(size, 1 | 2 | 4) && offset < 256 && offset.is_multiple_of(size);
    match sound {
        true => Ok((offset as u8 & !3, (offset as u32 & 3) * 8)),
        false => Err(Refusal::Nonsense(
            "configurations are read and written by 1, 2 or 4 bytes below 256",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::Claimed;
    use crate::pci::tests::{Fake, Machine};
    use crate::pci::{find_all, place, Config, Windows};

    const WINDOWS: Windows = Windows {
        ports: (0xc000, 0x1000),
        memory: (0xe000_0000, 0x100_0000),
    };

    /// A function with every register writable, a vendor's capability of 16 bytes at 0x50 and one for messages at 0x40.
    fn claimed() -> (Machine, Claimed) {
        let mut fake = Fake::new(0x1af4, 0x1042)
            .base(0, 1, 0x20)
            .base(2, 0xc, 0x4000);
        fake.words[1] = 0x10_0000;
        fake.words[13] = 0x40;
        fake.words[16] = 0x5005;
        fake.words[20] = 0x0010_0009;
        fake.writable[16..].fill(u32::MAX);
        fake.writable[15] = u32::MAX;
        fake.writable[12] = 0xffff_f801;
        let machine = Machine::default().with(8, fake);
        let mut found = find_all(&machine);
        place(&machine, &mut found, WINDOWS);
        (machine, Claimed::new(found[0]))
    }

    #[test]
    fn a_driver_writes_neither_base_addresses_nor_commands() {
        let (machine, mut claimed) = claimed();
        let before = machine.functions.borrow()[&8].words;
        for offset in 0..0x53 {
            for (size, value) in [(1, 0x5a), (2, 0x5a5a), (4, 0x5a5a_5a5a), (4, 0)] {
                let written = claimed.write(&machine, offset, size, value);
                let aligned = offset % size == 0;
                let changes = aligned && {
                    let word = before[offset as usize / 4] >> (offset % 4 * 8);
                    u64::from(word) & super::ones(size) != value
                };
                if changes {
                    let refused = written.expect_err("S2: what is the device server's is written");
                    assert_eq!(refused.error(), proto::Error::Denied, "{offset:#x}");
                }
            }
        }
        assert_eq!(machine.functions.borrow()[&8].words, before);
        assert_eq!(
            claimed.write(&machine, 0x54, 4, 7),
            Ok(()),
            "the vendor's own"
        );
        assert_eq!(claimed.write(&machine, 0x5c, 4, 8), Ok(()));
        assert!(claimed.write(&machine, 0x60, 4, 8).is_err(), "behind it");
        assert_eq!(machine.read(8, 0x54), 7);
    }

    #[test]
    fn what_is_written_leaves_what_stands_beside_it() {
        let (machine, mut claimed) = claimed();
        if let Some(fake) = machine.functions.borrow_mut().get_mut(&8) {
            // The word behind the head of the vendor's own: its last byte can be cleared by writing ones.
            fake.words[21] = 0xff11_2233;
            fake.writable[21] = 0x00ff_ffff;
            fake.cleared_by_ones[21] = 0xff00_0000;
        }
        assert_eq!(claimed.write(&machine, 0x55, 1, 0xab), Ok(()));
        assert_eq!(machine.read(8, 0x54), 0xff11_ab33);
        assert_eq!(claimed.write(&machine, 0x54, 2, 0x1_cdef), Ok(()));
        assert_eq!(machine.read(8, 0x54), 0xff11_cdef);
        assert_eq!(claimed.write(&machine, 0x56, 2, 0x0144), Ok(()));
        assert_eq!(machine.read(8, 0x54), 0xfe44_cdef);
    }

    #[test]
    fn a_base_address_tells_its_size_and_stays() {
        let (machine, mut claimed) = claimed();
        let before = machine.functions.borrow()[&8].words;
        for (offset, mask) in [
            (0x10, 0xffff_ffe1),
            (0x18, 0xffff_c00c),
            (0x1c, u32::MAX),
            (0x14, 0),
            (0x30, 0),
        ] {
            let was = claimed.read(&machine, offset, 4).unwrap();
            claimed
                .write(&machine, offset, 4, u64::from(u32::MAX))
                .unwrap();
            assert_eq!(
                claimed.read(&machine, offset, 4),
                Ok(u64::from(mask)),
                "{offset:#x}"
            );
            claimed.write(&machine, offset, 4, was).unwrap();
            assert_eq!(claimed.read(&machine, offset, 4), Ok(was));
        }
        assert_eq!(machine.functions.borrow()[&8].words, before);
    }

    #[test]
    fn accesses_are_aligned() {
        let (machine, mut claimed) = claimed();
        for (offset, size) in [
            (1, 2),
            (2, 4),
            (0, 3),
            (0, 8),
            (0, 0),
            (256, 1),
            (u64::MAX, 1),
        ] {
            assert!(claimed.read(&machine, offset, size).is_err());
            assert!(claimed.write(&machine, offset, size, 0).is_err());
        }
        assert_eq!(claimed.read(&machine, 2, 2), Ok(0x1042));
        assert_eq!(claimed.read(&machine, 3, 1), Ok(0x10));
    }
}
