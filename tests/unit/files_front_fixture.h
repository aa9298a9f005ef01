/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_front_fixture: the front's side of file operations, with the test at the other end of every
 * socket. Linked with --wrap=sp_cell_join.
 */
#ifndef SP_FILES_FRONT_FIXTURE_H
#define SP_FILES_FRONT_FIXTURE_H

#include <sys/socket.h>

#include "cell/cell_files.h"
#include "files_fixture.h"
#include "os/fd.h"

/* ---- the other ends ---- */

struct end {
    int socket;
    char *window;
    struct sp_file_wire_request asked;
    int fd; /* that came with it; -1: none */
};

static struct end ends[SP_FILE_WORKERS_MAX + 8];
static int end_count;
static bool is_real; /* then the processes are */

int __real_sp_cell_join(struct sp_cell *c, struct sp_cell_worker *g, int socket, struct sp_err *e);
int __wrap_sp_cell_join(struct sp_cell *c, struct sp_cell_worker *g, int socket, struct sp_err *e);

/* The cell gets the end of another pair, whose process ends at once. */
int __wrap_sp_cell_join(struct sp_cell *c, struct sp_cell_worker *g, int socket, struct sp_err *e)
{
    int pair[2];

    if (is_real)
        return __real_sp_cell_join(c, g, socket, e);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const int r = __real_sp_cell_join(c, g, pair[1], e);
    (void)close(pair[0]);
    (void)close(pair[1]);
    if (r == 0) {
        assert_true(end_count < (int)(sizeof ends / sizeof ends[0]));
        ends[end_count++] = (struct end){.socket = dup(socket), .fd = -1};
    }
    return r;
}

/* Takes a datagram of the front's; its paths are not looked at. */
static inline bool hear(struct end *end)
{
    char paths[2 * SP_FILE_MAX_PATH];
    struct iovec iov[2] = {{&end->asked, sizeof end->asked}, {paths, sizeof paths}};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = 2};
    int fd = -1;
    int fd_count;

    if (sp_fd_recv(end->socket, &h, MSG_DONTWAIT, &fd, 1, &fd_count) <= 0)
        return false;
    if (end->fd >= 0)
        (void)close(end->fd);
    end->fd = fd_count == 0 ? -1 : fd;
    return true;
}

static inline bool has_been_asked(const void *about)
{
    struct end *end = (struct end *)(uintptr_t)about;

    while (hear(end)) {
        if (end->window != NULL)
            return true;
        assert_int_equal(end->asked.op, 0); /* the first brings the window */
        end->window = mmap(NULL, SP_FILES_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, end->fd, 0);
        assert_true(end->window != MAP_FAILED);
    }
    return false;
}

static inline void say(const struct end *end, const void *bytes, size_t len, const int *fds,
                       int fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)fd_count * sizeof(int));
    }
    assert_int_equal(sendmsg(end->socket, &h, MSG_NOSIGNAL), (ssize_t)len);
}

static inline int front_begin(void **state)
{
    end_count = 0;
    is_real = false;
    const int r = files_begin(state);
    assert_int_equal(sp_files_can_open(server->files, &error), 0); /* has a descriptor */
    return r;
}

static inline int front_end(void **state)
{
    for (int i = 0; i < end_count; i++) {
        (void)close(ends[i].socket);
        if (ends[i].fd >= 0)
            (void)close(ends[i].fd);
        if (ends[i].window != NULL)
            (void)munmap(ends[i].window, SP_FILES_WINDOW);
    }
    return files_end(state);
}

#define front_test(name) cmocka_unit_test_setup_teardown(name, front_begin, front_end)

static struct call call;

/* A question that is at the newest process, and not answered yet. */
static inline struct end *ask_one(enum sp_file_op op)
{
    struct sp_files_job job = a_job(op, "f");

    job.request.length = op == SP_FILE_READ_BLOCK ? 8 : 0;
    asks(&call, &job);
    assert_true(end_count > 0);
    struct end *end = &ends[end_count - 1];
    until(has_been_asked, end);
    assert_int_equal(end->asked.op, (uint32_t)op);
    return end;
}

/* A plain answer, to be spoilt. */
static inline struct sp_file_wire_answer fine(const struct end *end)
{
    return (struct sp_file_wire_answer){.number = end->asked.number};
}

static inline bool has_fds(const void *n)
{
    return open_fds() == *(const int *)n;
}

/* The process was not believed: the call has failed, its descriptors are gone. */
static inline void is_not_believed(int fds)
{
    awaits(&call);
    assert_false(call.has_answer);
    assert_int_equal(call.e.code, SP_E_FAILED);
    until_workers(0);
    until(has_fds, &fds); /* some are closed elsewhere */
}

#endif
