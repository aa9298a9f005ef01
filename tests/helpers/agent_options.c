/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's command line. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "base/auto.h"
#include "sandbox/policy_json.h"

static const char help[] =
    "Usage: agent [OPTIONS] [-- PROGRAM [ARGUMENT ...]]\n"
    "\n"
    "  --remote URL         commands run on an exec-server; PROGRAM: on one that it is\n"
    "  --also ID=URL        another place for commands, after the first\n"
    "  --nowhere            there is no place for commands at all\n"
    "  --cwd DIR            where commands run\n"
    "  --resume-ms N        how long a lost connection is tried again\n"
    "  --cgroups            leaves of their own for commands\n"
    "  --deterministic      ids from 1000 on\n"
    "  --policy UNIT:N      tokens or bytes of an answer\n"
    "  --approval POLICY    never, on-request, on-failure, untrusted, granular, or\n"
    "                       granular-closed (nothing is asked about the sandbox)\n"
    "  --sandbox MODE       read-only, workspace-write, danger-full-access or external-sandbox\n"
    "  --profile FILE       a permission profile, as JSON, instead of a mode\n"
    "  --keep-endings       lines of patched files end as they did\n"
    "  --env-policy JSON    inherit, exclude, include_only, set, ignore_default_excludes\n"
    "  --poll-max MS  --exited-ttl MS  --notify-at N  --thread-id ID  --session-id ID\n"
    "  --no-login  --fixed-shell  --hide-denied  --additional  --no-timeout  --compat\n"
    "  --snapshots DIR      shells start from a snapshot, kept there\n"
    "  --rules FILE         rules for commands (repeatable)\n"
    "  --rules-in DIR       those of DIR/etc, DIR/home and the project, read again when they "
    "change\n"
    "  --known-safe HOW     off, list or list+git\n"
    "  --retry-reuses       who was approved once is not asked again after a denial\n"
    "  --audit FILE         the log of decisions\n"
    "  --user-dir DIR       where accepted rules go\n"
    "  --approval-timeout MS\n"
    "  --nobody             nobody answers questions\n"
    "  --hook PATH          a permission hook (repeatable)\n"
    "  --reviewer program:PATH  --strict-review  --hook-timeout MS  --review-timeout MS\n";

enum {
    OPT_REMOTE = 256,
    OPT_ALSO,
    OPT_NOWHERE,
    OPT_CWD,
    OPT_RESUME,
    OPT_CGROUPS,
    OPT_DETERMINISTIC,
    OPT_POLICY,
    OPT_APPROVAL,
    OPT_SANDBOX,
    OPT_PROFILE,
    OPT_KEEP_ENDINGS,
    OPT_ENV_POLICY,
    OPT_POLL_MAX,
    OPT_EXITED_TTL,
    OPT_NOTIFY_AT,
    OPT_THREAD_ID,
    OPT_SESSION_ID,
    OPT_NO_LOGIN,
    OPT_FIXED_SHELL,
    OPT_HIDE_DENIED,
    OPT_ADDITIONAL,
    OPT_NO_TIMEOUT,
    OPT_COMPAT,
    OPT_SNAPSHOTS,
    OPT_RULES,
    OPT_RULES_IN,
    OPT_KNOWN_SAFE,
    OPT_RETRY_REUSES,
    OPT_AUDIT,
    OPT_USER_DIR,
    OPT_APPROVAL_TIMEOUT,
    OPT_NOBODY,
    OPT_HOOK,
    OPT_REVIEWER,
    OPT_STRICT_REVIEW,
    OPT_HOOK_TIMEOUT,
    OPT_REVIEW_TIMEOUT,
};

