/* SPDX-License-Identifier: Apache-2.0 */
#include "core/surveyor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "core/placeholder.h"
#include "core/workers.h"
#include "sandbox/canonical.h"
#include "sandbox/hidden_paths.h"

#define STACK_BYTES (512U << 10)
#define IDLE_S      5
#define MAX_MADE    64 /* directories, one for each component of a path */

/* ---- one survey ---- */

int sp_survey_policy(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                     struct sp_survey *ret, struct sp_err *e)
{
    struct sp_resolved resolved = {0};
    int r = sp_resolve(p, &resolved, e);

    if (r == 0)
        r = sp_survey_make(p, &resolved, fixed, ret, e);
    sp_resolved_done(&resolved);
    for (size_t i = 0; r == 0 && i < ret->count; i++) {
        struct sp_spot *spot = &ret->spots[i];

        /* A placeholder, of this server or another, counts as missing. */
        if (spot->kind == SP_SPOT_DIR && spot->access != SP_ACCESS_WRITE &&
            sp_placeholder_is_at(spot->path))
            spot->kind = SP_SPOT_MISSING;
        if (spot->kind == SP_SPOT_MISSING)
            spot->who = (struct sp_identity){0};
    }
    return r;
}

static bool is_in_list(const char *const *list, const char *path)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, path) == 0)
            return true;
    return false;
}

/* Makes a directory of ours, or one on the way to it, which stays. 1: neither we nor a command can
 * make it. Every user reads the rules in /etc/sallyport, so root does not make it for itself alone.
 */
static int make_own_dir(const struct sp_fixed_places *fixed, const char *path, struct sp_err *e)
{
    auto_free char *parent = strndup(path, sp_path_parent(path));
    const mode_t mode = strncmp(path, "/etc/", 5) == 0 ? 0755 : 0700;
    const bool is_new = mkdir(path, mode) == 0;
    struct stat st;

    if (!is_new && errno != EEXIST) {
        const int err = errno;

        if ((err == EACCES || err == EROFS || err == EPERM) && parent != NULL &&
            stat(parent, &st) == 0 && (st.st_uid != geteuid() || err == EROFS))
            return 1;
        return sp_fail(e, SP_E_SYSTEM, err,
                       "make %.200s, so that no command makes it (SALLYPORT_HOME can name another "
                       "directory)",
                       path);
    }
    auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0 ||
        ((is_new || (st.st_mode & S_IRWXU) != S_IRWXU) && fchmod(dir, mode) < 0)) /* over umask */
        return sp_fail(e, SP_E_SYSTEM, errno, "make %.200s a directory of ours", path);
    /* An empty directory may be taken for a placeholder. Runtime directories are hidden, so they
     * are not. */
    if (is_in_list(fixed->own_dirs, path) && !is_in_list(fixed->hidden, path))
        (void)(mkdirat(dir, "rules", mode) == 0 && fchmodat(dir, "rules", mode, 0));
    return 0;
}

int sp_survey_and_prepare(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                          struct sp_survey *ret, struct sp_err *e)
{
    bool has_made = true;
    int r = 0;

    /* Each directory that is made may reveal the next component of its path. */
    for (int made = 0; r == 0 && has_made && made < MAX_MADE; made++) {
        has_made = false;
        sp_survey_done(ret);
        r = sp_survey_policy(p, fixed, ret, e);
        for (size_t i = 0; r == 0 && !has_made && i < ret->count; i++) {
            const struct sp_spot *spot = &ret->spots[i];
            const bool is_missing = spot->kind == SP_SPOT_MISSING && spot->why == SP_WHY_OWN;
            const int is_out_of_reach = is_missing ? make_own_dir(fixed, spot->path, e) : 1;

            r = is_out_of_reach < 0 ? is_out_of_reach : 0;
            has_made = is_out_of_reach == 0;
        }
    }
    return r;
}

/* ---- in threads ---- */

