//! How two images differ.

use super::{count, joined, plain, Whole};
use crate::chain::Bytes;
use crate::files::File;
use crate::meta::{Object, Place, Segment, State};
use abi::state::{REGISTER_WORDS, THREAD_WORDS};
use abi::PAGE_SIZE;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;

/// Most differences of one kind that are listed; the others are counted.
pub const NAMED: u64 = 16;

/// The differences, as they are found.
struct Found<'a, W> {
    out: &'a mut W,
    /// How many of the current kind were found.
    named: u64,
    /// How many in all.
    all: u64,
}

impl<W: Write> Found<'_, W> {
    fn say(&mut self, line: &str) -> Result<(), String> {
        self.named += 1;
        self.all += 1;
        if self.named <= NAMED {
            return self.line(line);
        }
        Ok(())
    }

    /// Ends the current kind.
    fn end(&mut self) -> Result<(), String> {
        let more = self.named.saturating_sub(NAMED);
        self.named = 0;
        match more {
            0 => Ok(()),
            more => self.line(&format!("  and {} more", super::grouped(more))),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.out, "{line}").map_err(|_| "cannot print".into())
    }
}

/// Lists how image `b` differs from image `a`, and returns the number of differences. Processes are compared by their
/// numbers, objects and pages by their places; it does not matter which image of a chain has a page.
///
/// # Errors
/// A sentence, if a page cannot be read; those of `out`.
pub fn diff<A: Bytes, B: Bytes>(
    a: &mut Whole<A>,
    b: &mut Whole<B>,
    out: &mut impl Write,
) -> Result<u64, String> {
    let mut found = Found {
        out,
        named: 0,
        all: 0,
    };
    processes(a, b, &mut found)?;
    found.end()?;
    objects(&a.meta.objects, &b.meta.objects, &mut found)?;
    found.end()?;
    files(&a.meta.files, &b.meta.files, &mut found)?;
    found.end()?;
    pages(a, b, &mut found)?;
    found.end()?;
    let all = found.all;
    let sentence = match all {
        0 => "the same processes, objects and pages".into(),
        all => format!("{} in all", count(all, "difference")),
    };
    found.line(&sentence)?;
    Ok(all)
}

fn processes<A, B, W: Write>(
    a: &Whole<A>,
    b: &Whole<B>,
    found: &mut Found<W>,
) -> Result<(), String> {
    let (ours, theirs) = (&a.meta.processes, &b.meta.processes);
    for number in 0..ours.len().max(theirs.len()) {
        let line = match (ours.get(number), theirs.get(number)) {
            (Some(one), Some(other)) if one == other => continue,
            (Some(one), Some(other)) => {
                let (name, other_name) = (plain(&one.name), plain(&other.name));
                match one.part == other.part {
                    _ if name != other_name => {
                        format!("process {number}: {name}, then {other_name}")
                    }
                    false => format!(
                        "process {number}, {name}: its manager's part, of {} and of {} bytes",
                        one.part.len(),
                        other.part.len()
                    ),
                    true => format!("process {number}, {name}: its place among the others"),
                }
            }
            (Some(one), None) => format!("process {number}, {}: only before", plain(&one.name)),
            (None, Some(one)) => format!("process {number}, {}: only then", plain(&one.name)),
            (None, None) => continue,
        };
        found.say(&line)?;
    }
    Ok(())
}

/// Compares the files that they name and do not contain.
fn files<W: Write>(ours: &[File], theirs: &[File], found: &mut Found<W>) -> Result<(), String> {
    let mut all: BTreeMap<(u32, &str), [Option<&File>; 2]> = BTreeMap::new();
    for (n, list) in [ours, theirs].into_iter().enumerate() {
        for file in list {
            all.entry((file.process, &file.path)).or_default()[n] = Some(file);
        }
    }
    for one in all.into_values() {
        let line = match one {
            [Some(a), Some(b)] if a == b => continue,
            [Some(a), Some(b)] if a.about() == b.about() => {
                format!("file {}: written at another time", plain(&a.path))
            }
            [Some(a), Some(b)] => format!("file {}, then {}", a.about(), b.about()),
            [Some(a), None] => format!("file {}: only named before", plain(&a.path)),
            [None, Some(b)] => format!("file {}: only named then", plain(&b.path)),
            [None, None] => continue,
        };
        found.say(&line)?;
    }
    Ok(())
}

fn objects<W: Write>(
    ours: &[Object],
    theirs: &[Object],
    found: &mut Found<W>,
) -> Result<(), String> {
    let (mut one, mut other) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let place = [one.peek(), other.peek()]
            .into_iter()
            .flatten()
            .map(|object| object.place)
            .min();
        let Some(place) = place else {
            return Ok(());
        };
        let ours = one.next_if(|object| object.place == place);
        let theirs = other.next_if(|object| object.place == place);
        let what = match (ours, theirs) {
            (Some(a), Some(b)) if a == b => continue,
            (Some(a), Some(b)) => changed(a, b),
            (Some(_), None) => "only before".into(),
            (None, _) => "only then".into(),
        };
        let kind = ours
            .or(theirs)
            .map_or("", |object| object.state.kind().name());
        found.say(&format!("{kind} at {}: {what}", at(place)))?;
    }
}

/// How two objects differ.
fn changed(a: &Object, b: &Object) -> String {
    match (&a.state, &b.state) {
        (
            State::Thread { words: one, fpu: f },
            State::Thread {
                words: other,
                fpu: g,
            },
        ) => {
            let differ = (0..THREAD_WORDS).filter(|n| one[*n] != other[*n]);
            let (registers, rest): (Vec<_>, Vec<_>) = differ.partition(|n| *n < REGISTER_WORDS);
            let mut all = Vec::new();
            for (number, what) in [(registers.len(), "register"), (rest.len(), "other word")] {
                if number > 0 {
                    all.push(count(number as u64, what));
                }
            }
            if f != g {
                all.push("the FPU".into());
            }
            if a.refs != b.refs {
                all.push("what it refers to".into());
            }
            all.join(", ")
        }
        (one, other) if one.kind() != other.kind() => format!("then a {}", other.kind().name()),
        (one, other) if one == other => "what it refers to".into(),
        _ => "its state".into(),
    }
}

fn pages<A: Bytes, B: Bytes, W: Write>(
    a: &mut Whole<A>,
    b: &mut Whole<B>,
    found: &mut Found<W>,
) -> Result<(), String> {
    let size = PAGE_SIZE as usize;
    let (mut one, mut other) = (vec![0; size], vec![0; size]);
    for (place, bytes) in joined([a.stretches(), b.stretches()].concat()) {
        for offset in (place.offset..place.offset + bytes).step_by(size) {
            let place = Place { offset, ..place };
            a.page(place, &mut one)?;
            b.page(place, &mut other)?;
            let differ = one.iter().zip(&other).filter(|(a, b)| a != b).count();
            if differ > 0 {
                let bytes = count(differ as u64, "byte");
                found.say(&format!("page at {}: {bytes}", at(place)))?;
            }
        }
    }
    Ok(())
}

fn at(place: Place) -> String {
    let segment = match place.segment {
        Segment::Memory => "",
        Segment::Control => "control segment, ",
    };
    format!("{segment}{:#x} of process {}", place.offset, place.process)
}
