/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/patch_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "approve/patch/patch.h"
#include "base/auto.h"
#include "cli/cli.h"
#include "sandbox/resolve.h"

#define PATCH_BYTES (16U << 20)

/* ---- the patch ---- */

int sp_patch_files_read(struct sp_buf *out, struct sp_err *e)
{
    /* The digests of what was approved are part of a report, and not longer than one. */
    const size_t max = PATCH_BYTES + SP_PATCH_REPORT_BYTES;

    out->max = max + 65536;
    for (;;) {
        char *room = sp_buf_room(out, 65536);
        const ssize_t n = room == NULL ? 0 : read(STDIN_FILENO, room, 65536);

        if (room == NULL || out->len > max)
            return sp_fail(e, SP_E_INVALID, 0, "invalid patch: it is larger than 16 MiB");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "Failed to read PATCH from stdin");
        if (n == 0)
            return 0;
        out->len += (size_t)n;
    }
}

/* ---- what there is to say ---- */

static int print(FILE *to, const char *text, size_t n)
{
    return fwrite(text, 1, n, to) == n && fflush(to) == 0 ? SP_EXIT_OK : SP_EXIT_FAILED;
}

/* "Invalid patch hunk on line 3: ..." for what the parser calls "invalid hunk at line 3, ...". */
int sp_patch_files_complain(const struct sp_err *e)
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

/* What was written before something failed stays, and is told. */
static void tell_done(const struct sp_patch_changes *all, uint32_t done)
{
    const struct sp_patch_changes part = {all->items, done, NULL};
    auto_buf struct sp_buf text = {0};

    if (done == 0 || !sp_patch_add_summary(&text, &part))
        return;
    const char *lines = memchr(text.data, '\n', text.len);
    (void)fputs("These files were updated before that:\n", stderr);
    if (lines != NULL)
        (void)print(stderr, lines + 1, text.len - (size_t)(lines + 1 - text.data));
}

static int tell_success(const struct sp_patch_changes *c)
{
    auto_buf struct sp_buf text = {0};

    return sp_patch_add_summary(&text, c) ? print(stdout, text.data, text.len) : SP_EXIT_FAILED;
}

/* ---- where ---- */

/*
 * Whoever asks goes by the names of paths: with a link in `base`, ".." leads elsewhere for him than
 * for the kernel. What he was not told of is not touched.
 */
