/* What is under /proc and /dev. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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
    SHOW(load("/proc/30001/stat"));
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

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "many")) return many(), 0;
    own();
    everything();
    return 0;
}
