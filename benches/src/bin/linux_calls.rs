//! Calls of a Linux program: `linux_calls [FILTER]` runs a program that makes one call repeatedly, with one run for
//! each row.
//!
//! The program is generated here, so that a number is the cost of the call, without that of a library: an ELF file of
//! one segment, whose first words select the loop and the number of turns. It warms up, marks the stretch, and writes
//! the time stamps and the clock of the beginning and the end to its output.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use benches::loops::{self, Block};
use benches::report::{Outcome, Report, Sample};
use benches::run::Must;
use core::arch::global_asm;
use rt::process::{Client, Start, Status, Stdio};

rt::entry!(main);

/// The program.
const PROGRAM: &str = "/tmp/linux-calls";
/// A file of 64 KB that it uses.
const FILE: &str = "/tmp/linux-calls.data";
/// A directory of as many files that it lists.
const DIRECTORY: (&str, u32) = ("/tmp/linux-calls.d", 64);
/// A program that it executes, which exits.
const EXIT: &str = "/tmp/linux-calls.exit";
/// The file of its output.
const OUTPUT: &str = "/tmp/linux-calls.out";
/// The address at which the program is loaded.
const BASE: u64 = 0x40_0000;
/// Bytes of its memory beyond the program.
const SPACE: u64 = 0x8000;

/// The rows, and how often each does its work in the stretch; in the order of the table of loops in the program.
const ROWS: &[(&str, u64)] = &[
    ("linux_getppid", 1000),
    ("linux_clock", 1000),
    ("linux_lseek", 1000),
    ("linux_write_null", 1000),
    ("linux_pread_1", 500),
    ("linux_pread_4096", 500),
    ("linux_fstat", 500),
    ("linux_stat", 500),
    ("linux_open_close", 200),
    ("linux_signal", 200),
    ("linux_pipe", 200),
    ("linux_fork", 20),
    ("linux_vfork", 20),
    ("linux_clock_vdso", 1000),
    ("linux_write_512", 500),
    ("linux_getdents", 50),
    ("linux_exec", 20),
];

