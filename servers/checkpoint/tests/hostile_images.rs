//! Tests the readers of images with forged images.
//!
//! Valid descriptions are changed in their structure (fields take values at the edges, objects, runs and processes are
//! doubled, dropped and swapped), in the bytes of their encoding, and in the header; checksums and lengths are then
//! mostly made right again, so that the checks behind them are reached. The outcome of an image (a sentence without its
//! numbers, or acceptance) shows how far it came: images with a new outcome are kept and changed further.
//!
//! For every image: no panic, no more memory than [`most`] allows for its length or than was asked for, and a sentence
//! if it is refused. Accepted images obey the rules that the restorer relies on. `FERMATA_IMAGES=N` tries N images,
//! `FERMATA_SEED=N` others.

use abi::state::{ThreadState, FPU_BYTES, THREAD_WORDS};
use abi::{OBJECT_SIZE, PAGE_SIZE};
use allocated::counted;
use checkpoint_image::chain::{Chain, Image};
use checkpoint_image::file::{self, checksum, Header, HEADER_BYTES};
use checkpoint_image::files::{self, File, Now};
use checkpoint_image::meta::{
    Identity, Kept, Meta, Object, Parent, Place, Process, Run, Same, Segment, State, Target,
};
use checkpoint_image::tool::{diff, dump, show, Whole};
use interface::wire::KEPT_BYTES;
use proto::layout::{CONTROL_SPACE, CONTROL_THREAD};
use std::collections::BTreeMap;

/// Memory that reading an image of this length may take: small values are longer in memory than in the image, and their
/// number is limited. The reader asks for it before it takes it.
fn most(length: usize) -> usize {
    (length * 64 + (64 << 10)).min(length * 4 + (24 << 20))
}

/// For sentences and the like, whose memory is not asked for.
const SLACK: usize = 4 << 10;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }

    /// A number at some edge.
    fn word(&mut self, near: u64) -> u64 {
        let edges = [
            0,
            1,
            7,
            16,
            PAGE_SIZE,
            1 << 20,
            1 << 32,
            1 << 36,
            1 << 47,
            1 << 63,
            u64::MAX,
        ];
        let edge = edges[self.below(edges.len())];
        match self.below(4) {
            0 => edge,
            1 => edge.wrapping_sub(1),
            2 => near.wrapping_add(edge),
            _ => near ^ (1 << self.below(64)),
        }
    }
}

fn place(process: u32, segment: Segment, offset: u64) -> Place {
    Place {
        process,
        segment,
        offset,
    }
}

