/* What is under /proc and /dev. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

static char text[20000];
static int load(const char *path) {
    int fd = open(path, O_RDONLY), length = 0, got;
    memset(text, 0, sizeof text);
    if (fd < 0) return printf("%s: %s\n", path, strerror(errno)), -1;
    /* In small pieces, as some do. */
    while ((got = read(fd, text + length, 100)) > 0) length += got;
    close(fd);
    return length;
}

/* The line that begins like this. */
static void line(const char *path, const char *begins) {
    if (load(path) < 0) return;
    for (char *at = strtok(text, "\n"); at; at = strtok(0, "\n"))
        if (!strncmp(at, begins, strlen(begins))) { printf("%s\n", at); return; }
    printf("%s: no %s\n", path, begins);
}

/* Whether a directory has these, of what type. */
static void has(const char *path, const char *name) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    int found = -1, count = 0;
    if (!directory) { printf("%s: %s\n", path, strerror(errno)); return; }
    while ((entry = readdir(directory))) if (!strcmp(entry->d_name, name)) found = entry->d_type, count++;
    closedir(directory);
    printf("%s: type %d, %d times\n", atoi(name) && strcmp(name, "33") && strcmp(name, "77") ? "a process" : name, found, count);
}

static void link_of(const char *path) {
    char target[300] = {0};
    int got = readlink(path, target, 299);
    char *last = strrchr(target, '/');
    printf("%s: %d %s\n", path, got < 0 ? -1 : 0, got < 0 ? strerror(errno) : last ? last + 1 : "?");
}

static void kind(const char *path) {
    struct stat is = {0}, of = {0};
    int first = lstat(path, &is), second = stat(path, &of);
    printf("%s: %d %o, %d %o", path, first, is.st_mode & S_IFMT, second, of.st_mode & S_IFMT);
    if (S_ISCHR(of.st_mode)) printf(", %lx", (long)of.st_rdev);
    printf("\n");
}

/* Fields of stat, behind the name. */
static void fields(const char *path, int pid, int parent) {
    char state = 0;
    int number = 0, parents = 0, group = 0, session = 0;
    if (load(path) < 0) return;
    char *behind = strrchr(text, ')');
    sscanf(text, "%d", &number);
    sscanf(behind + 1, " %c %d %d %d", &state, &parents, &group, &session);
    int count = 0;
    for (char *at = behind; *at; at++) count += *at == ' ';
    printf("%.*s: pid %d, state %c, parent %d, group %d, session %d, %d fields\n", (int)(behind - strchr(text, '(') + 1), strchr(text, '('),
           number == pid, state, parents == parent, group == getpgrp(), session == getsid(0), count);
}

static void *thread(void *argument) { for (;;) pause(); }

