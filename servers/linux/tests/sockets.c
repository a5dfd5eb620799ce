/* Sockets: what it prints must be the same on Linux and on Fermata. `one` is a single process that never waits; `many` has
   processes that talk. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static long checked(long result) { return result < 0 ? -errno : result; }
#define SHOW(call) printf("%s = %ld\n", #call, checked((long)(call)))
#define TRUE(condition) printf("%s %s\n", (condition) ? "yes:" : "NO:", #condition)

static int ready(int fd) {
    struct pollfd fds = {fd, POLLIN | POLLOUT | POLLRDHUP};
    poll(&fds, 1, 0);
    return fds.revents;
}

static char buffer[200000];

static struct sockaddr_un path(const char *name) {
    struct sockaddr_un address = {AF_UNIX};
    strcpy(address.sun_path, name);
    return address;
}

static socklen_t hidden(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path + 1, name);
    return 3 + strlen(name);
}

static struct sockaddr_in here(int port) {
    struct sockaddr_in address = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}};
    return address;
}

static int option(int fd, int level, int number) {
    int value = -1;
    socklen_t length = sizeof value;
    if (getsockopt(fd, level, number, &value, &length) < 0) return -errno;
    return value;
}

static int set(int fd, int level, int number, int value) {
    return checked(setsockopt(fd, level, number, &value, sizeof value));
}

/* Sends bytes with a descriptor, or several. */
static ssize_t give(int fd, const char *bytes, int *fds, int count) {
    char control[CMSG_SPACE(10 * sizeof(int))];
    struct iovec vector = {(void *)bytes, strlen(bytes)};
    struct msghdr message = {0, 0, &vector, 1, control, CMSG_SPACE(count * sizeof(int)), 0};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    return checked(sendmsg(fd, &message, MSG_NOSIGNAL));
}

/* Receives bytes and what comes with them, and says what it is. */
static int take(int fd, int room, int flags) {
    char control[256] = {0};
    int got = -1;
    memset(buffer, 0, 100);
    struct iovec vector = {buffer, 99};
    struct msghdr message = {0, 0, &vector, 1, control, room, 0};
    long n = checked(recvmsg(fd, &message, flags));
    printf("  took %ld '%s' flags %x control %ld:", n, n > 0 ? buffer : "", message.msg_flags, (long)message.msg_controllen);
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        printf(" level %d type %d length %ld", head->cmsg_level, head->cmsg_type, (long)head->cmsg_len);
        if (head->cmsg_type == SCM_RIGHTS) {
            int count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (int i = 0; i < count; i++) {
                if (got >= 0) close(got);
                memcpy(&got, CMSG_DATA(head) + i * sizeof(int), sizeof got);
                printf(" cloexec %d", fcntl(got, F_GETFD));
            }
        } else {
            struct ucred *who = (void *)CMSG_DATA(head);
            printf(" %d %d %d", who->pid == getpid(), who->uid == getuid(), who->gid == getgid());
        }
        break;
    }
    puts("");
    return got;
}

