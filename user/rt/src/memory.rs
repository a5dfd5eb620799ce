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
    /// Of which the account that was asked for may still take so much.
    pub free: u64,
    /// Resident in the segment that was asked, or taken by the account.
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

/// The program's own account: a session that it has from the start. Where the program is restored the reference names its
/// new account.
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
    /// Bytes that are there for it, whatever others do.
    pub promised: u64,
    /// Most bytes. Memory is counted in chunks of 64 KB.
    pub most: u64,
    /// Most segments.
    pub segments: u32,
}

/// An account, as a manager of processes holds it. It ends with this.
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

    /// A copy-on-write copy of a segment of this account. What is written to that meanwhile may be in it or not.
    pub fn copy(&self, segment: &Segment) -> Result<Segment, Error> {
        let number = SegmentClient::at(*segment.control).number()?;
        let begun = self.control.lock().copy(number)?;
        complete(begun, u32::MAX)
    }

    /// A frozen copy, in this account, of a segment of any account: what it holds now, to be read. If that takes more
    /// than so many steps, which it does if objects are in many of the segment's chunks, it is [`Error::Limit`], and
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

    /// A reference to the port by which it is held: it ends when nobody has that any more.
    pub fn port(&self) -> Result<Ref, Error> {
        let control = self.control.lock();
        let port = control.session().port().copy();
        port.map_err(crate::error_of)
    }

    /// So many bytes more than are taken are there for the account, whatever others take; what it reserved before is not.
    pub fn reserve(&self, size: u64) -> Result<(), Error> {
        self.control.lock().reserve(size)
    }

    /// Ends it and all segments in it.
    pub fn end(self) -> Result<(), Error> {
        self.control.lock().end()
    }

    /// How much is taken in it, and how much may still be.
    pub fn usage(&self) -> Result<Usage, Error> {
        self.control.lock().usage().map(Usage::from)
    }
}

/// How much memory the program's own account has.
pub fn usage() -> Result<Usage, Error> {
    with_account(AccountClient::usage).map(Usage::from)
}

/// How much memory there is on the machine, by the memory server's supervisor port; `free` is in no segment.
pub fn machine_usage(supervisor: &RefAt) -> Result<Usage, Error> {
    let (total, free) = MemorySupervisorClient::at(*supervisor).usage()?;
    Ok((total, free, 0).into())
}

/// From now on so many bytes more than the program has are there for it, whatever others take; what it reserved
/// before is not. `NoMemory`, and no change, if that much is not to be had now. Allocates nothing and takes no lock: the heap
/// asks.
pub(crate) fn reserve(size: u64) -> Result<(), Error> {
    AccountClient::resume(Session::beside(memory())).reserve(size)
}

/// Gives the pages of a range back, by control port; they read as zero afterwards. Allocates nothing.
pub fn discard(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    let segment = SegmentClient::at(*control);
    in_steps(offset, size, |offset, size| segment.discard(offset, size))
}

/// Makes all pages of a range present, by control port, or says [`Error::NoMemory`].
pub fn populate(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    let segment = SegmentClient::at(*control);
    in_steps(offset, size, |offset, size| segment.populate(offset, size))
}

/// Does a request about a range, a step at a time.
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

/// Finishes a copy that has been begun, in at most so many further steps.
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

/// Who supplies what a segment owes: see [`services::memory::Supplier`].
#[derive(Debug)]
pub struct Supplier {
    port: Ref,
}

/// What a segment owes still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many chunks.
    pub chunks: u64,
    /// The offset of the chunk that somebody waits for.
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
    /// By this port.
    #[must_use]
    pub const fn new(port: Ref) -> Self {
        Supplier { port }
    }

    /// From now on the segment owes the chunks of this range.
    pub fn owe(&self, offset: u64, size: u64) -> Result<(), Error> {
        SupplierClient::at(*self.port).owe(offset, size)
    }

    /// The pages of this range, all of one chunk, come from the same places in the first chunk of this segment; the
    /// chunk's other pages are zero.
    pub fn supply(&self, offset: u64, size: u64, from: &Supplies) -> Result<Left, Error> {
        let control = *from.segment.control;
        let left = SupplierClient::at(*self.port).supply(offset, size, from.number, &control);
        left.map(Left::from)
    }

    /// What is owed still.
    pub fn left(&self) -> Result<Left, Error> {
        SupplierClient::at(*self.port).left().map(Left::from)
    }
}

/// A segment of one chunk, in the program's own account, from which chunks are supplied. It ends with this.
#[derive(Debug)]
pub struct Supplies {
    segment: Segment,
    number: u32,
}

impl Supplies {
    /// A new one, all of which is there.
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

/// The first pages of a segment from this offset on that are present, by control port: offset and bytes. `None` if there are none.
pub fn present_from(control: &RefAt, offset: u64) -> Result<Option<(u64, u64)>, Error> {
    match SegmentClient::at(*control).present_from(offset) {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives a segment back what it has in common with its frozen copy, by the control port of the copy, which is not
/// intact any more.
pub fn release(copy: &RefAt) -> Result<(), Error> {
    let segment = SegmentClient::at(*copy);
    while !segment.release()? {}
    Ok(())
}

/// Whether a frozen copy has all that it had at the beginning, by control port.
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

/// Gives pages of the program's own memory back, if it may: whether that was done. For the heap.
pub(crate) fn discard_own(address: u64, size: u64) -> bool {
    // The pages that go are free memory of the heap.
    discard(&segment(), address - base::place::start(), size).is_ok()
}

impl Segment {
    /// A copy-on-write copy, if the segment is in the program's own account. What is written to this segment meanwhile may be
    /// in it or not.
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

    /// Makes all pages of a range present, or says [`Error::NoMemory`].
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

    /// Ends the segment: pages, region, control port.
    pub fn destroy(self) -> Result<(), Error> {
        destroy(&self.control)
    }
}
