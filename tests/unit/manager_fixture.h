/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_fixture: a manager whose events and replies are written down, and whose invariants are
 * looked at after every turn of the loop.
 */
#ifndef SP_MANAGER_FIXTURE_H
#define SP_MANAGER_FIXTURE_H

#include <stdio.h>

#include "manager_state.h"
#include "process_fixture.h"

/* Who defines HAS_PUPPET_CLOCK before has a clock that moves only while the loop sleeps. */
#ifdef HAS_PUPPET_CLOCK
#define PATIENCE_MS 4000000
#else
#define PATIENCE_MS DEADLINE_MS
#endif
#define TURN_MS 2

struct answer {
    uint64_t call;
    bool is_there;
    uint64_t at_ms;
    enum sp_fault fault;
    char text[4096];
    char output[4096]; /* the whole of it is never longer here */
    size_t output_len;
    struct sp_exec_answer answer; /* strings are not to be looked at */
    bool was_denied;
    int process_id, signal;
    uint64_t from, to;
    int woken_by;
    bool has_exited, is_output_held, has_typed, has_denial, has_kernel;
    enum sp_end_reason end_reason;
};

#define EVENTS_MAX 20000
struct seen {
    enum sp_event_type type;
    char call_id[16];
    int process_id;
    uint64_t at_ms;
    int exit_code;
    enum sp_event_status status;
    char text[256]; /* chunk, input, message, aggregated; cut */
};

static struct sp_loop *loop;
static struct sp_manager *manager;
static struct sp_manager_options options;
static struct seen events[EVENTS_MAX];
static size_t event_count;
static char story[65536]; /* "begin delta:hello end:0 " */
static struct sp_approval_question last_question;
static unsigned questions;

static inline void on_event(void *user, const struct sp_exec_event *e)
{
    static const char *const names[] = {
        [SP_EVENT_BEGIN] = "begin",
        [SP_EVENT_DELTA] = "delta",
        [SP_EVENT_INTERACTION] = "interaction",
        [SP_EVENT_END] = "end",
        [SP_EVENT_WARNING] = "warning",
        [SP_EVENT_NOTICE] = "notice",
    };
    const struct sp_str texts[] = {
        [SP_EVENT_BEGIN] = SP_STR(""),     [SP_EVENT_DELTA] = e->chunk,
        [SP_EVENT_INTERACTION] = e->input, [SP_EVENT_END] = e->aggregated,
        [SP_EVENT_WARNING] = e->message,   [SP_EVENT_NOTICE] = e->message,
    };
    struct seen *s = &events[event_count++];
    char part[400];

    (void)user;
    assert_true(event_count < EVENTS_MAX);
    /* I4: after the end of a process nothing comes but another of the same number */
    for (size_t i = event_count - 1; i-- > 0 && event_count < 2000;)
        if (events[i].process_id == e->process_id &&
            sp_str_eq(sp_str_of(events[i].call_id), e->call_id) &&
            (events[i].type == SP_EVENT_BEGIN || events[i].type == SP_EVENT_END)) {
            assert_true(events[i].type == SP_EVENT_BEGIN || e->type == SP_EVENT_BEGIN);
            break;
        }
    *s = (struct seen){.type = e->type,
                       .process_id = e->process_id,
                       .at_ms = test_now_ms(),
                       .exit_code = e->exit_code,
                       .status = e->status};
    (void)snprintf(s->call_id, sizeof s->call_id, "%.*s", (int)e->call_id.n, e->call_id.p);
    (void)snprintf(s->text, sizeof s->text, "%.*s",
                   (int)(texts[e->type].n > 200 ? 200 : texts[e->type].n),
                   texts[e->type].n == 0 ? "" : texts[e->type].p);
    if (e->type == SP_EVENT_END)
        (void)snprintf(part, sizeof part, "end:%d:%s ", e->exit_code, s->text);
    else
        (void)snprintf(part, sizeof part, "%s%s%s ", names[e->type],
                       e->type == SP_EVENT_BEGIN ? "" : ":", s->text);
    if (strlen(story) + strlen(part) < sizeof story)
        (void)strcat(story, part);
}

static inline void on_ask(void *user, const struct sp_approval_question *q)
{
    (void)user;
    last_question = *q;
    questions++;
}

static inline void decide(uint64_t question, enum sp_decision_kind kind)
{
    const struct sp_decision d = {.kind = kind, .by = SP_DECIDER_USER};

    sp_approvals_decide(sp_manager_approvals(manager), question, &d);
}

static inline void on_reply(void *user, const struct sp_reply *r)
{
    struct answer *a = user;

    assert_false(a->is_there);
    a->is_there = true;
    a->at_ms = test_now_ms();
    a->fault = r->fault;
    a->answer = r->answer;
    a->was_denied = r->was_denied;
    a->process_id = r->process_id;
    a->signal = r->signal;
    a->from = r->from;
    a->to = r->to;
    a->woken_by = r->woken_by;
    a->has_exited = r->has_exited;
    a->is_output_held = r->is_output_held;
    a->has_typed = r->has_typed;
    a->has_denial = r->denial != NULL;
    a->has_kernel = r->kernel != NULL;
    a->end_reason = r->end_reason;
    (void)snprintf(a->text, sizeof a->text, "%.*s", (int)(r->text.n > 4000 ? 4000 : r->text.n),
                   r->text.p);
    a->output_len = r->answer.output.n;
    if (r->answer.output.n != 0)
        memcpy(a->output, r->answer.output.p,
               r->answer.output.n < sizeof a->output ? r->answer.output.n : sizeof a->output - 1);
}

