//! Sound, as the drivers of sound cards offer it: samples that are given ahead of time, and played one after the other.
//!
//! Everybody may play, one session at a time: whoever has begun has the card until its session ends. Samples of all
//! channels follow each other, those of 16 bits with the lower byte first: a *frame* has one of each channel. The
//! driver keeps about half a second of them, at most 64 KB, and begins to play when it has that much, or is told to
//! ([`Sound::drain`]). A client that is late is heard as a gap.
//!
//! When the driver dies so do its sessions, and what it had. The crate `fermata-sound` keeps what was not played, and
//! gives it to the driver that follows.
use interface::{interface, plain, Error};

/// Most bytes of a [`Sound::write`].
pub const MOST: usize = 32 * 1024;

plain! {
    /// What a sample is.
    pub enum Format {
        /// A byte, of which 128 is silence.
        U8 = 0,
        /// Two bytes, with a sign.
        S16 = 1,
    }
}

impl Format {
    /// Bytes of a sample.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Format::U8 => 1,
            Format::S16 => 2,
        }
    }
}

/// A sound card. Any request: `Broken` if the device has stopped making sense; one that only is silent is waited for.
#[interface]
pub trait Sound {
    /// Takes the card for this session: so many frames a second, of so many channels. What the session had written is
    /// lost, and if this is refused the session has no card. Errors: `Exists` while another session has it;
    /// `Unsupported` if the card cannot do this; `NoMemory`. May be repeated.
    fn begin(&self, rate: u64, channels: u64, format: Format) -> Result<(), Error>;
    /// Gives the card whole frames: how many bytes of them it has taken; there is no room for the others. Errors:
    /// `Invalid` if these are not whole frames, or more than [`MOST`] bytes, or if the session has not begun. Must not
    /// be repeated.
    #[once]
    fn write(&self, samples: &[u8]) -> Result<u64, Error>;
    /// Bytes that were played since the session began. Errors: `Invalid` if it has not. May be repeated.
    fn played(&self) -> Result<u64, Error>;
    /// Waits until there is room. Errors: `Invalid` if the session has not begun. May be repeated.
    async fn room(&self) -> Result<(), Error>;
    /// Plays what it was given, and waits until that was played. Errors: `Invalid` if the session has not begun. May be repeated.
    async fn drain(&self) -> Result<(), Error>;
}
