/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiet: the library does not log. It links these instead of base/log.c; errors, answers and events
 * report what matters.
 */
#include "base/log.h"

bool sp_log_set_level(const char *name)
{
    (void)name;
    return false;
}

void sp_log_set_json(bool is_json)
{
    (void)is_json;
}

void sp_log(enum sp_log_level level, const char *fmt, ...)
{
    (void)level;
    (void)fmt;
}
