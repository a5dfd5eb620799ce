/* Waiting for many things at once, and what processes say to each other: epoll, signalfd. What it prints must be the same on
   Linux and on Fermata. `one` is a single thread that never waits for long; `many` has processes and threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long checked(long result) { return result < 0 ? -errno : result; }
#define SHOW(call) printf("%s = %ld\n", #call, checked((long)(call)))
#define TRUE(condition) printf("%s %s\n", (condition) ? "yes:" : "NO:", #condition)

/* What a wait finds: each event with what was said of it. */
static void found(int epoll, int most, int timeout) {
    struct epoll_event events[16];
    memset(events, 0, sizeof events);
    int count = epoll_wait(epoll, events, most, timeout);
    printf("  found %ld:", checked(count));
    for (int i = 0; i < count; i++)
        printf(" %llu:%x", (unsigned long long)events[i].data.u64, events[i].events);
    puts("");
}

static int watch(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    return epoll_ctl(epoll, operation, fd, &event);
}
#define ADD EPOLL_CTL_ADD
#define MOD EPOLL_CTL_MOD
#define DEL EPOLL_CTL_DEL

static void epolls(void) {
    puts("-- epoll");
    int e = epoll_create1(0), p[2], v = eventfd(0, EFD_NONBLOCK);
    pipe2(p, O_NONBLOCK);
    SHOW(epoll_create1(1));
    SHOW(epoll_create(0));
    SHOW(fcntl(epoll_create1(EPOLL_CLOEXEC), F_GETFD));
    SHOW(watch(e, ADD, p[0], EPOLLIN, 1));
    SHOW(watch(e, ADD, p[0], EPOLLIN, 2));
    SHOW(watch(e, MOD, p[1], EPOLLIN, 2));
    SHOW(watch(e, DEL, p[1], 0, 0));
    SHOW(watch(e, 9, p[0], 0, 0));
    SHOW(watch(e, ADD, e, EPOLLIN, 3));
    SHOW(watch(e, ADD, 99, EPOLLIN, 3));
    SHOW(watch(99, ADD, p[0], EPOLLIN, 3));
    SHOW(watch(p[0], ADD, v, EPOLLIN, 3));
    SHOW(epoll_ctl(e, ADD, v, (void *)8));
    SHOW(epoll_ctl(e, DEL, v, (void *)8));
    int file = open("/proc/self/exe", O_RDONLY), directory = open("/", O_RDONLY), null = open("/dev/null", O_RDWR);
    SHOW(watch(e, ADD, file, EPOLLIN, 3));
    SHOW(watch(e, ADD, directory, EPOLLIN, 3));
    SHOW(watch(e, ADD, null, EPOLLIN, 3));
    close(file), close(directory), close(null);
    struct epoll_event event;
    SHOW(epoll_wait(e, &event, 0, 0));
    SHOW(epoll_wait(e, &event, -1, 0));
    SHOW(epoll_wait(p[0], &event, 1, 0));
    SHOW(epoll_wait(99, &event, 1, 0));
    SHOW(read(e, &event, sizeof event));
    SHOW(write(e, &event, sizeof event));
    found(e, 16, 0);
    found(e, 16, 20);
    SHOW(write(p[1], "ab", 2));
    found(e, 16, -1);
    found(e, 16, -1);
    SHOW(epoll_wait(e, (void *)8, 16, -1));
    SHOW(read(p[0], &event, 1));
    found(e, 16, 0);
    SHOW(read(p[0], &event, 1));
    found(e, 16, 0);
    puts("by the names with bands only");
    int named = epoll_create1(0), q[2];
    pipe2(q, O_NONBLOCK);
    SHOW(watch(named, ADD, q[0], EPOLLRDNORM, 1));
    found(named, 16, 0);
    write(q[1], "a", 1);
    found(named, 16, 0);
    SHOW(watch(named, MOD, q[0], EPOLLRDBAND, 1));
    found(named, 16, 0);
    char page[4096] = "";
    while (write(q[1], page, sizeof page) > 0) {}
    SHOW(watch(named, ADD, q[1], EPOLLWRNORM, 2));
    found(named, 16, 0);
    while (read(q[0], page, sizeof page) > 0) {}
    found(named, 16, 0);
    close(named), close(q[0]), close(q[1]);
    puts("edges");
    SHOW(watch(e, MOD, p[0], EPOLLIN | EPOLLET, 4));
    found(e, 16, 0);
    SHOW(write(p[1], "a", 1));
    found(e, 16, 0);
    found(e, 16, 0);
    SHOW(write(p[1], "a", 1));
    found(e, 16, 0);
    found(e, 16, 0);
    SHOW(read(p[0], &event, 1));
    found(e, 16, 0);
    SHOW(watch(e, MOD, p[0], EPOLLIN | EPOLLET, 5));
    found(e, 16, 0);
    found(e, 16, 0);
    SHOW(watch(e, ADD, v, EPOLLIN | EPOLLOUT | EPOLLET, 6));
    found(e, 16, 0);
    found(e, 16, 0);
    uint64_t one = 1, got;
    write(v, &one, 8), write(v, &one, 8);
    found(e, 16, 0);
    write(v, &one, 8);
    found(e, 16, 0);
    found(e, 16, 0);
    read(v, &got, 8);
    found(e, 16, 0);
    puts("once");
    SHOW(watch(e, MOD, v, EPOLLOUT | EPOLLONESHOT, 7));
    found(e, 16, 0);
    found(e, 16, 0);
    write(v, &one, 8);
    found(e, 16, 0);
    SHOW(watch(e, MOD, v, EPOLLIN | EPOLLONESHOT, 8));
    found(e, 16, 0);
    found(e, 16, 0);
    SHOW(watch(e, DEL, v, 0, 0));
    SHOW(watch(e, DEL, v, 0, 0));
    puts("ends");
    SHOW(watch(e, ADD, p[1], EPOLLOUT, 9));
    found(e, 16, 0);
    int second = dup(p[0]);
    SHOW(watch(e, ADD, second, EPOLLIN, 10));
    found(e, 16, 0);
    close(second);
    found(e, 16, 0);
    SHOW(watch(e, DEL, second, 0, 0));
    int kept = dup(p[1]);
    close(p[1]);
    found(e, 16, 0);
    close(kept);
    found(e, 16, 0);
    int most[20], many = epoll_create1(0);
    for (int i = 0; i < 10; i++) most[i] = eventfd(i & 1, 0), watch(many, ADD, most[i], EPOLLIN, i);
    found(many, 3, 0), found(many, 3, 0), found(many, 3, 0);
    found(many, 16, 0);
    for (int i = 0; i < 10; i++) close(most[i]);
    found(many, 16, 0);
    close(p[0]);
    found(e, 16, 0);
    puts("exclusive");
    SHOW(watch(e, ADD, v, EPOLLIN | EPOLLEXCLUSIVE, 11));
    SHOW(watch(e, MOD, v, EPOLLIN, 11));
    SHOW(watch(e, MOD, v, EPOLLIN | EPOLLEXCLUSIVE, 11));
    SHOW(watch(e, DEL, v, 0, 0));
    SHOW(watch(e, ADD, v, EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE, 11));
    SHOW(watch(e, ADD, many, EPOLLIN | EPOLLEXCLUSIVE, 11));
    read(v, &got, 8);
    puts("timers");
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec in = {{0, 0}, {0, 300000000}}, every = {{0, 300000000}, {0, 300000000}};
    SHOW(watch(e, ADD, timer, EPOLLIN, 12));
    found(e, 16, 0);
    timerfd_settime(timer, 0, &in, 0);
    found(e, 16, 0);
    found(e, 16, 10000);
    found(e, 16, 0);
    read(timer, &got, 8);
    found(e, 16, 0);
    SHOW(watch(e, MOD, timer, EPOLLIN | EPOLLET, 13));
    timerfd_settime(timer, 0, &every, 0);
    found(e, 16, 10000);
    found(e, 16, 0);
    read(timer, &got, 8);
    found(e, 16, 10000);
    struct pollfd fds = {e, POLLIN | POLLOUT};
    read(timer, &got, 8);
    SHOW(poll(&fds, 1, 10000));
    SHOW(fds.revents);
    close(timer);
    SHOW(poll(&fds, 1, 0));
    puts("nested");
    int outer = epoll_create1(0), outermost = epoll_create1(0);
    SHOW(watch(outer, ADD, e, EPOLLIN, 14));
    SHOW(watch(outermost, ADD, outer, EPOLLIN | EPOLLET, 15));
    SHOW(watch(e, ADD, outer, EPOLLIN, 16));
    SHOW(watch(e, ADD, outermost, EPOLLIN, 16));
    SHOW(watch(e, ADD, v, EPOLLIN, 17));
    found(outermost, 16, 0);
    write(v, &one, 8);
    found(outermost, 16, 0);
    found(outermost, 16, 0);
    found(outer, 16, 0);
    write(v, &one, 8);
    found(outermost, 16, 0);
    read(v, &got, 8);
    found(outer, 16, 0);
    found(outermost, 16, 0);
    write(v, &one, 8);
    found(outer, 16, 0);
    fd_set set;
    struct timeval now = {0, 0};
    FD_ZERO(&set);
    FD_SET(outermost, &set);
    SHOW(select(outermost + 1, &set, 0, 0, &now));
    int timer2 = timerfd_create(CLOCK_MONOTONIC, 0);
    read(v, &got, 8);
    watch(e, ADD, timer2, EPOLLIN, 18);
    timerfd_settime(timer2, 0, &in, 0);
    found(outer, 16, 1000);
    close(timer2);
    int chain[12], refused = 0;
    for (int i = 0; i < 12; i++) {
        chain[i] = epoll_create1(0);
        if (i && watch(chain[i], ADD, chain[i - 1], EPOLLIN, i) < 0 && errno == ELOOP) refused++;
    }
    TRUE(refused > 0);
    for (int i = 0; i < 12; i++) close(chain[i]);
    close(outer), close(outermost), close(many);
    puts("signals during a wait");
    sigset_t all;
    sigfillset(&all);
    SHOW(epoll_pwait(e, &event, 1, 5, &all));
    struct timespec nap = {0, 1000000}, bad = {0, 1000000000};
    SHOW(syscall(SYS_epoll_pwait2, e, &event, 1, &nap, &all, 8));
    SHOW(syscall(SYS_epoll_pwait2, e, &event, 1, &bad, 0, 0));
    SHOW(syscall(SYS_epoll_pwait2, e, &event, 1, 0, &all, 4));
    char link[64] = {0}, path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", e);
    readlink(path, link, sizeof link - 1), puts(link);
    SHOW(lseek(e, 3, SEEK_SET));
    close(e), close(v);
}

