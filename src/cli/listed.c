/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of servers as `ps` and the like see them: the list, finding one, what it tells. */
#include "cli/listed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/redact.h"
#include "base/uri.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

/* ---- reading the list ---- */

/* With a NUL at the end. escapes: for a terminal, since the server may send anything. */
static char *copy_text(struct sp_str s, bool escapes)
{
    struct sp_buf b = {0};

    if ((escapes ? sp_plain_add(&b, s) : sp_buf_add_str(&b, s)) && sp_buf_add(&b, "", 1))
        return b.data;
    sp_buf_done(&b);
    return NULL;
}

/* One word of a command line. The query of a URL may be a token. */
static bool add_word(struct sp_buf *b, struct sp_str word)
{
    auto_free char *copy = copy_text(word, false);

    if (copy == NULL)
        return false;
    if (!sp_redact_is_needed(copy))
        return sp_plain_add_word(b, word);
    sp_redact_in_place(copy);
    return sp_plain_add_word(b, sp_str_of(copy));
}

/* Everything is copied: the message is gone after the callback. */
static int read_one(struct sp_json *j, uint32_t at, struct sp_listed *p, struct sp_err *e)
{
    struct sp_str session = {0};
    struct sp_str id = {0};
    struct sp_str name = {0};
    struct sp_str state = {0};
    struct sp_str cwd = {0};
    auto_uri struct sp_uri uri = {0};
    auto_buf struct sp_buf command = {0};
    struct sp_str network = SP_STR("host");
    uint32_t argv = SP_JSON_NONE;
    uint32_t sandbox = SP_JSON_NONE;
    bool ok = true;

    if (sp_json_type(j, at) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, at, "a map", e);
    const uint32_t code = sp_json_get(j, at, "exitCode");
    const uint32_t pid = sp_json_get(j, at, "pid");
    const uint32_t started = sp_json_get(j, at, "startedAtMs");
    if (sp_json_opt_u64(j, at, "historyId", UINT64_MAX, &p->history_id, e) < 0)
        return -(int)e->code;
    p->has_exited = code != SP_JSON_NONE && sp_json_i64(j, code, &p->exit_code);
    if (pid == SP_JSON_NONE || !sp_json_i64(j, pid, &p->pid) || started == SP_JSON_NONE ||
        !sp_json_i64(j, started, &p->started_ms))
        return sp_fail(e, SP_E_INVALID, 0, "a process without a pid or the time of its start");
    if (sp_json_need_u64(j, at, "nextSeq", UINT64_MAX, &p->next_seq, e) < 0 ||
        sp_json_need_bool(j, at, "tty", &p->is_tty, e) < 0 ||
        sp_json_def_bool(j, at, "outputEvicted", &p->is_output_evicted, e) < 0 ||
        sp_json_need_str(j, at, "sessionId", &session, e) < 0 ||
        sp_json_need_str(j, at, "processId", &id, e) < 0 ||
        sp_json_opt_str(j, at, "name", &name, e) < 0 ||
        sp_json_need_str(j, at, p->history_id == 0 ? "state" : "reason", &state, e) < 0 ||
        sp_json_need_str(j, at, "cwd", &cwd, e) < 0 ||
        sp_json_need_array(j, at, "argv", &argv, e) < 0 ||
        sp_json_opt_object(j, at, "sandbox", &sandbox, e) < 0)
        return -(int)e->code;
    if (sandbox != SP_JSON_NONE) {
        network = SP_STR("?");
        if (sp_json_opt_str(j, sandbox, "network", &network, e) < 0)
            return -(int)e->code;
    }
    const uint32_t receipt = sp_json_get(j, at, "receipt");
    if (receipt != SP_JSON_NONE && sp_json_type(j, receipt) == SP_JSON_OBJECT)
        sp_receipt_read(j, receipt, &p->receipt);
    p->receipt.sandbox = p->receipt.network = (struct sp_str){0}; /* borrowed */
    for (uint32_t t = sp_json_first(j, argv); ok && t != SP_JSON_NONE;
         t = sp_json_next(j, argv, t)) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            return sp_json_wrong_type(j, t, "a string", e);
        ok = (command.len == 0 || sp_buf_add(&command, " ", 1)) &&
             add_word(&command, sp_json_str(j, t));
    }
    if (sp_uri_read(cwd, &uri, NULL) == 0 && uri.path != NULL)
        cwd = sp_str_of(uri.path); /* otherwise it is shown as it is */
    p->session = copy_text(session, false);
    p->id = copy_text(id, false);
    p->id_len = id.n;
    p->name = name.p == NULL ? NULL : copy_text(name, true);
    p->state = copy_text(state, true);
    p->cwd = copy_text(cwd, true);
    p->network = copy_text(network, true);
    p->command = copy_text(sp_buf_str(&command), false);
    ok = ok && p->session != NULL && p->id != NULL && (name.p == NULL || p->name != NULL) &&
         p->state != NULL && p->cwd != NULL && p->command != NULL && p->network != NULL;
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
}

