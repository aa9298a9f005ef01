/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a server: the list, the one that a person means, and notifications about it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/redact.h"
#include "base/uri.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

/* ---- reading the list ---- */

void sp_list_done(struct sp_process_list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sp_listed *p = &l->items[i];

        free(p->session);
        free(p->id);
        free(p->state);
        free(p->cwd);
        free(p->command);
    }
    free(l->items);
    *l = (struct sp_process_list){0};
}

static int copy_text(struct sp_str s, char **ret, struct sp_err *e)
{
    char *copy = malloc(s.n + 1);

    if (copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    *ret = copy;
    return 0;
}

/* Escaped: the server may send anything. */
static int copy_plain(struct sp_str s, char **ret, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};

    if (!sp_plain_add(&b, s))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
    return copy_text((struct sp_str){b.data, b.len}, ret, e);
}

/* One word of a command line. The query of a URL may be a token. */
static bool add_word(struct sp_buf *b, struct sp_str word)
{
    auto_free char *copy = strndup(word.p, word.n); /* arguments have no NUL */

    if (copy == NULL)
        return false;
    if (!sp_redact_is_needed(copy))
        return sp_plain_add_word(b, word);
    sp_redact_in_place(copy);
    return sp_plain_add_word(b, sp_str_of(copy));
}

/* The words, quoted for a shell. */
static int read_command(struct sp_json *j, uint32_t argv, struct sp_listed *p, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};
    bool ok = true;

    for (uint32_t t = sp_json_first(j, argv); ok && t != SP_JSON_NONE;
         t = sp_json_next(j, argv, t)) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            return sp_json_wrong_type(j, t, "a string", e);
        ok = (b.len == 0 || sp_buf_add(&b, " ", 1)) && add_word(&b, sp_json_str(j, t));
    }
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
    return copy_text((struct sp_str){b.data, b.len}, &p->command, e);
}

static int read_numbers(struct sp_json *j, uint32_t at, struct sp_listed *p, struct sp_err *e)
{
    const uint32_t code = sp_json_get(j, at, "exitCode");
    const uint32_t pid = sp_json_get(j, at, "pid");
    const uint32_t started = sp_json_get(j, at, "startedAtMs");

    p->has_exited = code != SP_JSON_NONE && sp_json_i64(j, code, &p->exit_code);
    if (pid == SP_JSON_NONE || !sp_json_i64(j, pid, &p->pid) || started == SP_JSON_NONE ||
        !sp_json_i64(j, started, &p->started_ms))
        return sp_fail(e, SP_E_INVALID, 0, "a process without a pid or the time of its start");
    int r = sp_json_need_u64(j, at, "nextSeq", UINT64_MAX, &p->next_seq, e);
    if (r == 0)
        r = sp_json_need_bool(j, at, "tty", &p->is_tty, e);
    return r;
}

/* Numbers and strings are copied: the message is gone after the callback. */
static int read_listed(struct sp_json *j, uint32_t at, struct sp_listed *p, struct sp_err *e)
{
    struct sp_str session = {0};
    struct sp_str id = {0};
    struct sp_str state = {0};
    struct sp_str cwd = {0};
    auto_uri struct sp_uri uri = {0};
    struct sp_err not_uri = {0};
    uint32_t argv = SP_JSON_NONE;
    int r = sp_json_type(j, at) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, at, "a map", e);

    if (r == 0)
        r = read_numbers(j, at, p, e); /* first: sp_json_str unescapes the text in place */
    if (r == 0)
        r = sp_json_need_str(j, at, "sessionId", &session, e);
    if (r == 0)
        r = copy_text(session, &p->session, e);
    if (r == 0)
        r = sp_json_need_str(j, at, "processId", &id, e);
    if (r == 0)
        r = copy_text(id, &p->id, e);
    p->id_len = id.n;
    if (r == 0)
        r = sp_json_need_str(j, at, "state", &state, e);
    if (r == 0)
        r = copy_plain(state, &p->state, e);
    if (r == 0)
        r = sp_json_need_str(j, at, "cwd", &cwd, e);
    if (r == 0)
        r = sp_uri_read(cwd, &uri, &not_uri) == 0 && uri.path != NULL
                ? copy_plain(sp_str_of(uri.path), &p->cwd, e)
                : copy_plain(cwd, &p->cwd, e); /* as it is, if it is no path of a file: URL */
    if (r == 0)
        r = sp_json_need_array(j, at, "argv", &argv, e);
    return r < 0 ? r : read_command(j, argv, p, e);
}

