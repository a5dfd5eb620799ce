//! ISA DMA. The device server programs the controller: a driver names a part of its own memory, and has no port of it.
use crate::set::ask;
use core::ffi::c_int;
use interface::Error;
use services::device::Way;

/// `OSENV_ISADMA_TO_MEMORY`: from the device into memory, and not from memory to the device.
const TO_MEMORY: c_int = 1;
/// `OSENV_ISADMA_AGAIN`: round and round.
const AGAIN: c_int = 2;

fn number(channel: c_int) -> u64 {
    // What is less than 0 is no channel, and the device server says so.
    u64::try_from(channel).unwrap_or(u64::MAX)
}

/// 0, or an error and a sentence for people.
fn told(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            crate::set::complain(error);
            -1
        }
    }
}

/// A.7.2.1: makes a channel this driver's, which moves nothing yet. 0, or an error: there is none, or it is somebody else's.
#[no_mangle]
extern "C" fn osenv_isadma_alloc(channel: c_int) -> c_int {
    told(ask(|set| set.devices.claim_channel(number(channel))))
}

/// A.7.2.2: gives a channel back, which moves nothing any more.
#[no_mangle]
extern "C" fn osenv_isadma_free(channel: c_int) {
    told(ask(|set| set.devices.release_channel(number(channel))));
}

/// Has the channel move so many bytes between its device and a part of this driver's memory, whenever the device asks
/// for some. 0, or an error: the channel or the memory is not this driver's, or no channel can do it. Not in the
/// appendix, by which drivers have the controller's ports.
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

/// The channel moves nothing any more. Not in the appendix.
#[no_mangle]
extern "C" fn osenv_isadma_stop(channel: c_int) {
    told(ask(|set| set.devices.stop_channel(number(channel))));
}

/// Bytes that are left of what the channel moves, or of this round; 0 if it was not started. Not in the appendix.
#[no_mangle]
extern "C" fn osenv_isadma_left(channel: c_int) -> usize {
    ask(|set| set.devices.left(number(channel))).unwrap_or(0) as usize
}
