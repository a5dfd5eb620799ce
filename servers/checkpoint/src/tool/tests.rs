//! Made-up images, and the output of the tools.

use super::*;
use crate::file::Packer;
use crate::meta::tests::sample;
use crate::meta::{Identity, Segment};
use abi::Type;
use alloc::collections::BTreeMap;

const FEATURES: [u64; 2] = [3, 5];

/// An image with this description; `fill` returns the value of a page's bytes.
fn image(meta: &Meta, fill: impl Fn(Place) -> u8) -> Vec<u8> {
    let encoded = file::encode(meta, FEATURES, 12_000_000_345);
    let (_, head) = encoded.expect("it makes sense");
    let (mut pages, mut packer) = (Vec::new(), Packer::new(meta.runs.len(), false));
    for run in &meta.runs {
        let mut bytes = Vec::new();
        for n in 0..u64::from(run.pages) {
            let offset = run.place.offset + n * PAGE_SIZE;
            bytes.resize(
                bytes.len() + PAGE_SIZE as usize,
                fill(Place {
                    offset,
                    ..run.place
                }),
            );
        }
        pages.extend_from_slice(packer.pack(&bytes));
    }
    [&head[..], &pages, packer.table()].concat()
}

fn run(offset: u64, pages: u32) -> Run {
    let place = Place {
        process: 0,
        segment: Segment::Memory,
        offset,
    };
    Run { place, pages }
}

fn same(offset: u64, pages: u32) -> Same {
    Same {
        process: 0,
        offset,
        pages,
        theirs: 0,
    }
}

fn whole(bytes: &[u8]) -> Whole<&[u8]> {
    Whole::open(bytes, |_, _| None, |_| true).expect("it is good")
}

/// Three images, each the child of the next one.
fn three() -> [Vec<u8>; 3] {
    let first = Meta {
        runs: vec![run(0x10_0000, 15), run(0x10_f000, 5), run(0x81_0000, 1)],
        ..without_pages()
    };
    let first = image(&first, |place| (place.offset >> 12) as u8);
    let mut second = Meta {
        runs: vec![run(0x10_1000, 1), run(0x90_0000, 2)],
        same: vec![same(0x10_0000, 1), same(0x10_2000, 18)],
        ..without_pages()
    };
    second.parent = Some(parent("/tmp/one", &first));
    let second = image(&second, |_| 0xbb);
    let mut third = Meta {
        runs: vec![run(0x10_3000, 1), run(0x90_1000, 1)],
        same: vec![same(0x10_0000, 3), same(0x10_4000, 16), same(0x90_0000, 1)],
        ..without_pages()
    };
    third.parent = Some(parent("/tmp/two", &second));
    [image(&third, |_| 0xcc), second, first]
}

fn without_pages() -> Meta {
    Meta {
        runs: Vec::new(),
        ..sample()
    }
}

fn parent(path: &str, bytes: &[u8]) -> Parent {
    Parent {
        path: path.into(),
        identity: identity(bytes),
    }
}

fn identity(bytes: &[u8]) -> Identity {
    let image = Image::open(bytes, ANY, |_| true).expect("it is good");
    image.identity()
}

fn opened(images: &[Vec<u8>; 3]) -> Whole<&[u8]> {
    let find = |parent: &Parent| match parent.path.as_str() {
        "/tmp/two" => Ok(&images[1][..]),
        "/tmp/one" => Ok(&images[2][..]),
        other => Err(format!("nobody asked for {other}")),
    };
    Whole::open(&images[0][..], only(find), |_| true).expect("they are good")
}

/// There is one place where an image could be.
fn only<B>(
    find: impl Fn(&Parent) -> Result<B, String>,
) -> impl Fn(&Parent, usize) -> Option<Result<B, String>> {
    move |parent, number| (number == 0).then(|| find(parent))
}

