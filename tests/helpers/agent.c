/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent: see agent.h. SALLYPORT names the program whose cells run local commands.
 *
 * {"op":"call","id":"c1","tool":"exec_command","arguments":"{...}"} is answered, when it is, with
 * {"reply":"c1","failed":false,"text":"...","structured":{...}}; the table below has all the ops.
 * At the end of stdin, and for quit, everything is freed: exit status 0 says that no child is left.
 */
#include "agent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "engine/local.h"
#include "engine/remote/remote.h"

/* ---- what the engine tells ---- */

static void on_event(void *user, const struct sp_exec_event *e)
{
    (void)user;
    say_event(e);
}

static void on_question(void *user, const struct sp_approval_question *q)
{
    (void)user;
    say_question(q);
}

static void on_input(struct sp_watch *watch, uint32_t events)
{
    struct agent *a = SP_CONTAINER(watch, struct agent, in);
    char *room = sp_buf_room(&a->text, 65536);
    const ssize_t n = room == NULL ? -1 : read(STDIN_FILENO, room, 65536);
    char *newline;

    (void)events;
    if (n <= 0) {
        sp_loop_stop(a->loop);
        return;
    }
    a->text.len += (size_t)n;
    while ((newline = memchr(a->text.data, '\n', a->text.len)) != NULL) {
        const size_t line = (size_t)(newline - a->text.data);

        agent_obey(a, a->text.data, line);
        sp_buf_drop(&a->text, line + 1);
    }
}

/* ---- rules that change ---- */

static bool on_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    const struct agent *a = user;

    return sp_approvals_set_rules(sp_manager_approvals(a->manager), rules, fingerprint);
}

static void on_warning(void *user, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    (void)user;
    say_event(&e);
}

static int follow_rules(struct agent *a, struct sp_approvals_options *ret, struct sp_err *e)
{
    const char *const projects[] = {a->o.cwd, NULL};
    auto_free char *system_dir = NULL;

    if (a->o.rules_in == NULL)
        return 0;
    if (asprintf(&system_dir, "%s/etc", a->o.rules_in) < 0 ||
        asprintf(&a->rules_user_dir, "%s/home", a->o.rules_in) < 0)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "name folders of rules");
    const struct sp_rules_places places = {
        .system_dir = system_dir,
        .user_dir = a->rules_user_dir,
        .projects = projects,
    };
    const struct sp_rules_watch_options o = {
        .loop = a->loop, .places = &places, .changed = on_rules, .warn = on_warning, .user = a};
    const int r = sp_rules_watch_new(&o, &a->rules, &ret->rules, &ret->fingerprint, e);

    if (r < 0)
        return r;
    ret->user_dir = a->rules_user_dir;
    return 0;
}

/* ---- beginning and end ---- */

static int make_backend(struct agent *a, const struct place *p, struct sp_backend **ret,
                        struct sp_err *e)
{
    const struct sp_local_options local = {
        .program = getenv("SALLYPORT"), .use_cgroups = a->o.uses_cgroups, .cwd = a->o.cwd};
    const struct sp_client_options remote = {.url = p->url,
                                             .program = p->program,
                                             .cwd = a->o.cwd,
                                             .resume_ms = a->o.resume_ms,
                                             .client_name = "agent"};

    if (p->url != NULL || p->program != NULL)
        return sp_remote_new(a->loop, &remote, ret, e);
    return sp_local_new(a->loop, &local, ret, e);
}

static int begin(struct agent *a, struct sp_err *e)
{
    static const struct sp_manager_ops ops = {.event = on_event, .ask = on_question};
    struct sp_environment_spec places[MAX_ENVIRONMENTS] = {0};
    struct sp_manager_options m = a->o.manager;
    int r = sp_loop_new(&a->loop, e);

    for (uint32_t i = 0; r == 0 && i < a->o.place_count; i++) {
        r = make_backend(a, &a->o.places[i], &a->backends[i], e);
        places[i] = (struct sp_environment_spec){
            .id = a->o.places[i].id, .backend = a->backends[i], .cwd = a->o.cwd};
    }
    if (r == 0 && a->o.snapshots != NULL)
        r = sp_snapshots_new(
            &(struct sp_snapshots_options){.backend = a->backends[0], .directory = a->o.snapshots},
            &a->snapshots, e);
    if (r == 0)
        r = sp_hooks_open(&a->hooks, a->loop, a->o.hooks, a->o.reviewer, &m.approvals, e);
    if (r < 0)
        return r;
    m.loop = a->loop;
    m.environments = places;
    m.environment_count = a->o.place_count;
    m.ops = &ops;
    m.user = a;
    m.snapshots = a->snapshots;
    r = follow_rules(a, &m.approvals, e);
    if (r < 0)
        return r;
    r = sp_manager_new(&m, &a->manager, e);
    if (r < 0)
        return r;
    return sp_loop_watch(a->loop, &a->in, STDIN_FILENO, EPOLLIN, on_input, e);
}

static void end(struct agent *a)
{
    if (a->loop != NULL)
        sp_loop_unwatch(a->loop, &a->in);
    sp_manager_free(a->manager);
    sp_hooks_done(&a->hooks);
    agent_drop_runs(a);
    sp_snapshots_free(a->snapshots);
    for (uint32_t i = 0; i < MAX_ENVIRONMENTS; i++)
        sp_backend_free(a->backends[i]);
    agent_drop_asked(a);
    sp_rules_watch_free(a->rules);
    free(a->rules_user_dir);
    sp_loop_free(a->loop);
    sp_buf_done(&a->text);
    sp_json_done(&a->json);
    agent_options_done(&a->o);
}

/* Whoever is freed takes its children along. */
static bool has_child(void)
{
    return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

int main(int argc, char **argv)
{
    static struct agent a;
    struct sp_err e = {0};

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sp_log_set_level("warn");
    agent_read_options(argc, argv, &a.o);
    int r = begin(&a, &e);
    if (r == 0)
        r = sp_loop_run(a.loop, &e);
    if (r < 0)
        say_trouble("agent", &e);
    end(&a);
    if (has_child()) {
        (void)fprintf(stderr, "agent: a child is left behind\n");
        return 3;
    }
    return r < 0 ? 1 : 0;
}
