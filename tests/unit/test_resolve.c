/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "memory_fixture.h"
#include "profile_fixture.h"
#include "sandbox/resolve.h"

/* ---- paths ---- */

static void normalises(const char *path, const char *cwd, const char *want)
{
    char *got = sp_path_normalise(path, cwd);

    assert_non_null(got);
    assert_string_equal(got, want);
    free(got);
}

static void test_paths_are_normalised_lexically(void **state)
{
    (void)state;
    normalises("/", NULL, "/");
    normalises("//", NULL, "/");
    normalises("/.", NULL, "/");
    normalises("/..", NULL, "/");
    normalises("/../../etc", NULL, "/etc");
    normalises("/a//b/./c/", NULL, "/a/b/c");
    normalises("/a/b/../../c", NULL, "/c");
    normalises("/a/...", NULL, "/a/...");
    normalises("/a/..b/.c", NULL, "/a/..b/.c");
    normalises("/a", "/ignored", "/a");
    normalises("b", "/a", "/a/b");
    normalises(".", "/a/../c/", "/c");
    normalises("..", "/a/b", "/a");
    normalises("../../..", "/a", "/");
    normalises("x", "/", "/x");
}

static void test_what_has_no_absolute_form_is_refused(void **state)
{
    static const char *const try[][2] = {{"b", NULL}, {"", "/a"}, {"b", "rel"}, {"b", ""}};

    (void)state;
    for (size_t i = 0; i < sizeof try / sizeof try[0]; i++) {
        errno = 0;
        assert_null(sp_path_normalise(try[i][0], try[i][1]));
        assert_int_equal(errno, EINVAL);
    }
}

static void test_paths_are_compared_by_components(void **state)
{
    (void)state;
    assert_true(sp_path_is_in("/a/b", "/a"));
    assert_true(sp_path_is_in("/a", "/a"));
    assert_true(sp_path_is_in("/a", "/"));
    assert_true(sp_path_is_in("/", "/"));
    assert_false(sp_path_is_in("/", "/a"));
    assert_false(sp_path_is_in("/ab", "/a"));
    assert_false(sp_path_is_in("/a", "/a/b"));
}

/* ---- policies ---- */

/* cwd /w, workspace roots /w and /v, TMPDIR /t, home /h. */
static struct sp_policy policy_of(const char *line)
{
    struct sp_policy p = {.profile = profile_of(line),
                          .cwd = heap_text("/w"),
                          .tmpdir = heap_text("/t"),
                          .home = heap_text("/h")};

    assert_true(sp_policy_add_root(&p, SP_STR("/w")));
    assert_true(sp_policy_add_root(&p, SP_STR("/v")));
    return p;
}

static void drop_roots(struct sp_policy *p)
{
    while (p->root_count != 0)
        free(p->roots[--p->root_count]);
}

static struct sp_resolved resolve(const struct sp_policy *p)
{
    struct sp_resolved r = {0};
    struct sp_err e = {0};