static void signalfds(void) {
    puts("-- signalfd");
    sigset_t set, other, none;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGKILL);
    sigemptyset(&other), sigaddset(&other, SIGALRM), sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &set, 0), sigprocmask(SIG_BLOCK, &other, 0);
    int s = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), e = epoll_create1(0);
    SHOW(fcntl(s, F_GETFD));
    SHOW(fcntl(s, F_GETFL) & O_NONBLOCK);
    SHOW(signalfd(-1, &set, 1));
    SHOW(signalfd(1, &set, 0));
    SHOW(signalfd(99, &set, 0));
    SHOW(syscall(SYS_signalfd4, -1, &set, 4, 0));
    SHOW(syscall(SYS_signalfd4, -1, 8, 8, 0));
    struct signalfd_siginfo info[4];
    struct pollfd fds = {s, POLLIN | POLLOUT};
    SHOW(poll(&fds, 1, 0));
    SHOW(read(s, info, sizeof info));
    SHOW(read(s, info, 127));
    SHOW(write(s, info, 128));
    watch(e, ADD, s, EPOLLIN, 1);
    found(e, 4, 0);
    kill(getpid(), SIGUSR2), raise(SIGUSR1), kill(getpid(), SIGUSR2);
    SHOW(poll(&fds, 1, 0));
    SHOW(fds.revents);
    found(e, 4, 0);
    SHOW(read(s, info, sizeof info));
    for (int i = 0; i < 2; i++) {
        printf("%d %d %d %d\n", info[i].ssi_signo, info[i].ssi_code, info[i].ssi_pid == getpid(), info[i].ssi_uid == getuid());
    }
    found(e, 4, 0);
    watch(e, MOD, s, EPOLLIN | EPOLLET, 2);
    raise(SIGUSR1);
    found(e, 4, 0);
    found(e, 4, 0);
    SHOW(read(s, info, 128));
    raise(SIGUSR1);
    found(e, 4, 0);
    SHOW(signalfd(s, &other, 0) == s);
    found(e, 4, 0);
    SHOW(read(s, info, 128));
    alarm(1);
    found(e, 4, 5000);
    fcntl(s, F_SETFL, 0);
    SHOW(read(s, info, sizeof info));
    SHOW(info->ssi_signo);
    SHOW(sigtimedwait(&set, 0, &(struct timespec){0, 0}));
    char link[64] = {0}, path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s);
    readlink(path, link, sizeof link - 1), puts(link);
    close(s), close(e);
    sigprocmask(SIG_SETMASK, &none, 0);
}

