//! Malicious disks: each kind is refused with an error, after few requests to the disk, and the other files of the disk
//! stay usable. And ordinary disks, as `mke2fs` and Linux make them: nothing of them is refused.
//!
//! Images are made by the host's tools and changed here. They have no checksums, which an attacker could compute, too.

use crate::bits::Bits;
use crate::check::Check;
use crate::tap::{Tap, MOST_REQUESTS};
use crate::tests::{complaint, mount, names, read, tool_of_host, write, Memory};
use crate::volume::Volume;
use alloc::format as text;
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use rsext4::{BlockIo, SectorId};
use services::fs::Flags;
use std::path::Path;
use std::process::{Command, Stdio};

extern crate std;

const BLOCK: usize = 4096;
const SUPERBLOCK: usize = 1024;
/// No image of these tests uses blocks from here on, if it has no journal.
const UNUSED: u64 = 9000;
const SPARE: u64 = 6000;
/// Requests that are enough to refuse anything here.
const FEW: usize = 3000;

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_be(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn run(tool: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(tool_of_host(tool))
        .args(arguments)
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect(tool);
    assert!(matches!(status.code(), Some(0 | 1)), "{tool} {arguments:?}");
}

/// The contents of a disk.
#[derive(Clone)]
struct Image(Vec<u8>);

impl Image {
    /// An image that `mke2fs` makes of a directory, and `e2fsck` repairs.
    fn made(options: &[&str], megabytes: u32, index: bool, fill: impl FnOnce(&Path)) -> Image {
        let directory = tempfile::tempdir().expect("a directory");
        let content = directory.path().join("content");
        std::fs::create_dir(&content).expect("a directory");
        fill(&content);
        let image = directory.path().join("image");
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(u64::from(megabytes) << 20).expect("a size");
        let content = content.to_str().expect("a path");
        let mut arguments = vec!["-q", "-F", "-t", "ext4", "-d", content];
        arguments.extend(options);
        run("mke2fs", &arguments, &image);
        if index {
            run("e2fsck", &["-fyD"], &image);
        }
        Image(std::fs::read(&image).expect("an image"))
    }

    /// A small image with some files, no checksums and no journal. Its bitmap marks unused blocks from [`SPARE`] on as
    /// in use.
    fn plain() -> Image {
        let mut image = Image::made(
            &["-b", "4096", "-O", "^metadata_csum,^has_journal"],
            40,
            false,
            |path| {
                std::fs::write(path.join("bad"), [1; 20_000]).unwrap();
                std::fs::write(path.join("good"), [2; 20_000]).unwrap();
                std::fs::write(path.join("other"), [3; 20_000]).unwrap();
                std::fs::create_dir(path.join("d")).unwrap();
                std::fs::create_dir(path.join("e")).unwrap();
                std::fs::write(path.join("d/in"), b"in").unwrap();
                std::os::unix::fs::symlink("x".repeat(200), path.join("link")).unwrap();
                std::os::unix::fs::symlink("good", path.join("short")).unwrap();
            },
        );
        (SPARE..10_240).for_each(|n| image.set_use(n, true));
        let spare = 10_240 - SPARE as u32;
        for at in [SUPERBLOCK + 12, BLOCK + 12] {
            let free = le32(&image.0, at) - spare;
            put32(&mut image.0, at, free);
        }
        image
    }

    /// Sets whether a block of the first group is in use.
    fn set_use(&mut self, block: u64, is: bool) {
        let map = u64::from(le32(&self.0, BLOCK));
        let byte = &mut self.block(map)[(block / 8) as usize];
        *byte = *byte & !(1 << (block % 8)) | u8::from(is) << (block % 8);
    }

    /// A small image with a journal.
    fn journalled() -> Image {
        Image::made(&["-b", "4096", "-O", "^metadata_csum"], 40, false, |path| {
            std::fs::write(path.join("good"), [2; 20_000]).unwrap();
        })
    }

    fn disk(&self) -> Memory {
        Memory::new(self.0.clone())
    }

    fn block(&mut self, number: u64) -> &mut [u8] {
        let at = number as usize * BLOCK;
        &mut self.0[at..at + BLOCK]
    }

    fn superblock(&mut self) -> &mut [u8] {
        &mut self.0[SUPERBLOCK..2 * SUPERBLOCK]
    }

    /// The offset of an inode of the first group.
    fn place(&self, number: u32) -> usize {
        let size = u16::from_le_bytes([self.0[SUPERBLOCK + 88], self.0[SUPERBLOCK + 89]]);
        let table = le32(&self.0, BLOCK + 8) as usize;
        table * BLOCK + (number as usize - 1) * usize::from(size)
    }

    fn inode(&mut self, number: u32) -> &mut [u8] {
        let at = self.place(number);
        &mut self.0[at..at + 128]
    }

    fn number(&self, path: &str) -> u32 {
        let mut volume = mount(&self.disk()).expect("a sound disk");
        volume.stat(path, false).expect(path).ino as u32
    }

    fn file(&mut self, path: &str) -> &mut [u8] {
        let number = self.number(path);
        self.inode(number)
    }

    /// The first block that a small file maps.
    fn first_block(&mut self, path: &str) -> u64 {
        u64::from(le32(self.file(path), 40 + 20))
    }

    /// Replaces an inode's contents by the root of a tree of extents, and sets its size in blocks.
    fn set_tree(&mut self, path: &str, depth: u16, entries: &[[u8; 12]], blocks: u64) {
        let inode = self.file(path);
        node(&mut inode[40..100], depth, 4, entries);
        put32(inode, 4, (blocks * BLOCK as u64) as u32);
        put32(inode, 108, ((blocks * BLOCK as u64) >> 32) as u32);
        put32(inode, 28, u32::MAX);
    }

    fn set_node(&mut self, place: u64, depth: u16, entries: &[[u8; 12]]) {
        node(self.block(place), depth, 340, entries);
    }
}

fn node(bytes: &mut [u8], depth: u16, most: u16, entries: &[[u8; 12]]) {
    put16(bytes, 0, 0xf30a);
    put16(bytes, 2, entries.len() as u16);
    put16(bytes, 4, most);
    put16(bytes, 6, depth);
    put32(bytes, 8, 0);
    for (n, entry) in entries.iter().enumerate() {
        bytes[12 + n * 12..24 + n * 12].copy_from_slice(entry);
    }
}

fn extent(first: u32, length: u16, place: u64) -> [u8; 12] {
    let mut entry = [0; 12];
    put32(&mut entry, 0, first);
    put16(&mut entry, 4, length);
    put32(&mut entry, 8, place as u32);
    entry
}

fn below(first: u32, place: u64) -> [u8; 12] {
    let mut entry = [0; 12];
    put32(&mut entry, 0, first);
    put32(&mut entry, 4, place as u32);
    entry
}

/// All requests about a file are refused, after few requests to the disk, while other files stay usable.
fn is_refused(image: &Image, path: &str, with: Error, rule: &str) {
    let disk = image.disk();
    let mut volume = mount(&disk).expect("the disk itself is sound");
    let before = disk.reads();
    let v = &mut volume;
    assert_eq!(v.stat(path, false).err(), Some(with), "{rule}: stat");
    assert_eq!(read(v, path), Err(with), "{rule}: read");
    assert_eq!(write(v, path, b"x"), Err(with), "{rule}: write");
    assert_eq!(v.readlink(path).err(), Some(with), "{rule}: readlink");
    assert_eq!(v.unlink(path), Err(with), "{rule}: unlink");
    assert_eq!(v.rmdir(path), Err(with), "{rule}: rmdir");
    assert_eq!(v.rename(path, "/disk/new"), Err(with), "{rule}: rename");
    assert_eq!(v.rename("/disk/good", path), Err(with), "{rule}: replace");
    assert_eq!(v.link(path, "/disk/new"), Err(with), "{rule}: link");
    let inside = text!("{path}/x");
    assert_eq!(v.mkdir(&inside, 0o755), Err(with), "{rule}: mkdir");
    assert_eq!(read(v, "/disk/good"), Ok(vec![2; 20_000]), "{rule}: others");
    assert_eq!(write(v, "/disk/d/new", b"new"), Ok(()), "{rule}: others");
    assert!(names(v, "/disk").is_ok(), "{rule}: others");
    let reads = disk.reads() - before;
    assert!(reads < FEW, "{rule}: {reads} requests");
}

/// A disk is not mounted, which takes few requests to find out.
fn is_not_mounted(image: &Image, with: Error, rule: &str) {
    let disk = image.disk();
    assert_eq!(mount(&disk).err(), Some(with), "{rule}");
    assert!(disk.reads() < FEW, "{rule}: {} requests", disk.reads());
}

#[test]
fn a_link_is_shorter_than_a_block() {
    let mut image = Image::plain();
    put32(image.file("/disk/link"), 108, 0x8000_0000);
    let rule = "S1: a link has the size that it has room for";
    is_refused(&image, "/disk/link", Error::BadFormat, rule);
    let mut image = Image::plain();
    put32(image.file("/disk/short"), 108, 1);
    is_refused(&image, "/disk/short", Error::BadFormat, rule);
    // The text of a short link is no list of blocks.
    let mut image = Image::plain();
    put32(image.file("/disk/short"), 28, 8);
    is_refused(&image, "/disk/short", Error::BadFormat, rule);
}

#[test]
fn nodes_of_a_tree_have_one_parent() {
    let mut image = Image::plain();
    let mut next = UNUSED;
    let mut place = || {
        next += 1;
        next
    };
    let mut leaf = |image: &mut Image, key: u32| {
        let at = place();
        image.set_node(at, 0, &[extent(key, 1, place())]);
        below(key, at)
    };
    let shared: Vec<_> = (2000..2100).map(|key| leaf(&mut image, key)).collect();
    let mut middle = Vec::new();
    for key in 1000..1100 {
        let mut entries = vec![leaf(&mut image, key)];
        entries.extend(&shared);
        let at = u64::from(UNUSED as u32 - key);
        image.set_node(at, 1, &entries);
        middle.push(below(key, at));
    }
    let mut top = Vec::new();
    for key in 0..4 {
        let first = leaf(&mut image, key);
        let at = UNUSED - 500 - u64::from(key) * 2;
        image.set_node(at, 1, &[first]);
        let mut entries = vec![below(key, at)];
        entries.extend(&middle);
        image.set_node(at + 1, 2, &entries);
        top.push(below(key, at + 1));
    }
    image.set_tree("/disk/bad", 3, &top, 6000);
    let rule = "S1: a node of a tree has one parent";
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    // A node that is below itself.
    let mut image = Image::plain();
    image.set_node(UNUSED, 2, &[below(0, UNUSED)]);
    image.set_tree("/disk/bad", 3, &[below(0, UNUSED)], 4);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
}

#[test]
fn leaves_map_what_their_parents_say() {
    let rule = "S1: each block of a file is mapped once";
    let mut image = Image::plain();
    image.set_node(UNUSED, 0, &[extent(0, 8, UNUSED + 10)]);
    image.set_node(UNUSED + 1, 0, &[extent(4, 4, UNUSED + 20)]);
    let tree = [below(0, UNUSED), below(4, UNUSED + 1)];
    image.set_tree("/disk/bad", 1, &tree, 8);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    for entries in [
        // Out of order, empty, behind the disk, the first block, no blocks, and more blocks than there are numbers.
        &[extent(4, 1, UNUSED), extent(0, 1, UNUSED + 1)][..],
        &[extent(0, 0, UNUSED)],
        &[extent(0, 8, 10_239)],
        &[extent(0, 8, u64::from(u32::MAX))],
        &[extent(0, 1, 0)],
        &[extent(u32::MAX, 2, UNUSED)],
        &[extent(0, 4, UNUSED), extent(4, 4, UNUSED + 2)],
    ] {
        let mut image = Image::plain();
        image.set_tree("/disk/bad", 0, entries, 8);
        is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    }
    for (depth, most, magic) in [
        (6, 4, 0xf30a),
        (0, 5, 0xf30a),
        (0, 4, 0xf30b),
        (1, 4, 0xf30a),
    ] {
        let mut image = Image::plain();
        let number = image.number("/disk/bad");
        image.set_node(UNUSED, 3, &[extent(0, 1, UNUSED + 1)]);
        image.set_tree("/disk/bad", depth, &[below(0, UNUSED)], 8);
        let inode = image.inode(number);
        put16(inode, 44, most);
        put16(inode, 40, magic);
        is_refused(&image, "/disk/bad", Error::BadFormat, "S1: a tree is one");
    }
}

#[test]
fn a_file_maps_no_more_than_there_is() {
    let rule = "S1: a file has no more blocks than the disk";
    let mut image = Image::plain();
    let mut tree = Vec::new();
    for leaf in 0..4 {
        let first = leaf * 340 * 4096;
        let entries: Vec<_> = (0..340)
            .map(|n| extent(first + n * 4096, 4096, SPARE))
            .collect();
        image.set_node(UNUSED + u64::from(leaf), 0, &entries);
        tree.push(below(first, UNUSED + u64::from(leaf)));
    }
    image.set_tree("/disk/bad", 1, &tree, 8);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    // Its block count is too small: the memory to free it would not be known.
    let mut image = Image::plain();
    put32(image.file("/disk/bad"), 28, 8);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
}

/// A client that may write to one file of a disk cannot write to the tree of another one.
#[test]
fn files_have_no_blocks_together() {
    let rule = "S2: a block is of one file";
    for first in ["/disk/bad", "/disk/other"] {
        let mut image = Image::plain();
        let data = image.first_block("/disk/other");
        image.set_node(data, 0, &[extent(0, 1, UNUSED)]);
        image.set_tree("/disk/bad", 1, &[below(0, data)], 1);
        let disk = image.disk();
        let mut volume = mount(&disk).unwrap();
        assert!(read(&mut volume, first).is_ok(), "{rule}");
        let second = if first == "/disk/bad" {
            "/disk/other"
        } else {
            "/disk/bad"
        };
        assert_eq!(read(&mut volume, second), Err(Error::BadFormat), "{rule}");
        assert!(read(&mut volume, "/disk/good").is_ok(), "{rule}");
    }
}

/// Nor to that of a new one: free blocks may be given to a file, and written ones belong to a file.
#[test]
fn new_files_get_no_blocks_of_old_ones() {
    let rule = "S2: a block is of one file, also of new ones";
    let mut image = Image::plain();
    let map = u64::from(le32(&image.0, BLOCK));
    let is_used = |image: &mut Image, n: u64| image.block(map)[n as usize / 8] >> (n % 8) & 1 != 0;
    // Behind the blocks for new names, in the middle of those that are written at once.
    let free = (0..SPARE).find(|n| !is_used(&mut image, *n));
    let free = free.unwrap() + 700;
    image.set_node(free, 0, &[extent(0, 1, UNUSED + 1)]);
    let node = image.block(free).to_vec();
    image.set_tree("/disk/bad", 1, &[below(0, free)], 1);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    // An attacker writes to all free blocks.
    let disk = image.disk();
    let mut volume = mount(&disk).unwrap();
    let mut files = 0;
    while write(&mut volume, &text!("/disk/d/{files}"), &node.repeat(256)).is_ok() {
        files += 1;
    }
    volume.sync().unwrap();
    let mut now = Image(disk.content());
    assert!(files > 3 && now.block(free) == node && is_used(&mut now, free));
    let read = read(&mut volume, "/disk/bad").map(|bytes| bytes.len());
    assert_eq!(read, Err(Error::BadFormat), "{rule}");
}

/// Only as many inodes can share a block of extended attributes as its reference count says. With more the block would
/// be freed, and given to a new file, while it is still in use.
#[test]
fn attributes_are_of_as_many_as_they_say() {
    let rule = "S2: attributes are of as many inodes as they say";
    let all = ["/disk/bad", "/disk/other", "/disk/d/in"];
    for (inodes, right) in [(1, 1), (2, 2), (3, 3)] {
        let mut image = Image::plain();
        put32(image.block(UNUSED), 0, 0xea02_0000);
        put32(image.block(UNUSED), 4, inodes);
        put32(image.block(UNUSED), 8, 1);
        all.iter()
            .for_each(|path| put32(image.file(path), 104, UNUSED as u32));
        let disk = image.disk();
        let mut volume = mount(&disk).unwrap();
        let read: Vec<_> = all.iter().map(|path| read(&mut volume, path)).collect();
        let found = read.iter().filter(|read| read.is_ok()).count();
        assert_eq!(found, right, "{rule}: {inodes}");
        assert!(read
            .iter()
            .all(|read| read.is_ok() || *read == Err(Error::BadFormat)));
    }
    // A block without attributes, and one of another file.
    let mut image = Image::plain();
    put32(image.file("/disk/bad"), 104, UNUSED as u32);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    let mut image = Image::plain();
    let data = image.first_block("/disk/other");
    put32(image.block(data), 0, 0xea02_0000);
    put32(image.block(data), 4, 1);
    put32(image.block(data), 8, 1);
    put32(image.file("/disk/bad"), 104, data as u32);
    let mut volume = mount(&image.disk()).unwrap();
    assert!(read(&mut volume, "/disk/bad").is_ok(), "{rule}");
    let other = read(&mut volume, "/disk/other");
    assert_eq!(other, Err(Error::BadFormat), "{rule}");
}

/// A block with extended attributes cannot be one of the file system's own, whatever its contents: the library would
/// write to it.
#[test]
fn attributes_are_not_among_what_the_file_system_has() {
    let rule = "S2: the file system's own blocks are nobody's";
    let sound = Image::plain();
    let (map, inode_map, table) = (
        le32(&sound.0, BLOCK),
        le32(&sound.0, BLOCK + 4),
        le32(&sound.0, BLOCK + 8),
    );
    // The descriptors, a bitmap and a table, whose contents look like such a block.
    for place in [1, map, inode_map, table + 3] {
        let mut image = sound.clone();
        if place != 1 && place != map && place != inode_map {
            let block = image.block(u64::from(place));
            put32(block, 0, 0xea02_0000);
            put32(block, 4, 1);
            put32(block, 8, 1);
        }
        put32(image.file("/disk/bad"), 104, place);
        is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    }
}

/// A file that the library cannot free in one transaction would fail when its name is gone, and at each later mount.
#[test]
fn a_file_in_many_groups_can_go() {
    let rule = "S2: a file that cannot be let go keeps its name";
    let options = ["-b", "1024", "-g", "256", "-O", "^resize_inode"];
    let image = Image::made(&options, 48, false, |path| {
        for name in ["wide", "other"] {
            std::fs::write(path.join(name), vec![5; 17_000_000]).unwrap();
        }
        std::fs::write(path.join("good"), [2; 20_000]).unwrap();
    });
    let disk = image.disk();
    let mut volume = mount(&disk).expect("a sound disk");
    // A rename over it would have to free it in pieces.
    let replaced = volume.rename("/disk/good", "/disk/other");
    assert_eq!(replaced, Err(Error::Limit), "{rule}");
    assert_eq!(read(&mut volume, "/disk/good"), Ok(vec![2; 20_000]));
    assert_eq!(volume.unlink("/disk/wide"), Ok(()), "{rule}");
    volume.sync().unwrap();
    drop(volume);
    assert_eq!(complaint(&disk.content()), None, "{rule}");
    let mut volume = mount(&disk).expect(rule);
    assert_eq!(
        volume.stat("/disk/wide", false).err(),
        Some(Error::NotFound)
    );
    assert_eq!(
        read(&mut volume, "/disk/other").map(|bytes| bytes.len()),
        Ok(17_000_000)
    );
}

/// A mount frees a file without a name in one transaction. So such a file may not get into more groups than that can
/// change.
#[test]
fn a_file_without_a_name_does_not_outgrow_its_end() {
    let rule = "S2: what cannot be let go is not written";
    let options = ["-b", "1024", "-g", "256", "-O", "^resize_inode"];
    let disk = Image::made(&options, 48, false, |_| {}).disk();
    let mut volume = mount(&disk).expect("a sound disk");
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    let (file, ..) = volume.open("/disk/a", create, 0o644).unwrap();
    volume.unlink("/disk/a").unwrap();
    let piece = [7; 64 << 10];
    let mut size = 0;
    let refused = loop {
        match volume.write(file, Some(size), &piece) {
            Ok((written, _)) => size += u64::from(written),
            Err(error) => break error,
        }
        assert!(size < 40 << 20, "{rule}");
    };
    assert_eq!(refused, Error::Limit, "{rule}");
    assert!(size > 5 << 20, "{size}");
    // Blocks that the file has before the written place are no room for those that it lacks.
    let across = volume.write(file, Some(size - 2048), &piece[..3072]);
    assert_eq!(across, Err(Error::Limit), "{rule}");
    // Blocks that it has can be written to.
    assert_eq!(volume.write(file, Some(0), &piece), Ok((64 << 10, 0)));
    // The server dies, or the file is closed, or cut before that.
    volume.sync().unwrap();
    let left = Memory::new(disk.content());
    assert!(mount(&left).is_ok(), "{rule}");
    assert_eq!(complaint(&left.content()), None, "{rule}");
    let content = |volume: &mut Volume<Memory>| volume.read(file, 0, 2 << 20).unwrap();
    assert_eq!(volume.truncate(file, 1 << 20), Ok(()), "{rule}");
    assert!(content(&mut volume) == vec![7; 1 << 20], "{rule}");
    assert_eq!(volume.truncate(file, 100), Ok(()), "{rule}");
    assert_eq!(content(&mut volume), [7; 100], "{rule}");
    assert_eq!(volume.close(file), Ok(()), "{rule}");
    while volume.tend() {}
    drop(volume);
    assert_eq!(complaint(&disk.content()), None, "{rule}");
    assert!(mount(&disk).is_ok(), "{rule}");
}

/// Entries that stay in a directory with an index are read once. A reasonable number of names that are not UTF-8 is
/// skipped.
#[test]
fn directories_of_many_are_read() {
    use std::os::unix::ffi::OsStrExt;
    let options = ["-b", "4096", "-N", "8000"];
    let disk = Image::made(&options, 40, true, many).disk();
    crate::tests::is_read_whole(&disk, "/disk/many", false);
    crate::tests::is_read_whole(&disk, "/disk/many", true);
    for (count, index) in [(3000, false), (9000, false)] {
        let image = Image::made(&options, 40, index, |path| {
            std::fs::create_dir(path.join("d")).unwrap();
            let good = path.join("d/good");
            std::fs::write(&good, b"").unwrap();
            for n in 0..count {
                let name = [text!("{n}-").as_bytes(), &[0xff; 9]].concat();
                let name = path.join("d").join(std::ffi::OsStr::from_bytes(&name));
                std::fs::hard_link(&good, name).unwrap();
            }
        });
        let mut volume = mount(&image.disk()).unwrap();
        let all = names(&mut volume, "/disk/d");
        match count {
            3000 => assert_eq!(all, Ok(vec!["good".into()])),
            _ => assert_eq!(all, Err(Error::BadFormat), "S3: a request ends"),
        }
    }
}

#[test]
fn lists_of_blocks_are_not_followed() {
    let mut image = Image::plain();
    let inode = image.file("/disk/bad");
    let flags = le32(inode, 32) & !0x8_0000;
    put32(inode, 32, flags);
    (0..15).for_each(|n| put32(inode, 40 + n * 4, UNUSED as u32));
    let rule = "S1: blocks are found by extents alone";
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    // A FIFO maps nothing.
    let mut image = Image::plain();
    let inode = image.file("/disk/bad");
    put16(inode, 0, 0x11a4);
    is_refused(&image, "/disk/bad", Error::BadFormat, rule);
    let old = Image::made(&["-b", "4096", "-O", "^extents,^64bit"], 40, false, |_| {});
    is_not_mounted(&old, Error::Unsupported, rule);
}

#[test]
fn inodes_that_are_nobodys_files() {
    // A name for the journal, a free inode, one behind the last, and one without a type.
    let mut image = Image::plain();
    let root = image.first_block("/disk");
    let bad = image.number("/disk/bad");
    for number in [8, 5, 2000, 1 << 24] {
        let mut image = image.clone();
        let block = image.block(root);
        let at =
            (0..BLOCK - 4).find(|at| le32(block, *at) == bad && &block[at + 8..at + 11] == b"bad");
        put32(block, at.unwrap(), number);
        let disk = image.disk();
        let mut volume = mount(&disk).unwrap();
        assert!(read(&mut volume, "/disk/bad").is_err(), "{number}");
        assert!(volume.unlink("/disk/bad").is_err(), "{number}");
        assert!(read(&mut volume, "/disk/good").is_ok(), "{number}");
    }
    let inode = image.inode(bad);
    put16(inode, 0, 0o644);
    is_refused(
        &image,
        "/disk/bad",
        Error::BadFormat,
        "S1: a file has a kind",
    );
}

#[test]
fn directories_are_what_they_say() {
    let rule = "S1: a directory has the blocks that it says";
    for size in [0, 1 << 31, 0xffff_f000, 8192, 100] {
        let mut image = Image::plain();
        put32(image.file("/disk/e"), 4, size);
        is_refused(&image, "/disk/e", Error::BadFormat, rule);
    }
    // A directory with a hole, and one with blocks behind its end.
    for tree in [
        [extent(1, 1, UNUSED)].as_slice(),
        &[extent(0, 1, UNUSED), extent(5, 1, UNUSED + 1)],
    ] {
        let mut image = Image::plain();
        image.set_tree("/disk/e", 0, tree, 1);
        is_refused(&image, "/disk/e", Error::BadFormat, rule);
    }
    // Directories whose `..` is not their parent: paths upwards would have no end.
    let mut image = Image::plain();
    let (d, place) = (image.number("/disk/d"), image.first_block("/disk/e"));
    put32(image.block(place), 12, d);
    let rule = "S1: a directory leads up to the one that it is in";
    is_refused(&image, "/disk/e", Error::BadFormat, rule);
    let mut image = Image::plain();
    put32(image.block(place), 24, d);
    put32(image.block(place), 12, d);
    is_refused(&image, "/disk/e", Error::BadFormat, rule);
}

fn many(path: &Path) {
    std::fs::create_dir(path.join("many")).unwrap();
    for n in 0..3000 {
        std::fs::write(path.join("many").join(text!("a-name-of-a-file-{n}")), b"").unwrap();
    }
    std::fs::write(path.join("good"), [2; 20_000]).unwrap();
    std::fs::create_dir(path.join("d")).unwrap();
}

#[test]
fn an_index_has_each_block_once() {
    let options = [
        "-b",
        "4096",
        "-N",
        "8000",
        "-O",
        "^metadata_csum,^has_journal",
    ];
    let sound = Image::made(&options, 40, true, many);
    let disk = sound.disk();
    let mut volume = mount(&disk).unwrap();
    assert_eq!(names(&mut volume, "/disk/many").unwrap().len(), 3000);
    let place = sound.clone().first_block("/disk/many");
    let flags = le32(sound.clone().file("/disk/many"), 32);
    assert!(flags & 0x1000 != 0, "it has an index");
    let count = sound.0[place as usize * BLOCK + 34];
    assert!(count > 20, "{count} blocks");
    let rule = "S1: a block stands in an index once";
    for (n, hash, block) in [
        // The same block again, the index itself, and a block behind the end.
        (3, 5, le32(&sound.0, place as usize * BLOCK + 32 + 4)),
        (3, 5, 0),
        (3, 5, 70_000),
    ] {
        let mut image = sound.clone();
        let root = image.block(place);
        put32(root, 32 + n * 8, hash);
        put32(root, 32 + n * 8 + 4, block);
        is_refused(&image, "/disk/many", Error::BadFormat, rule);
    }
    // According to the index all names have the same hash.
    let mut image = sound.clone();
    for n in 1..usize::from(count) {
        put32(image.block(place), 32 + n * 8, 0x1001);
    }
    is_refused(
        &image,
        "/disk/many",
        Error::BadFormat,
        "S1: few names have the same hash",
    );
    let mut image = sound;
    put16(image.block(place), 34, 5000);
    is_refused(&image, "/disk/many", Error::BadFormat, rule);
}

#[test]
fn the_geometry_of_a_disk() {
    let sound = Image::plain();
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 14] = [
        ("groups of one block", |s| {
            put32(s, 32, 1);
            put32(s, 36, 1);
        }),
        ("groups of 128 blocks, and their inodes", |s| {
            put32(s, 32, 128);
            put32(s, 36, 128);
            let inodes = le32(s, 40) * 80;
            put32(s, 0, inodes);
        }),
        ("no group", |s| put32(s, 32, 0)),
        ("groups larger than their maps", |s| put32(s, 32, 1 << 20)),
        ("more blocks than the disk", |s| put32(s, 4, 10_241)),
        ("many more blocks than the disk", |s| put32(s, 336, 1 << 20)),
        ("no blocks", |s| put32(s, 4, 0)),
        ("more inodes than its groups", |s| put32(s, 0, 1 << 30)),
        ("no inodes in a group", |s| put32(s, 40, 0)),
        ("large blocks", |s| put32(s, 24, 6)),
        ("inodes of a byte", |s| put16(s, 88, 1)),
        ("inodes of 32 KB", |s| put16(s, 88, 1 << 15)),
        ("the first inode is the first", |s| put32(s, 84, 1)),
        ("descriptors of 2 bytes", |s| put16(s, 254, 2)),
    ];
    for (what, change) in changes {
        let mut image = sound.clone();
        change(image.superblock());
        is_not_mounted(
            &image,
            Error::BadFormat,
            &text!("S1: the superblock: {what}"),
        );
    }
    let mut image = sound.clone();
    put32(&mut image.0, BLOCK + 8, 10_200);
    is_not_mounted(&image, Error::BadFormat, "S1: inodes are on the disk");
    let mut image = sound.clone();
    put32(image.superblock(), 96, 0x2c2 | 0x10);
    is_not_mounted(
        &image,
        Error::Unsupported,
        "S1: features that are not known",
    );
    let mut image = sound.clone();
    put32(image.inode(2), 4, 0xffff_f000);
    is_not_mounted(&image, Error::BadFormat, "S1: the root is a directory");
    assert!(mount(&sound.disk()).is_ok());
    // A client with such a block could write to structures that are trusted.
    let table = u64::from(le32(&sound.0, BLOCK + 8));
    for own in [0, 1, 6, table, table + 3] {
        let mut image = sound.clone();
        image.set_use(own, false);
        let rule = text!("S2: a block of the file system is nobody's: {own}");
        is_not_mounted(&image, Error::BadFormat, &rule);
    }
}

