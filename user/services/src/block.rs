//! Disks, as their drivers offer them: blocks of 512 bytes (*sectors*), many requests at a time.
//!
//! A request is submitted with a **tag**, a number below [`TAGS`] of the client's choosing, and is done some time
//! later, in any order. [`Block::done`] waits for that. So a session makes one *call* at a time, but has up to
//! [`OUTSTANDING`] requests. The tag of a read is in use until it is released; that of a write or flush is free when
//! `done` has reported it.
//!
//! The driver keeps no order between requests that are outstanding at the same time: a client must not submit a request
//! whose sectors overlap those of another one. The data of a write is in the device when the write is done, and
//! survives a loss of power when a flush that was submitted afterwards is done.
//!
//! A client that can open a session can read and write the whole disk, and delay requests of other sessions. The door
//! is the driver's control port, which the holder of the system port can get; the name alone gives no access. When a
//! driver dies, so do its sessions. The crate `fermata-block` opens another one with the driver that is started next,
//! and submits the unfinished requests again.
use interface::{interface, Error};

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Tags of a session.
pub const TAGS: u64 = 64;
/// Most requests of a session that are outstanding or not released.
pub const OUTSTANDING: usize = 32;
/// Most bytes of a request.
pub const MOST: u64 = 64 * 1024;

/// A disk. Errors of `read`, `write` and `flush`: `Invalid` for sectors that the disk does not have, a tag that is in
/// use or is not below [`TAGS`], or a length that is 0, more than [`MOST`] or no multiple of a sector's; `WouldBlock`
/// while there is no room for one more request; `Denied` for a write to a disk that is read only. Any request: `Broken`
/// if the device no longer answers sensibly.
#[interface]
pub trait Block {
    /// The number of sectors, and whether they can be written. Errors: none of its own. May be repeated.
    fn geometry(&self) -> Result<(u64, bool), Error>;
    /// Submits a read of `sectors` sectors. Errors: `Invalid` for sectors that the disk does not have, a tag that is in
    /// use or is none, or no or more than [`MOST`] bytes; `WouldBlock` while there is no room for one more request;
    /// `Broken`. Must not be repeated.
    #[once]
    fn read(&self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error>;
    /// Submits a write. Errors: those of `read`, also `Invalid` for a length that is no multiple of a sector's;
    /// `Denied` if the disk is read only. Must not be repeated.
    #[once]
    fn write(&self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error>;
    /// Submits a flush. Errors: `Invalid` for a tag that is in use or is none; `WouldBlock`, `Broken` as of
    /// `read`. Must not be repeated.
    #[once]
    fn flush(&self, tag: u64) -> Result<(), Error>;
    /// Waits until requests are done that were not reported before. Returns the bits of their tags, and the bits of
    /// those that the device could not do. Errors: `Invalid` if nothing is outstanding; `Broken`. Must not be repeated.
    async fn done(&self) -> Result<(u64, u64), Error>;
    /// The data of a finished read. Errors: `Invalid` if the tag is not that of a read that `done` has reported and
    /// that succeeded, or if there is no room for the data. May be repeated.
    fn data(&self, tag: u64) -> Result<Bytes, Error>;
    /// Releases the tag of a finished read. Errors: `Invalid` as of `data`. Must not be repeated.
    #[once]
    fn release(&self, tag: u64) -> Result<(), Error>;
    /// Waits until there is room for one more request. Errors: `Broken`. May be repeated.
    async fn room(&self) -> Result<(), Error>;
}
