/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot: the captures of login shells, and their files. */
#include "engine/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "engine/run.h"
#include "engine/snapshot_priv.h"

#define PREFIX "snapshot-"
#define SUFFIX ".sh"
#define TRIES  4

static bool random_name(char ret[SP_SNAPSHOT_NONCE + 1])
{
    uint64_t bits;

    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return false;
    (void)snprintf(ret, SP_SNAPSHOT_NONCE + 1, "%016llx", (unsigned long long)bits);
    return true;
}

/* ---- the directory ---- */

/* Creates the directory if necessary. It must be private to our user. */
static int open_directory(const char *path, int *ret_fd, struct sp_err *e)
{
    auto_close int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the directory of shell snapshots %s", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open the directory of shell snapshots %s", path);
    /* A writer of this directory could make our shells run anything. */
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "the directory of shell snapshots %s must be ours alone: owner %u, mode 0700", path,
            (unsigned)geteuid());
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static bool is_our_name(const char *name)
{
    const size_t prefix = sizeof PREFIX - 1;

    if (strncmp(name, PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < SP_SNAPSHOT_NONCE; i++)
        if (name[prefix + i] == 0 || strchr("0123456789abcdef", name[prefix + i]) == NULL)
            return false;
    return strcmp(name + prefix + SP_SNAPSHOT_NONCE, SUFFIX) == 0;
}

static void remove_if_old(int directory, const char *name)
{
    struct stat st;

    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid() && time(NULL) - st.st_mtime > SP_SNAPSHOT_AGE_S)
        (void)unlinkat(directory, name, 0); /* otherwise the next run removes it */
}

/* Removes files of earlier runs that were not used for SP_SNAPSHOT_AGE_S. */
static void remove_leftovers(int directory)
{
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (is_our_name(entry->d_name))
            remove_if_old(directory, entry->d_name);
    (void)closedir(d);
}

/* ---- one file ---- */

