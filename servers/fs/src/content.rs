//! The bytes of a regular file: a sparse list of chunks.
//!
//! [`Content`] keeps only chunks that were written. A chunk that came with the boot archive is borrowed from it
//! ([`Chunk::Borrowed`]) until a client writes to it. Every byte of memory is taken from a [`Budget`] before it is
//! allocated, so that a full file system is an error and never ends the server.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proto::Error;

/// Bytes of a chunk. Appending touches at most one existing chunk.
pub const CHUNK: u64 = services::fs::PIECE;
/// Largest size of a file, in bytes.
pub const MAX_SIZE: u64 = 1 << 46;
/// Bytes that a chunk costs besides its content, for its place in the index.
const CHUNK_OVERHEAD: u64 = 64;
/// Smallest allocation for a chunk.
const SMALLEST: usize = 64;
/// The same for a chunk that is not a file's first, so that a sparse file has no more chunks than one request can free.
/// The heap can give blocks of this size back.
const SMALLEST_FURTHER: usize = 16 << 10;

/// Memory that may still be allocated.
#[derive(Debug)]
pub struct Budget {
    left: u64,
    used: u64,
}

impl Budget {
    /// A budget of `left` bytes.
    #[must_use]
    pub const fn new(left: u64) -> Self {
        Budget { left, used: 0 }
    }

    /// Sets how much may still be allocated.
    pub fn set_left(&mut self, left: u64) {
        self.left = left;
    }

    /// Bytes that may still be allocated.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Bytes that are allocated.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Takes `bytes`, or refuses.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or(Error::NoMemory)?;
        self.used += bytes;
        Ok(())
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
        self.used = self.used.saturating_sub(bytes);
    }
}

/// A piece of a file. Behind its bytes it reads as zero.
#[derive(Debug)]
enum Chunk {
    /// Part of the boot archive.
    Borrowed(&'static [u8]),
    /// Written since.
    Owned(Vec<u8>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Borrowed(bytes) => bytes,
            Chunk::Owned(bytes) => bytes,
        }
    }

    /// What it costs.
    fn cost(&self) -> u64 {
        CHUNK_OVERHEAD
            + match self {
                Chunk::Borrowed(_) => 0,
                Chunk::Owned(bytes) => bytes.capacity() as u64,
            }
    }

    /// Makes the chunk writable, with room for `end` bytes, and takes the cost from the budget.
    fn own(&mut self, end: usize, budget: &mut Budget) -> Result<&mut Vec<u8>, Error> {
        let held = match self {
            Chunk::Borrowed(bytes) => bytes.len(),
            Chunk::Owned(bytes) => bytes.capacity(),
        };
        let owned = matches!(self, Chunk::Owned(_));
        if !owned || held < end {
            let capacity = held
                .max(end)
                .max(SMALLEST)
                .next_power_of_two()
                .min(CHUNK as usize);
            let old = if owned { held as u64 } else { 0 };
            budget.take(capacity as u64 - old)?;
            let mut bytes = Vec::new();
            if bytes.try_reserve_exact(capacity).is_err() {
                budget.give(capacity as u64 - old);
                return Err(Error::NoMemory);
            }
            bytes.extend_from_slice(self.bytes());
            // An allocator may return more than was asked for.
            let given = bytes.capacity() as u64;
            budget.used += given - capacity as u64;
            *self = Chunk::Owned(bytes);
        }
        match self {
            Chunk::Owned(bytes) => Ok(bytes),
            Chunk::Borrowed(_) => Err(Error::Broken),
        }
    }
}

/// The bytes of a file.
#[derive(Debug, Default)]
pub struct Content {
    size: u64,
    chunks: BTreeMap<u64, Chunk>,
}

