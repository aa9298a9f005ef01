/* SPDX-License-Identifier: Apache-2.0 */
#include "os/namespace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

int sp_namespaces_leave(bool with_network)
{
    const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWCGROUP | (with_network ? CLONE_NEWNET : 0);

    return unshare(all) < 0 ? -errno : 0;
}

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

pid_t sp_namespaces_be_born(int *ret_pidfd)
{
    *ret_pidfd = -1;
#if defined(__x86_64__) || defined(__aarch64__)
    const long pid = syscall(SYS_clone, (long)(CLONE_PARENT | CLONE_PIDFD), 0L, ret_pidfd, 0L, 0L);
#else
#error "the order of clone's arguments is not known here"
#endif

    return pid < 0 ? -errno : (pid_t)pid;
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
    /* getaddrinfo with AI_ADDRCONFIG does not count 127.0.0.1 as an IPv4 address: without another
     * one it does not even find localhost. */
    struct ifreq second = {.ifr_name = "lo:1"};
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(0x7F400001)}; /* 127.64.0.1 */
    const struct sockaddr_in mask = {.sin_family = AF_INET, .sin_addr.s_addr = 0xFFFFFFFF};
    memcpy(&second.ifr_addr, &address, sizeof address);
    if (ioctl(fd, SIOCSIFADDR, &second) < 0)
        return -errno;
    memcpy(&second.ifr_netmask, &mask, sizeof mask);
    return ioctl(fd, SIOCSIFNETMASK, &second) < 0 ? -errno : 0;
}
