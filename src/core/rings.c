/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "os/cgroup.h"

#define MOST_BUDGET ((uint64_t)1 << 30)

#define PRESSURE_MS    20  /* between two rounds that ask memory back, while the sum grows */
#define FIRST_PAUSE_MS 100 /* the same while the sum stays; doubled up to LAST_PAUSE_MS */
#define LAST_PAUSE_MS  6400
#define CALM_MS        1000 /* below CALM of the budget for so long: the share is doubled */
#define CALM(budget)   ((budget) / 4 * 3)
#define LEAST_STALE    65536U /* memory outside of a log that is worth a system call */

struct slot {
    struct sp_list warm; /* linked: free, with memory */
    struct sp_ring_slots *slots;
    uint32_t number;
    uint32_t touched;
    bool is_used;
    uint64_t punched_ms; /* while used; 0: never */
};

/* A segment and its slots. */
struct sp_ring_group {
    struct sp_segment *segment;
    bool is_refused; /* by the cell: no slot is taken */
    uint64_t idle_since_ms;
    uint32_t size, free_count;
    uint8_t free[SP_SEGMENT_RINGS]; /* a stack */
    struct slot slots[SP_SEGMENT_RINGS];
};

static uint32_t count_groups(const struct sp_ring_slots *s)
{
    return (s->count + SP_SEGMENT_RINGS - 1) / SP_SEGMENT_RINGS;
}

static struct slot *slot_of(const struct sp_ring_slots *s, uint32_t slot)
{
    const bool is_one = s->groups != NULL && slot < s->count;
    struct sp_ring_group *g = is_one ? s->groups[slot / SP_SEGMENT_RINGS] : NULL;

    return g == NULL ? NULL : &g->slots[slot % SP_SEGMENT_RINGS];
}

static struct slot *first_warm(const struct sp_rings *r)
{
    struct sp_list *i = sp_list_first(&r->warm);

    return i == NULL ? NULL : SP_CONTAINER(i, struct slot, warm);
}

/* ---- counting ---- */

static const struct sp_ring_header *header_of(const struct slot *p)
{
    const struct sp_ring_group *g = p->slots->groups[p->number / SP_SEGMENT_RINGS];
    const size_t place = p->number % SP_SEGMENT_RINGS;

    return (const void *)(g->segment->map + place * SP_RING_HEADER);
}

static void set_touched(struct slot *p, uint32_t touched)
{
    struct sp_rings *r = p->slots->rings;

    r->touched += (uint64_t)touched - p->touched;
    if (sp_list_is_linked(&p->warm))
        r->warm_bytes += (uint64_t)touched - p->touched;
    p->touched = touched;
}

/* The cell is not believed more than an area of memory. */
static void count_touched(struct slot *p)
{
    const uint32_t touched = atomic_load_explicit(&header_of(p)->touched, memory_order_relaxed);

    set_touched(p, touched < SP_RING_AREA ? touched : SP_RING_AREA);
}

static void set_cold(struct slot *p)
{
    if (!sp_list_is_linked(&p->warm))
        return;
    sp_list_remove(&p->warm);
    p->slots->rings->warm_bytes -= p->touched;
}

static void punch(struct slot *p)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION,
                                            .op = SP_WIRE_PUNCH,
                                            .slot = p->number,
                                            .number = p->is_used ? header_of(p)->number : 0}};

    (void)p->slots->send(p->slots, &m, -1); /* a lost cell's memory goes with it */
}

/* ---- pressure ---- */

static void on_pressure(struct sp_timer *t);

static void press(struct sp_rings *r, uint64_t due_ms)
{
    /* Without memory for the timer the next news tries again. */
    (void)sp_loop_timer(r->loop, &r->on_pressure, due_ms, on_pressure);
}

typedef void each_fn(struct slot *p, void *user);

static void each_used(const struct sp_rings *r, each_fn *fn, void *user)
{
    sp_list_each(i, &r->slots) {
        const struct sp_ring_slots *s = SP_CONTAINER(i, const struct sp_ring_slots, link);

        for (uint32_t k = 0; k < count_groups(s); k++)
            for (uint32_t n = 0; s->groups[k] != NULL && n < s->groups[k]->size; n++)
                if (s->groups[k]->slots[n].is_used)
                    fn(&s->groups[k]->slots[n], user);
    }
}

struct stale_search {
    uint64_t excess; /* still to be found */
    uint64_t least;
    uint64_t now;
};

