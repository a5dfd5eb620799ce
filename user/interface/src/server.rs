//! Sessions, and requests that wait without holding anybody up.
//!
//! A server is one thread and one portset. Its *door* is the port that others find by name; opening a
//! session at the door yields a port of its own, to which only the client has a reference, with an
//! alias that names the session. What a session holds is the value that implements the interface: it
//! is dropped when the session ends, and everything that it holds with it.
//!
//! **A request that has to wait** is a future that is kept with its session. The session's port leaves
//! the portset and the server goes on without having answered. By the rules of the idempotent form the
//! client's call thereupon begins again, and waits at the port, where it costs nothing and can be
//! stopped, saved or ended like every other wait. When the future is ready, the port comes back to
//! the portset, the request arrives once more with the same number, and is given the reply.
//!
//! **A client is known** by its own port at init, which it presents when it opens a session. A server that is
//! told how to ask init ([`Server::knows`]) opens sessions for processes only, at most [`MAX_JOB_SESSIONS`] for each
//! job. A session ends when nothing names its port any more, or its process has ended.
//!
//! **Ports of the server's own** are those whose aliases it chose itself ([`own_port`]). Requests of a shared
//! interface that come there go to the [`Host`], as do exceptions and faults, if it is the keeper of a space or a region; and a
//! session can be opened there, about whatever the alias stands for. Such a port can be a session itself
//! ([`Host::session`]): one that the client did not open, but was given.
//!
//! **A request that must not be repeated** has the number that the client gave it. The last such
//! number of the session is kept with its reply: the request is done once, however often it arrives.
use crate::wire::{self, ReplyWords, Values, KEEP, QUERY, REPLY_WORDS, RESUME, WORDS};
use abi::message::{ExceptionMessage, FaultMessage, Segment, EXCEPTION_WORDS, FAULT_WORDS};
use abi::state::{port_flags, PortState, Registers, REGISTER_WORDS};
use abi::{Call, Code, RefKind};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use base::obj::{Port, Portset, Ref, RefAt, RefBlock, RefList};
use base::sync::Mutex;
use base::sys::{self, IpcRegs};
use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use proto::{Error, MAX_BULK};

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
/// Where the number of words stands beside the number of a request, in what is kept of a session.
const COUNT_SHIFT: u32 = 48;
/// The number beside it.
const NUMBER: u64 = (1 << COUNT_SHIFT) - 1;
/// How many sessions are looked at, when one is opened, for whether their client has ended.
const SWEEP: usize = 16;

/// A request, taken apart as far as all requests are alike.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: u16,
    /// First word and arguments. Those that did not come have any value.
    pub words: [u64; WORDS],
    /// How many words came.
    pub count: usize,
    /// The bytes that came with them.
    pub bytes: &'a [u8],
    /// The references that came with them. They name nothing any more when the request has been handled.
    pub refs: References,
    /// What is kept of the session's requests; `None` if it came to a port that is no session.
    done: Option<&'a Done>,
    /// Wakes the session's request that waits; `None` where none can.
    waker: Option<&'a Waker>,
}

impl<'a> Request<'a> {
    const NONE: Self = Request {
        method: 0,
        words: [0; WORDS],
        count: 0,
        bytes: &[],
        refs: References { list: 0, left: 0 },
        done: None,
        waker: None,
    };

    /// Whether it has the number of the session's last request that must not be repeated, and so is that.
    #[inline(always)]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.is(self.words[0]))
    }

    /// The answer whose reply is the result of this.
    #[inline(always)]
    pub fn later<F: Future<Output = Kept> + 'static>(
        &self,
        future: F,
        reply: &mut Reply,
    ) -> Answer {
        let (Some(done), Some(waker)) = (self.done, self.waker) else {
            reply.set::<()>(Err(Error::Unsupported));
            return Answer::Now;
        };
        match done.spare.begin(future, waker) {
            Ok(kept) => {
                reply.copy_from(&kept.reply);
                match kept.beside {
                    None => Answer::Once,
                    beside => Answer::Kept(beside),
                }
            }
            Err(future) => Answer::Later(future),
        }
    }
}

/// The references that came with a request.
#[derive(Clone, Copy, Debug)]
pub struct References {
    /// The list for them as the call took it, and as it left it.
    list: u64,
    left: u64,
}

impl References {
    /// Whether none came.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list == self.left
    }

    /// How many came.
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> usize {
        wire::refs_came(self.list, self.left)
    }

    /// The one in this place, if so many came.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<RefAt> {
        let first = self.list & !abi::MAX_LIST_REFS;
        (index < self.count()).then(|| RefAt(first + index as u64 * abi::OBJECT_SIZE))
    }

    /// Those from this place on.
    #[must_use]
    pub fn from(&self, index: usize) -> Vec<RefAt> {
        (index..self.count()).filter_map(|n| self.get(n)).collect()
    }

    /// The one in this place, to be kept.
    ///
    /// # Errors
    /// [`Error::Invalid`] if fewer came, [`Error::NoMemory`].
    pub fn keep(&self, index: usize) -> Result<Ref, Error> {
        let reference = self.get(index).ok_or(Error::Invalid)?;
        reference.copy().map_err(base::error_of)
    }

    /// Those from this place on, to be kept.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn keep_from(&self, index: usize) -> Result<Vec<Ref>, Error> {
        (index..self.count()).map(|n| self.keep(n)).collect()
    }
}

