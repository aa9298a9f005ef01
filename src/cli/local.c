/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/auto.h"
#include "cli/local_priv.h"
#include "core/environment.h"
#include "core/placeholder.h"
#include "os/spawn.h"

#define MAX_PROCESSES 16 /* there is one */

void sp_local_stop(struct sp_local *l)
{
    sp_local_end_input(l);
    sp_local_end_output(l);
    sp_loop_stop(l->loop);
}

/* ---- what we hear of the command ---- */

static void on_news(struct sp_client *c, struct sp_proc *p)
{
    (void)p;
    sp_local_pump_output(SP_CONTAINER(c, struct sp_local, client));
}

static void on_gone(struct sp_client *c, struct sp_proc *p)
{
    (void)p;
    SP_CONTAINER(c, struct sp_local, client)->proc = NULL;
}

static void on_challenge(struct sp_client *c)
{
    (void)c; /* nobody else can ask for our session */
}

static void on_drained(void *user)
{
    (void)user; /* we never ask for much at once */
}

static bool is_shortage(int err)
{
    return err == EAGAIN || err == ENOMEM || err == EMFILE || err == ENFILE;
}

/* In an open cell a missing program is a start that fails; under a sandbox it is a command that
 * fails, with a line and an exit code. Here both are the latter. */
static bool is_commands_fault(const struct sp_local *l, const struct sp_error *e)
{
    const struct sp_policy *p = l->options->policy;

    return (p == NULL || p->profile.kind == SP_PROFILE_DISABLED) && e->code == SP_E_SYSTEM &&
           e->sys != 0 && !is_shortage(e->sys);
}

static void refuse_start(struct sp_local *l, const struct sp_error *e)
{
    if (is_commands_fault(l, e)) {
        (void)fprintf(stderr, "sallyport: %s: %s\n", l->options->argv[0], strerror(e->sys));
        l->result.exit.code = e->sys == ENOENT || e->sys == ENOTDIR ? 127 : 126;
    } else {
        *l->error = *e;
        l->failed = -(int)e->code;
    }
    sp_local_stop(l);
}

static void on_started(struct sp_start_wait *w, struct sp_proc *p, const struct sp_error *e)
{
    struct sp_local *l = SP_CONTAINER(w, struct sp_local, start);

    if (p == NULL) {
        refuse_start(l, e);
        return;
    }
    l->proc = p;
    p->requests++; /* it stays until we let go of it */
    if (l->options->is_tty)
        sp_terminal_make_raw(&l->terminal);
    sp_local_begin_input(l);
    sp_local_pass_signals(l);
}

/* ---- starting ---- */

static bool write_environment(char *const *from, struct sp_buf *out, uint32_t *ret_count)
{
    static const struct sp_env_policy everything = {.inherit = SP_ENV_ALL,
                                                    .ignores_default_excludes = true};
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};

    return sp_env_inherit(&env, &everything, from, 0) &&
           sp_env_write(&env, 1, false, out, ret_count);
}

static int start(struct sp_local *l, struct sp_error *e)
{
    const struct sp_local_options *o = l->options;
    auto_buf struct sp_buf env = {0};
    struct sp_proc *p = NULL;
    struct sp_start s = {.id = SP_STR("command"),
                         .label = SP_STR("\"command\""),
                         .is_tty = o->is_tty,
                         .wants_stdin = true,
                         .cwd = sp_str_of(o->cwd),
                         .env = &env,
                         .policy = o->policy};

    size_t count = 0;
    while (o->argv[count] != NULL)
        count++;
    auto_free struct sp_str *argv = calloc(count + 1, sizeof *argv);
    if (argv == NULL || !write_environment(o->env, &env, &s.envc))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    for (; s.argc < count && o->argv[s.argc] != NULL; s.argc++)
        argv[s.argc] = sp_str_of(o->argv[s.argc]);
    s.argv = argv;
    if (o->is_tty)
        sp_terminal_size(&s.rows, &s.cols);
    l->start.done = on_started;
    return sp_proc_start(l->session, &s, &l->start, &p, e);
}

/* ---- beginning and end ---- */

static int make_server(struct sp_local *l, struct sp_error *e)
{
    struct rlimit nofile = {1024, 4096};

    (void)getrlimit(RLIMIT_NOFILE, &nofile);
    sp_runtime_dir(l->runtime_dir, sizeof l->runtime_dir);
    if (!sp_covers_find(l->runtime_dir, &l->covers))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to cover");
    const struct sp_server_options o = {
        .program = "/proc/self/exe",
        .max_processes = MAX_PROCESSES,
        .use_cgroups = false, /* one command leaves few processes, and parentage finds them */
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .covers = (const char *const *)l->covers.paths,
        .runtime_dir = l->runtime_dir,
        .user = l,
        .drained = on_drained,
    };
    return sp_server_new(l->loop, &o, &l->server, e);
}

static int begin(struct sp_local *l, struct sp_error *e)
{
    sp_port_fill_gaps();
    int r = sp_spawn_reserve(e);

    if (r == 0)
        r = sp_loop_new(&l->loop, e);
    if (r == 0)
        r = sp_local_begin_signals(l, e);
    if (r == 0)
        r = make_server(l, e);
    if (r < 0)
        return r;
    l->client = (struct sp_client){.news = on_news, .gone = on_gone, .challenge = on_challenge};
    r = sp_session_new(l->server, &l->client, &l->session, e);
    if (r < 0)
        return r;
    sp_local_begin_output(l);
    return start(l, e);
}

static void end(struct sp_local *l)
{
    sp_terminal_restore(&l->terminal);
    sp_local_end_signals(l);
    if (l->session != NULL)
        sp_session_detach(l->session, false); /* whatever still runs is killed */
    sp_server_free(l->server);
    sp_covers_done(&l->covers);
    sp_loop_free(l->loop);
    free(l);
}

int sp_local_run(const struct sp_local_options *o, struct sp_local_result *ret, struct sp_error *e)
{
    struct sp_error unheard = {0};
    struct sp_local *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run a command");
    l->options = o;
    l->error = e != NULL ? e : &unheard;
    l->signals.fd = -1;
    l->input.port.fd = l->output.ports[0].fd = l->output.ports[1].fd = -1;
    int r = begin(l, l->error);
    if (r == 0)
        r = sp_loop_run(l->loop, l->error);
    if (r == 0)
        r = l->failed;
    if (r == 0)
        *ret = l->result;
    end(l);
    return r;
}

int sp_local_status(const struct sp_local_result *r)
{
    switch (r->end) {
    case SP_LOCAL_EXITED:
        return r->exit.code;
    case SP_LOCAL_OUTPUT_CLOSED:
        return 128 + SIGPIPE;
    case SP_LOCAL_LOST:
        break;
    }
    return 125;
}
