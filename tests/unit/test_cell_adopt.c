/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front dies without a word, and the next one takes its cell over.
 */
#include <sys/mman.h>

#include "kept_cell_fixture.h"
#include "os/tree.h"

#define TTY   SP_START_TTY
#define STDIN SP_START_STDIN

static struct run r1, r2, r3, r4;

/* The front dies, and the next one takes over, with seats for these. */
static void change_fronts(struct run *const *runs)
{
    const int fd = front_dies();

    for (struct run *const *r = runs; *r != NULL; r++)
        run_orphan(*r);
    front_follows(fd);
    adopt();
    for (struct run *const *r = runs; *r != NULL; r++)
        run_seat(*r);
    until(is_nonzero, &adoptions);
    assert_false(cell->is_adopting);
}

#define CHANGE_FRONTS(...) change_fronts((struct run *const[]){__VA_ARGS__, NULL})

static void say(const struct run *r, const char *text)
{
    assert_int_equal(write(r->input, text, strlen(text)), strlen(text));
}

static void test_commands_of_all_kinds_go_on(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, STDIN, "read x; echo got $x; read y; echo got $y; exit 3");
    run_in(&r2, TTY, "stty -echo; echo go; read x; stty size; echo got $x");
    ask_run(&r3, 0, "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done");
    r3.is_counting = true;
    until(is_true, &r3.is_started);
    run_in(&r4, 0, "exec sleep 1000");
    say(&r1, "one\n");
    until(has_line, &r1);
    until(has_line, &r2);

    CHANGE_FRONTS(&r1, &r2, &r3, &r4);
    assert_true(r1.is_found && r2.is_found && r3.is_found && r4.is_found);
    assert_int_equal(r1.item.flags, SP_ITEM_INPUT);
    assert_int_equal(r2.item.flags, SP_ITEM_TTY | SP_ITEM_INPUT);
    assert_int_equal(r4.item.flags, 0);
    assert_int_equal(r4.item.pid, r4.pid);
    assert_int_equal(r4.item.session, 7);
    assert_true(r2.item.terminal >= 0);
    assert_true(r4.item.outputs[0] != 0 && r4.item.outputs[1] != 0);
    assert_int_equal(r4.item.seq, 0);
    assert_int_equal(cell->busy, 4);
    assert_int_equal(sp_cell_send(&r2.seat, SP_WIRE_RESIZE, 5, 33, 44), 0);
    until(is_true, &r2.is_done);
    assert_int_equal(r2.done_err, 0);
    say(&r2, "word\n");

    CHANGE_FRONTS(&r1, &r2, &r3, &r4); /* and once more */
    say(&r1, "two\n");
    assert_int_equal(sp_cell_send(&r4.seat, SP_WIRE_TERMINATE, 0, 0, 0), 0);
    until(is_true, &r2.is_closed);
    assert_non_null(memmem(r2.out, r2.len, "33 44\r\ngot word", 15));
    until(is_true, &r1.is_closed);
    assert_memory_equal(r1.out, "got one\ngot two\n", 16);
    until(is_true, &r3.is_closed);
    assert_int_equal(r3.next_line, 60000);
    run_closes(&r1, 3);
    run_closes(&r2, 0);
    run_closes(&r3, 0);
    run_closes(&r4, 128 + SIGKILL);
    run_in(&r1, 0, "exit 4"); /* it takes starts again, under numbers of its own */
    assert_int_equal(r1.number >> 40, 3);
    run_closes(&r1, 4);
}

static void await_leader(const struct run *r)
{
    const int leader = (int)syscall(SYS_pidfd_open, r->pid, 0);

    if (leader < 0) { /* the cell has reaped it */
        assert_int_equal(errno, ESRCH);
        return;
    }
    assert_true(wait_fd(leader, POLLIN, DEADLINE_MS));
    (void)close(leader);
}