static int shared_epoll, shared_event, answer;

static void *wakes(void *unused) {
    uint64_t one = 1;
    usleep(30000);
    write(shared_event, &one, 8);
    return 0;
}

static void *adds(void *unused) {
    usleep(30000);
    watch(shared_epoll, ADD, shared_event, EPOLLIN, 2);
    return 0;
}

static void *kills(void *unused) {
    usleep(30000);
    kill(getpid(), SIGUSR1);
    return 0;
}

static void nothing(int signal) { answer++; }

/* Others make ready what somebody waits for. */
static void waits(void) {
    puts("-- waits");
    pthread_t thread;
    uint64_t got;
    shared_epoll = epoll_create1(0), shared_event = eventfd(0, 0);
    int outer = epoll_create1(0);
    watch(outer, ADD, shared_epoll, EPOLLIN, 9);
    watch(shared_epoll, ADD, shared_event, EPOLLIN, 1);
    pthread_create(&thread, 0, wakes, 0), found(shared_epoll, 4, -1), pthread_join(thread, 0);
    read(shared_event, &got, 8);
    pthread_create(&thread, 0, wakes, 0), found(outer, 4, -1), pthread_join(thread, 0);
    watch(shared_epoll, DEL, shared_event, 0, 0);
    pthread_create(&thread, 0, adds, 0), found(shared_epoll, 4, -1), pthread_join(thread, 0);
    read(shared_event, &got, 8);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_create(&thread, 0, kills, 0);
    struct epoll_event event;
    sigset_t empty;
    sigemptyset(&empty);
    SHOW(epoll_pwait(shared_epoll, &event, 1, -1, &empty));
    SHOW(answer);
    pthread_join(thread, 0);
    int s = signalfd(-1, &set, 0);
    watch(shared_epoll, ADD, s, EPOLLIN, 3);
    pthread_create(&thread, 0, kills, 0), found(outer, 4, -1), pthread_join(thread, 0);
    struct signalfd_siginfo info;
    SHOW(read(s, &info, sizeof info));
    pthread_create(&thread, 0, kills, 0);
    SHOW(read(s, &info, sizeof info));
    pthread_join(thread, 0);
    /* A child has the same instance and the same descriptions. */
    pid_t child = fork();
    if (!child) {
        uint64_t one = 1;
        usleep(30000);
        watch(shared_epoll, MOD, shared_event, EPOLLIN | EPOLLET, 4);
        write(shared_event, &one, 8);
        _exit(0);
    }
    found(shared_epoll, 4, -1);
    waitpid(child, 0, 0);
    int p[2], status;
    pipe(p);
    watch(shared_epoll, ADD, p[0], EPOLLIN, 5);
    child = fork();
    if (!child) {
        /* The description lives on here when the parent has closed its descriptor. */
        usleep(60000);
        _exit(0);
    }
    close(p[0]);
    write(p[1], "x", 1);
    read(shared_event, &got, 8);
    found(shared_epoll, 4, -1);
    waitpid(child, &status, 0);
    found(shared_epoll, 4, 0);
    /* A parent with an event loop: what its children say, and that they end. */
    sigemptyset(&set), sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, 0);
    int c = signalfd(-1, &set, 0), loop = epoll_create1(0), ends[8][2], open = 8, dead = 0;
    long sum = 0;
    watch(loop, ADD, c, EPOLLIN, 100);
    for (int i = 0; i < 8; i++) {
        pipe(ends[i]);
        if (!fork()) {
            for (int n = 0; n < 200; n++) write(ends[i][1], "0123456789", 10);
            _exit(i);
        }
        close(ends[i][1]);
        watch(loop, ADD, ends[i][0], EPOLLIN | (i & 1 ? EPOLLET : 0), i);
        fcntl(ends[i][0], F_SETFL, O_NONBLOCK);
    }
    while (open || dead < 8) {
        struct epoll_event events[3];
        int count = epoll_wait(loop, events, 3, -1);
        for (int i = 0; i < count; i++) {
            char buffer[300];
            long n = events[i].data.u64;
            if (n == 100) {
                read(c, &info, sizeof info);
                while ((child = waitpid(-1, &status, WNOHANG)) > 0) sum += WEXITSTATUS(status), dead++;
                continue;
            }
            ssize_t got;
            do {
                got = read(ends[n][0], buffer, sizeof buffer);
                if (got > 0) sum += got;
                if (got == 0) close(ends[n][0]), open--;
            } while (got > 0 && n & 1);
        }
    }
    SHOW(sum);
}

