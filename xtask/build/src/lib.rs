//! Everything that a machine boots.
//!
//! * [`config`] knows the configurations of the kernel.
//! * [`project`] knows where things lie and how cargo is called for host, kernel and programs.
//! * [`image`] builds kernels and programs, and with [`archive`] and [`busybox`] the boot archive; [`packages`] adds Debian's.
//! * [`program`] makes and builds programs of one's own.
//! * [`linux`] makes programs of Linux's drivers.
//! * [`header`] makes the C header, [`c`] the C programs.
//! * `lines` tells where in the sources an instruction is.
//! * [`sites`] checks how programs enter the kernel, `anywhere` that they have no absolute address.
//! * [`signals`] tells who waits that the user has had enough.
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