/// Two processes with one of everything, a member of the second one, and memory that these share.
fn sample() -> Meta {
    use Segment::{Control, Memory};
    let process = |manager: &str| Process {
        manager: manager.into(),
        member: 0,
        shared: false,
        name: "demo".into(),
        part: vec![1, 2, 3],
    };
    // Stopped once, by the save.
    let stopped = ThreadState {
        stop_count: 1,
        ..ThreadState::default()
    };
    let thread = || State::thread(&stopped);
    let space = State::Space {
        flags: 0,
        quota: 1 << 16,
        clock_offset: 5,
        max_priority: 8,
    };
    let objects: Vec<(Place, State, Vec<Target>)> = vec![
        (
            place(0, Memory, 0x1_0000),
            State::Reference,
            vec![Target::Outside("fs".into())],
        ),
        (
            place(0, Memory, 0x1_0010),
            State::Mutex { locked: true },
            vec![],
        ),
        (place(0, Memory, 0x1_0020), State::Cond, vec![]),
        (
            place(0, Memory, 0x1_0030),
            State::Reference,
            vec![Target::Null],
        ),
        (
            place(0, Control, CONTROL_SPACE),
            space.clone(),
            vec![Target::Manager(0)],
        ),
        (
            place(0, Control, CONTROL_THREAD),
            thread(),
            vec![Target::Object(4), Target::Null, Target::Null],
        ),
        (
            place(0, Control, 0x1000),
            State::Mapping {
                start: 0x1000,
                size: 0x2000,
                offset: 0x1000,
                protection: 7,
            },
            vec![Target::Region(0, Memory), Target::Object(4)],
        ),
        (place(1, Memory, 0x2_0000), State::Portset, vec![]),
        (
            place(1, Memory, 0x2_0010),
            State::Port { alias: 9, flags: 1 },
            vec![Target::Object(7)],
        ),
        (
            place(1, Memory, 0x2_0020),
            State::Region {
                start: 0x1000,
                size: 0x1000,
                protection: 3,
            },
            vec![Target::Object(10), Target::Object(8)],
        ),
        (
            place(1, Control, CONTROL_SPACE),
            space,
            vec![Target::Object(8)],
        ),
        (
            place(1, Control, CONTROL_THREAD),
            thread(),
            vec![Target::Object(10), Target::Null, Target::Null],
        ),
    ];
    let objects = objects.into_iter().chain([
        (
            place(2, Control, CONTROL_SPACE),
            State::Space {
                flags: 1,
                quota: 0,
                clock_offset: 5,
                max_priority: 8,
            },
            vec![Target::Manager(2)],
        ),
        (
            place(2, Control, CONTROL_THREAD),
            thread(),
            vec![Target::Object(12), Target::Null, Target::Null],
        ),
    ]);
    let run = |place, pages| Run { place, pages };
    let member = Process {
        member: 1,
        part: Vec::new(),
        ..process("linux")
    };
    let shared = Process {
        member: 2,
        shared: true,
        ..member.clone()
    };
    Meta {
        processes: vec![process("native"), process("linux"), member, shared],
        objects: objects
            .into_iter()
            .map(|(place, state, refs)| Object { place, state, refs })
            .collect(),
        runs: vec![
            run(place(0, Memory, 0x1000), 2),
            run(place(0, Memory, 0x3000), 1),
            run(place(1, Control, 0), 1),
            run(place(3, Memory, 0x1000), 1),
        ],
        parent: Some(Parent {
            path: "/tmp/parent".into(),
            identity: Identity {
                total: 1 << 20,
                clock: 7,
                meta_sum: 1,
                table: 2,
            },
        }),
        same: [(0, 0x4000, 3), (1, 0x2000, 1)]
            .map(|(process, offset, pages)| Same {
                process,
                offset,
                pages,
                theirs: 0,
            })
            .to_vec(),
        files: [(0, "/bin/demo"), (1, "/bin/demo"), (1, "/lib/c")]
            .map(|(process, path)| File {
                process,
                path: path.into(),
                size: 1 << 20,
                written: 5,
                sum: Some(7),
            })
            .to_vec(),
    }
}

/// An image with pages that [`sample`] leaves to its parent: all those of the first process, and more.
fn parent() -> Vec<u8> {
    let mut meta = sample();
    meta.parent = None;
    meta.same.clear();
    meta.runs = vec![Run {
        place: place(0, Segment::Memory, 0x2000),
        pages: 8,
    }];
    image(&mut Random(1), &meta, 0)
}

fn some_target(r: &mut Random) -> Target {
    let n = [0, 1, 4, 5, 8, 10, 11, 12, 63, u32::MAX][r.below(10)];
    match r.below(9) {
        8 => Target::Session(
            ["console", "fs", ""][r.below(3)].into(),
            Box::new(Kept {
                words: [u64::from(n); 7],
                bytes: vec![n as u8; r.below(KEPT_BYTES + 2)],
            }),
        ),
        0 => Target::Null,
        1 => Target::Object(n),
        2 => Target::ClientEnd(n),
        3 => Target::ServerEnd(n),
        4 => Target::Outside(["fs", "memory", "", "nobody"][r.below(4)].into()),
        5 => Target::Manager(n),
        6 => Target::Region(n, Segment::Memory),
        _ => Target::Region(n, Segment::Control),
    }
}