/// Bytes of a request, for a method that may wait.
///
/// # Errors
/// [`Error::Invalid`] if there are more than `most`, [`Error::NoMemory`].
pub fn keep_later(bytes: &[u8], most: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > most {
        return Err(Error::Invalid);
    }
    let mut kept = Vec::new();
    kept.try_reserve_exact(bytes.len())
        .map_err(|_| Error::NoMemory)?;
    kept.extend_from_slice(bytes);
    Ok(kept)
}

/// As [`keep_later`], of text.
///
/// # Errors
/// Also [`Error::Invalid`] if it is none.
pub fn keep_text(bytes: &[u8], most: usize) -> Result<String, Error> {
    String::from_utf8(keep_later(bytes, most)?).map_err(|_| Error::Invalid)
}

/// A reply in words, at most [`REPLY_WORDS`].
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    words: ReplyWords,
    count: usize,
}

impl Reply {
    /// A reply without words.
    const NONE: Reply = Reply {
        words: wire::NO_REPLY,
        count: 0,
    };

    /// The reply that this result is.
    #[inline(always)]
    pub fn of<R: Values>(result: Result<R, Error>) -> Self {
        // Not `NONE`, whose words the compiler takes for zeros.
        let mut reply = Reply {
            words: wire::NO_REPLY,
            count: 1,
        };
        reply.set(result);
        reply
    }

    /// Makes it the reply that this result is.
    #[inline(always)]
    pub fn set<R: Values>(&mut self, result: Result<R, Error>) {
        const { assert!(R::COUNT < REPLY_WORDS) };
        self.count = match result {
            Ok(values) => {
                self.words[0].write(0);
                values.put(&mut self.words);
                1 + R::COUNT
            }
            Err(error) => {
                self.words[0].write(wire::status(Err(error)));
                1
            }
        };
    }

    /// Makes it the same as another one, which has one word most of the time.
    #[inline(always)]
    fn copy_from(&mut self, other: &Reply) {
        if other.count == 1 {
            (self.words[0], self.count) = (other.words[0], 1);
        } else {
            *self = *other;
        }
    }

    /// The call that gives it and waits.
    #[inline(always)]
    fn next(&self) -> Next {
        Next {
            call: wire::with_count(Call::ReplyWaitReceiveShort as u64, self.count),
            words: self.words,
        }
    }

    /// The words.
    fn as_words(&self) -> &[u64] {
        // SAFETY: the first `count` words of a reply have been written.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), self.count) }
    }
}

/// What a stub makes of a request.
pub enum Answer {
    /// The reply is set. The method may be repeated.
    Now,
    /// The reply of a method that must not be repeated is set.
    Once,
    /// As `Once`, with more than words.
    Kept(Option<Box<Beside>>),
    /// The reply went out already, with bytes or references.
    Sent,
    /// The request is [done](Request::is_done) already: the reply that is kept is to be given.
    Done,
    /// The reply is the result of this, which has been asked once.
    Later(Later),
}

/// What a stub makes of a request that came in registers and without references. Nothing of it is needed any more but
/// for `No`, so that it never has to lie in memory.
pub enum Quick {
    /// The method is none that is answered here.
    No,
    /// The session is asked for another interface of its object, whose id is in the first argument.
    Query,
    /// The request makes no sense: [`Error::Invalid`].
    Invalid,
    /// The request is [done](Done::is) already: the reply that is kept is to be given.
    Done,
    /// The reply. The method may be repeated.
    Reply(Reply),
    /// The reply of a method that must not be repeated.
    Once(Reply),
    /// The reply went out already, with bytes.
    Sent,
    /// The reply is the result of this, which has been asked once.
    Later(Later),
}

impl Quick {
    /// The answer whose reply is the result of this, which is in words.
    #[inline(always)]
    pub fn later<F>(future: F, done: &Done, waker: &Waker) -> Self
    where
        F: Future<Output = Kept> + 'static,
    {
        match done.spare.begin(future, waker) {
            Ok(kept) => Quick::Once(kept.reply),
            Err(future) => Quick::Later(future),
        }
    }

    /// The reply in bytes, from where they lie.
    #[inline(always)]
    pub fn bytes(result: Result<&[u8], Error>) -> Self {
        match result {
            Ok(bytes) => {
                send(&[0], bytes, 0);
                Quick::Sent
            }
            Err(error) => Quick::Reply(Reply::of::<()>(Err(error))),
        }
    }
}

/// The result of a method that waits.
pub type Later = Pin<Box<dyn Future<Output = Kept>>>;

/// What goes with a reply beside its words.
#[derive(Debug)]
pub struct Beside {
    bytes: Vec<u8>,
    refs: Vec<Ref>,
}

impl Beside {
    /// Nothing if there is neither.
    fn of(bytes: Vec<u8>, refs: Vec<Ref>) -> Option<Box<Self>> {
        (!bytes.is_empty() || !refs.is_empty()).then(|| Box::new(Beside { bytes, refs }))
    }
}

/// A result in words, bytes and references.
pub type Whole<R> = (R, Vec<u8>, Vec<Ref>);

/// The reply of a method that must not be repeated, and what goes with it.
#[derive(Debug)]
pub struct Kept {
    reply: Reply,
    beside: Option<Box<Beside>>,
}