/* A ring that was punched lately fills its area again: it needs a share, not another punch. */
static void punch_if_stale(struct slot *p, void *user)
{
    struct stale_search *search = user;
    const struct sp_ring_header *h = header_of(p);
    const uint64_t end = atomic_load_explicit(&h->end, memory_order_relaxed);
    const uint64_t log = end - atomic_load_explicit(&h->oldest, memory_order_relaxed);

    if (search->excess == 0 || p->touched < log || p->touched - log < search->least ||
        (p->punched_ms != 0 && search->now - p->punched_ms < LAST_PAUSE_MS))
        return;
    const uint64_t stale = p->touched - log;
    p->punched_ms = search->now;
    punch(p);
    search->excess -= stale < search->excess ? stale : search->excess;
}

static void count_pages(struct slot *p, void *user)
{
    uint32_t *rings_of = user;

    rings_of[p->touched / SP_RING_PAGE]++;
}

/* The largest share S, in bytes, with which the sum of min(touched, S) is within the budget. */
static uint32_t fair_share(const struct sp_rings *r)
{
    uint32_t rings_of[SP_RING_PAGES + 1] = {0}; /* by touched pages */
    uint64_t left = 0;                          /* rings with more pages than the share */
    uint64_t sum = 0;
    uint32_t share = 0;

    each_used(r, count_pages, rings_of);
    for (uint32_t i = 1; i <= SP_RING_PAGES; i++)
        left += rings_of[i];
    while (share < SP_RING_PAGES && sum + left * SP_RING_PAGE <= r->budget) {
        sum += left * SP_RING_PAGE;
        left -= rings_of[++share];
    }
    return share * SP_RING_PAGE;
}

struct sharing {
    uint32_t share;
    bool is_for_all; /* else only rings above the share are told at once */
};

static void tell_share(struct slot *p, void *user)
{
    const struct sharing *how = user;

    atomic_store(sp_bell_share(p->slots->bell, p->number), how->share);
    if (how->is_for_all || p->touched > how->share)
        sp_bell_mark(p->slots->bell, p->number);
}

static void set_share(struct sp_rings *r, uint32_t share)
{
    struct sharing how = {.share = share, .is_for_all = share == 0 || share > r->share};

    r->share = share;
    each_used(r, tell_share, &how);
    sp_list_each(i, &r->slots)
        sp_bell_wake(SP_CONTAINER(i, const struct sp_ring_slots, link)->bell);
}

/* Gives back the memory of free slots, about so many bytes; returns how many. */
static uint64_t punch_warm(struct sp_rings *r, uint64_t bytes)
{
    uint64_t punched = 0;
    struct slot *p;

    while (punched < bytes && (p = first_warm(r)) != NULL) {
        punched += p->touched;
        set_cold(p);
        punch(p);
    }
    return punched < bytes ? punched : bytes;
}

/* One round. The cells answer with smaller counts (sp_ring_slots_note). */
static void ask_memory_back(struct sp_rings *r)
{
    uint64_t excess = r->touched - r->budget;

    excess -= punch_warm(r, excess);
    if (excess > 0 && r->evict != NULL) {
        const uint64_t evicted = r->evict(r->user, excess);

        (void)punch_warm(r, evicted); /* of the slots that are free now */
        excess -= evicted < excess ? evicted : excess;
    }
    struct stale_search search = {.excess = excess, .now = sp_loop_now(r->loop)};
    for (search.least = SP_RING_AREA / 2; search.excess > 0 && search.least >= LEAST_STALE;
         search.least /= 2)
        each_used(r, punch_if_stale, &search);
    if (search.excess == 0)
        return;
    const uint32_t fair = fair_share(r);
    uint32_t share = r->share == 0 || fair < r->share ? fair : r->share;
    /* Rings keep whole records, and what is not sent yet: with this share they were above it. */
    if (share == r->share && r->pause_ms > FIRST_PAUSE_MS)
        share = (uint32_t)(share * r->budget / r->touched);
    set_share(r, share > SP_RING_LEAST_SHARE ? share : SP_RING_LEAST_SHARE);
}

