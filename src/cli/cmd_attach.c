/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cli/attach.h"

static const char help[] =
    "Usage: sallyport attach [OPTIONS] PROC\n"
    "\n"
    "Shows what a process of a server writes from now on, and types into it. Any number may\n"
    "watch; one types, and the size of its terminal holds. PROC is a process id or\n"
    "SESSION/PROCESS, or its beginning if only one begins so.\n"
    "\n"
    "  --read-only         only watch\n"
    "  --steal             type, even if somebody else does: they go on watching\n"
    "  --detach-key KEY    leave with this key: C-X for Control and X, or none (default C-])\n"
    "\n" SP_OBSERVE_HELP_TEXT "\n"
    "Exit status: the process's own if it ends, 0 on detach; 1 if it failed or there is no such\n"
    "process; 2 for a wrong flag; 123 if the server cannot be reached or is lost.\n"
    "Example: sallyport attach --read-only 4b1d/shell\n";

enum { OPT_READ_ONLY = 256, OPT_STEAL, OPT_DETACH_KEY };

static const struct option known[] = {
    SP_OBSERVE_OPTIONS,
    {"read-only", no_argument, NULL, OPT_READ_ONLY},
    {"steal", no_argument, NULL, OPT_STEAL},
    {"detach-key", required_argument, NULL, OPT_DETACH_KEY},
    {NULL, 0, NULL, 0},
};

/* C-] and ^] are the byte that a terminal sends for it. */
static bool read_key(const char *text, int *ret)
{
    const char *name = text[0] == '^'                                         ? text + 1
                       : (text[0] == 'C' || text[0] == 'c') && text[1] == '-' ? text + 2
                                                                              : "";

    if (strcmp(text, "none") == 0) {
        *ret = -1;
        return true;
    }
    if (strlen(name) != 1)
        return false;
    const char c = name[0] >= 'a' && name[0] <= 'z' ? (char)(name[0] - 'a' + 'A') : name[0];
    if (c < '@' || c > '_')
        return false;
    *ret = c - '@';
    return true;
}

static bool take(void *user, int opt)
{
    struct sp_attach_options *o = user;

    switch (opt) {
    case OPT_READ_ONLY:
        o->is_read_only = true;
        return true;
    case OPT_STEAL:
        o->is_stealing = true;
        return true;
    default:
        if (read_key(optarg, &o->detach_key))
            return true;
        (void)fprintf(stderr,
                      "sallyport attach: --detach-key: `%s` is not a key such as C-] or C-a\n",
                      optarg);
        return false;
    }
}

static const struct sp_verb verb = {.name = "attach",
                                    .help = help,
                                    .options = known,
                                    .take = take,
                                    .least_words = 1,
                                    .most_words = 1};

static int attach(struct sp_observe *o, const char *word, const struct sp_attach_options *options)
{
    const struct sp_listed *p = NULL;
    struct sp_process_list all = {0};
    struct sp_err e = {0};
    int r = sp_observe_list(o, &all, &e);

    if (r == 0)
        r = sp_list_find(&all, word, &p, &e);
    const int status = r < 0 ? sp_observe_complain(o, &e) : sp_attach_run(o, p, options);
    sp_list_done(&all);
    return status;
}

int sp_cmd_attach(int argc, char **argv)
{
    struct sp_attach_options options = {.detach_key = ']' - '@'};
    struct sp_observe_flags flags = {0};
    auto_free char **words = NULL;
    struct sp_observe *o = NULL;
    int status = sp_observe_args(&verb, argc, argv, &options, &flags, &words);

    if (status != SP_EXIT_OK)
        return status < 0 ? SP_EXIT_OK : status;
    if (options.is_read_only && options.is_stealing) {
        (void)fprintf(stderr, "sallyport attach: --steal is of no use with --read-only\n");
        return SP_EXIT_USAGE;
    }
    status = sp_observe_open(&flags, &o);
    if (status != SP_EXIT_OK)
        return status;
    status = attach(o, words[0], &options);
    sp_observe_free(o);
    return status;
}
