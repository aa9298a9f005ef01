/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http_gate: judges the head of a request. No I/O.
 *
 * The token is checked first: a client without one learns nothing, not even which paths exist.
 */
#include "mcp/mcp_http_gate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/sha.h"

/* ---- what is allowed ---- */

int sp_mcp_gate_init(struct sp_mcp_gate *g, const char *const *tokens, const char *const *origins,
                     struct sp_err *e)
{
    static const char *const none[] = {NULL};

    while (tokens != NULL && tokens[g->tokens] != NULL)
        g->tokens++;
    if (g->tokens == 0)
        return sp_fail(e, SP_E_INVALID, 0, "HTTP needs at least one token");
    g->origins = origins != NULL ? origins : none;
    g->digests = calloc(g->tokens, sizeof *g->digests);
    if (g->digests == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep tokens and origins");
    for (unsigned i = 0; i < g->tokens; i++) {
        if (tokens[i][0] == 0)
            return sp_fail(e, SP_E_INVALID, 0, "token %u is empty", i + 1);
        sp_sha256(sp_str_of(tokens[i]), g->digests[i]);
    }
    return 0;
}

/* ---- token, Host and Origin ---- */

/* Index of the token in the Authorization header, from 1; 0: none, or unknown. Compares with all
 * tokens, so that the time taken does not depend on which one matches. */
static unsigned find_token(const struct sp_mcp_gate *g, const struct sp_http_request *r)
{
    struct sp_str h = {"", 0};
    uint8_t digest[32];
    unsigned found = 0;

    if (sp_http_header(r, "authorization", &h) != 1 || h.n < 8 || h.p[6] != ' ' ||
        !sp_str_eq_nocase((struct sp_str){h.p, 6}, SP_STR("Bearer")))
        h = (struct sp_str){"", 0};
    else
        h = (struct sp_str){h.p + 7, h.n - 7};
    while (h.n != 0 && h.p[0] == ' ')
        h = (struct sp_str){h.p + 1, h.n - 1};
    sp_sha256(h, digest);
    for (unsigned i = 0; i < g->tokens; i++) {
        const bool is_same =
            sp_same_secret((struct sp_str){(const char *)digest, sizeof digest},
                           (struct sp_str){(const char *)g->digests[i], sizeof g->digests[i]});

        found = is_same && found == 0 ? i + 1 : found;
    }
    return h.n == 0 ? 0 : found;
}

static bool is_origin_allowed(const struct sp_mcp_gate *g, struct sp_str origin)
{
    for (const char *const *o = g->origins; *o != NULL; o++)
        if (sp_str_eq_nocase(origin, sp_str_of(*o)))
            return true;
    return false;
}

/* Against DNS rebinding: on loopback, Host must be a loopback name. The names of an address that
 * other machines can reach are unknown here; there the token alone protects. */
static bool is_host_ours(const struct sp_mcp_gate *g, const struct sp_http_request *r)
{
    return !g->is_loopback || sp_http_is_host_ours(r, NULL);
}

/* ---- media types ---- */

/* `q=0`, `q=0.0`: the client does not accept the type. */
static bool has_zero_weight(struct sp_str parameters)
{
    while (parameters.n != 0) {
        const struct sp_str p = sp_str_trim(sp_str_cut(&parameters, ';'));

        if (p.n < 3 || (p.p[0] | 0x20) != 'q' || p.p[1] != '=' || p.p[2] != '0')
            continue;
        size_t i = 3;
        while (i < p.n && (p.p[i] == '.' || p.p[i] == '0'))
            i++;
        return i == p.n;
    }
    return false;
}

static bool is_type_in(struct sp_str list, const char *type, const char *any_of_kind)
{
    while (list.n != 0) {
        struct sp_str range = sp_str_trim(sp_str_cut(&list, ','));
        const struct sp_str name = sp_str_trim(sp_str_cut(&range, ';'));

        if ((sp_str_eq_nocase(name, sp_str_of(type)) ||
             sp_str_eq_nocase(name, sp_str_of(any_of_kind)) || sp_str_eq(name, SP_STR("*/*"))) &&
            !has_zero_weight(range))
            return true;
    }
    return false;
}

/* The client must accept both: the server chooses which one to send. */
static bool accepts_both(const struct sp_http_request *r)
{
    struct sp_str accept = {"", 0};

    (void)sp_http_header(r, "accept", &accept); /* has_word searches further Accept headers */
    return (is_type_in(accept, "application/json", "application/*") ||
            sp_http_has_word(r, "accept", "application/json")) &&
           (is_type_in(accept, "text/event-stream", "text/*") ||
            sp_http_has_word(r, "accept", "text/event-stream"));
}

static bool is_json(const struct sp_http_request *r)
{
    struct sp_str type = {"", 0};
    struct sp_str coding = SP_STR("identity");

    return sp_http_header(r, "content-type", &type) == 1 &&
           sp_str_eq_nocase(sp_str_trim(sp_str_cut(&type, ';')), SP_STR("application/json")) &&
           sp_http_header(r, "content-encoding", &coding) <= 1 &&
           sp_str_eq_nocase(coding, SP_STR("identity"));
}

/* ---- the verdict ---- */

static struct sp_mcp_verdict refuse_head(struct sp_mcp_verdict v, unsigned status, const char *why)
{
    v.status = status;
    v.why = why;
    return v;
}

static struct sp_mcp_verdict judge_method(const struct sp_mcp_gate *g, struct sp_mcp_verdict v,
                                          const struct sp_http_request *r)
{
    struct sp_str expect = {"", 0};

    if (sp_str_eq(r->method, SP_STR("POST"))) {
        v.verb = SP_MCP_POST;
        if (!accepts_both(r))
            return refuse_head(v, 406, "Accept must allow application/json and text/event-stream");
        if (!is_json(r))
            return refuse_head(v, 415, "Content-Type must be application/json");
        if (sp_http_header(r, "expect", &expect) != 0 &&
            !sp_str_eq_nocase(expect, SP_STR("100-continue")))
            return refuse_head(v, 417, "Expect can only be 100-continue");
        return v;
    }
    v.verb = SP_MCP_DELETE;
    if (sp_str_eq(r->method, SP_STR("DELETE")))
        return v;
    v.header =
        g->origins[0] == NULL ? "allow: POST, DELETE\r\n" : "allow: POST, DELETE, OPTIONS\r\n";
    v = refuse_head(v, 405, "messages are sent with POST");
    if (sp_str_eq(r->method, SP_STR("HEAD")))
        v.why = NULL; /* an answer to HEAD has no body */
    return v;
}

struct sp_mcp_verdict sp_mcp_gate_judge(const struct sp_mcp_gate *g,
                                        const struct sp_http_request *r)
{
    struct sp_mcp_verdict v = {0};
    struct sp_str origin = {"", 0};
    const unsigned origins = sp_http_header(r, "origin", &origin);
    struct sp_str method;

    /* A CORS preflight carries no token; the answer reveals only that the page may call. */
    if (origins == 1 && origin.n != 0 && sp_str_eq(r->method, SP_STR("OPTIONS")) &&
        sp_http_header(r, "access-control-request-method", &method) == 1 &&
        is_origin_allowed(g, origin) && sp_str_eq(r->path, sp_str_of(g->path)) &&
        is_host_ours(g, r)) {
        v.verb = SP_MCP_PREFLIGHT;
        v.origin = origin;
        return v;
    }
    v.token = find_token(g, r);
    if (v.token == 0) {
        v.header = "www-authenticate: Bearer\r\n";
        v.status = 401;
        return v;
    }
    if (!is_host_ours(g, r))
        return refuse_head(v, 403, "Host is not a name of this server");
    if (origins > 1 || (origins == 1 && !is_origin_allowed(g, origin)))
        return refuse_head(v, 403, "this Origin may not call; see --allow-origin");
    v.origin = origin;
    if (!sp_str_eq(r->path, sp_str_of(g->path)))
        return refuse_head(v, 404, "there is nothing at this path");
    return judge_method(g, v, r);
}
