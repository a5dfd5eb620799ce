//! The file system on a disk in memory: its behaviour, the state after a loss of power, and broken disks. `e2fsck` of
//! the host, if there is one, checks each disk.

use crate::session::Session;
use crate::volume::{format, is_blank, Volume};
use alloc::collections::BTreeMap;
use alloc::format as text;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use proto::Error;
use rsext4::{
    BlockIo, Clock, DeviceCapabilities, DeviceGeometry, Ext4Error, Ext4ErrorKind, Ext4Result,
    Ext4Timestamp, SectorId,
};
use services::fs::{is_on_disk, mode, on_disk, Files, Flags, ON_DISK};
use std::process::Command;

extern crate std;

const SECTOR: usize = 512;
const SIZE: usize = 40 << 20;
const CREATE: Flags = Flags {
    create: true,
    exclusive: false,
    truncate: false,
    nofollow: false,
    symlink: false,
    nameless: false,
};

std::thread_local! {
    /// Most bytes of memory that a step of the file system can get.
    pub(crate) static MEMORY: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// An event in the history of the disk.
#[derive(Clone)]
enum Event {
    Write(usize, Vec<u8>),
    Flush,
    /// The request with this number was answered.
    Answered(usize),
}

/// A disk in memory that records what happened to it.
#[derive(Clone)]
pub(crate) struct Memory {
    content: Rc<RefCell<Vec<u8>>>,
    events: Rc<RefCell<Vec<Event>>>,
    recording: Rc<Cell<bool>>,
    flushes: Rc<Cell<usize>>,
    reads: Rc<Cell<usize>>,
    /// The read with this number fails.
    fails: Rc<Cell<Option<usize>>>,
}

impl Memory {
    pub(crate) fn new(content: Vec<u8>) -> Self {
        Memory {
            content: Rc::new(RefCell::new(content)),
            events: Rc::default(),
            recording: Rc::default(),
            flushes: Rc::default(),
            reads: Rc::default(),
            fails: Rc::default(),
        }
    }

    /// Its contents.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.content.borrow().clone()
    }

    /// How often it was flushed.
    pub(crate) fn flushes(&self) -> usize {
        self.flushes.get()
    }

    /// How often it was read.
    pub(crate) fn reads(&self) -> usize {
        self.reads.get()
    }

    /// Makes one read fail, the next one or a later one.
    pub(crate) fn fail(&self, later: usize) {
        self.fails.set(Some(self.reads() + 1 + later));
    }

    fn event(&self, event: Event) {
        if self.recording.get() {
            self.events.borrow_mut().push(event);
        }
    }
}

impl BlockIo for Memory {
    fn write(&mut self, buffer: &[u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        assert_eq!(buffer.len(), count as usize * SECTOR);
        let at = sector.raw() as usize * SECTOR;
        self.content.borrow_mut()[at..at + buffer.len()].copy_from_slice(buffer);
        self.event(Event::Write(at, buffer.to_vec()));
        Ok(())
    }
    fn read(&mut self, buffer: &mut [u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        assert_eq!(buffer.len(), count as usize * SECTOR);
        self.reads.set(self.reads.get() + 1);
        if self.fails.get() == Some(self.reads.get()) {
            return Err(Ext4Error::new(Ext4ErrorKind::Io));
        }
        let at = sector.raw() as usize * SECTOR;
        buffer.copy_from_slice(&self.content.borrow()[at..at + buffer.len()]);
        Ok(())
    }
    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(SECTOR as u32, (self.content.borrow().len() / SECTOR) as u64)
    }
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            flush: true,
            ..DeviceCapabilities::default()
        }
    }
    fn flush(&mut self) -> Ext4Result<()> {
        self.flushes.set(self.flushes.get() + 1);
        self.event(Event::Flush);
        Ok(())
    }
}

struct Time;

impl Clock for Time {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        Ok(Ext4Timestamp::new(1_000_000, 0))
    }
}

pub(crate) fn mount(disk: &Memory) -> Result<Volume<Memory>, Error> {
    Volume::mount(disk.clone(), Time, 7)
}

pub(crate) fn fresh() -> (Memory, Volume<Memory>) {
    let disk = format(Memory::new(vec![0; SIZE]), Time).expect("a file system");
    let volume = mount(&disk).expect("a volume");
    (disk, volume)
}

/// A program of the package e2fsprogs.
pub(crate) fn tool_of_host(name: &str) -> String {
    let mut places = ["/usr/sbin", "/sbin"].into_iter();
    places
        .find_map(|place| {
            Some(text!("{place}/{name}")).filter(|path| std::path::Path::new(path).exists())
        })
        .unwrap_or_else(|| panic!("{name} is not there: install the package e2fsprogs"))
}

/// The errors that `e2fsck` finds when it has replayed the journal, if any.
pub(crate) fn complaint(content: &[u8]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), content).expect("an image");
    let found = tool_of_host("e2fsck");
    for arguments in ["-p", "-fn"] {
        let output = Command::new(&found)
            .arg(arguments)
            .arg(file.path())
            .output();
        let output = output.expect("e2fsck");
        // With -p, status 1 means that the journal was replayed.
        if !(output.status.success() || arguments == "-p" && output.status.code() == Some(1)) {
            return Some(String::from_utf8_lossy(&output.stdout).to_string());
        }
    }
    None
}

pub(crate) fn write(volume: &mut Volume<Memory>, path: &str, content: &[u8]) -> Result<(), Error> {
    let flags = Flags {
        truncate: true,
        ..CREATE
    };
    let (file, ..) = volume.open(path, flags, 0o644)?;
    let written = volume.write(file, Some(0), content);
    volume.close(file)?;
    written.map(drop)
}

pub(crate) fn read(volume: &mut Volume<Memory>, path: &str) -> Result<Vec<u8>, Error> {
    let (file, _, size) = volume.open(path, Flags::default(), 0)?;
    let content = volume.read(file, 0, size as usize);
    volume.close(file)?;
    content
}

pub(crate) fn names(volume: &mut Volume<Memory>, path: &str) -> Result<Vec<String>, Error> {
    let (file, ..) = volume.open(path, Flags::default(), 0)?;
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (entries, next) = volume.read_dir(file, cookie)?;
        if entries.is_empty() {
            break;
        }
        names.extend(entries.into_iter().map(|entry| entry.name));
        cookie = next;
    }
    volume.close(file)?;
    names.retain(|name| !matches!(name.as_str(), "." | ".." | "lost+found"));
    names.sort();
    Ok(names)
}

