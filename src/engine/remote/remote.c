/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote: the backend behind an exec-server: its facts, its connection, its files, its end.
 * remote_job.c runs the commands.
 */
#include "engine/remote/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/uri.h"
#include "engine/remote/remote_priv.h"

#define FACTS_MS    60000U /* for environment/info, on top of the time to connect */
#define FAREWELL_MS 300U   /* how long the end of the backend waits for the end of its processes */
#define ANSWER_MS   30000U /* for a file operation */

struct file_request {
    struct sp_client_request request;
    struct sp_remote *remote;
    struct sp_backend_file *file;
    struct sp_list link;   /* remote->files */
    struct sp_timer timer; /* limit for the answer */
};

/* ---- callbacks, which may free the backend: it goes when the outermost returns ---- */

static void destroy_remote(struct sp_remote *r);

static void on_remote_sweep(struct sp_deferred *d)
{
    destroy_remote(SP_CONTAINER(d, struct sp_remote, sweep));
}

void sp_remote_leave(struct sp_remote *r)
{
    if (--r->depth == 0 && r->is_freed)
        sp_loop_defer(r->backend.loop, &r->sweep, on_remote_sweep);
}

/* ---- facts about the server ---- */

static void forget_facts(struct sp_remote *r)
{
    free(TAKE_PTR(r->shell_name));
    free(TAKE_PTR(r->shell_path));
    free(TAKE_PTR(r->cwd));
    r->facts = (struct sp_backend_facts){.is_remote = true};
    r->has_facts = r->can_resize = r->can_signal = r->can_end_session = r->can_inspect = false;
    r->can_proxy = false;
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
    return sp_str_dup(s);
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

/* A limit that the server does not name is not enforced there. */
static void learn_limits(struct sp_remote *r, struct sp_json *j, uint32_t info)
{
    uint32_t limits = SP_JSON_NONE;

    if (sp_json_opt_object(j, info, "limits", &limits, NULL) < 0 || limits == SP_JSON_NONE)
        return;
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        struct sp_str scope = {0};

        if (sp_json_opt_str(j, limits, sp_limit_kinds[i].keys[SP_LIMIT_CAMEL], &scope, NULL) < 0)
            continue;
        for (int s = SP_LIMIT_PER_PROCESS; s <= SP_LIMIT_TREE; s++)
            if (sp_str_eq(scope, sp_str_of(sp_limit_scope_names[s])))
                r->facts.limits[i] = (enum sp_limit_scope)s;
    }
}

/* info SP_JSON_NONE: the server does not tell. */
static void learn(struct sp_remote *r, struct sp_json *j, uint32_t info)
{
    uint32_t shell = SP_JSON_NONE;

    r->cwd = r->options.cwd != NULL ? strdup(r->options.cwd) : NULL;
    if (info != SP_JSON_NONE) {
        if (sp_json_opt_object(j, info, "shell", &shell, NULL) == 0 && shell != SP_JSON_NONE) {
            r->shell_name = copy_text(j, shell, "name");
            r->shell_path = copy_text(j, shell, "path");
        }
        if (r->options.cwd == NULL)
            r->cwd = copy_path(j, info, "cwd");
        r->can_resize = can(j, info, "processResize");
        r->can_signal = can(j, info, "processSignals");
        r->can_end_session = can(j, info, "sessionEnd");
        r->can_inspect = can(j, info, "processInspect");
        r->can_proxy = can(j, info, "networkProxyLaunch");
        r->facts.can_name = can(j, info, "processNames");
        r->facts.judges = can(j, info, "judgesStarts");
        r->facts.can_limit = can(j, info, "processLimits");
        r->facts.can_close_stdin = can(j, info, "processCloseStdin");
        learn_limits(r, j, info);
    }
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
    const bool is_told =
        reply->fate == SP_CLIENT_RESULT && sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT;
    learn(r, reply->j, is_told ? reply->value : SP_JSON_NONE);
}

