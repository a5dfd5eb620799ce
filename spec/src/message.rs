//! Messages: what is moved from a sender to a receiver, in which order, and what is left.
//!
//! A frame describes each side: by a current segment, a list of further segments and a list of references, or by
//! eight registers. References go first, but last in a message that is moved whole. What has been moved is taken off
//! both descriptions, so that at every moment the frames say what is left (rule A3).

use crate::memory::word_aligned;
use crate::object::Target;
use crate::{Id, Place, Stop, System};
use abi::ipc::Plan;
use abi::registers::{Area, RECEIVE, WORDS_REFS};
use abi::{access, Code, Registers, Type};
use abi::{
    ENTRIES_PER_TURN, MAX_ENTRIES, MAX_IDEMPOTENT, MAX_LIST_REFS, MAX_SHORT, OBJECT_SIZE, PAGE_SIZE,
};

/// One side of a message.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// The space of its addresses; the kernel's own messages have none.
    space: Option<Id>,
    bytes: Bytes,
    refs: u64,
}

#[derive(Clone, Copy)]
enum Bytes {
    /// In scattered memory: a segment, then a list of segments.
    Memory { address: u64, length: u64, list: u64, left: u64 },
    /// In registers, or the kernel's own. A sender has still to send the bytes from `at` to `end`; a receiver has
    /// room there.
    Held { bytes: [u8; HELD], at: usize, end: usize },
}

impl Bytes {
    fn memory(area: Area) -> Bytes {
        let Area { address, length, list, entries: left, .. } = area;
        Bytes::Memory { address, length, list, left }
    }
}

/// The longest message that the kernel itself sends.
const HELD: usize = abi::message::EXCEPTION_WORDS * 8;
/// Empty segments that are skipped in one turn, at most.
const MAX_SKIPPED: u32 = 256;

/// How a transfer ended.
pub(crate) enum Moved {
    /// The sender has nothing left.
    All,
    /// The receiver has no room for what is left.
    Full,
    /// The transfer makes a pause: the frames say how it goes on.
    Enough,
    /// A stop on the sender's side.
    Sender(Stop),
    /// A stop on the receiver's side.
    Receiver(Stop),
}

/// The bytes of a register message, and how many of them count.
fn held(r: &Registers) -> ([u8; HELD], usize) {
    let mut bytes = [0; HELD];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(r.words()) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    (bytes, (r.call() >> 8 & 0xff).min(MAX_SHORT) as usize)
}

fn set_held(r: &mut Registers, bytes: &[u8], count: usize) {
    let mut words = [0; 8];
    for (chunk, word) in bytes.chunks_exact(8).zip(&mut words) {
        *word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    }
    r.set_words(&words);
    r.set_call(r.call() & !0xff00 | (count as u64) << 8);
}

impl Side {
    /// The sending side that the frame of a thread describes.
    pub(crate) fn sender(system: &System, t: Id, stages: Plan) -> Side {
        let (t, r) = (system.thread(t), &system.thread(t).registers);
        if stages.has(Plan::SHORT) {
            let (bytes, end) = held(r);
            return Side {
                space: t.space,
                bytes: Bytes::Held { bytes, at: 0, end },
                refs: r.parameter(WORDS_REFS),
            };
        }
        Side { space: t.space, bytes: Bytes::memory(r.send()), refs: r.send().refs }
    }

    /// The receiving side that the frame of a thread describes, with what has been received so far: nothing, unless
    /// it has `begun`.
    pub(crate) fn receiver(system: &System, t: Id, stages: Plan, begun: bool) -> Side {
        let (t, r) = (system.thread(t), &system.thread(t).registers);
        let bytes = if stages.has(Plan::SHORT) {
            let (bytes, count) = held(r);
            let at = if begun { count } else { 0 };
            Bytes::Held { bytes, at, end: MAX_SHORT as usize }
        } else {
            Bytes::memory(r.receive())
        };
        Side { space: t.space, bytes, refs: r.receive().refs }
    }

    /// A message of the kernel's own.
    pub(crate) fn kernel(words: &[u64]) -> Side {
        let mut bytes = [0; HELD];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let bytes = Bytes::Held { bytes, at: 0, end: words.len() * 8 };
        Side { space: None, bytes, refs: 0 }
    }

