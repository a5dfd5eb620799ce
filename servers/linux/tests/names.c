/* What is opened by the name of a descriptor, links that are open themselves, programs that are executed by a descriptor, tables of
   descriptors that cease to be shared, and low addresses. What it prints must be the same on Linux and on Fermata. `one` is a single
   process; `many` has more. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long checked(long result) { return result < 0 ? -errno : result; }
#define SHOW(call) printf("%s = %ld\n", #call, checked((long)(call)))
/* What is opened has a number that differs. */
#define OPENS(call) printf("%s: %s\n", #call, (call) < 0 ? strerrorname_np(errno) : "open")

/* Opens what a descriptor is open on. */
static int again(int fd, int flags) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags, 0600);
}

static long where(int fd) { return lseek(fd, 0, SEEK_CUR); }
static long size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? -errno : s.st_size;
}

static void files(void) {
    puts("-- files");
    char bytes[16];
    int fd = open("letters", O_RDWR | O_CREAT | O_TRUNC, 0644), r, w;
    SHOW(write(fd, "abcdefgh", 8));
    r = again(fd, O_RDONLY);
    SHOW(where(r)), SHOW(where(fd));
    SHOW(read(r, bytes, 3)), SHOW(where(fd));
    SHOW(write(r, "x", 1));
    w = again(r, O_WRONLY | O_APPEND);
    SHOW(write(w, "ij", 2)), SHOW(read(w, bytes, 1)), SHOW(size(fd));
    OPENS(again(fd, O_RDONLY | O_NOFOLLOW));
    OPENS(again(fd, O_RDONLY | O_DIRECTORY));
    OPENS(again(fd, O_RDWR | O_CREAT | O_EXCL));
    OPENS(again(99, O_RDONLY));
    OPENS(open("/dev/fd/99", O_RDONLY));
    puts("-- without a name");
    SHOW(unlink("letters"));
    int nameless = again(fd, O_RDWR);
    SHOW(read(nameless, bytes, 16));
    SHOW(close(fd)), SHOW(close(r)), SHOW(close(w));
    SHOW(pread(nameless, bytes, 16, 0));
    int cut = again(nameless, O_RDWR | O_TRUNC);
    SHOW(size(nameless)), SHOW(write(cut, "new", 3)), SHOW(size(nameless));
    SHOW(close(nameless)), SHOW(pread(cut, bytes, 16, 0)), SHOW(close(cut));
    puts("-- memory files");
    int memory = memfd_create("thing", MFD_ALLOW_SEALING);
    SHOW(write(memory, "1234", 4));
    r = again(memory, O_RDONLY);
    SHOW(read(r, bytes, 16)), SHOW(write(r, "5", 1));
    SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE)), SHOW(fcntl(r, F_GET_SEALS));
    SHOW(close(memory)), SHOW(pread(r, bytes, 16, 0));
    w = again(r, O_RDWR);
    SHOW(write(w, "6", 1)), SHOW(close(r)), SHOW(pread(w, bytes, 16, 0)), SHOW(fcntl(w, F_GET_SEALS)), SHOW(close(w));
    puts("-- directories and devices");
    mkdir("directory", 0755);
    int d = open("directory", O_RDONLY | O_DIRECTORY);
    OPENS(r = again(d, O_RDONLY | O_DIRECTORY));
    SHOW(faccessat(r, "..", R_OK, 0)), SHOW(close(r));
    OPENS(again(d, O_RDWR));
    OPENS(r = openat(d, ".", O_RDONLY));
    SHOW(close(r)), SHOW(close(d)), rmdir("directory");
    int null = open("/dev/null", O_RDONLY);
    w = again(null, O_WRONLY);
    SHOW(write(w, "x", 1)), SHOW(close(w)), SHOW(close(null));
}

