/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approver_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "approve/program.h"
#include "base/auto.h"
#include "base/child.h"
#include "base/io.h"
#include "base/list.h"
#include "base/log.h"
#include "os/tree.h"

struct sp_approver_program {
    struct sp_approver approver;
    struct sp_loop *loop;
    char *path;
    struct sp_list queries;
};

/* One question, and the program that works on it. */
struct query {
    struct sp_approver_program *by;
    struct sp_list link;
    uint64_t question;
    sp_approver_fn *done; /* NULL: answered or withdrawn */
    void *user;
    struct sp_child child;
    int out;    /* the read end of its stdout; -1: closed */
    int status; /* exit status; -1: killed, or still running */
    bool is_too_long;
    char failure[512]; /* start error, with its errno text; "": started */
    struct sp_buf answer;
    struct sp_watch exit_watch, out_watch;
    struct sp_deferred later;
};

/* ---- the end of a query ---- */

static void free_query(struct query *q)
{
    struct sp_loop *loop = q->by->loop;

    sp_list_remove(&q->link);
    sp_loop_unwatch(loop, &q->exit_watch);
    sp_loop_unwatch(loop, &q->out_watch);
    sp_loop_undefer(loop, &q->later);
    if (q->out >= 0)
        (void)close(q->out);
    if (q->child.pidfd >= 0)
        (void)close(q->child.pidfd);
    sp_buf_done(&q->answer);
    free(q);
}

/* Answers and frees the query, once the program has exited and its output is closed. */
static void finish_query(struct query *q)
{
    struct sp_decision_text d = {0};
    sp_approver_fn *done = q->done;
    char why[sizeof q->failure];

    if (q->child.pidfd >= 0 || q->out >= 0)
        return;
    if (q->status == 0 && !q->is_too_long) {
        sp_decision_read(sp_buf_str(&q->answer), true, &d);
    } else {
        if (q->is_too_long)
            (void)snprintf(why, sizeof why, "its answer is longer than %d bytes",
                           SP_APPROVER_ANSWER_MAX);
        else if (q->failure[0] != 0)
            (void)snprintf(why, sizeof why, "%s", q->failure);
        else if (q->status < 0)
            (void)snprintf(why, sizeof why, "it was killed");
        else
            (void)snprintf(why, sizeof why, "it ended with exit status %d", q->status);
        d.decision = (struct sp_decision){.kind = SP_DECISION_FAILED, .rejection = sp_str_of(why)};
    }
    if (d.decision.kind == SP_DECISION_FAILED && done != NULL)
        sp_log(SP_LOG_WARN, "%s did not answer: " SP_STR_FMT, q->by->path,
               SP_STR_ARG(d.decision.rejection));
    q->done = NULL;
    d.decision.by = SP_DECIDER_PROGRAM;
    if (done != NULL)
        done(q->user, q->question, &d.decision);
    sp_decision_text_done(&d);
    free_query(q);
}

static bool reap(struct query *q, bool is_waiting)
{
    if (!sp_child_reap(&q->child, is_waiting, &q->status))
        return false;
    sp_own_remove(q->child.pid);
    sp_loop_unwatch(q->by->loop, &q->exit_watch);
    return true;
}

static void close_out(struct query *q)
{
    sp_loop_unwatch(q->by->loop, &q->out_watch);
    if (q->out >= 0)
        (void)close(TAKE_FD(q->out));
}

/* ---- events ---- */

/* Reads what is there. Background children may hold the pipe open after the program exits, so
 * on_exit_seen does not wait for end of file. */
static void read_answer(struct query *q)
{
    for (;;) {
        char *room = sp_buf_room(&q->answer, 4096);
        const ssize_t n = room == NULL ? 0 : read(q->out, room, 4096);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n > 0)
            q->answer.len += (size_t)n;
        q->is_too_long = room == NULL || q->answer.len > SP_APPROVER_ANSWER_MAX;
        if (n > 0 && !q->is_too_long)
            continue;
        close_out(q);
        if (q->is_too_long)
            sp_child_signal(&q->child, SIGKILL);
        return;
    }
}

static void on_out(struct sp_watch *w, uint32_t events)
{
    struct query *q = SP_CONTAINER(w, struct query, out_watch);

    (void)events;
    read_answer(q);
    finish_query(q);
}

static void on_exit_seen(struct sp_watch *w, uint32_t events)
{
    struct query *q = SP_CONTAINER(w, struct query, exit_watch);

    (void)events;
    if (!reap(q, false))
        return;
    if (q->out >= 0)
        read_answer(q);
    close_out(q);
    finish_query(q);
}

/* ---- starting ---- */

/* The question as a file, so that the program can read or map it in any way. */
static int make_input(const struct sp_approval_question *q, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    auto_close int fd = memfd_create("question", MFD_CLOEXEC);
    char path[32];

    if (!sp_buf_add_str(&text, SP_STR("{\"version\":1,\"question\":")) ||
        !sp_question_add_json(&text, q) || !sp_buf_add_str(&text, SP_STR("}\n")))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a question down");
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "write a question down");
    const int sys = sp_write_all(fd, text.data, text.len);
    if (sys != 0)
        return sp_fail(e, SP_E_SYSTEM, sys, "write a question down");
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int in = open(path, O_RDONLY | O_CLOEXEC);
    return in < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "write a question down") : in;
}

static int start_program(struct query *q, const struct sp_approval_question *question,
                         struct sp_err *e)
{
    const char *const argv[] = {q->by->path, NULL};
    auto_close int in = make_input(question, e);
    int ends[2];

