//! Programs of users: [`create`] is `./fermata new DIR`, [`build`] builds the programs for `./fermata run --program
//! DIR`.
//!
//! A program is a cargo package anywhere on the host that depends on the runtime of this checkout; or a directory of
//! C files, each of which is a program.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::c;
use crate::config::Config;
use crate::error::Error;
use crate::image::{check_anywhere, without_symbols};
use crate::project::{BuildTarget, Project};

/// The first program of a new package.
const MAIN: &str = include_str!("../../../examples/hello/src/main.rs");

/// Makes a package in a directory that does not exist yet, or is empty.
pub fn create(project: &Project, directory: &Path) -> Result<(), Error> {
    let cannot = |what: &Path, why: std::io::Error| {
        Error::new(format!("cannot make {}: {why}", what.display()))
    };
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            return Err(Error::usage(format!(
                "{} is there already, and has files in it; name another directory",
                directory.display()
            )))
        }
        Ok(false) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory).map_err(|error| cannot(directory, error))?;
        }
        Err(error) => return Err(cannot(directory, error)),
    }
    let full = directory
        .canonicalize()
        .map_err(|error| cannot(directory, error))?;
    let name = package_name(&full);
    let runtime = project.root.join("user/rt");
    let manifest = format!(
        "# A native program of Fermata. `./fermata run --program DIR` builds it and puts it into /bin of the\n\
         # guest: type `{name}` there.\n\
         [package]\n\
         name = \"{name}\"\n\
         version = \"0.1.0\"\n\
         edition = \"2021\"\n\
         publish = false\n\n\
         [[bin]]\n\
         name = \"{name}\"\n\
         path = \"src/main.rs\"\n\
         # There is no `main` on the host.\n\
         test = false\n\
         bench = false\n\n\
         [dependencies]\n\
         rt = {{ package = \"fermata-rt\", path = {runtime:?} }}\n\n\
         [profile.release]\n\
         panic = \"abort\"\n\
         overflow-checks = true\n\n\
         # A workspace of its own, wherever it lies.\n\
         [workspace]\n"
    );
    let write = |name: &str, content: &[u8]| {
        let path = full.join(name);
        std::fs::write(&path, content).map_err(|error| cannot(&path, error))
    };
    let source = full.join("src");
    std::fs::create_dir_all(&source).map_err(|error| cannot(&source, error))?;
    write("Cargo.toml", manifest.as_bytes())?;
    write("src/main.rs", MAIN.as_bytes())?;
    // All crates have the versions that this checkout uses: no network is needed.
    let lock = std::fs::read(project.root.join("Cargo.lock"))
        .map_err(|error| Error::new(format!("cannot read Cargo.lock: {error}")))?;
    write("Cargo.lock", &lock)
}

/// A package name that cargo accepts, made of the last part of a path.
fn package_name(path: &Path) -> String {
    let last = path.file_name().unwrap_or_default().to_string_lossy();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name: String = last
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    // Names that cargo uses for its own directories or crates.
    let taken = [
        "build",
        "deps",
        "examples",
        "incremental",
        "test",
        "core",
        "std",
        "alloc",
    ];
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && !taken.contains(&name.as_str()) {
        name
    } else {
        format!("program-{}", name.trim_matches('-'))
    }
}

/// Builds the programs in a directory. Returns their names and files.
pub fn build(project: &Project, directory: &Path) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let unreadable = |error| Error::new(format!("cannot read {}: {error}", directory.display()));
    let full = directory.canonicalize().map_err(unreadable)?;
    if !full.is_dir() {
        return Err(Error::new(format!(
            "{} is a file; name the directory that its Cargo.toml is in",
            directory.display()
        )));
    }
    let _lock = project.lock()?;
    let programs = if full.join("Cargo.toml").is_file() {
        build_package(project, &full)?
    } else {
        let sources = c::sources(&full)?;
        if sources.is_empty() {
            return Err(Error::new(format!(
                "{} has neither a Cargo.toml nor a C file; `./fermata new DIR` makes a program",
                directory.display()
            )));
        }
        c::compile(project, &sources, &project.target.join("programs/c"))?
    };
    if programs.is_empty() {
        return Err(Error::new(format!(
            "the package in {} has no binary; it needs a src/main.rs or a [[bin]]",
            directory.display()
        )));
    }
    programs
        .into_iter()
        .map(|(name, path)| {
            let file = std::fs::read(&path)
                .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))?;
            check_anywhere(&name, &file)?;
            Ok((name, without_symbols(file)))
        })
        .collect()
}

/// Builds a package with cargo. Returns where its programs are.
fn build_package(project: &Project, directory: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut command = project.cargo(BuildTarget::User, Config::DEFAULT, "build");
    // A package of this checkout shares the files that are built already; any other has a target directory of its
    // own.
    if !directory.starts_with(&project.root) {
        command.env("CARGO_TARGET_DIR", project.target.join("programs"));
    }
    eprintln!("fermata: building {}", directory.display());
    let output = command
        .current_dir(directory)
        .args([
            "--quiet",
            "--bins",
            "--message-format",
            "json-render-diagnostics",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Error::new(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        return Err(Error::new(format!(
            "{} does not build; what is wrong stands above",
            directory.display()
        )));
    }
    let artifact = |line: &str| -> Option<(String, PathBuf)> {
        let message: Value = serde_json::from_str(line).ok()?;
        let program = PathBuf::from(message["executable"].as_str()?);
        Some((message["target"]["name"].as_str()?.to_string(), program))
    };
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().filter_map(artifact).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::temp_dir;

    #[test]
    fn names_are_such_that_cargo_takes_them() {
        for (path, name) in [
            ("/a/first", "first"),
            ("/a/my program", "my-program"),
            ("/a/2nd", "program-2nd"),
            ("/a/test", "program-test"),
        ] {
            assert_eq!(package_name(Path::new(path)), name);
        }
    }

    #[test]
    fn a_package_is_made_once() {
        let project = Project::find().expect("the checkout");
        let scratch = temp_dir().expect("a directory");
        let directory = scratch.path().join("deep/inside/first");
        create(&project, &directory).expect("a package");
        let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains("name = \"first\""), "{manifest}");
        let error = create(&project, &directory).expect_err("it is there");
        assert!(error.message.contains("there already"), "{}", error.message);
        let file = directory.join("Cargo.toml");
        assert!(create(&project, &file).is_err(), "it is a file");
    }

    #[test]
    fn what_is_no_program_is_refused_with_a_remedy() {
        let project = Project::find().expect("the checkout");
        let scratch = temp_dir().expect("a directory");
        let refused = |path: &Path| build(&project, path).expect_err("nothing there").message;
        assert!(refused(scratch.path()).contains("./fermata new"));
        assert!(refused(&scratch.path().join("none")).contains("cannot read"));
        let file = scratch.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert!(refused(&file).contains("is a file"));
    }
}
