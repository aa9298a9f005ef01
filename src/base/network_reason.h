/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_reason: why a command may not reach a host, and how that is said.
 */
#ifndef SP_BASE_NETWORK_REASON_H
#define SP_BASE_NETWORK_REASON_H

/* name; on the wire; value of the field x-proxy-error; message of the proxy; sentence for the
 * user of the command, behind `Network access to "HOST" was blocked: ` */
#define SP_NETWORK_REASONS(X)                                                                  \
    X(NONE, "none", "", "", "")                                                                \
    X(OTHER, "other", "blocked-by-policy", "Request blocked by network policy.",               \
      "request is blocked by network policy")                                                  \
    X(DENIED, "denied", "blocked-by-denylist", "Domain denied by the sandbox policy.",         \
      "domain is explicitly denied by policy and cannot be approved from this prompt")         \
    X(NOT_ALLOWED, "not_allowed", "blocked-by-allowlist", "Domain not in allowlist.",          \
      "domain is not on the allowlist for the current sandbox mode")                           \
    X(NOT_ALLOWED_LOCAL, "not_allowed_local", "blocked-by-allowlist",                          \
      "Sandbox policy blocks local/private network addresses.",                                \
      "local/private network addresses are blocked by the sandbox policy")                     \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", "blocked-by-method-policy",                    \
      "Method not allowed in limited mode.",                                                   \
      "request method is blocked by the current network mode")                                 \
    X(MITM_REQUIRED, "mitm_required", "blocked-by-mitm-required",                              \
      "MITM required for limited HTTPS.",                                                      \
      "HTTPS is blocked by the current network mode, which would have to decrypt it")          \
    X(PROXY_DISABLED, "proxy_disabled", "blocked-by-policy", "network proxy is disabled",      \
      "network proxy is disabled")                                                             \
    X(SNI_MISMATCH, "sni_mismatch", "blocked-by-policy", "Request blocked by network policy.", \
      "the TLS server name is another one than the host that was asked for")
enum sp_network_reason {
#define X(name, wire, field, message, sentence) SP_NETWORK_REASON_##name,
    SP_NETWORK_REASONS(X)
#undef X
        SP_NETWORK_REASON_MAX
};

/* Numbers that are no reason count as OTHER. */
struct sp_network_reason_text {
    const char *wire, *field, *message, *sentence;
};
const struct sp_network_reason_text *sp_network_reason_text(unsigned reason);

#endif