static void pairs(void) {
    puts("-- pairs");
    int s[2], d[2], q[2];
    SHOW(socketpair(AF_INET, SOCK_STREAM, 0, s));
    SHOW(socketpair(AF_UNIX, SOCK_RDM, 0, s));
    SHOW(socketpair(AF_UNIX, 77, 0, s));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 6, s));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, (void *)8));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s));
    SHOW(fcntl(s[1], F_GETFD) << 16 | fcntl(s[1], F_GETFL));
    SHOW(ready(s[0]));
    SHOW(read(s[0], buffer, 10));
    SHOW(write(s[0], "hello", 5));
    SHOW(send(s[0], " there", 6, 0));
    SHOW(ready(s[1]));
    int left;
    ioctl(s[1], FIONREAD, &left);
    SHOW(left);
    SHOW(recv(s[1], buffer, 4, MSG_PEEK));
    SHOW(recv(s[1], buffer, 100, MSG_WAITALL | MSG_PEEK));
    struct iovec vectors[3] = {{buffer, 3}, {buffer + 50, 0}, {buffer + 3, 90}};
    SHOW(readv(s[1], vectors, 3));
    printf("%.11s\n", buffer);
    SHOW(read(s[1], buffer, 0));
    SHOW(write(s[1], buffer, 0));
    SHOW(lseek(s[0], 0, SEEK_SET));
    SHOW(pread(s[0], buffer, 1, 0));
    long total = 0, n;
    while ((n = write(s[0], buffer, 7000)) > 0) total += n;
    TRUE(n < 0 && errno == EAGAIN && total > 20000);
    SHOW(ready(s[0]));
    long back = 0;
    while ((n = read(s[1], buffer, 9999)) > 0) back += n;
    TRUE(back == total);
    SHOW(ready(s[0]));
    SHOW(shutdown(s[0], 3));
    SHOW(shutdown(s[0], SHUT_WR));
    SHOW(ready(s[0]));
    SHOW(ready(s[1]));
    SHOW(read(s[1], buffer, 10));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(write(s[1], "back", 4));
    SHOW(read(s[0], buffer, 10));
    write(s[1], "unread", 6);
    SHOW(shutdown(s[1], SHUT_RDWR));
    SHOW(ready(s[0]));
    close(s[0]);
    SHOW(read(s[1], buffer, 10));
    SHOW(ready(s[1]));
    close(s[1]);
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    write(s[1], "lost", 4), write(s[0], "unread", 6);
    close(s[1]);
    SHOW(ready(s[0]));
    SHOW(read(s[0], buffer, 10));
    SHOW(read(s[0], buffer, 10));
    SHOW(read(s[0], buffer, 10));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(option(s[0], SOL_SOCKET, SO_ERROR));
    close(s[0]);
    puts("datagrams");
    SHOW(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, d));
    SHOW(write(d[0], "first", 5));
    SHOW(write(d[0], "", 0));
    SHOW(write(d[0], "third one", 9));
    SHOW(ready(d[1]));
    SHOW(recv(d[1], buffer, 3, MSG_TRUNC | MSG_PEEK));
    SHOW(read(d[1], buffer, 3));
    SHOW(read(d[1], buffer, 3));
    SHOW(take(d[1], 0, 0));
    SHOW(read(d[1], buffer, 3));
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
    SHOW(writev(d[1], parts, 2));
    struct iovec small = {buffer, 2};
    struct msghdr message = {0, 0, &small, 1, 0, 0, 0};
    SHOW(recvmsg(d[0], &message, 0));
    SHOW(message.msg_flags);
    close(d[0]);
    SHOW(ready(d[1]));
    SHOW(send(d[1], "x", 1, MSG_NOSIGNAL));
    SHOW(read(d[1], buffer, 3));
    close(d[1]);
    puts("packets");
    SHOW(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, q));
    SHOW(write(q[0], "first", 5));
    SHOW(write(q[0], "second", 6));
    SHOW(read(q[1], buffer, 2));
    SHOW(read(q[1], buffer, 20));
    SHOW(read(q[1], buffer, 20));
    close(q[0]);
    SHOW(ready(q[1]));
    SHOW(read(q[1], buffer, 20));
    SHOW(send(q[1], "x", 1, MSG_NOSIGNAL));
    close(q[1]);
}

