/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods: one function per method of the protocol; the table is in methods.c.
 */
#ifndef SP_SERVER_RPC_METHODS_H
#define SP_SERVER_RPC_METHODS_H

#include "server/rpc/conn.h"

int sp_m_initialize(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_session_end(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_info(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_status(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_environment_config_read(struct sp_rpc_call *call, struct sp_err *e);
int sp_m_capability_roots_discover(struct sp_rpc_call *c, struct sp_err *e);
int sp_m_capabilities_discover(struct sp_rpc_call *c, struct sp_err *e);

int sp_m_process_start(struct sp_rpc_call *c, struct sp_err *e);
/* The start itself, of a request that waits. false: it failed and was answered. */
bool sp_start_begin(struct sp_request *r, const struct sp_start *o);
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

#endif
