/* SPDX-License-Identifier: Apache-2.0 */
#include "config/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "client/remote.h"
#include "config/manager.h"
#include "config/own_places.h"
#include "config/policy.h"
#include "core/placeholder.h"
#include "engine/approver_program.h"
#include "engine/local.h"
#include "lib/binary.h"
#include "lib/engine_priv.h"
#include "sandbox/resolve.h"

/* ---- where ---- */

static int find_cwd(struct sp_engine *engine, const char *asked, struct sp_error *e)
{
    auto_free char *here = getcwd(NULL, 0);

    if (here == NULL && (asked == NULL || asked[0] != '/'))
        return sp_fail(e, SP_E_SYSTEM, errno, "find the working directory");
    engine->cwd = sp_path_normalise(asked != NULL ? asked : here, here);
    if (engine->cwd == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find the working directory");
    if (access(engine->cwd, X_OK) < 0)
        return sp_fail(e, SP_E_NOT_FOUND, errno, "working directory %s", engine->cwd);
    return 0;
}

static int open_local(struct sp_engine *engine, const struct sp_engine_options *o,
                      struct sp_error *e)
{
    auto_free char *program = NULL;
    const struct sp_own_places_ask own = {.config = &engine->config};
    int r = find_cwd(engine, o->cwd, e);

    if (r == 0)
        r = sp_binary_find(o->program, &program, e);
    sp_runtime_dir(engine->runtime_dir, sizeof engine->runtime_dir);
    if (r == 0 && !sp_covers_find(engine->runtime_dir, &engine->covers))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to cover");
    if (r == 0)
        r = sp_own_places_find(&own, &engine->covers, e);
    if (r < 0)
        return r;
    const struct sp_local_options lo = {
        .program = program,
        .use_cgroups = true,
        .fixed = sp_covers_places(&engine->covers),
        .runtime_dir = engine->runtime_dir,
        .cwd = engine->cwd,
    };
    return sp_local_new(engine->loop, &lo, &engine->backend, e);
}

static int open_remote(struct sp_engine *engine, const char *asked_cwd,
                       const struct sp_config_place *place, struct sp_error *e)
{
    const char *cwd = asked_cwd != NULL ? asked_cwd : place->cwd;

    if (cwd != NULL && cwd[0] != '/')
        return sp_fail(
            e, SP_E_INVALID, 0,
            "the working directory on another machine must be an absolute path, not `%s`", cwd);
    if (cwd != NULL && (engine->cwd = strdup(cwd)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember the working directory");
    const struct sp_client_options co = {
        .url = place->url,
        .program = place->program,
        .env = place->env,
        .cwd = cwd,
        .token = place->token,
        .connect_timeout_ms = place->connect_timeout_ms,
    };
    return sp_remote_new(engine->loop, &co, &engine->backend, e);
}

int sp_lib_open_place(struct sp_engine *engine, const struct sp_engine_options *o,
                      struct sp_error *e)
{
    struct sp_config_place place = {0};
    int r = sp_config_place(&engine->config, o->on, &place, e);

    if (r < 0)
        return r;
    engine->is_local = place.is_local;
    r = place.is_local ? open_local(engine, o, e) : open_remote(engine, o->cwd, &place, e);
    sp_config_place_done(&place);
    return r;
}

/* ---- under what ---- */

/* The workspace is the working directory; without one only "no sandbox" can be said. */
static int find_policy(struct sp_engine *engine, const char *asked, struct sp_error *e)
{
    const char *name = asked != NULL ? asked : engine->config.default_permissions;
    const char *cwd = engine->cwd != NULL ? engine->cwd : "/";
    struct sp_policy policy = {0};
    bool is_open = true;

    if (name == NULL)
        return 0;
    const int r = sp_config_policy(&engine->config, name, cwd, &policy, &is_open, e);
    if (r < 0)
        return r;
    if (is_open || engine->cwd == NULL) {
        sp_policy_done(&policy);
        return is_open
                   ? 0
                   : sp_fail(e, SP_E_INVALID, 0,
                             "the sandbox `%s` on another machine needs its workspace: give the "
                             "option cwd, or cwd in the environment's configuration",
                             name);
    }
    engine->policy = policy;
    engine->is_confined = true;
    engine->policy_name = strdup(name);
    return engine->policy_name != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "name the sandbox");
}

/* A library has no terminal and no client: who is configured to be asked there is not. */
static void warn_of_approver(struct sp_engine *engine, const char *name)
{
    auto_free char *text = NULL;

    if (strcmp(name, "deny") == 0 || engine->approvals.options.policy.kind == SP_APPROVAL_NEVER)
        return;
    if (asprintf(&text,
                 "nobody answers questions: the approver `%s` of the configuration is not for "
                 "programs that use the library, so what needs leave is refused; set the option "
                 "`ask`, or approver = \"program:/PATH\"",
                 name) >= 0)
        sp_lib_warn(engine, text);
}

/* The program of `program:PATH` answers what the host does not. */
static int open_approver(struct sp_engine *engine, struct sp_error *e)
{
    const char *name = engine->config.approver;

    if (engine->ask != NULL || name == NULL)
        return 0;
    if (strncmp(name, "program:", 8) == 0)
        return sp_approver_program_new(engine->loop, name + 8, &engine->approver, e);
    warn_of_approver(engine, name);
    return 0;
}

static void tell_doubtful(struct sp_engine *engine, const struct sp_rules *rules)
{
    sp_judge_tell_doubtful(rules, engine->is_confined ? &engine->policy : NULL, sp_lib_warn,
                           engine);
}

static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_engine *engine = user;

    tell_doubtful(engine, rules);
    return sp_approvals_set_rules(sp_manager_approvals(engine->manager), rules, fingerprint);
}

static int find_approvals(struct sp_engine *engine, const char *asked, struct sp_error *e)
{
    const struct sp_config_approvals_ask ask = {
        .policy = asked,
        .cwd = engine->is_local ? engine->cwd : NULL,
        .warn = sp_lib_warn,
        .loop = engine->loop,
        .changed = on_rules,
        .user = engine,
    };
    struct sp_config_approvals *ret = &engine->approvals;
    const int r = sp_config_approvals(&engine->config, &ask, ret, e);

    if (r < 0)
        return r;
    tell_doubtful(engine, ret->options.rules);
    const int opened = open_approver(engine, e);
    ret->options.approver = engine->approver;
    return opened < 0 ? opened
                      : sp_hooks_open(&engine->hooks, engine->loop, engine->config.permission_hooks,
                                      engine->config.reviewer, &ret->options, e);
}

struct sp_environ_ask sp_lib_environ(const struct sp_engine *engine)
{
    return (struct sp_environ_ask){
        .own = environ,
        .policy = engine->config.env_policy,
        .set = engine->config.env_set,
        .permission_profile = {engine->policy_name,
                               engine->policy_name == NULL ? 0 : strlen(engine->policy_name)},
    };
}

/* Without them commands run as they were asked, only slower: so a failure is none. */
static void open_snapshots(struct sp_engine *engine)
{
    auto_free char *directory = NULL;

    if (!engine->config.has_shell_snapshot || !engine->is_local || engine->config.home == NULL ||
        asprintf(&directory, "%s/snapshots", engine->config.home) < 0)
        return;
    const struct sp_snapshots_options so = {
        .backend = engine->backend,
        .directory = directory,
        .policy = engine->is_confined ? &engine->policy : NULL,
    };
    (void)sp_snapshots_new(&so, &engine->snapshots, NULL);
}

int sp_lib_open_manager(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_error *e)
{
    static const struct sp_manager_ops ops = {.event = sp_lib_tell_event,
                                              .ask = sp_lib_tell_question};
    static const struct sp_manager_ops nobody_consents = {.event = sp_lib_tell_event};
    const struct sp_environ_ask environ_ask = sp_lib_environ(engine);
    const struct sp_environment place = {
        .id = "primary", .backend = engine->backend, .cwd = engine->cwd};
    int r = find_policy(engine, o->sandbox, e);

    if (r == 0)
        r = find_approvals(engine, o->approve, e);
    if (r < 0)
        return r;
    open_snapshots(engine);
    struct sp_manager_options mo = {
        .loop = engine->loop,
        .environments = &place,
        .environment_count = 1,
        .ops = engine->ask != NULL ? &ops : &nobody_consents,
        .user = engine,
        .approvals = engine->approvals.options,
        .policy = engine->is_confined ? &engine->policy : NULL,
        .policy_name = engine->policy_name,
        .environ = &environ_ask,
        .snapshots = engine->snapshots,
    };
    sp_config_manager(&engine->config, &mo);
    mo.has_no_timeout = true; /* sp_engine_wait */
    return sp_manager_new(&mo, &engine->manager, e);
}
