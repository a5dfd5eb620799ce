//! Moving a message: bytes and references from a source to a sink.
//!
//! Both sides are described by their frames: a current segment, a list of further ones, a list of
//! references; or eight registers. [`pump`] advances these descriptions as it goes; the caller
//! writes them back ([`Source::save`], [`Sink::save`]), so that at every moment the frames say what
//! is left (rule A3).

use crate::memory::{self, Access};
use crate::object::reference::Reference;
use crate::object::space::Space;
use crate::object::thread::Thread;
use crate::object::{self};
use crate::{probe, Stop, K};
use abi::ipc::Plan;
use abi::message::EXCEPTION_WORDS;
use abi::{MAX_IDEMPOTENT, MAX_LIST_REFS, MAX_SHORT, OBJECT_SIZE, PAGE_SIZE, USER_END};
use core::cell::Cell;

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

/// Bytes of the longest message that the kernel itself sends or understands.
const KERNEL_BYTES: usize = EXCEPTION_WORDS * 8;

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
    #[cfg_attr(fermata_probe, track_caller)]
    fn settle(&mut self, k: K, space: &'static Space) -> Result<(), Stop> {
        let mut skipped = 0;
        while self.length == 0 && self.left > 0 {
            skipped += 1;
            if skipped > MAX_SKIPPED {
                return Err(Stop::Again);
            }
            let mut entry = [0; 2];
            memory::read_words(k, space, self.list, &mut entry)?;
            [self.address, self.length] = entry;
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

/// Up to 64 bytes in registers.
#[derive(Clone, Copy)]
struct Short {
    bytes: [u8; MAX_SHORT as usize],
    count: usize,
}

pub(super) fn short_registers(t: &Thread) -> [&Cell<u64>; 8] {
    let c = &t.ctx;
    [&c.rsi, &c.rdx, &c.r10, &c.r8, &c.r9, &c.r12, &c.r13, &c.r14]
}

impl Short {
    fn load(t: &Thread) -> Self {
        let mut bytes = [0; MAX_SHORT as usize];
        for (chunk, register) in bytes.chunks_exact_mut(8).zip(short_registers(t)) {
            chunk.copy_from_slice(&register.get().to_le_bytes());
        }
        let count = ((t.ctx.rax.get() >> 8 & 0xff) as usize).min(MAX_SHORT as usize);
        Short { bytes, count }
    }

    fn store(&self, t: &Thread) {
        for (chunk, register) in self.bytes.chunks_exact(8).zip(short_registers(t)) {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            register.set(u64::from_le_bytes(word));
        }
        t.ctx
            .rax
            .set(t.ctx.rax.get() & !0xff00 | (self.count as u64) << 8);
    }

    /// Takes `n` bytes off the front.
    fn consume(&mut self, n: usize) {
        // What is left moves to the front; nothing left, nothing moves.
        if n < self.count {
            self.bytes.copy_within(n.., 0);
        }
        self.count -= n;
    }
}

/// Where a message comes from.
pub(super) struct Source<'a> {
    kind: From<'a>,
    /// References to send; see [`abi::ref_list`].
    refs: u64,
    space: Option<&'static Space>,
}

enum From<'a> {
    Memory(Scatter),
    Short(Short),
    Kernel(&'a [u64]),
}

impl<'a> Source<'a> {
    /// What the thread's frame says it sends.
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        let c = &t.ctx;
        if stages.has(Plan::SHORT) {
            let kind = From::Short(Short::load(t));
            return Source {
                kind,
                refs: c.r15.get(),
                space: Some(space),
            };
        }
        Source {
            kind: From::Memory(Scatter {
                address: c.rsi.get(),
                length: c.rdx.get(),
                list: c.r10.get(),
                left: c.r8.get(),
            }),
            refs: c.r9.get(),
            space: Some(space),
        }
    }

    /// A message of the kernel's own.
    pub(super) fn kernel(words: &'a [u64]) -> Self {
        Source {
            kind: From::Kernel(words),
            refs: 0,
            space: None,
        }
    }

    /// Writes into the frame what is left.
    pub(super) fn save(&self, t: &Thread) {
        let c = &t.ctx;
        match &self.kind {
            From::Memory(s) => {
                c.rsi.set(s.address);
                c.rdx.set(s.length);
                c.r10.set(s.list);
                c.r8.set(s.left);
                c.r9.set(self.refs);
            }
            From::Short(s) => {
                s.store(t);
                c.r15.set(self.refs);
            }
            From::Kernel(_) => {}
        }
    }

    /// A lower bound of the length, known without touching memory.
    pub(super) fn known_length(&self) -> u64 {
        match &self.kind {
            From::Memory(s) => s.length,
            From::Short(s) => s.count as u64,
            From::Kernel(words) => words.len() as u64 * 8,
        }
    }

    /// The words of a register message, which must have exactly so many and nothing else.
    pub(super) fn short_words<const N: usize>(self) -> Result<[u64; N], Stop> {
        let From::Short(short) = self.kind else {
            return Err(Stop::Code(abi::Code::Invalid));
        };
        if short.count != N * 8 || self.refs & MAX_LIST_REFS != 0 {
            return Err(Stop::Code(abi::Code::Invalid));
        }
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(short.bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(chunk);
            *word = u64::from_le_bytes(eight);
        }
        Ok(words)
    }

    /// Reads a message that must have exactly this length.
    pub(super) fn read_words(mut self, k: K, words: &mut [u64]) -> Result<(), Stop> {
        let wrong = Stop::Code(abi::Code::Invalid);
        let (From::Memory(scatter), Some(space)) = (&mut self.kind, self.space) else {
            return Err(wrong);
        };
        let mut bytes = [0; KERNEL_BYTES];
        let bytes = &mut bytes[..words.len() * 8];
        let mut done = 0;
        while done < bytes.len() {
            scatter.settle(k, space)?;
            let n = scatter.run().min((bytes.len() - done) as u64) as usize;
            if n == 0 {
                return Err(wrong);
            }
            memory::read_bytes(k, space, scatter.address, &mut bytes[done..done + n])?;
            scatter.advance(n as u64);
            done += n;
        }
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(chunk);
            *word = u64::from_le_bytes(eight);
        }
        scatter.settle(k, space)?;
        if scatter.length == 0 && self.refs & MAX_LIST_REFS == 0 {
            Ok(())
        } else {
            Err(wrong)
        }
    }
}

