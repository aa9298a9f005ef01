/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plan: judging, asking and logging one request, and how a command without its sandbox runs.
 *
 * Nothing that a confined command could write may decide what runs without a sandbox. A rule allows
 * a name, so the file is found first (approve/program.h) and started as it was found, with the PATH
 * that it was found by: a run that a rule sets free is therefore never a login shell, whose profile
 * may set another PATH. What a person allows is found as usual; but it is a login shell, or uses
 * the snapshot of one, only where no command could have written the files that the shell reads.
 */
#include "approve/run_plan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "base/log.h"
#include "base/truncate.h"
#include "sandbox/resolve.h"

#define REFUSAL_TOKENS 900
#define RETRY_REASON   "command failed; retry without sandbox?"
#define BY_USER        "rejected by user"
#define BY_USER_LONG   "exec command rejected by user"
#define BY_USER_PATCH  "patch rejected by user"
#define TOO_LATE       "approval request timed out"

static bool is_patch(const struct sp_run_plan *p)
{
    return p->request.changes != NULL;
}

/* ---- the audit log ---- */

/* Logs a decision before anything comes of it. false: that is mandatory and failed; so has the
 * plan. */
static bool audit_plan(struct sp_run_plan *p, const char *requirement, const char *decision,
                       enum sp_decider by, bool runs)
{
    auto_buf struct sp_buf words = {0};

    if (runs && p->is_unconfined && p->has_policy && sp_words_add_quoted(&words, p->request.argv))
        sp_log(SP_LOG_WARN, "without a sandbox: " SP_STR_FMT,
               (int)(words.len > 200 ? 200 : words.len), words.data);
    const struct sp_audit_entry entry = {
        .call_id = p->request.call_id,
        .environment = p->request.environment,
        .cwd = p->request.cwd,
        .command = p->request.argv,
        .segments = &p->requirement.segments,
        .matches = &p->requirement.matches,
        .policy = &p->approval,
        .requirement = requirement,
        .decision = decision,
        .decided_by = sp_decider_name(by),
        .attempt = !runs                        ? NULL
                   : sp_run_plan_is_confined(p) ? "confined"
                                                : "free",
    };
    if (sp_approvals_audit(p->approvals, &entry, &p->error))
        return true;
    p->state = SP_RUN_PLAN_FAILED;
    return false;
}

/* ---- patches ---- */

#define PATCH_EMPTY "patch rejected: empty patch"
#define PATCH_OUTSIDE \
    "patch rejected: writing outside of the project; rejected by user approval settings"
#define PATCH_READ_ONLY \
    "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The parents of all targets that the profile does not open, each once. */
static int find_parents(struct sp_run_plan *p, const struct sp_resolved *rules, struct sp_err *e)
{
    const struct sp_patch_changes *c = p->request.changes;
    struct sp_run_plan_patch *r = &p->patch;
    uint32_t kept = 0;

    r->parents = calloc((size_t)c->count * 2 + 1, sizeof *r->parents);
    if (r->parents == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "assess a patch");
    for (uint32_t i = 0; i < c->count * 2; i++) {
        const char *path = i % 2 == 0 ? c->items[i / 2].full_path : c->items[i / 2].full_target;

        if (path == NULL || sp_resolved_can_write(rules, path, NULL, NULL))
            continue;
        const char *slash = strrchr(path, '/');
        const size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
        r->parents[r->parent_count] = strndup(path, n);
        if (r->parents[r->parent_count++] == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "assess a patch");
    }
    if (r->parent_count > 1)
        qsort(r->parents, r->parent_count, sizeof *r->parents, by_text);
    for (uint32_t i = 0; i < r->parent_count; i++) {
        if (kept > 0 && strcmp(r->parents[kept - 1], r->parents[i]) == 0)
            free(r->parents[i]);
        else
            r->parents[kept++] = r->parents[i];
    }
    r->parent_count = kept;
    return 0;
}

/* Whether a patch is applied without asking, after a question, or not at all: the counterpart of
 * sp_judge for its changes. */
