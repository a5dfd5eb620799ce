//! `./fermata fuzz`: random programs, for as long as the user likes.
//!
//! The fuzzer itself is a test of the kernel that `test` leaves out (`kernel/src/test/fuzz.rs`): it compares the
//! kernel on the simulated machine with its specification. Its results are in `target/fuzz`. With `--guest`, hostile
//! callers run in a machine whose kernel checks itself at every exit; with `--services`, hostile clients of every
//! service run in one machine after the other.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use xtask_build::error::Error;
use xtask_build::project::{finish, BuildTarget, Project};

/// Options of `fuzz`.
#[derive(Args, Clone, Debug)]
pub struct FuzzOptions {
    /// Run for so many seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time: u64,
    /// Start with this seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Only run the program in FILE
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Run hostile callers in a machine instead, with a kernel that checks its structures at every exit
    #[arg(long)]
    guest: bool,
    /// Run hostile clients of every service instead, killed at any instant; each machine counts instructions, and
    /// does the same again with the same seed
    #[arg(long, conflicts_with_all = ["guest", "replay"])]
    services: bool,
    /// With --services: a service that is slow, or serves requests too rarely, is a failure, and not only a note
    #[arg(long, requires = "services")]
    pub(crate) limits: bool,
}

impl FuzzOptions {
    /// The seed to begin with; each call has a different one unless the user gives one.
    pub(crate) fn first_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(0, |now| now.as_secs())
        })
    }
}

/// Runs the fuzzer, or one program that it found.
pub fn run(project: &Project, options: &FuzzOptions) -> Result<u8, Error> {
    if options.guest {
        return crate::fuzz_guest(project, options);
    }
    if options.services {
        return crate::fuzz_services(project, options);
    }
    let directory = project.target.join("fuzz");
    let failed = |error| Error::new(format!("cannot write {}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let mut build = test(project);
    build.arg("--no-run");
    finish(build, "building the kernel's tests")?;
    match &options.replay {
        Some(program) => replay(project, program),
        None => search(project, options, &directory),
    }
}

/// The kernel's tests on the host.
fn test(project: &Project) -> Command {
    let mut command = project.cargo(
        BuildTarget::Host,
        xtask_build::config::Config::DEFAULT,
        "test",
    );
    command.args(["--quiet", "--package", "fermata-kernel", "--lib"]);
    command
}

fn search(project: &Project, options: &FuzzOptions, directory: &Path) -> Result<u8, Error> {
    let seed = options.first_seed();
    let failure = directory.join("failure");
    let _ = std::fs::remove_file(&failure);
    let log = directory.join("log");
    let log_file = std::fs::File::create(&log)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", log.display())))?;
    let mut command = test(project);
    command
        .args(["--", "--ignored", "--exact", "test::fuzz::fuzz"])
        .args(["--nocapture", "--color", "never"])
        .env("FERMATA_TIME", options.time.to_string())
        .env("FERMATA_SEED", seed.to_string())
        .env("FERMATA_CORPUS", directory.join("corpus"))
        .env("FERMATA_FAILURE", &failure)
        .stdin(Stdio::null())
        .stderr(log_file);
    let mut ran = 0;
    let success = heard(command, &mut |line| {
        if let Some(at) = line.find("fuzz: ") {
            println!("{}", &line[at..]);
            ran = sequences(&line[at..]).unwrap_or(ran);
        }
    })?;
    match (success, ran) {
        (true, 1..) => return Ok(0),
        (true, 0) => {
            println!("fuzz: no sequence was run; see {}", log.display());
            return Ok(1);
        }
        (false, _) => {}
    }
    match std::fs::read_to_string(&failure) {
        Ok(program) => {
            println!("\n{program}");
            println!("again: ./fermata fuzz --replay {}", failure.display());
        }
        Err(_) => println!("fuzz: it ended without a program; see {}", log.display()),
    }
    Ok(1)
}

/// Runs a command to its end, and calls `line` with each line that it prints. Returns whether it succeeded.
fn heard(mut command: Command, line: &mut dyn FnMut(&str)) -> Result<bool, Error> {
    let cannot = |error| Error::new(format!("cannot run cargo: {error}"));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    if let Some(output) = child.stdout.take() {
        for said in BufReader::new(output).lines().map_while(Result::ok) {
            line(&said);
        }
    }
    Ok(child.wait().map_err(cannot)?.success())
}

/// The number of sequences in all, if this is the line with it at the end.
fn sequences(line: &str) -> Option<u64> {
    let (count, _) = line.strip_prefix("fuzz: ")?.split_once(" sequences, ")?;
    count.parse().ok()
}

/// The number of tests to be run, if this is the line of Rust's harness with it.
fn running(line: &str) -> Option<u64> {
    let (count, _) = line.strip_prefix("running ")?.split_once(" test")?;
    count.parse().ok()
}

fn replay(project: &Project, program: &Path) -> Result<u8, Error> {
    let program = program
        .canonicalize()
        .map_err(|error| Error::new(format!("cannot read {}: {error}", program.display())))?;
    let mut command = test(project);
    command
        .args(["--", "--exact", "--color", "never"])
        .arg("test::fuzz::the_kernel_does_what_the_specification_says")
        .env("FERMATA_PROGRAM", program);
    // The harness also succeeds with a name that no test has.
    let mut ran = 0;
    let success = heard(command, &mut |line| {
        println!("{line}");
        ran += running(line).unwrap_or(0);
    })?;
    if success && ran != 1 {
        println!("fuzz: no test has run the program");
    }
    Ok(u8::from(!success || ran != 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_run_is_heard() {
        let end = "fuzz: 1200 sequences, 70 different steps, no difference";
        assert_eq!(sequences(end), Some(1200));
        let progress = "fuzz: 5 s, 900 sequences, 3 programs kept, 4 steps, 5 pairs of steps";
        assert_eq!(sequences(progress), None);
        assert_eq!(running("running 1 test"), Some(1));
        assert_eq!(running("running 0 tests"), Some(0));
        assert_eq!(running("test a ... ok"), None);
        let (mut lines, mut command) = (Vec::new(), Command::new("sh"));
        command.args(["-c", "echo a; echo b; exit 3"]);
        let success = heard(command, &mut |line| lines.push(line.to_string()));
        assert!(success.is_ok_and(|success| !success));
        assert_eq!(lines, ["a", "b"]);
    }
}
