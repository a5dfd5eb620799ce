//! Checks of the structures on a disk, before the library uses them.
//!
//! `rsext4` follows a tree of extents wherever it leads, and allocates as much memory as an inode's sizes ask for: a
//! malicious disk could make it loop for ever, or take all memory. So this module first reads the same structures
//! itself, with bounds:
//!
//! * [`Check::new`], before a mount: the superblock's geometry, the tables of inodes, the journal's inode, and the log
//!   that is to be replayed; again after the replay, which may have changed all of it;
//! * [`Check::begin`]: the root, and the orphaned inodes that a mount frees;
//! * [`Check::inode`]: each other inode before the library uses the blocks that it maps.
//!
//! **Everything is read once.** An inode that was found valid stays valid: until this server ends, only the library
//! writes to the disk, and it keeps a valid inode valid. It is also the only time at which the disk can be read for
//! this: later the current state of an inode may be in the journal or in memory. For an inode that was not checked yet
//! it is on the disk, since the library has not changed it.
//!
//! **Every block has one owner.** The blocks that an inode maps are marked, a bit for each; another extent, or another
//! inode, with the same block is refused, and so is one with a block that is free according to the disk, or that the
//! library has written to meanwhile: such a block belongs to another file. This bounds each walk by the size of the
//! disk, ends cycles, and keeps a client that may write to one file from writing to the tree of another one.

use crate::bits::Bits;
use crate::tap::Tap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use proto::Error;
use rsext4::{BlockIo, InodeNumber, SectorId};
use rt::heap::{want, Hold};

/// Most groups of blocks: those of 1 TB in blocks of 4 KB. The library copies all their descriptors for each change.
const MOST_GROUPS: u64 = 8192;
/// Fewest blocks of a group: the least that `mke2fs` accepts. Smaller groups would be many on a small disk.
const LEAST_GROUP: u64 = 256;
/// Most extents of a file. To cut it the library keeps all of them in memory, some 64 bytes each.
pub(crate) const MOST_EXTENTS: u64 = 1 << 18;
/// Most levels of a tree of extents below its root.
const MOST_DEPTH: u16 = 5;
/// Most bytes of a directory, some million names. To find a name the library keeps the place of each of its blocks.
const MOST_DIRECTORY: u64 = 64 << 20;
/// Most blocks of a directory whose names have the same hash: the library keeps the names of all of them in memory.
const MOST_ALIKE: u32 = 16;
/// Most blocks of a journal, the size that `mke2fs` gives the largest disks.
const MOST_JOURNAL: u64 = 1 << 18;
/// Most blocks that a log revokes (excludes from the replay).
const MOST_REVOKED: u64 = 1 << 18;
/// Most orphaned inodes that a mount frees. For each the library goes through all of them, several times.
const MOST_ORPHANS: usize = 256;
/// Bytes of memory that the library takes for each block of the journal, for each that a log revokes, and for each
/// group.
const ROOM_JOURNAL: u64 = 160;
const ROOM_REVOKED: u64 = 64;
const ROOM_GROUP: u64 = 1024;
/// Bytes of memory that the library takes for each block of a file that it frees.
pub(crate) const ROOM_BLOCK: u64 = 48;

/// The magic number of a block with extended attributes, and the memory for a known one.
const ATTRIBUTES: u32 = 0xea02_0000;
const ROOM_ATTRIBUTES: u64 = 64;
/// The root directory, and the inode of the journal.
const ROOT: u32 = 2;
const JOURNAL: u32 = 8;
/// Inodes before this one are reserved and no files.
const FIRST_INODE: u32 = 11;

/// Offset and size of the superblock.
const SUPERBLOCK: u64 = 1024;
const MAGIC: u16 = 0xef53;
const HAS_JOURNAL: u32 = 0x4;
const HUGE_FILES: u32 = 0x8;
const RECOVER: u32 = 0x4;
const TREES: u32 = 0x40;
const WIDE: u32 = 0x80;
/// The flag of a group of which no file has a block.
const UNUSED: u16 = 0x2;
/// Features that change the layout, as far as the library supports them: file types, recovery, extents, 64 bits,
/// protection against two mounts, flexible groups, a seed of checksums.
const KNOWN: u32 = 0x2 | RECOVER | TREES | WIDE | 0x100 | 0x200 | 0x2000;

