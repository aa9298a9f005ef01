/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host: the account that we run as, its shell and home, and an id of host and account.
 */
#ifndef SP_OS_HOST_H
#define SP_OS_HOST_H

struct sp_host {
    char shell_name[16]; /* zsh, bash, sh or powershell */
    char shell_path[256];
    char login_shell[256]; /* of the account; becomes SHELL of a terminal */
    char home[512];        /* "" if not known */
    char provider_id[72];  /* "sha256:" + 64 hex digits, stable for this host and account */
};

/* Never fails: what cannot be found gets a default (/bin/sh, ""). */
void sp_host_detect(struct sp_host *ret);

/* Chooses shell_name and shell_path from login_shell and PATH. */
void sp_host_choose_shell(struct sp_host *h);

#endif