    if (in < 0)
        return in;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "run %s", q->by->path);
    q->out = ends[0];
    auto_close int its_out = ends[1];
    if (fcntl(q->out, F_SETFL, O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "run %s", q->by->path);
    auto_free char **variables = sp_decider_environ(question->profile, environ);
    if (variables == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run %s", q->by->path);
    int r = sp_child_start(&q->child, q->by->path, argv, variables,
                           (int[]){in, its_out, SP_CHILD_OURS});
    if (r != 0)
        return sp_fail(e, SP_E_SYSTEM, r, "run %s", q->by->path);
    if (q->child.pidfd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "watch %s", q->by->path);
    sp_own_add(q->child.pid);
    r = sp_loop_watch(q->by->loop, &q->out_watch, q->out, EPOLLIN, on_out, e);
    return r < 0 ? r
                 : sp_loop_watch(q->by->loop, &q->exit_watch, q->child.pidfd, EPOLLIN, on_exit_seen,
                                 e);
}

/* The program could not be started or watched. */
static void fail_later(struct sp_deferred *d)
{
    struct query *q = SP_CONTAINER(d, struct query, later);

    sp_child_signal(&q->child, SIGKILL);
    (void)reap(q, true); /* it was killed, so this returns soon */
    q->status = -1;
    close_out(q);
    finish_query(q);
}

static void ask_program(struct sp_approver *a, const struct sp_approval_question *question,
                        sp_approver_fn *done, void *user)
{
    struct sp_approver_program *by = SP_CONTAINER(a, struct sp_approver_program, approver);
    static const struct sp_decision failed = {.kind = SP_DECISION_FAILED,
                                              .rejection = SP_STR("no memory")};
    struct query *q = calloc(1, sizeof *q);
    struct sp_err e = {0};

    if (q == NULL) {
        done(user, question->id, &failed);
        return;
    }
    *q = (struct query){.by = by,
                        .question = question->id,
                        .done = done,
                        .user = user,
                        .child.pidfd = -1,
                        .out = -1,
                        .status = -1,
                        .answer.max = SP_APPROVER_ANSWER_MAX + 4096};
    sp_list_prepend(&by->queries, &q->link);
    if (start_program(q, question, &e) < 0) {
        (void)sp_error_text(&e, q->failure, sizeof q->failure);
        sp_loop_defer(by->loop, &q->later, fail_later);
    }
}

static void withdraw_program(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_approver_program *by = SP_CONTAINER(a, struct sp_approver_program, approver);

    sp_list_each(i, &by->queries) {
        struct query *q = SP_CONTAINER(i, struct query, link);

        if (q->question == question && q->user == user && q->done != NULL) {
            q->done = NULL;
            sp_child_signal(&q->child, SIGKILL);
            return;
        }
    }
}

static void free_program(struct sp_approver *a)
{
    struct sp_approver_program *by = SP_CONTAINER(a, struct sp_approver_program, approver);

    while (!sp_list_is_empty(&by->queries)) {
        struct query *q = SP_CONTAINER(sp_list_first(&by->queries), struct query, link);

        sp_child_signal(&q->child, SIGKILL);
        (void)reap(q, true); /* it was killed, so this returns soon */
        free_query(q);
    }
    free(by->path);
    free(by);
}

int sp_approver_program_new(struct sp_loop *loop, const char *path, struct sp_approver **ret,
                            struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask_program, .withdraw = withdraw_program, .free = free_program};

    if (strchr(path, '/') == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "`program:%s` is no path: give one with a slash", path);
    if (access(path, X_OK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "program:%s", path);
    struct sp_approver_program *by = calloc(1, sizeof *by);
    if (by != NULL)
        by->path = strdup(path);
    if (by == NULL || by->path == NULL) {
        free(by);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    }
    by->approver = (struct sp_approver){.ops = &ops, .name = by->path};
    by->loop = loop;
    sp_list_init(&by->queries);
    *ret = &by->approver;
    return 0;
}

/* ---- hooks and the reviewer ---- */

int sp_hooks_open(struct sp_hooks *h, struct sp_loop *loop, char *const *paths,
                  const char *reviewer, struct sp_approvals_options *o, struct sp_err *e)
{
    int r = 0;

    for (; r == 0 && paths != NULL && *paths != NULL; paths++) {
        if (h->count == SP_HOOKS_MAX)
            r = sp_fail(e, SP_E_LIMIT, 0, "permission_hook: more than %d", SP_HOOKS_MAX);
        else if (sp_approver_program_new(loop, *paths, &h->hooks[h->count], e) < 0)
            r = sp_wrap(e, "permission_hook");
        else
            h->count++;
    }
    if (r == 0 && reviewer != NULL) {
        if (strncmp(reviewer, "program:", 8) != 0)
            r = sp_fail(e, SP_E_INVALID, 0, "reviewer: `%s` is not program:PATH", reviewer);
        else if (sp_approver_program_new(loop, reviewer + 8, &h->reviewer, e) < 0)
            r = sp_wrap(e, "reviewer");
    }
    o->hooks = h->hooks;
    o->hook_count = h->count;
    o->reviewer = h->reviewer;
    return r;
}

void sp_hooks_done(struct sp_hooks *h)
{
    while (h->count > 0)
        sp_approver_free(h->hooks[--h->count]);
    sp_approver_free(h->reviewer);
    *h = (struct sp_hooks){0};
}
