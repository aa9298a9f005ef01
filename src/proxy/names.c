/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The working table is private memory. The shared memory is a copy that only the next proxy reads,
 * once: so nothing that an earlier proxy may still write there changes a name behind our back.
 *
 * A proxy may be killed at any instruction. Each change keeps the copy valid in between: `next`
 * moves before the address is used, and an entry has no address while its name is written.
 */
#include "proxy/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/hash.h"
#include "base/hostname.h"
#include "base/list.h"

#define VERSION 0x73706e31U /* "spn1" */
#define BUCKETS 1024U
#define NO_SLOT UINT16_MAX

struct saved_name {
    _Atomic uint32_t address; /* host order; 0: this entry is free */
    uint32_t is_listed;
    uint64_t used; /* larger: used later */
    char text[SP_HOSTNAME_MAX + 1];
    char zero[2];
};

struct saved_names {
    _Atomic uint32_t version;
    _Atomic uint32_t next; /* the address that is given next */
    struct saved_name names[SP_NAMES_MAX];
};

struct name {
    struct sp_list link; /* in `listed` or `unlisted`, longest unused first; none while held */
    uint32_t address;    /* 0: free */
    uint32_t holds;      /* connections */
    uint16_t next_by_text, next_by_address; /* in the same bucket; NO_SLOT: the last */
    uint16_t text_bucket;
    bool is_listed;
    char text[SP_HOSTNAME_MAX + 1];
};

struct sp_names {
    struct saved_names *saved;
    struct sp_list listed, unlisted;
    uint64_t uses;
    uint32_t next, count;
    uint16_t by_text[BUCKETS], by_address[BUCKETS];
    struct name names[SP_NAMES_MAX];
};

size_t sp_names_bytes(void)
{
    return sizeof(struct saved_names);
}

/* ---- finding ---- */

static uint16_t slot_of(const struct sp_names *n, const struct name *e)
{
    return (uint16_t)(e - n->names);
}

/* The hash is keyed: a command that chooses names cannot fill one bucket. */
static uint16_t bucket_of(struct sp_str text)
{
    return (uint16_t)(sp_hash(text).a % BUCKETS);
}

static struct name *find_text(struct sp_names *n, struct sp_str text, uint16_t bucket)
{
    for (uint16_t i = n->by_text[bucket]; i != NO_SLOT; i = n->names[i].next_by_text)
        if (sp_str_eq(sp_str_of(n->names[i].text), text))
            return &n->names[i];
    return NULL;
}

static struct name *find_address(struct sp_names *n, uint32_t address)
{
    for (uint16_t i = n->by_address[address % BUCKETS]; i != NO_SLOT;
         i = n->names[i].next_by_address)
        if (n->names[i].address == address)
            return &n->names[i];
    return NULL;
}

static void index_name(struct sp_names *n, struct name *e)
{
    uint16_t *text = &n->by_text[e->text_bucket];
    uint16_t *address = &n->by_address[e->address % BUCKETS];

    e->next_by_text = *text;
    e->next_by_address = *address;
    *text = *address = slot_of(n, e);
    n->count++;
}

static void unindex_name(struct sp_names *n, const struct name *e)
{
    uint16_t *text = &n->by_text[e->text_bucket];
    uint16_t *address = &n->by_address[e->address % BUCKETS];

    while (*text != slot_of(n, e))
        text = &n->names[*text].next_by_text;
    while (*address != slot_of(n, e))
        address = &n->names[*address].next_by_address;
    *text = e->next_by_text;
    *address = e->next_by_address;
    n->count--;
}

/* ---- using ---- */

static void mark_used(struct sp_names *n, struct name *e)
{
    struct saved_name *saved = &n->saved->names[slot_of(n, e)];

    sp_list_remove(&e->link);
    if (e->holds == 0)
        sp_list_append(e->is_listed ? &n->listed : &n->unlisted, &e->link);
    saved->used = ++n->uses;
    saved->is_listed = e->is_listed;
}

static void save_text(struct sp_names *n, const struct name *e)
{
    struct saved_name *saved = &n->saved->names[slot_of(n, e)];

    atomic_store(&saved->address, 0);
    memcpy(saved->text, e->text, sizeof saved->text);
    atomic_store(&saved->address, e->address);
}

/* A free entry, or that of the name that makes room; NULL: all have a connection. Entries are
 * filled from the first one on and never become free again. */
static struct name *make_room(struct sp_names *n)
{
    if (n->count < SP_NAMES_MAX)
        return &n->names[n->count];
    struct sp_list *oldest = sp_list_take_first(&n->unlisted);
    if (oldest == NULL)
        oldest = sp_list_take_first(&n->listed);
    if (oldest == NULL)
        return NULL;
    struct name *e = SP_CONTAINER(oldest, struct name, link);
    unindex_name(n, e);
    return e;
}

static void set_text(struct name *e, struct sp_str text)
{
    memcpy(e->text, text.p, text.n);
    memset(e->text + text.n, 0, sizeof e->text - text.n);
}

uint32_t sp_names_address(struct sp_names *n, struct sp_str name, bool is_listed)
{
    if (name.n == 0 || name.n > SP_HOSTNAME_MAX || sp_str_has_nul(name))
        return 0;
    const uint16_t bucket = bucket_of(name);
    struct name *e = find_text(n, name, bucket);

    if (e == NULL) {
        if (n->next > SP_NAMES_LAST || (e = make_room(n)) == NULL)
            return 0;
        e->address = n->next++;
        atomic_store(&n->saved->next, n->next);
        e->text_bucket = bucket;
        set_text(e, name);
        index_name(n, e);
        save_text(n, e);
    }
    e->is_listed = is_listed;
    mark_used(n, e);
    return e->address;
}

