/* Watching files and directories (inotify). It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

static const struct { unsigned bit; const char *name; } names[] = {
    {IN_ACCESS, "ACCESS"}, {IN_MODIFY, "MODIFY"}, {IN_ATTRIB, "ATTRIB"}, {IN_CLOSE_WRITE, "CLOSE_WRITE"},
    {IN_CLOSE_NOWRITE, "CLOSE_NOWRITE"}, {IN_OPEN, "OPEN"}, {IN_MOVED_FROM, "MOVED_FROM"}, {IN_MOVED_TO, "MOVED_TO"},
    {IN_CREATE, "CREATE"}, {IN_DELETE, "DELETE"}, {IN_DELETE_SELF, "DELETE_SELF"}, {IN_MOVE_SELF, "MOVE_SELF"},
    {IN_UNMOUNT, "UNMOUNT"}, {IN_Q_OVERFLOW, "Q_OVERFLOW"}, {IN_IGNORED, "IGNORED"}, {IN_ISDIR, "ISDIR"},
};

/* Cookies are numbers from all of the machine: they are shown as the how many-th they are here. */
static unsigned cookie(unsigned it) {
    static unsigned known[100], count;
    if (!it) return 0;
    for (unsigned n = 0; n < count; n++) if (known[n] == it) return n + 1;
    return known[count++ % 100] = it, count;
}

static void line(const struct inotify_event *event) {
    printf("  %d:", event->wd);
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        if (event->mask & names[n].bit) printf(" %s", names[n].name);
    if (event->cookie) printf(" cookie %u", cookie(event->cookie));
    printf(" [%u]", event->len);
    if (event->len) {
        printf(" %.*s", (int)event->len, event->name);
        for (unsigned n = strlen(event->name); n < event->len; n++) if (event->name[n]) printf(" not zero");
    }
    printf("\n");
}

/* All that has come so far. */
static void drain(const char *what, int fd) {
    static char bytes[70000] __attribute__((aligned(8)));
    int there = -1, flags = fcntl(fd, F_GETFL), got, all = 0;
    ioctl(fd, FIONREAD, &there);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    printf("%s:\n", what);
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        for (int at = 0; at < got;) {
            struct inotify_event *event = (void *)(bytes + at);
            line(event);
            at += sizeof *event + event->len;
        }
        all += got;
    }
    if (all != there) printf("  %d bytes instead of %d\n", all, there);
    if (got < 0 && errno != EAGAIN) printf("  %s\n", strerror(errno));
    fcntl(fd, F_SETFL, flags);
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) printf("%s: %s\n", path, strerror(errno));
    close(fd);
}

