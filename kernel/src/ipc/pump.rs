//! Moving a message: bytes and references from a source to a sink.
//!
//! Both sides are described by their frames: a current segment, a list of further ones, a list of references;
//! or eight registers. A [`Cursor`] says what is left of a side's bytes. [`pump`] advances the cursors and
//! writes them back, so that at every moment the frames say what is left (rule A3). A message that must arrive
//! whole is walked first ([`pump_whole`]): every page and every reference is found before anything is copied, moved or
//! put together.

use super::Message;
use crate::handle;
use crate::memory::{self, Span};
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::stop::{Access, Stop};
use crate::{probe, K};
use abi::ipc::Plan;
use abi::{
    ENTRIES_PER_TURN, MAX_ENTRIES, MAX_IDEMPOTENT, MAX_LIST_REFS, MAX_SHORT, OBJECT_SIZE, PAGE_SIZE,
};
use hal::{Area, Pfn};

/// Why the pump stopped.
pub(super) enum Pumped {
    /// The source has nothing left.
    Exhausted,
    /// The sink has no room for what is left.
    Full,
    /// Another thread should run first.
    Preempted,
}

/// An obstacle, and the side on which it was met.
pub(super) enum Trouble {
    Source(Stop),
    Sink(Stop),
}

/// The most empty list entries that a call skips in one go before other threads can run.
const MAX_SKIPPED: u32 = 256;

/// Bytes that are moved between two preemption points. An entry of a list counts as [`ENTRY_BYTES`]. Fewer in tests on
/// the host, which have small messages.
const STRIDE: u64 = if cfg!(test) { 32 } else { 8 * 1024 };
const ENTRY_BYTES: u64 = 16;

/// A cursor in scattered memory: the current segment, and the list of further ones.
#[derive(Clone, Copy)]
struct Scatter {
    address: u64,
    length: u64,
    list: u64,
    left: u64,
}

impl Scatter {
    #[inline(always)]
    fn of(area: Area<'_>) -> Self {
        Scatter {
            address: area.address.get(),
            length: area.length.get(),
            list: area.list.get(),
            left: area.entries.get(),
        }
    }

    #[inline(always)]
    fn save(self, area: Area<'_>) {
        area.address.set(self.address);
        area.length.set(self.length);
        area.list.set(self.list);
        area.entries.set(self.left);
    }

    /// The send area in the thread's frame.
    #[inline(always)]
    fn sent(t: &Thread) -> Self {
        Scatter::of(t.ctx.send())
    }

    #[inline(always)]
    fn save_sent(self, t: &Thread) {
        self.save(t.ctx.send());
    }

    /// The receive area in the thread's frame.
    #[inline(always)]
    fn received(t: &Thread) -> Self {
        Scatter::of(t.ctx.receive())
    }

    #[inline(always)]
    fn save_received(self, t: &Thread) {
        self.save(t.ctx.receive());
    }

    /// Moves on to the next segment that is not empty, if there is one. Takes and returns the cursor by value, so that
    /// loops which seldom call this function keep the cursor in registers. Returns the cursor also with an error, since
    /// a call that begins again goes on from there.
    #[cold]
    #[inline(never)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn next_segment(mut self, k: K, space: &'static Space) -> (Self, Result<(), Stop>) {
        let mut skipped = 0;
        while self.length == 0 && self.left > 0 {
            skipped += 1;
            if skipped > MAX_SKIPPED {
                return (self, Err(Stop::Again));
            }
            match Span::words(k, space, self.list, 2, Access::READ) {
                Ok(entry) => [self.address, self.length] = entry.read(),
                Err(stop) => return (self, Err(stop)),
            }
            self.list = self.list.wrapping_add(16);
            self.left -= 1;
        }
        (self, Ok(()))
    }
}

/// A cursor in bytes that are held outside users' memory: from `at` to `end`.
#[derive(Clone, Copy)]
struct Held {
    at: u64,
    end: u64,
}

/// The bytes of a side that are left to send, or the room left to receive into.
#[derive(Clone, Copy)]
enum Cursor {
    Memory(Scatter),
    Held(Held),
}

/// The place of the next bytes.
#[derive(Clone, Copy)]
enum Piece {
    /// In a physical frame, from this byte offset on.
    Frame(Pfn, u64),
    /// Held outside users' memory, from this byte on.
    Held(u64),
}