    if (sp_resolve(p, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

static struct sp_resolved resolve_line(const char *line)
{
    struct sp_policy p = policy_of(line);
    const struct sp_resolved r = resolve(&p);

    sp_policy_done(&p);
    return r;
}

static void told(const struct sp_policy *p, const char *want)
{
    struct sp_resolved r = resolve(p);
    auto_buf struct sp_buf out = {0};

    assert_true(sp_buf_printf(&out, "%s", ""));
    for (size_t i = 0; i < r.count; i++)
        assert_true(sp_buf_printf(&out, "%s%zu:%s=%c%s%s", i == 0 ? "" : " ", r.facts[i].entry,
                                  r.facts[i].path, "drw"[r.facts[i].access],
                                  r.facts[i].skips_missing ? "?" : "",
                                  r.facts[i].is_minimal ? "m" : ""));
    for (size_t i = 0; i < r.glob_count; i++)
        assert_true(sp_buf_printf(&out, " %s", r.globs[i]));
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, want);
    sp_resolved_done(&r);
}

/* The facts as "entry:path=access", then the patterns. */
static void resolves_to(const char *line, const char *want)
{
    struct sp_policy p = policy_of(line);

    told(&p, want);
    sp_policy_done(&p);
}

static void refuses(const struct sp_policy *p, const char *why)
{
    struct sp_resolved r = {.glob_depth = 9};
    struct sp_err e = {0};

    assert_int_equal(sp_resolve(p, &r, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_int_equal(r.glob_depth, 9); /* untouched */
}

static void test_entries_become_facts_in_their_order(void **state)
{
    (void)state;
    resolves_to("", "");
    resolves_to("/b=w root=r /a=d", "0:/b=w 1:/=r 2:/a=d");
    resolves_to("project=w project:x/y=r?", "0:/w=w 0:/v=w 1:/w/x/y=r? 1:/v/x/y=r?");
    resolves_to("tmpdir=w unknown:x=w", "0:/t=w");
}

static void test_words_without_a_meaning_here_are_no_facts(void **state)
{
    struct sp_policy p =
        policy_of("tmpdir=w project=w project:.git=r glob:codex-project-roots://*=d");

    (void)state;
    p.tmpdir[0] = 't'; /* not absolute */
    drop_roots(&p);
    told(&p, "");
    p.tmpdir[0] = 0;
    told(&p, "");
    free(p.tmpdir);
    p.tmpdir = NULL;
    told(&p, "");
    p.cwd_is_root = true;
    told(&p, "1:/w=w 2:/w/.git=r /w/*");
    sp_policy_done(&p);
}

static void test_the_cwd_is_a_root_only_without_others(void **state)
{
    struct sp_policy p = policy_of("project=w");

    (void)state;
    p.cwd_is_root = true;
    told(&p, "0:/w=w 0:/v=w");
    drop_roots(&p);
    free(p.cwd);
    p.cwd = NULL;
    refuses(&p, "file system sandbox context with dynamic permissions requires cwd");
    sp_policy_done(&p);
}

static void test_a_relative_root_is_refused(void **state)
{
    struct sp_policy p = policy_of("project=w");

    (void)state;
    assert_true(sp_policy_add_root(&p, SP_STR("rel")));
    refuses(&p, "filesystem path `rel` is not absolute");
    sp_policy_done(&p);
    p = policy_of("project:x=w");
    assert_true(sp_policy_add_root(&p, SP_STR("rel")));
    refuses(&p, "filesystem path `rel` is not absolute");
    sp_policy_done(&p);
}

static void test_slash_tmp_is_there_if_it_is_a_directory(void **state)
{
    struct stat st;

    (void)state;
    resolves_to("slash_tmp=w", stat("/tmp", &st) == 0 && S_ISDIR(st.st_mode) ? "0:/tmp=w" : "");
}

/* ---- patterns ---- */

static void test_patterns_are_absolute_sorted_and_each_there_once(void **state)
{
    (void)state;
    resolves_to("glob:/b/*=d glob:/a/**=d glob:/b//*=d", " /a/** /b/*");
    resolves_to("glob:*.env=d", " /w/*.env");
    resolves_to("glob:../*.env=d", " /*.env");
    resolves_to("glob:~/.ssh/*=d glob:~=d glob:~x/*=d", " /h /h/.ssh/* /w/~x/*");
    resolves_to("glob:codex-project-roots://**/*.env=d", " /v/**/*.env /w/**/*.env");
    resolves_to("glob:/a/[x]/{b,c}/?=d", " /a/[x]/{b,c}/?");
}

static void test_a_directory_in_front_of_a_pattern_means_itself(void **state)
{
    struct sp_policy p = policy_of("glob:*.env=d glob:../y/*=d");

    (void)state;
    free(p.cwd);
    p.cwd = heap_text("/a*/[x]{1}?\\");
    told(&p, " /a\\*/\\[x\\]\\{1\\}\\?\\\\/*.env /a\\*/y/*");
    sp_policy_done(&p);
}

static void test_patterns_need_what_they_are_relative_to(void **state)
{
    struct sp_policy p = policy_of("glob:*.env=d");

    (void)state;
    free(p.cwd);
    p.cwd = NULL;
    refuses(&p, "file system sandbox context with dynamic permissions requires cwd");
    p.cwd = heap_text("rel");
    refuses(&p, "glob pattern `*.env` has no absolute directory");
    sp_policy_done(&p);

    p = policy_of("glob:~/x=d");
    free(p.home);
    p.home = NULL;
    refuses(&p, "glob pattern `~/x` needs a home directory");
    sp_policy_done(&p);

    p = policy_of("glob:codex-project-roots://*=d");
    drop_roots(&p);
    p.cwd_is_root = true;
    free(p.cwd);
    p.cwd = NULL;
    refuses(&p, "file system sandbox context with dynamic permissions requires cwd");
    sp_policy_done(&p);
}

static void test_a_pattern_does_not_climb_out_of_a_wildcard(void **state)
{
    struct sp_policy p = policy_of("glob:/a/**/../x=d");

    (void)state;
    refuses(&p, "glob pattern `/a/**/../x` has `..` behind a wildcard");
    sp_policy_done(&p);
    resolves_to("glob:/a/b/../*=d", " /a/*");
}

/* ---- access ---- */

static void answers(const char *line, const char *path, enum sp_access want)
{
    struct sp_resolved r = resolve_line(line);

    if (sp_resolved_access(&r, path, NULL) != want)
        fail_msg("%s: %s is not %c", line, path, "drw"[want]);
    sp_resolved_done(&r);
}

static void test_the_innermost_entry_decides(void **state)
{
    static const char line[] = "/repo=w /repo/a=d /repo/a/b=w";

    (void)state;
    answers(line, "/repo/x", SP_ACCESS_WRITE);
    answers(line, "/repo", SP_ACCESS_WRITE);
    answers(line, "/repo/a/x", SP_ACCESS_DENY);
    answers(line, "/repo/a", SP_ACCESS_DENY);
    answers(line, "/repo/a/b/x", SP_ACCESS_WRITE);
    answers(line, "/repo/a/b", SP_ACCESS_WRITE);
    answers(line, "/repo/ab", SP_ACCESS_WRITE);
    answers(line, "/repository", SP_ACCESS_DENY);
    answers(line, "/", SP_ACCESS_DENY);
    answers(line, "repo", SP_ACCESS_DENY);
    answers("root=r", "repo", SP_ACCESS_DENY);
    answers("", "/", SP_ACCESS_DENY);
}

static void test_among_equals_deny_counts_over_write_over_read(void **state)
{
    (void)state;
    answers("/a=r /a=w", "/a/x", SP_ACCESS_WRITE);
    answers("/a=w /a=r", "/a/x", SP_ACCESS_WRITE);
    answers("/a=d /a=w", "/a/x", SP_ACCESS_DENY);
    answers("/a=w /a=d", "/a/x", SP_ACCESS_DENY);
    answers("/a=r /a=d", "/a/x", SP_ACCESS_DENY);
    answers("root=d /=w", "/x", SP_ACCESS_DENY);
    answers("project=w /w=d", "/w/x", SP_ACCESS_DENY);
}

static void test_patterns_take_no_part(void **state)
{
    (void)state;
    answers("root=r glob:/a/*=d", "/a/x", SP_ACCESS_READ);
}

static void test_the_reason_is_told(void **state)
{
    struct sp_resolved r = resolve_line("root=r /a=w /a=d");
    const struct sp_fact *why = NULL;

    (void)state;
    assert_int_equal(sp_resolved_access(&r, "/a/x", &why), SP_ACCESS_DENY);
    assert_ptr_equal(why, &r.facts[2]);
    assert_int_equal(sp_resolved_access(&r, "/b", &why), SP_ACCESS_READ);
    assert_ptr_equal(why, &r.facts[0]);
    assert_int_equal(sp_resolved_access(&r, "b", &why), SP_ACCESS_DENY);
    assert_null(why);
    sp_resolved_done(&r);
}

static void test_what_is_not_restricted_is_open(void **state)
{
    static const struct sp_profile open[] = {
        {.kind = SP_PROFILE_DISABLED}, {.kind = SP_PROFILE_EXTERNAL}, {.is_unrestricted = true}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct sp_policy p = {.profile = open[i]};
        struct sp_resolved r = resolve(&p);
        const struct sp_fact *why = NULL;

        assert_true(r.is_open && r.is_full_read && r.is_full_write);
        assert_false(r.wants_minimal || r.has_denied_reads);
        assert_int_equal(sp_resolved_access(&r, "/x", &why), SP_ACCESS_WRITE);
        assert_true(sp_resolved_can_write(&r, "/x/.git/y", &why, NULL));
        assert_null(why);
        sp_resolved_done(&r);
    }
}

/* ---- derived facts ---- */

/* r: full read, w: full write, m: minimal wanted, d: denied reads */
static void reaches(const char *line, const char *want)
{
    struct sp_resolved r = resolve_line(line);
    char got[8];

    (void)snprintf(got, sizeof got, "%s%s%s%s", r.is_full_read ? "r" : "",
                   r.is_full_write ? "w" : "", r.wants_minimal ? "m" : "",
                   r.has_denied_reads ? "d" : "");
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s instead of %s", line, got, want);
    assert_false(r.is_open);
    sp_resolved_done(&r);
}

static void test_full_read_is_a_readable_root_and_no_denial(void **state)
{
    (void)state;
    reaches("", "");
    reaches("root=r", "r");
    reaches("/=r", ""); /* the path is not the word */
    reaches("root=r /x=w", "r");
    reaches("root=r /x=d", "d");
    reaches("root=r glob:/x/*=d", "d");
    reaches("root=r root=d", "d");
    reaches("root=r unknown:x=d", "d");
    reaches("root=r tmpdir=d", "d");
    reaches("/x=d", "d");
}

static void test_full_write_is_a_writable_root_and_nothing_narrower(void **state)
{
    (void)state;
    reaches("root=w", "rw");
    reaches("/=w", "");
    reaches("root=w /x=w", "rw");
    reaches("root=w /x=r", "r");
    reaches("root=w /x=r /x=w", "rw"); /* the same target, and write counts more */
    reaches("/x=w root=w /x=r", "rw");
    reaches("root=w /x=r /y=w", "r");
    reaches("root=w /x=r /x/y=w", "r");
    reaches("root=w /x=d /x=w", "d"); /* it does not count more than deny */
    reaches("root=w root=d", "d");
    reaches("root=w root=r", "rw");
    reaches("root=w /=r", "rw");
    reaches("root=w /=d", "d");
    reaches("root=w glob:/x/*=d", "d");
    reaches("root=w project=r", "r");
    reaches("root=w project=r project=w", "rw");
    reaches("root=w project=r project:a=w", "r");
    reaches("root=w project:a=r project:a=w", "rw");
    reaches("root=w tmpdir=r", "r");
    reaches("root=w tmpdir=r tmpdir=w", "rw");
    reaches("root=w tmpdir=r project=w", "r");
    reaches("root=w slash_tmp=r /tmp=w", "rw");
    reaches("root=w /tmp=r slash_tmp=w", "rw");
    reaches("root=w minimal=r", "rw");
    reaches("root=w unknown:x=r", "rw");
    reaches("root=w unknown:x=d", "wd");
    reaches("root=w minimal=d", "wd");
}

static void test_defaults_are_wanted_where_not_all_is_readable(void **state)
{
    (void)state;
    reaches("minimal=r", "m");
    reaches("minimal=w", "m");
    reaches("minimal=d", "d");
    reaches("root=r minimal=r", "r");
    reaches("root=r minimal=r /x=d", "md");
}

/* ---- minimal ---- */

static void test_minimal_is_what_there_is_of_the_platform(void **state)
{
    struct sp_resolved r = resolve_line("/x=w minimal=w minimal=r");
    struct stat st;

    (void)state;
    assert_true(r.count > 1);
    for (size_t i = 1; i < r.count; i++) {
        assert_int_equal(stat(r.facts[i].path, &st), 0);
        assert_true(S_ISDIR(st.st_mode));
        assert_int_equal(r.facts[i].access, SP_ACCESS_READ);
        assert_true(r.facts[i].is_minimal);
        assert_int_equal(r.facts[i].entry, 1); /* the second says the same */
        for (size_t k = 1; k < i; k++)
            assert_string_not_equal(r.facts[i].path, r.facts[k].path);
    }
    sp_resolved_done(&r);
    answers("minimal=r", "/usr/bin/env", SP_ACCESS_READ);
    answers("minimal=r", "/home", SP_ACCESS_DENY);
    answers("minimal=r", "/", SP_ACCESS_DENY);
    answers("minimal=d", "/usr", SP_ACCESS_DENY);
}

static void test_a_default_takes_nothing_away_and_reopens_nothing(void **state)
{
    (void)state;
    answers("root=w minimal=r", "/usr/x", SP_ACCESS_WRITE);
    answers("minimal=r root=w /x=d", "/usr/x", SP_ACCESS_WRITE);
    answers("root=r minimal=r", "/usr/x", SP_ACCESS_READ);
    answers("/usr=w minimal=r", "/usr/x", SP_ACCESS_WRITE);
    answers("/usr=d minimal=r", "/usr/x", SP_ACCESS_DENY);
    answers("minimal=r /usr/share=d", "/usr/share/x", SP_ACCESS_DENY);
    answers("minimal=r /usr/local=w", "/usr/local/x", SP_ACCESS_WRITE);
    answers("root=d minimal=r", "/usr/x", SP_ACCESS_READ); /* a denied root is the gap itself */
    answers("root=d minimal=r", "/home", SP_ACCESS_DENY);
}

/* ---- protected names ---- */

/* name: the protected name that is the reason, or NULL */
static void writes(const char *line, const char *path, bool want, const char *name)
{
    struct sp_resolved r = resolve_line(line);
    const char *got = "untouched";

    if (sp_resolved_can_write(&r, path, NULL, &got) != want)
        fail_msg("%s: %s", line, path);
    if (name == NULL)
        assert_null(got);
    else
        assert_string_equal(got, name);
    sp_resolved_done(&r);
}

static void test_nobody_plants_a_protected_name_in_a_writable_root(void **state)
{
    (void)state;
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++) {
        char path[64];

        (void)snprintf(path, sizeof path, "/repo/%s", sp_protected_names[i]);
        writes("/repo=w", path, false, sp_protected_names[i]);
        (void)snprintf(path, sizeof path, "/repo/%s/deep/x", sp_protected_names[i]);
        writes("/repo=w", path, false, sp_protected_names[i]);
        (void)snprintf(path, sizeof path, "/repo/sub/%s", sp_protected_names[i]);
        writes("/repo=w", path, true, NULL); /* the top level only */
        (void)snprintf(path, sizeof path, "/repo/%sx", sp_protected_names[i]);
        writes("/repo=w", path, true, NULL);
    }
    writes("/repo=w", "/repo", true, NULL);
    writes("/repo=w", "/other", false, NULL);
    writes("/repo=w /repo/sub=w", "/repo/sub/.git", false, ".git");
    writes("root=w /x=r", "/.git", false, ".git");
    writes("root=w /x=r", "/", true, NULL);
    writes("root=r project=w", "/v/.codex/x", false, ".codex");
    writes("slash_tmp=w tmpdir=w", "/t/.aws", false, ".aws");
}

static void test_an_entry_reopens_what_it_covers(void **state)
{
    (void)state;
    writes("/repo=w /repo/.git=w", "/repo/.git", true, NULL);
    writes("/repo=w /repo/.git=w", "/repo/.git/x", true, NULL);
    writes("/repo=w /repo/.git=w", "/repo/.codex", false, ".codex");
    writes("/repo=w /repo/.git/hooks=w", "/repo/.git/hooks/x", true, NULL);
    writes("/repo=w /repo/.git/hooks=w", "/repo/.git/config", false, ".git");
    writes("/repo=w /repo/.git/hooks=w", "/repo/.git", false, ".git");
    writes("/repo=w /repo/.git=w", "/repo/.git/.git", false, ".git"); /* a root of its own */
    writes("/repo=w /repo/.git=r", "/repo/.git/x", false, NULL);      /* the entry is the reason */
    writes("/repo=w /repo/.git=w /repo/.git=r", "/repo/.git/x", true, NULL);
    writes("/repo=w /repo/.git=w /repo/.git=d", "/repo/.git/x", false, NULL);
}

static void test_full_write_protects_no_names(void **state)
{
    (void)state;
    writes("root=w", "/repo/.git", true, NULL);
    writes("root=w", "/.git", true, NULL);
    writes("root=w /repo=w", "/repo/.git/x", true, NULL);
    writes("root=w minimal=r", "/usr/.git", true, NULL);
}

/* ---- against a simple account of the same rules ---- */

#define MAX_RANDOM 12

struct plain {
    char path[32];
    enum sp_access access;
};

static void random_path(uint64_t *seed, char *out, size_t size)
{
    static const char *const name[] = {"a", "b", "ab", ".git", ".aws"};
    size_t n = 0;

    out[0] = 0;
    for (uint32_t depth = test_random(seed) % 5; depth > 0; depth--)
        n += (size_t)snprintf(out + n, size - n, "/%s", name[test_random(seed) % 5]);
    if (n == 0)
        (void)snprintf(out, size, "/");
}

/* Component by component. */
static bool is_prefix(const char *dir, const char *path)
{
    while (*dir != 0) {
        const size_t n = strspn(dir, "/");
        const size_t m = strspn(path, "/");
        const size_t k = strcspn(dir + n, "/");

        if (k == 0)
            return true; /* the root, or the end */
        if (strcspn(path + m, "/") != k || memcmp(dir + n, path + m, k) != 0)
            return false;
        dir += n + k;
        path += m + k;
    }
    return true;
}

/* The number of components: 0 for "/". */
static size_t path_depth(const char *path)
{
    size_t depth = 0;

    for (; path[1] != 0; path++)
        depth += *path == '/';
    return depth;
}

static enum sp_access plain_access(const struct plain *e, size_t count, const char *path)
{
    for (size_t depth = 6; depth-- > 0;) { /* from the inside out */
        bool has[3] = {false, false, false};

        for (size_t i = 0; i < count; i++)
            if (path_depth(e[i].path) == depth && is_prefix(e[i].path, path))
                has[e[i].access] = true;
        if (has[SP_ACCESS_DENY])
            return SP_ACCESS_DENY;
        if (has[SP_ACCESS_WRITE])
            return SP_ACCESS_WRITE;
        if (has[SP_ACCESS_READ])
            return SP_ACCESS_READ;
    }
    return SP_ACCESS_DENY;
}

static bool is_reopened(const struct plain *e, size_t count, const char *name_path,
                        const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (e[i].access == SP_ACCESS_WRITE && is_prefix(name_path, e[i].path) &&
            is_prefix(e[i].path, path))
            return true;
    return false;
}

/* As 2.3 says it: every writable root, every name, every entry that may reopen it. */
static bool plain_can_write(const struct plain *e, size_t count, const char *path)
{
    if (plain_access(e, count, path) != SP_ACCESS_WRITE)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (e[i].access != SP_ACCESS_WRITE || plain_access(e, count, e[i].path) != SP_ACCESS_WRITE)
            continue;
        for (size_t k = 0; k < SP_PROTECTED_COUNT; k++) {
            char name_path[512];

            (void)snprintf(name_path, sizeof name_path, "%s/%s", e[i].path[1] == 0 ? "" : e[i].path,
                           sp_protected_names[k]);
            if (is_prefix(name_path, path) && !is_reopened(e, count, name_path, path))
                return false;
        }
    }
    return true;
}

static void compare_random(uint64_t *seed)
{
    struct plain plain[MAX_RANDOM];
    const size_t count = test_random(seed) % (MAX_RANDOM + 1);
    struct sp_policy p = {0};

    for (size_t i = 0; i < count; i++) {
        random_path(seed, plain[i].path, sizeof plain[i].path);
        plain[i].access = (enum sp_access)(test_random(seed) % 3);
        assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_PATH, plain[i].access, false,
                                        sp_str_of(plain[i].path), (struct sp_str){0}, NULL),
                         0);
    }
    struct sp_resolved r = resolve(&p);
    assert_int_equal(r.count, count);
    for (int i = 0; i < 20; i++) {
        char path[32];

        random_path(seed, path, sizeof path);
        assert_int_equal(sp_resolved_access(&r, path, NULL), plain_access(plain, count, path));
        assert_int_equal(sp_resolved_can_write(&r, path, NULL, NULL),
                         plain_can_write(plain, count, path));
    }
    sp_resolved_done(&r);
    sp_policy_done(&p);
}

