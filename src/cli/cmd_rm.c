/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport rm`: forgets processes that have ended. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/auto.h"
#include "cli/observe.h"

struct rm_options {
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_TABLE(struct rm_options, server, sp_observe_options),
    SP_OPT_END,
};

static int remove_listed(struct sp_observe_all *a, const struct sp_listed *p, struct sp_err *e)
{
    auto_buf struct sp_buf params = {0};

    a->all.items[p - a->all.items].is_removed = true;
    if (p->history_id != 0 ? !sp_buf_printf(&params, "{\"historyId\":%" PRIu64 "}", p->history_id)
                           : !sp_listed_add_params(&params, p, "%s", ""))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the server");
    return sp_observe_ask(p->server, "history/remove", sp_buf_str(&params), NULL, NULL, e);
}

static bool is_ended(const struct sp_listed *p)
{
    return p->history_id != 0 || strcmp(p->state, "closed") == 0;
}

/* A name removes all ended processes of that name: otherwise it would name an older process next.
 */
static int remove_one(struct sp_observe_all *a, const char *word, struct sp_err *e)
{
    const struct sp_listed *p = NULL;
    struct sp_err no_history = {0};
    int r = sp_observe_find_ended(a, word, &p, e);

    if (r < 0)
        return r;
    if (!is_ended(p))
        return sp_fail(e, SP_E_STATE, 0,
                       "%.200s is still %.20s; end it first: sallyport kill %.200s", word, p->state,
                       word);
    const struct sp_observe *server = p->server;
    const bool is_name = p->name != NULL && strcmp(p->name, word) == 0;
    r = remove_listed(a, p, e);
    if (is_name)
        (void)sp_observe_add_history(a, &no_history); /* moves the list */
    for (size_t i = 0; r == 0 && is_name && i < a->all.count; i++) {
        p = &a->all.items[i];
        if (p->server == server && !p->is_removed && p->name != NULL &&
            strcmp(p->name, word) == 0 && is_ended(p))
            r = remove_listed(a, p, e);
    }
    return r;
}

/* One failure does not keep the others from being removed. */
static int remove_all(struct sp_observe_all *a, void *user, struct sp_err *e)
{
    int status = SP_EXIT_OK;

    (void)e;
    for (char *const *word = user; *word != NULL; word++) {
        struct sp_err why = {0};

        if (remove_one(a, *word, &why) < 0)
            status = sp_observe_complain(a, &why);
    }
    return status;
}

static int run_rm(void *values, char **operands)
{
    return sp_observe_run(&((struct rm_options *)values)->server, NULL, remove_all, operands);
}

const struct sp_cli_command sp_command_rm = {
    .name = "rm",
    .summary = "forget processes of a server that have ended",
    .usage = "sallyport rm [OPTIONS] PROC ...\n"
             "\n"
             "Makes a server forget processes that have ended, with their output. PROC is a "
             "process id, a name or SESSION/PROCESS, or the beginning of an id if only one "
             "begins so; a name means all that had it.\n",
    .notes = "Exit status: 0; 1 if one of them has not ended, or is not there; 2 for a wrong "
             "command line; 123 if the server cannot be reached.\n"
             "Example: sallyport rm build\n",
    .options = options,
    .operand = "PROC",
    .missing = "which process?",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct rm_options),
    .run = run_rm,
};
