/*
 * The program that runs in Debian's Linux and, as a Linux program, in Fermata, for docs/criu.md:
 * `./fermata bench --beside-criu` compiles it for both.
 *
 *   measured COMMAND...    runs the command and marks its instructions for tools/count
 *   hold BYTES FILE        holds so much memory that cannot be guessed
 *   calls OUT FILE         waits in many calls at once, and writes to OUT what each of them returned
 *   state KIND FILE        gets into a state that a checkpointer may refuse
 *
 * Each but the first writes its process's number to FILE when it is ready to be saved.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../marks.h"

/* Reports that this process is ready to be saved. */
static void ready(const char *file)
{
	char text[16];
	int length = snprintf(text, sizeof text, "%d\n", getpid());
	int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (write(fd, text, length) != length)
		_exit(9);
	close(fd);
}

static __attribute__((noreturn)) void sleep_for_ever(void)
{
	for (;;)
		sleep(1000);
}

/* ---- measuring ---- */

/* Runs a command, which is measured from its start to its end. */
static int measured(char **command)
{
	int status = 0;
	BEGIN;
	pid_t child = vfork();
	if (child == 0) {
		execv(command[0], command);
		_exit(127);
	}
	waitpid(child, &status, 0);
	END;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

/* Holds the same data as the native program: benches/src/bin/save_restore.rs. */
static void hold(size_t bytes, const char *file)
{
	uint64_t word = 0x9e3779b97f4a7c15ull, *held = malloc(bytes + 8);
	for (size_t i = 0; i < bytes / 8; i++) {
		word ^= word << 13;
		word ^= word >> 7;
		word ^= word << 17;
		held[i] = word;
	}
	ready(file);
	sleep_for_ever();
}

/* ---- calls that wait ---- */

enum { LASTS = 3000, WAKES = 3000 }; /* milliseconds */

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static int a_pipe[2], a_pair[2], an_event, a_semaphore, a_queue, a_lock;
/* Shared by all. */
static uint32_t *words;
static const struct timespec lasts = { LASTS / 1000, 0 };
static int64_t began;

static struct timespec then(int clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_sec += LASTS / 1000;
	return t;
}

static long c_nanosleep(void) { return syscall(SYS_nanosleep, &lasts, NULL); }
static long c_clock_nanosleep(void) { return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &lasts, NULL); }
static long c_absolute(void)
{
	struct timespec t = then(CLOCK_MONOTONIC);
	return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
static long c_poll(void)
{
	struct pollfd p = { a_pipe[0], POLLPRI, 0 };
	return syscall(SYS_poll, &p, 1, LASTS);
}
static long c_ppoll(void)
{
	struct pollfd p = { a_pipe[0], POLLPRI, 0 };
	struct timespec t = lasts;
	return syscall(SYS_ppoll, &p, 1, &t, NULL, 8);
}
static long c_select(void)
{
	struct timeval t = { LASTS / 1000, 0 };
	return syscall(SYS_select, 0, NULL, NULL, NULL, &t);
}
static long c_epoll_wait(void)
{
	struct epoll_event e;
	return syscall(SYS_epoll_wait, epoll_create1(0), &e, 1, LASTS);
}
static long c_futex_timed(void) { return syscall(SYS_futex, &words[0], FUTEX_WAIT, 0, &lasts); }
static long c_futex(void) { return syscall(SYS_futex, &words[1], FUTEX_WAIT, 0, NULL); }
static long c_sigtimedwait(void)
{
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return syscall(SYS_rt_sigtimedwait, &set, &info, &lasts, 8);
}
static long c_read_pipe(void) { char b; return read(a_pipe[0], &b, 1); }
static long c_read_socket(void) { char b; return read(a_pair[0], &b, 1); }
static long c_read_timed(void)
{
	struct timeval t = { LASTS / 1000, 0 };
	int pair[2];
	char b;
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	return recv(pair[0], &b, 1, 0);
}
static long c_read_event(void) { uint64_t b; return read(an_event, &b, 8); }
static long c_accept(void)
{
	struct sockaddr_un a = { AF_UNIX, "/tmp/listens" };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(s, (void *)&a, sizeof a);
	listen(s, 1);
	return accept(s, NULL, NULL) >= 0 ? 1 : -1;
}
static long c_wait4(void)
{
	pid_t child = fork();
	if (child == 0) {
		int64_t end = began + LASTS;
		while (now() < end)
			usleep(20000);
		_exit(0);
	}
	return syscall(SYS_wait4, child, NULL, 0, NULL) == child ? 1 : -1;
}
static long c_flock(void) { return flock(open("/tmp/locked", O_RDWR), LOCK_EX); }
static long c_semop(void)
{
	struct sembuf b = { 0, -1, 0 };
	return semop(a_semaphore, &b, 1);
}
static long c_semtimedop(void)
{
	struct sembuf b = { 1, -1, 0 };
	return semtimedop(a_semaphore, &b, 1, &lasts);
}
static long c_msgrcv(void) { struct { long type; char text[8]; } m; return msgrcv(a_queue, &m, 8, 0, 0); }
static long c_fifo(void) { return open("/tmp/fifo", O_RDONLY) >= 0 ? 1 : -1; }
static void caught(int number) { (void)number; }
static long c_pause(void)
{
	signal(SIGUSR1, caught);
	return syscall(SYS_pause);
}

/* The name of each, and what it returns undisturbed. */
static const struct waits {
	const char *name;
	long (*call)(void);
	long result;
	int error;
} all[] = {
	{ "nanosleep", c_nanosleep, 0, 0 },
	{ "clock_nanosleep, for a time", c_clock_nanosleep, 0, 0 },
	{ "clock_nanosleep, until a time", c_absolute, 0, 0 },
	{ "poll with a timeout", c_poll, 0, 0 },
	{ "ppoll with a timeout", c_ppoll, 0, 0 },
	{ "select with a timeout", c_select, 0, 0 },
	{ "epoll_wait with a timeout", c_epoll_wait, 0, 0 },
	{ "futex with a timeout", c_futex_timed, -1, ETIMEDOUT },
	{ "futex", c_futex, 0, 0 },
	{ "rt_sigtimedwait", c_sigtimedwait, -1, EAGAIN },
	{ "pause, until a handler has run", c_pause, -1, EINTR },
	{ "read of a pipe", c_read_pipe, 1, 0 },
	{ "read of a socket", c_read_socket, 1, 0 },
	{ "recv with SO_RCVTIMEO", c_read_timed, -1, EAGAIN },
	{ "read of an eventfd", c_read_event, 8, 0 },
	{ "accept", c_accept, 1, 0 },
	{ "open of a FIFO", c_fifo, 1, 0 },
	{ "flock", c_flock, 0, 0 },
	{ "wait4", c_wait4, 1, 0 },
	{ "semop", c_semop, 0, 0 },
	{ "semtimedop", c_semtimedop, -1, EAGAIN },
	{ "msgrcv", c_msgrcv, 4, 0 },
};
enum { ALL = sizeof all / sizeof all[0] };

static const char *name_of(int error)
{
	return error == 0 ? "0" : strerrorname_np(error);
}

/* Starts a process per call, which writes what the call returned. */
static int calls(const char *out, const char *file)
{
	pid_t pids[ALL];
	int left = 0;
	unlink(out);
	unlink("/tmp/listens");
	unlink("/tmp/fifo");
	mkfifo("/tmp/fifo", 0600);
	close(open("/tmp/locked", O_CREAT | O_RDWR, 0600));
	a_lock = open("/tmp/locked", O_RDWR);
	flock(a_lock, LOCK_EX);
	words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pipe(a_pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, a_pair))
		return 2;
	an_event = eventfd(0, 0);
	a_semaphore = semget(IPC_PRIVATE, 2, 0600);
	a_queue = msgget(IPC_PRIVATE, 0600);
	began = now();
	for (int i = 0; i < ALL; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(a_lock);
			began = now();
			errno = 0;
			long result = all[i].call();
			int error = result < 0 ? errno : 0;
			int early = now() - began < LASTS - 20;
			const char *word = result == all[i].result && error == all[i].error && !early ? "right" : "wrong";
			char line[200];
			int length = snprintf(line, sizeof line, "call %s: %s, %ld %s%s\n", all[i].name, word, result,
					      name_of(error), early ? ", early" : "");
			int to = open(out, O_CREAT | O_WRONLY | O_APPEND, 0600);
			_exit(write(to, line, length) != length);
		}
		left++;
	}
	usleep(300000);
	ready(file);
	/* Awake all the time: a sleep here could be interrupted as well. */
	while (now() < began + WAKES + 500)
		usleep(20000);
	words[1] = 1;
	syscall(SYS_futex, &words[1], FUTEX_WAKE, 1);
	if (write(a_pipe[1], "x", 1) != 1 || write(a_pair[1], "x", 1) != 1 || eventfd_write(an_event, 1))
		return 3;
	struct sockaddr_un a = { AF_UNIX, "/tmp/listens" };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(s, (void *)&a, sizeof a))
		perror("connect");
	if (fork() == 0) {
		/* There may be no reader left. */
		alarm(1);
		_exit(open("/tmp/fifo", O_WRONLY) < 0);
	}
	left++;
	close(a_lock);
	struct sembuf b = { 0, 1, IPC_NOWAIT };
	semop(a_semaphore, &b, 1);
	struct { long type; char text[4]; } m = { 1, "mes" };
	msgsnd(a_queue, &m, 4, IPC_NOWAIT);
	for (int i = 0; i < ALL; i++)
		if (all[i].call == c_pause)
			kill(pids[i], SIGUSR1);
	int64_t end = now() + 1500;
	while (left > 0 && now() < end) {
		while (left > 0 && waitpid(-1, NULL, WNOHANG) > 0)
			left--;
		usleep(20000);
	}
	for (int i = 0; i < ALL; i++)
		kill(pids[i], SIGKILL);
	semctl(a_semaphore, 0, IPC_RMID);
	msgctl(a_queue, IPC_RMID, NULL);
	int to = open(out, O_CREAT | O_WRONLY | O_APPEND, 0600);
	return write(to, "end\n", 4) != 4;
}

