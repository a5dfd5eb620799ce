//! The memory server: accounts, and segments of zero-filled, demand-paged, copy-on-write memory.
//!
//! A segment is a region with the server as its keeper, and a *control* port that names it ([`Segment`]). It belongs to an
//! *account*: what is promised to the account is there for it whatever others do, and it gets no more than its limit.
//! Whoever manages processes makes an account for each, through the server's *supervisor* port ([`MemorySupervisor`]),
//! gives the process one port of it ([`Account`]), and keeps the other ([`AccountControl`]): the account and everything
//! in it goes when it says so, or when nobody has that port any more.
//!
//! Both ports of an account are sessions that their holders did not open: what must not be repeated has a number, and
//! nobody else can use them. An image of a process has its account as the account of whatever process is made of it, where
//! the numbers go on.
//!
//! A request whose work depends on how much memory it is about is done in steps, each a call of its own, so that nobody
//! waits for another's memory: the reply says how far it is, and the client asks for the rest.
//!
//! The errors of all methods that need memory are `NoMemory` if the account may not have more, or if there is no more.
use interface::{interface, Error};

/// Makes accounts: the supervisor port, which managers of processes have.
#[interface(shared)]
pub trait MemorySupervisor {
    /// A new account, to which `promised` bytes are promised, and which may have `most` bytes and `segments` segments. Memory
    /// is counted in chunks of 64 KB. The port of the process ([`Account`]) and that of its manager ([`AccountControl`]).
    /// Errors: `NoMemory` if so much cannot be promised, `Invalid` if more is promised than the most.
    /// May be repeated: an account whose manager's port nobody has ends.
    fn create_account(&self, promised: u64, most: u64, segments: u32) -> Result<(Ref, Ref), Error>;
    /// Bytes that the server manages, and how many of them are in no segment. Errors: none of its own. May be
    /// repeated.
    fn usage(&self) -> Result<(u64, u64), Error>;
}

/// An account, for the process whose it is: its `START_MEMORY`.
#[interface]
pub trait Account {
    /// A new segment of `size` bytes, a multiple of the page size: its region and its control port. Errors: `Invalid`,
    /// `NoMemory`. Must not be repeated.
    #[once]
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error>;
    /// A copy-on-write copy of the segment of this account with that control port. Pages with objects are copied at
    /// once, as bytes. Whether it is complete, its region and its control port. If it is not, it is to be finished with
    /// [`Segment::copy_on`]; what is written to either meanwhile may be in it or not. Errors: `NotFound` if the account has
    /// no such segment, `Invalid` for a frozen copy, `WouldBlock` while it owes something, `NoMemory`. Must not be repeated.
    #[once]
    fn copy(&self, segment: &RefAt) -> Result<(bool, Ref, Ref), Error>;
    /// Promises the account so many bytes more than it has taken, and no others than these and those that its
    /// manager has promised it. For whoever must not end because others have taken the memory that it was going to
    /// touch. Errors: `NoMemory` if it could not take so many now; then nothing changes. May be repeated.
    fn reserve(&self, size: u64) -> Result<(), Error>;
    /// Bytes that the server manages, how many the account may still take now, and how many it has taken. Errors:
    /// none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
}

/// An account, for the manager of the process.
#[interface]
pub trait AccountControl {
    /// As [`Account::create`]. Errors: `Invalid`, `NoMemory`. Must not be repeated.
    #[once]
    fn create(&self, size: u64) -> Result<(Ref, Ref), Error>;
    /// As [`Account::copy`], of the segment with this number ([`Segment::number`]). Errors: as [`Account::copy`].
    /// Must not be repeated.
    #[once]
    fn copy(&self, segment: u32) -> Result<(bool, Ref, Ref), Error>;
    /// A frozen copy, in this account, of a segment of any account: of the number ([`Segment::number`]) and control
    /// port that it has. It holds what the segment holds now, in one step however much that is, and can only be read.
    /// Whether it is complete, its region and its control port; if it is not, it is to be finished with
    /// [`Segment::copy_on`] before anybody writes to the segment. What is written to the segment later takes memory of
    /// this account; if there is none, the copy shows what is written, and is not what it was ([`Segment::is_intact`]).
    /// Errors: `NotFound` if there is no such segment; `Limit` if it has a frozen copy, is a copy, or consists of more
    /// pieces than can be frozen; `WouldBlock` while it owes something; `NoMemory`. Must not be repeated.
    #[once]
    fn freeze(&self, segment: u32, control: &RefAt) -> Result<(bool, Ref, Ref), Error>;
    /// The port of the supplier ([`Supplier`]) of the segment of this account with that number. When nobody has it any
    /// more, and the segment still owes something, the segment ends: whoever needs that would wait for ever. Errors:
    /// `NotFound` if there is no such segment, `NoMemory`. May be repeated.
    fn supplier(&self, segment: u32) -> Result<Ref, Error>;
    /// As [`Account::reserve`]. Errors: `NoMemory`. May be repeated.
    fn reserve(&self, size: u64) -> Result<(), Error>;
    /// As [`Account::usage`]. Errors: none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
    /// Ends the account with all its segments; this port is dead thereafter. Errors: none of its own. May be
    /// repeated.
    fn end(&self) -> Result<(), Error>;
}

