/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host: who and where we are.
 */
#ifndef SP_OS_HOST_H
#define SP_OS_HOST_H

struct sp_host {
    char shell_name[16]; /* zsh, bash, sh or powershell */
    char shell_path[256];
    char login_shell[256]; /* as the account says; what a terminal's SHELL is */
    char home[512];        /* "" if not known */
    char provider_id[72];  /* "sha256:" + 64 hex digits, stable for this host and account */
};

/* Never fails: what cannot be found has the plainest value. */
void sp_host_detect(struct sp_host *ret);

/* The part of it that says which shell commands are for: by login_shell and PATH. */
void sp_host_choose_shell(struct sp_host *h);

#endif