struct reading {
    struct sp_process_list list;
    int result;
    struct sp_err *error;
};

static void on_list(void *user, struct sp_json *j, uint32_t result)
{
    struct reading *reading = user;
    struct sp_process_list *list = &reading->list;
    struct sp_err *e = reading->error;
    uint32_t all = SP_JSON_NONE;
    int r =
        sp_json_type(j, result) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, result, "a map", e);

    if (r == 0)
        r = sp_json_opt_u64(j, result, "omitted", UINT32_MAX, &list->omitted, e);
    if (r == 0)
        r = sp_json_need_array(j, result, "processes", &all, e);
    if (r == 0) {
        list->items = calloc((size_t)j->tokens[all].children + 1, sizeof *list->items);
        if (list->items == NULL) {
            reading->result = sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
            return;
        }
    }
    for (uint32_t t = r < 0 ? SP_JSON_NONE : sp_json_first(j, all); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, all, t))
        r = read_listed(j, t, &list->items[list->count++], e);
    reading->result = r;
}

int sp_observe_list(struct sp_observe *o, struct sp_process_list *ret, struct sp_err *e)
{
    struct reading reading = {.error = e};
    int r = sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), on_list, &reading, e);

    if (r == 0 && reading.result < 0)
        r = sp_wrap(e, "the list of %s cannot be read", o->shown_url);
    if (r < 0)
        sp_list_done(&reading.list);
    else
        *ret = reading.list;
    return r;
}

/* ---- finding one ---- */

static bool has_prefix(const char *text, size_t n, struct sp_str prefix)
{
    return prefix.n <= n && memcmp(text, prefix.p, prefix.n) == 0;
}

/* How PROC may name a process, the exact ways first: the first way that matches any is used. */
enum way { WHOLE_ID, SESSION_AND_ID, ID_PREFIX, SESSION_AND_ID_PREFIX, WAY_MAX };

/* A session may be abbreviated in both forms that name one. */
static bool matches_way(const struct sp_listed *p, const char *proc, enum way way)
{
    const struct sp_str whole = sp_str_of(proc);
    const char *slash = strchr(proc, '/');
    const bool has_session = way == SESSION_AND_ID || way == SESSION_AND_ID_PREFIX;

    if (has_session && (slash == NULL || slash == proc ||
                        !has_prefix(p->session, strlen(p->session),
                                    (struct sp_str){proc, (size_t)(slash - proc)})))
        return false;
    const struct sp_str id = has_session ? sp_str_of(slash + 1) : whole;
    if (way == WHOLE_ID || way == SESSION_AND_ID)
        return sp_str_eq((struct sp_str){p->id, p->id_len}, id);
    return has_prefix(p->id, p->id_len, id);
}

/* Lists up to four of the processes that match. */
static int fail_ambiguous(const struct sp_process_list *l, const char *proc, enum way way,
                          size_t count, struct sp_err *e)
{
    auto_buf struct sp_buf names = {0};
    auto_buf struct sp_buf asked = {0};
    size_t shown = 0;

    (void)sp_plain_add(&asked, sp_str_of(proc));
    for (size_t i = 0; i < l->count && shown < 4; i++) {
        const struct sp_listed *p = &l->items[i];

        if (!matches_way(p, proc, way))
            continue;
        shown++;
        (void)(sp_buf_printf(&names, " %.8s/", p->session) &&
               sp_plain_add(&names, (struct sp_str){p->id, p->id_len < 40 ? p->id_len : 40}));
    }
    return sp_fail(e, SP_E_INVALID, 0, "%.*s means %zu processes; say which:%.*s%s", (int)asked.len,
                   asked.data != NULL ? asked.data : "", count, (int)names.len,
                   names.data != NULL ? names.data : "", count > shown ? " ..." : "");
}

