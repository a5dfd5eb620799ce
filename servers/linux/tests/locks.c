/* Locks on files. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

static int lock(int fd, int command, int type, int whence, long start, long length) {
    struct flock lock = {.l_type = type, .l_whence = whence, .l_start = start, .l_len = length};
    return fcntl(fd, command, &lock);
}

/* Who is in the way. */
static void in_the_way(int fd, int command, int type, long start, long length) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    if (fcntl(fd, command, &lock)) printf("F_GETLK: %s\n", strerror(errno));
    else printf("%ld+%ld: %d %d %ld+%ld %s\n", start, length, lock.l_type, lock.l_whence, (long)lock.l_start, (long)lock.l_len,
                lock.l_pid == -1 ? "a description" : lock.l_pid == getppid() ? "the parent" : lock.l_pid ? "another" : "nobody");
}

static void one(void) {
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("locked", O_RDWR), reads = open("locked", O_RDONLY);
    ftruncate(fd, 1000);
    SHOW(lock(fd, F_SETLK, F_WRLCK, SEEK_SET, 10, 10));
    SHOW(lock(other, F_SETLK, F_WRLCK, SEEK_SET, 10, 10));
    SHOW(lock(reads, F_SETLK, F_WRLCK, SEEK_SET, 0, 1));
    SHOW(lock(reads, F_SETLK, F_RDLCK, SEEK_SET, 0, 1));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, -1, 1));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 5, -6));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 5, -5));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 0x7fffffffffffffff, 2));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_CUR, 0x7fffffffffffffff, 1));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_END, -10, 0));
    SHOW(lock(fd, F_SETLK, F_RDLCK, 7, 0, 1));
    SHOW(lock(fd, F_SETLK, 7, SEEK_SET, 0, 1));
    SHOW(lock(fd, F_GETLK, F_UNLCK, SEEK_SET, 0, 1));
    SHOW(lock(99, F_SETLK, F_RDLCK, SEEK_SET, 0, 1));
    SHOW(fcntl(fd, F_SETLK, (void *)8));
    in_the_way(other, F_GETLK, F_WRLCK, 0, 0);
    /* Locks of descriptions are in the way of those of the process. */
    SHOW(lock(other, F_OFD_SETLK, F_WRLCK, SEEK_SET, 100, 50));
    SHOW(lock(fd, F_OFD_SETLK, F_RDLCK, SEEK_SET, 120, 1));
    SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 120, 1));
    in_the_way(fd, F_GETLK, F_RDLCK, 110, 1);
    in_the_way(fd, F_OFD_GETLK, F_RDLCK, 149, 10);
    struct flock wrong = {.l_type = F_RDLCK, .l_pid = 1};
    SHOW(fcntl(fd, F_OFD_SETLK, &wrong));
    int copy = dup(other);
    close(other);
    SHOW(lock(fd, F_OFD_SETLK, F_RDLCK, SEEK_SET, 120, 1));
    close(copy);
    SHOW(lock(fd, F_OFD_SETLK, F_RDLCK, SEEK_SET, 120, 1));
    /* flock. */
    other = open("locked", O_RDONLY);
    SHOW(flock(fd, LOCK_SH));
    SHOW(flock(other, LOCK_SH));
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
    SHOW(flock(other, LOCK_UN));
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
    SHOW(flock(other, LOCK_SH | LOCK_NB));
    SHOW(flock(other, LOCK_SH | LOCK_EX));
    SHOW(flock(99, LOCK_SH));
    copy = dup(fd);
    SHOW(flock(copy, LOCK_UN));
    SHOW(flock(other, LOCK_EX | LOCK_NB));
    close(fd), close(copy), close(other), close(reads);
    unlink("locked");
}

static void alarmed(int signal) {}

