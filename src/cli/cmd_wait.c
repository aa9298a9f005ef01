/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport wait`: waits until processes have ended, and returns the exit status of the last. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "cli/observe.h"

enum { EXIT_LATE = 124 };

#define MAX_TIMEOUT_MS 1000000000000

struct wait_options {
    uint64_t timeout_ms; /* 0: none */
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_TIME(struct wait_options, timeout_ms, "timeout", "TIME", 1, MAX_TIMEOUT_MS,
                "give up after this time, with exit status 124"),
    SP_OPT_TABLE(struct wait_options, server, sp_observe_options),
    SP_OPT_END,
};

/* One process that is waited for. */
struct awaited {
    const char *word; /* PROC */
    const struct sp_listed *proc;
    bool is_over;
    int64_t exit_code; /* -1: nobody knows */
};

struct waiting {
    const struct wait_options *options;
    struct sp_observe_all *all;
    struct awaited *items;
    size_t count;
    struct sp_timer timer;
    bool is_late;
    struct sp_err error;
};

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct waiting *w = user;
    struct sp_note n;

    for (size_t i = 0; i < w->count; i++) {
        struct awaited *a = &w->items[i];

        if (a->proc == NULL || a->is_over)
            continue;
        if (sp_note_read(a->proc, method, j, params, &n, &w->error) < 0)
            break;
        if (n.kind == SP_NOTE_EXITED) {
            a->exit_code = n.exit_code;
            a->is_over = true;
        }
    }
    sp_loop_stop(w->all->loop);
}

static const struct sp_observe_ops ops = {.notified = on_notified};

/* The result of process/attach: a process that has ended may tell no more. */
static void on_attached(void *user, struct sp_json *j, uint32_t result)
{
    struct awaited *a = user;
    bool has_exited = false;

    if (sp_json_type(j, result) != SP_JSON_OBJECT ||
        sp_json_def_bool(j, result, "exited", &has_exited, NULL) < 0 || !has_exited)
        return;
    const uint32_t code = sp_json_get(j, result, "exitCode");
    a->is_over = code != SP_JSON_NONE && sp_json_i64(j, code, &a->exit_code);
}

static bool is_waiting(const struct waiting *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (!w->items[i].is_over && w->items[i].proc->server->death.code == SP_E_NONE)
            return true;
    return false;
}

static void on_timeout(struct sp_timer *t)
{
    struct waiting *w = SP_CONTAINER(t, struct waiting, timer);

    w->is_late = true;
    sp_loop_stop(w->all->loop);
}

/* A process that ends between the list and the attach is gone with its server's memory of it. */
static int attach_to(struct waiting *w, struct awaited *a, struct sp_err *e)
{
    auto_buf struct sp_buf params = {0};

    if (a->proc->has_exited || a->proc->history_id != 0) {
        a->is_over = true;
        a->exit_code = a->proc->has_exited ? a->proc->exit_code : -1;
        return 0;
    }
    if (!sp_listed_add_params(&params, a->proc, "%s", ""))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    const int r =
        sp_observe_ask(a->proc->server, "process/attach", sp_buf_str(&params), on_attached, a, e);
    (void)w;
    return r;
}

/* The exit status: of the last PROC, unless one is not known. */
static int status_of(struct waiting *w, struct sp_err *e)
{
    int64_t code = 0;

    for (size_t i = 0; i < w->count; i++) {
        const struct awaited *a = &w->items[i];

        if (!a->is_over || a->exit_code < 0 || a->exit_code > 255) {
            w->all->is_unreachable = true;
            return sp_fail(e, SP_E_FAILED, 0, "%s: it is gone, and how it ended is not known",
                           a->word);
        }
        code = a->exit_code;
    }
    return (int)code;
}

static int wait_for_all(struct sp_observe_all *all, void *user, struct sp_err *e)
{
    struct waiting *w = user;
    int r = 0;

    w->all = all;
    /* Twice: the first round may add the histories, and what was found before moves. */
    for (size_t i = 0; i < 2 * w->count; i++) {
        struct awaited *found = &w->items[i % w->count];

        r = sp_observe_find_ended(all, found->word, &found->proc, e);
        if (r < 0)
            return r;
    }
    all->ops = &ops; /* before the requests: the end may arrive together with an answer */
    all->user = w;
    for (size_t i = 0; r == 0 && i < w->count; i++)
        r = attach_to(w, &w->items[i], e);
    if (r == 0 && w->options->timeout_ms != 0 &&
        !sp_loop_timer(all->loop, &w->timer, sp_loop_now(all->loop) + w->options->timeout_ms,
                       on_timeout))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "set the timeout");
    while (r == 0 && is_waiting(w) && !w->is_late && w->error.code == SP_E_NONE)
        r = sp_loop_run(all->loop, e);
    sp_loop_cancel(all->loop, &w->timer);
    all->ops = NULL;
    if (r == 0 && w->error.code != SP_E_NONE) {
        *e = w->error;
        r = sp_wrap(e, "a message of the server cannot be read");
    }
    if (r < 0)
        return r;
    if (w->is_late && is_waiting(w)) {
        (void)fprintf(stderr, "sallyport: not all have ended within %g s\n",
                      (double)w->options->timeout_ms / 1000);
        return EXIT_LATE;
    }
    return status_of(w, e);
}

static int run_wait(void *values, char **operands)
{
    struct waiting w = {.options = values};

    while (operands[w.count] != NULL)
        w.count++;
    w.items = calloc(w.count + 1, sizeof *w.items);
    if (w.items == NULL) {
        (void)fprintf(stderr, "sallyport: out of memory\n");
        return SP_EXIT_FAILED;
    }
    for (size_t i = 0; i < w.count; i++)
        w.items[i] = (struct awaited){.word = operands[i], .exit_code = -1};
    const int status = sp_observe_run(&w.options->server, NULL, wait_for_all, &w);
    free(w.items);
    return status;
}

const struct sp_cli_command sp_command_wait = {
    .name = "wait",
    .summary = "wait for processes to end, and return their exit status",
    .usage = "sallyport wait [OPTIONS] PROC ...\n"
             "\n"
             "Waits until all these processes have ended. PROC is a process id, a name or "
             "SESSION/PROCESS, or the beginning of an id if only one begins so.\n",
    .notes =
        "Exit status: that of the process, of several that of the last PROC; 1 if it failed or "
        "there is no such process; 2 for a wrong command line; 123 if the server is lost or "
        "cannot be reached; 124 --timeout has passed.\n"
        "Example: sallyport wait --timeout 60 build\n",
    .options = options,
    .operand = "PROC",
    .missing = "which process?",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct wait_options),
    .run = run_wait,
};
