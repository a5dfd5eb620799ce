/* Sockets that reach other machines. world WHAT ...: one thing for each scenario that needs it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *name_of(int error)
{
	return error ? strerrorname_np(error) : "0";
}

static void fail(const char *what)
{
	printf("%s: %s\n", what, name_of(errno));
	exit(1);
}

/* An address of either family. */
static socklen_t address(struct sockaddr_storage *to, const char *text, const char *port)
{
	struct sockaddr_in *four = (void *)to;
	struct sockaddr_in6 *six = (void *)to;
	memset(to, 0, sizeof *to);
	if (strchr(text, ':')) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(atoi(port));
		inet_pton(AF_INET6, text, &six->sin6_addr);
		return sizeof *six;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(atoi(port));
	inet_pton(AF_INET, text, &four->sin_addr);
	return sizeof *four;
}

static void show(const char *what, struct sockaddr_storage *of, int with_port)
{
	char text[64];
	struct sockaddr_in *four = (void *)of;
	struct sockaddr_in6 *six = (void *)of;
	if (of->ss_family == AF_INET6)
		inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
	else
		inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
	if (with_port)
		fprintf(stderr, "%s %s %d\n", what, text, ntohs(four->sin_port));
	else
		fprintf(stderr, "%s %s\n", what, text);
}

static void names(int fd)
{
	struct sockaddr_storage own, other;
	socklen_t length = sizeof own;
	if (getsockname(fd, (void *)&own, &length))
		fail("getsockname");
	show("from", &own, 0);
	length = sizeof other;
	if (getpeername(fd, (void *)&other, &length))
		fail("getpeername");
	show("to", &other, 1);
}

/* A connection, made without waiting; again as long as it is refused. */
static int make(const char *host, const char *port)
{
	for (int n = 0; n < 600; n++) {
		struct sockaddr_storage to;
		socklen_t length = address(&to, host, port);
		int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(fd, (void *)&to, length) == 0)
			return fd;
		if (errno != EINPROGRESS && errno != ECONNREFUSED)
			fail("connect");
		/* It may be refused at once. */
		if (errno == ECONNREFUSED) {
			close(fd);
			usleep(100000);
			continue;
		}
		struct pollfd poll_it = {fd, POLLOUT, 0};
		if (poll(&poll_it, 1, -1) != 1)
			fail("poll");
		int error = -1;
		socklen_t size = sizeof error;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error == 0)
			return fd;
		if (error != ECONNREFUSED) {
			errno = error;
			fail("SO_ERROR");
		}
		close(fd);
		usleep(100000);
	}
	fail("nobody listens");
	return -1;
}

/* Both ways at the same time: standard input to the connection, the connection to standard output, with select. */
static void carry(int fd)
{
	static char out[20000], in[20000];
	size_t left = 0, at = 0;
	int ended = 0, shut = 0;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (!ended || !shut) {
		if (left == 0 && !shut) {
			ssize_t count = read(0, out, sizeof out);
			at = 0;
			left = count > 0 ? count : 0;
			if (left == 0) {
				shutdown(fd, SHUT_WR);
				shut = 1;
				continue;
			}
		}
		fd_set readable, writable;
		FD_ZERO(&readable);
		FD_ZERO(&writable);
		if (!ended)
			FD_SET(fd, &readable);
		if (left)
			FD_SET(fd, &writable);
		if (select(fd + 1, &readable, &writable, NULL, NULL) < 1)
			fail("select");
		if (FD_ISSET(fd, &readable)) {
			ssize_t count = read(fd, in, sizeof in);
			if (count < 0)
				fail("read");
			ended = count == 0;
			for (ssize_t done = 0; done < count;)
				done += write(1, in + done, count - done);
		}
		if (FD_ISSET(fd, &writable)) {
			ssize_t count = write(fd, out + at, left);
			if (count < 0 && errno != EAGAIN)
				fail("write");
			if (count > 0)
				at += count, left -= count;
		}
	}
}

static int listen_at(const char *host, const char *port, int style)
{
	struct sockaddr_storage at;
	socklen_t length = address(&at, host, port);
	int fd = socket(at.ss_family, style, 0);
	int one = 1;
	if (style == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (void *)&at, length))
		fail("bind");
	if (style == SOCK_STREAM && listen(fd, 8))
		fail("listen");
	return fd;
}

