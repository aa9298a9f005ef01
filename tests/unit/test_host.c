/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "os/host.h"
#include "process_fixture.h"

static void is_complete(const struct sp_host *h)
{
    static const char *const kinds[] = {"zsh", "bash", "sh", "powershell"};
    bool is_known = false;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        is_known = is_known || strcmp(h->shell_name, kinds[i]) == 0;
    assert_true(is_known);
    assert_int_equal(h->shell_path[0], '/');
    assert_int_equal(access(h->shell_path, X_OK), 0);
    assert_int_equal(h->login_shell[0], '/');
    assert_int_equal(strlen(h->provider_id), 71);
    assert_memory_equal(h->provider_id, "sha256:", 7);
    assert_int_equal(strspn(h->provider_id + 7, "0123456789abcdef"), 64);
}

static void test_a_host_is_described_the_same_twice(void **state)
{
    struct sp_host a;
    struct sp_host b;

    (void)state;
    memset(&a, 0xFF, sizeof a);
    sp_host_detect(&a);
    is_complete(&a);
    memset(&b, 0, sizeof b);
    sp_host_detect(&b);
    assert_string_equal(a.shell_path, b.shell_path);
    assert_string_equal(a.provider_id, b.provider_id);
    assert_string_equal(a.home, b.home);
}

static void test_home_is_what_the_environment_says(void **state)
{
    const char *was = getenv("HOME");
    char *copy = was != NULL ? strdup(was) : NULL;
    struct sp_host h;
    struct sp_host without;
    static char longer[2000];

    (void)state;
    assert_int_equal(setenv("HOME", "/somewhere/else", 1), 0);
    sp_host_detect(&h);
    assert_string_equal(h.home, "/somewhere/else");
    assert_int_equal(setenv("HOME", "", 1), 0); /* says nothing: the account's */
    sp_host_detect(&h);
    assert_int_equal(unsetenv("HOME"), 0);
    sp_host_detect(&without);
    assert_string_equal(h.home, without.home);
    memset(longer, 'x', sizeof longer - 1);
    assert_int_equal(setenv("HOME", longer, 1), 0); /* cut, never overrun */
    sp_host_detect(&h);
    assert_int_equal(strlen(h.home), sizeof h.home - 1);
    if (copy != NULL)
        assert_int_equal(setenv("HOME", copy, 1), 0);
    free(copy);
}

static void test_a_host_without_a_path_has_a_shell(void **state)
{
    static const char *const paths[] = {"", ":", "::::", "/nowhere", "relative", "/bin/:/"};
    char *copy = strdup(getenv("PATH") != NULL ? getenv("PATH") : "/bin");
    struct sp_host h;

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(setenv("PATH", paths[i], 1), 0);
        sp_host_detect(&h);
        is_complete(&h);
    }
    assert_int_equal(setenv("PATH", copy, 1), 0);
    free(copy);
}

/* A user nobody knows: no home, the plainest shell. */
static void test_an_unknown_account_gets_the_plainest_values(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        (void)printf("# another account can be had by root alone\n");
        return;
    }
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_host h;

        CHILD_CHECK(setresuid(4000123, 4000123, 4000123) == 0);
        CHILD_CHECK(unsetenv("HOME") == 0);
        sp_host_detect(&h);
        CHILD_CHECK(h.home[0] == 0);
        CHILD_CHECK(strcmp(h.login_shell, "/bin/sh") == 0);
        CHILD_CHECK(strcmp(h.shell_name, "sh") == 0 && strcmp(h.shell_path, "/bin/sh") == 0);
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
}

/* ---- which shell ---- */

static void make_program(const char *dir, const char *name, mode_t mode)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

/* @ is the directory. */
static void expand(char *ret, size_t size, const char *text, const char *dir)
{
    const size_t n = strcspn(text, "@");

    (void)snprintf(ret, size, "%.*s%s%s", (int)n, text, text[n] == '@' ? dir : "",
                   text[n] == '@' ? text + n + 1 : "");
}

