/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport audit verify`: checks the hash chain of an audit log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "approve/audit.h"
#include "base/auto.h"
#include "cli/cli.h"
#include "config/config_approvals.h"

static const struct sp_option options[] = {
    SP_OPT_STRING(struct sp_config_options, file, "config", "FILE",
                  "read this configuration file and no other (default: those of the usual places)"),
    SP_OPT_END,
};

/* Exit status 1 is for a broken chain: a log that cannot be read is 2. */
static int report_unreadable(const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return SP_EXIT_USAGE;
}

static int verify_log(const char *path)
{
    struct sp_audit_report report;
    struct sp_err e = {0};

    if (sp_audit_verify(path, &report, &e) < 0)
        return report_unreadable(&e);
    if (report.line != 0)
        (void)printf("%s:%llu: %s\n", path, (unsigned long long)report.line, report.fault);
    else
        (void)printf("%llu entries, last %s\n", (unsigned long long)report.entries, report.last);
    if (fflush(stdout) != 0) {
        (void)sp_fail(&e, SP_E_SYSTEM, errno, "write to stdout");
        return report_unreadable(&e);
    }
    return report.line != 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}

static int run_verify(void *values, char **operands)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    auto_free char *path = NULL;
    struct sp_err e = {0};

    if (operands[0] != NULL)
        return verify_log(operands[0]);
    if (sp_cli_load_config(values, NULL, &config, &e) < 0 ||
        sp_config_audit_log(&config, &path, &e) < 0)
        return report_unreadable(&e);
    return path != NULL
               ? verify_log(path)
               : sp_command_misused(&sp_command_audit, "no audit log is configured: name a file");
}

static int audit_main(int argc, char **argv)
{
    struct sp_config_options o = {0};

    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        sp_command_print_help(&sp_command_audit);
        return SP_EXIT_OK;
    }
    if (argc == 0 || strcmp(argv[0], "verify") != 0)
        return sp_command_misused(&sp_command_audit, "the only subcommand is `verify`");
    return sp_command_run(&sp_command_audit, argc - 1, argv + 1, &o, run_verify);
}

const struct sp_cli_command sp_command_audit = {
    .name = "audit",
    .summary = "check the log of decisions",
    .usage = "sallyport audit verify [OPTIONS] [FILE]\n"
             "\n"
             "Reads an audit log (default: the configured one) and checks that each line is an\n"
             "entry, that its number follows the one before, and that it has the hash of that\n"
             "one. Prints the number of entries and the hash of the last one: keep both somewhere\n"
             "else to notice later that entries were cut off at the end.\n",
    .notes = "Exit status: 0 the chain is intact; 1 it is broken: stdout says where; 2 the file\n"
             "cannot be read, or the command line is wrong.\n"
             "Example: sallyport audit verify\n",
    .options = options,
    .max_operands = 1,
    .main = audit_main,
};
