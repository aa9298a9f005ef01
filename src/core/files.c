/* SPDX-License-Identifier: Apache-2.0 */
#include "core/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "core/files_priv.h"

#define PIECE (64U << 10) /* symbols of base64, decoded at a time: their bytes are whole pages */

/* ---- a call as a message; it may wait ---- */

static uint32_t flags_of(const struct sp_file_ask *ask)
{
    return (ask->follows ? SP_FILES_FOLLOWS : 0U) | (ask->is_recursive ? SP_FILES_RECURSIVE : 0U) |
           (ask->is_forced ? SP_FILES_FORCED : 0U) | (ask->is_replace ? SP_FILES_REPLACE : 0U) |
           (ask->walk.follows_directories ? SP_FILES_WALK_FOLLOWS : 0U) |
           (ask->walk.prunes_hidden ? SP_FILES_WALK_PRUNES : 0U) |
           (ask->hides_placeholders ? SP_FILES_HIDES : 0U);
}

static bool has_fd(enum sp_file_op op)
{
    return op == SP_FILE_READ_BLOCK || op == SP_FILE_WRITE_BLOCK || op == SP_FILE_WATCH_MISSING ||
           op == SP_FILE_WATCH_PRESENT;
}

static struct sp_files_parked *park(const struct sp_files_job *job, struct sp_err *e)
{
    const struct sp_file_ask *ask = &job->ask;
    const size_t a = ask->path == NULL ? 0 : strlen(ask->path);
    const size_t b = ask->other == NULL ? 0 : strlen(ask->other);
    struct sp_files_parked *p = NULL;

    if (a > SP_FILE_MAX_PATH || b > SP_FILE_MAX_PATH) {
        (void)sp_fail(e, SP_E_SYSTEM, ENAMETOOLONG, "path");
        return NULL;
    }
    p = calloc(1, sizeof *p + a + b);
    if (p == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask for a file operation");
        return NULL;
    }
    *p = (struct sp_files_parked){
        .head = {.op = ask->op,
                 .flags = flags_of(ask),
                 .offset = ask->offset,
                 .length = ask->length,
                 .max_depth = ask->walk.max_depth,
                 .max_directories = ask->walk.max_directories,
                 .max_entries = ask->walk.max_entries,
                 .path_len = (uint16_t)a,
                 .other_len = (uint16_t)b},
        .changes = sp_file_changes(ask->op, ask->is_replace),
        .fd = has_fd(ask->op) && job->handle == NULL ? ask->fd : -1,
        .handle = job->handle,
        .data = -1,
        .session = job->session,
    };
    if (ask->op == SP_FILE_READ) {
        p->limit = ask->length == 0 ? SP_FILE_MAX_READ : ask->length;
        p->head.length = p->limit < SP_FILES_SMALL_READ ? p->limit : SP_FILES_SMALL_READ;
    }
    memcpy(p->paths, ask->path == NULL ? "" : ask->path, a);
    memcpy(p->paths + a, ask->other == NULL ? "" : ask->other, b);
    return p;
}

static void unpark(struct sp_files_parked *p)
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

static int put_data(const struct sp_files_job *job, char *out, size_t *ret_len, struct sp_err *e)
{
    if (job->base64.p != NULL)
        return sp_base64_decode(job->base64, out, ret_len, e);
    memcpy(out, job->raw.p, job->raw.n);
    *ret_len = job->raw.n;
    return 0;
}