fn change_state(r: &mut Random, state: &mut State) {
    let near = 0x1000;
    match state {
        State::Mapping {
            start,
            size,
            offset,
            protection,
        } => {
            let field = [start, size, offset, protection];
            for (n, field) in field.into_iter().enumerate() {
                if n == r.below(4) {
                    *field = r.word(near);
                }
            }
        }
        State::Region {
            start,
            size,
            protection,
        } => {
            *[start, size, protection][r.below(3)] = r.word(near);
        }
        State::Space {
            flags,
            quota,
            clock_offset,
            max_priority,
        } => *[flags, quota, clock_offset, max_priority][r.below(4)] = r.word(1),
        State::Port { alias, flags } => *[alias, flags][r.below(2)] = r.word(1),
        State::Thread { words, fpu } => match r.below(6) {
            0 => fpu.truncate(r.below(FPU_BYTES + 1)),
            1 => fpu.push(0),
            2 => fpu[r.below(28)] ^= 1 << r.below(8),
            _ => {
                let at = r.below(THREAD_WORDS);
                // Small numbers are stages, codes and counts.
                words[at] = if r.below(2) == 0 {
                    r.below(12) as u64
                } else {
                    r.word(near)
                };
            }
        },
        _ => {
            *state = [
                State::Cond,
                State::Portset,
                State::Reference,
                State::Mutex { locked: false },
            ][r.below(4)]
            .clone();
        }
    }
}

/// One change of the structure.
fn change(r: &mut Random, meta: &mut Meta) {
    let object = r.below(meta.objects.len());
    match r.below(16) {
        14 => {
            let at = r.below(meta.files.len());
            if let Some(file) = meta.files.get_mut(at) {
                match r.below(4) {
                    0 => file.path = ["", "a", "/a\0", "/b", "/lib/c"][r.below(5)].into(),
                    1 => file.size = r.word(file.size),
                    2 => file.process = [0, 1, 2, 3, u32::MAX][r.below(5)],
                    _ => file.sum = None,
                }
            }
        }
        15 if meta.files.len() < 10 => {
            let again = meta.files.clone();
            let times = [1, 1, 400][r.below(3)];
            let again = std::iter::repeat_n(again, times).flatten();
            meta.files.extend(again);
        }
        12 => {
            let at = r.below(meta.same.len());
            if let Some(same) = meta.same.get_mut(at) {
                match r.below(4) {
                    0 => same.pages = [0, 1, 8, 9, u32::MAX][r.below(5)],
                    1 => same.offset = r.word(same.offset),
                    2 => same.process = r.below(4) as u32,
                    _ => same.theirs = [0, 1, 255, 256, u32::MAX][r.below(5)],
                }
            }
        }
        13 => match (r.below(3), &mut meta.parent) {
            (0, parent) => *parent = None,
            (1, Some(parent)) => parent.path = ["", "a", "/a\0", "/b"][r.below(4)].into(),
            _ => {
                let again = meta.same.clone();
                meta.same.extend(again);
            }
        },
        0 | 1 => {
            if let Some(object) = meta.objects.get_mut(object) {
                change_state(r, &mut object.state);
            }
        }
        2 | 3 => {
            if let Some(target) = meta.objects.get_mut(object).and_then(|o| {
                let at = r.below(o.refs.len());
                o.refs.get_mut(at)
            }) {
                *target = some_target(r);
            }
        }
        4 => {
            if let Some(object) = meta.objects.get_mut(object) {
                object.refs.push(Target::Null);
            }
        }
        5 => {
            if let Some(object) = meta.objects.get_mut(object) {
                object.place = match r.below(3) {
                    0 => place(r.below(4) as u32, object.place.segment, object.place.offset),
                    1 => Place {
                        offset: object.place.offset.wrapping_add(OBJECT_SIZE),
                        ..object.place
                    },
                    _ => Place {
                        offset: r.word(object.place.offset),
                        ..object.place
                    },
                };
            }
        }
        6 if !meta.objects.is_empty() => {
            meta.objects.remove(object);
        }
        7 if !meta.objects.is_empty() => {
            let mut new = meta.objects[object].clone();
            new.place.offset = new
                .place
                .offset
                .wrapping_add(OBJECT_SIZE * (1 + r.below(3) as u64));
            meta.objects.insert(object + 1, new);
        }
        8 => {
            let at = r.below(meta.runs.len());
            if let Some(run) = meta.runs.get_mut(at) {
                match r.below(3) {
                    0 => run.pages = [0, 1, 15, 16, u32::MAX][r.below(5)],
                    1 => run.place.offset = r.word(run.place.offset),
                    _ => run.place.process = r.below(3) as u32,
                }
            }
        }
        9 => {
            let at = r.below(meta.processes.len());
            if let Some(process) = meta.processes.get_mut(at) {
                match r.below(5) {
                    4 => process.shared ^= true,
                    3 => process.member = [0, 1, 2, 3, u32::MAX][r.below(5)],
                    0 => process.manager = ["native", "linux", "", "fs"][r.below(4)].into(),
                    1 => process.part = vec![0; r.below(40)],
                    _ => process.name = "x".repeat(r.below(300)),
                }
            }
        }
        10 if meta.processes.len() > 1 => {
            meta.processes.pop();
        }
        _ => {
            if let Some(process) = meta.processes.first().cloned() {
                let times = [1, 1, 70][r.below(3)];
                meta.processes.extend(std::iter::repeat_n(process, times));
            }
        }
    }
}

