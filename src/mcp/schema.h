/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema: what is published about the tools (unified-exec.md 3.1, 3.2, 3.6), in parts, for whoever
 * publishes them in another envelope. The descriptions are read by models: each word of them is
 * part of the contract, and is written down once.
 */
#ifndef SP_MCP_SCHEMA_H
#define SP_MCP_SCHEMA_H

#include "mcp/tools.h"

/* When a parameter is published. */
enum sp_schema_when {
    SP_SCHEMA_ALWAYS,
    SP_SCHEMA_WITH_LOGIN,
    SP_SCHEMA_WITHOUT_FIXED_SHELL,
    SP_SCHEMA_WITH_SEVERAL_ENVIRONMENTS,
    SP_SCHEMA_WITH_ADDITIONAL_PERMISSIONS,
    SP_SCHEMA_WITHOUT_ADDITIONAL_PERMISSIONS,
    SP_SCHEMA_WITH_NO_TIMEOUT,
};

struct sp_parameter {
    const char *name, *type, *description;
    const char *more; /* further members of its schema; NULL: none */
    enum sp_schema_when when;
};

/* Lists end with a name of NULL. */
extern const struct sp_parameter sp_schema_exec[], sp_schema_write[], sp_schema_permissions[],
    sp_schema_compat[];
extern const char sp_schema_exec_description[], sp_schema_write_description[];

/* The members of a schema's `properties` that are published. `follows`: there are some before. */
bool sp_schema_add_parameters(struct sp_buf *out, const struct sp_parameter *list,
                              const struct sp_tools_options *o, bool follows);

/* The members of the properties of an answer (3.6). */
#define SP_SCHEMA_ANSWER                                                                          \
    "\"chunk_id\":{\"type\":\"string\",\"description\":\"Label of this answer.\"},"               \
    "\"wall_time_seconds\":{\"type\":\"number\",\"description\":\"How long this call waited.\"}," \
    "\"exit_code\":{\"type\":\"number\",\"description\":\"There once the process has ended.\"},"  \
    "\"session_id\":{\"type\":\"number\",\"description\":"                                        \
    "\"There while the process runs: what write_stdin takes.\"},"                                 \
    "\"original_token_count\":{\"type\":\"number\",\"description\":"                              \
    "\"About how many tokens of output there were before any were left out.\"},"                  \
    "\"output\":{\"type\":\"string\",\"description\":\"Output since the last answer.\"}"
#define SP_SCHEMA_STRINGS "\"items\":{\"type\":\"string\"}"

#endif
