//! Sessions: the sockets and the requests of one client.

use crate::stack::{names, refusal, Holder, Id, Refusal, Stack};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Deref;
use core::task::{Poll, Waker};
use proto::Error;
use rt::obj::RefAt;
use services::net::{words, Kind, Network, Place, SOCKETS};

/// The sockets of all sessions, shared by the sessions.
pub type Shared = Rc<RefCell<Stack>>;

/// A client's session. No other session can name its sockets, and they are closed when it ends.
pub struct Session {
    shared: Shared,
    holder: Holder,
    /// The sockets, by their numbers in the session.
    sockets: RefCell<Vec<Option<Id>>>,
    /// The sentence for the last refused request; empty if none was refused.
    why: Cell<&'static str>,
    /// Interrupts the client's thread that watches sockets.
    watcher: RefCell<Option<Waker>>,
}

/// The bytes of the addresses for which there is room: a reply without room would be lost, and its request is done.
fn as_many(addresses: Vec<IpAddr>, room: usize) -> Vec<u8> {
    let bytes = addresses.into_iter().take(room / 16).flat_map(|address| {
        let (high, low) = words(address);
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    });
    bytes.collect()
}

impl Session {
    /// A session of a client of this job.
    #[must_use]
    pub fn new(shared: &Shared, job: u32) -> Self {
        Session {
            shared: Rc::clone(shared),
            holder: shared.borrow_mut().holder(job),
            sockets: RefCell::new(vec![None; SOCKETS as usize]),
            why: Cell::new(""),
            watcher: RefCell::new(None),
        }
    }

    fn refuse(&self, (error, why): Refusal) -> Error {
        self.why.set(why);
        error
    }

    /// Calls the stack, and keeps the sentence if it refuses.
    fn ask<T>(&self, ask: impl FnOnce(&mut Stack) -> Result<T, Refusal>) -> Result<T, Error> {
        ask(&mut self.shared.borrow_mut()).map_err(|refusal| self.refuse(refusal))
    }

    /// The same as [`Session::ask`], for a socket of the session.
    fn with<T>(
        &self,
        socket: u64,
        ask: impl FnOnce(&mut Stack, Id) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        self.ask(|stack| ask(stack, self.id(socket).ok_or(refusal::NONE)?))
    }

    fn id(&self, socket: u64) -> Option<Id> {
        let socket = usize::try_from(socket).ok()?;
        *self.sockets.borrow().get(socket)?
    }

    /// Makes a socket and gives it a free number.
    fn number<T>(
        &self,
        make: impl FnOnce(&mut Stack) -> Result<(Id, T), Refusal>,
    ) -> Result<(u64, T), Error> {
        let mut sockets = self.sockets.borrow_mut();
        let free = sockets.iter_mut().enumerate().find(|(_, id)| id.is_none());
        let (number, place) = free.ok_or_else(|| self.refuse(refusal::SESSION))?;
        let (id, with) = self.ask(make)?;
        *place = Some(id);
        Ok((number as u64, with))
    }

    /// Closes a socket. Resets its connection if `hard`.
    fn end(&self, socket: u64, hard: bool) -> Result<(), Error> {
        self.with(socket, |stack, id| {
            stack.close(id, hard);
            Ok(())
        })?;
        self.sockets.borrow_mut()[socket as usize] = None;
        Ok(())
    }

    /// Which of these sockets are ready to be read and written, as bits. The waker is woken when that changes.
    fn ready(&self, (readable, writable): (u64, u64), waker: &Waker) -> Result<(u64, u64), Error> {
        let mut ready = (0, 0);
        let mut stack = self.shared.borrow_mut();
        let mut left = readable | writable;
        while left != 0 {
            let socket = u64::from(left.trailing_zeros());
            left &= left - 1;
            let id = self.id(socket).ok_or_else(|| self.refuse(refusal::NONE))?;
            let wanted = (readable >> socket & 1 != 0, writable >> socket & 1 != 0);
            let (read, write) = stack.ready(id, wanted, waker);
            ready.0 |= u64::from(read) << socket;
            ready.1 |= u64::from(write) << socket;
        }
        Ok(ready)
    }

