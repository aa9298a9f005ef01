/* SPDX-License-Identifier: Apache-2.0 */
/* Which shell is taken: case 148. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/shell.h"
#include "memory_fixture.h"
#include "test.h"

/* The C library's own copy does not pass through the malloc that ends. */
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);

    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}

/* ---- types ---- */

static void test_a_type_is_a_file_name_without_its_extension(void **state)
{
    static const struct {
        const char *path;
        enum sp_shell_type type;
    } c[] = {
        {"/usr/bin/bash", SP_SHELL_BASH},
        {"bash", SP_SHELL_BASH},
        {"/bin/zsh", SP_SHELL_ZSH},
        {"zsh", SP_SHELL_ZSH},
        {"/bin/sh", SP_SHELL_SH},
        {"pwsh", SP_SHELL_POWERSHELL},
        {"pwsh.exe", SP_SHELL_POWERSHELL},
        {"powershell", SP_SHELL_POWERSHELL},
        {"/opt/powershell.exe", SP_SHELL_POWERSHELL},
        {"cmd", SP_SHELL_CMD},
        {"cmd.exe", SP_SHELL_CMD},
        {"/a b/bash", SP_SHELL_BASH},
        {"/a.b/bash", SP_SHELL_BASH},
        {"./sh", SP_SHELL_SH},
        {"", SP_SHELL_UNKNOWN},
        {"/", SP_SHELL_UNKNOWN},
        {"/bin/", SP_SHELL_UNKNOWN},
        {".", SP_SHELL_UNKNOWN},
        {".bash", SP_SHELL_UNKNOWN},
        {"/nonexistent/fish", SP_SHELL_UNKNOWN},
        {"bash -x", SP_SHELL_UNKNOWN},
        {"/bin/bash -x", SP_SHELL_UNKNOWN},
        {"bash ", SP_SHELL_UNKNOWN},
        {"dash", SP_SHELL_UNKNOWN},
        {"bash5", SP_SHELL_UNKNOWN},
        {"bash/x", SP_SHELL_UNKNOWN},
        {"unknown", SP_SHELL_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
        if (sp_shell_type_of(sp_str_of(c[i].path)) != c[i].type)
            fail_msg("'%s' is '%s'", c[i].path,
                     sp_shell_type_name(sp_shell_type_of(sp_str_of(c[i].path))));
    assert_int_equal(sp_shell_type_of((struct sp_str){0}), SP_SHELL_UNKNOWN);
    assert_int_equal(sp_shell_type_of(SP_STR("bash\0")), SP_SHELL_UNKNOWN);
}

static void test_every_type_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(sp_shell_type_name(SP_SHELL_ZSH), "zsh");
    assert_string_equal(sp_shell_type_name(SP_SHELL_BASH), "bash");
    assert_string_equal(sp_shell_type_name(SP_SHELL_SH), "sh");
    assert_string_equal(sp_shell_type_name(SP_SHELL_POWERSHELL), "powershell");
    assert_string_equal(sp_shell_type_name(SP_SHELL_CMD), "cmd");
    assert_string_equal(sp_shell_type_name(SP_SHELL_UNKNOWN), "unknown");
    assert_string_equal(sp_shell_type_name(SP_SHELL_MAX), "unknown");
}

/* ---- which file: a host is the list of its programs ---- */

static bool is_installed(const char *path, void *context)
{
    const char *const *installed = context;

    for (; *installed != NULL; installed++)
        if (strcmp(path, *installed) == 0)
            return true;
    return false;
}

#define HOST(account, search, ...)    \
    (&(const struct sp_shell_places){ \
        .account_shell = (account),   \
        .path = (search),             \
        .is_program = is_installed,   \
        .context = (void *)(uintptr_t)(const char *const[]){__VA_ARGS__ NULL}})

static void is_shell(struct sp_shell *s, enum sp_shell_type type, const char *path)
{
    assert_string_equal(s->path, path);
    assert_int_equal(s->type, type);
    sp_shell_done(s);
    assert_null(s->path);
}

static void user_has(const struct sp_shell_places *places, enum sp_shell_type type,
                     const char *path)
{
    struct sp_err e = {0};
    struct sp_shell s = {0};

    assert_int_equal(sp_shell_find(places, (struct sp_str){0}, &s, &e), 0);
    is_shell(&s, type, path);
}

static void name_gives(const struct sp_shell_places *places, const char *name,
                       enum sp_shell_type type, const char *path)
{
    struct sp_err e = {0};
    struct sp_shell s = {0};

    assert_int_equal(sp_shell_find(places, sp_str_of(name), &s, &e), 0);
    is_shell(&s, type, path);
}

static void test_the_user_has_the_shell_of_the_account(void **state)
{
    (void)state;
    user_has(HOST("/opt/zsh", "/usr/bin", "/opt/zsh", "/usr/bin/zsh", "/bin/bash", ), SP_SHELL_ZSH,
             "/opt/zsh");
    user_has(HOST("/bin/sh", "/usr/bin", "/bin/sh", "/bin/bash", ), SP_SHELL_SH, "/bin/sh");
    user_has(HOST("/opt/pwsh", NULL, "/opt/pwsh", "/bin/bash", ), SP_SHELL_POWERSHELL, "/opt/pwsh");
}

static void test_an_unusable_account_shell_gives_way_to_bash_then_zsh_then_sh(void **state)
{
    (void)state;
    user_has(HOST("/usr/bin/fish", NULL, "/usr/bin/fish", "/bin/bash", "/bin/zsh", ), SP_SHELL_BASH,
             "/bin/bash");
    user_has(HOST("/gone/zsh", NULL, "/bin/bash", "/bin/zsh", ), SP_SHELL_BASH, "/bin/bash");
    user_has(HOST(NULL, NULL, "/bin/zsh", ), SP_SHELL_ZSH, "/bin/zsh");
    user_has(HOST("", "", "/bin/zsh", "/usr/bin/bash", ), SP_SHELL_BASH, "/usr/bin/bash");
    user_has(HOST("zsh", NULL, "zsh", "/bin/bash", ), SP_SHELL_BASH, "/bin/bash"); /* relative */
    user_has(HOST("/usr/sbin/nologin", NULL, ), SP_SHELL_SH, "/bin/sh"); /* nothing at all */
}

static void test_a_type_is_located_in_account_then_path_then_usual_places(void **state)
{
    (void)state;
    name_gives(HOST("/opt/bash", "/p", "/opt/bash", "/p/bash", "/bin/bash", ), "bash",
               SP_SHELL_BASH, "/opt/bash");
    name_gives(HOST("/opt/bash", "/p", "/p/bash", "/bin/bash", ), "bash", SP_SHELL_BASH, "/p/bash");
    name_gives(HOST("/opt/zsh", "/p", "/opt/zsh", "/p/bash", "/bin/bash", ), "bash", SP_SHELL_BASH,
               "/p/bash");
    name_gives(HOST(NULL, "/p:/q", "/q/bash", "/bin/bash", ), "bash", SP_SHELL_BASH, "/q/bash");
    name_gives(HOST(NULL, "/q:/p", "/p/bash", "/q/bash", ), "bash", SP_SHELL_BASH, "/q/bash");
    name_gives(HOST(NULL, "/p", "/bin/bash", "/usr/bin/bash", ), "bash", SP_SHELL_BASH,
               "/bin/bash");
    name_gives(HOST(NULL, "/p", "/usr/bin/bash", ), "bash", SP_SHELL_BASH, "/usr/bin/bash");
    name_gives(HOST(NULL, NULL, "/bin/zsh", ), "zsh", SP_SHELL_ZSH, "/bin/zsh");
    name_gives(HOST(NULL, "/p", "/p/sh", "/bin/sh", ), "sh", SP_SHELL_SH, "/p/sh");
    name_gives(HOST(NULL, "/p", "/bin/sh", ), "sh", SP_SHELL_SH, "/bin/sh");
}

static void test_powershell_has_two_names(void **state)
{
    (void)state;
    name_gives(HOST(NULL, "/p:/q", "/q/pwsh", "/p/powershell", ), "powershell", SP_SHELL_POWERSHELL,
               "/q/pwsh");
    name_gives(HOST(NULL, "/p", "/p/powershell", ), "pwsh", SP_SHELL_POWERSHELL, "/p/powershell");
    name_gives(HOST(NULL, "/p", "/p/cmd", ), "cmd.exe", SP_SHELL_CMD, "/p/cmd");
    name_gives(HOST(NULL, "/p", "/bin/sh", ), "cmd.exe", SP_SHELL_SH, "/bin/sh");
}

static void test_path_entries_that_are_not_absolute_are_skipped(void **state)
{
    (void)state;
    name_gives(HOST(NULL, "::rel:/p:", "/bash", "rel/bash", "bash", "/p/bash", ), "bash",
               SP_SHELL_BASH, "/p/bash");
    name_gives(HOST(NULL, ":", "/bash", "/bin/bash", ), "bash", SP_SHELL_BASH, "/bin/bash");
    name_gives(HOST(NULL, "/", "//bash", "/bin/bash", ), "bash", SP_SHELL_BASH, "//bash");
}

/* Case 148. */
static void test_a_model_names_a_type_never_a_file(void **state)
{
    const struct sp_shell_places *host = HOST("/bin/zsh", "/usr/bin", "/bin/zsh", "/usr/bin/bash",
                                              "/bin/sh", "/tmp/bash", "/x/fish", );

    (void)state;
    name_gives(host, "/tmp/bash", SP_SHELL_BASH, "/usr/bin/bash");
    name_gives(host, "/usr/bin/bash", SP_SHELL_BASH, "/usr/bin/bash");
    name_gives(host, "/nonexistent/fish", SP_SHELL_SH, "/bin/sh");
    name_gives(host, "/x/fish", SP_SHELL_SH, "/bin/sh");
    name_gives(host, "bash -x", SP_SHELL_SH, "/bin/sh");
    name_gives(host, "", SP_SHELL_SH, "/bin/sh");
    name_gives(host, "pwsh", SP_SHELL_SH, "/bin/sh"); /* known, not installed */
    name_gives(host, "zsh", SP_SHELL_ZSH, "/bin/zsh");
}

static void test_finding_survives_the_end_of_memory(void **state)
{
    const struct sp_shell_places *host = HOST("/gone/zsh", "/p:/q", "/q/bash", );

    (void)state;
    for (long n = 1;; n++) {
        struct sp_err e = {0};
        struct sp_shell s = {0};

        end_memory_at(n);
        const int r = sp_shell_find(host, (struct sp_str){0}, &s, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 2);
            is_shell(&s, SP_SHELL_BASH, "/q/bash");
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
        assert_null(s.path);
    }
}

/* ---- on a disk ---- */

static char folder[200];

static void make_file(const char *name, mode_t mode)
{
    char path[300];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static int begin_folder(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/shell-XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int end_folder(void **state)
{
    char path[300];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/cmd", folder);
    (void)remove(path); /* a test that failed may not have made it */
    return rmdir(folder);
}

static void test_only_a_file_that_can_be_run_is_a_shell(void **state)
{
    const struct sp_shell_places disk = {.path = folder};
    struct sp_shell s = {0};
    char path[300];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/cmd", folder);
    assert_int_equal(sp_shell_find(&disk, SP_STR("cmd"), &s, NULL), 0);
    is_shell(&s, SP_SHELL_SH, "/bin/sh"); /* not there */
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(sp_shell_find(&disk, SP_STR("cmd"), &s, NULL), 0);
    is_shell(&s, SP_SHELL_SH, "/bin/sh"); /* a folder */
    assert_int_equal(rmdir(path), 0);
    make_file("cmd", 0644);
    assert_int_equal(sp_shell_find(&disk, SP_STR("cmd"), &s, NULL), 0);
    is_shell(&s, SP_SHELL_SH, "/bin/sh"); /* not executable */
    make_file("cmd", 0755);
    assert_int_equal(sp_shell_find(&disk, SP_STR("cmd"), &s, NULL), 0);
    is_shell(&s, SP_SHELL_CMD, path);
}

/* ---- the account ---- */

int __real_getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size,
                      struct passwd **found);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size,
                      struct passwd **found);

static size_t entry_size;       /* what an entry takes; 0: the real database is asked */
static const char *entry_shell; /* NULL: no entry */
static int database_error;
static size_t largest_try;

int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size,
                      struct passwd **found)
{
    if (entry_size == 0)
        return __real_getpwuid_r(uid, entry, buf, size, found);
    largest_try = size;
    *found = NULL;
    if (database_error != 0)
        return database_error;
    if (size < entry_size)
        return ERANGE;
    if (entry_shell != NULL) {
        (void)snprintf(buf, size, "%s", entry_shell);
        *entry = (struct passwd){.pw_shell = buf};
        *found = entry;
    }
    return 0;
}

