/* Threads: what they share, wait for and end with. `threads WAY`; it prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8 };

static long futex(void *word, int operation, uint32_t value, const void *timeout, void *second, uint32_t third) {
    long result = syscall(SYS_futex, word, operation, value, timeout, second, third);
    return result < 0 ? -errno : result;
}

static pthread_t started(void *(*run)(void *), void *argument) {
    pthread_t thread;
    int error = pthread_create(&thread, 0, run, argument);
    if (error) printf("pthread_create: %s\n", strerror(error)), exit(1);
    return thread;
}

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, 0);
}

/* --- What libraries make of it --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static long sum;
static __thread long own;

static void *adds(void *argument) {
    own = (long)argument;
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < 2000; n++) {
        pthread_mutex_lock(&mutex);
        long before = sum;
        if (n % 500 == 0) sched_yield();
        sum = before + own;
        pthread_mutex_unlock(&mutex);
    }
    sem_post(&semaphore);
    return (void *)(own * own);
}

static void join(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    sem_init(&semaphore, 0, 0);
    for (long n = 0; n < THREADS; n++) threads[n] = started(adds, (void *)(n + 1));
    for (int n = 0; n < THREADS; n++) sem_wait(&semaphore);
    long results = 0;
    for (int n = 0; n < THREADS; n++) {
        void *result;
        pthread_join(threads[n], &result);
        results += (long)result;
    }
    printf("sum %ld, results %ld, own %ld\n", sum, results, own);
}

/* A queue of one place between those who put and those who take. */
static int place, full, taken;
static void *puts_numbers(void *argument) {
    for (int n = 0; n < 300; n++) {
        pthread_mutex_lock(&mutex);
        while (full) pthread_cond_wait(&cond, &mutex);
        place = n, full = 1;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}
static void *takes_numbers(void *argument) {
    for (int n = 0; n < 300; n++) {
        pthread_mutex_lock(&mutex);
        while (!full) pthread_cond_wait(&cond, &mutex);
        taken += place, full = 0;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}
static void conditions(void) {
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) threads[n] = started(n % 2 ? puts_numbers : takes_numbers, 0);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    printf("taken %d\n", taken);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 30000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    pthread_mutex_lock(&mutex);
    int error = pthread_cond_timedwait(&cond, &mutex, &time);
    pthread_mutex_unlock(&mutex);
    printf("timedwait: %s\n", strerror(error));
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_wrlock(&lock);
    printf("tryrdlock: %s\n", strerror(pthread_rwlock_tryrdlock(&lock)));
    pthread_rwlock_unlock(&lock);
}

/* --- Calls --- */

static uint32_t words[4];
static volatile int woken, waiting;

static void *waits(void *argument) {
    __sync_fetch_and_add(&waiting, 1);
    long result = futex(words, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, 0, 0, 1u << (long)argument);
    if (result == 0) __sync_fetch_and_add(&woken, 1);
    return (void *)result;
}

static void all_wait(int count) {
    while (waiting < count) sched_yield();
    nap(20);
}

static void calls(void) {
    struct timespec soon = {0, 10000000}, past = {0, 1};
    printf("other value: %ld\n", futex(words, FUTEX_WAIT, 1, 0, 0, 0));
    printf("relative: %ld\n", futex(words, FUTEX_WAIT, 0, &soon, 0, 0));
    printf("absolute: %ld\n", futex(words, FUTEX_WAIT_BITSET, 0, &past, 0, 1));
    printf("by the date: %ld\n", futex(words, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, 0, 1));
    printf("no bits: %ld %ld\n", futex(words, FUTEX_WAIT_BITSET, 0, 0, 0, 0), futex(words, FUTEX_WAKE_BITSET, 1, 0, 0, 0));
    printf("misaligned: %ld\n", futex((char *)words + 1, FUTEX_WAIT, 0, 0, 0, 0));
    printf("nowhere: %ld %ld\n", futex((void *)8, FUTEX_WAIT, 0, 0, 0, 0), futex(0, FUTEX_WAIT, 0, 0, 0, 0));
    printf("nobody: %ld\n", futex(words, FUTEX_WAKE, 5, 0, 0, 0));
    printf("unknown: %ld\n", futex(words, 100, 5, 0, 0, 0));
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++) threads[n] = started(waits, (void *)n);
    all_wait(THREADS);
    printf("two of the low ones: %ld\n", futex(words, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 2, 0, 0, 0x0f));
    printf("wrong value: %ld\n", futex(words, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, (void *)2, words + 1, 9));
    printf("one goes, two move: %ld\n", futex(words, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, (void *)2, words + 1, 0));
    printf("those that moved: %ld\n", futex(words + 1, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 9, 0, 0, 0));
    printf("all others move: %ld\n", futex(words, FUTEX_REQUEUE | FUTEX_PRIVATE_FLAG, 0, (void *)99, words + 1, 0));
    words[2] = 5;
    int code = FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_GT, 4);
    printf("wake_op: %ld", futex(words, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, words + 2, code));
    printf(" %u", words[2]);
    code = FUTEX_OP(FUTEX_OP_XOR, 3, FUTEX_OP_CMP_EQ, 0);
    words[1] = 0;
    printf(", %ld", futex(words, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, words + 1, code));
    code = FUTEX_OP(FUTEX_OP_SET | FUTEX_OP_OPARG_SHIFT, 4, FUTEX_OP_CMP_LT, 0);
    printf(" %u, %ld", words[1], futex(words, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, words + 3, code));
    printf(" %u\n", words[3]);
    printf("the rest: %ld\n", futex(words + 1, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1000, 0, 0, 0));
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    printf("woken %d\n", woken);
    void *head;
    size_t length;
    printf("robust lists: %ld", syscall(SYS_set_robust_list, words, 23));
    printf(" %ld", syscall(SYS_get_robust_list, 0, &head, &length));
    printf(" %zu\n", length);
    printf("numbers: %d\n", getpid() == syscall(SYS_gettid));
    printf("clone: %ld", syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
    printf(" %ld\n", syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND, 0, 0, 0, 0));
    printf("tgkill: %ld", syscall(SYS_tgkill, getpid(), 0, 0));
    printf(" %ld", syscall(SYS_tgkill, getpid(), getpid(), 65));
    printf(" %ld\n", syscall(SYS_tgkill, getpid(), getpid(), 0));
}

