//! Tools that read an image without restoring it: they show its contents ([`show`]), check it ([`Whole::check`]),
//! compare two ([`diff`]), write the memory of a process as a core file ([`dump`]), and merge an incremental image with
//! its parents ([`Whole::merged`]).
//!
//! Nothing here makes a kernel call or knows where files are, so that it is the same on the host and in the guest. An
//! image is hostile here, too: its description is checked completely before it is used, and a page is checked when it
//! is read.

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

/// Reading an image needs no features of the processor that it is for.
const ANY: [u64; 2] = [u64::MAX; 2];

/// An image and its parents.
pub struct Whole<B> {
    /// Its header.
    pub header: Header,
    /// Its description.
    pub meta: Meta,
    /// The image, and then its parents.
    chain: Chain<B>,
}

impl<B: Bytes> Whole<B> {
    /// Reads an image and its parents, except their pages. `find` opens the file at the place with this number, from 0
    /// on, where a parent could be, and returns `None` when there is no further place: the first file that is the right
    /// image is used. `room` gets how much memory the next part needs, and returns whether it is available.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it, or which parent is missing.
    pub fn open(
        bytes: B,
        mut find: impl FnMut(&Parent, usize) -> Option<Result<B, String>>,
        mut room: impl FnMut(u64) -> bool,
    ) -> Result<Self, String> {
        let all = chain::read(&bytes, ANY, &mut room)?;
        // The chain keeps its own copy of parts of the description.
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
                // A defect of an image is a better error than that there is none.
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

    /// The paths of the parents, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.chain.names()
    }

    /// How many parents it has.
    #[must_use]
    pub fn parents(&self) -> usize {
        self.chain.images().count() - 1
    }

    /// Bytes of the pages of all of them.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.chain.images().map(Image::page_bytes).sum()
    }

    /// Bytes of the first image's own pages, and how many they take in its file.
    #[must_use]
    pub fn own_bytes(&self) -> (u64, u64) {
        let own = self.chain.images().next();
        own.map_or((0, 0), |image| (image.page_bytes(), image.stored_bytes()))
    }

    /// Checks all pages of all images, and the other parts that their descriptions do not cover. `done` gets the number
    /// of bytes of each checked piece.
    ///
    /// # Errors
    /// The number of the image, 0 for the first one, and a sentence that says what is wrong with it.
    pub fn check(&mut self, mut done: impl FnMut(u64)) -> Result<(), (usize, String)> {
        for (number, image) in self.chain.images_mut().enumerate() {
            image.check(&mut done).map_err(|why| (number, why))?;
        }
        Ok(())
    }

    /// Reads a page. Returns false if there is none, and so the page is zero.
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

    /// All pages that are not zero, by rising place, of all images: no stretch touches the next one.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        stretches(&self.meta.runs, &self.meta.same)
    }

    /// The description of an image that has all pages itself, and no parent.
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

    /// Writes that image, with its pages compressed or not, and returns its length. `put` gets an offset and bytes: all
    /// in order, and last the header again, when the length is known.
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

/// The pages of these two lists, both in rising order, as one list.
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
