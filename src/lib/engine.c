/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: makes an engine of the library and frees it, guards every entry, tells the host events
 * and questions, and has the functions that are done when they return.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "lib/engine_priv.h"

/* struct sp_error is a copy of struct sp_err. */
_Static_assert((int)SP_ERROR_STATE == SP_E_STATE && (int)SP_ERROR_INVALID == SP_E_INVALID &&
                   (int)SP_ERROR_NOT_FOUND == SP_E_NOT_FOUND && (int)SP_ERROR_LIMIT == SP_E_LIMIT &&
                   (int)SP_ERROR_SYSTEM == SP_E_SYSTEM && (int)SP_ERROR_FAILED == SP_E_FAILED,
               "error codes");

_Static_assert(sizeof(struct sp_error) == sizeof(struct sp_err) &&
                   sizeof((struct sp_error *)NULL)->msg == sizeof((struct sp_err *)NULL)->msg,
               "struct sp_err");

const char *sp_engine_version(void)
{
    return SP_VERSION;
}

/* ---- entry and exit of every public function ---- */

int sp_lib_give(int r, const struct sp_err *from, struct sp_error *to)
{
    if (to != NULL && r < 0) {
        char text[sizeof to->msg];

        *to = (struct sp_error){.code = (int)from->code, .sys = from->sys};
        memcpy(to->msg, sp_error_text(from, text, sizeof text), sizeof to->msg);
    }
    return r;
}

/* sp_loop_poke reads the clock and makes the descriptor readable: the call may arm timers. */
int sp_lib_enter(struct sp_engine *engine, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = 0;

    if (engine == NULL)
        r = sp_fail(&why, SP_E_INVALID, 0, "there is no engine");
    else if (engine->owner != getpid())
        r = sp_fail(&why, SP_E_STATE, 0,
                    "the engine belongs to the process that made it, not to one that it forked");
    else if (engine->is_doomed)
        r = sp_fail(&why, SP_E_STATE, 0, "the engine is being freed");
    else
        sp_loop_poke(engine->loop);
    return sp_lib_give(r, &why, e);
}

int sp_lib_take(const void *from, void *to, size_t size, size_t least, const char *name,
                struct sp_err *e)
{
    size_t given = 0;

    memset(to, 0, size);
    if (from == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "struct %s is missing", name);
    memcpy(&given, from, sizeof given);
    if (given < least || given > 65536)
        return sp_fail(e, SP_E_INVALID, 0,
                       "struct %s says that it has %zu bytes: set its size to sizeof itself", name,
                       given);
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i] != 0)
            return sp_fail(e, SP_E_INVALID, 0,
                           "struct %s asks for something that this library (%s) does not know yet",
                           name, SP_VERSION);
    memcpy(to, from, given < size ? given : size);
    return 0;
}

/* ---- strings for C ---- */

/* A copy with a NUL; "" if out of memory. The caller frees *ret_owned. */
static const char *text_of(struct sp_str s, char **ret_owned)
{
    char *copy = s.n == 0 ? NULL : malloc(s.n + 1);

    *ret_owned = copy;
    if (copy == NULL)
        return "";
    memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    return copy;
}

/* A list that ends with NULL, in one allocation; empty if out of memory. The caller frees
 * *ret_owned. */
static const char *const *list_of(const struct sp_str *argv, uint32_t argc, char ***ret_owned)
{
    static const char *const empty[] = {NULL};
    size_t bytes = (argc + (size_t)1) * sizeof(char *);

    for (uint32_t i = 0; i < argc; i++)
        bytes += argv[i].n + 1;
    char **list = malloc(bytes);
    *ret_owned = list;
    if (list == NULL)
        return empty;
    char *at = (char *)(list + argc + 1);
    for (uint32_t i = 0; i < argc; i++) {
        list[i] = at;
        if (argv[i].n != 0)
            memcpy(at, argv[i].p, argv[i].n);
        at[argv[i].n] = 0;
        at += argv[i].n + 1;
    }
    list[argc] = NULL;
    return (const char *const *)list;
}