/* --- Locks whose owner ends, or that lend --- */

static pthread_mutex_t robust;
static sem_t may_end;

static void *takes_and_ends(void *argument) {
    pthread_mutex_lock(argument);
    sem_post(&semaphore);
    sem_wait(&may_end);
    return 0;
}

static void *locks(void *argument) {
    int error = pthread_mutex_lock(argument);
    if (error == EOWNERDEAD) pthread_mutex_consistent(argument);
    pthread_mutex_lock(&mutex);
    sum++;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(argument);
    return (void *)(long)error;
}

static void owners(void) {
    pthread_mutexattr_t attributes;
    sem_init(&semaphore, 0, 0);
    sem_init(&may_end, 0, 0);
    for (int way = 0; way < 4; way++) {
        pthread_mutexattr_init(&attributes);
        if (way & 1) pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        if (way & 2) pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
        pthread_mutex_init(&robust, &attributes);
        pthread_t threads[THREADS];
        sum = 0;
        pthread_mutex_lock(&robust);
        for (int n = 0; n < THREADS; n++) threads[n] = started(locks, &robust);
        nap(20);
        printf("way %d: again: %s", way, strerror(pthread_mutex_lock(&robust)));
        pthread_mutex_unlock(&robust);
        int died = 0;
        for (int n = 0; n < THREADS; n++) {
            void *result;
            pthread_join(threads[n], &result);
            died += (long)result != 0;
        }
        printf(", sum %ld, died %d", sum, died);
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        pthread_mutex_lock(&robust);
        pthread_mutex_unlock(&robust);
        if (way & 1) {
            pthread_t owner = started(takes_and_ends, &robust);
            sem_wait(&semaphore);
            for (int n = 0; n < 3; n++) threads[n] = started(locks, &robust);
            printf(", busy: %s", strerror(pthread_mutex_trylock(&robust)));
            printf(", %s", strerror(pthread_mutex_timedlock(&robust, &time)));
            nap(20);
            sem_post(&may_end);
            pthread_join(owner, 0);
            died = 0;
            for (int n = 0; n < 3; n++) {
                void *result;
                pthread_join(threads[n], &result);
                died += (long)result == EOWNERDEAD;
            }
            printf(", then %d", died);
            /* Nobody waits when the owner ends. */
            owner = started(takes_and_ends, &robust);
            sem_wait(&semaphore);
            sem_post(&may_end);
            pthread_join(owner, 0);
            printf(", last: %s", strerror(pthread_mutex_lock(&robust)));
        }
        printf("\n");
    }
}

/* --- Signals --- */

static volatile int caught[THREADS + 1], in_thread;
static __thread int number;

static void handler(int signal) { caught[number]++; }

static void *paused(void *argument) {
    number = (int)(long)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    __sync_fetch_and_add(&waiting, 1);
    while (!caught[number]) nap(10000);
    return 0;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handler};
    pthread_t threads[THREADS];
    sigaction(SIGUSR1, &action, 0), sigaction(SIGUSR2, &action, 0);
    for (long n = 0; n < THREADS; n++) threads[n] = started(paused, (void *)(n + 1));
    all_wait(THREADS);
    /* Only the first thread does not block it. */
    kill(getpid(), SIGUSR2);
    nap(1);
    printf("first %d\n", caught[0]);
    for (int n = 0; n < THREADS; n++) pthread_kill(threads[n], SIGUSR1);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    int all = 0;
    for (int n = 1; n <= THREADS; n++) all += caught[n] == 1;
    printf("each %d\n", all);
    /* Blocked by all, it waits for who unblocks it. */
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    kill(getpid(), SIGUSR2);
    sigpending(&pending);
    printf("pending %d, first %d", sigismember(&pending, SIGUSR2), caught[0]);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    printf(" %d\n", caught[0]);
}

