/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survey_fixture: a policy about a tree of the test's own, surveyed. Whatever a survey says, it
 * says in order, each place once, without symlinks, and with the inodes that are there.
 */
#ifndef SP_SURVEY_FIXTURE_H
#define SP_SURVEY_FIXTURE_H

#include "sandbox/survey.h"
#include "tree_fixture.h"

static struct sp_policy policy;
static struct sp_resolved resolved;
static struct sp_survey survey;
static struct sp_err error;
static const char *hidden_paths[8], *own_dirs[4], *own_files[4], *own_names[4];
static const struct sp_fixed_places fixed = {
    .hidden = hidden_paths, .own_dirs = own_dirs, .read_only = own_files, .names = own_names};

static inline void survey_reset(void)
{
    sp_survey_done(&survey);
    sp_resolved_done(&resolved);
    sp_policy_done(&policy);
    policy = (struct sp_policy){0};
    memset(hidden_paths, 0, sizeof hidden_paths);
    memset(own_dirs, 0, sizeof own_dirs);
    memset(own_files, 0, sizeof own_files);
    memset(own_names, 0, sizeof own_names);
    error = (struct sp_err){0};
}

static inline int survey_end(void **state)
{
    survey_reset();
    return tree_end(state);
}

/* ---- the policy ---- */

static inline void say_place(enum sp_place place, enum sp_access access, const char *text,
                             bool skips_missing)
{
    const struct sp_str t = text == NULL ? (struct sp_str){0} : sp_str_of(text);

    if (sp_profile_add(&policy.profile, place, access, skips_missing, t, (struct sp_str){0},
                       &error) < 0)
        fail_msg("%s", error.msg);
}

/* About a path in the tree. */
static inline void say(const char *below, enum sp_access access)
{
    say_place(SP_PLACE_PATH, access, at(below), false);
}
#define can_write(below)   say(below, SP_ACCESS_WRITE)
#define can_read(below)    say(below, SP_ACCESS_READ)
#define denied(below)      say(below, SP_ACCESS_DENY)
#define reads_all()        say_place(SP_PLACE_ROOT, SP_ACCESS_READ, NULL, false)
#define denied_glob(below) say_place(SP_PLACE_GLOB, SP_ACCESS_DENY, at(below), false)

static inline void read_if_there(const char *below)
{
    say_place(SP_PLACE_PATH, SP_ACCESS_READ, at(below), true);
}

/* ---- the survey ---- */

static inline int survey_try(void)
{
    sp_survey_done(&survey);
    sp_resolved_done(&resolved);
    error = (struct sp_err){0};
    assert_int_equal(sp_resolve(&policy, &resolved, &error), 0);
    return sp_survey_make(&policy, &resolved, &fixed, &survey, &error);
}

static inline void check_there(const char *path, dev_t dev, ino_t ino, struct stat *ret)
{
    char real[PATH_MAX];

    if (lstat(path, ret) < 0)
        fail_msg("%s is not there", path);
    assert_non_null(realpath(path, real));
    assert_string_equal(real, path);
    assert_true(ret->st_dev == dev);
    assert_int_equal(ret->st_ino, ino);
}

static inline void check_spot(const struct sp_spot *s)
{
    struct stat st;
    char parent[PATH_MAX];

    if (s->kind != SP_SPOT_MISSING) {
        check_there(s->path, s->who.dev, s->who.ino, &st);
        assert_int_equal(S_ISDIR(st.st_mode), s->kind == SP_SPOT_DIR);
        return;
    }
    assert_int_not_equal(s->access, SP_ACCESS_WRITE);
    assert_int_equal(lstat(s->path, &st), -1);
    (void)snprintf(parent, sizeof parent, "%s", s->path);
    *strrchr(parent, '/') = 0;
    check_there(parent[0] == 0 ? "/" : parent, s->who.dev, s->who.ino, &st);
}

/* A second opinion on the order: a slash is the smallest of bytes. */
static inline bool comes_before(const char *a, const char *b)
{
    char x[PATH_MAX];
    char y[PATH_MAX];

    (void)snprintf(x, sizeof x, "%s", a);
    (void)snprintf(y, sizeof y, "%s", b);
    for (char *p = x; (p = strchr(p, '/')) != NULL;)
        *p = 1;
    for (char *p = y; (p = strchr(p, '/')) != NULL;)
        *p = 1;
    return strcmp(x, y) < 0;
}