static void own(void) {
    char path[100];
    int own = getpid();
    prctl(PR_SET_NAME, "a name (with)");
    fields("/proc/self/stat", own, getppid());
    sprintf(path, "/proc/%d/stat", own);
    fields(path, own, getppid());
    line("/proc/self/status", "Name:");
    line("/proc/self/status", "State:");
    line("/proc/self/status", "Threads:");
    signal(SIGUSR1, SIG_IGN), signal(SIGUSR2, (void *)thread);
    load("/proc/self/status");
    printf("ignored: %d\n", (int)(strtoul(strstr(text, "SigIgn:") + 7, 0, 16) >> 9 & 1));
    line("/proc/self/comm", "a");
    SHOW(load("/proc/self/comm"));
    SHOW(load("/proc/self/cmdline") > 0);
    printf("%s\n", text + strlen(text) + 1);
    SHOW(load("/proc/self/statm") > 0);
    long numbers[7];
    printf("%d numbers\n", sscanf(text, "%ld %ld %ld %ld %ld %ld %ld", numbers, numbers + 1, numbers + 2, numbers + 3, numbers + 4, numbers + 5, numbers + 6));
    SHOW(load("/proc/self/environ") >= 0);
    SHOW(load("/proc/self/maps") > 0);
    printf("stack: %d, exe: %d\n", strstr(text, "[stack]") != 0, strstr(text, "r-xp") != 0);
    line("/proc/self/limits", "Limit ");
    SHOW(load("/proc/self/nothing"));
    SHOW(load("/proc/self/fd/99"));
    SHOW(load("/proc/4194304/stat"));
    SHOW(open("/proc/self", O_RDWR));
    SHOW(mkdir("/proc/self", 0700));
    char target[50] = {0};
    readlink("/proc/self", target, 49);
    printf("self: %d\n", atoi(target) == own);
    kind("/proc"), kind("/proc/self"), kind("/proc/self/stat"), kind("/proc/self/exe"), kind("/proc/self/fd"), kind("/proc/sys/kernel");
    has("/proc", "self"), has("/proc", "meminfo"), has("/proc", "sys"), has("/proc", target);
    has("/proc/self", "status"), has("/proc/self", "fd"), has("/proc/self", "exe"), has("/proc/self/task", target);
    has("/proc/sys/kernel", "osrelease"), has("/proc/sys", "kernel"), has("/sys/devices/system/cpu", "online");
    int fd = open("/dev/null", O_RDONLY), other = dup2(fd, 77);
    has("/proc/self/fd", "77"), has("/dev/fd/", "77");
    link_of("/proc/self/fd/77");
    close(77);
    has("/proc/self/fd", "77");
    /* As directories. */
    int directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    SHOW(faccessat(directory, "status", R_OK, 0));
    SHOW(faccessat(directory, "fd/77", R_OK, 0));
    SHOW(openat(directory, "../self/stat", O_RDONLY) > 0);
    SHOW(read(directory, target, 10));
    SHOW(fchdir(directory));
    SHOW(access("status", R_OK));
    SHOW(chdir("task"));
    SHOW(access("../status", R_OK));
    SHOW(chdir("/proc/self/fd/.."));
    SHOW(chdir("/proc/self/stat"));
    SHOW(chdir("/"));
}

static void everything(void) {
    SHOW(load("/proc/meminfo") > 300);
    printf("%d\n", strstr(text, "MemFree:") && strstr(text, "MemAvailable:") && strstr(text, "SwapTotal:"));
    SHOW(load("/proc/stat") > 0);
    printf("%d %d\n", !strncmp(text, "cpu  ", 5), strstr(text, "btime ") != 0);
    float first, second;
    SHOW(load("/proc/uptime") > 0);
    printf("%d\n", sscanf(text, "%f %f", &first, &second));
    SHOW(load("/proc/loadavg") > 0);
    SHOW(load("/proc/cpuinfo") > 0);
    printf("%d\n", !strncmp(text, "processor\t: 0", 13));
    SHOW(load("/proc/version") > 0);
    printf("%.14s\n", text);
    SHOW(load("/proc/filesystems") > 0);
    SHOW(load("/proc/mounts") > 0);
    SHOW(load("/proc/self/mountinfo") > 0);
    SHOW(load("/proc/sys/kernel/osrelease") > 0);
    SHOW(load("/proc/sys/kernel/ostype"));
    SHOW(load("/proc/sys/kernel/random/uuid"));
    SHOW(load("/proc/sys/kernel/nothing"));
    kind("/dev"), kind("/dev/null"), kind("/dev/zero"), kind("/dev/full"), kind("/dev/urandom"), kind("/dev/tty");
    kind("/dev/shm"), kind("/dev/ptmx"), kind("/dev/nothing"), kind("/dev/pts");
    has("/dev", "null"), has("/dev", "zero"), has("/dev", "shm"), has("/dev", "pts"), has("/dev", "nothing");
    int fd = open("/dev/full", O_RDWR);
    SHOW(write(fd, "x", 1));
    int ends[2];
    pipe(ends);
    dup2(ends[0], 50), close(ends[0]);
    write(ends[1], "piped", 5), close(ends[1]);
    SHOW(load("/dev/fd/50") < 0 ? 0 : 1);
}

