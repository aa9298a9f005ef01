/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs/watchMissing. The paths are looked at, and the kernel is told to watch, by the processes that
 * do file operations; what it then says is read here. A watch that cannot be had is no error: the
 * client goes on looking for itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/log.h"
#include "os/notify.h"
#include "server/rpc/conn_priv.h"
#include "server/rpc/fs.h"
#include "server/rpc/methods.h"
#include "server/rpc/text.h"
#include "server/rpc/watch_ids.h"
#include "server/rpc/watches.h"

/* One path of a watch. */
struct item {
    struct sp_files_call call; /* until it is known what to watch */
    struct watch *watch;
    bool is_present; /* it is there, and any change counts */
    int dir, self;   /* watches of the kernel; -1: none */
    size_t dir_len;  /* what of the path is watched; the component after that is waited for */
    struct sp_file_above *above; /* those further up */
    size_t above_count;
    char *path;
};

struct watch {
    struct watch *prev, *next;
    struct sp_conn *conn;
    struct sp_request *request; /* NULL: answered */
    uint64_t id;
    uint32_t left; /* paths that are being looked at */
    bool has_failed, has_fired;
    uint32_t count;
    struct item items[];
};

struct sp_watches {
    struct sp_rpc *rpc;
    int fd;
    struct sp_watch on_event;
    struct watch *first;
    uint32_t looking; /* paths that are being looked at, of all watches */
    struct sp_watch_ids ids;
};

static void forget_unused(struct sp_watches *all)
{
    if (all->looking == 0)
        sp_watch_ids_sweep(&all->ids);
}

/* ---- ends ---- */

static void free_item(struct sp_watches *all, struct item *i)
{
    if (i->call.client != NULL) {
        sp_files_drop(&i->call);
        all->looking--;
    }
    if (i->dir >= 0)
        sp_watch_ids_leave(&all->ids, i->dir);
    if (i->self >= 0)
        sp_watch_ids_leave(&all->ids, i->self);
    for (size_t k = 0; k < i->above_count; k++)
        sp_watch_ids_leave(&all->ids, i->above[k].watch);
    free(i->above);
    free(i->path);
}

static void free_watch(struct watch *w)
{
    struct sp_watches *all = w->conn->rpc->watches;

    *(w->prev == NULL ? &all->first : &w->prev->next) = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    for (uint32_t i = 0; i < w->count; i++)
        free_item(all, &w->items[i]);
    free(w);
}

void sp_watches_drop(struct sp_conn *conn)
{
    struct sp_watches *all = conn->rpc->watches;
    struct watch *next;

    if (all == NULL)
        return;
    for (struct watch *w = all->first; w != NULL; w = next) {
        next = w->next;
        if (w->conn == conn)
            free_watch(w);
    }
    forget_unused(all);
}

void sp_watches_free(struct sp_rpc *rpc)
{
    struct sp_watches *all = rpc->watches;

    if (all == NULL)
        return;
    sp_loop_unwatch(rpc->server->loop, &all->on_event);
    (void)close(all->fd);
    sp_watch_ids_done(&all->ids);
    free(all);
    rpc->watches = NULL;
}

/* ---- what the kernel says ---- */

static void tell(struct watch *w)
{
    char *const o = sp_link_reserve(w->conn->link, 96);

    if (o == NULL)
        return;
    char *end = sp_put_literal(o, "{\"method\":\"fs/missingChanged\",\"params\":{\"watchId\":");
    end = sp_put_literal(sp_put_u64(end, w->id), "}}");
    sp_link_commit(w->conn->link, (size_t)(end - o));
}

/* Told once; one that is not answered yet is told after that. */
static void fire(struct watch *w)
{
    w->has_fired = true;
    if (w->request != NULL || w->left > 0)
        return;
    tell(w);
    free_watch(w);
}

/* The component behind so many bytes of the path. */
static struct sp_str next_component(const struct item *i, size_t len)
{
    const char *name = i->path + len;

    name += strspn(name, "/");
    return (struct sp_str){name, strcspn(name, "/")};
}

static bool is_placeholder(const struct item *i)
{
    const struct sp_cell_pool *cell_pool = i->watch->conn->rpc->server->cell_pool;
    const struct sp_str name = next_component(i, i->dir_len);
    auto_free char *path = strndup(i->path, (size_t)(name.p - i->path) + name.n);

    return path != NULL && sp_cell_pool_has_placeholder(cell_pool, path);
}

/* About a directory further up, or a link there. */
static bool is_above(const struct item *i, const struct sp_file_notice *n)
{
    for (size_t k = 0; k < i->above_count; k++)
        if (i->above[k].watch == n->id &&
            (n->name == NULL ||
             (i->above[k].len != 0 &&
              sp_str_eq(next_component(i, i->above[k].len), sp_str_of(n->name)))))
            return true;
    return false;
}

/* What the kernel says may come before the answer that says which watch that is: then a name that
 * occurs in the path is taken for the one. */
