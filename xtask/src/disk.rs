//! `./fermata disk`: disks of machines, without a machine.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use xtask_build::error::Error;
use xtask_build::signals;
use xtask_machine::disk::{check, make, Disk};

use crate::run::{bytes, LEAST_DISK};

/// Options of `disk`.
#[derive(Args, Clone, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct DiskOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Make a disk, with the content of DIR
    Make {
        /// A file that does not exist yet
        file: PathBuf,
        /// Its size, such as 64M; at least 20M
        #[arg(value_parser = bytes)]
        size: u64,
        /// A directory; owners, modes and times are kept
        #[arg(value_name = "DIR")]
        from: Option<PathBuf>,
    },
    /// List the files on a disk: mode, owner, group, size, path
    List {
        /// The disk
        file: PathBuf,
        /// A path on it: lists this and everything below
        #[arg(default_value = "/")]
        path: String,
    },
    /// Copy a file or a directory from a disk
    Get {
        /// The disk
        file: PathBuf,
        /// A path on it
        path: String,
        /// A path of the host that does not exist yet
        to: PathBuf,
    },
    /// Check the file system on a disk; the status is 0 only if it is sound
    Check {
        /// The disk
        file: PathBuf,
    },
}

/// Does the action. If a signal ends it, nothing is left half done.
pub(crate) fn run(options: &DiskOptions) -> Result<u8, Error> {
    signals::catch();
    let done = act(options);
    done.map_err(|error| signals::check().err().unwrap_or(error))
}

fn act(options: &DiskOptions) -> Result<u8, Error> {
    match &options.action {
        Action::Make { size, .. } if *size < LEAST_DISK => {
            return Err(Error::usage("disk make: a disk has at least 20M"))
        }
        Action::Make { file, size, from } => make(file, *size, from.as_deref())?,
        Action::List { file, path } => {
            let lines = Disk::open(file)?.list(path)?;
            return crate::print(lines.as_bytes());
        }
        Action::Get { file, path, to } => {
            let left_out = Disk::open(file)?.get(path, to)?;
            if left_out > 0 {
                eprintln!(
                    "fermata: {left_out} are neither file, directory nor link, and were left out"
                );
            }
        }
        Action::Check { file } => {
            check(file)?;
            println!("{}: sound", file.display());
        }
    }
    Ok(0)
}
