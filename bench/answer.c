/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "client_priv.h"

enum { FRAME_MAX = 16 << 20, FRAGMENT = 1 << 20 };

static const unsigned char key[4] = {0x37, 0xfa, 0x21, 0x3d};

/* Writes n bytes as one masked frame and returns its end. */
static char *put_frame(char *out, unsigned first, const char *text, size_t n)
{
    const size_t wide = n < 126 ? 0 : n < 65536 ? 2 : 8;

    *out++ = (char)first;
    *out++ = (char)(0x80 | (wide == 0 ? n : wide == 2 ? 126 : 127));
    for (size_t i = wide; i-- > 0;)
        *out++ = (char)(n >> 8 * i);
    memcpy(out, key, 4);
    out += 4;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(text[i] ^ (char)key[i & 3]);
    return out + n;
}

/* Frames above 16 MiB are refused, so a message that long goes in fragments. */
static char *put_message(char *out, const char *text, size_t n)
{
    const size_t piece = n > FRAME_MAX ? FRAGMENT : n;
    unsigned opcode = 1;

    for (; n > piece; n -= piece, text += piece, opcode = 0)
        out = put_frame(out, opcode, text, piece);
    return put_frame(out, 0x80 | opcode, text, n);
}

int bench_ready_make(struct bench_client *c, const char *method, const char *params,
                     struct sp_str data, struct bench_ready *ret, struct sp_err *e)
{
    static const char member[] = ",\"dataBase64\":\"";
    const size_t room = strlen(method) + strlen(params) + SP_BASE64_LEN(data.n) + 128;
    auto_free char *text = malloc(room);
    char *frame = malloc(room + (room / FRAGMENT + 1) * BENCH_CLIENT_HEAD);

    if (text == NULL || frame == NULL) {
        free(frame);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a request");
    }
    ret->id = ++c->last_id;
    char *p = text + snprintf(text, room, "{\"id\":%lld,\"method\":\"%s\",\"params\":{%s",
                              (long long)ret->id, method, params);
    if (data.p != NULL) {
        memcpy(p, member, sizeof member - 1);
        p = sp_base64_encode(p + sizeof member - 1, data.p, data.n);
        *p++ = '"';
    }
    *p++ = '}';
    *p++ = '}';
    ret->frame = frame;
    ret->len = (size_t)(put_message(frame, text, (size_t)(p - text)) - frame);
    return 0;
}

void bench_ready_done(struct bench_ready *r)
{
    free(r->frame);
    *r = (struct bench_ready){0};
}

int bench_ready_send(struct bench_client *c, const struct bench_ready *r, struct sp_err *e)
{
    return bench_client_send_all(c, r->frame, r->len, e);
}

/* Takes n bytes off the connection, and the first of them into the answer's head. */
static int take(struct bench_client *c, size_t n, struct bench_answer *a, struct sp_err *e)
{
    while (n > 0) {
        const size_t have = c->to - c->from;
        const size_t some = have < n ? have : n;

        if (a != NULL && a->len < sizeof a->head - 1) {
            const size_t room = sizeof a->head - 1 - a->len;

            memcpy(a->head + a->len, c->in + c->from, some < room ? some : room);
        }
        if (a != NULL)
            a->len += some;
        c->from += some;
        n -= some;
        if (n == 0)
            break;

        const int r = bench_client_receive(c, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static void read_head(struct bench_answer *a)
{
    const char *id = strstr(a->head, "\"id\":");

    a->id = id == NULL ? -1 : strtoll(id + 5, NULL, 10);
    a->is_error = strstr(a->head, "\"error\":") != NULL;
}

int bench_answer_skip(struct bench_client *c, struct bench_answer *ret, struct sp_err *e)
{
    struct bench_frame f;
    int r = 0;

    *ret = (struct bench_answer){0};
    while (r == 0) {
        if (!bench_client_look(c, c->from, &f)) {
            r = bench_client_receive(c, e);
            continue;
        }
        if (f.opcode == 8)
            return sp_fail(e, SP_E_FAILED, 0, "the server sent a close frame");
        c->from += f.head;
        r = take(c, f.len, f.opcode < 8 ? ret : NULL, e); /* a ping is not answered */
        if (f.opcode < 8 && f.is_last)
            break;
    }
    read_head(ret);
    return r;
}
