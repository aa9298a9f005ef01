/* SPDX-License-Identifier: Apache-2.0 */
#include "core/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "core/session.h"
#include "os/fd.h"

#define MAGIC       0x79726f7473696853ULL /* "Shistory" */
#define VERSION     2
#define HEADER_SIZE 4096U
#define ENTRY_SIZE  2304U
#define BLOCK       2048U
#define BLOCKS      (SP_HISTORY_ALL_OUTPUT / BLOCK)
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define MAX_CHUNKS  256U /* of one process: adjacent records of one stream and second are joined */
#define MAX_KEPT    (SP_HISTORY_OUTPUT + MAX_CHUNKS * 24U)
#define MAX_BLOCKS  ((MAX_KEPT + BLOCK - 1) / BLOCK)

/* ---- the file ---- */

/* In front of the bytes of a chunk, without padding between chunks. */
struct chunk {
    uint64_t seq;
    int64_t at_ms;
    uint32_t len, stream;
};
_Static_assert(sizeof(struct chunk) == 24, "as MAX_KEPT counts");

struct header {
    uint64_t magic;
    uint32_t version, entry_size, entries, block_size, blocks, zero;
};

enum text { SESSION, PROCESS, NAME, CLIENT, CWD, DENIAL_REASON, DENIAL_PATH, ARGV, TEXTS };

/* The arguments get what the other texts leave. */
static const uint16_t text_max[TEXTS] = {
    [SESSION] = SP_SESSION_ID,
    [PROCESS] = 256,
    [NAME] = 64,
    [CLIENT] = SP_CLIENT_NAME,
    [CWD] = 512,
    [DENIAL_REASON] = 32,
    [DENIAL_PATH] = 128,
    [ARGV] = SP_HISTORY_TEXT,
};

enum flag { FLAG_TTY = 1, FLAG_CONFINED = 2, FLAG_DENIED = 4, FLAG_EXITED = 8, FLAGS = 15 };

/* Id N is in entry N % entries. Written between two stores of `id`: 0, and the id. */
struct entry {
    _Atomic uint64_t id; /* 0: none */
    _Atomic uint32_t block_count;
    uint32_t kept_size; /* bytes in the blocks, headers of chunks included */
    int64_t started_ms, ended_ms;
    uint64_t next_seq, kept_records, kept_bytes, missed_records, missed_bytes;
    uint32_t reason, flags, pid, tier, network, zero;
    struct sp_exit exit;
    uint64_t dropped_bytes, output_bytes[SP_STREAM_MAX];
    uint16_t text_size[TEXTS];
    uint16_t blocks[MAX_BLOCKS];
    char text[SP_HISTORY_TEXT];
};
_Static_assert(sizeof(struct entry) <= ENTRY_SIZE, "an entry has its place");

/* What the writer knows of an entry; the file is not asked which blocks are free. */
struct slot {
    uint64_t id; /* 0: none */
    uint16_t block_count;
    uint16_t blocks[MAX_BLOCKS];
};

struct sp_history {
    int fd;
    uint8_t *map;
    size_t size;
    uint32_t entries;
    uint64_t last_id;
    uint64_t with_output; /* entries below this id have no output any more */
    struct slot *slots;
    uint16_t free_blocks[BLOCKS]; /* a stack: the block that was freed last is used first */
    uint32_t free_count;
    uint8_t kept[MAX_KEPT]; /* the output of the process that is being entered */
};

static struct entry *entry_at(const struct sp_history *h, uint64_t id)
{
    return (struct entry *)(void *)(h->map + HEADER_SIZE + id % h->entries * ENTRY_SIZE);
}

static struct slot *slot_at(const struct sp_history *h, uint64_t id)
{
    return &h->slots[id % h->entries];
}

static uint8_t *block_at(const struct sp_history *h, uint16_t block)
{
    return h->map + HEADER_SIZE + (size_t)h->entries * ENTRY_SIZE + (size_t)block * BLOCK;
}

static size_t size_for(uint32_t entries)
{
    return HEADER_SIZE + (size_t)entries * ENTRY_SIZE + (size_t)BLOCKS * BLOCK;
}

