//! The pages of an incremental image that are not in it: those of its parent, of the parent's parent, and so on.
//!
//! An image says only that a page is the same as in its parent ([`crate::meta::Same`]): the parent may have it, or
//! leave it to its own parent. [`Chain`] is the images from a parent on. Each is checked to be the one that its child
//! was written for, and to have the pages that are left to it. So a chain can supply exactly the pages that its files
//! have.
//!
//! [`Bytes`] hides where the bytes of an image come from.

use crate::file::{self, Bad, Header, Table, ENTRY_BYTES, HEADER_BYTES, MAX_RUN_BYTES};
use crate::meta::{self, Identity, Meta, Parent, Place, Run, Same, Segment};
use abi::PAGE_SIZE;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// Most images in a chain, so that the search for a page is bounded.
pub const MAX_IMAGES: usize = 128;

/// The bytes of an image.
pub trait Bytes {
    /// How many bytes there are.
    fn size(&self) -> u64;
    /// Fills `into` with the bytes from `offset` on; a sentence if that is impossible.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String>;
}

/// Checks the result of a read of `wanted` bytes of a file.
///
/// # Errors
/// A sentence, if not all of them came.
pub fn all_came(read: Result<usize, proto::Error>, wanted: usize) -> Result<(), String> {
    let length = read.map_err(|error| format!("cannot read it: {}", error.text()))?;
    match length == wanted {
        true => Ok(()),
        false => Err(file::Bad::Cut.to_string()),
    }
}

impl Bytes for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        let bytes = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let bytes = bytes.and_then(|bytes| bytes.get(..into.len()));
        into.copy_from_slice(bytes.ok_or_else(|| file::Bad::Cut.to_string())?);
        Ok(())
    }
}

/// An image except its pages.
pub struct Read {
    /// Its header.
    pub header: Header,
    /// Its description.
    pub meta: Meta,
    /// Where its runs are in the file, and their checksums.
    pub table: Table,
}

impl Read {
    /// The parts of it that are needed to find pages. Takes the runs out of the description.
    #[must_use]
    pub fn of_pages(header: &Header, meta: &mut Meta, table: Table) -> Self {
        let meta = Meta {
            processes: meta.processes.iter().map(meta::Process::known_by).collect(),
            objects: Vec::new(),
            runs: core::mem::take(&mut meta.runs),
            parent: meta.parent.clone(),
            same: core::mem::take(&mut meta.same),
            files: Vec::new(),
        };
        Read {
            header: *header,
            meta,
            table,
        }
    }
}

/// Reads an image except its pages. `room` gets how much memory the next part needs, and returns whether it is
/// available; `features` are those of the processor.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn read(
    bytes: &impl Bytes,
    features: [u64; 2],
    mut room: impl FnMut(u64) -> bool,
) -> Result<Read, String> {
    let words = |bad: Bad| bad.to_string();
    let mut ask = |bytes| match room(bytes) {
        true => Ok(()),
        false => Err(words(Bad::Memory)),
    };
    let size = bytes.size();
    let mut head = vec![0; size.min(HEADER_BYTES as u64) as usize];
    bytes.read(0, &mut head)?;
    let header = Header::decode(&head, size, features).map_err(words)?;
    ask(header.meta_bytes)?;
    let mut description = vec![0; header.meta_bytes as usize];
    bytes.read(HEADER_BYTES as u64, &mut description)?;
    let room = |bytes| ask(bytes).is_ok();
    let meta = file::decode_meta(&header, &description, room).map_err(words)?;
    drop(description);
    let runs = meta.runs.len() as u64;
    // A buffer for the pages of a run, and one for their bytes in the file.
    ask(runs * Table::READING + 2 * MAX_RUN_BYTES as u64)?;
    let mut table = vec![0; (ENTRY_BYTES * runs) as usize];
    bytes.read(header.table_at(&meta), &mut table)?;
    let table = Table::decode(&header, &meta, &table).map_err(words)?;
    Ok(Read {
        header,
        meta,
        table,
    })
}

/// Checks the padding between the description and the pages.
///
/// # Errors
/// A sentence, if it is anything but zeros, or cannot be read.
pub fn check_padding(bytes: &impl Bytes, header: &Header) -> Result<(), String> {
    let mut padding = vec![0; header.padding() as usize];
    bytes.read(header.pages_at() - header.padding(), &mut padding)?;
    file::check_padding(&padding).map_err(|bad| bad.to_string())
}

