/* SPDX-License-Identifier: Apache-2.0 */
#include "core/past.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/hash.h"
#include "core/ledger.h"
#include "core/session.h"

#define LOOSE       offsetof(struct sp_past, number)
#define ARGUMENTS   4096U /* bytes of the arguments that are kept, as process/list tells */
#define WRITE_IDS   64U   /* the newest write ids that are kept */
#define MAX_VARINT  10U
#define MAX_NUMBERS 320U /* of the facts of one process */

/* ---- numbers and texts of the body ---- */

/* Writes or reads the same sequence of numbers, so that the two cannot disagree. */
struct codec {
    uint8_t *at;
    const uint8_t *end;
    bool is_reading;
};

static void code_number(struct codec *k, uint64_t *n)
{
    if (k->is_reading) {
        *n = 0;
        for (unsigned shift = 0; k->at < k->end && shift < 64; shift += 7) {
            const uint8_t b = *k->at++;

            *n |= (uint64_t)(b & 127) << shift;
            if (b < 128)
                return;
        }
        return;
    }
    uint64_t left = *n;
    while (k->at < k->end && left >= 128) {
        *k->at++ = (uint8_t)(left | 128);
        left >>= 7;
    }
    if (k->at < k->end)
        *k->at++ = (uint8_t)left;
}

#define CODE(k, field)                   \
    do {                                 \
        uint64_t n_ = (uint64_t)(field); \
        code_number((k), &n_);           \
        (field) = (__typeof__(field))n_; \
    } while (0)

static void code_exit(struct codec *k, struct sp_exit *x)
{
    CODE(k, x->code);
    CODE(k, x->signal);
    CODE(k, x->has_core);
    CODE(k, x->reason);
    CODE(k, x->has_usage);
    CODE(k, x->max_rss_kb);
    CODE(k, x->user_us);
    CODE(k, x->system_us);
    CODE(k, x->read_blocks);
    CODE(k, x->written_blocks);
    CODE(k, x->voluntary_switches);
    CODE(k, x->involuntary_switches);
    CODE(k, x->major_faults);
    CODE(k, x->wall_us);
    CODE(k, x->peak_memory_bytes);
    CODE(k, x->peak_processes);
    CODE(k, x->left_network);
    CODE(k, x->refusal_count);
    for (uint32_t i = 0; i < x->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        CODE(k, x->refusals[i].call);
        CODE(k, x->refusals[i].count);
    }
}

static void code_hits(struct codec *k, struct sp_limit_hits *h)
{
    CODE(k, h->has_ended);
    CODE(k, h->ended_by);
    CODE(k, h->is_host_suspected);
    CODE(k, h->count);
    for (uint32_t i = 0; i < h->count && i < SP_LIMIT_COUNT; i++) {
        CODE(k, h->items[i].limit);
        CODE(k, h->items[i].level);
        CODE(k, h->items[i].value);
        CODE(k, h->items[i].count);
        CODE(k, h->items[i].leader);
    }
}

/* Without memory the older marks are left out: older output counts as new. */
static void code_times(struct codec *k, struct sp_output_times *t)
{
    uint32_t older = t->older_count;

    CODE(k, t->last.seq);
    CODE(k, t->last.at_ms);
    CODE(k, t->last_began_ms);
    CODE(k, older);
    if (k->is_reading && older > 0)
        t->older = malloc(SP_OUTPUT_MARKS * sizeof *t->older);
    for (uint32_t i = 0; i < older && i < SP_OUTPUT_MARKS; i++) {
        struct sp_output_mark m = {0};

        if (!k->is_reading)
            m = t->older[i];
        CODE(k, m.seq);
        CODE(k, m.at_ms);
        if (k->is_reading && t->older != NULL)
            t->older[t->older_count++] = m;
    }
}