static inline void check_survey(void)
{
    struct stat st;

    for (size_t i = 0; i < survey.count; i++) {
        const struct sp_spot *s = &survey.spots[i];

        check_spot(s);
        if (i != 0 && !comes_before(survey.spots[i - 1].path, s->path))
            fail_msg("%s is not before %s", survey.spots[i - 1].path, s->path);
        if (strcmp(s->path, "/") == 0)
            assert_int_not_equal(s->access, SP_ACCESS_DENY);
    }
    for (size_t i = 0; i < survey.pin_count; i++) {
        check_there(survey.pins[i].path, survey.pins[i].who.dev, survey.pins[i].who.ino, &st);
        assert_true(S_ISDIR(st.st_mode));
        if (i != 0)
            assert_true(comes_before(survey.pins[i - 1].path, survey.pins[i].path));
    }
    for (size_t i = 0; i < survey.alias_count; i++) {
        char target[PATH_MAX] = "";

        assert_true(readlink(survey.aliases[i].path, target, sizeof target - 1) > 0);
        assert_string_equal(target, survey.aliases[i].target);
    }
}

/* And a second survey is the same, and what was seen still holds. */
static inline void survey_now(void)
{
    struct sp_survey again = {0};

    if (survey_try() < 0)
        fail_msg("%s (%s)", error.msg, strerror(error.sys));
    check_survey();
    assert_int_equal(sp_survey_make(&policy, &resolved, &fixed, &again, &error), 0);
    assert_true(sp_survey_equal(&survey, &again));
    sp_survey_done(&again);
    assert_int_equal(sp_survey_holds(&survey), !survey.has_globs);
}

static inline void survey_refused(enum sp_code code, const char *text)
{
    const int r = survey_try();

    if (r == 0)
        fail_msg("not refused: %s", text);
    if (strcmp(error.msg, text) != 0)
        fail_msg("\"%s\"\n is not \"%s\"", error.msg, text);
    assert_int_equal(r, -(int)code);
    assert_null(survey.spots);
}

/* ---- what it says ---- */

static inline const struct sp_spot *spot_at(const char *path)
{
    for (size_t i = 0; i < survey.count; i++)
        if (strcmp(survey.spots[i].path, path) == 0)
            return &survey.spots[i];
    return NULL;
}

/* The same, where there must be one. */
static inline const struct sp_spot *sure_spot(const char *path)
{
    const struct sp_spot *s = spot_at(path);

    if (s == NULL) {
        print_error("no spot at %s\n", path);
        abort();
    }
    return s;
}

static inline void survey_print(void)
{
    for (size_t i = 0; i < survey.count; i++)
        print_message("# %s: access %d, kind %d, why %d\n", survey.spots[i].path,
                      survey.spots[i].access, survey.spots[i].kind, survey.spots[i].why);
}

static inline void has_path(const char *path, enum sp_access access, enum sp_spot_kind kind,
                            enum sp_spot_why why)
{
    const struct sp_spot *s = spot_at(path);

    if (s == NULL || s->access != access || s->kind != kind || s->why != why) {
        survey_print();
        fail_msg("%s: not access %d, kind %d, why %d", path, access, kind, why);
    }
}
#define has(below, access, kind, why) \
    has_path(at(below), SP_ACCESS_##access, SP_SPOT_##kind, SP_WHY_##why)

static inline void has_no(const char *below)
{
    if (spot_at(at(below)) != NULL) {
        survey_print();
        fail_msg("%s has a spot", below);
    }
}

static inline bool is_pinned(const char *below)
{
    for (size_t i = 0; i < survey.pin_count; i++)
        if (strcmp(survey.pins[i].path, at(below)) == 0)
            return true;
    return false;
}

/* The text of 3.3. */
static inline const char *crossing(const char *what, const char *path, const char *link)
{
    static char text[sizeof error.msg];

    (void)snprintf(text, sizeof text,
                   "cannot enforce sandbox %s %s because it crosses writable symlink %s", what,
                   at(path), at(link));
    return text;
}

#define survey_test(name) cmocka_unit_test_setup_teardown(name, tree_begin, survey_end)

#endif