/// Reads the pages of the run with this number, and checks them. `packed` is a buffer for the bytes of a compressed
/// run.
///
/// # Errors
/// A sentence, if they cannot be read, or do not match their checksum.
pub fn read_run(
    bytes: &impl Bytes,
    (table, runs): (&Table, &[Run]),
    number: usize,
    packed: &mut Vec<u8>,
    pages: &mut Vec<u8>,
) -> Result<(), String> {
    let (Some(run), Some(stored)) = (runs.get(number), table.get(number)) else {
        return Err("no such pages".to_string());
    };
    let words = |bad: Bad| bad.to_string();
    pages.resize(run.bytes() as usize, 0);
    if !stored.is_packed(run) {
        bytes.read(stored.at, pages)?;
        return stored.check(run, pages).map_err(words);
    }
    packed.resize(stored.bytes as usize, 0);
    bytes.read(stored.at, packed)?;
    stored.check(run, packed).map_err(words)?;
    file::unpack(run, packed, pages).map_err(words)
}

/// An image of a chain.
pub struct Image<B> {
    bytes: B,
    header: Header,
    identity: Identity,
    /// Manager, number as a member, and name of each process.
    processes: Vec<(String, u32, String)>,
    runs: Vec<Run>,
    table: Table,
    parent: Option<Parent>,
    same: Vec<Same>,
    /// The run whose pages are in `pages`.
    loaded: Option<usize>,
    pages: Vec<u8>,
    /// The compressed bytes of a run, while it is decompressed.
    packed: Vec<u8>,
}

/// Where a page is according to one image.
enum Page {
    /// In this run, at this offset in bytes.
    Here(usize, usize),
    /// In its parent, at the same offset of this process.
    Parent(u32),
    /// Nowhere: it is zero.
    Zero,
}

impl<B: Bytes> Image<B> {
    /// Reads an image except its pages, as [`read`] does.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(
        bytes: B,
        features: [u64; 2],
        room: impl FnMut(u64) -> bool,
    ) -> Result<Self, String> {
        let all = read(&bytes, features, room)?;
        Ok(Image::of(bytes, all))
    }

    /// The image that has been read except its pages.
    pub fn of(
        bytes: B,
        Read {
            header,
            meta,
            table,
        }: Read,
    ) -> Self {
        let identity = header.identity(&table);
        let Meta {
            processes,
            runs,
            parent,
            same,
            ..
        } = meta;
        let name = |process: meta::Process| (process.manager, process.member, process.name);
        Image {
            bytes,
            header,
            identity,
            processes: processes.into_iter().map(name).collect(),
            runs,
            table,
            parent,
            same,
            loaded: None,
            pages: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// How much memory it takes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let names = self
            .processes
            .iter()
            .map(|(m, _, n)| m.len() + n.len() + 64);
        let lists = self.runs.len() * size_of::<Run>()
            + self.table.memory()
            + self.same.len() * size_of::<Same>();
        // The check that the parent has the pages left to it takes a list of its own.
        let left = self.same.len() * size_of::<Stretch>();
        (2 * lists + left + names.sum::<usize>() + 2 * MAX_RUN_BYTES + 4096) as u64
    }

    /// Its bytes.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Bytes of its own pages.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    /// How many bytes they take in the file: fewer, if they are compressed.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// What distinguishes it from other images.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The run that contains a place, or the first one behind it.
    fn run_from(&self, place: Place) -> usize {
        self.runs.partition_point(|run| {
            Place {
                offset: run.place.offset + run.bytes(),
                ..run.place
            } <= place
        })
    }

    /// As [`Image::run_from`], for the pages that are left to the parent.
    fn same_from(&self, place: Place) -> usize {
        self.same.partition_point(|same| {
            Place {
                offset: same.offset + same.bytes(),
                ..same.place()
            } <= place
        })
    }

    fn find(&self, place: Place) -> Page {
        let number = self.run_from(place);
        if let Some(run) = self.runs.get(number).filter(|run| run.place <= place) {
            return Page::Here(number, (place.offset - run.place.offset) as usize);
        }
        let same = self.same.get(self.same_from(place));
        match same.filter(|same| same.place() <= place) {
            Some(same) => Page::Parent(same.theirs),
            None => Page::Zero,
        }
    }

    /// The first page of a process from an offset on that the image neither has nor leaves to its parent. Adds the
    /// number of lookups to `steps`.
    fn missing(
        &self,
        (process, mut offset): (u32, u64),
        end: u64,
        steps: &mut usize,
    ) -> Option<u64> {
        while offset < end {
            *steps += 1;
            let place = memory(process, offset);
            let run = self.runs.get(self.run_from(place));
            let same = self.same.get(self.same_from(place));
            let here = run.filter(|run| run.place <= place);
            let theirs = same.filter(|same| same.place() <= place);
            offset = match (here, theirs) {
                (Some(run), _) => run.place.offset + run.bytes(),
                (None, Some(same)) => same.offset + same.bytes(),
                (None, None) => return Some(offset),
            };
        }
        None
    }

    /// Checks the parts that its description does not cover: the padding, and all pages against their checksums. `done`
    /// gets the number of bytes of each checked piece.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn check(&mut self, mut done: impl FnMut(u64)) -> Result<(), String> {
        check_padding(&self.bytes, &self.header)?;
        for number in 0..self.runs.len() {
            done(self.load(number)?.len() as u64);
        }
        Ok(())
    }

    /// The pages of a run, checked against their checksum.
    fn load(&mut self, number: usize) -> Result<&[u8], String> {
        if self.loaded != Some(number) {
            self.loaded = None;
            let lists = (&self.table, &self.runs[..]);
            let (packed, pages) = (&mut self.packed, &mut self.pages);
            read_run(&self.bytes, lists, number, packed, pages)?;
            self.loaded = Some(number);
        }
        Ok(&self.pages)
    }
}

