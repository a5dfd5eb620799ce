//! The pages of a set of processes that is saved: where they are read, and how they are written to the file.
//!
//! The memory of a process is read from its frozen copy, while the process runs; or, if none can be made, from the
//! process itself, which is stopped then. Control segments are not copied: few of their pages hold anything except
//! objects, and these pages are read while the set is stopped.

use crate::desk::Wanted;
use crate::machine;
use crate::parents::Parents;
use crate::Sentence;
use abi::{Code, OBJECT_SIZE, PAGE_SIZE};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use checkpoint_image::file::{self, Packer};
use checkpoint_image::meta::{Meta, Place, Run, Same, Segment, MAX_RUN};
use checkpoint_image::new::{New, Programs};
use core::cell::Cell;
use proto::layout::MEMORY_SIZE;
use proto::Error;
use rt::access::READ;
use rt::obj::Ref;
use rt::process::Copy;
use rt::window::Window;

/// The memory of a process of the set.
struct Memory {
    region: Ref,
    window: Window,
    /// Set if it is a frozen copy.
    copy: Option<Copy>,
}

impl Memory {
    /// Reads pages that were found present. In a copy they stay present.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Sentence> {
        read(&self.window, offset, into)
    }
}

fn read(window: &Window, offset: u64, into: &mut [u8]) -> Result<(), Sentence> {
    let read = window.read(offset, into);
    read.map_err(|error| format!("reading its pages: {}", error.text()))
}

/// The pages of a set.
pub(crate) struct Pages {
    memory: Vec<Memory>,
    /// The pages of control segments that hold anything except objects.
    control: BTreeMap<Place, Vec<u8>>,
}

impl Pages {
    /// The pages of processes with these memory regions, or these copies.
    pub(crate) fn new(memory: impl Iterator<Item = (Ref, Option<Copy>)>) -> Result<Self, Sentence> {
        let memory = memory.map(|(region, copy)| {
            let window = Window::map(&region, 0, MEMORY_SIZE, READ)
                .map_err(|error| format!("cannot map its memory: {}", error.text()))?;
            Ok(Memory {
                region,
                window,
                copy,
            })
        });
        Ok(Pages {
            memory: memory.collect::<Result<_, Sentence>>()?,
            control: BTreeMap::new(),
        })
    }

    /// Reads the pages of a process's control segment that are to be saved.
    pub(crate) fn keep_control(
        &mut self,
        (process, region, window): (u32, &Ref, &Window),
        meta: &Meta,
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let mut offset = 0;
        while let Some((next, filled)) = filled(region, window, Segment::Control, None, offset)? {
            for offset in filled {
                let place = Place {
                    process,
                    segment: Segment::Control,
                    offset,
                };
                let mut page = vec![0; PAGE_SIZE as usize];
                read(window, offset, &mut page)?;
                without_objects(meta, Run { place, pages: 1 }, &mut page);
                if page.iter().any(|byte| *byte != 0) {
                    wanted.hold(PAGE_SIZE)?;
                    self.control.insert(place, page);
                }
            }
            offset = next;
        }
        Ok(())
    }

    /// The two bytes at an address of a process, as far as they are present.
    pub(crate) fn code_at(&self, process: u32, address: u64) -> Vec<u8> {
        let memory = self.memory.get(process as usize);
        let Some(memory) = memory.filter(|_| address < MEMORY_SIZE - PAGE_SIZE) else {
            return Vec::new();
        };
        let is_last = address % PAGE_SIZE == PAGE_SIZE - 1;
        let mut bytes = vec![0; if is_last { 1 } else { 2 }];
        // Reading must not make an absent page present.
        let page = address & !(PAGE_SIZE - 1);
        let is_there = memory.region.search(page, page + PAGE_SIZE, 1).is_ok();
        match is_there && memory.window.read(address, &mut bytes).is_ok() {
            true => bytes,
            false => Vec::new(),
        }
    }