struct sp_survey_job {
    struct sp_work work;
    struct sp_survey_request *request; /* used by the loop's thread only; NULL: cancelled */
    struct sp_surveyor *surveyor;
    struct sp_policy policy;
    struct sp_survey survey;
    struct sp_err e;
    int r;
};

/* Lives until the last thread has ended: threads that hang still use `fixed`. */
struct sp_surveyor {
    struct sp_workers *workers;
    struct sp_hidden_paths hidden_paths;
    struct sp_fixed_places fixed; /* points into hidden_paths */
};

static void free_job(struct sp_survey_job *j)
{
    sp_policy_done(&j->policy);
    sp_survey_done(&j->survey);
    free(j);
}

static void run_job(struct sp_work *w)
{
    struct sp_survey_job *j = SP_CONTAINER(w, struct sp_survey_job, work);

    j->r = sp_survey_and_prepare(&j->policy, &j->surveyor->fixed, &j->survey, &j->e);
}

static void on_job_done(struct sp_work *w)
{
    struct sp_survey_job *j = SP_CONTAINER(w, struct sp_survey_job, work);
    struct sp_survey_request *a = j->request;

    if (a != NULL) {
        a->job = NULL;
        a->done(a, &j->policy, &j->survey, j->r, &j->e);
    }
    free_job(j);
}

static void drop_job(struct sp_work *w)
{
    free_job(SP_CONTAINER(w, struct sp_survey_job, work));
}

static void on_ended(void *user)
{
    struct sp_surveyor *s = user;

    sp_hidden_paths_done(&s->hidden_paths);
    free(s);
}

int sp_surveyor_new(struct sp_loop *loop, const struct sp_fixed_places *fixed,
                    struct sp_surveyor **ret, struct sp_err *e)
{
    struct sp_surveyor *s = calloc(1, sizeof *s);

    if (s == NULL || !sp_hidden_paths_copy(fixed, &s->hidden_paths)) {
        if (s != NULL)
            on_ended(s);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the surveyor");
    }
    s->fixed = sp_hidden_paths_places(&s->hidden_paths);
    const struct sp_workers_options o = {
        .threads = SP_SURVEYOR_THREADS,
        .share = SP_SURVEYOR_SHARE,
        .idle_s = IDLE_S,
        .stack_bytes = STACK_BYTES,
        .run = run_job,
        .done = on_job_done,
        .drop = drop_job,
        .user = s,
        .ended = on_ended,
    };
    const int r = sp_workers_new(loop, &o, &s->workers, e);
    if (r < 0)
        on_ended(s);
    else
        *ret = s;
    return r;
}

void sp_surveyor_free(struct sp_surveyor *s)
{
    if (s != NULL)
        (void)sp_workers_free(s->workers);
}

int sp_surveyor_ask(struct sp_surveyor *s, uint64_t session, const struct sp_policy *p,
                    struct sp_survey_request *a, struct sp_err *e)
{
    struct sp_survey_job *j = calloc(1, sizeof *j);

    if (j == NULL || !sp_policy_copy(p, &j->policy)) {
        free(j);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "survey the sandbox policy");
    }
    j->request = a;
    j->surveyor = s;
    j->work.key = session;
    const int r = sp_workers_add(s->workers, &j->work);
    if (r != 0) { /* no thread: fail now, the caller's deadline is seconds away */
        (void)sp_workers_withdraw(s->workers, &j->work);
        free_job(j);
        return sp_fail(e, SP_E_SYSTEM, r, "survey the sandbox policy");
    }
    a->job = j;
    return 0;
}

void sp_surveyor_cancel(struct sp_survey_request *a)
{
    struct sp_survey_job *j = a->job;

    a->job = NULL;
    if (j == NULL)
        return;
    j->request = NULL;
    /* A waiting job is freed now: it would stay for as long as the threads hang. */
    if (sp_workers_withdraw(j->surveyor->workers, &j->work))
        free_job(j);
}