static int assess_patch(struct sp_run_plan *p, struct sp_err *e)
{
    const struct sp_patch_changes *c = p->request.changes;
    struct sp_resolved rules __attribute__((cleanup(sp_resolved_done))) = {0};
    const int r = p->has_policy ? sp_resolve(&p->policy, &rules, e) : 0;

    p->requirement.kind = SP_REQUIRE_REFUSAL;
    p->patch.is_free = !p->has_policy || p->policy.profile.kind != SP_PROFILE_MANAGED;
    p->patch.refusal = PATCH_EMPTY;
    if (r < 0 || c->count == 0)
        return r;
    bool can_write_all = true;
    for (uint32_t i = 0; !p->patch.is_free && can_write_all && i < c->count; i++)
        can_write_all = sp_resolved_can_write(&rules, c->items[i].full_path, NULL, NULL) &&
                        (c->items[i].full_target == NULL ||
                         sp_resolved_can_write(&rules, c->items[i].full_target, NULL, NULL));
    const bool needs_answer = p->approval.kind == SP_APPROVAL_UNTRUSTED ||
                              (!can_write_all && p->approval.kind != SP_APPROVAL_ON_FAILURE);
    if (needs_answer && !sp_approval_may_ask(&p->approval, p->approval.sandbox_approval)) {
        bool has_root = p->patch.is_free || rules.is_open || rules.is_full_write;

        for (size_t i = 0; !has_root && i < rules.count; i++)
            has_root = rules.facts[i].access == SP_ACCESS_WRITE;
        p->patch.refusal = has_root ? PATCH_OUTSIDE : PATCH_READ_ONLY;
        return 0;
    }
    p->patch.refusal = NULL;
    p->requirement.kind = needs_answer ? SP_REQUIRE_ANSWER : SP_REQUIRE_NOTHING;
    return needs_answer && !can_write_all ? find_parents(p, &rules, e) : 0;
}

bool sp_run_plan_make_read_only(struct sp_profile *p)
{
    p->has_network = false;
    sp_network_policy_free(p->managed);
    p->managed = NULL;
    for (size_t i = 0; i < p->count; i++)
        if (p->entries[i].access == SP_ACCESS_WRITE)
            p->entries[i].access = SP_ACCESS_READ;
    if (p->kind == SP_PROFILE_MANAGED && !p->is_unrestricted)
        return true;
    /* Full access becomes: everything can be read. */
    sp_profile_done(p);
    return sp_profile_add(p, SP_PLACE_ROOT, SP_ACCESS_READ, false, (struct sp_str){0},
                          (struct sp_str){0}, NULL) == 0;
}

/* ---- keys of approvals for the session ---- */

/* A key is a list of texts, each preceded by its length, so that different lists never encode
 * alike. */
static bool add_field(struct sp_buf *out, struct sp_str s)
{
    return sp_buf_printf(out, "%zu:", s.n) && sp_buf_add_str(out, s) && sp_buf_add(out, ",", 1);
}