/// The orphans that a mount frees are checked, too, and their number is limited.
#[test]
fn what_a_mount_lets_go_of() {
    let rule = "S1: a mount lets go of what is right, and of few";
    let mut sound = Image::plain();
    let bad = sound.number("/disk/bad");
    put32(sound.superblock(), 232, bad);
    put16(sound.file("/disk/other"), 26, 1);
    assert!(mount(&sound.disk()).is_ok(), "one that is cut");
    // Linux had begun to remove a directory.
    let mut image = sound.clone();
    let e = sound.number("/disk/e");
    put16(image.inode(e), 26, 0);
    put32(image.inode(e), 4, 0);
    put32(image.superblock(), 232, e);
    assert!(mount(&image.disk()).is_ok(), "one that is going");
    let mut image = sound.clone();
    put32(image.inode(bad), 20, bad);
    is_not_mounted(&image, Error::BadFormat, rule);
    let mut image = sound.clone();
    put32(image.inode(bad), 20, 8);
    is_not_mounted(&image, Error::BadFormat, rule);
    let mut image = Image::plain();
    image.set_node(UNUSED, 2, &[below(0, UNUSED)]);
    image.set_tree("/disk/bad", 3, &[below(0, UNUSED)], 4);
    put32(image.superblock(), 232, bad);
    is_not_mounted(&image, Error::BadFormat, rule);
    // A thousand orphans.
    let mut image = Image::plain();
    for number in 500..1500 {
        let inode = image.inode(number);
        put16(inode, 0, 0x81a4);
        put32(inode, 32, 0x8_0000);
        put32(inode, 20, number + 1);
        node(&mut inode[40..100], 0, 4, &[]);
    }
    put32(image.inode(1499), 20, 0);
    put32(image.superblock(), 232, 500);
    is_not_mounted(&image, Error::BadFormat, rule);
}

