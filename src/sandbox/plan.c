/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles a survey into a plan, checks a plan that came from another process, and prints one.
 */
#include "sandbox/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/grow.h"
#include "base/io.h"
#include "base/json.h"
#include "sandbox/compile.h"

/* ==== compiling ==== */

#define PLACEHOLDER_MODE 0555

/* An op under construction; the paths are borrowed from the survey. */
struct draft_op {
    struct sp_place_op op;
    const char *path, *target;
};

/* A place above the current one. */
struct level {
    const char *path;
    enum sp_access access;
    size_t op; /* index of the EMPTY op that hides this place, or SIZE_MAX */
};

struct draft {
    const struct sp_survey *survey;
    bool has_network;
    const struct sp_network_policy *managed; /* NULL: none */
    char *nsswitch;                          /* owned text of /etc/nsswitch.conf; NULL: none */
    char hosts[SP_HOSTNAME_MAX + 256];       /* text of /etc/hosts */
    enum sp_plan_view view;
    struct draft_op *ops;
    size_t count, cap;
    struct level *levels; /* stack, outermost first */
    size_t depth;
};

/* ---- the view ---- */

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

/* ---- ops ---- */

/* who: the inode that is expected there; NULL: none. */
static struct draft_op *add_op(struct draft *d, enum sp_op op, const char *path,
                               const struct sp_identity *who)
{
    if (!SP_GROW(d->ops, d->count, d->cap))
        return NULL;
    struct draft_op *o = &d->ops[d->count++];
    *o = (struct draft_op){.op = {.op = (uint8_t)op, .is_dir = 1}, .path = path};
    if (who != NULL) {
        o->op.dev = who->dev;
        o->op.ino = who->ino;
    }
    /* A mount inside of an EMPTY directory needs a mount point there. */
    if (d->depth > 0 && d->levels[d->depth - 1].op != SIZE_MAX)
        d->ops[d->levels[d->depth - 1].op].op.is_reopened = 1;
    return o;
}

static void push_level(struct draft *d, const char *path, enum sp_access access, size_t op)
{
    d->levels[d->depth++] = (struct level){path, access, op};
}

/* Pops the levels that do not contain the path. */
static void pop_levels(struct draft *d, const char *path)
{
    while (d->depth > 1 && !sp_path_is_in(path, d->levels[d->depth - 1].path))
        d->depth--;
}

/* ---- the cell's own /dev and /proc ---- */

/* Whether the cell's own /dev has this name: keep in step with build_dev() in cell/cell_confine.c.
 */
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

/* /dev and /proc are built by the cell and contain nothing of the host. A place that an entry opens
 * below /dev is the host's, and is treated like any other. */
static bool is_replaced(struct draft *d, const char *path)
{
    if (sp_path_is_in(path, "/proc"))
        return true;
    if (!sp_path_is_in(path, "/dev"))
        return false;
    pop_levels(d, path);
    if (!sp_path_is_in(d->levels[d->depth - 1].path, "/dev"))
        push_level(d, "/dev", SP_ACCESS_DENY, SIZE_MAX);
    return strcmp(path, "/dev") == 0;
}

/* Fails for a deny entry that names a part of the cell's own /dev or /proc. */
static int check_own(struct draft *d, const struct sp_spot *s, bool *ret_skip, struct sp_err *e)
{
    const bool in_proc = sp_path_is_in(s->path, "/proc");

    *ret_skip = is_replaced(d, s->path);
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
    struct draft_op *o = add_op(d, op, s->path, &s->who);

    if (o == NULL)
        return false;
    o->op.is_dir = s->kind == SP_SPOT_DIR;
    o->op.is_made = is_made;
    push_level(d, s->path, s->access, SIZE_MAX);
    return true;
}

static bool draft_empty(struct draft *d, const struct sp_spot *s)
{
    struct draft_op *o =
        add_op(d, SP_OP_EMPTY, s->path, s->kind == SP_SPOT_MISSING ? NULL : &s->who);

    if (o == NULL)
        return false;
    o->op.is_dir = s->kind != SP_SPOT_FILE;
    o->op.mode = s->access == SP_ACCESS_DENY ? 0 : PLACEHOLDER_MODE;
    push_level(d, s->path, SP_ACCESS_DENY, (size_t)(o - d->ops));
    return true;
}

