/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/push.h"

#include "base/auto.h"
#include "base/base64.h"
#include "base/log.h"
#include "server/rpc/text.h"

static const struct sp_str stream_names[SP_STREAM_MAX] = {[SP_STREAM_STDOUT] = {"stdout", 6},
                                                          [SP_STREAM_STDERR] = {"stderr", 6},
                                                          [SP_STREAM_PTY] = {"pty", 3}};

/* ---- notifications ---- */

/* The record is encoded first and checked afterwards: if the cell has overwritten it meanwhile, the
 * reserved frame is not committed. */
static enum sp_push_result push_output(struct sp_conn *c, const struct sp_proc *p,
                                       const struct sp_record *r, struct sp_str more)
{
    char *const start =
        sp_link_reserve(c->link, 128 + p->label.n + more.n + SP_BASE64_LEN((size_t)r->len));
    char *o = start;

    if (o == NULL)
        return SP_PUSH_NO_ROOM;
    o = sp_put_literal(o, "{\"method\":\"process/output\",\"params\":{\"processId\":");
    o = sp_put_str(o, p->label);
    o = sp_put_str(o, more);
    o = sp_put_literal(o, ",\"seq\":");
    o = sp_put_u64(o, r->seq);
    o = sp_put_literal(o, ",\"stream\":\"");
    o = sp_put_str(o, stream_names[r->stream]);
    o = sp_put_literal(o, "\",\"chunk\":\"");
    o = sp_base64_encode(o, r->data, r->len);
    o = sp_put_literal(o, "\"}}");
    const bool is_whole = sp_ring_is_intact(&p->view, r);
    sp_link_commit(c->link, is_whole ? (size_t)(o - start) : 0);
    return is_whole ? SP_PUSH_SENT : SP_PUSH_TORN;
}

/* process/exited or process/closed. */
static enum sp_push_result push_end(struct sp_conn *c, const struct sp_proc *p,
                                    const struct sp_record *r, struct sp_str more)
{
    char *const start = sp_link_reserve(c->link, 160 + p->label.n + more.n);
    char *o = start;

    if (o == NULL)
        return SP_PUSH_NO_ROOM;
    o = r->type == SP_RECORD_EXITED
            ? sp_put_literal(o, "{\"method\":\"process/exited\",\"params\":{\"processId\":")
            : sp_put_literal(o, "{\"method\":\"process/closed\",\"params\":{\"processId\":");
    o = sp_put_str(o, p->label);
    o = sp_put_str(o, more);
    o = sp_put_literal(o, ",\"seq\":");
    o = sp_put_u64(o, r->seq);
    if (r->type == SP_RECORD_EXITED) {
        struct sp_exit how;

        memcpy(&how, r->data, sizeof how);
        o = sp_put_literal(o, ",\"exitCode\":");
        o = sp_put_i64(o, how.code);
        o = sp_put_literal(o, ",\"sandboxDenied\":");
        o = sp_put_bool(o, p->was_denied);
    }
    o = sp_put_literal(o, "}}");
    sp_link_commit(c->link, (size_t)(o - start));
    return SP_PUSH_SENT;
}

enum sp_push_result sp_push_record(struct sp_conn *c, const struct sp_proc *p,
                                   const struct sp_record *r, struct sp_str more)
{
    return r->type == SP_RECORD_OUTPUT ? push_output(c, p, r, more) : push_end(c, p, r, more);
}

/* Sends at most SP_PUSH_TURN bytes of one process. true: it has more. */
static bool push_turn(struct sp_conn *c, struct sp_proc *p)
{
    struct sp_record r;
    size_t bytes = 0;
    int more = 0;

    while (bytes < SP_PUSH_TURN && !sp_link_is_full(c->link) && (more = sp_proc_next(p, &r)) > 0) {
        bytes += r.len;
        const enum sp_push_result sent = sp_push_record(c, p, &r, SP_STR(""));
        if (sent == SP_PUSH_NO_ROOM)
            break;
        if (sent == SP_PUSH_TORN) /* flow control protects unsent records: the cell misbehaved */
            sp_log(SP_LOG_ERROR, "process " SP_STR_FMT ": record %llu was lost", SP_STR_ARG(p->id),
                   (unsigned long long)r.seq);
    }
    sp_proc_served(p);
    return bytes >= SP_PUSH_TURN || more > 0 || p->sent.seq < p->tail.seq;
}

