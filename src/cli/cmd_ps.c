/* SPDX-License-Identifier: Apache-2.0 */
/* ps: the processes of a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

static const char help[] =
    "Usage: sallyport ps [OPTIONS]\n"
    "\n"
    "Lists the processes of a server: those of all its sessions, ended ones that it still keeps\n"
    "included.\n"
    "\n"
    "  --json              one JSON object instead of a table\n"
    "\n" SP_OBSERVE_HELP_TEXT "\n"
    "Exit status: 0, 1 if it failed, 2 for a wrong flag, 123 if the server cannot be reached.\n"
    "Example: sallyport ps --server ws://127.0.0.1:8765\n";

enum { OPT_JSON = 256 };

static const struct option known[] = {
    SP_OBSERVE_OPTIONS,
    {"json", no_argument, NULL, OPT_JSON},
    {NULL, 0, NULL, 0},
};

static bool take(void *user, int opt)
{
    *(bool *)user = opt == OPT_JSON;
    return true;
}

static const struct sp_verb verb = {.name = "ps", .help = help, .options = known, .take = take};

/* ---- as JSON ---- */

static void print_json(void *user, struct sp_json *j, uint32_t result)
{
    const struct sp_observe *o = user;
    auto_buf struct sp_buf url = {0};
    const uint32_t all = sp_json_type(j, result) == SP_JSON_OBJECT
                             ? sp_json_get(j, result, "processes")
                             : SP_JSON_NONE;
    const struct sp_str text = all != SP_JSON_NONE ? sp_json_raw(j, all) : SP_STR("[]");

    if (sp_json_add_str(&url, sp_str_of(sp_observe_url(o))))
        (void)printf("{\"server\":%.*s,\"processes\":%.*s}\n", (int)url.len, url.data, (int)text.n,
                     text.p);
}

/* ---- as a table ---- */

enum column { SESSION, PROCESS, PID, STATE, AGE, TTY, CWD, COMMAND, COLUMNS };

static const char *const titles[COLUMNS] = {"SESSION", "PROCESS", "PID", "STATE",
                                            "AGE",     "TTY",     "CWD", "COMMAND"};

static void write_age(int64_t ms, char ret[32])
{
    const long long s = ms > 0 ? ms / 1000 : 0;

    if (s < 60)
        (void)snprintf(ret, 32, "%llds", s);
    else if (s < 3600)
        (void)snprintf(ret, 32, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(ret, 32, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        (void)snprintf(ret, 32, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The cells of one row, each ended by NUL; what is long without use is cut. */
static bool write_row(const struct sp_listed *p, int64_t now, struct sp_buf *out)
{
    char age[32];

    write_age(now - p->started_ms, age);
    bool ok = sp_buf_printf(out, "%.8s", p->session) && sp_buf_add(out, "", 1) &&
              sp_plain_add(out, (struct sp_str){p->id, p->id_len}) && sp_buf_add(out, "", 1) &&
              sp_buf_printf(out, "%lld", (long long)p->pid) && sp_buf_add(out, "", 1) &&
              sp_buf_printf(out, "%s", p->state);
    if (ok && p->has_exited)
        ok = sp_buf_printf(out, "(%lld)", (long long)p->exit_code);
    return ok && sp_buf_add(out, "", 1) && sp_buf_printf(out, "%s", age) &&
           sp_buf_add(out, "", 1) && sp_buf_printf(out, "%s", p->is_tty ? "yes" : "no") &&
           sp_buf_add(out, "", 1) && sp_buf_printf(out, "%s", p->cwd) && sp_buf_add(out, "", 1) &&
           sp_buf_printf(out, "%s", p->command) && sp_buf_add(out, "", 1);
}

static size_t screen_width(void)
{
    struct winsize size;

    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : SIZE_MAX;
}

/* So many characters of it. */
static struct sp_str cut(struct sp_str s, size_t width)
{
    size_t n = 0;

    while (n < s.n && (width > 0 || ((unsigned char)s.p[n] & 0xC0) == 0x80)) {
        width -= ((unsigned char)s.p[n] & 0xC0) != 0x80 && width > 0;
        n++;
    }
    return (struct sp_str){s.p, n};
}

/* A cell beside the command takes no more than its share of a screen. */
static struct sp_str trim(const char *cell, enum column c, size_t screen)
{
    const struct sp_str s = sp_str_of(cell);

    return c == COMMAND || screen == SIZE_MAX ? s : cut(s, screen / 4 > 8 ? screen / 4 : 8);
}

static bool print_row(const char *const cells[COLUMNS], const size_t widths[COLUMNS], size_t screen)
{
    auto_buf struct sp_buf row = {0};
    bool ok = true;

    for (int c = 0; ok && c < COLUMNS; c++) {
        const struct sp_str cell = trim(cells[c], (enum column)c, screen);

        ok = sp_buf_add_str(&row, cell);
        if (c != COMMAND)
            ok = ok && sp_buf_printf(&row, "%*s", (int)(widths[c] - sp_plain_width(cell) + 2), "");
    }
    const struct sp_str shown = cut((struct sp_str){row.data, row.len}, screen);
    return ok && fwrite(shown.p, 1, shown.n, stdout) == shown.n && putchar('\n') != EOF;
}

static bool print_table(const struct sp_process_list *l)
{
    auto_buf struct sp_buf text = {0};
    const size_t screen = screen_width();
    const int64_t now = now_ms();
    const char *cells[COLUMNS];
    size_t widths[COLUMNS];

    for (size_t i = 0; i < l->count; i++)
        if (!write_row(&l->items[i], now, &text))
            return false;
    for (int c = 0; c < COLUMNS; c++)
        widths[c] = strlen(titles[c]);
    const char *at = text.data;
    for (size_t i = 0; i < l->count * COLUMNS; i++, at += strlen(at) + 1) {
        const size_t width = sp_plain_width(trim(at, (enum column)(i % COLUMNS), screen));

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

static int list(struct sp_observe *o, bool is_json, struct sp_err *e)
{
    struct sp_process_list all = {0};

    if (is_json)
        return sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), print_json, o, e);
    int r = sp_observe_list(o, &all, e);
    if (r == 0 && !print_table(&all))
        r = sp_fail(e, SP_E_SYSTEM, errno, "print the list");
    if (r == 0 && all.omitted > 0)
        (void)fprintf(stderr, "sallyport ps: %llu more are not listed\n",
                      (unsigned long long)all.omitted);
    sp_list_done(&all);
    return r;
}

int sp_cmd_ps(int argc, char **argv)
{
    struct sp_observe_flags flags = {0};
    auto_free char **words = NULL;
    struct sp_observe *o = NULL;
    struct sp_err e = {0};
    bool is_json = false;
    int status = sp_observe_args(&verb, argc, argv, &is_json, &flags, &words);

    if (status != SP_EXIT_OK)
        return status < 0 ? SP_EXIT_OK : status;
    status = sp_observe_open(&flags, &o);
    if (status != SP_EXIT_OK)
        return status;
    int r = list(o, is_json, &e);
    if (r == 0 && fflush(stdout) != 0)
        r = sp_fail(&e, SP_E_SYSTEM, errno, "write the list");
    if (r < 0)
        status = sp_observe_complain(o, &e);
    sp_observe_free(o);
    return status;
}