static volatile int order[16], orders;
static void note(int number, siginfo_t *info, void *context) {
    order[orders++ & 15] = info->si_value.sival_int + (info->si_code == SI_QUEUE ? 1000 : 0) + (number == SIGUSR1 ? 100 : 0);
}

/* Signals that are queued, with values; and calls that wait with another mask. */
static void queues(void) {
    puts("-- signals of real time");
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    int numbers[] = {SIGUSR1, SIGRTMIN, SIGRTMIN + 1}, p[2];
    sigset_t set, old, pending;
    sigemptyset(&set);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &action, 0), sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, &old);
    for (int i = 0; i < 9; i++) SHOW(sigqueue(getpid(), numbers[i % 3], (union sigval){.sival_int = i}));
    SHOW(sigqueue(getpid(), 65, (union sigval){.sival_int = 1}));
    SHOW(sigqueue(999999, SIGRTMIN, (union sigval){.sival_int = 1}));
    siginfo_t info;
    memset(&info, 0, sizeof info);
    SHOW(sigtimedwait(&set, &info, &(struct timespec){0, 0}) == SIGUSR1);
    TRUE(info.si_value.sival_int == 0 && info.si_code == SI_QUEUE && info.si_pid == getpid());
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo told[4];
    SHOW(read(fd, told, 2 * sizeof *told) / sizeof *told);
    printf("  %d %d, %d %d\n", told[0].ssi_signo - SIGRTMIN, told[0].ssi_int, told[1].ssi_signo - SIGRTMIN, told[1].ssi_int);
    SHOW(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 20}));
    sigprocmask(SIG_SETMASK, &old, 0);
    for (int i = 0; i < orders; i++) printf(" %d", order[i]);
    puts("");
    /* What is ready comes before what the mask of the wait lets in. */
    sigprocmask(SIG_BLOCK, &set, 0);
    pipe(p);
    write(p[1], "abcdefgh", 8);
    raise(SIGUSR1);
    orders = 0;
    fd_set fds;
    FD_ZERO(&fds); FD_SET(p[0], &fds);
    SHOW(pselect(p[0] + 1, &fds, 0, 0, 0, &old));
    SHOW(orders);
    struct pollfd poll = {p[0], POLLIN, 0};
    SHOW(ppoll(&poll, 1, 0, &old));
    SHOW(orders);
    sigpending(&pending);
    SHOW(sigismember(&pending, SIGUSR1));
    char first[3], second[9];
    struct iovec ranges[] = {{first, 0}, {first, 3}, {second, 9}};
    SHOW(readv(p[0], ranges, 3));
    SHOW(second[4]);
    FD_ZERO(&fds); FD_SET(p[0], &fds);
    SHOW(pselect(p[0] + 1, &fds, 0, 0, &(struct timespec){0, 0}, &old));
    SHOW(orders);
    /* How long it would have waited further. */
    struct timeval time = {5, 3000000};
    write(p[1], "a", 1);
    FD_ZERO(&fds); FD_SET(p[0], &fds);
    SHOW(syscall(SYS_select, p[0] + 1, &fds, 0, 0, &time));
    read(p[0], first, 1);
    time = (struct timeval){0, 20000};
    FD_ZERO(&fds); FD_SET(p[0], &fds);
    SHOW(syscall(SYS_select, p[0] + 1, &fds, 0, 0, &time));
    SHOW(time.tv_sec + time.tv_usec);
    sigprocmask(SIG_SETMASK, &old, 0);
}

