/* SPDX-License-Identifier: Apache-2.0 */
#include "core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/io.h"
#include "base/log.h"
#include "cell/cell_files.h"
#include "os/fd.h"

#define PIECE            (64U << 10) /* symbols of base64, decoded at a time: their bytes are whole pages */
#define SPARE_MAX        (64U << 20)
#define CLOSER_STACK     (256U << 10)
#define BUILDING_MS      10   /* until a cell that is being built is looked at again */
#define MAX_TRIES        8    /* as for a start, when the disk changes under its sandbox */
#define EXPECTED_US      100  /* the loop polls this long for an answer (sp_loop_expect) */
#define SLOW_MS          2000 /* a copy that takes longer is logged, again and again */
#define IDLE_CONFINED_MS 250  /* short: a resting worker keeps its cell, and its placeholders */
#define WINDOW_SEALS     (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define MEMORY_SEALS     (F_SEAL_SHRINK | F_SEAL_WRITE)

/* The message of a call, and its data while it waits. */
struct sp_files_message {
    struct sp_files_call *call; /* valid while it waits */
    struct sp_list link;        /* in waiting */
    struct sp_file_wire_request head;
    bool changes, has_policy;
    int tries; /* that failed because the disk has changed */
    int fd;    /* borrowed; -1: none */
    const int *handle;
    uint32_t limit; /* READ: the most bytes for the caller; head.length may be less at first */
    int data;       /* a memory file; -1: in the window, or none */
    size_t kept;
    struct sp_policy policy;
    uint64_t session;
    char paths[]; /* path and other, without NUL, as they follow the head */
};

struct sp_file_worker {
    struct sp_files *files;
    struct sp_list link;
    struct sp_cell_worker in_cell; /* the cell's part of it */
    bool is_confined, is_working;
    bool is_orphan;  /* its call is gone or answered, and it has not finished */
    bool is_closing; /* has answered, and is closing the file it has opened */
    bool has_begun;  /* has told that its READ has begun */
    int socket;
    struct sp_watch watch;
    struct sp_timer idle; /* rests too long; or see end_worker */
    struct sp_timer slow; /* of a copy */
    uint64_t began_ms;    /* the same */
    struct sp_deferred end;
    char *window;
    struct sp_files_call *call; /* NULL: the answer is dropped */
    enum sp_file_op op;
    uint32_t length; /* the most bytes to read */
    uint64_t number;
    int spare; /* a memory file; -1: none */
};

/* The answer (a), or why there is none (e): reports it, or repeats a read that needs more memory.
 */
static void finish_call(struct sp_files_call *c, const struct sp_file_answer *a,
                        const struct sp_err *e);
static bool try_again(struct sp_files_call *c);

static void try_all_waiting(struct sp_deferred *d);

static struct sp_files_head *head_of(const struct sp_file_worker *w)
{
    return (void *)(w->window + SP_FILES_WINDOW);
}

/* ---- the end of a worker ---- */

static void free_worker(struct sp_deferred *d)
{
    struct sp_file_worker *w = SP_CONTAINER(d, struct sp_file_worker, end);

    sp_list_remove(&w->link);
    if (w->window != NULL)
        (void)munmap(w->window, SP_FILES_SHARED);
    free(w);
}

/* A worker or memory has become free: waiting calls are tried later in this turn of the loop. */
static void go_on(struct sp_files *f)
{
    if (!sp_list_is_empty(&f->waiting))
        sp_loop_defer(f->loop, &f->more, try_all_waiting);
}

static void drop_spare(struct sp_files *f)
{
    if (f->spare != NULL)
        (void)close(TAKE_FD(f->spare->spare));
    f->spare = NULL;
}

/* No call waits for the worker any more, but it may hang in an operation or in close(): it counts
 * as an orphan from now on. */
static void set_orphan(struct sp_file_worker *w)
{
    struct sp_files *f = w->files;

    if (w->is_orphan || f->orphan_count == SP_FILES_ORPHANS_MAX)
        return;
    w->is_orphan = true;
    f->orphan_count++;
    f->worker_count--;
}

/* An orphan that answers counts as a worker again. */
static void count_again(struct sp_file_worker *w)
{
    if (!w->is_orphan)
        return;
    w->is_orphan = false;
    w->files->orphan_count--;
    w->files->worker_count++;
}

/* The process sees the end of its socket and exits; one that hangs ends with its cell. */
static void hang_up(struct sp_file_worker *w)
{
    if (w->socket < 0)
        return;
    if (w->files->spare == w)
        drop_spare(w->files);
    sp_loop_unwatch(w->files->loop, &w->watch);
    sp_loop_cancel(w->files->loop, &w->idle);
    sp_loop_cancel(w->files->loop, &w->slow);
    (void)shutdown(w->socket, SHUT_RDWR);
    (void)close(TAKE_FD(w->socket));
    sp_cell_leave(&w->in_cell);
    count_again(w);
    w->files->working -= w->is_working;
    w->is_working = false;
    w->files->worker_count--;
    sp_loop_defer(w->files->loop, &w->end, free_worker);
    go_on(w->files);
}

