//! The network: sockets.
//!
//! A session has up to [`SOCKETS`] sockets, known by their numbers in it. They belong to the session: nobody else can
//! name them, and they are closed when it ends. **No request of a socket waits** except [`Network::wait`], which waits
//! for any number of sockets, so that one thread can serve all, [`Network::next`], for a client with one socket, and
//! [`Network::sent`]; the others return `WouldBlock`.
//!
//! An address is an IPv6 address in two words, the first byte on top; an IPv4 address is mapped into it
//! (`::ffff:10.0.2.15`).
//!
//! A request that is refused is explained in a sentence for people, [`Network::why`].
//!
//! When the server dies its connections are lost, and their other ends are reset. `rt::net` has clients that wait.
use core::net::{IpAddr, Ipv6Addr};
use interface::{interface, plain, Error};

/// Most sockets of a session.
pub const SOCKETS: u64 = 64;
/// Most bytes of a datagram.
pub const DATAGRAM: usize = 1472;
/// Most connections that wait at a listening socket to be accepted.
pub const BACKLOG: u64 = 8;
/// Most bytes of a name.
pub const NAME: usize = 255;

plain! {
    /// What a socket is for.
    pub enum Kind {
        /// Connections that carry bytes: TCP.
        Stream = 0,
        /// Datagrams: UDP.
        Datagram = 1,
        /// ICMP echo requests and replies: datagrams that come back. The port is an identifier of the client's, which
        /// comes back too.
        Echo = 2,
    }
}

/// A place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl Place {
    /// From the words of a request or reply.
    ///
    /// # Errors
    /// `Invalid` if `port` is no port number.
    pub fn from_words(high: u64, low: u64, port: u64) -> Result<Self, Error> {
        Ok(Place {
            address: address(high, low),
            port: port.try_into().map_err(|_| Error::Invalid)?,
        })
    }

    /// As words.
    #[must_use]
    pub fn to_words(self) -> (u64, u64, u64) {
        let (high, low) = words(self.address);
        (high, low, self.port.into())
    }
}

/// An address from two words.
#[must_use]
pub fn address(high: u64, low: u64) -> IpAddr {
    let bits = u128::from(high) << 64 | u128::from(low);
    Ipv6Addr::from_bits(bits).to_canonical()
}

/// An address as two words.
#[must_use]
pub fn words(address: IpAddr) -> (u64, u64) {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    ((bits >> 64) as u64, bits as u64)
}

/// The requests of a client. Errors of requests with a socket: `NotFound` if the session has none with this number,
/// `Unsupported` for what its kind does not do, `WouldBlock` for what has to wait.
#[interface]
pub trait Network {
    /// A sentence that says why the last refused request of this session was refused; empty if none was. Errors: none
    /// of its own. May be repeated.
    fn why(&self) -> Result<Bytes, Error>;

    /// Makes a socket, and returns its number. Errors: `Limit`, `NoMemory`. Must not be repeated.
    #[once]
    fn socket(&self, kind: Kind) -> Result<u64, Error>;
    /// Closes a socket. Bytes written to a connection are still sent. Errors: `NotFound`. Must not be repeated.
    #[once]
    fn close(&self, socket: u64) -> Result<(), Error>;
    /// Gives a socket a port of this machine, 0 for any, and returns the port. Errors: `NotFound`; `Exists` if it is
    /// taken, `Limit` if all are, `Invalid` if there is no such port or the socket has one. Must not be repeated.
    #[once]
    fn bind(&self, socket: u64, port: u64) -> Result<u64, Error>;