static const struct option known[] = {
    {"remote", required_argument, NULL, OPT_REMOTE},
    {"also", required_argument, NULL, OPT_ALSO},
    {"nowhere", no_argument, NULL, OPT_NOWHERE},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"resume-ms", required_argument, NULL, OPT_RESUME},
    {"cgroups", no_argument, NULL, OPT_CGROUPS},
    {"deterministic", no_argument, NULL, OPT_DETERMINISTIC},
    {"policy", required_argument, NULL, OPT_POLICY},
    {"approval", required_argument, NULL, OPT_APPROVAL},
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"profile", required_argument, NULL, OPT_PROFILE},
    {"keep-endings", no_argument, NULL, OPT_KEEP_ENDINGS},
    {"env-policy", required_argument, NULL, OPT_ENV_POLICY},
    {"poll-max", required_argument, NULL, OPT_POLL_MAX},
    {"exited-ttl", required_argument, NULL, OPT_EXITED_TTL},
    {"notify-at", required_argument, NULL, OPT_NOTIFY_AT},
    {"thread-id", required_argument, NULL, OPT_THREAD_ID},
    {"session-id", required_argument, NULL, OPT_SESSION_ID},
    {"no-login", no_argument, NULL, OPT_NO_LOGIN},
    {"fixed-shell", no_argument, NULL, OPT_FIXED_SHELL},
    {"hide-denied", no_argument, NULL, OPT_HIDE_DENIED},
    {"additional", no_argument, NULL, OPT_ADDITIONAL},
    {"no-timeout", no_argument, NULL, OPT_NO_TIMEOUT},
    {"compat", no_argument, NULL, OPT_COMPAT},
    {"snapshots", required_argument, NULL, OPT_SNAPSHOTS},
    {"rules", required_argument, NULL, OPT_RULES},
    {"rules-in", required_argument, NULL, OPT_RULES_IN},
    {"known-safe", required_argument, NULL, OPT_KNOWN_SAFE},
    {"retry-reuses", no_argument, NULL, OPT_RETRY_REUSES},
    {"audit", required_argument, NULL, OPT_AUDIT},
    {"user-dir", required_argument, NULL, OPT_USER_DIR},
    {"approval-timeout", required_argument, NULL, OPT_APPROVAL_TIMEOUT},
    {"nobody", no_argument, NULL, OPT_NOBODY},
    {"hook", required_argument, NULL, OPT_HOOK},
    {"reviewer", required_argument, NULL, OPT_REVIEWER},
    {"strict-review", no_argument, NULL, OPT_STRICT_REVIEW},
    {"hook-timeout", required_argument, NULL, OPT_HOOK_TIMEOUT},
    {"review-timeout", required_argument, NULL, OPT_REVIEW_TIMEOUT},
    {NULL, 0, NULL, 0},
};

static __attribute__((noreturn)) void stop(const char *what)
{
    (void)fprintf(stderr, "agent: %s\n%s", what, help);
    exit(2);
}

static uint64_t number(const char *text)
{
    uint64_t v = 0;

    if (!sp_str_to_u64(sp_str_of(text), UINT64_MAX, &v))
        stop("not a number");
    return v;
}

static struct sp_allowance allowance(const char *text)
{
    if (strncmp(text, "tokens:", 7) == 0)
        return (struct sp_allowance){SP_ALLOWANCE_TOKENS, number(text + 7)};
    if (strncmp(text, "bytes:", 6) == 0)
        return (struct sp_allowance){SP_ALLOWANCE_BYTES, number(text + 6)};
    stop("--policy: tokens:N or bytes:N");
}

static struct sp_approval_policy approval(const char *text)
{
    struct sp_approval_policy p = {0};

    if (strcmp(text, "granular") == 0 || strcmp(text, "granular-closed") == 0)
        return (struct sp_approval_policy){.kind = SP_APPROVAL_GRANULAR,
                                           .sandbox_approval = strcmp(text, "granular") == 0,
                                           .rules = true};
    if (sp_approval_read(sp_str_of(text), &p, NULL) < 0)
        stop("--approval: no such policy");
    return p;
}

static void add_place(struct agent_options *o, char *text)
{
    char *equals = strchr(text, '=');

    if (equals == NULL || o->place_count == MAX_ENVIRONMENTS)
        stop("--also ID=URL, at most three times");
    *equals = 0;
    o->places[o->place_count++] = (struct place){.id = text, .url = equals + 1};
}

/* ---- the environment's policy ---- */

static const struct sp_str *read_patterns(struct agent_options *o, const char *key,
                                          struct sp_str *room, uint32_t *ret_count)
{
    const uint32_t array = sp_json_get(&o->policy_json, 0, key);

    *ret_count = 0;
    if (array == SP_JSON_NONE)
        return NULL;
    for (uint32_t t = sp_json_first(&o->policy_json, array); t != SP_JSON_NONE;
         t = sp_json_next(&o->policy_json, array, t))
        room[(*ret_count)++] = sp_json_str(&o->policy_json, t);
    return room;
}

static void read_set(struct agent_options *o)
{
    const uint32_t object = sp_json_get(&o->policy_json, 0, "set");
    uint32_t n = 0;

    if (object == SP_JSON_NONE)
        return;
    for (uint32_t key = sp_json_first(&o->policy_json, object); key != SP_JSON_NONE;
         key = sp_json_next(&o->policy_json, object, key))
        o->set[n++] = (struct sp_env_var){sp_json_str(&o->policy_json, key),
                                          sp_json_str(&o->policy_json, key + 1)};
    o->environ.set = (struct sp_env_vars){o->set, n};
}