static bool draft_spot(struct draft *d, const struct sp_spot *s)
{
    pop_levels(d, s->path);
    const enum sp_access around = d->levels[d->depth - 1].access;

    if (s->kind == SP_SPOT_MISSING) /* it can only appear in a writable place */
        return around != SP_ACCESS_WRITE || s->is_watched || draft_empty(d, s);
    switch (s->access) {
    case SP_ACCESS_DENY:
        return around == SP_ACCESS_DENY || draft_empty(d, s);
    case SP_ACCESS_READ:
        return around == SP_ACCESS_READ || draft_mount(d, s, SP_OP_READ);
    case SP_ACCESS_WRITE:
        /* Inside of a writable place it must still be a mount point: protected places below it are
         * found by its path. */
        return draft_mount(d, s, around == SP_ACCESS_WRITE ? SP_OP_PIN : SP_OP_WRITE);
    }
    return false;
}

static bool draft_pin(struct draft *d, const struct sp_pin *p)
{
    if (is_replaced(d, p->path))
        return true;
    pop_levels(d, p->path);
    if (d->levels[d->depth - 1].access != SP_ACCESS_WRITE)
        return true;
    if (add_op(d, SP_OP_PIN, p->path, &p->who) == NULL)
        return false;
    push_level(d, p->path, SP_ACCESS_WRITE, SIZE_MAX);
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

/* A directory that the survey does not name. false: it does, or there is none. */
static bool add_extra(const struct sp_survey *s, const char *path, enum sp_access access,
                      struct sp_spot *ret)
{
    struct stat st;

    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || has_spot(s, path))
        return false;
    *ret = (struct sp_spot){.path = (char *)(uintptr_t)path,
                            .access = access,
                            .kind = SP_SPOT_DIR,
                            .why = SP_WHY_HIDDEN,
                            .who = {.dev = st.st_dev, .ino = st.st_ino}};
    return true;
}

/* /run has the sockets of daemons: it is hidden, except for the directories that name lookups need.
 */
static int add_run(const struct sp_survey *s, bool is_new, struct sp_spot *extra)
{
    int n = add_extra(s, "/run", SP_ACCESS_DENY, &extra[0]);

    if (n == 0)
        return 0;
    if (is_new) /* a new root has no /run */
        n = 0;
    for (size_t i = 0; i < sizeof resolver_dirs / sizeof resolver_dirs[0]; i++)
        n += add_extra(s, resolver_dirs[i], SP_ACCESS_READ, &extra[n]);
    return n;
}

/* ---- all places, in the order of their paths ---- */

/* A spot or a pin. */
struct turn {
    const struct sp_spot *spot;
    const struct sp_pin *pin;
    const char *path;
};

static int compare_turns(const void *a, const void *b)
{
    return sp_path_order(((const struct turn *)a)->path, ((const struct turn *)b)->path);
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

    d->levels = calloc(2 * count + 2, sizeof *d->levels); /* is_replaced may add /dev each time */
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

    push_level(d, "/", base_access(d->view), SIZE_MAX);
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
        struct draft_op *o = add_op(d, SP_OP_ALIAS, s->aliases[i].path, NULL);

        if (o == NULL)
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
        else
            o->target = s->aliases[i].target;
    }
    /* /run appears as an empty directory instead of an inaccessible one. */
    for (size_t i = 0; i < d->count; i++)
        if (d->ops[i].op.op == SP_OP_EMPTY && strcmp(d->ops[i].path, "/run") == 0 &&
            extra_count > 0 && extra[0].access == SP_ACCESS_DENY)
            d->ops[i].op.mode = PLACEHOLDER_MODE;
    free(turns);
    return r;
}

/* ---- files of the managed network ---- */

