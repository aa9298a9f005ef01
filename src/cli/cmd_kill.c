/* SPDX-License-Identifier: Apache-2.0 */
/* kill: ends processes of a server, or sends them a signal. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "cli/observe.h"

static const char help[] =
    "Usage: sallyport kill [OPTIONS] PROC ...\n"
    "\n"
    "Ends processes of a server with all they have started, and waits until they have ended.\n"
    "PROC is a process id or SESSION/PROCESS, or its beginning if only one begins so.\n"
    "\n"
    "  --signal NAME       send this signal to the process group instead: TERM, INT, HUP ...\n"
    "\n" SP_OBSERVE_HELP_TEXT "\n"
    "Exit status: 0; 1 if one of them failed, has ended before, or is not there; 2 for a wrong\n"
    "flag; 123 if the server cannot be reached.\n"
    "Example: sallyport kill --signal INT build\n";

#define CONFIRM_MS 10000

enum { OPT_SIGNAL = 256 };

static const struct option known[] = {
    SP_OBSERVE_OPTIONS,
    {"signal", required_argument, NULL, OPT_SIGNAL},
    {NULL, 0, NULL, 0},
};

static bool take(void *user, int opt)
{
    if (opt == OPT_SIGNAL)
        *(const char **)user = optarg;
    return true;
}

static const struct sp_verb verb = {.name = "kill",
                                    .help = help,
                                    .options = known,
                                    .take = take,
                                    .least_words = 1,
                                    .most_words = INT_MAX};

struct killing {
    struct sp_observe *observe;
    const char *signal; /* NULL: the whole tree */
    const struct sp_listed *proc;
};

/* A member of the result that is true. */
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
static int ask(struct killing *k, const char *method, struct fact *f, struct sp_err *e,
               const char *more, ...)
{
    auto_buf struct sp_buf params = {0};
    char rest[128];
    va_list args;

    va_start(args, more);
    const int n = vsnprintf(rest, sizeof rest, more, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof rest)
        return sp_fail(e, SP_E_INVALID, 0, "that is no signal");
    if (!sp_buf_printf(&params, "{") || !sp_listed_add_place(&params, k->proc) ||
        !sp_buf_printf(&params, "%s}", rest))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    return sp_observe_ask(k->observe, method, (struct sp_str){params.data, params.len}, on_result,
                          f, e);
}

static int has_ended(struct sp_err *e)
{
    return sp_fail(e, SP_E_STATE, 0, "it has ended already");
}

static int end_tree(struct killing *k, struct sp_err *e)
{
    struct fact running = {.name = "running"};
    struct fact closed = {.name = "closed"};
    int r = ask(k, "process/terminate", &running, e, "%s", "");

    if (r == 0 && !running.is_true)
        return has_ended(e);
    if (r < 0)
        return r;
    /* Beyond every record, so that nothing but the end is an answer. */
    r = ask(k, "process/read", &closed, e, ",\"afterSeq\":%llu,\"maxBytes\":1,\"waitMs\":%d",
            (unsigned long long)INT64_MAX, CONFIRM_MS);
    if (r < 0 && sp_observe_death(k->observe) == NULL) {
        *e = (struct sp_err){0}; /* it has ended and is forgotten */
        return 0;
    }
    if (r == 0 && !closed.is_true)
        return sp_fail(e, SP_E_FAILED, 0, "it was killed and has not ended within %d s",
                       CONFIRM_MS / 1000);
    return r;
}

static int send_signal(struct killing *k, struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};
    struct fact none = {.name = ""};

    if (strcmp(k->proc->state, "running") != 0 && strcmp(k->proc->state, "starting") != 0)
        return has_ended(e);
    if (!sp_json_add_str(&name, sp_str_of(k->signal)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    return ask(k, "process/signal", &none, e, ",\"signal\":%.*s", (int)name.len, name.data);
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

int sp_cmd_kill(int argc, char **argv)
{
    struct sp_observe_flags flags = {0};
    auto_free char **words = NULL;
    struct killing k = {0};
    int status = sp_observe_args(&verb, argc, argv, &k.signal, &flags, &words);

    if (status != SP_EXIT_OK)
        return status < 0 ? SP_EXIT_OK : status;
    status = sp_observe_open(&flags, &k.observe);
    if (status != SP_EXIT_OK)
        return status;
    status = kill_all(&k, words);
    sp_observe_free(k.observe);
    return status;
}