    /// Asks a server for the addresses of a name: IPv6 if `six`, else IPv4.
    async fn asked(&self, name: &str, six: bool) -> Result<Vec<IpAddr>, Refusal> {
        let query = self
            .shared
            .borrow_mut()
            .ask_name(self.holder.party(), name, six)?;
        let mut query = Query {
            shared: &self.shared,
            query: Some(query),
        };
        poll_fn(|context| {
            let Some(handle) = query.query else {
                return Poll::Ready(Err(refusal::NO_NAME));
            };
            match self
                .shared
                .borrow_mut()
                .name_answer(handle, context.waker())
            {
                None => Poll::Pending,
                Some(answer) => {
                    query.query = None;
                    Poll::Ready(answer)
                }
            }
        })
        .await
    }
}

/// A name that is being asked for. Dropping this gives the query up.
struct Query<'a> {
    shared: &'a Shared,
    query: Option<names::Id>,
}

impl Drop for Query<'_> {
    fn drop(&mut self) {
        if let Some(query) = self.query {
            self.shared.borrow_mut().forget_name(query);
        }
    }
}

/// A timer. Dropping this stops it.
struct Timer<'a> {
    shared: &'a Shared,
    timer: Option<(u64, u64)>,
}

impl Timer<'_> {
    fn stop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.shared.borrow_mut().stop_timer(timer);
        }
    }
}

impl Session {
    /// The end of a wait that begins when this is called and takes at most `most` nanoseconds, and a timer for it that
    /// has not been started.
    fn limit(&self, most: u64) -> (u64, Timer<'_>) {
        let until = self.shared.borrow().clock().saturating_add(most);
        let shared = &self.shared;
        (
            until,
            Timer {
                shared,
                timer: None,
            },
        )
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut stack = self.shared.borrow_mut();
        for id in self.sockets.borrow().iter().flatten() {
            stack.close(*id, false);
        }
    }
}

impl Network for Session {
    fn why(&self, _: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        Ok(self.why.get().as_bytes())
    }

    fn socket(&self, kind: Kind) -> Result<u64, Error> {
        let made = self.number(|stack| Ok((stack.open(self.holder, kind)?, ())));
        made.map(|(number, ())| number)
    }

    fn close(&self, socket: u64) -> Result<(), Error> {
        self.end(socket, false)
    }

    fn bind(&self, socket: u64, port: u64) -> Result<u64, Error> {
        self.with(socket, |stack, id| stack.bind(id, port))
            .map(u64::from)
    }

    fn listen(&self, socket: u64, backlog: u64) -> Result<(), Error> {
        self.with(socket, |stack, id| stack.listen(id, backlog))
    }

    fn accept(&self, socket: u64) -> Result<(u64, u64, u64, u64), Error> {
        let listening = self.id(socket);
        let (number, from) = self.number(|stack| stack.accept(listening.ok_or(refusal::NONE)?))?;
        let (high, low, port) = from.to_words();
        Ok((number, high, low, port))
    }

    fn connect(&self, socket: u64, high: u64, low: u64, port: u64) -> Result<(), Error> {
        let to = Place::from_words(high, low, port);
        self.with(socket, |stack, id| {
            stack.connect(id, to.map_err(|_| refusal::PORT)?)
        })
    }

    fn read(
        &self,
        socket: u64,
        most: u64,
        room: usize,
    ) -> Result<impl Deref<Target = [u8]>, Error> {
        let most = most.min(room as u64);
        self.with(socket, |stack, id| stack.read(id, most))
    }

    fn write(&self, socket: u64, bytes: &[u8]) -> Result<u64, Error> {
        self.with(socket, |stack, id| stack.write(id, bytes))
    }

    fn shut(&self, socket: u64) -> Result<(), Error> {
        self.with(socket, Stack::shut)
    }

    fn send(&self, socket: u64, high: u64, low: u64, port: u64, bytes: &[u8]) -> Result<(), Error> {
        let to = Place::from_words(high, low, port);
        self.with(socket, |stack, id| {
            stack.send(id, to.map_err(|_| refusal::PORT)?, bytes)
        })
    }

