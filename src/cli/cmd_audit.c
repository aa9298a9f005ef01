/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport audit verify`: the log of decisions held against its own chain. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/audit.h"
#include "base/auto.h"
#include "cli/cli.h"
#include "config/config_approvals.h"

static const char help[] =
    "Usage: sallyport audit verify [OPTIONS] [FILE]\n"
    "\n"
    "Reads a log of decisions, or else the configured one, and checks that each line is an entry,\n"
    "follows the one before it in number, and names its hash. Prints the number of entries and "
    "the\n"
    "hash of the last: keep them elsewhere to see later that no end was cut off.\n"
    "\n"
    "  --config FILE    this configuration file, and no other\n"
    "  --help           show this text\n"
    "\n"
    "Exit status: 0 the chain holds; 1 it does not: stdout says where; 2 the file cannot be read,\n"
    "or the command line is wrong.\n"
    "Example: sallyport audit verify\n";

enum { OPT_CONFIG = 256, OPT_HELP };

static const struct option known[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static int complain(const char *what)
{
    (void)fprintf(stderr, "sallyport audit: %s (see --help)\n", what);
    return SP_EXIT_USAGE;
}

/* Unreadable is 2 here. */
static int fail(const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return SP_EXIT_USAGE;
}

static int verify(const char *path)
{
    struct sp_audit_report report;
    struct sp_err e = {0};

    if (sp_audit_verify(path, &report, &e) < 0)
        return fail(&e);
    if (report.line != 0)
        (void)printf("%s:%llu: %s\n", path, (unsigned long long)report.line, report.fault);
    else
        (void)printf("%llu entries, last %s\n", (unsigned long long)report.entries, report.last);
    if (fflush(stdout) != 0) {
        (void)sp_fail(&e, SP_E_SYSTEM, errno, "write the answer");
        return fail(&e);
    }
    return report.line != 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}

/* The configured log; NULL: it was said why there is none. */
static char *find_log(const char *config_file)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    const struct sp_config_ask ask = {.file = config_file, .environment = environ};
    struct sp_err e = {0};
    char *path = NULL;

    if (sp_config_load(&ask, &config, &e) < 0) {
        (void)sp_cli_complain(&e);
        return NULL;
    }
    if (sp_config_audit_log(&config, &path, &e) < 0)
        (void)sp_cli_complain(&e);
    else if (path == NULL)
        (void)complain("no log is configured; name a file");
    return path;
}

static int run(int argc, char **argv)
{
    const char *config_file = NULL;
    int opt;

    argv[0] = (char *)(uintptr_t) "sallyport audit verify"; /* getopt's complaints begin with it */
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return SP_EXIT_OK;
        }
        if (opt != OPT_CONFIG)
            return SP_EXIT_USAGE; /* getopt has said what is wrong */
        config_file = optarg;
    }
    if (argc - optind > 1)
        return complain("one file at most");
    if (argc - optind == 1)
        return verify(argv[optind]);
    auto_free char *path = find_log(config_file);
    return path == NULL ? SP_EXIT_USAGE : verify(path);
}

int sp_cmd_audit(int argc, char **argv)
{
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        (void)fputs(help, stdout);
        return SP_EXIT_OK;
    }
    if (argc == 0 || strcmp(argv[0], "verify") != 0)
        return complain("the only thing to do with a log is `verify`");
    return run(argc, argv);
}
