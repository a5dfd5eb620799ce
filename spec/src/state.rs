//! `get_state` and `set_state` of every type: all there is to know about an object (rule A6).
//!
//! Getting never changes the object. Setting checks every field and every reference.

use crate::calls::Caller;
use crate::ipc::answered;
use crate::object::{Account, Body, End, Source, Target, Thread};
use crate::wait::{reliable, Waiting};
use crate::{rights, Handled, Id, Stop, System};
use abi::state::{
    clean_fpu, port_flags, space_flags, Stage, FPU_BYTES, REGISTER_WORDS, THREAD_WORDS,
};
use abi::{
    collocated, Code, RefKind, Registers, Type, MAX_THREADS, PAGE_SIZE, PRIORITIES, ROLES, USER_END,
};

const INVALID: Stop = Stop::Code(Code::Invalid);

impl System {
    /// The reference object of the caller's that is to receive a reference, or none for the handle 0.
    fn receiver(&self, c: Caller, handle: u64) -> Result<Option<Id>, Stop> {
        match handle {
            0 => Ok(None),
            _ => self.find(c.space, handle, Type::Reference).map(Some),
        }
    }

    /// Points the receiver at the target; at nothing if the target is dead.
    fn give(&mut self, receiver: Option<Id>, target: Target) {
        if let Some(receiver) = receiver {
            let target = if self.alive(target) { target } else { Target::NULL };
            self.point(receiver, target);
        }
    }

    fn plain(&self, id: Option<Id>) -> Target {
        id.filter(|id| self.objects.contains_key(id)).map_or(Target::NULL, |id| self.target(id))
    }

    /// The object of this type that a reference names: none for the handle 0 or a null reference.
    fn given(&self, c: Caller, handle: u64, ty: Type) -> Result<Option<Id>, Stop> {
        let target = self.target_at(c.space, handle)?;
        if target == Target::NULL {
            return Ok(None);
        }
        self.named(target, ty).map(Some).ok_or(Stop::Code(Code::Dead))
    }

    /// As [`System::given`], with the caller's own space for the handle 0.
    fn given_space(&self, c: Caller, handle: u64) -> Result<Option<Id>, Stop> {
        match handle {
            0 => Ok(Some(c.space)),
            _ => self.given(c, handle, Type::Space),
        }
    }

    /// One end of another thread's connection that a reference names.
    fn given_end(&self, c: Caller, handle: u64, kind: RefKind) -> Result<Option<Id>, Stop> {
        match self.target_at(c.space, handle)? {
            target if target.kind == kind && self.alive(target) => Ok(Some(target.id)),
            Target::NULL => Ok(None),
            _ => Err(Stop::Code(Code::Dead)),
        }
    }

    pub(crate) fn get_state(&mut self, c: Caller, ty: Type) -> Handled {
        let id = self.find_body(c.space, c.a, ty)?;
        let body = self.objects[&id].body.clone();
        let none = (None, Target::NULL);
        let (words, given): (Vec<u64>, [(Option<Id>, Target); 3]) = match &body {
            Body::Cond | Body::Portset => return self.done(c),
            Body::Mutex(m) => (vec![u64::from(m.locked)], [none; 3]),
            Body::Mapping(m) => {
                let region = (self.receiver(c, c.c)?, self.plain(m.region));
                let space = (self.receiver(c, c.d)?, self.plain(m.space));
                (vec![m.start, m.size, m.offset, m.protection], [region, space, none])
            }
            Body::Region(r) => {
                let space = (self.receiver(c, c.c)?, self.plain(r.space));
                let keeper = (self.receiver(c, c.d)?, self.plain(r.keeper));
                (vec![r.start, r.size, r.protection], [space, keeper, none])
            }
            Body::Port(p) => {
                let portset = (self.receiver(c, c.c)?, self.plain(p.portset));
                let flag = |on, flag| if on { flag } else { 0 };
                let flags = flag(p.calls_only, port_flags::CALLS_ONLY)
                    | flag(p.notify, port_flags::NOTIFY_UNREFERENCED)
                    | flag(p.holds, port_flags::HOLD_CLIENTS);
                (vec![p.alias, flags], [portset, none, none])
            }
            Body::Space(s) => {
                let keeper = (self.receiver(c, c.c)?, self.plain(s.keeper));
                let flags = if s.foreign { space_flags::FOREIGN } else { 0 };
                let account = &self.accounts[s.account];
                let words =
                    vec![flags, account.quota, account.used, s.clock_offset, s.max_priority];
                (words, [keeper, none, none])
            }
            Body::Thread(t) => {
                // A peer that has ended the connection is not shown as a peer.
                let end = |end: &End, kind| match end.peer {
                    Some(id) if end.stage != Stage::Finished => {
                        Target { kind, id, of_server: kind == RefKind::ClientEnd }
                    }
                    _ => Target::NULL,
                };
                let given = [
                    (self.receiver(c, c.c)?, self.plain(t.space)),
                    (self.receiver(c, c.d)?, end(&t.client, RefKind::ServerEnd)),
                    (self.receiver(c, c.e)?, end(&t.server, RefKind::ClientEnd)),
                ];
                (thread_words(t), given)
            }
            Body::Reference(r) => {
                let copy = (self.receiver(c, c.c)?, r.target);
                let kind = if self.alive(r.target) { r.target.kind } else { RefKind::Null };
                (vec![kind as u64], [copy, none, none])
            }
        };
        self.write_words(c.space, c.b, &words)?;
        for (receiver, target) in given {
            self.give(receiver, target);
        }
        self.done(c)
    }

