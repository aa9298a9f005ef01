/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/json.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/cli.h"
#include "cli/layers.h"
#include "cli/port.h"
#include "core/journal.h"
#include "core/probe.h"
#include "os/landlock.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"

static const char help[] =
    "Usage: sallyport doctor [--json]\n"
    "\n"
    "Tries each layer that a sandbox is made of, and says which tier this host reaches, which\n"
    "policies it cannot enforce, and how to get what is missing.\n"
    "\n"
    "  --json     one JSON object instead of text\n"
    "  --help     show this text\n"
    "\n"
    "Exit status: 0 if every policy can be enforced (tier cell), 1 if not, 2 for a wrong flag.\n";

static const char program[] = "/proc/self/exe";

/* What one of the modes meets here. */
struct verdict {
    enum sp_mode mode;
    bool is_enforced;
    char why_not[400];
};

struct findings {
    struct utsname host;
    struct sp_powers powers;
    enum sp_tier tier;
    int landlock;
    struct sp_layer layers[SP_LAYER_MAX];
    struct verdict verdicts[4];
};

/* ---- finding out ---- */

static int make_policy(enum sp_mode mode, const char *cwd, struct sp_policy *ret, struct sp_err *e)
{
    const struct sp_legacy l = {.mode = mode};
    int r = sp_profile_from_legacy(&l, &ret->profile, e);

    if (r == 0 && !sp_policy_add_root(ret, sp_str_of(cwd)))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a policy");
    return r;
}

static int try_mode(enum sp_mode mode, const struct sp_powers *powers,
                    const struct sp_fixed_places *fixed, struct sp_err *e)
{
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_resolved resolved __attribute__((cleanup(sp_resolved_done))) = {0};
    struct sp_survey survey __attribute__((cleanup(sp_survey_done))) = {0};
    auto_buf struct sp_buf plan = {0};
    int r = mode == SP_MODE_FULL_ACCESS ? 0 : make_policy(mode, "/usr", &policy, e);

    if (r < 0 || mode == SP_MODE_FULL_ACCESS)
        return r; /* nothing is to be enforced */
    r = sp_resolve(&policy, &resolved, e);
    if (r == 0)
        r = sp_survey_make(&policy, &resolved, fixed, &survey, e);
    return r < 0 ? r : sp_plan_compile(&survey, false, powers, &plan, e);
}

static void judge(struct findings *f)
{
    static const enum sp_mode modes[] = {SP_MODE_READ_ONLY, SP_MODE_WORKSPACE_WRITE,
                                         SP_MODE_EXTERNAL, SP_MODE_FULL_ACCESS};
    struct sp_hidden_paths hidden_paths = {0};
    char runtime_dir[512];

    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    (void)sp_hidden_paths_find(runtime_dir, &hidden_paths); /* no memory: fewer than a server has */
    const struct sp_fixed_places fixed = sp_hidden_paths_places(&hidden_paths);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct verdict *v = &f->verdicts[i];
        struct sp_err e = {0};

        v->mode = modes[i];
        v->is_enforced = try_mode(modes[i], &f->powers, &fixed, &e) == 0;
        if (!v->is_enforced)
            memcpy(v->why_not, e.msg, sizeof v->why_not);
    }
    sp_hidden_paths_done(&hidden_paths);
}

static int find_out(struct findings *f, struct sp_err *e)
{
    sp_port_fill_gaps();
    int r = sp_spawn_reserve(e);

    if (r == 0)
        r = sp_powers_probe(program, &f->powers, e);
    if (r < 0)
        return r;
    (void)uname(&f->host);
    f->landlock = sp_landlock_abi();
    f->tier = f->powers.has_cells    ? SP_TIER_CELL
              : f->powers.has_filter ? SP_TIER_THIN
                                     : SP_TIER_NONE;
    sp_layers_try(program, f->layers);
    judge(f);
    return 0;
}

/* ---- telling ---- */

static const char *tier_means(enum sp_tier tier)
{
    switch (tier) {
    case SP_TIER_CELL:
        return "every policy can be enforced";
    case SP_TIER_THIN:
        return "policies that treat some places differently are refused";
    case SP_TIER_NONE:
        break;
    }
    return "every policy that restricts anything is refused";
}

static const char *const state_names[] = {
    [SP_LAYER_UNTESTED] = "untested", [SP_LAYER_OK] = "ok", [SP_LAYER_MISSING] = "missing"};

static bool print_layer(enum sp_layer_name n, const struct sp_layer *l, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "  %-9s %-18s %s", state_names[l->state], sp_layer_word(n),
                            sp_layer_is(n));

    if (l->err != 0)
        ok = ok && sp_buf_printf(out, ": %s", strerror(l->err));
    ok = ok && sp_buf_printf(out, "\n");
    if (l->state == SP_LAYER_MISSING)
        ok = ok && sp_buf_printf(out, "            without it: %s\n", sp_layer_without(n));
    if (l->remedy != NULL)
        ok = ok && sp_buf_printf(out, "            remedy: %s\n", l->remedy);
    return ok;
}

static bool print_landlock(const struct findings *f, struct sp_buf *out)
{
    bool ok =
        sp_buf_printf(out, "\nlandlock: level %d of %d known\n", f->landlock, SP_LANDLOCK_NEWEST);

    for (int i = f->landlock + 1; ok && i <= SP_LANDLOCK_NEWEST; i++)
        ok = sp_buf_printf(out, "  missing   level %d            %s\n", i,
                           sp_landlock_level_means(i));
    return ok;
}

