//! A file system on a disk.

use crate::check::{Check, MOST_EXTENTS, ROOM_BLOCK};
use crate::tap::Tap;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use rsext4::{
    BlockIo, Clock, DirectoryCursor, DirectoryEntryType, Ext4, Ext4Error, Ext4ErrorKind,
    Ext4Timestamp, FileExtentState, FileExtentTarget, FileName, FilePermissions, InodeInfo,
    InodeMetadataUpdate, InodeNumber, MkfsOptions, MountOptions, MountServices, MountedServices,
    MutationContext, NoopObserver, RenameOptions,
};
use rt::heap::Hold;
use services::fs::{
    mode, on_disk, Attr, Entry, Flags, Ino, Renamed, MAX_ENTRIES, MOUNT, ON_DISK, PATH_ROOM,
};

/// Most symbolic links that one path can lead through.
const MAX_LINKS: usize = 40;
/// Most names that one path can lead through, those of symbolic links included. It bounds the work of a request.
const MAX_NAMES: usize = 1024;
/// Most directories below each other; a directory of a broken disk may be below itself.
const MAX_DEPTH: usize = 256;
/// Most bytes of a path.
const MAX_PATH: usize = PATH_ROOM;
/// Most bytes of a name.
const MAX_NAME: usize = 255;
/// Blocks and inodes that are kept free, since `rsext4` leaks blocks on a full disk: this part of the disk, within the
/// limits that follow.
const RESERVE_PART: u64 = 32;
const RESERVE_LEAST: u64 = 64;
const RESERVE_MOST: u64 = 1024;
const RESERVE_INODES: u32 = 4;
/// Most bytes of a file: the most that 32-bit numbers of 4-KB blocks can name.
const MAX_SIZE: u64 = 1 << 43;
/// Most files without a name that are open. To free one, or to remove another one's name, `rsext4` goes through all of
/// them, which is quick as long as they are in its cache of 128 inodes.
const MAX_NAMELESS: usize = 96;
/// How many entries of a directory are read at a time while all of them have to be skipped, and how often: each time
/// the library looks up all blocks of the directory.
const PASSED_OVER: usize = 1024;
const PASSES: usize = 8;
/// The flag of a directory with an index. And the bit of a cookie whose other bits are a hash, and not an offset.
const INDEXED: u32 = 0x1000;
const HASHED: u64 = 1 << 63;
/// The cookie of the end of a directory with an index. No name has this hash.
const END: u64 = u64::MAX;
/// Most bytes of a file without a name that is open. To free it the library keeps the place of each of its blocks in
/// memory.
const MOST_NAMELESS: u64 = 1 << 30;
/// Most groups in which the library can free blocks of a file at once: its transaction changes a block for each, and 30
/// others, and has room for 91.
const MOST_GROUPS_AT_ONCE: usize = 56;
/// Most extents of a file that the library can cut to length 0: 680 are too many for it.
const MOST_PIECES: usize = 600;
/// Most blocks of a file without a name that are freed in one step, for which other clients wait. The library frees
/// them one by one.
const STEP_BLOCKS: u64 = 512;
/// Most groups of these blocks. Changes that do not fit into one transaction the library splits into several, after
/// which the file would no longer be among the orphans that a mount frees.
const STEP_GROUPS: usize = 16;
/// Most files without a name, including those that are not open and wait to be freed. A mount refuses 256.
const MOST_LEAVING: usize = MAX_NAMELESS + 32;
/// Most steps that one request does to make room for a file among these.
const STEPS_FOR_A_PLACE: usize = 16;
/// Bytes of memory for a step.
const ROOM_STEP: u64 = 1 << 20;
/// Bytes of memory of an extent that is read.
const ROOM_EXTENT: u64 = 128;
/// The unit in which an inode counts its blocks, in bytes.
const COUNTED: u64 = 512;
/// The owner of new files.
const MAKER: MutationContext = MutationContext::new(0, 0, 0, 0);
const NANOSECONDS: u64 = 1_000_000_000;

type Result<T> = core::result::Result<T, Error>;

/// Translates an error of `rsext4`.
fn error(error: Ext4Error) -> Error {
    match error.kind() {
        Ext4ErrorKind::NotFound => Error::NotFound,
        Ext4ErrorKind::AlreadyExists => Error::Exists,
        Ext4ErrorKind::NotDirectory => Error::NotDirectory,
        Ext4ErrorKind::IsDirectory => Error::IsDirectory,
        Ext4ErrorKind::NotEmpty => Error::NotEmpty,
        Ext4ErrorKind::NoSpace | Ext4ErrorKind::NoMemory | Ext4ErrorKind::QuotaExceeded => {
            Error::NoMemory
        }
        Ext4ErrorKind::TooManyLinks => Error::Limit,
        Ext4ErrorKind::ReadOnly | Ext4ErrorKind::PermissionDenied => Error::Denied,
        Ext4ErrorKind::Unsupported
        | Ext4ErrorKind::UnsupportedFeature
        | Ext4ErrorKind::UnsupportedCapability => Error::Unsupported,
        Ext4ErrorKind::Corrupted
        | Ext4ErrorKind::ChecksumMismatch
        | Ext4ErrorKind::BadSuperblock
        | Ext4ErrorKind::InvalidMagic => Error::BadFormat,
        Ext4ErrorKind::InvalidInput | Ext4ErrorKind::Overflow | Ext4ErrorKind::FileTooLarge => {
            Error::Invalid
        }
        _ => Error::Broken,
    }
}

/// Reserves memory. A test can let it run out.
fn hold(bytes: u64) -> Result<Hold> {
    #[cfg(test)]
    if bytes > crate::tests::MEMORY.get() {
        return Err(Error::NoMemory);
    }
    Hold::new(bytes)
}

/// An open file or directory.
#[derive(Debug)]
struct Open {
    inode: InodeNumber,
    /// How often it is open.
    times: u64,
    /// The path by which it was found, updated by known renames. Empty if it is longer than a path in a request:
    /// through symbolic links it can have 64 KB.
    path: String,
    /// It has no name any more, and is freed when it is closed.
    unlinked: bool,
    /// Some data of it may not be on the disk.
    dirty: bool,
    /// Where the last answer about a directory ended, if there are more names of the same hash than fit into one
    /// answer: a cookie cannot distinguish them.
    alike: Option<DirectoryCursor>,
}

