/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: addresses in a session's kept output, the text from there on, and searches.
 *
 * A text always ends where the next one can start: between two characters and, in the plain view,
 * between two escape sequences. Reading on at next_byte therefore returns every byte exactly once.
 */
#include "mcp/output.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/ere.h"
#include "base/utf8.h"
#include "engine/delta.h"

#define REPLACEMENT    "\xEF\xBF\xBD"
#define LINE_MAX_BYTES 65536 /* shown of one matching or context line */
#define CUT_MARK       " [... %zu more bytes]"
#define CUT_ROOM       64         /* for the cut mark, the line number and the line feed */
#define CPU_MAX_NS     250000000U /* of one search: it blocks the event loop */
#define SLICE_BYTES    4096       /* searched between two reads of the CPU clock */

/* ---- text without escape sequences ----
 *
 * Removes everything that starts with ESC, as far as ECMA-48 defines its extent, and all control
 * characters except tab and line feed. A byte that cannot belong to a sequence ends it and counts
 * as text, so that half a sequence does not swallow what follows. A title or link (OSC) ends with
 * its line at the latest. Any number of carriage returns, with the line feed that may follow,
 * become one line feed: text that a progress bar overwrote stays readable, line by line.
 */

enum plain_state {
    PLAIN_TEXT,
    PLAIN_ESCAPE,  /* after ESC */
    PLAIN_CHARSET, /* after ESC and an intermediate byte: the final byte follows */
    PLAIN_SHIFT,   /* SS2, SS3: one character follows */
    PLAIN_CONTROL, /* CSI: parameters, then a final byte */
    PLAIN_TITLE,   /* OSC: up to BEL or ST */
    PLAIN_STRING,  /* DCS, SOS, PM, APC: up to ST */
};

static enum plain_state state_after_escape(unsigned char c)
{
    switch (c) {
    case '[':
        return PLAIN_CONTROL;
    case ']':
        return PLAIN_TITLE;
    case 'P':
    case 'X':
    case '^':
    case '_':
        return PLAIN_STRING;
    case 'N':
    case 'O':
        return PLAIN_SHIFT;
    default:
        return c < 0x30 ? PLAIN_CHARSET : PLAIN_TEXT;
    }
}

/* true: c belongs to a sequence. false: c is text. */
static bool is_in_sequence(struct sp_mcp_plain *p, unsigned char c)
{
    const enum plain_state state = (enum plain_state)p->state;
    const bool is_graphic = c >= 0x20 && c < 0x7F;

    if (c == 0x1B) { /* the ESC of the ST (ESC \) that ends a string too */
        p->state = PLAIN_ESCAPE;
        return true;
    }
    if (state == PLAIN_TITLE || state == PLAIN_STRING) {
        if (state == PLAIN_STRING || c != '\n') {
            if (c == 0x18 || c == 0x1A || (state == PLAIN_TITLE && c == 0x07)) /* CAN, SUB, BEL */
                p->state = PLAIN_TEXT;
            return true;
        }
    } else if (state != PLAIN_TEXT && is_graphic) {
        if (state == PLAIN_ESCAPE)
            p->state = (uint8_t)state_after_escape(c);
        else if (state == PLAIN_SHIFT || c >= (state == PLAIN_CHARSET ? 0x30 : 0x40))
            p->state = PLAIN_TEXT;
        return true;
    }
    p->state = PLAIN_TEXT;
    return false;
}

bool sp_mcp_plain_add(struct sp_mcp_plain *p, struct sp_buf *out, struct sp_str bytes)
{
    if (sp_buf_room(out, bytes.n) == NULL && bytes.n != 0)
        return false;
    for (size_t i = 0; i < bytes.n; i++) {
        const unsigned char c = (unsigned char)bytes.p[i];

        if (is_in_sequence(p, c))
            continue;
        const bool had_cr = p->has_cr;
        if (c == '\r') {
            p->has_cr = true;
            if (!had_cr)
                out->data[out->len++] = '\n';
        } else if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t') {
            p->has_cr = false;
            if (c != '\n' || !had_cr)
                out->data[out->len++] = (char)c;
        }
    }
    return true;
}

/* ---- what is kept ---- */

/* Consecutive bytes. */
struct part {
    struct sp_str bytes;
    uint64_t at;     /* position of the first byte */
    bool is_counted; /* it starts with the first byte of the output, so line numbers are known */
    bool is_open;    /* the process may append to it */
};

struct kept {
    struct sp_buf bytes;
    struct part part[2];
    size_t parts; /* 2: the gap lies between them */
    uint64_t omitted;
    uint64_t gap; /* position of its first byte; the end of the output if nothing is omitted */
    uint64_t end; /* of the output */
};