/* Whether a place around the path, or the path itself, is denied. */
static bool is_denied(const struct sp_survey *s, const char *path)
{
    size_t longest = 0;
    bool denied = false;

    for (size_t i = 0; i < s->count; i++) {
        const char *spot = s->spots[i].path;
        const size_t n = strcmp(spot, "/") == 0 ? 0 : strlen(spot);

        if (n >= longest && strncmp(path, spot, n) == 0 && (path[n] == '/' || path[n] == 0)) {
            longest = n;
            denied = s->spots[i].access == SP_ACCESS_DENY;
        }
    }
    return denied;
}

/* The host's /etc/nsswitch.conf, but names are looked up in /etc/hosts and by DNS alone: other
 * sources (mdns, resolve, sss) have no daemon in the cell. NULL: there is none, or no memory. */
static char *make_nsswitch(void)
{
    auto_buf struct sp_buf text = {.max = SP_PLAN_TEXT};
    auto_buf struct sp_buf out = {.max = SP_PLAN_TEXT - 64};
    struct sp_str rest;

    if (sp_read_file("/etc/nsswitch.conf", SP_PLAN_TEXT - 1, &text) != 0 ||
        sp_str_has_nul(sp_buf_str(&text)))
        return NULL;
    rest = sp_buf_str(&text);
    while (rest.n != 0) {
        const struct sp_str line = sp_str_cut(&rest, '\n');
        const struct sp_str name = sp_str_trim(line);

        if (name.n >= 6 && memcmp(name.p, "hosts:", 6) == 0)
            continue;
        if (!sp_buf_add_str(&out, line) || !sp_buf_add(&out, "\n", 1))
            return NULL;
    }
    return sp_buf_add_str(&out, SP_STR("hosts: files dns\n")) ? sp_str_dup(sp_buf_str(&out)) : NULL;
}

/* A file that is missing, or not to be seen, gets no text: the DNS answers for localhost itself,
 * and a C library without resolv.conf asks 127.0.0.1. */
static bool draft_texts(struct draft *d)
{
    static const char resolv[] = "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n";
    const struct {
        const char *path, *text;
    } texts[] = {{"/etc/hosts", d->hosts},
                 {"/etc/nsswitch.conf", d->nsswitch = make_nsswitch()},
                 {"/etc/resolv.conf", resolv}};
    char own[SP_HOSTNAME_MAX + 1] = "";
    struct sp_hostname host;

    if (gethostname(own, sizeof own - 1) < 0 || sp_hostname_read(sp_str_of(own), &host) != NULL)
        host.text[0] = 0;
    (void)snprintf(d->hosts, sizeof d->hosts,
                   "127.0.0.1 localhost localhost.localdomain %s\n"
                   "::1 localhost ip6-localhost ip6-loopback\n",
                   host.text);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].text == NULL || is_denied(d->survey, texts[i].path))
            continue;
        d->depth = 1;
        struct draft_op *o = add_op(d, SP_OP_TEXT, texts[i].path, NULL);
        if (o == NULL)
            return false;
        o->target = texts[i].text;
    }
    return true;
}

/* ---- the tier ---- */

static int refuse(struct sp_err *e, const char *missing, const char *remedy)
{
    return sp_fail(e, SP_E_INVALID, 0, "sandbox intent cannot be enforced on this executor: %s%s%s",
                   missing, remedy[0] != 0 ? "; " : "", remedy);
}

/* The thin tier can refuse all writes and the network, but cannot treat places differently. Hidden
 * places may be ignored: they hold sockets, and the filter refuses to open those. */
static bool thin_is_enough(const struct draft *d)
{
    const enum sp_access all = base_access(d->view);

    if (d->view == SP_VIEW_NEW)
        return false;
    for (size_t i = 0; i < d->survey->count; i++)
        if (d->survey->spots[i].why != SP_WHY_HIDDEN && d->survey->spots[i].access != all)
            return false;
    return true;
}

