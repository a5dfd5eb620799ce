//! Reads the boot archive: ustar, as POSIX.1 describes it (`pax`, "ustar Interchange Format").
//!
//! [`Header::read`] parses one block of an archive and returns the position of the next header. It needs neither a
//! heap nor the archive in one piece: the kernel's image reads the archive page by page. Init and the file system,
//! which have the whole archive, use its [`Members`]. The archive is not trusted; any error in it is returned as
//! [`Damaged`]. Archives are written by the crate `tar`, in `xtask/build`.
#![no_std]
#![forbid(unsafe_code)]

/// Bytes of a block: a header is one block, contents are padded to whole blocks.
pub const BLOCK: usize = 512;

/// The archive does not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file; its content follows the header.
    File,
    /// A symbolic link; [`Header::link`] is its target.
    Symlink,
    /// Another name of the member whose path is [`Header::link`].
    Link,
    /// A kind that Fermata does not have.
    Other,
}

/// The header of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// What it is.
    pub kind: Kind,
    /// The first part of its path, without the slash at the end; often empty.
    pub prefix: &'a [u8],
    /// The rest of its path.
    pub name: &'a [u8],
    /// The target of a link.
    pub link: &'a [u8],
    /// Bytes of content.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of its last change, in seconds since 1970.
    pub mtime: u64,
}

impl<'a> Header<'a> {
    /// The header in this block; `None` if the archive ends here.
    pub fn read(block: &'a [u8; BLOCK]) -> Result<Option<Self>, Damaged> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if number(&block[148..156])? != checksum(block) || &block[257..262] != b"ustar" {
            return Err(Damaged);
        }
        let small = |field: &[u8]| u32::try_from(number(field)?).map_err(|_| Damaged);
        let header = Header {
            kind: match block[156] {
                b'0' | 0 | b'7' => Kind::File,
                b'1' => Kind::Link,
                b'2' => Kind::Symlink,
                b'5' => Kind::Directory,
                _ => Kind::Other,
            },
            prefix: text(&block[345..500]),
            name: text(&block[..100]),
            link: text(&block[157..257]),
            size: number(&block[124..136])?,
            mode: small(&block[100..108])? & 0o7777,
            uid: small(&block[108..116])?,
            gid: small(&block[116..124])?,
            mtime: number(&block[136..148])?,
        };
        header.content(0).ok_or(Damaged)?;
        Ok(Some(header))
    }

    /// Where the content begins and ends and where the next header begins, given where this header begins; `None` if
    /// a position overflows.
    #[must_use]
    pub fn content(&self, at: u64) -> Option<(u64, u64, u64)> {
        let start = at.checked_add(BLOCK as u64)?;
        let end = start.checked_add(self.size)?;
        Some((start, end, end.checked_next_multiple_of(BLOCK as u64)?))
    }
}

/// A member of an archive: its header and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its header.
    pub header: Header<'a>,
    /// Its content; empty if it is no file.
    pub content: &'a [u8],
}

impl Member<'_> {
    /// Whether this is its path, given without a leading slash.
    #[must_use]
    pub fn is_at(&self, path: &str) -> bool {
        let (prefix, name) = (self.header.prefix, self.header.name);
        let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
        let full = prefix.iter().chain(slash).chain(name);
        full.skip_while(|byte| **byte == b'/').eq(path.as_bytes())
    }
}

/// The members of an archive, one after the other. A damaged member is the last.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    /// The members of the archive in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Members { bytes, at: 0 }
    }

    /// Reads the next member; `None` at the end.
    fn read(&mut self) -> Result<Option<Member<'a>>, Damaged> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(block) = rest.first_chunk::<BLOCK>() else {
            // An archive that ends without its two blocks of zeros is still complete.
            return match rest {
                [] => Ok(None),
                _ => Err(Damaged),
            };
        };
        let Some(header) = Header::read(block)? else {
            return Ok(None);
        };
        let (start, end, next) = header.content(0).ok_or(Damaged)?;
        let content = rest.get(start as usize..end as usize).ok_or(Damaged)?;
        self.at = self.at.saturating_add(next as usize);
        Ok(Some(Member { header, content }))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read().transpose();
        if matches!(item, Some(Err(_))) {
            self.at = self.bytes.len();
        }
        item
    }
}

/// An octal number, ended by a blank, a zero byte or the end of the field.
fn number(field: &[u8]) -> Result<u64, Damaged> {
    let digits = field.iter().skip_while(|byte| **byte == b' ');
    let mut value: u64 = 0;
    for byte in digits.take_while(|byte| **byte != b' ' && **byte != 0) {
        if !(b'0'..=b'7').contains(byte) {
            return Err(Damaged);
        }
        value = value.checked_mul(8).ok_or(Damaged)? + u64::from(byte - b'0');
    }
    Ok(value)
}

