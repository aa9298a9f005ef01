/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "lib/engine_priv.h"

/* ---- those that are not answered yet ---- */

struct sp_str sp_lib_id_of(uint64_t number, struct sp_lib_id *ret)
{
    const int n = snprintf(ret->text, sizeof ret->text, "%llu", (unsigned long long)number);

    return (struct sp_str){ret->text, (size_t)n};
}

struct sp_lib_call *sp_lib_call_new(struct sp_engine *engine, enum sp_lib_call_kind kind,
                                    sp_answer_fn *fn, void *user, struct sp_error *e)
{
    struct sp_lib_call *c = calloc(1, sizeof *c);
    struct sp_err why = {0};

    if (c == NULL) {
        (void)sp_lib_give(sp_fail(&why, SP_E_SYSTEM, ENOMEM, "begin a call"), &why, e);
        return NULL;
    }
    *c = (struct sp_lib_call){
        .engine = engine,
        .number = ++engine->last_call,
        .kind = kind,
        .fn = fn,
        .user = user,
        .began_ms = sp_loop_now(engine->loop),
    };
    struct sp_lib_call **bucket = &engine->calls[c->number % SP_LIB_BUCKETS];
    c->next = *bucket;
    if (*bucket != NULL)
        (*bucket)->prev = c;
    *bucket = c;
    return c;
}

struct sp_lib_call *sp_lib_call_find(const struct sp_engine *engine, uint64_t number)
{
    struct sp_lib_call *c = engine->calls[number % SP_LIB_BUCKETS];

    while (c != NULL && c->number != number)
        c = c->next;
    return c;
}

void sp_lib_call_free(struct sp_lib_call *c)
{
    if (c->kind == SP_LIB_RUN)
        sp_lib_run_free(c);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->engine->calls[c->number % SP_LIB_BUCKETS] = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    free(c);
}

static void free_some(struct sp_engine *engine, bool runs_alone)
{
    for (int i = 0; i < SP_LIB_BUCKETS; i++)
        for (struct sp_lib_call *c = engine->calls[i], *next; c != NULL; c = next) {
            next = c->next;
            if (!runs_alone || c->kind == SP_LIB_RUN)
                sp_lib_call_free(c);
        }
}

void sp_lib_runs_free(struct sp_engine *engine)
{
    free_some(engine, true);
}

void sp_lib_calls_free(struct sp_engine *engine)
{
    free_some(engine, false);
}

void sp_lib_call_answer(struct sp_lib_call *c, struct sp_answer *a)
{
    a->size = sizeof *a;
    a->call = c->number;
    if (c->fn != NULL && !c->engine->is_doomed)
        c->fn(c->user, a);
    sp_lib_call_free(c);
}

/* ---- arguments ---- */

