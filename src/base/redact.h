/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redact: hides the query of a server's URL, which may hold a token, in messages and in argv.
 */
#ifndef SP_BASE_REDACT_H
#define SP_BASE_REDACT_H

#include <stdbool.h>
#include <stddef.h>

/* The URL with `?...` in place of its query; the caller frees it. NULL: no memory. */
char *sp_redact_url(const char *url);
/* The same into a buffer, truncated; returns ret. */
const char *sp_redact_url_to(const char *url, char *ret, size_t size);

/* Whether the text contains a ws:// or wss:// URL with a query. */
bool sp_redact_is_needed(const char *text);
/* Overwrites the queries of such URLs with asterisks; the length stays. */
void sp_redact_in_place(char *text);

#endif
