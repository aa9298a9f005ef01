/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs/watchMissing. Processes of the cells resolve the paths and add the inotify watches, as they do
 * all file operations; this file reads the events. A watch that cannot be had is no error: the
 * answer is {"watching":false}, and the client polls instead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "core/placeholder.h"
#include "os/notify.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"
#include "server/rpc/text.h"
#include "server/rpc/watches.h"

/* ---- reference counts of inotify watches ---- */

struct sp_watch_id {
    int id;
    uint32_t users;
};

/* The index of the id, or where it would be inserted. */
static size_t place_of(const struct sp_watch_ids *ids, int id)
{
    size_t low = 0;
    size_t high = ids->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (ids->known[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sp_watch_id *find_id(const struct sp_watch_ids *ids, int id)
{
    const size_t at = place_of(ids, id);

    return at < ids->count && ids->known[at].id == id ? &ids->known[at] : NULL;
}

bool sp_watch_ids_use(struct sp_watch_ids *ids, int id)
{
    struct sp_watch_id *old = find_id(ids, id);

    if (old != NULL) {
        old->users++;
        return true;
    }
    if (!SP_GROW(ids->known, ids->count, ids->cap))
        return false;
    const size_t at = place_of(ids, id);
    memmove(&ids->known[at + 1], &ids->known[at], (ids->count - at) * sizeof ids->known[0]);
    ids->known[at] = (struct sp_watch_id){.id = id, .users = 1};
    ids->count++;
    return true;
}

void sp_watch_ids_leave(struct sp_watch_ids *ids, int id)
{
    struct sp_watch_id *old = find_id(ids, id);

    if (old != NULL && --old->users == 0)
        ids->has_unused = true;
}

void sp_watch_ids_sweep(struct sp_watch_ids *ids)
{
    size_t kept = 0;

    if (!ids->has_unused)
        return;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->known[i].users > 0)
            ids->known[kept++] = ids->known[i];
        else
            sp_notify_remove(ids->fd, ids->known[i].id);
    ids->count = kept;
    ids->has_unused = false;
}

void sp_watch_ids_check(struct sp_watch_ids *ids, int id)
{
    if (find_id(ids, id) == NULL)
        sp_notify_remove(ids->fd, id);
}

void sp_watch_ids_done(struct sp_watch_ids *ids)
{
    free(ids->known);
    ids->known = NULL;
    ids->count = ids->cap = 0;
}

/* ---- watches ---- */

/* One path of a watch. */
struct item {
    struct sp_files_call call; /* the operation that adds the inotify watches */
    struct watch *watch;
    bool is_present; /* the path exists (`present`): any change counts */
    int dir, self;   /* inotify ids of the nearest directory and of the path; -1: none */
    size_t dir_len;  /* bytes of the path that name `dir`; the next component is awaited there */
    struct sp_file_above *above; /* ids of the directories above `dir`, and links on the way */
    size_t above_count;
    char *path;
};

struct watch {
    struct sp_list link; /* in sp_watches.all */
    struct sp_conn *conn;
    struct sp_request *request; /* NULL: answered */
    uint64_t id;
    uint32_t left; /* operations under way */
    bool has_failed, has_fired;
    uint32_t count;
    struct item items[];
};

struct sp_watches {
    struct sp_rpc *rpc;
    int fd;
    struct sp_watch on_event;
    struct sp_list all;
    uint32_t adding; /* operations under way, of all watches: then no id may be removed */
    struct sp_watch_ids ids;
};

static void forget_unused(struct sp_watches *all)
{
    if (all->adding == 0)
        sp_watch_ids_sweep(&all->ids);
}

/* ---- ends ---- */

/* Drops the operations that are under way and the references to inotify ids. */
static void free_watch(struct watch *w)
{
    struct sp_watches *all = w->conn->rpc->watches;

    sp_list_remove(&w->link);
    for (struct item *i = w->items; i < w->items + w->count; i++) {
        if (i->call.client != NULL) {
            sp_files_drop(&i->call);
            all->adding--;
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
    free(w);
}

static void drop_watches(struct sp_conn *conn)
{
    struct sp_watches *all = conn->rpc->watches;

    if (all == NULL)
        return;
    sp_list_each_safe(i, &all->all) {
        struct watch *w = SP_CONTAINER(i, struct watch, link);

        if (w->conn == conn)
            free_watch(w);
    }
    forget_unused(all);
}

static void free_watches(struct sp_rpc *rpc)
{
    struct sp_watches *all = rpc->watches;

    if (all == NULL)
        return;
    sp_loop_unwatch(rpc->front->loop, &all->on_event);
    (void)close(all->fd);
    sp_watch_ids_done(&all->ids);
    free(all);
    rpc->watches = NULL;
}

/* ---- inotify events ---- */

/* Notifies the client and frees the watch; but a notification never precedes the answer. */
static void fire(struct watch *w)
{
    w->has_fired = true;
    if (w->request != NULL || w->left > 0)
        return;
    char *const o = sp_link_reserve(w->conn->link, 96);
    if (o != NULL) {
        char *end = sp_put_literal(o, "{\"method\":\"fs/missingChanged\",\"params\":{\"watchId\":");

        end = sp_put_literal(sp_put_u64(end, w->id), "}}");
        sp_link_commit(w->conn->link, (size_t)(end - o));
    }
    free_watch(w);
}

/* The component behind the first `len` bytes of the path. */
static struct sp_str next_component(const struct item *i, size_t len)
{
    const char *name = i->path + len;

    name += strspn(name, "/");
    return (struct sp_str){name, strcspn(name, "/")};
}

/* Whether an inotify event may mean that the path has changed. Errs on the side of yes: the client
 * looks for itself. */
static bool is_meant(const struct item *i, const struct sp_file_notice *n)
{
    const struct sp_str event = sp_str_of(n->name == NULL ? "" : n->name);

    if (n->id < 0)
        return true; /* the queue overflowed: events were lost */
    if (i->call.client != NULL) {
        /* The operation has not reported its ids yet: every event with a name in the path counts.
         */
        struct sp_str rest = sp_str_of(i->path);
        bool is_in_path = n->name == NULL;

        while (rest.n != 0 && !is_in_path)
            is_in_path = sp_str_eq(sp_str_cut(&rest, '/'), event);
        return is_in_path;
    }
    if (n->name == NULL && (n->id == i->dir || n->id == i->self))
        return true;
    for (size_t k = 0; k < i->above_count; k++) /* directories further up, and links there */
        if (i->above[k].watch == n->id &&
            (n->name == NULL ||
             (i->above[k].len != 0 && sp_str_eq(next_component(i, i->above[k].len), event))))
            return true;
    const struct sp_str name = next_component(i, i->dir_len);
    if (n->name == NULL || n->id != i->dir || !sp_str_eq(name, event))
        return false;
    if (i->is_present || n->is_gone)
        return i->is_present;
    /* Sandboxes put placeholder directories in place of missing paths. To clients they do not
     * exist. */
    auto_free char *path = strndup(i->path, (size_t)(name.p - i->path) + name.n);
    return path == NULL ||
           !sp_placeholder_is_ours(&i->watch->conn->rpc->front->cell_pool->placeholders, path);
}

static void on_notice(void *user, const struct sp_file_notice *n)
{
    struct sp_watches *all = user;

    sp_list_each_safe(link, &all->all) {
        struct watch *w = SP_CONTAINER(link, struct watch, link);
        bool is_hit = false;

        for (uint32_t i = 0; i < w->count && !is_hit && !w->has_fired; i++)
            is_hit = is_meant(&w->items[i], n);
        if (is_hit)
            fire(w);
    }
    if (n->id >= 0 && !n->is_over && all->adding == 0) /* else an operation may be adding it */
        sp_watch_ids_check(&all->ids, n->id);
}

static void on_event(struct sp_watch *w, uint32_t events)
{
    struct sp_watches *all = SP_CONTAINER(w, struct sp_watches, on_event);

    (void)events;
    (void)sp_notify_read(all->fd, on_notice, all);
    forget_unused(all);
}

/* ---- adding watches ---- */

/* All operations of the watch are done: answers the request. */
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

/* The ids that the operation reports; the cell may be hostile, so lengths are checked. */
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
    const size_t n = a->data_len / sizeof *i->above;
    if (n == 0)
        return true;
    i->above = malloc(n * sizeof *i->above);
    if (i->above == NULL)
        return false;
    memcpy(i->above, a->window, n * sizeof *i->above);
    for (; i->above_count < n; i->above_count++) {
        const struct sp_file_above *above = &i->above[i->above_count];

        if (above->len > len || !sp_watch_ids_use(&all->ids, above->watch))
            return false;
    }
    return true;
}

static void on_added(struct sp_files_call *c, const struct sp_file_answer *a,
                     const struct sp_err *e)
{
    struct item *i = SP_CONTAINER(c, struct item, call);
    struct watch *w = i->watch;
    struct sp_watches *all = w->conn->rpc->watches;

    (void)e;
    all->adding--;
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
    bool has_present; /* the last of them */
    bool is_hopeless; /* cannot be watched: answered with false */
};

static void wanted_done(struct wanted *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        sp_uri_done(&w->uris[i]);
}

static void read_path(const struct sp_params *p, uint32_t token, struct wanted *w)
{
    struct sp_uri one = {0};

    if (sp_json_type(p->json, token) != SP_JSON_STRING) {
        (void)sp_json_wrong_type(p->json, token, "a string", p->err);
        return;
    }
    if (sp_uri_read(sp_json_str(p->json, token), &one, p->err) < 0)
        return;
    w->is_hopeless = w->is_hopeless || one.is_foreign || one.path == NULL ||
                     strlen(one.path) > SP_FILE_MAX_PATH || one.path[strspn(one.path, "/")] == 0;
    if (w->count < SP_WATCH_MAX_PATHS + 1)
        w->uris[w->count++] = one;
    else
        sp_uri_done(&one);
}

static int decode_watch(struct sp_rpc_call *c, struct wanted *w, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);
    uint32_t missing = SP_JSON_NONE;

    sp_params_u64(&p, "watchId", UINT64_MAX, &w->id);
    sp_params_array(&p, "missing", &missing);
    if (!sp_params_ok(&p))
        return sp_params_result(&p);
    const uint32_t n = p.json->tokens[missing].children;
    w->is_hopeless = n == 0 || n > SP_WATCH_MAX_PATHS;
    sp_params_each(&p, missing, t)
        read_path(&p, t, w);
    const uint32_t present =
        sp_params_ok(&p) ? sp_json_get(p.json, p.object, "present") : SP_JSON_NONE;
    if (present != SP_JSON_NONE && sp_json_type(p.json, present) != SP_JSON_NULL) {
        w->has_present = true;
        read_path(&p, present, w);
    }
    return sp_params_result(&p);
}

/* The id must be new on the connection. */
static bool may_watch(const struct sp_conn *conn, const struct wanted *want)
{
    const struct sp_watches *all = conn->rpc->watches;
    uint32_t n = 0;

    if (want->is_hopeless)
        return false;
    if (all == NULL)
        return true;
    sp_list_each(i, &all->all) {
        const struct watch *w = SP_CONTAINER(i, struct watch, link);

        if (w->conn == conn && (w->id == want->id || ++n == SP_WATCH_MAX))
            return false;
    }
    return true;
}

/* has_failed marks a path that could not be copied: the answer is false then. */
static struct watch *make_watch(struct sp_rpc_call *c, const struct wanted *want)
{
    struct sp_rpc *rpc = c->conn->rpc;
    struct sp_watches *all = rpc->watches;

    if (all == NULL) {
        all = calloc(1, sizeof *all);
        if (all == NULL)
            return NULL;
        all->rpc = rpc;
        sp_list_init(&all->all);
        all->fd = sp_notify_open();
        if (all->fd < 0 ||
            sp_loop_watch(rpc->front->loop, &all->on_event, all->fd, EPOLLIN, on_event, NULL) < 0) {
            if (all->fd >= 0)
                (void)close(all->fd);
            free(all);
            return NULL; /* no memory, or the kernel has no inotify instance left for the user */
        }
        all->ids.fd = all->fd;
        rpc->watches = all;
    }

    struct watch *w = calloc(1, sizeof *w + want->count * sizeof w->items[0]);
    if (w == NULL)
        return NULL;
    w->conn = c->conn;
    w->id = want->id;
    w->count = want->count;
    sp_list_prepend(&all->all, &w->link);
    for (uint32_t i = 0; i < w->count; i++) {
        const char *path = want->uris[i].path;
        size_t n = strlen(path);

        while (n > 1 && path[n - 1] == '/')
            n--;
        w->items[i] = (struct item){.watch = w, .dir = -1, .self = -1};
        w->items[i].is_present = want->has_present && i == w->count - 1;
        w->items[i].path = strndup(path, n);
        w->has_failed = w->has_failed || w->items[i].path == NULL;
    }
    return w;
}

static int fs_watch_missing(struct sp_rpc_call *c, struct sp_err *e)
{
    struct wanted want __attribute__((cleanup(wanted_done))) = {0};
    struct sp_err why = {0}; /* is not told: the client polls */

    if (decode_watch(c, &want, e) < 0 || sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    struct watch *w = may_watch(c->conn, &want) ? make_watch(c, &want) : NULL;
    if (w == NULL)
        return sp_rpc_call_reply(c, SP_STR("{\"watching\":false}"));
    w->request = sp_rpc_call_park(c, 0, e);
    if (w->request == NULL) {
        free_watch(w);
        return -(int)e->code;
    }
    struct sp_watches *all = c->conn->rpc->watches;
    w->left = 1; /* keeps `w` until all operations have begun; the last one to end answers */
    for (struct item *i = w->items; i < w->items + w->count && !w->has_failed; i++) {
        const struct sp_files_job job = {
            .request = {.op = i->is_present ? SP_FILE_WATCH_PRESENT : SP_FILE_WATCH_MISSING,
                        .path = i->path,
                        .fd = all->fd},
            .session = c->conn->session->number,
        };

        i->call.done = on_added;
        if (sp_files_ask(c->conn->rpc->front->files, &c->conn->files, &job, &i->call, &why) < 0) {
            w->has_failed = true;
            break;
        }
        w->left++;
        all->adding++;
    }
    if (--w->left == 0)
        finish(w);
    return 0;
}

static const struct sp_method methods[] = {
    {"fs/watchMissing", "filesystem", .fn = fs_watch_missing},
    {0},
};

const struct sp_family sp_watch_family = {
    .methods = methods, .closed = drop_watches, .ended = free_watches};
