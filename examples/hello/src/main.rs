//! The smallest program: it prints a line, and ends with status 0.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;

rt::entry!(main);

fn main() -> u8 {
    let name = rt::start().args.get(1).map_or("world", String::as_str);
    rt::println!("hello, {name}");
    0
}