/// How a link at the end of a path is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Followed.
    Followed,
    /// Followed if there is a trailing slash.
    BySlash,
    /// Not followed, since the name is made, removed or renamed; the caller checks the condition of a trailing slash.
    Itself,
}

impl Last {
    const fn followed(follow: bool) -> Self {
        match follow {
            true => Last::Followed,
            false => Last::BySlash,
        }
    }
}

/// How a path ends. Of those of a path and of the link that it leads to the greater one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Name,
    /// With a trailing slash: it must lead to a directory.
    Slash,
    /// With `.` or `..`: it names a directory that exists, and no entry of one.
    Dots,
}

impl End {
    fn of(path: &str) -> Self {
        let names = path.trim_end_matches('/');
        // The target of a link can be a mere `..`.
        if matches!(names.rsplit('/').next(), Some("." | "..")) {
            End::Dots
        } else if names.len() < path.len() {
            End::Slash
        } else {
            End::Name
        }
    }
}

/// The result of resolving a path.
struct Found {
    /// The directory, and the name in it; no name for the root, and if the path ends in `.` or `..`.
    parent: InodeNumber,
    name: String,
    /// Whether the path must lead to a directory.
    directory: bool,
    /// The inode with this name.
    inode: Option<InodeInfo>,
    /// The path without links.
    path: String,
}

/// `rsext4` on a disk.
type Library<D> = Ext4<Tap<D>, MountedServices<(), NoopObserver>>;

/// A mounted file system.
pub struct Volume<D: BlockIo> {
    pub(crate) ext4: Library<D>,
    disk: Tap<D>,
    check: Check<D>,
    /// By the number that clients know.
    open: BTreeMap<Ino, Open>,
    /// Files without a name that are not open: they are freed step by step, or when there is memory for it. There is
    /// room for [`MOST_LEAVING`], so that none is forgotten when there is no memory.
    leaving: VecDeque<InodeNumber>,
    /// How many more there are that the library refuses to free. The next mount frees them.
    refused: usize,
    salt: u32,
    /// Some data of any file may not be on the disk, also of one whose data could not be written when it was closed.
    dirty: bool,
    /// During a group of `sync` requests: whether one was done.
    group: Option<bool>,
}

/// Whether a disk is blank: only zeros where other formats have their signatures. These are at the beginning, for some
/// at 64 KB (btrfs, GFS2, ReiserFS, UFS2) or a megabyte, and at the end, where arrays of several disks (md) and
/// partition tables (GPT) have their only or a second header.
pub fn is_blank<D: BlockIo>(device: &mut D) -> Result<bool> {
    const HEAD: u64 = 2 << 20;
    const TAIL: u64 = 128 << 10;
    /// Bytes that are read at a time.
    const PIECE: u64 = 64 << 10;
    let geometry = device.geometry();
    let sector = u64::from(geometry.logical_block_size);
    let end = geometry.block_count;
    let head = (HEAD / sector).min(end);
    let tail = end.saturating_sub(TAIL / sector).max(head);
    for (mut at, until) in [(0, head), (tail, end)] {
        while at < until {
            let count = (PIECE / sector).clamp(1, until - at);
            let mut piece = vec![0xff; (count * sector) as usize];
            device
                .read(&mut piece, rsext4::SectorId::new(at), count as u32)
                .map_err(error)?;
            if piece.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += count;
        }
    }
    Ok(true)
}

/// Whether a disk has the signature of an ext4 file system.
pub fn is_ext4<D: BlockIo>(device: &mut D) -> Result<bool> {
    /// The offset of the superblock, and offset and value of its magic number.
    const SUPERBLOCK: usize = 1024;
    const MAGIC: (usize, u16) = (56, 0xef53);
    let sector = device.geometry().logical_block_size as usize;
    let sectors = (2 * SUPERBLOCK).div_ceil(sector);
    if device.geometry().block_count < sectors as u64 {
        return Ok(false);
    }
    let mut head = vec![0; sectors * sector];
    device
        .read(&mut head, rsext4::SectorId::new(0), sectors as u32)
        .map_err(error)?;
    let at = SUPERBLOCK + MAGIC.0;
    Ok(head.get(at..at + 2) == Some(&MAGIC.1.to_le_bytes()))
}

/// Bytes of the smallest disk that gets a file system. On smaller ones `rsext4` runs out of room half-way, and leaves a
/// disk that is neither blank nor a file system.
const LEAST: u64 = 20 << 20;

/// Makes a file system. A disk that is too small for one stays as it is: [`Error::Unsupported`].
pub fn format<D: BlockIo, C: Clock + Send + 'static>(device: D, clock: C) -> Result<D> {
    let geometry = device.geometry();
    let bytes = geometry
        .block_count
        .saturating_mul(u64::from(geometry.logical_block_size));
    if bytes < LEAST {
        return Err(Error::Unsupported);
    }
    rsext4::format(device, clock, MkfsOptions::default()).map_err(error)
}

fn library<D: BlockIo, C: Clock + Send + 'static>(disk: &Tap<D>, clock: C) -> Result<Library<D>> {
    let services = MountServices::new(clock, (), NoopObserver);
    disk.refill();
    Ext4::mount(disk.clone(), services, MountOptions::read_write()).map_err(error)
}

/// A clock without a time: nothing is dated while a log is replayed.
struct Never;

impl Clock for Never {
    fn now(&self) -> rsext4::Ext4Result<Ext4Timestamp> {
        Ok(Ext4Timestamp::new(0, 0))
    }
}

/// Replays the log if there is one, and does nothing else: a log may change all structures that were checked before,
/// and the library would use them unchecked. So the disk is closed to the library when it has marked the log as done in
/// the journal; then everything is checked again.
fn replayed<D: BlockIo>(disk: &Tap<D>) -> Result<Check<D>> {
    let check = Check::new(disk.clone())?;
    let Some(journal) = check.log() else {
        return Ok(check);
    };
    let _room = check.room()?;
    disk.close_after(journal);
    let stopped = library(disk, Never);
    disk.reopen();
    disk.refill();
    let check = Check::new(disk.clone())?;
    match (check.log(), stopped) {
        (None, _) => Ok(check),
        (Some(_), Err(error)) => Err(error),
        (Some(_), Ok(_)) => Err(Error::BadFormat),
    }
}

