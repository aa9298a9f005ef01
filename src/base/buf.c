/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void sp_buf_done(struct sp_buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

char *sp_buf_room(struct sp_buf *b, size_t n)
{
    if (n <= b->cap - b->len && b->data != NULL)
        return b->data + b->len;
    if (n > SIZE_MAX / 2 - b->len || (b->max != 0 && n > b->max - b->len))
        return NULL;

    size_t cap = b->cap < 128 ? 128 : b->cap * 2;
    if (cap < b->len + n)
        cap = b->len + n;
    if (b->max != 0 && cap > b->max)
        cap = b->max;
    char *data = realloc(b->data, cap);
    if (data == NULL)
        return NULL;
    b->data = data;
    b->cap = cap;
    return b->data + b->len;
}

bool sp_buf_add(struct sp_buf *b, const void *bytes, size_t n)
{
    char *room = sp_buf_room(b, n);

    if (room == NULL)
        return false;
    if (n != 0)
        memcpy(room, bytes, n);
    b->len += n;
    return true;
}

bool sp_buf_add_str(struct sp_buf *b, struct sp_str s)
{
    return sp_buf_add(b, s.p, s.n);
}

bool sp_buf_printf(struct sp_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_list again;

    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *room = n < 0 ? NULL : sp_buf_room(b, (size_t)n + 1);
    if (room != NULL) {
        (void)vsnprintf(room, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return room != NULL;
}

void sp_buf_drop(struct sp_buf *b, size_t n)
{
    b->len -= n;
    if (b->len != 0 && n != 0)
        memmove(b->data, b->data + n, b->len);
}
