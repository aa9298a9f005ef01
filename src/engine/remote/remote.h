/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote: the backend that runs commands on an exec-server: ours or codex exec-server.
 *
 * The first request connects. A lost connection is made again and the session resumed: missed
 * events are read by number, unanswered writes are repeated under the same id. No job fails while
 * that can succeed. If the server is gone for good, or has forgotten the session, all jobs fail
 * with one text.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_H
#define SP_ENGINE_REMOTE_REMOTE_H

#include "engine/job.h"
#include "engine/remote/client.h"

/* Copies the options; does not connect yet. */
int sp_remote_new(struct sp_loop *loop, const struct sp_client_options *o, struct sp_backend **ret,
                  struct sp_err *e);

#endif
