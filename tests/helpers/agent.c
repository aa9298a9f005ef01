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
#include "client/remote.h"
#include "engine/local.h"

struct agent {
    struct agent_options o;
    struct sp_loop *loop;
    struct sp_backend *backends[MAX_ENVIRONMENTS];
    struct sp_snapshots *snapshots;
    struct sp_manager *manager;
    struct sp_watch in;
    struct sp_buf text; /* what was read of stdin */
    struct sp_json json;
    struct asked *asked; /* calls and runs that have not been answered */
};

/* Something that will be answered: a call, a run, or an order. */
struct asked {
    struct agent *a;
    struct asked *next;
    uint64_t call;
    struct sp_run *run;
    struct sp_str id, command; /* owned */
};

static struct asked *add_asked(struct agent *a, struct sp_str id, struct sp_str command)
{
    struct asked *w = calloc(1, sizeof *w + id.n + command.n);

    if (w == NULL)
        abort();
    char *room = (char *)(w + 1);
    if (id.n != 0)
        memcpy(room, id.p, id.n);
    if (command.n != 0)
        memcpy(room + id.n, command.p, command.n);
    *w = (struct asked){
        .a = a, .next = a->asked, .id = {room, id.n}, .command = {room + id.n, command.n}};
    a->asked = w;
    return w;
}

static void drop_asked(struct asked *w)
{
    struct asked **at = &w->a->asked;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w);
}

static struct asked *find_asked(struct agent *a, struct sp_str id)
{
    for (struct asked *w = a->asked; w != NULL; w = w->next)
        if (sp_str_eq(w->id, id))
            return w;
    return NULL;
}

/* ---- what the engine tells ---- */

static void on_event(void *user, const struct sp_event *e)
{
    (void)user;
    say_event(e);
}

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    say_question(q);
}

static bool on_intercept(void *user, const struct sp_exec_ask *ask, struct sp_buf *out)
{
    const struct agent *a = user;
    const struct sp_str word = sp_str_of(a->o.intercept);

    return ask->cmd.n >= word.n && memcmp(ask->cmd.p, word.p, word.n) == 0 &&
           sp_buf_add_str(out, SP_STR("taken over: ")) && sp_buf_add_str(out, ask->cmd);
}

static void on_reply(void *user, const struct sp_tool_reply *r)
{
    struct asked *w = user;

    say_reply(w->id, r);
    drop_asked(w);
}

static void on_plain_reply(void *user, const struct sp_reply *r)
{
    on_reply(user, &(struct sp_tool_reply){
                       .has_failed = r->fault != SP_FAULT_NONE, .text = r->text, .from = r});
}

static void on_done(void *user, bool was_done)
{
    struct asked *w = user;

    say_done(w->id, was_done);
    drop_asked(w);
}

static void on_ran(void *user, const struct sp_run_result *r)
{
    struct asked *w = user;

    say_run(w->id, w->command, r);
    drop_asked(w);
}

/* ---- reading an order ---- */

static struct sp_str str(struct agent *a, const char *key)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);

    if (t == SP_JSON_NONE || sp_json_type(&a->json, t) != SP_JSON_STRING)
        return (struct sp_str){0};
    return sp_json_str(&a->json, t);
}

static int64_t num(struct agent *a, const char *key, int64_t otherwise)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);
    int64_t v = otherwise;

    if (t != SP_JSON_NONE)
        (void)sp_json_i64(&a->json, t, &v);
    return v;
}

static bool flag(struct agent *a, const char *key)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);

    return t != SP_JSON_NONE && sp_json_type(&a->json, t) == SP_JSON_TRUE;
}

static int process(struct agent *a)
{
    return (int)num(a, "process", 0);
}

/* ---- orders ---- */

static void op_call(struct agent *a)
{
    struct asked *w = add_asked(a, str(a, "id"), (struct sp_str){0});
    const struct sp_str turn = str(a, "turn");
    struct sp_error e = {0};

    if (sp_tools_call(a->manager, &a->o.tools, str(a, "tool"), w->id,
                      turn.p == NULL ? SP_STR("turn") : turn, str(a, "arguments"), on_reply, w,
                      &w->call, &e) < 0) {
        say_trouble("call", &e);
        drop_asked(w);
    }
}

/* What no tool can ask for. */
static void op_exec(struct agent *a)
{
    struct asked *w = add_asked(a, str(a, "id"), (struct sp_str){0});
    const struct sp_exec_ask ask = {.call_id = w->id,
                                    .turn_id = SP_STR("turn"),
                                    .cmd = str(a, "cmd"),
                                    .inherited_fds = (uint32_t)num(a, "inherited_fds", 0)};
    struct sp_error e = {0};

    if (sp_manager_exec(a->manager, &ask, on_plain_reply, w, &w->call, &e) < 0) {
        say_trouble("exec", &e);
        drop_asked(w);
    }
}

