/* Processes that are stopped and go on, and who is told. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

static int told, code, ends[2];
static void child_told(int signal, siginfo_t *info, void *context) { told++, code = info->si_code; }

static int waited(pid_t child, int options) {
    int status = 0;
    pid_t found = waitpid(child, &status, options);
    return found == child ? status : found;
}

/* Counts as long as it runs. */
static void *counts(void *argument) {
    for (;;) {
        if (write(ends[1], "x", 1) != 1) _exit(1);
        nap(2);
    }
}

/* Takes all that was counted, since nobody may have come to do so for long. */
static int counted(void) {
    char bytes[4096];
    int got, all = 0;
    while ((got = read(ends[0], bytes, sizeof bytes)) > 0) all += got;
    return all;
}

/* Stops it, and says how the wait for that ended. A host was seen to lose SIGTSTP now and then. */
static int stopped(pid_t child, int signal) {
    for (;;) {
        kill(child, signal);
        for (int n = 0; n < 1000; n++) {
            int status = waited(child, WUNTRACED | WNOHANG);
            if (status) return status;
            nap(1);
        }
    }
}

static pid_t counter(int threads) {
    pid_t child = fork();
    if (child) return child;
    setpgid(0, 0);
    for (int n = 0; n < threads; n++) {
        pthread_t thread;
        pthread_create(&thread, 0, counts, 0);
    }
    counts(0);
    return 0;
}

static volatile int continued;
static void going_on(int signal) { continued++; }

static int session(void) {
    setsid();
    pipe2(ends, 04000);
    struct sigaction action = {.sa_sigaction = child_told, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGCHLD, &action, 0);
    for (int threads = 0; threads < 4; threads += 3) {
        pid_t child = counter(threads);
        while (!counted()) nap(1);
        printf("nothing yet: %x\n", waited(child, WUNTRACED | WCONTINUED | WNOHANG));
        printf("stopped: %x", stopped(child, threads ? SIGTSTP : SIGSTOP));
        printf(", told %d, %d", told, code == CLD_STOPPED);
        printf(", once: %x\n", waited(child, WUNTRACED | WNOHANG));
        counted();
        nap(30);
        printf("stands still: %d", counted() == 0);
        kill(child, SIGCONT);
        printf(", goes on: %x", waited(child, WCONTINUED));
        while (!counted()) nap(1);
        printf(", told %d, %d", told, code == CLD_CONTINUED);
        printf(", counts\n");
        siginfo_t info;
        memset(&info, 0, sizeof info);
        kill(child, SIGTTOU);
        int result = waitid(P_PID, child, &info, WSTOPPED | WNOWAIT);
        printf("waitid: %d %d %d", result, info.si_code == CLD_STOPPED, info.si_status);
        waitid(P_PID, child, &info, WSTOPPED);
        memset(&info, 0, sizeof info);
        result = waitid(P_PID, child, &info, WSTOPPED | WCONTINUED | WEXITED | WNOHANG);
        printf(", then %d %d\n", result, info.si_pid);
        /* Other signals wait until it goes on; SIGKILL does not. */
        kill(child, threads ? SIGTERM : SIGKILL);
        if (threads) printf("waits: %x, ", waited(child, WUNTRACED | WNOHANG)), kill(child, SIGCONT);
        printf("ended: %x\n", waited(child, 0));
        told = 0;
    }
    /* Nobody outside of the group could continue it: only SIGSTOP stops. */
    pid_t child = fork();
    if (child == 0) {
        signal(SIGCONT, going_on);
        raise(SIGTSTP), raise(SIGTTIN);
        printf("goes on\n");
        fflush(stdout);
        raise(SIGSTOP);
        _exit(continued);
    }
    printf("orphaned: %x", waited(child, WUNTRACED));
    kill(child, SIGCONT);
    printf(" %x\n", waited(child, 0));
    /* Who does not want to be told is not, but may ask. */
    action.sa_flags |= SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, 0);
    told = 0;
    child = counter(0);
    kill(child, SIGSTOP);
    printf("asked: %x", waited(child, WUNTRACED));
    printf(", told %d\n", told);
    /* A wait goes on where it was. */
    kill(child, SIGKILL);
    waited(child, 0);
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        struct timespec time = {0, 100000000};
        _exit(nanosleep(&time, 0) == 0 ? 5 : 6);
    }
    nap(20);
    kill(child, SIGSTOP), waited(child, WUNTRACED);
    kill(child, SIGCONT);
    printf("slept: %x\n", waited(child, 0));
    /* Stopping and going on cancel each other. */
    sigset_t set, pending;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, 0);
    signal(SIGCONT, going_on);
    raise(SIGTSTP), raise(SIGCONT);
    sigpending(&pending);
    printf("pending: %d %d\n", sigismember(&pending, SIGTSTP), sigismember(&pending, SIGCONT));
    return 0;
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    pid_t child = fork();
    if (child == 0) return session();
    return WEXITSTATUS(waited(child, 0));
}