static uint64_t number_of(struct sp_str call_id)
{
    uint64_t number = 0;

    (void)sp_str_to_u64(call_id, UINT64_MAX, &number); /* always a number: id_of in calls.c */
    return number;
}

/* ---- events ---- */

static void set_bytes(struct sp_event *ev, struct sp_str bytes)
{
    ev->bytes = bytes.p != NULL ? bytes.p : "";
    ev->byte_count = bytes.n;
}

/* Strings for C are copied for the time of the callback. */
void sp_lib_tell_event(void *user, const struct sp_exec_event *from)
{
    struct sp_engine *engine = user;
    auto_free char **argv = NULL;
    auto_free char *cwd = NULL;
    struct sp_event ev = {
        .size = sizeof ev,
        .session = from->process_id,
        .call = number_of(from->call_id),
        .bytes = "",
    };

    if (engine->event == NULL || engine->is_doomed)
        return;
    switch (from->type) {
    case SP_EVENT_DELTA:
        ev.kind = SP_EVENT_OUTPUT;
        ev.stream = from->stream == SP_STREAM_STDERR ? SP_OUTPUT_STDERR : SP_OUTPUT_STDOUT;
        set_bytes(&ev, from->chunk);
        break;
    case SP_EVENT_INTERACTION:
        ev.kind = SP_EVENT_INPUT;
        set_bytes(&ev, from->input);
        break;
    case SP_EVENT_WARNING:
    case SP_EVENT_NOTICE:
        ev.kind = from->type == SP_EVENT_NOTICE ? SP_EVENT_NOTED : SP_EVENT_WARNED;
        set_bytes(&ev, from->message);
        break;
    case SP_EVENT_END:
        ev.exit_code = from->exit_code;
        ev.is_failed = from->status != SP_STATUS_COMPLETED;
        ev.ns = from->duration_ns;
        set_bytes(&ev, from->aggregated);
        /* fallthrough */
    case SP_EVENT_BEGIN:
        ev.kind = from->type == SP_EVENT_END ? SP_EVENT_ENDED : SP_EVENT_STARTED;
        ev.at_ms = from->at_ms;
        ev.argv = list_of(from->argv, from->argc, &argv);
        ev.cwd = text_of(from->cwd, &cwd);
        break;
    }
    engine->event(engine->user, &ev);
}

/* ---- warnings about the engine as a whole ---- */

static void tell_warning(struct sp_engine *engine, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_lib_tell_event(engine, &e);
}

/* Takes the list first: the callback may cause further warnings. */
static void tell_warnings(struct sp_deferred *d)
{
    struct sp_engine *engine = SP_CONTAINER(d, struct sp_engine, warn_later);
    struct sp_lib_warnings all = engine->warnings;

    engine->warnings = (struct sp_lib_warnings){0};
    for (uint32_t i = 0; i < all.count; i++) {
        tell_warning(engine, all.texts[i]);
        free(all.texts[i]);
    }
}

/* While the engine is made, its caller has no handle to it yet: warnings wait for the loop. */
static void warn_host(void *user, const char *text)
{
    struct sp_engine *engine = user;
    struct sp_lib_warnings *w = &engine->warnings;

    if (sp_loop_is_inside(engine->loop)) {
        tell_warning(engine, text);
        return;
    }
    char *copy = w->count == SP_LIB_WARNINGS_MAX ? NULL : strdup(text);
    if (copy == NULL)
        return;
    w->texts[w->count++] = copy;
    sp_loop_poke(engine->loop);
    sp_loop_again(engine->loop, &engine->warn_later, tell_warnings);
}

static void free_warnings(struct sp_engine *engine)
{
    struct sp_lib_warnings *w = &engine->warnings;

    if (engine->loop != NULL)
        sp_loop_undefer(engine->loop, &engine->warn_later);
    while (w->count > 0)
        free(w->texts[--w->count]);
}

/* ---- questions ---- */

