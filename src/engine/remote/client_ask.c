/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: in the order they were asked, those that wait to be sent, then those that wait for
 * their answer.
 */
#include <stdio.h>
#include <time.h>

#include "base/auto.h"
#include "engine/remote/client_priv.h"

static void append(struct sp_client_requests *list, struct sp_client_request *r)
{
    r->prev = list->last;
    r->next = NULL;
    if (list->last != NULL)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
}

static void remove_from(struct sp_client_requests *list, struct sp_client_request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        list->first = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        list->last = r->prev;
    r->prev = r->next = NULL;
}

static bool is_in(const struct sp_client_requests *list, const struct sp_client_request *r)
{
    for (const struct sp_client_request *i = list->first; i != NULL; i = i->next)
        if (i == r)
            return true;
    return false;
}

static void drop_text(struct sp_client *c, struct sp_client_request *r)
{
    c->bytes -= r->text.len;
    sp_buf_done(&r->text);
}

static void unlink_request(struct sp_client *c, struct sp_client_requests *list,
                           struct sp_client_request *r)
{
    remove_from(list, r);
    drop_text(c, r);
    r->client = NULL;
    c->count--;
}

static void tell(struct sp_client *c, struct sp_client_requests *list, struct sp_client_request *r,
                 const struct sp_client_reply *reply)
{
    unlink_request(c, list, r);
    sp_client_enter(c);
    r->fn(r, reply);
    sp_client_leave(c);
}

/* ---- asking ---- */

static void on_refusals(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, refusals);

    sp_client_enter(c);
    while (c->refused.first != NULL && !c->is_freed) {
        struct sp_client_request *r = c->refused.first;
        struct sp_client_reply reply = {.fate = SP_CLIENT_REFUSED,
                                        .code = sp_code_wire(SP_E_LIMIT),
                                        .message = sp_str_of(r->refusal)};

        if (c->state == DEAD) {
            reply.fate = SP_CLIENT_LOST;
            reply.is_final = true;
            reply.message = sp_str_of(c->error.msg);
        }
        tell(c, &c->refused, r, &reply);
    }
    sp_client_leave(c);
}

static const char *write_text(struct sp_client *c, struct sp_client_request *r, const char *method,
                              struct sp_str params)
{
    if (c->state == DEAD)
        return "";
    if (c->count >= SP_CLIENT_MAX_REQUESTS)
        return "too many requests wait for this server's answers";
    if (params.n > SP_CLIENT_MAX_BYTES || c->bytes + params.n > SP_CLIENT_MAX_BYTES)
        return "requests that wait for this server hold too much memory";
    if (!sp_buf_printf(&r->text, "{\"id\":%llu,\"method\":\"%s\",\"params\":",
                       (unsigned long long)r->id, method) ||
        !sp_buf_add_str(&r->text, params) || !sp_buf_add(&r->text, "}", 1)) {
        sp_buf_done(&r->text);
        return "no memory for a request";
    }
    return NULL;
}

void sp_client_ask(struct sp_client *c, struct sp_client_request *r, const char *method,
                   struct sp_str params)
{
    r->id = ++c->last_id;
    r->client = c;
    r->text = (struct sp_buf){0};
    r->refusal = write_text(c, r, method, params);
    c->bytes += r->text.len;
    c->count++;
    if (r->refusal != NULL) {
        append(&c->refused, r);
        sp_loop_defer(c->loop, &c->refusals, on_refusals);
        return;
    }
    append(&c->queued, r);
    sp_client_flush(c);
    if (c->state == IDLE)
        sp_client_connect(c);
}

void sp_client_forget(struct sp_client_request *r)
{
    struct sp_client *c = r->client;

    if (c == NULL)
        return;
    unlink_request(c,
                   r->refusal != NULL     ? &c->refused
                   : is_in(&c->queued, r) ? &c->queued
                                          : &c->sent,
                   r);
}

/* As many as the link takes. */
void sp_client_flush(struct sp_client *c)
{
    while (c->state == READY && c->queued.first != NULL && !sp_link_is_full(c->link)) {
        struct sp_client_request *r = c->queued.first;

        if (!sp_client_send(c, (struct sp_str){r->text.data, r->text.len}))
            return;
        remove_from(&c->queued, r);
        append(&c->sent, r);
        if (!r->is_repeatable)
            drop_text(c, r);
    }
}

/* ---- answers ---- */

void sp_client_answer(struct sp_client *c, uint64_t id, struct sp_client_reply *reply)
{
    struct sp_client_request *r = c->sent.first;

    while (r != NULL && r->id != id)
        r = r->next;
    if (r != NULL) /* else it was forgotten, or nobody's */
        tell(c, &c->sent, r, reply);
}

/* Those to be repeated go in front of those that were never sent, in their old order. */
void sp_client_requeue(struct sp_client *c)
{
    const struct sp_client_reply lost = {.fate = SP_CLIENT_LOST,
                                         .message = sp_str_of(c->error.msg)};
    struct sp_client_requests again = {0};
    struct sp_client_requests gone = {0};

    for (struct sp_client_request *r; (r = c->sent.first) != NULL;) {
        remove_from(&c->sent, r);
        append(r->is_repeatable ? &again : &gone, r);
    }
    for (struct sp_client_request *r; (r = c->queued.first) != NULL;) {
        remove_from(&c->queued, r);
        append(&again, r);
    }
    c->queued = again;
    c->sent = gone; /* where they can be forgotten from */
    sp_client_enter(c);
    while (c->sent.first != NULL && !c->is_freed)
        tell(c, &c->sent, c->sent.first, &lost);
    sp_client_leave(c);
}

void sp_client_lose_all(struct sp_client *c)
{
    const struct sp_client_reply lost = {
        .fate = SP_CLIENT_LOST, .message = sp_str_of(c->error.msg), .is_final = true};

    sp_client_enter(c);
    while (c->sent.first != NULL && !c->is_freed)
        tell(c, &c->sent, c->sent.first, &lost);
    while (c->queued.first != NULL && !c->is_freed)
        tell(c, &c->queued, c->queued.first, &lost);
    sp_client_leave(c);
}

void sp_client_forget_all(struct sp_client *c)
{
    while (c->sent.first != NULL)
        unlink_request(c, &c->sent, c->sent.first);
    while (c->queued.first != NULL)
        unlink_request(c, &c->queued, c->queued.first);
    while (c->refused.first != NULL)
        unlink_request(c, &c->refused, c->refused.first);
}

/* ---- the end ---- */

static int64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sp_client_settle(struct sp_client *c, unsigned timeout_ms)
{
    const int64_t until = clock_ms() + timeout_ms;

    if (c->depth != 0 || c->state != READY)
        return;
    sp_link_pause(c->link, false);
    for (int64_t left = timeout_ms; left > 0 && c->state == READY && c->link != NULL;
         left = until - clock_ms()) {
        sp_client_flush(c);
        if (c->sent.first == NULL && c->queued.first == NULL)
            return;
        if (!sp_link_is_live(c->link))
            return;
        sp_link_turn(c->link, (int)left);
    }
}