static void test_random_policies_answer_as_the_rules_say(void **state)
{
    uint64_t seed = 20;

    (void)state;
    print_message("# seed %llu, 5000 policies, 100000 paths\n", (unsigned long long)seed);
    for (int round = 0; round < 5000; round++)
        compare_random(&seed);
}

/* The word `root` in every random company: full write is what it says. */
static void test_full_write_means_that_every_path_may_be_written(void **state)
{
    static const char *const word[] = {"root=w",    "root=r",    "root=d",     "/=r",  "/=w",
                                       "/a=r",      "/a=w",      "/a=d",       "/b=r", "minimal=r",
                                       "project=w", "project=r", "unknown:x=r"};
    static const char *const path[] = {"/", "/a", "/a/.git", "/b/x", "/usr", "/w/.git", "/v", "/c"};
    uint64_t seed = 21;
    int full = 0;

    (void)state;
    for (int round = 0; round < 5000; round++) {
        char line[256] = "root=w";

        for (uint32_t n = test_random(&seed) % 5; n > 0; n--) {
            (void)strcat(line, " ");
            (void)strcat(line, word[test_random(&seed) % (sizeof word / sizeof word[0])]);
        }
        struct sp_resolved r = resolve_line(line);
        full += r.is_full_write;
        for (size_t i = 0; r.is_full_write && i < sizeof path / sizeof path[0]; i++)
            if (!sp_resolved_can_write(&r, path[i], NULL, NULL))
                fail_msg("%s: %s", line, path[i]);
        sp_resolved_done(&r);
    }
    assert_true(full > 500 && full < 4500);
}