/* Other processes. */
static void many(void) {
    char path[100], name[20];
    int ends[2];
    pipe(ends);
    pid_t child = fork();
    if (!child) {
        pthread_t id;
        prctl(PR_SET_NAME, "the child");
        chdir("/tmp");
        dup2(open("/dev/zero", O_RDONLY), 33);
        pthread_create(&id, 0, thread, 0);
        write(ends[1], "x", 1);
        for (;;) pause();
    }
    read(ends[0], name, 1);
    /* It sleeps by now. */
    usleep(300000);
    sprintf(name, "%d", child);
    has("/proc", name);
    sprintf(path, "/proc/%d/stat", child);
    fields(path, child, getpid());
    sprintf(path, "/proc/%d/status", child);
    line(path, "Name:"), line(path, "State:"), line(path, "Threads:"), line(path, "Uid:");
    sprintf(path, "/proc/%d/cmdline", child);
    int length = load(path);
    int same = load("/proc/self/cmdline");
    printf("arguments: %d %d\n", length > 0, length == same);
    sprintf(path, "/proc/%d/maps", child);
    SHOW(load(path) > 100);
    char target[100] = {0};
    sprintf(path, "/proc/%d/cwd", child);
    readlink(path, target, 99), printf("cwd %s\n", target);
    sprintf(path, "/proc/%d/fd", child);
    has(path, "33");
    sprintf(path, "/proc/%d/fd/33", child);
    memset(target, 0, 100), readlink(path, target, 99), printf("fd %s\n", target);
    sprintf(path, "/proc/%d/task", child);
    has(path, name);
    kill(child, SIGSTOP);
    waitpid(child, 0, WUNTRACED);
    sprintf(path, "/proc/%d/stat", child);
    fields(path, child, getpid());
    kill(child, SIGKILL);
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    fields(path, child, getpid());
    sprintf(path, "/proc/%d/cmdline", child);
    SHOW(load(path));
    int open_one = open(path, O_RDONLY);
    printf("ended: %d\n", ended(child));
    SHOW(open(path, O_RDONLY));
    SHOW(read(open_one, target, 10) > 0);
    has("/proc", name);
}

/* Files that have no name any more. */
static void removed(void) {
    char path[100];
    chdir("/tmp");
    int gone = dup2(open("gone", O_CREAT | O_RDWR, 0600), 60), replaced = dup2(open("replaced", O_CREAT | O_RDWR, 0600), 61);
    unlink("gone");
    close(open("new", O_CREAT | O_RDWR, 0600));
    rename("new", "replaced");
    sprintf(path, "/proc/self/fd/%d", gone), link_of(path);
    sprintf(path, "/proc/self/fd/%d", replaced), link_of(path);
    close(gone), close(replaced);
    SHOW(unlink("replaced"));
}

static volatile int number, is_over, ends_of[2], waits_at[2];
static char own_name[50];

static void *computes(void *argument) {
    number = syscall(SYS_gettid);
    write(ends_of[1], "x", 1);
    while (!is_over) {}
    return 0;
}

static void *sleeps(void *argument) {
    number = syscall(SYS_gettid);
    prctl(PR_SET_NAME, "the sleeper");
    int fd = open("/proc/thread-self/comm", O_RDONLY);
    read(fd, own_name, 49), close(fd);
    write(ends_of[1], "x", 1);
    read(waits_at[0], own_name + 49, 1);
    return 0;
}

/* Ticks that a thread has computed. */
static long ticks(int thread) {
    char path[100];
    unsigned long ticks = 0;
    sprintf(path, "/proc/self/task/%d/stat", thread);
    if (load(path) > 0) sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu", &ticks);
    return ticks;
}

static void about(int thread) {
    char path[100];
    int group = 0, own = 0;
    sprintf(path, "/proc/self/task/%d/comm", thread), load(path), printf("comm %s", text);
    sprintf(path, "/proc/self/task/%d/stat", thread), load(path);
    char *behind = strrchr(text, ')'), state = 0;
    sscanf(text, "%d", &own), sscanf(behind + 1, " %c", &state);
    printf("stat %d %.*s %c\n", own == thread, (int)(behind - strchr(text, '(') + 1), strchr(text, '('), state);
    sprintf(path, "/proc/self/task/%d/status", thread), load(path);
    sscanf(strstr(text, "Tgid:"), "Tgid: %d", &group), sscanf(strstr(text, "\nPid:"), " Pid: %d", &own);
    printf("status %d %d %.*s\n", group == getpid(), own == thread, (int)strcspn(text, "\n"), text);
    sprintf(path, "/proc/self/task/%d/cmdline", thread);
    SHOW(load(path) > 0);
}

