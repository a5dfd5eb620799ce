/* Limits of what a process may use. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"

#define MB (1l << 20)

static char bytes[4 << 20];
static volatile int came;
static siginfo_t last;
static void note(int signal, siginfo_t *info, void *context) { came++, last = *info; }

static void soft(int which, unsigned long limit) {
    struct rlimit both;
    getrlimit(which, &both);
    both.rlim_cur = limit;
    if (setrlimit(which, &both)) printf("limit %d: %s\n", which, strerror(errno));
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, 0);
}

/* What came since the last time. */
static void told(void) {
    printf("told %d times", came);
    if (came) printf(", signal %d, code %d, of itself %d", last.si_signo, last.si_code, last.si_pid == getpid());
    printf("\n");
    came = 0;
}

static long size(const char *path) {
    struct stat stat;
    return lstat(path, &stat) ? -1 : stat.st_size;
}

static void files(void) {
    int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600), from = open("text", O_RDONLY);
    handle(SIGXFSZ, note, 0);
    soft(RLIMIT_FSIZE, 10000);
    SHOW(write(fd, bytes, 4000)); SHOW(write(fd, bytes, 4000)); told();
    SHOW(write(fd, bytes, 4000)); told();
    SHOW(write(fd, bytes, 4000)); told();
    SHOW(write(fd, bytes, 0)); told();
    SHOW(pwrite(fd, bytes, 10, 9999)); SHOW(pwrite(fd, bytes, 10, 10000)); told();
    SHOW(pwrite(fd, bytes, 0, 20000)); told();
    SHOW(lseek(fd, 9990, SEEK_SET));
    struct iovec vector[] = {{bytes, 6}, {bytes, 6}};
    SHOW(writev(fd, vector, 2)); SHOW(lseek(fd, 0, SEEK_CUR)); SHOW(writev(fd, vector, 2)); told();
    SHOW(ftruncate(fd, 10001)); told();
    SHOW(ftruncate(fd, 10000)); SHOW(truncate("limited", 10001)); told();
    SHOW(truncate("limited", 5000)); told();
    SHOW(fallocate(fd, 0, 9000, 1001)); told();
    SHOW(fallocate(fd, 0, 0, 9000)); told();
    int end = open("limited", O_WRONLY | O_APPEND);
    SHOW(write(end, bytes, 3000)); SHOW(write(end, bytes, 3000)); told();
    printf("%ld bytes\n", size("limited"));
    /* A file that is longer than the limit. */
    soft(RLIMIT_FSIZE, 100);
    SHOW(pwrite(fd, bytes, 100, 50)); SHOW(pwrite(fd, bytes, 100, 200)); told();
    SHOW(ftruncate(fd, 8000)); SHOW(ftruncate(fd, 8001)); told();
    /* More than one step. */
    soft(RLIMIT_FSIZE, 2500001);
    SHOW(ftruncate(fd, 0)); SHOW(pwrite(fd, bytes, sizeof bytes, 0)); told();
    SHOW(pwrite(fd, bytes, sizeof bytes, 1)); told();
    printf("%ld bytes\n", size("limited"));
    /* By `sendfile`, which asks again where it is cut short. */
    soft(RLIMIT_FSIZE, 5000);
    SHOW(ftruncate(fd, 0)); SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(sendfile(fd, from, 0, 6000)); SHOW(lseek(fd, 0, SEEK_CUR)); told();
    SHOW(sendfile(fd, from, 0, 6000)); told();
    /* Blocked, and ignored. */
    sigset_t set, pending;
    sigemptyset(&set), sigaddset(&set, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &set, 0);
    SHOW(pwrite(fd, bytes, 1, 5000)); told();
    sigpending(&pending), printf("pending %d\n", sigismember(&pending, SIGXFSZ));
    sigprocmask(SIG_UNBLOCK, &set, 0), told();
    signal(SIGXFSZ, SIG_IGN);
    SHOW(pwrite(fd, bytes, 1, 5000)); told();
    /* Files in memory are files, pipes are none. */
    int memory = memfd_create("limited", 0), ends[2];
    SHOW(pwrite(memory, bytes, 10, 4996)); SHOW(ftruncate(memory, 5001));
    soft(RLIMIT_FSIZE, 0);
    pipe(ends);
    SHOW(write(ends[1], bytes, 10)); SHOW(write(fd, bytes, 1));
    SHOW(open("none", O_CREAT | O_RDWR, 0600) >= 0);
    soft(RLIMIT_FSIZE, RLIM_INFINITY);
    SHOW(pwrite(fd, bytes, 1, 5000));
    unlink("limited"), unlink("none");
}

