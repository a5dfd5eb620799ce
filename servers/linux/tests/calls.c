/* Makes Linux calls that busybox does not, or not in these ways, and prints what comes of them.
 * The output must be the same on Linux and on the emulation. No addresses, times or process
 * numbers are printed, only what must not differ. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHOW(expression)                                                                          \
    do {                                                                                          \
        errno = 0;                                                                                \
        long result = (long)(expression);                                                         \
        printf("%s = %ld %s\n", #expression, result, errno ? strerrorname_np(errno) : "");        \
    } while (0)
#define TRUE(expression) printf("%s: %s\n", #expression, (expression) ? "yes" : "NO")

static sigjmp_buf back;
static volatile sig_atomic_t caught, code;
static volatile double kept = 1.5;

static void on_signal(int number) { caught = number; }
static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    caught = number;
    code = info->si_code;
    siglongjmp(back, 1);
}
static void on_trap(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    caught = number;
    code = info->si_code;
    /* Clobbers the FPU; what was interrupted must not notice. */
    kept = kept * 3.25 - 1.0;
    uc->uc_mcontext.gregs[REG_RIP] += 2; /* behind ud2 */
}

static void memory(void) {
    puts("-- memory");
    size_t page = 4096;
    char *a = mmap(0, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRUE(a != MAP_FAILED && a[0] == 0 && a[8 * page - 1] == 0);
    for (int i = 0; i < 8; i++) a[i * page] = 'a' + i;
    SHOW(munmap(a + 2 * page, page));
    TRUE(a[page] == 'b' && a[3 * page] == 'd');
    SHOW(msync(a, 8 * page, MS_SYNC));
    SHOW(mmap(a + 2 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a + 2 * page);
    TRUE(a[2 * page] == 0);
    SHOW(mmap(a, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    SHOW(mprotect(a + page, 2 * page, PROT_READ));
    SHOW(mprotect(a + 1, page, PROT_READ));
    SHOW(mprotect(a + page, 2 * page, PROT_READ | PROT_WRITE));
    char *b = mremap(a, 8 * page, 20 * page, MREMAP_MAYMOVE);
    TRUE(b != MAP_FAILED && b[0] == 'a' && b[page] == 'b' && b[7 * page] == 'h' && b[19 * page] == 0);
    b[19 * page] = 'z';
    char *c = mremap(b, 20 * page, 4 * page, 0);
    TRUE(c == b && c[3 * page] == 'd');
    char *d = mmap(0, 64 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SHOW(mremap(c, 4 * page, 8 * page, MREMAP_MAYMOVE | MREMAP_FIXED, d + 8 * page) == d + 8 * page);
    TRUE(d[8 * page] == 'a' && d[11 * page] == 'd' && d[12 * page] == 0);
    SHOW(read(open("text", O_RDONLY), d, 10));
    SHOW(read(open("text", O_RDONLY), d + 8 * page, 10));
    SHOW(madvise(d + 8 * page, page, MADV_DONTNEED));
    TRUE(d[8 * page] == 0);
    SHOW(munmap(d, 64 * page));
    SHOW(munmap(d + 1, page));
    /* What is dropped beside copies of files, and beside nothing. */
    int from = open("text", O_RDONLY);
    char *mixed = mmap(0, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mixed, 'm', 4 * page);
    SHOW(mmap(mixed + page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, from, 0) == mixed + page);
    SHOW(madvise(mixed, 4 * page, MADV_DONTNEED));
    TRUE(mixed[0] == 0 && mixed[2 * page] == 0 && mixed[4 * page - 1] == 0 && mixed[page] != 0);
    memset(mixed, 'n', page), memset(mixed + 2 * page, 'n', 2 * page);
    SHOW(munmap(mixed + 2 * page, page));
    SHOW(madvise(mixed, 4 * page, MADV_DONTNEED));
    TRUE(mixed[0] == 0 && mixed[3 * page] == 0 && mixed[page] != 0);
    char *reads = mmap(0, page, PROT_READ, MAP_SHARED, from, 0);
    SHOW(mprotect(reads, page, PROT_READ | PROT_WRITE));
    SHOW(close(from));
    SHOW(splice(1000, 0, 1, 0, 1, 0) < 0);
    int pipes[2];
    SHOW(pipe(pipes)), SHOW(fcntl(pipes[0], F_SETPIPE_SZ, 4096) > 0), SHOW(fcntl(pipes[0], F_SETPIPE_SZ, 1 << 31 | 1));
    close(pipes[0]), close(pipes[1]);
    char some[20] = "";
    int meminfo = open("/proc/meminfo", O_RDONLY);
    SHOW(lseek(meminfo, 3, SEEK_SET)), SHOW(read(meminfo, some, 5)), puts(some);
    close(meminfo);
    SHOW(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SHOW(mmap(0, 1ul << 46, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    int fd = open("text", O_RDONLY);
    struct stat st;
    SHOW(fstat(fd, &st));
    char *f = mmap(0, st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *copy = malloc(st.st_size);
    SHOW(pread(fd, copy, st.st_size, 0) == st.st_size);
    TRUE(memcmp(f, copy, st.st_size) == 0 && f[st.st_size] == 0);
    f[0] = 'X';
    SHOW(pread(fd, copy, 1, 0));
    TRUE(copy[0] != 'X');
    f = mmap(0, page, PROT_READ, MAP_SHARED, fd, page);
    SHOW(pread(fd, copy, page, page));
    TRUE(memcmp(f, copy, page) == 0);
    SHOW(mmap(0, page, PROT_READ, MAP_PRIVATE, 77, 0));
    SHOW(mmap(0, page, PROT_READ, MAP_PRIVATE, fd, 12));
    close(fd);
    char *old = sbrk(0);
    SHOW(brk(old + 5 * page));
    old[5 * page - 1] = 1;
    SHOW(brk(old));
    SHOW(brk(old + 5 * page));
    TRUE(old[5 * page - 1] == 0);
    for (int i = 0; i < 200; i++) {
        char *p = malloc(1000 * (i + 1)), *q = realloc(p, 3000 * (i + 1));
        memset(q, i, 3000 * (i + 1));
        if (i % 3) free(q);
    }
}

/* Code on the stack, once that allows it. */
static void stack(void) {
    unsigned char code[4096] __attribute__((aligned(4096)));
    SHOW(mprotect(code, 4096, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP));
    SHOW(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN));
    /* mov $42, %eax; ret */
    memcpy(code, "\xb8\x2a\0\0\0\xc3", 6);
    SHOW(((int (*)(void))code)());
    SHOW(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_GROWSDOWN));
    char *other = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(mprotect(other, 4096, PROT_READ | PROT_GROWSDOWN));
}

static void files(void) {
    puts("-- files");
    char buffer[256] = "";
    int fd = open("made", O_RDWR | O_CREAT | O_EXCL, 0640);
    SHOW(open("made", O_RDWR | O_CREAT | O_EXCL, 0640));
    SHOW(write(fd, "0123456789", 10));
    SHOW(lseek(fd, 2, SEEK_SET));
    SHOW(read(fd, buffer, 3));
    SHOW(lseek(fd, -1, SEEK_END));
    SHOW(lseek(fd, -11, SEEK_END));
    SHOW(lseek(fd, 100, SEEK_SET));
    SHOW(write(fd, "end", 3));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(lseek(fd, 0, SEEK_DATA));
    SHOW(lseek(fd, 0, 9));
    int other = dup(fd);
    SHOW(lseek(other, 5, SEEK_SET));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(dup2(fd, fd) == fd);
    SHOW(dup3(fd, fd, 0));
    SHOW(dup2(99, 5));
    SHOW(dup2(fd, 100000));
    SHOW(fcntl(fd, F_GETFD));
    SHOW(fcntl(fd, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(fd, F_GETFD));
    SHOW(fcntl(fd, F_DUPFD, 50));
    SHOW(fcntl(50, F_DUPFD_CLOEXEC, 50));
    SHOW(fcntl(51, F_GETFD));
    SHOW(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SHOW(fcntl(fd, F_SETFL, O_APPEND));
    SHOW(pwrite(fd, "x", 1, 0));
    SHOW(write(fd, "appended", 8));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(fcntl(fd, F_SETFL, 0));
    struct iovec iov[3] = {{"one", 3}, {"", 0}, {"three", 5}};
    SHOW(pwritev(fd, iov, 3, 20));
    struct iovec in[2] = {{buffer, 4}, {buffer + 10, 4}};
    SHOW(preadv(fd, in, 2, 20));
    printf("%.4s %.4s\n", buffer, buffer + 10);
    SHOW(writev(fd, iov, -1));
    SHOW(readv(fd, (void *)8, 1));
    SHOW(write(fd, (void *)8, 4));
    SHOW(read(fd, (void *)8, 4));
    SHOW(write(fd, (void *)8, 0));
    SHOW(ftruncate(fd, 30));
    SHOW(ftruncate(fd, -1));
    SHOW(posix_fallocate(fd, 0, 60));
    struct stat st;
    SHOW(fstat(fd, &st));
    printf("%o %ld %ld\n", st.st_mode, (long)st.st_size, (long)st.st_nlink);
    SHOW(fchmod(fd, 0604));
    SHOW(fchown(fd, 3, 4));
    SHOW(fchown(fd, -1, 5));
    SHOW(fstat(fd, &st));
    printf("%o %d %d\n", st.st_mode, st.st_uid, st.st_gid);
    struct timespec times[2] = {{100, 5}, {200, 7}};
    SHOW(futimens(fd, times));
    times[0].tv_nsec = UTIME_OMIT;
    times[1] = (struct timespec){300, 0};
    SHOW(utimensat(AT_FDCWD, "made", times, 0));
    SHOW(stat("made", &st));
    printf("%ld.%ld %ld.%ld\n", st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    struct statx sx;
    SHOW(statx(AT_FDCWD, "made", 0, STATX_BASIC_STATS, &sx));
    printf("%o %llu %lld %u\n", sx.stx_mode, sx.stx_size, (long long)sx.stx_mtime.tv_sec, sx.stx_nlink);
    SHOW(link("made", "made2"));
    SHOW(rename("made2", "made3"));
    SHOW(renameat2(AT_FDCWD, "made3", AT_FDCWD, "text", RENAME_NOREPLACE));
    SHOW(stat("made2", &st));
    SHOW(unlink("made"));
    SHOW(unlink("made3"));
    SHOW(fstat(fd, &st));
    SHOW((long)st.st_nlink);
    SHOW(pread(fd, buffer, 5, 20));
    SHOW(open("text/x", O_RDONLY));
    SHOW(open("nowhere/x", O_WRONLY | O_CREAT, 0600));
    SHOW(open(".", O_WRONLY));
    SHOW(open("", O_RDONLY));
    SHOW(open("text", O_RDONLY | O_DIRECTORY));
    SHOW(open((char *)8, O_RDONLY));
    char name[400];
    memset(name, 'n', sizeof name);
    name[399] = 0;
    SHOW(open(name, O_WRONLY | O_CREAT, 0600));
    SHOW(mkdir("directory", 0750));
    SHOW(mkdir("directory", 0750));
    int directory = open("directory", O_RDONLY | O_DIRECTORY);
    SHOW(read(directory, buffer, 1));
    SHOW(write(directory, buffer, 1));
    int inside = openat(directory, "inside", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    SHOW(write(inside, "abc", 3));
    SHOW(read(inside, buffer, 3));
    SHOW(symlinkat("inside", directory, "link"));
    SHOW(readlinkat(directory, "link", buffer, 3));
    SHOW(fstatat(directory, "link", &st, AT_SYMLINK_NOFOLLOW));
    printf("%o %ld\n", st.st_mode & S_IFMT, (long)st.st_size);
    SHOW(open("directory/link", O_RDONLY | O_NOFOLLOW));
    SHOW(faccessat(directory, "inside", R_OK | W_OK, 0));
    SHOW(faccessat(directory, "inside", X_OK, 0));
    SHOW(access("missing", F_OK));
    SHOW(linkat(directory, "link", directory, "hard", AT_SYMLINK_FOLLOW));
    SHOW(link("directory", "directory2"));
    SHOW(rmdir("directory"));
    SHOW(unlink("directory"));
    SHOW(fchdir(directory));
    SHOW(getcwd(buffer, 3) == 0);
    SHOW(strcmp(strrchr(getcwd(buffer, sizeof buffer), '/'), "/directory"));
    SHOW(chdir(".."));
    SHOW(chdir("text"));
    DIR *stream = fdopendir(directory);
    int entries = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        entries++;
        if (entry->d_name[0] == '.') continue;
        SHOW(unlinkat(dirfd(stream), entry->d_name, 0));
    }
    SHOW(entries);
    rewinddir(stream);
    SHOW(readdir(stream) != 0);
    closedir(stream);
    SHOW(unlinkat(AT_FDCWD, "directory", 0));
    SHOW(unlinkat(AT_FDCWD, "directory", AT_REMOVEDIR));
    SHOW(symlink("loop", "loop"));
    SHOW(open("loop", O_RDONLY));
    SHOW(unlink("loop"));
    SHOW(truncate("text", -1));
    SHOW(truncate(".", 1));
    int text = open("text", O_RDONLY), out = open("sent", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t at = 10;
    SHOW(sendfile(out, text, &at, 100));
    SHOW(at);
    SHOW(lseek(text, 0, SEEK_CUR));
    SHOW(sendfile(out, text, 0, 1 << 20));
    SHOW(sendfile(text, out, 0, 10));
    SHOW(fsync(out));
    SHOW(fdatasync(out));
    SHOW(posix_fadvise(text, 0, 0, POSIX_FADV_SEQUENTIAL));
    SHOW(close(out));
    SHOW(close(out));
    SHOW(fsync(out));
    SHOW(chmod("sent", 04711));
    SHOW(stat("sent", &st));
    printf("%o %ld\n", st.st_mode, (long)st.st_size);
    SHOW(unlink("sent"));
    int null = open("/dev/null", O_RDWR);
    SHOW(write(null, buffer, 100));
    SHOW(read(null, buffer, 100));
    int zero = open("/dev/zero", O_RDONLY);
    SHOW(read(zero, buffer, 100));
    TRUE(buffer[0] == 0 && buffer[99] == 0);
    SHOW(fstat(null, &st));
    printf("%o %lx\n", st.st_mode, (long)st.st_rdev);
    SHOW(isatty(null));
    SHOW(write(open("/dev/full", O_WRONLY), "x", 1));
    int random = open("/dev/urandom", O_RDONLY);
    SHOW(read(random, buffer, 100));
    struct statfs fs;
    SHOW(statfs("/", &fs));
    SHOW(statfs("missing", &fs));
    SHOW(readlink("/proc/self/exe", buffer, sizeof buffer) > 0);
    SHOW(readlink("text", buffer, sizeof buffer));
    SHOW(umask(077));
    SHOW(umask(022));
    SHOW(syscall(SYS_close_range, 40, 60, 0));
    SHOW(fcntl(50, F_GETFD));
    SHOW(syscall(SYS_close_range, ~0u, ~0u, 0)); SHOW(syscall(SYS_close_range, ~0u - 1, ~0u, 4));
    SHOW(open("unlinked", O_RDWR | O_CREAT, 0600) >= 0);
    SHOW(unlink("unlinked"));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    SHOW(fcntl(text, F_GETLK, &lock));
    SHOW(lock.l_type == F_UNLCK);
    SHOW(ioctl(text, 0x541b, &entries) == 0 && entries >= 0);
}

static void signals(void) {
    puts("-- signals");
    struct sigaction action = {.sa_handler = on_signal}, old;
    SHOW(sigaction(SIGUSR1, &action, &old));
    SHOW(old.sa_handler == SIG_DFL);
    SHOW(raise(SIGUSR1));
    SHOW(caught);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    SHOW(sigprocmask(SIG_BLOCK, &set, &before));
    caught = 0;
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(caught);
    SHOW(sigpending(&set));
    SHOW(sigismember(&set, SIGUSR1));
    SHOW(sigprocmask(SIG_SETMASK, &before, 0));
    SHOW(caught);
    SHOW(sigaction(SIGKILL, &action, 0));
    SHOW(sigaction(65, &action, 0));
    SHOW(kill(getpid(), 0));
    SHOW(kill(getpid(), 99));
    action.sa_flags = SA_RESETHAND;
    SHOW(sigaction(SIGUSR2, &action, 0));
    SHOW(raise(SIGUSR2));
    SHOW(sigaction(SIGUSR2, 0, &old));
    SHOW(old.sa_handler == SIG_DFL);
    SHOW(raise(SIGCHLD));
    SHOW(raise(SIGWINCH));
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    SHOW(sigaltstack(&stack, 0));
    SHOW(sigaction(SIGSEGV, &fault, 0));
    SHOW(sigaction(SIGFPE, &fault, 0));
    if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
    SHOW(caught);
    SHOW(code);
    char *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)page = 1;
    SHOW(caught);
    SHOW(code);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("xorl %%ecx, %%ecx\n\tdivl %%ecx" : : : "eax", "ecx", "edx", "cc");
    SHOW(caught);
    SHOW(code);
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    SHOW(sigaction(SIGILL, &trap, 0));
    double value = kept * 2.0;
    __asm__ volatile("movsd %0, %%xmm7\n\tud2\n\tmovsd %%xmm7, %0" : "+m"(value) : : "xmm7", "memory");
    printf("%d %.3f %.3f\n", caught, value, kept);
    SHOW(sigaltstack(0, &stack));
    SHOW(stack.ss_flags);
    SHOW(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, 0));
    SHOW(alarm(1));
    SHOW(pause());
    SHOW(caught);
    struct itimerval timer = {.it_value = {0, 20000}};
    SHOW(setitimer(ITIMER_REAL, &timer, 0));
    struct timespec long_time = {100, 0}, left = {0, 0};
    SHOW(nanosleep(&long_time, &left));
    SHOW(left.tv_sec);
    SHOW(setitimer(ITIMER_REAL, &timer, 0));
    sigemptyset(&set);
    SHOW(sigsuspend(&set));
}

/* Pipes with names. Where one would wait for the other end, it is not waited for. */
static void fifos(void) {
    puts("-- fifos");
    struct stat status;
    char buffer[100];
    SHOW(mkfifo("fifo", 0666));
    SHOW(mkfifo("fifo", 0666));
    SHOW(stat("fifo", &status));
    SHOW(status.st_mode);
    SHOW(status.st_size);
    SHOW(mknod("plain", 0640, 0));
    SHOW(stat("plain", &status));
    SHOW(status.st_mode);
    SHOW(unlink("plain"));
    SHOW(mknod("directory", S_IFDIR | 0755, 0));
    SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
    int r = open("fifo", O_RDONLY | O_NONBLOCK), w;
    TRUE(r >= 0);
    struct pollfd in = {r, POLLIN}, out;
    SHOW(poll(&in, 1, 0));
    SHOW(read(r, buffer, 10));
    TRUE((w = open("fifo", O_WRONLY)) >= 0);
    SHOW(read(r, buffer, 10));
    SHOW(write(w, "through it", 10));
    SHOW(poll(&in, 1, 0));
    SHOW(in.revents);
    SHOW(write(r, "x", 1));
    SHOW(read(w, buffer, 1));
    SHOW(lseek(r, 0, SEEK_SET));
    int second = open("fifo", O_RDONLY);
    SHOW(read(second, buffer, 7));
    SHOW(read(r, buffer, 7));
    SHOW(fstat(r, &status));
    SHOW(status.st_mode);
    close(second);
    SHOW(write(w, "left", 4));
    close(w);
    SHOW(poll(&in, 1, 0));
    SHOW(in.revents);
    SHOW(read(r, buffer, 10));
    SHOW(read(r, buffer, 10));
    SHOW(poll(&in, 1, 0));
    SHOW(in.revents);
    close(r);
    int both = open("fifo", O_RDWR | O_NONBLOCK);
    out = (struct pollfd){both, POLLIN | POLLOUT};
    SHOW(poll(&out, 1, 0));
    SHOW(out.revents);
    SHOW(read(both, buffer, 10));
    SHOW(write(both, "both", 4));
    SHOW(rename("fifo", "other"));
    w = open("other", O_WRONLY | O_NONBLOCK);
    SHOW(write(w, "ways", 4));
    SHOW(unlink("other"));
    SHOW(read(both, buffer, 10));
    SHOW(stat("other", &status));
    SHOW(fstat(both, &status));
    SHOW(status.st_nlink);
    close(both);
    close(w);
}

/* Descriptors that count, and signals that are taken without a handler. */
static void counters(void) {
    uint64_t value = 0;
    int event = eventfd(3, EFD_NONBLOCK), many = eventfd(2, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
    struct pollfd fds[2] = {{event, POLLIN | POLLOUT}, {many, POLLIN | POLLOUT}};
    SHOW(poll(fds, 2, 0));
    SHOW(fds[0].revents << 8 | fds[1].revents);
    SHOW(read(event, &value, 7));
    SHOW(read(event, &value, 8));
    SHOW(value);
    SHOW(read(event, &value, 8));
    SHOW(read(many, &value, 100));
    SHOW(value);
    SHOW(read(many, &value, 8));
    SHOW(read(many, &value, 8));
    value = -1;
    SHOW(write(event, &value, 8));
    value = -2;
    SHOW(write(event, &value, 8));
    SHOW(write(event, (uint64_t[]){1}, 8));
    SHOW(write(event, &value, 4));
    SHOW(poll(fds, 2, 10));
    SHOW(fds[0].revents << 8 | fds[1].revents);
    SHOW(lseek(event, 7, SEEK_SET));
    SHOW(eventfd(0, 2));
    SHOW(fcntl(many, F_GETFD));
    int timer = timerfd_create(CLOCK_MONOTONIC, 0), date = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    SHOW(timerfd_create(99, 0));
    struct itimerspec setting = {{0, 0}, {0, 20000000}}, old;
    SHOW(timerfd_settime(timer, 0, &setting, &old));
    SHOW(old.it_value.tv_sec | old.it_value.tv_nsec);
    SHOW(timerfd_gettime(timer, &old));
    TRUE(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 20000000);
    struct pollfd one = {timer, POLLIN | POLLOUT};
    SHOW(poll(&one, 1, 0));
    SHOW(poll(&one, 1, 1000));
    SHOW(one.revents);
    SHOW(read(timer, &value, 8));
    SHOW(value);
    setting.it_interval.tv_nsec = 5000000;
    SHOW(timerfd_settime(timer, 0, &setting, 0));
    usleep(50000);
    SHOW(read(timer, &value, 8));
    TRUE(value >= 7);
    SHOW(write(timer, &value, 8));
    SHOW(read(date, &value, 8));
    struct itimerspec past = {{0, 0}, {1, 0}};
    SHOW(timerfd_settime(date, TFD_TIMER_ABSTIME, &past, 0));
    SHOW(read(date, &value, 8));
    SHOW(value);
    SHOW(timerfd_settime(event, 0, &past, 0));
    SHOW(timerfd_gettime(0, 0));
    close(event), close(many), close(timer), close(date);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, 0);
    struct timespec soon = {0, 1000000};
    siginfo_t info;
    SHOW(sigtimedwait(&set, &info, &soon));
    kill(getpid(), SIGUSR1);
    SHOW(sigtimedwait(&set, &info, &soon));
    SHOW(info.si_signo);
    SHOW(info.si_code);
    SHOW(info.si_pid == getpid());
    raise(SIGUSR1);
    int number = 0;
    SHOW(sigwait(&set, &number));
    SHOW(number);
    sigprocmask(SIG_UNBLOCK, &set, 0);
}

static void rest(void) {
    puts("-- rest");
    /* Nothing, at addresses that nothing can have. */
    void *wild[] = {(void *)8, (void *)-1, (void *)(1l << 62)};
    struct iovec vectors[2] = {{(void *)-1, 0}, {(void *)8, 0}};
    int zero = open("/dev/zero", O_RDWR), file = open("text", O_RDONLY);
    for (int i = 0; i < 2; i++) {
        SHOW(getrandom(wild[i], 0, 0));
        SHOW(read(zero, wild[i], 0));
        SHOW(read(file, wild[i], 0));
        SHOW(write(zero, wild[i], 0));
        SHOW(readv(file, wild[i], 0));
        SHOW(writev(zero, wild[i], 0));
        SHOW(preadv(file, wild[i], 0, 0));
        SHOW(poll(wild[i], 0, 0));
    }
    SHOW(readv(file, vectors, 1));
    SHOW(pwritev(zero, vectors, 1, 0));
    SHOW(mincore((void *)4096, 0, wild[0]));
    close(zero), close(file);
    struct timespec a, b, nap = {0, 30000000};
    SHOW(clock_gettime(CLOCK_MONOTONIC, &a));
    SHOW(nanosleep(&nap, 0));
    SHOW(clock_gettime(CLOCK_MONOTONIC, &b));
    TRUE((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec >= 30000000);
    SHOW(clock_gettime(77, &a));
    SHOW(clock_getres(CLOCK_REALTIME, &a));
    b.tv_nsec = 0;
    b.tv_sec += 1;
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &b, 0));
    nap.tv_nsec = -1;
    SHOW(nanosleep(&nap, 0));
    TRUE(time(0) > 0);
    struct timeval tv;
    SHOW(gettimeofday(&tv, 0));
    int text = open("text", O_RDONLY);
    struct pollfd polls[3] = {{text, POLLIN, 0}, {-1, POLLIN, 9}, {99, POLLIN, 0}};
    SHOW(poll(polls, 3, 100));
    printf("%x %x %x\n", polls[0].revents, polls[1].revents, polls[2].revents);
    SHOW(poll(0, 0, 20));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(text, &in);
    tv = (struct timeval){0, 1000};
    SHOW(select(text + 1, &in, 0, 0, &tv));
    SHOW(FD_ISSET(text, &in));
    struct utsname uts;
    SHOW(uname(&uts));
    printf("%s %s\n", uts.sysname, uts.machine);
    SHOW(getuid());
    SHOW(geteuid());
    SHOW(getgid());
    SHOW(getpid() == syscall(SYS_gettid));
    SHOW(getppid() > 0);
    SHOW(setpgid(0, 0) == 0 || errno == EPERM);
    char buffer[64];
    SHOW(getrandom(buffer, 40, 0));
    SHOW(syscall(SYS_sched_yield));
    struct rlimit limit;
    SHOW(getrlimit(RLIMIT_STACK, &limit));
    SHOW(limit.rlim_cur);
    limit.rlim_cur = 100;
    SHOW(setrlimit(RLIMIT_CORE, &limit));
    limit.rlim_cur = 99;
    limit.rlim_max = 20;
    SHOW(setrlimit(RLIMIT_CORE, &limit));
    SHOW(getrlimit(99, &limit));
    struct sysinfo info;
    SHOW(sysinfo(&info));
    TRUE(info.totalram * info.mem_unit > 1 << 20);
    struct rusage usage;
    SHOW(getrusage(RUSAGE_SELF, &usage));
    struct tms tms;
    TRUE(times(&tms) > 0);
    SHOW(waitpid(-1, 0, 0));
    char bytes[4] = "";
    struct iovec parts[2] = {{bytes, 1}, {bytes + 1, 2}};
    int some = open("text", O_RDONLY);
    SHOW(preadv2(some, parts, 2, 1, 0));
    SHOW(lseek(some, 0, SEEK_CUR));
    SHOW(preadv2(some, parts, 2, -1, 0));
    SHOW(lseek(some, 0, SEEK_CUR));
    SHOW(readahead(some, 0, 100));
    SHOW(sync_file_range(some, 0, 100, 2));
    SHOW(sync_file_range(some, 0, 100, 8));
    SHOW(close(some));
    SHOW(sched_get_priority_max(SCHED_RR));
    SHOW(sched_get_priority_max(SCHED_OTHER));
    SHOW(sched_get_priority_min(77));
    int pair[2];
    SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    SHOW(write(pair[0], "x", 1));
    SHOW(close(pair[0]) + close(pair[1]));
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    SHOW(recv(udp, bytes, 1, MSG_ERRQUEUE));
    SHOW(close(udp));
    int word = 5;
    SHOW(syscall(SYS_futex, &word, 0, 6, 0));
    SHOW(syscall(SYS_futex, &word, 1, 6, 0));
    nap.tv_nsec = 1000000;
    SHOW(syscall(SYS_futex, &word, 0, 5, &nap));
    SHOW(setresuid(7, 8, 9));
    SHOW(setuid(10));
    SHOW(setuid(9));
    SHOW(geteuid());
    SHOW(getauxval(AT_PAGESZ));
    SHOW(getauxval(AT_SECURE));
    SHOW(getauxval(AT_PHNUM) > 0);
    SHOW(strlen((char *)getauxval(AT_PLATFORM)));
    SHOW(getauxval(AT_RANDOM) != 0);
    SHOW(execl("missing", "missing", (char *)0));
    SHOW(execl("text", "text", (char *)0));
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (count > 1 && !strcmp(arguments[1], "again")) {
        printf("executed: %s %s, %s\n", arguments[0], arguments[2], getenv("PASSED"));
        SHOW(fcntl(60, F_GETFD));
        SHOW(fcntl(61, F_GETFD) >= 0);
        /* Thread-local storage, floating point and a large stack frame. */
        static __thread int local = 3;
        volatile char frame[1 << 20];
        frame[0] = frame[sizeof frame - 1] = 1;
        printf("%d %.4f %d\n", local, 2.0 / 3.0, frame[0]);
        abort();
    }
    for (int i = 0; i < count; i++) printf("%s\n", arguments[i]);
    memory();
    stack();
    files();
    signals();
    counters();
    fifos();
    rest();
    dup3(1, 60, O_CLOEXEC);
    dup2(1, 61);
    char *again[] = {"name", "again", "with words", 0}, *environment[] = {"PASSED=on", 0};
    execve("/proc/self/exe", again, environment);
    return 1;
}
