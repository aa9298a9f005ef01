/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_fixture: a directory of its own for each test, its files, and patches held against them.
 */
#ifndef SP_PATCH_FIXTURE_H
#define SP_PATCH_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch.h"
#include "base/auto.h"
#include "test.h"

#define BEGIN "*** Begin Patch\n"
#define END   "*** End Patch\n"

static char patch_base[64]; /* of the test that runs */

static int patch_setup(void **state)
{
    (void)state;
    (void)snprintf(patch_base, sizeof patch_base, "/var/tmp/sallyport-patch-XXXXXX");
    return mkdtemp(patch_base) == NULL;
}

static int patch_remove(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

static int patch_teardown(void **state)
{
    (void)state;
    (void)chmod(patch_base, 0700);
    return nftw(patch_base, patch_remove, 16, FTW_DEPTH | FTW_PHYS);
}

#define patch_test(f) cmocka_unit_test_setup_teardown(f, patch_setup, patch_teardown)

/* The path of a file there; good until the eighth call after. */
static inline const char *at(const char *name)
{
    static char paths[8][512];
    static int which;
    char *path = paths[which++ % 8];

    (void)snprintf(path, 512, "%s/%s", patch_base, name);
    return path;
}

static inline void put_bytes(const char *name, const char *data, size_t n)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static inline void has(const char *name, const char *want)
{
    char text[4096] = {0};
    FILE *f = fopen(at(name), "r");

    if (f == NULL)
        fail_msg("%s is not there", name);
    assert_true(fread(text, 1, sizeof text - 1, f) < sizeof text);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
}

static inline bool is_there(const char *name)
{
    struct stat st;

    return lstat(at(name), &st) == 0;
}

static inline int verify_text(const char *text, bool keeps, struct sp_patch_changes *ret,
                              struct sp_buf *why, struct sp_err *e)
{
    struct sp_patch p = {0};
    int r = sp_patch_parse(sp_str_of(text), &p, e);

    if (r == 0)
        r = sp_patch_verify(&p, patch_base, keeps, NULL, ret, why, e);
    sp_patch_done(&p); /* changes stand on their own */
    return r;
}

static inline struct sp_patch_changes verified(const char *text, bool keeps)
{
    struct sp_patch_changes c = {0};
    struct sp_err e = {0};
    char story[640];

    if (verify_text(text, keeps, &c, NULL, &e) < 0)
        fail_msg("%s\n%s", sp_error_text(&e, story, sizeof story), text);
    return c;
}

/* The text with the directory in place of its %s. */
static inline void spell(const char *text, char *out, size_t size)
{
    const char *mark = strstr(text, "%s");
    const int n = mark == NULL ? (int)strlen(text) : (int)(mark - text);

    (void)snprintf(out, size, "%.*s%s%s", n, text, mark == NULL ? "" : patch_base,
                   mark == NULL ? "" : mark + 2);
}

/* `want` has one %s, for the directory, or none. */
#define is_refused(text, want)                                                   \
    do {                                                                         \
        struct sp_patch_changes refused_ = {0};                                  \
        struct sp_err e_ = {0};                                                  \
        char got_[640];                                                          \
        char wanted_[640];                                                       \
        assert_int_not_equal(verify_text(text, false, &refused_, NULL, &e_), 0); \
        assert_null(refused_.impl);                                              \
        spell(want, wanted_, sizeof wanted_);                                    \
        assert_string_equal(sp_error_text(&e_, got_, sizeof got_), wanted_);     \
    } while (0)

#endif
