//! The machine's sound card.
use crate::{Cards, Kind, Player, Session};
use proto::Error;
use rt::{names, time};
use services::sound::SoundClient;

/// How long to wait for a driver, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
/// How long to pause between two attempts, in nanoseconds.
const PAUSE: u64 = 200_000;

/// Opens sessions with the drivers of the card, by its name.
#[derive(Debug)]
pub struct System;

impl Player<System> {
    /// Takes the machine's card.
    ///
    /// # Errors
    /// As [`Player::begin`].
    pub fn system(kind: Kind) -> Result<Self, Error> {
        names::lookup("sound")
            .map(drop)
            .or_else(|error| match error {
                // The driver is being started.
                Error::Broken => Ok(()),
                error => Err(error),
            })?;
        Player::begin(System, kind)
    }
}

/// A sentence for the user that says why nothing can be played.
#[must_use]
pub fn why(error: Error) -> &'static str {
    match error {
        Error::NotFound => "there is no sound card: run --driver sb16",
        Error::Exists => "somebody else plays",
        Error::Unsupported => "the card cannot play that",
        error => error.text(),
    }
}

impl Cards for System {
    type Session = SoundClient;

    fn open(&mut self) -> Result<SoundClient, Error> {
        let deadline = time::now() + PATIENCE;
        loop {
            // Between two drivers the name is known, and leads nowhere or to a port that is gone. When no driver is
            // to come any more, the name is unknown.
            let session = names::lookup("sound").and_then(|door| SoundClient::open_known(&door));
            match session {
                Err(Error::Broken) if time::now() < deadline => {
                    time::sleep(PAUSE);
                }
                session => return session,
            }
        }
    }
}

impl Session for SoundClient {
    fn begin(&mut self, kind: Kind) -> Result<(), Error> {
        SoundClient::begin(self, kind.rate, kind.channels, kind.format)
    }

    fn write(&mut self, samples: &[u8]) -> Result<u64, Error> {
        SoundClient::write(self, samples)
    }

    fn played(&mut self) -> Result<u64, Error> {
        SoundClient::played(self)
    }

    fn room(&mut self) -> Result<(), Error> {
        SoundClient::room(self)
    }

    fn drain(&mut self) -> Result<(), Error> {
        SoundClient::drain(self)
    }
}
