//! Client of the memory server.
use crate::obj::{Ref, RefAt};
use crate::start::{memory, segment};
use crate::sync::Mutex;
use interface::client::Asked;
use interface::Session;
use proto::layout::CHUNK;
use proto::Error;
use services::memory::{
    AccountClient, AccountControlClient, MemorySupervisorClient, SegmentClient, SupplierClient,
    NOTHING,
};

/// A segment: a region of zero-filled, demand-paged memory and the port that controls it. It lives
/// until [`Segment::destroy`]; dropping this only drops the references.
#[derive(Debug)]
pub struct Segment {
    /// Its region.
    pub region: Ref,
    /// Its control port.
    pub control: Ref,
}

/// How much memory there is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Physical memory that the server manages.
    pub total: u64,
    /// How much of it the account in question can still take.
    pub free: u64,
    /// How much is resident in the segment in question, or taken by the account.
    pub resident: u64,
}

impl From<(u64, u64, u64)> for Usage {
    fn from((total, free, resident): (u64, u64, u64)) -> Self {
        Usage {
            total,
            free,
            resident,
        }
    }
}

/// The program's own account: a session that it has from the start. When the program is restored, the reference names
/// its new account.
static ACCOUNT: Mutex<Option<AccountClient>> = Mutex::new(None);

fn with_account<T>(ask: impl FnOnce(&mut AccountClient) -> Result<T, Error>) -> Result<T, Error> {
    let mut account = ACCOUNT.lock();
    ask(account.get_or_insert_with(|| AccountClient::resume(Session::at(memory()))))
}

/// A new segment of `size` bytes, a multiple of the page size, in the program's own account.
pub fn create(size: u64) -> Result<Segment, Error> {
    let (region, control) = with_account(|account| account.create(size))?;
    Ok(Segment { region, control })
}

/// What an account may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are available to it, whatever others do.
    pub promised: u64,
    /// Most bytes. Memory is counted in chunks of 64 KB.
    pub most: u64,
    /// Most segments.
    pub segments: u32,
}

/// An account, as a manager of processes holds it. The account ends when this is dropped.
#[derive(Debug)]
pub struct Account {
    /// For the process: segments can be made in it.
    pub account: Ref,
    /// One request at a time.
    control: Mutex<AccountControlClient>,
}

impl Account {
    /// A new account, by the memory server's supervisor port.
    pub fn new(supervisor: &RefAt, limits: Limits) -> Result<Self, Error> {
        let Limits {
            promised,
            most,
            segments,
        } = limits;
        let (account, control) =
            MemorySupervisorClient::at(*supervisor).create_account(promised, most, segments)?;
        Ok(Account {
            account,
            control: Mutex::new(AccountControlClient::resume(Session::resume(control, 1))),
        })
    }

    /// A new segment of `size` bytes, a multiple of the page size, in this account.
    pub fn create(&self, size: u64) -> Result<Segment, Error> {
        let (region, control) = self.control.lock().create(size)?;
        Ok(Segment { region, control })
    }

    /// A copy-on-write copy of a segment of this account. Writes to the segment meanwhile may be in the copy or not.
    pub fn copy(&self, segment: &Segment) -> Result<Segment, Error> {
        let number = SegmentClient::at(*segment.control).number()?;
        let begun = self.control.lock().copy(number)?;
        complete(begun, u32::MAX)
    }

    /// A frozen copy, in this account, of the present contents of a segment of any account, to be read. If it takes
    /// more than `most` steps, since objects are in many of the segment's chunks, the error is [`Error::Limit`], and
    /// there is no copy.
    pub fn freeze(&self, segment: &Segment, most: u32) -> Result<Segment, Error> {
        let number = SegmentClient::at(*segment.control).number()?;
        let begun = self.control.lock().freeze(number, &segment.control)?;
        complete(begun, most)
    }

    /// The port of the supplier of a segment of this account ([`Supplier`]).
    pub fn supplier(&self, segment: &Segment) -> Result<Ref, Error> {
        let number = SegmentClient::at(*segment.control).number()?;
        self.control.lock().supplier(number)
    }

