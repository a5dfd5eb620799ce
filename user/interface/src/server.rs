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
//! **A request that must not be repeated** has the number that the client gave it. The last such
//! number of the session is kept with its reply: the request is done once, however often it arrives.
use crate::wire::{self, Values, Words, QUERY, WORDS};
use abi::message::Segment;
use abi::state::PortState;
use abi::{Call, Code};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use proto::{Error, MAX_BULK};
use rt::obj::{Port, Portset, Ref, RefAt};
use rt::sync::Mutex;
use rt::sys::{self, IpcRegs};

/// Alias of the door.
const DOOR: u64 = 0;
/// Alias of the port at which other threads wake the server.
const BELL: u64 = u64::MAX;
/// Most sessions of a server.
pub const MAX_SESSIONS: usize = 4096;

/// A request, taken apart as far as all requests are alike.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: u16,
    /// First word and arguments. Those that did not come have any value.
    pub words: [u64; WORDS],
    /// How many words came.
    pub count: usize,
    /// The bytes that came with them.
    pub bytes: &'a [u8],
}

/// A reply in words.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    words: Words,
    count: usize,
}

impl Reply {
    /// The reply that this result is.
    #[inline(always)]
    pub fn new<R: Values>(result: Result<R, Error>) -> Self {
        let mut words = wire::NONE;
        let count = match result {
            Ok(values) => {
                words[0].write(0);
                values.put(&mut words);
                1 + R::COUNT
            }
            Err(error) => {
                words[0].write(wire::status(Err(error)));
                1
            }
        };
        Reply { words, count }
    }
}

/// What a stub makes of a request.
pub enum Answer {
    /// The reply. The method may be repeated.
    Now(Reply),
    /// The reply of a method that must not be repeated.
    Once(Reply),
    /// The reply went out already, with bytes.
    Sent,
    /// The reply is the result of this.
    Later(Pin<Box<dyn Future<Output = Reply>>>),
}

/// What the stub of an interface is: made by `#[interface]`.
pub trait Service: 'static {
    /// The id of the interface.
    const ID: u64;
    /// Whether a request can come with bytes.
    const BYTES: bool;
    /// Calls the method. What arrives is hostile: a request that makes no sense is
    /// [`Error::Invalid`] or [`Error::Unsupported`].
    fn answer(self: &Rc<Self>, request: &Request<'_>) -> Answer;
}

/// Sends the reply to the request that the server has, with bytes from where they lie.
pub fn send_bytes(result: Result<&[u8], Error>) -> Answer {
    let bytes = match result {
        Ok(bytes) => bytes,
        Err(error) => return Answer::Now(Reply::new::<()>(Err(error))),
    };
    send(&[0], bytes, None);
    Answer::Sent
}

fn send(words: &[u64], bytes: &[u8], reference: Option<RefAt>) {
    let more = [Segment {
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
    }];
    let mut regs = IpcRegs {
        rsi: words.as_ptr() as u64,
        rdx: size_of_val(words) as u64,
        r10: more.as_ptr() as u64,
        r8: u64::from(!bytes.is_empty()),
        r9: reference.map_or(0, |reference| abi::ref_list(reference.handle(), 1)),
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
            let _ = rt::server::poke(&self.bell.port);
        }
    }
}

/// A request that waits.
struct Waiting {
    number: u64,
    future: Pin<Box<dyn Future<Output = Reply>>>,
}

/// A session.
struct Slot<S> {
    service: Rc<S>,
    port: Port,
    /// The last request that must not be repeated, and its reply.
    done: Option<(u64, Reply)>,
    waiting: Option<Waiting>,
    /// Wakes the request that waits.
    waker: Waker,
}

/// A server of one interface.
pub struct Server<S, M> {
    portset: Portset,
    portset_ref: Ref,
    bell: Arc<Bell>,
    _bell_port: Port,
    door: Port,
    /// By alias, beginning with 1.
    sessions: Vec<Option<Slot<S>>>,
    make: M,
    /// Where requests with bytes arrive.
    buffer: Vec<u8>,
}

impl<S: Service, M: FnMut() -> Result<S, Error>> Server<S, M> {
    /// A server on the calling thread. `make` makes the value of a new session, or refuses.
    pub fn new(make: M) -> Result<Self, Error> {
        Self::with(make).map_err(rt::error_of)
    }