static bool may_be_meant(const struct item *i, const struct sp_file_notice *n)
{
    if (n->name == NULL)
        return true;
    for (size_t at = 0; i->path[at] != 0;) {
        const struct sp_str name = next_component(i, at);

        if (sp_str_eq(name, sp_str_of(n->name)))
            return true;
        at = (size_t)(name.p - i->path) + name.n;
    }
    return false;
}

static bool is_meant(const struct item *i, const struct sp_file_notice *n)
{
    if (n->id < 0)
        return true; /* some were lost */
    if (i->call.client != NULL)
        return may_be_meant(i, n);
    if (n->name == NULL && (n->id == i->dir || n->id == i->self))
        return true;
    if (is_above(i, n))
        return true;
    if (n->name == NULL || n->id != i->dir ||
        !sp_str_eq(next_component(i, i->dir_len), sp_str_of(n->name)))
        return false;
    return i->is_present || (!n->is_gone && !is_placeholder(i));
}

static void on_notice(void *user, const struct sp_file_notice *n)
{
    struct sp_watches *all = user;
    struct watch *next;

    for (struct watch *w = all->first; w != NULL; w = next) {
        bool is_hit = false;

        next = w->next;
        for (uint32_t i = 0; i < w->count && !is_hit && !w->has_fired; i++)
            is_hit = is_meant(&w->items[i], n);
        if (is_hit)
            fire(w);
    }
    if (n->id >= 0 && !n->is_over && all->looking == 0)
        sp_watch_ids_check(&all->ids, n->id);
}

static void on_event(struct sp_watch *w, uint32_t events)
{
    struct sp_watches *all = SP_CONTAINER(w, struct sp_watches, on_event);

    (void)events;
    (void)sp_notify_read(all->fd, on_notice, all);
    forget_unused(all);
}

/* ---- beginnings ---- */

static struct sp_watches *watches_of(struct sp_rpc *rpc)
{
    if (rpc->watches != NULL)
        return rpc->watches;
    struct sp_watches *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->rpc = rpc;
    all->fd = sp_notify_open();
    if (all->fd < 0 ||
        sp_loop_watch(rpc->server->loop, &all->on_event, all->fd, EPOLLIN, on_event, NULL) < 0) {
        if (all->fd >= 0)
            (void)close(all->fd);
        free(all);
        return NULL;
    }
    all->ids.fd = all->fd;
    rpc->watches = all;
    return all;
}

static void finish(struct watch *w)
{
    struct sp_watches *all = w->conn->rpc->watches;
    struct sp_request *r = TAKE_PTR(w->request);

    if (w->has_failed) {
        free_watch(w);
        sp_request_reply(r, SP_STR("{\"watching\":false}"));
    } else {
        sp_request_reply(r, SP_STR("{\"watching\":true}"));
        if (w->has_fired)
            fire(w);
    }
    forget_unused(all);
}

static bool take_above(struct sp_watches *all, struct item *i, const struct sp_file_answer *a)
{
    const size_t n = a->data_len / sizeof *i->above;

    if (n == 0)
        return true;
    i->above = malloc(n * sizeof *i->above);
    if (i->above == NULL)
        return false;
    memcpy(i->above, a->window, n * sizeof *i->above);
    for (; i->above_count < n; i->above_count++) {
        const struct sp_file_above *above = &i->above[i->above_count];

        if (above->len > strlen(i->path) || !sp_watch_ids_use(&all->ids, above->watch))
            return false;
    }
    return true;
}

/* What was found, and who watches it now. */
static bool take_found(struct sp_watches *all, struct item *i, const struct sp_file_answer *a)
{
    const size_t high = (size_t)(a->number >> 32);
    const size_t len = strlen(i->path);
    const int dir = (int)(uint32_t)a->number;

    i->dir_len = i->is_present ? (size_t)(strrchr(i->path, '/') - i->path) : high;
    if (i->dir_len > len) {
        i->dir_len = len;
        return false;
    }
    if (!sp_watch_ids_use(&all->ids, dir))
        return false;
    i->dir = dir;
    if (i->is_present) {
        if (!sp_watch_ids_use(&all->ids, (int)high))
            return false;
        i->self = (int)high;
    }
    return take_above(all, i, a);
}

static void on_looked(struct sp_files_call *c, const struct sp_file_answer *a,
                      const struct sp_err *e)
{
    struct item *i = SP_CONTAINER(c, struct item, call);
    struct watch *w = i->watch;
    struct sp_watches *all = w->conn->rpc->watches;

    (void)e;
    all->looking--;
    if (a == NULL || a->err != 0 || a->refusal != SP_FILE_NOT_REFUSED || !take_found(all, i, a))
        w->has_failed = true;
    if (--w->left == 0 && w->request != NULL)
        finish(w);
}

/* ---- the request ---- */

