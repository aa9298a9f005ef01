/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that are read again when their files change. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "approve/rules/rules_watch.h"
#include "base/auto.h"
#include "rules_fixture.h"

#define DEADLINE_MS 20000
#define QUIET_MS    400 /* in which what should not happen would have */

/* ---- a kernel that has no room ---- */

static int init_fails, add_fails; /* an errno; 0: they do what they should */
static int adds;

int __real_inotify_init1(int flags);
int __real_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_init1(int flags);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);

int __wrap_inotify_init1(int flags)
{
    errno = init_fails;
    return init_fails != 0 ? -1 : __real_inotify_init1(flags);
}

int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask)
{
    adds++;
    errno = add_fails;
    return add_fails != 0 ? -1 : __real_inotify_add_watch(fd, path, mask);
}

/* ---- files ---- */

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
    (void)st, (void)type, (void)w;
    return remove(path);
}

static const char *at(const char *path)
{
    static char paths[8][1024];
    static unsigned next;
    char *p = paths[next++ % 8];

    (void)snprintf(p, 1024, "%s/%s", root, path);
    return p;
}

static void make_folders(const char *path)
{
    char full[1024];

    (void)snprintf(full, sizeof full, "%s", at(path));
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(full, 0755);
        *slash = '/';
    }
}

