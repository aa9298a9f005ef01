/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_pool_fixture: the confined cells of a server without the server: a loop, policies about a
 * tree of the test's own, and real commands in real cells (the program in SALLYPORT).
 */
#ifndef SP_CELL_POOL_FIXTURE_H
#define SP_CELL_POOL_FIXTURE_H

#include <sys/prctl.h>

#include "base/auto.h"
#include "base/log.h"
#include "cell/ring.h"
#include "core/cell_child.h"
#include "core/cell_pool.h"
#include "core/journal.h"
#include "os/spawn.h"
#include "tree_fixture.h"

#define SLOTS 8

static const char *program;
static struct sp_loop *loop;
static struct sp_cells *cells;
static struct sp_cell_pool *cell_pool;
static struct sp_journal *journal;
static struct sp_err error;
static int cell_pool_fds;

/* ---- beginning and end ---- */

static inline void on_drained(void *user)
{
    (void)user;
}

static inline void make_cell_pool(const char *of_program)
{
    static char run[PATH_MAX + 8];
    static const char *const hidden_paths[] = {run, NULL};

    (void)snprintf(run, sizeof run, "%s/run", tree);
    if (journal == NULL)
        assert_int_equal(sp_journal_new(run, NULL, &journal, &error), 0);
    const struct sp_cell_pool_options o = {.cell = {.program = of_program,
                                                    .slots = SLOTS,
                                                    .nofile_soft = 64,
                                                    .nofile_hard = 64,
                                                    .journal = journal,
                                                    .drained = on_drained},
                                           .fixed = {.hidden = hidden_paths}};

    if (sp_cell_pool_new(loop, cells, &o, &cell_pool, &error) < 0)
        fail_msg("%s", error.msg);
}

static inline int cell_pool_begin(void **state)
{
    (void)tree_begin(state);
    cell_pool_fds = open_fds();
    assert_int_equal(sp_loop_new(&loop, &error), 0);
    assert_int_equal(sp_cells_new(loop, false, &cells, &error), 0);
    make_dir("w");
    make_cell_pool(program);
    return 0;
}

static inline int names_in(const char *below)
{
    DIR *d = opendir(at(below));
    int n = -2;

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static inline bool is_there(const char *below)
{
    struct stat st;

    return lstat(at(below), &st) == 0;
}

static inline int cell_pool_end(void **state)
{
    static const char *const names[] = {"w/.git", "w/.agents", "w/.codex", "w/.aws",
                                        "w/.sallyport"};

    sp_cell_pool_free(cell_pool);
    sp_cell_pool_free(NULL);
    sp_cells_free(cells);
    sp_journal_free(journal);
    sp_loop_free(loop);
    cell_pool = NULL;
    journal = NULL;
    assert_no_children(); /* we are a subreaper: whoever got away would be ours */
    assert_int_equal(open_fds(), cell_pool_fds);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stat st;

        if (lstat(at(names[i]), &st) == 0 && (st.st_mode & 0777) == 0555)
            fail_msg("%s is left", names[i]);
    }
    return tree_end(state);
}

#define cell_pool_test(name) cmocka_unit_test_setup_teardown(name, cell_pool_begin, cell_pool_end)

/* ---- turns of the loop until something is so ---- */

static bool (*awaited)(const void *about);
static const void *awaited_about;
static uint64_t awaited_until;
static bool was_late;

static inline void on_look(struct sp_timer *t)
{
    was_late = test_now_ms() >= awaited_until;
    if (was_late || awaited(awaited_about))
        sp_loop_stop(loop);
    else
        assert_true(sp_loop_timer(loop, t, sp_loop_now(loop) + 1, on_look));
}

static inline void until(bool (*is_so)(const void *), const void *about)
{
    struct sp_timer look = {0};

    awaited = is_so;
    awaited_about = about;
    awaited_until = test_now_ms() + DEADLINE_MS;
    assert_true(sp_loop_timer(loop, &look, 0, on_look));
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    sp_loop_cancel(loop, &look);
    if (was_late)
        fail_msg("%s", "it did not happen");
}

static inline bool is_true(const void *flag)
{
    return *(const bool *)flag;
}

static inline bool has_come(const void *time_ms)
{
    return test_now_ms() >= *(const uint64_t *)time_ms;
}

static inline void let_pass(uint64_t ms)
{
    const uint64_t then = test_now_ms() + ms;

    until(has_come, &then);
}

static inline bool is_dead(const void *pidfd)
{
    return wait_fd(*(const int *)pidfd, POLLIN, 0);
}

static inline bool has_count(const void *n)
{
    return cell_pool->count == *(const uint32_t *)n;
}

static inline void until_count(uint32_t n)
{
    until(has_count, &n);
}

/* ---- policies ---- */

static inline void add_entry(struct sp_policy *p, enum sp_place place, enum sp_access access,
                             const char *text)
{
    const struct sp_str t = text == NULL ? (struct sp_str){0} : sp_str_of(text);

    if (sp_profile_add(&p->profile, place, access, false, t, (struct sp_str){0}, &error) < 0)
        fail_msg("%s", error.msg);
}

/* Everything may be read. */
static inline struct sp_policy reading(void)
{
    struct sp_policy p = {0};

    add_entry(&p, SP_PLACE_ROOT, SP_ACCESS_READ, NULL);
    return p;
}