    fn with(make: M) -> Result<Self, Code> {
        let portset = Portset::new()?;
        let portset_ref = portset.reference()?;
        let port = |alias| {
            let port = Port::new()?;
            port.set_state(
                &PortState {
                    alias,
                    flags: abi::state::port_flags::CALLS_ONLY,
                },
                portset_ref.handle(),
            )?;
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
        if S::BYTES {
            buffer
                .try_reserve_exact(WORDS * 8 + MAX_BULK)
                .map_err(|_| Code::NoMemory)?;
        }
        Ok(Server {
            portset,
            portset_ref,
            bell,
            _bell_port: bell_port,
            door,
            sessions: Vec::new(),
            make,
            buffer,
        })
    }

    /// The door, to be registered by name.
    pub fn door(&self) -> &Port {
        &self.door
    }

    /// Serves for ever.
    pub fn run(mut self) -> ! {
        let mut reply = None;
        loop {
            self.look_again();
            let (alias, head, request) = match self.next(reply.take()) {
                Some(came) => came,
                None => continue,
            };
            reply = self.handle(alias, head, &request);
        }
    }

    /// Gives the reply, and waits for a request: alias, first word, request.
    #[inline(always)]
    fn next(&mut self, reply: Option<Reply>) -> Option<(u64, u64, Request<'static>)> {
        if S::BYTES {
            return self.next_with_bytes(reply);
        }
        let (call, words, count) = match reply {
            Some(reply) => (Call::ReplyWaitReceiveShort, reply.words, reply.count),
            None => (Call::ServerWaitReceiveShort, wire::NONE, 0),
        };
        // SAFETY: a register message writes no memory.
        let came = unsafe { wire::in_registers(call, self.portset.handle(), words, count) };
        if !came.is(Code::Call) {
            return None;
        }
        let request = Request {
            method: wire::method(came.words[0]),
            words: came.words,
            count: came.count(),
            bytes: &[],
        };
        Some((came.alias, came.words[0], request))
    }

    fn next_with_bytes(&mut self, reply: Option<Reply>) -> Option<(u64, u64, Request<'static>)> {
        let mut words = [0; WORDS];
        let room = self.buffer.capacity();
        let more = [Segment {
            address: self.buffer.as_mut_ptr() as u64,
            length: room as u64,
        }];
        let call = match reply {
            Some(_) => Call::ReplyWaitReceive,
            None => Call::ServerWaitReceive,
        };
        let (from, count) = reply.as_ref().map_or((0, 0), |reply| {
            (reply.words.as_ptr() as u64, reply.count as u64)
        });
        let mut regs = IpcRegs {
            rdi: self.portset.handle(),
            rsi: from,
            rdx: count * 8,
            r12: words.as_mut_ptr() as u64,
            r13: size_of_val(&words) as u64,
            r14: more.as_ptr() as u64,
            r15: 1,
            ..IpcRegs::default()
        };
        // SAFETY: the reply is only read; the places that are received into are the server's alone.
        if unsafe { sys::ipc(call, &mut regs) } != Code::Call {
            return None;
        }
        let left = usize::try_from(regs.r13).ok()?;
        // While no further segment has been begun, what is left is left of the words.
        let (count, bytes) = match regs.r15 {
            1 => (WORDS - left.div_ceil(8).min(WORDS), 0),
            _ => (WORDS, room - left.min(room)),
        };
        // SAFETY: the kernel has written this many bytes; the buffer neither moves nor changes
        // before the request has been handled.
        let bytes = unsafe { core::slice::from_raw_parts(self.buffer.as_ptr(), bytes) };
        let request = Request {
            method: wire::method(words[0]),
            words,
            count,
            bytes,
        };
        Some((regs.rdi, words[0], request))
    }

    /// The reply to a request, unless it goes another way.
    #[inline(always)]
    fn handle(&mut self, alias: u64, head: u64, request: &Request<'_>) -> Option<Reply> {
        let index = alias.wrapping_sub(1) as usize;
        let Some(Some(slot)) = self.sessions.get_mut(index) else {
            return self.knock(alias, request.method, request.count, request.words[1]);
        };
        if request.count == 0 {
            return Some(Reply::new::<()>(Err(Error::Invalid)));
        }
        let number = wire::number(head);
        if let Some((done, reply)) = slot.done {
            if done == number {
                return Some(reply);
            }
        }
        // Another request than the one that waited: its client has given that one up.
        slot.waiting = None;
        match slot.service.answer(request) {
            Answer::Now(reply) => Some(reply),
            Answer::Once(reply) => {
                slot.done = Some((number, reply));
                Some(reply)
            }
            Answer::Sent => None,
            Answer::Later(future) => {
                slot.waiting = Some(Waiting { number, future });
                self.poll(alias)
            }
        }
    }

    /// Something came to a port that is no session's.
    #[cold]
    #[inline(never)]
    fn knock(&mut self, alias: u64, method: u16, count: usize, id: u64) -> Option<Reply> {
        if alias == BELL {
            // Whoever rang only has to be let go.
            return Some(Reply {
                words: wire::NONE,
                count: 0,
            });
        }
        let opened = match (alias, count, method) {
            (DOOR, 2.., QUERY) if id == S::ID => self.open(),
            (DOOR, 2.., QUERY) => Err(Error::Unsupported),
            _ => Err(Error::Invalid),
        };
        match opened {
            Ok(reference) => {
                send(&[0], &[], Some(*reference));
                None
            }
            Err(error) => Some(Reply::new::<()>(Err(error))),
        }
    }

    /// Opens a session: a reference to its port, for the client.
    fn open(&mut self) -> Result<Ref, Error> {
        let free = self.sessions.iter().position(Option::is_none);
        let index = free.unwrap_or(self.sessions.len());
        if index >= MAX_SESSIONS {
            return Err(Error::NoMemory);
        }
        let alias = index as u64 + 1;
        let port = Port::new().map_err(rt::error_of)?;
        let reference = port.reference().map_err(rt::error_of)?;
        let slot = Slot {
            service: Rc::new((self.make)()?),
            port,
            done: None,
            waiting: None,
            waker: Waker::from(Arc::new(Alarm {
                bell: Arc::clone(&self.bell),
                alias,
            })),
        };
        slot.port
            .set_state(
                &PortState {
                    alias,
                    flags: abi::state::port_flags::CALLS_ONLY,
                },
                self.portset_ref.handle(),
            )
            .map_err(rt::error_of)?;
        match free {
            Some(index) => self.sessions[index] = Some(slot),
            None => self.sessions.push(Some(slot)),
        }
        Ok(reference)
    }

    /// Ends a session: whatever it held goes. A request of it that waits is given up, and its client
    /// finds the session gone.
    pub fn end(&mut self, alias: u64) {
        if let Some(slot) = self.sessions.get_mut(alias.wrapping_sub(1) as usize) {
            *slot = None;
        }
    }

    /// Goes on with the request of a session that waits, when it is to be looked at for the first
    /// time and whenever it was woken: the reply, if it is ready.
    fn poll(&mut self, alias: u64) -> Option<Reply> {
        let slot = self
            .sessions
            .get_mut(alias.wrapping_sub(1) as usize)?
            .as_mut()?;
        let waiting = slot.waiting.as_mut()?;
        let mut context = Context::from_waker(&slot.waker);
        match waiting.future.as_mut().poll(&mut context) {
            Poll::Ready(reply) => {
                slot.done = Some((waiting.number, reply));
                slot.waiting = None;
                Some(reply)
            }
            Poll::Pending => {
                // The client's call waits at the port from the server's next wait on.
                let _ = slot.port.set_state(
                    &PortState {
                        alias,
                        flags: abi::state::port_flags::CALLS_ONLY,
                    },
                    0,
                );
                None
            }
        }
    }

    /// Goes on with the requests that were woken. Those that are ready get their replies when they
    /// arrive again.
    #[inline(always)]
    fn look_again(&mut self) {
        while self.bell.rung.load(Ordering::Relaxed) {
            let woken = {
                let mut woken = self.bell.woken.lock();
                self.bell.rung.store(false, Ordering::Release);
                core::mem::take(&mut *woken)
            };
            for alias in woken {
                if self.poll(alias).is_some() {
                    if let Some(Some(slot)) = self.sessions.get(alias.wrapping_sub(1) as usize) {
                        let state = PortState {
                            alias,
                            flags: abi::state::port_flags::CALLS_ONLY,
                        };
                        let _ = slot.port.set_state(&state, self.portset_ref.handle());
                    }
                }
            }
        }
    }
}

/// Something that requests of one server wait for: what they wait for has to be asked for again
/// after each [`Event::happened`].
#[derive(Default)]
pub struct Event {
    wakers: RefCell<Vec<Waker>>,
}

impl Event {
    /// Wakes all that wait.
    pub fn happened(&self) {
        for waker in self.wakers.take() {
            waker.wake();
        }
    }

    /// Waits until `ready` has something; it is asked at once and after each event.
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        core::future::poll_fn(|context| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                self.wakers.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