/* ---- bounds and memory ---- */

static void test_a_large_policy_is_resolved(void **state)
{
    struct sp_policy p = policy_of("root=w");
    char path[64];

    (void)state;
    for (int i = 0; i < 10000; i++) { /* each read has its write, far away */
        (void)snprintf(path, sizeof path, "/dir/%d", i % 5000);
        assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_PATH,
                                        i < 5000 ? SP_ACCESS_READ : SP_ACCESS_WRITE, false,
                                        sp_str_of(path), (struct sp_str){0}, NULL),
                         0);
    }
    struct sp_resolved r = resolve(&p);
    assert_int_equal(r.count, 10001);
    assert_true(r.is_full_write);
    assert_int_equal(sp_resolved_access(&r, "/dir/77/x", NULL), SP_ACCESS_WRITE);
    sp_resolved_done(&r);
    sp_policy_done(&p);
}

static void multiply(const char *line)
{
    struct sp_policy p = policy_of("");
    struct sp_resolved r = {0};
    struct sp_err e = {0};

    for (int i = 0; i < 400; i++) {
        assert_int_equal(add_line(&p.profile, line, &e), 0);
        assert_true(sp_policy_add_root(&p, SP_STR("/more")));
    }
    assert_int_equal(sp_resolve(&p, &r, &e), -SP_E_LIMIT);
    assert_string_equal(e.msg, "a sandbox policy names more than 65536 paths");
    sp_policy_done(&p);
}

