/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_cell_fixture: real cells with real commands (the program in SALLYPORT), and fronts that die
 * and are replaced. The first process of the test is the keeper's stand-in: parent and reaper of
 * the cells. The fronts are in its child, one after the other. A front dies by closing what it has
 * without a word: shutdown() and the keeper's functions are wrapped.
 */
#ifndef SP_KEPT_CELL_FIXTURE_H
#define SP_KEPT_CELL_FIXTURE_H

#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/log.h"
#include "cell/ring.h"
#include "core/cell_record.h"
#include "core/cells.h"
#include "core/ledger.h"
#include "os/spawn.h"
#include "os/tree.h"
#include "process_fixture.h"

#define SLOTS 200

static const char *program;
static struct sp_err error;

/* ---- the keeper ---- */

static struct kept {
    uint64_t key; /* 0: none */
    struct sp_cell_ends ends;
} kept[8];
static struct sp_hold a_hold;
static bool is_dying; /* what the front does now does not happen */
static int tells_keeper = -1;
static int keeps_left; /* so many calls of sp_hold_keep succeed; -1: all */
#define HOLD (&a_hold)

static void drop_key(uint64_t key)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (kept[i].key == key && key != 0) {
            for (unsigned k = 0; k < kept[i].ends.count; k++)
                (void)close(kept[i].ends.fds[k]);
            kept[i].key = 0;
        }
}

void __wrap_sp_hold_drop(struct sp_hold *h, uint64_t key);
void __wrap_sp_hold_drop(struct sp_hold *h, uint64_t key)
{
    (void)h;
    if (!is_dying)
        drop_key(key);
}

int __wrap_sp_hold_keep(struct sp_hold *h, uint64_t key, const int *fds, unsigned count,
                        const char *text, struct sp_err *e);
int __wrap_sp_hold_keep(struct sp_hold *h, uint64_t key, const int *fds, unsigned count,
                        const char *text, struct sp_err *e)
{
    if (h == NULL)
        return 0;
    (void)e;
    if (keeps_left == 0)
        _exit(0); /* killed at this call */
    keeps_left -= keeps_left > 0;
    if (tells_keeper >= 0) { /* a front in a process of its own */
        const struct sp_wire_call m = {.head = {SP_WIRE_VERSION, SP_WIRE_HOLD, 0, key}};

        (void)sp_wire_send(tells_keeper, true, &m, sizeof m, NULL, 0, fds, (int)count);
        return 0;
    }
    drop_key(key);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (kept[i].key == 0) {
            kept[i].key = key;
            kept[i].ends = (struct sp_cell_ends){.count = count};
            for (unsigned k = 0; k < count; k++)
                kept[i].ends.fds[k] = fcntl(fds[k], F_DUPFD_CLOEXEC, 64);
            (void)snprintf(kept[i].ends.text, sizeof kept[i].ends.text, "%s",
                           text != NULL ? text : "");
            return 0;
        }
    fail_msg("%s", "too many keys");
    return -1;
}

int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
    return is_dying ? 0 : __real_shutdown(fd, how);
}

static struct kept *only_kept(void)
{
    struct kept *found = NULL;

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (kept[i].key != 0) {
            assert_null(found);
            found = &kept[i];
        }
    return found;
}

static struct sp_cell_ends copy_ends(const struct kept *k)
{
    struct sp_cell_ends ends = k->ends;

    for (unsigned i = 0; i < ends.count; i++)
        ends.fds[i] = fcntl(ends.fds[i], F_DUPFD_CLOEXEC, 64);
    return ends;
}

/* ---- a front ---- */

static struct sp_loop *loop;
static struct sp_cells *cells;
static struct sp_cell *cell; /* NULL: none, or it is freed */
static struct sp_ledger *ledger;
static unsigned adoptions, deaths;
static int fds_before;

static void on_drained(void *user)
{
    (void)user;
}

static void on_adopted(void *user)
{
    (void)user;
    adoptions++;
}

static void on_gone(void *user)
{
    (void)user;
    cell = NULL;
}

