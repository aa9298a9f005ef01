/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uri: the file: URIs that stand for paths on the wire (WHATWG URL standard, canonical form).
 */
#ifndef SP_BASE_URI_H
#define SP_BASE_URI_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

/* A URI from the wire. sp_uri_done frees both strings and accepts {0}. */
struct sp_uri {
    char *text;      /* canonical form, for messages */
    char *path;      /* the POSIX path, percent-decoded, NUL-terminated; NULL if foreign */
    bool is_foreign; /* valid, but not a path of this host: a UNC host or a drive letter */
};

/*
 * Refusals are SP_E_INVALID with the texts that Codex' exec-server has. A foreign URI is a success
 * with is_foreign set, because its error text depends on the method.
 */
int sp_uri_read(struct sp_str text, struct sp_uri *ret, struct sp_err *e);
void sp_uri_done(struct sp_uri *u);

/* Appends the URI of an absolute path. false: no room. */
bool sp_uri_add(struct sp_buf *out, struct sp_str path);

#define auto_uri __attribute__((cleanup(sp_uri_done)))

#endif