static const enum sp_question_topic topics[] = {
    [SP_QUESTION_RUN] = SP_QUESTION_MAY_RUN,
    [SP_QUESTION_RETRY] = SP_QUESTION_TRY_AGAIN,
    [SP_QUESTION_ESCALATE] = SP_QUESTION_UNCONFINED,
    [SP_QUESTION_ADDITIONAL] = SP_QUESTION_MORE,
    [SP_QUESTION_PATCH] = SP_QUESTION_CHANGES,
    [SP_QUESTION_NETWORK] = SP_QUESTION_HOST,
    [SP_QUESTION_PERMISSIONS] = SP_QUESTION_FROM_NOW_ON,
};

/* Called only if the host has an `ask` function. */
static void tell_question(void *user, const struct sp_approval_question *from)
{
    struct sp_engine *engine = user;
    auto_free char **argv = NULL;
    auto_free char *reason = NULL;
    auto_free char *command = NULL;
    auto_free char *cwd = NULL;
    auto_free char **rule = NULL;
    auto_buf struct sp_buf json = {0};
    const bool has_json = sp_question_add_json(&json, from) && sp_buf_add(&json, "", 1);
    const bool has_rule = sp_question_offers_amendment(from);
    struct sp_question q = {
        .size = sizeof q,
        .id = from->id,
        .topic = topics[from->kind],
        .call = number_of(from->call_id),
        .reason = text_of(from->reason, &reason),
        .command = text_of(from->command, &command),
        .argv = list_of(from->argv.items, from->argv.count, &argv),
        .cwd = text_of(from->cwd, &cwd),
        .is_unconfined = from->is_free,
        .rule = has_rule ? list_of(from->amendment.items, from->amendment.count, &rule) : NULL,
        .json = has_json ? json.data : NULL,
    };

    if (!engine->is_doomed)
        engine->ask(engine->user, &q);
}

/* ---- approvals and the manager ---- */

/* The approvers `terminal` and `client` do not exist in a library. */
static void warn_of_approver(struct sp_engine *engine)
{
    auto_free char *text = NULL;
    char *const *names = engine->config.approvers;

    if (strcmp(names[0], "deny") == 0 || engine->approvals.options.policy.kind == SP_APPROVAL_NEVER)
        return;
    if (asprintf(&text,
                 "nobody answers questions: the approver `%s` of the configuration is not for "
                 "programs that use the library, so what needs permission is refused; set the "
                 "option `ask`, or approver = \"program:/PATH\"",
                 names[0]) >= 0)
        warn_host(engine, text);
}

/* Without an `ask` function of the host, the configured approver programs answer. */
static int open_approvers(struct sp_engine *engine, struct sp_approvals_options *o,
                          struct sp_err *e)
{
    const struct sp_approvers_ask ask = {
        .loop = engine->loop,
        .words = (const char *const *)engine->config.approvers,
        .is_configured = true,
        .choices = "deny or program:/PATH",
        .timeout_ms = o->timeout_ms,
    };
    struct sp_err why = {0};

    if (engine->ask != NULL || engine->config.approvers == NULL)
        return 0;
    int r = sp_approvers_open(&ask, &engine->approvers, &why);
    if (r == -SP_E_INVALID) { /* only `terminal`, `client` or `deny` */
        warn_of_approver(engine);
        return 0;
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    if (engine->approvers != NULL)
        r = sp_approvers_chain(engine->approvers, NULL, &engine->approver, e);
    o->approver = engine->approver;
    o->timeout_ms = sp_approvers_timeout_ms(engine->approvers);
    return r;
}

/* Doubtful rules depend on the sandbox: the primary one counts. */
static void warn_of_rules(struct sp_engine *engine, const struct sp_rules *rules)
{
    const struct sp_lib_place *p = engine->places[0];

    sp_judge_tell_doubtful(rules, p->is_confined ? &p->policy : NULL, warn_host, engine);
}

/* The rules files changed. */
static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_engine *engine = user;

    warn_of_rules(engine, rules);
    return sp_approvals_set_rules(sp_manager_approvals(engine->manager), rules, fingerprint);
}

