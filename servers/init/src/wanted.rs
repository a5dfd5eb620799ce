//! The request of a future to a file that it reads, and which thread carries it out: the one that reads files, or the
//! one that waits for turns of the programs. The latter can have the file in its list when the request has already been
//! replaced by another.
use alloc::string::String;
use alloc::vec::Vec;
use proto::Error;

/// A request concerning a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: the last request is being carried out, or is done.
    Nothing,
    /// To open the file at this path.
    Open(String),
    /// To read this many bytes (second field) from this offset (first field) on.
    Bytes(u64, usize),
    /// To wait until programs have had a turn.
    Turn,
    /// To close the file: nobody reads it any more.
    Close,
}

/// A file, the request to it, and the result.
#[derive(Debug)]
pub struct State<F> {
    /// The request.
    pub wanted: Wanted,
    /// The file; `None` before it is open and while the thread works on it.
    pub file: Option<F>,
    /// The result of the last request.
    pub came: Option<Result<Vec<u8>, Error>>,
}

impl<F> State<F> {
    /// The state of a file that is not open, without a request.
    #[must_use]
    pub const fn new() -> Self {
        State {
            wanted: Wanted::Nothing,
            file: None,
            came: None,
        }
    }

    /// Takes the request for the thread that reads files, and the file with it. `None` if there is no request for that
    /// thread.
    pub fn take(&mut self) -> Option<(Wanted, Option<F>)> {
        if matches!(self.wanted, Wanted::Nothing | Wanted::Turn) {
            return None;
        }
        let wanted = core::mem::replace(&mut self.wanted, Wanted::Nothing);
        Some((wanted, self.file.take()))
    }

    /// Completes a request for a turn. Returns whether that was the request. All other requests are left to the thread
    /// that reads files, since closing a file waits for its file system, which futures that wait for turns must not.
    pub fn turn(&mut self) -> bool {
        let is_wanted = self.wanted == Wanted::Turn;
        if is_wanted {
            self.wanted = Wanted::Nothing;
            self.came = Some(Ok(Vec::new()));
        }
        is_wanted
    }
}

impl<F> Default for State<F> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{State, Wanted};

    const RULE: &str = "S4: who waits for a turn waits for no file system";

    #[test]
    fn a_turn_closes_no_file() {
        let mut state = State {
            file: Some(7),
            ..State::new()
        };
        for wanted in [Wanted::Close, Wanted::Bytes(4096, 10), Wanted::Nothing] {
            state.wanted = wanted;
            assert!(!state.turn(), "{RULE}");
            assert_eq!(state.file, Some(7), "{RULE}");
        }
        // Only the thread that reads files closes the file.
        state.wanted = Wanted::Close;
        let taken = state.turn().then(|| state.take());
        assert_eq!(taken, None, "{RULE}");
        assert_eq!(state.take(), Some((Wanted::Close, Some(7))), "{RULE}");
        assert_eq!((state.take(), state.came), (None, None));
    }

    #[test]
    fn a_turn_that_is_wanted_is_told_once() {
        let mut state = State {
            file: Some(7),
            wanted: Wanted::Turn,
            came: None,
        };
        assert_eq!(state.take(), None, "the other thread has no turns");
        assert!(state.turn() && !state.turn());
        assert_eq!((state.file, state.came), (Some(7), Some(Ok(alloc::vec![]))));
    }
}
