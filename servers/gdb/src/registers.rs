//! A thread's registers in the layout of GDB's packets.
//!
//! They are in the order of the features `org.gnu.gdb.i386.core`, `.sse`, `.segments` and `.linux` of GDB's manual
//! ("i386 Features"); [`description`] tells GDB so. The FPU's state is read as `fxsave64` lays it out, which the
//! processor's manuals describe.
use abi::state::ThreadState;
use abi::x86_64::ROLES;
use alloc::format;
use alloc::string::String;
use core::fmt;
use gdbstub::arch::{Arch, Registers};

/// The trap flag of `rflags`, which belongs to the debugger and not to the program.
pub const SINGLE_STEP: u64 = 1 << 8;

/// Bytes of all registers: 16 general ones of 8 bytes, `rip`, `eflags`, 6 segments, 8 registers of the FPU, its 8
/// control words, 16 of SSE, `mxcsr`, two segment bases, `orig_rax`.
const SIZE: usize = FPU_WORDS + 32 + 16 * 16 + 4 + 3 * 8;
const RIP: usize = 16 * 8;
const FLAGS: usize = RIP + 8;
const SEGMENTS: usize = FLAGS + 4;
const STACK: usize = SEGMENTS + 6 * 4;
const FPU_WORDS: usize = STACK + 8 * 10;
const SSE: usize = FPU_WORDS + 32;
const MXCSR: usize = SSE + 16 * 16;
const FS_BASE: usize = MXCSR + 4;
const GS_BASE: usize = FS_BASE + 8;
const ORIG_RAX: usize = GS_BASE + 8;

/// Selectors of user mode, which no program can change: that of `cs`, and that of the other segments.
const USER_CODE: u32 = 0x33;
const USER_DATA: u32 = 0x2b;

/// All registers of a thread, as bytes in GDB's order.
#[derive(Clone, PartialEq, Eq)]
pub struct All([u8; SIZE]);

impl Default for All {
    fn default() -> Self {
        All([0; SIZE])
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registers at {:#x}", self.pc())
    }
}

/// The general registers in GDB's order.
fn general(state: &mut ThreadState) -> [&mut u64; 16] {
    let r = &mut state.registers;
    [
        &mut r.rax, &mut r.rbx, &mut r.rcx, &mut r.rdx, &mut r.rsi, &mut r.rdi, &mut r.rbp,
        &mut r.rsp, &mut r.r8, &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13,
        &mut r.r14, &mut r.r15,
    ]
}

/// The tag word of the FPU, with two bits for each register; `fxsave` stores only one bit for each.
fn tags(fpu: &[u8; abi::state::FPU_BYTES]) -> u32 {
    let top = usize::from(fpu[3] >> 3 & 7);
    let mut tags = 0;
    for physical in 0..8 {
        let tag = if fpu[4] >> physical & 1 == 0 {
            3
        } else {
            let number = (physical + 8 - top) & 7;
            let value = &fpu[32 + 16 * number..][..10];
            let exponent = u16::from_le_bytes([value[8], value[9] & 0x7f]);
            let fraction = value[..8].iter().any(|byte| *byte != 0);
            match (exponent, value[7] & 0x80 != 0) {
                (0, _) if !fraction => 1,
                (0 | 0x7fff, _) | (_, false) => 2,
                _ => 0,
            }
        };
        tags |= tag << (2 * physical);
    }
    tags
}

impl All {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    fn half(&self, at: usize) -> u32 {
        self.word(at) as u32
    }