static void many(void) {
    int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int ends[2];
    char byte;
    pipe(ends);
    lock(fd, F_SETLK, F_WRLCK, SEEK_SET, 10, 10);
    lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 50, 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        in_the_way(fd, F_GETLK, F_WRLCK, 0, 0);
        in_the_way(fd, F_GETLK, F_RDLCK, 0, 10);
        in_the_way(fd, F_GETLK, F_RDLCK, 20, 0);
        in_the_way(fd, F_GETLK, F_WRLCK, 20, 0);
        SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 60, 5));
        SHOW(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 19, 5));
        /* A handler ends the wait, or does not. */
        struct sigaction action = {.sa_handler = alarmed};
        sigaction(SIGALRM, &action, 0);
        alarm(1);
        SHOW(lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 0, 0));
        fflush(stdout);
        write(ends[1], "1", 1);
        _exit(lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 15, 1) ? 1 : 42);
    }
    read(ends[0], &byte, 1);
    nap(30);
    SHOW(waitpid(child, 0, WNOHANG));
    SHOW(lock(fd, F_SETLK, F_UNLCK, SEEK_SET, 0, 15));
    nap(30);
    SHOW(waitpid(child, 0, WNOHANG));
    SHOW(lock(fd, F_SETLK, F_UNLCK, SEEK_SET, 15, 1));
    printf("ended: %d\n", ended(child));
    in_the_way(fd, F_GETLK, F_WRLCK, 0, 0);
    /* Any descriptor of the file that is closed gives the locks of a process up. */
    lock(fd, F_SETLK, F_WRLCK, SEEK_SET, 0, 0);
    fflush(stdout);
    if (!(child = fork())) _exit(lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 0, 0) ? 1 : 43);
    nap(30);
    close(open("locked", O_RDONLY));
    printf("ended: %d\n", ended(child));
    /* Two who wait for each other. */
    lock(fd, F_SETLK, F_WRLCK, SEEK_SET, 0, 1);
    if (!(child = fork())) {
        lock(fd, F_SETLK, F_WRLCK, SEEK_SET, 1, 1);
        write(ends[1], "2", 1);
        int result = lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 0, 1);
        _exit(result ? errno == EDEADLK ? 45 : 1 : 44);
    }
    read(ends[0], &byte, 1);
    asleep(child);
    SHOW(lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 1, 1));
    lock(fd, F_SETLK, F_UNLCK, SEEK_SET, 0, 1);
    printf("ended: %d\n", ended(child));
    /* flock is shared with children, and goes with the last of them. */
    flock(fd, LOCK_EX);
    fflush(stdout);
    if (!(child = fork())) {
        int other = open("locked", O_RDWR);
        SHOW(flock(fd, LOCK_EX | LOCK_NB));
        SHOW(flock(other, LOCK_EX | LOCK_NB));
        fflush(stdout);
        write(ends[1], "3", 1);
        close(fd);
        _exit(flock(other, LOCK_EX) ? 1 : 46);
    }
    read(ends[0], &byte, 1);
    nap(30);
    SHOW(waitpid(child, 0, WNOHANG));
    close(fd);
    printf("ended: %d\n", ended(child));
    /* A counter in a file, by four. */
    fd = open("locked", O_RDWR | O_TRUNC);
    write(fd, "0000", 4);
    pid_t children[4];
    fflush(stdout);
    for (int n = 0; n < 4; n++) {
        if ((children[n] = fork())) continue;
        for (int times = 0; times < 25; times++) {
            char text[5] = {0};
            if (n % 2) lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 0, 4);
            else lock(fd, F_OFD_SETLKW, F_WRLCK, SEEK_SET, 0, 4), lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 4, 1);
            if (n % 2 == 0) lock(fd, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 4), lock(fd, F_SETLK, F_UNLCK, SEEK_SET, 4, 1), lock(fd, F_SETLKW, F_WRLCK, SEEK_SET, 0, 4);
            pread(fd, text, 4, 0);
            sprintf(text, "%04d", atoi(text) + 1);
            if (times % 8 == 0) nap(1);
            pwrite(fd, text, 4, 0);
            lock(fd, F_SETLK, F_UNLCK, SEEK_SET, 0, 4);
        }
        _exit(0);
    }
    for (int n = 0; n < 4; n++) ended(children[n]);
    char text[5] = {0};
    pread(fd, text, 4, 0);
    printf("counted: %s\n", text);
    unlink("locked");
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "many")) many();
    else one();
    return 0;
}
