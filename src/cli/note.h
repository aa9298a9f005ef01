/* SPDX-License-Identifier: Apache-2.0 */
/*
 * note: what a server says about a process that we are attached to, read from the wire.
 */
#ifndef SP_CLI_NOTE_H
#define SP_CLI_NOTE_H

#include "cli/observe.h"

enum sp_note_kind {
    SP_NOTE_OTHER, /* of another process, or nothing that we know */
    SP_NOTE_OUTPUT,
    SP_NOTE_EXITED,
    SP_NOTE_CLOSED,
    SP_NOTE_INPUT_LOST,
};

struct sp_note {
    enum sp_note_kind kind;
    uint64_t seq;
    bool is_stderr;       /* of output */
    struct sp_str stream; /* its name on the wire */
    struct sp_str bytes;  /* output; in the message, gone with it */
    int64_t exit_code;
    uint64_t missed_records, missed_bytes; /* before this one; records 0: nothing is missing */
    bool knows_missed_bytes;
};

/* Refused: it breaks the protocol. */
int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e);

/* "12 records (345 bytes) of its output are not there any more" */
void sp_note_say_gap(const struct sp_note *n, char ret[160]);

#endif
