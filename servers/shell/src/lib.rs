//! The shell and its small programs, the parts that make no kernel call.
//!
//! * [`mod@line`] cuts the typed text into commands, and decides which of them a POSIX shell runs.
//! * [`parse`] turns the others into words and redirections.
//! * [`editor`] is the line editor: keys in, text for the terminal out.
//! * [`jobs`] is the table of jobs and their numbers.
//! * [`list`] shows processes, line by line.
//! * [`ways`] are the options of `checkpoint`.
//! * [`text`] has the small things: paths, durations, dates, ELF headers.
//! * [`turn`] is the script by which a POSIX shell runs one command, and what it leaves.
//!
//! `main.rs` is the shell, `tools.rs` the program behind `ls`, `cat`, `sleep` and the like.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod editor;
pub mod jobs;
pub mod line;
pub mod list;
pub mod parse;
pub mod text;
pub mod turn;
pub mod ways;
