//! The boot archive: a ustar archive in physical memory.

use abi::PAGE_SIZE;

/// A file in the archive.
pub(crate) struct File {
    start: u64,
    /// Bytes.
    pub(crate) size: u64,
}

impl File {
    /// Reads from the file. Beyond its end there are zeros.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let here = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        physical(self.start.wrapping_add(offset), &mut into[..here]);
        into[here..].fill(0);
    }
}

/// Reads physical memory that belongs to users.
fn physical(start: u64, into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        let at = start + done as u64;
        let n = (into.len() - done).min((PAGE_SIZE - at % PAGE_SIZE) as usize);
        let pfn = hal::Pfn((at / PAGE_SIZE) as u32);
        hal::read_bytes(pfn, at % PAGE_SIZE, &mut into[done..done + n]);
        done += n;
    }
}

const BLOCK: u64 = 512;

/// The file with this path, if the archive has it.
pub(crate) fn find(path: &str) -> Option<File> {
    let (start, size) = hal::archive();
    let mut at = 0;
    while at + BLOCK <= size {
        let mut header = [0; BLOCK as usize];
        physical(start + at, &mut header);
        let length = octal(&header[124..136])?;
        let data = at + BLOCK;
        if header[0] == 0 || length > size - data {
            return None;
        }
        let name = text(&header[..100]);
        let plain = name.strip_prefix(b"./").unwrap_or(name) == path.as_bytes();
        if plain && matches!(header[156], b'0' | 0) && header[345] == 0 {
            return Some(File {
                start: start + data,
                size: length,
            });
        }
        at = data + length.next_multiple_of(BLOCK);
    }
    None
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    &field[..end]
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0u64, |value, &b| match b {
        b'0'..=b'7' => Some(value << 3 | u64::from(b - b'0')),
        _ => None,
    })
}
