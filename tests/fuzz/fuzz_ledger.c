/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a front leaves in the ledger: records, and then anything written over its words, its
 * records and its header. An heir refuses the file, or finds records that are in the heap and do
 * not overlap; it can add records without touching the others, and free all of them.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/ledger.h"
#include "fuzz.h"

#define INDEX_AT 8192U
#define HEAP_AT  (INDEX_AT + SP_LEDGER_RECORDS * 8)
#define MAP_SIZE (HEAP_AT + (1U << 20))
#define MOST     256U

struct input {
    const uint8_t *at, *end;
};

static uint64_t take(struct input *in, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < bytes && in->at < in->end; i++)
        n |= (uint64_t)*in->at++ << 8 * i;
    return n;
}

static void add(struct sp_ledger *l, struct input *in)
{
    const size_t loose = take(in, 1) % 16 * 8;
    const size_t fixed = take(in, 2);
    uint8_t *r = sp_ledger_alloc(l, (enum sp_ledger_kind)(1 + take(in, 1) % SP_LEDGER_MOST_KIND),
                                 loose, fixed);

    CHECK(r != NULL); /* an input is small */
    for (size_t i = 0; i < loose + fixed && in->at < in->end && i < 16; i++)
        r[i] = *in->at++;
    sp_ledger_commit(l, r);
}

static void scribble(uint8_t *to, size_t room, struct input *in)
{
    for (uint64_t n = 1 + take(in, 1) % 16; n > 0 && room > 0 && in->at < in->end; n--, room--)
        *to++ = *in->at++;
}

static void lie(struct input *in, uint8_t *map)
{
    uint64_t *words = (uint64_t *)(void *)(map + INDEX_AT);
    size_t at;

    switch (take(in, 1) % 5) {
    case 0:
        at = take(in, 3) % SP_LEDGER_RECORDS;
        words[at] = take(in, 8);
        break;
    case 1: /* one word, and what is different in it */
        at = take(in, 1);
        words[take(in, 1)] = words[at] ^ (uint64_t)1 << take(in, 1) % 64;
        break;
    case 2:
        at = HEAP_AT + take(in, 3) % (MAP_SIZE - HEAP_AT);
        scribble(map + at, MAP_SIZE - at, in);
        break;
    case 3: /* bytes of a record, whose word is as it was */
        at = HEAP_AT + (words[take(in, 1)] & 0x3fff) * 64 + take(in, 1) % 64;
        scribble(map + at, 16, in);
        break;
    default:
        at = take(in, 2) % INDEX_AT;
        scribble(map + at, INDEX_AT - at, in);
        break;
    }
}

struct found {
    const uint8_t *record;
    size_t size;
    uint8_t first, last;
};

static unsigned collect(struct sp_ledger *l, struct found *all)
{
    const uint8_t *heap = (const uint8_t *)sp_ledger_header(l) + HEAP_AT;
    unsigned n = 0;
    size_t loose;
    size_t fixed;

    for (unsigned kind = 1; kind <= SP_LEDGER_MOST_KIND; kind++)
        for (const uint8_t *r = NULL;
             (r = sp_ledger_next(l, (enum sp_ledger_kind)kind, r, &loose, &fixed)) != NULL;) {
            const size_t size = loose + fixed;

            CHECK(r > heap && (uintptr_t)r % 16 == 0 && loose % 8 == 0 &&
                  (size_t)(r - heap) + size <= 512U << 20);
            for (unsigned i = 0; i < n; i++)
                CHECK(r + size <= all[i].record || all[i].record + all[i].size <= r);
            if (n < MOST)
                all[n++] = (struct found){r, size, size > 0 ? r[0] : 0, size > 0 ? r[size - 1] : 0};
        }
    return n;
}

static void check_heir(struct sp_ledger *l)
{
    static struct found all[MOST];
    const unsigned n = collect(l, all);

    for (unsigned i = 0; i < 40; i++) {
        void *r = sp_ledger_alloc(l, SP_LEDGER_DECISION, 0, 3000);

        CHECK(r != NULL);
        memset(r, 0xff, 3000);
        sp_ledger_commit(l, r);
    }
    for (unsigned i = 0; i < n; i++) {
        const struct found *f = &all[i];

        CHECK(f->size == 0 || (f->record[0] == f->first && f->record[f->size - 1] == f->last));
        sp_ledger_free(l, (void *)(uintptr_t)f->record);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct sp_ledger *l;
    struct sp_ledger *heir;
    struct sp_err e;

    CHECK(sp_ledger_new(&l, &e) == 0);
    uint8_t *map = mmap(NULL, MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, sp_ledger_fd(l), 0);
    CHECK(map != MAP_FAILED);
    for (uint64_t n = take(&in, 1) % 16; n > 0; n--)
        add(l, &in);
    while (in.at < in.end)
        lie(&in, map);
    const int fd = dup(sp_ledger_fd(l));
    sp_ledger_close(l);
    (void)munmap(map, MAP_SIZE);
    if (sp_ledger_open(fd, &heir, &e) != 0) {
        CHECK(e.msg[0] != 0 && close(fd) == 0);
        return 0;
    }
    check_heir(heir);
    const int again = dup(fd);
    sp_ledger_close(heir);
    CHECK(sp_ledger_open(again, &heir, &e) == 0 && sp_ledger_removed(heir) == 0);
    sp_ledger_close(heir);
    return 0;
}
