/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_worker: a process that speaks HTTP for the front, so that parsing responses, libcurl's
 * memory and its threads stay out of the front. It ends with its socket.
 */
#ifndef SP_CORE_HTTP_WORKER_H
#define SP_CORE_HTTP_WORKER_H

#include <stdbool.h>

#include "base/error.h"

int sp_web_worker_run(int socket, struct sp_err *e);
bool sp_web_worker_is_built_in(void); /* false: built without libcurl */

#endif
