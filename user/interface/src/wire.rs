//! Requests and replies in words.
//!
//! The first word of a request has the method in its low 16 bits and the number of the request above;
//! the others are the arguments. The first word of a reply is 0, or 1 and more for an error; the
//! others are the result. Both travel in registers if no bytes go with them; bytes follow the
//! words in memory. References go beside them, in the order of the arguments, and of the result.
use core::mem::MaybeUninit;
use proto::{Error, MAX_BULK};

pub use base::short::{
    count, in_registers, in_registers_with, with_count, Came, Words, NONE, WORDS,
};

/// Most references of a request or a reply.
pub const MAX_REFS: usize = abi::MAX_LIST_REFS as usize;

/// Most bytes of a request whose method may wait: the server keeps them meanwhile.
pub const MAX_LATER: usize = 4096;

/// Most bytes of a request or a reply, words included, that travel in one piece: copying so few once more on either
/// side is cheaper than a message of several segments, for the kernel has its shortest path for one segment within a
/// page.
pub const PIECE: usize = 512;

/// A buffer for a message in one piece, aligned so that it lies within one page.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(512))]
pub struct Piece([MaybeUninit<u64>; PIECE / 8]);

const _: () = assert!(align_of::<Piece>() == PIECE && size_of::<Piece>() == PIECE);

impl Piece {
    /// A piece without values.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Self {
        Piece([MaybeUninit::uninit(); PIECE / 8])
    }

    /// Its words.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> &[MaybeUninit<u64>; PIECE / 8] {
        &self.0
    }

    /// Its words, to be written.
    #[inline(always)]
    pub const fn words_mut(&mut self) -> &mut [MaybeUninit<u64>; PIECE / 8] {
        &mut self.0
    }

    /// Puts these bytes behind the first `words` words. `None` if there is no room for them.
    #[inline(always)]
    #[must_use]
    pub fn put_bytes(&mut self, words: usize, bytes: &[u8]) -> Option<()> {
        let place = self.0.get_mut(words..)?;
        if bytes.len() > size_of_val(place) {
            return None;
        }
        // SAFETY: there is room for so many bytes, in memory of this piece alone.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_mut_ptr().cast(), bytes.len());
        }
        Some(())
    }
}

impl Default for Piece {
    fn default() -> Self {
        Piece::new()
    }
}

/// Most words of a reply: the status, and the result.
pub const REPLY_WORDS: usize = 5;

/// As [`Words`], of a reply.
pub type ReplyWords = [MaybeUninit<u64>; REPLY_WORDS];

/// A reply without a value.
pub const NO_REPLY: ReplyWords = [MaybeUninit::uninit(); REPLY_WORDS];

/// The method that asks whether a session or a door has an interface, by id; at a door it opens a session for
/// the client whose own port at init comes with it.
pub const QUERY: u16 = 0;
/// At a door: returns the state to be kept of the session whose port comes with it ([`crate::client::Kept`]).
pub const KEEP: u16 = 1;
/// At a door: opens a session that continues a kept one.
pub const RESUME: u16 = 2;
/// Words in which a session is kept.
pub const KEPT_WORDS: usize = 7;
/// Most bytes of a reply that is kept. No reply to a request that must not be repeated has more, since its method is
/// told of no more room.
pub const KEPT_BYTES: usize = MAX_BULK;

/// The arguments of a method, for clients that make requests without a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The names of its arguments in words.
    pub words: &'static [&'static str],
    /// How many of its arguments are references, or lists of any number of them.
    pub refs: usize,
    /// The name of its argument in bytes.
    pub bytes: Option<&'static str>,
    /// The reply has bytes: the request has a further word, for how many the client has room.
    pub room: bool,
    /// It may have to wait.
    pub waits: bool,
}

/// The number of the method with this name among the methods of an interface. In a constant, a name that no method has
/// does not compile.
#[must_use]
pub const fn numbered(methods: &[Shape], name: &str) -> u16 {
    let mut at = 0;
    while at < methods.len() {
        if same(methods[at].name.as_bytes(), name.as_bytes()) {
            return 1 + at as u16;
        }
        at += 1;
    }
    panic!("the interface has no such method")
}