static void read_env_policy(struct agent_options *o, const char *text)
{
    struct sp_env_policy *p = &o->environ.policy;
    struct sp_err e = {0};
    struct sp_str inherit = SP_STR("all");

    o->policy_text = strdup(text);
    o->patterns = calloc(128, sizeof *o->patterns);
    o->set = calloc(64, sizeof *o->set);
    if (o->policy_text == NULL || o->patterns == NULL || o->set == NULL ||
        sp_json_parse(&o->policy_json, o->policy_text, strlen(text), &e) < 0 ||
        o->policy_json.count > 64)
        stop("--env-policy: not a small JSON object");
    (void)sp_json_opt_str(&o->policy_json, 0, "inherit", &inherit, &e);
    p->inherit = sp_str_eq(inherit, SP_STR("none"))   ? SP_ENV_NONE
                 : sp_str_eq(inherit, SP_STR("core")) ? SP_ENV_CORE
                                                      : SP_ENV_ALL;
    (void)sp_json_def_bool(&o->policy_json, 0, "ignore_default_excludes",
                           &p->ignores_default_excludes, &e);
    p->exclude = read_patterns(o, "exclude", o->patterns, &p->exclude_count);
    p->include_only = read_patterns(o, "include_only", o->patterns + 64, &p->include_only_count);
    read_set(o);
}

/* ---- the sandbox ---- */

static void read_profile(const char *path, struct sp_profile *ret)
{
    static char text[65536];
    struct sp_json j = {0};
    struct sp_err e = {0};
    FILE *f = fopen(path, "re");
    const size_t n = f == NULL ? 0 : fread(text, 1, sizeof text - 1, f);

    if (f == NULL || fclose(f) != 0 || sp_json_parse(&j, text, n, &e) < 0 ||
        sp_profile_read(&j, 0, ret, &e) < 0)
        stop(f == NULL ? "--profile: no such file" : e.msg);
    sp_json_done(&j);
}

static void read_mode(const char *name, struct sp_profile *ret)
{
    struct sp_legacy l = {.mode = SP_MODE_READ_ONLY};
    struct sp_err e = {0};

    if (!sp_mode_read(sp_str_of(name), &l.mode) || sp_profile_from_legacy(&l, ret, &e) < 0)
        stop("--sandbox: no such mode");
}

static void make_policy(struct agent_options *o)
{
    struct sp_policy *p = &o->policy;

    if (o->sandbox == NULL && o->profile == NULL)
        return;
    if (o->profile != NULL)
        read_profile(o->profile, &p->profile);
    else
        read_mode(o->sandbox, &p->profile);
    p->cwd_is_root = true;
    p->cwd = strdup(o->cwd);
    p->home = getenv("HOME") == NULL ? NULL : strdup(getenv("HOME"));
    if (p->cwd == NULL || !sp_policy_add_root(p, sp_str_of(o->cwd)))
        stop("no memory");
    o->manager.policy = p;
    o->manager.policy_name = o->sandbox != NULL ? o->sandbox : "profile";
}

/* ---- leave to run things ---- */

static void add_rules(struct agent_options *o, const char *path)
{
    struct sp_err e = {0};

    if (o->rules == NULL)
        o->rules = sp_rules_maker_new();
    if (o->rules == NULL || sp_rules_add_file(o->rules, path, NULL, NULL, &e) < 0)
        stop(e.msg);
}

static enum sp_known_safe known_safe(const char *text)
{
    if (strcmp(text, "off") == 0)
        return SP_KNOWN_SAFE_OFF;
    return strcmp(text, "list") == 0 ? SP_KNOWN_SAFE_LIST : SP_KNOWN_SAFE_LIST_GIT;
}

static void take_reviewer(struct agent_options *o, int opt)
{
    struct sp_approvals_options *a = &o->manager.approvals;

    switch (opt) {
    case OPT_HOOK:
        if (o->hook_count > SP_HOOKS_MAX)
            stop("--hook: too many");
        o->hooks[o->hook_count++] = optarg;
        return;
    case OPT_REVIEWER:
        o->reviewer = optarg;
        return;
    case OPT_STRICT_REVIEW:
        a->strict_review = true;
        return;
    case OPT_HOOK_TIMEOUT:
        a->hook_timeout_ms = number(optarg);
        return;
    case OPT_REVIEW_TIMEOUT:
        a->review_timeout_ms = number(optarg);
        return;
    default:
        stop("an option that is not known");
    }
}

