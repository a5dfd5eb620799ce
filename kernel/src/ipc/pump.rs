//! Moving a message: bytes and references from a source to a sink.
//!
//! Both sides are described by their frames: a current segment, a list of further ones, a list of
//! references; or eight registers. A [`Cursor`] says what is left of a side's bytes. [`pump`] advances the
//! cursors as it goes; the caller writes them back ([`Source::save`], [`Sink::save`]), so that at every
//! moment the frames say what is left (rule A3). A message that goes in one piece is walked along twice
//! ([`pump_whole`]): nothing is copied, and nothing put together, before every page of it has been found.

use super::Message;
use crate::memory::{self, Access, Span};
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{self};
use crate::{probe, Stop, K};
use abi::ipc::Plan;
use abi::{MAX_IDEMPOTENT, MAX_LIST_REFS, MAX_SHORT, OBJECT_SIZE, PAGE_SIZE, USER_END};
use core::cell::Cell;
use hal::Pfn;

/// Why the pump stopped.
pub(super) enum Pumped {
    /// The source has nothing left.
    Exhausted,
    /// The sink has no room for what is left.
    Full,
    /// Somebody else should run first.
    Preempted,
}

/// What stopped it, and on whose side.
pub(super) enum Trouble {
    Source(Stop),
    Sink(Stop),
}

/// Empty list entries that one call may skip before it gives others a turn.
const MAX_SKIPPED: u32 = 1024;

/// Bytes that are moved between two preemption points.
const STRIDE: u64 = 8 * 1024;

/// A place in scattered memory.
#[derive(Clone, Copy)]
struct Scatter {
    address: u64,
    length: u64,
    list: u64,
    left: u64,
}

impl Scatter {
    /// Makes the current segment non-empty, if there is anything left at all.
    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn settle(&mut self, k: K, space: &'static Space) -> Result<(), Stop> {
        if self.length == 0 && self.left > 0 {
            return self.next_segment(k, space);
        }
        Ok(())
    }

    #[inline(never)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn next_segment(&mut self, k: K, space: &'static Space) -> Result<(), Stop> {
        let mut skipped = 0;
        while self.length == 0 && self.left > 0 {
            skipped += 1;
            if skipped > MAX_SKIPPED {
                return Err(Stop::Again);
            }
            let entry = Span::words(k, space, self.list, 2, Access::READ)?;
            [self.address, self.length] = entry.read();
            self.list = self.list.wrapping_add(16);
            self.left -= 1;
        }
        Ok(())
    }

    fn advance(&mut self, n: u64) {
        self.address += n;
        self.length -= n;
    }

    /// Bytes that can be moved without crossing a page. An address beyond user memory is left to
    /// the translation to refuse.
    fn run(&self) -> u64 {
        if self.address >= USER_END {
            return self.length.min(1);
        }
        self.length.min(PAGE_SIZE - self.address % PAGE_SIZE)
    }
}

/// What is left of the bytes of a side, or of the room for them.
#[derive(Clone, Copy)]
enum Cursor {
    Memory(Scatter),
    /// In no memory: from `at` to `end`.
    Held {
        at: u64,
        end: u64,
    },
}

/// Where the next bytes are.
#[derive(Clone, Copy)]
enum Piece {
    /// In a frame, from this offset on.
    Frame(Pfn, u64),
    /// In no memory, from this byte on.
    Held(u64),
}

impl Cursor {
    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn settle(&mut self, k: K, space: &'static Space) -> Result<(), Stop> {
        match self {
            Cursor::Memory(scatter) => scatter.settle(k, space),
            Cursor::Held { .. } => Ok(()),
        }
    }

    /// Bytes that are in one piece.
    #[inline(always)]
    fn run(&self) -> u64 {
        match self {
            Cursor::Memory(scatter) => scatter.run(),
            Cursor::Held { at, end } => end - at,
        }
    }

