//! Builds processes and takes them apart.
//!
//! A process is two segments of the memory server (see [`proto::layout`]) and the objects in them. The users of this
//! crate are those that manage processes: the manager of native programs in init, the Linux personality, the
//! checkpointer when it restores.
//!
//! * [`Process`]: segments, windows, space, first thread, mappings.
//! * [`account`]: how much memory a process gets.
//! * [`executable`]: the headers of an ELF executable; pure, for hostile files.
//! * [`image`]: the memory layout that such a file asks for.
//! * [`gate`]: where a program calls the kernel, for a loader that redirects its calls.
//! * [`debug`]: a session of a debugger, and what the manager keeps for it.
//! * [`held`]: a session at the control port of a process.
//! * [`native`]: the start page of a native program.
//! * [`watch`]: memory that a debugger watches.
//! * [`words`]: descriptions of what a thread is doing.
//!
//! The pure parts (`account`, `debug`, `executable`, `image`, `watch`, `words`) have host tests beside them.
#![no_std]

extern crate alloc;

pub mod account;
pub mod debug;
pub mod executable;
pub mod gate;
pub mod held;
pub mod image;
mod live;
pub mod native;
pub mod watch;
pub mod words;

pub use live::{Common, Copies, Found, Process, Template, Walk, MOST_COUNTED, MOST_TOLD};
