//! The memory server: accounts, and segments of zero-filled, demand-paged, copy-on-write memory.
//!
//! A segment is a region with the server as its keeper, and a *control* port that names it ([`Segment`]). It belongs to
//! an *account*: memory that is promised to the account is available to it whatever others do, and it gets no more than
//! its limit. A manager of processes makes an account for each, through the server's *supervisor* port
//! ([`MemorySupervisor`]), gives the process one port of it ([`Account`]), and keeps the other ([`AccountControl`]):
//! the account and everything in it ends when the manager says so, or when nothing refers to that port any more.
//!
//! Both ports of an account are sessions that their holders did not open: requests that must not be repeated have
//! numbers, and nobody else can use the sessions. In an image, a process's account stands for the account of the
//! process that is made from the image, in which the numbers continue.
//!
//! A request whose work grows with the size of memory is done in steps, each a call of its own, so that no client waits
//! for another's memory: the reply says how far the work is, and the client makes further requests for the rest.
//!
//! The errors of all methods that need memory are `NoMemory` if the account may not have more, or if there is no more.
use interface::{interface, Error};

/// Makes accounts: the supervisor port, which managers of processes hold.
#[interface(shared)]
pub trait MemorySupervisor {
    /// A new account, to which `promised` bytes are promised, and which may have `most` bytes and `segments` segments.
    /// Memory is counted in chunks of 64 KB. Returns the port for the process ([`Account`]) and the one for its manager
    /// ([`AccountControl`]). Errors: `NoMemory` if so much cannot be promised, `Invalid` if more is promised than the
    /// most. May be repeated: an account ends when nothing refers to its manager's port.
    fn create_account(&self, promised: u64, most: u64, segments: u32) -> Result<(Ref, Ref), Error>;
    /// Bytes that the server manages, and how many of them are in no segment. Errors: none of its own. May be
    /// repeated.
    fn usage(&self) -> Result<(u64, u64), Error>;
}

/// An account, as the process that owns it uses it: its `START_MEMORY`.
#[interface]
pub trait Account {
    /// A new segment of `size` bytes, a multiple of the page size. Returns its region and its control port. Errors:
    /// `Invalid`, `NoMemory`. Must not be repeated.
    #[once]
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error>;
    /// A copy-on-write copy of the segment of this account with that control port. Pages with objects are copied at
    /// once, as bytes. Returns whether the copy is complete, its region and its control port. If it is not, it has to
    /// be finished with [`Segment::copy_on`]; writes to either segment meanwhile may be in the copy or not. Errors:
    /// `NotFound` if the account has no such segment, `Invalid` for a frozen copy, `WouldBlock` while the segment owes
    /// chunks, `NoMemory`. Must not be repeated.
    #[once]
    fn copy(&self, segment: &RefAt) -> Result<(bool, Ref, Ref), Error>;
    /// Promises the account `size` bytes more than it has taken, in place of an earlier such promise; the manager's
    /// promise stays. For a process that must not fail because others have taken the memory that it is going to touch.
    /// Errors: `NoMemory` if the account could not take that many now; then nothing changes. May be repeated.
    fn reserve(&self, size: u64) -> Result<(), Error>;
    /// Bytes that the server manages, how many the account can still take now, and how many it has taken. Errors: none
    /// of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
}

/// An account, as the manager of the process uses it.
#[interface]
pub trait AccountControl {
    /// As [`Account::create`]. Errors: `Invalid`, `NoMemory`. Must not be repeated.
    #[once]
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error>;
    /// As [`Account::copy`], of the segment with this number ([`Segment::number`]). Errors: as [`Account::copy`].
    /// Must not be repeated.
    #[once]
    fn copy(&self, segment: u32) -> Result<(bool, Ref, Ref), Error>;
    /// A frozen copy, in this account, of a segment of any account, given by its number ([`Segment::number`]) and its
    /// control port. The copy holds what the segment holds now, is made in one step whatever its size, and can only be
    /// read. Returns whether it is complete, its region and its control port; if it is not, it has to be finished with
    /// [`Segment::copy_on`] before anybody writes to the segment. Later writes to the segment take memory of this
    /// account; if there is none, the copy shows the new contents, and is no longer intact ([`Segment::is_intact`]).
    /// Errors: `NotFound` if there is no such segment; `Limit` if the segment has a frozen copy, is a copy, or consists
    /// of more pieces than can be frozen; `WouldBlock` while it owes chunks; `NoMemory`. Must not be repeated.
    #[once]
    fn freeze(&self, segment: u32, control: &RefAt) -> Result<(bool, Ref, Ref), Error>;
    /// The port of the supplier ([`Supplier`]) of the segment of this account with that number. When nothing refers to
    /// that port any more and the segment still owes chunks, the segment ends, since threads that need them would wait
    /// for ever. Errors: `NotFound` if there is no such segment, `NoMemory`. May be repeated.
    fn supplier(&self, segment: u32) -> Result<Ref, Error>;
    /// As [`Account::reserve`]. Errors: `NoMemory`. May be repeated.
    fn reserve(&self, size: u64) -> Result<(), Error>;
    /// As [`Account::usage`]. Errors: none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
    /// Ends the account with all its segments; this port is dead thereafter. Errors: none of its own. May be
    /// repeated.
    fn end(&self) -> Result<(), Error>;
}