fn memory(process: u32, offset: u64) -> Place {
    Place {
        process,
        segment: Segment::Memory,
        offset,
    }
}

/// An image and its parents; the image is first.
pub struct Chain<B> {
    images: Vec<Image<B>>,
}

impl<B: Bytes> Chain<B> {
    /// A chain that begins with `image`, the parent of an image that leaves these pages to it (none, if that image is
    /// still to be written).
    ///
    /// # Errors
    /// If it does not have these pages.
    pub fn new(image: Image<B>, left: &[Same]) -> Result<Self, String> {
        has_all(&image, left)?;
        let images = vec![image];
        Ok(Chain { images })
    }

    /// The chain that begins with `image`, the child of this chain's first one.
    #[must_use]
    pub fn led_by(mut self, image: Image<B>) -> Self {
        self.images.insert(0, image);
        self
    }

    /// How much memory it takes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.images.iter().map(Image::memory).sum()
    }

    /// The parent that is still missing. A parent is not needed if no page is left to it.
    #[must_use]
    pub fn wanted(&self) -> Option<&Parent> {
        let last = self.images.last()?;
        last.parent.as_ref().filter(|_| !last.same.is_empty())
    }

    /// Adds the missing image.
    ///
    /// # Errors
    /// If it is not that one, does not have the pages that are left to it, or there are too many.
    pub fn add(&mut self, image: Image<B>) -> Result<(), String> {
        let parent = self.wanted().ok_or("nothing is missing")?;
        let last = self.images.last().ok_or("nothing is missing")?;
        if image.identity != parent.identity {
            return Err("it is another image than the one that is meant".to_string());
        }
        if self.images.len() == MAX_IMAGES {
            return Err(format!("there are more than {MAX_IMAGES} images in a row"));
        }
        has_all(&image, &last.same)?;
        self.images.push(image);
        Ok(())
    }

    /// The images, from the first parent on.
    pub fn images(&self) -> impl Iterator<Item = &Image<B>> {
        self.images.iter()
    }

    /// The paths of the parents, each as it was when its child was written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let based = self.images.iter().filter(|image| !image.same.is_empty());
        based.filter_map(|image| Some(image.parent.as_ref()?.path.as_str()))
    }

    /// As [`Chain::images`], to check them.
    pub fn images_mut(&mut self) -> impl Iterator<Item = &mut Image<B>> {
        self.images.iter_mut()
    }

    /// Whether another image can be based on this one.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.images.len() < MAX_IMAGES
    }

    /// For each of these processes the one of the first image that is likely to share most pages with it; none is used
    /// twice.
    #[must_use]
    pub fn twins(&self, processes: &[meta::Process]) -> Vec<Option<u32>> {
        let theirs = self
            .images
            .first()
            .map_or(&[][..], |image| &image.processes);
        let mut taken = vec![false; theirs.len()];
        let is = |theirs: &(String, u32, String), process: &meta::Process| {
            theirs.0 == process.manager && theirs.2 == process.name
        };
        let mut twins = vec![None; processes.len()];
        // The process with the same number, if it has the same manager and name.
        for (number, process) in processes.iter().enumerate() {
            if theirs.get(number).is_some_and(|theirs| is(theirs, process)) {
                taken[number] = true;
                twins[number] = Some(number as u32);
            }
        }
        for (twin, process) in twins.iter_mut().zip(processes) {
            let mut others = theirs.iter().zip(&mut taken).enumerate();
            if twin.is_none() {
                let other = others.find(|(_, (theirs, taken))| !**taken && is(theirs, process));
                *twin = other.map(|(number, (_, taken))| {
                    *taken = true;
                    number as u32
                });
            }
        }
        twins
    }

    /// Reads a page of the memory of a process of the first image. Returns false if there is none, and so the page is
    /// zero.
    ///
    /// # Errors
    /// A sentence, if it cannot be read or does not match its checksum.
    pub fn page(&mut self, process: u32, offset: u64, into: &mut [u8]) -> Result<bool, String> {
        self.page_at(memory(process, offset), into)
    }

    /// As [`Chain::page`], for both segments of the process. Pages of control segments are always in the image itself.
    ///
    /// # Errors
    /// As those of [`Chain::page`].
    pub fn page_at(&mut self, mut place: Place, into: &mut [u8]) -> Result<bool, String> {
        for image in &mut self.images {
            match image.find(place) {
                Page::Here(run, at) => {
                    let pages = image.load(run)?;
                    let page = pages
                        .get(at..at + PAGE_SIZE as usize)
                        .ok_or("no such page")?;
                    into.copy_from_slice(page);
                    return Ok(true);
                }
                Page::Parent(theirs) => place.process = theirs,
                Page::Zero => return Ok(false),
            }
        }
        Err("an image is missing on which it is based".to_string())
    }
}