/* O_EXCL with a random name: a planted link is not followed. */
static int create_file(int directory, char *name, size_t size)
{
    for (int i = 0; i < TRIES; i++) {
        char random[SP_SNAPSHOT_NONCE + 1];

        if (!random_name(random))
            return -1;
        (void)snprintf(name, size, PREFIX "%s" SUFFIX, random);
        const int fd =
            openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* *ret_name is to be freed. */
static int write_snapshot(int directory, struct sp_str text, char **ret_name, struct sp_err *e)
{
    char name[sizeof PREFIX + SP_SNAPSHOT_NONCE + sizeof SUFFIX];
    auto_close int fd = create_file(directory, name, sizeof name);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a shell snapshot");
    char *copy = strdup(name);
    const int cause = copy == NULL ? ENOMEM : sp_write_all(fd, text.p, text.n);
    if (cause != 0) {
        (void)unlinkat(directory, name, 0); /* no incomplete files */
        free(copy);
        return sp_fail(e, SP_E_SYSTEM, cause, "write a shell snapshot");
    }
    *ret_name = copy;
    return 0;
}

/* Marks the file as used. false: it does not exist any more. */
static bool touch_snapshot(int directory, const char *name)
{
    return utimensat(directory, name, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

enum state { UNUSED, CAPTURING, CHECKING, READY, NONE };

struct entry {
    struct sp_snapshots *owner;
    enum state state;
    struct sp_shell shell; /* owned */
    char *cwd;
    char *name, *path; /* of the file; NULL: none */
    char nonce[SP_SNAPSHOT_NONCE + 1];
    struct sp_buf environment; /* variables of capture and check: NAME=VALUE, NUL-terminated */
    uint64_t used;             /* order of use */
    bool is_telling;           /* a callback has its path */
    struct sp_run *run;
    struct sp_list waits; /* struct sp_snapshot_wait */
    struct sp_deferred tell;
};

struct sp_snapshots {
    struct sp_backend *backend;
    const struct sp_policy *policy;
    char *path;
    int directory;
    uint64_t uses;
    struct entry entries[SP_SNAPSHOT_MAX];
    struct entry refused; /* for unsupported shells and a full table: always NONE */
};

/* ---- waiting ---- */

void sp_snapshots_forget(struct sp_snapshot_wait *w)
{
    sp_list_remove(&w->link);
    w->impl = NULL;
}

static bool is_settled(const struct entry *n)
{
    return n->state == READY || n->state == NONE;
}

/* No wait and no callback uses its path. */
static bool is_free(const struct entry *n)
{
    return sp_list_is_empty(&n->waits) && !n->is_telling;
}

/* Waits that are added by the callbacks are called back in the next turn. */
static void on_tell(struct sp_deferred *d)
{
    struct entry *n = SP_CONTAINER(d, struct entry, tell);
    const struct sp_list *last = sp_list_last(&n->waits);
    struct sp_list *i = NULL;

    n->is_telling = true;
    while (i != last && (i = sp_list_first(&n->waits)) != NULL) {
        struct sp_snapshot_wait *w = SP_CONTAINER(i, struct sp_snapshot_wait, link);

        sp_snapshots_forget(w);
        w->fn(w, n->state == READY ? n->path : NULL);
    }
    n->is_telling = false;
    if (!sp_list_is_empty(&n->waits))
        sp_loop_again(n->owner->backend->loop, d, on_tell);
}

static void tell_later(struct entry *n)
{
    sp_loop_defer(n->owner->backend->loop, &n->tell, on_tell);
}

static void settle_entry(struct entry *n, enum state state)
{
    n->state = state;
    sp_buf_done(&n->environment);
    tell_later(n);
}

/* ---- capturing ---- */

static void remove_file(struct entry *n)
{
    if (n->name != NULL)
        (void)unlinkat(n->owner->directory, n->name, 0); /* otherwise a later run removes it */
    free(n->name);
    free(n->path);
    n->name = n->path = NULL;
}

static void give_up(struct entry *n)
{
    remove_file(n);
    settle_entry(n, NONE);
}

/* The variables as sp_env_request wants them; borrowed from the entry. The list is to be freed. */
static char **list_of(const struct sp_buf *made)
{
    size_t count = 0;

    for (size_t i = 0; i < made->len; i++)
        count += made->data[i] == 0;
    char **list = calloc(count + 1, sizeof *list);
    size_t at = 0;
    for (size_t i = 0; list != NULL && i < count; i++) {
        list[i] = made->data + at;
        at += strlen(list[i]) + 1;
    }
    return list;
}

static int run_shell(struct entry *n, const char *flag, const struct sp_buf *script, sp_run_fn *fn)
{
    const struct sp_str argv[] = {
        sp_str_of(n->shell.path), sp_str_of(flag), {script->data, script->len}};
    auto_free char **own = list_of(&n->environment);
    const struct sp_env_request environment = {
        .own = own, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    const struct sp_run_ask ask = {
        .launch = {.name = SP_STR("snapshot"),
                   .cwd = sp_str_of(n->cwd),
                   .argv = argv,
                   .argc = 3,
                   .environ = &environment,
                   .policy = n->owner->policy},
        .timeout_ms = SP_SNAPSHOT_LIMIT_MS,
    };
    struct sp_err e;

    if (own == NULL)
        return -SP_E_SYSTEM;
    return sp_run_start(n->owner->backend, &ask, fn, n, &n->run, &e);
}

static bool is_success(const struct sp_run_result *r)
{
    return r->kind == SP_RUN_EXITED && r->exit_code == 0 && !r->has_lost_output &&
           r->out_total == r->out.n;
}

static void on_checked(void *user, const struct sp_run_result *r)
{
    struct entry *n = user;

    n->run = NULL;
    if (is_success(r))
        settle_entry(n, READY);
    else
        give_up(n);
}

static bool write_file(struct entry *n, struct sp_str printed)
{
    auto_buf struct sp_buf text = {0};
    struct sp_err e;

    return sp_snapshot_compose(&text, n->shell.type, n->nonce, printed) &&
           write_snapshot(n->owner->directory, sp_buf_str(&text), &n->name, &e) == 0 &&
           asprintf(&n->path, "%s/%s", n->owner->path, n->name) >= 0;
}

static bool start_check(struct entry *n)
{
    auto_buf struct sp_buf script = {0};

    n->state = CHECKING;
    return sp_snapshot_add_check(&script, n->path) && run_shell(n, "-c", &script, on_checked) == 0;
}

static void on_captured(void *user, const struct sp_run_result *r)
{
    struct entry *n = user;

    n->run = NULL;
    if (!is_success(r) || !write_file(n, r->out) || !start_check(n))
        give_up(n);
}

static bool start_capture(struct entry *n)
{
    auto_buf struct sp_buf script = {0};

    n->state = CAPTURING;
    return random_name(n->nonce) && sp_snapshot_add_capture(&script, n->shell.type, n->nonce) &&
           run_shell(n, "-lc", &script, on_captured) == 0;
}

/* ---- entries ---- */

static void clear_entry(struct entry *n)
{
    struct sp_snapshots *owner = n->owner;

    sp_run_free(n->run);
    sp_loop_undefer(owner->backend->loop, &n->tell);
    for (struct sp_list *i; (i = sp_list_first(&n->waits)) != NULL;)
        sp_snapshots_forget(SP_CONTAINER(i, struct sp_snapshot_wait, link));
    remove_file(n);
    sp_shell_done(&n->shell);
    free(n->cwd);
    sp_buf_done(&n->environment);
    *n = (struct entry){.owner = owner};
    sp_list_init(&n->waits);
}

static struct entry *find_entry(struct sp_snapshots *s, const struct sp_shell *shell,
                                struct sp_str cwd)
{
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        struct entry *n = &s->entries[i];

        if (n->state != UNUSED && strcmp(n->shell.path, shell->path) == 0 &&
            sp_str_eq(sp_str_of(n->cwd), cwd))
            return n;
    }
    return NULL;
}

/* An unused entry, or the least recently used one, cleared. NULL: all are in use. */
static struct entry *make_room(struct sp_snapshots *s)
{
    struct entry *oldest = NULL;

    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        struct entry *n = &s->entries[i];

        if (n->state == UNUSED)
            return n;
        if (is_settled(n) && is_free(n) && (oldest == NULL || n->used < oldest->used))
            oldest = n;
    }
    if (oldest != NULL)
        clear_entry(oldest);
    return oldest;
}

/* Without the variables of a single call or attempt. */
static bool make_environment(struct entry *n, const struct sp_env_request *environ)
{
    struct sp_env_request ask = *environ;
    uint32_t count;
    struct sp_err e;

    ask.thread_id = ask.session_id = ask.call_id = ask.permission_profile = (struct sp_str){0};
    ask.marks = (struct sp_env_vars){0};
    ask.policy.hides_secrets = ask.is_confined;
    ask.is_confined = ask.has_no_network = false;
    ask.plain = sp_env_plain; /* without the call's own variables */
    return sp_env_make(&ask, &n->environment, &count, &e) == 0;
}

static bool begin_entry(struct entry *n, const struct sp_shell *shell, struct sp_str cwd,
                        const struct sp_env_request *environ)
{
    n->shell = (struct sp_shell){.type = shell->type, .path = strdup(shell->path)};
    n->cwd = strndup(cwd.p, cwd.n);
    if (n->shell.path == NULL || n->cwd == NULL) {
        clear_entry(n);
        return false;
    }
    if (!make_environment(n, environ) || !start_capture(n))
        give_up(n);
    return true;
}

static bool is_supported(const struct sp_shell *shell, struct sp_str cwd)
{
    return (shell->type == SP_SHELL_BASH || shell->type == SP_SHELL_ZSH ||
            shell->type == SP_SHELL_SH) &&
           cwd.n != 0 && !sp_str_has_nul(cwd);
}

static struct entry *entry_for(struct sp_snapshots *s, const struct sp_shell *shell,
                               struct sp_str cwd, const struct sp_env_request *environ)
{
    if (!is_supported(shell, cwd))
        return &s->refused;
    struct entry *n = find_entry(s, shell, cwd);
    if (n != NULL && n->state == READY && is_free(n) && !touch_snapshot(s->directory, n->name)) {
        clear_entry(n); /* its file was removed */
        n = NULL;
    }
    if (n != NULL)
        return n;
    n = make_room(s);
    return n != NULL && begin_entry(n, shell, cwd, environ) ? n : &s->refused;
}

void sp_snapshots_get(struct sp_snapshots *s, const struct sp_shell *shell, struct sp_str cwd,
                      const struct sp_env_request *environ, struct sp_snapshot_wait *w)
{
    struct entry *n = entry_for(s, shell, cwd, environ);

    n->used = ++s->uses;
    w->impl = n;
    sp_list_append(&n->waits, &w->link);
    if (is_settled(n))
        tell_later(n);
}

/* ---- creation ---- */

int sp_snapshots_new(const struct sp_snapshots_options *o, struct sp_snapshots **ret,
                     struct sp_err *e)
{
    if (o->directory[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "the directory of shell snapshots must be absolute: %s",
                       o->directory);
    struct sp_snapshots *s = calloc(1, sizeof *s);
    char *path = strdup(o->directory);
    if (s == NULL || path == NULL) {
        free(s);
        free(path);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep shell snapshots");
    }
    s->backend = o->backend;
    s->policy = o->policy;
    s->path = path;
    s->directory = -1;
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        s->entries[i].owner = s;
        sp_list_init(&s->entries[i].waits);
    }
    s->refused = (struct entry){.owner = s, .state = NONE};
    sp_list_init(&s->refused.waits);
    const int r = open_directory(path, &s->directory, e);
    if (r < 0) {
        sp_snapshots_free(s);
        return r;
    }
    remove_leftovers(s->directory);
    *ret = s;
    return 0;
}

void sp_snapshots_free(struct sp_snapshots *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++)
        clear_entry(&s->entries[i]);
    clear_entry(&s->refused);
    if (s->directory >= 0)
        (void)close(s->directory);
    free(s->path);
    free(s);
}
