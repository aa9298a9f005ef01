/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_priv: what http.c and http_child.c share; nobody else includes this.
 */
#ifndef SP_CORE_HTTP_CLIENT_PRIV_H
#define SP_CORE_HTTP_CLIENT_PRIV_H

#include "core/cell_child.h"
#include "core/http_client.h"
#include "core/outbox.h"

/* A process that speaks HTTP. */
struct sp_web_child {
    struct sp_web *http;
    struct sp_web_child *next;
    struct sp_cell_child process;
    int socket; /* -1: it is ending */
    struct sp_watch watch;
    struct sp_deferred end;
    struct sp_outbox outbox;
    struct sp_timer ping;
    uint32_t unanswered; /* pings since it has last said anything */
};

struct sp_web {
    struct sp_loop *loop;
    const char *program;
    char *const *environ;
    struct sp_web_child *child; /* that takes requests; NULL: none */
    struct sp_web_child *children;
    struct sp_timer idle;
    struct sp_web_call *working, *waiting, *last_waiting;
    uint32_t working_count, waiting_count;
    uint64_t number;
    bool is_unable;
    uint32_t ping_ms;
    struct sp_deferred more;
    char *heard; /* room for one message */
};

/* ---- http_child.c ---- */

int sp_web_child_start(struct sp_web *h, struct sp_err *e); /* h->child */
/* 0: it is on its way, or the process has ended, which is heard soon. Else minus errno: it was not
 * sent. */
int sp_web_child_say(struct sp_web_child *c, const void *message, size_t n, int fd);
/* There is work: from now on it is asked for signs of life. false: no memory. */
bool sp_web_child_watch_over(struct sp_web_child *c);
/* It ends by itself, or at once. Nothing is heard of it any more. */
void sp_web_child_hang_up(struct sp_web_child *c, bool is_killed);
void sp_web_children_free(struct sp_web *h);

/* ---- http.c ---- */

bool sp_web_on_message(struct sp_web *h, const struct sp_web_message *m); /* false: nonsense */
void sp_web_on_lost(struct sp_web *h, const char *why);

#endif