/* The result of initialize may have the facts; other servers are asked with environment/info. */
static void learn_facts(struct sp_remote *r, struct sp_json *j, uint32_t result)
{
    uint32_t info = SP_JSON_NONE;

    forget_facts(r);
    if (sp_json_opt_object(j, result, "environmentInfo", &info, NULL) == 0 &&
        info != SP_JSON_NONE) {
        learn(r, j, info);
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

/* ---- the connection ---- */

/* The session continues, or is gone (why). Callbacks may add and remove jobs, so each step starts
 * over with the first job that is still due. */
static void tell_jobs(struct sp_remote *r, const struct sp_err *why)
{
    struct sp_remote_job *due;

    sp_list_each(i, &r->jobs)
        SP_CONTAINER(i, struct sp_remote_job, link)->is_due = true;
    do {
        due = NULL;
        sp_list_each(i, &r->jobs)
            if (due == NULL && SP_CONTAINER(i, struct sp_remote_job, link)->is_due)
                due = SP_CONTAINER(i, struct sp_remote_job, link);
        if (due != NULL) {
            due->is_due = false;
            sp_remote_tell(due, why);
        }
    } while (due != NULL && !r->is_freed);
}

static void on_ready(void *user, struct sp_json *j, uint32_t result, bool was_resumed)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    if (was_resumed && r->backend.connection != NULL)
        r->backend.connection(r->backend.user, NULL);
    if (was_resumed)
        tell_jobs(r, NULL);
    else
        learn_facts(r, j, result);
    sp_remote_leave(r);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    sp_remote_notified(r, method, j, params);
    sp_remote_leave(r);
}

static bool on_asked(void *user, struct sp_str method, struct sp_str id, struct sp_json *j,
                     uint32_t params)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    const bool is_known = sp_remote_asked(r, method, id, j, params);
    sp_remote_leave(r);
    return is_known;
}

/* The server denies what was not answered. */
static void on_interrupted(void *user, const char *why)
{
    struct sp_remote *r = user;

    sp_remote_enter(r);
    sp_list_each(i, &r->jobs)
        sp_remote_drop_questions(SP_CONTAINER(i, struct sp_remote_job, link));
    if (!r->is_freed && r->backend.connection != NULL)
        r->backend.connection(r->backend.user, why);
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
    sp_list_each(i, &r->jobs)
        SP_CONTAINER(i, struct sp_remote_job, link)->is_full = false;
    tell_jobs(r, &e);
    if (!r->is_freed)
        tell_facts(r, &e);
    sp_client_free(old, 0);
    sp_remote_leave(r);
}

int sp_remote_need_client(struct sp_remote *r, struct sp_err *e)
{
    static const struct sp_client_ops ops = {.ready = on_ready,
                                             .notified = on_notified,
                                             .asked = on_asked,
                                             .interrupted = on_interrupted,
                                             .dead = on_dead};

    if (r->client != NULL)
        return 0;
    const int err = sp_client_new(r->backend.loop, &r->options, &ops, r, &r->client, e);
    if (err == 0)
        sp_client_connect(r->client);
    return err;
}

/*
 * ---- file operations ----
 *
 * One fs/ request each, under the sandbox that a command there would have. Requests that change
 * something are never repeated.
 */

static void free_file(struct file_request *rf)
{
    sp_client_forget(&rf->request);
    sp_loop_cancel(rf->remote->backend.loop, &rf->timer);
    rf->file->impl = NULL;
    rf->file->backend = NULL;
    sp_list_remove(&rf->link);
    free(rf);
}

/* Without callbacks. */
static void drop_files(struct sp_remote *r)
{
    for (struct sp_list *i; (i = sp_list_first(&r->files)) != NULL;)
        free_file(SP_CONTAINER(i, struct file_request, link));
}

static void forget_file(struct sp_backend_file *f)
{
    if (f->impl != NULL)
        free_file(f->impl);
}