static void test_what_has_ended_meanwhile_is_told(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, STDIN, "read x; echo $x; exit 9");
    run_in(&r2, 0, "sleep 1000 & exit 5"); /* has exited, and its output is not closed */
    say(&r1, "last\n");
    const int fd = front_dies();
    await_leader(&r1);
    await_leader(&r2);
    run_orphan(&r1);
    run_orphan(&r2);
    front_follows(fd);
    adopt();
    run_seat(&r1);
    run_seat(&r2);
    run_closes(&r1, 9);
    assert_memory_equal(r1.out, "last\n", 5);
    assert_true(r2.is_found);
    until(is_nonzero, &r2.code); /* the cell may reap it after it has told it */
    assert_int_equal(r2.code, 5);
    assert_false(r2.is_closed);
    run_forget(&r2);
}

/* Reads its end of stdin in the second front only: the copy that the cell has does not keep it. */
static void test_the_end_of_stdin_is_passed_on(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, STDIN, "cat; echo end");
    run_in(&r2, STDIN, "cat; echo end");
    say(&r1, "text\n");
    until(has_line, &r1);
    (void)close(TAKE_FD(r1.input));
    sp_cell_close_input(&r1.seat);
    until(is_true, &r1.is_closed);
    CHANGE_FRONTS(&r2);
    assert_true(r2.is_found);
    say(&r2, "more\n");
    (void)close(TAKE_FD(r2.input));
    sp_cell_close_input(&r2.seat);
    run_closes(&r2, 0);
    assert_memory_equal(r2.out, "more\nend\n", 9);
    run_orphan(&r1); /* its front had no seat for it: it is forgotten */
}

/* A process that a leader leaves behind sees the end of stdin with the exit, as without a keeper.
 */
static void test_the_exit_of_the_leader_ends_stdin(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, STDIN, "cat <&0 & exit 0");
    until(is_true, &r1.is_started);
    (void)close(TAKE_FD(r1.input)); /* as sp_input_process_ended, and nothing is sent */
    run_closes(&r1, 0);
}

static void test_what_no_record_has_is_forgotten(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, 0, "exec sleep 1000");
    run_in(&r2, 0, "exec sleep 1000");
    run_in(&r3, STDIN, "cat");
    const int gone = (int)syscall(SYS_pidfd_open, r1.pid, 0);
    const int stays = (int)syscall(SYS_pidfd_open, r2.pid, 0);
    CHANGE_FRONTS(&r2);
    run_orphan(&r1);
    run_orphan(&r3);
    until(is_dead, &gone);
    assert_false(is_dead(&stays));
    run_in(&r3, 0, "exit 6"); /* in the slot of r1 */
    assert_int_equal(r3.slot, r1.slot);
    run_closes(&r3, 6);
    run_forget(&r2);
    until(is_dead, &stays);
    (void)close(gone);
    (void)close(stays);
}

/* Its record was written, and START was not sent. */
static void test_a_start_that_was_not_sent_is_missing(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, 0, "exec sleep 1000");
    const int fd = front_dies();
    run_orphan(&r1);
    front_follows(fd);
    adopt();
    run_seat(&r1);
    memset(&r2, 0, sizeof r2);
    r2.seat.ops = &run_ops;
    assert_true(sp_cell_seat(cell, &r2.seat, r1.slot + 1, r1.number + 1));
    assert_false(sp_cell_seat(cell, &r3.seat, r1.slot, r1.number)); /* taken */
    assert_false(sp_cell_seat(cell, &r3.seat, SLOTS, r1.number));
    until(is_nonzero, &adoptions);
    assert_true(r2.is_missing);
    assert_false(r1.is_missing);
    assert_int_equal(cell->busy, 1);
    run_forget(&r1);
}

