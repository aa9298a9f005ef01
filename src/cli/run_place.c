/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/runtime_dir.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "core/journal.h"
#include "engine/local.h"
#include "engine/remote/remote.h"
#include "os/spawn.h"
#include "sandbox/hidden_paths.h"
#include "server/net/own_sockets.h"

#define CONNECT_MS    10000 /* to a socket of this user */
#define MAX_PROCESSES 16    /* for a backend that runs one */
#define DEFAULT_PIDS  4096  /* of all commands: a fork bomb must not take the machine */
#define HISTORY       1000  /* for a backend that runs many: ended processes that are remembered */

int sp_place_hidden_paths(const struct sp_own_places_options *ask, struct sp_hidden_paths *ret,
                          struct sp_err *e)
{
    char runtime_dir[512];

    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    if (!sp_hidden_paths_find(runtime_dir, ret))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "collect the paths to hide from sandboxes");
    return sp_own_places_find(ask, ret, e);
}

int sp_place_here(struct sp_loop *loop, const char *cwd, const struct sp_hidden_paths *hidden_paths,
                  const struct sp_limit_levels *limits, bool is_for_many, struct sp_backend **ret,
                  struct sp_err *e)
{
    char runtime_dir[512];

    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    const struct sp_local_options o = {
        .program = "/proc/self/exe",
        .max_processes = is_for_many ? 0 : MAX_PROCESSES,
        .history = is_for_many ? HISTORY : 0,
        .use_cgroups = is_for_many, /* one command has few processes: walking the process tree finds
                                        them */
        .limits = *limits,
        .default_pids = DEFAULT_PIDS,
        .fixed = sp_hidden_paths_places(hidden_paths),
        .runtime_dir = runtime_dir,
        .cwd = cwd,
        .owns_program = true,
    };
    return sp_local_new(loop, &o, ret, e);
}

/* The options of the client are those of the place in the configuration. */
int sp_place_there(struct sp_loop *loop, const struct sp_config_place *p,
                   const struct sp_limit_levels *limits, struct sp_backend **ret, struct sp_err *e)
{
    const struct sp_client_options o = {
        .url = p->url,
        .program = p->program,
        .env = p->env,
        .cwd = p->cwd,
        .token = p->token,
        .connect_timeout_ms = p->connect_timeout_ms,
        .limits = limits->level[SP_LIMIT_COMMAND],
    };

    for (int level = SP_LIMIT_SESSION; level < SP_LIMIT_LEVELS; level++)
        for (int i = 0; i < SP_LIMIT_SHARED; i++)
            if (limits->level[level].of[i] != 0)
                return sp_fail(e, SP_E_INVALID, 0,
                               "--limit %s:%s: a server has these limits from its own options, "
                               "which are not those of its clients",
                               sp_limit_level_names[level], sp_limit_kinds[i].name);
    return sp_remote_new(loop, &o, ret, e);
}

/* HOST:PORT, the form in which serve takes an address. */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');

    return colon != NULL && colon != text && strchr(text, '/') == NULL && colon[1] != 0 &&
           colon[1 + strspn(colon + 1, "0123456789")] == 0;
}

int sp_place_find(const struct sp_config *c, const char *on, struct sp_config_place *ret,
                  struct sp_err *e)
{
    const int r = sp_config_place(c, on, ret, e);
    struct sp_own_socket found;

    if (r != -SP_E_NOT_FOUND || on == NULL)
        return r;
    if (!sp_own_socket_named(on, &found)) {
        struct sp_nearest near = sp_nearest_to(sp_str_of(on));
        char meant[100] = "";

        sp_nearest_offer(&near, "local");
        for (size_t i = 0; i < c->environment_count; i++)
            sp_nearest_offer(&near, c->environments[i].name);
        if (on[0] == '/')
            (void)snprintf(meant, sizeof meant, "; did you mean `unix://%.60s`?", on);
        else if (is_address(on))
            (void)snprintf(meant, sizeof meant, "; did you mean `ws://%.60s`?", on);
        else if (near.best != NULL)
            (void)snprintf(meant, sizeof meant, "; did you mean `%.80s`?", near.best);
        return sp_fail(e, SP_E_NOT_FOUND, 0,
                       "--on: `%.80s` is neither `local`, an environment of the configuration, a "
                       "URL, nor the pid or the name of a running server (see `sallyport ps`)%s",
                       on, meant);
    }
    char *url = strdup(found.url);
    if (url == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy --on");
    *e = (struct sp_err){0};
    *ret = (struct sp_config_place){
        .name = url, .url = url, .own_name = url, .connect_timeout_ms = CONNECT_MS};
    return 0;
}

/* ---- running one command ---- */

static int carry_here(struct sp_start *l, const struct sp_place_run *how,
                      struct sp_carry_result *ret, struct sp_err *e)
{
    struct sp_carry_options o = {
        .launch = l, .quiet_ms = how->quiet_ms, .after_ms = how->after_ms, .tells_denials = true};
    const struct sp_limit_levels none = {0};
    struct sp_hidden_paths hidden = {0};
    struct sp_carry *c = NULL;
    int r = sp_carry_new(&c, e);

