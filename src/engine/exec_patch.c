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

/* The comparison runs in our own loop, so the limits are lower than for local files. */
#define MAX_FILE  (8U << 20)
#define MAX_ALL   (32U << 20)
#define MAX_STEPS (1ULL << 24)

/* Answers the call; false. */
#define REFUSE(x, fmt, ...)                                                                 \
    (sp_call_fault(&(x)->call, SP_FAULT_ARGUMENTS, "apply_patch verification failed: " fmt, \
                   __VA_ARGS__),                                                            \
     false)

static bool keep_refusal(struct sp_exec_patch *p, struct sp_str why)
{
    while (why.n > 0 && why.p[why.n - 1] == '\n')
        why.n--;
    return sp_utf8_add_lossy(&p->refusal, why) && sp_buf_add(&p->refusal, "", 1);
}

/*
 * ---- files of a remote environment ----
 *
 * The file methods of the protocol read, compare and write them, under the sandbox that a command
 * would have. Verification: each path is inspected, and read if the patch needs its text; then the
 * patch is compared with the texts. Application: all texts are read and compared again before the
 * first write. The protocol has no rename, so files are replaced in place and a patch is not
 * atomic.
 */

/* A path of the patch, and the inspected file. */
struct item {
    const char *path; /* borrowed from patch.changes */
    bool wants_text, is_large;
    enum sp_patch_there there;
    int err; /* errno of the inspection or of the read; 0: none */
    struct sp_buf text;
};

/* One file operation of the application. */
struct step {
    enum sp_backend_file_op op;
    bool is_check, is_last; /* compares the text; is the last step of its change */
    uint32_t change;
    const char *path, *target;
    char *dir; /* MAKE_DIR: the path; freed with the step */
    struct sp_str data;
    const char *what; /* "Failed to ..." */
};

struct sp_exec_files {
    struct sp_exec *x;
    struct sp_backend_file request;
    struct sp_policy policy;
    bool has_policy, is_reading_text;
    uint64_t due_ms;

    struct item *items;
    uint32_t item_count, item_at;

    struct step *steps;
    uint32_t step_count, step_at;
    uint32_t done; /* changes completed, with all their steps */
};

static void drop_items(struct sp_exec_files *f)
{
    for (uint32_t i = 0; i < f->item_count; i++)
        sp_buf_done(&f->items[i].text);
    free(f->items);
    f->items = NULL;
    f->item_count = f->item_at = 0;
}

static void free_files(struct sp_exec_files *f)
{
    if (f == NULL)
        return;
    if (f->request.backend != NULL)
        f->request.backend->ops->forget_file(&f->request);
    sp_buf_done(&f->request.text);
    sp_policy_done(&f->policy);
    drop_items(f);
    for (uint32_t i = 0; i < f->step_count; i++)
        free(f->steps[i].dir);
    free(f->steps);
    free(f);
}

/* Starts the operation in f->ask; its fn is called later. A failure is in *e, and fn is not called.
 */
static int ask_file(struct sp_exec_files *f, struct sp_err *e)
{
    struct sp_backend *b = f->x->environment->backend;

    f->request.error = (struct sp_err){0};
    const int r = b->ops->file(b, &f->request, e);
    f->request.backend = r == 0 ? b : NULL;
    return r;
}

static struct sp_exec_files *new_files(struct sp_exec *x, uint64_t within_ms)
{
    struct sp_exec_files *f = calloc(1, sizeof *f);

    free_files(x->patch.files);
    x->patch.files = f;
    if (f != NULL) {
        f->x = x;
        f->due_ms = sp_loop_now(x->call.m->loop) + within_ms;
    }
    return f;
}

/* ---- reading ---- */

/* 0, or a negative errno: that of the inspection, or ENOENT. */
static int find_item(const struct sp_exec_files *f, const char *path, const struct item **ret)
{
    for (uint32_t i = 0; i < f->item_count; i++)
        if (strcmp(f->items[i].path, path) == 0) {
            *ret = &f->items[i];
            return -f->items[i].err;
        }
    return -ENOENT;
}