/// Whether there is nothing at all to send.
#[cfg_attr(fermata_probe, track_caller)]
pub(super) fn is_empty(k: K, source: &mut Source<'_>) -> Result<bool, Stop> {
    if source.refs & MAX_LIST_REFS != 0 {
        return Ok(false);
    }
    Ok(match (&mut source.kind, source.space) {
        (From::Memory(s), Some(space)) => {
            s.settle(k, space)?;
            s.length == 0
        }
        (From::Short(s), _) => s.count == 0,
        _ => true,
    })
}

/// Where a message goes.
pub(super) struct Sink {
    kind: Into,
    refs: u64,
    space: &'static Space,
}

enum Into {
    Memory(Scatter),
    Short(Short),
}

impl Sink {
    /// What the thread's frame says it receives into, and has received so far.
    pub(super) fn of(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        let c = &t.ctx;
        let kind = if stages.has(Plan::SHORT) {
            Into::Short(Short::load(t))
        } else {
            Into::Memory(Scatter {
                address: c.r12.get(),
                length: c.r13.get(),
                list: c.r14.get(),
                left: c.r15.get(),
            })
        };
        Sink {
            kind,
            refs: c.rbx.get(),
            space,
        }
    }

    /// As [`Sink::of`], for a call that has not begun to receive: what its registers count is
    /// something else.
    pub(super) fn fresh(t: &'static Thread, stages: Plan, space: &'static Space) -> Self {
        let mut sink = Sink::of(t, stages, space);
        if let Into::Short(s) = &mut sink.kind {
            s.count = 0;
        }
        sink
    }

    /// Writes into the frame what is left.
    pub(super) fn save(&self, t: &Thread) {
        let c = &t.ctx;
        match &self.kind {
            Into::Memory(s) => {
                c.r12.set(s.address);
                c.r13.set(s.length);
                c.r14.set(s.list);
                c.r15.set(s.left);
            }
            Into::Short(s) => s.store(t),
        }
        c.rbx.set(self.refs);
    }

