//! Long actions. Each is done by a thread of its own, so that no client waits for it, and every client sees how far it
//! is.
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;

/// Most running actions: each takes a thread, and a session with the checkpointer.
pub const MOST: usize = 4;
/// How many finished actions are remembered.
const KEPT: usize = 4;

/// A long action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    /// The action's number, which no other one has.
    pub number: u32,
    /// What the action does, in words.
    pub what: String,
    /// `going on`, `done` or `failed`.
    pub stage: &'static str,
    /// The result in words; empty while the action is going on.
    pub said: String,
}

/// The running actions, and the last finished ones.
#[derive(Debug, Default)]
pub struct Works {
    list: Vec<Work>,
    last: u32,
}

const GOING_ON: &str = "going on";

impl Works {
    /// No actions.
    #[must_use]
    pub const fn new() -> Self {
        Works {
            list: Vec::new(),
            last: 0,
        }
    }

    /// Adds an action and returns its number.
    ///
    /// # Errors
    /// A sentence if [`MOST`] actions are running already.
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

    /// Notes the result of an action.
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

    /// Removes an action that could not be started.
    pub fn forget(&mut self, number: u32) {
        self.list.retain(|work| work.number != number);
    }

    /// All actions that are remembered, in the order in which they began.
    #[must_use]
    pub fn list(&self) -> &[Work] {
        &self.list
    }
}