#[test]
fn paths_lead_to_the_disk_or_not() {
    for (path, words) in [
        ("/disk", &[][..]),
        ("/disk//x/./", &["x"]),
        ("/disk/a/../b", &["a", "..", "b"]),
        ("/../disk/../disk/a", &["a"]),
        ("/tmp/x/../../disk/a", &["a"]),
    ] {
        assert_eq!(on_disk(path).as_deref(), Some(words), "{path}");
    }
    for path in [
        "/",
        "/disk/..",
        "/diskette",
        "/tmp/disk",
        "",
        "/disk/a/../../tmp",
    ] {
        assert!(!is_on_disk(path), "{path}");
    }
}

#[test]
fn files_are_there_after_a_mount() {
    let (disk, mut volume) = fresh();
    assert!(names(&mut volume, "/disk").unwrap().is_empty());
    volume.mkdir("/disk/a", 0o755).unwrap();
    volume.mkdir("/disk/a/b", 0o700).unwrap();
    let large: Vec<u8> = (0..300_000u32).map(|n| (n % 253) as u8).collect();
    write(&mut volume, "/disk/a/b/large", &large).unwrap();
    write(&mut volume, "/disk/small", b"hello").unwrap();
    volume.link("/disk/small", "/disk/a/other").unwrap();
    volume.symlink("b/large", "/disk/a/link").unwrap();
    volume.symlink("/disk/a", "/disk/away").unwrap();
    volume.symlink(&"x/".repeat(100), "/disk/long").unwrap();
    volume.rename("/disk/a/b/large", "/disk/a/b/moved").unwrap();
    let (file, ..) = volume.open("/disk/small", Flags::default(), 0).unwrap();
    volume.chmod(file, 0o600).unwrap();
    volume.chown(file, 1000, u32::MAX).unwrap();
    assert_eq!(volume.write(file, None, b", world"), Ok((7, 5)));
    volume.utimens(file, 3_000_000_000, 5_000_000_000).unwrap();
    assert_eq!(volume.path_of(file).unwrap(), "/disk/small");
    volume.close(file).unwrap();
    drop(volume);

    // Nothing was unmounted: all answered changes are there all the same.
    let mut volume = mount(&disk).unwrap();
    assert_eq!(
        names(&mut volume, "/disk").unwrap(),
        ["a", "away", "long", "small"]
    );
    assert_eq!(
        names(&mut volume, "/disk/away").unwrap(),
        ["b", "link", "other"]
    );
    assert_eq!(
        read(&mut volume, "/disk/away/other").unwrap(),
        b"hello, world"
    );
    assert_eq!(
        read(&mut volume, "/disk/a/link"),
        Err(Error::NotFound),
        "moved away"
    );
    assert_eq!(read(&mut volume, "/disk/a/b/../b/moved").unwrap(), large);
    assert_eq!(volume.readlink("/disk/a/link").unwrap(), "b/large");
    assert_eq!(volume.readlink("/disk/long").unwrap(), "x/".repeat(100));
    let attr = volume.stat("/disk/small", true).unwrap();
    assert_eq!(
        (attr.mode, attr.uid, attr.gid, attr.links),
        (0o100_600, 1000, 0, 2)
    );
    assert_eq!((attr.size, attr.mtime_ns), (12, 5_000_000_000));
    assert_eq!(attr.ino & ON_DISK, ON_DISK);
    volume.sync().unwrap();
    assert_eq!(complaint(&disk.content.borrow()), None);
}

/// As in the file system in memory, and on Linux.
#[test]
fn links_and_slashes_at_the_end_of_a_path() {
    let (_, mut volume) = fresh();
    let v = &mut volume;
    v.mkdir("/disk/d", 0o755).unwrap();
    write(v, "/disk/d/inside", b"x").unwrap();
    write(v, "/disk/f", b"x").unwrap();
    v.symlink("d", "/disk/l").unwrap();
    v.symlink("other", "/disk/dangling").unwrap();
    let directory = |v: &mut Volume<Memory>, path: &str, flags: Flags| {
        let (file, kind, _) = v.open(path, flags, 0o644)?;
        v.close(file)?;
        Ok(kind & mode::TYPE == mode::DIRECTORY)
    };
    let link = Flags {
        symlink: true,
        ..Flags::default()
    };
    let itself = Flags {
        nofollow: true,
        ..link
    };
    let rule = "a link is opened itself only if it is not followed";
    assert_eq!(directory(v, "/disk/l", link), Ok(true), "{rule}");
    assert_eq!(directory(v, "/disk/l", itself), Ok(false), "{rule}");
    assert_eq!(directory(v, "/disk/l/", itself), Ok(true));
    assert_eq!(directory(v, "/disk/l/.", itself), Ok(true));
    let exclusive = Flags {
        exclusive: true,
        ..CREATE
    };
    let made = directory(v, "/disk/dangling", exclusive);
    assert_eq!(
        made,
        Err(Error::Exists),
        "a link leads a new file elsewhere"
    );
    assert_eq!(v.stat("/disk/other", true).map(drop), Err(Error::NotFound));

    for follow in [true, false] {
        let kind =
            |v: &mut Volume<Memory>, path| v.stat(path, follow).map(|attr| attr.mode & mode::TYPE);
        assert_eq!(kind(v, "/disk/l/"), Ok(mode::DIRECTORY));
        assert_eq!(kind(v, "/disk/f/"), Err(Error::NotDirectory));
        assert_eq!(kind(v, "/disk/f/."), Err(Error::NotDirectory));
        assert_eq!(kind(v, "/disk/d/.."), Ok(mode::DIRECTORY));
    }
    assert_eq!(directory(v, "/disk/new/", CREATE), Err(Error::IsDirectory));
    assert_eq!(v.rename("/disk/f", "/disk/new/"), Err(Error::NotDirectory));
    assert_eq!(v.link("/disk/f", "/disk/new/"), Err(Error::NotFound));
    assert_eq!(v.unlink("/disk/l/"), Err(Error::NotDirectory));
    assert_eq!(v.unlink("/disk/f/"), Err(Error::NotDirectory));
    assert_eq!(v.rmdir("/disk/l/"), Err(Error::NotDirectory));

    // What the target of a link ends in counts as well.
    for (target, name) in [("new/", "l1"), ("new/.", "l2"), ("f/", "l3"), ("f/.", "l4")] {
        v.symlink(target, &text!("/disk/{name}")).unwrap();
    }
    v.symlink("l1", "/disk/l5").unwrap();
    v.symlink("d/", "/disk/l6").unwrap();
    v.symlink("..", "/disk/d/up").unwrap();
    for (link, made, there) in [
        ("l5", Error::IsDirectory, Error::NotFound),
        ("l1", Error::IsDirectory, Error::NotFound),
        ("l2", Error::NotFound, Error::NotFound),
        ("l3", Error::NotDirectory, Error::NotDirectory),
        ("l4", Error::NotDirectory, Error::NotDirectory),
    ] {
        let path = text!("/disk/{link}");
        let rule = "a link whose target ends in a slash leads to a directory";
        assert_eq!(directory(v, &path, CREATE), Err(made), "{rule}: {link}");
        assert_eq!(v.stat(&path, true).map(drop), Err(there), "{rule}: {link}");
        let kind = v.stat(&path, false).map(|attr| attr.mode & mode::TYPE);
        assert_eq!(kind, Ok(mode::SYMLINK), "a link itself");
        v.unlink(&path).unwrap();
    }
    assert_eq!(directory(v, "/disk/l6", Flags::default()), Ok(true));
    assert_eq!(directory(v, "/disk/d/up", Flags::default()), Ok(true));
    assert_eq!(directory(v, "/disk/l6/inside", CREATE), Ok(false));
    v.unlink("/disk/d/up").unwrap();

    v.unlink("/disk/d/inside").unwrap();
    assert_eq!(
        v.rmdir("/disk/d/."),
        Err(Error::Invalid),
        "where somebody is"
    );
    assert_eq!(v.rmdir("/disk/d/.."), Err(Error::NotEmpty));
    assert_eq!(v.mkdir("/disk/new/.", 0o755), Err(Error::NotFound));
    v.mkdir("/disk/new/", 0o755).unwrap();
    v.rename("/disk/new/", "/disk/d/").unwrap();
    v.rmdir("/disk/d/").unwrap();
}

