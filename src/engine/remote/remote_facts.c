/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the server, and who wants to know.
 */
#include <stdlib.h>

#include "base/uri.h"
#include "engine/remote/remote_priv.h"

#define FACTS_MS 60000U /* besides the time for a connection */

void sp_remote_forget_facts(struct sp_remote *r)
{
    free(TAKE_PTR(r->shell_name));
    free(TAKE_PTR(r->shell_path));
    free(TAKE_PTR(r->cwd));
    r->facts = (struct sp_backend_facts){.is_remote = true};
    r->has_facts = r->can_resize = r->can_signal = r->can_end_session = r->can_inspect = false;
}

void sp_remote_tell_facts(struct sp_remote *r, const struct sp_err *e)
{
    sp_loop_cancel(r->backend.loop, &r->facts_late);
    sp_remote_enter(r);
    while (r->waits != NULL && !r->is_freed) {
        struct sp_backend_wait *w = r->waits;

        r->waits = w->next;
        if (r->waits != NULL)
            r->waits->prev = NULL;
        *w = (struct sp_backend_wait){.fn = w->fn};
        w->fn(w, e == NULL ? &r->facts : NULL, e);
    }
    sp_remote_leave(r);
}

/* ---- learning ---- */

/* NULL if there is none, or it is no text a C string can hold. */
static char *copy_text(struct sp_json *j, uint32_t object, const char *key)
{
    struct sp_str s = {0};

    if (sp_json_opt_str(j, object, key, &s, NULL) < 0 || s.n == 0 || sp_str_has_nul(s))
        return NULL;
    return strndup(s.p, s.n);
}

static char *copy_path(struct sp_json *j, uint32_t object, const char *key)
{
    auto_uri struct sp_uri u = {0};
    struct sp_str s = {0};

    if (sp_json_opt_str(j, object, key, &s, NULL) < 0 || s.p == NULL ||
        sp_uri_read(s, &u, NULL) < 0)
        return NULL;
    return TAKE_PTR(u.path);
}

static bool can(struct sp_json *j, uint32_t info, const char *what)
{
    uint32_t capabilities = SP_JSON_NONE;
    bool is_there = false;

    if (sp_json_opt_object(j, info, "capabilities", &capabilities, NULL) == 0 &&
        capabilities != SP_JSON_NONE)
        (void)sp_json_def_bool(j, capabilities, what, &is_there, NULL);
    return is_there;
}

static void learn(struct sp_remote *r, struct sp_json *j, uint32_t info)
{
    uint32_t shell = SP_JSON_NONE;

    if (sp_json_opt_object(j, info, "shell", &shell, NULL) == 0 && shell != SP_JSON_NONE) {
        r->shell_name = copy_text(j, shell, "name");
        r->shell_path = copy_text(j, shell, "path");
    }
    r->cwd = r->options.cwd != NULL ? strdup(r->options.cwd) : copy_path(j, info, "cwd");
    r->can_resize = can(j, info, "processResize");
    r->can_signal = can(j, info, "processSignals");
    r->can_end_session = can(j, info, "sessionEnd");
    r->can_inspect = can(j, info, "processInspect");
    r->facts.can_close_stdin = can(j, info, "processCloseStdin");
}

static void publish(struct sp_remote *r)
{
    r->facts.is_remote = true;
    r->facts.shell_name = r->shell_name;
    r->facts.shell_path = r->shell_path;
    r->facts.cwd = r->cwd;
    if (r->shell_name != NULL)
        r->facts.shell_type = sp_shell_type_of(sp_str_of(r->shell_name));
    r->has_facts = true;
    sp_remote_tell_facts(r, NULL);
}

/* A server that tells nothing is one without a shell of its own. */
static void on_info(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote *r = SP_CONTAINER(q, struct sp_remote, info);

    if (reply->fate == SP_CLIENT_LOST)
        return; /* the last word is said elsewhere */
    if (reply->fate == SP_CLIENT_RESULT && sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT)
        learn(r, reply->j, reply->value);
    else if (r->options.cwd != NULL)
        r->cwd = strdup(r->options.cwd);
    publish(r);
}

void sp_remote_learn(struct sp_remote *r, struct sp_json *j, uint32_t result)
{
    uint32_t info = SP_JSON_NONE;

    sp_remote_forget_facts(r);
    if (sp_json_opt_object(j, result, "environmentInfo", &info, NULL) == 0 &&
        info != SP_JSON_NONE) {
        learn(r, j, info);
        publish(r);
        return;
    }
    r->info.fn = on_info;
    r->info.is_repeatable = true;
    sp_client_ask(r->client, &r->info, "environment/info", SP_STR("null"));
}

/* ---- waiting ---- */

static void on_late(struct sp_timer *t)
{
    struct sp_remote *r = SP_CONTAINER(t, struct sp_remote, facts_late);
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, 0, "the exec-server does not say what it is");
    sp_remote_tell_facts(r, &e);
}

/* No memory for it: then as long as it takes. */
static void await_facts(struct sp_remote *r)
{
    struct sp_loop *loop = r->backend.loop;

    if (r->facts_late.slot == 0)
        (void)sp_loop_timer(loop, &r->facts_late,
                            sp_loop_now(loop) + r->options.connect_timeout_ms + FACTS_MS, on_late);
}

static void on_turn(struct sp_deferred *d)
{
    struct sp_remote *r = SP_CONTAINER(d, struct sp_remote, turn);
    struct sp_err e;

    if (r->has_facts)
        sp_remote_tell_facts(r, NULL);
    else if (sp_remote_need_client(r, &e) < 0)
        sp_remote_tell_facts(r, &e);
    else if (r->waits != NULL)
        await_facts(r);
}

void sp_remote_ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);

    w->backend = b;
    w->prev = NULL;
    w->next = r->waits;
    if (r->waits != NULL)
        r->waits->prev = w;
    r->waits = w;
    sp_loop_defer(b->loop, &r->turn, on_turn);
}

void sp_remote_forget_wait(struct sp_backend_wait *w)
{
    struct sp_remote *r;

    if (w->backend == NULL)
        return;
    r = SP_CONTAINER(w->backend, struct sp_remote, backend);
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        r->waits = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->prev = w->next = NULL;
    w->backend = NULL;
}
