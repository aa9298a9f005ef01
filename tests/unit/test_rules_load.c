/* SPDX-License-Identifier: Apache-2.0 */
/* Where rules come from, and the amendments that are written back. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "rules_fixture.h"

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
    (void)st, (void)type, (void)w;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/sp-rules-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path below the root; a few at a time. */
static const char *at(const char *path)
{
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];

    (void)snprintf(p, 512, "%s/%s", root, path);
    return p;
}

static void write_file(const char *path, const char *text)
{
    char full[512];

    (void)snprintf(full, sizeof full, "%s", at(path));
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(full, 0644), 0);
}

static void assert_file(const char *path, const char *expected)
{
    char text[4096] = "";
    FILE *f = fopen(at(path), "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    (void)fclose(f);
    assert_string_equal(text, expected);
}

static char warnings[4096];

static void note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", text);
}

static struct sp_rules *load(const struct sp_rules_places *places, struct sp_rules *before)
{
    struct sp_rules *r = NULL;
    struct sp_err e = {0};

    warnings[0] = 0;
    if (sp_rules_load(places, before, note, NULL, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

/* ---- loading ---- */

static void test_nothing_there_is_no_rules(void **state)
{
    const char *const projects[] = {root, NULL};
    const struct sp_rules_places places = {
        .system_dir = at("none"), .user_dir = at("neither"), .projects = projects};

    (void)state;
    struct sp_rules *r = load(&places, NULL);
    assert_int_equal(count_rules(r), 0);
    assert_true(sp_rules_are_complete(r));
    assert_string_equal(warnings, "");
    sp_rules_unref(r);
    const struct sp_rules_places no_place = {0};
    r = load(&no_place, NULL);
    assert_int_equal(count_rules(r), 0);
    sp_rules_unref(r);
}

static void write_all(void)
{
    write_file("etc/rules/b.rules", "prefix_rule(['x', 'etc-b'])\nhost_executable('x', ['/e/x'])");
    write_file("etc/rules/a.rules", "prefix_rule(['x'], 'prompt')");
    write_file("etc/rules/c.rule", "nonsense");
    write_file("etc/rules/.rules", "nonsense");
    write_file("etc/rules/d.rules/e.rules", "nonsense");
    write_file("home/rules/u.rules", "prefix_rule(['x'])\nhost_executable('x', ['/u/x'])");
    write_file("extra.rules", "prefix_rule(['x'], 'forbidden')");
    write_file("src/repo/.git/HEAD", "");
    write_file("src/.sallyport/rules/outside.rules", "prefix_rule(['x', 'outside'])");
    write_file("src/repo/.sallyport/rules/r.rules", "prefix_rule(['x', 'root'])");
    write_file("src/repo/.codex/rules/r.rules", "prefix_rule(['x', 'codex'])");
    write_file("src/repo/a/.sallyport/rules/a.rules", "prefix_rule(['x', 'middle'])");
    write_file("src/repo/a/b/.sallyport/rules/b.rules", "prefix_rule(['x', 'here'])");
    write_file("src/repo/a/b/c/.sallyport/rules/c.rules", "prefix_rule(['x', 'below'])");
}

static void assert_files(const struct sp_rules *r, const char *const *expected)
{
    struct sp_rules_file file;
    uint32_t i = 0;

    for (; sp_rules_file(r, i, &file); i++) {
        assert_non_null(expected[i]);
        assert_string_equal(file.name, at(expected[i]));
        assert_int_equal(file.count, 1);
    }
    assert_null(expected[i]);
}

static void test_folders_are_read_in_their_order(void **state)
{
    static const char *const all[] = {
        "etc/rules/a.rules",
        "etc/rules/b.rules",
        "home/rules/u.rules",
        "extra.rules",
        "src/repo/.sallyport/rules/r.rules",
        "src/repo/.codex/rules/r.rules",
        "src/repo/a/b/.sallyport/rules/b.rules",
        NULL,
    };
    static const char *const untrusted[] = {"etc/rules/a.rules", "etc/rules/b.rules",
                                            "home/rules/u.rules", "extra.rules", NULL};
    static const char *const ignoring[] = {"etc/rules/a.rules", "etc/rules/b.rules", "extra.rules",
                                           NULL};
    char extra[512];
    const char *const files[] = {extra, NULL};
    char outer[512];
    char inner[512];
    const char *const projects[] = {outer, inner, NULL};

    (void)state;
    (void)snprintf(extra, sizeof extra, "%s", at("extra.rules"));
    write_all();
    (void)snprintf(outer, sizeof outer, "%s", at("src/repo"));
    (void)snprintf(inner, sizeof inner, "%s", at("src/repo/a/b"));
    struct sp_rules_places places = {.system_dir = strdup(at("etc")),
                                     .user_dir = strdup(at("home")),
                                     .projects = projects,
                                     .files = files};
    struct sp_rules *r = load(&places, NULL);
    assert_files(r, all);
    assert_string_equal(warnings, "");
    assert_said(r, "/u/x here",
                "prompt x (/u/x), allow x (/u/x), forbidden x (/u/x), "
                "allow x here (/u/x)");
    assert_said(r, "/e/x", ""); /* the last word on x is the user's */
    sp_rules_unref(r);
    places.projects = NULL;
    r = load(&places, NULL);
    assert_files(r, untrusted);
    sp_rules_unref(r);
    places.projects = projects;
    places.ignores_user_and_project = true;
    r = load(&places, NULL);
    assert_files(r, ignoring);
    sp_rules_unref(r);
    free((char *)(uintptr_t)places.system_dir);
    free((char *)(uintptr_t)places.user_dir);
}

/* Neither what is above nor what is below it: commands in a folder below may write there. */
static void test_only_the_root_of_a_project_has_rules(void **state)
{
    static const char *const expected[] = {"o/p/.codex/rules/x.rules", NULL};
    static const char *const roots[] = {"o/p", "o/p/", "o/p//"};
    char trusted[512];
    const char *const projects[] = {trusted, NULL};
    const struct sp_rules_places places = {.projects = projects};

    (void)state;
    write_file("o/.git/HEAD", "");
    write_file("o/.sallyport/rules/o.rules", "prefix_rule(['x'])");
    write_file("o/p/.codex/rules/x.rules", "prefix_rule(['x'])");
    write_file("o/p/q/.git/HEAD", "");
    write_file("o/p/q/.sallyport/rules/x.rules", "prefix_rule(['x'])");
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        struct sp_rules_file file;

        (void)snprintf(trusted, sizeof trusted, "%s", at(roots[i]));
        struct sp_rules *r = load(&places, NULL);
        if (i == 0)
            assert_files(r, expected);
        assert_true(sp_rules_file(r, 0, &file));
        assert_false(sp_rules_file(r, 1, &file));
        sp_rules_unref(r);
    }
}

static void test_no_folder_is_read_twice(void **state)
{
    static const char *const expected[] = {"h/.sallyport/rules/x.rules", NULL};
    char cwd[512];
    char home[512];

    (void)state;
    write_file("h/.sallyport/rules/x.rules", "prefix_rule(['x'])");
    (void)snprintf(cwd, sizeof cwd, "%s", at("h"));
    (void)snprintf(home, sizeof home, "%s", at("h/.sallyport"));
    const char *const projects[] = {cwd, NULL};
    const struct sp_rules_places places = {.user_dir = home, .projects = projects};
    struct sp_rules *r = load(&places, NULL);
    assert_files(r, expected);
    sp_rules_unref(r);
}

static void test_links_are_skipped_aloud(void **state)
{
    char expected[600];
    char home[512];

    (void)state;
    write_file("l/rules/a.rules", "prefix_rule(['x'])");
    assert_int_equal(symlink("a.rules", at("l/rules/b.rules")), 0);
    assert_int_equal(symlink("/nowhere", at("l/rules/c.rules")), 0);
    assert_int_equal(mkfifo(at("l/rules/d.rules"), 0600), 0);
    (void)snprintf(home, sizeof home, "%s", at("l"));
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *r = load(&places, NULL);
    (void)snprintf(expected, sizeof expected,
                   "%s/l/rules/b.rules: a symbolic link, skipped\n"
                   "%s/l/rules/c.rules: a symbolic link, skipped\n",
                   root, root);
    assert_string_equal(warnings, expected);
    assert_said(r, "x", "allow x");
    assert_true(sp_rules_are_complete(r));
    sp_rules_unref(r);
}

static void test_a_broken_file_keeps_its_last_version(void **state)
{
    char home[512];

    (void)state;
    write_file("k/rules/a.rules", "prefix_rule(['a'])");
    write_file("k/rules/b.rules", "prefix_rule(['b'], 'forbidden')");
    (void)snprintf(home, sizeof home, "%s", at("k"));
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *first = load(&places, NULL);
    write_file("k/rules/b.rules", "prefix_rule(['b']");
    struct sp_rules *second = load(&places, first);
    assert_non_null(strstr(warnings, "/k/rules/b.rules:1:18: unexpected end of the file"));
    assert_said(second, "a", "allow a");
    assert_said(second, "b", "forbidden b");
    assert_false(sp_rules_are_complete(second));
    sp_rules_unref(first);
    struct sp_rules *third = load(&places, second); /* and again */
    assert_said(third, "b", "forbidden b");
    assert_false(sp_rules_are_complete(third));
    struct sp_rules *fresh = load(&places, NULL); /* it never had one */
    assert_said(fresh, "a", "allow a");
    assert_said(fresh, "b", "");
    assert_false(sp_rules_are_complete(fresh));
    sp_rules_unref(fresh);
    struct sp_err e = {0};
    struct sp_rules *more = sp_rules_with_prefix(third, NULL, words("c"), &e);
    assert_false(sp_rules_are_complete(more));
    sp_rules_unref(more);
    write_file("k/rules/b.rules", "prefix_rule(['b'])");
    struct sp_rules *repaired = load(&places, third);
    assert_true(sp_rules_are_complete(repaired));
    assert_said(repaired, "b", "allow b");
    sp_rules_unref(repaired);
    assert_int_equal(unlink(at("k/rules/b.rules")), 0);
    struct sp_rules *gone = load(&places, third); /* what was taken away is gone */
    assert_true(sp_rules_are_complete(gone));
    assert_said(gone, "b", "");
    sp_rules_unref(gone);
    sp_rules_unref(third);
    sp_rules_unref(second);
}

static void refuses_to_load(const struct sp_rules_places *places, const char *expected)
{
    struct sp_rules *r = NULL;
    struct sp_err e = {0};
    char text[600];

    assert_true(sp_rules_load(places, NULL, note, NULL, &r, &e) < 0);
    assert_null(r);
    assert_string_equal(sp_error_text(&e, text, sizeof text), expected);
}

static void test_what_cannot_be_read_is_an_error(void **state)
{
    char expected[600];
    char path[512];
    const char *files[] = {path, NULL};

    (void)state;
    (void)snprintf(path, sizeof path, "%s", at("nowhere.rules"));
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules file %s: No such file or directory", path);
    refuses_to_load(&(struct sp_rules_places){.files = files}, expected);
    (void)snprintf(path, sizeof path, "%s", root);
    (void)snprintf(expected, sizeof expected, "failed to read rules file %s: Is a directory", path);
    refuses_to_load(&(struct sp_rules_places){.files = files}, expected);
    if (geteuid() == 0)
        return; /* root reads everything */
    write_file("s/rules/a.rules", "");
    (void)snprintf(path, sizeof path, "%s", at("s"));
    assert_int_equal(chmod(at("s/rules/a.rules"), 0), 0);
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules file %s/rules/a.rules: Permission denied", path);
    refuses_to_load(&(struct sp_rules_places){.user_dir = path}, expected);
    assert_int_equal(chmod(at("s/rules"), 0), 0);
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules files from %s/rules: Permission denied", path);
    refuses_to_load(&(struct sp_rules_places){.user_dir = path}, expected);
    assert_int_equal(chmod(at("s/rules"), 0755), 0);
}

/* ---- the administrator's ---- */

static void test_managed_rules_are_the_roots_alone(void **state)
{
    char etc[512];
    char expected[700];
    const struct sp_rules_places places = {.system_dir = etc};

    (void)state;
    write_file("m/managed.rules", "prefix_rule(['x'], 'forbidden')");
    (void)snprintf(etc, sizeof etc, "%s", at("m"));
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules file %s/managed.rules: it must be a file that belongs to "
                   "root and that nobody else may write",
                   etc);
    if (geteuid() == 0) {
        struct sp_rules *r = load(&places, NULL);
        assert_said(r, "x", "forbidden x");
        sp_rules_unref(r);
        assert_int_equal(chown(at("m/managed.rules"), 65534, 65534), 0);
    }
    refuses_to_load(&places, expected);
    if (geteuid() == 0)
        assert_int_equal(chown(at("m/managed.rules"), 0, 0), 0);
    assert_int_equal(chmod(at("m/managed.rules"), 0664), 0);
    refuses_to_load(&places, expected);
    assert_int_equal(unlink(at("m/managed.rules")), 0);
    assert_int_equal(symlink("/dev/null", at("m/managed.rules")), 0);
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules file %s/managed.rules: Too many levels of symbolic links",
                   etc);
    refuses_to_load(&places, expected);
}

