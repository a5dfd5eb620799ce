/* Network interfaces: what it prints of the loopback, and of what is refused, must be the same on Linux and on Fermata. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static long checked(long result) { return result < 0 ? -errno : result; }
#define SHOW(call) printf("%s = %ld\n", #call, checked((long)(call)))
#define TRUE(condition) printf("%s %s\n", (condition) ? "yes:" : "NO:", #condition)

static char buffer[65536];

static struct ifreq named(const char *name) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, name);
    return request;
}

static void show_address(const char *what, int fd, unsigned long number) {
    struct ifreq lo = named("lo");
    struct sockaddr_in *in = (struct sockaddr_in *)&lo.ifr_addr;
    long result = checked(ioctl(fd, number, &lo));
    printf("%s: %ld family %d port %d %s\n", what, result, in->sin_family, in->sin_port, inet_ntoa(in->sin_addr));
}

static void by_ioctl(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    show_address("address", fd, SIOCGIFADDR);
    show_address("mask", fd, SIOCGIFNETMASK);
    show_address("broadcast", fd, SIOCGIFBRDADDR);
    show_address("other end", fd, SIOCGIFDSTADDR);
    struct ifreq lo = named("lo"), none = named("none7"), empty = named("");
    SHOW(ioctl(fd, SIOCGIFINDEX, &lo));
    TRUE(lo.ifr_ifindex == 1);
    SHOW(ioctl(fd, SIOCGIFNAME, &lo));
    TRUE(!strcmp(lo.ifr_name, "lo"));
    SHOW(ioctl(fd, SIOCGIFFLAGS, &lo));
    printf("flags %x\n", (unsigned short)lo.ifr_flags);
    SHOW(ioctl(fd, SIOCGIFMTU, &lo));
    printf("mtu %d\n", lo.ifr_mtu);
    SHOW(ioctl(fd, SIOCGIFMETRIC, &lo));
    TRUE(lo.ifr_metric == 0);
    SHOW(ioctl(fd, SIOCGIFTXQLEN, &lo));
    printf("queue %d\n", lo.ifr_qlen);
    SHOW(ioctl(fd, SIOCGIFHWADDR, &lo));
    printf("hardware %d %d\n", lo.ifr_hwaddr.sa_family, lo.ifr_hwaddr.sa_data[0]);
    SHOW(ioctl(fd, SIOCGIFMAP, &lo));
    SHOW(ioctl(fd, SIOCGIFMTU, &none));
    SHOW(ioctl(fd, SIOCGIFADDR, &none));
    SHOW(ioctl(fd, SIOCGIFINDEX, &empty));
    SHOW(ioctl(fd, SIOCGIFINDEX, 0));
    SHOW(ioctl(local, SIOCGIFINDEX, &lo));
    lo = named("lo");
    SHOW(ioctl(local, SIOCGIFADDR, &lo));
    SHOW(ioctl(six, SIOCGIFADDR, &lo));
    SHOW(ioctl(six, SIOCGIFMTU, &lo));
    lo = named("lo:");
    SHOW(ioctl(fd, SIOCGIFINDEX, &lo));
    struct ifreq far;
    memset(&far, 0, sizeof far);
    far.ifr_ifindex = 123456;
    SHOW(ioctl(fd, SIOCGIFNAME, &far));
    struct ifconf all = {sizeof buffer};
    all.ifc_buf = buffer;
    SHOW(ioctl(fd, SIOCGIFCONF, &all));
    TRUE(all.ifc_len >= 40 && all.ifc_len % 40 == 0);
    TRUE(!strcmp(all.ifc_req[0].ifr_name, "lo"));
    all.ifc_len = 39;
    SHOW(ioctl(fd, SIOCGIFCONF, &all));
    TRUE(all.ifc_len == 0);
    all.ifc_buf = 0;
    SHOW(ioctl(fd, SIOCGIFCONF, &all));
    TRUE(all.ifc_len >= 40);
    SHOW(ioctl(fd, SIOCGIFCONF, 0));
    close(fd);
    close(six);
    close(local);
}

static void by_library(void) {
    SHOW(if_nametoindex("lo"));
    SHOW(if_nametoindex("none7"));
    char name[IF_NAMESIZE];
    TRUE(if_indextoname(1, name) && !strcmp(name, "lo"));
    struct if_nameindex *names = if_nameindex();
    TRUE(names && names[0].if_index == 1 && !strcmp(names[0].if_name, "lo"));
    struct ifaddrs *all = 0;
    SHOW(getifaddrs(&all));
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (strcmp(one->ifa_name, "lo") || !one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in *address = (void *)one->ifa_addr, *mask = (void *)one->ifa_netmask;
        printf("%s %x", inet_ntoa(address->sin_addr), one->ifa_flags);
        printf(" %s\n", inet_ntoa(mask->sin_addr));
    }
    freeifaddrs(all);
}

struct request {
    struct nlmsghdr head;
    union {
        struct ifinfomsg link;
        struct ifaddrmsg address;
        struct rtmsg route;
        char raw[64];
    };
};

/* Sends a request of so many bytes behind the head. */
static long ask(int fd, struct request *request, int type, int flags, int size) {
    request->head.nlmsg_len = NLMSG_LENGTH(size);
    request->head.nlmsg_type = type;
    request->head.nlmsg_flags = flags;
    request->head.nlmsg_seq = 7;
    return checked(send(fd, request, request->head.nlmsg_len, 0));
}

