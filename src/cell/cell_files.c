/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/cell_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/wire.h"
#include "os/fd.h"
#include "os/landlock.h"

#define ANY_FILE_NUMBER 7 /* lower descriptors have fixed uses: os/spawn.h */

/* ---- the wire, checked by both sides ---- */

bool sp_files_cut_paths(const struct sp_file_wire_request *m, char paths[SP_FILES_PATHS],
                        size_t len, const char **ret_path, const char **ret_other)
{
    const size_t a = m->path_len;
    const size_t b = m->other_len;

    if (a > SP_FILE_MAX_PATH || b > SP_FILE_MAX_PATH || a + b != len)
        return false;
    memmove(paths + a + 1, paths + a, b);
    paths[a] = paths[a + 1 + b] = 0;
    *ret_path = a != 0 ? paths : NULL;
    *ret_other = b != 0 ? paths + a + 1 : NULL;
    return true;
}

/* ---- the file worker ---- */

/* One datagram of the front; path and other point into paths. */
struct datagram {
    struct sp_file_wire_request head;
    char paths[SP_FILES_PATHS];
    const char *path, *other;
    size_t len;
    int fd; /* -1: none came with it */
};

/* false: the front has closed the socket, or the datagram is malformed. */
static bool receive_request(int socket, struct datagram *t)
{
    struct iovec iov[2] = {{.iov_base = &t->head, .iov_len = sizeof t->head},
                           {.iov_base = t->paths, .iov_len = sizeof t->paths}};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = 2};
    int fd_count;
    const ssize_t n = sp_fd_recv(socket, &h, 0, &t->fd, 1, &fd_count);

    if (fd_count == 0)
        t->fd = -1;
    if (n < (ssize_t)sizeof t->head || (h.msg_flags & MSG_TRUNC) != 0)
        return false;
    t->len = (size_t)n - sizeof t->head;
    return true;
}

/* An answer, and where its READ tells of pieces. */
struct progress {
    struct sp_file_answer answer;
    int socket;
    uint64_t number;
    struct sp_files_head *head;
    bool has_begun;
};

static void on_read_some(struct sp_file_answer *a, uint64_t bytes, uint64_t size)
{
    struct progress *m = SP_CONTAINER(a, struct progress, answer);
    const struct sp_file_wire_answer begun = {
        .number = m->number, .flags = SP_FILES_BEGUN, .size = size};

    atomic_store_explicit(&m->head->filled, bytes, memory_order_release);
    if (!m->has_begun) /* an error: the front is gone, as send_answer finds */
        (void)sp_wire_send(m->socket, true, &begun, sizeof begun, NULL, 0, NULL, 0);
    m->has_begun = true;
}

static void on_copied_some(struct sp_file_answer *a, uint64_t bytes)
{
    const struct progress *m = SP_CONTAINER(a, struct progress, answer);

    atomic_store_explicit(&m->head->filled, bytes, memory_order_relaxed);
}

/* Data that does not fit the window comes in a memory file, mapped for this call. */
static void carry_out(const struct datagram *t, char *window, struct progress *progress)
{
    struct sp_file_answer *a = &progress->answer;
    const struct sp_file_wire_request *h = &t->head;
    struct sp_file_request request = {
        .op = (enum sp_file_op)h->op,
        .path = t->path,
        .other = t->other,
        .follows = (h->flags & SP_FILES_FOLLOWS) != 0,
        .is_recursive = (h->flags & SP_FILES_RECURSIVE) != 0,
        .is_forced = (h->flags & SP_FILES_FORCED) != 0,
        .is_replace = (h->flags & SP_FILES_REPLACE) != 0,
        .hides_placeholders = (h->flags & SP_FILES_HIDES_PLACEHOLDERS) != 0,
        .fd = t->fd,
        .offset = h->offset,
        .length = h->length,
        .walk = h->walk,
        .data = window,
        .data_len = (size_t)h->data_len,
    };
    void *map = MAP_FAILED;

    *a = (struct sp_file_answer){.fd = -1,
                                 .memory = -1,
                                 .window = window,
                                 .window_size = SP_FILES_WINDOW,
                                 .read_some = on_read_some,
                                 .copied_some = on_copied_some,
                                 .err = EINVAL};
    progress->number = h->number;
    progress->has_begun = false;
    if ((t->head.flags & SP_FILES_DATA_APART) != 0 && request.data_len != 0) {
        map = mmap(NULL, request.data_len, PROT_READ, MAP_SHARED | MAP_POPULATE, t->fd, 0);
        request.data = map;
        a->err = map == MAP_FAILED ? errno : 0;
    } else if (request.data_len <= SP_FILES_WINDOW) {
        a->err = 0;
    }
    if (a->err == 0)
        sp_file_do(&request, a);
    if (map != MAP_FAILED)
        (void)munmap(map, request.data_len);
}

