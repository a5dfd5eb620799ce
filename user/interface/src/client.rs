//! What proxies are made of.
use crate::wire::{self, Piece, Values, Words, WORDS};
use abi::message::Segment;
use abi::registers::Area;
use abi::{Call, Code};
use alloc::vec::Vec;
use base::obj::{Ref, RefAt, RefList};
use base::sys::{self, IpcRegs};
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use proto::layout::START_NAMES;
use proto::Error;

/// The state of a session that is saved while its client does not run, so that a new session can continue it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The interface, the number of the last request that must not be repeated, and its reply.
    pub words: [u64; wire::KEPT_WORDS],
    /// The bytes of that reply, at most [`wire::KEPT_BYTES`].
    pub bytes: Vec<u8>,
}

/// Returns the state to be kept of the session whose port `port` names.
///
/// # Errors
/// [`Error::NotFound`] if `port` names no session of this door's service, [`Error::Broken`] if the service is gone,
/// [`Error::NoMemory`].
pub fn keep(door: &RefAt, port: &RefAt) -> Result<Kept, Error> {
    const PLACE: usize = 1 + wire::KEPT_WORDS;
    let mut reply = Vec::new();
    reply
        .try_reserve_exact(PLACE + wire::KEPT_BYTES / 8)
        .map_err(|_| Error::NoMemory)?;
    reply.resize(PLACE + wire::KEPT_BYTES / 8, 0);
    let request = [wire::head(wire::KEEP, 0), 0];
    let came = knock(door, &request, &[], Some(*port), (&mut reply, None))?;
    let length = came.checked_sub(PLACE * 8).ok_or(Error::Broken)?;
    let mut words = [0; wire::KEPT_WORDS];
    words.copy_from_slice(&reply[1..PLACE]);
    // SAFETY: words are bytes.
    let bytes = unsafe { core::slice::from_raw_parts(reply[PLACE..].as_ptr().cast(), length) };
    Ok(Kept {
        words,
        bytes: bytes.to_vec(),
    })
}

/// Opens a session for the client whose own port at init is `who`. It continues the session whose state was
/// [kept](keep).
///
/// # Errors
/// Those of [`Session::open_as`].
pub fn open_kept(door: &RefAt, kept: &Kept, who: RefAt) -> Result<Ref, Error> {
    let mut request = [wire::head(wire::RESUME, 0); 1 + wire::KEPT_WORDS];
    request[1..].copy_from_slice(&kept.words);
    open(door, &request, &kept.bytes, Some(who))
}

fn open(door: &RefAt, request: &[u64], bytes: &[u8], who: Option<RefAt>) -> Result<Ref, Error> {
    let port = Ref::new().map_err(base::error_of)?;
    let came = knock(door, request, bytes, who, (&mut [0], Some(*port)))?;
    match port.kind() {
        abi::RefKind::Port if came == 8 => Ok(port),
        _ => Err(Error::Broken),
    }
}

/// Sends a request to a door, in words and bytes, with at most one reference. Returns the length of the reply in bytes,
/// of which the first eight are 0.
fn knock(
    door: &RefAt,
    request: &[u64],
    bytes: &[u8],
    with: Option<RefAt>,
    (reply, port): (&mut [u64], Option<RefAt>),
) -> Result<usize, Error> {
    let list = |reference: Option<RefAt>| {
        reference.map_or(0, |reference| abi::ref_list(reference.handle(), 1))
    };
    let more = [segment(bytes)];
    let room = size_of_val(reply);
    let mut regs = IpcRegs::to(door.handle())
        .sending(Area {
            list: more.as_ptr() as u64,
            entries: u64::from(!bytes.is_empty()),
            refs: list(with),
            ..Area::new(request.as_ptr() as u64, size_of_val(request) as u64)
        })
        .receiving(Area {
            refs: list(port),
            ..Area::new(reply.as_mut_ptr() as u64, room as u64)
        });
    // SAFETY: the request is only read; the place of the reply is borrowed for this alone.
    if unsafe { sys::ipc(Call::Call, &mut regs) } != Code::Ok {
        return Err(Error::Broken);
    }
    let left = usize::try_from(regs.left().length).unwrap_or(room);
    let came = room.checked_sub(left).ok_or(Error::Broken)?;
    match reply[0] {
        _ if came < 8 => Err(Error::Broken),
        0 => Ok(came),
        status => Err(wire::error(status)),
    }
}

/// A segment of these bytes, to be sent.
fn segment(bytes: &[u8]) -> Segment {
    Segment {
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
    }
}

