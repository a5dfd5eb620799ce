//! The memory and the threads of a process as a core file, which debuggers read: ELF, as Linux writes it for x86-64
//! (`elf(5)`, `struct elf_prstatus`).
//!
//! The memory is that which the space of the process maps: each mapping is followed through its regions to the segments
//! of the image.

use super::{Stretch, Whole};
use crate::chain::Bytes;
use crate::meta::{thread_state, Meta, Place, Segment, State, Target};
use abi::{PAGE_SIZE, ROLES};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proto::layout::{CONTROL_SPACE, MEMORY_SIZE};

/// Most pieces of memory in a core file: the number of program headers is a `u16`, and its last value has another
/// meaning.
const MAX_PIECES: usize = 0xff00;
/// Most regions that are followed from a mapping (a region can export memory that maps another region, and so on).
const MAX_DEPTH: usize = 8;
/// Most pieces that are found before adjacent ones are joined.
const MAX_FOUND: usize = 1 << 18;
/// Most mappings that are followed, including those of other spaces.
const MAX_SHOWN: usize = 1 << 14;
/// Size of a program header.
const PROGRAM_HEADER: usize = 56;
/// Size of the header.
const HEADER: usize = 64;
/// Size of a thread's status, `struct elf_prstatus`.
const STATUS: usize = 336;
/// The offset of the general registers in it.
const STATUS_REGISTERS: usize = 112;
/// Size of the FPU state for a debugger: the area of `fxsave`.
const FXSAVE: usize = 512;

/// Memory that is to be in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The address in the process.
    address: u64,
    /// Where it is in the image.
    place: Place,
    /// How many bytes of it are in the file.
    bytes: u64,
}

/// Writes a core file of process `number` of the image. `put` gets an offset and bytes; offsets without bytes are zero.
///
/// # Errors
/// A sentence if there is no such process; those of reading and of `put`.
pub fn write<B: Bytes>(
    whole: &mut Whole<B>,
    number: u32,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let place = Place {
        process: number,
        segment: Segment::Control,
        offset: CONTROL_SPACE,
    };
    let space = whole.meta.object_at(place);
    let space =
        space.ok_or_else(|| format!("there is no process {number} in which something runs"))?;
    let pieces = pieces(&whole.meta, whole.stretches(), space).ok_or_else(|| {
        format!("process {number} shows more memory, or in more pieces, than any does")
    })?;
    let notes = notes(&whole.meta, space);
    let headers = HEADER + PROGRAM_HEADER * (pieces.len() + 1);
    put(0, &header(pieces.len() as u16 + 1))?;
    let note = (headers as u64, notes.len() as u64);
    put(HEADER as u64, &program_header(4, 0, note, 0, note.1, 4))?;
    let mut at = (note.0 + note.1).next_multiple_of(PAGE_SIZE);
    put(note.0, &notes)?;
    let mut page = vec![0; PAGE_SIZE as usize];
    for (n, piece) in pieces.into_iter().enumerate() {
        let here = HEADER + PROGRAM_HEADER * (n + 1);
        let head = program_header(
            1,
            7,
            (at, piece.bytes),
            piece.address,
            piece.bytes,
            PAGE_SIZE,
        );
        put(here as u64, &head)?;
        for done in (0..piece.bytes).step_by(PAGE_SIZE as usize) {
            let offset = piece.place.offset + done;
            if whole.page(
                Place {
                    offset,
                    ..piece.place
                },
                &mut page,
            )? {
                put(at + done, &page)?;
            }
        }
        at += piece.bytes;
    }
    Ok(())
}

/// The memory that a space maps and that is not all zero. If there are too many pieces, some of the zeros between them
/// are written, too. `None` if there is more than a process can have.
fn pieces(meta: &Meta, stretches: Vec<Stretch>, space: u32) -> Option<Vec<Piece>> {
    let mut all = Vec::new();
    let mut left = MEMORY_SIZE;
    let mut shown = Shown::new(meta);
    for (start, size, place) in shown.of(space, 0) {
        let first = stretches.partition_point(|(other, bytes)| {
            let end = other.offset + bytes;
            Place {
                offset: end,
                ..*other
            } <= place
        });
        let end = place.offset + size;
        let of = |other: &Place| (other.process, other.segment) == (place.process, place.segment);
        let inside = stretches[first..]
            .iter()
            .take_while(|(other, _)| of(other) && other.offset < end);
        for (other, bytes) in inside {
            let from = other.offset.max(place.offset);
            let to = (other.offset + bytes).min(end);
            left = left.checked_sub(to - from)?;
            if all.len() == MAX_FOUND {
                return None;
            }
            all.push(Piece {
                address: start + (from - place.offset),
                place: Place {
                    offset: from,
                    ..place
                },
                bytes: to - from,
            });
        }
    }
    all.sort_unstable_by_key(|piece| piece.address);
    let mut gap = 0;
    while gap <= MEMORY_SIZE {
        let joined = joined(&all, gap);
        let bytes = joined.iter().map(|piece| piece.bytes);
        if bytes.fold(0, u64::saturating_add) > MEMORY_SIZE {
            return None;
        }
        if joined.len() <= MAX_PIECES {
            return Some(joined);
        }
        gap = 2 * gap + PAGE_SIZE;
    }
    None
}

