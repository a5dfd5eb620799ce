//! How an image lies in a file.
//!
//! ```text
//! header       64 bytes, see `Header`, its last word a checksum of the others
//! description  a postcard `Meta`, of the length and checksum that the header says
//! padding      zeros, up to a multiple of the page size
//! pages        the bytes of each run of the description, as they are or compressed
//! table        for each run the checksum (u32) of what is there of it, and how many bytes that are (u32)
//! ```
//!
//! All numbers are little-endian, all checksums CRC-32C (iSCSI), for which processors have an instruction. The header
//! has the length of the file, so that a truncated one is found before anything is made from it. Every byte of the file
//! is covered by a checksum or must have a fixed value: for a compressed run the checksum is of the compressed bytes,
//! so that they are checked before they are decompressed.
//!
//! A run has as many bytes as its pages, or fewer: then it is a block of LZ4. If no run is compressed, pages are at
//! multiples of their size, so that they can be moved without a copy.

use crate::meta::{Identity, Meta, Run, Senseless, Undecoded, MAX_RUN};
use abi::{PAGE_SIZE, ROLES};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use lz4_flex::block::{get_maximum_output_size, CompressTable};
use rt::sum::crc32c;

/// The first bytes of every image.
pub const MAGIC: [u8; 8] = *b"FERMATA\x17";
/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 9;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Most bytes of a description.
pub const MAX_META: u64 = 16 << 20;
/// Bytes of the longest run.
pub const MAX_RUN_BYTES: usize = MAX_RUN as usize * PAGE_SIZE as usize;
/// Bytes of a run's entry in the table.
pub const ENTRY_BYTES: u64 = 8;

/// The checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c(bytes)
}

/// Facts about an image that are known before its description is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole file.
    pub total: u64,
    /// Bytes of the description.
    pub meta_bytes: u64,
    /// Checksum of the description.
    pub meta_sum: u32,
    /// The features of the processor that ran the processes (`cpuid` leaf 1 `edx`, `ecx`; leaf 7 `ebx`): a program may
    /// have checked them and relies on them.
    pub features: [u64; 2],
    /// The machine's clock when everything was stopped, in nanoseconds.
    pub clock: u64,
}

impl Header {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.meta_sum.to_le_bytes());
        out[16..24].copy_from_slice(&self.total.to_le_bytes());
        out[24..32].copy_from_slice(&self.meta_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.features[0].to_le_bytes());
        out[40..48].copy_from_slice(&self.features[1].to_le_bytes());
        out[48..56].copy_from_slice(&self.clock.to_le_bytes());
        out[56..60].copy_from_slice(&u32::from(ROLES.machine).to_le_bytes());
        let sum = checksum(&out[..60]);
        out[60..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Bytes of zeros between the description and the pages.
    #[must_use]
    pub fn padding(&self) -> u64 {
        self.pages_at() - self.meta_bytes - HEADER_BYTES as u64
    }

    /// Where the pages begin. The description is not longer than [`MAX_META`].
    #[must_use]
    pub fn pages_at(&self) -> u64 {
        (HEADER_BYTES as u64 + self.meta_bytes).next_multiple_of(PAGE_SIZE)
    }

    /// Where the table begins, in an image with this description that has been decoded.
    #[must_use]
    pub fn table_at(&self, meta: &Meta) -> u64 {
        self.total - ENTRY_BYTES * meta.runs.len() as u64
    }

    /// What distinguishes the image from all others.
    #[must_use]
    pub fn identity(&self, table: &Table) -> Identity {
        Identity {
            total: self.total,
            clock: self.clock,
            meta_sum: self.meta_sum,
            table: table.sum,
        }
    }

    /// Length of the file if its runs take `stored` bytes.
    fn length(&self, meta: &Meta, stored: u64) -> u64 {
        self.pages_at() + stored + ENTRY_BYTES * meta.runs.len() as u64
    }

    /// Reads a header and does all checks that need no more than it: `actual` is the length of the file, `features` are
    /// those of this processor.
    pub fn decode(bytes: &[u8], actual: u64, features: [u64; 2]) -> Result<Self, Bad> {
        let word32 = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let word64 = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes.is_empty() || !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(Bad::Foreign);
        }
        let fields = || {
            let header = Header {
                total: word64(16)?,
                meta_bytes: word64(24)?,
                meta_sum: word32(12)?,
                features: [word64(32)?, word64(40)?],
                clock: word64(48)?,
            };
            Some((word32(8)?, word32(56)?, header, word32(60)?))
        };
        let (version, machine, header, sum) = fields().ok_or(Bad::Short)?;
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        if checksum(&bytes[..60]) != sum {
            return Err(Bad::HeaderSum);
        }
        if machine != u32::from(ROLES.machine) {
            return Err(Bad::Architecture(machine));
        }
        if header.total != actual {
            return Err(Bad::Length {
                said: header.total,
                is: actual,
            });
        }
        if header.meta_bytes > MAX_META || header.pages_at() > header.total {
            return Err(Bad::Senseless("its description is too long".into()));
        }
        let missing = [0, 1].map(|i| header.features[i] & !features[i]);
        if missing != [0, 0] {
            return Err(Bad::Features(missing));
        }
        Ok(header)
    }
}