static void fail_worker(struct sp_file_worker *w, const struct sp_err *why)
{
    struct sp_err e = {0};

    hang_up(w);
    if (w->call == NULL)
        return;
    if (why == NULL || why->code == SP_E_NONE)
        (void)sp_fail(&e, SP_E_FAILED, 0,
                      "the process that did this file operation has ended; try it again");
    else
        e = *why;
    /* SP_E_STATE (sp_cell_explain): the disk changed since the survey, a new one may do. */
    if (e.code == SP_E_STATE && try_again(w->call))
        return;
    if (e.code == SP_E_STATE)
        e.code = SP_E_INVALID;
    finish_call(w->call, NULL, &e);
}

static void on_lost(struct sp_cell_worker *h, const struct sp_err *why)
{
    fail_worker(SP_CONTAINER(h, struct sp_file_worker, in_cell), why);
}

static void on_idle(struct sp_timer *t)
{
    hang_up(SP_CONTAINER(t, struct sp_file_worker, idle));
}

static void set_resting(struct sp_file_worker *w)
{
    const uint64_t ms = w->is_confined ? IDLE_CONFINED_MS : SP_FILES_IDLE_MS;

    sp_loop_cancel(w->files->loop, &w->slow);
    w->files->working -= w->is_working;
    w->is_working = false;
    w->is_closing = false;
    w->in_cell.is_idle = true;
    count_again(w);
    if (w->files->worker_count > SP_FILE_WORKERS_MAX ||
        !sp_loop_timer(w->files->loop, &w->idle, sp_loop_now(w->files->loop) + ms, on_idle))
        hang_up(w);
    go_on(w->files);
}

/* ---- answers of a worker, which commands in its cell may have taken over ---- */

struct received {
    struct sp_file_wire_answer m;
    int fd; /* -1: none */
};

static void free_closing(struct sp_closing *c)
{
    free(c);
}

/* close() of an unexpected descriptor may block: on its disk, or in SO_LINGER of a socket. */
static void drop_fd(const struct sp_file_worker *w, struct received *h)
{
    const struct linger none = {0};
    const int fd = TAKE_FD(h->fd);

    if (fd < 0)
        return;
    struct sp_closing *c = fcntl(fd, F_GET_SEALS) >= 0 ? NULL : calloc(1, sizeof *c);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* fails if it is no socket */
    if (c == NULL) { /* a memory file, or out of memory */
        (void)close(fd);
        return;
    }
    c->done = free_closing;
    sp_files_close(w->files, c, fd);
}

/* A regular file and nothing else: a worker of the open cell, which reads and writes its blocks
 * later, is not confined. */
static bool is_file(int fd)
{
    struct statx sx;

    /* AT_STATX_DONT_SYNC: the cached answer, without asking the disk. */
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) == 0 &&
           S_ISREG(sx.stx_mode);
}

/* A READ has begun; once for each, and without a descriptor. */
static bool is_begun(const struct sp_file_worker *w, const struct received *h)
{
    return h->m.flags == SP_FILES_BEGUN && h->fd < 0 && w->op == SP_FILE_READ && !w->has_begun;
}

/* 1: *h is filled; 0: no message; -1: the process has ended, or the message is invalid. The control
 * buffer has room for one descriptor, or none if the answer is dropped: the kernel discards others
 * without a close() that could block. */
static int receive(const struct sp_file_worker *w, struct received *h)
{
    struct iovec iov = {.iov_base = &h->m, .iov_len = sizeof h->m};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    const int max_fds = w->call == NULL ? 0 : 1;
    int fd_count;
    const ssize_t n = sp_fd_recv(w->socket, &msg, MSG_DONTWAIT, &h->fd, max_fds, &fd_count);

    h->fd = fd_count == 0 ? -1 : sp_fd_lift(h->fd);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    const bool is_fine = n == (ssize_t)sizeof h->m && (msg.msg_flags & MSG_TRUNC) == 0 &&
                         h->m.number == w->number && w->is_working &&
                         w->is_closing == ((h->m.flags & SP_FILES_CLOSED) != 0) &&
                         (is_begun(w, h) || (h->m.flags & SP_FILES_BEGUN) == 0) &&
                         (w->call == NULL || is_begun(w, h) ||
                          ((msg.msg_flags & MSG_CTRUNC) == 0 &&
                           sp_files_is_answer(w->op, w->length, &h->m, h->fd >= 0) &&
                           (w->op != SP_FILE_OPEN || h->fd < 0 || is_file(h->fd))));
    if (!is_fine)
        drop_fd(w, h);
    return is_fine ? 1 : -1;
}