/// Checks that a parent has the pages that are left to it; a missing page would be zero, and zero pages are not left to
/// a parent. Returns how many lookups that took: one per run or stretch, even if the same page is left to it for many
/// processes.
fn has_all<B: Bytes>(parent: &Image<B>, left: &[Same]) -> Result<usize, String> {
    let left = left.iter();
    let left = left.map(|same| (memory(same.theirs, same.offset), same.bytes()));
    let mut steps = 0;
    for (place, bytes) in joined(left.collect()) {
        let from = (place.process, place.offset);
        if let Some(offset) = parent.missing(from, place.offset + bytes, &mut steps) {
            return Err(format!(
                "it does not have the pages at {offset:#x} that are left to it"
            ));
        }
    }
    Ok(steps)
}

/// Consecutive pages: the first place, and their bytes.
pub type Stretch = (Place, u64);

/// Sorts stretches by place, and joins those that touch or overlap.
pub(crate) fn joined(mut all: Vec<Stretch>) -> Vec<Stretch> {
    all.sort_unstable_by_key(|(place, _)| *place);
    all.dedup_by(|(place, bytes), (last, length)| {
        let touches = (last.process, last.segment) == (place.process, place.segment)
            && last.offset + *length >= place.offset;
        if touches {
            *length = (*length).max(place.offset + *bytes - last.offset);
        }
        touches
    });
    all
}

