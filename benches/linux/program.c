/*
 * The program that runs in Debian's Linux and, as a Linux program, in Fermata, for docs/linux-costs.md:
 * `./fermata bench --beside-linux` compiles it for both.
 *
 *   rows                       the names of all rows of calls
 *   row NAME                   makes the calls of a row again and again: once to warm up, once marked for tools/count
 *   whole NAME OUT COMMAND...  runs a command with OUT for its output, and marks its instructions
 *   tree DIRECTORY             makes ten directories there with twenty files each
 *
 * `row` and `whole` print `measured NAME REPETITIONS STATUS` when they are done, after the marks. Unless the status
 * is 0 the row has no number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../marks.h"

enum { PAGE = 4096, MEGABYTE = 1 << 20, MAPPED = 16 * PAGE, FILES = 100, WRITES = 16 };

/* In a directory in memory on both systems. */
#define FILE_OF_64K "/tmp/of-64k"
#define FILE_OF_1M "/tmp/of-1m"
#define HUNDRED "/tmp/hundred"

static int fd, fds[WRITES];
static int to_peer[2], from_peer[2];
static pid_t peer, self;
static char *buffer;
static volatile long caught;
static uint32_t turn;

/* A row that fails has no number: a message says why, and the status is not 0. */
static void must(int holds, const char *what)
{
	if (__builtin_expect(!holds, 0)) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		_exit(3);
	}
}

/* Lets the console take earlier output, and the kernel do deferred work, so that neither is counted here. */
static void settled(void)
{
	usleep(300000);
}

static int opened(const char *path, int flags)
{
	int found = open(path, flags, 0600);
	must(found >= 0, path);
	return found;
}

static int made(const char *path, size_t bytes)
{
	int file = opened(path, O_CREAT | O_TRUNC | O_RDWR);
	must(write(file, buffer, bytes) == (ssize_t)bytes, path);
	return file;
}

/* ---- one thread ---- */

/* No call: both systems must count the same. */
static void user_loop(long n)
{
	while (n-- > 0)
		for (int i = 0; i < 1000; i++)
			__asm__ volatile("");
}

static void getppid_loop(long n)
{
	while (n-- > 0)
		must(getppid() > 0, "getppid");
}

static void clock_loop(long n)
{
	struct timespec t;
	while (n-- > 0)
		must(clock_gettime(CLOCK_MONOTONIC, &t) == 0, "clock_gettime");
}

static void small_file(void) { fd = made(FILE_OF_64K, 16 * PAGE); }
static void large_file(void) { fd = made(FILE_OF_1M, MEGABYTE); }

static void lseek_loop(long n)
{
	while (n-- > 0)
		must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
}

static void null_file(void) { fd = opened("/dev/null", O_WRONLY); }

static void write_null_loop(long n)
{
	while (n-- > 0)
		must(write(fd, buffer, 1) == 1, "write");
}

static void pread_1_loop(long n)
{
	while (n-- > 0)
		must(pread(fd, buffer, 1, 0) == 1, "pread");
}

static void pread_4096_loop(long n)
{
	while (n-- > 0)
		must(pread(fd, buffer, PAGE, 0) == PAGE, "pread");
}

static void pread_1m_loop(long n)
{
	while (n-- > 0)
		must(pread(fd, buffer, MEGABYTE, 0) == MEGABYTE, "pread");
}

/* New files in each pass, so that every write has to allocate memory. */
static void new_files(void)
{
	for (int i = 0; i < WRITES; i++) {
		char path[32];
		snprintf(path, sizeof path, "/tmp/new-%d", i);
		if (fds[i] > 0)
			close(fds[i]);
		unlink(path);
		fds[i] = opened(path, O_CREAT | O_EXCL | O_WRONLY);
	}
}

static void write_1m_loop(long n)
{
	while (n-- > 0)
		must(write(fds[n], buffer, MEGABYTE) == MEGABYTE, "write");
}

static void fstat_loop(long n)
{
	struct stat s;
	while (n-- > 0)
		must(fstat(fd, &s) == 0 && s.st_size == 16 * PAGE, "fstat");
}

static void stat_loop(long n)
{
	struct stat s;
	while (n-- > 0)
		must(stat(FILE_OF_64K, &s) == 0 && s.st_size == 16 * PAGE, "stat");
}

static void open_close_loop(long n)
{
	while (n-- > 0) {
		int file = open(FILE_OF_64K, O_RDONLY);
		must(file >= 0 && close(file) == 0, "open");
	}
}

static void hundred_files(void)
{
	mkdir(HUNDRED, 0700);
	for (int i = 0; i < FILES; i++) {
		char path[64];
		snprintf(path, sizeof path, HUNDRED "/file-%d", i);
		close(opened(path, O_CREAT | O_WRONLY));
	}
	fd = opened(HUNDRED, O_RDONLY | O_DIRECTORY);
}

