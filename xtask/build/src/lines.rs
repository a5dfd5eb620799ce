//! The source line of an instruction of a program.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::project::temp_dir;

/// The functions that contain the instruction at an address of an ELF file, the innermost first: `FUNCTION,
/// FILE:LINE`. Empty if the file does not say, or the host has no `addr2line`. Names of files are relative to `root`.
pub(crate) fn functions(elf: &[u8], address: u64, root: &Path) -> Vec<String> {
    let said = said(elf, address).unwrap_or_default();
    let root = format!("{}/", root.display());
    let lines: Vec<&str> = said.lines().collect();
    let known = lines.chunks_exact(2).filter(|pair| pair[0] != "??");
    let told = known.map(|pair| {
        let place = pair[1].strip_prefix(&root).unwrap_or(pair[1]);
        format!("{}, {place}", pair[0])
    });
    told.collect()
}

/// What `addr2line` prints: a function, and a place, for each level of inlining.
fn said(elf: &[u8], address: u64) -> Option<String> {
    let directory = temp_dir().ok()?;
    let path = directory.path().join("program");
    std::fs::write(&path, elf).ok()?;
    let output = Command::new("addr2line")
        .args(["--functions", "--inlines", "--demangle", "--exe"])
        .arg(&path)
        .arg(format!("{address:#x}"))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let is_good = output.status.success();
    is_good.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use elf::endian::LittleEndian;
    use elf::ElfBytes;

    /// The function that the test looks for.
    #[inline(never)]
    fn is_looked_for(number: u64) -> u64 {
        std::hint::black_box(number)
    }

    #[test]
    fn an_instruction_is_in_a_function_at_a_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = root.ancestors().nth(2).expect("the checkout");
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let parsed = ElfBytes::<LittleEndian>::minimal_parse(&program).unwrap();
        let (table, names) = parsed.symbol_table().unwrap().unwrap();
        let wanted = |name: &str| name.contains("is_looked_for");
        let mut symbols = table.iter();
        let symbol = symbols.find(|symbol| names.get(symbol.st_name as usize).is_ok_and(wanted));
        let address = symbol.expect("its symbol").st_value;
        let told = functions(&program, address, root);
        // A function of `core` may be inlined in it.
        let line = told.last().expect("a function");
        assert!(line.contains("is_looked_for"), "{line}");
        assert!(line.contains(", xtask/build/src/lines.rs:"), "{line}");
        assert_eq!(is_looked_for(7), 7);
        // An address that no function has, and a file that is no program.
        assert!(functions(&program, 1, root).is_empty());
        assert!(functions(b"", address, root).is_empty());
    }
}
