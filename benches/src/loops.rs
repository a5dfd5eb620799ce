//! The measured loops.
//!
//! They are written by hand so that a number is the cost of the calls, without that of a compiled wrapper. A loop has
//! the instructions of its work and one addition that sums up the result codes and lengths, so that a failed call is
//! noticed.
//!
//! A loop finds its parameters in [`Block`] (at [`block()`]), which it can reach from every space,
//! runs the given number of passes, each of which begins and ends with a marker and a time stamp,
//! then interrupts the thread that waits for it, and parks. A server's loop has no end.
use abi::Call;
use core::arch::global_asm;

/// What the loops read and write; one measurement at a time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Block {
    /// Operations of one pass.
    pub repetitions: u64,
    /// Time stamps of the last pass.
    pub ticks: [u64; 2],
    /// The space's clock before and after the last pass.
    pub clock: [u64; 2],
    /// Passes left.
    pub passes: u64,
    /// A reference to the thread to interrupt.
    pub waiter: u64,
    /// The sum of the result codes, and the last word received.
    pub seen: [u64; 2],
    /// Stretches marked since this was last set to 0.
    pub marks: u64,
    /// Unused, so that the parameters begin at a cache line.
    pub reserved: [u64; 6],
    /// Parameters of the first loop.
    pub first: [u64; 8],
    /// Parameters of the second loop.
    pub second: [u64; 8],
    /// Parameters of the third loop.
    pub third: [u64; 8],
}

const _: () = assert!(core::mem::size_of::<Block>() == BLOCK);
const _: () = assert!(core::mem::offset_of!(Block, first) == 128);
/// Bytes of a block.
const BLOCK: usize = 320;

