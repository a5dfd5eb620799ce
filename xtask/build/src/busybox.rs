//! Finds Debian's statically linked busybox: the unmodified Linux program of the guest.
//!
//! It is fetched once from Debian's packages into `target/` and never committed. Where there is
//! no apt, a static busybox of the host serves.

use std::path::{Path, PathBuf};
use std::process::Command;

use elf::abi::PT_INTERP;
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::ElfBytes;

use crate::debian;
use crate::error::Error;
use crate::project::{temp_dir, Project};

const PACKAGE: &str = "busybox-static";

/// The applets that get a name of their own in the guest, if busybox cannot be asked which it has.
const APPLETS: &[&str] = &[
    "gzip",
    "gunzip",
    "sha256sum",
    "sort",
    "wc",
    "grep",
    "sed",
    "awk",
    "tar",
    "sh",
];

/// The applets of a busybox, as it lists them if the host can run it.
pub fn applets(busybox: &Path) -> Vec<String> {
    let listed = Command::new(busybox).arg("--list").output();
    let is_name = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[".contains(&byte);
        !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain) && name != "busybox"
    };
    let names = |text: &str| -> Vec<String> {
        let names = text.lines().filter(|name| is_name(name));
        names.map(ToString::to_string).collect()
    };
    match listed {
        Ok(output) if output.status.success() => names(&String::from_utf8_lossy(&output.stdout)),
        _ => names(&APPLETS.join("\n")),
    }
}

/// The path of a static busybox on the host.
pub fn find(project: &Project) -> Result<PathBuf, Error> {
    let downloads = project.target.join("downloads");
    let cached = downloads.join("busybox");
    if cached.exists() {
        return Ok(cached);
    }
    match fetch(&downloads, &cached) {
        Ok(()) => Ok(cached),
        Err(cause) => from_path().ok_or_else(|| {
            Error::new(format!(
                "the guest needs a statically linked busybox, and there is none: {cause}. Connect \
                 to the network and call again (on Debian), or install a static busybox in PATH"
            ))
        }),
    }
}

/// Gets the package by apt and unpacks the program to `to`.
fn fetch(downloads: &Path, to: &Path) -> Result<(), String> {
    std::fs::create_dir_all(downloads).map_err(|e| format!("{}: {e}", downloads.display()))?;
    let dir = temp_dir().map_err(|error| error.message)?;
    let package = debian::download(PACKAGE, dir.path())?;
    let tree = dir.path().join("tree");
    debian::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
    let program = ["bin/busybox", "usr/bin/busybox"]
        .iter()
        .map(|name| tree.join(name))
        .find(|path| path.exists())
        .ok_or_else(|| format!("{PACKAGE} contains no busybox"))?;
    let partial = to.with_extension(format!("{}", std::process::id()));
    std::fs::copy(program, &partial)
        .and_then(|_| std::fs::rename(&partial, to))
        .map_err(|error| format!("{}: {error}", to.display()))
}

/// A static busybox in `PATH`.
fn from_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|dir| [dir.join("busybox-static"), dir.join("busybox")])
        .find(|file| std::fs::read(file).is_ok_and(|elf| is_static(&elf)))
}

/// Whether this is a 64-bit ELF file without an interpreter.
fn is_static(file: &[u8]) -> bool {
    ElfBytes::<LittleEndian>::minimal_parse(file)
        .ok()
        .filter(|elf| elf.ehdr.class == Class::ELF64)
        .and_then(|elf| elf.segments())
        .is_some_and(|segments| segments.iter().all(|segment| segment.p_type != PT_INTERP))
}