/* Takes *fd on success. */
static int map_history(int *fd, uint32_t entries, struct sp_history **ret, struct sp_err *e)
{
    struct sp_history *h = calloc(1, sizeof *h);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "map the history");
    h->fd = -1;
    h->entries = entries;
    h->with_output = 1;
    h->size = size_for(entries);
    h->map = MAP_FAILED;
    h->slots = calloc(entries, sizeof *h->slots);
    if (h->slots == NULL)
        errno = ENOMEM;
    else
        h->map = mmap(NULL, h->size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (h->map == MAP_FAILED) {
        const int err = errno;

        sp_history_free(h);
        return sp_fail(e, SP_E_SYSTEM, err, "map the history");
    }
    h->fd = TAKE_FD(*fd);
    *ret = h;
    return 0;
}

static void free_block(struct sp_history *h, uint16_t block)
{
    h->free_blocks[h->free_count++] = block;
}

int sp_history_new(uint32_t entries, struct sp_history **ret, struct sp_err *e)
{
    auto_close int fd =
        sp_fd_lift(memfd_create("sallyport-history", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct sp_history *h;

    if (fd < 0 || ftruncate(fd, (off_t)size_for(entries)) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the history");
    const int r = map_history(&fd, entries, &h, e);
    if (r < 0)
        return r;
    *(struct header *)(void *)h->map = (struct header){
        .magic = MAGIC,
        .version = VERSION,
        .entry_size = ENTRY_SIZE,
        .entries = entries,
        .block_size = BLOCK,
        .blocks = BLOCKS,
    };
    for (uint32_t i = BLOCKS; i > 0; i--)
        free_block(h, (uint16_t)(i - 1));
    *ret = h;
    return 0;
}

void sp_history_free(struct sp_history *h)
{
    if (h == NULL)
        return;
    if (h->map != MAP_FAILED)
        (void)munmap(h->map, h->size);
    if (h->fd >= 0)
        (void)close(h->fd);
    free(h->slots);
    free(h);
}

int sp_history_fd(const struct sp_history *h)
{
    return h->fd;
}

/* ---- what an earlier front left ---- */

/* Without the seals a holder of the file could truncate it, and reading would raise SIGBUS. */
static int check_file(int fd, uint32_t *ret_entries, struct sp_err *e)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct header h;
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_MALFORMED, 0, "the history is not sealed");
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != MAGIC ||
        h.version != VERSION || h.entry_size != ENTRY_SIZE || h.block_size != BLOCK ||
        h.blocks != BLOCKS || h.entries == 0 || h.entries > SP_HISTORY_MAX_ENTRIES ||
        (size_t)st.st_size != size_for(h.entries))
        return sp_fail(e, SP_E_MALFORMED, 0, "this is no history of version %d", VERSION);
    *ret_entries = h.entries;
    return 0;
}

/* Gives the entry the blocks that it names; if another one has them, it has no output. */
static void take_blocks(struct sp_history *h, uint64_t id, bool is_taken[BLOCKS])
{
    struct entry *n = entry_at(h, id);
    struct slot *s = slot_at(h, id);
    const uint32_t count = atomic_load_explicit(&n->block_count, memory_order_acquire);
    bool ok = count <= MAX_BLOCKS && n->kept_size <= count * BLOCK;

    for (uint32_t i = 0; ok && i < count; i++) {
        const uint16_t block = n->blocks[i];

        ok = block < BLOCKS && !is_taken[block];
        if (ok)
            s->blocks[s->block_count++] = block;
        if (ok)
            is_taken[block] = true;
    }
    if (ok)
        return;
    while (s->block_count > 0)
        is_taken[s->blocks[--s->block_count]] = false;
    atomic_store_explicit(&n->block_count, 0, memory_order_release);
}

static uint64_t id_of(const struct sp_history *h, uint32_t i)
{
    const uint64_t id = atomic_load_explicit(&entry_at(h, i)->id, memory_order_acquire);

    return id % h->entries == i && id < UINT64_MAX / 2 ? id : 0;
}

