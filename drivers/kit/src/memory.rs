//! Memory. All blocks that a driver allocates are in one arena that devices reach: contiguous, never paged out, with
//! one distance between virtual and physical addresses. Allocation disables interrupts (section 4.6).
use crate::buddy::Buddy;
use crate::set::{ask, outside};
use abi::access::{READ, WRITE};
use abi::PAGE_SIZE;
use core::ffi::{c_int, c_uint, c_void};
use interface::Error;
use rt::sync::Mutex;
use rt::window::Window;
use services::device::Place;

/// The caller need not pass `size` when it frees the block. (This allocator never reads it.)
pub const AUTO_SIZE: c_uint = 1;
/// Never paged out; this holds for all memory.
pub const PHYS_WIRED: c_uint = 2;
/// At its physical address; such memory is never available.
pub const VIRT_EQ_PHYS: c_uint = 4;
/// Contiguous for devices; this holds for all memory.
pub const PHYS_CONTIG: c_uint = 8;
/// Do not wait for memory; this allocator never waits.
pub const NONBLOCKING: c_uint = 16;
/// Where the controller of ISA DMA reaches: below 16 MB, within 64 KB.
pub const ISADMA_MEM: c_uint = 32;

/// The end of the memory that a controller of ISA DMA reaches, and the boundary that a transfer must not cross.
const ISA_END: u64 = 16 << 20;
const ISA_BOUNDARY: usize = 64 << 10;

struct Arena {
    /// Keeps the arena mapped.
    _window: Option<Window>,
    /// Its first address, and its size in bytes.
    address: u64,
    size: u64,
    physical: u64,
    buddy: Buddy,
}

static ARENA: Mutex<Option<Arena>> = Mutex::new(None);

/// Makes the arena.
fn begin() -> Result<Arena, Error> {
    ask(|set| {
        let mut size = set.arena;
        let (physical, region) = loop {
            match set.devices.dma(size, ISA_BOUNDARY as u64, set.reach) {
                Err(Error::NoMemory | Error::Limit) if size > set.arena / 8 => size /= 2,
                got => break got?,
            }
        };
        let window = Window::map(&region, 0, size, READ | WRITE)?;
        Ok(Arena {
            address: window.address(),
            _window: Some(window),
            size,
            physical,
            buddy: Buddy::new(size as usize),
        })
    })
}

/// Does something with the arena.
fn with<T>(f: impl FnOnce(&mut Arena) -> Option<T>) -> Option<T> {
    outside(|| {
        let mut arena = ARENA.lock();
        if arena.is_none() {
            match begin() {
                Ok(made) => *arena = Some(made),
                Err(error) => crate::log::panic(error.text()),
            }
        }
        f(arena.as_mut()?)
    })
}

/// A.3.1: allocates a block. Null: there is no memory of this kind.
#[no_mangle]
extern "C" fn osenv_mem_alloc(size: usize, flags: c_uint, align: c_uint) -> *mut c_void {
    let isa = flags & ISADMA_MEM != 0;
    // A block of a power of two crosses no boundary of its size, since the arena begins at one.
    if flags & VIRT_EQ_PHYS != 0 || (isa && size > ISA_BOUNDARY) {
        return core::ptr::null_mut();
    }
    let align = if isa {
        size.next_power_of_two()
    } else {
        align as usize
    };
    let found = with(|arena| {
        if isa && arena.physical + arena.size > ISA_END {
            return None;
        }
        let offset = arena.buddy.take(size, align)?;
        Some(arena.address as usize + offset)
    });
    found.unwrap_or(0) as *mut c_void
}

/// A.3.2: frees a block. Ends the program if this is no block.
#[no_mangle]
extern "C" fn osenv_mem_free(block: *mut c_void, _flags: c_uint, _size: usize) {
    let freed = with(|arena| {
        let offset = (block as usize).checked_sub(arena.address as usize)?;
        arena.buddy.give(offset).then_some(())
    });
    if freed.is_none() {
        crate::log::panic("it frees memory that is not allocated");
    }
}

/// The size in bytes of the block that was allocated at this address; 0 if none was. Not in the appendix.
#[no_mangle]
extern "C" fn osenv_mem_size(block: *const c_void) -> usize {
    let size = with(|arena| {
        let offset = (block as usize).checked_sub(arena.address as usize)?;
        arena.buddy.size(offset)
    });
    size.unwrap_or(0)
}

