/* Calls that take long, and how long others wait meanwhile. Another thread reads the clock all the
 * time; what is printed is the longest time between two of its readings while the call is carried out.
 * With the name of a file: maps it, and says whether what is there is what reading it gives. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
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
    int64_t last = now();
    while (!stops) {
        int64_t at = now();
        if (measures && at - last > longest) longest = at - last;
        last = at;
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

static int map(const char *path) {
    int file = open(path, O_RDONLY);
    off_t size = lseek(file, 0, SEEK_END);
    char *mapped = size > 0 ? mmap(0, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    char *bytes = mapped == MAP_FAILED ? 0 : malloc(size);
    if (!bytes || pread(file, bytes, size, 0) != size) return 2;
    printf("%lld bytes are mapped, %s\n", (long long)size, memcmp(mapped, bytes, size) ? "others" : "the right ones");
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) return map(arguments[1]);
    static const struct { const char *name; int64_t (*run)(void); } ways[] = {
        {"read", calls_read}, {"pread", calls_pread}, {"write", calls_write}, {"zero", calls_zero},
        {"random", calls_random}, {"sendfile", calls_sendfile}, {"readv", calls_readv}, {"null", calls_null},
        {"mmap", calls_mmap},
        {"munmap", calls_munmap}, {"mprotect", calls_mprotect}};
    pthread_t watcher;
    buffer = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(buffer, 1, SIZE);
    sparse = open("/tmp/sparse", O_RDWR | O_CREAT | O_TRUNC, 0600);
    null = open("/dev/null", O_RDWR);
    if (buffer == MAP_FAILED || ftruncate(sparse, 1l << 40)) return 2;
    pthread_create(&watcher, 0, watch, 0);
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) {
        if (ways[n].run == calls_munmap || ways[n].run == calls_mprotect) make_areas();
        // The other thread is in its loop, and this one has a slice before it.
        usleep(1000);
        longest = 0, measures = 1;
        int64_t before = now(), got = ways[n].run(), took = now() - before;
        measures = 0;
        printf("%s %lld longest %lld in all %lld\n", ways[n].name, (long long)got, (long long)longest, (long long)took);
    }
    stops = 1;
    pthread_join(watcher, 0);
    return 0;
}
