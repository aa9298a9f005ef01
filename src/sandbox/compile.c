/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/compile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PLACEHOLDER_MODE 0555

/* An op while the plan grows; paths are borrowed. */
struct draft_op {
    struct sp_place_op op;
    const char *path, *target;
};

/* A place on the way down to the one at hand. */
struct level {
    const char *path;
    enum sp_access access;
    size_t op; /* the EMPTY that hides what is here, or SIZE_MAX */
};

struct draft {
    const struct sp_survey *survey;
    bool has_network;
    enum sp_plan_view view;
    struct draft_op *ops;
    size_t count, cap;
    struct level *levels; /* at most one for each place */
    size_t depth;
};

/* ---- the ground ---- */

static enum sp_plan_view choose_view(const struct sp_survey *s)
{
    const bool has_root = s->count > 0 && strcmp(s->spots[0].path, "/") == 0;

    if (s->is_open || (has_root && s->spots[0].access == SP_ACCESS_WRITE))
        return SP_VIEW_OPEN;
    return has_root && s->spots[0].access == SP_ACCESS_READ ? SP_VIEW_READ : SP_VIEW_NEW;
}

static enum sp_access base_access(enum sp_plan_view view)
{
    return view == SP_VIEW_OPEN   ? SP_ACCESS_WRITE
           : view == SP_VIEW_READ ? SP_ACCESS_READ
                                  : SP_ACCESS_DENY;
}

/* ---- growing ---- */

static struct draft_op *add_op(struct draft *d, enum sp_op op, const char *path)
{
    if (d->count == d->cap) {
        const size_t cap = d->cap == 0 ? 32 : d->cap * 2;
        struct draft_op *ops = realloc(d->ops, cap * sizeof *ops);

        if (ops == NULL)
            return NULL;
        d->ops = ops;
        d->cap = cap;
    }
    struct draft_op *o = &d->ops[d->count++];
    *o = (struct draft_op){.op = {.op = (uint8_t)op, .is_dir = 1}, .path = path};
    /* Whatever is mounted inside a directory that hides things opens it a little. */
    if (d->depth > 0 && d->levels[d->depth - 1].op != SIZE_MAX)
        d->ops[d->levels[d->depth - 1].op].op.is_reopened = 1;
    return o;
}

static void enter(struct draft *d, const char *path, enum sp_access access, size_t op)
{
    d->levels[d->depth++] = (struct level){path, access, op};
}

/* Leaves the levels that the path is not below. */
static void come_back_to(struct draft *d, const char *path)
{
    while (d->depth > 1 && !sp_path_is_in(path, d->levels[d->depth - 1].path))
        d->depth--;
}

/* ---- places that are the cell's own ---- */

/* Whether our own /dev has this: the names that view.c makes. */
static bool is_in_our_dev(const char *path)
{
    static const char *const names[] = {"null",   "zero",   "full", "random", "urandom",
                                        "tty",    "ptmx",   "pts",  "mqueue", "stdin",
                                        "stdout", "stderr", "fd",   "shm"};
    const char *name = path + sizeof "/dev" - 1;

    if (*name == 0)
        return true;
    name++;
    const size_t n = strcspn(name, "/");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return true;
    return false;
}

/* /dev and /proc are made anew: nothing of the host's is there to be read or written. What an entry
 * opens below /dev is the host's again, and is treated like any other place. */
static bool is_in_own(struct draft *d, const char *path)
{
    if (sp_path_is_in(path, "/proc"))
        return true;
    if (!sp_path_is_in(path, "/dev"))
        return false;
    come_back_to(d, path);
    if (!sp_path_is_in(d->levels[d->depth - 1].path, "/dev"))
        enter(d, "/dev", SP_ACCESS_DENY, SIZE_MAX);
    return strcmp(path, "/dev") == 0;
}

