//! The layout of the checkout, and how cargo is called.
//!
//! There are three kinds of builds, with different targets and flags, each with a target
//! directory of its own so that none disturbs another: the host (xtask, host tests), the
//! kernel (once per configuration, and once more for each special purpose: [`BuildTarget`]), and the programs of
//! the guest.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::config::Config;
use crate::error::Error;
use crate::signals;

/// The text of a file.
///
/// # Errors
/// It cannot be read, or is not text.
pub fn read_text(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))
}

/// The kinds of builds: each has a target, flags and a directory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildTarget {
    /// xtask and tests on the host.
    Host,
    /// The kernel image.
    Kernel,
    /// The image of a counting kernel.
    CountingKernel,
    /// The image of a kernel with the probe, for cut tests.
    Probe,
    /// The image of a forgetful kernel.
    Forgetful,
    /// The image of a kernel whose core masks interrupts in an unusual way, for measurements.
    Masking(MaskMethod),
    /// Programs that run in the guest.
    User,
}

/// Ways to mask interrupts in kernels that are built only to measure these ways (`hal/src/mask.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskMethod {
    /// The processor's task priority.
    Cr8,
    /// The same, in the local APIC.
    LapicTpr,
    /// The 8259.
    Pic,
}

impl BuildTarget {
    /// For an image of the kernel: its directory, and the `--cfg` that selects this kind.
    fn kernel(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            BuildTarget::Kernel => Some(("kernel", None)),
            BuildTarget::CountingKernel => Some(("counting", Some("fermata_counters"))),
            BuildTarget::Probe => Some(("probe", Some("fermata_probe"))),
            BuildTarget::Forgetful => Some(("forgetful", Some("fermata_forgetful"))),
            BuildTarget::Masking(MaskMethod::Cr8) => {
                Some(("masking-cr8", Some(r#"fermata_mask="cr8""#)))
            }
            BuildTarget::Masking(MaskMethod::LapicTpr) => {
                Some(("masking-tpr", Some(r#"fermata_mask="lapic_tpr""#)))
            }
            BuildTarget::Masking(MaskMethod::Pic) => {
                Some(("masking-pic", Some(r#"fermata_mask="pic""#)))
            }
            BuildTarget::Host | BuildTarget::User => None,
        }
    }

    /// The name of the build in messages.
    pub fn what(self) -> &'static str {
        match self {
            BuildTarget::Kernel => "the kernel",
            BuildTarget::CountingKernel => "the counting kernel",
            BuildTarget::Probe => "the kernel with the probe",
            BuildTarget::Forgetful => "the forgetful kernel",
            BuildTarget::Masking(MaskMethod::Cr8) => "the kernel that masks by CR8",
            BuildTarget::Masking(MaskMethod::LapicTpr) => "the kernel that masks by the local APIC",
            BuildTarget::Masking(MaskMethod::Pic) => "the kernel that masks by the 8259",
            BuildTarget::Host => "what runs on the host",
            BuildTarget::User => "the programs",
        }
    }
}

/// Target of the kernel, and of the programs in the guest. Its compiled code does not use the FPU, so that threads do
/// not become users of the FPU, whose registers would have to be switched and kept.
const BARE_TARGET: &str = "x86_64-unknown-none";

/// Flags of the kernel, besides the configuration.
const KERNEL_FLAGS: &[&str] = &[
    "-Crelocation-model=static",
    "-Ccode-model=kernel",
    "-Cforce-frame-pointers=no",
];

/// Flags of programs: static and position-independent.
const USER_FLAGS: &[&str] = &[
    "-Clink-arg=-e_start",
    "-Crelocation-model=pie",
    "-Ccode-model=small",
    "-Cforce-frame-pointers=yes",
];

/// A package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// Its name for cargo's `-p`.
    pub name: String,
    /// Its directory, relative to the root.
    pub dir: PathBuf,
    /// Names of its binaries.
    pub bins: Vec<String>,
    /// Whether it has a library that others can depend on.
    pub has_lib: bool,
    /// The name of its library, if it has one of any kind.
    pub lib: Option<String>,
    /// Whether the library is of macros, which are for the compiler and so run on the host.
    pub is_macros: bool,
    /// `[package.metadata.fermata] install = "DIR"`: where its binaries go in the guest.
    install: Option<String>,
    /// `[package.metadata.fermata] host = ...`: whether it builds on the host, if that differs from the rule for its
    /// directory.
    host: Option<bool>,
    /// `[package.metadata.fermata] guest = false`: it does not build for the guest.
    guest: Option<bool>,
}

impl Package {
    /// The directory of the guest that its binaries go into, if it is for the guest.
    pub fn guest_dir(&self) -> Option<&str> {
        if self.guest == Some(false) {
            return None;
        }
        if let Some(install) = &self.install {
            return Some(install);
        }
        if self.dir.starts_with("servers") || self.dir.starts_with("drivers") {
            Some("sbin")
        } else if self.dir.starts_with("tests") {
            Some("test")
        } else if self.dir.starts_with("user") || self.dir.starts_with("examples") {
            Some("bin")
        } else {
            None
        }
    }

    /// Whether it has tests that run on the host.
    pub fn on_host(&self) -> bool {
        let by_place = self.dir == Path::new("xtask")
            || self.has_lib && self.dir != Path::new("boot") && self.dir != Path::new("user/rt");
        self.host.unwrap_or(by_place)
    }

    /// The prefix of the names of its tests on the host.
    pub fn test_prefix(&self) -> String {
        format!("host/{}/", self.dir.to_string_lossy().replace('/', "-"))
    }
}

/// Kinds of libraries, by cargo's names.
const LIBRARIES: &[&str] = &["lib", "proc-macro", "staticlib", "cdylib"];

/// The checkout.
pub struct Project {
    /// Its root.
    pub root: PathBuf,
    /// The directory of everything that is generated.
    pub target: PathBuf,
}

impl Project {
    /// Finds the checkout that the root script has named.
    pub fn find() -> Result<Self, Error> {
        let root = std::env::var_os("FERMATA_ROOT")
            .map(PathBuf::from)
            .or_else(|| {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .ancestors()
                    .nth(2)
                    .map(Path::to_path_buf)
            })
            .ok_or_else(|| Error::new("the root of the checkout is not known"))?;
        let target = root.join("target");
        Ok(Self { root, target })
    }

    /// The directory of the output of `build`.
    fn target_dir(&self, build: BuildTarget, config: Config) -> PathBuf {
        match (build, build.kernel()) {
            (_, Some((directory, _))) => self.target.join(directory).join(config.directory()),
            (BuildTarget::User, _) => self.target.join("user"),
            _ => self.target.join("host"),
        }
    }

    /// The directory of the binaries of `build`.
    pub fn binaries(&self, build: BuildTarget, config: Config) -> PathBuf {
        let target = self.target_dir(build, config);
        match build {
            BuildTarget::Host => target.join("debug"),
            BuildTarget::User => target.join(BARE_TARGET).join("release"),
            _ => target.join(BARE_TARGET).join("kernel"),
        }
    }

    /// The command `cargo SUBCOMMAND` with target, profile and flags of `build`.
    pub fn cargo(&self, build: BuildTarget, config: Config, subcommand: &str) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).arg(subcommand);
        self.set_up(&mut command, build, config);
        match build {
            BuildTarget::Host => {}
            BuildTarget::User => {
                command.args(["--target", BARE_TARGET, "--profile", "release"]);
            }
            _ => {
                command.args(["--target", BARE_TARGET, "--profile", "kernel"]);
            }
        }
        command
    }

    /// The command `cargo doc` for `build`. Private items are described, and a warning is an error.
    pub fn cargo_doc(&self, build: BuildTarget, config: Config) -> Command {
        let mut command = self.cargo(build, config, "doc");
        command.arg("--document-private-items");
        let mut flags = command
            .get_envs()
            .find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS")
            .and_then(|(_, flags)| flags)
            .map_or_else(OsString::new, |flags| {
                let mut flags = flags.to_os_string();
                flags.push("\x1f");
                flags
            });
        // Private items are documented too, so links to them are valid.
        flags.push("--deny\x1fwarnings\x1f--allow\x1frustdoc::private_intra_doc_links");
        command.env("CARGO_ENCODED_RUSTDOCFLAGS", flags);
        command
    }

    /// Target directory and flags for `build`.
    fn set_up(&self, command: &mut Command, build: BuildTarget, config: Config) {
        command.env("CARGO_TARGET_DIR", self.target_dir(build, config));
        let mut flags: Vec<String> = match build {
            BuildTarget::Host => Vec::new(),
            BuildTarget::User => USER_FLAGS.iter().map(ToString::to_string).collect(),
            _ => KERNEL_FLAGS.iter().map(ToString::to_string).collect(),
        };
        if let Some((_, cfg)) = build.kernel() {
            flags.extend(config.flags());
            flags.extend(cfg.iter().flat_map(|cfg| ["--cfg", cfg].map(String::from)));
        }
        if !flags.is_empty() {
            command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        }
    }

    /// Replaces this process by `cargo ARGUMENTS...` for `build`; returns only on failure.
    pub fn exec_cargo(&self, build: BuildTarget, config: Config, arguments: &[OsString]) -> Error {
        let mut command = match arguments.split_first() {
            Some((subcommand, rest)) if build != BuildTarget::Host => {
                let subcommand = subcommand.to_string_lossy();
                let mut command = self.cargo(build, config, &subcommand);
                command.args(rest);
                command
            }
            _ => {
                let mut command = Command::new("cargo");
                command.args(arguments);
                self.set_up(&mut command, build, config);
                command
            }
        };
        Error::new(format!("cannot run cargo: {}", command.exec()))
    }

    /// Builds a program for the host. Returns its path. Prints `what` if that takes long.
    fn host_program(&self, package: &str, what: &str) -> Result<PathBuf, Error> {
        let (build, config) = (BuildTarget::Host, Config::DEFAULT);
        let mut cargo = self.cargo(build, config, "build");
        cargo.args(["--quiet", "--package", package, "--bin", package]);
        // Libraries have the features that all packages named here want together. With those of the host's tests named, too, what
        // was built for these is used again: the personality alone takes a minute.
        for tested in self.packages()?.iter().filter(|package| package.on_host()) {
            cargo.args(["--package", &tested.name]);
        }
        finish(cargo, what)?;
        Ok(self.binaries(build, config).join(package))
    }

    /// The program that inspects images of checkpoints.
    pub fn image_program(&self) -> Result<PathBuf, Error> {
        let what = "building the program that looks at images";
        self.host_program("fermata-image", what)
    }

    /// The packages of the workspace.
    pub fn packages(&self) -> Result<Vec<Package>, Error> {
        let output = Command::new("cargo")
            .current_dir(&self.root)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Error::new(format!("cannot run cargo: {error}")))?;
        if !output.status.success() {
            return Err(Error::new("cargo does not understand the workspace"));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::new(format!("cargo metadata is not JSON: {error}")))?;
        let mut packages: Vec<Package> = elements(&metadata["packages"])
            .filter_map(|value| self.package(value))
            .collect();
        packages.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(packages)
    }

    /// The package in `directory`.
    pub fn package_at<'a>(
        &self,
        packages: &'a [Package],
        directory: &str,
    ) -> Result<&'a Package, Error> {
        packages
            .iter()
            .find(|package| package.dir == Path::new(directory))
            .ok_or_else(|| {
                Error::new(format!(
                    "there is no package in {}",
                    self.root.join(directory).display()
                ))
            })
    }

    /// A package as cargo describes it.
    fn package(&self, value: &Value) -> Option<Package> {
        let manifest = Path::new(value["manifest_path"].as_str()?);
        let dir = manifest
            .parent()?
            .strip_prefix(&self.root)
            .ok()?
            .to_path_buf();
        let is = |target: &Value, kind: &str| elements(&target["kind"]).any(|k| k == kind);
        let targets = &value["targets"];
        let own = &value["metadata"]["fermata"];
        Some(Package {
            name: value["name"].as_str()?.to_string(),
            dir,
            bins: elements(targets)
                .filter(|target| is(target, "bin"))
                .filter_map(|target| Some(target["name"].as_str()?.to_string()))
                .collect(),
            has_lib: elements(targets).any(|target| is(target, "lib") || is(target, "proc-macro")),
            lib: elements(targets)
                .find(|target| LIBRARIES.iter().any(|kind| is(target, kind)))
                .and_then(|target| Some(target["name"].as_str()?.to_string())),
            is_macros: elements(targets).any(|target| is(target, "proc-macro")),
            install: own["install"].as_str().map(ToString::to_string),
            host: own["host"].as_bool(),
            guest: own["guest"].as_bool(),
        })
    }

    /// Gets all crates that `Cargo.lock` names.
    pub fn fetch_crates(&self) -> Result<(), Error> {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).args(["fetch", "--quiet"]);
        finish(command, "fetching crates")
    }