/* START and ADOPT are read one after the other. */
static void test_a_start_in_the_socket_is_done(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, 0, "exec sleep 1000");
    assert_int_equal(kill(cell->self.pid, SIGSTOP), 0);
    ask_run(&r2, STDIN, "read x; echo $x");
    assert_int_equal(sp_cell_send(&r1.seat, SP_WIRE_TERMINATE, 0, 0, 0), 0);
    const pid_t pid = cell->self.pid;
    const int fd = front_dies();
    run_orphan(&r1);
    run_orphan(&r2);
    front_follows(fd);
    adopt();
    assert_int_equal(cell->self.pid, pid);
    run_seat(&r1);
    run_seat(&r2);
    assert_int_equal(kill(pid, SIGCONT), 0);
    until(is_nonzero, &adoptions);
    assert_true(r2.is_found);
    assert_int_equal(r2.item.life, SP_WIRE_LIFE_RUNNING);
    say(&r2, "said\n");
    run_closes(&r2, 0);
    assert_memory_equal(r2.out, "said\n", 5);
    run_closes(&r1, 128 + SIGKILL);
}

/* Nobody reads what it answers: it waits for no one, and goes on reading output. */
static void test_it_never_waits_for_a_front(void **state)
{
    const struct sp_wire_call m = {
        .head = {SP_WIRE_VERSION, SP_WIRE_SIGNAL, 0, 0}, .token = 1, .a = 0};

    (void)state;
    new_cell();
    run_in(&r1, STDIN, "while read x; do echo $x; done");
    run_in(&r2, STDIN, "cat");
    const int socket = cell->socket;
    struct sp_wire_call to = m;
    to.head.slot = r1.slot;
    to.head.number = r1.number;
    int sent = 0;
    /* Until both directions are full; the cell reads as long as it can answer. */
    for (int idle = 0; idle < 20; sent++)
        if (sp_wire_send(socket, false, &to, sizeof to, NULL, 0, NULL, 0) != 0) {
            (void)poll(NULL, 0, 5);
            idle++;
        } else {
            idle = 0;
        }
    assert_true(sent > 100);
    say(&r1, "alive\n");
    for (int i = 0; i < DEADLINE_MS && !has_line(&r1); i++) { /* without the socket's answers */
        run_read(&r1);
        (void)poll(NULL, 0, 1);
    }
    assert_true(has_line(&r1));
    const int fd = front_dies();
    run_orphan(&r1);
    run_orphan(&r2);
    front_follows(fd);
    adopt();
    run_seat(&r1);
    run_seat(&r2);
    until(is_nonzero, &adoptions);
    assert_false(r1.is_done); /* answers for another front */
    assert_int_equal(sp_cell_send(&r1.seat, SP_WIRE_SIGNAL, 2, SIGTERM, 0), 0);
    until(is_true, &r1.is_done);
    run_closes(&r1, 128 + SIGTERM);
    run_forget(&r2);
}

static void test_many_are_told_in_order(void **state)
{
    static struct run many[150];
    struct run *all[151] = {NULL};

    (void)state;
    new_cell();
    for (size_t i = 0; i < 150; i++) {
        run_in(&many[i], i % 2 == 0 ? STDIN : 0, "read x; exit 1");
        all[i] = &many[i];
    }
    for (size_t i = 0; i < 150; i += 3)
        if (i % 2 == 0)
            say(&many[i], "end\n");
    change_fronts(all);
    for (size_t i = 0; i < 150; i++) {
        assert_true(many[i].is_found);
        if (i % 2 == 0 && i % 3 != 0)
            say(&many[i], "end\n");
        run_closes(&many[i], 1);
    }
    assert_int_equal(cells->rings.touched <= cells->rings.warm_bytes, true);
}

