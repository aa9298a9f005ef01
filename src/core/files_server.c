/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_server: the front's side of a process that does file operations. The process may be taken
 * over by hostile commands, so each message is checked.
 */
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
#include "base/log.h"
#include "core/files_priv.h"
#include "os/fd.h"

#define EXPECTED_US      100 /* the loop polls this long for an answer (sp_loop_expect) */
#define IDLE_CONFINED_MS 250 /* short: an idle server keeps its cell, and its placeholders */
#define WINDOW_SEALS     (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define MEMORY_SEALS     (F_SEAL_SHRINK | F_SEAL_WRITE)

struct sp_files_server {
    struct sp_files *files;
    struct sp_files_server *prev, *next;
    struct sp_cell_helper helper;
    bool is_confined, is_working;
    bool is_orphan;  /* works for a client that is gone */
    bool is_closing; /* has answered, and is closing the file it has opened */
    int socket;
    struct sp_watch watch;
    struct sp_timer idle;
    struct sp_deferred end;
    char *window;
    struct sp_files_call *call; /* NULL: the answer is dropped */
    enum sp_file_op op;
    uint32_t length; /* the most bytes to read */
    uint64_t number;
    int spare; /* a memory file; -1: none */
};

/* ---- ends ---- */

static void free_server(struct sp_deferred *d)
{
    struct sp_files_server *s = SP_CONTAINER(d, struct sp_files_server, end);
    struct sp_files *f = s->files;

    *(s->prev == NULL ? &f->servers : &s->prev->next) = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->window != NULL)
        (void)munmap(s->window, SP_FILES_WINDOW);
    free(s);
}

static void drop_spare(struct sp_files *f)
{
    if (f->spare != NULL)
        (void)close(TAKE_FD(f->spare->spare));
    f->spare = NULL;
}

void sp_files_server_orphan(struct sp_files_server *s)
{
    struct sp_files *f = s->files;

    if (s->is_orphan || f->orphan_count == SP_FILES_ORPHANS_MAX)
        return;
    s->is_orphan = true;
    f->orphan_count++;
    f->server_count--;
}

/* An orphan that answers counts as a server again. */
static void count_again(struct sp_files_server *s)
{
    if (!s->is_orphan)
        return;
    s->is_orphan = false;
    s->files->orphan_count--;
    s->files->server_count++;
}

/* The process sees the end of its socket and exits; one that hangs ends with its cell. */
static void hang_up(struct sp_files_server *s)
{
    if (s->socket < 0)
        return;
    if (s->files->spare == s)
        drop_spare(s->files);
    sp_loop_unwatch(s->files->loop, &s->watch);
    sp_loop_cancel(s->files->loop, &s->idle);
    (void)shutdown(s->socket, SHUT_RDWR);
    (void)close(TAKE_FD(s->socket));
    sp_cell_leave(&s->helper);
    count_again(s);
    s->files->server_count--;
    sp_loop_defer(s->files->loop, &s->end, free_server);
    sp_files_go_on(s->files);
}

static void fail_server(struct sp_files_server *s, const struct sp_err *why)
{
    struct sp_err e = {0};

    hang_up(s);
    if (s->call == NULL)
        return;
    if (why == NULL || why->code == SP_E_NONE)
        (void)sp_fail(&e, SP_E_FAILED, 0,
                      "the process that did this file operation has ended; try it again");
    else
        e = *why;
    sp_files_finish(s->call, NULL, &e);
}

static void on_lost(struct sp_cell_helper *h, const struct sp_err *why)
{
    fail_server(SP_CONTAINER(h, struct sp_files_server, helper), why);
}

static void on_idle(struct sp_timer *t)
{
    hang_up(SP_CONTAINER(t, struct sp_files_server, idle));
}

static void set_resting(struct sp_files_server *s)
{
    const uint64_t ms = s->is_confined ? IDLE_CONFINED_MS : SP_FILES_IDLE_MS;

    s->is_working = false;
    s->is_closing = false;
    s->helper.is_resting = true;
    count_again(s);
    if (s->files->server_count > SP_FILES_SERVERS_MAX ||
        !sp_loop_timer(s->files->loop, &s->idle, sp_loop_now(s->files->loop) + ms, on_idle))
        hang_up(s);
    sp_files_go_on(s->files);
}

void sp_files_end_servers(struct sp_files *f)
{
    while (f->servers != NULL) {
        struct sp_files_server *s = f->servers;

        hang_up(s);
        sp_loop_undefer(f->loop, &s->end);
        free_server(&s->end);
    }
    sp_loop_undefer(f->loop, &f->more);
}

/* ---- receiving ---- */

struct received {
    struct sp_files_answer m;
    int fd; /* -1: none */
};

static void free_closing(struct sp_closing *c)
{
    free(c);
}

