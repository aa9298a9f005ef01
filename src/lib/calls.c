/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: sp_engine_exec, write, wait, terminate, run, call_tool and cancel: from the options of the
 * caller to the manager, and from its replies to answers.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approve/run_plan.h"
#include "base/arena.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/path.h"
#include "engine/network_job.h"
#include "lib/engine_priv.h"

/* What the engine calls it: "17". */
struct id_text {
    char text[24];
};

/* A one-shot run that needs approval. The plan judges it and asks an approver if necessary; it
 * runs; if the sandbox denied it something, it may run once more without a sandbox. The answer is
 * that of the last attempt. Each attempt with a begin event has an end event. */
struct run_call {
    struct sp_lib_call call;
    struct sp_lib_place *place;    /* a reference */
    struct sp_run_options options; /* its strings live in keep */
    struct sp_arena keep;
    struct sp_backend_wait facts; /* waits for the server's working directory */
    struct sp_deferred later;     /* go_on_run: the plan has decided, or the call was cancelled */
    struct sp_err why;            /* why the plan could not begin; code NONE: it could */
    bool has_plan, is_cancelled;

    struct sp_run_request request; /* launch.policy is the sandbox; what it points to lives here */
    struct sp_env_request environ;
    struct id_text id;
    char *cwd;
    struct sp_str *argv;
    struct sp_env_var *vars;
    struct sp_buf made; /* variables the plan judges with */
    struct sp_run_plan plan;
    struct sp_run *run;             /* the attempt; NULL: none runs */
    struct sp_network_job *network; /* of the attempt; NULL: its network is not managed */
    struct sp_err refusal;          /* an approver refused a host; code NONE: none did */

    bool has_first;             /* the first attempt was denied; first is its result ... */
    struct sp_run_result first; /* ... and its output */
    struct sp_buf out, err, aggregated;
};

/* ---- unanswered calls ---- */

/* Numbers are never reused, so a late sp_engine_cancel cannot hit another call. */
static struct sp_lib_call *new_call(struct sp_engine *engine, enum sp_lib_call_kind kind,
                                    sp_answer_fn *fn, void *user, struct sp_error *e)
{
    struct sp_lib_call *c =
        calloc(1, kind == SP_LIB_RUN ? sizeof(struct run_call) : sizeof(struct sp_lib_call));
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
    sp_list_prepend(&engine->calls[c->number % SP_LIB_BUCKETS], &c->link);
    return c;
}

static struct sp_lib_call *find_call(const struct sp_engine *engine, uint64_t number)
{
    sp_list_each(i, &engine->calls[number % SP_LIB_BUCKETS]) {
        struct sp_lib_call *c = SP_CONTAINER(i, struct sp_lib_call, link);

        if (c->number == number)
            return c;
    }
    return NULL;
}

static void free_call(struct sp_lib_call *c)
{
    if (c->kind == SP_LIB_RUN) { /* also ends the command, and withdraws an open question */
        struct run_call *run = SP_CONTAINER(c, struct run_call, call);

        sp_backend_forget_facts(&run->facts);
        sp_run_free(run->run);
        sp_network_job_free(run->network);
        sp_loop_undefer(c->engine->loop, &run->later);
        sp_run_plan_done(&run->plan);
        sp_buf_done(&run->made);
        sp_buf_done(&run->out);
        sp_buf_done(&run->err);
        sp_buf_done(&run->aggregated);
        free(run->cwd);
        free(run->argv);
        free(run->vars);
        sp_arena_done(&run->keep);
        sp_lib_place_unref(run->place);
    }
    sp_list_remove(&c->link);
    free(c);
}

void sp_lib_calls_free(struct sp_engine *engine, bool only_runs)
{
    for (int b = 0; b < SP_LIB_BUCKETS; b++)
        sp_list_each_safe(i, &engine->calls[b]) {
            struct sp_lib_call *c = SP_CONTAINER(i, struct sp_lib_call, link);

            if (!only_runs || c->kind == SP_LIB_RUN)
                free_call(c);
        }
}

static void answer_call(struct sp_lib_call *c, struct sp_answer *a)
{
    a->size = sizeof *a;
    a->call = c->number;
    if (c->fn != NULL && !c->engine->is_doomed)
        c->fn(c->user, a);
    free_call(c);
}

