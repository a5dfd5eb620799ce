//! A batch of frames, in memory that is used again: it is neither allocated nor cleared for each batch.

use alloc::vec::Vec;
use core::ops::Range;
use services::link::{BATCH, FRAME};

/// How many bytes of a long frame are cleared before the stack writes it: more than all its headers, in which the stack
/// may leave bytes out. Behind the headers the stack copies the whole payload. And the length up to which a frame is
/// cleared as a whole.
const HEADERS: usize = 128;
const SHORT: usize = 640;

/// Bytes of memory of a batch. A leaving batch can for a moment have one frame more than a driver is given at a time;
/// it is then found that there is no room for that frame.
pub const ROOM: usize = BATCH + 2 + FRAME;

/// A batch in the format of the drivers of cards.
#[derive(Debug, Default)]
pub struct Batch {
    /// The memory; the batch is its first `length` bytes.
    memory: Vec<u8>,
    length: usize,
}

impl Batch {
    /// An empty batch, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Batch {
            memory: Vec::new(),
            length: 0,
        }
    }

    /// The frames, each behind its length.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The same as [`Batch::bytes`], to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }

    /// Whether the batch has no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// The batch's memory, grown to at least `least` bytes, to write frames into; they count after
    /// [`Batch::set_length`].
    pub fn memory(&mut self, least: usize) -> &mut [u8] {
        if self.memory.len() < least {
            self.memory.resize(least, 0);
        }
        &mut self.memory
    }

    /// Makes the first `length` bytes of the memory the frames, at most as many as there are.
    pub fn set_length(&mut self, length: usize) {
        self.length = length.min(self.memory.len());
    }

    /// The position of the frame whose length is at the offset `at`, if the frame is complete.
    pub(crate) fn frame(&self, at: usize) -> Option<Range<usize>> {
        let (length, behind) = self.bytes().get(at..)?.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        (length <= behind.len()).then_some(at + 2..at + 2 + length)
    }

    /// Adds a frame of this length, less than 64 KB, and returns its memory.
    pub(crate) fn push(&mut self, length: usize) -> &mut [u8] {
        let start = self.length;
        self.length += 2 + length;
        let end = self.length;
        // The memory grows to `ROOM` at once, so that it is not more than was reserved.
        self.memory(end.max(ROOM))[start..start + 2]
            .copy_from_slice(&(length as u16).to_le_bytes());
        let frame = &mut self.memory[start + 2..end];
        // The memory may contain somebody else's data.
        let clear = if length <= SHORT { length } else { HEADERS };
        frame[..clear].fill(0);
        frame
    }

    /// The last frame that was pushed, which has this length.
    pub(crate) fn last_mut(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.length - length..self.length]
    }

    /// Removes the last frame that was pushed, which has this length.
    pub(crate) fn take_back(&mut self, length: usize) {
        self.length -= 2 + length;
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, HEADERS, SHORT};
    use services::link;

    /// The headers of new frames contain nothing of what was in the memory before, and drivers can read the frames.
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
        // Lengths that are longer than the batch.
        batch.set_length(100);
        assert_eq!(batch.frame(0), None);
        assert_eq!(batch.frame(99), None);
        assert_eq!(batch.frame(200), None);
    }
}
