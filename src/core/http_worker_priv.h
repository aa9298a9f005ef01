/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_worker_priv: the state of the worker, for its fuzzer.
 */
#ifndef SP_CORE_HTTP_WORKER_PRIV_H
#define SP_CORE_HTTP_WORKER_PRIV_H

#include "core/http_curl.h"
#include "core/http_message.h"

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