static void getdents_loop(long n)
{
	while (n-- > 0) {
		long entries = 0, got;
		must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
		while ((got = syscall(SYS_getdents64, fd, buffer, 8 * PAGE)) > 0)
			/* A name of some ten letters: the record's length is its third field. */
			for (long at = 0; at < got; at += *(uint16_t *)(buffer + at + 16))
				entries++;
		must(got == 0 && entries == FILES + 2, "getdents");
	}
}

static void mmap_loop(long n)
{
	while (n-- > 0) {
		char *at = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(at != MAP_FAILED, "mmap");
		for (int i = 0; i < MAPPED; i += PAGE)
			((volatile char *)at)[i] = 1;
		must(munmap(at, MAPPED) == 0, "munmap");
	}
}

static void handler(int number)
{
	(void)number;
	caught++;
}

static void handles(void)
{
	struct sigaction action = { .sa_handler = handler };
	must(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
	self = getpid();
}

static void signal_loop(long n)
{
	long before = caught, all = n;
	while (n-- > 0)
		must(kill(self, SIGUSR1) == 0, "kill");
	must(caught == before + all, "a handler that was not called");
}

/* ---- processes and threads that come and go ---- */

static void ended(pid_t child)
{
	int status = 0;
	must(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "a child");
}

static void fork_loop(long n)
{
	while (n-- > 0) {
		pid_t child = fork();
		if (child == 0)
			_exit(5);
		ended(child);
	}
}

static void vfork_loop(long n)
{
	while (n-- > 0) {
		pid_t child = vfork();
		if (child == 0)
			_exit(5);
		ended(child);
	}
}

static void *nothing(void *argument) { return argument; }

static void thread_loop(long n)
{
	while (n-- > 0) {
		pthread_t thread;
		void *result = NULL;
		must(pthread_create(&thread, NULL, nothing, &fd) == 0, "pthread_create");
		must(pthread_join(thread, &result) == 0 && result == &fd, "pthread_join");
	}
}

/* ---- two that take turns ---- */

/* Another process that answers each message of so many bytes, until it is killed. */
static void answered(size_t bytes)
{
	peer = fork();
	must(peer >= 0, "fork");
	if (peer == 0) {
		char message[8];
		while (read(to_peer[0], message, bytes) == (ssize_t)bytes)
			if (write(from_peer[1], message, bytes) != (ssize_t)bytes)
				break;
		_exit(0);
	}
}

static void both_ways(long n, size_t bytes)
{
	uint64_t message = 1;
	while (n-- > 0)
		must(write(to_peer[1], &message, bytes) == (ssize_t)bytes && read(from_peer[0], &message, bytes) == (ssize_t)bytes,
		     "an answer");
}

static void pipes(void)
{
	must(pipe(to_peer) == 0 && pipe(from_peer) == 0, "pipe");
	answered(1);
}

static void events(void)
{
	to_peer[0] = to_peer[1] = eventfd(0, 0);
	from_peer[0] = from_peer[1] = eventfd(0, 0);
	must(to_peer[0] >= 0 && from_peer[0] >= 0, "eventfd");
	answered(8);
}

static void sockets(void)
{
	int ends[2];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	to_peer[1] = from_peer[0] = ends[0];
	to_peer[0] = from_peer[1] = ends[1];
	answered(1);
}

static void of_a_byte(long n) { both_ways(n, 1); }
static void of_a_word(long n) { both_ways(n, 8); }

static uint32_t now(void) { return __atomic_load_n(&turn, __ATOMIC_ACQUIRE); }

/* Gives the turn to the other, and waits until it comes back. */
static void wait_until(uint32_t mine)
{
	while (now() != mine)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
}

static void give(uint32_t to)
{
	__atomic_store_n(&turn, to, __ATOMIC_RELEASE);
	must(syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0, "futex");
}

static void *second(void *argument)
{
	for (;;) {
		wait_until(1);
		give(0);
	}
	return argument;
}

static void second_thread(void)
{
	pthread_t thread;
	must(pthread_create(&thread, NULL, second, NULL) == 0, "pthread_create");
}

static void futex_loop(long n)
{
	while (n-- > 0) {
		give(1);
		wait_until(0);
	}
}

static void no_setup(void) {}

static const struct row {
	const char *name;
	long operations;
	/* Bytes that the row reads or writes; other rows have no more memory than they need, since `fork` copies it. */
	size_t buffer;
	/* Once, before anything. */
	void (*setup)(void);
	/* Before each pass. */
	void (*before)(void);
	void (*loop)(long operations);
} all[] = {
	{ "user", 5000, 0, no_setup, no_setup, user_loop },
	{ "getppid", 10000, 0, no_setup, no_setup, getppid_loop },
	{ "clock", 10000, 0, no_setup, no_setup, clock_loop },
	{ "lseek", 10000, 16 * PAGE, small_file, no_setup, lseek_loop },
	{ "write_null", 10000, 1, null_file, no_setup, write_null_loop },
	{ "fstat", 10000, 16 * PAGE, small_file, no_setup, fstat_loop },
	{ "stat", 5000, 16 * PAGE, small_file, no_setup, stat_loop },
	{ "open_close", 3000, 16 * PAGE, small_file, no_setup, open_close_loop },
	{ "pread_1", 5000, 16 * PAGE, small_file, no_setup, pread_1_loop },
	{ "pread_4096", 5000, 16 * PAGE, small_file, no_setup, pread_4096_loop },
	{ "pread_1m", 50, MEGABYTE, large_file, no_setup, pread_1m_loop },
	{ "write_1m", WRITES, MEGABYTE, no_setup, new_files, write_1m_loop },
	{ "getdents", 200, 8 * PAGE, hundred_files, no_setup, getdents_loop },
	{ "mmap", 500, 0, no_setup, no_setup, mmap_loop },
	{ "signal", 3000, 0, handles, no_setup, signal_loop },
	{ "pipe", 10000, 0, pipes, no_setup, of_a_byte },
	{ "unix", 10000, 0, sockets, no_setup, of_a_byte },
	{ "eventfd", 10000, 0, events, no_setup, of_a_word },
	{ "futex", 10000, 0, second_thread, no_setup, futex_loop },
	{ "fork", 200, 0, no_setup, no_setup, fork_loop },
	{ "vfork", 500, 0, no_setup, no_setup, vfork_loop },
	{ "thread", 500, 0, no_setup, no_setup, thread_loop },
};
enum { ALL = sizeof all / sizeof all[0] };

static int row(const char *name)
{
	for (int i = 0; i < ALL; i++) {
		const struct row *row = &all[i];
		if (strcmp(row->name, name) != 0)
			continue;
		if (row->buffer > 0) {
			buffer = malloc(row->buffer);
			must(buffer != NULL, "malloc");
			memset(buffer, 'x', row->buffer);
		}
		row->setup();
		row->before();
		settled();
		/* The marked pass follows at once: a scheduler prefers a thread that has slept for a while. */
		row->loop(row->operations);
		row->before();
		BEGIN;
		row->loop(row->operations);
		END;
		if (peer > 0) {
			kill(peer, SIGKILL);
			waitpid(peer, NULL, 0);
		}
		printf("measured %s %ld 0\n", name, row->operations);
		return 0;
	}
	fprintf(stderr, "there is no row %s\n", name);
	return 2;
}

/* ---- whole programs ---- */

/* Runs a command, which is measured from its start to its end. */
static int whole(const char *name, const char *out, char **command)
{
	int status = 0, said = dup(1), file = opened(out, O_CREAT | O_TRUNC | O_WRONLY);
	must(dup2(file, 1) == 1, "dup2");
	close(file);
	settled();
	BEGIN;
	pid_t child = vfork();
	if (child == 0) {
		close(said);
		execv(command[0], command);
		_exit(127);
	}
	waitpid(child, &status, 0);
	END;
	must(dup2(said, 1) == 1, "dup2");
	printf("measured %s 1 %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : 126);
	return 0;
}

/* Makes ten directories with twenty files each, with times that do not depend on when this runs. */
static int tree(const char *at)
{
	static const struct timespec times[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
	char path[256], text[2000];
	mkdir(at, 0755);
	for (int i = 0; i < 10; i++) {
		snprintf(path, sizeof path, "%s/directory-%d", at, i);
		mkdir(path, 0755);
		for (int j = 0; j < 20; j++) {
			snprintf(path, sizeof path, "%s/directory-%d/file-%d", at, i, j);
			memset(text, 'a' + j, sizeof text);
			int file = opened(path, O_CREAT | O_TRUNC | O_WRONLY);
			must(write(file, text, sizeof text) == sizeof text && futimens(file, times) == 0, path);
			close(file);
		}
		snprintf(path, sizeof path, "%s/directory-%d", at, i);
		must(utimensat(AT_FDCWD, path, times, 0) == 0, path);
	}
	must(utimensat(AT_FDCWD, at, times, 0) == 0, at);
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	if (strcmp(what, "rows") == 0 && count == 2) {
		for (int i = 0; i < ALL; i++)
			puts(all[i].name);
		return 0;
	}
	if (strcmp(what, "row") == 0 && count == 3)
		return row(words[2]);
	if (strcmp(what, "whole") == 0 && count > 4)
		return whole(words[2], words[3], words + 4);
	if (strcmp(what, "tree") == 0 && count == 3)
		return tree(words[2]);
	return 2;
}
