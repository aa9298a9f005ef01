/* SPDX-License-Identifier: Apache-2.0 */
/* tell: events, questions, answers and lists of the engine in the types of sallyport.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "lib/engine_priv.h"

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
void sp_lib_warn(void *user, const char *text)
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

void sp_lib_warnings_free(struct sp_engine *engine)
{
    struct sp_lib_warnings *w = &engine->warnings;

    if (engine->loop != NULL)
        sp_loop_undefer(engine->loop, &engine->warn_later);
    while (w->count > 0)
        free(w->texts[--w->count]);
}

/* ---- questions ---- */

/* No default: the compiler reports a new kind of question. */
static enum sp_question_topic topic_of(enum sp_question_kind kind)
{
    switch (kind) {
    case SP_QUESTION_RETRY:
        return SP_QUESTION_TRY_AGAIN;
    case SP_QUESTION_ESCALATE:
        return SP_QUESTION_UNCONFINED;
    case SP_QUESTION_ADDITIONAL:
        return SP_QUESTION_MORE;
    case SP_QUESTION_PATCH:
        return SP_QUESTION_CHANGES;
    case SP_QUESTION_NETWORK:
        return SP_QUESTION_HOST;
    case SP_QUESTION_PERMISSIONS:
        return SP_QUESTION_FROM_NOW_ON;
    case SP_QUESTION_RUN:
        break;
    }
    return SP_QUESTION_MAY_RUN;
}

/* Called only if the host has an `ask` function. */
void sp_lib_tell_question(void *user, const struct sp_approval_question *from)
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
        .topic = topic_of(from->kind),
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

/* ---- answers ---- */

static enum sp_outcome outcome_of(const struct sp_reply *r)
{
    switch (r->fault) {
    case SP_FAULT_NONE:
        if (r->answer.fate == SP_ANSWER_RUNNING)
            return SP_OUTCOME_RUNNING;
        return r->signal != 0 ? SP_OUTCOME_SIGNALLED : SP_OUTCOME_EXITED;
    case SP_FAULT_ABORTED:
        return SP_OUTCOME_CANCELLED;
    case SP_FAULT_UNKNOWN:
        return SP_OUTCOME_UNKNOWN;
    case SP_FAULT_REJECTED:
        return SP_OUTCOME_REFUSED;
    case SP_FAULT_ARGUMENTS:
    case SP_FAULT_STDIN_CLOSED:
    case SP_FAULT_WRITE:
    case SP_FAULT_CREATE:
    case SP_FAULT_FAILED:
        break;
    }
    return SP_OUTCOME_FAILED;
}

/* The public structs promise strings, never NULL. */
static const char *or_empty(struct sp_str s)
{
    return s.p != NULL ? s.p : "";
}

/* A reply of the manager as an answer. `text` is for the model, json may be NULL. */
static void tell_reply(struct sp_lib_call *c, const struct sp_reply *r, struct sp_str text,
                       const char *json)
{
    auto_free char *error = NULL;
    struct sp_answer a = {
        .outcome = outcome_of(r),
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
    };

    if (r->fault == SP_FAULT_NONE && c->starts_nothing) {
        a.outcome = SP_OUTCOME_DONE;
    } else if (r->fault == SP_FAULT_NONE) {
        if (r->answer.fate == SP_ANSWER_RUNNING)
            a.session = r->answer.session_id;
        else
            a.exit_code = r->answer.exit_code;
        a.wall_ns = r->answer.wall_ns;
        a.output = or_empty(r->answer.output);
        a.output_size = r->answer.output.n;
        a.omitted = r->answer.omitted;
    } else if (r->was_denied) { /* a retry was refused: the output is that of the first attempt */
        a.exit_code = r->answer.exit_code;
        a.output = or_empty(r->answer.output);
        a.output_size = r->answer.output.n;
        a.omitted = r->answer.omitted;
    }
    if (r->fault != SP_FAULT_NONE && a.outcome != SP_OUTCOME_CANCELLED) {
        a.error = text_of(r->error.n != 0 ? r->error : r->text, &error);
    }
    sp_lib_call_answer(c, &a);
}

void sp_lib_tell_reply(void *user, const struct sp_reply *r)
{
    tell_reply(user, r, r->text, NULL);
}

void sp_lib_tell_tool(void *user, const struct sp_tool_reply *r)
{
    /* Without `from` the arguments were invalid, or there was no memory for the answer. */
    const struct sp_reply refused = {
        .fault = SP_FAULT_ARGUMENTS, .text = r->text, .error = r->text, .woken_by = -1};
    auto_free char *json = NULL;

    if (r->structured.n != 0)
        (void)text_of(r->structured, &json);
    tell_reply(user, r->from != NULL ? r->from : &refused, r->text, json);
}

static enum sp_outcome outcome_of_run(const struct sp_run_result *r)
{
    switch (r->kind) {
    case SP_RUN_EXITED:
        return SP_OUTCOME_EXITED;
    case SP_RUN_SIGNALLED:
        return SP_OUTCOME_SIGNALLED;
    case SP_RUN_TIMED_OUT:
        return SP_OUTCOME_TIMED_OUT;
    case SP_RUN_CANCELLED:
        return SP_OUTCOME_CANCELLED;
    case SP_RUN_REJECTED:
        return SP_OUTCOME_REFUSED;
    case SP_RUN_FAILED:
        break;
    }
    return SP_OUTCOME_FAILED;
}

/* A run as an answer. The limit of its text is that of the tools. */
void sp_lib_tell_result(void *user, const struct sp_run_result *r)
{
    struct sp_lib_call *c = user;
    const struct sp_allowance max = {.unit = SP_ALLOWANCE_TOKENS,
                                     .limit = c->engine->config.tool_output_token_limit};
    auto_buf struct sp_buf text = {0};
    char error[sizeof r->error->msg + 64];
    struct sp_answer a = {
        .outcome = outcome_of_run(r),
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
    };

    c->run = NULL; /* freed after this callback */
    if (r->error != NULL && (a.outcome == SP_OUTCOME_FAILED || a.outcome == SP_OUTCOME_REFUSED))
        a.error = sp_error_text(r->error, error, sizeof error);
    if (sp_run_add_text(&text, r, max)) { /* else the text stays empty */
        a.text = text.data != NULL ? text.data : "";
        a.text_size = text.len;
    }
    sp_lib_call_answer(c, &a);
}

/* ---- the list ---- */

struct listing {
    struct sp_session_info *items;
    char **owned; /* command, cwd and environment of each */
    size_t count, cap;
    bool is_short; /* out of memory: incomplete */
};

/* Grows both arrays together; three strings belong to each item. */
static void add_session(void *user, const struct sp_manager_entry *entry)
{
    struct listing *l = user;

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

int sp_lib_tell_list(struct sp_engine *engine,
                     void (*fn)(void *user, const struct sp_session_info *info), void *user)
{
    struct listing l = {0};

    /* Collected first: fn may call any function, even sp_engine_free. */
    sp_manager_list(engine->manager, add_session, &l);
    for (size_t i = 0; i < l.count; i++) {
        if (!l.is_short)
            fn(user, &l.items[i]);
        for (size_t k = 0; k < 3; k++)
            free(l.owned[3 * i + k]);
    }
    free(l.items);
    free(l.owned);
    return l.is_short ? -ENOMEM : 0;
}