/* Shows what is answered to that: kinds of messages, errors, and of the loopback a little more. */
static void shown(const char *what, int fd, struct request *request, int type, int flags, int size) {
    long sent = ask(fd, request, type, flags, size);
    printf("%s: sent %ld;", what, sent);
    int more = sent > 0, links = 0, addresses = 0, routes = 0;
    while (more) {
        long length = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (length < 0) break;
        for (struct nlmsghdr *head = (void *)buffer; NLMSG_OK(head, length); head = NLMSG_NEXT(head, length)) {
            if (head->nlmsg_seq != 7) printf(" another number");
            if (head->nlmsg_pid != getpid()) printf(" another port");
            switch (head->nlmsg_type) {
            case NLMSG_DONE: printf(" done %x", head->nlmsg_flags), more = 0; break;
            case NLMSG_ERROR: {
                struct nlmsgerr *error = NLMSG_DATA(head);
                printf(" error %d of %d", error->error, error->msg.nlmsg_type);
                if (!error->error) printf(" flags %x length %d", head->nlmsg_flags, head->nlmsg_len);
                break;
            }
            case RTM_NEWLINK: {
                struct ifinfomsg *link = NLMSG_DATA(head);
                links++;
                if (link->ifi_index != 1) break;
                printf(" link type %d flags %x %x", link->ifi_type, link->ifi_flags, head->nlmsg_flags);
                /* In which order they come differs between versions of Linux. */
                void *found[IFLA_MAX + 1] = {0};
                int rest = IFLA_PAYLOAD(head), counters = 0;
                for (struct rtattr *a = IFLA_RTA(link); RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
                    if (a->rta_type <= IFLA_MAX) found[a->rta_type] = RTA_DATA(a);
                    if (a->rta_type == IFLA_STATS) counters = RTA_PAYLOAD(a);
                }
                if (!found[IFLA_IFNAME] || !found[IFLA_MTU] || !found[IFLA_OPERSTATE] || !found[IFLA_QDISC]) break;
                printf(" %s mtu %d", (char *)found[IFLA_IFNAME], *(int *)found[IFLA_MTU]);
                printf(" state %d %s counters %d", *(char *)found[IFLA_OPERSTATE], (char *)found[IFLA_QDISC], counters);
                break;
            }
            case RTM_NEWADDR: {
                struct ifaddrmsg *address = NLMSG_DATA(head);
                addresses++;
                if (address->ifa_index != 1 || address->ifa_family != AF_INET) break;
                printf(" address /%d flags %x scope %d", address->ifa_prefixlen, address->ifa_flags, address->ifa_scope);
                int rest = IFA_PAYLOAD(head);
                for (struct rtattr *a = IFA_RTA(address); RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
                    if (a->rta_type == IFA_LABEL) printf(" %s", (char *)RTA_DATA(a));
                    if (a->rta_type == IFA_LOCAL) printf(" %s", inet_ntoa(*(struct in_addr *)RTA_DATA(a)));
                }
                break;
            }
            case RTM_NEWROUTE: {
                struct rtmsg *route = NLMSG_DATA(head);
                routes++;
                if (type != RTM_GETROUTE || flags & NLM_F_DUMP) break;
                printf(" route /%d table %d type %d flags %x", route->rtm_dst_len, route->rtm_table, route->rtm_type, route->rtm_flags & RTM_F_CLONED);
                break;
            }
            default: printf(" kind %d", head->nlmsg_type);
            }
        }
    }
    printf("%s%s%s\n", links ? " (links)" : "", addresses ? " (addresses)" : "", routes ? " (routes)" : "");
}

static int socket_of(int type) {
    return socket(AF_NETLINK, type, NETLINK_ROUTE);
}

