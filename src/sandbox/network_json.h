/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_json: the settings of a managed network as a JSON object, in profiles of files and of
 * programs that use the library:
 *
 *   {"mode":"full","domains":{"a.example":"allow"},"ports":[22,80,443],"ask":true,
 *    "allow_local":false,"enable_socks5":true,"check_sni":true,"proxy_env":true,
 *    "allow_upstream_proxy":true,"upstream_unresolved":"pass"}
 *
 * The keys are those of [permissions.NAME.network] (sallyport.conf(5)), each optional. Clients of
 * the wire send other settings (networkProxy); this object is refused there.
 */
#ifndef SP_SANDBOX_NETWORK_JSON_H
#define SP_SANDBOX_NETWORK_JSON_H

#include "base/json.h"
#include "sandbox/network_policy.h"

/* *ret is unchanged after a failure; the caller frees it. */
int sp_network_policy_read(struct sp_json *j, uint32_t object, struct sp_network_policy **ret,
                           struct sp_err *e);
/* Every member. false: no memory. */
bool sp_network_policy_write(const struct sp_network_policy *p, struct sp_buf *out);

#endif
