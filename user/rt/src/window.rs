//! Windows: regions of others, mapped into the program's own space.
use crate::guard::{self, Gone};
use crate::obj::{Mapping, RefAt, ThreadAt};
use crate::sync::Mutex;
use crate::{thread, time};
use abi::state::{MappingState, ThreadState};
use abi::{collocated, Code, Exception, PAGE_SIZE};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use proto::layout::{COLLOCATED_WINDOWS, WINDOWS};
use proto::Error;

/// Which addresses for windows are free: start to size. The pure part, tested on the host.
#[derive(Debug)]
pub struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Nothing free.
    #[must_use]
    pub const fn new() -> Self {
        Ranges {
            free: BTreeMap::new(),
        }
    }

    /// Takes the lowest range of this size, aligned to `align` (a power of two).
    pub fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let (start, length, at) = self.free.iter().find_map(|(&start, &length)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(size)?;
            (end <= start + length).then_some((start, length, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + size < start + length {
            self.free.insert(at + size, start + length - at - size);
        }
        Some(at)
    }

    /// Gives a range back.
    pub fn give(&mut self, mut start: u64, mut size: u64) {
        if let Some((&before, &length)) = self.free.range(..start).next_back() {
            if before + length == start {
                self.free.remove(&before);
                start = before;
                size += length;
            }
        }
        if let Some(length) = self.free.remove(&(start + size)) {
            size += length;
        }
        self.free.insert(start, size);
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Ranges::new()
    }
}

static RANGES: Mutex<Option<Ranges>> = Mutex::new(None);

/// Takes free addresses of the program's own space, for mappings that the caller makes.
#[must_use]
pub fn take_addresses(size: u64, align: u64) -> Option<u64> {
    let mut ranges = RANGES.lock();
    let ranges = ranges.get_or_insert_with(|| {
        let mut ranges = Ranges::new();
        let (start, end) = match base::place::start() {
            0 => (WINDOWS, collocated::START),
            base => (
                base + COLLOCATED_WINDOWS,
                // Without the last page of the address space.
                base + collocated::SIZE - PAGE_SIZE,
            ),
        };
        ranges.give(start, end - start);
        ranges
    });
    ranges.take(size, align)
}

/// Gives addresses back.
pub fn give_addresses(start: u64, size: u64) {
    if let Some(ranges) = RANGES.lock().as_mut() {
        ranges.give(start, size);
    }
}

/// A part of a region, mapped into the program's own space until this is dropped.
#[derive(Debug)]
pub struct Window {
    /// Dropped by hand, before the addresses are given back.
    mapping: Option<Mapping>,
    address: u64,
    size: u64,
}

impl Window {
    /// Maps `size` bytes of the region from `offset` on, both multiples of the page size.
    pub fn map(region: &RefAt, offset: u64, size: u64, rights: u64) -> Result<Self, Error> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Error::Invalid);
        }
        let mapping = Mapping::new().map_err(crate::error_of)?;
        // Large windows are aligned to large boundaries, which keeps page tables apart.
        let align = if size >= 1 << 30 { 1 << 30 } else { PAGE_SIZE };
        let address = take_addresses(size, align).ok_or(Error::NoMemory)?;
        let window = Window {
            mapping: Some(mapping),
            address,
            size,
        };
        let state = MappingState {
            start: address,
            size,
            offset,
            protection: rights,
        };
        if let Some(mapping) = &window.mapping {
            mapping
                .set_state(&state, region.0, 0)
                .map_err(crate::error_of)?;
        }
        Ok(window)
    }

    /// First address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Reads from the window. A range beyond its end is [`Error::Invalid`]. The memory may change at any time, and may
    /// be missing, in which case this waits for its keeper; if others have taken it away, or the keeper refuses, the
    /// error is [`Error::Ended`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.check(offset, to.len())?;
        let place = to.as_mut_ptr() as u64;
        // SAFETY: within the window, which is no Rust object's memory; `to` is ours.
        unsafe { guard::copy(self.address + offset, place, to.len()) }.map_err(ended)
    }

    /// As [`Window::read`], for memory whose keeper is untrusted and may not answer: waits at most `ns` nanoseconds,
    /// and then fails with [`Error::WouldBlock`]. A thread of its own reads; when the read is given up, that thread
    /// continues behind its guarded access.
    pub fn read_within(&self, offset: u64, length: usize, ns: u64) -> Result<Vec<u8>, Error> {
        self.check(offset, length)?;
        let from = self.address + offset;
        let came = Arc::new(Mutex::new(None));
        let place = Arc::clone(&came);
        let read = move || {
            let mut bytes = alloc::vec![0; length];
            // SAFETY: within the window, which is no Rust object's memory, and which stays until the read is over; the
            // bytes are ours.
            let copied = unsafe { guard::copy(from, bytes.as_mut_ptr() as u64, length) };
            *place.lock() = Some(copied.map(|()| bytes));
        };
        let reader = thread::spawn(read).map_err(crate::error_of)?;
        let end = time::now().saturating_add(ns);
        let mut given_up = false;
        loop {
            time::sleep(A_MOMENT);
            match came.lock().take() {
                Some(Err(Gone)) if given_up => return Err(Error::WouldBlock),
                Some(result) => return result.map_err(ended),
                None => {}
            }
            // Repeated, since the thread may not have begun its access the time before.
            if time::now() >= end {
                given_up = true;
                let _ = reader.with(give_up);
            }
        }
    }

    /// The CRC-32C of a range, in whole pages, of memory that others cannot take away.
    pub fn crc32c(&self, offset: u64, length: u64) -> Result<u32, Error> {
        self.bytes(offset, length).map(crate::sum::crc32c)
    }

    /// A range, to be sent in a message or checksummed: both read it once and do not rely on its contents. For memory
    /// that others cannot take away, since the access is not guarded.
    pub(crate) fn bytes(&self, offset: u64, length: u64) -> Result<&[u8], Error> {
        self.check(offset, length as usize)?;
        // SAFETY: within the window, which is no Rust object's memory and is mapped while this is borrowed. Others may
        // change it meanwhile; the callers read it by `crc32` instructions or pass its address to the kernel.
        Ok(unsafe {
            core::slice::from_raw_parts((self.address + offset) as *const u8, length as usize)
        })
    }

    /// Writes into the window; as [`Window::read`]. If the memory goes away half-way, the bytes before stay written.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.check(offset, from.len())?;
        let place = from.as_ptr() as u64;
        // SAFETY: as for `read`.
        unsafe { guard::copy(place, self.address + offset, from.len()) }.map_err(ended)
    }

    /// Replaces the word at this offset, a multiple of four, by `new` if it is `old`, in one step, and returns the
    /// previous word; errors as of [`Window::read`].
    pub fn exchange(&self, offset: u64, old: u32, new: u32) -> Result<u32, Error> {
        self.check(offset, 4)?;
        if !offset.is_multiple_of(4) {
            return Err(Error::Invalid);
        }
        // SAFETY: within the window, and only ever used as bytes or as this.
        unsafe { guard::exchange(self.address + offset, old, new) }.map_err(ended)
    }

    /// Whether a range, in whole words, is all zero; errors as of [`Window::read`].
    pub fn is_zero(&self, offset: u64, length: u64) -> Result<bool, Error> {
        self.check(offset, length as usize)?;
        if !offset.is_multiple_of(8) || !length.is_multiple_of(8) {
            return Err(Error::Invalid);
        }
        guard::are_zero(self.address + offset, length as usize / 8).map_err(ended)
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), Error> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::Invalid),
        }
    }
}

