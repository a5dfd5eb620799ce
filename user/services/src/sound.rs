//! Sound, as the drivers of sound cards offer it: samples that are given ahead of time, and played one after the other.
//!
//! Every client may play, one session at a time: a session that has begun has the card until it ends. Samples of all
//! channels follow each other, those of 16 bits with the lower byte first: a *frame* has one of each channel. The
//! driver keeps about half a second of them, at most 64 KB, and begins to play when it has that much, or at
//! [`Sound::drain`]. If a client is late there is a gap in the sound.
//!
//! When the driver dies its sessions end, and the samples that it had are lost. The crate `fermata-sound` keeps samples
//! that were not played, and gives them to the next driver.
use interface::{interface, plain, Error};

/// Most bytes of a [`Sound::write`].
pub const MOST: usize = 32 * 1024;

plain! {
    /// The format of a sample.
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

/// A sound card. Any request: `Broken` if the device no longer answers sensibly; if it only does not answer, the driver
/// waits.
#[interface]
pub trait Sound {
    /// Takes the card for this session: `rate` frames a second, of `channels` channels. Samples that the session wrote
    /// before are lost, and if the request is refused the session has no card. Errors: `Exists` while another session
    /// has it; `Unsupported` if the card cannot do this; `NoMemory`. May be repeated.
    fn begin(&self, rate: u64, channels: u64, format: Format) -> Result<(), Error>;
    /// Gives the card whole frames. Returns how many bytes it has taken; there is no room for the others. Errors:
    /// `Invalid` if these are not whole frames, or more than [`MOST`] bytes, or if the session has not begun. Must not
    /// be repeated.
    #[once]
    fn write(&self, samples: &[u8]) -> Result<u64, Error>;
    /// Bytes that were played since the session began. Errors: `Invalid` if it has not. May be repeated.
    fn played(&self) -> Result<u64, Error>;
    /// Waits until there is room. Errors: `Invalid` if the session has not begun. May be repeated.
    async fn room(&self) -> Result<(), Error>;
    /// Plays all samples that were written, and waits until they were played. Errors: `Invalid` if the session has not
    /// begun. May be repeated.
    async fn drain(&self) -> Result<(), Error>;
}
