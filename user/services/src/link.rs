//! Networks, as the drivers of network cards offer them: Ethernet frames, many in a message.
//!
//! Frames travel in **batches**: for each its length, two bytes of which the lower one is first, and then its bytes
//! ([`push`], [`frames`]). A batch that goes to a driver or comes from one has at most [`MOST`] frames.
//!
//! Nothing is promised of a frame: it may be lost, on its way through the card or because there is no room for it. A driver
//! keeps no more frames that have come than the card has memory for; while nobody takes them the card drops what comes, which costs
//! nobody anything. When a driver dies so do its sessions, and the frames that it had.
//!
//! Whoever can open a session sees all frames and can send any. The door is the driver's control port; the name alone leads nowhere.
use alloc::vec::Vec;
use interface::{interface, Error};

/// Most bytes of a frame: two addresses, the protocol, and 1,500 bytes.
pub const FRAME: usize = 1514;
/// Most frames of a batch.
pub const MOST: usize = 32;
/// Most bytes of a batch.
pub const BATCH: usize = MOST * (2 + FRAME);

/// The driver of a network card. No request waits but [`Link::ended`]: a client has one thread that sends and receives,
/// and is interrupted when there is something to do. Any request: `Broken` if the device has stopped making sense.
#[interface]
pub trait Link {
    /// The card's address: 48 bits, the first byte on top. Errors: none of its own. May be repeated.
    fn address(&self) -> Result<u64, Error>;
    /// Says which thread is interrupted when frames have come that nobody takes, and when there is room again to send,
    /// instead of the one before. From the next request on that sends or receives. Errors: `NoMemory`. May be repeated.
    fn tell(&self, thread: &RefAt) -> Result<(), Error>;
    /// Sends a batch: how many of its frames the card has taken, in their order; and whether frames have come. If it
    /// has not taken all there is no room, and the thread is interrupted when there is some; if none have come, when
    /// some have. Errors: `Invalid` for a frame that is longer than [`FRAME`] or empty, of which all before it were
    /// taken. Must not be repeated.
    #[once]
    fn send(&self, batch: &[u8]) -> Result<(u64, bool), Error>;
    /// Takes the frames that have come: a batch, which may be empty. The thread is interrupted when there are more, at
    /// once if there are. Errors: `Invalid` if there is no room for a frame. May be repeated, upon which the frames are
    /// lost that were on their way.
    fn receive(&self) -> Result<Bytes, Error>;
    /// Waits until the session is over, which is the only thing that ends this: a client whose thread is only
    /// interrupted hears so that the driver is gone. Errors: none of its own. May be repeated.
    async fn ended(&self) -> Result<(), Error>;
}

/// Appends a frame to a batch.
pub fn push(batch: &mut Vec<u8>, frame: &[u8]) {
    batch.extend_from_slice(&(frame.len() as u16).to_le_bytes());
    batch.extend_from_slice(frame);
}

/// The frames of a batch. What is behind the last whole one is left out.
pub fn frames(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    core::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (frame, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
        rest = behind;
        Some(frame)
    })
}
