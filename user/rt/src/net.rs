//! Client of the network: a session, and the requests of [`services::net`], which wait here.
//!
//! A thread that waits for several sockets uses [`Network::wait`]; each of the other methods waits for its own.
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use proto::{Error, MAX_BULK};
pub use services::net::Place;
use services::net::{address, Kind, NetworkClient, DATAGRAM};

/// A socket, by its number in the session.
pub type Socket = u64;

/// No time limit.
pub const ALWAYS: u64 = u64::MAX;

/// Frames received and sent, and how many of each were dropped.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// Received.
    pub came: u64,
    /// Received and of no use.
    pub useless: u64,
    /// Sent.
    pub left: u64,
    /// Not sent, since there was no room.
    pub dropped: u64,
}

/// A session with the network server. When that dies every request is `Reset`.
#[derive(Debug)]
pub struct Network(NetworkClient, Vec<u8>);

impl Network {
    /// Opens a session. Errors: `NotFound` if the machine has no network, `Broken` while its server is being started.
    pub fn open() -> Result<Self, Error> {
        // Looked up anew each time, since an earlier server may have died.
        let door = crate::names::lookup("net")?;
        let client = NetworkClient::open_known(&door)?;
        // The room for datagrams is made when it is needed, once.
        Ok(Network(client, Vec::new()))
    }

    fn ask<T>(
        &mut self,
        request: impl FnOnce(&mut NetworkClient) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match request(&mut self.0) {
            Err(Error::Broken) if self.0.session().is_gone() => Err(Error::Reset),
            result => result,
        }
    }

