/* System V IPC. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

/* Shows whether a call succeeds, or its error; identifiers and addresses are others each time. */
#define DOES(call) do { errno = 0; long result = (long)(call); \
    printf("%s: %s\n", #call, result == -1 ? strerrorname_np(errno) : "done"); } while (0)

enum { KEY = 0x4645524d, OTHER = 0x4645524e };

static pid_t forks(void) {
    fflush(stdout);
    return fork();
}

static void handler(int signal) { (void)signal; }

static void catch(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, 0);
}

/* --- Shared memory --- */

static void about(int id) {
    struct shmid_ds s;
    if (shmctl(id, IPC_STAT, &s)) {
        printf("gone: %s\n", strerrorname_np(errno));
        return;
    }
    printf("%s key, %lu bytes, %o, %lu attached, by %s, last %s, times %d%d%d\n", s.shm_perm.__key == KEY ? "the" : s.shm_perm.__key ? "a" : "no",
           s.shm_segsz, s.shm_perm.mode, s.shm_nattch, s.shm_cpid == getpid() ? "me" : "another",
           s.shm_lpid == 0 ? "nobody" : s.shm_lpid == getpid() ? "me" : "another", !!s.shm_atime, !!s.shm_dtime, !!s.shm_ctime);
}

static void memory(void) {
    DOES(shmget(KEY, 5000, 0600));
    DOES(shmget(KEY, 0, IPC_CREAT | 0600));
    DOES(shmget(KEY, -1, IPC_CREAT | 0600));
    DOES(shmget(IPC_PRIVATE, 0, 0600));
    int id = shmget(KEY, 5000, IPC_CREAT | 0640);
    about(id);
    printf("found: %d\n", shmget(KEY, 0, 0) == id && shmget(KEY, 5000, IPC_CREAT) == id && shmget(KEY, 4999, 0600) == id);
    DOES(shmget(KEY, 5001, 0));
    DOES(shmget(KEY, 5000, IPC_CREAT | IPC_EXCL));
    DOES(shmget(KEY, 5001, IPC_CREAT | IPC_EXCL));
    char *at = shmat(id, 0, 0);
    about(id);
    strcpy(at, "written");
    at[8191] = 7;
    char *again = shmat(id, 0, SHM_RDONLY);
    printf("%s, %d, apart: %d\n", again, again[8191], again != at);
    about(id);
    DOES(mprotect(again, 4096, PROT_READ | PROT_WRITE));
    DOES(mprotect(at, 8192, PROT_READ));
    DOES(mprotect(at, 8192, PROT_READ | PROT_WRITE));
    DOES(shmat(id + 1, 0, 0));
    DOES(shmat(-1, 0, 0));
    DOES(shmat(id, at + 1, 0));
    DOES(shmat(id, at, 0));
    DOES(shmat(id, at + 1, SHM_RND));
    DOES(shmat(id, 0, SHM_REMAP));
    DOES(shmat(id, (void *)1, SHM_RND | SHM_REMAP));
    char *place = mmap(0, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DOES(shmat(id, place, 0));
    munmap(place, 1 << 16);
    printf("where it is told: %d\n", shmat(id, place, 0) == place);
    printf("over it: %d\n", shmat(id, place, SHM_REMAP) == place);
    printf("rounded: %d\n", shmat(id, place + 5 * 4096 + 77, SHM_RND) == place + 5 * 4096);
    about(id);
    DOES(shmdt(at + 1));
    DOES(shmdt(at + 4096));
    DOES(shmdt(0));
    DOES(shmdt(&id));
    DOES(shmdt(place));
    DOES(shmdt(place));
    DOES(shmdt(place + 5 * 4096));
    about(id);
    /* A part of it goes, then the rest. */
    munmap(again, 4096);
    about(id);
    DOES(shmdt(again));
    about(id);

    /* Children have it, too. */
    int ends[2];
    char byte = 0;
    if (pipe(ends)) exit(1);
    pid_t child = forks();
    if (!child) {
        if (read(ends[0], &byte, 1) != 1) _exit(1);
        at[100] = byte + 1;
        if (shmdt(at)) _exit(2);
        at = shmat(id, 0, 0);
        at[101] = at[100] + 1;
        _exit(0);
    }
    about(id);
    at[100] = 1;
    if (write(ends[1], "\5", 1) != 1) exit(1);
    int status = ended(child);
    printf("child: %d, %d %d\n", status, at[100], at[101]);
    about(id);

    /* It goes when it is removed and nobody has it. */
    struct shmid_ds s;
    DOES(shmctl(id, IPC_STAT, 0));
    DOES(shmctl(id, 99, &s));
    DOES(shmctl(-1, IPC_STAT, &s));
    shmctl(id, IPC_STAT, &s);
    s.shm_perm.mode = 07604, s.shm_perm.uid = 12, s.shm_perm.gid = 13;
    DOES(shmctl(id, IPC_SET, &s));
    shmctl(id, IPC_STAT, &s);
    printf("%u %u %u %u\n", s.shm_perm.uid, s.shm_perm.gid, s.shm_perm.cuid, s.shm_perm.cgid);
    s.shm_perm.uid = -1;
    DOES(shmctl(id, IPC_SET, &s));
    DOES(shmctl(id, IPC_SET, 0));
    DOES(shmctl(id + 1, IPC_SET, &s));
    DOES(shmctl(id + 1, IPC_SET, 0));
    about(id);
    DOES(shmctl(id, SHM_LOCK, 0));
    about(id);
    DOES(shmctl(id, SHM_UNLOCK, 0));
    DOES(shmctl(id, IPC_RMID, 0));
    about(id);
    DOES(shmget(KEY, 0, 0));
    again = shmat(id, 0, 0);
    printf("%s, %d\n", again, again[100]);
    int next = shmget(KEY, 4096, IPC_CREAT | 0600);
    about(next);
    DOES(shmdt(at));
    about(id);
    DOES(shmctl(id, IPC_RMID, 0));
    DOES(shmdt(again));
    about(id);
    DOES(shmctl(id, IPC_RMID, 0));
    DOES(shmat(id, 0, 0));
    DOES(shmctl(next, IPC_RMID, 0));
    about(next);

    /* Others' permissions. */
    id = shmget(IPC_PRIVATE, 4096, 0604);
    at = shmat(id, 0, 0);
    at[0] = 5;
    child = forks();
    if (!child) {
        if (setgid(7) || setuid(7)) _exit(1);
        DOES(shmat(id, 0, 0));
        again = shmat(id, 0, SHM_RDONLY);
        printf("%d\n", again[0]);
        DOES(shmctl(id, IPC_STAT, &s));
        DOES(shmctl(id, IPC_SET, &s));
        DOES(shmctl(id, IPC_RMID, 0));
        DOES(shmctl(id, SHM_UNLOCK, 0));
        next = shmget(OTHER, 100, IPC_CREAT | 0060);
        DOES(shmat(next, 0, SHM_RDONLY));
        DOES(shmctl(next, IPC_STAT, &s));
        DOES(shmget(OTHER, 100, 0600));
        DOES(shmget(OTHER, 100, 0060));
        DOES(shmctl(next, IPC_RMID, 0));
        fflush(stdout);
        _exit(0);
    }
    printf("child: %d\n", ended(child));
    /* `execve` and the end of a process let go of it. */
    shmctl(id, IPC_RMID, 0);
    child = forks();
    if (!child) {
        shmdt(at);
        _exit(0);
    }
    shmdt(at);
    printf("child: %d\n", ended(child));
    about(id);
}

/* --- Semaphores --- */

union semun {
    int val;
    void *buf;
    unsigned short *array;
};

static int op(int id, int number, int add, int flags) {
    struct sembuf one = {number, add, flags};
    return semop(id, &one, 1);
}

static int timed(int id, int number, int add, int flags, long milliseconds) {
    struct sembuf one = {number, add, flags};
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    return semtimedop(id, &one, 1, &time);
}

static void values(int id) {
    unsigned short all[8] = {0};
    if (semctl(id, 0, GETALL, all)) printf("gone: %s\n", strerrorname_np(errno));
    else printf("values: %d %d %d %d\n", all[0], all[1], all[2], all[3]);
}

/* Waits until so many wait for a semaphore. */
static void until(int id, int number, int what, int count) {
    while (semctl(id, number, what) != count) nap(1);
}

static void semaphores(void) {
    DOES(semget(KEY, 4, 0600));
    DOES(semget(KEY, 0, IPC_CREAT | 0600));
    DOES(semget(KEY, -1, IPC_CREAT | 0600));
    int id = semget(KEY, 4, IPC_CREAT | 0600);
    printf("found: %d\n", semget(KEY, 0, 0) == id && semget(KEY, 4, IPC_CREAT) == id);
    DOES(semget(KEY, 5, 0));
    DOES(semget(KEY, 5, IPC_CREAT | IPC_EXCL));
    struct semid_ds s;
    union semun argument = {.buf = &s};
    DOES(semctl(id, 0, IPC_STAT, argument));
    printf("%o, %lu, times %d%d\n", s.sem_perm.mode, s.sem_nsems, !!s.sem_otime, !!s.sem_ctime);
    values(id);
    SHOW(op(id, 0, 3, 0));
    SHOW(op(id, 0, -1, 0));
    SHOW(op(id, 0, -3, IPC_NOWAIT));
    SHOW(op(id, 0, 0, IPC_NOWAIT));
    SHOW(op(id, 1, 0, 0));
    SHOW(op(id, 4, 1, 0));
    SHOW(op(id + 1, 0, 1, 0));
    SHOW(op(-1, 0, 1, 0));
    SHOW(op(id, 0, 32767, 0));
    SHOW(op(id, 0, 32765, 0));
    SHOW(op(id, 0, -32765, 0));
    SHOW(timed(id, 0, -3, 0, 20));
    SHOW(timed(id, 0, -2, 0, 20));
    SHOW(timed(id, 0, 0, 0, 20));
    SHOW(timed(id, 0, -2, IPC_NOWAIT, 20));
    SHOW(semop(id, 0, 1));
    SHOW(semop(id, 0, 0));
    struct sembuf three[3] = {{0, 2, 0}, {1, -1, IPC_NOWAIT}, {2, 1, 0}};
    SHOW(semop(id, three, 3));
    values(id);
    three[1].sem_op = 1;
    SHOW(semop(id, three, 3));
    values(id);
    struct sembuf same[4] = {{3, 2, 0}, {3, -1, 0}, {3, -1, 0}, {3, 0, IPC_NOWAIT}};
    SHOW(semop(id, same, 4));
    same[3].sem_op = -1;
    SHOW(semop(id, same, 4));
    values(id);
    struct timespec bad = {0, 1000000000};
    SHOW(semtimedop(id, three, 1, &bad));
    SHOW(semtimedop(id, three, 1, (void *)8));
    SHOW(semctl(id, 0, GETVAL));
    SHOW(semctl(id, 4, GETVAL));
    SHOW(semctl(id, -1, GETVAL));
    SHOW(semctl(id, 4, SETVAL, 1));
    SHOW(semctl(id, 0, SETVAL, 32768));
    SHOW(semctl(id, 0, SETVAL, -1));
    SHOW(semctl(id + 1, 0, SETVAL, -1));
    SHOW(semctl(id, 0, SETVAL, 32767));
    SHOW(semctl(id, 0, 99));
    printf("last: %s\n", semctl(id, 0, GETPID) == getpid() ? "me" : "another");
    unsigned short all[4] = {1, 2, 3, 4};
    argument.array = all;
    SHOW(semctl(id, 77, SETALL, argument));
    values(id);
    all[2] = 40000;
    SHOW(semctl(id, 0, SETALL, argument));
    values(id);
    argument.array = 0;
    SHOW(semctl(id, 0, SETALL, argument));
    SHOW(semctl(id, 0, GETALL, argument));

    /* Three who wait: each gets what there is in the order in which they came, if it is enough for it. */
    semctl(id, 0, SETVAL, 0);
    pid_t children[4];
    int wanted[4] = {3, 1, 2, 1};
    for (int n = 0; n < 4; n++) {
        if (!(children[n] = forks())) _exit(op(id, 0, -wanted[n], 0) ? 1 : 10 + n);
        until(id, 0, GETNCNT, n + 1);
    }
    op(id, 0, 2, 0);
    until(id, 0, GETNCNT, 2);
    printf("who: %d %d\n", ended(children[1]), ended(children[3]));
    SHOW(semctl(id, 0, GETVAL));
    op(id, 0, 4, 0);
    until(id, 0, GETNCNT, 1);
    printf("who: %d %d\n", ended(children[0]), semctl(id, 0, GETVAL));
    kill(children[2], SIGKILL);
    ended(children[2]);
    semctl(id, 0, SETVAL, 0);

    /* One who waits until it is 0, and for another one meanwhile. */
    semctl(id, 0, SETVAL, 2);
    semctl(id, 1, SETVAL, 0);
    if (!(children[0] = forks())) {
        struct sembuf both[2] = {{0, 0, 0}, {1, -1, 0}};
        _exit(semop(id, both, 2) ? 1 : 20);
    }
    until(id, 0, GETZCNT, 1);
    SHOW(semctl(id, 1, GETNCNT));
    op(id, 1, 1, 0);
    SHOW(semctl(id, 0, GETZCNT));
    op(id, 0, -2, 0);
    printf("both: %d\n", ended(children[0]));
    values(id);
    printf("last: %s\n", semctl(id, 1, GETPID) == children[0] ? "the child" : "another");

    /* What is undone at the end. */
    semctl(id, 0, SETVAL, 5);
    if (!(children[0] = forks())) {
        op(id, 0, -3, SEM_UNDO), op(id, 1, 4, SEM_UNDO), op(id, 0, -1, 0), op(id, 2, 7, SEM_UNDO);
        semctl(id, 2, SETVAL, 9);
        values(id);
        fflush(stdout);
        if (!fork()) _exit(0);
        wait(0);
        values(id);
        fflush(stdout);
        raise(SIGKILL);
    }
    printf("undone: %d\n", ended(children[0]));
    values(id);
    printf("last: %s\n", semctl(id, 0, GETPID) == children[0] ? "the child" : "another");
    if (!(children[0] = forks())) {
        op(id, 0, -4, SEM_UNDO);
        until(id, 0, GETNCNT, 1);
        _exit(0);
    }
    until(id, 0, GETVAL, 0);
    SHOW(op(id, 0, -2, 0));
    ended(children[0]);
    values(id);
    SHOW(op(id, 3, 32763, 0));
    SHOW(op(id, 3, -32767, SEM_UNDO));
    SHOW(op(id, 3, 32767, 0));
    SHOW(op(id, 3, -2, SEM_UNDO));
    values(id);

    /* Interrupted, and removed. */
    semctl(id, 0, SETVAL, 0);
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        if (!(children[0] = forks())) {
            catch(flags);
            int result = op(id, 0, -1, 0);
            _exit(result == -1 ? errno == EINTR ? 30 : 31 : 32);
        }
        until(id, 0, GETNCNT, 1);
        kill(children[0], SIGUSR1);
        printf("interrupted: %d\n", ended(children[0]));
        SHOW(semctl(id, 0, GETNCNT));
    }
    if (!(children[0] = forks())) {
        int result = timed(id, 0, -1, 0, 100000);
        _exit(result == -1 ? errno == EIDRM ? 40 : 41 : 42);
    }
    until(id, 0, GETNCNT, 1);
    argument.buf = &s;
    semctl(id, 0, IPC_STAT, argument);
    s.sem_perm.mode = 0444;
    SHOW(semctl(id, 0, IPC_SET, argument));
    if (!(children[1] = forks())) {
        if (setuid(7)) _exit(1);
        SHOW(op(id, 1, 1, 0));
        SHOW(op(id, 0, 0, IPC_NOWAIT));
        SHOW(semctl(id, 0, GETVAL));
        SHOW(semctl(id, 0, SETVAL, 1));
        SHOW(semctl(id, 0, IPC_RMID));
        SHOW(semctl(id, 0, IPC_SET, argument));
        fflush(stdout);
        _exit(0);
    }
    ended(children[1]);
    SHOW(semctl(id, 0, IPC_RMID));
    printf("removed: %d\n", ended(children[0]));
    SHOW(semctl(id, 0, IPC_RMID));
    values(id);
}