    /// Lists in the description the pages that hold anything except zeros and objects, and which of them are left to
    /// the parent.
    pub(crate) fn list(
        &self,
        meta: &mut Meta,
        mut parents: Option<&mut Parents>,
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let twins = parents.as_ref().map(|p| p.chain.twins(&meta.processes));
        wanted.begins(0);
        let (mut runs, mut same) = (Vec::new(), Vec::new());
        let mut page = vec![0; PAGE_SIZE as usize];
        for (process, memory) in self.memory.iter().enumerate() {
            let twin = twins.as_ref().and_then(|twins| *twins.get(process)?);
            let process = process as u32;
            let segment = Segment::Memory;
            let mut offset = 0;
            while let Some((next, filled)) = filled(
                &memory.region,
                &memory.window,
                segment,
                memory.copy.as_ref(),
                offset,
            )? {
                wanted.check()?;
                wanted.hold(Meta::PAGE_BYTES * filled.len() as u64)?;
                wanted.has_done(PAGE_SIZE * filled.len() as u64);
                for offset in filled {
                    let place = Place {
                        process,
                        segment,
                        offset,
                    };
                    let has_objects = !meta.objects_in(place, PAGE_SIZE).is_empty();
                    if has_objects || twin.is_some() {
                        self.read(meta, Run { place, pages: 1 }, &mut page)?;
                        if page.iter().all(|byte| *byte == 0) {
                            continue;
                        }
                    }
                    let is_same = match (&mut parents, twin) {
                        (Some(parents), Some(twin)) => parents.has(twin, offset, &page)?,
                        _ => false,
                    };
                    match twin.filter(|_| is_same) {
                        Some(twin) => add_same(&mut same, place, twin),
                        None => add_run(&mut runs, place),
                    }
                }
                offset = next;
            }
            for place in self.control.keys().filter(|p| p.process == process) {
                wanted.hold(Meta::PAGE_BYTES)?;
                add_run(&mut runs, *place);
            }
        }
        // A parent to which no page is left is not needed.
        let parent = parents.filter(|_| !same.is_empty());
        meta.parent = parent.map(|parents| parents.name.clone());
        (meta.runs, meta.same) = (runs, same);
        Ok(())
    }

    /// Reads the pages of a run. The bytes of objects belong to the kernel and read as zero.
    fn read(&self, meta: &Meta, run: Run, into: &mut [u8]) -> Result<(), Sentence> {
        if run.place.segment == Segment::Control {
            for (number, page) in into.chunks_exact_mut(PAGE_SIZE as usize).enumerate() {
                let offset = run.place.offset + number as u64 * PAGE_SIZE;
                let place = Place {
                    offset,
                    ..run.place
                };
                let kept = self.control.get(&place).ok_or("no such page")?;
                page.copy_from_slice(kept);
            }
            return Ok(());
        }
        let memory = self.memory.get(run.place.process as usize);
        let memory = memory.ok_or("no such process")?;
        memory.read(run.place.offset, into)?;
        without_objects(meta, run, into);
        Ok(())
    }

    /// The window on a copy from which the bytes of a run can be written directly, since there are no objects among
    /// them.
    fn as_they_are(&self, meta: &Meta, run: Run) -> Option<&Window> {
        let memory = self.memory.get(run.place.process as usize)?;
        let is_copy = run.place.segment == Segment::Memory && memory.copy.is_some();
        (is_copy && meta.objects_in(run.place, run.bytes()).is_empty()).then_some(&memory.window)
    }

    /// Whether all memory is read from copies, so that the processes may run.
    pub(crate) fn are_copies(&self) -> bool {
        self.memory.iter().all(|memory| memory.copy.is_some())
    }

    /// Whether all pages are of one instant: no copy has lost any contents.
    fn are_intact(&self) -> bool {
        let mut copies = self.memory.iter().filter_map(|memory| memory.copy.as_ref());
        copies.all(|copy| rt::memory::is_intact(&copy.control) == Ok(true))
    }

    /// Gives the memory that the processes share with their copies back to them. If that fails here the memory server
    /// does it when this is dropped.
    pub(crate) fn release(self) {
        for memory in self.memory {
            drop(memory.window);
            if let Some(copy) = &memory.copy {
                let _ = rt::memory::release(&copy.control);
            }
        }
    }