static int inspect_item(void *user, const char *path, enum sp_patch_there *ret)
{
    const struct item *i;
    const int r = find_item(user, path, &i);

    if (r == 0)
        *ret = i->there;
    return r;
}

static int read_item(void *user, const char *path, uint64_t max, struct sp_buf *out)
{
    const struct item *i;
    const int r = find_item(user, path, &i);

    if (r < 0)
        return r;
    if (i->there != SP_PATCH_THERE_FILE)
        return i->there == SP_PATCH_THERE_DIR ? -EISDIR : -EINVAL;
    if (i->is_large || i->text.len > max)
        return -EFBIG;
    return sp_buf_add_str(out, sp_buf_str(&i->text)) ? 0 : -ENOMEM;
}

static void end_reading(struct sp_exec_files *f, struct sp_str refusal)
{
    struct sp_exec *x = f->x;
    struct sp_exec_patch *p = &x->patch;

    if (refusal.n != 0 && !keep_refusal(p, refusal))
        p->is_out_of_memory = true;
    p->is_over = true;
    drop_items(f);
    sp_call_changed(&x->call);
}

static void compare_all(struct sp_exec_files *f)
{
    struct sp_exec_patch *p = &f->x->patch;
    const struct sp_patch_source source = {
        .user = f,
        .stat = inspect_item,
        .read = read_item,
        .max_file = MAX_FILE,
        .max_all = MAX_ALL,
        .max_steps = MAX_STEPS,
    };
    struct sp_patch_changes found = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_err e = {0};
    char text[640];
    const int r = sp_patch_verify(&p->patch, p->base.p, f->x->call.m->options.keeps_line_endings,
                                  &source, &found, &why, &e);

    if (r < 0) {
        end_reading(f, why.len > 0 ? sp_buf_str(&why)
                                   : sp_str_of(sp_error_text(&e, text, sizeof text)));
        return;
    }
    drop_items(f); /* before the changes that own their paths */
    sp_patch_changes_done(&p->changes);
    p->changes = found;
    end_reading(f, (struct sp_str){0});
}

static void read_next(struct sp_exec_files *f);

static void on_read(struct sp_backend_file *request)
{
    struct sp_exec_files *f = SP_CONTAINER(request, struct sp_exec_files, request);
    struct item *i = &f->items[f->item_at];
    char text[640];

    if (request->error.code != SP_E_NONE &&
        request->error.sys == 0) { /* the request failed, not the operation on this file */
        end_reading(f, sp_str_of(sp_error_text(&request->error, text, sizeof text)));
        return;
    }
    i->err = request->error.sys;
    if (f->is_reading_text) {
        i->text = request->text;
        request->text = (struct sp_buf){0};
        f->is_reading_text = false;
    } else {
        i->there = request->is_file  ? SP_PATCH_THERE_FILE
                   : request->is_dir ? SP_PATCH_THERE_DIR
                                     : SP_PATCH_THERE_OTHER;
        i->is_large = request->size > MAX_FILE;
        f->is_reading_text =
            i->wants_text && i->err == 0 && !i->is_large && i->there == SP_PATCH_THERE_FILE;
    }
    f->item_at += !f->is_reading_text;
    read_next(f);
}

static void read_next(struct sp_exec_files *f)
{
    struct sp_err e = {0};
    char text[640];

    if (f->item_at == f->item_count) {
        compare_all(f);
        return;
    }
    f->request.fn = on_read;
    f->request.op = f->is_reading_text ? SP_BACKEND_READ : SP_BACKEND_STAT;
    f->request.path = f->items[f->item_at].path;
    f->request.policy = f->has_policy ? &f->policy : NULL;
    if (sp_loop_now(f->x->call.m->loop) > f->due_ms) {
        (void)snprintf(text, sizeof text, "the files could not be read within %d s",
                       SP_EXEC_VERIFY_MS / 1000);
        end_reading(f, sp_str_of(text));
    } else if (ask_file(f, &e) < 0) {
        end_reading(f, sp_str_of(sp_error_text(&e, text, sizeof text)));
    }
}