static void paths(void) {
    puts("-- paths");
    struct sockaddr_un where = path("socket"), got, none = path("nobody");
    socklen_t length = sizeof where, size = sizeof got;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(ready(client));
    SHOW(read(client, buffer, 1));
    SHOW(send(client, "x", 1, MSG_NOSIGNAL));
    SHOW(listen(client, 3));
    SHOW(accept(client, 0, 0));
    SHOW(getpeername(client, (void *)&got, &size));
    SHOW(getsockname(client, (void *)&got, &size));
    SHOW(size);
    SHOW(connect(client, (void *)&none, length));
    SHOW(bind(listener, (void *)&where, length));
    SHOW(bind(listener, (void *)&where, length));
    SHOW(bind(client, (void *)&where, length));
    SHOW(bind(client, (void *)&where, 200));
    SHOW(bind(client, (void *)&where, 1));
    struct stat status;
    SHOW(stat("socket", &status));
    SHOW(status.st_mode);
    SHOW(status.st_size);
    SHOW(open("socket", O_RDWR));
    SHOW(connect(client, (void *)&where, length));
    SHOW(listen(listener, 1));
    SHOW(listen(listener, 1));
    SHOW(option(listener, SOL_SOCKET, SO_ACCEPTCONN));
    SHOW(ready(listener));
    SHOW(accept(listener, 0, 0));
    SHOW(connect(client, (void *)&where, length));
    SHOW(connect(client, (void *)&where, length));
    SHOW(ready(listener));
    SHOW(ready(client));
    SHOW(write(client, "early", 5));
    int second = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), third = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(second, (void *)&where, length));
    SHOW(connect(third, (void *)&where, length));
    int wrong = socket(AF_UNIX, SOCK_DGRAM, 0);
    SHOW(connect(wrong, (void *)&where, length));
    close(wrong);
    size = sizeof got;
    int end = accept4(listener, (void *)&got, &size, SOCK_CLOEXEC);
    SHOW(size);
    SHOW(fcntl(end, F_GETFD) << 16 | fcntl(end, F_GETFL));
    SHOW(read(end, buffer, 10));
    size = sizeof got;
    SHOW(getsockname(end, (void *)&got, &size));
    SHOW(size), puts(got.sun_path);
    size = 5;
    SHOW(getpeername(client, (void *)&got, &size));
    SHOW(size);
    struct ucred who;
    size = sizeof who;
    SHOW(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &size));
    TRUE(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    SHOW(connect(third, (void *)&where, length));
    close(second);
    int waiting = accept(listener, 0, 0);
    SHOW(read(waiting, buffer, 10));
    close(waiting);
    close(listener);
    SHOW(ready(third));
    SHOW(read(third, buffer, 10));
    SHOW(connect(second = socket(AF_UNIX, SOCK_STREAM, 0), (void *)&where, length));
    SHOW(unlink("socket"));
    SHOW(connect(second, (void *)&where, length));
    SHOW(stat("socket", &status));
    close(client), close(end), close(second), close(third);
    puts("names that are no paths");
    int one = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), other = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_un name;
    length = hidden(&name, "fermata-test");
    SHOW(bind(one, (void *)&name, length));
    SHOW(bind(other, (void *)&name, length));
    SHOW(sendto(other, "to one", 6, 0, (void *)&name, length));
    size = sizeof got;
    SHOW(recvfrom(one, buffer, 100, 0, (void *)&got, &size));
    SHOW(size);
    got.sun_family = AF_UNIX;
    SHOW(bind(other, (void *)&got, 2));
    size = sizeof got;
    SHOW(getsockname(other, (void *)&got, &size));
    SHOW(size);
    SHOW(sendto(other, "again", 5, 0, (void *)&name, length));
    size = sizeof got;
    SHOW(recvfrom(one, buffer, 100, 0, (void *)&got, &size));
    SHOW(sendto(one, "back", 4, 0, (void *)&got, size));
    SHOW(connect(other, (void *)&name, length));
    SHOW(read(other, buffer, 100));
    SHOW(send(other, "connected", 9, 0));
    SHOW(send(one, "x", 1, 0));
    hidden(&name, "nobody-there");
    SHOW(sendto(one, "x", 1, 0, (void *)&name, length));
    name.sun_family = AF_UNSPEC;
    SHOW(connect(other, (void *)&name, length));
    SHOW(send(other, "x", 1, 0));
    close(one);
    close(other);
}

static void rights(void) {
    puts("-- descriptors");
    int s[2], p[2], more[3];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
    pipe(p);
    SHOW(give(s[0], "a pipe", p, 1));
    SHOW(give(s[0], "bad", (int[]){99}, 1));
    SHOW(write(s[0], "behind", 6));
    close(p[0]);
    write(p[1], "through", 7);
    int got = take(s[1], 100, MSG_CMSG_CLOEXEC);
    SHOW(read(got, buffer, 100));
    take(s[1], 100, 0);
    more[0] = p[1], more[1] = s[0], more[2] = got;
    SHOW(give(s[0], "three", more, 3));
    close(take(s[1], CMSG_SPACE(sizeof(int)), 0));
    SHOW(give(s[0], "no room", more, 3));
    take(s[1], 0, 0);
    SHOW(give(s[0], "looked at", &p[1], 1));
    close(take(s[1], 100, MSG_PEEK));
    close(take(s[1], 100, 0));
    SHOW(give(s[0], "dropped", &got, 1));
    close(got);
    SHOW(read(s[1], buffer, 100));
    SHOW(send(p[1], "x", 1, 0));
    signal(SIGPIPE, SIG_IGN);
    SHOW(write(p[1], "x", 1));
    int on = 1;
    setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    SHOW(option(s[1], SOL_SOCKET, SO_PASSCRED));
    SHOW(write(s[0], "who", 3));
    take(s[1], 100, 0);
    /* In a circle, and nobody has them any more: on Linux as here they go. */
    for (int round = 0; round < 600; round++) {
        int c[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, c) < 0) { SHOW(-errno); break; }
        if (give(c[0], "itself", &c[1], 1) < 0 || give(c[1], "and other", &c[0], 1) < 0) { SHOW(-errno); break; }
        close(c[0]), close(c[1]);
    }
    SHOW(give(s[0], "its own end", &s[1], 1));
    SHOW(give(s[0], "and again", &s[0], 1));
    close(s[0]), close(s[1]), close(p[1]);
}