/* --- Messages --- */

struct message {
    long type;
    char text[9000];
};

static int sends(int id, long type, const char *text, int flags) {
    struct message message = {.type = type};
    strcpy(message.text, text);
    return msgsnd(id, &message, strlen(text), flags);
}

static void receives(int id, long type, long most, int flags) {
    struct message message = {0};
    errno = 0;
    long got = msgrcv(id, &message, most, type, flags);
    printf("receives %ld, %ld, %o: ", type, most, flags);
    if (got < 0) printf("%s\n", strerrorname_np(errno));
    else printf("%ld bytes, %ld '%s'\n", got, message.type, message.text);
}

static void queue(int id) {
    struct msqid_ds s;
    if (msgctl(id, IPC_STAT, &s)) printf("gone: %s\n", strerrorname_np(errno));
    else printf("%lu messages, %lu bytes of %lu, %o, times %d%d%d, by %s and %s\n", s.msg_qnum, s.__msg_cbytes, s.msg_qbytes, s.msg_perm.mode,
                !!s.msg_stime, !!s.msg_rtime, !!s.msg_ctime, s.msg_lspid == getpid() ? "me" : s.msg_lspid ? "another" : "nobody",
                s.msg_lrpid == getpid() ? "me" : s.msg_lrpid ? "another" : "nobody");
}