const TYPE: u16 = 0xf000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const LINK: u16 = 0xa000;
/// Devices, FIFOs and sockets.
const SPECIAL: [u16; 4] = [0x1000, 0x2000, 0x6000, 0xc000];
const EXTENTS: u32 = 0x8_0000;
const INDEXED: u32 = 0x1000;
const HUGE: u32 = 0x4_0000;
/// Flags that are not supported: encrypted, a value of an attribute, contents in the inode.
const FOREIGN: u32 = 0x800 | 0x20_0000 | 0x1000_0000;
/// Bytes of a symbolic link whose target is in the inode.
const SHORT_LINK: u64 = 60;

type Result<T> = core::result::Result<T, Error>;

fn le16(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok());
    word.map_or(0, u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// Numbers of a journal are big-endian.
fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

/// A number from its two halves.
fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Refuses a disk that violates a condition.
fn must(is: bool) -> Result<()> {
    is.then_some(()).ok_or(Error::BadFormat)
}

/// The blocks that a tree of extents maps.
#[derive(Default)]
struct Mapped {
    /// Its own blocks, and those that it maps.
    owned: Bits,
    extents: u64,
    /// Blocks with contents.
    blocks: u64,
    /// The places of these in the order of the file; only for directories and the journal.
    places: Option<Vec<u64>>,
    /// The end of the last extent, in blocks of the file.
    end: u64,
}

/// The layout of a group of blocks.
struct Group {
    /// The block bitmap, if any block is in use except those of the file system itself.
    map: Option<u64>,
    /// The inode bitmap.
    inode_map: u64,
    inodes: u64,
}

/// Through what an inode is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Root,
    /// A name in this directory.
    Child(u32),
    /// The list of orphans: it has no name any more.
    Orphan,
    Journal,
}

/// The checked state of a disk.
pub struct Check<D> {
    disk: Tap<D>,
    /// Bytes of a block, and blocks of the disk.
    block: u64,
    blocks: u64,
    inodes: u32,
    inodes_per_group: u32,
    inode_size: u64,
    /// Whether files may count their blocks with 48 bits.
    huge: bool,
    /// The first block of the first group, and the blocks of each group.
    first: u64,
    per_group: u64,
    groups: Vec<Group>,
    last_orphan: u32,
    /// The first sector of the journal, if a log is to be replayed.
    log: Option<u64>,
    /// Bytes of memory that the library takes for the mount.
    room: u64,
    /// Inodes that were checked: valid ones, and others.
    right: Bits,
    wrong: Bits,
    owned: Bits,
    /// Blocks with extended attributes, which inodes can share: their reference count, and how many of these inodes
    /// were checked.
    attributes: BTreeMap<u64, (u32, u32)>,
    /// The last block with inodes, and the last map of blocks.
    last_inodes: Kept,
    last_map: Kept,
}

/// A block that was read.
#[derive(Default)]
struct Kept {
    place: u64,
    /// The count of writes at that time.
    writes: u64,
    block: Vec<u8>,
}