static void test_the_log_of_the_input_comes_back(void **state)
{
    char text[8] = {0};

    (void)state;
    new_cell();
    run_in(&r1, STDIN, "exec sleep 1000");
    for (int i = 0; i < 2; i++) { /* the second one replaces the first */
        const int log = memfd_create("log", MFD_CLOEXEC);

        assert_int_equal(write(log, i == 0 ? "first" : "second", 6 - (i == 0)), 6 - (i == 0));
        assert_int_equal(sp_cell_send_input_log(&r1.seat, log), 0);
        (void)close(log);
    }
    CHANGE_FRONTS(&r1);
    assert_int_equal(r1.item.flags, SP_ITEM_INPUT | SP_ITEM_LOG);
    assert_int_equal(pread(r1.log, text, sizeof text, 0), 6);
    assert_string_equal(text, "second");
    sp_cell_close_input(&r1.seat);
    CHANGE_FRONTS(&r1);
    assert_int_equal(r1.item.flags, SP_ITEM_LOG); /* repeated writes are found in it */
    run_forget(&r1);
}

/* ---- deaths at bad moments ---- */

static void test_a_cell_that_died_too_is_lost(void **state)
{
    (void)state;
    new_cell();
    run_in(&r1, 0, "exec sleep 1000");
    const int leader = (int)syscall(SYS_pidfd_open, r1.pid, 0);
    const pid_t pid = cell->self.pid;
    const int fd = front_dies();
    assert_int_equal(kill(pid, SIGKILL), 0);
    run_orphan(&r1);
    front_follows(fd);
    (void)sp_log_set_level("off");
    adopt();
    run_seat(&r1);
    until(is_true, &r1.is_lost);
    assert_int_equal(adoptions, 0);
    until(is_dead, &leader);
    (void)sp_log_set_level("error");
    (void)close(leader);
}

/* A front in a process of its own, which ends at its keep number `keeps`. What it has kept is the
 * keeper's then. */
static void die_making_a_cell(int keeps)
{
    struct sp_wire_message *m = malloc(sizeof *m);
    int pair[2];

    assert_non_null(m);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const pid_t front = fork();
    if (front == 0) {
        const struct sp_cell_options o = cell_options();

        (void)close(pair[0]);
        /* Of its own: an epoll instance is shared with a parent. */
        CHILD_CHECK(sp_loop_new(&loop, NULL) == 0);
        CHILD_CHECK(sp_cells_new(loop, false, &cells, NULL) == 0);
        sp_cells_keep(cells, HOLD, ledger);
        tells_keeper = pair[1];
        keeps_left = keeps;
        (void)sp_cell_new(cells, &o, &cell, &error);
        _exit(0);
    }
    (void)close(pair[1]);
    assert_true(front > 0);
    assert_int_equal(waitpid(front, NULL, 0), front);
    while (sp_wire_recv(pair[0], false, m, NULL) > 0) {
        drop_key(((struct sp_wire_head *)(void *)m->bytes)->number);
        kept[0].key = ((struct sp_wire_head *)(void *)m->bytes)->number;
        kept[0].ends = (struct sp_cell_ends){.count = (unsigned)m->fd_count};
        memcpy(kept[0].ends.fds, m->fds, (size_t)m->fd_count * sizeof(int));
    }
    (void)close(pair[0]);
    free(m);
}

/* The next front takes over: the cell ends, or runs commands. */
static void make_half_a_cell(int keeps, bool is_whole)
{
    die_making_a_cell(keeps);
    const int fd = fcntl(sp_ledger_fd(ledger), F_DUPFD_CLOEXEC, 64);
    sp_ledger_close(ledger);
    assert_int_equal(sp_ledger_open(fd, &ledger, &error), 0);
    sp_cells_keep(cells, HOLD, ledger);
    if (keeps == 0) {
        assert_null(only_kept()); /* a record alone */
        sp_ledger_free(ledger, only_record(&(size_t){0}));
        return;
    }
    a_hold.generation++;
    adoptions = deaths = 0;
    (void)sp_log_set_level("off");
    adopt();
    until(is_nonzero, is_whole ? &adoptions : &deaths);
    if (is_whole) {
        run_in(&r1, 0, "exit 8");
        run_closes(&r1, 8);
    }
    sp_cells_free(cells);
    (void)sp_log_set_level("error");
    assert_null(cell);
    assert_int_equal(sp_cells_new(loop, false, &cells, &error), 0);
    sp_cells_keep(cells, HOLD, ledger);
    assert_null(only_kept());
    assert_true(bury_children(DEADLINE_MS)); /* siblings of that front are our children */
}

