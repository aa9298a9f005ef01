/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_files: a patch in a remote environment. The file methods of the protocol read, compare and
 * write the files, under the sandbox that a command would have.
 *
 * Verification: each path is inspected, and read if the patch needs its text; then the patch is
 * compared with the texts. Application: all texts are read and compared again before the first
 * write. The protocol has no rename, so files are replaced in place and a patch is not atomic.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

/* The comparison runs in our own loop, so the limits are lower than for local files. */
#define MAX_FILE  (8U << 20)
#define MAX_ALL   (32U << 20)
#define MAX_STEPS (1ULL << 24)

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
    struct sp_backend_file ask;
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

void sp_exec_files_free(struct sp_exec_files *f)
{
    if (f == NULL)
        return;
    sp_backend_forget_file(&f->ask);
    sp_buf_done(&f->ask.text);
    sp_policy_done(&f->policy);
    drop_items(f);
    for (uint32_t i = 0; i < f->step_count; i++)
        free(f->steps[i].dir);
    free(f->steps);
    free(f);
}

static struct sp_exec_files *new_files(struct sp_exec *x, uint64_t within_ms)
{
    struct sp_exec_files *f = calloc(1, sizeof *f);

    sp_exec_files_free(x->patch.files);
    x->patch.files = f;
    if (f != NULL) {
        f->x = x;
        f->due_ms = sp_loop_now(x->call.m->loop) + within_ms;
    }
    return f;
}

/* ---- reading ---- */

static const struct item *find_item(const struct sp_exec_files *f, const char *path)
{
    for (uint32_t i = 0; i < f->item_count; i++)
        if (strcmp(f->items[i].path, path) == 0)
            return &f->items[i];
    return NULL;
}

static int inspect_item(void *user, const char *path, enum sp_patch_there *ret)
{
    const struct item *i = find_item(user, path);

    if (i == NULL || i->err != 0)
        return i == NULL ? -ENOENT : -i->err;
    *ret = i->there;
    return 0;
}

static int read_item(void *user, const char *path, uint64_t max, struct sp_buf *out)
{
    const struct item *i = find_item(user, path);

    if (i == NULL || i->err != 0)
        return i == NULL ? -ENOENT : -i->err;
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

    if (refusal.n != 0 && !sp_exec_keep_refusal(p, refusal))
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

static void on_read(struct sp_backend_file *ask)
{
    struct sp_exec_files *f = SP_CONTAINER(ask, struct sp_exec_files, ask);
    struct item *i = &f->items[f->item_at];
    char text[640];

    if (ask->error.code != SP_E_NONE &&
        ask->error.sys == 0) { /* the request failed, not the operation on this file */
        end_reading(f, sp_str_of(sp_error_text(&ask->error, text, sizeof text)));
        return;
    }
    i->err = ask->error.sys;
    if (f->is_reading_text) {
        i->text = ask->text;
        ask->text = (struct sp_buf){0};
        f->is_reading_text = false;
        f->item_at++;
        read_next(f);
        return;
    }
    i->there = ask->is_file  ? SP_PATCH_THERE_FILE
               : ask->is_dir ? SP_PATCH_THERE_DIR
                             : SP_PATCH_THERE_OTHER;
    i->is_large = ask->size > MAX_FILE;
    f->is_reading_text =
        i->wants_text && i->err == 0 && !i->is_large && i->there == SP_PATCH_THERE_FILE;
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
    f->ask.fn = on_read;
    f->ask.op = f->is_reading_text ? SP_BACKEND_READ : SP_BACKEND_STAT;
    f->ask.path = f->items[f->item_at].path;
    f->ask.policy = f->has_policy ? &f->policy : NULL;
    if (sp_loop_now(f->x->call.m->loop) > f->due_ms) {
        (void)snprintf(text, sizeof text, "the files could not be read within %d s",
                       SP_EXEC_VERIFY_MS / 1000);
        end_reading(f, sp_str_of(text));
    } else if (sp_backend_ask_file(f->x->environment->backend, &f->ask, &e) < 0) {
        end_reading(f, sp_str_of(sp_error_text(&e, text, sizeof text)));
    }
}

bool sp_exec_read_files(struct sp_exec *x, const struct sp_policy *policy)
{
    const struct sp_patch_changes *c = &x->patch.changes;
    struct sp_exec_files *f = new_files(x, SP_EXEC_VERIFY_MS);

    if (f == NULL || (policy != NULL && !sp_policy_copy(policy, &f->policy)))
        return sp_exec_refuse_without_memory(x);
    f->has_policy = policy != NULL;
    f->items = calloc((size_t)c->count * 2 + 1, sizeof *f->items);
    if (f->items == NULL)
        return sp_exec_refuse_without_memory(x);
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

/* Creates missing parent directories. false: out of memory. */
static bool add_parents(struct sp_exec_files *f, uint32_t change, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == path)
        return true;
    struct step *s =
        add_step(f, change, SP_BACKEND_MAKE_DIR, path, "Failed to create parent directories for");
    s->dir = strndup(path, (size_t)(slash - path));
    return s->dir != NULL;
}

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
    if (is_new && !add_parents(f, i, to))
        return false;
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

static bool add_steps(struct sp_exec_files *f, bool is_confined)
{
    const struct sp_patch_changes *c = &f->x->patch.changes;
    bool ok = true;

    f->steps = calloc((size_t)c->count * 5 + 1, sizeof *f->steps);
    if (f->steps == NULL)
        return false;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->items[i].kind != SP_PATCH_ADD && c->items[i].before.p != NULL)
            add_step(f, i, SP_BACKEND_READ, c->items[i].full_path, "Failed to read file")
                ->is_check = true;
    for (uint32_t i = 0; ok && i < c->count; i++)
        ok = add_change(f, i, is_confined);
    return ok;
}