static int check_path(struct sp_str written, const char *full, const struct sp_patch_way *w,
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

static int check_places(const struct sp_patch_changes *c, const struct sp_patch_way *w,
                        struct sp_err *e)
{
    int r = 0;

    if (strcmp(w->base, w->cwd) == 0)
        return 0;
    for (uint32_t i = 0; r == 0 && i < c->count; i++) {
        const struct sp_patch_change *one = &c->items[i];

        r = check_path(one->path, one->full_path, w, e);
        if (r == 0 && one->full_target != NULL)
            r = check_path(one->move_to, one->full_target, w, e);
    }
    return r;
}

/* ---- doing it ---- */

static int report(const struct sp_patch_changes *c)
{
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    return sp_patch_add_report(&text, c, &e) == 0 ? print(stdout, text.data, text.len)
                                                  : sp_patch_files_complain(&e);
}

static int apply(const struct sp_patch_changes *c, struct sp_str digests,
                 const struct sp_patch_way *w)
{
    struct sp_err e = {0};
    uint32_t done = 0;
    int r = check_places(c, w, &e);

    if (r == 0 && w->what == SP_PATCH_REPORT)
        return report(c);
    if (r == 0 && w->what == SP_PATCH_APPROVED)
        r = sp_patch_check_approved(c, digests, &e);
    if (r == 0 && w->what == SP_PATCH_CHECK && w->refuses_links)
        r = sp_patch_check_links(c, &e);
    if (r == 0 && w->what != SP_PATCH_CHECK)
        r = sp_patch_apply(c, w->refuses_links, &done, &e);
    if (r == 0)
        return tell_success(c);
    (void)sp_patch_files_complain(&e);
    tell_done(c, done);
    return SP_EXIT_FAILED;
}

static int patch_files(const struct sp_patch *p, struct sp_str digests,
                       const struct sp_patch_way *w)
{
    struct sp_patch_changes changes = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_err e = {0};
    int status;

    if (sp_patch_verify(p, w->cwd, w->keeps_endings, NULL, &changes, &why, &e) == 0) {
        status = apply(&changes, digests, w);
    } else if (why.len > 0) {
        (void)print(stderr, why.data, why.len);
        (void)fputc('\n', stderr);
        status = SP_EXIT_FAILED;
    } else {
        status = sp_patch_files_complain(&e);
    }
    sp_patch_changes_done(&changes);
    return status;
}

/* Who asks for a report, or has asked for one, knows where it belongs. */
static bool is_for_another(const struct sp_patch_way *w)
{
    return w != NULL && (w->what == SP_PATCH_REPORT || w->what == SP_PATCH_APPROVED);
}

/* Whether there is anything to do, and to do it here. */
static int check_patch(const struct sp_patch *p, const struct sp_patch_way *w)
{
    if (p->hunk_count == 0) {
        (void)fputs("No files were modified.\n", stderr);
        return SP_EXIT_FAILED;
    }
    if (!is_for_another(w) && p->environment_id.p != NULL &&
        !sp_str_eq(p->environment_id, SP_STR("local"))) {
        (void)fprintf(stderr,
                      "Invalid patch: it is for the environment '" SP_STR_FMT
                      "', and this verb changes files here\n",
                      SP_STR_ARG(p->environment_id));
        return SP_EXIT_FAILED;
    }
    return SP_EXIT_OK;
}

int sp_patch_files(struct sp_str text, const struct sp_patch_way *w)
{
    struct sp_patch patch = {0};
    struct sp_str digests = {0};
    struct sp_err e = {0};
    int status;

    if ((w != NULL && w->what == SP_PATCH_APPROVED &&
         sp_patch_find_approved(text, &digests, &text, &e) < 0) ||
        sp_patch_parse(text, &patch, &e) < 0)
        return sp_patch_files_complain(&e);
    status = check_patch(&patch, w);
    if (status == SP_EXIT_OK && w != NULL)
        status = patch_files(&patch, digests, w);
    sp_patch_done(&patch);
    return status;
}

/* ---- in a cell ---- */

static bool read_what(const char *word, enum sp_patch_what *ret)
{
    static const char *const words[] = {[SP_PATCH_CHECK] = "check",
                                        [SP_PATCH_WRITE] = "apply",
                                        [SP_PATCH_REPORT] = "report",
                                        [SP_PATCH_APPROVED] = "approved"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i]) == 0) {
            *ret = (enum sp_patch_what)i;
            return true;
        }
    return false;
}

/* patch-inside check|apply|report|approved lf|keep follow|refuse BASE */
int sp_cmd_patch_inside(int argc, char **argv)
{
    auto_buf struct sp_buf text = {0};
    auto_free char *cwd = getcwd(NULL, 0);
    struct sp_patch_way w = {.cwd = cwd};
    struct sp_err e = {0};

    if (argc != 4 || cwd == NULL || !read_what(argv[0], &w.what))
        return SP_EXIT_USAGE;
    auto_free char *base = sp_path_normalise(argv[3], cwd);
    if (base == NULL)
        return SP_EXIT_USAGE;
    w.base = base;
    w.keeps_endings = strcmp(argv[1], "keep") == 0;
    w.refuses_links = strcmp(argv[2], "follow") != 0;
    if (sp_patch_files_read(&text, &e) < 0)
        return sp_patch_files_complain(&e);
    return sp_patch_files((struct sp_str){text.data, text.len}, &w);
}