/* A child that asked for a signal when its parent ends. */
static void orphans(void) {
    puts("-- the end of a parent");
    int p[2], status, signal = 77;
    SHOW(prctl(PR_SET_PDEATHSIG, 65));
    SHOW(prctl(PR_SET_PDEATHSIG, SIGTERM));
    pipe(p);
    pid_t parent = fork();
    if (!parent) {
        prctl(PR_GET_PDEATHSIG, &signal);
        write(p[1], &signal, sizeof signal);
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGUSR2);
            sigset_t set;
            sigemptyset(&set), sigaddset(&set, SIGUSR2);
            sigprocmask(SIG_BLOCK, &set, 0);
            write(p[1], "r", 1);
            sigwait(&set, &signal);
            write(p[1], &signal, sizeof signal);
            _exit(0);
        }
        pause();
    }
    read(p[0], &signal, sizeof signal);
    SHOW(signal);
    char ready;
    read(p[0], &ready, 1);
    kill(parent, SIGKILL);
    waitpid(parent, &status, 0);
    read(p[0], &signal, sizeof signal);
    SHOW(signal == SIGUSR2);
    SHOW(prctl(PR_SET_PDEATHSIG, 0));
}

/* What a signal of a timer says. */
static void rung(const siginfo_t *info) {
    printf("  signal %d: code %d, value %x, %s\n", info->si_signo, info->si_code, info->si_value.sival_int,
           info->si_overrun ? "late" : "in time");
}

