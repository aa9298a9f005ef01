/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of ended processes that an earlier front left. The CRC of the
 * ledger tells accidents; that front may have been compromised, so that all that other code relies
 * upon is checked here.
 */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/log.h"
#include "core/ended.h"
#include "core/ledger.h"
#include "sandbox/plan.h"

#define NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-" /* characters */

/* ---- one record ---- */

/* What a client is sent as JSON has to be JSON. */
static bool is_json(struct sp_str text, enum sp_json_type type, struct sp_str string)
{
    struct sp_json j = {0};
    char *copy = sp_str_dup(text);
    bool ok = copy != NULL && text.n <= UINT32_MAX && sp_json_parse(&j, copy, text.n, NULL) == 0 &&
              sp_json_type(&j, 0) == type;

    if (ok && type == SP_JSON_STRING)
        ok = sp_str_eq(sp_json_str(&j, 0), string);
    sp_json_done(&j);
    free(copy);
    return ok;
}

/* The directory, the file, and the arguments, each with its NUL. */
static bool has_strings(const struct sp_proc *p)
{
    uint64_t ends = 0;

    for (size_t i = 0; i < p->strings.len; i++)
        ends += p->strings.data[i] == 0;
    return p->strings.len > 0 && p->strings.data[p->strings.len - 1] == 0 &&
           ends == (uint64_t)p->argc + 2;
}

static bool has_texts(const struct sp_proc *p)
{
    const struct sp_denial_facts *d = p->denial;
    const struct sp_str receipt = p->net.kept_receipt;

    return is_json(p->label, SP_JSON_STRING, p->id) && has_strings(p) &&
           (p->name == NULL || (p->name[0] != 0 && strspn(p->name, NAME) == strlen(p->name))) &&
           (receipt.n == 0 || is_json(receipt, SP_JSON_OBJECT, receipt)) &&
           (d == NULL || ((d->reason == NULL || strlen(d->reason) <= SP_DENIAL_PATH) &&
                          d->path[SP_DENIAL_PATH] == 0));
}

static bool has_limits(const struct sp_proc *p)
{
    const struct sp_limit_hits *h = sp_proc_hits(p);

    if (h->count > SP_LIMIT_COUNT || (uint32_t)h->ended_by >= SP_LIMIT_COUNT)
        return false;
    for (uint32_t i = 0; i < h->count; i++)
        if ((uint32_t)h->items[i].limit >= SP_LIMIT_COUNT ||
            (uint32_t)h->items[i].level >= SP_LIMIT_LEVELS)
            return false;
    return true;
}

static bool has_facts(const struct sp_proc *p)
{
    const struct sp_exit *x = &p->state.exit;

    return (uint32_t)p->network <= SP_PROC_NETWORK_MANAGED && p->tier <= SP_TIER_CELL &&
           p->pid >= 0 && (uint32_t)p->input.state <= SP_INPUT_BROKEN &&
           x->reason < SP_END_REASONS && x->signal >= 0 && x->refusal_count < UINT32_MAX / 2 &&
           p->state.exit_seq <= p->tail.seq && p->state.closed_seq <= p->tail.seq &&
           p->tail.seq < UINT64_MAX / 2 && p->tail.bytes < UINT64_MAX / 2 &&
           p->view.bytes_at_exit <= p->tail.bytes && has_limits(p);
}

/* Its records follow one another, and are inside of it. */
static bool has_output(const struct sp_past *past, const struct sp_proc *p)
{
    const uint8_t *const end = (const uint8_t *)past->body + past->size;
    struct sp_ring_cursor c = {0};
    struct sp_record r;
    uint64_t bytes = 0;
    uint64_t seq = 0;

    if (past->output_bytes > p->tail.bytes)
        return false;
    for (uint64_t pos = 0; sp_log_next(&p->view, &c, &r) > 0; pos = c.pos) {
        if (r.seq <= seq || r.seq > p->tail.seq || (pos != 0 && c.pos < pos))
            return false;
        seq = r.seq;
        if (r.type != SP_RECORD_OUTPUT)
            continue;
        if (r.data > end || r.len > (size_t)(end - r.data) || (uint32_t)r.stream >= SP_STREAM_MAX)
            return false;
        bytes += r.len;
    }
    return bytes == past->output_bytes;
}

static bool is_bool(const bool *b)
{
    uint8_t byte;

    memcpy(&byte, b, sizeof byte);
    return byte <= 1;
}

static bool has_sizes(const struct sp_past *past, size_t loose, size_t fixed)
{
    return loose == offsetof(struct sp_past, number) && loose + fixed >= sizeof(struct sp_past) &&
           is_bool(&past->has_name) && is_bool(&past->is_output_evicted) &&
           past->id_size <= past->output_at && past->output_at <= past->size &&
           past->size <= loose + fixed - offsetof(struct sp_past, body);
}

