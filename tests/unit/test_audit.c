/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "approve/audit.h"
#include "base/auto.h"
#include "base/log.h"
#include "base/sha.h"
#include "test.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sp-audit-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static const struct sp_str argv_items[] = {{"git", 3}, {"st\"atus", 7}};
static const struct sp_words argv = {argv_items, 2};
static const struct sp_segments segments = {.items = &argv, .count = 1};
static const struct sp_approval_policy on_request = {.kind = SP_APPROVAL_ON_REQUEST};
static const struct sp_approval_policy granular = {.kind = SP_APPROVAL_GRANULAR, .rules = true};

static struct sp_audit_entry entry(void)
{
    return (struct sp_audit_entry){.call_id = SP_STR("c1"),
                                   .environment = SP_STR("local"),
                                   .cwd = SP_STR("/repo"),
                                   .command = argv,
                                   .segments = &segments,
                                   .policy = &on_request,
                                   .requirement = "ask",
                                   .decision = "approved",
                                   .decided_by = "user",
                                   .attempt = "confined"};
}

static void append(const struct sp_audit_entry *x)
{
    struct sp_err e = {0};

    if (sp_audit_append(path, x, &e) < 0)
        fail_msg("%s", e.msg);
}

static size_t read_log(char *ret, size_t max)
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    const size_t n = fread(ret, 1, max - 1, f);
    ret[n] = 0;
    (void)fclose(f);
    return n;
}