static int choose_tier(const struct draft *d, const struct sp_host_features *p, struct sp_plan *ret,
                       struct sp_err *e)
{
    if (!p->has_filter)
        return refuse(e, "seccomp filters are missing",
                      sp_host_features_remedy(SP_BUILD_SECCOMP, p->failed_errno));
    ret->landlock = (uint32_t)p->landlock;
    ret->notifies = p->has_notices;
    ret->view = d->view;
    ret->net = d->has_network ? SP_NET_HOST : SP_NET_FILTER;
    if (d->managed != NULL && !(p->has_full_tier && p->has_own_network))
        return sp_fail(e, SP_E_INVALID, 0,
                       "managed network cannot be enforced on this executor: it needs a network "
                       "namespace of its own");
    if (p->has_full_tier) {
        ret->tier = SP_TIER_CELL;
        if (!d->has_network && p->has_own_network)
            ret->net = d->managed != NULL ? SP_NET_MANAGED : SP_NET_OWN;
        if (d->managed != NULL)
            ret->port_count = (uint32_t)sp_network_policy_ports(d->managed, ret->ports);
        return 0;
    }
    ret->tier = SP_TIER_THIN;
    if (thin_is_enough(d) && (p->landlock >= 3 || d->view == SP_VIEW_OPEN))
        return 0;
    if (thin_is_enough(d))
        return refuse(e, "neither namespaces nor Landlock (level 3) can be used",
                      sp_host_features_remedy(p->failed_step, p->failed_errno));
    return refuse(e, "namespaces cannot be used, which this policy needs",
                  sp_host_features_remedy(p->failed_step, p->failed_errno));
}

/* ---- serialisation ---- */

static bool add_string(struct sp_buf *strings, const char *text, uint32_t *ret)
{
    *ret = (uint32_t)strings->len;
    return sp_buf_add(strings, text, strlen(text) + 1);
}

static int serialise(struct draft *d, struct sp_plan *head, struct sp_buf *ret, struct sp_err *e)
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

int sp_plan_compile(const struct sp_survey *s, const struct sp_profile *network,
                    const struct sp_host_features *host_features, struct sp_buf *ret,
                    struct sp_err *e)
{
    struct draft d = {.survey = s,
                      .has_network = network->has_network,
                      .managed = sp_profile_managed(network),
                      .view = choose_view(s)};
    struct sp_plan head = {0};
    int r = draft_places(&d, e);

    if (r == 0 && d.managed != NULL && !draft_texts(&d))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a plan");
    if (r == 0)
        r = choose_tier(&d, host_features, &head, e);
    if (r == 0)
        r = serialise(&d, &head, ret, e);
    free(d.ops);
    free(d.levels);
    free(d.nsswitch);
    return r;
}

/* ==== checking ==== */

const char *sp_build_step_name(uint32_t step)
{
    static const char *const names[SP_BUILD_MAX] = {
#define X(name, text) [SP_BUILD_##name] = (text),
        SP_BUILD_STEPS(X)
#undef X
    };
    return step < SP_BUILD_MAX ? names[step] : "unknown";
}

const struct sp_plan *sp_plan_check(const void *memory, size_t bytes)
{
    const struct sp_plan *p = memory;

    if (bytes < sizeof *p || bytes > SP_PLAN_MAX || p->version != SP_PLAN_VERSION ||
        p->bytes != bytes || p->tier > SP_TIER_CELL || p->view > SP_VIEW_NEW ||
        p->net > SP_NET_HOST || p->port_count > SP_PLAN_PORTS ||
        p->op_count > (bytes - sizeof *p) / sizeof p->ops[0] ||
        p->strings != sizeof *p + p->op_count * sizeof p->ops[0])
        return NULL;
    const uint32_t string_bytes = (uint32_t)(bytes - p->strings);
    if (string_bytes != 0 && ((const char *)memory)[bytes - 1] != 0)
        return NULL;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const struct sp_place_op *o = &p->ops[i];

        if (o->op == 0 || o->op >= SP_OP_MAX || o->path >= string_bytes ||
            sp_plan_string(p, o->path)[0] != '/' ||
            ((o->op == SP_OP_ALIAS || o->op == SP_OP_TEXT) && o->target >= string_bytes))
            return NULL;
    }
    return p;
}

/* ==== printing ==== */

