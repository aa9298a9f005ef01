/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods: one function per method of the protocol. The table of all methods is in methods.c.
 */
#ifndef SP_SERVER_RPC_METHODS_H
#define SP_SERVER_RPC_METHODS_H

#include "server/rpc/conn.h"

/* Body of an http/request that is not streamed: with the rest, a message that clients accept. */
#define SP_WEB_MAX_BODY (47U << 20)

int sp_m_initialize(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_session_end(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_info(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_status(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_config_read(struct sp_rpc_call *call, struct sp_err *e);
int sp_m_capability_roots_discover(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_capabilities_discover(struct sp_rpc_call *c, struct sp_err *e);

int sp_m_process_start(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_read(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_write(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_signal(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_terminate(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_resize(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_close_stdin(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_list(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_inspect(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_attach(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_process_detach(struct sp_rpc_call *c, struct sp_err *e);

int sp_m_fs_read_file(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_write_file(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_create_directory(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_get_metadata(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_canonicalize(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_read_directory(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_walk(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_remove(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_copy(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_open(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_read_block(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_write_block(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_close(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_fs_watch_missing(struct sp_rpc_call *c, struct sp_err *e);

int sp_m_http_request(struct sp_rpc_call *c, struct sp_err *e);
/* The connection ends: so do its HTTP requests. */
void sp_web_close(struct sp_conn *conn);

/* ---- which process a request is about ---- */

struct sp_proc_target {
    struct sp_str session; /* p NULL: the connection's own */
    struct sp_str id;
};
/* processId, and sessionId if it is there. */
void sp_proc_target_read(const struct sp_params *p, struct sp_proc_target *ret);
/* Checks the state and finds the process as sp_rpc_call_proc does. */
int sp_proc_target_find(struct sp_rpc_call *c, const struct sp_proc_target *t, struct sp_proc **ret,
                        bool *ret_waits, struct sp_err *e);
int sp_proc_target_unknown(const struct sp_proc_target *t, struct sp_err *e); /* the error */

#endif