/* ---- states that a checkpointer may refuse ---- */

enum { PORT = 7000 };

static int fail(const char *what)
{
	perror(what);
	return 3;
}

/* A TCP socket that listens. */
static int listens(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	return bind(s, (void *)&a, sizeof a) || listen(s, 4) ? -1 : s;
}

static int connects(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	return connect(s, (void *)&a, sizeof a) ? -1 : s;
}

/* A file that is open and has no name. */
static int unlinked(size_t bytes)
{
	char *content = calloc(1, bytes);
	int fd = open("/tmp/unlinked", O_CREAT | O_RDWR, 0600);
	if (fd < 0 || write(fd, content, bytes) != (ssize_t)bytes || unlink("/tmp/unlinked"))
		return -1;
	return fd;
}

static int state(const char *kind, const char *file)
{
#define IS(name) (strcmp(kind, name) == 0)
	if (IS("tracer")) {
		pid_t child = fork();
		if (child == 0)
			sleep_for_ever();
		if (ptrace(PTRACE_ATTACH, child, 0, 0) || waitpid(child, NULL, 0) < 0)
			return fail(kind);
	} else if (IS("terminal")) {
		/* The saved process has the terminal; its master stays with this process. */
		int master = posix_openpt(O_RDWR | O_NOCTTY);
		if (grantpt(master) || unlockpt(master))
			return fail(kind);
		if (fork() > 0)
			sleep_for_ever();
		setsid();
		int slave = open(ptsname(master), O_RDWR);
		if (ioctl(slave, TIOCSCTTY, 0))
			return fail(kind);
		close(master);
		for (int fd = 0; fd < 3; fd++)
			dup2(slave, fd);
		close(slave);
	} else if (IS("vfork")) {
		ready(file);
		if (vfork() == 0)
			for (;;)
				pause();
	} else if (IS("serve")) {
		int s = listens(PORT);
		ready(file);
		while (s >= 0)
			accept(s, NULL, NULL);
	} else if (IS("tcp-listens")) {
		if (listens(PORT + 1) < 0)
			return fail(kind);
	} else if (IS("tcp-inside")) {
		int s = listens(PORT + 2);
		if (connects(PORT + 2) < 0 || accept(s, NULL, NULL) < 0)
			return fail(kind);
	} else if (IS("tcp-outside")) {
		if (connects(PORT) < 0)
			return fail(kind);
	} else if (IS("unlinked-small") || IS("unlinked-large")) {
		if (unlinked(IS("unlinked-small") ? 1000 : 2000000) < 0)
			return fail(kind);
	} else if (IS("removed-directory")) {
		mkdir("/tmp/removed", 0700);
		if (chdir("/tmp/removed") || rmdir("/tmp/removed"))
			return fail(kind);
	} else if (IS("flock")) {
		if (flock(open("/tmp/lock", O_CREAT | O_RDWR, 0600), LOCK_EX))
			return fail(kind);
	} else if (IS("sysv-memory")) {
		if (shmat(shmget(IPC_PRIVATE, 4096, 0600), NULL, 0) == (void *)-1)
			return fail(kind);
	} else if (IS("memfd")) {
		if (ftruncate(memfd_create("m", 0), 4096))
			return fail(kind);
	} else if (IS("timerfd")) {
		struct itimerspec t = { { 1, 0 }, { 1, 0 } };
		if (timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, &t, NULL))
			return fail(kind);
	} else if (IS("signalfd")) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		if (signalfd(-1, &set, 0) < 0)
			return fail(kind);
	} else if (IS("inotify")) {
		if (inotify_add_watch(inotify_init1(0), "/tmp", IN_CREATE) < 0)
			return fail(kind);
	} else if (IS("io_uring")) {
		struct io_uring_params p = { 0 };
		if (syscall(SYS_io_uring_setup, 4, &p) < 0)
			return fail(kind);
	} else if (IS("userfaultfd")) {
		if (syscall(SYS_userfaultfd, 1) < 0)
			return fail(kind);
	} else if (IS("kernel-asynchronous")) {
		unsigned long context = 0;
		if (syscall(SYS_io_setup, 4, &context) < 0)
			return fail(kind);
	}
#undef IS
	ready(file);
	sleep_for_ever();
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	if (strcmp(what, "measured") == 0 && count > 2)
		return measured(words + 2);
	if (count != 4)
		return 2;
	if (strcmp(what, "hold") == 0)
		hold(strtoull(words[2], NULL, 10), words[3]);
	if (strcmp(what, "calls") == 0)
		return calls(words[2], words[3]);
	if (strcmp(what, "state") == 0)
		return state(words[2], words[3]);
	return 2;
}