impl Kept {
    /// A reply in words.
    #[inline(always)]
    pub fn new<R: Values>(result: Result<R, Error>) -> Self {
        Kept {
            reply: Reply::of(result),
            beside: None,
        }
    }

    /// A reply in bytes.
    pub fn bytes(result: Result<Vec<u8>, Error>) -> Self {
        Kept::whole(result.map(|bytes| ((), bytes, Vec::new())))
    }

    /// A reply in words, bytes and references.
    pub fn whole<R: Values>(result: Result<Whole<R>, Error>) -> Self {
        match result {
            Ok((words, bytes, refs)) => Kept {
                beside: Beside::of(bytes, refs),
                ..Kept::new(Ok(words))
            },
            Err(error) => Kept::new::<()>(Err(error)),
        }
    }
}

/// What the stub of an interface is: made by `#[interface]`.
pub trait Service: 'static {
    /// Whether this is the id of its interface.
    fn has(id: u64) -> bool;
    /// Whether a request can come with bytes.
    const BYTES: bool;
    /// Most references that can come with a request.
    const REFS: usize;
    /// Calls the method. What arrives is hostile: a request that makes no sense is
    /// [`Error::Invalid`] or [`Error::Unsupported`]. The reply in words goes into `reply`.
    fn answer(self: &Rc<Self>, request: &Request<'_>, reply: &mut Reply) -> Answer;
    /// As `answer`, of a request without references, of a method to which nothing but words come and that returns words,
    /// or bytes from where they lie: most are.
    fn quick(self: &Rc<Self>, came: &wire::Came, done: &Done, waker: &Waker) -> Quick {
        let _ = (came, done, waker);
        Quick::No
    }
    /// The same object by the interface with this id, if it has that.
    fn query(self: &Rc<Self>, id: u64) -> Option<Rc<Self>> {
        let _ = id;
        None
    }
}

/// What the stub of a shared interface is: made by `#[interface(shared)]`.
pub trait SharedService {
    /// As [`Service::BYTES`].
    const BYTES: bool;
    /// As [`Service::REFS`].
    const REFS: usize;
    /// As [`Service::answer`]; the answer is [`Answer::Now`] or [`Answer::Sent`].
    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Answer;
}

/// Lets go of the thread whose exception the host handles ([`Host::exception`]): it stays as it is until its state is set
/// by its handle.
pub fn park() {
    sys::server_release();
}

/// What a server does beside answering its sessions. A closure that makes sessions is enough for most.
pub trait Host<S> {
    /// Whether a request to a port of the server's own can come with bytes, or an exception there.
    const BYTES: bool = false;
    /// Most references that can come with a request to a port of the server's own.
    const REFS: usize = 0;

    /// Makes the value of a new session, or refuses.
    ///
    /// # Errors
    /// Why not.
    fn open(&mut self, visitor: &Visitor) -> Result<S, Error>;

    /// Answers a request that came to the port of the server's own with this alias: of a shared interface, or of the session
    /// that the port is. The answer of such a session is not [`Answer::Later`].
    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let _ = (alias, request);
        reply.set::<()>(Err(Error::Unsupported));
        Answer::Now
    }

    /// A thread met an exception whose space has the port of the server's own with this alias as its keeper. It goes
    /// on with the registers that are returned, when the server waits again. Otherwise it meets the exception again,
    /// unless it was [parked](park).
    fn exception(&mut self, alias: u64, message: &ExceptionMessage) -> Option<Registers> {
        let _ = (alias, message);
        park();
        None
    }

    /// What is kept of the session that the port of the server's own with this alias is; `None` if it is none.
    fn session(&mut self, alias: u64) -> Option<Rc<RefCell<Done>>> {
        let _ = alias;
        None
    }

    /// A thread touched what is absent of a region whose keeper is the port of the server's own with this alias. Whether it
    /// is to try again; if there is still nothing, that is an exception. Otherwise the kernel delivers the fault again,
    /// behind whoever waits.
    fn fault(&mut self, alias: u64, message: &FaultMessage) -> bool {
        let _ = (alias, message);
        true
    }

    /// Nobody refers any more to the port of the server's own with this alias, which has the flag
    /// [`NOTIFY_UNREFERENCED`](port_flags::NOTIFY_UNREFERENCED).
    fn unreferenced(&mut self, alias: u64) {
        let _ = alias;
    }

    /// Whether the request that was just handled was not: the kernel delivers it again, behind whoever waits. Asked after
    /// each request.
    #[inline(always)]
    fn again(&mut self) -> bool {
        false
    }

    /// When the server is to go on at the latest, though nothing has come.
    #[inline(always)]
    fn deadline(&mut self) -> Option<u64> {
        None
    }

    /// Called before each wait, and so after everything that came.
    fn settle(&mut self) {}
}

impl<S, F: FnMut(&Visitor) -> Result<S, Error>> Host<S> for F {
    fn open(&mut self, visitor: &Visitor) -> Result<S, Error> {
        self(visitor)
    }
}

/// Of a server without sessions.
#[derive(Debug)]
pub enum NoSessions {}

impl Service for NoSessions {
    const BYTES: bool = false;
    const REFS: usize = 0;

    fn has(_: u64) -> bool {
        false
    }