global_asm!(
    r#"
    .bss
    .balign 64
    .hidden fermata_bench
    .globl fermata_bench
fermata_bench:
    .zero {block}
    .text

    .set REPETITIONS, 0
    .set TICKS, 8
    .set CLOCK, 24
    .set PASSES, 40
    .set WAITER, 48
    .set SEEN, 56
    .set MARKS, 72
    .set FIRST, 128
    .set SECOND, 192
    .set THIRD, 256

    // The nops that the plugin looks for: the displacement is the kind of mark.
    .macro mark kind
    .byte 0x0f, 0x1f, 0x80
    .long 0x4d524600 + \kind
    .endm

    // A pass begins. Uses rax, rcx, rdx, rdi, r11.
    .macro bench_begin
    mov eax, {clock_get}
    syscall
    mov [rip + fermata_bench + CLOCK], rdi
    inc qword ptr [rip + fermata_bench + MARKS]
    mark 1
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [rip + fermata_bench + TICKS], rax
    .endm

    // The measured stretch ends. Uses rax, rdx.
    .macro bench_stop
    rdtsc
    shl rdx, 32
    or rax, rdx
    mark 2
    mov [rip + fermata_bench + TICKS + 8], rax
    .endm

    // Another pass from `label` on, or the end. Uses rax, rcx, rdi, r11.
    .macro bench_again label
    mov eax, {clock_get}
    syscall
    mov [rip + fermata_bench + CLOCK + 8], rdi
    dec qword ptr [rip + fermata_bench + PASSES]
    jnz \label
    mov rdi, [rip + fermata_bench + WAITER]
    mov eax, {interrupt}
    syscall
    jmp fermata_bench_park
    .endm

fermata_bench_park:
    mov eax, {wait_interrupt}
    syscall
    jmp fermata_bench_park

    // For stretches of compiled code.
    .globl fermata_bench_begin
fermata_bench_begin:
    bench_begin
    ret
    .globl fermata_bench_end
fermata_bench_end:
    bench_stop
    mov eax, {clock_get}
    syscall
    mov [rip + fermata_bench + CLOCK + 8], rdi
    ret

    // The words of a register message, as the client sends them first.
    .macro client_words
    xor esi, esi
    mov edx, 2
    mov r10d, 3
    mov r8d, 4
    mov r9d, 5
    mov r12d, 6
    mov r13d, 7
    mov r14d, 8
    .endm

    // RPC in registers. The reply's words are those of the next request; if there are any, the server adds 1 to the
    // first, so that the client's last first word shows that all of them arrived.
    .macro rpc_short name, bytes, work
    .globl fermata_bench_\name\()_client
fermata_bench_\name\()_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    xor ebx, ebx
    xor r15d, r15d
    client_words
3:
    mov eax, \bytes * 256 + {connect_short}
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    mov [rip + fermata_bench + SEEN + 8], rsi
    bench_again 2b

    .globl fermata_bench_\name\()_server
fermata_bench_\name\()_server:
    mov rsp, [rip + fermata_bench + SECOND]
    xor ebx, ebx
    xor r15d, r15d
    mov rdi, rsp
    mov eax, {wait_short}
    syscall
3:
    .if \work
    inc rsi
    .endif
    mov rdi, rsp
    mov eax, \bytes * 256 + {answer_short}
    syscall
    jmp 3b
    .endm

    rpc_short rpc_0, 0, 0
    rpc_short rpc_8, 8, 1
    rpc_short rpc_32, 32, 1
    rpc_short rpc_64, 64, 1

    // rpc_0 with an addition in an XMM register on either side, so that both have live FPU state.
    .globl fermata_bench_rpc_0_fpu_client
fermata_bench_rpc_0_fpu_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    mov eax, 1
    movq xmm1, rax
    pxor xmm0, xmm0
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    xor ebx, ebx
    xor r15d, r15d
3:
    mov eax, {connect_short}
    syscall
    paddq xmm0, xmm1
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    movq [rip + fermata_bench + SEEN + 8], xmm0
    bench_again 2b

    .globl fermata_bench_rpc_0_fpu_server
fermata_bench_rpc_0_fpu_server:
    mov eax, 1
    movq xmm1, rax
    pxor xmm0, xmm0
    mov rsp, [rip + fermata_bench + SECOND]
    xor ebx, ebx
    xor r15d, r15d
    mov rdi, rsp
    mov eax, {wait_short}
    syscall
3:
    paddq xmm0, xmm1
    mov rdi, rsp
    mov eax, {answer_short}
    syscall
    jmp 3b

    // RPC through memory: port, bytes, address to send from, address to receive to. The client sends from where it
    // receives; the server adds 1 to the first word.
    .globl fermata_bench_rpc_long_client
fermata_bench_rpc_long_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    xor ebx, ebx
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r14d, r14d
    xor r15d, r15d
3:
    mov rsi, [rip + fermata_bench + FIRST + 16]
    mov rdx, [rip + fermata_bench + FIRST + 8]
    mov r12, rsi
    mov r13, rdx
    mov eax, {connect}
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    mov [rip + fermata_bench + SEEN + 8], r13
    bench_again 2b

    .globl fermata_bench_rpc_long_server
fermata_bench_rpc_long_server:
    mov rsp, [rip + fermata_bench + SECOND + 16]
    mov rbp, [rip + fermata_bench + SECOND + 8]
    xor ebx, ebx
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r14d, r14d
    xor r15d, r15d
    mov r12, rsp
    mov r13, rbp
    mov rdi, [rip + fermata_bench + SECOND]
    mov eax, {wait_receive}
    syscall
3:
    inc qword ptr [rsp]
    mov rdi, [rip + fermata_bench + SECOND]
    mov rsi, rsp
    mov rdx, rbp
    mov r12, rsp
    mov r13, rbp
    mov eax, {answer}
    syscall
    jmp 3b

    // The idempotent form without a message.
    .globl fermata_bench_call_0_client
fermata_bench_call_0_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    xor ebx, ebx
    xor r15d, r15d
3:
    mov eax, {call_short}
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    .globl fermata_bench_call_0_server
fermata_bench_call_0_server:
    mov rsp, [rip + fermata_bench + SECOND]
    xor ebx, ebx
    xor r15d, r15d
    mov rdi, rsp
    mov eax, {wait_short}
    syscall
3:
    mov rdi, rsp
    mov eax, {reply_wait_short}
    syscall
    jmp 3b

    // An invalid instruction; the keeper steps over it.
    .globl fermata_bench_exception_client
fermata_bench_exception_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
3:
    ud2
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rbp
    bench_again 2b

    // The exception's keeper: portset. It receives and answers in registers.
    .globl fermata_bench_exception_server
fermata_bench_exception_server:
    mov rsp, [rip + fermata_bench + SECOND]
    xor ebx, ebx
    xor r15d, r15d
    mov rdi, rsp
    mov eax, {wait_short}
    syscall
3:
    mov rdi, rsp
    lea rsi, [r9 + 2]
    mov rdx, r12
    mov r10, r13
    mov r8, r14
    mov eax, {short_answer} * 256 + {reply_wait_short}
    syscall
    jmp 3b

    // Another keeper, which receives all registers, and answers with them: portset, and room for the message.
    .globl fermata_bench_exception_long_server
fermata_bench_exception_long_server:
    mov rbp, [rip + fermata_bench + SECOND]
    mov rsp, [rip + fermata_bench + SECOND + 8]
    xor ebx, ebx
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r14d, r14d
    xor r15d, r15d
    mov rdi, rbp
    mov r12, rsp
    mov r13d, {exception_bytes}
    mov eax, {wait_receive}
    syscall
3:
    add qword ptr [rsp + {exception_rip}], 2
    mov rdi, rbp
    lea rsi, [rsp + {exception_registers}]
    mov edx, {register_bytes}
    mov r12, rsp
    mov r13d, {exception_bytes}
    mov eax, {reply_wait}
    syscall
    jmp 3b

    // Touches one page after the other: the first address. The next pass continues where this one ends.
    .globl fermata_bench_fault_client
fermata_bench_fault_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    mov rdi, [rip + fermata_bench + FIRST]
    xor esp, esp
3:
    add rsp, [rdi]
    add rdi, 4096
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + FIRST], rdi
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // The keepers for these: portset, a mapping, its state, and a reference to the region with the pages. The first
    // lets the mapping grow until it covers the absent page.
    .macro fault_keeper way
    mov rsp, [rip + fermata_bench + THIRD + 16]
    mov rbp, [rip + fermata_bench + THIRD]
    mov r12, [rip + fermata_bench + THIRD + 8]
    mov r13, [rip + fermata_bench + THIRD + 24]
    xor ebx, ebx
    xor r15d, r15d
    mov rdi, rbp
    mov eax, {wait_short}
    syscall
