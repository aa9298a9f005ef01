/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: the small numbers by which a model names its processes (unified-exec.md 4.1).
 *
 * An id is reserved from the moment it is handed out until it is released, whether or not a process
 * was ever stored under it. After that it rests for a minute, so that a late write to the old
 * process cannot reach a stranger. Time is the caller's: any monotonic clock in milliseconds.
 */
#ifndef SP_ENGINE_IDS_H
#define SP_ENGINE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_IDS_FIRST    1000
#define SP_IDS_LAST     99999
#define SP_IDS_RANGE    (SP_IDS_LAST - SP_IDS_FIRST + 1)
#define SP_IDS_MIN_FREE (SP_IDS_RANGE / 100) /* with fewer, nothing is handed out */
#define SP_IDS_REST_MS  60000

struct sp_ids;

/*
 * Deterministic: the first id is 1000, each further one is one above the highest reserved, and none
 * rests. Otherwise they are random. NULL: no memory.
 */
struct sp_ids *sp_ids_new(bool is_deterministic);
void sp_ids_free(struct sp_ids *ids);

/* Hands out an id and reserves it. SP_E_LIMIT `no free session id`; SP_E_SYSTEM. */
int sp_ids_allocate(struct sp_ids *ids, uint64_t now_ms, int *ret, struct sp_err *e);

/* Reserves this very id: SP_E_INVALID if there is none such, SP_E_STATE if it is in use or rests.
 */
int sp_ids_reserve(struct sp_ids *ids, int id, uint64_t now_ms, struct sp_err *e);

/* Never fails; what is not reserved stays as it is. */
void sp_ids_release(struct sp_ids *ids, int id, uint64_t now_ms);
void sp_ids_release_all(struct sp_ids *ids, uint64_t now_ms);

bool sp_ids_is_reserved(const struct sp_ids *ids, int id);
uint32_t sp_ids_count(const struct sp_ids *ids); /* of the reserved ones */

/* A random UUID, for a conversation: 36 characters and a NUL. */
#define SP_UUID_SIZE 37
bool sp_uuid_make(char ret[SP_UUID_SIZE]);

#endif
