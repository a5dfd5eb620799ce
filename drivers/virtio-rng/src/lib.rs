//! What the device has, and what it may report of that: the driver's bookkeeping, without a device and tested on the
//! host.
#![no_std]
#![forbid(unsafe_code)]

pub use services::entropy::MOST;

/// The device has reported something impossible: it has to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

/// The one place for random bytes, of [`MOST`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// No client has asked for bytes.
    #[default]
    Free,
    /// The device has it, by this token.
    Given(u16),
    /// So many bytes in it are random, at least one.
    Came(usize),
}

impl Place {
    /// Notes that the device has the place, under this token.
    pub fn give(&mut self, token: u16) {
        *self = Place::Given(token);
    }

    /// Checks that the device can be done with what it was given under this token.
    ///
    /// # Errors
    /// [`Nonsense`]: it was given nothing under it.
    pub fn expects(&self, token: u16) -> Result<(), Nonsense> {
        match *self == Place::Given(token) {
            true => Ok(()),
            false => Err(Nonsense),
        }
    }

    /// Notes that the device is done, and has written so many bytes.
    ///
    /// # Errors
    /// [`Nonsense`]: the device did not have the place, or reports that it has written nothing, or more than there is
    /// room for.
    pub fn done(&mut self, length: u32) -> Result<(), Nonsense> {
        let length = usize::try_from(length).map_err(|_| Nonsense)?;
        match *self {
            Place::Given(_) if (1..=MOST).contains(&length) => {
                *self = Place::Came(length);
                Ok(())
            }
            _ => Err(Nonsense),
        }
    }

    /// Takes the bytes that have come. Returns how many; the place is free again.
    pub fn take(&mut self) -> Option<usize> {
        match *self {
            Place::Came(length) => {
                *self = Place::Free;
                Some(length)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Nonsense, Place, MOST};

    /// A place that the device was given.
    fn given() -> Place {
        let mut place = Place::default();
        place.give(3);
        place
    }

    #[test]
    fn what_came_is_taken_once() {
        for length in [1, 7, MOST] {
            let mut place = given();
            assert_eq!(place.take(), None, "the device has it");
            assert_eq!(place.expects(3), Ok(()));
            assert_eq!(place.done(length as u32), Ok(()));
            assert_eq!(place.take(), Some(length), "{length} bytes");
            assert_eq!(place.take(), None, "bytes that were given come again");
            assert_eq!(place, Place::Free);
        }
    }

    /// A length beyond the place would do harm only if the driver trusted the device.
    #[test]
    fn a_device_that_says_nonsense_is_not_believed() {
        let most = MOST as u32;
        for length in [0, most + 1, 4096, 1 << 31, u32::MAX] {
            let mut place = given();
            let said = place.done(length);
            assert_eq!(said, Err(Nonsense), "a device is hostile: {length} bytes");
            assert_eq!(place.take(), None, "{length} bytes");
        }
    }

    #[test]
    fn a_device_is_done_with_what_it_has_and_once() {
        let place = given();
        for token in [0, 2, 4, 8, u16::MAX] {
            assert_eq!(place.expects(token), Err(Nonsense), "token {token}");
        }
        for mut place in [Place::Free, Place::Came(5)] {
            assert_eq!(place.expects(3), Err(Nonsense), "{place:?}");
            assert_eq!(place.done(5), Err(Nonsense), "{place:?}");
        }
    }
}