static void streams(void) {
    puts("-- streams");
    char bytes[16];
    int p[2], s[2], r, w;
    SHOW(pipe(p));
    OPENS(w = again(p[0], O_WRONLY));
    SHOW(write(w, "one", 3)), SHOW(close(p[1])), SHOW(write(w, "two", 3));
    OPENS(r = again(w, O_RDONLY | O_NONBLOCK));
    SHOW(close(p[0])), SHOW(read(r, bytes, 16));
    SHOW(read(r, bytes, 16)), SHOW(close(w)), SHOW(read(r, bytes, 16));
    int both = again(r, O_RDWR);
    SHOW(write(both, "3", 1)), SHOW(read(r, bytes, 16)), SHOW(close(both)), SHOW(close(r));
    SHOW(mkfifo("fifo", 0600));
    r = open("fifo", O_RDONLY | O_NONBLOCK);
    unlink("fifo");
    OPENS(w = again(r, O_WRONLY));
    SHOW(close(r));
    OPENS(again(w, O_WRONLY | O_NONBLOCK));
    OPENS(r = again(w, O_RDONLY));
    SHOW(write(w, "fifo", 4)), SHOW(close(w)), SHOW(read(r, bytes, 16)), SHOW(close(r));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    OPENS(again(s[0], O_RDWR));
    OPENS(again(eventfd(0, 0), O_RDWR));
}

static void links(void) {
    puts("-- links");
    char bytes[16] = "";
    struct stat s;
    SHOW(symlink("nowhere", "link"));
    OPENS(open("link", O_RDONLY | O_NOFOLLOW));
    int fd = open("link", O_PATH | O_NOFOLLOW);
    SHOW(fstat(fd, &s)), SHOW(s.st_mode >> 12), SHOW(s.st_size);
    SHOW(readlinkat(fd, "", bytes, sizeof bytes)), puts(bytes);
    SHOW(read(fd, bytes, 1));
    OPENS(again(fd, O_RDONLY));
    OPENS(open("link", O_PATH));
    SHOW(close(fd)), SHOW(unlink("link"));
    fd = open("text", O_PATH);
    SHOW(readlinkat(fd, "", bytes, sizeof bytes)), SHOW(readlinkat(AT_FDCWD, "", bytes, sizeof bytes));
    SHOW(readlinkat(98, "", bytes, sizeof bytes));
    SHOW(read(fd, bytes, 1));
    int r = again(fd, O_RDONLY);
    SHOW(read(r, bytes, 4)), SHOW(close(r)), SHOW(close(fd));
}

static void low(void) {
    puts("-- low addresses");
    for (int n = 0; n < 3; n++) {
        uint64_t at = (uint64_t)mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        printf("%d: %s\n", n, at + (1 << 20) <= 1ull << 31 ? "low" : "HIGH");
        *(char *)at = 1;
    }
    SHOW((long)mmap(0, 3ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0) == -1 && errno == ENOMEM);
}

/* How a program ends that is executed with these. */
static void executes(const char *what, int directory, const char *path, int flags) {
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        char *args[] = {"program", "executed", 0}, *none[] = {0};
        syscall(SYS_execveat, directory, path, args, none, flags);
        printf("%s: %s\n", what, strerrorname_np(errno));
        fflush(stdout);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("%s: %x\n", what, status);
}

static void programs(void) {
    puts("-- programs");
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), root = open("/", O_RDONLY | O_DIRECTORY);
    char name[256] = "", path[32];
    readlink("/proc/self/exe", name, sizeof name - 1);
    snprintf(path, sizeof path, "/dev/fd/%d", self);
    executes("by a descriptor", self, "", AT_EMPTY_PATH);
    executes("by its name", AT_FDCWD, path, 0);
    executes("in a directory", root, name + 1, 0);
    executes("of a descriptor that is none", 98, "", AT_EMPTY_PATH);
    executes("without a name", self, "", 0);
    executes("with other flags", self, "", 1);
    executes("of a directory", root, "", AT_EMPTY_PATH);
    SHOW(symlink(name, "linked"));
    executes("a link", AT_FDCWD, "linked", 0);
    executes("a link that is not followed", AT_FDCWD, "linked", AT_SYMLINK_NOFOLLOW);
    unlink("linked");
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        char *args[] = {"program", "executed", 0}, *none[] = {0};
        fexecve(self, args, none);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("fexecve: %x\n", status);
}

