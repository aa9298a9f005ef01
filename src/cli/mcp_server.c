/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/runtime_dir.h"
#include "cli/approver_tty.h"
#include "cli/escape_text.h"
#include "cli/run_place.h"
#include "config/config_manager.h"
#include "config/policy.h"
#include "core/journal.h"
#include "mcp/lines.h"
#include "mcp/mcp_http.h"
#include "sandbox/resolve.h"

#define MAX_CONNECTIONS 256

/* ---- where ---- */

/* What would let a confined command ask us for an unconfined one. */
static int find_hidden_paths(struct sp_mcp_server *s, struct sp_err *e)
{
    const struct sp_own_places_ask own = {.config = &s->config,
                                          .rules = s->flags->rules,
                                          .approvers = s->flags->approvers,
                                          .token_file = s->flags->token_file};
    int r = sp_place_hidden_paths(&own, &s->hidden_paths, e);
    bool ok = true;

    for (size_t i = 0; ok && i < s->flags->listen_count; i++)
        if (strncmp(s->flags->listen[i], "unix://", 7) == 0)
            ok = sp_hidden_paths_add(&s->hidden_paths, s->flags->listen[i] + 7);
    if (r == 0 && !ok)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to cover");
    return r;
}

/* Hosts kill their servers: what stands in somebody's directory for one that is gone goes before
 * anything is run, and not with the first command. */
static void sweep(void)
{
    struct sp_journal *journal = NULL;
    char runtime_dir[512];

    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    if (sp_journal_new(runtime_dir, &journal, NULL) == 0)
        sp_journal_free(journal);
}

static int open_here(struct sp_mcp_server *s, struct sp_err *e)
{
    const int r = find_hidden_paths(s, e);

    if (r < 0)
        return r;
    sweep();
    s->cwd = sp_place_dir(s->flags->cwd, e);
    return s->cwd == NULL
               ? -(int)e->code
               : sp_place_here_for_many(s->loop, s->cwd, &s->hidden_paths, &s->backend, e);
}

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct sp_mcp_server *s = SP_CONTAINER(w, struct sp_mcp_server, facts);

    s->has_facts = facts != NULL;
    if (facts == NULL)
        s->unreachable = *e;
    else if (s->cwd == NULL && facts->cwd != NULL)
        s->cwd = strdup(facts->cwd);
    sp_loop_stop(s->loop);
}