    /// Bytes that there are at least, known without touching memory.
    fn known(&self) -> u64 {
        match self {
            Cursor::Memory(scatter) => scatter.length,
            Cursor::Held { at, end } => end - at,
        }
    }

    /// Where they are.
    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn find(&self, k: K, space: &'static Space, need: Access) -> Result<Piece, Stop> {
        match self {
            Cursor::Memory(scatter) => {
                let pfn = memory::translate(k, space, scatter.address, need)?;
                Ok(Piece::Frame(pfn, scatter.address % PAGE_SIZE))
            }
            Cursor::Held { at, .. } => Ok(Piece::Held(*at)),
        }
    }

    #[inline(always)]
    fn advance(&mut self, n: u64) {
        match self {
            Cursor::Memory(scatter) => scatter.advance(n),
            Cursor::Held { at, .. } => *at += n,
        }
    }
}

pub(super) fn short_registers(t: &Thread) -> [&Cell<u64>; 8] {
    let c = &t.ctx;
    [&c.rsi, &c.rdx, &c.r10, &c.r8, &c.r9, &c.r12, &c.r13, &c.r14]
}

/// The bytes of a thread's register message.
fn short_bytes(t: &Thread) -> [u8; MAX_SHORT as usize] {
    let mut bytes = [0; MAX_SHORT as usize];
    for (chunk, register) in bytes.chunks_exact_mut(8).zip(short_registers(t)) {
        chunk.copy_from_slice(&register.get().to_le_bytes());
    }
    bytes
}

fn set_short_bytes(t: &Thread, bytes: &[u8; MAX_SHORT as usize]) {
    for (chunk, register) in bytes.chunks_exact(8).zip(short_registers(t)) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        register.set(u64::from_le_bytes(word));
    }
}

/// How many bytes of them count: they stand beside the call's number, or the result.
fn short_count(t: &Thread) -> u64 {
    (t.ctx.rax.get() >> 8 & 0xff).min(MAX_SHORT)
}

fn set_short_count(t: &Thread, count: u64) {
    t.ctx.rax.set(t.ctx.rax.get() & !0xff00 | count << 8);
}

/// Who holds the bytes of a source that are in no memory.
#[derive(Clone, Copy)]
enum Holder<'a> {
    Registers(&'static Thread),
    Kernel(&'a Message<'a>),
}

/// Where a message comes from.
pub(super) struct Source<'a> {
    cursor: Cursor,
    holder: Holder<'a>,
    /// References to send; see [`abi::ref_list`].
    refs: u64,
    space: &'static Space,
}

