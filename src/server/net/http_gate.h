/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate: what an HTTP request gets (exec-server-protocol.md 1.3). It only judges; it does no I/O.
 */
#ifndef SP_SERVER_NET_HTTP_GATE_H
#define SP_SERVER_NET_HTTP_GATE_H

#include "server/net/auth.h"
#include "server/net/http.h"

struct sp_http_gate {
    const struct sp_auth *auth; /* NULL: anonymous */
    const char *const *hosts;   /* more names for Host, NULL-terminated; may be NULL */
    bool is_unix;               /* no name leads here, so Host says nothing */
    bool has_metrics;
};

enum sp_http_gate_verdict {
    SP_HTTP_GATE_ANSWER,  /* with *ret */
    SP_HTTP_GATE_METRICS, /* with the metrics' text */
    SP_HTTP_GATE_UPGRADE, /* it may become a WebSocket */
};

enum sp_http_gate_verdict sp_http_gate_judge(const struct sp_http_gate *g,
                                             const struct sp_http_request *r, int64_t now_s,
                                             struct sp_http_answer *ret);

/* Host names this server: once, as an address, `localhost` or one of `hosts`. */
bool sp_http_gate_is_host_ours(const struct sp_http_gate *g, const struct sp_http_request *r);

/* Appends the 101 that a request judged UPGRADE gets. false: no room. */
bool sp_http_gate_write_switch(struct sp_buf *out, const struct sp_http_request *r);

#endif
