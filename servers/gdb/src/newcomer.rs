//! A serial line does not say that who was at its other end has gone and somebody else is there. Each debugger begins
//! with the packet `qSupported`, and sends it once.

/// How that packet begins.
const FIRST: &[u8] = b"$qSupported";

/// Looks at what arrives.
#[derive(Debug, Default)]
pub struct Newcomer {
    /// How much of [`FIRST`] has just arrived.
    matched: usize,
}

impl Newcomer {
    /// Whether with this byte a debugger has begun.
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

    /// What has arrived by then, for who reads from the beginning of the packet on.
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