/// The paths at which the parent of the image at `child` may be, which was at `parent` when the image was written:
/// beside the image under the same name, or at its old path. If the images' directory was moved, the first is right.
#[must_use]
pub fn places(child: &str, parent: &str) -> [String; 2] {
    let directory = child.rfind('/').map_or("", |at| &child[..=at]);
    let name = parent.rfind('/').map_or(parent, |at| &parent[at + 1..]);
    [format!("{directory}{name}"), parent.to_string()]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::meta::tests::{child, sample};

    const FEATURES: [u64; 2] = [1, 1];

    /// An image of a description. Each byte of a page has the value that `fill` returns for run and page.
    pub(crate) fn image(meta: &Meta, fill: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        image_of(meta, fill, false)
    }

    fn image_of(meta: &Meta, fill: impl Fn(usize, usize) -> u8, compress: bool) -> Vec<u8> {
        let runs: Vec<Vec<u8>> = (meta.runs.iter().enumerate())
            .map(|(n, run)| {
                let page = |page| vec![fill(n, page); PAGE_SIZE as usize];
                (0..run.pages as usize).flat_map(page).collect()
            })
            .collect();
        let header = Header {
            total: 0,
            meta_bytes: 0,
            meta_sum: 0,
            features: FEATURES,
            clock: 77,
        };
        let description = postcard::to_allocvec(meta).expect("it can be encoded");
        file::assemble(&header, &description, &runs, compress)
    }

    pub(crate) fn open(bytes: &[u8]) -> Image<&[u8]> {
        Image::open(bytes, FEATURES, |_| true).expect("it is good")
    }

    /// The first image, which is compressed: process 0 has pages 0, 4 to 43, process 1 none.
    pub(crate) fn first() -> Vec<u8> {
        let mut meta = sample();
        let run = |offset, pages| Run {
            place: memory(0, offset),
            pages,
        };
        meta.runs = vec![
            run(0, 1),
            run(0x4000, 15),
            run(0x1_3000, 15),
            run(0x2_2000, 10),
        ];
        image_of(&meta, |run, page| (run * 16 + page + 1) as u8, true)
    }

    fn second(parent: Identity) -> Meta {
        let mut meta = child(parent);
        meta.same.pop();
        meta
    }

    fn page(chain: &mut Chain<&[u8]>, process: u32, offset: u64) -> Option<u8> {
        let mut bytes = [0xee; PAGE_SIZE as usize];
        let found = chain
            .page(process, offset, &mut bytes)
            .expect("it can be read");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        found.then_some(bytes[0])
    }

    #[test]
    fn pages_come_from_whoever_has_them() {
        let first = first();
        let second = second(open(&first).identity());
        let bytes = image(&second, |run, page| (100 + run * 16 + page) as u8);
        let mut chain = Chain::new(open(&bytes), &[]).expect("nothing is left to it");
        assert_eq!(chain.wanted(), second.parent.as_ref());
        chain.add(open(&first)).expect("it is the right one");
        assert_eq!(chain.wanted(), None);
        for (offset, is) in [
            (0, Some(1)),
            (0x1000, Some(100)),
            (0x2000, Some(101)),
            (0x3000, Some(116)),
            (0x4000, Some(17)),
            (0x1_2000, Some(31)),
            (0x1_3000, Some(33)),
            (0x2_b000, Some(58)),
            (0x2_c000, None),
            (0x1000_0000, None),
        ] {
            assert_eq!(
                page(&mut chain, 0, offset),
                is,
                "A1: the page at {offset:#x}"
            );
        }
        assert_eq!(page(&mut chain, 1, 0x4000), None);
        assert_eq!(page(&mut chain, 99, 0x4000), None);
    }

    #[test]
    fn another_process_of_the_parent_may_have_them() {
        let first = first();
        let mut second = second(open(&first).identity());
        second.runs.clear();
        second.same = vec![Same {
            process: 1,
            offset: 0x4000,
            pages: 2,
            theirs: 0,
        }];
        let bytes = image(&second, |_, _| 0);
        let mut chain = Chain::new(open(&bytes), &second.same[..0]).expect("nothing is left to it");
        chain.add(open(&first)).expect("it is the right one");
        assert_eq!(page(&mut chain, 1, 0x5000), Some(18));
        assert_eq!(page(&mut chain, 0, 0x5000), None);
    }

    #[test]
    fn a_wrong_parent_is_none() {
        let first = first();
        let identity = open(&first).identity();
        let second = second(identity);
        let bytes = image(&second, |_, _| 9);
        let add = |other: &[u8]| {
            let mut chain = Chain::new(open(&bytes), &[]).expect("nothing is left to it");
            chain.add(open(other))
        };
        // One byte of one page differs, and the checksums are right.
        let mut meta = sample();
        meta.runs = Image::open(&first[..], FEATURES, |_| true)
            .expect("it is good")
            .runs;
        let other = image_of(&meta, |run, page| (run * 16 + page + 2) as u8, true);
        let why = add(&other).expect_err("S1: another image is taken for the parent");
        assert!(why.contains("another image"), "{why}");
        // The parent must have the pages that are left to it.
        for (process, offset, pages) in [(0, 0, 2), (0, 0x3000, 1), (0, 0x4000, 41), (1, 0, 1)] {
            let left = Same {
                process: 0,
                offset,
                pages,
                theirs: process,
            };
            let refused = Chain::new(open(&first), &[left]).err();
            let why = refused.expect("S1: pages that nobody has are left to a parent");
            assert!(why.contains("does not have"), "{why}");
        }
        assert_eq!(add(&first), Ok(()));
    }

    /// However many processes share a page, it is looked up once in the parent.
    #[test]
    fn what_is_left_to_a_parent_is_looked_for_once() {
        const RUNS: u64 = 10_000;
        let mut meta = sample();
        let run = |n| Run {
            place: memory(0, n * PAGE_SIZE),
            pages: 1,
        };
        meta.runs = (0..RUNS).map(run).collect();
        let bytes = first();
        let parent = Image::<&[u8]> {
            runs: meta.runs,
            ..open(&bytes)
        };
        let left = |process, pages| Same {
            process,
            offset: 0,
            pages,
            theirs: 0,
        };
        let all: Vec<Same> = (0..100).map(|n| left(n, RUNS as u32)).collect();
        assert_eq!(has_all(&parent, &all), Ok(RUNS as usize), "S2: steps");
        let more = [&all[..], &[left(100, RUNS as u32 + 1)]].concat();
        let refused = has_all(&parent, &more).expect_err("S1: a page that nobody has");
        assert!(refused.contains("0x2710000"), "{refused}");
        assert!(Chain::new(parent, &all).is_ok());
    }

    #[test]
    fn a_damaged_page_is_not_given() {
        let mut first = first();
        let at = open(&first).table.get(1).expect("it has four").at as usize + 3;
        let identity = open(&first).identity();
        first[at] ^= 1;
        assert_eq!(open(&first).identity(), identity);
        let mut chain = Chain::new(open(&first), &[]).expect("nothing is left to it");
        let mut bytes = [0; PAGE_SIZE as usize];
        let why = chain
            .page(0, 0x4000, &mut bytes)
            .expect_err("A1: a damaged page");
        assert!(why.contains("damaged"), "A1: a damaged page: {why}");
        assert_eq!(page(&mut chain, 0, 0), Some(1));
    }

    #[test]
    fn a_chain_has_an_end() {
        let mut images = vec![first()];
        for _ in 0..MAX_IMAGES {
            let last = images.last().expect("there is one");
            let second = second(open(last).identity());
            images.push(image(&second, |_, _| 3));
        }
        let mut images = images.iter().rev();
        let newest = images.next().expect("there is one");
        let mut chain = Chain::new(open(newest), &[]).expect("nothing is left to it");
        for image in images.by_ref().take(MAX_IMAGES - 1) {
            assert!(chain.may_grow());
            chain.add(open(image)).expect("it is the right one");
        }
        assert!(!chain.may_grow());
        let last = images.next().expect("there is one more");
        let why = chain.add(open(last)).expect_err("A9: a chain without end");
        assert!(why.contains("in a row"), "{why}");
    }

    #[test]
    fn processes_are_found_again() {
        let mut meta = sample();
        let named = |name: &str| meta::Process {
            name: name.into(),
            ..sample().processes[1].clone()
        };
        meta.processes = ["sh", "a", "a", "b"].map(named).to_vec();
        let bytes = first();
        let image = Image::<&[u8]> {
            processes: (meta.processes.iter())
                .map(|process| {
                    (
                        process.manager.clone(),
                        process.member,
                        process.name.clone(),
                    )
                })
                .collect(),
            ..open(&bytes)
        };
        let chain = Chain {
            images: vec![image],
        };
        let twins = |names: &[&str]| {
            let processes: Vec<_> = names.iter().map(|name| named(name)).collect();
            chain.twins(&processes)
        };
        assert_eq!(twins(&["sh", "a", "a", "b"]), [0, 1, 2, 3].map(Some));
        assert_eq!(
            twins(&["sh", "a", "b", "c"]),
            [Some(0), Some(1), Some(3), None]
        );
        assert_eq!(twins(&["a", "a", "a"]), [None, Some(1), Some(2)]);
    }

    #[test]
    fn a_parent_may_have_moved_with_its_child() {
        let of = |child, parent| places(child, parent);
        assert_eq!(of("/disk/b/two", "/tmp/one"), ["/disk/b/one", "/tmp/one"]);
        assert_eq!(of("/two", "/one"), ["/one", "/one"]);
    }
}
