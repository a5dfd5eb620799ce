//! Tests of the file system on the host.

extern crate std;

use crate::content::CHUNK;
use crate::session::{Session, Shared};
use crate::tree::FileSystem;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use proto::Error;
use services::fs::{mode, Files, Flags, Ino, MOUNT, NULL_INO, ROOT_INO};
use std::collections::BTreeMap;

const CREATE: Flags = Flags {
    create: true,
    exclusive: false,
    truncate: false,
    nofollow: false,
    symlink: false,
    nameless: false,
};
const OPEN: Flags = Flags {
    create: false,
    exclusive: false,
    truncate: false,
    nofollow: false,
    symlink: false,
    nameless: false,
};

fn new() -> FileSystem {
    let mut fs = FileSystem::new(64 << 20);
    fs.make_devices().unwrap();
    fs
}

fn create(fs: &mut FileSystem, path: &str, bytes: &[u8]) -> Ino {
    let ino = fs.open(path, CREATE, 0o644).unwrap().ino;
    assert_eq!(
        fs.write(ino, 0, false, bytes).unwrap().0 as usize,
        bytes.len()
    );
    fs.close(ino).unwrap();
    ino
}

fn text(fs: &mut FileSystem, path: &str) -> String {
    let ino = fs.stat(path, true).unwrap().ino;
    String::from_utf8(fs.read(ino, 0, 65536).unwrap().into()).unwrap()
}

fn listed(fs: &mut FileSystem, ino: u64, cookie: u64) -> (Vec<services::fs::Entry>, u64) {
    services::fs::entries(&fs.read_dir(ino, cookie).unwrap()).unwrap()
}

fn names(fs: &mut FileSystem, path: &str) -> Vec<String> {
    let ino = fs.stat(path, true).unwrap().ino;
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let (entries, next) = listed(fs, ino, cookie);
        if entries.is_empty() {
            return all;
        }
        all.extend(entries.into_iter().map(|entry| entry.name));
        cookie = next;
    }
}

#[test]
fn files_hold_what_was_written() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/a", b"hello");
    assert_eq!(text(&mut fs, "/tmp/a"), "hello");
    assert_eq!(fs.write(ino, 99, true, b" world").unwrap(), (6, 5));
    assert_eq!(text(&mut fs, "/tmp/../tmp/./a"), "hello world");
    let attr = fs.stat("/tmp/a", true).unwrap();
    assert_eq!(
        (attr.size, attr.links, attr.mode),
        (11, 1, mode::FILE | 0o644)
    );
    assert_eq!(*fs.read(ino, 20, 10).unwrap(), *b"");
    assert_eq!(*fs.read(ino, u64::MAX, 10).unwrap(), *b"");
}

#[test]
fn holes_read_as_zero_and_cost_nothing() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/sparse", b"x");
    let before = fs.budget().used();
    fs.write(ino, 1 << 40, false, b"y").unwrap();
    assert!(fs.budget().used() - before < 2 * CHUNK);
    assert_eq!(fs.stat_ino(ino).unwrap().size, (1 << 40) + 1);
    assert_eq!(*fs.read(ino, (1 << 40) - 2, 8).unwrap(), *b"\0\0y");
    assert_eq!(*fs.read(ino, 0, 3).unwrap(), *b"x\0\0");
    // Bytes that were cut off do not come back.
    fs.write(ino, 0, false, &[7; 3000]).unwrap();
    fs.truncate(ino, 10).unwrap();
    fs.truncate(ino, 20).unwrap();
    assert_eq!(*fs.read(ino, 0, 100).unwrap(), [[7; 10], [0; 10]].concat());
    fs.write(ino, 15, false, b"z").unwrap();
    assert_eq!(*fs.read(ino, 9, 100).unwrap(), *b"\x07\0\0\0\0\0z\0\0\0\0");
    assert_eq!(fs.truncate(ino, u64::MAX), Err(Error::Invalid));
    assert_eq!(fs.write(ino, u64::MAX, false, b"abc"), Err(Error::Invalid));
}

#[test]
fn random_writes_agree_with_a_flat_model() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/r", b"");
    let mut model: Vec<u8> = Vec::new();
    let mut generator = Rng::with_seed(1);
    let mut random = |below: u64| generator.u64(..below);
    for round in 0..2000u32 {
        let offset = random(3 * CHUNK) as usize;
        let length = random(if round % 10 == 0 { CHUNK } else { 200 }) as usize;
        match random(8) {
            0 => {
                fs.truncate(ino, offset as u64).unwrap();
                model.resize(offset, 0);
            }
            1..=5 => {
                let bytes: Vec<u8> = (0..length).map(|i| (i as u32 ^ round) as u8).collect();
                fs.write(ino, offset as u64, false, &bytes).unwrap();
                if model.len() < offset + length && length > 0 {
                    model.resize(offset + length, 0);
                }
                if length > 0 {
                    model[offset..offset + length].copy_from_slice(&bytes);
                }
            }
            _ => {
                let read = fs.read(ino, offset as u64, length).unwrap();
                let from = offset.min(model.len());
                let to = (offset + length).min(model.len());
                assert_eq!(read, &model[from..to], "round {round}");
            }
        }
        assert_eq!(fs.stat_ino(ino).unwrap().size, model.len() as u64);
    }
    fs.unlink("/tmp/r").unwrap();
    assert_eq!(fs.stat_ino(ino), Err(Error::NotFound));
}

