/* SPDX-License-Identifier: Apache-2.0 */
/* yield: how long a call waits before it answers for a process that still runs. */
#ifndef SP_ENGINE_YIELD_H
#define SP_ENGINE_YIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum sp_yield_kind {
    SP_YIELD_EXEC,
    SP_YIELD_EXEC_WINDOWS, /* exec_command on a Windows host, which starts slowly */
    SP_YIELD_WRITE,        /* write_stdin with characters */
    SP_YIELD_POLL,         /* write_stdin without */
    SP_YIELD_COMPAT,       /* the old unified_exec tool */
    SP_YIELD_MAX
};

#define SP_YIELD_POLL_MAX_MS 300000     /* longest poll, unless configured otherwise */
#define SP_YIELD_FOREVER     UINT64_MAX /* until the process exits */

/* The time requested by a call. */
struct sp_yield_ask {
    bool has_yield_time;
    uint64_t yield_time_ms; /* if has_yield_time */
};

/* The longest poll for a configured value. */
uint64_t sp_yield_poll_max(uint64_t configured_ms);

/* poll_max_ms is used for polls only. */
uint64_t sp_yield_ms(enum sp_yield_kind kind, struct sp_yield_ask ask, uint64_t poll_max_ms);

/* The time of a write_stdin call, or SP_YIELD_FOREVER for no_timeout, which the caller passes only
 * if the feature is on. SP_E_INVALID: contradicting arguments. */
int sp_yield_of_write(struct sp_yield_ask ask, bool has_chars, bool no_timeout,
                      uint64_t poll_max_ms, uint64_t *ret_ms, struct sp_err *e);

#endif
