/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: addresses by byte and by line, and the text from there on.
 *
 * A text ends where the next one can begin: between two characters, and without escape sequences
 * also between two of those. Whoever reads on at next_byte reads everything once.
 */
#include "mcp/output.h"

#include <errno.h>
#include <inttypes.h>

#include "base/utf8.h"
#include "engine/delta.h"
#include "mcp/output_priv.h"

#define REPLACEMENT "\xEF\xBF\xBD"

void sp_mcp_output_done(struct sp_mcp_output *o)
{
    sp_buf_done(&o->text);
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the output");
}

bool sp_mcp_add_gap_mark(struct sp_buf *out, uint64_t omitted)
{
    return sp_buf_printf(out, SP_HEADTAIL_MARKER "\n", omitted);
}

/* ---- what is kept ---- */

/* One copy: then nothing else needs to know that a ring may wrap within a character. */
static bool keep(struct sp_mcp_kept *k, const struct sp_manager_view *v)
{
    const bool is_open = !v->has_exited || v->is_output_held;
    struct sp_mcp_part part = {.is_counted = true};
    const size_t tail = v->tail[0].n + v->tail[1].n;

    if (!sp_buf_add_str(&k->bytes, v->head) || !sp_buf_add_str(&k->bytes, v->tail[0]) ||
        !sp_buf_add_str(&k->bytes, v->tail[1]))
        return false;
    k->omitted = v->omitted;
    k->gap = v->omitted == 0 ? k->bytes.len : v->head.n;
    part.bytes = (struct sp_str){k->bytes.data, k->bytes.len};
    if (v->omitted != 0) {
        part.bytes.n = v->head.n;
        if (v->head.n != 0)
            k->part[k->parts++] = part;
        part = (struct sp_mcp_part){.bytes = {k->bytes.data + v->head.n, tail},
                                    .at = k->gap + v->omitted};
    }
    if (part.bytes.n == 0)
        part.bytes.p = "";
    part.is_open = is_open;
    k->part[k->parts++] = part;
    k->end = part.at + part.bytes.n;
    return true;
}

static uint64_t first_byte(const struct sp_mcp_kept *k)
{
    return k->part[0].at;
}

/* ---- addresses ---- */

static int check_byte(const struct sp_mcp_kept *k, uint64_t at, struct sp_err *e)
{
    if (at <= k->end)
        return 0;
    return sp_fail(e, SP_E_INVALID, 0,
                   "from_byte %" PRIu64 " is behind the end: there are %" PRIu64 " bytes", at,
                   k->end);
}

static int refuse_line(const struct sp_mcp_kept *k, uint64_t line, uint64_t lines, struct sp_err *e)
{
    if (k->omitted != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "line %" PRIu64 " cannot be told: bytes %" PRIu64 " to %" PRIu64
                       " are gone, and %" PRIu64
                       " lines begin before them. Use from_byte (what is kept goes on at %" PRIu64
                       "), or grep",
                       line, k->gap, sp_mcp_gap_end(k) - 1, lines, sp_mcp_gap_end(k));
    return sp_fail(e, SP_E_INVALID, 0, "line %" PRIu64 " is not there%s: there are %" PRIu64, line,
                   k->part[0].is_open ? " yet" : "", lines);
}

/* The position at which a line begins. */
static int find_line(const struct sp_mcp_kept *k, uint64_t line, uint64_t *ret, struct sp_err *e)
{
    const struct sp_mcp_part *part = &k->part[0];
    uint64_t lines = 0;
    size_t at = 0;

    if (line == 0)
        return sp_fail(e, SP_E_INVALID, 0, "line 0 is not there: the first is line 1");
    if (!part->is_counted)
        return refuse_line(k, line, 0, e);
    while (at < part->bytes.n && ++lines < line) {
        const char *end = memchr(part->bytes.p + at, '\n', part->bytes.n - at);

        at = end == NULL ? part->bytes.n : (size_t)(end - part->bytes.p) + 1;
    }
    if (line > 1 && at == part->bytes.n)
        return refuse_line(k, line, lines, e);
    *ret = at;
    return 0;
}

static int find_from(const struct sp_mcp_kept *k, const struct sp_mcp_output_ask *ask,
                     uint64_t *ret, struct sp_err *e)
{
    if (ask->has_line && (ask->has_from_byte || ask->has_grep))
        return sp_fail(e, SP_E_INVALID, 0,
                       "line stands alone: give it, or from_byte, or grep (with from_byte or not)");
    if (ask->has_line)
        return find_line(k, ask->line, ret, e);
    *ret = ask->has_from_byte ? ask->from_byte : first_byte(k);
    return check_byte(k, *ret, e);
}

/* ---- text ---- */

struct reading {
    struct sp_str rest;
    bool is_open;
    uint64_t limit; /* of the text's length */
    struct sp_buf *text;
    size_t begin; /* of what is read, in the text */
    struct sp_mcp_plain plain;
};

/* The character at the beginning, or the part there that is none. */
struct unit {
    size_t n;
    bool is_character, is_cut; /* is_cut: it may become one */
};

static struct unit next_unit(struct sp_str rest)
{
    const unsigned char lead = (unsigned char)rest.p[0];
    const size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;

    if (lead < 0x80 || (n <= rest.n && sp_utf8_is_valid((struct sp_str){rest.p, n})))
        return (struct unit){.n = n, .is_character = true};
    for (size_t bad = rest.n < 3 ? rest.n : 3; bad > 0; bad--)
        if (sp_delta_boundary((struct sp_str){rest.p, bad}) == 0)
            return (struct unit){.n = bad, .is_cut = bad == rest.n};
    return (struct unit){.n = 1};
}

