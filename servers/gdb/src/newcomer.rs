//! Notices that another debugger has connected. A serial line does not say that, but each debugger begins with the
//! packet `qSupported`, and sends it only once.

/// How the packet begins.
const FIRST: &[u8] = b"$qSupported";

/// Looks for `FIRST` in the bytes that arrive.
#[derive(Debug, Default)]
pub struct Newcomer {
    /// How many bytes of [`FIRST`] have just arrived.
    matched: usize,
}

impl Newcomer {
    /// Takes the next byte; whether it completes the beginning of a debugger's first packet.
    pub fn begins(&mut self, byte: u8) -> bool {
        self.matched = match byte {
            _ if FIRST[self.matched] == byte => self.matched + 1,
            b'$' => 1,
            _ => 0,
        };
        let begun = self.matched == FIRST.len();
        if begun {
            self.matched = 0;
        }
        begun
    }

    /// The bytes that [`Newcomer::begins`] has consumed when it returns true, to be given to the new debugger's
    /// protocol.
    #[must_use]
    pub const fn said() -> &'static [u8] {
        FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::Newcomer;

    #[test]
    fn one_that_begins_is_heard() {
        let mut newcomer = Newcomer::default();
        let came = b"+$qC#b4$$qSupporte$qSupported:multiprocess+#00";
        let at: alloc::vec::Vec<usize> = (0..came.len())
            .filter(|at| newcomer.begins(came[*at]))
            .collect();
        assert_eq!(at, [28]);
    }
}