const fn same(one: &[u8], two: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < two.len() && one[at] == two[at] {
        at += 1;
    }
    at == one.len() && at == two.len()
}

/// The first word of a request.
#[must_use]
pub const fn head(method: u16, number: u64) -> u64 {
    method as u64 | number << 16
}

/// The method of a request.
#[must_use]
pub const fn method(head: u64) -> u16 {
    head as u16
}

/// The number of a request.
#[must_use]
pub const fn number(head: u64) -> u64 {
    head >> 16
}

/// The tag that requests of a [shared](crate::client::Shared) interface with this id have in place of a number.
#[must_use]
pub const fn tag(id: u64) -> u64 {
    number(head(0, id))
}

/// The first word of a reply.
#[must_use]
pub const fn status(result: Result<(), Error>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(error) => error as u64 + 1,
    }
}

/// The error of a reply whose first word is not 0.
#[must_use]
pub fn error(status: u64) -> Error {
    let index = usize::try_from(status.wrapping_sub(1)).unwrap_or(usize::MAX);
    Error::ALL.get(index).copied().unwrap_or(Error::Broken)
}

/// Plain data that fits into a word.
pub trait Plain: Copy {
    /// As a word.
    fn to_word(self) -> u64;
    /// From a word, if the word is one of a value.
    fn from_word(word: u64) -> Option<Self>;
}

macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl Plain for $kind {
            #[inline(always)]
            fn to_word(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_word(word: u64) -> Option<Self> {
                let value = word as $kind;
                (value as u64 == word).then_some(value)
            }
        }
    )*};
}

plain!(u8, u16, u32, u64, usize, i8, i16, i32, i64);

impl Plain for bool {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.into()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Option<Self> {
        (word < 2).then_some(word == 1)
    }
}

/// Declares an enumeration whose values travel as numbers.
#[macro_export]
macro_rules! plain {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $value:ident = $number:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $value = $number,)*
        }

        impl $crate::wire::Plain for $name {
            #[inline(always)]
            fn to_word(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_word(word: u64) -> Option<Self> {
                match word {
                    $($number => Some($name::$value),)*
                    _ => None,
                }
            }
        }
    };
}

/// What a method returns in words.
pub trait Values: Sized {
    /// How many words.
    const COUNT: usize;
    /// Puts the values behind the first word.
    fn put(self, words: &mut ReplyWords);
    /// Takes the values from there, if the words are those of values.
    fn take(words: &[u64; WORDS]) -> Option<Self>;
}

impl Values for () {
    const COUNT: usize = 0;
    #[inline(always)]
    fn put(self, _: &mut ReplyWords) {}
    #[inline(always)]
    fn take(_: &[u64; WORDS]) -> Option<Self> {
        Some(())
    }
}

impl<T: Plain> Values for T {
    const COUNT: usize = 1;
    #[inline(always)]
    fn put(self, words: &mut ReplyWords) {
        words[1].write(self.to_word());
    }
    #[inline(always)]
    fn take(words: &[u64; WORDS]) -> Option<Self> {
        T::from_word(words[1])
    }
}

macro_rules! tuple {
    ($count:literal: $($kind:ident $at:literal $field:tt),*) => {
        impl<$($kind: Plain),*> Values for ($($kind,)*) {
            const COUNT: usize = $count;
            #[inline(always)]
            fn put(self, words: &mut ReplyWords) {
                $(words[$at].write(self.$field.to_word());)*
            }
            #[inline(always)]
            fn take(words: &[u64; WORDS]) -> Option<Self> {
                Some(($($kind::from_word(words[$at])?,)*))
            }
        }
    };
}

tuple!(2: A 1 0, B 2 1);
tuple!(3: A 1 0, B 2 1, C 3 2);
tuple!(4: A 1 0, B 2 1, C 3 2, D 4 3);

/// How many references came: `list` is the list before the call, and `left` what the call left of it.
#[inline(always)]
#[must_use]
pub const fn refs_came(list: u64, left: u64) -> usize {
    (list & abi::MAX_LIST_REFS).saturating_sub(left & abi::MAX_LIST_REFS) as usize
}
