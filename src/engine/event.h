/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: what an observer is told about a process while it lives.
 *
 * Per process: begin, then deltas and interactions, then end, exactly once and last. All events
 * carry the id of the creating call. Everything is borrowed for the callback.
 */
#ifndef SP_ENGINE_EVENT_H
#define SP_ENGINE_EVENT_H

#include <stdint.h>

#include "base/receipt.h"
#include "base/str.h"
#include "base/stream.h"

enum sp_event_type {
    SP_EVENT_BEGIN,       /* exec_command_begin */
    SP_EVENT_DELTA,       /* exec_command_output_delta */
    SP_EVENT_INTERACTION, /* terminal_interaction */
    SP_EVENT_END,         /* exec_command_end */
    SP_EVENT_WARNING,     /* warning */
    SP_EVENT_NOTICE,      /* background_event: progress of a call; process_id is 0 */
};

enum sp_event_source {
    SP_SOURCE_AGENT,
    SP_SOURCE_USER_SHELL,
    SP_SOURCE_UNIFIED_EXEC_STARTUP,
    SP_SOURCE_UNIFIED_EXEC_INTERACTION,
};

enum sp_event_status { SP_STATUS_COMPLETED, SP_STATUS_FAILED, SP_STATUS_DECLINED };

struct sp_exec_event {
    enum sp_event_type type;
    struct sp_str call_id;
    int process_id; /* 0: none (a one-shot run) */
    struct sp_str turn_id;
    int64_t at_ms; /* since 1970: started_at_ms of BEGIN, completed_at_ms of END */
    const struct sp_str *argv;
    uint32_t argc;
    struct sp_str cwd;
    enum sp_event_source source;

    enum sp_stream stream; /* DELTA: STDOUT or STDERR */
    struct sp_str chunk;   /* DELTA: raw bytes */
    struct sp_str input;   /* INTERACTION: the characters; empty for a poll */
    struct sp_str message; /* WARNING, NOTICE */

    /* END, valid UTF-8 */
    struct sp_str out, err, aggregated, formatted;
    int exit_code; /* -1: unknown */
    uint64_t duration_ns;
    enum sp_event_status status;
    const struct sp_command_receipt *receipt; /* END; NULL: not known */
};

#endif