    /// Writes an image, compressed or not, and returns its size in bytes. `None`, and no file, if the copies lost
    /// contents, or leave no memory for the file.
    pub(crate) fn write(
        &self,
        meta: &Meta,
        clock: u64,
        (path, compress): (&str, bool),
        wanted: &Wanted,
    ) -> Result<Option<u64>, Sentence> {
        let head = file::encode(meta, machine::features(), clock);
        let (header, head) = head.map_err(|bad| bad.to_string())?;
        let short = Cell::new(false);
        let on_disk = services::fs::is_on_disk(path);
        let cannot = |error: Error| {
            short.set(error == Error::NoMemory && !on_disk);
            let why = match error {
                // Giving back the copies would not help.
                Error::NoMemory if on_disk => "the disk is full",
                error => error.text(),
            };
            format!("cannot write {path}: {why}")
        };
        let written = (|| {
            let mut out = Out {
                new: New::create(Programs, path).map_err(cannot)?,
                offset: 0,
            };
            out.put(&head).map_err(cannot)?;
            wanted.hold(Packer::memory(meta.runs.len(), compress))?;
            let mut packer = Packer::new(meta.runs.len(), compress);
            let mut buffer = vec![0; file::MAX_RUN_BYTES];
            wanted.begins(meta.page_bytes());
            for run in &meta.runs {
                wanted.check()?;
                wanted.has_done(run.bytes());
                let window = self.as_they_are(meta, *run).filter(|_| !compress);
                if let Some(window) = window {
                    // Written from the window, without a copy.
                    let range = (run.place.offset, run.bytes());
                    let sum = window.crc32c(range.0, range.1).map_err(cannot)?;
                    packer.as_it_is(range.1, sum);
                    out.new
                        .file()
                        .write_window(out.offset, window, range)
                        .map_err(cannot)?;
                    out.offset += range.1;
                    continue;
                }
                let pages = &mut buffer[..run.bytes() as usize];
                if let Err(why) = self.read(meta, *run, pages) {
                    // The copy may have lost contents.
                    return if self.are_intact() {
                        Err(why)
                    } else {
                        Ok(None)
                    };
                }
                out.put(packer.pack(pages)).map_err(cannot)?;
            }
            out.put(packer.table()).map_err(cannot)?;
            if compress {
                // The length is known now.
                let header = packer.header(&header).encode();
                out.new.file().write_all(0, &header).map_err(cannot)?;
            }
            if !self.are_intact() {
                return Ok(None);
            }
            let bytes = out.offset;
            out.new.keep().map_err(cannot)?;
            Ok(Some(bytes))
        })();
        match written {
            // Without the copies there may be memory for the file.
            Err(_) if short.get() && self.are_copies() => Ok(None),
            written => written,
        }
    }
}

/// Adds a page to the runs to be written.
fn add_run(runs: &mut Vec<Run>, place: Place) {
    match runs.last_mut() {
        Some(run)
            if run.pages < MAX_RUN
                && Place {
                    offset: run.place.offset + run.bytes(),
                    ..run.place
                } == place =>
        {
            run.pages += 1;
        }
        _ => runs.push(Run { place, pages: 1 }),
    }
}

/// Adds a page to those that are left to process `theirs` of the parent.
fn add_same(same: &mut Vec<Same>, place: Place, theirs: u32) {
    match same.last_mut() {
        Some(last)
            if last.process == place.process && last.offset + last.bytes() == place.offset =>
        {
            last.pages += 1;
        }
        _ => same.push(Same {
            process: place.process,
            offset: place.offset,
            pages: 1,
            theirs,
        }),
    }
}

/// Zeroes the bytes of objects in the pages of a run.
fn without_objects(meta: &Meta, run: Run, bytes: &mut [u8]) {
    for object in meta.objects_in(run.place, run.bytes()) {
        let at = (object.place.offset - run.place.offset) as usize;
        bytes[at..at + OBJECT_SIZE as usize].fill(0);
    }
}

/// Reads the next few pages of a segment from `offset` on. Returns where to continue, and the pages that are not all
/// zero. `None` behind the last one.
fn filled(
    region: &Ref,
    window: &Window,
    segment: Segment,
    copy: Option<&Copy>,
    offset: u64,
) -> Result<Option<(u64, Vec<u64>)>, Sentence> {
    if let Some(copy) = copy {
        let words = |error: Error| error.text().to_string();
        let present = rt::memory::present_from(&copy.control, offset).map_err(words)?;
        let Some((offset, size)) = present else {
            return Ok(None);
        };
        let mut filled = Vec::with_capacity((size / PAGE_SIZE) as usize);
        for page in (offset..offset + size).step_by(PAGE_SIZE as usize) {
            if !window.is_zero(page, PAGE_SIZE).map_err(words)? {
                filled.push(page);
            }
        }
        return Ok(Some((offset + size, filled)));
    }
    let mut filled = Vec::with_capacity(MAX_RUN as usize);
    let mut next = offset;
    for _ in 0..MAX_RUN {
        match region.search(next, segment.size(), 1) {
            Ok((page, _)) => {
                next = page + PAGE_SIZE;
                match window.is_zero(page, PAGE_SIZE) {
                    // A holder of the process may have removed the page since.
                    Ok(true) | Err(Error::Ended) => {}
                    Ok(false) => filled.push(page),
                    Err(error) => return Err(error.text().to_string()),
                }
            }
            Err(Code::NotFound) => break,
            Err(code) => return Err(format!("searching the process: the kernel says {code:?}")),
        }
    }
    Ok((next > offset).then_some((next, filled)))
}

/// Writes the file from front to back.
struct Out {
    new: New<Programs>,
    offset: u64,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.new.file().write_all(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
