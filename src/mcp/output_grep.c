/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_grep: the lines that match, with lines around them, as grep writes them.
 *
 * Every line that is kept is looked at once, in order, since all matches are counted. A match is
 * written with what surrounds it or not at all, if it is not the first: then the search can go on
 * there. What is before the gap and what is behind it are no neighbours.
 */
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/ere.h"
#include "base/utf8.h"
#include "mcp/output_priv.h"

#define LINE_MAX_BYTES 65536 /* of a line that are shown */
#define CUT_MARK       " [... %zu more bytes]"
#define CUT_ROOM       64 /* for a mark, the number and the line feed */

/* An expression may be as slow as it likes to be; everybody waits for it. */
#define CPU_MAX_NS  250000000U
#define SLICE_BYTES 4096 /* between two looks at the clock */

struct line {
    struct sp_str bytes; /* without its line end */
    uint64_t at, next;   /* where it begins, and the one behind it */
    uint64_t number;
    const struct sp_mcp_part *part;
    struct sp_mcp_plain plain; /* as it begins */
};

struct grep {
    const struct sp_mcp_kept *kept;
    const struct sp_mcp_output_ask *ask;
    struct sp_mcp_output *o;
    struct sp_ere *x;
    struct sp_mcp_plain plain; /* behind the lines that were looked at */
    struct sp_buf shown;       /* one line as text */
    struct sp_buf decoded;     /* the same with its escape sequences */
    struct sp_buf group;       /* what is to be written next */
    struct line before[SP_MCP_OUTPUT_CONTEXT_MAX];
    size_t befores;      /* lines that are remembered there; a ring */
    size_t before_at;    /* the oldest */
    uint64_t after;      /* lines that are still to be written behind a match */
    struct line written; /* the last one */
    bool has_written, is_full;
    uint64_t begun_ns; /* CPU time */
    size_t slice;      /* bytes that are left of it */
    bool is_late;
};

/* ---- a line ---- */

/* Its text, in g->shown. */
static bool show(struct grep *g, const struct line *l)
{
    struct sp_mcp_plain plain = l->plain;

    g->shown.len = g->decoded.len = 0;
    if (!g->ask->is_plain)
        return sp_utf8_add_lossy(&g->shown, l->bytes);
    return sp_utf8_add_lossy(&g->decoded, l->bytes) &&
           sp_mcp_plain_add(&plain, &g->shown, (struct sp_str){g->decoded.data, g->decoded.len});
}

/* Where the text is to be cut so that at most max bytes are left, but one character at least. */
static size_t cut_at(struct sp_str text, size_t max)
{
    size_t n = max;

    if (text.n <= max)
        return text.n;
    while (n > 0 && ((unsigned char)text.p[n] & 0xC0) == 0x80)
        n--;
    if (n == 0)
        for (n = 1; n < text.n && ((unsigned char)text.p[n] & 0xC0) == 0x80;)
            n++;
    return n;
}

static bool add_prefix(struct grep *g, const struct line *l, char mark)
{
    return sp_buf_printf(&g->group, "%s%" PRIu64 "%c", l->part->is_counted ? "" : "+", l->number,
                         mark);
}

/* A carriage return has made several lines of it: all have its number. */
static bool add_lines(struct grep *g, const struct line *l, char mark, struct sp_str text)
{
    for (;;) {
        const char *end = text.n == 0 ? NULL : memchr(text.p, '\n', text.n);
        const size_t n = end == NULL ? text.n : (size_t)(end - text.p);

        if (!add_prefix(g, l, mark) || !sp_buf_add(&g->group, text.p, n))
            return false;
        if (end == NULL)
            return true;
        if (!sp_buf_add(&g->group, "\n", 1))
            return false;
        text = (struct sp_str){text.p + n + 1, text.n - n - 1};
    }
}