/* close() of an unexpected descriptor may block: on its disk, or in SO_LINGER of a socket. */
static void drop_fd(const struct sp_files_server *s, struct received *h)
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
    sp_files_close(s->files, c, fd);
}

/* A regular file and nothing else: the front, which reads from it later, is not confined. */
static bool is_file(int fd)
{
    struct statx sx;

    /* AT_STATX_DONT_SYNC: the cached answer, without asking the disk. */
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) == 0 &&
           S_ISREG(sx.stx_mode);
}

static bool is_answer(const struct sp_files_server *s, const struct received *h, int flags)
{
    return (flags & MSG_CTRUNC) == 0 && sp_files_is_answer(s->op, s->length, &h->m, h->fd >= 0) &&
           (s->op != SP_FILE_OPEN || h->fd < 0 || is_file(h->fd));
}

/* 1: *h is filled; 0: no message; -1: the process has ended, or the message is invalid. The control
 * buffer has room for one descriptor, or none if the answer is dropped: the kernel discards others
 * without a close() that could block. */
static int receive(const struct sp_files_server *s, struct received *h)
{
    struct iovec iov = {.iov_base = &h->m, .iov_len = sizeof h->m};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    const int max_fds = s->call == NULL ? 0 : 1;
    int fd_count;
    const ssize_t n = sp_fd_recv(s->socket, &msg, MSG_DONTWAIT, &h->fd, max_fds, &fd_count);

    h->fd = fd_count == 0 ? -1 : sp_fd_lift(h->fd);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    const bool is_fine = n == (ssize_t)sizeof h->m && (msg.msg_flags & MSG_TRUNC) == 0 &&
                         h->m.number == s->number && s->is_working &&
                         s->is_closing == ((h->m.flags & SP_FILES_BACK) != 0) &&
                         (s->call == NULL || is_answer(s, h, msg.msg_flags));
    if (!is_fine)
        drop_fd(s, h);
    return is_fine ? 1 : -1;
}

/* Maps a memory file of the process; the seals keep it from being truncated while we read. */
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

static void report_answer(struct sp_files_server *s, struct received *h, char *data, bool *is_kept)
{
    struct sp_files_call *c = s->call;
    const uint32_t flags = h->m.flags;
    const int opened = s->op == SP_FILE_OPEN ? h->fd : -1;
    const struct sp_file_answer a = {
        .err = h->m.err,
        .refusal = (enum sp_file_refusal)h->m.refusal,
        .number = h->m.value,
        .is_cut = (flags & SP_FILES_CUT) != 0,
        .stat = {.is_directory = (flags & SP_FILES_IS_DIRECTORY) != 0,
                 .is_file = (flags & SP_FILES_IS_FILE) != 0,
                 .is_link = (flags & SP_FILES_IS_LINK) != 0,
                 .size = h->m.size,
                 .created_ms = h->m.created_ms,
                 .modified_ms = h->m.modified_ms},
        .fd = opened,
        .window = data,
        .window_size = (size_t)h->m.data_len,
        .data_len = h->m.data_len,
        .memory = -1,
        .is_kept = is_kept,
    };

    if (opened >= 0)
        h->fd = -1; /* the caller closes it */
    sp_files_finish(c, &a, NULL);
}

/* Closing may block for the disk; the call is answered already. */
static void await_back(struct sp_files_server *s)
{
    s->is_closing = true;
    sp_files_server_orphan(s);
    sp_loop_expect(s->files->loop, EXPECTED_US);
}

static void on_answer(struct sp_files_server *s, struct received *h)
{
    const bool is_apart = (h->m.flags & SP_FILES_APART) != 0;
    bool is_kept = false;
    void *map = NULL;

    if (s->call != NULL && is_apart && (map = map_memory(h)) == NULL) {
        fail_server(s, NULL);
    } else {
        if (s->call != NULL)
            report_answer(s, h, is_apart ? map : s->window, is_apart ? &is_kept : NULL);
        if (s->socket >= 0 && (h->m.flags & SP_FILES_OPENED) != 0)
            await_back(s);
        else if (s->socket >= 0)
            set_resting(s);
    }
    if (map != NULL && !is_kept)
        (void)munmap(map, (size_t)h->m.data_len);
    drop_fd(s, h);
}

static void on_socket(struct sp_watch *w, uint32_t events)
{
    struct sp_files_server *s = SP_CONTAINER(w, struct sp_files_server, watch);
    struct received h;
    const int r = receive(s, &h);

    (void)events;
    if (r > 0)
        on_answer(s, &h);
    else if (r < 0)
        fail_server(s, NULL);
}

/* ---- sending ---- */

static int send_ask(int socket, const struct sp_files_ask *m, const char *paths, int fd)
{
    return sp_wire_send(socket, false, m, sizeof *m, paths, (size_t)m->path_len + m->other_len, &fd,
                        fd >= 0);
}

