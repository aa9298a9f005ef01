/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: makes an engine of the library and frees it, with its environments, its approvals and its
 * manager.
 *
 * A place is immutable and reference-counted: an update makes a new one, and the old one lives
 * until its last run has ended. A backend lives until no place and no process uses it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/runtime_dir.h"
#include "config/config.h"
#include "config/own_places.h"
#include "config/policy.h"
#include "engine/local.h"
#include "engine/remote/remote.h"
#include "lib/engine_priv.h"

#define ANSWER_MS 5000
#define HISTORY   1000 /* ended commands that a local socket still shows */

#ifndef SP_BINDIR /* meson passes the installed one */
#define SP_BINDIR "/usr/local/bin"
#endif

/* The options of a place. */
struct place_ask {
    const char *name;
    const char *on; /* NULL: as configured */
    const char *sandbox, *cwd;
    struct sp_lib_where *where; /* an open backend; NULL: open one */
};

/* ---- the sallyport program, which runs commands for the library ---- */

/* Reads until end of file or until `text` is full. false: no end of file within ANSWER_MS. */
static bool read_answer(int in, char *text, size_t size)
{
    const uint64_t until = sp_clock_ms() + ANSWER_MS;
    size_t n = 0;

    for (uint64_t now = sp_clock_ms(); n + 1 < size && now < until; now = sp_clock_ms()) {
        struct pollfd p = {.fd = in, .events = POLLIN};

        if (poll(&p, 1, (int)(until - now)) < 0)
            continue; /* EINTR: a signal for the host */
        const ssize_t got = read(in, text + n, size - 1 - n);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            text[n] = 0;
            return true;
        }
        if (got > 0)
            n += (size_t)got;
    }
    text[n] = 0;
    return false;
}

static int check_version(const char *program, struct sp_err *e)
{
    static const char ours[] = "sallyport " SP_VERSION "\n";
    static const char *const argv[] = {"sallyport", "--version", NULL};
    char *const no_env[] = {NULL};
    struct sp_child child;
    char text[64];
    int ends[2];
    int status;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "ask %s for its version", program);
    auto_close int in = ends[0];
    const int r = sp_child_start(&child, program, argv, no_env,
                                 (int[]){SP_CHILD_NULL, ends[1], SP_CHILD_NULL});
    (void)close(ends[1]);
    if (r != 0)
        return sp_fail(e, SP_E_SYSTEM, r, "run %s", program);
    if (!read_answer(in, text, sizeof text))
        sp_child_signal(&child, SIGKILL);
    (void)sp_child_reap(&child, true, &status);
    if (strcmp(text, ours) == 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    return sp_fail(
        e, SP_E_INVALID, 0,
        "%s is not of this library's version, %s: it says `%s`. Install both together, or "
        "name the right program (option program, $SALLYPORT_PROGRAM)",
        program, SP_VERSION, text);
}

/*
 * The option `program`, else $SALLYPORT_PROGRAM, else the installed one. PATH is not searched, so
 * that no other program is run by accident. It is executable and of this library's version. The
 * caller frees *ret.
 */
static int find_program(const char *asked, char **ret, struct sp_err *e)
{
    const char *variable = secure_getenv("SALLYPORT_PROGRAM");
    const char *program = asked != NULL                          ? asked
                          : variable != NULL && variable[0] != 0 ? variable
                                                                 : SP_BINDIR "/sallyport";

    if (strchr(program, '/') == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the program `%s` must be named by its path, with a slash", program);
    if (access(program, X_OK) < 0)
        return sp_fail(
            e, SP_E_NOT_FOUND, errno,
            "the program that runs commands, %s: install it, or name it (option program, "
            "$SALLYPORT_PROGRAM)",
            program);
    const int r = check_version(program, e);
    if (r < 0)
        return r;
    /* Absolute: it runs later, perhaps from another working directory. */
    *ret = realpath(program, NULL);
    return *ret != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "find %s", program);
}

/* ---- backends ---- */

/* The hidden paths depend on the configuration and the program, so they are found anew. */
static int open_local(struct sp_engine *engine, struct sp_lib_where *w, const char *cwd,
                      struct sp_err *e)
{
    auto_free char *program = NULL;
    int r = find_program(engine->program, &program, e);
    const struct sp_own_places_options own = {.config = &engine->config, .program = program};

