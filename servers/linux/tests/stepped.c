// What a debugger does is not seen by the program: a step that a signal meets, an exception that is passed on, breakpoints
// in what moves and in the memory of a child that goes on with another program.
// stepped first; stepped eats, which takes all memory, and 1 MB that is free only when what is kept for the next programs
// is given up: go on from each place when `gate` is what `waits` says.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

volatile long gate __attribute__((aligned(4096)));
volatile long waits;
// Words into which two threads read.
volatile long got[512] __attribute__((aligned(4096)));
// A page that moves, and where it goes.
#define PLACE ((volatile char *)0x10000000)
#define MOVED ((volatile char *)0x10010000)

extern char behind[];
static volatile long handled, told_of_behind;
static int ends[2];

static void wait_for(long wanted) {
    waits = wanted;
    while (gate < wanted)
        usleep(1000);
}

void on_signal(int number) {
    handled += number == SIGUSR1;
}

void on_trap(int number, siginfo_t *info, void *context) {
    told_of_behind += ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == (long)behind;
}

__attribute__((noinline, noclone)) static long call(long number, long a, long b, long c) {
    long result;
    asm volatile(".globl calls\ncalls: syscall"
                 : "=a"(result)
                 : "0"(number), "D"(a), "S"(b), "d"(c)
                 : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline, noclone)) static void trap(void) {
    asm volatile(".globl traps\ntraps: int3\n.globl behind\nbehind: nop");
}

__attribute__((noinline, noclone)) void tread(void) {
    asm volatile("" ::: "memory");
}

static void treads(long wanted) {
    waits = wanted;
    while (gate < wanted) {
        tread();
        usleep(1000);
    }
}

static void *read_word(void *word) {
    return (void *)(read(ends[0], word, 8) == 8);
}

static int two_threads(void) {
    long words[2] = {5, 6};
    void *first = NULL, *second = NULL;
    pthread_t threads[2];
    if (pipe(ends) != 0)
        return 0;
    pthread_create(&threads[0], NULL, read_word, (void *)&got[0]);
    pthread_create(&threads[1], NULL, read_word, (void *)&got[1]);
    // Both wait, and are woken at once.
    usleep(100000);
    int right = write(ends[1], words, 16) == 16;
    pthread_join(threads[0], &first);
    pthread_join(threads[1], &second);
    return right && first && second && got[0] + got[1] == 11;
}

static int moves(void) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap((void *)PLACE, 4096, protection, flags, -1, 0) != PLACE)
        return 0;
    memcpy((void *)PLACE, "abc", 3);
    wait_for(4);
    void *moved = mremap((void *)PLACE, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, MOVED);
    return moved == MOVED && memcmp((void *)MOVED, "abc", 3) == 0;
}

static int child_executes(void) {
    pid_t child = vfork();
    if (child == 0) {
        wait_for(6);
        execl("/tmp/stepped", "stepped", "child", NULL);
        _exit(8);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 && gate == 6;
}

static int child_ends(void) {
    pid_t child = vfork();
    if (child == 0) {
        wait_for(8);
        _exit(7);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
}

static int eats(void) {
    enum { MORE = 8 << 20, LITTLE = 64 << 10 };
    struct sysinfo info;
    sysinfo(&info);
    // Nothing of the first is taken when the second is asked for.
    size_t size = info.freeram - MORE / 2, at;
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *all = mmap(NULL, size, protection, flags, -1, 0);
    volatile char *more = mmap(NULL, MORE, protection, flags, -1, 0);
    if (all == MAP_FAILED || more == MAP_FAILED)
        return 3;
    wait_for(1);
    for (at = 0; at < size; at += 4096)
        all[at] = 1;
    for (at = 0; at < MORE - (1 << 20) && info.freeram > LITTLE; at += 4096) {
        more[at] = 1;
        sysinfo(&info);
    }
    for (size_t end = at + (1 << 20); at < end; at += 4096)
        more[at] = 1;
    printf("eats: right\n");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "child") == 0) {
        wait_for(10);
        return 7;
    }
    if (strcmp(argv[1], "right") == 0 || strcmp(argv[1], "wrong") == 0) {
        printf("stepped: %s\n", argv[1]);
        return argv[1][0] != 'r';
    }
    if (strcmp(argv[1], "eats") == 0)
        return eats();
    signal(SIGUSR1, on_signal);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    wait_for(1);
    int right = call(SYS_tgkill, getpid(), getpid(), SIGUSR1) == 0 && handled == 1;
    wait_for(2);
    trap();
    right &= told_of_behind == 1;
    wait_for(3);
    right &= two_threads();
    right &= moves();
    wait_for(5);
    right &= child_executes();
    treads(7);
    right &= child_ends();
    treads(9);
    char *arguments[] = {"stepped", right ? "right" : "wrong", NULL};
    call(SYS_execve, (long)"/tmp/stepped", (long)arguments, (long)environ);
    return 1;
}
