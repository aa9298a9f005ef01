/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that is an apply_patch invocation (approvals.md 14): it is not run by a shell. The
 * patch is verified and judged, and our own program applies it, confined as the plan says.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"
#include "sandbox/resolve.h"

#define FAILED "apply_patch verification failed: "
#define HINT                                                                           \
    "patch detected without explicit call to apply_patch. Rerun as [\"apply_patch\", " \
    "\"<patch>\"]"

static bool refuse(struct sp_exec *x, const char *why)
{
    sp_call_fault(&x->call, SP_FAULT_ARGUMENTS, FAILED "%s", why);
    return false;
}

static bool refuse_without_memory(struct sp_exec *x)
{
    struct sp_error e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "begin a command");
    sp_call_fail_create(&x->call, &e, 0);
    return false;
}

/* Where its relative paths begin. */
static bool find_base(struct sp_exec *x, struct sp_buf *cd)
{
    auto_free char *base = NULL;
    auto_free char *cwd = strndup(x->cwd.p, x->cwd.n);

    if (cwd == NULL || (cd->len != 0 && !sp_buf_add(cd, "", 1)))
        return false;
    base = cd->len != 0 ? sp_path_normalise(cd->data, cwd) : strdup(cwd);
    return base != NULL && sp_keep_str(&x->call.keep, sp_str_of(base), &x->patch.base);
}

static bool verify(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;
    auto_buf struct sp_buf why = {0};
    struct sp_error e = {0};
    int r = sp_patch_parse((struct sp_str){p->text.data, p->text.len}, &p->patch, &e);

    if (r == 0)
        r = sp_patch_verify(&p->patch, p->base.p, false, &p->changes, &why, &e);
    if (r == 0)
        return true;
    if (why.len != 0 && sp_buf_add(&why, "", 1))
        return refuse(x, why.data);
    return refuse(x, e.msg);
}

enum sp_exec_patch_kind sp_exec_find_patch(struct sp_exec *x)
{
    const struct sp_words argv = {x->argv, x->argc};
    struct sp_exec_patch *p = &x->patch;
    enum sp_patch_call call = SP_PATCH_CALL_NONE;
    auto_buf struct sp_buf cd = {0};
    struct sp_error e = {0};

    if (x->facts.is_remote) /* its files are not here */
        return SP_EXEC_NO_PATCH;
    if (sp_patch_recognise(argv, &call, &p->text, &cd, &e) < 0) {
        (void)refuse_without_memory(x);
        return SP_EXEC_BAD_PATCH;
    }
    switch (call) {
    case SP_PATCH_CALL_NONE:
        return SP_EXEC_NO_PATCH;
    case SP_PATCH_CALL_BARE:
        (void)refuse(x, HINT);
        return SP_EXEC_BAD_PATCH;
    case SP_PATCH_CALL_PATCH:
        break;
    }
    p->is_one = true;
    if (!find_base(x, &cd)) {
        (void)refuse_without_memory(x);
        return SP_EXEC_BAD_PATCH;
    }
    return verify(x) ? SP_EXEC_PATCH : SP_EXEC_BAD_PATCH;
}

/* ---- applying ---- */

static void on_result(void *user, const struct sp_run_result *r)
{
    struct sp_exec *x = user;
    struct sp_exec_patch *p = &x->patch;

    p->run = NULL; /* gone after this */
    p->was_denied = r->class == SP_RUN_DENIED;
    p->is_guess = r->denial == NULL || !r->denial->has_evidence;
    p->output.len = 0;
    p->is_over = sp_utf8_add_lossy(&p->output, r->aggregated) &&
                 (r->error == NULL || sp_run_add_message(&p->output, r));
    if (!p->is_over)
        p->is_out_of_memory = true;
    sp_call_changed(&x->call);
}

bool sp_exec_apply_patch(struct sp_exec *x)
{
    /* In the cell this is our own program, and nothing that a command could have put there. */
    static const struct sp_str confined[] = {
        {"/proc/self/exe", 14}, {"patch-inside", 12}, {"apply", 5}, {"lf", 2}};
    static const struct sp_str open[] = {
        {"/proc/self/exe", 14}, {"patch", 5}, {"--sandbox", 9}, {":danger-full-access", 19}};
    const bool is_confined = sp_plan_is_confined(&x->plan);
    struct sp_exec_patch *p = &x->patch;
    struct sp_exec_environ env;
    struct sp_error e = {0};

    p->is_over = p->was_denied = false;
    if (!sp_exec_make_environ(x, &env))
        return refuse_without_memory(x);
    const struct sp_run_ask ask = {
        .launch = {.name = SP_STR("patch"),
                   .cwd = p->base,
                   .argv = is_confined ? confined : open,
                   .argc = 4,
                   .environ = &env.ask,
                   .policy = is_confined ? &x->plan.policy : NULL},
        .input = {p->text.data, p->text.len},
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
        return refuse_without_memory(x);
    if (!p->is_over)
        return false;
    if (p->was_denied && sp_plan_retry(&x->plan, p->is_guess)) {
        x->stage = SP_EXEC_ASKING;
        return true;
    }
    sp_call_answer_hook(&x->call,
                        (struct sp_str){p->output.len == 0 ? "" : p->output.data, p->output.len});
    return false;
}

void sp_exec_patch_done(struct sp_exec_patch *p)
{
    sp_run_free(p->run);
    if (p->is_one) {
        sp_patch_done(&p->patch);
        sp_patch_changes_done(&p->changes);
    }
    sp_buf_done(&p->text);
    sp_buf_done(&p->output);
}