const char *sp_tier_name(uint32_t tier)
{
    static const char *const names[] = {
        [SP_TIER_NONE] = "none", [SP_TIER_THIN] = "thin", [SP_TIER_CELL] = "cell"};

    return tier <= SP_TIER_CELL ? names[tier] : "unknown";
}

const char *sp_host_features_remedy(uint32_t step, int err)
{
    switch (step) {
    case SP_BUILD_NAMESPACES:
        if (err == ENOSPC)
            return "raise user.max_user_namespaces (sysctl)";
        if (err == ENOSYS || err == EINVAL)
            return "use a kernel with user, pid and network namespaces";
        return "set kernel.unprivileged_userns_clone=1, or let the container's seccomp profile "
               "pass "
               "unshare";
    case SP_BUILD_ID_MAP:
    case SP_BUILD_MOUNT_PRIVATE:
    case SP_BUILD_ROOT_READONLY:
        return "let sallyport use user namespaces in AppArmor (a profile with `userns,`, or "
               "kernel.apparmor_restrict_unprivileged_userns=0)";
    case SP_BUILD_PROC:
        return "unmask /proc in the container (--security-opt systempaths=unconfined)";
    case SP_BUILD_SECCOMP:
        return "use a kernel with seccomp filters, and a container that passes seccomp(2)";
    case SP_BUILD_LANDLOCK:
        return "put landlock into the kernel's lsm= list";
    default:
        return "see `sallyport doctor`";
    }
}

/* Escapes control characters: a file name must not send sequences to the terminal. */
static bool print_path(struct sp_buf *out, const char *before, const char *path, const char *after)
{
    bool ok = sp_buf_printf(out, "%s", before);

    for (; ok && *path != 0; path++)
        ok = (unsigned char)*path < 0x20 || *path == 0x7f
                 ? sp_buf_printf(out, "\\x%02x", (unsigned char)*path)
                 : sp_buf_add(out, path, 1);
    return ok && sp_buf_printf(out, "%s", after);
}

static bool print_op(const struct sp_plan *p, const struct sp_place_op *o, struct sp_buf *out)
{
    const char *path = sp_plan_string(p, o->path);

    switch ((enum sp_op)o->op) {
    case SP_OP_WRITE:
        return print_path(out, "  write        ", path, "\n");
    case SP_OP_READ:
        return print_path(out, "  read-only    ", path, "\n");
    case SP_OP_PIN:
        return print_path(out, "  pinned       ", path, "\n");
    case SP_OP_EMPTY:
        if (o->mode == 0)
            return print_path(out, "  denied       ", path,
                              o->is_reopened ? " (something below it is open)\n" : "\n");
        return print_path(out, o->ino == 0 ? "  placeholder  " : "  empty        ", path, "\n");
    case SP_OP_ALIAS:
        return print_path(out, "  link         ", path, " -> ") &&
               print_path(out, "", sp_plan_string(p, o->target), "\n");
    case SP_OP_TEXT:
        return print_path(out, "  own text     ", path, "\n");
    case SP_OP_NOTHING:
        return true;
    case SP_OP_MAX:
        break;
    }
    return false;
}

static const char *const views[] = {[SP_VIEW_READ] = "the host's files, read-only",
                                    [SP_VIEW_OPEN] = "the host's files as they are",
                                    [SP_VIEW_NEW] = "an empty root with the places below"};
static const char *const tiers[] = {
    [SP_TIER_NONE] = "none", [SP_TIER_THIN] = "thin", [SP_TIER_CELL] = "full"};
static const char *const nets[] = {
    [SP_NET_OWN] = "none but a loopback of its own",
    [SP_NET_MANAGED] = "hosts that are allowed, through a proxy",
    [SP_NET_FILTER] = "none: sockets are refused",
    [SP_NET_HOST] = "the host's",
};

