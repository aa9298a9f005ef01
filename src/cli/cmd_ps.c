/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport ps`: lists the processes of a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

struct ps_options {
    bool is_json;
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct ps_options, is_json, "json", "print one JSON object instead of a table"),
    SP_OPT_TABLE(struct ps_options, server, sp_observe_options),
    SP_OPT_END,
};

/* ---- as JSON ---- */

/* The list as the server sent it, with the URL in front. */
static void print_json(void *user, struct sp_json *j, uint32_t result)
{
    const struct sp_observe *o = user;
    auto_buf struct sp_buf url = {0};
    const uint32_t all = sp_json_type(j, result) == SP_JSON_OBJECT
                             ? sp_json_get(j, result, "processes")
                             : SP_JSON_NONE;
    const struct sp_str text = all != SP_JSON_NONE ? sp_json_raw(j, all) : SP_STR("[]");

    if (sp_json_add_str(&url, sp_str_of(o->shown_url)))
        (void)printf("{\"server\":%.*s,\"processes\":%.*s}\n", (int)url.len, url.data, (int)text.n,
                     text.p);
}

/* ---- as a table ---- */

enum column { SESSION, PROCESS, PID, STATE, AGE, TTY, NET, CWD, COMMAND, COLUMNS };

static const char *const titles[COLUMNS] = {"SESSION", "PROCESS", "PID", "STATE",  "AGE",
                                            "TTY",     "NET",     "CWD", "COMMAND"};

/* The cells of one row, each ended by NUL. The age has its two largest units: 3m07s, 2h05m. */
static bool write_row(const struct sp_listed *p, int64_t now, struct sp_buf *out)
{
    const long long s = now > p->started_ms ? (now - p->started_ms) / 1000 : 0;
    char age[32];
    char code[32] = "";

    if (s < 60)
        (void)snprintf(age, sizeof age, "%llds", s);
    else if (s < 3600)
        (void)snprintf(age, sizeof age, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(age, sizeof age, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        (void)snprintf(age, sizeof age, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    if (p->has_exited)
        (void)snprintf(code, sizeof code, "(%lld)", (long long)p->exit_code);
    return sp_buf_printf(out, "%.8s%c", p->session, 0) &&
           sp_plain_add(out, (struct sp_str){p->id, p->id_len}) &&
           sp_buf_printf(out, "%c%lld%c%s%s%c%s%c%s%c%s%c%s%c%s%c", 0, (long long)p->pid, 0,
                         p->state, code, 0, age, 0, p->is_tty ? "yes" : "no", 0, p->network, 0,
                         p->cwd, 0, p->command, 0);
}

/* The first `width` characters of UTF-8. */
static struct sp_str cut_at_width(struct sp_str s, size_t width)
{
    size_t n = 0;

    while (n < s.n && (width > 0 || ((unsigned char)s.p[n] & 0xC0) == 0x80)) {
        width -= ((unsigned char)s.p[n] & 0xC0) != 0x80 && width > 0;
        n++;
    }
    return (struct sp_str){s.p, n};
}

/* Every cell but the command is cut at a quarter of the screen. */
static struct sp_str trim_cell(const char *cell, enum column c, size_t screen)
{
    const struct sp_str s = sp_str_of(cell);

    return c == COMMAND || screen == SIZE_MAX ? s
                                              : cut_at_width(s, screen / 4 > 8 ? screen / 4 : 8);
}

static bool print_row(const char *const cells[COLUMNS], const size_t widths[COLUMNS], size_t screen)
{
    auto_buf struct sp_buf row = {0};
    bool ok = true;

    for (int c = 0; ok && c < COLUMNS; c++) {
        const struct sp_str cell = trim_cell(cells[c], (enum column)c, screen);

        ok = sp_buf_add_str(&row, cell);
        if (c != COMMAND)
            ok = ok && sp_buf_printf(&row, "%*s", (int)(widths[c] - sp_plain_width(cell) + 2), "");
    }
    const struct sp_str shown = cut_at_width((struct sp_str){row.data, row.len}, screen);
    return ok && fwrite(shown.p, 1, shown.n, stdout) == shown.n && putchar('\n') != EOF;
}

/* All cells are made first, since a column is as wide as its widest cell. */
static bool print_table(const struct sp_listed_all *l)
{
    auto_buf struct sp_buf text = {0};
    struct winsize size;
    const bool has_width =
        isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const size_t screen = has_width ? size.ws_col : SIZE_MAX;
    const int64_t now = (int64_t)sp_clock_unix_ms();
    const char *cells[COLUMNS];
    size_t widths[COLUMNS];

    for (size_t i = 0; i < l->count; i++)
        if (!write_row(&l->items[i], now, &text))
            return false;
    for (int c = 0; c < COLUMNS; c++)
        widths[c] = strlen(titles[c]);
    const char *at = text.data;
    for (size_t i = 0; i < l->count * COLUMNS; i++, at += strlen(at) + 1) {
        const size_t width = sp_plain_width(trim_cell(at, (enum column)(i % COLUMNS), screen));

        if (width > widths[i % COLUMNS])
            widths[i % COLUMNS] = width;
    }
    bool ok = print_row(titles, widths, screen);
    at = text.data;
    for (size_t i = 0; ok && i < l->count; i++) {
        for (int c = 0; c < COLUMNS; c++, at += strlen(at) + 1)
            cells[c] = at;
        ok = print_row(cells, widths, screen);
    }
    return ok;
}

static int list_processes(struct sp_observe *o, void *user, struct sp_err *e)
{
    const struct ps_options *wanted = user;
    int r;

    if (wanted->is_json)
        r = sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), print_json, o, e);
    else
        r = sp_observe_list(o, e);
    if (r == 0 && !wanted->is_json && !print_table(&o->all))
        r = sp_fail(e, SP_E_SYSTEM, errno, "print the list");
    if (r == 0 && o->all.omitted > 0)
        (void)fprintf(stderr, "sallyport ps: %llu more are not listed\n",
                      (unsigned long long)o->all.omitted);
    if (r == 0 && fflush(stdout) != 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "write the list");
    return r;
}

static int run_ps(void *values, char **operands)
{
    (void)operands;
    return sp_observe_run(&((struct ps_options *)values)->server, list_processes, values);
}

const struct sp_cli_command sp_command_ps = {
    .name = "ps",
    .summary = "list the processes of a server",
    .usage =
        "sallyport ps [OPTIONS]\n"
        "\n"
        "Lists the processes of all sessions of a server, including those that have ended and\n"
        "are still kept.\n",
    .notes =
        "Exit status: 0; 1 if it failed; 2 for a wrong command line; 123 if the server cannot\n"
        "be reached.\n"
        "Example: sallyport ps --server ws://127.0.0.1:8765\n",
    .options = options,
    .values_size = sizeof(struct ps_options),
    .run = run_ps,
};
