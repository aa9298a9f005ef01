/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and answers to reads, from JSON into a process's mirror.
 */
#include "base/base64.h"
#include "engine/remote/remote_priv.h"

static int read_stream(struct sp_json *j, uint32_t object, enum sp_stream *ret, struct sp_err *e)
{
    struct sp_str name = {0};
    const int r = sp_json_need_str(j, object, "stream", &name, e);

    if (r < 0)
        return r;
    if (sp_str_eq(name, SP_STR("stdout")))
        *ret = SP_STREAM_STDOUT;
    else if (sp_str_eq(name, SP_STR("stderr")))
        *ret = SP_STREAM_STDERR;
    else if (sp_str_eq(name, SP_STR("pty")))
        *ret = SP_STREAM_PTY;
    else
        return sp_fail(e, SP_E_INVALID, 0, "output of an unknown stream");
    return 0;
}

struct chunk {
    uint64_t seq;
    enum sp_stream stream;
    struct sp_str bytes;
};

/* Decoded in the message itself. */
static int read_chunk(struct sp_json *j, uint32_t object, struct chunk *ret, struct sp_err *e)
{
    struct sp_str text = {0};
    size_t len = 0;
    int r = sp_json_need_u64(j, object, "seq", UINT64_MAX, &ret->seq, e);

    if (r == 0)
        r = read_stream(j, object, &ret->stream, e);
    if (r == 0)
        r = sp_json_need_str(j, object, "chunk", &text, e);
    if (r == 0)
        r = sp_base64_decode(text, (char *)(uintptr_t)text.p, &len, e);
    if (r == 0)
        ret->bytes = (struct sp_str){text.p, len};
    return r;
}

/* -1: absent, null, or no code that a process can end with. */
static int read_code(const struct sp_json *j, uint32_t token)
{
    int64_t code = -1;

    if (token == SP_JSON_NONE || !sp_json_i64(j, token, &code) || code < 0 || code > 255)
        return -1;
    return (int)code;
}

static int read_verdict(struct sp_json *j, uint32_t object)
{
    const uint32_t token = sp_json_get(j, object, "sandboxDenied");

    if (token == SP_JSON_NONE || sp_json_type(j, token) == SP_JSON_NULL)
        return -1;
    return sp_json_type(j, token) == SP_JSON_TRUE ? 1 : 0;
}

int sp_remote_take_event(struct sp_remote_job *rj, struct sp_str method, struct sp_json *j,
                         uint32_t params, struct sp_err *e)
{
    struct chunk c = {0};
    int r;

    if (sp_str_eq(method, SP_STR("process/output"))) {
        r = read_chunk(j, params, &c, e);
        return r < 0 ? r : sp_mirror_output(&rj->mirror, c.seq, c.stream, c.bytes, e);
    }
    r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &c.seq, e);
    if (r < 0)
        return r;
    if (sp_str_eq(method, SP_STR("process/exited")))
        return sp_mirror_exited(&rj->mirror, c.seq,
                                read_code(j, sp_json_get(j, params, "exitCode")),
                                read_verdict(j, params), e);
    if (sp_str_eq(method, SP_STR("process/closed")))
        return sp_mirror_closed(&rj->mirror, c.seq, e);
    return 0;
}

static int read_chunks(struct sp_remote_job *rj, struct sp_json *j, uint32_t value,
                       struct sp_mirror_answer *a, struct sp_err *e)
{
    uint32_t chunks;
    int r = sp_json_need_array(j, value, "chunks", &chunks, e);

    if (r < 0)
        return r;
    for (uint32_t t = sp_json_first(j, chunks); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, chunks, t)) {
        struct chunk c = {0};

        if (sp_json_type(j, t) != SP_JSON_OBJECT)
            return sp_json_wrong_type(j, t, "a chunk", e);
        r = read_chunk(j, t, &c, e);
        if (r == 0)
            r = sp_mirror_add_chunk(&rj->mirror, a, c.seq, c.stream, c.bytes, e);
    }
    return r;
}

int sp_remote_take_answer(struct sp_remote_job *rj, struct sp_json *j, uint32_t value,
                          struct sp_err *e)
{
    struct sp_mirror_answer a = {0};
    struct sp_str failure = {0};
    int r;

    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "the answer to a read", e);
    r = sp_json_need_u64(j, value, "nextSeq", UINT64_MAX, &a.next_seq, e);
    if (r == 0)
        r = sp_json_need_bool(j, value, "exited", &a.has_exited, e);
    if (r == 0)
        r = sp_json_need_bool(j, value, "closed", &a.has_closed, e);
    if (r == 0)
        r = sp_json_opt_str(j, value, "failure", &failure, e);
    if (r == 0)
        r = read_chunks(rj, j, value, &a, e);
    if (r < 0) {
        sp_mirror_drop_answer(&a);
        return r;
    }
    a.code = read_code(j, sp_json_get(j, value, "exitCode"));
    a.denied = a.has_exited ? read_verdict(j, value) : -1;
    r = sp_mirror_end_read(&rj->mirror, &a, e);
    if (r == 0 && failure.p != NULL)
        r = sp_fail(e, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(failure));
    return r;
}