/* Closes the answer's descriptor. false: the socket is closed. */
static bool send_answer(int socket, uint64_t number, const struct sp_file_answer *a)
{
    const struct sp_file_wire_answer m = {
        .number = number,
        .err = a->err,
        .refusal = a->refusal,
        .flags = (a->is_cut ? SP_FILES_CUT : 0U) | (a->memory >= 0 ? SP_FILES_APART : 0U) |
                 (a->fd >= 0 ? SP_FILES_OPENED : 0U) |
                 (a->stat.is_directory ? SP_FILES_IS_DIRECTORY : 0U) |
                 (a->stat.is_file ? SP_FILES_IS_FILE : 0U) |
                 (a->stat.is_link ? SP_FILES_IS_LINK : 0U),
        .data_len = a->data_len,
        .value = a->number,
        .size = a->stat.size,
        .created_ms = a->stat.created_ms,
        .modified_ms = a->stat.modified_ms,
    };
    const struct sp_file_wire_answer back = {.number = number, .flags = SP_FILES_CLOSED};
    const int fd = a->memory >= 0 ? a->memory : a->fd;
    int r = sp_wire_send(socket, true, &m, sizeof m, NULL, 0, &fd, fd >= 0);

    if (fd >= 0)
        (void)close(fd);
    if (r == 0 && a->fd >= 0)
        r = sp_wire_send(socket, true, &back, sizeof back, NULL, 0, NULL, 0);
    return r == 0;
}

static void serve(int socket)
{
    static struct datagram t;
    struct progress progress = {.socket = socket};
    struct sp_file_answer *a = &progress.answer;

    if (!receive_request(socket, &t) || t.fd < 0)
        return;
    char *window = mmap(NULL, SP_FILES_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
    (void)close(t.fd);
    if (window == MAP_FAILED)
        return;
    progress.head = (void *)(window + SP_FILES_WINDOW);
    while (receive_request(socket, &t) &&
           sp_files_cut_paths(&t.head, t.paths, t.len, &t.path, &t.other)) {
        carry_out(&t, window, &progress);
        /* close() may be the first to report a failed write (NFS, quotas), and does it once. */
        if (t.fd >= 0 && close(TAKE_FD(t.fd)) < 0 && errno != EINTR &&
            t.head.op == SP_FILE_WRITE_BLOCK && a->err == 0)
            a->err = errno;
        if (!send_answer(socket, t.head.number, a))
            return;
    }
}

void sp_files_begin(int socket, int scope)
{
    sigset_t none;

    (void)setsid();
    /* A FIFO without a reader and RLIMIT_FSIZE fail the operation; they must not kill us. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_NAME, "sallyport-files");
    /* Not dumpable: no ptrace or /proc access by processes of the same uid, and no core file. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        (scope >= 0 && sp_landlock_enter(scope) < 0))
        _exit(1);
    if (dup3(socket, ANY_FILE_NUMBER, O_CLOEXEC) < 0 && socket != ANY_FILE_NUMBER)
        _exit(1);
    for (int i = 0; i < 3; i++) /* one of these is the cell's control socket */
        if (dup2(3, i) < 0)     /* 3 is /dev/null: os/spawn.h */
            _exit(1);
    if (close_range(ANY_FILE_NUMBER + 1, ~0U, 0) < 0)
        _exit(1);
    serve(ANY_FILE_NUMBER);
    _exit(0);
}