/// A session with a server. It has one request at a time: a thread that makes requests while another one waits for a
/// reply opens a session of its own.
#[derive(Debug)]
pub struct Session {
    port: RefAt,
    /// The reference to the port, if the session owns it.
    _owned: Option<Ref>,
    /// The number of the next request, at its place in the request's first word. It is part of the program's memory,
    /// and is incremented when the reply has arrived: a program that is stopped, saved or restored in between repeats
    /// the request with the same number, and the server knows what it has done already.
    ///
    /// It is an atomic so that the compiler adds to it where it lies, and has no copy to keep over the call. Only one
    /// thread uses it.
    next: AtomicU64,
    _one_thread: PhantomData<Cell<u64>>,
}

impl Session {
    /// Opens a session with the service that this door belongs to, for the interface `id`. May be repeated: a session
    /// whose port nothing refers to ends. The service does not learn who opens it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the service does not have that interface, [`Error::Denied`] if it wants to know
    /// its clients, [`Error::NoMemory`] if it has no room for one more session, [`Error::Broken`] if it is gone.
    pub fn open(door: &RefAt, id: u64) -> Result<Self, Error> {
        Self::open_for(door, id, None)
    }

    /// As [`Session::open`], with a service that knows its clients. The service gets the program's own port at init,
    /// and with it the power to act there in the program's name, so use this only for services of the boot manifest.
    ///
    /// # Errors
    /// Those of [`Session::open`], and [`Error::Limit`] if this program's job has as many sessions with the service
    /// as it may have.
    pub fn open_known(door: &RefAt, id: u64) -> Result<Self, Error> {
        Self::open_as(door, id, RefAt(base::place::at(START_NAMES)))
    }

    /// As [`Session::open_known`], for the client whose own port at init is `who`.
    ///
    /// # Errors
    /// Those of [`Session::open_known`]; [`Error::Denied`] if `who` is no such port.
    pub fn open_as(door: &RefAt, id: u64, who: RefAt) -> Result<Self, Error> {
        Self::open_for(door, id, Some(who))
    }

    fn open_for(door: &RefAt, id: u64, who: Option<RefAt>) -> Result<Self, Error> {
        let port = open(door, &[wire::head(wire::QUERY, 0), id], &[], who)?;
        Ok(Self::resume(port, 1))
    }

    /// A session from its port and the number of its next request, which were kept elsewhere.
    #[must_use]
    pub fn resume(port: Ref, number: u64) -> Self {
        Session {
            port: *port,
            _owned: Some(port),
            next: AtomicU64::new(wire::head(0, number)),
            _one_thread: PhantomData,
        }
    }

    /// A session that the program did not open, but whose port it was given; no request has been made at it yet. The
    /// reference has to stay where it is.
    #[must_use]
    pub const fn at(port: RefAt) -> Self {
        Session {
            port,
            _owned: None,
            next: AtomicU64::new(wire::head(0, 1)),
            _one_thread: PhantomData,
        }
    }

    /// The session behind this port, for one request that may be repeated. The request can be made at any time, also
    /// while another proxy of the session makes one, in this thread or in another. The reference has to stay where it
    /// is.
    #[must_use]
    pub const fn beside(port: RefAt) -> Self {
        // No session gets as far as this number, so the server has kept no reply with it.
        Session {
            port,
            _owned: None,
            next: AtomicU64::new(wire::head(0, (1 << 48) - 1)),
            _one_thread: PhantomData,
        }
    }

    /// Whether the server has ended the session, or is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.port.kind() == abi::RefKind::Null
    }

    /// The port, and the number of the next request.
    #[must_use]
    pub fn kept(&self) -> (RefAt, u64) {
        (self.port, wire::number(self.next.load(Relaxed)))
    }

    /// A session about the same object that has the interface `id`. It is independent: its requests have nothing to do
    /// with those of this session, and each session ends by itself. May be repeated.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the object has no such interface, [`Error::NoMemory`] if the server has no room for
    /// one more session, [`Error::Limit`] if this program's job has as many as it may have, [`Error::Broken`] if the
    /// server is gone.
    pub fn query_interface(&self, id: u64) -> Result<Session, Error> {
        let port = Ref::new().map_err(base::error_of)?;
        let ((), _, came) =
            self.ask_with_refs(wire::QUERY, &[id], (&[], &[]), (&mut [], &[&*port]))?;
        // A session that was made of its port, without a door, has no other interfaces.
        match came {
            1 => Ok(Session::resume(port, 1)),
            _ => Err(Error::Unsupported),
        }
    }
}