static uint64_t gap_end(const struct kept *k)
{
    return k->gap + k->omitted;
}

static bool add_gap_mark(struct sp_buf *out, uint64_t omitted)
{
    return sp_buf_printf(out, SP_HEADTAIL_MARKER "\n", omitted);
}

/* Makes one copy, so that nothing below has to handle a ring that wraps inside a character. */
static bool copy_kept(struct kept *k, const struct sp_manager_view *v)
{
    struct part last = {.is_counted = true};

    if (!sp_buf_add_str(&k->bytes, v->head) || !sp_buf_add_str(&k->bytes, v->tail[0]) ||
        !sp_buf_add_str(&k->bytes, v->tail[1]))
        return false;
    k->omitted = v->omitted;
    k->gap = v->omitted == 0 ? k->bytes.len : v->head.n;
    last.bytes = sp_buf_str(&k->bytes);
    if (v->omitted != 0) {
        if (v->head.n != 0)
            k->part[k->parts++] =
                (struct part){.bytes = {k->bytes.data, v->head.n}, .is_counted = true};
        last = (struct part){.bytes = {k->bytes.data + v->head.n, k->bytes.len - v->head.n},
                             .at = gap_end(k)};
    }
    if (last.bytes.n == 0)
        last.bytes.p = "";
    last.is_open = !v->has_exited || v->is_output_held;
    k->part[k->parts++] = last;
    k->end = last.at + last.bytes.n;
    return true;
}

/* ---- addresses ---- */

static int refuse_line(const struct kept *k, uint64_t line, uint64_t lines, struct sp_err *e)
{
    if (k->omitted != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "line %" PRIu64 " cannot be told: bytes %" PRIu64 " to %" PRIu64
                       " are gone, and %" PRIu64
                       " lines begin before them. Use from_byte (what is kept goes on at %" PRIu64
                       "), or grep",
                       line, k->gap, gap_end(k) - 1, lines, gap_end(k));
    return sp_fail(e, SP_E_INVALID, 0, "line %" PRIu64 " is not there%s: there are %" PRIu64, line,
                   k->part[0].is_open ? " yet" : "", lines);
}

static int find_line(const struct kept *k, uint64_t line, uint64_t *ret, struct sp_err *e)
{
    const struct sp_str bytes = k->part[0].bytes;
    uint64_t lines = 0;
    size_t at = 0;

    if (line == 0)
        return sp_fail(e, SP_E_INVALID, 0, "line 0 is not there: the first is line 1");
    if (!k->part[0].is_counted)
        return refuse_line(k, line, 0, e);
    while (at < bytes.n && ++lines < line) {
        const char *end = memchr(bytes.p + at, '\n', bytes.n - at);

        at = end == NULL ? bytes.n : (size_t)(end - bytes.p) + 1;
    }
    if (line > 1 && at == bytes.n)
        return refuse_line(k, line, lines, e);
    *ret = at;
    return 0;
}

/* ---- reading on ---- */

struct reading {
    struct sp_str rest;
    bool is_open;
    uint64_t limit; /* of text->len */
    struct sp_buf *text;
    size_t begin; /* text->len before the first byte that is read */
    struct sp_mcp_plain plain;
};

/* The character at the start of the rest, or the invalid bytes there. */
struct unit {
    size_t n;
    struct sp_str text;
    bool is_cut; /* more bytes may complete it */
};

static struct unit next_unit(struct sp_str rest)
{
    const unsigned char lead = (unsigned char)rest.p[0];
    const size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;

    if (lead < 0x80 || (n <= rest.n && sp_utf8_is_valid((struct sp_str){rest.p, n})))
        return (struct unit){.n = n, .text = {rest.p, n}};
    for (size_t bad = rest.n < 3 ? rest.n : 3; bad > 0; bad--)
        if (sp_delta_boundary((struct sp_str){rest.p, bad}) == 0)
            return (struct unit){.n = bad, .text = SP_STR(REPLACEMENT), .is_cut = bad == rest.n};
    return (struct unit){.n = 1, .text = SP_STR(REPLACEMENT)};
}

static void advance(struct reading *r, size_t n)
{
    r->rest = (struct sp_str){r->rest.p + n, r->rest.n - n};
}