static bool is_sound(struct sp_front *f, struct sp_past *past, size_t loose, size_t fixed)
{
    struct sp_session none = {.front = f};
    struct sp_proc *p = calloc(1, sizeof *p);

    if (p == NULL || !has_sizes(past, loose, fixed)) {
        free(p);
        return false;
    }
    p->session = &none;
    p->life = SP_PROC_CLOSED;
    p->terminal = -1;
    sp_list_init(&p->observers);
    sp_input_init(&p->input, f->loop, NULL);
    const bool ok = sp_past_read(past, p) && has_facts(p) && has_texts(p) && has_output(past, p);
    sp_proc_release(p);
    return ok;
}

/* ---- all records ---- */

struct found {
    struct sp_past **items;
    uint32_t count, cap;
};

static int by_age(const void *a, const void *b)
{
    const struct sp_past *const x = *(struct sp_past *const *)a;
    const struct sp_past *const y = *(struct sp_past *const *)b;

    if (x->kept_ms != y->kept_ms)
        return x->kept_ms < y->kept_ms ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = (*(struct sp_session *const *)a)->number;
    const uint64_t y = (*(struct sp_session *const *)b)->number;

    return x < y ? -1 : x > y;
}

/* The sessions in the order of their numbers; NULL: none, or no memory. */
static struct sp_session **sort_sessions(const struct sp_front *f)
{
    struct sp_session **sorted = calloc(f->session_count, sizeof(struct sp_session *));
    uint32_t n = 0;

    if (sorted == NULL)
        return NULL;
    sp_list_each(i, &f->sessions)
        if (n < f->session_count)
            sorted[n++] = SP_CONTAINER(i, struct sp_session, link);
    qsort(sorted, n, sizeof(struct sp_session *), by_number);
    return sorted;
}

static struct sp_session *find_session(struct sp_session *const *sorted, uint32_t count,
                                       uint64_t number)
{
    uint32_t first = 0;

    while (first < count) {
        const uint32_t middle = first + (count - first) / 2;

        if (sorted[middle]->number == number)
            return sorted[middle];
        if (sorted[middle]->number < number)
            first = middle + 1;
        else
            count = middle;
    }
    return NULL;
}

static void *next_record(struct sp_ledger *l, void *after, struct sp_past **ret_sound,
                         struct sp_front *f)
{
    size_t loose;
    size_t fixed;
    struct sp_past *past = sp_ledger_next(l, SP_LEDGER_PAST, after, &loose, &fixed);

    *ret_sound = NULL;
    if (past == NULL)
        return NULL;
    atomic_store(&sp_ledger_header(l)->adopting, sp_ledger_name(l, past));
    if (is_sound(f, past, loose, fixed))
        *ret_sound = past;
    return past;
}

/* Frees the others. */
static bool collect(struct sp_front *f, struct found *found, uint32_t *dropped)
{
    struct sp_ledger *l = f->options.ledger;
    struct sp_past *sound;
    void *bad = NULL;
    bool ok = true;

    for (void *r = NULL; ok && (r = next_record(l, r, &sound, f)) != NULL;) {
        sp_ledger_free(l, bad); /* not before the next one was found */
        bad = sound == NULL ? r : NULL;
        *dropped += sound == NULL;
        if (sound == NULL)
            continue;
        ok = SP_GROW(found->items, found->count, found->cap);
        if (ok)
            found->items[found->count++] = sound;
    }
    sp_ledger_free(l, bad);
    return ok;
}

uint32_t sp_ended_adopt_all(struct sp_front *f)
{
    struct sp_ledger *l = f->options.ledger;
    struct found found = {0};
    uint32_t dropped = 0;

    const bool is_complete = collect(f, &found, &dropped);
    struct sp_session **sorted = sort_sessions(f);
    if (found.count > 0)
        qsort(found.items, found.count, sizeof(struct sp_past *), by_age);
    for (uint32_t i = 0; i < found.count; i++) {
        struct sp_past *past = found.items[i];
        struct sp_session *s =
            sorted == NULL ? NULL : find_session(sorted, f->session_count, past->session);

        atomic_store(&sp_ledger_header(l)->adopting, sp_ledger_name(l, past));
        past->hash = (uint32_t)sp_hash((struct sp_str){past->body, past->id_size}).a;
        past->bytes = (uint32_t)sp_ledger_bytes(past);
        past->opened = NULL;
        past->link = (struct sp_list){0};
        if (s == NULL || !sp_ended_adopt(s, past)) {
            sp_ledger_free(l, past);
            dropped++;
        }
    }
    atomic_store(&sp_ledger_header(l)->adopting, 0);
    if (!is_complete)
        sp_log(SP_LOG_WARN, "no memory: some ended processes of the last front are forgotten");
    free(sorted);
    free(found.items);
    return dropped;
}
