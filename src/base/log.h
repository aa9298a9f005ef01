/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line a message on stderr, for the administrator of a server.
 */
#ifndef SP_BASE_LOG_H
#define SP_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_LOG_LEVELS(X) X(ERROR, "error") X(WARN, "warn") X(INFO, "info") X(DEBUG, "debug")

enum sp_log_level {
#define X(name, text) SP_LOG_##name,
    SP_LOG_LEVELS(X)
#undef X
        SP_LOG_MAX
};

/* false: no such level. The level is "warn" at first. */
bool sp_log_set_level(const char *name);
void sp_log_set_json(bool is_json);
/* If stderr is a file, it is emptied whenever a line would make it longer. 0: no bound. */
void sp_log_set_max(uint64_t bytes);

SP_PRINTF(2, 3) void sp_log(enum sp_log_level level, const char *fmt, ...);

#endif