static void test_a_front_dies_while_it_makes_a_cell(void **state)
{
    (void)state;
    make_half_a_cell(0, false); /* before KEEP */
    make_half_a_cell(1, false); /* after it: the process is there, and was not greeted */
    make_half_a_cell(2, true);  /* greeted */
}

/* ---- what a cell may not say ---- */

/* A cell that is played here, with one seat in slot 1. */
struct liar {
    int socket;
    int segment;
};

static struct liar play_cell(struct run *r)
{
    struct liar liar;
    int pair[2];
    struct sp_bell bell;
    struct sp_segment *segment;
    const struct sp_cell_options o = cell_options();
    struct sp_cell_record *record = sp_ledger_alloc(ledger, SP_LEDGER_CELL, 0, sizeof *record);

    record->key = 77;
    record->wire_version = SP_WIRE_VERSION;
    record->slots = SLOTS;
    sp_ledger_commit(ledger, record);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(sp_bell_new(SLOTS, &bell, &error), 0);
    struct sp_cell_ends ends = {.count = 3,
                                .fds = {pair[0], fcntl(bell.page_fd, F_DUPFD_CLOEXEC, 64),
                                        fcntl(bell.wake[0], F_DUPFD_CLOEXEC, 64)}};
    sp_bell_free(&bell);
    assert_int_equal(sp_cell_adopt(cells, &o, record, sizeof *record, &ends, &cell, &error), 0);
    memset(r, 0, sizeof *r);
    r->seat.ops = &run_ops;
    r->input = r->log = -1;
    r->slot = 1;
    r->number = (uint64_t)5 << 40;
    run_seat(r);
    liar.socket = pair[1];
    assert_int_equal(sp_segment_new(64, &segment, &error), 0);
    liar.segment = TAKE_FD(segment->fd);
    sp_segment_drop(segment);
    return liar;
}

static void tell(const struct liar *l, const struct sp_wire_inventory *head,
                 const struct sp_wire_item *items, const int *fds, int count)
{
    static struct sp_wire_item sent[SP_WIRE_MAX / sizeof(struct sp_wire_item)];
    struct sp_wire_inventory m = *head;

    for (uint32_t i = 0; i < m.count; i++) /* more than two are all alike */
        sent[i] = items[m.count <= 2 ? i : 0];
    m.head = (struct sp_wire_head){.version = SP_WIRE_VERSION, .op = SP_WIRE_INVENTORY};
    m.generation = a_hold.generation;
    assert_int_equal(
        sp_wire_send(l->socket, false, &m, sizeof m, sent, m.count * sizeof *sent, fds, count), 0);
}

static const struct sp_wire_inventory begins = {.index = SP_INVENTORY_BEGIN};
static const struct sp_wire_inventory one = {.next = SP_INVENTORY_END, .count = 1};
static const struct sp_wire_item good = {
    .number = (uint64_t)5 << 40, .slot = 1, .life = SP_WIRE_LIFE_STARTING};

/* It is the end of the cell, and of nothing else. */
static void is_refused(struct run *r, struct liar *l)
{
    until(is_true, &r->is_lost);
    assert_int_equal(adoptions, 0);
    until(is_nonzero, &deaths);
    (void)close(l->socket);
    (void)close(l->segment);
    sp_cells_free(cells);
    assert_null(cell);
    assert_int_equal(sp_cells_new(loop, false, &cells, &error), 0);
    sp_cells_keep(cells, HOLD, ledger);
    deaths = 0;
}

