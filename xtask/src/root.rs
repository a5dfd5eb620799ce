//! `./fermata root`: makes a disk or an archive of Debian packages, without a machine and without root.

use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use xtask_build::archive::Archive;
use xtask_build::error::Error;
use xtask_build::packages::{self, Packages};
use xtask_build::project::{file_beside, Project};
use xtask_build::signals;
use xtask_machine::disk;

use crate::run::{bytes, LEAST_DISK};

/// Options of `root`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RootOptions {
    /// A file that does not exist yet: a disk (ext4), or an archive for `run --root` if its name ends in .tar
    file: PathBuf,
    /// Names of Debian's packages
    #[arg(required = true, value_name = "PACKAGE", value_parser = packages::names)]
    packages: Vec<Vec<String>>,
    /// The size of the disk, such as 256M; by default one and a half times what the packages need
    #[arg(long, value_parser = bytes)]
    size: Option<u64>,
}

/// Makes the file completely, or not at all.
pub(crate) fn run(project: &Project, options: &RootOptions) -> Result<u8, Error> {
    signals::catch();
    let made = make(project, options);
    // After a signal all other errors are consequences.
    made.map_err(|error| signals::check().err().unwrap_or(error))
}

fn make(project: &Project, options: &RootOptions) -> Result<u8, Error> {
    let file = &options.file;
    let cannot = |why: &dyn std::fmt::Display| Error::new(format!("{}: {why}", file.display()));
    if file.exists() {
        return Err(cannot(&"it is there already, and stays as it is"));
    }
    let names = options.packages.concat();
    let packages = Packages::get(project, &names)?;
    let count = packages.count();
    let mut root = Archive::with_directories()?;
    root.merge(packages.unpacked()?)?;
    if file.extension().is_some_and(|extension| extension == "tar") {
        let bytes = root.finish()?;
        signals::check()?;
        let made = file_beside(file).and_then(|mut made| {
            made.write_all(&bytes)?;
            Ok(made.persist_noclobber(file)?)
        });
        made.map_err(|error| cannot(&error))?;
    } else {
        // A directory or short file takes a block, and the file system needs some blocks for itself.
        let used = root.bytes() + root.entries().count() as u64 * 4096;
        let size = (used + used / 2 + (32 << 20)).next_multiple_of(1 << 20);
        let size = options.size.unwrap_or(size);
        if size < LEAST_DISK {
            return Err(cannot(&"a disk has at least 20M"));
        }
        disk::make_of(file, size, &root)?;
    }
    println!(
        "{}: {count} packages, {} files, {:.0} MB",
        file.display(),
        root.entries().count(),
        root.bytes() as f64 / 1e6
    );
    Ok(0)
}