    sp_runtime_dir(engine->runtime_dir, sizeof engine->runtime_dir);
    sp_hidden_paths_done(&engine->hidden_paths);
    if (r == 0 && !sp_hidden_paths_find(engine->runtime_dir, &engine->hidden_paths))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "collect the paths to hide from sandboxes");
    if (r == 0)
        r = sp_own_places_find(&own, &engine->hidden_paths, e);
    if (r < 0)
        return r;
    const struct sp_local_options lo = {
        .program = program,
        .history = engine->console != NULL ? HISTORY : 0,
        .use_cgroups = true,
        .limits = engine->config.limits,
        .fixed = sp_hidden_paths_places(&engine->hidden_paths),
        .runtime_dir = engine->runtime_dir,
        .cwd = cwd,
    };
    r = sp_local_new(engine->loop, &lo, &w->backend, e);
    if (r == 0 && engine->console != NULL) {
        engine->local = w->backend;
        w->refs++; /* the local socket shows it as long as the engine lives */
    }
    return r;
}

/* All places that used the backend are gone. */
static void free_where(struct sp_engine *engine, struct sp_lib_where *w)
{
    struct sp_lib_where **at = &engine->wheres;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    sp_backend_free(w->backend);
    free(w->on);
    free(w);
}

/* All local environments share one backend. NULL: the error is in *e. */
static struct sp_lib_where *open_where(struct sp_engine *engine, const char *on, const char *cwd,
                                       const struct sp_config_place *place, struct sp_err *e)
{
    const struct sp_client_options server = {
        .url = place->url,
        .program = place->program,
        .env = place->env,
        .cwd = cwd,
        .token = place->token,
        .connect_timeout_ms = place->connect_timeout_ms,
    };
    struct sp_lib_where *w = place->is_local ? engine->wheres : NULL;

    while (w != NULL && !w->is_local)
        w = w->next;
    if (w != NULL)
        return w;
    w = calloc(1, sizeof *w);
    if (w == NULL || (on != NULL && (w->on = strdup(on)) == NULL)) {
        free(w);
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "open an environment");
        return NULL;
    }
    w->is_local = place->is_local;
    w->next = engine->wheres;
    engine->wheres = w;
    if ((place->is_local ? open_local(engine, w, cwd, e)
                         : sp_remote_new(engine->loop, &server, &w->backend, e)) == 0)
        return w;
    free_where(engine, w);
    return NULL;
}

/* ---- places ---- */

void sp_lib_place_unref(struct sp_lib_place *p)
{
    if (p == NULL || --p->refs != 0)
        return;
    if (p->where != NULL)
        p->where->refs--;
    sp_policy_done(&p->policy);
    free(p->name);
    free(p->cwd);
    free(p->policy_name);
    free(p);
}

static struct sp_environment_spec spec_of(const struct sp_lib_place *p)
{
    return (struct sp_environment_spec){
        .id = p->name,
        .backend = p->where->backend,
        .cwd = p->cwd,
        .has_own_policy = true,
        .policy = p->is_confined ? &p->policy : NULL,
        .policy_name = p->policy_name,
    };
}