    if (r == 0)
        r = sp_place_hidden_paths(how->own, &hidden, e);
    if (r == 0)
        r = sp_place_here(sp_carry_loop(c), how->cwd, &hidden, &none, false, &o.backend, e);
    if (r == 0 && how->options != NULL)
        r = sp_policy_options_publish(how->options, how->own->config, l->policy, o.backend, e);
    if (r == 0)
        r = sp_carry_run(c, &o, ret, e);
    sp_backend_free(o.backend);
    sp_carry_free(c);
    sp_hidden_paths_done(&hidden);
    return r;
}

int sp_place_run(char *const *command, struct sp_start *l, const struct sp_place_run *how)
{
    auto_free struct sp_str *argv = sp_cli_words(command, &l->argc);
    struct sp_carry_result result = {0};
    struct sp_err e = {0};
    int err = 0;

    l->argv = argv;
    if ((argv == NULL ? sp_fail(&e, SP_E_SYSTEM, ENOMEM, "copy arguments")
                      : carry_here(l, how, &result, &e)) < 0) {
        (void)sp_cli_complain(&e);
        return how->failed;
    }
    if (how->is_verbose || isatty(STDERR_FILENO))
        sp_carry_print_denied(&result, how->is_verbose);
    if (how->is_verbose)
        sp_carry_print_denied_hosts(&result);
    free(result.network);
    sp_receipt_drop(&result.receipt);
    switch (result.end) {
    case SP_CARRY_EXITED:
    case SP_CARRY_ABANDONED:
        return result.exit.code < 0 ? how->failed : result.exit.code;
    case SP_CARRY_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_CARRY_REFUSED:
        /* Without a sandbox a missing program is a failed start; in one it is a command that exits
         * with 127 and a line on stderr. Make the first look like the second. */
        if (l->policy->profile.kind == SP_PROFILE_DISABLED) {
            const int status = sp_carry_not_run(&result.error, &err);

            if (status != 0) {
                char text[4096];

                (void)sp_spawn_explain(command[0], command[1] == NULL, err, text, sizeof text);
                sp_plain_say("sallyport", text);
                return status;
            }
        }
        (void)sp_cli_complain(&result.error);
        break;
    case SP_CARRY_LOST:
        (void)fprintf(stderr, "sallyport: the sandbox ended before %s\n", how->what);
        break;
    case SP_CARRY_DETACHED:    /* carry_here does not ask for that, */
    case SP_CARRY_REJECTED:    /* nothing is judged here, */
    case SP_CARRY_UNREACHABLE: /* the backend is local, */
    case SP_CARRY_TIMED_OUT:   /* and there is no timeout */
        break;
    }
    return how->failed;
}

int sp_place_find_shell(struct sp_shell *ret, struct sp_err *e)
{
    auto_free char *account = NULL;
    const int r = sp_shell_of_account(&account, e);
    const struct sp_shell_places places = {.account_shell = account, .path = getenv("PATH")};

    return r < 0 ? r : sp_shell_find(&places, (struct sp_str){0}, ret, e);
}

void sp_place_say_left_out(const struct sp_env_request *ask)
{
    auto_buf struct sp_buf text = {0};

    if (sp_env_add_left_out(&ask->policy, ask->own, &text) && text.len > 0 &&
        sp_buf_add(&text, "", 1))
        sp_plain_say("sallyport", text.data);
}

char *sp_place_dir(const char *given, struct sp_err *e)
{
    auto_free char *path = given == NULL ? getcwd(NULL, 0) : realpath(given, NULL);
    struct stat st;

    if (path == NULL || stat(path, &st) < 0)
        (void)sp_fail(e, SP_E_INVALID, errno, "%s%s",
                      given == NULL ? "the current directory (--cwd names another)" : "--cwd: ",
                      given == NULL ? "" : given);
    else if (!S_ISDIR(st.st_mode))
        (void)sp_fail(e, SP_E_INVALID, ENOTDIR, "--cwd: %s", path);
    else if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0) /* chdir would blame the program */
        (void)sp_fail(e, SP_E_INVALID, errno, "--cwd: %s", path);
    else
        return TAKE_PTR(path);
    return NULL;
}
