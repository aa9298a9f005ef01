/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WebSocket frames and lines: any bytes in any pieces tell one story, and what we send is heard as
 * it was meant. The first byte chooses the role, the mode and the size of the pieces.
 */
#include "base/buf.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "server/net/frames.h"

#define MAX_FRAME   3000
#define MAX_MESSAGE 5000

static char scratch[SP_INTAKE_SCRATCH + 1];

struct story {
    struct sp_buf text; /* what, length and bytes of every event */
    bool is_bad;
};

static void add(struct story *s, enum sp_intake_what what, const struct sp_intake_event *ev)
{
    CHECK(sp_buf_printf(&s->text, "%d %zu %s ", (int)what, ev->len,
                        what == SP_INTAKE_BAD ? ev->why : ""));
    CHECK(sp_buf_add(&s->text, ev->text, ev->len));
    if (what == SP_INTAKE_MESSAGE) {
        CHECK(ev->len <= MAX_MESSAGE);
        CHECK(sp_utf8_is_valid((struct sp_str){ev->text, ev->len}));
        memset(ev->text, '#', ev->len + 1); /* the reader's right */
    }
    if (what == SP_INTAKE_PING || what == SP_INTAKE_PONG || what == SP_INTAKE_CLOSE)
        CHECK(ev->len <= SP_WS_MAX_CONTROL);
}

static void hear(struct sp_intake *in, struct story *s)
{
    struct sp_intake_event ev = {0};
    enum sp_intake_what what;

    while (!s->is_bad && (what = sp_intake_next(in, true, &ev)) != SP_INTAKE_MORE) {
        CHECK(what != SP_INTAKE_HELD);
        add(s, what, &ev);
        s->is_bad = what == SP_INTAKE_BAD;
    }
}

static struct story read_all(uint8_t how, const uint8_t *data, size_t size, size_t step)
{
    struct story s = {0};
    struct sp_intake in;
    size_t arrived = 0;

    in = (struct sp_intake){.role = (uint8_t)((how & 1) != 0 ? SP_WS_CLIENT : SP_WS_SERVER),
                            .max_frame = MAX_FRAME,
                            .max_message = MAX_MESSAGE};
    in.mode = (how & 2) != 0 ? SP_INTAKE_LINES : SP_INTAKE_FRAMES;
    while (arrived < size && !s.is_bad) {
        size_t n;
        char *to = sp_intake_room(&in, scratch, &n);

        CHECK(to != NULL && n > 0);
        n = n < step ? n : step;
        n = n < size - arrived ? n : size - arrived;
        memcpy(to, data + arrived, n);
        sp_intake_added(&in, n);
        arrived += n;
        hear(&in, &s);
        CHECK(sp_intake_settle(&in));
        CHECK(in.cap <= 2 * arrived + SP_INTAKE_SCRATCH + 4096);
    }
    sp_intake_finish(&in);
    hear(&in, &s);
    sp_intake_done(&in);
    return s;
}

/* A header that is read is the one that would be written. */
static void check_header(enum sp_ws_role role, const uint8_t *data, size_t size)
{
    uint8_t again[SP_WS_MAX_HEADER];
    struct sp_ws_header h;
    const char *why = NULL;

    switch (sp_ws_read_header(role, data, size, &h, &why)) {
    case SP_WS_OK:
        CHECK(h.size == sp_ws_write_header(again, (enum sp_ws_opcode)h.opcode, h.is_final, h.len,
                                           role == SP_WS_SERVER ? h.mask : NULL));
        CHECK(memcmp(again, data, h.size) == 0);
        break;
    case SP_WS_MORE:
        CHECK(size < SP_WS_MAX_HEADER);
        break;
    case SP_WS_BAD:
        CHECK(why != NULL);
        break;
    }
}

/* The input as a message: out in fragments, and in again. */
static void check_sending(const uint8_t *data, size_t size, size_t fragment)
{
    struct sp_outq q = {.fragment = fragment};
    struct story s;
    char *room = sp_outq_reserve(&q, size + fragment % 7);

    CHECK(room != NULL);
    memcpy(room, data, size);
    sp_outq_commit(&q, size, true, true);
    s = read_all(1, (const uint8_t *)q.data, sp_outq_size(&q), SIZE_MAX);
    CHECK(!s.is_bad);
    CHECK(s.text.len >= size && memcmp(s.text.data + s.text.len - size, data, size) == 0);
    sp_buf_done(&s.text);
    sp_outq_done(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const uint8_t how = data[0];
    struct story whole = read_all(how, data + 1, size - 1, SIZE_MAX);
    struct story bytes = read_all(how, data + 1, size - 1, 1);
    struct story parts = read_all(how, data + 1, size - 1, 2 + (how >> 2));

    CHECK(whole.text.len == bytes.text.len && whole.text.len == parts.text.len);
    CHECK(whole.text.len == 0 || memcmp(whole.text.data, bytes.text.data, whole.text.len) == 0);
    CHECK(whole.text.len == 0 || memcmp(whole.text.data, parts.text.data, whole.text.len) == 0);
    sp_buf_done(&whole.text);
    sp_buf_done(&bytes.text);
    sp_buf_done(&parts.text);
    check_header((how & 1) != 0 ? SP_WS_CLIENT : SP_WS_SERVER, data + 1, size - 1);
    if (size - 1 <= MAX_MESSAGE &&
        sp_utf8_is_valid((struct sp_str){(const char *)data + 1, size - 1}))
        check_sending(data + 1, size - 1, 1U + how);
    return 0;
}
