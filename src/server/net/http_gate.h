/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_gate: decides the answer to an HTTP request, by path, Host, Origin and token. No I/O.
 */
#ifndef SP_SERVER_NET_HTTP_GATE_H
#define SP_SERVER_NET_HTTP_GATE_H

#include "server/net/auth.h"
#include "server/net/http.h"

struct sp_http_gate {
    const struct sp_auth *auth; /* NULL: anonymous */
    const char *const *hosts;   /* more names for Host, NULL-terminated; may be NULL */
    bool is_unix;               /* DNS rebinding is impossible: Host is ignored */
    bool has_metrics;
};

enum sp_http_gate_verdict {
    SP_HTTP_GATE_ANSWER,  /* answer with *ret */
    SP_HTTP_GATE_METRICS, /* answer with the metrics */
    SP_HTTP_GATE_UPGRADE, /* switch to WebSocket */
};

enum sp_http_gate_verdict sp_http_gate_judge(const struct sp_http_gate *g,
                                             const struct sp_http_request *r, int64_t now_s,
                                             struct sp_http_answer *ret);

/* There is one Host header: an IP address, `localhost` or one of `hosts`. */
bool sp_http_gate_is_host_ours(const struct sp_http_gate *g, const struct sp_http_request *r);

/* Appends the 101 for UPGRADE. false: no memory. */
bool sp_http_gate_write_switch(struct sp_buf *out, const struct sp_http_request *r);

#endif