static void lie(const struct sp_wire_inventory *head, const struct sp_wire_item *items,
                const int *own_fds, int count)
{
    struct liar l = play_cell(&r1);
    int fds[SP_WIRE_ITEM_FDS];

    for (int i = 0; i < count; i++)
        fds[i] = own_fds == NULL ? l.segment : own_fds[i];
    tell(&l, &begins, NULL, NULL, 0);
    tell(&l, head, items, fds, count);
    is_refused(&r1, &l);
}

static void test_a_hostile_inventory_is_refused(void **state)
{
    struct sp_wire_item two[2] = {good, good};
    struct sp_wire_item it = good;
    struct sp_wire_inventory head = one;

    (void)state;
    (void)sp_log_set_level("off");
    head.index = 9; /* beyond its slots */
    it.slot = 9 * 64 + 1;
    lie(&head, &it, NULL, 1);
    head = one;
    head.next = 0; /* in circles */
    lie(&head, &good, NULL, 1);
    it = good;
    it.slot = 64; /* of another segment */
    lie(&one, &it, NULL, 1);
    it = good;
    it.life = 99;
    lie(&one, &it, NULL, 1);
    it = good;
    it.flags = SP_ITEM_INPUT; /* which is not there */
    lie(&one, &it, NULL, 1);
    it.flags = 1U << 20;
    lie(&one, &it, NULL, 1);
    head = one;
    head.count = 2; /* the same twice */
    lie(&head, two, NULL, 1);
    head.count = 65;
    lie(&head, &good, NULL, 1);
    lie(&one, &good, NULL, 0);   /* without a segment */
    lie(&begins, NULL, NULL, 0); /* begins twice */
    (void)sp_log_set_level("error");
}

static void test_memory_that_is_not_sealed_is_refused(void **state)
{
    const int open_memory = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int odd = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int small = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const off_t size = (off_t)SP_SEGMENT_RINGS * (SP_RING_HEADER + SP_RING_AREA);
    const int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    (void)state;
    (void)sp_log_set_level("off");
    assert_int_equal(ftruncate(open_memory, size), 0);
    lie(&one, &good, &open_memory, 1);
    assert_int_equal(ftruncate(odd, size + 4096), 0);
    assert_int_equal(fcntl(odd, F_ADD_SEALS, seals), 0);
    lie(&one, &good, &odd, 1);
    lie(&one, &good, &file, 1);
    /* One ring, and a process in the second place. */
    assert_int_equal(ftruncate(small, SP_SEGMENT_RINGS * SP_RING_HEADER + SP_RING_AREA), 0);
    assert_int_equal(fcntl(small, F_ADD_SEALS, seals), 0);
    lie(&one, &good, &small, 1);
    (void)close(open_memory);
    (void)close(odd);
    (void)close(small);
    (void)close(file);
    (void)sp_log_set_level("error");
}

