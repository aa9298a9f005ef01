/* SPDX-License-Identifier: Apache-2.0 */
#include "os/sockdiag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

uint64_t sp_sockdiag_inode(int netlink, uint32_t local_address, uint16_t local_port,
                           uint32_t remote_address, uint16_t remote_port)
{
    static uint32_t sequence;
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++sequence},
        .body = {.sdiag_family = AF_INET,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id = {.idiag_sport = htons(local_port),
                        .idiag_dport = htons(remote_port),
                        .idiag_src = {local_address},
                        .idiag_dst = {remote_address},
                        .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };
    _Alignas(8) char text[1024];
    struct inet_diag_msg m;
    struct nlmsghdr head;

    if (send(netlink, &ask, sizeof ask, MSG_DONTWAIT) != (ssize_t)sizeof ask)
        return 0;
    do { /* an earlier answer may be unread: skip it */
        const ssize_t n = recv(netlink, text, sizeof text, MSG_DONTWAIT);

        if (n < (ssize_t)NLMSG_LENGTH(sizeof m))
            return 0;
        memcpy(&head, text, sizeof head);
    } while (head.nlmsg_seq != ask.head.nlmsg_seq);
    if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || head.nlmsg_len < NLMSG_LENGTH(sizeof m))
        return 0;
    memcpy(&m, text + NLMSG_HDRLEN, sizeof m);
    return m.idiag_inode;
}
