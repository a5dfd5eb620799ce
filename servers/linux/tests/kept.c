/* What the processes of a tree have together: saved in one machine while they wait, they go on with it in another one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static void check(int holds, int line, const char *what) {
    if (holds) return;
    printf("line %d: %s is not so\n", line, what);
    exit(1);
}
#define CHECK(what) check((what), __LINE__, #what)

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}

/* It is saved in the middle of this. */
static void pause_here(void) { nap(300); }

static int ended(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int lock(int fd, int command, int type, long start, long length) {
    struct flock lock = {.l_type = type, .l_start = start, .l_len = length};
    return fcntl(fd, command, &lock);
}

/* The process that has a lock there; 0 for none, -1 for a description. */
static int holder(int fd, long start) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = 1};
    CHECK(fcntl(fd, F_GETLK, &lock) == 0);
    return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

/* Of a process, of a description, of a whole file; and a child that waits for one of them. */
static void locks(void) {
    int fd = open("/tmp/kept.locked", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("/tmp/kept.locked", O_RDWR);
    int whole = open("/tmp/kept.locked", O_RDONLY);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 10) == 0 && lock(other, F_OFD_SETLK, F_RDLCK, 20, 10) == 0);
    CHECK(flock(whole, LOCK_EX) == 0);
    pid_t parent = getpid(), child = fork();
    if (!child) {
        CHECK(lock(fd, F_SETLKW, F_WRLCK, 5, 1) == 0);
        CHECK(holder(fd, 0) == parent && holder(fd, 9) == parent && holder(fd, 5) == 0);
        CHECK(holder(fd, 10) == 0 && holder(fd, 20) == -1 && holder(fd, 29) == -1 && holder(fd, 30) == 0);
        exit(7);
    }
    pause_here();
    int more = open("/tmp/kept.locked", O_RDWR);
    CHECK(flock(more, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(lock(more, F_OFD_SETLK, F_WRLCK, 29, 1) == -1 && lock(more, F_OFD_SETLK, F_WRLCK, 9, 1) == -1);
    CHECK(lock(fd, F_SETLK, F_UNLCK, 5, 1) == 0);
    printf("locks: %x\n", ended(child));
    /* They go as they would have gone. */
    close(other);
    CHECK(lock(more, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
    close(whole);
    CHECK(flock(more, LOCK_EX | LOCK_NB) == 0);
}

/* A file of memory with a seal, which a child has, too. */
static void memory_file(void) {
    int fd = memfd_create("kept", MFD_ALLOW_SEALING);
    CHECK(write(fd, "from before", 11) == 11 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    pid_t child = fork();
    if (!child) {
        nap(400);
        CHECK(write(fd, ", and after", 11) == 11);
        exit(8);
    }
    pause_here();
    printf("memory_file: %x", ended(child));
    char text[40] = "", link[40], name[60] = "";
    CHECK(pread(fd, text, 39, 0) == 22 && lseek(fd, 0, SEEK_CUR) == 22);
    CHECK(ftruncate(fd, 3) == -1 && errno == EPERM && fcntl(fd, F_GET_SEALS) == F_SEAL_SHRINK);
    sprintf(link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, name, 59) > 0);
    printf(" %s %s\n", text, name);
}

/* Anonymous memory, a file of memory, and a file with a name, mapped by two; and a child that waits at a word of it. */
static void shared_memory(void) {
    struct both { int word, other; char text[40]; } *both;
    int rights = PROT_READ | PROT_WRITE, fd = memfd_create("mapped", 0), named = open("/dev/shm/kept", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(ftruncate(fd, 8192) == 0 && ftruncate(named, 4096) == 0);
    both = mmap(0, 4096, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *file = mmap(0, 8192, rights, MAP_SHARED, fd, 0), *name = mmap(0, 4096, rights, MAP_SHARED, named, 0);
    close(named);
    strcpy(both->text, "before"), strcpy(file, "file"), strcpy(name, "name");
    pid_t child = fork();
    if (!child) {
        while (!both->word) syscall(SYS_futex, &both->word, FUTEX_WAIT, 0, 0, 0, 0);
        CHECK(!strcmp(both->text, "before, after") && !strcmp(file, "file") && !strcmp(name, "name"));
        strcpy(file + 4096, "from the child"), strcpy(name, "by the child");
        both->other = 9;
        exit(9);
    }
    pause_here();
    strcat(both->text, ", after"), both->word = 1;
    CHECK(syscall(SYS_futex, &both->word, FUTEX_WAKE, 9, 0, 0, 0) == 1);
    int status = ended(child);
    /* All who read see it, and so does a process that comes later. */
    char text[40] = "", again[40] = "";
    named = open("/dev/shm/kept", O_RDONLY);
    CHECK(pread(fd, text, 14, 4096) == 14 && read(named, again, 12) == 12 && both->other == 9);
    if (!(child = fork())) both->other++, exit(1);
    ended(child);
    printf("shared_memory: %x %s, %s, %d\n", status, text, again, both->other);
    unlink("/dev/shm/kept");
}

static volatile int caught;
static void catches(int signal) { caught++; }

/* A terminal and a program in it, which is in the middle of a line. */
static void terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    struct winsize size = {.ws_row = 44, .ws_col = 99};
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0 && write(master, "half a li", 9) == 9);
    char name[40], text[200] = "";
    strcpy(name, ptsname(master));
    pid_t child = fork();
    if (!child) {
        setsid();
        int slave = open(name, O_RDWR);
        close(master);
        signal(SIGINT, catches);
        memset(&size, 0, sizeof size);
        char line[40] = "";
        CHECK(read(slave, line, 39) == 12 && ioctl(slave, TIOCGWINSZ, &size) == 0);
        dprintf(slave, "%d %d %s", size.ws_row, size.ws_col, line);
        while (!caught) nap(10);
        exit(6);
    }
    pause_here();
    CHECK(!strcmp(name, ptsname(master)) && tcgetpgrp(master) == child);
    CHECK(write(master, "ne\n", 3) == 3);
    for (int got = 0; !strstr(text, "99 half a line\r\n");) {
        int more = read(master, text + got, sizeof text - 1 - got);
        CHECK(more > 0);
        got += more;
    }
    CHECK(write(master, "\003", 1) == 1);
    printf("terminal: %x", ended(child));
    for (char *at = text; *at; at++) putchar(*at < 32 ? '.' : *at);
    printf("\n");
}

static volatile int came, overruns;
static void comes(int signal, siginfo_t *info, void *context) {
    CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == 0x5a);
    came++, overruns += info->si_overrun;
}

/* A timer that goes off once more, one that goes off again and again, one that has sent what is blocked, and time that was spent. */
static void timers(void) {
    struct sigaction action = {.sa_sigaction = comes, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 0x5a};
    struct itimerspec soon = {{0, 0}, {0, 200000000}}, often = {{0, 50000000}, {0, 50000000}}, now = {{0, 0}, {0, 1}}, left;
    sigset_t blocked;
    timer_t once, again, sent;
    sigaction(SIGUSR1, &action, 0), sigaction(SIGUSR2, &action, 0);
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR2), sigprocmask(SIG_BLOCK, &blocked, 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &once) == 0);
    event.sigev_signo = SIGUSR2;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &again) == 0 && timer_create(CLOCK_MONOTONIC, &event, &sent) == 0);
    CHECK(timer_settime(once, 0, &soon, 0) == 0 && timer_settime(again, 0, &often, 0) == 0 && timer_settime(sent, 0, &now, 0) == 0);
    struct timespec before, after;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    while (before.tv_sec == 0 && before.tv_nsec < 30000000);
    pause_here();
    CHECK(came == 1 && overruns == 0 && timer_gettime(once, &left) == 0 && !left.it_value.tv_sec && !left.it_value.tv_nsec);
    sigprocmask(SIG_UNBLOCK, &blocked, 0);
    CHECK(came == 3 && overruns >= 3 && timer_getoverrun(again) >= 3 && timer_delete(again) == 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    long spent = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    printf("timers: %s\n", spent >= 0 && spent < 200 ? "in time" : "other time");
}