/* Rules of projects are those of the primary environment, if it is local. */
static int find_approvals(struct sp_engine *engine, const char *asked, struct sp_err *e)
{
    const struct sp_config_approvals_ask ask = {
        .policy = asked,
        .cwd = engine->places[0]->where->is_local ? engine->places[0]->cwd : NULL,
        .warn = warn_host,
        .loop = engine->loop,
        .changed = on_rules,
        .user = engine,
    };
    struct sp_config_approvals *ret = &engine->approvals;
    const int r = sp_config_approvals(&engine->config, &ask, ret, e);

    if (r < 0)
        return r;
    warn_of_rules(engine, ret->options.rules);
    const int opened = open_approvers(engine, &ret->options, e);
    return opened < 0 ? opened
                      : sp_hooks_open(&engine->hooks, engine->loop, engine->config.permission_hooks,
                                      engine->config.reviewer, &ret->options, e);
}

/* Snapshots only make commands start faster, so a failure is ignored. */
static void open_snapshots(struct sp_engine *engine)
{
    const struct sp_lib_place *place = engine->places[0];
    auto_free char *directory = NULL;

    if (!engine->config.has_shell_snapshot || !place->where->is_local ||
        engine->config.home == NULL ||
        asprintf(&directory, "%s/snapshots", engine->config.home) < 0)
        return;
    const struct sp_snapshots_options so = {
        .backend = place->where->backend,
        .directory = directory,
        .policy = place->is_confined ? &place->policy : NULL,
    };
    (void)sp_snapshots_new(&so, &engine->snapshots, NULL);
}

/* Variables with credentials that a confined command does not get. */
static void warn_of_left_out(struct sp_engine *engine, const struct sp_env_request *ask)
{
    const struct sp_lib_place *place = engine->places[0];
    auto_buf struct sp_buf text = {0};

    if (place->where->is_local && place->is_confined && sp_env_add_left_out(ask, &text) &&
        text.len > 0 && sp_buf_add(&text, "", 1))
        warn_host(engine, text.data);
}

/* The approvals must exist before the manager, which takes their options. */
static int open_manager(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_err *e)
{
    static const struct sp_manager_ops ops = {.event = sp_lib_tell_event, .ask = tell_question};
    static const struct sp_manager_ops without_ask = {.event = sp_lib_tell_event};
    const struct sp_env_request environ_ask = sp_lib_environ(engine, engine->places[0]);
    const struct sp_environment_spec place = sp_lib_place_environment(engine->places[0]);
    const int r = find_approvals(engine, o->approve, e);

    if (r < 0)
        return r;
    open_snapshots(engine);
    warn_of_left_out(engine, &environ_ask);
    struct sp_manager_options mo = {
        .loop = engine->loop,
        .environments = &place,
        .environment_count = 1,
        .ops = engine->ask != NULL ? &ops : &without_ask,
        .user = engine,
        .approvals = engine->approvals.options,
        .environ = &environ_ask,
        .thread_id = engine->thread_id,
        .session_id = engine->thread_id,
        .snapshots = engine->snapshots,
    };
    sp_config_manager(&engine->config, &mo);
    mo.has_no_timeout = true; /* sp_engine_wait */
    return sp_manager_new(&mo, &engine->manager, e);
}

/* ---- new, free and dispatch ---- */

/* The order matters: calls refer to backends and approvals, the manager to both, and all of them to
 * the loop. */
static void free_now(struct sp_engine *engine)
{
    engine->is_doomed = true;        /* stops all callbacks */
    sp_lib_calls_free(engine, true); /* runs use their backend, and the manager's approvals */
    if (engine->manager != NULL)
        sp_manager_free(engine->manager);
    sp_lib_calls_free(engine, false); /* the manager has dropped its own */
    sp_approver_free(engine->approver);
    sp_approvers_free(engine->approvers);
    sp_hooks_done(&engine->hooks);
    sp_snapshots_free(engine->snapshots);
    sp_lib_places_free(engine);
    sp_config_approvals_done(&engine->approvals);
    free_warnings(engine);
    sp_loop_free(engine->loop);
    sp_hidden_paths_done(&engine->hidden_paths);
    sp_config_done(&engine->config);
    free(engine->program);
    free(engine);
}

