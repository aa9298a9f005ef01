/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: one line for each decision, and the verification of a log.
 *
 * `seq` and `prev` of a new line come from the last line of the file, which is read under the same
 * lock under which the new line is written.
 */
#include "approve/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/locked.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sha.h"

#define HASH        64          /* characters of a hash in hex */
#define MAX_LINE    (16U << 20) /* bytes */
#define MAX_COMMAND 65536       /* bytes of JSON; a longer command is replaced by its hash */
#define CHUNK       65536       /* bytes read at a time */

/* ---- writing a line ---- */

/* Replaces what was added behind `from` by its hash if it is long. */
static bool shorten(struct sp_buf *out, size_t from)
{
    const size_t n = out->len - from;
    char hash[HASH + 1];

    if (n <= MAX_COMMAND)
        return true;
    sp_sha256_hex((struct sp_str){out->data + from, n}, hash);
    out->len = from;
    return sp_buf_printf(out, "{\"sha256\":\"%s\",\"bytes\":%zu}", hash, n);
}

static bool add_time(struct sp_buf *out)
{
    const uint64_t ms = sp_clock_read_ns(CLOCK_REALTIME) / 1000000;
    const time_t now = (time_t)(ms / 1000);
    struct tm t;
    char text[32];

    if (gmtime_r(&now, &t) == NULL || strftime(text, sizeof text, "%FT%T", &t) == 0)
        return false;
    return sp_buf_printf(out, "\"%s.%03uZ\"", text, (unsigned)(ms % 1000));
}

static bool add_policy(struct sp_buf *out, const struct sp_approval_policy *p)
{
    static const char *const names[] = {
#define X(name, wire, text) wire,
        SP_APPROVALS(X)
#undef X
    };
    static const char *const text[] = {"false", "true"};

    if (p == NULL)
        return sp_buf_add(out, "\"\"", 2);
    if (p->kind != SP_APPROVAL_GRANULAR)
        return sp_json_add_str(out, sp_str_of(names[p->kind]));
    return sp_buf_printf(out,
                         "{\"granular\":{\"sandbox_approval\":%s,\"rules\":%s,"
                         "\"skill_approval\":%s,\"request_permissions\":%s,"
                         "\"mcp_elicitations\":%s}}",
                         text[p->sandbox_approval], text[p->rules], text[p->skill_approval],
                         text[p->request_permissions], text[p->mcp_elicitations]);
}

static bool add_receipt(struct sp_buf *out, const struct sp_audit_entry *entry, uint64_t seq,
                        const char *prev)
{
    return sp_buf_printf(out, "{\"seq\":%llu,\"time\":", (unsigned long long)seq) &&
           add_time(out) && sp_json_add_member(out, "call_id", entry->call_id) &&
           sp_json_add_member(out, "environment", entry->environment) &&
           sp_json_add_key(out, "receipt") &&
           sp_receipt_add(out, entry->receipt, SP_RECEIPT_SNAKE) &&
           sp_json_add_member(out, "prev", sp_str_of(prev)) && sp_buf_add(out, "}\n", 2);
}