/// The blocks of the journal of an image.
fn journal(image: &mut Image) -> Vec<u64> {
    let inode = image.inode(8);
    assert_eq!(inode[46], 0, "its extents stand in its inode");
    let mut blocks = Vec::new();
    for n in 0..usize::from(inode[42]) {
        let place = u64::from(le32(inode, 52 + n * 12 + 8));
        let length = u64::from(le32(inode, 52 + n * 12 + 4) & 0xffff);
        blocks.extend(place..place + length);
    }
    blocks
}

/// Writes a log whose records a function makes by their numbers, in a journal with these features.
fn log(image: &mut Image, features: u32, mut record: impl FnMut(u32, &mut [u8])) {
    let blocks = journal(image);
    let head = image.block(blocks[0]);
    put_be(head, 24, 100);
    put_be(head, 28, 1);
    put_be(head, 40, features);
    let most = u32::from_be_bytes(head[16..20].try_into().unwrap());
    for n in 1..most {
        let block = image.block(blocks[n as usize]);
        block.fill(0);
        record(n, block);
    }
    let superblock = image.superblock();
    let features = le32(superblock, 96) | 4;
    put32(superblock, 96, features);
}

fn record(block: &mut [u8], kind: u32, sequence: u32) {
    put_be(block, 0, 0xc03b_3998);
    put_be(block, 4, kind);
    put_be(block, 8, sequence);
}

