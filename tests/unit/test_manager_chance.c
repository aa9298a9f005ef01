/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anything at any time: processes that print, exit, close, fail and refuse, and calls that write,
 * poll, wait, are given up or come too late. After every turn the invariants hold; in the end every
 * call was answered once, every begin has its end, and nothing is left.
 */
#include "puppet_backend.h"

#define CALLS_MAX 400
#define STEPS     250
#define ROUNDS    150

enum puppet_life { STARTING, RUNNING, EXITED, OVER };

static struct answer answers[CALLS_MAX];
static size_t answer_count;
static enum puppet_life lives[JOBS_MAX];
static uint64_t chance;
static unsigned pauses, orders, orders_told, looks, looks_told;
static uint64_t covered[100000]; /* by id: up to where its output was answered */

static uint32_t below(uint32_t n)
{
    return test_random(&chance) % n;
}

/* Answers of one process follow each other without a gap. */
static void on_any_reply(void *user, const struct sp_reply *r)
{
    on_reply(user, r);
    if (r->fault != SP_FAULT_NONE || r->answer.fate == SP_ANSWER_NO_PROCESS)
        return;
    if (r->from != 0) /* else it is the first, perhaps of another of the same number */
        assert_int_equal(r->from, covered[r->process_id]);
    covered[r->process_id] = r->to;
}

static void on_order(void *user, bool was_done)
{
    (void)user;
    (void)was_done;
    orders_told++;
}

static void on_look(void *user, const struct sp_inspection *look)
{
    (void)user;
    (void)look;
    looks_told++;
}

/* Some of these, perhaps none. */
static const struct sp_until *any_until(uint32_t *count)
{
    static struct sp_until items[3];
    static const char *const patterns[] = {"a", "hello$", "(denied|a)\n", "never", "^.l"};

    *count = below(2) == 0 ? 0 : below(4);
    for (uint32_t i = 0; i < *count; i++)
        items[i] = (struct sp_until){.kind = (enum sp_until_kind)below(4),
                                     .pattern = sp_str_of(patterns[below(5)]),
                                     .quiet_ms = below(2000),
                                     .port = (uint16_t)(1 + below(3))};
    return items;
}

static void begin_exec(void)
{
    struct sp_exec_request ask = command("x");
    struct answer *a = &answers[answer_count++];

    char call_id[16];

    *a = (struct answer){0};
    (void)snprintf(call_id, sizeof call_id, "call-%zu", answer_count);
    ask.call_id = sp_str_of(call_id);
    ask.is_tty = below(2) == 0;
    ask.yield = (struct sp_yield_request){true, below(2000)};
    ask.is_compat = below(8) == 0;
    ask.until = any_until(&ask.until_count);
    ask.timeout_ms = below(4) == 0 ? 1 + below(5000) : 0;
    ask.waits_for_end = below(10) == 0;
    if (below(20) == 0)
        (void)sp_fail(&start_error, SP_E_SYSTEM, ENOENT, "x");
    assert_int_equal(sp_manager_exec(manager, &ask, on_any_reply, a, &a->call, NULL), 0);
    turn();
    start_error = (struct sp_err){0};
}

/* Of one that is kept, or of nobody. */
static int any_id(void)
{
    uint32_t n = below(manager->stored + 1);

    sp_each_process(p, manager)
        if (p->is_stored && n-- == 0)
            return p->id;
    return 424242;
}

static void begin_write(void)
{
    static const char *const texts[] = {"", "", "x", "\003"};
    struct sp_write_request ask = {
        .session_id = any_id(), .chars = sp_str_of(texts[below(4)]), .yield = {true, below(8000)}};
    struct answer *a = &answers[answer_count++];

    ask.until = any_until(&ask.until_count);
    *a = (struct answer){0};
    assert_int_equal(sp_manager_write(manager, &ask, on_any_reply, a, &a->call, NULL), 0);
}

static void move_process(void)
{
    static const char *const texts[] = {"a", "hello\n", "\303", "\251", "permission denied\n"};
    const size_t i = job_count == 0 ? 0 : below((uint32_t)job_count);

    if (job_count == 0 || jobs[i].job == NULL || lives[i] == OVER)
        return;
    if (lives[i] == STARTING) {
        if (below(10) == 0) {
            const struct sp_err e = {.code = SP_E_FAILED, .msg = "no"};

            jobs[i].job->ops->refused(jobs[i].job, &e);
            lives[i] = OVER;
        } else {
            say_started(i);
            lives[i] = RUNNING;
        }
        return;
    }
    const uint32_t what = below(20);
    if (what < 12) {
        say(i, texts[below(5)]);
    } else if (what < 14 && lives[i] == RUNNING) {
        say_exited(i, (int)below(3));
        lives[i] = EXITED;
    } else if (what < 18 && lives[i] == EXITED) {
        say_closed(i);
        lives[i] = OVER;
    } else if (what == 19 && below(4) == 0) {
        say_failed(i, "lost");
        lives[i] = OVER;
    } else if (what == 18) {
        jobs[i].job->ops->gap(jobs[i].job, 0);
    }
}