/// The supplier's side of a segment that *owes* chunks (64 KB): their bytes are still to come, since a process runs in
/// the segment before all of it has been read. A thread that touches an owed chunk waits until its bytes have come.
/// Requests about the segment that would need the chunk do not wait, but are `WouldBlock`.
#[interface(shared)]
pub trait Supplier {
    /// Marks the chunks of this range, of which no page is present yet, as owed. Their memory is promised to the
    /// segment's account, so nobody else can take it. Errors: `Invalid` if these are not whole chunks of the segment,
    /// if a page of them is present, if only some are owed already, or if the segment is a copy or frozen; `NoMemory`
    /// if its account may not take so many. May be repeated.
    fn owe(&self, offset: u64, size: u64) -> Result<(), Error>;
    /// Supplies the pages of this range, all of one chunk. Their bytes are those of the pages at the same places in the
    /// first chunk of a segment, of any account, with this number ([`Segment::number`]) and control port, as far as
    /// they are present there. The other pages of the chunk become zero, all of them if `size` is 0. Returns how many
    /// chunks are still owed, and the offset of the one that a thread waits for, or [`NOTHING`]. Errors: `Invalid`,
    /// `NotFound` if there is no such segment, `NoMemory`. May be repeated: a chunk that has come stays as it is.
    fn supply(
        &self,
        offset: u64,
        size: u64,
        segment: u32,
        control: &RefAt,
    ) -> Result<(u64, u64), Error>;
    /// The values that [`Supplier::supply`] returns. Errors: none of its own. May be repeated.
    fn left(&self) -> Result<(u64, u64), Error>;
}

/// Stands for no offset: no thread waits for a chunk.
pub const NOTHING: u64 = u64::MAX;

/// A segment: its control port.
#[interface(shared)]
pub trait Segment {
    /// The number of the segment, by which the manager of its account names it. Errors: none of its own. May be
    /// repeated.
    fn number(&self) -> Result<u32, Error>;
    /// Does the next step of making this segment, a copy. Returns whether it is complete. Errors: `NotFound` if the
    /// original is gone, `NoMemory`. May be repeated.
    fn copy_on(&self) -> Result<bool, Error>;
    /// For a frozen copy: does the next step of giving the memory that it shares with its segment back to the segment;
    /// the copy is not intact from the first step on. Returns whether that is complete. The server itself releases a
    /// copy that ends, at the priority of programs. Errors: `Invalid` if this is no frozen copy. May be repeated.
    fn release(&self) -> Result<bool, Error>;
    /// Whether this is a frozen copy that still has all of its original contents. Errors: none of its own. May be
    /// repeated.
    fn is_intact(&self) -> Result<bool, Error>;
    /// The first run of present pages from this offset on, as far as one step searches: its offset, and its length in
    /// bytes. Errors: `NotFound` if there is none, `WouldBlock` while the segment owes chunks. May be repeated.
    fn present_from(&self, offset: u64) -> Result<(u64, u64), Error>;
    /// The first chunk (64 KB) from this offset on that may hold kernel objects: its offset. Other chunks hold none.
    /// For a frozen copy, which has no objects itself: the first such chunk of its segment. Errors: `NotFound` if there
    /// is none. May be repeated.
    fn objects_from(&self, offset: u64) -> Result<u64, Error>;
    /// Gives the pages of the range back, a step at a time; they read as zero afterwards, and objects in them die.
    /// Returns how many bytes from the start of the range on are done. Errors: `Invalid` if the range does not consist
    /// of pages of the segment, or this is a frozen copy; `WouldBlock` if an owed chunk is only partly in the range;
    /// that chunk is then wanted next. May be repeated.
    fn discard(&self, offset: u64, size: u64) -> Result<u64, Error>;
    /// Makes all pages of the range present, a step at a time, so that touching them cannot fail for want of memory.
    /// For programs that write into the memory of others and must not be stopped by a lack of memory. Returns how many
    /// bytes from the start of the range on are done. Errors: `Invalid` if the range is not all in the segment;
    /// `WouldBlock` if a chunk of it is owed, which is then wanted next; `NoMemory`. May be repeated.
    fn populate(&self, offset: u64, size: u64) -> Result<u64, Error>;
    /// Bytes that the server manages, how many the account of the segment can still take now, and how many are present
    /// in the segment. Errors: none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
    /// Ends the segment. Its region and this port are dead at once, and its pages are freed. Errors: none of its own.
    /// May be repeated.
    fn destroy(&self) -> Result<(), Error>;
}