3:
    .ifc \way, grow
    add rsi, 4096
    mov [rsp + 8], rsi
    .else
    mov [rsp], rdx
    mov [rsp + 16], rsi
    .endif
    mov rdi, r12
    mov rsi, rsp
    mov rdx, r13
    xor r10d, r10d
    mov eax, {mapping_set_state}
    syscall
    mov rdi, rbp
    mov eax, {reply_wait_short}
    syscall
    jmp 3b
    .endm

    .globl fermata_bench_growing_keeper
fermata_bench_growing_keeper:
    fault_keeper grow

    // The second moves the mapping to the absent page, with that page behind it.
    .globl fermata_bench_moving_keeper
fermata_bench_moving_keeper:
    fault_keeper move

    // RPC with 0 bytes back: port, bytes, address to send from, and the distance to the next message.
    .globl fermata_bench_restart_client
fermata_bench_restart_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    xor ebx, ebx
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r14d, r14d
    xor r15d, r15d
    xor r12d, r12d
3:
    mov rsi, [rip + fermata_bench + FIRST + 16]
    mov rdx, [rip + fermata_bench + FIRST + 24]
    add [rip + fermata_bench + FIRST + 16], rdx
    mov rdx, [rip + fermata_bench + FIRST + 8]
    xor r13d, r13d
    mov eax, {connect}
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // Its server: portset, bytes, address to receive to, and the distance to the next message.
    .globl fermata_bench_restart_server
fermata_bench_restart_server:
    mov rsp, [rip + fermata_bench + SECOND + 16]
    mov rbp, [rip + fermata_bench + SECOND + 8]
    xor ebx, ebx
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r14d, r14d
    xor r15d, r15d
    mov r12, rsp
    mov r13, rbp
    mov rdi, [rip + fermata_bench + SECOND]
    mov eax, {wait_receive}
    syscall
3:
    inc qword ptr [rip + fermata_bench + SEEN + 8]
    add rsp, [rip + fermata_bench + SECOND + 24]
    mov rdi, [rip + fermata_bench + SECOND]
    mov rsi, rsp
    xor edx, edx
    mov r12, rsp
    mov r13, rbp
    mov eax, {answer}
    syscall
    jmp 3b

    // Measures the lateness of a thread that sleeps until one deadline after the other: see `Lateness`. The first
    // deadline is in rbx, and the time-stamp counter at time 0 of the clock in rbp.
    .globl fermata_bench_latency