char *sp_listed_copy(struct sp_str text)
{
    return copy_text(text, true);
}

int sp_listed_read(struct sp_listed_all *list, struct sp_observe *server, struct sp_json *j,
                   uint32_t result, struct sp_err *e)
{
    uint32_t all = SP_JSON_NONE;
    uint64_t omitted = 0;
    int r =
        sp_json_type(j, result) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, result, "a map", e);

    if (r == 0)
        r = sp_json_opt_u64(j, result, "omitted", UINT32_MAX, &omitted, e);
    if (r == 0)
        r = sp_json_opt_array(j, result, "entries", &all, e);
    if (r == 0 && all == SP_JSON_NONE)
        r = sp_json_need_array(j, result, "processes", &all, e);
    if (r < 0)
        return r;
    list->omitted += omitted;
    struct sp_listed *items =
        realloc(list->items, (list->count + j->tokens[all].children + 1) * sizeof *items);
    if (items == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
    list->items = items;
    for (uint32_t t = sp_json_first(j, all); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, all, t)) {
        struct sp_listed *p = &list->items[list->count++];

        *p = (struct sp_listed){.server = server, .number = list->count};
        r = read_one(j, t, p, e);
    }
    return r;
}

void sp_listed_write_age(int64_t age_ms, char *ret, size_t size)
{
    const long long s = age_ms > 0 ? age_ms / 1000 : 0;

    if (s < 60)
        (void)snprintf(ret, size, "%llds", s);
    else if (s < 3600)
        (void)snprintf(ret, size, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(ret, size, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        (void)snprintf(ret, size, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

/* ---- finding one ---- */

/* How PROC may name a process, the exact ways first: the first way that matches any is used. */
enum way { WHOLE_ID, NAME, SESSION_AND_ID, ID_PREFIX, SESSION_AND_ID_PREFIX, WAY_MAX };

#define NAMED_ID_MIN 4 /* bytes of the id of a process with a name, which `ps` shows instead */

/* Whether `begin` may stand for the id of *p. */
static bool begins_id(const struct sp_listed *p, struct sp_str begin)
{
    struct sp_str id = {p->id, p->id_len};

    return begin.n >= (p->name != NULL ? NAMED_ID_MIN : 1) && sp_str_skip_prefix(&id, begin);
}

/* A session may be abbreviated in both forms that name one. */
static bool matches_way(const struct sp_listed *p, const char *proc, enum way way)
{
    const char *slash = strchr(proc, '/');
    const bool has_session = way == SESSION_AND_ID || way == SESSION_AND_ID_PREFIX;

    if (p->is_removed)
        return false;
    if (way == NAME)
        return p->name != NULL && strcmp(p->name, proc) == 0;
    if (has_session &&
        (slash == NULL || slash == proc || strncmp(p->session, proc, (size_t)(slash - proc)) != 0))
        return false;
    const struct sp_str wanted = sp_str_of(has_session ? slash + 1 : proc);
    return way == WHOLE_ID || way == SESSION_AND_ID
               ? sp_str_eq((struct sp_str){p->id, p->id_len}, wanted)
               : begins_id(p, wanted);
}

static bool is_closed(const struct sp_listed *p)
{
    return p->history_id != 0 || strcmp(p->state, "closed") == 0;
}

/* A name belongs to one process of a server that has not closed; those that had it before do not
 * count then. Of those in the history, the last with a name or an id counts. */
static bool is_outlived(const struct sp_listed_all *l, const struct sp_listed *p, const char *name,
                        enum way way)
{
    if (way > SESSION_AND_ID || (way != NAME && p->history_id == 0) || !is_closed(p))
        return false;
    for (size_t i = 0; i < l->count; i++) {
        const struct sp_listed *other = &l->items[i];

        if (other == p || other->server != p->server || !matches_way(other, name, way))
            continue;
        if (p->history_id != 0 ? other->history_id == 0 || other->history_id > p->history_id
                               : !is_closed(other) || other->started_ms > p->started_ms ||
                                     (other->started_ms == p->started_ms &&
                                      other->number > p->number && other->history_id == 0))
            return true;
    }
    return false;
}

/* No other process has its id, so that the id alone names it. */
static bool is_only_id(const struct sp_listed_all *l, const struct sp_listed *p)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct sp_listed *other = &l->items[i];

        if (other != p &&
            sp_str_eq((struct sp_str){p->id, p->id_len}, (struct sp_str){other->id, other->id_len}))
            return false;
    }
    return true;
}

/* Lists the processes that match, one a line, in the form that names each. */
static int fail_ambiguous(struct sp_observe_all *a, const char *proc, enum way way, size_t count,
                          struct sp_err *e)
{
    const struct sp_listed_all *l = &a->all;
    auto_buf struct sp_buf asked = {0};

    (void)sp_plain_add(&asked, sp_str_of(proc)); /* out of memory: a shorter message */
    for (size_t i = 0; i < l->count; i++) {
        const struct sp_listed *p = &l->items[i];

        if (!matches_way(p, proc, way) || is_outlived(l, p, proc, way))
            continue;
        (void)((is_only_id(l, p) ? sp_buf_printf(&a->candidates, "  ")
                                 : sp_buf_printf(&a->candidates, "  %.8s/", p->session)) &&
               sp_plain_add(&a->candidates, (struct sp_str){p->id, p->id_len}) &&
               sp_buf_add_str(&a->candidates, SP_STR("  ")) &&
               sp_buf_add_str(&a->candidates, sp_str_of(p->command)) &&
               sp_buf_add(&a->candidates, "\n", 1));
    }
    return sp_fail(e, SP_E_INVALID, 0, "%.*s means %zu processes; say which:", (int)asked.len,
                   sp_buf_str(&asked).p, count);
}

/* The name that `proc` is nearly, or begins, or has as its pid; NULL: none. Names are escaped
 * already. */
static const char *find_meant(const struct sp_listed_all *l, const char *proc)
{
    struct sp_nearest near = sp_nearest_to(sp_str_of(proc));
    const char *begun = NULL;
    uint64_t pid = 0;

    for (size_t i = 0; i < l->count; i++) {
        const char *name = l->items[i].name;

        if (name == NULL)
            continue;
        if (sp_str_to_u64(sp_str_of(proc), INT64_MAX, &pid) && (int64_t)pid == l->items[i].pid &&
            !is_closed(&l->items[i]))
            return name;
        sp_nearest_offer(&near, name);
        if (begun == NULL && proc[0] != 0 && strncmp(name, proc, strlen(proc)) == 0)
            begun = name;
    }
    return near.best != NULL ? near.best : begun;
}

/* A name that was typed in part must not end the process of an id that begins so by chance. */
static bool begins_name(const struct sp_listed_all *l, const char *proc)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].name != NULL && !l->items[i].is_removed &&
            strncmp(l->items[i].name, proc, strlen(proc)) == 0)
            return true;
    return false;
}