/* Sends back what comes, over so many connections, to whom epoll leads. */
static void echo(int listening, int count)
{
	static char bytes[8192];
	struct epoll_event event = {EPOLLIN, {.fd = listening}};
	int all = epoll_create1(0), open = 0;
	epoll_ctl(all, EPOLL_CTL_ADD, listening, &event);
	while (count > 0 || open > 0) {
		if (epoll_wait(all, &event, 1, -1) != 1)
			fail("epoll_wait");
		if (event.data.fd == listening) {
			int fd = accept4(listening, NULL, NULL, 0);
			if (fd < 0)
				fail("accept");
			event.events = EPOLLIN;
			event.data.fd = fd;
			epoll_ctl(all, EPOLL_CTL_ADD, fd, &event);
			open++;
			if (--count == 0)
				close(listening);
			continue;
		}
		ssize_t length = read(event.data.fd, bytes, sizeof bytes);
		if (length <= 0) {
			close(event.data.fd);
			open--;
			continue;
		}
		for (ssize_t done = 0; done < length;)
			done += write(event.data.fd, bytes + done, length - done);
	}
}

/* What an errno says of a connection to there, with and without waiting, and of a datagram. */
static void errors(const char *host, const char *port)
{
	struct sockaddr_storage to;
	socklen_t length = address(&to, host, port);
	int fd = socket(to.ss_family, SOCK_STREAM, 0);
	printf("connect %s\n", name_of(connect(fd, (void *)&to, length) ? errno : 0));
	fd = socket(to.ss_family, SOCK_DGRAM, 0);
	int sent = sendto(fd, "x", 1, 0, (void *)&to, length);
	printf("sendto %s\n", name_of(sent < 0 ? errno : 0));
	printf("connect %s\n", name_of(connect(fd, (void *)&to, length) ? errno : 0));
}

/* As many sockets outside as there can be, and then a connection within. */
static void many(void)
{
	int made = 0;
	struct sockaddr_storage to;
	socklen_t length = address(&to, "0.0.0.0", "0");
	listen_at("127.0.0.1", "99", SOCK_STREAM);
	for (;;) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		if (bind(fd, (void *)&to, length))
			break;
		made++;
	}
	printf("%d datagram sockets, then %s\n", made, name_of(errno));
	made = 0;
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(fd, (void *)&to, length))
			break;
		made++;
	}
	printf("%d more, then %s\n", made, name_of(errno));
	length = address(&to, "127.0.0.1", "99");
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	printf("within: %s\n", name_of(connect(fd, (void *)&to, length) ? errno : 0));
	fflush(stdout);
	pause();
}

/* Asks with datagrams until each was answered, and says what was. */
static void ask(const char *host, const char *port, int count)
{
	struct sockaddr_storage to;
	socklen_t length = address(&to, host, port);
	int fd = socket(to.ss_family, SOCK_DGRAM, 0);
	if (connect(fd, (void *)&to, length))
		fail("connect");
	for (int n = 0; n < count;) {
		char question[32], answer[64];
		sprintf(question, "question %d", n);
		send(fd, question, strlen(question), 0);
		struct pollfd poll_it = {fd, POLLIN, 0};
		if (poll(&poll_it, 1, 1000) != 1)
			continue;
		ssize_t got = recv(fd, answer, sizeof answer - 1, 0);
		if (got < 0)
			continue;
		answer[got] = 0;
		if (strcmp(question, answer) == 0)
			n++;
	}
	names(fd);
}

static void answer(const char *port)
{
	int fd = listen_at("::", port, SOCK_DGRAM);
	for (;;) {
		char bytes[2000];
		struct sockaddr_storage from;
		socklen_t length = sizeof from;
		ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&from, &length);
		if (got < 0)
			fail("recvfrom");
		if (got == 0)
			return;
		sendto(fd, bytes, got, 0, (void *)&from, length);
	}
}

/* Answers questions for names: every name has this address of IPv4, and none of IPv6. */
static void know(const char *host)
{
	int fd = listen_at("0.0.0.0", "53", SOCK_DGRAM);
	for (;;) {
		unsigned char bytes[600];
		struct sockaddr_storage from;
		socklen_t length = sizeof from;
		ssize_t got = recvfrom(fd, bytes, 512, 0, (void *)&from, &length);
		if (got < 17)
			continue;
		/* Behind the name: its kind and class. What may follow is left out. */
		int end = 12;
		while (end < got && bytes[end])
			end += bytes[end] + 1;
		end += 5;
		if (end > got)
			continue;
		int four = bytes[end - 4] == 0 && bytes[end - 3] == 1;
		bytes[2] = 0x81, bytes[3] = 0x80;
		memcpy(bytes + 4, "\0\1\0\0\0\0\0\0", 8);
		bytes[7] = four;
		if (four) {
			memcpy(bytes + end, "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4", 12);
			inet_pton(AF_INET, host, bytes + end + 12);
			end += 16;
		}
		sendto(fd, bytes, end, 0, (void *)&from, length);
	}
}