fermata_bench_latency:
2:
    mov rdi, rbx
    mov eax, {sleep_until}
    syscall
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, rbp
    sub rax, rbx
    inc qword ptr [rip + fermata_lateness + 8]
    add [rip + fermata_lateness + 16], rax
    cmp rax, [rip + fermata_lateness + 24]
    jbe 3f
    mov [rip + fermata_lateness + 24], rax
3:
    mov rdx, [rip + fermata_lateness]
4:
    add rbx, rdx
    cmp rax, rdx
    jb 2b
    inc qword ptr [rip + fermata_lateness + 32]
    sub rax, rdx
    jmp 4b

    .bss
    .balign 64
    .hidden fermata_lateness
    .globl fermata_lateness
fermata_lateness:
    .zero 40
    .text

    // One call that blocks. Its registers are set before the thread begins.
    .globl fermata_bench_then_block
fermata_bench_then_block:
    syscall
    mov rdi, rbp
    mov eax, {lock}
    .globl fermata_bench_block
fermata_bench_block:
    syscall
    jmp fermata_bench_park
    .globl fermata_bench_access
fermata_bench_access:
    mov rax, [rdi]
    jmp fermata_bench_park
    .globl fermata_bench_invalid
fermata_bench_invalid:
    ud2

    // Interrupts and waits: a reference to the other thread.
    .globl fermata_bench_notify_client
fermata_bench_notify_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rbx, [rip + fermata_bench + FIRST]
3:
    mov rdi, rbx
    mov eax, {interrupt}
    syscall
    mov eax, {wait_interrupt}
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    .globl fermata_bench_notify_server
fermata_bench_notify_server:
    xor ebp, ebp
    mov rbx, [rip + fermata_bench + SECOND]
3:
    mov eax, {wait_interrupt}
    syscall
    inc rbp
    mov rdi, rbx
    mov eax, {interrupt}
    syscall
    jmp 3b

    // Yields to each other.
    .globl fermata_bench_yield_client
fermata_bench_yield_client:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
3:
    mov eax, {yield}
    syscall
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rbp
    bench_again 2b

    .globl fermata_bench_yield_server
fermata_bench_yield_server:
    xor ebp, ebp
3:
    inc rbp
    mov eax, {yield}
    syscall
    jmp 3b

    // One call again and again: its first parameter, its number.
    .globl fermata_bench_one_call
fermata_bench_one_call:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    mov rbx, [rip + fermata_bench + FIRST + 8]
3:
    mov eax, ebx
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // A search of a region that finds nothing, repeatedly: the region, its end, the call's number. If the call pauses
    // for other threads, the kernel begins it again.
    .globl fermata_bench_search
fermata_bench_search:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    mov rdx, [rip + fermata_bench + FIRST + 8]
    mov rbx, [rip + fermata_bench + FIRST + 16]
    mov r10, [rip + fermata_bench + FIRST + 24]
3:
    xor esi, esi
    mov eax, ebx
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // Two calls by turns: their first parameter, their numbers.
    .globl fermata_bench_two_calls
fermata_bench_two_calls:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    mov rbx, [rip + fermata_bench + FIRST + 8]
    mov r12, [rip + fermata_bench + FIRST + 16]
3:
    mov eax, ebx
    syscall
    add rsp, rax
    mov eax, r12d
    syscall
    add rsp, rax
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // The same, for ever.
    .globl fermata_bench_two_calls_server
fermata_bench_two_calls_server:
    xor ebp, ebp
    mov rdi, [rip + fermata_bench + SECOND]
    mov rbx, [rip + fermata_bench + SECOND + 8]
    mov r12, [rip + fermata_bench + SECOND + 16]
3:
    mov eax, ebx
    syscall
    inc rbp
    mov eax, r12d
    syscall
    jmp 3b

    // One call on objects side by side: the first handle, the number.
    .globl fermata_bench_sweep
fermata_bench_sweep:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    xor esp, esp
    mov rdi, [rip + fermata_bench + FIRST]
    mov rbx, [rip + fermata_bench + FIRST + 8]
    xor esi, esi
