//! What a stub returns for a request: a reply in words, with bytes or references, or a future.
use super::done::Done;
use super::Next;
use crate::wire::{self, Piece, ReplyWords, Values, REPLY_WORDS};
use abi::message::Segment;
use abi::registers::Area;
use abi::Call;
use alloc::boxed::Box;
use alloc::vec::Vec;
use base::obj::{Ref, RefAt, RefList};
use base::sys::{self, IpcRegs};
use core::future::Future;
use core::pin::Pin;
use core::task::Waker;
use proto::Error;

/// The reply that a stub makes, in words and perhaps bytes behind them, in one piece.
#[derive(Debug)]
pub struct Reply {
    piece: Piece,
    /// How many bytes there are.
    length: usize,
    /// Whether it is sent from memory, so that it can have bytes.
    in_memory: bool,
}

impl Reply {
    /// A reply without words, which goes out in memory or in registers.
    #[inline(always)]
    pub(super) const fn new(in_memory: bool) -> Self {
        Reply {
            piece: Piece::new(),
            length: 0,
            in_memory,
        }
    }

    /// Sets it to the reply for this result.
    #[inline(always)]
    pub fn set<R: Values>(&mut self, result: Result<R, Error>) {
        self.put(&ShortReply::of(result));
    }

    /// Sets it to this reply in words, which usually has one.
    #[inline(always)]
    pub(super) fn put(&mut self, reply: &ShortReply) {
        let words = self.piece.words_mut();
        match reply.count {
            1 => words[0] = reply.words[0],
            _ => words[..REPLY_WORDS].copy_from_slice(&reply.words),
        }
        self.length = reply.count * 8;
    }

    /// Sets it to these words.
    pub(super) fn put_words(&mut self, words: &[u64]) {
        for (place, word) in self.piece.words_mut().iter_mut().zip(words) {
            place.write(*word);
        }
        self.length = size_of_val(words);
    }

    /// Puts bytes behind its words. `None` if there is no room, so that they have to be sent from where they lie.
    #[inline(always)]
    fn put_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        if !self.in_memory {
            return None;
        }
        self.piece.put_bytes(self.length / 8, bytes)?;
        self.length += bytes.len();
        Some(())
    }

    /// A copy of its words, without bytes.
    #[inline(always)]
    pub(super) fn short(&self) -> ShortReply {
        let mut reply = ShortReply {
            words: wire::NO_REPLY,
            count: (self.length / 8).min(REPLY_WORDS),
        };
        reply
            .words
            .copy_from_slice(&self.piece.words()[..REPLY_WORDS]);
        reply
    }

    /// Where it lies, and how many bytes it has.
    #[inline(always)]
    pub(super) fn place(&self) -> (u64, usize) {
        ((&raw const self.piece) as u64, self.length)
    }
}

/// A reply in words, at most [`REPLY_WORDS`].
#[derive(Clone, Copy, Debug)]
pub struct ShortReply {
    pub(super) words: ReplyWords,
    pub(super) count: usize,
}

impl ShortReply {
    /// A reply without words.
    pub(super) const NONE: Self = ShortReply {
        words: wire::NO_REPLY,
        count: 0,
    };

    /// The reply for this result.
    #[inline(always)]
    pub fn of<R: Values>(result: Result<R, Error>) -> Self {
        // Not `NONE`, whose words the compiler would initialize with zeros.
        let mut reply = ShortReply {
            words: wire::NO_REPLY,
            count: 1,
        };
        reply.set(result);
        reply
    }

    #[inline(always)]
    fn set<R: Values>(&mut self, result: Result<R, Error>) {
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

    /// Copies another reply, which usually has one word.
    #[inline(always)]
    pub(super) fn copy_from(&mut self, other: &Self) {
        if other.count == 1 {
            (self.words[0], self.count) = (other.words[0], 1);
        } else {
            *self = *other;
        }
    }

    /// The call that gives it and waits.
    #[inline(always)]
    pub(super) fn next(&self) -> Next {
        Next {
            call: wire::with_count(Call::ReplyWaitReceiveShort as u64, self.count),
            words: self.words,
        }
    }

    /// The words.
    pub(super) fn as_words(&self) -> &[u64] {
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
    /// The request is [done](super::Request::is_done) already: the kept reply is to be given.
    Done,
    /// The reply is the result of this future, which has been polled once.
    Later(Later),
}

/// What a stub makes of a request that came in registers and without references. Unless it is `No`, the request is not
/// needed any more, so that it never has to be stored in memory.
pub enum Quick {
    /// The stub does not answer this method quickly.
    No,
    /// The session is asked for another interface of its object, whose id is in the first argument.
    Query,
    /// The request makes no sense: [`Error::Invalid`].
    Invalid,
    /// The request is [done](Done::is) already: the kept reply is to be given.
    Done,
    /// The reply. The method may be repeated.
    Reply(ShortReply),
    /// The reply of a method that must not be repeated.
    Once(ShortReply),
    /// The reply went out already, with bytes.
    Sent,
    /// The reply is the result of this future, which has been polled once.
    Later(Later),
}

impl Quick {
    /// The answer for a method that waits and whose result is in words.
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
            Err(error) => Quick::Reply(ShortReply::of::<()>(Err(error))),
        }
    }
}

