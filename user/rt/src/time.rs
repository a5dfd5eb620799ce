//! Time on the space's clock, and the date.
pub use base::time::*;

use proto::Error;

/// The date: nanoseconds since the beginning of 1970, UTC. `NotFound` if the machine does not know it.
pub fn date() -> Result<u64, Error> {
    crate::names::init().date()
}

/// The difference between the date and [`now`]; 0 if the machine does not know the date. For servers only: they are
/// never restored, so it is constant.
#[must_use]
pub fn origin() -> u64 {
    date().map_or(0, |date| date.saturating_sub(now()))
}