static void on_died(void *user)
{
    (void)user;
    deaths++;
    sp_cell_kill(cell);
}

static struct sp_cell_options cell_options(void)
{
    return (struct sp_cell_options){.program = program,
                                    .slots = SLOTS,
                                    .use_cgroups = true,
                                    .nofile_soft = 256,
                                    .nofile_hard = 256,
                                    .place = 3,
                                    .text = sp_str_of("of the owner"),
                                    .drained = on_drained,
                                    .adopted = on_adopted,
                                    .died = on_died,
                                    .gone = on_gone};
}

static void front_begin(struct sp_ledger *l)
{
    a_hold.generation++;
    a_hold.keeper = getppid();
    adoptions = deaths = 0;
    error = (struct sp_err){0};
    ledger = l;
    assert_int_equal(sp_loop_new(&loop, &error), 0);
    assert_int_equal(sp_cells_new(loop, false, &cells, &error), 0);
    sp_cells_keep(cells, HOLD, ledger);
}

static int begin(void **state)
{
    struct sp_ledger *l = NULL;

    (void)state;
    fds_before = open_fds();
    a_hold.generation = 0;
    keeps_left = -1;
    assert_int_equal(sp_ledger_new(&l, &error), 0);
    front_begin(l);
    return 0;
}

static void new_cell(void)
{
    const struct sp_cell_options o = cell_options();

    if (sp_cell_new(cells, &o, &cell, &error) < 0)
        fail_msg("%s", error.msg);
}

/* As SIGKILL: no message, no shutdown, nothing in the ledger. */
static int front_dies(void)
{
    const int fd = fcntl(sp_ledger_fd(ledger), F_DUPFD_CLOEXEC, 64);

    is_dying = true;
    if (cell != NULL) {
        const int pidfds[] = {cell->self.pidfd, cell->maker.pidfd};

        cell->key = 0;
        sp_loop_unwatch(loop, &cell->maker.on_end);
        sp_loop_unwatch(loop, &cell->self.on_end);
        sp_own_remove(cell->self.pid);
        cell->self.pidfd = cell->maker.pidfd = -1;
        for (int i = 0; i < 2; i++)
            if (pidfds[i] >= 0)
                (void)close(pidfds[i]);
    }
    sp_cells_free(cells);
    cell = NULL;
    sp_loop_free(loop);
    sp_ledger_close(ledger);
    is_dying = false;
    return fd;
}

static struct sp_cell_record *only_record(size_t *ret_fixed)
{
    size_t loose;
    struct sp_cell_record *r = sp_ledger_next(ledger, SP_LEDGER_CELL, NULL, &loose, ret_fixed);

    assert_non_null(r);
    assert_null(sp_ledger_next(ledger, SP_LEDGER_CELL, r, &loose, &(size_t){0}));
    return r;
}

/* The next front, with what the keeper and the ledger have. */
static void front_follows(int ledger_fd)
{
    struct sp_ledger *l = NULL;

    assert_int_equal(sp_ledger_open(ledger_fd, &l, &error), 0);
    front_begin(l);
}

static void adopt(void)
{
    const struct sp_cell_options o = cell_options();
    struct sp_cell_ends ends = copy_ends(only_kept());
    size_t fixed = 0;
    struct sp_cell_record *r = only_record(&fixed);

    if (sp_cell_adopt(cells, &o, r, fixed, &ends, &cell, &error) < 0)
        fail_msg("%s", error.msg);
    assert_true(cell->is_adopting);
}

static int end(void **state)
{
    size_t any;

    (void)state;
    sp_cells_free(cells);
    cell = NULL;
    assert_null(only_kept());
    assert_null(sp_ledger_next(ledger, SP_LEDGER_CELL, NULL, &any, &any));
    sp_loop_free(loop);
    sp_ledger_close(ledger);
    assert_int_equal(open_fds(), fds_before);
    return 0;
}

/* ---- turns of the loop until something is so ---- */

