//! Sessions, and requests that wait without delaying others.
//!
//! A server is one thread and one portset. Its *door* is the port that others find by name; opening a session at the
//! door yields a port of its own, to which only the client has a reference, with an alias that names the session. A
//! session holds the value that implements the interface, which is dropped, with everything that it owns, when the
//! session ends.
//!
//! **A request that has to wait** is a future that is kept with its session. The session's port holds its client from
//! then on, and the server continues without having answered. By the rules of idempotent calls the client's call then
//! restarts and waits at the port, where it costs nothing and can be stopped, saved or ended like every other wait; the
//! kernel notifies the server when the client has let go of the port. When the future is ready, the port holds its
//! client no longer: the request arrives again with the same number, and the server gives the reply.
//!
//! **A client is known** by its own port at init, which it presents when it opens a session. A server that was told how
//! to ask init ([`Server::knows`]) opens sessions for processes only, at most [`MAX_JOB_SESSIONS`] for each job. A
//! session ends when nothing names its port any more, or its process has ended.
//!
//! **Ports of the server's own** are those whose aliases it chose itself ([`own_port`]). Requests of a shared interface
//! at such a port go to the [`Host`], as do exceptions and faults if the port is the keeper of a space or a region. A
//! session can be opened there, about the thing that the alias stands for. Such a port can be a session itself
//! ([`Host::session`]): one that the client did not open, but was given.
//!
//! **A request that must not be repeated** has the number that the client gave it. The last such
//! number of the session is kept with its reply: the request is done once, however often it arrives.
//!
//! * [`mod@request`], [`mod@reply`]: requests and replies; [`mod@done`]: what a session keeps of them;
//! * [`mod@host`]: what stands behind the ports; [`mod@event`]: what requests wait for.
mod done;
mod event;
mod host;
mod reply;
mod request;

use crate::wire::{self, ReplyWords, KEEP, KEPT_WORDS, QUERY, REPLY_WORDS, RESUME, WORDS};
use abi::message::{ExceptionMessage, FaultMessage, EXCEPTION_WORDS, FAULT_WORDS};
use abi::registers::Area;
use abi::state::{port_flags, PortState};
use abi::{Call, Code, RefKind};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::obj::{Port, Portset, Ref, RefAt, RefBlock};
use base::sync::Mutex;
use base::sys::{self, IpcRegs};
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use event::{Alarm, Bell};
use proto::{Error, MAX_BULK};
use reply::{send, Beside};

pub use done::Done;
pub use event::{Event, Watchers};
pub use host::{
    park, Either, Host, JobOf, NoSessions, Resumption, Service, SharedService, Visitor,
};
pub use reply::{
    keep_whole, send_bytes, send_whole, Answer, Kept, Later, Quick, Reply, ShortReply, Whole,
};
pub use request::{keep_later, keep_text, References, Request};

/// Alias of the door.
const DOOR: u64 = 0;
/// Alias of the port at which other threads wake the server.
const BELL: u64 = u64::MAX;
/// Aliases that a server chooses itself are from here on, and below [`OWN_END`].
pub const OWN: u64 = 1 << 32;
/// See [`OWN`].
pub const OWN_END: u64 = 1 << 63;
/// Most sessions of a server.
pub const MAX_SESSIONS: usize = 4096;
/// Most sessions that the processes of one job have with a server.
pub const MAX_JOB_SESSIONS: usize = 128;
/// Most bytes of replies that a job's sessions may bring from an image. Few programs are saved while a reply with bytes
/// is on its way.
pub const JOB_KEPT_BYTES: usize = 4 * wire::KEPT_BYTES;
/// In the state that is kept of a session, a word has a request's number, and from this bit on the number of words of
/// its reply.
const COUNT_SHIFT: u32 = 48;
/// The bits of the number in that word.
const NUMBER: u64 = (1 << COUNT_SHIFT) - 1;
/// How many sessions are checked for a client that has ended, each time a session is opened.
const SWEEP: usize = 16;

/// A request that waits.
struct Waiting {
    number: u64,
    future: Later,
}

/// A session.
struct Slot<S> {
    service: Rc<S>,
    /// Its interface.
    interface: u64,
    /// The door at which it was opened, as [`Visitor::door`].
    door: u64,
    port: Port,
    /// The client's own port at init: dead when the client has ended. Names nothing if clients are not known.
    client: Ref,
    job: u32,
    done: Done,
    waiting: Option<Waiting>,
    /// Wakes the request that waits.
    waker: Waker,
}