/// A port that many use, of an interface that is [shared](crate::interface): its requests are answered at once and may
/// be repeated, so the server need not know its clients. There is no session: a request has a tag from the interface's
/// id in place of the number.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    port: RefAt,
    /// The tag, at its place in a request's first word.
    tag: u64,
}

impl Shared {
    /// Behind a port, for the interface `id`. The reference has to stay where it is.
    #[must_use]
    pub const fn at(port: RefAt, id: u64) -> Self {
        Shared {
            port,
            tag: wire::head(0, id),
        }
    }
}

/// What a proxy sends its requests to.
pub trait Asked {
    /// The port.
    fn port(&self) -> RefAt;
    /// The first word of the next request, for the method 0.
    fn head(&self) -> u64;
    /// Notes that the reply to that request has arrived.
    fn answered(&self);

    /// A request in registers, with `count` arguments.
    ///
    /// # Errors
    /// That of the method; [`Error::Broken`] if there is no valid reply.
    #[inline(always)]
    fn ask<R: Values>(&self, method: u16, mut words: Words, count: usize) -> Result<R, Error> {
        words[0].write(self.head() | u64::from(method));
        // SAFETY: a register message writes no memory.
        let came =
            unsafe { wire::in_registers(Call::CallShort, self.port().handle(), words, 1 + count) };
        // One comparison for both: that the reply has the expected number of words, and that its first says success.
        let well = wire::with_count(Code::Ok as u64, 1 + R::COUNT);
        if came.word.wrapping_sub(well) | came.words[0] == 0 {
            self.answered();
            return R::take(&came.words).ok_or(Error::Broken);
        }
        self.unwell(came)
    }

    /// The result of a request in registers if the check in `ask` failed.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    fn unwell<R: Values>(&self, came: wire::Came) -> Result<R, Error> {
        if !came.is(Code::Ok) {
            if base::short::is_answered(came.word) {
                self.answered();
            }
            return Err(Error::Broken);
        }
        self.answered();
        match came.words[0] {
            // If nothing came, the first word is that of the request, which is not 0.
            0 if R::COUNT == 0 || came.count() > R::COUNT => {
                R::take(&came.words).ok_or(Error::Broken)
            }
            0 => Err(Error::Broken),
            status => Err(wire::error(status)),
        }
    }

    /// A request with bytes: those of `from` follow the arguments, and those of the reply go to `into`, each copied
    /// once. Returns the result, and how many bytes came.
    ///
    /// # Errors
    /// As [`Asked::ask`].
    #[inline]
    fn ask_with_bytes<R: Values>(
        &self,
        method: u16,
        arguments: &[u64],
        from: &[u8],
        into: &mut [u8],
    ) -> Result<(R, usize), Error> {
        let (result, bytes, _) = self.exchange(method, arguments, (from, 0), (into, 0))?;
        Ok((result, bytes))
    }

    /// As [`Asked::ask_with_bytes`], with references: those of `refs` are sent, and those of the reply are set in
    /// `back`. Returns the result, and how many bytes and references came.
    ///
    /// # Errors
    /// Also [`Error::Invalid`] if there are more than [`wire::MAX_REFS`], [`Error::NoMemory`].
    fn ask_with_refs<R: Values>(
        &self,
        method: u16,
        arguments: &[u64],
        (from, refs): (&[u8], &[&RefAt]),
        (into, back): (&mut [u8], &[&RefAt]),
    ) -> Result<(R, usize, usize), Error> {
        let out = RefList::to_send(refs).map_err(base::error_of)?;
        let list = RefList::to_receive(back).map_err(base::error_of)?;
        let (result, bytes, left) =
            self.exchange(method, arguments, (from, out.word()), (into, list.word()))?;
        let came = wire::refs_came(list.word(), left);
        list.hand_over(back, came).map_err(base::error_of)?;
        Ok((result, bytes, came))
    }

    /// The kernel call, with lists of references. Returns the result, how many bytes came, and what is left of the list
    /// for received references.
    #[doc(hidden)]
    #[inline(always)]
    fn exchange<R: Values>(
        &self,
        method: u16,
        arguments: &[u64],
        (from, refs): (&[u8], u64),
        (into, back_refs): (&mut [u8], u64),
    ) -> Result<(R, usize, u64), Error> {
        let mut request = Piece::new();
        request.words_mut()[0].write(self.head() | u64::from(method));
        if 1 + arguments.len() > WORDS {
            return Err(Error::Invalid);
        }
        for (word, argument) in request.words_mut()[1..WORDS].iter_mut().zip(arguments) {
            word.write(*argument);
        }
        let sent = Sent {
            piece: &mut request,
            words: 1 + arguments.len(),
            bytes: from,
            refs,
        };
        let mut reply = Piece::new();
        let room = Room {
            piece: &mut reply,
            words: 1 + R::COUNT,
            bytes: into,
            refs: back_refs,
        };
        let (code, came, left) = call(self.port(), sent, room);
        if base::short::is_answered(code as u64) {
            self.answered();
        }
        match code {
            Code::Ok => {}
            Code::TooLarge => return Err(Error::Invalid),
            _ => return Err(Error::Broken),
        }
        // SAFETY: the words have values from the start, or from the reply.
        let words = unsafe { *(&raw const reply).cast::<[u64; WORDS]>() };
        if words[0] != 0 {
            return Err(wire::error(words[0]));
        }
        let came = came.checked_sub(8 * (1 + R::COUNT)).ok_or(Error::Broken)?;
        let result = R::take(&words).ok_or(Error::Broken)?;
        Ok((result, came, left))
    }
}