    /// A reference to the port that holds the account: the account ends when nothing refers to that port any more.
    pub fn port(&self) -> Result<Ref, Error> {
        let control = self.control.lock();
        let port = control.session().port().copy();
        port.map_err(crate::error_of)
    }

    /// Reserves `size` bytes more than are taken for the account, whatever others take, in place of an earlier
    /// reservation.
    pub fn reserve(&self, size: u64) -> Result<(), Error> {
        self.control.lock().reserve(size)
    }

    /// Ends the account and all segments in it.
    pub fn end(self) -> Result<(), Error> {
        self.control.lock().end()
    }

    /// How much the account has taken, and how much it can still take.
    pub fn usage(&self) -> Result<Usage, Error> {
        self.control.lock().usage().map(Usage::from)
    }
}

/// How much memory the program's own account has.
pub fn usage() -> Result<Usage, Error> {
    with_account(AccountClient::usage).map(Usage::from)
}

/// How much memory there is on the machine, by the memory server's supervisor port; `free` is what is in no segment.
pub fn machine_usage(supervisor: &RefAt) -> Result<Usage, Error> {
    let (total, free) = MemorySupervisorClient::at(*supervisor).usage()?;
    Ok((total, free, 0).into())
}

/// Reserves `size` bytes more than the program has taken, whatever others take, in place of an earlier reservation.
/// `NoMemory`, and no change, if that much is not available now. Allocates nothing and takes no lock, since the heap
/// calls it.
pub(crate) fn reserve(size: u64) -> Result<(), Error> {
    AccountClient::resume(Session::beside(memory())).reserve(size)
}

/// Gives the pages of a range back, by control port; they read as zero afterwards. Allocates nothing.
pub fn discard(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    let segment = SegmentClient::at(*control);
    in_steps(offset, size, |offset, size| segment.discard(offset, size))
}

/// Makes all pages of a range present, by control port, or fails with [`Error::NoMemory`].
pub fn populate(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    let segment = SegmentClient::at(*control);
    in_steps(offset, size, |offset, size| segment.populate(offset, size))
}

/// Makes a request about a range until it is done, a step at a time.
fn in_steps(
    mut offset: u64,
    mut size: u64,
    step: impl Fn(u64, u64) -> Result<u64, Error>,
) -> Result<(), Error> {
    loop {
        let done = step(offset, size)?;
        size = size.checked_sub(done).ok_or(Error::Broken)?;
        if size == 0 {
            return Ok(());
        }
        offset += done;
    }
}

/// Finishes a copy that has been begun, in at most `most` further steps.
fn complete(
    (mut complete, region, control): (bool, Ref, Ref),
    most: u32,
) -> Result<Segment, Error> {
    let copy = Segment { region, control };
    let mut steps = 0;
    while !complete {
        let went_on = match steps < most {
            true => SegmentClient::at(*copy.control).copy_on(),
            false => Err(Error::Limit),
        };
        steps += 1;
        complete = match went_on {
            Ok(complete) => complete,
            Err(error) => {
                let _ = copy.destroy();
                return Err(error);
            }
        };
    }
    Ok(copy)
}

/// The supplier of the chunks that a segment owes: see [`services::memory::Supplier`].
#[derive(Debug)]
pub struct Supplier {
    port: Ref,
}

/// What a segment still owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many chunks.
    pub chunks: u64,
    /// The offset of the chunk that a thread waits for.
    pub wanted: Option<u64>,
}

impl From<(u64, u64)> for Left {
    fn from((chunks, wanted): (u64, u64)) -> Self {
        Left {
            chunks,
            wanted: (wanted != NOTHING).then_some(wanted),
        }
    }
}

impl Supplier {
    /// The supplier behind this port.
    #[must_use]
    pub const fn new(port: Ref) -> Self {
        Supplier { port }
    }

    /// Marks the chunks of this range as owed.
    pub fn owe(&self, offset: u64, size: u64) -> Result<(), Error> {
        SupplierClient::at(*self.port).owe(offset, size)
    }