#[test]
fn memory_comes_back_and_running_out_is_an_error() {
    let mut fs = FileSystem::new(300_000);
    fs.make_devices().unwrap();
    let empty = fs.budget().used();
    let ino = fs.open("/tmp/big", CREATE, 0o600).unwrap().ino;
    let mut written = 0;
    let error = loop {
        match fs.write(ino, written, false, &[1; 50_000]) {
            Ok((count, _)) => written += u64::from(count),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoMemory);
    assert!(written >= 3 * CHUNK);
    assert_eq!(fs.stat_ino(ino).unwrap().size, written);
    assert_eq!(*fs.read(ino, written - 3, 10).unwrap(), [1; 3]);
    fs.unlink("/tmp/big").unwrap();
    fs.close(ino).unwrap();
    assert_eq!(fs.budget().used(), empty);
    // Names cost memory as well.
    let mut made = 0;
    while fs.mkdir(&format!("/tmp/{made}"), 0o755).is_ok() {
        made += 1;
    }
    assert!(made > 100);
    // First too little is left for a directory, then nothing.
    fs.budget().set_left(0);
    assert_eq!(fs.mkdir("/tmp/more", 0o755), Err(Error::NoMemory));
    assert_eq!(fs.open("/tmp/more", CREATE, 0o755), Err(Error::NoMemory));
    assert_eq!(fs.symlink("/x", "/tmp/more"), Err(Error::NoMemory));
    let left = fs.budget().left();
    fs.rmdir("/tmp/0").unwrap();
    assert!(fs.budget().left() > left);
    fs.mkdir("/tmp/0", 0o755).unwrap();
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/a", b"data");
    fs.open("/tmp/a", OPEN, 0).unwrap();
    fs.unlink("/tmp/a").unwrap();
    assert_eq!(fs.stat("/tmp/a", true), Err(Error::NotFound));
    assert_eq!(fs.path_of(ino), Err(Error::NotFound));
    assert_eq!(*fs.read(ino, 0, 10).unwrap(), *b"data");
    assert_eq!(fs.stat_ino(ino).unwrap().links, 0);
    fs.close(ino).unwrap();
    assert_eq!(fs.close(ino), Err(Error::NotFound));
    let other = create(&mut fs, "/tmp/b", b"");
    assert_eq!(fs.close(other), Err(Error::Invalid));
}

#[test]
fn open_obeys_its_flags() {
    let mut fs = new();
    create(&mut fs, "/tmp/a", b"data");
    fs.symlink("a", "/tmp/link").unwrap();
    fs.symlink("nowhere", "/tmp/dangling").unwrap();
    let exclusive = Flags {
        exclusive: true,
        ..CREATE
    };
    assert_eq!(fs.open("/tmp/a", exclusive, 0), Err(Error::Exists));
    assert_eq!(fs.open("/tmp/dangling", exclusive, 0), Err(Error::Exists));
    assert_eq!(
        fs.open(
            "/tmp/link",
            Flags {
                nofollow: true,
                ..OPEN
            },
            0
        ),
        Err(Error::Loop)
    );
    assert_eq!(fs.open("/tmp/link", OPEN, 0).unwrap().size, 4);
    assert_eq!(
        fs.open(
            "/tmp",
            Flags {
                truncate: true,
                ..OPEN
            },
            0
        ),
        Err(Error::IsDirectory)
    );
    assert_eq!(fs.open("/tmp", CREATE, 0), Err(Error::IsDirectory));
    assert_eq!(fs.open("/tmp/new/", CREATE, 0), Err(Error::IsDirectory));
    assert_eq!(fs.open("/tmp/a/b", CREATE, 0), Err(Error::NotDirectory));
    assert_eq!(fs.open("/tmp/a/", OPEN, 0), Err(Error::NotDirectory));
    assert_eq!(fs.open("/no/file", CREATE, 0), Err(Error::NotFound));
    assert_eq!(fs.open("file", CREATE, 0), Err(Error::Invalid));
    assert_eq!(fs.open("", CREATE, 0), Err(Error::NotFound));
    assert_eq!(fs.open("/a\0b", CREATE, 0), Err(Error::Invalid));
    assert_eq!(fs.symlink("b\0c", "/link"), Err(Error::Invalid));
    assert_eq!(
        fs.open(&format!("/{}", "n".repeat(256)), CREATE, 0),
        Err(Error::NameTooLong)
    );
    assert_eq!(
        fs.open(&"/n".repeat(2049), CREATE, 0),
        Err(Error::NameTooLong)
    );
    let made = fs.open("/tmp/dangling", CREATE, 0o600).unwrap().ino;
    assert_eq!(fs.path_of(made).unwrap(), "/tmp/nowhere");
    assert_eq!(
        fs.open(
            "/tmp/a",
            Flags {
                truncate: true,
                ..OPEN
            },
            0
        )
        .unwrap()
        .size,
        0
    );
}

#[test]
fn symbolic_links_are_followed_and_loops_found() {
    let mut fs = new();
    fs.mkdir("/d", 0o755).unwrap();
    fs.mkdir("/d/e", 0o755).unwrap();
    create(&mut fs, "/d/e/f", b"deep");
    fs.symlink("e", "/d/rel").unwrap();
    fs.symlink("/d/rel/", "/abs").unwrap();
    fs.symlink("../d/rel/../../abs/f", "/tmp/f").unwrap();
    assert_eq!(text(&mut fs, "/abs/f"), "deep");
    assert_eq!(text(&mut fs, "/tmp/f"), "deep");
    assert_eq!(text(&mut fs, "/../../abs/../e/f"), "deep");
    assert_eq!(fs.readlink("/tmp/f").unwrap(), "../d/rel/../../abs/f");
    assert_eq!(fs.readlink("/d"), Err(Error::Invalid));
    assert_eq!(
        fs.stat("/abs", false).unwrap().mode & mode::TYPE,
        mode::SYMLINK
    );
    assert_eq!(
        fs.stat("/abs/", false).unwrap().mode & mode::TYPE,
        mode::DIRECTORY
    );
    fs.symlink("b", "/tmp/a").unwrap();
    fs.symlink("a", "/tmp/b").unwrap();
    assert_eq!(fs.stat("/tmp/a", true), Err(Error::Loop));
    fs.symlink("x/x", "/tmp/x").unwrap();
    assert_eq!(fs.stat("/tmp/x", true), Err(Error::Loop));
    assert_eq!(fs.unlink("/tmp/a"), Ok(()));
    assert_eq!(fs.symlink("", "/tmp/y"), Err(Error::NotFound));
    // A link to a file, with a trailing slash.
    assert_eq!(fs.stat("/tmp/f/", true), Err(Error::NotDirectory));
}

#[test]
fn directories_are_made_and_removed() {
    let mut fs = new();
    fs.mkdir("/tmp/d/", 0o700).unwrap();
    assert_eq!(fs.mkdir("/tmp/d", 0o700), Err(Error::Exists));
    assert_eq!(fs.mkdir("/", 0o700), Err(Error::Exists));
    assert_eq!(fs.mkdir("/x/y", 0o700), Err(Error::NotFound));
    fs.mkdir("/tmp/d/e", 0o700).unwrap();
    assert_eq!(fs.stat("/tmp/d", true).unwrap().links, 3);
    assert_eq!(fs.rmdir("/tmp/d"), Err(Error::NotEmpty));
    assert_eq!(fs.rmdir("/tmp/d/e/."), Err(Error::Invalid));
    assert_eq!(fs.rmdir("/tmp/d/e/.."), Err(Error::NotEmpty));
    assert_eq!(fs.rmdir("/"), Err(Error::NotEmpty));
    assert_eq!(fs.unlink("/tmp/d"), Err(Error::IsDirectory));
    create(&mut fs, "/tmp/f", b"");
    assert_eq!(fs.rmdir("/tmp/f"), Err(Error::NotDirectory));
    // Nothing can be made in an open directory that was removed.
    let ino = fs.open("/tmp/d/e", OPEN, 0).unwrap().ino;
    fs.rmdir("/tmp/d/e").unwrap();
    assert_eq!(fs.stat_ino(ino).unwrap().links, 0);
    assert_eq!(fs.stat("/tmp/d", true).unwrap().links, 2);
    // It has no entries any more, not even `.`, as in Linux.
    assert_eq!(fs.read_dir(ino, 0), Err(Error::NotFound));
    fs.close(ino).unwrap();
    assert_eq!(fs.read_dir(ino, 0), Err(Error::NotFound));
}

#[test]
fn reading_a_directory_misses_nothing_while_it_changes() {
    let mut fs = new();
    fs.mkdir("/d", 0o755).unwrap();
    for i in 0..200 {
        create(&mut fs, &format!("/d/{i}"), b"");
    }
    let ino = fs.stat("/d", true).unwrap().ino;
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let (entries, next) = listed(&mut fs, ino, cookie);
        if entries.is_empty() {
            break;
        }
        cookie = next;
        for entry in entries.iter().filter(|entry| !entry.name.starts_with('.')) {
            fs.unlink(&format!("/d/{}", entry.name)).unwrap();
            removed += 1;
        }
        if removed < 100 {
            create(&mut fs, &format!("/d/new{removed}"), b"");
        }
    }
    assert!(removed >= 200);
    assert_eq!(names(&mut fs, "/d"), [".", ".."]);
    fs.rmdir("/d").unwrap();
    assert_eq!(fs.read_dir(NULL_INO, 0), Err(Error::NotDirectory));
    let root = fs.stat_ino(ROOT_INO).unwrap();
    let (_, next) = listed(&mut fs, ROOT_INO, 0);
    assert_eq!(listed(&mut fs, ROOT_INO, next).0, []);
    assert_eq!(listed(&mut fs, ROOT_INO, u64::MAX).0, []);
    assert_eq!(root.links, 2 + 2);
}