/* Own processes and views take turns, so that neither starves the other on a slow link. */
void sp_push_all(struct sp_conn *c)
{
    while (!c->is_closing && !sp_link_is_full(c->link)) {
        const bool has_own = !sp_list_is_empty(&c->news);

        if (!sp_list_is_empty(&c->view_news) && (c->is_views_turn || !has_own)) {
            c->is_views_turn = false;
            sp_process_views_push_first(c);
        } else if (has_own) {
            struct sp_proc *p = SP_CONTAINER(sp_list_take_first(&c->news), struct sp_proc, news);

            c->is_views_turn = true;
            if (push_turn(c, p) && !sp_list_is_linked(&p->news))
                sp_list_append(&c->news, &p->news);
        } else {
            return;
        }
    }
}

/* ---- the chunks of a read ---- */

static char *put_chunk(char *o, const struct sp_record *r)
{
    o = sp_put_literal(o, "{\"seq\":");
    o = sp_put_u64(o, r->seq);
    o = sp_put_literal(o, ",\"stream\":\"");
    o = sp_put_str(o, stream_names[r->stream]);
    o = sp_put_literal(o, "\",\"chunk\":\"");
    o = sp_base64_encode(o, r->data, r->len);
    return sp_put_literal(o, "\"}");
}

/* The chunks of one page. The cell keeps writing, so each chunk is checked after it was copied. */
static char *put_chunks(char *const start, const struct sp_proc *p, const struct sp_page *page)
{
    struct sp_ring_cursor c = page->from;
    uint64_t bytes = 0;
    char *o = start;
    struct sp_record r;

    while (page->chunks > 0 && c.seq < page->last_seq && sp_ring_next(&p->view, &c, &r) > 0) {
        if (r.type != SP_RECORD_OUTPUT || r.seq > page->last_seq)
            continue;
        bytes += r.len;
        if (bytes > page->bytes)
            break; /* the ring grew against the page: the cell misbehaves, room is for `bytes` */
        if (o != start)
            *o++ = ',';
        o = put_chunk(o, &r);
        if (!sp_ring_is_intact(&p->view, &r))
            o = start; /* overwritten during the copy, and so are all older records */
    }
    return o;
}

bool sp_push_page(struct sp_conn *c, struct sp_str id, struct sp_proc *p,
                  const struct sp_page *page)
{
    const size_t max = 256 + (size_t)page->chunks * (64 + 4) + SP_BASE64_LEN((size_t)page->bytes);
    char *const begin = sp_reply_begin(c, id, max);
    char *o = begin;

    if (o == NULL)
        return false;
    o = sp_put_literal(o, "{\"chunks\":[");
    o = put_chunks(o, p, page);
    o = sp_put_literal(o, "],\"nextSeq\":");
    o = sp_put_u64(o, page->next_seq);
    o = sp_put_literal(o, ",\"exited\":");
    o = sp_put_bool(o, p->state.exit_seq != 0);
    o = sp_put_literal(o, ",\"exitCode\":");
    o = p->state.exit_seq != 0 ? sp_put_i64(o, p->state.exit.code) : sp_put_literal(o, "null");
    o = sp_put_literal(o, ",\"closed\":");
    o = sp_put_bool(o, p->state.closed_seq != 0);
    o = sp_put_literal(o, ",\"failure\":null,\"sandboxDenied\":");
    o = sp_put_bool(o, p->was_denied);
    *o++ = '}';
    sp_reply_end(c, id, begin, o);
    return true;
}