bool sp_plan_print(const struct sp_plan *p, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "confinement: %s\nfiles: %s\nnetwork: %s\n", tiers[p->tier],
                            views[p->view], nets[p->net]);

    if (p->tier == SP_TIER_CELL)
        ok = ok && sp_buf_printf(out, "namespaces: user mount pid ipc uts cgroup%s\n",
                                 p->net == SP_NET_OWN || p->net == SP_NET_MANAGED ? " net" : "");
    if (p->net == SP_NET_MANAGED) {
        ok = ok && sp_buf_printf(out,
                                 "sockets: 127.0.0.1:53 udp tcp (names), 127.0.0.1:%d (HTTP, "
                                 "SOCKS5), by name:",
                                 SP_NETWORK_PROXY_PORT);
        for (uint32_t i = 0; ok && i < p->port_count; i++)
            ok = sp_buf_printf(out, " %u", p->ports[i]);
        ok = ok && sp_buf_add_str(out, SP_STR("\n"));
    }
    ok = ok && (p->landlock > 0 ? sp_buf_printf(out, "landlock: level %u\n", p->landlock)
                                : sp_buf_printf(out, "landlock: not there\n"));
    ok = ok && sp_buf_printf(out, "seccomp: %s\nplaces:\n",
                             p->notifies ? "filter, refusals are told" : "filter");
    for (uint32_t i = 0; ok && i < p->op_count; i++)
        ok = print_op(p, &p->ops[i], out);
    return ok;
}

/* {"kind":"write","path":"..."}, with "target" for a link. */
static bool add_op_json(const struct sp_plan *p, const struct sp_place_op *o, struct sp_buf *out)
{
    static const char *const kinds[SP_OP_MAX] = {
        [SP_OP_WRITE] = "write", [SP_OP_READ] = "read-only", [SP_OP_PIN] = "pinned",
        [SP_OP_EMPTY] = "empty", [SP_OP_ALIAS] = "link",     [SP_OP_TEXT] = "own text",
    };
    const char *kind = o->op != SP_OP_EMPTY ? kinds[o->op]
                       : o->mode == 0       ? "denied"
                       : o->ino == 0        ? "placeholder"
                                            : kinds[SP_OP_EMPTY];

    return sp_buf_printf(out, "{\"kind\":\"%s\"", kind) &&
           sp_json_add_member(out, "path", sp_str_of(sp_plan_string(p, o->path))) &&
           (o->op != SP_OP_ALIAS ||
            sp_json_add_member(out, "target", sp_str_of(sp_plan_string(p, o->target)))) &&
           (o->op != SP_OP_EMPTY || o->mode != 0 || !o->is_reopened ||
            sp_json_add_value(out, "reopened", "true")) &&
           sp_buf_add(out, "}", 1);
}

bool sp_plan_add_json(const struct sp_plan *p, struct sp_buf *out)
{
    const bool has_netns = p->net == SP_NET_OWN || p->net == SP_NET_MANAGED;
    bool is_first = true;
    bool ok = sp_buf_printf(out, "{\"confinement\":\"%s\"", tiers[p->tier]) &&
              sp_json_add_member(out, "files", sp_str_of(views[p->view])) &&
              sp_json_add_member(out, "network", sp_str_of(nets[p->net])) &&
              sp_json_add_value(out, "namespaces", "[%s%s]",
                                p->tier == SP_TIER_CELL
                                    ? "\"user\",\"mount\",\"pid\",\"ipc\",\"uts\",\"cgroup\""
                                    : "",
                                p->tier == SP_TIER_CELL && has_netns ? ",\"net\"" : "") &&
              sp_json_add_value(out, "ports", "[");

    for (uint32_t i = 0; ok && p->net == SP_NET_MANAGED && i < p->port_count; i++)
        ok = sp_buf_printf(out, "%s%u", i == 0 ? "" : ",", p->ports[i]);
    ok = ok && sp_buf_printf(out, "],\"landlock\":%u,\"seccompNotifies\":%s,\"places\":[",
                             (unsigned)p->landlock, p->notifies ? "true" : "false");
    for (uint32_t i = 0; ok && i < p->op_count; i++) {
        if (p->ops[i].op == SP_OP_NOTHING)
            continue;
        ok = (is_first || sp_buf_add(out, ",", 1)) && add_op_json(p, &p->ops[i], out);
        is_first = false;
    }
    return ok && sp_buf_printf(out, "]}\n");
}
