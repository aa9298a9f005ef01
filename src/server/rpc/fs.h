/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs: what the file methods share: parameters, the sandbox they run in, errors, and the open files
 * and watches of a connection (exec-server-protocol.md 4.4).
 */
#ifndef SP_SERVER_RPC_FS_H
#define SP_SERVER_RPC_FS_H

#include "base/uri.h"
#include "server/rpc/conn.h"

#define SP_FS_MAX_HANDLES   128
#define SP_FS_MAX_HANDLE_ID 32

/* One request about files while it is looked at. Zero before, sp_fs_ask_done after. */
struct sp_fs_ask {
    struct sp_files_job job;
    struct sp_uri path, other;
    struct sp_policy policy;
    bool has_policy;
    struct sp_fs_handle *handle; /* goes to the request; NULL: none */
};
void sp_fs_ask_done(struct sp_fs_ask *a);
#define auto_fs_ask __attribute__((cleanup(sp_fs_ask_done)))

/* Members of the params, in the order of the checks. */
int sp_fs_need_path(struct sp_rpc_call *c, const char *key, struct sp_uri *ret, struct sp_err *e);
int sp_fs_opt_bool(struct sp_rpc_call *c, const char *key, bool *ret, struct sp_err *e);
/* A sandbox object: *ret_has once *ret needs sp_policy_done, *ret_restricts if it forbids anything
 * on the disk. */
int sp_fs_read_policy(struct sp_json *j, uint32_t sandbox, struct sp_policy *ret, bool *ret_has,
                      bool *ret_restricts, struct sp_err *e);
/* The `sandbox` member; without one that restricts anything: none. */
int sp_fs_read_sandbox(struct sp_rpc_call *c, struct sp_fs_ask *a, struct sp_err *e);

/* The state of the connection and what the paths mean here, then the operation; `done` answers. */
int sp_fs_begin(struct sp_rpc_call *c, struct sp_fs_ask *a,
                void (*done)(struct sp_request *r, const struct sp_file_answer *a),
                struct sp_err *e);

/* An answer that is no success: sent. false: it is one. */
bool sp_fs_failed(struct sp_request *r, const struct sp_file_answer *a);
/* The answer of fs/readFile, made while it is sent. false: this one is to be made at once. */
bool sp_fs_send_content(struct sp_request *r, const struct sp_file_answer *a);
/* {} */
void sp_fs_answer_nothing(struct sp_request *r, const struct sp_file_answer *a);

/* The text for an errno as the reference has it: "No such file or directory (os error 2)". */
void sp_fs_error_text(int err, char *ret, size_t size);

/* The request is over: so is its use of a handle. */
void sp_fs_release(struct sp_request *r);
/* The connection ends: its files are closed. */
void sp_fs_free(struct sp_conn *conn);

#endif