#[test]
fn a_journal_is_one() {
    let rule = "S1: a journal is where its inode says, once";
    let sound = Image::journalled();
    assert!(mount(&sound.disk()).is_ok());
    let mut image = sound.clone();
    let mut tree = Vec::new();
    let room = journal(&mut image);
    for leaf in 0..4 {
        let entries: Vec<_> = (0..340)
            .map(|n| extent((leaf * 340 + n) * 8192, 8192, 1500))
            .collect();
        // The nodes are in the journal itself, which has room.
        image.set_node(room[100 + leaf as usize], 0, &entries);
        tree.push(below(leaf * 340 * 8192, room[100 + leaf as usize]));
    }
    node(&mut image.inode(8)[40..100], 1, 4, &tree);
    is_not_mounted(&image, Error::BadFormat, rule);
    type Change = fn(&mut Image);
    let changes: [(&str, Change); 7] = [
        ("larger than it is", |i| put32(i.inode(8), 4, 1 << 31)),
        ("a directory", |i| put16(i.inode(8), 0, 0x41ed)),
        ("another inode", |i| put32(i.superblock(), 224, 12)),
        ("on another disk", |i| put32(i.superblock(), 228, 5)),
        ("a ring larger than it", |i| {
            let first = journal(i)[0];
            put_be(i.block(first), 16, 1 << 20);
        }),
        ("an empty ring", |i| {
            let first = journal(i)[0];
            put_be(i.block(first), 20, 1 << 20);
        }),
        ("it begins at once", |i| {
            let first = journal(i)[0];
            put_be(i.block(first), 20, 0);
        }),
    ];
    for (what, change) in changes {
        let mut image = sound.clone();
        change(&mut image);
        is_not_mounted(&image, Error::BadFormat, &text!("{rule}: {what}"));
    }
}