    fn answer(self: &Rc<Self>, _: &Request<'_>, _: &mut Reply) -> Answer {
        match **self {}
    }
}

/// A service with two interfaces: each session has one of them.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first.
    First(Rc<A>),
    /// The second.
    Second(Rc<B>),
}

impl<A: Service, B: Service> Service for Either<A, B> {
    const BYTES: bool = A::BYTES || B::BYTES;
    const REFS: usize = if A::REFS > B::REFS { A::REFS } else { B::REFS };

    fn has(id: u64) -> bool {
        A::has(id) || B::has(id)
    }

    fn answer(self: &Rc<Self>, request: &Request<'_>, reply: &mut Reply) -> Answer {
        match &**self {
            Either::First(service) => service.answer(request, reply),
            Either::Second(service) => service.answer(request, reply),
        }
    }

    #[inline(always)]
    fn quick(self: &Rc<Self>, came: &wire::Came, done: &Done, waker: &Waker) -> Quick {
        match &**self {
            Either::First(service) => service.quick(came, done, waker),
            Either::Second(service) => service.quick(came, done, waker),
        }
    }

    fn query(self: &Rc<Self>, id: u64) -> Option<Rc<Self>> {
        let same = match &**self {
            Either::First(service) => Either::First(service.query(id)?),
            Either::Second(service) => Either::Second(service.query(id)?),
        };
        Some(Rc::new(same))
    }
}

/// Asks init for the job of a client, by the client's own port at init.
pub type JobOf = fn(&RefAt) -> Result<u32, Error>;

/// What is known of a client that opens a session, while `make` runs.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// At which door: 0 for the first, then those of [`Server::add_door`]; the alias of a port of the server's own.
    pub door: u64,
    /// The id of the interface that it wants, one that the service [has](Service::has).
    pub interface: u64,
    /// The number of its job: that of the first process of it. 0 for init, and for all if the server was not told
    /// how to know clients.
    pub job: u32,
    /// Its own port at init, with which one can act in its name: dead when it has ended. `None` if the server was not
    /// told how to know clients.
    pub client: Option<RefAt>,
}

/// Sends the reply to the request that the server has, with bytes from where they lie.
pub fn send_bytes(result: Result<&[u8], Error>, reply: &mut Reply) -> Answer {
    match result {
        Ok(bytes) => {
            send(&[0], bytes, 0);
            Answer::Sent
        }
        Err(error) => {
            reply.set::<()>(Err(error));
            Answer::Now
        }
    }
}

/// Sends the reply to the request that the server has, in words, bytes and references.
pub fn send_whole<R: Values>(result: Result<Whole<R>, Error>, reply: &mut Reply) -> Answer {
    let kept = Kept::whole(result);
    *reply = kept.reply;
    match kept.beside {
        Some(beside) if send_beside(reply, &beside) => Answer::Sent,
        _ => Answer::Now,
    }
}

/// The reply of a method that must not be repeated, in words, bytes and references.
pub fn keep_whole<R: Values>(result: Result<Whole<R>, Error>, reply: &mut Reply) -> Answer {
    let kept = Kept::whole(result);
    *reply = kept.reply;
    Answer::Kept(kept.beside)
}

/// Sends a reply with what goes beside it; if that cannot be done it is an error, which is to be given.
fn send_beside(reply: &mut Reply, beside: &Beside) -> bool {
    let refs: Vec<&RefAt> = beside.refs.iter().map(|reference| &**reference).collect();
    match RefList::to_send(&refs) {
        Ok(list) => {
            send(reply.as_words(), &beside.bytes, list.word());
            true
        }
        Err(code) => {
            reply.set::<()>(Err(base::error_of(code)));
            false
        }
    }
}

fn send(words: &[u64], bytes: &[u8], refs: u64) {
    let more = [Segment {
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
    }];
    let mut regs = IpcRegs {
        rsi: words.as_ptr() as u64,
        rdx: size_of_val(words) as u64,
        r10: more.as_ptr() as u64,
        r8: u64::from(!bytes.is_empty()),
        r9: refs,
        ..IpcRegs::default()
    };
    // SAFETY: what is sent is only read. A client that is gone is no concern of the server.
    unsafe { sys::ipc(Call::Reply, &mut regs) };
}

/// What wakers and the server share.
struct Bell {
    /// Whether there are any in `woken`: looked at before each wait.
    rung: AtomicBool,
    /// Sessions whose requests are to be looked at again.
    woken: Mutex<Vec<u64>>,
    /// The server's thread.
    thread: u64,
    /// To the port that makes the server look.
    port: Ref,
}

/// Wakes one session's request.
struct Alarm {
    bell: Arc<Bell>,
    alias: u64,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let first = {
            let mut woken = self.bell.woken.lock();
            woken.push(self.alias);
            !self.bell.rung.swap(true, Ordering::AcqRel)
        };
        // The server's own thread looks before it waits.
        if first && sys::thread_self() != self.bell.thread {
            let _ = self.bell.port.poke();
        }
    }
}

/// A request that waits.
struct Waiting {
    number: u64,
    future: Later,
}

/// What is kept of the requests of a session that must not be repeated: the number of the last one, and its reply.
#[derive(Debug)]
pub struct Done {
    /// [`Done::NEVER`] if there was none.
    number: u64,
    reply: Reply,
    beside: Option<Box<Beside>>,
    spare: Spare,
}

