/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_patch: a command that is a patch. It is verified against its files before approval and
 * applied afterwards.
 *
 * Both the error of a patch that does not fit and the diff shown to an approver reveal file
 * contents. So our own program reads the files in a cell, under the profile that a command would
 * have but without any write access: a patch reveals nothing that a command could not read. The
 * cell is used even without a sandbox, so that a hung file system or a large file blocks another
 * process and not the loop.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "engine/exec_priv.h"
#include "sandbox/resolve.h"

/* Answers the call; false. */
#define REFUSE(x, fmt, ...)                                                                 \
    (sp_call_fault(&(x)->call, SP_FAULT_ARGUMENTS, "apply_patch verification failed: " fmt, \
                   __VA_ARGS__),                                                            \
     false)

/* ---- recognition ---- */

/* Parses the text and checks that its `*** Environment ID` names the command's environment. */
static bool read_patch(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;
    struct sp_err e = {0};

    if (sp_patch_parse(sp_buf_str(&p->text), &p->patch, &e) < 0 ||
        sp_patch_list(&p->patch, p->base.p, &p->changes, &e) < 0)
        return REFUSE(x, "%s", e.msg);
    if (x->facts.is_remote && p->patch.hunk_count > SP_EXEC_FILES_MAX)
        return REFUSE(x,
                      "the patch changes %u files, and at most %d on another machine; make several "
                      "patches of it",
                      p->patch.hunk_count, SP_EXEC_FILES_MAX);
    const struct sp_str id = p->patch.environment_id;
    if (id.p == NULL || sp_str_eq(id, sp_str_of(x->environment->id)) ||
        (!x->facts.is_remote && sp_str_eq(id, SP_STR("local"))))
        return true;
    return REFUSE(x,
                  "the patch is for environment `" SP_STR_FMT
                  "`, and the command for `%s`; name the same one in both",
                  SP_STR_ARG(id), x->environment->id);
}

bool sp_exec_find_patch(struct sp_exec *x)
{
    const struct sp_words argv = {x->argv, x->argc};
    struct sp_exec_patch *p = &x->patch;
    enum sp_patch_call call = SP_PATCH_CALL_NONE;
    auto_buf struct sp_buf cd = {0};
    struct sp_err e = {0};

    if (sp_patch_recognise(argv, &call, &p->text, &cd, &e) < 0)
        return sp_exec_refuse_without_memory(x);
    if (call == SP_PATCH_CALL_NONE)
        return true;
    /* The paths of a patch are POSIX paths, and a remote patch needs the file methods. */
    if (x->facts.is_remote &&
        (!sp_backend_has_files(x->environment->backend) || x->cwd.p[0] != '/'))
        return REFUSE(x,
                      "environment `%s` has no files that a patch could change; change them "
                      "with commands",
                      x->environment->id);
    if (call == SP_PATCH_CALL_BARE)
        return REFUSE(x, "%s",
                      "patch detected without explicit call to apply_patch. Rerun as "
                      "[\"apply_patch\", \"<patch>\"]");
    p->is_one = true;
    auto_free char *cwd = strndup(x->cwd.p, x->cwd.n);
    auto_free char *base = NULL;
    if (cwd == NULL || (cd.len != 0 && !sp_buf_add(&cd, "", 1)))
        return sp_exec_refuse_without_memory(x);
    base = sp_path_normalise(cd.len != 0 ? cd.data : cwd, cwd);
    if (base == NULL || !sp_arena_str(&x->call.keep, sp_str_of(base), &p->base))
        return sp_exec_refuse_without_memory(x);
    return read_patch(x);
}

/* ---- verification ---- */

#define PATCH_ARGC 6

/* The argv that makes our own program work on a patch; the input goes to its stdin. */
static void write_patch_argv(const struct sp_exec *x, const char *what, bool refuses_links,
                             struct sp_str ret[PATCH_ARGC])
{
    /* in a cell: our own program, never a file that a command wrote */
    ret[0] = SP_STR("/proc/self/exe");
    ret[1] = SP_STR("patch-inside");
    ret[2] = sp_str_of(what);
    ret[3] = x->call.m->options.keeps_line_endings ? SP_STR("keep") : SP_STR("lf");
    ret[4] = refuses_links ? SP_STR("refuse") : SP_STR("follow");
    ret[5] = x->patch.base;
}