3:
    mov eax, ebx
    syscall
    add rsp, rax
    add rdi, {object_size}
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rsp
    bench_again 2b

    // Writes byte after byte: the first address.
    .globl fermata_bench_bytes
fermata_bench_bytes:
2:
    bench_begin
    mov rbp, [rip + fermata_bench + REPETITIONS]
    mov rdi, [rip + fermata_bench + FIRST]
3:
    mov [rdi], bpl
    inc rdi
    dec rbp
    jnz 3b
    bench_stop
    mov [rip + fermata_bench + SEEN], rdi
    bench_again 2b

    // Computes, and makes no call.
    .globl fermata_bench_busy
fermata_bench_busy:
2:
    jmp 2b
    "#,
    block = const BLOCK,
    clock_get = const Call::ClockGet as u32,
    sleep_until = const Call::ThreadSleepUntil as u32,
    lock = const Call::MutexLock as u32,
    interrupt = const Call::ThreadInterrupt as u32,
    wait_interrupt = const Call::ThreadWaitInterrupt as u32,
    yield = const Call::ThreadYield as u32,
    mapping_set_state = const Call::MappingSetState as u32,
    connect = const Call::ClientConnectSendOverReceive as u32,
    connect_short = const Call::ClientConnectSendOverReceiveShort as u32,
    wait_receive = const Call::ServerWaitReceive as u32,
    wait_short = const Call::ServerWaitReceiveShort as u32,
    answer = const Call::ServerAckSendWaitReceive as u32,
    answer_short = const Call::ServerAckSendWaitReceiveShort as u32,
    call_short = const Call::CallShort as u32,
    reply_wait = const Call::ReplyWaitReceive as u32,
    reply_wait_short = const Call::ReplyWaitReceiveShort as u32,
    object_size = const abi::OBJECT_SIZE,
    short_answer = const abi::message::SHORT_ANSWER_WORDS * 8,
    exception_bytes = const abi::message::EXCEPTION_WORDS * 8,
    exception_registers = const EXCEPTION_REGISTERS,
    exception_rip = const EXCEPTION_REGISTERS + core::mem::offset_of!(abi::Registers, rip),
    register_bytes = const abi::state::REGISTER_WORDS * 8,
);

/// The offset of the registers in an exception message.
const EXCEPTION_REGISTERS: usize = core::mem::offset_of!(abi::message::ExceptionMessage, registers);

