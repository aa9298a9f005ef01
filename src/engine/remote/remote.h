/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote: the backend whose processes run on an exec-server: ours, or codex exec-server.
 *
 * The connection is made when it is first needed, and made again when it was lost: the session is
 * resumed, what was missed is read by number, what was written is written again under the same id.
 * While that can still succeed no job has failed. A server that is gone for good, or has forgotten
 * the session, fails every job of it with one clear text.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_H
#define SP_ENGINE_REMOTE_REMOTE_H

#include "engine/job.h"
#include "engine/remote/client.h"

/* Options are copied. Nothing is connected yet. */
int sp_remote_new(struct sp_loop *loop, const struct sp_client_options *o, struct sp_backend **ret,
                  struct sp_err *e);

#endif