/* Fails here rather than at the first command. p->cwd NULL: the server decides. */
static int find_cwd(struct sp_lib_place *p, const char *asked, bool is_local, struct sp_err *e)
{
    auto_free char *here = NULL;

    if (!is_local) {
        if (asked != NULL && asked[0] != '/')
            return sp_fail(
                e, SP_E_INVALID, 0,
                "the working directory on another machine must be an absolute path, not `%s`",
                asked);
        if (asked != NULL && (p->cwd = strdup(asked)) == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember the working directory");
        return 0;
    }
    here = getcwd(NULL, 0);
    if (here != NULL || (asked != NULL && asked[0] == '/'))
        p->cwd = sp_path_normalise(asked != NULL ? asked : here, here);
    if (p->cwd == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find the working directory");
    if (access(p->cwd, X_OK) < 0)
        return sp_fail(e, SP_E_NOT_FOUND, errno, "working directory %s", p->cwd);
    return 0;
}

/* The workspace is the working directory, so a sandbox needs one. */
static int find_policy(const struct sp_engine *engine, struct sp_lib_place *p, const char *name,
                       bool is_local, struct sp_err *e)
{
    bool is_open = true;

    if (name == NULL)
        return 0;
    int r = sp_config_policy(&engine->config, name, p->cwd != NULL ? p->cwd : "/", &p->policy,
                             &is_open, e);
    if (r == 0 && is_local)
        r = sp_config_keep_dot_files(&engine->config, &p->policy, e);
    if (r < 0 || is_open)
        return r;
    if (p->cwd == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sandbox `%s` on another machine needs its workspace: give the "
                       "option cwd, or cwd in the environment's configuration",
                       name);
    p->is_confined = true;
    p->policy_name = strdup(name);
    if (p->policy_name == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "name the sandbox");
    p->environ.permission_profile = sp_str_of(p->policy_name);
    return 0;
}

/* NULL: the error is in *e. */
static struct sp_lib_place *make_place(struct sp_engine *engine, const struct place_ask *a,
                                       struct sp_err *e)
{
    struct sp_config_place config = {.is_local = a->where != NULL && a->where->is_local};
    struct sp_lib_place *p = calloc(1, sizeof *p);

    if (p == NULL || (p->name = strdup(a->name)) == NULL) {
        free(p);
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "open an environment");
        return NULL;
    }
    p->refs = 1;
    /* One engine is one conversation: thread and session have the same id. */
    p->environ = (struct sp_env_request){
        .own = environ,
        .policy = engine->config.env_policy,
        .set = engine->config.env_set,
        .thread_id = sp_str_of(engine->thread_id),
        .session_id = sp_str_of(engine->thread_id),
    };
    int r = a->where != NULL ? 0 : sp_config_place(&engine->config, a->on, &config, e);
    if (r == 0)
        r = find_cwd(p, a->cwd != NULL || config.is_local ? a->cwd : config.cwd, config.is_local,
                     e);
    if (r == 0)
        r = find_policy(engine, p, a->sandbox, config.is_local, e);
    if (r == 0)
        p->where = a->where != NULL ? a->where : open_where(engine, a->on, p->cwd, &config, e);
    sp_config_place_done(&config);
    if (p->where != NULL) {
        p->where->refs++;
        return p;
    }
    sp_lib_place_unref(p);
    return NULL;
}

/* ---- warnings about the engine as a whole ---- */

static void tell_warning(struct sp_engine *engine, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_lib_tell_event(engine, &e);
}

/* Takes the list first: the callback may cause further warnings. */
static void tell_warnings(struct sp_deferred *d)
{
    struct sp_engine *engine = SP_CONTAINER(d, struct sp_engine, warn_later);
    struct sp_lib_warnings all = engine->warnings;

    engine->warnings = (struct sp_lib_warnings){0};
    for (uint32_t i = 0; i < all.count; i++) {
        tell_warning(engine, all.texts[i]);
        free(all.texts[i]);
    }
}

/* While the engine is made, its caller has no handle to it yet: warnings wait for the loop. */
static void warn_host(void *user, const char *text)
{
    struct sp_engine *engine = user;
    struct sp_lib_warnings *w = &engine->warnings;

    if (sp_loop_is_inside(engine->loop)) {
        tell_warning(engine, text);
        return;
    }
    char *copy = w->count == SP_LIB_WARNINGS_MAX ? NULL : strdup(text);
    if (copy == NULL)
        return;
    w->texts[w->count++] = copy;
    sp_loop_poke(engine->loop);
    sp_loop_again(engine->loop, &engine->warn_later, tell_warnings);
}

/* ---- approvals and the manager ---- */

/* Without an `ask` function of the host, the configured approvers answer. */
static int open_approvers(struct sp_engine *engine, struct sp_approvals_options *o,
                          struct sp_err *e)
{
    const bool has_console = engine->console != NULL;
    const bool asks_host = engine->ask != NULL;
    const struct sp_approvers_options ask = {
        .loop = engine->loop,
        .words = asks_host ? NULL : (const char *const *)engine->config.approvers,
        .is_configured = true,
        .choices = has_console ? "deny, console or program:/PATH" : "deny or program:/PATH",
        .has_client = asks_host,
        .begins_with_client = asks_host,
        .has_console = has_console,
        .joins_console = has_console,
        .timeout_ms = o->timeout_ms,
    };
    struct sp_err why = {0};

    if (asks_host ? !has_console : engine->config.approvers == NULL)
        return 0;
    int r = sp_approvers_open(&ask, &engine->approvers, &why);
    if (r == -SP_E_INVALID) { /* `terminal` and `client` do not exist in a library */
        auto_free char *text = NULL;
        char *const *names = engine->config.approvers;

        if (strcmp(names[0], "deny") == 0 ||
            engine->approvals.options.policy.kind == SP_APPROVAL_NEVER)
            return 0;
        if (asprintf(&text,
                     "nobody answers questions: the approver `%s` of the configuration is not for "
                     "programs that use the library, so what needs permission is refused; set the "
                     "option `ask`, or approver = \"program:/PATH\"",
                     names[0]) >= 0)
            warn_host(engine, text);
        return 0;
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    if (engine->approvers != NULL)
        r = has_console ? sp_lib_console_chain(engine->console, engine->approvers, o->user_dir,
                                               &engine->approver, e)
                        : sp_approvers_chain(engine->approvers, NULL, NULL, &engine->approver, e);
    o->approver = engine->approver;
    o->timeout_ms = sp_approvers_timeout_ms(engine->approvers);
    return r;
}

/* Doubtful rules depend on the sandbox: the primary one counts. */
static void warn_of_rules(struct sp_engine *engine, const struct sp_rules *rules)
{
    const struct sp_lib_place *p = engine->places[0];

    sp_judge_tell_doubtful(rules, p->is_confined ? &p->policy : NULL, warn_host, engine);
}

/* The rules files changed. */
static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_engine *engine = user;

    warn_of_rules(engine, rules);
    return sp_approvals_set_rules(sp_manager_approvals(engine->manager), rules, fingerprint);
}

/* Rules of projects are those of the primary environment, if it is local. */
static int find_approvals(struct sp_engine *engine, const char *asked, struct sp_err *e)
{
    const struct sp_config_approvals_options ask = {
        .policy = asked,
        .cwd = engine->places[0]->where->is_local ? engine->places[0]->cwd : NULL,
        .warn = warn_host,
        .loop = engine->loop,
        .changed = on_rules,
        .user = engine,
    };
    struct sp_config_approvals *ret = &engine->approvals;
    const int r = sp_config_approvals(&engine->config, &ask, ret, e);

    if (r < 0)
        return r;
    warn_of_rules(engine, ret->options.rules);
    const int opened = open_approvers(engine, &ret->options, e);
    return opened < 0 ? opened
                      : sp_hooks_open(&engine->hooks, engine->loop, engine->config.permission_hooks,
                                      engine->config.reviewer, &ret->options, e);
}

/* The approvals must exist before the manager, which takes their options. */
static int open_manager(struct sp_engine *engine, const struct sp_engine_options *o,
                        struct sp_err *e)
{
    const bool asks_host = engine->ask != NULL && engine->console == NULL;
    const struct sp_manager_ops ops = {.event = sp_lib_tell_event,
                                       .ask = asks_host ? sp_lib_tell_question : NULL};
    const struct sp_lib_place *place = engine->places[0];
    const bool is_local = place->where->is_local;
    const struct sp_environment_spec spec = spec_of(place);
    auto_free char *directory = NULL;
    auto_buf struct sp_buf left_out = {0};
    const int r = find_approvals(engine, o->approve, e);

    if (r < 0)
        return r;
    if (engine->config.has_shell_snapshot && is_local && engine->config.home != NULL &&
        asprintf(&directory, "%s/snapshots", engine->config.home) >= 0) {
        const struct sp_snapshots_options so = {
            .backend = place->where->backend,
            .directory = directory,
            .policy = place->is_confined ? &place->policy : NULL,
        };

        /* They only make commands start faster, so a failure is ignored. */
        (void)sp_snapshots_new(&so, &engine->snapshots, NULL);
    }
    /* Variables with credentials that a confined command does not get. */
    if (is_local && place->is_confined &&
        sp_env_add_left_out(&place->environ.policy, place->environ.own, &left_out) &&
        left_out.len > 0 && sp_buf_add(&left_out, "", 1))
        warn_host(engine, left_out.data);
    struct sp_manager_options mo = {
        .loop = engine->loop,
        .environments = &spec,
        .environment_count = 1,
        .ops = &ops,
        .user = engine,
        .approvals = engine->approvals.options,
        .environ = &place->environ,
        .thread_id = engine->thread_id,
        .conversation_id = engine->thread_id,
        .snapshots = engine->snapshots,
    };
    sp_config_manager(&engine->config, &mo);
    mo.has_no_timeout = true; /* sp_engine_wait */
    return sp_manager_new(&mo, &engine->manager, e);
}

/* ---- new, free and dispatch ---- */

/* The order matters: calls refer to backends and approvals, the manager to both, and all of them to
 * the loop. */
static void free_now(struct sp_engine *engine)
{
    engine->is_doomed = true;        /* stops all callbacks */
    sp_lib_calls_free(engine, true); /* runs use their backend, and the manager's approvals */
    if (engine->manager != NULL)
        sp_manager_free(engine->manager);
    sp_lib_calls_free(engine, false); /* the manager has dropped its own */
    sp_approver_free(engine->approver);
    sp_approvers_free(engine->approvers);
    sp_hooks_done(&engine->hooks);
    sp_snapshots_free(engine->snapshots);
    sp_lib_console_free(engine->console);
    while (engine->place_count != 0)
        sp_lib_place_unref(engine->places[--engine->place_count]);
    while (engine->wheres != NULL)
        free_where(engine, engine->wheres);
    sp_config_approvals_done(&engine->approvals);
    if (engine->loop != NULL)
        sp_loop_undefer(engine->loop, &engine->warn_later);
    while (engine->warnings.count > 0)
        free(engine->warnings.texts[--engine->warnings.count]);
    sp_loop_free(engine->loop);
    sp_hidden_paths_done(&engine->hidden_paths);
    sp_config_done(&engine->config);
    free(engine->program);
    free(engine);
}

/* After a failure free_now frees what was made. */
static int open_engine(struct sp_engine *engine, const struct sp_engine_options *o,
                       struct sp_err *e)
{
    const struct sp_config_request ask = {.file = o->config, .env = environ};
    struct place_ask primary = {
        .name = SP_LIB_PRIMARY, .on = o->on, .sandbox = o->sandbox, .cwd = o->cwd};
    int r = sp_loop_new(&engine->loop, e);

    if (r == 0 && o->program != NULL && (engine->program = strdup(o->program)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make an engine");
    if (r == 0 && !sp_uuid_make(engine->thread_id))
        r = sp_fail(e, SP_E_SYSTEM, errno, "name the conversation");
    if (r == 0)
        r = sp_loop_fd(engine->loop, &engine->fd, e);
    if (r == 0)
        r = sp_config_load(&ask, &engine->config, e);
    if (r < 0)
        return r;
    sp_loop_busy_poll(engine->loop)->mode = sp_busy_poll_mode_of(engine->config.busy_poll);
    if (o->has_local_socket && (r = sp_lib_console_new(engine, &engine->console, e)) < 0)
        return r;
    if (o->sandbox == NULL)
        primary.sandbox = engine->config.default_permissions;
    engine->places[0] = make_place(engine, &primary, e);
    if (engine->places[0] == NULL)
        return -(int)e->code;
    engine->place_count = 1;
    return open_manager(engine, o, e);
}

int sp_engine_new(const struct sp_engine_options *options, struct sp_engine **ret,
                  struct sp_error *e)
{
    struct sp_engine_options o;
    struct sp_err why = {0};
    int r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_engine_options, cwd),
                        "sp_engine_options", &why);

    if (r < 0)
        return sp_lib_give(r, &why, e);
    struct sp_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return sp_lib_give(sp_fail(&why, SP_E_SYSTEM, ENOMEM, "make an engine"), &why, e);
    engine->owner = getpid();
    engine->user = o.user;
    engine->event = o.event;
    engine->ask = o.ask;
    for (int i = 0; i < SP_LIB_BUCKETS; i++)
        sp_list_init(&engine->calls[i]);
    r = open_engine(engine, &o, &why);
    if (r < 0) {
        free_now(engine);
        return sp_lib_give(r, &why, e);
    }
    *ret = engine;
    return 0;
}

void sp_engine_free(struct sp_engine *engine)
{
    /* A child of fork() shares sockets and epoll with the parent: closing them properly would
     * disturb it, so the memory is leaked instead. */
    if (engine == NULL || engine->owner != getpid())
        return;
    if (sp_loop_is_inside(engine->loop))
        engine->is_doomed = true;
    else
        free_now(engine);
}

int sp_engine_fd(const struct sp_engine *engine)
{
    return engine->fd;
}

/* A callback may free the engine: that is done here at the end, and only in the outermost dispatch.
 */
int sp_engine_dispatch(struct sp_engine *engine, int timeout_ms, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = 0;

    if (engine == NULL || engine->owner != getpid() || engine->is_doomed)
        return sp_lib_enter(engine, e);
    r = sp_loop_dispatch(engine->loop, timeout_ms, &why);
    if (sp_loop_is_inside(engine->loop))
        return sp_lib_give(r, &why, e);
    if (engine->is_doomed) {
        free_now(engine);
        return sp_lib_give(r, &why, e);
    }
    /* Closes backends that no place and no process uses, while none of their callbacks runs. */
    for (struct sp_lib_where *w = engine->wheres, *next; w != NULL; w = next) {
        next = w->next;
        if (w->refs == 0 && !sp_manager_uses(engine->manager, w->backend))
            free_where(engine, w);
    }
    return sp_lib_give(r, &why, e);
}

/* ---- update and remove ---- */

static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const size_t n = strlen(name);

    return n > 0 && n <= 64 && strspn(name, letters) == n;
}

