/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/cache.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"

#define BUCKETS   1024
#define MAX_BYTES ((size_t)16 << 20) /* of all keys; beyond, the oldest are dropped */
#define NONE      UINT32_MAX

/* ---- keys ---- */

/* A key is a list of texts, each preceded by its length, so that different lists never encode
 * alike. */
static bool add_field(struct sp_buf *out, struct sp_str s)
{
    return sp_buf_printf(out, "%zu:", s.n) && sp_buf_add_str(out, s) && sp_buf_add(out, ",", 1);
}

static bool add_words(struct sp_buf *out, struct sp_words words)
{
    bool is_good = sp_buf_printf(out, "%u[", words.count);

    for (uint32_t i = 0; is_good && i < words.count; i++)
        is_good = add_field(out, words.items[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

/* Extra blanks in a plain script do not make it another command. The kind of command comes first,
 * so that a script cannot pass for one that consists of the words in its key. */
static bool add_canonical(struct sp_buf *out, struct sp_words argv)
{
    auto_segments struct sp_segments s = {0};
    struct sp_str script;

    if (!sp_script_is_wrapper(argv, &script))
        return add_field(out, SP_STR("argv")) && add_words(out, argv);
    if (sp_segments_read(&s, argv, NULL) < 0)
        return false;
    /* The flag is part of the key: -lc is a login shell, which reads profile files first. */
    if (!s.is_opaque && s.count == 1)
        return add_field(out, SP_STR("plain")) && add_field(out, argv.items[1]) &&
               add_words(out, s.items[0]);
    const struct sp_str words[] = {argv.items[1], script};
    return add_field(out, SP_STR("script")) && add_words(out, (struct sp_words){words, 2});
}

bool sp_cache_add_command_key(struct sp_buf *out, const struct sp_cache_command *c)
{
    const struct sp_str program = c->argv.count == 0 ? SP_STR("") : c->argv.items[0];

    return sp_buf_add_str(out, SP_STR("command ")) && add_field(out, c->environment) &&
           add_field(out, program) && add_canonical(out, c->argv) && add_field(out, c->cwd) &&
           sp_buf_printf(out, "%d,%d,", c->is_tty, (int)c->permissions) &&
           add_field(out, c->additional) && add_field(out, c->fingerprint);
}

bool sp_cache_add_patch_key(struct sp_buf *out, struct sp_str environment, struct sp_str path)
{
    return sp_buf_add_str(out, SP_STR("patch ")) && add_field(out, environment) &&
           add_field(out, path);
}

/* ---- the store ---- */

struct entry {
    char *key; /* owned */
    size_t len;
    uint32_t bucket;
    uint32_t next; /* in its bucket */
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
};

struct sp_cache *sp_cache_new(void)
{
    return calloc(1, sizeof(struct sp_cache));
}

void sp_cache_free(struct sp_cache *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; c->table != NULL && i < SP_CACHE_KEYS; i++)
        free(c->table->entries[i].key);
    free(c->table);
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
    free(gone->key);
    c->bytes -= gone->len;
    *gone = (struct entry){0};
    c->oldest = (i + 1) % SP_CACHE_KEYS;
    c->count--;
}

bool sp_cache_store(struct sp_cache *c, struct sp_str key, bool covers_retry)
{
    const uint32_t bucket = bucket_of(key);

    if (c->table == NULL) {
        c->table = calloc(1, sizeof *c->table);
        for (uint32_t i = 0; c->table != NULL && i < BUCKETS; i++)
            c->table->buckets[i] = NONE;
    }
    struct table *t = c->table;
    if (t == NULL)
        return false;
    const uint32_t known = find_entry(t, bucket, key);
    if (known != NONE) {
        t->entries[known].covers_retry = t->entries[known].covers_retry || covers_retry;
        return true;
    }
    char *copy = key.n > MAX_BYTES ? NULL : malloc(key.n == 0 ? 1 : key.n);
    if (copy == NULL)
        return false;
    if (key.n != 0)
        memcpy(copy, key.p, key.n);
    while (c->count == SP_CACHE_KEYS || (c->count != 0 && c->bytes + key.n > MAX_BYTES))
        drop_oldest(c);
    const uint32_t i = (c->oldest + c->count++) % SP_CACHE_KEYS;
    t->entries[i] = (struct entry){copy, key.n, bucket, t->buckets[bucket], covers_retry};
    t->buckets[bucket] = i;
    c->bytes += key.n;
    return true;
}