/* ---- answers in the types of sallyport.h ---- */

/* Of a call that failed. */
static const enum sp_outcome fault_outcomes[] = {
    [SP_FAULT_ARGUMENTS] = SP_OUTCOME_FAILED,    [SP_FAULT_UNKNOWN] = SP_OUTCOME_UNKNOWN,
    [SP_FAULT_STDIN_CLOSED] = SP_OUTCOME_FAILED, [SP_FAULT_WRITE] = SP_OUTCOME_FAILED,
    [SP_FAULT_CREATE] = SP_OUTCOME_FAILED,       [SP_FAULT_REJECTED] = SP_OUTCOME_REFUSED,
    [SP_FAULT_FAILED] = SP_OUTCOME_FAILED,       [SP_FAULT_ABORTED] = SP_OUTCOME_CANCELLED,
};

static const enum sp_outcome run_outcomes[] = {
    [SP_RUN_EXITED] = SP_OUTCOME_EXITED,       [SP_RUN_SIGNALLED] = SP_OUTCOME_SIGNALLED,
    [SP_RUN_TIMED_OUT] = SP_OUTCOME_TIMED_OUT, [SP_RUN_CANCELLED] = SP_OUTCOME_CANCELLED,
    [SP_RUN_FAILED] = SP_OUTCOME_FAILED,       [SP_RUN_REJECTED] = SP_OUTCOME_REFUSED,
};

/* The public structs promise strings, never NULL. */
static const char *or_empty(struct sp_str s)
{
    return s.p != NULL ? s.p : "";
}

/* NULL: none was reached, or no memory. */
static const char *add_limits_json(struct sp_buf *out, const struct sp_limit_hits *hits)
{
    return hits->count != 0 && sp_limits_add_hits(out, hits) && sp_buf_add(out, "", 1) ? out->data
                                                                                       : NULL;
}

/* A reply of the manager as an answer. `text` is for the model, json may be NULL. */
static void tell_reply(struct sp_lib_call *c, const struct sp_reply *r, struct sp_str text,
                       const char *json)
{
    auto_free char *error = NULL;
    struct sp_receipt receipt;
    auto_buf struct sp_buf limits = {0};
    struct sp_answer a = {
        .outcome = fault_outcomes[r->fault],
        .exit_code = -1,
        .signal = r->signal,
        .was_denied = r->was_denied,
        .wall_ns = (sp_loop_now(c->engine->loop) - c->began_ms) * 1000000,
        .output = "",
        .out = "",
        .err = "",
        .from = r->from,
        .to = r->to,
        .text = or_empty(text),
        .text_size = text.n,
        .json = json,
        .network_json = r->network == NULL ? NULL : r->network->json.p,
        .receipt = sp_lib_receipt(r->receipt, &receipt),
        .limits_json = add_limits_json(&limits, &r->limits),
    };

    if (r->fault == SP_FAULT_NONE && c->starts_nothing) {
        a.outcome = SP_OUTCOME_DONE;
    } else if (r->fault == SP_FAULT_NONE || r->was_denied) {
        const bool is_running = r->answer.fate == SP_ANSWER_RUNNING;

        /* was_denied with a fault: a retry was refused, the output is that of the first attempt. */
        if (r->fault == SP_FAULT_NONE) {
            a.outcome = is_running       ? SP_OUTCOME_RUNNING
                        : r->signal != 0 ? SP_OUTCOME_SIGNALLED
                                         : SP_OUTCOME_EXITED;
            a.wall_ns = r->answer.wall_ns;
        }
        a.session = is_running ? r->answer.session_id : 0;
        a.exit_code = is_running ? -1 : r->answer.exit_code;
        a.output = or_empty(r->answer.output);
        a.output_size = r->answer.output.n;
        a.omitted = r->answer.omitted;
    }
    if (r->fault != SP_FAULT_NONE && a.outcome != SP_OUTCOME_CANCELLED) {
        error = sp_str_dup(r->error.n != 0 ? r->error : r->text);
        a.error = error != NULL ? error : "";
    }
    answer_call(c, &a);
}

static void on_reply(void *user, const struct sp_reply *r)
{
    tell_reply(user, r, r->text, NULL);
}

