/* Calls that take long, and how long others wait meanwhile. Another thread reads the clock all the
 * time; what is printed is the longest time between two of its readings while the call is carried out.
 * With the name of a file: maps it, and says whether what is there is what reading it gives. `crowd` makes processes with very many
 * open files, `watch MILLISECONDS` says how long it has waited at the most. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MB = 1 << 20, SIZE = 6 * MB, AREAS = 4000 };

static volatile int measures, stops;
static volatile int64_t longest;

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000ll + at.tv_nsec;
}

static void *watch(void *unused) {
    while (!stops) {
        usleep(1000);
        for (int64_t last = now(), at; measures; last = at)
            if ((at = now()) - last > longest) longest = at - last;
    }
    return unused;
}

static char *buffer;
static int sparse, null;
static struct iovec ranges[1024];

static int64_t calls_read(void) { return read(sparse, buffer, SIZE); }
static int64_t calls_pread(void) { return pread(sparse, buffer, SIZE, 4096); }
static int64_t calls_write(void) { return write(open("/tmp/written", O_RDWR | O_CREAT, 0600), buffer, SIZE / 2); }
static int64_t calls_zero(void) { return read(open("/dev/zero", O_RDONLY), buffer, SIZE); }
static int64_t calls_random(void) { return getrandom(buffer, SIZE / 4, 0); }
static int64_t calls_sendfile(void) { return sendfile(null, sparse, 0, 4l * SIZE); }
static int64_t calls_readv(void) {
    for (int n = 0; n < 1024; n++) ranges[n] = (struct iovec){buffer, n % 2 ? SIZE / 256 : 7};
    return readv(sparse, ranges, 1024);
}
static int64_t calls_mmap(void) {
    char *at = mmap(0, SIZE, PROT_READ, MAP_PRIVATE, sparse, 0);
    return at == MAP_FAILED ? -1 : munmap(at, SIZE);
}
static int64_t calls_null(void) {
    for (int n = 0; n < 1024; n++) ranges[n] = (struct iovec){buffer, SIZE};
    return writev(null, ranges, 1024);
}

static char *areas;
static int64_t calls_munmap(void) { return munmap(areas, AREAS * 4096l); }
static int64_t calls_mprotect(void) { return mprotect(areas, AREAS * 4096l, PROT_READ); }
static void make_areas(void) {
    areas = mmap(0, AREAS * 4096l, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < AREAS; n += 2) mprotect(areas + n * 4096l, 4096, PROT_READ | PROT_WRITE);
}

/* A file of which each page was changed in memory. */
static char *shared;
static void make_shared(void) {
    int file = open("/tmp/shared", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4l * SIZE)) exit(3);
    shared = mmap(0, 4l * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) exit(4);
    for (long at = 0; at < 4l * SIZE; at += 4096) shared[at] = 'x';
    close(file);
}
static int64_t calls_msync(void) { return msync(shared, 4l * SIZE, MS_SYNC); }
static int64_t calls_unmap(void) {
    for (long at = 0; at < 4l * SIZE; at += 4096) shared[at] = 'y';
    return munmap(shared, 4l * SIZE);
}

/* Programs that start while what another one has left behind is written back. */
static int64_t calls_start(void) {
    pid_t other = fork(), child;
    if (other == 0) {
        make_shared();
        for (;;) pause();
    }
    usleep(100000);
    kill(other, SIGKILL);
    if ((child = vfork()) == 0) {
        execl("/bin/turns", "turns", "/bin/turns", (char *)0);
        _exit(5);
    }
    waitpid(other, 0, 0);
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

/* Processes with very many open files end all at once. */
enum { CROWD = 30 };
static pid_t crowd;
static void make_crowd(void) {
    int ready[2];
    char byte;
    pipe(ready);
    crowd = 0;
    for (int n = 0; n < CROWD; n++) {
        pid_t child = fork();
        if (child == 0) {
            setpgid(0, crowd);
            for (int m = 0; m < 1000; m++) open(m % 2 ? "/dev/null" : "/bin/turns", O_RDONLY);
            write(ready[1], "x", 1);
            for (;;) pause();
        }
        setpgid(child, crowd ? crowd : child);
        if (!crowd) crowd = child;
        read(ready[0], &byte, 1);
    }
    close(ready[0]), close(ready[1]);
}
static int64_t calls_kill(void) {
    int ended = 0;
    if (kill(-crowd, SIGKILL)) return -1;
    while (waitpid(-crowd, 0, 0) > 0) ended++;
    return ended == CROWD ? 0 : -1;
}

static int map(const char *path) {
    int file = open(path, O_RDONLY);
    off_t size = lseek(file, 0, SEEK_END);
    char *mapped = size > 0 ? mmap(0, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    char *bytes = mapped == MAP_FAILED ? 0 : malloc(size);
    if (!bytes || pread(file, bytes, size, 0) != size) return 2;
    printf("%lld bytes are mapped, %s\n", (long long)size, memcmp(mapped, bytes, size) ? "others" : "the right ones");
    return 0;
}

/* How long this program waits at the most while others do something, for so many milliseconds. */
static int wait_for(int64_t milliseconds) {
    int64_t begin = now(), last = begin, at = begin;
    for (; at - begin < milliseconds * 1000000; last = at) {
        at = now();
        if (at - last > longest) longest = at - last;
    }
    printf("watch 0 longest %lld in all %lld\n", (long long)longest, (long long)(at - begin));
    return 0;
}

int main(int count, char **arguments) {
    if (count > 2) return wait_for(atoi(arguments[2]));
    if (count > 1 && !strcmp(arguments[1], "crowd")) {
        make_crowd();
        for (;;) pause();
    }
    if (count > 1) return map(arguments[1]);
    static const struct { const char *name; int64_t (*run)(void); } ways[] = {
        {"read", calls_read}, {"pread", calls_pread}, {"write", calls_write}, {"zero", calls_zero},
        {"random", calls_random}, {"sendfile", calls_sendfile}, {"readv", calls_readv}, {"null", calls_null},
        {"mmap", calls_mmap},
        {"munmap", calls_munmap}, {"mprotect", calls_mprotect}, {"msync", calls_msync}, {"unmap", calls_unmap},
        {"start", calls_start}, {"kill", calls_kill}};
    pthread_t watcher;
    buffer = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(buffer, 1, SIZE);
    sparse = open("/tmp/sparse", O_RDWR | O_CREAT | O_TRUNC, 0600);
    null = open("/dev/null", O_RDWR);
    if (buffer == MAP_FAILED || ftruncate(sparse, 1l << 40)) return 2;
    pthread_create(&watcher, 0, watch, 0);
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) {
        if (ways[n].run == calls_msync) make_shared();
        if (ways[n].run == calls_kill) make_crowd();
        if (ways[n].run == calls_munmap || ways[n].run == calls_mprotect) make_areas();
        // Then the other thread is in its loop, and this one has a slice before it.
        measures = 1;
        usleep(3000);
        longest = 0;
        int64_t before = now(), got = ways[n].run(), took = now() - before;
        measures = 0;
        printf("%s %lld longest %lld in all %lld\n", ways[n].name, (long long)got, (long long)longest, (long long)took);
    }
    stops = 1;
    pthread_join(watcher, 0);
    return 0;
}
