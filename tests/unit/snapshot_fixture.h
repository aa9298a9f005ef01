/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_fixture: a home with a profile, a store, and a cell to run shells in.
 */
#ifndef SP_SNAPSHOT_FIXTURE_H
#define SP_SNAPSHOT_FIXTURE_H

#include <sys/stat.h>

#include "base/auto.h"
#include "base/buf.h"
#include "engine/local.h"
#include "engine/run.h"
#include "engine/snapshot.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static struct sp_backend *backend;
static struct sp_snapshots *snapshots;
static struct sp_timer guard;
static char home[64], store[96];
static char *own[8]; /* the environment that everything begins with */
static char home_variable[96];

static int told; /* how many waits were answered */
static char path[256];
static bool has_path;

/* ---- the place ---- */

static void on_guard(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static int set_up(void **state)
{
    const struct sp_local_options o = {.program = getenv("SALLYPORT"), .cwd = "/"};

    (void)state;
    guard = (struct sp_timer){0};
    told = 0;
    snapshots = NULL;
    (void)snprintf(home, sizeof home, "/tmp/sallyport-home-XXXXXX");
    if (o.program == NULL || mkdtemp(home) == NULL)
        return -1;
    (void)snprintf(store, sizeof store, "%s/store", home);
    (void)snprintf(home_variable, sizeof home_variable, "HOME=%s", home);
    own[0] = home_variable;
    own[1] = (char *)(uintptr_t) "PATH=/usr/bin:/bin";
    own[2] = (char *)(uintptr_t) "TERM=vt100";
    own[3] = NULL;
    if (sp_loop_new(&loop, NULL) != 0 || sp_local_new(loop, &o, &backend, NULL) != 0)
        return -1;
    return sp_loop_timer(loop, &guard, test_now_ms() + DEADLINE_MS, on_guard) ? 0 : -1;
}

static void remove_in_home(const char *name)
{
    char full[160];

    (void)snprintf(full, sizeof full, "%s/%s", home, name);
    (void)unlink(full);
}

/* Whatever is left is a failure: the directories must be empty. */
static int tear_down(void **state)
{
    (void)state;
    sp_snapshots_free(snapshots);
    sp_backend_free(backend);
    sp_loop_free(loop);
    remove_in_home(".profile");
    remove_in_home(".bash_profile");
    remove_in_home(".zprofile");
    remove_in_home("count");
    const bool is_clean = (rmdir(store) == 0 || errno == ENOENT) && rmdir(home) == 0;
    return is_clean ? 0 : -1;
}

static void write_file(const char *full, const char *text)
{
    auto_close int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void write_profile(const char *text)
{
    static const char *const names[] = {".profile", ".bash_profile", ".zprofile"};
    char full[160];

    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(full, sizeof full, "%s/%s", home, names[i]);
        write_file(full, text);
    }
}

static const struct sp_policy *policy; /* of captures */

static void open_store(void)
{
    const struct sp_snapshots_options o = {
        .backend = backend, .directory = store, .policy = policy};
    struct sp_err e = {0};

    if (sp_snapshots_new(&o, &snapshots, &e) != 0)
        fail_msg("%s", e.msg);
}

/* ---- asking ---- */

static struct sp_env_request plain_ask(void)
{
    return (struct sp_env_request){
        .own = own,
        .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
        .call_id = SP_STR("call-7"),
        .plain = sp_env_plain,
    };
}

static void on_told(struct sp_snapshot_wait *w, const char *p)
{
    assert_false(sp_list_is_linked(&w->link));
    told++;
    has_path = p != NULL;
    (void)snprintf(path, sizeof path, "%s", p != NULL ? p : "");
    sp_loop_stop(loop);
}

static bool capture(const struct sp_shell *shell, const char *cwd)
{
    const struct sp_env_request ask = plain_ask();
    struct sp_snapshot_wait w = {.fn = on_told};
    const int before = told;

    sp_snapshots_get(snapshots, shell, sp_str_of(cwd), &ask, &w);
    assert_int_equal(told, before); /* never at once */
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    assert_int_equal(told, before + 1);
    return has_path;
}

#endif