/* In place, as some editors do. */
static void write_file(const char *path, const char *text)
{
    make_folders(path);
    FILE *f = fopen(at(path), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Beside, and then in its place, as others do. */
static void save_file(const char *path, const char *text)
{
    char other[512];

    (void)snprintf(other, sizeof other, "%s~", path);
    write_file(other, text);
    assert_int_equal(rename(at(other), at(path)), 0);
}

/* ---- a watch ---- */

static struct sp_loop *loop;
static struct sp_rules_watch *watch;
static struct sp_rules *rules; /* as it was told */
static char fingerprint[128];
static char warnings[8192];
static int told;     /* how often */
static int refusals; /* how often it is not taken */

static void on_warning(void *user, const char *text)
{
    (void)user;
    (void)snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", text);
}

static void take(struct sp_rules *r, struct sp_str print)
{
    sp_rules_unref(rules);
    rules = sp_rules_ref(r);
    (void)snprintf(fingerprint, sizeof fingerprint, "%.*s", (int)print.n,
                   print.n == 0 ? "" : print.p);
}

static bool on_change(void *user, struct sp_rules *r, struct sp_str print)
{
    (void)user;
    told++;
    if (refusals > 0) {
        refusals--;
        return false;
    }
    take(r, print);
    return true;
}

static int set_up(void **state)
{
    struct sp_err e = {0};
    int fd;

    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/sp-watch-XXXXXX");
    warnings[0] = 0;
    told = refusals = init_fails = add_fails = adds = 0;
    if (mkdtemp(root) == NULL || sp_loop_new(&loop, &e) < 0)
        return 1;
    return sp_loop_fd(loop, &fd, &e);
}

static void stop(void)
{
    sp_rules_watch_free(watch);
    watch = NULL;
    sp_rules_unref(rules);
    rules = NULL;
}

static int tear_down(void **state)
{
    (void)state;
    stop();
    sp_loop_free(loop);
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct sp_rules_places places(void)
{
    static char system_dir[80], user_dir[80];

    (void)snprintf(system_dir, sizeof system_dir, "%s/etc", root);
    (void)snprintf(user_dir, sizeof user_dir, "%s/home", root);
    return (struct sp_rules_places){.system_dir = system_dir, .user_dir = user_dir};
}

static void start_at(struct sp_rules_places p)
{
    const struct sp_rules_watch_options o = {
        .loop = loop, .places = &p, .changed = on_change, .warn = on_warning};
    struct sp_str of_managed;
    struct sp_rules *first;
    struct sp_err e = {0};

    if (sp_rules_watch_new(&o, &watch, &first, &of_managed, &e) < 0)
        fail_msg("%s", e.msg);
    take(first, of_managed);
    assert_int_equal(told, 0);
}

static void start(void)
{
    start_at(places());
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void turn(uint64_t until)
{
    const uint64_t now = now_ms();

    assert_int_equal(sp_loop_dispatch(loop, until > now ? (int)(until - now) : 0, NULL), 0);
}

/* Until the rules say that of the command. */
static void becomes(const char *command, const char *said)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (strcmp(said_by(rules, words(command)), said) != 0) {
        if (now_ms() >= end)
            fail_msg("%s: \"%s\", not \"%s\"; warnings: %s", command,
                     said_by(rules, words(command)), said, warnings);
        turn(end);
    }
}

static void becomes_complete(bool is_complete)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (sp_rules_are_complete(rules) != is_complete) {
        assert_true(now_ms() < end);
        turn(end);
    }
}

static void is_told_again(void)
{
    const uint64_t end = now_ms() + DEADLINE_MS;
    const int before = told;

    while (told == before) {
        assert_true(now_ms() < end);
        turn(end);
    }
}

static void stay_quiet(void)
{
    const uint64_t end = now_ms() + QUIET_MS;

    while (now_ms() < end)
        turn(end);
}

static void assert_warned(const char *text)
{
    assert_string_equal(warnings, text);
    warnings[0] = 0;
}

#define ALLOW(word)  "prefix_rule(pattern=[\"" word "\"], decision=\"allow\")\n"
#define FORBID(word) "prefix_rule(pattern=[\"" word "\"], decision=\"forbidden\")\n"

/* ---- files that come, change and go ---- */

static void test_a_file_comes_changes_and_goes(void **state)
{
    (void)state;
    write_file("home/rules/a.rules", ALLOW("make"));
    start();
    becomes("make", "allow make");

    write_file("home/rules/b.rules", FORBID("rm"));
    becomes("rm", "forbidden rm");
    write_file("home/rules/b.rules", ALLOW("rm"));
    becomes("rm", "allow rm");
    save_file("home/rules/b.rules", FORBID("rm"));
    becomes("rm", "forbidden rm");
    save_file("home/rules/b.rules", ALLOW("rm"));
    becomes("rm", "allow rm");
    assert_int_equal(unlink(at("home/rules/b.rules")), 0);
    becomes("rm", "");
    assert_int_equal(rename(at("home/rules/a.rules"), at("home/rules/a.off")), 0);
    becomes("make", "");
    assert_int_equal(rename(at("home/rules/a.off"), at("home/rules/z.rules")), 0);
    becomes("make", "allow make");
    assert_warned("");
}

static void test_files_that_are_not_rules_are_nothing(void **state)
{
    (void)state;
    write_file("home/rules/a.rules", ALLOW("make"));
    start();
    write_file("home/rules/notes.txt", "x");
    write_file("home/audit.jsonl", "{}\n");
    write_file("other/a.rules", ALLOW("x"));
    stay_quiet();
    assert_int_equal(told, 0);
}

static void test_a_file_is_read_when_it_was_written(void **state)
{
    (void)state;
    make_folders("home/rules/");
    start();
    auto_close int fd = open(at("home/rules/a.rules"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "prefix_rule(pattern=", 20), 20);
    turn(now_ms() + 100);
    const char *rest = "[\"make\"], decision=\"allow\")\n";
    assert_int_equal(write(fd, rest, strlen(rest)), strlen(rest));
    (void)close(TAKE_FD(fd));
    becomes("make", "allow make");
    assert_warned("");

    auto_close int again = open(at("home/rules/a.rules"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    stay_quiet();
    becomes("make", "allow make"); /* it is empty now, but its writer is not done */
    assert_int_equal(write(again, FORBID("make"), strlen(FORBID("make"))), strlen(FORBID("make")));
    (void)close(TAKE_FD(again));
    becomes("make", "forbidden make");
    assert_warned("");
}

static void test_a_file_that_gets_its_name_last(void **state)
{
    char proc[64];

    (void)state;
    make_folders("home/rules/");
    write_file("other", ALLOW("one"));
    start();
    assert_int_equal(link(at("other"), at("home/rules/a.rules")), 0);
    becomes("one", "allow one");

    auto_close int fd = open(at("home/rules"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) {
        (void)printf("# no O_TMPFILE here\n");
        return;
    }
    assert_int_equal(write(fd, ALLOW("two"), strlen(ALLOW("two"))), strlen(ALLOW("two")));
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, proc, AT_FDCWD, at("home/rules/b.rules"), AT_SYMLINK_FOLLOW) < 0) {
        (void)printf("# no linkat from /proc here\n");
        return;
    }
    becomes("two", "allow two");
}

static void test_a_link_is_skipped_and_told(void **state)
{
    char expected[256];

    (void)state;
    make_folders("home/rules/");
    write_file("other", ALLOW("make"));
    start();
    assert_int_equal(symlink(at("other"), at("home/rules/a.rules")), 0);
    is_told_again();
    becomes("make", "");
    (void)snprintf(expected, sizeof expected, "%s/home/rules/a.rules: a symbolic link, skipped\n",
                   root);
    assert_warned(expected);
}

/* ---- folders ---- */

static void test_folders_come_and_go(void **state)
{
    (void)state;
    start(); /* there is nothing at all */
    write_file("home/rules/a.rules", ALLOW("make"));
    becomes("make", "allow make");
    write_file("etc/rules/a.rules", ALLOW("ls"));
    becomes("ls", "allow ls");

    assert_int_equal(rename(at("home"), at("home2")), 0);
    becomes("make", "");
    assert_int_equal(rename(at("home2"), at("home")), 0);
    becomes("make", "allow make");
    assert_int_equal(rename(at("home/rules"), at("home/off")), 0);
    becomes("make", "");
    assert_int_equal(rename(at("home/off"), at("home/rules")), 0);
    becomes("make", "allow make");

    assert_int_equal(unlink(at("home/rules/a.rules")), 0);
    assert_int_equal(rmdir(at("home/rules")), 0);
    assert_int_equal(rmdir(at("home")), 0);
    becomes("make", "");
    becomes("ls", "allow ls");
    write_file("home/rules/a.rules", ALLOW("make"));
    becomes("make", "allow make");
    assert_warned("");
}

static void test_a_place_far_below_what_is_there(void **state)
{
    struct sp_rules_places p = places();
    char far[128];

    (void)state;
    (void)snprintf(far, sizeof far, "%s/a/b/c/d/", root);
    p.user_dir = far;
    start_at(p);
    assert_int_equal(mkdir(at("a"), 0755), 0);
    stay_quiet();
    assert_int_equal(mkdir(at("a/b"), 0755), 0);
    write_file("a/b/c/d/rules/x.rules", ALLOW("make"));
    becomes("make", "allow make");
}

static void test_a_folder_that_cannot_be_read(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        (void)printf("# root reads everything\n");
        return;
    }
    write_file("home/rules/a.rules", ALLOW("make"));
    start();
    assert_int_equal(chmod(at("home/rules"), 0), 0);
    becomes_complete(false);
    becomes("make", "allow make");
    assert_non_null(strstr(warnings, "failed to read rules files from"));
    assert_int_equal(chmod(at("home/rules"), 0755), 0);
    becomes_complete(true);
}

/* ---- files that break ---- */

static void test_a_broken_file_keeps_its_previous_version(void **state)
{
    char expected[256];

    (void)state;
    write_file("home/rules/a.rules", ALLOW("make"));
    write_file("home/rules/b.rules", ALLOW("ls"));
    start();
    (void)snprintf(expected, sizeof expected, "%s/home/rules/a.rules:2:1: ", root);
    save_file("home/rules/a.rules", "\nprefix_rule(colour=[\"make\"])\n");
    becomes_complete(false);
    becomes("make", "allow make");
    assert_memory_equal(warnings, expected, strlen(expected));
    assert_ptr_equal(strchr(warnings, '\n'), warnings + strlen(warnings) - 1);
    warnings[0] = 0;

    write_file("home/rules/b.rules", FORBID("ls")); /* another changes: that is no news of this */
    becomes("ls", "forbidden ls");
    assert_warned("");
    assert_false(sp_rules_are_complete(rules));
    write_file("home/rules/a.rules", "\nprefix_rule(colour=[\"make\"])\n#\n"); /* still wrong */
    is_told_again();
    assert_memory_equal(warnings, expected, strlen(expected));
    warnings[0] = 0;

    write_file("home/rules/a.rules", FORBID("make"));
    becomes_complete(true);
    becomes("make", "forbidden make");
    assert_warned("");
    save_file("home/rules/a.rules", "(");
    becomes_complete(false);
    becomes("make", "forbidden make");
    assert_int_equal(unlink(at("home/rules/a.rules")), 0);
    becomes_complete(true);
    becomes("make", "");
}

static void test_many_broken_files_are_counted(void **state)
{
    int lines = 0;

    (void)state;
    for (int i = 0; i < 70; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "home/rules/%02d.rules", i);
        write_file(name, "(");
    }
    start();
    for (const char *p = warnings; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    assert_int_equal(lines, 65);
    assert_non_null(strstr(warnings, "rules: 6 warnings more\n"));
}

/* ---- files that were named ---- */

static void test_named_files(void **state)
{
    const char *files[] = {at("x.rules"), at("link.rules"), NULL};
    struct sp_rules_places p = places();

    (void)state;
    files[0] = strdup(files[0]);
    files[1] = strdup(files[1]);
    write_file("x.rules", ALLOW("make"));
    write_file("far/target", ALLOW("ls"));
    assert_int_equal(symlink(at("far/target"), at("link.rules")), 0);
    p.files = files;
    start_at(p);
    write_file("x.rules", FORBID("make"));
    becomes("make", "forbidden make");
    save_file("x.rules", ALLOW("make"));
    becomes("make", "allow make");
    write_file("far/target", FORBID("ls")); /* a link is the user's own: it is followed */
    becomes("ls", "forbidden ls");
    save_file("far/target", ALLOW("ls"));
    becomes("ls", "allow ls");
    write_file("far/target", FORBID("ls"));
    becomes("ls", "forbidden ls");
    assert_warned("");

    assert_int_equal(unlink(at("x.rules")), 0); /* it was asked for: it is missed */
    becomes_complete(false);
    becomes("make", "allow make");
    assert_non_null(strstr(warnings, "failed to read rules file"));
    warnings[0] = 0;
    save_file("x.rules", FORBID("make"));
    becomes_complete(true);
    becomes("make", "forbidden make");
    assert_warned("");
    free((char *)(uintptr_t)files[0]);
    free((char *)(uintptr_t)files[1]);
}

/* ---- projects ---- */

/* Of places that outlive the test's own. */
static struct sp_rules_places project(const char *below)
{
    static char trusted[128];
    static const char *const projects[] = {trusted, NULL};
    struct sp_rules_places p = places();

    (void)snprintf(trusted, sizeof trusted, "%s/%s", root, below);
    p.projects = projects;
    return p;
}

static void test_a_project(void **state)
{
    (void)state;
    make_folders("p/a/");
    start_at(project("p"));
    write_file("p/a/.sallyport/rules/x.rules", ALLOW("one")); /* not the project's root */
    stay_quiet();
    assert_int_equal(told, 0);
    write_file("p/.sallyport/rules/x.rules", ALLOW("one"));
    becomes("one", "allow one");
    write_file("p/.codex/rules/x.rules", ALLOW("two"));
    becomes("two", "allow two");
    assert_warned("");
}

/* What stands where a protected name is missing while a sandboxed command runs. */
static void test_placeholders_of_sandboxes_are_nothing(void **state)
{
    (void)state;
    write_file("p/.sallyport/rules/x.rules", ALLOW("one"));
    start_at(project("p"));
    assert_int_equal(mkdir(at("p/.codex"), 0555), 0);
    stay_quiet();
    assert_int_equal(told, 0);
    write_file("p/.sallyport/rules/x.rules", ALLOW("two")); /* while it stands */
    becomes("two", "allow two");
    assert_int_equal(rmdir(at("p/.codex")), 0);
    write_file("p/.codex/rules/x.rules", ALLOW("three"));
    becomes("three", "allow three");
    becomes("two", "allow two");
}

static void test_links_of_a_project_are_not_followed(void **state)
{
    (void)state;
    make_folders("p/");
    make_folders("victim/rules/");
    assert_int_equal(symlink(at("victim"), at("p/.sallyport")), 0);
    start_at(project("p"));
    write_file("victim/rules/x.txt", "x");
    write_file("victim/rules/x.rules", "x");
    stay_quiet();
    assert_int_equal(told, 0);
}

static void test_an_untrusted_project_is_not_watched(void **state)
{
    (void)state;
    make_folders("p/");
    start_at(places());
    write_file("p/.sallyport/rules/x.rules", ALLOW("one"));
    stay_quiet();
    assert_int_equal(told, 0);
}

static void test_many_projects_have_a_bound(void **state)
{
    enum { MANY = 300 };
    struct sp_rules_places p = places();
    auto_buf struct sp_buf path = {0};
    char *projects[MANY + 1] = {0};

    (void)state;
    for (int i = 0; i < MANY; i++) {
        assert_true(sp_buf_printf(&path, "%s", i == 0 ? "d" : "/d"));
        assert_true(sp_buf_add(&path, "", 1));
        path.len--;
        projects[i] = strdup(at(path.data));
    }
    make_folders(path.data);
    assert_int_equal(mkdir(projects[MANY - 1], 0700), 0);
    p.projects = (const char *const *)projects;
    start_at(p);
    assert_true(adds <= 2 * SP_RULES_WATCH_MAX);
    assert_warned("rules are in more than 512 places: changes in the last of them, those of the "
                  "project, are not noticed\n");
    write_file("d/.sallyport/rules/x.rules", ALLOW("one"));
    becomes("one", "allow one");
    assert_warned("");
    for (int i = 0; i < MANY; i++)
        free(projects[i]);
}

/* ---- much at once ---- */

static void test_a_burst_is_one_change(void **state)
{
    (void)state;
    make_folders("home/rules/");
    start();
    for (int i = 0; i < 200; i++)
        write_file("home/rules/a.rules", i < 199 ? FORBID("make") : ALLOW("make"));
    becomes("make", "allow make");
    stay_quiet();
    assert_in_range(told, 1, 6);
}

static void test_what_comes_on_and_on_does_not_hold_up_reading(void **state)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    (void)state;
    make_folders("home/rules/");
    start();
    while (told < 3) {
        assert_true(now_ms() < end);
        write_file("home/rules/a.rules", ALLOW("make"));
        turn(now_ms() + 1);
    }
    becomes("make", "allow make");
}

static void test_an_amendment_of_our_own(void **state)
{
    struct sp_err e = {0};

    (void)state;
    make_folders("home/");
    start();
    assert_int_equal(amend_prefix(at("home"), words("git status"), &e), 0);
    becomes("git status", "allow git status");
    stay_quiet();
    const int before = told;
    stay_quiet();
    assert_int_equal(told, before);
    assert_int_equal(amend_prefix(at("home"), words("git log"), &e), 0);
    becomes("git log", "allow git log");
    stay_quiet();
    assert_in_range(told, before + 1, before + 2);
    assert_warned("");
}

static void test_a_queue_that_overflows(void **state)
{
    long most = 16384;
    FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "r");

    (void)state;
    if (f != NULL) {
        if (fscanf(f, "%ld", &most) != 1)
            most = 16384;
        (void)fclose(f);
    }
    if (most > 100000) {
        (void)printf("# a queue of %ld does not overflow here\n", most);
        return;
    }
    write_file("home/rules/one", "");
    write_file("home/rules/two", "");
    start();
    for (long i = 0; i <= most; i++) { /* the same twice in a row would be told once */
        const int fd =
            open(at(i % 2 == 0 ? "home/rules/one" : "home/rules/two"), O_WRONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        (void)close(fd);
    }
    write_file("home/rules/a.rules", ALLOW("make")); /* nobody is told of this any more */
    becomes("make", "allow make");
}

/* ---- no room ---- */

static void assert_read_once(const char *way_out)
{
    write_file("home/rules/a.rules", ALLOW("make"));
    start();
    becomes("make", "allow make");
    assert_non_null(strstr(warnings, "changes of rules files are not noticed, they are read once"));
    assert_non_null(strstr(warnings, way_out));
    assert_ptr_equal(strchr(warnings, '\n'), warnings + strlen(warnings) - 1);
    write_file("home/rules/a.rules", FORBID("make"));
    stay_quiet();
    assert_int_equal(told, 0);
}

static void test_no_more_instances(void **state)
{
    (void)state;
    init_fails = EMFILE;
    assert_read_once("fs.inotify.max_user_instances");
}

static void test_no_more_watches(void **state)
{
    (void)state;
    add_fails = ENOSPC;
    assert_read_once("fs.inotify.max_user_watches");
}

static void test_no_more_watches_later(void **state)
{
    (void)state;
    make_folders("home/rules/");
    start();
    assert_warned("");
    add_fails = ENOSPC;
    write_file("home/rules/a.rules", ALLOW("make"));
    becomes("make", "allow make"); /* this change was noticed; the next one is not */
    assert_non_null(strstr(warnings, "fs.inotify.max_user_watches"));
    warnings[0] = 0;
    write_file("home/rules/a.rules", FORBID("make"));
    stay_quiet();
    assert_int_equal(told, 1);
    assert_warned("");
}

static int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1;

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static void test_no_descriptors_for_a_while(void **state)
{
    struct rlimit limit, none;

    (void)state;
    write_file("home/rules/a.rules", ALLOW("make"));
    start();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 3;
    write_file("home/rules/a.rules", FORBID("make"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    becomes_complete(false); /* nothing is free: who knows what the files say by now */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    becomes_complete(true);
    becomes("make", "forbidden make");
    assert_non_null(strstr(warnings, "failed to read rules"));
    assert_ptr_equal(strchr(warnings, '\n'), warnings + strlen(warnings) - 1);
}

static void test_what_is_not_taken_is_told_again(void **state)
{
    (void)state;
    make_folders("home/rules/");
    start();
    refusals = 1;
    write_file("home/rules/a.rules", ALLOW("make"));
    becomes("make", "allow make");
    assert_int_equal(told, 2);
}

static void test_nothing_is_left_behind(void **state)
{
    const int before = open_fds();

    (void)state;
    start();
    assert_int_equal(open_fds(), before + 1);
    write_file("home/rules/a.rules", ALLOW("make"));
    turn(now_ms() + 10); /* a reading is due */
    stop();
    assert_int_equal(open_fds(), before);
    turn(now_ms() + 100);
    assert_int_equal(told, 0);
}

static void test_what_cannot_be_read_at_first_is_an_error(void **state)
{
    const char *files[] = {"/site/none.rules", NULL};
    struct sp_rules_places p = places();
    const struct sp_rules_watch_options o = {
        .loop = loop, .places = &p, .changed = on_change, .warn = on_warning};
    const int before = open_fds();
    struct sp_rules *rules_now = NULL;
    struct sp_str of_managed;
    struct sp_err e = {0};

    (void)state;
    p.files = files;
    assert_int_equal(sp_rules_watch_new(&o, &watch, &rules_now, &of_managed, &e), -SP_E_SYSTEM);
    assert_string_equal(e.msg, "failed to read rules file /site/none.rules");
    assert_int_equal(open_fds(), before);
    assert_warned("");
}

/* ---- what the administrator laid down ---- */

static void test_managed_rules(void **state)
{
    char first[128];

    (void)state;
    if (geteuid() != 0) {
        (void)printf("# managed rules belong to root\n");
        return;
    }
    start();
    assert_string_equal(fingerprint, "");
    save_file("etc/managed.rules", FORBID("rm") ALLOW("ls"));
    becomes("rm", "forbidden rm");
    assert_int_equal(strlen(fingerprint), 64);
    (void)snprintf(first, sizeof first, "%s", fingerprint);
    save_file("etc/managed.rules", "# in another order\n" ALLOW("ls") FORBID("rm"));
    is_told_again();
    assert_string_equal(fingerprint, first);
    write_file("home/rules/a.rules", FORBID("make")); /* not the administrator's */
    becomes("make", "forbidden make");
    assert_string_equal(fingerprint, first);
    save_file("etc/managed.rules", FORBID("rm"));
    becomes("ls", "");
    assert_string_not_equal(fingerprint, first);

    assert_int_equal(chmod(at("etc/managed.rules"), 0666), 0); /* not the administrator's alone */
    becomes_complete(false);
    becomes("rm", "forbidden rm");
    assert_non_null(strstr(warnings, "must be a file that belongs to root"));
    assert_int_equal(chmod(at("etc/managed.rules"), 0644), 0);
    becomes_complete(true);
    assert_int_equal(unlink(at("etc/managed.rules")), 0);
    becomes("rm", "");
    assert_string_equal(fingerprint, "");
}

/* ---- sets of other sets ---- */

static void test_amendments_outlive_a_set(void **state)
{
    struct sp_rules *first = rules_of(ALLOW("make"));
    struct sp_rules *second = rules_of(FORBID("make"));
    struct sp_rules *amended = sp_rules_with_prefix(first, NULL, words("git log"), NULL);
    struct sp_rules *both = sp_rules_renew(second, amended, false, NULL);
    struct sp_rules *same = sp_rules_renew(second, first, false, NULL);

    (void)state;
    assert_string_equal(said_by(both, words("git log")), "allow git log");
    assert_string_equal(said_by(both, words("make")), "forbidden make");
    assert_ptr_equal(same, second);
    sp_rules_unref(same);
    same = sp_rules_renew(both, NULL, true, NULL);
    assert_false(sp_rules_are_complete(same));
    assert_true(sp_rules_are_complete(both));
    assert_string_equal(said_by(same, words("git log")), "allow git log");
    sp_rules_unref(same);
    same = sp_rules_renew(NULL, NULL, true, NULL);
    assert_false(sp_rules_are_complete(same));
    sp_rules_unref(same);
    sp_rules_unref(both);
    sp_rules_unref(amended);
    sp_rules_unref(second);
    sp_rules_unref(first);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_a_file_comes_changes_and_goes),
    TEST(test_files_that_are_not_rules_are_nothing),
    TEST(test_a_file_is_read_when_it_was_written),
    TEST(test_a_file_that_gets_its_name_last),
    TEST(test_a_link_is_skipped_and_told),
    TEST(test_folders_come_and_go),
    TEST(test_a_place_far_below_what_is_there),
    TEST(test_a_folder_that_cannot_be_read),
    TEST(test_a_broken_file_keeps_its_previous_version),
    TEST(test_many_broken_files_are_counted),
    TEST(test_named_files),
    TEST(test_a_project),
    TEST(test_placeholders_of_sandboxes_are_nothing),
    TEST(test_links_of_a_project_are_not_followed),
    TEST(test_an_untrusted_project_is_not_watched),
    TEST(test_many_projects_have_a_bound),
    TEST(test_a_burst_is_one_change),
    TEST(test_what_comes_on_and_on_does_not_hold_up_reading),
    TEST(test_an_amendment_of_our_own),
    TEST(test_a_queue_that_overflows),
    TEST(test_no_more_instances),
    TEST(test_no_more_watches),
    TEST(test_no_more_watches_later),
    TEST(test_no_descriptors_for_a_while),
    TEST(test_what_is_not_taken_is_told_again),
    TEST(test_nothing_is_left_behind),
    TEST(test_what_cannot_be_read_at_first_is_an_error),
    TEST(test_managed_rules),
    TEST(test_amendments_outlive_a_set),
};

TEST_MAIN(tests)