struct choice {
    const char *login; /* @: the directory with programs */
    const char *path;
    const char *name, *program;
};

static void test_the_shell_of_an_account(void **state)
{
    static const char *const programs[] = {"zsh", "bash.exe", "pwsh",  "powershell",
                                           "sh",  "fish",     ".bash", "bash.old.1"};
    /* The account's own if it is of a known kind and there; else one of that kind; else bash. */
    static const struct choice choices[] = {
        {"@/zsh", "/nowhere", "zsh", "@/zsh"},
        {"@/sh", "/nowhere", "sh", "@/sh"},
        {"@/pwsh", "/nowhere", "powershell", "@/pwsh"},
        {"@/powershell", "/nowhere", "powershell", "@/powershell"},
        {"@/bash.exe", "/nowhere", "bash", "@/bash.exe"},
        {"/gone/zsh", "/nowhere:@", "zsh", "@/zsh"},
        {"/gone/pwsh", "@", "powershell", "@/pwsh"},
        {"/gone/sh", "relative:@", "sh", "@/sh"},
        {"zsh", "@", "zsh", "@/zsh"}, /* no path: not run from where we are */
        {"/gone/sh", "/nowhere", "sh", "/bin/sh"},
        {"/gone/bash", "/nowhere", NULL, NULL}, /* where this machine has it */
        {"@/fish", "/nowhere", NULL, NULL},
        {"@/.bash", "/nowhere", NULL, NULL},
        {"@/bash.old.1", "/nowhere", NULL, NULL},
        {"/usr/sbin/nologin", "/nowhere", NULL, NULL},
        {"", "/nowhere", NULL, NULL},
    };
    char dir[] = "/tmp/sallyport-host-XXXXXX";
    char *path = strdup(getenv("PATH") != NULL ? getenv("PATH") : "/bin");
    char text[256];
    struct sp_host plain = {.login_shell = "/bin/true"};

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        make_program(dir, programs[i], 0755);
    make_program(dir, "bash", 0644); /* not to be run */
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    sp_host_choose_shell(&plain);
    assert_true(strcmp(plain.shell_name, "bash") == 0 || access("/bin/bash", X_OK) != 0);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const struct choice *c = &choices[i];
        struct sp_host h = {0};

        expand(h.login_shell, sizeof h.login_shell, c->login, dir);
        expand(text, sizeof text, c->path, dir);
        assert_int_equal(setenv("PATH", text, 1), 0);
        sp_host_choose_shell(&h);
        expand(text, sizeof text, c->program == NULL ? plain.shell_path : c->program, dir);
        if (strcmp(h.shell_path, text) != 0 ||
            strcmp(h.shell_name, c->name == NULL ? plain.shell_name : c->name) != 0)
            fail_msg("%s: %s %s, not %s", c->login, h.shell_name, h.shell_path, text);
    }
    assert_int_equal(setenv("PATH", dir, 1), 0); /* its bash is no program: the usual one */
    sp_host_choose_shell(&plain);
    assert_true(strncmp(plain.shell_path, dir, strlen(dir)) != 0 ||
                strcmp(plain.shell_name, "zsh") == 0);
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        (void)snprintf(text, sizeof text, "%s/%s", dir, programs[i]);
        assert_int_equal(unlink(text), 0);
    }
    (void)snprintf(text, sizeof text, "%s/bash", dir);
    assert_int_equal(unlink(text), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_detection_leaves_no_descriptor(void **state)
{
    struct sp_host h;
    const int before = open_fds();

    (void)state;
    sp_host_detect(&h);
    assert_int_equal(open_fds(), before);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_host_is_described_the_same_twice),
    cmocka_unit_test(test_home_is_what_the_environment_says),
    cmocka_unit_test(test_a_host_without_a_path_has_a_shell),
    cmocka_unit_test(test_an_unknown_account_gets_the_plainest_values),
    cmocka_unit_test(test_the_shell_of_an_account),
    cmocka_unit_test(test_detection_leaves_no_descriptor),
};

TEST_MAIN(tests)