    /// Writes what is left into the sender's frame.
    pub(crate) fn save_sender(&self, r: &mut Registers) {
        match self.bytes {
            Bytes::Memory { address, length, list, left } => {
                r.set_send(&Area { address, length, list, entries: left, refs: self.refs });
            }
            Bytes::Held { mut bytes, at, end } => {
                // What is left moves to the front of the registers.
                if at < end {
                    bytes.copy_within(at..MAX_SHORT as usize, 0);
                }
                set_held(r, &bytes, end - at);
                r.set_parameter(WORDS_REFS, self.refs);
            }
        }
    }

    /// Writes what is left into the receiver's frame.
    pub(crate) fn save_receiver(&self, r: &mut Registers) {
        match self.bytes {
            Bytes::Memory { address, length, list, left } => {
                r.set_receive(&Area { address, length, list, entries: left, refs: self.refs });
            }
            Bytes::Held { bytes, at, .. } => {
                set_held(r, &bytes, at);
                r.set_parameter(RECEIVE[4], self.refs);
            }
        }
    }

    /// The bytes that the message has at least.
    pub(crate) fn known_length(&self) -> u64 {
        match self.bytes {
            Bytes::Memory { length, .. } => length,
            Bytes::Held { at, end, .. } => (end - at) as u64,
        }
    }

    /// Whether it is one segment of so many bytes, with no list behind it.
    pub(crate) fn is_piece(&self, bytes: u64) -> bool {
        matches!(self.bytes, Bytes::Memory { length, left: 0, .. } if length == bytes)
    }

    /// Whether, as far as can be known without reading the list in memory, there is nothing to send.
    pub(crate) fn seems_empty(&self) -> bool {
        self.refs & MAX_LIST_REFS == 0 && self.known_length() == 0
    }

    /// Checks that the current segment can be written.
    pub(crate) fn probe(&self, system: &System) -> Result<(), Stop> {
        match (self.bytes, self.space) {
            (Bytes::Memory { address, length, .. }, Some(space)) => {
                system.probe(space, address, length.min(MAX_IDEMPOTENT), access::WRITE)
            }
            _ => Ok(()),
        }
    }

    /// Skips empty segments: makes the current segment one that is not empty, if anything is left.
    fn settle(&mut self, system: &System) -> Result<(), Stop> {
        let (Bytes::Memory { address, length, list, left }, Some(space)) =
            (&mut self.bytes, self.space)
        else {
            return Ok(());
        };
        let mut skipped = 0;
        while *length == 0 && *left > 0 {
            skipped += 1;
            if skipped > MAX_SKIPPED {
                return Err(Stop::Again);
            }
            word_aligned(*list)?;
            [*address, *length] = system.read_words(space, *list)?;
            *list = list.wrapping_add(16);
            *left -= 1;
        }
        Ok(())
    }

    /// Entries of the list that are left.
    fn entries(&self) -> u64 {
        match self.bytes {
            Bytes::Memory { left, .. } => left,
            Bytes::Held { .. } => 0,
        }
    }

    /// Whether there is nothing at all to send.
    pub(crate) fn is_empty(&mut self, system: &System) -> Result<bool, Stop> {
        if self.refs & MAX_LIST_REFS != 0 {
            return Ok(false);
        }
        self.settle(system)?;
        Ok(self.known_length() == 0)
    }

    /// Bytes in one piece on one page from the current address: to send, or of room.
    fn run(&self) -> u64 {
        match self.bytes {
            Bytes::Memory { address, length, .. } => length.min(PAGE_SIZE - address % PAGE_SIZE),
            Bytes::Held { at, end, .. } => (end - at) as u64,
        }
    }

    /// Frame and offset of the current address, for sides in memory.
    fn locate(&self, system: &System, need: u64) -> Result<Option<Place>, Stop> {
        match (self.bytes, self.space) {
            (Bytes::Memory { address, .. }, Some(space)) => {
                let frame = system.translate(space, address, need)?;
                Ok(Some((frame, address % PAGE_SIZE)))
            }
            _ => Ok(None),
        }
    }

    /// Takes `n` moved bytes off the description.
    fn advance(&mut self, n: u64) {
        match &mut self.bytes {
            Bytes::Memory { address, length, .. } => {
                (*address, *length) = (*address + n, *length - n);
            }
            Bytes::Held { at, .. } => *at += n as usize,
        }
    }
}

