/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/engine_priv.h"

/* What is the same in both, so that one can be copied into the other. */
_Static_assert((int)SP_ERROR_STATE == SP_E_STATE && (int)SP_ERROR_INVALID == SP_E_INVALID &&
                   (int)SP_ERROR_NOT_FOUND == SP_E_NOT_FOUND && (int)SP_ERROR_LIMIT == SP_E_LIMIT &&
                   (int)SP_ERROR_SYSTEM == SP_E_SYSTEM && (int)SP_ERROR_FAILED == SP_E_FAILED,
               "error codes");
_Static_assert(sizeof(struct sp_error) == sizeof(struct sp_err) &&
                   sizeof((struct sp_error *)NULL)->msg == sizeof((struct sp_err *)NULL)->msg,
               "struct sp_err");

const char *sp_engine_version(void)
{
    return SP_VERSION;
}

/* ---- the door ---- */

int sp_lib_give(int r, const struct sp_err *from, struct sp_error *to)
{
    if (to != NULL && r < 0) {
        char text[sizeof to->msg];

        *to = (struct sp_error){.code = (int)from->code, .sys = from->sys};
        memcpy(to->msg, sp_error_text(from, text, sizeof text), sizeof to->msg);
    }
    return r;
}

int sp_lib_enter(struct sp_engine *engine, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = 0;

    if (engine == NULL)
        r = sp_fail(&why, SP_E_INVALID, 0, "there is no engine");
    else if (engine->owner != getpid())
        r = sp_fail(&why, SP_E_STATE, 0,
                    "the engine belongs to the process that made it, not to one that it forked");
    else if (engine->is_doomed)
        r = sp_fail(&why, SP_E_STATE, 0, "the engine is being freed");
    else
        sp_loop_poke(engine->loop);
    return sp_lib_give(r, &why, e);
}

int sp_lib_take(const void *from, void *to, size_t size, size_t least, const char *name,
                struct sp_err *e)
{
    size_t given = 0;

    memset(to, 0, size);
    if (from == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "struct %s is missing", name);
    memcpy(&given, from, sizeof given);
    if (given < least || given > 65536)
        return sp_fail(e, SP_E_INVALID, 0,
                       "struct %s says that it has %zu bytes: set its size to sizeof itself", name,
                       given);
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i] != 0)
            return sp_fail(e, SP_E_INVALID, 0,
                           "struct %s asks for something that this library (%s) does not know yet",
                           name, SP_VERSION);
    memcpy(to, from, given < size ? given : size);
    return 0;
}

/* ---- beginning and end ---- */

static void free_now(struct sp_engine *engine)
{
    engine->is_doomed = true; /* nothing is told any more */
    sp_lib_runs_free(engine);
    if (engine->manager != NULL)
        sp_manager_free(engine->manager);
    sp_lib_calls_free(engine);
    sp_approver_free(engine->approver);
    sp_approvers_free(engine->approvers);
    sp_hooks_done(&engine->hooks);
    sp_snapshots_free(engine->snapshots);
    sp_lib_places_free(engine);
    sp_lib_wheres_free(engine);
    sp_config_approvals_done(&engine->approvals);
    sp_lib_warnings_free(engine);
    sp_loop_free(engine->loop);
    sp_hidden_paths_done(&engine->hidden_paths);
    sp_config_done(&engine->config);
    free(engine->program);
    free(engine);
}