int sp_list_find(const struct sp_process_list *l, const char *proc, const struct sp_listed **ret,
                 struct sp_err *e)
{
    auto_buf struct sp_buf asked = {0};

    for (int way = WHOLE_ID; way < WAY_MAX && proc[0] != 0; way++) {
        size_t count = 0;

        for (size_t i = 0; i < l->count; i++)
            if (matches_way(&l->items[i], proc, (enum way)way) && count++ == 0)
                *ret = &l->items[i];
        if (count == 1)
            return 0;
        if (count > 1)
            return fail_ambiguous(l, proc, (enum way)way, count, e);
    }
    (void)sp_plain_add_word(&asked, sp_str_of(proc));
    return sp_fail(e, SP_E_NOT_FOUND, 0, "no such process%s: %.*s (see `sallyport ps`)",
                   l->omitted > 0 ? " among those that the server lists" : "", (int)asked.len,
                   asked.data != NULL ? asked.data : "");
}

bool sp_listed_add_place(struct sp_buf *b, const struct sp_listed *p)
{
    return sp_buf_printf(b, "\"sessionId\":") && sp_json_add_str(b, sp_str_of(p->session)) &&
           sp_buf_printf(b, ",\"processId\":") &&
           sp_json_add_str(b, (struct sp_str){p->id, p->id_len});
}

/* ---- notifications ---- */

static enum sp_note_kind note_kind(struct sp_str method)
{
    static const struct {
        const char *name;
        enum sp_note_kind kind;
    } known[] = {
        {"process/output", SP_NOTE_OUTPUT},
        {"process/exited", SP_NOTE_EXITED},
        {"process/closed", SP_NOTE_CLOSED},
        {"process/inputLost", SP_NOTE_INPUT_LOST},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sp_str_eq(method, sp_str_of(known[i].name)))
            return known[i].kind;
    return SP_NOTE_OTHER;
}

/* {"records":N,"bytes":N}: output that was dropped before this record. */
static int read_note_gap(struct sp_json *j, uint32_t params, struct sp_note *n, struct sp_err *e)
{
    uint32_t gap = SP_JSON_NONE;
    uint64_t bytes = UINT64_MAX;
    int r = sp_json_opt_object(j, params, "gap", &gap, e);

    if (r < 0 || gap == SP_JSON_NONE)
        return r;
    r = sp_json_need_u64(j, gap, "records", UINT64_MAX, &n->missed_records, e);
    if (r == 0)
        r = sp_json_opt_u64(j, gap, "bytes", UINT64_MAX, &bytes, e);
    n->knows_missed_bytes = bytes != UINT64_MAX;
    n->missed_bytes = n->knows_missed_bytes ? bytes : 0;
    return r;
}

static int read_note_output(struct sp_json *j, uint32_t params, struct sp_note *n, struct sp_err *e)
{
    struct sp_str chunk;
    size_t len = 0;
    int r = sp_json_need_str(j, params, "stream", &n->stream, e);

    if (r == 0)
        r = sp_json_need_str(j, params, "chunk", &chunk, e);
    if (r == 0) /* in place, in the message */
        r = sp_base64_decode(chunk, (char *)(uintptr_t)chunk.p, &len, e);
    if (r < 0)
        return r;
    n->is_stderr = sp_str_eq(n->stream, SP_STR("stderr"));
    if (!n->is_stderr && !sp_str_eq(n->stream, SP_STR("pty")))
        n->stream = SP_STR("stdout");
    n->bytes = (struct sp_str){chunk.p, len};
    return 0;
}

int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e)
{
    struct sp_note n = {.kind = note_kind(method)};
    struct sp_str session = {0};
    struct sp_str id = {0};
    int r = 0;

    *ret = (struct sp_note){.kind = SP_NOTE_OTHER};
    if (n.kind == SP_NOTE_OTHER || params == SP_JSON_NONE ||
        sp_json_type(j, params) != SP_JSON_OBJECT)
        return 0;
    if (n.kind != SP_NOTE_INPUT_LOST)
        r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &n.seq, e);
    if (r == 0)
        r = read_note_gap(j, params, &n, e);
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
    if (n.kind == SP_NOTE_OUTPUT)
        r = read_note_output(j, params, &n, e);
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
