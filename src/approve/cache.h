/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: what was approved for the session. A question is skipped if all its keys are stored. In
 * memory, bounded, gone with the session. A store, if there is one, has the same keys for the
 * server that takes the session over.
 */
#ifndef SP_APPROVE_CACHE_H
#define SP_APPROVE_CACHE_H

#include <stdbool.h>

#include "base/str.h"

#define SP_CACHE_KEYS 4096 /* the oldest is dropped */

/* Where keys outlive this process. */
struct sp_cache_backing {
    void *(*keep)(void *user, struct sp_str key, bool covers_retry); /* NULL: not kept */
    void (*drop)(void *user, void *kept);                            /* what keep() returned */
    void *user;
};

struct sp_cache;
struct sp_cache *sp_cache_new(void); /* NULL: no memory */
void sp_cache_free(struct sp_cache *c);
void sp_cache_clear(struct sp_cache *c);
void sp_cache_set_store(struct sp_cache *c, const struct sp_cache_backing *store); /* is copied */
/* A key that is in the store. false: no memory, and it is dropped there. */
bool sp_cache_restore(struct sp_cache *c, struct sp_str key, bool covers_retry, void *kept);

/* Keys are compared in full. */
/* covers_retry: also for the run without a sandbox after a denial. */
bool sp_cache_has(const struct sp_cache *c, struct sp_str key, bool covers_retry);
bool sp_cache_store(struct sp_cache *c, struct sp_str key,
                    bool covers_retry); /* false: no memory */

#endif