static void write_log(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void hash_of(const char *text, size_t n, char ret[65])
{
    uint8_t hash[32];

    sp_sha256((struct sp_str){text, n}, hash);
    for (int i = 0; i < 32; i++)
        (void)snprintf(ret + (size_t)2 * i, 3, "%02x", hash[i]);
}

static struct sp_audit_report verify(void)
{
    struct sp_audit_report r = {0};
    struct sp_err e = {0};

    if (sp_audit_verify(path, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

/* ---- writing ---- */

static void test_members_are_in_their_order(void **state)
{
    char text[4096];
    char expected[4096];
    char hash[65];
    struct stat st;
    struct sp_audit_entry x = entry();

    (void)state;
    (void)unlink(path);
    append(&x);
    x.policy = &granular;
    x.attempt = NULL;
    x.decision = "denied";
    append(&x);
    const size_t n = read_log(text, sizeof text);
    char *second = strchr(text, '\n') + 1;
    assert_int_equal(text[n - 1], '\n');
    hash_of(text, (size_t)(second - text) - 1, hash);
    assert_int_equal(strlen("2026-11-15T13:30:00.123Z"), 24);
    (void)snprintf(expected, sizeof expected,
                   "{\"seq\":1,\"time\":\"%.24s\",\"call_id\":\"c1\",\"environment\":\"local\","
                   "\"cwd\":\"/repo\",\"command\":[\"git\",\"st\\\"atus\"],"
                   "\"segments\":[[\"git\",\"st\\\"atus\"]],\"matches\":[],"
                   "\"policy\":\"on-request\",\"requirement\":\"ask\",\"decision\":\"approved\","
                   "\"decided_by\":\"user\",\"attempts\":[\"confined\"],\"prev\":\"" ZEROS "\"}\n",
                   text + strlen("{\"seq\":1,\"time\":\""));
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    (void)snprintf(expected, sizeof expected,
                   "{\"seq\":2,\"time\":\"%.24s\",\"call_id\":\"c1\",\"environment\":\"local\","
                   "\"cwd\":\"/repo\",\"command\":[\"git\",\"st\\\"atus\"],"
                   "\"segments\":[[\"git\",\"st\\\"atus\"]],\"matches\":[],"
                   "\"policy\":{\"granular\":{\"sandbox_approval\":false,\"rules\":true,"
                   "\"skill_approval\":false,\"request_permissions\":false,"
                   "\"mcp_elicitations\":false}},\"requirement\":\"ask\",\"decision\":\"denied\","
                   "\"decided_by\":\"user\",\"attempts\":[],\"prev\":\"%s\"}\n",
                   second + strlen("{\"seq\":2,\"time\":\""), hash);
    assert_string_equal(second, expected);
    const char *time = text + strlen("{\"seq\":1,\"time\":\"");
    assert_true(time[4] == '-' && time[10] == 'T' && time[19] == '.' && time[23] == 'Z');
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_matches_are_as_check_has_them(void **state)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_rule_matches matches = {0};
    struct sp_audit_entry x = entry();
    struct sp_err e = {0};
    char text[4096];

    (void)state;
    (void)unlink(path);
    assert_int_equal(sp_rules_add_text(m, "x", SP_STR("prefix_rule(['git'])"), NULL, NULL, &e), 0);
    struct sp_rules *r = sp_rules_make(m);
    assert_true(sp_rules_match(r, argv, true, &matches));
    x.matches = &matches;
    append(&x);
    (void)read_log(text, sizeof text);
    assert_non_null(strstr(text, "\"matches\":[{\"prefixRuleMatch\":{\"matchedPrefix\":[\"git\"],"
                                 "\"decision\":\"allow\"}}],\"policy\""));
    sp_rule_matches_done(&matches);
    sp_rules_unref(r);
    sp_rules_maker_free(m);
    assert_int_equal(verify().line, 0);
}

static void test_a_long_command_is_told_by_its_hash(void **state)
{
    const size_t n = 70000;
    auto_free char *word = malloc(n);
    auto_free char *json = malloc(n + 5);
    const struct sp_str one = {word, n};
    const struct sp_words command = {&one, 1};
    const struct sp_segments whole = {.items = &command, .count = 1};
    struct sp_audit_entry x = entry();
    char expected[256];
    char text[4096];
    char hash[65];

    (void)state;
    (void)unlink(path);
    memset(word, 'a', n);
    (void)snprintf(json, n + 5, "[\"%.*s\"]", (int)n, word);
    hash_of(json, n + 4, hash);
    x.command = command;
    x.segments = &whole;
    append(&x);
    (void)read_log(text, sizeof text);
    (void)snprintf(expected, sizeof expected,
                   "\"command\":{\"sha256\":\"%s\",\"bytes\":%zu},\"segments\":{\"sha256\":\"",
                   hash, n + 4);
    assert_non_null(strstr(text, expected));
    append(&x);
    assert_int_equal(verify().entries, 2);
}

static void test_a_mode_that_others_have_is_taken_back(void **state)
{
    struct sp_audit_entry x = entry();
    struct stat st;

    (void)state;
    assert_int_equal(chmod(path, 0666), 0);
    append(&x);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_no_link_is_followed(void **state)
{
    struct sp_audit_entry x = entry();
    struct sp_err e = {0};
    char other[128];

    (void)state;
    (void)unlink(path);
    (void)snprintf(other, sizeof other, "%s/victim", folder);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(sp_audit_append(path, &x, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, ELOOP);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sp_audit_append(path, &x, &e), -SP_E_SYSTEM);
    struct sp_audit_report r;
    assert_int_equal(sp_audit_verify(path, &r, &e), -SP_E_INVALID);
    assert_int_equal(unlink(path), 0);
}

static void test_the_folder_is_made_if_its_own_is_there(void **state)
{
    struct sp_audit_entry x = entry();
    struct sp_err e = {0};
    char log[160];

    (void)state;
    (void)snprintf(log, sizeof log, "%s/new/audit.jsonl", folder);
    assert_int_equal(sp_audit_append(log, &x, &e), 0);
    assert_int_equal(unlink(log), 0);
    *strrchr(log, '/') = 0;
    assert_int_equal(rmdir(log), 0);
    (void)snprintf(log, sizeof log, "%s/a/b/audit.jsonl", folder);
    assert_int_equal(sp_audit_append(log, &x, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, ENOENT);
}

static void test_a_broken_end_is_not_continued(void **state)
{
    static const char *const ends[] = {"{\"seq\":2,", "{\"sequel", "nonsense",
                                       "nonsense\n",  "\n",        "{\"seq\":x,}\n"};
    struct sp_audit_entry x = entry();
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sp_err e = {0};

        write_log(ends[i], strlen(ends[i]));
        assert_int_equal(sp_audit_append(path, &x, &e), -SP_E_STATE);
        assert_non_null(strstr(e.msg, "its last line is not a whole entry"));
        (void)read_log(text, sizeof text);
        assert_string_equal(text, ends[i]);
    }
    (void)unlink(path);
}

/* A writer that was killed in the middle of a line: each length of the second entry. */
static void test_the_rest_of_a_killed_write_is_removed(void **state)
{
    struct sp_audit_entry x = entry();
    char text[4096];

    (void)state;
    (void)sp_log_set_level("error");
    (void)unlink(path);
    append(&x);
    append(&x);
    const size_t n = read_log(text, sizeof text);
    const size_t first = (size_t)(strchr(text, '\n') - text) + 1;
    for (size_t cut = 1; cut < n; cut++) {
        write_log(text, cut);
        if (cut == first)
            continue;
        append(&x);
        assert_int_equal(verify().line, 0);
        assert_int_equal(verify().entries, cut < first ? 1 : 2);
    }
    (void)unlink(path);
}

/* A disk that is full in the middle of a line. */
static void test_half_a_line_is_taken_back(void **state)
{
    struct sp_audit_entry x = entry();
    struct rlimit old;
    struct stat st;

    (void)state;
    (void)unlink(path);
    append(&x);
    assert_int_equal(stat(path, &st), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_err e = {0};

        (void)signal(SIGXFSZ, SIG_IGN);
        (void)getrlimit(RLIMIT_FSIZE, &old);
        const struct rlimit small = {(rlim_t)st.st_size + 40, old.rlim_max};
        _exit(setrlimit(RLIMIT_FSIZE, &small) < 0 || sp_audit_append(path, &x, &e) == 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    append(&x);
    assert_int_equal(verify().entries, 2);
}

static void test_a_lock_is_not_waited_for_without_end(void **state)
{
    struct sp_audit_entry x = entry();
    struct sp_err e = {0};

    (void)state;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(sp_audit_append(path, &x, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, EAGAIN);
    (void)close(fd);
}

static void test_writers_at_once_make_one_chain(void **state)
{
    enum { WRITERS = 4, LINES = 50 };
    struct sp_audit_entry x = entry();
    pid_t pids[WRITERS];

    (void)state;
    (void)unlink(path);
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (pids[w] != 0)
            continue;
        for (int i = 0; i < LINES; i++)
            if (sp_audit_append(path, &x, NULL) < 0)
                _exit(1);
        _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;

        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        assert_int_equal(status, 0);
    }
    const struct sp_audit_report r = verify();
    assert_int_equal(r.line, 0);
    assert_int_equal(r.entries, WRITERS * LINES);
}

/* ---- verifying ---- */

static void test_an_empty_log_holds(void **state)
{
    struct sp_audit_report r;
    struct sp_err e = {0};

    (void)state;
    write_log("", 0);
    r = verify();
    assert_int_equal(r.entries, 0);
    assert_int_equal(r.line, 0);
    assert_string_equal(r.last, ZEROS);
    (void)unlink(path);
    assert_int_equal(sp_audit_verify(path, &r, &e), -SP_E_SYSTEM);
}

static void test_the_last_hash_is_of_the_last_line(void **state)
{
    struct sp_audit_entry x = entry();
    char text[8192];
    char hash[65];

    (void)state;
    (void)unlink(path);
    for (int i = 0; i < 3; i++)
        append(&x);
    const size_t n = read_log(text, sizeof text);
    text[n - 1] = 0;
    const char *last = strrchr(text, '\n') + 1;
    hash_of(last, strlen(last), hash);
    const struct sp_audit_report r = verify();
    assert_int_equal(r.entries, 3);
    assert_string_equal(r.last, hash);
}

/* Every byte of the first of three lines, changed by one bit: some line is found at fault. */
static void test_no_byte_can_be_changed(void **state)
{
    struct sp_audit_entry x = entry();
    char text[8192];

    (void)state;
    (void)unlink(path);
    for (int i = 0; i < 3; i++)
        append(&x);
    const size_t n = read_log(text, sizeof text);
    const size_t line = (size_t)(strchr(text, '\n') - text);
    for (size_t i = 0; i <= line; i++) {
        text[i] ^= 1;
        write_log(text, n);
        const struct sp_audit_report r = verify();
        if (r.line == 0)
            fail_msg("byte %zu of the first line", i);
        text[i] ^= 1;
    }
    write_log(text, n);
    assert_int_equal(verify().line, 0);
}

static void finds(const char *text, size_t n, uint64_t line, const char *fault)
{
    write_log(text, n);
    const struct sp_audit_report r = verify();
    assert_int_equal(r.line, line);
    assert_int_equal(strncmp(r.fault, fault, strlen(fault)), 0);
}

static void test_lines_cannot_be_taken_swapped_or_added(void **state)
{
    struct sp_audit_entry x = entry();
    char text[8192];
    char other[16384];

    (void)state;
    (void)unlink(path);
    for (int i = 0; i < 3; i++)
        append(&x);
    const size_t n = read_log(text, sizeof text);
    const char *second = strchr(text, '\n') + 1;
    const char *third = strchr(second, '\n') + 1;
    const int first_n = (int)(second - text);
    const int second_n = (int)(third - second);
    finds(second, n - (size_t)first_n, 1, "out of sequence: `seq` is 2, not 1");
    (void)snprintf(other, sizeof other, "%.*s%s", first_n, text, third);
    finds(other, strlen(other), 2, "out of sequence: `seq` is 3, not 2");
    (void)snprintf(other, sizeof other, "%.*s%.*s%s", second_n, second, first_n, text, third);
    finds(other, strlen(other), 1, "out of sequence");
    (void)snprintf(other, sizeof other, "%.*s%.*s%s", first_n, text, first_n, text, second);
    finds(other, strlen(other), 2, "out of sequence: `seq` is 1, not 2");
    (void)snprintf(other, sizeof other, "%.*s\n%s", first_n, text, second);
    finds(other, strlen(other), 2, "not JSON");
    finds(text, n - 1, 3, "cut off: the line has no end");
    finds("[]\n", 3, 1, "not an entry: `seq` is not in its place");
    (void)snprintf(other, sizeof other, "%.*s,\"more\":1}\n", first_n - 2, text);
    finds(other, strlen(other), 1, "not an entry: there is more behind `prev`");
    /* A cut-off end is not seen: that is what the number and the hash are for. */
    write_log(text, (size_t)(third - text));
    assert_int_equal(verify().entries, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_are_in_their_order),
        cmocka_unit_test(test_matches_are_as_check_has_them),
        cmocka_unit_test(test_a_long_command_is_told_by_its_hash),
        cmocka_unit_test(test_a_mode_that_others_have_is_taken_back),
        cmocka_unit_test(test_no_link_is_followed),
        cmocka_unit_test(test_the_folder_is_made_if_its_own_is_there),
        cmocka_unit_test(test_a_broken_end_is_not_continued),
        cmocka_unit_test(test_the_rest_of_a_killed_write_is_removed),
        cmocka_unit_test(test_half_a_line_is_taken_back),
        cmocka_unit_test(test_a_lock_is_not_waited_for_without_end),
        cmocka_unit_test(test_writers_at_once_make_one_chain),
        cmocka_unit_test(test_an_empty_log_holds),
        cmocka_unit_test(test_the_last_hash_is_of_the_last_line),
        cmocka_unit_test(test_no_byte_can_be_changed),
        cmocka_unit_test(test_lines_cannot_be_taken_swapped_or_added),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