int sp_observe_find(struct sp_observe_all *a, const char *proc, const struct sp_listed **ret,
                    struct sp_err *e)
{
    const struct sp_listed_all *l = &a->all;
    auto_buf struct sp_buf asked = {0};
    const int r = a->has_list ? 0 : sp_observe_list(a, e);

    if (r < 0)
        return r;
    for (int way = WHOLE_ID; way < WAY_MAX && proc[0] != 0; way++) {
        size_t count = 0;

        if (way == ID_PREFIX && begins_name(l, proc))
            break;
        for (size_t i = 0; i < l->count; i++)
            if (matches_way(&l->items[i], proc, (enum way)way) &&
                !is_outlived(l, &l->items[i], proc, (enum way)way) && count++ == 0)
                *ret = &l->items[i];
        if (count == 1)
            return 0;
        if (count > 1)
            return fail_ambiguous(a, proc, (enum way)way, count, e);
    }
    (void)sp_plain_add_word(&asked, sp_str_of(proc));
    const char *meant = find_meant(l, proc);
    return sp_fail(e, SP_E_NOT_FOUND, 0, "no such process%s: %.*s%s%s%s (see `sallyport ps`)",
                   l->omitted > 0 ? " among those that the server lists" : "", (int)asked.len,
                   sp_buf_str(&asked).p, meant != NULL ? "; did you mean `" : "",
                   meant != NULL ? meant : "", meant != NULL ? "`?" : "");
}

int sp_observe_find_ended(struct sp_observe_all *a, const char *proc, const struct sp_listed **ret,
                          struct sp_err *e)
{
    struct sp_err why = {0};
    const int r = sp_observe_find(a, proc, ret, e);

    if (r != -SP_E_NOT_FOUND || a->has_history)
        return r;
    if (sp_observe_add_history(a, &why) < 0) {
        *e = why;
        return -(int)e->code;
    }
    return sp_observe_find(a, proc, ret, e);
}