/// Why an image cannot be used. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The file ends within the header.
    Short,
    /// It ends before its last page or its table: it has become shorter since its header was read.
    Cut,
    /// The magic number is another.
    Foreign,
    /// The format has another version.
    Version(u32),
    /// The image is of another architecture, with this ELF number.
    Architecture(u32),
    /// The checksum of the header is wrong.
    HeaderSum,
    /// The file has another length than it should.
    Length {
        /// The length in the header.
        said: u64,
        /// The actual length.
        is: u64,
    },
    /// The processor lacks these features.
    Features([u64; 2]),
    /// The checksum of the description is wrong.
    MetaSum,
    /// The padding between the description and the pages is not zero.
    Padding,
    /// The description contradicts itself or a rule.
    Senseless(String),
    /// The checksum of some pages is wrong.
    PageSum(Run),
    /// Some pages cannot be decompressed.
    Packed(Run),
    /// There is no memory for the description.
    Memory,
}

impl From<Senseless> for Bad {
    fn from(senseless: Senseless) -> Self {
        Bad::Senseless(senseless.0)
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Short => f.write_str("the image is truncated: it ends within its header"),
            Bad::Cut => f.write_str("the image is truncated: it ends before its last page"),
            Bad::Foreign => f.write_str("the file is not an image of Fermata"),
            Bad::Version(version) => {
                write!(f, "the image has format version {version}, and this system reads {VERSION}")
            }
            Bad::Architecture(machine) => write!(
                f,
                "the image is of another architecture (number {machine}) than {}",
                ROLES.architecture
            ),
            Bad::HeaderSum => f.write_str("the image is damaged: its header does not match its checksum"),
            Bad::Length { said, is } if is < said => {
                write!(f, "the image is truncated: it should have {said} bytes and has {is}")
            }
            Bad::Length { said, is } => {
                write!(f, "the image is damaged: it should have {said} bytes and has {is}")
            }
            Bad::Features(missing) => write!(
                f,
                "the image needs a processor with features that this one lacks ({:#x}, {:#x})",
                missing[0], missing[1]
            ),
            Bad::Memory => f.write_str("there is no memory for the description of the image"),
            Bad::MetaSum => {
                f.write_str("the image is damaged: its description does not match its checksum")
            }
            Bad::Padding => f.write_str("the image is damaged: there is something before its pages"),
            Bad::Senseless(what) => write!(f, "the image makes no sense: {what}"),
            Bad::PageSum(run) => write!(
                f,
                "the image is damaged: the pages at {:#x} of process {} do not match their checksum",
                run.place.offset, run.place.process
            ),
            Bad::Packed(run) => write!(
                f,
                "the image makes no sense: the pages at {:#x} of process {} cannot be decompressed",
                run.place.offset, run.place.process
            ),
        }
    }
}

/// Encodes header and description, the part of the file before the pages. The header has the length of a file without
/// compression; [`Packer::header`] has that of a compressed one.
pub fn encode(meta: &Meta, features: [u64; 2], clock: u64) -> Result<(Header, Vec<u8>), Bad> {
    meta.check()?;
    let description =
        postcard::to_allocvec(meta).map_err(|_| Bad::Senseless("it cannot be described".into()))?;
    if description.len() as u64 > MAX_META {
        return Err(Bad::Senseless("its description is too long".into()));
    }
    let mut header = Header {
        total: 0,
        meta_bytes: description.len() as u64,
        meta_sum: checksum(&description),
        features,
        clock,
    };
    header.total = header.length(meta, meta.page_bytes());
    let head = head(&header, &description);
    Ok((header, head))
}