#[test]
fn what_cannot_be_is_refused() {
    let (_, mut volume) = fresh();
    let v = &mut volume;
    v.mkdir("/disk/d", 0o755).unwrap();
    write(v, "/disk/f", b"x").unwrap();
    v.symlink("loop", "/disk/loop").unwrap();
    v.symlink("/etc/passwd", "/disk/out").unwrap();
    let exclusive = Flags {
        exclusive: true,
        ..CREATE
    };
    assert_eq!(v.open("/disk/f", exclusive, 0), Err(Error::Exists));
    assert_eq!(v.open("/disk/d", CREATE, 0), Err(Error::IsDirectory));
    assert_eq!(v.open("/disk/f/x", CREATE, 0), Err(Error::NotDirectory));
    assert_eq!(v.open("/disk/n/x", CREATE, 0), Err(Error::NotFound));
    assert_eq!(v.open("/disk/loop", Flags::default(), 0), Err(Error::Loop));
    let nameless = Flags {
        nameless: true,
        ..Flags::default()
    };
    assert_eq!(v.open("/disk", nameless, 0), Err(Error::Unsupported));
    assert_eq!(
        read(v, "/disk/out"),
        Err(Error::NotFound),
        "leads elsewhere"
    );
    assert_eq!(v.open("/etc/passwd", CREATE, 0), Err(Error::NotFound));
    let long = text!("/disk/{}", "n".repeat(256));
    assert_eq!(v.open(&long, CREATE, 0), Err(Error::NameTooLong));
    assert_eq!(v.mkdir("/disk", 0), Err(Error::Exists));
    assert_eq!(v.unlink("/disk/d"), Err(Error::IsDirectory));
    assert_eq!(v.unlink("/disk"), Err(Error::IsDirectory));
    assert_eq!(v.rmdir("/disk"), Err(Error::Denied));
    assert_eq!(v.rmdir("/disk/f"), Err(Error::NotDirectory));
    v.mkdir("/disk/d/e", 0o755).unwrap();
    assert_eq!(v.rmdir("/disk/d"), Err(Error::NotEmpty));
    let below = v.rename("/disk/d", "/disk/d/e/f");
    assert_eq!(below, Err(Error::Invalid), "a directory below itself");
    assert_eq!(v.rename("/disk/f", "/disk/d"), Err(Error::IsDirectory));
    assert_eq!(v.rename("/disk/d", "/disk/f"), Err(Error::NotDirectory));
    assert_eq!(v.rename("/disk", "/disk/x"), Err(Error::Denied));
    assert_eq!(v.link("/disk/d", "/disk/x"), Err(Error::Denied));
    assert_eq!(v.link("/disk/f", "/disk/d"), Err(Error::Exists));
    let (file, ..) = v.open("/disk/f", Flags::default(), 0).unwrap();
    assert_eq!(v.write(file, Some(u64::MAX), b"x"), Err(Error::Invalid));
    assert_eq!(v.write(file, Some(1 << 43), b"x"), Err(Error::Invalid));
    assert_eq!(v.truncate(file, u64::MAX), Err(Error::Invalid));
    assert_eq!(v.read(file, u64::MAX, 10), Ok(Vec::new()));
    assert_eq!(v.read(file + 1, 0, 1), Err(Error::NotFound));
    v.close(file).unwrap();
    assert_eq!(v.close(file), Err(Error::NotFound));
}

/// A file without a name lives until it is closed, and its blocks are free then.
#[test]
fn what_is_open_lives_without_a_name() {
    let (disk, mut volume) = fresh();
    let (used, files) = volume.usage();
    let content = vec![9; 200_000];
    write(&mut volume, "/disk/a", &content).unwrap();
    write(&mut volume, "/disk/b", b"new").unwrap();
    let (file, ..) = volume.open("/disk/a", Flags::default(), 0).unwrap();
    volume.rename("/disk/b", "/disk/a").unwrap();
    assert_eq!(volume.read(file, 0, 300_000).unwrap(), content);
    assert_eq!(volume.path_of(file), Err(Error::NotFound));
    assert!(volume.usage().0 >= used + 200_000);
    volume.close(file).unwrap();
    assert_eq!(read(&mut volume, "/disk/a").unwrap(), b"new");
    volume.unlink("/disk/a").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.usage(), (used, files), "nothing is left");
    assert_eq!(complaint(&disk.content.borrow()), None);
}