    /// As `ask`, but waits and tries again while the answer is `WouldBlock`.
    fn until<T>(
        &mut self,
        (readable, writable): (u64, u64),
        mut request: impl FnMut(&mut NetworkClient) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match self.ask(&mut request) {
                Err(Error::WouldBlock) => self.wait(readable, writable, ALWAYS)?,
                result => return result,
            };
        }
    }

    /// The sentence that says why the last refused request was refused; that of the error if there is none.
    pub fn why(&mut self, error: Error) -> String {
        let mut text = [0; 256];
        let length = self.ask(|net| net.why(&mut text)).unwrap_or(0);
        match core::str::from_utf8(&text[..length]) {
            Ok(sentence) if length > 0 && error != Error::Reset => sentence.into(),
            _ => error.text().into(),
        }
    }

    /// The addresses of a name, or the one that the text itself is.
    pub fn resolve(&mut self, name: &str) -> Result<Vec<IpAddr>, Error> {
        let mut bytes = [0; 16 * 16];
        let length = self.ask(|net| net.resolve(name, &mut bytes))?;
        let (all, _) = bytes[..length].as_chunks::<16>();
        let all = all.iter();
        Ok(all
            .map(|bytes| Ipv6Addr::from(*bytes).to_canonical())
            .collect())
    }

    /// A connection to that place.
    pub fn connect(&mut self, to: Place) -> Result<Socket, Error> {
        let (high, low, port) = to.to_words();
        let socket = self.ask(|net| net.socket(Kind::Stream))?;
        let connected = self
            .ask(|net| net.connect(socket, high, low, port))
            .and_then(|()| self.wait(0, 1 << socket, ALWAYS))
            // The socket is writable: an empty write tells whether it is connected, or why not.
            .and_then(|_| self.ask(|net| net.write(socket, &[])));
        match connected {
            Ok(_) => Ok(socket),
            Err(error) => {
                // The next `why` must be about the failed connection.
                let _ = self.ask(|net| net.close(socket));
                Err(error)
            }
        }
    }

    /// A socket that takes connections at this port, 0 for any, with up to `backlog` waiting; and the port.
    pub fn listen(&mut self, port: u16, backlog: u64) -> Result<(Socket, u16), Error> {
        let socket = self.ask(|net| net.socket(Kind::Stream))?;
        let bound = self.ask(|net| net.bind(socket, port.into()));
        let listens =
            bound.and_then(|port| self.ask(|net| net.listen(socket, backlog)).map(|()| port));
        if listens.is_err() {
            let _ = self.ask(|net| net.close(socket));
        }
        Ok((socket, listens? as u16))
    }

    /// The next connection, and the address of its other end.
    pub fn accept(&mut self, socket: Socket) -> Result<(Socket, Place), Error> {
        let (new, high, low, port) = self.until((1 << socket, 0), |net| net.accept(socket))?;
        Ok((new, Place::from_words(high, low, port)?))
    }

    /// As [`Network::accept`]; `WouldBlock` if there is none.
    pub fn try_accept(&mut self, socket: Socket) -> Result<(Socket, Place), Error> {
        let (new, high, low, port) = self.ask(|net| net.accept(socket))?;
        Ok((new, Place::from_words(high, low, port)?))
    }

    /// Reads from a connection, at least a byte; 0 at its end.
    pub fn read(&mut self, socket: Socket, to: &mut [u8]) -> Result<usize, Error> {
        let most = to.len().min(MAX_BULK);
        if most == 0 {
            // Nothing to wait for.
            return self.ask(|net| net.read(socket, 0, to));
        }
        let came = self.ask(|net| net.next(socket, ALWAYS, &mut to[..most]));
        came.map(|(_, _, _, length)| length)
    }

    /// Writes to a connection, at least a byte.
    pub fn write(&mut self, socket: Socket, from: &[u8]) -> Result<usize, Error> {
        let from = &from[..from.len().min(MAX_BULK)];
        let taken = self.until((0, 1 << socket), |net| net.write(socket, from))?;
        Ok(taken as usize)
    }

    /// Writes all of it.
    pub fn write_all(&mut self, socket: Socket, from: &[u8]) -> Result<(), Error> {
        let mut rest = from;
        while !rest.is_empty() {
            let taken = self.write(socket, rest)?;
            rest = rest.get(taken..).ok_or(Error::Broken)?;
            if !rest.is_empty() && taken < MAX_BULK {
                // There was no room for the rest: wait first, without another try.
                self.wait(0, 1 << socket, ALWAYS)?;
            }
        }
        Ok(())
    }

    /// Ends the output of a connection: the other end reads up to the end.
    pub fn shut(&mut self, socket: Socket) -> Result<(), Error> {
        self.ask(|net| net.shut(socket))
    }

    /// Waits until the other end has confirmed all that was written and, after [`Network::shut`], the end of the
    /// output. If the program, and with it the machine, ends before that, the data may be lost.
    pub fn sent(&mut self, socket: Socket) -> Result<(), Error> {
        self.ask(|net| net.sent(socket))
    }

    /// Closes a socket.
    pub fn close(&mut self, socket: Socket) -> Result<(), Error> {
        self.ask(|net| net.close(socket))
    }

    /// A socket for datagrams at this port, 0 for any; and the port.
    pub fn datagrams(&mut self, port: u16) -> Result<(Socket, u16), Error> {
        self.bound(Kind::Datagram, port)
    }

    /// A socket for ICMP echo requests.
    pub fn echo(&mut self) -> Result<Socket, Error> {
        self.bound(Kind::Echo, 0).map(|(socket, _)| socket)
    }

    fn bound(&mut self, kind: Kind, port: u16) -> Result<(Socket, u16), Error> {
        let socket = self.ask(|net| net.socket(kind))?;
        let bound = self.ask(|net| net.bind(socket, port.into()));
        if bound.is_err() {
            let _ = self.ask(|net| net.close(socket));
        }
        Ok((socket, bound? as u16))
    }

    /// Sends a datagram.
    pub fn send(&mut self, socket: Socket, to: Place, bytes: &[u8]) -> Result<(), Error> {
        let (high, low, port) = to.to_words();
        self.until((0, 1 << socket), |net| {
            net.send(socket, high, low, port, bytes)
        })
    }

    /// A received datagram, and its sender; `None` if none comes for so many nanoseconds.
    pub fn receive(
        &mut self,
        socket: Socket,
        most: u64,
    ) -> Result<Option<(Place, Vec<u8>)>, Error> {
        let mut room = core::mem::take(&mut self.1);
        room.resize(DATAGRAM, 0);
        let came = self.ask(|net| net.next(socket, most, &mut room));
        let bytes = |length: usize| room.get(..length).unwrap_or_default().to_vec();
        let came = came.map(|(high, low, port, length)| (high, low, port, bytes(length)));
        self.1 = room;
        match came {
            Ok((high, low, port, bytes)) => Ok(Some((Place::from_words(high, low, port)?, bytes))),
            Err(Error::WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for any of several sockets, as [`services::net::Network::wait`].
    pub fn wait(&mut self, readable: u64, writable: u64, most: u64) -> Result<(u64, u64), Error> {
        self.ask(|net| net.wait(readable, writable, most))
    }

    /// The machine's addresses, and the bits of their networks.
    pub fn addresses(&mut self) -> Result<Vec<(IpAddr, u8)>, Error> {
        let mut all = Vec::new();
        loop {
            match self.ask(|net| net.address(all.len() as u64)) {
                Ok((high, low, bits)) => all.push((address(high, low), bits as u8)),
                Err(Error::NotFound) => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    /// The address of the router to other networks, if there is one.
    pub fn router(&mut self) -> Result<Option<IpAddr>, Error> {
        match self.ask(NetworkClient::router) {
            Ok((high, low)) => Ok(Some(address(high, low))),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The addresses of the name servers.
    pub fn names(&mut self) -> Result<Vec<IpAddr>, Error> {
        let mut all = Vec::new();
        loop {
            match self.ask(|net| net.names(all.len() as u64)) {
                Ok((high, low)) => all.push(address(high, low)),
                Err(Error::NotFound) => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    /// The counters of frames.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let (came, useless, left, dropped) = self.ask(NetworkClient::counters)?;
        Ok(Counters {
            came,
            useless,
            left,
            dropped,
        })
    }
}