static void ports(void) {
    puts("-- ports");
    struct sockaddr_in where = here(0), got;
    struct sockaddr_in6 six = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT}, got6;
    socklen_t length = sizeof where, size = sizeof got;
    SHOW(socket(AF_INET, SOCK_STREAM, 17));
    SHOW(socket(AF_INET, SOCK_SEQPACKET, 0));
    SHOW(socket(77, SOCK_STREAM, 0));
    SHOW(socket(AF_INET, SOCK_STREAM | 64, 0));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(ready(client));
    SHOW(read(client, buffer, 1));
    SHOW(send(client, "x", 1, MSG_NOSIGNAL));
    SHOW(accept(client, 0, 0));
    SHOW(getpeername(client, (void *)&got, &size));
    SHOW(shutdown(client, SHUT_RDWR));
    SHOW(bind(listener, (void *)&where, 15));
    SHOW(bind(listener, (void *)&six, sizeof six));
    SHOW(bind(listener, (void *)&where, length));
    SHOW(bind(listener, (void *)&where, length));
    size = sizeof got;
    SHOW(getsockname(listener, (void *)&got, &size));
    TRUE(ntohs(got.sin_port) >= 1024 && got.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && size == 16);
    where = got;
    SHOW(bind(client, (void *)&where, length));
    SHOW(connect(client, (void *)&where, length));
    SHOW(listen(listener, 5));
    SHOW(accept(listener, 0, 0));
    SHOW(connect(client, (void *)&where, length));
    SHOW(connect(client, (void *)&where, length));
    SHOW(ready(listener));
    size = sizeof got;
    int end = accept4(listener, (void *)&got, &size, SOCK_NONBLOCK);
    TRUE(size == 16 && got.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct sockaddr_in own;
    getsockname(client, (void *)&own, &size);
    TRUE(!memcmp(&own, &got, 8));
    getsockname(end, (void *)&own, &size);
    TRUE(!memcmp(&own, &where, 8));
    getpeername(client, (void *)&own, &size);
    TRUE(!memcmp(&own, &where, 8));
    SHOW(ready(end));
    SHOW(send(client, "request", 7, 0));
    SHOW(recv(end, buffer, 100, 0));
    SHOW(recv(end, buffer, 100, 0));
    SHOW(option(client, IPPROTO_TCP, TCP_NODELAY));
    SHOW(set(client, IPPROTO_TCP, TCP_NODELAY, 1));
    TRUE(option(client, IPPROTO_TCP, TCP_NODELAY) != 0);
    SHOW(set(client, SOL_SOCKET, SO_KEEPALIVE, 7));
    SHOW(option(client, SOL_SOCKET, SO_KEEPALIVE));
    SHOW(option(client, SOL_SOCKET, SO_TYPE));
    SHOW(option(client, SOL_SOCKET, SO_DOMAIN));
    SHOW(option(client, SOL_SOCKET, SO_PROTOCOL));
    SHOW(option(client, SOL_SOCKET, SO_ACCEPTCONN));
    SHOW(option(client, SOL_SOCKET, 9999));
    SHOW(option(client, 77, 1));
    SHOW(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, buffer, 2));
    SHOW(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, (void *)8, 4));
    struct timeval soon = {0, 20000};
    SHOW(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SHOW(recv(client, buffer, 1, 0));
    SHOW(shutdown(client, SHUT_WR));
    SHOW(ready(end));
    SHOW(recv(end, buffer, 100, 0));
    SHOW(send(end, "answer", 6, 0));
    SHOW(close(end));
    SHOW(recv(client, buffer, 100, 0));
    SHOW(recv(client, buffer, 100, 0));
    SHOW(ready(client));
    SHOW(send(client, "x", 1, MSG_NOSIGNAL));
    close(client);
    int asks = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(asks, (void *)&where, length));
    SHOW(ready(asks));
    SHOW(option(asks, SOL_SOCKET, SO_ERROR));
    end = accept(listener, 0, 0);
    SHOW(write(asks, "x", 1));
    close(end);
    SHOW(read(asks, buffer, 1));
    SHOW(read(asks, buffer, 1));
    close(asks), close(listener);
    asks = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(asks, (void *)&where, length));
    SHOW(ready(asks));
    SHOW(option(asks, SOL_SOCKET, SO_ERROR));
    SHOW(option(asks, SOL_SOCKET, SO_ERROR));
    close(asks);
    asks = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(asks, (void *)&where, length));
    close(asks);
    puts("datagrams");
    int one = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), other = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    SHOW(ready(one));
    SHOW(send(one, "x", 1, 0));
    where = here(0);
    bind(one, (void *)&where, length);
    size = sizeof where;
    getsockname(one, (void *)&where, &size);
    SHOW(sendto(other, "to one", 6, 0, (void *)&where, length));
    SHOW(ready(one));
    size = sizeof got;
    SHOW(recvfrom(one, buffer, 3, MSG_TRUNC, (void *)&got, &size));
    TRUE(got.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && size == 16);
    SHOW(sendto(one, "back", 4, 0, (void *)&got, size));
    SHOW(connect(other, (void *)&where, length));
    SHOW(recv(other, buffer, 100, 0));
    SHOW(send(other, "connected", 9, 0));
    SHOW(recv(one, buffer, 100, 0));
    SHOW(sendto(one, buffer, 70000, 0, (void *)&got, size));
    close(one);
    SHOW(send(other, "x", 1, 0));
    SHOW(send(other, "x", 1, 0));
    SHOW(send(other, "x", 1, 0));
    SHOW(recv(other, buffer, 1, 0));
    close(other);
    puts("six");
    int listener6 = socket(AF_INET6, SOCK_STREAM, 0), four = socket(AF_INET, SOCK_STREAM, 0);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    six.sin6_addr = in6addr_any;
    SHOW(option(listener6, IPPROTO_IPV6, IPV6_V6ONLY));
    SHOW(bind(listener6, (void *)&six, sizeof six));
    SHOW(listen(listener6, 5));
    size = sizeof six;
    SHOW(getsockname(listener6, (void *)&six, &size));
    SHOW(size);
    int port = ntohs(six.sin6_port);
    where = here(port);
    SHOW(connect(four, (void *)&where, length));
    size = sizeof got6;
    end = accept(listener6, (void *)&got6, &size);
    char text[64];
    puts(inet_ntop(AF_INET6, &got6.sin6_addr, text, sizeof text));
    six.sin6_addr = in6addr_loopback;
    SHOW(connect(client, (void *)&six, sizeof six));
    int end6 = accept(listener6, (void *)&got6, &size);
    puts(inet_ntop(AF_INET6, &got6.sin6_addr, text, sizeof text));
    SHOW(write(client, "six", 3));
    SHOW(read(end6, buffer, 10));
    SHOW(write(four, "four", 4));
    SHOW(read(end, buffer, 10));
    close(client), close(end), close(end6), close(four), close(listener6);
    puts("edges");
    where = here(0), listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&where, length), listen(listener, 5), getsockname(listener, (void *)&where, &length);
    connect(client, (void *)&where, length), end = accept(listener, 0, 0);
    int e = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET}, events[4];
    epoll_ctl(e, EPOLL_CTL_ADD, end, &event);
    for (int i = 0; i < 6; i++) {
        if (i == 2 || i == 3) write(client, "x", 1);
        if (i == 5) shutdown(client, SHUT_WR);
        events[0].events = 0;
        int n = epoll_wait(e, events, 4, 0);
        printf("  %d %x\n", n, events[0].events);
    }
    int file = open("text", O_RDONLY);
    off_t from = 3;
    SHOW(sendfile(end, file, &from, 20));
    SHOW(recv(client, buffer, 100, 0));
    close(file), close(e), close(end), close(client), close(listener);
}

