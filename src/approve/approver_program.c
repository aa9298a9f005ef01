/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approver_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "approve/program.h"
#include "base/auto.h"
#include "base/log.h"
#include "os/own.h"

struct sp_approver_program {
    struct sp_approver approver;
    struct sp_loop *loop;
    char *path;
    struct query *first;
};

/* One question, and the program that works on it. */
struct query {
    struct sp_approver_program *by;
    struct query *prev, *next;
    uint64_t question;
    sp_approver_fn *done; /* NULL: nobody wants to know any more */
    void *user;
    pid_t pid;
    int pidfd, out; /* -1: closed; out is what it writes */
    int status;     /* its exit status; -1: not by itself, or not yet */
    bool is_too_long;
    char failure[512]; /* why it could not be started; "": it was */
    struct sp_buf answer;
    struct sp_watch exit_watch, out_watch;
    struct sp_deferred later;
};

/* ---- the end of one ---- */

static void free_query(struct query *q)
{
    struct sp_loop *loop = q->by->loop;

    *(q->prev != NULL ? &q->prev->next : &q->by->first) = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    sp_loop_unwatch(loop, &q->exit_watch);
    sp_loop_unwatch(loop, &q->out_watch);
    sp_loop_undefer(loop, &q->later);
    if (q->out >= 0)
        (void)close(q->out);
    if (q->pidfd >= 0)
        (void)close(q->pidfd);
    sp_buf_done(&q->answer);
    free(q);
}

static void tell(struct query *q, const struct sp_decision *d)
{
    sp_approver_fn *done = q->done;

    q->done = NULL;
    if (done != NULL)
        done(q->user, q->question, d);
}

/* Why there is no answer. */
static void say_failure(const struct query *q, char *ret, size_t size)
{
    if (q->is_too_long)
        (void)snprintf(ret, size, "its answer is longer than %d bytes", SP_APPROVER_ANSWER_MAX);
    else if (q->failure[0] != 0)
        (void)snprintf(ret, size, "%s", q->failure);
    else if (q->status < 0)
        (void)snprintf(ret, size, "it was killed");
    else
        (void)snprintf(ret, size, "it ended with exit status %d", q->status);
}

/* It has ended, and has nothing more to say. */
static void finish(struct query *q)
{
    struct sp_decision_text d = {0};
    char why[sizeof q->failure];

    if (q->pidfd >= 0 || q->out >= 0)
        return;
    if (q->status == 0 && !q->is_too_long) {
        sp_decision_read_opinion(
            (struct sp_str){q->answer.len == 0 ? "" : q->answer.data, q->answer.len}, &d);
    } else {
        say_failure(q, why, sizeof why);
        d.decision = (struct sp_decision){.kind = SP_DECISION_FAILED, .rejection = sp_str_of(why)};
    }
    if (d.decision.kind == SP_DECISION_FAILED && q->done != NULL)
        sp_log(SP_LOG_WARN, "%s did not answer: " SP_STR_FMT, q->by->path,
               SP_STR_ARG(d.decision.rejection));
    tell(q, &d.decision);
    sp_decision_text_done(&d);
    free_query(q);
}

/* While it is not reaped its number is its own, and its group's. */
static void end_it(struct query *q)
{
    if (q->pidfd < 0)
        return;
    (void)kill(-q->pid, SIGKILL);
    (void)syscall(SYS_pidfd_send_signal, q->pidfd, SIGKILL, NULL, 0);
}

static bool reap(struct query *q, int options)
{
    siginfo_t info = {0};
    int r;

    do
        r = waitid(P_PIDFD, (id_t)q->pidfd, &info, WEXITED | options);
    while (r < 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0)
        return false;
    q->status = r == 0 && info.si_code == CLD_EXITED ? info.si_status : -1;
    sp_own_remove(q->pid);
    sp_loop_unwatch(q->by->loop, &q->exit_watch);
    (void)close(TAKE_FD(q->pidfd));
    return true;
}

static void close_out(struct query *q)
{
    sp_loop_unwatch(q->by->loop, &q->out_watch);
    if (q->out >= 0)
        (void)close(TAKE_FD(q->out));
}

/* ---- what happens to it ---- */

/* What it has left in the background may hold its stdout open: nobody waits for that. */
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
            end_it(q);
        return;
    }
}

static void on_out(struct sp_watch *w, uint32_t events)
{
    struct query *q = SP_CONTAINER(w, struct query, out_watch);

    (void)events;
    read_answer(q);
    finish(q);
}

static void on_exit_seen(struct sp_watch *w, uint32_t events)
{
    struct query *q = SP_CONTAINER(w, struct query, exit_watch);

    (void)events;
    if (!reap(q, WNOHANG))
        return;
    if (q->out >= 0)
        read_answer(q);
    close_out(q);
    finish(q);
}

