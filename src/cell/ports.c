/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "cell/wire.h"
#include "os/fd.h"
#include "os/seccomp.h"
#include "sandbox/network_policy.h"

#define BACKLOG    4096
#define FIRST_FREE 1024 /* ports below are ours alone */
#define PORT_START "/proc/sys/net/ipv4/ip_unprivileged_port_start"
#define CONGESTION "/proc/sys/net/ipv4/tcp_congestion_control"

/* Commands have no capability over the namespace, so they cannot change it back. */
static int reserve_low_ports(void)
{
    char text[16];

    if (sp_read_text(text, sizeof text, PORT_START) < 0)
        return -errno;
    if (strtoul(text, NULL, 10) >= FIRST_FREE)
        return 0;
    auto_close int fd = open(PORT_START, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, "1024", 4) != 4 ? -errno : 0;
}

/* The namespace has the algorithm of the host, which is chosen for networks. On a loopback, where
 * nothing is lost and the window follows the reader, one that paces its packets (bbr) halves the
 * rate of a stream and doubles its processor time. Every kernel has reno. */
static void use_plain_congestion_control(void)
{
    auto_close int fd = open(CONGESTION, O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, "reno", 4); /* without it a stream is slower */
}

static int open_port(const struct sp_wire_port *p)
{
    const bool is_udp = p->kind == SP_PORT_DNS_UDP;
    const struct sockaddr_in at = {
        .sin_family = AF_INET,
        .sin_port = htons(p->port),
        .sin_addr = {htonl(p->kind == SP_PORT_BY_NAME ? INADDR_ANY : INADDR_LOOPBACK)}};
    auto_close int fd =
        p->kind == SP_PORT_DIAG
            ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
            : socket(AF_INET, (is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK,
                     0);

    if (fd < 0)
        return -errno;
    fd = sp_fd_lift(fd);
    if (p->kind != SP_PORT_DIAG && (bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
                                    (!is_udp && listen(fd, BACKLOG) < 0)))
        return -errno;
    return TAKE_FD(fd);
}

/* The sockets of this process's cell; they stay open for the next front. */
static struct kept_port {
    struct sp_wire_port is;
    int fd;
} kept[4 + SP_PLAN_PORTS];
static uint32_t kept_count;

int sp_ports_open(const struct sp_plan *plan)
{
    struct sp_wire_port all[4 + SP_PLAN_PORTS] = {{SP_PORT_DNS_UDP, 53},
                                                  {SP_PORT_DNS_TCP, 53},
                                                  {SP_PORT_PROXY, SP_NETWORK_PROXY_PORT},
                                                  {SP_PORT_DIAG, 0}};
    const uint32_t count = 4 + plan->port_count;
    int r = reserve_low_ports();

    use_plain_congestion_control();
    for (uint32_t i = 0; i < plan->port_count; i++)
        all[4 + i] = (struct sp_wire_port){SP_PORT_BY_NAME, plan->ports[i]};
    for (; r == 0 && kept_count < count; kept_count++) {
        kept[kept_count] = (struct kept_port){all[kept_count], open_port(&all[kept_count])};
        r = kept[kept_count].fd < 0 ? kept[kept_count].fd : 0;
    }
    return r;
}

int sp_ports_send(int control, bool can_wait, uint32_t *at)
{
    int r = 0;

    while (r == 0 && *at < kept_count) {
        struct sp_wire_ports m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_PORTS}};
        int fds[SP_WIRE_FDS];

        for (; m.count < SP_WIRE_FDS && *at + m.count < kept_count; m.count++) {
            m.ports[m.count] = kept[*at + m.count].is;
            fds[m.count] = kept[*at + m.count].fd;
        }
        m.is_last = *at + m.count == kept_count;
        r = sp_wire_send(control, can_wait, &m, sizeof m, NULL, 0, fds, (int)m.count);
        *at += r == 0 ? m.count : 0;
    }
    return r;
}

/* Never waits, so that a server that accepts no connections delays no command. */
int sp_ports_connect(int family, int port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } at = {.any.sa_family = (sa_family_t)family};
    auto_close int fd = -1;

    if ((family != AF_INET && family != AF_INET6) || port < 1 || port > UINT16_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (family == AF_INET) {
        at.v4.sin_port = htons((uint16_t)port);
        at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        at.v6.sin6_port = htons((uint16_t)port);
        at.v6.sin6_addr = in6addr_loopback;
    }
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, &at.any, SP_FILTER_OWN_ADDRESS) < 0 && errno != EINPROGRESS))
        return -1;
    return TAKE_FD(fd);
}
