//! Shows the contents of an image, for people.

use super::{count, grouped, plain, Whole};
use crate::chain::Bytes;
use crate::doing;
use crate::meta::{Meta, Place, Segment, State};
use abi::{Type, PAGE_SIZE};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Writes the contents of an image. `part` returns the lines for a manager's part, or why it
/// cannot.
///
/// # Errors
/// Those of `out`.
pub fn show<B: Bytes>(
    whole: &mut Whole<B>,
    mut part: impl FnMut(&str, &[u8]) -> Vec<String>,
    out: &mut impl Write,
) -> fmt::Result {
    let header = whole.header;
    writeln!(out, "bytes:      {}", grouped(header.total))?;
    let (own, stored) = whole.own_bytes();
    if stored < own {
        let (own, stored) = (grouped(own), grouped(stored));
        writeln!(out, "compressed: {own} bytes of pages are {stored} in it")?;
    }
    let (seconds, rest) = (header.clock / 1_000_000_000, header.clock % 1_000_000_000);
    writeln!(
        out,
        "taken:      {}.{rest:09} s after its machine began",
        grouped(seconds)
    )?;
    let [basic, further] = header.features;
    writeln!(
        out,
        "needs:      a processor with the features {basic:#x} and {further:#x}"
    )?;
    match &whole.meta.parent {
        Some(parent) if whole.parents() > 0 => {
            let length = count(parent.identity.total, "byte");
            let images = count(whole.parents() as u64, "image");
            writeln!(
                out,
                "based on:   {images}; the first one is {}, of {length}",
                plain(&parent.path)
            )?;
        }
        _ => writeln!(out, "based on:   nothing, it is whole")?,
    }
    writeln!(out, "processes:")?;
    for (number, process) in whole.meta.processes.iter().enumerate() {
        let name = plain(&process.name);
        let pages = pages(&whole.meta, number as u32);
        let what = match (process.shared, process.member) {
            (true, _) => "  memory that they share",
            (false, 0) => process.manager.as_str(),
            (false, _) => "  and",
        };
        writeln!(out, "  {number:3} {what} {name}: {pages}")?;
        for line in part(&process.manager, &process.part) {
            writeln!(out, "      {}", plain(&line))?;
        }
    }
    if !whole.meta.files.is_empty() {
        writeln!(out, "files that it names and does not have:")?;
    }
    for file in &whole.meta.files {
        writeln!(out, "  {:3} {}", file.process, file.about())?;
    }
    // Reading pages needs the rest of `whole` mutably.
    let meta = core::mem::take(&mut whole.meta);
    let said = objects(whole, &meta, out);
    whole.meta = meta;
    said
}

/// The number of pages of a process, and where they are.
fn pages(meta: &Meta, process: u32) -> String {
    let runs = meta.runs.iter().filter(|run| run.place.process == process);
    let same = meta.same.iter().filter(|same| same.process == process);
    let here: u64 = runs.map(|run| u64::from(run.pages)).sum();
    let theirs: u64 = same.map(|same| u64::from(same.pages)).sum();
    let mut text = count(here, "page");
    if theirs > 0 {
        text += &alloc::format!(" here, {} in what it is based on", grouped(theirs));
    }
    text
}

/// The threads one by one, and the number of objects of the other types.
fn objects<B: Bytes>(whole: &mut Whole<B>, meta: &Meta, out: &mut impl Write) -> fmt::Result {
    let mut words = doing::all(meta, |process, address| code(whole, process, address)).into_iter();
    writeln!(out, "threads:")?;
    let mut others: BTreeMap<Type, u64> = BTreeMap::new();
    for object in &meta.objects {
        let State::Thread { .. } = object.state else {
            *others.entry(object.state.kind()).or_default() += 1;
            continue;
        };
        let Place {
            process, offset, ..
        } = object.place;
        let word = words.next().unwrap_or_default();
        writeln!(out, "  {process:3} at {offset:#x}: {word}")?;
    }
    write!(out, "objects:    ")?;
    for (n, (kind, number)) in others.into_iter().enumerate() {
        let separator = if n == 0 { "" } else { ", " };
        write!(out, "{separator}{} {}", grouped(number), kind.name())?;
    }
    writeln!(out)
}

/// The two bytes at an address of a process. Bytes that cannot be read are left out.
fn code<B: Bytes>(whole: &mut Whole<B>, process: u32, address: u64) -> Vec<u8> {
    let (mut code, mut page) = (Vec::new(), vec![0; PAGE_SIZE as usize]);
    for address in [Some(address), address.checked_add(1)]
        .into_iter()
        .flatten()
    {
        let offset = address - address % PAGE_SIZE;
        let place = Place {
            process,
            segment: Segment::Memory,
            offset,
        };
        if offset >= Segment::Memory.size() || whole.page(place, &mut page) != Ok(true) {
            break;
        }
        code.push(page[(address - offset) as usize]);
    }
    code
}
