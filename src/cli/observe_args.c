/* SPDX-License-Identifier: Apache-2.0 */
/* observe: the flags. */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "cli/observe.h"

static bool take_common(const struct sp_verb *v, struct sp_observe_flags *f, int opt)
{
    switch (opt) {
    case SP_OBSERVE_SERVER:
        f->server = optarg;
        return true;
    case SP_OBSERVE_TOKEN_FILE:
        f->token_file = optarg;
        return true;
    case SP_OBSERVE_CONFIG:
        f->config = optarg;
        return true;
    case SP_OBSERVE_SET:
        if (f->set_count == SP_OBSERVE_MAX_SETS) {
            (void)fprintf(stderr, "sallyport %s: --set: at most %d times\n", v->name,
                          SP_OBSERVE_MAX_SETS);
            return false;
        }
        f->sets[f->set_count++] = optarg;
        return true;
    default: /* getopt has said what is wrong */
        return false;
    }
}

static int check_words(const struct sp_verb *v, int count, char *const *words)
{
    if (count < v->least_words)
        (void)fprintf(stderr, "sallyport %s: which process? (see --help)\n", v->name);
    else if (count > v->most_words)
        (void)fprintf(stderr, "sallyport %s: unexpected argument `%s` (see --help)\n", v->name,
                      words[v->most_words]);
    else
        return SP_EXIT_OK;
    return SP_EXIT_USAGE;
}

int sp_observe_args(const struct sp_verb *v, int argc, char **argv, void *user,
                    struct sp_observe_flags *f, char ***ret_words)
{
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);
    char name[32];
    int opt;

    if (args == NULL)
        return SP_EXIT_FAILED;
    (void)snprintf(name, sizeof name, "sallyport %s", v->name);
    args[0] = name; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "", v->options, NULL)) != -1) {
        if (opt == SP_OBSERVE_HELP) {
            (void)fputs(v->help, stdout);
            return -1;
        }
        const bool is_own = opt != '?' && opt != ':' && opt < SP_OBSERVE_SERVER;
        if (!(is_own ? v->take(user, opt) : take_common(v, f, opt)))
            return SP_EXIT_USAGE;
    }
    const int count = argc + 1 - optind;
    const int status = check_words(v, count, args + optind);
    if (status != SP_EXIT_OK)
        return status;
    memmove(args, args + optind, ((size_t)count + 1) * sizeof *args);
    *ret_words = TAKE_PTR(args);
    return SP_EXIT_OK;
}