/// How large a message can be.
#[derive(Clone, Copy)]
enum Extent {
    /// It is moved whole, and so has few entries and bytes.
    Whole,
    /// Of any size, from the first of these threads to the second, with pauses.
    Stream([Id; 2]),
}

/// What is done with a piece that both sides have: where it is in the sender's and in the receiver's memory, and its
/// length in bytes.
type Visit = fn(&mut System, (&Side, Option<Place>), (&mut Side, Option<Place>), u64);

impl System {
    /// Moves what the sender has into the room that the receiver has. `ends` are their threads, whose frames say
    /// where the kernel has made a pause.
    pub(crate) fn transfer(&mut self, from: &mut Side, to: &mut Side, ends: [Id; 2]) -> Moved {
        match self.references(from, to, System::point) {
            Some(ended) => ended,
            None => self.pieces(from, to, Extent::Stream(ends), System::copy),
        }
    }

    /// The same for a message that is moved whole. No byte and no reference is moved before all pages and all
    /// references have been found, nor if the receiver has no room for all of it, unless `part` allows that.
    pub(crate) fn transfer_whole(&mut self, from: &mut Side, to: &mut Side, part: bool) -> Moved {
        let ended = match self.references(&mut { *from }, &mut { *to }, |_, _, _| {}) {
            Some(Moved::Full) if part => Moved::Full,
            Some(ended) => return ended,
            None => match self.pieces(&mut { *from }, &mut { *to }, Extent::Whole, |_, _, _, _| {})
            {
                Moved::Full if !part => return Moved::Full,
                Moved::All | Moved::Full => self.pieces(from, to, Extent::Whole, System::copy),
                stopped => return stopped,
            },
        };
        // What was copied may have written over the lists that say where it goes.
        match ended {
            Moved::All => {}
            Moved::Full if part => {}
            stopped => return stopped,
        }
        self.references(from, to, System::point);
        ended
    }

    /// Goes along both sides, as far as both have bytes.
    fn pieces(&mut self, from: &mut Side, to: &mut Side, extent: Extent, visit: Visit) -> Moved {
        let mut limit = match extent {
            Extent::Whole => MAX_IDEMPOTENT,
            Extent::Stream(_) => u64::MAX,
        };
        let mut entries = 0;
        loop {
            let before = from.entries();
            if let Err(stop) = from.settle(self) {
                return Moved::Sender(stop);
            }
            let looked = before - from.entries();
            entries += looked;
            match extent {
                Extent::Whole if looked > 0 && entries > MAX_ENTRIES => {
                    return Moved::Sender(Stop::Again);
                }
                Extent::Stream(ends) if looked > 0 && self.pauses(entries, from, to, ends) => {
                    return Moved::Enough;
                }
                _ => {}
            }
            if from.known_length() == 0 {
                return Moved::All;
            }
            let before = to.entries();
            if let Err(stop) = to.settle(self) {
                return Moved::Receiver(stop);
            }
            let looked = before - to.entries();
            entries += looked;
            match extent {
                Extent::Whole if looked > 0 && entries > MAX_ENTRIES => {
                    return Moved::Receiver(Stop::Again);
                }
                Extent::Stream(ends) if looked > 0 && self.pauses(entries, from, to, ends) => {
                    return Moved::Enough;
                }
                _ => {}
            }
            let n = from.run().min(to.run()).min(limit);
            if n == 0 {
                return Moved::Full;
            }
            limit -= n;
            let source = match from.locate(self, access::READ) {
                Ok(place) => place,
                Err(stop) => return Moved::Sender(stop),
            };
            let sink = match to.locate(self, access::WRITE) {
                Ok(place) => place,
                Err(stop) => return Moved::Receiver(stop),
            };
            visit(self, (from, source), (to, sink), n);
            from.advance(n);
            to.advance(n);
            match extent {
                Extent::Stream(ends) if self.has_paused(from, to, ends) => {
                    return Moved::Enough;
                }
                _ => {}
            }
        }
    }