static void test_nobody_else_hides_managed_rules(void **state)
{
    char etc[512];
    char home[512];
    const struct sp_rules_places places = {.system_dir = etc, .user_dir = home};

    (void)state;
    if (geteuid() != 0) {
        print_message("# only root can make a file that is root's: not tried\n");
        return;
    }
    write_file("n/managed.rules", "prefix_rule(['rm'], 'forbidden')\n"
                                  "network_rule('x.com', 'http', 'deny')");
    write_file("nh/rules/a.rules", "prefix_rule(['/bin/rm'])\nhost_executable('rm', [])\n"
                                   "network_rule('x.com', 'http', 'allow')");
    (void)snprintf(etc, sizeof etc, "%s", at("n"));
    (void)snprintf(home, sizeof home, "%s", at("nh"));
    struct sp_rules *r = load(&places, NULL);
    struct sp_network_rule n;
    assert_said(r, "/bin/rm x", "allow /bin/rm, forbidden rm (/bin/rm)");
    assert_said(r, "/opt/rm x", "forbidden rm (/opt/rm)");
    assert_true(sp_rules_network(r, 1, &n) && sp_str_eq(n.decision, SP_STR("deny")));
    write_file("n/managed.rules", "prefix_rule(");
    struct sp_rules *broken = load(&places, r);
    assert_said(broken, "rm", "forbidden rm");
    assert_false(sp_rules_are_complete(broken));
    sp_rules_unref(broken);
    sp_rules_unref(r);
}

