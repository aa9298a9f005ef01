/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote: the backend behind an exec-server: its facts, its connection, its end. remote_job.c runs
 * the commands, remote_file.c the file operations.
 */
#include "engine/remote/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/uri.h"
#include "engine/remote/remote_priv.h"

/* ---- facts about the server ---- */

#define FACTS_MS 60000U /* for environment/info, on top of the time to connect */

static void forget_facts(struct sp_remote *r)
{
    free(TAKE_PTR(r->shell_name));
    free(TAKE_PTR(r->shell_path));
    free(TAKE_PTR(r->cwd));
    r->facts = (struct sp_backend_facts){.is_remote = true};
    r->has_facts = r->can_resize = r->can_signal = r->can_end_session = r->can_inspect = false;
}

static void forget_wait(struct sp_backend_wait *w)
{
    sp_list_remove(&w->link);
    w->backend = NULL;
}

/* e NULL: the facts are known. */
static void tell_facts(struct sp_remote *r, const struct sp_err *e)
{
    struct sp_list *i;

    sp_loop_cancel(r->backend.loop, &r->facts_late);
    sp_remote_enter(r);
    while (!r->is_freed && (i = sp_list_first(&r->waits)) != NULL) {
        struct sp_backend_wait *w = SP_CONTAINER(i, struct sp_backend_wait, link);

        forget_wait(w);
        w->fn(w, e == NULL ? &r->facts : NULL, e);
    }
    sp_remote_leave(r);
}

/* NULL: absent, or no valid C string. */
static char *copy_text(struct sp_json *j, uint32_t object, const char *key)
{
    struct sp_str s = {0};

    if (sp_json_opt_str(j, object, key, &s, NULL) < 0 || s.n == 0 || sp_str_has_nul(s))
        return NULL;
    return strndup(s.p, s.n);
}

static char *copy_path(struct sp_json *j, uint32_t object, const char *key)
{
    auto_uri struct sp_uri u = {0};
    struct sp_str s = {0};

    if (sp_json_opt_str(j, object, key, &s, NULL) < 0 || s.p == NULL ||
        sp_uri_read(s, &u, NULL) < 0)
        return NULL;
    return TAKE_PTR(u.path);
}

static bool can(struct sp_json *j, uint32_t info, const char *what)
{
    uint32_t capabilities = SP_JSON_NONE;
    bool is_there = false;

    if (sp_json_opt_object(j, info, "capabilities", &capabilities, NULL) == 0 &&
        capabilities != SP_JSON_NONE)
        (void)sp_json_def_bool(j, capabilities, what, &is_there, NULL);
    return is_there;
}

static void learn(struct sp_remote *r, struct sp_json *j, uint32_t info)
{
    uint32_t shell = SP_JSON_NONE;

    if (sp_json_opt_object(j, info, "shell", &shell, NULL) == 0 && shell != SP_JSON_NONE) {
        r->shell_name = copy_text(j, shell, "name");
        r->shell_path = copy_text(j, shell, "path");
    }
    r->cwd = r->options.cwd != NULL ? strdup(r->options.cwd) : copy_path(j, info, "cwd");
    r->can_resize = can(j, info, "processResize");
    r->can_signal = can(j, info, "processSignals");
    r->can_end_session = can(j, info, "sessionEnd");
    r->can_inspect = can(j, info, "processInspect");
    r->facts.can_close_stdin = can(j, info, "processCloseStdin");
}

static void publish(struct sp_remote *r)
{
    r->facts.is_remote = true;
    r->facts.shell_name = r->shell_name;
    r->facts.shell_path = r->shell_path;
    r->facts.cwd = r->cwd;
    if (r->shell_name != NULL)
        r->facts.shell_type = sp_shell_type_of(sp_str_of(r->shell_name));
    r->has_facts = true;
    tell_facts(r, NULL);
}

/* A server that refuses environment/info counts as one without a shell. */
static void on_info(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote *r = SP_CONTAINER(q, struct sp_remote, info);

    if (reply->fate == SP_CLIENT_LOST)
        return; /* repeated after a resume; on_dead reports the final loss */
    if (reply->fate == SP_CLIENT_RESULT && sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT)
        learn(r, reply->j, reply->value);
    else if (r->options.cwd != NULL)
        r->cwd = strdup(r->options.cwd);
    publish(r);
}

/* The result of initialize may have the facts; other servers are asked with environment/info. */
static void learn_facts(struct sp_remote *r, struct sp_json *j, uint32_t result)
{
    uint32_t info = SP_JSON_NONE;

    forget_facts(r);
    if (sp_json_opt_object(j, result, "environmentInfo", &info, NULL) == 0 &&
        info != SP_JSON_NONE) {
        learn(r, j, info);
        publish(r);
        return;
    }
    r->info.fn = on_info;
    r->info.is_repeatable = true;
    sp_client_ask(r->client, &r->info, "environment/info", SP_STR("null"));
}

static void on_facts_late(struct sp_timer *t)
{
    struct sp_remote *r = SP_CONTAINER(t, struct sp_remote, facts_late);
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, 0, "the exec-server does not say what it is");
    tell_facts(r, &e);
}

static void on_turn(struct sp_deferred *d)
{
    struct sp_remote *r = SP_CONTAINER(d, struct sp_remote, turn);
    struct sp_loop *loop = r->backend.loop;
    struct sp_err e;

    if (r->has_facts)
        tell_facts(r, NULL);
    else if (sp_remote_need_client(r, &e) < 0)
        tell_facts(r, &e);
    else if (!sp_list_is_empty(&r->waits) && r->facts_late.slot == 0)
        (void)sp_loop_timer(loop, &r->facts_late,
                            sp_loop_now(loop) + r->options.connect_timeout_ms + FACTS_MS,
                            on_facts_late); /* out of memory: no limit */
}

