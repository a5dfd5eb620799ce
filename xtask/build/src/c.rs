//! C programs of the tests: `tests/c/NAME.c` becomes `/test/NAME` in the guest.
//!
//! They are compiled by the host's C compiler without a C library, against the generated header
//! ([`crate::header`]). `tests/c/start.h` is what they start and end with.

use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;
use crate::header;
use crate::project::{finish, Project};

/// As the programs in Rust: static, position-independent, no library. No relocation is left for the
/// program to do.
const FLAGS: &[&str] = &[
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-fPIE",
    "-fvisibility=hidden",
    "-mno-red-zone",
    "-nostdlib",
    "-static-pie",
    "-Wl,-e,_start,-z,text,-z,noexecstack,--build-id=none",
];

/// Builds all: their names, and where they are.
pub fn build(project: &Project) -> Result<Vec<(String, PathBuf)>, Error> {
    let directory = project.root.join("tests/c");
    let failed = |error| Error::new(format!("{}: {error}", directory.display()));
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    let header = header::write(project)?;
    let output = project.target.join("c");
    std::fs::create_dir_all(&output).map_err(failed)?;
    let mut programs = Vec::new();
    for source in sources {
        let Some(name) = source
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            continue;
        };
        let program = output.join(&name);
        let mut command = Command::new("cc");
        command.current_dir(&project.root).args(FLAGS);
        if let Some(include) = header.parent() {
            command.arg("-I").arg(include);
        }
        command.arg("-o").arg(&program).arg(&source);
        finish(command, &format!("compiling {}", source.display()))?;
        programs.push((name, program));
    }
    Ok(programs)
}