/* A server and its clients, each a process. */
static void many(void) {
    puts("-- many");
    struct sockaddr_in where = here(0);
    socklen_t length = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM, 0), status;
    bind(listener, (void *)&where, length), listen(listener, 50), getsockname(listener, (void *)&where, &length);
    for (int i = 0; i < 6; i++) {
        if (!fork()) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (void *)&where, length)) _exit(99);
            /* More than fits, so that both ends wait. */
            memset(buffer, 'a' + i, sizeof buffer);
            if (write(fd, buffer, sizeof buffer) != sizeof buffer) _exit(98);
            shutdown(fd, SHUT_WR);
            long sum = 0, n;
            while ((n = read(fd, buffer, 5000)) > 0) sum += n;
            _exit(sum == 150000 ? i : 97);
        }
    }
    long all = 0;
    for (int i = 0; i < 6; i++) {
        int fd = accept(listener, 0, 0);
        if (!fork()) {
            long sum = 0, n;
            while ((n = recv(fd, buffer, 3000, MSG_WAITALL)) > 0) sum += n;
            if (send(fd, buffer, 150000, 0) != 150000) _exit(96);
            _exit(sum == sizeof buffer ? 50 : 95);
        }
        close(fd);
    }
    for (int i = 0; i < 12; i++) wait(&status), all += WEXITSTATUS(status);
    SHOW(all);
    close(listener);
    puts("descriptors between processes");
    int s[2], p[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        close(s[0]);
        int got = take(s[1], 100, 0);
        fflush(stdout);
        write(got, "from the child", 14);
        _exit(0);
    }
    close(s[1]);
    pipe(p);
    fflush(stdout);
    SHOW(give(s[0], "take it", &p[1], 1));
    close(p[1]);
    long n = read(p[0], buffer, 100);
    printf("%ld %.14s\n", n, buffer);
    SHOW(read(p[0], buffer, 100));
    waitpid(child, &status, 0);
    SHOW(status);
    close(p[0]);
    puts("waiting for room, for a connection, and for the end");
    socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
    child = fork();
    if (!child) {
        close(s[0]);
        usleep(20000);
        long sum = 0;
        for (int i = 0; i < 300; i++) sum += read(s[1], buffer, 3000);
        _exit(sum == 300 * 2000 ? 7 : 8);
    }
    close(s[1]);
    for (int i = 0; i < 300; i++) if (write(s[0], buffer, 2000) != 2000) puts("NO: short");
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    struct sockaddr_un name;
    length = hidden(&name, "fermata-queue");
    listener = socket(AF_UNIX, SOCK_STREAM, 0), bind(listener, (void *)&name, length), listen(listener, 0);
    fflush(stdout);
    for (int i = 0; i < 5; i++) {
        if (!fork()) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connect(fd, (void *)&name, length)) _exit(100);
            read(fd, buffer, 1);
            _exit(buffer[0]);
        }
    }
    usleep(30000);
    for (int i = 0; i < 5; i++) {
        int fd = accept(listener, 0, 0);
        struct ucred who;
        socklen_t size = sizeof who;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
        if (who.pid <= 1 || who.pid == getpid()) puts("NO: who");
        write(fd, (char[]){i}, 1), close(fd);
    }
    all = 0;
    for (int i = 0; i < 5; i++) wait(&status), all += WEXITSTATUS(status);
    SHOW(all);
    signal(SIGPIPE, SIG_DFL);
    child = fork();
    if (!child) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, s), close(s[0]);
        write(s[1], "x", 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    SHOW(status);
    /* Only who writes to a stream gets a signal: the others an error. */
    for (int kind = 0; kind < 4; kind++) {
        child = fork();
        if (!child) {
            struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            socklen_t size = sizeof own;
            socketpair(AF_UNIX, kind ? SOCK_DGRAM : SOCK_SEQPACKET, 0, s);
            if (kind == 0) close(s[0]);
            if (kind == 1) shutdown(s[1], SHUT_WR);
            if (kind == 2) shutdown(s[0], SHUT_RD);
            if (kind == 3) {
                s[1] = socket(AF_INET, SOCK_DGRAM, 0);
                bind(s[1], (void *)&own, size), getsockname(s[1], (void *)&own, &size);
                if (connect(s[1], (void *)&own, size) || shutdown(s[1], SHUT_WR)) _exit(100);
            }
            _exit(write(s[1], "x", 1) < 0 ? errno : 0);
        }
        waitpid(child, &status, 0);
        SHOW(status);
    }
    /* All messages are waited for, or one: then the rest is not sent before that. */
    for (int flags = 0; flags <= MSG_WAITFORONE; flags += MSG_WAITFORONE) {
        socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
        child = fork();
        if (!child) {
            for (int n = 0; n < 3; n++) {
                write(s[0], "abc", n + 1);
                if (flags && !n) read(s[0], (char[1]){0}, 1);
                else usleep(30000);
            }
            _exit(0);
        }
        char into[3][4];
        struct iovec parts[3];
        struct mmsghdr three[3] = {0};
        for (int n = 0; n < 3; n++) {
            parts[n] = (struct iovec){into[n], 4};
            three[n].msg_hdr.msg_iov = &parts[n], three[n].msg_hdr.msg_iovlen = 1;
        }
        int came = recvmmsg(s[1], three, 3, flags, 0);
        write(s[1], "x", 1);
        SHOW(came);
        for (int n = 0; n < came; n++) SHOW((int)three[n].msg_len);
        waitpid(child, &status, 0);
        close(s[0]), close(s[1]);
    }
    int level = 0;
    socklen_t long_enough = sizeof level;
    for (int n = 0; n < 3; n++) {
        int fd = socket((int[]){AF_UNIX, AF_INET, AF_INET6}[n], SOCK_DGRAM, 0);
        SHOW(getsockopt(fd, IPPROTO_TCP, 1, &level, &long_enough) < 0 ? -errno : 0);
        SHOW(setsockopt(fd, IPPROTO_TCP, 1, &level, long_enough) < 0 ? -errno : 0);
        close(fd);
    }
}