/* Maps a memory file of the process; the seals keep it from being truncated or changed, so that it
 * can be sent straight from the mapping. */
static void *map_memory(const struct received *h)
{
    const int seals = fcntl(h->fd, F_GET_SEALS);
    struct statfs fs;
    struct stat st;

    if (seals < 0 || (seals & MEMORY_SEALS) != MEMORY_SEALS || fstat(h->fd, &st) < 0 ||
        (uint64_t)st.st_size < h->m.data_len || fstatfs(h->fd, &fs) < 0 ||
        fs.f_type != TMPFS_MAGIC) /* not hugetlbfs: touching a page could fail */
        return NULL;
    void *map = mmap(NULL, (size_t)h->m.data_len, PROT_READ, MAP_SHARED | MAP_POPULATE, h->fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Reports the answer to its call, if that still waits, and lets the worker rest. */
static void on_answer(struct sp_file_worker *w, struct received *h)
{
    const struct sp_file_wire_answer *m = &h->m;
    const bool is_apart = (m->flags & SP_FILES_APART) != 0;
    bool is_kept = false;
    void *map = NULL;

    if (w->call != NULL && is_apart && (map = map_memory(h)) == NULL) {
        fail_worker(w, NULL);
        drop_fd(w, h);
        return;
    }
    if (w->call != NULL) {
        const struct sp_file_answer a = {
            .err = m->err,
            .refusal = (enum sp_file_refusal)m->refusal,
            .number = m->value,
            .is_cut = (m->flags & SP_FILES_CUT) != 0,
            .stat = {.is_directory = (m->flags & SP_FILES_IS_DIRECTORY) != 0,
                     .is_file = (m->flags & SP_FILES_IS_FILE) != 0,
                     .is_link = (m->flags & SP_FILES_IS_LINK) != 0,
                     .size = m->size,
                     .created_ms = m->created_ms,
                     .modified_ms = m->modified_ms},
            .fd = w->op == SP_FILE_OPEN ? TAKE_FD(h->fd) : -1, /* the caller closes it */
            .window = is_apart ? map : w->window,
            .window_size = (size_t)m->data_len,
            .data_len = m->data_len,
            .memory = -1,
            .is_kept = is_apart ? &is_kept : NULL,
        };

        finish_call(w->call, &a, NULL);
    }
    if (w->socket >= 0 && (m->flags & SP_FILES_OPENED) != 0) {
        w->is_closing = true; /* closing may block for the disk; the call is answered already */
        set_orphan(w);
        sp_loop_expect(w->files->loop, EXPECTED_US);
    } else if (w->socket >= 0) {
        set_resting(w);
    }
    if (map != NULL && !is_kept)
        (void)munmap(map, (size_t)m->data_len);
    drop_fd(w, h);
}

/* The worker has ended. If its cell is still being built, the cell has perhaps ended, too, and
 * on_lost says why. */
static void end_worker(struct sp_timer *t)
{
    struct sp_file_worker *w = SP_CONTAINER(t, struct sp_file_worker, idle);
    struct sp_loop *loop = w->files->loop;

    sp_loop_unwatch(loop, &w->watch);
    if (w->call == NULL || w->in_cell.cell == NULL || w->in_cell.cell->is_ready ||
        !sp_loop_timer(loop, t, sp_loop_now(loop) + BUILDING_MS, end_worker))
        fail_worker(w, NULL);
}

/* Lets the call use the data while more is read. 1: that took so long that the answer has come, in
 * *h; else as receive. */
static int use_some(struct sp_file_worker *w, struct received *h)
{
    const uint64_t size = h->m.size < SP_FILES_WINDOW ? h->m.size : SP_FILES_WINDOW;
    struct sp_files_call *c = w->call;

    w->has_begun = true;
    if (c == NULL || c->some == NULL)
        return 0;
    c->some(c, w->window, &head_of(w)->filled, size);
    const int r = receive(w, h);
    if (r <= 0 || h->m.err != 0 || h->m.refusal != 0 || (h->m.flags & SP_FILES_APART) != 0)
        c->some(c, NULL, NULL, 0);
    return r;
}

static void on_socket(struct sp_watch *watch, uint32_t events)
{
    struct sp_file_worker *w = SP_CONTAINER(watch, struct sp_file_worker, watch);
    struct received h;
    int r = receive(w, &h);

    (void)events;
    if (r > 0 && h.m.flags == SP_FILES_BEGUN)
        r = use_some(w, &h);
    if (r > 0)
        on_answer(w, &h);
    else if (r < 0)
        end_worker(&w->idle);
}

/* ---- asking a worker ---- */

static int send_request(int socket, const struct sp_file_wire_request *m, const char *paths, int fd)
{
    return sp_wire_send(socket, false, m, sizeof *m, paths, (size_t)m->path_len + m->other_len, &fd,
                        fd >= 0);
}

/* ---- new workers ---- */

/* Asks the cell for a process, and shares the window with it. */
static int open_worker(struct sp_file_worker *w, struct sp_cell *cell, struct sp_err *e)
{
    const struct sp_file_wire_request hello = {0};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket for file operations");
    w->socket = sp_fd_lift(pair[0]);
    auto_close int theirs = sp_fd_lift(pair[1]);
    auto_close int window = memfd_create("sallyport-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map = MAP_FAILED;
    if (window >= 0 && ftruncate(window, SP_FILES_SHARED) == 0 &&
        fcntl(window, F_ADD_SEALS, WINDOW_SEALS) == 0)
        map = mmap(NULL, SP_FILES_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
    if (map == MAP_FAILED)
        return sp_fail(e, SP_E_SYSTEM, errno, "make room for file operations");
    w->window = map;
    int r = send_request(w->socket, &hello, NULL, window);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "greet a process for file operations");
    r = sp_loop_watch(w->files->loop, &w->watch, w->socket, EPOLLIN, on_socket, e);
    return r == 0 ? sp_cell_join(cell, &w->in_cell, theirs, e) : r;
}

static int make_worker(struct sp_files *f, struct sp_cell *cell, bool is_confined,
                       struct sp_file_worker **ret, struct sp_err *e)
{
    struct sp_file_worker *w = calloc(1, sizeof *w);

    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process for file operations");
    *w = (struct sp_file_worker){.files = f,
                                 .in_cell = {.lost = on_lost},
                                 .is_confined = is_confined,
                                 .socket = -1,
                                 .spare = -1};
    sp_list_prepend(&f->workers, &w->link);
    f->worker_count++;
    const int r = open_worker(w, cell, e);
    if (r < 0 && w->socket >= 0) {
        hang_up(w);
    } else if (r < 0) {
        f->worker_count--;
        sp_loop_defer(f->loop, &w->end, free_worker);
    }
    if (r == 0)
        set_resting(w); /* sets the idle timer, in case no call follows */
    *ret = r < 0 ? NULL : w;
    return r;
}

/* ---- a call as a message; it may wait ---- */

/* The reads of a client must fit SP_FILES_READING_MAX, but the size of a file is not known. So a
 * READ asks for SP_FILES_SMALL_READ at first; on TOO_LARGE finish_call puts it back with its whole
 * limit, it runs when client->reading leaves room, and later reads wait behind it.
 */
static struct sp_files_message *make_message(const struct sp_files_job *job, struct sp_err *e)
{
    const struct sp_file_request *request = &job->request;
    const size_t a = request->path == NULL ? 0 : strlen(request->path);
    const size_t b = request->other == NULL ? 0 : strlen(request->other);
    const bool has_fd = request->op == SP_FILE_READ_BLOCK || request->op == SP_FILE_WRITE_BLOCK ||
                        request->op == SP_FILE_WATCH_MISSING ||
                        request->op == SP_FILE_WATCH_PRESENT;

    if (a > SP_FILE_MAX_PATH || b > SP_FILE_MAX_PATH) {
        /* the words of sp_fs_error_text, which answers paths that the worker finds too long */
        (void)sp_fail(e, SP_E_SYSTEM, ENAMETOOLONG, "Filename too long (os error %d)",
                      ENAMETOOLONG);
        return NULL;
    }
    struct sp_files_message *p = calloc(1, sizeof *p + a + b);
    if (p == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask for a file operation");
        return NULL;
    }
    *p = (struct sp_files_message){
        .head = {.op = request->op,
                 .flags = (request->follows ? SP_FILES_FOLLOWS : 0U) |
                          (request->is_recursive ? SP_FILES_RECURSIVE : 0U) |
                          (request->is_forced ? SP_FILES_FORCED : 0U) |
                          (request->is_replace ? SP_FILES_REPLACE : 0U) |
                          (request->hides_placeholders ? SP_FILES_HIDES_PLACEHOLDERS : 0U),
                 .offset = request->offset,
                 .length = request->length,
                 .walk = request->walk,
                 .path_len = (uint16_t)a,
                 .other_len = (uint16_t)b},
        .changes = sp_file_changes(request->op, request->is_replace),
        .fd = has_fd && job->handle == NULL ? request->fd : -1,
        .handle = job->handle,
        .data = -1,
        .session = job->session,
    };
    if (request->op == SP_FILE_READ) {
        p->limit = request->length == 0 ? SP_FILE_MAX_READ : request->length;
        p->head.length = p->limit < SP_FILES_SMALL_READ ? p->limit : SP_FILES_SMALL_READ;
    }
    memcpy(p->paths, request->path == NULL ? "" : request->path, a);
    memcpy(p->paths + a, request->other == NULL ? "" : request->other, b);
    return p;
}

static void free_message(struct sp_files_message *p)
{
    if (p == NULL)
        return;
    if (p->has_policy)
        sp_policy_done(&p->policy);
    if (p->data >= 0)
        (void)close(p->data);
    free(p);
}

/* An upper bound of the decoded data. */
static size_t size_of(const struct sp_files_job *job)
{
    return job->base64.p != NULL ? job->base64.n / 4 * 3 : job->raw.n;
}

/*
 * Data of a call that waits, or that is too large for a window, goes into a memory file. Allocating
 * pages costs more than the write itself, so one worker keeps the file of its last call (up to
 * SPARE_MAX bytes) for its next call. It never goes to another worker, which may have another
 * policy. worker NULL: the call has none yet.
 */
static int keep_apart(struct sp_files_call *c, const struct sp_files_job *job,
                      struct sp_file_worker *worker, struct sp_err *e)
{
    struct sp_files_message *p = c->message;
    const size_t room = size_of(job);
    char piece[PIECE / 4 * 3]; /* stays in the CPU cache */
    int err = 0;
    int r = 0;

    if (room > SP_FILES_DATA_MAX - c->client->kept)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %u bytes of one connection may wait to be written; ask for more "
                       "when some have been answered",
                       SP_FILES_DATA_MAX);
    if (worker != NULL && worker->files->spare == worker) {
        worker->files->spare = NULL;
        p->data = TAKE_FD(worker->spare);
    } else {
        p->data = memfd_create("sallyport-data", MFD_CLOEXEC);
    }
    if (p->data < 0 || lseek(p->data, 0, SEEK_SET) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "keep the data of a file operation");
    p->head.data_len = job->base64.p != NULL ? 0 : job->raw.n;
    if (job->base64.p == NULL)
        err = sp_write_all(p->data, job->raw.p, job->raw.n);
    for (size_t at = 0; r == 0 && err == 0 && job->base64.p != NULL && at < job->base64.n;
         at += PIECE) {
        const size_t left = job->base64.n - at;
        size_t n = 0;

        r = sp_base64_decode_part(job->base64, at, left < PIECE ? left : PIECE, piece, &n, e);
        if (r == 0) /* whole pages: the kernel does not clear them first */
            err = sp_write_all(p->data, piece, n);
        p->head.data_len += n;
    }
    if (err != 0)
        r = sp_fail(e, SP_E_SYSTEM, err, "keep the data of a file operation");
    p->head.flags |= SP_FILES_DATA_APART;
    p->kept = room;
    c->client->kept += room;
    return r;
}

static int take_data(struct sp_files_call *c, const struct sp_files_job *job,
                     struct sp_file_worker *worker, struct sp_err *e)
{
    const size_t room = size_of(job);
    char nothing[4];
    size_t n = 0;

    if (job->base64.p == NULL && job->raw.p == NULL)
        return 0;
    if (room > SP_FILES_WINDOW || (worker == NULL && room != 0))
        return keep_apart(c, job, worker, e);
    /* room 0: no data, or base64 text that is too short to be valid. */
    char *out = room == 0 ? nothing : worker->window;
    int r = 0;
    if (job->base64.p != NULL)
        r = sp_base64_decode(job->base64, out, &n, e);
    else
        memcpy(out, job->raw.p, room);
    c->message->head.data_len = job->base64.p != NULL ? n : room;
    return r;
}

/* ---- turns: which of a client's calls may begin ---- */

/* One path is the other, or lies above it. */
static bool are_related(struct sp_str a, struct sp_str b)
{
    const struct sp_str above = a.n <= b.n ? a : b;
    const struct sp_str below = a.n <= b.n ? b : a;

    return above.n != 0 && memcmp(above.p, below.p, above.n) == 0 &&
           (above.n == below.n || below.p[above.n] == '/' || above.p[above.n - 1] == '/');
}

/* The order of a and b matters: one changes something, and they share a handle or a path. */
static bool is_in_the_way(const struct sp_files_message *a, const struct sp_files_message *b)
{
    const struct sp_str pa = {a->paths, a->head.path_len};
    const struct sp_str pb = {b->paths, b->head.path_len};
    const struct sp_str oa = {a->paths + pa.n, a->head.other_len};
    const struct sp_str ob = {b->paths + pb.n, b->head.other_len};

    if (!a->changes && !b->changes)
        return false;
    if (a->handle != NULL && a->handle == b->handle)
        return true;
    return are_related(pa, pb) || are_related(pa, ob) || are_related(oa, pb) || are_related(oa, ob);
}

static bool is_read(const struct sp_files_call *c)
{
    return c->message->head.op == SP_FILE_READ;
}

/* READ: asked for as a small file; the file may be larger. */
static bool may_be_larger(const struct sp_files_call *c)
{
    return is_read(c) && c->message->head.length < c->message->limit;
}

static uint64_t bytes_to_read(const struct sp_files_call *c)
{
    return is_read(c) ? c->message->head.length : 0;
}

/* Whether an earlier call of the same client has to end first. */
static bool must_wait(const struct sp_files_call *c)
{
    sp_list_each(link, &c->client->calls) {
        const struct sp_files_call *i = SP_CONTAINER(link, const struct sp_files_call, link);

        if (i == c)
            return false;
        if ((i->message->handle != NULL && i->message->handle == c->message->handle &&
             i->message->head.op == SP_FILE_OPEN) ||
            is_in_the_way(i->message, c->message) ||
            (is_read(c) && is_read(i) && i->worker == NULL &&
             i->message->head.length > SP_FILES_SMALL_READ)) /* or the large read would starve */
            return true;
    }
    return false;
}

/* ---- calls ---- */

static void unlink_call(struct sp_files_call *c)
{
    c->client->kept -= c->message->kept;
    sp_list_remove(&c->link);
    c->client = NULL;
}

static void set_waiting(struct sp_files_call *c, bool is_waiting)
{
    c->message->call = c;
    if (is_waiting)
        sp_list_append(&c->files->waiting, &c->message->link);
    else
        sp_list_remove(&c->message->link);
    c->client->waiting += is_waiting ? 1U : -1U;
    c->files->waiting_count += is_waiting ? 1U : -1U;
}

/* *ret NULL: the call has to wait. */
static int find_worker_for(struct sp_files_call *c, const struct sp_policy *policy,
                           struct sp_file_worker **ret, struct sp_err *e)
{
    struct sp_front *front = c->files->front;
    struct sp_cell *cell = NULL;

    const struct sp_files_client *client = c->client;
    bool has_worker = c->files->worker_count < SP_FILE_WORKERS_MAX; /* one rests, or may be made */

    *ret = NULL;
    sp_list_each(i, &c->files->workers) {
        const struct sp_file_worker *w = SP_CONTAINER(i, const struct sp_file_worker, link);

        has_worker = has_worker || (w->socket >= 0 && !w->is_working);
    }
    /* Before the pool is asked: no cell is made for a call that must wait anyway. */
    if (!has_worker || client->is_held || client->working >= SP_FILES_CLIENT_MAX ||
        client->reading + bytes_to_read(c) > SP_FILES_READING_MAX || must_wait(c))
        return 0;
    const int r = policy == NULL
                      ? sp_front_cell(front, NULL, NULL, &cell, e)
                      : sp_cell_pool_get(front->cell_pool, c->message->session, policy, &cell, e);
    if (r < 0)
        return r;

    /* A resting worker of this cell, or a new one, for which at the limit the oldest resting worker
     * of another cell ends. */
    struct sp_file_worker *other = NULL;
    sp_list_each(i, &c->files->workers) {
        struct sp_file_worker *w = SP_CONTAINER(i, struct sp_file_worker, link);

        if (w->socket < 0 || w->is_working)
            continue;
        if (w->in_cell.cell == cell) {
            *ret = w;
            return 0;
        }
        other = w; /* the list ends with the oldest */
    }
    if (c->files->worker_count >= SP_FILE_WORKERS_MAX && other == NULL)
        return 0;
    if (c->files->worker_count >= SP_FILE_WORKERS_MAX)
        hang_up(other);
    return make_worker(c->files, cell, policy != NULL, ret, e);
}

/* A copy takes long: tells how far it is. */
static void on_slow(struct sp_timer *t)
{
    struct sp_file_worker *w = SP_CONTAINER(t, struct sp_file_worker, slow);
    struct sp_loop *loop = w->files->loop;
    const struct sp_files_message *p = w->call != NULL ? w->call->message : NULL;
    const uint64_t now = sp_loop_now(loop);

    if (p == NULL) /* dropped */
        return;
    sp_log(SP_LOG_INFO, "copying %.*s to %.*s: %.1f MiB in %.0f s so far", (int)p->head.path_len,
           p->paths, (int)p->head.other_len, p->paths + p->head.path_len,
           (double)atomic_load_explicit(&head_of(w)->filled, memory_order_relaxed) / (1 << 20),
           (double)(now - w->began_ms) / 1000);
    (void)sp_loop_timer(loop, t, now + SLOW_MS, on_slow); /* without memory: no more lines */
}

static int begin_call(struct sp_files_call *c, struct sp_file_worker *worker, struct sp_err *e)
{
    struct sp_files_message *p = c->message;
    const bool is_block = p->handle != NULL && p->head.op != SP_FILE_OPEN;

    if (is_block)
        p->fd = *p->handle;
    if (is_block && p->fd < 0)
        return sp_fail(e, SP_E_NOT_FOUND, 0, "unknown file handle");
    /* A message carries one descriptor, which is the file here. So data of a block that has waited
     * in a memory file goes back into the window. */
    if (is_block && p->data >= 0) {
        const size_t len = (size_t)p->head.data_len;

        if (p->head.data_len > SP_FILES_WINDOW ||
            pread(p->data, worker->window, len, 0) != (ssize_t)len)
            return sp_fail(e, SP_E_SYSTEM, EIO, "take back the data of a file operation");
        (void)close(TAKE_FD(p->data));
        p->head.flags &= ~(uint32_t)SP_FILES_DATA_APART;
    }

    sp_loop_cancel(worker->files->loop, &worker->idle);
    p->head.number = ++worker->number;
    worker->has_begun = false;
    atomic_store_explicit(&head_of(worker)->filled, 0, memory_order_relaxed);
    const int r = send_request(worker->socket, &p->head, p->paths, p->data >= 0 ? p->data : p->fd);
    if (r < 0) {
        hang_up(worker);
        return sp_fail(e, SP_E_FAILED, -r,
                       "the process for file operations does not answer; try it again");
    }
    worker->call = c;
    worker->op = (enum sp_file_op)p->head.op;
    worker->length = p->head.length;
    worker->is_working = true;
    worker->in_cell.is_idle = false;
    worker->files->working++;
    sp_loop_expect(worker->files->loop, EXPECTED_US);
    worker->began_ms = sp_loop_now(worker->files->loop);
    if (worker->op == SP_FILE_COPY)
        (void)sp_loop_timer(worker->files->loop, &worker->slow, worker->began_ms + SLOW_MS,
                            on_slow);
    c->worker = worker;
    c->client->working++;
    c->client->reading += bytes_to_read(c);
    return 0;
}

int sp_files_ask(struct sp_files *f, struct sp_files_client *client, const struct sp_files_job *job,
                 struct sp_files_call *c, struct sp_err *e)
{
    struct sp_file_worker *worker = NULL;

    if (client->waiting >= SP_FILES_WAITING_MAX)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %d file operations of one connection may wait; ask for more when "
                       "some have been answered",
                       SP_FILES_WAITING_MAX);
    c->files = f;
    c->worker = NULL;
    c->message = make_message(job, e);
    if (c->message == NULL)
        return -(int)e->code;
    if (client->calls.next == NULL)
        sp_list_init(&client->calls);
    sp_list_append(&client->calls, &c->link);
    c->client = client;
    int r = find_worker_for(c, job->policy, &worker, e);
    if (r == 0)
        r = take_data(c, job, worker, e);
    /* The job is borrowed: a call that waits, or may have to, needs its own copy of the policy. */
    if (r == 0 && job->policy != NULL &&
        (worker == NULL || may_be_larger(c) || !worker->in_cell.cell->is_ready)) {
        c->message->has_policy = sp_policy_copy(job->policy, &c->message->policy);
        if (!c->message->has_policy)
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a file operation");
    }
    if (r == 0 && worker == NULL)
        set_waiting(c, true);
    else if (r == 0)
        r = begin_call(c, worker, e);
    if (r < 0) {
        unlink_call(c);
        free_message(TAKE_PTR(c->message));
    }
    return r;
}

static void leave_worker(struct sp_files_call *c)
{
    TAKE_PTR(c->worker)->call = NULL; /* its answer is dropped */
    c->client->working--;
    c->client->reading -= bytes_to_read(c);
}

static void release_call(struct sp_files_call *c)
{
    if (c->worker != NULL)
        leave_worker(c);
    else
        set_waiting(c, false);
    unlink_call(c);
    free_message(TAKE_PTR(c->message));
}

/* The data of a call is in the window of a worker that never was: takes it back. */
static bool take_data_back(struct sp_files_message *p, const struct sp_file_worker *w)
{
    if (p->data >= 0 || p->head.data_len == 0)
        return true;
    p->data = memfd_create("sallyport-data", MFD_CLOEXEC);
    if (p->data < 0 || sp_write_all(p->data, w->window, (size_t)p->head.data_len) != 0)
        return false;
    p->head.flags |= SP_FILES_DATA_APART;
    return true;
}

/* Its cell was not built, because the disk has changed: the call waits for another cell. */
static bool try_again(struct sp_files_call *c)
{
    struct sp_files_message *p = c->message;

    if (!p->has_policy || ++p->tries > MAX_TRIES || !take_data_back(p, c->worker))
        return false;
    leave_worker(c);
    set_waiting(c, true);
    go_on(c->files);
    return true;
}

void sp_files_drop(struct sp_files_call *c)
{
    struct sp_files *f = c->files;

    if (c->client == NULL)
        return;
    if (c->worker != NULL)
        set_orphan(c->worker);
    release_call(c);
    go_on(f);
}

static void finish_call(struct sp_files_call *c, const struct sp_file_answer *a,
                        const struct sp_err *e)
{
    struct sp_files_message *p = c->message;

    if (a != NULL && a->err == 0 && a->refusal == SP_FILE_TOO_LARGE && may_be_larger(c)) {
        /* Larger than SP_FILES_SMALL_READ: waits until there is memory for all it may be. */
        leave_worker(c);
        p->head.length = p->limit;
        set_waiting(c, true);
        go_on(c->files);
        return;
    }
    struct sp_file_worker *w = c->worker;
    if (a != NULL && w != NULL && w->socket >= 0 && p->data >= 0 && p->kept <= SPARE_MAX) {
        drop_spare(w->files); /* the worker has read the data, and keeps its memory */
        w->spare = TAKE_FD(p->data);
        w->files->spare = w;
    }
    release_call(c);
    c->done(c, a, e);
}

/* ---- calls that wait ---- */

/* true: the call has begun or failed. */
static bool try_waiting(struct sp_files_call *c)
{
    const struct sp_policy *policy = c->message->has_policy ? &c->message->policy : NULL;
    struct sp_file_worker *worker = NULL;
    struct sp_err e = {0};
    int r = find_worker_for(c, policy, &worker, &e);

    if (r == 0 && worker == NULL)
        return false;
    if (r == 0) {
        set_waiting(c, false);
        r = begin_call(c, worker, &e);
        if (r == 0)
            return true;
        set_waiting(c, true);
    }
    finish_call(c, NULL, &e);
    return true;
}

static void try_all_waiting(struct sp_deferred *d)
{
    struct sp_files *f = SP_CONTAINER(d, struct sp_files, more);
    struct sp_list *i = f->waiting.next;

    while (i != &f->waiting) /* the callbacks of a call may change the list: start again */
        i = try_waiting(SP_CONTAINER(i, struct sp_files_message, link)->call) ? f->waiting.next
                                                                              : i->next;
}

void sp_files_resume(struct sp_files *f, struct sp_files_client *client)
{
    if (!client->is_held)
        return;
    client->is_held = false;
    go_on(f);
}

/* ---- closing ---- */

/* In a thread. An error of close() is ignored: fsync is how a writer asks about its data. */
static void close_file(struct sp_work *j)
{
    (void)close(SP_CONTAINER(j, struct sp_closing, work)->fd);
}

static void on_closed(struct sp_work *j)
{
    struct sp_closing *c = SP_CONTAINER(j, struct sp_closing, work);

    c->files->closing--;
    c->done(c);
}

static int find_closers(struct sp_files *f, struct sp_err *e)
{
    static const struct sp_workers_options o = {
        .threads = SP_CLOSING_THREADS,
        .share = 1,
        .stack_bytes = CLOSER_STACK,
        .run = close_file,
        .done = on_closed,
    };

    return f->closers != NULL ? 0 : sp_workers_new(f->loop, &o, &f->closers, e);
}

int sp_files_can_open(struct sp_files *f, struct sp_err *e)
{
    const int r = find_closers(f, e);

    if (r == 0 && f->closing >= SP_CLOSING_MAX)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "%d files wait to be closed: their file system does not answer",
                       SP_CLOSING_MAX);
    return r;
}

