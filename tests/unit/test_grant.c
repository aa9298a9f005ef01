/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory_fixture.h"
#include "profile_fixture.h"
#include "sandbox/resolve.h"

/* A line; "+" in front: with the network; "3:" in front: with this depth. */
static struct sp_grant grant_of(const char *line)
{
    struct sp_grant g = {0};
    const bool has_network = *line == '+';
    uint32_t depth = 0;

    line += has_network;
    if (*line >= '0' && *line <= '9') {
        depth = (uint32_t)(*line - '0');
        line += 2;
    }
    line += strspn(line, " ");
    g.extra = profile_of(line);
    g.extra.has_network = has_network;
    g.extra.glob_depth = depth;
    return g;
}

static void is_profile(const struct sp_profile *p, const char *want)
{
    struct sp_grant w = grant_of(want);

    assert_int_equal(p->has_network, w.extra.has_network);
    assert_int_equal(p->glob_depth, w.extra.glob_depth);
    want += *want == '+';
    want += *want >= '0' && *want <= '9' ? 2 : 0;
    want += strspn(want, " ");
    assert_profile(p, want);
    sp_grant_done(&w);
}

/* ---- normalise ---- */

static void normalises(const char *line, const char *want)
{
    struct sp_grant g = grant_of(line);
    struct sp_err e = {0};

    if (sp_grant_normalise(&g, &e) < 0)
        fail_msg("%s: %s", line, e.msg);
    is_profile(&g.extra, want);
    sp_grant_done(&g);
}

static void test_normalising_drops_what_is_empty_or_said_twice(void **state)
{
    (void)state;
    normalises("", "");
    normalises("+", "+");
    normalises("3:", ""); /* a depth of nothing */
    normalises("3: /nonexistent/b=r /nonexistent/a=w /nonexistent/b=r",
               "3: /nonexistent/b=r /nonexistent/a=w");
    normalises("/nonexistent/a=w /nonexistent/a=r", "/nonexistent/a=w /nonexistent/a=r");
    normalises("project=r /=r project:x=r project=r minimal=r minimal=r glob:*=d glob:*=d",
               "project=r /=r project:x=r minimal=r glob:*=d");
    normalises("/nonexistent/a=r /nonexistent/a=r?", "/nonexistent/a=r /nonexistent/a=r?");
}