    /// Supplies the pages of this range, all of one chunk, with the bytes at the same places in the first chunk of
    /// `from`; the chunk's other pages become zero.
    pub fn supply(&self, offset: u64, size: u64, from: &Supplies) -> Result<Left, Error> {
        let control = *from.segment.control;
        let left = SupplierClient::at(*self.port).supply(offset, size, from.number, &control);
        left.map(Left::from)
    }

    /// What the segment still owes.
    pub fn left(&self) -> Result<Left, Error> {
        SupplierClient::at(*self.port).left().map(Left::from)
    }
}

/// A segment of one chunk, in the program's own account, from which chunks are supplied. The segment ends when this is
/// dropped.
#[derive(Debug)]
pub struct Supplies {
    segment: Segment,
    number: u32,
}

impl Supplies {
    /// A new one, with all pages present.
    pub fn new() -> Result<Self, Error> {
        let segment = create(CHUNK)?;
        let made = SegmentClient::at(*segment.control).number();
        let made = made.and_then(|number| segment.populate(0, CHUNK).map(|()| number));
        match made {
            Ok(number) => Ok(Supplies { segment, number }),
            Err(error) => {
                let _ = segment.destroy();
                Err(error)
            }
        }
    }

    /// Its region.
    #[must_use]
    pub const fn region(&self) -> &Ref {
        &self.segment.region
    }
}

impl Drop for Supplies {
    fn drop(&mut self) {
        let _ = destroy(&self.segment.control);
    }
}

/// As [`Segment::objects_from`], by control port.
pub fn objects_from(control: &RefAt, offset: u64) -> Result<Option<u64>, Error> {
    match SegmentClient::at(*control).objects_from(offset) {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first run of present pages of a segment from this offset on, by control port: offset and bytes. `None` if there
/// is none.
pub fn present_from(control: &RefAt, offset: u64) -> Result<Option<(u64, u64)>, Error> {
    match SegmentClient::at(*control).present_from(offset) {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives the memory that a frozen copy shares with its segment back to the segment, by the control port of the copy,
/// which is not intact any more.
pub fn release(copy: &RefAt) -> Result<(), Error> {
    let segment = SegmentClient::at(*copy);
    while !segment.release()? {}
    Ok(())
}

/// Whether a frozen copy still has all of its original contents, by control port.
pub fn is_intact(copy: &RefAt) -> Result<bool, Error> {
    SegmentClient::at(*copy).is_intact()
}

/// Ends a segment, by control port.
pub fn destroy(control: &RefAt) -> Result<(), Error> {
    SegmentClient::at(*control).destroy()
}

/// Whether the program has the control port of its own memory, as servers do.
pub(crate) fn has_own() -> bool {
    segment().kind() != abi::RefKind::Null
}

/// Gives pages of the program's own memory back, if it may, and returns whether it did. For the heap.
pub(crate) fn discard_own(address: u64, size: u64) -> bool {
    // The discarded pages are free memory of the heap.
    discard(&segment(), address - base::place::start(), size).is_ok()
}

impl Segment {
    /// A copy-on-write copy, if the segment is in the program's own account. Writes to this segment meanwhile may be in
    /// the copy or not.
    pub fn copy(&self) -> Result<Segment, Error> {
        complete(
            with_account(|account| account.copy(&self.control))?,
            u32::MAX,
        )
    }

    /// Gives the pages of a range back; they read as zero afterwards, objects in them die.
    pub fn discard(&self, offset: u64, size: u64) -> Result<(), Error> {
        discard(&self.control, offset, size)
    }

    /// Makes all pages of a range present, or fails with [`Error::NoMemory`].
    pub fn populate(&self, offset: u64, size: u64) -> Result<(), Error> {
        populate(&self.control, offset, size)
    }

    /// The first chunk from this offset on that may hold kernel objects: its offset. `None` if there is none.
    pub fn objects_from(&self, offset: u64) -> Result<Option<u64>, Error> {
        objects_from(&self.control, offset)
    }

    /// How much memory is in this segment.
    pub fn usage(&self) -> Result<Usage, Error> {
        SegmentClient::at(*self.control).usage().map(Usage::from)
    }

    /// Ends the segment, with its pages, region and control port.
    pub fn destroy(self) -> Result<(), Error> {
        destroy(&self.control)
    }
}