/// A server of one interface.
pub struct Server<S, H> {
    portset: Portset,
    portset_ref: Ref,
    bell: Arc<Bell>,
    _bell_port: Port,
    door: Port,
    more_doors: Vec<Port>,
    /// Asks init for the job of a client.
    job_of: Option<JobOf>,
    /// Whether the server's account has memory for this many bytes more.
    memory: fn(u64) -> Result<(), Error>,
    /// Its sessions have what their clients opened in them.
    opens: bool,
    /// Receives the references that come with a request; as a list.
    room: RefBlock,
    room_list: u64,
    /// Where the next check for sessions of ended clients begins.
    sweep: usize,
    /// By alias. The alias of the door has no entry here.
    sessions: Vec<Option<Box<Slot<S>>>>,
    host: H,
    /// Where requests with bytes arrive: words, and behind them bytes.
    buffer: Vec<u64>,
    /// How a thread continues whose exception was handled.
    resumption: Resumption,
}

/// The next call of a server whose messages travel in registers.
struct Next {
    /// Its word.
    call: u64,
    /// The reply that it gives, if any.
    words: ReplyWords,
}

impl Next {
    /// Waits.
    #[inline(always)]
    const fn wait() -> Self {
        Next {
            call: Call::ServerWaitReceiveShort as u64,
            words: wire::NO_REPLY,
        }
    }

    /// A copy made word by word.
    #[inline(always)]
    const fn apart(&self) -> Self {
        let [a, b, c, d, e] = self.words;
        Next {
            call: self.call,
            words: [a, b, c, d, e],
        }
    }

    /// Gives [`Error::Invalid`], and waits.
    #[cold]
    #[inline(never)]
    fn invalid() -> Self {
        ShortReply::of::<()>(Err(Error::Invalid)).next()
    }

    /// The reply that it gives.
    fn reply(&self) -> Option<&[u64]> {
        let gives = self.call as u8 == Call::ReplyWaitReceiveShort as u8;
        // SAFETY: so many words of a reply have been written.
        gives.then(|| unsafe {
            core::slice::from_raw_parts(self.words.as_ptr().cast(), wire::count(self.call))
        })
    }
}

/// What the server sends with its next wait.
#[derive(Clone, Copy)]
enum Out {
    Nothing,
    /// The reply in words.
    Reply,
    /// How the thread that met an exception continues.
    Resumption,
}

impl Out {
    /// The reply, or nothing.
    #[inline(always)]
    const fn reply(is: bool) -> Self {
        match is {
            true => Out::Reply,
            false => Out::Nothing,
        }
    }
}

/// A port whose alias the server chooses itself, one of at least [`OWN`], in the portset of a server.
///
/// # Errors
/// [`Code::NoMemory`].
pub fn own_port(portset: RefAt, alias: u64) -> Result<Port, Code> {
    Port::in_portset(&door(alias), portset)
}

/// The state of a door, and of the port at which the server is woken.
fn door(alias: u64) -> PortState {
    PortState {
        alias,
        flags: port_flags::CALLS_ONLY,
    }
}

/// The state of a session's port: the kernel notifies the server when its client has let go of it.
fn session(alias: u64) -> PortState {
    PortState {
        alias,
        flags: port_flags::CALLS_ONLY | port_flags::NOTIFY_UNREFERENCED,
    }
}

impl<S: Service, H: Host<S>> Server<S, H> {
    /// Whether messages come in memory.
    const BYTES: bool = S::BYTES || H::BYTES;

