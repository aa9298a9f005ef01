/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "config/config_manager.h"
#include "lib/engine_priv.h"

/* A library has no terminal and no client: who is configured to be asked there is not. */
static void warn_of_approver(struct sp_engine *engine)
{
    auto_free char *text = NULL;
    char *const *names = engine->config.approvers;

    if (strcmp(names[0], "deny") == 0 || engine->approvals.options.policy.kind == SP_APPROVAL_NEVER)
        return;
    if (asprintf(&text,
                 "nobody answers questions: the approver `%s` of the configuration is not for "
                 "programs that use the library, so what needs permission is refused; set the "
                 "option `ask`, or approver = \"program:/PATH\"",
                 names[0]) >= 0)
        sp_lib_warn(engine, text);
}

/* The programs of the configuration answer if the host does not. */
static int open_approvers(struct sp_engine *engine, struct sp_approvals_options *o,
                          struct sp_err *e)
{
    const struct sp_approvers_ask ask = {
        .loop = engine->loop,
        .words = (const char *const *)engine->config.approvers,
        .is_configured = true,
        .choices = "deny or program:/PATH",
        .timeout_ms = o->timeout_ms,
    };
    struct sp_err why = {0};

    if (engine->ask != NULL || engine->config.approvers == NULL)
        return 0;
    int r = sp_approvers_open(&ask, &engine->approvers, &why);
    if (r == -SP_E_INVALID) { /* none of them is for a library */
        warn_of_approver(engine);
        return 0;
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    if (engine->approvers != NULL)
        r = sp_approvers_chain(engine->approvers, NULL, &engine->approver, e);
    o->approver = engine->approver;
    o->timeout_ms = sp_approvers_timeout_ms(engine->approvers);
    return r;
}

static void tell_doubtful(struct sp_engine *engine, const struct sp_rules *rules)
{
    const struct sp_lib_place *p = engine->places[0];

    sp_judge_tell_doubtful(rules, p->is_confined ? &p->policy : NULL, sp_lib_warn, engine);
}

static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_engine *engine = user;

    tell_doubtful(engine, rules);
    return sp_approvals_set_rules(sp_manager_approvals(engine->manager), rules, fingerprint);
}

static int find_approvals(struct sp_engine *engine, const char *asked, struct sp_err *e)
{
    const struct sp_config_approvals_ask ask = {
        .policy = asked,
        .cwd = engine->places[0]->where->is_local ? engine->places[0]->cwd : NULL,
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
    const int opened = open_approvers(engine, &ret->options, e);
    return opened < 0 ? opened
                      : sp_hooks_open(&engine->hooks, engine->loop, engine->config.permission_hooks,
                                      engine->config.reviewer, &ret->options, e);
}

struct sp_environ_ask sp_lib_environ(const struct sp_engine *engine,
                                     const struct sp_lib_place *place)
{
    return (struct sp_environ_ask){
        .own = environ,
        .policy = engine->config.env_policy,
        .set = engine->config.env_set,
        .thread_id = sp_str_of(engine->thread_id),
        .session_id = sp_str_of(engine->thread_id),
        .permission_profile = {place->policy_name,
                               place->policy_name == NULL ? 0 : strlen(place->policy_name)},
    };
}

/* Without them commands run as they were asked, only slower: so a failure is none. */
static void open_snapshots(struct sp_engine *engine)
{
    const struct sp_lib_place *place = engine->places[0];
    auto_free char *directory = NULL;

    if (!engine->config.has_shell_snapshot || !place->where->is_local ||
        engine->config.home == NULL ||
        asprintf(&directory, "%s/snapshots", engine->config.home) < 0)
        return;
    const struct sp_snapshots_options so = {
        .backend = place->where->backend,
        .directory = directory,
        .policy = place->is_confined ? &place->policy : NULL,
    };
    (void)sp_snapshots_new(&so, &engine->snapshots, NULL);
}

static void say_left_out(struct sp_engine *engine, const struct sp_environ_ask *ask)
{
    const struct sp_lib_place *place = engine->places[0];
    auto_buf struct sp_buf text = {0};

    if (place->where->is_local && place->is_confined && sp_environ_add_left_out(ask, &text) &&
        text.len > 0 && sp_buf_add(&text, "", 1))
        sp_lib_warn(engine, text.data);
}

int sp_lib_open_manager(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_err *e)
{
    static const struct sp_manager_ops ops = {.event = sp_lib_tell_event,
                                              .ask = sp_lib_tell_question};
    static const struct sp_manager_ops nobody_consents = {.event = sp_lib_tell_event};
    const struct sp_environ_ask environ_ask = sp_lib_environ(engine, engine->places[0]);
    const struct sp_environment_spec place = sp_lib_place_environment(engine->places[0]);
    const int r = find_approvals(engine, o->approve, e);

    if (r < 0)
        return r;
    open_snapshots(engine);
    say_left_out(engine, &environ_ask);
    struct sp_manager_options mo = {
        .loop = engine->loop,
        .environments = &place,
        .environment_count = 1,
        .ops = engine->ask != NULL ? &ops : &nobody_consents,
        .user = engine,
        .approvals = engine->approvals.options,
        .environ = &environ_ask,
        .thread_id = engine->thread_id,
        .session_id = engine->thread_id,
        .snapshots = engine->snapshots,
    };
    sp_config_manager(&engine->config, &mo);
    mo.has_no_timeout = true; /* sp_engine_wait */
    return sp_manager_new(&mo, &engine->manager, e);
}
