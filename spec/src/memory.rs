//! Memory as threads see it: the hierarchy of mappings and regions, and access through it.
//!
//! A mapping shows a part of a region in a space; the region exports a range of another space, or
//! physical memory. A page is found by walking down to the frame. Every level can take rights away.

use crate::object::Source;
use crate::{Id, Stop, System};
use abi::{access, Exception, PAGE_SIZE, USER_END};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a frame.
pub type Page = [u8; PAGE_SIZE as usize];
/// Frames and what is in them.
pub type Memory = BTreeMap<u64, Arc<Page>>;

/// Most levels that a walk looks at. A deeper hierarchy, or a cycle, has no pages.
const MAX_DEPTH: u32 = 8;

/// A page that a walk did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The access, in the space where it was made.
    pub address: u64,
    /// The right that it needs.
    pub access: u64,
    /// The region where the walk failed, whose keeper is asked, and the offset in it.
    pub at: Option<(Id, u64)>,
}

/// A page, the right that it is needed for, and the region whose keeper was asked for it.
pub type Missing = (u64, u64, Id);

/// The page around an address.
#[must_use]
pub fn page(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

impl System {
    /// The mapping that covers an address of a space.
    #[must_use]
    pub fn mapping_at(&self, space: Id, address: u64) -> Option<Id> {
        self.mappings_of(space)
            .find(|&(_, start, size)| address >= start && address - start < size)
            .map(|(id, ..)| id)
    }

    /// All mappings into a space: identity, start, size.
    pub(crate) fn mappings_of(&self, space: Id) -> impl Iterator<Item = (Id, u64, u64)> + '_ {
        let all = self.all(abi::Type::Mapping).map(|(id, _)| (id, self.mapping(id)));
        let inside = all.filter(move |(_, m)| m.space == Some(space) && m.size > 0);
        inside.map(|(id, m)| (id, m.start, m.size))
    }

    /// Finds the frame behind an address; the second value says whether it is a device's.
    pub(crate) fn walk(&self, space: Id, address: u64, need: u64) -> Result<(u64, bool), Stop> {
        let failed = |at| Err(Stop::Fault(Fault { address, access: need, at }));
        let (mut space, mut here, mut at) = (space, address, None);
        for _ in 0..MAX_DEPTH {
            let Some(mapping) = self.mapping_at(space, here) else {
                return failed(at);
            };
            let m = self.mapping(self.open(mapping)?);
            if m.protection & need != need {
                return failed(at);
            }
            // A mapping of a dead region, or beyond the end of its region, maps nothing, even if a region above it
            // has a keeper.
            let Some(region) = self.live(m.region, abi::Type::Region) else {
                return failed(None);
            };
            let r = self.region(self.open(region)?);
            let offset = m.offset + (here - m.start);
            if offset >= r.size {
                return failed(None);
            }
            at = Some((region, offset));
            if r.protection & need != need {
                return failed(at);
            }
            match r.source {
                Source::Space => {
                    let Some(next) = self.live(r.space, abi::Type::Space) else {
                        return failed(None);
                    };
                    space = self.open(next)?;
                    here = r.start + offset;
                }
                Source::Memory if !self.machine.frames.contains(&(offset / PAGE_SIZE)) => {
                    return failed(None);
                }
                Source::Memory => return Ok((offset / PAGE_SIZE, false)),
                Source::Device => return Ok(((r.start + offset) / PAGE_SIZE, true)),
            }
        }
        failed(None)
    }

    /// The frame behind an address, for an access by the kernel.
    pub(crate) fn translate(&self, space: Id, address: u64, need: u64) -> Result<u64, Stop> {
        if page(address) >= USER_END {
            return Err(outside(address, need));
        }
        match self.walk(space, address, need)? {
            (_, true) => Err(Stop::Device(address, need)),
            (frame, false) => Ok(frame),
        }
    }

    /// Whether a thread of the space can access the address.
    #[must_use]
    pub fn look(&self, space: Id, address: u64, need: u64) -> bool {
        self.walk(space, address, need).is_ok()
    }

    /// Checks that every page of the range is there.
    pub(crate) fn probe(&self, space: Id, start: u64, length: u64, need: u64) -> Result<(), Stop> {
        if length == 0 {
            return Ok(());
        }
        if start >= USER_END || length > USER_END - start {
            return Err(outside(start, need));
        }
        for at in (page(start)..start + length).step_by(PAGE_SIZE as usize) {
            self.translate(space, at.max(start), need)?;
        }
        Ok(())
    }

    /// Reads bytes, all or none.
    pub(crate) fn read(&self, space: Id, start: u64, length: u64) -> Result<Vec<u8>, Stop> {
        self.probe(space, start, length, access::READ)?;
        let mut bytes = Vec::with_capacity(length as usize);
        let mut at = start;
        while at < start + length {
            let n = (start + length - at).min(PAGE_SIZE - at % PAGE_SIZE);
            let frame = self.translate(space, at, access::READ)?;
            bytes.extend(self.peek(frame, at % PAGE_SIZE, n));
            at += n;
        }
        Ok(bytes)
    }

    /// Writes bytes, all or none.
    pub(crate) fn write(&mut self, space: Id, start: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.probe(space, start, bytes.len() as u64, access::WRITE)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = start + done as u64;
            let n = (bytes.len() - done).min((PAGE_SIZE - at % PAGE_SIZE) as usize);
            let frame = self.translate(space, at, access::WRITE)?;
            self.poke(frame, at % PAGE_SIZE, &bytes[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Reads aligned words.
    pub(crate) fn read_words<const N: usize>(&self, space: Id, at: u64) -> Result<[u64; N], Stop> {
        word_aligned(at)?;
        let bytes = self.read(space, at, N as u64 * 8)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(words)
    }

    /// Writes aligned words, all or none.
    pub(crate) fn write_words(&mut self, space: Id, at: u64, words: &[u64]) -> Result<(), Stop> {
        word_aligned(at)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(space, at, &bytes)
    }

    /// Bytes of a frame.
    #[must_use]
    pub fn peek(&self, frame: u64, offset: u64, length: u64) -> Vec<u8> {
        let range = offset as usize..(offset + length) as usize;
        self.memory.get(&frame).map_or_else(|| vec![0; length as usize], |f| f[range].to_vec())
    }

    /// Changes bytes of a frame.
    pub fn poke(&mut self, frame: u64, offset: u64, bytes: &[u8]) {
        let page = self.memory.entry(frame).or_insert_with(|| Arc::new([0; PAGE_SIZE as usize]));
        Arc::make_mut(page)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Whether a walk still fails where it failed before: at this region, or where no keeper can be asked.
    pub(crate) fn still_missing(&self, space: Id, missing: Missing) -> bool {
        let (address, need, region) = missing;
        match self.walk(space, address, need) {
            Err(Stop::Fault(fault)) => fault.at.is_none_or(|(failed, _)| failed == region),
            _ => false,
        }
    }

    /// The frame behind an offset of a region, if memory is there.
    pub(crate) fn region_frame(&self, region: Id, offset: u64) -> Result<Option<u64>, Stop> {
        let r = self.region(region);
        match (r.source, self.live(r.space, abi::Type::Space)) {
            (Source::Memory, _) => {
                Ok(Some(offset / PAGE_SIZE).filter(|f| self.machine.frames.contains(f)))
            }
            (Source::Space, Some(space)) => match self.walk(space, r.start + offset, 0) {
                Ok((frame, device)) => Ok((!device).then_some(frame)),
                Err(Stop::Vacant(met)) => Err(Stop::Vacant(met)),
                Err(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The first offset at or after `offset` behind which something can be mapped.
    pub(crate) fn next_mapped(&self, region: Id, offset: u64) -> Option<u64> {
        let r = self.region(region);
        if r.source != Source::Space {
            return Some(offset);
        }
        let at = r.start + offset;
        let ahead = self.mappings_of(self.live(r.space, abi::Type::Space)?);
        let next = ahead.filter(|(_, start, size)| start + size > at).map(|(_, start, _)| start);
        next.min().map(|start| start.max(at) - r.start)
    }

    /// The objects of a frame: offset and type, in order.
    pub(crate) fn objects_in(&self, frame: u64) -> Vec<(u64, abi::Type)> {
        let here = self.objects.values().filter(|o| o.place.0 == frame);
        let mut all: Vec<_> = here.map(|o| (o.place.1, o.body.ty())).collect();
        all.sort_unstable();
        all
    }
}

fn outside(address: u64, access: u64) -> Stop {
    Stop::Fault(Fault { address, access, at: None })
}

pub(crate) fn word_aligned(address: u64) -> Result<(), Stop> {
    if address.is_multiple_of(8) {
        Ok(())
    } else {
        Err(Stop::Exception(Exception::Misaligned, address))
    }
}
