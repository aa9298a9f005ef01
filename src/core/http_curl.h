/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curl: the one door to libcurl, which is opened when it is first needed and not linked: a program
 * that never speaks HTTP does not pay for it, and one on a host without it says so.
 *
 * A transfer is one request and its response; redirects are not followed here. What is read from
 * the network comes in callbacks from within sp_curl_run.
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
    /* A line of a response's head, without its end; an empty one behind the last. Trailers, too. */
    enum sp_curl_taken (*line)(struct sp_curl_transfer *t, struct sp_str line); /* never LATER */
    enum sp_curl_taken (*body)(struct sp_curl_transfer *t, struct sp_str bytes);
    /* The last call. why: NULL if all went well. The transfer may be begun again. */
    void (*done)(struct sp_curl_transfer *t, const char *why);
};

struct sp_curl_ask {
    const char *method, *url;
    struct sp_str fields; /* names in lower case (message.h); content-length is ours to say */
    struct sp_str body;   /* stays where it is until the end; empty: none */
    uint64_t timeout_ms;  /* SP_WEB_NO_TIMEOUT: none */
};

struct sp_curl_transfer { /* zero but for ops before sp_curl_begin */
    const struct sp_curl_ops *ops;

    /* its own */
    void *easy, *lines;
    struct sp_str body;
    size_t body_at;
    bool is_once;  /* not to be sent again: whoever got it may have acted on it */
    char why[256]; /* CURL_ERROR_SIZE */
};

/* SP_E_STATE: there is no libcurl, or it was not known when this program was built. */
int sp_curl_open(struct sp_curl **ret, struct sp_err *e);
bool sp_curl_is_built_in(void);

int sp_curl_begin(struct sp_curl *c, struct sp_curl_transfer *t, const struct sp_curl_ask *ask,
                  struct sp_err *e);
void sp_curl_resume(struct sp_curl *c, struct sp_curl_transfer *t);
/* Breaks it off; done is not called. Has none been begun: fine. Not from within its callbacks. */
void sp_curl_end(struct sp_curl *c, struct sp_curl_transfer *t);

/* Waits until fd can be read or there is something to do, and does it. */
void sp_curl_run(struct sp_curl *c, int fd);

/* A reference as it was found in a response of this address, made absolute: no user, no fragment,
 * no port that goes without saying. NULL: it cannot be read. To be freed. */
char *sp_curl_join(struct sp_curl *c, const char *base, const char *reference);

#endif
