/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/process_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/push.h"
#include "server/rpc/text.h"

/* ---- who has news ---- */

static void add_news(struct sp_process_view *v)
{
    struct sp_conn *c = v->conn;

    if (v->has_news)
        return;
    v->has_news = true;
    v->prev_news = c->view_news_last;
    v->next_news = NULL;
    if (c->view_news_last != NULL)
        c->view_news_last->next_news = v;
    else
        c->view_news_first = v;
    c->view_news_last = v;
}

static void remove_news(struct sp_process_view *v)
{
    struct sp_conn *c = v->conn;

    if (!v->has_news)
        return;
    v->has_news = false;
    if (v->prev_news != NULL)
        v->prev_news->next_news = v->next_news;
    else
        c->view_news_first = v->next_news;
    if (v->next_news != NULL)
        v->next_news->prev_news = v->prev_news;
    else
        c->view_news_last = v->prev_news;
}

/* ---- notifications ---- */

/* The session, and what is missing before this record. */
static enum sp_push_result push_record(struct sp_process_view *v, const struct sp_record *r,
                                       const struct sp_gap *gap)
{
    struct sp_observer *o = &v->observer;
    char bytes[40] = "";
    char missing[96] = "";
    char more[192];

    if (gap->has_bytes)
        (void)snprintf(bytes, sizeof bytes, ",\"bytes\":%" PRIu64, gap->bytes);
    if (gap->records != 0)
        (void)snprintf(missing, sizeof missing, ",\"gap\":{\"records\":%" PRIu64 "%s}",
                       gap->records, bytes);
    (void)snprintf(more, sizeof more, ",\"sessionId\":\"%s\"%s", o->proc->session->id, missing);
    const enum sp_push_result sent = sp_push_record(v->conn, o->proc, r, sp_str_of(more));
    if (sent == SP_PUSH_SENT)
        sp_observer_told(o, r);
    return sent;
}

/* One view's turn. It ends with the last word about the process. */
static void push_some(struct sp_process_view *v)
{
    const struct sp_link *link = v->conn->link;
    struct sp_record r;
    struct sp_gap gap;
    size_t bytes = 0;
    int more = 0;

    while (bytes < SP_PUSH_TURN && !sp_link_is_full(link) &&
           (more = sp_observer_next(&v->observer, &r, &gap)) > 0) {
        bytes += r.len;
        if (push_record(v, &r, &gap) == SP_PUSH_NO_ROOM)
            return;
        if (r.type == SP_RECORD_CLOSED) {
            sp_process_view_close(v);
            return;
        }
    }
    if (more > 0)
        add_news(v);
}

void sp_process_views_push_first(struct sp_conn *c)
{
    struct sp_process_view *v = c->view_news_first;

    remove_news(v);
    push_some(v);
}

void sp_process_view_push(struct sp_process_view *v)
{
    add_news(v);
    sp_push_all(v->conn);
}

/* ---- what the process tells ---- */

static struct sp_process_view *view_of(struct sp_observer *o)
{
    return SP_CONTAINER(o, struct sp_process_view, observer);
}

static void on_news(struct sp_observer *o)
{
    sp_process_view_push(view_of(o));
}

static void on_robbed(struct sp_observer *o)
{
    struct sp_conn *c = view_of(o)->conn;
    const struct sp_proc *p = o->proc;
    char *const start = sp_link_reserve(c->link, 128 + p->label.n + SP_SESSION_ID);
    char *out = start;

    if (out == NULL)
        return; /* the connection is closing */
    out = sp_put_literal(out, "{\"method\":\"process/inputLost\",\"params\":{\"processId\":");
    out = sp_put_str(out, p->label);
    out = sp_put_literal(out, ",\"sessionId\":\"");
    out = sp_put_str(out, sp_str_of(p->session->id));
    out = sp_put_literal(out, "\"}}");
    sp_link_commit(c->link, (size_t)(out - start));
}

