/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_curl: the only user of libcurl, which is loaded with dlopen when first needed: processes
 * that never speak HTTP do not load it, and hosts without it get an error message.
 *
 * A transfer is one request and its response; redirects are not followed here. Data from the
 * network arrives in callbacks from within sp_curl_run.
 */
#ifndef SP_CORE_HTTP_CURL_H
#define SP_CORE_HTTP_CURL_H

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct sp_curl;
struct sp_curl_transfer;

enum sp_curl_taken {
    SP_CURL_TAKEN,
    SP_CURL_LATER, /* the same bytes again after sp_curl_resume */
    SP_CURL_STOP,  /* the transfer ends, as if it had failed */
};

struct sp_curl_ops {
    /* A line of the head or a trailer, without its line end; an empty line ends the head. */
    enum sp_curl_taken (*line)(struct sp_curl_transfer *t, struct sp_str line); /* never LATER */
    enum sp_curl_taken (*body)(struct sp_curl_transfer *t, struct sp_str bytes);
    /* The last callback. why: NULL on success. The transfer may be begun again. */
    void (*done)(struct sp_curl_transfer *t, const char *why);
};

struct sp_curl_ask {
    const char *method, *url;
    struct sp_str fields; /* names in lower case (http_message.h); content-length is set here */
    struct sp_str body;   /* must stay valid until the end; empty: none */
    uint64_t timeout_ms;  /* SP_WEB_NO_TIMEOUT: none */
};

struct sp_curl_transfer { /* zero but for ops before sp_curl_begin */
    const struct sp_curl_ops *ops;

    /* private */
    void *easy, *lines;
    struct sp_str body;
    size_t body_at;
    bool is_once;  /* not idempotent: must not be sent again */
    char why[256]; /* CURL_ERROR_SIZE */
};

/* SP_E_STATE: libcurl is not installed, or was not when this program was built. */
int sp_curl_open(struct sp_curl **ret, struct sp_err *e);
bool sp_curl_is_built_in(void);

int sp_curl_begin(struct sp_curl *c, struct sp_curl_transfer *t, const struct sp_curl_ask *ask,
                  struct sp_err *e);
void sp_curl_resume(struct sp_curl *c, struct sp_curl_transfer *t);
/* Cancels; done is not called. Fine if not begun. Must not be called in its callbacks. */
void sp_curl_end(struct sp_curl *c, struct sp_curl_transfer *t);

/* Waits until fd is readable or a transfer has an event, and handles the transfers. */
void sp_curl_run(struct sp_curl *c, int fd);

/* Resolves a reference against a base URL; drops user, fragment and default port. NULL: invalid.
 * The caller frees. */
char *sp_curl_join(struct sp_curl *c, const char *base, const char *reference);

#endif
