/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain: whether a policy lets a path be read and be written, and what in it says so.
 *
 * The answer comes from the same survey and plan that a sandbox is made of, as if this host could
 * do everything. Ordinary permissions of files count besides; nothing is said about them.
 */
#ifndef SP_CLI_EXPLAIN_H
#define SP_CLI_EXPLAIN_H

#include "sandbox/profile.h"

/* paths: NULL at the end; relative ones are taken from `cwd`. covers: as for sp_survey_make. */
int sp_explain(const struct sp_policy *p, const char *const *covers, const char *cwd,
               char *const *paths, struct sp_buf *out, struct sp_error *e);

#endif
