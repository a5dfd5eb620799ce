//! The roles of registers: the part of the interface that is the same for every processor.
//!
//! A call uses a *word of the call*, twelve *parameters*, and the program counter. One file per
//! architecture assigns these roles to registers: [`crate::x86_64`], and [`crate::simulated`] for
//! the machine on which the kernel is tested. All other code uses only the roles:
//!
//! * The *word of the call* has the number of the entrypoint in its low byte; for register messages
//!   the number of bytes in bits 8 to 15: on entry those to send (for a receive those already
//!   received), on return those received. On completion its low byte is a [`crate::Code`].
//! * *Ordinary calls* take their arguments in parameters 0 to 5 ([`ARGUMENTS`]) and return values in
//!   parameter 0, or where their documentation says so.
//! * *IPC calls* use the map of the widest call, and every narrower call uses a subset of it, so that
//!   a stage finds its parameters in the same place whatever call it is part of:
//!
//! | parameter | meaning |
//! |---|---|
//! | 0 | port reference or portset; on return from a wait the alias of the port |
//! | 1, 2 | send area: current segment, address and bytes left |
//! | 3, 4 | send area: list of further segments, entries left |
//! | 5 | send area: list of references ([`crate::ref_list`]) |
//! | 6, 7 | receive area: current segment, address and bytes left |
//! | 8, 9 | receive area: list of further segments, entries left |
//! | 10 | receive area: list of references |
//! | 11 | deadline, for the calls that end in `_until` |
//!
//! *Register messages* (`_short`) carry up to 64 bytes in parameters 1 to 8, first byte lowest;
//! parameter 9 lists the references to send, parameter 10 those to receive.
//!
//! While a thread waits in a call, its program counter is at the instruction that made the call, which
//! is [`Roles::call_bytes`] long; completing the call moves the program counter behind it.

use crate::{Register, Registers, ROLES};

/// Number of parameters that a call can have.
pub const PARAMETERS: usize = 12;
/// Number of the first parameters, which carry the arguments of ordinary calls.
pub const ARGUMENTS: usize = 6;
/// The parameters of the send area: address, bytes left, list, entries left, references.
pub const SEND: [usize; 5] = [1, 2, 3, 4, 5];
/// The parameters of the receive area, in the same order.
pub const RECEIVE: [usize; 5] = [6, 7, 8, 9, 10];
/// The parameters that carry the words of a register message.
pub const WORDS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The parameter that lists the references that a register message sends.
pub const WORDS_REFS: usize = 9;
/// The parameter with the deadline of an IPC call.
pub const DEADLINE: usize = 11;

/// The roles of an architecture's registers.
#[derive(Clone, Copy, Debug)]
pub struct Roles<R: 'static> {
    /// The architecture's name, for people.
    pub architecture: &'static str,
    /// The architecture's number in images and in ELF files (`e_machine`).
    pub machine: u16,
    /// The word of the call.
    pub call: R,
    /// The parameters.
    pub parameters: [R; PARAMETERS],
    /// The program counter.
    pub pc: R,
    /// The stack pointer.
    pub sp: R,
    /// The flags of the processor.
    pub flags: R,
    /// The flags that a program can change by itself; the others stay as they are.
    pub user_flags: u64,
    /// The flags that are always set in a program.
    pub fixed_flags: u64,
    /// Bytes of the instruction that makes a call.
    pub call_bytes: u64,
    /// Registers that a call loses, and their values from then on.
    pub lost: &'static [(R, Lost)],
    /// Base addresses, which must be canonical: bits 47 to 63 are the same.
    pub bases: &'static [R],
}

/// The value of a register that a call has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The address behind the instruction that made the call.
    Next,
    /// The flags.
    Flags,
}

/// A part of scattered memory that a message is sent from or received into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Current segment: address.
    pub address: u64,
    /// Current segment: bytes left.
    pub length: u64,
    /// Address of the list of further segments.
    pub list: u64,
    /// Entries left in that list.
    pub entries: u64,
    /// The list of references; see [`crate::ref_list`].
    pub refs: u64,
}

impl Area {
    /// One segment, and no references.
    #[inline]
    #[must_use]
    pub const fn new(address: u64, length: u64) -> Area {
        Area {
            address,
            length,
            list: 0,
            entries: 0,
            refs: 0,
        }
    }
}

/// The values of the registers by their roles.
impl Registers {
    /// The word of the call.
    #[inline]
    #[must_use]
    pub const fn call(&self) -> u64 {
        self.get(ROLES.call)
    }

    /// Sets the word of the call.
    #[inline]
    pub const fn set_call(&mut self, word: u64) {
        self.set(ROLES.call, word);
    }

    /// Parameter `n`.
    ///
    /// # Panics
    /// If there is no such parameter, as do all functions that take the number of a parameter.
    #[inline]
    #[must_use]
    pub const fn parameter(&self, n: usize) -> u64 {
        self.get(ROLES.parameters[n])
    }

    /// Sets parameter `n`.
    #[inline]
    pub const fn set_parameter(&mut self, n: usize, value: u64) {
        self.set(ROLES.parameters[n], value);
    }

    const fn area(&self, [address, length, list, entries, refs]: [usize; 5]) -> Area {
        Area {
            address: self.parameter(address),
            length: self.parameter(length),
            list: self.parameter(list),
            entries: self.parameter(entries),
            refs: self.parameter(refs),
        }
    }

    const fn set_area(&mut self, [address, length, list, entries, refs]: [usize; 5], area: &Area) {
        self.set_parameter(address, area.address);
        self.set_parameter(length, area.length);
        self.set_parameter(list, area.list);
        self.set_parameter(entries, area.entries);
        self.set_parameter(refs, area.refs);
    }