#[test]
fn a_log_has_an_end() {
    let rule = "S1: a log fits into its journal";
    for features in [0, 2, 8, 10, 16, 18] {
        let mut image = Image::journalled();
        // Records that describe each other.
        log(&mut image, features, |_, block| {
            record(block, 1, 100);
            for at in (12..BLOCK - 4).step_by(4) {
                put_be(block, at, 2);
            }
        });
        is_not_mounted(&image, Error::BadFormat, rule);
    }
    let mut image = Image::journalled();
    log(&mut image, 3, |_, block| {
        record(block, 5, 100);
        put_be(block, 12, BLOCK as u32);
    });
    is_not_mounted(&image, Error::BadFormat, "S1: a log revokes few blocks");
}

/// A valid log that writes invalid structures: these are checked after the replay.
#[test]
fn what_a_log_leaves_is_looked_at() {
    let sound = Image::journalled();
    let good = sound.number("/disk/good");
    let table = le32(&sound.0, BLOCK + 8);
    /// One block is to be written.
    fn replays(image: &mut Image, home: u32, payload: &[u8]) {
        log(image, 0, |n, block| match n {
            1 => {
                record(block, 1, 100);
                put_be(block, 12, home);
                put_be(block, 16, 8);
            }
            2 => block.copy_from_slice(payload),
            3 => record(block, 2, 100),
            _ => {}
        });
    }
    // The file becomes shorter.
    let mut image = sound.clone();
    let mut after = sound.clone();
    put32(after.inode(good), 4, 10_000);
    replays(&mut image, table, after.block(u64::from(table)));
    let disk = image.disk();
    let mut volume = mount(&disk).expect("a log is replayed");
    assert_eq!(read(&mut volume, "/disk/good"), Ok(vec![2; 10_000]));
    drop(volume);
    let mut volume = mount(&disk).expect("once more");
    assert_eq!(read(&mut volume, "/disk/good"), Ok(vec![2; 10_000]));
    // The journal is elsewhere, the root is no directory, groups have one block.
    let rule = "S1: what a log leaves is looked at";
    for (home, change) in [
        (table, (|i| put32(i.inode(8), 4, 1 << 31)) as fn(&mut Image)),
        (table, |i| put32(i.inode(2), 4, 0xffff_f000)),
        (0, |i| put32(i.superblock(), 84, 1)),
        (0, |i| {
            put32(i.superblock(), 32, 1);
            put32(i.superblock(), 36, 1);
        }),
    ] {
        let mut after = sound.clone();
        log(&mut after, 0, |_, _| {});
        change(&mut after);
        let mut image = sound.clone();
        replays(&mut image, home, after.block(u64::from(home)));
        is_not_mounted(&image, Error::BadFormat, rule);
    }
}

