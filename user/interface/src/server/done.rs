//! The state that is kept of the requests of a session that must not be repeated.
use super::reply::{give_beside, Beside, Kept, Later, Reply, ShortReply};
use super::request::keep_later;
use super::{Next, COUNT_SHIFT, NUMBER};
use crate::wire::{self, KEPT_BYTES, REPLY_WORDS};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use proto::Error;

/// The state that is kept of the requests of a session that must not be repeated: the number of the last one, and its
/// reply.
#[derive(Debug)]
pub struct Done {
    /// [`Done::NEVER`] if there was none.
    pub(super) number: u64,
    pub(super) reply: ShortReply,
    pub(super) beside: Option<Box<Beside>>,
    /// [`Kept::until_given`](super::Kept::until_given).
    pub(super) until_given: bool,
    /// An image has brought the reply.
    brought: bool,
    /// The session gives this reply and does nothing else ([`Server::opens`](super::Server::opens)).
    pub(super) is_all: bool,
    pub(super) spare: Spare,
}

impl Default for Done {
    fn default() -> Self {
        Done {
            number: Done::NEVER,
            reply: ShortReply::NONE,
            beside: None,
            until_given: false,
            brought: false,
            is_all: false,
            spare: Spare::none(),
        }
    }
}

impl Done {
    /// No request has this number: they have 48 bits.
    const NEVER: u64 = u64::MAX;

    /// The state that an image keeps: returns a word and the bytes of the reply, and puts the reply's words into
    /// `words`.
    pub(super) fn kept(&self, words: &mut [u64]) -> (u64, &[u8]) {
        let ended = ShortReply::of::<()>(Err(Error::Ended));
        let (reply, bytes) = match &self.beside {
            _ if self.number == Self::NEVER => return (0, &[]),
            None => (&self.reply, &[][..]),
            // An image has no objects that references name: the request counts as done, but its result is lost.
            Some(beside) if !beside.refs.is_empty() => (&ended, &[][..]),
            Some(beside) if beside.bytes.len() <= KEPT_BYTES => (&self.reply, &beside.bytes[..]),
            // The server sent more bytes than it told its method there is room for. The request counts as done, too.
            Some(_) => (&ended, &[][..]),
        };
        let reply = reply.as_words();
        words[..reply.len()].copy_from_slice(reply);
        (
            self.number & NUMBER | (reply.len() as u64) << COUNT_SHIFT,
            bytes,
        )
    }

    /// How many bytes of a reply that an image brought are kept.
    pub(super) fn brought_bytes(&self) -> usize {
        let beside = self.beside.as_ref().filter(|_| self.brought);
        beside.map_or(0, |beside| beside.bytes.len())
    }

    /// Restores the state that was [kept](Done::kept). It comes from a program's image, which may be forged, so only
    /// that program gets the reply.
    pub(super) fn resumed(kept: u64, words: &[u64], bytes: &[u8]) -> Result<Self, Error> {
        let count = (kept >> COUNT_SHIFT) as usize;
        if count == 0 || count > REPLY_WORDS.min(words.len()) {
            return Ok(Done::default());
        }
        let mut reply = ShortReply {
            count,
            ..ShortReply::NONE
        };
        for (to, from) in reply.words.iter_mut().zip(words) {
            to.write(*from);
        }
        Ok(Done {
            number: kept & NUMBER,
            reply,
            beside: Beside::of(keep_later(bytes, KEPT_BYTES)?, Vec::new()),
            brought: true,
            ..Done::default()
        })
    }

    /// Whether the request with this first word is the last one that must not be repeated.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, head: u64) -> bool {
        self.number == wire::number(head)
    }

    /// Whether the session does not do the request with this first word, nor knows its reply.
    #[inline(always)]
    pub(super) const fn is_beyond(&self, head: u64) -> bool {
        self.is_all && !self.is(head)
    }

    /// Gives the reply. Returns whether it goes out with the next wait.
    #[inline(always)]
    pub(super) fn give(&self, to: &mut Reply) -> bool {
        match &self.beside {
            None => {
                to.put(&self.reply);
                true
            }
            Some(beside) => give_beside(&self.reply, beside, to),
        }
    }

    /// The call that gives its reply and waits.
    #[cold]
    #[inline(never)]
    pub(super) fn next(&self) -> Next {
        let mut reply = Reply::new(false);
        match self.give(&mut reply) {
            true => reply.short().next(),
            false => Next::wait(),
        }
    }

    /// Keeps the reply to the request with this number.
    #[inline(always)]
    pub(super) fn keep(&mut self, number: u64, reply: &ShortReply, beside: Option<Box<Beside>>) {
        self.number = number;
        self.reply.copy_from(reply);
        self.beside = beside;
        (self.until_given, self.brought) = (false, false);
    }

    /// Notes that the reply was given, and forgets it if it need not be kept.
    pub(super) fn given(&mut self) {
        if self.until_given {
            (self.number, self.beside, self.until_given) = (Self::NEVER, None, false);
        }
    }
}

/// Memory of the future of a finished request, for the next one.
#[derive(Debug)]
pub(super) struct Spare {
    memory: Cell<*mut u8>,
    /// The layout that the memory was allocated with (size and alignment); 0 if there is none.
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

    /// Polls a future for the first time, here where the compiler knows its type. Returns its result, or the future if
    /// it waits. It lies in the memory of the last one if that had the same layout.
    #[inline(always)]
    pub(super) fn begin<F>(&self, future: F, waker: &Waker) -> Result<Kept, Later>
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
                // SAFETY: it is a value in memory as a box has it, and that memory is no longer the spare one.
                Err(Box::into_pin(unsafe { Box::from_raw(memory) }))
            }
        }
    }

    /// Replaces the spare memory by memory of this layout.
    #[cold]
    #[inline(never)]
    fn make(&self, word: usize, layout: Layout) {
        self.free();
        // SAFETY: the layout is not of size 0, else it would have no word.
        let memory = unsafe { alloc::alloc::alloc(layout) };
        if memory.is_null() {
            alloc::alloc::handle_alloc_error(layout);
        }
        self.memory.set(memory);
        self.is_for.set(word);
    }

    /// Ends a future, and keeps its memory.
    pub(super) fn keep(&self, future: Later) {
        // SAFETY: the future is dropped where it lies.
        let future = Box::into_raw(unsafe { Pin::into_inner_unchecked(future) });
        // SAFETY: it is a value, and is not used after it has been dropped.
        let layout = unsafe {
            let layout = Layout::for_value(&*future);
            core::ptr::drop_in_place(future);
            layout
        };
        self.free();
        // Futures that begin here are not of size 0.
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