static void messages(void) {
    DOES(msgget(KEY, 0600));
    int id = msgget(KEY, IPC_CREAT | 0600);
    printf("found: %d\n", msgget(KEY, 0) == id && msgget(KEY, IPC_CREAT | 0600) == id);
    DOES(msgget(KEY, IPC_CREAT | IPC_EXCL));
    queue(id);
    SHOW(sends(id, 3, "three", 0));
    SHOW(sends(id, 1, "one", 0));
    SHOW(sends(id, 2, "two", 0));
    SHOW(sends(id, 3, "again", 0));
    SHOW(sends(id, 5, "", 0));
    queue(id);
    receives(id, 2, 100, 0);
    receives(id, 2, 100, IPC_NOWAIT);
    receives(id, -2, 100, 0);
    receives(id, -2, 100, IPC_NOWAIT);
    receives(id, -4, 4, 0);
    receives(id, -4, 4, MSG_NOERROR);
    receives(id, 3, 100, MSG_EXCEPT);
    receives(id, 3, 100, IPC_NOWAIT | MSG_EXCEPT);
    receives(id, 0, 100, 0);
    receives(id, 0, 100, IPC_NOWAIT);
    receives(id, 0, -1, 0);
    receives(id + 1, 0, 100, 0);
    receives(-1, 0, 100, 0);
    queue(id);
    SHOW(sends(id, 0, "", 0));
    SHOW(sends(id, -1, "", 0));
    SHOW(sends(id + 1, 1, "", 0));
    SHOW(sends(-1, 1, "", 0));
    static struct message large = {.type = 1};
    memset(large.text, 'x', sizeof large.text);
    SHOW(msgsnd(id, &large, 8193, 0));
    SHOW(msgsnd(id, &large, -1, 0));
    SHOW(msgsnd(id, (void *)8, 8, 0));
    SHOW(msgsnd(id, &large, 8192, 0));
    SHOW(msgsnd(id, &large, 8192, 0));
    SHOW(msgsnd(id, &large, 1, IPC_NOWAIT));
    SHOW(msgsnd(id, &large, 0, IPC_NOWAIT));
    queue(id);
    SHOW(msgrcv(id, &large, 1, 0, MSG_NOERROR));
    SHOW(msgrcv(id, (void *)8, 1, 0, MSG_NOERROR));
    receives(id, 0, 0, 0);
    queue(id);

    /* Who waits for a type gets it, in the order in which they came. */
    pid_t children[4];
    long types[4] = {7, 0, 7, -9};
    for (int n = 0; n < 4; n++) {
        if (!(children[n] = forks())) {
            struct message got = {0};
            long length = msgrcv(id, &got, 10, types[n], 0);
            _exit(length < 0 ? errno == E2BIG ? 90 : 91 : got.text[0] - 'a' + 10 * n + 10);
        }
        asleep(children[n]);
    }
    sends(id, 10, "a", 0);
    printf("any: %d\n", ended(children[1]));
    sends(id, 7, "b", 0);
    printf("first: %d\n", ended(children[0]));
    sends(id, 7, "too long for it", 0);
    printf("second: %d, third: %d\n", ended(children[2]), ended(children[3]));
    queue(id);
    receives(id, 7, 100, IPC_NOWAIT);

    /* Who waits for room. */
    for (int n = 0; n < 2; n++) msgsnd(id, &large, 8192, 0);
    if (!(children[0] = forks())) _exit(sends(id, 4, "waited", 0) ? 1 : 50);
    asleep(children[0]);
    queue(id);
    msgrcv(id, &large, 8192, 0, 0);
    printf("room: %d\n", ended(children[0]));
    receives(id, 4, 100, 0);
    struct msqid_ds s;
    msgctl(id, IPC_STAT, &s);
    s.msg_qbytes = 10, s.msg_perm.mode = 0200;
    SHOW(msgctl(id, IPC_SET, &s));
    queue(id);
    SHOW(sends(id, 1, "no", IPC_NOWAIT));
    msgrcv(id, &large, 8192, 0, 0);
    SHOW(sends(id, 1, "0123456789", IPC_NOWAIT));
    SHOW(sends(id, 1, "1", IPC_NOWAIT));
    if (!(children[0] = forks())) {
        if (setuid(7)) _exit(1);
        SHOW(sends(id, 1, "", IPC_NOWAIT));
        receives(id, 0, 10, 0);
        SHOW(msgctl(id, IPC_STAT, &s));
        SHOW(msgctl(id, IPC_SET, &s));
        SHOW(msgctl(id, IPC_RMID, 0));
        fflush(stdout);
        _exit(0);
    }
    ended(children[0]);
    SHOW(msgctl(id, 99, &s));
    SHOW(msgctl(id, IPC_SET, 0));
    SHOW(msgctl(id, IPC_STAT, 0));

    /* Interrupted, and removed. */
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        if (!(children[0] = forks())) {
            catch(flags);
            struct message got;
            long result = msgrcv(id, &got, 10, 99, 0);
            _exit(result == -1 ? errno == EINTR ? 30 : 31 : 32);
        }
        asleep(children[0]);
        kill(children[0], SIGUSR1);
        printf("interrupted: %d\n", ended(children[0]));
    }
    for (int n = 0; n < 2; n++) {
        if (!(children[n] = forks())) {
            struct message got;
            long result = n ? sends(id, 1, "for nobody", 0) : msgrcv(id, &got, 10, 99, 0);
            _exit(result == -1 ? errno == EIDRM ? 40 : 41 : 42);
        }
        asleep(children[n]);
    }
    SHOW(msgctl(id, IPC_RMID, 0));
    printf("removed: %d %d\n", ended(children[0]), ended(children[1]));
    SHOW(msgctl(id, IPC_RMID, 0));
    queue(id);
}