impl Content {
    /// Content borrowed from the boot archive.
    pub(crate) fn borrowed(bytes: &'static [u8], budget: &mut Budget) -> Result<Self, Error> {
        let mut content = Content::default();
        for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate() {
            budget.take(CHUNK_OVERHEAD)?;
            content.chunks.insert(index as u64, Chunk::Borrowed(chunk));
        }
        content.size = bytes.len() as u64;
        Ok(content)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The bytes at `offset`, at most `length`; without a copy if they are in one chunk.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Cow<'_, [u8]> {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return Cow::Borrowed(&[]);
        }
        let piece = self.chunks.get(&(offset / CHUNK)).and_then(|chunk| {
            let start = (offset % CHUNK) as usize;
            chunk.bytes().get(start..start + (end - offset) as usize)
        });
        piece.map_or_else(|| Cow::Owned(self.gather(offset, end)), Cow::Borrowed)
    }

    /// The stored bytes of the chunk with this offset.
    pub(crate) fn chunk_at(&self, offset: u64) -> &[u8] {
        self.chunks.get(&(offset / CHUNK)).map_or(&[], Chunk::bytes)
    }

    /// The bytes from `at` to `end`, in several chunks or with holes.
    fn gather(&self, mut at: u64, end: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity((end - at) as usize);
        while at < end {
            let start = (at % CHUNK) as usize;
            let count = (CHUNK - at % CHUNK).min(end - at) as usize;
            let done = out.len();
            if let Some(chunk) = self.chunks.get(&(at / CHUNK)) {
                let bytes = chunk.bytes();
                let from = start.min(bytes.len());
                let to = (start + count).min(bytes.len());
                out.extend_from_slice(&bytes[from..to]);
            }
            out.resize(done + count, 0);
            at += count as u64;
        }
        out
    }

    /// Writes `bytes` at `offset`; returns how many of them, fewer only if memory ran out meanwhile.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Result<usize, Error> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(Error::Invalid)?;
        if end > MAX_SIZE {
            return Err(Error::Invalid);
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let start = (at % CHUNK) as usize;
            let count = (CHUNK as usize - start).min(bytes.len() - done);
            match self.chunk(at / CHUNK, start + count, budget) {
                Ok(chunk) => {
                    let piece = &bytes[done..done + count];
                    if chunk.len() < start {
                        chunk.resize(start, 0);
                    }
                    // Appended bytes need not be zeroed before. There is room for them.
                    let (over, behind) = piece.split_at(count.min(chunk.len() - start));
                    chunk[start..start + over.len()].copy_from_slice(over);
                    chunk.extend_from_slice(behind);
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += count;
            self.size = self.size.max(at + count as u64);
        }
        Ok(done)
    }

    /// The chunk of that number, writable, with room for `end` bytes.
    fn chunk(
        &mut self,
        index: u64,
        end: usize,
        budget: &mut Budget,
    ) -> Result<&mut Vec<u8>, Error> {
        use alloc::collections::btree_map::Entry;
        match self.chunks.entry(index) {
            Entry::Occupied(chunk) => chunk.into_mut().own(end, budget),
            Entry::Vacant(place) => {
                budget.take(CHUNK_OVERHEAD)?;
                let mut chunk = Chunk::Owned(Vec::new());
                let room = match index {
                    0 => end,
                    _ => end.max(SMALLEST_FURTHER),
                };
                match chunk.own(room, budget) {
                    Ok(_) => place.insert(chunk).own(end, budget),
                    Err(error) => {
                        budget.give(CHUNK_OVERHEAD);
                        Err(error)
                    }
                }
            }
        }
    }

    /// Cuts or extends to `size`.
    pub(crate) fn truncate(&mut self, size: u64, budget: &mut Budget) -> Result<(), Error> {
        if size > MAX_SIZE {
            return Err(Error::Invalid);
        }
        if size < self.size {
            // One by one from the end, since freeing memory must not need any.
            let first = size.div_ceil(CHUNK);
            while let Some(last) = self.chunks.last_entry().filter(|last| *last.key() >= first) {
                budget.give(last.remove().cost());
            }
            let rest = (size % CHUNK) as usize;
            if rest != 0 {
                // Bytes behind the end must read as zero if the file grows again.
                match self.chunks.get_mut(&(size / CHUNK)) {
                    Some(Chunk::Owned(bytes)) => bytes.truncate(rest),
                    Some(Chunk::Borrowed(bytes)) => *bytes = &bytes[..rest.min(bytes.len())],
                    None => {}
                }
            }
        }
        self.size = size;
        Ok(())
    }

    /// Returns all of it to the budget.
    pub(crate) fn release(self, budget: &mut Budget) {
        for chunk in self.chunks.values() {
            budget.give(chunk.cost());
        }
    }
}