/// Whatever a disk contains: after a limited number of requests to it there are only errors; the next request of a
/// client has the full number again.
#[test]
fn requests_to_the_disk_are_counted() {
    let mut tap = Tap::new(Memory::new(vec![0; BLOCK]));
    let mut sector = [0; 512];
    for _ in 0..MOST_REQUESTS {
        assert!(tap.read(&mut sector, SectorId::new(0), 1).is_ok());
    }
    let rule = "S1: a request to the disk is one of so many";
    assert!(
        tap.read(&mut sector, SectorId::new(0), 1).is_err(),
        "{rule}"
    );
    assert!(tap.write(&sector, SectorId::new(0), 1).is_err(), "{rule}");
    assert!(tap.flush().is_err(), "{rule}");
    tap.refill();
    assert!(tap.read(&mut sector, SectorId::new(0), 1).is_ok());
    // After a write to this sector and a flush, requests fail.
    tap.close_after(3);
    assert!(tap.flush().is_ok());
    assert!(tap.clone().write(&sector, SectorId::new(3), 1).is_ok());
    assert!(tap.read(&mut sector, SectorId::new(0), 1).is_ok());
    assert!(tap.flush().is_ok());
    assert!(tap.read(&mut sector, SectorId::new(0), 1).is_err());
    tap.reopen();
    assert!(tap.read(&mut sector, SectorId::new(0), 1).is_ok());
}