/* Another number in the slot: another process, which is forgotten; the seat's is missing. */
static void test_a_wrong_number_is_no_process_of_ours(void **state)
{
    struct liar l = play_cell(&r1);
    struct sp_wire_item it = good;
    _Alignas(8) char bytes[256];

    (void)state;
    it.number++;
    tell(&l, &begins, NULL, NULL, 0);
    tell(&l, &one, &it, &l.segment, 1);
    until(is_nonzero, &adoptions);
    assert_true(r1.is_missing);
    bool is_forgotten = false;
    while (recv(l.socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        const struct sp_wire_head *h = (const void *)bytes;

        is_forgotten =
            is_forgotten || (h->op == SP_WIRE_FORGET && h->slot == 1 && h->number == it.number);
    }
    assert_true(is_forgotten);
    assert_int_equal(cell->busy, 0);
    (void)close(l.socket);
    (void)close(l.segment);
}

/* What was said to a front that is dead does not reach this one. */
static void test_old_answers_are_dropped(void **state)
{
    struct liar l = play_cell(&r1);
    const struct sp_wire_done done = {.head = {SP_WIRE_VERSION, SP_WIRE_DONE, 1, (uint64_t)5 << 40},
                                      .token = 1};
    const struct sp_wire_started started = {
        .head = {SP_WIRE_VERSION, SP_WIRE_STARTED, 1, (uint64_t)5 << 40}};

    (void)state;
    assert_int_equal(sp_wire_send(l.socket, false, &done, sizeof done, NULL, 0, NULL, 0), 0);
    assert_int_equal(sp_wire_send(l.socket, false, &started, sizeof started, NULL, 0, NULL, 0), 0);
    a_hold.generation--;
    tell(&l, &begins, NULL, NULL, 0);
    a_hold.generation++;
    tell(&l, &begins, NULL, NULL, 0);
    tell(&l, &one, &good, &l.segment, 1);
    until(is_nonzero, &adoptions);
    assert_true(r1.is_found);
    assert_false(r1.is_done);
    assert_false(r1.is_started);
    assert_int_equal(cell->starting, 1);
    assert_int_equal(sp_wire_send(l.socket, false,
                                  &(struct sp_wire_started){
                                      .head = started.head, .step = SP_STEP_EXEC, .err = ENOENT},
                                  sizeof started, NULL, 0, NULL, 0),
                     0);
    until(is_true, &r1.is_started);
    assert_int_equal(r1.step, SP_STEP_EXEC);
    run_forget(&r1);
    (void)close(l.socket);
    (void)close(l.segment);
}

static void test_a_broken_record_is_no_cell(void **state)
{
    const struct sp_cell_options o = cell_options();
    struct sp_cell_record r = {
        .key = 1, .wire_version = SP_WIRE_VERSION, .slots = SLOTS, .tier = 0};
    struct sp_cell_ends none = {0};

    (void)state;
    assert_true(sp_cell_adopt(cells, &o, &r, sizeof r, &none, &cell, &error) < 0);
    for (int i = 0; i < 6; i++) {
        struct sp_cell_record bad = r;
        struct sp_cell_ends ends = {.count = 3,
                                    .fds = {open("/dev/null", O_RDWR | O_CLOEXEC), dup(2), dup(2)}};

        bad.slots = i == 0 ? 0 : i == 1 ? SP_MAX_SLOTS + 1 : SLOTS;
        bad.tier = i == 2 ? 99 : 0;
        bad.wire_version += i == 3;
        bad.text_len = i == 4;
        if (i == 5)
            memset(bad.cgroup_path, 'x', sizeof bad.cgroup_path);
        assert_true(sp_cell_adopt(cells, &o, &bad, sizeof bad, &ends, &cell, &error) < 0);
    }
    cell = NULL;
}

#define test(name) cmocka_unit_test_setup_teardown(name, begin, end)

static const struct CMUnitTest tests[] = {
    test(test_commands_of_all_kinds_go_on),
    test(test_what_has_ended_meanwhile_is_told),
    test(test_the_end_of_stdin_is_passed_on),
    test(test_the_exit_of_the_leader_ends_stdin),
    test(test_what_no_record_has_is_forgotten),
    test(test_a_start_that_was_not_sent_is_missing),
    test(test_a_start_in_the_socket_is_done),
    test(test_it_never_waits_for_a_front),
    test(test_many_are_told_in_order),
    test(test_the_log_of_the_input_comes_back),
    test(test_a_cell_that_died_too_is_lost),
    test(test_a_front_dies_while_it_makes_a_cell),
    test(test_a_hostile_inventory_is_refused),
    test(test_memory_that_is_not_sealed_is_refused),
    test(test_a_wrong_number_is_no_process_of_ours),
    test(test_old_answers_are_dropped),
    test(test_a_broken_record_is_no_cell),
};

int main(void)
{
    return kept_cell_main(tests, sizeof tests / sizeof tests[0]);
}