#[test]
fn rename_follows_posix() {
    let mut fs = new();
    for directory in ["/a", "/a/b", "/a/b/c", "/e"] {
        fs.mkdir(directory, 0o755).unwrap();
    }
    create(&mut fs, "/f", b"f");
    create(&mut fs, "/g", b"g");
    assert_eq!(fs.rename("/a", "/a/b/c/d"), Err(Error::Invalid));
    assert_eq!(fs.rename("/a", "/a/x"), Err(Error::Invalid));
    assert_eq!(fs.rename("/a/b", "/a"), Err(Error::NotEmpty));
    assert_eq!(fs.rename("/f", "/e"), Err(Error::IsDirectory));
    assert_eq!(fs.rename("/e", "/f"), Err(Error::NotDirectory));
    assert_eq!(fs.rename("/e", "/a"), Err(Error::NotEmpty));
    assert_eq!(fs.rename("/f/", "/h"), Err(Error::NotDirectory));
    assert_eq!(fs.rename("/f", "/h/"), Err(Error::NotDirectory));
    assert_eq!(fs.rename("/none", "/h"), Err(Error::NotFound));
    assert_eq!(fs.rename("/f", "/none/h"), Err(Error::NotFound));
    assert_eq!(fs.rename("/", "/h"), Err(Error::Invalid));
    assert_eq!(fs.rename("/a/..", "/h"), Err(Error::Invalid));
    fs.rename("/f", "/g").unwrap();
    assert_eq!(text(&mut fs, "/g"), "f");
    assert_eq!(fs.stat("/f", true), Err(Error::NotFound));
    fs.link("/g", "/h").unwrap();
    fs.rename("/g", "/h").unwrap();
    assert_eq!(fs.stat("/g", true).unwrap().links, 2);
    assert_eq!(fs.rename("/h", "/h"), Ok(()));
    // Rename over an empty directory; the `..` of directories in it follows.
    fs.rename("/a/b", "/e").unwrap();
    let c = fs.stat("/e/c", true).unwrap().ino;
    assert_eq!(fs.path_of(c).unwrap(), "/e/c");
    assert_eq!(fs.stat("/e/c/../..", true).unwrap().ino, ROOT_INO);
    assert_eq!(fs.stat("/a", true).unwrap().links, 2);
    fs.rename("/e/c", "/a/c").unwrap();
    assert_eq!(
        fs.stat("/a/c/..", true).unwrap().ino,
        fs.stat("/a", true).unwrap().ino
    );
    // A rename moves the symbolic link itself.
    fs.symlink("/g", "/s").unwrap();
    fs.rename("/s", "/t").unwrap();
    assert_eq!(fs.readlink("/t").unwrap(), "/g");
}

#[test]
fn links_count() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/a", b"x");
    fs.link("/tmp/a", "/tmp/b").unwrap();
    assert_eq!(fs.stat_ino(ino).unwrap().links, 2);
    assert_eq!(fs.link("/tmp/a", "/tmp/b"), Err(Error::Exists));
    assert_eq!(fs.link("/tmp", "/t"), Err(Error::Denied));
    fs.unlink("/tmp/a").unwrap();
    assert_eq!(fs.path_of(ino).unwrap(), "/tmp/b");
    fs.unlink("/tmp/b").unwrap();
    assert_eq!(fs.stat_ino(ino), Err(Error::NotFound));
}

#[test]
fn devices_are_there() {
    let mut fs = new();
    assert_eq!(
        fs.stat("/dev/null", true).unwrap().mode,
        mode::CHARACTER | 0o666
    );
    assert_eq!(*fs.read(NULL_INO, 0, 10).unwrap(), *b"");
    assert_eq!(fs.write(NULL_INO, 0, false, b"abc").unwrap().0, 3);
    let console = fs
        .open(
            "/dev/console",
            Flags {
                truncate: true,
                ..CREATE
            },
            0,
        )
        .unwrap();
    assert_eq!(console.ino, services::fs::CONSOLE_INO);
    assert_eq!(fs.read(console.ino, 0, 1), Err(Error::Unsupported));
    assert_eq!(
        names(&mut fs, "/dev"),
        [".", "..", "console", "tty", "null", "shm"]
    );
}

#[test]
fn times_are_kept() {
    let mut fs = new();
    fs.set_now(5);
    let ino = create(&mut fs, "/tmp/a", b"x");
    fs.set_now(6);
    fs.mark_read(ino);
    fs.set_now(7);
    fs.chmod(ino, 0o104_755).unwrap();
    let attr = fs.stat_ino(ino).unwrap();
    assert_eq!((attr.atime_ns, attr.mtime_ns, attr.ctime_ns), (6, 5, 7));
    assert_eq!(attr.mode, mode::FILE | 0o4755);
    fs.utimens(ino, 1, 2).unwrap();
    fs.chown(ino, 3, u32::MAX).unwrap();
    let attr = fs.stat_ino(ino).unwrap();
    assert_eq!(
        (attr.atime_ns, attr.mtime_ns, attr.uid, attr.gid),
        (1, 2, 3, 0)
    );
}

