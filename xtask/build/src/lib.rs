//! Everything that a machine boots.
//!
//! * [`config`] knows the configurations of the kernel.
//! * [`project`] knows where things lie and how cargo is called for host, kernel and programs.
//! * [`image`] builds kernels and programs, and with [`archive`] and [`busybox`] the boot archive; [`packages`] adds
//!   Debian's packages.
//! * [`program`] creates and builds programs of users.
//! * [`linux`] makes programs of Linux's drivers.
//! * [`header`] makes the C header, [`c`] the C programs.
//! * `lines` finds the source line of an instruction.
//! * [`sites`] checks how programs enter the kernel, `anywhere` that they have no absolute address.
//! * [`signals`] tells waiting functions that the user has ended the command.
//! * [`error`] is the error of all crates of xtask.

mod anywhere;
pub mod archive;
pub mod busybox;
pub mod c;
pub mod config;
pub mod debian;
pub mod error;
pub mod header;
pub mod image;
mod lines;
pub mod linux;
pub mod packages;
pub mod program;
pub mod project;
pub mod signals;
mod sites;
