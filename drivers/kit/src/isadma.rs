//! ISA DMA. The device server programs the controller: a driver names a part of its own memory, and has none of the
//! controller's ports.
use crate::set::ask;
use core::ffi::c_int;
use interface::Error;
use services::device::Way;

/// `OSENV_ISADMA_TO_MEMORY`: from the device to memory, instead of from memory to the device.
const TO_MEMORY: c_int = 1;
/// `OSENV_ISADMA_AGAIN`: the transfer starts again at the beginning when it reaches the end.
const AGAIN: c_int = 2;

fn number(channel: c_int) -> u64 {
    // A negative number is no channel, and the device server refuses it.
    u64::try_from(channel).unwrap_or(u64::MAX)
}

/// Returns 0, or an error after writing the reason to the log.
fn told(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            crate::set::complain(error);
            -1
        }
    }
}

/// A.7.2.1: makes a channel this driver's; it transfers nothing yet. Returns 0, or an error: there is no such
/// channel, or another driver has it.
#[no_mangle]
extern "C" fn osenv_isadma_alloc(channel: c_int) -> c_int {
    told(ask(|set| set.devices.claim_channel(number(channel))))
}

/// A.7.2.2: stops a channel and gives it back.
#[no_mangle]
extern "C" fn osenv_isadma_free(channel: c_int) {
    told(ask(|set| set.devices.release_channel(number(channel))));
}

/// Has the channel move so many bytes between its device and a part of this driver's memory, whenever the device
/// requests some. Returns 0, or an error: the channel or the memory is not this driver's, or no channel can do it.
/// Not in the appendix, where drivers have the controller's ports.
#[no_mangle]
extern "C" fn osenv_isadma_start(
    channel: c_int,
    physical: u64,
    size: usize,
    flags: c_int,
) -> c_int {
    let way = match flags & TO_MEMORY {
        0 => Way::ToDevice,
        _ => Way::ToMemory,
    };
    let (size, again) = (size as u64, flags & AGAIN != 0);
    told(ask(|set| {
        set.devices
            .start_channel(number(channel), physical, size, way, again)
    }))
}

/// Stops the channel. Not in the appendix.
#[no_mangle]
extern "C" fn osenv_isadma_stop(channel: c_int) {
    told(ask(|set| set.devices.stop_channel(number(channel))));
}

/// The bytes that the channel has still to move, in this round if it repeats; 0 if it was not started. Not in the
/// appendix.
#[no_mangle]
extern "C" fn osenv_isadma_left(channel: c_int) -> usize {
    ask(|set| set.devices.left(number(channel))).unwrap_or(0) as usize
}