static bool read_raw(struct reading *r)
{
    for (;;) {
        const uint64_t room = r->text->len < r->limit ? r->limit - r->text->len : 0;
        struct sp_str run = r->rest;

        if (run.n > room)
            run.n = (size_t)room;
        run.n = sp_utf8_valid_prefix(run);
        advance(r, run.n);
        if (!sp_buf_add_str(r->text, run))
            return false;
        if (r->rest.n == 0)
            return true;
        const struct unit u = next_unit(r->rest);
        const bool fits = r->text->len == r->begin || r->text->len + u.text.n <= r->limit;
        if ((u.is_cut && r->is_open) || !fits)
            return true;
        if (!sp_buf_add_str(r->text, u.text))
            return false;
        advance(r, u.n);
    }
}

/* Whether the plain text may end here: the next call starts with a fresh state. */
static bool can_end_plain(const struct reading *r)
{
    if (r->rest.n == 0 && !r->is_open)
        return true; /* nothing can complete the sequence */
    if (r->plain.state != PLAIN_TEXT || !r->plain.has_cr)
        return r->plain.state == PLAIN_TEXT;
    /* A line feed that belongs to the CR may follow, possibly after an invisible byte. */
    const unsigned char next = r->rest.n == 0 ? 0 : (unsigned char)r->rest.p[0];
    return (next >= 0x20 && next != 0x7F) || next == '\t';
}

static bool read_plain(struct reading *r)
{
    struct sp_str rest = r->rest; /* rest and text length at the last place where text may end */
    size_t end = r->begin;

    while (r->rest.n != 0) {
        const struct unit u = next_unit(r->rest);

        if (u.is_cut && r->is_open)
            break;
        if (!sp_mcp_plain_add(&r->plain, r->text, u.text))
            return false;
        advance(r, u.n);
        if (end != r->begin && r->text->len > r->limit)
            break;
        if (can_end_plain(r)) {
            end = r->text->len;
            rest = r->rest;
        }
    }
    r->text->len = end;
    r->rest = rest;
    return true;
}

/* Reads from o->from_byte to the limit or the end of its part: text never spans the gap. */
static bool read_on(const struct kept *k, const struct sp_mcp_output_request *request,
                    struct sp_mcp_output *o)
{
    const struct part *part = &k->part[k->parts == 2 && o->from_byte >= k->part[1].at];
    const size_t from = (size_t)(o->from_byte - part->at);
    struct reading r = {.rest = {part->bytes.p + from, part->bytes.n - from},
                        .is_open = part->is_open,
                        .limit = request->limit,
                        .text = &o->text};

    assert(from <= part->bytes.n);
    if (o->omitted_bytes != 0 && !add_gap_mark(&o->text, o->omitted_bytes))
        return false;
    r.begin = o->text.len;
    if (!(request->is_plain ? read_plain(&r) : read_raw(&r)))
        return false;
    o->next_byte = part->at + part->bytes.n - r.rest.n;
    return true;
}

/* ---- grep ----
 *
 * Every kept line is searched once, in order, because all matches are counted. A match is written
 * with its context, or the search stops before it; only the first match is always written. Lines
 * before and after the gap are not neighbours.
 */

struct line {
    struct sp_str bytes; /* without its line end */
    uint64_t at, next;   /* positions of this line and the following one */
    uint64_t number;
    const struct part *part;
    struct sp_mcp_plain plain; /* state at its first byte */
};

struct grep {
    const struct kept *kept;
    const struct sp_mcp_output_request *request;
    struct sp_mcp_output *o;
    struct sp_ere *x;
    struct sp_mcp_plain plain; /* state after the lines searched so far */
    struct sp_buf shown;       /* one line as text */
    struct sp_buf decoded;     /* the same before escape sequences are removed */
    struct sp_buf group;       /* lines to be written next */
    struct line before[SP_MCP_OUTPUT_CONTEXT_MAX]; /* ring of unwritten lines before a match */
    size_t befores, before_at;                     /* its length and its oldest item */
    uint64_t after;                                /* context lines still to be written */
    struct line written;                           /* the last line written, if has_written */
    bool has_written, is_full;
    uint64_t begun_ns; /* CPU time */
    size_t slice;      /* bytes left until the CPU clock is read again */
    bool is_late;
};

/* Puts the text of a line into g->shown. */
static bool show(struct grep *g, const struct line *l)
{
    struct sp_mcp_plain plain = l->plain;

    g->shown.len = g->decoded.len = 0;
    if (!g->request->is_plain)
        return sp_utf8_add_lossy(&g->shown, l->bytes);
    return sp_utf8_add_lossy(&g->decoded, l->bytes) &&
           sp_mcp_plain_add(&plain, &g->shown, sp_buf_str(&g->decoded));
}

/* Length of the text cut to max bytes between characters; at least one character stays. */
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

/* Appends `12:text` to the group. Carriage returns may have split the line: each piece is written
 * with the same number. */