static void on_tool_reply(void *user, const struct sp_tool_reply *r)
{
    /* Without `from` the arguments were invalid, or there was no memory for the answer. */
    const struct sp_reply refused = {
        .fault = SP_FAULT_ARGUMENTS, .text = r->text, .error = r->text, .woken_by = -1};
    auto_free char *json = NULL;

    if (r->structured.n != 0)
        json = sp_str_dup(r->structured);
    tell_reply(user, r->from != NULL ? r->from : &refused, r->text, json);
}

/* A run as an answer. The limit of its text is that of the tools. */
static void tell_result(struct sp_lib_call *c, const struct sp_run_result *r)
{
    const struct sp_allowance max = {.unit = SP_ALLOWANCE_TOKENS,
                                     .limit = c->engine->config.tool_output_token_limit};
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf limits = {0};
    const struct sp_network_receipt *network =
        sp_network_job_receipt(SP_CONTAINER(c, struct run_call, call)->network);
    char error[sizeof r->error->msg + 64];
    struct sp_receipt receipt;
    struct sp_answer a = {
        .outcome = run_outcomes[r->kind],
        .exit_code = r->exit_code,
        .signal = r->signal,
        .was_denied = r->class == SP_RUN_DENIED,
        .has_lost_output = r->has_lost_output,
        .wall_ns = r->duration_ns,
        .output = or_empty(r->aggregated),
        .output_size = r->aggregated.n,
        .out = or_empty(r->out),
        .out_size = r->out.n,
        .err = or_empty(r->err),
        .err_size = r->err.n,
        .omitted = r->out_total + r->err_total - r->aggregated.n,
        .to = r->out_total + r->err_total,
        .text = "",
        .network_json = network == NULL ? NULL : network->json.p,
        .receipt = sp_lib_receipt(&r->receipt, &receipt),
        .limits_json = add_limits_json(&limits, &r->limits),
    };

    if (r->error != NULL && (a.outcome == SP_OUTCOME_FAILED || a.outcome == SP_OUTCOME_REFUSED))
        a.error = sp_error_text(r->error, error, sizeof error);
    if (sp_run_add_text(&text, r, max)) { /* else the text stays empty */
        a.text = text.data != NULL ? text.data : "";
        a.text_size = text.len;
    }
    answer_call(c, &a);
}

static struct sp_str id_of(const struct sp_lib_call *c, struct id_text *room)
{
    const int n = snprintf(room->text, sizeof room->text, "%llu", (unsigned long long)c->number);

    return (struct sp_str){room->text, (size_t)n};
}

/* A kind of call that begins with a struct of options. */
struct call_type {
    enum sp_lib_call_kind kind;
    size_t size, least; /* of the struct: now, and in the first version */
    const char *name;
    int (*begin)(struct sp_lib_call *c, const void *options, struct sp_err *e);
};