/// How a file's blocks are spread: the number of groups, counted up to one more than matters, the number of extents,
/// and whether some were never written to.
#[derive(Default)]
struct Spread {
    groups: usize,
    pieces: usize,
    unwritten: bool,
}

impl<D: BlockIo> Volume<D> {
    /// Mounts a device. Numbers of files differ between boots if `salt` does.
    pub fn mount<C: Clock + Send + 'static>(mut device: D, clock: C, salt: u32) -> Result<Self> {
        if !is_ext4(&mut device)? {
            return Err(Error::BadFormat);
        }
        let mut leaving = VecDeque::new();
        let room = leaving.try_reserve_exact(MOST_LEAVING);
        room.map_err(|_| Error::NoMemory)?;
        let disk = Tap::new(device);
        let mut check = replayed(&disk)?;
        check.begin()?;
        let _room = check.room()?;
        let ext4 = library(&disk, clock)?;
        // Blocks that the mount wrote belong to checked inodes, and are on the disk.
        disk.forget_written();
        Ok(Volume {
            ext4,
            disk,
            check,
            open: BTreeMap::new(),
            leaving,
            refused: 0,
            salt,
            dirty: false,
            group: None,
        })
    }

    /// Begins or ends a group of `sync` requests, for which one `sync` is enough.
    pub(crate) fn group(&mut self, begins: bool) {
        self.group = begins.then_some(false);
    }

    /// Makes everything that was written survive a loss of power.
    pub fn sync(&mut self) -> Result<()> {
        if self.group == Some(true) {
            return Ok(());
        }
        self.disk.refill();
        self.ext4.sync().map_err(error)?;
        self.group = self.group.map(|_| true);
        self.open.values_mut().for_each(|open| open.dirty = false);
        self.dirty = false;
        Ok(())
    }

    /// Whether there is written data that may not survive a loss of power.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    fn child(&mut self, directory: InodeNumber, name: &str) -> Result<Option<InodeInfo>> {
        if name.len() > MAX_NAME {
            return Err(Error::NameTooLong);
        }
        let name = FileName::new(name.as_bytes()).map_err(error)?;
        let child = self.ext4.lookup_child(directory, name).map_err(error)?;
        // Checked before the library may walk it.
        if let Some(info) = &child {
            self.check.inode(directory, info.number)?;
        }
        Ok(child)
    }

    fn info(&mut self, inode: InodeNumber) -> Result<InodeInfo> {
        self.ext4.inode(inode).map_err(error)
    }

    /// The target of a symbolic link.
    fn target(&mut self, link: &InodeInfo) -> Result<String> {
        // `rsext4` would allocate as much as the size says.
        if link.size >= MAX_PATH as u64 {
            return Err(Error::BadFormat);
        }
        let mut text = vec![0; link.size as usize];
        let length = self.ext4.read_inode(link.number, 0, &mut text);
        text.truncate(length.map_err(error)?);
        String::from_utf8(text).map_err(|_| Error::BadFormat)
    }

    /// Resolves a path. `follow`: also follows a symbolic link in the last place.
    fn find(&mut self, path: &str, last: Last) -> Result<Found> {
        let (rule, mut end) = (last, End::of(path));
        let follow = match rule {
            Last::Followed => true,
            Last::BySlash => end != End::Name,
            Last::Itself => end == End::Dots,
        };
        self.disk.refill();
        if path.len() > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        let root = self.ext4.root_inode();
        let mut words = inside(path).ok_or(Error::NotFound)?;
        let mut at: Vec<(InodeNumber, String)> = Vec::new();
        let (mut links, mut names) = (0, 0);
        while let Some(word) = words.pop() {
            names += 1;
            if names > MAX_NAMES {
                return Err(Error::Loop);
            }
            if word == ".." {
                at.pop();
                continue;
            }
            let parent = at.last().map_or(root, |(inode, _)| *inode);
            let inode = self.child(parent, &word)?;
            let last = words.is_empty();
            let directory = end != End::Name;
            let Some(info) = inode else {
                return match last && end != End::Dots {
                    true => Ok(found(&at, (parent, word), None, directory)),
                    false => Err(Error::NotFound),
                };
            };
            match info.file_type() {
                DirectoryEntryType::Symlink if follow || !last => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::Loop);
                    }
                    let target = self.target(&info)?;
                    if last {
                        end = end.max(End::of(&target));
                    }
                    if target.starts_with('/') {
                        at.clear();
                        // Links that lead out of the disk cannot be followed here.
                        words.extend(inside(&target).ok_or(Error::NotFound)?);
                    } else {
                        words.extend(split(&target));
                    }
                    if words.len() > MAX_PATH {
                        return Err(Error::NameTooLong);
                    }
                }
                DirectoryEntryType::Directory => {
                    at.push((info.number, word));
                    if at.len() > MAX_DEPTH {
                        return Err(Error::Loop);
                    }
                }
                _ if last && (!directory || rule == Last::Itself && end == End::Slash) => {
                    return Ok(found(&at, (parent, word), Some(info), directory));
                }
                _ => return Err(Error::NotDirectory),
            }
        }
        // The path leads to a directory.
        match at.pop() {
            Some((inode, name)) => {
                let parent = at.last().map_or(root, |(inode, _)| *inode);
                let info = self.info(inode)?;
                let directory = end != End::Name;
                let mut found = found(&at, (parent, name), Some(info), directory);
                if end == End::Dots {
                    found.name.clear();
                }
                Ok(found)
            }
            None => Ok(Found {
                parent: root,
                name: String::new(),
                directory: true,
                inode: Some(self.info(root)?),
                path: MOUNT.to_owned(),
            }),
        }
    }

    /// The inode to which a path leads, which must exist.
    fn there(&mut self, path: &str, follow: bool) -> Result<InodeInfo> {
        let found = self.find(path, Last::followed(follow))?;
        found.inode.ok_or(Error::NotFound)
    }

    /// A path where nothing exists, for something new, which is a directory or not.
    fn free_place(&mut self, path: &str, is_directory: bool) -> Result<Found> {
        let found = self.find(path, Last::Itself)?;
        match found.inode {
            Some(_) => Err(Error::Exists),
            None if found.directory && !is_directory => Err(Error::NotFound),
            None => self.check_room(0).map(|()| found),
        }
    }

    /// Refuses a request for so many bytes and an inode that would fill the disk.
    fn check_room(&mut self, bytes: u64) -> Result<()> {
        loop {
            let stats = self.ext4.statfs();
            let reserve = (stats.total_blocks / RESERVE_PART).clamp(RESERVE_LEAST, RESERVE_MOST);
            let needed = bytes.div_ceil(stats.block_size.max(1)) + reserve;
            if stats.free_blocks >= needed && stats.free_inodes > RESERVE_INODES {
                return Ok(());
            }
            // Removed files may not have been freed yet.
            if !self.tend() {
                return Err(Error::NoMemory);
            }
        }
    }

    /// A new inode has no extended attributes, also if the former one with its number had some.
    fn clear_attributes(&mut self, inode: InodeNumber) -> Result<()> {
        self.check.made(inode)?;
        for name in self.ext4.list_xattrs(inode).map_err(error)? {
            let removed = self.ext4.remove_xattr(inode, name.namespace, &name.name);
            removed.map_err(error)?;
        }
        Ok(())
    }

    fn opened(&mut self, file: Ino) -> Result<&mut Open> {
        self.disk.refill();
        self.open.get_mut(&file).ok_or(Error::NotFound)
    }

    /// The number of an inode: another one when the inode was used for another file, and in another boot.
    fn number(&self, info: &InodeInfo) -> Ino {
        let when = self.salt ^ info.btime.wrapping_mul(0x9e37_79b9);
        ON_DISK | u64::from(when >> 1) << 32 | info.number.as_u64()
    }

    /// The number by which an inode is open, if it is.
    fn number_of(&self, inode: InodeNumber) -> Option<Ino> {
        let mut open = self.open.iter();
        open.find(|(_, open)| open.inode == inode).map(|(n, _)| *n)
    }

    /// How many files are on the disk without a name.
    fn nameless(&self) -> usize {
        let open = self.open.values().filter(|open| open.unlinked).count();
        open + self.leaving.len() + self.refused
    }

    /// Checks whether a file may lose a name. The last name of an open file cannot be removed while too many open files
    /// have none, or if the file is too large to be freed with any memory. That of a file that is not open cannot be
    /// removed if there is no memory to free it, or too many files wait for that.
    ///
    /// Errors that the library would report when it frees the file are reported while it still has its name: a file
    /// without a name that cannot be freed stays, and prevents every mount. So a file that is in more groups than the
    /// library changes at a time is cut first, unless it is `replaced` by another one, which must keep the old file
    /// whole if it fails.
    fn check_loss(&mut self, info: &InodeInfo, replaced: bool) -> Result<()> {
        let stays = !info.is_directory() && info.links > 1;
        if stays {
            return Ok(());
        }
        self.ext4.list_xattrs(info.number).map_err(error)?;
        let spread = self.spread(info)?;
        let is_wide = spread.groups > MOST_GROUPS_AT_ONCE;
        if self.number_of(info.number).is_some() {
            let is_small = info.blocks * COUNTED <= MOST_NAMELESS && !is_wide;
            let may = self.nameless() < MAX_NAMELESS && is_small;
            return may.then_some(()).ok_or(Error::Limit);
        }
        let can_be_cut = !replaced && !info.is_directory() && spread.pieces <= MOST_PIECES;
        if is_wide && !can_be_cut {
            return Err(Error::Limit);
        }
        let mut steps = 0..STEPS_FOR_A_PLACE;
        while self.nameless() >= MOST_LEAVING {
            if steps.next().is_none() || !self.tend() {
                return Err(Error::Limit);
            }
        }
        if can_be_cut && (is_wide || spread.unwritten) {
            // The library frees unwritten blocks only by a cut.
            return self.cut(info.number, 0);
        }
        self.room_to_let_go(info).map(drop)
    }

    /// How many of `length` bytes from `offset` on can be written to a file without a name, so that it can still be
    /// freed in one transaction, also at a mount: each block that it does not have yet may come from another group.
    fn most_without_name(&mut self, info: &InodeInfo, offset: u64, length: usize) -> Result<usize> {
        if self.check.groups() <= MOST_GROUPS_AT_ONCE {
            return Ok(length);
        }
        let block = self.ext4.statfs().block_size.max(COUNTED);
        let first = offset / block;
        let blocks = (offset + length as u64).div_ceil(block) - first;
        let (from, bytes) = (first * block, blocks * block);
        let (target, most) = (FileExtentTarget::Data, blocks as usize);
        let there = self
            .ext4
            .inode_extents(info.number, from, bytes, target, most);
        let there = there.map_err(error)?.extents;
        // The library returns whole extents, also the parts outside of the range.
        let had: u64 = there
            .iter()
            .map(|extent| {
                let end = (extent.logical_start + extent.length).min(from + bytes);
                end.saturating_sub(extent.logical_start.max(from))
                    .div_ceil(block)
            })
            .sum();
        let missing = blocks.saturating_sub(had);
        if missing == 0 {
            return Ok(length);
        }
        let groups = self.spread(info)?.groups;
        match MOST_GROUPS_AT_ONCE.saturating_sub(groups) as u64 {
            0 => Err(Error::Limit),
            left if left >= missing => Ok(length),
            left => Ok(length.min(((first + left) * block - offset) as usize)),
        }
    }

    /// Where the blocks of a file or directory are.
    fn spread(&mut self, info: &InodeInfo) -> Result<Spread> {
        let has_blocks = matches!(
            info.file_type(),
            DirectoryEntryType::RegularFile | DirectoryEntryType::Directory
        );
        if !has_blocks || info.size == 0 {
            return Ok(Spread::default());
        }
        let block = self.ext4.statfs().block_size.max(COUNTED);
        let most = (info.blocks / (block / COUNTED)).min(MOST_EXTENTS);
        let _room = Hold::new((most + 1) * ROOM_EXTENT)?;
        let (target, most) = (FileExtentTarget::Data, MOST_EXTENTS as usize);
        let found = self
            .ext4
            .inode_extents(info.number, 0, u64::MAX, target, most);
        let found = found.map_err(error)?;
        let mut groups = BTreeSet::new();
        let mut unwritten = false;
        for extent in &found.extents {
            unwritten |= extent.state == FileExtentState::Unwritten;
            let first = extent.physical_start / block;
            let last = first + (extent.length / block).saturating_sub(1);
            let of = |place| self.check.group_of(place);
            groups.extend((of(first)..=of(last)).take(MOST_GROUPS_AT_ONCE + 1));
            if groups.len() > MOST_GROUPS_AT_ONCE {
                break;
            }
        }
        Ok(Spread {
            groups: groups.len(),
            pieces: found.mapped_extents,
            unwritten,
        })
    }

    /// Reserves the memory to free a file.
    fn room_to_let_go(&self, info: &InodeInfo) -> Result<Hold> {
        let block = self.ext4.statfs().block_size.max(COUNTED);
        let blocks = info.blocks / (block / COUNTED);
        hold(blocks.saturating_mul(ROOM_BLOCK))
    }

    /// Opens a file. Returns number, mode and size.
    pub fn open(&mut self, path: &str, flags: Flags, bits: u32) -> Result<(Ino, u32, u64)> {
        if flags.nameless {
            return Err(Error::Unsupported);
        }
        let found = self.find(path, Last::followed(flags.follows()))?;
        let info = match found.inode {
            Some(_) if flags.create && flags.exclusive => return Err(Error::Exists),
            Some(info) => {
                let writes = flags.create || flags.truncate;
                match info.file_type() {
                    DirectoryEntryType::Directory if writes => return Err(Error::IsDirectory),
                    DirectoryEntryType::RegularFile | DirectoryEntryType::Directory => {}
                    DirectoryEntryType::Symlink if flags.symlink => {}
                    DirectoryEntryType::Symlink => return Err(Error::Loop),
                    _ => return Err(Error::Unsupported),
                }
                if flags.truncate && info.size > 0 {
                    self.cut(info.number, 0)?;
                    self.info(info.number)?
                } else {
                    info
                }
            }
            None if !flags.create => return Err(Error::NotFound),
            None if found.directory => return Err(Error::IsDirectory),
            None => {
                self.check_room(0)?;
                let name = FileName::new(found.name.as_bytes()).map_err(error)?;
                let bits = permissions(bits)?;
                let made = self
                    .ext4
                    .create_regular_file(MAKER, found.parent, name, bits);
                let made = made.map_err(error)?;
                self.clear_attributes(made.number)?;
                self.sync()?;
                made
            }
        };
        let file = self.number(&info);
        let path = Some(found.path).filter(|path| path.len() <= MAX_PATH);
        let mut path = path.unwrap_or_default();
        path.shrink_to_fit();
        let open = self.open.entry(file).or_insert(Open {
            inode: info.number,
            times: 0,
            path,
            unlinked: false,
            dirty: false,
            alike: None,
        });
        open.times += 1;
        Ok((file, u32::from(info.mode), info.size))
    }

    /// Closes a file. Its data is on the disk then; a file without a name is freed.
    pub fn close(&mut self, file: Ino) -> Result<()> {
        let open = self.opened(file)?;
        open.times -= 1;
        let (inode, unlinked, dirty, last) =
            (open.inode, open.unlinked, open.dirty, open.times == 0);
        if last {
            self.open.remove(&file);
        }
        match (last, unlinked) {
            (true, true) => self.reap(inode),
            _ if dirty => self.sync(),
            _ => Ok(()),
        }
    }

    /// Frees a file that has no name any more. The removal of its name is on the disk before its blocks can be used
    /// again. A large file is freed step by step later ([`tend`](Self::tend)), others when there is memory for it.
    fn reap(&mut self, inode: InodeNumber) -> Result<()> {
        let synced = self.sync();
        let left = synced.and_then(|()| self.let_go(inode));
        if left != Ok(true) {
            // Whatever the error, the file is counted, and `check_loss` has left room for it.
            self.leaving.push_back(inode);
        }
        match left {
            Err(Error::NoMemory) => synced,
            left => left.map(drop),
        }
    }

    /// Does a step of freeing files without a name. Returns whether it did something, so that it is worth calling
    /// again.
    pub(crate) fn tend(&mut self) -> bool {
        let Some(inode) = self.leaving.pop_front() else {
            return false;
        };
        let left = hold(ROOM_STEP).and_then(|_room| self.let_go(inode));
        match left {
            Ok(true) => {}
            Ok(false) => self.leaving.push_front(inode),
            // The next file may be smaller.
            Err(Error::NoMemory) => self.leaving.push_back(inode),
            // The library would refuse it again.
            Err(_) => self.refused += 1,
        }
        left.is_ok()
    }

    /// Frees a file without a name that is not open, or some of its blocks. Returns whether it is gone.
    fn let_go(&mut self, inode: InodeNumber) -> Result<bool> {
        self.disk.refill();
        let info = self.info(inode)?;
        if info.links > 0 {
            // It was freed although an error was reported, and another file has its inode.
            return Ok(true);
        }
        match self.step(&info, None)? {
            Some(size) => self.cut(inode, size).map(|()| false),
            None => {
                let _room = self.room_to_let_go(&info)?;
                self.ext4.reap_unlinked_inode(inode).map_err(error)?;
                // The file is gone, even if that cannot be written now.
                self.dirty |= self.sync().is_err();
                Ok(true)
            }
        }
    }

    /// The size to which a file without a name is cut next, until it can be freed in one piece (`None`), or until it
    /// has the size that a client asks for.
    fn step(&mut self, info: &InodeInfo, asked: Option<u64>) -> Result<Option<u64>> {
        let to = asked.unwrap_or(0);
        if info.file_type() != DirectoryEntryType::RegularFile || info.size <= to {
            return Ok(asked);
        }
        let block = self.ext4.statfs().block_size.max(COUNTED);
        let _room = hold(MOST_PIECES as u64 * ROOM_EXTENT)?;
        let (target, most) = (FileExtentTarget::Data, MOST_PIECES);
        let found = self
            .ext4
            .inode_extents(info.number, to, u64::MAX, target, most);
        let found = found.map_err(error)?;
        let all: u64 = found.extents.iter().map(|extent| extent.length).sum();
        // The library frees unwritten blocks only by a cut.
        let mut states = found.extents.iter().map(|extent| extent.state);
        let unwritten = states.any(|state| state == FileExtentState::Unwritten);
        let is_small = all <= STEP_BLOCKS * block && !unwritten;
        match asked {
            None if is_small || !found.complete => return Ok(None),
            Some(_) if !found.complete => return Err(Error::Limit),
            _ => {}
        }
        let mut groups = BTreeSet::new();
        let (mut blocks, mut size) = (0, info.size);
        // Each step makes the file shorter, whatever extents the disk has.
        let shorter = |size: u64| if size < info.size { size.max(to) } else { to };
        // Blocks reserved behind the end are freed with the first step, and do not count: a step that freed only them
        // would not shorten the file, and would be repeated for ever.
        let end = info.size.div_ceil(block).saturating_mul(block);
        for extent in found.extents.iter().rev() {
            let before = end.saturating_sub(extent.logical_start);
            let count = extent.length.min(before).div_ceil(block);
            if count == 0 {
                continue;
            }
            let taken = count.min(STEP_BLOCKS - blocks);
            let first = extent.physical_start / block + count - taken;
            let of = |place| self.check.group_of(place);
            groups.extend(of(first)..=of(first + taken.saturating_sub(1)));
            // The groups of one extent always fit.
            if groups.len() > STEP_GROUPS {
                return Ok(Some(shorter(size)));
            }
            blocks += taken;
            size = extent.logical_start + (count - taken) * block;
            if blocks == STEP_BLOCKS {
                return Ok(Some(shorter(size)));
            }
        }
        Ok(Some(to))
    }

    /// Handles the loss of an inode's last name.
    fn lost(&mut self, inode: InodeNumber) -> Result<()> {
        match self.number_of(inode) {
            Some(file) => {
                self.opened(file)?.unlinked = true;
                self.sync()
            }
            None => self.reap(inode),
        }
    }

    /// Sets the size of a file, and makes that durable: before its freed blocks can be used again, and before others
    /// write to it, since a repeated cut would destroy their data.
    fn cut(&mut self, inode: InodeNumber, size: u64) -> Result<()> {
        self.ext4.truncate_inode(inode, size).map_err(error)?;
        self.sync()
    }

    fn attributes_of(&self, info: &InodeInfo) -> Attr {
        let nanoseconds = |seconds: u32| u64::from(seconds) * NANOSECONDS;
        Attr {
            ino: self.number(info),
            mode: u32::from(info.mode),
            links: u32::from(info.links),
            uid: info.uid,
            gid: info.gid,
            size: info.size,
            atime_ns: nanoseconds(info.atime),
            mtime_ns: nanoseconds(info.mtime),
            ctime_ns: nanoseconds(info.ctime),
        }
    }

    /// Attributes by path.
    pub fn stat(&mut self, path: &str, follow: bool) -> Result<Attr> {
        let info = self.there(path, follow)?;
        Ok(self.attributes_of(&info))
    }

    /// Attributes of an open file.
    pub fn attributes(&mut self, file: Ino) -> Result<Attr> {
        let inode = self.opened(file)?.inode;
        let info = self.info(inode)?;
        Ok(self.attributes_of(&info))
    }

    /// The regular file that is open by this number.
    fn file(&mut self, file: Ino) -> Result<InodeInfo> {
        let inode = self.opened(file)?.inode;
        let info = self.info(inode)?;
        match info.file_type() {
            DirectoryEntryType::RegularFile => Ok(info),
            DirectoryEntryType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Reads at most `room` bytes.
    pub fn read(&mut self, file: Ino, offset: u64, room: usize) -> Result<Vec<u8>> {
        let info = self.file(file)?;
        // Behind the last block number there is no data, whatever size the disk has.
        let end = info.size.min(self.ext4.statfs().block_size << 32);
        let left = end.saturating_sub(offset).min(room as u64);
        let mut bytes = vec![0; left as usize];
        if left > 0 {
            let read = self.ext4.read_inode(info.number, offset, &mut bytes);
            bytes.truncate(read.map_err(error)?);
        }
        Ok(bytes)
    }

    /// Writes at an offset, or for `None` at the end. Returns how many bytes, and the offset.
    pub fn write(&mut self, file: Ino, offset: Option<u64>, bytes: &[u8]) -> Result<(u32, u64)> {
        let info = self.file(file)?;
        let offset = offset.unwrap_or(info.size);
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > MAX_SIZE) {
            return Err(Error::Invalid);
        }
        if bytes.is_empty() {
            return Ok((0, offset));
        }
        let mut bytes = bytes;
        if self.opened(file)?.unlinked {
            // Such a file could not be freed.
            if end.is_some_and(|end| end > MOST_NAMELESS) {
                return Err(Error::Limit);
            }
            let most = self.most_without_name(&info, offset, bytes.len())?;
            bytes = &bytes[..most];
        }
        // Overwriting takes no room, but which bytes overwrite is not known before.
        self.check_room(bytes.len() as u64)?;
        self.opened(file)?.dirty = true;
        self.dirty = true;
        let written = self.ext4.write_inode(info.number, offset, bytes);
        written.map_err(error)?;
        Ok((bytes.len() as u32, offset))
    }

    /// Cuts or lengthens a file.
    pub fn truncate(&mut self, file: Ino, size: u64) -> Result<()> {
        let info = self.file(file)?;
        if size > MAX_SIZE {
            return Err(Error::Invalid);
        }
        if self.opened(file)?.unlinked {
            // Cut in one piece the file might no longer be among the orphans that a mount frees, and could not be freed
            // here.
            let mut info = info;
            while info.size > size {
                let next = self.step(&info, Some(size))?.unwrap_or(size);
                self.cut(info.number, next)?;
                info = self.info(info.number)?;
            }
        }
        self.cut(info.number, size)
    }

    /// Entries from the cookie on, and the next cookie, which is a place in the directory: whoever else reads it, and
    /// whatever is removed meanwhile, entries that stay are read once.
    pub fn read_dir(&mut self, file: Ino, cookie: u64) -> Result<(Vec<Entry>, u64)> {
        let open = self.opened(file)?;
        let (inode, alike) = (open.inode, open.alike.take());
        let is_indexed = self.info(inode)?.flags.bits() & INDEXED != 0;
        let mut next = match alike {
            Some(alike) if cookie_of(alike) == cookie => alike,
            _ => cursor_of(cookie, is_indexed),
        };
        let mut entries = Vec::new();
        // The last place that a cookie can name, and the number of entries before it.
        let mut between = None;
        let rounds = core::iter::repeat_n(PASSED_OVER, PASSES);
        for wanted in core::iter::once(MAX_ENTRIES).chain(rounds) {
            let read = self.ext4.read_directory(inode, next, wanted);
            let read = read.map_err(error)?;
            if read.is_empty() {
                return Ok((entries, cookie_of(next)));
            }
            for entry in read {
                next = entry.next_cursor;
                // A name that is not UTF-8 cannot be in a request, and is skipped.
                if let Ok(name) = String::from_utf8(entry.name) {
                    match self.info(entry.inode) {
                        Ok(info) => entries.push(Entry {
                            ino: self.number(&info),
                            mode: u32::from(info.mode) & mode::TYPE,
                            name,
                        }),
                        // The entry is invalid, as on a damaged disk: the others are read all the same.
                        Err(Error::NotFound | Error::BadFormat | Error::Invalid) => {}
                        Err(error) => return Err(error),
                    }
                }
                if !matches!(next, DirectoryCursor::HTree { collision, .. } if collision > 0) {
                    between = Some((entries.len(), next));
                }
                if entries.len() == MAX_ENTRIES {
                    break;
                }
            }
            if !entries.is_empty() {
                break;
            }
        }
        match between {
            // An answer without entries would mean the end of the directory.
            _ if entries.is_empty() => return Err(Error::BadFormat),
            Some((count, place)) if count > 0 => {
                entries.truncate(count);
                next = place;
            }
            _ => self.opened(file)?.alike = Some(next),
        }
        Ok((entries, cookie_of(next)))
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, path: &str, bits: u32) -> Result<()> {
        let place = self.free_place(path, true)?;
        let name = FileName::new(place.name.as_bytes()).map_err(error)?;
        let bits = permissions(bits)?;
        let made = self.ext4.create_directory(MAKER, place.parent, name, bits);
        self.clear_attributes(made.map_err(error)?.number)?;
        self.sync()
    }

    /// Removes a name of something that is not a directory.
    pub fn unlink(&mut self, path: &str) -> Result<()> {
        let found = self.find(path, Last::Itself)?;
        let info = found.inode.ok_or(Error::NotFound)?;
        if info.is_directory() {
            return Err(Error::IsDirectory);
        }
        if found.directory {
            return Err(Error::NotDirectory);
        }
        self.check_loss(&info, false)?;
        let name = FileName::new(found.name.as_bytes()).map_err(error)?;
        let outcome = self.ext4.unlink(found.parent, name).map_err(error)?;
        match outcome.requires_reap() {
            true => self.lost(outcome.inode),
            false => self.sync(),
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, path: &str) -> Result<()> {
        let found = self.find(path, Last::Itself)?;
        let info = found.inode.ok_or(Error::NotFound)?;
        if !info.is_directory() {
            return Err(Error::NotDirectory);
        }
        if found.name.is_empty() {
            // The root of the disk cannot be removed; nor can a directory by a path that does not end in its name.
            let names = path.trim_end_matches('/');
            return Err(if names.ends_with("/.") {
                Error::Invalid
            } else if names.ends_with("/..") {
                Error::NotEmpty
            } else {
                Error::Denied
            });
        }
        self.check_loss(&info, false)?;
        let name = FileName::new(found.name.as_bytes()).map_err(error)?;
        let outcome = self.ext4.remove_empty_directory(found.parent, name);
        let outcome = outcome.map_err(error)?;
        match outcome.requires_reap() {
            true => self.lost(outcome.inode),
            false => self.sync(),
        }
    }

    /// Renames.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let old = self.find(from, Last::Itself)?;
        let new = self.find(to, Last::Itself)?;
        let info = old.inode.ok_or(Error::NotFound)?;
        if old.name.is_empty() || new.name.is_empty() {
            return Err(Error::Denied);
        }
        if !info.is_directory() && (old.directory || new.directory) {
            return Err(Error::NotDirectory);
        }
        if new.inode.is_some_and(|other| other.number == info.number) {
            return Ok(());
        }
        let below = format!("{}/", old.path);
        if info.is_directory() && new.path.starts_with(&below) {
            return Err(Error::Invalid);
        }
        match new.inode {
            Some(other) if other.is_directory() && !info.is_directory() => {
                return Err(Error::IsDirectory)
            }
            Some(other) if info.is_directory() && !other.is_directory() => {
                return Err(Error::NotDirectory)
            }
            _ => {}
        }
        if let Some(replaced) = &new.inode {
            self.check_loss(replaced, true)?;
        }
        self.check_room(0)?;
        let old_name = FileName::new(old.name.as_bytes()).map_err(error)?;
        let new_name = FileName::new(new.name.as_bytes()).map_err(error)?;
        let (parent, options) = (new.parent, RenameOptions::REPLACE);
        let follows = Renamed {
            from: &old.path,
            to: &new.path,
        };
        let open = self.open.values().map(|open| &open.path);
        let _room = hold(follows.room(open))?;
        let outcome = self
            .ext4
            .rename(old.parent, old_name, parent, new_name, options);
        let replaced = outcome.map_err(error)?.replaced;
        let open = self.open.values_mut();
        open.for_each(|open| follows.follow(&mut open.path));
        match replaced.filter(|outcome| outcome.requires_reap()) {
            Some(outcome) => self.lost(outcome.inode),
            None => self.sync(),
        }
    }

    /// Gives a file another name.
    pub fn link(&mut self, from: &str, to: &str) -> Result<()> {
        let info = self.there(from, false)?;
        if info.is_directory() {
            return Err(Error::Denied);
        }
        let place = self.free_place(to, false)?;
        let name = FileName::new(place.name.as_bytes()).map_err(error)?;
        let linked = self.ext4.hard_link(info.number, place.parent, name);
        linked.map_err(error)?;
        self.sync()
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() >= MAX_PATH {
            return Err(Error::NameTooLong);
        }
        let place = self.free_place(path, false)?;
        let name = FileName::new(place.name.as_bytes()).map_err(error)?;
        let target = target.as_bytes();
        let made = self.ext4.create_symlink(MAKER, place.parent, name, target);
        self.clear_attributes(made.map_err(error)?.number)?;
        self.sync()
    }

    /// The target of a symbolic link.
    pub fn readlink(&mut self, path: &str) -> Result<String> {
        let info = self.there(path, false)?;
        match info.file_type() {
            DirectoryEntryType::Symlink => self.target(&info),
            _ => Err(Error::Invalid),
        }
    }

    /// The path at which an open file is now.
    pub fn path_of(&mut self, file: Ino) -> Result<String> {
        let open = self.opened(file)?;
        let (inode, path) = (open.inode, open.path.clone());
        if path.is_empty() {
            return Err(Error::NameTooLong);
        }
        let info = self.there(&path, false)?;
        (info.number == inode)
            .then_some(path)
            .ok_or(Error::NotFound)
    }

    fn update(&mut self, file: Ino, update: InodeMetadataUpdate) -> Result<()> {
        let open = self.opened(file)?;
        open.dirty = true;
        let inode = open.inode;
        self.dirty = true;
        let updated = self.ext4.update_inode_metadata(inode, update);
        updated.map(drop).map_err(error)
    }

    /// The lengths of the paths of open files.
    #[cfg(test)]
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.open.values().map(|open| open.path.len()).collect()
    }

    /// Changes the permission bits.
    pub fn chmod(&mut self, file: Ino, bits: u32) -> Result<()> {
        let update = InodeMetadataUpdate {
            permissions: Some(permissions(bits)?),
            ..InodeMetadataUpdate::default()
        };
        self.update(file, update)
    }

    /// Changes the owner.
    pub fn chown(&mut self, file: Ino, uid: u32, gid: u32) -> Result<()> {
        let inode = self.opened(file)?.inode;
        let info = self.info(inode)?;
        let or = |new: u32, old| if new == u32::MAX { old } else { new };
        let update = InodeMetadataUpdate {
            owner: Some((or(uid, info.uid), or(gid, info.gid))),
            ..InodeMetadataUpdate::default()
        };
        self.update(file, update)
    }

    /// Changes the times.
    pub fn utimens(&mut self, file: Ino, atime_ns: u64, mtime_ns: u64) -> Result<()> {
        let update = InodeMetadataUpdate {
            atime: Some(timestamp(atime_ns)),
            mtime: Some(timestamp(mtime_ns)),
            ..InodeMetadataUpdate::default()
        };
        self.update(file, update)
    }

    /// Bytes in use, and inodes.
    #[must_use]
    pub fn usage(&self) -> (u64, u64) {
        let stats = self.ext4.statfs();
        let blocks = stats.total_blocks.saturating_sub(stats.free_blocks);
        let inodes = stats.total_inodes.saturating_sub(stats.free_inodes);
        (blocks.saturating_mul(stats.block_size), u64::from(inodes))
    }

    /// How many bytes and inodes there can be.
    #[must_use]
    pub fn most(&self) -> (u64, u64) {
        let stats = self.ext4.statfs();
        let bytes = stats.total_blocks.saturating_mul(stats.block_size);
        (bytes, u64::from(stats.total_inodes))
    }
}

