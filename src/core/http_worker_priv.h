/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker_priv: what the worker's sources share; nobody else includes this.
 */
#ifndef SP_CORE_HTTP_WORKER_PRIV_H
#define SP_CORE_HTTP_WORKER_PRIV_H

#include "core/http_curl.h"
#include "core/http_message.h"

#define SP_WEB_REDIRECTS 10

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
    char *memory; /* of the front's, sealed */
    size_t memory_len;
    bool follows;
    uint64_t deadline_ms; /* UINT64_MAX: none */

    /* what is asked for now */
    char *method, *url;
    struct sp_buf fields;
    struct sp_str body; /* in memory */
    int redirects;

    /* the response */
    int status;
    struct sp_buf head;
    size_t head_read; /* bytes of lines, also those that are left out */
    struct sp_buf location;
    bool has_location, is_empty, is_head_sent;
    bool is_stopped;          /* we have ended it, and not for an error */
    char *next_url;           /* where it goes from here; NULL: nowhere */
    const char *refusal;      /* why we have ended it; NULL: we have not */
    bool is_redirect_refused; /* of a redirect: it says all there is to say */
    char refusal_text[128];

    /* the body: bytes that go with the next message */
    char *out;
    size_t out_len;
    uint64_t window;
    bool is_paused;
};

uint64_t sp_web_worker_now(void); /* ms */
/* Waits until the front has taken it. */
void sp_web_say(struct sp_web_worker *w, enum sp_web_op op, uint64_t number, uint64_t value,
                struct sp_str bytes);

int sp_web_task_begin(struct sp_web_worker *w, const struct sp_web_order *o, int memory);
void sp_web_task_take(struct sp_web_task *t, uint64_t bytes);
void sp_web_task_flush(struct sp_web_task *t); /* what has come of the body goes out */
void sp_web_task_free(struct sp_web_task *t);

/* ---- response.c ---- */

/* A line of the head; an empty one ends it. */
enum sp_curl_taken sp_web_response_line(struct sp_web_task *t, struct sp_str line);
/* Turns the request into the one that the redirect asks for. */
bool sp_web_redirect(struct sp_web_task *t);

#endif