/// A whole image of these descriptions, its pages zero; `lies` is how many of the description's own bytes are changed
/// before they get their checksum.
fn image(r: &mut Random, meta: &Meta, lies: usize) -> Vec<u8> {
    let mut description = postcard::to_allocvec(meta).unwrap();
    for _ in 0..lies {
        let at = r.below(description.len());
        match r.below(4) {
            0 if !description.is_empty() => {
                description.remove(at);
            }
            1 => description.insert(at, r.below(256) as u8),
            2 if !description.is_empty() => description[at] = [0, 1, 0x7f, 0x80, 0xff][r.below(5)],
            _ if !description.is_empty() => {
                // A length of almost anything.
                let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
                description.splice(at..(at + 1), huge);
            }
            _ => {}
        }
    }
    let runs: Vec<Vec<u8>> = (meta.runs.iter().filter(|run| run.pages <= 64))
        .map(|run| vec![0; run.bytes() as usize])
        .collect();
    let header = Header {
        total: 0,
        meta_bytes: 0,
        meta_sum: 0,
        features: [0; 2],
        clock: 7,
    };
    let compress = r.below(3) == 0;
    let mut image = file::assemble(&header, &description, &runs, compress);
    if compress && r.below(2) == 0 {
        lie_about_pages(r, meta, &mut image);
    }
    image
}

/// Changes the bytes of a run in the file, or their length in the table; the checksum is right.
fn lie_about_pages(r: &mut Random, meta: &Meta, image: &mut [u8]) {
    let Some(header) = image.get(..HEADER_BYTES) else {
        return;
    };
    let header = Header::decode(header, image.len() as u64, [u64::MAX; 2]).unwrap();
    let entry = file::ENTRY_BYTES as usize;
    let Some(table_at) = image.len().checked_sub(entry * meta.runs.len()) else {
        return;
    };
    let Ok(table) = file::Table::decode(&header, meta, &image[table_at..]) else {
        return;
    };
    let number = r.below(meta.runs.len());
    let Some(stored) = table.get(number) else {
        return;
    };
    let at = stored.at as usize;
    let bytes = at..at + stored.bytes as usize;
    let (byte, value) = (at + r.below(bytes.len()), r.below(256) as u8);
    image[byte] = [0, 1, 0x0f, 0xf0, 0xff, value][r.below(6)];
    let sum = checksum(&image[bytes]);
    let entry = &mut image[table_at + number * entry..][..entry];
    entry[..4].copy_from_slice(&sum.to_le_bytes());
    if r.below(8) == 0 {
        let near = u64::from(stored.bytes);
        entry[4..].copy_from_slice(&r.word(near).to_le_bytes()[..4]);
    }
}

/// Changes bytes of the finished image: mostly the header, whose checksum is made right again.
fn damage(r: &mut Random, image: &mut Vec<u8>) {
    match r.below(4) {
        0 => image.truncate(r.below(image.len() + 1)),
        1 => image.extend(vec![0; r.below(100)]),
        2 => {
            let at = r.below(image.len());
            if let Some(byte) = image.get_mut(at) {
                *byte ^= 1 << r.below(8);
            }
        }
        _ => {
            let at = [8, 12, 16, 24, 32, 40, 56][r.below(7)];
            if image.len() >= HEADER_BYTES {
                let word = r.word(image.len() as u64).to_le_bytes();
                image[at..at + 4].copy_from_slice(&word[..4]);
                if r.below(3) > 0 {
                    let sum = checksum(&image[..60]).to_le_bytes();
                    image[60..64].copy_from_slice(&sum);
                }
            }
        }
    }
}

