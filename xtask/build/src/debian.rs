//! Debian's packages: files that are not the project's own and are never committed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Held while packages are installed or fetched. Tests do that at the same time, and apt does not wait for all of its
/// locks.
static AT_WORK: Mutex<()> = Mutex::new(());

/// apt-get; it waits for another program that installs, and tries again if a mirror does not answer.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=5"]);
    command
}

/// Whether this is Debian.
fn is_debian() -> bool {
    Path::new("/usr/bin/apt-get").exists()
}

/// Downloads a package, `NAME` or `NAME=VERSION`, into an empty directory. Returns its file.
pub(crate) fn download(package: &str, directory: &Path) -> Result<PathBuf, String> {
    if !is_debian() {
        return Err("this is not Debian, so it cannot be fetched".into());
    }
    let _alone = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!("fermata: fetching Debian's package {package}");
    let download = || {
        let mut command = apt_get();
        command.args(["download", package]).current_dir(directory);
        run(&mut command)
    };
    // With an old or empty list of packages the first try fails.
    if download().is_err() {
        eprintln!("fermata: fetching the list of Debian packages");
        run(apt_get().arg("update"))?;
        download()?;
    }
    std::fs::read_dir(directory)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| "apt-get download left no package".into())
}

/// Installs the packages whose command, the first of each pair, is missing.
pub fn install(tools: &[(&str, &str)]) -> Result<(), String> {
    // Another thread may have installed it while this one waited.
    let _alone = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<&str> = tools
        .iter()
        .filter(|(command, _)| !is_there(command))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_debian() {
        return Err(format!(
            "these tools are missing, by their names in Debian: {names}"
        ));
    }
    eprintln!("fermata: installing Debian packages: {names}");
    let install = || {
        let mut command = apt_get();
        command
            .args(["install", "-y", "--no-install-recommends"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    if install().is_err() {
        eprintln!("fermata: fetching the list of Debian packages");
        let _ = run(apt_get().arg("update"));
        install().map_err(|why| {
            format!("these Debian packages are missing: {names}; as root: apt-get install {names} ({why})")
        })?;
    }
    Ok(())
}

/// Whether a command is in `PATH`.
fn is_there(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(command).is_file())
}

/// Runs `command` without showing its output; if it fails, the last line of its output is the error.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let words = stderr
        .lines()
        .rev()
        .find(|line| !line.is_empty())
        .unwrap_or("no reason given");
    Err(format!("{name} failed ({})", words.trim_end_matches('.')))
}