static int write_memory(int fd, uint64_t at, const char *data, size_t n, struct sp_err *e)
{
    while (n > 0) {
        const ssize_t done = pwrite(fd, data, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "keep the data of a file operation");
        data += done;
        at += (size_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* put_data into a memory file, piece by piece: a piece stays in the CPU cache, and the kernel does
 * not clear pages that are written whole. */
static int put_memory(const struct sp_files_job *job, int fd, uint64_t *ret_len, struct sp_err *e)
{
    char piece[PIECE / 4 * 3];
    size_t n = 0;
    int r = 0;

    *ret_len = job->base64.p != NULL ? 0 : job->raw.n;
    if (job->base64.p == NULL)
        return write_memory(fd, 0, job->raw.p, job->raw.n, e);
    for (size_t at = 0; r == 0 && at < job->base64.n; at += PIECE) {
        const size_t left = job->base64.n - at;

        r = sp_base64_decode_part(job->base64, at, left < PIECE ? left : PIECE, piece, &n, e);
        if (r == 0)
            r = write_memory(fd, *ret_len, piece, n, e);
        *ret_len += n;
    }
    return r;
}

/* Data of a call that waits, or that is too large for a window, goes into a memory file. */
static int keep_apart(struct sp_files_call *c, const struct sp_files_job *job,
                      struct sp_files_server *server, struct sp_err *e)
{
    struct sp_files_parked *p = c->parked;
    const size_t room = size_of(job);

    if (room > SP_FILES_DATA_MAX - c->client->kept)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %u bytes of one connection may wait to be written; ask for more "
                       "when some have been answered",
                       SP_FILES_DATA_MAX);
    p->data = sp_files_take_memory(server);
    if (p->data < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "keep the data of a file operation");
    const int r = put_memory(job, p->data, &p->head.data_len, e);
    p->head.flags |= SP_FILES_DATA_APART;
    p->kept = room;
    c->client->kept += room;
    return r;
}

static int take_data(struct sp_files_call *c, const struct sp_files_job *job,
                     struct sp_files_server *server, struct sp_err *e)
{
    const size_t room = size_of(job);
    char nothing[4];
    size_t n = 0;

    if (job->base64.p == NULL && job->raw.p == NULL)
        return 0;
    if (room > SP_FILES_WINDOW || (server == NULL && room != 0))
        return keep_apart(c, job, server, e);
    /* room 0: no data, or base64 text that is too short to be valid. */
    const int r = put_data(job, room == 0 ? nothing : sp_files_window(server), &n, e);
    c->parked->head.data_len = n;
    return r;
}

/* ---- turns: which of a client's calls may begin ---- */

static bool is_at_or_above(struct sp_str a, struct sp_str b)
{
    return a.n <= b.n && memcmp(a.p, b.p, a.n) == 0 &&
           (a.n == b.n || b.p[a.n] == '/' || a.p[a.n - 1] == '/');
}

static bool are_related(struct sp_str a, struct sp_str b)
{
    return a.n != 0 && b.n != 0 && (is_at_or_above(a, b) || is_at_or_above(b, a));
}

/* The order of a and b matters: one changes something, and they share a handle or a path. */
static bool is_in_the_way(const struct sp_files_parked *a, const struct sp_files_parked *b)
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
    return c->parked->head.op == SP_FILE_READ;
}

/* Later reads must not overtake a large read that waits for memory, or it would starve. */
static bool waits_for_room(const struct sp_files_call *c)
{
    return is_read(c) && c->server == NULL && c->parked->head.length > SP_FILES_SMALL_READ;
}

/* READ: asked for as a small file; the file may be larger. */
static bool may_be_larger(const struct sp_files_call *c)
{
    return is_read(c) && c->parked->head.length < c->parked->limit;
}

static void count_read(struct sp_files_call *c, bool begins)
{
    const uint64_t bytes = is_read(c) ? c->parked->head.length : 0;

    c->client->reading = begins ? c->client->reading + bytes : c->client->reading - bytes;
}

/* Whether an earlier call of the same client has to end first. */
static bool must_wait(const struct sp_files_call *c)
{
    for (const struct sp_files_call *i = c->client->first; i != c; i = i->next)
        if ((i->parked->handle != NULL && i->parked->handle == c->parked->handle &&
             i->parked->head.op == SP_FILE_OPEN) ||
            (!c->client->is_concurrent && is_in_the_way(i->parked, c->parked)) ||
            (is_read(c) && waits_for_room(i)))
            return true;
    return false;
}

static bool is_its_turn(const struct sp_files_call *c)
{
    const struct sp_files_client *client = c->client;

    return !client->is_held && client->working < SP_FILES_CLIENT_MAX &&
           (!is_read(c) || client->reading + c->parked->head.length <= SP_FILES_READING_MAX) &&
           !must_wait(c);
}

/* ---- calls ---- */

static void link_call(struct sp_files_client *client, struct sp_files_call *c)
{
    c->client = client;
    c->next = NULL;
    c->prev = client->last;
    *(client->last == NULL ? &client->first : &client->last->next) = c;
    client->last = c;
}

static void unlink_call(struct sp_files_call *c)
{
    struct sp_files_client *client = c->client;

    client->kept -= c->parked->kept;
    *(c->prev == NULL ? &client->first : &c->prev->next) = c->next;
    *(c->next == NULL ? &client->last : &c->next->prev) = c->prev;
    c->client = NULL;
}

static void set_waiting(struct sp_files_call *c)
{
    struct sp_files *f = c->files;
    struct sp_files_parked *p = c->parked;

    p->call = c;
    p->prev = f->last_waiting;
    *(p->prev == NULL ? &f->first_waiting : &p->prev->next) = p;
    f->last_waiting = p;
    c->client->waiting++;
    f->waiting++;
}

static void set_not_waiting(struct sp_files_call *c)
{
    struct sp_files *f = c->files;
    struct sp_files_parked *p = c->parked;

    *(p->prev == NULL ? &f->first_waiting : &p->prev->next) = p->next;
    *(p->next == NULL ? &f->last_waiting : &p->next->prev) = p->prev;
    p->prev = p->next = NULL;
    c->client->waiting--;
    f->waiting--;
}

static int find_cell(struct sp_files *f, const struct sp_policy *policy, uint64_t session,
                     struct sp_cell **ret, struct sp_err *e)
{
    return policy == NULL ? sp_front_cell(f->front, ret, e)
                          : sp_cell_pool_get(f->front->cell_pool, session, policy, ret, e);
}

/* *ret NULL: the call has to wait. */
static int find_server(struct sp_files_call *c, const struct sp_policy *policy,
                       struct sp_files_server **ret, struct sp_err *e)
{
    struct sp_cell *cell = NULL;

    *ret = NULL;
    if (!is_its_turn(c) || !sp_files_can_begin(c->files))
        return 0;
    const int r = find_cell(c->files, policy, c->parked->session, &cell, e);
    return r < 0 ? r : sp_files_find_server(c->files, cell, policy != NULL, ret, e);
}

/* A message carries one descriptor, which is the file here. So data of a block that has waited in a
 * memory file goes back into the window. */
static int take_block(struct sp_files_parked *p, struct sp_files_server *server, struct sp_err *e)
{
    p->fd = *p->handle;
    if (p->fd < 0)
        return sp_fail(e, SP_E_NOT_FOUND, 0, "unknown file handle");
    if (p->data < 0)
        return 0;
    if (p->head.data_len > SP_FILES_WINDOW ||
        pread(p->data, sp_files_window(server), (size_t)p->head.data_len, 0) !=
            (ssize_t)p->head.data_len)
        return sp_fail(e, SP_E_SYSTEM, EIO, "take back the data of a file operation");
    (void)close(TAKE_FD(p->data));
    p->head.flags &= ~(uint32_t)SP_FILES_DATA_APART;
    return 0;
}

static int begin_call(struct sp_files_call *c, struct sp_files_server *server, struct sp_err *e)
{
    const bool is_block = c->parked->handle != NULL && c->parked->head.op != SP_FILE_OPEN;
    int r = is_block ? take_block(c->parked, server, e) : 0;

    if (r == 0)
        r = sp_files_server_ask(server, c, e);
    if (r < 0)
        return r;
    c->server = server;
    c->client->working++;
    count_read(c, true);
    return 0;
}

/* The job is borrowed: a call that waits needs its own copy of the policy. */
static int keep_policy(struct sp_files_parked *p, const struct sp_policy *policy, struct sp_err *e)
{
    if (policy != NULL && !sp_policy_copy(policy, &p->policy))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a file operation");
    p->has_policy = policy != NULL;
    return 0;
}

int sp_files_ask(struct sp_files *f, struct sp_files_client *client, const struct sp_files_job *job,
                 struct sp_files_call *c, struct sp_err *e)
{
    struct sp_files_server *server = NULL;

    if (client->waiting >= SP_FILES_WAITING_MAX)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %d file operations of one connection may wait; ask for more when "
                       "some have been answered",
                       SP_FILES_WAITING_MAX);
    c->files = f;
    c->server = NULL;
    c->parked = park(job, e);
    if (c->parked == NULL)
        return -(int)e->code;
    link_call(client, c);
    int r = find_server(c, job->policy, &server, e);
    if (r == 0)
        r = take_data(c, job, server, e);
    if (r == 0 && (server == NULL || may_be_larger(c)))
        r = keep_policy(c->parked, job->policy, e);
    if (r == 0 && server == NULL)
        set_waiting(c);
    else if (r == 0)
        r = begin_call(c, server, e);
    if (r < 0) {
        unlink_call(c);
        unpark(TAKE_PTR(c->parked));
    }
    return r;
}

