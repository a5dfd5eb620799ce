//! The server's side of a service: an event loop over a portset.
//!
//! ```ignore
//! let mut server = Server::new()?;
//! let port = server.port(1)?;
//! rt::names::register("thing", &port)?;
//! loop {
//!     match server.next(None) {
//!         Event::Request { header, bulk, refs, .. } => {
//!             let reply: Result<Reply, Error> = ...;
//!             server.reply(&reply, &[], &[]);
//!         }
//!         Event::Exception { alias, message } => server.reply_exception(&registers),
//!         _ => server.drop_client(),
//!     }
//! }
//! ```
//!
//! After each event the server answers with exactly one of the answers, or not at all
//! ([`Server::drop_client`]): the next call of [`Server::next`] ends the connection. Small answers
//! are given together with the next wait, in one call of the kernel; so a server should not do
//! anything long between an answer and `next`.
//!
//! Whatever a client sends, the server gets well-formed events only: a message that is no message
//! is answered with [`Error::Invalid`] here, a client that vanishes is forgotten here.
use crate::obj::RefList;
use crate::obj::{Port, Portset, Ref, RefAt, RefBlock};
use crate::rpc::split;
use crate::sys::{self, IpcRegs};
use abi::message::{ExceptionMessage, FaultMessage, Segment, EXCEPTION_WORDS, FAULT_WORDS};
use abi::registers::Area;
use abi::state::{PortState, Registers, REGISTER_WORDS};
use abi::{Call, Code};
use alloc::vec::Vec;
use proto::{Error, MAX_BULK, MAX_HEADER, MAX_REFS};
use serde::Serialize;

/// Something that came to one of the server's ports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request.
    Request {
        /// Alias of the port.
        alias: u64,
        /// The header, to be read with `postcard` (see [`decode`]).
        header: &'a [u8],
        /// Bulk bytes.
        bulk: &'a [u8],
        /// References that came with it.
        refs: Vec<Ref>,
    },
    /// Somebody has called [`poke`]. Nothing to answer; it is answered already.
    Poke {
        /// Alias of the port.
        alias: u64,
    },
    /// A memory fault, for a keeper of regions.
    Fault {
        /// Alias of the port.
        alias: u64,
        /// What is missing.
        message: FaultMessage,
    },
    /// An exception, for a keeper of spaces.
    Exception {
        /// Alias of the port.
        alias: u64,
        /// What happened.
        message: ExceptionMessage,
    },
    /// The deadline passed.
    TimedOut,
}

/// Reads a header: a request that makes no sense is [`Error::Invalid`].
pub fn decode<T: serde::de::DeserializeOwned>(header: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(header).map_err(|_| Error::Invalid)
}

/// The answer that goes out with the next wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    None,
    /// This much of the `out` buffer.
    Reply(usize),
}

/// What a wait brought, without borrows.
enum Arrived {
    Nothing,
    TimedOut,
    Request {
        header: usize,
        end: usize,
        refs: usize,
    },
    Poke,
    Fault,
    Exception,
}

/// Bulk up to this size is copied and goes out with the next wait; more goes out at once.
const SMALL: usize = 2048;

/// A server: a portset, and buffers.
pub struct Server {
    portset: Portset,
    portset_ref: Ref,
    /// What arrives.
    buffer: Vec<u8>,
    refs: RefBlock,
    /// What goes out with the next wait.
    out: Vec<u8>,
    pending: Pending,
}

/// A port in a portset that takes calls only. `alias` comes with every event from it.
pub fn new_port(alias: u64, portset: RefAt) -> Result<Port, Code> {
    let flags = abi::state::port_flags::CALLS_ONLY;
    Port::in_portset(&PortState { alias, flags }, portset)
}

impl Server {
    /// A server without ports.
    pub fn new() -> Result<Self, Code> {
        let portset = Portset::new()?;
        let portset_ref = portset.reference()?;
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(4 + MAX_HEADER + MAX_BULK)
            .map_err(|_| Code::NoMemory)?;
        Ok(Server {
            portset,
            portset_ref,
            buffer,
            refs: RefBlock::new(MAX_REFS)?,
            out: Vec::with_capacity(4096),
            pending: Pending::None,
        })
    }