/* What a list under /proc/net says of a socket, which is found by its inode: its ports go by P and Q. */
static void line_of(const char *list, int fd, int local, int remote) {
    char path[40], line[512], inode[40], at[200] = "";
    struct stat about;
    fstat(fd, &about);
    snprintf(path, sizeof path, "/proc/net/%s", list), snprintf(inode, sizeof inode, "%lu", (unsigned long)about.st_ino);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        char a[80], b[80], st[8], queues[40], number[40], name[120] = "";
        if (!strcmp(list, "unix")) {
            if (sscanf(line, "%*s %*s %*s %79s %79s %7s %39s %119s", a, b, st, number, name) >= 4 && !strcmp(number, inode))
                snprintf(at, sizeof at, "%s %s %s %s", a, b, st, name);
        } else if (sscanf(line, "%*s %79s %79s %7s %39s %*s %*s %*s %*s %39s", a, b, st, queues, number) == 5 && !strcmp(number, inode)) {
            char *own = strchr(a, ':'), *other = strchr(b, ':');
            int is_own = strtol(own + 1, 0, 16) == local, is_other = strtol(other + 1, 0, 16) == remote;
            *own = *other = 0;
            snprintf(at, sizeof at, "%s %s %s %s %s %s", a, is_own ? "P" : "?", b, is_other ? "Q" : "?", st, queues);
        }
    }
    if (file) fclose(file);
    printf("%s: %s\n", list, at);
}