static bool read_files(struct sp_exec *x, const struct sp_policy *policy)
{
    const struct sp_patch_changes *c = &x->patch.changes;
    struct sp_exec_files *f = new_files(x, SP_EXEC_VERIFY_MS);

    if (f == NULL || (policy != NULL && !sp_policy_copy(policy, &f->policy)))
        return sp_call_fail_memory(&x->call);
    f->has_policy = policy != NULL;
    f->items = calloc((size_t)c->count * 2 + 1, sizeof *f->items);
    if (f->items == NULL)
        return sp_call_fail_memory(&x->call);
    for (uint32_t i = 0; i < c->count; i++) {
        f->items[f->item_count++] = (struct item){.path = c->items[i].full_path,
                                                  .wants_text = c->items[i].kind != SP_PATCH_ADD};
        if (c->items[i].full_target != NULL)
            f->items[f->item_count++] = (struct item){.path = c->items[i].full_target};
    }
    read_next(f);
    return !x->call.is_answered;
}

/* ---- the steps of the application ---- */

static struct step *add_step(struct sp_exec_files *f, uint32_t change, enum sp_backend_file_op op,
                             const char *path, const char *what)
{
    struct step *s = &f->steps[f->step_count++];

    *s = (struct step){.op = op, .change = change, .path = path, .what = what};
    return s;
}

/* false: out of memory. */
static bool add_change(struct sp_exec_files *f, uint32_t i, bool is_confined)
{
    const struct sp_patch_change *c = &f->x->patch.changes.items[i];
    const char *to = c->full_target != NULL ? c->full_target : c->full_path;
    const bool is_new = c->kind == SP_PATCH_ADD || c->full_target != NULL;
    struct step *s;

    if (c->kind == SP_PATCH_DELETE) {
        add_step(f, i, SP_BACKEND_REMOVE, c->full_path, "Failed to delete file")->is_last = true;
        return true;
    }
    const char *slash = strrchr(to, '/');
    if (is_new && slash != to) { /* creates missing parent directories */
        s = add_step(f, i, SP_BACKEND_MAKE_DIR, to, "Failed to create parent directories for");
        s->dir = strndup(to, (size_t)(slash - to));
        if (s->dir == NULL)
            return false;
    }
    /* COPY keeps the file mode but follows symbolic links, so only a sandbox makes it safe. */
    if (c->full_target != NULL && is_confined)
        add_step(f, i, SP_BACKEND_COPY, c->full_path, "Failed to write file")->target = to;
    s = add_step(f, i, SP_BACKEND_WRITE, to, "Failed to write file");
    s->data = c->after;
    if (c->full_target != NULL)
        s = add_step(f, i, SP_BACKEND_REMOVE, c->full_path, "Failed to remove original");
    s->is_last = true;
    return true;
}

/* ---- application ---- */

static void end_writing(struct sp_exec_files *f, const struct sp_err *e)
{
    struct sp_exec *x = f->x;
    struct sp_exec_patch *p = &x->patch;
    const struct sp_patch_changes made = {p->changes.items, f->done, NULL};
    auto_buf struct sp_buf summary = {0};
    char text[640];
    bool ok;

    p->output.len = 0;
    p->is_applied = e == NULL;
    if (e == NULL) {
        ok = sp_patch_add_summary(&p->output, &p->changes);
    } else {
        p->was_denied = sp_run_plan_is_confined(&x->plan) &&
                        (e->sys == EROFS || e->sys == EACCES || e->sys == EPERM);
        p->is_guess = e->sys != EROFS; /* EACCES and EPERM may come from the file's own mode */
        ok = sp_utf8_add_lossy(&p->output, sp_str_of(sp_error_text(e, text, sizeof text))) &&
             sp_buf_add(&p->output, "\n", 1);
        /* The changes made before the failure: the summary without its first line. */
        if (ok && f->done != 0) {
            ok = sp_patch_add_summary(&summary, &made);
            const char *lines = ok ? memchr(summary.data, '\n', summary.len) : NULL;
            if (lines != NULL)
                ok = sp_buf_printf(&p->output, "These files were updated before that:\n") &&
                     sp_buf_add(&p->output, lines + 1,
                                summary.len - (size_t)(lines + 1 - summary.data));
        }
    }
    p->is_over = ok;
    if (!ok)
        p->is_out_of_memory = true;
    sp_call_changed(&x->call);
}