/// Text, ended by a zero byte or the end of the field.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The sum of the header's bytes, with blanks in the place of its own field.
fn checksum(block: &[u8; BLOCK]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..])
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::String;
    use std::vec::Vec;

    /// A header as `tar` writes it.
    fn block(change: impl FnOnce(&mut tar::Header)) -> [u8; BLOCK] {
        let mut header = tar::Header::new_ustar();
        header.set_path("bin/sh").unwrap();
        header.set_size(1025);
        header.set_mode(0o4755);
        header.set_uid(1);
        header.set_gid(2);
        header.set_mtime(3);
        change(&mut header);
        header.set_cksum();
        *header.as_bytes()
    }

    #[test]
    fn what_tar_writes_is_read() {
        let file = block(|_| ());
        let read = Header::read(&file).unwrap().unwrap();
        assert_eq!(
            read,
            Header {
                kind: Kind::File,
                prefix: b"",
                name: b"bin/sh",
                link: b"",
                size: 1025,
                mode: 0o4755,
                uid: 1,
                gid: 2,
                mtime: 3,
            }
        );
        assert_eq!(read.content(512), Some((1024, 2049, 2560)));
        let path: String = ["p".repeat(90), "n".repeat(90)].join("/");
        let long = block(|header| {
            header.set_path(&path).unwrap();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_link_name("target").unwrap();
        });
        let read = Header::read(&long).unwrap().unwrap();
        assert_eq!(
            (read.prefix.len(), read.name.len(), read.link),
            (90, 90, &b"target"[..])
        );
        assert_eq!(read.kind, Kind::Symlink);
        assert_eq!(Header::read(&[0; BLOCK]), Ok(None));
    }

    #[test]
    fn members_come_one_after_the_other_until_one_is_damaged() {
        let sized = |name: &str, size: u64| {
            block(|header| {
                header.set_path(name).unwrap();
                header.set_size(size);
            })
        };
        let content = [&[7; 600][..], &[0; 424]].concat();
        let whole = [&sized("etc/a", 600)[..], &content, &sized("b", 0)].concat();
        let members: Vec<_> = Members::new(&whole).map(Result::unwrap).collect();
        assert_eq!(members.len(), 2);
        assert_eq!(members[0].content, [7; 600]);
        let is_at = |path: &str| members.iter().map(|m| m.is_at(path)).collect::<Vec<_>>();
        assert_eq!(is_at("etc/a"), [true, false]);
        assert_eq!(is_at("b"), [false, true]);
        assert_eq!(is_at("a"), [false, false]);
        // A missing content, or half a header, ends the iteration.
        for length in [700, 1600] {
            let mut members = Members::new(&whole[..length]);
            assert!((0..2).any(|_| members.next() == Some(Err(Damaged))));
            assert_eq!(members.next(), None, "{length}");
        }
        let path: String = ["p".repeat(90), "n".repeat(90)].join("/");
        let long = sized(&path, 0);
        let member = Members::new(&long).next().unwrap().unwrap();
        assert!(member.is_at(&path) && !member.is_at(&path[1..]));
        assert!(!member.is_at(&path.replace('/', "")));
    }

    #[test]
    fn hostile_numbers_are_refused() {
        let with = |at: usize, field: &[u8]| {
            let bytes =
                block(|header| header.as_mut_bytes()[at..at + field.len()].copy_from_slice(field));
            Header::read(&bytes).map(|header| header.map(|header| header.size))
        };
        assert_eq!(with(124, b"000000000010"), Ok(Some(8)));
        assert_eq!(with(124, b"777777777777"), Ok(Some((1 << 36) - 1)));
        for (at, field) in [
            (124, &b"0000000008\0"[..]),
            (124, b"-1"),
            (124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
            (136, b"x"),
            (100, b"9"),
            (257, b"star"),
        ] {
            assert_eq!(with(at, field), Err(Damaged), "{field:?} at {at}");
        }
    }

    /// A changed byte without a changed sum is noticed.
    #[test]
    fn altered_headers_are_refused() {
        let good = block(|_| ());
        // Byte 155 only ends the checksum.
        for at in (0..BLOCK).filter(|at| *at != 155) {
            for value in [0, 1, b'7', 0xff] {
                let mut bytes = good;
                bytes[at] = value;
                let same = bytes == good;
                assert_eq!(Header::read(&bytes).is_ok(), same, "{value} at {at}");
            }
        }
        let all: Vec<u8> = (0..BLOCK).map(|at| at as u8).collect();
        assert!(Header::read(all[..].try_into().unwrap()).is_err());
    }
}