/* The workspace is there, so the server has to say where before anything can be confined to it. */
static int open_there(struct sp_mcp_server *s, struct sp_err *e)
{
    const char *cwd = s->flags->cwd != NULL ? s->flags->cwd : s->place.cwd;
    char why[500];
    int r = 0;

    if (cwd != NULL && cwd[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "--cwd: want an absolute path on %s", s->place.name);
    if (cwd != NULL && (s->cwd = strdup(cwd)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy --cwd");
    r = sp_place_there(s->loop, &s->place, &s->backend, e);
    if (r < 0)
        return r;
    s->facts.fn = on_facts;
    sp_backend_ask_facts(s->backend, &s->facts);
    r = sp_loop_run(s->loop, e);
    sp_backend_forget_facts(&s->facts);
    if (r < 0)
        return r;
    if (s->unreachable.code != SP_E_NONE)
        return sp_fail(e, SP_E_SYSTEM, 0, "%s cannot be reached: %s", s->place.name,
                       sp_error_text(&s->unreachable, why, sizeof why));
    if (!s->has_facts)
        return sp_fail(e, SP_E_STATE, 0, "ended before %s had answered", s->place.name);
    if (s->cwd == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "%s does not say where commands run: give --cwd",
                       s->place.name);
    return 0;
}

/* ---- under what ---- */

static void warn(void *user, const char *text)
{
    (void)user;
    sp_plain_say("sallyport", text);
}

static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    const struct sp_mcp_server *s = user;

    sp_judge_tell_doubtful(rules, s->is_open ? NULL : &s->policy, warn, user);
    return s->mcp == NULL || sp_mcp_set_rules(s->mcp, rules, fingerprint);
}

/* Over stdio the terminal, if there is one, is the host's: it draws there, and reads the keys. */
static int open_approvers(struct sp_mcp_server *s, struct sp_err *e)
{
    const bool is_stdio = s->flags->listen_count == 0;
    const bool has_flags = s->flags->approver_count != 0;
    const struct sp_approvers_ask ask = {
        .loop = s->loop,
        .words = has_flags ? s->flags->approvers : (const char *const *)s->config.approvers,
        .is_configured = !has_flags,
        .choices = "deny, client, terminal or program:PATH",
        .has_client = true,
        .begins_with_client = true,
        .open_terminal = is_stdio ? NULL : sp_approver_tty_new,
        .no_terminal = "terminal: our stdin is the host's MCP channel, and the terminal is the "
                       "host's too; give --approver program:PATH, or use a host that asks its user "
                       "(elicitation)",
        .timeout_ms = s->approvals.options.timeout_ms,
    };

    if (sp_approvers_open(&ask, &s->approvers, e) < 0)
        return sp_wrap(e, has_flags ? "--approver" : "`approver` of the configuration");
    s->approvals.options.timeout_ms = sp_approvers_timeout_ms(s->approvers);
    return 0;
}

static int open_approvals(struct sp_mcp_server *s, struct sp_err *e)
{
    const struct sp_config_approvals_ask ask = {
        .policy = s->flags->approve,
        .cwd = s->place.is_local ? s->cwd : NULL,
        .files = s->flags->rules,
        .warn = warn,
        .loop = s->loop,
        .changed = on_rules,
        .user = s,
    };
    int r = sp_config_approvals(&s->config, &ask, &s->approvals, e);

    if (r == 0)
        sp_judge_tell_doubtful(s->approvals.options.rules, s->is_open ? NULL : &s->policy, warn, s);
    if (r == 0)
        r = open_approvers(s, e);
    if (r == 0)
        r = sp_hooks_open(&s->hooks, s->loop, s->config.permission_hooks, s->config.reviewer,
                          &s->approvals.options, e);
    return r;
}

/* Whether the policy lets commands write the directory that we were started in. */
static bool is_all_writable(const struct sp_mcp_server *s)
{
    struct sp_resolved r = {0};

    if (s->is_open || s->flags->cwd != NULL || !s->place.is_local)
        return false;
    const bool can_write =
        sp_resolve(&s->policy, &r, NULL) < 0 || sp_resolved_can_write(&r, s->cwd, NULL, NULL);
    sp_resolved_done(&r);
    return can_write;
}

/* Hosts that people start from a desktop start their servers in / or in the home directory. */
static int check_workspace(const struct sp_mcp_server *s, struct sp_err *e)
{
    if (!is_all_writable(s))
        return 0;
    if (strcmp(s->cwd, "/") == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "started in /, so everything would be the workspace, and the sandbox `%s` "
                       "would protect nothing: give --cwd DIR (or --cwd / if you mean it)",
                       s->policy_name);
    if (sp_config_holds_home(&s->config, s->cwd))
        return sp_fail(
            e, SP_E_INVALID, 0,
            "started in %.200s, so your whole home directory would be the workspace: "
            "give --cwd DIR, the directory of a project (or --cwd %.200s if you mean it)",
            s->cwd, s->cwd);
    return 0;
}

static int find_policy(struct sp_mcp_server *s, struct sp_err *e)
{
    s->policy_name = s->flags->sandbox != NULL               ? s->flags->sandbox
                     : s->config.default_permissions != NULL ? s->config.default_permissions
                                                             : ":workspace";
    int r = sp_config_policy(&s->config, s->policy_name, s->cwd, &s->policy, &s->is_open, e);
    if (r == 0)
        r = check_workspace(s, e);
    return r < 0 || !s->place.is_local ? r : sp_config_keep_dot_files(&s->config, &s->policy, e);
}

/* Without them commands run as they were asked, only slower: so a failure is none. */
static void open_snapshots(struct sp_mcp_server *s)
{
    auto_free char *directory = NULL;

    if (!s->config.has_shell_snapshot || !s->place.is_local || s->config.home == NULL ||
        asprintf(&directory, "%s/snapshots", s->config.home) < 0)
        return;
    const struct sp_snapshots_options o = {
        .backend = s->backend,
        .directory = directory,
        .policy = s->is_open ? NULL : &s->policy,
    };
    (void)sp_snapshots_new(&o, &s->snapshots, NULL);
}

/* Both the flag and the key have been checked. */
static enum sp_mcp_structured_output choose_output(const struct sp_mcp_server *s)
{
    const char *when = s->flags->structured_output != NULL ? s->flags->structured_output
                                                           : s->config.mcp_structured_output;

    return strcmp(when, "always") == 0  ? SP_MCP_OUTPUT_ALWAYS
           : strcmp(when, "never") == 0 ? SP_MCP_OUTPUT_NEVER
                                        : SP_MCP_OUTPUT_AUTO;
}

static int open_mcp(struct sp_mcp_server *s, struct sp_err *e)
{
    auto_free char *instructions = sp_mcp_instructions(s, true);
    auto_free char *without_asking = sp_mcp_instructions(s, false);

    if (instructions == NULL || without_asking == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write the instructions");
    s->environ = (struct sp_environ_ask){
        .own = environ,
        .policy = s->config.env_policy,
        .set = s->config.env_set,
        .permission_profile = sp_str_of(s->policy_name),
    };
    if (s->place.is_local && !s->is_open)
        sp_place_say_left_out(&s->environ);
    s->manager = (struct sp_manager_options){
        .loop = s->loop,
        .environments = s->environments,
        .environment_count = (uint32_t)s->place_count + 1,
        .approvals = s->approvals.options,
        .policy = s->is_open ? NULL : &s->policy,
        .policy_name = s->policy_name,
        .environ = &s->environ,
        .snapshots = s->snapshots,
    };
    sp_config_manager(&s->config, &s->manager);
    s->manager.approvals.warn = warn;
    const struct sp_mcp_options o = {
        .loop = s->loop,
        .manager = &s->manager,
        .tools = {.has_login = s->config.allow_login_shell,
                  .has_additional_permissions = s->config.has_exec_permission_approvals,
                  .has_no_timeout = s->config.has_write_stdin_no_timeout,
                  .has_unified_exec = s->config.has_unified_exec},
        .approvers = s->approvers,
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .cwd = s->cwd,
        .instructions = instructions,
        .instructions_without_asking = without_asking,
        .is_remote = !s->place.is_local,
        .keeps_cancelled = s->flags->keeps_cancelled || s->config.mcp_keep_cancelled,
        .structured_output = choose_output(s),
        .detached_ttl_ms = s->config.detached_ttl_s * 1000,
    };
    return sp_mcp_new(&o, &s->mcp, e);
}

int sp_mcp_server_begin(struct sp_mcp_server *s, struct sp_err *e)
{
    const struct sp_config_ask ask = {
        .file = s->flags->config_file, .sets = s->flags->sets, .environment = environ};
    int r = sp_config_load(&ask, &s->config, e);

    if (r < 0)
        return r;
    for (size_t i = 0; s->config.warnings != NULL && s->config.warnings[i] != NULL; i++)
        warn(NULL, s->config.warnings[i]);
#ifndef __SANITIZE_ADDRESS__         /* which looks at itself from outside when it ends */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens and everybody's output are in our memory */
#endif
    r = sp_config_place(&s->config, s->flags->on[0], &s->place, e);
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = sp_ending_begin(&s->ending, s->loop, e);
    if (r == 0)
        r = s->place.is_local ? open_here(s, e) : open_there(s, e);
    if (r == 0)
        r = find_policy(s, e);
    if (r == 0)
        r = open_approvals(s, e);
    if (r == 0)
        r = sp_mcp_places_open(s, e);
    if (r < 0)
        return r;
    open_snapshots(s);
    return open_mcp(s, e);
}

/* ---- who asks ---- */

static void on_finished(void *user)
{
    sp_loop_stop(((struct sp_mcp_server *)user)->loop);
}

static int open_lines(struct sp_mcp_server *s, const char *path, struct sp_mcp_lines **ret,
                      struct sp_err *e)
{
    const struct sp_mcp_lines_options o = {
        .path = path,
        .max_connections = MAX_CONNECTIONS,
        .user = s,
        .finished = on_finished,
    };

    return sp_mcp_lines_new(s->mcp, &o, ret, e);
}

static int open_http(struct sp_mcp_server *s, const char *url, struct sp_mcp_http **ret,
                     struct sp_err *e)
{
    const struct sp_mcp_http_options o = {
        .url = url,
        .tokens = s->tokens.tokens,
        .origins = s->flags->origins,
        .allows_remote = s->flags->allows_remote,
        .max_connections = MAX_CONNECTIONS,
    };
    int r = 0;

    if (s->tokens.tokens[0] == NULL) {
        sp_runtime_dir(s->runtime_dir, sizeof s->runtime_dir);
        r = sp_mcp_tokens_open(s->flags->token_file, s->runtime_dir, &s->tokens, e);
        if (r == 0 && s->tokens.made != NULL)
            (void)fprintf(stderr, "sallyport: the bearer token is in %s\n", s->tokens.made);
    }
    return r < 0 ? r : sp_mcp_http_new(s->mcp, &o, ret, e);
}

static int listen_at(struct sp_mcp_server *s, const char *url, size_t i, struct sp_err *e)
{
    const bool is_unix = strncmp(url, "unix:///", 8) == 0;
    int r;

    if (!is_unix && strncmp(url, "http://", 7) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--listen: `%s` is neither unix:///PATH nor http://ADDRESS:PORT/PATH", url);
    r = is_unix ? open_lines(s, url + 7, &s->lines[i], e) : open_http(s, url, &s->https[i], e);
    if (r < 0)
        return r;
    (void)printf("%s\n", is_unix ? sp_mcp_lines_url(s->lines[i]) : sp_mcp_http_url(s->https[i]));
    return fflush(stdout) == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "say the URL on stdout");
}

int sp_mcp_server_listen(struct sp_mcp_server *s, struct sp_err *e)
{
    const size_t count = s->flags->listen_count;
    int r = 0;

    s->lines = calloc(count + 1, sizeof(struct sp_mcp_lines *));
    s->https = calloc(count + 1, sizeof(struct sp_mcp_http *));
    if (s->lines == NULL || s->https == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "listen");
    if (count == 0)
        return open_lines(s, NULL, &s->lines[0], e);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = listen_at(s, s->flags->listen[i], i, e);
    return r;
}

/* ---- its end ---- */

static void end_transports(struct sp_mcp_server *s)
{
    const size_t count = s->flags->listen_count + 1;

    for (size_t i = 0; s->lines != NULL && i < count; i++)
        sp_mcp_lines_free(s->lines[i]);
    for (size_t i = 0; s->https != NULL && i < count; i++)
        sp_mcp_http_free(s->https[i]);
    free(s->lines);
    free(s->https);
}

void sp_mcp_server_end(struct sp_mcp_server *s)
{
    end_transports(s);
    sp_mcp_tokens_done(&s->tokens);
    sp_mcp_free(s->mcp);
    sp_snapshots_free(s->snapshots);
    sp_hooks_done(&s->hooks);
    sp_approvers_free(s->approvers);
    sp_config_approvals_done(&s->approvals);
    sp_mcp_places_done(s);
    sp_backend_free(s->backend);
    sp_ending_done(&s->ending);
    sp_loop_free(s->loop);
    sp_policy_done(&s->policy);
    sp_hidden_paths_done(&s->hidden_paths);
    sp_config_place_done(&s->place);
    sp_config_done(&s->config);
    free(s->cwd);
}
