//! Client of the memory server.
use crate::obj::{Ref, RefAt};
use crate::rpc::{self, Io};
use crate::start::{MEMORY, SEGMENT};
use crate::sys::{self, IpcRegs};
use abi::{Call, Code};
pub use proto::memory::Limits;
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
    /// Of which the account that was asked for may still take so much.
    pub free: u64,
    /// Resident in the segment that was asked, or taken by the account.
    pub resident: u64,
}

/// A request whose reply brings two references.
fn pair(port: &RefAt, request: &Request) -> Result<(Ref, Ref, Reply), Error> {
    let first = Ref::new().map_err(crate::error_of)?;
    let second = Ref::new().map_err(crate::error_of)?;
    let mut io = Io {
        refs_in: &[&first, &second],
        ..Io::default()
    };
    let reply = rpc::call(port, request, &mut io)?;
    if io.refs_len == 2 {
        Ok((first, second, reply))
    } else {
        Err(Error::Broken)
    }
}

/// A new segment of `size` bytes, a multiple of the page size, in the program's own account.
pub fn create(size: u64) -> Result<Segment, Error> {
    create_in(&MEMORY, size)
}

/// As [`create`], in this account.
pub fn create_in(account: &RefAt, size: u64) -> Result<Segment, Error> {
    let (region, control, _) = pair(account, &Request::Create { size })?;
    Ok(Segment { region, control })
}

/// An account, as a manager of processes holds it. It lives until [`Account::end`]; dropping this only drops
/// the references.
#[derive(Debug)]
pub struct Account {
    /// For the process: segments can be made in it.
    pub account: Ref,
    control: Ref,
}

impl Account {
    /// A new account, by the memory server's supervisor port.
    pub fn new(supervisor: &RefAt, limits: Limits) -> Result<Self, Error> {
        let (account, control, _) = pair(supervisor, &Request::CreateAccount(limits))?;
        Ok(Account { account, control })
    }

    /// Ends it and all segments in it.
    pub fn end(self) -> Result<(), Error> {
        short(&self.control, &Request::EndAccount).map(drop)
    }

    /// How much is taken in it, and how much may still be.
    pub fn usage(&self) -> Result<Usage, Error> {
        usage_of(&self.account)
    }
}

/// How much memory the program's own account has.
pub fn usage() -> Result<Usage, Error> {
    usage_of(&MEMORY)
}

/// From now on so many bytes more than the program has are there for it, whatever others take; what it reserved
/// before is not. `NoMemory`, and no change, if that much is not to be had now.
pub fn reserve(size: u64) -> Result<(), Error> {
    short(&MEMORY, &Request::Reserve { size }).map(drop)
}

/// How much memory there is for the account of this port, and how much of it is in the segment with this
/// control port, or in the account.
pub fn usage_of(port: &RefAt) -> Result<Usage, Error> {
    match short(port, &Request::Usage)? {
        Reply::Usage {
            total,
            free,
            resident,
        } => Ok(Usage {
            total,
            free,
            resident,
        }),
        _ => Err(Error::Broken),
    }
}

/// Gives the pages of a range back, by control port; they read as zero afterwards.
pub fn discard(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    in_steps(control, offset, size, |offset, size| Request::Discard {
        offset,
        size,
    })
}

/// Makes all pages of a range present, by control port, or says [`Error::NoMemory`].
pub fn populate(control: &RefAt, offset: u64, size: u64) -> Result<(), Error> {
    in_steps(control, offset, size, |offset, size| Request::Populate {
        offset,
        size,
    })
}

/// Does a request about a range, a step at a time.
fn in_steps(
    control: &RefAt,
    mut offset: u64,
    mut size: u64,
    request: impl Fn(u64, u64) -> Request,
) -> Result<(), Error> {
    loop {
        match short(control, &request(offset, size))? {
            Reply::Done => return Ok(()),
            Reply::More(done) if done <= size => {
                offset += done;
                size -= done;
            }
            _ => return Err(Error::Broken),
        }
    }
}

/// Ends a segment, by control port.
pub fn destroy(control: &RefAt) -> Result<(), Error> {
    short(control, &Request::Destroy).map(drop)
}

/// Gives pages of the program's own memory back, if it may: whether that was done. For the heap.
pub(crate) fn discard_own(offset: u64, size: u64) -> bool {
    // The pages that go are free memory of the heap.
    discard(&SEGMENT, offset, size).is_ok()
}

/// A request without references, in a register message. Allocates nothing.
fn short(port: &RefAt, request: &Request) -> Result<Reply, Error> {
    let mut message = [0; abi::MAX_SHORT as usize];
    let used = postcard::to_slice(request, &mut message[4..]).map_err(|_| Error::Invalid)?;
    let length = used.len();
    message[..4].copy_from_slice(&(length as u32).to_le_bytes());
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(message.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut regs = IpcRegs::to(port.0).sending_words(words, length + 4);
    // SAFETY: a register message without references touches no memory.
    let code = unsafe { sys::ipc(Call::CallShort, &mut regs) };
    if code != Code::Ok {
        return Err(Error::Broken);
    }
    for (bytes, word) in message
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(regs.short_words())
    {
        *bytes = word.to_le_bytes();
    }
    let received = message.get(..regs.short_len()).ok_or(Error::Broken)?;
    let (header, _) = rpc::split(received).ok_or(Error::Broken)?;
    let reply: Result<Reply, Error> = postcard::from_bytes(header).map_err(|_| Error::Broken)?;
    reply
}

impl Segment {
    /// A copy-on-write copy. What is written to this segment meanwhile may be in it or not.
    pub fn copy(&self) -> Result<Segment, Error> {
        let (region, control, mut reply) = pair(&self.control, &Request::Copy)?;
        let copy = Segment { region, control };
        while matches!(reply, Reply::More(_)) {
            reply = match short(&copy.control, &Request::CopyOn) {
                Ok(reply) => reply,
                Err(error) => {
                    let _ = copy.destroy();
                    return Err(error);
                }
            };
        }
        Ok(copy)
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