/* Kilobytes that /proc says. */
static long kilobytes(const char *name) {
    static char text[4096];
    int fd = open("/proc/self/status", O_RDONLY), got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : -1;
}

static void *map(long size, int prot, int flags) { return mmap(0, size, prot, flags | MAP_ANONYMOUS, -1, 0); }
#define MAPS(size, prot, flags) do { void *at = map(size, prot, flags); \
    printf("%s, %s, %s: %s\n", #size, #prot, #flags, at == MAP_FAILED ? strerror(errno) : "there"); \
    if (at != MAP_FAILED) munmap(at, size); } while (0)

static void addresses(void) {
    const int both = PROT_READ | PROT_WRITE;
    char *place = map(MB, PROT_NONE, MAP_PRIVATE);
    SHOW(sbrk(0) != 0);
    soft(RLIMIT_AS, kilobytes("VmSize:") * 1024 + 2 * MB);
    MAPS(MB, both, MAP_PRIVATE); MAPS(MB, PROT_NONE, MAP_PRIVATE); MAPS(MB, both, MAP_SHARED);
    MAPS(2 * MB, both, MAP_PRIVATE); MAPS(2 * MB + 4096, both, MAP_PRIVATE); MAPS(3 * MB, PROT_NONE, MAP_PRIVATE);
    MAPS(3 * MB, both, MAP_SHARED); MAPS(3 * MB, both, MAP_PRIVATE | MAP_NORESERVE);
    SHOW(sbrk(3 * MB) == (void *)-1);
    SHOW(malloc(3 * MB) == 0);
    /* In the place of another. */
    SHOW(mmap(place, MB, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
    void *grown = mremap(place, MB, 4 * MB, MREMAP_MAYMOVE);
    printf("grown: %s\n", grown == MAP_FAILED ? strerror(errno) : "there");
    grown = mremap(place, MB, 2 * MB, MREMAP_MAYMOVE);
    printf("grown: %s\n", grown == MAP_FAILED ? strerror(errno) : "there");
    SHOW(munmap(grown, 2 * MB));
    int id = shmget(IPC_PRIVATE, 4 * MB, 0600);
    SHOW(shmat(id, 0, 0) == (void *)-1);
    SHOW(shmctl(id, IPC_RMID, 0));
    soft(RLIMIT_AS, RLIM_INFINITY);
    MAPS(3 * MB, both, MAP_PRIVATE);
    soft(RLIMIT_DATA, kilobytes("VmData:") * 1024 + MB);
    MAPS(MB, both, MAP_PRIVATE); MAPS(2 * MB, both, MAP_PRIVATE); MAPS(2 * MB, both, MAP_SHARED);
    MAPS(2 * MB, PROT_READ, MAP_PRIVATE);
    char *read = map(2 * MB, PROT_READ, MAP_PRIVATE);
    SHOW(mprotect(read, 2 * MB, both)); SHOW(mprotect(read, MB / 2, both)); SHOW(mprotect(read, MB / 2, both));
    SHOW(sbrk(2 * MB) == (void *)-1);
    soft(RLIMIT_DATA, RLIM_INFINITY);
    SHOW(mprotect(read, 2 * MB, both));
}

static void errors(void) {
    struct rlimit limit = {5, 4}, found;
    SHOW(setrlimit(RLIMIT_FSIZE, &limit));
    SHOW(prlimit(0, RLIMIT_AS, 0, 0));
    SHOW(prlimit(getpid(), RLIMIT_FSIZE, 0, &found));
    SHOW(prlimit(NOBODY, RLIMIT_FSIZE, 0, &found));
    SHOW(prlimit(-1, RLIMIT_FSIZE, 0, &found));
    SHOW(prlimit(0, 16, 0, &found));
    SHOW(prlimit(0, RLIMIT_FSIZE, (void *)1, 0));
    limit = (struct rlimit){4096, 1 << 20};
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        if (which == RLIMIT_CPU || which == RLIMIT_NOFILE || which == RLIMIT_NICE || which == RLIMIT_RTPRIO) continue;
        if (which == RLIMIT_STACK || which == RLIMIT_AS || which == RLIMIT_DATA || which == RLIMIT_NPROC) continue;
        if (prlimit(0, which, 0, &found)) printf("%d: not told\n", which);
        limit.rlim_max = found.rlim_max;
        if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
        if (setrlimit(which, &limit) || prlimit(0, which, &found, &limit)) printf("%d: not set\n", which);
        if (limit.rlim_cur != 4096 && limit.rlim_cur != found.rlim_max) printf("%d: %ld\n", which, (long)limit.rlim_cur);
        limit.rlim_cur = 4096;
    }
}

/* Goes so deep, a page at a time. */
static int __attribute__((noinline)) deep(long size) {
    volatile char page[4000];
    page[0] = size;
    return size > 0 ? deep(size - sizeof page - 80) + page[0] : 0;
}

static sigjmp_buf back;
static void fault(int signal, siginfo_t *info, void *context) { last = *info, siglongjmp(back, 1); }
static char other[1 << 16];

static void try(long size) {
    if (sigsetjmp(back, 1)) {
        printf("%ld KB: signal %d, code %d\n", size >> 10, last.si_signo, last.si_code);
    } else {
        deep(size);
        printf("%ld KB are there\n", size >> 10);
    }
}

static void stack(void) {
    stack_t alternate = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&alternate, 0);
    handle(SIGSEGV, fault, SA_ONSTACK);
    soft(RLIMIT_STACK, 1 * MB), try(MB / 2), try(2 * MB);
    soft(RLIMIT_STACK, 4 * MB), try(2 * MB), try(6 * MB);
    soft(RLIMIT_STACK, 24 * MB), try(20 * MB), try(30 * MB);
    signal(SIGSEGV, SIG_DFL);
}

