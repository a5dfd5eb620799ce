//! Client of the memory server.
use crate::obj::{Ref, RefAt};
use crate::rpc::{self, Io};
use crate::start::{MEMORY, SEGMENT};
use crate::sys::{self, IpcRegs};
use abi::{Call, Code};
use proto::memory::{Reply, Request};
use proto::Error;

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
    /// Of which free.
    pub free: u64,
    /// Resident in the segment that was asked.
    pub resident: u64,
}

fn segment(port: &RefAt, request: &Request) -> Result<Segment, Error> {
    let region = Ref::new().map_err(crate::error_of)?;
    let control = Ref::new().map_err(crate::error_of)?;
    let mut io = Io {
        refs_in: &[&region, &control],
        ..Io::default()
    };
    rpc::call::<_, Reply>(port, request, &mut io)?;
    if io.refs_len == 2 {
        Ok(Segment { region, control })
    } else {
        Err(Error::Broken)
    }
}

/// A new segment of `size` bytes, a multiple of the page size.
pub fn create(size: u64) -> Result<Segment, Error> {
    segment(&MEMORY, &Request::Create { size })
}

/// As [`create`], from another port of the memory server.
pub fn create_from(server: &RefAt, size: u64) -> Result<Segment, Error> {
    segment(server, &Request::Create { size })
}

/// How much memory the server has.
pub fn usage() -> Result<Usage, Error> {
    usage_of(&MEMORY)
}

/// How much memory the server has, and how much of it is in the segment with this control port.
pub fn usage_of(control: &RefAt) -> Result<Usage, Error> {
    match rpc::ask(control, &Request::Usage)? {
        Reply::Usage {
            total,
            free,
            resident,
        } => Ok(Usage {
            total,
            free,
            resident,
        }),
        Reply::Done => Err(Error::Broken),
    }
}

/// Gives the pages of a range back, by control port; they read as zero afterwards.
pub fn discard(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    rpc::ask::<_, Reply>(control, &Request::Discard { offset, size }).map(|_| ())
}

/// Makes all pages of a range present, by control port, or says [`Error::NoMemory`].
pub fn populate(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    rpc::ask::<_, Reply>(control, &Request::Populate { offset, size }).map(|_| ())
}

/// Ends a segment, by control port.
pub fn destroy(control: &RefAt) -> Result<(), Error> {
    rpc::ask::<_, Reply>(control, &Request::Destroy).map(|_| ())
}

/// Gives pages of the program's own memory back, if it may: whether that was done. For the heap:
/// allocates nothing.
pub(crate) fn discard_own(offset: u64, size: u64) -> bool {
    let mut message = [0; abi::MAX_SHORT as usize];
    let request = Request::Discard { offset, size };
    let Ok(used) = postcard::to_slice(&request, &mut message[4..]) else {
        return false;
    };
    let length = used.len();
    message[..4].copy_from_slice(&(length as u32).to_le_bytes());
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(message.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut regs = IpcRegs::to(SEGMENT.0).sending_words(words, length + 4);
    // SAFETY: a register message; the pages that go are free memory of the heap.
    let code = unsafe { sys::ipc(Call::CallShort, &mut regs) };
    // The reply begins with the length of its header; then 0 stands for `Ok`.
    code == Code::Ok && regs.short_len() > 4 && regs.short_words()[0] >> 32 & 0xff == 0
}

impl Segment {
    /// A copy-on-write copy.
    pub fn copy(&self) -> Result<Segment, Error> {
        segment(&self.control, &Request::Copy)
    }

    /// Gives the pages of a range back; they read as zero afterwards, objects in them die.
    pub fn discard(&self, offset: u64, size: u64) -> Result<(), Error> {
        discard(&self.control, offset, size)
    }

    /// Makes all pages of a range present, or says [`Error::NoMemory`].
    pub fn populate(&self, offset: u64, size: u64) -> Result<(), Error> {
        populate(&self.control, offset, size)
    }

    /// How much memory is in this segment.
    pub fn usage(&self) -> Result<Usage, Error> {
        usage_of(&self.control)
    }

    /// Ends the segment: pages, region, control port.
    pub fn destroy(self) -> Result<(), Error> {
        destroy(&self.control)
    }
}
