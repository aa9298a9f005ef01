/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said about hosts, to callers, to people and in keys (approvals.md 11).
 */
#include <inttypes.h>

#include "approve/network_priv.h"

static const struct {
    const char *wire, *label;
} protocols[] = {
#define X(name, wire, label) [SP_NETWORK_##name] = {wire, label},
    SP_NETWORK_PROTOCOLS(X)
#undef X
};

static const struct {
    const char *wire, *text;
} reasons[] = {
#define X(name, wire, text) [SP_NETWORK_REASON_##name] = {wire, text},
    SP_NETWORK_REASONS(X)
#undef X
};

const char *sp_network_wire(enum sp_network_protocol p)
{
    return protocols[p].wire;
}

static enum sp_network_reason known(enum sp_network_reason r)
{
    return (unsigned)r < SP_NETWORK_REASON_MAX ? r : SP_NETWORK_REASON_OTHER;
}

const char *sp_network_reason_name(enum sp_network_reason r)
{
    return reasons[known(r)].wire;
}

bool sp_network_add_refusal(struct sp_buf *out, struct sp_str host, enum sp_network_reason r)
{
    const size_t mark = out->len;

    if (host.n == 0)
        return sp_buf_add_str(out, SP_STR(SP_NETWORK_NO_HOST));
    if (sp_buf_add_str(out, SP_STR("Network access to \"")) &&
        sp_question_add_visible(out, host, false) &&
        sp_buf_printf(out, "\" was blocked: %s.", reasons[known(r)].text))
        return true;
    out->len = mark;
    return false;
}

bool sp_network_add_blocked(struct sp_buf *out, struct sp_str url)
{
    return sp_buf_add_str(out, SP_STR("Network access to \"")) && sp_buf_add_str(out, url) &&
           sp_buf_add_str(out, SP_STR("\" was blocked by policy."));
}

bool sp_network_add_crowded(struct sp_buf *out, struct sp_str url)
{
    return sp_buf_add_str(out, SP_STR("Network access to \"")) && sp_buf_add_str(out, url) &&
           sp_buf_add_str(out, SP_STR("\" was blocked: too many questions are open; try again when "
                                      "some are answered."));
}

bool sp_network_add_disconnected(struct sp_buf *out, uint64_t ms)
{
    return sp_buf_printf(
        out, "Network request disconnected after %" PRIu64 " ms, before approval could complete",
        ms);
}

bool sp_network_add_mismatch(struct sp_buf *out, struct sp_str named, struct sp_str asked)
{
    return sp_buf_add_str(out, SP_STR("network policy amendment host '")) &&
           sp_question_add_visible(out, named, false) &&
           sp_buf_add_str(out, SP_STR("' does not match approved host '")) &&
           sp_buf_add_str(out, asked) && sp_buf_add_str(out, SP_STR("'"));
}

bool sp_network_add_url(struct sp_buf *out, enum sp_network_protocol p, struct sp_str host,
                        uint16_t port)
{
    const bool is_v6 = host.n != 0 && memchr(host.p, ':', host.n) != NULL;

    return sp_buf_printf(out, "%s://%s",
                         (unsigned)p < SP_NETWORK_PROTOCOL_MAX ? protocols[p].label : "unknown",
                         is_v6 ? "[" : "") &&
           sp_question_add_visible(out, host, false) &&
           sp_buf_printf(out, "%s:%u", is_v6 ? "]" : "", port);
}

/* An environment's name may have the sign in it; what is behind it may not, so keys differ. */
bool sp_network_add_key(struct sp_buf *out, struct sp_str environment, enum sp_network_protocol p,
                        struct sp_str host, uint16_t port)
{
    return sp_buf_add_str(out, SP_STR("network#")) && sp_buf_add_str(out, environment) &&
           sp_buf_printf(out, "#%s#", protocols[p].label) && sp_buf_add_str(out, host) &&
           sp_buf_printf(out, "#%u", port);
}
