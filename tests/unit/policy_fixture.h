/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_fixture: texts in, policies out, and policies told in a line, so that a test says the
 * whole outcome.
 */
#ifndef SP_POLICY_FIXTURE_H
#define SP_POLICY_FIXTURE_H

#include "base/buf.h"
#include "base/json.h"
#include "sandbox/policy_json.h"
#include "test.h"

#define RESTRICTED(entries)                                                                \
    "{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[" entries \
    "]},\"network\":\"restricted\"}"
#define SPECIAL(value)      "{\"type\":\"special\",\"value\":{" value "}}"
#define KIND(kind)          SPECIAL("\"kind\":\"" kind "\"")
#define ENTRY(path, access) "{\"path\":" path ",\"access\":\"" access "\"}"
#define LITERAL(path)       "{\"type\":\"path\",\"path\":\"" path "\"}"
#define GLOB(pattern)       "{\"type\":\"glob_pattern\",\"pattern\":\"" pattern "\"}"
#define ONE(path)           RESTRICTED(ENTRY(path, "read"))

/* One parsed text: an exact copy on the heap, so that a read past its end is seen. */
struct doc {
    struct sp_json j;
    char *text;
};

static inline struct doc parse(const char *text)
{
    const struct sp_str s = sp_str_of(text);
    struct doc d = {.text = test_copy(s)};
    struct sp_err e = {0};

    if (sp_json_parse(&d.j, d.text, s.n, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    return d;
}

static inline void done(struct doc *d)
{
    sp_json_done(&d->j);
    free(d->text);
}

static inline int read_profile(const char *text, struct sp_profile *ret, struct sp_err *e)
{
    struct doc d = parse(text);
    const int r = sp_profile_read(&d.j, 0, ret, e);

    done(&d);
    return r;
}

static inline struct sp_profile profile_of(const char *text)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    if (read_profile(text, &p, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    return p;
}

static inline void tell_entry(struct sp_buf *out, const struct sp_entry *entry)
{
    static const char *const place[] = {
        [SP_PLACE_PATH] = "",           [SP_PLACE_GLOB] = "glob:",
        [SP_PLACE_ROOT] = "root",       [SP_PLACE_MINIMAL] = "minimal",
        [SP_PLACE_PROJECT] = "project", [SP_PLACE_TMPDIR] = "tmpdir",
        [SP_PLACE_SLASH_TMP] = "/tmp?", [SP_PLACE_UNKNOWN] = "unknown:",
    };
    static const char *const access[] = {
        [SP_ACCESS_DENY] = "deny", [SP_ACCESS_READ] = "read", [SP_ACCESS_WRITE] = "write"};
    const bool has_subpath = entry->place == SP_PLACE_PROJECT && entry->text != NULL;

    assert_true(sp_buf_printf(out, " %s%s%s%s%s=%s%s", place[entry->place], has_subpath ? "/" : "",
                              entry->text != NULL ? entry->text : "",
                              entry->subpath != NULL ? "|" : "",
                              entry->subpath != NULL ? entry->subpath : "", access[entry->access],
                              entry->skips_missing ? "~" : ""));
}

/* "managed net depth=3 root=read project/.git=read~ glob:*.env=deny" */
static inline char *tell(const struct sp_profile *p)
{
    static const char *const kind[] = {[SP_PROFILE_MANAGED] = "managed",
                                       [SP_PROFILE_DISABLED] = "disabled",
                                       [SP_PROFILE_EXTERNAL] = "external"};
    struct sp_buf out = {0};

    assert_true(sp_buf_printf(&out, "%s%s%s", kind[p->kind], p->is_unrestricted ? " open" : "",
                              p->has_network ? " net" : ""));
    if (p->glob_depth != 0)
        assert_true(sp_buf_printf(&out, " depth=%u", p->glob_depth));
    for (size_t i = 0; i < p->count; i++)
        tell_entry(&out, &p->entries[i]);
    assert_true(sp_buf_add(&out, "", 1));
    return out.data;
}

static inline void is_told(const struct sp_profile *p, const char *told)
{
    char *text = tell(p);

    assert_string_equal(text, told);
    free(text);
}

/* `times` times `unit`, with commas between, between `before` and `after`. */
static inline char *repeat(const char *before, const char *unit, size_t times, const char *after)
{
    struct sp_buf out = {0};

    assert_true(sp_buf_add_str(&out, sp_str_of(before)));
    for (size_t i = 0; i < times; i++)
        assert_true((i == 0 || sp_buf_add(&out, ",", 1)) && sp_buf_add_str(&out, sp_str_of(unit)));
    assert_true(sp_buf_add_str(&out, sp_str_of(after)) && sp_buf_add(&out, "", 1));
    return out.data;
}

/* before, then n times 'x', then after. */
static inline char *stretch(const char *before, size_t n, const char *after)
{
    struct sp_buf out = {0};

    assert_true(sp_buf_add_str(&out, sp_str_of(before)));
    for (size_t i = 0; i < n; i++)
        assert_true(sp_buf_add(&out, "x", 1));
    assert_true(sp_buf_add_str(&out, sp_str_of(after)) && sp_buf_add(&out, "", 1));
    return out.data;
}

#endif