static void code_facts(struct codec *k, struct sp_proc *p)
{
    CODE(k, p->is_tty);
    CODE(k, p->is_confined);
    CODE(k, p->network);
    CODE(k, p->was_denied);
    CODE(k, p->was_terminated);
    CODE(k, p->is_forgotten);
    CODE(k, p->is_lost);
    CODE(k, p->is_input_ending);
    CODE(k, p->last_real_seq);
    CODE(k, p->tier);
    CODE(k, p->pid);
    CODE(k, p->started_ms);
    CODE(k, p->ended_ms);
    CODE(k, p->tail.seq);
    CODE(k, p->tail.bytes);
    CODE(k, p->state.exit_seq);
    CODE(k, p->state.closed_seq);
    CODE(k, p->state.dropped_bytes);
    for (int i = 0; i < SP_STREAM_MAX; i++)
        CODE(k, p->state.output_bytes[i]);
    code_exit(k, &p->state.exit);
    code_times(k, &p->times);
    CODE(k, p->limits.is_asked);
    struct sp_limit_hits hits = *sp_proc_hits(p);
    code_hits(k, &hits);
    if (k->is_reading && (hits.count != 0 || hits.has_ended || hits.is_host_suspected) &&
        sp_proc_own_hits(p) != NULL)
        *p->limits.hits = hits;
    CODE(k, p->view.bytes_at_exit);
    CODE(k, p->view.has_exit);
}

/* Each text is a length, the bytes, and a NUL. */
static bool add_text(struct sp_buf *b, struct sp_str s)
{
    uint8_t length[MAX_VARINT];
    struct codec k = {.at = length, .end = length + sizeof length};

    CODE(&k, s.n);
    return sp_buf_add(b, length, (size_t)(k.at - length)) && sp_buf_add_str(b, s) &&
           sp_buf_add(b, "", 1);
}

static struct sp_str read_text(struct codec *k)
{
    size_t n = 0;

    CODE(k, n);
    if (n >= (size_t)(k->end - k->at) || k->at[n] != 0)
        return SP_STR("");
    const struct sp_str s = {(const char *)k->at, n};
    k->at += n + 1;
    return s;
}

/* ---- output ---- */

/* In front of the bytes of each record: its number; its length and stream. */
static size_t write_head(uint8_t *to, const struct sp_record *r)
{
    struct codec k = {.at = to, .end = to + 2 * MAX_VARINT};
    uint64_t seq = r->seq;
    uint64_t what = (uint64_t)r->len << 2 | (uint64_t)r->stream;

    code_number(&k, &seq);
    code_number(&k, &what);
    return (size_t)(k.at - to);
}

struct packed {
    size_t size;
    uint64_t bytes;
};

/* `to` NULL: measures only, up to `room`, too. The cell may be hostile: sizes are checked, and what
 * it overwrites meanwhile is dropped. */
static struct packed pack_output(struct sp_proc *p, uint8_t *to, size_t room)
{
    struct sp_ring_cursor c = {0};
    struct packed all = {0};
    uint8_t head[2 * MAX_VARINT];
    struct sp_record r;

    while (c.seq < p->tail.seq && sp_log_next(&p->view, &c, &r) > 0 && r.seq <= p->tail.seq) {
        if (to == NULL && r.type == SP_RECORD_EXITED && r.seq == p->state.exit_seq) {
            p->view.has_exit = true;
            p->view.bytes_at_exit = r.bytes_before;
        }
        if (r.type != SP_RECORD_OUTPUT || r.len == 0)
            continue;
        const size_t n = write_head(head, &r);
        if (n + r.len > room - all.size)
            break;
        if (to != NULL) {
            memcpy(to + all.size, head, n);
            memcpy(to + all.size + n, r.data, r.len);
        }
        all.size += n + r.len;
        all.bytes += r.len;
        if (to != NULL && !sp_log_is_intact(&p->view, &r))
            all = (struct packed){0};
    }
    return all;
}