/// The state of a million files takes a bit for each.
#[test]
fn a_million_files_take_little() {
    let mut bits = Bits::default();
    for n in 0..1_000_000 {
        assert!(!bits.has(n));
        bits.insert(n, 1).unwrap();
        assert!(bits.has(n));
    }
    assert_eq!(bits.pieces(), 245, "S2: what a client takes is bounded");
    let mut other = Bits::default();
    other.insert(1_000_050, 5000).unwrap();
    assert!(!bits.any(1_000_000, 10_000) && other.any(1_000_000, 51));
    assert!(!other.any(1_000_000, 50) && !other.any(1_005_050, 100));
    bits.join(other).unwrap();
    assert!(bits.has(1_005_049) && !bits.has(1_005_050) && bits.has(5));
}

/// A checked file is not checked again, however often it is opened.
#[test]
fn what_was_looked_at_is_remembered() {
    let sound = Image::plain();
    let number = rsext4::InodeNumber::new(sound.number("/disk/good")).unwrap();
    let root = rsext4::InodeNumber::new(2).unwrap();
    let disk = sound.disk();
    let mut check = Check::new(Tap::new(disk.clone())).unwrap();
    let before = disk.reads();
    assert_eq!(check.inode(root, number), Ok(()));
    assert_eq!(disk.reads() - before, 1, "its inode; the map was there");
    assert_eq!(check.inode(root, number), Ok(()));
    assert_eq!(disk.reads() - before, 1, "S3: what is right stays right");
}

/// Writes a file with holes: every second block.
fn holes(path: &Path, blocks: u64, size: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).unwrap();
    for n in 0..blocks {
        file.write_all_at(&[(n % 255) as u8 + 1; 4096], n * 8192)
            .unwrap();
    }
    file.set_len(size).unwrap();
}

fn ordinary(path: &Path) {
    many(path);
    holes(&path.join("pieces"), 1500, 40 << 20);
    holes(&path.join("sparse"), 3, 1 << 40);
    std::fs::write(path.join("large"), vec![7; 9 << 20]).unwrap();
    std::fs::write(path.join("empty"), b"").unwrap();
    std::fs::hard_link(path.join("large"), path.join("d/again")).unwrap();
    for length in [1, 58, 59, 60, 61, 200, 1000] {
        let name = path.join(text!("link-{length}"));
        std::os::unix::fs::symlink("y".repeat(length), name).unwrap();
    }
    let mut deep = path.to_path_buf();
    for n in 0..40 {
        deep.push(text!("deep-{n}"));
        std::fs::create_dir(&deep).unwrap();
    }
}

/// Checks that everything below a directory is readable. Returns how many files and directories there are.
fn walk(volume: &mut Volume<Memory>, path: &str) -> Result<usize, Error> {
    let mut count = 0;
    for name in names(volume, path)? {
        let path = text!("{path}/{name}");
        let attr = volume.stat(&path, false)?;
        count += 1;
        match attr.mode & 0o170_000 {
            0o040_000 => count += walk(volume, &path)?,
            0o120_000 => drop(volume.readlink(&path)?),
            _ => {
                let (file, ..) = volume.open(&path, Flags::default(), 0)?;
                let mut offset = 0;
                while offset < attr.size.min(64 << 20) {
                    volume.read(file, offset, 1 << 16)?;
                    offset += 1 << 16;
                }
                volume.close(file)?;
            }
        }
    }
    Ok(count)
}

