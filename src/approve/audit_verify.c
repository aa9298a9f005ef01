/* SPDX-License-Identifier: Apache-2.0 */
/* A log held against its own chain: each line parses, follows in number, and names the one before.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/audit.h"
#include "approve/audit_priv.h"
#include "approve/locked.h"
#include "base/auto.h"
#include "base/json.h"

#define CHUNK 65536

struct verifying {
    struct sp_audit_report *report;
    struct sp_json json;
};

SP_PRINTF(2, 3)
static bool find_fault(struct sp_audit_report *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(t->fault, sizeof t->fault, fmt, args);
    va_end(args);
    t->line = t->entries + 1;
    return false;
}

/* ---- one line ---- */

struct member {
    const char *key;
    enum sp_json_type types[2];
};

static const struct member members[] = {
    {"seq", {SP_JSON_INT, SP_JSON_UINT}},
    {"time", {SP_JSON_STRING, SP_JSON_STRING}},
    {"call_id", {SP_JSON_STRING, SP_JSON_STRING}},
    {"environment", {SP_JSON_STRING, SP_JSON_STRING}},
    {"cwd", {SP_JSON_STRING, SP_JSON_STRING}},
    {"command", {SP_JSON_ARRAY, SP_JSON_OBJECT}},
    {"segments", {SP_JSON_ARRAY, SP_JSON_OBJECT}},
    {"matches", {SP_JSON_ARRAY, SP_JSON_OBJECT}},
    {"policy", {SP_JSON_STRING, SP_JSON_OBJECT}},
    {"requirement", {SP_JSON_STRING, SP_JSON_STRING}},
    {"decision", {SP_JSON_STRING, SP_JSON_STRING}},
    {"decided_by", {SP_JSON_STRING, SP_JSON_STRING}},
    {"attempts", {SP_JSON_ARRAY, SP_JSON_ARRAY}},
    {"prev", {SP_JSON_STRING, SP_JSON_STRING}},
};

/* All members, in their order, and nothing else. */
static bool check_members(struct verifying *v)
{
    struct sp_json *j = &v->json;
    const size_t count = sizeof members / sizeof *members;
    uint32_t key = sp_json_type(j, 0) == SP_JSON_OBJECT ? sp_json_first(j, 0) : SP_JSON_NONE;

    for (size_t i = 0; i < count; i++, key = sp_json_next(j, 0, key)) {
        if (key == SP_JSON_NONE || !sp_str_eq(sp_json_str(j, key), sp_str_of(members[i].key)))
            return find_fault(v->report, "not an entry: `%s` is not in its place", members[i].key);
        const enum sp_json_type type = sp_json_type(j, key + 1);
        if (type != members[i].types[0] && type != members[i].types[1])
            return find_fault(v->report, "not an entry: `%s` is of another type", members[i].key);
    }
    return key == SP_JSON_NONE ||
           find_fault(v->report, "not an entry: there is more behind `prev`");
}

static bool check_chain(struct verifying *v)
{
    const struct sp_str seq = sp_json_raw(&v->json, sp_json_get(&v->json, 0, "seq"));
    const struct sp_str prev = sp_json_str(&v->json, sp_json_get(&v->json, 0, "prev"));
    uint64_t number;

    if (!sp_str_to_u64(seq, UINT64_MAX, &number) || number != v->report->entries + 1)
        return find_fault(v->report, "out of sequence: `seq` is " SP_STR_FMT ", not %llu",
                          SP_STR_ARG(seq), (unsigned long long)v->report->entries + 1);
    if (!sp_str_eq(prev, sp_str_of(v->report->last)))
        return find_fault(v->report,
                          "does not chain: the line before it is not the one it followed");
    return true;
}

/* The bytes are changed in place. */
static bool check_line(struct verifying *v, char *line, size_t n)
{
    char hash[SP_AUDIT_HASH + 1];
    struct sp_err e = {0};

    sp_audit_hash((struct sp_str){line, n}, hash);
    if (sp_json_parse(&v->json, line, n, &e) < 0)
        return find_fault(v->report, "not JSON: %.150s", e.msg);
    if (!check_members(v) || !check_chain(v))
        return false;
    v->report->entries++;
    memcpy(v->report->last, hash, sizeof hash);
    return true;
}

/* ---- all lines ---- */

/* The whole lines of what was read; what is left stays in the buffer. */
static bool check_lines(struct verifying *v, struct sp_buf *text)
{
    size_t at = 0;

    for (;;) {
        char *lf = text->len == at ? NULL : memchr(text->data + at, '\n', text->len - at);

        if (lf == NULL)
            break;
        const size_t n = (size_t)(lf - text->data) - at;
        if (!check_line(v, text->data + at, n))
            return false;
        at += n + 1;
    }
    sp_buf_drop(text, at);
    return text->len <= SP_AUDIT_MAX_LINE ||
           find_fault(v->report, "a line of more than %u bytes", SP_AUDIT_MAX_LINE);
}

static int verify(int fd, const char *path, struct verifying *v, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    for (;;) {
        char *room = sp_buf_room(&text, CHUNK);
        const ssize_t n = room == NULL ? -1 : read(fd, room, CHUNK);

        if (room == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
        if (n == 0)
            break;
        text.len += (size_t)n;
        if (!check_lines(v, &text))
            return 0;
    }
    if (text.len > 0)
        (void)find_fault(v->report, "cut off: the line has no end");
    return 0;
}

int sp_audit_verify(const char *path, struct sp_audit_report *ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct sp_audit_report report = {0};
    struct verifying v = {.report = &report};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
    if (!S_ISREG(st.st_mode))
        return sp_fail(e, SP_E_INVALID, 0, "read %s: it is not a regular file", path);
    sp_locked_share(fd);
    memset(report.last, '0', SP_AUDIT_HASH);
    const int r = verify(fd, path, &v, e);
    sp_json_done(&v.json);
    if (r == 0)
        *ret = report;
    return r;
}
