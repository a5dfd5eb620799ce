#![no_std]
#![no_main]
rt::entry!(main);
fn main() -> u8 {
    0
}
