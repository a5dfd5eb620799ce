//! The configuration of a function, of which so much is read and no more.
//!
//! `virtio-drivers` follows the list of a device's capabilities wherever it leads. One that goes in a circle, or leads on
//! and on because the device says something else each time, would keep the driver there for ever, above all programs, and
//! nobody starts a driver anew that does not end. So what is read after so many words is zero, which ends any list.

use core::sync::atomic::{AtomicU32, Ordering};
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

/// Words that are read of a configuration while a transport is made. There is room for 48 capabilities, each of which is
/// read by up to five; base addresses are some 20 more.
const MOST: u32 = 512;

/// A configuration, of which [`MOST`] words are read, and zeros behind them.
pub(crate) struct Bounded<C> {
    inner: C,
    /// Words that may still be read.
    left: AtomicU32,
}

impl<C> Bounded<C> {
    /// This one.
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

    // SAFETY: a transport is made, and not used: nothing is read or written.
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

    /// A disk of virtio's, whose capabilities are what `word` says: of the n-th read, and the offset.
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
                // It has a list, and decodes nothing.
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

    /// Whether there is a transport by these capabilities, and how many words were read.
    fn made(word: impl Fn(u32, u8) -> u32) -> (bool, u32) {
        let fake = Fake {
            word,
            reads: AtomicU32::new(0),
        };
        let mut root = PciRoot::new(Bounded::new(&fake));
        let transport = PciTransport::new::<Registers, _>(&mut root, PLACE);
        let is_made = transport.is_ok();
        // It would reset a device when it goes.
        core::mem::forget(transport);
        (is_made, fake.reads.load(Ordering::Relaxed))
    }

    /// The header of a capability of virtio's, and the one behind it.
    const fn header(kind: u32, next: u32) -> u32 {
        kind << 24 | 20 << 16 | next << 8 | 9
    }

    #[test]
    fn a_list_of_capabilities_ends() {
        // To itself, and from one to another and back.
        for kind in [1, 5, 200] {
            let (is_made, reads) = made(|_, _| header(kind, 0x40));
            assert!(!is_made && reads <= MOST, "{kind}: {reads}");
        }
        let (is_made, reads) = made(|_, offset| header(2, u32::from(offset) ^ 0x54));
        assert!(!is_made && reads <= MOST, "{reads}");
        // One that says something else each time: all is there sometimes, and the list leads on.
        let (_, reads) = made(|read, _| header(read % 6, 0x40 + 4 * (read * 7 % 40)));
        assert!(reads <= MOST, "{reads}");
        // Another capability, as long as it is looked at, and then one that is right.
        let (is_made, _) = made(|read, _| match read < 2 * MOST {
            true => 0x4005,
            false => header(1, 0),
        });
        assert!(!is_made);
    }

    #[test]
    fn the_longest_list_is_read() {
        // 40 capabilities of one word, which are not virtio's, and four of 20 bytes behind them.
        let (is_made, reads) = made(|_, offset| match offset {
            0x40..0xa0 if offset < 0x9c => (u32::from(offset) + 4) << 8 | 5,
            0x9c => 0xa0 << 8 | 5,
            0xa0 => header(1, 0xb4),
            0xb4 => header(2, 0xc8),
            0xc8 => header(3, 0xdc),
            0xdc => header(4, 0),
            // The length of what it describes.
            0xac | 0xc0 | 0xd4 | 0xe8 => 0x100,
            _ => 0,
        });
        assert!(is_made, "after {reads} words");
        assert!(reads < MOST);
    }
}
