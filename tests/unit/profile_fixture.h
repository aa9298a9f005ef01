/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_fixture: profiles in a line, so that a test says the whole outcome.
 *
 *   root=r project=w project:.git=r? /srv=d glob:*.env=d unknown:new=r
 *
 * r, w, d: read, write, deny; a question mark: a generated default.
 */
#ifndef SP_PROFILE_FIXTURE_H
#define SP_PROFILE_FIXTURE_H

#include "sandbox/profile.h"
#include "test.h"

static const struct {
    const char *word;
    enum sp_place place;
    bool has_text;
} place_words[] = {
    {"root", SP_PLACE_ROOT, false},
    {"minimal", SP_PLACE_MINIMAL, false},
    {"project", SP_PLACE_PROJECT, false},
    {"project:", SP_PLACE_PROJECT, true},
    {"tmpdir", SP_PLACE_TMPDIR, false},
    {"slash_tmp", SP_PLACE_SLASH_TMP, false},
    {"glob:", SP_PLACE_GLOB, true},
    {"unknown:", SP_PLACE_UNKNOWN, true},
    {"", SP_PLACE_PATH, true},
};
#define PLACE_WORDS (sizeof place_words / sizeof place_words[0])

static inline int add_place(struct sp_profile *p, struct sp_str place, enum sp_access access,
                            bool skips_missing, struct sp_err *e)
{
    for (size_t i = 0; i < PLACE_WORDS; i++) {
        const struct sp_str word = sp_str_of(place_words[i].word);
        const bool fits = place_words[i].has_text
                              ? place.n >= word.n && memcmp(place.p, word.p, word.n) == 0
                              : sp_str_eq(place, word);
        const struct sp_str text = {place.p + word.n, place.n - word.n};

        if (fits)
            return sp_profile_add(p, place_words[i].place, access, skips_missing,
                                  place_words[i].has_text ? text : (struct sp_str){0},
                                  (struct sp_str){0}, e);
    }
    fail_msg("what is " SP_STR_FMT "?", SP_STR_ARG(place));
    return 0;
}

/* Adds the entries of a line. */
static inline int add_line(struct sp_profile *p, const char *line, struct sp_err *e)
{
    while (*line != 0) {
        const size_t n = strcspn(line, " ");
        const bool skips_missing = line[n - 1] == '?';
        const size_t end = n - 2 - skips_missing;
        const char letter = line[end + 1];
        const int r = add_place(p, (struct sp_str){line, end},
                                letter == 'r'   ? SP_ACCESS_READ
                                : letter == 'w' ? SP_ACCESS_WRITE
                                                : SP_ACCESS_DENY,
                                skips_missing, e);

        assert_int_equal(line[end], '=');
        if (r < 0)
            return r;
        line += n;
        line += strspn(line, " ");
    }
    return 0;
}

static inline struct sp_profile profile_of(const char *line)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    if (add_line(&p, line, &e) < 0)
        fail_msg("%s: %s", line, e.msg);
    return p;
}

static inline void tell_profile(const struct sp_profile *p, struct sp_buf *out)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];
        const char *word = NULL;

        for (size_t k = 0; k < PLACE_WORDS; k++)
            if (place_words[k].place == entry->place &&
                place_words[k].has_text == (entry->text != NULL))
                word = place_words[k].word;
        assert_non_null(word);
        assert_true(sp_buf_printf(out, "%s%s%s=%c%s", i == 0 ? "" : " ", word,
                                  entry->text == NULL ? "" : entry->text, "drw"[entry->access],
                                  entry -> skips_missing ? "?" : ""));
    }
    assert_true(sp_buf_add(out, "", 1));
}

static inline void assert_profile(const struct sp_profile *p, const char *line)
{
    auto_buf struct sp_buf told = {0};

    tell_profile(p, &told);
    assert_string_equal(told.data, line);
}

static inline char *heap_text(const char *text)
{
    char *copy = test_copy((struct sp_str){text, strlen(text) + 1});

    return copy;
}

#endif
