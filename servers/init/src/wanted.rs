//! What is wanted of a file that is read for somebody, and who does it: the thread that reads files, or the one that waits
//! for a turn of the programs. That has the same file in its list, at times when something else is wanted of it by now.
use alloc::string::String;
use alloc::vec::Vec;
use proto::Error;

/// What is wanted of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: what was wanted is being done, or is done.
    Nothing,
    /// To open it.
    Open(String),
    /// So many bytes from this offset on.
    Bytes(u64, usize),
    /// That programs have had a turn.
    Turn,
    /// To close it: nobody reads it any more.
    Close,
}

/// A file, of which or for which something is wanted.
#[derive(Debug)]
pub struct State<F> {
    /// What.
    pub wanted: Wanted,
    /// The file, unless it is being asked just now.
    pub file: Option<F>,
    /// What has come.
    pub came: Option<Result<Vec<u8>, Error>>,
}

impl<F> State<F> {
    /// Nothing is wanted yet, and no file is there.
    #[must_use]
    pub const fn new() -> Self {
        State {
            wanted: Wanted::Nothing,
            file: None,
            came: None,
        }
    }

    /// What the thread that reads files has to do, and the file for that.
    pub fn take(&mut self) -> Option<(Wanted, Option<F>)> {
        if matches!(self.wanted, Wanted::Nothing | Wanted::Turn) {
            return None;
        }
        let wanted = core::mem::replace(&mut self.wanted, Wanted::Nothing);
        Some((wanted, self.file.take()))
    }

    /// The programs have had a turn: whether that is what was wanted. All else is the affair of the thread that reads
    /// files: closing one waits for its file system, and nobody who waits for turns waits for that.
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
        // The thread that reads files closes it then.
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
