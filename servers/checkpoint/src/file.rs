//! How an image lies in a file.
//!
//! ```text
//! header       64 bytes, see `Header`, its last word a checksum of the others
//! description  a postcard `Meta`, of the length and checksum that the header says
//! padding      zeros, up to a multiple of the page size
//! pages        the bytes of each run of the description
//! sums         for each run the checksum (u32) of its bytes
//! ```
//!
//! All numbers are little-endian, all checksums CRC-32C (iSCSI), for which processors have an instruction. The length
//! of the file follows from the description, and the header says it too, so that a truncated file is known for one
//! before anything is made from it. Every byte of the file is covered by a checksum or must have
//! one certain value. Pages lie at multiples of their size, so that they can be moved as they are.

use crate::meta::{Identity, Meta, Run, Senseless, Undecoded, MAX_RUN};
use abi::{PAGE_SIZE, ROLES};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use rt::sum::crc32c;

/// The first bytes of every image.
pub const MAGIC: [u8; 8] = *b"FERMATA\x17";
/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 7;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Most bytes of a description.
pub const MAX_META: u64 = 16 << 20;
/// Bytes of the longest run.
pub const MAX_RUN_BYTES: usize = MAX_RUN as usize * PAGE_SIZE as usize;
/// Bytes of the checksum of a run.
pub const SUM_BYTES: u64 = 4;

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
    /// What the processor that ran the processes can do (leaf 1 `edx`, `ecx`; leaf 7 `ebx`): a
    /// program may have looked, and decided by it.
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

    /// Where the checksums of the runs begin.
    #[must_use]
    pub fn sums_at(&self, meta: &Meta) -> u64 {
        self.pages_at() + meta.page_bytes()
    }

    /// What tells the image from all others: `sums` are the checksums of its runs.
    #[must_use]
    pub fn identity(&self, sums: &[u8]) -> Identity {
        Identity {
            total: self.total,
            clock: self.clock,
            meta_sum: self.meta_sum,
            sums: checksum(sums),
        }
    }

    /// Length of the file with this description.
    fn length(&self, meta: &Meta) -> u64 {
        self.sums_at(meta) + SUM_BYTES * meta.runs.len() as u64
    }

    /// Reads a header and settles what can be settled from it alone: `actual` is the length of the
    /// file, `features` what this processor can do.
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
    /// The magic number is another.
    Foreign,
    /// The format has another version.
    Version(u32),
    /// It is of another architecture: its number, as ELF has it.
    Architecture(u32),
    /// The checksum of the header is wrong.
    HeaderSum,
    /// The file has another length than it should.
    Length {
        /// What the header says.
        said: u64,
        /// What it is.
        is: u64,
    },
    /// The processor lacks these features.
    Features([u64; 2]),
    /// The checksum of the description is wrong.
    MetaSum,
    /// What is between the description and the pages is not zero.
    Padding,
    /// The description contradicts itself or a rule.
    Senseless(String),
    /// The checksum of some pages is wrong.
    PageSum(Run),
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
        }
    }
}

/// Encodes header and description: what the file begins with, up to the pages.
pub fn encode(meta: &Meta, features: [u64; 2], clock: u64) -> Result<Vec<u8>, Bad> {
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
    header.total = header.length(meta);
    Ok(head(&header, &description))
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

/// Decodes the description that belongs to `header`, and checks all of it. `room` is told how much memory the next part of
/// it needs, and says whether there is so much.
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
    if header.length(&meta) != header.total {
        return Err(Bad::Senseless("its length is not that of its pages".into()));
    }
    Ok(meta)
}

/// Checks what is between the description and the pages.
pub fn check_padding(bytes: &[u8]) -> Result<(), Bad> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Bad::Padding),
    }
}

/// Checks the bytes of a run against its checksum, which stands in `sums`, those of all runs, at the place of the run's number.
pub fn check_run(run: &Run, number: usize, bytes: &[u8], sums: &[u8]) -> Result<(), Bad> {
    let size = SUM_BYTES as usize;
    let sum = sums.chunks_exact(size).nth(number);
    if bytes.len() as u64 != run.bytes() || sum != Some(&checksum(bytes).to_le_bytes()) {
        return Err(Bad::PageSum(*run));
    }
    Ok(())
}

/// Puts an image together in memory, for tests and tools: with this description and the bytes of its runs, and with all lengths and
/// checksums as they must be.
#[must_use]
pub fn assemble(header: &Header, description: &[u8], runs: &[Vec<u8>]) -> Vec<u8> {
    let mut header = Header {
        meta_bytes: description.len() as u64,
        meta_sum: checksum(description),
        ..*header
    };
    let pages = runs.concat();
    header.total = header.pages_at() + pages.len() as u64 + SUM_BYTES * runs.len() as u64;
    let mut out = head(&header, description);
    out.extend(pages);
    out.extend(runs.iter().flat_map(|run| checksum(run).to_le_bytes()));
    out
}

/// Reads the beginning of an image from memory, for tests and tools: the header, the description, and what is behind them.
/// `room` as in [`decode_meta`].
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

/// Reads the pages of an image from what is behind the description: the bytes of each run.
pub fn read_pages(header: &Header, meta: &Meta, rest: &[u8]) -> Result<Vec<Vec<u8>>, Bad> {
    let (padding, rest) = rest
        .split_at_checked(header.padding() as usize)
        .ok_or(Bad::Short)?;
    check_padding(padding)?;
    let (mut pages, sums) = rest
        .split_at_checked(meta.page_bytes() as usize)
        .ok_or(Bad::Short)?;
    let mut runs = vec![];
    for (number, run) in meta.runs.iter().enumerate() {
        let (bytes, next) = pages.split_at(run.bytes() as usize);
        check_run(run, number, bytes, sums)?;
        runs.push(bytes.to_vec());
        pages = next;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::sample;
    use proptest::prelude::*;

    const FEATURES: [u64; 2] = [0b1011, 0b1];

    fn image() -> Vec<u8> {
        let meta = sample();
        let head = encode(&meta, FEATURES, 77).expect("it makes sense");
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
        let image = assemble(&header, &description, &runs);
        assert_eq!(image[..head.len()], head);
        image
    }

    #[test]
    fn what_was_written_is_read() {
        let (header, meta, pages) = read_all(&image(), FEATURES).expect("it is good");
        assert_eq!(meta, sample());
        assert_eq!(header.clock, 77);
        assert_eq!(pages[2], [3; 4096]);
    }

    #[test]
    fn causes_are_named() {
        let refused = |bytes: &[u8], features| {
            alloc::string::ToString::to_string(&read_all(bytes, features).expect_err("accepted"))
        };
        let good = image();
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

    /// Whoever alters an image can also repair its checksums.
    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let meta_bytes = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes")) as usize;
        let end = HEADER_BYTES.saturating_add(meta_bytes).min(bytes.len());
        let sum = checksum(&bytes[HEADER_BYTES..end]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(&bytes[..60]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn truncation_is_found(cut in 0usize..10_000) {
            let good = image();
            let cut = cut % good.len();
            prop_assert!(read_all(&good[..cut], FEATURES).is_err());
        }

        #[test]
        fn every_altered_bit_is_found(at in any::<usize>(), bit in 0u8..8) {
            let mut bad = image();
            let at = at % bad.len();
            bad[at] ^= 1 << bit;
            prop_assert!(read_all(&bad, FEATURES).is_err());
        }

        /// Nothing panics, and what is accepted obeys the rules.
        #[test]
        fn forged_images_are_harmless(
            changes in prop::collection::vec((0usize..1200, any::<u8>()), 1..6),
        ) {
            let mut bad = image();
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
