/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: a line about each decision. Its `seq` and `prev` come from the last line of the file,
 * which is read under the same lock under which the new one is written.
 */
#include "approve/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "approve/audit_priv.h"
#include "approve/locked.h"
#include "base/auto.h"
#include "base/json.h"
#include "base/sha.h"

#define MAX_COMMAND 65536 /* bytes of JSON; a longer one is told by its hash */
#define CHUNK       4096

void sp_audit_hash(struct sp_str line, char ret[SP_AUDIT_HASH + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[32];

    sp_sha256(line, hash);
    for (size_t i = 0; i < sizeof hash; i++) {
        ret[2 * i] = digits[hash[i] >> 4];
        ret[2 * i + 1] = digits[hash[i] & 15];
    }
    ret[SP_AUDIT_HASH] = 0;
}

/* ---- the line ---- */

static bool add_words(struct sp_buf *out, struct sp_words words)
{
    bool is_good = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < words.count; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words.items[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

static bool add_segments(struct sp_buf *out, const struct sp_segments *s)
{
    bool is_good = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && s != NULL && i < s->count; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) && add_words(out, s->items[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

/* What is behind `from` was added last; if it is long, its hash takes its place. */
static bool shorten(struct sp_buf *out, size_t from)
{
    const size_t n = out->len - from;
    char hash[SP_AUDIT_HASH + 1];

    if (n <= MAX_COMMAND)
        return true;
    sp_audit_hash((struct sp_str){out->data + from, n}, hash);
    out->len = from;
    return sp_buf_printf(out, "{\"sha256\":\"%s\",\"bytes\":%zu}", hash, n);
}

static bool add_time(struct sp_buf *out)
{
    struct timespec now;
    struct tm t;
    char text[32];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &t) == NULL || strftime(text, sizeof text, "%FT%T", &t) == 0)
        return false;
    return sp_buf_printf(out, "\"%s.%03ldZ\"", text, now.tv_nsec / 1000000);
}

static const char *word(bool b)
{
    return b ? "true" : "false";
}

static bool add_policy(struct sp_buf *out, const struct sp_approval_policy *p)
{
    static const char *const names[] = {
#define X(name, wire, text) wire,
        SP_APPROVALS(X)
#undef X
    };

    if (p == NULL)
        return sp_buf_add(out, "\"\"", 2);
    if (p->kind != SP_APPROVAL_GRANULAR)
        return sp_json_add_str(out, sp_str_of(names[p->kind]));
    return sp_buf_printf(out,
                         "{\"granular\":{\"sandbox_approval\":%s,\"rules\":%s,"
                         "\"skill_approval\":%s,\"request_permissions\":%s,"
                         "\"mcp_elicitations\":%s}}",
                         word(p->sandbox_approval), word(p->rules), word(p->skill_approval),
                         word(p->request_permissions), word(p->mcp_elicitations));
}

static bool add_key(struct sp_buf *out, const char *key)
{
    return sp_buf_printf(out, ",\"%s\":", key);
}

static bool add_text(struct sp_buf *out, const char *key, struct sp_str text)
{
    return add_key(out, key) && sp_json_add_str(out, text);
}

static bool add_command(struct sp_buf *out, const struct sp_audit_entry *entry)
{
    if (!add_key(out, "command"))
        return false;
    size_t from = out->len;
    if (!add_words(out, entry->command) || !shorten(out, from) || !add_key(out, "segments"))
        return false;
    from = out->len;
    return add_segments(out, entry->segments) && shorten(out, from);
}

static bool add_matches(struct sp_buf *out, const struct sp_rule_matches *m)
{
    static const struct sp_rule_matches none = {0};
    bool is_good = add_key(out, "matches");
    const size_t from = out->len;

    return is_good && sp_rule_matches_add_json(out, m == NULL ? &none : m) && shorten(out, from);
}

static bool add_entry(struct sp_buf *out, const struct sp_audit_entry *entry, uint64_t seq,
                      const char *prev)
{
    const char *attempt = entry->attempt;

    return sp_buf_printf(out, "{\"seq\":%llu,\"time\":", (unsigned long long)seq) &&
           add_time(out) && add_text(out, "call_id", entry->call_id) &&
           add_text(out, "environment", entry->environment) && add_text(out, "cwd", entry->cwd) &&
           add_command(out, entry) && add_matches(out, entry->matches) && add_key(out, "policy") &&
           add_policy(out, entry->policy) &&
           add_text(out, "requirement", sp_str_of(entry->requirement)) &&
           add_text(out, "decision", sp_str_of(entry->decision)) &&
           add_text(out, "decided_by", sp_str_of(entry->decided_by)) && add_key(out, "attempts") &&
           (attempt == NULL ? sp_buf_add(out, "[]", 2) : sp_buf_printf(out, "[\"%s\"]", attempt)) &&
           add_text(out, "prev", sp_str_of(prev)) && sp_buf_add(out, "}\n", 2);
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

/* Where the last line begins; the last byte, its LF, does not count. */
static int find_last_line(int fd, off_t size, off_t *ret)
{
    char chunk[CHUNK];
    off_t end = size - 1;

    while (end > 0) {
        const size_t n = end < CHUNK ? (size_t)end : CHUNK;
        const int sys = read_at(fd, chunk, n, end - (off_t)n);

        if (sys != 0)
            return sys;
        const char *lf = memrchr(chunk, '\n', n);
        if (lf != NULL) {
            *ret = end - (off_t)n + (lf - chunk) + 1;
            return 0;
        }
        end -= (off_t)n;
        if (size - end > (off_t)SP_AUDIT_MAX_LINE)
            return EFBIG;
    }
    *ret = 0;
    return 0;
}

static bool read_seq(struct sp_str line, uint64_t *ret)
{
    const struct sp_str head = SP_STR("{\"seq\":");

    if (line.n <= head.n || memcmp(line.p, head.p, head.n) != 0)
        return false;
    const char *comma = memchr(line.p, ',', line.n);
    return comma != NULL &&
           sp_str_to_u64((struct sp_str){line.p + head.n, (size_t)(comma - line.p) - head.n},
                         UINT64_MAX - 1, ret);
}

static int fail(const char *path, int sys, struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "%s", path);
}

static int fail_broken(const char *path, struct sp_err *e)
{
    return sp_fail(e, SP_E_STATE, 0,
                   "%s: its last line is not a whole entry; move the file away to begin a new one, "
                   "or see `sallyport audit verify`",
                   path);
}

/* What a new entry follows: the number and the hash of the last one. */
static int read_last(int fd, const char *path, off_t size, uint64_t *ret_seq,
                     char ret_hash[SP_AUDIT_HASH + 1], struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    off_t at = 0;

    *ret_seq = 0;
    memset(ret_hash, '0', SP_AUDIT_HASH);
    ret_hash[SP_AUDIT_HASH] = 0;
    if (size == 0)
        return 0;
    int sys = find_last_line(fd, size, &at);
    const size_t n = (size_t)(size - at);
    if (sys == 0 && sp_buf_room(&line, n) == NULL)
        sys = ENOMEM;
    if (sys == 0)
        sys = read_at(fd, line.data, n, at);
    if (sys != 0)
        return fail(path, sys, e);
    const struct sp_str text = {line.data, n - 1};
    if (line.data[n - 1] != '\n' || !read_seq(text, ret_seq))
        return fail_broken(path, e);
    sp_audit_hash(text, ret_hash);
    return 0;
}

/* ---- appending ---- */

/* Ours alone, also if somebody else made it or opened it up. */
static int check_mode(int fd, const char *path, off_t *ret_size, struct sp_err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || ((st.st_mode & 077) != 0 && fchmod(fd, 0600) < 0))
        return fail(path, errno, e);
    *ret_size = st.st_size;
    return 0;
}

static int append(int fd, const char *path, const struct sp_audit_entry *entry, struct sp_err *e)
{
    auto_buf struct sp_buf line = {.max = SP_AUDIT_MAX_LINE};
    char prev[SP_AUDIT_HASH + 1];
    uint64_t seq = 0;
    off_t size = 0;
    int r = check_mode(fd, path, &size, e);

    if (r == 0)
        r = read_last(fd, path, size, &seq, prev, e);
    if (r < 0)
        return r;
    if (!add_entry(&line, entry, seq + 1, prev))
        return fail(path, ENOMEM, e);
    const ssize_t n = write(fd, line.data, line.len);
    if (n == (ssize_t)line.len)
        return 0;
    const int sys = n < 0 ? errno : ENOSPC;
    if (n > 0 && ftruncate(fd, size) < 0) /* half a line would be the last there is */
        return fail(path, errno, e);
    return fail(path, sys, e);
}

/* The folder of the log is made if its own is there. */
static void make_folder(const char *path)
{
    auto_free char *folder = strdup(path);
    char *slash = folder == NULL ? NULL : strrchr(folder, '/');

    if (slash == NULL || slash == folder)
        return;
    *slash = 0;
    (void)mkdir(folder, 0700); /* whether it is there is seen when the log is opened */
}

int sp_audit_append(const char *path, const struct sp_audit_entry *entry, struct sp_err *e)
{
    auto_close int fd = sp_locked_open(AT_FDCWD, path);

    if (fd == -ENOENT) {
        make_folder(path);
        fd = sp_locked_open(AT_FDCWD, path);
    }
    if (fd < 0)
        return fail(path, -fd, e);
    return append(fd, path, entry, e);
}
