/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_batch: an array of messages, which only 2025-03-26 has. Notifications go out at once; the
 * answers are collected and sent as one array.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"

struct batch {
    struct sp_mcp_out face; /* `out` of each request of the batch */
    struct sp_mcp_out *out; /* of the batch; NULL: gone */
    struct sp_mcp_peer *peer;
    struct sp_list link; /* in peer->batches */
    struct sp_buf text;  /* the answers so far */
    uint32_t waiting;    /* requests that are not answered yet */
    bool is_taking;      /* its messages are being taken: it must not finish yet */
    bool is_broken;      /* out of memory */
};

static struct batch *batch_of(const struct sp_mcp_out *face)
{
    return SP_CONTAINER((void *)(uintptr_t)face, struct batch, face);
}

static void finish_if_done(struct batch *b)
{
    if (b->is_taking || b->waiting != 0)
        return;

    auto_buf struct sp_buf text = b->text;
    struct sp_mcp_out *out = b->out;
    const struct sp_mcp_to to = {.out = out};
    const bool is_broken = b->is_broken;
    sp_list_remove(&b->link);
    free(b);
    if (out == NULL)
        return;
    if (is_broken || (text.len != 0 && !sp_buf_add(&text, "]", 1)))
        sp_mcp_say_no_memory(&to);
    else if (text.len != 0)
        out->send(out, sp_buf_str(&text), SP_MCP_OK_STATUS);
    else if (out->cancelled != NULL) /* every request of it was cancelled */
        out->cancelled(out);
}

static void on_send(struct sp_mcp_out *face, struct sp_str message, unsigned status)
{
    struct batch *b = batch_of(face);

    if (status == 0) {
        if (b->out != NULL)
            b->out->send(b->out, message, 0);
        return;
    }
    if (!(sp_buf_add(&b->text, b->text.len == 0 ? "[" : ",", 1) &&
          sp_buf_add_str(&b->text, message)))
        b->is_broken = true;
    assert(b->waiting > 0);
    b->waiting--;
    finish_if_done(b);
}

static bool on_is_full(const struct sp_mcp_out *face)
{
    const struct batch *b = batch_of(face);

    return b->out == NULL || (b->out->is_full != NULL && b->out->is_full(b->out));
}

static void on_cancelled(struct sp_mcp_out *face)
{
    struct batch *b = batch_of(face);

    b->waiting--;
    finish_if_done(b);
}

static void take_one(struct batch *b, const struct sp_mcp_message *m, uint32_t token)
{
    struct sp_mcp_message one = {0};

    sp_mcp_message_pick(&one, m, token);
    b->waiting++;
    if (one.is_modern ||
        (one.kind == SP_MCP_REQUEST && sp_str_eq(one.method, SP_STR("initialize")))) {
        const struct sp_mcp_to to = {.out = &b->face, .id = one.id};

        sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0},
                         "such a message cannot be part of a batch");
    } else if (!sp_mcp_take(b->peer, &b->face, NULL, &one)) {
        b->waiting--;
    }
}

static bool refuse_batch(struct sp_mcp_out *out, const char *why)
{
    const struct sp_mcp_to to = {.out = out};

    sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0}, "%s", why);
    return true;
}

bool sp_mcp_take_batch(struct sp_mcp_peer *p, struct sp_mcp_out *out, struct sp_mcp_message *m)
{
    const struct sp_json *j = &m->json;

    if (p->legacy == NULL || !p->legacy->has_batches)
        return refuse_batch(out,
                            "an array of messages: this version of the protocol has no batches");
    if (j->tokens[0].children > SP_MCP_OPEN_MAX)
        return refuse_batch(out, "a batch has at most 256 messages");

    struct batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return refuse_batch(out, "there is no memory for this batch");
    b->face =
        (struct sp_mcp_out){.send = on_send, .is_full = on_is_full, .cancelled = on_cancelled};
    b->out = out;
    b->peer = p;
    sp_list_prepend(&p->batches, &b->link);
    b->is_taking = true;
    for (uint32_t t = sp_json_first(j, 0); t != SP_JSON_NONE; t = sp_json_next(j, 0, t))
        take_one(b, m, t);
    b->is_taking = false;
    if (b->waiting != 0 || b->text.len != 0 || b->is_broken) {
        finish_if_done(b);
        return true;
    }
    sp_list_remove(&b->link); /* notifications and responses only: no answer */
    free(b);
    return false;
}

void sp_mcp_batch_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    sp_list_each(i, &p->batches) {
        struct batch *b = SP_CONTAINER(i, struct batch, link);

        if (b->out != out)
            continue;
        b->out = NULL;
        /* The requests keep b->face: the batch counts their answers until it can be freed. */
        sp_list_each(k, &p->open) {
            struct sp_mcp_request *r = SP_CONTAINER(k, struct sp_mcp_request, link);

            if (r->out == &b->face && r->unheard != NULL)
                r->unheard(r);
        }
    }
}

void sp_mcp_batches_free(struct sp_mcp_peer *p)
{
    sp_list_each_safe(i, &p->batches) {
        struct batch *b = SP_CONTAINER(i, struct batch, link);

        sp_list_remove(&b->link);
        sp_buf_done(&b->text);
        free(b);
    }
}
