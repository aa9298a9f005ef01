/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second lesson: a program that is talked to. It is started on a terminal, gets a session, is typed
 * into and polled; and whatever happens is watched as it happens.
 *
 *     chat LINE...
 *
 * types each LINE into a shell and shows what comes back. Lines on stderr that begin with a star
 * are events.
 *
 *     cc chat.c $(pkg-config --cflags --libs sallyport) -o chat
 *     ./chat 'x=6' 'echo $((x * 7))' 'exit 3'
 */
#include <sallyport.h>
#include <stdio.h>
#include <string.h>

/* What the last answer said, for the loop below. */
struct state {
    bool is_answered;
    int session; /* 0: the program has ended, or never began */
    int exit_code;
};

static void on_event(void *user, const struct sp_event *event)
{
    (void)user;
    switch (event->kind) {
    case SP_EVENT_STARTED:
        (void)fprintf(stderr, "* session %d: started %s in %s\n", event->session, event->argv[0],
                      event->cwd);
        break;
    case SP_EVENT_OUTPUT:
        (void)fprintf(stderr, "* session %d: printed %zu bytes\n", event->session,
                      event->byte_count);
        break;
    case SP_EVENT_INPUT:
        (void)fprintf(stderr, "* session %d: %s\n", event->session,
                      event->byte_count == 0 ? "was polled" : "was typed into");
        break;
    case SP_EVENT_ENDED:
        (void)fprintf(stderr, "* session %d: ended with code %d\n", event->session,
                      event->exit_code);
        break;
    case SP_EVENT_WARNED:
    case SP_EVENT_NOTED:
    default: /* a later version may have more */
        break;
    }
}

static void on_answer(void *user, const struct sp_answer *answer)
{
    struct state *state = user;

    state->is_answered = true;
    state->session = answer->session;
    state->exit_code = answer->exit_code;
    if (answer->error != NULL)
        (void)fprintf(stderr, "chat: %s\n", answer->error);
    (void)fwrite(answer->output, 1, answer->output_size, stdout);
    (void)fflush(stdout);
}

/* Dispatches until the call that was just begun is answered. */
static int await(struct sp_engine *engine, struct state *state, struct sp_error *error)
{
    while (!state->is_answered)
        if (sp_engine_dispatch(engine, -1, error) < 0)
            return -1;
    state->is_answered = false;
    return 0;
}

static int type(struct sp_engine *engine, struct state *state, const char *line,
                struct sp_error *error)
{
    char text[4096];

    (void)snprintf(text, sizeof text, "%s\n", line);
    /* The answer comes after 300 ms, or when the program ends. */
    if (sp_engine_write(engine, state->session, text, strlen(text), 300, on_answer, state, NULL,
                        error) < 0)
        return -1;
    return await(engine, state, error);
}

static int chat(struct sp_engine *engine, struct state *state, char **lines, struct sp_error *error)
{
    static const char *const shell[] = {"sh", NULL};
    static const char *const env[] = {"PS1=$ ", NULL};
    const struct sp_exec_options options = {
        .size = sizeof options,
        .argv = shell,
        .env = env,
        .is_tty = true,
        .rows = 24,
        .cols = 100,
        .yield_ms = 300, /* it will not end by itself: say so soon */
    };

    if (sp_engine_exec(engine, &options, on_answer, state, NULL, error) < 0 ||
        await(engine, state, error) < 0)
        return -1;
    for (; *lines != NULL && state->session != 0; lines++)
        if (type(engine, state, *lines, error) < 0)
            return -1;
    if (state->session == 0)
        return 0;
    /* It still runs: ^D is the end of what is typed, and then we wait. */
    if (sp_engine_close_stdin(engine, state->session, error) < 0 ||
        sp_engine_wait(engine, state->session, on_answer, state, NULL, error) < 0)
        return -1;
    return await(engine, state, error);
}

int main(int argc, char **argv)
{
    struct sp_engine_options options = {.size = sizeof options, .event = on_event};
    struct sp_engine *engine;
    struct state state = {.exit_code = -1};
    struct sp_error error;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: chat LINE...\n");
        return 2;
    }
    if (sp_engine_new(&options, &engine, &error) < 0) {
        (void)fprintf(stderr, "chat: %s\n", error.msg);
        return 125;
    }
    if (chat(engine, &state, argv + 1, &error) < 0)
        (void)fprintf(stderr, "chat: %s\n", error.msg);
    /* The event of the end comes after the answer: give it its turn. */
    (void)sp_engine_dispatch(engine, 200, &error);
    sp_engine_free(engine); /* ends what still runs */
    return state.exit_code < 0 ? 125 : state.exit_code;
}