static bool add_words(struct sp_buf *out, struct sp_words words)
{
    bool is_good = sp_buf_printf(out, "%u[", words.count);

    for (uint32_t i = 0; is_good && i < words.count; i++)
        is_good = add_field(out, words.items[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

/* Extra blanks in a plain script do not make it another command. The kind of command comes first,
 * so that a script cannot pass for one that consists of the words in its key. */
static bool add_canonical(struct sp_buf *out, struct sp_words argv)
{
    auto_segments struct sp_segments s = {0};
    struct sp_str script;

    if (!sp_script_is_wrapper(argv, &script))
        return add_field(out, SP_STR("argv")) && add_words(out, argv);
    if (sp_segments_read(&s, argv, NULL) < 0)
        return false;
    /* The flag is part of the key: -lc is a login shell, which reads profile files first. */
    if (!s.is_opaque && s.count == 1)
        return add_field(out, SP_STR("plain")) && add_field(out, argv.items[1]) &&
               add_words(out, s.items[0]);
    const struct sp_str words[] = {argv.items[1], script};
    return add_field(out, SP_STR("script")) && add_words(out, (struct sp_words){words, 2});
}

static bool make_key(struct sp_run_plan *p)
{
    const struct sp_run_plan_request *request = &p->request;
    struct sp_buf *out = &p->key;
    auto_buf struct sp_buf additional = {0}; /* in its canonical form */

    return (request->permissions != SP_PERMISSIONS_ADDITIONAL || request->additional == NULL ||
            sp_question_add_grant(&additional, request->additional)) &&
           sp_buf_add_str(out, SP_STR("command ")) && add_field(out, request->environment) &&
           add_field(out, request->argv.count == 0 ? SP_STR("") : request->argv.items[0]) &&
           add_canonical(out, request->argv) && add_field(out, request->cwd) &&
           sp_buf_printf(out, "%d,%d,", request->is_tty, (int)request->permissions) &&
           add_field(out, sp_buf_str(&additional)) &&
           add_field(out, p->approvals->options.fingerprint) &&
           sp_buf_add_str(out, request->key_more);
}

/* Whether all files of the patch are approved for the session or, if `stores`, could be stored as
 * such. */
static bool use_patch_keys(const struct sp_run_plan *p, bool stores)
{
    struct sp_cache *c = p->approvals->cache;

    for (uint32_t i = 0; i < p->request.changes->count; i++) {
        const struct sp_patch_change *change = &p->request.changes->items[i];
        const char *const paths[] = {change->full_path, change->full_target};

        for (size_t k = 0; k < sizeof paths / sizeof paths[0]; k++) {
            auto_buf struct sp_buf key = {0};

            if (paths[k] == NULL)
                continue;
            if (!sp_buf_add_str(&key, SP_STR("patch ")) ||
                !add_field(&key, p->request.environment) || !add_field(&key, sp_str_of(paths[k])) ||
                !(stores ? sp_cache_store(c, sp_buf_str(&key), false)
                         : sp_cache_has(c, sp_buf_str(&key), false)))
                return false;
        }
    }
    return true;
}

/* ---- failure and refusal ---- */

static void fail_without_memory(struct sp_run_plan *p)
{
    (void)sp_fail(&p->error, SP_E_SYSTEM, ENOMEM, "judge a command");
    p->state = SP_RUN_PLAN_FAILED;
}

static void refuse_plan(struct sp_run_plan *p, struct sp_str reason)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};

    p->reason.len = 0;
    p->state = SP_RUN_PLAN_REFUSED;
    if (!sp_truncate_add(&p->reason, reason, max))
        fail_without_memory(p);
}

/* Who decided if no question was asked. */
static enum sp_decider by_itself(const struct sp_run_plan *p)
{
    return p->requirement.matches.count != 0 ? SP_DECIDER_RULE : SP_DECIDER_CONFIG;
}

static bool would_be_unconfined(const struct sp_run_plan *p)
{
    const bool may_be_free =
        !p->has_policy || (!p->request.keeps_policy && sp_judge_may_run_free(&p->policy));

    return may_be_free &&
           (p->is_retry || p->request.permissions == SP_PERMISSIONS_ESCALATED || p->patch.is_free ||
            (p->requirement.kind == SP_REQUIRE_NOTHING && p->requirement.is_free));
}

/* ---- a run without its sandbox ---- */

static void add_mark(struct sp_run_plan_unconfined *f, const char *name, const char *value)
{
    f->marks[f->mark_count++] = (struct sp_env_var){sp_str_of(name), sp_str_of(value)};
}

/* Fills p->unconfined. false: no memory. */
static bool make_unconfined(struct sp_run_plan *p)
{
    struct sp_run_plan_unconfined *f = &p->unconfined;
    const bool is_by_rule = p->requirement.kind == SP_REQUIRE_NOTHING && f->program.path != NULL;
    const struct sp_str set = sp_env_value(p->request.environ, "GIT_CONFIG_COUNT");
    uint64_t count = 0;
    struct sp_str script;

    if (!p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) || is_patch(p) ||
        f->argv != NULL)
        return true;
    if (!is_by_rule)
        sp_program_done(&f->program);
    f->mark_count = 0;
    /* Git takes a directory that looks like a bare repository for one, with settings that run
     * programs, and any command can make one in a workspace. So make Git accept only a `.git`,
     * unless --git-dir or GIT_DIR says otherwise. Settings in the environment stay in force.
     * Nothing is set if the command runs elsewhere, or Git would reject the number. */
    if (p->request.environ.p != NULL &&
        (set.p == NULL || set.n == 0 || sp_str_to_u64(set, 10000, &count))) {
        (void)snprintf(f->git_count, sizeof f->git_count, "%u", (unsigned)count + 1);
        (void)snprintf(f->git_key, sizeof f->git_key, "GIT_CONFIG_KEY_%u", (unsigned)count);
        (void)snprintf(f->git_value, sizeof f->git_value, "GIT_CONFIG_VALUE_%u", (unsigned)count);
        add_mark(f, "GIT_CONFIG_COUNT", f->git_count);
        add_mark(f, f->git_key, "safe.bareRepository");
        add_mark(f, f->git_value, "explicit");
    }
    if (f->program.search_path != NULL)
        add_mark(f, "PATH", f->program.search_path);
    if (!sp_script_is_wrapper(p->request.argv, &script) ||
        (!is_by_rule && !sp_startup_is_writable(&p->reach, p->request.environ)))
        return true;
    if (!is_by_rule) {
        add_mark(f, "BASH_ENV", "");
        add_mark(f, "ENV", "");
    }
    /* [SHELL, -lc, SCRIPT] becomes [SHELL, -c, SCRIPT]; -f because zsh reads .zshenv even without
     * -l. */
    const struct sp_str shell = p->request.argv.items[0];
    f->argv = calloc(4, sizeof *f->argv);
    if (f->argv == NULL)
        return false;
    f->argv[f->argc++] = shell;
    if (shell.n >= 3 && memcmp(shell.p + shell.n - 3, "zsh", 3) == 0)
        f->argv[f->argc++] = SP_STR("-f");
    f->argv[f->argc++] = SP_STR("-c");
    f->argv[f->argc++] = script;
    f->drops_login = true;
    return true;
}

