/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Removes an incomplete UTF-8 character at the end of a truncated text. */
static void trim_torn_character(char *text)
{
    size_t n = strlen(text);
    size_t tail = 0;

    while (tail < 3 && tail < n && ((unsigned char)text[n - 1 - tail] & 0xC0) == 0x80)
        tail++;
    if (tail >= n)
        return;
    const unsigned char lead = (unsigned char)text[n - 1 - tail];
    const size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (lead >= 0xC0 && tail < want)
        text[n - 1 - tail] = 0;
}

int sp_fail(struct sp_err *e, enum sp_code code, int sys, const char *fmt, ...)
{
    if (e != NULL) {
        va_list ap;

        e->code = code;
        e->sys = sys;
        va_start(ap, fmt);
        const int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        if (n < 0)
            e->msg[0] = 0;
        if (n >= (int)sizeof e->msg)
            trim_torn_character(e->msg);
    }
    return -(int)code;
}

int sp_wrap(struct sp_err *e, const char *fmt, ...)
{
    if (e == NULL)
        return -(int)SP_E_FAILED;

    char front[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    if (n > 0) {
        char old[sizeof e->msg];

        memcpy(old, e->msg, sizeof old);
        if (snprintf(e->msg, sizeof e->msg, "%s: %s", front, old) >= (int)sizeof e->msg)
            trim_torn_character(e->msg);
    }
    return -(int)e->code;
}

int sp_code_wire(enum sp_code code)
{
    static const int wire[SP_E_MAX] = {
#define X(name, number, text) [SP_E_##name] = (number),
        SP_CODES(X)
#undef X
    };
    return code < SP_E_MAX ? wire[code] : -32603;
}

const char *sp_errno_text(int err)
{
    const char *text = strerrordesc_np(err);

    return text == NULL ? "Unknown error" : text;
}

const char *sp_error_text(const struct sp_err *e, char *buf, unsigned long size)
{
    char cause[128];

    /* The message of a failed start ends in "... (os error N)" already, as on the wire. */
    if (e->sys != 0 && strstr(e->msg, "(os error ") == NULL)
        (void)snprintf(buf, size, "%s: %s", e->msg, strerror_r(e->sys, cause, sizeof cause));
    else
        (void)snprintf(buf, size, "%s", e->msg);
    return buf;
}