static void by_netlink(void) {
    int fd = socket_of(SOCK_RAW);
    struct request request;
#define CLEAR memset(&request, 0, sizeof request)
    CLEAR;
    struct sockaddr_nl own = {AF_NETLINK};
    socklen_t size = sizeof own;
    SHOW(getsockname(fd, (void *)&own, &size));
    TRUE(size == 12 && own.nl_pid == 0 && own.nl_groups == 0);
    SHOW(bind(fd, (void *)&own, 11));
    own.nl_family = AF_INET;
    SHOW(bind(fd, (void *)&own, sizeof own));
    own.nl_family = AF_NETLINK;
    SHOW(bind(fd, (void *)&own, sizeof own));
    SHOW(getsockname(fd, (void *)&own, &size));
    TRUE(own.nl_family == AF_NETLINK && own.nl_pid == getpid());
    own.nl_pid++;
    SHOW(bind(fd, (void *)&own, sizeof own));
    int other = socket_of(SOCK_DGRAM);
    own.nl_pid--;
    SHOW(bind(other, (void *)&own, sizeof own));
    own.nl_pid = 0;
    SHOW(bind(other, (void *)&own, sizeof own));
    SHOW(getsockname(other, (void *)&own, &size));
    TRUE(own.nl_pid != 0 && own.nl_pid != getpid());
    SHOW(getpeername(other, (void *)&own, &size));
    TRUE(own.nl_pid == 0);
    int value = 0;
    size = sizeof value;
    SHOW(getsockopt(other, SOL_SOCKET, SO_TYPE, &value, &size));
    TRUE(value == SOCK_DGRAM);
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size));
    TRUE(value == SOCK_RAW);
    SHOW(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size));
    TRUE(value == AF_NETLINK);
    SHOW(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &size));
    TRUE(value == NETLINK_ROUTE);
    SHOW(listen(fd, 1));
    SHOW(accept(fd, 0, 0));
    SHOW(shutdown(fd, SHUT_RD));
    SHOW(socket(AF_NETLINK, SOCK_STREAM, 0));
    SHOW(socket(AF_NETLINK, SOCK_SEQPACKET, 0));
    SHOW(recv(fd, buffer, 10, MSG_DONTWAIT));
    struct pollfd polled = {fd, POLLIN | POLLOUT};
    SHOW(poll(&polled, 1, 0));
    TRUE(polled.revents == POLLOUT);

    shown("links", fd, &request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 16);
    shown("addresses", fd, &request, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 8);
    request.address.ifa_family = AF_INET;
    shown("addresses of IPv4", fd, &request, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 8);
    CLEAR;
    shown("short", fd, &request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1);
    shown("routes", fd, &request, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 12);
    request.link.ifi_index = 1;
    shown("one link", fd, &request, RTM_GETLINK, NLM_F_REQUEST, 16);
    shown("one link, acknowledged", fd, &request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_ACK, 16);
    request.link.ifi_index = 123456;
    shown("no such link", fd, &request, RTM_GETLINK, NLM_F_REQUEST, 16);
    CLEAR;
    shown("no link", fd, &request, RTM_GETLINK, NLM_F_REQUEST, 16);
    memcpy(request.raw + 16, "\7\0\3\0lo", 7);
    shown("by name", fd, &request, RTM_GETLINK, NLM_F_REQUEST, 24);
    CLEAR;
    request.route.rtm_family = AF_INET;
    request.route.rtm_dst_len = 32;
    memcpy(request.raw + 12, "\10\0\1\0\177\0\0\1", 8);
    shown("a way", fd, &request, RTM_GETROUTE, NLM_F_REQUEST, 20);
    CLEAR;
    shown("unknown", fd, &request, 200, NLM_F_REQUEST, 16);
    shown("no request", fd, &request, RTM_GETLINK, NLM_F_DUMP, 16);
    shown("no operation", fd, &request, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 16);

    /* The length is told before there is room, as `ip` does. */
    CLEAR;
    TRUE(ask(other, &request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 16) == 32);
    struct sockaddr_nl from;
    struct iovec range = {0, 0};
    struct msghdr message = {&from, sizeof from, &range, 1};
    long whole = recvmsg(other, &message, MSG_PEEK | MSG_TRUNC);
    TRUE(whole > 100);
    TRUE(message.msg_flags & MSG_TRUNC);
    TRUE(message.msg_namelen == 12 && from.nl_family == AF_NETLINK && from.nl_pid == 0);
    range.iov_base = buffer;
    range.iov_len = sizeof buffer;
    TRUE(recvmsg(other, &message, 0) == whole);
    TRUE(!(message.msg_flags & MSG_TRUNC));
    close(other);
    close(fd);
}

static void show_file(const char *path) {
    int fd = open(path, O_RDONLY);
    long length = fd < 0 ? checked(fd) : read(fd, buffer, sizeof buffer - 1);
    buffer[length > 0 ? length : 0] = 0;
    printf("%s: %s\n", path, length < 0 ? "no" : buffer);
    close(fd);
}

/* The first lines of a file. */
static void show_head(const char *path, int lines) {
    FILE *file = fopen(path, "r");
    printf("%s:\n", path);
    while (file && lines-- && fgets(buffer, sizeof buffer, file)) printf("%s", buffer);
    if (file) fclose(file);
}

static void by_file(void) {
    static const char *const names[] = {"addr_len", "address", "broadcast", "carrier", "dev_id", "flags", "ifindex", "iflink",
        "mtu", "operstate", "tx_queue_len", "type", "uevent"};
    for (int n = 0; n < sizeof names / sizeof *names; n++) {
        char path[100];
        sprintf(path, "/sys/class/net/lo/%s", names[n]);
        show_file(path);
    }
    show_file("/sys/class/net/none7/mtu");
    show_head("/proc/net/dev", 2);
    show_head("/proc/net/route", 1);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 4096);
    by_ioctl();
    by_library();
    by_netlink();
    by_file();
}
