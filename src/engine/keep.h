/* SPDX-License-Identifier: Apache-2.0 */
/* keep: old names of base/arena.h, until the engine uses the new ones. */
#ifndef SP_ENGINE_KEEP_H
#define SP_ENGINE_KEEP_H

#include "base/arena.h"
#include "base/env_policy.h"

#define sp_keep         sp_arena
#define sp_keep_done    sp_arena_done
#define sp_keep_alloc   sp_arena_new
#define sp_keep_str     sp_arena_str
#define sp_keep_text    sp_arena_text
#define sp_keep_strs    sp_arena_strs
#define sp_keep_vars    sp_env_copy_vars
#define sp_keep_environ sp_env_copy_request

#endif
