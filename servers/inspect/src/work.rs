//! What takes long: each is done by a thread of its own, so that nobody who looks waits for it, and everybody sees how far it is.
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;

/// Most of it at a time: each takes a thread, and a session with the checkpointer.
pub const MOST: usize = 4;
/// How much is remembered of what is over.
const KEPT: usize = 4;

/// Something that takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Its number, which no other one has.
    pub number: u32,
    /// What is done, in words.
    pub what: String,
    /// `going on`, `done` or `failed`.
    pub stage: &'static str,
    /// What came of it; nothing while it goes on.
    pub said: String,
}

/// What goes on, and what was done last.
#[derive(Debug, Default)]
pub struct Works {
    list: Vec<Work>,
    last: u32,
}

const GOING_ON: &str = "going on";

impl Works {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Works {
            list: Vec::new(),
            last: 0,
        }
    }

    /// Something begins: its number.
    ///
    /// # Errors
    /// A sentence if there is too much of it already.
    pub fn begin(&mut self, what: &str) -> Result<u32, String> {
        let going_on = self.list.iter().filter(|work| work.stage == GOING_ON);
        if going_on.count() >= MOST {
            return Err(
                "So much is being saved and restored that this has to wait: ask again.".to_string(),
            );
        }
        self.last = self.last.wrapping_add(1);
        self.list.push(Work {
            number: self.last,
            what: what.to_string(),
            stage: GOING_ON,
            said: String::new(),
        });
        Ok(self.last)
    }

    /// It is over: what came of it.
    pub fn over(&mut self, number: u32, result: Result<String, String>) {
        let work = self.list.iter_mut().find(|work| work.number == number);
        if let Some(work) = work {
            (work.stage, work.said) = match result {
                Ok(said) => ("done", said),
                Err(why) => ("failed", why),
            };
        }
        let is_over = |work: &Work| work.stage != GOING_ON;
        let over = self.list.iter().filter(|work| is_over(work)).count();
        if let (true, Some(oldest)) = (over > KEPT, self.list.iter().position(is_over)) {
            self.list.remove(oldest);
        }
    }

    /// It never began.
    pub fn forget(&mut self, number: u32) {
        self.list.retain(|work| work.number != number);
    }

    /// All that is known of, what began first in front.
    #[must_use]
    pub fn list(&self) -> &[Work] {
        &self.list
    }
}