/// A large file without a name is freed step by step, and requests are done meanwhile; if the server dies, the next
/// mount frees the rest. Requests that need room get it at once.
#[test]
fn a_large_file_goes_in_steps() {
    let rule = "S3: others wait for a step";
    let (disk, mut volume) = fresh();
    let before = volume.usage();
    let fill = |volume: &mut Volume<Memory>, path: &str| -> Result<(), Error> {
        let (file, ..) = volume.open(path, CREATE, 0o644)?;
        for n in 0..240 {
            volume.write(file, Some(n << 16), &[n as u8; 1 << 16])?;
        }
        volume.close(file)
    };
    fill(&mut volume, "/disk/a").expect("there is room");
    let full = volume.usage().0;
    volume.unlink("/disk/a").unwrap();
    let left = volume.usage().0;
    assert!(left > full - (4 << 20), "{rule}: {left} of {full}");
    write(&mut volume, "/disk/b", b"x").unwrap();
    let dead = Memory::new(disk.content());
    let mut again = mount(&dead).expect(rule);
    again.unlink("/disk/b").unwrap();
    assert_eq!(again.usage(), before, "{rule}");
    let mut steps = 0;
    while volume.tend() {
        steps += 1;
    }
    assert!((5..20).contains(&steps), "{rule}: {steps}");
    volume.unlink("/disk/b").unwrap();
    assert_eq!(volume.usage(), before, "nothing is left");
    // More than fits besides the file that is being freed.
    for _ in 0..4 {
        fill(&mut volume, "/disk/c").expect("what was removed is room");
        volume.unlink("/disk/c").unwrap();
    }
    while volume.tend() {}
    assert_eq!(volume.usage(), before, "nothing is left");
    drop(volume);
    assert_eq!(complaint(&disk.content()), None);
}

/// Opens `/disk/a`, sets its size, and reserves `bytes` bytes for it from `from` on.
fn reserve(volume: &mut Volume<Memory>, size: u64, from: u64, bytes: u64) -> u64 {
    use rsext4::{InodeNumber, PreallocationOptions};
    let ino = volume.stat("/disk/a", false).unwrap().ino;
    let inode = InodeNumber::new(ino as u32).unwrap();
    let (file, ..) = volume.open("/disk/a", Flags::default(), 0).unwrap();
    volume.truncate(file, size).unwrap();
    let options = PreallocationOptions::KEEP_SIZE;
    let reserved = volume.ext4.preallocate_inode(inode, from, bytes, options);
    reserved.expect("there is room");
    file
}

/// Reserved blocks are freed with a file that loses its name while it is open. And a file without a name that was cut
/// can be freed.
#[test]
fn what_was_reserved_for_a_file_without_a_name_goes() {
    let (disk, mut volume) = fresh();
    write(&mut volume, "/disk/a", &vec![1; 10 << 20]).unwrap();
    let before = volume.usage();
    let file = reserve(&mut volume, 20 << 20, 12 << 20, 4 << 20);
    assert!(volume.usage().0 >= before.0 + (4 << 20));
    volume.unlink("/disk/a").unwrap();
    volume.truncate(file, 15 << 20).unwrap();
    volume.close(file).unwrap();
    while volume.tend() {}
    let after = volume.usage();
    assert!(after.0 <= before.0 - (10 << 20), "{after:?} of {before:?}");
    assert_eq!(after.1, before.1 - 1);
    drop(volume);
    assert_eq!(complaint(&disk.content()), None);
}

/// A file whose last extent reaches far behind its end is freed in a bounded number of steps: by a cut, and when it is
/// closed. The extent begins in the file, or behind its end.
#[test]
fn what_was_reserved_behind_the_end_does_not_hold_up_a_cut() {
    for (from, cut) in [
        (4 << 20, false),
        (6 << 20, false),
        (4 << 20, true),
        (6 << 20, true),
    ] {
        let (disk, mut volume) = fresh();
        write(&mut volume, "/disk/a", &vec![1; 3 << 20]).unwrap();
        let before = volume.usage();
        let file = reserve(&mut volume, 5 << 20, from, 8 << 20);
        volume.unlink("/disk/a").unwrap();
        if cut {
            volume.truncate(file, 0).unwrap();
        }
        volume.close(file).unwrap();
        let steps = (0..100).take_while(|_| volume.tend()).count();
        assert!(steps < 20, "S1: letting a file go ends");
        let after = volume.usage();
        assert!(after.0 <= before.0 - (3 << 20), "{after:?} of {before:?}");
        assert_eq!(after.1, before.1 - 1);
        drop(volume);
        assert_eq!(complaint(&disk.content()), None);
    }
}

/// A new file has no extended attributes, also if the former file of its inode had some.
#[test]
fn a_new_file_has_no_attributes() {
    use rsext4::{InodeNumber, XattrNamespace, XattrSetMode};
    let (_, mut volume) = fresh();
    let inode = |volume: &mut Volume<Memory>, path: &str| {
        let attr = volume.stat(path, false).unwrap();
        InodeNumber::new(attr.ino as u32).unwrap()
    };
    write(&mut volume, "/disk/a", b"x").unwrap();
    let old = inode(&mut volume, "/disk/a");
    let (user, mode) = (XattrNamespace::User, XattrSetMode::Create);
    volume
        .ext4
        .set_xattr(old, user, b"secret", b"mine", mode)
        .unwrap();
    volume.unlink("/disk/a").unwrap();
    write(&mut volume, "/disk/b", b"x").unwrap();
    assert_eq!(
        inode(&mut volume, "/disk/b"),
        old,
        "the inode is used again"
    );
    let left = volume.ext4.list_xattrs(old).unwrap().len();
    assert_eq!(left, 0, "S2: attributes of another file");
}

#[test]
fn a_directory_of_many_is_read_in_pieces() {
    let (_, mut volume) = fresh();
    let expected: Vec<String> = (0..200).map(|n| text!("name-{n:03}")).collect();
    for name in &expected {
        write(&mut volume, &text!("/disk/{name}"), b"").unwrap();
    }
    assert_eq!(names(&mut volume, "/disk").unwrap(), expected);
    let (file, ..) = volume.open("/disk", Flags::default(), 0).unwrap();
    let (_, cookie) = volume.read_dir(file, 0).unwrap();
    let (second, _) = volume.read_dir(file, cookie).unwrap();
    volume.read_dir(file, 0).unwrap();
    volume.read_dir(file, 0).unwrap();
    assert_eq!(
        volume.read_dir(file, cookie).unwrap().0,
        second,
        "a place of before"
    );
    volume.close(file).unwrap();
}

/// Whoever else reads a directory, and whatever is removed meanwhile, entries that stay are read once. `removes`: all
/// entries of each answer but one are removed.
pub(crate) fn is_read_whole(disk: &Memory, path: &str, removes: bool) {
    let rule = "S2: a cookie is a place";
    let mut volume = mount(disk).expect("a sound disk");
    let expected = names(&mut volume, path).unwrap();
    let (file, ..) = volume.open(path, Flags::default(), 0).unwrap();
    let mut readers = [(0, Vec::new()), (0, Vec::new())];
    let mut kept = Vec::new();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (number, (cookie, seen)) in readers.iter_mut().enumerate() {
            let (entries, next) = volume.read_dir(file, *cookie).unwrap();
            goes_on |= !entries.is_empty();
            *cookie = next;
            let came = entries.into_iter().map(|entry| entry.name);
            let came = came.filter(|name| !matches!(name.as_str(), "." | ".." | "lost+found"));
            let came: Vec<String> = came.collect();
            if removes && number == 1 {
                kept.extend(came.first().cloned());
                for name in came.iter().skip(1) {
                    volume.unlink(&text!("{path}/{name}")).expect(rule);
                }
            }
            seen.extend(came);
        }
    }
    for (_, mut seen) in readers {
        seen.sort();
        assert!(
            seen == expected,
            "{rule}: {} of {}",
            seen.len(),
            expected.len()
        );
    }
    volume.close(file).unwrap();
    if removes {
        kept.sort();
        assert_eq!(names(&mut volume, path).unwrap(), kept, "{rule}");
    }
}