static bool (*awaited)(const void *about);
static const void *awaited_about;
static uint64_t awaited_until;
static bool was_late;

static void on_look(struct sp_timer *t)
{
    was_late = test_now_ms() >= awaited_until;
    if (was_late || awaited(awaited_about))
        sp_loop_stop(loop);
    else
        assert_true(sp_loop_timer(loop, t, sp_loop_now(loop) + 1, on_look));
}

static void until(bool (*is_so)(const void *), const void *about)
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

static bool is_true(const void *flag)
{
    return *(const bool *)flag;
}

static bool is_nonzero(const void *count)
{
    return *(const unsigned *)count != 0;
}

static bool is_dead(const void *pidfd)
{
    return wait_fd(*(const int *)pidfd, POLLIN, 0);
}

/* ---- a command, as its client sees it through all fronts ---- */

struct run {
    struct sp_seat seat; /* first: they are one */
    struct sp_ring_view view;
    struct sp_ring_cursor at; /* what the client has read */
    int input, log;           /* -1: none */
    bool is_placed, is_started, is_found, is_missing, is_lost, is_closed, is_done;
    uint32_t step, slot;
    uint64_t number;
    struct sp_wire_item item;
    int code, done_err;
    pid_t pid;
    char out[65536]; /* the end of its output */
    size_t len;
    uint64_t total;
    bool is_counting; /* its output is lines 0, 1, 2 ...: checked, not kept */
    uint64_t next_line, line;
    bool has_digits;
};

static void count_lines(struct run *r, const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n') {
            assert_true(r->has_digits);
            assert_int_equal(r->line, r->next_line);
            r->next_line++;
            r->line = 0;
            r->has_digits = false;
        } else {
            r->line = r->line * 10 + (text[i] - (uint64_t)'0');
            r->has_digits = true;
        }
}

static void run_read(struct run *r)
{
    struct sp_record record;

    while (sp_ring_next(&r->view, &r->at, &record) > 0) {
        struct sp_exit how;

        if (record.type == SP_RECORD_EXITED) {
            memcpy(&how, record.data, sizeof how);
            r->code = how.code;
        } else if (record.type == SP_RECORD_CLOSED) {
            r->is_closed = true;
        } else if (r->is_counting) {
            count_lines(r, record.data, record.len);
        } else {
            assert_true(r->len + record.len < sizeof r->out);
            memcpy(r->out + r->len, record.data, record.len);
            r->len += record.len;
        }
        r->total += record.len;
    }
    assert_int_equal(r->at.missed_records, 0);
    if (r->is_closed)
        sp_cell_note_closed(&r->seat);
    /* As proc.c, so that a flood is paused, and goes on. */
    sp_bell_serve(&r->seat.cell->bell, r->seat.slot, true,
                  (struct sp_served){.sent = r->at.pos, .confirmed = r->at.pos});
    if (sp_ring_is_paused(&r->view)) {
        sp_bell_mark(&r->seat.cell->bell, r->seat.slot);
        sp_bell_wake(&r->seat.cell->bell);
    }
}

static void run_news(struct sp_seat *s)
{
    struct run *r = (struct run *)(void *)s;

    if (r->view.head != NULL && !r->is_closed)
        run_read(r);
}

static void see_ring(struct run *r)
{
    const struct sp_seat *s = &r->seat;

    assert_int_equal(sp_ring_slots_view(&s->cell->slots, s->slot, s->number, &r->view, &error), 0);
}

static void run_started(struct sp_seat *s, const struct sp_wire_started *m, int input_fd)
{
    struct run *r = (struct run *)(void *)s;

    r->input = input_fd;
    r->step = m->step;
    r->pid = m->pid;
    r->is_started = true;
    if (m->step != SP_STEP_NONE)
        return;
    see_ring(r);
    run_read(r);
}

static bool run_placed(struct sp_seat *s)
{
    struct run *r = (struct run *)(void *)s;

    r->is_placed = true;
    r->slot = s->slot;
    r->number = s->number;
    return true;
}

