/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport ps`: lists the processes of a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

struct ps_options {
    bool is_json, is_quiet, is_all;
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct ps_options, is_all, "all",
                "also those that ended a while ago, the newest first", .short_name = 'a'),
    SP_OPT_FLAG(struct ps_options, is_json, "json", "print one JSON object instead of a table"),
    SP_OPT_FLAG(struct ps_options, is_quiet, "quiet", "print only the process ids, one a line",
                .short_name = 'q'),
    SP_OPT_TABLE(struct ps_options, server, sp_observe_options),
    SP_OPT_END,
};

/* ---- as JSON ---- */

struct json_list {
    struct sp_buf text;
    const struct sp_observe *server;
    const char *key; /* of the array in the answer */
    uint64_t omitted;
    uint64_t before; /* history/list: the last id so far; 0: that was the last page */
    bool ok;
};

/* Each process as the server sent it, with its server in front. */
static void add_json(void *user, struct sp_json *j, uint32_t result)
{
    struct json_list *l = user;
    const uint32_t all =
        sp_json_type(j, result) == SP_JSON_OBJECT ? sp_json_get(j, result, l->key) : SP_JSON_NONE;
    const uint64_t before = l->before;
    uint64_t omitted = 0;

    l->before = 0;
    if (all == SP_JSON_NONE || sp_json_type(j, all) != SP_JSON_ARRAY)
        return;
    if (sp_json_opt_u64(j, result, "omitted", UINT32_MAX, &omitted, NULL) == 0)
        l->omitted += omitted;
    for (uint32_t t = sp_json_first(j, all); l->ok && t != SP_JSON_NONE;
         t = sp_json_next(j, all, t)) {
        struct sp_str text = sp_json_raw(j, t);
        uint64_t id = 0;

        if (sp_json_type(j, t) == SP_JSON_OBJECT)
            (void)sp_json_opt_u64(j, t, "historyId", UINT64_MAX, &id, NULL);
        l->before = id < before ? id : 0;
        l->ok = l->text.len == 0 || sp_buf_add(&l->text, ",", 1);
        if (l->server->pid != 0 && sp_str_skip_prefix(&text, SP_STR("{")))
            l->ok = l->ok && sp_buf_printf(&l->text, "{\"serverPid\":%d,\"serverKind\":\"%s\",",
                                           (int)l->server->pid, l->server->kind);
        l->ok = l->ok && sp_buf_add_str(&l->text, text);
    }
}

static bool add_server(struct sp_buf *b, const struct sp_observe *o)
{
    return sp_buf_add_str(b, b->len == 0 ? SP_STR("{\"url\":") : SP_STR(",{\"url\":")) &&
           sp_json_add_str(b, sp_str_of(o->shown_url)) &&
           (o->pid == 0 || sp_buf_printf(b, ",\"kind\":\"%s\",\"pid\":%d,\"startedAtMs\":%lld",
                                         o->kind, (int)o->pid, (long long)o->started_ms)) &&
           (o->directory == NULL ||
            (sp_buf_printf(b, ",\"directory\":") && sp_json_add_str(b, sp_str_of(o->directory)))) &&
           sp_buf_add(b, "}", 1);
}

static int add_history(struct json_list *l, struct sp_observe *o, struct sp_err *e)
{
    int r = 0;

    l->server = o;
    l->before = o->has_history ? INT64_MAX : 0;
    while (r == 0 && l->ok && l->before > 0) {
        auto_buf struct sp_buf params = {0};

        r = sp_buf_printf(&params, "{\"before\":%llu}", (unsigned long long)l->before)
                ? sp_observe_ask(o, "history/list", sp_buf_str(&params), add_json, l, e)
                : sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    }
    return r;
}

static int print_json(struct sp_observe_all *a, bool is_all, uint64_t *ret_omitted,
                      struct sp_err *e)
{
    struct json_list l = {.key = "processes", .ok = true};
    struct json_list ended = {.key = "entries", .ok = true};
    auto_buf struct sp_buf servers = {0};
    auto_buf struct sp_buf first = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && l.ok && i < a->order_count; i++) {
        struct sp_observe *o = a->order[i];

        l.server = o;
        r = sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), add_json, &l, e);
        if (r == 0 && is_all)
            r = add_history(&ended, o, e);
        if (r < 0 && a->is_local) /* it ended just now */
            r = 0;
        l.ok = l.ok && ended.ok && add_server(&servers, o) &&
               (i > 0 || sp_json_add_str(&first, sp_str_of(o->shown_url)));
    }
    if (r == 0 && !l.ok)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "print the list");
    if (r == 0) {
        const bool is_one = a->order_count == 1;

        (void)printf("{\"server\":%.*s,\"servers\":[%.*s],\"processes\":[%.*s]",
                     is_one ? (int)first.len : 4, is_one ? first.data : "null", (int)servers.len,
                     servers.len == 0 ? "" : servers.data, (int)l.text.len,
                     l.text.len == 0 ? "" : l.text.data);
        if (is_all)
            (void)printf(",\"history\":[%.*s]", (int)ended.text.len,
                         ended.text.len == 0 ? "" : ended.text.data);
        (void)puts("}");
    }
    sp_buf_done(&ended.text);
    *ret_omitted = l.omitted;
    sp_buf_done(&l.text);
    return r;
}

/* ---- as a table ---- */

enum column {
    SERVER,
    SESSION,
    PROCESS,
    ID, /* the process ids beside names; empty without names */
    PID,
    STATE,
    AGE,
    CPU,
    PEAK,
    TTY,
    NET,
    CWD,
    COMMAND,
    COLUMNS
};

static const char *const titles[COLUMNS] = {"SERVER", "SESSION", "PROCESS", "ID",   "PID",
                                            "STATE",  "AGE",     "CPU",     "PEAK", "TTY",
                                            "NET",    "CWD",     "COMMAND"};

/* Processor time, and the most memory: of the whole tree if that is known. "-": not known. */
static void write_usage(const struct sp_command_receipt *r, char cpu[32], char peak[32])
{
    const uint64_t ms = r->numbers[SP_RECEIPT_USER_MS] + r->numbers[SP_RECEIPT_SYSTEM_MS];
    const enum sp_receipt_item most =
        sp_receipt_knows(r, SP_RECEIPT_PEAK_MEMORY) ? SP_RECEIPT_PEAK_MEMORY : SP_RECEIPT_MAX_RSS;

    (void)snprintf(cpu, 32, "-");
    (void)snprintf(peak, 32, "-");
    if (sp_receipt_knows(r, SP_RECEIPT_USER_MS) && ms < 60000)
        (void)snprintf(cpu, 32, "%u.%02us", (unsigned)(ms / 1000), (unsigned)(ms % 1000 / 10));
    else if (sp_receipt_knows(r, SP_RECEIPT_USER_MS))
        sp_listed_write_age(ms > INT64_MAX ? INT64_MAX : (int64_t)ms, cpu, 32);
    if (sp_receipt_knows(r, most))
        sp_receipt_write_size(r->numbers[most], peak);
}

/* "exited (3)", "wall limit (137)" */
static void write_end(const struct sp_listed *p, char *ret, size_t size)
{
    const char *limit = NULL;

    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        if (p->receipt.reason != SP_END_NONE && sp_limit_kinds[i].reason == p->receipt.reason)
            limit = sp_limit_kinds[i].name;
    (void)snprintf(ret, size, "%s%s (%lld)", limit == NULL ? "exited" : limit,
                   limit == NULL ? "" : " limit", (long long)p->exit_code);
}

/* The cells of one row, each ended by NUL. */
static bool write_row(const struct sp_listed *p, int64_t now, struct sp_buf *out)
{
    const struct sp_observe *server = p->server;
    char age[32];
    char code[64] = "";
    char cpu[32];
    char peak[32];
    bool ok = true;

    sp_listed_write_age(now - p->started_ms, age, sizeof age);
    write_usage(&p->receipt, cpu, peak);
    if (p->has_exited)
        write_end(p, code, sizeof code);
    if (server->pid != 0)
        ok = sp_buf_printf(out, "%s/%d", server->kind, (int)server->pid);
    ok = ok && sp_buf_printf(out, "%c%.8s%c", 0, p->session, 0);
    if (p->name != NULL)
        ok = ok && sp_buf_add_str(out, sp_str_of(p->name));
    else
        ok = ok && sp_plain_add(out, (struct sp_str){p->id, p->id_len});
    ok = ok && sp_buf_printf(out, "%c", 0) && sp_plain_add(out, (struct sp_str){p->id, p->id_len});
    return ok &&
           sp_buf_printf(out, "%c%lld%c%s%c%s%c%s%c%s%c%s%c%s%c%s%c%s%c", 0, (long long)p->pid, 0,
                         p->has_exited ? code : p->state, 0, age, 0, cpu, 0, peak, 0,
                         p->is_tty ? "yes" : "no", 0, p->network, 0, p->cwd, 0, p->command, 0);
}

/* Every cell but the command and the state (an exit code must keep its digits) is cut at a quarter
 * of the screen; ids, which people type, later. */
static struct sp_str trim_cell(const char *cell, enum column c, size_t screen)
{
    const struct sp_str s = sp_str_of(cell);

    const size_t least = c == PROCESS ? 24 : 8;

    return c == COMMAND || c == STATE || screen == SIZE_MAX
               ? s
               : sp_plain_cut(s, screen / 4 > least ? screen / 4 : least);
}

/* The escape sequence for a state at a terminal; NULL: none. */
static const char *color_of(const char *state)
{
    if (!sp_plain_has_color(STDOUT_FILENO))
        return NULL;
    if (strcmp(state, "running") == 0)
        return "\033[32m";
    return strchr(state, '(') != NULL && strcmp(state, "exited (0)") != 0 ? "\033[31m" : NULL;
}

/* A width of 0 leaves a column out. */
static bool print_row(const char *const cells[COLUMNS], const size_t widths[COLUMNS], size_t screen)
{
    size_t state_at = 0;
    size_t state_end = 0;
    auto_buf struct sp_buf row = {0};
    bool ok = true;

    for (int c = 0; ok && c < COLUMNS; c++) {
        const struct sp_str cell = trim_cell(cells[c], (enum column)c, screen);

        if (widths[c] == 0)
            continue;
        if (c == STATE) {
            state_at = row.len;
            state_end = row.len + cell.n;
        }
        ok = sp_buf_add_str(&row, cell);
        if (c != COMMAND)
            ok = ok && sp_buf_printf(&row, "%*s", (int)(widths[c] - sp_plain_width(cell) + 2), "");
    }
    struct sp_str shown = sp_plain_cut((struct sp_str){row.data, row.len}, screen);
    if (shown.n < state_end && cells != titles) /* part of an exit code is another exit code */
        shown.n = state_at < shown.n ? state_at : shown.n;
    const char *color = color_of(cells[STATE]);
    if (ok && color != NULL && state_end <= shown.n)
        return printf("%.*s%s%.*s\033[0m%.*s\n", (int)state_at, shown.p, color,
                      (int)(state_end - state_at), shown.p + state_at, (int)(shown.n - state_end),
                      shown.p + state_end) >= 0;
    return ok && fwrite(shown.p, 1, shown.n, stdout) == shown.n && putchar('\n') != EOF;
}

/* Leaves columns out until the command has its width or a quarter of the screen. */
static void make_room(size_t widths[COLUMNS], size_t screen)
{
    static const enum column dispensable[] = {CWD,     NET, TTY, CPU, PEAK,
                                              SESSION, ID,  AGE, PID, SERVER};
    const size_t least = widths[COMMAND] < screen / 4 ? widths[COMMAND] : screen / 4;
    size_t needed = least;

    for (int c = 0; c < COMMAND; c++)
        needed += widths[c] == 0 ? 0 : widths[c] + 2;
    for (size_t i = 0; needed > screen && i < sizeof dispensable / sizeof *dispensable; i++) {
        if (widths[dispensable[i]] == 0)
            continue;
        needed -= widths[dispensable[i]] + 2;
        widths[dispensable[i]] = 0;
    }
}

/* All cells are made first, since a column is as wide as its widest cell. */
static bool print_table(const struct sp_listed_all *l, enum column first)
{
    auto_buf struct sp_buf text = {0};
    struct winsize size;
    const bool has_width =
        isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const size_t screen = has_width ? size.ws_col : SIZE_MAX;
    const int64_t now = (int64_t)sp_clock_unix_ms();
    const char *cells[COLUMNS];
    size_t widths[COLUMNS] = {0};

    bool has_names = false;
    for (size_t i = 0; i < l->count; i++) {
        const struct sp_listed *p = &l->items[i];

        if (!write_row(p, now, &text))
            return false;
        has_names = has_names || (p->name != NULL && !sp_str_eq(sp_str_of(p->name),
                                                                (struct sp_str){p->id, p->id_len}));
    }
    for (int c = (int)first; c < COLUMNS; c++)
        widths[c] = c == ID && !has_names ? 0 : strlen(titles[c]);
    const char *at = text.data;
    for (size_t i = 0; i < l->count * COLUMNS; i++, at += strlen(at) + 1) {
        const enum column c = (enum column)(i % COLUMNS);
        const size_t width = sp_plain_width(trim_cell(at, c, screen));

        if (widths[c] != 0 && width > widths[c])
            widths[c] = width;
    }
    make_room(widths, screen);
    bool ok = print_row(titles, widths, screen);
    at = text.data;
    for (size_t i = 0; ok && i < l->count; i++) {
        for (int c = 0; c < COLUMNS; c++, at += strlen(at) + 1)
            cells[c] = at;
        ok = print_row(cells, widths, screen);
    }
    return ok;
}

static void print_ids(const struct sp_listed_all *l)
{
    for (size_t i = 0; i < l->count; i++) {
        sp_plain_print(stdout, (struct sp_str){l->items[i].id, l->items[i].id_len});
        (void)putchar('\n');
    }
}

static int list_processes(struct sp_observe_all *a, void *user, struct sp_err *e)
{
    const struct ps_options *wanted = user;
    uint64_t omitted = 0;
    int r;

    if (wanted->is_json) {
        r = print_json(a, wanted->is_all, &omitted, e);
    } else {
        r = sp_observe_list(a, e);
        if (r == 0 && wanted->is_all)
            r = sp_observe_add_history(a, e);
        omitted = a->all.omitted;
        if (r == 0 && wanted->is_quiet)
            print_ids(&a->all);
        else if (r == 0 && !print_table(&a->all, a->is_local ? SERVER : SESSION))
            r = sp_fail(e, SP_E_SYSTEM, errno, "print the list");
    }
    if (r == 0 && omitted > 0)
        (void)fprintf(stderr, "sallyport: %llu more are not listed\n", (unsigned long long)omitted);
    if (r == 0 && fflush(stdout) != 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "write the list");
    return r;
}

static int run_ps(void *values, char **operands)
{
    (void)operands;
    return sp_observe_run(&((struct ps_options *)values)->server, NULL, list_processes, values);
}

const struct sp_cli_command sp_command_ps = {
    .name = "ps",
    .summary = "list the processes of all servers of this user, or of one",
    .usage = "sallyport ps [OPTIONS]\n"
             "\n"
             "Lists the processes of every serve, mcp and exec of this user, or of one server, "
             "including those that have ended and are still kept.\n",
    .notes = "Exit status: 0; 1 if it failed; 2 for a wrong command line; 123 if the server cannot "
             "be reached.\n"
             "Example: sallyport ps --on ws://127.0.0.1:8765\n",
    .options = options,
    .values_size = sizeof(struct ps_options),
    .run = run_ps,
};