#[test]
fn what_stays_in_a_directory_is_read_once() {
    let (disk, mut volume) = fresh();
    volume.mkdir("/disk/d", 0o755).unwrap();
    for n in 0..150 {
        write(&mut volume, &text!("/disk/d/{n}"), b"").unwrap();
    }
    drop(volume);
    is_read_whole(&disk, "/disk/d", false);
    is_read_whole(&disk, "/disk/d", true);
}

/// Dropping a volume writes nothing: answered changes are on the disk, and `unmount`, with the crate's order of writes,
/// could lose them.
#[test]
fn a_volume_is_never_unmounted() {
    let (disk, mut volume) = fresh();
    write(&mut volume, "/disk/a", &[1; 100_000]).unwrap();
    volume.mkdir("/disk/d", 0o755).unwrap();
    let before = disk.content();
    disk.recording.set(true);
    drop(volume);
    assert!(disk.events.borrow().is_empty());
    assert!(disk.content() == before);
    let mut volume = mount(&disk).unwrap();
    assert_eq!(read(&mut volume, "/disk/a").unwrap(), [1; 100_000]);
    assert_eq!(names(&mut volume, "/disk").unwrap(), ["a", "d"]);
}

/// Blocks are allocated only for written data: lengthening a file takes none, and a hole takes those that are written
/// to and frees all of them.
#[test]
fn a_file_has_the_blocks_that_were_written_and_no_others() {
    const BLOCK: u64 = 4096;
    let (disk, mut volume) = fresh();
    write(&mut volume, "/disk/a", b"").unwrap();
    let (used, files) = volume.usage();
    let (file, ..) = volume.open("/disk/a", Flags::default(), 0).unwrap();
    volume.truncate(file, 20 << 20).unwrap();
    assert_eq!(volume.usage().0, used, "made longer");
    assert_eq!(volume.read(file, 10 << 20, 10).unwrap(), [0; 10]);
    volume.write(file, Some(10 << 20), b"x").unwrap();
    let written = volume.usage().0 - used;
    assert!((BLOCK..=2 * BLOCK).contains(&written), "{written}");
    volume.truncate(file, 5).unwrap();
    volume.close(file).unwrap();
    assert_eq!(volume.usage(), (used, files), "cut");
    volume.sync().unwrap();
    assert_eq!(complaint(&disk.content.borrow()), None);
}

/// A full disk refuses writes and keeps its files, and when all are removed no space is lost, however small the pieces
/// were.
#[test]
fn a_full_disk_refuses() {
    for piece in [400_000, 65_536, 5_000] {
        let (disk, mut volume) = fresh();
        volume.mkdir("/disk/d", 0o755).unwrap();
        let before = volume.usage();
        let mut count = 0;
        let refused = loop {
            let (path, content) = (text!("/disk/d/{count}"), vec![count as u8; piece]);
            let made = write(&mut volume, &path, &content);
            count += 1;
            if let Err(error) = made {
                break error;
            }
        };
        assert_eq!(refused, Error::NoMemory);
        assert!(count > 10, "{count}");
        for n in 0..count - 1 {
            let content = read(&mut volume, &text!("/disk/d/{n}")).unwrap();
            assert!(content.iter().all(|byte| *byte == n as u8) && content.len() == piece);
        }
        volume.sync().unwrap();
        assert_eq!(complaint(&disk.content.borrow()), None, "full, of {piece}");
        for n in 0..count {
            let removed = volume.unlink(&text!("/disk/d/{n}"));
            assert!(
                removed.is_ok() || n == count - 1,
                "{n} of {count}: {removed:?}"
            );
        }
        write(&mut volume, "/disk/again", &vec![1; 300_000]).unwrap();
        volume.unlink("/disk/again").unwrap();
        volume.sync().unwrap();
        assert_eq!(complaint(&disk.content.borrow()), None, "empty, of {piece}");
        let (after, files) = volume.usage();
        assert_eq!(files, before.1);
        // A directory that has grown does not shrink.
        assert!(after <= before.0 + (64 << 10), "{after} of {before:?}");
    }
}

/// Blocks of a file that is cut or removed are reused only when that is on the disk: after a loss of power the old file
/// is as it was, or shorter, and has no bytes of the new one.
#[test]
fn blocks_that_are_given_up_are_not_used_again_too_early() {
    type Give = fn(&mut Volume<Memory>);
    let cut: Give = |volume| {
        let (file, ..) = volume.open("/disk/old", Flags::default(), 0).unwrap();
        volume.truncate(file, 0).unwrap();
    };
    let remove: Give = |volume| volume.unlink("/disk/old").unwrap();
    let replace: Give = |volume| volume.rename("/disk/other", "/disk/old").unwrap();
    for (what, give) in [("cut", cut), ("removed", remove), ("replaced", replace)] {
        for seed in 0..3 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (disk, mut volume) = fresh();
            let old = vec![1; 2 << 20];
            write(&mut volume, "/disk/old", &old).unwrap();
            write(&mut volume, "/disk/other", b"").unwrap();
            // No other blocks are free.
            let mut filler = 0;
            while write(&mut volume, &text!("/disk/f{filler}"), &vec![3; 1 << 20]).is_ok() {
                filler += 1;
            }
            let (file, ..) = volume.open("/disk/new", CREATE, 0o644).unwrap_or_default();
            volume.sync().unwrap();
            let start = disk.content.borrow().clone();
            disk.recording.set(true);
            give(&mut volume);
            let at = disk.events.borrow().len();
            for n in 0..28 {
                let _ = volume.write(file, Some(n << 16), &[2; 1 << 16]);
            }
            disk.recording.set(false);
            let events = disk.events.borrow().clone();
            for _ in 0..20 {
                let end = random.usize(at..=events.len());
                let left = Memory::new(after_a_cut(&start, &events[..end], &mut random));
                let mut volume = mount(&left).unwrap();
                let content = read(&mut volume, "/disk/old").unwrap_or_default();
                assert!(
                    content.iter().all(|byte| *byte == 1),
                    "{what}, seed {seed}, {end}"
                );
            }
        }
    }
}