static void test_normalising_finds_the_real_directory(void **state)
{
    char dir[] = "/tmp/sp-grant-XXXXXX";
    char path[128];
    char link[128];
    char line[1024];
    char want[1024];

    (void)state;
    assert_non_null(mkdtemp(dir));
    char *real = realpath(dir, NULL); /* /tmp itself may be a symlink */
    assert_non_null(real);
    (void)snprintf(path, sizeof path, "%s/there", dir);
    (void)snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(symlink("there", link), 0);
    (void)snprintf(path, sizeof path, "%s/there/in", dir);
    assert_int_equal(mkdir(path, 0700), 0);

    (void)snprintf(line, sizeof line, "%s/link/in=w %s/there/in=w %s/link=r %s/link/no/in=r", dir,
                   dir, dir, dir);
    (void)snprintf(want, sizeof want, "%s/there/in=w %s/link=r %s/link/no/in=r", real, real, dir);
    normalises(line, want);

    assert_int_equal(rmdir(path), 0);
    assert_int_equal(unlink(link), 0);
    (void)snprintf(path, sizeof path, "%s/there", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(real);
}

static void test_normalising_refuses_a_pattern_that_grants(void **state)
{
    struct sp_grant g = grant_of("/a=r glob:/x/*=d");
    struct sp_err e = {0};

    (void)state;
    g.extra.entries[1].access = SP_ACCESS_READ;
    assert_int_equal(sp_grant_normalise(&g, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "glob file system permissions only support deny-read entries");
    assert_int_equal(g.extra.count, 2);
    sp_grant_done(&g);
}

/* ---- widen and merge ---- */

static void widens(const char *base, const char *grant, const char *want)
{
    struct sp_grant p = grant_of(base);
    struct sp_grant g = grant_of(grant);
    struct sp_profile wide = {0};
    struct sp_err e = {0};

    if (sp_profile_widen(&p.extra, &g, &wide, &e) < 0)
        fail_msg("%s", e.msg);
    is_profile(&wide, want);
    sp_profile_done(&wide);
    sp_grant_done(&p);
    sp_grant_done(&g);
}

static void test_widening_appends_what_is_new(void **state)
{
    (void)state;
    widens("root=r", "", "root=r");
    widens("root=r", "/a=w", "root=r /a=w");
    widens("root=r /a=w", "/b=w /a=w /a=r", "root=r /a=w /b=w /a=r");
    widens("+root=r", "/a=w", "+root=r /a=w");
    widens("root=r", "+", "+root=r");
    widens("", "/a=d", "/a=d");
}

static void test_the_larger_depth_counts_and_none_is_the_largest(void **state)
{
    (void)state;
    widens("2:glob:/a/*=d", "5:glob:/b/*=d", "5: glob:/a/*=d glob:/b/*=d");
    widens("5:glob:/a/*=d", "2:glob:/b/*=d", "5: glob:/a/*=d glob:/b/*=d");
    widens("2:glob:/a/*=d", "glob:/b/*=d", "glob:/a/*=d glob:/b/*=d");
    widens("glob:/a/*=d", "2:glob:/b/*=d", "glob:/a/*=d glob:/b/*=d");
    widens("2:glob:/a/*=d", "5:/b=r", "2: glob:/a/*=d /b=r"); /* without patterns: no say */
    widens("2:/a=r", "5:glob:/b/*=d", "5: /a=r glob:/b/*=d");
    widens("2:glob:/a/*=d", "", "2: glob:/a/*=d");
    widens("2:glob:/a/*=d", "+/b=r", "+2: glob:/a/*=d /b=r");
}

static void test_only_what_is_restricted_is_widened(void **state)
{
    static const struct sp_profile open[] = {{.kind = SP_PROFILE_EXTERNAL},
                                             {.is_unrestricted = true}};
    struct sp_grant g = grant_of("+/a=w");

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sp_profile wide = {0};

        assert_int_equal(sp_profile_widen(&open[i], &g, &wide, NULL), 0);
        assert_int_equal(wide.kind, open[i].kind);
        assert_int_equal(wide.is_unrestricted, open[i].is_unrestricted);
        assert_int_equal(wide.count, 0);
        assert_true(wide.has_network);
    }
    sp_grant_done(&g);
}

static void merges(const char *a, const char *b, const char *want)
{
    struct sp_grant x = grant_of(a);
    struct sp_grant y = grant_of(b);
    struct sp_grant both = {0};
    struct sp_err e = {0};

    if (sp_grant_merge(&x, &y, &both, &e) < 0)
        fail_msg("%s", e.msg);
    is_profile(&both.extra, want);
    sp_grant_done(&both);
    sp_grant_done(&x);
    sp_grant_done(&y);
}

static void test_a_merged_grant_is_both(void **state)
{
    (void)state;
    merges("", "", "");
    merges("/a=r /b=w", "/b=w /c=d", "/a=r /b=w /c=d");
    merges("+/a=r", "/a=r", "+/a=r");
    merges("", "+", "+");
    merges("3:glob:/a/*=d", "4:glob:/a/*=d", "4: glob:/a/*=d");
}

/* ---- intersect ---- */

/* cwd /w, workspace roots /w and /v, home /h, no TMPDIR. */
static int intersect(const char *asked, const char *granted, struct sp_grant *ret, struct sp_err *e)
{
    struct sp_grant a = grant_of(asked);
    struct sp_grant g = grant_of(granted);
    struct sp_policy context = {
        .profile = profile_of("root=w"), .cwd = heap_text("/w"), .home = heap_text("/h")};

    assert_true(sp_policy_add_root(&context, SP_STR("/w")));
    assert_true(sp_policy_add_root(&context, SP_STR("/v")));
    const int r = sp_grant_intersect(&a, &g, &context, ret, e);
    sp_policy_done(&context);
    sp_grant_done(&a);
    sp_grant_done(&g);
    return r;
}

static void leaves(const char *asked, const char *granted, const char *want)
{
    struct sp_grant got = {0};
    struct sp_err e = {0};

    if (intersect(asked, granted, &got, &e) < 0)
        fail_msg("%s, %s: %s", asked, granted, e.msg);
    is_profile(&got.extra, want);
    sp_grant_done(&got);
}

static void test_nothing_is_granted_that_was_not_asked(void **state)
{
    (void)state;
    leaves("", "/a=r", "");
    leaves("/a=r", "", "");
    leaves("/a=r", "/a=r", "/a=r");
    leaves("/a=r", "/a=w", "");
    leaves("/a=w", "/a=r", "/a=r");
    leaves("/a=w", "/a/b=w", "/a/b=w");
    leaves("/a/b=w", "/a=w", "");
    leaves("/a=r", "/a=r /a=r /b=r", "/a=r");
    leaves("root=r", "/a=r minimal=r", "/a=r minimal=r");
    leaves("/a=r", "root=r", "");
    leaves("root=r", "root=r", "root=r");
    leaves("/a=w /a/b=r", "/a/b=w /a/c=w", "/a/c=w");
}

static void test_the_network_needs_both(void **state)
{
    (void)state;
    leaves("+", "+", "+");
    leaves("+", "", "");
    leaves("", "+", "");
    leaves("+/a=r", "+/b=r", "+");
}

static void test_what_the_request_denies_is_not_granted(void **state)
{
    (void)state;
    leaves("/a=r /a/b=d", "/a/b=r", "");
    leaves("/a=r /a/b=d", "/a/b/c=r", "");
    leaves("/a=w /a/b=d /a/b/c=w", "/a/b/c=w", ""); /* not even what it reopens */
    leaves("root=d /a=r", "/a=r", "/a=r root=d");   /* "/" is but what nobody named */
    leaves("/a=r glob:/a/**/*.env=d", "/a/x.env=r", "");
    leaves("/a=r glob:/a/**/*.env=d", "/a/x.env/in=r", "");
    leaves("/a=r glob:/a/**/*.env=d", "/a/x=r", "/a/x=r glob:/a/**/*.env=d");
    leaves("/a=r glob:/a/[bc]?/{x,y}=d", "/a/b1/x=r /a/b1/z=r /a/d1/x=r /a/b1=r",
           "/a/b1/z=r /a/d1/x=r /a/b1=r glob:/a/[bc]?/{x,y}=d");
    leaves("/a=r glob:/a/b=d", "/a/b=r /a/b/c=r /a/bc=r", "/a/bc=r");
}

static void test_denials_of_both_sides_stay_where_they_matter(void **state)
{
    (void)state;
    leaves("/a=r /a/x=d /b=d", "/a=r", "/a=r /a/x=d");
    leaves("/a=r", "/a=r /a/y=d /c=d", "/a=r /a/y=d");
    leaves("/a=r /a/x=d", "/a=r /a/x=d /a/y=d", "/a=r /a/x=d /a/y=d");
    leaves("/a=r", "/a/b=r /a=d", "/a/b=r /a=d"); /* above counts too */
    leaves("/w=r glob:*.env=d", "/w=r", "/w=r glob:/w/*.env=d");
    leaves("/w=r glob:~/*.env=d", "/w=r", "/w=r");
    leaves("/w=r project:x=d", "/w=r", "/w=r /w/x=d"); /* not in the other root */
    leaves("/a=r /a/x=d", "/q=r", "");
    leaves("/a=r minimal=d unknown:z=d", "/a=r", "/a=r");
    leaves("/usr=r minimal=r", "minimal=r /usr/share=d", "minimal=r /usr/share=d");
}

static void test_depths_are_those_of_the_patterns_that_stay(void **state)
{
    (void)state;
    leaves("3:/a=r glob:/a/*=d", "/a=r", "3: /a=r glob:/a/*=d");
    leaves("3:/a=r glob:/a/*=d", "5:/a=r glob:/a/y*=d", "5: /a=r glob:/a/*=d glob:/a/y*=d");
    leaves("3:/a=r glob:/a/*=d", "/a=r glob:/a/y*=d", "/a=r glob:/a/*=d glob:/a/y*=d");
    leaves("3:/a=r glob:/a/*=d", "/a=r glob:/b/*=d", "3: /a=r glob:/a/*=d");
    leaves("3:/a=r", "5:/a=r", "/a=r");
}

static void test_workspace_roots_become_paths(void **state)
{
    (void)state;
    leaves("project=w", "project=w", "/w=w /v=w");
    leaves("/w=w", "project=w", "/w=w");
    leaves("project=w", "project:sub=r?", "/w/sub=r? /v/sub=r?");
    leaves("project:sub=w", "project=w", "");
    leaves("project=w", "/v/x=w", "/v/x=w");
}

static void test_words_without_a_path_are_compared_as_words(void **state)
{
    (void)state;
    leaves("tmpdir=w", "tmpdir=r", "tmpdir=r");
    leaves("tmpdir=r", "tmpdir=w", "");
    leaves("root=w", "tmpdir=w", "");
    leaves("tmpdir=w tmpdir=d", "tmpdir=w", "");
    leaves("unknown:a=r", "unknown:a=r unknown:b=r", "unknown:a=r");
    leaves("minimal=r", "minimal=r", "minimal=r");
    leaves("minimal=r", "minimal=w", "");
}

static void test_a_protected_name_must_be_asked_for(void **state)
{
    (void)state;
    leaves("/a=w", "/a/.git=w", "");
    leaves("/a=w", "/a/.git=r", "/a/.git=r");
    leaves("/a=w /a/.git=w", "/a/.git=w", "/a/.git=w");
    leaves("/a=w /a/.git=w", "/a/.git/hooks=w", "/a/.git/hooks=w");
    leaves("/a=w", "/a/x/.git=w", "/a/x/.git=w"); /* the top level only */
    leaves("root=w", "/a/.git=w", "/a/.git=w");
}

static void refused(const char *asked, const char *granted, const char *why)
{
    struct sp_grant got = {.extra = {.glob_depth = 9}};
    struct sp_err e = {0};

    assert_int_equal(intersect(asked, granted, &got, &e), -SP_E_INVALID);
    if (strstr(e.msg, why) == NULL)
        fail_msg("%s", e.msg);
    assert_int_equal(got.extra.glob_depth, 9);
}

static void test_what_cannot_be_read_is_refused(void **state)
{
    (void)state;
    refused("/a=r glob:/a/*/../x=d", "/a=r", "has `..` behind a wildcard");
    refused("/a=r glob:/a/[z-a]=d", "/a=r", "invalid glob pattern");
    refused("/a=r", "/a=r glob:/a/[z-a]=d", "invalid glob pattern");
}

static void random_line(uint64_t *seed, char *out, size_t size)
{
    static const char *const place[] = {"/a", "/a/b", "/a/b/c",  "/a/.git",   "/d",     "root",
                                        "/w", "/w/x", "project", "project:x", "minimal"};
    size_t n = 0;

    for (uint32_t count = 1 + test_random(seed) % 4; count > 0; count--) {
        const char *word = place[test_random(seed) % (sizeof place / sizeof place[0])];

        n += (size_t)snprintf(out + n, size - n, "%s%s=%c", n == 0 ? "" : " ", word,
                              "drw"[test_random(seed) % 3]);
    }
}

static struct sp_resolved resolve_line(const struct sp_profile *profile)
{
    char cwd[] = "/w";
    char other[] = "/v";
    char *roots[] = {cwd, other};
    const struct sp_policy p = {.profile = *profile, .roots = roots, .root_count = 2};
    struct sp_resolved r = {0};

    assert_int_equal(sp_resolve(&p, &r, NULL), 0);
    return r;
}

/*
 * What may be read was asked to be read. What may be written was asked to be written, unless the
 * request has places to read in places to write: those do not stay, only denials do.
 */
static void check_excess(const char *asked, const char *granted, const struct sp_profile *left)
{
    static const char *const path[] = {"/",    "/a", "/a/b", "/a/b/c", "/a/.git",
                                       "/d/e", "/w", "/w/x", "/v/x",   "/usr"};
    struct sp_profile p = profile_of(asked);
    struct sp_resolved a = resolve_line(&p);
    struct sp_resolved g = resolve_line(left);

    for (size_t i = 0; i < sizeof path / sizeof path[0]; i++) {
        const enum sp_access want = sp_resolved_access(&a, path[i], NULL);
        const enum sp_access got = sp_resolved_access(&g, path[i], NULL);

        if ((got != SP_ACCESS_DENY && want == SP_ACCESS_DENY) ||
            (got == SP_ACCESS_WRITE && want == SP_ACCESS_READ && strstr(asked, "=r") == NULL))
            fail_msg("%s, %s: %s", asked, granted, path[i]);
    }
    sp_resolved_done(&a);
    sp_resolved_done(&g);
    sp_profile_done(&p);
}

static void test_a_random_grant_never_exceeds_the_request(void **state)
{
    uint64_t seed = 22;
    int some = 0;

    (void)state;
    print_message("# seed %llu, 10000 grants\n", (unsigned long long)seed);
    for (int round = 0; round < 10000; round++) {
        char asked[256];
        char granted[256];
        struct sp_grant got = {0};

        random_line(&seed, asked, sizeof asked);
        random_line(&seed, granted, sizeof granted);
        assert_int_equal(intersect(asked, granted, &got, NULL), 0);
        some += got.extra.count != 0;
        check_excess(asked, granted, &got.extra);
        sp_grant_done(&got);
    }
    assert_true(some > 1000);
}

/* ---- memory ---- */

struct sides {
    struct sp_grant asked, granted;
    struct sp_policy context;
};

static int work_it_out(const struct sides *s, struct sp_err *e)
{
    struct sp_grant both = {0};
    struct sp_grant shared = {0};
    struct sp_profile wide = {0};
    int r = sp_grant_merge(&s->asked, &s->granted, &both, e);

    if (r == 0)
        r = sp_grant_intersect(&s->asked, &s->granted, &s->context, &shared, e);
    if (r == 0)
        r = sp_grant_normalise(&both, e);
    if (r == 0)
        r = sp_profile_widen(&s->context.profile, &both, &wide, e);
    if (r == 0) {
        assert_int_equal(shared.extra.count, 8);
        assert_int_equal(both.extra.count, 11);
    }
    sp_profile_done(&wide);
    sp_grant_done(&shared);
    sp_grant_done(&both);
    return r;
}

static void test_every_end_of_memory_is_an_error(void **state)
{
    struct sides s = {
        .asked = grant_of("/a=w /usr=r project=w tmpdir=r glob:*.env=d /a/x=d"),
        .granted = grant_of("/a=w /usr/bin=r project:y=r tmpdir=r glob:/a/*/q=d /a=r /b=d"),
        .context = {.profile = profile_of("root=r"), .cwd = heap_text("/w")},
    };

    (void)state;
    assert_true(sp_policy_add_root(&s.context, SP_STR("/w")));
    for (long n = 1;; n++) {
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = work_it_out(&s, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 100);
            break;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
    }
    sp_grant_done(&s.asked);
    sp_grant_done(&s.granted);
    sp_policy_done(&s.context);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_normalising_drops_what_is_empty_or_said_twice),
    cmocka_unit_test(test_normalising_finds_the_real_directory),
    cmocka_unit_test(test_normalising_refuses_a_pattern_that_grants),
    cmocka_unit_test(test_widening_appends_what_is_new),
    cmocka_unit_test(test_the_larger_depth_counts_and_none_is_the_largest),
    cmocka_unit_test(test_only_what_is_restricted_is_widened),
    cmocka_unit_test(test_a_merged_grant_is_both),
    cmocka_unit_test(test_nothing_is_granted_that_was_not_asked),
    cmocka_unit_test(test_the_network_needs_both),
    cmocka_unit_test(test_what_the_request_denies_is_not_granted),
    cmocka_unit_test(test_denials_of_both_sides_stay_where_they_matter),
    cmocka_unit_test(test_depths_are_those_of_the_patterns_that_stay),
    cmocka_unit_test(test_workspace_roots_become_paths),
    cmocka_unit_test(test_words_without_a_path_are_compared_as_words),
    cmocka_unit_test(test_a_protected_name_must_be_asked_for),
    cmocka_unit_test(test_what_cannot_be_read_is_refused),
    cmocka_unit_test(test_a_random_grant_never_exceeds_the_request),
    cmocka_unit_test(test_every_end_of_memory_is_an_error),
};

TEST_MAIN(tests)
