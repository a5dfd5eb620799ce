//! Physical memory in chunks.
//!
//! A chunk is 16 frames, aligned to its size, and belongs to one place in one segment, or by copy on
//! write to several. One chunk needs one mapping object, which grows as its pages are touched: so
//! kernel memory stays at one object for 64 KB.
use alloc::vec::Vec;

pub use proto::layout::CHUNK;

/// Pages of a chunk.
pub const PAGES: u64 = CHUNK / abi::PAGE_SIZE;

/// Names a chunk; not its address.
pub type Index = u32;

/// The chunks of the machine.
#[derive(Debug, Default)]
pub struct Chunks {
    /// Physical addresses.
    addresses: Vec<u64>,
    /// How many places use each; 0: free.
    users: Vec<u32>,
    free: Vec<Index>,
}

impl Chunks {
    /// No chunks.
    #[must_use]
    pub const fn new() -> Self {
        Chunks {
            addresses: Vec::new(),
            users: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds the whole chunks of a range of physical memory.
    pub fn add(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        let Some(mut at) = start.checked_next_multiple_of(CHUNK) else {
            return;
        };
        while at.checked_add(CHUNK).is_some_and(|next| next <= end) {
            self.free.push(self.addresses.len() as Index);
            self.addresses.push(at);
            self.users.push(0);
            at += CHUNK;
        }
    }

    /// Sorts the free chunks, so that the lowest is taken first.
    pub fn finish(&mut self) {
        self.free.reverse();
    }

    /// Number of chunks.
    #[must_use]
    pub fn total(&self) -> usize {
        self.addresses.len()
    }

    /// Number of free chunks.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a chunk, with one user.
    pub fn allocate(&mut self) -> Option<Index> {
        let index = self.free.pop()?;
        self.users[index as usize] = 1;
        Some(index)
    }

    /// Physical address of a chunk.
    #[must_use]
    pub fn address(&self, index: Index) -> u64 {
        self.addresses[index as usize]
    }

    /// Whether more than one place uses it.
    #[must_use]
    pub fn is_shared(&self, index: Index) -> bool {
        self.users[index as usize] > 1
    }

    /// Adds a place that uses it.
    pub fn share(&mut self, index: Index) {
        self.users[index as usize] += 1;
    }

    /// Removes a place that uses it. Returns whether that was the last. The caller then clears it and calls
    /// [`Chunks::release`].
    #[must_use]
    pub fn leave(&mut self, index: Index) -> bool {
        let users = &mut self.users[index as usize];
        *users = users.saturating_sub(1);
        *users == 0
    }

    /// Makes a cleared chunk without users free.
    pub fn release(&mut self, index: Index) {
        debug_assert_eq!(self.users[index as usize], 0);
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunks, CHUNK};

    #[test]
    fn only_whole_chunks_count() {
        let mut chunks = Chunks::new();
        chunks.add(0x1000, 2 * CHUNK);
        chunks.add(0x100_0000, CHUNK - 1);
        chunks.add(u64::MAX - 10, 10);
        assert_eq!(chunks.total(), 1);
        chunks.finish();
        let index = chunks.allocate().unwrap();
        assert_eq!(chunks.address(index), CHUNK);
        assert_eq!(chunks.allocate(), None);
    }

    #[test]
    fn a_chunk_is_free_when_its_last_user_leaves() {
        let mut chunks = Chunks::new();
        chunks.add(0, 2 * CHUNK);
        chunks.finish();
        let a = chunks.allocate().unwrap();
        chunks.share(a);
        assert!(chunks.is_shared(a));
        assert!(!chunks.leave(a));
        assert!(!chunks.is_shared(a));
        assert!(chunks.leave(a));
        assert_eq!(chunks.free(), 1);
        chunks.release(a);
        assert_eq!(chunks.free(), 2);
    }
}