static void unconfined_done(struct sp_run_plan_unconfined *f)
{
    sp_program_done(&f->program);
    free(f->argv);
    *f = (struct sp_run_plan_unconfined){0};
}

/* ---- how a plan ends ---- */

/* The attempt may start, if the decision can be logged. An approved patch may write to the
 * directories of its files. */
static void allow_attempt(struct sp_run_plan *p, const char *decision, enum sp_decider by)
{
    if (is_patch(p) && !p->is_retry && p->has_policy) {
        struct sp_grant parents = {0};
        struct sp_profile wider;
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < p->patch.parent_count; i++)
            r = sp_profile_add(&parents.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                               sp_str_of(p->patch.parents[i]), (struct sp_str){0}, &p->error);
        if (r == 0)
            r = sp_profile_widen(&p->policy.profile, &parents, &wider, &p->error);
        sp_grant_done(&parents);
        if (r < 0) {
            p->state = SP_RUN_PLAN_FAILED;
            return;
        }
        sp_profile_done(&p->policy.profile);
        p->policy.profile = wider;
    }
    p->is_unconfined = would_be_unconfined(p);
    if (p->is_unconfined && !make_unconfined(p)) {
        fail_without_memory(p);
        return;
    }
    p->state = SP_RUN_PLAN_GO;
    const bool is_asked = p->is_retry || p->requirement.kind == SP_REQUIRE_ANSWER;
    (void)audit_plan(p, is_asked ? "ask" : "skip", decision, by, true);
}

/* ---- the answer to a question ---- */

/* Adds an accepted amendment to the file and to the set. Failures are warnings. */
static void amend_rules(struct sp_approvals *a, struct sp_words prefix)
{
    struct sp_err e = {0};
    struct sp_rules *more = sp_rules_with_prefix(a->options.rules, a->options.user_dir, prefix, &e);
    if (more == NULL) {
        char reason[sizeof e.msg + 128];
        char text[sizeof reason + 64];

        (void)snprintf(text, sizeof text, "Failed to apply execpolicy amendment: %s",
                       sp_error_text(&e, reason, sizeof reason));
        sp_approvals_warn(a, text);
        return;
    }
    sp_rules_unref(a->options.rules);
    a->options.rules = more;
    sp_approvals_tell_kept(a);
}

