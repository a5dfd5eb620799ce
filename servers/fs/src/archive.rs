//! The members of the boot archive, from the headers that the crate `archive` reads.
//!
//! [`Archive`] iterates over [`Member`]s and borrows their content. Everything that is not a
//! directory, a file, a hard link or a symbolic link is passed over.

use alloc::string::String;
use archive::{Damaged, Header, BLOCK};
use proto::Error;

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

    /// The next member that a file system can have, or `None` at the end.
    fn read(&mut self) -> Result<Option<Member<'a>>, Error> {
        let bad = |_: Damaged| Error::BadFormat;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(block) = rest.first_chunk::<BLOCK>() else {
                // An archive that ends without its two blocks of zeroes is still whole.
                return if rest.is_empty() {
                    Ok(None)
                } else {
                    Err(Error::BadFormat)
                };
            };
            let Some(header) = Header::read(block).map_err(bad)? else {
                return Ok(None);
            };
            let (start, end, next) = header.content(0).ok_or(Error::BadFormat)?;
            let content = rest.get(start as usize..end as usize);
            let content = content.ok_or(Error::BadFormat)?;
            self.at = self.at.saturating_add(next as usize);
            let kind = match header.kind {
                archive::Kind::File => Kind::File(content),
                archive::Kind::Link => Kind::Link(text(header.link)?),
                archive::Kind::Symlink => Kind::Symlink(text(header.link)?),
                archive::Kind::Directory => Kind::Directory,
                archive::Kind::Other => continue,
            };
            let mut path = text(header.prefix)?;
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&text(header.name)?);
            return Ok(Some(Member {
                path,
                kind,
                mode: header.mode,
                uid: header.uid,
                gid: header.gid,
                mtime: header.mtime,
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

fn text(bytes: &[u8]) -> Result<String, Error> {
    core::str::from_utf8(bytes)
        .map(String::from)
        .map_err(|_| Error::BadFormat)
}