#[test]
fn the_first_place_where_the_image_is_that_is_meant_is_taken() {
    let images = three();
    let open = |places: &dyn Fn(&str) -> Vec<Result<usize, &str>>| {
        let find = |parent: &Parent, number: usize| {
            let place = places(&parent.path).into_iter().nth(number)?;
            let bytes = place.map(|number| &images[number][..]);
            Some(bytes.map_err(ToString::to_string))
        };
        let whole = Whole::open(&images[0][..], find, |_| true);
        whole.map(|whole| whole.parents())
    };
    let gone = "it is not there";
    // The file beside it under that name is the image itself, another one, or missing.
    for other in [Ok(0), Ok(2), Err(gone)] {
        let whole = open(&|path| match path {
            "/tmp/two" => vec![other, Ok(1), Err(gone)],
            _ => vec![Ok(2), Ok(0)],
        });
        assert_eq!(whole, Ok(2), "{other:?}");
    }
    for (places, wanted) in [
        (vec![Err(gone), Err("nor here")], gone),
        (
            vec![Err(gone), Ok(0)],
            "it is another image than the one that is meant",
        ),
        (
            vec![Ok(0), Err(gone)],
            "it is another image than the one that is meant",
        ),
        (vec![], "it is missing"),
    ] {
        let refused = open(&|_| places.clone()).expect_err("S2: another image is taken");
        assert_eq!(refused, format!("/tmp/two, on which it is based: {wanted}"));
    }
}

fn first_byte(whole: &mut Whole<&[u8]>, offset: u64) -> u8 {
    let mut page = [1; PAGE_SIZE as usize];
    let place = run(offset, 1).place;
    whole.page(place, &mut page).expect("it is good");
    page[0]
}

