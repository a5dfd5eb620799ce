/* Pseudo-terminals. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

/* What is there, as it is. */
static void show(const char *what, int fd) {
    char bytes[5000];
    errno = 0;
    int got = read(fd, bytes, sizeof bytes);
    printf("%s: %d ", what, got);
    if (got < 0) printf("%s", strerror(errno));
    for (int n = 0; n < got; n++)
        if (bytes[n] < 32 || bytes[n] > 126) printf("\\%03o", (unsigned char)bytes[n]);
        else putchar(bytes[n]);
    putchar('\n');
}

static void ready(const char *what, int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
    poll(&one, 1, 0);
    printf("%s: %x\n", what, one.revents);
}

static void set(int fd, tcflag_t off, tcflag_t on) {
    struct termios settings;
    tcgetattr(fd, &settings);
    settings.c_lflag = settings.c_lflag & ~off | on;
    tcsetattr(fd, TCSANOW, &settings);
}

/* On Linux a thread of the kernel carries what was written to the other end: on a busy host that takes a while. */
static void carried(void) { nap(100); }
#define TYPE(text) do { SHOW(write(master, text, sizeof text - 1)); carried(); } while (0)

/* The master is read by packets, which tell what happens at the slave. */
static void packets(void) {
    puts("-- packets");
    int master, slave, on = 1;
    openpty(&master, &slave, 0, 0, 0);
    fcntl(master, F_SETFL, O_NONBLOCK);
    SHOW(ioctl(slave, TIOCPKT, &on)), SHOW(ioctl(master, TIOCPKT, &on));
    on = 7;
    SHOW(ioctl(master, TIOCGPKT, &on)), SHOW(on);
    show("nothing", master);
    SHOW(write(slave, "some text", 9)), carried();
    char byte = 7;
    SHOW(read(master, &byte, 1)), SHOW(byte);
    show("text", master);
    struct termios settings;
    tcgetattr(slave, &settings);
    settings.c_iflag &= ~IXON, tcsetattr(slave, TCSANOW, &settings);
    SHOW(write(slave, "more", 4)), carried();
    struct pollfd one = {.fd = master, .events = POLLIN | POLLPRI};
    SHOW(poll(&one, 1, 0)), SHOW(one.revents);
    fd_set set;
    FD_ZERO(&set), FD_SET(master, &set);
    SHOW(select(master + 1, 0, 0, &set, &(struct timeval){0})), SHOW(FD_ISSET(master, &set));
    show("no keys", master), show("more", master);
    SHOW(poll(&one, 1, 0)), SHOW(select(master + 1, 0, 0, &set, &(struct timeval){0}));
    settings.c_iflag |= IXON, tcsetattr(slave, TCSAFLUSH, &settings);
    show("keys, and flushed", master);
    SHOW(tcflush(slave, TCIFLUSH)), show("flushed", master);
    SHOW(tcflush(master, TCIFLUSH)), show("not by the slave", master);
    settings.c_cc[VSTOP] = 'x', tcsetattr(slave, TCSANOW, &settings), show("other keys", master);
    on = 0;
    SHOW(ioctl(master, TIOCPKT, &on)), SHOW(ioctl(master, TIOCGPKT, &on)), SHOW(on);
    SHOW(write(slave, "as ever", 7)), carried(), show("no packets", master);
    close(master), close(slave);
}