/// An archive with these members: path, type, target of a link, content.
fn archive(members: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, link, content) in members {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(0o755);
        header.set_uid(1);
        header.set_gid(2);
        header.set_size(content.len() as u64);
        header.set_mtime(1_577_836_800);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// Paths below the mount point belong to the disk: a file made there in memory would be in no listing, and would take
/// memory until the machine is switched off.
#[test]
fn nothing_is_made_in_the_mount_point() {
    let mut fs = new();
    for directory in ["/full", "/full/inner", "/empty"] {
        fs.mkdir(directory, 0o755).unwrap();
    }
    create(&mut fs, "/f", b"f");
    let (left, files) = (fs.budget().left(), fs.files());
    // Only an empty directory can have that name.
    assert_eq!(fs.symlink("/tmp", MOUNT), Err(Error::Denied));
    assert_eq!(fs.link("/f", MOUNT), Err(Error::Denied));
    assert_eq!(fs.rename("/f", MOUNT), Err(Error::Denied));
    assert_eq!(fs.rename("/full", MOUNT), Err(Error::Denied));
    assert_eq!(fs.open(MOUNT, CREATE, 0o644).err(), Some(Error::Denied));
    assert_eq!((fs.budget().left(), fs.files()), (left, files));
    fs.rename("/empty", MOUNT).unwrap();
    fs.rmdir(MOUNT).unwrap();
    fs.mkdir(MOUNT, 0o755).unwrap();
    // It stays empty, however it is reached.
    fs.symlink("/disk", "/tmp/link").unwrap();
    let (left, files) = (fs.budget().left(), fs.files());
    for path in ["/disk/a", "/tmp/link/a", "/tmp/../disk/a"] {
        let made = fs.mkdir(path, 0o755).err();
        assert_eq!(made, Some(Error::Denied), "S2: nothing is made there");
        assert_eq!(fs.open(path, CREATE, 0o644).err(), Some(Error::Denied));
        assert_eq!(fs.symlink("/tmp", path), Err(Error::Denied));
        assert_eq!(fs.link("/f", path), Err(Error::Denied));
        assert_eq!(fs.rename("/f", path), Err(Error::Denied));
        assert_eq!(fs.rename("/full/inner", path), Err(Error::Denied));
    }
    assert_eq!((fs.budget().left(), fs.files()), (left, files));
    // A directory of that name elsewhere is like any other.
    fs.mkdir("/tmp/disk", 0o755).unwrap();
    fs.mkdir("/tmp/disk/a", 0o755).unwrap();
}

#[test]
fn the_archive_is_unpacked_and_borrowed() {
    let content: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    let bytes = archive(&[
        ("bin/", b'5', "", b""),
        ("bin/busybox", b'0', "", &content),
        ("bin/gzip", b'2', "busybox", b""),
        ("./etc/deep/file", b'0', "", b"made"),
        ("hard", b'1', "etc/deep/file", b""),
        ("bin/busybox2", b'0', "", b"old"),
        ("bin/busybox2", b'0', "", b"new"),
        ("dev/null", b'0', "", b"hidden by the device"),
    ]);
    let mut fs = FileSystem::new(30_000);
    fs.unpack(leak(bytes)).unwrap();
    fs.make_devices().unwrap();
    let attr = fs.stat("/bin/gzip", true).unwrap();
    assert_eq!(
        (attr.size, attr.mode & 0o7777, attr.uid, attr.gid),
        (200_000, 0o755, 1, 2)
    );
    assert_eq!(attr.mtime_ns, 1_577_836_800_000_000_000);
    let mut read = Vec::new();
    while read.len() < content.len() {
        read.extend_from_slice(&fs.read(attr.ino, read.len() as u64, 70_000).unwrap());
    }
    assert!(read == content);
    assert_eq!(text(&mut fs, "/hard"), "made");
    assert_eq!(text(&mut fs, "/bin/busybox2"), "new");
    assert_eq!(text(&mut fs, "/dev/null").len(), 0);
    // The first write takes a copy of one chunk; cutting takes none.
    assert_eq!(
        fs.write(attr.ino, 70_000, false, b"\0"),
        Err(Error::NoMemory)
    );
    fs.budget().set_left(100_000);
    fs.write(attr.ino, 70_000, false, b"WRITTEN").unwrap();
    assert_eq!(
        fs.read(attr.ino, 69_999, 9).unwrap(),
        [
            &content[69_999..70_000],
            b"WRITTEN",
            &content[70_007..70_008]
        ]
        .concat()
    );
    fs.truncate(attr.ino, 10).unwrap();
    fs.truncate(attr.ino, 12).unwrap();
    assert_eq!(*fs.read(attr.ino, 8, 10).unwrap(), [8, 9, 0, 0]);
}

#[test]
fn a_damaged_archive_is_refused() {
    let good = archive(&[("a", b'0', "", b"content"), ("b", b'5', "", b"")]);
    // Byte 155 only terminates the checksum.
    for at in (0..512).filter(|at| *at != 155) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        assert!(
            FileSystem::new(1 << 20).unpack(leak(bytes)).is_err(),
            "byte {at}"
        );
    }
    for length in [1, 511, 513, 518] {
        assert_eq!(
            FileSystem::new(1 << 20).unpack(leak(good[..length].to_vec())),
            Err(Error::BadFormat)
        );
    }
    assert_eq!(FileSystem::new(1 << 20).unpack(&[]), Ok(()));
}