/// Header, description and padding.
fn head(header: &Header, description: &[u8]) -> Vec<u8> {
    let pages_at = header.pages_at() as usize;
    let mut out = Vec::with_capacity(pages_at);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(description);
    out.resize(pages_at, 0);
    out
}

/// Decodes the description that belongs to `header`, and checks all of it. `room` gets how much memory the next part of
/// it needs, and returns whether it is available.
pub fn decode_meta(
    header: &Header,
    bytes: &[u8],
    room: impl FnMut(u64) -> bool,
) -> Result<Meta, Bad> {
    if bytes.len() as u64 != header.meta_bytes || checksum(bytes) != header.meta_sum {
        return Err(Bad::MetaSum);
    }
    let (meta, rest) = Meta::decode(bytes, room).map_err(|why| match why {
        Undecoded::NoRoom => Bad::Memory,
        Undecoded::Senseless => Bad::Senseless("its description cannot be read".into()),
    })?;
    if !rest.is_empty() {
        return Err(Bad::Senseless("its description is too long".into()));
    }
    meta.check()?;
    let shortest = header.length(&meta, meta.runs.len() as u64);
    let longest = header.length(&meta, meta.page_bytes());
    if !(shortest..=longest).contains(&header.total) {
        return Err(wrong_length());
    }
    Ok(meta)
}

fn wrong_length() -> Bad {
    Bad::Senseless("its length is not that of its pages".into())
}

/// Checks the padding between the description and the pages.
pub fn check_padding(bytes: &[u8]) -> Result<(), Bad> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Bad::Padding),
    }
}

/// The bytes of a run in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Their offset.
    pub at: u64,
    /// How many there are.
    pub bytes: u32,
    /// Their checksum.
    sum: u32,
}

impl Stored {
    /// Whether it is compressed: the pages of the run take more.
    #[must_use]
    pub fn is_packed(&self, run: &Run) -> bool {
        u64::from(self.bytes) < run.bytes()
    }

    /// Checks `bytes`, those of a run in the file, before anything else reads them.
    pub fn check(&self, run: &Run, bytes: &[u8]) -> Result<(), Bad> {
        match bytes.len() == self.bytes as usize && checksum(bytes) == self.sum {
            true => Ok(()),
            false => Err(Bad::PageSum(*run)),
        }
    }
}

/// Decompresses a run into `pages`. `bytes` are those in the file, which have been checked.
pub fn unpack(run: &Run, bytes: &[u8], pages: &mut [u8]) -> Result<(), Bad> {
    match lz4_flex::block::decompress_into(bytes, pages) {
        Ok(length) if length == pages.len() => Ok(()),
        _ => Err(Bad::Packed(*run)),
    }
}

/// The bytes of each run in the file.
#[derive(Debug, Default)]
pub struct Table {
    runs: Vec<Stored>,
    /// Its own checksum.
    sum: u32,
}

impl Table {
    /// Bytes of memory that it takes for each run while it is read.
    pub const READING: u64 = ENTRY_BYTES + size_of::<Stored>() as u64;

    /// Reads the table of an image with this header and description, and checks that the runs fill the file between the
    /// padding and the table.
    pub fn decode(header: &Header, meta: &Meta, bytes: &[u8]) -> Result<Self, Bad> {
        let entry = ENTRY_BYTES as usize;
        if bytes.len() != entry * meta.runs.len() {
            return Err(Bad::Cut);
        }
        let mut at = header.pages_at();
        let mut runs = Vec::with_capacity(meta.runs.len());
        for (run, entry) in meta.runs.iter().zip(bytes.chunks_exact(entry)) {
            let (sum, bytes) = entry.split_at(4);
            let word = |bytes: &[u8]| {
                bytes
                    .try_into()
                    .map(u32::from_le_bytes)
                    .map_err(|_| Bad::Cut)
            };
            let (sum, bytes) = (word(sum)?, word(bytes)?);
            if bytes == 0 || u64::from(bytes) > run.bytes() {
                return Err(wrong_length());
            }
            runs.push(Stored { at, bytes, sum });
            at += u64::from(bytes);
        }
        if at != header.table_at(meta) {
            return Err(wrong_length());
        }
        Ok(Table {
            runs,
            sum: checksum(bytes),
        })
    }