/* The record at this offset of the output; false: the end. */
static bool output_at(const struct sp_past *past, uint32_t at, struct sp_record *ret,
                      uint32_t *ret_next)
{
    uint8_t *const begin = (uint8_t *)(uintptr_t)past->body + past->output_at;
    struct codec k = {
        .at = begin + at, .end = (const uint8_t *)past->body + past->size, .is_reading = true};
    uint64_t what = 0;

    if (at >= past->size - past->output_at)
        return false;
    code_number(&k, &ret->seq);
    code_number(&k, &what);
    ret->len = (uint32_t)(what >> 2);
    ret->stream = (enum sp_stream)(what & 3);
    ret->type = SP_RECORD_OUTPUT;
    ret->data = k.at;
    *ret_next = (uint32_t)(k.at - begin) + ret->len;
    return true;
}

/* ---- reading ---- */

/* A cursor in a record: its position is an offset in the output, with this bit. */
#define IN_RECORD ((uint64_t)1 << 63)

static uint32_t find_place(const struct sp_past *past, struct sp_ring_cursor *c)
{
    struct sp_record r;
    uint32_t at = 0;
    uint32_t next = 0;

    if ((c->pos & IN_RECORD) != 0)
        return (uint32_t)c->pos;
    while (c->seq > 0 && output_at(past, at, &r, &next) && r.seq <= c->seq)
        at = next;
    c->pos = IN_RECORD | at;
    return at;
}

/* EXITED and CLOSED are not stored: they follow from the state. */
static int next_of_past(const struct sp_log_view *v, struct sp_ring_cursor *c,
                        struct sp_record *ret)
{
    const uint32_t at = find_place(v->past, c);
    const uint64_t first = v->bytes - v->past->output_bytes; /* bytes before the first one kept */
    const struct sp_ring_state *end = v->state;
    struct sp_record r = {0};
    uint32_t next = at;

    if (!output_at(v->past, at, &r, &next))
        r = (struct sp_record){.seq = UINT64_MAX, .type = SP_RECORD_PAD};
    r.bytes_before = c->bytes > first ? c->bytes : first;
    if (v->has_exit && end->exit_seq > c->seq && end->exit_seq < r.seq) {
        r = (struct sp_record){.seq = end->exit_seq,
                               .type = SP_RECORD_EXITED,
                               .bytes_before =
                                   c->bytes > v->bytes_at_exit ? c->bytes : v->bytes_at_exit,
                               .len = sizeof end->exit,
                               .data = (const uint8_t *)&end->exit};
        next = at;
    } else if (r.type == SP_RECORD_PAD && end->closed_seq > c->seq) {
        r = (struct sp_record){
            .seq = end->closed_seq, .type = SP_RECORD_CLOSED, .bytes_before = v->bytes};
    } else if (r.type == SP_RECORD_PAD) {
        return 0;
    }
    r.pos = IN_RECORD | at;
    c->missed_records += r.seq - c->seq - 1;
    c->missed_bytes += r.bytes_before - c->bytes;
    c->seq = r.seq;
    c->bytes = r.bytes_before + (r.type == SP_RECORD_OUTPUT ? r.len : 0);
    c->pos = IN_RECORD | next;
    *ret = r;
    return 1;
}

int sp_log_next(const struct sp_log_view *v, struct sp_ring_cursor *c, struct sp_record *ret)
{
    if (v->past != NULL)
        return next_of_past(v, c, ret);
    return v->ring.head == NULL ? 0 : sp_ring_next(&v->ring, c, ret);
}

/* ---- making and reading a record ---- */

static bool is_plain_label(const struct sp_proc *p)
{
    return p->label.n == p->id.n + 2 && memcmp(p->label.p + 1, p->id.p, p->id.n) == 0;
}

static bool add_denial(struct sp_buf *b, const struct sp_denial_facts *d)
{
    const char flags[] = {(char)('0' + (d != NULL) + 2 * (d != NULL && d->has_evidence) +
                                 4 * (d != NULL && d->has_words) +
                                 8 * (d != NULL && d->reason != NULL))};

    return add_text(b, (struct sp_str){flags, 1}) &&
           (d == NULL || (add_text(b, sp_str_of(d->reason != NULL ? d->reason : "")) &&
                          add_text(b, sp_str_of(d->path))));
}