/// Random operations on paths, against a model that maps paths to their contents.
#[test]
fn random_operations_agree_with_a_model_of_paths() {
    let mut fs = FileSystem::new(64 << 20);
    let empty = fs.budget().used();
    let mut model: BTreeMap<String, bool> = BTreeMap::new();
    let mut generator = Rng::with_seed(2);
    let mut random = |below: usize| generator.usize(..below);
    let parent = |path: &str| {
        path.rsplit_once('/')
            .map(|(parent, _)| parent.to_string())
            .unwrap()
    };
    for _ in 0..20_000 {
        let mut path = || {
            let depth = 1 + random(3);
            (0..depth)
                .map(|_| format!("/{}", ["a", "b", "c"][random(3)]))
                .collect::<String>()
        };
        let (path, other) = (path(), path());
        let children = |model: &BTreeMap<String, bool>, path: &str| {
            model.keys().any(|key| key.starts_with(&format!("{path}/")))
        };
        let fits = |model: &BTreeMap<String, bool>, path: &str| {
            let parent = parent(path);
            parent.is_empty() || model.get(&parent) == Some(&true)
        };
        match random(6) {
            0 => {
                let fine = !model.contains_key(&path) && fits(&model, &path);
                assert_eq!(fs.mkdir(&path, 0o755).is_ok(), fine, "mkdir {path}");
                if fine {
                    model.insert(path, true);
                }
            }
            1 => {
                let fine = fits(&model, &path) && model.get(&path) != Some(&true);
                let opened = fs.open(&path, CREATE, 0o644);
                assert_eq!(opened.is_ok(), fine, "create {path}");
                if let Ok(attr) = opened {
                    fs.write(attr.ino, 0, false, path.as_bytes()).unwrap();
                    fs.close(attr.ino).unwrap();
                    model.insert(path, false);
                }
            }
            2 => {
                let fine = model.get(&path) == Some(&false);
                assert_eq!(fs.unlink(&path).is_ok(), fine, "unlink {path}");
                if fine {
                    model.remove(&path);
                }
            }
            3 => {
                let fine = model.get(&path) == Some(&true) && !children(&model, &path);
                assert_eq!(fs.rmdir(&path).is_ok(), fine, "rmdir {path}");
                if fine {
                    model.remove(&path);
                }
            }
            _ => {
                let inside = other.starts_with(&format!("{path}/"));
                let kind = model.get(&path).copied();
                let there = model.get(&other).copied();
                let fine = kind.is_some()
                    && fits(&model, &other)
                    && !inside
                    && (path == other
                        || match there {
                            None => true,
                            Some(directory) => Some(directory) == kind && !children(&model, &other),
                        });
                assert_eq!(
                    fs.rename(&path, &other).is_ok(),
                    fine,
                    "rename {path} {other}"
                );
                if fine && path != other {
                    let moved: Vec<_> = model
                        .iter()
                        .filter(|(key, _)| **key == path || key.starts_with(&format!("{path}/")))
                        .map(|(key, kind)| (key.clone(), *kind))
                        .collect();
                    for (key, kind) in moved {
                        model.remove(&key);
                        model.insert(format!("{other}{}", &key[path.len()..]), kind);
                    }
                }
            }
        }
        assert_eq!(fs.files(), model.len() as u64 + 1);
    }
    for (path, directory) in &model {
        let attr = fs.stat(path, true).unwrap();
        assert_eq!(attr.mode & mode::TYPE == mode::DIRECTORY, *directory);
        assert_eq!(&fs.path_of(attr.ino).unwrap(), path);
    }
    for (path, directory) in model.iter().rev() {
        if *directory {
            fs.rmdir(path)
        } else {
            fs.unlink(path)
        }
        .unwrap();
    }
    assert_eq!(fs.budget().used(), empty);
}

/// Files that a client makes and removes again leave nothing, and a client cannot close a file that it did not open.
#[test]
fn what_is_gone_costs_nothing() {
    let mut fs = new();
    let before = (fs.budget().used(), fs.files());
    create(&mut fs, "/tmp/file", &[1; 1000]);
    fs.mkdir("/tmp/dir", 0o755).unwrap();
    fs.symlink("somewhere/else", "/tmp/link").unwrap();
    fs.link("/tmp/file", "/tmp/dir/second").unwrap();
    let ino = fs.open("/tmp/file", OPEN, 0).unwrap().ino;
    fs.unlink("/tmp/file").unwrap();
    fs.unlink("/tmp/dir/second").unwrap();
    let read = fs.read(ino, 0, 4).map(|bytes| bytes.len());
    assert_eq!(read, Ok(4), "S2: an open file is its opener's");
    fs.close(ino).unwrap();
    fs.unlink("/tmp/link").unwrap();
    fs.rmdir("/tmp/dir").unwrap();
    let after = (fs.budget().used(), fs.files());
    assert_eq!(after, before, "S2: what a client leaves when all is gone");
    let ino = create(&mut fs, "/tmp/file", b"");
    let closed = fs.close(ino);
    assert_eq!(closed, Err(Error::Invalid), "S2: closed by a stranger");
}

/// A tree stays a tree, and all of its parts can be reached.
#[test]
fn a_directory_does_not_come_to_lie_in_itself() {
    let mut fs = new();
    for directory in ["/a", "/a/b", "/a/b/c"] {
        fs.mkdir(directory, 0o755).unwrap();
    }
    for to in ["/a/x", "/a/b/x", "/a/b/c/x", "/a/b/c"] {
        let moved = fs.rename("/a", to);
        assert_eq!(moved, Err(Error::Invalid), "S2: /a to {to}");
    }
    let linked = fs.link("/a", "/a/b/up");
    assert_eq!(
        linked,
        Err(Error::Denied),
        "S2: a second name of a directory"
    );
}

/// A reply is never longer than a message may be, however much is asked for.
#[test]
fn an_answer_fits_into_a_message() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/file", &[7; 50_000]);
    fs.write(ino, 50_000, false, &[7; 50_000]).unwrap();
    for length in [70_000, usize::MAX] {
        let read = fs.read(ino, 0, length).map(|bytes| bytes.len());
        assert_eq!(read, Ok(proto::MAX_BULK), "S1: a reply of any length");
    }
}

/// A session's open files are its own: other sessions cannot name them, and they are closed with it.
#[test]
fn what_is_open_belongs_to_its_session() {
    let shared = Shared::new(new(), |_| ());
    let (one, other) = (Session::new(&shared, 1, 3), Session::new(&shared, 1, 3));
    let before = shared.borrow_mut().budget().used();
    let (file, ..) = one.open_file(CREATE.bits(), 0o644, "/tmp/a").unwrap();
    assert_eq!(one.append(file, b"data"), Ok((4, 0)));
    one.unlink("/tmp/a").unwrap();
    let not_found = |result: Result<(), Error>| {
        assert_eq!(
            result,
            Err(Error::NotFound),
            "S2: a session names only what it has open"
        );
    };
    not_found(other.close(file));
    not_found(other.read(file, 0, 10).map(|_| ()));
    not_found(other.write(file, 0, b"x").map(|_| ()));
    not_found(other.append(file, b"x").map(|_| ()));
    not_found(other.truncate(file, 0));
    not_found(other.attributes(file, 1000).map(|_| ()));
    not_found(other.read_dir(ROOT_INO, 0, 1000).map(|_| ()));
    not_found(other.path_of(ROOT_INO, 1000).map(|_| ()));
    not_found(other.chmod(file, 0));
    not_found(other.chown(file, 1, 1));
    not_found(other.utimens(file, 1, 1));
    assert_eq!(*one.read(file, 0, 10).unwrap(), *b"data");
    assert!(shared.borrow_mut().budget().used() > before);
    drop(one);
    assert_eq!(shared.borrow_mut().budget().used(), before);
    not_found(other.read(file, 0, 10).map(|_| ()));
}

