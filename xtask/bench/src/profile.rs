//! Instructions of a benchmark by function of the kernel and, if a program is named, of that program.
//!
//! The plugin counts how often each instruction is executed; the symbols of the kernel tell which function it belongs
//! to. Everything below the kernel's addresses is user code, of all sides. Programs are loaded at the same addresses,
//! so the reader must tell by the names what the named program does and what others do.

use std::collections::BTreeMap;
use std::path::Path;

use elf::abi::{SHN_LORESERVE, STT_FUNC, STT_NOTYPE};
use elf::endian::LittleEndian;
use elf::ElfBytes;
use rustc_demangle::demangle;

use super::boots::{self, Line, Session};
use super::per;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;

/// Addresses of the kernel begin here.
pub(super) const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Functions with a smaller share, in thousandths, are added up in one line.
const LEAST: u64 = 5;
/// Where programs are loaded: `proto::layout::PROGRAM_BASE`.
const PROGRAM_BASE: u64 = 0x40_0000;

/// Counts the benchmarks that are wanted, and prints a table for each.
pub(super) fn print(
    images: &Images,
    config: Config,
    filter: &str,
    plugin: &Path,
    program: Option<&Path>,
) -> Result<(), Error> {
    let session = boots::PROFILE.run(images, config, filter, plugin, &mut |line| {
        eprintln!("{}: {}", config.name(), line.name());
    })?;
    print_session(images, config, session, program)
}

/// Prints a table for each benchmark of a machine.
pub(super) fn print_session(
    images: &Images,
    config: Config,
    session: Session,
    program: Option<&Path>,
) -> Result<(), Error> {
    let mut symbols = Symbols::new(images.kernel(config));
    if let Some(program) = program {
        let file = std::fs::read(program).map_err(|error| {
            Error::new(format!(
                "there is no program {}: {error}",
                program.display()
            ))
        })?;
        symbols.add_program(&file);
    }
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
#[derive(Default)]
pub(super) struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// The symbols of a 64-bit little-endian ELF file; none if it has no symbol table.
    pub(super) fn new(elf: &[u8]) -> Self {
        Self(Self::read(elf).unwrap_or_default())
    }

    /// Adds the symbols of a program, at the address at which all programs are loaded.
    fn add_program(&mut self, elf: &[u8]) {
        let program = Self::read(elf).unwrap_or_default();
        self.0.extend(
            program
                .into_iter()
                .map(|(at, name)| (at + PROGRAM_BASE, name)),
        );
    }

    fn read(file: &[u8]) -> Option<BTreeMap<u64, String>> {
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file).ok()?;
        let (table, names) = elf.symbol_table().ok()??;
        let mut symbols = BTreeMap::new();
        for symbol in table.iter() {
            // Functions, and labels of assembly code; no undefined symbols and no constants.
            let code = matches!(symbol.st_symtype(), STT_NOTYPE | STT_FUNC);
            if !code || symbol.is_undefined() || symbol.st_shndx >= SHN_LORESERVE {
                continue;
            }
            let name = format!("{:#}", demangle(names.get(symbol.st_name as usize).ok()?));
            if !name.is_empty() {
                symbols.insert(symbol.st_value, name);
            }
        }
        Some(symbols)
    }

    pub(super) fn find(&self, address: u64) -> &str {
        let (lowest, unknown) = match address < KERNEL {
            true => (0, "(user code)"),
            false => (KERNEL, "(unknown)"),
        };
        let below = self.0.range(lowest..=address).next_back();
        below.map_or(unknown, |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A program's functions are found, too, and its last function does not extend into the kernel.
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut symbols = Symbols::default();
        symbols.add_program(&program);
        let (last, name) = symbols.0.last_key_value().unwrap();
        assert_eq!(symbols.find(*last), name);
        assert_eq!(symbols.find(PROGRAM_BASE - 1), "(user code)");
        assert_eq!(symbols.find(KERNEL), "(unknown)");
    }
}