static void calls(void) {
    int pair[2], fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), other = inotify_init(), wd;
    char small[8], path[4200], bytes[100];
    struct stat stat;
    SHOW(inotify_init1(1));
    printf("flags %x %x, close %d %d\n", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(other, F_GETFL) & O_ACCMODE, fcntl(fd, F_GETFD), fcntl(other, F_GETFD));
    SHOW(read(fd, small, sizeof small));
    SHOW(write(fd, small, 1));
    SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(pread(fd, small, 8, 0));
    SHOW(ioctl(fd, 0x1234, 0));
    SHOW(ftruncate(fd, 0));
    fstat(fd, &stat);
    printf("mode %o\n", stat.st_mode);
    sprintf(path, "/proc/self/fd/%d", fd);
    int length = readlink(path, bytes, sizeof bytes);
    printf("%.*s\n", length, bytes);
    mkdir("d", 0755), put("f", "text"), symlink("f", "l"), symlink("d", "dl"), pipe(pair);
    SHOW(inotify_add_watch(99, "d", IN_OPEN));
    SHOW(inotify_add_watch(pair[0], "d", IN_OPEN));
    SHOW(inotify_add_watch(fd, "d", 0));
    SHOW(inotify_add_watch(fd, "d", 0x00010000));
    SHOW(inotify_add_watch(fd, "d", IN_ONLYDIR) > 0);
    SHOW(inotify_add_watch(99, "d", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
    SHOW(inotify_add_watch(pair[0], "d", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
    SHOW(inotify_add_watch(fd, "none", IN_OPEN));
    SHOW(inotify_add_watch(fd, "f/none", IN_OPEN));
    SHOW(inotify_add_watch(fd, "", IN_OPEN));
    SHOW(inotify_add_watch(fd, (char *)1, IN_OPEN));
    memset(path, 'x', sizeof path), path[sizeof path - 1] = 0;
    SHOW(inotify_add_watch(fd, path, IN_OPEN));
    SHOW(inotify_add_watch(fd, "f", IN_OPEN | IN_ONLYDIR));
    SHOW(inotify_add_watch(fd, "dl", IN_OPEN | IN_ONLYDIR | IN_DONT_FOLLOW));
    SHOW((wd = inotify_add_watch(fd, "f", IN_OPEN)));
    SHOW(inotify_add_watch(fd, "f", IN_OPEN) == wd);
    SHOW(inotify_add_watch(fd, "l", IN_CLOSE) == wd);
    SHOW(inotify_add_watch(fd, "l", IN_CLOSE | IN_DONT_FOLLOW) == wd);
    SHOW(inotify_add_watch(fd, "f", IN_OPEN | IN_MASK_CREATE));
    close(open("f", O_RDONLY));
    drain("only the last mask", fd);
    SHOW(inotify_add_watch(fd, "f", IN_OPEN | IN_MASK_ADD) == wd);
    close(open("f", O_RDONLY));
    drain("both", fd);
    SHOW(inotify_add_watch(other, "f", IN_OPEN | IN_MASK_CREATE));
    close(open("f", O_RDONLY));
    /* Sizes of what is read. */
    SHOW(read(fd, small, sizeof small));
    SHOW(read(fd, small, 0));
    SHOW(read(fd, bytes, 31));
    SHOW(read(fd, bytes, 31));
    SHOW(read(fd, bytes, 16));
    SHOW(read(other, bytes, 100));
    close(open("f", O_RDONLY));
    SHOW(read(fd, (void *)1, 100));
    drain("whatever is left", other);
    SHOW(inotify_rm_watch(fd, wd));
    SHOW(inotify_rm_watch(fd, wd));
    SHOW(inotify_rm_watch(fd, -1));
    SHOW(inotify_rm_watch(99, 1));
    SHOW(inotify_rm_watch(pair[0], 1));
    SHOW(inotify_add_watch(fd, "f", IN_OPEN));
    close(fd), close(other);
    /* One that has another one's number is another one. */
    fd = inotify_init1(IN_NONBLOCK);
    SHOW(inotify_add_watch(fd, "f", IN_ALL_EVENTS));
    SHOW(unlink("l")); SHOW(unlink("dl")); SHOW(rmdir("d")); SHOW(unlink("f"));
    drain("removed", fd);
    SHOW(inotify_rm_watch(fd, 1));
    close(fd), close(pair[0]), close(pair[1]);
}

static void files(void) {
    int fd = inotify_init1(0), one, two;
    char bytes[100];
    struct stat stat;
    mkdir("d", 0755), mkdir("e", 0755);
    SHOW(inotify_add_watch(fd, "d", IN_ALL_EVENTS));
    put("d/new", "text");
    drain("a new file", fd);
    put("d/new", "text");
    drain("an old file", fd);
    one = open("d/new", O_RDWR);
    SHOW(read(one, bytes, 2)); SHOW(read(one, bytes, 2)); SHOW(read(one, bytes, 2)); SHOW(read(one, bytes, 0));
    drain("reads", fd);
    SHOW(write(one, "x", 0));
    drain("nothing written", fd);
    SHOW(write(one, "x", 1)); SHOW(pread(one, bytes, 1, 0)); SHOW(pwrite(one, bytes, 1, 0));
    drain("reads and writes", fd);
    SHOW(ftruncate(one, 2)); SHOW(ftruncate(one, 2));
    drain("cut twice", fd);
    SHOW(fchmod(one, 0600)); SHOW(fchown(one, -1, -1));
    drain("mode", fd);
    SHOW(chown("d/new", getuid(), -1)); SHOW(chmod("d/new", 0640));
    drain("owner", fd);
    SHOW(truncate("d/new", 1)); SHOW(fallocate(one, 0, 0, 10));
    drain("sizes", fd);
    struct timespec times[2] = {{1, 0}, {2, 0}};
    SHOW(utimensat(AT_FDCWD, "d/new", times, 0));
    drain("times", fd);
    times[0].tv_nsec = UTIME_OMIT;
    SHOW(futimens(one, times));
    drain("the time of writing", fd);
    times[0].tv_nsec = 0, times[1].tv_nsec = UTIME_OMIT;
    SHOW(futimens(one, times));
    drain("the time of reading", fd);
    times[0].tv_nsec = UTIME_OMIT;
    SHOW(futimens(one, times));
    drain("no time", fd);
    two = dup(one);
    SHOW(close(one));
    drain("one of two", fd);
    SHOW(close(two));
    drain("closed", fd);
    one = open("d/new", O_RDONLY), two = open("d/two", O_WRONLY | O_CREAT | O_EXCL, 0644);
    drain("two", fd);
    SHOW(sendfile(two, one, 0, 100));
    drain("sent", fd);
    lseek(one, 0, SEEK_SET);
    SHOW(dup2(two, one) == one);
    close(one), close(two);
    drain("all closed", fd);
    SHOW(close(open("d/two", O_RDONLY | O_TRUNC)));
    drain("opened and cut", fd);
    SHOW(close(open("d/two", O_PATH)));
    drain("a path", fd);
    SHOW(lstat("d/two", &stat)); SHOW(access("d/two", R_OK));
    drain("looked at", fd);
    /* Directories. */
    SHOW(mkdir("d/inner", 0755)); SHOW(chmod("d/inner", 0700));
    one = open("d/inner", O_RDONLY | O_DIRECTORY);
    SHOW(syscall(SYS_getdents64, one, bytes, sizeof bytes) > 0);
    put("d/inner/deep", "");
    close(one);
    SHOW(unlink("d/inner/deep")); SHOW(rmdir("d/inner"));
    drain("a directory in it", fd);
    one = open("d", O_RDONLY);
    SHOW(syscall(SYS_getdents64, one, bytes, sizeof bytes) > 0);
    SHOW(fchmod(one, 0711));
    close(one);
    drain("the directory itself", fd);
    /* Names. */
    SHOW(symlink("nowhere", "d/link")); SHOW(link("d/two", "d/again")); SHOW(mkfifo("d/fifo", 0600));
    SHOW(mknod("d/node", S_IFREG | 0600, 0));
    drain("names", fd);
    int local = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "d/socket"};
    SHOW(bind(local, (void *)&address, sizeof address));
    close(local);
    one = open("d/fifo", O_RDWR);
    close(one);
    drain("more than files", fd);
    SHOW(rename("d/two", "d/three"));
    drain("renamed", fd);
    SHOW(rename("d/three", "e/three"));
    drain("gone", fd);
    SHOW(rename("e/three", "d/new"));
    drain("come, over another one", fd);
    SHOW(rename("d/new", "d/new")); SHOW(rename("d/new", "d/again"));
    drain("the same file", fd);
    mkdir("e/sub", 0755);
    SHOW(rename("e/sub", "d/sub")); SHOW(rename("d/sub", "e/sub"));
    drain("a directory comes and goes", fd);
    SHOW(unlink("d/link")); SHOW(unlink("d/again")); SHOW(unlink("d/fifo")); SHOW(unlink("d/node")); SHOW(unlink("d/socket"));
    SHOW(unlink("d/none")); SHOW(mkdir("d/new", 0755)); SHOW(rmdir("d/new"));
    drain("removed", fd);
    /* The directory goes, and what was in it comes from elsewhere. */
    SHOW(rename("d", "moved"));
    put("moved/file", "text");
    drain("moved", fd);
    SHOW(rename("moved/new", "moved/newer"));
    SHOW(unlink("moved/newer")); SHOW(unlink("moved/file")); SHOW(rmdir("moved"));
    drain("removed", fd);
    SHOW(inotify_rm_watch(fd, 1));
    rmdir("e/sub"), rmdir("e"), close(fd);
}

static void selves(void) {
    int fd = inotify_init1(IN_NONBLOCK), one, two;
    mkdir("d", 0755), put("d/f", "text"), put("g", "other");
    SHOW(inotify_add_watch(fd, "d/f", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(fd, "d", IN_ALL_EVENTS));
    put("d/f", "text");
    drain("both are told", fd);
    SHOW(link("d/f", "h")); SHOW(unlink("d/f"));
    drain("another name", fd);
    one = open("h", O_RDWR), two = open("h", O_RDONLY);
    SHOW(rename("h", "i"));
    drain("renamed", fd);
    SHOW(unlink("i"));
    drain("unlinked and open", fd);
    SHOW(write(one, "x", 1));
    SHOW(close(one));
    drain("still open", fd);
    SHOW(close(two));
    drain("and gone", fd);
    /* Overwritten. */
    SHOW(inotify_add_watch(fd, "g", IN_ALL_EVENTS));
    put("d/f", "text");
    drain("made", fd);
    SHOW(rename("d/f", "g"));
    drain("overwritten", fd);
    /* A directory, and who is in it. */
    mkdir("d/in", 0755);
    SHOW(inotify_add_watch(fd, "d/in", IN_ALL_EVENTS));
    put("d/in/x", "");
    SHOW(rename("d/in", "d/out"));
    unlink("d/out/x");
    SHOW(rmdir("d/out"));
    drain("a directory", fd);
    /* Once. */
    SHOW(inotify_add_watch(fd, "g", IN_OPEN | IN_CLOSE | IN_ONESHOT));
    put("g", "text"), put("g", "text");
    drain("once", fd);
    /* What is not there any more. */
    SHOW(inotify_add_watch(fd, "d", IN_ALL_EVENTS));
    put("d/f", "text"), one = open("d/f", O_RDWR);
    drain("open", fd);
    SHOW(unlink("d/f")); SHOW(write(one, "x", 1)); SHOW(close(one));
    drain("told of after its end", fd);
    SHOW(inotify_add_watch(fd, "d", IN_ALL_EVENTS | IN_EXCL_UNLINK));
    put("d/f", "text"), one = open("d/f", O_RDWR);
    drain("open", fd);
    SHOW(unlink("d/f")); SHOW(write(one, "x", 1)); SHOW(close(one));
    drain("not told of after its end", fd);
    /* What was open before anybody watched. */
    SHOW(inotify_rm_watch(fd, 2));
    drain("ignored", fd);
    put("d/f", "text"), one = open("d/f", O_RDWR);
    SHOW(inotify_add_watch(fd, "d", IN_MODIFY | IN_CLOSE | IN_MOVE));
    SHOW(write(one, "x", 1));
    SHOW(rename("d/f", "d/renamed"));
    SHOW(write(one, "x", 1));
    SHOW(rename("d/renamed", "elsewhere"));
    SHOW(write(one, "x", 1)); SHOW(close(one));
    drain("open before", fd);
    /* Long names, equal events and many. */
    SHOW(inotify_add_watch(fd, "d", IN_CREATE | IN_DELETE) > 0);
    for (int length = 1; length < 256; length += 15) {
        char path[300] = "d/";
        memset(path + 2, 'n', length);
        mkdir(path, 0755), rmdir(path);
    }
    drain("long", fd);
    SHOW(inotify_add_watch(fd, "g", IN_ATTRIB | IN_MODIFY) > 0);
    one = open("g", O_RDWR);
    for (int n = 0; n < 10; n++) fchmod(one, 0600 + n % 2);
    for (int n = 0; n < 10; n++) write(one, "x", 1);
    fchmod(one, 0600);
    drain("equal", fd);
    close(one), close(fd);
    unlink("g"), unlink("elsewhere"), rmdir("d");
}

/* More happens than is kept. */
static void lost(void) {
    int fd = inotify_init1(IN_NONBLOCK), one;
    char bytes[4000];
    put("g", "text");
    SHOW(inotify_add_watch(fd, "g", IN_ATTRIB | IN_MODIFY));
    one = open("g", O_RDWR);
    for (int n = 0; n < 40000; n++) n % 2 ? fchmod(one, 0600) : (int)write(one, "x", 1);
    int got, count = 0, last = 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        for (int at = 0; at < got; at += sizeof(struct inotify_event), count++) {
            struct inotify_event *event = (void *)(bytes + at);
            if (event->len || event->mask != (last ? IN_Q_OVERFLOW : count % 2 ? IN_ATTRIB : IN_MODIFY)) {
                last = event->mask == IN_Q_OVERFLOW;
                if (event->wd != -1) printf("event %d: %x\n", count, event->mask);
            }
        }
    printf("more than 1000 %d, the last one says so %d\n", count > 1000, last);
    write(one, "x", 1);
    drain("and it goes on", fd);
    close(one);
    /* A directory that is open and has no name, which is in no image. */
    mkdir("in", 0755);
    SHOW(inotify_add_watch(fd, "in", IN_DELETE_SELF | IN_ONLYDIR));
    one = open("in", O_RDONLY);
    SHOW(rmdir("in"));
    drain("removed and open", fd);
    close(one);
    drain("closed", fd);
    close(fd), unlink("g");
}

static void catches(int signal) { (void)signal; }

static void waits(void) {
    int fd = inotify_init(), epoll = epoll_create1(0);
    char bytes[1000];
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT, .data.u32 = 7}, found;
    mkdir("d", 0755);
    inotify_add_watch(fd, "d", IN_CREATE | IN_DELETE);
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
    fd_set set;
    struct timeval none = {0, 0};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted));
    SHOW(poll(&one, 1, 0)); SHOW(epoll_wait(epoll, &found, 1, 0));
    FD_ZERO(&set); FD_SET(fd, &set);
    SHOW(select(fd + 1, &set, 0, 0, &none));
    mkdir("d/one", 0755);
    SHOW(poll(&one, 1, 0)); SHOW(epoll_wait(epoll, &found, 1, 0));
    FD_ZERO(&set); FD_SET(fd, &set);
    SHOW(select(fd + 1, &set, 0, 0, &none));
    printf("%x %x\n", one.revents, found.events);
    drain("one", fd);
    SHOW(poll(&one, 1, 0));
    /* Each way of waiting, while another process does something. */
    fflush(stdout);
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (!child) {
            nap(20);
            way % 2 ? mkdir("d/one", 0755) : rmdir("d/one");
            _exit(0);
        }
        if (way == 1) SHOW(poll(&one, 1, -1));
        if (way == 2) SHOW(epoll_wait(epoll, &found, 1, -1));
        if (way == 3) { FD_ZERO(&set); FD_SET(fd, &set); SHOW(select(fd + 1, &set, 0, 0, 0)); }
        int got = read(fd, bytes, sizeof bytes);
        struct inotify_event *event = (void *)bytes;
        printf("%d: %x %s, ended %d\n", got, event->mask, event->name, ended(child));
        fflush(stdout);
    }
    /* A signal. */
    struct sigaction action = {.sa_handler = catches};
    sigaction(SIGALRM, &action, 0);
    alarm(1);
    SHOW(read(fd, bytes, sizeof bytes));
    /* Who has it from its parent reads the same events. */
    rmdir("d/one");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        drain("the child", fd);
        fflush(stdout);
        _exit(0);
    }
    printf("ended %d\n", ended(child));
    drain("nothing is left", fd);
    /* A child's end closes. */
    inotify_add_watch(fd, "d", IN_CLOSE);
    fflush(stdout);
    if (!(child = fork())) {
        open("d/left", O_CREAT | O_WRONLY, 0644);
        _exit(0);
    }
    printf("ended %d\n", ended(child));
    drain("left open", fd);
    unlink("d/left"), close(fd), close(epoll), rmdir("d");
}