static void on_decision(struct sp_asking *q, const struct sp_decision *d)
{
    struct sp_run_plan *p = SP_CONTAINER(q, struct sp_run_plan, asking);
    const enum sp_decider by = q->decided_by;

    if (d->kind == SP_DECISION_APPROVED || d->kind == SP_DECISION_APPROVED_FOR_SESSION ||
        d->kind == SP_DECISION_AMENDMENT) {
        /* Only an approver's approval of a confined run counts for a free run later; see
         * retry_reuses_approval. */
        p->was_approved =
            by == SP_DECIDER_USER || by == SP_DECIDER_PROGRAM || by == SP_DECIDER_CACHE;
        allow_attempt(p, sp_decision_name(d->kind), by);
        /* What could not be logged does not count later either. */
        const bool counts = p->state == SP_RUN_PLAN_GO;
        if (counts && d->kind == SP_DECISION_APPROVED_FOR_SESSION &&
            !(is_patch(p) ? use_patch_keys(p, true)
                          : sp_cache_store(p->approvals->cache, sp_buf_str(&p->key), p->is_retry)))
            sp_approvals_warn(p->approvals, "an approval could not be remembered: no memory");
        if (counts && d->kind == SP_DECISION_AMENDMENT)
            amend_rules(p->approvals, q->question.amendment);
    } else {
        struct sp_str why = d->rejection;

        if (why.n == 0 || sp_str_eq(why, SP_STR(BY_USER)))
            why = d->kind == SP_DECISION_TIMED_OUT ? SP_STR(TOO_LATE)
                  : is_patch(p)                    ? SP_STR(BY_USER_PATCH)
                                                   : SP_STR(BY_USER_LONG);
        p->is_abort = d->kind == SP_DECISION_ABORT && !q->is_replaced;
        if (audit_plan(p, q->is_review ? "skip" : "ask", sp_decision_name(d->kind), by, false))
            refuse_plan(p, why);
    }
    if (p->decided != NULL)
        p->decided(p);
}

/* ---- the question ---- */

/* Whether an approval for the session still holds: one that lets programs run without a sandbox
 * does not if a confined command could have replaced them since. */
static bool does_approval_hold(const struct sp_run_plan *p)
{
    const struct sp_program_request files = {.argv = p->request.argv,
                                             .judged = &p->requirement,
                                             .policy = &p->reach,
                                             .environ = p->request.environ};
    struct sp_program program = {0};

    if (!p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) ||
        !would_be_unconfined(p) || p->request.environ.p == NULL)
        return true;
    /* The programs of an opaque script are unknown, so no entry of its PATH may be writable. */
    const bool holds = sp_program_find(&files, &program) &&
                       (program.search_path == NULL || !p->requirement.segments.is_opaque);
    sp_program_done(&program);
    return holds;
}

/* A retry of a patch is always asked about, even if the files are approved for the session. */
static bool is_cached(struct sp_asking *q)
{
    const struct sp_run_plan *p = SP_CONTAINER(q, struct sp_run_plan, asking);

    if (is_patch(p))
        return !p->is_retry && use_patch_keys(p, false);
    return sp_cache_has(p->approvals->cache, sp_buf_str(&p->key), p->is_retry) &&
           does_approval_hold(p);
}

/* is_review: no question is needed, but the reviewer sees every command of this turn. */
static void begin_question(struct sp_run_plan *p, bool is_review)
{
    const struct sp_run_plan_request *request = &p->request;
    enum sp_question_kind kind = SP_QUESTION_RUN;

    if (p->command.len == 0 &&
        ((request->preface.count != 0 && !(sp_words_add_quoted(&p->command, request->preface) &&
                                           sp_buf_add(&p->command, " ", 1))) ||
         !(request->command.n != 0 ? sp_buf_add_str(&p->command, request->command)
                                   : sp_words_add_quoted(&p->command, request->argv)))) {
        fail_without_memory(p);
        return;
    }
    if (is_patch(p))
        kind = SP_QUESTION_PATCH;
    else if (p->is_retry)
        kind = SP_QUESTION_RETRY;
    else if (request->permissions == SP_PERMISSIONS_ESCALATED)
        kind = SP_QUESTION_ESCALATE;
    else if (request->permissions == SP_PERMISSIONS_ADDITIONAL && !p->is_preapproved)
        kind = SP_QUESTION_ADDITIONAL;
    p->asking.question = (struct sp_approval_question){
        .kind = kind,
        .call_id = request->call_id,
        .turn_id = request->turn_id,
        .environment = request->environment,
        .command = sp_buf_str(&p->command),
        .argv = request->argv,
        .preface = request->preface,
        .cwd = request->cwd,
        .reason = p->is_retry                      ? SP_STR(RETRY_REASON)
                  : p->requirement.reason.len != 0 ? sp_buf_str(&p->requirement.reason)
                                                   : request->justification,
        .segments = &p->requirement.segments,
        .amendment = p->requirement.amendment,
        .additional =
            request->permissions == SP_PERMISSIONS_ADDITIONAL ? request->additional : NULL,
        .is_free = !p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) ||
                   would_be_unconfined(p),
        .is_guess = p->is_guess,
        .profile = p->has_policy ? &p->policy : NULL,
        .profile_name = request->policy_name,
        .changes = request->changes,
        .opened = p->patch.parents,
        .opened_count = p->patch.parent_count,
    };
    p->asking.decided = on_decision;
    p->asking.is_known = is_cached;
    p->asking.is_review = is_review;
    p->asking.cannot_ask = request->cannot_ask;
    p->asking.has_no_approver = request->has_no_approver;
    p->state = SP_RUN_PLAN_ASKING;
    sp_asking_begin(&p->asking, p->approvals);
}