void sp_files_close(struct sp_files *f, struct sp_closing *c, int fd)
{
    struct sp_err e = {0};
    struct statx sx;

    if (find_closers(f, &e) < 0) {
        (void)close(fd); /* no thread can be had; may block */
        c->done(c);
        return;
    }
    c->files = f;
    c->fd = fd;
    c->work.key = UINT64_MAX;
    /* AT_STATX_DONT_SYNC: the kernel's cached answer, without asking the disk. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) == 0)
        c->work.key = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
    f->closing++;
    (void)sp_workers_add(f->closers, &c->work); /* tries again by itself */
}

/* ---- beginning and end ---- */

int sp_files_new(struct sp_front *front, struct sp_files **ret, struct sp_err *e)
{
    struct sp_files *f = calloc(1, sizeof *f);

    if (f == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare file operations");
    f->front = front;
    f->loop = front->loop;
    sp_list_init(&f->workers);
    sp_list_init(&f->waiting);
    *ret = f;
    return 0;
}

void sp_files_free(struct sp_files *f)
{
    if (f == NULL)
        return;
    while (!sp_list_is_empty(&f->workers)) {
        struct sp_file_worker *w =
            SP_CONTAINER(sp_list_first(&f->workers), struct sp_file_worker, link);

        hang_up(w);
        sp_loop_undefer(f->loop, &w->end);
        free_worker(&w->end);
    }
    sp_loop_undefer(f->loop, &f->more);
    if (f->closers != NULL && !sp_workers_free(f->closers))
        sp_log(SP_LOG_WARN, "files are left open: their disk does not answer");
    free(f);
}