static void account_has(const char *want)
{
    struct sp_err e = {0};
    char untouched = 0;
    char *shell = &untouched;

    assert_int_equal(sp_shell_of_account(&shell, &e), 0);
    if (want == NULL) {
        assert_null(shell);
        return;
    }
    assert_non_null(shell);
    assert_string_equal(shell, want);
    free(shell);
}

static void test_the_account_is_that_of_the_password_database(void **state)
{
    (void)state;
    entry_size = 0;
    const struct passwd *p = getpwuid(getuid());
    account_has(p == NULL || p->pw_shell[0] == 0 ? NULL : p->pw_shell);
}

static void test_a_long_entry_gets_a_larger_buffer_up_to_one_mebibyte(void **state)
{
    (void)state;
    database_error = 0;
    entry_shell = "/bin/zsh";
    entry_size = 100;
    account_has("/bin/zsh");
    entry_size = 100000;
    account_has("/bin/zsh");
    assert_int_equal(largest_try, 131072);
    entry_size = 1048576;
    account_has("/bin/zsh");
    entry_size = 1048577;
    account_has(NULL);
    assert_int_equal(largest_try, 1048576);
}

static void test_an_account_may_have_no_shell(void **state)
{
    struct sp_err e = {0};
    char *shell = NULL;

    (void)state;
    entry_size = 100;
    entry_shell = NULL;
    account_has(NULL);
    entry_shell = "";
    account_has(NULL);
    entry_shell = "/bin/zsh";
    database_error = EIO;
    account_has(NULL);
    database_error = 0;
    for (long n = 1; n <= 2; n++) {
        end_memory_at(n);
        assert_int_equal(sp_shell_of_account(&shell, &e), -SP_E_SYSTEM);
        assert_true(did_memory_end());
    }
    entry_size = 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_type_is_a_file_name_without_its_extension),
    cmocka_unit_test(test_every_type_has_its_name),
    cmocka_unit_test(test_the_user_has_the_shell_of_the_account),
    cmocka_unit_test(test_an_unusable_account_shell_gives_way_to_bash_then_zsh_then_sh),
    cmocka_unit_test(test_a_type_is_located_in_account_then_path_then_usual_places),
    cmocka_unit_test(test_powershell_has_two_names),
    cmocka_unit_test(test_path_entries_that_are_not_absolute_are_skipped),
    cmocka_unit_test(test_a_model_names_a_type_never_a_file),
    cmocka_unit_test(test_finding_survives_the_end_of_memory),
    cmocka_unit_test_setup_teardown(test_only_a_file_that_can_be_run_is_a_shell, begin_folder,
                                    end_folder),
    cmocka_unit_test(test_the_account_is_that_of_the_password_database),
    cmocka_unit_test(test_a_long_entry_gets_a_larger_buffer_up_to_one_mebibyte),
    cmocka_unit_test(test_an_account_may_have_no_shell),
};

TEST_MAIN(tests)