/* Parts of the file that were never written are holes, and stay so: entries fill up in the order
 * of their ids. */
static void read_entries(struct sp_history *h)
{
    bool *is_taken = calloc(BLOCKS, sizeof *is_taken);
    uint32_t count = h->entries;
    const off_t first = HEADER_SIZE;
    const off_t hole = lseek(h->fd, first, SEEK_HOLE);

    if (hole >= first && (size_t)(hole - first) / ENTRY_SIZE + 1 < count)
        count = (uint32_t)((size_t)(hole - first) / ENTRY_SIZE) + 1;
    for (uint32_t i = 0; i < count; i++)
        if (id_of(h, i) > h->last_id)
            h->last_id = id_of(h, i);
    for (uint32_t i = 0; is_taken != NULL && i < count; i++) {
        const uint64_t id = id_of(h, i);

        if (id == 0 || id + h->entries <= h->last_id)
            continue;
        slot_at(h, id)->id = id;
        take_blocks(h, id, is_taken);
    }
    for (uint32_t i = BLOCKS; i > 0; i--)
        if (is_taken == NULL || !is_taken[i - 1])
            free_block(h, (uint16_t)(i - 1));
    free(is_taken);
}

int sp_history_open(int fd, struct sp_history **ret, struct sp_err *e)
{
    struct sp_history *h;
    uint32_t entries = 0;
    int r = check_file(fd, &entries, e);

    if (r == 0)
        r = map_history(&fd, entries, &h, e);
    if (r < 0)
        return r;
    read_entries(h);
    *ret = h;
    return 0;
}

/* ---- eviction ---- */

static void free_output(struct sp_history *h, struct slot *s)
{
    atomic_store_explicit(&entry_at(h, s->id)->block_count, 0, memory_order_release);
    while (s->block_count > 0)
        h->free_blocks[h->free_count++] = s->blocks[--s->block_count];
}

static void free_entry(struct sp_history *h, struct slot *s)
{
    if (s->id == 0)
        return;
    atomic_store_explicit(&entry_at(h, s->id)->id, 0, memory_order_release);
    free_output(h, s);
    s->id = 0;
}

/* There are blocks for many processes, so this ends. */
static void make_room(struct sp_history *h, uint32_t blocks)
{
    const uint64_t oldest = h->last_id > h->entries ? h->last_id - h->entries + 1 : 1;

    if (h->with_output < oldest)
        h->with_output = oldest;
    while (h->free_count < blocks) {
        struct slot *s = slot_at(h, h->with_output);

        if (s->id == h->with_output)
            free_output(h, s);
        h->with_output++;
    }
}

bool sp_history_remove(struct sp_history *h, uint64_t id)
{
    struct slot *s = slot_at(h, id);

    if (id == 0 || s->id != id)
        return false;
    const uint16_t blocks = s->block_count;
    for (uint16_t i = 0; i < blocks; i++)
        memset(block_at(h, s->blocks[i]), 0, BLOCK);
    free_entry(h, s);
    memset(entry_at(h, id), 0, ENTRY_SIZE);
    return true;
}

/* ---- entering ---- */

/* Walks over the end of a log, joining records. */
struct tail {
    const struct sp_proc *proc;
    struct sp_ring_cursor at;
    uint64_t from; /* output bytes before this one are left out */
    uint32_t chunks;
    struct chunk chunk; /* the current one: seq and len are of its last part */
    const uint8_t *data;
    struct sp_record record;
    bool is_new;  /* the part begins a chunk */
    bool is_part; /* the beginning of the record is left out */
};