static int kept[2];
static void *closes(void *unused) {
    /* Only this thread's table. */
    syscall(SYS_close_range, kept[0], kept[1], 2);
    return (void *)(long)fcntl(kept[0], F_GETFD);
}

static void tables(void) {
    puts("-- tables");
    pthread_t thread;
    void *result;
    pipe(kept);
    pthread_create(&thread, 0, closes, 0);
    pthread_join(thread, &result);
    SHOW((long)result == -1), SHOW(fcntl(kept[0], F_GETFD)), SHOW(fcntl(kept[1], F_GETFD));
    SHOW(syscall(SYS_close_range, kept[0], kept[1], 2 | 4));
    SHOW(fcntl(kept[0], F_GETFD));
    SHOW(syscall(SYS_close_range, kept[0], kept[1], 2)), SHOW(fcntl(kept[0], F_GETFD));
    SHOW(syscall(SYS_close_range, 4, 3, 0)), SHOW(syscall(SYS_close_range, 3, 4, 8));
}

static char stack[1 << 16];
static void told(int signal) {
    printf("signal %d\n", signal);
    fflush(stdout);
    _exit(3);
}

/* A handler whose frame does not fit: that of SIGSEGV has a stack of its own. */
static void frames(void) {
    puts("-- frames");
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
        struct sigaction plain = {.sa_handler = told}, on = {.sa_handler = told, .sa_flags = SA_ONSTACK};
        sigaltstack(&other, 0);
        sigaction(SIGUSR1, &plain, 0), sigaction(SIGSEGV, &on, 0);
        long number = SYS_tgkill, process = getpid(), result;
        __asm__ volatile("mov %%rsp, %%r12; mov $64, %%rsp; syscall; mov %%r12, %%rsp"
                         : "=a"(result) : "a"(number), "D"(process), "S"(process), "d"((long)SIGUSR1) : "rcx", "r11", "r12", "memory");
        _exit(4);
    }
    int status;
    waitpid(pid, &status, 0);
    SHOW(status);
}

