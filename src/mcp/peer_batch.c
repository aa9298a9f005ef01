/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_batch: an array of messages, which 2025-03-26 alone knows. What is said meanwhile goes out
 * at once; the answers are collected and leave as one array.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"

struct sp_mcp_batch {
    struct sp_mcp_out face; /* for the requests in it */
    struct sp_mcp_out *out; /* NULL: gone */
    struct sp_mcp_peer *peer;
    struct sp_mcp_batch *prev, *next;
    struct sp_buf text;
    uint32_t waiting;
    bool is_taking;
    bool is_broken; /* no memory */
};

static struct sp_mcp_batch *batch_of(const struct sp_mcp_out *face)
{
    return SP_CONTAINER((void *)(uintptr_t)face, struct sp_mcp_batch, face);
}

static void unlink_batch(struct sp_mcp_batch *b)
{
    if (b->prev != NULL)
        b->prev->next = b->next;
    else
        b->peer->batches = b->next;
    if (b->next != NULL)
        b->next->prev = b->prev;
}

static void say_answers(struct sp_mcp_out *out, struct sp_buf *text, bool is_broken)
{
    const struct sp_mcp_to to = {.out = out};

    if (is_broken || (text->len != 0 && !sp_buf_add(text, "]", 1)))
        sp_mcp_say_no_memory(&to);
    else if (text->len != 0)
        out->send(out, (struct sp_str){text->data, text->len}, SP_MCP_OK_STATUS);
    else if (out->cancelled != NULL)
        out->cancelled(out);
}

static void finish_if_done(struct sp_mcp_batch *b)
{
    if (b->is_taking || b->waiting != 0)
        return;

    auto_buf struct sp_buf text = b->text;
    struct sp_mcp_out *out = b->out;
    const bool is_broken = b->is_broken;
    unlink_batch(b);
    free(b);
    if (out != NULL)
        say_answers(out, &text, is_broken);
}

static void on_send(struct sp_mcp_out *face, struct sp_str message, unsigned status)
{
    struct sp_mcp_batch *b = batch_of(face);

    if (status == 0) {
        if (b->out != NULL)
            b->out->send(b->out, message, 0);
        return;
    }
    if (!(sp_buf_add(&b->text, b->text.len == 0 ? "[" : ",", 1) &&
          sp_buf_add_str(&b->text, message)))
        b->is_broken = true;
    b->waiting--;
    finish_if_done(b);
}

static bool on_is_full(const struct sp_mcp_out *face)
{
    const struct sp_mcp_batch *b = batch_of(face);

    return b->out == NULL || (b->out->is_full != NULL && b->out->is_full(b->out));
}

static void on_cancelled(struct sp_mcp_out *face)
{
    struct sp_mcp_batch *b = batch_of(face);

    b->waiting--;
    finish_if_done(b);
}

/* A batch is of the old era, and has been agreed on before. */
static bool is_out_of_place(const struct sp_mcp_message *m)
{
    return m->is_modern ||
           (m->kind == SP_MCP_REQUEST && sp_str_eq(m->method, SP_STR("initialize")));
}

static void take_one(struct sp_mcp_batch *b, const struct sp_mcp_message *m, uint32_t token)
{
    struct sp_mcp_message one = {0};

    sp_mcp_message_pick(&one, m, token);
    if (is_out_of_place(&one)) {
        const struct sp_mcp_to to = {.out = &b->face, .id = one.id};

        b->waiting++;
        sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0},
                         "such a message cannot be part of a batch");
        return;
    }
    b->waiting++;
    if (!sp_mcp_take(b->peer, &b->face, NULL, &one))
        b->waiting--;
}

static bool take_all(struct sp_mcp_batch *b, const struct sp_mcp_message *m)
{
    const struct sp_json *j = &m->json;

    b->is_taking = true;
    for (uint32_t t = sp_json_first(j, 0); t != SP_JSON_NONE; t = sp_json_next(j, 0, t))
        take_one(b, m, t);
    b->is_taking = false;
    if (b->waiting != 0 || b->text.len != 0 || b->is_broken) {
        finish_if_done(b);
        return true;
    }
    unlink_batch(b); /* notifications and responses only */
    free(b);
    return false;
}

static bool refuse(struct sp_mcp_out *out, const char *why)
{
    const struct sp_mcp_to to = {.out = out};

    sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0}, "%s", why);
    return true;
}

bool sp_mcp_take_batch(struct sp_mcp_peer *p, struct sp_mcp_out *out, struct sp_mcp_message *m)
{
    if (p->legacy == NULL || !p->legacy->has_batches)
        return refuse(out, "an array of messages: this version of the protocol has no batches");
    if (m->json.tokens[0].children > SP_MCP_BATCH_MAX)
        return refuse(out, "a batch has at most 256 messages");

    struct sp_mcp_batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return refuse(out, "there is no memory for this batch");
    b->face =
        (struct sp_mcp_out){.send = on_send, .is_full = on_is_full, .cancelled = on_cancelled};
    b->out = out;
    b->peer = p;
    b->next = p->batches;
    if (b->next != NULL)
        b->next->prev = b;
    p->batches = b;
    return take_all(b, m);
}

/* Its requests still count for it: they keep their way to it. */
static void go_unheard(struct sp_mcp_batch *b)
{
    b->out = NULL;
    for (struct sp_mcp_request *r = b->peer->open; r != NULL; r = r->next)
        if (r->out == &b->face && r->unheard != NULL)
            r->unheard(r);
}

void sp_mcp_batch_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    for (struct sp_mcp_batch *b = p->batches; b != NULL; b = b->next)
        if (b->out == out)
            go_unheard(b);
}

void sp_mcp_batches_free(struct sp_mcp_peer *p)
{
    while (p->batches != NULL) {
        struct sp_mcp_batch *b = p->batches;

        unlink_batch(b);
        sp_buf_done(&b->text);
        free(b);
    }
}