/* One process changes files, and the others are told of each change once, whatever happens to all of them meanwhile. */
static void many(void) {
    enum { ROUNDS = 60, WATCHERS = 3 };
    mkdir("many", 0755), mkdir("many/in", 0755), mkdir("many/out", 0755);
    fflush(stdout);
    pid_t children[WATCHERS];
    int ready[2], results[WATCHERS][2];
    pipe(ready);
    for (int n = 0; n < WATCHERS; n++) {
        pipe(results[n]);
        if ((children[n] = fork())) continue;
        dup2(results[n][1], 1);
        int fd = inotify_init1(n == 1 ? IN_NONBLOCK : 0), count = 0, first = 0, ends = 0;
        int in = inotify_add_watch(fd, "many/in", IN_CREATE | IN_MOVED_FROM | IN_DELETE_SELF);
        int out = inotify_add_watch(fd, "many/out", IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_DELETE_SELF);
        int epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN | (n == 2 ? EPOLLET : 0)};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        write(ready[1], "r", 1);
        unsigned cookies[2] = {0}, sums[16] = {0};
        while (ends < 2) {
            char bytes[600] __attribute__((aligned(8)));
            if (n) epoll_wait(epoll, &event, 1, -1);
            int got;
            while ((got = read(fd, bytes, sizeof bytes)) > 0) {
                for (int at = 0; at < got;) {
                    struct inotify_event *event = (void *)(bytes + at);
                    at += sizeof *event + event->len;
                    count++;
                    for (int bit = 0; bit < 16; bit++) sums[bit] += event->mask >> bit & 1;
                    if (event->mask & IN_MOVED_FROM) cookies[0] += event->cookie ? 1 : 0, first = event->cookie;
                    if (event->mask & IN_MOVED_TO) cookies[1] += (unsigned)first == event->cookie;
                    if (event->mask & (IN_CREATE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE)) {
                        char *name = event->name;
                        if (strncmp(name, "file", 4)) printf("watcher %d is told of %s\n", n, name);
                    }
                    if (event->mask & IN_IGNORED) ends++;
                    if (event->mask & IN_Q_OVERFLOW) printf("watcher %d lost something\n", n);
                    if (event->wd != in && event->wd != out) printf("watcher %d has no watch %d\n", n, event->wd);
                }
                if (n != 1) fcntl(fd, F_SETFL, n == 2 ? O_NONBLOCK : 0);
                if (ends == 2) break;
            }
        }
        printf("watcher %d: %d events, cookies %u %u,", n, count, cookies[0], cookies[1]);
        for (int bit = 0; bit < 16; bit++) if (sums[bit]) printf(" %x:%u", 1 << bit, sums[bit]);
        printf("\n");
        fflush(stdout);
        _exit(n);
    }
    char byte;
    for (int n = 0; n < WATCHERS; n++) read(ready[0], &byte, 1);
    for (int n = 0; n < ROUNDS; n++) {
        char from[100], to[100];
        sprintf(from, "many/in/file%d", n), sprintf(to, "many/out/file%d", n);
        mknod(from, S_IFREG | 0644, 0);
        rename(from, to);
        int fd = open(to, O_WRONLY);
        write(fd, "text", 4);
        close(fd);
        if (n % 5 == 0) nap(5);
        unlink(to);
    }
    rmdir("many/in"), rmdir("many/out"), rmdir("many");
    for (int n = 0; n < WATCHERS; n++) {
        char line[1000];
        close(results[n][1]);
        int got = read(results[n][0], line, sizeof line);
        printf("%.*sended %d\n", got, line, ended(children[n]));
    }
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "calls")) calls();
    else if (!strcmp(what, "files")) files();
    else if (!strcmp(what, "selves")) selves();
    else if (!strcmp(what, "lost")) lost();
    else if (!strcmp(what, "waits")) waits();
    else many();
    return 0;
}
