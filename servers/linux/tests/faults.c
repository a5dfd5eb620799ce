/* What signals of exceptions tell of them. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include "common.h"

static sigjmp_buf back;
static char other[1 << 16];
static siginfo_t last;
static greg_t was[NGREG];
static int excepts;

/* Floating point in which these errors are not masked, and of which nothing is left. */
enum {INVALID = 1, DIVISION = 4, OVERFLOW = 8, UNDERFLOW = 16, INEXACT = 32};
static void unmask(int which) {
    unsigned mxcsr = 0x1f80 & ~(which << 7);
    unsigned short control = 0x37f & ~which;
    asm volatile("fninit; fldcw %0; ldmxcsr %1" :: "m"(control), "m"(mxcsr));
}

static int unmasked(void) {
    unsigned mxcsr;
    unsigned short control;
    asm volatile("fnstcw %0; stmxcsr %1" : "=m"(control), "=m"(mxcsr));
    return (~control | ~mxcsr >> 7) & 63;
}

static void note(int signal, siginfo_t *info, void *context) {
    last = *info;
    memcpy(was, ((ucontext_t *)context)->uc_mcontext.gregs, sizeof was);
    excepts = unmasked();
    siglongjmp(back, 1);
}

static void tell(const char *what, void *address) {
    printf("%s: signal %d, code %d, exception %lld, error %lld, at the instruction %d", what, last.si_signo, last.si_code,
           was[REG_TRAPNO], was[REG_ERR], last.si_addr == (void *)was[REG_RIP]);
    printf(", at nothing %d, unmasked %d", last.si_addr == 0, excepts);
    if (address) printf(", there %d %d", last.si_addr == address, (void *)was[REG_CR2] == address);
    printf("\n");
}

/* Does something that raises an exception. */
#define TRY(what, address, ...) do { if (sigsetjmp(back, 1)) tell(what, address); else { __VA_ARGS__; printf("%s: nothing\n", what); } } while (0)
#define WRONG ((void *)0x8000000000000000)

static volatile double zero, one_half = 0.5, huge = 1e308, tiny = 1e-308, three = 3, out;
static volatile long double long_zero, long_one = 1, long_huge = 1e4000L, long_out;
static volatile int whole, divided = 7;

static void one(void) {
    TRY("a signal of no exception", 0, raise(SIGUSR1));
    TRY("division by nothing", 0, divided = divided / whole);
    whole = -1, divided = -2147483647 - 1;
    TRY("division that overflows", 0, asm volatile("cltd; idivl %1" : "+a"(divided) : "r"(whole) : "rdx"));
    TRY("x87: invalid", 0, unmask(INVALID), long_out = long_zero / long_zero; asm volatile("fwait"));
    TRY("x87: division", 0, unmask(DIVISION), long_out = long_one / long_zero; asm volatile("fwait"));
    TRY("x87: overflow", 0, unmask(OVERFLOW), out = (double)long_huge; asm volatile("fwait"));
    TRY("nothing is left of them", 0, long_out = long_one / long_zero);
    TRY("an address that is none", 0, *(volatile char *)WRONG);
    TRY("an instruction for the kernel", 0, asm volatile("hlt"));
    TRY("no instruction", 0, asm volatile("ud2"));
    TRY("a breakpoint", 0, asm volatile("int3"));
    ways();
}

/* How floating point is rounded, and what of it is noted. */
static int in_handler;
static int way(void) {
    unsigned mxcsr;
    unsigned short control;
    asm volatile("fnstcw %0; stmxcsr %1" : "=m"(control), "=m"(mxcsr));
    return (mxcsr & 0x603f) << 16 | control;
}

static void look(int signal) { in_handler = way(); }

/* A handler computes as a program does that begins, whatever it interrupts. */
static void ways(void) {
    unsigned mxcsr = 0x1f80 | 0x6000 | 0x20;
    unsigned short control = 0x37f | 0xc00;
    signal(SIGUSR2, look);
    asm volatile("fldcw %0; ldmxcsr %1" :: "m"(control), "m"(mxcsr));
    raise(SIGUSR2);
    int here = way();
    unmask(0);
    printf("in a handler %x, afterwards %x\n", in_handler, here);
}

/* QEMU's processor does not have these, and has another exception for the stack. */
static void sse(void) {
    TRY("invalid", 0, unmask(INVALID), out = zero / zero);
    TRY("division", 0, unmask(DIVISION), out = one_half / zero);
    TRY("overflow", 0, unmask(OVERFLOW), out = huge * huge);
    TRY("underflow", 0, unmask(UNDERFLOW), out = tiny * tiny);
    TRY("inexact", 0, unmask(INEXACT), out = one_half / three);
    TRY("several", 0, unmask(63 & ~DIVISION), out = huge * huge);
    TRY("nothing is left of them", 0, out = one_half / zero);
    TRY("a stack that is none", 0, asm volatile("mov %%rsp, %%rbx; mov %0, %%rsp; pop %%rax; mov %%rbx, %%rsp" :: "r"(WRONG) : "rax", "rbx"));
}

static void memory(void) {
    TRY("a load from nothing", 0, *(volatile char *)0);
    TRY("a store to nothing", (void *)8, *(volatile char *)8 = 1);
    TRY("a jump to nothing", (void *)16, ((void (*)(void))16)());
    char *place = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *far = place + (1 << 19);
    place[0] = 0xc3, place[4096] = 1;
    mprotect(place, 1 << 20, PROT_READ);
    TRY("a store where one only reads", place + 5, place[5] = 1);
    TRY("a store where nothing is yet", far + 8, far[8] = 1);
    TRY("a jump where one only reads", place, ((void (*)(void))place)());
    mprotect(place + 12288, 4096, PROT_NONE);
    TRY("a load where one must not", place + 12300, *(volatile char *)(place + 12300));
    TRY("a store where one must not", place + 12301, place[12301] = 1);
    munmap(place, 4096);
    TRY("a load where nothing is any more", place + 6, *(volatile char *)(place + 6));
}

int main(int count, char **arguments) {
    stack_t alternate = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int signals[] = {SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGTRAP, SIGUSR1};
    sigaltstack(&alternate, 0);
    for (int i = 0; i < 6; i++) sigaction(signals[i], &action, 0);
    if (count > 1 && !strcmp(arguments[1], "sse")) sse();
    else if (count > 1 && !strcmp(arguments[1], "memory")) memory();
    else one();
    return 0;
}