static bool read_denial(struct codec *k, struct sp_proc *p)
{
    const struct sp_str text = read_text(k);
    const int flags = text.n == 1 ? text.p[0] - '0' : 0;

    if (flags == 0)
        return true;
    p->denial = calloc(1, sizeof *p->denial);
    if (p->denial == NULL)
        return false;
    p->denial->has_evidence = (flags & 2) != 0;
    p->denial->has_words = (flags & 4) != 0;
    const struct sp_str reason = read_text(k);
    p->denial->reason = (flags & 8) != 0 ? reason.p : NULL;
    const struct sp_str path = read_text(k);
    memcpy(p->denial->path, path.p, path.n < SP_DENIAL_PATH ? path.n : SP_DENIAL_PATH);
    return true;
}

/* The directory, an empty file, and the arguments that process/list tells. */
static bool add_strings(struct sp_buf *b, const struct sp_proc *p, uint32_t *ret_argc)
{
    auto_buf struct sp_buf kept = {0};
    const char *at = p->strings.data;
    bool ok = sp_buf_add(&kept, at, strlen(at) + 1) && sp_buf_add(&kept, "", 1);

    at += strlen(at) + 1;
    at += strlen(at) + 1;
    const size_t before = kept.len;
    uint32_t n = 0;
    for (; ok && n < p->argc && kept.len - before < ARGUMENTS; n++) {
        const struct sp_str arg = sp_str_of(at);

        ok = sp_buf_add(&kept, at, arg.n < ARGUMENTS ? arg.n : ARGUMENTS) &&
             sp_buf_add(&kept, "", 1);
        at += arg.n + 1;
    }
    *ret_argc = n;
    return ok && add_text(b, sp_buf_str(&kept));
}

static bool add_write_ids(struct sp_buf *b, const struct sp_input *in)
{
    struct sp_hash ids[WRITE_IDS];
    const unsigned n = sp_input_ids(in, ids, WRITE_IDS);

    return add_text(b, (struct sp_str){n > 0 ? (const char *)ids : "", n * sizeof *ids});
}

static bool add_facts(struct sp_buf *b, struct sp_proc *p, uint32_t *ret_argc)
{
    uint8_t numbers[MAX_NUMBERS * MAX_VARINT];
    struct codec k = {.at = numbers, .end = numbers + sizeof numbers};
    auto_buf struct sp_buf network = {0};

    code_facts(&k, p);
    return sp_buf_add_str(b, p->id) && sp_buf_add(b, numbers, (size_t)(k.at - numbers)) &&
           add_text(b, is_plain_label(p) ? SP_STR("") : p->label) &&
           add_text(b, sp_str_of(p->name == NULL ? "" : p->name)) && add_strings(b, p, ret_argc) &&
           add_write_ids(b, &p->input) && add_denial(b, p->denial) &&
           sp_managed_add_receipt(p, &network) && add_text(b, sp_buf_str(&network));
}

static struct sp_past *allocate(struct sp_ledger *ledger, size_t body)
{
    const size_t size = offsetof(struct sp_past, body) + body;

    if (ledger == NULL)
        return malloc(size < sizeof(struct sp_past) ? sizeof(struct sp_past) : size);
    return sp_ledger_alloc(ledger, SP_LEDGER_PAST, LOOSE, size - LOOSE);
}

void sp_past_free(struct sp_ledger *ledger, struct sp_past *past)
{
    if (ledger != NULL)
        sp_ledger_free(ledger, past);
    else
        free(past);
}

static uint32_t bytes_of(const struct sp_ledger *ledger, struct sp_past *past)
{
    return (uint32_t)(ledger != NULL ? sp_ledger_bytes(past)
                                     : malloc_usable_size(past) + sizeof(size_t));
}

struct sp_past *sp_past_make(struct sp_ledger *ledger, struct sp_proc *p)
{
    auto_buf struct sp_buf facts = {0};
    uint32_t argc = 0;