global_asm!(
    r#"
    .section .rodata
    .balign 16
    .globl fermata_linux
fermata_linux:
    .quad 0                                 // which loop
    .quad 0                                 // how often
    .set L_TIMES, fermata_linux_end - fermata_linux + 0x100
    .set L_BUFFER, L_TIMES + 0x1000

    // A Linux call: its result must not be an error.
    .macro linux number
    mov eax, \number
    syscall
    test rax, rax
    js fermata_linux_failed
    .endm

    // Calls the setup of the selected loop, then the loop: a few turns to warm up, and the wanted number in a marked
    // stretch. A loop is a function that preserves rbx and r12 to r15; rbx is the address of this program, rbp the
    // initial stack, r12 is for the setup.
    .globl fermata_linux_entry
fermata_linux_entry:
    mov rbp, rsp
    lea rbx, [rip + fermata_linux]
    lea r13, [rip + 3f]
    mov rax, [rbx]
    movsxd rax, dword ptr [r13 + rax * 4]
    add r13, rax                            // the loop's setup; it leaves the loop in r15
    call r13
    mov r14d, 8
30: call r15
    dec r14
    jnz 30b
    lea rsi, [rbx + L_TIMES + 16]
    call 4f
    mov r14, [rbx + 8]
    .byte 0x0f, 0x1f, 0x80                  // mark 1, as in the library's loops
    .long 0x4d524601
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [rbx + L_TIMES], rax
2:  call r15
    dec r14
    jnz 2b
    rdtsc
    shl rdx, 32
    or rax, rdx
    .byte 0x0f, 0x1f, 0x80                  // mark 2
    .long 0x4d524602
    mov [rbx + L_TIMES + 8], rax
    lea rsi, [rbx + L_TIMES + 32]
    call 4f
    mov edi, 1                              // write
    lea rsi, [rbx + L_TIMES]
    mov edx, 48
    linux 1
    xor edi, edi
    mov eax, 231                            // exit_group
    syscall
fermata_linux_failed:
    mov edi, 1
    mov eax, 231
    syscall
    // The clock, stored at rsi.
4:  mov edi, 1
    linux 228
    ret

    // Opens the file; its descriptor in r12.
5:  mov edi, -100
    lea rsi, [rip + 6f]
    xor edx, edx
    linux 257                               // openat
    mov r12, rax
    ret
6:  .asciz "/tmp/linux-calls.data"
7:  .asciz "/dev/null"
    .balign 4

3:  .long 31f - 3b, 32f - 3b, 12f - 3b, 13f - 3b, 14f - 3b, 15f - 3b, 16f - 3b, 17f - 3b, 18f - 3b, 19f - 3b
    .long 20f - 3b, 21f - 3b, 22f - 3b, 33f - 3b, 40f - 3b, 41f - 3b, 43f - 3b

31: lea r15, [rip + 8f]                     // getppid
    ret
8:  linux 110
    ret

32: lea r15, [rip + 8f]                     // clock_gettime
    ret
8:  mov edi, 1
    lea rsi, [rbx + L_BUFFER]
    linux 228
    ret

12: lea r15, [rip + 8f]                     // lseek
    jmp 5b
8:  mov rdi, r12
    xor esi, esi
    xor edx, edx
    linux 8
    ret

13: mov edi, -100                           // write of a byte to /dev/null
    lea rsi, [rip + 7b]
    mov edx, 1
    linux 257
    mov r12, rax
    lea r15, [rip + 8f]
    ret
8:  mov rdi, r12
    lea rsi, [rbx + L_BUFFER]
    mov edx, 1
    linux 1
    ret

14: lea r15, [rip + 8f]                     // pread of a byte
    jmp 5b
8:  mov edx, 1
    jmp 23f

15: lea r15, [rip + 8f]                     // pread of 4,096 bytes
    jmp 5b
8:  mov edx, 4096
23: mov rdi, r12
    lea rsi, [rbx + L_BUFFER]
    xor r10d, r10d
    linux 17
    ret

16: lea r15, [rip + 8f]                     // fstat
    jmp 5b
8:  mov rdi, r12
    lea rsi, [rbx + L_BUFFER]
    linux 5
    ret

17: lea r15, [rip + 8f]                     // stat
    ret
8:  lea rdi, [rip + 6b]
    lea rsi, [rbx + L_BUFFER]
    linux 4
    ret

18: lea r15, [rip + 8f]                     // open and close
    ret
8:  call 5b
    mov rdi, r12
    linux 3
    ret

19: lea rax, [rip + 24f]                    // a signal to itself: rt_sigaction with SA_RESTORER
    mov [rbx + L_BUFFER], rax
    mov qword ptr [rbx + L_BUFFER + 8], 0x04000000
    lea rax, [rip + 25f]
    mov [rbx + L_BUFFER + 16], rax
    mov qword ptr [rbx + L_BUFFER + 24], 0
    mov edi, 10
    lea rsi, [rbx + L_BUFFER]
    xor edx, edx
    mov r10d, 8
    linux 13
    linux 39                                // getpid
    mov r12, rax
    lea r15, [rip + 8f]
    ret
8:  mov rdi, r12
    mov esi, 10
    linux 62                                // kill
    ret
24: ret
25: mov eax, 15                             // rt_sigreturn
    syscall

20: lea rdi, [rbx + L_BUFFER]               // a byte through two pipes and back
    xor esi, esi
    linux 293                               // pipe2
    lea rdi, [rbx + L_BUFFER + 8]
    xor esi, esi
    linux 293
    linux 57                                // fork
    test eax, eax
    jz 26f
    // The other ends are the child's: it ends when this process has ended.
    mov edi, [rbx + L_BUFFER]
    linux 3
    mov edi, [rbx + L_BUFFER + 12]
    linux 3
    lea r15, [rip + 8f]
    ret
8:  mov edi, [rbx + L_BUFFER + 4]
    lea rsi, [rbx + L_BUFFER + 16]
    mov edx, 1
    linux 1
    mov edi, [rbx + L_BUFFER + 8]
    lea rsi, [rbx + L_BUFFER + 16]
    mov edx, 1
    linux 0
    ret
26: mov edi, [rbx + L_BUFFER + 4]
    linux 3
    mov edi, [rbx + L_BUFFER + 8]
    linux 3
27: mov edi, [rbx + L_BUFFER]
    lea rsi, [rbx + L_BUFFER + 16]
    mov edx, 1
    linux 0
    test eax, eax
    jz 28f
    mov edi, [rbx + L_BUFFER + 12]
    lea rsi, [rbx + L_BUFFER + 16]
    mov edx, 1
    linux 1
    jmp 27b
28: xor edi, edi
    mov eax, 231
    syscall

21: lea r15, [rip + 8f]                     // fork, exit, wait
    ret
8:  linux 57
29: test eax, eax
    jz 28b
    mov edi, -1
    xor esi, esi
    xor edx, edx
    xor r10d, r10d
    linux 61                                // wait4
    ret

22: lea r15, [rip + 8f]                     // vfork, exit, wait
    ret
8:  mov eax, 58
    syscall
    test rax, rax
    js fermata_linux_failed
    jmp 29b

33: lea rsi, [rbp + 8]                      // clock_gettime without a call; past arguments and environment
    cld
34: lodsq
    test rax, rax
    jnz 34b
35: lodsq
    test rax, rax
    jnz 35b
36: lodsq                                   // the vDSO's address
    mov rdx, rax
    lodsq
    test rdx, rdx
    jz fermata_linux_failed
    cmp rdx, 33
    jne 36b
    mov r12, rax
    mov rdi, [r12 + 64 + 56 + 16]           // its dynamic section, whose segment is the second one
    add rdi, r12
37: mov rax, [rdi]
    cmp rax, 5
    cmove rcx, [rdi + 8]                    // strings
    cmp rax, 6
    cmove rdx, [rdi + 8]                    // symbols
    add rdi, 16
    test rax, rax
    jnz 37b
    add rcx, r12
    add rdx, r12
38: add rdx, 24                             // the one that is called so
    mov eax, [rdx]
    mov r8, 0x65675f6b636f6c63              // clock_ge
    cmp r8, [rcx + rax + 7]
    jne 38b
    cmp dword ptr [rcx + rax + 15], 0x6d697474
    jne 38b
    add r12, [rdx + 8]
    lea r15, [rip + 8f]
    ret
8:  mov edi, 1
    lea rsi, [rbx + L_BUFFER]
    call r12
    test eax, eax
    jnz fermata_linux_failed
    ret

40: mov edi, -100                           // pwrite of 512 bytes
    lea rsi, [rip + 6b]
    mov edx, 2
    linux 257
    mov r12, rax
    lea r15, [rip + 8f]
    ret
8:  mov rdi, r12
    lea rsi, [rbx + L_BUFFER]
    mov edx, 512
    xor r10d, r10d
    linux 18
    ret

41: mov edi, -100                           // a directory of 64 files, from the beginning
    lea rsi, [rip + 42f]
    xor edx, edx
    linux 257
    mov r12, rax
    lea r15, [rip + 8f]
    ret
8:  mov rdi, r12
    xor esi, esi
    xor edx, edx
    linux 8
9:  mov rdi, r12
    lea rsi, [rbx + L_BUFFER]
    mov edx, 4096
    linux 217
    test eax, eax
    jnz 9b
    ret
42: .asciz "/tmp/linux-calls.d"

43: lea r15, [rip + 8f]                     // vfork, execve, exit, wait
    ret
8:  mov eax, 58
    syscall
    test rax, rax
    js fermata_linux_failed
    jnz 29b
    lea rdi, [rip + 44f]
    mov [rbx + L_BUFFER], rdi
    mov [rbx + L_BUFFER + 8], rax
    lea rsi, [rbx + L_BUFFER]
    xor edx, edx
    linux 59
44: .asciz "/tmp/linux-calls.exit"

    .globl fermata_linux_end
fermata_linux_end:
    .text
"#
);