    pub(crate) fn set_state(&mut self, c: Caller, ty: Type) -> Handled {
        let id = self.find_body(c.space, c.a, ty)?;
        match ty {
            Type::Cond | Type::Portset => {}
            Type::Mutex => {
                let [locked] = self.read_words(c.space, c.b)?;
                self.mutex_mut(id).locked = flag(locked)?;
            }
            Type::Mapping => self.set_mapping(c, id)?,
            Type::Region => self.set_region(c, id)?,
            Type::Port => {
                let [alias, flags] = self.read_words(c.space, c.b)?;
                let portset = self.given(c, c.c, Type::Portset)?;
                if flags & !port_flags::ALL != 0 {
                    return Err(INVALID);
                }
                let port = self.port_mut(id);
                (port.alias, port.portset) = (alias, portset);
                port.calls_only = flags & port_flags::CALLS_ONLY != 0;
                port.notify = flags & port_flags::NOTIFY_UNREFERENCED != 0;
                port.holds = flags & port_flags::HOLD_CLIENTS != 0;
            }
            Type::Space => self.set_space(c, id)?,
            Type::Thread => self.set_thread(c, id)?,
            Type::Reference => {
                let [kind] = self.read_words(c.space, c.b)?;
                let target = self.target_at(c.space, c.c)?;
                if RefKind::from_raw(kind) != Some(target.kind) {
                    return Err(INVALID);
                }
                self.point(id, target);
            }
        }
        self.opened(id);
        self.done(c)
    }

    fn set_mapping(&mut self, c: Caller, id: Id) -> Result<(), Stop> {
        let [start, size, offset, protection] = self.read_words(c.space, c.b)?;
        let region = self.given(c, c.c, Type::Region)?;
        let space = self.given_space(c, c.d)?;
        rights(protection)?;
        page_range(start, size, USER_END)?;
        page_range(offset, size, !(PAGE_SIZE - 1))?;
        // A mapping without a region or a space, or of size 0, takes no addresses.
        let inert = size == 0 || region.is_none() || space.is_none();
        let (region, space) = if inert { (None, None) } else { (region, space) };
        if let Some(space) = space {
            let (from, to) = match self.space(space).place {
                Some(place) => collocated::range(place),
                None => (0, collocated::START),
            };
            if start < from || start + size > to {
                return Err(INVALID);
            }
            let taken =
                |(other, s, n): (Id, u64, u64)| other != id && s < start + size && start < s + n;
            if self.mappings_of(space).any(taken) {
                return Err(Stop::Code(Code::InUse));
            }
        }
        *self.mapping_mut(id) =
            crate::object::Mapping { start, size, offset, protection, region, space };
        Ok(())
    }

    fn set_region(&mut self, c: Caller, id: Id) -> Result<(), Stop> {
        let [start, size, protection] = self.read_words(c.space, c.b)?;
        let space = self.given_space(c, c.c)?;
        let keeper = self.given(c, c.d, Type::Port)?;
        rights(protection)?;
        page_range(start, size, USER_END)?;
        if self.region(id).source == Source::Memory {
            return Err(INVALID);
        }
        let source = Source::Space;
        *self.region_mut(id) =
            crate::object::Region { source, start, size, protection, space, keeper };
        Ok(())
    }

