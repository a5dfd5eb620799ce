/* Memory that processes share. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define MAPS(call) do { errno = 0; void *made = (call); printf("%s: %s\n", #call, made == MAP_FAILED ? strerror(errno) : "mapped"); } while (0)
#define BOTH (PROT_READ | PROT_WRITE)

static char *map(size_t size, int protection, int flags, int fd, off_t offset) {
    char *at = mmap(0, size, protection, flags, fd, offset);
    if (at == MAP_FAILED) printf("mmap: %s\n", strerror(errno)), exit(1);
    return at;
}

/* What a file has, by reading it. */
static void contents(const char *name, int from, int length) {
    char bytes[64] = {0};
    int fd = open(name, O_RDONLY);
    int got = pread(fd, bytes, length, from);
    printf("%s at %d: %d '%s'\n", name, from, got, bytes);
    close(fd);
}

static void files(void) {
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SHOW(ftruncate(fd, 10000));
    char *at = map(10000, BOTH, MAP_SHARED, fd, 0), *second = map(4096, PROT_READ, MAP_SHARED, fd, 4096);
    char *copy = map(10000, BOTH, MAP_PRIVATE, fd, 0);
    strcpy(at, "by the mapping"), strcpy(at + 4096, "second page"), strcpy(copy, "private");
    printf("%s, %s\n", second, copy);
    contents("mapped", 0, 14);
    SHOW(pwrite(fd, "THE", 3, 3));
    SHOW(pwrite(fd, "page TWO", 8, 4096));
    printf("%s, %s\n", at, second);
    SHOW(msync(at, 10000, MS_SYNC));
    SHOW(msync(at, 10000, MS_ASYNC));
    SHOW(msync(at, 10000, MS_SYNC | MS_ASYNC));
    SHOW(msync(at + 1, 10000, MS_SYNC));
    SHOW(msync((void *)0x7000000, 4096, MS_SYNC));
    SHOW(fsync(fd));
    /* Cut, and longer again: zeros. */
    strcpy(at + 4094, "xxxxxx");
    SHOW(ftruncate(fd, 4096));
    SHOW(ftruncate(fd, 10000));
    printf("%.2s|%s|%s\n", at + 4094, at + 4096, second);
    /* A part of it, other rights, and moved. */
    SHOW(munmap(at + 4096, 4096));
    SHOW(mprotect(at, 4096, PROT_READ));
    SHOW(mprotect(second, 4096, BOTH));
    strcpy(second, "written to the second");
    contents("mapped", 4096, 30);
    char *moved = mremap(second, 4096, 8192, MREMAP_MAYMOVE);
    printf("moved: %s\n", moved);
    strcpy(moved + 4096, "third"), strcpy(moved, "moved");
    contents("mapped", 8192, 5);
    contents("mapped", 4096, 5);
    close(fd);
    strcpy(moved, "without a descriptor");
    SHOW(munmap(moved, 8192));
    SHOW(munmap(at, 10000));
    contents("mapped", 4096, 20);
    struct stat stat;
    SHOW(lstat("mapped", &stat));
    printf("size %ld\n", (long)stat.st_size);
    /* What may not be written. */
    fd = open("mapped", O_RDONLY);
    MAPS(mmap(0, 4096, BOTH, MAP_SHARED, fd, 0));
    MAPS(mmap(0, 4096, BOTH, MAP_PRIVATE, fd, 0));
    at = map(4096, PROT_READ, MAP_SHARED, fd, 0);
    printf("%s\n", at);
    close(fd);
    fd = open("mapped", O_WRONLY);
    MAPS(mmap(0, 4096, PROT_WRITE, MAP_SHARED, fd, 0));
    MAPS(mmap(0, 4096, BOTH, MAP_SHARED, 77, 0));
    MAPS(mmap(0, 4096, BOTH, MAP_SHARED, fd, 5));
    MAPS(mmap(0, 0, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    close(fd);
    fd = open("/dev/zero", O_RDWR);
    at = map(4096, BOTH, MAP_SHARED, fd, 0);
    printf("zero: %d\n", *at);
    SHOW(read(fd, at, 4096));
    close(fd);
    /* Calls read and write such memory, over its edges. */
    at = map(3 * 4096, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(at + 4096, 4096, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(at, 'p', 3 * 4096);
    int ends[2];
    pipe(ends);
    SHOW(write(ends[1], at + 4000, 4300));
    memset(at, 'q', 3 * 4096);
    SHOW(read(ends[0], at + 4000, 4300));
    printf("%c%c%c%c %c%c\n", at[3999], at[4000], at[4096], at[8191], at[8299], at[8300]);
    SHOW(madvise(at + 4096, 4096, MADV_DONTNEED));
    SHOW(madvise(at + 4096, 4096, MADV_REMOVE));
    printf("%d\n", at[4096]);
    SHOW(munmap(at, 3 * 4096));
    SHOW(unlink("mapped"));
}

static void memfds(void) {
    char name[300];
    memset(name, 'n', sizeof name - 1), name[299] = 0;
    SHOW(memfd_create(name, 0) > 0);
    SHOW(memfd_create("x", 0x100) > 0);
    int plain = memfd_create("plain", 0), fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char path[64], target[64] = {0};
    sprintf(path, "/proc/self/fd/%d", fd);
    readlink(path, target, 63);
    printf("%s, cloexec %d\n", target, fcntl(fd, F_GETFD));
    struct stat stat;
    fstat(fd, &stat);
    printf("mode %o, links %d, size %d\n", stat.st_mode, (int)stat.st_nlink, (int)stat.st_size);
    SHOW(fcntl(plain, F_GET_SEALS));
    SHOW(fcntl(plain, F_ADD_SEALS, F_SEAL_GROW));
    SHOW(fcntl(fd, F_GET_SEALS));
    SHOW(fcntl(0, F_GET_SEALS));
    SHOW(ftruncate(fd, 8192));
    char *at = map(8192, BOTH, MAP_SHARED, fd, 0);
    strcpy(at + 100, "hello");
    char bytes[10] = {0};
    SHOW(pread(fd, bytes, 5, 100));
    printf("%s\n", bytes);
    SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    SHOW(ftruncate(fd, 4096));
    SHOW(ftruncate(fd, 8193));
    SHOW(ftruncate(fd, 8192));
    SHOW(pwrite(fd, "xy", 2, 8190));
    SHOW(pwrite(fd, "xy", 2, 8192));
    SHOW(munmap(at, 8192));
    SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL));
    SHOW(pwrite(fd, "xy", 2, 0));
    MAPS(mmap(0, 4096, BOTH, MAP_SHARED, fd, 0));
    at = map(4096, PROT_READ, MAP_SHARED, fd, 0);
    printf("%s\n", at + 100);
    SHOW(mprotect(at, 4096, BOTH));
    SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    SHOW(fcntl(fd, F_GET_SEALS));
    close(fd), close(plain);
    /* In /dev/shm. */
    shm_unlink("/one-of-the-tests");
    fd = shm_open("/one-of-the-tests", O_RDWR | O_CREAT | O_EXCL, 0600);
    SHOW(shm_open("/one-of-the-tests", O_RDWR | O_CREAT | O_EXCL, 0600));
    SHOW(ftruncate(fd, 100000));
    at = map(100000, BOTH, MAP_SHARED, fd, 0);
    at[99999] = 'z';
    int other = shm_open("/one-of-the-tests", O_RDONLY, 0);
    printf("%c\n", map(100000, PROT_READ, MAP_SHARED, other, 0)[99999]);
    SHOW(shm_unlink("/one-of-the-tests"));
    SHOW(shm_unlink("/one-of-the-tests"));
    close(fd), close(other);
    sem_unlink("/named-of-the-tests");
    sem_t *semaphore = sem_open("/named-of-the-tests", O_CREAT | O_EXCL, 0600, 2);
    SHOW(sem_wait(semaphore));
    SHOW(sem_trywait(semaphore));
    SHOW(sem_trywait(semaphore));
    SHOW(sem_post(semaphore));
    printf("same: %d\n", sem_open("/named-of-the-tests", 0) == semaphore);
    SHOW(sem_close(semaphore));
    SHOW(sem_unlink("/named-of-the-tests"));
}

/* Terabytes that nobody touches. */
static void reservations(void) {
    char *at = mmap(0, 1ul << 34, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    printf("16 GB: %d\n", at != MAP_FAILED);
    SHOW(mprotect(at + (1ul << 33), 8192, BOTH));
    at[1ul << 33] = 1;
    SHOW(munmap(at, 1ul << 34));
}

struct both {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_barrier_t barrier;
    sem_t semaphore;
    int count, turn, word;
};

static void adds(struct both *both, int times) {
    for (int n = 0; n < times; n++) {
        pthread_mutex_lock(&both->mutex);
        both->count++;
        pthread_mutex_unlock(&both->mutex);
    }
}

/* Two processes take turns. */
static void turns(struct both *both, int own) {
    for (int n = 0; n < 20; n++) {
        pthread_mutex_lock(&both->mutex);
        while (both->turn % 2 != own) pthread_cond_wait(&both->cond, &both->mutex);
        both->turn++;
        pthread_cond_broadcast(&both->cond);
        pthread_mutex_unlock(&both->mutex);
    }
}

static void processes(void) {
    struct both *both = (void *)map(sizeof *both, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int *private = (void *)map(4096, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&both->mutex, &mutex);
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&both->cond, &cond);
    pthread_barrierattr_t barrier;
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&both->barrier, &barrier, 3);
    sem_init(&both->semaphore, 1, 0);
    fflush(stdout);
    pid_t children[2];
    for (int n = 0; n < 2; n++)
        if (!(children[n] = fork())) {
            private[0] = 5;
            pthread_barrier_wait(&both->barrier);
            adds(both, 300);
            sem_post(&both->semaphore);
            if (n) turns(both, 1);
            _exit(n);
        }
    pthread_barrier_wait(&both->barrier);
    adds(both, 300);
    sem_wait(&both->semaphore), sem_wait(&both->semaphore);
    printf("added: %d, private: %d\n", both->count, private[0]);
    turns(both, 0);
    printf("ended: %d", ended(children[0])), printf(" %d\n", ended(children[1]));
    printf("turns: %d\n", both->turn);
    fflush(stdout);
    /* A word that is private to a memory wakes nobody in another one. */
    pid_t child = fork();
    if (!child) {
        struct timespec time = {0, 50000000};
        int first = syscall(SYS_futex, &both->word, FUTEX_WAIT_PRIVATE, 0, &time, 0, 0) < 0 ? errno : 0;
        int second = syscall(SYS_futex, &both->word, FUTEX_WAIT, 0, 0, 0, 0) < 0 ? errno : 0;
        _exit(first == ETIMEDOUT ? second : 99);
    }
    for (int woken = 0; !woken;) {
        struct timespec time = {0, 5000000};
        nanosleep(&time, 0);
        syscall(SYS_futex, &both->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        woken = syscall(SYS_futex, &both->word, FUTEX_WAKE, 1, 0, 0, 0);
    }
    printf("woken: %d\n", ended(child));
    fflush(stdout);
    /* Who dies with a lock. */
    if (!(child = fork())) pthread_mutex_lock(&both->mutex), raise(SIGKILL);
    printf("died: %d", ended(child));
    printf(", lock %s", strerror(pthread_mutex_lock(&both->mutex)));
    printf(", %d %d\n", pthread_mutex_consistent(&both->mutex), pthread_mutex_unlock(&both->mutex));
    fflush(stdout);
    /* A file, from two programs; the child is killed, and what it wrote is there. */
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, 1 << 20);
    close(fd);
    if (!(child = fork())) {
        fd = open("mapped", O_RDWR);
        char *at = map(1 << 20, BOTH, MAP_SHARED, fd, 0);
        strcpy(at + 500000, "from the child");
        close(fd);
        sem_post(&both->semaphore);
        for (;;) pause();
    }
    sem_wait(&both->semaphore);
    contents("mapped", 500000, 14);
    kill(child, SIGKILL);
    printf("killed: %d\n", ended(child));
    contents("mapped", 500000, 14);
    fflush(stdout);
    /* The object outlives who made it, and `execve` leaves it. */
    if (!(child = fork())) {
        strcpy((char *)both, "written by the child");
        execl("/proc/self/exe", "shared", "leaves", NULL);
        _exit(9);
    }
    printf("left: %d, %s\n", ended(child), (char *)both);
    unlink("mapped");
    /* Many. */
    int made = 0;
    for (; made < 100; made++) {
        char *at = mmap(0, 4096, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) break;
        *at = 1;
        if (made % 2) munmap(at, 4096);
    }
    printf("made %d\n", made);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "one";
    if (!strcmp(what, "leaves")) return 7;
    if (!strcmp(what, "many")) return processes(), 0;
    files();
    memfds();
    reservations();
    return 0;
}
