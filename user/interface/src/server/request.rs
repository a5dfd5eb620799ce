//! A request, as a stub gets it.
use super::done::Done;
use super::reply::{Answer, Kept, Reply};
use crate::wire::{self, WORDS};
use alloc::string::String;
use alloc::vec::Vec;
use base::obj::{Ref, RefAt};
use core::future::Future;
use core::task::Waker;
use proto::Error;

/// A request, taken apart as far as all requests are alike.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: u16,
    /// The first word and the arguments. Words beyond `count` are unspecified.
    pub words: [u64; WORDS],
    /// How many words came.
    pub count: usize,
    /// The bytes that came with them.
    pub bytes: &'a [u8],
    /// The references that came with them. They are cleared when the request has been handled.
    pub refs: References,
    /// The kept state of the session's requests; `None` if the request came to a port that is no session.
    pub(super) done: Option<&'a Done>,
    /// Wakes the session's request that waits; `None` where none can.
    pub(super) waker: Option<&'a Waker>,
}

impl<'a> Request<'a> {
    pub(super) const NONE: Self = Request {
        method: 0,
        words: [0; WORDS],
        count: 0,
        bytes: &[],
        refs: References { list: 0, left: 0 },
        done: None,
        waker: None,
    };

    /// Whether it has the number of the session's last request that must not be repeated, and so is a repetition of
    /// that.
    #[inline(always)]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.is(self.words[0]))
    }

    /// The answer whose reply is the result of this future.
    #[inline(always)]
    pub fn later<F: Future<Output = Kept> + 'static>(
        &self,
        future: F,
        reply: &mut Reply,
    ) -> Answer {
        let (Some(done), Some(waker)) = (self.done, self.waker) else {
            reply.set::<()>(Err(Error::Unsupported));
            return Answer::Now;
        };
        match done.spare.begin(future, waker) {
            Ok(kept) => {
                reply.put(&kept.reply);
                match kept.beside {
                    None => Answer::Once,
                    beside => Answer::Kept(beside),
                }
            }
            Err(future) => Answer::Later(future),
        }
    }
}

/// The references that came with a request.
#[derive(Clone, Copy, Debug)]
pub struct References {
    /// The list for them before the call, and what the call left of it.
    pub(super) list: u64,
    pub(super) left: u64,
}

impl References {
    /// Whether none came.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list == self.left
    }

    /// How many came.
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> usize {
        wire::refs_came(self.list, self.left)
    }

    /// The reference with this index, if that many came.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<RefAt> {
        let first = self.list & !abi::MAX_LIST_REFS;
        (index < self.count()).then(|| RefAt(first + index as u64 * abi::OBJECT_SIZE))
    }

    /// The references from this index on.
    #[must_use]
    pub fn from(&self, index: usize) -> Vec<RefAt> {
        (index..self.count()).filter_map(|n| self.get(n)).collect()
    }

    /// A copy of the reference with this index, for the method to keep.
    ///
    /// # Errors
    /// [`Error::Invalid`] if fewer came, [`Error::NoMemory`].
    pub fn keep(&self, index: usize) -> Result<Ref, Error> {
        let reference = self.get(index).ok_or(Error::Invalid)?;
        reference.copy().map_err(base::error_of)
    }

    /// Copies of the references from this index on, for the method to keep.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn keep_from(&self, index: usize) -> Result<Vec<Ref>, Error> {
        (index..self.count()).map(|n| self.keep(n)).collect()
    }
}

/// A copy of a request's bytes, for a method that may wait.
///
/// # Errors
/// [`Error::Invalid`] if there are more than `most`, [`Error::NoMemory`].
pub fn keep_later(bytes: &[u8], most: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > most {
        return Err(Error::Invalid);
    }
    let mut kept = Vec::new();
    kept.try_reserve_exact(bytes.len())
        .map_err(|_| Error::NoMemory)?;
    kept.extend_from_slice(bytes);
    Ok(kept)
}

/// As [`keep_later`], of text.
///
/// # Errors
/// Also [`Error::Invalid`] if the bytes are not UTF-8.
pub fn keep_text(bytes: &[u8], most: usize) -> Result<String, Error> {
    String::from_utf8(keep_later(bytes, most)?).map_err(|_| Error::Invalid)
}
