/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_json: `sallyport exec --json`: the events of a command as one JSON object a line: begin,
 * deltas of both streams, end, and the result.
 *
 * The deltas have all output. The end event has the first and last part of each stream, 1 MiB at
 * most.
 */
#ifndef SP_CLI_EXEC_JSON_H
#define SP_CLI_EXEC_JSON_H

#include "base/headtail.h"
#include "cli/carry.h"
#include "engine/delta.h"

struct sp_exec_json {
    struct sp_carry_scribe scribe;
    const struct sp_start *launch;
    /* The exit status that a result leads to, and a message about it, or "". */
    int (*status)(const void *user, const struct sp_carry_result *r, char *text, size_t size);
    const void *user;

    char call_id[32];
    bool has_begun;
    unsigned quota; /* of deltas; set so high that it never ends */
    struct sp_delta deltas[2];
    struct sp_headtail kept[2];
    struct sp_buf *out; /* what on_frame appends to */
    enum sp_stream stream;
    bool ok;
};

void sp_exec_json_init(struct sp_exec_json *j);
void sp_exec_json_done(struct sp_exec_json *j);

/* The result line of a command that was never started. */
bool sp_exec_json_add_error(struct sp_buf *out, int status, const char *message);

#endif