macro_rules! loops {
    ($($(#[doc = $doc:literal])+ $Loop:ident $symbol:ident;)*) => {
        extern "C" {
            $(fn $symbol();)*
        }

        /// A loop that a thread can run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loop {
            $($(#[doc = $doc])+ $Loop,)*
        }

        impl Loop {
            /// Its first instruction.
            #[must_use]
            pub fn address(self) -> u64 {
                match self {
                    $(Loop::$Loop => $symbol as *const () as u64,)*
                }
            }
        }
    };
}

loops! {
    /// Client of an RPC without bytes.
    Rpc0Client fermata_bench_rpc_0_client;
    /// Its server.
    Rpc0Server fermata_bench_rpc_0_server;
    /// Client of an RPC with 8 bytes.
    Rpc8Client fermata_bench_rpc_8_client;
    /// Its server.
    Rpc8Server fermata_bench_rpc_8_server;
    /// Client of an RPC with 32 bytes.
    Rpc32Client fermata_bench_rpc_32_client;
    /// Its server.
    Rpc32Server fermata_bench_rpc_32_server;
    /// Client of an RPC with 64 bytes.
    Rpc64Client fermata_bench_rpc_64_client;
    /// Its server.
    Rpc64Server fermata_bench_rpc_64_server;
    /// Client of an RPC without bytes that uses the FPU.
    Rpc0FpuClient fermata_bench_rpc_0_fpu_client;
    /// Its server.
    Rpc0FpuServer fermata_bench_rpc_0_fpu_server;
    /// Client of an RPC through memory.
    RpcLongClient fermata_bench_rpc_long_client;
    /// Its server.
    RpcLongServer fermata_bench_rpc_long_server;
    /// Client of an idempotent call.
    Call0Client fermata_bench_call_0_client;
    /// Its server.
    Call0Server fermata_bench_call_0_server;
    /// Executes an invalid instruction.
    ExceptionClient fermata_bench_exception_client;
    /// Steps over it.
    ExceptionServer fermata_bench_exception_server;
    /// Steps over it; the messages carry all registers.
    ExceptionLongServer fermata_bench_exception_long_server;
    /// Touches absent pages.
    FaultClient fermata_bench_fault_client;
    /// Supplies the pages by letting its mapping grow.
    GrowingKeeper fermata_bench_growing_keeper;
    /// Supplies one page and takes another away by moving its mapping.
    MovingKeeper fermata_bench_moving_keeper;
    /// Client of an RPC that sends from one page after the other.
    RestartClient fermata_bench_restart_client;
    /// Its server, which receives into one page after the other.
    RestartServer fermata_bench_restart_server;
    /// Sleeps until one deadline after the other, and looks how late it is.
    Latency fermata_bench_latency;
    /// A call that blocks.
    Block fermata_bench_block;
    /// A call, and then one that blocks.
    ThenBlock fermata_bench_then_block;
    /// An access to memory.
    Access fermata_bench_access;
    /// An invalid instruction.
    Invalid fermata_bench_invalid;
    /// Interrupts, then waits for an interrupt.
    NotifyClient fermata_bench_notify_client;
    /// Waits for an interrupt, then interrupts.
    NotifyServer fermata_bench_notify_server;
    /// Yields.
    YieldClient fermata_bench_yield_client;
    /// Yields back.
    YieldServer fermata_bench_yield_server;
    /// One call again and again.
    OneCall fermata_bench_one_call;
    /// A search of a region.
    Search fermata_bench_search;
    /// Two calls by turns.
    TwoCalls fermata_bench_two_calls;
    /// Two calls by turns, without an end.
    TwoCallsServer fermata_bench_two_calls_server;
    /// One call on objects side by side.
    Sweep fermata_bench_sweep;
    /// Writes byte after byte.
    Bytes fermata_bench_bytes;
    /// Computes, and makes no call.
    Busy fermata_bench_busy;
}

/// The measurements of [`Loop::Latency`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Lateness {
    /// Nanoseconds from one deadline to the next.
    pub period: u64,
    /// How many deadlines were measured.
    pub runs: u64,
    /// The sum of all latenesses, in ticks of the time-stamp counter.
    pub sum: u64,
    /// The greatest lateness.
    pub worst: u64,
    /// Deadlines that passed before the thread ran for the previous one.
    pub missed: u64,
}

const _: () = assert!(core::mem::size_of::<Lateness>() == 40);

extern "C" {
    static mut fermata_bench: Block;
    static mut fermata_lateness: Lateness;
    fn fermata_bench_begin();
    fn fermata_bench_end();
}

/// The block as the loops have left it.
#[must_use]
pub fn block() -> Block {
    // SAFETY: `Block` describes the 320 bytes that the assembly code sets aside, which hold numbers only; the read is
    // volatile because threads write there meanwhile.
    unsafe { (&raw const fermata_bench).read_volatile() }
}

/// Sets the block. No loop may be running.
pub fn set_block(block: Block) {
    // SAFETY: as for `block`; no loop writes there.
    unsafe { (&raw mut fermata_bench).write_volatile(block) };
}

/// The measurements of [`Loop::Latency`] up to now.
#[must_use]
pub fn lateness() -> Lateness {
    // SAFETY: `Lateness` describes the 40 bytes that the assembly code sets aside, which hold numbers only; the read
    // is volatile because the thread writes there meanwhile.
    unsafe { (&raw const fermata_lateness).read_volatile() }
}

/// Sets the initial values for [`Loop::Latency`], which must not be running.
pub fn set_lateness(lateness: Lateness) {
    // SAFETY: as for `lateness`; the loop does not write there.
    unsafe { (&raw mut fermata_lateness).write_volatile(lateness) };
}

/// Measures a stretch of compiled code. Afterwards the block has its times.
#[inline(always)]
pub fn stretch<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: these functions write to the block and change no register that a function must preserve.
    unsafe { fermata_bench_begin() };
    let result = f();
    // SAFETY: as above.
    unsafe { fermata_bench_end() };
    result
}