    if (p->view.past != NULL)
        return NULL;
    p->view.has_exit = p->is_lost && p->state.exit_seq > p->last_real_seq;
    p->view.bytes = p->view.bytes_at_exit = p->tail.bytes;
    p->view.state = &p->state;
    const struct packed all = pack_output(p, NULL, SP_RING_AREA);
    if (!add_facts(&facts, p, &argc))
        return NULL;
    struct sp_past *past = allocate(ledger, facts.len + all.size);
    if (past == NULL)
        return NULL;
    *past = (struct sp_past){
        .number = p->number,
        .session = p->session->number,
        .hash = (uint32_t)sp_hash(p->id).a,
        .id_size = (uint32_t)p->id.n,
        .output_at = (uint32_t)facts.len,
        .argc = argc,
        .input_state = (uint64_t)p->input.state,
        .has_name = p->name != NULL,
    };
    memcpy(past->body, facts.data, facts.len);
    const struct packed kept = pack_output(p, (uint8_t *)past->body + facts.len, all.size);
    past->size = (uint32_t)(facts.len + kept.size);
    past->output_bytes = (uint32_t)kept.bytes;
    past->bytes = bytes_of(ledger, past);
    return past;
}

static bool keep_text(struct sp_str s, struct sp_str *ret)
{
    ret->p = sp_str_dup(s);
    ret->n = s.n;
    return ret->p != NULL;
}

static bool make_label(struct sp_proc *p)
{
    char *label = malloc(p->id.n + 3);

    if (label == NULL)
        return false;
    label[0] = label[p->id.n + 1] = '"';
    memcpy(label + 1, p->id.p, p->id.n);
    label[p->id.n + 2] = 0;
    p->label = (struct sp_str){label, p->id.n + 2};
    return true;
}

static bool read_write_ids(struct sp_str ids, struct sp_input *in)
{
    if (ids.n == 0)
        return true;
    in->ids = malloc(ids.n);
    if (in->ids == NULL)
        return false;
    memcpy(in->ids, ids.p, ids.n);
    in->id_count = in->id_cap = (unsigned)(ids.n / sizeof *in->ids);
    return true;
}

bool sp_past_read(struct sp_past *past, struct sp_proc *p)
{
    uint8_t *const body = (uint8_t *)past->body;
    struct codec k = {
        .at = body + past->id_size, .end = body + past->output_at, .is_reading = true};

    p->number = past->number;
    p->argc = past->argc;
    code_facts(&k, p);
    p->input.state = (enum sp_input_state)past->input_state;
    p->is_output_evicted = past->is_output_evicted;
    const struct sp_str label = read_text(&k);
    const struct sp_str name = read_text(&k);
    bool ok = keep_text((struct sp_str){past->body, past->id_size}, &p->id) &&
              (label.n > 0 ? keep_text(label, &p->label) : make_label(p)) &&
              (name.n == 0 || (p->name = sp_str_dup(name)) != NULL) &&
              sp_buf_add_str(&p->strings, read_text(&k)) &&
              read_write_ids(read_text(&k), &p->input) && read_denial(&k, p);
    p->net.kept_receipt = read_text(&k);
    p->view.past = past;
    p->view.state = &p->state;
    p->view.bytes = p->tail.bytes;
    p->sent = p->tail;
    p->confirmed_seq = p->tail.seq;
    return ok;
}

/* ---- the heap of sessions, by their bytes ---- */

static void put_at(struct sp_past_store *store, uint32_t i, struct sp_pasts *s)
{
    store->heap[i] = s;
    s->place = i + 1;
}