static struct itimerspec after(long first, long then) {
    struct itimerspec spec = {{then / 1000, then % 1000 * 1000000}, {first / 1000, first % 1000 * 1000000}};
    return spec;
}
static int set(timer_t timer, long first, long then) {
    struct itimerspec spec = after(first, then);
    return timer_settime(timer, 0, &spec, 0);
}
static void next(const sigset_t *set) {
    siginfo_t info;
    struct timespec long_enough = {20, 0};
    if (sigtimedwait(set, &info, &long_enough) < 0) return (void)printf("  %s\n", strerrorname_np(errno));
    rung(&info);
}

static timer_t of_thread;
static void *timed(void *unused) {
    sigset_t own;
    sigemptyset(&own), sigaddset(&own, SIGUSR1);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 0x77};
    event._sigev_un._tid = gettid();
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &of_thread));
    SHOW(set(of_thread, 20, 0));
    next(&own);
    return 0;
}
static void expired(union sigval value) { kill(getpid(), value.sival_int); }

static void timers(void) {
    puts("-- timers");
    sigset_t set_of, old;
    sigemptyset(&set_of);
    for (int n = 0; n < 3; n++) sigaddset(&set_of, (int[]){SIGALRM, SIGUSR1, SIGRTMIN + 3}[n]);
    sigprocmask(SIG_BLOCK, &set_of, &old);
    timer_t first, second, silent;
    struct itimerspec spec;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = 0x1234};
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    SHOW(timer_create(CLOCK_MONOTONIC, 0, &first));
    SHOW(timer_create(CLOCK_REALTIME, &event, &second));
    SHOW(timer_create(CLOCK_BOOTTIME, &none, &silent));
    puts("-- refused");
    int number;
    SHOW(syscall(SYS_timer_create, 77, 0, &number)), SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, 0, &number));
    SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, 8, &number)), SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, 0, 8));
    event.sigev_signo = 65;
    SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &number));
    event.sigev_signo = SIGUSR1, event.sigev_notify = 3;
    SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &number));
    event.sigev_notify = SIGEV_THREAD_ID, event._sigev_un._tid = 1 << 20;
    SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &number));
    SHOW(syscall(SYS_timer_settime, first, 0, 0, 0)), SHOW(syscall(SYS_timer_settime, first, 0, 8, 0));
    spec = after(1, 0), spec.it_interval.tv_nsec = 1000000000;
    SHOW(timer_settime(first, 0, &spec, 0));
    spec = after(1, 0);
    SHOW(syscall(SYS_timer_settime, 9999, 0, &spec, 0)), SHOW(syscall(SYS_timer_gettime, 9999, &spec));
    SHOW(syscall(SYS_timer_gettime, first, 8)), SHOW(syscall(SYS_timer_getoverrun, 9999)), SHOW(syscall(SYS_timer_delete, 9999));
    puts("-- once");
    SHOW(timer_gettime(first, &spec)), SHOW(spec.it_value.tv_sec + spec.it_value.tv_nsec);
    SHOW(set(first, 100000, 7000));
    SHOW(timer_gettime(first, &spec)), SHOW(spec.it_value.tv_sec > 90), SHOW(spec.it_interval.tv_sec);
    spec = after(10, 0);
    struct itimerspec before;
    SHOW(timer_settime(first, 0, &spec, &before)), SHOW(before.it_value.tv_sec > 90), SHOW(before.it_interval.tv_sec);
    next(&set_of);
    SHOW(timer_gettime(first, &spec)), SHOW(spec.it_value.tv_sec + spec.it_value.tv_nsec), SHOW(timer_getoverrun(first));
    puts("-- at a time");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    spec = after(0, 0), spec.it_value = now;
    SHOW(timer_settime(second, TIMER_ABSTIME, &spec, 0));
    next(&set_of);
    puts("-- two at once, beside another one");
    SHOW(set(first, 5, 0)), SHOW(set(second, 1, 0));
    usleep(60000);
    SHOW(kill(getpid(), SIGALRM));
    next(&set_of), next(&set_of);
    puts("-- again and again");
    SHOW(set(second, 1, 5));
    usleep(200000);
    sigset_t waiting;
    sigpending(&waiting);
    SHOW(sigismember(&waiting, SIGRTMIN + 3));
    siginfo_t info;
    SHOW(sigwaitinfo(&set_of, &info) == SIGRTMIN + 3), SHOW(info.si_overrun >= 10), SHOW(timer_getoverrun(second) >= info.si_overrun);
    SHOW(sigwaitinfo(&set_of, &info) == SIGRTMIN + 3);
    SHOW(set(second, 0, 0)), SHOW(timer_gettime(second, &spec)), SHOW(spec.it_value.tv_sec + spec.it_value.tv_nsec);
    struct timespec no_time = {0, 0};
    while (sigtimedwait(&set_of, &info, &no_time) >= 0) {}
    puts("-- by reading");
    int fd = signalfd(-1, &set_of, 0);
    struct signalfd_siginfo read_one;
    SHOW(set(second, 1, 0)), SHOW(read(fd, &read_one, sizeof read_one));
    TRUE(read_one.ssi_code == SI_TIMER), SHOW(read_one.ssi_pid), SHOW(read_one.ssi_tid == 1), SHOW(read_one.ssi_overrun), SHOW(read_one.ssi_int);
    close(fd);
    puts("-- nobody is told");
    SHOW(set(silent, 1, 20));
    usleep(50000);
    SHOW(timer_gettime(silent, &spec)), SHOW(spec.it_value.tv_nsec > 0 && spec.it_value.tv_nsec <= 20000000);
    SHOW(set(silent, 1, 0));
    usleep(50000);
    SHOW(timer_gettime(silent, &spec)), SHOW(spec.it_value.tv_sec + spec.it_value.tv_nsec);
    puts("-- a thread");
    pthread_t thread;
    pthread_create(&thread, 0, timed, 0), pthread_join(thread, 0);
    SHOW(set(of_thread, 1, 0));
    usleep(50000);
    SHOW(timer_delete(of_thread));
    puts("-- a function");
    struct sigevent calls = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired, .sigev_value.sival_int = SIGUSR1};
    timer_t calling;
    SHOW(timer_create(CLOCK_MONOTONIC, &calls, &calling)), SHOW(set(calling, 5, 0));
    SHOW(sigwaitinfo(&set_of, &info) == SIGUSR1), SHOW(timer_delete(calling));
    puts("-- a child has none, and a program none of the one before");
    int status;
    if (!fork()) _exit(timer_gettime(first, &spec) ? errno : 0);
    wait(&status);
    SHOW(WEXITSTATUS(status) == EINVAL);
    struct itimerval alarm = {{0, 0}, {0, 10000}};
    setitimer(ITIMER_REAL, &alarm, 0);
    next(&set_of);
    SHOW(timer_delete(first)), SHOW(timer_delete(first)), SHOW(timer_delete(second)), SHOW(timer_delete(silent));
    sigprocmask(SIG_SETMASK, &old, 0);
}