int sp_files_server_ask(struct sp_files_server *s, struct sp_files_call *c, struct sp_err *e)
{
    struct sp_files_parked *p = c->parked;

    sp_loop_cancel(s->files->loop, &s->idle);
    p->head.number = ++s->number;
    const int r = send_ask(s->socket, &p->head, p->paths, p->data >= 0 ? p->data : p->fd);
    if (r < 0) {
        hang_up(s);
        return sp_fail(e, SP_E_FAILED, -r,
                       "the process for file operations does not answer; try it again");
    }
    s->call = c;
    s->op = (enum sp_file_op)p->head.op;
    s->length = p->head.length;
    s->is_working = true;
    sp_loop_expect(s->files->loop, EXPECTED_US);
    s->helper.is_resting = false;
    return 0;
}

void sp_files_server_forget(struct sp_files_server *s)
{
    s->call = NULL;
}

int sp_files_take_memory(struct sp_files_server *s)
{
    if (s == NULL || s->files->spare != s)
        return memfd_create("sallyport-data", MFD_CLOEXEC);
    s->files->spare = NULL;
    return TAKE_FD(s->spare);
}

void sp_files_give_memory(struct sp_files_server *s, int fd, size_t size)
{
    if (s->socket < 0 || size > SP_FILES_SPARE_MAX) {
        (void)close(fd);
        return;
    }
    drop_spare(s->files);
    s->spare = fd;
    s->files->spare = s;
}

char *sp_files_window(struct sp_files_server *s)
{
    return s->window;
}

bool sp_files_server_is_working(const struct sp_files_server *s)
{
    return s->is_working && s->socket >= 0;
}

struct sp_files_server *sp_files_next_server(const struct sp_files_server *s)
{
    return s->next;
}

/* ---- new servers ---- */

/* Maps the window and sends it to the process. */
static int share_window(struct sp_files_server *s, struct sp_err *e)
{
    const struct sp_files_ask hello = {0};
    auto_close int window = memfd_create("sallyport-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (window < 0 || ftruncate(window, SP_FILES_WINDOW) < 0 ||
        fcntl(window, F_ADD_SEALS, WINDOW_SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make room for file operations");
    void *map = mmap(NULL, SP_FILES_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
    if (map == MAP_FAILED)
        return sp_fail(e, SP_E_SYSTEM, errno, "make room for file operations");
    s->window = map;
    const int r = send_ask(s->socket, &hello, NULL, window);
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "greet a process for file operations") : 0;
}

static int open_server(struct sp_files_server *s, struct sp_cell *cell, struct sp_err *e)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket for file operations");
    s->socket = sp_fd_lift(pair[0]);
    auto_close int theirs = sp_fd_lift(pair[1]);
    int r = share_window(s, e);
    if (r == 0)
        r = sp_loop_watch(s->files->loop, &s->watch, s->socket, EPOLLIN, on_socket, e);
    return r == 0 ? sp_cell_join(cell, &s->helper, theirs, e) : r;
}

static int make_server(struct sp_files *f, struct sp_cell *cell, bool is_confined,
                       struct sp_files_server **ret, struct sp_err *e)
{
    struct sp_files_server *s = calloc(1, sizeof *s);

    if (s == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process for file operations");
    *s = (struct sp_files_server){.files = f,
                                  .next = f->servers,
                                  .helper = {.lost = on_lost},
                                  .is_confined = is_confined,
                                  .socket = -1,
                                  .spare = -1};
    if (s->next != NULL)
        s->next->prev = s;
    f->servers = s;
    f->server_count++;
    const int r = open_server(s, cell, e);
    if (r < 0 && s->socket >= 0) {
        hang_up(s);
    } else if (r < 0) {
        f->server_count--;
        sp_loop_defer(f->loop, &s->end, free_server);
    }
    if (r == 0)
        set_resting(s); /* sets the idle timer, in case no call follows */
    *ret = r < 0 ? NULL : s;
    return r;
}

bool sp_files_can_begin(const struct sp_files *f)
{
    const struct sp_files_server *s = f->servers;

    while (s != NULL && (s->socket < 0 || s->is_working))
        s = s->next;
    return s != NULL || f->server_count < SP_FILES_SERVERS_MAX;
}

int sp_files_find_server(struct sp_files *f, struct sp_cell *cell, bool is_confined,
                         struct sp_files_server **ret, struct sp_err *e)
{
    struct sp_files_server *other = NULL;

    *ret = NULL;
    for (struct sp_files_server *s = f->servers; s != NULL; s = s->next) {
        if (s->socket < 0 || s->is_working)
            continue;
        if (s->helper.cell == cell) {
            *ret = s;
            return 0;
        }
        other = s; /* the list ends with the oldest */
    }
    if (f->server_count >= SP_FILES_SERVERS_MAX && other == NULL)
        return 0;
    if (f->server_count >= SP_FILES_SERVERS_MAX)
        hang_up(other);
    return make_server(f, cell, is_confined, ret, e);
}