/* ---- starting ---- */

/* The question as a file: it is read from the beginning to its end, by whatever means. */
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
    for (size_t at = 0; at < text.len;) {
        const ssize_t n = write(fd, text.data + at, text.len - at);

        if (n < 0 && errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "write a question down");
        at += n < 0 ? 0 : (size_t)n;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int in = open(path, O_RDONLY | O_CLOEXEC);
    return in < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "write a question down") : in;
}

/* posix_spawn wants its sources apart from 0 to 2, also in a program that has closed those. */
static int lift(int fd)
{
    const int higher = fd > 2 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (higher != fd)
        (void)close(fd);
    return higher;
}

static int spawn(const char *path, char *const *variables, int in, int out, pid_t *ret)
{
    char *const argv[] = {(char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    int err = posix_spawnattr_init(&attr);

    if (err != 0)
        return err;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setpgroup(&attr, 0);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        err = posix_spawn_file_actions_adddup2(&actions, in, 0);
        if (err == 0)
            err = posix_spawn_file_actions_adddup2(&actions, out, 1);
        if (err == 0)
            err = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
        if (err == 0)
            err = posix_spawn(ret, path, &actions, &attr, argv, variables);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)posix_spawnattr_destroy(&attr);
    return err;
}

static int start(struct query *q, const struct sp_approval_question *question, struct sp_err *e)
{
    auto_close int in = -1;
    auto_close int its_out = -1;
    int ends[2];
    int r = make_input(question, e);

    if (r < 0)
        return r;
    in = lift(r);
    if (in < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "run %s", q->by->path);
    q->out = ends[0];
    its_out = lift(ends[1]);
    if (its_out < 0 || fcntl(q->out, F_SETFL, O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "run %s", q->by->path);
    struct sp_decider_environ variables;
    if (!sp_decider_environ_make(question->profile, environ, &variables))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run %s", q->by->path);
    r = spawn(q->by->path, variables.items, in, its_out, &q->pid);
    sp_decider_environ_done(&variables);
    if (r != 0)
        return sp_fail(e, SP_E_SYSTEM, r, "run %s", q->by->path);
    q->pidfd = (int)syscall(SYS_pidfd_open, q->pid, 0);
    if (q->pidfd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "watch %s", q->by->path);
    sp_own_add(q->pid);
    r = sp_loop_watch(q->by->loop, &q->out_watch, q->out, EPOLLIN, on_out, e);
    return r < 0 ? r
                 : sp_loop_watch(q->by->loop, &q->exit_watch, q->pidfd, EPOLLIN, on_exit_seen, e);
}

/* It could not be started, or not be watched. */
static void deny_later(struct sp_deferred *d)
{
    struct query *q = SP_CONTAINER(d, struct query, later);

    end_it(q);
    if (q->pidfd >= 0)
        (void)reap(q, 0); /* killed: it cannot take long */
    q->status = -1;
    close_out(q);
    finish(q);
}

static void ask(struct sp_approver *a, const struct sp_approval_question *question,
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
                        .next = by->first,
                        .question = question->id,
                        .done = done,
                        .user = user,
                        .pidfd = -1,
                        .out = -1,
                        .status = -1,
                        .answer.max = SP_APPROVER_ANSWER_MAX + 4096};
    if (by->first != NULL)
        by->first->prev = q;
    by->first = q;
    if (start(q, question, &e) < 0) {
        (void)sp_error_text(&e, q->failure, sizeof q->failure);
        sp_loop_defer(by->loop, &q->later, deny_later);
    }
}

static void withdraw(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_approver_program *by = SP_CONTAINER(a, struct sp_approver_program, approver);

    for (struct query *q = by->first; q != NULL; q = q->next)
        if (q->question == question && q->user == user && q->done != NULL) {
            q->done = NULL;
            end_it(q);
            return;
        }
}

static void free_approver(struct sp_approver *a)
{
    struct sp_approver_program *by = SP_CONTAINER(a, struct sp_approver_program, approver);

    while (by->first != NULL) {
        struct query *q = by->first;

        end_it(q);
        if (q->pidfd >= 0)
            (void)reap(q, 0); /* killed: it cannot take long */
        free_query(q);
    }
    free(by->path);
    free(by);
}

int sp_approver_program_new(struct sp_loop *loop, const char *path, struct sp_approver **ret,
                            struct sp_err *e)
{
    static const struct sp_approver_ops ops = {
        .ask = ask, .withdraw = withdraw, .free = free_approver};

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
    *ret = &by->approver;
    return 0;
}
