//! I/O ports: those behind a base address of the driver's functions, and those of its line in the manifest.
use crate::set::{ask, Set};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::Error;
use rt::start::space;
use services::device::{Function, Place};

/// Most ranges of ports that a driver can have.
const MOST: usize = 16;
/// The number of I/O ports of the machine.
const PORTS: u64 = 1 << 16;

/// The ranges that were granted.
static GRANTED: Ranges = Ranges::new();

/// The range that contained the ports that were looked up last, or 0. Glue asks before every access, and reads this
/// first (`osenv_io_granted` in `include/osenv.h`).
#[export_name = "osenv_io_last"]
static LAST: AtomicU64 = AtomicU64::new(0);

/// Ranges of ports: in the lower half the first port, in the upper half the port behind the last; 0 for none.
struct Ranges([AtomicU64; MOST]);

impl Ranges {
    const fn new() -> Self {
        Ranges([const { AtomicU64::new(0) }; MOST])
    }

    /// Whether all of these ports lie in one range. If so, that range is noted in `last`.
    fn have(&self, first: u64, count: u64, last: &AtomicU64) -> bool {
        let end = first.saturating_add(count);
        for range in &self.0 {
            let word = range.load(Ordering::SeqCst);
            if word & 0xffff_ffff <= first && end <= word >> 32 {
                last.store(word, Ordering::SeqCst);
                // If another thread has given the range back in between, it cleared `last` before the store above.
                if range.load(Ordering::SeqCst) != word {
                    last.store(0, Ordering::SeqCst);
                }
                return true;
            }
        }
        false
    }

    /// Stores a range in the empty place `free`.
    fn keep(free: &AtomicU64, start: u64, end: u64) {
        free.store(start | end << 32, Ordering::SeqCst);
    }

    /// Removes the ranges that are exactly this one, if `revoke` succeeds.
    fn give_back(
        &self,
        first: u64,
        count: u64,
        last: &AtomicU64,
        mut revoke: impl FnMut() -> bool,
    ) {
        let word = first | (first + count) << 32;
        for range in &self.0 {
            if range.load(Ordering::SeqCst) == word && revoke() {
                range.store(0, Ordering::SeqCst);
                last.store(0, Ordering::SeqCst);
            }
        }
    }
}

fn granted(first: u64, count: u64) -> bool {
    GRANTED.have(first, count, &LAST)
}

/// The base address of a function whose ports include these.
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
    let mut ranges = GRANTED.0.iter();
    let free = ranges.find(|range| range.load(Ordering::Relaxed) == 0);
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
    Ranges::keep(free, start, end);
    Ok(())
}

/// A.4.1: whether the driver can have the ports. Section 4.7.1 says that asking for them is how to find out.
#[no_mangle]
extern "C" fn osenv_io_avail(port: u64, size: usize) -> c_int {
    alloc(port, size as u64).is_ok().into()
}

/// A.4.2: gets the ports for this driver: all those of a base address, if they are among them. Returns 0, or an
/// error: they belong to another program.
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

/// A.4.3: gives ports back, in the same range in which they were allocated. Ports of a base address stay until the
/// function goes.
#[no_mangle]
extern "C" fn osenv_io_free(port: u64, size: usize) {
    GRANTED.give_back(port, size as u64, &LAST, || {
        ask(|set| set.devices.revoke_ports(port, size as u64)).is_ok()
    });
}

/// Whether this program may use the ports, for `osenv_io_granted`, which is not in the appendix. Glue asks before
/// each access, so that it can name the driver's function that touches a port which was not granted; the processor
/// refuses the access as well.
#[no_mangle]
extern "C" fn osenv_io_look(port: u64, size: usize) -> c_int {
    granted(port, size as u64).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the header.
    fn is_last(last: &AtomicU64, port: u64, size: u64) -> bool {
        let last = last.load(Ordering::Relaxed);
        last & 0xffff_ffff <= port && port + size <= last >> 32
    }

    #[test]
    fn what_is_given_back_is_not_the_last_range_any_more() {
        let (ranges, last) = (Ranges::new(), AtomicU64::new(0));
        assert!(!ranges.have(0, 1, &last) && !is_last(&last, 0, 1));
        Ranges::keep(&ranges.0[0], 0x300, 0x320);
        Ranges::keep(&ranges.0[1], 0xc000, 0xc040);
        assert!(!is_last(&last, 0x300, 1), "nobody has looked");
        for (port, size, may) in [
            (0x300, 1, true),
            (0x31c, 4, true),
            (0x31d, 4, false),
            (0x2ff, 1, false),
            (0x2ff, 2, false),
            (0x320, 1, false),
            (0xc03f, 1, true),
            (0xc03f, 2, false),
            (0xfffe, 4, false),
        ] {
            assert_eq!(ranges.have(port, size, &last), may, "{port:#x} {size}");
            assert_eq!(is_last(&last, port, size), may, "{port:#x} {size}");
        }
        // A range that was not allocated in this way, or at all, or that cannot be revoked: all ranges stay.
        ranges.give_back(0xc000, 0x20, &last, || panic!("it was not had so"));
        ranges.give_back(0x3f8, 8, &last, || panic!("it was not had"));
        ranges.give_back(0xc000, 0x40, &last, || false);
        assert!(is_last(&last, 0xc000, 4) && ranges.have(0xc000, 4, &last));
        ranges.give_back(0xc000, 0x40, &last, || true);
        assert!(
            !is_last(&last, 0xc000, 4),
            "what was given back is the last range still"
        );
        assert!(!ranges.have(0xc000, 4, &last));
        assert!(ranges.have(0x300, 4, &last) && is_last(&last, 0x310, 2));
    }
}