static void leave_server(struct sp_files_call *c)
{
    sp_files_server_forget(TAKE_PTR(c->server));
    c->client->working--;
    count_read(c, false);
}

static void release_call(struct sp_files_call *c)
{
    if (c->server != NULL)
        leave_server(c);
    else
        set_not_waiting(c);
    unlink_call(c);
    unpark(TAKE_PTR(c->parked));
}

/* The file is larger than SP_FILES_SMALL_READ: waits until there is memory for c->parked->limit. */
static void wait_for_room(struct sp_files_call *c)
{
    leave_server(c);
    c->parked->head.length = c->parked->limit;
    set_waiting(c);
    sp_files_go_on(c->files);
}

void sp_files_drop(struct sp_files_call *c)
{
    struct sp_files *f = c->files;

    if (c->client == NULL)
        return;
    if (c->server != NULL)
        sp_files_server_orphan(c->server);
    release_call(c);
    sp_files_go_on(f);
}

void sp_files_finish(struct sp_files_call *c, const struct sp_file_answer *a,
                     const struct sp_err *e)
{
    struct sp_files_parked *p = c->parked;

    if (a != NULL && a->err == 0 && a->refusal == SP_FILE_TOO_LARGE && may_be_larger(c)) {
        wait_for_room(c);
        return;
    }
    if (a != NULL && c->server != NULL && p->data >= 0)
        sp_files_give_memory(c->server, TAKE_FD(p->data), p->kept); /* the server has read it */
    release_call(c);
    c->done(c, a, e);
}

