//! The kernel's image: links the machine of `hal` with the logic of `kernel`, and builds the first
//! space from `sbin/init` of the boot archive.
//!
//! [`files`] finds a file in the archive, [`program`] loads it. `abi::boot` describes what the first program gets.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod files;
mod program;

use core::panic::PanicInfo;
use kernel::Kernel;

hal::entry!(main);

fn main() -> ! {
    let Some(kernel) = Kernel::new() else {
        hal::die(format_args!(
            "the machine has too little memory for the kernel's tables"
        ))
    };
    let Some(init) = files::find("sbin/init") else {
        hal::die(format_args!(
            "the boot archive is missing or has no sbin/init"
        ))
    };
    let loaded = match program::load(&init) {
        Ok(loaded) => loaded,
        Err(why) => hal::die(format_args!("sbin/init cannot be loaded: {why}")),
    };
    let Some(first) = kernel.first_space(&loaded.space()) else {
        hal::die(format_args!("the first space cannot be built"))
    };
    hal::start(kernel, first)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(location) => hal::die(format_args!("{}, {location}", info.message())),
        None => hal::die(format_args!("{}", info.message())),
    }
}