impl Default for Done {
    fn default() -> Self {
        Done {
            number: Done::NEVER,
            reply: Reply::NONE,
            beside: None,
            spare: Spare::none(),
        }
    }
}

impl Done {
    /// No request has this number: they have 48 bits.
    const NEVER: u64 = u64::MAX;

    /// Whether the request with this first word is the last one that must not be repeated.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, head: u64) -> bool {
        self.number == wire::number(head)
    }

    /// Gives its reply: whether with the next wait.
    #[inline(always)]
    fn give(&self, to: &mut Reply) -> bool {
        to.copy_from(&self.reply);
        match &self.beside {
            None => true,
            Some(beside) => !send_beside(to, beside),
        }
    }

    /// The call that gives its reply and waits.
    #[cold]
    #[inline(never)]
    fn next(&self) -> Next {
        let mut reply = Reply::NONE;
        match self.give(&mut reply) {
            true => reply.next(),
            false => Next::wait(),
        }
    }

    /// Keeps the reply to the request with this number.
    #[inline(always)]
    fn keep(&mut self, number: u64, reply: &Reply, beside: Option<Box<Beside>>) {
        self.number = number;
        self.reply.copy_from(reply);
        self.beside = beside;
    }
}

/// Memory of the future of a request that is over, for the next one.
#[derive(Debug)]
struct Spare {
    memory: Cell<*mut u8>,
    /// What it was allocated for ([`Spare::layout`]); 0 if there is none.
    is_for: Cell<usize>,
}

impl Spare {
    const fn none() -> Self {
        Spare {
            memory: Cell::new(core::ptr::null_mut()),
            is_for: Cell::new(0),
        }
    }

    /// A layout in one word: the size, and above it the alignment.
    const fn word_of(layout: Layout) -> usize {
        assert!(layout.size() > 0 && layout.size() >> Self::ALIGN_SHIFT == 0);
        layout.size() | layout.align() << Self::ALIGN_SHIFT
    }

    const ALIGN_SHIFT: u32 = 32;

    /// Asks a future for the first time, here where the compiler knows it: its result, or itself. It lies where the
    /// last one did, if that was as large.
    #[inline(always)]
    fn begin<F>(&self, future: F, waker: &Waker) -> Result<Kept, Later>
    where
        F: Future<Output = Kept> + 'static,
    {
        let word = const { Self::word_of(Layout::new::<F>()) };
        if self.is_for.get() != word {
            self.make(word, Layout::new::<F>());
        }
        let memory = self.memory.get().cast::<F>();
        // SAFETY: it was allocated for a value of this layout, and nobody else has it.
        let mut future = unsafe {
            memory.write(future);
            Pin::new_unchecked(&mut *memory)
        };
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(kept) => {
                // SAFETY: the future is dropped where it lies, and not used any more.
                unsafe { memory.drop_in_place() };
                Ok(kept)
            }
            Poll::Pending => {
                self.is_for.set(0);
                // SAFETY: it is a value in memory as a box has it, which is not the spare one any more.
                Err(Box::into_pin(unsafe { Box::from_raw(memory) }))
            }
        }
    }

    /// Makes it memory of this layout.
    #[cold]
    #[inline(never)]
    fn make(&self, word: usize, layout: Layout) {
        self.free();
        // SAFETY: it is not of size 0, or it had no word.
        let memory = unsafe { alloc::alloc::alloc(layout) };
        if memory.is_null() {
            alloc::alloc::handle_alloc_error(layout);
        }
        self.memory.set(memory);
        self.is_for.set(word);
    }

    /// Ends a future, and keeps its memory.
    fn keep(&self, future: Later) {
        // SAFETY: the future is dropped where it lies.
        let future = Box::into_raw(unsafe { Pin::into_inner_unchecked(future) });
        // SAFETY: it is a value, and is not used after it has been dropped.
        let layout = unsafe {
            let layout = Layout::for_value(&*future);
            core::ptr::drop_in_place(future);
            layout
        };
        self.free();
        // What begins here has a size.
        self.memory.set(future.cast());
        self.is_for.set(Self::word_of(layout));
    }

    fn free(&self) {
        let word = self.is_for.replace(0);
        let (size, align) = (
            word & ((1 << Self::ALIGN_SHIFT) - 1),
            word >> Self::ALIGN_SHIFT,
        );
        if let (1.., Ok(layout)) = (word, Layout::from_size_align(size, align)) {
            // SAFETY: it was allocated for a value of this layout, and nobody else has it.
            unsafe { alloc::alloc::dealloc(self.memory.get(), layout) };
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.free();
    }
}

/// A session.
struct Slot<S> {
    service: Rc<S>,
    /// Its interface.
    interface: u64,
    /// Where it was opened, as [`Visitor::door`].
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
    /// Where references that come with a request are put; as a list.
    room: RefBlock,
    room_list: u64,
    /// Where looking for sessions whose client has ended goes on.
    sweep: usize,
    /// By alias. There is none with that of the door.
    sessions: Vec<Option<Box<Slot<S>>>>,
    host: H,
    /// Where requests with bytes arrive: words, and behind them bytes.
    buffer: Vec<u64>,
    /// The registers that a thread goes on with whose exception was handled.
    registers: [u64; REGISTER_WORDS],
}