    /// Whether all crates that `Cargo.lock` names are on this machine, so that builds need no network.
    pub fn has_crates(&self) -> bool {
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.root)
            .args(["fetch", "--quiet", "--offline", "--locked"])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Makes other builds in this checkout wait until the result is dropped.
    pub fn lock(&self) -> Result<File, Error> {
        self.lock_unless("build.lock", "build", &signals::caught)
    }

    /// Makes other commands that prove mutants wait: they build in trees and target directories of their own, and
    /// leave this checkout to others.
    pub fn lock_mutants(&self) -> Result<File, Error> {
        self.lock_unless("mutants.lock", "proof of mutants", &signals::caught)
    }

    /// Takes the lock of a file below `target`, or prints once what it waits for. A caught signal ends the wait: a
    /// system call that waits for a lock would be restarted after the signal.
    fn lock_unless(
        &self,
        name: &str,
        what: &str,
        caught: &dyn Fn() -> Option<u8>,
    ) -> Result<File, Error> {
        const TICK: Duration = Duration::from_millis(20);
        let path = self.target.join(name);
        let failed = |error| Error::new(format!("cannot lock {}: {error}", path.display()));
        std::fs::create_dir_all(&self.target).map_err(failed)?;
        let file = File::create(&path).map_err(failed)?;
        let mut is_said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            if let Some(signal) = caught() {
                return Err(signals::interrupted(signal));
            }
            if !std::mem::replace(&mut is_said, true) {
                eprintln!("fermata: waiting for another {what} in this tree");
            }
            std::thread::sleep(TICK);
        }
    }
}