/// A.3.3: maps memory of a device, uncached, in the range of a base address of this driver's functions. Returns 0, or
/// an error.
#[no_mangle]
extern "C" fn osenv_mem_map_phys(
    physical: u64,
    size: usize,
    address: *mut *mut c_void,
    _flags: c_int,
) -> c_int {
    let mapped = ask(|set| {
        let end = physical.checked_add(size as u64).ok_or(Error::Invalid)?;
        let covers =
            |(first, window): &&(u64, Window)| *first <= physical && end <= first + window.size();
        if let Some((first, window)) = set.mapped.iter().find(covers) {
            return Ok(window.address() + (physical - first));
        }
        for &function in &set.functions {
            for index in 0..6 {
                let (place, start, length) = set.devices.base(function, index)?;
                let fits = place == Place::Memory && start <= physical && end - start <= length;
                if !fits {
                    continue;
                }
                let first = start / PAGE_SIZE * PAGE_SIZE;
                let whole = (start - first + length).next_multiple_of(PAGE_SIZE);
                let region = set.devices.map_base(function, index)?;
                let window = Window::map(&region, 0, whole, READ | WRITE)?;
                let at = window.address() + (physical - first);
                set.mapped.push((first, window));
                return Ok(at);
            }
        }
        Err(Error::Denied)
    });
    match mapped {
        Ok(at) => {
            // SAFETY: the caller's, to be written.
            unsafe { address.write(at as *mut c_void) };
            0
        }
        Err(error) => {
            crate::set::complain(error);
            -1
        }
    }
}

/// A.3.4: the physical address of an address in a block; all ones elsewhere.
#[no_mangle]
extern "C" fn osenv_mem_get_phys(address: usize) -> u64 {
    let found = with(|arena| {
        let offset = (address as u64).checked_sub(arena.address)?;
        (offset < arena.size).then(|| arena.physical + offset)
    });
    found.unwrap_or(u64::MAX)
}

/// A.3.5: the address in a block of a physical address; 0 elsewhere.
#[no_mangle]
extern "C" fn osenv_mem_get_virt(physical: u64) -> usize {
    let found = with(|arena| {
        let offset = physical.checked_sub(arena.physical)?;
        (offset < arena.size).then(|| (arena.address + offset) as usize)
    });
    found.unwrap_or(0)
}

/// A.3.6: the end of physical memory as far as this driver is concerned: no block lies behind it.
#[no_mangle]
extern "C" fn osenv_mem_phys_max() -> u64 {
    with(|arena| Some(arena.physical + arena.size)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_arena_have_physical_addresses_and_back() {
        const ADDRESS: usize = 0x7000_0000;
        const PHYSICAL: u64 = 0x3_0000;
        const SIZE: usize = 1 << 20;
        let _alone = crate::set::ALONE.lock();
        *ARENA.lock() = Some(Arena {
            _window: None,
            address: ADDRESS as u64,
            size: SIZE as u64,
            physical: PHYSICAL,
            buddy: Buddy::new(SIZE),
        });
        let block = osenv_mem_alloc(5000, 0, 0) as usize;
        assert!((ADDRESS..ADDRESS + SIZE).contains(&block));
        for place in [block, block + 4999, ADDRESS, ADDRESS + SIZE - 1] {
            let physical = osenv_mem_get_phys(place);
            assert_eq!(physical - PHYSICAL, (place - ADDRESS) as u64);
            assert_eq!(osenv_mem_get_virt(physical), place, "the way back");
        }
        let end = PHYSICAL + SIZE as u64;
        for beside in [0, PHYSICAL - 1, end, u64::MAX] {
            assert_eq!(osenv_mem_get_virt(beside), 0, "{beside:#x} is no block's");
        }
        for beside in [0, ADDRESS - 1, ADDRESS + SIZE, usize::MAX] {
            assert_eq!(osenv_mem_get_phys(beside), u64::MAX, "{beside:#x}");
        }
        assert_eq!(osenv_mem_phys_max(), end, "no block lies behind");
        osenv_mem_free(block as *mut c_void, 0, 5000);
        *ARENA.lock() = None;
    }
}
