/* Files that are executed and files that are written. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHOW(call) do { errno = 0; long result = (long)(call); printf("%s: %s\n", #call, result < 0 ? strerrorname_np(errno) : "done"); \
    fflush(stdout); } while (0)

/* Opens a file and closes it again. */
static int opens(const char *path, int flags) {
    int fd = open(path, flags, 0755);
    if (fd >= 0) close(fd);
    return fd;
}

static long size(const char *path) {
    struct stat s;
    return stat(path, &s) ? -1 : (long)s.st_size;
}

/* Copies this program. */
static void copy(const char *to) {
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    for (long got; (got = read(from, bytes, sizeof bytes)) > 0;) {
        if (write(fd, bytes, got) != got) exit(1);
    }
    close(from), close(fd);
}

/* Executes a file: what that says, and if it does, how the program ends. */
static int executes(const char *path, const char *argument) {
    fflush(stdout);
    int ends[2], error = 0, status;
    if (pipe2(ends, O_CLOEXEC)) exit(1);
    pid_t pid = fork();
    if (!pid) {
        char *args[] = {(char *)path, (char *)argument, 0};
        execv(path, args);
        error = errno;
        if (write(ends[1], &error, sizeof error) < 0) _exit(2);
        _exit(1);
    }
    close(ends[1]);
    if (read(ends[0], &error, sizeof error) < 0) exit(1);
    close(ends[0]);
    waitpid(pid, &status, 0);
    errno = error;
    return error ? -1 : status;
}

/* A child that executes a file, which waits until the other end of its input is closed: that end. */
static int holder(const char *path, const char *argument, pid_t *pid) {
    int input[2], output[2];
    char byte;
    if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC)) exit(1);
    fflush(stdout);
    if (!(*pid = fork())) {
        dup2(input[0], 0), dup2(output[1], 3);
        char *args[] = {(char *)path, (char *)argument, 0};
        execv(path, args);
        _exit(1);
    }
    close(input[0]), close(output[1]);
    if (read(output[0], &byte, 1) != 1) exit(1);
    close(output[0]);
    return input[1];
}

static int wait_for(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) < 0 ? -1 : status;
}

static void executed(void) {
    pid_t pid;
    copy("program");
    int end = holder("./program", "wait", &pid);
    SHOW(opens("program", O_RDONLY));
    SHOW(opens("program", O_WRONLY));
    SHOW(opens("program", O_RDWR));
    SHOW(opens("program", O_WRONLY | O_TRUNC));
    SHOW(opens("program", O_RDONLY | O_TRUNC));
    SHOW(opens("program", O_WRONLY | O_CREAT));
    SHOW(opens("program", O_WRONLY | O_CREAT | O_EXCL));
    SHOW(opens("program", O_WRONLY | O_DIRECTORY));
    SHOW(opens("program", O_WRONLY | O_APPEND));
    SHOW(opens("program", O_PATH | O_RDWR | O_TRUNC));
    SHOW(truncate("program", 5));
    SHOW(truncate("program", size("program")));
    SHOW(truncate("program", -1));
    SHOW(truncate("nothing", -1));
    SHOW(truncate("nothing", 1));
    SHOW(truncate(".", -1));
    SHOW(truncate(".", 1));
    SHOW(truncate((char *)8, -1));
    SHOW(truncate((char *)8, 1));
    SHOW(opens("/proc/self/exe", O_WRONLY));
    SHOW(chmod("program", 0700));
    SHOW(link("program", "linked"));
    SHOW(opens("linked", O_WRONLY));
    SHOW(symlink("linked", "symbolic"));
    SHOW(opens("symbolic", O_RDWR));
    SHOW(truncate("symbolic", 0));
    SHOW(rename("program", "renamed"));
    SHOW(opens("renamed", O_WRONLY));
    SHOW(unlink("linked"));
    /* Others under the old names are other files. */
    SHOW(opens("program", O_WRONLY | O_CREAT));
    SHOW(opens("linked", O_WRONLY | O_CREAT | O_TRUNC));
    SHOW(opens("renamed", O_WRONLY));
    SHOW(executes("./renamed", "end"));
    SHOW(opens("renamed", O_WRONLY));
    close(end);
    printf("ends: %x\n", wait_for(pid));
    SHOW(opens("renamed", O_WRONLY));
    SHOW(unlink("program"));
    SHOW(unlink("linked"));
    SHOW(unlink("symbolic"));

    /* A copy of the process executes it, too; and who is killed does not any more. */
    end = holder("./renamed", "fork", &pid);
    SHOW(opens("renamed", O_WRONLY));
    close(end);
    printf("ends: %x\n", wait_for(pid));
    SHOW(opens("renamed", O_WRONLY));
    end = holder("./renamed", "wait", &pid);
    SHOW(opens("renamed", O_WRONLY));
    kill(pid, SIGKILL);
    printf("ends: %x\n", wait_for(pid));
    close(end);
    SHOW(opens("renamed", O_WRONLY));

    /* One that executes another program does not execute the first one. */
    copy("second");
    end = holder("./renamed", "second", &pid);
    SHOW(opens("renamed", O_WRONLY));
    SHOW(opens("second", O_WRONLY));
    SHOW(unlink("second"));
    copy("second");
    close(end);
    printf("ends: %x\n", wait_for(pid));

    /* A vforked child, until it has another program. */
    fflush(stdout);
    if (!(pid = vfork())) _exit(opens("/proc/self/exe", O_RDWR) < 0 ? errno : 0);
    printf("in the memory of its parent: %s\n", strerrorname_np(WEXITSTATUS(wait_for(pid))));

    /* Without a program of its own it is not protected for long. */
    SHOW(opens("renamed", O_RDONLY | O_TRUNC));
    printf("%ld bytes\n", size("renamed"));
    SHOW(opens(".", O_RDONLY | O_TRUNC));
    SHOW(unlink("renamed"));
    SHOW(unlink("second"));
}