int sp_observe_complain(struct sp_observe_all *a, const struct sp_err *e)
{
    const int status = sp_cli_complain(e);

    if (a->candidates.len > 0)
        (void)fwrite(a->candidates.data, 1, a->candidates.len, stderr);
    a->candidates.len = 0;
    return status;
}

bool sp_listed_add_params(struct sp_buf *b, const struct sp_listed *p, const char *rest, ...)
{
    auto_free char *more = NULL;
    va_list args;

    va_start(args, rest);
    const int n = vasprintf(&more, rest, args);
    va_end(args);
    if (n < 0)
        more = NULL; /* undefined after a failure */
    return n >= 0 && sp_buf_printf(b, "{\"sessionId\":") &&
           sp_json_add_str(b, sp_str_of(p->session)) && sp_buf_printf(b, ",\"processId\":") &&
           sp_json_add_str(b, (struct sp_str){p->id, p->id_len}) &&
           sp_buf_add_str(b, sp_str_of(more)) && sp_buf_add(b, "}", 1);
}

/* ---- notifications ---- */

int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e)
{
    static const char *const methods[] = {
        [SP_NOTE_OUTPUT] = "process/output",
        [SP_NOTE_EXITED] = "process/exited",
        [SP_NOTE_CLOSED] = "process/closed",
        [SP_NOTE_INPUT_LOST] = "process/inputLost",
    };
    struct sp_note n = {.kind = SP_NOTE_INPUT_LOST};
    uint32_t gap = SP_JSON_NONE;
    uint64_t bytes = UINT64_MAX;
    struct sp_str session = {0};
    struct sp_str id = {0};
    int r = 0;

    *ret = (struct sp_note){.kind = SP_NOTE_OTHER};
    while (n.kind != SP_NOTE_OTHER && !sp_str_eq(method, sp_str_of(methods[n.kind])))
        n.kind--;
    if (n.kind == SP_NOTE_OTHER || params == SP_JSON_NONE ||
        sp_json_type(j, params) != SP_JSON_OBJECT)
        return 0;
    if (n.kind != SP_NOTE_INPUT_LOST)
        r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &n.seq, e);
    if (r == 0) /* {"records":N,"bytes":N}: output that was dropped before this record */
        r = sp_json_opt_object(j, params, "gap", &gap, e);
    if (r == 0 && gap != SP_JSON_NONE) {
        r = sp_json_need_u64(j, gap, "records", UINT64_MAX, &n.missed_records, e);
        if (r == 0)
            r = sp_json_opt_u64(j, gap, "bytes", UINT64_MAX, &bytes, e);
        n.knows_missed_bytes = bytes != UINT64_MAX;
        n.missed_bytes = n.knows_missed_bytes ? bytes : 0;
    }
    if (r == 0 && n.kind == SP_NOTE_EXITED) {
        const uint32_t code = sp_json_get(j, params, "exitCode");

        if (code == SP_JSON_NONE || !sp_json_i64(j, code, &n.exit_code))
            r = sp_fail(e, SP_E_INVALID, 0, "an exit without a code");
    }
    if (r == 0)
        r = sp_json_opt_str(j, params, "sessionId", &session, e);
    if (r == 0)
        r = sp_json_need_str(j, params, "processId", &id, e);
    if (r < 0 || !sp_str_eq(session, sp_str_of(p->session)) ||
        !sp_str_eq(id, (struct sp_str){p->id, p->id_len}))
        return r;
    if (n.kind == SP_NOTE_OUTPUT) {
        r = sp_json_need_str(j, params, "stream", &n.stream, e);
        if (r == 0)
            r = sp_json_need_str(j, params, "chunk", &n.bytes, e);
        if (r == 0) /* in place, in the message */
            r = sp_base64_decode(n.bytes, (char *)(uintptr_t)n.bytes.p, &n.bytes.n, e);
        n.is_stderr = sp_str_eq(n.stream, SP_STR("stderr"));
        if (!n.is_stderr && !sp_str_eq(n.stream, SP_STR("pty")))
            n.stream = SP_STR("stdout");
    }
    if (r == 0)
        *ret = n;
    return r;
}

void sp_note_say_gap(const struct sp_note *n, char ret[160])
{
    char bytes[48] = "";

    if (n->knows_missed_bytes)
        (void)snprintf(bytes, sizeof bytes, " (%" PRIu64 " bytes)", n->missed_bytes);
    (void)snprintf(ret, 160, "%" PRIu64 " record%s%s of its output %s not there any more",
                   n->missed_records, n->missed_records == 1 ? "" : "s", bytes,
                   n->missed_records == 1 ? "is" : "are");
}
