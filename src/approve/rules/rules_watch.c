/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/rules/rules_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "approve/rules/rules_posts.h"
#include "approve/rules/rules_told.h"
#include "base/auto.h"
#include "base/buf.h"

#define SETTLE_MS    50   /* from the first change of a burst to the reading */
#define WRITE_MS     1000 /* for whoever made a file to write it */
#define REST_FACTOR  10   /* at most a tenth of the time goes into reading */
#define RETRY_MS     1000 /* when there was no memory or no descriptor; doubled ... */
#define RETRY_MAX_MS 60000
#define NEVER        (UINT64_MAX / 2)

struct sp_rules_watch {
    struct sp_loop *loop;
    struct sp_rules_places places; /* its strings are owned */
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void *user;

    struct sp_rules *rules;
    struct sp_buf fingerprint;
    struct sp_rules_told told;

    int fd; /* -1: nothing is watched */
    struct sp_watch in;
    struct sp_rules_posts posts;
    bool has_told_cut;

    struct sp_timer timer; /* always armed, if for never: so that there is room when it matters */
    uint64_t rested_at;    /* not read again before */
    uint64_t retry_ms;     /* 0: nothing is wrong */
};

/* ---- places of our own ---- */

static void drop_list(const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static bool copy_list(const char *const **list)
{
    const char *const *from = *list;
    const char **to;
    size_t n = 0;

    if (from == NULL)
        return true;
    while (from[n] != NULL)
        n++;
    *list = to = calloc(n + 1, sizeof *to);
    for (size_t i = 0; to != NULL && i < n; i++)
        if ((to[i] = strdup(from[i])) == NULL)
            return false;
    return to != NULL;
}

static bool copy_text(const char **text)
{
    if (*text == NULL)
        return true;
    *text = strdup(*text);
    return *text != NULL;
}

/* All of them, also after a failure: what is not copied is not ours to free. */
static bool copy_places(struct sp_rules_places *p)
{
    bool ok = copy_text(&p->system_dir);

    ok = copy_text(&p->user_dir) && ok;
    ok = copy_list(&p->projects) && ok;
    return copy_list(&p->files) && ok;
}

static void drop_places(struct sp_rules_places *p)
{
    free((char *)(uintptr_t)p->system_dir);
    free((char *)(uintptr_t)p->user_dir);
    drop_list(p->projects);
    drop_list(p->files);
}

/* ---- standing watch ---- */

static void stop_watching(struct sp_rules_watch *w)
{
    if (w->fd < 0)
        return;
    sp_loop_unwatch(w->loop, &w->in);
    (void)close(w->fd);
    w->fd = -1;
    sp_rules_posts_done(&w->posts);
}

/* Once: from then on nothing is watched. */
static void complain(struct sp_rules_watch *w, int sys)
{
    const char *way_out = "";
    char text[320];

    if (sys == ENOSPC)
        way_out = "; raise fs.inotify.max_user_watches (sysctl)";
    else if (sys == EMFILE)
        way_out = "; raise fs.inotify.max_user_instances (sysctl) or the limit of open files";
    (void)snprintf(text, sizeof text,
                   "changes of rules files are not noticed, they are read once only: %s%s",
                   strerrordesc_np(sys), way_out);
    sp_rules_told_now(&w->told, text);
}

static void take_posts(struct sp_rules_watch *w)
{
    const int r = w->fd < 0 ? 0 : sp_rules_posts_take(&w->posts, w->fd, &w->places);

    if (r < 0) {
        stop_watching(w);
        complain(w, -r);
    }
    if (w->posts.is_cut && !w->has_told_cut) {
        char text[160];

        w->has_told_cut = true;
        (void)snprintf(text, sizeof text,
                       "rules are in more than %d places: changes in the last of them, those of "
                       "the project, are not noticed",
                       SP_RULES_WATCH_MAX);
        sp_rules_told_now(&w->told, text);
    }
}

/* ---- reading ---- */

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Into w->rules. */
static int load(struct sp_rules_watch *w, struct sp_err *e)
{
    auto_buf struct sp_buf fingerprint = {0};
    struct sp_rules *rules = NULL;

    take_posts(w); /* first: what changes while we read is told */
    sp_rules_told_begin(&w->told);
    const int r = sp_rules_load(&w->places, w->rules, sp_rules_told_add, &w->told, &rules, e);
    if (r < 0)
        return r;
    if (!sp_rules_add_fingerprint(&fingerprint, rules)) {
        sp_rules_unref(rules);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read rules again");
    }
    sp_rules_unref(w->rules);
    w->rules = rules;
    const struct sp_buf before = w->fingerprint;
    w->fingerprint = fingerprint;
    fingerprint = before; /* to be freed */
    return 0;
}

/* In this time, or earlier if it is due then anyhow. */
static void arm(struct sp_rules_watch *w, uint64_t in_ms)
{
    uint64_t due = sp_loop_now(w->loop) + in_ms;

    if (due < w->rested_at)
        due = w->rested_at;
    if (due < w->timer.due_ms)
        (void)sp_loop_timer(w->loop, &w->timer, due, w->timer.fn);
}

/* What we have is not to be relied on: there may be rules that we could not read. */
static void doubt(struct sp_rules_watch *w, const struct sp_err *why)
{
    char text[sizeof why->msg + 128];
    struct sp_rules *doubted = sp_rules_in_doubt(w->rules, NULL);

    sp_rules_told_add(&w->told, sp_error_text(why, text, sizeof text));
    if (doubted == NULL)
        return; /* soon */
    sp_rules_unref(w->rules);
    w->rules = doubted;
}

static void try_later(struct sp_rules_watch *w)
{
    w->retry_ms = w->retry_ms == 0 ? RETRY_MS : w->retry_ms * 2;
    if (w->retry_ms > RETRY_MAX_MS)
        w->retry_ms = RETRY_MAX_MS;
    arm(w, w->retry_ms);
}

static void read_again(struct sp_timer *t)
{
    struct sp_rules_watch *w = SP_CONTAINER(t, struct sp_rules_watch, timer);
    const uint64_t began = now_ms();
    struct sp_err e = {0};

    (void)sp_loop_timer(w->loop, t, NEVER, read_again); /* there is room: it has just been armed */
    const bool is_read = load(w, &e) == 0;
    if (!is_read)
        doubt(w, &e);
    const uint64_t ended = now_ms();
    const uint64_t rest = (ended - began) * REST_FACTOR;
    w->rested_at = ended + (rest < RETRY_MAX_MS ? rest : RETRY_MAX_MS);
    const bool is_taken = w->changed(w->user, w->rules, sp_rules_watch_fingerprint(w));
    sp_rules_told_end(&w->told);
    if (is_read && is_taken)
        w->retry_ms = 0;
    else
        try_later(w);
}

/* ---- what happens to the files ---- */

/*
 * Whoever opens a new file to write it is not done yet, and its end is told. A link is complete,
 * and so is a file that got its name last; its writer may be as well, so all are read after a while
 * but those that are empty.
 */
static uint64_t when_to_read(const struct sp_rules_post *post, const struct sp_file_notice *n)
{
    auto_buf struct sp_buf path = {0};
    struct stat st;

    if (!n->is_new || !post->is_for_file)
        return SETTLE_MS;
    if (!sp_buf_printf(&path, "%s/%s", post->path, n->name) || !sp_buf_add(&path, "", 1))
        return WRITE_MS;
    if (lstat(path.data, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)
        return st.st_size == 0 ? NEVER : WRITE_MS;
    return SETTLE_MS;
}

static void on_notice(void *user, const struct sp_file_notice *n)
{
    struct sp_rules_watch *w = user;
    uint64_t in_ms = n->id < 0 ? SETTLE_MS : NEVER;

    for (uint32_t i = sp_rules_posts_find(&w->posts, n, 0); i != UINT32_MAX;
         i = sp_rules_posts_find(&w->posts, n, i + 1)) {
        const struct sp_rules_post *post = &w->posts.items[i];
        const uint64_t when = when_to_read(post, n);

        if (post->is_for_file)
            sp_rules_told_touch(&w->told, post->path, n->name);
        if (when < in_ms)
            in_ms = when;
    }
    if (in_ms != NEVER)
        arm(w, in_ms);
}

static void on_readable(struct sp_watch *in, uint32_t events)
{
    struct sp_rules_watch *w = SP_CONTAINER(in, struct sp_rules_watch, in);
    const int r = sp_notify_read(w->fd, on_notice, w);

    (void)events;
    if (r < 0) {
        stop_watching(w);
        complain(w, -r);
    }
}

/* ---- beginning and end ---- */

static void watch(struct sp_rules_watch *w)
{
    struct sp_err e = {0};

    w->fd = sp_notify_open();
    if (w->fd < 0) {
        complain(w, -w->fd);
        w->fd = -1;
        return;
    }
    if (sp_loop_watch(w->loop, &w->in, w->fd, EPOLLIN, on_readable, &e) < 0) {
        (void)close(w->fd);
        w->fd = -1;
        complain(w, e.sys);
    }
}

int sp_rules_watch_new(const struct sp_rules_watch_options *o, struct sp_rules_watch **ret,
                       struct sp_err *e)
{
    struct sp_rules_watch *w = calloc(1, sizeof *w);
    int r = 0;

    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch rules");
    w->loop = o->loop;
    w->changed = o->changed;
    w->user = o->user;
    w->told = (struct sp_rules_told){.warn = o->warn, .user = o->user};
    w->places = *o->places;
    w->fd = -1;
    if (!copy_places(&w->places) || !sp_loop_timer(o->loop, &w->timer, NEVER, read_again))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch rules");
    if (r == 0) {
        watch(w);
        r = load(w, e);
    }
    if (r < 0) {
        sp_rules_watch_free(w);
        return r;
    }
    sp_rules_told_end(&w->told);
    *ret = w;
    return 0;
}

void sp_rules_watch_free(struct sp_rules_watch *w)
{
    if (w == NULL)
        return;
    stop_watching(w);
    sp_loop_cancel(w->loop, &w->timer);
    sp_rules_unref(w->rules);
    sp_buf_done(&w->fingerprint);
    sp_rules_told_done(&w->told);
    drop_places(&w->places);
    free(w);
}

struct sp_rules *sp_rules_watch_rules(const struct sp_rules_watch *w)
{
    return w->rules;
}

struct sp_str sp_rules_watch_fingerprint(const struct sp_rules_watch *w)
{
    return (struct sp_str){w->fingerprint.data, w->fingerprint.len};
}