/* Processes that pass a number around by all three, for as long as it takes to save them. */
static void around(void) {
    int memory = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), set = semget(IPC_PRIVATE, 4, IPC_CREAT | 0600), queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    volatile unsigned *sum = shmat(memory, 0, 0);
    pid_t children[3];
    for (int n = 0; n < 3; n++) {
        if (!(children[n] = forks())) {
            for (int round = 0; round < 40; round++) {
                struct message message;
                struct sembuf take = {n, -1, SEM_UNDO}, give = {(n + 1) % 3, 1, 0}, back = {n, 1, SEM_UNDO}, drop = {n, -1, 0};
                if (semop(set, &take, 1)) _exit(1);
                if (msgrcv(queue, &message, 100, n + 1, 0) < 0) _exit(2);
                unsigned number;
                memcpy(&number, message.text, sizeof number);
                *sum = *sum * 31 + number + n;
                number = number * 3 + n;
                message.type = (n + 1) % 3 + 1;
                memcpy(message.text, &number, sizeof number);
                if (msgsnd(queue, &message, sizeof number, 0)) _exit(3);
                if (semop(set, &back, 1) || semop(set, &drop, 1) || semop(set, &give, 1)) _exit(4);
            }
            _exit(0);
        }
    }
    struct message first = {.type = 1};
    msgsnd(queue, &first, sizeof(unsigned), 0);
    op(set, 0, 1, 0);
    for (int n = 0; n < 3; n++) printf("child: %d\n", ended(children[n]));
    printf("sum: %u\n", *sum);
    values(set);
    shmctl(memory, IPC_RMID, 0), semctl(set, 0, IPC_RMID), msgctl(queue, IPC_RMID, 0);
}

int main(int count, char **args) {
    const char *what = count > 1 ? args[1] : "all";
    int all = !strcmp(what, "all");
    setvbuf(stdout, 0, _IOLBF, 1 << 12);
    if (all || !strcmp(what, "memory")) memory();
    if (all || !strcmp(what, "semaphores")) semaphores();
    if (all || !strcmp(what, "messages")) messages();
    if (all || !strcmp(what, "around")) around();
    return 0;
}