static void take_approval(struct agent_options *o, int opt)
{
    struct sp_approvals_options *a = &o->manager.approvals;

    switch (opt) {
    case OPT_RULES:
        add_rules(o, optarg);
        return;
    case OPT_RULES_IN:
        o->rules_in = optarg;
        return;
    case OPT_KNOWN_SAFE:
        a->known_safe = known_safe(optarg);
        return;
    case OPT_RETRY_REUSES:
        a->retry_reuses_approval = true;
        return;
    case OPT_AUDIT:
        a->audit_log = optarg;
        a->must_audit = true;
        return;
    case OPT_USER_DIR:
        a->user_dir = optarg;
        return;
    case OPT_APPROVAL_TIMEOUT:
        a->timeout_ms = number(optarg);
        return;
    case OPT_NOBODY:
        a->has_no_approver = true;
        return;
    default:
        take_reviewer(o, opt);
    }
}

/* ---- all of it ---- */

static void take_feature(struct agent_options *o, int opt)
{
    switch (opt) {
    case OPT_NOWHERE:
        o->place_count = 0;
        return;
    case OPT_CGROUPS:
        o->uses_cgroups = true;
        return;
    case OPT_DETERMINISTIC:
        o->manager.has_deterministic_ids = true;
        return;
    case OPT_NO_LOGIN:
        o->manager.refuses_login_shell = true;
        o->tools.has_login = false;
        return;
    case OPT_FIXED_SHELL:
        o->tools.has_fixed_shell = true;
        return;
    case OPT_HIDE_DENIED:
        o->manager.hides_denied_start = true;
        return;
    case OPT_ADDITIONAL:
        o->manager.has_additional_permissions = o->tools.has_additional_permissions = true;
        return;
    case OPT_KEEP_ENDINGS:
        o->manager.keeps_line_endings = true;
        return;
    case OPT_NO_TIMEOUT:
        o->manager.has_no_timeout = o->tools.has_no_timeout = true;
        return;
    case OPT_COMPAT:
        o->tools.has_unified_exec = true;
        return;
    default:
        take_approval(o, opt);
    }
}

static void take(struct agent_options *o, int opt)
{
    switch (opt) {
    case OPT_REMOTE:
        o->places[0].url = optarg;
        return;
    case OPT_ALSO:
        add_place(o, optarg);
        return;
    case OPT_CWD:
        o->cwd = optarg;
        return;
    case OPT_RESUME:
        o->resume_ms = number(optarg);
        return;
    case OPT_POLICY:
        o->manager.output_allowance = allowance(optarg);
        return;
    case OPT_APPROVAL:
        o->manager.approvals.policy = approval(optarg);
        return;
    case OPT_SANDBOX:
        o->sandbox = optarg;
        return;
    case OPT_PROFILE:
        o->profile = optarg;
        return;
    case OPT_ENV_POLICY:
        read_env_policy(o, optarg);
        return;
    case OPT_POLL_MAX:
        o->manager.poll_max_ms = number(optarg);
        return;
    case OPT_EXITED_TTL:
        o->manager.exited_ttl_ms = number(optarg);
        return;
    case OPT_NOTIFY_AT:
        o->manager.notify_at = (uint32_t)number(optarg);
        return;
    case OPT_THREAD_ID:
        o->manager.thread_id = optarg;
        return;
    case OPT_SESSION_ID:
        o->manager.conversation_id = optarg;
        return;
    case OPT_SNAPSHOTS:
        o->snapshots = optarg;
        return;
    default:
        take_feature(o, opt);
    }
}

void agent_read_options(int argc, char **argv, struct agent_options *o)
{
    int opt;

    o->place_count = 1;
    o->places[0].id = "main";
    o->manager.approvals.policy.kind = SP_APPROVAL_NEVER;
    o->tools.has_login = true;
    o->environ.own = environ;
    o->environ.policy =
        (struct sp_env_policy){.inherit = SP_ENV_ALL, .ignores_default_excludes = true};
    o->environ.plain = sp_env_plain;
    while ((opt = getopt_long(argc, argv, "+", known, NULL)) != -1)
        take(o, opt);
    if (optind < argc) {
        for (int i = optind; i < argc && i - optind < MAX_WORDS - 1; i++)
            o->program_words[i - optind] = argv[i];
        o->places[0].program = o->program_words;
    }
    if (o->cwd == NULL)
        o->cwd = getcwd(NULL, 0); /* until the program ends */
    if (o->cwd == NULL)
        stop("there is no directory");
    make_policy(o);
    if (o->rules != NULL)
        o->manager.approvals.rules = sp_rules_make(o->rules);
    o->tools.has_several_environments = o->place_count > 1;
    o->manager.environ = &o->environ;
}

void agent_options_done(struct agent_options *o)
{
    sp_policy_done(&o->policy);
    sp_rules_unref(o->manager.approvals.rules);
    sp_rules_maker_free(o->rules);
    sp_json_done(&o->policy_json);
    free(o->policy_text);
    free(o->patterns);
    free(o->set);
}