/* After a failure free_now frees what was made. */
static int open_engine(struct sp_engine *engine, const struct sp_engine_options *o,
                       struct sp_err *e)
{
    const struct sp_config_ask ask = {.file = o->config, .env = environ};
    int r = sp_loop_new(&engine->loop, e);

    if (r == 0 && o->program != NULL && (engine->program = strdup(o->program)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make an engine");
    if (r == 0 && !sp_uuid_make(engine->thread_id))
        r = sp_fail(e, SP_E_SYSTEM, errno, "name the conversation");
    if (r == 0)
        r = sp_loop_fd(engine->loop, &engine->fd, e);
    if (r == 0)
        r = sp_config_load(&ask, &engine->config, e);
    if (r == 0)
        r = sp_lib_open_primary(engine, o, e);
    if (r == 0)
        r = open_manager(engine, o, e);
    return r;
}

int sp_engine_new(const struct sp_engine_options *options, struct sp_engine **ret,
                  struct sp_error *e)
{
    struct sp_engine_options o;
    struct sp_err why = {0};
    int r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_engine_options, cwd),
                        "sp_engine_options", &why);

    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return sp_lib_give(sp_fail(&why, SP_E_SYSTEM, ENOMEM, "make an engine"), &why, e);
    engine->owner = getpid();
    engine->user = o.user;
    engine->event = o.event;
    engine->ask = o.ask;
    for (int i = 0; i < SP_LIB_BUCKETS; i++)
        sp_list_init(&engine->calls[i]);
    r = open_engine(engine, &o, &why);
    if (r < 0) {
        free_now(engine);
        return sp_lib_give(r, &why, e);
    }
    *ret = engine;
    return 0;
}

void sp_engine_free(struct sp_engine *engine)
{
    /* A child of fork() shares sockets and epoll with the parent: closing them properly would
     * disturb it, so the memory is leaked instead. */
    if (engine == NULL || engine->owner != getpid())
        return;
    if (sp_loop_is_inside(engine->loop))
        engine->is_doomed = true;
    else
        free_now(engine);
}

int sp_engine_fd(const struct sp_engine *engine)
{
    return engine->fd;
}

/* A callback may free the engine: that is done here at the end, and only in the outermost dispatch.
 */
int sp_engine_dispatch(struct sp_engine *engine, int timeout_ms, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = 0;

    if (engine == NULL || engine->owner != getpid() || engine->is_doomed)
        return sp_lib_enter(engine, e);
    r = sp_loop_dispatch(engine->loop, timeout_ms, &why);
    if (sp_loop_is_inside(engine->loop))
        return sp_lib_give(r, &why, e);
    if (engine->is_doomed)
        free_now(engine);
    else
        sp_lib_drop_unused(engine);
    return sp_lib_give(r, &why, e);
}

/* ---- functions that are done when they return ---- */

/* The amendment is the one that the question offered; the host cannot make up a rule. */
int sp_engine_reply(struct sp_engine *engine, uint64_t question, enum sp_consent consent,
                    struct sp_error *e)
{
    static const enum sp_decision_kind decisions[] = {
        [SP_CONSENT_YES] = SP_DECISION_APPROVED,
        [SP_CONSENT_NO] = SP_DECISION_DENIED,
        [SP_CONSENT_ABORT] = SP_DECISION_ABORT,
        [SP_CONSENT_FOR_SESSION] = SP_DECISION_APPROVED_FOR_SESSION,
        [SP_CONSENT_RULE] = SP_DECISION_AMENDMENT,
    };
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if ((unsigned)consent >= sizeof decisions / sizeof decisions[0]) {
        r = sp_fail(&why, SP_E_INVALID, 0, "%d is not an enum sp_consent", (int)consent);
        return sp_lib_give(r, &why, e);
    }
    struct sp_decision d = {.kind = decisions[consent], .by = SP_DECIDER_USER};
    if (d.kind == SP_DECISION_AMENDMENT) {
        const struct sp_approval_question *q =
            sp_approvals_question(sp_manager_approvals(engine->manager), question);

        d.amendment = q != NULL ? q->amendment : d.amendment; /* as offered */
    }
    sp_approvals_decide(sp_manager_approvals(engine->manager), question, &d);
    return 0;
}

