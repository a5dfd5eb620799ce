//! The disk below the library, and the limit of disk requests per request.
//!
//! `rsext4` owns its device. [`Tap`] is that device: a handle of the disk, of which [`check`](crate::check) has another
//! one, so that structures are read as they are on the disk before the library uses them.
//!
//! It also counts requests. So a request to the library always ends, whatever the disk contains and the checks
//! overlook: after [`MOST_REQUESTS`] requests to the disk there are only errors.

use crate::bits::Bits;
use alloc::rc::Rc;
use core::cell::RefCell;
use proto::Error;
use rsext4::{
    BlockIo, DeviceCapabilities, DeviceGeometry, Ext4Error, Ext4ErrorKind, Ext4Result, SectorId,
    WriteFlags,
};

/// Most requests to the disk for one request of a client. On valid disks most requests take some tens, and one for each
/// block of a directory without an index; cutting a file of 100,000 extents takes some 100,000.
pub const MOST_REQUESTS: u64 = 1 << 20;

struct Inner<D> {
    device: D,
    /// Requests to the disk that are left.
    left: u64,
    /// The number of writes.
    writes: u64,
    /// Sectors of a block, blocks that were written to, and whether there was no memory to record one.
    block: u64,
    written: Bits,
    incomplete: bool,
    /// A sector, and whether it was written to: once it was, there are only errors after the next flush.
    last: Option<(u64, bool)>,
    closed: bool,
}

impl<D> Inner<D> {
    fn spend(&mut self) -> Ext4Result<()> {
        if self.closed || self.left == 0 {
            return Err(Ext4Error::new(Ext4ErrorKind::Io));
        }
        self.left -= 1;
        Ok(())
    }

    fn wrote(&mut self, sector: SectorId, count: u32) {
        self.writes += 1;
        let first = sector.raw() / self.block;
        let end = sector.raw().saturating_add(u64::from(count));
        let blocks = end.div_ceil(self.block).saturating_sub(first);
        self.incomplete |= self.written.insert(first, blocks).is_err();
        if let Some((last, written)) = &mut self.last {
            let sectors = sector.raw()..sector.raw().saturating_add(u64::from(count));
            *written |= sectors.contains(last);
        }
    }
}

/// A handle of the disk.
pub struct Tap<D>(Rc<RefCell<Inner<D>>>);

impl<D> Clone for Tap<D> {
    fn clone(&self) -> Self {
        Tap(Rc::clone(&self.0))
    }
}

impl<D: BlockIo> Tap<D> {
    /// The first handle.
    pub(crate) fn new(device: D) -> Self {
        Tap(Rc::new(RefCell::new(Inner {
            device,
            left: MOST_REQUESTS,
            writes: 0,
            block: 1,
            written: Bits::default(),
            incomplete: false,
            last: None,
            closed: false,
        })))
    }

    /// Begins another request of a client.
    pub(crate) fn refill(&self) {
        self.0.borrow_mut().left = MOST_REQUESTS;
    }

    /// The number of writes: a block that was read is unchanged if the number is the same.
    pub(crate) fn writes(&self) -> u64 {
        self.0.borrow().writes
    }

    /// Sets the sectors of a block, and forgets which blocks were written to.
    pub(crate) fn count_in(&self, sectors: u64) {
        let mut inner = self.0.borrow_mut();
        inner.block = sectors.max(1);
        (inner.written, inner.incomplete) = (Bits::default(), false);
    }

    /// Forgets which blocks were written to.
    pub(crate) fn forget_written(&self) {
        let block = self.0.borrow().block;
        self.count_in(block);
    }

    /// Whether one of these blocks was written to.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if that is not known, because it could not be recorded.
    pub(crate) fn wrote(&self, block: u64, count: u64) -> Result<bool, Error> {
        let inner = self.0.borrow();
        match inner.incomplete {
            true => Err(Error::NoMemory),
            false => Ok(inner.written.any(block, count)),
        }
    }

    /// After a write to this sector and a flush, requests fail until [`reopen`](Self::reopen).
    pub(crate) fn close_after(&self, sector: u64) {
        self.0.borrow_mut().last = Some((sector, false));
    }

    /// Ends what [`close_after`](Self::close_after) began.
    pub(crate) fn reopen(&self) {
        let mut inner = self.0.borrow_mut();
        (inner.last, inner.closed) = (None, false);
    }
}

impl<D: BlockIo> BlockIo for Tap<D> {
    fn write(&mut self, buffer: &[u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.wrote(sector, count);
        inner.device.write(buffer, sector, count)
    }

    fn read(&mut self, buffer: &mut [u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.device.read(buffer, sector, count)
    }

    fn write_with_flags(
        &mut self,
        buffer: &[u8],
        sector: SectorId,
        count: u32,
        flags: WriteFlags,
    ) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.wrote(sector, count);
        inner.device.write_with_flags(buffer, sector, count, flags)
    }

    fn geometry(&self) -> DeviceGeometry {
        self.0.borrow().device.geometry()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.0.borrow().device.capabilities()
    }

    fn flush(&mut self) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.closed = inner.last.is_some_and(|(_, written)| written);
        inner.device.flush()
    }

    fn barrier(&mut self) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.device.barrier()
    }

    fn discard(&mut self, start: SectorId, count: u32) -> Ext4Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.spend()?;
        inner.device.discard(start, count)
    }
}