static char *program;

/* Runs this program with a limit and an argument: how it ends. */
static void run(int which, unsigned long limit, char *how, char *size) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        soft(which, limit);
        execl(program, program, how, size, (char *)0);
        printf("execl: %s\n", strerror(errno));
        exit(99);
    }
    printf("%s %.5s with %ld: %d\n", how, size, (long)limit, ended(child));
}

static void *thread(void *of) {
    pthread_attr_t attributes;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &size);
    printf("stack of a thread: %ld KB\n", (long)size >> 10);
    return 0;
}

static int begun(const char *how, long size) {
    struct rlimit limit;
    pthread_t id;
    if (!strcmp(how, "deep")) return deep(size << 10) & 1;
    if (!strcmp(how, "thread")) return pthread_create(&id, 0, thread, 0) || pthread_join(id, 0);
    if (!strcmp(how, "show")) {
        getrlimit(RLIMIT_FSIZE, &limit);
        /* What it prints may go to a file. */
        soft(RLIMIT_FSIZE, RLIM_INFINITY);
        printf("it may write %ld\n", (long)limit.rlim_cur);
    }
    return 0;
}

static volatile int said;
static void write_it(int signal) { write(said, "x", 1); }

/* A child that computes for ever. */
static void work(long soft, long hard, int handles) {
    int ends[2];
    char text[100];
    pipe(ends);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct rlimit limit = {soft, hard};
        said = ends[1];
        if (handles) signal(SIGXCPU, write_it);
        setrlimit(RLIMIT_CPU, &limit);
        for (volatile int count = 0;; count++) {}
    }
    close(ends[1]);
    printf("%ld and %ld seconds: %d", soft, hard, ended(child));
    printf(", told %ld times\n", (long)read(ends[0], text, sizeof text));
    close(ends[0]);
}

