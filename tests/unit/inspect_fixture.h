/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_fixture: looks at jobs that run here, and jobs in a sandbox.
 */
#ifndef SP_INSPECT_FIXTURE_H
#define SP_INSPECT_FIXTURE_H

#include "local_fixture.h"

struct looked {
    struct sp_job_inspection look;
    bool is_answered;
};

static inline void on_looked(struct sp_job_call *c)
{
    struct sp_job_inspection *l = SP_CONTAINER(c, struct sp_job_inspection, call);

    assert_false(is_calling);
    SP_CONTAINER(l, struct looked, look)->is_answered = true;
    sp_loop_stop(loop);
}

static inline enum sp_job_result look_for(struct owner *o, struct looked *l)
{
    l->look.call.fn = on_looked;
    l->is_answered = false;
    is_calling = true;
    assert_true(sp_job_inspect(&o->job, &l->look));
    is_calling = false;
    assert_false(l->is_answered);
    until(l->is_answered);
    return l->look.call.result;
}

static inline enum sp_doing doing(struct owner *o)
{
    struct looked l = {.look.wants_doing = true};

    assert_int_equal(look_for(o, &l), SP_JOB_OK);
    return l.look.found.doing;
}

static inline uint16_t listening(struct owner *o, uint16_t first, uint16_t second)
{
    struct looked l = {.look = {.ports = {first, second}, .port_count = 2}};

    assert_int_equal(look_for(o, &l), SP_JOB_OK);
    assert_int_equal(l.look.found.doing, SP_DOING_UNKNOWN); /* nobody asked */
    return l.look.found.listening;
}

/* It takes a moment until a program is where it goes. */
static inline void await_doing(struct owner *o, enum sp_doing wanted)
{
    const uint64_t end = test_now_ms() + DEADLINE_MS;
    enum sp_doing d;

    until(has_told(o, "started"));
    while ((d = doing(o)) != wanted) {
        if (test_now_ms() > end || o->is_over)
            fail_msg("%s instead of %s: %.*s", sp_doing_name(d), sp_doing_name(wanted),
                     (int)o->err.len, o->err.len > 0 ? o->err.data : "");
        run_for(10);
    }
}

/* It says that it is there, and then does this and never reads. */
static inline void assert_stays(struct owner *o, enum sp_doing wanted)
{
    until(o->out.len > 0);
    await_doing(o, wanted);
    for (int i = 0; i < 20; i++) {
        const enum sp_doing d = doing(o);

        assert_int_not_equal(d, SP_DOING_READING_TERMINAL);
        assert_int_not_equal(d, SP_DOING_READING_STDIN);
        run_for(2);
    }
}

static inline void end_job(struct owner *o)
{
    (void)terminate(o);
    until(o->is_over);
    finish(o);
}

static inline void check(const char *text, bool is_tty, enum sp_doing wanted)
{
    struct owner o = {0};

    start_script(&o, text, is_tty, true);
    await_doing(&o, wanted);
    end_job(&o);
}

static inline void check_stays(const char *text, bool is_tty, enum sp_doing wanted)
{
    struct owner o = {0};

    start_script(&o, text, is_tty, true);
    assert_stays(&o, wanted);
    end_job(&o);
}

static inline bool has_program(const char *path)
{
    if (access(path, X_OK) == 0)
        return true;
    print_message("# there is no %s here\n", path);
    return false;
}

#define PYTHON   "/usr/bin/python3"
#define NODE     "/usr/bin/node"
#define PY(text) "exec " PYTHON " -uc '" text "'"

/* ---- in a sandbox ---- */

static inline bool start_confined(struct owner *o, const char *text, bool is_tty, bool has_network)
{
    static const struct sp_legacy read_only = {.mode = SP_MODE_READ_ONLY};
    struct sp_policy policy = {.cwd_is_root = true, .cwd = strdup("/")};
    struct sp_str argv[3];
    struct sp_env_request env;
    struct sp_start l = script(text, argv, &env);
    struct sp_err e = {0};

    assert_int_equal(sp_profile_from_legacy(&read_only, &policy.profile, &e), 0);
    policy.profile.has_network = has_network;
    l.policy = &policy;
    l.is_tty = is_tty;
    l.wants_stdin = true;
    const int r = start_launch(o, &l, &e);
    sp_policy_done(&policy);
    if (r < 0) {
        print_message("# no sandbox here: %s\n", e.msg);
        return false;
    }
    until(has_told(o, "started") || has_told(o, "refused"));
    if (has_told(o, "refused"))
        fail_msg("%s", o->error.msg);
    return true;
}

#endif