static long in_ms(struct timespec time) { return time.tv_sec * 1000 + time.tv_nsec / 1000000; }
static long shows(clockid_t clock) {
    struct timespec time;
    return clock_gettime(clock, &time) ? -errno : in_ms(time);
}
static long used(const struct rusage *usage) {
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 + (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
}
static void *computes(void *most) {
    long start = shows(CLOCK_THREAD_CPUTIME_ID);
    while (shows(CLOCK_THREAD_CPUTIME_ID) - start < (long)most) {}
    return 0;
}

/* Who waits uses no processor, who computes does, and its parent is told. */
static void processor(void) {
    puts("-- processor time");
    long start = shows(CLOCK_PROCESS_CPUTIME_ID), own = shows(CLOCK_THREAD_CPUTIME_ID), real = shows(CLOCK_MONOTONIC);
    usleep(400000);
    TRUE(shows(CLOCK_PROCESS_CPUTIME_ID) - start < 200);
    computes((void *)100);
    long spent = shows(CLOCK_PROCESS_CPUTIME_ID) - start;
    TRUE(spent >= 95 && spent <= shows(CLOCK_MONOTONIC) - real + 50);
    struct rusage usage;
    SHOW(getrusage(RUSAGE_SELF, &usage)), TRUE(used(&usage) >= start + 90);
    SHOW(getrusage(RUSAGE_THREAD, &usage)), TRUE(used(&usage) >= own + 90);
    SHOW(getrusage(7, &usage));
    pthread_t thread;
    own = shows(CLOCK_THREAD_CPUTIME_ID), start = shows(CLOCK_PROCESS_CPUTIME_ID);
    pthread_create(&thread, 0, computes, (void *)200), pthread_join(thread, 0);
    TRUE(shows(CLOCK_THREAD_CPUTIME_ID) - own < 150);
    TRUE(shows(CLOCK_PROCESS_CPUTIME_ID) - start >= 190);
    int p[2], status;
    char byte;
    clockid_t of_child;
    getrusage(RUSAGE_CHILDREN, &usage);
    long before = used(&usage);
    pipe(p);
    pid_t child = fork();
    if (!child) {
        computes((void *)200);
        write(p[1], "c", 1);
        pause();
    }
    read(p[0], &byte, 1);
    SHOW(clock_getcpuclockid(child, &of_child)), TRUE(shows(of_child) >= 190);
    SHOW(clock_getcpuclockid(1 << 21, &of_child));
    kill(child, SIGKILL);
    SHOW(wait4(child, &status, 0, &usage) == child), TRUE(used(&usage) >= 190);
    getrusage(RUSAGE_CHILDREN, &usage);
    TRUE(used(&usage) - before >= 190);
}

int main(int count, char **arguments) {
    int many = count > 1 && !strcmp(arguments[1], "many");
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    if (!many) {
        epolls();
        signalfds();
        queues();
    } else {
        waits();
        orphans();
        timers();
        processor();
    }
    fflush(stdout);
    return 0;
}