impl<'a> Source<'a> {
    /// What the thread's frame says it sends.
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        let c = &t.ctx;
        let (cursor, refs) = if stages.has(Plan::SHORT) {
            let end = short_count(t);
            (Cursor::Held { at: 0, end }, c.r15.get())
        } else {
            let scatter = Scatter {
                address: c.rsi.get(),
                length: c.rdx.get(),
                list: c.r10.get(),
                left: c.r8.get(),
            };
            (Cursor::Memory(scatter), c.r9.get())
        };
        Source {
            cursor,
            holder: Holder::Registers(t),
            refs,
            space,
        }
    }

    /// A message of the kernel's own.
    pub(super) fn kernel(k: K, message: &'a Message<'a>) -> Self {
        let end = message.length();
        Source {
            cursor: Cursor::Held { at: 0, end },
            holder: Holder::Kernel(message),
            refs: 0,
            space: k.nowhere,
        }
    }

    /// Writes into the frame of the thread what is left.
    pub(super) fn save(&self, t: &Thread) {
        let c = &t.ctx;
        match self.cursor {
            Cursor::Memory(s) => {
                c.rsi.set(s.address);
                c.rdx.set(s.length);
                c.r10.set(s.list);
                c.r8.set(s.left);
                c.r9.set(self.refs);
            }
            Cursor::Held { at, end } => {
                // What is left moves to the front; nothing left, nothing moves.
                if 0 < at && at < end {
                    let mut bytes = short_bytes(t);
                    bytes.copy_within(at as usize.., 0);
                    set_short_bytes(t, &bytes);
                }
                set_short_count(t, end - at);
                c.r15.set(self.refs);
            }
        }
    }

    /// A lower bound of the length, known without touching memory.
    pub(super) fn known_length(&self) -> u64 {
        self.cursor.known()
    }

    /// The words of a register message, which must have exactly so many and nothing else.
    pub(super) fn short_words<const N: usize>(&self) -> Result<[u64; N], Stop> {
        let Holder::Registers(t) = self.holder else {
            return Err(Stop::Code(abi::Code::Invalid));
        };
        if self.known_length() != N as u64 * 8 || self.refs & MAX_LIST_REFS != 0 {
            return Err(Stop::Code(abi::Code::Invalid));
        }
        let registers = short_registers(t);
        Ok(core::array::from_fn(|i| registers[i].get()))
    }

    /// Reads a message in memory that must have exactly so many words. All of it is found before any of it
    /// is read.
    pub(super) fn read_words<const N: usize>(self, k: K) -> Result<[u64; N], Stop> {
        let Cursor::Memory(mut begin) = self.cursor else {
            return Err(Stop::Code(abi::Code::Invalid));
        };
        let mut end = begin;
        let mut first = None;
        parts(k, self.space, &mut end, 8 * N as u64, |part, _| {
            first.get_or_insert(part);
        })?;
        end.settle(k, self.space)?;
        if end.length != 0 || self.refs & MAX_LIST_REFS != 0 {
            return Err(Stop::Code(abi::Code::Invalid));
        }
        match first {
            Some((pfn, at, n)) if n == 8 * N && at.is_multiple_of(8) => {
                Ok(hal::read_array(pfn, at))
            }
            _ => {
                let mut bytes = [0; 8 * Message::WORDS];
                probe::again(|| {
                    parts(
                        k,
                        self.space,
                        &mut begin,
                        8 * N as u64,
                        |(pfn, at, n), done| {
                            hal::read_bytes(pfn, at, &mut bytes[done..done + n]);
                        },
                    )
                })?;
                Ok(core::array::from_fn(|i| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
                    u64::from_le_bytes(word)
                }))
            }
        }
    }

    /// Writes bytes that are held to offset `to` of a frame.
    fn write(&self, at: u64, (pfn, to): (Pfn, u64), n: u64) {
        let range = at as usize..(at + n) as usize;
        match self.holder {
            Holder::Registers(t) => hal::write_bytes(pfn, to, &short_bytes(t)[range]),
            Holder::Kernel(message) if n == message.length() && to.is_multiple_of(8) => {
                message.write(pfn, to);
            }
            Holder::Kernel(message) => {
                hal::write_bytes(pfn, to, &message_bytes(&message.words())[range]);
            }
        }
    }

    /// Puts bytes that are held into registers.
    fn put(&self, at: u64, (t, to): (&Thread, u64), n: u64) {
        let kernels;
        let registers;
        let bytes: &[u8] = match self.holder {
            Holder::Registers(from) => {
                registers = short_bytes(from);
                &registers
            }
            Holder::Kernel(message) => {
                kernels = message_bytes(&message.words());
                &kernels
            }
        };
        let mut into = short_bytes(t);
        into[to as usize..(to + n) as usize]
            .copy_from_slice(&bytes[at as usize..(at + n) as usize]);
        set_short_bytes(t, &into);
    }
}