/// Who supplies what a segment *owes*: chunks (64 KB) whose bytes are still to come, since somebody runs in the segment
/// before all of it is there. Who touches an owed chunk waits until it has come. Nobody else does: what others ask of
/// the segment, and would need the chunk, is `WouldBlock`.
#[interface(shared)]
pub trait Supplier {
    /// From now on the segment owes the chunks of this range, of which nothing is there yet. They are promised to its
    /// account, so nobody else can take what they need. Errors: `Invalid` if these are no chunks of the segment, or
    /// something of them is there or some are owed already and not all; or if it is a copy or frozen; `NoMemory` if its
    /// account may not take so many. May be repeated.
    fn owe(&self, offset: u64, size: u64) -> Result<(), Error>;
    /// The pages of this range, all of one chunk, come: those that stand at the same places in the first chunk of the
    /// segment of any account that has this number ([`Segment::number`]) and control port, and are present there. The
    /// other pages of the chunk are zero, all of them if there is no size. How many chunks are still owed, and the
    /// offset of the one that somebody waits for, or [`NOTHING`]. Errors: `Invalid`, `NotFound` if there is no such
    /// segment, `NoMemory`. May be repeated: a chunk that has come stays as it is.
    fn supply(
        &self,
        offset: u64,
        size: u64,
        segment: u32,
        control: &RefAt,
    ) -> Result<(u64, u64), Error>;
    /// What [`Supplier::supply`] says. Errors: none of its own. May be repeated.
    fn left(&self) -> Result<(u64, u64), Error>;
}

/// Nobody waits for a chunk.
pub const NOTHING: u64 = u64::MAX;

/// A segment: its control port.
#[interface(shared)]
pub trait Segment {
    /// The number of the segment, by which the manager of its account names it. Errors: none of its own. May be
    /// repeated.
    fn number(&self) -> Result<u32, Error>;
    /// The next step of making this segment as a copy: whether that is complete. Errors: `NotFound` if the original is
    /// gone, `NoMemory`. May be repeated.
    fn copy_on(&self) -> Result<bool, Error>;
    /// Of a frozen copy: the next step of giving the segment back what it has in common with it; the copy is not intact from
    /// the first one on. Whether that is done. A copy that ends is released by the server, at the priority of programs. Errors:
    /// `Invalid` if it is no frozen copy. May be repeated.
    fn release(&self) -> Result<bool, Error>;
    /// Whether this is a frozen copy that has all that it had at the beginning. Errors: none of its own. May be
    /// repeated.
    fn is_intact(&self) -> Result<bool, Error>;
    /// The first pages from this offset on that are present, as many as are looked at: their offset, and how many
    /// bytes. Errors: `NotFound` if there are none, `WouldBlock` while the segment owes something. May be repeated.
    fn present_from(&self, offset: u64) -> Result<(u64, u64), Error>;
    /// The first chunk (64 KB) from this offset on that may hold kernel objects: its offset. Others hold none. Of a frozen copy,
    /// which has no objects: the first one of its segment. Errors: `NotFound` if there is none. May be repeated.
    fn objects_from(&self, offset: u64) -> Result<u64, Error>;
    /// Gives the pages of the range back, a step at a time; they read as zero afterwards, and objects in them die.
    /// How many bytes from the start of the range on are done. Errors: `Invalid` if it does not consist of pages
    /// of the segment, or this is a frozen copy; `WouldBlock` if a part of a chunk is in it that is owed, and comes next. May be repeated.
    fn discard(&self, offset: u64, size: u64) -> Result<u64, Error>;
    /// Makes all pages of the range present, a step at a time, so that touching them cannot fail for want of memory.
    /// For whoever writes into the memory of others and must not be stopped by a refusal. How many bytes from the start
    /// of the range on are done. Errors: `Invalid` if it is not all in the segment; `WouldBlock` if a chunk of it is
    /// owed, which comes next; `NoMemory`. May be repeated.
    fn populate(&self, offset: u64, size: u64) -> Result<u64, Error>;
    /// Bytes that the server manages, how many the account of the segment may still take now, and how many are
    /// present in the segment. Errors: none of its own. May be repeated.
    fn usage(&self) -> Result<(u64, u64, u64), Error>;
    /// Ends the segment. Its region and this port are dead at once, its pages go. Errors: none of its own. May be
    /// repeated.
    fn destroy(&self) -> Result<(), Error>;
}
