/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_worker_priv: the state of the worker, for its fuzzer.
 */
#ifndef SP_CORE_HTTP_WORKER_PRIV_H
#define SP_CORE_HTTP_WORKER_PRIV_H

#include "core/http_message.h"

/*
 * A transfer is one request and its response, by libcurl; redirects are not followed by it. Data
 * from the network arrives in callbacks.
 */
struct sp_curl;
struct sp_curl_transfer;

enum sp_curl_taken {
    SP_CURL_TAKEN,
    SP_CURL_LATER, /* the same bytes again after resume_transfer */
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

struct sp_curl_transfer { /* zero but for ops at first */
    const struct sp_curl_ops *ops;

    void *easy, *lines;
    struct sp_str body;
    size_t body_at;
    bool is_once;  /* not idempotent: must not be sent again */
    char why[256]; /* CURL_ERROR_SIZE */
};

struct sp_web_worker {
    int socket;
    bool is_over; /* the front is gone */
    struct sp_curl *curl;
    struct sp_web_task *first;
};

/* One request, with all its redirects. */
struct sp_web_task {
    struct sp_web_worker *worker;
    struct sp_web_task *prev, *next;
    struct sp_curl_transfer transfer;
    uint64_t number;
    char *memory; /* the order's: method, URL, fields and body; mapped, sealed */
    size_t memory_len;
    bool follows;
    uint64_t deadline_ms; /* UINT64_MAX: none */

    /* the current request */
    char *method, *url;
    struct sp_buf fields;
    struct sp_str body; /* in memory */
    int redirects;

    /* the response */
    int status;
    struct sp_buf head;
    size_t head_read; /* bytes of all lines, also of those left out */
    struct sp_buf location;
    bool has_location, is_empty, is_head_sent;
    bool is_stopped;          /* ended by us, without an error */
    char *next_url;           /* of a redirect; NULL: none */
    const char *refusal;      /* why we ended the transfer; NULL: we did not */
    bool is_redirect_refused; /* the refusal is the whole error message */
    char refusal_text[128];

    /* the body: bytes for the next message */
    char *out;
    size_t out_len;
    uint64_t window;
    bool is_paused;
};

/* A line of the head; an empty one ends it. */
enum sp_curl_taken sp_web_response_line(struct sp_web_task *t, struct sp_str line);

#endif
