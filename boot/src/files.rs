//! The boot archive in physical memory.

use abi::PAGE_SIZE;
use archive::{Header, Kind, BLOCK};

/// A file in the archive.
pub(crate) struct File {
    start: u64,
    /// Bytes.
    pub(crate) size: u64,
}

impl File {
    /// Reads from the file. Bytes beyond its end are zeros.
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

/// The file with this path, if the archive has it.
pub(crate) fn find(path: &str) -> Option<File> {
    let (start, size) = hal::archive();
    let mut at = 0;
    while at + BLOCK as u64 <= size {
        let mut block = [0; BLOCK];
        physical(start + at, &mut block);
        let header = Header::read(&block).ok()??;
        let (content, end, next) = header.content(at)?;
        if end > size {
            return None;
        }
        let name = header.name.strip_prefix(b"./").unwrap_or(header.name);
        if header.kind == Kind::File && header.prefix.is_empty() && name == path.as_bytes() {
            return Some(File {
                start: start + content,
                size: header.size,
            });
        }
        at = next;
    }
    None
}
