/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First lesson: run one command with a time-out, print what it printed, end as it ended.
 *
 *     run [--timeout SECONDS] COMMAND [ARGUMENT...]
 *
 *     cc run.c $(pkg-config --cflags --libs sallyport) -o run
 *     ./run --timeout 2 sh -c 'echo hello; sleep 5'
 */
#include <sallyport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Called once, from sp_engine_dispatch. What it is given lasts until it returns. */
static void on_answer(void *user, const struct sp_answer *answer)
{
    int *exit_code = user;

    (void)fwrite(answer->out, 1, answer->out_size, stdout);
    (void)fwrite(answer->err, 1, answer->err_size, stderr);
    if (answer->outcome == SP_OUTCOME_TIMED_OUT)
        (void)fprintf(stderr, "run: it took too long and was killed\n");
    if (answer->outcome == SP_OUTCOME_FAILED || answer->outcome == SP_OUTCOME_REFUSED)
        (void)fprintf(stderr, "run: %s\n", answer->error);
    *exit_code = answer->outcome == SP_OUTCOME_FAILED    ? 127
                 : answer->outcome == SP_OUTCOME_REFUSED ? 126 /* nothing ran */
                                                         : answer->exit_code;
}

int main(int argc, char **argv)
{
    struct sp_engine_options options = {.size = sizeof options}; /* all else: the defaults */
    struct sp_run_options run = {.size = sizeof run, .timeout_ms = SP_FOREVER};
    struct sp_engine *engine;
    struct sp_error error;
    int exit_code = -1;
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "--timeout") == 0) {
        run.timeout_ms = (uint64_t)(strtod(argv[2], NULL) * 1000);
        first = 3;
    }
    if (argc <= first) {
        (void)fprintf(stderr, "usage: run [--timeout SECONDS] COMMAND [ARGUMENT...]\n");
        return 2;
    }
    if (sp_engine_new(&options, &engine, &error) < 0) {
        (void)fprintf(stderr, "run: %s\n", error.msg);
        return 125;
    }
    run.argv = (const char *const *)argv + first; /* ends with NULL, as it must */
    if (sp_engine_run(engine, &run, on_answer, &exit_code, NULL, &error) < 0)
        (void)fprintf(stderr, "run: %s\n", error.msg);
    else
        while (exit_code < 0 && sp_engine_dispatch(engine, -1, &error) == 0)
            ; /* something happened, and perhaps the answer came */
    sp_engine_free(engine);
    return exit_code < 0 ? 125 : exit_code;
}