    fn set_space(&mut self, c: Caller, id: Id) -> Result<(), Stop> {
        let [flags, quota, _, clock_offset, ceiling] = self.read_words(c.space, c.b)?;
        let keeper = self.given(c, c.c, Type::Port)?;
        if flags & !space_flags::FOREIGN != 0 || ceiling >= u64::from(PRIORITIES) {
            return Err(INVALID);
        }
        self.ceiling(c, None, ceiling)?;
        self.set_quota(c, self.space(id).account, quota)?;
        let s = self.space_mut(id);
        s.max_priority = ceiling;
        let moved = s.clock_offset != clock_offset;
        (s.foreign, s.clock_offset, s.keeper) = (flags != 0, clock_offset, keeper);
        if moved {
            self.wake_timed(id);
        }
        Ok(())
    }

    /// The difference moves from or to the creator's account. Only a caller whose account is above gives more.
    fn set_quota(&mut self, c: Caller, account: usize, quota: u64) -> Result<(), Stop> {
        let Account { parent, quota: old, used, .. } = self.accounts[account];
        if quota < used || (parent.is_none() && quota != old) {
            return Err(INVALID);
        }
        if let Some(parent) = parent {
            if quota > old {
                if !self.lives_of(parent, self.space(c.space).account) {
                    return Err(Stop::Code(Code::Denied));
                }
                self.charge(parent, quota - old)?;
            } else {
                self.discharge(parent, old - quota);
            }
        }
        self.accounts[account].quota = quota;
        Ok(())
    }

    fn set_thread(&mut self, c: Caller, id: Id) -> Result<(), Stop> {
        if self.thread(id).stops == 0 {
            return Err(Stop::Code(Code::NotStopped));
        }
        let state: [u64; STATE_WORDS] = self.read_words(c.space, c.b)?;
        let (words, fpu) = state.split_at(THREAD_WORDS);
        let fpu: Vec<u8> = fpu.iter().flat_map(|word| word.to_le_bytes()).collect();
        let space = self.given_space(c, c.c)?;
        let client_peer = self.given_end(c, c.d, RefKind::ServerEnd)?;
        let server_peer = self.given_end(c, c.e, RefKind::ClientEnd)?;
        // The reference gives the right to be its server, unless it came from a state, which only shows a connection.
        let is_keeper = server_peer.is_some() && !self.target_at(c.space, c.e)?.of_server;

        let mut registers = [0; REGISTER_WORDS];
        registers.copy_from_slice(&words[..REGISTER_WORDS]);
        let registers = Registers::from_words(&registers);
        let [tag, priority, stops, interrupt, client, server, delivered, code, address, ..] =
            words[REGISTER_WORDS..]
        else {
            return Err(INVALID);
        };
        let client = Stage::from_raw(client).ok_or(INVALID)?;
        let server = Stage::from_raw(server).ok_or(INVALID)?;
        let (interrupt, delivered) = (flag(interrupt)?, flag(delivered)?);
        let client_ok = match client {
            Stage::None | Stage::Finished => client_peer.is_none(),
            Stage::Call | Stage::Fault | Stage::Exception => false,
            _ => true,
        };
        let server_ok = match server {
            Stage::None => server_peer.is_none(),
            Stage::Finished => false,
            _ => true,
        };
        let sound = sound(&registers)
            && priority < u64::from(PRIORITIES)
            && (1..=u64::from(u32::MAX)).contains(&stops)
            && code <= u64::from(u8::MAX)
            && client_ok
            && server_ok;
        if !sound {
            return Err(INVALID);
        }
        self.ceiling(c, space, priority)?;
        let others = self.threads().filter(|&(other, t)| other != id && t.space == space).count();
        if space.is_some() && others >= MAX_THREADS as usize {
            return Err(Stop::Code(Code::NoMemory));
        }

        // Interrupts that came while there was no body have not been lost.
        let fresh = !self.is_open(id);
        let t = self.thread_mut(id);
        // An answer that came while there was no body counts if the new state waits for an answer.
        let (registers, delivered) = match t.answer.take() {
            Some(answer) if delivered => (answered(registers, t.registers(), answer), false),
            _ => (registers, delivered),
        };
        t.set_registers(registers);
        t.fpu = clean(&fpu);
        (t.tag, t.priority, t.stops) = (tag, priority, stops);
        t.interrupt = interrupt || fresh && t.interrupt;
        (t.exception_delivered, t.exception) = (delivered, (code as u8, address));
        if !delivered {
            t.keeper = None;
        }
        (t.meets, t.waited) = (None, (Waiting::Nothing, 0));
        self.set_end(id, true, End { stage: client, peer: client_peer });
        self.set_end(id, false, End { stage: server, peer: server_peer });
        if let (Stage::Exception, true, Some(client)) = (server, is_keeper, server_peer) {
            let client = self.thread_mut(client);
            let delivered = client.exception_delivered;
            // An answer that has been given already has the last word.
            if client.answer.is_none() && (delivered || client.stops > 0) {
                (client.keeper, client.meets) = (Some(id), None);
                if !delivered {
                    client.waited = (Waiting::Nothing, 0);
                }
            }
        }
        self.thread_mut(id).space = space;
        Ok(())
    }

