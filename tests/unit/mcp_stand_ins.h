/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_stand_ins: runs that do what the test says, and a clock that moves when the test says so.
 * Link with --wrap of what is defined here (mcp_stand_ins in meson.build).
 */
#ifndef SP_MCP_STAND_INS_H
#define SP_MCP_STAND_INS_H

#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/hash.h"
#include "mcp/mcp_run.h"
#include "mcp/task.h"
#include "mcp/tool.h"
#include "test.h"

/* ---- the clock ---- */

#define TIMERS_MAX 1024
static struct sp_timer *timers[TIMERS_MAX];
static uint32_t timer_count;
static uint64_t now_ms;
static bool has_no_timers;

bool __wrap_sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *));
void __wrap_sp_loop_cancel(struct sp_loop *l, struct sp_timer *t);
uint64_t __wrap_sp_loop_now(const struct sp_loop *l);

bool __wrap_sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *))
{
    (void)l;
    if (t->slot == 0) {
        if (has_no_timers)
            return false;
        assert_true(timer_count < TIMERS_MAX);
        timers[timer_count++] = t;
        t->slot = timer_count;
    }
    t->due_ms = due_ms;
    t->fn = fn;
    return true;
}

void __wrap_sp_loop_cancel(struct sp_loop *l, struct sp_timer *t)
{
    (void)l;
    if (t->slot == 0)
        return;
    timers[t->slot - 1] = timers[--timer_count];
    timers[t->slot - 1]->slot = t->slot;
    t->slot = 0;
}

uint64_t __wrap_sp_loop_now(const struct sp_loop *l)
{
    (void)l;
    return now_ms;
}

static inline void turn(void);

static inline void pass(uint64_t ms)
{
    const uint64_t end = now_ms + ms;

    for (;;) {
        struct sp_timer *first = NULL;

        for (uint32_t i = 0; i < timer_count; i++)
            if (timers[i]->due_ms <= end && (first == NULL || timers[i]->due_ms < first->due_ms))
                first = timers[i];
        if (first == NULL)
            break;
        now_ms = first->due_ms > now_ms ? first->due_ms : now_ms;
        __wrap_sp_loop_cancel(NULL, first);
        first->fn(first);
        turn();
    }
    now_ms = end;
}

/* ---- runs ---- */

#define RUNS_MAX 2048
struct fake_run {
    struct sp_mcp_run run; /* first */
    bool is_gone;          /* cancelled, or done */
    bool is_cancelled, was_hurried, is_untold;
    bool has_kept, cannot_ask_host, asks_next;
    struct sp_approval_question question; /* id 0: none */
    unsigned decided;                     /* how often */
    enum sp_decision_kind decision;
    char arguments[128];
};
static struct fake_run *runs[RUNS_MAX];
static uint32_t run_count;
static bool has_approver, is_run_limit;
static int terminated; /* the last process that was */
static uint64_t next_question;

static struct sp_manager_options manager_options;
static struct sp_mcp server;
static struct sp_mcp_caller caller, other_caller;
static const char *last_line; /* of output */

struct sp_hash __wrap_sp_hash(struct sp_str bytes);
int __wrap_sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_request *ask,
                            const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                            struct sp_err *e);
void __wrap_sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user);
void __wrap_sp_mcp_run_cancel(struct sp_mcp_run *r);
void __wrap_sp_mcp_run_answer_now(struct sp_mcp_run *r);
bool __wrap_sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out);
const struct sp_approval_question *__wrap_sp_mcp_run_question(const struct sp_mcp_run *r);
void __wrap_sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d);
void __wrap_sp_mcp_run_ask_next(struct sp_mcp_run *r, const char *why);
bool __wrap_sp_mcp_run_asks_host(const struct sp_mcp_run *r);
void __wrap_sp_mcp_run_note_shown(struct sp_mcp_run *r);
bool __wrap_sp_mcp_run_is_too_quick(const struct sp_mcp_run *r);
const struct sp_mcp_tool *__wrap_sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name);
bool __wrap_sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                                  struct sp_mcp_tool_words words);
void __wrap_sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                                 void *user);

/* So that the secret part of a task's name is known. */
#define SECRET "-00000000000000000000000000000000"
struct sp_hash __wrap_sp_hash(struct sp_str bytes)
{
    (void)bytes;
    return (struct sp_hash){0};
}

static inline struct fake_run *fake_of(const struct sp_mcp_run *r)
{
    uint32_t i = 0;

    while (i < run_count && &runs[i]->run != r)
        i++;
    assert_true(i < run_count); /* no run that there is not */
    return runs[i];
}