/// The result of a method that waits.
pub type Later = Pin<Box<dyn Future<Output = Kept>>>;

/// The bytes and references of a reply, besides its words.
#[derive(Debug)]
pub struct Beside {
    pub(super) bytes: Vec<u8>,
    pub(super) refs: Vec<Ref>,
}

impl Beside {
    /// Nothing if there is neither.
    pub(super) fn of(bytes: Vec<u8>, refs: Vec<Ref>) -> Option<Box<Self>> {
        (!bytes.is_empty() || !refs.is_empty()).then(|| Box::new(Beside { bytes, refs }))
    }
}

/// A result in words, bytes and references.
pub type Whole<R> = (R, Vec<u8>, Vec<Ref>);

/// The reply of a method that must not be repeated or has waited, and what goes with it.
#[derive(Debug)]
pub struct Kept {
    pub(super) reply: ShortReply,
    pub(super) beside: Option<Box<Beside>>,
    /// It is dropped once it has been given: the method may be repeated.
    pub(super) until_given: bool,
}

impl Kept {
    /// A reply in words.
    #[inline(always)]
    pub fn new<R: Values>(result: Result<R, Error>) -> Self {
        Kept {
            reply: ShortReply::of(result),
            beside: None,
            until_given: false,
        }
    }

    /// Marks it as the reply of a method that may be repeated, so that it is dropped once it has been given.
    #[must_use]
    pub fn until_given(mut self) -> Self {
        self.until_given = true;
        self
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

/// Gives the reply to the current request, in bytes. If they do not fit into one piece, they are sent from where they
/// lie.
pub fn send_bytes(result: Result<&[u8], Error>, reply: &mut Reply) -> Answer {
    let bytes = match result {
        Ok(bytes) => {
            reply.set(Ok(()));
            bytes
        }
        Err(error) => {
            reply.set::<()>(Err(error));
            &[]
        }
    };
    if bytes.is_empty() || reply.put_bytes(bytes).is_some() {
        return Answer::Now;
    }
    send(&[0], bytes, 0);
    Answer::Sent
}

/// Gives the reply to the current request, in words, bytes and references.
pub fn send_whole<R: Values>(result: Result<Whole<R>, Error>, reply: &mut Reply) -> Answer {
    let kept = Kept::whole(result);
    reply.put(&kept.reply);
    match kept.beside {
        Some(beside) if !give_beside(&kept.reply, &beside, reply) => Answer::Sent,
        _ => Answer::Now,
    }
}

/// Keeps the reply of a method that must not be repeated, in words, bytes and references.
pub fn keep_whole<R: Values>(result: Result<Whole<R>, Error>, reply: &mut Reply) -> Answer {
    let kept = Kept::whole(result);
    reply.put(&kept.reply);
    Answer::Kept(kept.beside)
}

/// Gives a reply that has more than words. Returns true if it goes out with the next wait: then `to` is the reply in
/// one piece, or the error that prevented it. Otherwise the reply was sent.
pub(super) fn give_beside(reply: &ShortReply, beside: &Beside, to: &mut Reply) -> bool {
    to.put(reply);
    if beside.refs.is_empty() && to.put_bytes(&beside.bytes).is_some() {
        return true;
    }
    let refs: Vec<&RefAt> = beside.refs.iter().map(|reference| &**reference).collect();
    match RefList::to_send(&refs) {
        Ok(list) => {
            send(reply.as_words(), &beside.bytes, list.word());
            false
        }
        Err(code) => {
            to.set::<()>(Err(base::error_of(code)));
            true
        }
    }
}

/// Sends a reply in words, bytes and references.
pub(super) fn send(words: &[u64], bytes: &[u8], refs: u64) {
    let more = [Segment {
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
    }];
    let mut regs = IpcRegs::default().sending(Area {
        address: words.as_ptr() as u64,
        length: size_of_val(words) as u64,
        list: more.as_ptr() as u64,
        entries: u64::from(!bytes.is_empty()),
        refs,
    });
    // SAFETY: what is sent is only read. The server ignores that a client is gone.
    unsafe { sys::ipc(Call::Reply, &mut regs) };
}