    /// Whether a message of any length makes a pause after this many entries of both lists, because it has to or
    /// because the kernel did.
    fn pauses(&self, entries: u64, from: &Side, to: &Side, ends: [Id; 2]) -> bool {
        entries >= ENTRIES_PER_TURN || self.has_paused(from, to, ends)
    }

    /// Whether the kernel has made its pause here, as both frames show: they are in the same stages as now. (A call
    /// that sends to one thread and then receives from another may have made its pause in the second transfer.)
    fn has_paused(&self, from: &Side, to: &Side, ends: [Id; 2]) -> bool {
        let same_stage = |&end: &Id, frame: &abi::Registers| {
            frame.call() as u8 == self.thread(end).registers.call() as u8
        };
        let [sent, received] =
            ends.map(|end| self.seen.pause.get(&end).filter(|f| same_stage(&end, f)));
        let (Some(sent), Some(received)) = (sent, received) else {
            return false;
        };
        let (mut sends, mut receives) = (*sent, *received);
        from.save_sender(&mut sends);
        to.save_receiver(&mut receives);
        (sends, receives) == (*sent, *received)
    }

    /// Copies byte by byte upwards, because the two pieces may overlap.
    fn copy(&mut self, from: (&Side, Option<Place>), to: (&mut Side, Option<Place>), n: u64) {
        for i in 0..n {
            let byte = match (from.1, &from.0.bytes) {
                (Some((frame, offset)), _) => self.peek(frame, offset + i, 1)[0],
                (None, Bytes::Held { bytes, at, .. }) => bytes[at + i as usize],
                (None, _) => 0,
            };
            match (to.1, &mut to.0.bytes) {
                (Some((frame, offset)), _) => self.poke(frame, offset + i, &[byte]),
                (None, Bytes::Held { bytes, at, .. }) => bytes[*at + i as usize] = byte,
                (None, _) => {}
            }
        }
    }

    /// Visits the references of both sides in step. Returns what ended that, unless the references came to their end.
    fn references(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        visit: fn(&mut System, Id, Target),
    ) -> Option<Moved> {
        let (Some(here), Some(there)) = (from.space, to.space) else {
            return None;
        };
        while from.refs & MAX_LIST_REFS > 0 {
            if to.refs & MAX_LIST_REFS == 0 {
                return Some(Moved::Full);
            }
            let target = match self.target_at(here, from.refs & !MAX_LIST_REFS) {
                Ok(target) => target,
                Err(stop) => return Some(Moved::Sender(stop)),
            };
            match self.find(there, to.refs & !MAX_LIST_REFS, Type::Reference) {
                Ok(place) => visit(self, place, target),
                Err(stop) => return Some(Moved::Receiver(stop)),
            }
            // The address moves one reference on, and the count in its low bits goes down by one.
            from.refs = from.refs.wrapping_add(OBJECT_SIZE - 1);
            to.refs = to.refs.wrapping_add(OBJECT_SIZE - 1);
        }
        None
    }

    /// Reads a message that must have exactly this length.
    pub(crate) fn read_exactly(&self, mut from: Side, length: u64) -> Result<Vec<u8>, Stop> {
        let wrong = Stop::Code(Code::Invalid);
        // A message whose empty entries take more than a turn is not read further: it is wrong.
        let few = |stop| if stop == Stop::Again { wrong } else { stop };
        if let Bytes::Held { bytes, end, .. } = from.bytes {
            let fits = end as u64 == length && from.refs & MAX_LIST_REFS == 0;
            return if fits { Ok(bytes[..end].to_vec()) } else { Err(wrong) };
        }
        let mut all = Vec::new();
        let entries = from.entries();
        while (all.len() as u64) < length {
            let Bytes::Memory { .. } = from.bytes else {
                return Err(wrong);
            };
            from.settle(self).map_err(few)?;
            if entries - from.entries() > MAX_ENTRIES {
                return Err(wrong);
            }
            let n = from.run().min(length - all.len() as u64);
            if n == 0 {
                return Err(wrong);
            }
            if let Some((frame, offset)) = from.locate(self, access::READ)? {
                all.extend(self.peek(frame, offset, n));
            }
            from.advance(n);
        }
        from.settle(self).map_err(few)?;
        if from.known_length() == 0 && from.refs & MAX_LIST_REFS == 0 {
            Ok(all)
        } else {
            Err(wrong)
        }
    }
}
