//! What an instruction does to the memory operand with which it has met a watched page: how many bytes it reads or
//! writes.
//!
//! The processor reports the first address of a failed access, not its length. The length follows from the opcode, as
//! in the opcode maps of the processor's manuals. For an instruction that is not in this module's tables (vectors
//! beyond SSE's and AVX's first map, `xsave`) [`of`] returns `None`, and only the first byte of the access is known.
use abi::access::{READ, WRITE};

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;

/// What an instruction does with its operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Size in bytes.
    pub size: u64,
    /// Rights of [`abi::access`]: read, write or both.
    pub access: u64,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The first byte.
    pub address: u64,
    /// How many bytes are accessed, and how.
    pub operand: Operand,
}

const BOTH: u64 = READ | WRITE;

const fn op(size: u64, access: u64) -> Option<Operand> {
    Some(Operand { size, access })
}

/// The prefixes of an instruction, and the operand sizes that follow from them.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    wide: bool,
    half: bool,
    /// 0xf2 or 0xf3; 0 for neither.
    repeat: u8,
    /// The length of vectors in bytes: 16 or 32.
    vector: u64,
}

impl Prefixes {
    /// The operand's size in bytes for an opcode whose low bit is clear if the operand is a byte.
    const fn size(self, opcode: u8) -> u64 {
        match (opcode & 1, self.wide, self.half) {
            (0, ..) => 1,
            (_, true, _) => 8,
            (_, _, true) => 2,
            _ => 4,
        }
    }

    const fn word(self) -> u64 {
        self.size(1)
    }

    /// The size in bytes of a vector, or of the scalar that the prefix selects.
    const fn scalar(self) -> u64 {
        match self.repeat {
            0xf3 => 4,
            0xf2 => 8,
            _ => self.vector,
        }
    }

    /// The size in bytes of an SSE vector (prefix 0x66) or an MMX one (no prefix).
    const fn packed(self) -> u64 {
        match self.half {
            true => self.vector,
            false => 8,
        }
    }
}

/// Decodes the instruction at the start of `code`: the opcode map (0: one byte, 1: behind 0x0f, 2: behind a VEX
/// prefix), the opcode, the byte behind the opcode, and the prefixes.
fn opcode(code: &[u8]) -> Option<(u8, u8, u8, Prefixes)> {
    let mut prefixes = Prefixes {
        vector: 16,
        ..Prefixes::default()
    };
    let mut bytes = code.iter().copied().chain([0]);
    let mut byte = bytes.next()?;
    loop {
        match byte {
            0x66 => prefixes.half = true,
            0xf2 | 0xf3 => prefixes.repeat = byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 => {}
            _ => break,
        }
        byte = bytes.next()?;
    }
    if byte & 0xf0 == 0x40 {
        prefixes.wide = byte & 8 != 0;
        byte = bytes.next()?;
    }
    let map = match byte {
        0x0f => {
            byte = bytes.next()?;
            1
        }
        0xc4 | 0xc5 => {
            let mut last = bytes.next()?;
            if byte == 0xc4 {
                if last & 0x1f != 1 {
                    return None;
                }
                last = bytes.next()?;
                prefixes.wide = last & 0x80 != 0;
            }
            prefixes.vector = if last & 4 == 0 { 16 } else { 32 };
            prefixes.half = last & 3 == 1;
            prefixes.repeat = [0, 0, 0xf3, 0xf2][usize::from(last & 3)];
            byte = bytes.next()?;
            // A map of its own, since VEX has no MMX forms.
            2
        }
        _ => 0,
    };
    Some((map, byte, bytes.next()?, prefixes))
}

/// What the instruction does with its operand in memory. If there are two, that is the one which is not on the stack.
#[must_use]
pub fn of(code: &[u8]) -> Option<Operand> {
    let (map, opcode, modrm, p) = opcode(code)?;
    match map {
        0 => first(opcode, modrm >> 3 & 7, p),
        map => second(opcode, modrm >> 3 & 7, p, map == 2),
    }
}