fn message_bytes(words: &[u64; Message::WORDS]) -> [u8; 8 * Message::WORDS] {
    let mut bytes = [0; 8 * Message::WORDS];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Goes along so many bytes, which must be there. Calls `f` for what is in one frame each: frame, offset in
/// it and length; and how many bytes come before.
#[inline(always)]
fn parts(
    k: K,
    space: &'static Space,
    scatter: &mut Scatter,
    length: u64,
    mut f: impl FnMut((Pfn, u64, usize), usize),
) -> Result<(), Stop> {
    let mut done = 0;
    while done < length {
        scatter.settle(k, space)?;
        let n = scatter.run().min(length - done);
        if n == 0 {
            return Err(Stop::Code(abi::Code::Invalid));
        }
        let pfn = memory::translate(k, space, scatter.address, Access::READ)?;
        f(
            (pfn, scatter.address % PAGE_SIZE, n as usize),
            done as usize,
        );
        scatter.advance(n);
        done += n;
    }
    Ok(())
}

/// Whether there is nothing at all to send.
#[cfg_attr(fermata_probe, track_caller)]
pub(super) fn is_empty(k: K, source: &mut Source<'_>) -> Result<bool, Stop> {
    if source.refs & MAX_LIST_REFS != 0 {
        return Ok(false);
    }
    source.cursor.settle(k, source.space)?;
    Ok(source.known_length() == 0)
}

/// Where a message goes.
pub(super) struct Sink {
    cursor: Cursor,
    /// Whose registers they are that bytes are received into which go into no memory.
    thread: &'static Thread,
    refs: u64,
    space: &'static Space,
}

impl Sink {
    /// What the thread's frame says it receives into, and has received so far.
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        Sink::after(t, stages, space, short_count(t))
    }

    /// As [`Sink::of`], for a call that has not begun to receive: what its registers count is
    /// something else.
    pub(super) fn fresh(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        Sink::after(t, stages, space, 0)
    }

    fn after(t: &'static Thread, stages: Plan, space: &'static Space, received: u64) -> Self {
        let c = &t.ctx;
        let cursor = if stages.has(Plan::SHORT) {
            Cursor::Held {
                at: received,
                end: MAX_SHORT,
            }
        } else {
            Cursor::Memory(Scatter {
                address: c.r12.get(),
                length: c.r13.get(),
                list: c.r14.get(),
                left: c.r15.get(),
            })
        };
        Sink {
            cursor,
            thread: t,
            refs: c.rbx.get(),
            space,
        }
    }

    /// Writes into the frame what is left.
    pub(super) fn save(&self) {
        let c = &self.thread.ctx;
        match self.cursor {
            Cursor::Memory(s) => {
                c.r12.set(s.address);
                c.r13.set(s.length);
                c.r14.set(s.list);
                c.r15.set(s.left);
            }
            Cursor::Held { at, .. } => set_short_count(self.thread, at),
        }
        c.rbx.set(self.refs);
    }

    /// Makes sure that the current segment is there.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(super) fn probe(&self, k: K) -> Result<(), Stop> {
        match &self.cursor {
            Cursor::Memory(s) => {
                let length = s.length.min(MAX_IDEMPOTENT);
                memory::probe(k, self.space, s.address, length, Access::WRITE)
            }
            Cursor::Held { .. } => Ok(()),
        }
    }
}

/// Moves what the source has into what room the sink has, for a thread that can be preempted on the
/// way.
pub(super) fn pump(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    t: &Thread,
) -> Result<Pumped, Trouble> {
    if let Some(full) = pump_refs(k, source, sink)? {
        return Ok(full);
    }
    let mut moved = 0;
    pieces(k, source, sink, u64::MAX, |source, sink, from, into, n| {
        copy(source, sink, from, into, n);
        probe::moved(n, true);
        moved += n;
        if moved >= STRIDE {
            moved = 0;
            return !k.preempts(t);
        }
        true
    })
}