static void test_roots_times_entries_has_a_bound(void **state)
{
    (void)state;
    multiply("project=w");
    multiply("glob:codex-project-roots://*=d");
}

static void test_every_end_of_memory_is_an_error(void **state)
{
    struct sp_policy p = policy_of("root=w project=w project:.git=r? tmpdir=w /x=d /x=w minimal=r "
                                   "glob:*.env=d glob:~/x=d glob:codex-project-roots://*=d");

    (void)state;
    for (long n = 1;; n++) {
        struct sp_resolved r = {0};
        struct sp_err e = {0};

        end_memory_at(n);
        const int result = sp_resolve(&p, &r, &e);
        if (!did_memory_end()) {
            assert_int_equal(result, 0);
            assert_true(n > 20);
            sp_resolved_done(&r);
            break;
        }
        assert_int_equal(result, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
        assert_null(r.facts);
    }
    sp_policy_done(&p);
}

static void test_done_accepts_nothing(void **state)
{
    struct sp_resolved r = {0};

    (void)state;
    sp_resolved_done(&r);
    sp_resolved_done(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_paths_are_normalised_lexically),
    cmocka_unit_test(test_what_has_no_absolute_form_is_refused),
    cmocka_unit_test(test_paths_are_compared_by_components),
    cmocka_unit_test(test_entries_become_facts_in_their_order),
    cmocka_unit_test(test_words_without_a_meaning_here_are_no_facts),
    cmocka_unit_test(test_the_cwd_is_a_root_only_without_others),
    cmocka_unit_test(test_a_relative_root_is_refused),
    cmocka_unit_test(test_slash_tmp_is_there_if_it_is_a_directory),
    cmocka_unit_test(test_patterns_are_absolute_sorted_and_each_there_once),
    cmocka_unit_test(test_a_directory_in_front_of_a_pattern_means_itself),
    cmocka_unit_test(test_patterns_need_what_they_are_relative_to),
    cmocka_unit_test(test_a_pattern_does_not_climb_out_of_a_wildcard),
    cmocka_unit_test(test_the_innermost_entry_decides),
    cmocka_unit_test(test_among_equals_deny_counts_over_write_over_read),
    cmocka_unit_test(test_patterns_take_no_part),
    cmocka_unit_test(test_the_reason_is_told),
    cmocka_unit_test(test_what_is_not_restricted_is_open),
    cmocka_unit_test(test_full_read_is_a_readable_root_and_no_denial),
    cmocka_unit_test(test_full_write_is_a_writable_root_and_nothing_narrower),
    cmocka_unit_test(test_defaults_are_wanted_where_not_all_is_readable),
    cmocka_unit_test(test_minimal_is_what_there_is_of_the_platform),
    cmocka_unit_test(test_a_default_takes_nothing_away_and_reopens_nothing),
    cmocka_unit_test(test_nobody_plants_a_protected_name_in_a_writable_root),
    cmocka_unit_test(test_an_entry_reopens_what_it_covers),
    cmocka_unit_test(test_full_write_protects_no_names),
    cmocka_unit_test(test_random_policies_answer_as_the_rules_say),
    cmocka_unit_test(test_full_write_means_that_every_path_may_be_written),
    cmocka_unit_test(test_a_large_policy_is_resolved),
    cmocka_unit_test(test_roots_times_entries_has_a_bound),
    cmocka_unit_test(test_every_end_of_memory_is_an_error),
    cmocka_unit_test(test_done_accepts_nothing),
};

TEST_MAIN(tests)