static void one(void) {
    packets();
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK), number = -1;
    char path[100], name[100] = {0};
    SHOW(isatty(master));
    SHOW(ioctl(master, TIOCGPTN, &number));
    sprintf(path, "/dev/pts/%d", number);
    SHOW(open(path, O_RDWR | O_NOCTTY));
    SHOW(unlockpt(master));
    SHOW(strcmp(ptsname(master), path));
    ready("master", master);
    show("master", master);
    int slave = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK);
    SHOW(isatty(slave));
    SHOW(strcmp(ttyname(slave), path));
    struct stat stat, same;
    fstat(slave, &stat), lstat(path, &same);
    printf("mode %o, major %d, same %d\n", stat.st_mode & S_IFMT, major(stat.st_rdev), stat.st_rdev == same.st_rdev);
    SHOW(lstat("/dev/pts/4000", &same));
    SHOW(open("/dev/pts/4000", O_RDWR) < 0);
    SHOW(lseek(master, 0, SEEK_SET));
    ready("master", master), ready("slave", slave);
    show("slave", slave);
    TYPE("hello wor\177\177\177there\r");
    ready("slave", slave);
    show("slave", slave), show("echo", master);
    TYPE("gone\025left \027kept");
    show("slave", slave);
    TYPE("\004\004");
    int there = 0;
    SHOW(ioctl(slave, FIONREAD, &there));
    printf("there: %d\n", there);
    show("slave", slave), show("slave", slave), show("slave", slave), show("echo", master);
    SHOW(write(slave, "out\nput\t\1", 9)); carried();
    ready("master", master);
    show("output", master);
    /* As bytes. */
    set(slave, ICANON | ECHO, 0);
    TYPE("raw\r\004\177");
    show("slave", slave), show("echo", master);
    struct termios settings;
    tcgetattr(master, &settings);
    settings.c_cc[VMIN] = 3, settings.c_iflag &= ~ICRNL, settings.c_oflag &= ~OPOST;
    SHOW(tcsetattr(slave, TCSANOW, &settings));
    TYPE("ab");
    ready("slave", slave);
    TYPE("\r");
    ready("slave", slave);
    show("slave", slave);
    SHOW(write(slave, "\n", 1)); carried();
    show("output", master);
    settings.c_cc[VMIN] = 0;
    tcsetattr(slave, TCSANOW, &settings);
    show("slave", slave);
    settings.c_cc[VTIME] = 2;
    tcsetattr(slave, TCSAFLUSH, &settings);
    fcntl(slave, F_SETFL, 0);
    show("slave", slave);
    /* Control. */
    cfmakeraw(&settings), settings.c_lflag |= ICANON | ISIG | ECHO | ECHOCTL, settings.c_iflag |= IXON;
    tcsetattr(slave, TCSANOW, &settings);
    fcntl(slave, F_SETFL, O_NONBLOCK);
    TYPE("typed\003");
    show("slave", slave), show("echo", master);
    SHOW(write(slave, "free", 4));
    carried();
    show("output", master);
    struct winsize size = {1, 2, 3, 4}, found = {0};
    SHOW(ioctl(slave, TIOCGWINSZ, &found));
    printf("%d %d\n", found.ws_row, found.ws_col);
    SHOW(ioctl(master, TIOCSWINSZ, &size));
    SHOW(ioctl(slave, TIOCGWINSZ, &found));
    printf("%d %d %d %d\n", found.ws_row, found.ws_col, found.ws_xpixel, found.ws_ypixel);
    SHOW(ioctl(slave, TIOCGPGRP, &there));
    SHOW(tcgetsid(slave));
    SHOW(ioctl(slave, TIOCGPTN, &there));
    SHOW(ioctl(slave, 0x12345, 0));
    SHOW(tcsendbreak(slave, 0));
    SHOW(tcflush(slave, TCIOFLUSH));
    SHOW(tcflush(slave, 9));
    /* A long line, and more than is kept. */
    char *long_text = malloc(20000);
    memset(long_text, 'l', 20000);
    long_text[9999] = '\n';
    set(slave, ECHO, 0);
    fcntl(master, F_SETFL, O_NONBLOCK);
    for (int done = 0, got; done < 10000 && (got = write(master, long_text + done, 1000)) > 0; done += got) {}
    char bytes[5000];
    carried();
    SHOW(read(slave, bytes, 5000));
    SHOW(read(slave, bytes, 5000));
    /* More lines than are kept, which nobody reads: what was taken is not lost. How much that is each system says for itself. */
    int written = 0, again = 0, wrong = 0;
    for (int n = 0, got; n < 2000 && (got = write(master, "0123456789\n" + written % 11, 11 - written % 11)) > 0; n++)
        written += got;
    SHOW(written > 2000);
    for (int round = 0; round < 2000 && again < written / 11 * 11; round++) {
        nap(2);
        for (int got; (got = read(slave, bytes, 5000)) > 0;)
            for (int n = 0; n < got; n++) wrong += bytes[n] != "0123456789\n"[again++ % 11];
    }
    SHOW(again == written / 11 * 11); SHOW(wrong);
    tcflush(slave, TCIOFLUSH);
    /* The other end is gone. */
    close(slave), carried();
    ready("master", master);
    show("master", master);
    slave = open(path, O_RDWR | O_NOCTTY);
    ready("master", master);
    TYPE("last\n");
    close(master);
    ready("slave", slave);
    SHOW(write(slave, "x", 1));
    SHOW(open(path, O_RDWR | O_NOCTTY));
    close(slave);
    SHOW(lstat(path, &stat));
    SHOW(open("/dev/ptmx", O_RDWR) > 0);
}

static volatile int caught;
static void catches(int signal) { caught = signal; }