/// The next call of a server whose messages travel in registers.
struct Next {
    /// Its word.
    call: u64,
    /// The reply that it gives, if it does.
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

    /// The same, made of each word by itself.
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
        Reply::of::<()>(Err(Error::Invalid)).next()
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

/// What goes out with the next wait.
#[derive(Clone, Copy)]
enum Out {
    Nothing,
    /// The reply in words.
    Reply,
    /// The registers after an exception.
    Registers,
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

/// What a door is, and the port at which the server is woken.
fn door(alias: u64) -> PortState {
    PortState {
        alias,
        flags: port_flags::CALLS_ONLY,
    }
}

/// What the port of a session is: the server hears when its client has let go of it.
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
        // One comes to a door.
        let room = RefBlock::new(S::REFS.max(H::REFS).max(1))?;
        Ok(Server {
            portset,
            portset_ref,
            bell,
            _bell_port: bell_port,
            door,
            more_doors: Vec::new(),
            job_of: None,
            room_list: room.list(room.len()),
            room,
            sweep: 0,
            sessions: Vec::from([None]),
            host,
            buffer,
            registers: [0; REGISTER_WORDS],
        })
    }

    /// A reference to the port at which other threads make the server turn: it calls [`Host::settle`].
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

    /// Tells the server how to ask init for the job of the client whose own port at init this is. From then on
    /// sessions belong to processes.
    pub fn knows(&mut self, job_of: JobOf) {
        self.job_of = Some(job_of);
    }

