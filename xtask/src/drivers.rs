//! `./fermata drivers`: lists Linux's drivers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;

use xtask_build::error::Error;
use xtask_build::linux::{self, Ungranted, VERSION};
use xtask_build::project::Project;

/// Builds all drivers, or the one with this name, and prints facts about them.
pub(crate) fn print(project: &Project, name: Option<&str>) -> Result<u8, Error> {
    let mut text = String::new();
    match name {
        Some(name) => {
            let driver = linux::find(name)?;
            let (_, facts) = linux::build(project, driver, Ungranted::Ends)?;
            let _ = writeln!(
                text,
                "{name} of Linux {VERSION}: {}",
                driver.sources.join(", ")
            );
            let missing: BTreeSet<_> = facts.needs.intersection(&facts.stubs).collect();
            for name in missing {
                let _ = writeln!(text, "  ends the driver when it is called: {name}");
            }
        }
        None => {
            let _ = writeln!(
                text,
                "{:12} {:10} {:10} {:8} {:>6} {:>6} {:>6}",
                "DRIVER", "VERSION", "DEVICE", "SERVICE", "LINES", "NEEDS", "HAS"
            );
            for driver in linux::DRIVERS {
                let (_, facts) = linux::build(project, driver, Ungranted::Ends)?;
                let has = facts.needs.difference(&facts.stubs).count();
                let _ = writeln!(
                    text,
                    "{:12} {VERSION:10} {:10} {:8} {:>6} {:>6} {has:>6}",
                    driver.name,
                    driver.device,
                    driver.service,
                    facts.lines,
                    facts.needs.len()
                );
            }
        }
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot print: {error}")))
        }
        _ => Ok(0),
    }
}