static struct sp_str text_of(const struct reading *r, struct unit u)
{
    return u.is_character ? (struct sp_str){r->rest.p, u.n} : SP_STR(REPLACEMENT);
}

static void advance(struct reading *r, size_t n)
{
    r->rest = (struct sp_str){r->rest.p + n, r->rest.n - n};
}

static bool fits(const struct reading *r, size_t n)
{
    return r->text->len == r->begin || r->text->len + n <= r->limit;
}

/* What is well-formed goes by the run; false: memory is gone. */
static bool add_run(struct reading *r)
{
    const uint64_t room = r->text->len < r->limit ? r->limit - r->text->len : 0;
    struct sp_str run = r->rest;

    if (run.n > room)
        run.n = (size_t)room;
    run.n = sp_utf8_valid_prefix(run);
    advance(r, run.n);
    return sp_buf_add_str(r->text, run);
}

static bool add_raw(struct reading *r)
{
    while (add_run(r)) {
        if (r->rest.n == 0)
            return true;
        const struct unit u = next_unit(r->rest);
        const struct sp_str text = text_of(r, u);

        if ((u.is_cut && r->is_open) || !fits(r, text.n))
            return true;
        if (!sp_buf_add_str(r->text, text))
            return false;
        advance(r, u.n);
    }
    return false;
}

/* Whether a text may end here: the next one begins as if nothing had been before. */
static bool can_end(const struct reading *r)
{
    if (r->rest.n == 0 && !r->is_open)
        return true; /* nothing completes what has begun */
    if (r->plain.state != 0)
        return false;
    if (!r->plain.has_cr)
        return true;
    /* A line feed may belong to it, perhaps behind something that is not seen. */
    const unsigned char next = r->rest.n == 0 ? 0 : (unsigned char)r->rest.p[0];
    return (next >= 0x20 && next != 0x7F) || next == '\t';
}

static bool add_plain(struct reading *r)
{
    struct sp_str rest = r->rest; /* what is left, and the text, where it may end */
    size_t end = r->begin;

    while (r->rest.n != 0) {
        const struct unit u = next_unit(r->rest);

        if (u.is_cut && r->is_open)
            break;
        if (!sp_mcp_plain_add(&r->plain, r->text, text_of(r, u)))
            return false;
        advance(r, u.n);
        if (end != r->begin && r->text->len > r->limit)
            break;
        if (can_end(r)) {
            end = r->text->len;
            rest = r->rest;
        }
    }
    r->text->len = end;
    r->rest = rest;
    return true;
}

static const struct sp_mcp_part *part_at(const struct sp_mcp_kept *k, uint64_t at)
{
    return &k->part[k->parts == 2 && at >= k->part[1].at];
}

/* From o->from_byte on. What is before the gap ends there; behind it begins with a word about it.
 */
static bool read_on(const struct sp_mcp_kept *k, const struct sp_mcp_output_ask *ask,
                    struct sp_mcp_output *o)
{
    const struct sp_mcp_part *part = part_at(k, o->from_byte);
    const size_t from = (size_t)(o->from_byte - part->at);
    struct reading r = {.rest = {part->bytes.p + from, part->bytes.n - from},
                        .is_open = part->is_open,
                        .limit = ask->limit,
                        .text = &o->text};

    if (o->omitted_bytes != 0 && !sp_mcp_add_gap_mark(&o->text, o->omitted_bytes))
        return false;
    r.begin = o->text.len;
    if (!(ask->is_plain ? add_plain(&r) : add_raw(&r)))
        return false;
    o->next_byte = part->at + part->bytes.n - r.rest.n;
    return true;
}

/* ---- from outside ---- */

static struct sp_mcp_output_ask within_bounds(const struct sp_mcp_output_ask *ask)
{
    struct sp_mcp_output_ask a = *ask;

    if (a.limit == 0)
        a.limit = SP_MCP_OUTPUT_LIMIT;
    if (a.limit > SP_MCP_OUTPUT_LIMIT_MAX)
        a.limit = SP_MCP_OUTPUT_LIMIT_MAX;
    if (a.context > SP_MCP_OUTPUT_CONTEXT_MAX)
        a.context = SP_MCP_OUTPUT_CONTEXT_MAX;
    return a;
}

static int read_kept(const struct sp_mcp_kept *k, const struct sp_mcp_output_ask *ask,
                     struct sp_mcp_output *o, struct sp_err *e)
{
    const int failed = find_from(k, ask, &o->from_byte, e);

    if (failed < 0)
        return failed;
    o->first_byte = first_byte(k);
    o->end_byte = k->end;
    if (sp_mcp_is_in_gap(k, o->from_byte)) {
        o->from_byte = sp_mcp_gap_end(k);
        o->omitted_bytes = k->omitted;
    }
    if (ask->has_grep)
        return sp_mcp_output_grep(k, ask, o, e);
    return read_on(k, ask, o) ? 0 : no_memory(e);
}

int sp_mcp_output_read(const struct sp_manager_view *v, const struct sp_mcp_output_ask *ask,
                       struct sp_mcp_output *ret, struct sp_err *e)
{
    const struct sp_mcp_output_ask bounded = within_bounds(ask);
    struct sp_mcp_kept k = {0};
    struct sp_mcp_output o = {0};

    const int failed = keep(&k, v) ? read_kept(&k, &bounded, &o, e) : no_memory(e);
    sp_buf_done(&k.bytes);
    if (failed < 0) {
        sp_mcp_output_done(&o);
        return failed;
    }
    *ret = o;
    return 0;
}