/* A full queue takes these two all the same: nothing comes after them. One in which they have piled
 * up is of somebody who does not read: that connection ends. */
static void say_last_words(struct sp_process_view *v)
{
    const struct sp_observer *o = &v->observer;
    const struct sp_proc *p = o->proc;
    const struct sp_record words[] = {
        {.seq = p->state.exit_seq,
         .type = SP_RECORD_EXITED,
         .len = sizeof p->state.exit,
         .data = (const uint8_t *)&p->state.exit},
        {.seq = p->state.closed_seq, .type = SP_RECORD_CLOSED},
    };

    if (sp_link_queued(v->conn->link) > SP_CONN_MAX_QUEUED && !v->conn->is_closing) {
        v->conn->is_closing = true;
        sp_link_close(v->conn->link, "too slow to be told the end of what it is attached to");
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !v->conn->is_closing; i++) {
        struct sp_gap gap = sp_observer_gap(o, words[i].seq, 0);

        gap.has_bytes = false; /* some of it may come after the exit: nobody knows how much */
        if (words[i].seq > o->told_seq && push_record(v, &words[i], &gap) == SP_PUSH_NO_ROOM)
            return;
    }
}

static void free_view(struct sp_process_view *v)
{
    struct sp_conn *c = v->conn;

    remove_news(v);
    if (v->prev != NULL)
        v->prev->next = v->next;
    else
        c->views = v->next;
    if (v->next != NULL)
        v->next->prev = v->prev;
    c->view_count--;
    free(v);
}

static void on_ending(struct sp_observer *o)
{
    struct sp_process_view *v = view_of(o);
    struct sp_conn *c = v->conn;
    struct sp_record r;
    struct sp_gap gap;

    while (!c->is_closing && !sp_link_is_full(c->link) && sp_observer_next(o, &r, &gap) > 0)
        if (push_record(v, &r, &gap) == SP_PUSH_NO_ROOM)
            break;
    say_last_words(v);
    sp_process_view_close(v);
}

static const struct sp_observer_ops ops = {
    .news = on_news, .robbed = on_robbed, .ending = on_ending};

/* ---- coming and going ---- */

struct sp_process_view *sp_process_view_find(const struct sp_conn *c, const struct sp_proc *p)
{
    struct sp_process_view *v = c->views;

    while (v != NULL && v->observer.proc != p)
        v = v->next;
    return v;
}

int sp_process_view_open(struct sp_conn *c, struct sp_proc *p, uint64_t after_seq,
                         struct sp_process_view **ret, struct sp_err *e)
{
    if (sp_process_view_find(c, p) != NULL)
        return sp_fail(e, SP_E_STATE, 0,
                       "this connection is attached to process " SP_STR_FMT " already",
                       SP_STR_ARG(p->id));
    if (c->view_count >= SP_CONN_MAX_VIEWS)
        return sp_fail(e, SP_E_LIMIT, 0, "one connection may be attached to at most %d processes",
                       SP_CONN_MAX_VIEWS);
    struct sp_process_view *v = calloc(1, sizeof *v);
    if (v == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "attach to the process");
    const int r = sp_observer_begin(&v->observer, &ops, p, after_seq, e);
    if (r < 0) {
        free(v);
        return r;
    }
    v->conn = c;
    v->next = c->views;
    if (c->views != NULL)
        c->views->prev = v;
    c->views = v;
    c->view_count++;
    *ret = v;
    return 0;
}

void sp_process_view_close(struct sp_process_view *v)
{
    sp_observer_end(&v->observer);
    free_view(v);
}

void sp_process_views_close(struct sp_conn *c)
{
    while (c->views != NULL)
        sp_process_view_close(c->views);
}

bool sp_process_view_may_type(const struct sp_conn *c, const struct sp_proc *p)
{
    return p->typist == NULL || view_of(p->typist)->conn == c;
}