#[test]
fn ordinary_disks_are_accepted() {
    let few = ["-b", "4096"];
    let old = [
        "-b",
        "4096",
        "-O",
        "^metadata_csum,^64bit",
        "-I",
        "128",
        "-m",
        "0",
    ];
    let small = ["-b", "1024", "-N", "8000"];
    let groups = ["-b", "4096", "-g", "4096", "-N", "8000"];
    for (options, index) in [
        (&[][..], false),
        (&few, true),
        (&old, true),
        (&small, true),
        (&["-b", "2048", "-N", "8000"], true),
        (&groups, true),
    ] {
        let mut arguments = vec!["-N", "8000"];
        arguments.extend(options);
        let image = Image::made(&arguments, 80, index, ordinary);
        let disk = image.disk();
        let mut volume = mount(&disk).unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
        let count =
            walk(&mut volume, "/disk").unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
        assert_eq!(count, 3000 + 6 + 1 + 7 + 40 + 1, "{options:?}");
        // And all of it can be removed.
        for name in ["pieces", "sparse", "large", "link-200", "link-60", "empty"] {
            let removed = volume.unlink(&text!("/disk/{name}"));
            assert_eq!(removed, Ok(()), "{options:?}: {name}");
        }
        for n in 0..300 {
            let path = text!("/disk/many/a-name-of-a-file-{n}");
            assert_eq!(volume.unlink(&path), Ok(()), "{options:?}: {n}");
        }
        write(&mut volume, "/disk/new", &[1; 100_000]).unwrap();
        drop(volume);
        let mut volume = mount(&disk).unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
        assert!(walk(&mut volume, "/disk").is_ok(), "{options:?}");
        drop(volume);
        assert_eq!(complaint(&disk.content()), None, "{options:?}");
    }
}

/// The next server accepts what this one wrote: files of many pieces, directories that grew and shrank, links.
#[test]
fn own_disks_are_accepted() {
    let (disk, mut volume) = crate::tests::fresh();
    let v = &mut volume;
    v.mkdir("/disk/d", 0o755).unwrap();
    for n in 0..600 {
        write(v, &text!("/disk/d/a-long-name-of-a-file-{n}"), &[1; 100]).unwrap();
    }
    for n in 0..40 {
        v.mkdir(&text!("/disk/d/directory-{n}"), 0o755).unwrap();
    }
    write(v, "/disk/pieces", b"").unwrap();
    let (file, ..) = v.open("/disk/pieces", Flags::default(), 0).unwrap();
    for n in 0..700 {
        v.write(file, Some(n * 8192), &[n as u8; 100]).unwrap();
    }
    v.close(file).unwrap();
    v.symlink(&"z".repeat(300), "/disk/link").unwrap();
    v.rename("/disk/d/directory-3", "/disk/moved").unwrap();
    for n in 100..500 {
        v.unlink(&text!("/disk/d/a-long-name-of-a-file-{n}"))
            .unwrap();
    }
    let count = walk(v, "/disk").unwrap();
    drop(volume);
    let mut volume = mount(&disk).unwrap();
    assert_eq!(walk(&mut volume, "/disk"), Ok(count));
    let (file, ..) = volume.open("/disk/pieces", Flags::default(), 0).unwrap();
    volume.truncate(file, 2_000_000).unwrap();
    volume.close(file).unwrap();
    assert_eq!(volume.unlink("/disk/pieces"), Ok(()));
    volume.rename("/disk/moved", "/disk/d/directory-3").unwrap();
    assert_eq!(walk(&mut volume, "/disk"), Ok(count - 1));
}

/// Random errors in a disk's structures: each request ends, with few requests to the disk.
#[test]
fn seeded_mistakes_are_survived() {
    let options = ["-b", "4096", "-O", "^metadata_csum"];
    let sound = Image::made(&options, 24, true, |path| {
        std::fs::create_dir(path.join("d")).unwrap();
        for n in 0..300 {
            std::fs::write(path.join("d").join(text!("a-name-of-a-file-{n}")), b"x").unwrap();
        }
        holes(&path.join("pieces"), 400, 8 << 20);
        std::fs::write(path.join("large"), vec![7; 3 << 20]).unwrap();
        std::os::unix::fs::symlink("x".repeat(200), path.join("link")).unwrap();
    });
    // Superblock, descriptors, inodes in use, and their trees and directories.
    let mut places: Vec<usize> = (SUPERBLOCK..SUPERBLOCK + 400).collect();
    places.extend(BLOCK..BLOCK + 64);
    let inodes = sound.place(1);
    places.extend(inodes..inodes + 20 * 256);
    let mut reader = sound.clone();
    let first = journal(&mut reader)[0] as usize * BLOCK;
    places.extend(first..first + 64);
    for path in ["/disk", "/disk/d", "/disk/link"] {
        let at = reader.first_block(path) as usize * BLOCK;
        places.extend(at..at + 300);
    }
    let at = le32(reader.file("/disk/pieces"), 40 + 16) as usize * BLOCK;
    places.extend(at..at + 600);
    let mut mounted = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut image = sound.clone();
        for _ in 0..random.usize(1..6) {
            let at = places[random.usize(..places.len())];
            image.0[at] = match random.u8(..4) {
                0 => 0,
                1 => 0xff,
                2 => image.0[at] ^ 1 << random.u8(..8),
                _ => random.u8(..),
            };
        }
        let disk = image.disk();
        if let Ok(mut volume) = mount(&disk) {
            mounted += 1;
            let v = &mut volume;
            let _ = walk(v, "/disk");
            let _ = write(v, "/disk/d/new", &[1; 50_000]);
            let _ = write(v, "/disk/pieces", &[1; 50_000]);
            let _ = v.rename("/disk/large", "/disk/d/large");
            let _ = v.unlink("/disk/link");
            let _ = v.unlink("/disk/d/a-name-of-a-file-7");
            let _ = v.unlink("/disk/pieces");
            let _ = v.unlink("/disk/d/large");
        }
        // As many as the valid disk takes, and some more.
        assert!(
            disk.reads() < 20_000,
            "seed {seed}: {} requests",
            disk.reads()
        );
    }
    assert!((50..300).contains(&mounted), "{mounted} were mounted");
}