static void fail_step(struct sp_exec_files *f, const struct sp_err *why)
{
    const struct step *s = &f->steps[f->step_at];
    const struct sp_patch_change *c = &f->x->patch.changes.items[s->change];
    struct sp_err e = {0};

    if (why->sys == ELOOP || strstr(why->msg, "symbolic link") != NULL)
        (void)sp_fail(&e, SP_E_FAILED, 0, "%s %s: a symbolic link is in the way", s->what, s->path);
    else if (why->sys != 0)
        (void)sp_fail(&e, why->code, why->sys, "%s %s", s->what, s->path);
    else
        (void)sp_fail(&e, why->code, 0, "%s %s: %s", s->what, s->path, why->msg);
    if (s->op == SP_BACKEND_REMOVE && c->full_target != NULL)
        (void)sp_wrap(&e, "%s was written", c->full_target);
    end_writing(f, &e);
}

static void write_next(struct sp_exec_files *f);

static void on_step(struct sp_backend_file *request)
{
    struct sp_exec_files *f = SP_CONTAINER(request, struct sp_exec_files, request);
    const struct step *s = &f->steps[f->step_at];
    const struct sp_patch_change *c = &f->x->patch.changes.items[s->change];
    struct sp_err e = {0};

    if (request->error.code != SP_E_NONE) {
        fail_step(f, &request->error);
        return;
    }
    if (s->is_check && !sp_str_eq(sp_buf_str(&request->text), c->before)) {
        (void)sp_fail(&e, SP_E_FAILED, 0,
                      "%s has changed since the patch was verified: nothing was written; look at "
                      "the file and send the patch again",
                      c->full_path);
        end_writing(f, &e);
        return;
    }
    f->done += s->is_last;
    f->step_at++;
    write_next(f);
}

static void write_next(struct sp_exec_files *f)
{
    const bool is_confined = sp_run_plan_is_confined(&f->x->plan);
    const struct step *s = &f->steps[f->step_at];
    struct sp_err e = {0};

    if (f->step_at == f->step_count) {
        end_writing(f, NULL);
        return;
    }
    f->request.fn = on_step;
    f->request.op = s->op;
    f->request.path = s->dir != NULL ? s->dir : s->path;
    f->request.target = s->target;
    f->request.data = s->data;
    f->request.policy = is_confined ? &f->x->plan.policy : NULL;
    f->request.refuses_links = !is_confined;
    if (sp_loop_now(f->x->call.m->loop) > f->due_ms) {
        (void)sp_fail(&e, SP_E_SYSTEM, ETIMEDOUT, "write the files");
        fail_step(f, &e);
    } else if (ask_file(f, &e) < 0) {
        fail_step(f, &e);
    }
}

static bool write_files(struct sp_exec *x)
{
    const struct sp_patch_changes *c = &x->patch.changes;
    const bool is_confined = sp_run_plan_is_confined(&x->plan);
    struct sp_exec_files *f = new_files(x, SP_EXEC_PATCH_MS);

    if (f == NULL || (f->steps = calloc((size_t)c->count * 5 + 1, sizeof *f->steps)) == NULL)
        return sp_call_fail_memory(&x->call);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->items[i].kind != SP_PATCH_ADD && c->items[i].before.p != NULL)
            add_step(f, i, SP_BACKEND_READ, c->items[i].full_path, "Failed to read file")
                ->is_check = true;
    for (uint32_t i = 0; i < c->count; i++)
        if (!add_change(f, i, is_confined))
            return sp_call_fail_memory(&x->call);
    write_next(f);
    return true;
}

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