static void on_pressure(struct sp_timer *t)
{
    struct sp_rings *r = SP_CONTAINER(t, struct sp_rings, on_pressure);
    const uint64_t now = sp_loop_now(r->loop);

    if (r->touched > r->budget) {
        r->calm_since_ms = 0;
        r->pause_ms = r->pause_ms == 0              ? FIRST_PAUSE_MS
                      : r->pause_ms < LAST_PAUSE_MS ? r->pause_ms * 2
                                                    : LAST_PAUSE_MS;
        r->pressed_ms = now;
        r->pressed_bytes = r->touched;
        ask_memory_back(r);
        press(r, now + r->pause_ms);
        return;
    }
    r->pause_ms = 0;
    if (r->share == 0)
        return;
    if (r->touched > CALM(r->budget))
        r->calm_since_ms = 0;
    else if (r->calm_since_ms == 0)
        r->calm_since_ms = now;
    else if (now - r->calm_since_ms >= CALM_MS) {
        r->calm_since_ms = now;
        set_share(r, r->share < SP_RING_AREA / 2 ? r->share * 2 : 0);
    }
    if (r->share != 0)
        press(r, now + CALM_MS / 4);
}

void sp_ring_slots_note(struct sp_ring_slots *s, uint32_t slot)
{
    struct slot *p = slot_of(s, slot);
    struct sp_rings *r = s->rings;

    if (p == NULL)
        return;
    count_touched(p);
    if (r->touched <= r->budget)
        return;
    /* At once at first; then again when the sum grows, or when the pause is over. */
    if (r->pause_ms == 0 || r->on_pressure.slot == 0)
        press(r, sp_loop_now(r->loop));
    else if (r->touched > r->pressed_bytes && r->on_pressure.due_ms > r->pressed_ms + PRESSURE_MS) {
        r->pause_ms = FIRST_PAUSE_MS / 2;
        press(r, r->pressed_ms + PRESSURE_MS);
    }
}

/* ---- segments ---- */

static void drop_group(struct sp_ring_slots *s, uint32_t index)
{
    struct sp_ring_group *g = s->groups[index];

    if (g == NULL)
        return;
    for (uint32_t i = 0; i < g->size; i++) {
        set_cold(&g->slots[i]);
        set_touched(&g->slots[i], 0);
    }
    sp_segment_drop(g->segment);
    free(g);
    s->groups[index] = NULL;
}

static int send_segment(struct sp_ring_slots *s, uint32_t index, int fd)
{
    const struct sp_wire_call m = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_SEGMENT}, .a = (int)index, .b = fd >= 0};

    return s->send(s, &m, fd);
}

/* Where a whole segment finds no room, half of it may, and so on. */
static int make_group(struct sp_ring_slots *s, uint32_t index, struct sp_err *e)
{
    struct sp_ring_group *g = calloc(1, sizeof *g);
    const uint32_t first = index * SP_SEGMENT_RINGS;
    struct sp_err ignored;

    if (e == NULL)
        e = &ignored;
    if (g == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make output rings");
    g->size = s->count - first < SP_SEGMENT_RINGS ? s->count - first : SP_SEGMENT_RINGS;
    if (s->most != 0 && s->most < g->size)
        g->size = s->most;
    s->most = 0;
    int r = sp_segment_new(g->size, &g->segment, e);
    while (r < 0 && (e->sys == ENOMEM || e->sys == EFBIG) && g->size > 1)
        r = sp_segment_new(g->size /= 2, &g->segment, e);
    if (r < 0) {
        free(g);
        return r;
    }
    for (uint32_t i = 0; i < g->size; i++) {
        g->slots[i] = (struct slot){.slots = s, .number = first + i};
        g->free[g->free_count++] = (uint8_t)(g->size - 1 - i);
    }
    s->groups[index] = g;
    r = send_segment(s, index, g->segment->fd);
    (void)close(TAKE_FD(g->segment->fd)); /* the cell has it */
    if (r < 0) {
        drop_group(s, index);
        return r == -EPIPE ? sp_fail(e, SP_E_FAILED, 0, "the cell was lost; try again")
                           : sp_fail(e, SP_E_SYSTEM, -r, "hand over output rings");
    }
    return 0;
}

/* None of its slots is used, and the cell hears of it after their FORGETs. */
static void unmake_group(struct sp_ring_slots *s, uint32_t index)
{
    drop_group(s, index);
    (void)send_segment(s, index, -1);
}

static void on_idle(struct sp_timer *t)
{
    struct sp_ring_slots *s = SP_CONTAINER(t, struct sp_ring_slots, on_idle);
    const uint64_t now = sp_loop_now(s->rings->loop);
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 1; i < count_groups(s); i++) { /* the first one stays */
        const struct sp_ring_group *g = s->groups[i];

        if (g == NULL || g->free_count < g->size)
            continue;
        if (now - g->idle_since_ms >= SP_RINGS_IDLE_MS) {
            unmake_group(s, i);
        } else if (g->idle_since_ms < next) {
            next = g->idle_since_ms;
        }
    }
    if (next != UINT64_MAX)
        (void)sp_loop_timer(s->rings->loop, t, next + SP_RINGS_IDLE_MS, on_idle);
}