static void run_found(struct sp_seat *s, const struct sp_wire_item *item, int input_fd, int log_fd)
{
    struct run *r = (struct run *)(void *)s;

    r->is_found = true;
    r->item = *item;
    r->input = input_fd;
    r->log = log_fd;
    assert_int_equal(item->slot, r->slot);
    assert_true(item->number == r->number);
    if (item->life != SP_WIRE_LIFE_STARTING)
        see_ring(r);
}

static void run_missing(struct sp_seat *s)
{
    ((struct run *)(void *)s)->is_missing = true;
    sp_cell_forget(s);
}

static void run_done(struct sp_seat *s, uint64_t token, int err)
{
    struct run *r = (struct run *)(void *)s;

    (void)token;
    r->done_err = err;
    r->is_done = true;
}

static void run_lost(struct sp_seat *s, const struct sp_err *why)
{
    (void)why;
    ((struct run *)(void *)s)->is_lost = true;
    sp_cell_forget(s);
}

static const struct sp_seat_ops run_ops = {.placed = run_placed,
                                           .found = run_found,
                                           .missing = run_missing,
                                           .started = run_started,
                                           .news = run_news,
                                           .done = run_done,
                                           .lost = run_lost};

static void ask_run(struct run *r, uint32_t flags, const char *script)
{
    auto_buf struct sp_buf strings = {0};
    struct sp_wire_start m = {
        .session = 7, .flags = flags, .argc = 3, .envc = 1, .rows = 24, .cols = 80};
    const char *const all[] = {"/", "sh", "sh", "-c", script, "PATH=/bin:/usr/bin"};

    memset(r, 0, sizeof *r);
    r->seat.ops = &run_ops;
    r->input = r->log = -1;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(sp_buf_add(&strings, all[i], strlen(all[i]) + 1));
    if (sp_cell_start(cell, &r->seat, &m, &strings, NULL, true, &error) < 0)
        fail_msg("%s", error.msg);
    assert_true(r->is_placed);
}

static void run_in(struct run *r, uint32_t flags, const char *script)
{
    ask_run(r, flags, script);
    until(is_true, &r->is_started);
    assert_int_equal(r->step, SP_STEP_NONE);
}

static bool has_line(const void *run)
{
    const struct run *r = run;

    return memchr(r->out, '\n', r->len) != NULL;
}

/* The front has died: what it had of the run is gone. */
static void run_orphan(struct run *r)
{
    sp_ring_view_close(&r->view);
    if (r->input >= 0)
        (void)close(r->input);
    if (r->log >= 0)
        (void)close(r->log);
    r->input = r->log = -1;
    r->seat = (struct sp_seat){.ops = &run_ops};
    r->is_started = r->is_found = false;
}

static void run_seat(struct run *r)
{
    assert_true(sp_cell_seat(cell, &r->seat, r->slot, r->number));
}

static void run_forget(struct run *r)
{
    sp_cell_forget(&r->seat);
    run_orphan(r);
}

static void run_closes(struct run *r, int code)
{
    until(is_true, &r->is_closed);
    assert_int_equal(r->code, code);
    run_forget(r);
}

/* ---- main ---- */

/* The keeper's part: it reaps what is not the tests'. Returns their exit status. */
static int keep(pid_t tests)
{
    for (;;) {
        siginfo_t info = {0};

        if (waitid(P_ALL, 0, &info, WEXITED) < 0)
            return 99;
        if (info.si_pid == tests) {
            const int status = info.si_code == CLD_EXITED ? info.si_status : 98;

            return bury_children(5000) ? status : 97;
        }
    }
}

static int kept_cell_main(const struct CMUnitTest *all, size_t count)
{
    struct sp_err e = {0};

    program = getenv("SALLYPORT");
    if (program == NULL || sp_spawn_reserve(&e) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sp_log_set_level("error");
    const pid_t tests = fork();
    if (tests != 0)
        return tests < 0 ? 99 : keep(tests);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    exit(_cmocka_run_group_tests("tests", all, count, NULL, NULL));
}

#endif
