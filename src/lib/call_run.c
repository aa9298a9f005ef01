/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/path.h"
#include "lib/engine_priv.h"

/* What a run that waits for the server's directory will start. */
struct sp_lib_launch {
    struct sp_run_options options; /* its strings and lists are ours */
};

/* ---- copies ---- */

static void free_list(const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static const char *const *copy_list(const char *const *list)
{
    size_t n = 0;

    while (list[n] != NULL)
        n++;
    char **copy = calloc(n + 1, sizeof *copy);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if ((copy[i] = strdup(list[i])) == NULL) {
            free_list((const char *const *)copy);
            return NULL;
        }
    return (const char *const *)copy;
}

static void free_launch(struct sp_lib_launch *l)
{
    if (l == NULL)
        return;
    free_list(l->options.argv);
    free_list(l->options.env);
    free((char *)(uintptr_t)l->options.cwd);
    free(l);
}

static struct sp_lib_launch *copy_launch(const struct sp_run_options *o)
{
    struct sp_lib_launch *l = calloc(1, sizeof *l);

    if (l == NULL)
        return NULL;
    l->options = *o;
    l->options.argv = copy_list(o->argv);
    l->options.env = o->env == NULL ? NULL : copy_list(o->env);
    l->options.cwd = o->cwd == NULL ? NULL : strdup(o->cwd);
    if (l->options.argv == NULL || (o->env != NULL && l->options.env == NULL) ||
        (o->cwd != NULL && l->options.cwd == NULL)) {
        free_launch(l);
        return NULL;
    }
    return l;
}

/* ---- beginning ---- */

static void on_event(void *user, const struct sp_exec_event *ev)
{
    sp_lib_tell_event(((struct sp_lib_call *)user)->engine, ev);
}

/* A person said no, and stop. */
static void on_interrupt(void *user)
{
    sp_manager_interrupt(((struct sp_lib_call *)user)->engine->manager);
}

static int start(struct sp_lib_call *c, const struct sp_run_options *o, const char *base,
                 struct sp_err *e)
{
    struct sp_engine *engine = c->engine;
    const struct sp_lib_place *place = c->place;
    auto_free char *cwd = sp_path_normalise(o->cwd != NULL ? o->cwd : base, base);
    auto_free struct sp_str *argv = NULL;
    auto_free struct sp_environ_var *vars = NULL;
    struct sp_environ_ask environ_ask = sp_lib_environ(engine, place);
    struct sp_lib_id id = {0};
    struct sp_judged_ask judged = {
        .environment = sp_str_of(place->name),
        .is_local = place->where->is_local,
        .policy_name = place->policy_name,
        .interrupt = on_interrupt,
    };
    struct sp_run_ask ask = {
        .launch = {.name = SP_STR("shell"),
                   .environ = &environ_ask,
                   .policy = place->is_confined ? &place->policy : NULL},
        .timeout_ms = o->timeout_ms,
        .capture = o->keeps_all ? SP_RUN_FULL_BUFFER : SP_RUN_SHELL_TOOL,
        .event = engine->event == NULL || o->is_silent ? NULL : on_event,
        .call_id = sp_lib_id_of(c->number, &id),
        .source = SP_SOURCE_AGENT,
        .has_begin_and_end = true,
    };
    int r;

    if (cwd == NULL)
        return sp_fail(e, SP_E_INVALID, errno, "working directory %s",
                       o->cwd != NULL ? o->cwd : "(none)");
    r = sp_lib_argv(o->argv, &argv, &ask.launch.argc, e);
    if (r == 0)
        r = sp_lib_env(o->env, &vars, &environ_ask.plain.count, e);
    if (r < 0)
        return r;
    environ_ask.plain.items = vars;
    environ_ask.call_id = ask.call_id;
    ask.launch.argv = argv;
    ask.launch.cwd = sp_str_of(cwd);
    judged.run = ask;
    return sp_judged_start(sp_manager_approvals(engine->manager), place->where->backend, &judged,
                           sp_lib_tell_result, c, &c->run, e);
}

/* ---- ends before there was a run ---- */

static void answer_later(struct sp_deferred *d)
{
    struct sp_lib_call *c = SP_CONTAINER(d, struct sp_lib_call, later);
    struct sp_run_result r = {
        .kind = c->why.code == SP_E_NONE ? SP_RUN_CANCELLED : SP_RUN_FAILED,
        .class = c->why.code == SP_E_NONE ? SP_RUN_OK : SP_RUN_ERROR,
        .exit_code = c->why.code == SP_E_NONE ? 1 : -1,
        .error = &c->why,
    };

    sp_lib_tell_result(c, &r);
}

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct sp_lib_call *c = SP_CONTAINER(w, struct sp_lib_call, facts);
    int r = 0;

    if (facts == NULL)
        c->why = *e;
    else if (facts->cwd == NULL)
        r = sp_fail(&c->why, SP_E_INVALID, 0,
                    "the server does not say in which directory it is: give a cwd");
    else
        r = start(c, &c->launch->options, facts->cwd, &c->why);
    if (facts == NULL || r < 0)
        answer_later(&c->later);
}

void sp_lib_run_cancel(struct sp_lib_call *c)
{
    if (c->run != NULL) {
        sp_judged_cancel(c->run);
        return;
    }
    sp_backend_forget_facts(&c->facts);
    sp_loop_defer(c->engine->loop, &c->later, answer_later);
}

void sp_lib_run_free(struct sp_lib_call *c)
{
    sp_backend_forget_facts(&c->facts);
    sp_loop_undefer(c->engine->loop, &c->later);
    sp_judged_free(c->run);
    free_launch(c->launch);
    sp_lib_place_unref(c->place);
}

/* ---- the call ---- */

static int begin(struct sp_lib_call *c, const struct sp_run_options *o, struct sp_err *e)
{
    const struct sp_engine *engine = c->engine;

    if (o->argv == NULL || o->argv[0] == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "command args are empty");
    struct sp_lib_place *place = sp_lib_place_find(engine, o->environment);
    if (place == NULL)
        return sp_fail(e, SP_E_NOT_FOUND, 0, "there is no environment `%s`", o->environment);
    c->place = sp_lib_place_ref(place);
    if (place->cwd != NULL || (o->cwd != NULL && o->cwd[0] == '/'))
        return start(c, o, place->cwd, e);
    c->launch = copy_launch(o);
    if (c->launch == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the command");
    c->facts.fn = on_facts;
    sp_backend_ask_facts(place->where->backend, &c->facts);
    return 0;
}

int sp_engine_run(struct sp_engine *engine, const struct sp_run_options *options, sp_answer_fn *fn,
                  void *user, uint64_t *ret_call, struct sp_error *e)
{
    struct sp_run_options o;
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_run_options, is_silent),
                    "sp_run_options", &why);
    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_lib_call *c = sp_lib_call_new(engine, SP_LIB_RUN, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    r = begin(c, &o, &why);
    if (r < 0)
        sp_lib_call_free(c);
    else if (ret_call != NULL)
        *ret_call = c->number;
    return sp_lib_give(r, &why, e);
}