/* The next part of a chunk; false: the end. */
static bool next_part(struct tail *t)
{
    struct sp_record *r = &t->record;

    while (t->at.seq < t->proc->tail.seq && sp_log_next(&t->proc->view, &t->at, r) > 0) {
        if (r->type != SP_RECORD_OUTPUT || r->len == 0 || r->seq > t->proc->tail.seq ||
            r->bytes_before + r->len <= t->from)
            continue;
        const uint64_t skip = t->from > r->bytes_before ? t->from - r->bytes_before : 0;
        const int64_t at_ms = sp_output_times_of(&t->proc->times, r->seq);
        t->is_new = t->chunks == 0 || t->chunk.stream != r->stream || t->chunk.at_ms != at_ms;
        t->is_part = skip > 0;
        t->chunks += t->is_new;
        t->chunk = (struct chunk){
            .seq = r->seq,
            .at_ms = at_ms,
            .len = r->len - (uint32_t)skip,
            .stream = r->stream,
        };
        t->data = r->data + skip;
        return true;
    }
    return false;
}

/* Copies the end of the output to h->kept. The cell may be hostile: sizes are checked, and what it
 * overwrites meanwhile is dropped. */
static void collect_output(struct sp_history *h, const struct sp_proc *p, struct entry *n)
{
    const uint64_t bytes = p->tail.bytes;
    struct tail t = {.proc = p, .from = bytes > SP_HISTORY_OUTPUT ? bytes - SP_HISTORY_OUTPUT : 0};
    struct tail counted = t;
    struct chunk head = {0};
    uint32_t head_at = 0;
    uint32_t size = 0;
    bool is_part = false;

    while (next_part(&counted))
        ;
    while (next_part(&t)) {
        const uint32_t more = t.chunk.len + (t.is_new ? (uint32_t)sizeof head : 0);

        if (t.chunks + MAX_CHUNKS <= counted.chunks)
            continue; /* too many chunks: the first ones are left out */
        if (size == 0) {
            t.is_new = true;
            is_part = t.is_part;
        }
        if (size + more > MAX_KEPT)
            break;
        if (t.is_new) {
            head = (struct chunk){.at_ms = t.chunk.at_ms, .stream = t.chunk.stream};
            head_at = size;
            size += (uint32_t)sizeof head;
        }
        memcpy(h->kept + size, t.data, t.chunk.len);
        size += t.chunk.len;
        head.seq = t.chunk.seq;
        head.len += t.chunk.len;
        memcpy(h->kept + head_at, &head, sizeof head);
        n->kept_records++;
        n->kept_bytes += t.chunk.len;
        if (!sp_log_is_intact(&p->view, &t.record)) {
            size = 0;
            n->kept_records = n->kept_bytes = 0;
        }
    }
    const uint64_t ends = (p->state.exit_seq != 0) + (p->state.closed_seq != 0);
    const uint64_t records = p->tail.seq > ends ? p->tail.seq - ends : 0;
    n->kept_size = size;
    n->missed_bytes = bytes > n->kept_bytes ? bytes - n->kept_bytes : 0;
    n->missed_records = (records > n->kept_records ? records - n->kept_records : 0) + is_part;
}

static void store_output(struct sp_history *h, struct slot *s, struct entry *n)
{
    const uint32_t blocks = (n->kept_size + BLOCK - 1) / BLOCK;

    make_room(h, blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        const uint32_t left = n->kept_size - i * BLOCK;

        s->blocks[i] = n->blocks[i] = h->free_blocks[--h->free_count];
        memcpy(block_at(h, s->blocks[i]), h->kept + (size_t)i * BLOCK, left < BLOCK ? left : BLOCK);
    }
    s->block_count = (uint16_t)blocks;
    n->block_count = blocks;
}

static enum sp_history_reason reason_of(const struct sp_proc *p)
{
    if (p->state.exit_seq == 0)
        return SP_HISTORY_SESSION_ENDED;
    if (p->is_lost && p->state.exit.code == -1)
        return SP_HISTORY_LOST;
    if (p->was_terminated && !sp_proc_hits(p)->has_ended)
        return SP_HISTORY_TERMINATED;
    return p->state.exit.signal != 0 ? SP_HISTORY_SIGNALED : SP_HISTORY_EXITED;
}