impl Asked for Session {
    #[inline(always)]
    fn port(&self) -> RefAt {
        self.port
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        self.next.load(Relaxed)
    }

    #[inline(always)]
    fn answered(&self) {
        let next = self.next.load(Relaxed);
        self.next
            .store(next.wrapping_add(wire::head(0, 1)), Relaxed);
    }
}

impl Asked for Shared {
    #[inline(always)]
    fn port(&self) -> RefAt {
        self.port
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    fn answered(&self) {}
}

/// A request with bytes: its words in a piece, its bytes, and a list of references.
struct Sent<'a> {
    piece: &'a mut Piece,
    words: usize,
    bytes: &'a [u8],
    refs: u64,
}

/// Room for a reply: for words in a piece, for bytes, and a list of references.
struct Room<'a> {
    piece: &'a mut Piece,
    words: usize,
    bytes: &'a mut [u8],
    refs: u64,
}

/// Makes a request with bytes. Returns the result of the call, and if that is success how many bytes came in reply,
/// those of the words included, and what is left of the list of references. In either direction, a message that fits
/// into a piece travels as one.
fn call(port: RefAt, sent: Sent<'_>, room: Room<'_>) -> (Code, usize, u64) {
    let (mut length, mut more) = (sent.words * 8, sent.bytes);
    if sent.piece.put_bytes(sent.words, more).is_some() {
        length += more.len();
        more = &[];
    }
    let words = room.words * 8;
    for word in &mut room.piece.words_mut()[..WORDS] {
        word.write(0);
    }
    let (place, bytes) = (room.piece.words_mut().as_mut_ptr() as u64, room.bytes);
    let in_piece = words + bytes.len() <= wire::PIECE;
    let (out, back) = (
        [segment(more)],
        [Segment {
            address: bytes.as_mut_ptr() as u64,
            length: bytes.len() as u64,
        }],
    );
    let whole = words + if in_piece { bytes.len() } else { 0 };
    let mut regs = IpcRegs::to(port.handle())
        .sending(Area {
            address: sent.piece.words().as_ptr() as u64,
            length: length as u64,
            list: out.as_ptr() as u64,
            entries: u64::from(!more.is_empty()),
            refs: sent.refs,
        })
        .receiving(Area {
            address: place,
            length: whole as u64,
            list: back.as_ptr() as u64,
            entries: u64::from(!in_piece),
            refs: room.refs,
        });
    // SAFETY: what is sent is only read; the places of the reply are borrowed for this alone.
    match unsafe { sys::ipc(Call::Call, &mut regs) } {
        Code::Ok => {}
        code => return (code, 0, 0),
    }
    // While the kernel has not begun the next segment, the area left is that of the words.
    let rest = regs.left();
    let left = usize::try_from(rest.length).unwrap_or(usize::MAX);
    let begun = !in_piece && rest.entries == 0;
    let room = if begun { words + bytes.len() } else { whole };
    let came = room.saturating_sub(left);
    if let (true, Some(count @ 1..)) = (in_piece, came.checked_sub(words)) {
        // SAFETY: so many bytes came behind the words, and there is room for as many.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (place as usize + words) as *const u8,
                bytes.as_mut_ptr(),
                count,
            );
        }
    }
    (Code::Ok, came, rest.refs)
}

/// New references, for a reply to set.
///
/// # Errors
/// [`Error::NoMemory`].
pub fn refs(count: usize) -> Result<Vec<Ref>, Error> {
    (0..count)
        .map(|_| Ref::new().map_err(base::error_of))
        .collect()
}