/* A refusal to read what the cell itself needs there cannot be kept. */
static int check_own(struct draft *d, const struct sp_spot *s, bool *ret_skip, struct sp_err *e)
{
    const bool in_proc = sp_path_is_in(s->path, "/proc");

    *ret_skip = is_in_own(d, s->path);
    if (s->access != SP_ACCESS_DENY || s->why != SP_WHY_ENTRY ||
        (!in_proc && d->levels[d->depth - 1].access != SP_ACCESS_DENY) ||
        !(in_proc || (sp_path_is_in(s->path, "/dev") && is_in_our_dev(s->path))))
        return 0;
    return sp_fail(e, SP_E_INVALID, 0,
                   "cannot enforce sandbox deny-read path %s: commands get a %s of their own",
                   s->path, in_proc ? "/proc" : "/dev");
}

/* ---- one place ---- */

static bool draft_mount(struct draft *d, const struct sp_spot *s, enum sp_op op)
{
    const bool is_made = d->levels[d->depth - 1].access == SP_ACCESS_DENY;
    struct draft_op *o = add_op(d, op, s->path);

    if (o == NULL)
        return false;
    o->op.is_dir = s->kind == SP_SPOT_DIR;
    o->op.is_made = is_made;
    o->op.dev = s->dev;
    o->op.ino = s->ino;
    enter(d, s->path, s->access, SIZE_MAX);
    return true;
}

static bool draft_empty(struct draft *d, const struct sp_spot *s)
{
    struct draft_op *o = add_op(d, SP_OP_EMPTY, s->path);

    if (o == NULL)
        return false;
    o->op.is_dir = s->kind != SP_SPOT_FILE;
    o->op.mode = s->access == SP_ACCESS_DENY ? 0 : PLACEHOLDER_MODE;
    if (s->kind != SP_SPOT_MISSING) {
        o->op.dev = s->dev;
        o->op.ino = s->ino;
    }
    enter(d, s->path, SP_ACCESS_DENY, (size_t)(o - d->ops));
    return true;
}

static bool draft_spot(struct draft *d, const struct sp_spot *s)
{
    come_back_to(d, s->path);
    const enum sp_access around = d->levels[d->depth - 1].access;

    if (s->kind == SP_SPOT_MISSING) /* nobody makes it where nothing can be written */
        return around != SP_ACCESS_WRITE || s->is_watched || draft_empty(d, s);
    switch (s->access) {
    case SP_ACCESS_DENY:
        return around == SP_ACCESS_DENY || draft_empty(d, s);
    case SP_ACCESS_READ:
        return around == SP_ACCESS_READ || draft_mount(d, s, SP_OP_READ);
    case SP_ACCESS_WRITE:
        /* In a writable place it is a mount all the same: what it holds is protected by its path.
         */
        return draft_mount(d, s, around == SP_ACCESS_WRITE ? SP_OP_PIN : SP_OP_WRITE);
    }
    return false;
}

static bool draft_pin(struct draft *d, const struct sp_pin *p)
{
    if (is_in_own(d, p->path))
        return true;
    come_back_to(d, p->path);
    if (d->levels[d->depth - 1].access != SP_ACCESS_WRITE)
        return true;
    struct draft_op *o = add_op(d, SP_OP_PIN, p->path);
    if (o == NULL)
        return false;
    o->op.dev = p->dev;
    o->op.ino = p->ino;
    enter(d, p->path, SP_ACCESS_WRITE, SIZE_MAX);
    return true;
}

/* ---- /run ---- */

static const char *const resolver_dirs[] = {"/run/NetworkManager", "/run/systemd/resolve"};

static bool has_spot(const struct sp_survey *s, const char *path)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->spots[i].path, path) == 0)
            return true;
    return false;
}