int sp_lib_argv(const char *const *argv, struct sp_str **ret, uint32_t *ret_count, struct sp_err *e)
{
    uint32_t n = 0;

    while (argv != NULL && argv[n] != NULL && n < INT_MAX)
        n++;
    struct sp_str *list = calloc(n == 0 ? 1 : n, sizeof *list);
    if (list == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the arguments");
    for (uint32_t i = 0; i < n; i++)
        list[i] = sp_str_of(argv[i]);
    *ret = list;
    *ret_count = n;
    return 0;
}

int sp_lib_env(const char *const *env, struct sp_environ_var **ret, uint32_t *ret_count,
               struct sp_err *e)
{
    uint32_t n = 0;

    while (env != NULL && env[n] != NULL && n < INT_MAX)
        n++;
    auto_free struct sp_environ_var *vars = calloc(n == 0 ? 1 : n, sizeof *vars);
    if (vars == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the environment");
    for (uint32_t i = 0; i < n; i++) {
        const char *equals = strchr(env[i], '=');

        if (equals == NULL || equals == env[i])
            return sp_fail(e, SP_E_INVALID, 0, "`%s` in the environment is not NAME=VALUE", env[i]);
        vars[i].name = (struct sp_str){env[i], (size_t)(equals - env[i])};
        vars[i].value = sp_str_of(equals + 1);
    }
    *ret = TAKE_PTR(vars);
    *ret_count = n;
    return 0;
}

/* One word as it would be typed into a shell. */
static bool add_word(struct sp_buf *out, struct sp_str word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    bool ok = out->len == 0 || sp_buf_add(out, " ", 1);

    if (word.n != 0 && strspn(word.p, plain) == word.n)
        return ok && sp_buf_add_str(out, word);
    ok = ok && sp_buf_add(out, "'", 1);
    for (size_t i = 0; ok && i < word.n; i++)
        ok = word.p[i] == '\'' ? sp_buf_add(out, "'\\''", 4) : sp_buf_add(out, word.p + i, 1);
    return ok && sp_buf_add(out, "'", 1);
}

/* What a list and a question show of a command without a script. */
static int write_command(const struct sp_str *argv, uint32_t argc, struct sp_buf *out,
                         struct sp_err *e)
{
    for (uint32_t i = 0; i < argc; i++)
        if (!add_word(out, argv[i]))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write the command down");
    return 0;
}

static struct sp_str optional(const char *text)
{
    return text == NULL ? (struct sp_str){NULL, 0} : sp_str_of(text);
}

static struct sp_yield_ask yield_of(uint64_t ms)
{
    return (struct sp_yield_ask){.has_yield_time = ms != 0, .yield_time_ms = ms};
}

/* ---- the calls ---- */

/* The number is known before the first answer can come, which is told from the loop. */
static int finish(int r, struct sp_lib_call *c, const struct sp_err *why, uint64_t *ret_call,
                  struct sp_error *e)
{
    if (r < 0)
        sp_lib_call_free(c);
    else if (ret_call != NULL)
        *ret_call = c->number;
    return sp_lib_give(r, why, e);
}

static int exec(struct sp_lib_call *c, const struct sp_exec_options *o, struct sp_err *e)
{
    auto_free struct sp_str *argv = NULL;
    auto_free struct sp_environ_var *vars = NULL;
    auto_buf struct sp_buf command = {0};
    struct sp_lib_id id = {0};
    struct sp_exec_ask ask = {
        .call_id = sp_lib_id_of(c->number, &id),
        .cmd = optional(o->script),
        .workdir = optional(o->cwd),
        .is_tty = o->is_tty,
        .wants_stdin = o->has_stdin,
        .rows = o->rows,
        .cols = o->cols,
        .yield = yield_of(o->yield_ms),
        .has_max_tokens = o->max_tokens != 0,
        .max_tokens = o->max_tokens,
        .shell = optional(o->shell),
        .has_login = o->is_no_login,
        .has_permissions = o->is_unconfined,
        .permissions = o->is_unconfined ? SP_PERMISSIONS_ESCALATED : SP_PERMISSIONS_DEFAULT,
        .justification = optional(o->is_unconfined ? o->reason : NULL),
        .environment_id = optional(o->environment),
    };

    if ((o->script == NULL) == (o->argv == NULL))
        return sp_fail(e, SP_E_INVALID, 0, "give a script or an argv, one of both");
    int r = sp_lib_argv(o->argv, &argv, &ask.argc, e);
    if (r == 0)
        r = sp_lib_env(o->env, &vars, &ask.env.count, e);
    if (r == 0)
        r = write_command(argv, ask.argc, &command, e);
    if (r < 0)
        return r;
    if (o->argv != NULL && ask.argc == 0)
        return sp_fail(e, SP_E_INVALID, 0, "argv is empty");
    if (ask.argc != 0)
        ask.cmd = (struct sp_str){command.data, command.len};
    ask.argv = argv;
    ask.env.items = vars;
    return sp_manager_exec(c->engine->manager, &ask, sp_lib_tell_reply, c, &c->manager_call, e);
}

int sp_engine_exec(struct sp_engine *engine, const struct sp_exec_options *options,
                   sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e)
{
    struct sp_exec_options o;
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_exec_options, reason),
                    "sp_exec_options", &why);
    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_lib_call *c = sp_lib_call_new(engine, SP_LIB_EXEC, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    return finish(exec(c, &o, &why), c, &why, ret_call, e);
}

/* What types, polls or waits. */
static int interact(struct sp_engine *engine, struct sp_write_ask *ask, sp_answer_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_error *e)
{
    struct sp_err why = {0};
    struct sp_lib_id id = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = sp_lib_call_new(engine, SP_LIB_WRITE, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    ask->call_id = sp_lib_id_of(c->number, &id);
    r = sp_manager_write(engine->manager, ask, sp_lib_tell_reply, c, &c->manager_call, &why);
    return finish(r, c, &why, ret_call, e);
}

int sp_engine_write(struct sp_engine *engine, int session, const void *bytes, size_t n,
                    uint64_t yield_ms, sp_answer_fn *fn, void *user, uint64_t *ret_call,
                    struct sp_error *e)
{
    struct sp_err why = {0};
    struct sp_write_ask ask = {
        .session_id = session,
        .chars = {n == 0 ? "" : bytes, n},
        .yield = yield_of(yield_ms),
    };

    if (bytes == NULL && n != 0)
        return sp_lib_give(sp_fail(&why, SP_E_INVALID, 0, "there are no bytes to write"), &why, e);
    return interact(engine, &ask, fn, user, ret_call, e);
}

int sp_engine_wait(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                   uint64_t *ret_call, struct sp_error *e)
{
    struct sp_write_ask ask = {.session_id = session, .chars = SP_STR(""), .no_timeout = true};

    return interact(engine, &ask, fn, user, ret_call, e);
}

static void on_terminated(void *user, bool was_done)
{
    struct sp_lib_call *c = user;
    struct sp_answer a = {
        .outcome = SP_OUTCOME_DONE,
        .exit_code = -1,
        .wall_ns = (sp_loop_now(c->engine->loop) - c->began_ms) * 1000000,
        .output = "",
        .out = "",
        .err = "",
        .text = "",
    };

    if (!was_done && !c->engine->is_doomed && sp_lib_has_session(c->engine, c->session)) {
        a.outcome = SP_OUTCOME_FAILED;
        a.error = "the session could not be ended, and its command may still run";
    } else if (!was_done) {
        a.outcome = SP_OUTCOME_UNKNOWN;
        a.error = "there is no such session";
    }
    sp_lib_call_answer(c, &a);
}

int sp_engine_terminate(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                        uint64_t *ret_call, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = sp_lib_call_new(engine, SP_LIB_TERMINATE, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    c->session = session;
    if (ret_call != NULL)
        *ret_call = c->number;
    sp_manager_terminate(engine->manager, session, on_terminated, c);
    return 0;
}

int sp_engine_cancel(struct sp_engine *engine, uint64_t call, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = sp_lib_call_find(engine, call);
    if (c == NULL)
        r = sp_fail(&why, SP_E_NOT_FOUND, 0, "call %llu has been answered, or never was",
                    (unsigned long long)call);
    else if (c->kind == SP_LIB_TERMINATE)
        r = sp_fail(&why, SP_E_STATE, 0, "call %llu terminates: that cannot be taken back",
                    (unsigned long long)call);
    else if (c->kind == SP_LIB_RUN)
        sp_lib_run_cancel(c);
    else
        (void)sp_manager_cancel(engine->manager, c->manager_call);
    return sp_lib_give(r, &why, e);
}