static void finish_file(struct file_request *rf)
{
    struct sp_remote *r = rf->remote;
    struct sp_backend_file *f = rf->file;

    free_file(rf);
    sp_remote_enter(r);
    f->fn(f);
    sp_remote_leave(r);
}

/* Servers send an errno at the end of a text: "Read-only file system (os error 30)". */
static int errno_of(struct sp_str message)
{
    static const char mark[] = "(os error ";
    const char *at =
        message.n < sizeof mark ? NULL : memmem(message.p, message.n, mark, sizeof mark - 1);
    int number = 0;

    if (at == NULL)
        return 0;
    for (at += sizeof mark - 1; at < message.p + message.n && *at >= '0' && *at <= '9'; at++)
        number = number < 4096 ? number * 10 + (*at - '0') : number;
    return number > 0 && number < 4096 ? number : 0;
}

static int take_text(struct sp_backend_file *f, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    struct sp_str text = {0};
    size_t n = 0;
    int r = sp_json_need_str(j, value, "dataBase64", &text, e);

    if (r < 0)
        return r;
    f->text.len = 0;
    char *room = sp_buf_room(&f->text, text.n / 4 * 3 + 1);
    if (room == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a file");
    r = sp_base64_decode(text, room, &n, e);
    if (r == 0)
        f->text.len = n;
    return r;
}

static int take_result(struct sp_backend_file *f, struct sp_json *j, uint32_t value,
                       struct sp_err *e)
{
    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "the answer", e);
    if (f->op == SP_BACKEND_READ)
        return take_text(f, j, value, e);
    if (f->op != SP_BACKEND_STAT)
        return 0;
    int r = sp_json_need_bool(j, value, "isFile", &f->is_file, e);
    if (r == 0)
        r = sp_json_need_bool(j, value, "isDirectory", &f->is_dir, e);
    return r < 0 ? r : sp_json_need_u64(j, value, "size", INT64_MAX, &f->size, e);
}

static void on_file_answer(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct file_request *rf = SP_CONTAINER(q, struct file_request, request);
    struct sp_err *e = &rf->file->error;
    const int err = reply->fate == SP_CLIENT_REFUSED ? errno_of(reply->message) : 0;

    if (reply->fate == SP_CLIENT_RESULT) {
        if (take_result(rf->file, reply->j, reply->value, e) < 0)
            (void)sp_wrap(e, "the exec-server's answer makes no sense");
    } else if (err != 0) {
        (void)sp_fail(e, SP_E_SYSTEM, err, "the server refused it");
    } else {
        (void)sp_fail(e, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(reply->message));
    }
    finish_file(rf);
}

static void on_file_late(struct sp_timer *t)
{
    struct file_request *rf = SP_CONTAINER(t, struct file_request, timer);

    (void)sp_fail(&rf->file->error, SP_E_SYSTEM, ETIMEDOUT, "the exec-server gave no answer");
    finish_file(rf);
}

static int ask_file(struct sp_backend *b, struct sp_backend_file *f, struct sp_err *e)
{
    static const char *const names[] = {
        [SP_BACKEND_STAT] = "fs/getMetadata",         [SP_BACKEND_READ] = "fs/readFile",
        [SP_BACKEND_WRITE] = "fs/writeFile",          [SP_BACKEND_COPY] = "fs/copy",
        [SP_BACKEND_MAKE_DIR] = "fs/createDirectory", [SP_BACKEND_REMOVE] = "fs/remove",
    };
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);
    auto_buf struct sp_buf params = {0};
    int err = sp_remote_write_file(&params, f, e);

    if (err == 0)
        err = sp_remote_need_client(r, e);
    if (err < 0)
        return err;
    struct file_request *rf = calloc(1, sizeof *rf);
    if (rf == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask for a file");
    *rf = (struct file_request){.remote = r, .file = f};
    sp_list_prepend(&r->files, &rf->link);
    f->impl = rf;
    rf->request.fn = on_file_answer;
    rf->request.is_repeatable = f->op == SP_BACKEND_STAT || f->op == SP_BACKEND_READ;
    if (!sp_loop_timer(b->loop, &rf->timer, sp_loop_now(b->loop) + ANSWER_MS, on_file_late)) {
        free_file(rf);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask for a file");
    }
    sp_client_ask(r->client, &rf->request, names[f->op], sp_buf_str(&params));
    return 0;
}