static void threads(void) {
    pthread_t one, other;
    char name[50], path[100];
    pipe((int *)ends_of), pipe((int *)waits_at);
    prctl(PR_SET_NAME, "the first");
    pthread_create(&one, 0, computes, 0), read(ends_of[0], name, 1);
    int first = number;
    pthread_create(&other, 0, sleeps, 0), read(ends_of[0], name, 1);
    int second = number;
    SHOW(pthread_setname_np(one, "the worker"));
    SHOW(pthread_getname_np(one, name, 50));
    printf("%s, %s", name, own_name);
    SHOW(pthread_getname_np(other, name, 50));
    printf("%s\n", name);
    usleep(300000);
    about(first), about(second), about(getpid());
    line("/proc/self/comm", "");
    while (ticks(first) < 5) usleep(10000);
    printf("computed less %d\n", ticks(second) < 5);
    sprintf(path, "/proc/self/task/%d/comm", first);
    int fd = open(path, O_WRONLY);
    SHOW(write(fd, "a name that is rather long\n", 27));
    load(path), printf("%s", text);
    close(fd);
    fd = open("/proc/self/comm", O_RDWR);
    SHOW(write(fd, "new\0name", 8));
    line("/proc/self/comm", "");
    SHOW(load("/proc/self/task/4194304/comm"));
    fflush(stdout);
    pid_t child = fork();
    if (!child) for (;;) pause();
    sprintf(path, "/proc/%d/comm", child);
    fd = open(path, O_WRONLY);
    SHOW(write(fd, "x", 1));
    kill(child, SIGKILL), ended(child);
    is_over = 1, write(waits_at[1], "x", 1);
    pthread_join(one, 0), pthread_join(other, 0);
}

/* A program of which the file is removed. */
static void lost(void) {
    int from = open("/proc/self/exe", O_RDONLY), to = open("copied", O_CREAT | O_WRONLY | O_TRUNC, 0755), got;
    static char bytes[1 << 16];
    while ((got = read(from, bytes, sizeof bytes)) > 0) write(to, bytes, got);
    close(from), close(to);
    fflush(stdout);
    pid_t child = fork();
    if (!child) execl("./copied", "copied", "lost", (char *)0);
    printf("lost: %d\n", ended(child));
}

/* What the line of maps says in which an address is: rights, offset, name; and whether the number is that of this file. */
static void place(const char *what, const void *address, int fd) {
    struct stat of = {0};
    if (fd >= 0) fstat(fd, &of);
    load("/proc/self/maps");
    for (char *at = strtok(text, "\n"); at; at = strtok(0, "\n")) {
        unsigned long start, end, offset, number;
        char rights[5], *name = strncmp(what, "[a ", 3) && strlen(at) > 73 ? at + 73 : "";
        if (sscanf(at, "%lx-%lx %4s %lx %*x:%*x %lu", &start, &end, rights, &offset, &number) != 5) printf("not a line: %s\n", at);
        if ((unsigned long)address < start || (unsigned long)address >= end) continue;
        printf("%s: %s %lx %s %lu pages%s\n", what, rights, what[0] == '[' ? 0 : offset, name, what[0] == '[' ? 0 : (end - start) / 4096,
               fd >= 0 && number != of.st_ino ? ", another file" : "");
        return;
    }
    printf("%s: in no line\n", what);
}

static const char constant[4096 * 2] = {1};