/* A link that is open itself, and a file of memory and one without a name that are open twice, with an offset each. */
static void names(void) {
    char path[40], text[40] = "";
    struct stat about;
    CHECK(symlink("/tmp/nowhere", "/tmp/kept.link") == 0);
    int link = open("/tmp/kept.link", O_PATH | O_NOFOLLOW);
    int file = memfd_create("twice", 0), also, gone = open("/tmp/kept.gone", O_RDWR | O_CREAT, 0600), other;
    CHECK(write(file, "memory", 6) == 6 && write(gone, "nameless", 8) == 8 && unlink("/tmp/kept.gone") == 0);
    sprintf(path, "/proc/self/fd/%d", file);
    CHECK((also = open(path, O_RDONLY)) >= 0);
    sprintf(path, "/dev/fd/%d", gone);
    CHECK((other = open(path, O_RDWR | O_APPEND)) >= 0);
    pause_here();
    CHECK(fstat(link, &about) == 0 && S_ISLNK(about.st_mode) && readlinkat(link, "", text, 39) == 12);
    CHECK(close(file) == 0 && read(also, text, 39) == 6 && write(also, "x", 1) == -1);
    CHECK(write(other, " too", 4) == 4 && lseek(gone, 0, SEEK_CUR) == 8 && close(gone) == 0 && pread(other, text + 6, 30, 0) == 12);
    printf("names: %s\n", text);
    unlink("/tmp/kept.link");
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    for (int n = 1; n < count; n++) {
        if (!strcmp(arguments[n], "locks")) locks();
        if (!strcmp(arguments[n], "memory_file")) memory_file();
        if (!strcmp(arguments[n], "shared_memory")) shared_memory();
        if (!strcmp(arguments[n], "terminal")) terminal();
        if (!strcmp(arguments[n], "timers")) timers();
        if (!strcmp(arguments[n], "names")) names();
    }
    return 0;
}