/* ---- judging ---- */

/* Copies what the plan must not see change. */
static int take_snapshot(struct sp_run_plan *p, struct sp_err *e)
{
    const struct sp_approvals_options *o = &p->approvals->options;
    const struct sp_grant *more =
        p->request.permissions == SP_PERMISSIONS_ADDITIONAL ? p->request.additional : NULL;
    int r = 0;

    p->approval = o->policy;
    p->rules = o->rules == NULL ? NULL : sp_rules_ref(o->rules);
    p->has_policy = p->request.policy != NULL;
    if (!p->has_policy)
        return 0;
    if (!sp_policy_copy(p->request.policy, &p->policy) ||
        (p->policy.cwd == NULL && p->request.policy_cwd != NULL &&
         (p->policy.cwd = strdup(p->request.policy_cwd)) == NULL) ||
        !sp_policy_copy(&p->policy, &p->reach))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    /* An escalated command has no use for grants. But commands before it may have used them. */
    if (p->request.permissions != SP_PERMISSIONS_ESCALATED)
        r = sp_approvals_widen(p->approvals, p->request.environment, &p->request.turn_id, more,
                               &p->policy.profile, e);
    return r < 0 ? r
                 : sp_approvals_widen(p->approvals, p->request.environment, NULL, more,
                                      &p->reach.profile, e);
}

/* Whether a question about this request could be answered. */
static bool can_ask(const struct sp_run_plan *p)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    if (p->request.has_no_approver)
        return o->reviewer != NULL || o->hook_count != 0;
    return sp_approvals_can_ask(p->approvals);
}

static int judge(struct sp_run_plan *p, struct sp_err *e)
{
    const struct sp_approvals_options *o = &p->approvals->options;
    struct sp_judge_request request = {
        .argv = p->request.argv,
        .rules = p->rules,
        .policy = p->approval,
        .profile = p->has_policy ? &p->reach : NULL,
        .permissions = p->request.permissions,
        .is_preapproved = p->is_preapproved,
        .prefix = p->request.prefix,
        .preface = p->request.preface,
        .known_safe = o->known_safe,
        .shell = p->request.shell,
        .has_no_approver = !can_ask(p),
    };

    /* With a relative entry in PATH, `ls` may be a file in the working directory. */
    if (sp_path_is_relative(sp_env_value(p->request.environ, "PATH")))
        request.known_safe = SP_KNOWN_SAFE_OFF;
    const int r = sp_judge(&request, &p->requirement, e);
    if (r < 0)
        return r;

    /* Which files would the allowed commands run? If a command could have replaced them, the
     * request is judged again without the allow rules. */
    struct sp_requirement *q = &p->requirement;
    const struct sp_policy *policy =
        p->has_policy && sp_profile_needs_sandbox(&p->policy.profile) ? &p->reach : NULL;
    const struct sp_program_request files = {
        .argv = p->request.argv, .judged = q, .policy = policy, .environ = p->request.environ};

    if (q->kind != SP_REQUIRE_NOTHING || q->matches.count == 0 ||
        (policy != NULL && p->request.keeps_policy))
        return 0;
    if ((policy == NULL || q->is_free) && sp_program_find(&files, &p->unconfined.program))
        return 0;
    q->is_free = false;
    /* Without the rule, it would run in its sandbox, and no question would be asked. */
    if (policy != NULL &&
        (p->request.permissions == SP_PERMISSIONS_DEFAULT ||
         (p->request.permissions == SP_PERMISSIONS_ADDITIONAL && p->is_preapproved) ||
         (p->request.permissions == SP_PERMISSIONS_ESCALATED &&
          !sp_judge_may_run_free(&p->policy))))
        return 0;
    /* It would run free or get more permissions: judge it as if no rule allowed it. */
    sp_requirement_done(q);
    request.ignores_allow = true;
    return sp_judge(&request, q, e);
}