/* ---- calls that wait ---- */

/* true: the call has begun or failed. */
static bool try_waiting(struct sp_files_call *c)
{
    const struct sp_policy *policy = c->parked->has_policy ? &c->parked->policy : NULL;
    struct sp_files_server *server = NULL;
    struct sp_err e = {0};
    int r = find_server(c, policy, &server, &e);

    if (r == 0 && server == NULL)
        return false;
    if (r == 0) {
        set_not_waiting(c);
        r = begin_call(c, server, &e);
        if (r == 0)
            return true;
        set_waiting(c);
    }
    sp_files_finish(c, NULL, &e);
    return true;
}

static void try_all_waiting(struct sp_deferred *d)
{
    struct sp_files *f = SP_CONTAINER(d, struct sp_files, more);
    struct sp_files_parked *p = f->first_waiting;

    while (p != NULL) /* the callbacks of a call may change the list: start again */
        p = try_waiting(p->call) ? f->first_waiting : p->next;
}

void sp_files_go_on(struct sp_files *f)
{
    if (f->first_waiting != NULL)
        sp_loop_defer(f->loop, &f->more, try_all_waiting);
}

void sp_files_resume(struct sp_files *f, struct sp_files_client *client)
{
    if (!client->is_held)
        return;
    client->is_held = false;
    sp_files_go_on(f);
}

/* ---- closing ---- */

static int find_closer(struct sp_files *f, struct sp_err *e)
{
    return f->closer != NULL ? 0 : sp_closer_new(f->loop, &f->closer, e);
}

int sp_files_can_open(struct sp_files *f, struct sp_err *e)
{
    const int r = find_closer(f, e);

    if (r == 0 && sp_closer_is_full(f->closer))
        return sp_fail(e, SP_E_LIMIT, 0,
                       "%d files wait to be closed: their file system does not answer",
                       SP_CLOSING_MAX);
    return r;
}

void sp_files_close(struct sp_files *f, struct sp_closing *c, int fd)
{
    struct sp_err e = {0};

    if (find_closer(f, &e) == 0) {
        sp_closer_close(f->closer, c, fd);
        return;
    }
    (void)close(fd); /* no thread can be had; may block */
    c->done(c);
}

/* ---- beginning and end ---- */

int sp_files_new(struct sp_front *front, struct sp_files **ret, struct sp_err *e)
{
    struct sp_files *f = calloc(1, sizeof *f);

    if (f == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare file operations");
    f->front = front;
    f->loop = front->loop;
    *ret = f;
    return 0;
}

void sp_files_free(struct sp_files *f)
{
    if (f == NULL)
        return;
    sp_loop_undefer(f->loop, &f->more);
    sp_files_end_servers(f);
    sp_closer_free(f->closer);
    free(f);
}

struct sp_files_counts sp_files_counts(const struct sp_files *f)
{
    struct sp_files_counts n = {.servers = f->server_count + f->orphan_count,
                                .waiting = f->waiting};

    for (const struct sp_files_server *s = f->servers; s != NULL; s = sp_files_next_server(s))
        n.working += sp_files_server_is_working(s) ? 1U : 0U;
    return n;
}
