/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several environments of one MCP server: --on given again. Each has its own workspace under the
 * policy of the server; nothing is connected before a command is for it, so that one that cannot be
 * reached does not keep the others from being used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/mcp_server.h"
#include "cli/run_place.h"
#include "config/policy.h"

static int check_name(const struct sp_mcp_server *s, const char *name, struct sp_err *e)
{
    if (strstr(name, "://") != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--on: several environments are told apart by name: write an "
                       "[environments.NAME] into the configuration, with its url and cwd, and "
                       "give --on NAME");
    for (size_t i = 0; i < s->flags->on_count; i++)
        if (s->flags->on[i] != name && strcmp(s->flags->on[i], name) == 0)
            return sp_fail(e, SP_E_INVALID, 0, "--on: `%s` is given twice", name);
    return 0;
}

/* The workspace must be known before anything is confined to it, and nothing is connected yet. */
static int open_there(struct sp_mcp_server *s, struct sp_mcp_place *p, struct sp_err *e)
{
    if (p->place.cwd == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--on %s: give its directory as `cwd` in [environments.%s] of the "
                       "configuration",
                       p->place.name, p->place.name);
    p->cwd = strdup(p->place.cwd);
    return p->cwd == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy a directory")
                          : sp_place_there(s->loop, &p->place, &p->backend, e);
}

static int open_place(struct sp_mcp_server *s, const char *name, struct sp_mcp_place *p,
                      struct sp_environment_spec *ret, struct sp_err *e)
{
    bool is_open = false;
    int r = sp_config_place(&s->config, name, &p->place, e);

    /* Its workspace is where we were started or --cwd, which is about the first one. */
    if (r == 0 && p->place.is_local)
        r = sp_fail(e, SP_E_INVALID, 0, "--on: give `local` as the first environment");
    if (r == 0)
        r = open_there(s, p, e);
    if (r == 0)
        r = sp_config_policy(&s->config, s->policy_name, p->cwd, &p->policy, &is_open, e);
    *ret = (struct sp_environment_spec){
        .id = p->place.name,
        .backend = p->backend,
        .cwd = p->cwd,
        .is_remote = true,
        .has_own_policy = true,
        .policy = is_open ? NULL : &p->policy,
        .policy_name = s->policy_name,
    };
    return r;
}

int sp_mcp_places_open(struct sp_mcp_server *s, struct sp_err *e)
{
    const size_t count = s->flags->on_count > 1 ? s->flags->on_count : 1;
    int r = 0;

    if (count > SP_ENVIRONMENTS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "--on: at most %d environments", SP_ENVIRONMENTS_MAX);
    s->places = calloc(count, sizeof *s->places);
    s->environments = calloc(count, sizeof *s->environments);
    if (s->places == NULL || s->environments == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open the environments");
    s->environments[0] = (struct sp_environment_spec){
        .id = count > 1 ? s->place.name : "primary",
        .backend = s->backend,
        .cwd = s->cwd,
        .is_remote = !s->place.is_local,
    };
    for (size_t i = 0; r == 0 && count > 1 && i < count; i++)
        r = check_name(s, s->flags->on[i], e);
    for (size_t i = 1; r == 0 && i < count; i++)
        r = open_place(s, s->flags->on[i], &s->places[s->place_count++], &s->environments[i], e);
    return r;
}

void sp_mcp_places_done(struct sp_mcp_server *s)
{
    for (size_t i = 0; i < s->place_count; i++) {
        sp_backend_free(s->places[i].backend);
        sp_policy_done(&s->places[i].policy);
        free(s->places[i].cwd);
        sp_config_place_done(&s->places[i].place);
    }
    free(s->places);
    free(s->environments);
}