/* Sockets of every daemon live there; what name lookups need is shown again. */
static int add_run(const struct sp_survey *s, bool is_new, struct sp_spot *extra)
{
    struct stat st;
    int n = 0;

    if (lstat("/run", &st) < 0 || !S_ISDIR(st.st_mode) || has_spot(s, "/run"))
        return 0;
    if (!is_new) /* where the root is empty, so is this */
        extra[n++] = (struct sp_spot){.path = (char *)(uintptr_t) "/run",
                                      .access = SP_ACCESS_DENY,
                                      .kind = SP_SPOT_DIR,
                                      .why = SP_WHY_COVER,
                                      .dev = st.st_dev,
                                      .ino = st.st_ino};
    for (size_t i = 0; i < sizeof resolver_dirs / sizeof resolver_dirs[0]; i++)
        if (lstat(resolver_dirs[i], &st) == 0 && S_ISDIR(st.st_mode) &&
            !has_spot(s, resolver_dirs[i]))
            extra[n++] = (struct sp_spot){.path = (char *)(uintptr_t)resolver_dirs[i],
                                          .access = SP_ACCESS_READ,
                                          .kind = SP_SPOT_DIR,
                                          .why = SP_WHY_COVER,
                                          .dev = st.st_dev,
                                          .ino = st.st_ino};
    return n;
}

/* ---- all places, in the order of their paths ---- */

/* A spot, a pin, or both of the sorted lists' next. */
struct turn {
    const struct sp_spot *spot;
    const struct sp_pin *pin;
    const char *path;
};

/* '/' sorts before every other byte, so that what is below a directory follows it. */
static int compare_paths(const char *a, const char *b)
{
    for (; *a != 0 && *a == *b; a++, b++) {
    }
    const int x = *a == '/' ? 1 : (unsigned char)*a * 2;
    const int y = *b == '/' ? 1 : (unsigned char)*b * 2;
    return x - y;
}

static int compare_turns(const void *a, const void *b)
{
    return compare_paths(((const struct turn *)a)->path, ((const struct turn *)b)->path);
}

static int draft_places(struct draft *d, struct sp_err *e)
{
    const struct sp_survey *s = d->survey;
    struct sp_spot extra[1 + sizeof resolver_dirs / sizeof resolver_dirs[0]];
    const int extra_count = d->view == SP_VIEW_OPEN ? 0 : add_run(s, d->view == SP_VIEW_NEW, extra);
    const size_t count = s->count + s->pin_count + (size_t)extra_count;
    struct turn *turns = calloc(count + 1, sizeof *turns);
    size_t n = 0;
    int r = 0;

    d->levels = calloc(2 * count + 2, sizeof *d->levels); /* with /dev again and again */
    if (turns == NULL || d->levels == NULL) {
        free(turns);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
    }
    for (int i = 0; i < extra_count; i++)
        if (extra[i].access == SP_ACCESS_DENY || d->has_network)
            turns[n++] = (struct turn){.spot = &extra[i], .path = extra[i].path};
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->spots[i].path, "/") != 0)
            turns[n++] = (struct turn){.spot = &s->spots[i], .path = s->spots[i].path};
    for (size_t i = 0; i < s->pin_count; i++)
        turns[n++] = (struct turn){.pin = &s->pins[i], .path = s->pins[i].path};
    qsort(turns, n, sizeof *turns, compare_turns);

    enter(d, "/", base_access(d->view), SIZE_MAX);
    for (size_t i = 0; r == 0 && i < n; i++) {
        bool is_skipped = false;

        if (turns[i].spot != NULL)
            r = check_own(d, turns[i].spot, &is_skipped, e);
        if (r < 0 || is_skipped)
            continue;
        if (!(turns[i].spot != NULL ? draft_spot(d, turns[i].spot) : draft_pin(d, turns[i].pin)))
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
    }
    for (size_t i = 0; r == 0 && d->view == SP_VIEW_NEW && i < s->alias_count; i++) {
        d->depth = 1;
        struct draft_op *o = add_op(d, SP_OP_ALIAS, s->aliases[i].path);

        if (o == NULL)
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
        else
            o->target = s->aliases[i].target;
    }
    /* /run shows that it is empty rather than that it is closed. */
    for (size_t i = 0; i < d->count; i++)
        if (d->ops[i].op.op == SP_OP_EMPTY && strcmp(d->ops[i].path, "/run") == 0 &&
            extra_count > 0 && extra[0].access == SP_ACCESS_DENY)
            d->ops[i].op.mode = PLACEHOLDER_MODE;
    free(turns);
    return r;
}