/* sp_lib_enter, for functions about a session; there is no call whose answer could report an
 * unknown session later. */
static int enter_session(struct sp_engine *engine, int session, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if (!sp_lib_has_session(engine, session))
        r = sp_fail(&why, SP_E_NOT_FOUND, 0, "there is no session %d, or its command has ended",
                    session);
    return sp_lib_give(r, &why, e);
}

int sp_engine_close_stdin(struct sp_engine *engine, int session, struct sp_error *e)
{
    const int r = enter_session(engine, session, e);

    if (r == 0)
        sp_manager_close_stdin(engine->manager, session, NULL, NULL);
    return r;
}

int sp_engine_resize(struct sp_engine *engine, int session, uint16_t rows, uint16_t cols,
                     struct sp_error *e)
{
    const int r = enter_session(engine, session, e);

    if (r == 0)
        sp_manager_resize(engine->manager, session, rows, cols, NULL, NULL);
    return r;
}

/* 1 to 64: all signals that Linux has. */
int sp_engine_signal(struct sp_engine *engine, int session, int signal, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = enter_session(engine, session, e);

    if (r < 0)
        return r;
    if (signal < 1 || signal > 64) {
        r = sp_fail(&why, SP_E_INVALID, 0, "%d is not a signal", signal);
        return sp_lib_give(r, &why, e);
    }
    sp_manager_signal(engine->manager, session, signal, NULL, NULL);
    return 0;
}

struct listing {
    struct sp_session_info *items;
    char **owned; /* command, cwd and environment of each */
    size_t count, cap;
    bool is_short; /* out of memory: incomplete */
};

/* Only running ones. Grows both arrays together; three strings belong to each item. */
static void add_session(void *user, const struct sp_manager_view *entry)
{
    struct listing *l = user;

    if (entry->has_exited || entry->is_answered)
        return;
    if (l->count == l->cap) {
        const size_t cap = l->cap == 0 ? 16 : l->cap * 2;
        struct sp_session_info *items = realloc(l->items, cap * sizeof *items);

        if (items != NULL)
            l->items = items;
        char **owned = items == NULL ? NULL : realloc(l->owned, cap * 3 * sizeof *owned);
        if (owned == NULL) {
            l->is_short = true;
            return;
        }
        l->owned = owned;
        l->cap = cap;
    }
    l->items[l->count] = (struct sp_session_info){
        .size = sizeof *l->items,
        .session = entry->process_id,
        .call = number_of(entry->call_id),
        .command = text_of(entry->command, &l->owned[3 * l->count]),
        .cwd = text_of(entry->cwd, &l->owned[3 * l->count + 1]),
        .is_tty = entry->is_tty,
        .environment = text_of(sp_str_of(entry->environment), &l->owned[3 * l->count + 2]),
    };
    l->count++;
}

int sp_engine_list(struct sp_engine *engine,
                   void (*fn)(void *user, const struct sp_session_info *info), void *user,
                   struct sp_error *e)
{
    struct listing l = {0};
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    /* Collected first: fn may call any function, even sp_engine_free. */
    sp_manager_each(engine->manager, add_session, &l);
    for (size_t i = 0; i < l.count; i++) {
        if (!l.is_short)
            fn(user, &l.items[i]);
        for (size_t k = 0; k < 3; k++)
            free(l.owned[3 * i + k]);
    }
    free(l.items);
    free(l.owned);
    if (l.is_short)
        r = sp_fail(&why, SP_E_SYSTEM, ENOMEM, "list the sessions");
    return sp_lib_give(r, &why, e);
}

int sp_engine_terminate_all(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_terminate_all(engine->manager);
    return r;
}

int sp_engine_pause(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_pause(engine->manager);
    return r;
}

int sp_engine_unpause(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_unpause(engine->manager);
    return r;
}
