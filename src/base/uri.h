/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uri: paths on the wire are file: URIs in the sense of the WHATWG URL standard, in canonical form.
 */
#ifndef SP_BASE_URI_H
#define SP_BASE_URI_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

/* A URI read from the wire. Both strings are owned; sp_uri_done frees them and accepts {0}. */
struct sp_uri {
    char *text;      /* canonical form, as it is quoted in messages */
    char *path;      /* the POSIX path, percent-decoded, NUL-terminated; NULL if foreign */
    bool is_foreign; /* valid, but not of this host: a UNC host or a drive letter */
};

/*
 * Reads one as exec-server-protocol.md 10.1 and 10.3 say. Refusals are SP_E_INVALID with the texts
 * given there. A foreign URI is a success with is_foreign set: what it is refused with depends on
 * who asks.
 */
int sp_uri_read(struct sp_str text, struct sp_uri *ret, struct sp_err *e);
void sp_uri_done(struct sp_uri *u);

/* Appends the URI of an absolute path (10.2; 10.3 for one that looks like a drive). false: no room.
 */
bool sp_uri_add(struct sp_buf *out, struct sp_str path);

#define auto_uri __attribute__((cleanup(sp_uri_done)))

#endif