fn first(opcode: u8, extension: u8, p: Prefixes) -> Option<Operand> {
    let size = p.size(opcode);
    match opcode {
        0x38..=0x3b | 0x84 | 0x85 | 0x8a | 0x8b | 0xa6 | 0xa7 | 0xac..=0xaf => op(size, READ),
        0x00..=0x3f if opcode & 7 < 2 => op(size, BOTH),
        0x00..=0x3f if opcode & 7 < 4 => op(size, READ),
        0x50..=0x57 | 0x68 | 0x6a | 0x8f | 0x9c | 0xe8 => op(8, WRITE),
        0x58..=0x5f | 0x9d | 0xc2 | 0xc3 | 0xc9 => op(8, READ),
        0x63 => op(4, READ),
        0x69 | 0x6b => op(p.word(), READ),
        0x80..=0x83 if extension == 7 => op(size, READ),
        0x80..=0x83 | 0x86 | 0x87 | 0xc0 | 0xc1 | 0xd0..=0xd3 => op(size, BOTH),
        0x88 | 0x89 | 0xaa | 0xab | 0xc6 | 0xc7 => op(size, WRITE),
        0x8c => op(2, WRITE),
        0x8e => op(2, READ),
        0xd7 => op(1, READ),
        0xd8..=0xdf => float(opcode, extension),
        0xf6 | 0xf7 if matches!(extension, 2 | 3) => op(size, BOTH),
        0xf6 | 0xf7 => op(size, READ),
        0xfe => op(1, BOTH),
        0xff if extension < 2 => op(size, BOTH),
        0xff => op(8, READ),
        _ => None,
    }
}

/// The operand of an instruction of the x87 (opcodes 0xd8 to 0xdf).
fn float(opcode: u8, extension: u8) -> Option<Operand> {
    match (opcode, extension) {
        (0xd8 | 0xda, _) | (0xd9 | 0xdb, 0) => op(4, READ),
        (0xd9, 2 | 3) | (0xdb, 1..=3) => op(4, WRITE),
        (0xd9, 4) => op(28, READ),
        (0xd9, 6) => op(28, WRITE),
        (0xd9, 5) | (0xde, _) | (0xdf, 0) => op(2, READ),
        (0xd9 | 0xdd, 7) | (0xdf, 1..=3) => op(2, WRITE),
        (0xdb, 5) | (0xdf, 4) => op(10, READ),
        (0xdb, 7) | (0xdf, 6) => op(10, WRITE),
        (0xdc, _) | (0xdd, 0) | (0xdf, 5) => op(8, READ),
        (0xdd, 1..=3) | (0xdf, 7) => op(8, WRITE),
        (0xdd, 4) => op(108, READ),
        (0xdd, 6) => op(108, WRITE),
        _ => None,
    }
}

/// The operand of an instruction in the map behind 0x0f, or in the same map behind a VEX prefix (`avx`).
fn second(opcode: u8, extension: u8, p: Prefixes, avx: bool) -> Option<Operand> {
    let size = p.size(opcode);
    let packed = if avx { p.vector } else { p.packed() };
    match (opcode, p.repeat) {
        (0x10 | 0x51..=0x53 | 0x58 | 0x59 | 0x5c..=0x5f | 0xc2, _) => op(p.scalar(), READ),
        (0x11, _) => op(p.scalar(), WRITE),
        (0x12 | 0x16, 0xf3) => op(p.vector, READ),
        (0x12, 0xf2) if avx => op(p.vector, READ),
        (0x12 | 0x16, _) => op(8, READ),
        (0x13 | 0x17, _) => op(8, WRITE),
        (0x14 | 0x15 | 0x28 | 0x54..=0x57 | 0x5b | 0xc6, _) => op(p.vector, READ),
        (0x29 | 0x2b, _) => op(p.vector, WRITE),
        (0x2a, 0xf2 | 0xf3) => op(p.word(), READ),
        (0x2a, _) => op(8, READ),
        (0x2c | 0x2d, 0) if p.half => op(16, READ),
        (0x2c | 0x2d | 0x5a, 0xf3) => op(4, READ),
        (0x2c | 0x2d | 0x5a, 0xf2) => op(8, READ),
        (0x5a, _) if p.half => op(p.vector, READ),
        (0x2c | 0x2d | 0x5a, _) => op(if avx { p.vector / 2 } else { 8 }, READ),
        (0x2e | 0x2f, _) => op(if p.half { 8 } else { 4 }, READ),
        (0x40..=0x4f | 0xa3 | 0xaf | 0xb8 | 0xbc | 0xbd, _) if !avx => op(p.word(), READ),
        (0x6e, _) => op(if p.wide { 8 } else { 4 }, READ),
        (0x7e, 0xf3) => op(8, READ),
        (0x7e | 0xc3, _) => op(if p.wide { 8 } else { 4 }, WRITE),
        (0x6f | 0x70 | 0xe6 | 0xf0, 0xf2 | 0xf3) if opcode != 0xe6 || p.repeat == 0xf2 => {
            op(p.vector, READ)
        }
        (0xe6, 0xf3) => op(p.vector / 2, READ),
        (0x7f, 0xf3) => op(p.vector, WRITE),
        (0x7f | 0xe7, _) => op(packed, WRITE),
        (0xd6, _) => op(8, WRITE),
        (0xc4, _) => op(2, READ),
        (0x60..=0x62, 0) if !p.half && !avx => op(4, READ),
        (0x60..=0x70 | 0x74..=0x76 | 0x7c | 0x7d | 0xd0..=0xfe, _) => op(packed, READ),
        (0x90..=0x9f, _) => op(1, WRITE),
        (0xa4 | 0xa5 | 0xab | 0xac | 0xad | 0xb3 | 0xbb, _) => op(p.word(), BOTH),
        (0xae, 0) => match extension {
            0 => op(512, WRITE),
            1 => op(512, READ),
            2 => op(4, READ),
            3 => op(4, WRITE),
            _ => None,
        },
        (0xb0 | 0xb1 | 0xc0 | 0xc1, _) => op(size, BOTH),
        (0xb6 | 0xbe, _) => op(1, READ),
        (0xb7 | 0xbf, _) => op(2, READ),
        (0xba, _) if extension == 4 => op(p.word(), READ),
        (0xba, _) => op(p.word(), BOTH),
        (0xc7, _) if extension == 1 => op(if p.wide { 16 } else { 8 }, BOTH),
        _ => None,
    }
}