    /// Makes sure that the current segment is there.
    pub(super) fn probe(&self, k: K) -> Result<(), Stop> {
        match &self.kind {
            Into::Memory(s) => {
                let length = s.length.min(MAX_IDEMPOTENT);
                memory::probe(k, self.space, s.address, length, Access::WRITE)
            }
            Into::Short(_) => Ok(()),
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
    pump_bytes(k, source, sink, u64::MAX, Some(t))
}

/// Moves a message of the idempotent form, which goes in one piece. Says whether all of it fitted
/// into the sink and into what such a message may have.
pub(super) fn pump_whole(k: K, source: &mut Source<'_>, sink: &mut Sink) -> Result<bool, Trouble> {
    let pumped = pump_bytes(k, source, sink, MAX_IDEMPOTENT, None)?;
    Ok(matches!(pumped, Pumped::Exhausted))
}

fn pump_bytes(
    k: K,
    source: &mut Source<'_>,
    sink: &mut Sink,
    mut limit: u64,
    preemptible: Option<&Thread>,
) -> Result<Pumped, Trouble> {
    let mut moved = 0;
    if let Some(full) = pump_refs(k, source, sink)? {
        return Ok(full);
    }
    let from_space = source.space;
    let into_space = sink.space;
    let room = |into: &mut Into| match into {
        Into::Memory(s) => {
            s.settle(k, into_space).map_err(Trouble::Sink)?;
            Ok(s.run())
        }
        Into::Short(s) => Ok(MAX_SHORT - s.count as u64),
    };
    match &mut source.kind {
        From::Memory(from) => loop {
            let Some(space) = from_space else {
                return Ok(Pumped::Exhausted);
            };
            if moved >= STRIDE {
                moved = 0;
                if preemptible.is_some_and(|t| k.preempts(t)) {
                    return Ok(Pumped::Preempted);
                }
            }
            from.settle(k, space).map_err(Trouble::Source)?;
            if from.length == 0 {
                return Ok(Pumped::Exhausted);
            }
            let n = room(&mut sink.kind)?.min(from.run()).min(limit);
            if n == 0 {
                return Ok(Pumped::Full);
            }
            limit -= n;
            moved += n;
            let page =
                memory::translate(k, space, from.address, Access::READ).map_err(Trouble::Source)?;
            let offset = from.address % PAGE_SIZE;
            match &mut sink.kind {
                Into::Memory(into) => {
                    let to = memory::translate(k, into_space, into.address, Access::WRITE)
                        .map_err(Trouble::Sink)?;
                    hal::copy_bytes((to, into.address % PAGE_SIZE), (page, offset), n);
                    into.advance(n);
                }
                Into::Short(into) => {
                    let end = into.count + n as usize;
                    hal::read_bytes(page, offset, &mut into.bytes[into.count..end]);
                    into.count = end;
                }
            }
            from.advance(n);
            probe::moved(n, preemptible.is_some());
        },
        From::Short(from) => {
            while from.count > 0 {
                let n = (room(&mut sink.kind)? as usize).min(from.count);
                if n == 0 {
                    return Ok(Pumped::Full);
                }
                store(k, sink, &from.bytes[..n]).map_err(Trouble::Sink)?;
                from.consume(n);
            }
            Ok(Pumped::Exhausted)
        }
        From::Kernel(words) => {
            let mut bytes = [0; KERNEL_BYTES];
            for (chunk, word) in bytes.chunks_exact_mut(8).zip(*words) {
                chunk.copy_from_slice(&word.to_le_bytes());
            }
            let mut rest = &bytes[..words.len() * 8];
            while !rest.is_empty() {
                let n = (room(&mut sink.kind)? as usize).min(rest.len());
                if n == 0 {
                    return Ok(Pumped::Full);
                }
                store(k, sink, &rest[..n]).map_err(Trouble::Sink)?;
                rest = &rest[n..];
            }
            Ok(Pumped::Exhausted)
        }
    }
}

/// Puts bytes that the kernel holds into the sink, which has room for them on one page.
#[cfg_attr(fermata_probe, track_caller)]
fn store(k: K, sink: &mut Sink, bytes: &[u8]) -> Result<(), Stop> {
    match &mut sink.kind {
        Into::Memory(into) => {
            let to = memory::translate(k, sink.space, into.address, Access::WRITE)?;
            hal::write_bytes(to, into.address % PAGE_SIZE, bytes);
            into.advance(bytes.len() as u64);
        }
        Into::Short(into) => {
            into.bytes[into.count..into.count + bytes.len()].copy_from_slice(bytes);
            into.count += bytes.len();
        }
    }
    Ok(())
}

/// Moves references, before any bytes. Says `Full` if the sink has too few places.
fn pump_refs(k: K, source: &mut Source<'_>, sink: &mut Sink) -> Result<Option<Pumped>, Trouble> {
    let Some(from_space) = source.space else {
        return Ok(None);
    };
    while source.refs & MAX_LIST_REFS > 0 {
        if sink.refs & MAX_LIST_REFS == 0 {
            return Ok(Some(Pumped::Full));
        }
        let from = source.refs & !MAX_LIST_REFS;
        let into = sink.refs & !MAX_LIST_REFS;
        let target = object::target_at(k, from_space, from).map_err(Trouble::Source)?;
        let place = object::find::<Reference>(k, sink.space, into).map_err(Trouble::Sink)?;
        place.point(k, target);
        source.refs = source.refs.wrapping_add(OBJECT_SIZE - 1);
        sink.refs = sink.refs.wrapping_add(OBJECT_SIZE - 1);
        probe::progress();
    }
    Ok(None)
}
