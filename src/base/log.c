/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static const char *const names[SP_LOG_MAX] = {
#define X(name, text) [SP_LOG_##name] = (text),
    SP_LOG_LEVELS(X)
#undef X
};

static enum sp_log_level threshold = SP_LOG_WARN;
static bool writes_json;
static uint64_t max_bytes;

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

/*
 * Control characters are escaped in both formats, so that bytes from a client cannot forge a line.
 * Bytes that are not UTF-8 become U+FFFD.
 */
static void escape(char *out, size_t size, const char *text)
{
    struct sp_str rest = sp_str_of(text);
    size_t n = 0;

    while (rest.n > 0 && n + 8 < size) {
        const size_t valid = sp_utf8_valid_prefix(rest);
        const unsigned char c = (unsigned char)*rest.p;
        size_t used = 1;

        if (valid == 0) {
            n += (size_t)snprintf(out + n, size - n, "\xEF\xBF\xBD");
        } else if (c < 0x20 || c == 0x7F) {
            n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
        } else if (writes_json && (c == '"' || c == '\\')) {
            n += (size_t)snprintf(out + n, size - n, "\\%c", c);
        } else {
            used = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
            memcpy(out + n, rest.p, used);
            n += used;
        }
        rest = (struct sp_str){rest.p + used, rest.n - used};
    }
    out[n] = 0;
}

void sp_log_set_max(uint64_t bytes)
{
    max_bytes = bytes;
}

/* The file is written with O_APPEND, so the next line goes to its beginning. */
static void make_room(size_t len)
{
    struct stat st;

    if (max_bytes != 0 && fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size + len > max_bytes)
        (void)!ftruncate(STDERR_FILENO, 0); /* otherwise the log grows on */
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
    escape(safe, sizeof safe, text);
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
        make_room((size_t)len);
    if (len > 0)
        (void)!write(STDERR_FILENO, line, (size_t)len); /* a log that cannot be written is lost */
}