/// A file beside `path` that gets that name when it is complete, and is deleted otherwise. Its mode is that of a
/// newly created file.
pub fn file_beside(path: &Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".fermata-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

/// A process that is killed when the result is dropped.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Usually it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is deleted when the result is dropped.
pub fn temp_dir() -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix("fermata-")
        .tempdir()
        .map_err(|error| Error::new(format!("cannot make a temporary directory: {error}")))
}

/// All Rust sources below a directory, in order.
pub fn rust_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::new(format!("cannot read {}: {error}", directory.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            paths.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The elements of a JSON array, or none.
fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Runs `command` to its end with its output on standard error. Prints `what` if that takes long.
pub fn finish(mut command: Command, what: &str) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Error::new(format!("cannot run {name}: {error}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .spawn()
        .map_err(failed)?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(700) {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return success(status, what);
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    eprintln!("fermata: {what}");
    success(child.wait().map_err(failed)?, what)
}

fn success(status: std::process::ExitStatus, what: &str) -> Result<(), Error> {
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(format!("{what} failed")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

    #[test]
    fn who_waits_for_a_lock_hears_of_signals() {
        let scratch = temp_dir().unwrap();
        let project = Project {
            root: scratch.path().into(),
            target: scratch.path().join("target"),
        };
        let never = || None;
        let held = project.lock_unless("x.lock", "x", &never).unwrap();
        // Another file is another lock.
        drop(project.lock_unless("y.lock", "y", &never).unwrap());
        let (signal, has_it) = (AtomicU8::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let interrupted = scope.spawn(|| {
                let caught = || Some(signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0);
                project.lock_unless("x.lock", "x", &caught)
            });
            let waiting = scope.spawn(|| {
                let lock = project.lock_unless("x.lock", "x", &never);
                has_it.store(true, Ordering::Relaxed);
                lock
            });
            std::thread::sleep(Duration::from_millis(60));
            assert!(!interrupted.is_finished());
            signal.store(2, Ordering::Relaxed);
            let error = interrupted.join().unwrap().unwrap_err();
            assert_eq!((error.status, &*error.message), (130, "interrupted"));
            assert!(!has_it.load(Ordering::Relaxed));
            drop(held);
            assert!(waiting.join().unwrap().is_ok());
        });
    }

    #[test]
    fn a_file_takes_its_name_when_it_is_complete() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = temp_dir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let names = || std::fs::read_dir(scratch.path()).unwrap().count();
        drop(file_beside(&at("x")).unwrap());
        assert_eq!(names(), 0);
        let file = file_beside(&at("x")).unwrap();
        assert!(!at("x").exists() && names() == 1);
        file.persist_noclobber(at("x")).unwrap();
        assert!(at("x").exists() && names() == 1);
        std::fs::write(at("y"), "").unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode();
        assert_eq!(mode("x"), mode("y"));
    }
}
