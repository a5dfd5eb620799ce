//! `./fermata check`: rustfmt, clippy with the flags of every room and every configuration, the [`rules`] of the
//! rooms, and whether pages name tests, commands and numbers that exist.

mod glue;
mod order;
mod rules;

use std::process::Command;

use crate::cli;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::project::{finish, BuildTarget, Project};
use xtask_docs::numbers;
use xtask_test::security;

/// Runs all checks, and reports at the end which failed.
pub(crate) fn run(project: &Project) -> Result<u8, Error> {
    let packages = project.packages()?;
    let mut failed = Vec::new();
    let mut check = |what: String, command: Command| {
        if finish(command, &what).is_err() {
            failed.push(what);
        }
    };

    let mut fmt = Command::new("cargo");
    fmt.current_dir(&project.root)
        .args(["fmt", "--all", "--check"]);
    check("rustfmt".into(), fmt);

    let mut host = project.cargo(BuildTarget::Host, Config::DEFAULT, "clippy");
    // Programs of the guest do not build on the host; they are checked below.
    host.args(["--quiet", "--lib", "--tests"]);
    for package in packages.iter().filter(|package| package.on_host()) {
        host.args(["--package", &package.name]);
    }
    host.args(["--", "--deny", "warnings"]);
    check("clippy on the host".into(), host);

    let kernels = Config::every()
        .into_iter()
        .map(|config| (BuildTarget::Kernel, config));
    let probe = (BuildTarget::Probe, Config::DEFAULT);
    for (build, config) in kernels.chain([probe]) {
        let mut kernel = project.cargo(build, config, "clippy");
        kernel.arg("--quiet");
        for directory in ["boot", "hal", "kernel"] {
            kernel.args(["--package", &project.package_at(&packages, directory)?.name]);
        }
        kernel.args(["--", "--deny", "warnings"]);
        let which = if build == BuildTarget::Probe {
            "with the probe"
        } else {
            config.name()
        };
        check(format!("clippy on the kernel, {which}"), kernel);
    }

    let mut user = project.cargo(BuildTarget::User, Config::DEFAULT, "clippy");
    user.arg("--quiet");
    for package in packages
        .iter()
        .filter(|package| package.guest_dir().is_some())
    {
        user.args(["--package", &package.name]);
    }
    user.args(["--", "--deny", "warnings"]);
    check("clippy on the programs".into(), user);

    let broken = rules::broken(&project.root)?;
    for line in &broken {
        eprintln!("{line}");
    }
    if !broken.is_empty() {
        failed.push("the rules of the rooms".into());
    }

    let missing = security::missing(project, &cli::is_command)?;
    for line in &missing {
        eprintln!("{line}");
    }
    if !missing.is_empty() {
        failed.push("the page of promises".into());
    }

    let stale = numbers::stale(project)?;
    if !stale.is_empty() {
        eprintln!(
            "{}: stale: {}; `./fermata numbers` makes it anew",
            numbers::PAGE,
            stale.join(", ")
        );
        failed.push("the page of numbers".into());
    }

    if failed.is_empty() {
        eprintln!("fermata: all checks passed");
        return Ok(0);
    }
    eprintln!("fermata: failed: {}", failed.join("; "));
    Ok(1)
}