static int port_of(int fd) {
    struct sockaddr_in6 name;
    socklen_t size = sizeof name;
    getsockname(fd, (void *)&name, &size);
    return ntohs(name.sin6_port);
}

static void listed(void) {
    puts("-- lists");
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0),
        udp6 = socket(AF_INET6, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_STREAM, 0), p[2];
    line_of("tcp", fd, 0, 0);
    bind(fd, (void *)&here, sizeof here), listen(fd, 5), line_of("tcp", fd, port_of(fd), 0);
    bind(six, (void *)&there, sizeof there), listen(six, 5), line_of("tcp6", six, port_of(six), 0);
    line_of("udp", udp, 0, 0);
    bind(udp, (void *)&here, sizeof here), line_of("udp", udp, port_of(udp), 0);
    bind(udp6, (void *)&there, sizeof there), line_of("udp6", udp6, port_of(udp6), 0);
    here.sin_port = htons(port_of(fd));
    SHOW(connect(to, (void *)&here, sizeof here));
    int taken = accept(fd, 0, 0);
    SHOW(write(to, "three", 3));
    line_of("tcp", to, port_of(to), port_of(fd)), line_of("tcp", taken, port_of(fd), port_of(to));
    here.sin_port = htons(port_of(udp));
    SHOW(connect(udp, (void *)&here, sizeof here)), line_of("udp", udp, port_of(udp), port_of(udp));
    struct sockaddr_un name = {AF_UNIX, "\0some name"};
    int un = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    bind(un, (void *)&name, 2 + 10), listen(un, 3), line_of("unix", un, 0, 0);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, p), line_of("unix", p[0], 0, 0);
    for (int n = 0; n < 8; n++) close((int[]){fd, six, udp, udp6, to, taken, un, p[0]}[n]);
    close(p[1]);
}

/* Says to be this one. */
static ssize_t claim(int fd, pid_t pid, uid_t uid, gid_t gid) {
    char control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct iovec vector = {"me", 2};
    struct msghdr message = {0, 0, &vector, 1, control, sizeof control, 0};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_CREDENTIALS, head->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    memcpy(CMSG_DATA(head), &(struct ucred){pid, uid, gid}, sizeof(struct ucred));
    return checked(sendmsg(fd, &message, MSG_NOSIGNAL));
}