    /// A server on the calling thread.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(host: H) -> Result<Self, Error> {
        let portset = Portset::new().map_err(base::error_of)?;
        Self::on(portset, host)
    }

    /// A server on the calling thread whose ports of its own are in this portset already, or will be.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn on(portset: Portset, host: H) -> Result<Self, Error> {
        Self::with(portset, host).map_err(base::error_of)
    }

    fn with(portset: Portset, host: H) -> Result<Self, Code> {
        let portset_ref = portset.reference()?;
        let port = |alias| {
            let port = Port::new()?;
            port.set_state(&self::door(alias), portset_ref.handle())?;
            Ok(port)
        };
        let (door, bell_port) = (port(DOOR)?, port(BELL)?);
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(false),
            woken: Mutex::new(Vec::new()),
            thread: sys::thread_self(),
            port: bell_port.reference()?,
        });
        let mut buffer = Vec::new();
        if Self::BYTES {
            buffer
                .try_reserve_exact(WORDS + MAX_BULK / 8)
                .map_err(|_| Code::NoMemory)?;
            buffer.resize(WORDS, 0);
        }
        // A request at a door comes with one reference.
        let room = RefBlock::new(S::REFS.max(H::REFS).max(1))?;
        Ok(Server {
            portset,
            portset_ref,
            bell,
            _bell_port: bell_port,
            door,
            more_doors: Vec::new(),
            job_of: None,
            memory: |_| Ok(()),
            opens: false,
            room_list: room.list(room.len()),
            room,
            sweep: 0,
            sessions: Vec::from([None]),
            host,
            buffer,
            resumption: Resumption::NONE,
        })
    }

    /// A reference to the port at which other threads make the server take a turn, in which it calls [`Host::settle`].
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn bell(&self) -> Result<Ref, Error> {
        self.bell.port.copy().map_err(base::error_of)
    }

    /// The door, to be registered by name.
    pub fn door(&self) -> &Port {
        &self.door
    }

    /// Tells the server how to ask init for a client's job, by the client's own port at init, and how to ask whether
    /// its account has memory for this many bytes more. From then on sessions belong to processes.
    pub fn knows(&mut self, job_of: JobOf, memory: fn(u64) -> Result<(), Error>) {
        self.job_of = Some(job_of);
        self.memory = memory;
    }

    /// Tells the server that its sessions have what their clients opened in them, as files, and that no image has that.
    /// A session that continues another one then gives the last reply of that, once more, and answers all other
    /// requests with [`Error::Restored`], without doing them: so the client learns that it was restored before anything
    /// else has happened, and opens a session that it knows to be empty. In an ordinary session it would not notice if
    /// what it names had another meaning by then.
    ///
    /// # Panics
    /// For an interface without bytes, whose requests take a shorter way.
    pub fn opens(&mut self) {
        assert!(Self::BYTES, "the short way does not look at this");
        self.opens = true;
    }

    /// Adds a door. Returns its number, and a reference to it.
    pub fn add_door(&mut self) -> Result<(u64, Ref), Error> {
        let number = self.more_doors.len() as u64 + 1;
        let port = Port::new().map_err(base::error_of)?;
        let reference = port.reference().map_err(base::error_of)?;
        port.set_state(&door(BELL - number), self.portset_ref.handle())
            .map_err(base::error_of)?;
        self.more_doors.push(port);
        Ok((number, reference))
    }

    /// Serves for ever.
    pub fn run(mut self) -> ! {
        match Self::BYTES {
            true => self.run_in_memory(),
            false => self.run_in_registers(),
        }
    }

    /// Serves with messages in memory.
    fn run_in_memory(&mut self) -> ! {
        let mut reply = Reply::new(true);
        let mut out = Out::Nothing;
        loop {
            self.host.settle();
            if self.bell.rung.load(Ordering::Relaxed) {
                self.look_again();
            }
            out = self.turn_with_bytes(&mut reply, out);
        }
    }

    /// Serves with messages in registers.
    fn run_in_registers(&mut self) -> ! {
        let mut next = Next::wait();
        loop {
            self.host.settle();
            if self.bell.rung.load(Ordering::Relaxed) {
                next = self.look_first(next.apart()).apart();
            }
            if let Some(deadline) = self.host.deadline() {
                next = self.turn_until(deadline, &next);
                continue;
            }
            let mut words = wire::NONE;
            words[..REPLY_WORDS].copy_from_slice(&next.words);
            // SAFETY: a register message writes no memory.
            let (came, left) = unsafe {
                wire::in_registers_with(next.call, self.portset.handle(), words, self.room_list)
            };
            next = match self.quick(&came, left) {
                Some(next) => next,
                // Word by word, so that both are in memory only on this path.
                None => self.came_in_registers(came.apart(), left).apart(),
            };
        }
    }

    /// Calls [`Server::look_again`] before the next call.
    #[cold]
    #[inline(never)]
    fn look_first(&mut self, next: Next) -> Next {
        self.look_again();
        next
    }

    /// Handles the most frequent message in registers: a session's request without references, for a method that the
    /// stub answers quickly. All checks are inlined here and in the stub, and read registers only.
    #[inline(always)]
    fn quick(&mut self, came: &wire::Came, left: u64) -> Option<Next> {
        if !came.is(Code::Call) || left != self.room_list {
            return None;
        }
        let slot: &mut Slot<S> = self.sessions.get_mut(came.alias as usize)?.as_mut()?;
        let number = wire::number(came.words[0]);
        let (reply, once) = match slot.service.quick(came, &slot.done, &slot.waker) {
            Quick::No => return None,
            Quick::Reply(reply) => (reply, false),
            Quick::Once(reply) => (reply, true),
            Quick::Sent => return Some(Next::wait()),
            Quick::Query => return Some(self.queried(came.alias, came.words[1]).apart()),
            Quick::Invalid => return Some(Next::invalid().apart()),
            Quick::Done => return Some(slot.done.next().apart()),
            Quick::Later(future) => {
                slot.wait(came.alias, self.portset_ref.handle(), number, future);
                return Some(Next::wait());
            }
        };
        if self.host.again() {
            return Some(Next::wait());
        }
        if once {
            slot.keep_words(number, &reply);
        }
        Some(reply.next())
    }

    /// As a turn of `run_in_registers`, but waits no longer than until the deadline. Out of line, since servers seldom
    /// have one.
    #[inline(never)]
    fn turn_until(&mut self, deadline: u64, next: &Next) -> Next {
        let regs = IpcRegs::to(self.portset.handle())
            .until(deadline)
            .taking_refs(self.room_list);
        let (call, mut regs) = match next.reply() {
            Some(words) => (Call::ReplyWaitReceiveShortUntil, regs.message(words)),
            None => (Call::ServerWaitReceiveShortUntil, regs),
        };
        // SAFETY: a register message writes no memory.
        unsafe { sys::ipc(call, &mut regs) };
        self.came_in_registers(regs.came(), regs.left().refs)
    }

    /// Handles a message in registers; `left` is the unused rest of the list for references.
    #[cold]
    #[inline(never)]
    fn came_in_registers(&mut self, came: wire::Came, left: u64) -> Next {
        let mut reply = Reply::new(false);
        match self.came_as_any(&came, left, &mut reply) {
            Out::Reply => reply.short().next(),
            _ => Next::wait(),
        }
    }

    fn came_as_any(&mut self, came: &wire::Came, left: u64, reply: &mut Reply) -> Out {
        if !came.is(Code::Call) {
            let code = Code::from_word(came.word);
            self.forget_refs(left);
            return self.no_request(code, came.alias, &came.words, reply);
        }
        let request = Request {
            method: wire::method(came.words[0]),
            words: came.words,
            count: came.count(),
            refs: References {
                list: self.room_list,
                left,
            },
            ..Request::NONE
        };
        self.handle_with_refs(came.alias, &request, reply)
    }

    /// Handles a message that is no request.
    #[inline(never)]
    fn no_request(
        &mut self,
        code: Code,
        alias: u64,
        words: &[u64; WORDS],
        reply: &mut Reply,
    ) -> Out {
        match code {
            Code::Fault => {
                let [offset, address, access, tag, ..] = *words;
                let message = FaultMessage {
                    offset,
                    address,
                    access,
                    tag,
                };
                reply.put(&ShortReply::NONE);
                return Out::reply(self.host.fault(alias, &message));
            }
            Code::Unreferenced if (OWN..OWN_END).contains(&alias) => self.host.unreferenced(alias),
            Code::Unreferenced => self.end(alias),
            _ => {}
        }
        Out::Nothing
    }

    /// Handles the exception that lies in the buffer.
    #[inline(never)]
    fn exception(&mut self, alias: u64) -> Out {
        // SAFETY: as many words came as the message consists of. The buffer neither moves nor changes before it has
        // been handled.
        let message: &ExceptionMessage = unsafe { &*self.buffer.as_ptr().cast() };
        self.resumption.clear();
        self.host.exception(alias, message, &mut self.resumption);
        match self.resumption.says() {
            true => Out::Resumption,
            false => Out::Nothing,
        }
    }

    /// As `turn`, with messages that lie in memory.
    #[inline(always)]
    fn turn_with_bytes(&mut self, reply: &mut Reply, out: Out) -> Out {
        let room = self.buffer.capacity() * 8;
        let deadline = self.host.deadline();
        let (from, length) = match out {
            Out::Nothing => (0, 0),
            Out::Reply => reply.place(),
            Out::Resumption => self.resumption.place(),
        };
        let call = match (out, deadline) {
            (Out::Nothing, None) => Call::ServerWaitReceive,
            (Out::Nothing, Some(_)) => Call::ServerWaitReceiveUntil,
            (_, None) => Call::ReplyWaitReceive,
            (_, Some(_)) => Call::ReplyWaitReceiveUntil,
        };
        let mut regs = IpcRegs::to(self.portset.handle())
            .sending(Area::new(from, length as u64))
            .receiving(Area {
                refs: self.room_list,
                ..Area::new(self.buffer.as_mut_ptr() as u64, room as u64)
            })
            .until(deadline.unwrap_or(0));
        // SAFETY: what is sent is only read; the place that is received into is the server's alone.
        let code = unsafe { sys::ipc(call, &mut regs) };
        let rest = regs.left();
        let came = room - usize::try_from(rest.length).map_or(room, |left| left.min(room));
        let alias = regs.value();
        match code {
            Code::Call => {}
            Code::Exception if came >= EXCEPTION_WORDS * 8 => return self.exception(alias),
            Code::Fault if came < FAULT_WORDS * 8 => return Out::Nothing,
            code => {
                self.forget_refs(rest.refs);
                // SAFETY: the words have values from the start.
                let words = unsafe { *self.buffer.as_ptr().cast() };
                return self.no_request(code, alias, &words, reply);
            }
        }
        // SAFETY: the words have values from the start; the kernel has written as many bytes as came. The buffer
        // neither moves nor changes before the request has been handled.
        let (words, bytes) = unsafe {
            let start = self.buffer.as_ptr();
            let bytes = came.saturating_sub(WORDS * 8);
            let bytes = core::slice::from_raw_parts(start.add(WORDS).cast(), bytes);
            (*start.cast::<[u64; WORDS]>(), bytes)
        };
        let request = Request {
            method: wire::method(words[0]),
            words,
            count: (came / 8).min(WORDS),
            bytes,
            refs: References {
                list: self.room_list,
                left: rest.refs,
            },
            ..Request::NONE
        };
        self.handle_with_refs(alias, &request, reply)
    }

    /// Handles a request, which may have come with references.
    #[inline(always)]
    fn handle_with_refs(
        &mut self,
        alias: u64,
        request: &Request<'static>,
        reply: &mut Reply,
    ) -> Out {
        let out = self.handle(alias, request, reply);
        self.forget_refs(request.refs.left);
        out
    }

    /// Clears the references that came, where `left` is the unused rest of the list: they served that request only, or
    /// came with a message that is no request.
    #[inline(always)]
    fn forget_refs(&self, left: u64) {
        for n in 0..wire::refs_came(self.room_list, left) {
            let _ = self.room.get(n).clear();
        }
    }

    /// Handles a request.
    #[inline(always)]
    fn handle(&mut self, alias: u64, request: &Request<'static>, reply: &mut Reply) -> Out {
        let Some(Some(slot)) = self.sessions.get(alias as usize) else {
            return Out::reply(self.knock(alias, request, reply));
        };
        if slot.done.is_beyond(request.words[0]) {
            reply.set::<()>(Err(Error::Restored));
            return Out::Reply;
        }
        if request.method == QUERY {
            // As in registers.
            let next = match request.count {
                2.. => self.queried(alias, request.words[1]),
                _ => Next::invalid(),
            };
            let refused = next.reply();
            if let Some(refused) = refused {
                reply.put_words(refused);
            }
            return Out::reply(refused.is_some());
        }
        let request = Request {
            done: Some(&slot.done),
            waker: Some(&slot.waker),
            ..*request
        };
        let answer = slot.service.answer(&request, reply);
        let number = wire::number(request.words[0]);
        match answer {
            Answer::Now => Out::reply(!self.host.again()),
            answer => self.answered(alias, number, answer, reply),
        }
    }

    /// Answers a request at a session for another interface of its object, with a session that has it or an error.
    #[cold]
    #[inline(never)]
    fn queried(&mut self, alias: u64, interface: u64) -> Next {
        match self.query(alias, interface) {
            Ok(reference) => {
                send(&[0], &[], abi::ref_list(reference.handle(), 1));
                Next::wait()
            }
            Err(error) => ShortReply::of::<()>(Err(error)).next(),
        }
    }

    /// Adds a session about the same object as this one, with another interface or the same. Returns a reference to its
    /// port, for the client.
    fn query(&mut self, alias: u64, interface: u64) -> Result<Ref, Error> {
        let Some(Some(slot)) = self.sessions.get(alias as usize) else {
            return Err(Error::Broken);
        };
        let service = slot.service.query(interface).ok_or(Error::Unsupported)?;
        let (door, job) = (slot.door, slot.job);
        let client = slot.client.copy().map_err(base::error_of)?;
        if job == 0 {
            // Servers and drivers belong to no job; each may have as many sessions at a door as a job.
            let all = self.sessions.iter().flatten().map(|slot| &**slot);
            let of_it = |other: &&Slot<S>| other.door == door && other.client.same_as(*client);
            if all.filter(of_it).count() >= MAX_JOB_SESSIONS {
                return Err(Error::Limit);
            }
        }
        self.room_for(job)?;
        self.add((door, interface), (job, client), None, |_, _| Ok(service))
    }

    /// Acts on the answer to a request of this session.
    #[inline(never)]
    fn answered(&mut self, alias: u64, number: u64, answer: Answer, reply: &mut Reply) -> Out {
        let Some(Some(slot)) = self.sessions.get_mut(alias as usize) else {
            return Out::Nothing;
        };
        let beside = match answer {
            Answer::Later(future) => {
                slot.wait(alias, self.portset_ref.handle(), number, future);
                return Out::Nothing;
            }
            Answer::Done => {
                let out = Out::reply(slot.done.give(reply));
                slot.done.given();
                return out;
            }
            _ if self.host.again() => return Out::Nothing,
            Answer::Sent | Answer::Now => return Out::Nothing,
            Answer::Once => None,
            Answer::Kept(beside) => beside,
        };
        slot.keep(number, &reply.short(), beside);
        Out::reply(slot.done.give(reply))
    }

    /// Handles a request at a port that is no session's. Returns whether the reply is to be given with the next wait.
    #[cold]
    #[inline(never)]
    fn knock(&mut self, alias: u64, request: &Request<'static>, reply: &mut Reply) -> bool {
        if alias == BELL {
            // The request only woke the server: an empty reply lets the caller continue.
            reply.put(&ShortReply::NONE);
            return true;
        }
        let words = &request.words;
        let own = (OWN..OWN_END).contains(&alias);
        if own && request.count > 0 && wire::number(words[0]) != 0 {
            return self.handle_own(alias, request, reply);
        }
        let door = match alias {
            DOOR => 0,
            _ if own => alias,
            _ => BELL.wrapping_sub(alias),
        };
        let with = request.refs.get(0);
        let answered = match (request.method, request.count) {
            _ if !own && door > self.more_doors.len() as u64 => Err(Error::Broken),
            (QUERY, 2..) => self.open((door, words[1]), with, None).map(Some),
            (KEEP, 1..) => self.keep(door, with).map(|()| None),
            (RESUME, WORDS) => {
                let kept = (words[2], &words[3..], request.bytes);
                self.open((door, words[1]), with, Some(kept)).map(Some)
            }
            _ => Err(Error::Invalid),
        };
        match answered {
            Ok(None) => false,
            Ok(Some(reference)) => {
                send(&[0], &[], abi::ref_list(reference.handle(), 1));
                false
            }
            Err(error) => {
                reply.set::<()>(Err(error));
                true
            }
        }
    }

    /// Handles a request at a port of the server's own. Returns whether the reply is to be given with the next wait.
    fn handle_own(&mut self, alias: u64, request: &Request<'static>, reply: &mut Reply) -> bool {
        let number = wire::number(request.words[0]);
        let session = self.host.session(alias);
        let done = session.as_deref().map(RefCell::borrow);
        let request = Request {
            done: done.as_deref(),
            ..*request
        };
        let answer = self.host.shared(alias, &request, reply);
        drop(done);
        let beside = match (answer, &session) {
            (Answer::Done, Some(done)) => return done.borrow().give(reply),
            _ if self.host.again() => return false,
            (Answer::Now, _) => return true,
            (Answer::Sent, _) => return false,
            (Answer::Once, _) => None,
            (Answer::Kept(beside), _) => beside,
            // No stub gives these answers to a request without a waker or a session.
            (Answer::Later(_) | Answer::Done, _) => {
                reply.set::<()>(Err(Error::Unsupported));
                return true;
            }
        };
        match session {
            Some(done) => {
                let done = &mut *done.borrow_mut();
                done.keep(number, &reply.short(), beside);
                done.give(reply)
            }
            None => true,
        }
    }

    /// Sends the state to be kept of the session whose port came, which is one of this door.
    fn keep(&mut self, door: u64, port: Option<RefAt>) -> Result<(), Error> {
        let port = port.ok_or(Error::Invalid)?;
        let one = Ref::new().map_err(base::error_of)?;
        let found = self
            .sessions
            .iter()
            .flatten()
            .filter(|slot| slot.door == door)
            .find(|slot| slot.port.reference_into(*one).is_ok() && one.same_as(port));
        let slot = found.ok_or(Error::NotFound)?;
        let mut kept = [0; 1 + KEPT_WORDS];
        kept[1] = slot.interface;
        let (number, bytes) = slot.done.kept(&mut kept[3..]);
        kept[2] = number;
        send(&kept, bytes, 0);
        Ok(())
    }

    /// Opens a session at this door with this interface, for the client whose own port at init is `who`. Returns a
    /// reference to the session's port, for the client.
    fn open(
        &mut self,
        (door, interface): (u64, u64),
        who: Option<RefAt>,
        kept: Option<(u64, &[u64], &[u8])>,
    ) -> Result<Ref, Error> {
        if !S::has(interface) {
            return Err(Error::Unsupported);
        }
        let client = Ref::new().map_err(base::error_of)?;
        let mut job = 0;
        if let Some(job_of) = self.job_of {
            let who = who.ok_or(Error::Denied)?;
            client.point_to(who).map_err(base::error_of)?;
            job = job_of(&client)?;
        }
        self.room_for(job)?;
        let done = match kept {
            Some((number, words, bytes)) => {
                self.room_to_keep(job, bytes.len())?;
                let mut done = Done::resumed(number, words, bytes)?;
                done.is_all = self.opens;
                Some(done)
            }
            None => None,
        };
        self.add((door, interface), (job, client), done, |host, visitor| {
            host.open(visitor).map(Rc::new)
        })
    }

    /// Makes sure that this job's sessions may keep so many bytes more of replies from images, which a client can make
    /// up. Bytes of replies that the server made itself do not count: their methods have asked for memory.
    fn room_to_keep(&self, job: u32, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        if !S::KEEPS_BYTES {
            return Err(Error::Invalid);
        }
        let of_job = self
            .sessions
            .iter()
            .flatten()
            .filter(|slot| slot.job == job);
        let kept: usize = of_job.map(|slot| slot.done.brought_bytes()).sum();
        if job != 0 && kept + bytes > JOB_KEPT_BYTES {
            return Err(Error::Limit);
        }
        (self.memory)(bytes as u64)
    }

    /// Makes sure that this job may have one more session.
    fn room_for(&mut self, job: u32) -> Result<(), Error> {
        self.end_of_ended(SWEEP);
        let too_many = |sessions: &[Option<Box<Slot<S>>>]| {
            let of_job = sessions.iter().flatten().filter(|slot| slot.job == job);
            of_job.count() >= MAX_JOB_SESSIONS
        };
        if job != 0 && too_many(&self.sessions) {
            let places = 0..self.sessions.len();
            places.for_each(|place| self.end_if_ended(place, |slot| slot.job == job));
            if too_many(&self.sessions) {
                return Err(Error::Limit);
            }
        }
        Ok(())
    }

    /// Adds a session at this door with this interface, for this client of this job. Returns a reference to its port,
    /// for the client.
    fn add(
        &mut self,
        (door, interface): (u64, u64),
        (job, client): (u32, Ref),
        done: Option<Done>,
        make: impl FnOnce(&mut H, &Visitor) -> Result<Rc<S>, Error>,
    ) -> Result<Ref, Error> {
        let free = |sessions: &[Option<Box<Slot<S>>>]| {
            let places = &sessions[DOOR as usize + 1..];
            let free = places.iter().position(Option::is_none);
            free.unwrap_or(places.len()) + 1
        };
        let mut index = free(&self.sessions);
        if index > MAX_SESSIONS {
            self.end_of_ended(MAX_SESSIONS);
            index = free(&self.sessions);
        }
        if index > MAX_SESSIONS {
            return Err(Error::NoMemory);
        }
        let alias = index as u64;
        let port = Port::new().map_err(base::error_of)?;
        let reference = port.reference().map_err(base::error_of)?;
        let visitor = Visitor {
            door,
            interface,
            job,
            client: self.job_of.map(|_| *client),
        };
        let slot = Box::new(Slot {
            service: make(&mut self.host, &visitor)?,
            interface,
            door,
            port,
            client,
            job,
            done: done.unwrap_or_default(),
            waiting: None,
            waker: Waker::from(Arc::new(Alarm {
                bell: Arc::clone(&self.bell),
                alias,
            })),
        });
        slot.port
            .set_state(&session(alias), self.portset_ref.handle())
            .map_err(base::error_of)?;
        match self.sessions.get_mut(index) {
            Some(place) => *place = Some(slot),
            None => self.sessions.push(Some(slot)),
        }
        Ok(reference)
    }

    /// Ends the sessions of clients that have ended, among the next `most` sessions.
    fn end_of_ended(&mut self, most: usize) {
        if self.job_of.is_none() {
            return;
        }
        for _ in 0..most.min(self.sessions.len()) {
            self.sweep = (self.sweep + 1) % self.sessions.len();
            self.end_if_ended(self.sweep, |_| true);
        }
    }

    /// Ends the session at this place if `which` selects it and its client has ended.
    fn end_if_ended(&mut self, place: usize, which: impl Fn(&Slot<S>) -> bool) {
        let ended = |slot: &Slot<S>| which(slot) && slot.client.kind() == RefKind::Null;
        if self.sessions[place].as_deref().is_some_and(ended) {
            self.sessions[place] = None;
        }
    }

    /// Ends a session and frees everything that it held. A request of it that waits is given up, and its client finds
    /// the session gone.
    pub fn end(&mut self, alias: u64) {
        if let Some(slot) = self.sessions.get_mut(alias as usize) {
            *slot = None;
        }
    }

    /// Polls the requests that were woken. Those that are ready get their replies when they arrive again.
    #[inline(never)]
    fn look_again(&mut self) {
        while self.bell.rung.load(Ordering::Relaxed) {
            let woken = {
                let mut woken = self.bell.woken.lock();
                self.bell.rung.store(false, Ordering::Release);
                core::mem::take(&mut *woken)
            };
            for alias in woken {
                if let Some(Some(slot)) = self.sessions.get_mut(alias as usize) {
                    if slot.waiting.is_some() && slot.poll() {
                        let _ = slot
                            .port
                            .set_state(&session(alias), self.portset_ref.handle());
                    }
                }
            }
        }
    }
}

