//! I/O ports: those behind a base address of the driver's functions, and those of its line in the manifest.
use crate::set::{ask, Set};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::Error;
use rt::start::space;
use services::device::{Function, Place};

/// Most ranges of a driver.
const MOST: usize = 16;
/// I/O ports that there are.
const PORTS: u64 = 1 << 16;

/// What was granted: the first port, and the one behind the last in the upper half; 0 for nothing. Looked at before every access.
static GRANTED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

fn granted(first: u64, count: u64) -> bool {
    let end = first.saturating_add(count);
    GRANTED.iter().any(|range| {
        let range = range.load(Ordering::Relaxed);
        range & 0xffff_ffff <= first && end <= range >> 32
    })
}

/// The base address that leads to these ports, among others.
fn base(set: &mut Set, first: u64, count: u64) -> Option<(Function, u64, u64, u64)> {
    for &function in &set.functions {
        for index in 0..6 {
            let (place, start, size) = set.devices.base(function, index).ok()?;
            if place == Place::Ports && start <= first && first + count <= start + size {
                return Some((function, index, start, size));
            }
        }
    }
    None
}

fn alloc(first: u64, count: u64) -> Result<(), Error> {
    if count == 0 || first.checked_add(count).is_none_or(|end| end > PORTS) {
        return Err(Error::Invalid);
    }
    if granted(first, count) {
        return Ok(());
    }
    let free = GRANTED
        .iter()
        .find(|range| range.load(Ordering::Relaxed) == 0);
    let free = free.ok_or(Error::Limit)?;
    let (start, end) = ask(|set| match base(set, first, count) {
        Some((function, index, start, size)) => {
            set.devices.grant_base(function, index, &space())?;
            Ok((start, start + size))
        }
        None => {
            set.devices.grant_ports(first, count, &space())?;
            Ok((first, first + count))
        }
    })?;
    free.store(start | end << 32, Ordering::Release);
    Ok(())
}

/// A.4.1: whether the ports can be had. As section 4.7.1 says, that is found out by having them.
#[no_mangle]
extern "C" fn osenv_io_avail(port: u64, size: usize) -> c_int {
    alloc(port, size as u64).is_ok().into()
}

/// A.4.2: has the ports: those of a whole base address, if they are among them. 0, or an error: they are somebody else's.
#[no_mangle]
extern "C" fn osenv_io_alloc(port: u64, size: usize) -> c_int {
    match alloc(port, size as u64) {
        Ok(()) => 0,
        Err(error) => {
            crate::set::complain(error);
            -1
        }
    }
}

/// A.4.3: gives ports back, a range as it was had. Those of a base address stay until the function goes.
#[no_mangle]
extern "C" fn osenv_io_free(port: u64, size: usize) {
    let word = port | (port + size as u64) << 32;
    for range in &GRANTED {
        if range.load(Ordering::Relaxed) == word
            && ask(|set| set.devices.revoke_ports(port, size as u64)).is_ok()
        {
            range.store(0, Ordering::Release);
        }
    }
}

/// Whether this program may use the ports. Not in the appendix: glue asks before each access, so that it can name who touches what
/// was not granted; the processor refuses that as well.
#[no_mangle]
extern "C" fn osenv_io_granted(port: u64, size: usize) -> c_int {
    granted(port, size as u64).into()
}