/* The manager takes the new environment first; only then the old place is given up. */
static int update(struct sp_engine *engine, const struct sp_environment_options *o,
                  struct sp_err *e)
{
    const char *name = o->name != NULL ? o->name : SP_LIB_PRIMARY;
    uint32_t i = 0;

    if (!is_name(name))
        return sp_fail(e, SP_E_INVALID, 0,
                       "the name of an environment is 1 to 64 letters, digits, - and _");
    while (i < engine->place_count && strcmp(engine->places[i]->name, name) != 0)
        i++;
    if (i == SP_ENVIRONMENTS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "there are %d environments already; remove one of them",
                       SP_ENVIRONMENTS_MAX);
    const struct sp_lib_place *old = i < engine->place_count ? engine->places[i] : NULL;
    const struct sp_lib_where *w = old == NULL ? NULL : old->where;
    /* `on` names the backend that the environment has already. */
    const bool is_same =
        w != NULL && (o->on == NULL || (w->is_local && strcmp(o->on, "local") == 0) ||
                      (w->on != NULL && strcmp(w->on, o->on) == 0));
    const struct sp_lib_place *kept = is_same ? old : NULL;
    const struct sp_lib_place *like = old != NULL ? old : engine->places[0];
    struct place_ask a = {
        .name = name,
        .on = o->on,
        .sandbox = o->sandbox != NULL ? o->sandbox : like->policy_name,
        .cwd = o->cwd != NULL || kept == NULL ? o->cwd : kept->cwd,
        .where = kept == NULL ? NULL : kept->where,
    };
    /* A new environment is the one of that name in the configuration, else local. */
    if (old == NULL && a.on == NULL)
        a.on = sp_config_find_environment(&engine->config, name) != NULL ? name : "local";
    struct sp_lib_place *p = make_place(engine, &a, e);
    if (p == NULL)
        return -(int)e->code;
    const struct sp_environment_spec spec = spec_of(p);
    const int r = sp_manager_set_environment(engine->manager, &spec, e);
    if (r < 0) {
        sp_lib_place_unref(p);
        return r;
    }
    if (i == engine->place_count)
        engine->place_count++;
    else
        sp_lib_place_unref(engine->places[i]);
    engine->places[i] = p;
    return 0;
}

