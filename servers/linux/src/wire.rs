//! Linux structures as bytes: a writer that appends fields and a reader that takes them off.

use alloc::vec::Vec;

/// Bytes that a new writer has room for; most structures have no more.
const ROOM: usize = 144;

/// Builds a structure field by field.
pub struct Writer {
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// An empty structure.
    #[must_use]
    pub fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// An empty structure with room for so many bytes.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        Writer {
            bytes: Vec::with_capacity(room),
        }
    }

    /// Appends raw bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends two bytes.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends zeros until the structure has `size` bytes.
    #[must_use]
    pub fn pad_to(mut self, size: usize) -> Self {
        self.bytes.resize(size.max(self.bytes.len()), 0);
        self
    }

    /// The bytes of the structure.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }
}

/// The four bytes at `at`; 0 beyond the end.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    field::<4>(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The two bytes at `at`; 0 beyond the end.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    field::<2>(bytes, at).map_or(0, u16::from_le_bytes)
}

/// The eight bytes at `at`; 0 beyond the end.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    field::<8>(bytes, at).map_or(0, u64::from_le_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
