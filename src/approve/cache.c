/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/cache.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"

#define BUCKETS   1024
#define MAX_BYTES ((size_t)16 << 20) /* of all keys; beyond, the oldest are dropped */
#define NONE      UINT32_MAX

struct entry {
    char *key; /* owned */
    size_t len;
    uint32_t bucket;
    uint32_t next; /* in its bucket */
    void *kept;    /* in the store; NULL: it is not */
    bool covers_retry;
};

struct table {
    uint32_t buckets[BUCKETS];
    /* A ring buffer that begins at `oldest`. */
    struct entry entries[SP_CACHE_KEYS];
};

struct sp_cache {
    struct table *table; /* allocated when the first key is stored: most sessions store none */
    uint32_t oldest, count;
    size_t bytes;
    struct sp_cache_backing store; /* keep NULL: none */
};

struct sp_cache *sp_cache_new(void)
{
    return calloc(1, sizeof(struct sp_cache));
}

void sp_cache_set_store(struct sp_cache *c, const struct sp_cache_backing *store)
{
    c->store = *store;
}

static void drop_kept(const struct sp_cache *c, struct entry *n)
{
    if (n->kept != NULL)
        c->store.drop(c->store.user, n->kept);
    n->kept = NULL;
}

void sp_cache_clear(struct sp_cache *c)
{
    for (uint32_t i = 0; c->table != NULL && i < SP_CACHE_KEYS; i++) {
        drop_kept(c, &c->table->entries[i]);
        free(c->table->entries[i].key);
    }
    free(c->table);
    *c = (struct sp_cache){.store = c->store};
}

void sp_cache_free(struct sp_cache *c)
{
    if (c == NULL)
        return;
    sp_cache_clear(c);
    free(c);
}

static uint32_t find_entry(const struct table *t, uint32_t bucket, struct sp_str key)
{
    uint32_t i = t->buckets[bucket];

    while (i != NONE && !sp_str_eq((struct sp_str){t->entries[i].key, t->entries[i].len}, key))
        i = t->entries[i].next;
    return i;
}

static uint32_t bucket_of(struct sp_str key)
{
    return (uint32_t)(sp_hash(key).a % BUCKETS);
}

bool sp_cache_has(const struct sp_cache *c, struct sp_str key, bool covers_retry)
{
    const uint32_t i = c->table == NULL ? NONE : find_entry(c->table, bucket_of(key), key);

    return i != NONE && (!covers_retry || c->table->entries[i].covers_retry);
}

static void drop_oldest(struct sp_cache *c)
{
    const uint32_t i = c->oldest;
    struct entry *gone = &c->table->entries[i];
    uint32_t *link = &c->table->buckets[gone->bucket];

    assert(c->count > 0 && gone->key != NULL);
    while (*link != i)
        link = &c->table->entries[*link].next;
    *link = gone->next;
    drop_kept(c, gone);
    free(gone->key);
    c->bytes -= gone->len;
    *gone = (struct entry){0};
    c->oldest = (i + 1) % SP_CACHE_KEYS;
    c->count--;
}

/* The entry of the key, which may be new; NULL: no memory. */
static struct entry *store_key(struct sp_cache *c, struct sp_str key, bool covers_retry)
{
    const uint32_t bucket = bucket_of(key);

    if (c->table == NULL) {
        c->table = calloc(1, sizeof *c->table);
        for (uint32_t i = 0; c->table != NULL && i < BUCKETS; i++)
            c->table->buckets[i] = NONE;
    }
    struct table *t = c->table;
    if (t == NULL)
        return NULL;
    const uint32_t known = find_entry(t, bucket, key);
    if (known != NONE) {
        struct entry *n = &t->entries[known];

        if (covers_retry && !n->covers_retry) {
            n->covers_retry = true;
            drop_kept(c, n);
        }
        return n;
    }
    char *copy = key.n > MAX_BYTES ? NULL : malloc(key.n == 0 ? 1 : key.n);
    if (copy == NULL)
        return NULL;
    if (key.n != 0)
        memcpy(copy, key.p, key.n);
    while (c->count == SP_CACHE_KEYS || (c->count != 0 && c->bytes + key.n > MAX_BYTES))
        drop_oldest(c);
    const uint32_t i = (c->oldest + c->count++) % SP_CACHE_KEYS;
    t->entries[i] = (struct entry){.key = copy,
                                   .len = key.n,
                                   .bucket = bucket,
                                   .next = t->buckets[bucket],
                                   .covers_retry = covers_retry};
    t->buckets[bucket] = i;
    c->bytes += key.n;
    return &t->entries[i];
}

bool sp_cache_store(struct sp_cache *c, struct sp_str key, bool covers_retry)
{
    struct entry *n = store_key(c, key, covers_retry);

    if (n == NULL)
        return false;
    if (n->kept == NULL && c->store.keep != NULL)
        n->kept = c->store.keep(c->store.user, key, n->covers_retry);
    return true;
}

bool sp_cache_restore(struct sp_cache *c, struct sp_str key, bool covers_retry, void *kept)
{
    struct entry *n = store_key(c, key, covers_retry);

    if (n == NULL) {
        c->store.drop(c->store.user, kept);
        return false;
    }
    drop_kept(c, n); /* a copy of the same key */
    n->kept = kept;
    return true;
}