/* Root says to be whom he likes; who was root is one of his own. It is root no more then. */
static void claims(void) {
    puts("-- claims");
    int s[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    SHOW(claim(s[0], getpid(), 0, 0)), SHOW(claim(s[0], getpid(), 1, 2)), SHOW(claim(s[0], 0x3fffffff, 0, 0));
    SHOW(setresgid(17, 18, 19)), SHOW(setresuid(7, 8, 9));
    SHOW(claim(s[0], getpid(), 7, 17)), SHOW(claim(s[0], getpid(), 8, 19)), SHOW(claim(s[0], getpid(), 9, 18));
    SHOW(claim(s[0], getpid(), 0, 17)), SHOW(claim(s[0], getpid(), 7, 0)), SHOW(claim(s[0], getpid(), 1, 2));
    SHOW(claim(s[0], 1, 7, 17)), SHOW(claim(s[0], 0x3fffffff, 7, 17));
    close(s[0]), close(s[1]);
}

/* Messages without a byte, long names, and files that are sent in messages. */
static void lengths(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    struct iovec none = {buffer, 0};
    puts("-- lengths");
    int file = memfd_create("file", 0);
    memset(buffer, 'f', 5000);
    SHOW(write(file, buffer, 5000));
    for (int n = 0; n < 3; n++) {
        int p[2];
        SHOW(socketpair(AF_UNIX, types[n] | SOCK_NONBLOCK, 0, p));
        SHOW(read(p[0], buffer, 0));
        SHOW(readv(p[0], &none, 1));
        SHOW(writev(p[1], &none, 1));
        SHOW(writev(p[1], 0, 0));
        SHOW(read(p[0], buffer, 9));
        SHOW(write(p[1], "abc", 3));
        SHOW(read(p[0], buffer, 0));
        SHOW(readv(p[0], 0, 0));
        SHOW(read(p[0], buffer, 9));
        SHOW(write(p[1], buffer, 0));
        SHOW(read(p[0], buffer, 9));
        off_t at = 0;
        SHOW(sendfile(p[1], file, &at, 5000));
        SHOW(read(p[0], buffer, 9999));
        int alone = socket(AF_UNIX, types[n], 0);
        at = 0;
        SHOW(sendfile(alone, file, &at, 5000));
        close(alone);
        close(p[0]);
        close(p[1]);
    }
    int alone = socket(AF_INET, SOCK_DGRAM, 0);
    off_t at = 0;
    SHOW(sendfile(alone, file, &at, 5000));
    close(alone);
    for (int length = 109; length < 114; length++) {
        char name[128] = {AF_UNIX};
        memset(name + 3, 'n', sizeof name - 3);
        int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        SHOW(bind(fd, (void *)name, length));
        SHOW(connect(fd, (void *)name, length));
        SHOW(sendto(fd, "x", 1, 0, (void *)name, length));
        close(fd);
    }
    int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = here(0);
    socklen_t length = sizeof address;
    SHOW(bind(to, (void *)&address, length));
    SHOW(getsockname(to, (void *)&address, &length));
    SHOW(connect(from, (void *)&address, length));
    SHOW(send(from, buffer, 65507, 0));
    SHOW(recv(to, buffer, sizeof buffer, 0));
    SHOW(send(from, buffer, 65508, 0));
    close(to);
    close(from);
    close(file);
}

/* Reads all that comes, with pauses, and ends with the number of thousands. */
static void take_slowly(int fd) {
    long got = 0, n;
    for (usleep(1000); (n = read(fd, buffer, sizeof buffer)) > 0; got += n) usleep(500);
    _exit(n < 0 ? 255 : got / 10000);
}

/* Who blocks has the whole file sent. */
static void whole(void) {
    puts("-- a whole file");
    int status, p[2], file = memfd_create("large", 0);
    ftruncate(file, 1000000);
    for (int n = 0; n < 3; n++) {
        if (n ? socketpair(AF_UNIX, n == 1 ? SOCK_STREAM : SOCK_SEQPACKET, 0, p) : pipe(p)) abort();
        pid_t child = fork();
        if (!child) close(p[1]), take_slowly(p[0]);
        close(p[0]);
        lseek(file, 0, SEEK_SET);
        SHOW(sendfile(p[1], file, 0, n == 2 ? 1000 : 2000000)), SHOW(lseek(file, 0, SEEK_CUR));
        close(p[1]);
        waitpid(child, &status, 0), SHOW(status);
    }
    close(file);
}

/* Of groups that nobody joins. */
static void groups(void) {
    puts("-- groups");
    int four = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0);
    for (int n = IPV6_UNICAST_HOPS; n <= IPV6_MULTICAST_LOOP; n++) {
        printf("%d: %d", n, option(six, IPPROTO_IPV6, n));
        printf(" %d %d\n", set(six, IPPROTO_IPV6, n, n != IPV6_MULTICAST_IF), option(six, IPPROTO_IPV6, n));
    }
    struct in_addr any = {0};
    SHOW(setsockopt(four, IPPROTO_IP, IP_MULTICAST_IF, &any, sizeof any)), SHOW(option(four, IPPROTO_IP, IP_MULTICAST_IF));
    close(four), close(six);
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    if (count > 1 && !strcmp(arguments[1], "many")) {
        many();
        whole();
    } else {
        pairs();
        paths();
        rights();
        ports();
        listed();
        groups();
        claims();
        lengths();
    }
    fflush(stdout);
    return 0;
}