extern "C" {
    static fermata_linux: u8;
    static fermata_linux_entry: u8;
    static fermata_linux_end: u8;
}

/// Bytes of headers of an ELF file with one segment.
const HEADERS: u64 = 64 + 56;

/// An ELF file with one segment that may be read, written and executed, and begins with two words, which code without
/// parameters does not use.
fn file(words: [u64; 2], code: &[u8], entry: u64) -> Vec<u8> {
    let entry = BASE + HEADERS + entry;
    let length = HEADERS + 16 + code.len() as u64;
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // An executable for x86-64; its entry, the offset of the program headers, and their number.
    file.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [entry, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // A loadable segment with all rights.
    file.extend_from_slice(&[1, 0, 0, 0, 7, 0, 0, 0]);
    for word in [0, BASE, BASE, length, length + SPACE, 4096] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for word in words {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(code);
    file
}

/// A program that exits with 0.
fn exits() -> Vec<u8> {
    // xor edi, edi; mov eax, 231; syscall
    file([0; 2], &[0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05], 16)
}

/// The program.
fn program(row: usize, count: u64) -> Vec<u8> {
    let (begin, end) = (&raw const fermata_linux, &raw const fermata_linux_end);
    // SAFETY: the assembly code above lies between the two, and is never written.
    let code = unsafe { core::slice::from_raw_parts(begin, end as usize - begin as usize) };
    let entry = &raw const fermata_linux_entry as u64 - begin as u64;
    file([row as u64, count], &code[16..], entry)
}

/// Runs a row; afterwards the block has the measurements.
fn run(row: usize, count: u64) -> Outcome {
    let linux = Client::new("linux").must("the Linux personality")?;
    rt::fs::write_all(PROGRAM, &program(row, count), 0o755).must("the program")?;
    rt::fs::write_all(FILE, &[7; 64 << 10], 0o644).must("the file")?;
    rt::fs::write_all(EXIT, &exits(), 0o755).must("the program that exits")?;
    let (directory, files) = DIRECTORY;
    match rt::fs::mkdir(directory, 0o755) {
        Ok(()) => {
            for file in 0..files {
                let path = format!("{directory}/file-{file}");
                rt::fs::write_all(&path, &[], 0o644).must("a file to be listed")?;
            }
        }
        // An earlier row has made it.
        Err(proto::Error::Exists) => {}
        error => error.must("the directory")?,
    }
    let output = Stdio::File {
        path: OUTPUT.to_string(),
        append: false,
    };
    let start = Start {
        args: Vec::from([PROGRAM.to_string()]),
        env: Vec::new(),
        stdio: Vec::from([Stdio::Null, output, Stdio::Console]),
        cwd: "/".to_string(),
    };
    let process = linux.spawn(PROGRAM, &start, &[]).must("spawn")?;
    process.ended().must("its end")?;
    let status = process.reap().must("its status")?;
    if status != Status::Exited(0) {
        return Err(format!("it ended with {status:?}"));
    }
    let said = rt::fs::read_all(OUTPUT).must("its output")?;
    let words: Vec<u64> = said
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let [first, last, begin, begin_ns, end, end_ns] = words[..] else {
        return Err(format!("it wrote {} bytes", said.len()));
    };
    let seconds = 1_000_000_000;
    let block = loops::block();
    loops::set_block(Block {
        ticks: [first, last],
        clock: [begin * seconds + begin_ns, end * seconds + end_ns],
        marks: block.marks + 1,
        ..block
    });
    Ok(Sample::of_block(count))
}

fn main() -> u8 {
    let report = Report::from_arguments();
    let mut good = true;
    for (row, (name, count)) in ROWS.iter().enumerate() {
        good &= report.bench(name, "call", || run(row, *count));
    }
    u8::from(!good)
}