/// A possible disk after a loss of power: all flushed writes, and of each other write all sectors, none, or some (it is
/// torn).
fn after_a_cut(start: &[u8], events: &[Event], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut content = start.to_vec();
    let flush = events
        .iter()
        .rposition(|event| matches!(event, Event::Flush));
    for (index, event) in events.iter().enumerate() {
        let Event::Write(at, bytes) = event else {
            continue;
        };
        let flushed = flush.is_some_and(|flush| index < flush);
        let (torn, whole) = (random.u8(..3) == 0, random.bool());
        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
            if flushed || if torn { random.bool() } else { whole } {
                let at = at + sector * SECTOR;
                content[at..at + SECTOR].copy_from_slice(bytes);
            }
        }
    }
    content
}

/// Names and contents.
type Model = BTreeMap<String, Vec<u8>>;

/// Makes random requests, to the model as well, after each of which all is on the disk. Returns the model after each.
fn play(volume: &mut Volume<Memory>, disk: &Memory, random: &mut fastrand::Rng) -> Vec<Model> {
    let mut models = vec![Model::new()];
    for request in 0..60 {
        let mut model = models[request].clone();
        let path = |random: &mut fastrand::Rng| text!("/disk/{}", random.u8(..6));
        let (a, b) = (path(random), path(random));
        match random.u8(..8) {
            0..4 => {
                // Replaces a file by a rename, as programs do it: the old or the new one is there.
                let content = vec![request as u8; random.usize(..40_000)];
                write(volume, "/disk/new", &content).unwrap();
                volume.rename("/disk/new", &a).unwrap();
                model.insert(a, content);
            }
            4..6 => {
                let removed = volume.unlink(&a);
                assert_eq!(removed.is_ok(), model.remove(&a).is_some());
            }
            6 => {
                let renamed = volume.rename(&a, &b);
                assert_eq!(renamed.is_ok(), model.contains_key(&a));
                if a != b {
                    if let Some(content) = model.remove(&a) {
                        model.insert(b, content);
                    }
                }
            }
            _ => {
                if let Some(content) = model.get_mut(&a) {
                    let (file, _, size) = volume.open(&a, Flags::default(), 0).unwrap();
                    volume.truncate(file, size / 2).unwrap();
                    volume.close(file).unwrap();
                    content.truncate(size as usize / 2);
                }
            }
        }
        models.push(model);
        disk.event(Event::Answered(request + 1));
    }
    models
}

/// Loss of power at random instants, with unflushed writes on the disk or not: answered requests are done, requests
/// under way are done or not, nothing else is changed, and `e2fsck` finds no errors.
#[test]
fn what_was_answered_survives_a_loss_of_power() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (disk, mut volume) = fresh();
        volume.sync().unwrap();
        let start = disk.content.borrow().clone();
        disk.recording.set(true);
        let models = play(&mut volume, &disk, &mut random);
        disk.recording.set(false);
        let events = disk.events.borrow().clone();
        for _ in 0..25 {
            let cut = random.usize(..=events.len());
            let answered = events[..cut].iter().rev().find_map(|event| match event {
                Event::Answered(number) => Some(*number),
                _ => None,
            });
            let answered = answered.unwrap_or(0);
            let left = Memory::new(after_a_cut(&start, &events[..cut], &mut random));
            let what = text!("seed {seed}, cut {cut}, {answered} answered");
            let mut volume = mount(&left).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let found = |volume: &mut Volume<Memory>| -> Result<Model, Error> {
                let mut found = Model::new();
                for name in names(volume, "/disk")? {
                    let path = text!("/disk/{name}");
                    let content = read(volume, &path)?;
                    // The contents of a new file that has not been renamed yet do not matter.
                    if name != "new" {
                        found.insert(path, content);
                    }
                }
                Ok(found)
            };
            let found = found(&mut volume).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let next = models.get(answered + 1);
            let sizes = |model: &Model| -> Vec<(String, usize, Option<u8>)> {
                let size = |(path, content): (&String, &Vec<u8>)| {
                    (path.clone(), content.len(), content.first().copied())
                };
                model.iter().map(size).collect()
            };
            // A file that is being cut has its old length without the freed bytes, or its new length.
            let is_being_cut = |next: &Model| {
                found.len() == next.len()
                    && found.iter().all(|(path, content)| {
                        let new = next.get(path).is_some_and(|new| content.starts_with(new));
                        let old = models[answered].get(path);
                        new && old.is_some_and(|old| old.len() == content.len())
                    })
            };
            assert!(
                found == models[answered]
                    || next.is_some_and(|next| found == *next || is_being_cut(next)),
                "{what}: {:?}, and it should be {:?} or {:?}",
                sizes(&found),
                sizes(&models[answered]),
                next.map(sizes)
            );
            volume.sync().unwrap();
            let wrong = complaint(&left.content.borrow());
            assert_eq!(wrong, None, "{what}");
        }
    }
}

/// Whatever a disk contains, the result is an error, and no panic.
#[test]
fn broken_disks_are_survived() {
    let (disk, mut volume) = fresh();
    for n in 0..20 {
        write(&mut volume, &text!("/disk/{n}"), &vec![n; 9_000]).unwrap();
    }
    volume.mkdir("/disk/d", 0o755).unwrap();
    drop(volume);
    let sound = disk.content.borrow().clone();
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut content = sound.clone();
        for _ in 0..random.usize(1..200) {
            let at = used[random.usize(..used.len())];
            content[at] = random.u8(..);
        }
        let broken = Memory::new(content);
        let Ok(mut volume) = mount(&broken) else {
            continue;
        };
        let _ = names(&mut volume, "/disk");
        for n in 0..20 {
            let _ = read(&mut volume, &text!("/disk/{n}"));
        }
        let _ = write(&mut volume, "/disk/d/x", &[1; 5_000]);
        let _ = volume.rename("/disk/1", "/disk/d/y");
        let _ = volume.unlink("/disk/2");
    }
    assert_eq!(is_blank(&mut Memory::new(sound)), Ok(false));
    assert_eq!(is_blank(&mut Memory::new(vec![0; 4096])), Ok(true));
    let noise = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    assert_eq!(mount(&Memory::new(noise)).err(), Some(Error::BadFormat));
    assert_eq!(
        mount(&Memory::new(vec![0; 512])).err(),
        Some(Error::BadFormat)
    );
    for size in [4096, 4 << 20, 16 << 20] {
        let mut small = Memory::new(vec![0; size]);
        let refused = format(small.clone(), Time).err();
        assert_eq!(refused, Some(Error::Unsupported), "{size} bytes");
        assert_eq!(is_blank(&mut small), Ok(true), "{size} bytes");
    }
}

