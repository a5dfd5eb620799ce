//! Inodes, directories and paths.
//!
//! A [`FileSystem`] is a table of inodes. Each knows its *places*, the directory entries that name it, so that a path
//! can be found for a number and the link count is always right. An inode lives while it has a place or is open. All
//! paths are resolved here, by [`FileSystem::walk`]; the rest of the module is the operations on the result.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use proto::Error;
#[cfg(doc)]
use services::fs::Files;
use services::fs::{mode, Attr, Flags, Ino, Listing, MOUNT, ROOT_INO};

use crate::archive::{Archive, Kind as MemberKind};
use crate::content::{Budget, Content};

/// Nanoseconds of a day.
const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
/// Most symbolic links that one path can lead through.
const MAX_LINKS: u32 = 40;
/// Most names that one path can lead through, those of symbolic links included. It bounds the work of a request, and
/// the depth of directories that a path can reach.
const MAX_NAMES: u32 = 4096;
/// Most names of one inode. It bounds the cost of removing one of them.
const MAX_PLACES: usize = 1 << 15;
/// Longest path, in bytes.
const MAX_PATH: usize = 4096;
/// Longest name, in bytes.
const MAX_NAME: usize = services::fs::MAX_NAME;
/// Bytes that an inode costs, including its place in the table and room for its first names.
const INODE_COST: u64 = 560;
/// Bytes that a file costs besides that: an index of chunks has room for several from the first on.
const FILE_COST: u64 = 400;
/// Bytes that a directory costs besides that: its two indices have room for several names from the first on.
const DIRECTORY_COST: u64 = 900;
/// Bytes that a directory entry costs besides its name, which is stored twice.
const ENTRY_COST: u64 = 176;
/// First cookie of an entry; those before are `.` and `..`.
const FIRST_COOKIE: u64 = 2;

/// The names in a directory.
///
/// A cookie is never reused, so that a client that continues from a cookie misses nothing and sees nothing twice,
/// whatever was removed or made in between.
#[derive(Debug)]
struct Directory {
    parent: Ino,
    by_cookie: BTreeMap<u64, (String, Ino)>,
    by_name: BTreeMap<String, u64>,
    next: u64,
    /// How many of the entries are directories.
    inner: u32,
}

impl Directory {
    fn new(parent: Ino) -> Self {
        Directory {
            parent,
            by_cookie: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next: FIRST_COOKIE,
            inner: 0,
        }
    }

    fn find(&self, name: &str) -> Option<Ino> {
        let cookie = self.by_name.get(name)?;
        self.by_cookie.get(cookie).map(|(_, ino)| *ino)
    }
}

#[derive(Debug)]
enum Kind {
    File(Content),
    Directory(Directory),
    Symlink(String),
    Device,
}

impl Kind {
    /// Bytes that an inode of this kind costs, without the content of a file and the target of a link.
    fn cost(&self) -> u64 {
        INODE_COST
            + match self {
                Kind::File(_) => FILE_COST,
                Kind::Directory(_) => DIRECTORY_COST,
                Kind::Symlink(_) | Kind::Device => 0,
            }
    }
}

/// How a link at the end of a path is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Followed.
    Followed,
    /// Followed if there is a trailing slash.
    BySlash,
    /// Not followed; the caller checks the condition of a trailing slash.
    Itself,
}

/// A directory entry: directory and cookie.
type Place = (Ino, u64);

#[derive(Debug)]
struct Inode {
    kind: Kind,
    permissions: u32,
    uid: u32,
    gid: u32,
    atime_ns: u64,
    mtime_ns: u64,
    ctime_ns: u64,
    /// A set, since it frees the memory of removed names.
    places: BTreeSet<Place>,
    opens: u64,
}

impl Inode {
    fn mode(&self) -> u32 {
        self.permissions
            | match self.kind {
                Kind::File(_) => mode::FILE,
                Kind::Directory(_) => mode::DIRECTORY,
                Kind::Symlink(_) => mode::SYMLINK,
                Kind::Device => mode::CHARACTER,
            }
    }