bool sp_ring_slots_refused(struct sp_ring_slots *s, uint32_t index)
{
    const bool is_one = s->groups != NULL && index < count_groups(s);
    struct sp_ring_group *g = is_one ? s->groups[index] : NULL;

    if (g == NULL || g->is_refused)
        return false;
    g->is_refused = true;
    s->most = (g->size + 1) / 2;
    if (g->free_count == g->size)
        unmake_group(s, index);
    return true;
}

static void warm(struct slot *p)
{
    struct sp_rings *r = p->slots->rings;

    if (p->touched == 0)
        return;
    sp_list_append(&r->warm, &p->warm);
    r->warm_bytes += p->touched;
}

static bool reserve_groups(struct sp_ring_slots *s)
{
    if (s->groups != NULL)
        return true;
    s->groups = calloc(count_groups(s), sizeof(struct sp_ring_group *));
    if (s->groups != NULL)
        sp_list_append(&s->rings->slots, &s->link);
    return s->groups != NULL;
}

/* A slot with a process has the share that its last front gave it, until it is told another. */
int sp_ring_slots_adopt(struct sp_ring_slots *s, uint32_t index, int *fd, uint64_t used,
                        struct sp_err *e)
{
    struct sp_ring_group *g = calloc(1, sizeof *g);
    const uint32_t first = index * SP_SEGMENT_RINGS;

    if (g == NULL || !reserve_groups(s)) {
        free(g);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take output rings over");
    }
    int r = index >= count_groups(s) || s->groups[index] != NULL
                ? sp_fail(e, SP_E_MALFORMED, 0, "the cell has no such output rings")
                : sp_segment_take(fd, false, &g->segment, e);
    if (r == 0) {
        g->size = s->count - first < g->segment->rings ? s->count - first : g->segment->rings;
        if (g->size < SP_SEGMENT_RINGS && used >> g->size != 0)
            r = sp_fail(e, SP_E_MALFORMED, 0, "a process has no output ring");
    }
    if (r < 0) {
        sp_segment_drop(g->segment);
        free(g);
        return r;
    }
    (void)close(TAKE_FD(g->segment->fd));
    g->idle_since_ms = sp_loop_now(s->rings->loop);
    s->groups[index] = g;
    for (uint32_t i = g->size; i-- > 0;) { /* the lowest is taken first */
        struct slot *p = &g->slots[i];

        *p = (struct slot){.slots = s, .number = first + i, .is_used = (used >> i & 1) != 0};
        if (p->is_used) {
            s->used++;
            atomic_store(sp_bell_share(s->bell, p->number), s->rings->share);
            sp_bell_mark(s->bell, p->number);
            sp_ring_slots_note(s, p->number);
        } else {
            g->free[g->free_count++] = (uint8_t)i;
            count_touched(p);
            warm(p);
        }
    }
    return 0;
}

/* ---- slots ---- */

int sp_ring_slots_take(struct sp_ring_slots *s, uint32_t *ret, struct sp_err *e)
{
    if (!reserve_groups(s))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell's tables");
    for (; s->lowest < count_groups(s); s->lowest++) {
        const uint32_t index = s->lowest;

        if (s->groups[index] == NULL) {
            const int r = make_group(s, index, e);

            if (r < 0)
                return r;
        }
        struct sp_ring_group *g = s->groups[index];
        if (g->free_count == 0 || g->is_refused)
            continue;
        struct slot *p = &g->slots[g->free[--g->free_count]];
        set_cold(p);
        p->is_used = true;
        s->used++;
        p->punched_ms = 0;
        atomic_store(sp_bell_share(s->bell, p->number), s->rings->share);
        *ret = p->number;
        return 0;
    }
    return sp_fail(e, SP_E_LIMIT, 0,
                   "all %u places of a cell for processes are taken (--max-processes)", s->count);
}

