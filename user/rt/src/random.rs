//! Random bytes that are good for secrets.
use crate::session::{Door, Kept};
use proto::Error;
use services::random::{RandomClient, MOST};

static DOOR: Door = Door::new("random");
static SESSION: Kept<RandomClient> = Kept::new(&DOOR, RandomClient::open_as, RandomClient::session);

/// Whether the bytes of [`fill`] are good for secrets, and how many pieces of a device's bytes have gone into the
/// generator's key.
pub fn state() -> Result<(bool, u64), Error> {
    SESSION.ask(RandomClient::state)
}

/// Fills `into` with bytes that nobody else has. Two programs restored from one image get different bytes.
pub fn fill(into: &mut [u8]) -> Result<(), Error> {
    for piece in into.chunks_mut(MOST) {
        let came = SESSION.ask(|random| random.bytes(piece))?;
        if came != piece.len() {
            return Err(Error::Broken);
        }
    }
    Ok(())
}
