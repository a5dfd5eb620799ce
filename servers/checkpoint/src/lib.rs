//! The image of processes: its format and its validation.
//!
//! This is the part of the checkpointer that makes no kernel call, so that it is tested on the host: the description of
//! saved processes ([`meta`]), the layout of an image in a file and all checks before it is used ([`mod@file`]), how
//! the file gets its name ([`new`]), where the pages are that an incremental image leaves to its parent ([`chain`]),
//! which pages are read on demand ([`owed`]), which files it names and does not contain ([`files`]), how the references
//! that objects hold become names that mean the same in another boot ([`resolve`]), descriptions of what threads are
//! doing ([`doing`]), tools that do not restore an image ([`mod@tool`]), which requests may begin ([`turns`]), and the
//! accounting of kernel memory ([`charges`]). The program around it (`main.rs`, `desk.rs`, `save.rs`, `restore.rs`)
//! makes the calls.
//!
//! `docs/checkpoint.md` describes the format and argues why what is saved is consistent.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod chain;
pub mod charges;
pub mod doing;
pub mod file;
pub mod files;
pub mod meta;
pub mod new;
pub mod owed;
pub mod resolve;
pub mod tool;
pub mod turns;