void sp_ring_slots_give(struct sp_ring_slots *s, uint32_t slot)
{
    const uint32_t index = slot / SP_SEGMENT_RINGS;
    struct sp_ring_group *g = s->groups[index];
    struct sp_rings *r = s->rings;
    struct slot *p = &g->slots[slot % SP_SEGMENT_RINGS];
    struct slot *coldest;

    p->is_used = false;
    s->used--;
    count_touched(p);
    g->free[g->free_count++] = (uint8_t)(slot % SP_SEGMENT_RINGS);
    if (index < s->lowest)
        s->lowest = index;
    if (g->free_count == g->size && g->is_refused) {
        unmake_group(s, index);
        return;
    }
    warm(p);
    while (r->warm_bytes > SP_RINGS_WARM && (coldest = first_warm(r)) != NULL) {
        set_cold(coldest);
        punch(coldest);
    }
    if (index == 0 || g->free_count < g->size)
        return;
    g->idle_since_ms = sp_loop_now(r->loop);
    if (s->on_idle.slot == 0) /* without memory for the timer the segment stays */
        (void)sp_loop_timer(r->loop, &s->on_idle, g->idle_since_ms + SP_RINGS_IDLE_MS, on_idle);
}

int sp_ring_slots_view(const struct sp_ring_slots *s, uint32_t slot, uint64_t number,
                       struct sp_ring_view *ret, struct sp_err *e)
{
    return sp_ring_view_open(s->groups[slot / SP_SEGMENT_RINGS]->segment, slot % SP_SEGMENT_RINGS,
                             number, ret, e);
}

/* ---- beginning and end ---- */

/* UINT64_MAX: none. */
static uint64_t read_limit(const char *path)
{
    char text[32];
    unsigned long long n;

    return sp_read_text(text, sizeof text, "%s", path) > 0 && sscanf(text, "%llu", &n) == 1
               ? n
               : UINT64_MAX;
}

/* The least limit in this file of a cgroup and of those around it. `dir` is used up. */
static uint64_t least_limit(char *dir, const char *file)
{
    char path[SP_CGROUP_PATH];
    uint64_t least = UINT64_MAX;

    for (char *slash; (slash = strrchr(dir, '/')) != NULL; *slash = 0)
        if (snprintf(path, sizeof path, "%s/%s", dir, file) < (int)sizeof path) {
            const uint64_t limit = read_limit(path);

            least = limit < least ? limit : least;
        }
    return least;
}

/* Of the own cgroup in version 1, which a container may see at the mount point, and in version 2.
 */
static uint64_t memory_limit(void)
{
    char text[8192];
    char dir[SP_CGROUP_PATH] = "/sys/fs/cgroup/memory";
    const size_t mount = strlen(dir);

    const char *own =
        sp_read_text(text, sizeof text, "/proc/self/cgroup") > 0 ? strstr(text, ":memory:") : NULL;
    if (own != NULL) {
        own += sizeof ":memory:" - 1;
        (void)snprintf(dir + mount, sizeof dir - mount, "%.*s", (int)strcspn(own, "\n"), own);
    }
    const uint64_t v1 = least_limit(dir, "memory.limit_in_bytes");
    if (!sp_cgroup_path("memory.max", dir))
        return v1;
    *strrchr(dir, '/') = 0;
    const uint64_t v2 = least_limit(dir, "memory.max");
    return v1 < v2 ? v1 : v2;
}

void sp_rings_init(struct sp_rings *r, struct sp_loop *loop)
{
    struct sysinfo info;

    r->loop = loop;
    sp_list_init(&r->slots);
    sp_list_init(&r->warm);
    if (r->budget != 0)
        return;
    uint64_t memory = memory_limit();
    if (sysinfo(&info) == 0 && (uint64_t)info.totalram * info.mem_unit < memory)
        memory = (uint64_t)info.totalram * info.mem_unit;
    r->budget = memory / 8 < SP_OUTPUT_LEAST ? SP_OUTPUT_LEAST
                : memory / 8 < MOST_BUDGET   ? memory / 8
                                             : MOST_BUDGET;
}

void sp_ring_slots_done(struct sp_ring_slots *s)
{
    if (s->groups == NULL)
        return;
    sp_loop_cancel(s->rings->loop, &s->on_idle);
    for (uint32_t i = 0; i < count_groups(s); i++)
        drop_group(s, i);
    sp_list_remove(&s->link);
    free(s->groups);
    s->groups = NULL;
}