/* ---- creation and end ---- */

static void on_session_ended(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    (void)q;
    (void)reply;
}

static void destroy_remote(struct sp_remote *r)
{
    struct sp_client_request end = {.fn = on_session_ended};

    r->depth++; /* callbacks from here on must not destroy it again */
    /* Background processes of commands end with the session, which is never resumed. A server may
     * ignore a request if the connection ends right behind it. */
    const bool ends = r->can_end_session && !r->has_kept;
    const bool waits = ends || !sp_list_is_empty(&r->farewells);
    if (r->client != NULL && ends)
        sp_client_ask(r->client, &end, "session/end", SP_STR("{}"));
    sp_client_free(TAKE_PTR(r->client), waits ? FAREWELL_MS : 0);
    drop_files(r);
    for (struct sp_list *i; (i = sp_list_take_first(&r->farewells)) != NULL;)
        free(SP_CONTAINER(i, struct sp_remote_farewell, link)); /* the client dropped its request */
    for (struct sp_list *i; (i = sp_list_first(&r->graves)) != NULL;)
        sp_remote_job_free(SP_CONTAINER(i, struct sp_remote_job, link));
    sp_loop_undefer(r->backend.loop, &r->turn);
    sp_loop_cancel(r->backend.loop, &r->facts_late);
    forget_facts(r);
    sp_arena_done(&r->keep);
    free(r);
}

static void free_remote(struct sp_backend *b)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);

    r->is_freed = true;
    /* Jobs that their owners have not released: no op is called any more. */
    for (struct sp_list *i; (i = sp_list_first(&r->jobs)) != NULL;)
        sp_job_release(SP_CONTAINER(i, struct sp_remote_job, link)->job);
    for (struct sp_list *i; (i = sp_list_first(&r->waits)) != NULL;)
        forget_wait(SP_CONTAINER(i, struct sp_backend_wait, link));
    drop_files(r);
    if (r->depth == 0)
        destroy_remote(r);
}

int sp_remote_new(struct sp_loop *loop, const struct sp_client_options *o, struct sp_backend **ret,
                  struct sp_err *e)
{
    static const struct sp_backend_ops ops = {
        .job = &sp_remote_job_ops,
        .ask_facts = ask_facts,
        .forget_facts = forget_wait,
        .free = free_remote,
        .file = ask_file,
        .forget_file = forget_file,
    };
    struct sp_remote *r = calloc(1, sizeof *r);

    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    r->backend = (struct sp_backend){.ops = &ops, .loop = loop};
    struct sp_list *const lists[] = {&r->waits, &r->jobs, &r->graves, &r->farewells, &r->files};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        sp_list_init(lists[i]);
    r->facts.is_remote = true;
    r->options = *o;
    struct sp_client_options *own = &r->options;
    own->wants_receipts = true;
    if (!sp_arena_text(&r->keep, o->url, &own->url) ||
        !sp_arena_text(&r->keep, o->cwd, &own->cwd) ||
        !sp_arena_text(&r->keep, o->token, &own->token) ||
        !sp_arena_text(&r->keep, o->client_name, &own->client_name) ||
        !sp_arena_list(&r->keep, o->program, &own->program) ||
        !sp_arena_list(&r->keep, o->env, &own->env)) {
        destroy_remote(r);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a remote backend");
    }
    struct sp_client *probe; /* reports invalid options now */
    const int err = sp_client_new(loop, o, &(struct sp_client_ops){0}, NULL, &probe, e);
    if (err < 0) {
        destroy_remote(r);
        return err;
    }
    sp_client_free(probe, 0);
    *ret = &r->backend;
    return 0;
}