/* ---- amendments ---- */

#define HELLO "prefix_rule(pattern=[\"echo\", \"Hello, world!\"], decision=\"allow\")\n"

static void test_an_amendment_is_one_line_once(void **state)
{
    static const struct sp_str hello[] = {{"echo", 4}, {"Hello, world!", 13}};
    const struct sp_words prefix = {hello, 2};
    struct sp_err e = {0};
    char home[512];

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("no/am"));
    assert_int_equal(amend_prefix(home, prefix, &e), -SP_E_SYSTEM); /* no parent */
    (void)snprintf(home, sizeof home, "%s", at("am"));
    struct stat made;
    assert_int_equal(stat(home, &made), -1);
    assert_int_equal(amend_prefix(home, prefix, &e), 0);
    assert_int_equal(stat(home, &made), 0); /* the first rule that is kept makes it */
    assert_int_equal(made.st_mode & 07777, 0700);
    assert_file("am/rules/default.rules", HELLO);
    assert_int_equal(amend_prefix(home, prefix, &e), 0);
    assert_file("am/rules/default.rules", HELLO);
    struct stat st;
    assert_int_equal(stat(at("am/rules/default.rules"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *r = load(&places, NULL);
    static const struct sp_str command[] = {{"echo", 4}, {"Hello, world!", 13}, {"x", 1}};
    assert_string_equal(said_by(r, (struct sp_words){command, 3}), "allow echo Hello, world!");
    sp_rules_unref(r);
}

static void test_a_missing_newline_is_added(void **state)
{
    struct sp_err e = {0};
    char home[512];

    (void)state;
    write_file("nl/rules/default.rules", "# mine");
    (void)snprintf(home, sizeof home, "%s", at("nl"));
    assert_int_equal(amend_prefix(home, words("a"), &e), 0);
    assert_file("nl/rules/default.rules",
                "# mine\nprefix_rule(pattern=[\"a\"], decision=\"allow\")\n");
    write_file("nl/rules/default.rules", "prefix_rule(pattern=[\"a\"], decision=\"allow\")\r\n");
    assert_int_equal(amend_prefix(home, words("a"), &e), 0);
    assert_file("nl/rules/default.rules", "prefix_rule(pattern=[\"a\"], decision=\"allow\")\r\n");
}

/* Whatever the words are, the line is in the language and means them. */
static void test_any_words_come_back(void **state)
{
    static const struct sp_str odd[] = {
        {"a\"b\\c", 5}, {"\n\t\r\b\f", 5}, {"\x01\x1F\x7F", 3}, {"\xC3\xA9\xF0\x9F\x98\x80", 6},
        {"", 0},        {"#'$", 3},        {"\xE2\x80\xA8", 3}, {"/x", 2}};
    const struct sp_words prefix = {odd, sizeof odd / sizeof *odd};
    static const struct sp_str bad[] = {{"\xFF", 1}};
    struct sp_rule_matches m = {0};
    struct sp_err e = {0};
    char home[512];

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("odd"));
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(amend_prefix(home, prefix, &e), 0);
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *r = load(&places, NULL);
    assert_string_equal(warnings, "");
    assert_true(sp_rules_match(r, prefix, true, &m));
    assert_int_equal(m.count, 1);
    assert_true(sp_words_equal(m.items[0].prefix, prefix));
    sp_rule_matches_done(&m);
    sp_rules_unref(r);
    assert_int_equal(amend_prefix(home, (struct sp_words){bad, 1}, &e), -SP_E_INVALID);
    assert_int_equal(amend_prefix(home, (struct sp_words){0}, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "prefix rule requires at least one token");
}

static void test_hosts_are_amended(void **state)
{
    struct sp_err e = {0};
    char home[512];

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("net"));
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(
        sp_rules_amend_network(home, SP_STR("api.github.com"), SP_STR("https"), true, &e), 0);
    assert_int_equal(sp_rules_amend_network(home, SP_STR("X.com:80"), SP_STR("http"), false, &e),
                     0);
    assert_int_equal(sp_rules_amend_network(home, SP_STR("x"), SP_STR("socks5_udp"), true, &e), 0);
    assert_file("net/rules/default.rules",
                "network_rule(host=\"api.github.com\", protocol=\"https\", decision=\"allow\", "
                "justification=\"Allow https_connect access to api.github.com\")\n"
                "network_rule(host=\"x.com\", protocol=\"http\", decision=\"deny\", "
                "justification=\"Deny http access to x.com\")\n"
                "network_rule(host=\"x\", protocol=\"socks5_udp\", decision=\"allow\", "
                "justification=\"Allow socks5_udp access to x\")\n");
    assert_int_equal(sp_rules_amend_network(home, SP_STR("*"), SP_STR("http"), true, &e),
                     -SP_E_INVALID);
    assert_int_equal(sp_rules_amend_network(home, SP_STR("x"), SP_STR("ftp"), true, &e),
                     -SP_E_INVALID);
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *r = load(&places, NULL);
    assert_int_equal(count_rules(r), 3);
    sp_rules_unref(r);
}

static void test_no_link_leads_an_amendment_elsewhere(void **state)
{
    struct sp_err e = {0};
    char home[512];

    (void)state;
    write_file("lk/victim", "keep");
    write_file("lk/rules/x", "");
    (void)snprintf(home, sizeof home, "%s", at("lk"));
    assert_int_equal(symlink("../victim", at("lk/rules/default.rules")), 0);
    assert_int_equal(amend_prefix(home, words("a"), &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, ELOOP);
    assert_file("lk/victim", "keep");
    assert_int_equal(unlink(at("lk/rules/default.rules")), 0);
    assert_int_equal(rename(at("lk/rules"), at("lk/real")), 0);
    assert_int_equal(symlink("real", at("lk/rules")), 0);
    assert_int_equal(amend_prefix(home, words("a"), &e), -SP_E_SYSTEM);
    assert_int_not_equal(access(at("lk/real/default.rules"), F_OK), 0);
    assert_int_equal(unlink(at("lk/rules")), 0);
    assert_int_equal(mkdir(at("lk/rules"), 0755), 0);
    assert_int_equal(mkfifo(at("lk/rules/default.rules"), 0600), 0);
    assert_int_equal(amend_prefix(home, words("a"), &e), -SP_E_SYSTEM);
}

static void test_a_lock_is_not_waited_for_without_end(void **state)
{
    struct sp_err e = {0};
    char home[512];

    (void)state;
    write_file("held/rules/default.rules", "");
    (void)snprintf(home, sizeof home, "%s", at("held"));
    const int fd = open(at("held/rules/default.rules"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(amend_prefix(home, words("a"), &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, EAGAIN);
    (void)close(fd);
    assert_int_equal(amend_prefix(home, words("a"), &e), 0);
}

/* Four writers, each with lines of its own and lines that all have. */
static void test_writers_at_once_lose_nothing(void **state)
{
    enum { WRITERS = 4, LINES = 25 };
    pid_t pids[WRITERS];
    char home[512];

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("many"));
    assert_int_equal(mkdir(home, 0755), 0);
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (pids[w] != 0)
            continue;
        for (int i = 0; i < LINES; i++) {
            char own[32];
            char common[32];

            (void)snprintf(own, sizeof own, "own%d %d", w, i);
            (void)snprintf(common, sizeof common, "common %d", i);
            if (amend_prefix(home, words(own), NULL) < 0 ||
                amend_prefix(home, words(common), NULL) < 0)
                _exit(1);
        }
        _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;

        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        assert_int_equal(status, 0);
    }
    const struct sp_rules_places places = {.user_dir = home};
    struct sp_rules *r = load(&places, NULL);
    assert_string_equal(warnings, "");
    assert_int_equal(count_rules(r), WRITERS * LINES + LINES);
    sp_rules_unref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_there_is_no_rules),
        cmocka_unit_test(test_folders_are_read_in_their_order),
        cmocka_unit_test(test_only_the_root_of_a_project_has_rules),
        cmocka_unit_test(test_no_folder_is_read_twice),
        cmocka_unit_test(test_links_are_skipped_aloud),
        cmocka_unit_test(test_a_broken_file_keeps_its_last_version),
        cmocka_unit_test(test_what_cannot_be_read_is_an_error),
        cmocka_unit_test(test_managed_rules_are_the_roots_alone),
        cmocka_unit_test(test_nobody_else_hides_managed_rules),
        cmocka_unit_test(test_an_amendment_is_one_line_once),
        cmocka_unit_test(test_a_missing_newline_is_added),
        cmocka_unit_test(test_any_words_come_back),
        cmocka_unit_test(test_hosts_are_amended),
        cmocka_unit_test(test_no_link_leads_an_amendment_elsewhere),
        cmocka_unit_test(test_a_lock_is_not_waited_for_without_end),
        cmocka_unit_test(test_writers_at_once_lose_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