static void text(const char *path, const char *what) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (write(fd, what, strlen(what)) < 0) exit(1);
    close(fd);
}

static void written(void) {
    copy("program");
    int fd = open("program", O_WRONLY | O_CLOEXEC);
    SHOW(executes("./program", "end"));
    int other = dup(fd);
    close(fd);
    SHOW(executes("./program", "end"));
    close(other);
    SHOW(executes("./program", "end"));
    fd = open("program", O_RDONLY);
    SHOW(executes("./program", "end"));
    close(fd);
    fd = open("program", O_PATH | O_RDWR);
    SHOW(executes("./program", "end"));
    close(fd);

    /* A child has it open. */
    int ends[2];
    if (pipe(ends)) exit(1);
    fd = open("program", O_RDWR);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        char byte;
        close(ends[1]);
        if (read(ends[0], &byte, 1) < 0) _exit(1);
        _exit(0);
    }
    close(ends[0]), close(fd);
    SHOW(executes("./program", "end"));
    close(ends[1]);
    printf("ends: %x\n", wait_for(pid));
    SHOW(executes("./program", "end"));

    /* It is mapped, and no longer open. */
    fd = open("program", O_RDWR);
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    SHOW(executes("./program", "end"));
    munmap(at, 4096);
    SHOW(executes("./program", "end"));
    fd = open("program", O_RDONLY);
    at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    SHOW(executes("./program", "end"));
    munmap(at, 4096);

    /* Which error comes first; scripts, and their interpreters. */
    text("plain", "no program\n"), text("script", "#!./program end\n"), text("nested", "#!./script\n");
    SHOW(executes("./plain", 0));
    fd = open("plain", O_WRONLY | O_CLOEXEC);
    SHOW(executes("./plain", 0));
    SHOW(chmod("plain", 0644));
    SHOW(executes("./plain", 0));
    close(fd);
    SHOW(executes("./script", 0));
    fd = open("script", O_WRONLY | O_CLOEXEC);
    SHOW(executes("./script", 0));
    SHOW(executes("./nested", 0));
    close(fd);
    fd = open("program", O_WRONLY | O_CLOEXEC);
    SHOW(executes("./script", 0));
    SHOW(executes("./nested", 0));
    close(fd);
    SHOW(executes("./nested", 0));
    text("script", "#!./program wait\n");
    int end = holder("./script", 0, &pid);
    SHOW(opens("script", O_WRONLY));
    SHOW(opens("program", O_WRONLY));
    close(end);
    printf("ends: %x\n", wait_for(pid));
    unlink("plain"), unlink("script"), unlink("nested"), unlink("program");
}

int main(int count, char **args) {
    const char *what = count > 1 ? args[1] : "all";
    char byte = 1;
    setvbuf(stdout, 0, _IOLBF, 1 << 12);
    if (!strcmp(what, "end")) return 7;
    if (!strcmp(what, "second")) {
        char *next[] = {"./second", "wait", 0};
        execv(next[0], next);
        return 1;
    }
    if (!strcmp(what, "fork") || !strcmp(what, "wait")) {
        pid_t pid = 0;
        if (!strcmp(what, "fork")) {
            pid = fork();
            if (pid) return WEXITSTATUS(wait_for(pid));
        }
        if (write(3, &byte, 1) != 1) return 1;
        close(3);
        return read(0, &byte, 1) ? 1 : 0;
    }
    executed();
    written();
    return 0;
}