static void op_interrupt(struct agent *a)
{
    sp_manager_interrupt(a->manager);
}

static void op_cancel(struct agent *a)
{
    const struct asked *w = find_asked(a, str(a, "call"));

    say_done(str(a, "id"), w != NULL && sp_manager_cancel(a->manager, w->call));
}

static void op_terminate(struct agent *a)
{
    sp_manager_terminate(a->manager, process(a), on_done,
                         add_asked(a, str(a, "id"), (struct sp_str){0}));
}

static void op_terminate_all(struct agent *a)
{
    sp_manager_terminate_all(a->manager);
}

static void op_pause(struct agent *a)
{
    sp_manager_pause(a->manager);
}

static void op_unpause(struct agent *a)
{
    sp_manager_unpause(a->manager);
}

static void op_list(struct agent *a)
{
    say_list(str(a, "id"), a->manager);
}

static void op_stats(struct agent *a)
{
    say_stats(str(a, "id"), a->manager);
}

static void op_schemas(struct agent *a)
{
    auto_buf struct sp_buf line = {0};

    if (!sp_buf_add_str(&line, SP_STR("{\"done\":")) || !sp_json_add_str(&line, str(a, "id")) ||
        !sp_buf_add_str(&line, SP_STR(",\"schemas\":")) ||
        !sp_tools_add_schemas(&line, &a->o.tools))
        abort();
    say(&line);
}

static void op_fail(struct agent *a)
{
    auto_buf struct sp_buf message = {0};
    const struct sp_str m = str(a, "message");

    if (m.p != NULL && !sp_buf_printf(&message, SP_STR_FMT, SP_STR_ARG(m)))
        abort();
    if (m.p != NULL && !sp_buf_add(&message, "", 1))
        abort();
    say_done(str(a, "id"), sp_manager_fail(a->manager, process(a), message.data));
}

static void op_watch(struct agent *a)
{
    say_done(str(a, "id"), sp_manager_watch_for_denial(a->manager, process(a), flag(a, "open")));
}

static void op_decide(struct agent *a)
{
    const struct sp_str d = str(a, "decision");

    sp_manager_decide(a->manager, (uint64_t)num(a, "question", 0),
                      sp_str_eq(d, SP_STR("approved")) ? SP_DECISION_APPROVED
                      : sp_str_eq(d, SP_STR("abort"))  ? SP_DECISION_ABORT
                                                       : SP_DECISION_DENIED);
}

static void op_close_stdin(struct agent *a)
{
    sp_manager_close_stdin(a->manager, process(a), on_done,
                           add_asked(a, str(a, "id"), (struct sp_str){0}));
}

static void op_resize(struct agent *a)
{
    sp_manager_resize(a->manager, process(a), (uint16_t)num(a, "rows", 24),
                      (uint16_t)num(a, "cols", 80), on_done,
                      add_asked(a, str(a, "id"), (struct sp_str){0}));
}

static void op_signal(struct agent *a)
{
    sp_manager_signal(a->manager, process(a), (int)num(a, "signal", SIGTERM), on_done,
                      add_asked(a, str(a, "id"), (struct sp_str){0}));
}

/* argv or, run by a shell, cmd. */
static void op_run(struct agent *a)
{
    struct sp_str words[MAX_WORDS] = {SP_STR("/bin/bash"), SP_STR("-c"), str(a, "cmd")};
    const uint32_t list = sp_json_get(&a->json, 0, "argv");
    const struct sp_str cwd = str(a, "cwd");
    const int64_t timeout = num(a, "timeout_ms", 0);
    struct sp_environ_ask environ_ask = a->o.environ;
    uint32_t n = 3;
    struct sp_error e = {0};

    if (list != SP_JSON_NONE) {
        n = 0;
        for (uint32_t t = sp_json_first(&a->json, list); t != SP_JSON_NONE && n < MAX_WORDS;
             t = sp_json_next(&a->json, list, t))
            words[n++] = sp_json_str(&a->json, t);
    }
    environ_ask.plain = (struct sp_environ_vars){0};
    struct asked *w = add_asked(a, str(a, "id"), words[n > 2 ? 2 : 0]);
    const struct sp_run_ask ask = {
        .launch = {.name = SP_STR("shell"),
                   .cwd = cwd.p == NULL ? sp_str_of(a->o.cwd) : cwd,
                   .argv = words,
                   .argc = n,
                   .environ = &environ_ask,
                   .policy = a->o.manager.policy},
        .timeout_ms = timeout < 0 ? SP_RUN_FOREVER : (uint64_t)timeout,
        .capture = flag(a, "full") ? SP_RUN_FULL_BUFFER : SP_RUN_SHELL_TOOL,
        .event = flag(a, "events") ? on_event : NULL,
        .call_id = w->id,
        .turn_id = SP_STR("turn"),
        .source = SP_SOURCE_USER_SHELL,
        .has_begin_and_end = flag(a, "whole"),
    };
    if (sp_run_start(a->backends[0], &ask, on_ran, w, &w->run, &e) < 0) {
        say_trouble("run", &e);
        drop_asked(w);
    }
}