    /// One more door: its number, and a reference to it.
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
        let mut reply = Reply::NONE;
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
                // Word by word, so that neither needs to be in memory but here.
                None => self.came_in_registers(came.apart(), left).apart(),
            };
        }
    }

    /// As [`Server::look_again`], before this call.
    #[cold]
    #[inline(never)]
    fn look_first(&mut self, next: Next) -> Next {
        self.look_again();
        next
    }

    /// Handles what came in registers if it is what comes most: a session's request, without references, of a method that
    /// the stub answers quickly. All that is asked of it is asked here and there, out of registers.
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
                slot.wait(came.alias, number, future);
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

    /// As a turn of `run_in_registers`, no longer than until then: for servers that seldom have a deadline.
    #[inline(never)]
    fn turn_until(&mut self, deadline: u64, next: &Next) -> Next {
        let regs = IpcRegs::to(self.portset.handle()).until(deadline);
        let (call, mut regs) = match next.reply() {
            Some(words) => (Call::ReplyWaitReceiveShortUntil, regs.message(words)),
            None => (Call::ServerWaitReceiveShortUntil, regs),
        };
        regs.rbx = self.room_list;
        // SAFETY: a register message writes no memory.
        unsafe { sys::ipc(call, &mut regs) };
        let came = wire::Came {
            word: regs.rax,
            alias: regs.value(),
            words: regs.short_words(),
        };
        self.came_in_registers(came, regs.rbx)
    }

    /// Handles what came in registers, with so much left of the list for references.
    #[cold]
    #[inline(never)]
    fn came_in_registers(&mut self, came: wire::Came, left: u64) -> Next {
        let mut reply = Reply::NONE;
        match self.came_as_any(&came, left, &mut reply) {
            Out::Reply => reply.next(),
            _ => Next::wait(),
        }
    }

    fn came_as_any(&mut self, came: &wire::Came, left: u64, reply: &mut Reply) -> Out {
        if !came.is(Code::Call) {
            let code = Code::from_word(came.word);
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

    /// Handles what is no request.
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
                reply.count = 0;
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
        // SAFETY: so many words have come there.
        let words: &[u64; EXCEPTION_WORDS] = unsafe { &*self.buffer.as_ptr().cast() };
        let mut registers = [0; REGISTER_WORDS];
        registers.copy_from_slice(&words[4..]);
        let message = ExceptionMessage {
            code: words[0],
            address: words[1],
            detail: words[2],
            tag: words[3],
            registers: Registers::from_words(&registers),
        };
        match self.host.exception(alias, &message) {
            Some(registers) => {
                self.registers = registers.to_words();
                Out::Registers
            }
            None => Out::Nothing,
        }
    }

    /// As `turn`, with messages that lie in memory.
    #[inline(always)]
    fn turn_with_bytes(&mut self, reply: &mut Reply, out: Out) -> Out {
        let room = self.buffer.capacity() * 8;
        let deadline = self.host.deadline();
        let (from, length) = match out {
            Out::Nothing => (0, 0),
            Out::Reply => (reply.words.as_ptr() as u64, reply.count * 8),
            Out::Registers => (self.registers.as_ptr() as u64, REGISTER_WORDS * 8),
        };
        let call = match (out, deadline) {
            (Out::Nothing, None) => Call::ServerWaitReceive,
            (Out::Nothing, Some(_)) => Call::ServerWaitReceiveUntil,
            (_, None) => Call::ReplyWaitReceive,
            (_, Some(_)) => Call::ReplyWaitReceiveUntil,
        };
        let mut regs = IpcRegs {
            rdi: self.portset.handle(),
            rsi: from,
            rdx: length as u64,
            r12: self.buffer.as_mut_ptr() as u64,
            r13: room as u64,
            rbx: self.room_list,
            rbp: deadline.unwrap_or(0),
            ..IpcRegs::default()
        };
        // SAFETY: what is sent is only read; the place that is received into is the server's alone.
        let code = unsafe { sys::ipc(call, &mut regs) };
        let came = room - usize::try_from(regs.r13).map_or(room, |left| left.min(room));
        let alias = regs.rdi;
        match code {
            Code::Call => {}
            Code::Exception if came >= EXCEPTION_WORDS * 8 => return self.exception(alias),
            Code::Fault if came < FAULT_WORDS * 8 => return Out::Nothing,
            code => {
                // SAFETY: the words have values from the start.
                let words = unsafe { *self.buffer.as_ptr().cast() };
                return self.no_request(code, alias, &words, reply);
            }
        }
        // SAFETY: the words have values from the start; the kernel has written as many bytes as came. The buffer neither moves nor changes before the request has been handled.
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
                left: regs.rbx,
            },
            ..Request::NONE
        };
        self.handle_with_refs(alias, &request, reply)
    }

    /// Handles a request, with which references may have come.
    #[inline(always)]
    fn handle_with_refs(
        &mut self,
        alias: u64,
        request: &Request<'static>,
        reply: &mut Reply,
    ) -> Out {
        let out = self.handle(alias, request, reply);
        for n in 0..request.refs.count() {
            // They served that request only.
            let _ = self.room.get(n).clear();
        }
        out
    }

    /// Handles a request.
    #[inline(always)]
    fn handle(&mut self, alias: u64, request: &Request<'static>, reply: &mut Reply) -> Out {
        let Some(Some(slot)) = self.sessions.get(alias as usize) else {
            return Out::reply(self.knock(alias, request, reply));
        };
        if (request.method, request.count) == (QUERY, 2) {
            let next = self.queried(alias, request.words[1]);
            if next.reply().is_some() {
                (reply.words, reply.count) = (next.words, wire::count(next.call));
            }
            return Out::reply(next.reply().is_some());
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

    /// Answers a session that asks for another interface of its object: with a session that has it, or an error.
    #[cold]
    #[inline(never)]
    fn queried(&mut self, alias: u64, interface: u64) -> Next {
        match self.query(alias, interface) {
            Ok(reference) => {
                send(&[0], &[], abi::ref_list(reference.handle(), 1));
                Next::wait()
            }
            Err(error) => Reply::of::<()>(Err(error)).next(),
        }
    }

    /// A session about the same object as this one, with another interface or the same: a reference to its port, for
    /// the client.
    fn query(&mut self, alias: u64, interface: u64) -> Result<Ref, Error> {
        let Some(Some(slot)) = self.sessions.get(alias as usize) else {
            return Err(Error::Broken);
        };
        let service = slot.service.query(interface).ok_or(Error::Unsupported)?;
        let (door, job) = (slot.door, slot.job);
        let client = slot.client.copy().map_err(base::error_of)?;
        self.room_for(job)?;
        self.add((door, interface), (job, client), None, |_, _| Ok(service))
    }

    /// Does with an answer to the request of this session what has to be done.
    #[inline(never)]
    fn answered(&mut self, alias: u64, number: u64, answer: Answer, reply: &mut Reply) -> Out {
        let Some(Some(slot)) = self.sessions.get_mut(alias as usize) else {
            return Out::Nothing;
        };
        let beside = match answer {
            Answer::Later(future) => {
                slot.wait(alias, number, future);
                return Out::Nothing;
            }
            Answer::Done => return Out::reply(slot.done.give(reply)),
            _ if self.host.again() => return Out::Nothing,
            Answer::Sent | Answer::Now => return Out::Nothing,
            Answer::Once => None,
            Answer::Kept(beside) => beside,
        };
        slot.keep(number, reply, beside);
        Out::reply(slot.done.give(reply))
    }

    /// A request came to a port that is no session's: whether the reply is to be given with the next wait.
    #[cold]
    #[inline(never)]
    fn knock(&mut self, alias: u64, request: &Request<'static>, reply: &mut Reply) -> bool {
        if alias == BELL {
            // Whoever rang only has to be let go.
            *reply = Reply::NONE;
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
            (KEEP, 1..) => self.keep(door, with).map(|kept| {
                send(&kept, &[], 0);
                None
            }),
            (RESUME, WORDS) => {
                let (number, count) = (words[2] & NUMBER, (words[2] >> COUNT_SHIFT) as usize);
                // The image of a program says it, and nobody else gets it.
                let done = (count > 0 && count <= REPLY_WORDS).then(|| {
                    let mut reply = Reply {
                        count,
                        ..Reply::NONE
                    };
                    for (to, from) in reply.words.iter_mut().zip(&words[3..]) {
                        to.write(*from);
                    }
                    Done {
                        number,
                        reply,
                        ..Done::default()
                    }
                });
                self.open((door, words[1]), with, done).map(Some)
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

    /// Handles a request that came to a port of the server's own: whether the reply is to be given with the next wait.
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
            // No stub gives these to who has no waker, and no session.
            (Answer::Later(_) | Answer::Done, _) => {
                reply.set::<()>(Err(Error::Unsupported));
                return true;
            }
        };
        match session {
            Some(done) => {
                let done = &mut *done.borrow_mut();
                done.keep(number, reply, beside);
                done.give(reply)
            }
            None => true,
        }
    }

    /// What is to be kept of the session of this door whose port came.
    fn keep(&mut self, door: u64, port: Option<RefAt>) -> Result<[u64; WORDS], Error> {
        let port = port.ok_or(Error::Invalid)?;
        let one = Ref::new().map_err(base::error_of)?;
        let found = self
            .sessions
            .iter()
            .flatten()
            .filter(|slot| slot.door == door)
            .find(|slot| slot.port.reference_into(*one).is_ok() && one.same_as(port));
        let slot = found.ok_or(Error::NotFound)?;
        let mut kept = [0; WORDS];
        kept[1] = slot.interface;
        // Only words are kept: a request whose reply has more is done again.
        let Done {
            number,
            reply,
            beside,
            ..
        } = &slot.done;
        if *number != Done::NEVER && beside.is_none() && reply.count <= REPLY_WORDS {
            kept[2] = number & NUMBER | (reply.count as u64) << COUNT_SHIFT;
            kept[3..3 + reply.count].copy_from_slice(reply.as_words());
        }
        Ok(kept)
    }

    /// Opens a session at this door with this interface, for the client whose own port at init is `who`: a reference
    /// to its port, for the client.
    fn open(
        &mut self,
        (door, interface): (u64, u64),
        who: Option<RefAt>,
        done: Option<Done>,
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
        self.add((door, interface), (job, client), done, |host, visitor| {
            host.open(visitor).map(Rc::new)
        })
    }

    /// Makes sure that this job may have one more session.
    fn room_for(&mut self, job: u32) -> Result<(), Error> {
        self.end_of_ended(SWEEP);
        let too_many = |sessions: &[Option<Box<Slot<S>>>]| {
            let of_job = sessions.iter().flatten().filter(|slot| slot.job == job);
            of_job.count() >= MAX_JOB_SESSIONS
        };
        if job != 0 && too_many(&self.sessions) {
            self.end_of_ended(MAX_SESSIONS);
            if too_many(&self.sessions) {
                return Err(Error::Limit);
            }
        }
        Ok(())
    }

    /// Adds a session at this door with this interface, for this client of this job: a reference to its port, for the
    /// client.
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

    /// Ends the sessions of clients that have ended, among the next so many.
    fn end_of_ended(&mut self, most: usize) {
        if self.job_of.is_none() {
            return;
        }
        for _ in 0..most.min(self.sessions.len()) {
            self.sweep = (self.sweep + 1) % self.sessions.len();
            let slot = &mut self.sessions[self.sweep];
            if slot
                .as_ref()
                .is_some_and(|slot| slot.client.kind() == RefKind::Null)
            {
                *slot = None;
            }
        }
    }

    /// Ends a session: whatever it held goes. A request of it that waits is given up, and its client
    /// finds the session gone.
    pub fn end(&mut self, alias: u64) {
        if let Some(slot) = self.sessions.get_mut(alias as usize) {
            *slot = None;
        }
    }

    /// Goes on with the requests that were woken. Those that are ready get their replies when they
    /// arrive again.
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
    fn wait(&mut self, alias: u64, number: u64, future: Later) {
        self.waiting = Some(Waiting { number, future });
        let _ = self.port.set_state(&session(alias), 0);
    }

    /// Keeps the reply to a request that must not be repeated. One that waited is given up by its client.
    fn keep(&mut self, number: u64, reply: &Reply, beside: Option<Box<Beside>>) {
        self.waiting = None;
        self.done.keep(number, reply, beside);
    }

    /// As `keep`, of a reply in words.
    #[inline(always)]
    fn keep_words(&mut self, number: u64, reply: &Reply) {
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

    /// Goes on with the request that waits, after it was woken: whether its reply is there.
    fn poll(&mut self) -> bool {
        let Some(mut waiting) = self.waiting.take() else {
            return false;
        };
        let mut context = Context::from_waker(&self.waker);
        match waiting.future.as_mut().poll(&mut context) {
            Poll::Ready(kept) => {
                self.done.keep(waiting.number, &kept.reply, kept.beside);
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

/// Something that requests of one server wait for: what they wait for has to be asked for again
/// after each [`Event::happened`].
#[derive(Default)]
pub struct Event {
    /// By the session that they wake.
    wakers: Mutex<BTreeMap<usize, Waker>>,
}

impl Event {
    /// No event yet.
    #[must_use]
    pub const fn new() -> Self {
        Event {
            wakers: Mutex::new(BTreeMap::new()),
        }
    }

    /// Wakes all that wait. Another thread than the server's must not hold anything meanwhile that
    /// the server may wait for.
    pub fn happened(&self) {
        let wakers = core::mem::take(&mut *self.wakers.lock());
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Waits until `ready` has something; it is asked at once and after each event.
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        // Who is given up is not to be woken, nor kept until the next event, which may never come.
        let mut waits = Waits {
            event: self,
            place: None,
        };
        core::future::poll_fn(|context| {
            if let Some(value) = ready() {
                return Poll::Ready(value);
            }
            let waker = context.waker();
            let place = waker.data() as usize;
            waits.place = Some(place);
            self.wakers.lock().insert(place, waker.clone());
            // What happened in another thread since the question.
            ready().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// One that waits for an event, until this is dropped.
struct Waits<'a> {
    event: &'a Event,
    /// Where its waker is.
    place: Option<usize>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.event.wakers.lock().remove(&place);
        }
    }
}
