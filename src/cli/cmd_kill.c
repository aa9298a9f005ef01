/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport kill`: ends processes of a server, or sends them a signal. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cli/observe.h"

#define CONFIRM_MS 10000

struct kill_options {
    const char *signal; /* NULL: end the whole process tree */
    struct sp_observe_options server;
};

/* As the protocol names it. */
static const char *read_signal(const char *argument, void *value)
{
    const bool has_prefix = strncasecmp(argument, "SIG", 3) == 0;
    uint64_t number = 0;
    const char *name = NULL;

    if (sp_str_to_u64(sp_str_of(argument), SIGRTMIN, &number))
        name = sigabbrev_np((int)number);
    for (int i = 1; name == NULL && i < SIGRTMIN; i++)
        if (sigabbrev_np(i) != NULL &&
            strcasecmp(sigabbrev_np(i), argument + (has_prefix ? 3 : 0)) == 0)
            name = sigabbrev_np(i);
    *(const char **)value = name;
    return name != NULL ? NULL : "a signal such as TERM, SIGHUP or 9";
}

static const struct sp_option options[] = {
    SP_OPT_READ(struct kill_options, signal, "signal", "SIGNAL", read_signal,
                "send this signal to the process group instead: TERM, SIGHUP, 9 ...; -9 and -TERM "
                "alone mean the same",
                .short_name = 's'),
    SP_OPT_TABLE(struct kill_options, server, sp_observe_options),
    SP_OPT_END,
};

struct killing {
    const char *signal; /* of --signal */
    char *const *words; /* PROC ... */
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

static int fail_no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
}

static int fail_ended(const struct sp_listed *p, struct sp_err *e)
{
    return p->history_id == 0 && strcmp(p->state, "exited") == 0
               ? sp_fail(e, SP_E_STATE, 0,
                         "it has exited; processes that it has left hold its output open")
               : sp_fail(e, SP_E_STATE, 0, "it has ended already");
}

/* `exec`, `mcp` and a program with the library may end with their command, before the wait for it,
 * and have no command after. */
static bool ends_with_commands(const struct sp_observe *o)
{
    return strcmp(o->kind, "exec") == 0 || strcmp(o->kind, "mcp") == 0 ||
           strcmp(o->kind, "library") == 0;
}

/* process/terminate kills; the wait confirms that the processes are gone. */
static int end_tree(struct sp_observe *o, const struct sp_listed *p, struct sp_err *e)
{
    struct fact running = {.name = "running"};
    struct fact closed = {.name = "closed"};
    auto_buf struct sp_buf place = {0};
    auto_buf struct sp_buf wait = {0};

    /* No record has such a number: the read returns at the end of the process, or after waitMs. */
    if (!sp_listed_add_params(&place, p, "%s", "") ||
        !sp_listed_add_params(&wait, p, ",\"afterSeq\":%llu,\"maxBytes\":1,\"waitMs\":%d",
                              (unsigned long long)INT64_MAX, CONFIRM_MS))
        return fail_no_memory(e);
    int r = sp_observe_ask(o, "process/terminate", sp_buf_str(&place), on_result, &running, e);
    if (r == 0 && !running.is_true)
        return fail_ended(p, e);
    if (r < 0)
        return r;
    r = sp_observe_ask(o, "process/read", sp_buf_str(&wait), on_result, &closed, e);
    if (r < 0) /* refused: the server has forgotten the process, so it has ended */
        return o->death.code == SP_E_NONE || ends_with_commands(o) ? 0 : r;
    return closed.is_true
               ? 0
               : sp_fail(e, SP_E_FAILED, 0, "it was killed and has not ended within %d s",
                         CONFIRM_MS / 1000);
}

static int send_signal(struct sp_observe *o, const struct sp_listed *p, const char *signal,
                       struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};
    auto_buf struct sp_buf params = {0};

    if (strcmp(p->state, "running") != 0 && strcmp(p->state, "starting") != 0)
        return fail_ended(p, e);
    if (!sp_json_add_str(&name, sp_str_of(signal)) ||
        !sp_listed_add_params(&params, p, ",\"signal\":%.*s", (int)name.len, name.data))
        return fail_no_memory(e);
    return sp_observe_ask(o, "process/signal", sp_buf_str(&params), NULL, NULL, e);
}

/* One failure does not keep the others from being ended. */
static int kill_all(struct sp_observe_all *a, void *user, struct sp_err *e)
{
    const struct killing *k = user;
    int status = SP_EXIT_OK;
    int r = sp_observe_list(a, e);

    if (r < 0)
        return r;
    for (char *const *word = k->words; *word != NULL && status != SP_EXIT_UNREACHABLE; word++) {
        const struct sp_listed *p = NULL;
        struct sp_err why = {0};

        r = sp_observe_find_ended(a, *word, &p, &why);
        if (r == 0 && p->history_id != 0) {
            r = fail_ended(p, &why);
            (void)sp_wrap(&why, "%s", *word);
        } else if (r == 0) {
            r = k->signal == NULL ? end_tree(p->server, p, &why)
                                  : send_signal(p->server, p, k->signal, &why);
            if (r < 0)
                (void)sp_wrap(&why, "%s", *word);
        }
        if (r < 0) {
            (void)sp_observe_complain(a, &why);
            status = p != NULL && p->server->death.code != SP_E_NONE ? SP_EXIT_UNREACHABLE
                                                                     : SP_EXIT_FAILED;
        }
    }
    return status;
}

static int run_kill(void *values, char **operands)
{
    const struct kill_options *o = values;
    struct killing k = {.signal = o->signal, .words = operands};

    return sp_observe_run(&o->server, NULL, kill_all, &k);
}

const struct sp_cli_command sp_command_kill = {
    .name = "kill",
    .summary = "end processes of a server",
    .usage = "sallyport kill [OPTIONS] PROC ...\n"
             "\n"
             "Ends processes of a server with all their descendants, and waits until they "
             "have ended. PROC is a process id, a name or SESSION/PROCESS, or the beginning of "
             "an id if only one begins so.\n",
    .notes = "Exit status: 0; 1 if one of them failed, had ended before, or is not there; "
             "2 for a wrong command line; 123 if the server cannot be reached.\n"
             "Example: sallyport kill --signal INT build\n",
    .options = options,
    .operand = "PROC",
    .signal_option = "signal",
    .missing = "which process?",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct kill_options),
    .run = run_kill,
};
