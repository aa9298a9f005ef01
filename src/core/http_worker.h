/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_worker: a process that speaks HTTP for the front, so that parsing responses, libcurl's
 * memory and its threads stay out of the front. It ends with its socket.
 */
#ifndef SP_CORE_HTTP_WORKER_H
#define SP_CORE_HTTP_WORKER_H

#include "base/error.h"
#include "base/list.h"
#include "core/http_message.h"

int sp_web_worker_run(int socket, struct sp_err *e);

/* ---- the state of the worker, for its fuzzer ---- */

struct sp_curl;

struct sp_web_worker {
    int socket;
    bool is_over; /* the front is gone */
    struct sp_curl *curl;
    struct sp_list tasks;
};

/* One request, with all its redirects. */
struct sp_web_task {
    struct sp_web_worker *worker;
    struct sp_list link;
    uint64_t number;
    char *memory; /* the order's: method, URL, fields and body; mapped, sealed */
    size_t memory_len;
    bool follows;
    uint64_t deadline_ms; /* UINT64_MAX: none */

    /* the current request; libcurl follows no redirect of it */
    char *method, *url;
    struct sp_buf fields; /* names in lower case (http_message.h); libcurl sets content-length */
    struct sp_str body;   /* in memory */
    int redirects;
    void *easy, *lines; /* libcurl's; NULL: not begun */
    size_t body_at;
    bool is_once;  /* not idempotent: must not be sent again */
    char why[256]; /* CURL_ERROR_SIZE */

    /* the response */
    int status;
    struct sp_buf head;
    size_t head_read; /* bytes of all lines, also of those left out */
    struct sp_buf location;
    bool has_location, is_empty, is_head_sent;
    bool is_stopped;          /* ended by us, without an error */
    bool is_redirect_refused; /* the refusal is the whole error message */
    char *next_url;           /* of a redirect; NULL: none */
    const char *refusal;      /* why we ended the transfer; NULL: we did not */
    char refusal_text[128];

    /* the body: bytes for the next message */
    char *out;
    size_t out_len;
    uint64_t window;
    bool is_paused;
};

/* A line of the head without its line end, or of a trailer; an empty one ends the head. false: the
 * transfer ends. Not built without libcurl. */
bool sp_web_response_line(struct sp_web_task *t, struct sp_str line);

#endif