static bool add_entry(struct sp_buf *out, const struct sp_audit_entry *entry, uint64_t seq,
                      const char *prev)
{
    static const struct sp_rule_matches no_matches = {0};
    const struct sp_segments *s = entry->segments;
    size_t from;
    bool ok = sp_buf_printf(out, "{\"seq\":%llu,\"time\":", (unsigned long long)seq) &&
              add_time(out) && sp_json_add_member(out, "call_id", entry->call_id) &&
              sp_json_add_member(out, "environment", entry->environment) &&
              sp_json_add_member(out, "cwd", entry->cwd) && sp_json_add_key(out, "command");

    from = out->len;
    ok = ok && sp_words_add_json(out, entry->command) && shorten(out, from) &&
         sp_json_add_key(out, "segments");
    from = out->len;
    ok = ok && sp_buf_add(out, "[", 1);
    for (uint32_t i = 0; ok && s != NULL && i < s->count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_words_add_json(out, s->items[i]);
    ok = ok && sp_buf_add(out, "]", 1) && shorten(out, from) && sp_json_add_key(out, "matches");
    from = out->len;
    ok = ok &&
         sp_rule_matches_add_json(out, entry->matches == NULL ? &no_matches : entry->matches,
                                  SP_MATCHES_LIST) &&
         shorten(out, from);
    return ok && sp_json_add_key(out, "policy") && add_policy(out, entry->policy) &&
           sp_json_add_member(out, "requirement", sp_str_of(entry->requirement)) &&
           sp_json_add_member(out, "decision", sp_str_of(entry->decision)) &&
           sp_json_add_member(out, "decided_by", sp_str_of(entry->decided_by)) &&
           sp_json_add_key(out, "attempts") &&
           (entry->attempt == NULL ? sp_buf_add(out, "[]", 2)
                                   : sp_buf_printf(out, "[\"%s\"]", entry->attempt)) &&
           sp_json_add_member(out, "prev", sp_str_of(prev)) && sp_buf_add(out, "}\n", 2);
}

/* ---- the last line ---- */

static int read_at(int fd, char *to, size_t n, off_t at)
{
    while (n > 0) {
        const ssize_t got = pread(fd, to, n, at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EIO;
        to += got;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

/* Where the last line begins; its own LF, the last byte, does not count. */
static int find_last_line(int fd, off_t size, off_t *ret)
{
    char chunk[4096];
    off_t end = size - 1;

    while (end > 0) {
        const size_t n = end < (off_t)sizeof chunk ? (size_t)end : sizeof chunk;
        const int sys = read_at(fd, chunk, n, end - (off_t)n);

        if (sys != 0)
            return sys;
        const char *lf = memrchr(chunk, '\n', n);
        if (lf != NULL) {
            *ret = end - (off_t)n + (lf - chunk) + 1;
            return 0;
        }
        end -= (off_t)n;
        if (size - end > (off_t)MAX_LINE)
            return EFBIG;
    }
    *ret = 0;
    return 0;
}

static bool read_seq(struct sp_str line, uint64_t *ret)
{
    if (!sp_str_skip_prefix(&line, SP_STR("{\"seq\":")) || line.n == 0)
        return false;
    const char *comma = memchr(line.p, ',', line.n);
    return comma != NULL &&
           sp_str_to_u64((struct sp_str){line.p, (size_t)(comma - line.p)}, UINT64_MAX - 1, ret);
}

static int fail_log(const char *path, int sys, struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "%s", path);
}

/* The number and the hash of the last entry. */
static int read_last(int fd, const char *path, off_t size, uint64_t *ret_seq,
                     char ret_hash[HASH + 1], struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    off_t at = 0;

    *ret_seq = 0;
    memset(ret_hash, '0', HASH);
    ret_hash[HASH] = 0;
    if (size == 0)
        return 0;
    int sys = find_last_line(fd, size, &at);
    const size_t n = (size_t)(size - at);
    if (sys == 0 && sp_buf_room(&line, n) == NULL)
        sys = ENOMEM;
    if (sys == 0)
        sys = read_at(fd, line.data, n, at);
    if (sys != 0)
        return fail_log(path, sys, e);
    const struct sp_str text = {line.data, n - 1};
    if (line.data[n - 1] != '\n' || !read_seq(text, ret_seq))
        return sp_fail(e, SP_E_STATE, 0,
                       "%s: its last line is not a whole entry; move the file away to begin a new "
                       "one, or see `sallyport audit verify`",
                       path);
    sp_sha256_hex(text, ret_hash);
    return 0;
}

/* ---- appending ---- */

/*
 * SIGKILL may stop a write in the middle. The rest of that entry, which nothing was done upon, is
 * cut off: else no decision could be noted any more. Only the beginning of the entry that is due
 * is; another file without an end is left alone (read_last refuses it).
 */
static int cut_torn_tail(int fd, const char *path, off_t *size, struct sp_err *e)
{
    char prev[HASH + 1];
    char due[40];
    char tail[sizeof due];
    char last = '\n';
    uint64_t seq = 0;
    off_t at = 0;

    int sys = *size == 0 ? 0 : read_at(fd, &last, 1, *size - 1);
    if (sys == 0 && last == '\n')
        return 0;
    if (sys == 0)
        sys = find_last_line(fd, *size, &at);
    if (sys != 0)
        return fail_log(path, sys, e);
    if (at > 0 && read_last(fd, path, at, &seq, prev, NULL) < 0)
        return 0;
    const size_t n =
        (size_t)snprintf(due, sizeof due, "{\"seq\":%llu,", (unsigned long long)seq + 1);
    const off_t length = *size - at;
    const size_t m = length < (off_t)n ? (size_t)length : n;
    if (read_at(fd, tail, m, at) != 0 || memcmp(tail, due, m) != 0)
        return 0;
    if (ftruncate(fd, at) < 0)
        return fail_log(path, errno, e);
    sp_log(SP_LOG_WARN, "audit log %s: entry %llu was cut off when its writer was killed; removed",
           path, (unsigned long long)seq + 1);
    *size = at;
    return 0;
}

int sp_audit_append(const char *path, const struct sp_audit_entry *entry, struct sp_err *e)
{
    auto_close int fd = sp_locked_open(AT_FDCWD, path);

    if (fd == -ENOENT) { /* create the directory of the log, but not its parents */
        auto_free char *folder = strdup(path);
        char *slash = folder == NULL ? NULL : strrchr(folder, '/');

        if (slash != NULL && slash != folder) {
            *slash = 0;
            (void)mkdir(folder, 0700);
        }
        fd = sp_locked_open(AT_FDCWD, path);
    }
    if (fd < 0)
        return fail_log(path, -fd, e);
    auto_buf struct sp_buf line = {.max = MAX_LINE};
    char prev[HASH + 1];
    uint64_t seq = 0;
    struct stat st;

    /* The log is ours alone, even if another process made it or changed its mode. */
    if (fstat(fd, &st) < 0 || ((st.st_mode & 077) != 0 && fchmod(fd, 0600) < 0))
        return fail_log(path, errno, e);
    int r = cut_torn_tail(fd, path, &st.st_size, e);
    if (r == 0)
        r = read_last(fd, path, st.st_size, &seq, prev, e);
    if (r < 0)
        return r;
    if (!(entry->receipt != NULL ? add_receipt : add_entry)(&line, entry, seq + 1, prev))
        return fail_log(path, ENOMEM, e);
    const ssize_t n = write(fd, line.data, line.len);
    if (n == (ssize_t)line.len)
        return 0;
    const int sys = n < 0 ? errno : ENOSPC;
    if (n > 0 && ftruncate(fd, st.st_size) < 0) /* half a line would end the log for good */
        return fail_log(path, errno, e);
    return fail_log(path, sys, e);
}

/* ---- verification: each line parses, follows in number, and names the line before it ---- */

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

struct member {
    const char *key;
    enum sp_json_type types[2];
};

static const struct member receipt_members[] = {
    {"seq", {SP_JSON_INT, SP_JSON_UINT}},
    {"time", {SP_JSON_STRING, SP_JSON_STRING}},
    {"call_id", {SP_JSON_STRING, SP_JSON_STRING}},
    {"environment", {SP_JSON_STRING, SP_JSON_STRING}},
    {"receipt", {SP_JSON_OBJECT, SP_JSON_OBJECT}},
    {"prev", {SP_JSON_STRING, SP_JSON_STRING}},
};

static const struct member decision_members[] = {
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

/* Every member in its order, without extra members; the number and the hash that are due. Parsing
 * changes the bytes in place, so the hash is taken first. */
static bool check_line(struct verifying *v, char *line, size_t n)
{
    struct sp_audit_report *to = v->report;
    struct sp_json *j = &v->json;
    char hash[HASH + 1];
    struct sp_err e = {0};
    uint64_t number;

    sp_sha256_hex((struct sp_str){line, n}, hash);
    if (sp_json_parse(j, line, n, &e) < 0)
        return find_fault(to, "not JSON: %.150s", e.msg);
    uint32_t key = sp_json_type(j, 0) == SP_JSON_OBJECT ? sp_json_first(j, 0) : SP_JSON_NONE;
    const bool is_receipt = key != SP_JSON_NONE && sp_json_get(j, 0, "receipt") != SP_JSON_NONE;
    const struct member *members = is_receipt ? receipt_members : decision_members;
    const size_t count = is_receipt ? sizeof receipt_members / sizeof *receipt_members
                                    : sizeof decision_members / sizeof *decision_members;
    for (size_t i = 0; i < count; i++, key = sp_json_next(j, 0, key)) {
        if (key == SP_JSON_NONE || !sp_str_eq(sp_json_str(j, key), sp_str_of(members[i].key)))
            return find_fault(to, "not an entry: `%s` is not in its place", members[i].key);
        const enum sp_json_type type = sp_json_type(j, key + 1);
        if (type != members[i].types[0] && type != members[i].types[1])
            return find_fault(to, "not an entry: `%s` is of another type", members[i].key);
    }
    if (key != SP_JSON_NONE)
        return find_fault(to, "not an entry: there is more behind `prev`");
    const struct sp_str seq = sp_json_raw(j, sp_json_get(j, 0, "seq"));
    if (!sp_str_to_u64(seq, UINT64_MAX, &number) || number != to->entries + 1)
        return find_fault(to, "out of sequence: `seq` is " SP_STR_FMT ", not %llu", SP_STR_ARG(seq),
                          (unsigned long long)to->entries + 1);
    if (!sp_str_eq(sp_json_str(j, sp_json_get(j, 0, "prev")), sp_str_of(to->last)))
        return find_fault(to, "does not chain: the line before it is not the one it followed");
    to->entries++;
    memcpy(to->last, hash, sizeof hash);
    return true;
}

static int verify_lines(int fd, const char *path, struct verifying *v, struct sp_err *e)
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

        /* Complete lines are checked; the rest stays in the buffer. */
        size_t at = 0;
        for (const char *lf; (lf = memchr(text.data + at, '\n', text.len - at)) != NULL;) {
            const size_t length = (size_t)(lf - text.data) - at;

            if (!check_line(v, text.data + at, length))
                return 0;
            at += length + 1;
        }
        sp_buf_drop(&text, at);
        if (text.len > MAX_LINE) {
            (void)find_fault(v->report, "a line of more than %u bytes", MAX_LINE);
            return 0;
        }
    }
    if (text.len > 0)
        (void)find_fault(v->report, "cut off: the line has no end; the next entry replaces it");
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
    memset(report.last, '0', HASH);
    const int r = verify_lines(fd, path, &v, e);
    sp_json_done(&v.json);
    if (r == 0)
        *ret = report;
    return r;
}