static struct sp_manager_ops manager_ops = {.event = on_event, .ask = on_ask};

/* ---- the loop ---- */

static inline void look_at_manager(void)
{
    const char *wrong = manager == NULL ? NULL : sp_manager_check(manager);

    if (wrong != NULL)
        fail_msg("%s; the story so far: %s", wrong, story);
}

#ifdef HAS_PUPPET_CLOCK

static inline bool stop_after_this(void *user)
{
    (void)user;
    sp_loop_stop(loop);
    return false;
}

/* Sleeps until the next thing that happens. */
static inline void sleep_turn(void)
{
    struct sp_err e = {0};

    (void)sp_loop_hook(loop, NULL);
    (void)sp_loop_hook(loop, &(struct sp_loop_hooks){.before_sleep = stop_after_this});
    if (sp_loop_run(loop, &e) < 0)
        fail_msg("%s", e.msg);
    look_at_manager();
}

/* What is to be done now. */
static inline void turn(void)
{
    sp_loop_stop(loop);
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    look_at_manager();
}

#else

static inline void stop_now(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static inline void turn(void)
{
}

/* A few turns of the loop. */
static inline void sleep_turn(void)
{
    struct sp_timer tick = {0};
    struct sp_err e = {0};

    assert_true(sp_loop_timer(loop, &tick, test_now_ms() + TURN_MS, stop_now));
    if (sp_loop_run(loop, &e) < 0)
        fail_msg("%s", e.msg);
    sp_loop_cancel(loop, &tick);
    look_at_manager();
}

#endif

#define until(condition)                                                            \
    do {                                                                            \
        const uint64_t end_ = test_now_ms() + PATIENCE_MS;                          \
        for (turn(); !(condition); turn()) {                                        \
            sleep_turn();                                                           \
            if (test_now_ms() >= end_)                                              \
                fail_msg("%s never came; the story so far: %s", #condition, story); \
        }                                                                           \
    } while (0)

static inline void on_nap_over(struct sp_timer *t)
{
    t->fn = NULL;
}

static inline void run_for(uint64_t ms)
{
    struct sp_timer nap = {0};

    assert_true(sp_loop_timer(loop, &nap, test_now_ms() + ms, on_nap_over));
    until(nap.fn == NULL);
}

/* ---- calls ---- */

static inline struct sp_exec_request command(const char *cmd)
{
    return (struct sp_exec_request){.call_id = SP_STR("call"),
                                    .turn_id = SP_STR("turn"),
                                    .cmd = sp_str_of(cmd),
                                    .has_login = true};
}

static inline void exec_ask(struct answer *a, const struct sp_exec_request *ask)
{
    struct sp_err e = {0};

    *a = (struct answer){0};
    assert_int_equal(sp_manager_exec(manager, ask, on_reply, a, &a->call, &e), 0);
    assert_false(a->is_there);
}

static inline void exec_for(struct answer *a, const char *cmd, bool is_tty, uint64_t yield_ms)
{
    struct sp_exec_request ask = command(cmd);

    ask.is_tty = is_tty;
    ask.yield = (struct sp_yield_request){true, yield_ms};
    exec_ask(a, &ask);
}

static inline void write_for(struct answer *a, int id, const char *chars, uint64_t yield_ms)
{
    const struct sp_write_request ask = {.call_id = SP_STR("write"),
                                         .session_id = id,
                                         .chars = sp_str_of(chars),
                                         .yield = {yield_ms != 0, yield_ms}};
    struct sp_err e = {0};

    *a = (struct answer){0};
    assert_int_equal(sp_manager_write(manager, &ask, on_reply, a, &a->call, &e), 0);
    assert_false(a->is_there);
}

#define assert_running(a, id)                                  \
    do {                                                       \
        assert_string_equal(fault_text(a), "");                \
        assert_int_equal((a)->answer.fate, SP_ANSWER_RUNNING); \
        assert_int_equal((a)->answer.session_id, (id));        \
    } while (0)

#define assert_exit(a, code)                                  \
    do {                                                      \
        assert_string_equal(fault_text(a), "");               \
        assert_int_equal((a)->answer.fate, SP_ANSWER_EXITED); \
        assert_int_equal((a)->answer.exit_code, (code));      \
    } while (0)

/* "" without a fault, so that a failing test says which it was. */
static inline const char *fault_text(const struct answer *a)
{
    return a->fault == SP_FAULT_NONE ? "" : a->text;
}

#define assert_fault(a, which, words)            \
    do {                                         \
        assert_int_equal((a)->fault, (which));   \
        assert_string_equal((a)->text, (words)); \
    } while (0)

static inline void forget_story(void)
{
    event_count = 0;
    story[0] = 0;
}

static inline void make_manager(void)
{
    struct sp_err e = {0};

    if (sp_manager_new(&options, &manager, &e) < 0)
        fail_msg("%s", e.msg);
}

static inline void begin_manager(void)
{
    forget_story();
    questions = 0;
    options = (struct sp_manager_options){.loop = loop,
                                          .ops = &manager_ops,
                                          .has_deterministic_ids = true,
                                          .approvals.policy.kind = SP_APPROVAL_ON_REQUEST};
}

static inline void end_manager(void)
{
    sp_manager_free(manager);
    manager = NULL;
}

#endif
