/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits: what a command, a session or a server may consume, in the forms in which every door takes
 * and tells it: `--limit memory=512M`, {"memoryBytes":536870912}, "memory limit 512 MiB reached".
 *
 * core/proc_limits.h says how a limit is set, enforced and noticed.
 */
#ifndef SP_BASE_LIMITS_H
#define SP_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/end_reason.h"
#include "base/json.h"

/* The first three are also limits of a session and of a server. */
enum sp_limit {
    SP_LIMIT_MEMORY, /* bytes of the tree */
    SP_LIMIT_PIDS,   /* processes and threads of the tree */
    SP_LIMIT_CPUS,   /* processors, in thousandths */
    SP_LIMIT_CPU,    /* ms of CPU time of the tree */
    SP_LIMIT_WALL,   /* ms since the start */
    SP_LIMIT_OUTPUT, /* bytes of both streams */
    SP_LIMIT_FILES,  /* descriptors of each process */
    SP_LIMIT_FSIZE,  /* bytes of a file that a process writes */
    SP_LIMIT_COUNT
};
#define SP_LIMIT_SHARED 3 /* as said above */

struct sp_limit_set {
    uint64_t of[SP_LIMIT_COUNT]; /* 0: no limit */
};

enum sp_limit_level { SP_LIMIT_COMMAND, SP_LIMIT_SESSION, SP_LIMIT_SERVER, SP_LIMIT_LEVELS };

struct sp_limit_levels {
    struct sp_limit_set level[SP_LIMIT_LEVELS];
};

/* The limits that a start asks for. */
struct sp_limit_ask {
    struct sp_limit_set set;
    bool is_given;
    bool is_best; /* fall back to rlimits, or to no limit, where there is no controller */
};

/* What a limit counts: PROCESS: each process alone. */
enum sp_limit_scope { SP_LIMIT_NOWHERE, SP_LIMIT_PER_PROCESS, SP_LIMIT_TREE };

/* One limit that was reached. */
struct sp_limit_hit {
    enum sp_limit limit;
    enum sp_limit_level level;
    uint64_t value;
    uint64_t count; /* processes killed, forks refused; 1 for the others */
    bool leader;    /* it ended the command's own process */
};

struct sp_limit_hits {
    uint32_t count;
    bool has_ended; /* `ended_by` ended the command */
    enum sp_limit ended_by;
    bool is_host_suspected; /* killed, perhaps because the host has no memory left */
    struct sp_limit_hit items[SP_LIMIT_COUNT];
};

enum sp_limit_style { SP_LIMIT_CAMEL, SP_LIMIT_SNAKE }; /* memoryBytes, memory_bytes */

struct sp_limit_kind {
    const char *name;          /* "memory" */
    const char *keys[2];       /* by enum sp_limit_style */
    enum sp_end_reason reason; /* NONE: it ends no command as such */
    enum sp_limit_scope own;   /* the widest scope there can be */
    uint64_t min;
};
extern const struct sp_limit_kind sp_limit_kinds[SP_LIMIT_COUNT];
extern const char *const sp_limit_level_names[SP_LIMIT_LEVELS];
extern const char *const sp_limit_scope_names[]; /* NULL for NOWHERE */

/* Reads `[LEVEL:]NAME=VALUE` into *ret. Returns NULL, or what the text has to be. */
const char *sp_limits_read(const char *text, void *ret);
/* Limits of `over` count in place of those of *ret. */
void sp_limits_put_over(struct sp_limit_levels *ret, const struct sp_limit_levels *over);

/* Combines what a start asks for with the most that it may have. SP_E_INVALID: it asks for more. */
int sp_limits_lower(const struct sp_limit_set *asked, const struct sp_limit_set *most,
                    struct sp_limit_set *ret, struct sp_err *e);

/* Reads the object as the wire and tools have it. SP_E_INVALID: an unknown name, or a wrong value.
 */
int sp_limits_read_json(struct sp_json *j, uint32_t object, enum sp_limit_style style,
                        struct sp_limit_ask *ret, struct sp_err *e);
/* Appends the object, for a server. */
bool sp_limits_add_json(struct sp_buf *out, const struct sp_limit_ask *ask);

/* Appends the array of limitsHit. */
bool sp_limits_add_hits(struct sp_buf *out, const struct sp_limit_hits *hits);
/* Reads that array, of a server, or SP_JSON_NONE; what it does not understand is left
 * out. */
void sp_limits_read_hits(struct sp_json *j, uint32_t array, enum sp_end_reason reason,
                         struct sp_limit_hits *ret);
/* Appends a line about a hit, without its end. */
bool sp_limits_add_text(struct sp_buf *out, const struct sp_limit_hit *hit);

#endif
