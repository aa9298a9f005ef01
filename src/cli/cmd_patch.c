/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport patch`: a patch, held against the files and applied (approvals.md 14.3).
 *
 * Under a sandbox our own program does it once more, as the command that is confined, with the
 * patch as its stdin: what it may read and write is the kernel's answer. Without one it is done
 * here, and no symbolic link is followed.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/denied_text.h"
#include "cli/patch_files.h"
#include "cli/run_place.h"
#include "config/policy.h"

static const char help[] =
    "Usage: sallyport patch [OPTIONS] [PATCH]\n"
    "\n"
    "Applies a patch (*** Begin Patch ... *** End Patch), the argument or else stdin. All of it "
    "is\n"
    "verified before the first file is written.\n"
    "\n"
    "  --check                  verify, print what success would print, write nothing\n"
    "  --cwd DIR                where relative paths begin, and the workspace (default: here)\n"
    "  --sandbox MODE           under this policy: :workspace (default), :read-only,\n"
    "                           :danger-full-access, a mode or a profile of the configuration\n"
    "  --preserve-line-endings  new lines end as most lines of their file do (default: in LF,\n"
    "                           unless the configuration says preserve_line_endings)\n"
    "  --help                   show this text\n"
    "\n"
    "Exit status: 0 done; 1 nothing was written, or not all: stderr says what; 2 a wrong flag, no\n"
    "patch, or more than one.\n"
    "Example: sallyport patch --check < fix.patch\n";

static const char usage[] = "Usage: sallyport patch [--check] [--cwd DIR] [--sandbox MODE] PATCH\n"
                            "       echo PATCH | sallyport patch\n";

/* A confined patch leaves nothing behind: there is no one to wait for. */
#define QUIET_MS 100
#define AFTER_MS 1000

struct options {
    bool is_check, keeps_endings;
    const char *cwd, *sandbox;
    const char *patch; /* NULL: stdin has it */
};

/* ---- the command line ---- */

enum { OPT_CHECK = 256, OPT_CWD, OPT_SANDBOX, OPT_ENDINGS, OPT_HELP };

static const struct option known[] = {
    {"check", no_argument, NULL, OPT_CHECK},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"preserve-line-endings", no_argument, NULL, OPT_ENDINGS},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool take(struct options *o, int opt)
{
    switch (opt) {
    case OPT_CHECK:
        o->is_check = true;
        return true;
    case OPT_CWD:
        o->cwd = optarg;
        return true;
    case OPT_SANDBOX:
        o->sandbox = optarg;
        return true;
    case OPT_ENDINGS:
        o->keeps_endings = true;
        return true;
    default: /* getopt has said what is wrong */
        return false;
    }
}

/* 0: go on. SP_EXIT_USAGE: it was said what is wrong. -1: help was asked for and given. `args` has
 * room for argc + 2. */
static int read_options(int argc, char **argv, char **args, struct options *o)
{
    int opt;

    args[0] = (char *)(uintptr_t) "sallyport patch"; /* what getopt's complaints begin with */
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "+", known, NULL)) != -1) {
        if (opt == OPT_HELP) {
            (void)fputs(help, stdout);
            return -1;
        }
        if (!take(o, opt))
            return SP_EXIT_USAGE;
    }
    o->patch = args[optind];
    if (o->patch == NULL || args[optind + 1] == NULL)
        return 0;
    (void)fputs("sallyport patch: one patch at most (see --help)\n", stderr);
    return SP_EXIT_USAGE;
}

static int read_patch(const struct options *o, struct sp_buf *out, struct sp_err *e)
{
    if (o->patch == NULL)
        return sp_patch_files_read(out, e);
    return sp_buf_add_str(out, sp_str_of(o->patch))
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the patch");
}

/* ---- under a sandbox ---- */

static int put_on_stdin(struct sp_str text, struct sp_err *e)
{
    auto_close int fd = memfd_create("patch", MFD_CLOEXEC);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hold the patch");
    while (text.n > 0) {
        const ssize_t n = write(fd, text.p, text.n);

        if (n < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "hold the patch");
        text.p += n;
        text.n -= (size_t)n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hold the patch");
    return 0;
}

static int carry(struct sp_launch *launch, const char *cwd, struct sp_carry_result *ret,
                 struct sp_err *e)
{
    static const struct sp_own_places_ask usual = {0};
    struct sp_carry *c = NULL;
    struct sp_carry_options how = {.launch = launch, .quiet_ms = QUIET_MS, .after_ms = AFTER_MS};
    int r = sp_carry_new(&c, e);

    if (r == 0)
        r = sp_place_here(sp_carry_loop(c), cwd, &usual, &how.backend, e);
    if (r == 0)
        r = sp_carry_run(c, &how, ret, e);
    sp_backend_free(how.backend);
    sp_carry_free(c);
    return r;
}

static void report_denial(const struct sp_carry_result *result)
{
    auto_buf struct sp_buf text = {0};

    if (isatty(STDERR_FILENO) && sp_denied_write(result, false, &text) && text.len > 0)
        (void)!write(STDERR_FILENO, text.data, text.len);
}

static int status_of(const struct sp_carry_result *r)
{
    switch (r->end) {
    case SP_CARRY_EXITED:
    case SP_CARRY_ABANDONED:
        return r->exit.code < 0 ? SP_EXIT_FAILED : r->exit.code;
    case SP_CARRY_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_CARRY_REJECTED:
    case SP_CARRY_REFUSED:
        return sp_cli_complain(&r->error);
    case SP_CARRY_LOST:
        (void)fprintf(stderr, "Error: the sandbox ended before the patch was applied\n");
        return SP_EXIT_FAILED;
    case SP_CARRY_UNREACHABLE:
    case SP_CARRY_TIMED_OUT:
        break; /* not here */
    }
    return SP_EXIT_FAILED;
}

static int run_confined(const struct sp_patch_way *w, struct sp_str text,
                        const struct sp_policy *policy)
{
    const char *what = w->what == SP_PATCH_CHECK ? "check" : "apply";
    const char *words[] = {"/proc/self/exe", "patch-inside", what, w->keeps_endings ? "keep" : "lf",
                           "follow",         w->base,        NULL};
    const struct sp_environ_ask everything = {
        .own = environ, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    struct sp_launch launch = {
        .name = SP_STR("patch"),
        .wants_stdin = true,
        .cwd = sp_str_of(w->base),
        .environ = &everything,
        .policy = policy,
        .is_own_program = true,
    };
    struct sp_carry_result result = {0};
    struct sp_err e = {0};
    auto_free struct sp_str *argv = sp_carry_argv((char *const *)(uintptr_t)words, &launch);

    if (argv == NULL)
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    if (argv == NULL || put_on_stdin(text, &e) < 0 || carry(&launch, w->base, &result, &e) < 0)
        return sp_cli_complain(&e);
    report_denial(&result);
    return status_of(&result);
}

/* ---- the verb ---- */

static int choose(const struct options *o, struct sp_str text, const char *cwd)
{
    const struct sp_config_ask ask = {.environment = environ};
    const char *name = o->sandbox != NULL ? o->sandbox : ":workspace";
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_err e = {0};
    bool is_open = false;

    if (sp_config_load(&ask, &config, &e) < 0 ||
        sp_config_policy(&config, name, cwd, &policy, &is_open, &e) < 0)
        return sp_cli_complain(&e);
    const bool keeps = o->keeps_endings || config.preserve_line_endings;
    const struct sp_patch_way here = {.what = o->is_check ? SP_PATCH_CHECK : SP_PATCH_WRITE,
                                      .cwd = cwd,
                                      .base = cwd,
                                      .keeps_endings = keeps,
                                      .refuses_links = true};
    return is_open ? sp_patch_files(text, &here) : run_confined(&here, text, &policy);
}

static int do_it(const struct options *o)
{
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (read_patch(o, &text, &e) < 0)
        return sp_patch_files_complain(&e);
    if (text.len == 0 && o->patch == NULL) {
        (void)fputs(usage, stderr);
        return SP_EXIT_USAGE;
    }
    auto_free char *cwd = sp_place_dir(o->cwd, &e);
    if (cwd == NULL)
        return sp_cli_complain(&e);
    /* What is no patch needs no sandbox to be refused. */
    const struct sp_str patch = {text.data, text.len};
    const int status = sp_patch_files(patch, NULL);
    return status != SP_EXIT_OK ? status : choose(o, patch, cwd);
}

int sp_cmd_patch(int argc, char **argv)
{
    struct options o = {0};
    auto_free char **args = calloc((size_t)argc + 3, sizeof *args);

    if (args == NULL)
        return SP_EXIT_FAILED;
    const int status = read_options(argc, argv, args, &o);
    if (status != 0)
        return status < 0 ? SP_EXIT_OK : status;
    (void)sp_log_set_level("error");
    return do_it(&o);
}