static void *spins(void *argument) {
    for (;;) __sync_fetch_and_add(&waiting, 1);
}
static void *sleeps(void *argument) {
    for (;;) pause();
}

/* --- Ends --- */

static int status_of(void (*run)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(99);
    }
    waitpid(child, &status, 0);
    return status;
}

static void *ends_all(void *argument) { exit(7); }
static void *ends_itself(void *argument) {
    nap(20);
    syscall(SYS_exit, 9);
    return 0;
}
static void *faults(void *argument) {
    nap(10);
    return (void *)(long)*(volatile int *)8;
}
static void *executes(void *argument) {
    nap(10);
    execl("/proc/self/exe", "threads", "number", (char *)0);
    exit(1);
}
static void *cancelled(void *argument) {
    pthread_cleanup_push((void (*)(void *))sem_post, &semaphore);
    for (;;) pause();
    pthread_cleanup_pop(0);
}
static void with_others(void *(*run)(void *)) {
    for (int n = 0; n < 3; n++) started(n ? sleeps : spins, 0);
    started(run, 0);
    for (;;) pause();
}
static void an_exit(void) { with_others(ends_all); }
static void a_fault(void) { with_others(faults); }
static void an_execution(void) {
    printf("before: ");
    fflush(stdout);
    with_others(executes);
}
static void first_leaves(void) {
    started(ends_itself, 0);
    syscall(SYS_exit, 5);
}
static void a_kill(void) {
    for (int n = 0; n < 3; n++) started(n ? sleeps : spins, 0);
    kill(getpid(), SIGTERM);
    for (;;) pause();
}
static void *forks(void *argument) {
    pid_t child = fork();
    if (child == 0) _exit(getpid() == syscall(SYS_gettid) ? 11 : 12);
    int status;
    waitpid(child, &status, 0);
    return (void *)(long)WEXITSTATUS(status);
}

static void ends(void) {
    printf("exit: %x\n", status_of(an_exit));
    printf("fault: %x\n", status_of(a_fault) & 0x7f);
    printf("term: %x\n", status_of(a_kill));
    printf("exec: %x\n", status_of(an_execution));
    printf("first leaves: %x\n", status_of(first_leaves));
    void *result;
    pthread_join(started(forks, 0), &result);
    printf("fork in a thread: %ld\n", (long)result);
    sem_init(&semaphore, 0, 0);
    pthread_t thread = started(cancelled, 0);
    nap(10);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    int posted = 0;
    sem_getvalue(&semaphore, &posted);
    printf("cancelled: %d %d\n", result == PTHREAD_CANCELED, posted);
}

static void *nothing(void *argument) { return argument; }

/* As many as there may be, one after the other and all at once. */
static void many(void) {
    for (long n = 0; n < 400; n++) {
        void *result;
        pthread_join(started(nothing, (void *)n), &result);
        if ((long)result != n) printf("wrong\n");
    }
    pthread_t threads[100];
    pthread_barrier_init(&barrier, 0, 101);
    for (int n = 0; n < 100; n++) threads[n] = started((void *(*)(void *))pthread_barrier_wait, &barrier);
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < 100; n++) pthread_join(threads[n], 0);
    printf("many\n");
}

/* A sum that takes a while, by eight threads that wait for each other all the time. */
static uint64_t parts[THREADS];
static void *computes(void *argument) {
    long which = (long)argument;
    for (int round = 0; round < 400; round++) {
        uint64_t x = parts[(which + round) % THREADS] + which + round;
        for (int n = 0; n < 3000; n++) x = x * 6364136223846793005 + 1442695040888963407;
        pthread_barrier_wait(&barrier);
        parts[(which + round + 1) % THREADS] ^= x >> 3;
        pthread_mutex_lock(&mutex);
        sum += x % 1000;
        pthread_mutex_unlock(&mutex);
        pthread_barrier_wait(&barrier);
    }
    return 0;
}
static void compute(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long n = 0; n < THREADS; n++) threads[n] = started(computes, (void *)n);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    uint64_t all = 0;
    for (int n = 0; n < THREADS; n++) all = all * 31 + parts[n];
    printf("%016lx %ld\n", all, sum);
}

int main(int count, char **args) {
    static const struct { const char *name; void (*run)(void); } ways[] = {
        {"join", join}, {"conditions", conditions}, {"calls", calls}, {"owners", owners},
        {"signals", signals}, {"ends", ends}, {"many", many}, {"compute", compute}};
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count > 1 && !strcmp(args[1], "number")) {
        printf("alone %d\n", getpid() == syscall(SYS_gettid));
        return 3;
    }
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++)
        if (count > 1 && !strcmp(args[1], ways[n].name)) {
            ways[n].run();
            return 0;
        }
    return 2;
}
