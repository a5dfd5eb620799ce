//! A hostile client of the checkpointer: it restores what it has saved, unchanged and from images that lie about
//! everything with correct checksums.

use super::counters::{Counters, Outcome, IMAGES};
use super::table::{IDLE, PLACE, PROGRAM};
use super::Sentence;
use crate::harness::Random;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use checkpoint_image::file::{assemble, read_all, Header};
use checkpoint_image::meta::{Meta, Object, Place, Segment, State, Target};
use proto::Error;
use rt::fs;
use rt::process::{Client, Process};
use services::process::{Start, Stdio};

/// An image and its content.
pub(super) struct Image {
    header: Header,
    pub(super) meta: Meta,
    pages: Vec<Vec<u8>>,
    /// Whether it is written compressed.
    compress: bool,
}

/// Starts a process to be saved.
fn subject(random: &mut Random) -> Result<Process, Error> {
    let (manager, path, args) = match random.below(2) {
        0 => ("native", PROGRAM, &["services", IDLE][..]),
        _ => ("linux", "/bin/busybox", &["busybox", "sleep", "100000"][..]),
    };
    let start = Start {
        args: args.iter().map(ToString::to_string).collect(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        cwd: "/".to_string(),
        ..Start::default()
    };
    Client::new(manager)?.spawn(path, &start, &[])
}

fn end(process: &Process) {
    let _ = process.kill();
    let _ = process.reap();
}

/// A number: sometimes the right one, sometimes not.
fn number(random: &mut Random, meant: u64) -> u64 {
    let edges = [
        0,
        16,
        4096,
        1 << 16,
        1 << 22,
        1 << 32,
        1 << 36,
        1 << 47,
        1 << 63,
        u64::MAX,
    ];
    let edge = edges[random.below(edges.len() as u64) as usize];
    match random.below(4) {
        0 => meant ^ 1 << random.below(64),
        1 => edge.wrapping_sub(random.below(3) * 16),
        2 => random.below(1 << 16) << 4,
        _ => random.number(),
    }
}

/// Another target of a reference.
fn target(random: &mut Random, meta: &Meta) -> Target {
    let any = random.below(meta.objects.len() as u64 + 1) as u32;
    match random.below(8) {
        0 => Target::Null,
        1 | 2 => Target::Object(any),
        3 => Target::ClientEnd(any),
        4 => Target::ServerEnd(any),
        5 => Target::Manager(random.below(2) as u32),
        6 => Target::Region(0, Segment::Control),
        _ => Target::Outside("fs".to_string()),
    }
}

/// Changes a part of an object.
fn change(random: &mut Random, object: &mut Object) {
    let mut any = |word: &mut u64| *word = number(random, *word);
    match &mut object.state {
        State::Mapping {
            start,
            size,
            offset,
            protection,
        } => [start, size, offset, protection].map(any)[0],
        State::Region {
            start,
            size,
            protection,
        } => [start, size, protection].map(any)[0],
        State::Port { alias, flags } => [alias, flags].map(any)[0],
        State::Space {
            flags,
            quota,
            max_priority,
            ..
        } => [flags, quota, max_priority].map(any)[0],
        State::Thread { words, .. } => {
            let at = random.below(words.len() as u64) as usize;
            words[at] = number(random, words[at]);
        }
        _ => any(&mut object.place.offset),
    }
}

impl Image {
    pub(super) fn read(path: &str) -> Result<Self, Sentence> {
        let bytes = fs::read_all(path).map_err(|error| error.text().to_string())?;
        let (header, meta, pages) =
            read_all(&bytes, [u64::MAX; 2]).map_err(|bad| bad.to_string())?;
        Ok(Image {
            header,
            meta,
            pages,
            compress: false,
        })
    }

    /// The file, with correct checksums and lengths.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let description = postcard::to_allocvec(&self.meta).unwrap_or_default();
        let runs: Vec<Vec<u8>> = (self.meta.runs.iter().zip(&self.pages))
            .map(|(run, page)| {
                let mut page = page.clone();
                page.resize((run.bytes() as usize).min(1 << 16), 0);
                page
            })
            .collect();
        assemble(&self.header, &description, &runs, self.compress)
    }

    /// Changes something; the file is then written as if it were right.
    fn lie(&mut self, random: &mut Random) {
        let meta = &mut self.meta;
        let one = random.below(meta.objects.len() as u64) as usize;
        match random.below(10) {
            0 => {
                let run = random.below(meta.runs.len() as u64) as usize;
                if let Some(run) = meta.runs.get_mut(run) {
                    run.place.offset = number(random, run.place.offset) & !4095;
                    run.pages = random.below(17) as u32;
                }
            }
            1 => {
                if let Some(process) = meta.processes.first_mut() {
                    let at = random.below(process.part.len() as u64) as usize;
                    if let Some(byte) = process.part.get_mut(at) {
                        *byte = random.number() as u8;
                    }
                }
            }
            2 => {
                if one < meta.objects.len() {
                    meta.objects.remove(one);
                }
            }
            3 => self.many(random),
            4 | 5 => {
                let target = target(random, meta);
                if let Some(object) = meta.objects.get_mut(one) {
                    let at = random.below(object.refs.len() as u64) as usize;
                    if let Some(reference) = object.refs.get_mut(at) {
                        *reference = target;
                    }
                }
            }
            _ => {
                if let Some(object) = meta.objects.get_mut(one) {
                    change(random, object);
                }
            }
        }
    }

    /// Adds more objects than any process has, behind the present ones.
    fn many(&mut self, random: &mut Random) {
        let offset = 60 << 30;
        for n in 0..1 + random.below(8000) {
            let place = Place {
                process: 0,
                segment: Segment::Memory,
                offset: offset + n * 16,
            };
            let behind = self
                .meta
                .objects
                .partition_point(|object| object.place < place);
            let (state, refs) = match random.below(3) {
                0 => (State::Cond, Vec::new()),
                1 => (State::Mutex { locked: true }, Vec::new()),
                _ => (State::Reference, [Target::Null].to_vec()),
            };
            let object = Object { place, state, refs };
            self.meta.objects.insert(behind, object);
        }
    }
}