/// A kind of cursor.
trait Side: Copy {
    /// Whether the current segment is used up and the list has more entries.
    fn between_segments(&self) -> bool;
    fn entries(&self) -> u64;
    /// Makes the current segment non-empty, if anything is left.
    fn settle(&mut self, k: K, space: &'static Space) -> Result<(), Stop>;
    /// Number of the next bytes that are in one piece.
    fn run(&self) -> u64;
    /// The place of the next bytes.
    fn find(&self, k: K, space: &'static Space, need: Access) -> Result<Piece, Stop>;
    fn advance(&mut self, n: u64);
}

impl Side for Scatter {
    #[inline(always)]
    fn between_segments(&self) -> bool {
        self.length == 0 && self.left > 0
    }

    #[inline(always)]
    fn entries(&self) -> u64 {
        self.left
    }

    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn settle(&mut self, k: K, space: &'static Space) -> Result<(), Stop> {
        if self.between_segments() {
            let (next, ended) = self.next_segment(k, space);
            *self = next;
            return ended;
        }
        Ok(())
    }

    /// Up to the end of the segment or of the page, whichever comes first.
    #[inline(always)]
    fn run(&self) -> u64 {
        self.length.min(PAGE_SIZE - self.address % PAGE_SIZE)
    }

    #[inline(always)]
    #[cfg_attr(fermata_probe, track_caller)]
    fn find(&self, k: K, space: &'static Space, need: Access) -> Result<Piece, Stop> {
        let pfn = memory::translate(k, space, self.address, need)?;
        Ok(Piece::Frame(pfn, self.address % PAGE_SIZE))
    }

    /// `n` is at most the length of the segment.
    #[inline(always)]
    fn advance(&mut self, n: u64) {
        self.address = self.address.wrapping_add(n);
        self.length = self.length.wrapping_sub(n);
    }
}

/// A [`Scatter`] for a walk that asks no keeper: an absent page ends the walk, and so does an empty list entry or a
/// second entry. The second field has the frame and the offset from which the entry was read.
#[derive(Clone, Copy)]
struct Present(Scatter, Option<(Pfn, u64)>);

impl Side for Present {
    #[inline(always)]
    fn between_segments(&self) -> bool {
        self.0.between_segments()
    }

    #[inline(always)]
    fn entries(&self) -> u64 {
        self.0.entries()
    }

    #[inline(always)]
    fn settle(&mut self, _: K, space: &'static Space) -> Result<(), Stop> {
        let (list, offset) = (self.0.list, self.0.list % PAGE_SIZE);
        let simple = list.is_multiple_of(8) && offset <= PAGE_SIZE - 16 && self.1.is_none();
        let pfn = memory::present(space, list, Access::READ).filter(|_| simple);
        self.1 = pfn.map(|pfn| (pfn, offset));
        let entry = self.1.map(|(pfn, offset)| hal::read_array(pfn, offset));
        [self.0.address, self.0.length] = entry.ok_or(Stop::Again)?;
        self.0.list = list.wrapping_add(16);
        self.0.left -= 1;
        Ok(())
    }

    #[inline(always)]
    fn run(&self) -> u64 {
        self.0.run()
    }

    #[inline(always)]
    fn find(&self, _: K, space: &'static Space, need: Access) -> Result<Piece, Stop> {
        let pfn = memory::present(space, self.0.address, need).ok_or(Stop::Again)?;
        Ok(Piece::Frame(pfn, self.0.address % PAGE_SIZE))
    }

    #[inline(always)]
    fn advance(&mut self, n: u64) {
        self.0.advance(n);
    }
}

impl Side for Held {
    #[inline(always)]
    fn between_segments(&self) -> bool {
        false
    }

    #[inline(always)]
    fn entries(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn settle(&mut self, _: K, _: &'static Space) -> Result<(), Stop> {
        Ok(())
    }

    #[inline(always)]
    fn run(&self) -> u64 {
        self.end - self.at
    }

    #[inline(always)]
    fn find(&self, _: K, _: &'static Space, _: Access) -> Result<Piece, Stop> {
        Ok(Piece::Held(self.at))
    }

    #[inline(always)]
    fn advance(&mut self, n: u64) {
        self.at += n;
    }
}

impl Cursor {
    /// A lower bound of the number of bytes, known without reading memory.
    fn known(&self) -> u64 {
        match self {
            Cursor::Memory(scatter) => scatter.length,
            Cursor::Held(held) => held.run(),
        }
    }

    /// Whether one of these pieces overwrites list entries that the cursor has read since `begin`. Also true if the
    /// function cannot tell.
    #[inline(always)]
    fn read_from(&self, begin: Self, space: &'static Space, pieces: &[Moved]) -> bool {
        let (Cursor::Memory(now), Cursor::Memory(begin)) = (self, begin) else {
            return false;
        };
        let (first, bytes) = (begin.list, now.list.wrapping_sub(begin.list));
        let here = bytes.min(PAGE_SIZE - first % PAGE_SIZE);
        let is_met = |at: u64, n| match memory::present(space, at, Access::READ) {
            Some(pfn) => pieces
                .iter()
                .any(|piece| piece.goes_to((pfn, at % PAGE_SIZE, n))),
            None => true,
        };
        let rest = bytes - here;
        bytes > PAGE_SIZE
            || bytes > 0 && is_met(first, here)
            || rest > 0 && is_met(first.wrapping_add(here), rest)
    }
}

/// The bytes of a thread's register message.
fn short_bytes(t: &Thread) -> [u8; MAX_SHORT as usize] {
    let mut bytes = [0; MAX_SHORT as usize];
    for (chunk, register) in bytes.chunks_exact_mut(8).zip(t.ctx.words()) {
        chunk.copy_from_slice(&register.get().to_le_bytes());
    }
    bytes
}

fn set_short_bytes(t: &Thread, bytes: &[u8; MAX_SHORT as usize]) {
    for (chunk, register) in bytes.chunks_exact(8).zip(t.ctx.words()) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        register.set(u64::from_le_bytes(word));
    }
}

/// Moves the bytes of a register message, from byte `from` on, to its front.
#[cold]
#[inline(never)]
fn shift_short(t: &Thread, from: u64) {
    let mut bytes = short_bytes(t);
    bytes.copy_within(from as usize.., 0);
    set_short_bytes(t, &bytes);
}

/// The byte count of a register message, in the same word as the call's number or result (bits 8 to 15).
fn short_count(t: &Thread) -> u64 {
    (t.ctx.call().get() >> 8 & 0xff).min(MAX_SHORT)
}

fn set_short_count(t: &Thread, count: u64) {
    t.ctx.call().set(t.ctx.call().get() & !0xff00 | count << 8);
}

/// The holder of the bytes of a source outside users' memory.
#[derive(Clone, Copy)]
enum Holder<'a> {
    Registers(&'static Thread),
    Kernel(&'a Message<'a>),
}

impl Holder<'_> {
    /// Writes `n` held bytes, from `at` on, to offset `to` of a physical frame.
    fn write(&self, at: u64, (pfn, to): (Pfn, u64), n: u64) {
        let range = at as usize..(at + n) as usize;
        match self {
            Holder::Registers(t) => hal::write_bytes(pfn, to, &short_bytes(t)[range]),
            Holder::Kernel(message) if n == message.length() && to.is_multiple_of(8) => {
                message.write(pfn, to);
            }
            Holder::Kernel(message) => {
                hal::write_bytes(pfn, to, &message_bytes(&message.words())[range]);
            }
        }
    }

    /// Puts `n` held bytes, from `at` on, into the register message of `t`, at offset `to`.
    fn put(&self, at: u64, (t, to): (&Thread, u64), n: u64) {
        let kernels;
        let registers;
        let bytes: &[u8] = match self {
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

/// The source of a message.
pub(super) struct Source<'a> {
    cursor: Cursor,
    holder: Holder<'a>,
    /// References to send; see [`abi::ref_list`].
    refs: u64,
    space: &'static Space,
}

impl<'a> Source<'a> {
    /// The message that the thread's frame says it sends.
    #[inline(always)]
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        let c = &t.ctx;
        let (cursor, refs) = if stages.has(Plan::SHORT) {
            let end = short_count(t);
            (Cursor::Held(Held { at: 0, end }), c.words_refs().get())
        } else {
            (Cursor::Memory(Scatter::sent(t)), c.send().refs.get())
        };
        Source {
            cursor,
            holder: Holder::Registers(t),
            refs,
            space,
        }
    }

    /// A message of the kernel.
    pub(super) fn kernel(k: K, message: &'a Message<'a>) -> Self {
        let end = message.length();
        Source {
            cursor: Cursor::Held(Held { at: 0, end }),
            holder: Holder::Kernel(message),
            refs: 0,
            space: k.nowhere,
        }
    }

    /// Writes what is left to send into the thread's frame.
    #[inline(always)]
    pub(super) fn save(&self, t: &Thread) {
        let c = &t.ctx;
        match self.cursor {
            Cursor::Memory(scatter) => {
                scatter.save_sent(t);
                c.send().refs.set(self.refs);
            }
            Cursor::Held(Held { at, end }) => {
                // The remaining bytes move to the front, if some but not all have been sent.
                if 0 < at && at < end {
                    shift_short(t, at);
                }
                set_short_count(t, end - at);
                c.words_refs().set(self.refs);
            }
        }
    }

    /// A lower bound of the length, known without reading memory.
    pub(super) fn known_length(&self) -> u64 {
        self.cursor.known()
    }

    /// Whether the message carries references.
    pub(super) fn brings_refs(&self) -> bool {
        self.refs & MAX_LIST_REFS != 0
    }

    /// Whether the message is one segment of `length` bytes in memory, with no list after it.
    pub(super) fn is_piece(&self, length: u64) -> bool {
        matches!(self.cursor, Cursor::Memory(only) if only.length == length && only.left == 0)
    }

    /// Whether the message seems to be empty, as far as can be told without reading memory.
    pub(super) fn seems_empty(&self) -> bool {
        !self.brings_refs() && self.known_length() == 0
    }

    /// The words of a register message, which must have exactly `N` of them and no references.
    pub(super) fn short_words<const N: usize>(&self) -> Result<[u64; N], Stop> {
        let Holder::Registers(t) = self.holder else {
            return Err(Stop::Code(abi::Code::Invalid));
        };
        if self.known_length() != N as u64 * 8 || self.brings_refs() {
            return Err(Stop::Code(abi::Code::Invalid));
        }
        let registers = t.ctx.words();
        Ok(core::array::from_fn(|i| registers[i].get()))
    }

    /// Reads a message in memory, which must have exactly `N` words and no references. All its pages are found
    /// before any of it is read.
    pub(super) fn read_words<const N: usize>(self, k: K) -> Result<[u64; N], Stop> {
        let Cursor::Memory(mut begin) = self.cursor else {
            return Err(Stop::Code(abi::Code::Invalid));
        };
        let mut end = begin;
        let mut first = None;
        parts(k, self.space, &mut end, 8 * N as u64, |part, _| {
            first.get_or_insert(part);
        })?;
        // Empty entries may follow. If there are very many, the rest is not read and the message is invalid.
        settle_few(k, self.space, &mut end)?;
        if end.length != 0 || self.brings_refs() {
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
}

fn message_bytes(words: &[u64; Message::WORDS]) -> [u8; 8 * Message::WORDS] {
    let mut bytes = [0; 8 * Message::WORDS];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// As [`Side::settle`], for a caller that does not keep its progress, so that the call could never get past very many
/// empty entries: these are the code `Invalid`.
#[inline(always)]
fn settle_few(k: K, space: &'static Space, scatter: &mut Scatter) -> Result<(), Stop> {
    scatter.settle(k, space).map_err(|stop| match stop {
        Stop::Again => Stop::Code(abi::Code::Invalid),
        other => other,
    })
}

/// Walks along `length` bytes, which must be there. Calls `f` for each piece within one physical frame, with
/// the frame, the offset in it, the length, and the number of bytes before the piece.
#[inline(always)]
fn parts(
    k: K,
    space: &'static Space,
    scatter: &mut Scatter,
    length: u64,
    mut f: impl FnMut((Pfn, u64, usize), usize),
) -> Result<(), Stop> {
    let mut done = 0;
    let entries = scatter.entries();
    while done < length {
        settle_few(k, space, scatter)?;
        if entries - scatter.entries() > MAX_ENTRIES {
            return Err(Stop::Code(abi::Code::Invalid));
        }
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

/// Whether the message is empty: no bytes and no references.
#[cfg_attr(fermata_probe, track_caller)]
pub(super) fn is_empty(k: K, source: &mut Source<'_>) -> Result<bool, Stop> {
    if source.brings_refs() {
        return Ok(false);
    }
    if let Cursor::Memory(scatter) = &mut source.cursor {
        scatter.settle(k, source.space)?;
    }
    Ok(source.seems_empty())
}

/// The sink of a message.
pub(super) struct Sink {
    cursor: Cursor,
    /// The receiving thread, whose registers a register message goes to.
    thread: &'static Thread,
    refs: u64,
    space: &'static Space,
}

impl Sink {
    /// The sink that the thread's frame describes, with what it has received so far.
    #[inline(always)]
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        Sink::after(t, stages, space, short_count(t))
    }

    /// As [`Sink::of`], for a call that has not begun to receive: the byte count in its frame is not one of
    /// received bytes.
    #[inline(always)]
    pub(super) fn fresh(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        Sink::after(t, stages, space, 0)
    }

    #[inline(always)]
    fn after(t: &'static Thread, stages: Plan, space: &'static Space, received: u64) -> Self {
        let c = &t.ctx;
        let cursor = if stages.has(Plan::SHORT) {
            Cursor::Held(Held {
                at: received,
                end: MAX_SHORT,
            })
        } else {
            Cursor::Memory(Scatter::received(t))
        };
        Sink {
            cursor,
            thread: t,
            refs: c.receive().refs.get(),
            space,
        }
    }

    /// Writes the room that is left into the thread's frame.
    #[inline(always)]
    pub(super) fn save(&self) {
        let c = &self.thread.ctx;
        match self.cursor {
            Cursor::Memory(scatter) => scatter.save_received(self.thread),
            Cursor::Held(Held { at, .. }) => set_short_count(self.thread, at),
        }
        c.receive().refs.set(self.refs);
    }

    /// Makes the pages of the current segment present.
    #[cfg_attr(fermata_probe, track_caller)]
    pub(super) fn find_segment(&self, k: K) -> Result<(), Stop> {
        match &self.cursor {
            Cursor::Memory(s) => {
                let length = s.length.min(MAX_IDEMPOTENT);
                memory::probe(k, self.space, s.address, length, Access::WRITE)
            }
            Cursor::Held(_) => Ok(()),
        }
    }
}

/// Moves a message from the send area of one thread to the receive area of another, as far as there is room,
/// and writes what is left into both frames. `t` is the running thread, which can be preempted on the way.
#[inline(always)]
pub(super) fn pump(
    k: K,
    (from, sends): (&'static Thread, Plan),
    (into, receives): (&'static Thread, Plan),
    t: &Thread,
) -> Result<Pumped, Trouble> {
    let held = sends.has(Plan::SHORT) || receives.has(Plan::SHORT);
    if held || from.ctx.send().refs.get() & MAX_LIST_REFS != 0 {
        return pump_any(k, (from, sends), (into, receives), t);
    }
    pump_memory(k, from, into, t)
}

/// [`pump`], from memory to memory, without references.
#[inline(never)]
fn pump_memory(
    k: K,
    from: &'static Thread,
    into: &'static Thread,
    t: &Thread,
) -> Result<Pumped, Trouble> {
    let (mut source, mut sink) = (Scatter::sent(from), Scatter::received(into));
    let spaces = (from.space_or_nowhere(), into.space_or_nowhere());
    let mut visit = CopyingUntil {
        k,
        t,
        copies: Copying {
            holder: Holder::Registers(from),
            thread: into,
            entries: 0,
        },
        moved: 0,
        entries: 0,
    };
    let pumped = pieces(k, spaces, &mut source, &mut sink, None, &mut visit);
    source.save_sent(from);
    sink.save_received(into);
    pumped
}

/// [`pump`], for any message.
#[inline(never)]
fn pump_any(
    k: K,
    (from, sends): (&'static Thread, Plan),
    (into, receives): (&'static Thread, Plan),
    t: &Thread,
) -> Result<Pumped, Trouble> {
    let mut source = Source::of(from, sends, from.space_or_nowhere());
    let mut sink = Sink::of(into, receives, into.space_or_nowhere());
    let spaces = (source.space, sink.space);
    let pumped = match pump_refs(k, spaces, &mut source.refs, &mut sink.refs) {
        Ok(None) => {
            let visit = CopyingUntil {
                k,
                t,
                copies: Copying::between(&source, &sink),
                moved: 0,
                entries: 0,
            };
            let ends = (&mut source.cursor, &mut sink.cursor);
            along(k, spaces, ends, None, visit).0
        }
        Ok(Some(full)) => Ok(full),
        Err(trouble) => Err(trouble),
    };
    source.save(from);
    sink.save();
    pumped
}

/// Moves a message of an idempotent call, whole; or, with `part`, as much as the sink has room for. Returns
/// whether all of it fitted, into the sink and into the limit for such messages.
pub(super) fn pump_whole(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    part: bool,
) -> Result<bool, Trouble> {
    match source.cursor {
        Cursor::Memory(from) if from.left > 0 || from.length > PAGE_SIZE => {
            pump_pieces(k, source, sink, part)
        }
        _ => pump_found(k, source, sink, part, &mut []),
    }
}

/// [`pump_whole`], for a message that is likely to be in several pieces. A function of its own, so that other messages
/// need no room on the stack for the pieces.
#[inline(never)]
fn pump_pieces(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    part: bool,
) -> Result<bool, Trouble> {
    pump_found(k, source, sink, part, &mut [Moved::NOTHING; MOST_KEPT])
}

/// [`pump_whole`], with room for some pieces that have been found.
#[inline(always)]
fn pump_found(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    part: bool,
    kept: &mut [Moved],
) -> Result<bool, Trouble> {
    let limit = Some(MAX_IDEMPOTENT);
    let spaces = (source.space, sink.space);
    let has_refs = source.refs & MAX_LIST_REFS > 0;
    if has_refs && !find_refs(k, spaces, source.refs, sink.refs)? {
        if part {
            probe::again(|| pump_refs(k, spaces, &mut source.refs, &mut sink.refs))?;
        }
        return Ok(false);
    }
    let mut copies = Copying::between(source, sink);
    let begin = (source.cursor, sink.cursor);
    let looking = Looking {
        entries: 0,
        count: 0,
        listed: 0,
        last: None,
        kept,
    };
    let ends = (&mut source.cursor, &mut sink.cursor);
    let (found, seen) = along(k, spaces, ends, limit, looking);
    // The walk has moved no bytes.
    let found = found.inspect_err(|_| (source.cursor, sink.cursor) = begin)?;
    let mut all = matches!(found, Pumped::Exhausted);
    if !part && !all {
        return Ok(false);
    }
    // A message that overwrites its own lists goes elsewhere from then on, since each entry is read only when its turn
    // comes. Such a message is not copied by the kept pieces.
    let over_lists = |pieces: &[Moved]| {
        !pieces.is_empty()
            && (source.cursor.read_from(begin.0, spaces.0, pieces)
                || sink.cursor.read_from(begin.1, spaces.1, pieces))
    };
    match seen.last {
        None => {}
        Some((from, into, n)) if seen.count == 1 => {
            copies.piece(from, into, n);
        }
        Some((Piece::Frame(..), Piece::Frame(..), _))
            if seen.count <= seen.kept.len() && !over_lists(&seen.kept[..seen.listed]) =>
        {
            for piece in &seen.kept[..seen.count] {
                let (from, into, n) = piece.to_frames();
                copies.piece(from, into, n);
            }
        }
        Some(_) => {
            (source.cursor, sink.cursor) = begin;
            let ends = (&mut source.cursor, &mut sink.cursor);
            // All pages that were found are found again.
            let (copied, _) = probe::again(|| along(k, spaces, ends, limit, copies));
            // Not all has arrived if the copied bytes have overwritten the lists that say where they go.
            all = matches!(copied?, Pumped::Exhausted);
        }
    }
    if has_refs && (all || part) {
        probe::again(|| pump_refs(k, spaces, &mut source.refs, &mut sink.refs))?;
    }
    Ok(all)
}

/// Number of pieces that are kept until they are copied: enough for a message of [`MAX_IDEMPOTENT`] bytes whose offset
/// in its pages differs between source and sink, and a few words in front.
const MOST_KEPT: usize = 2 * (MAX_IDEMPOTENT / PAGE_SIZE) as usize + 3;

/// A piece that goes from one frame to another: frames, offsets there, and length.
#[derive(Clone, Copy)]
struct Moved {
    frames: (Pfn, Pfn),
    offsets: (u16, u16),
    length: u16,
}

impl Moved {
    const NOTHING: Self = Moved {
        frames: (Pfn(0), Pfn(0)),
        offsets: (0, 0),
        length: 0,
    };

    /// The piece of `n` bytes that goes from one place to another, if both are in frames.
    #[inline(always)]
    fn between(from: Piece, into: Piece, n: u64) -> Option<Self> {
        let (Piece::Frame(a, at), Piece::Frame(b, to)) = (from, into) else {
            return None;
        };
        Some(Moved {
            frames: (a, b),
            offsets: (at as u16, to as u16),
            length: n as u16,
        })
    }

    /// Whether the piece overwrites any of the `n` bytes at offset `at` of a frame.
    #[inline(always)]
    fn goes_to(&self, (pfn, at, n): (Pfn, u64, u64)) -> bool {
        let (to, length) = (u64::from(self.offsets.1), u64::from(self.length));
        self.frames.1 == pfn && to < at + n && at < to + length
    }

    #[inline(always)]
    fn to_frames(self) -> (Piece, Piece, u64) {
        let from = Piece::Frame(self.frames.0, self.offsets.0.into());
        let into = Piece::Frame(self.frames.1, self.offsets.1.into());
        (from, into, self.length.into())
    }
}

/// The work of a walk along a message on each piece.
trait Visit {
    /// Handles `n` bytes that go from one place to another. Returns whether to go on.
    fn piece(&mut self, from: Piece, into: Piece, n: u64) -> bool;
    /// Notes that `n` list entries have been read. Returns whether to go on.
    fn entries(&mut self, n: u64) -> bool;
    /// Whether a walk that has stopped can be resumed from the frames.
    const RESUMES: bool;
}

/// Counts `n` more list entries that have been read of a message that must arrive whole. Returns whether the message
/// may have so many.
#[inline(always)]
fn are_few(entries: &mut u64, n: u64) -> bool {
    *entries += n;
    *entries <= MAX_ENTRIES
}

/// Walks along a message without moving it: counts pieces and entries, and keeps the last piece and as many of the
/// first ones as there is room for. On each side all pieces are of one kind.
struct Looking<'a> {
    entries: u64,
    count: usize,
    /// Number of pieces before the list entry that was read last: only these can overwrite an entry before it is read.
    listed: usize,
    last: Option<(Piece, Piece, u64)>,
    kept: &'a mut [Moved],
}

impl Visit for Looking<'_> {
    #[inline(always)]
    fn piece(&mut self, from: Piece, into: Piece, n: u64) -> bool {
        if let Some(moved) = Moved::between(from, into, n) {
            if let Some(place) = self.kept.get_mut(self.count) {
                *place = moved;
            }
        }
        self.count += 1;
        self.last = Some((from, into, n));
        true
    }

    #[inline(always)]
    fn entries(&mut self, n: u64) -> bool {
        self.listed = self.count;
        are_few(&mut self.entries, n)
    }

    const RESUMES: bool = false;
}

/// Most pieces of a message that is moved at once: two segments, each of which crosses a page at one side.
const FEW: usize = 4;

/// A message from memory to memory, without references, all of whose pages are present: its pieces, and what is left of
/// both sides after it.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pieces: [Moved; FEW],
    count: usize,
    sent: Scatter,
    room: Scatter,
}

impl Way {
    /// Whether the thread's message may be short enough.
    #[inline(always)]
    pub(super) fn may_be(t: &Thread) -> bool {
        let sent = t.ctx.send();
        sent.length.get() <= 2 * PAGE_SIZE
            && sent.entries.get() <= 1
            && sent.refs.get() & MAX_LIST_REFS == 0
    }

    /// Finds the way of the message that `t`, in this space, sends to `to`. `None`, with nothing changed, if the
    /// message has too many pieces or none, does not fit, meets an absent page, or overwrites its own lists.
    #[inline(always)]
    pub(super) fn of(
        k: K,
        t: &'static Thread,
        here: &'static Space,
        to: &'static Thread,
    ) -> Option<Self> {
        let mut way = Way {
            pieces: [Moved::NOTHING; FEW],
            count: 0,
            sent: Scatter::sent(t),
            room: Scatter::received(to),
        };
        let (mut from, mut into) = (Present(way.sent, None), Present(way.room, None));
        let spaces = (here, to.space_or_nowhere());
        let limit = Some(2 * PAGE_SIZE);
        let found = pieces(k, spaces, &mut from, &mut into, limit, &mut way);
        (way.sent, way.room) = (from.0, into.0);
        // A message that overwrites its own lists goes elsewhere from then on, since each entry is read only when its
        // turn comes: the general path moves it.
        let lists = [from.1, into.1].into_iter().flatten();
        let mut lists = lists.map(|(pfn, at)| (pfn, at, 16));
        let goes = |list| {
            way.pieces[..way.count]
                .iter()
                .any(|piece| piece.goes_to(list))
        };
        let whole = matches!(found, Ok(Pumped::Exhausted)) && way.count > 0;
        (whole && !lists.any(goes)).then_some(way)
    }

    /// Moves the message.
    #[inline(always)]
    pub(super) fn go(&self) {
        for piece in &self.pieces[..self.count] {
            let ((from, into), (at, to)) = (piece.frames, piece.offsets);
            hal::copy_bytes((into, to.into()), (from, at.into()), piece.length.into());
        }
    }

    /// Notes in the sender's frame that the whole message has been sent.
    #[inline(always)]
    pub(super) fn save_sent(&self, t: &Thread) {
        self.sent.save_sent(t);
    }

    /// Notes in the receiver's frame what is left of its room.
    #[inline(always)]
    pub(super) fn save_received(&self, to: &Thread) {
        self.room.save_received(to);
    }
}

impl Visit for Way {
    #[inline(always)]
    fn piece(&mut self, from: Piece, into: Piece, n: u64) -> bool {
        let Some(moved) = Moved::between(from, into, n) else {
            return false;
        };
        let Some(place) = self.pieces.get_mut(self.count) else {
            return false;
        };
        *place = moved;
        self.count += 1;
        true
    }

    #[inline(always)]
    fn entries(&mut self, _: u64) -> bool {
        true
    }

    const RESUMES: bool = false;
}

/// Copies the pieces.
#[derive(Clone, Copy)]
struct Copying<'a> {
    holder: Holder<'a>,
    thread: &'static Thread,
    /// List entries read so far, of a message that must arrive whole.
    entries: u64,
}

impl<'a> Copying<'a> {
    fn between(source: &Source<'a>, sink: &Sink) -> Self {
        Copying {
            holder: source.holder,
            thread: sink.thread,
            entries: 0,
        }
    }

    #[inline(always)]
    fn copy(&self, from: Piece, into: Piece, n: u64) {
        let thread = self.thread;
        match (from, into) {
            (Piece::Frame(pfn, at), Piece::Frame(to, offset)) => {
                hal::copy_bytes((to, offset), (pfn, at), n);
            }
            (Piece::Frame(pfn, at), Piece::Held(to)) => {
                let mut bytes = short_bytes(thread);
                hal::read_bytes(pfn, at, &mut bytes[to as usize..(to + n) as usize]);
                set_short_bytes(thread, &bytes);
            }
            (Piece::Held(at), Piece::Frame(pfn, to)) => self.holder.write(at, (pfn, to), n),
            (Piece::Held(at), Piece::Held(to)) => self.holder.put(at, (thread, to), n),
        }
    }
}

impl Visit for Copying<'_> {
    #[inline(always)]
    fn piece(&mut self, from: Piece, into: Piece, n: u64) -> bool {
        self.copy(from, into, n);
        probe::moved(n, false);
        true
    }

    /// They are counted again: what is copied may have written over the lists.
    #[inline(always)]
    fn entries(&mut self, n: u64) -> bool {
        are_few(&mut self.entries, n)
    }

    const RESUMES: bool = false;
}

/// Copies the pieces, with preemption points; copied bytes count as moved.
struct CopyingUntil<'a> {
    k: K,
    t: &'a Thread,
    copies: Copying<'a>,
    /// Work done since the last preemption point, in bytes.
    moved: u64,
    /// List entries read so far.
    entries: u64,
}

impl CopyingUntil<'_> {
    #[inline(always)]
    fn worked(&mut self, bytes: u64) -> bool {
        self.moved += bytes;
        if self.moved < STRIDE {
            return true;
        }
        self.moved = 0;
        !self.k.preempts(self.t)
    }
}

impl Visit for CopyingUntil<'_> {
    #[inline(always)]
    fn piece(&mut self, from: Piece, into: Piece, n: u64) -> bool {
        self.copies.copy(from, into, n);
        probe::moved(n, true);
        self.worked(n)
    }

    #[inline(always)]
    fn entries(&mut self, n: u64) -> bool {
        self.entries += n;
        self.worked(n * ENTRY_BYTES) && self.entries < ENTRIES_PER_TURN
    }

    const RESUMES: bool = true;
}

/// Walks along both sides as far as both have bytes, but no further than the limit, and visits each piece,
/// until the visitor says to stop.
#[inline(never)]
fn along<V: Visit>(
    k: K,
    spaces: (&'static Space, &'static Space),
    ends: (&mut Cursor, &mut Cursor),
    limit: Option<u64>,
    mut visit: V,
) -> (Result<Pumped, Trouble>, V) {
    let to = &mut visit;
    let ended = match ends {
        (Cursor::Memory(from), Cursor::Memory(into)) => pieces(k, spaces, from, into, limit, to),
        (Cursor::Memory(from), Cursor::Held(into)) => pieces(k, spaces, from, into, limit, to),
        (Cursor::Held(from), Cursor::Memory(into)) => pieces(k, spaces, from, into, limit, to),
        (Cursor::Held(from), Cursor::Held(into)) => pieces(k, spaces, from, into, limit, to),
    };
    (ended, visit)
}

/// [`along`], for the kinds of both sides.
#[inline(always)]
fn pieces(
    k: K,
    (here, there): (&'static Space, &'static Space),
    source: &mut impl Side,
    sink: &mut impl Side,
    mut limit: Option<u64>,
    visit: &mut impl Visit,
) -> Result<Pumped, Trouble> {
    // Local copies, so that the loop keeps them in registers.
    let (mut from, mut into) = (*source, *sink);
    let ended = loop {
        if from.between_segments() {
            if let Err(trouble) = settle(k, here, &mut from, visit, Trouble::Source) {
                break trouble;
            }
        }
        let length = from.run();
        if length == 0 {
            break Ok(Pumped::Exhausted);
        }
        if into.between_segments() {
            if let Err(trouble) = settle(k, there, &mut into, visit, Trouble::Sink) {
                break trouble;
            }
        }
        let mut n = length.min(into.run());
        if let Some(left) = &mut limit {
            n = n.min(*left);
            *left -= n;
        }
        if n == 0 {
            break Ok(Pumped::Full);
        }
        let begin = match from.find(k, here, Access::READ) {
            Ok(begin) => begin,
            Err(stop) => break Err(Trouble::Source(stop)),
        };
        let to = match into.find(k, there, Access::WRITE) {
            Ok(to) => to,
            Err(stop) => break Err(Trouble::Sink(stop)),
        };
        let goes_on = visit.piece(begin, to, n);
        from.advance(n);
        into.advance(n);
        if !goes_on {
            break Ok(Pumped::Preempted);
        }
    };
    (*source, *sink) = (from, into);
    ended
}

/// Moves a side on to its next segment that is not empty. `Err` holds the result with which the walk ends.
#[inline(always)]
#[cfg_attr(fermata_probe, track_caller)]
fn settle<V: Visit>(
    k: K,
    space: &'static Space,
    side: &mut impl Side,
    visit: &mut V,
    trouble: fn(Stop) -> Trouble,
) -> Result<(), Result<Pumped, Trouble>> {
    let entries = side.entries();
    side.settle(k, space).map_err(|stop| Err(trouble(stop)))?;
    if visit.entries(entries - side.entries()) {
        Ok(())
    } else if V::RESUMES {
        Err(Ok(Pumped::Preempted))
    } else {
        Err(Err(trouble(Stop::Again)))
    }
}

/// Finds the references of a message that must arrive whole, and as many places for them as there are. Moves no
/// reference. Returns whether all of them have a place.
#[cold]
#[inline(never)]
fn find_refs(
    k: K,
    (here, there): (&'static Space, &'static Space),
    from: u64,
    into: u64,
) -> Result<bool, Trouble> {
    let (sent, room) = (from & MAX_LIST_REFS, into & MAX_LIST_REFS);
    for n in 0..sent.min(room) {
        let at = |list: u64| (list & !MAX_LIST_REFS).wrapping_add(n * OBJECT_SIZE);
        handle::target_at(k, here, at(from)).map_err(Trouble::Source)?;
        handle::find::<Reference>(k, there, at(into)).map_err(Trouble::Sink)?;
    }
    Ok(sent <= room)
}

/// Moves the references: before any bytes, except in a message that must arrive whole. Returns `Full` if the sink has
/// too few places.
fn pump_refs(
    k: K,
    (here, there): (&'static Space, &'static Space),
    from: &mut u64,
    into: &mut u64,
) -> Result<Option<Pumped>, Trouble> {
    while *from & MAX_LIST_REFS > 0 {
        if *into & MAX_LIST_REFS == 0 {
            return Ok(Some(Pumped::Full));
        }
        let handles = (*from & !MAX_LIST_REFS, *into & !MAX_LIST_REFS);
        let target = handle::target_at(k, here, handles.0).map_err(Trouble::Source)?;
        let place = handle::find::<Reference>(k, there, handles.1).map_err(Trouble::Sink)?;
        place.point(k, target);
        *from = from.wrapping_add(OBJECT_SIZE - 1);
        *into = into.wrapping_add(OBJECT_SIZE - 1);
        probe::progress();
    }
    Ok(None)
}
