/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport patch`: verifies a patch against the files and applies it.
 *
 * Under a sandbox the program runs itself again as the confined command (`patch-inside`), with the
 * patch as stdin, so that the kernel decides what the patch may read and write. Without a sandbox
 * the patch is applied in this process, and no symbolic link is followed. The front of a server
 * runs `patch-inside` for apply_patch, too: first for a report of the changes, then to apply
 * exactly those that were approved.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "approve/patch/patch.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "cli/run_place.h"
#include "cli/signals.h"
#include "config/policy.h"
#include "sandbox/resolve.h"

#define PATCH_BYTES (16U << 20)

/* A confined patch starts no processes, so nothing holds its streams after its exit. */
#define QUIET_MS 100
#define AFTER_MS 1000

struct patch_options {
    bool is_check, keeps_endings, is_json;
    const char *cwd, *sandbox;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct patch_options, is_check, "check",
                "verify, print what would be changed, write nothing"),
    SP_OPT_STRING(struct patch_options, cwd, "cwd", "DIR",
                  "where relative paths begin, and the workspace (default: the current directory)",
                  .short_name = 'w'),
    SP_OPT_STRING(
        struct patch_options, sandbox, "sandbox", "MODE",
        "under this policy: :workspace (default), :read-only, :danger-full-access, a mode or a "
        "profile of the configuration"),
    SP_OPT_FLAG(struct patch_options, keeps_endings, "preserve-line-endings",
                "new lines end as most lines of their file do (default: in LF, unless the "
                "configuration says "
                "preserve_line_endings)"),
    SP_OPT_FLAG(struct patch_options, is_json, "json",
                "print one JSON object: added, modified, deleted, replaced"),
    SP_OPT_END,
};

enum patch_task {
    PATCH_CHECK,    /* prints what success would print */
    PATCH_WRITE,    /* applies the patch */
    PATCH_REPORT,   /* prints the changes for another process (approve/patch/patch.h) */
    PATCH_APPROVED, /* applies the patch if its changes are those of the report in front of it */
};

struct patch_way {
    enum patch_task task;
    const char *cwd;  /* the working directory, without symbolic links */
    const char *base; /* the same directory as the requester named it */
    bool keeps_endings, refuses_links, is_json;
};

/* ---- messages ---- */

/* The wording of other apply_patch programs: "Invalid patch hunk on line 3: ..." for what the
 * parser calls "invalid hunk at line 3, ...". */
static int report_patch_error(const struct sp_err *e)
{
    char text[640];
    unsigned line;
    int at = 0;

    (void)sp_error_text(e, text, sizeof text);
    if (sscanf(text, "invalid hunk at line %u, %n", &line, &at) == 1 && at > 0)
        (void)fprintf(stderr, "Invalid patch hunk on line %u: %s\n", line, text + at);
    else if (strncmp(text, "invalid patch", strlen("invalid patch")) == 0)
        (void)fprintf(stderr, "I%s\n", text + 1);
    else
        (void)fprintf(stderr, "%s\n", text);
    return SP_EXIT_FAILED;
}

/* ---- applying it here ---- */

/*
 * The requester resolves ".." by names; the kernel follows links first. If a link in `base` makes
 * the two differ, the file is not the one that was shown to the requester: refuse it.
 */
static int check_path(struct sp_str written, const char *full, const struct patch_way *w,
                      struct sp_err *e)
{
    auto_free char *meant = sp_path_normalise(written.p, w->base);
    auto_free char *there = NULL;

    if (meant == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find %s", full);
    const bool is_below = sp_path_is_in(meant, w->base);
    const char *rest = is_below ? meant + strlen(w->base) : meant;
    if (asprintf(&there, "%s%s", is_below ? w->cwd : "", rest) < 0)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "find %s", full);
    return strcmp(there, full) == 0
               ? 0
               : sp_fail(e, SP_E_FAILED, 0,
                         "%s is not where its name says: a symbolic link is in the way", meant);
}

/* --check promises nothing that has happened. */
static bool add_summary(struct sp_buf *out, const struct sp_patch_changes *c, bool is_check)
{
    static const struct sp_str done = SP_STR("Success. Updated");
    auto_buf struct sp_buf text = {0};
    struct sp_str rest;

    if (!sp_patch_add_summary(&text, c))
        return false;
    rest = sp_buf_str(&text);
    return (!is_check || !sp_str_skip_prefix(&rest, done) || sp_buf_printf(out, "Would update")) &&
           sp_buf_add_str(out, rest);
}

static bool add_paths(struct sp_buf *out, const char *name, const struct sp_patch_changes *c,
                      enum sp_patch_kind kind)
{
    bool is_first = true;
    bool ok = sp_json_add_value(out, name, "[");

    for (uint32_t i = 0; ok && i < c->count; i++) {
        const struct sp_patch_change *one = &c->items[i];

        if (one->kind != kind)
            continue;
        ok = (is_first || sp_buf_add(out, ",", 1)) &&
             sp_json_add_str(out, one->move_to.p != NULL ? one->move_to : one->path);
        is_first = false;
    }
    return ok && sp_buf_add(out, "]", 1);
}

/* `Add File` replaces a file that is there, as codex has it. Appends to `json` the paths of those
 * files, or prints a line about each. Before the patch is applied. */
static bool tell_replaced(const struct sp_patch_changes *c, struct sp_buf *json)
{
    bool is_first = true;
    bool ok = json == NULL || sp_buf_printf(json, "[");

    for (uint32_t i = 0; ok && i < c->count; i++) {
        const struct sp_patch_change *one = &c->items[i];
        auto_buf struct sp_buf line = {0};

        if (one->kind != SP_PATCH_ADD || access(one->full_path, F_OK) != 0)
            continue;
        if (json != NULL)
            ok = (is_first || sp_buf_add(json, ",", 1)) && sp_json_add_str(json, one->path);
        else
            ok = sp_plain_add(&line, one->path) &&
                 fprintf(stderr, "sallyport: %.*s is there already: `Add File` replaces it\n",
                         (int)line.len, line.data) >= 0;
        is_first = false;
    }
    return ok && (json == NULL || sp_buf_printf(json, "]"));
}

static bool add_json(struct sp_buf *out, const struct sp_patch_changes *c, struct sp_str replaced,
                     bool is_check)
{
    return sp_buf_printf(out, "{\"written\":%s", is_check ? "false" : "true") &&
           add_paths(out, "added", c, SP_PATCH_ADD) &&
           add_paths(out, "modified", c, SP_PATCH_UPDATE) &&
           add_paths(out, "deleted", c, SP_PATCH_DELETE) &&
           sp_json_add_value(out, "replaced", "%s", replaced.p) && sp_buf_printf(out, "}\n");
}

static int do_task(const struct sp_patch_changes *c, struct sp_str digests,
                   const struct patch_way *w)
{
    const bool is_check = w->task == PATCH_CHECK;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf replaced = {0};
    struct sp_err e = {0};
    uint32_t applied = 0;
    int r = 0;

    for (uint32_t i = 0; r == 0 && strcmp(w->base, w->cwd) != 0 && i < c->count; i++) {
        const struct sp_patch_change *one = &c->items[i];

        r = check_path(one->path, one->full_path, w, &e);
        if (r == 0 && one->full_target != NULL)
            r = check_path(one->move_to, one->full_target, w, &e);
    }
    if (r == 0 && w->task == PATCH_REPORT)
        r = sp_patch_add_report(&text, c, &e);
    if (r == 0 && w->task == PATCH_APPROVED)
        r = sp_patch_check_approved(c, digests, &e);
    if (r == 0 && (is_check || w->task == PATCH_WRITE) &&
        (!tell_replaced(c, w->is_json ? &replaced : NULL) ||
         (w->is_json && !sp_buf_add(&replaced, "", 1))))
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "say what is replaced");
    if (r == 0 && w->task != PATCH_REPORT)
        r = sp_patch_apply(c, w->refuses_links, is_check, &applied, &e);
    if (r == 0 && w->task != PATCH_REPORT &&
        !(w->is_json ? add_json(&text, c, sp_buf_str(&replaced), is_check)
                     : add_summary(&text, c, is_check)))
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "say what was changed");
    if (r == 0)
        return sp_cli_print(sp_buf_str(&text), &e) == 0 ? SP_EXIT_OK : SP_EXIT_FAILED;
    (void)report_patch_error(&e);
    if (e.sys == EROFS && !w->refuses_links) /* inside of a sandbox */
        (void)fputs("Its sandbox keeps that read-only; --cwd and --sandbox choose what may be "
                    "written\n",
                    stderr);
    /* Files that were written before the error stay as they are, and are listed. */
    const struct sp_patch_changes part = {c->items, applied, NULL};
    if (applied != 0 && sp_patch_add_summary(&text, &part)) {
        struct sp_str lines = sp_buf_str(&text);

        (void)sp_str_cut(&lines, '\n'); /* the headline */
        (void)fprintf(stderr, "These files were updated before that:\n%.*s", (int)lines.n,
                      lines.n == 0 ? "" : lines.p);
    }
    return SP_EXIT_FAILED;
}

/* way NULL: only checks that the text is a patch for this host. */
static int patch_here(struct sp_str text, const struct patch_way *w)
{
    /* The requester of a report has chosen the environment already. */
    const bool is_for_any = w != NULL && (w->task == PATCH_REPORT || w->task == PATCH_APPROVED);
    struct sp_patch patch = {0};
    struct sp_patch_changes changes = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_str digests = {0};
    struct sp_err e = {0};
    int status = SP_EXIT_FAILED;

    if ((w != NULL && w->task == PATCH_APPROVED &&
         sp_patch_find_approved(text, &digests, &text, &e) < 0) ||
        sp_patch_parse(text, &patch, &e) < 0)
        return report_patch_error(&e);
    if (patch.hunk_count == 0)
        (void)fputs("No files were modified.\n", stderr);
    else if (!is_for_any && patch.environment_id.p != NULL &&
             !sp_str_eq(patch.environment_id, SP_STR("local")))
        (void)fprintf(stderr,
                      "Invalid patch: it is for the environment '" SP_STR_FMT
                      "', and this command changes files here\n",
                      SP_STR_ARG(patch.environment_id));
    else if (w == NULL)
        status = SP_EXIT_OK;
    else if (sp_patch_verify(&patch, w->cwd, w->keeps_endings, NULL, &changes, &why, &e) == 0)
        status = do_task(&changes, digests, w);
    else if (why.len > 0 && sp_buf_add(&why, "\n", 1))
        (void)fwrite(why.data, 1, why.len, stderr);
    else
        (void)report_patch_error(&e);
    sp_patch_changes_done(&changes);
    sp_patch_done(&patch);
    return status;
}

/* A patch, and in front of it the digests of an approved report, which are not longer than one.
 * path NULL: from stdin. */
static int read_patch(const char *path, struct sp_buf *out, struct sp_err *e)
{
    auto_close int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (path != NULL && fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "sallyport: read %s", path);
    const int err =
        sp_read_all(path == NULL ? STDIN_FILENO : fd, PATCH_BYTES + SP_PATCH_REPORT_BYTES, out);
    if (err == EFBIG || err == ENOMEM)
        return sp_fail(e, SP_E_INVALID, 0, "invalid patch: it is larger than 16 MiB");
    return err == 0 ? 0
                    : sp_fail(e, SP_E_SYSTEM, err, "Failed to read PATCH from %s",
                              path == NULL ? "stdin" : path);
}

/* patch-inside check|apply|report|approved lf|keep follow|refuse BASE [json] */
static int patch_inside_main(int argc, char **argv)
{
    static const char *const tasks[] = {[PATCH_CHECK] = "check",
                                        [PATCH_WRITE] = "apply",
                                        [PATCH_REPORT] = "report",
                                        [PATCH_APPROVED] = "approved"};
    auto_buf struct sp_buf text = {0};
    auto_free char *cwd = getcwd(NULL, 0);
    struct patch_way w = {.cwd = cwd};
    struct sp_err e = {0};
    size_t task = 0;

    if (argc < 4 || argc > 5 || cwd == NULL)
        return SP_EXIT_USAGE;
    w.is_json = argc == 5 && strcmp(argv[4], "json") == 0;
    while (task < sizeof tasks / sizeof tasks[0] && strcmp(argv[0], tasks[task]) != 0)
        task++;
    auto_free char *base = sp_path_normalise(argv[3], cwd);
    if (task == sizeof tasks / sizeof tasks[0] || base == NULL)
        return SP_EXIT_USAGE;
    w.task = (enum patch_task)task;
    w.base = base;
    w.keeps_endings = strcmp(argv[1], "keep") == 0;
    w.refuses_links = strcmp(argv[2], "follow") != 0;
    if (read_patch(NULL, &text, &e) < 0)
        return report_patch_error(&e);
    return patch_here((struct sp_str){text.data, text.len}, &w);
}

/* ---- applying it in a sandbox ---- */

static int run_confined(const struct patch_way *w, struct sp_str text,
                        const struct sp_policy *policy)
{
    const char *words[] = {"/proc/self/exe",
                           "patch-inside",
                           w->task == PATCH_CHECK ? "check" : "apply",
                           w->keeps_endings ? "keep" : "lf",
                           "follow",
                           w->base,
                           w->is_json ? "json" : NULL,
                           NULL};
    const struct sp_env_request everything = {
        .own = environ, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    struct sp_start launch = {
        .label = SP_STR("patch"),
        .wants_stdin = true,
        .cwd = sp_str_of(w->base),
        .environ = &everything,
        .policy = policy,
        .is_own_program = true,
    };
    static const struct sp_own_places_options usual = {0};
    const struct sp_place_run how = {.cwd = w->base,
                                     .own = &usual,
                                     .quiet_ms = QUIET_MS,
                                     .after_ms = AFTER_MS,
                                     .failed = SP_EXIT_FAILED,
                                     .what = "the patch was applied"};
    auto_close int fd = memfd_create("patch", MFD_CLOEXEC);
    int err = fd < 0 ? errno : sp_write_all(fd, text.p, text.n);
    struct sp_err e = {0};

    if (err == 0 && (lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0))
        err = errno;
    if (err != 0) {
        (void)sp_fail(&e, SP_E_SYSTEM, err, "copy the patch");
        return sp_cli_complain(&e);
    }
    return sp_place_run((char *const *)(uintptr_t)words, &launch, &how);
}

/* ---- the command ---- */

/* The argument is a patch, not the name of a file: it has several lines, or says so. */
static bool is_patch(const char *argument)
{
    return argument[0] == 0 || strchr(argument, '\n') != NULL || strncmp(argument, "***", 3) == 0 ||
           strncmp(argument, "<<", 2) == 0;
}

static bool is_unified_diff(struct sp_str text)
{
    const struct sp_str line = sp_str_cut(&text, '\n');

    return (line.n > 4 && memcmp(line.p, "--- ", 4) == 0 && text.n > 4 &&
            memcmp(text.p, "+++ ", 4) == 0) ||
           (line.n > 11 && memcmp(line.p, "diff --git ", 11) == 0);
}

static int run_patch(void *values, char **operands)
{
    const struct patch_options *o = values;
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    auto_buf struct sp_buf from_file = {0};
    struct sp_err e = {0};
    bool is_open = false;

    if (operands[0] != NULL && operands[1] != NULL)
        return sp_command_misused(&sp_command_patch, "one patch at most");
    (void)sp_log_set_level("error");
    const bool is_text = operands[0] != NULL && is_patch(operands[0]);
    if (operands[0] == NULL && isatty(STDIN_FILENO))
        sp_plain_say("sallyport", "reading a patch from the terminal; Ctrl-D ends it");
    if (!is_text && read_patch(operands[0], &from_file, &e) < 0)
        return report_patch_error(&e);
    if (operands[0] == NULL && from_file.len == 0) {
        (void)fputs("Usage: sallyport patch [--check] [--cwd DIR] [--sandbox MODE] PATCH|FILE\n"
                    "       echo PATCH | sallyport patch\n",
                    stderr);
        return SP_EXIT_USAGE;
    }
    const struct sp_str text =
        is_text ? sp_str_of(operands[0]) : (struct sp_str){from_file.data, from_file.len};
    if (is_unified_diff(text)) {
        sp_plain_say("sallyport",
                     "this is a unified diff, and the patches read here begin with `*** "
                     "Begin Patch`: apply it with `git apply` or `patch -p1`");
        return SP_EXIT_FAILED;
    }
    auto_free char *cwd = sp_place_dir(o->cwd, &e);
    if (cwd == NULL)
        return sp_cli_complain(&e);
    /* A text that is no patch is refused before the sandbox is made. */
    const int status = patch_here(text, NULL);
    if (status != SP_EXIT_OK)
        return status;
    if (sp_cli_load_config(NULL, NULL, &config, &e) < 0 ||
        sp_config_policy(&config, o->sandbox != NULL ? o->sandbox : ":workspace", cwd, &policy,
                         &is_open, &e) < 0)
        return sp_cli_complain(&e);
    const struct patch_way way = {.task = o->is_check ? PATCH_CHECK : PATCH_WRITE,
                                  .cwd = cwd,
                                  .base = cwd,
                                  .keeps_endings = o->keeps_endings || config.preserve_line_endings,
                                  .refuses_links = true,
                                  .is_json = o->is_json};
    sp_tell_if_slow(o->is_check ? "reading the files of the patch" : "applying the patch");
    const int applied = is_open ? patch_here(text, &way) : run_confined(&way, text, &policy);
    sp_tell_if_slow(NULL);
    return applied;
}

const struct sp_cli_command sp_command_patch = {
    .name = "patch",
    .summary = "apply a patch to files, confined",
    .usage = "sallyport patch [OPTIONS] [PATCH|FILE]\n"
             "\n"
             "Applies a patch (*** Begin Patch ... *** End Patch): the argument, the file that "
             "it names, or else stdin. All of it is verified before the first file is written.\n",
    .notes = "Exit status: 0 done; 1 nothing was written, or not all: stderr says what; 2 "
             "a wrong option, no patch, or more than one.\n"
             "Example: sallyport patch --check < fix.patch\n",
    .options = options,
    .operand = "FILE",
    .max_operands = UINT_MAX,
    .values_size = sizeof(struct patch_options),
    .run = run_patch,
};

const struct sp_cli_command sp_command_patch_inside = {.name = "patch-inside",
                                                       .main = patch_inside_main};
