/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/remote/remote_priv.h"

#define FAREWELL_MS 300U /* the most that the end waits for the end of what still ran */

static void destroy(struct sp_remote *r);

/* ---- callbacks, from within which everything may be ended ---- */

void sp_remote_enter(struct sp_remote *r)
{
    r->depth++;
}

static void on_sweep(struct sp_deferred *d)
{
    destroy(SP_CONTAINER(d, struct sp_remote, sweep));
}

void sp_remote_leave(struct sp_remote *r)
{
    if (--r->depth == 0 && r->is_freed)
        sp_loop_defer(r->backend.loop, &r->sweep, on_sweep);
}

/* ---- the connection ---- */

/* Jobs come and go in their callbacks: each turn of the loop begins anew with one not yet seen. */
static struct sp_remote_job *next_unseen(struct sp_remote *r)
{
    struct sp_remote_job *rj = r->jobs;

    while (rj != NULL && rj->is_seen)
        rj = rj->next;
    return rj;
}

static void forget_seen(struct sp_remote *r)
{
    for (struct sp_remote_job *rj = r->jobs; rj != NULL; rj = rj->next)
        rj->is_seen = false;
}

static void on_ready(void *user, struct sp_json *j, uint32_t result, bool was_resumed)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    if (!was_resumed)
        sp_remote_learn(r, j, result);
    forget_seen(r);
    for (struct sp_remote_job *rj; !r->is_freed && was_resumed && (rj = next_unseen(r)) != NULL;) {
        rj->is_seen = true;
        sp_remote_resumed(rj);
    }
    sp_remote_leave(r);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    sp_remote_notified(r, method, j, params);
    sp_remote_leave(r);
}

/* The next one who wants something gets a new connection and a new session. */
static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_remote *r = user;
    struct sp_client *old = TAKE_PTR(r->client);
    const struct sp_err e = *why;

    sp_remote_enter(r);
    sp_remote_forget_facts(r);
    r->full = 0;
    forget_seen(r);
    for (struct sp_remote_job *rj = r->jobs; rj != NULL; rj = rj->next) {
        rj->is_doomed = rj->state != SP_REMOTE_OVER;
        rj->is_full = false;
    }
    for (struct sp_remote_job *rj; !r->is_freed && (rj = next_unseen(r)) != NULL;) {
        rj->is_seen = true;
        if (rj->is_doomed)
            sp_remote_died(rj, &e);
    }
    if (!r->is_freed)
        sp_remote_tell_facts(r, &e);
    sp_client_free(old);
    sp_remote_leave(r);
}

int sp_remote_need_client(struct sp_remote *r, struct sp_err *e)
{
    static const struct sp_client_ops ops = {
        .ready = on_ready, .notified = on_notified, .dead = on_dead};

    if (r->client != NULL)
        return 0;
    const int err = sp_client_new(r->backend.loop, &r->options, &ops, r, &r->client, e);
    if (err == 0)
        sp_client_connect(r->client);
    return err;
}

/* ---- making and ending ---- */

static void free_list(const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static void free_text(const char *text)
{
    free((char *)(uintptr_t)text);
}

static void on_session_ended(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    (void)q;
    (void)reply;
}

/* What commands left in the background ends with the session, which nobody will resume. */
static void take_leave(struct sp_remote *r)
{
    struct sp_client_request end = {.fn = on_session_ended};

    if (r->client == NULL)
        return;
    if (r->can_end_session)
        sp_client_ask(r->client, &end, "session/end", SP_STR("{}"));
    /* A server may forget a request whose connection ends right behind it. */
    if (r->can_end_session || r->farewells != NULL)
        sp_client_settle(r->client, FAREWELL_MS);
    sp_client_forget(&end);
}

static void destroy(struct sp_remote *r)
{
    r->depth++; /* what is heard meanwhile ends nothing once more */
    take_leave(r);
    sp_client_free(TAKE_PTR(r->client));
    sp_remote_drop_files(r);
    while (r->farewells != NULL)
        sp_remote_end_farewell(r->farewells);
    while (r->graves != NULL)
        sp_remote_job_free(r->graves);
    sp_loop_undefer(r->backend.loop, &r->turn);
    sp_loop_cancel(r->backend.loop, &r->facts_late);
    sp_remote_forget_facts(r);
    free_text(r->options.url);
    free_text(r->options.cwd);
    free_text(r->options.token);
    free_text(r->options.client_name);
    free_list(r->options.program);
    free_list(r->options.env);
    free(r);
}

static void free_remote(struct sp_backend *b)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);

    r->is_freed = true;
    while (r->jobs != NULL) /* that were not released: nobody is told any more */
        sp_job_release(r->jobs->job);
    while (r->waits != NULL)
        sp_remote_forget_wait(r->waits);
    sp_remote_drop_files(r);
    if (r->depth == 0)
        destroy(r);
}

static bool copy_text(const char **text)
{
    if (*text != NULL)
        *text = strdup(*text);
    return *text != NULL;
}

static bool copy_list(const char *const **list)
{
    size_t n = 0;

    while ((*list)[n] != NULL)
        n++;
    const char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < n; i++) {
        copy[i] = strdup((*list)[i]);
        if (copy[i] == NULL) {
            free_list(copy);
            copy = NULL;
        }
    }
    *list = copy;
    return copy != NULL;
}

/* In place: what could not be copied is NULL then. */
static bool copy_options(struct sp_client_options *o)
{
    bool ok = true;

    ok = (o->url == NULL || copy_text(&o->url)) && ok;
    ok = (o->cwd == NULL || copy_text(&o->cwd)) && ok;
    ok = (o->token == NULL || copy_text(&o->token)) && ok;
    ok = (o->client_name == NULL || copy_text(&o->client_name)) && ok;
    ok = (o->program == NULL || copy_list(&o->program)) && ok;
    return (o->env == NULL || copy_list(&o->env)) && ok;
}

int sp_remote_new(struct sp_loop *loop, const struct sp_client_options *o, struct sp_backend **ret,
                  struct sp_err *e)
{
    static const struct sp_backend_ops ops = {
        .start = sp_remote_start,
        .write = sp_remote_write,
        .close_stdin = sp_remote_close_stdin,
        .signal = sp_remote_signal,
        .resize = sp_remote_resize,
        .terminate = sp_remote_terminate,
        .look = sp_remote_look,
        .go_on = sp_remote_go_on,
        .release = sp_remote_release,
        .ask_facts = sp_remote_ask_facts,
        .forget_facts = sp_remote_forget_wait,
        .free = free_remote,
        .file = sp_remote_ask_file,
        .forget_file = sp_remote_forget_file,
    };
    struct sp_remote *r = calloc(1, sizeof *r);

    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    r->backend = (struct sp_backend){.ops = &ops, .loop = loop};
    r->facts.is_remote = true;
    r->options = *o;
    if (!copy_options(&r->options)) {
        destroy(r);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    }
    struct sp_client *probe; /* says now what is wrong with the options */
    const int err = sp_client_new(loop, o, &(struct sp_client_ops){0}, NULL, &probe, e);
    if (err < 0) {
        destroy(r);
        return err;
    }
    sp_client_free(probe);
    *ret = &r->backend;
    return 0;
}