/* ---- verification ---- */

/* Has our own program work on the patch in a cell; `ask` has its policy, its input and its limits.
 */
static bool run_program(struct sp_exec *x, struct sp_run_request request, const char *what,
                        bool refuses_links, sp_run_fn *fn)
{
    const struct sp_str argv[] = {
        SP_STR("/proc/self/exe"), /* in a cell: never a file that a command wrote */
        SP_STR("patch-inside"),
        sp_str_of(what),
        x->call.m->options.keeps_line_endings ? SP_STR("keep") : SP_STR("lf"),
        refuses_links ? SP_STR("refuse") : SP_STR("follow"),
        x->patch.base,
    };
    struct sp_env_request env;
    struct sp_err e = {0};

    if (!sp_exec_make_env(x, &env))
        return sp_call_fail_memory(&x->call);
    request.launch.label = SP_STR("patch");
    request.launch.cwd = x->patch.base;
    request.launch.argv = argv;
    request.launch.argc = sizeof argv / sizeof argv[0];
    request.launch.environ = &env;
    request.launch.is_own_program = true;
    return sp_run_start(x->environment->backend, &request, fn, x, &x->patch.run, &e) == 0 ||
           sp_call_fail_create(&x->call, &e);
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
        return keep_refusal(p, sp_str_of(text));
    }
    if (r->kind == SP_RUN_FAILED && r->error != NULL)
        return sp_buf_printf(&p->refusal, "the sallyport program, which reads the files, could not "
                                          "be run: ") &&
               keep_refusal(p, sp_str_of(sp_error_text(r->error, text, sizeof text)));
    if (r->kind != SP_RUN_EXITED) {
        (void)snprintf(text, sizeof text, "the program that reads the files was ended (code %d)",
                       r->exit_code);
        return keep_refusal(p, sp_str_of(text));
    }
    if (r->exit_code != 0 && r->err.n != 0)
        return keep_refusal(p, r->err);
    if (r->has_lost_output || r->out_total != r->out.n || r->exit_code != 0)
        (void)sp_fail(&e, SP_E_LIMIT, 0,
                      "the program that reads the files has not told what would change, or more "
                      "than %u MiB (code %d)",
                      SP_PATCH_REPORT_BYTES >> 20, r->exit_code);
    else if (sp_patch_read_report(r->out, &p->changes, &e) == 0)
        return true;
    return keep_refusal(p, sp_str_of(e.msg));
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
    const struct sp_run_request request = {
        .launch.policy = policy,
        .input = sp_buf_str(&x->patch.text),
        .timeout_ms = SP_EXEC_VERIFY_MS,
        .cap = SP_PATCH_REPORT_BYTES,
    };

    return x->facts.is_remote ? read_files(x, policy)
                              : run_program(x, request, "report", false, on_report);
}

static bool verify_patch(struct sp_exec *x)
{
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_exec_patch *p = &x->patch;
    struct sp_err e = {0};
    int r;

    if (p->patch.hunk_count == 0) { /* no file to read: the plan refuses an empty patch */
        p->is_over = true;
        return true;
    }
    if (!x->environment->has_policy)
        return start_verification(x, NULL);
    /* The profile that a command would have, with what was granted to the session and the turn. */
    if (!sp_policy_copy(&x->environment->policy, &policy) ||
        (policy.cwd == NULL && x->environment_cwd != NULL &&
         (policy.cwd = strdup(x->environment_cwd)) == NULL))
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    else
        r = sp_approvals_widen(x->call.m->approvals, sp_str_of(x->environment->id),
                               &x->request.turn_id, NULL, &policy.profile, &e);
    if (r < 0)
        return sp_call_fail_create(&x->call, &e);
    if (!sp_profile_needs_sandbox(&policy.profile))
        return start_verification(x, NULL);
    return sp_run_plan_make_read_only(&policy.profile) ? start_verification(x, &policy)
                                                       : sp_call_fail_memory(&x->call);
}