struct wanted {
    struct sp_uri uris[SP_WATCH_MAX_PATHS + 1];
    uint32_t count;
    uint64_t id;
    bool has_present, is_hopeless;
};

static void wanted_done(struct wanted *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        sp_uri_done(&w->uris[i]);
}

static int take_path(struct sp_rpc_call *c, uint32_t token, struct wanted *w, struct sp_err *e)
{
    struct sp_uri one = {0};

    if (sp_json_type(c->json, token) != SP_JSON_STRING)
        return sp_json_wrong_type(c->json, token, "a string", e);
    const int r = sp_uri_read(sp_json_str(c->json, token), &one, e);
    if (r < 0)
        return r;
    w->is_hopeless = w->is_hopeless || one.is_foreign || one.path == NULL ||
                     strlen(one.path) > SP_FILE_MAX_PATH || one.path[strspn(one.path, "/")] == 0;
    if (w->count < SP_WATCH_MAX_PATHS + 1)
        w->uris[w->count++] = one;
    else
        sp_uri_done(&one);
    return 0;
}

static int decode(struct sp_rpc_call *c, struct wanted *w, struct sp_err *e)
{
    uint32_t missing = SP_JSON_NONE;
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_json_need_u64(c->json, c->params, "watchId", UINT64_MAX, &w->id, e);
    if (r == 0)
        r = sp_json_need_array(c->json, c->params, "missing", &missing, e);
    if (r < 0)
        return r;
    const uint32_t n = c->json->tokens[missing].children;
    w->is_hopeless = n == 0 || n > SP_WATCH_MAX_PATHS;
    for (uint32_t t = sp_json_first(c->json, missing); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(c->json, missing, t))
        r = take_path(c, t, w, e);
    const uint32_t present = r < 0 ? SP_JSON_NONE : sp_json_get(c->json, c->params, "present");
    if (present != SP_JSON_NONE && sp_json_type(c->json, present) != SP_JSON_NULL) {
        w->has_present = true;
        r = take_path(c, present, w, e);
    }
    return r;
}

static bool may_watch(const struct sp_conn *conn, const struct wanted *want)
{
    const struct sp_watches *all = conn->rpc->watches;
    uint32_t n = 0;

    if (want->is_hopeless)
        return false;
    for (const struct watch *w = all == NULL ? NULL : all->first; w != NULL; w = w->next)
        if (w->conn == conn && (w->id == want->id || ++n == SP_WATCH_MAX))
            return false;
    return true;
}

static char *without_slashes(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

static struct watch *make_watch(struct sp_rpc_call *c, const struct wanted *want)
{
    struct sp_watches *all = watches_of(c->conn->rpc);
    struct watch *w = all == NULL ? NULL : calloc(1, sizeof *w + want->count * sizeof w->items[0]);

    if (w == NULL)
        return NULL;
    w->conn = c->conn;
    w->id = want->id;
    w->count = want->count;
    w->next = all->first;
    if (w->next != NULL)
        w->next->prev = w;
    all->first = w;
    for (uint32_t i = 0; i < w->count; i++) {
        w->items[i] = (struct item){.watch = w, .dir = -1, .self = -1};
        w->items[i].is_present = want->has_present && i == w->count - 1;
        w->items[i].path = without_slashes(want->uris[i].path);
        w->has_failed = w->has_failed || w->items[i].path == NULL;
    }
    return w;
}

/* All paths at once; the answer comes with the last. */
static void look(struct sp_rpc_call *c, struct watch *w)
{
    struct sp_watches *all = c->conn->rpc->watches;
    struct sp_err e = {0};

    w->left = 1;
    for (uint32_t i = 0; i < w->count && !w->has_failed; i++) {
        const struct sp_files_job job = {
            .ask = {.op = w->items[i].is_present ? SP_FILE_WATCH_PRESENT : SP_FILE_WATCH_MISSING,
                    .path = w->items[i].path,
                    .hides_placeholders = true,
                    .fd = all->fd},
            .session = c->conn->session->number,
        };

        w->items[i].call.done = on_looked;
        if (sp_files_ask(c->conn->rpc->server->files, &c->conn->files, &job, &w->items[i].call,
                         &e) < 0) {
            w->has_failed = true;
            break;
        }
        w->left++;
        all->looking++;
    }
    if (--w->left == 0)
        finish(w);
}

int sp_m_fs_watch_missing(struct sp_rpc_call *c, struct sp_err *e)
{
    struct wanted want __attribute__((cleanup(wanted_done))) = {0};
    int r = decode(c, &want, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r < 0)
        return r;
    struct watch *w = may_watch(c->conn, &want) ? make_watch(c, &want) : NULL;
    if (w == NULL) {
        sp_rpc_call_reply(c, SP_STR("{\"watching\":false}"));
        return 0;
    }
    w->request = sp_rpc_call_park(c, 0, e);
    if (w->request == NULL) {
        free_watch(w);
        return -(int)e->code;
    }
    look(c, w);
    return 0;
}
