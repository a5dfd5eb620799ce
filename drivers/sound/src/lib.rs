//! A client of sound cards that outlives their drivers.
//!
//! [`Player`] keeps every sample until it was played. When the driver dies, its session ends; the client opens a
//! session with the next driver and gives it what was not played yet. The caller only sees a slow call. The listener
//! hears a gap, or what was played just before once more: no sample is left out. How much is kept is bounded by what
//! a driver keeps.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod system;
pub mod tone;
pub mod wav;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proto::Error;
use services::sound::{Format, MOST};
pub use system::{why, System};

/// The kind of samples: frames a second, channels, and the format of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Frames a second.
    pub rate: u64,
    /// Channels.
    pub channels: u64,
    /// The format of a sample.
    pub format: Format,
}

impl Kind {
    /// Bytes of a frame.
    #[must_use]
    pub fn frame(self) -> usize {
        (self.channels.saturating_mul(self.format.bytes())).max(1) as usize
    }
}

/// A session with a driver: the methods of [`services::sound::Sound`].
pub trait Session {
    /// Takes the card.
    fn begin(&mut self, kind: Kind) -> Result<(), Error>;
    /// Gives the card frames. Returns how many bytes it has taken.
    fn write(&mut self, samples: &[u8]) -> Result<u64, Error>;
    /// Bytes that were played.
    fn played(&mut self) -> Result<u64, Error>;
    /// Waits until there is room.
    fn room(&mut self) -> Result<(), Error>;
    /// Waits until all was played.
    fn drain(&mut self) -> Result<(), Error>;
}

/// Opens sessions, with one driver after the other.
pub trait Cards {
    /// A session.
    type Session: Session;
    /// Opens a session with the present driver; waits for a driver for as long as it makes sense.
    fn open(&mut self) -> Result<Self::Session, Error>;
}

/// The card is given up after so many losses of a session without a sample being played in between, or when it has
/// announced room and taken nothing as often.
const LOSSES: u32 = 1000;

/// A client that plays, independent of which driver serves the card.
#[derive(Debug)]
pub struct Player<C: Cards> {
    cards: C,
    kind: Kind,
    session: Option<C::Session>,
    /// Samples that may not have been played.
    kept: VecDeque<u8>,
    /// How many of these bytes the driver has.
    given: usize,
    /// Bytes that the session has played and that are not kept any more.
    forgotten: u64,
    losses: u32,
    /// How often the card announced room and took nothing without a sample being played in between.
    refusals: u32,
}

impl<C: Cards> Player<C> {
    /// Takes the card.
    ///
    /// # Errors
    /// `NotFound` if there is no card, `Exists` if another client plays, `Unsupported` if the card cannot play this
    /// kind.
    pub fn begin(cards: C, kind: Kind) -> Result<Self, Error> {
        let mut player = Player {
            cards,
            kind,
            session: None,
            kept: VecDeque::new(),
            given: 0,
            forgotten: 0,
            losses: 0,
            refusals: 0,
        };
        player.ask(|_| Ok(()))?;
        Ok(player)
    }

    /// Calls `ask` with the session, and with another session if that one is lost.
    fn ask<T>(
        &mut self,
        mut ask: impl FnMut(&mut C::Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let answer = match &mut self.session {
                Some(session) => ask(session),
                None => {
                    // `open` has waited for a driver already.
                    let mut session = self.cards.open()?;
                    match session.begin(self.kind) {
                        Ok(()) => {
                            self.session = Some(session);
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            match answer {
                Err(Error::Broken) => self.lose()?,
                answer => return answer,
            }
        }
    }

    /// The session is lost: the next one must be given everything that is kept.
    fn lose(&mut self) -> Result<(), Error> {
        self.session = None;
        self.given = 0;
        self.forgotten = 0;
        self.losses += 1;
        match self.losses > LOSSES {
            true => Err(Error::Broken),
            false => Ok(()),
        }
    }

    /// Counts that the card announced room and took nothing.
    fn refuse(&mut self) -> Result<(), Error> {
        self.refusals += 1;
        match self.refusals > LOSSES {
            true => Err(Error::Broken),
            false => Ok(()),
        }
    }

    /// Drops the samples that were played.
    fn forget(&mut self) -> Result<(), Error> {
        let played = self.ask(Session::played)?;
        let more = played.saturating_sub(self.forgotten);
        // A driver that reports more played than it was given is wrong; only what it was given can count as played.
        let more = usize::try_from(more).map_or(self.given, |more| more.min(self.given));
        if more > 0 {
            self.losses = 0;
            self.refusals = 0;
        }
        self.kept.drain(..more);
        self.given -= more;
        self.forgotten += more as u64;
        Ok(())
    }

    /// Gives the driver one piece of what it does not have. Returns whether it has all.
    fn give(&mut self) -> Result<bool, Error> {
        if self.given == self.kept.len() {
            return Ok(true);
        }
        let most = MOST / self.kind.frame() * self.kind.frame();
        let piece: Vec<u8> = self.kept.range(self.given..).take(most).copied().collect();
        let session = self.session.as_mut().ok_or(Error::Broken);
        match session.and_then(|session| session.write(&piece)) {
            // If the session is lost meanwhile, the next one has room for everything.
            Ok(0) => match self.session.as_mut().map(Session::room) {
                Some(Err(Error::Broken)) => self.lose()?,
                Some(Err(error)) => return Err(error),
                // A card that announces room again and again, and takes nothing, is no better than one whose driver
                // ends.
                Some(Ok(())) | None => self.refuse()?,
            },
            Ok(taken) => {
                self.refusals = 0;
                let taken = usize::try_from(taken).unwrap_or(usize::MAX);
                self.given += taken.min(piece.len());
            }
            Err(Error::Broken) => self.lose()?,
            Err(error) => return Err(error),
        }
        // Opens another session, if one is needed.
        self.forget()?;
        Ok(self.given == self.kept.len())
    }

    /// Plays samples after the earlier ones; returns when the driver has them. The bytes of an incomplete frame are
    /// kept until the rest comes.
    ///
    /// # Errors
    /// `Broken` when the card is given up, `NotFound` if it is gone, `Exists` if another client took it when its
    /// driver died.
    pub fn write(&mut self, samples: &[u8]) -> Result<(), Error> {
        for piece in samples.chunks(MOST) {
            self.kept.extend(piece);
            self.give_all()?;
        }
        Ok(())
    }

    /// Gives the driver all whole frames that it does not have.
    fn give_all(&mut self) -> Result<(), Error> {
        let part = self.kept.len() % self.kind.frame();
        let behind: Vec<u8> = self.kept.drain(self.kept.len() - part..).collect();
        let given = loop {
            match self.give() {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.kept.extend(behind);
        given
    }

    /// Waits until all was played.
    ///
    /// # Errors
    /// As [`Player::write`].
    pub fn drain(&mut self) -> Result<(), Error> {
        loop {
            self.give_all()?;
            if self.kept.len() < self.kind.frame() {
                return Ok(());
            }
            match self.session.as_mut().map(Session::drain) {
                // The session may be a new one, which has not played anything yet.
                Some(Ok(())) => {
                    let before = self.kept.len();
                    self.forget()?;
                    if self.kept.len() == before {
                        self.lose()?;
                    }
                }
                Some(Err(Error::Broken)) | None => self.lose()?,
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
