//! What answers at a server's ports: stubs, and what a server does besides answering its sessions.
use super::done::Done;
use super::reply::{Answer, Quick, Reply};
use super::request::Request;
use crate::wire;
use abi::message::{ExceptionMessage, FaultMessage, ShortAnswer, SHORT_ANSWER_WORDS};
use abi::state::{Registers, REGISTER_WORDS};
use alloc::rc::Rc;
use base::obj::RefAt;
use base::sys;
use core::cell::RefCell;
use core::task::Waker;
use proto::Error;

/// What the stub of an interface is: made by `#[interface]`.
pub trait Service: 'static {
    /// Whether this is the id of its interface.
    fn has(id: u64) -> bool;
    /// Whether a request can come with bytes.
    const BYTES: bool;
    /// Whether a reply that is kept can have bytes, which are in an image.
    const KEEPS_BYTES: bool;
    /// Most references that can come with a request.
    const REFS: usize;
    /// Calls the method. Requests can be hostile: one that makes no sense is [`Error::Invalid`] or
    /// [`Error::Unsupported`]. The reply in words goes into `reply`.
    fn answer(self: &Rc<Self>, request: &Request<'_>, reply: &mut Reply) -> Answer;
    /// As `answer`, for a request without references to a method that takes only words and returns words, or bytes from
    /// where they lie. Most requests are such.
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

/// Lets go of the thread whose exception the host handles ([`Host::exception`]): it stays in the exception until the
/// holder of its handle sets its state.
pub fn park() {
    sys::server_release();
}

/// How a thread continues whose exception was handled: with the registers that a host puts here. It is empty at first.
#[derive(Debug)]
pub struct Resumption {
    /// The message to the kernel.
    words: [u64; REGISTER_WORDS],
    /// How many of them it has.
    count: usize,
}

impl Resumption {
    /// The empty resumption.
    pub(super) const NONE: Self = Resumption {
        words: [0; REGISTER_WORDS],
        count: 0,
    };

    /// Continues with these control registers, and all others unchanged.
    #[inline(always)]
    pub fn control(&mut self, answer: ShortAnswer) {
        let ShortAnswer {
            pc,
            sp,
            flags,
            call,
        } = answer;
        self.words[..SHORT_ANSWER_WORDS].copy_from_slice(&[pc, sp, flags, call]);
        self.count = SHORT_ANSWER_WORDS;
    }

    /// Continues with these registers.
    pub fn all(&mut self, registers: &Registers) {
        self.words = registers.to_words();
        self.count = REGISTER_WORDS;
    }

    /// Where the message lies, and its length in bytes.
    #[inline(always)]
    pub(super) fn place(&self) -> (u64, usize) {
        (self.words.as_ptr() as u64, self.count * 8)
    }

    /// Makes it empty.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether it is not empty.
    #[inline(always)]
    pub(super) fn says(&self) -> bool {
        self.count > 0
    }
}

/// What a server does besides answering its sessions. A closure that makes sessions is enough for most.
pub trait Host<S> {
    /// Whether requests with bytes, or exceptions, can come to a port of the server's own.
    const BYTES: bool = false;
    /// Most references that can come with a request to a port of the server's own.
    const REFS: usize = 0;

    /// Makes the value of a new session, or refuses.
    ///
    /// # Errors
    /// Why not.
    fn open(&mut self, visitor: &Visitor) -> Result<S, Error>;

    /// Answers a request at the port of the server's own with this alias: of a shared interface, or of the session that
    /// the port itself is. The answer for such a session must not be [`Answer::Later`].
    fn shared(&mut self, alias: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let _ = (alias, request);
        reply.set::<()>(Err(Error::Unsupported));
        Answer::Now
    }

    /// A thread met an exception, and the keeper of its space is the port of the server's own with this alias. The
    /// thread continues with `resumption` when the server waits again; if that is empty it meets the exception again,
    /// unless it was [parked](park).
    fn exception(&mut self, alias: u64, message: &ExceptionMessage, resumption: &mut Resumption) {
        let _ = (alias, message, resumption);
        park();
    }

    /// The kept state of the session that the server's own port with this alias is; `None` if the port is no session.
    fn session(&mut self, alias: u64) -> Option<Rc<RefCell<Done>>> {
        let _ = alias;
        None
    }

    /// A thread touched an absent page of a region whose keeper is the port of the server's own with this alias.
    /// Returns whether the thread is to retry; if the page is still absent then, that is an exception. If not, the
    /// kernel delivers the fault again, behind the waiting clients.
    fn fault(&mut self, alias: u64, message: &FaultMessage) -> bool {
        let _ = (alias, message);
        true
    }

    /// Nobody refers any more to the port of the server's own with this alias, which has the flag
    /// [`NOTIFY_UNREFERENCED`](abi::state::port_flags::NOTIFY_UNREFERENCED).
    fn unreferenced(&mut self, alias: u64) {
        let _ = alias;
    }

    /// Whether the request that just came could not be handled yet: the kernel then delivers it again, behind the
    /// waiting clients. Called after each request.
    #[inline(always)]
    fn again(&mut self) -> bool {
        false
    }

    /// The deadline until which the server waits at most, on its space's clock.
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

/// The service of a server without sessions.
#[derive(Debug)]
pub enum NoSessions {}

impl Service for NoSessions {
    const BYTES: bool = false;
    const KEEPS_BYTES: bool = false;
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
    const KEEPS_BYTES: bool = A::KEEPS_BYTES || B::KEEPS_BYTES;
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

/// What is known of a client that opens a session, during [`Host::open`].
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// The door: 0 for the first, then those of [`Server::add_door`](super::Server::add_door); the alias of a port of
    /// the server's own.
    pub door: u64,
    /// The id of the interface that it wants, one that the service [has](Service::has).
    pub interface: u64,
    /// The number of its job: that of the first process of it. 0 for init, and for all if the server was not told
    /// how to know clients.
    pub job: u32,
    /// Its own port at init, with which a holder can act in its name: dead when the client has ended. `None` if the
    /// server was not told how to know clients.
    pub client: Option<RefAt>,
}