    /// The bytes in the file of the run with this number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<Stored> {
        self.runs.get(number).copied()
    }

    /// How many bytes all runs take in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|stored| u64::from(stored.bytes)).sum()
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.runs.len() * size_of::<Stored>()
    }
}

/// Produces the bytes that are written for the runs of an image, one after another, and then the table.
pub struct Packer {
    table: Vec<u8>,
    /// How many bytes the runs take so far.
    stored: u64,
    /// The compressor's memory, if runs are compressed.
    lz4: Option<(CompressTable, Vec<u8>)>,
}

impl Packer {
    /// Bytes of memory for so many runs.
    #[must_use]
    pub fn memory(runs: usize, compress: bool) -> u64 {
        // The compressor has a table of 8 KB.
        let lz4 = (8 << 10) + get_maximum_output_size(MAX_RUN_BYTES) as u64;
        ENTRY_BYTES * runs as u64 + if compress { lz4 } else { 0 }
    }

    /// A packer for so many runs, which are compressed or not.
    #[must_use]
    pub fn new(runs: usize, compress: bool) -> Self {
        let lz4 = || {
            let room = vec![0; get_maximum_output_size(MAX_RUN_BYTES)];
            (CompressTable::small(), room)
        };
        Packer {
            table: Vec::with_capacity(runs * ENTRY_BYTES as usize),
            stored: 0,
            lz4: compress.then(lz4),
        }
    }

    /// The bytes to write for the next run, whose pages are `bytes`: these themselves, if compression does not make
    /// them fewer.
    pub fn pack<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut written = bytes;
        if let Some((table, room)) = &mut self.lz4 {
            let packed = lz4_flex::block::compress_into_with_table(bytes, room, table);
            let packed = packed.ok().filter(|length| *length < bytes.len());
            written = packed
                .and_then(|length| room.get(..length))
                .unwrap_or(bytes);
        }
        let (length, sum) = (written.len() as u64, checksum(written));
        enter(&mut self.table, &mut self.stored, (length, sum));
        written
    }

    /// Enters the next run, which the caller writes uncompressed, with this size and checksum.
    pub fn as_it_is(&mut self, bytes: u64, sum: u32) {
        enter(&mut self.table, &mut self.stored, (bytes, sum));
    }

    /// The table, which is written behind the last run.
    #[must_use]
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// The final header, with the actual length, made from the one that was written first.
    #[must_use]
    pub fn header(&self, header: &Header) -> Header {
        let total = header.pages_at() + self.stored + self.table.len() as u64;
        Header { total, ..*header }
    }
}

/// Adds a run to a table.
fn enter(table: &mut Vec<u8>, stored: &mut u64, (bytes, sum): (u64, u32)) {
    table.extend(sum.to_le_bytes());
    table.extend((bytes as u32).to_le_bytes());
    *stored += bytes;
}

/// Puts an image together in memory, for tests and tools: with this description and the bytes of its runs, and with
/// correct lengths and checksums.
#[must_use]
pub fn assemble(header: &Header, description: &[u8], runs: &[Vec<u8>], compress: bool) -> Vec<u8> {
    let header = Header {
        meta_bytes: description.len() as u64,
        meta_sum: checksum(description),
        ..*header
    };
    let mut packer = Packer::new(runs.len(), compress);
    let mut pages = Vec::new();
    for run in runs {
        pages.extend_from_slice(packer.pack(run));
    }
    let mut out = head(&packer.header(&header), description);
    out.extend(pages);
    out.extend(packer.table());
    out
}

/// Reads the beginning of an image from memory, for tests and tools: the header, the description, and the bytes behind
/// them. `room` as in [`decode_meta`].
pub fn read_description(
    image: &[u8],
    features: [u64; 2],
    room: impl FnMut(u64) -> bool,
) -> Result<(Header, Meta, &[u8]), Bad> {
    let header = Header::decode(
        &image[..image.len().min(HEADER_BYTES)],
        image.len() as u64,
        features,
    )?;
    let (description, rest) = image[HEADER_BYTES..].split_at(header.meta_bytes as usize);
    let meta = decode_meta(&header, description, room)?;
    Ok((header, meta, rest))
}

/// Reads a whole image from memory, for tests and tools: the header, the description, and the
/// bytes of each run.
pub fn read_all(image: &[u8], features: [u64; 2]) -> Result<(Header, Meta, Vec<Vec<u8>>), Bad> {
    let (header, meta, rest) = read_description(image, features, |_| true)?;
    let pages = read_pages(&header, &meta, rest)?;
    Ok((header, meta, pages))
}

