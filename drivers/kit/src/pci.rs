//! Configuration of PCI functions. A driver has the functions of its line in the manifest; all others read as absent.
use crate::set::ask;
use core::ffi::{c_int, c_uint};
use interface::Error;
use services::device::Function;

/// Offset of the command register, and its bit by which a function reaches memory (bus master).
const COMMAND: u8 = 4;
const MASTER: c_uint = 4;

fn function(bus: u8, device: u8, function: u8) -> Function {
    Function::from(bus) << 8 | Function::from(device & 31) << 3 | Function::from(function & 7)
}

/// A.7.1.1: claims the first function that this driver may have. Returns 0, or an error: there is none.
#[no_mangle]
extern "C" fn osenv_pci_config_init() -> c_int {
    let claimed = ask(|set| {
        if set.functions.is_empty() {
            let (function, _, _) = set.devices.function(0)?;
            set.devices.claim(function)?;
            set.functions.push(function);
        }
        Ok(())
    });
    claimed.map_or(-1, |()| 0)
}

/// A.7.1.2: reads the word at this offset, a multiple of 4. Returns 0, or an error: there is no such offset.
#[no_mangle]
extern "C" fn osenv_pci_config_read(
    bus: u8,
    device: u8,
    of: u8,
    port: u8,
    data: *mut c_uint,
) -> c_int {
    let function = function(bus, device, of);
    let word = ask(|set| match set.functions.contains(&function) {
        true => set.devices.config_read(function, port.into(), 4),
        false => Ok(u32::MAX.into()),
    });
    // SAFETY: the caller's, to be written.
    unsafe { data.write(word.map_or(u32::MAX, |word| word as u32)) };
    if word.is_ok() {
        0
    } else {
        -1
    }
}

/// A.7.1.3: writes the word at this offset. A driver that has reset its function may set the bit of the command
/// register by which the function reaches memory. Other writes to what the device server controls have no effect, and
/// return an error.
#[no_mangle]
extern "C" fn osenv_pci_config_write(bus: u8, device: u8, of: u8, port: u8, data: c_uint) -> c_int {
    let function = function(bus, device, of);
    let written = ask(|set| {
        if !set.functions.contains(&function) {
            return Err(Error::Denied);
        }
        if port == COMMAND && data & MASTER != 0 {
            return set.devices.reaches_memory(function);
        }
        set.devices
            .config_write(function, port.into(), 4, data.into())
    });
    written.map_or(-1, |()| 0)
}
