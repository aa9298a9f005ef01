/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: the small numbers by which a model names its processes.
 *
 * An id is reserved from its allocation until its release, whether or not a process is stored under
 * it. Afterwards it rests for a minute, so that a late write to the old process cannot reach
 * another one. The caller passes the time of any monotonic clock in milliseconds.
 */
#ifndef SP_ENGINE_IDS_H
#define SP_ENGINE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_IDS_FIRST    1000
#define SP_IDS_LAST     99999
#define SP_IDS_RANGE    (SP_IDS_LAST - SP_IDS_FIRST + 1)
#define SP_IDS_MIN_FREE (SP_IDS_RANGE / 100) /* with fewer free ids, none is allocated */
#define SP_IDS_REST_MS  60000

struct sp_ids;

/* Deterministic: ids start at 1000, each is one above the highest reserved one, and none rests.
 * Otherwise they are random. NULL: out of memory. */
struct sp_ids *sp_ids_new(bool is_deterministic);
void sp_ids_free(struct sp_ids *ids);

/* Allocates an id. SP_E_LIMIT: `no free session id`; SP_E_SYSTEM. */
int sp_ids_allocate(struct sp_ids *ids, uint64_t now_ms, int *ret, struct sp_err *e);

/* Reserves this id. SP_E_INVALID: out of range; SP_E_STATE: reserved or resting. */
int sp_ids_reserve(struct sp_ids *ids, int id, uint64_t now_ms, struct sp_err *e);

/* Never fails; an id that is not reserved is ignored. */
void sp_ids_release(struct sp_ids *ids, int id, uint64_t now_ms);
void sp_ids_release_all(struct sp_ids *ids, uint64_t now_ms);

bool sp_ids_is_reserved(const struct sp_ids *ids, int id);
uint32_t sp_ids_count(const struct sp_ids *ids); /* reserved ids */

/* A random UUID: 36 characters and a NUL. false: out of randomness. */
#define SP_UUID_SIZE 37
bool sp_uuid_make(char ret[SP_UUID_SIZE]);

#endif
