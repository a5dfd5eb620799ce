//! Everything that `./fermata` does, once the root script has found or installed the tools.
//!
//! * [`cli`] reads the arguments and knows the help text; [`config`] knows the configurations.
//! * [`project`] knows where things lie and how cargo is called for host, kernel and programs.
//! * [`image`] builds what a machine boots: kernel, programs, and (with [`archive`] and
//!   [`busybox`]) the boot archive.
//! * [`machine`] runs QEMU; [`control`] reads what the guest says on its second serial port;
//!   [`terminal`] and [`signals`] look after the one we sit at.
//! * [`run`], [`test`], [`fuzz`], [`check`], [`syscalls`], [`explain`] and [`reference`] are the commands;
//!   [`header`] and [`c`] make the C header and the C programs.
//! * `conformance` (a test only) sees to it that every call has a test.
//! * [`scenario`] is what the scenarios in `tests/scenarios` are written with.

mod archive;
mod bench;
mod busybox;
mod c;
mod check;
mod cli;
mod config;
#[cfg(test)]
mod conformance;
mod control;
mod error;
mod explain;
mod fuzz;
mod header;
mod image;
mod machine;
mod project;
mod reference;
mod run;
mod scenario;
#[path = "../../tests/scenarios/mod.rs"]
mod scenarios;
mod signals;
mod syscalls;
mod temp;
mod terminal;
mod test;

use std::process::ExitCode;

use cli::{Claim, Command};
use error::Error;
use project::Project;

fn main() -> ExitCode {
    match cli::parse().and_then(dispatch) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("fermata: {}", error.message);
            ExitCode::from(error.status)
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Error> {
    match command {
        Command::Help => {
            print!("{}", cli::HELP);
            Ok(0)
        }
        Command::Syscalls => syscalls::print(),
        Command::Explain(name) => explain::print(&name),
        Command::Reference => reference::write(&Project::find()?),
        Command::Run(options) => run::run(&Project::find()?, options),
        Command::Test(options) => test::run(&Project::find()?, &options),
        Command::Bench(options) => bench::run(&Project::find()?, &options),
        Command::Fuzz(options) => fuzz::run(&Project::find()?, &options),
        Command::Prove(options) => {
            let (project, fresh) = (Project::find()?, options.fresh);
            match options.claim {
                Claim::Interrupts => test::interrupts::run(&project, fresh),
                Claim::Mutants(filter) => test::mutants::run(&project, filter.as_deref(), fresh),
            }
        }
        Command::Check => check::run(&Project::find()?),
        Command::Clean => clean(&Project::find()?),
        Command::Build(configs) => {
            let project = Project::find()?;
            image::build(&project, &configs).map(|_| 0)
        }
        Command::Fetch => fetch(&Project::find()?),
        Command::Cargo(room, config, arguments) => {
            Err(Project::find()?.exec_cargo(room, config, &arguments))
        }
    }
}

/// Removes everything generated.
fn clean(project: &Project) -> Result<u8, Error> {
    match std::fs::remove_dir_all(&project.target) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::new(format!(
            "cannot remove {}: {error}",
            project.target.display()
        ))),
    }
}

/// Gets everything that later calls would want from the network.
fn fetch(project: &Project) -> Result<u8, Error> {
    project.fetch_crates()?;
    busybox::find(project)?;
    Ok(0)
}
