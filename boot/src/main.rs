//! The kernel's image: the machine of `hal`, the logic of `kernel`, and the first space.
#![no_std]
#![no_main]

use core::panic::PanicInfo;

hal::entry!(main);

fn main() -> ! {
    hal::log(format_args!(
        "{:?} bytes of kernel memory (all, free)",
        hal::pool_bytes()
    ));
    hal::free_ranges(&mut |start, size| {
        hal::log(format_args!("free memory from {start:#x}, {size:#x} bytes"));
    });
    hal::log(format_args!(
        "archive {:x?}, command line {:?}",
        hal::archive(),
        hal::command_line()
    ));
    panic!("there is no first program yet")
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    match info.location() {
        Some(location) => hal::die(format_args!("{}, {location}", info.message())),
        None => hal::die(format_args!("{}", info.message())),
    }
}
