/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf: a growing array of bytes with an optional maximum. A zeroed buffer is an empty one.
 */
#ifndef SP_BASE_BUF_H
#define SP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

struct sp_buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max; /* 0: none */
};

void sp_buf_done(struct sp_buf *b); /* frees the bytes; the empty buffer keeps max */

/* Room for n more bytes at data + len. NULL: above max, or no memory; the buffer is unchanged. */
char *sp_buf_room(struct sp_buf *b, size_t n);

/* All return false if there is no room, and have added nothing then. */
bool sp_buf_add(struct sp_buf *b, const void *bytes, size_t n);
bool sp_buf_add_str(struct sp_buf *b, struct sp_str s);
SP_PRINTF(2, 3) bool sp_buf_printf(struct sp_buf *b, const char *fmt, ...);

/* Removes n bytes at the front. */
void sp_buf_drop(struct sp_buf *b, size_t n);

/* The bytes, valid until the buffer changes. An empty buffer gives "", so p is never NULL. */
static inline struct sp_str sp_buf_str(const struct sp_buf *b)
{
    return b->len == 0 ? SP_STR("") : (struct sp_str){b->data, b->len};
}

#define auto_buf __attribute__((cleanup(sp_buf_done)))

#endif