/// A disk with data where other formats have their signatures, at the beginning or the end, is in use.
#[test]
fn a_disk_with_something_behind_its_beginning_is_not_blank() {
    let rule = "S2: a disk that is somebody's stays as it is";
    for size in [SIZE, 3 << 20, 70_000 / SECTOR * SECTOR] {
        let blank = vec![0; size];
        assert_eq!(is_blank(&mut Memory::new(blank.clone())), Ok(true));
        for at in [0, 1080, 65_600, size - 1] {
            let mut content = blank.clone();
            content[at] = 1;
            let found = is_blank(&mut Memory::new(content));
            assert_eq!(found, Ok(false), "{rule}: byte {at} of {size}");
        }
    }
    for at in [(2 << 20) - 1, SIZE - (128 << 10)] {
        let mut content = vec![0; SIZE];
        content[at] = 1;
        assert_eq!(is_blank(&mut Memory::new(content)), Ok(false), "{rule}");
    }
}

#[test]
fn a_path_leads_through_a_bounded_number_of_names() {
    let (_, mut volume) = fresh();
    volume.mkdir("/disk/a", 0o755).expect("a directory");
    let there_and_back = "a/../".repeat(800);
    volume.symlink(&there_and_back, "/disk/l").expect("a link");
    assert_eq!(
        volume.stat("/disk/l/a", true).err(),
        Some(Error::Loop),
        "1,600 names in a link"
    );
    let links = ["/disk/", &"l/".repeat(30), "a"].concat();
    assert_eq!(volume.stat(&links, true).err(), Some(Error::Loop));
    let short = ["/disk/", &"a/../".repeat(400), "a"].concat();
    assert!(volume.stat(&short, true).is_ok(), "801 names");
}

/// A client that opens files and removes their names does not delay others: to free one such file the library goes
/// through all of them.
#[test]
fn files_without_a_name_are_bounded() {
    let (disk, mut volume) = fresh();
    let path = |n: usize| text!("/disk/{n}");
    let mut open = Vec::new();
    let mut gone = 0;
    for n in 0..300 {
        write(&mut volume, &path(n), b"x").unwrap();
        open.push(volume.open(&path(n), Flags::default(), 0).unwrap().0);
        match volume.unlink(&path(n)) {
            Ok(()) => gone += 1,
            Err(error) => assert_eq!(error, Error::Limit, "{n}"),
        }
    }
    assert_eq!(gone, 96, "a disk is nobody's to hold up");
    write(&mut volume, "/disk/new", b"new").unwrap();
    let replaced = volume.rename("/disk/new", &path(299));
    assert_eq!(
        replaced,
        Err(Error::Limit),
        "nor by a name that is replaced"
    );
    // Files that are not open can be removed, and so can names of files with another name.
    assert_eq!(volume.unlink("/disk/new"), Ok(()));
    volume.link(&path(299), "/disk/other").unwrap();
    assert_eq!(volume.unlink("/disk/other"), Ok(()));
    for file in open {
        volume.close(file).unwrap();
    }
    assert_eq!(volume.unlink(&path(299)), Ok(()));
    drop(volume);
    assert_eq!(complaint(&disk.content.borrow()), None);
}

/// The end of a session closes so many open files without a name at once, with so much memory.
fn ended(volume: Volume<Memory>, files: usize, content: &[u8], memory: u64) -> Volume<Memory> {
    let shared = Rc::new(RefCell::new(Ok(volume)));
    let session = Session::new(&shared, 1000);
    for n in 0..files {
        let path = text!("/disk/{n}");
        let file = session.open_file(CREATE.bits(), 0o644, &path);
        let (file, ..) = file.expect("a file");
        for (at, piece) in content.chunks(1 << 16).enumerate() {
            let written = session.write(file, (at as u64) << 16, piece);
            assert_eq!(written, Ok(piece.len() as u32));
        }
        assert_eq!(session.unlink(&path), Ok(()), "{n}");
    }
    MEMORY.set(memory);
    drop(session);
    MEMORY.set(u64::MAX);
    let volume = Rc::try_unwrap(shared).ok().expect("one owner");
    volume.into_inner().expect("a volume")
}

/// Files without a name are closed again and again while there is no memory: those that stay are counted, so that the
/// disk can be mounted, and are freed when there is memory.
#[test]
fn files_without_a_name_are_counted_when_memory_is_out() {
    let rule = "S2: what is on the disk without a name is counted";
    let (disk, mut volume) = fresh();
    let before = volume.usage();
    volume = ended(volume, 96, b"x", 0);
    let path = "/disk/more";
    for _ in 0..3 {
        MEMORY.set(0);
        assert!(!volume.tend(), "{rule}: there is no memory");
        MEMORY.set(u64::MAX);
        write(&mut volume, path, b"x").expect("a file");
        let (file, ..) = volume.open(path, CREATE, 0o644).expect("a file");
        assert_eq!(volume.unlink(path), Err(Error::Limit), "{rule}");
        volume.close(file).expect("closed");
    }
    // Some more files that are not open can wait, up to the limit.
    let mut gone = 0;
    for n in 0..40 {
        let path = text!("/disk/{n}");
        write(&mut volume, &path, b"x").expect("a file");
        // There is memory to check it.
        MEMORY.set(4096);
        gone += usize::from(volume.unlink(&path) == Ok(()));
        MEMORY.set(u64::MAX);
    }
    assert_eq!(gone, 32, "{rule}");
    let mut again = mount(&Memory::new(disk.content())).expect(rule);
    for n in 32..40 {
        again.unlink(&text!("/disk/{n}")).expect("unlinked");
    }
    again.unlink(path).expect("unlinked");
    assert_eq!(again.usage(), before, "{rule}: a mount lets go of them");
    while volume.tend() {}
    for n in 32..40 {
        volume.unlink(&text!("/disk/{n}")).expect("unlinked");
    }
    volume.unlink(path).expect("unlinked");
    assert_eq!(volume.usage(), before, "{rule}: they go");
    drop(volume);
    assert_eq!(complaint(&disk.content()), None);
}