int sp_engine_update_environment(struct sp_engine *engine,
                                 const struct sp_environment_options *options, struct sp_error *e)
{
    struct sp_environment_options o;
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    r = sp_lib_take(options, &o, sizeof o, SP_LIB_LEAST(struct sp_environment_options, cwd),
                    "sp_environment_options", &why);
    if (r == 0)
        r = update(engine, &o, &why);
    return sp_lib_give(r, &why, e);
}

/* Index 0 is the primary one. Runs keep their reference to the place. */
int sp_engine_remove_environment(struct sp_engine *engine, const char *name, struct sp_error *e)
{
    struct sp_err why = {0};
    uint32_t i = 1;
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    while (name != NULL && i < engine->place_count && strcmp(engine->places[i]->name, name) != 0)
        i++;
    if (name == NULL || i >= engine->place_count) {
        r = sp_fail(&why, SP_E_NOT_FOUND, 0, "there is no environment `%s` that could be removed",
                    name == NULL ? "" : name);
        return sp_lib_give(r, &why, e);
    }
    (void)sp_manager_remove_environment(engine->manager, name);
    sp_lib_place_unref(engine->places[i]);
    engine->place_count--;
    memmove(&engine->places[i], &engine->places[i + 1],
            (engine->place_count - i) * sizeof(struct sp_lib_place *));
    return 0;
}
