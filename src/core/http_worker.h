/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker: a process that speaks HTTP for the front: its memory, its threads and its reading of what
 * strangers send are not the front's. It ends with its socket.
 */
#ifndef SP_CORE_HTTP_WORKER_H
#define SP_CORE_HTTP_WORKER_H

#include "base/error.h"

int sp_web_worker_run(int socket, struct sp_err *e);

#endif