/* ... and this be written. */
static inline struct sp_policy writing(const char *below)
{
    struct sp_policy p = reading();

    add_entry(&p, SP_PLACE_PATH, SP_ACCESS_WRITE, at(below));
    return p;
}

#define auto_policy __attribute__((cleanup(sp_policy_done)))

static inline struct sp_cell *cell_for(uint64_t session, const struct sp_policy *p)
{
    struct sp_cell *c = NULL;

    error = (struct sp_err){0};
    if (sp_cell_pool_get(cell_pool, session, p, &c, &error) < 0)
        fail_msg("%s", error.msg);
    assert_int_equal(c->tier, SP_TIER_CELL);
    return c;
}

/* ---- a command ---- */

struct run {
    struct sp_seat seat; /* first: they are one */
    struct sp_ring_view view;
    struct sp_ring_cursor at;
    bool is_started, is_closed, is_lost;
    uint32_t step;
    int code;
    struct sp_err why;
    char out[512];
    size_t len;
};

static inline void run_hear(struct run *r)
{
    struct sp_record record;

    while (sp_ring_next(&r->view, &r->at, &record) > 0) {
        struct sp_exit how;

        if (record.type == SP_RECORD_EXITED) {
            memcpy(&how, record.data, sizeof how);
            r->code = how.code;
        } else if (record.type == SP_RECORD_CLOSED) {
            r->is_closed = true;
        } else if (r->len + record.len < sizeof r->out) {
            memcpy(r->out + r->len, record.data, record.len);
            r->len += record.len;
        }
    }
    if (r->is_closed)
        sp_cell_note_closed(&r->seat);
}

static inline void run_news(struct sp_seat *s)
{
    struct run *r = (struct run *)(void *)s;

    if (r->is_started && !r->is_closed)
        run_hear(r);
}

static inline void run_started(struct sp_seat *s, const struct sp_wire_started *m, int input_fd)
{
    struct run *r = (struct run *)(void *)s;
    auto_close int input = input_fd;

    (void)input;
    r->step = m->step;
    if (m->step == SP_STEP_NONE)
        assert_int_equal(sp_ring_slots_view(&s->cell->slots, s->slot, s->number, &r->view, NULL),
                         0);
    r->is_started = true;
    if (m->step == SP_STEP_NONE)
        run_hear(r);
}

static inline void run_done(struct sp_seat *s, uint64_t token, int err)
{
    (void)s;
    (void)token;
    (void)err;
}

static inline void run_lost(struct sp_seat *s, const struct sp_err *why)
{
    struct run *r = (struct run *)(void *)s;

    r->is_lost = true;
    r->why = *why;
    sp_cell_forget(s);
}

static const struct sp_seat_ops run_ops = {
    .started = run_started, .news = run_news, .done = run_done, .lost = run_lost};

static inline void run_done_with(struct run *r)
{
    sp_cell_forget(&r->seat);
    sp_ring_view_close(&r->view);
}

static inline void ask_run(struct run *r, struct sp_cell *c, uint64_t session, const char *script)
{
    auto_buf struct sp_buf strings = {0};
    struct sp_wire_start m = {
        .session = session, .flags = SP_START_NO_NEW_PRIVS, .argc = 3, .envc = 1};
    const char *const all[] = {"/", "sh", "sh", "-c", script, "PATH=/bin:/usr/bin"};

    *r = (struct run){.seat = {.ops = &run_ops}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(sp_buf_add(&strings, all[i], strlen(all[i]) + 1));
    if (sp_cell_start(c, &r->seat, &m, &strings, NULL, false, &error) < 0)
        fail_msg("%s", error.msg);
}

static inline void run_in(struct run *r, struct sp_cell *c, uint64_t session, const char *script)
{
    ask_run(r, c, session, script);
    until(is_true, &r->is_started);
    assert_int_equal(r->step, SP_STEP_NONE);
}

/* To its end, which is this. */
static inline void runs_to(struct sp_cell *c, uint64_t session, const char *script, int code)
{
    struct run r;

    run_in(&r, c, session, script);
    until(is_true, &r.is_closed);
    if (r.code != code)
        fail_msg("%s: %d, %s", script, r.code, r.out);
    run_done_with(&r);
}

static inline int pidfd_of(const struct sp_cell *c)
{
    const int fd = (int)syscall(SYS_pidfd_open, c->self.pid, 0);

    assert_true(fd >= 0);
    return fd;
}

static inline void dies(int pidfd)
{
    until(is_dead, &pidfd);
    (void)close(pidfd);
}

static inline void lives(int pidfd)
{
    assert_false(is_dead(&pidfd));
}

/* ---- main ---- */

/* 77: nothing can be tested here. */
static inline int cell_pool_main(const struct CMUnitTest *all, size_t count)
{
    struct sp_host_features host_features;
    struct sp_err e = {0};

    program = getenv("SALLYPORT");
    if (program == NULL || sp_spawn_reserve(&e) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sp_log_set_level("error");
    if (sp_host_features_probe(program, &host_features, &e) < 0 || !host_features.has_full_tier) {
        (void)fprintf(stderr, "skipped: no cells here: %s: %s\n",
                      sp_build_step_name(host_features.failed_step),
                      strerror(host_features.failed_errno));
        return 77;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", all, count, NULL, NULL);
}

#endif