/* The strings one after the other, each cut at its limit and at the end of the room. */
static void store_texts(struct entry *n, const struct sp_str texts[TEXTS])
{
    size_t at = 0;

    for (int t = 0; t < TEXTS; t++) {
        const size_t left = sizeof n->text - at;
        size_t len = texts[t].n < text_max[t] ? texts[t].n : text_max[t];

        len = len < left ? len : left;
        if (len > 0)
            memcpy(n->text + at, texts[t].p, len);
        if (t == ARGV && len > 0)
            n->text[at + len - 1] = 0; /* the last word may be truncated */
        n->text_size[t] = (uint16_t)len;
        at += len;
    }
}

/* cwd, file and argv are in p->strings, each with its NUL. */
static void store_facts(struct entry *n, const struct sp_proc *p)
{
    const char *cwd = p->strings.data;
    const char *file = cwd + strlen(cwd) + 1;
    const char *argv = file + strlen(file) + 1;
    const struct sp_denial_facts *denial = p->denial;
    const bool has_reason = denial != NULL && denial->reason != NULL;
    const struct sp_str texts[TEXTS] = {
        [SESSION] = sp_str_of(p->session->id),
        [PROCESS] = p->id,
        [NAME] = sp_str_of(p->name == NULL ? "" : p->name),
        [CLIENT] = sp_str_of(p->session->client_name),
        [CWD] = sp_str_of(cwd),
        [DENIAL_REASON] = has_reason ? sp_str_of(denial->reason) : (struct sp_str){0},
        [DENIAL_PATH] = has_reason ? sp_str_of(denial->path) : (struct sp_str){0},
        [ARGV] = {argv, p->strings.len - (size_t)(argv - cwd)},
    };

    n->started_ms = p->started_ms;
    n->ended_ms = p->ended_ms != 0 ? p->ended_ms : (int64_t)sp_clock_unix_ms();
    n->next_seq = p->tail.seq + 1;
    n->reason = reason_of(p);
    n->flags = (p->is_tty ? FLAG_TTY : 0U) | (p->is_confined ? FLAG_CONFINED : 0U) |
               (p->was_denied ? FLAG_DENIED : 0U) | (p->state.exit_seq != 0 ? FLAG_EXITED : 0U);
    n->pid = (uint32_t)p->pid;
    n->tier = p->tier;
    n->network = p->network;
    n->exit = p->state.exit;
    n->dropped_bytes = p->state.dropped_bytes;
    memcpy(n->output_bytes, p->state.output_bytes, sizeof n->output_bytes);
    store_texts(n, texts);
}

void sp_history_remember(struct sp_history *h, const struct sp_proc *p)
{
    const uint64_t id = ++h->last_id;
    struct slot *s = slot_at(h, id);
    struct entry *n = entry_at(h, id);

    free_entry(h, s);
    memset(n, 0, offsetof(struct entry, text));
    collect_output(h, p, n);
    s->id = id;
    store_output(h, s, n);
    store_facts(n, p);
    atomic_store_explicit(&n->id, id, memory_order_release);
}

/* ---- reading ---- */

static bool take_texts(const struct entry *n, struct sp_history_entry *ret)
{
    struct sp_str *const texts[TEXTS] = {
        [SESSION] = &ret->session,
        [PROCESS] = &ret->process,
        [NAME] = &ret->name,
        [CLIENT] = &ret->client,
        [CWD] = &ret->cwd,
        [DENIAL_REASON] = &ret->denial_reason,
        [DENIAL_PATH] = &ret->denial_path,
        [ARGV] = &ret->argv,
    };
    size_t at = 0;

    memcpy(ret->text, n->text, sizeof ret->text);
    for (int t = 0; t < TEXTS; t++) {
        const size_t len = n->text_size[t];

        if (len > text_max[t] || len > sizeof ret->text - at)
            return false;
        *texts[t] = (struct sp_str){ret->text + at, len};
        /* Clients choose process ids, also with a NUL. */
        if (t != ARGV && t != PROCESS && sp_str_has_nul(*texts[t]))
            return false;
        at += len;
    }
    return ret->argv.n == 0 || ret->argv.p[ret->argv.n - 1] == 0;
}

