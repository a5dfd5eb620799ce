//! The members of the boot archive, in the form that the file system needs.
//!
//! [`Archive`] iterates over [`Member`]s and borrows their content. Everything that is not a
//! directory, a file, a hard link or a symbolic link is skipped.

use alloc::string::String;
use archive::{Damaged, Members};
use proto::Error;

/// The kind of a member.
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
    /// Its path, as it is in the archive.
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
pub struct Archive<'a>(Members<'a>);

impl<'a> Archive<'a> {
    /// The archive in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Archive(Members::new(bytes))
    }
}

/// Converts a member; `None` if the file system cannot have it.
fn member<'a>(member: archive::Member<'a>) -> Result<Option<Member<'a>>, Error> {
    let archive::Member { header, content } = member;
    let kind = match header.kind {
        archive::Kind::File => Kind::File(content),
        archive::Kind::Link => Kind::Link(text(header.link)?),
        archive::Kind::Symlink => Kind::Symlink(text(header.link)?),
        archive::Kind::Directory => Kind::Directory,
        archive::Kind::Other => return Ok(None),
    };
    let mut path = text(header.prefix)?;
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(&text(header.name)?);
    Ok(Some(Member {
        path,
        kind,
        mode: header.mode,
        uid: header.uid,
        gid: header.gid,
        mtime: header.mtime,
    }))
}

impl<'a> Iterator for Archive<'a> {
    type Item = Result<Member<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.0.next()?.map_err(|Damaged| Error::BadFormat);
            if let Some(item) = next.and_then(member).transpose() {
                // Bytes behind an invalid member cannot be read either.
                if item.is_err() {
                    self.0 = Members::new(&[]);
                }
                return Some(item);
            }
        }
    }
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    core::str::from_utf8(bytes)
        .map(String::from)
        .map_err(|_| Error::BadFormat)
}