/* ---- application ---- */

/* The changes made before a failure: the summary without its first line. */
static bool add_changes_made(struct sp_buf *out, const struct sp_exec_files *f)
{
    const struct sp_patch_changes part = {f->x->patch.changes.items, f->done, NULL};
    auto_buf struct sp_buf text = {0};

    if (f->done == 0)
        return true;
    if (!sp_patch_add_summary(&text, &part))
        return false;
    const char *lines = memchr(text.data, '\n', text.len);
    return lines == NULL ||
           (sp_buf_printf(out, "These files were updated before that:\n") &&
            sp_buf_add(out, lines + 1, text.len - (size_t)(lines + 1 - text.data)));
}

static void end_writing(struct sp_exec_files *f, const struct sp_err *e)
{
    struct sp_exec *x = f->x;
    struct sp_exec_patch *p = &x->patch;
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
             sp_buf_add(&p->output, "\n", 1) && add_changes_made(&p->output, f);
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

static void on_step(struct sp_backend_file *ask)
{
    struct sp_exec_files *f = SP_CONTAINER(ask, struct sp_exec_files, ask);
    const struct step *s = &f->steps[f->step_at];
    const struct sp_patch_change *c = &f->x->patch.changes.items[s->change];
    struct sp_err e = {0};

    if (ask->error.code != SP_E_NONE) {
        fail_step(f, &ask->error);
        return;
    }
    if (s->is_check && !sp_str_eq(sp_buf_str(&ask->text), c->before)) {
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
    f->ask.fn = on_step;
    f->ask.op = s->op;
    f->ask.path = s->dir != NULL ? s->dir : s->path;
    f->ask.target = s->target;
    f->ask.data = s->data;
    f->ask.policy = is_confined ? &f->x->plan.policy : NULL;
    f->ask.refuses_links = !is_confined;
    if (sp_loop_now(f->x->call.m->loop) > f->due_ms) {
        (void)sp_fail(&e, SP_E_SYSTEM, ETIMEDOUT, "write the files");
        fail_step(f, &e);
    } else if (sp_backend_ask_file(f->x->environment->backend, &f->ask, &e) < 0) {
        fail_step(f, &e);
    }
}

bool sp_exec_write_files(struct sp_exec *x)
{
    struct sp_exec_files *f = new_files(x, SP_EXEC_PATCH_MS);

    if (f == NULL || !add_steps(f, sp_run_plan_is_confined(&x->plan)))
        return sp_exec_refuse_without_memory(x);
    write_next(f);
    return true;
}