/// The accesses of an instruction that has met a watched page at the address `met`, as far as they are known: `met`
/// first, then what a string or stack instruction accesses elsewhere. `registers`: `rsi`, `rdi` and `rsp`.
#[must_use]
pub fn all(code: &[u8], met: u64, [rsi, rdi, rsp]: [u64; 3]) -> [Option<Access>; 2] {
    let one = |address, size, access| {
        let operand = Operand { size, access };
        Some(Access { address, operand })
    };
    let Some((map, opcode, modrm, p)) = opcode(code) else {
        return [one(met, 1, BOTH), None];
    };
    let size = p.size(opcode);
    match (map, opcode, modrm >> 3 & 7) {
        (0, 0xa4 | 0xa5, _) => [one(rsi, size, READ), one(rdi, size, WRITE)],
        (0, 0xa6 | 0xa7, _) => [one(rsi, size, READ), one(rdi, size, READ)],
        (0, 0x8f, 0) if met == rsp => [one(rsp, 8, READ), None],
        (0, 0x8f, 0) => [one(met, 8, WRITE), one(rsp, 8, READ)],
        (0, 0xff, 2 | 6) => {
            let pushed = one(rsp.wrapping_sub(8), 8, WRITE);
            // If `met` is where the push writes, the other operand is a register or in a page that is not watched.
            let read =
                one(met, 8, READ).filter(|read| Some(read.address) != pushed.map(|a| a.address));
            match read {
                Some(_) => [read, pushed],
                None => [pushed, None],
            }
        }
        _ => match of(code) {
            Some(operand) => [one(met, operand.size, operand.access), None],
            None => [one(met, 1, BOTH), None],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{all, of, Access, Operand, BOTH};
    use abi::access::{READ, WRITE};

    #[test]
    fn operands_are_as_long_as_the_processor_says() {
        let known: [(&[u8], u64, u64); 34] = [
            (&[0x48, 0x89, 0x07], 8, WRITE),             // mov [rdi], rax
            (&[0x89, 0x07], 4, WRITE),                   // mov [rdi], eax
            (&[0x66, 0x89, 0x07], 2, WRITE),             // mov [rdi], ax
            (&[0x41, 0x88, 0x00], 1, WRITE),             // mov [r8], al
            (&[0x48, 0x8b, 0x07], 8, READ),              // mov rax, [rdi]
            (&[0x0f, 0xb6, 0x07], 1, READ),              // movzx eax, byte [rdi]
            (&[0x48, 0x63, 0x07], 4, READ),              // movsxd rax, [rdi]
            (&[0x01, 0x07], 4, BOTH),                    // add [rdi], eax
            (&[0x03, 0x07], 4, READ),                    // add eax, [rdi]
            (&[0x39, 0x07], 4, READ),                    // cmp [rdi], eax
            (&[0x48, 0x83, 0x3f, 0x05], 8, READ),        // cmp qword [rdi], 5
            (&[0x48, 0x83, 0x07, 0x05], 8, BOTH),        // add qword [rdi], 5
            (&[0xf0, 0x48, 0xff, 0x07], 8, BOTH),        // lock inc qword [rdi]
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x07], 8, BOTH),  // lock xadd [rdi], rax
            (&[0xf0, 0x0f, 0xb1, 0x0f], 4, BOTH),        // lock cmpxchg [rdi], ecx
            (&[0xf0, 0x48, 0x0f, 0xc7, 0x0f], 16, BOTH), // lock cmpxchg16b [rdi]
            (&[0x48, 0x87, 0x07], 8, BOTH),              // xchg [rdi], rax
            (&[0x48, 0xc7, 0x07, 1, 0, 0, 0], 8, WRITE), // mov qword [rdi], 1
            (&[0x55], 8, WRITE),                         // push rbp
            (&[0xc3], 8, READ),                          // ret
            (&[0xf3, 0xaa], 1, WRITE),                   // rep stosb
            (&[0xf3, 0x48, 0xab], 8, WRITE),             // rep stosq
            (&[0x0f, 0x11, 0x07], 16, WRITE),            // movups [rdi], xmm0
            (&[0xf3, 0x0f, 0x11, 0x07], 4, WRITE),       // movss [rdi], xmm0
            (&[0xf2, 0x0f, 0x10, 0x07], 8, READ),        // movsd xmm0, [rdi]
            (&[0xf3, 0x0f, 0x6f, 0x07], 16, READ),       // movdqu xmm0, [rdi]
            (&[0x66, 0x0f, 0x7f, 0x07], 16, WRITE),      // movdqa [rdi], xmm0
            (&[0x66, 0x48, 0x0f, 0x7e, 0x07], 8, WRITE), // movq [rdi], xmm0
            (&[0x66, 0x0f, 0xd6, 0x07], 8, WRITE),       // movq [rdi], xmm0
            (&[0xc5, 0xfe, 0x6f, 0x07], 32, READ),       // vmovdqu ymm0, [rdi]
            (&[0xc5, 0xf8, 0x11, 0x07], 16, WRITE),      // vmovups [rdi], xmm0
            (&[0xdd, 0x1f], 8, WRITE),                   // fstp qword [rdi]
            (&[0xdb, 0x2f], 10, READ),                   // fld tword [rdi]
            (&[0x0f, 0xae, 0x07], 512, WRITE),           // fxsave [rdi]
        ];
        for (code, size, access) in known {
            assert_eq!(of(code), Some(Operand { size, access }), "{code:x?}");
        }
        // xsave [rdi], vpmovzx, and two incomplete instructions.
        let unknown: [&[u8]; 4] = [
            &[0x0f, 0xae, 0x27],
            &[0xc4, 0xe2, 0x7d, 0x30, 0x07],
            &[],
            &[0x66],
        ];
        for code in unknown {
            assert_eq!(of(code), None, "{code:x?}");
        }
    }

    #[test]
    fn some_instructions_are_at_two_places() {
        let at = |address, size, access| {
            let operand = Operand { size, access };
            Some(Access { address, operand })
        };
        let registers = [0x100, 0x200, 0x300];
        let movs = [at(0x100, 1, READ), at(0x200, 1, WRITE)];
        assert_eq!(all(&[0xf3, 0xa4], 0x200, registers), movs);
        let push = [at(0x900, 8, READ), at(0x2f8, 8, WRITE)];
        assert_eq!(all(&[0xff, 0x37], 0x900, registers), push);
        let call = [at(0x2f8, 8, WRITE), None];
        assert_eq!(all(&[0xff, 0xd0], 0x2f8, registers), call);
        let mov = [at(0x900, 4, WRITE), None];
        assert_eq!(all(&[0x89, 0x07], 0x900, registers), mov);
        // Of a system call, or an unknown instruction, only the first byte is known.
        let syscall = [at(0x900, 1, BOTH), None];
        assert_eq!(all(&[0x0f, 0x05], 0x900, registers), syscall);
    }
}