    /// `thread_answer`: the thread's manager answers the exception that was received from the thread.
    pub(crate) fn thread_answer(&mut self, c: Caller) -> Handled {
        let id = self.find_open(c.space, c.a, Type::Thread)?;
        if !self.thread(id).exception_delivered {
            return Err(Stop::Code(Code::WrongStage));
        }
        let words: [u64; REGISTER_WORDS] = self.read_words(c.space, c.b)?;
        let fpu: Option<[u64; FPU_BYTES / 8]> = match c.c {
            0 => None,
            at => Some(self.read_words(c.space, at)?),
        };
        let registers = Registers::from_words(&words);
        if !sound(&registers) {
            return Err(INVALID);
        }
        let t = self.thread_mut(id);
        t.set_registers(registers);
        if let Some(words) = fpu {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            t.fpu = clean(&bytes);
        }
        self.end_exception(id);
        self.done(c)
    }

    /// Sets one end of a connection. If it names another peer than before, the old peer is told that the connection
    /// has ended.
    fn set_end(&mut self, t: Id, client: bool, new: End) {
        let old = if client { self.thread(t).client } else { self.thread(t).server };
        let same = old.peer == new.peer;
        // The server has ended the connection in order after the state was taken.
        let was_on = matches!(new.stage, Stage::Receiving | Stage::Over);
        if old.stage == Stage::Finished && was_on && same {
            return;
        }
        // A request is not a connection, even with the same peer.
        let kind = |s: Stage| if reliable(s) { Stage::Sending } else { s };
        let goes_on = same && kind(old.stage) == kind(new.stage);
        match (old.stage, client) {
            (Stage::None, _) => {}
            _ if goes_on => {}
            (_, true) => self.drop_client_end(t),
            (_, false) => self.drop_server_end(t),
        }
        let thread = self.thread_mut(t);
        *(if client { &mut thread.client } else { &mut thread.server }) = new;
    }
}

/// Words of the whole state of a thread: the fields that are words, and the FPU's state.
const STATE_WORDS: usize = THREAD_WORDS + FPU_BYTES / 8;

fn thread_words(t: &Thread) -> Vec<u64> {
    let mut words = t.registers().to_words().to_vec();
    let (waiting, what) = t.waits_for();
    words.extend([
        t.tag,
        t.priority,
        t.stops,
        u64::from(t.interrupt),
        t.client.stage as u64,
        t.server.stage as u64,
        u64::from(t.exception_delivered),
        u64::from(t.exception.0),
        t.exception.1,
        waiting as u64,
        what,
        0,
    ]);
    words.extend(
        t.fpu.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())),
    );
    words
}

fn flag(value: u64) -> Result<bool, Stop> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(INVALID),
    }
}

fn page_range(start: u64, size: u64, limit: u64) -> Result<(), Stop> {
    let end = start.checked_add(size);
    if start.is_multiple_of(PAGE_SIZE)
        && size.is_multiple_of(PAGE_SIZE)
        && end.is_some_and(|end| end <= limit)
    {
        Ok(())
    } else {
        Err(INVALID)
    }
}

/// Whether a program could have these registers: the program counter is below the kernel's half, and bases are
/// canonical.
pub(crate) fn sound(r: &Registers) -> bool {
    let canonical = |address: u64| ((address << 16) as i64 >> 16) as u64 == address;
    r.pc() < 1 << 47 && ROLES.bases.iter().all(|&base| canonical(r.get(base)))
}

/// The bits of the FPU's control word that the processor has.
const FPU_MASK: u32 = 0xffff;

/// The FPU's state without the parts that the layout reserves and the bits that the processor would refuse.
pub(crate) fn clean(bytes: &[u8]) -> [u8; FPU_BYTES] {
    let mut fpu = [0; FPU_BYTES];
    fpu.copy_from_slice(bytes);
    clean_fpu(&mut fpu, FPU_MASK);
    fpu
}
