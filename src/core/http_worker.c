/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "core/http_worker_priv.h"
#include "os/fd.h"

uint64_t sp_web_worker_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void sp_web_say(struct sp_web_worker *w, enum sp_web_op op, uint64_t number, uint64_t value,
                struct sp_str bytes)
{
    struct sp_web_message m = {.version = SP_WEB_VERSION,
                               .op = (uint16_t)op,
                               .len = (uint32_t)bytes.n,
                               .number = number,
                               .value = value};
    struct iovec iov[2] = {{.iov_base = &m, .iov_len = sizeof m},
                           {.iov_base = (void *)(uintptr_t)bytes.p, .iov_len = bytes.n}};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = bytes.n != 0 ? 2 : 1};

    while (sendmsg(w->socket, &h, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) {
            w->is_over = true;
            return;
        }
}

/* ---- hearing ---- */

union heard {
    struct sp_web_message m;
    struct sp_web_order order;
};

/* 1: *h is filled; 0: nothing there; -1: the end, or what no front of ours says. */
static int hear(const struct sp_web_worker *w, union heard *h, int *ret_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = h, .iov_len = sizeof *h};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;

    *ret_fd = -1;
    do
        n = recvmsg(w->socket, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
        *ret_fd = sp_fd_lift(*ret_fd);
    }
    return n > 0 && (msg.msg_flags & MSG_TRUNC) == 0 &&
                   sp_web_check(h, (size_t)n, false, *ret_fd >= 0)
               ? 1
               : -1;
}

static struct sp_web_task *find(const struct sp_web_worker *w, uint64_t number)
{
    struct sp_web_task *t = w->first;

    while (t != NULL && t->number != number)
        t = t->next;
    return t;
}

static void obey(struct sp_web_worker *w, const union heard *h, int fd)
{
    struct sp_web_task *t = find(w, h->m.number);

    if (h->m.op == SP_WEB_PING) {
        sp_web_say(w, SP_WEB_PONG, h->m.number, 0, SP_STR(""));
    } else if (h->m.op == SP_WEB_ASK) {
        if (t != NULL || sp_web_task_begin(w, &h->order, fd) < 0)
            w->is_over = true;
    } else if (t != NULL && h->m.op == SP_WEB_TAKE) {
        sp_web_task_take(t, h->m.value);
    } else if (t != NULL) {
        sp_web_task_free(t);
    }
}

static void hear_all(struct sp_web_worker *w)
{
    int r = 1;

    while (!w->is_over && r > 0) {
        auto_close int fd = -1;
        union heard h;

        r = hear(w, &h, &fd);
        if (r > 0)
            obey(w, &h, fd);
    }
    w->is_over = w->is_over || r < 0;
}

static void flush_all(const struct sp_web_worker *w)
{
    for (struct sp_web_task *t = w->first; t != NULL; t = t->next)
        sp_web_task_flush(t);
}

int sp_web_worker_run(int socket, struct sp_err *e)
{
    struct sp_web_worker w = {.socket = socket};

    if (sp_curl_open(&w.curl, e) < 0) {
        sp_web_say(&w, SP_WEB_UNABLE, 0, 0, sp_str_of(e->msg));
        return -(int)e->code;
    }
    while (!w.is_over) {
        hear_all(&w);
        if (!w.is_over)
            sp_curl_run(w.curl, socket);
        flush_all(&w);
    }
    while (w.first != NULL)
        sp_web_task_free(w.first);
    return 0;
}
