//! Which functions of the kernel the instructions of a benchmark are in.
//!
//! The plugin counts how often each instruction is executed; the symbols of the kernel tell what
//! function it belongs to. Everything below the kernel's addresses is user code, of all sides.

use std::collections::BTreeMap;
use std::path::Path;

use super::boots::{self, Line};
use super::per;
use crate::config::Config;
use crate::error::Error;
use crate::image::Images;

/// Addresses of the kernel begin here.
pub(super) const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Functions with less than this share, in thousandths, are summed up.
const LEAST: u64 = 5;

/// Counts the benchmarks that are wanted, and prints a table for each.
pub(super) fn print(
    images: &Images,
    config: Config,
    filter: &str,
    plugin: &Path,
) -> Result<(), Error> {
    let session = boots::PROFILE.run(images, config, filter, plugin, &mut |line| {
        eprintln!("{}: {}", config.name(), line.name());
    })?;
    let symbols = Symbols::new(images.kernel(config));
    for (line, stretch) in session {
        let Line::Sample {
            name, operations, ..
        } = line
        else {
            continue;
        };
        let Some(stretch) = stretch else {
            return Err(Error::new(format!("{name} was not counted")));
        };
        let functions = by_function(&stretch.profile, &symbols);
        let total: u64 = functions.values().sum();
        println!(
            "\n{}, {name}: {} instructions per operation",
            config.name(),
            per(total, operations)
        );
        let mut functions: Vec<(&str, u64)> = functions.into_iter().collect();
        functions.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let mut rest = 0;
        for (function, count) in functions {
            if count * 1000 < total * LEAST {
                rest += count;
                continue;
            }
            show(count, operations, total, function);
        }
        if rest > 0 {
            show(rest, operations, total, "(all others)");
        }
    }
    Ok(())
}

fn show(count: u64, operations: u64, total: u64, what: &str) {
    let each = count as f64 / operations as f64;
    let share = 100.0 * count as f64 / total as f64;
    println!("{each:12.1}  {share:5.1} %  {what}");
}

/// The instructions of a stretch, summed up.
fn by_function<'a>(profile: &[(u64, [u64; 3])], symbols: &'a Symbols) -> BTreeMap<&'a str, u64> {
    let mut functions = BTreeMap::new();
    for (address, [instructions, ..]) in profile {
        *functions.entry(symbols.find(*address)).or_insert(0) += instructions;
    }
    functions
}

/// The functions of an ELF file, by address.
pub(super) struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// Those of a 64-bit little-endian file with a symbol table; none without.
    pub(super) fn new(elf: &[u8]) -> Self {
        Self(Self::read(elf).unwrap_or_default())
    }

    fn read(elf: &[u8]) -> Option<BTreeMap<u64, String>> {
        let word = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
        let sections = usize::try_from(word(40)?).ok()?;
        let (size, count) = (usize::from(half(58)?), usize::from(half(60)?));
        let section = |index: usize| sections.checked_add(index.checked_mul(size)?);
        let content = |header: usize| {
            let start = usize::try_from(word(header + 24)?).ok()?;
            let length = usize::try_from(word(header + 32)?).ok()?;
            elf.get(start..start.checked_add(length)?)
        };
        let table = (0..count).find_map(|index| {
            let header = section(index)?;
            (four(header + 4)? == 2).then_some(header)
        })?;
        let names = content(section(four(table + 40)? as usize)?)?;
        let mut symbols = BTreeMap::new();
        for symbol in content(table)?.chunks_exact(24) {
            let (kind, place) = (symbol[4] & 15, u16::from_le_bytes([symbol[6], symbol[7]]));
            let name = u32::from_le_bytes(symbol[..4].try_into().ok()?) as usize;
            let address = u64::from_le_bytes(symbol[8..16].try_into().ok()?);
            // Functions, and labels of assembly code; not what is nowhere, nor plain numbers.
            if kind > 2 || kind == 1 || place == 0 || place >= 0xff00 {
                continue;
            }
            let name = names.get(name..)?.split(|byte| *byte == 0).next()?;
            let name = readable(&String::from_utf8_lossy(name));
            if !name.is_empty() {
                symbols.insert(address, name);
            }
        }
        Some(symbols)
    }

    pub(super) fn find(&self, address: u64) -> &str {
        if address < KERNEL {
            return "(user code)";
        }
        let below = self.0.range(..=address).next_back();
        below.map_or("(unknown)", |(_, name)| name)
    }
}

/// A name as people write it: `_ZN` and lengths become a path without the hash at its end.
fn readable(symbol: &str) -> String {
    let Some(mut rest) = symbol.strip_prefix("_ZN") else {
        return symbol.into();
    };
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|d| *d > 0) {
        let Ok(length) = rest[..digits].parse::<usize>() else {
            break;
        };
        let Some(part) = rest.get(digits..digits.saturating_add(length)) else {
            break;
        };
        parts.push(part);
        rest = &rest[digits + length..];
    }
    if parts
        .last()
        .is_some_and(|part| part.len() == 17 && part.starts_with('h'))
    {
        parts.pop();
    }
    let mut name = parts.join("::");
    for (from, to) in [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$u20$", " "),
        ("$RF$", "&"),
        ("$C$", ","),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("..", "::"),
    ] {
        name = name.replace(from, to);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable() {
        for (symbol, name) in [
            ("_ZN6kernel3ipc4link17hdd149496fa56b456E", "kernel::ipc::link"),
            (
                "_ZN6kernel3ipc48_$LT$impl$u20$kernel..object..thread..Thread$GT$12become_stage17h5e29307d6d652f25E",
                "kernel::ipc::_<impl kernel::object::thread::Thread>::become_stage",
            ),
            ("syscall_entry", "syscall_entry"),
            ("_ZN99x", ""),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn instructions_are_summed_up() {
        let symbols = Symbols(BTreeMap::from([
            (KERNEL + 0x100, "a".to_string()),
            (KERNEL + 0x200, "b".to_string()),
        ]));
        let profile = [
            (0x40_0000, [7, 0, 0]),
            (KERNEL + 0x100, [1, 0, 0]),
            (KERNEL + 0x1ff, [2, 0, 0]),
            (KERNEL + 0x300, [4, 0, 0]),
        ];
        assert_eq!(
            by_function(&profile, &symbols),
            BTreeMap::from([("(user code)", 7), ("a", 3), ("b", 4)])
        );
        assert!(Symbols::new(b"\x7fELF").0.is_empty());
    }
}
