/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_confine: the proxy and the resolver lock themselves in before they read their first
 * message.
 *
 * Both: not dumpable, no core file, no new privileges, no capabilities. The proxy: Landlock with no
 * rule (no file at all) and a seccomp filter that lists the calls it needs and kills the process
 * for any other one. The resolver: Landlock, reading below a few system directories only, and a
 * filter without exec, fork of processes, signals and ptrace. A child that was forked first enters
 * the same filter and must die of a call that is tried.
 */
#ifndef SP_PROXY_PROXY_CONFINE_H
#define SP_PROXY_PROXY_CONFINE_H

#include "base/error.h"

int sp_proxy_confine(struct sp_err *e);
int sp_resolver_confine(struct sp_err *e);

#endif
