/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redact: a server's URL without the token that its query may hold, for messages and for argv.
 */
#ifndef SP_BASE_REDACT_H
#define SP_BASE_REDACT_H

#include <stdbool.h>
#include <stddef.h>

/* The URL with `?...` in place of its query; to be freed. NULL: no memory. */
char *sp_redact_url(const char *url);
/* The same into a buffer, cut to fit; returns ret. */
const char *sp_redact_url_to(const char *url, char *ret, size_t size);

/* Whether the text has a ws:// or wss:// URL with a query in it, anywhere. */
bool sp_redact_is_needed(const char *text);
/* Overwrites the query of each such URL in place with asterisks; the length stays. */
void sp_redact_in_place(char *text);

#endif
