//! Networks, as the drivers of network cards offer them: Ethernet frames, many in a message.
//!
//! Frames travel in **batches**: for each frame its length, two bytes little-endian, and then its bytes ([`push`],
//! [`frames`]). A batch that goes to a driver or comes from one has at most [`MOST`] frames.
//!
//! Delivery is not guaranteed: a frame may be lost in the card, or because there is no room for it. A driver keeps no
//! more received frames than the card has memory for; while no client takes them, the card drops further frames at no
//! cost to others. When a driver dies its sessions end, and the frames that it had are lost.
//!
//! A client that can open a session sees all frames and can send any. The door is the driver's control port; the name
//! alone gives no access.
use alloc::vec::Vec;
use interface::{interface, Error};

/// Most bytes of a frame: two addresses, the protocol, and 1,500 bytes.
pub const FRAME: usize = 1514;
/// Most frames of a batch.
pub const MOST: usize = 32;
/// Most bytes of a batch.
pub const BATCH: usize = MOST * (2 + FRAME);

/// The driver of a network card. No request waits but [`Link::ended`]: a client has one thread that sends and receives,
/// and is interrupted when there is something to do. Any request: `Broken` if the device no longer answers sensibly.
#[interface]
pub trait Link {
    /// The card's address: 48 bits, the first byte on top. Errors: none of its own. May be repeated.
    fn address(&self) -> Result<u64, Error>;
    /// Sets the thread that is interrupted when frames have come that have not been taken, and when there is room again
    /// to send; it replaces an earlier one. Takes effect with the next request that sends or receives. Errors:
    /// `NoMemory`. May be repeated.
    fn tell(&self, thread: &RefAt) -> Result<(), Error>;
    /// Sends a batch. Returns how many of its frames the card has taken, in their order, and whether frames have come.
    /// If it has not taken all, there was no room, and the thread is interrupted when there is some; if none have come,
    /// the thread is interrupted when some have. Errors: `Invalid` for a frame that is longer than [`FRAME`] or empty;
    /// all frames before it were taken. Must not be repeated.
    #[once]
    fn send(&self, batch: &[u8]) -> Result<(u64, bool), Error>;
    /// Takes received frames, as a batch, which may be empty. The thread is interrupted when there are more, at once if
    /// there are. Errors: `Invalid` if there is no room for a frame. May be repeated; the frames of a lost reply are
    /// lost.
    fn receive(&self) -> Result<Bytes, Error>;
    /// Waits for ever: it fails when the session ends, so that a client whose thread is otherwise only interrupted
    /// learns that the driver is gone. Errors: none of its own. May be repeated.
    async fn ended(&self) -> Result<(), Error>;
}

/// Appends a frame to a batch.
pub fn push(batch: &mut Vec<u8>, frame: &[u8]) {
    batch.extend_from_slice(&(frame.len() as u16).to_le_bytes());
    batch.extend_from_slice(frame);
}

/// The frames of a batch. Bytes behind the last whole frame are ignored.
pub fn frames(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    core::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (frame, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
        rest = behind;
        Some(frame)
    })
}
