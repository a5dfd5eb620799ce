/* Processes of one tree and what they share: saved at any instant and restored, they print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void check(int holds, int line, const char *what) {
    if (holds) return;
    printf("line %d: %s is not so\n", line, what);
    _exit(1);
}
#define CHECK(what) check((what), __LINE__, #what)

static void nap(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    while (nanosleep(&time, &time)) {}
}

static int status_of(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* Both have one offset and one set of flags; each has its own table. */
static void offsets(void) {
    int file = open("/tmp/trees.offsets", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("/tmp/trees.offsets", O_RDONLY);
    CHECK(unlink("/tmp/trees.offsets") == 0);
    for (int turn = 0; turn < 6; turn++) {
        pid_t child = fork();
        if (!child) {
            char text[16];
            nap(200);
            sprintf(text, "turn %d\n", turn);
            CHECK(write(file, text, 7) == 7);
            close(file);
            _exit(turn);
        }
        CHECK(status_of(child) == turn << 8);
        CHECK(lseek(file, 0, SEEK_CUR) == 7 * (turn + 1));
        char text[8] = "";
        CHECK(read(other, text, 7) == 7);
        fwrite(text, 1, 7, stdout);
    }
    /* Both descriptors are of the one file, which has no name. */
    struct stat one, two;
    fstat(file, &one), fstat(other, &two);
    CHECK(one.st_ino == two.st_ino && one.st_nlink == 0);
    close(file), close(other);
}

/* Who waits in the middle of vfork goes on when the child has started a program, or has ended. */
static void lent(void) {
    for (int turn = 0; turn < 8; turn++) {
        volatile int seen = 0;
        pid_t own = getpid(), child = vfork();
        if (!child) {
            seen = getppid() == own;
            for (volatile int n = 0; n < 20000; n++) {}
            if (turn % 2) _exit(turn);
            execl("/bin/busybox", "busybox", "sh", "-c", "exit 9", (char *)0);
            _exit(1);
        }
        CHECK(seen);
        printf("lent %d: %x\n", turn, status_of(child));
    }
}

static volatile int came;

static void comes(int number) { came += number == SIGUSR1; }

/* Who waits for a signal, with a mask for that, has each one once, whenever that comes: both would wait for ever otherwise. */
static void woken(void) {
    enum { TURNS = 60 };
    int ends[2];
    sigset_t one, none;
    sigemptyset(&none), sigemptyset(&one), sigaddset(&one, SIGUSR1);
    CHECK(pipe(ends) == 0 && sigprocmask(SIG_BLOCK, &one, 0) == 0);
    signal(SIGUSR1, comes);
    pid_t child = fork();
    if (!child) {
        for (char turn = 0; turn < TURNS; turn++) {
            CHECK(sigsuspend(&none) == -1 && errno == EINTR && came == turn + 1);
            CHECK(write(ends[1], &turn, 1) == 1);
        }
        _exit(came);
    }
    for (char turn = 0, told; turn < TURNS; turn++) {
        nap(300);
        CHECK(kill(child, SIGUSR1) == 0 && read(ends[0], &told, 1) == 1 && told == turn);
    }
    printf("woken: %x\n", status_of(child));
    close(ends[0]), close(ends[1]);
    signal(SIGUSR1, SIG_DFL);
    CHECK(sigprocmask(SIG_UNBLOCK, &one, 0) == 0);
}

static volatile int shared_word;
static int ends[2];

static int in_memory(void *argument) {
    for (int n = 0; n < 100; n++) shared_word++, nap(20);
    /* The table is the parent's, too. */
    close(ends[0]);
    return 5;
}

/* A process in the memory, with the descriptors, of another one. */
static void cloned(void) {
    static char stack[1 << 16];
    CHECK(pipe(ends) == 0);
    pid_t child = clone(in_memory, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, 0);
    while (shared_word < 50) nap(50);
    CHECK(chdir("/tmp") == 0);
    printf("cloned: %x", status_of(child));
    printf(" %d %d\n", shared_word, write(ends[1], "x", 1) == -1 && errno == EPIPE);
    close(ends[1]);
}

/* Descriptors on their way, to a socket that a child has, too. */
static void rights(void) {
    int pair[2], pipes[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(pipes) == 0);
    char byte = 'r', control[CMSG_SPACE(sizeof(int))] = "";
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pipes[1], sizeof(int));
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    close(pipes[1]);
    pid_t child = fork();
    if (!child) {
        int got;
        nap(500);
        CHECK(recvmsg(pair[1], &message, 0) == 1);
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        nap(500);
        CHECK(write(got, "through", 7) == 7);
        _exit(0);
    }
    char text[16] = "";
    CHECK(read(pipes[0], text, 7) == 7);
    CHECK(read(pipes[0], text + 8, 1) == 0);
    printf("rights: %s %x\n", text, status_of(child));
    close(pair[0]), close(pair[1]), close(pipes[0]);
}

