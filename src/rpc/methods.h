/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods: one function per method of the protocol; the table is in methods.c.
 */
#ifndef SP_RPC_METHODS_H
#define SP_RPC_METHODS_H

#include "rpc/conn.h"

int sp_m_initialize(struct sp_call *c, struct sp_error *e);
int sp_m_session_end(struct sp_call *c, struct sp_error *e);
int sp_m_environment_info(struct sp_call *c, struct sp_error *e);
int sp_m_environment_status(struct sp_call *c, struct sp_error *e);

int sp_m_process_start(struct sp_call *c, struct sp_error *e);
int sp_m_process_read(struct sp_call *c, struct sp_error *e);
int sp_m_process_write(struct sp_call *c, struct sp_error *e);
int sp_m_process_signal(struct sp_call *c, struct sp_error *e);
int sp_m_process_terminate(struct sp_call *c, struct sp_error *e);
int sp_m_process_resize(struct sp_call *c, struct sp_error *e);
int sp_m_process_close_stdin(struct sp_call *c, struct sp_error *e);
int sp_m_process_list(struct sp_call *c, struct sp_error *e);
int sp_m_process_attach(struct sp_call *c, struct sp_error *e);
int sp_m_process_detach(struct sp_call *c, struct sp_error *e);

#endif
