/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport mcp`: the engine as tools of an MCP server. The parts are set up in this order, since
 * each needs those before it: where commands run, the policy, the approvals, further environments,
 * the tools, and last the transports, so that no call finds an unfinished server.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/approval.h"
#include "cli/approver_tty.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "cli/mcp_selftest.h"
#include "cli/policy_options.h"
#include "cli/run_place.h"
#include "cli/signals.h"
#include "config/policy.h"
#include "core/journal.h"
#include "engine/console.h"
#include "engine/local.h"
#include "engine/local_socket.h"
#include "engine/snapshot.h"
#include "mcp/lines.h"
#include "mcp/mcp_http.h"
#include "sandbox/resolve.h"
#include "server/net/auth.h"

#define TOKENS_MAX      64
#define MAX_CONNECTIONS 256
#define MAX_TOKEN_FILE  65536 /* bytes */

struct mcp_flags {
    const char *cwd, *token_file, *connect, *structured_output;
    struct sp_policy_options policy;
    struct sp_cli_approval_flags approval;
    struct sp_option_list listen, origins, on;
    struct sp_limit_levels limits;
    bool is_selftest, allows_remote, keeps_cancelled, has_no_local_socket;
    struct sp_config_options config;
    int argc; /* all arguments, for the server of --selftest */
    char **argv;
};

static const char *const output_choices[] = {"auto", "always", "never", NULL};

static const struct sp_option options[] = {
    SP_OPT_HEADING("What commands may do (default: default_permissions, else :workspace):"),
    SP_OPT_TABLE(struct mcp_flags, policy, sp_policy_options),
    SP_CLI_APPROVAL_OPTIONS(
        struct mcp_flags, approval,
        "what is asked: untrusted, on-failure, on-request, never, or the JSON of granular "
        "(default: approval_policy, else on-request)",
        "",
        "who answers: client (the host's user, first unless named), console (a person with "
        "`sallyport approvals`), program:PATH, terminal (with --listen) or deny; A,B: both are "
        "asked at once; given again: asked if those "
        "before gave no answer (default: approver of the configuration, else deny)"),
    SP_OPT_TABLE(struct mcp_flags, limits, sp_limit_options),
    SP_OPT_HEADING("Where they run:"),
    SP_OPT_STRING(struct mcp_flags, cwd, "cwd", "DIR",
                  "the workspace (default: the current directory; on a server: the server's)",
                  .short_name = 'w'),
    SP_OPT_LIST(
        struct mcp_flags, on, "on", "NAME|URL",
        "`local`, an environment of the configuration, ws://HOST:PORT, unix:///PATH, or the "
        "pid or the name of a server of this user (default: default_environment, else "
        "local). Given again: one more environment, by "
        "name; tools then have environment_id"),
    SP_OPT_HEADING("Who may call:"),
    SP_OPT_LIST(struct mcp_flags, listen, "listen", "URL",
                "unix:///PATH or http://127.0.0.1:PORT/PATH instead of stdio (repeatable; port 0: "
                "any); the URLs are printed on stdout"),
    SP_OPT_STRING(struct mcp_flags, token_file, "token-file", "FILE",
                  "http: the bearer tokens, one a line, each for a caller of its own; mode 0600 "
                  "(default: one is made, and the file that has it is named on stderr)"),
    SP_OPT_LIST(struct mcp_flags, origins, "allow-origin", "ORIGIN",
                "http: let web pages of this origin call (repeatable)"),
    SP_OPT_FLAG(struct mcp_flags, allows_remote, "allow-remote",
                "http: let the address be one that other machines can reach"),
    SP_OPT_CHOICE(struct mcp_flags, structured_output, "structured-output", "WHEN", output_choices,
                  "repeat output in structured results: auto (by the host's name), always or never "
                  "(default: mcp_structured_output, else auto)"),
    SP_OPT_FLAG(struct mcp_flags, keeps_cancelled, "keep-cancelled",
                "let the process of a cancelled exec_command run on (default: it is ended)"),
    SP_OPT_STRING(struct mcp_flags, connect, "connect", "URL",
                  "only connect stdio to a server that listens on unix:///PATH"),
    SP_OPT_FLAG(struct mcp_flags, has_no_local_socket, "no-local-socket",
                "do not listen for `sallyport ps`, `logs`, `attach`, `kill` and `approvals` of "
                "this user"),
    SP_OPT_HEADING("Other:"),
    SP_OPT_FLAG(struct mcp_flags, is_selftest, "selftest",
                "try everything once with a server of its own, and report what works"),
    SP_OPT_TABLE(struct mcp_flags, config, sp_config_options),
    SP_OPT_END,
};

/* The bearer tokens of HTTP. */
struct mcp_tokens {
    char *text;                         /* what the tokens point into */
    const char *tokens[TOKENS_MAX + 1]; /* NULL at the end */
    char *made; /* the file that we wrote, and remove at the end; NULL: none */
};

/* An environment besides the first. */
struct mcp_place {
    struct sp_config_place place; /* its cwd is the workspace */
    struct sp_backend *backend;
    struct sp_policy policy;
};

struct mcp_server {
    const struct mcp_flags *flags;
    struct sp_loop *loop;
    struct sp_ending ending;
    struct sp_config config;
    struct sp_config_place place;
    struct sp_hidden_paths hidden_paths;
    struct sp_backend *backend;
    struct sp_backend_wait facts; /* request for the facts about a server */
    struct sp_err unreachable;    /* code NONE: it answered */
    bool has_facts;
    char *cwd;
    struct sp_local_socket *local_socket; /* NULL: --no-local-socket */
    struct sp_console *console;           /* the same */

    struct sp_policy policy;
    const char *policy_name; /* spelled as in the option or the configuration */
    bool is_open;            /* the policy confines nothing */
    struct sp_cli_approval approval;
    struct sp_snapshots *snapshots; /* NULL: none */
    struct sp_env_request environ;
    struct mcp_place *places; /* further environments */
    size_t place_count;
    struct sp_environment_spec *environments; /* with the first */
    struct sp_manager_options manager;
    struct sp_mcp *mcp;

    struct mcp_tokens tokens;
    struct sp_mcp_lines **lines; /* by index of --listen; NULL: that one is HTTP */
    struct sp_mcp_http **https;  /* the other way round */
};

/* ---- where commands run ---- */

/* The workspace is on this machine. */
static int open_here(struct mcp_server *s, struct sp_err *e)
{
    const struct mcp_flags *f = s->flags;
    const struct sp_own_places_options own = {.config = &s->config,
                                              .rules = f->approval.rules.items,
                                              .approvers = f->approval.approvers.items,
                                              .token_file = f->token_file};
    struct sp_journal *journal = NULL;
    char runtime_dir[512];
    int r = sp_place_hidden_paths(&own, &s->hidden_paths, e);

    /* Through these sockets a confined command could ask us for an unconfined one. */
    for (size_t i = 0; r == 0 && i < f->listen.count; i++)
        if (strncmp(f->listen.items[i], "unix://", 7) == 0 &&
            !sp_hidden_paths_add(&s->hidden_paths, f->listen.items[i] + 7))
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "collect the paths to hide from sandboxes");
    if (r < 0)
        return r;
    /* Hosts kill their servers: placeholders that a killed one left in a workspace are removed now,
     * not with the first command. */
    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    if (sp_journal_new(runtime_dir, NULL, &journal, NULL) == 0)
        sp_journal_free(journal);
    s->cwd = sp_place_dir(f->cwd, e);
    sp_limits_put_over(&s->config.limits, &f->limits);
    return s->cwd == NULL ? -(int)e->code
                          : sp_place_here(s->loop, s->cwd, &s->hidden_paths, &s->config.limits,
                                          true, &s->backend, e);
}

/* Ends the wait of open_there(). */
static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct mcp_server *s = SP_CONTAINER(w, struct mcp_server, facts);

    s->has_facts = facts != NULL;
    if (facts == NULL)
        s->unreachable = *e;
    else if (s->cwd == NULL && facts->cwd != NULL)
        s->cwd = strdup(facts->cwd);
    sp_loop_stop(s->loop);
}

/* Waits for the server: without --cwd it names the workspace, which the policy needs. */
static int open_there(struct mcp_server *s, struct sp_err *e)
{
    const char *cwd = s->flags->cwd != NULL ? s->flags->cwd : s->place.cwd;
    char why[500];
    int r = 0;

    if (cwd != NULL && cwd[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "--cwd: want an absolute path on %s", s->place.name);
    if (cwd != NULL && (s->cwd = strdup(cwd)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy --cwd");
    r = sp_place_there(s->loop, &s->place, &s->flags->limits, &s->backend, e);
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

/* ---- the policy and the approvals ---- */

/* The files of rules have changed. */
static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    const struct mcp_server *s = user;

    sp_judge_tell_doubtful(rules, s->is_open ? NULL : &s->policy, sp_cli_warn, NULL);
    return s->mcp == NULL || sp_mcp_set_rules(s->mcp, rules, fingerprint);
}

/* Over stdio the terminal, if there is one, belongs to the host, which draws there and reads keys.
 */
static int open_approvals(struct mcp_server *s, struct sp_err *e)
{
    const bool is_stdio = s->flags->listen.count == 0;
    int r = 0;

    if (s->local_socket != NULL)
        r = sp_console_new(sp_local_socket_rpc(s->local_socket), s->local_socket, &s->console, e);
    if (r < 0)
        return r;
    const struct sp_cli_approval_options ask = {
        .loop = s->loop,
        .config = &s->config,
        .flags = &s->flags->approval,
        .cwd = s->place.is_local ? s->cwd : NULL,
        .policy = s->is_open ? NULL : &s->policy,
        .changed = on_rules,
        .user = s,
        .who = {.choices = "deny, client, terminal, console or program:PATH",
                .has_console = s->console != NULL,
                .joins_console = s->console != NULL,
                .has_client = true,
                .begins_with_client = true,
                .open_terminal = is_stdio ? NULL : sp_approver_tty_new,
                .no_terminal =
                    "terminal: our stdin is the host's MCP channel, and the terminal is the "
                    "host's too; give --approver program:PATH, or use a host that asks its user "
                    "(elicitation)"},
    };

    return sp_cli_approval_open(&ask, &s->approval, e);
}

/* The sandbox if no option names one. */
static const char *sandbox_or_else(const struct mcp_server *s)
{
    return s->config.default_permissions != NULL ? s->config.default_permissions : ":workspace";
}

static int find_policy(struct mcp_server *s, struct sp_err *e)
{
    struct sp_resolved resolved = {0};
    bool can_write = false;

    const char *or_else = sandbox_or_else(s);
    int r = sp_policy_options_make(&s->flags->policy, &s->config, or_else, s->cwd,
                                   s->place.is_local, &s->policy, &s->is_open, e);
    s->policy_name = sp_policy_options_name(&s->flags->policy, or_else);
    if (r < 0 || !s->place.is_local)
        return r;
    /* Hosts on a desktop start their servers in / or in the home directory, which is no project:
     * such a directory must not become the workspace by chance. */
    if (!s->is_open && s->flags->cwd == NULL)
        can_write = sp_resolve(&s->policy, &resolved, NULL) < 0 ||
                    sp_resolved_can_write(&resolved, s->cwd, NULL, NULL);
    sp_resolved_done(&resolved);
    if (can_write && strcmp(s->cwd, "/") == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "started in /, so everything would be the workspace, and the sandbox `%s` "
                       "would protect nothing: give --cwd DIR (or --cwd / if you mean it)",
                       s->policy_name);
    if (can_write && sp_config_holds_home(&s->config, s->cwd))
        return sp_fail(
            e, SP_E_INVALID, 0,
            "started in %.200s, so your whole home directory would be the workspace: "
            "give --cwd DIR, the directory of a project (or --cwd %.200s if you mean it)",
            s->cwd, s->cwd);
    return sp_config_keep_dot_files(&s->config, &s->policy, e);
}

/* ---- further environments: --on given again ---- */

/* Each has its own workspace under the policy of the server. It connects with its first command, so
 * that one that cannot be reached does not keep the others from being used. */

static int open_place(struct mcp_server *s, const char *name, struct mcp_place *p,
                      struct sp_environment_spec *ret, struct sp_err *e)
{
    bool is_open = false;
    int r = sp_place_find(&s->config, name, &p->place, e);

    if (r < 0)
        return r;
    /* The workspace of `local` is --cwd or our directory, and both are about the first one. */
    if (p->place.is_local)
        return sp_fail(e, SP_E_INVALID, 0, "--on: give `local` as the first environment");
    /* There is no connection yet to ask the server for its directory. */
    if (p->place.cwd == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--on %s: give its directory as `cwd` in [environments.%s] of the "
                       "configuration",
                       p->place.name, p->place.name);
    r = sp_place_there(s->loop, &p->place, &s->flags->limits, &p->backend, e);
    if (r == 0)
        r = sp_policy_options_make(&s->flags->policy, &s->config, sandbox_or_else(s), p->place.cwd,
                                   false, &p->policy, &is_open, e);
    *ret = (struct sp_environment_spec){
        .id = p->place.name,
        .backend = p->backend,
        .cwd = p->place.cwd,
        .is_remote = true,
        .has_own_policy = true,
        .policy = is_open ? NULL : &p->policy,
        .policy_name = s->policy_name,
    };
    return r;
}

static int open_places(struct mcp_server *s, struct sp_err *e)
{
    const struct sp_option_list *on = &s->flags->on;
    const size_t count = on->count > 1 ? on->count : 1;
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
    for (size_t i = 0; count > 1 && i < count; i++) {
        const char *name = on->items[i];

        if (strstr(name, "://") != NULL)
            return sp_fail(e, SP_E_INVALID, 0,
                           "--on: several environments are told apart by name: write an "
                           "[environments.NAME] into the configuration, with its url and cwd, and "
                           "give --on NAME");
        for (size_t k = 0; k < i; k++)
            if (strcmp(on->items[k], name) == 0)
                return sp_fail(e, SP_E_INVALID, 0, "--on: `%s` is given twice", name);
    }
    for (size_t i = 1; r == 0 && i < count; i++)
        r = open_place(s, on->items[i], &s->places[s->place_count++], &s->environments[i], e);
    return r;
}

/* ---- instructions: what a model is told before its first call ---- */

static bool add_places(struct sp_buf *out, const struct mcp_server *s)
{
    bool ok = sp_buf_printf(out, "Commands run in ") && sp_plain_add(out, sp_str_of(s->cwd));

    if (!s->place.is_local)
        ok = ok && sp_buf_printf(out, " on ") && sp_plain_add(out, sp_str_of(s->place.name));
    ok = ok && sp_buf_printf(out, ".\n");
    if (s->place_count == 0)
        return ok;
    ok = ok && sp_buf_printf(out, "That is the environment ") &&
         sp_plain_add(out, sp_str_of(s->place.name)) &&
         sp_buf_printf(out, "; others, by environment_id:");
    for (size_t i = 0; ok && i < s->place_count; i++) {
        const struct sp_config_place *place = &s->places[i].place;

        assert(place->name != NULL && place->cwd != NULL);
        ok = sp_buf_printf(out, i == 0 ? " " : ", ") && sp_plain_add(out, sp_str_of(place->name)) &&
             sp_buf_printf(out, " (") && sp_plain_add(out, sp_str_of(place->cwd)) &&
             sp_buf_printf(out, ")");
    }
    return ok && sp_buf_printf(out, ".\n");
}

/* A model that cannot get permission should not ask for it. */
static bool add_permissions(struct sp_buf *out, const struct mcp_server *s, bool host_asks)
{
    bool ok = sp_buf_printf(out, s->is_open ? "They are not confined.\n"
                                            : "They are confined by the sandbox ");

    if (!s->is_open)
        ok = ok && sp_plain_add(out, sp_str_of(s->policy_name)) &&
             sp_buf_printf(
                 out,
                 "%s; the network is %s. What the sandbox denied is told in lines "
                 "that begin with `Sandbox denied:`; explain_denial says which rule it was.\n",
                 strcmp(s->policy_name, ":workspace") == 0
                     ? ": everything can be read, and what is below the directory above and the "
                       "temporary directories can be written, but for .git and the like"
                     : "",
                 s->policy.profile.has_network ? "open"
                 : sp_profile_managed(&s->policy.profile) != NULL
                     ? "managed: only hosts that are allowed can be reached, by name or through "
                       "the proxy variables"
                     : "closed");
    if (s->approval.found.options.policy.kind == SP_APPROVAL_NEVER)
        return ok && sp_buf_printf(out, "No permission can be asked for: what is not allowed is "
                                        "refused.\n");
    if (!host_asks && !sp_approvers_has_others(s->approval.approvers))
        return ok &&
               sp_buf_printf(out, "This host cannot ask a person, and no approver is configured: "
                                  "what the sandbox and the rules do not allow is refused, so do "
                                  "not ask for it.\n");
    return ok &&
           sp_buf_printf(out,
                         "To run a command outside of the sandbox, call exec_command with "
                         "sandbox_permissions \"require_escalated\" and a justification: %s is "
                         "asked. An answer that approval is pending means: repeat the same call.\n",
                         host_asks ? "a person" : "the configured approver");
}

static bool add_published(struct sp_buf *out, const struct mcp_server *s)
{
    const struct sp_published *port;
    bool ok = true;

    for (uint32_t i = 0;
         ok && s->place.is_local && (port = sp_local_published(s->backend, i)) != NULL; i++)
        ok = sp_buf_printf(out,
                           "Outside of the sandbox 127.0.0.1:%u leads to port %u of 127.0.0.1 or "
                           "::1 inside: let a server listen there to be reached.\n",
                           port->host, port->cell);
    return ok;
}

static bool add_sessions(struct sp_buf *out, const struct mcp_server *s)
{
    const struct sp_config *c = &s->config;
    bool ok = sp_buf_printf(
        out, "A command that has not ended when a call answers is a session: write_stdin types "
             "into it or, without characters, waits for more; `until` ends a wait at a pattern, "
             "after silence, or when a port is open. `State:` says what the process is doing: "
             "`reading_terminal` waits for input. A call of a host that sends no progress token "
             "waits 47 s at most, whatever yield_time_ms says; its answer says so, and write_stdin "
             "waits on.\n");

    if (!s->flags->keeps_cancelled && !c->mcp_keep_cancelled)
        ok = ok && sp_buf_printf(out, "An exec_command that is cancelled before its answer ends "
                                      "its process; a later call does not.\n");
    if (c->exited_ttl_s > 0)
        ok = ok && sp_buf_printf(out,
                                 "The output of a session stays readable with read_output for "
                                 "%llu s after its end was told; then its id is unknown.\n",
                                 (unsigned long long)c->exited_ttl_s);
    if (c->idle_ttl_s > 0)
        ok = ok && sp_buf_printf(out, "A session that no call uses for %llu s is ended.\n",
                                 (unsigned long long)c->idle_ttl_s);
    if (s->flags->listen.count == 0)
        ok = ok && sp_buf_printf(out, "Sessions end with the connection.\n");
    else if (c->detached_ttl_s > 0)
        ok = ok && sp_buf_printf(out,
                                 "Sessions outlive the connection; without one for %llu s they "
                                 "end.\n",
                                 (unsigned long long)c->detached_ttl_s);
    return ok;
}

/* host_asks: the host can ask a person. To be freed; NULL: out of memory. */
static char *write_instructions(const struct mcp_server *s, bool host_asks)
{
    auto_buf struct sp_buf out = {0};

    if (!add_places(&out, s) || !add_permissions(&out, s, host_asks) || !add_published(&out, s) ||
        !add_sessions(&out, s))
        return NULL;
    return strndup(out.data, out.len);
}

/* ---- tokens ---- */

/* A file that only its owner can read. */
static int read_token_file(const char *file, char **ret, struct sp_err *e)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct sp_buf text = {0};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "--token-file %s", file);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--token-file %s: want a file that nobody but its owner can read: chmod 600",
                       file);
    const int err = sp_read_all(fd, MAX_TOKEN_FILE, &text);
    if (err == EFBIG || (err == 0 && sp_str_has_nul(sp_buf_str(&text))))
        return sp_fail(e, SP_E_INVALID, 0, "--token-file %s: want lines of text, %d bytes at most",
                       file, MAX_TOKEN_FILE);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "--token-file %s", file);
    *ret = strndup(sp_buf_str(&text).p, text.len);
    if (text.len > 0)
        explicit_bzero(text.data, text.len);
    return *ret != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", file);
}

/* One token a line; empty lines are skipped. */
static int read_tokens(const char *file, struct mcp_tokens *ret, struct sp_err *e)
{
    size_t count = 0;
    unsigned line = 0;
    char *rest;
    const int r = read_token_file(file, &ret->text, e);

    if (r < 0)
        return r;
    rest = ret->text;
    for (char *word; (word = strsep(&rest, "\n")) != NULL;) {
        line++;
        word[strcspn(word, "\r")] = 0;
        if (word[0] == 0)
            continue;
        /* Visible ASCII, which includes the b64token of RFC 6750. */
        bool is_token = strlen(word) >= SP_TOKEN_MIN;
        for (const char *c = word; *c != 0; c++)
            is_token &= *c > ' ' && *c <= '~';
        if (!is_token)
            return sp_fail(e, SP_E_INVALID, 0,
                           "--token-file %s: line %u: want at least %d visible characters and no "
                           "space",
                           file, line, SP_TOKEN_MIN);
        if (count == TOKENS_MAX)
            return sp_fail(e, SP_E_LIMIT, 0, "--token-file %s: more than %d tokens", file,
                           TOKENS_MAX);
        ret->tokens[count++] = word;
    }
    return count > 0 ? 0 : sp_fail(e, SP_E_INVALID, 0, "--token-file %s: no token in it", file);
}

#define TOKEN_BYTES 24

/* A token of our own, in a file of the runtime directory. */
static int make_token(struct mcp_tokens *ret, struct sp_err *e)
{
    auto_free char *path = NULL;
    auto_close int fd = -1;
    char token[2 * TOKEN_BYTES + 1];
    char dir[512];

    if (!sp_hex_random(TOKEN_BYTES, token))
        return sp_fail(e, SP_E_SYSTEM, errno, "make a token");
    sp_runtime_dir(dir, sizeof dir);
    (void)mkdir(dir, 0700); /* usually there; another error shows when the file is opened */
    if (asprintf(&path, "%s/mcp-%d.token", dir, (int)getpid()) < 0 ||
        (ret->text = strdup(token)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a token");
    ret->tokens[0] = ret->text;
    (void)unlink(path); /* left by a killed server that had our pid */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", token) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "write the token to %s", path);
    ret->made = TAKE_PTR(path);
    return 0;
}

/* ---- transports ---- */

static void on_finished(void *user)
{
    sp_loop_stop(((struct mcp_server *)user)->loop);
}

static int open_lines(struct mcp_server *s, const char *url, struct sp_mcp_lines **ret,
                      struct sp_err *e)
{
    const struct sp_mcp_lines_options o = {
        .url = url,
        .max_connections = MAX_CONNECTIONS,
        .user = s,
        .finished = on_finished,
    };

    return sp_mcp_lines_new(s->mcp, &o, ret, e);
}

/* Commands that may reach this machine's loopback must not reach our own port there. */
static int keep_port_apart(struct mcp_server *s, const char *url, struct sp_err *e)
{
    const char *colon = strrchr(url, ':');
    struct sp_str rest = sp_str_of(colon == NULL ? "" : colon + 1);
    uint64_t port;

    if (!sp_str_to_u64(sp_str_cut(&rest, '/'), UINT16_MAX, &port))
        return sp_fail(e, SP_E_INVALID, 0, "--listen %s: no port", url);
    if (s->place.is_local && !sp_local_add_own_port(s->backend, (uint16_t)port))
        return sp_fail(e, SP_E_LIMIT, 0, "--listen: too many ports; give fewer");
    return 0;
}

/* --listen number i. The tokens are read or made once, for all HTTP transports. */
static int listen_at(struct mcp_server *s, size_t i, struct sp_err *e)
{
    const char *url = s->flags->listen.items[i];
    const struct sp_mcp_http_options http = {
        .url = url,
        .tokens = s->tokens.tokens,
        .origins = s->flags->origins.items,
        .allows_remote = s->flags->allows_remote,
        .max_connections = MAX_CONNECTIONS,
    };
    const bool is_unix = strncmp(url, "unix:///", 8) == 0;
    int r = 0;

    if (!is_unix && strncmp(url, "http://", 7) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--listen: `%s` is neither unix:///PATH nor http://ADDRESS:PORT/PATH", url);
    if (!is_unix && s->tokens.tokens[0] == NULL) {
        r = s->flags->token_file != NULL ? read_tokens(s->flags->token_file, &s->tokens, e)
                                         : make_token(&s->tokens, e);
        if (r == 0 && s->tokens.made != NULL)
            (void)fprintf(stderr, "sallyport: the bearer token is in %s\n", s->tokens.made);
    }
    if (r == 0)
        r = is_unix ? open_lines(s, url, &s->lines[i], e)
                    : sp_mcp_http_new(s->mcp, &http, &s->https[i], e);
    if (r == 0 && !is_unix)
        r = keep_port_apart(s, sp_mcp_http_url(s->https[i]), e);
    if (r < 0)
        return r;
    (void)printf("%s\n", is_unix ? sp_mcp_lines_url(s->lines[i]) : sp_mcp_http_url(s->https[i]));
    return fflush(stdout) == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "print the URL on stdout");
}

/* ---- beginning and end ---- */

/* The tools, on top of everything that was opened before. */
static int open_mcp(struct mcp_server *s, struct sp_err *e)
{
    auto_free char *directory = NULL;
    auto_free char *instructions = write_instructions(s, true);
    auto_free char *without_asking = write_instructions(s, false);
    const char *output = s->flags->structured_output != NULL ? s->flags->structured_output
                                                             : s->config.mcp_structured_output;

    if (instructions == NULL || without_asking == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write the instructions");
    if (s->config.has_shell_snapshot && s->place.is_local && s->config.home != NULL &&
        asprintf(&directory, "%s/snapshots", s->config.home) >= 0) {
        const struct sp_snapshots_options snapshots = {
            .backend = s->backend,
            .directory = directory,
            .policy = s->is_open ? NULL : &s->policy,
        };
        (void)sp_snapshots_new(&snapshots, &s->snapshots, NULL); /* else commands start slower */
    }
    s->environ = (struct sp_env_request){
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
        .approvals = s->approval.found.options,
        .policy = s->is_open ? NULL : &s->policy,
        .policy_name = s->policy_name,
        .environ = &s->environ,
        .snapshots = s->snapshots,
    };
    sp_config_manager(&s->config, &s->manager);
    const struct sp_mcp_options o = {
        .loop = s->loop,
        .manager = &s->manager,
        .tools = {.has_login = s->config.allow_login_shell,
                  .has_additional_permissions = s->config.has_exec_permission_approvals,
                  .has_no_timeout = s->config.has_write_stdin_no_timeout,
                  .has_unified_exec = s->config.has_unified_exec},
        .approvers = s->approval.approvers,
        .fixed = sp_hidden_paths_places(&s->hidden_paths),
        .cwd = s->cwd,
        .instructions = instructions,
        .instructions_without_asking = without_asking,
        .is_remote = !s->place.is_local,
        .keeps_cancelled = s->flags->keeps_cancelled || s->config.mcp_keep_cancelled,
        .structured_output = strcmp(output, "always") == 0  ? SP_MCP_OUTPUT_ALWAYS
                             : strcmp(output, "never") == 0 ? SP_MCP_OUTPUT_NEVER
                                                            : SP_MCP_OUTPUT_AUTO,
        .detached_ttl_ms = s->config.detached_ttl_s * 1000,
        .console = s->console,
    };
    return sp_mcp_new(&o, &s->mcp, e);
}

static int begin_server(struct mcp_server *s, struct sp_err *e)
{
    int r = sp_cli_load_config(&s->flags->config, "sallyport", &s->config, e);

    if (r < 0)
        return r;
#ifndef __SANITIZE_ADDRESS__         /* LeakSanitizer attaches to the process at its end */
    (void)prctl(PR_SET_DUMPABLE, 0); /* tokens, and the output of all callers, are in our memory */
#endif
    r = sp_place_find(&s->config, s->flags->on.count > 0 ? s->flags->on.items[0] : NULL, &s->place,
                      e);
    if (r == 0)
        r = sp_loop_new(&s->loop, e);
    if (r == 0)
        r = sp_ending_begin(&s->ending, s->loop, e);
    if (r == 0)
        r = s->place.is_local ? open_here(s, e) : open_there(s, e);
    if (r == 0)
        sp_loop_busy_poll(s->loop)->mode = sp_busy_poll_mode_of(s->config.busy_poll);
    const struct sp_local_socket_options local_socket = {
        .loop = s->loop, .kind = "mcp", .backend = s->place.is_local ? &s->backend : NULL};
    if (r == 0 && !s->flags->has_no_local_socket)
        r = sp_local_socket_new(&local_socket, &s->local_socket, e);
    if (r == 0)
        r = find_policy(s, e);
    if (r == 0)
        r = sp_policy_options_publish(&s->flags->policy, &s->config, &s->policy,
                                      s->place.is_local ? s->backend : NULL, e);
    if (r == 0)
        r = open_approvals(s, e);
    if (r == 0)
        r = open_places(s, e);
    if (r == 0)
        r = open_mcp(s, e);
    if (r < 0)
        return r;

    /* The transports of --listen, or stdio. */
    const size_t count = s->flags->listen.count;

    if (count == 0 && isatty(STDIN_FILENO))
        sp_cli_warn(NULL, "waiting for an MCP host on this terminal, which has to speak JSON-RPC; "
                          "Ctrl-D ends it (see sallyport mcp --selftest)");
    s->lines = calloc(count + 1, sizeof(struct sp_mcp_lines *));
    s->https = calloc(count + 1, sizeof(struct sp_mcp_http *));
    if (s->lines == NULL || s->https == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "listen");
    if (count == 0)
        return open_lines(s, NULL, &s->lines[0], e);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = listen_at(s, i, e);
    return r;
}

/* In reverse order; members that were never opened are zero. */
static void end_server(struct mcp_server *s)
{
    for (size_t i = 0; s->lines != NULL && i <= s->flags->listen.count; i++)
        sp_mcp_lines_free(s->lines[i]);
    for (size_t i = 0; s->https != NULL && i <= s->flags->listen.count; i++)
        sp_mcp_http_free(s->https[i]);
    free(s->lines);
    free(s->https);
    if (s->tokens.made != NULL)
        (void)unlink(s->tokens.made);
    free(s->tokens.made);
    if (s->tokens.text != NULL)
        explicit_bzero(s->tokens.text, strlen(s->tokens.text));
    free(s->tokens.text);
    sp_mcp_free(s->mcp);
    sp_snapshots_free(s->snapshots);
    sp_cli_approval_done(&s->approval);
    sp_console_free(s->console);
    sp_local_socket_free(s->local_socket);
    for (size_t i = 0; i < s->place_count; i++) {
        sp_backend_free(s->places[i].backend);
        sp_policy_done(&s->places[i].policy);
        sp_config_place_done(&s->places[i].place);
    }
    free(s->places);
    free(s->environments);
    sp_backend_free(s->backend);
    sp_ending_done(&s->ending);
    sp_loop_free(s->loop);
    sp_policy_done(&s->policy);
    sp_hidden_paths_done(&s->hidden_paths);
    sp_config_place_done(&s->place);
    sp_config_done(&s->config);
    free(s->cwd);
}

/* ---- the command ---- */

/* NULL: the options fit together. */
static const char *find_misuse(const struct mcp_flags *f)
{
    bool is_http = false;

    for (size_t i = 0; i < f->listen.count; i++)
        is_http |= strncmp(f->listen.items[i], "http:", 5) == 0;
    if (f->connect != NULL && (f->listen.count > 0 || f->is_selftest))
        return "--connect goes with neither --listen nor --selftest";
    if (f->connect != NULL && strncmp(f->connect, "unix:///", 8) != 0)
        return "--connect: want unix:///PATH";
    if (f->is_selftest && f->listen.count > 0)
        return "--selftest has a server of its own: leave --listen out";
    if (!is_http && f->token_file != NULL)
        return "--token-file is for --listen http://...";
    if (!is_http && (f->origins.count > 0 || f->allows_remote))
        return "--allow-origin and --allow-remote are for --listen http://...";
    return NULL;
}

static int run_mcp(void *values, char **operands)
{
    (void)operands;
    const struct mcp_flags *f = values;
    struct mcp_server s = {.flags = f};
    const char *misuse = find_misuse(f);
    struct sp_err e = {0};
    int r;

    if (misuse != NULL)
        return sp_command_misused(&sp_command_mcp, misuse);
    (void)sp_log_set_level("error");
    if (f->is_selftest)
        return sp_mcp_selftest(f->argc, f->argv);
    if (f->connect != NULL) {
        r = sp_mcp_relay(f->connect + strlen("unix://"), &e);
    } else {
        r = begin_server(&s, &e);
        if (r == 0)
            r = sp_loop_run(s.loop, &e);
        end_server(&s);
    }
    return r != 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}

static int mcp_main(int argc, char **argv)
{
    struct mcp_flags f = {.argc = argc, .argv = argv};

    return sp_command_run(&sp_command_mcp, argc, argv, &f, run_mcp);
}

const struct sp_cli_command sp_command_mcp = {
    .name = "mcp",
    .summary = "tools for any agent: run commands over the Model Context Protocol",
    .usage = "sallyport mcp [OPTIONS]\n"
             "\n"
             "Offers exec_command, write_stdin, read_output and more to any MCP host, "
             "over stdio.\n",
    .notes = "Over stdio the server ends with its input, and every process with it.\n"
             "Example: sallyport mcp --sandbox :workspace --cwd ~/project\n",
    .options = options,
    .main = mcp_main,
};
