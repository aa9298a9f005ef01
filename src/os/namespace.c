/* SPDX-License-Identifier: Apache-2.0 */
#include "os/namespace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

#define LOOPBACK_INDEX 1 /* in every network namespace */

/* In one write: the kernel accepts these files only whole. */
static bool write_file(const char *path, const char *text)
{
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

int sp_namespaces_map_ids(uid_t uid, gid_t gid)
{
    char line[64];

    if (!write_file("/proc/self/setgroups", "deny"))
        return -errno;
    (void)snprintf(line, sizeof line, "%u %u 1", (unsigned)gid, (unsigned)gid);
    if (!write_file("/proc/self/gid_map", line))
        return -errno;
    (void)snprintf(line, sizeof line, "%u %u 1", (unsigned)uid, (unsigned)uid);
    return write_file("/proc/self/uid_map", line) ? 0 : -errno;
}

/*
 * Adds 127.64.0.1 to the loopback interface. getaddrinfo with AI_ADDRCONFIG ignores 127.0.0.1:
 * without another IPv4 address it does not even resolve localhost. Through netlink, because an
 * address added by ioctl gets a label (lo:1) that programs list as an interface.
 */
static int add_address(void)
{
    struct {
        struct nlmsghdr head;
        struct ifaddrmsg message;
        struct rtattr attribute;
        uint32_t address;
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = RTM_NEWADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .message = {.ifa_family = AF_INET,
                    .ifa_prefixlen = 32,
                    .ifa_scope = RT_SCOPE_HOST,
                    .ifa_index = LOOPBACK_INDEX},
        .attribute = {.rta_len = RTA_LENGTH(sizeof ask.address), .rta_type = IFA_LOCAL},
        .address = htonl(0x7F400001),
    };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
    } answer = {0};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0)
        return -errno;
    /* The kernel queues the answer before send returns. */
    const ssize_t n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    return n < (ssize_t)sizeof answer || answer.head.nlmsg_type != NLMSG_ERROR ? -EPROTO
                                                                               : answer.error.error;
}

int sp_namespaces_raise_loopback(void)
{
    auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo"};

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
        return -errno;
    r.ifr_flags = (short)(r.ifr_flags | IFF_UP | IFF_RUNNING);
    if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
        return -errno;
    return add_address();
}
