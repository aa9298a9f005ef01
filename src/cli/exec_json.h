/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_json: what a command does, as one JSON object a line (unified-exec.md 6.1, 14.1): begin,
 * deltas of both streams, end, and the result.
 *
 * Nothing is left out of the deltas. The end has the first and last of much output: 1 MiB a stream.
 */
#ifndef SP_CLI_EXEC_JSON_H
#define SP_CLI_EXEC_JSON_H

#include "base/headtail.h"
#include "cli/carry.h"
#include "engine/delta.h"

struct sp_exec_json {
    struct sp_carry_scribe scribe;
    const struct sp_launch *launch;
    /* The exit status that goes with a result, and what is said of it ("": nothing). */
    int (*status)(const void *user, const struct sp_carry_result *r, char *text, size_t size);
    const void *user;

    char call_id[32];
    bool has_begun;
    unsigned quota; /* never reached */
    struct sp_delta deltas[2];
    struct sp_headtail kept[2];
    struct sp_buf *out; /* while a frame is added */
    enum sp_stream stream;
    bool ok;
};

void sp_exec_json_init(struct sp_exec_json *j);
void sp_exec_json_done(struct sp_exec_json *j);

/* The last line; also for a command that was never tried. */
bool sp_exec_json_add_result(struct sp_buf *out, const struct sp_carry_result *r, int status,
                             const char *message);
bool sp_exec_json_add_error(struct sp_buf *out, int status, const char *message);

#endif