static bool add_line(struct grep *g, const struct line *l, char mark, size_t max)
{
    if (!show(g, l))
        return false;
    const size_t whole = g->shown.len;
    struct sp_str text = {g->shown.data, cut_at((struct sp_str){g->shown.data, whole}, max)};
    const size_t cut = whole - text.n;

    for (;;) {
        const char *end = text.n == 0 ? NULL : memchr(text.p, '\n', text.n);
        const size_t n = end == NULL ? text.n : (size_t)(end - text.p);

        if (!sp_buf_printf(&g->group, "%s%" PRIu64 "%c", l->part->is_counted ? "" : "+", l->number,
                           mark) ||
            !sp_buf_add(&g->group, text.p, n))
            return false;
        if (end == NULL)
            break;
        if (!sp_buf_add(&g->group, "\n", 1))
            return false;
        text = (struct sp_str){text.p + n + 1, text.n - n - 1};
    }
    return (cut == 0 || sp_buf_printf(&g->group, CUT_MARK, cut)) && sp_buf_add(&g->group, "\n", 1);
}

/* false: out of memory, or out of CPU time (is_late). */
static bool does_match(struct grep *g, const struct line *l, bool *ret)
{
    struct sp_str text = l->bytes;

    if (g->request->is_plain) {
        if (!show(g, l))
            return false;
        text = sp_buf_str(&g->shown);
    }
    sp_ere_reset(g->x);
    *ret = false;
    while (text.n > 0 && !*ret && !g->is_late) {
        struct sp_str slice = text;

        if (g->slice == 0) {
            g->slice = SLICE_BYTES;
            g->is_late = sp_clock_cpu_ns() - g->begun_ns > CPU_MAX_NS;
        }
        if (slice.n > g->slice)
            slice.n = g->slice;
        g->slice -= slice.n;
        text = (struct sp_str){text.p + slice.n, text.n - slice.n};
        *ret = sp_ere_feed(g->x, slice);
    }
    *ret = *ret || sp_ere_finish(g->x);
    return !g->is_late;
}

static const struct line *before_line(const struct grep *g, size_t i)
{
    return &g->before[(g->before_at + i) % SP_MCP_OUTPUT_CONTEXT_MAX];
}

static bool does_fit(const struct grep *g)
{
    return g->o->text.len + g->group.len <= g->request->limit;
}

/* The next call continues with this line. */
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

/* Fills the group with a separator, the lines before the match, and the match. */
static bool add_group(struct grep *g, const struct line *match)
{
    const struct line *first = g->befores == 0 ? match : before_line(g, 0);
    const bool is_other_part = g->has_written && g->written.part != first->part;

    g->group.len = 0;
    if (is_other_part && !add_gap_mark(&g->group, g->kept->omitted))
        return false;
    if (g->has_written && !is_other_part && g->written.next != first->at &&
        !sp_buf_add(&g->group, "--\n", 3))
        return false;
    for (size_t i = 0; i < g->befores; i++)
        if (!add_line(g, before_line(g, i), '-', LINE_MAX_BYTES))
            return false;
    return add_line(g, match, ':', LINE_MAX_BYTES);
}

static bool write_match(struct grep *g, const struct line *l)
{
    const uint64_t room = g->request->limit > CUT_ROOM ? g->request->limit - CUT_ROOM : 1;

    if (!add_group(g, l))
        return false;
    if (!does_fit(g) && g->has_written) {
        stop_before(g, g->befores == 0 ? l : before_line(g, 0));
        return true;
    }
    if (!does_fit(g)) { /* the first match: without the lines before it, if need be cut */
        g->group.len = 0;
        if (!add_line(g, l, ':', LINE_MAX_BYTES))
            return false;
    }
    if (!does_fit(g)) {
        g->group.len = 0;
        if (!add_line(g, l, ':', room < LINE_MAX_BYTES ? (size_t)room : LINE_MAX_BYTES))
            return false;
    }
    g->after = g->request->context;
    return write_group(g, l);
}

static bool search_line(struct grep *g, const struct line *l)
{
    bool is_match = false;

    if (!does_match(g, l, &is_match))
        return false;
    g->o->matches += is_match;
    if (g->is_full || l->next <= g->o->from_byte)
        return true;
    if (is_match)
        return write_match(g, l);
    if (g->after > 0) {
        g->after--;
        g->group.len = 0;
        if (!add_line(g, l, '-', LINE_MAX_BYTES))
            return false;
        if (does_fit(g))
            return write_group(g, l);
        stop_before(g, l);
        return true;
    }
    if (g->request->context == 0)
        return true;
    if (g->befores == g->request->context) {
        g->before_at = (g->before_at + 1) % SP_MCP_OUTPUT_CONTEXT_MAX;
        g->befores--;
    }
    g->before[(g->before_at + g->befores++) % SP_MCP_OUTPUT_CONTEXT_MAX] = *l;
    return true;
}