/* What is mapped, and where it comes from. */
static void mapped(void) {
    chdir("/tmp");
    unlink("mapped one"), unlink("mapped another"), unlink("mapped third");
    int fd = open("mapped one", O_RDWR | O_CREAT | O_CLOEXEC, 0600), reads, event = eventfd(7, 0);
    static char pages[5 * 4096];
    memset(pages, 'x', sizeof pages);
    write(fd, pages, sizeof pages);
    reads = open("mapped one", O_RDONLY);
    char local, *stack = &local, *heap = sbrk(4096);
    place("[stack]", stack, -1), place("[heap]", heap, -1);
    /* Of the program, whose name others have chosen. */
    char path[300] = {0}, begins[400];
    readlink("/proc/self/exe", path, 299);
    sprintf(begins, " %s\n", path);
    load("/proc/self/maps");
    printf("of the program: %d\n", strstr(text, begins) != 0);
    int exe = open("/proc/self/exe", O_RDONLY);
    place("[a constant]", constant + 4096, exe), place("[a function]", place, exe);
    char *copy = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
    place("a copy", copy, fd);
    mprotect(copy + 4096, 4096, PROT_READ | PROT_WRITE);
    place("written in the middle", copy + 4096, fd), place("before that", copy, fd), place("behind that", copy + 3 * 4096, fd);
    char *shared = mmap(0, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * 4096);
    place("shared", shared, fd);
    char *seen = mmap(0, 4096, PROT_READ, MAP_SHARED, reads, 0);
    place("shared, only read", seen, reads);
    char *nobody = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(nobody, 4096, PROT_NONE);
    place("nobody's", nobody, -1);
    char *both = mmap(0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    place("nobody's, shared", both, -1);
    int memory = syscall(SYS_memfd_create, "a name", 0);
    ftruncate(memory, 8192);
    place("without a name", mmap(0, 8192, PROT_READ, MAP_SHARED, memory, 0), memory);
    place("a copy of that", mmap(0, 4096, PROT_READ, MAP_PRIVATE, memory, 4096), memory);
    /* What is mapped beside it and comes from behind it is one with it, and what comes from elsewhere is not. */
    char *room = mmap(0, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(room, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    mmap(room + 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4096);
    mmap(room + 2 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    place("two in one", room, fd), place("another", room + 2 * 4096, fd);
    char *moved = mremap(room + 4096, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, room + 3 * 4096);
    place("moved", moved, fd);
    int line_feed = open("mapped\nthird", O_RDWR | O_CREAT, 0600);
    write(line_feed, pages, 4096);
    place("of two lines", mmap(0, 4096, PROT_READ, MAP_PRIVATE, line_feed, 0), line_feed);
    SHOW(unlink("mapped\nthird"));
    int other = open("mapped another", O_RDWR | O_CREAT, 0600);
    write(other, pages, 4096);
    char *removed = mmap(0, 4096, PROT_READ, MAP_PRIVATE, other, 0);
    place("there", removed, other);
    SHOW(unlink("mapped another"));
    place("removed", removed, other);
    SHOW(unlink("mapped one"));
    place("a copy, removed", copy, fd), place("shared, removed", shared, fd);
    place("mapped when it was removed", mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0), fd);
    /* Of descriptors. */
    lseek(fd, 1234, SEEK_SET);
    sprintf(path, "/proc/self/fdinfo/%d", fd);
    line(path, "pos:"), line(path, "flags:");
    struct stat of;
    fstat(fd, &of);
    unsigned long number = 0;
    load(path), sscanf(strstr(text, "ino:"), "ino: %lu", &number);
    printf("number %d, mount %d\n", number == of.st_ino, strstr(text, "mnt_id:\t") != 0);
    fcntl(fd, F_SETFD, 0), fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK);
    line(path, "flags:");
    sprintf(path, "/proc/self/fdinfo/%d", event), line(path, "eventfd-count:");
    SHOW(load("/proc/self/fdinfo/99")); SHOW(load("/proc/self/fdinfo/x"));
    dup2(fd, 77);
    has("/proc/self/fdinfo", "77"), kind("/proc/self/fdinfo"), kind("/proc/self/fdinfo/77");
    /* About the very descriptor by which it is read. */
    int itself = dup2(open("/proc/self/fdinfo/77", O_RDONLY), 77);
    line("/proc/self/fdinfo/77", "pos:");
    SHOW(read(itself, text, 10));
    line("/proc/self/fdinfo/77", "pos:");
    close(itself);
    SHOW(read(open("/proc/thread-self/fdinfo/77", O_RDONLY), text, 1));
}

/* The memory of the process, as a file. */
static void as_file(void) {
    static volatile long word = 0x1234567, from = 0x7654321;
    long found = 0;
    kind("/proc/self/mem");
    int fd = open("/proc/self/mem", O_RDWR);
    SHOW(pread(fd, &found, 8, (long)&word));
    printf("%lx\n", found);
    SHOW(pwrite(fd, (void *)&from, 8, (long)&word));
    printf("%lx\n", word);
    SHOW(lseek(fd, (long)&word, SEEK_SET) == (long)&word);
    SHOW(read(fd, &found, 4));
    SHOW(lseek(fd, 0, SEEK_CUR) == (long)&word + 4);
    SHOW(write(fd, "abcd", 4));
    printf("%lx\n", word);
    SHOW(lseek(fd, 0, SEEK_END));
    /* Where nothing is, and where nothing can be. */
    SHOW(pread(fd, &found, 8, 8)); SHOW(pwrite(fd, &found, 8, 8)); SHOW(pread(fd, &found, 0, 8));
    SHOW(pread(fd, &found, 8, -8)); SHOW(pread(fd, &found, 8, 0x7ffffffffffffff8));
    SHOW(lseek(fd, 0x7ffffffffffff000, SEEK_SET) == 0x7ffffffffffff000);
    SHOW(read(fd, &found, 8));
    SHOW(write(fd, &found, 8));
    char *two = mmap(0, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes[200];
    two[4090] = 'y';
    munmap(two + 4096, 4096);
    SHOW(pread(fd, bytes, 100, (long)two + 4090));
    printf("%c\n", bytes[0]);
    SHOW(pwrite(fd, bytes, 100, (long)two + 4090));
    mprotect(two, 4096, PROT_NONE);
    SHOW(pread(fd, bytes, 100, (long)two + 4000));
    printf("%c\n", bytes[90]);
    /* Into itself, and from what is not there. */
    SHOW(pread(fd, (void *)8, 8, (long)&word)); SHOW(pwrite(fd, (void *)8, 8, (long)&word));
    SHOW(pread(fd, (void *)&word, 8, (long)&from));
    printf("%lx\n", word);
    struct stat of;
    SHOW(fstat(fd, &of));
    printf("%o\n", of.st_mode);
    int only = open("/proc/self/mem", O_RDONLY);
    SHOW(pwrite(only, &found, 8, (long)&word));
    close(fd), close(only);
    static unsigned long vector[100];
    fd = open("/proc/self/auxv", O_RDONLY);
    long got = read(fd, vector, sizeof vector), n = 0;
    while (vector[n]) {
        unsigned long key = vector[n], value = vector[n + 1];
        if (key == AT_PHDR || key == AT_RANDOM || key == AT_ENTRY || key == AT_EXECFN)
            printf("%lu: %d\n", key, value == getauxval(key));
        n += 2;
    }
    printf("all: %d\n", got == (n + 2) * 8);
    close(fd);
}

/* How soon it would be ended for want of memory. */
static void score(void) {
    char said[32] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR);
    SHOW(write(fd, "1001", 4)), SHOW(write(fd, "no", 2)), SHOW(write(fd, "500\n", 4));
    printf("%ld: %s", (long)pread(fd, said, sizeof said - 1, 0), said);
    if (!fork()) {
        memset(said, 0, sizeof said);
        pread(open("/proc/self/oom_score_adj", O_RDONLY), said, sizeof said - 1, 0);
        printf("a child's: %s", said), fflush(stdout), _exit(0);
    }
    wait(0), close(fd);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "lost")) {
        link_of("/proc/self/exe");
        unlink("copied");
        link_of("/proc/self/exe");
        SHOW(load("/proc/self/maps") > 0);
        printf("in maps %d\n", strstr(text, "/copied (deleted)\n") != 0);
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "many")) return many(), threads(), lost(), removed(), score(), 0;
    if (count > 1 && !strcmp(arguments[1], "maps")) return mapped(), as_file(), 0;
    own();
    everything();
    return 0;
}