/// A file without a name exists as long as it is open, whatever names exist, and leaves nothing.
#[test]
fn a_file_without_a_name_ends_when_it_is_closed() {
    let mut fs = new();
    let before = fs.budget().used();
    let nameless = Flags {
        nameless: true,
        ..Flags::default()
    };
    let attr = fs.open("/", nameless, 0o600).unwrap();
    assert_eq!((attr.links, attr.mode), (0, mode::FILE | 0o600));
    assert_eq!(fs.write(attr.ino, 0, false, &[7; 5000]), Ok((5000, 0)));
    let other = fs.open("/tmp", nameless, 0o600).unwrap();
    assert_ne!(attr.ino, other.ino);
    assert_eq!(fs.stat_ino(attr.ino).unwrap().size, 5000);
    fs.close(attr.ino).unwrap();
    fs.close(other.ino).unwrap();
    assert_eq!(fs.stat_ino(attr.ino), Err(Error::NotFound));
    assert_eq!(fs.budget().used(), before, "something is left of it");
    for (path, error) in [
        ("/nothing", Error::NotFound),
        ("/dev/null", Error::NotDirectory),
    ] {
        assert_eq!(fs.open(path, nameless, 0), Err(error));
    }
}

#[test]
fn a_session_has_so_many_files_open_and_no_more() {
    let shared = Shared::new(new(), |_| ());
    let session = Session::new(&shared, 1, 2);
    let open = || session.open_file(0, 0, "/tmp").map(|(ino, ..)| ino);
    let (first, second) = (open().unwrap(), open().unwrap());
    assert_eq!(first, second);
    assert_eq!(open(), Err(Error::Limit));
    let exclusive = CREATE.bits() | 2;
    assert_eq!(session.open_file(exclusive, 0, "/tmp/a"), Err(Error::Limit));
    assert_eq!(
        shared.borrow_mut().stat("/tmp/a", true),
        Err(Error::NotFound)
    );
    session.close(first).unwrap();
    assert_eq!(session.open_file(0, 0, "/nothing"), Err(Error::NotFound));
    assert_eq!(open(), Ok(first));
    session.close(first).unwrap();
    session.close(first).unwrap();
    assert_eq!(session.close(first), Err(Error::NotFound));
}

/// A symbolic link can be opened itself, for its attributes.
#[test]
fn a_symbolic_link_can_be_opened() {
    let mut fs = new();
    fs.symlink("nowhere", "/tmp/link").unwrap();
    let flags = Flags {
        nofollow: true,
        symlink: true,
        ..OPEN
    };
    let link = fs.open("/tmp/link", flags, 0).unwrap();
    assert_eq!(link.mode & mode::TYPE, mode::SYMLINK);
    fs.chown(link.ino, 7, 8).unwrap();
    assert_eq!(fs.stat("/tmp/link", false).unwrap().uid, 7);
    assert_eq!(fs.read(link.ino, 0, 10), Err(Error::Invalid));
    assert_eq!(fs.truncate(link.ino, 0), Err(Error::Invalid));
    assert_eq!(Flags::from_bits(flags.bits()), Some(flags));
    assert_eq!(Flags::from_bits(64), None);
}

/// Bytes in one chunk are read without a copy, others are not.
#[test]
fn bytes_are_read_from_where_they_lie() {
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/a", b"some bytes");
    fs.write(ino, CHUNK - 1, false, b"xy").unwrap();
    let borrowed = |offset, length| {
        matches!(
            fs.read(ino, offset, length),
            Ok(alloc::borrow::Cow::Borrowed(_))
        )
    };
    assert!(borrowed(2, 5) && borrowed(CHUNK, 9) && borrowed(CHUNK + 1, 9));
    assert!(!borrowed(CHUNK - 1, 2));
}

/// Random requests are all answered, and the file system stays consistent.
#[test]
fn hostile_requests_do_no_harm() {
    let mut fs = FileSystem::new(4 << 20);
    fs.make_devices().unwrap();
    let shared = Shared::new(fs, |_| ());
    let mut sessions = [Session::new(&shared, 1, 20), Session::new(&shared, 1, 20)];
    let mut generator = Rng::with_seed(3);
    let mut random = || generator.u64(..);
    let names = [
        "a", "b", "..", ".", "", "tmp", "dev", "null", "l", "\0", "é",
    ];
    let bulk = vec![7u8; 70_000];
    let mut reached = 0;
    for _ in 0..200_000 {
        let mut path = || {
            let depth = random() % 5;
            (0..depth)
                .map(|_| format!("/{}", names[(random() % 11) as usize]))
                .collect::<String>()
        };
        let (path, other) = (path(), path());
        let mut number = || match random() % 4 {
            0 => random(),
            1 => u64::MAX - random() % 4,
            2 => random() % 300_000,
            _ => random() % 40,
        };
        let (ino, offset, small) = (number() % 60, number(), number() as u32);
        let (first, both) = services::fs::pair(&path, &other);
        let first = if small & 64 == 0 { first } else { small };
        let bulk = &bulk[..(small as usize % bulk.len())];
        let room = number() as usize;
        let which = (number() % 2) as usize;
        if number() % 500 == 0 {
            sessions[which] = Session::new(&shared, 1, 20);
        }
        let f = &sessions[which];
        let length = |bytes: usize| assert!(bytes <= room && bytes <= proto::MAX_BULK);
        let result = match number() % 21 {
            0 | 1 => f.open_file(small & 31, small, &path).map(|_| ()),
            2 => f.close(ino),
            3 => f.stat(small & 1 != 0, &path, room).map(|b| length(b.len())),
            4 => f.attributes(ino, room).map(|b| length(b.len())),
            5 => f.read(ino, offset, room).map(|b| length(b.len())),
            6 => f.write(ino, offset, bulk).map(|_| ()),
            7 => f.append(ino, bulk).map(|_| ()),
            8 => f.truncate(ino, offset),
            9 => f.read_dir(ino, offset, room).map(|b| length(b.len())),
            10 => f.mkdir(small, &path),
            11 => f.unlink(&path),
            12 => f.rmdir(&path),
            13 => f.rename(first, &both),
            14 => f.link(first, &both),
            15 => f.symlink(first, &both),
            16 => f.readlink(&path, room).map(|b| length(b.len())),
            17 => f.path_of(ino, room).map(|b| length(b.len())),
            18 => f.chmod(ino, small),
            19 => f.chown(ino, small, small),
            _ => f.utimens(ino, offset, offset),
        };
        reached += u32::from(result.is_ok());
        assert!(shared.borrow_mut().budget().used() <= 5 << 20);
    }
    assert!(reached > 5_000, "{reached}");
    drop(sessions);
    let mut fs = shared.borrow_mut();
    // The file system still works.
    let ino = fs
        .open(
            "/fine",
            Flags {
                truncate: true,
                ..CREATE
            },
            0o644,
        )
        .map(|attr| attr.ino);
    assert!(matches!(ino, Ok(_) | Err(Error::NoMemory)));
}