bool sp_exec_begin_patch(struct sp_exec *x)
{
    const struct sp_words argv = {x->argv, x->argc};
    struct sp_exec_patch *p = &x->patch;
    enum sp_patch_call call = SP_PATCH_CALL_NONE;
    auto_buf struct sp_buf cd = {0};
    struct sp_err e = {0};

    if (sp_patch_recognise(argv, &call, &p->text, &cd, &e) < 0)
        return sp_call_fail_memory(&x->call);
    if (call == SP_PATCH_CALL_NONE)
        return true;
    /* The paths of a patch are POSIX paths, and a remote patch needs the file methods. */
    if (x->facts.is_remote && (x->environment->backend->ops->file == NULL || x->cwd.p[0] != '/'))
        return REFUSE(x,
                      "environment `%s` has no files that a patch could change; change them "
                      "with commands",
                      x->environment->id);
    if (call == SP_PATCH_CALL_BARE)
        return REFUSE(x, "%s",
                      "patch detected without explicit call to apply_patch. Rerun as "
                      "[\"apply_patch\", \"<patch>\"]");
    p->is_one = true;
    auto_free char *cwd = sp_str_dup(x->cwd);
    auto_free char *base = NULL;
    if (cwd == NULL || (cd.len != 0 && !sp_buf_add(&cd, "", 1)))
        return sp_call_fail_memory(&x->call);
    base = sp_path_normalise(cd.len != 0 ? cd.data : cwd, cwd);
    if (base == NULL || !sp_arena_str(&x->call.keep, sp_str_of(base), &p->base))
        return sp_call_fail_memory(&x->call);
    x->stage = SP_EXEC_VERIFYING;
    return read_patch(x) && verify_patch(x);
}

/*
 * ---- application ----
 *
 * Our own program applies the patch, confined as the plan says, and only if the files still give
 * the changes that were verified and approved.
 */

static void on_result(void *user, const struct sp_run_result *r)
{
    struct sp_exec *x = user;
    struct sp_exec_patch *p = &x->patch;

    p->run = NULL; /* freed when this returns */
    p->was_denied = r->class == SP_RUN_DENIED;
    p->is_guess = r->denial == NULL || !r->denial->has_evidence;
    p->is_applied = r->kind == SP_RUN_EXITED && r->exit_code == 0;
    p->output.len = 0;
    p->is_over = r->error == NULL
                     ? sp_utf8_add_lossy(&p->output, r->aggregated)
                     : sp_run_add_message(&p->output, r); /* contains what was printed */
    if (!p->is_over)
        p->is_out_of_memory = true;
    sp_call_changed(&x->call);
}

bool sp_exec_apply_patch(struct sp_exec *x)
{
    const bool is_confined = sp_run_plan_is_confined(&x->plan);
    struct sp_exec_patch *p = &x->patch;
    auto_buf struct sp_buf input = {0};

    p->is_over = p->was_denied = false;
    if (x->facts.is_remote)
        return write_files(x);
    if (!sp_patch_add_approved(&input, &p->changes, sp_buf_str(&p->text)))
        return sp_call_fail_memory(&x->call);
    const struct sp_run_request request = {
        .launch.policy = is_confined ? &x->plan.policy : NULL,
        .input = sp_buf_str(&input),
        .timeout_ms = SP_EXEC_PATCH_MS,
    };
    return run_program(x, request, "approved", !is_confined, on_result);
}

void sp_exec_patch_done(struct sp_exec_patch *p)
{
    sp_run_free(p->run);
    free_files(p->files);
    if (p->is_one) {
        sp_patch_done(&p->patch);
        sp_patch_changes_done(&p->changes);
    }
    sp_buf_done(&p->text);
    sp_buf_done(&p->output);
    sp_buf_done(&p->refusal);
}