impl<D: BlockIo> Check<D> {
    /// Checks the structures that a mount reads first.
    pub(crate) fn new(mut disk: Tap<D>) -> Result<Self> {
        let sector = u64::from(disk.geometry().logical_block_size);
        must(sector.is_power_of_two() && sector <= SUPERBLOCK)?;
        let mut superblock = vec![0; SUPERBLOCK as usize];
        let (first, count) = (SectorId::new(SUPERBLOCK / sector), SUPERBLOCK / sector);
        must(disk.geometry().block_count >= 2 * count)?;
        let read = disk.read(&mut superblock, first, count as u32);
        read.map_err(|_| Error::Broken)?;
        let s = |at| le32(&superblock, at);
        must(le16(&superblock, 56) == MAGIC && s(76) >= 1 && s(24) <= 2)?;
        let incompatible = s(96);
        if incompatible & !KNOWN != 0 || incompatible & TREES == 0 {
            return Err(Error::Unsupported);
        }
        let block = 1024 << s(24);
        let mut check = Check {
            block,
            blocks: join(s(4), s(336)),
            inodes: s(0),
            inodes_per_group: s(40),
            inode_size: u64::from(le16(&superblock, 88)),
            huge: s(100) & HUGE_FILES != 0,
            first: u64::from(s(20)),
            per_group: u64::from(s(32)),
            groups: Vec::new(),
            last_orphan: s(232),
            log: None,
            room: 0,
            right: Bits::default(),
            wrong: Bits::default(),
            owned: Bits::default(),
            attributes: BTreeMap::new(),
            last_inodes: Kept::default(),
            last_map: Kept::default(),
            disk,
        };
        check.disk.count_in(block / sector);
        let whole = check.disk.geometry().block_count / (block / sector);
        let first = check.first;
        must(first == u64::from(block == 1024) && check.blocks <= whole && first < check.blocks)?;
        must((LEAST_GROUP..=block * 8).contains(&check.per_group))?;
        let groups = (check.blocks - first).div_ceil(check.per_group);
        must(groups <= MOST_GROUPS)?;
        must((1..=block as u32 * 8).contains(&check.inodes_per_group))?;
        must(u64::from(check.inodes) == groups * u64::from(check.inodes_per_group))?;
        must(check.inode_size.is_power_of_two() && (128..=block).contains(&check.inode_size))?;
        must((FIRST_INODE..check.inodes).contains(&s(84)))?;
        let wide = incompatible & WIDE != 0;
        let size = if wide {
            u64::from(le16(&superblock, 254))
        } else {
            32
        };
        must(!wide || size.is_power_of_two() && (64..=block.min(1024)).contains(&size))?;
        check.room = groups * ROOM_GROUP;
        check.find_groups(first + 1, groups, size)?;
        check.look_at_maps(first + 1 + (groups * size).div_ceil(block))?;
        if s(92) & HAS_JOURNAL != 0 {
            must(s(224) == JOURNAL && s(228) == 0)?;
            check.look_at_journal(incompatible & RECOVER != 0)?;
        }
        Ok(check)
    }

    fn find_groups(&mut self, first: u64, groups: u64, size: u64) -> Result<()> {
        let length = self.length();
        let in_block = self.block / size;
        let mut block = Vec::new();
        for group in 0..groups {
            if group % in_block == 0 {
                self.read(first + group / in_block, &mut block)?;
            }
            let at = (group % in_block * size) as usize;
            let half = |n: usize| if size >= 64 { le32(&block, at + n) } else { 0 };
            let map = join(le32(&block, at), half(32));
            let inode_map = join(le32(&block, at + 4), half(36));
            let inodes = join(le32(&block, at + 8), half(40));
            must(
                map.max(inode_map) < self.blocks
                    && inodes
                        .checked_add(length)
                        .is_some_and(|end| end <= self.blocks),
            )?;
            let is_used = le16(&block, at + 18) & UNUSED == 0;
            self.groups.push(Group {
                map: is_used.then_some(map),
                inode_map,
                inodes,
            });
        }
        Ok(())
    }

    /// Checks that the blocks of the file system itself are in use in the bitmaps: otherwise a file could get one, and
    /// its owner could overwrite checked structures. `end`: the end of the superblock and the descriptors.
    fn look_at_maps(&mut self, end: u64) -> Result<()> {
        let length = self.length();
        must(end <= self.blocks)?;
        let mut places = vec![(self.first, end - self.first)];
        for group in &self.groups {
            places.extend([(group.inodes, length), (group.inode_map, 1)]);
            places.extend(group.map.map(|map| (map, 1)));
        }
        for (place, count) in places {
            let in_use = self.in_use(place, count, true)?;
            must(in_use)?;
            // No inode may have them, not even for attributes.
            self.owned.insert(place, count)?;
        }
        Ok(())
    }

