//! The configuration of a function, with a limit on how much of it is read.
//!
//! `virtio-drivers` follows a device's list of capabilities wherever it leads. A list that is a circle, or that goes
//! on and on because the device answers differently each time, would keep the driver there for ever, above all
//! programs; and a driver that does not end is not restarted. So after a number of words all reads return zero, which
//! ends any list.

use core::sync::atomic::{AtomicU32, Ordering};
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

/// Words that are read of a configuration while a transport is made. There is room for 48 capabilities, each of which
/// takes up to five reads; base addresses take some 20 more.
const MOST: u32 = 512;

/// A configuration of which [`MOST`] words can be read; later reads return zero.
pub(crate) struct Bounded<C> {
    inner: C,
    /// Words that may still be read.
    left: AtomicU32,
}

impl<C> Bounded<C> {
    /// Limits reads of `inner`.
    pub(crate) const fn new(inner: C) -> Self {
        Bounded {
            inner,
            left: AtomicU32::new(MOST),
        }
    }
}

impl<C: ConfigurationAccess> ConfigurationAccess for Bounded<C> {
    fn read_word(&self, place: DeviceFunction, offset: u8) -> u32 {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return 0;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        self.inner.read_word(place, offset)
    }

    fn write_word(&mut self, place: DeviceFunction, offset: u8, value: u32) {
        self.inner.write_word(place, offset, value);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Bounded {
            // SAFETY: as the caller's.
            inner: unsafe { self.inner.unsafe_clone() },
            left: AtomicU32::new(self.left.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounded, MOST};
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicU32, Ordering};
    use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
    use virtio_drivers::transport::pci::PciTransport;
    use virtio_drivers::{BufferDirection, Hal, PhysAddr};

    const PLACE: DeviceFunction = DeviceFunction {
        bus: 0,
        device: 2,
        function: 0,
    };

    /// Registers, all of them on one page.
    struct Registers;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    static PAGE: Page = Page([0; 4096]);

    // SAFETY: the transport is made but not used: nothing is read or written.
    unsafe impl Hal for Registers {
        fn dma_alloc(_: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
            (0, NonNull::dangling())
        }
        unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
            0
        }
        unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
            NonNull::from(&PAGE.0).cast()
        }
        unsafe fn share(_: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
            0
        }
        unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
    }

    /// A virtio disk whose capabilities `word` returns, given the number of the read and the offset.
    struct Fake<F> {
        word: F,
        reads: AtomicU32,
    }

    impl<F: Fn(u32, u8) -> u32> ConfigurationAccess for &Fake<F> {
        fn read_word(&self, _: DeviceFunction, offset: u8) -> u32 {
            let read = self.reads.fetch_add(1, Ordering::Relaxed);
            let rule = "S3: a device's list ends, or its driver never does";
            assert!(read < 10 * MOST, "{rule}");
            match offset {
                0 => 0x1042_1af4,
                // A list of capabilities, and no decoding.
                4 => 1 << 20,
                // Memory of 4 KB, in 32 bits.
                0x10..=0x24 => 0xffff_f000,
                0x34 => 0x40,
                offset => (self.word)(read, offset),
            }
        }
        fn write_word(&mut self, _: DeviceFunction, _: u8, _: u32) {}
        unsafe fn unsafe_clone(&self) -> Self {
            self
        }
    }

    /// Makes a transport from these capabilities. Returns whether that succeeded, and how many words were read.
    fn made(word: impl Fn(u32, u8) -> u32) -> (bool, u32) {
        let fake = Fake {
            word,
            reads: AtomicU32::new(0),
        };
        let mut root = PciRoot::new(Bounded::new(&fake));
        let transport = PciTransport::new::<Registers, _>(&mut root, PLACE);
        let is_made = transport.is_ok();
        // Its drop would reset a device.
        core::mem::forget(transport);
        (is_made, fake.reads.load(Ordering::Relaxed))
    }

    /// The header of a virtio capability; `next` is the offset of the next one.
    const fn header(kind: u32, next: u32) -> u32 {
        kind << 24 | 20 << 16 | next << 8 | 9
    }

    #[test]
    fn a_list_of_capabilities_ends() {
        // A capability that leads to itself, and two that lead to each other.
        for kind in [1, 5, 200] {
            let (is_made, reads) = made(|_, _| header(kind, 0x40));
            assert!(!is_made && reads <= MOST, "{kind}: {reads}");
        }
        let (is_made, reads) = made(|_, offset| header(2, u32::from(offset) ^ 0x54));
        assert!(!is_made && reads <= MOST, "{reads}");
        // A device that answers differently each time: all capabilities are there sometimes, and the list goes on.
        let (_, reads) = made(|read, _| header(read % 6, 0x40 + 4 * (read * 7 % 40)));
        assert!(reads <= MOST, "{reads}");
        // Another capability for as long as the driver would read, and then the right one.
        let (is_made, _) = made(|read, _| match read < 2 * MOST {
            true => 0x4005,
            false => header(1, 0),
        });
        assert!(!is_made);
    }

    #[test]
    fn the_longest_list_is_read() {
        // 40 capabilities of one word that are not virtio's, and four of 20 bytes behind them.
        let (is_made, reads) = made(|_, offset| match offset {
            0x40..0xa0 if offset < 0x9c => (u32::from(offset) + 4) << 8 | 5,
            0x9c => 0xa0 << 8 | 5,
            0xa0 => header(1, 0xb4),
            0xb4 => header(2, 0xc8),
            0xc8 => header(3, 0xdc),
            0xdc => header(4, 0),
            // The length of the area that the capability describes.
            0xac | 0xc0 | 0xd4 | 0xe8 => 0x100,
            _ => 0,
        });
        assert!(is_made, "after {reads} words");
        assert!(reads < MOST);
    }
}