int __wrap_sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_request *ask,
                            const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                            struct sp_err *e)
{
    if (is_run_limit)
        return sp_fail(e, SP_E_LIMIT, 0, "too many calls wait already");
    struct fake_run *f = calloc(1, sizeof *f);
    if (f == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    assert_true(run_count < RUNS_MAX);
    f->run.caller = c;
    f->run.ops = ops;
    f->run.user = user;
    f->run.waits_for_end = ask->waits_for_end;
    f->cannot_ask_host = ask->cannot_ask_host;
    (void)snprintf(f->arguments, sizeof f->arguments, SP_STR_FMT,
                   SP_STR_ARG(ask->arguments->written));
    runs[run_count++] = f;
    *ret = &f->run;
    return 0;
}

void __wrap_sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user)
{
    struct fake_run *f = fake_of(r);

    assert_false(f->is_gone);
    r->ops = ops;
    r->user = user;
    f->run.is_held = ops == NULL;
    f->is_untold = ops != NULL && f->question.id != 0 && !f->has_kept;
    if (ops == NULL)
        return;
    if (f->has_kept)
        f->question.id = 0;
    f->has_kept = false;
}

void __wrap_sp_mcp_run_cancel(struct sp_mcp_run *r)
{
    struct fake_run *f = fake_of(r);

    assert_false(f->is_gone);
    f->is_gone = f->is_cancelled = true;
    f->question.id = 0;
}

void __wrap_sp_mcp_run_answer_now(struct sp_mcp_run *r)
{
    assert_false(fake_of(r)->is_gone);
    fake_of(r)->was_hurried = true;
}

bool __wrap_sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out)
{
    assert_false(fake_of(r)->is_gone);
    return sp_buf_add_str(out, sp_str_of(last_line));
}

const struct sp_approval_question *__wrap_sp_mcp_run_question(const struct sp_mcp_run *r)
{
    const struct fake_run *f = fake_of(r);

    assert_false(f->is_gone);
    return f->question.id != 0 && !f->has_kept ? &f->question : NULL;
}

void __wrap_sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d)
{
    struct fake_run *f = fake_of(r);

    assert_false(f->is_gone);
    assert_true(f->question.id != 0 && !f->has_kept);
    f->decided++;
    f->decision = d->kind;
    f->asks_next = false;
    f->has_kept = f->run.is_held;
    if (!f->run.is_held)
        f->question.id = 0;
}

void __wrap_sp_mcp_run_ask_next(struct sp_mcp_run *r, const char *why)
{
    (void)why;
    if (has_approver)
        fake_of(r)->asks_next = true;
    else
        __wrap_sp_mcp_run_decide(r, &(struct sp_decision){.kind = SP_DECISION_DENIED});
}

bool __wrap_sp_mcp_run_asks_host(const struct sp_mcp_run *r)
{
    return !fake_of(r)->asks_next;
}

void __wrap_sp_mcp_run_note_shown(struct sp_mcp_run *r)
{
    (void)r;
}

bool __wrap_sp_mcp_run_is_too_quick(const struct sp_mcp_run *r)
{
    (void)r;
    return false;
}

const struct sp_mcp_tool *__wrap_sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name)
{
    static const struct sp_mcp_tool tools[] = {{.name = "exec_command"}, {.name = "write_stdin"}};

    (void)m;
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        if (sp_str_eq(name, sp_str_of(tools[i].name)))
            return &tools[i];
    return NULL;
}

bool __wrap_sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                                  struct sp_mcp_tool_words words)
{
    (void)m;
    return sp_buf_printf(out, "[%d,%d]", words.has_annotations, words.has_output_schema);
}

void __wrap_sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                                 void *user)
{
    (void)m;
    (void)fn;
    (void)user;
    terminated = process_id;
}

/* ---- what the loop would tell ---- */

static inline void turn(void)
{
    for (uint32_t i = 0; i < run_count; i++)
        if (!runs[i]->is_gone && runs[i]->is_untold && runs[i]->run.ops != NULL) {
            runs[i]->is_untold = false;
            if (runs[i]->question.id != 0)
                runs[i]->run.ops->question(runs[i]->run.user);
        }
}

static inline struct fake_run *newest_run(void)
{
    assert_true(run_count != 0);
    return runs[run_count - 1];
}

static inline void finish(struct fake_run *f, const char *text, bool is_error)
{
    const struct sp_mcp_result r = {
        .is_error = is_error, .text = sp_str_of(text), .structured = SP_STR("{\"n\":1}")};

    assert_false(f->is_gone);
    f->is_gone = true;
    f->run.ops->done(f->run.user, &r);
}

static inline void ask_something(struct fake_run *f)
{
    static const struct sp_str argv[] = {{"npm", 3}, {"publish", 7}};

    f->question = (struct sp_approval_question){.id = ++next_question,
                                                .kind = SP_QUESTION_RUN,
                                                .call_id = SP_STR("c"),
                                                .command = SP_STR("npm publish"),
                                                .argv = {argv, 2},
                                                .cwd = SP_STR("/site/w")};
    f->is_untold = true;
    turn();
}

static inline void begin_process(struct fake_run *f, int id)
{
    f->run.ops->started(f->run.user, id);
    turn();
}

#endif