    /// How many blocks the inodes of a group take.
    fn length(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_size).div_ceil(self.block)
    }

    /// Memory that a mount takes.
    pub(crate) fn room(&self) -> Result<Hold> {
        Hold::new(self.room)
    }

    /// The first sector of the journal, if a log is to be replayed.
    pub(crate) fn log(&self) -> Option<u64> {
        self.log
    }

    fn read(&mut self, block: u64, into: &mut Vec<u8>) -> Result<()> {
        must(block < self.blocks)?;
        into.resize(self.block as usize, 0);
        let sectors = self.block / u64::from(self.disk.geometry().logical_block_size);
        let first = SectorId::new(block * sectors);
        let read = self.disk.read(into, first, sectors as u32);
        read.map_err(|_| Error::Broken)
    }

    /// An inode as it is on the disk.
    fn raw(&mut self, number: u32) -> Result<Vec<u8>> {
        must((1..=self.inodes).contains(&number))?;
        let (group, index) = (
            (number - 1) / self.inodes_per_group,
            (number - 1) % self.inodes_per_group,
        );
        let group = self.groups.get(group as usize).ok_or(Error::BadFormat)?;
        let at = u64::from(index) * self.inode_size;
        let place = group.inodes + at / self.block;
        let mut kept = core::mem::take(&mut self.last_inodes);
        self.keep(place, &mut kept)?;
        let at = (at % self.block) as usize;
        let raw = kept.block.get(at..at + 128).map(<[u8]>::to_vec);
        self.last_inodes = kept;
        raw.ok_or(Error::BadFormat)
    }

    /// Reads a block into `kept`, unless it is there and nothing was written since.
    fn keep(&mut self, place: u64, kept: &mut Kept) -> Result<()> {
        let writes = self.disk.writes();
        if (kept.place, kept.writes) != (place, writes) || kept.block.is_empty() {
            kept.place = 0;
            self.read(place, &mut kept.block)?;
            (kept.place, kept.writes) = (place, writes);
        }
        Ok(())
    }

    /// Whether these blocks are in use according to the bitmaps; `own`: by the file system itself, which has some in
    /// each group.
    fn in_use(&mut self, place: u64, count: u64, own: bool) -> Result<bool> {
        let end = place + count;
        let mut at = place;
        while at < end {
            let group = at.checked_sub(self.first).ok_or(Error::BadFormat)? / self.per_group;
            let first = self.first + group * self.per_group;
            let next = end.min(first + self.per_group);
            let map = self.groups.get(group as usize).and_then(|group| group.map);
            let Some(map) = map else {
                if own {
                    at = next;
                    continue;
                }
                return Ok(false);
            };
            let mut kept = core::mem::take(&mut self.last_map);
            self.keep(map, &mut kept)?;
            let used = |n: u64| kept.block[(n / 8) as usize] >> (n % 8) & 1 != 0;
            let all = (at - first..next - first).all(used);
            self.last_map = kept;
            if !all {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Checks the root, and the orphans that a mount frees: each of these inodes points to the next one.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.look(ROOT, As::Root)?;
        let mut next = self.last_orphan;
        let mut room = 0;
        for _ in 0..MOST_ORPHANS {
            if next == 0 {
                self.room += room;
                return Ok(());
            }
            must(next >= FIRST_INODE)?;
            room = room.max(ROOM_BLOCK * self.look(next, As::Orphan)?);
            next = le32(&self.raw(next)?, 20);
        }
        Err(Error::BadFormat)
    }

    /// Checks this inode, which has a name in that directory. Once valid, it stays so: see above.
    pub(crate) fn inode(&mut self, parent: InodeNumber, inode: InodeNumber) -> Result<()> {
        let number = inode.raw();
        if self.right.has(u64::from(number)) {
            return Ok(());
        }
        must(number >= FIRST_INODE && !self.wrong.has(u64::from(number)))?;
        self.look(number, As::Child(parent.raw())).map(drop)
    }

    /// Notes that the library made this inode, so that it is valid.
    pub(crate) fn made(&mut self, inode: InodeNumber) -> Result<()> {
        self.right.insert(u64::from(inode.raw()), 1)
    }

    /// Checks an inode, and returns how many blocks it has.
    fn look(&mut self, number: u32, who: As) -> Result<u64> {
        // A checked inode owns its blocks from then on: recording that must not fail for lack of memory.
        self.right.make_room(u64::from(number))?;
        self.wrong.make_room(u64::from(number))?;
        let looked = self.look_at(number, who);
        match looked {
            Ok(_) => self.right.insert(u64::from(number), 1)?,
            Err(Error::BadFormat) => self.wrong.insert(u64::from(number), 1)?,
            // If the disk could not be read the inode stays unchecked.
            Err(_) => {}
        }
        looked.map(|mapped| mapped.blocks)
    }

    fn look_at(&mut self, number: u32, who: As) -> Result<Mapped> {
        let raw = self.raw(number)?;
        let (kind, flags) = (le16(&raw, 0) & TYPE, le32(&raw, 32));
        let size = join(le32(&raw, 4), le32(&raw, 108));
        let high = if self.huge { le16(&raw, 116) } else { 0 };
        let sectors = join(le32(&raw, 28), u32::from(high));
        must(flags & FOREIGN == 0)?;
        must(who == As::Orphan || le16(&raw, 26) > 0)?;
        let mut mapped = Mapped {
            places: (kind == DIRECTORY || who == As::Journal).then(Vec::new),
            ..Mapped::default()
        };
        self.look_at_attributes(&raw, &mut mapped)?;
        if let As::Root | As::Journal = who {
            must(kind == if who == As::Root { DIRECTORY } else { REGULAR })?;
        }
        if SPECIAL.contains(&kind) {
            // In place of a tree these have the number of a device.
            must(flags & EXTENTS == 0 && raw[48..100].iter().all(|byte| *byte == 0))?;
            self.owned.join(core::mem::take(&mut mapped.owned))?;
            return Ok(mapped);
        }
        must([REGULAR, DIRECTORY, LINK].contains(&kind))?;
        // The library checks only the lower half of a link's size in one place, and allocates the whole in another.
        let most = match kind {
            REGULAR => self.block * u64::from(u32::MAX),
            DIRECTORY => MOST_DIRECTORY,
            _ => self.block,
        };
        must(size <= most)?;
        if flags & EXTENTS == 0 {
            let is_short = kind == LINK && size <= SHORT_LINK && sectors == 0;
            // All others have lists of blocks, as in ext2, which are not supported.
            must(is_short)?;
            self.owned.join(core::mem::take(&mut mapped.owned))?;
            return Ok(mapped);
        }
        self.walk(&raw[40..100], None, (0, 1 << 32), &mut mapped)?;
        let needed = size.div_ceil(self.block);
        match kind {
            // Memory to free a file is reserved by the block count of the inode, which must cover its blocks.
            REGULAR => {
                let in_blocks = self.huge && flags & HUGE != 0;
                let unit = if in_blocks { self.block } else { 512 };
                must(mapped.blocks.checked_mul(self.block) <= sectors.checked_mul(unit))?;
            }
            // Linux may have freed some of its blocks.
            _ if who == As::Orphan => {}
            // The library goes through as many blocks as the size says, whether they are mapped or not.
            DIRECTORY => {
                must(size == needed * self.block)?;
                must(mapped.blocks == needed && mapped.end == needed)?;
            }
            _ => must(mapped.end <= needed)?,
        }
        if kind == DIRECTORY && who != As::Orphan {
            self.look_at_names(number, who, flags & INDEXED != 0, &mapped)?;
        }
        self.owned.join(core::mem::take(&mut mapped.owned))?;
        Ok(mapped)
    }

    /// Checks the block with the extended attributes of an inode, if it has one: only as many inodes may share it as
    /// its reference count says.
    fn look_at_attributes(&mut self, raw: &[u8], mapped: &mut Mapped) -> Result<()> {
        let place = join(le32(raw, 104), u32::from(le16(raw, 118)));
        if place == 0 {
            return Ok(());
        }
        if let Some((inodes, seen)) = self.attributes.get_mut(&place) {
            must(*seen < *inodes)?;
            *seen += 1;
            return Ok(());
        }
        self.claim(place, 1, mapped)?;
        let mut block = Vec::new();
        self.read(place, &mut block)?;
        let inodes = le32(&block, 4);
        must(le32(&block, 0) == ATTRIBUTES && le32(&block, 8) == 1 && inodes > 0)?;
        want(ROOM_ATTRIBUTES)?;
        self.attributes.insert(place, (inodes, 1));
        Ok(())
    }

    /// How many groups of blocks there are.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The group that has this block.
    pub(crate) fn group_of(&self, block: u64) -> u64 {
        block.saturating_sub(self.first) / self.per_group.max(1)
    }

    /// Walks a node of a tree of extents, and all below it. `depth`: the depth that it must have; `range`: the blocks
    /// of the file that it may map.
    fn walk(
        &mut self,
        node: &[u8],
        depth: Option<u16>,
        range: (u64, u64),
        mapped: &mut Mapped,
    ) -> Result<()> {
        const HEAD: usize = 12;
        const ENTRY: usize = 12;
        let (entries, most, level) = (le16(node, 2), le16(node, 4), le16(node, 6));
        must(le16(node, 0) == 0xf30a && entries <= most)?;
        must(usize::from(most) <= (node.len() - HEAD) / ENTRY && level <= MOST_DEPTH)?;
        must(depth.is_none_or(|depth| level == depth))?;
        // An empty node is useless, except as the root of an empty file.
        must(entries > 0 || depth.is_none() && level == 0)?;
        let entry = |n: usize| node.get(HEAD + n * ENTRY..).unwrap_or(&[]);
        let entries = usize::from(entries);
        let mut at = range.0;
        let mut below = Vec::new();
        for n in 0..entries {
            let e = entry(n);
            let first = u64::from(le32(e, 0));
            must(first >= at && first < range.1)?;
            if level == 0 {
                let length = le16(e, 4);
                let written = length <= 1 << 15;
                let length = u64::from(if written { length } else { length - (1 << 15) });
                must(length > 0 && first + length <= range.1)?;
                at = first + length;
                mapped.extents += 1;
                must(mapped.extents <= MOST_EXTENTS)?;
                let place = join(le32(e, 8), u32::from(le16(e, 6)));
                self.claim(place, length, mapped)?;
                if written {
                    mapped.blocks += length;
                    mapped.end = at;
                    if let Some(places) = &mut mapped.places {
                        must(places.len() as u64 == first && at <= MOST_JOURNAL)?;
                        want(length * 16)?;
                        places.extend(place..place + length);
                    }
                }
            } else {
                // An entry ends at the latest where the next one begins.
                let end = match n + 1 < entries {
                    true => u64::from(le32(entry(n + 1), 0)),
                    false => range.1,
                };
                must(end > first && end <= range.1)?;
                at = end;
                let place = join(le32(e, 4), u32::from(le16(e, 8)));
                self.claim(place, 1, mapped)?;
                self.read(place, &mut below)?;
                self.walk(&below, Some(level - 1), (first, end), mapped)?;
            }
        }
        Ok(())
    }

    /// Claims blocks for an inode: no checked inode may own them, the library may not have given them to a new one, and
    /// they must be in use, so that it never will.
    fn claim(&mut self, place: u64, count: u64, mapped: &mut Mapped) -> Result<()> {
        must(
            place > 0
                && place
                    .checked_add(count)
                    .is_some_and(|end| end <= self.blocks),
        )?;
        must(!self.owned.any(place, count) && !mapped.owned.any(place, count))?;
        must(!self.disk.wrote(place, count)?)?;
        let in_use = self.in_use(place, count, false)?;
        must(in_use)?;
        mapped.owned.insert(place, count)
    }

    /// Checks the first names of a directory (`.` and `..`, by which paths lead up), and its index.
    fn look_at_names(
        &mut self,
        number: u32,
        who: As,
        indexed: bool,
        mapped: &Mapped,
    ) -> Result<()> {
        let places = mapped.places.as_deref().unwrap_or(&[]);
        let first = *places.first().ok_or(Error::BadFormat)?;
        let mut root = Vec::new();
        self.read(first, &mut root)?;
        let parent = if let As::Child(parent) = who {
            parent
        } else {
            number
        };
        let above = le32(&root, 12);
        must(le32(&root, 0) == number && le16(&root, 4) == 12 && above == parent)?;
        must(le16(&root, 6) & 0xff == 1 && root[8] == b'.')?;
        must(le16(&root, 18) & 0xff == 2 && root[20..22] == *b"..")?;
        if !indexed {
            return Ok(());
        }
        // Each block occurs once in the index: the library continues from one to the next while their hashes say that
        // names with the same hash continue.
        let mut seen = BTreeSet::from([0]);
        let mut alike = 0;
        let levels = root[30];
        must(levels <= 1)?;
        let mut node = Vec::new();
        for (hash, block) in index(&root, 32)? {
            let place = *places.get(block as usize).ok_or(Error::BadFormat)?;
            must(seen.insert(block))?;
            let mut leaves = |hash| {
                alike = if hash & 1 != 0 { alike + 1 } else { 0 };
                must(alike <= MOST_ALIKE)
            };
            leaves(hash)?;
            if levels == 0 {
                continue;
            }
            self.read(place, &mut node)?;
            for (n, (hash, block)) in index(&node, 8)?.into_iter().enumerate() {
                must((block as usize) < places.len() && seen.insert(block))?;
                if n > 0 {
                    leaves(hash)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the journal, and the log in it if that is to be replayed.
    fn look_at_journal(&mut self, replayed: bool) -> Result<()> {
        let mapped = self.look_at(JOURNAL, As::Journal)?;
        let places = mapped.places.unwrap_or_default();
        self.room += places.len() as u64 * ROOM_JOURNAL;
        let place = *places.first().ok_or(Error::BadFormat)?;
        let size = le32(&self.raw(JOURNAL)?, 4);
        must(u64::from(size).div_ceil(self.block) <= places.len() as u64)?;
        let mut head = Vec::new();
        self.read(place, &mut head)?;
        let (most, first, start) = (be32(&head, 16), be32(&head, 20), be32(&head, 28));
        let ring = first..most;
        must(most as usize <= places.len() && first > 0 && !ring.is_empty())?;
        if !replayed || start == 0 {
            return Ok(());
        }
        must(ring.contains(&start))?;
        self.log = Some(place * (self.block / u64::from(self.disk.geometry().logical_block_size)));
        self.look_at_log(&places, &head)
    }

    /// Walks a log as a replay does. Its records must fit into the journal once; otherwise the log has a cycle.
    fn look_at_log(&mut self, places: &[u64], head: &[u8]) -> Result<()> {
        let (most, first) = (be32(head, 16), be32(head, 20));
        let ring = u64::from(most - first);
        let features = if be32(head, 4) == 3 {
            0
        } else {
            be32(head, 40)
        };
        let (mut sequence, mut at) = (be32(head, 24), u64::from(be32(head, 28)));
        let (mut taken, mut revoked) = (0, 0);
        let mut record = Vec::new();
        loop {
            let place = *places.get(at as usize).ok_or(Error::BadFormat)?;
            self.read(place, &mut record)?;
            if be32(&record, 0) != 0xc03b_3998 || be32(&record, 8) != sequence {
                break;
            }
            let blocks = match be32(&record, 4) {
                1 => match tags(&record, features) {
                    Some(blocks) => blocks,
                    None => break,
                },
                2 => {
                    sequence = sequence.wrapping_add(1);
                    0
                }
                5 => {
                    let number = if features & 2 != 0 { 8 } else { 4 };
                    revoked += u64::from(be32(&record, 12)).min(self.block) / number;
                    must(revoked <= MOST_REVOKED)?;
                    0
                }
                _ => break,
            };
            taken += 1 + blocks;
            must(taken <= ring)?;
            at += 1 + blocks;
            if at >= u64::from(most) {
                at -= ring;
            }
        }
        self.room += revoked * ROOM_REVOKED;
        Ok(())
    }
}

/// Entries of an index of names: hashes, and blocks of the directory.
fn index(node: &[u8], at: usize) -> Result<Vec<(u32, u32)>> {
    let count = usize::from(le16(node, at + 2));
    must(count > 0 && at + count * 8 <= node.len())?;
    let entry = |n: usize| {
        let hash = if n == 0 { 0 } else { le32(node, at + n * 8) };
        (hash, le32(node, at + n * 8 + 4) & 0x0fff_ffff)
    };
    Ok((0..count).map(entry).collect())
}

/// How many blocks follow a descriptor record of a log; `None` if the record is torn, and the log ends before it.
fn tags(record: &[u8], features: u32) -> Option<u64> {
    const SAME: u32 = 2;
    const LAST: u32 = 8;
    let has = |feature: u32| features & feature != 0;
    let (wide, second, third) = (has(2), has(8), has(16));
    let size = match third {
        true => 16,
        false => 8 + 4 * usize::from(wide) + 2 * usize::from(second),
    };
    // A checksum follows the tags.
    let end = record.len() - if second || third { 4 } else { 0 };
    let (mut at, mut count) = (12, 0);
    while at + size <= end {
        if record[at..end].iter().all(|byte| *byte == 0) {
            return None;
        }
        let flags = match third {
            true => be32(record, at + 4),
            false => be32(record, at + 4) & 0xffff,
        };
        count += 1;
        at += size + if flags & SAME == 0 { 16 } else { 0 };
        if flags & LAST != 0 {
            break;
        }
    }
    Some(count)
}