/// A file of this size that begins with these bytes.
fn write(path: &str, bytes: &[u8], size: u64) -> Result<(), Error> {
    fs::write_all(path, bytes, 0o644)?;
    let file = fs::File::open(path, fs::Flags::default(), 0)?;
    fs::truncate(file.ino(), size)
}

/// Saves a process and restores it in every form.
fn round(random: &mut Random, counters: &Counters, path: &str) -> Result<(), Sentence> {
    let words = |error: Error| -> String { error.text().to_string() };
    let process = subject(random).map_err(words)?;
    let saved = rt::checkpoint::save(&[process.port().at()], path);
    end(&process);
    saved?;
    let image = Image::read(path)?;
    for _ in 0..6 {
        let header = image.header;
        match random.below(4) {
            // Unchanged.
            0 => write(path, &image.bytes(), header.total),
            // With another length than the header says.
            1 => write(path, &image.bytes(), number(random, header.total)),
            // A length and a description that are outside of the file.
            2 => {
                let total = number(random, header.total) & ((1 << 46) - 1);
                let lying = Header {
                    total,
                    meta_bytes: number(random, header.meta_bytes) & 0x1ff_ffff,
                    ..header
                };
                write(path, &lying.encode(), total)
            }
            _ => {
                let mut lying = Image {
                    header,
                    meta: image.meta.clone(),
                    pages: image.pages.clone(),
                    compress: random.below(2) == 0,
                };
                for _ in 0..1 + random.below(3) {
                    lying.lie(random);
                }
                let bytes = lying.bytes();
                write(path, &bytes, bytes.len() as u64)
            }
        }
        .map_err(words)?;
        match rt::checkpoint::restore(path) {
            Ok(processes) => {
                counters.count(IMAGES, Outcome::Done);
                for (_, _, process) in processes {
                    end(&process);
                }
            }
            Err(_) => counters.count(IMAGES, Outcome::Refused),
        }
    }
    Ok(())
}

/// The program.
pub fn run(seed: u64) -> u8 {
    let Some(Ok(counters)) = rt::start::passed(0).map(Counters::at) else {
        return 1;
    };
    let mut random = Random(seed);
    let path = format!("{PLACE}/image{seed}");
    loop {
        // This fails if other clients have all processes or all files of the job.
        if round(&mut random, &counters, &path).is_err() {
            counters.count(IMAGES, Outcome::Code);
            rt::time::sleep(1_000_000);
        }
    }
}
