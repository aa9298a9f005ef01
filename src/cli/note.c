/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/note.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/base64.h"

static enum sp_note_kind kind_of(struct sp_str method)
{
    static const struct {
        const char *name;
        enum sp_note_kind kind;
    } known[] = {
        {"process/output", SP_NOTE_OUTPUT},
        {"process/exited", SP_NOTE_EXITED},
        {"process/closed", SP_NOTE_CLOSED},
        {"process/inputLost", SP_NOTE_INPUT_LOST},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sp_str_eq(method, sp_str_of(known[i].name)))
            return known[i].kind;
    return SP_NOTE_OTHER;
}

static int read_gap(struct sp_json *j, uint32_t params, struct sp_note *n, struct sp_err *e)
{
    uint32_t gap = SP_JSON_NONE;
    uint64_t bytes = UINT64_MAX;
    int r = sp_json_opt_object(j, params, "gap", &gap, e);

    if (r < 0 || gap == SP_JSON_NONE)
        return r;
    r = sp_json_need_u64(j, gap, "records", UINT64_MAX, &n->missed_records, e);
    if (r == 0)
        r = sp_json_opt_u64(j, gap, "bytes", UINT64_MAX, &bytes, e);
    n->knows_missed_bytes = bytes != UINT64_MAX;
    n->missed_bytes = n->knows_missed_bytes ? bytes : 0;
    return r;
}

static int read_output(struct sp_json *j, uint32_t params, struct sp_note *n, struct sp_err *e)
{
    struct sp_str chunk;
    size_t len = 0;
    int r = sp_json_need_str(j, params, "stream", &n->stream, e);

    if (r == 0)
        r = sp_json_need_str(j, params, "chunk", &chunk, e);
    if (r == 0) /* in the message itself */
        r = sp_base64_decode(chunk, (char *)(uintptr_t)chunk.p, &len, e);
    if (r < 0)
        return r;
    n->is_stderr = sp_str_eq(n->stream, SP_STR("stderr"));
    if (!n->is_stderr && !sp_str_eq(n->stream, SP_STR("pty")))
        n->stream = SP_STR("stdout");
    n->bytes = (struct sp_str){chunk.p, len};
    return 0;
}

static int read_code(struct sp_json *j, uint32_t params, struct sp_note *n, struct sp_err *e)
{
    const uint32_t code = sp_json_get(j, params, "exitCode");

    if (code == SP_JSON_NONE || !sp_json_i64(j, code, &n->exit_code))
        return sp_fail(e, SP_E_INVALID, 0, "an exit without a code");
    return 0;
}

int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e)
{
    struct sp_note n = {.kind = kind_of(method)};
    struct sp_str session = {0};
    struct sp_str id = {0};
    int r = 0;

    *ret = (struct sp_note){.kind = SP_NOTE_OTHER};
    if (n.kind == SP_NOTE_OTHER || params == SP_JSON_NONE ||
        sp_json_type(j, params) != SP_JSON_OBJECT)
        return 0;
    if (n.kind != SP_NOTE_INPUT_LOST)
        r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &n.seq, e);
    if (r == 0)
        r = read_gap(j, params, &n, e);
    if (r == 0 && n.kind == SP_NOTE_EXITED)
        r = read_code(j, params, &n, e);
    if (r == 0)
        r = sp_json_opt_str(j, params, "sessionId", &session, e);
    if (r == 0)
        r = sp_json_need_str(j, params, "processId", &id, e);
    if (r < 0 || !sp_str_eq(session, sp_str_of(p->session)) ||
        !sp_str_eq(id, (struct sp_str){p->id, p->id_len}))
        return r;
    if (n.kind == SP_NOTE_OUTPUT)
        r = read_output(j, params, &n, e);
    if (r == 0)
        *ret = n;
    return r;
}

void sp_note_say_gap(const struct sp_note *n, char ret[160])
{
    char bytes[48] = "";

    if (n->knows_missed_bytes)
        (void)snprintf(bytes, sizeof bytes, " (%" PRIu64 " bytes)", n->missed_bytes);
    (void)snprintf(ret, 160, "%" PRIu64 " record%s%s of its output %s not there any more",
                   n->missed_records, n->missed_records == 1 ? "" : "s", bytes,
                   n->missed_records == 1 ? "is" : "are");
}