static bool search_part(struct grep *g, const struct part *part)
{
    struct sp_str rest = part->bytes;

    g->befores = 0;
    g->after = 0;
    g->plain = (struct sp_mcp_plain){0};
    for (uint64_t number = 1; rest.n > 0; number++) {
        const char *end = memchr(rest.p, '\n', rest.n);
        const struct sp_str whole = {rest.p, end == NULL ? rest.n : (size_t)(end - rest.p) + 1};
        const uint64_t at = part->at + (size_t)(rest.p - part->bytes.p);
        struct line l = {.bytes = {whole.p, whole.n - (end != NULL)},
                         .at = at,
                         .next = at + whole.n,
                         .number = number,
                         .part = part,
                         .plain = g->plain};

        if (l.bytes.n > 0 && l.bytes.p[l.bytes.n - 1] == '\r')
            l.bytes.n--;
        if (!search_line(g, &l))
            return false;
        if (g->request->is_plain) { /* the line end closes a title, but no DCS string */
            g->shown.len = 0;
            if (!sp_mcp_plain_add(&g->plain, &g->shown, whole))
                return false;
            g->plain.has_cr = false;
        }
        if (end == NULL && part->is_open && !g->is_full &&
            !(g->has_written && g->written.at == l.at))
            stop_before(g, &l); /* the rest of the line may still come and match */
        rest = (struct sp_str){rest.p + whole.n, rest.n - whole.n};
    }
    return true;
}

static int read_matches(const struct kept *k, const struct sp_mcp_output_request *request,
                        struct sp_mcp_output *o, struct sp_err *e)
{
    struct grep g = {.kept = k, .request = request, .o = o, .begun_ns = sp_clock_cpu_ns()};
    bool ok = true;

    if (sp_ere_new(request->grep, &g.x, e) < 0)
        return sp_wrap(e, "grep");
    o->has_matches = true;
    for (size_t i = 0; ok && i < k->parts; i++)
        ok = search_part(&g, &k->part[i]);
    if (!g.is_full)
        o->next_byte = k->end;
    if (k->omitted != 0 && o->from_byte <= k->gap && o->next_byte > k->gap)
        o->omitted_bytes = k->omitted;
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

/* ---- the door ---- */

static int read_kept(const struct kept *k, const struct sp_mcp_output_request *request,
                     struct sp_mcp_output *o, struct sp_err *e)
{
    if (request->has_line && (request->has_from_byte || request->has_grep))
        return sp_fail(e, SP_E_INVALID, 0,
                       "line stands alone: give it, or from_byte, or grep (with from_byte or not)");
    o->from_byte = request->has_from_byte ? request->from_byte : k->part[0].at;
    const int r = request->has_line ? find_line(k, request->line, &o->from_byte, e) : 0;
    if (r < 0)
        return r;
    if (o->from_byte > k->end)
        return sp_fail(e, SP_E_INVALID, 0,
                       "from_byte %" PRIu64 " is behind the end: there are %" PRIu64 " bytes",
                       o->from_byte, k->end);
    o->first_byte = k->part[0].at;
    o->end_byte = k->end;
    if (o->from_byte >= k->gap && o->from_byte < gap_end(k)) {
        o->from_byte = gap_end(k);
        o->omitted_bytes = k->omitted;
    }
    if (request->has_grep)
        return read_matches(k, request, o, e);
    return read_on(k, request, o) ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the output");
}

int sp_mcp_output_read(const struct sp_manager_view *v, const struct sp_mcp_output_request *request,
                       struct sp_mcp_output *ret, struct sp_err *e)
{
    struct sp_mcp_output_request bounded = *request;
    struct kept k = {0};
    struct sp_mcp_output o = {0};

    if (bounded.limit == 0)
        bounded.limit = SP_MCP_OUTPUT_LIMIT;
    if (bounded.limit > SP_MCP_OUTPUT_LIMIT_MAX)
        bounded.limit = SP_MCP_OUTPUT_LIMIT_MAX;
    if (bounded.context > SP_MCP_OUTPUT_CONTEXT_MAX)
        bounded.context = SP_MCP_OUTPUT_CONTEXT_MAX;
    const int r = copy_kept(&k, v) ? read_kept(&k, &bounded, &o, e)
                                   : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the output");
    sp_buf_done(&k.bytes);
    if (r < 0) {
        sp_mcp_output_done(&o);
        return r;
    }
    *ret = o;
    return 0;
}