    /// The registers of a thread with this state.
    #[must_use]
    pub fn of(state: &ThreadState) -> Self {
        let (mut all, mut state) = (All::default(), *state);
        for (n, register) in general(&mut state).into_iter().enumerate() {
            all.put(8 * n, &register.to_le_bytes());
        }
        let r = &state.registers;
        all.put(RIP, &r.rip.to_le_bytes());
        let flags = (r.rflags & !SINGLE_STEP) as u32;
        all.put(FLAGS, &flags.to_le_bytes());
        all.put(SEGMENTS, &USER_CODE.to_le_bytes());
        for n in 1..6 {
            all.put(SEGMENTS + 4 * n, &USER_DATA.to_le_bytes());
        }
        let fpu = &state.fpu;
        for n in 0..8 {
            all.put(STACK + 10 * n, &fpu[32 + 16 * n..][..10]);
        }
        let half = |at: usize| u32::from(u16::from_le_bytes([fpu[at], fpu[at + 1]]));
        let whole =
            |at: usize| u32::from_le_bytes([fpu[at], fpu[at + 1], fpu[at + 2], fpu[at + 3]]);
        // fctrl fstat ftag fiseg fioff foseg fooff fop
        let words = [
            half(0),
            half(2),
            tags(fpu),
            whole(12),
            whole(8),
            whole(20),
            whole(16),
            half(6),
        ];
        for (n, word) in words.into_iter().enumerate() {
            all.put(FPU_WORDS + 4 * n, &word.to_le_bytes());
        }
        all.put(SSE, &fpu[160..160 + 256]);
        all.put(MXCSR, &fpu[24..28]);
        all.put(FS_BASE, &r.fs_base.to_le_bytes());
        all.put(GS_BASE, &r.gs_base.to_le_bytes());
        all.put(ORIG_RAX, &u64::MAX.to_le_bytes());
        all
    }

    /// Writes the registers into a thread's state. What a program cannot change stays as it is.
    pub fn put_into(&self, state: &mut ThreadState) {
        for (n, register) in general(state).into_iter().enumerate() {
            *register = self.word(8 * n);
        }
        let r = &mut state.registers;
        r.rip = self.word(RIP);
        let can = ROLES.user_flags & !SINGLE_STEP;
        let flags = u64::from(self.half(FLAGS));
        r.rflags = flags & can | r.rflags & SINGLE_STEP | ROLES.fixed_flags;
        r.fs_base = self.word(FS_BASE);
        r.gs_base = self.word(GS_BASE);
        let fpu = &mut state.fpu;
        for n in 0..8 {
            fpu[32 + 16 * n..][..10].copy_from_slice(&self.0[STACK + 10 * n..][..10]);
        }
        let word = |n: usize| self.half(FPU_WORDS + 4 * n).to_le_bytes();
        for (n, at) in [(0, 0), (1, 2), (7, 6)] {
            fpu[at..at + 2].copy_from_slice(&word(n)[..2]);
        }
        for (n, at) in [(3, 12), (4, 8), (5, 20), (6, 16)] {
            fpu[at..at + 4].copy_from_slice(&word(n));
        }
        let tags = self.half(FPU_WORDS + 8);
        fpu[4] = (0..8).fold(0, |in_use, n| {
            in_use | u8::from(tags >> (2 * n) & 3 != 3) << n
        });
        fpu[160..160 + 256].copy_from_slice(&self.0[SSE..MXCSR]);
        fpu[24..28].copy_from_slice(&self.0[MXCSR..FS_BASE]);
    }
}

impl Registers for All {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.word(RIP)
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        self.0.iter().for_each(|byte| write_byte(Some(*byte)));
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        self.0 = bytes.try_into().map_err(|_| ())?;
        Ok(())
    }
}

/// The architecture, for `gdbstub`.
#[derive(Debug)]
pub enum X86 {}

impl Arch for X86 {
    type Usize = u64;
    type Registers = All;
    type RegId = ();
    type BreakpointKind = usize;
}

