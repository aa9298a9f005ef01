/* SPDX-License-Identifier: Apache-2.0 */
/* The first call fails, then the second ... until none does: an error each time, or the same. */
#include <sys/syscall.h>

#include "survey_fixture.h"

static int calls_left = -1; /* negative: none fails */
static bool has_fired;

static bool fails(void)
{
    if (calls_left < 0 || calls_left-- != 0)
        return false;
    has_fired = true;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
int __real_openat64(int dir, const char *path, int flags, ...);
int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *ret);
long __real_syscall(long nr, ...);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_openat64(int dir, const char *path, int flags, ...);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *ret);
long __wrap_syscall(long nr, ...);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static int broken(void)
{
    errno = EIO;
    return -1;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? no_memory() : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? no_memory() : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? no_memory() : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? no_memory() : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? no_memory() : __real_strndup(s, n);
}

int __wrap_openat64(int dir, const char *path, int flags, ...)
{
    return fails() ? broken() : __real_openat64(dir, path, flags);
}

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *ret)
{
    return fails() ? broken() : __real_statx(dir, path, flags, mask, ret);
}

/* openat2 alone comes this way. */
long __wrap_syscall(long nr, ...)
{
    va_list args;

    va_start(args, nr);
    const int dir = va_arg(args, int);
    const char *path = va_arg(args, const char *);
    void *how = va_arg(args, void *);
    const size_t size = va_arg(args, size_t);
    va_end(args);
    return nr == SYS_openat2 && fails() ? broken() : __real_syscall(nr, dir, path, how, size);
}

static void build_everything(void)
{
    make_dir("w/sub/ro");
    make_dir("w/store");
    make_dir("w/common");
    make_file("w/.git", "gitdir: store");
    make_file("w/store/commondir", "../common");
    make_dir("real/r");
    make_link("real", "alias");
    make_link("../run", "w/link.env");
    make_file("w/deep/er/x.env", "");
    make_dir("run/in");
    can_write("w");
    can_read("w/sub/ro");
    denied("w/sub/m/n");
    can_read("alias/r");
    can_write("gone");
    denied_glob("w/**/*.env");
    hidden_paths[0] = at("run/in");
}

static void test_every_fault_is_an_error_or_harmless(void **state)
{
    struct sp_survey whole = {0};
    int errors = 0;

    (void)state;
    build_everything();
    assert_int_equal(survey_try(), 0);
    whole = survey;
    survey = (struct sp_survey){0};
    const int fds = open_fds();
    for (int n = 0;; n++) {
        struct sp_survey s = {0};

        has_fired = false;
        calls_left = n;
        const int r = sp_survey_make(&policy, &resolved, &fixed, &s, &error);
        calls_left = -1;
        assert_int_equal(open_fds(), fds);
        if (r == 0 && !sp_survey_equal(&whole, &s))
            fail_msg("call %d failed and something else came out", n);
        if (r < 0) {
            assert_string_not_equal(error.msg, "");
            assert_null(s.spots);
            errors++;
        }
        sp_survey_done(&s);
        if (!has_fired) {
            print_message("# %d calls, %d errors\n", n, errors);
            break;
        }
    }
    assert_true(errors > 100);
    sp_survey_done(&whole);
}

/* A look that cannot be taken is no look that found all in order. */
static void test_what_cannot_be_looked_at_does_not_hold(void **state)
{
    (void)state;
    make_dir("w");
    can_write("w");
    assert_int_equal(survey_try(), 0);
    assert_true(sp_survey_holds(&survey));
    for (int n = 0;; n++) {
        has_fired = false;
        calls_left = n;
        const bool holds = sp_survey_holds(&survey);
        calls_left = -1;
        if (!has_fired) {
            assert_true(holds);
            break;
        }
        assert_false(holds);
    }
}

static const struct CMUnitTest tests[] = {
    survey_test(test_every_fault_is_an_error_or_harmless),
    survey_test(test_what_cannot_be_looked_at_does_not_hold),
};

TEST_MAIN(tests)
