//! The client's side of a service: one request, one reply.
//!
//! A request is one idempotent `call`; the form of the messages is described in [`proto`]. The call
//! leaves no trace in the client until its reply is there, so a program that is saved in the middle
//! of a request asks again after it was restored.
use crate::obj::{RefAt, RefList};
use crate::sys::{self, IpcRegs};
use abi::message::Segment;
use abi::registers::Area;
use abi::{Call, Code};
use alloc::vec::Vec;
use proto::{Error, MAX_HEADER};
use serde::{de::DeserializeOwned, Serialize};

// A message has room for the most of the one and some of the other.
const _: () = assert!(proto::MAX_BULK + 2048 < abi::MAX_IDEMPOTENT as usize);
const _: () = assert!(MAX_HEADER + 4096 < abi::MAX_IDEMPOTENT as usize);

/// What travels beside the header.
#[derive(Debug, Default)]
pub struct Io<'a> {
    /// Bulk bytes of the request.
    pub bulk: &'a [u8],
    /// References of the request (`&[&a, &b]` with owned [`crate::obj::Ref`]s works).
    pub refs: &'a [&'a RefAt],
    /// Room for bulk bytes of the reply.
    pub bulk_in: &'a mut [u8],
    /// Set: bulk bytes that came.
    pub bulk_len: usize,
    /// References (they exist, and name anything or nothing) to be set by the reply.
    pub refs_in: &'a [&'a RefAt],
    /// Set: references that came.
    pub refs_len: usize,
}

/// Room for the header of a reply at first. A longer one (a list) makes the call be repeated with
/// room for all that is allowed: the kernel makes the whole buffer present for every call.
const USUAL_HEADER: usize = 1024;

/// Makes a request without bulk and references.
pub fn ask<Q: Serialize, R: DeserializeOwned>(port: &RefAt, request: &Q) -> Result<R, Error> {
    call(port, request, &mut Io::default())
}

/// Makes a request.
pub fn call<Q: Serialize, R: DeserializeOwned>(
    port: &RefAt,
    request: &Q,
    io: &mut Io<'_>,
) -> Result<R, Error> {
    let mut header = Vec::with_capacity(64);
    header.extend_from_slice(&[0; 4]);
    let mut header = postcard::to_extend(request, header).map_err(|_| Error::Invalid)?;
    let length = header.len() - 4;
    if length > MAX_HEADER {
        return Err(Error::Invalid);
    }
    header[..4].copy_from_slice(&(length as u32).to_le_bytes());

    let outgoing = RefList::to_send(io.refs).map_err(crate::error_of)?;
    let incoming = RefList::to_receive(io.refs_in).map_err(crate::error_of)?;
    let mut room = 4 + USUAL_HEADER + io.bulk_in.len();
    let (reply, refs) = loop {
        let mut reply = Vec::with_capacity(room);
        match exchange(port, &header, io.bulk, &outgoing, &mut reply, &incoming) {
            Ok(refs) => break (reply, refs),
            Err(Code::Truncated) if room < 4 + MAX_HEADER + io.bulk_in.len() => {
                room = 4 + MAX_HEADER + io.bulk_in.len();
            }
            Err(Code::TooLarge) => return Err(Error::Invalid),
            Err(_) => return Err(Error::Broken),
        }
    };
    let (header, bulk) = split(&reply).ok_or(Error::Broken)?;
    let result: Result<R, Error> = postcard::from_bytes(header).map_err(|_| Error::Broken)?;
    let value = result?;
    if bulk.len() > io.bulk_in.len() {
        return Err(Error::Broken);
    }
    io.bulk_in[..bulk.len()].copy_from_slice(bulk);
    io.bulk_len = bulk.len();
    io.refs_len = refs;
    incoming
        .hand_over(io.refs_in, refs)
        .map_err(crate::error_of)?;
    Ok(value)
}

/// Header and bulk of a message.
#[must_use]
pub fn split(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*message.first_chunk::<4>()?) as usize;
    let rest = &message[4..];
    (length <= MAX_HEADER && length <= rest.len()).then(|| rest.split_at(length))
}

/// The call of the kernel: the number of references that came.
fn exchange(
    port: &RefAt,
    header: &[u8],
    bulk: &[u8],
    outgoing: &RefList,
    reply: &mut Vec<u8>,
    incoming: &RefList,
) -> Result<usize, Code> {
    let room = reply.capacity() as u64;
    let more = [Segment {
        address: bulk.as_ptr() as u64,
        length: bulk.len() as u64,
    }];
    let mut regs = IpcRegs::to(port.0)
        .sending(Area {
            address: header.as_ptr() as u64,
            length: header.len() as u64,
            list: more.as_ptr() as u64,
            entries: u64::from(!bulk.is_empty()),
            refs: outgoing.word(),
        })
        .receiving(Area {
            address: reply.as_mut_ptr() as u64,
            length: room,
            refs: incoming.word(),
            ..Area::default()
        });
    // SAFETY: the send buffers are only read; the reply buffer is ours alone.
    let code = unsafe { sys::ipc(Call::Call, &mut regs) };
    if code != Code::Ok {
        return Err(code);
    }
    let received = room.saturating_sub(regs.left().length).min(room) as usize;
    // SAFETY: the kernel has written this many bytes from the start of the buffer.
    unsafe { reply.set_len(received) };
    let left = (regs.left().refs & abi::MAX_LIST_REFS) as usize;
    Ok(incoming.count().saturating_sub(left))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn messages_split_or_are_refused() {
        assert_eq!(split(&[2, 0, 0, 0, 7, 8, 9]), Some((&[7, 8][..], &[9][..])));
        assert_eq!(split(&[0, 0, 0, 0]), Some((&[][..], &[][..])));
        assert_eq!(split(&[1, 0, 0, 0]), None);
        assert_eq!(split(&[1, 0, 0]), None);
        assert_eq!(split(&[255, 255, 255, 255, 1]), None);
    }
}