/// The target description: XML that tells GDB which registers there are and in which order.
#[must_use]
pub fn description() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target><architecture>i386:x86-64</architecture>",
    );
    let open = |text: &mut String, name: &str| {
        text.push_str(&format!("<feature name=\"org.gnu.gdb.i386.{name}\">"));
    };
    let add = |text: &mut String, name: &str, bits: u32, kind: &str| {
        text.push_str(&format!(
            "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>"
        ));
    };
    open(&mut text, "core");
    for name in "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split(' ') {
        let kind = match name {
            "rbp" | "rsp" => "data_ptr",
            "rip" => "code_ptr",
            _ => "int64",
        };
        add(&mut text, name, 64, kind);
    }
    for name in "eflags cs ss ds es fs gs".split(' ') {
        add(&mut text, name, 32, "int32");
    }
    for n in 0..8 {
        add(&mut text, &format!("st{n}"), 80, "i387_ext");
    }
    for name in "fctrl fstat ftag fiseg fioff foseg fooff fop".split(' ') {
        add(&mut text, name, 32, "int");
    }
    text.push_str("</feature>");
    open(&mut text, "sse");
    let vectors = [
        ("v4f", "ieee_single", 4, "v4_float"),
        ("v2d", "ieee_double", 2, "v2_double"),
        ("v16i8", "int8", 16, "v16_int8"),
        ("v8i16", "int16", 8, "v8_int16"),
        ("v4i32", "int32", 4, "v4_int32"),
        ("v2i64", "int64", 2, "v2_int64"),
    ];
    for (id, kind, count, _) in vectors {
        text.push_str(&format!(
            "<vector id=\"{id}\" type=\"{kind}\" count=\"{count}\"/>"
        ));
    }
    text.push_str("<union id=\"vec128\">");
    for (id, _, _, field) in vectors {
        text.push_str(&format!("<field name=\"{field}\" type=\"{id}\"/>"));
    }
    text.push_str("<field name=\"uint128\" type=\"uint128\"/></union>");
    for n in 0..16 {
        add(&mut text, &format!("xmm{n}"), 128, "vec128");
    }
    add(&mut text, "mxcsr", 32, "int32");
    text.push_str("</feature>");
    open(&mut text, "segments");
    add(&mut text, "fs_base", 64, "int");
    add(&mut text, "gs_base", 64, "int");
    text.push_str("</feature>");
    open(&mut text, "linux");
    add(&mut text, "orig_rax", 64, "int");
    text.push_str("</feature></target>");
    text
}

#[cfg(test)]
mod tests {
    use super::{description, tags, All, RIP, SINGLE_STEP, SIZE};
    use abi::state::{initial_fpu, ThreadState};
    use gdbstub::arch::Registers;

    fn state() -> ThreadState {
        let mut state = ThreadState::default();
        let mut words = [0; abi::state::REGISTER_WORDS];
        for (n, word) in words.iter_mut().enumerate() {
            *word = 0x1111_2222_3333_0000 + n as u64;
        }
        state.registers = abi::Registers::from_words(&words);
        state.registers.rflags = 0x202 | SINGLE_STEP | 0x41;
        for (n, byte) in state.fpu.iter_mut().enumerate().skip(32).take(384) {
            *byte = n as u8;
        }
        state
    }

    #[test]
    fn what_is_read_can_be_written() {
        let before = state();
        let mut bytes = alloc::vec::Vec::new();
        All::of(&before).gdb_serialize(|byte| bytes.extend(byte));
        assert_eq!(bytes.len(), SIZE);
        assert_eq!(bytes[RIP..RIP + 8], before.registers.rip.to_le_bytes());
        let mut after = ThreadState {
            fpu: initial_fpu(),
            ..before
        };
        after.registers = abi::Registers::default();
        after.registers.rflags = 0x202 | SINGLE_STEP;
        let mut all = All::default();
        all.gdb_deserialize(&bytes).expect("all of them");
        all.put_into(&mut after);
        // The six bytes behind each register of the FPU are unused.
        for n in 0..8 {
            let unused = 42 + 16 * n..48 + 16 * n;
            after.fpu[unused.clone()].copy_from_slice(&before.fpu[unused]);
        }
        assert_eq!(after, before);
        assert!(all.gdb_deserialize(&bytes[1..]).is_err());
    }

    #[test]
    fn a_program_gets_no_flags_that_it_cannot_have() {
        let mut state = state();
        state.registers.rflags = 0x202;
        let mut all = All::of(&state);
        all.put(super::FLAGS, &u32::MAX.to_le_bytes());
        all.put_into(&mut state);
        assert_eq!(
            state.registers.rflags,
            abi::x86_64::ROLES.user_flags & !SINGLE_STEP | 0x202
        );
    }

    #[test]
    fn tags_tell_what_a_register_holds() {
        let mut fpu = initial_fpu();
        assert_eq!(tags(&fpu), 0xffff);
        // Top is 6: st0 is register 6 and holds 1.0, st1 is register 7 and holds 0.
        fpu[3] = 6 << 3;
        fpu[4] = 0xc0;
        fpu[32..42].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
        assert_eq!(tags(&fpu), 0x4fff);
    }

    #[test]
    fn the_description_has_all_bytes() {
        let text = description();
        let bits = text.split("bitsize=\"").skip(1);
        let bits: usize = bits
            .map(|rest| {
                rest.split('"')
                    .next()
                    .expect("a number")
                    .parse::<usize>()
                    .expect("bits")
            })
            .sum();
        assert_eq!(bits, 8 * SIZE);
    }
}