/* The entry is copied first: whoever else has the file mapped may change it at any time. */
static bool take_entry(const struct sp_history *h, uint64_t id, struct sp_history_entry *ret)
{
    struct entry *const shared = entry_at(h, id);
    struct entry n;

    if (atomic_load_explicit(&shared->id, memory_order_acquire) != id)
        return false;
    memcpy(&n, shared, sizeof n);
    if (n.id != id || n.reason >= SP_HISTORY_REASON_MAX || (n.flags & ~(uint32_t)FLAGS) != 0 ||
        n.network > SP_PROC_NETWORK_MANAGED || n.pid > INT32_MAX || n.next_seq == 0 ||
        n.exit.refusal_count > UINT32_MAX / 2 || n.kept_bytes > SP_HISTORY_OUTPUT ||
        n.missed_bytes > UINT64_MAX / 2 || n.missed_records > UINT64_MAX / 2 ||
        n.kept_records > n.kept_bytes || n.block_count > MAX_BLOCKS ||
        n.kept_size > MAX_BLOCKS * BLOCK || !take_texts(&n, ret))
        return false;
    ret->id = id;
    ret->started_ms = n.started_ms;
    ret->ended_ms = n.ended_ms;
    ret->next_seq = n.next_seq;
    ret->reason = (enum sp_history_reason)n.reason;
    ret->is_tty = (n.flags & FLAG_TTY) != 0;
    ret->is_confined = (n.flags & FLAG_CONFINED) != 0;
    ret->was_denied = (n.flags & FLAG_DENIED) != 0;
    ret->has_exited = (n.flags & FLAG_EXITED) != 0;
    ret->pid = n.pid;
    ret->tier = n.tier;
    ret->network = (enum sp_proc_network)n.network;
    ret->exit = n.exit;
    ret->dropped_bytes = n.dropped_bytes;
    memcpy(ret->output_bytes, n.output_bytes, sizeof ret->output_bytes);
    const bool has_output = n.block_count > 0;
    ret->kept_records = has_output ? n.kept_records : 0;
    ret->kept_bytes = has_output ? n.kept_bytes : 0;
    ret->missed_records = n.missed_records + (has_output ? 0 : n.kept_records);
    ret->missed_bytes = n.missed_bytes + (has_output ? 0 : n.kept_bytes);
    return true;
}

bool sp_history_before(const struct sp_history *h, uint64_t before, struct sp_history_entry *ret)
{
    const uint64_t oldest = h->last_id > h->entries ? h->last_id - h->entries + 1 : 1;
    uint64_t id = before > h->last_id ? h->last_id + 1 : before;

    for (; id > oldest; id--)
        if (slot_at(h, id - 1)->id == id - 1 && take_entry(h, id - 1, ret))
            return true;
    return false;
}

/* The blocks that the writer gave to the entry are the ones that are read. */
bool sp_history_output(const struct sp_history *h, const struct sp_history_entry *p,
                       struct sp_buf *out)
{
    const struct slot *s = slot_at(h, p->id);
    uint32_t left = entry_at(h, p->id)->kept_size;
    bool ok = true;

    if (s->id != p->id)
        return true;
    for (uint16_t i = 0; ok && i < s->block_count && left > 0; i++) {
        const uint32_t n = left < BLOCK ? left : BLOCK;

        ok = sp_buf_add(out, block_at(h, s->blocks[i]), n);
        left -= n;
    }
    return ok;
}

bool sp_history_chunk_next(struct sp_str *rest, struct sp_history_chunk *ret)
{
    struct chunk c;

    if (rest->n < sizeof c)
        return false;
    memcpy(&c, rest->p, sizeof c);
    if (c.len > rest->n - sizeof c || c.stream >= SP_STREAM_MAX)
        return false;
    *ret = (struct sp_history_chunk){
        .seq = c.seq,
        .at_ms = c.at_ms,
        .stream = (enum sp_stream)c.stream,
        .bytes = {rest->p + sizeof c, c.len},
    };
    *rest = (struct sp_str){rest->p + sizeof c + c.len, rest->n - sizeof c - c.len};
    return true;
}
