/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_host: guards every entry of the library, tells the host events and questions, and has the
 * functions that are done when they return.
 */
#include <errno.h>
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

/* ---- receipts ---- */

const struct sp_receipt *sp_lib_receipt(const struct sp_command_receipt *from,
                                        struct sp_receipt *room)
{
    uint64_t *const numbers[SP_RECEIPT_ITEMS] = {
        [SP_RECEIPT_WALL_MS] = &room->wall_ms,
        [SP_RECEIPT_USER_MS] = &room->user_ms,
        [SP_RECEIPT_SYSTEM_MS] = &room->system_ms,
        [SP_RECEIPT_MAX_RSS] = &room->max_rss_bytes,
        [SP_RECEIPT_PEAK_MEMORY] = &room->peak_memory_bytes,
        [SP_RECEIPT_PEAK_PROCESSES] = &room->peak_processes,
        [SP_RECEIPT_READ] = &room->read_bytes,
        [SP_RECEIPT_WRITTEN] = &room->written_bytes,
        [SP_RECEIPT_VOLUNTARY] = &room->voluntary_switches,
        [SP_RECEIPT_INVOLUNTARY] = &room->involuntary_switches,
        [SP_RECEIPT_MAJOR_FAULTS] = &room->major_faults,
        [SP_RECEIPT_STDOUT] = &room->stdout_bytes,
        [SP_RECEIPT_STDERR] = &room->stderr_bytes,
        [SP_RECEIPT_PTY] = &room->pty_bytes,
        [SP_RECEIPT_DROPPED] = &room->dropped_bytes,
    };

    if (from == NULL || sp_end_reason_name(from->reason) == NULL)
        return NULL;
    room->size = sizeof *room;
    room->reason = sp_end_reason_name(from->reason);
    for (int i = 0; i < SP_RECEIPT_ITEMS; i++)
        *numbers[i] =
            sp_receipt_knows(from, (enum sp_receipt_item)i) ? from->numbers[i] : SP_RECEIPT_UNKNOWN;
    return room;
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
    struct sp_receipt receipt;
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
        ev.receipt = sp_lib_receipt(from->receipt, &receipt);
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

/* ---- functions that are done when they return ---- */

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
        sp_manager_pause(engine->manager, true);
    return r;
}

int sp_engine_unpause(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_pause(engine->manager, false);
    return r;
}