static void sift(struct sp_past_store *store, struct sp_pasts *s)
{
    uint32_t i = s->place - 1;

    while (i > 0 && store->heap[(i - 1) / 2]->bytes < s->bytes) {
        put_at(store, i, store->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (uint32_t k; (k = 2 * i + 1) < store->heap_count; i = k) {
        k += k + 1 < store->heap_count && store->heap[k + 1]->bytes > store->heap[k]->bytes;
        if (store->heap[k]->bytes <= s->bytes)
            break;
        put_at(store, i, store->heap[k]);
    }
    put_at(store, i, s);
}

/* Without memory for the heap the session is tried again with its next record. */
static void note_bytes(struct sp_pasts *s)
{
    struct sp_past_store *store = s->store;

    if (s->place == 0 && s->shut_bytes > 0) {
        if (store->heap_count == store->heap_cap) {
            const uint32_t cap = store->heap_cap == 0 ? 16 : store->heap_cap * 2;
            struct sp_pasts **heap = realloc(store->heap, cap * sizeof(struct sp_pasts *));

            if (heap == NULL)
                return;
            store->heap = heap;
            store->heap_cap = cap;
        }
        put_at(store, store->heap_count++, s);
    }
    if (s->place == 0)
        return;
    if (s->shut_bytes > 0) {
        sift(store, s);
        return;
    }
    struct sp_pasts *last = store->heap[--store->heap_count];
    const uint32_t i = s->place - 1;
    s->place = 0;
    if (last != s) {
        put_at(store, i, last);
        sift(store, last);
    }
}

/* ---- the records of a session ---- */

static struct sp_past *past_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_past, link);
}

static struct sp_past **bucket_of(const struct sp_pasts *s, uint32_t hash)
{
    return &s->buckets[hash & (s->bucket_count - 1)];
}

/* Without memory for a larger table the chains get longer. false: there is none at all. */
static bool reserve_bucket(struct sp_pasts *s)
{
    const uint32_t count = s->bucket_count == 0 ? 16 : s->bucket_count * 2;

    if (s->count < s->bucket_count)
        return true;
    struct sp_past **buckets = calloc(count, sizeof(struct sp_past *));
    if (buckets == NULL)
        return s->bucket_count > 0;
    for (uint32_t i = 0; i < s->bucket_count; i++)
        for (struct sp_past *p = s->buckets[i], *next; p != NULL; p = next) {
            struct sp_past **at = &buckets[p->hash & (count - 1)];

            next = p->next_in_bucket;
            p->next_in_bucket = *at;
            *at = p;
        }
    free(s->buckets);
    s->buckets = buckets;
    s->bucket_count = count;
    return true;
}

bool sp_pasts_add(struct sp_pasts *s, struct sp_past *past)
{
    if (!reserve_bucket(s))
        return false;
    struct sp_past **at = bucket_of(s, past->hash);
    past->next_in_bucket = *at;
    *at = past;
    if (s->store->ledger != NULL)
        sp_ledger_commit(s->store->ledger, past);
    s->count++;
    s->store->count++;
    s->store->bytes += past->bytes;
    return true;
}

void sp_pasts_release(struct sp_pasts *s, struct sp_past *past, uint64_t now_ms)
{
    past->kept_ms = now_ms;
    sp_list_append(&s->list, &past->link);
    if (s->with_output == NULL && past->size > past->output_at)
        s->with_output = past;
    s->bytes += past->bytes;
    s->shut_bytes += past->opened == NULL ? past->bytes : 0;
    note_bytes(s);
}

/* A session that has open records alone is not in the heap: it has nothing to evict, and the others
 * have their turn. */
void sp_pasts_open(struct sp_pasts *s, struct sp_past *past, struct sp_proc *by)
{
    const bool was_shut = past->opened == NULL;

    past->opened = by;
    if (!was_shut || !sp_list_is_linked(&past->link))
        return;
    s->shut_bytes -= past->bytes;
    note_bytes(s);
}

void sp_pasts_shut(struct sp_pasts *s, struct sp_past *past)
{
    past->opened = NULL;
    if (!sp_list_is_linked(&past->link))
        return;
    s->shut_bytes += past->bytes;
    note_bytes(s);
}

/* The place that has its address in the table. */
static struct sp_past **reference_to(const struct sp_pasts *s, const struct sp_past *past)
{
    struct sp_past **at = bucket_of(s, past->hash);