static void ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);

    w->backend = b;
    sp_list_prepend(&r->waits, &w->link);
    sp_loop_defer(b->loop, &r->turn, on_turn);
}

#define FAREWELL_MS 300U /* how long the end of the backend waits for the end of its processes */

static void destroy_remote(struct sp_remote *r);

/* ---- callbacks, which may free the backend: it goes when the outermost returns ---- */

void sp_remote_enter(struct sp_remote *r)
{
    r->depth++;
}

static void on_remote_sweep(struct sp_deferred *d)
{
    destroy_remote(SP_CONTAINER(d, struct sp_remote, sweep));
}

void sp_remote_leave(struct sp_remote *r)
{
    if (--r->depth == 0 && r->is_freed)
        sp_loop_defer(r->backend.loop, &r->sweep, on_remote_sweep);
}

/* ---- the connection ---- */

/* Callbacks may add and remove jobs, so each step starts over with the first job not seen yet. */
static struct sp_remote_job *next_unseen(struct sp_remote *r)
{
    struct sp_remote_job *rj = r->jobs;

    while (rj != NULL && rj->is_seen)
        rj = rj->next;
    if (rj != NULL)
        rj->is_seen = true;
    return rj;
}

static void on_ready(void *user, struct sp_json *j, uint32_t result, bool was_resumed)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    if (!was_resumed)
        learn_facts(r, j, result);
    for (struct sp_remote_job *rj = r->jobs; rj != NULL; rj = rj->next)
        rj->is_seen = false;
    for (struct sp_remote_job *rj; !r->is_freed && was_resumed && (rj = next_unseen(r)) != NULL;)
        sp_remote_resumed(rj);
    sp_remote_leave(r);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    sp_remote_notified(r, method, j, params);
    sp_remote_leave(r);
}

/* The next request makes a new client with a new session. */
static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_remote *r = user;
    struct sp_client *old = TAKE_PTR(r->client);
    const struct sp_err e = *why;

    sp_remote_enter(r);
    forget_facts(r);
    r->full = 0;
    for (struct sp_remote_job *rj = r->jobs; rj != NULL; rj = rj->next) {
        rj->is_doomed = rj->state != SP_REMOTE_OVER;
        rj->is_full = rj->is_seen = false;
    }
    for (struct sp_remote_job *rj; !r->is_freed && (rj = next_unseen(r)) != NULL;)
        if (rj->is_doomed)
            sp_remote_died(rj, &e);
    if (!r->is_freed)
        tell_facts(r, &e);
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

/* ---- creation and end ---- */

static void free_list(const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static void on_session_ended(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    (void)q;
    (void)reply;
}

static void destroy_remote(struct sp_remote *r)
{
    const char *const texts[] = {r->options.url, r->options.cwd, r->options.token,
                                 r->options.client_name};
    struct sp_client_request end = {.fn = on_session_ended};

    r->depth++; /* callbacks from here on must not destroy it again */
    if (r->client != NULL) {
        /* Background processes of commands end with the session, which is never resumed. */
        if (r->can_end_session)
            sp_client_ask(r->client, &end, "session/end", SP_STR("{}"));
        /* A server may ignore a request if the connection ends right behind it. */
        if (r->can_end_session || r->farewells != NULL)
            sp_client_settle(r->client, FAREWELL_MS);
        sp_client_forget(&end);
    }
    sp_client_free(TAKE_PTR(r->client));
    sp_remote_drop_files(r);
    while (r->farewells != NULL)
        sp_remote_end_farewell(r->farewells);
    while (r->graves != NULL)
        sp_remote_job_free(r->graves);
    sp_loop_undefer(r->backend.loop, &r->turn);
    sp_loop_cancel(r->backend.loop, &r->facts_late);
    forget_facts(r);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free((char *)(uintptr_t)texts[i]);
    free_list(r->options.program);
    free_list(r->options.env);
    free(r);
}

static void free_remote(struct sp_backend *b)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);

    r->is_freed = true;
    while (r->jobs != NULL) /* jobs that their owners have not released: no op is called any more */
        sp_job_release(r->jobs->job);
    for (struct sp_list *i; (i = sp_list_first(&r->waits)) != NULL;)
        forget_wait(SP_CONTAINER(i, struct sp_backend_wait, link));
    sp_remote_drop_files(r);
    if (r->depth == 0)
        destroy_remote(r);
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

/* In place. Continues after a failure, so that no member points to the caller's memory. */
static bool copy_options(struct sp_client_options *o)
{
    const char **texts[] = {&o->url, &o->cwd, &o->token, &o->client_name};
    bool ok = true;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (*texts[i] != NULL) {
            *texts[i] = strdup(*texts[i]);
            ok = ok && *texts[i] != NULL;
        }
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
        .ask_facts = ask_facts,
        .forget_facts = forget_wait,
        .free = free_remote,
        .file = sp_remote_ask_file,
        .forget_file = sp_remote_forget_file,
    };
    struct sp_remote *r = calloc(1, sizeof *r);

    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    r->backend = (struct sp_backend){.ops = &ops, .loop = loop};
    sp_list_init(&r->waits);
    r->facts.is_remote = true;
    r->options = *o;
    if (!copy_options(&r->options)) {
        destroy_remote(r);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    }
    struct sp_client *probe; /* reports invalid options now */
    const int err = sp_client_new(loop, o, &(struct sp_client_ops){0}, NULL, &probe, e);
    if (err < 0) {
        destroy_remote(r);
        return err;
    }
    sp_client_free(probe);
    *ret = &r->backend;
    return 0;
}