/* Appends a line to the group: `12:text`. */
static bool add_line(struct grep *g, const struct line *l, char mark, size_t max)
{
    if (!show(g, l))
        return false;
    const struct sp_str text = {g->shown.data, g->shown.len};
    const size_t n = cut_at(text, max);

    return add_lines(g, l, mark, (struct sp_str){text.p, n}) &&
           (n == text.n || sp_buf_printf(&g->group, CUT_MARK, text.n - n)) &&
           sp_buf_add(&g->group, "\n", 1);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* Linux has it */
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* The next bytes that may be searched before the clock is looked at. */
static struct sp_str next_slice(struct grep *g, struct sp_str *rest)
{
    struct sp_str s = *rest;

    if (g->slice == 0) {
        g->slice = SLICE_BYTES;
        g->is_late = cpu_ns() - g->begun_ns > CPU_MAX_NS;
    }
    if (s.n > g->slice)
        s.n = g->slice;
    g->slice -= s.n;
    *rest = (struct sp_str){rest->p + s.n, rest->n - s.n};
    return s;
}

static bool does_match(struct grep *g, const struct line *l, bool *ret)
{
    struct sp_str text = l->bytes;

    if (g->ask->is_plain) {
        if (!show(g, l))
            return false;
        text = (struct sp_str){g->shown.data, g->shown.len};
    }
    sp_ere_reset(g->x);
    *ret = false;
    while (text.n > 0 && !*ret && !g->is_late)
        *ret = sp_ere_feed(g->x, next_slice(g, &text));
    *ret = *ret || sp_ere_finish(g->x);
    return !g->is_late;
}

/* ---- groups of lines ---- */

static bool are_neighbours(const struct line *a, const struct line *b)
{
    return a->part == b->part && a->next == b->at;
}

/* What parts this from what was written before. */
static bool add_separator(struct grep *g, const struct line *first)
{
    if (!g->has_written || are_neighbours(&g->written, first))
        return true;
    if (g->written.part != first->part)
        return sp_mcp_add_gap_mark(&g->group, g->kept->omitted);
    return sp_buf_add(&g->group, "--\n", 3);
}

static const struct line *before_line(const struct grep *g, size_t i)
{
    return &g->before[(g->before_at + i) % SP_MCP_OUTPUT_CONTEXT_MAX];
}

/* The lines before it, and the match. */
static bool add_group(struct grep *g, const struct line *match)
{
    if (!add_separator(g, g->befores == 0 ? match : before_line(g, 0)))
        return false;
    for (size_t i = 0; i < g->befores; i++)
        if (!add_line(g, before_line(g, i), '-', LINE_MAX_BYTES))
            return false;
    return add_line(g, match, ':', LINE_MAX_BYTES);
}

static bool does_fit(const struct grep *g)
{
    return g->o->text.len + g->group.len <= g->ask->limit;
}

/* The search can go on with this line. */
static void stop_before(struct grep *g, const struct line *l)
{
    g->is_full = true;
    g->o->next_byte = l->at > g->o->from_byte ? l->at : g->o->from_byte;
}

static bool write_group(struct grep *g, const struct line *last)
{
    g->written = *last;
    g->has_written = true;
    g->befores = 0;
    return sp_buf_add(&g->o->text, g->group.data, g->group.len);
}

/* The first match is shown, if not with the lines before it, and however little of it. */
static bool add_alone(struct grep *g, const struct line *l)
{
    const uint64_t room = g->ask->limit > CUT_ROOM ? g->ask->limit - CUT_ROOM : 1;

    g->group.len = 0;
    if (!add_line(g, l, ':', LINE_MAX_BYTES))
        return false;
    if (does_fit(g))
        return true;
    g->group.len = 0;
    return add_line(g, l, ':', room < LINE_MAX_BYTES ? (size_t)room : LINE_MAX_BYTES);
}

static bool write_match(struct grep *g, const struct line *l)
{
    g->group.len = 0;
    if (!add_group(g, l))
        return false;
    if (!does_fit(g) && g->has_written) {
        stop_before(g, g->befores == 0 ? l : before_line(g, 0));
        return true;
    }
    if (!does_fit(g) && !add_alone(g, l))
        return false;
    g->after = g->ask->context;
    return write_group(g, l);
}

static bool write_after(struct grep *g, const struct line *l)
{
    g->after--;
    g->group.len = 0;
    if (!add_line(g, l, '-', LINE_MAX_BYTES))
        return false;
    if (does_fit(g))
        return write_group(g, l);
    stop_before(g, l);
    return true;
}

static void remember_before(struct grep *g, const struct line *l)
{
    if (g->ask->context == 0)
        return;
    if (g->befores == g->ask->context) {
        g->before_at = (g->before_at + 1) % SP_MCP_OUTPUT_CONTEXT_MAX;
        g->befores--;
    }
    g->before[(g->before_at + g->befores++) % SP_MCP_OUTPUT_CONTEXT_MAX] = *l;
}

static bool look_at(struct grep *g, const struct line *l)
{
    bool is_match = false;

    if (!does_match(g, l, &is_match))
        return false;
    g->o->matches += is_match;
    if (g->is_full || l->next <= g->o->from_byte)
        return true;
    if (is_match)
        return write_match(g, l);
    if (g->after > 0)
        return write_after(g, l);
    remember_before(g, l);
    return true;
}

/* ---- all of them ---- */

static struct sp_str without_line_end(struct sp_str line)
{
    if (line.n > 0 && line.p[line.n - 1] == '\n')
        line.n--;
    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    return line;
}

/* A line ends what its end ends: a title, but no picture. */
static bool pass_by(struct grep *g, struct sp_str whole)
{
    if (!g->ask->is_plain)
        return true;
    g->shown.len = 0;
    const bool ok = sp_mcp_plain_add(&g->plain, &g->shown, whole);
    g->plain.has_cr = false;
    return ok;
}

static bool look_at_part(struct grep *g, const struct sp_mcp_part *part)
{
    struct sp_str rest = part->bytes;

    g->befores = 0;
    g->after = 0;
    g->plain = (struct sp_mcp_plain){0};
    for (uint64_t number = 1; rest.n > 0; number++) {
        const char *end = memchr(rest.p, '\n', rest.n);
        const struct sp_str whole = {rest.p, end == NULL ? rest.n : (size_t)(end - rest.p) + 1};
        const uint64_t at = part->at + (size_t)(rest.p - part->bytes.p);
        const struct line l = {.bytes = without_line_end(whole),
                               .at = at,
                               .next = at + whole.n,
                               .number = number,
                               .part = part,
                               .plain = g->plain};

        if (!look_at(g, &l) || !pass_by(g, whole))
            return false;
        if (end == NULL && part->is_open && !g->is_full &&
            !(g->has_written && g->written.at == l.at))
            stop_before(g, &l); /* the rest of it may come, and make it match */
        rest = (struct sp_str){rest.p + whole.n, rest.n - whole.n};
    }
    return true;
}

static bool look_at_all(struct grep *g)
{
    for (size_t i = 0; i < g->kept->parts; i++)
        if (!look_at_part(g, &g->kept->part[i]))
            return false;
    if (!g->is_full)
        g->o->next_byte = g->kept->end;
    if (g->kept->omitted != 0 && g->o->from_byte <= g->kept->gap && g->o->next_byte > g->kept->gap)
        g->o->omitted_bytes = g->kept->omitted;
    return true;
}

int sp_mcp_output_grep(const struct sp_mcp_kept *k, const struct sp_mcp_output_ask *ask,
                       struct sp_mcp_output *o, struct sp_err *e)
{
    struct grep g = {.kept = k, .ask = ask, .o = o, .begun_ns = cpu_ns()};

    if (sp_ere_new(ask->grep, &g.x, e) < 0)
        return sp_wrap(e, "grep");
    o->has_matches = true;
    const bool ok = look_at_all(&g);
    sp_ere_free(g.x);
    sp_buf_done(&g.shown);
    sp_buf_done(&g.decoded);
    sp_buf_done(&g.group);
    if (g.is_late)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "grep: the search takes too long; a simpler expression does not: fewer and "
                       "smaller repetitions {m,n}");
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "search the output");
}
