//! C programs: `tests/c/NAME.c` becomes `/test/NAME` in the guest; [`crate::program`] builds those of users.
//!
//! The host's C compiler compiles them without a C library, against the generated header ([`crate::header`]). They
//! start and end with `user/c/start.h`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::header;
use crate::project::{finish, Project};

/// As for programs in Rust: static, position-independent, no library. The program is left no relocation to do.
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

/// Builds all C programs. Returns their names and paths.
pub fn build(project: &Project) -> Result<Vec<(String, PathBuf)>, Error> {
    let sources = sources(&project.root.join("tests/c"))?;
    compile(project, &sources, &project.target.join("c"))
}

/// The C files of a directory, in order.
pub(crate) fn sources(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::new(format!("cannot read {}: {error}", directory.display()));
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Compiles each of these files to a program in `output`.
pub(crate) fn compile(
    project: &Project,
    sources: &[PathBuf],
    output: &Path,
) -> Result<Vec<(String, PathBuf)>, Error> {
    let header = header::write(project)?;
    std::fs::create_dir_all(output)
        .map_err(|error| Error::new(format!("cannot make {}: {error}", output.display())))?;
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
        command.arg("-I").arg(project.root.join("user/c"));
        if let Some(include) = header.parent() {
            command.arg("-I").arg(include);
        }
        command.arg("-o").arg(&program).arg(source);
        finish(command, &format!("compiling {}", source.display()))?;
        programs.push((name, program));
    }
    Ok(programs)
}
