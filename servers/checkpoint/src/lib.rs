//! What an image of processes is, and what is right and wrong about one.
//!
//! This is the part of the checkpointer that makes no kernel call, so that it is tested on the host: the description of
//! saved processes ([`meta`]), how an image lies in a file and how every doubt about it is settled before it is used
//! ([`mod@file`]), how the file comes by its name ([`new`]), where the pages are that an incremental one leaves to its
//! parent ([`chain`]), which are read when they are needed ([`owed`]), which files it names and does not have
//! ([`files`]), how the references that objects hold become
//! names that mean the same in another boot ([`resolve`]), and what a thread is doing, in words ([`doing`]), what one
//! says to people who do not restore it ([`mod@tool`]), who may begin ([`turns`]), and whose kernel memory is whose
//! ([`charges`]). The program around it (`main.rs`, `desk.rs`, `save.rs`, `restore.rs`) makes the calls.
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