/* Links that lead to names which are no files, and ways through links of /proc. */
static void ways(void) {
    puts("-- ways");
    char path[64], bytes[16];
    int ends[2], on = 1, w;
    struct stat s;
    pipe(ends);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    symlink(path, "way"), symlink("way", "longer"), symlink("/proc/self/cwd/target", "through"), symlink("absent", "dangling");
    OPENS(w = open("longer", O_WRONLY | O_CREAT | O_APPEND, 0600));
    SHOW(write(w, "abc", 3)), SHOW(read(ends[0], bytes, 16)), SHOW(close(w));
    OPENS(w = open("way", O_WRONLY));
    SHOW(close(w)), SHOW(stat("way", &s)), SHOW(S_ISFIFO(s.st_mode));
    OPENS(open("way", O_WRONLY | O_NOFOLLOW));
    OPENS(open("way", O_WRONLY | O_CREAT | O_EXCL, 0600));
    OPENS(open("dangling", O_RDONLY));
    OPENS(w = open("dangling", O_WRONLY | O_CREAT, 0600));
    SHOW(close(w)), SHOW(unlink("absent")), SHOW(unlink("dangling"));
    int f = open("target", O_RDWR | O_CREAT, 0600), d = open(".", O_RDONLY | O_DIRECTORY);
    OPENS(open("through", O_RDONLY));
    SHOW(stat("through", &s)), SHOW(S_ISREG(s.st_mode));
    OPENS(open("/proc/self/cwd/target", O_RDONLY));
    OPENS(open("/proc/self/cwd/missing", O_RDONLY));
    OPENS(open("/proc/self/root/dev/null", O_RDONLY));
    snprintf(path, sizeof path, "/proc/self/fd/%d/target", d);
    OPENS(open(path, O_RDONLY));
    SHOW(unlink(path)), SHOW(access("target", F_OK));
    snprintf(path, sizeof path, "/proc/self/fd/%d/target", f);
    OPENS(open(path, O_RDONLY));
    SHOW(unlink("way")), SHOW(unlink("longer")), SHOW(unlink("through"));
    puts("-- who is told");
    SHOW(ioctl(ends[0], FIOASYNC, &on)), SHOW(!!(fcntl(ends[0], F_GETFL) & O_ASYNC));
    on = 0;
    SHOW(ioctl(ends[0], FIOASYNC, &on)), SHOW(!!(fcntl(ends[0], F_GETFL) & O_ASYNC));
    on = 1;
    SHOW(ioctl(f, FIOASYNC, &on)), SHOW(fcntl(ends[0], F_GETOWN)), SHOW(fcntl(ends[0], F_GETSIG));
    SHOW(fcntl(ends[0], F_SETOWN, getpid())), SHOW(fcntl(ends[0], F_GETOWN) == getpid());
    SHOW(fcntl(ends[0], F_SETSIG, 40)), SHOW(fcntl(ends[0], F_GETSIG)), SHOW(fcntl(ends[0], F_SETSIG, 65));
    struct f_owner_ex owner = {0, 0};
    SHOW(fcntl(ends[0], F_GETOWN_EX, &owner)), SHOW(owner.type), SHOW(owner.pid == getpid());
    owner.type = 3;
    SHOW(fcntl(ends[0], F_SETOWN_EX, &owner)), SHOW(fcntl(ends[0], F_SETOWN, 0)), SHOW(fcntl(ends[0], F_GETOWN));
}

/* Places of a directory, timers by processor time, and an offset that says nothing. */
static void places(void) {
    puts("-- places");
    char name[32], names[40][32];
    long places[40];
    mkdir("many", 0700);
    for (int n = 0; n < 200; n++) {
        snprintf(name, sizeof name, "many/%d", n);
        close(open(name, O_WRONLY | O_CREAT, 0600));
    }
    DIR *many = opendir("many");
    for (int n = 0; n < 40; n++) {
        places[n] = telldir(many);
        snprintf(names[n], sizeof names[n], "%.31s", readdir(many)->d_name);
    }
    for (int n = 39; n >= 0; n -= 3) {
        seekdir(many, places[n]);
        printf("%d: %d\n", n, strncmp(readdir(many)->d_name, names[n], 31));
    }
    closedir(many);
    for (int n = 0; n < 200; n++) {
        snprintf(name, sizeof name, "many/%d", n);
        unlink(name);
    }
    rmdir("many");
    struct itimerval set = {{7, 0}, {1000, 0}}, now;
    SHOW(setitimer(ITIMER_PROF, &set, 0)), SHOW(setitimer(ITIMER_VIRTUAL, &set, &now)), SHOW(now.it_value.tv_sec);
    SHOW(getitimer(ITIMER_PROF, &now)), SHOW(now.it_interval.tv_sec), SHOW(now.it_value.tv_sec > 900);
    SHOW(getitimer(ITIMER_REAL, &now)), SHOW(now.it_value.tv_sec);
    SHOW(setitimer(ITIMER_PROF, 0, 0)), SHOW(getitimer(ITIMER_PROF, &now)), SHOW(now.it_value.tv_sec);
    SHOW(syscall(SYS_setitimer, 3, 0, 0));
    SHOW(mmap(0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 4096) == MAP_FAILED);
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    if (count > 1 && !strcmp(arguments[1], "executed")) return puts("executed"), 7;
    if (count > 1 && !strcmp(arguments[1], "many")) {
        programs();
        tables();
        frames();
    } else {
        files();
        streams();
        links();
        low();
        ways();
        places();
    }
    fflush(stdout);
    return 0;
}