/* The profile that a command would have, with what was granted to the session and the turn. */
static int find_policy(const struct sp_exec *x, struct sp_policy *ret, struct sp_err *e)
{
    const struct sp_manager *m = x->call.m;
    struct sp_grant granted = {0};
    struct sp_profile wider;
    int r;

    if (!sp_policy_copy(&x->environment->policy, ret))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    if (ret->cwd == NULL && x->environment_cwd != NULL &&
        (ret->cwd = strdup(x->environment_cwd)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    r = sp_approvals_granted(m->approvals, sp_str_of(x->environment->id), &x->ask.turn_id, &granted,
                             e);
    if (r == 0)
        r = sp_profile_widen(&ret->profile, &granted, &wider, e);
    sp_grant_done(&granted);
    if (r < 0)
        return r;
    sp_profile_done(&ret->profile);
    ret->profile = wider;
    return 0;
}

bool sp_exec_keep_refusal(struct sp_exec_patch *p, struct sp_str why)
{
    while (why.n > 0 && why.p[why.n - 1] == '\n')
        why.n--;
    return sp_utf8_add_lossy(&p->refusal, why) && sp_buf_add(&p->refusal, "", 1);
}

/* Takes the changes that the program reports, or why there are none. false: out of memory. */
static bool take_report(struct sp_exec_patch *p, const struct sp_run_result *r)
{
    struct sp_err e = {0};
    char text[640];

    if (r->kind == SP_RUN_TIMED_OUT) {
        (void)snprintf(text, sizeof text,
                       "the files could not be read within %d s; is their file system reachable?",
                       SP_EXEC_VERIFY_MS / 1000);
        return sp_exec_keep_refusal(p, sp_str_of(text));
    }
    if (r->kind == SP_RUN_FAILED && r->error != NULL)
        return sp_buf_printf(&p->refusal, "the sallyport program, which reads the files, could not "
                                          "be run: ") &&
               sp_exec_keep_refusal(p, sp_str_of(sp_error_text(r->error, text, sizeof text)));
    if (r->kind != SP_RUN_EXITED) {
        (void)snprintf(text, sizeof text, "the program that reads the files was ended (code %d)",
                       r->exit_code);
        return sp_exec_keep_refusal(p, sp_str_of(text));
    }
    if (r->exit_code != 0 && r->err.n != 0)
        return sp_exec_keep_refusal(p, r->err);
    if (r->has_lost_output || r->out_total != r->out.n || r->exit_code != 0)
        (void)sp_fail(&e, SP_E_LIMIT, 0,
                      "the program that reads the files has not told what would change, or more "
                      "than %u MiB (code %d)",
                      SP_PATCH_REPORT_BYTES >> 20, r->exit_code);
    else if (sp_patch_read_report(r->out, &p->changes, &e) == 0)
        return true;
    return sp_exec_keep_refusal(p, sp_str_of(e.msg));
}

static void on_report(void *user, const struct sp_run_result *r)
{
    struct sp_exec *x = user;
    struct sp_exec_patch *p = &x->patch;

    p->run = NULL; /* freed when this returns */
    p->is_over = true;
    if (!take_report(p, r))
        p->is_out_of_memory = true;
    sp_call_changed(&x->call);
}

static bool start_verification(struct sp_exec *x, const struct sp_policy *policy)
{
    struct sp_exec_patch *p = &x->patch;
    struct sp_str words[PATCH_ARGC];
    struct sp_env_request env;
    struct sp_err e = {0};

    if (x->facts.is_remote)
        return sp_exec_read_files(x, policy);
    if (!sp_exec_make_env(x, &env))
        return sp_exec_refuse_without_memory(x);
    write_patch_argv(x, "report", false, words);
    const struct sp_run_ask ask = {
        .launch = {.label = SP_STR("patch"),
                   .cwd = p->base,
                   .argv = words,
                   .argc = PATCH_ARGC,
                   .environ = &env,
                   .policy = policy,
                   .is_own_program = true},
        .input = sp_buf_str(&p->text),
        .timeout_ms = SP_EXEC_VERIFY_MS,
        .cap = SP_PATCH_REPORT_BYTES,
    };
    if (sp_run_start(x->environment->backend, &ask, on_report, x, &p->run, &e) == 0)
        return true;
    sp_call_fail_create(&x->call, &e);
    return false;
}

bool sp_exec_verify_patch(struct sp_exec *x)
{
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_exec_patch *p = &x->patch;
    struct sp_err e = {0};

    if (p->patch.hunk_count == 0) { /* no file to read: the plan refuses an empty patch */
        p->is_over = true;
        return true;
    }
    if (!x->environment->has_policy)
        return start_verification(x, NULL);
    if (find_policy(x, &policy, &e) < 0) {
        sp_call_fail_create(&x->call, &e);
        return false;
    }
    if (!sp_profile_needs_sandbox(&policy.profile))
        return start_verification(x, NULL);
    return sp_run_plan_make_read_only(&policy.profile) ? start_verification(x, &policy)
                                                       : sp_exec_refuse_without_memory(x);
}

bool sp_exec_has_changes(struct sp_exec *x)
{
    struct sp_exec_patch *p = &x->patch;

    if (!p->is_over)
        return false;
    if (p->is_out_of_memory)
        return sp_exec_refuse_without_memory(x);
    return p->refusal.len == 0 || REFUSE(x, "%s", p->refusal.data);
}

/*
 * ---- application ----
 *
 * Our own program applies the patch, confined as the plan says, and only if the files still give
 * the changes that were verified and approved.
 */

bool sp_exec_refuse_without_memory(struct sp_exec *x)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "begin a command");
    sp_call_fail_create(&x->call, &e);
    return false;
}

static void on_result(void *user, const struct sp_run_result *r)
{
    struct sp_exec *x = user;
    struct sp_exec_patch *p = &x->patch;

    p->run = NULL; /* freed when this returns */
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
    struct sp_str words[PATCH_ARGC];
    struct sp_env_request env;
    struct sp_err e = {0};

    p->is_over = p->was_denied = false;
    if (x->facts.is_remote)
        return sp_exec_write_files(x);
    if (!sp_exec_make_env(x, &env) ||
        !sp_patch_add_approved(&input, &p->changes, sp_buf_str(&p->text)))
        return sp_exec_refuse_without_memory(x);
    write_patch_argv(x, "approved", !is_confined, words);
    const struct sp_run_ask ask = {
        .launch = {.label = SP_STR("patch"),
                   .cwd = p->base,
                   .argv = words,
                   .argc = PATCH_ARGC,
                   .environ = &env,
                   .policy = is_confined ? &x->plan.policy : NULL,
                   .is_own_program = true},
        .input = sp_buf_str(&input),
        .timeout_ms = SP_EXEC_PATCH_MS,
    };
    if (sp_run_start(x->environment->backend, &ask, on_result, x, &p->run, &e) < 0) {
        sp_call_fail_create(&x->call, &e);
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
    sp_call_answer_hook(&x->call, sp_buf_str(&p->output), p->is_applied ? 0 : 1,
                        p->is_applied ? &p->changes : NULL);
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