static int begin(struct sp_engine *engine, const struct sp_engine_options *o, struct sp_err *e)
{
    const struct sp_config_ask ask = {.file = o->config, .environment = environ};
    int r = sp_loop_new(&engine->loop, e);

    if (r == 0 && o->program != NULL && (engine->program = strdup(o->program)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make an engine");
    if (r == 0 && !sp_uuid_make(engine->thread_id))
        r = sp_fail(e, SP_E_SYSTEM, errno, "name the conversation");
    if (r == 0)
        r = sp_loop_fd(engine->loop, &engine->fd, e);
    if (r == 0)
        r = sp_config_load(&ask, &engine->config, e);
    if (r == 0)
        r = sp_lib_open_primary(engine, o, e);
    if (r == 0)
        r = sp_lib_open_manager(engine, o, e);
    return r;
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
    r = begin(engine, &o, &why);
    if (r < 0) {
        free_now(engine);
        return sp_lib_give(r, &why, e);
    }
    *ret = engine;
    return 0;
}

void sp_engine_free(struct sp_engine *engine)
{
    /* In a child of fork() the descriptors are the parent's too: whatever we did to them, it would
     * feel. So nothing is done. */
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

int sp_engine_dispatch(struct sp_engine *engine, int timeout_ms, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = 0;

    if (engine == NULL || engine->owner != getpid() || engine->is_doomed)
        return sp_lib_enter(engine, e);
    r = sp_loop_dispatch(engine->loop, timeout_ms, &why);
    if (sp_loop_is_inside(engine->loop))
        return sp_lib_give(r, &why, e);
    if (engine->is_doomed)
        free_now(engine);
    else
        sp_lib_drop_unused(engine);
    return sp_lib_give(r, &why, e);
}

/* ---- at once ---- */

int sp_engine_reply(struct sp_engine *engine, uint64_t question, enum sp_consent consent,
                    struct sp_error *e)
{
    static const enum sp_decision_kind decisions[] = {
        [SP_CONSENT_YES] = SP_DECISION_APPROVED,
        [SP_CONSENT_NO] = SP_DECISION_DENIED,
        [SP_CONSENT_ABORT] = SP_DECISION_ABORT,
        [SP_CONSENT_FOR_SESSION] = SP_DECISION_APPROVED_FOR_SESSION,
        [SP_CONSENT_RULE] = SP_DECISION_AMENDMENT,
    };
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if ((unsigned)consent >= sizeof decisions / sizeof decisions[0]) {
        r = sp_fail(&why, SP_E_INVALID, 0, "%d is not an enum sp_consent", (int)consent);
        return sp_lib_give(r, &why, e);
    }
    struct sp_decision d = {.kind = decisions[consent]};
    if (d.kind == SP_DECISION_AMENDMENT) {
        const struct sp_approval_question *q =
            sp_approvals_question(sp_manager_approvals(engine->manager), question);

        d.amendment = q != NULL ? q->amendment : d.amendment; /* the one that was offered */
    }
    sp_manager_decide(engine->manager, question, &d);
    return 0;
}

struct search {
    int session;
    bool is_found;
};

static void compare(void *user, const struct sp_manager_entry *entry)
{
    struct search *s = user;

    s->is_found = s->is_found || entry->process_id == s->session;
}

bool sp_lib_has_session(struct sp_engine *engine, int session)
{
    struct search s = {.session = session};

    sp_manager_list(engine->manager, compare, &s);
    return s.is_found;
}

static int enter_session(struct sp_engine *engine, int session, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if (!sp_lib_has_session(engine, session))
        r = sp_fail(&why, SP_E_NOT_FOUND, 0, "there is no session %d, or its command has ended",
                    session);
    return sp_lib_give(r, &why, e);
}

int sp_engine_close_stdin(struct sp_engine *engine, int session, struct sp_error *e)
{
    const int r = enter_session(engine, session, e);

    if (r == 0)
        sp_manager_close_stdin(engine->manager, session, NULL, NULL);
    return r;
}

int sp_engine_resize(struct sp_engine *engine, int session, uint16_t rows, uint16_t cols,
                     struct sp_error *e)
{
    const int r = enter_session(engine, session, e);

    if (r == 0)
        sp_manager_resize(engine->manager, session, rows, cols, NULL, NULL);
    return r;
}

int sp_engine_signal(struct sp_engine *engine, int session, int signal, struct sp_error *e)
{
    struct sp_err why = {0};
    int r = enter_session(engine, session, e);

    if (r < 0)
        return r;
    if (signal < 1 || signal > 64) {
        r = sp_fail(&why, SP_E_INVALID, 0, "%d is not a signal", signal);
        return sp_lib_give(r, &why, e);
    }
    sp_manager_signal(engine->manager, session, signal, NULL, NULL);
    return 0;
}

int sp_engine_list(struct sp_engine *engine,
                   void (*fn)(void *user, const struct sp_session_info *info), void *user,
                   struct sp_error *e)
{
    struct sp_err why = {0};
    int r = sp_lib_enter(engine, e);

    if (r < 0)
        return r;
    if (sp_lib_tell_list(engine, fn, user) < 0)
        r = sp_fail(&why, SP_E_SYSTEM, ENOMEM, "list the sessions");
    return sp_lib_give(r, &why, e);
}

int sp_engine_terminate_all(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_terminate_all(engine->manager);
    return r;
}

int sp_engine_pause(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_pause(engine->manager);
    return r;
}

int sp_engine_unpause(struct sp_engine *engine, struct sp_error *e)
{
    const int r = sp_lib_enter(engine, e);

    if (r == 0)
        sp_manager_unpause(engine->manager);
    return r;
}
