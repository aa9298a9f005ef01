/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A patch that may be applied (approvals.md 14.3): our own program does it, confined as the plan
 * says, and only if it comes to the same as what was verified: what nobody was shown is not
 * written.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

bool sp_exec_refuse_without_memory(struct sp_exec *x)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "begin a command");
    sp_call_fail_create(&x->call, &e, 0);
    return false;
}

void sp_exec_patch_words(const struct sp_exec *x, const char *what, bool refuses_links,
                         struct sp_str ret[SP_PATCH_WORDS])
{
    /* In the cell this is our own program, and nothing that a command could have put there. */
    ret[0] = SP_STR("/proc/self/exe");
    ret[1] = SP_STR("patch-inside");
    ret[2] = sp_str_of(what);
    ret[3] = x->call.m->options.keeps_line_endings ? SP_STR("keep") : SP_STR("lf");
    ret[4] = refuses_links ? SP_STR("refuse") : SP_STR("follow");
    ret[5] = x->patch.base;
}

static void on_result(void *user, const struct sp_run_result *r)
{
    struct sp_exec *x = user;
    struct sp_exec_patch *p = &x->patch;

    p->run = NULL; /* gone after this */
    p->was_denied = r->class == SP_RUN_DENIED;
    p->is_guess = r->denial == NULL || !r->denial->has_evidence;
    p->is_applied = r->kind == SP_RUN_EXITED && r->exit_code == 0;
    p->output.len = 0;
    p->is_over = sp_utf8_add_lossy(&p->output, r->aggregated) &&
                 (r->error == NULL || sp_run_add_message(&p->output, r));
    if (!p->is_over)
        p->is_out_of_memory = true;
    sp_call_changed(&x->call);
}

bool sp_exec_apply_patch(struct sp_exec *x)
{
    const bool is_confined = sp_run_plan_is_confined(&x->plan);
    struct sp_exec_patch *p = &x->patch;
    auto_buf struct sp_buf input = {0};
    struct sp_str words[SP_PATCH_WORDS];
    struct sp_exec_environ env;
    struct sp_err e = {0};

    p->is_over = p->was_denied = false;
    if (x->facts.is_remote)
        return sp_exec_write_files(x);
    if (!sp_exec_make_environ(x, &env) ||
        !sp_patch_add_approved(&input, &p->changes, (struct sp_str){p->text.data, p->text.len}))
        return sp_exec_refuse_without_memory(x);
    sp_exec_patch_words(x, "approved", !is_confined, words);
    const struct sp_run_ask ask = {
        .launch = {.name = SP_STR("patch"),
                   .cwd = p->base,
                   .argv = words,
                   .argc = SP_PATCH_WORDS,
                   .environ = &env.ask,
                   .policy = is_confined ? &x->plan.policy : NULL,
                   .is_own_program = true},
        .input = {input.data, input.len},
        .timeout_ms = SP_EXEC_PATCH_MS,
    };
    if (sp_run_start(x->home->backend, &ask, on_result, x, &p->run, &e) < 0) {
        sp_call_fail_create(&x->call, &e, 0);
        return false;
    }
    return true;
}

bool sp_exec_await_patch(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;

    if (p->is_out_of_memory)
        return sp_exec_refuse_without_memory(x);
    if (!p->is_over)
        return false;
    if (p->was_denied && sp_exec_ask_again(x, p->is_guess, 1)) {
        x->stage = SP_EXEC_ASKING;
        return true;
    }
    sp_call_answer_hook(&x->call,
                        (struct sp_str){p->output.len == 0 ? "" : p->output.data, p->output.len},
                        p->is_applied ? 0 : 1, p->is_applied ? &p->changes : NULL);
    return false;
}

void sp_exec_patch_done(struct sp_exec_patch *p)
{
    sp_run_free(p->run);
    sp_exec_files_free(p->files);
    if (p->is_one) {
        sp_patch_done(&p->patch);
        sp_patch_changes_done(&p->changes);
    }
    sp_buf_done(&p->text);
    sp_buf_done(&p->output);
    sp_buf_done(&p->refusal);
}