/// Joins pieces that have at most `gap` bytes between them, both in the process and in the image.
fn joined(all: &[Piece], gap: u64) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in all {
        if let Some(last) = joined.last_mut() {
            let further = piece.address - last.address;
            let offset = last.place.offset.checked_add(further);
            let is_next = offset.is_some_and(|offset| {
                let place = Place {
                    offset,
                    ..last.place
                };
                place == piece.place && further <= last.bytes.saturating_add(gap)
            });
            if is_next {
                last.bytes = last.bytes.max(further + piece.bytes);
                continue;
            }
        }
        joined.push(*piece);
    }
    joined
}

/// The memory that spaces map. The image may be forged, so the search is bounded.
struct Shown<'a> {
    meta: &'a Meta,
    /// The mappings of each space, by their numbers.
    mappings: BTreeMap<u32, Vec<u32>>,
    /// How many more mappings may be followed.
    left: usize,
}

/// Mapped memory: the address, the bytes, and the place in the image. Both ends are at most 2^64.
type Part = (u64, u64, Place);

impl<'a> Shown<'a> {
    fn new(meta: &'a Meta) -> Self {
        let mut mappings: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, object) in (0u32..).zip(&meta.objects) {
            let of = object.refs.get(1);
            if let (State::Mapping { .. }, Some(Target::Object(space))) = (&object.state, of) {
                mappings.entry(*space).or_default().push(number);
            }
        }
        Shown {
            meta,
            mappings,
            left: MAX_SHOWN,
        }
    }

    /// The memory that the mappings of a space map.
    fn of(&mut self, space: u32, depth: usize) -> Vec<Part> {
        let meta = self.meta;
        let mut all = Vec::new();
        let numbers = self.mappings.get(&space).cloned().unwrap_or_default();
        for number in numbers {
            let object = &meta.objects[number as usize];
            let State::Mapping {
                start,
                size,
                offset,
                ..
            } = object.state
            else {
                continue;
            };
            let Some(left) = self.left.checked_sub(1) else {
                break;
            };
            self.left = left;
            if ![start, size, offset]
                .iter()
                .all(|n| n.is_multiple_of(PAGE_SIZE))
            {
                continue;
            }
            let size = size.min(u64::MAX - start);
            match object.refs.first() {
                Some(Target::Region(process, segment)) => {
                    let left = segment.size().saturating_sub(offset);
                    let place = Place {
                        process: *process,
                        segment: *segment,
                        offset,
                    };
                    if left > 0 {
                        all.push((start, size.min(left), place));
                    }
                }
                Some(Target::Object(region)) if depth < MAX_DEPTH => {
                    self.through(*region, (start, size, offset), depth, &mut all);
                }
                _ => {}
            }
        }
        all
    }

    /// The same for a mapping of a region of another space.
    fn through(
        &mut self,
        region: u32,
        (start, size, offset): (u64, u64, u64),
        depth: usize,
        all: &mut Vec<Part>,
    ) {
        let object = self.meta.objects.get(region as usize);
        let Some((
            State::Region {
                start: from,
                size: most,
                ..
            },
            Some(Target::Object(space)),
        )) = object.map(|object| (&object.state, object.refs.first()))
        else {
            return;
        };
        // The mapped range, as addresses of that space.
        let size = size.min(most.saturating_sub(offset));
        let Some(from) = from.checked_add(offset) else {
            return;
        };
        let end = from.saturating_add(size);
        for (address, bytes, place) in self.of(*space, depth + 1) {
            let (low, high) = (address.max(from), (address + bytes).min(end));
            if low < high && low.is_multiple_of(PAGE_SIZE) {
                let offset = place.offset + (low - address);
                let place = Place { offset, ..place };
                all.push((start + (low - from), high - low, place));
            }
        }
    }
}

/// The notes about each thread of a space.
fn notes(meta: &Meta, space: u32) -> Vec<u8> {
    let mut notes = Vec::new();
    let threads = meta
        .objects
        .iter()
        .filter(|object| object.refs.first() == Some(&Target::Object(space)));
    let mut number: u32 = 1;
    for object in threads {
        let State::Thread { words, fpu } = &object.state else {
            continue;
        };
        let state = thread_state(words, fpu);
        let mut status = vec![0; STATUS];
        // Its number, by which debuggers identify threads.
        status[32..36].copy_from_slice(&number.to_le_bytes());
        let registers = state.registers.linux_words(u64::MAX);
        for (at, word) in status[STATUS_REGISTERS..]
            .chunks_exact_mut(8)
            .zip(registers)
        {
            at.copy_from_slice(&word.to_le_bytes());
        }
        status[STATUS - 8] = 1;
        note(&mut notes, 1, &status);
        note(&mut notes, 2, state.fpu.get(..FXSAVE).unwrap_or(&state.fpu));
        number += 1;
    }
    notes
}