/// Most memory that one request may take beyond the budget.
const ONE_REQUEST: usize = 256 << 10;

/// A directory whose path is too long for any request: `/d/d/...`, each the longest name, `levels` times.
fn deep(fs: &mut FileSystem, levels: usize) -> Ino {
    let name = "d".repeat(255);
    fs.mkdir("/deep", 0o755).unwrap();
    let file = create(fs, "/deep/file", b"x");
    for _ in 0..levels {
        fs.mkdir("/next", 0o755).unwrap();
        fs.rename("/deep", &format!("/next/{name}")).unwrap();
        fs.rename("/next", "/deep").unwrap();
    }
    file
}

/// However deep a file is, the request for its path takes no more memory than a path.
#[test]
fn the_path_of_what_lies_deep_takes_no_memory() {
    let mut fs = FileSystem::new(64 << 20);
    let file = deep(&mut fs, 20_000);
    let (path, took) = allocated::counted(|| fs.path_of(file));
    assert_eq!(path, Err(Error::NameTooLong), "S1: a path of any length");
    assert!(
        took.most < ONE_REQUEST,
        "S1: a path of any length: {took:?}"
    );
}

/// The number of a file's names is limited.
#[test]
fn the_names_of_a_file_are_limited() {
    let mut fs = new();
    create(&mut fs, "/tmp/file", b"x");
    let mut most = 0;
    let limit = (0..200_000).find_map(|n| {
        let (result, took) = allocated::counted(|| fs.link("/tmp/file", &format!("/tmp/{n}")));
        most = most.max(took.most);
        result.err()
    });
    assert_eq!(limit, Some(Error::Limit), "S1: names without end");
    // Another name takes little memory, however many there are.
    assert!(most < 2 << 20, "S1: names without end: {most}");
}

/// A path can lead through a limited number of names, those of links included.
#[test]
fn a_path_leads_through_a_bounded_number_of_names() {
    let mut fs = new();
    let dots = "./".repeat(2000);
    fs.symlink(&format!("/{dots}"), "/tmp/0").unwrap();
    assert!(fs.stat("/tmp/0", true).is_ok());
    for n in 1..5 {
        let target = format!("{}{}", &dots[..3900], n - 1);
        fs.symlink(&target, &format!("/tmp/{n}")).unwrap();
    }
    assert!(fs.stat("/tmp/1", true).is_ok());
    assert_eq!(fs.stat("/tmp/4", true).err(), Some(Error::Loop));
}

/// The budget covers the memory that is taken, whatever it is used for.
#[test]
fn what_is_taken_is_paid_for() {
    type Make = fn(&mut FileSystem, usize);
    let makes: [(&str, Make); 7] = [
        ("small files", |fs, n| {
            create(fs, &format!("/tmp/{n}"), b"x");
        }),
        ("empty files", |fs, n| {
            create(fs, &format!("/tmp/{n}"), b"");
        }),
        ("names", |fs, n| {
            create(fs, &format!("/tmp/{}", n % 40), b"");
            let _ = fs.link(&format!("/tmp/{}", n % 40), &format!("/tmp/l{n}"));
        }),
        ("names that are gone", |fs, n| {
            let path = format!("/tmp/{n}");
            create(fs, &path, b"");
            let names: Vec<String> = (0..128).map(|m| format!("/tmp/{n}-{m}")).collect();
            names.iter().for_each(|name| fs.link(&path, name).unwrap());
            names.iter().for_each(|name| fs.unlink(name).unwrap());
        }),
        ("directories in directories", |fs, n| {
            fs.mkdir("/next", 0o755).unwrap();
            if n > 0 {
                fs.rename("/deep", "/next/d").unwrap();
            }
            fs.rename("/next", "/deep").unwrap();
        }),
        ("links", |fs, n| {
            fs.symlink("x", &format!("/tmp/{n}")).unwrap();
        }),
        ("holes", |fs, n| {
            let ino = create(fs, "/tmp/holes", b"");
            fs.write(ino, n as u64 * CHUNK, false, b"x").unwrap();
        }),
    ];
    for (what, make) in makes {
        let mut fs = FileSystem::new(64 << 20);
        fs.make_devices().unwrap();
        let before = fs.budget().used();
        let ((), took) = allocated::counted(|| (0..4000).for_each(|n| make(&mut fs, n)));
        let paid = (fs.budget().used() - before) as usize;
        assert!(
            took.kept <= paid,
            "S1: {what} take {} for {paid}",
            took.kept
        );
    }
}

/// Requests that make, remove or rename do not follow a link at the end of the path, also with a trailing slash.
#[test]
fn a_slash_behind_a_link_makes_it_no_directory() {
    let mut fs = new();
    fs.mkdir("/tmp/real", 0o755).unwrap();
    fs.symlink("real", "/tmp/link").unwrap();
    fs.symlink("nowhere", "/tmp/dangling").unwrap();
    assert_eq!(fs.rmdir("/tmp/link/"), Err(Error::NotDirectory));
    assert_eq!(fs.unlink("/tmp/link/"), Err(Error::NotDirectory));
    assert_eq!(fs.rename("/tmp/link/", "/tmp/x"), Err(Error::NotDirectory));
    assert_eq!(
        fs.rename("/tmp/real", "/tmp/link/"),
        Err(Error::NotDirectory)
    );
    for there in ["/tmp/dangling/", "/tmp/link/", "/tmp/real/"] {
        assert_eq!(fs.mkdir(there, 0o755), Err(Error::Exists), "{there}");
    }
    assert!(fs.stat("/tmp/real", false).is_ok() && fs.stat("/tmp/nowhere", false).is_err());
    // Requests that only read follow it.
    let seen = fs.stat("/tmp/link/", false).unwrap();
    assert_eq!(seen.mode & mode::TYPE, mode::DIRECTORY);
    fs.rename("/tmp/real/", "/tmp/other/").unwrap();
    fs.rmdir("/tmp/other/").unwrap();
}

/// A server may ask about a file that it has not open; a program gets no answer, whatever number it tries.
#[test]
fn only_a_server_is_told_of_what_it_has_not_open() {
    let shared = Shared::new(new(), |_| ());
    let (program, server) = (Session::new(&shared, 1, 2), Session::new(&shared, 0, 2));
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    let open = || program.open_file(create.bits(), 0o600, "/file").unwrap().0;
    let file = open();
    program.close(file).unwrap();
    let path = |session: &Session| session.path_of(file, 99).map(|path| path.to_vec());
    let attributes = |session: &Session| session.attributes(file, 99).map(drop);
    assert_eq!(path(&server).as_deref(), Ok(&b"/file"[..]));
    assert_eq!(attributes(&server), Ok(()));
    for answer in [path(&program).map(drop), attributes(&program)] {
        assert_eq!(
            answer,
            Err(Error::NotFound),
            "S3: reads what it was not given"
        );
    }
    assert_eq!(server.read(file, 0, 9).err(), Some(Error::NotFound));
    program.unlink("/file").unwrap();
    // No other file gets its number.
    assert_ne!(open(), file, "S3: another's file has its number");
    assert_eq!(attributes(&server), Err(Error::NotFound));
}