/// Reads the pages of an image from the bytes behind the description: the pages of each run.
pub fn read_pages(header: &Header, meta: &Meta, rest: &[u8]) -> Result<Vec<Vec<u8>>, Bad> {
    let (padding, rest) = rest
        .split_at_checked(header.padding() as usize)
        .ok_or(Bad::Cut)?;
    check_padding(padding)?;
    let stored = header.table_at(meta).checked_sub(header.pages_at());
    let (mut pages, table) = stored
        .and_then(|stored| rest.split_at_checked(stored as usize))
        .ok_or(Bad::Cut)?;
    let table = Table::decode(header, meta, table)?;
    let mut runs = vec![];
    for (run, stored) in meta.runs.iter().zip(&table.runs) {
        let (bytes, next) = pages
            .split_at_checked(stored.bytes as usize)
            .ok_or(Bad::Cut)?;
        stored.check(run, bytes)?;
        let mut whole = bytes.to_vec();
        if stored.is_packed(run) {
            whole = vec![0; run.bytes() as usize];
            unpack(run, bytes, &mut whole)?;
        }
        runs.push(whole);
        pages = next;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::sample;
    use crate::meta::{Place, Segment};
    use proptest::prelude::*;

    const FEATURES: [u64; 2] = [0b1011, 0b1];

    fn image(compress: bool) -> Vec<u8> {
        let meta = sample();
        let (_, head) = encode(&meta, FEATURES, 77).expect("it makes sense");
        let alone = Header::decode(&head[..HEADER_BYTES], head.len() as u64, FEATURES);
        assert!(matches!(alone, Err(Bad::Length { .. })), "without pages");
        let bytes = |(n, run): (usize, &Run)| vec![n as u8 + 1; run.bytes() as usize];
        let runs: Vec<Vec<u8>> = meta.runs.iter().enumerate().map(bytes).collect();
        let header = Header {
            total: 0,
            meta_bytes: 0,
            meta_sum: 0,
            features: FEATURES,
            clock: 77,
        };
        let description = postcard::to_allocvec(&meta).expect("it can be encoded");
        let image = assemble(&header, &description, &runs, compress);
        // Except for the length and the checksum in the header, if the image is compressed.
        assert_eq!(image[..head.len()] == head, !compress);
        assert_eq!(image[64..head.len()], head[64..]);
        image
    }

    #[test]
    fn what_was_written_is_read() {
        for compress in [false, true] {
            let (header, meta, pages) = read_all(&image(compress), FEATURES).expect("it is good");
            assert_eq!(meta, sample());
            assert_eq!(header.clock, 77);
            assert_eq!(pages[2], [3; 4096]);
        }
        assert!(image(true).len() < image(false).len() / 2);
    }

    #[test]
    fn causes_are_named() {
        let refused = |bytes: &[u8], features| {
            alloc::string::ToString::to_string(&read_all(bytes, features).expect_err("accepted"))
        };
        let good = image(false);
        assert!(refused(b"", FEATURES).contains("not an image"));
        assert!(refused(b"\x7fELF and so on", FEATURES).contains("not an image"));
        assert!(refused(&good[..40], FEATURES).contains("truncated"));
        assert!(refused(&good[..good.len() - 1], FEATURES).contains("truncated"));
        assert!(refused(&[&good[..], b"x"].concat(), FEATURES).contains("damaged"));
        assert!(refused(&good, [0, 1]).contains("processor"));
        let mut newer = good.clone();
        newer[8] = VERSION as u8 + 1;
        assert!(refused(&newer, FEATURES).contains(&format!("version {}", VERSION + 1)));
        let mut other = good.clone();
        other[56..60].copy_from_slice(&183u32.to_le_bytes());
        let text = refused(&resealed(other), FEATURES);
        assert!(text.contains("another architecture (number 183)"), "{text}");
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert!(refused(&bad, FEATURES).contains("header"));
        let mut bad = good.clone();
        bad[HEADER_BYTES + 9] ^= 1;
        assert!(refused(&bad, FEATURES).contains("description"));
        let mut bad = good.clone();
        bad[PAGE_SIZE as usize - 1] ^= 1;
        assert!(refused(&bad, FEATURES).contains("before its pages"));
        let mut bad = good.clone();
        bad[PAGE_SIZE as usize] ^= 1;
        assert!(refused(&bad, FEATURES).contains("pages"));
        let mut bad = good.clone();
        *bad.last_mut().expect("not empty") ^= 1;
        assert!(refused(&bad, FEATURES).contains("pages"));
    }

    /// An attacker who alters an image can also repair its checksums.
    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let meta_bytes = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes")) as usize;
        let end = HEADER_BYTES.saturating_add(meta_bytes).min(bytes.len());
        let sum = checksum(&bytes[HEADER_BYTES..end]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(&bytes[..60]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// An image of one page with these bytes in the file, whose table says that there are `said` bytes.
    fn of_one_page(stored: &[u8], said: u32) -> Result<Vec<Vec<u8>>, Bad> {
        let place = |offset| Place {
            process: 0,
            segment: Segment::Memory,
            offset,
        };
        let run = Run {
            place: place(0),
            pages: 1,
        };
        let meta = Meta {
            runs: vec![run],
            ..sample()
        };
        let (header, _) = encode(&meta, FEATURES, 77).expect("it makes sense");
        let mut packer = Packer::new(1, false);
        packer.as_it_is(u64::from(said), checksum(stored));
        let header = packer.header(&header);
        let padding = vec![0; header.padding() as usize];
        read_pages(&header, &meta, &[&padding, stored, packer.table()].concat())
    }

    #[test]
    fn what_is_said_to_be_compressed_is_not_believed() {
        let page = [7; PAGE_SIZE as usize];
        let packed = lz4_flex::block::compress(&page);
        let length = packed.len() as u32;
        assert_eq!(of_one_page(&packed, length), Ok(vec![page.to_vec()]));
        assert_eq!(
            of_one_page(&page, PAGE_SIZE as u32),
            Ok(vec![page.to_vec()])
        );
        let wrong = |stored: &[u8], said| {
            of_one_page(stored, said).expect_err("A9: pages that are said to be compressed")
        };
        // More bytes than a page, none, and another length than the table says.
        for (stored, said) in [(&[7; 4097][..], 4097), (&[], 0), (&packed, length + 1)] {
            assert!(matches!(wrong(stored, said), Bad::Senseless(_) | Bad::Cut));
        }
        // Bytes that are no block, a block of less than a page, and one of more.
        let less = lz4_flex::block::compress(&page[1..]);
        let more = lz4_flex::block::compress(&[7; 5000]);
        for block in [&[0xff; 16][..], &less, &more] {
            assert!(matches!(wrong(block, block.len() as u32), Bad::Packed(_)));
        }
    }

    #[test]
    fn what_does_not_become_less_is_written_as_it_is() {
        let mut noise = 1u32;
        let mut bytes = vec![0; MAX_RUN_BYTES];
        bytes.fill_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        });
        let mut packer = Packer::new(2, true);
        assert_eq!(packer.pack(&bytes), bytes);
        // A compressed run does not change how the next one is compressed.
        let zeros = vec![0; MAX_RUN_BYTES];
        assert_eq!(packer.pack(&zeros), lz4_flex::block::compress(&zeros));
    }

    proptest! {
        #[test]
        fn truncation_is_found(cut in 0usize..10_000, compress in any::<bool>()) {
            let good = image(compress);
            let cut = cut % good.len();
            prop_assert!(read_all(&good[..cut], FEATURES).is_err());
        }

        #[test]
        fn every_altered_bit_is_found(at in any::<usize>(), bit in 0u8..8, compress in any::<bool>()) {
            let mut bad = image(compress);
            let at = at % bad.len();
            bad[at] ^= 1 << bit;
            prop_assert!(read_all(&bad, FEATURES).is_err());
        }

        /// Nothing panics, and accepted images obey the rules.
        #[test]
        fn forged_images_are_harmless(
            changes in prop::collection::vec((0usize..1200, any::<u8>()), 1..6),
            compress in any::<bool>(),
        ) {
            let mut bad = image(compress);
            for (at, value) in changes {
                bad[at] = value;
            }
            if let Ok((_, meta, _)) = read_all(&resealed(bad), [u64::MAX; 2]) {
                prop_assert_eq!(meta.check(), Ok(()));
            }
        }

        #[test]
        fn noise_is_harmless(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read_all(&bytes, FEATURES).is_err());
            let noise = [&MAGIC[..], &VERSION.to_le_bytes(), &bytes].concat();
            prop_assert!(read_all(&noise, FEATURES).is_err());
        }
    }
}