/// The place of a cookie. If the directory had no index then and has one now, reading begins anew: entries may come
/// twice, but none is lost.
fn cursor_of(cookie: u64, is_indexed: bool) -> DirectoryCursor {
    match (cookie, is_indexed) {
        (END, true) => DirectoryCursor::End,
        (_, true) if cookie & HASHED != 0 => DirectoryCursor::HTree {
            major: (cookie >> 31) as u32 & !1,
            minor: cookie as u32,
            collision: 0,
        },
        (1.., false) if cookie & HASHED == 0 => DirectoryCursor::Linear { offset: cookie },
        _ => DirectoryCursor::Start,
    }
}

/// A place as a cookie. The lowest bit is not part of a hash, and names of the same hash have the same place.
fn cookie_of(cursor: DirectoryCursor) -> u64 {
    match cursor {
        DirectoryCursor::Start => 0,
        DirectoryCursor::Linear { offset } => offset,
        DirectoryCursor::HTree { major, minor, .. } => {
            HASHED | u64::from(major >> 1) << 32 | u64::from(minor)
        }
        DirectoryCursor::End => END,
    }
}

/// A time of the interface, in the form of the disk.
#[must_use]
pub fn timestamp(nanoseconds: u64) -> Ext4Timestamp {
    let seconds = i64::try_from(nanoseconds / NANOSECONDS).unwrap_or(0);
    Ext4Timestamp::new(seconds, (nanoseconds % NANOSECONDS) as u32)
}

fn permissions(bits: u32) -> Result<FilePermissions> {
    FilePermissions::new((bits & 0o7777) as u16).map_err(error)
}

/// The components of a path that leads to the disk, the first one last.
fn inside(path: &str) -> Option<Vec<String>> {
    let words = on_disk(path)?;
    Some(words.into_iter().rev().map(ToOwned::to_owned).collect())
}

/// The components of a path, the first one last.
fn split(path: &str) -> Vec<String> {
    let words = path.rsplit('/');
    let words = words.filter(|word| !word.is_empty() && *word != ".");
    words.map(ToOwned::to_owned).collect()
}

fn found(
    at: &[(InodeNumber, String)],
    (parent, name): (InodeNumber, String),
    inode: Option<InodeInfo>,
    directory: bool,
) -> Found {
    let mut path = MOUNT.to_owned();
    for word in at.iter().map(|(_, word)| word).chain([&name]) {
        path.push('/');
        path.push_str(word);
    }
    Found {
        parent,
        name,
        directory,
        inode,
        path,
    }
}
