/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: the front of local commands: one server with one session, made for the first command, and
 * the facts about this host. local_job.c runs the commands.
 */
#include "engine/local.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/local_priv.h"

#define MAX_PROCESSES 1024
#define CLOSED_TTL_MS 3600000 /* irrelevant: a closed process is freed in the next turn */

/* ---- the server ---- */

static void on_news(struct sp_session_client *c, struct sp_proc *p)
{
    (void)c;
    if (p->owner != NULL)
        sp_local_wake(p->owner);
}

static void on_gone(struct sp_session_client *c, struct sp_proc *p)
{
    (void)c;
    (void)p; /* its task frees it */
}

static void on_challenge(struct sp_session_client *c)
{
    (void)c; /* no other client can attach to our session */
}

static void on_drained(void *user)
{
    (void)user; /* max_processes refuses starts long before */
}

int sp_local_open_server(struct sp_local *l, struct sp_err *e)
{
    struct rlimit nofile = {1024, 4096};

    if (l->server != NULL)
        return 0;
    (void)getrlimit(RLIMIT_NOFILE, &nofile);
    const struct sp_server_options o = {
        .program = l->options.program,
        .max_processes = l->options.max_processes,
        .closed_ttl_ms = CLOSED_TTL_MS,
        .use_cgroups = l->options.use_cgroups,
        .nofile_soft = nofile.rlim_cur,
        .nofile_hard = nofile.rlim_max,
        .fixed = l->options.fixed,
        .runtime_dir = l->options.runtime_dir,
        .is_embedded = !l->options.owns_program,
        .user = l,
        .drained = on_drained,
    };
    int r = sp_server_new(l->backend.loop, &o, &l->server, e);
    if (r == 0)
        r = sp_session_new(l->server, &l->client, &l->session, e);
    if (r < 0) {
        sp_server_free(l->server);
        l->server = NULL;
    }
    return r;
}

/* ---- facts ---- */

void sp_local_forget_facts(struct sp_backend_wait *w)
{
    sp_list_remove(&w->link);
    w->backend = NULL;
}

static void tell_facts(struct sp_deferred *d)
{
    struct sp_local *l = SP_CONTAINER(d, struct sp_local, tell_facts);
    struct sp_shell shell = {0};
    auto_free char *account = NULL;
    struct sp_err e = {0};

    (void)sp_shell_of_account(&account, NULL); /* without one, sp_shell_of_user tries others */
    const struct sp_shell_places places = {.account_shell = account, .path = getenv("PATH")};
    const bool ok = sp_shell_of_user(&places, &shell, &e) == 0;
    const struct sp_backend_facts facts = {
        .shell_type = shell.type,
        .shell_name = sp_shell_type_name(shell.type),
        .shell_path = shell.path,
        .cwd = l->options.cwd,
        .can_close_stdin = true,
    };
    /* A callback may ask again: it is told in the next turn. */
    const struct sp_list *last = sp_list_last(&l->waits);
    struct sp_list *i = NULL;
    while (i != last && (i = sp_list_first(&l->waits)) != NULL) {
        struct sp_backend_wait *w = SP_CONTAINER(i, struct sp_backend_wait, link);

        sp_local_forget_facts(w);
        w->fn(w, ok ? &facts : NULL, &e);
    }
    sp_shell_done(&shell);
}

void sp_local_ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);

    w->backend = b;
    sp_list_append(&l->waits, &w->link);
    sp_loop_again(b->loop, &l->tell_facts, tell_facts);
}

/* ---- creation ---- */

void sp_local_free(struct sp_backend *b)
{
    struct sp_local *l = SP_CONTAINER(b, struct sp_local, backend);
    struct sp_list *i;

    sp_loop_undefer(b->loop, &l->tell_facts);
    while ((i = sp_list_first(&l->waits)) != NULL)
        sp_local_forget_facts(SP_CONTAINER(i, struct sp_backend_wait, link));
    if (l->session != NULL)
        sp_session_detach(l->session, false); /* kills what commands left behind */
    sp_server_free(l->server);
    sp_hidden_paths_done(&l->hidden_paths);
    free((void *)(uintptr_t)l->options.program);
    free((void *)(uintptr_t)l->options.runtime_dir);
    free((void *)(uintptr_t)l->options.cwd);
    free(l);
}

static bool copy_text(const char *from, const char **ret)
{
    *ret = from != NULL ? strdup(from) : NULL;
    return from == NULL || *ret != NULL;
}

int sp_local_new(struct sp_loop *loop, const struct sp_local_options *o, struct sp_backend **ret,
                 struct sp_err *e)
{
    struct sp_local *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    l->backend = (struct sp_backend){.ops = &sp_local_ops, .loop = loop};
    l->client =
        (struct sp_session_client){.news = on_news, .gone = on_gone, .challenge = on_challenge};
    sp_list_init(&l->waits);
    l->options.max_processes = o->max_processes != 0 ? o->max_processes : MAX_PROCESSES;
    l->options.use_cgroups = o->use_cgroups;
    l->options.owns_program = o->owns_program;
    if (!copy_text(o->program, &l->options.program) ||
        !copy_text(o->runtime_dir, &l->options.runtime_dir) ||
        !copy_text(o->cwd, &l->options.cwd) || !sp_hidden_paths_copy(&o->fixed, &l->hidden_paths)) {
        sp_local_free(&l->backend);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a place for commands");
    }
    l->options.fixed = sp_hidden_paths_places(&l->hidden_paths);
    *ret = &l->backend;
    return 0;
}
