//! A reader for the boot archive: ustar, as POSIX.1 describes it.
//!
//! [`Archive`] iterates over [`Member`]s and borrows their content. Everything that is not a
//! directory, a file, a hard link or a symbolic link is passed over.

use alloc::string::String;
use proto::Error;

const BLOCK: usize = 512;

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A regular file with its content.
    File(&'a [u8]),
    /// A symbolic link to this target.
    Symlink(String),
    /// Another name of this member.
    Link(String),
}

/// A member of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its path, as it stands in the archive.
    pub path: String,
    /// What it is.
    pub kind: Kind<'a>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of its last change, in seconds.
    pub mtime: u64,
}

/// Iterates over an archive. A damaged archive ends with an error.
#[derive(Clone, Debug)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Archive<'a> {
    /// The archive in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Archive { bytes, at: 0 }
    }

    /// The next member that this reader knows, or `None` at the end.
    fn read(&mut self) -> Result<Option<Member<'a>>, Error> {
        loop {
            let Some(header) = self.bytes.get(self.at..self.at.saturating_add(BLOCK)) else {
                // An archive that ends without its two blocks of zeroes is still whole.
                return if self.at >= self.bytes.len() {
                    Ok(None)
                } else {
                    Err(Error::BadFormat)
                };
            };
            if header.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            if number(&header[148..156])? != checksum(header) || &header[257..262] != b"ustar" {
                return Err(Error::BadFormat);
            }
            let size = usize::try_from(number(&header[124..136])?).map_err(|_| Error::BadFormat)?;
            let start = self.at + BLOCK;
            let end = start.checked_add(size).ok_or(Error::BadFormat)?;
            let content = self.bytes.get(start..end).ok_or(Error::BadFormat)?;
            self.at = end
                .checked_next_multiple_of(BLOCK)
                .ok_or(Error::BadFormat)?;
            let kind = match header[156] {
                b'0' | 0 | b'7' => Kind::File(content),
                b'1' => Kind::Link(text(&header[157..257])?),
                b'2' => Kind::Symlink(text(&header[157..257])?),
                b'5' => Kind::Directory,
                _ => continue,
            };
            let mut path = text(&header[345..500])?;
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&text(&header[..100])?);
            return Ok(Some(Member {
                path,
                kind,
                mode: number(&header[100..108])? as u32 & 0o7777,
                uid: number(&header[108..116])? as u32,
                gid: number(&header[116..124])? as u32,
                mtime: number(&header[136..148])?,
            }));
        }
    }
}

impl<'a> Iterator for Archive<'a> {
    type Item = Result<Member<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read().transpose();
        if matches!(item, Some(Err(_))) {
            self.at = self.bytes.len();
        }
        item
    }
}

/// An octal number, ended by a blank, a zero byte or the end of the field.
fn number(field: &[u8]) -> Result<u64, Error> {
    let digits = field.iter().skip_while(|byte| **byte == b' ');
    let mut value: u64 = 0;
    for byte in digits.take_while(|byte| **byte != b' ' && **byte != 0) {
        if !(b'0'..=b'7').contains(byte) {
            return Err(Error::BadFormat);
        }
        value = value.checked_mul(8).ok_or(Error::BadFormat)? + u64::from(byte - b'0');
    }
    Ok(value)
}

/// Text, ended by a zero byte or the end of the field.
fn text(field: &[u8]) -> Result<String, Error> {
    let end = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    core::str::from_utf8(&field[..end])
        .map(String::from)
        .map_err(|_| Error::BadFormat)
}

/// The sum of the header's bytes, its own field counted as blanks.
fn checksum(header: &[u8]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(&header[..148]) + 8 * u64::from(b' ') + sum(&header[156..])
}