static void op_run_cancel(struct agent *a)
{
    const struct asked *w = find_asked(a, str(a, "run"));

    if (w != NULL)
        sp_run_cancel(w->run);
}

static void op_run_interrupt(struct agent *a)
{
    const struct asked *w = find_asked(a, str(a, "run"));

    if (w != NULL)
        sp_run_interrupt(w->run);
}

static void op_quit(struct agent *a)
{
    sp_loop_stop(a->loop);
}

static const struct {
    const char *name;
    void (*fn)(struct agent *a);
} ops[] = {
    {"call", op_call},
    {"exec", op_exec},
    {"interrupt", op_interrupt},
    {"cancel", op_cancel},
    {"terminate", op_terminate},
    {"terminate_all", op_terminate_all},
    {"pause", op_pause},
    {"unpause", op_unpause},
    {"list", op_list},
    {"stats", op_stats},
    {"schemas", op_schemas},
    {"fail", op_fail},
    {"watch", op_watch},
    {"decide", op_decide},
    {"close_stdin", op_close_stdin},
    {"resize", op_resize},
    {"signal", op_signal},
    {"run", op_run},
    {"run_cancel", op_run_cancel},
    {"run_interrupt", op_run_interrupt},
    {"quit", op_quit},
};

static void obey(struct agent *a, char *line, size_t n)
{
    struct sp_error e = {0};

    if (sp_json_parse(&a->json, line, n, &e) < 0 || sp_json_type(&a->json, 0) != SP_JSON_OBJECT) {
        say_trouble("line", &e);
        return;
    }
    const struct sp_str op = str(a, "op");
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (sp_str_eq(op, sp_str_of(ops[i].name))) {
            ops[i].fn(a);
            return;
        }
    (void)sp_fail(&e, SP_E_NO_METHOD, 0, "there is no op `" SP_STR_FMT "`", SP_STR_ARG(op));
    say_trouble("op", &e);
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

        obey(a, a->text.data, line);
        sp_buf_drop(&a->text, line + 1);
    }
}

/* ---- beginning and end ---- */

static int make_backend(struct agent *a, const struct place *p, struct sp_backend **ret,
                        struct sp_error *e)
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

static int begin(struct agent *a, struct sp_error *e)
{
    static const struct sp_manager_ops quiet = {.event = on_event, .ask = on_question};
    static const struct sp_manager_ops nosy = {
        .event = on_event, .ask = on_question, .intercept = on_intercept};
    struct sp_environment places[MAX_ENVIRONMENTS] = {0};
    struct sp_manager_options m = a->o.manager;
    int r = sp_loop_new(&a->loop, e);

    for (uint32_t i = 0; r == 0 && i < a->o.place_count; i++) {
        r = make_backend(a, &a->o.places[i], &a->backends[i], e);
        places[i] = (struct sp_environment){a->o.places[i].id, a->backends[i], a->o.cwd};
    }
    if (r == 0 && a->o.snapshots != NULL)
        r = sp_snapshots_new(
            &(struct sp_snapshots_options){.backend = a->backends[0], .directory = a->o.snapshots},
            &a->snapshots, e);
    if (r < 0)
        return r;
    m.loop = a->loop;
    m.environments = places;
    m.environment_count = a->o.place_count;
    m.ops = a->o.intercept == NULL ? &quiet : &nosy;
    m.user = a;
    m.snapshots = a->snapshots;
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
    for (struct asked *w = a->asked; w != NULL; w = w->next)
        if (w->run != NULL)
            sp_run_free(w->run);
    sp_snapshots_free(a->snapshots);
    for (uint32_t i = 0; i < MAX_ENVIRONMENTS; i++)
        sp_backend_free(a->backends[i]);
    while (a->asked != NULL)
        drop_asked(a->asked);
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
    struct sp_error e = {0};

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