    /// Notes that it is read now, by Linux's rule `relatime`: if it has not been read since it changed, or within a
    /// day.
    fn mark_read(&mut self, now: u64) {
        let changed = self.mtime_ns.max(self.ctime_ns);
        if self.atime_ns <= changed || now.saturating_sub(self.atime_ns) >= DAY {
            self.atime_ns = now;
        }
    }
}

/// The result of resolving a path.
#[derive(Debug)]
struct Walk {
    /// The directory that has, or could have, the last name.
    parent: Ino,
    /// The last name; empty if the path ends in `/`, `.` or `..` of an existing directory.
    name: String,
    /// The inode of that name, if it exists.
    found: Option<Ino>,
    /// Whether the path has a trailing slash, and so must lead to a directory.
    directory: bool,
}

/// The file system.
#[derive(Debug)]
pub struct FileSystem {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    now: u64,
    budget: Budget,
}

type Result<T> = core::result::Result<T, Error>;

impl FileSystem {
    /// An empty file system that may use `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        let mut fs = FileSystem {
            inodes: BTreeMap::new(),
            next: services::fs::FIRST_INO,
            now: 0,
            budget: Budget::new(budget),
        };
        let root = fs.inode(Kind::Directory(Directory::new(ROOT_INO)), 0o755);
        fs.inodes.insert(ROOT_INO, root);
        fs
    }

    /// Makes the numbers of new files begin with `salt`. If that differs between boots, a program
    /// that was restored in another boot does not take a file for one of its own.
    pub fn set_salt(&mut self, salt: u32) {
        self.next = u64::from(salt >> 1) << 32 | services::fs::FIRST_INO;
    }

    /// Sets the time for timestamps of changes, in nanoseconds.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// The budget of memory for files.
    pub fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Number of inodes.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Makes all files and directories of the boot archive. File content is borrowed from it.
    pub fn unpack(&mut self, archive: &'static [u8]) -> Result<()> {
        for member in Archive::new(archive) {
            let member = member?;
            let path = absolute(&member.path);
            if let Some((parent, _)) = path.trim_end_matches('/').rsplit_once('/') {
                self.make_directories(parent)?;
            }
            let walk = self.walk(&path, false)?;
            match (walk.found, &member.kind) {
                (Some(ino), MemberKind::Directory) if self.is_directory(ino) => {}
                (Some(_), _) => self.unlink(&path)?,
                (None, _) => {}
            }
            let ino = match member.kind {
                MemberKind::Directory => match self.walk(&path, false)?.found {
                    Some(ino) => ino,
                    None => self.mkdir(&path, 0)?,
                },
                MemberKind::File(bytes) => {
                    let content = Content::borrowed(bytes, &mut self.budget)?;
                    self.make(&path, Kind::File(content), 0)?
                }
                MemberKind::Symlink(target) => {
                    self.symlink(&target, &path)?;
                    self.lookup(&path, false)?
                }
                MemberKind::Link(target) => {
                    self.link(&absolute(&target), &path)?;
                    continue;
                }
            };
            let inode = self.get_mut(ino)?;
            inode.permissions = member.mode;
            (inode.uid, inode.gid) = (member.uid, member.gid);
            let time = member.mtime.saturating_mul(1_000_000_000);
            (inode.atime_ns, inode.mtime_ns, inode.ctime_ns) = (time, time, time);
        }
        Ok(())
    }

    /// Makes `/dev` with its nodes, and `/tmp`.
    pub fn make_devices(&mut self) -> Result<()> {
        use services::fs::{CONSOLE_INO, NULL_INO, TTY_INO};
        self.make_directories("/dev")?;
        self.make_directories("/tmp")?;
        for (path, ino) in [
            ("/dev/console", CONSOLE_INO),
            ("/dev/tty", TTY_INO),
            ("/dev/null", NULL_INO),
        ] {
            let walk = self.walk(path, false)?;
            if walk.found.is_some() {
                self.unlink(path)?;
            }
            let inode = self.inode(Kind::Device, 0o666);
            self.inodes.insert(ino, inode);
            self.enter(walk.parent, &walk.name, ino)?;
        }
        self.make_directories("/dev/shm")?;
        for open_to_all in ["/tmp", "/dev/shm"] {
            let ino = self.lookup(open_to_all, true)?;
            self.get_mut(ino)?.permissions = 0o1777;
        }
        Ok(())
    }

    fn make_directories(&mut self, path: &str) -> Result<()> {
        let mut so_far = String::new();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            so_far.push('/');
            so_far.push_str(name);
            if self.walk(&so_far, true)?.found.is_none() {
                self.mkdir(&so_far, 0o755)?;
            }
        }
        Ok(())
    }

    fn inode(&self, kind: Kind, permissions: u32) -> Inode {
        Inode {
            kind,
            permissions: permissions & 0o7777,
            uid: 0,
            gid: 0,
            atime_ns: self.now,
            mtime_ns: self.now,
            ctime_ns: self.now,
            places: BTreeSet::new(),
            opens: 0,
        }
    }

    fn get(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Error::NotFound)
    }

    fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::NotFound)
    }

    fn is_directory(&self, ino: Ino) -> bool {
        matches!(
            self.get(ino),
            Ok(Inode {
                kind: Kind::Directory(_),
                ..
            })
        )
    }

    fn directory(&self, ino: Ino) -> Result<&Directory> {
        match &self.get(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory> {
        match &mut self.get_mut(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Whether the directory can still be found, so that entries in it make sense.
    fn is_linked(&self, directory: Ino) -> bool {
        directory == ROOT_INO
            || self
                .get(directory)
                .is_ok_and(|inode| !inode.places.is_empty())
    }

    /// Follows `path`. A symbolic link in the last place is followed if `follow` is set or there is a trailing slash.
    fn walk(&self, path: &str, follow: bool) -> Result<Walk> {
        self.walk_to(
            path,
            if follow {
                Last::Followed
            } else {
                Last::BySlash
            },
        )
    }

    /// The same for a path whose last name is made, removed or renamed: a link at the end is not followed, also with a
    /// trailing slash.
    fn walk_itself(&self, path: &str) -> Result<Walk> {
        self.walk_to(path, Last::Itself)
    }

    fn walk_to(&self, path: &str, end: Last) -> Result<Walk> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if !path.starts_with('/') || path.contains('\0') {
            return Err(Error::Invalid);
        }
        if path.len() > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        let root = ROOT_INO;
        // The result for the names so far.
        let (mut parent, mut last_name, mut found, mut means_directory) =
            (root, "", Some(root), true);
        // The names that are left to follow, the next one last.
        let mut rest: Vec<&str> = Vec::new();
        push(&mut rest, path);
        let (mut links, mut names) = (0, 0);
        while let Some(name) = rest.pop() {
            names += 1;
            if names > MAX_NAMES {
                return Err(Error::Loop);
            }
            let here = found.ok_or(Error::NotFound)?;
            if name.len() > MAX_NAME {
                return Err(Error::NameTooLong);
            }
            let directory = self.directory(here)?;
            if name.is_empty() || name == "." || name == ".." {
                parent = if name == ".." { directory.parent } else { here };
                (last_name, found, means_directory) = ("", Some(parent), true);
                continue;
            }
            let there = directory.find(name);
            let last = rest.iter().all(|name| name.is_empty());
            let slash = last && !rest.is_empty();
            if let Some(Inode {
                kind: Kind::Symlink(target),
                ..
            }) = there.and_then(|ino| self.inodes.get(&ino))
            {
                let follows = match end {
                    Last::Followed => true,
                    Last::BySlash => slash,
                    Last::Itself => false,
                };
                if !last || follows {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::Loop);
                    }
                    if rest.iter().map(|name| name.len()).sum::<usize>() + target.len() > MAX_PATH {
                        return Err(Error::NameTooLong);
                    }
                    parent = if target.starts_with('/') { root } else { here };
                    (last_name, found, means_directory) = ("", Some(parent), true);
                    push(&mut rest, target);
                    continue;
                }
            }
            (parent, last_name, found, means_directory) = (here, name, there, slash);
            if slash {
                if let Some(ino) = there.filter(|_| end != Last::Itself) {
                    self.directory(ino)?;
                }
                rest.clear();
            }
        }
        Ok(Walk {
            parent,
            name: last_name.into(),
            found,
            directory: means_directory,
        })
    }

    /// The inode to which `path` leads, which must exist.
    fn lookup(&self, path: &str, follow: bool) -> Result<Ino> {
        self.walk(path, follow)?.found.ok_or(Error::NotFound)
    }

    /// Whether `ino` may have that name in the directory. [`MOUNT`] must be an empty directory or not exist: requests
    /// for paths there go to the disk, so that clients could neither see nor remove files in memory.
    fn may_enter(&self, directory: Ino, name: &str, ino: Ino) -> Result<()> {
        if !self.is_linked(directory) {
            return Err(Error::NotFound);
        }
        let mount = &MOUNT[1..];
        let hidden = match directory {
            ROOT_INO if name == mount => {
                let empty = self.directory(ino).map(|inner| inner.by_cookie.is_empty());
                empty != Ok(true)
            }
            ROOT_INO => false,
            _ => self.directory(ROOT_INO)?.find(mount) == Some(directory),
        };
        match hidden {
            true => Err(Error::Denied),
            false => Ok(()),
        }
    }

    /// Puts `ino` into the directory under that name.
    fn enter(&mut self, directory: Ino, name: &str, ino: Ino) -> Result<()> {
        if name.is_empty() {
            return Err(Error::Exists);
        }
        self.may_enter(directory, name, ino)?;
        self.budget.take(ENTRY_COST + 2 * name.len() as u64)?;
        let now = self.now;
        let inner = u32::from(self.is_directory(ino));
        let entries = self.directory_mut(directory)?;
        let cookie = entries.next;
        entries.next += 1;
        entries.inner += inner;
        entries.by_cookie.insert(cookie, (name.into(), ino));
        entries.by_name.insert(name.into(), cookie);
        self.touch(directory, now)?;
        let inode = self.get_mut(ino)?;
        inode.places.insert((directory, cookie));
        inode.ctime_ns = now;
        if let Kind::Directory(entries) = &mut inode.kind {
            entries.parent = directory;
        }
        Ok(())
    }

    /// Removes the entry `name` from the directory; its inode may end.
    fn leave(&mut self, directory: Ino, name: &str) -> Result<()> {
        let now = self.now;
        let entries = self.directory_mut(directory)?;
        let cookie = entries.by_name.remove(name).ok_or(Error::NotFound)?;
        let (name, ino) = entries.by_cookie.remove(&cookie).ok_or(Error::NotFound)?;
        self.budget.give(ENTRY_COST + 2 * name.len() as u64);
        self.touch(directory, now)?;
        let inode = self.get_mut(ino)?;
        inode.places.remove(&(directory, cookie));
        inode.ctime_ns = now;
        if matches!(inode.kind, Kind::Directory(_)) {
            self.directory_mut(directory)?.inner -= 1;
        }
        self.collect(ino);
        Ok(())
    }

    fn touch(&mut self, ino: Ino, now: u64) -> Result<()> {
        let inode = self.get_mut(ino)?;
        (inode.mtime_ns, inode.ctime_ns) = (now, now);
        Ok(())
    }

    /// Ends an inode without names that is not open.
    fn collect(&mut self, ino: Ino) {
        let dead = self
            .get(ino)
            .is_ok_and(|inode| inode.places.is_empty() && inode.opens == 0);
        if !dead || ino == ROOT_INO {
            return;
        }
        if let Some(inode) = self.inodes.remove(&ino) {
            self.budget.give(inode.kind.cost());
            match inode.kind {
                Kind::File(content) => content.release(&mut self.budget),
                Kind::Symlink(target) => self.budget.give(target.len() as u64),
                Kind::Directory(_) | Kind::Device => {}
            }
        }
    }

    /// A new inode with a name. The caller has paid for the bytes of a file or link in `kind`; this takes the cost of
    /// the inode ([`Kind::cost`]).
    fn make_at(&mut self, parent: Ino, name: &str, kind: Kind, permissions: u32) -> Result<Ino> {
        let ino = self.next;
        let cost = kind.cost();
        let inode = self.inode(kind, permissions);
        self.inodes.insert(ino, inode);
        let result = self.budget.take(cost).and_then(|()| {
            self.enter(parent, name, ino)
                .inspect_err(|_| self.budget.give(cost))
        });
        if let Err(error) = result {
            if let Some(Inode {
                kind: Kind::File(content),
                ..
            }) = self.inodes.remove(&ino)
            {
                content.release(&mut self.budget);
            }
            return Err(error);
        }
        self.next += 1;
        Ok(ino)
    }

    /// As `make_at`, by a path, which must not exist.
    fn make(&mut self, path: &str, kind: Kind, permissions: u32) -> Result<Ino> {
        let walk = self.walk_itself(path)?;
        if walk.found.is_some() {
            return Err(Error::Exists);
        }
        if walk.directory && !matches!(kind, Kind::Directory(_)) {
            return Err(Error::NotFound);
        }
        self.make_at(walk.parent, &walk.name, kind, permissions)
    }

    /// See [`Files::open_file`].
    pub fn open(&mut self, path: &str, flags: Flags, permissions: u32) -> Result<Attr> {
        if flags.nameless {
            return self.open_nameless(path, permissions);
        }
        let walk = self.walk(path, flags.follows())?;
        let ino = match walk.found {
            Some(_) if flags.create && flags.exclusive => return Err(Error::Exists),
            Some(ino) => {
                match &self.get(ino)?.kind {
                    Kind::Symlink(_) if !flags.symlink => return Err(Error::Loop),
                    Kind::Directory(_) if flags.create || flags.truncate => {
                        return Err(Error::IsDirectory)
                    }
                    _ => {}
                }
                if flags.truncate {
                    self.cut(ino, 0)?;
                }
                ino
            }
            None if flags.create && walk.directory => return Err(Error::IsDirectory),
            None if flags.create => self.make_at(
                walk.parent,
                &walk.name,
                Kind::File(Content::default()),
                permissions,
            )?,
            None => return Err(Error::NotFound),
        };
        self.reopen(ino)
    }

    /// Makes a file that has no name, where the path leads to a directory.
    fn open_nameless(&mut self, path: &str, permissions: u32) -> Result<Attr> {
        let directory = self.lookup(path, true)?;
        self.directory(directory)?;
        let kind = Kind::File(Content::default());
        self.budget.take(kind.cost())?;
        let ino = self.next;
        let inode = self.inode(kind, permissions);
        self.inodes.insert(ino, inode);
        self.next += 1;
        self.reopen(ino)
    }

    /// Opens an inode once more.
    fn reopen(&mut self, ino: Ino) -> Result<Attr> {
        let inode = self.get_mut(ino)?;
        inode.opens += 1;
        self.stat_ino(ino)
    }

    /// See [`Files::close`].
    pub fn close(&mut self, ino: Ino) -> Result<()> {
        let inode = self.get_mut(ino)?;
        inode.opens = inode.opens.checked_sub(1).ok_or(Error::Invalid)?;
        self.collect(ino);
        Ok(())
    }

    /// See [`Files::stat`].
    pub fn stat(&self, path: &str, follow: bool) -> Result<Attr> {
        self.stat_ino(self.lookup(path, follow)?)
    }

    /// See [`Files::attributes`].
    pub fn stat_ino(&self, ino: Ino) -> Result<Attr> {
        let inode = self.get(ino)?;
        let (size, links) = match &inode.kind {
            Kind::File(content) => (content.size(), inode.places.len() as u32),
            Kind::Symlink(target) => (target.len() as u64, inode.places.len() as u32),
            Kind::Directory(directory) => {
                // Its name, its own `.`, and the `..` of each directory in it.
                let links = if self.is_linked(ino) {
                    2 + directory.inner
                } else {
                    0
                };
                (directory.by_cookie.len() as u64 * 32, links)
            }
            Kind::Device => (0, inode.places.len() as u32),
        };
        Ok(Attr {
            ino,
            mode: inode.mode(),
            links,
            uid: inode.uid,
            gid: inode.gid,
            size,
            atime_ns: inode.atime_ns,
            mtime_ns: inode.mtime_ns,
            ctime_ns: inode.ctime_ns,
        })
    }

    /// Reads at most `length` bytes at `offset`, without a copy if they are in one chunk. `/dev/null` is empty; clients
    /// read the console from the console server.
    pub fn read(&self, ino: Ino, offset: u64, length: usize) -> Result<Cow<'_, [u8]>> {
        match &self.get(ino)?.kind {
            Kind::File(content) => Ok(content.read(offset, length.min(proto::MAX_BULK) as u64)),
            Kind::Directory(_) => Err(Error::IsDirectory),
            Kind::Symlink(_) => Err(Error::Invalid),
            Kind::Device if ino == services::fs::NULL_INO => Ok(Cow::Borrowed(&[])),
            Kind::Device => Err(Error::Unsupported),
        }
    }

    /// The stored bytes of the piece of a file with this offset, and the file's size. Errors: those of `read`.
    pub fn piece(&self, ino: Ino, offset: u64) -> Result<(&[u8], u64)> {
        match &self.get(ino)?.kind {
            Kind::File(content) => Ok((content.chunk_at(offset), content.size())),
            _ => self.read(ino, offset, 0).map(|_| (&[][..], 0)),
        }
    }

    /// Marks a file as read now.
    pub fn mark_read(&mut self, ino: Ino) {
        let now = self.now;
        let inode = self.inodes.get_mut(&ino);
        if let Some(inode) = inode.filter(|inode| matches!(inode.kind, Kind::File(_))) {
            inode.mark_read(now);
        }
    }

    /// Writes; returns how many bytes, and where. See [`Files::write`].
    pub fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        append: bool,
        bytes: &[u8],
    ) -> Result<(u32, u64)> {
        let now = self.now;
        let inode = self.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        match &mut inode.kind {
            Kind::File(content) => {
                let offset = if append { content.size() } else { offset };
                let count = content.write(offset, bytes, &mut self.budget)?;
                (inode.mtime_ns, inode.ctime_ns) = (now, now);
                Ok((count as u32, offset))
            }
            Kind::Directory(_) => Err(Error::IsDirectory),
            Kind::Symlink(_) => Err(Error::Invalid),
            Kind::Device if ino == services::fs::NULL_INO => Ok((bytes.len() as u32, offset)),
            Kind::Device => Err(Error::Unsupported),
        }
    }

    /// See [`Files::truncate`].
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        if matches!(self.get(ino)?.kind, Kind::Device) {
            return Err(Error::Invalid);
        }
        self.cut(ino, size)
    }

    /// Cuts a file; a device has nothing to cut.
    fn cut(&mut self, ino: Ino, size: u64) -> Result<()> {
        let now = self.now;
        let inode = self.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        match &mut inode.kind {
            Kind::File(content) => {
                content.truncate(size, &mut self.budget)?;
                (inode.mtime_ns, inode.ctime_ns) = (now, now);
                Ok(())
            }
            Kind::Directory(_) => Err(Error::IsDirectory),
            Kind::Symlink(_) => Err(Error::Invalid),
            Kind::Device => Ok(()),
        }
    }

    /// See [`Files::read_dir`].
    pub fn read_dir(&mut self, ino: Ino, cookie: u64) -> Result<Vec<u8>> {
        let directory = self.directory(ino)?;
        if !self.is_linked(ino) {
            // It has no entries any more, not even `.`, as in Linux.
            return Err(Error::NotFound);
        }
        let mut listing = Listing::new();
        let mut next = cookie;
        for (number, name, target) in [(0, ".", ino), (1, "..", directory.parent)] {
            if cookie <= number {
                // The parent of a removed directory may be gone, too.
                let mode = self.get(target).map_or(mode::DIRECTORY, Inode::mode);
                listing.add(target, mode, name);
                next = number + 1;
            }
        }
        for (number, (name, target)) in directory.by_cookie.range(cookie..) {
            if listing.is_full() {
                break;
            }
            listing.add(*target, self.get(*target)?.mode(), name);
            next = number + 1;
        }
        let now = self.now;
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.mark_read(now);
        }
        Ok(listing.done(next))
    }

    /// See [`Files::mkdir`].
    pub fn mkdir(&mut self, path: &str, permissions: u32) -> Result<Ino> {
        self.make(path, Kind::Directory(Directory::new(ROOT_INO)), permissions)
    }

    /// See [`Files::unlink`].
    pub fn unlink(&mut self, path: &str) -> Result<()> {
        let walk = self.walk_itself(path)?;
        let ino = walk.found.ok_or(Error::NotFound)?;
        if self.is_directory(ino) {
            return Err(Error::IsDirectory);
        }
        if walk.directory {
            return Err(Error::NotDirectory);
        }
        self.leave(walk.parent, &walk.name)
    }

    /// See [`Files::rmdir`].
    pub fn rmdir(&mut self, path: &str) -> Result<()> {
        if path.trim_end_matches('/').ends_with("/.") {
            return Err(Error::Invalid);
        }
        let walk = self.walk_itself(path)?;
        let directory = self.directory(walk.found.ok_or(Error::NotFound)?)?;
        if walk.name.is_empty() {
            // The root, or a path that ends in `..`: neither can be removed.
            return Err(if directory.by_cookie.is_empty() {
                Error::Invalid
            } else {
                Error::NotEmpty
            });
        }
        if !directory.by_cookie.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.leave(walk.parent, &walk.name)
    }

    /// See [`Files::rename`]; the rules are POSIX's.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let source = self.walk_itself(from)?;
        let target = self.walk_itself(to)?;
        let ino = source.found.ok_or(Error::NotFound)?;
        if source.name.is_empty() || target.name.is_empty() {
            return Err(Error::Invalid);
        }
        let directory = self.is_directory(ino);
        if !directory && (source.directory || target.directory) {
            return Err(Error::NotDirectory);
        }
        if directory && self.is_inside(target.parent, ino) {
            return Err(Error::Invalid);
        }
        self.may_enter(target.parent, &target.name, ino)?;
        match target.found {
            // Two names of one file: both stay.
            Some(there) if there == ino => return Ok(()),
            Some(there) => match (&self.get(there)?.kind, directory) {
                (Kind::Directory(_), false) => return Err(Error::IsDirectory),
                (Kind::Directory(entries), true) if !entries.by_cookie.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                (Kind::Directory(_), true) | (_, false) => {}
                (_, true) => return Err(Error::NotDirectory),
            },
            None => {}
        }
        // From here on only memory can be missing, which is checked first: the replaced entry frees at least as much as
        // a new one of the same name takes.
        let cost = ENTRY_COST + 2 * target.name.len() as u64;
        if self.budget.left() < cost {
            return Err(Error::NoMemory);
        }
        if target.found.is_some() {
            self.leave(target.parent, &target.name)?;
        }
        self.enter(target.parent, &target.name, ino)?;
        self.leave(source.parent, &source.name)?;
        Ok(())
    }

    /// Whether `ino` is `ancestor` or lies below it.
    fn is_inside(&self, mut ino: Ino, ancestor: Ino) -> bool {
        loop {
            if ino == ancestor {
                return true;
            }
            match self.directory(ino) {
                Ok(directory) if ino != ROOT_INO && self.is_linked(ino) => ino = directory.parent,
                _ => return false,
            }
        }
    }

    /// See [`Files::link`].
    pub fn link(&mut self, from: &str, to: &str) -> Result<()> {
        let ino = self.lookup(from, false)?;
        if self.is_directory(ino) {
            return Err(Error::Denied);
        }
        let walk = self.walk_itself(to)?;
        if walk.found.is_some() {
            return Err(Error::Exists);
        }
        if walk.directory {
            return Err(Error::NotFound);
        }
        if self.get(ino)?.places.len() >= MAX_PLACES {
            return Err(Error::Limit);
        }
        self.enter(walk.parent, &walk.name, ino)
    }

    /// See [`Files::symlink`].
    pub fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        // As in paths: a file made through the link would have a name that no path can contain.
        if target.contains('\0') {
            return Err(Error::Invalid);
        }
        if target.len() > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        let cost = target.len() as u64;
        self.budget.take(cost)?;
        match self.make(path, Kind::Symlink(target.into()), 0o777) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.budget.give(cost);
                Err(error)
            }
        }
    }

    /// See [`Files::readlink`].
    pub fn readlink(&self, path: &str) -> Result<String> {
        match &self.get(self.lookup(path, false)?)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid),
        }
    }

    /// See [`Files::path_of`].
    pub fn path_of(&self, ino: Ino) -> Result<String> {
        if ino == ROOT_INO {
            return Ok("/".into());
        }
        let mut names = Vec::new();
        let mut length = 0;
        let mut at = ino;
        while at != ROOT_INO {
            let (directory, cookie) = *self.get(at)?.places.first().ok_or(Error::NotFound)?;
            let (name, _) = self
                .directory(directory)?
                .by_cookie
                .get(&cookie)
                .ok_or(Error::NotFound)?;
            length += 1 + name.len();
            if length > MAX_PATH {
                return Err(Error::NameTooLong);
            }
            names.push(name.as_str());
            at = directory;
        }
        let mut path = String::new();
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        Ok(path)
    }

    /// See [`Files::chmod`].
    pub fn chmod(&mut self, ino: Ino, permissions: u32) -> Result<()> {
        let now = self.now;
        let inode = self.get_mut(ino)?;
        inode.permissions = permissions & 0o7777;
        inode.ctime_ns = now;
        Ok(())
    }

    /// See [`Files::chown`]. `u32::MAX` leaves an owner as it is.
    pub fn chown(&mut self, ino: Ino, uid: u32, gid: u32) -> Result<()> {
        let now = self.now;
        let inode = self.get_mut(ino)?;
        if uid != u32::MAX {
            inode.uid = uid;
        }
        if gid != u32::MAX {
            inode.gid = gid;
        }
        inode.ctime_ns = now;
        Ok(())
    }

    /// See [`Files::utimens`].
    pub fn utimens(&mut self, ino: Ino, atime_ns: u64, mtime_ns: u64) -> Result<()> {
        let now = self.now;
        let inode = self.get_mut(ino)?;
        (inode.atime_ns, inode.mtime_ns, inode.ctime_ns) = (atime_ns, mtime_ns, now);
        Ok(())
    }
}

/// Puts the names of `path` before those that are left to follow. A trailing slash counts as an empty name, which means
/// that the path must lead to a directory.
fn push<'a>(rest: &mut Vec<&'a str>, path: &'a str) {
    let slash = path.len() > 1 && path.ends_with('/');
    if slash {
        rest.push("");
    }
    rest.extend(path.split('/').rev().filter(|name| !name.is_empty()));
}

/// A path of the archive as an absolute one.
fn absolute(path: &str) -> String {
    let mut absolute = String::from("/");
    absolute.push_str(path.trim_start_matches("./").trim_start_matches('/'));
    absolute
}