    fn receive(&self, socket: u64, room: usize) -> Result<(u64, u64, u64, Vec<u8>), Error> {
        let (from, mut bytes) = self.with(socket, Stack::receive)?;
        bytes.truncate(room);
        let (high, low, port) = from.to_words();
        Ok((high, low, port, bytes))
    }

    async fn next(
        &self,
        socket: u64,
        most: u64,
        room: usize,
    ) -> Result<(u64, u64, u64, Vec<u8>), Error> {
        let (until, mut timer) = self.limit(most);
        poll_fn(|context| {
            timer.stop();
            let answer = match self.with(socket, |stack, id| Ok(stack.stream(id).is_ok())) {
                Ok(true) => self
                    .with(socket, |stack, id| stack.read(id, room as u64))
                    .map(|bytes| (0, 0, 0, bytes)),
                _ => self.receive(socket, room),
            };
            let id = match (&answer, self.id(socket)) {
                (Err(Error::WouldBlock), Some(id)) => id,
                _ => return Poll::Ready(answer),
            };
            let mut stack = self.shared.borrow_mut();
            if most == 0 || stack.now() >= until {
                return Poll::Ready(answer);
            }
            // The socket was found empty above, so only the waker's registration matters here.
            stack.ready(id, (true, false), context.waker());
            timer.timer = Some(stack.start_timer(until, context.waker()));
            Poll::Pending
        })
        .await
    }

    async fn wait(&self, readable: u64, writable: u64, most: u64) -> Result<(u64, u64), Error> {
        let (until, mut timer) = self.limit(most);
        poll_fn(|context| {
            timer.stop();
            let ready = self.ready((readable, writable), context.waker());
            let now = self.shared.borrow().now();
            if ready != Ok((0, 0)) || most == 0 || now >= until {
                return Poll::Ready(ready);
            }
            let mut stack = self.shared.borrow_mut();
            timer.timer = Some(stack.start_timer(until, context.waker()));
            Poll::Pending
        })
        .await
    }

    fn tell(&self, thread: &RefAt) -> Result<(), Error> {
        let watcher = self.shared.borrow().watcher(thread)?;
        *self.watcher.borrow_mut() = Some(watcher);
        Ok(())
    }

    fn watch(&self, readable: u64, writable: u64) -> Result<(u64, u64), Error> {
        let watcher = self.watcher.borrow();
        self.ready(
            (readable, writable),
            watcher.as_ref().ok_or(Error::Invalid)?,
        )
    }

    async fn sent(&self, socket: u64) -> Result<(), Error> {
        poll_fn(
            |context| match self.with(socket, |stack, id| stack.sent(id, context.waker())) {
                Ok(false) => Poll::Pending,
                sent => Poll::Ready(sent.map(drop)),
            },
        )
        .await
    }

    async fn resolve(&self, name: String, room: usize) -> Result<Vec<u8>, Error> {
        let found = match name.parse::<IpAddr>() {
            Ok(address) => Ok(vec![address]),
            Err(_) if name == "localhost" => {
                Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
            }
            Err(_) => match self.asked(&name, false).await {
                Err((Error::NotFound, _)) => self.asked(&name, true).await,
                answer => answer,
            },
        };
        let found = found.map_err(|refusal| self.refuse(refusal))?;
        Ok(as_many(found, room))
    }

    fn address(&self, index: u64) -> Result<(u64, u64, u64), Error> {
        let address = self.shared.borrow().address(index);
        let address = address.ok_or(Error::NotFound)?;
        let (high, low) = words(address.address);
        Ok((high, low, address.bits.into()))
    }

    fn router(&self) -> Result<(u64, u64), Error> {
        let router = self.shared.borrow().router();
        router.map(words).ok_or(Error::NotFound)
    }

    fn names(&self, index: u64) -> Result<(u64, u64), Error> {
        let server = self.shared.borrow().name_server(index);
        server.map(words).ok_or(Error::NotFound)
    }

    fn counters(&self) -> Result<(u64, u64, u64, u64), Error> {
        let [came, useless, left, dropped] = self.shared.borrow().counters();
        Ok((came, useless, left, dropped))
    }

    fn card(&self) -> Result<(u64, u64), Error> {
        Ok(self.shared.borrow().card())
    }

    fn abort(&self, socket: u64) -> Result<(), Error> {
        self.end(socket, true)
    }
}
