//! All commands of `./fermata`, once the root script has found or installed the tools.
//!
//! Each part is a crate of its own, and depends only on those before it:
//!
//! * `build` builds everything that a machine boots, and knows the layout of the checkout;
//! * `machine` runs one machine;
//! * `bench` measures;
//! * `test` tests, fuzzes and proves;
//! * `docs` makes pages.
//!
//! This crate has the command line ([`cli`]), and the small commands: [`run`], [`disk`], [`root`] and [`check`].

mod check;
mod cli;
mod disk;
mod drivers;
mod root;
mod run;
#[cfg(test)]
mod script;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use cli::Command;
use xtask_build::error::Error;
use xtask_build::project::Project;
use xtask_build::{busybox, image, linux, program};
use xtask_docs::{book, explain, numbers, reference, syscalls};
use xtask_test::{fuzz, interrupts, model, mutants};

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(error) => {
            // A reader such as `head` may have closed its end, which is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
        }
    };
    match dispatch(command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("fermata: {}", error.message);
            ExitCode::from(error.status)
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Error> {
    match command {
        Command::Drivers { name } => drivers::print(&Project::find()?, name.as_deref()),
        Command::Syscalls => syscalls::print(),
        Command::Explain { call } => explain::print(&call),
        Command::Doc => book::write(&Project::find()?),
        Command::Reference => reference::write(&Project::find()?),
        Command::Run(options) => run::run(&Project::find()?, *options),
        Command::Test(options) => xtask_test::run(&Project::find()?, &options),
        Command::Bench(options) => {
            let project = Project::find()?;
            let status = xtask_bench::run(&project, &options)?;
            if options.update_thresholds {
                numbers::write(&project)?;
            }
            Ok(status)
        }
        Command::Disk(options) => disk::run(&options),
        Command::Image { arguments } => Err(look_at_images(&Project::find()?, &arguments)?),
        Command::Root(options) => root::run(&Project::find()?, &options),
        Command::Numbers => numbers::write(&Project::find()?),
        Command::Fuzz(options) => fuzz::run(&Project::find()?, &options),
        Command::Prove(options) if options.is_about_mutants() => {
            mutants::run(&Project::find()?, options.filter.as_deref(), options.fresh)
        }
        Command::Prove(options) if options.is_about_packages() => {
            xtask_test::packages::run(&Project::find()?, options.filter.as_deref())
        }
        Command::Prove(options) if options.is_about_browser() => {
            xtask_test::prove_browser(&Project::find()?)
        }
        Command::Prove(options) if options.checkpoints().is_some() => {
            let count = options.checkpoints().unwrap_or_default();
            let filter = options.filter.as_deref();
            xtask_test::checkpoints::run(&Project::find()?, count, filter, options.fresh)
        }
        Command::Prove(options) => match (options.size_of_model(), options.kills()) {
            (Some(size), _) => model::run(&Project::find()?, size),
            (_, Some(kills)) => {
                xtask_test::prove_drivers(&Project::find()?, kills, options.filter.as_deref())
            }
            _ => interrupts::run(&Project::find()?, options.fresh),
        },
        Command::Check => check::run(&Project::find()?),
        Command::Clean => clean(&Project::find()?),
        Command::Build(choice) => {
            let project = Project::find()?;
            let configs = choice.among(xtask_build::config::Config::tested());
            image::build(&project, &configs).map(|_| 0)
        }
        Command::New { directory } => {
            let project = Project::find()?;
            program::create(&project, &directory)?;
            let name = directory.display();
            println!("{name}: made; now: ./fermata run --program {name}");
            Ok(0)
        }
        Command::Fetch { tests } => fetch(&Project::find()?, tests),
        Command::Cargo {
            build: (build, config),
            arguments,
        } => Err(Project::find()?.exec_cargo(build, config, &arguments)),
        Command::Completions { shell } => print(&cli::completions(shell)),
        Command::Man => {
            let page = cli::manual().map_err(|error| Error::new(error.to_string()))?;
            print(&page)
        }
    }
}

/// Replaces this process by the program of `tools/image`; returns only on failure.
fn look_at_images(project: &Project, arguments: &[OsString]) -> Result<Error, Error> {
    let mut program = std::process::Command::new(project.image_program()?);
    program.args(arguments);
    Ok(Error::new(format!(
        "cannot run the program that looks at images: {}",
        program.exec()
    )))
}

/// Prints. A reader that has closed its end is no failure.
fn print(bytes: &[u8]) -> Result<u8, Error> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot print: {error}")))
        }
        _ => Ok(0),
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

/// Downloads everything that later calls would download, and with `tests` what only tests need.
fn fetch(project: &Project, tests: bool) -> Result<u8, Error> {
    project.fetch_crates()?;
    busybox::find(project)?;
    if tests {
        // Each is useful without the other.
        let packages = xtask_test::packages::fetch(project);
        linux::fetch(project)?;
        packages?;
    }
    Ok(0)
}
