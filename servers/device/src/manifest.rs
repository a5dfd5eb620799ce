//! The boot manifest: the resources that each driver may request. Init has it and passes it on, a line for each driver:
//!
//! ```text
//! console ports=3f8+8 line=4
//! disk pci=1af4:1001 pci=1af4:1042 dma=400000
//! link isa=300+20 line=5 line=9
//! sound isa=220+10 line=5 channel=1 channel=5 dma=20000
//! ```
//!
//! `ports` and `memory` are a start and a count, `pci` the ids of vendor and device, `dma` bytes of memory that devices
//! reach, all hexadecimal; a `line` and a `channel` of ISA DMA are decimal. Resources of a function that the driver may
//! claim are not listed. `isa` is `ports` of a device on ISA: such devices cannot be enumerated, so the server reads
//! the first of the ports to find out whether there is one.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The resources that one driver may request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Interrupt lines.
    pub lines: Vec<u8>,
    /// Channels of ISA DMA.
    pub channels: Vec<u8>,
    /// I/O ports: first and count.
    pub ports: Vec<(u64, u64)>,
    /// First ports of devices on ISA. All of their ports are among `ports`.
    pub isa: Vec<u16>,
    /// Physical memory: start and size.
    pub memory: Vec<(u64, u64)>,
    /// PCI functions: vendor and device.
    pub pci: Vec<(u16, u16)>,
    /// Bytes of memory that devices reach.
    pub dma: u64,
}

impl Entry {
    /// Reads a line of the manifest. `None` if the line is invalid.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut entry = Entry {
            name: words.next()?.to_string(),
            ..Entry::default()
        };
        for word in words {
            let (kind, what) = word.split_once('=')?;
            match kind {
                "line" => entry.lines.push(what.parse().ok()?),
                "channel" => entry.channels.push(what.parse().ok()?),
                "ports" => entry.ports.push(range(what)?),
                "isa" => {
                    let ports = range(what)?;
                    entry.isa.push(ports.0.try_into().ok()?);
                    entry.ports.push(ports);
                }
                "memory" => entry.memory.push(range(what)?),
                "pci" => {
                    let (vendor, device) = what.split_once(':')?;
                    let id = |text| u16::from_str_radix(text, 16).ok();
                    entry.pci.push((id(vendor)?, id(device)?));
                }
                "dma" => entry.dma = number(what)?,
                _ => return None,
            }
        }
        Some(entry)
    }

    /// Whether one of the ranges covers this one.
    #[must_use]
    pub fn covers(ranges: &[(u64, u64)], start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else {
            return false;
        };
        ranges
            .iter()
            .any(|&(first, count)| first <= start && end <= first.saturating_add(count))
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// A range: `FIRST+COUNT`, hexadecimal.
#[must_use]
pub fn range(text: &str) -> Option<(u64, u64)> {
    let (first, count) = text.split_once('+')?;
    Some((number(first)?, number(count)?))
}

#[cfg(test)]
mod tests {
    use super::Entry;
    use alloc::vec;

    #[test]
    fn lines_are_read() {
        let entry = Entry::read(
            "disk pci=1af4:1001 ports=3f8+8 isa=300+20 line=4 channel=5 dma=400000 memory=b8000+8000",
        );
        let expected = Entry {
            name: "disk".into(),
            lines: vec![4],
            channels: vec![5],
            ports: vec![(0x3f8, 8), (0x300, 0x20)],
            isa: vec![0x300],
            memory: vec![(0xb_8000, 0x8000)],
            pci: vec![(0x1af4, 0x1001)],
            dma: 0x40_0000,
        };
        assert_eq!(entry, Some(expected));
        for wrong in [
            "",
            "x line",
            "x line=256",
            "x channel=",
            "x channel=-1",
            "x what=1",
            "x ports=1",
            "x isa=300",
            "x isa=10000+8",
            "x pci=1af4",
            "x dma=g",
        ] {
            assert_eq!(Entry::read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_range_is_covered_as_a_whole() {
        let ranges = [(0x3f8, 8), (u64::MAX, 1)];
        assert!(Entry::covers(&ranges, 0x3f8, 8));
        assert!(Entry::covers(&ranges, 0x3fc, 4));
        for (start, size) in [(0x3f7, 1), (0x3f8, 9), (0x400, 1), (0x3f8, u64::MAX)] {
            assert!(!Entry::covers(&ranges, start, size), "{start:#x} {size}");
        }
    }
}
