/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport kill`: ends processes of a server, or sends them a signal. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "cli/observe.h"

#define CONFIRM_MS 10000

struct kill_options {
    const char *signal; /* NULL: end the whole process tree */
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_STRING(struct kill_options, signal, "signal", "NAME",
                  "send this signal to the process group instead: TERM, INT, HUP ..."),
    SP_OPT_TABLE(struct kill_options, server, sp_observe_options),
    SP_OPT_END,
};

struct killing {
    struct sp_observe *observe;
    const char *signal;           /* of --signal */
    const struct sp_listed *proc; /* the present one */
};

/* A boolean member of a result. */
struct fact {
    const char *name;
    bool is_true;
};

static void on_result(void *user, struct sp_json *j, uint32_t result)
{
    struct fact *f = user;
    const uint32_t t =
        sp_json_type(j, result) == SP_JSON_OBJECT ? sp_json_get(j, result, f->name) : SP_JSON_NONE;

    f->is_true = t != SP_JSON_NONE && sp_json_type(j, t) == SP_JSON_TRUE;
}

SP_PRINTF(5, 6)
static int ask_server(struct killing *k, const char *method, struct fact *f, struct sp_err *e,
                      const char *more, ...)
{
    auto_buf struct sp_buf params = {0};
    char rest[128];
    va_list args;

    va_start(args, more);
    const int n = vsnprintf(rest, sizeof rest, more, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof rest)
        return sp_fail(e, SP_E_INVALID, 0, "the name of the signal is too long");
    if (!sp_buf_printf(&params, "{") || !sp_listed_add_place(&params, k->proc) ||
        !sp_buf_printf(&params, "%s}", rest))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    return sp_observe_ask(k->observe, method, (struct sp_str){params.data, params.len}, on_result,
                          f, e);
}

/* process/terminate kills; the wait confirms that the processes are gone. */
static int end_tree(struct killing *k, struct sp_err *e)
{
    struct fact running = {.name = "running"};
    struct fact closed = {.name = "closed"};
    int r = ask_server(k, "process/terminate", &running, e, "%s", "");

    if (r == 0 && !running.is_true)
        return sp_fail(e, SP_E_STATE, 0, "it has ended already");
    if (r < 0)
        return r;
    /* No record has such a number: the read returns at the end of the process, or after waitMs. */
    r = ask_server(k, "process/read", &closed, e, ",\"afterSeq\":%llu,\"maxBytes\":1,\"waitMs\":%d",
                   (unsigned long long)INT64_MAX, CONFIRM_MS);
    if (r < 0 && k->observe->death.code == SP_E_NONE) {
        *e =
            (struct sp_err){0}; /* refused: the server has forgotten the process, so it has ended */
        return 0;
    }
    if (r == 0 && !closed.is_true)
        return sp_fail(e, SP_E_FAILED, 0, "it was killed and has not ended within %d s",
                       CONFIRM_MS / 1000);
    return r;
}

/* A signal to an ended process is an error, as ending it again is. */
static int send_signal(struct killing *k, struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};
    struct fact none = {.name = ""};

    if (strcmp(k->proc->state, "running") != 0 && strcmp(k->proc->state, "starting") != 0)
        return sp_fail(e, SP_E_STATE, 0, "it has ended already");
    if (!sp_json_add_str(&name, sp_str_of(k->signal)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    return ask_server(k, "process/signal", &none, e, ",\"signal\":%.*s", (int)name.len, name.data);
}

static int kill_one(struct killing *k, const struct sp_process_list *l, const char *word)
{
    struct sp_err e = {0};
    int r = sp_list_find(l, word, &k->proc, &e);

    if (r == 0) {
        r = k->signal != NULL ? send_signal(k, &e) : end_tree(k, &e);
        if (r < 0)
            (void)sp_wrap(&e, "%s", word);
    }
    return r < 0 ? sp_observe_complain(k->observe, &e) : SP_EXIT_OK;
}

/* One failure does not keep the others from being ended. */
static int kill_all(struct killing *k, char *const *words)
{
    struct sp_process_list l = {0};
    struct sp_err e = {0};
    int status = SP_EXIT_OK;

    if (sp_observe_list(k->observe, &l, &e) < 0)
        return sp_observe_complain(k->observe, &e);
    for (; *words != NULL && status != SP_EXIT_UNREACHABLE; words++) {
        const int one = kill_one(k, &l, *words);

        if (one != SP_EXIT_OK)
            status = one;
    }
    sp_list_done(&l);
    return status;
}

static int run_kill(void *values, char **operands)
{
    const struct kill_options *o = values;
    struct killing k = {.signal = o->signal};
    int status = sp_observe_open(&o->server, &k.observe);

    if (status == SP_EXIT_OK)
        status = kill_all(&k, operands);
    sp_observe_free(k.observe);
    return status;
}

const struct sp_cli_command sp_command_kill = {
    .name = "kill",
    .summary = "end processes of a server",
    .usage = "sallyport kill [OPTIONS] PROC ...\n"
             "\n"
             "Ends processes of a server with all their descendants, and waits until they have\n"
             "ended. PROC is a process id or SESSION/PROCESS, or the beginning of one if only one\n"
             "begins so.\n",
    .notes = "Exit status: 0; 1 if one of them failed, had ended before, or is not there; 2 for a\n"
             "wrong command line; 123 if the server cannot be reached.\n"
             "Example: sallyport kill --signal INT build\n",
    .options = options,
    .missing = "which process?",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct kill_options),
    .run = run_kill,
};