/// Moves a message of the idempotent form, which goes in one piece: all of it, or if `part` what the sink has
/// room for. Says whether all of it fitted into the sink and into what such a message may have.
pub(super) fn pump_whole(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    part: bool,
) -> Result<bool, Trouble> {
    if let Some(Pumped::Full) = pump_refs(k, source, sink)? {
        return Ok(false);
    }
    let begin = (source.cursor, sink.cursor);
    let (mut count, mut last) = (0, None);
    let found = pieces(k, source, sink, MAX_IDEMPOTENT, |_, _, from, into, n| {
        count += 1;
        last = Some((from, into, n));
        true
    })?;
    let all = matches!(found, Pumped::Exhausted);
    if !part && !all {
        return Ok(false);
    }
    match last {
        Some((from, into, n)) if count == 1 => {
            copy(source, sink, from, into, n);
            probe::moved(n, false);
            return Ok(all);
        }
        None => return Ok(all),
        _ => {}
    }
    (source.cursor, sink.cursor) = begin;
    let pumped = probe::again(|| {
        pieces(
            k,
            source,
            sink,
            MAX_IDEMPOTENT,
            |source, sink, from, into, n| {
                copy(source, sink, from, into, n);
                probe::moved(n, false);
                true
            },
        )
    })?;
    Ok(matches!(pumped, Pumped::Exhausted))
}

/// Goes along both sides, as far as both have bytes, but no more than `limit`. Calls `f` for each piece,
/// until that says to stop.
#[inline(always)]
fn pieces(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    mut limit: u64,
    mut f: impl FnMut(&Source<'_>, &Sink, Piece, Piece, u64) -> bool,
) -> Result<Pumped, Trouble> {
    loop {
        let here = source.space;
        source.cursor.settle(k, here).map_err(Trouble::Source)?;
        let length = source.cursor.run();
        if length == 0 {
            return Ok(Pumped::Exhausted);
        }
        let there = sink.space;
        sink.cursor.settle(k, there).map_err(Trouble::Sink)?;
        let n = length.min(sink.cursor.run()).min(limit);
        if n == 0 {
            return Ok(Pumped::Full);
        }
        limit -= n;
        let from = source.cursor.find(k, here, Access::READ);
        let from = from.map_err(Trouble::Source)?;
        let into = sink.cursor.find(k, there, Access::WRITE);
        let into = into.map_err(Trouble::Sink)?;
        let goes_on = f(source, sink, from, into, n);
        source.cursor.advance(n);
        sink.cursor.advance(n);
        if !goes_on {
            return Ok(Pumped::Preempted);
        }
    }
}

#[inline(always)]
fn copy(source: &Source<'_>, sink: &Sink, from: Piece, into: Piece, n: u64) {
    match (from, into) {
        (Piece::Frame(pfn, at), Piece::Frame(to, offset)) => {
            hal::copy_bytes((to, offset), (pfn, at), n);
        }
        (Piece::Frame(pfn, at), Piece::Held(to)) => {
            let mut bytes = short_bytes(sink.thread);
            hal::read_bytes(pfn, at, &mut bytes[to as usize..(to + n) as usize]);
            set_short_bytes(sink.thread, &bytes);
        }
        (Piece::Held(at), Piece::Frame(pfn, to)) => source.write(at, (pfn, to), n),
        (Piece::Held(at), Piece::Held(to)) => source.put(at, (sink.thread, to), n),
    }
}

/// Moves references, before any bytes. Says `Full` if the sink has too few places.
fn pump_refs(k: K, source: &mut Source<'_>, sink: &mut Sink) -> Result<Option<Pumped>, Trouble> {
    while source.refs & MAX_LIST_REFS > 0 {
        if sink.refs & MAX_LIST_REFS == 0 {
            return Ok(Some(Pumped::Full));
        }
        let from = source.refs & !MAX_LIST_REFS;
        let into = sink.refs & !MAX_LIST_REFS;
        let target = object::target_at(k, source.space, from).map_err(Trouble::Source)?;
        let place = object::find::<Reference>(k, sink.space, into).map_err(Trouble::Sink)?;
        place.point(k, target);
        source.refs = source.refs.wrapping_add(OBJECT_SIZE - 1);
        sink.refs = sink.refs.wrapping_add(OBJECT_SIZE - 1);
        probe::progress();
    }
    Ok(None)
}