    /// A new port of this server. `alias` comes with every event from it.
    pub fn port(&self, alias: u64) -> Result<Port, Code> {
        new_port(alias, *self.portset_ref)
    }

    /// A reference to the portset, to attach ports to it by hand.
    #[must_use]
    pub fn portset(&self) -> RefAt {
        *self.portset_ref
    }

    /// Gives the pending answer, ends the connection, and waits for the next event; no longer than
    /// the deadline, if there is one.
    pub fn next(&mut self, deadline: Option<u64>) -> Event<'_> {
        let (alias, arrived) = loop {
            let (alias, arrived) = self.wait(deadline);
            match arrived {
                Arrived::Nothing => {}
                Arrived::Request { refs, .. } if refs > 0 => match self.take_refs(refs) {
                    Ok(refs) => break (alias, (arrived, refs)),
                    Err(code) => {
                        self.reply::<()>(&Err(crate::error_of(code)), &[], &[]);
                    }
                },
                arrived => break (alias, (arrived, Vec::new())),
            }
        };
        let (arrived, refs) = arrived;
        match arrived {
            Arrived::Request { header, end, .. } => Event::Request {
                alias,
                header: &self.buffer[4..header],
                bulk: &self.buffer[header..end],
                refs,
            },
            Arrived::Poke => Event::Poke { alias },
            Arrived::Fault => {
                let w: [u64; FAULT_WORDS] = words(&self.buffer);
                let message = FaultMessage {
                    offset: w[0],
                    address: w[1],
                    access: w[2],
                    tag: w[3],
                };
                Event::Fault { alias, message }
            }
            Arrived::Exception => {
                let w: [u64; EXCEPTION_WORDS] = words(&self.buffer);
                let mut registers = [0; REGISTER_WORDS];
                registers.copy_from_slice(&w[4..]);
                let message = ExceptionMessage {
                    code: w[0],
                    address: w[1],
                    detail: w[2],
                    tag: w[3],
                    registers: Registers::from_words(&registers),
                };
                Event::Exception { alias, message }
            }
            Arrived::TimedOut | Arrived::Nothing => Event::TimedOut,
        }
    }

    /// One wait of the kernel: alias and what came.
    fn wait(&mut self, deadline: Option<u64>) -> (u64, Arrived) {
        self.buffer.clear();
        let room = self.buffer.capacity() as u64;
        let mut send = Area {
            address: self.out.as_ptr() as u64,
            length: self.out.len() as u64,
            ..Area::default()
        };
        let regs = IpcRegs::to(self.portset.handle())
            .until(deadline.unwrap_or(0))
            .receiving(Area {
                address: self.buffer.as_mut_ptr() as u64,
                length: room,
                refs: self.refs.list(MAX_REFS),
                ..Area::default()
            });
        let call = match (
            core::mem::replace(&mut self.pending, Pending::None),
            deadline,
        ) {
            (Pending::None, None) => Call::ServerWaitReceive,
            (Pending::None, Some(_)) => Call::ServerWaitReceiveUntil,
            (Pending::Reply(length), None) => {
                send.length = length as u64;
                Call::ReplyWaitReceive
            }
            // With a deadline the answer has to go first.
            (Pending::Reply(length), Some(_)) => {
                let length = length as u64;
                let mut answer = regs.sending(Area { length, ..send });
                // SAFETY: the answer is only read.
                unsafe { sys::ipc(Call::Reply, &mut answer) };
                Call::ServerWaitReceiveUntil
            }
        };
        let mut regs = regs.sending(send);
        // SAFETY: the answer is only read; the buffer is ours alone.
        let code = unsafe { sys::ipc(call, &mut regs) };
        let received = room.saturating_sub(regs.left().length) as usize;
        // SAFETY: the kernel has written this many bytes from the start of the buffer.
        unsafe { self.buffer.set_len(received.min(room as usize)) };
        let alias = regs.value();
        let arrived = match code {
            Code::Call if received == 0 => {
                self.pending = Pending::Reply(0);
                Arrived::Poke
            }
            Code::Call => match split(&self.buffer) {
                Some((header, _)) => {
                    let left = (regs.left().refs & abi::MAX_LIST_REFS) as usize;
                    Arrived::Request {
                        header: 4 + header.len(),
                        end: self.buffer.len(),
                        refs: MAX_REFS.saturating_sub(left),
                    }
                }
                None => {
                    self.reply::<()>(&Err(Error::Invalid), &[], &[]);
                    Arrived::Nothing
                }
            },
            Code::Fault if received >= FAULT_WORDS * 8 => Arrived::Fault,
            Code::Exception if received >= EXCEPTION_WORDS * 8 => Arrived::Exception,
            Code::TimedOut => Arrived::TimedOut,
            // A client that vanished, sent too much, or uses another form of message. The next
            // wait ends its connection.
            _ => Arrived::Nothing,
        };
        (alias, arrived)
    }

    /// Moves received references into owned ones.
    fn take_refs(&mut self, count: usize) -> Result<Vec<Ref>, Code> {
        let mut refs = Vec::with_capacity(count);
        let mut result = Ok(());
        for index in 0..count {
            let received = self.refs.get(index);
            match received.copy() {
                Ok(copy) => refs.push(copy),
                Err(code) => result = Err(code),
            }
            let _ = received.clear();
        }
        result.map(|()| refs)
    }

    /// Answers a request.
    pub fn reply<R: Serialize>(&mut self, reply: &Result<R, Error>, bulk: &[u8], refs: &[&RefAt]) {
        self.out.clear();
        self.out.extend_from_slice(&[0; 4]);
        let out = core::mem::take(&mut self.out);
        self.out = match postcard::to_extend(reply, out) {
            Ok(out) => out,
            // It cannot be written: the client sees the connection end.
            Err(_) => return,
        };
        let length = (self.out.len() - 4) as u32;
        self.out[..4].copy_from_slice(&length.to_le_bytes());
        if refs.is_empty() && bulk.len() <= SMALL {
            self.out.extend_from_slice(bulk);
            self.pending = Pending::Reply(self.out.len());
            return;
        }
        let Ok(list) = RefList::to_send(refs) else {
            self.reply::<()>(&Err(Error::NoMemory), &[], &[]);
            return;
        };
        let more = [Segment {
            address: bulk.as_ptr() as u64,
            length: bulk.len() as u64,
        }];
        let mut regs = IpcRegs::default().sending(Area {
            address: self.out.as_ptr() as u64,
            length: self.out.len() as u64,
            list: more.as_ptr() as u64,
            entries: u64::from(!bulk.is_empty()),
            refs: list.word(),
        });
        // SAFETY: what is sent is only read. A client that is gone is no concern of ours.
        unsafe { sys::ipc(Call::Reply, &mut regs) };
        self.pending = Pending::None;
    }

    /// Lets the thread that faulted try again.
    pub fn reply_fault(&mut self) {
        self.pending = Pending::Reply(0);
    }

    /// Lets the thread with the exception go on with these registers.
    pub fn reply_exception(&mut self, registers: &Registers) {
        self.out.clear();
        for word in registers.to_words() {
            self.out.extend_from_slice(&word.to_le_bytes());
        }
        self.pending = Pending::Reply(self.out.len());
    }

    /// Lets go of an exception: the thread stays parked until its state is set through its handle.
    pub fn release_exception(&mut self) {
        sys::server_release();
        self.pending = Pending::None;
    }

    /// Does not answer: the next wait ends the connection.
    pub fn drop_client(&mut self) {
        self.pending = Pending::None;
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        *word = u64::from_le_bytes(eight);
    }
    words
}