static void many(void) {
    int ends[2];
    char text[10];
    /* Those of the parent are the child's, until it is given others. */
    soft(RLIMIT_FSIZE, 1234);
    pid_t child = fork();
    if (!child) execl(program, program, "show", "0", (char *)0);
    int shown = ended(child);
    if (!(child = fork())) {
        int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (write(fd, bytes, 2000) != 1234) exit(98);
        write(fd, bytes, 2000);
        exit(99);
    }
    int beyond = ended(child);
    soft(RLIMIT_FSIZE, RLIM_INFINITY);
    printf("shown %d, beyond %d\n", shown, beyond);
    pipe(ends);
    fflush(stdout);
    child = fork();
    if (!child) {
        read(ends[0], text, 1);
        signal(SIGXFSZ, SIG_IGN);
        int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
        int first = write(fd, bytes, 2000), second = write(fd, bytes, 2000);
        soft(RLIMIT_FSIZE, 88);
        _exit(first == 77 && second == -1 && errno == EFBIG);
    }
    struct rlimit limit = {77, 88}, before;
    SHOW(prlimit(child, RLIMIT_FSIZE, &limit, &before));
    printf("before: %d %d\n", before.rlim_cur == RLIM_INFINITY, before.rlim_max == RLIM_INFINITY);
    SHOW(prlimit(child, RLIMIT_FSIZE, 0, &before));
    printf("now: %ld %ld\n", (long)before.rlim_cur, (long)before.rlim_max);
    fflush(stdout);
    write(ends[1], "x", 1);
    printf("as it was told: %d\n", ended(child));
    unlink("limited");
    /* The stack of a program, and of its threads. */
    run(RLIMIT_STACK, 16 * MB, "deep", "12000"), run(RLIMIT_STACK, 2 * MB, "deep", "1500");
    run(RLIMIT_STACK, 2 * MB, "deep", "2500"), run(RLIMIT_STACK, RLIM_INFINITY, "deep", "24000");
    run(RLIMIT_STACK, 100000, "deep", "40"), run(RLIMIT_STACK, 100000, "deep", "200");
    run(RLIMIT_STACK, 3 * MB, "thread", "0"), run(RLIMIT_STACK, RLIM_INFINITY, "thread", "0");
    /* Arguments are bounded by it. */
    memset(bytes, 'a', 100000), bytes[100000] = 0;
    run(RLIMIT_STACK, 200000, "show", bytes);
    bytes[125000] = 0, memset(bytes, 'a', 125000);
    setenv("a", bytes, 1);
    run(RLIMIT_STACK, 600000, "show", bytes), run(RLIMIT_STACK, 8 * MB, "show", bytes);
    unsetenv("a");
    run(RLIMIT_AS, 100000, "show", "0"), run(RLIMIT_AS, 50 * MB, "show", "0");
    work(1, 9, 0), work(1, 3, 1), work(2, 2, 0);
}

int main(int count, char **arguments) {
    program = arguments[0];
    const char *how = count > 1 ? arguments[1] : "one";
    if (!strcmp(how, "many")) return many(), 0;
    if (!strcmp(how, "stack")) return stack(), 0;
    if (count > 2 && strcmp(how, "one")) return begun(how, atol(arguments[2]));
    errors();
    files();
    addresses();
    return 0;
}
