//! The queue of bytes that wait to be sent.

use alloc::collections::VecDeque;

/// Most waiting bytes.
const CAPACITY: usize = 16 * 1024;
/// Room kept free for echo, so that typing shows even when a program fills the queue.
const RESERVE: usize = 1024;

/// A queue of output. Bytes pass unchanged. Lines end in NL alone; the host's side adds the carriage
/// return for a terminal.
#[derive(Debug)]
pub struct Output {
    queue: VecDeque<u8>,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Output {
            queue: VecDeque::with_capacity(CAPACITY),
        }
    }

    /// Takes as many bytes as there is room for; returns how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for &byte in bytes {
            if self.is_full() {
                break;
            }
            self.queue.push_back(byte);
            taken += 1;
        }
        taken
    }

    /// Takes bytes of echo, or drops them when there is no room at all.
    pub(crate) fn echo(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.queue.len() == CAPACITY {
                return;
            }
            self.queue.push_back(byte);
        }
    }

    /// The next byte to send.
    pub fn pop(&mut self) -> Option<u8> {
        self.queue.pop_front()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether programs have to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= CAPACITY - RESERVE
    }
}