const char *sp_names_find(struct sp_names *n, uint32_t address)
{
    struct name *e = address == 0 ? NULL : find_address(n, address);

    if (e == NULL)
        return NULL;
    mark_used(n, e);
    return e->text;
}

void sp_names_hold(struct sp_names *n, uint32_t address, bool is_held)
{
    struct name *e = address == 0 ? NULL : find_address(n, address);

    if (e == NULL || (!is_held && e->holds == 0))
        return;
    e->holds += is_held ? 1U : -1U;
    mark_used(n, e);
}

uint32_t sp_names_count(const struct sp_names *n)
{
    return n->count;
}

/* ---- taking over ---- */

/* The longest unused name first. Not by qsort, which asks the kernel for the size of the memory:
 * the filter of this process kills for sysinfo. */
static void sort_by_use(struct saved_name **order, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct saved_name *e = order[i];
        size_t k = i;

        for (; k > 0 && order[k - 1]->used > e->used; k--)
            order[k] = order[k - 1];
        order[k] = e;
    }
}

/* Whether the text is what sp_hostname_read would make of itself. */
static bool is_canonical(const char *text)
{
    struct sp_hostname h;
    const size_t n = strnlen(text, SP_HOSTNAME_MAX + 1);

    return n <= SP_HOSTNAME_MAX && sp_hostname_read((struct sp_str){text, n}, &h) == NULL &&
           !h.is_address && strcmp(h.text, text) == 0;
}

static void take_name(struct sp_names *n, const struct saved_name *copy, struct name *e)
{
    const struct sp_str text = {copy->text, strnlen(copy->text, sizeof copy->text)};
    const uint32_t address = copy->address;

    if (address < SP_NAMES_FIRST || address > SP_NAMES_LAST || !is_canonical(copy->text) ||
        find_address(n, address) != NULL)
        return;
    const uint16_t bucket = bucket_of(text);
    if (find_text(n, text, bucket) != NULL)
        return;
    e->address = address;
    e->is_listed = copy->is_listed == 1;
    e->text_bucket = bucket;
    set_text(e, text);
    index_name(n, e);
    if (n->next <= address)
        n->next = address + 1;
}

/* Takes what is valid in the copy of the shared memory, the longest unused name first, and writes
 * all of it back in that order: numbers of uses that an earlier proxy made up do not survive. */
static bool take_all(struct sp_names *n, struct saved_names *copy)
{
    auto_free struct saved_name **order = calloc(SP_NAMES_MAX, sizeof(struct saved_name *));

    if (order == NULL)
        return false;
    if (copy->version == VERSION) {
        size_t count = 0;

        for (size_t i = 0; i < SP_NAMES_MAX; i++)
            if (copy->names[i].address != 0)
                order[count++] = &copy->names[i];
        sort_by_use(order, count);
        n->next = copy->next < SP_NAMES_FIRST  ? SP_NAMES_FIRST
                  : copy->next > SP_NAMES_LAST ? SP_NAMES_LAST + 1
                                               : copy->next;
        for (size_t i = 0; i < count; i++)
            take_name(n, order[i], &n->names[n->count]);
    }
    atomic_store(&n->saved->next, n->next);
    atomic_store(&n->saved->version, VERSION);
    for (size_t i = 0; i < SP_NAMES_MAX; i++) {
        if (i < n->count) {
            save_text(n, &n->names[i]);
            mark_used(n, &n->names[i]);
        } else if (copy->names[i].address != 0) { /* unused pages stay unallocated */
            atomic_store(&n->saved->names[i].address, 0);
        }
    }
    return true;
}

int sp_names_open(int memory, struct sp_names **ret, struct sp_err *e)
{
    auto_free struct sp_names *n = calloc(1, sizeof *n);
    auto_free struct saved_names *copy = malloc(sizeof *copy);

    if (n == NULL || copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open the table of names");
    /* A proxy that was taken over must not shrink the memory of its successor, who would die of
     * SIGBUS. Fails if the front did not allow seals. */
    (void)fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    /* Not from the mapping: a read fault would allocate pages that hold nothing yet. */
    if (pread(memory, copy, sizeof *copy, 0) != (ssize_t)sizeof *copy)
        return sp_fail(e, SP_E_MALFORMED, 0, "the memory of the table of names is too small");
    n->saved = mmap(NULL, sizeof *copy, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (n->saved == MAP_FAILED)
        return sp_fail(e, SP_E_SYSTEM, errno, "map the table of names");
    sp_list_init(&n->listed);
    sp_list_init(&n->unlisted);
    memset(n->by_text, 0xff, sizeof n->by_text); /* NO_SLOT */
    memset(n->by_address, 0xff, sizeof n->by_address);
    n->next = SP_NAMES_FIRST;
    if (!take_all(n, copy)) {
        (void)munmap(n->saved, sizeof *copy);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open the table of names");
    }
    *ret = TAKE_PTR(n);
    return 0;
}

void sp_names_close(struct sp_names *n)
{
    if (n == NULL)
        return;
    (void)munmap(n->saved, sizeof *n->saved);
    free(n);
}