static void answer_some(void)
{
    static const enum sp_job_result results[] = {SP_JOB_OK,      SP_JOB_OK,       SP_JOB_OK,
                                                 SP_JOB_FULL,    SP_JOB_NO_STDIN, SP_JOB_GONE,
                                                 SP_JOB_NOT_YET, SP_JOB_REFUSED,  SP_JOB_LOST};

    for (size_t i = 0; i < job_count; i++)
        while (jobs[i].job != NULL && jobs[i].call_count != 0 && below(2) == 0)
            answer_call(&jobs[i], results[below(9)]);
}

static void meddle(void)
{
    const int id = any_id();

    next_look.listening = below(4) == 0 ? (uint16_t)(1 + below(3)) : 0;
    switch (below(12)) {
    case 9:
    case 10:
        sp_manager_answer_now(manager, below((uint32_t)answer_count + 1));
        break;
    case 11:
        looks++;
        sp_manager_inspect(manager, id, on_look, NULL);
        break;
    case 0:
        orders++;
        sp_manager_terminate(manager, id, on_order, NULL);
        break;
    case 1:
        orders++;
        sp_manager_signal(manager, id, 15, on_order, NULL);
        break;
    case 2:
        (void)sp_manager_cancel(manager, below((uint32_t)answer_count + 1));
        break;
    case 3:
        if (below(10) == 0)
            sp_manager_interrupt(manager);
        break;
    case 4:
        if (below(20) == 0)
            sp_manager_terminate_all(manager);
        break;
    case 5:
        sp_manager_pause(manager, true);
        pauses++;
        break;
    case 6:
        if (pauses != 0) {
            sp_manager_pause(manager, false);
            pauses--;
        }
        break;
    case 7:
        if (below(5) == 0)
            (void)sp_manager_fail(manager, id, NULL);
        break;
    default:
        break;
    }
}

static void step(void)
{
    switch (below(8)) {
    case 0:
        if (job_count + 1 < JOBS_MAX)
            begin_exec();
        break;
    case 1:
        begin_write();
        break;
    case 2:
        run_for(below(3) == 0 ? below(3000) : below(60));
        break;
    case 3:
        answer_some();
        break;
    case 4:
        meddle();
        break;
    default:
        move_process();
        break;
    }
    turn();
}

static void end_everything(void)
{
    for (; pauses != 0; pauses--)
        sp_manager_pause(manager, false);
    for (int again = 0; again < 50; again++) {
        for (size_t i = 0; i < job_count; i++) {
            while (jobs[i].job != NULL && jobs[i].call_count != 0)
                answer_call(&jobs[i], SP_JOB_OK);
            if (jobs[i].job == NULL || lives[i] == OVER)
                continue;
            if (lives[i] == STARTING)
                say_started(i);
            if (lives[i] <= RUNNING)
                say_exited(i, 0);
            say_closed(i);
            lives[i] = OVER;
        }
        run_for(200);
    }
    for (size_t i = 0; i < answer_count; i++)
        assert_true(answers[i].is_there);
    assert_int_equal(orders, orders_told);
    assert_int_equal(looks, looks_told);
    while (manager->stored != 0) {
        const struct sp_process *p = first_process(manager);
        struct answer a;

        while (!p->is_stored)
            p = SP_CONTAINER(p->link.next, struct sp_process, link);
        write_for(&a, p->id, "", 0);
        until(a.is_there);
        assert_true(a.fault == SP_FAULT_FAILED || a.answer.fate == SP_ANSWER_EXITED);
    }
    run_for(300);
    assert_int_equal(sp_manager_reserved(manager), manager->remembered_count);
    assert_null(first_process(manager));
    size_t begun = 0;
    size_t ended = 0;
    for (size_t i = 0; i < event_count; i++) {
        begun += events[i].type == SP_EVENT_BEGIN;
        ended += events[i].type == SP_EVENT_END;
    }
    assert_int_equal(begun, ended);
}

/* No number is used twice, so that every answer is known to be of its process. */
static void begin_round(void **state)
{
    answer_count = pauses = orders = orders_told = looks = looks_told = 0;
    memset(lives, 0, sizeof lives);
    memset(covered, 0, sizeof covered);
    assert_int_equal(begin_puppets(state), 0);
    options.has_deterministic_ids = false;
    options.remembers_ended = chance % 2 == 0;
    options.exited_ttl_ms = chance % 3 == 0 ? 0 : 3000;
    options.idle_ttl_ms = chance % 5 == 0 ? 2000 : 0;
    remake_manager();
    can_look = chance % 4 != 1;
    is_mute = true;
}

static void test_anything_may_happen_at_any_time(void **state)
{
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        chance = round;
        begin_round(state);
        for (int i = 0; i < STEPS; i++)
            step();
        end_everything();
        assert_int_equal(end_puppets(state), 0);
    }
}

/* At any moment the manager may be freed: everything is told, and nothing is left. */
static void test_the_end_may_come_at_any_time(void **state)
{
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        chance = round * 7919;
        begin_round(state);
        for (uint32_t i = 0, n = below(STEPS); i < n; i++)
            step();
        assert_int_equal(end_puppets(state), 0);
        for (size_t i = 0; i < answer_count; i++)
            assert_true(answers[i].is_there);
        assert_int_equal(orders, orders_told);
        assert_int_equal(looks, looks_told);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_anything_may_happen_at_any_time),
        cmocka_unit_test(test_the_end_may_come_at_any_time),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