    /// Begins to take connections at the port that the socket was bound to, of which up to `backlog` are ready or on
    /// their way. Errors: those of requests with a socket; `Invalid` if it was not bound or for another backlog than 1
    /// to [`BACKLOG`]; `Limit`, `NoMemory`. Must not be repeated.
    #[once]
    fn listen(&self, socket: u64, backlog: u64) -> Result<(), Error>;
    /// Accepts a connection that came to a listening socket. Returns the number of a new socket, and the address and
    /// port of the other end. Errors: `Limit`, `NoMemory`; the connection then stays. Must not be repeated.
    #[once]
    fn accept(&self, socket: u64) -> Result<(u64, u64, u64, u64), Error>;
    /// Begins to connect. The socket is writable when that is done or has failed. Errors: those of requests with a
    /// socket; `Unreachable`; `Invalid` for a port that there is not. Must not be repeated.
    #[once]
    fn connect(&self, socket: u64, high: u64, low: u64, port: u64) -> Result<(), Error>;
    /// Reads bytes that have come over a connection; nothing when the other end has closed it. Errors: `Refused` if
    /// there was never a connection, `Reset` if it is lost. Must not be repeated.
    #[once]
    fn read(&self, socket: u64, most: u64) -> Result<Bytes, Error>;
    /// Writes to a connection. Returns how many bytes were taken. Errors: those of `read`; `Invalid` after `shut`. Must
    /// not be repeated.
    #[once]
    fn write(&self, socket: u64, bytes: &[u8]) -> Result<u64, Error>;
    /// Ends the output of a connection: the other end reads up to the end. Errors: those of requests with a socket:
    /// `WouldBlock` until it is connected. Must not be repeated.
    #[once]
    fn shut(&self, socket: u64) -> Result<(), Error>;
    /// Sends a datagram. Whether it arrives is not known. Errors: `Unreachable`, `Invalid` for one that is too long.
    /// Must not be repeated.
    #[once]
    fn send(&self, socket: u64, high: u64, low: u64, port: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Takes a received datagram: the sender's address and port, and the bytes. Errors: those of requests with a
    /// socket: `WouldBlock` if none has come. Must not be repeated.
    #[once]
    fn receive(&self, socket: u64) -> Result<(u64, u64, u64, Bytes), Error>;

    /// As [`Network::receive`] or, of a connection, as [`Network::read`] with zeros for the sender, and waits until
    /// something has come, at most `most` nanoseconds. Errors: those of these: `WouldBlock` if nothing has come by
    /// then. Must not be repeated.
    async fn next(&self, socket: u64, most: u64) -> Result<(u64, u64, u64, Bytes), Error>;
    /// Waits until one of the sockets whose bits are set in `readable` has something to read, a connection to accept,
    /// or an error, or one of those in `writable` has room for half of what it can hold, or an error; at most `most`
    /// nanoseconds. Returns the sockets that are ready: none when the time is over. Errors: `NotFound`. Must not be
    /// repeated.
    async fn wait(&self, readable: u64, writable: u64, most: u64) -> Result<(u64, u64), Error>;
    /// Sets the thread that is interrupted for [`Network::watch`], in place of an earlier one. That thread can so wait
    /// for several sessions, and for other events. Errors: `NoMemory`. May be repeated.
    fn tell(&self, thread: &RefAt) -> Result<(), Error>;
    /// As [`Network::wait`], without waiting: returns the sockets that are ready. If none is, the thread is interrupted
    /// once when one may be; a later call replaces this one. Errors: `NotFound`; `Invalid` if no thread was named. May
    /// be repeated.
    fn watch(&self, readable: u64, writable: u64) -> Result<(u64, u64), Error>;
    /// Waits until the other end has confirmed all that was written to a connection and, after `shut`, the end of the
    /// output: from then on the bytes reach their reader even if this machine is switched off. Errors: those of
    /// requests with a socket; `Reset` if the connection is lost before. May be repeated.
    async fn sent(&self, socket: u64) -> Result<(), Error>;
    /// The addresses of a name, 16 bytes each, as many as there is room for. Errors: `NotFound`, `NameTooLong`, `Invalid`, `Unreachable` if there is
    /// no name server, `Limit` if too many names are being resolved, `NoMemory`. Must not be repeated.
    async fn resolve(&self, name: &str) -> Result<Bytes, Error>;

    /// An address of this machine, by its index, and the bits of its network. Errors: `NotFound` behind the last.
    /// May be repeated.
    fn address(&self, index: u64) -> Result<(u64, u64, u64), Error>;
    /// The address of the router for destinations outside of this machine's networks. Errors: `NotFound` if there is
    /// none. May be repeated.
    fn router(&self) -> Result<(u64, u64), Error>;
    /// The address of a name server, by index. Errors: `NotFound` behind the last. May be repeated.
    fn names(&self, index: u64) -> Result<(u64, u64), Error>;
    /// Frames received and sent, and how many of each were dropped because there was no room or they were invalid.
    /// Errors: none of its own. May be repeated.
    fn counters(&self) -> Result<(u64, u64, u64, u64), Error>;
    /// The card's address, 48 bits with the first byte on top, and most bytes of a packet (the MTU). Errors: none of
    /// its own. May be repeated.
    fn card(&self) -> Result<(u64, u64), Error>;

    /// Closes a socket. A connection that it has is given up: what has not left is not sent any more, and the other end
    /// is told that it was reset, so that it does not take what it has got for all there was. Errors: `NotFound`. Must
    /// not be repeated.
    #[once]
    fn abort(&self, socket: u64) -> Result<(), Error>;
}