/// Clients that cache answers rely on the number of changes: each request that may change something increments it by
/// one, whatever its result, and no other request does.
#[test]
fn each_request_that_may_change_something_is_counted_once() {
    let shared = Shared::new(new(), |_| ());
    let session = Session::new(&shared, 1, 20);
    let create = Flags {
        create: true,
        ..Flags::default()
    };
    let (file, ..) = session.open_file(create.bits(), 0o600, "/file").unwrap();
    let (root, ..) = session.open_file(0, 0, "/").unwrap();
    let server = Session::new(&shared, 0, 20);
    server.open_file(0, 0, "/file").unwrap();
    let mut count = shared.changes().count();
    let mut by = |what: &str, expected: u64| {
        let now = shared.changes().count();
        assert_eq!(
            now - count,
            expected,
            "A6: what may have changed is counted: {what}"
        );
        count = now;
    };
    for wrong in [0, u64::MAX] {
        // Requests that fail are counted, too.
        let (file, root) = (file ^ wrong, root ^ wrong);
        let name = |name: &str| std::format!("{}{name}", if wrong == 0 { "/" } else { "/none/" });
        let (first, both) = services::fs::pair(&name("file"), &name("other"));
        let _ = session.stat(true, &name("file"), 99).map(drop);
        by("stat", 0);
        let _ = session.attributes(file, 99).map(drop);
        by("attributes", 0);
        let _ = session.readlink(&name("link"), 99).map(drop);
        by("readlink", 0);
        let _ = session.path_of(file, 99).map(drop);
        by("path_of", 0);
        let _ = session.usage();
        by("usage", 0);
        let _ = session.sync(file);
        by("sync", 0);
        assert_eq!(session.open_file(0, 0, &name("file")).is_ok(), wrong == 0);
        by("open_file", 0);
        let _ = session.close(file);
        by("close", 0);
        let _ = session.read(file, 0, 9).map(drop);
        by("read", 1);
        let _ = server.place(file, 0);
        by("place", 1);
        let _ = session
            .read_dir(root, 0, services::fs::ENTRIES_ROOM)
            .map(drop);
        by("read_dir", 1);
        let _ = session.write(file, 0, b"bytes");
        by("write", 1);
        let _ = session.append(file, b"bytes");
        by("append", 1);
        let _ = session.truncate(file, 3);
        by("truncate", 1);
        let _ = session.chmod(file, 0o644);
        by("chmod", 1);
        let _ = session.chown(file, 1, 1);
        by("chown", 1);
        let _ = session.utimens(file, 1, 1);
        by("utimens", 1);
        let _ = session.mkdir(0o700, &name("made"));
        by("mkdir", 1);
        let _ = session.rmdir(&name("made"));
        by("rmdir", 1);
        let _ = session.link(first, &both);
        by("link", 1);
        let _ = session.unlink(&name("other"));
        by("unlink", 1);
        let _ = session.symlink(first, &both);
        by("symlink", 1);
        let _ = session.rename(first, &both);
        by("rename", 1);
        for flags in [
            create,
            Flags {
                truncate: true,
                ..Flags::default()
            },
        ] {
            let _ = session.open_file(flags.bits(), 0o600, &name("other"));
            by("open_file that may change something", 1);
        }
    }
    for part in 0..services::fs::part::COUNT + 1 {
        let shown = session.memory(part).err();
        let rule = "S2: a program is not shown the memory of a server";
        assert_eq!(shown, Some(Error::Denied), "{rule}: {part}");
    }
    let place = session.place(file, 0).err();
    assert_eq!(place, Some(Error::Denied), "S2: nor where its files lie");
}

/// The pieces have the same bytes as a read: the stored ones, and zeros up to the end of the piece or the file.
#[test]
fn pieces_are_what_is_read() {
    use services::fs::{Place, PIECE};
    let mut random = fastrand::Rng::with_seed(11);
    let mut fs = new();
    let ino = create(&mut fs, "/tmp/a", b"");
    for _ in 0..400 {
        let at = random.u64(..4 * PIECE);
        match random.u32(..4) {
            0 => fs.truncate(ino, at).unwrap(),
            _ => {
                let bytes = std::vec![random.u8(1..); random.usize(..9000)];
                fs.write(ino, at, false, &bytes).map(drop).unwrap();
            }
        }
        let from = random.u64(..5 * PIECE);
        let (stored, size) = fs.piece(ino, from).unwrap();
        let place = Place {
            length: stored.len() as u32,
            size,
            ..Place::default()
        };
        let (count, there, start) = place.from(from);
        let mut piece = std::vec![0; count];
        if there > 0 {
            let lies = stored.get(start as usize..start as usize + there);
            piece[..there].copy_from_slice(lies.expect("A6: a piece is what is read"));
        }
        let read = fs.read(ino, from, count.max(1)).unwrap();
        assert_eq!(piece, *read, "A6: a piece is what is read: {from:#x}");
    }
    let directory = fs.open("/tmp", Flags::default(), 0).unwrap().ino;
    assert_eq!(fs.piece(directory, 0), Err(Error::IsDirectory));
    let console = services::fs::CONSOLE_INO;
    assert_eq!(fs.piece(console, 0), Err(Error::Unsupported));
}

/// A read updates the access time if it is the first since the file changed, or within a day.
#[test]
fn a_read_is_noted_once_in_a_while() {
    let day = 24 * 60 * 60 * 1_000_000_000;
    let mut fs = new();
    fs.set_now(5);
    let ino = create(&mut fs, "/tmp/a", b"x");
    let mut read_at = |now, expected, what: &str| {
        fs.set_now(now);
        if now == 30 {
            fs.write(ino, 0, false, b"y").unwrap();
        }
        fs.mark_read(ino);
        let found = fs.stat_ino(ino).unwrap().atime_ns;
        assert_eq!(found, expected, "a read is noted: {what}");
    };
    read_at(10, 10, "the first one");
    read_at(20, 10, "not the second one");
    read_at(30, 30, "the first one since a write");
    read_at(40, 40, "at the time of the write it was read before that");
    read_at(50, 40, "not the second one");
    read_at(39 + day, 40, "within a day");
    read_at(40 + day, 40 + day, "a day later");
}