/* Writes to so many connections that come as much as goes, closes all of them, and makes the file. */
static void leave(const char *port, int count, const char *file)
{
	static char piece[4096];
	int listening = listen_at("::", port, SOCK_STREAM), all[64];
	long total = 0, before = -1;
	for (int n = 0; n < count; n++) {
		all[n] = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
		if (all[n] < 0)
			fail("accept");
	}
	while (total != before) {
		before = total;
		for (int n = 0; n < count; n++)
			for (ssize_t sent; (sent = write(all[n], piece, sizeof piece)) > 0;)
				total += sent;
		sleep(1);
	}
	for (int n = 0; n < count; n++)
		close(all[n]);
	int done = open(file, O_CREAT | O_WRONLY, 0644);
	dprintf(done, "%ld bytes\n", total);
}

/* Reads each of so many connections to its end, from so many seconds after the file is there on: how many have one, and
   whether all came that the file says. */
static void late(char **argv)
{
	static char piece[4096];
	int count = atoi(argv[4]), all[64], ends = 0, resets = 0;
	long total = 0, left = -1;
	for (int n = 0; n < count; n++) {
		all[n] = make(argv[2], argv[3]);
		fcntl(all[n], F_SETFL, 0);
	}
	FILE *file;
	while (!(file = fopen(argv[5], "r")) || fscanf(file, "%ld bytes", &left) != 1) {
		if (file)
			fclose(file);
		usleep(100000);
	}
	sleep(atoi(argv[6]));
	for (int n = 0; n < count; n++) {
		ssize_t got;
		while ((got = read(all[n], piece, sizeof piece)) > 0)
			total += got;
		ends += got == 0;
		resets += got < 0 && errno == ECONNRESET;
	}
	printf("%d ends, %d resets, %s\n", ends, resets, total == left ? "all" : total > 0 && total < left ? "some" : "?");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(what, "connect")) {
		int fd = make(argv[2], argv[3]);
		names(fd);
		carry(fd);
	} else if (!strcmp(what, "accept")) {
		int listening = listen_at(argv[2], argv[3], SOCK_STREAM);
		int fd = accept(listening, NULL, NULL);
		if (fd < 0)
			fail("accept");
		close(listening);
		carry(fd);
	} else if (!strcmp(what, "echo"))
		echo(listen_at("::", argv[2], SOCK_STREAM), atoi(argv[3]));
	else if (!strcmp(what, "errors"))
		errors(argv[2], argv[3]);
	else if (!strcmp(what, "many"))
		many();
	else if (!strcmp(what, "ask"))
		ask(argv[2], argv[3], atoi(argv[4]));
	else if (!strcmp(what, "answer"))
		answer(argv[2]);
	else if (!strcmp(what, "know"))
		know(argv[2]);
	else if (!strcmp(what, "leave"))
		leave(argv[2], atoi(argv[3]), argv[4]);
	else if (!strcmp(what, "late"))
		late(argv);
	else if (!strcmp(what, "hold")) {
		/* A connection over which nothing goes. What comes of it is said. */
		int fd = make(argv[2], argv[3]);
		names(fd);
		fcntl(fd, F_SETFL, 0);
		char byte;
		int got = read(fd, &byte, 1);
		printf("read %d %s\n", got, name_of(got < 0 ? errno : 0));
	} else if (!strcmp(what, "fill")) {
		/* Writes as long as it goes without waiting. */
		int fd = make(argv[2], argv[3]);
		static char bytes[4096];
		long sent = 0;
		for (;;) {
			ssize_t count = write(fd, bytes, sizeof bytes);
			if (count > 0) {
				sent += count;
				continue;
			}
			struct pollfd poll_it = {fd, POLLOUT, 0};
			if (poll(&poll_it, 1, 3000) == 0)
				break;
		}
		printf("%s\n", sent > 60000 && sent < 400000 ? "held up" : "not held up");
		fflush(stdout);
		pause();
	} else
		return 2;
	return 0;
}
