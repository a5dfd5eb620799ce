//! Looking at an image without restoring it: what is in it ([`show`]), whether it is sound ([`Whole::check`]), how two
//! differ ([`diff`]), the memory of a process as a core file ([`dump`]), and an incremental image and those that it is
//! based on as one ([`Whole::merged`]).
//!
//! Nothing here makes a kernel call or knows where files lie, so that it is the same on the host and in the guest. An image is hostile
//! here, too: all of its description has been checked before anything is said of it, and a page is checked when it is read.

pub mod diff;
pub mod dump;
pub mod show;

pub use crate::chain::Stretch;
use crate::chain::{self, joined, Bytes, Chain, Image};
use crate::file::{self, Header, Packer};
use crate::meta::{Meta, Parent, Place, Run, Same, MAX_RUN, MAX_RUNS};
use abi::PAGE_SIZE;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
pub use services::checkpoint::plain;

/// Whoever only looks at an image needs nothing of the processor for which it is.
const ANY: [u64; 2] = [u64::MAX; 2];

/// An image and all that it is based on.
pub struct Whole<B> {
    /// Its header.
    pub header: Header,
    /// Its description.
    pub meta: Meta,
    /// It first, and then its parents.
    chain: Chain<B>,
}

impl<B: Bytes> Whole<B> {
    /// Reads all of an image but its pages, and of those that it is based on. `find` opens the file at the place with this
    /// number, from 0 on, where one of them could be, and says when there is no further place: the first one is taken that
    /// is the image which is meant. `room` is told how much memory the next part needs, and says whether there is so much.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it, or which of the others is missing.
    pub fn open(
        bytes: B,
        mut find: impl FnMut(&Parent, usize) -> Option<Result<B, String>>,
        mut room: impl FnMut(u64) -> bool,
    ) -> Result<Self, String> {
        let all = chain::read(&bytes, ANY, &mut room)?;
        // The chain keeps what it needs of the description beside this one.
        let again = Meta::OBJECT_BYTES * all.meta.objects.len() as u64 + all.header.meta_bytes;
        if !room(again) {
            return Err(file::Bad::Memory.to_string());
        }
        let (header, meta) = (all.header, all.meta.clone());
        let mut chain = Chain::new(Image::of(bytes, all), &[])?;
        while let Some(parent) = chain.wanted().cloned() {
            let mut found = None;
            for opened in (0..).map_while(|number| find(&parent, number)) {
                let opened = opened.and_then(|bytes| Image::open(bytes, ANY, &mut room));
                let is_it = |image: &Image<B>| image.identity() == parent.identity;
                let is_it = opened.as_ref().is_ok_and(is_it);
                // What is wrong with an image says more than that there is none.
                if found.is_none() || opened.is_ok() {
                    found = Some(opened);
                }
                if is_it {
                    break;
                }
            }
            let found = found.unwrap_or_else(|| Err("it is missing".to_string()));
            let added = found.and_then(|image| chain.add(image));
            let name = plain(&parent.path);
            added.map_err(|why| format!("{name}, on which it is based: {why}"))?;
        }
        Ok(Whole {
            header,
            meta,
            chain,
        })
    }

    /// What those on which it is based were called, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.chain.names()
    }

    /// How many images it is based on.
    #[must_use]
    pub fn parents(&self) -> usize {
        self.chain.images().count() - 1
    }

    /// Bytes of the pages of all of them.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.chain.images().map(Image::page_bytes).sum()
    }

    /// How many bytes the pages of the first one have, and how many they take in its file.
    #[must_use]
    pub fn own_bytes(&self) -> (u64, u64) {
        let own = self.chain.images().next();
        own.map_or((0, 0), |image| (image.page_bytes(), image.stored_bytes()))
    }

    /// Checks all pages of all images, and what else their descriptions do not say. `done` is told how many bytes were looked at since.
    ///
    /// # Errors
    /// The number of the image, 0 for the first one, and a sentence that says what is wrong with it.
    pub fn check(&mut self, mut done: impl FnMut(u64)) -> Result<(), (usize, String)> {
        for (number, image) in self.chain.images_mut().enumerate() {
            image.check(&mut done).map_err(|why| (number, why))?;
        }
        Ok(())
    }

    /// Reads a page: whether there is one. If not, it is zero.
    ///
    /// # Errors
    /// A sentence, if it cannot be read or does not match its checksum.
    pub fn page(&mut self, place: Place, into: &mut [u8]) -> Result<bool, String> {
        let is_there = self.chain.page_at(place, into)?;
        if !is_there {
            into.fill(0);
        }
        Ok(is_there)
    }

    /// All pages that are not zero, by rising place, wherever they are: no stretch touches the next one.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        stretches(&self.meta.runs, &self.meta.same)
    }

    /// The description of an image that has all pages itself, and is based on none.
    ///
    /// # Errors
    /// A sentence, if there are more than an image can list.
    pub fn merged(&self) -> Result<Meta, String> {
        let mut runs = Vec::new();
        for (place, bytes) in self.stretches() {
            let mut done = 0;
            while done < bytes {
                if runs.len() == MAX_RUNS {
                    return Err("they have more pages than one image can have".to_string());
                }
                let most = (bytes - done).min(u64::from(MAX_RUN) * PAGE_SIZE);
                let offset = place.offset + done;
                let place = Place { offset, ..place };
                let pages = (most / PAGE_SIZE) as u32;
                runs.push(Run { place, pages });
                done += most;
            }
        }
        Ok(Meta {
            runs,
            parent: None,
            same: Vec::new(),
            ..self.meta.clone()
        })
    }

    /// Writes that image, its pages compressed or as they are: its length. `put` is told where the bytes are to stand
    /// that it is given: one after another, and last the header again, when the length is known.
    ///
    /// # Errors
    /// Those of [`Whole::merged`], of reading, and of `put`.
    pub fn write_merged(
        &mut self,
        compress: bool,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<u64, String> {
        let meta = self.merged()?;
        let head = file::encode(&meta, self.header.features, self.header.clock);
        let (header, head) = head.map_err(|bad| bad.to_string())?;
        put(0, &head)?;
        let mut length = head.len() as u64;
        let mut packer = Packer::new(meta.runs.len(), compress);
        let mut buffer = vec![0; file::MAX_RUN_BYTES];
        for run in &meta.runs {
            let bytes = &mut buffer[..run.bytes() as usize];
            let mut place = run.place;
            for page in bytes.chunks_exact_mut(PAGE_SIZE as usize) {
                self.page(place, page)?;
                place.offset += PAGE_SIZE;
            }
            let written = packer.pack(bytes);
            put(length, written)?;
            length += written.len() as u64;
        }
        put(length, packer.table())?;
        length += packer.table().len() as u64;
        put(0, &packer.header(&header).encode())?;
        Ok(length)
    }
}

/// The pages of these lists, each of which rises, as one.
fn stretches(runs: &[Run], same: &[Same]) -> Vec<Stretch> {
    let runs = runs.iter().map(|run| (run.place, run.bytes()));
    let same = same.iter().map(|same| (same.place(), same.bytes()));
    joined(runs.chain(same).collect())
}

/// A number with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things, in words.
pub(crate) fn count(number: u64, one: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {one}{end}", grouped(number))
}

#[cfg(test)]
pub(crate) mod tests;
