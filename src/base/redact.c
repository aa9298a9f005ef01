/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sp_redact_url_to(const char *url, char *ret, size_t size)
{
    const char *query = strchr(url, '?');
    const int n = query == NULL ? (int)strlen(url) : (int)(query - url);

    (void)snprintf(ret, size, "%.*s%s", n, url, query == NULL ? "" : "?...");
    return ret;
}

char *sp_redact_url(const char *url)
{
    const size_t size = strlen(url) + sizeof "?...";
    char *text = malloc(size);

    if (text != NULL)
        (void)sp_redact_url_to(url, text, size);
    return text;
}

/* The query of the first ws:// or wss:// URL, *ret_len bytes long; NULL: none. A quote ends a URL
 * as well: `--set server="ws://..."`. */
static const char *find_query(const char *text, size_t *ret_len)
{
    for (;;) {
        const char *url = strstr(text, "://");

        if (url == NULL)
            return NULL;
        const bool is_ws = url - text >= 2 && (memcmp(url - 2, "ws", 2) == 0 ||
                                               (url - text >= 3 && memcmp(url - 3, "wss", 3) == 0));
        const size_t n = strcspn(url, " \t\n\"'");
        const char *query = memchr(url, '?', n);
        if (is_ws && query != NULL) {
            *ret_len = n - (size_t)(query + 1 - url);
            return query + 1;
        }
        text = url + 3;
    }
}

bool sp_redact_is_needed(const char *text)
{
    size_t n = 0;

    return find_query(text, &n) != NULL;
}

void sp_redact_in_place(char *text)
{
    size_t n = 0;
    const char *query;

    while ((query = find_query(text, &n)) != NULL) {
        text += query - text;
        memset(text, '*', n);
    }
}
