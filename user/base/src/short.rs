//! Messages that travel in registers.
use abi::Code;
use core::mem::MaybeUninit;

pub use crate::x86_64::{in_registers, in_registers_with};

/// Words of a message.
pub const WORDS: usize = 8;

/// A message in registers; words that are not part of it need no value.
pub type Words = [MaybeUninit<u64>; WORDS];

/// A message without a value.
pub const NONE: Words = [MaybeUninit::uninit(); WORDS];

/// What came back from a register message.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// The result of the call, and the length.
    pub word: u64,
    /// The alias of the port, for a server.
    pub alias: u64,
    /// The message; the words behind it keep what the registers held before.
    pub words: [u64; WORDS],
}

impl Came {
    /// Whether this is the result of the call.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, code: Code) -> bool {
        self.word as u8 == code as u8
    }

    /// Whether a request has fewer words than these.
    #[inline(always)]
    #[must_use]
    pub const fn has_fewer(&self, words: usize) -> bool {
        self.word < with_count(Code::Call as u64, words)
    }

    /// A copy made word by word.
    #[inline(always)]
    #[must_use]
    pub const fn apart(&self) -> Self {
        let [a, b, c, d, e, f, g, h] = self.words;
        Came {
            word: self.word,
            alias: self.alias,
            words: [a, b, c, d, e, f, g, h],
        }
    }

    /// Words of the message, as [`count`].
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> usize {
        count(self.word)
    }
}

/// Whether the server has answered the request of a call with this result. It has also if there was no room for all of
/// the reply ([`Code::Truncated`]), which is lost then: the request is done, and is not to be made again.
#[inline(always)]
#[must_use]
pub const fn is_answered(result: u64) -> bool {
    result as u8 == Code::Ok as u8 || result as u8 == Code::Truncated as u8
}

/// The word of a call, or of its result, with so many words of a message.
#[must_use]
pub const fn with_count(word: u64, count: usize) -> u64 {
    word | (count as u64) << 11
}

/// Words of the message that is sent with a call's word, or came with a result's. A part of a word is not counted.
#[inline(always)]
#[must_use]
pub const fn count(word: u64) -> usize {
    (word >> 11 & 0x1f) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_was_cut_is_an_answer() {
        for code in Code::ALL {
            let is = matches!(code, Code::Ok | Code::Truncated);
            assert_eq!(
                is_answered(with_count(*code as u64, 3)),
                is,
                "S3: a request whose reply was cut is done: {code:?}"
            );
        }
    }
}