/// The interval at which `read_within` checks whether its thread has finished, in nanoseconds.
const A_MOMENT: u64 = 50_000;

/// Makes a thread that is in a guarded access continue as if the access had failed, whatever it waits for.
fn give_up(thread: ThreadAt) -> Result<(), Code> {
    thread.stop()?;
    let given_up = thread.get_state(0, 0, 0).and_then(|state| {
        match guard::goes_on(Exception::Memory as u64, &state.registers) {
            // Without the connection to the keeper that was asked for the page.
            Some(registers) => thread.set_state(
                &ThreadState {
                    registers,
                    client_stage: 0,
                    ..state
                },
                0,
                0,
                0,
            ),
            None => Ok(()),
        }
    });
    thread.resume()?;
    given_up
}

/// The error for memory that others have taken away.
fn ended(_: Gone) -> Error {
    Error::Ended
}

impl Drop for Window {
    fn drop(&mut self) {
        self.mapping = None;
        give_addresses(self.address, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ranges, Window};
    use proto::Error;

    /// Memory behind a window is another's, or unused.
    #[test]
    fn an_access_stays_within_its_window() {
        let window = Window {
            mapping: None,
            address: 0x1000,
            size: 0x2000,
        };
        for (offset, length) in [(0, 0x2000), (0x1fff, 1), (0x2000, 0)] {
            let within = window.check(offset, length);
            assert_eq!(within, Ok(()), "within a window: {offset:#x} {length}");
        }
        for (offset, length) in [(0, 0x2001), (0x2000, 1), (u64::MAX, 1), (u64::MAX - 7, 16)] {
            let behind = window.check(offset, length);
            let what = "behind a window";
            assert_eq!(behind, Err(Error::Invalid), "{what}: {offset:#x} {length}");
        }
    }

    /// When all ranges have been given back, in any order, they are one range again.
    #[test]
    fn what_is_given_back_is_whole() {
        for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2]] {
            let mut ranges = Ranges::new();
            ranges.give(0x1000, 0x3000);
            let taken = [0; 3].map(|_| ranges.take(0x1000, 0x1000).expect("a page"));
            for n in order {
                ranges.give(taken[n], 0x1000);
            }
            let all = ranges.take(0x3000, 0x1000);
            assert_eq!(all, Some(0x1000), "addresses are lost: {order:?}");
        }
    }

    #[test]
    fn ranges_split_align_and_join() {
        let mut ranges = Ranges::new();
        ranges.give(0x1000, 0xf000);
        assert_eq!(ranges.take(0x1000, 0x4000), Some(0x4000));
        assert_eq!(ranges.take(0x3000, 0x1000), Some(0x1000));
        assert_eq!(ranges.take(0xc000, 0x1000), None);
        ranges.give(0x4000, 0x1000);
        ranges.give(0x1000, 0x3000);
        assert_eq!(ranges.take(0xf000, 0x1000), Some(0x1000));
        assert_eq!(ranges.take(0x1000, 0x1000), None);
    }
}