/// A file without a name that is closed for the last time while the disk fails is freed later, and no other file with
/// its inode is.
#[test]
fn a_file_without_a_name_survives_a_disk_that_fails() {
    let rule = "S2: what is on the disk without a name is counted";
    let (disk, mut volume) = fresh();
    let before = volume.usage();
    let mut failures = 0;
    for read in 0..200 {
        write(&mut volume, "/disk/a", &vec![1; 3 << 20]).expect("a file");
        let (file, ..) = volume.open("/disk/a", CREATE, 0o644).expect("a file");
        volume.unlink("/disk/a").expect("unlinked");
        let reads = disk.reads();
        disk.fail(read);
        let failed = volume.close(file).is_err();
        failures += usize::from(failed);
        let were = disk.reads() - reads;
        disk.fail(usize::MAX / 2);
        while volume.tend() {}
        assert_eq!(volume.usage(), before, "{rule}: read {read}");
        if !failed && were <= read {
            break;
        }
    }
    assert!(failures > 0, "{rule}: the disk has failed");
    drop(volume);
    assert_eq!(complaint(&disk.content()), None);
}

/// Large files without a name, all closed at once, are freed in steps, however many they are.
#[test]
fn many_large_files_go_in_steps() {
    const FILES: usize = 40;
    let rule = "S3: others wait for a step";
    let disk = format(Memory::new(vec![0; 256 << 20]), Time).expect("a file system");
    let mut volume = mount(&disk).expect("a volume");
    let before = volume.usage();
    volume = ended(volume, FILES, &vec![1; 4 << 20], u64::MAX);
    let left = volume.usage().0 - before.0;
    // Each file has lost 512 blocks.
    assert!(
        left >= (FILES as u64) << 21,
        "{rule}: {left} bytes are left"
    );
    let steps = (0..1000).take_while(|_| volume.tend()).count();
    assert!((FILES..4 * FILES).contains(&steps), "{rule}: {steps}");
    assert_eq!(volume.usage(), before, "nothing is left");
    drop(volume);
    assert_eq!(complaint(&disk.content()), None);
}

/// The kept paths of open files are no longer than paths of requests, and are updated at a rename; without memory for
/// that the rename is refused before anything is changed.
#[test]
fn paths_of_open_files_are_bounded() {
    let rule = "S2: what is kept for a client has a bound";
    let (_disk, mut volume) = fresh();
    let name = |letter: &str| letter.repeat(250);
    // Each of three links leads four directories further down, which take 1,004 bytes.
    let (mut real, mut short) = (String::from("/disk"), String::from("/disk"));
    volume.mkdir("/disk/d", 0o755).expect("a directory");
    real.push_str("/d");
    short.push_str("/d");
    let mut files = Vec::new();
    for n in 0..5 {
        let mut below = String::new();
        for _ in 0..4 {
            below = text!("{below}/{}", name("a"));
            let made = volume.mkdir(&text!("{short}{below}"), 0o755);
            made.expect("a directory");
        }
        real.push_str(&below);
        volume
            .symlink(&below[1..], &text!("{short}/l"))
            .expect("a link");
        short.push_str("/l");
        let path = text!("{short}/f");
        let (file, ..) = volume.open(&path, CREATE, 0o644).expect("a file");
        files.push(file);
        let expected = match n {
            0..4 => Ok(text!("{real}/f")),
            _ => Err(Error::NameTooLong),
        };
        assert_eq!(volume.path_of(file), expected, "{rule}: {n}");
    }
    let longest = volume.lengths().into_iter().max();
    assert!(longest <= Some(4096), "{rule}: {longest:?}");
    // With the new name the longest path is too long, and the other three grow.
    let to = text!("/disk/{}", name("b"));
    let grow: usize = (1..4).map(|n| to.len() + n * 1004 + 2 + 32).sum();
    MEMORY.set(grow as u64 - 1);
    let refused = volume.rename("/disk/d", &to);
    assert_eq!(refused, Err(Error::NoMemory), "{rule}");
    assert!(volume.stat("/disk/d", false).is_ok(), "{rule}");
    MEMORY.set(grow as u64);
    assert_eq!(volume.rename("/disk/d", &to), Ok(()), "{rule}");
    MEMORY.set(u64::MAX);
    let mut real = to;
    for (n, file) in files.into_iter().enumerate() {
        real = text!("{real}{}", text!("/{}", name("a")).repeat(4));
        let expected = match n {
            0..3 => Ok(text!("{real}/f")),
            _ => Err(Error::NameTooLong),
        };
        assert_eq!(volume.path_of(file), expected, "{rule}: {n} follows");
    }
    let longest = volume.lengths().into_iter().max();
    assert!(longest <= Some(4096), "{rule}: {longest:?}");
}

/// Forged sizes on a disk: a symbolic link of gigabytes, and a file with more blocks than have numbers.
#[test]
fn sizes_that_a_disk_claims() {
    let (disk, mut volume) = fresh();
    write(&mut volume, "/disk/file", &[7; 5_000]).unwrap();
    write(&mut volume, "/disk/larger", &[7; 5_000]).unwrap();
    let long = "a".repeat(200);
    volume.symlink("file", "/disk/short").unwrap();
    volume.symlink(&long, "/disk/long").unwrap();
    volume.sync().unwrap();
    drop(volume);
    let image = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(image.path(), disk.content()).expect("an image");
    // Replays the journal first, since a later replay would undo the changes.
    for (tool, arguments) in [
        ("e2fsck", &["-p"][..]),
        (
            "debugfs",
            &["-w", "-R", "set_inode_field /short size 4026531840"],
        ),
        (
            "debugfs",
            &["-w", "-R", "set_inode_field /long size 4026531840"],
        ),
        (
            "debugfs",
            &["-w", "-R", "set_inode_field /file size 17592186040320"],
        ),
        (
            "debugfs",
            &["-w", "-R", "set_inode_field /larger size 17592186044416"],
        ),
    ] {
        let status = Command::new(tool_of_host(tool))
            .args(arguments)
            .arg(image.path())
            .stderr(std::process::Stdio::null())
            .status()
            .expect(tool);
        assert!(matches!(status.code(), Some(0 | 1)), "{arguments:?}");
    }
    let broken = Memory::new(std::fs::read(image.path()).expect("an image"));
    let mut volume = mount(&broken).unwrap();
    for link in ["/disk/short", "/disk/long"] {
        let refused = volume.readlink(link).err();
        assert_eq!(refused, Some(Error::BadFormat), "{link}");
        assert_eq!(
            volume.stat(link, true).err(),
            Some(Error::BadFormat),
            "{link}"
        );
    }
    let (file, _, size) = volume.open("/disk/file", Flags::default(), 0).unwrap();
    assert_eq!(size, (1 << 44) - 4096);
    for offset in [1 << 42, size - 4096, size - 10, size, 1 << 44] {
        let came = volume.read(file, offset, 4096);
        let nothing = came.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
        assert!(nothing, "at {offset}");
    }
    assert_eq!(read(&mut volume, "/disk/larger"), Err(Error::BadFormat));
}