static bool print_text(const struct findings *f, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "sallyport %s on %s %s, %s, uid %u\ntier: %s: %s\n\nlayers:\n",
                            SP_VERSION, f->host.sysname, f->host.release, f->host.machine,
                            (unsigned)geteuid(), sp_tier_name(f->tier), tier_means(f->tier));

    for (int i = 0; ok && i < SP_LAYER_MAX; i++)
        ok = print_layer((enum sp_layer_name)i, &f->layers[i], out);
    ok = ok && print_landlock(f, out) && sp_buf_printf(out, "\npolicies:\n");
    for (size_t i = 0; ok && i < sizeof f->verdicts / sizeof f->verdicts[0]; i++) {
        const struct verdict *v = &f->verdicts[i];

        ok = sp_buf_printf(out, "  %-9s %s%s%s\n", v->is_enforced ? "ok" : "refused",
                           sp_mode_name(v->mode), v->is_enforced ? "" : ": ", v->why_not);
    }
    return ok;
}

/* ---- as JSON ---- */

static bool add_member(struct sp_buf *out, const char *key, const char *value)
{
    return sp_buf_printf(out, "\"%s\":", key) &&
           (value == NULL || value[0] == 0 ? sp_buf_printf(out, "null")
                                           : sp_json_add_str(out, sp_str_of(value)));
}

static bool add_layer(enum sp_layer_name n, const struct sp_layer *l, struct sp_buf *out)
{
    return sp_buf_printf(out, "{") && add_member(out, "name", sp_layer_word(n)) &&
           sp_buf_printf(out, ",") && add_member(out, "state", state_names[l->state]) &&
           sp_buf_printf(out, ",") &&
           add_member(out, "errno", l->err == 0 ? NULL : strerrorname_np(l->err)) &&
           sp_buf_printf(out, ",") && add_member(out, "is", sp_layer_is(n)) &&
           sp_buf_printf(out, ",") && add_member(out, "without", sp_layer_without(n)) &&
           sp_buf_printf(out, ",") && add_member(out, "remedy", l->remedy) &&
           sp_buf_printf(out, "}");
}

static bool add_landlock(const struct findings *f, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "\"landlock\":{\"level\":%d,\"newest\":%d,\"missing\":[",
                            f->landlock, SP_LANDLOCK_NEWEST);

    for (int i = f->landlock + 1; ok && i <= SP_LANDLOCK_NEWEST; i++)
        ok = sp_buf_printf(out, "%s{\"level\":%d,", i == f->landlock + 1 ? "" : ",", i) &&
             add_member(out, "means", sp_landlock_level_means(i)) && sp_buf_printf(out, "}");
    return ok && sp_buf_printf(out, "]}");
}

static bool add_verdict(const struct verdict *v, struct sp_buf *out)
{
    return sp_buf_printf(out, "{") && add_member(out, "mode", sp_mode_name(v->mode)) &&
           sp_buf_printf(out, ",\"enforced\":%s,", v->is_enforced ? "true" : "false") &&
           add_member(out, "why_not", v->why_not) && sp_buf_printf(out, "}");
}

static bool print_json(const struct findings *f, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "{") && add_member(out, "version", SP_VERSION) &&
              sp_buf_printf(out, ",") && add_member(out, "kernel", f->host.release) &&
              sp_buf_printf(out, ",") && add_member(out, "machine", f->host.machine) &&
              sp_buf_printf(out, ",\"uid\":%u,", (unsigned)geteuid()) &&
              add_member(out, "tier", sp_tier_name(f->tier)) && sp_buf_printf(out, ",\"layers\":[");

    for (int i = 0; ok && i < SP_LAYER_MAX; i++)
        ok = sp_buf_printf(out, "%s", i == 0 ? "" : ",") &&
             add_layer((enum sp_layer_name)i, &f->layers[i], out);
    ok = ok && sp_buf_printf(out, "],") && add_landlock(f, out) &&
         sp_buf_printf(out, ",\"policies\":[");
    for (size_t i = 0; ok && i < sizeof f->verdicts / sizeof f->verdicts[0]; i++)
        ok = sp_buf_printf(out, "%s", i == 0 ? "" : ",") && add_verdict(&f->verdicts[i], out);
    return ok && sp_buf_printf(out, "]}\n");
}

/* ---- the verb ---- */

static int report(bool is_json)
{
    auto_free struct findings *f = calloc(1, sizeof *f);
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    if (f == NULL)
        return SP_EXIT_FAILED;
    if (find_out(f, &e) < 0)
        return sp_cli_complain(&e);
    if (!(is_json ? print_json(f, &text) : print_text(f, &text)) ||
        fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout) != 0)
        return SP_EXIT_FAILED;
    return f->tier == SP_TIER_CELL ? SP_EXIT_OK : SP_EXIT_FAILED;
}

int sp_cmd_doctor(int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    auto_free char **args = calloc((size_t)argc + 2, sizeof *args);
    bool is_json = false;
    int opt;

    if (args == NULL)
        return SP_EXIT_FAILED;
    args[0] = (char *)(uintptr_t) "sallyport doctor";
    for (int i = 0; i < argc; i++)
        args[i + 1] = argv[i];
    optind = 1;
    while ((opt = getopt_long(argc + 1, args, "", known, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(help, stdout);
            return SP_EXIT_OK;
        }
        if (opt != 'j')
            return SP_EXIT_USAGE;
        is_json = true;
    }
    if (optind <= argc) {
        (void)fprintf(stderr, "sallyport doctor: unexpected argument `%s` (see --help)\n",
                      args[optind]);
        return SP_EXIT_USAGE;
    }
    (void)sp_log_set_level("error");
    return report(is_json);
}
