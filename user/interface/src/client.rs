//! What proxies are made with.
use crate::wire::{self, Values, Words, WORDS};
use abi::message::Segment;
use abi::{Call, Code};
use core::cell::Cell;
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::sys::{self, IpcRegs};

/// A session with a server. It has one request at a time: a thread that wants to ask while another
/// one waits for its answer opens a session of its own.
#[derive(Debug)]
pub struct Session {
    port: Ref,
    /// The number of the next request. It is part of the program's memory, and moves on when the
    /// reply is there: a program that is stopped, saved or restored in between asks with the same
    /// number again, and the server knows what it has done already.
    number: Cell<u64>,
}

impl Session {
    /// Opens a session with the service that this door belongs to, for the interface `id`. May be
    /// repeated: a session that nobody refers to ends.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the service does not have that interface, [`Error::NoMemory`] if it
    /// has no room for one more session, [`Error::Broken`] if it is gone.
    pub fn open(door: &RefAt, id: u64) -> Result<Self, Error> {
        let port = Ref::new().map_err(rt::error_of)?;
        let request = [wire::head(wire::QUERY, 0), id];
        let mut reply = [0; 1];
        let mut regs = IpcRegs {
            rdi: door.handle(),
            rsi: request.as_ptr() as u64,
            rdx: size_of_val(&request) as u64,
            rbx: abi::ref_list(port.handle(), 1),
            r12: reply.as_mut_ptr() as u64,
            r13: size_of_val(&reply) as u64,
            ..IpcRegs::default()
        };
        // SAFETY: the request is only read; the place of the reply is ours alone.
        let code = unsafe { sys::ipc(Call::Call, &mut regs) };
        if code != Code::Ok || regs.r13 != 0 {
            return Err(Error::Broken);
        }
        match reply[0] {
            0 => Ok(Session {
                port,
                number: Cell::new(1),
            }),
            status => Err(wire::error(status)),
        }
    }

    /// A session whose port and number of the next request were kept elsewhere.
    #[must_use]
    pub fn resume(port: Ref, number: u64) -> Self {
        Session {
            port,
            number: Cell::new(number),
        }
    }

    /// The port, and the number of the next request.
    #[must_use]
    pub fn kept(&self) -> (RefAt, u64) {
        (*self.port, self.number.get())
    }

    /// Whether the session's server has the interface `id` too. May be repeated.
    ///
    /// # Errors
    /// [`Error::Broken`] if the server is gone.
    pub fn query_interface(&self, id: u64) -> Result<bool, Error> {
        let mut words = wire::NONE;
        words[1].write(id);
        match self.ask::<()>(wire::QUERY, words, 1) {
            Ok(()) => Ok(true),
            Err(Error::Unsupported) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A request in registers, with `count` arguments.
    #[inline(always)]
    pub fn ask<R: Values>(&self, method: u16, mut words: Words, count: usize) -> Result<R, Error> {
        let number = self.number.get();
        words[0].write(wire::head(method, number));
        // SAFETY: a register message writes no memory.
        let came =
            unsafe { wire::in_registers(Call::CallShort, self.port.handle(), words, 1 + count) };
        if !came.is(Code::Ok) || came.count() == 0 {
            return Err(Error::Broken);
        }
        self.number.set(number.wrapping_add(1));
        match came.words[0] {
            0 if came.count() > R::COUNT => R::take(&came.words).ok_or(Error::Broken),
            0 => Err(Error::Broken),
            status => Err(wire::error(status)),
        }
    }

    /// A request with bytes: those of `from` follow the arguments, those of the reply go to `into`,
    /// each copied once. The result, and how many bytes came.
    pub fn ask_with_bytes<R: Values>(
        &self,
        method: u16,
        arguments: &[u64],
        from: &[u8],
        into: &mut [u8],
    ) -> Result<(R, usize), Error> {
        let number = self.number.get();
        let mut words = [0; WORDS];
        words[0] = wire::head(method, number);
        let count = 1 + arguments.len();
        words
            .get_mut(1..count)
            .ok_or(Error::Invalid)?
            .copy_from_slice(arguments);
        let mut reply = [0; WORDS];
        let head = (1 + R::COUNT) * 8;
        let room = into.len();
        let out = [Segment {
            address: from.as_ptr() as u64,
            length: from.len() as u64,
        }];
        let back = [Segment {
            address: into.as_mut_ptr() as u64,
            length: room as u64,
        }];
        let mut regs = IpcRegs {
            rdi: self.port.handle(),
            rsi: words.as_ptr() as u64,
            rdx: count as u64 * 8,
            r10: out.as_ptr() as u64,
            r8: u64::from(!from.is_empty()),
            r12: reply.as_mut_ptr() as u64,
            r13: head as u64,
            r14: back.as_ptr() as u64,
            r15: u64::from(room > 0),
            ..IpcRegs::default()
        };
        // SAFETY: what is sent is only read; the places of the reply are borrowed for this alone.
        match unsafe { sys::ipc(Call::Call, &mut regs) } {
            Code::Ok => {}
            Code::TooLarge => return Err(Error::Invalid),
            _ => return Err(Error::Broken),
        }
        self.number.set(number.wrapping_add(1));
        if reply[0] != 0 {
            return Err(wire::error(reply[0]));
        }
        // While no further segment has been begun, what is left is left of the words.
        let left = usize::try_from(regs.r13).unwrap_or(usize::MAX);
        let came = match (room, regs.r15) {
            (1.., 0) => room - left.min(room),
            _ if left != 0 => return Err(Error::Broken),
            _ => 0,
        };
        let result = R::take(&reply).ok_or(Error::Broken)?;
        Ok((result, came))
    }
}