/* An event, a timer and a pipe that several have, watched by one. */
static void watched(void) {
    int event = eventfd(0, EFD_SEMAPHORE), timer = timerfd_create(CLOCK_MONOTONIC, 0), watch = epoll_create1(0), sum = 0, rings = 0;
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    struct itimerspec time = {{0, 2000000}, {0, 1000000}};
    timerfd_settime(timer, 0, &time, 0);
    struct epoll_event one = {EPOLLIN, {.fd = event}}, two = {EPOLLIN, {.fd = timer}}, three = {EPOLLIN, {.fd = pipes[0]}};
    epoll_ctl(watch, EPOLL_CTL_ADD, event, &one), epoll_ctl(watch, EPOLL_CTL_ADD, timer, &two);
    epoll_ctl(watch, EPOLL_CTL_ADD, pipes[0], &three);
    pid_t child = fork();
    if (!child) {
        unsigned long number = 3;
        nap(700);
        write(event, &number, 8);
        nap(700);
        write(pipes[1], "p", 1);
        _exit(0);
    }
    while (sum < 4 || rings < 2) {
        struct epoll_event found;
        CHECK(epoll_wait(watch, &found, 1, -1) == 1);
        unsigned long number;
        if (found.data.fd == pipes[0]) {
            CHECK(read(pipes[0], &number, 1) == 1);
            sum++;
        } else {
            CHECK(read(found.data.fd, &number, 8) == 8);
            if (found.data.fd == event) sum++;
            if (found.data.fd == timer) rings += 1;
        }
    }
    printf("watched: %d %x\n", sum, status_of(child));
    close(event), close(timer), close(watch), close(pipes[0]), close(pipes[1]);
}

static void *forks(void *argument) {
    long sum = 0;
    for (int n = 0; n < 4; n++) {
        pid_t child = fork();
        if (!child) nap(100), _exit(n + (long)argument);
        sum += status_of(child) >> 8;
    }
    return (void *)sum;
}

/* Threads, each with children. */
static void threads(void) {
    pthread_t all[3];
    long sum = 0;
    for (long n = 0; n < 3; n++) pthread_create(&all[n], 0, forks, (void *)(10 * n));
    for (int n = 0; n < 3; n++) {
        void *result;
        pthread_join(all[n], &result), sum += (long)result;
    }
    printf("threads: %ld\n", sum);
}

static volatile int told;
static void tells(int signal) { told++; }

/* Sessions, groups, children that have ended and were not waited for, signals that wait. */
static void families(void) {
    pid_t own = getpid(), zombies[3], leader;
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    signal(SIGUSR1, tells);
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    for (int n = 0; n < 3; n++) {
        zombies[n] = fork();
        if (!zombies[n]) {
            if (n == 2) kill(getpid(), SIGTERM);
            _exit(n + 1);
        }
    }
    leader = fork();
    if (!leader) {
        setsid();
        if (!fork()) {
            nap(300);
            pid_t said[4] = {getppid() == getsid(0), getpgrp() == getsid(0), getsid(own) != getsid(0), kill(own, SIGUSR1)};
            write(pipes[1], said, sizeof said);
            pause();
            _exit(0);
        }
        close(pipes[1]);
        pause();
    }
    pid_t said[4];
    CHECK(read(pipes[0], said, sizeof said) == sizeof said);
    nap(300);
    printf("families: %d %d %d %d, told %d", said[0], said[1], said[2], said[3], told);
    sigprocmask(SIG_SETMASK, &old, 0);
    printf(" %d;", told);
    for (int n = 2; n >= 0; n--) printf(" %x", status_of(zombies[n]));
    CHECK(getpid() == own && getsid(leader) == leader);
    kill(-leader, SIGKILL);
    printf(" %x\n", status_of(leader));
    close(pipes[0]), close(pipes[1]);
}

/* Who opens a FIFO waits for the other end. */
static void fifos(void) {
    unlink("/tmp/trees.fifo");
    CHECK(mkfifo("/tmp/trees.fifo", 0600) == 0);
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        if (!child) {
            if (turn % 2) nap(300);
            int end = open("/tmp/trees.fifo", O_WRONLY);
            nap(300);
            CHECK(write(end, "first in", 8) == 8);
            _exit(0);
        }
        if (!(turn % 2)) nap(300);
        char text[16] = "";
        int end = open("/tmp/trees.fifo", O_RDONLY);
        CHECK(read(end, text, 8) == 8 && read(end, text, 8) == 0);
        printf("fifo: %s %x\n", text, status_of(child));
        close(end);
    }
    unlink("/tmp/trees.fifo");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    /* Children do not print again what waits to be printed. */
    setvbuf(stdout, 0, _IONBF, 0);
    offsets(), lent(), woken(), cloned(), rights(), watched(), threads(), families(), fifos();
    return 0;
}
