//! The order of x86-64's registers in a context. `abi::x86_64` has their roles.

crate::context::frame! {
    rflags Rflags;
    rax Rax, rbx Rbx, rcx Rcx, rdx Rdx, rsi Rsi, rdi Rdi, rbp Rbp, rsp Rsp,
    r8 R8, r9 R9, r10 R10, r11 R11, r12 R12, r13 R13, r14 R14, r15 R15,
    rip Rip, fs_base FsBase, gs_base GsBase,
}