impl<S> Slot<S> {
    /// Lets the request with this number wait: the client's call waits at the port from the server's next wait on.
    #[cold]
    #[inline(never)]
    fn wait(&mut self, alias: u64, portset: u64, number: u64, future: Later) {
        self.waiting = Some(Waiting { number, future });
        let mut holds = session(alias);
        holds.flags |= port_flags::HOLD_CLIENTS;
        let _ = self.port.set_state(&holds, portset);
    }

    /// Keeps the reply to a request that must not be repeated. A request that still waits is dropped, since its client
    /// has given it up.
    fn keep(&mut self, number: u64, reply: &ShortReply, beside: Option<Box<Beside>>) {
        self.waiting = None;
        self.done.keep(number, reply, beside);
    }

    /// As `keep`, of a reply in words.
    #[inline(always)]
    fn keep_words(&mut self, number: u64, reply: &ShortReply) {
        if self.waiting.is_some() || self.done.beside.is_some() {
            self.forget();
        }
        self.done.number = number;
        self.done.reply.copy_from(reply);
    }

    #[cold]
    #[inline(never)]
    fn forget(&mut self) {
        self.waiting = None;
        self.done.beside = None;
    }

    /// Polls the request that waits, after it was woken. Returns whether its reply is ready.
    fn poll(&mut self) -> bool {
        let Some(mut waiting) = self.waiting.take() else {
            return false;
        };
        let mut context = Context::from_waker(&self.waker);
        match waiting.future.as_mut().poll(&mut context) {
            Poll::Ready(kept) => {
                self.done.keep(waiting.number, &kept.reply, kept.beside);
                self.done.until_given = kept.until_given;
                self.done.spare.keep(waiting.future);
                true
            }
            Poll::Pending => {
                self.waiting = Some(waiting);
                false
            }
        }
    }
}