/* Reads until the text is there, behind what was waited for before. */
static void until(int fd, const char *text) {
    static char bytes[10000];
    static int length;
    char *found;
    while (!(found = strstr(bytes, text))) {
        int got = read(fd, bytes + length, sizeof bytes - 1 - length);
        if (got <= 0) { printf("'%s' does not come: %d %s, '%s'\n", text, got, strerror(errno), bytes); return; }
        bytes[length += got] = 0;
    }
    found += strlen(text);
    length -= found - bytes;
    memmove(bytes, found, length + 1);
    printf("'%s' has come\n", text);
}

/* Waits for a signal that is blocked: one that came before is not missed. */
static void await(int signal) {
    sigset_t none;
    sigemptyset(&none);
    while (caught != signal) sigsuspend(&none);
}

static void many(void) {
    int master;
    signal(SIGTTOU, SIG_IGN);
    fflush(stdout);
    pid_t child = forkpty(&master, 0, 0, 0);
    if (!child) {
        sigset_t both;
        sigemptyset(&both), sigaddset(&both, SIGINT), sigaddset(&both, SIGWINCH);
        sigprocmask(SIG_BLOCK, &both, 0);
        signal(SIGINT, catches);
        signal(SIGWINCH, catches);
        printf("leader %d, foreground %d, tty %d\n", getsid(0) == getpid(), tcgetpgrp(0) == getpid(), open("/dev/tty", O_RDWR) > 0);
        printf("ready\n");
        await(SIGINT);
        printf("interrupted\n");
        await(SIGWINCH);
        printf("resized\n");
        /* A job in the background is stopped when it reads, and continued into the foreground. */
        pid_t job = fork();
        if (!job) {
            char line[100];
            setpgid(0, 0);
            printf("job reads: %s", fgets(line, 100, stdin) ? line : "nothing\n");
            printf("job ends\n");
            fflush(stdout);
            for (;;) pause();
        }
        setpgid(job, job);
        int status;
        waitpid(job, &status, WUNTRACED);
        printf("stopped by %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
        tcsetpgrp(0, job);
        kill(job, SIGCONT);
        printf("the job has it\n");
        waitpid(job, &status, WUNTRACED);
        printf("then %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : WTERMSIG(status));
        kill(job, SIGCONT);
        waitpid(job, &status, 0);
        printf("ended by %d\n", WTERMSIG(status));
        tcsetpgrp(0, getpid());
        printf("waits\n");
        fflush(stdout);
        signal(SIGHUP, SIG_DFL);
        for (;;) pause();
    }
    until(master, "ready");
    write(master, "\003", 1);
    until(master, "interrupted");
    struct winsize size = {10, 20};
    ioctl(master, TIOCSWINSZ, &size);
    until(master, "resized");
    until(master, "the job has it");
    write(master, "a line for the job\n", 19);
    until(master, "job ends");
    write(master, "\032", 1);
    until(master, "then 20");
    write(master, "\034", 1);
    until(master, "waits");
    close(master);
    printf("hung up: %d\n", ended(child));
    /* A session without a terminal has none. */
    fflush(stdout);
    if (!(child = fork())) {
        setsid(), signal(SIGHUP, SIG_IGN);
        SHOW(open("/dev/tty", O_RDWR));
        fflush(stdout);
        int slave;
        openpty(&master, &slave, 0, 0, 0);
        SHOW(ioctl(slave, TIOCSCTTY, 0));
        SHOW(ioctl(slave, TIOCSCTTY, 0));
        SHOW(open("/dev/tty", O_RDWR) > 0);
        SHOW(tcsetpgrp(slave, 1));
        SHOW(ioctl(slave, TIOCNOTTY, 0));
        SHOW(open("/dev/tty", O_RDWR));
        fflush(stdout);
        _exit(0);
    }
    printf("ended: %d\n", ended(child));
    /* A reader waits, and what is written wakes it. */
    int slave;
    openpty(&master, &slave, 0, 0, 0);
    fflush(stdout);
    if (!(child = fork())) {
        char line[100];
        int got = read(slave, line, 100);
        _exit(got == 5 && !memcmp(line, "line\n", 5) ? 33 : 1);
    }
    nap(20);
    write(master, "li", 2);
    nap(20);
    write(master, "ne\n", 3);
    printf("read: %d\n", ended(child));
    if (!(child = fork())) {
        close(master);
        char text[3000];
        memset(text, 'x', 3000);
        for (int n = 0; n < 10; n++)
            for (int done = 0, got; done < 3000; done += got)
                if ((got = write(slave, text + done, 3000 - done)) <= 0) _exit(1);
        _exit(34);
    }
    close(slave);
    int count = 0, got;
    char bytes[1000];
    while ((got = read(master, bytes, 1000)) > 0) count += got;
    printf("came: %d, then %s, writer %d\n", count, strerror(errno), ended(child));
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "many")) many();
    else one();
    return 0;
}
