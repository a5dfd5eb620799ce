//! A batch of frames, and memory for it that is used again: it is neither taken anew nor cleared for each.

use alloc::vec::Vec;
use core::ops::Range;
use services::link::{BATCH, FRAME};

/// What is cleared of a frame before it is made, and the longest one that is cleared as a whole: all that the stack
/// could leave out of a header, and more. Behind that it copies what was given to it, all of it.
const HEADERS: usize = 128;
const SHORT: usize = 640;

/// Bytes of a batch: one that leaves may have a frame more than drivers are given at a time, of which it is then known
/// that there is no room for it.
pub const ROOM: usize = BATCH + 2 + FRAME;

/// A batch, as drivers of cards take and give them.
#[derive(Debug, Default)]
pub struct Batch {
    /// Memory, of which the batch is the beginning.
    memory: Vec<u8>,
    length: usize,
}

impl Batch {
    /// An empty one, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Batch {
            memory: Vec::new(),
            length: 0,
        }
    }

    /// The frames.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The same, to be altered.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Nothing is in it.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// At least so much memory, where frames may be written; they count from [`Batch::set_length`] on.
    pub fn memory(&mut self, least: usize) -> &mut [u8] {
        if self.memory.len() < least {
            self.memory.resize(least, 0);
        }
        &mut self.memory
    }

    /// So many bytes of the memory are frames; not more than there are.
    pub fn set_length(&mut self, length: usize) {
        self.length = length.min(self.memory.len());
    }

    /// Where the frame stands whose length stands here, if there is a whole one.
    pub(crate) fn frame(&self, at: usize) -> Option<Range<usize>> {
        let (length, behind) = self.bytes().get(at..)?.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        (length <= behind.len()).then_some(at + 2..at + 2 + length)
    }

    /// Room for a frame more, of less than 64 KB.
    pub(crate) fn push(&mut self, length: usize) -> &mut [u8] {
        let start = self.length;
        self.length += 2 + length;
        let end = self.length;
        // All of it at once, so that it is not more than is reserved.
        self.memory(end.max(ROOM))[start..start + 2]
            .copy_from_slice(&(length as u16).to_le_bytes());
        let frame = &mut self.memory[start + 2..end];
        // What stood there may have been for somebody else.
        let clear = if length <= SHORT { length } else { HEADERS };
        frame[..clear].fill(0);
        frame
    }

    /// The last frame that was pushed, of this length.
    pub(crate) fn last_mut(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.length - length..self.length]
    }

    /// Takes back the last frame that was pushed, of this length.
    pub(crate) fn take_back(&mut self, length: usize) {
        self.length -= 2 + length;
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, HEADERS, SHORT};
    use services::link;

    /// What stood in the memory of a batch before stands in none of the headers of the next frames, and frames are as drivers see them.
    #[test]
    fn a_batch_is_used_again() {
        let mut batch = Batch::new();
        batch.push(1500).fill(0x55);
        batch.push(3).copy_from_slice(b"abc");
        let all = link::frames(batch.bytes()).map(<[u8]>::len);
        assert!(all.eq([1500, 3]));
        assert_eq!(batch.frame(0), Some(2..1502));
        assert_eq!(batch.frame(1502), Some(1504..1507));
        assert_eq!(batch.frame(1507), None);
        batch.take_back(3);
        assert_eq!(batch.bytes().len(), 1502);
        batch.clear();
        assert!(batch.is_empty());
        let short = batch.push(SHORT);
        assert!(
            short.iter().all(|byte| *byte == 0),
            "S2: what was another's"
        );
        batch.clear();
        let head = &batch.push(1500)[..HEADERS];
        assert!(head.iter().all(|byte| *byte == 0), "S2: what was another's");
        // A length that says more than there is.
        batch.set_length(100);
        assert_eq!(batch.frame(0), None);
        assert_eq!(batch.frame(99), None);
        assert_eq!(batch.frame(200), None);
    }
}