fn note(notes: &mut Vec<u8>, kind: u32, bytes: &[u8]) {
    for word in [5, bytes.len() as u32, kind] {
        notes.extend(word.to_le_bytes());
    }
    notes.extend(b"CORE\0\0\0\0");
    notes.extend(bytes);
    notes.resize(notes.len().next_multiple_of(4), 0);
}

fn header(count: u16) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend(4u16.to_le_bytes());
    out.extend(ROLES.machine.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for word in [0, HEADER as u64, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    for half in [HEADER as u16, PROGRAM_HEADER as u16, count, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    out
}

fn program_header(
    kind: u32,
    flags: u32,
    (offset, bytes): (u64, u64),
    address: u64,
    size: u64,
    align: u64,
) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(flags.to_le_bytes());
    for word in [offset, address, 0, bytes, size, align] {
        out.extend(word.to_le_bytes());
    }
    out
}

/// The number of the process with this name, if there is exactly one.
///
/// # Errors
/// A sentence, if there is none or there are several.
pub fn find(meta: &Meta, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let all = meta.processes.iter().enumerate();
    let mut found = all.filter(|(_, process)| !process.shared && process.name == name);
    match (found.next(), found.next()) {
        (Some((number, _)), None) => Ok(number as u32),
        (None, _) => Err(format!(
            "there is no process '{name}'; `image show` lists them"
        )),
        _ => Err(format!(
            "there are several processes '{name}': give a number that `image show` lists"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::sample;
    use crate::meta::Object;

    /// Mappings of a region of their own space map each other, and so on: the search ends.
    #[test]
    fn mappings_of_mappings_have_an_end() {
        let mut meta = sample();
        let is_space = |object: &Object| matches!(object.state, State::Space { .. });
        let space = meta.objects.iter().position(is_space).expect("it has one") as u32;
        let here = Target::Object(space);
        let mapping = |start, region| Object {
            place: meta.objects[0].place,
            state: State::Mapping {
                start,
                size: PAGE_SIZE,
                offset: 0,
                protection: 7,
            },
            refs: vec![region, here.clone()],
        };
        let region = Object {
            place: meta.objects[0].place,
            state: State::Region {
                start: 0,
                size: MEMORY_SIZE,
                protection: 7,
            },
            refs: vec![here.clone(), Target::Null],
        };
        let number = Target::Object(meta.objects.len() as u32);
        let mut more = vec![region, mapping(0, Target::Region(0, Segment::Memory))];
        more.extend((0..6).map(|_| mapping(0, number.clone())));
        meta.objects.extend(more);
        let mut shown = Shown::new(&meta);
        let parts = shown.of(space, 0);
        assert!(
            parts.len() > MAX_DEPTH && parts.len() <= MAX_SHOWN,
            "S1: looking at an image takes as long as somebody likes: {} parts",
            parts.len()
        );
    }

    fn piece(address: u64, offset: u64, bytes: u64) -> Piece {
        let place = Place {
            process: 0,
            segment: Segment::Memory,
            offset,
        };
        Piece {
            address,
            place,
            bytes,
        }
    }

    /// At the ends of all addresses, too.
    #[test]
    fn pieces_that_belong_together_are_joined() {
        let page = PAGE_SIZE;
        let both = [piece(0, page, page), piece(2 * page, 3 * page, page)];
        assert_eq!(joined(&both, 0), both);
        assert_eq!(joined(&both, page), [piece(0, page, 3 * page)]);
        assert_eq!(joined(&both, u64::MAX), [piece(0, page, 3 * page)]);
        let far = [piece(0, page, page), piece(u64::MAX - 0xffff, page, page)];
        assert_eq!(joined(&far, u64::MAX), far);
    }

    /// Overlapping mappings with many pieces cannot be joined, and their number is limited.
    #[test]
    fn too_many_pieces_are_refused() {
        let mut meta = sample();
        let is_space = |object: &Object| matches!(object.state, State::Space { .. });
        let space = meta.objects.iter().position(is_space).expect("it has one") as u32;
        meta.objects
            .retain(|object| !matches!(object.state, State::Mapping { .. }));
        let place = meta.objects[0].place;
        meta.objects.extend((0..4096).map(|n| Object {
            place,
            state: State::Mapping {
                start: n * PAGE_SIZE,
                size: 1 << 30,
                offset: 0,
                protection: 7,
            },
            refs: vec![Target::Region(0, Segment::Memory), Target::Object(space)],
        }));
        let run = |n: u64| crate::meta::Run {
            place: Place {
                process: 0,
                segment: Segment::Memory,
                offset: 2 * n * PAGE_SIZE,
            },
            pages: 1,
        };
        meta.runs = (0..4096).map(run).collect();
        let stretches = super::super::stretches(&meta.runs, &[]);
        assert_eq!(pieces(&meta, stretches, space), None, "S1: no bound");
    }
}