/* *ret_call is set before the first answer can come, since answers come from the loop. */
static int begin_call(struct sp_engine *engine, const struct call_type *type, const void *options,
                      sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e)
{
    union {
        struct sp_exec_options exec;
        struct sp_run_options run;
        struct sp_tool_options tool;
    } o;
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    r = sp_lib_take(options, &o, type->size, type->least, type->name, &why);
    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_lib_call *c = new_call(engine, type->kind, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    r = type->begin(c, &o, &why);
    if (r < 0)
        free_call(c);
    else if (ret_call != NULL)
        *ret_call = c->number;
    return sp_lib_give(r, &why, e);
}

/* ---- arguments ---- */

static uint32_t length_of(const char *const *list)
{
    uint32_t n = 0;

    while (list != NULL && list[n] != NULL && n < INT_MAX)
        n++;
    return n;
}

/* A list that ends with NULL; the caller frees *ret, the strings are borrowed. */
static int make_argv(const char *const *argv, struct sp_str **ret, uint32_t *ret_count,
                     struct sp_err *e)
{
    const uint32_t n = length_of(argv);
    struct sp_str *list = calloc(n == 0 ? 1 : n, sizeof *list);
    if (list == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the arguments");
    for (uint32_t i = 0; i < n; i++)
        list[i] = sp_str_of(argv[i]);
    *ret = list;
    *ret_count = n;
    return 0;
}

/* NAME=VALUE strings; the caller frees *ret, the strings are borrowed. */
static int make_vars(const char *const *env, struct sp_env_var **ret, uint32_t *ret_count,
                     struct sp_err *e)
{
    const uint32_t n = length_of(env);
    auto_free struct sp_env_var *vars = calloc(n == 0 ? 1 : n, sizeof *vars);
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

/* Appends one word, quoted for a shell where necessary. */
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

/* p NULL for NULL. */
static struct sp_str optional(const char *text)
{
    return text == NULL ? (struct sp_str){NULL, 0} : sp_str_of(text);
}

/* 0: the default of the manager. */
static struct sp_yield_request yield_of(uint64_t ms)
{
    return (struct sp_yield_request){.has_yield_time = ms != 0, .yield_time_ms = ms};
}

/* limits NULL: none. */
static int take_limits(const struct sp_limits *limits, struct sp_limit_ask *ret, struct sp_err *e)
{
    struct sp_limits l = {0};

    if (limits == NULL)
        return 0;
    if (sp_lib_take(limits, &l, sizeof l, SP_LIB_LEAST(struct sp_limits, is_best), "sp_limits", e) <
        0)
        return -(int)e->code;
    if (!(l.cpus >= 0 && l.cpus <= 65536))
        return sp_fail(e, SP_E_INVALID, 0, "limits: cpus must be 0.01 to 65536 processors, or 0");
    *ret = (struct sp_limit_ask){
        .set.of = {[SP_LIMIT_MEMORY] = l.memory_bytes,
                   [SP_LIMIT_PIDS] = l.pids,
                   [SP_LIMIT_CPUS] = (uint64_t)(l.cpus * 1000 + 0.5),
                   [SP_LIMIT_CPU] = l.cpu_ms,
                   [SP_LIMIT_WALL] = l.wall_ms,
                   [SP_LIMIT_OUTPUT] = l.output_bytes,
                   [SP_LIMIT_FILES] = l.open_files,
                   [SP_LIMIT_FSIZE] = l.file_size_bytes},
        .is_given = true,
        .is_best = l.is_best,
    };
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        if (ret->set.of[i] != 0 && ret->set.of[i] < sp_limit_kinds[i].min)
            return i == SP_LIMIT_CPUS
                       ? sp_fail(e, SP_E_INVALID, 0, "limits: cpus must be at least 0.01")
                       : sp_fail(e, SP_E_INVALID, 0, "limits: %s must be at least %" PRIu64,
                                 sp_limit_kinds[i].keys[SP_LIMIT_SNAKE], sp_limit_kinds[i].min);
    return 0;
}

/* ---- exec, write, wait ---- */

/* The manager copies what it needs: the request borrows from the options of the caller. */
static int begin_exec(struct sp_lib_call *c, const void *options, struct sp_err *e)
{
    const struct sp_exec_options *o = options;
    auto_free struct sp_str *argv = NULL;
    auto_free struct sp_env_var *vars = NULL;
    auto_buf struct sp_buf command = {0};
    struct id_text id = {0};
    struct sp_exec_request request = {
        .call_id = id_of(c, &id),
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
    int r = make_argv(o->argv, &argv, &request.argc, e);
    if (r == 0)
        r = make_vars(o->env, &vars, &request.env.count, e);
    if (r == 0)
        r = take_limits(o->limits, &request.limits, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < request.argc;
         i++) /* lists and questions show the argv like a script */
        if (!add_word(&command, argv[i]))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write the command down");
    if (o->argv != NULL && request.argc == 0)
        return sp_fail(e, SP_E_INVALID, 0, "argv is empty");
    if (request.argc != 0)
        request.cmd = sp_buf_str(&command);
    request.argv = argv;
    request.env.items = vars;
    return sp_manager_exec(c->engine->manager, &request, on_reply, c, &c->manager_call, e);
}

int sp_engine_exec(struct sp_engine *engine, const struct sp_exec_options *options,
                   sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e)
{
    static const struct call_type type = {SP_LIB_EXEC, sizeof *options,
                                          SP_LIB_LEAST(struct sp_exec_options, reason),
                                          "sp_exec_options", begin_exec};

    return begin_call(engine, &type, options, fn, user, ret_call, e);
}

/* Types, polls or waits. */
static int interact(struct sp_engine *engine, struct sp_write_request *request, sp_answer_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_error *e)
{
    struct sp_err why = {0};
    struct id_text id = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = new_call(engine, SP_LIB_WRITE, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    request->call_id = id_of(c, &id);
    r = sp_manager_write(engine->manager, request, on_reply, c, &c->manager_call, &why);
    if (r < 0)
        free_call(c);
    else if (ret_call != NULL)
        *ret_call = c->number;
    return sp_lib_give(r, &why, e);
}

int sp_engine_write(struct sp_engine *engine, int session, const void *bytes, size_t n,
                    uint64_t yield_ms, sp_answer_fn *fn, void *user, uint64_t *ret_call,
                    struct sp_error *e)
{
    struct sp_err why = {0};
    struct sp_write_request request = {
        .session_id = session,
        .chars = {n == 0 ? "" : bytes, n},
        .yield = yield_of(yield_ms),
    };

    if (bytes == NULL && n != 0)
        return sp_lib_give(sp_fail(&why, SP_E_INVALID, 0, "there are no bytes to write"), &why, e);
    return interact(engine, &request, fn, user, ret_call, e);
}

int sp_engine_wait(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                   uint64_t *ret_call, struct sp_error *e)
{
    struct sp_write_request request = {
        .session_id = session, .chars = SP_STR(""), .no_timeout = true};

    return interact(engine, &request, fn, user, ret_call, e);
}

/* ---- run ---- */

/* Events of a run, which the manager does not know. */
static void on_event(void *user, const struct sp_exec_event *ev)
{
    sp_lib_tell_event(((struct run_call *)user)->call.engine, ev);
}

static void tell_notice(struct run_call *c, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_NOTICE,
                                    .call_id = c->request.call_id,
                                    .exit_code = -1,
                                    .message = sp_str_of(text)};

    if (c->request.event != NULL)
        c->request.event(c, &e);
}

/* Answers without a run. */
static void end_run(struct run_call *c, enum sp_run_kind kind, const struct sp_err *why)
{
    const struct sp_run_result r = {
        .kind = kind,
        .class = kind == SP_RUN_CANCELLED ? SP_RUN_OK : SP_RUN_ERROR,
        .exit_code = kind == SP_RUN_CANCELLED ? 1 : -1,
        .error = why,
    };

    tell_result(&c->call, &r);
}

static bool copy_bytes(struct sp_buf *to, struct sp_str *bytes)
{
    if (!sp_buf_add_str(to, *bytes))
        return false;
    *bytes = sp_buf_str(to);
    return true;
}

static void go_on_run(struct sp_deferred *d);

/* A denial of the first attempt may lead to a retry; any other result is final. */
static void on_result(void *user, const struct sp_run_result *r)
{
    struct run_call *c = user;
    const bool is_guess = r->denial == NULL || !r->denial->has_evidence;
    char text[128];

    c->run = NULL; /* freed when this returns */
    if (r->receipt.reason != SP_END_NONE)
        sp_approvals_note_end(sp_manager_approvals(c->call.engine->manager), c->request.call_id,
                              sp_str_of(c->place->name), &r->receipt);
    sp_network_job_end(c->network);
    if (c->refusal.code != SP_E_NONE) {
        struct sp_run_result refused = *r;

        refused.kind = SP_RUN_REJECTED;
        refused.class = SP_RUN_ERROR;
        refused.error = &c->refusal;
        tell_result(&c->call, &refused);
        return;
    }
    if (c->is_cancelled || r->class != SP_RUN_DENIED ||
        !sp_run_plan_can_retry(&c->plan, is_guess)) {
        tell_result(&c->call, r);
        return;
    }
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, r->exit_code);
    tell_notice(c, text);
    /* Kept in case the retry is refused. Out of memory: the refusal is reported alone. */
    c->first = *r;
    c->first.denial = NULL;
    c->has_first = copy_bytes(&c->out, &c->first.out) && copy_bytes(&c->err, &c->first.err) &&
                   copy_bytes(&c->aggregated, &c->first.aggregated);
    if (sp_run_plan_retry(&c->plan, is_guess))
        sp_loop_defer(c->call.engine->loop, &c->later, go_on_run);
    else
        tell_result(&c->call, r);
}

static void on_refused_host(void *user, const struct sp_network_outcome *o)
{
    struct run_call *c = user;

    (void)sp_fail(&c->refusal, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(o->text));
    if (c->run != NULL)
        sp_run_cancel(c->run);
    if (o->is_interrupted)
        sp_manager_interrupt(c->call.engine->manager);
}

static int begin_network(struct run_call *c, struct sp_start *launch, struct sp_err *e)
{
    const struct sp_network_job_options o = {
        .approvals = sp_manager_approvals(c->call.engine->manager),
        .call_id = c->request.call_id,
        .environment = sp_str_of(c->place->name),
        .cwd = launch->cwd,
        .argv = {c->argv, launch->argc},
        .policy = launch->policy,
        .policy_name = c->place->policy_name,
        .refused = on_refused_host,
        .user = c,
    };

    sp_network_job_free(c->network);
    c->network = NULL;
    return sp_network_job_new(&o, launch, &c->network, e);
}

static void start_attempt(struct run_call *c)
{
    struct sp_run_request request = c->request;
    struct sp_env_request environ = c->environ;
    struct sp_err e = {0};

    request.launch.environ = &environ;
    sp_job_apply_plan(&request.launch, &c->plan);
    if (request.launch.policy == NULL) { /* the sandbox's marks do not apply */
        environ.marks =
            (struct sp_env_vars){c->plan.unconfined.marks, c->plan.unconfined.mark_count};
        environ.permission_profile = (struct sp_str){0};
    }
    if (begin_network(c, &request.launch, &e) < 0 ||
        sp_run_start(c->place->where->backend, &request, on_result, c, &c->run, &e) < 0)
        end_run(c, SP_RUN_FAILED, &e);
}

static void go_on_run(struct sp_deferred *d)
{
    struct run_call *c = SP_CONTAINER(d, struct run_call, later);

    if (c->is_cancelled || !c->has_plan) {
        end_run(c, c->is_cancelled ? SP_RUN_CANCELLED : SP_RUN_FAILED,
                c->has_plan ? NULL : &c->why);
        return;
    }
    switch (c->plan.state) {
    case SP_RUN_PLAN_GO:
        if (c->plan.is_retry)
            tell_notice(c, SP_RUN_PLAN_RETRY_NOTICE);
        start_attempt(c);
        return;
    case SP_RUN_PLAN_ASKING:
        return;
    case SP_RUN_PLAN_FAILED:
        end_run(c, SP_RUN_FAILED, &c->plan.error);
        return;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }

    /* The approver refused. The output of an attempt that was denied before is answered with it. */
    const struct sp_buf *reason = &c->plan.reason;
    struct sp_err why = {0};

    (void)sp_fail(&why, SP_E_FAILED, 0, "%.*s", (int)reason->len,
                  reason->len == 0 ? "" : reason->data);
    if (c->plan.is_abort) /* of the whole turn */
        sp_manager_interrupt(c->call.engine->manager);
    if (!c->has_first) {
        end_run(c, SP_RUN_REJECTED, &why);
        return;
    }
    c->first.kind = SP_RUN_REJECTED;
    c->first.error = &why;
    tell_result(&c->call, &c->first);
}

static void on_decided(struct sp_run_plan *p)
{
    struct run_call *c = SP_CONTAINER(p, struct run_call, plan);

    sp_loop_defer(c->call.engine->loop, &c->later, go_on_run);
}

/* base: the directory that a relative cwd is below. */
static int begin_plan(struct run_call *c, const char *base, struct sp_err *e)
{
    const struct sp_engine *engine = c->call.engine;
    const struct sp_run_options *o = &c->options;
    const struct sp_lib_place *place = c->place;
    struct sp_start *launch = &c->request.launch;
    uint32_t count;

    c->cwd = sp_path_normalise(o->cwd != NULL ? o->cwd : base, base);
    if (c->cwd == NULL)
        return sp_fail(e, SP_E_INVALID, errno, "working directory %s",
                       o->cwd != NULL ? o->cwd : "(none)");
    c->environ = place->environ;
    int r = make_argv(o->argv, &c->argv, &launch->argc, e);
    if (r == 0)
        r = make_vars(o->env, &c->vars, &c->environ.plain.count, e);
    if (r == 0 && c->argv[0].n == 0)
        r = sp_fail(e, SP_E_INVALID, 0, "command args are empty");
    if (r < 0)
        return r;
    c->environ.plain.items = c->vars;
    c->environ.call_id = id_of(&c->call, &c->id);
    launch->label = SP_STR("shell");
    launch->argv = c->argv;
    launch->cwd = sp_str_of(c->cwd);
    c->request.timeout_ms = o->timeout_ms;
    c->request.capture = o->keeps_all ? SP_RUN_FULL_BUFFER : SP_RUN_SHELL_TOOL;
    c->request.event = engine->event == NULL || o->is_silent ? NULL : on_event;
    c->request.call_id = c->environ.call_id;
    c->request.source = SP_SOURCE_AGENT;
    c->request.has_begin_and_end = true;
    /* A local program can be resolved before the start. */
    const bool is_known =
        place->where->is_local && sp_env_make(&c->environ, &c->made, &count, NULL) == 0;
    const struct sp_run_plan_request plan = {
        .call_id = c->request.call_id,
        .environment = sp_str_of(place->name),
        .argv = {launch->argv, launch->argc},
        .cwd = launch->cwd,
        .policy = place->is_confined ? &place->policy : NULL,
        .policy_name = place->policy_name,
        .environ = {is_known ? c->made.data : NULL, is_known ? c->made.len : 0},
    };
    c->has_plan = true;
    sp_run_plan_begin(&c->plan, sp_manager_approvals(engine->manager), &plan, on_decided);
    sp_loop_defer(engine->loop, &c->later, go_on_run);
    return 0;
}

/* The server has told its working directory, which a relative cwd needs. */
static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct run_call *c = SP_CONTAINER(w, struct run_call, facts);

    if (facts == NULL)
        c->why = *e;
    else if (facts->cwd == NULL)
        (void)sp_fail(&c->why, SP_E_INVALID, 0,
                      "the server does not say in which directory it is: give a cwd");
    else if (begin_plan(c, facts->cwd, &c->why) == 0)
        return;
    go_on_run(&c->later);
}

/* Begins at once if the working directory is known, else asks the server for it. */
static int begin_run(struct sp_lib_call *call, const void *options, struct sp_err *e)
{
    struct run_call *c = SP_CONTAINER(call, struct run_call, call);
    const struct sp_run_options *o = options;

    if (o->argv == NULL || o->argv[0] == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "command args are empty");
    /* The first one is the primary one. */
    for (uint32_t i = 0; c->place == NULL && i < call->engine->place_count; i++)
        if (o->environment == NULL || strcmp(call->engine->places[i]->name, o->environment) == 0)
            c->place = call->engine->places[i];
    if (c->place == NULL)
        return sp_fail(e, SP_E_NOT_FOUND, 0, "there is no environment `%s`", o->environment);
    c->place->refs++;
    c->options = *o;
    if (take_limits(o->limits, &c->request.launch.limits, e) < 0)
        return -(int)e->code;
    if (!sp_arena_list(&c->keep, o->argv, &c->options.argv) ||
        !sp_arena_list(&c->keep, o->env, &c->options.env) ||
        !sp_arena_text(&c->keep, o->cwd, &c->options.cwd))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the command");
    if (c->place->cwd != NULL || (o->cwd != NULL && o->cwd[0] == '/'))
        return begin_plan(c, c->place->cwd, e);
    c->facts.fn = on_facts;
    sp_backend_ask_facts(c->place->where->backend, &c->facts);
    return 0;
}

/* The answer comes from the loop, never from within sp_engine_cancel. */
static void cancel_run(struct run_call *c)
{
    c->is_cancelled = true;
    if (c->run != NULL) {
        sp_run_cancel(c->run);
        return;
    }
    sp_backend_forget_facts(&c->facts);
    sp_loop_defer(c->call.engine->loop, &c->later, go_on_run);
}

int sp_engine_run(struct sp_engine *engine, const struct sp_run_options *options, sp_answer_fn *fn,
                  void *user, uint64_t *ret_call, struct sp_error *e)
{
    static const struct call_type type = {SP_LIB_RUN, sizeof *options,
                                          SP_LIB_LEAST(struct sp_run_options, is_silent),
                                          "sp_run_options", begin_run};

    return begin_call(engine, &type, options, fn, user, ret_call, e);
}

/* ---- tools of a language model ---- */

/* For schemas and calls alike: a tool that is not described cannot be called. */
static struct sp_tools_options tools_of(const struct sp_engine *engine)
{
    return (struct sp_tools_options){
        .has_login = engine->config.allow_login_shell,
        .has_additional_permissions = engine->config.has_exec_permission_approvals,
        .has_no_timeout = engine->config.has_write_stdin_no_timeout,
        .has_unified_exec = engine->config.has_unified_exec,
        .has_several_environments = engine->place_count > 1,
    };
}

int sp_engine_tools(struct sp_engine *engine, void (*fn)(void *user, const char *json, size_t n),
                    void *user, struct sp_error *e)
{
    auto_buf struct sp_buf json = {0};
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    const struct sp_tools_options o = tools_of(engine);
    if (!sp_tools_add_schemas(&json, &o) || !sp_buf_add(&json, "", 1))
        return sp_lib_give(sp_fail(&why, SP_E_SYSTEM, ENOMEM, "describe the tools"), &why, e);
    fn(user, json.data, json.len - 1);
    return 0;
}

/* The manager reads the arguments and answers mistakes in them as text for the model. */
static int begin_tool(struct sp_lib_call *c, const void *options, struct sp_err *e)
{
    const struct sp_tool_options *o = options;
    const struct sp_tools_options tools = tools_of(c->engine);
    struct id_text id = {0};

    if (o->tool == NULL || o->arguments == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "give a tool and its arguments");
    c->starts_nothing = strcmp(o->tool, "request_permissions") == 0;
    const int r = sp_tools_call(c->engine->manager, &tools, sp_str_of(o->tool), id_of(c, &id),
                                optional(o->turn), sp_str_of(o->arguments), on_tool_reply, c,
                                &c->manager_call, e);
    return r == -SP_E_NO_METHOD ? sp_fail(e, SP_E_NOT_FOUND, 0,
                                          "there is no tool `%s`, or the configuration does not "
                                          "switch it on (features)",
                                          o->tool)
                                : r;
}

int sp_engine_call_tool(struct sp_engine *engine, const struct sp_tool_options *options,
                        sp_answer_fn *fn, void *user, uint64_t *ret_call, struct sp_error *e)
{
    static const struct call_type type = {SP_LIB_TOOL, sizeof *options,
                                          SP_LIB_LEAST(struct sp_tool_options, turn),
                                          "sp_tool_options", begin_tool};

    return begin_call(engine, &type, options, fn, user, ret_call, e);
}

/* ---- terminate, cancel ---- */

/* was_done false: the session is unknown, or its backend could not kill it. */
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
    answer_call(c, &a);
}

int sp_engine_terminate(struct sp_engine *engine, int session, sp_answer_fn *fn, void *user,
                        uint64_t *ret_call, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = new_call(engine, SP_LIB_TERMINATE, fn, user, e);
    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    c->session = session;
    if (ret_call != NULL)
        *ret_call = c->number;
    sp_manager_terminate(engine->manager, session, on_terminated, c);
    return 0;
}

/* The answer CANCELLED comes from the loop. */
int sp_engine_cancel(struct sp_engine *engine, uint64_t call, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    struct sp_lib_call *c = find_call(engine, call);
    if (c == NULL)
        r = sp_fail(&why, SP_E_NOT_FOUND, 0, "call %llu has been answered, or never was",
                    (unsigned long long)call);
    else if (c->kind == SP_LIB_TERMINATE)
        r = sp_fail(&why, SP_E_STATE, 0, "call %llu terminates: that cannot be taken back",
                    (unsigned long long)call);
    else if (c->kind == SP_LIB_RUN)
        cancel_run(SP_CONTAINER(c, struct run_call, call));
    else
        (void)sp_manager_cancel(engine->manager, c->manager_call);
    return sp_lib_give(r, &why, e);
}