#[test]
fn a_chain_becomes_one_image_with_the_same_pages() {
    let images = three();
    let mut chain = opened(&images);
    assert_eq!(chain.parents(), 2);
    let merge = |chain: &mut Whole<&[u8]>, compress| {
        let mut merged: Vec<u8> = Vec::new();
        let length = chain.write_merged(compress, |at, bytes| {
            let at = at as usize;
            merged.resize(merged.len().max(at + bytes.len()), 0);
            merged[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        assert_eq!(length, Ok(merged.len() as u64));
        merged
    };
    let merged = merge(&mut chain, false);
    // A compressed image has the same pages, and merges to the same image.
    let packed = merge(&mut chain, true);
    assert!(packed.len() < merged.len() / 4);
    assert_eq!(merge(&mut whole(&packed), false), merged);
    assert_eq!(merge(&mut whole(&merged), true), packed);
    let read = |image| file::read_all(image, FEATURES).expect("it is good");
    assert_eq!(read(&packed).2, read(&merged).2);
    let (header, meta, _) = file::read_all(&merged, FEATURES).expect("it is good");
    assert_eq!((header.clock, header.features), (12_000_000_345, FEATURES));
    assert_eq!((&meta.parent, meta.same.len()), (&None, 0));
    assert_eq!(meta.objects, chain.meta.objects);
    let mut merged = whole(&merged);
    for (offset, is) in [
        (0x0f_f000, 0),
        (0x10_0000, 0),
        (0x10_1000, 0xbb),
        (0x10_2000, 2),
        (0x10_3000, 0xcc),
        (0x10_4000, 4),
        (0x11_3000, 0x13),
        (0x11_4000, 0),
        // Left out by a later image, since the page had become zero.
        (0x81_0000, 0),
        (0x90_0000, 0xbb),
        (0x90_1000, 0xcc),
    ] {
        assert_eq!(first_byte(&mut chain, offset), is, "{offset:#x}");
        assert_eq!(
            first_byte(&mut merged, offset),
            is,
            "A1: merged, {offset:#x}"
        );
    }
    let mut text = String::new();
    assert_eq!(diff::diff(&mut chain, &mut merged, &mut text), Ok(0));
    assert_eq!(text, "the same processes, objects and pages\n");
}

#[test]
fn a_missing_or_damaged_image_is_named() {
    let images = three();
    let why = |bytes: &[u8], find: &dyn Fn(&str) -> Result<Vec<u8>, String>| {
        let images: BTreeMap<_, _> = ["/tmp/one", "/tmp/two"]
            .map(|path| (path, find(path)))
            .into();
        let find = |parent: &Parent| match &images[parent.path.as_str()] {
            Ok(bytes) => Ok(&bytes[..]),
            Err(why) => Err(why.clone()),
        };
        match Whole::open(bytes, only(find), |_| true) {
            Ok(mut whole) => whole
                .check(|_| {})
                .err()
                .map(|(n, why)| format!("{n}: {why}")),
            Err(why) => Some(why),
        }
    };
    let good = |path: &str| match path {
        "/tmp/two" => Ok(images[1].clone()),
        _ => Ok(images[2].clone()),
    };
    assert_eq!(why(&images[0], &good), None);
    let without = |path: &str| match path {
        "/tmp/one" => Err("it is not there".into()),
        path => good(path),
    };
    let sentence = why(&images[0], &without).expect("A9: a chain without an end");
    assert_eq!(sentence, "/tmp/one, on which it is based: it is not there");
    let another = |_: &str| Ok(images[2].clone());
    let sentence = why(&images[0], &another).expect("S2: another image is taken for the parent");
    assert!(
        sentence.starts_with("/tmp/two, on which it is based: it is another image"),
        "{sentence}"
    );
    // A page of the last image, and the padding before its pages.
    for at in [images[2].len() - 100 * ENTRY, PAGE_SIZE as usize - 1] {
        let damaged = |path: &str| {
            let mut bytes = good(path)?;
            if path == "/tmp/one" {
                bytes[at] ^= 1;
            }
            Ok(bytes)
        };
        let sentence = why(&images[0], &damaged).expect("A9: damage is not found");
        assert!(
            sentence.starts_with("2: the image is damaged"),
            "{sentence}"
        );
    }
}

/// A change of any byte of any image is found.
#[test]
fn each_altered_byte_is_found() {
    let mut images = three();
    let mut altered = 0;
    for number in 0..images.len() {
        for at in (0..images[number].len()).step_by(211) {
            images[number][at] ^= 0x10;
            let find = |parent: &Parent| match parent.path.as_str() {
                "/tmp/two" => Ok(&images[1][..]),
                _ => Ok(&images[2][..]),
            };
            let checked = Whole::open(&images[0][..], only(find), |_| true)
                .and_then(|mut whole| whole.check(|_| {}).map_err(|(_, why)| why));
            assert!(checked.is_err(), "A9: byte {at} of image {number}");
            images[number][at] ^= 0x10;
            altered += 1;
        }
    }
    assert!(altered > 500, "{altered}");
}

const ENTRY: usize = file::ENTRY_BYTES as usize;

#[test]
fn what_differs_is_named_and_bounded() {
    let images = three();
    let (mut new, mut old) = (opened(&images), whole(&images[2]));
    let mut text = String::new();
    let count = diff::diff(&mut old, &mut new, &mut text);
    assert_eq!(count, Ok(5));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "page at 0x101000 of process 0: 4,096 bytes",
            "page at 0x103000 of process 0: 4,096 bytes",
            "page at 0x810000 of process 0: 4,096 bytes",
            "page at 0x900000 of process 0: 4,096 bytes",
            "page at 0x901000 of process 0: 4,096 bytes",
            "5 differences in all",
        ]
    );
    // More differences than are listed; a thread that has run; a missing process.
    let mut meta = without_pages();
    meta.runs = vec![run(0, 15), run(0xf000, 15)];
    let other = image(&meta, |_| 1);
    let thread = meta
        .objects
        .iter_mut()
        .find(|object| object.state.kind() == Type::Thread);
    if let Some(crate::meta::State::Thread { words, .. }) = thread.map(|object| &mut object.state) {
        words[0] ^= 1;
        words[3] ^= 1;
    }
    meta.runs.clear();
    meta.processes[0].part.push(9);
    meta.processes[1].name = "another\nname".into();
    let one = image(&meta, |_| 0);
    let mut text = String::new();
    let count = diff::diff(&mut whole(&one), &mut whole(&other), &mut text);
    assert_eq!(count, Ok(33));
    assert!(
        text.contains("\n  and 14 more\n33 differences in all\n"),
        "{text}"
    );
    assert!(
        text.contains("its manager's part, of 4 and of 3 bytes"),
        "{text}"
    );
    assert!(text.contains("another\\nname, then"), "{text}");
    assert!(text.contains(": 2 registers"), "{text}");
}

#[test]
fn what_is_shown_is_what_is_there() {
    let images = three();
    let mut text = String::new();
    let mut parts = Vec::new();
    let part = |manager: &str, bytes: &[u8]| {
        parts.push((String::from(manager), bytes.len()));
        vec!["a line\x1b[2J".into()]
    };
    show::show(&mut opened(&images), part, &mut text).expect("a text");
    let meta = sample();
    assert_eq!(parts.len(), meta.processes.len());
    for line in [
        "taken:      12.000000345 s after its machine began\n",
        "the features 0x3 and 0x5\n",
        "based on:   2 images; the first one is /tmp/two, of ",
        "2 pages here, 20 in what it is based on\n",
        "a line\\u{1b}[2J\n",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let threads = meta
        .objects
        .iter()
        .filter(|object| object.state.kind() == Type::Thread);
    let lines = text.lines().skip_while(|line| *line != "threads:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  ")).count();
    assert_eq!(lines, threads.count(), "{text}");
}

#[test]
fn a_core_file_has_memory_and_registers() {
    let mut meta = without_pages();
    // The registers of the first thread of process 0.
    let place = |offset| Place {
        process: 0,
        segment: Segment::Control,
        offset,
    };
    let thread = meta
        .object_at(place(proto::layout::CONTROL_THREAD))
        .expect("it has one");
    let state = &mut meta.objects[thread as usize].state;
    let crate::meta::State::Thread { words, fpu } = state else {
        panic!("{state:?}");
    };
    let mut changed = crate::meta::thread_state(words, fpu);
    (
        changed.registers.rip,
        changed.registers.rsp,
        changed.registers.rax,
    ) = (0x1234, 0x2ff0, 77);
    meta.objects[thread as usize].state = crate::meta::State::thread(&changed);
    // The memory that its space maps, some of it at another address.
    let maps: Vec<_> = meta
        .objects
        .iter()
        .filter_map(|object| match (&object.state, &object.refs[..]) {
            (
                crate::meta::State::Mapping {
                    start,
                    size,
                    offset,
                    ..
                },
                [region, _],
            ) => Some((*start, *size, *offset, region.clone())),
            _ => None,
        })
        .collect();
    assert!(!maps.is_empty(), "the sample shows something");
    meta.runs = vec![run(0x1000, 2), run(0x40_0000, 1)];
    let bytes = image(&meta, |place| (place.offset >> 12) as u8 + 1);
    let mut core = Vec::new();
    dump::write(&mut whole(&bytes), 0, |at, bytes| {
        let end = at as usize + bytes.len();
        core.resize(core.len().max(end), 0);
        core[at as usize..end].copy_from_slice(bytes);
        Ok(())
    })
    .expect("there is such a process");
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| u16::from_le_bytes(core[at..at + 2].try_into().expect("2 bytes"));
    assert_eq!((&core[..4], half(16), half(18)), (&b"\x7fELF"[..], 4, 62));
    let heads: Vec<_> = (0..usize::from(half(56))).map(|n| 64 + 56 * n).collect();
    // The first header is that of the notes, and the first note has the registers of a thread.
    let notes = word(heads[0] + 8) as usize;
    assert_eq!(&core[notes + 12..notes + 16], b"CORE");
    let registers = notes + 20 + 112;
    assert_eq!(
        (word(registers + 8 * 16), word(registers + 8 * 19)),
        (0x1234, 0x2ff0)
    );
    assert_eq!(word(registers + 8 * 10), 77);
    // Each page that is mapped is at its address.
    let mut seen = 0;
    for head in &heads[1..] {
        let (at, address, bytes) = (word(head + 8) as usize, word(head + 16), word(head + 32));
        for done in (0..bytes).step_by(PAGE_SIZE as usize) {
            let address = address + done;
            let of = |(start, size, offset, _): &&(u64, u64, u64, _)| {
                (*start..start + size)
                    .contains(&address)
                    .then_some(address - start + offset)
            };
            let (place, region) = maps
                .iter()
                .find_map(|map| Some((of(&map)?, &map.3)))
                .expect("A1: it is mapped");
            if *region == crate::meta::Target::Region(0, Segment::Memory) {
                let is = if [0x1000, 0x2000, 0x40_0000].contains(&place) {
                    (place >> 12) as u8 + 1
                } else {
                    0
                };
                assert_eq!(core[at + done as usize], is, "A1: {address:#x}");
                seen += u32::from(is != 0);
            }
        }
    }
    assert!(seen > 0, "A1: no page is there");
    let missing = dump::write(&mut whole(&bytes), 99, |_, _| Ok(()));
    assert!(missing
        .expect_err("there is none")
        .contains("no process 99"));
}