/* ---- the tier ---- */

static int refuse(struct sp_err *e, const char *missing, const char *remedy)
{
    return sp_fail(e, SP_E_INVALID, 0, "sandbox intent cannot be enforced on this executor: %s%s%s",
                   missing, remedy[0] != 0 ? "; " : "", remedy);
}

/* Without a view of its own a command can be kept from writing at all, and from the network. What
 * is covered are sockets, which the filter lets nobody open. */
static bool thin_is_enough(const struct draft *d)
{
    const enum sp_access all = base_access(d->view);

    if (d->view == SP_VIEW_NEW)
        return false;
    for (size_t i = 0; i < d->survey->count; i++)
        if (d->survey->spots[i].why != SP_WHY_COVER && d->survey->spots[i].access != all)
            return false;
    return true;
}

static int choose_tier(const struct draft *d, const struct sp_powers *p, struct sp_plan *ret,
                       struct sp_err *e)
{
    if (!p->has_filter)
        return refuse(e, "seccomp filters are missing",
                      sp_powers_remedy(SP_BUILD_SECCOMP, p->failed_errno));
    ret->landlock = (uint32_t)p->landlock;
    ret->notifies = p->has_notices;
    ret->view = d->view;
    ret->net = d->has_network ? SP_NET_HOST : SP_NET_FILTER;
    if (p->has_cells) {
        ret->tier = SP_TIER_CELL;
        if (!d->has_network && p->has_own_network)
            ret->net = SP_NET_OWN;
        return 0;
    }
    ret->tier = SP_TIER_THIN;
    if (thin_is_enough(d) && (p->landlock >= 3 || d->view == SP_VIEW_OPEN))
        return 0;
    if (thin_is_enough(d))
        return refuse(e, "neither namespaces nor Landlock (level 3) can be used",
                      sp_powers_remedy(p->failed_step, p->failed_errno));
    return refuse(e, "namespaces cannot be used, which this policy needs",
                  sp_powers_remedy(p->failed_step, p->failed_errno));
}

/* ---- laying it flat ---- */

static bool add_string(struct sp_buf *strings, const char *text, uint32_t *ret)
{
    *ret = (uint32_t)strings->len;
    return sp_buf_add(strings, text, strlen(text) + 1);
}

static int lay_flat(struct draft *d, struct sp_plan *head, struct sp_buf *ret, struct sp_err *e)
{
    auto_buf struct sp_buf strings = {0};
    bool ok = true;

    if (head->tier == SP_TIER_THIN)
        d->count = 0;
    for (size_t i = 0; ok && i < d->count; i++) {
        ok = add_string(&strings, d->ops[i].path, &d->ops[i].op.path);
        if (d->ops[i].target != NULL)
            ok = ok && add_string(&strings, d->ops[i].target, &d->ops[i].op.target);
    }
    const size_t bytes = sizeof *head + d->count * sizeof head->ops[0] + strings.len;
    if (ok && bytes > SP_PLAN_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "the sandbox policy names too many places");
    head->version = SP_PLAN_VERSION;
    head->bytes = (uint32_t)bytes;
    head->op_count = (uint32_t)d->count;
    head->strings = (uint32_t)(bytes - strings.len);
    ok = ok && sp_buf_add(ret, head, sizeof *head);
    for (size_t i = 0; ok && i < d->count; i++)
        ok = sp_buf_add(ret, &d->ops[i].op, sizeof d->ops[i].op);
    ok = ok && sp_buf_add(ret, strings.data, strings.len);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
}

int sp_plan_compile(const struct sp_survey *s, bool has_network, const struct sp_powers *powers,
                    struct sp_buf *ret, struct sp_err *e)
{
    struct draft d = {.survey = s, .has_network = has_network, .view = choose_view(s)};
    struct sp_plan head = {0};
    int r = draft_places(&d, e);

    if (r == 0)
        r = choose_tier(&d, powers, &head, e);
    if (r == 0)
        r = lay_flat(&d, &head, ret, e);
    free(d.ops);
    free(d.levels);
    return r;
}
