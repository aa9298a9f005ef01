/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[SP_LOG_MAX] = {
#define X(name, text) [SP_LOG_##name] = (text),
    SP_LOG_LEVELS(X)
#undef X
};

static enum sp_log_level threshold = SP_LOG_WARN;
static bool writes_json;

bool sp_log_set_level(const char *name)
{
    for (int i = 0; i < SP_LOG_MAX; i++)
        if (strcmp(names[i], name) == 0) {
            threshold = (enum sp_log_level)i;
            return true;
        }
    return false;
}

void sp_log_set_json(bool is_json)
{
    writes_json = is_json;
}

/* Control characters are escaped in both forms: what a client sent must not forge a line. */
static size_t escape(char *out, size_t size, const char *text)
{
    size_t n = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p != 0 && n + 7 < size; p++) {
        if (*p < 0x20 || *p == 0x7F)
            n += (size_t)snprintf(out + n, size - n, "\\u%04x", *p);
        else if (writes_json && (*p == '"' || *p == '\\'))
            n += (size_t)snprintf(out + n, size - n, "\\%c", *p);
        else
            out[n++] = (char)*p;
    }
    out[n] = 0;
    return n;
}

void sp_log(enum sp_log_level level, const char *fmt, ...)
{
    char text[1024];
    char safe[2048];
    char line[2200];
    char when[40];
    struct timespec now;
    struct tm tm;
    va_list ap;

    if (level > threshold)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)escape(safe, sizeof safe, text);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    const size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(when + n, sizeof when - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
    int len;
    if (writes_json)
        len = snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}\n",
                       when, names[level], safe);
    else
        len = snprintf(line, sizeof line, "%s %-5s %s\n", when, names[level], safe);
    if (len > 0)
        (void)!write(STDERR_FILENO, line, (size_t)len); /* nobody to tell if nobody listens */
}