void sp_run_plan_begin(struct sp_run_plan *p, struct sp_approvals *a,
                       const struct sp_run_plan_request *asked,
                       void (*decided)(struct sp_run_plan *p))
{
    *p = (struct sp_run_plan){.decided = decided, .approvals = a, .request = *asked};
    int r = take_snapshot(p, &p->error);
    p->is_preapproved =
        asked->permissions == SP_PERMISSIONS_ADDITIONAL &&
        sp_approvals_cover(a, asked->environment, asked->turn_id, asked->additional, asked->policy);
    if (r == 0)
        r = is_patch(p) ? assess_patch(p, &p->error) : judge(p, &p->error);
    if (r < 0) {
        p->state = SP_RUN_PLAN_FAILED;
        return;
    }
    p->has_requirement = !is_patch(p);
    if (!is_patch(p) && !make_key(p)) {
        fail_without_memory(p);
        return;
    }
    switch (p->requirement.kind) {
    case SP_REQUIRE_NOTHING:
        if (sp_approvals_is_strict(p->approvals, p->request.turn_id))
            begin_question(p, true);
        else
            allow_attempt(p, "approved", by_itself(p));
        return;
    case SP_REQUIRE_ANSWER:
        if (!can_ask(p))
            break; /* sp_judge refuses this case already; fail closed here too */
        begin_question(p, false);
        return;
    case SP_REQUIRE_REFUSAL:
        break;
    }
    if (audit_plan(p, "forbidden", "denied", by_itself(p), false))
        refuse_plan(p, !is_patch(p)               ? sp_buf_str(&p->requirement.reason)
                       : p->patch.refusal != NULL ? sp_str_of(p->patch.refusal)
                                                  : SP_STR(SP_NO_APPROVER));
}

/* ---- the second attempt ---- */

bool sp_run_plan_can_retry(const struct sp_run_plan *p, bool is_guess)
{
    const bool may_policy_ask =
        p->approval.kind == SP_APPROVAL_ON_REQUEST
            ? is_patch(p)
            : sp_approval_may_ask(&p->approval, p->approval.sandbox_approval);

    return p->state == SP_RUN_PLAN_GO && !p->is_retry && sp_run_plan_is_confined(p) &&
           !(is_guess && p->approvals->options.ignores_heuristic) && may_policy_ask &&
           sp_judge_may_run_free(&p->policy) && can_ask(p);
}

bool sp_run_plan_retry(struct sp_run_plan *p, bool is_guess)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    assert(p->approvals != NULL);
    if (!sp_run_plan_can_retry(p, is_guess))
        return false;
    p->is_retry = true;
    p->is_guess = is_guess;
    if (o->retry_reuses_approval && p->was_approved &&
        !sp_approvals_is_strict(p->approvals, p->request.turn_id))
        allow_attempt(p, "approved", SP_DECIDER_CONFIG);
    else
        begin_question(p, false);
    return true;
}

/* ---- the end ---- */

void sp_run_plan_done(struct sp_run_plan *p)
{
    if (p->approvals == NULL)
        return;
    const bool is_open = sp_asking_is_open(&p->asking);
    sp_asking_done(&p->asking);
    if (is_open)
        (void)audit_plan(p, p->asking.is_review ? "skip" : "ask",
                         sp_decision_name(SP_DECISION_ABORT), p->asking.decided_by, false);
    if (p->has_requirement)
        sp_requirement_done(&p->requirement);
    for (uint32_t i = 0; i < p->patch.parent_count; i++)
        free(p->patch.parents[i]);
    free(p->patch.parents);
    sp_rules_unref(p->rules);
    if (p->has_policy) {
        sp_policy_done(&p->policy);
        sp_policy_done(&p->reach);
    }
    unconfined_done(&p->unconfined);
    sp_buf_done(&p->reason);
    sp_buf_done(&p->key);
    sp_buf_done(&p->command);
    p->approvals = NULL;
}