/// The outcome of reading an image: a sentence without its numbers.
fn outcome(image: &[u8]) -> String {
    let mut asked = SLACK;
    let (read, allocated) = counted(|| {
        file::read_description(image, [u64::MAX; 2], |bytes| {
            asked += bytes as usize;
            true
        })
    });
    let took = allocated.most;
    assert!(
        took <= most(image.len()) && took <= asked,
        "an image of {} bytes takes {took} bytes to read, and {asked} were asked for",
        image.len()
    );
    let pages = |(header, meta, rest)| Ok((file::read_pages(&header, &meta, rest)?, meta));
    match read.and_then(pages) {
        Ok((pages, meta)) => {
            assert_eq!(meta.check(), Ok(()));
            assert_eq!(pages.len(), meta.runs.len());
            // The restorer adds the members of a process one after the other.
            for (n, process) in meta.processes.iter().enumerate() {
                let before = n.checked_sub(1).map(|n| &meta.processes[n]);
                let follows = before.is_some_and(|before| {
                    before.member + 1 == process.member && before.manager == process.manager
                });
                assert!(process.member == 0 || follows && process.part.is_empty());
                // Shared memory is followed only by shared memory, and has only pages.
                assert!(!process.shared || process.member > 0);
                assert!(process.shared || process.member == 0 || !meta.processes[n - 1].shared);
                let objects = meta.objects.iter();
                let mut places = objects.map(|object| (object.place, false));
                let mut pages = meta.runs.iter().map(|run| (run.place, true));
                let fits = |(place, is_page): (Place, bool)| {
                    place.process as usize != n || is_page && place.segment == Segment::Memory
                };
                assert!(!process.shared || places.all(fits) && pages.all(fits));
            }
            let parent = parent();
            let parent = Image::open(&parent[..], [u64::MAX; 2], |_| true).expect("it is good");
            match Chain::new(parent, &meta.same) {
                Ok(mut chain) => {
                    let mut page = [1; PAGE_SIZE as usize];
                    for same in &meta.same {
                        let end = same.offset + same.bytes();
                        for offset in (same.offset..end).step_by(PAGE_SIZE as usize) {
                            let found = chain.page(same.theirs, offset, &mut page);
                            assert_eq!(found, Ok(true), "a page that its parent has");
                        }
                    }
                    look_at(image);
                    "taken".to_string()
                }
                Err(_) => "its parent does not have it".to_string(),
            }
        }
        Err(bad) => {
            let text = bad.to_string();
            assert!(
                text.contains(' ') && !text.ends_with('.'),
                "no sentence: {text:?}"
            );
            let plain = |word: &str| match word.starts_with("0x") {
                true => String::from("0x"),
                false => word.chars().filter(|c| !c.is_ascii_digit()).collect(),
            };
            text.split(' ').map(plain).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Runs the tools on an accepted image, if it is the child of the parent that it names. They print only lines for
/// people, a core file is no longer than the mapped memory, and a merged image is accepted and has the same contents.
fn look_at(image: &[u8]) {
    let parent = parent();
    let find = |_: &Parent, number| (number == 0).then(|| Ok(&parent[..]));
    let open = || Whole::open(image, find, |_| true);
    let (Ok(mut whole), Ok(mut again)) = (open(), open()) else {
        return;
    };
    assert_eq!(whole.check(|_| {}), Ok(()));
    // A restore reads only within each file.
    for file in &whole.meta.files {
        let mut bytes = 0;
        let sum = files::sum(file.size, |at, into| {
            bytes += into.len() as u64;
            match at.checked_add(into.len() as u64) {
                Some(end) if end <= file.size => Ok(()),
                _ => Err("behind its end"),
            }
        });
        assert!(sum.is_ok() && bytes <= files::MAX_SUMMED, "{file:?}");
        let said = file.differs(Now::Gone).expect("it differs");
        assert!(said.len() < 400 && said.chars().all(|c| !c.is_control()));
    }
    let mut text = String::new();
    let part = |_: &str, bytes: &[u8]| vec![format!("{} bytes", bytes.len())];
    show::show(&mut whole, part, &mut text).expect("a text");
    assert_eq!(diff::diff(&mut whole, &mut again, &mut text), Ok(0));
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    let pages: u64 = whole.stretches().iter().map(|(_, bytes)| bytes).sum();
    for process in 0..whole.meta.processes.len() as u32 {
        let mut written = 0;
        let made = dump::write(&mut whole, process, |_, bytes| {
            written += bytes.len() as u64;
            Ok(())
        });
        let mappings = whole.meta.objects.len() as u64;
        assert!(
            made.is_err() || written <= 4096 + (pages + 1000) * (1 + mappings),
            "a core file of {written} bytes, of {pages} bytes of pages"
        );
    }
    let mut merged: Vec<u8> = Vec::new();
    let length = whole.write_merged((pages / PAGE_SIZE).is_multiple_of(2), |at, bytes| {
        let at = at as usize;
        merged.resize(merged.len().max(at + bytes.len()), 0);
        merged[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    assert_eq!(length, Ok(merged.len() as u64));
    let none = |_: &Parent, _| None;
    let mut merged = Whole::open(&merged[..], none, |_| true).expect("it is good");
    assert_eq!(
        diff::diff(&mut whole, &mut merged, &mut text),
        Ok(0),
        "{text}"
    );
}

fn number(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => usual,
    }
}

#[test]
fn made_up_images_are_refused_with_a_sentence() {
    let seed = number("FERMATA_SEED", 1);
    let images = number("FERMATA_IMAGES", 100_000);
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut corpus = vec![sample()];
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    for n in 0..images {
        let mut meta = corpus[r.below(corpus.len())].clone();
        for _ in 0..r.below(4) {
            change(&mut r, &mut meta);
        }
        let lies = if r.below(3) == 0 { 1 + r.below(3) } else { 0 };
        let mut bytes = image(&mut r, &meta, lies);
        if r.below(4) == 0 {
            damage(&mut r, &mut bytes);
        }
        let outcome = std::panic::catch_unwind(|| outcome(&bytes))
            .unwrap_or_else(|_| panic!("image {n} of FERMATA_SEED={seed}"));
        let times = reached.entry(outcome).or_insert(0);
        *times += 1;
        let keep = *times == 1 || *times < 40 && r.below(8) == 0;
        if keep && meta.objects.len() < 60 && meta.processes.len() < 8 && meta.files.len() < 10 {
            corpus.push(meta);
        }
    }
    for (outcome, times) in &reached {
        println!("{times:>8}  {outcome}");
    }
    println!(
        "{} outcomes, corpus of {}, seed {seed}",
        reached.len(),
        corpus.len()
    );
    assert!(reached.contains_key("taken"));
    assert!(reached.contains_key("its parent does not have it"));
    if images >= 100_000 {
        assert!(
            reached.len() >= LEAST_OUTCOMES,
            "only {} outcomes",
            reached.len()
        );
    }
}

/// Every seed that was tried reaches at least so many different outcomes.
const LEAST_OUTCOMES: usize = 70;

/// A description of very many very small things takes no more memory than its length allows.
#[test]
fn many_small_things_do_not_fill_the_memory() {
    let mut r = Random(1);
    let mut meta = sample();
    let object = Object {
        place: place(0, Segment::Memory, 0),
        state: State::Cond,
        refs: vec![],
    };
    meta.objects = vec![object; 1 << 20];
    let text = outcome(&image(&mut r, &meta, 0));
    assert_eq!(
        text,
        "the image makes no sense: its description cannot be read"
    );
    let mut meta = sample();
    meta.runs = vec![meta.runs[0]; 1 << 20];
    meta.runs.iter_mut().for_each(|run| run.pages = 0);
    let text = outcome(&image(&mut r, &meta, 0));
    assert_eq!(
        text,
        "the image makes no sense: its description cannot be read"
    );
}

/// The memory of each kind of object is asked for, including references with a session's words.
#[test]
fn what_many_objects_of_a_kind_take_was_asked_for() {
    let mut r = Random(1);
    for first in sample().objects {
        let mut meta = sample();
        let session = Target::Session(
            "console".into(),
            Box::new(Kept {
                words: [u64::MAX; 7],
                bytes: Vec::new(),
            }),
        );
        let refs = [first.refs.clone(), vec![session; 3]];
        for refs in refs {
            let object = Object {
                refs,
                ..first.clone()
            };
            meta.objects = vec![object; 5_000];
            let text = outcome(&image(&mut r, &meta, 0));
            assert!(text.contains("makes no sense"), "{text}");
        }
    }
}
