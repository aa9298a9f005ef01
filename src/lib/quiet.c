/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiet: a library has no log. Whoever links it gets these instead of base/log.c; what matters is
 * in an error, an answer or an event as well.
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