    /// The send area.
    #[must_use]
    pub const fn send(&self) -> Area {
        self.area(SEND)
    }

    /// Sets the send area.
    pub const fn set_send(&mut self, area: &Area) {
        self.set_area(SEND, area);
    }

    /// The receive area.
    #[must_use]
    pub const fn receive(&self) -> Area {
        self.area(RECEIVE)
    }

    /// Sets the receive area.
    pub const fn set_receive(&mut self, area: &Area) {
        self.set_area(RECEIVE, area);
    }

    /// The words of a register message.
    #[must_use]
    pub fn words(&self) -> [u64; 8] {
        WORDS.map(|n| self.parameter(n))
    }

    /// Sets the words of a register message.
    pub fn set_words(&mut self, words: &[u64; 8]) {
        for (n, word) in WORDS.into_iter().zip(words) {
            self.set_parameter(n, *word);
        }
    }

    /// The program counter.
    #[inline]
    #[must_use]
    pub const fn pc(&self) -> u64 {
        self.get(ROLES.pc)
    }

    /// Sets the program counter.
    #[inline]
    pub const fn set_pc(&mut self, address: u64) {
        self.set(ROLES.pc, address);
    }

    /// The stack pointer.
    #[inline]
    #[must_use]
    pub const fn sp(&self) -> u64 {
        self.get(ROLES.sp)
    }

    /// Sets the stack pointer.
    #[inline]
    pub const fn set_sp(&mut self, address: u64) {
        self.set(ROLES.sp, address);
    }

    /// The flags of the processor.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> u64 {
        self.get(ROLES.flags)
    }

    /// Sets the flags of the processor.
    #[inline]
    pub const fn set_flags(&mut self, flags: u64) {
        self.set(ROLES.flags, flags);
    }

    /// The registers of a program that begins at an address with a stack and one argument. Boot and
    /// `spawn` start threads with these.
    #[must_use]
    pub const fn starting(pc: u64, sp: u64, argument: u64) -> Registers {
        let mut registers = Registers::from_words(&[0; crate::REGISTER_WORDS]);
        registers.set_pc(pc);
        registers.set_sp(sp);
        registers.set_parameter(0, argument);
        registers.set_flags(ROLES.fixed_flags);
        registers
    }
}

/// The names of the registers that carry these parameters.
#[must_use]
pub const fn names<const N: usize>(parameters: [usize; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = name(parameters[i]);
        i += 1;
    }
    names
}

/// The name of the register that carries parameter `n`.
#[must_use]
pub const fn name(n: usize) -> &'static str {
    Register::name(ROLES.parameters[n])
}

/// The registers of an architecture: their names in the order in which states and messages carry them.
macro_rules! register_file {
    ($(#[doc = $doc:literal])+ $($register:ident $Register:ident),+ $(,)?) => {
        crate::table::structures! {
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[repr(C)]
            pub struct Registers {
                $(pub $register: u64,)+
            }
        }

        /// A register of a program.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)] // Their names are the processor's.
        pub enum Register {
            $($Register,)+
        }

        impl Register {
            /// All registers, in the order of [`Registers`].
            pub const ALL: &'static [Register] = &[$(Register::$Register),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Register::$Register => stringify!($register),)+
                }
            }
        }

        /// Number of words in [`Registers`].
        pub const REGISTER_WORDS: usize = Register::ALL.len();

        impl Registers {
            /// The value of a register.
            #[inline]
            #[must_use]
            pub const fn get(&self, register: Register) -> u64 {
                match register {
                    $(Register::$Register => self.$register,)+
                }
            }

            /// Sets a register.
            #[inline]
            pub const fn set(&mut self, register: Register, value: u64) {
                match register {
                    $(Register::$Register => self.$register = value,)+
                }
            }

            /// The registers as words, in the order of the fields.
            #[must_use]
            pub const fn to_words(&self) -> [u64; REGISTER_WORDS] {
                [$(self.$register),+]
            }

            /// Registers from words, in the order of the fields.
            #[must_use]
            pub const fn from_words(words: &[u64; REGISTER_WORDS]) -> Self {
                Registers { $($register: words[Register::$Register as usize],)+ }
            }
        }
    };
}

pub(crate) use register_file;

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_role_has_a_register_of_its_own() {
        let mut all = Vec::from([ROLES.call, ROLES.pc, ROLES.sp, ROLES.flags]);
        all.extend(ROLES.parameters);
        all.extend(ROLES.lost.iter().map(|lost| lost.0));
        all.extend(ROLES.bases);
        all.sort_by_key(|&register| register as u8);
        let distinct = all.len();
        all.dedup();
        assert_eq!(all.len(), distinct);
    }

    #[test]
    fn roles_name_what_was_set() {
        let mut registers = Registers::default();
        for n in 0..PARAMETERS {
            registers.set_parameter(n, 100 + n as u64);
        }
        registers.set_call(1);
        registers.set_pc(2);
        assert_eq!(registers.get(ROLES.parameters[7]), 107);
        assert_eq!(registers.words(), [101, 102, 103, 104, 105, 106, 107, 108]);
        let area = registers.receive();
        assert_eq!((area.address, area.length, area.refs), (106, 107, 110));
        registers.set_send(&area);
        assert_eq!(registers.send(), area);
        assert_eq!((registers.call(), registers.pc()), (1, 2));
        let words = registers.to_words();
        assert_eq!(words[ROLES.pc as usize], 2);
        assert_eq!(Registers::from_words(&words), registers);
    }
}