    while (*at != past)
        at = &(*at)->next_in_bucket;
    return at;
}

static struct sp_past *after(const struct sp_pasts *s, const struct sp_past *past)
{
    return past->link.next == &s->list ? NULL : past_of(past->link.next);
}

void sp_pasts_remove(struct sp_pasts *s, struct sp_past *past)
{
    *reference_to(s, past) = past->next_in_bucket;
    s->count--;
    s->store->count--;
    s->store->bytes -= past->bytes;
    if (!sp_list_is_linked(&past->link))
        return;
    if (s->with_output == past)
        s->with_output = after(s, past);
    sp_list_remove(&past->link);
    s->bytes -= past->bytes;
    s->shut_bytes -= past->opened == NULL ? past->bytes : 0;
    note_bytes(s);
}

struct sp_past *sp_pasts_find(const struct sp_pasts *s, struct sp_str id)
{
    if (s->count == 0)
        return NULL;
    const uint32_t hash = (uint32_t)sp_hash(id).a;
    struct sp_past *p = *bucket_of(s, hash);
    while (p != NULL && (p->hash != hash || p->id_size != id.n ||
                         (id.n > 0 && memcmp(p->body, id.p, id.n) != 0)))
        p = p->next_in_bucket;
    return p;
}

/* ---- eviction ---- */

/* The record without its output. NULL: it stays as it is. */
static struct sp_past *make_small(struct sp_ledger *ledger, struct sp_past *past)
{
    const size_t size = offsetof(struct sp_past, body) + past->output_at;
    struct sp_past *small = ledger == NULL ? past : allocate(ledger, past->output_at);

    if (small == NULL)
        return NULL;
    if (ledger != NULL)
        memcpy(small, past, size);
    small->size = small->output_at;
    small->output_bytes = 0;
    small->is_output_evicted = true;
    if (ledger != NULL) {
        sp_ledger_commit(ledger, small);
        sp_ledger_free(ledger, past); /* an heir that finds both takes one of them */
    } else if ((small = realloc(past, size)) == NULL) {
        return NULL;
    }
    small->bytes = bytes_of(ledger, small);
    return small;
}

static bool drop_output(struct sp_pasts *s, struct sp_past *past)
{
    struct sp_past **const at = reference_to(s, past);
    struct sp_list *const before = past->link.prev;
    struct sp_list *const behind = past->link.next;
    const uint32_t bytes = past->bytes;
    struct sp_past *small = make_small(s->store->ledger, past);

    if (small == NULL)
        return false;
    *at = small;
    before->next = behind->prev = &small->link;
    s->bytes -= bytes - small->bytes;
    s->shut_bytes -= bytes - small->bytes;
    s->store->bytes -= bytes - small->bytes;
    note_bytes(s);
    return true;
}

static bool evict_one(struct sp_past_store *store)
{
    struct sp_pasts *s = store->heap_count > 0 ? store->heap[0] : NULL;

    if (s == NULL)
        return false;
    while (s->with_output != NULL &&
           (s->with_output->opened != NULL || s->with_output->size == s->with_output->output_at))
        s->with_output = after(s, s->with_output);
    if (s->with_output != NULL) {
        struct sp_past *past = s->with_output;

        s->with_output = after(s, past);
        store->evicted[SP_PAST_OUTPUT] += drop_output(s, past);
        return true;
    }
    sp_list_each(i, &s->list) {
        struct sp_past *past = past_of(i);

        if (past->opened != NULL)
            continue;
        /* It was open when its turn came. */
        if (past->size > past->output_at && drop_output(s, past)) {
            store->evicted[SP_PAST_OUTPUT]++;
        } else {
            store->evicted[SP_PAST_RECORD]++;
            store->evict(s, past);
        }
        return true;
    }
    return false;
}

bool sp_past_store_shrink(struct sp_past_store *store, uint64_t bytes)
{
    bool is_any = false;

    while (store->bytes > bytes && evict_one(store))
        is_any = true;
    return is_any;
}
