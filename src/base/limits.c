/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB       (1U << 20)
#define MAX_VALUE (1ULL << 53) /* every JSON reader takes it exactly */
#define MAX_MS    (366ULL * 86400000)
#define MAX_PIDS  (1U << 22) /* of a kernel */
#define MAX_CPUS  (65536U * 1000)

const struct sp_limit_kind sp_limit_kinds[SP_LIMIT_COUNT] = {
    [SP_LIMIT_MEMORY] =
        {"memory", {"memoryBytes", "memory_bytes"}, SP_END_MEMORY_LIMIT, SP_LIMIT_TREE, 16 * MIB},
    [SP_LIMIT_PIDS] = {"pids", {"pids", "pids"}, SP_END_NONE, SP_LIMIT_TREE, 1},
    [SP_LIMIT_CPUS] = {"cpus", {"cpus", "cpus"}, SP_END_NONE, SP_LIMIT_TREE, 10},
    [SP_LIMIT_CPU] = {"cpu", {"cpuMs", "cpu_ms"}, SP_END_CPU_LIMIT, SP_LIMIT_TREE, 1},
    [SP_LIMIT_WALL] = {"wall", {"wallMs", "wall_ms"}, SP_END_WALL_LIMIT, SP_LIMIT_TREE, 1},
    [SP_LIMIT_OUTPUT] =
        {"output", {"outputBytes", "output_bytes"}, SP_END_OUTPUT_LIMIT, SP_LIMIT_TREE, 1},
    [SP_LIMIT_FILES] = {"files", {"openFiles", "open_files"}, SP_END_NONE, SP_LIMIT_PER_PROCESS, 3},
    [SP_LIMIT_FSIZE] =
        {"fsize", {"fileSizeBytes", "file_size_bytes"}, SP_END_NONE, SP_LIMIT_PER_PROCESS, 1},
};

const char *const sp_limit_level_names[SP_LIMIT_LEVELS] = {"command", "session", "server"};
const char *const sp_limit_scope_names[] = {NULL, "process", "tree"};

/* ---- one value ---- */

struct unit {
    const char *name;
    uint64_t of; /* in thousandths */
};

/* The first one counts for a plain number. */
static const struct unit bytes_units[] = {{"", 1000},           {"K", 1000ULL << 10},
                                          {"M", 1000ULL << 20}, {"G", 1000ULL << 30},
                                          {"T", 1000ULL << 40}, {NULL, 0}};
static const struct unit time_units[] = {{"", 1000000},   {"ms", 1000},      {"s", 1000000},
                                         {"m", 60000000}, {"h", 3600000000}, {NULL, 0}};
static const struct unit plain_units[] = {{"", 1000}, {NULL, 0}};
static const struct unit cpus_units[] = {{"", 1000000}, {NULL, 0}};

static const struct unit *units_of(enum sp_limit limit)
{
    switch (limit) {
    case SP_LIMIT_MEMORY:
    case SP_LIMIT_OUTPUT:
    case SP_LIMIT_FSIZE:
        return bytes_units;
    case SP_LIMIT_CPU:
    case SP_LIMIT_WALL:
        return time_units;
    case SP_LIMIT_CPUS:
        return cpus_units;
    case SP_LIMIT_PIDS:
    case SP_LIMIT_FILES:
    case SP_LIMIT_COUNT:
        break;
    }
    return plain_units;
}

static uint64_t max_of(enum sp_limit limit)
{
    return limit == SP_LIMIT_CPU || limit == SP_LIMIT_WALL     ? MAX_MS
           : limit == SP_LIMIT_PIDS || limit == SP_LIMIT_FILES ? MAX_PIDS
           : limit == SP_LIMIT_CPUS                            ? MAX_CPUS
                                                               : MAX_VALUE;
}

/* A decimal number with at most three digits behind the point and a unit, as in "1.5" or "512M". */
static bool read_value(enum sp_limit limit, struct sp_str text, const struct unit *units,
                       uint64_t *ret)
{
    const uint64_t max = max_of(limit);
    uint64_t thousandths = 0;
    size_t at = 0;
    size_t point = 0; /* where the fraction begins; 0: there is none */

    for (; at < text.n && (text.p[at] == '.' || (text.p[at] >= '0' && text.p[at] <= '9')); at++) {
        if (text.p[at] == '.' && (point != 0 || at == 0))
            return false;
        if (text.p[at] == '.') {
            point = at + 1;
            continue;
        }
        if (thousandths > MAX_VALUE || (point != 0 && at - point >= 3))
            return false;
        thousandths = thousandths * 10 + (uint64_t)(text.p[at] - '0');
    }
    if (at == 0 || (point != 0 && at == point))
        return false;
    for (size_t digits = point == 0 ? 0 : at - point; digits < 3; digits++) {
        if (thousandths > UINT64_MAX / 10)
            return false;
        thousandths *= 10;
    }
    for (const struct unit *u = units; u->name != NULL; u++)
        if (sp_str_eq(sp_str_of(u->name), (struct sp_str){text.p + at, text.n - at})) {
            const double value = (double)thousandths / 1000 * ((double)u->of / 1000);

            if (!(value >= (double)sp_limit_kinds[limit].min && value <= (double)max) ||
                (units == plain_units && thousandths % 1000 != 0))
                return false;
            *ret = (uint64_t)value;
            return true;
        }
    return false;
}

/* ---- --limit ---- */

static bool find_limit(struct sp_str name, enum sp_limit *ret)
{
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        if (sp_str_eq(name, sp_str_of(sp_limit_kinds[i].name))) {
            *ret = (enum sp_limit)i;
            return true;
        }
    return false;
}

static const char *const wanted[SP_LIMIT_COUNT] = {
    [SP_LIMIT_MEMORY] = "memory=BYTES, such as 512M: at least 16M",
    [SP_LIMIT_PIDS] = "pids=N, a number from 1 to 4194304",
    [SP_LIMIT_CPUS] = "cpus=N, such as 1.5: at least 0.01",
    [SP_LIMIT_CPU] = "cpu=TIME, such as 60s",
    [SP_LIMIT_WALL] = "wall=TIME, such as 10m",
    [SP_LIMIT_OUTPUT] = "output=BYTES, such as 64M",
    [SP_LIMIT_FILES] = "files=N, a number from 3 to 4194304",
    [SP_LIMIT_FSIZE] = "fsize=BYTES, such as 1G",
};

const char *sp_limits_read(const char *text, void *ret)
{
    struct sp_limit_levels *levels = ret;
    const char *colon = strchr(text, ':');
    int level = SP_LIMIT_COMMAND;
    enum sp_limit limit = SP_LIMIT_COUNT;
    uint64_t value = 0;

    if (colon != NULL) {
        const struct sp_str name = {text, (size_t)(colon - text)};

        while (level < SP_LIMIT_LEVELS && !sp_str_eq(name, sp_str_of(sp_limit_level_names[level])))
            level++;
        if (level == SP_LIMIT_LEVELS)
            return "LEVEL:NAME=VALUE with a LEVEL of command, session or server";
        text = colon + 1;
    }
    const char *equals = strchr(text, '=');
    if (equals == NULL || !find_limit((struct sp_str){text, (size_t)(equals - text)}, &limit))
        return "NAME=VALUE with a NAME of memory, pids, cpus, cpu, wall, output, files or fsize";
    if (level != SP_LIMIT_COMMAND && limit >= SP_LIMIT_SHARED)
        return "a limit of a session or a server: those are memory, pids and cpus";
    if (!read_value(limit, sp_str_of(equals + 1), units_of(limit), &value))
        return wanted[limit];
    levels->level[level].of[limit] = value;
    return NULL;
}

void sp_limits_put_over(struct sp_limit_levels *ret, const struct sp_limit_levels *over)
{
    for (int level = 0; level < SP_LIMIT_LEVELS; level++)
        for (int i = 0; i < SP_LIMIT_COUNT; i++)
            if (over->level[level].of[i] != 0)
                ret->level[level].of[i] = over->level[level].of[i];
}

int sp_limits_lower(const struct sp_limit_set *asked, const struct sp_limit_set *most,
                    struct sp_limit_set *ret, struct sp_err *e)
{
    struct sp_limit_set set = *asked;

    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        if (most->of[i] != 0 && asked->of[i] > most->of[i])
            return sp_fail(e, SP_E_INVALID, 0,
                           "limits.%s: %" PRIu64 " is more than the %" PRIu64
                           " that --limit %s allows",
                           sp_limit_kinds[i].keys[SP_LIMIT_CAMEL], asked->of[i], most->of[i],
                           sp_limit_kinds[i].name);
        if (asked->of[i] == 0)
            set.of[i] = most->of[i];
    }
    *ret = set;
    return 0;
}

/* ---- JSON ---- */

static bool is_number(const struct sp_json *j, uint32_t token)
{
    const enum sp_json_type t = sp_json_type(j, token);

    return t == SP_JSON_INT || t == SP_JSON_UINT || t == SP_JSON_REAL;
}

static int read_member(struct sp_json *j, uint32_t key, enum sp_limit_style style,
                       struct sp_limit_ask *ret, struct sp_err *e)
{
    const struct sp_str name = sp_json_str(j, key);
    const uint32_t value = key + 1;
    int i = 0;

    if (sp_str_eq(name, SP_STR("enforcement"))) {
        const bool is_text = sp_json_type(j, value) == SP_JSON_STRING;

        ret->is_best = is_text && sp_str_eq(sp_json_str(j, value), SP_STR("best"));
        return ret->is_best || (is_text && sp_str_eq(sp_json_str(j, value), SP_STR("tree")))
                   ? 0
                   : sp_fail(e, SP_E_INVALID, 0, "limits.enforcement must be `tree` or `best`");
    }
    while (i < SP_LIMIT_COUNT && !sp_str_eq(name, sp_str_of(sp_limit_kinds[i].keys[style])))
        i++;
    if (i == SP_LIMIT_COUNT)
        return sp_fail(e, SP_E_INVALID, 0, "unknown limit `%.*s`", (int)(name.n < 64 ? name.n : 64),
                       name.p);
    if (sp_json_type(j, value) == SP_JSON_NULL)
        return 0;
    /* On the wire a time is a number of milliseconds. */
    const struct unit *units = units_of((enum sp_limit)i) == cpus_units ? cpus_units : plain_units;
    if (!is_number(j, value) ||
        !read_value((enum sp_limit)i, sp_json_raw(j, value), units, &ret->set.of[i]))
        return sp_fail(
            e, SP_E_INVALID, 0, "limits.%s must be %s from %s%" PRIu64 " on",
            sp_limit_kinds[i].keys[style], units == cpus_units ? "a number" : "an integer",
            units == cpus_units ? "0.0" : "", units == cpus_units ? 1 : sp_limit_kinds[i].min);
    return 0;
}

int sp_limits_read_json(struct sp_json *j, uint32_t object, enum sp_limit_style style,
                        struct sp_limit_ask *ret, struct sp_err *e)
{
    *ret = (struct sp_limit_ask){.is_given = true};
    sp_json_each(j, object, key)
        if (read_member(j, key, style, ret, e) < 0)
            return -(int)e->code;
    return 0;
}

static bool add_number(struct sp_buf *out, const char *key, enum sp_limit limit, uint64_t value)
{
    if (limit == SP_LIMIT_CPUS)
        return sp_json_add_value(out, key, "%" PRIu64 ".%03u", value / 1000,
                                 (unsigned)(value % 1000));
    return sp_json_add_value(out, key, "%" PRIu64, value);
}

bool sp_limits_add_json(struct sp_buf *out, const struct sp_limit_ask *ask)
{
    bool ok = sp_buf_add(out, "{", 1);

    for (int i = 0; ok && i < SP_LIMIT_COUNT; i++)
        if (ask->set.of[i] != 0)
            ok = add_number(out, sp_limit_kinds[i].keys[SP_LIMIT_CAMEL], (enum sp_limit)i,
                            ask->set.of[i]);
    return ok &&
           sp_json_add_member(out, "enforcement", ask->is_best ? SP_STR("best") : SP_STR("tree")) &&
           sp_buf_add(out, "}", 1);
}

/* ---- hits ---- */

bool sp_limits_add_hits(struct sp_buf *out, const struct sp_limit_hits *hits)
{
    bool ok = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; ok && i < hits->count; i++) {
        const struct sp_limit_hit *h = &hits->items[i];

        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_buf_add(out, "{", 1) &&
             sp_json_add_member(out, "limit", sp_str_of(sp_limit_kinds[h->limit].name)) &&
             (h->level == SP_LIMIT_COMMAND ||
              sp_json_add_member(out, "level", sp_str_of(sp_limit_level_names[h->level]))) &&
             add_number(out, "value", h->limit, h->value) &&
             sp_json_add_value(out, "count", "%" PRIu64, h->count) &&
             sp_json_add_value(out, "leader", "%s", h->leader ? "true" : "false") &&
             sp_buf_add(out, "}", 1);
    }
    return ok && sp_buf_add(out, "]", 1);
}

static bool read_hit(struct sp_json *j, uint32_t token, struct sp_limit_hit *ret)
{
    struct sp_str limit = {0};
    struct sp_str level = {0};
    struct sp_err e;

    if (sp_json_type(j, token) != SP_JSON_OBJECT ||
        sp_json_need_str(j, token, "limit", &limit, &e) < 0 || !find_limit(limit, &ret->limit) ||
        sp_json_need_u64(j, token, "count", MAX_VALUE, &ret->count, &e) < 0 ||
        sp_json_need_bool(j, token, "leader", &ret->leader, &e) < 0 ||
        sp_json_opt_str(j, token, "level", &level, &e) < 0)
        return false;
    for (int i = 0; level.p != NULL && i < SP_LIMIT_LEVELS; i++)
        if (sp_str_eq(level, sp_str_of(sp_limit_level_names[i])))
            ret->level = (enum sp_limit_level)i;
    const uint32_t value = sp_json_get(j, token, "value");
    return value != SP_JSON_NONE && is_number(j, value) &&
           read_value(ret->limit, sp_json_raw(j, value),
                      ret->limit == SP_LIMIT_CPUS ? cpus_units : plain_units, &ret->value);
}

void sp_limits_read_hits(struct sp_json *j, uint32_t array, enum sp_end_reason reason,
                         struct sp_limit_hits *ret)
{
    *ret = (struct sp_limit_hits){0};
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        if (reason != SP_END_NONE && sp_limit_kinds[i].reason == reason) {
            ret->has_ended = true;
            ret->ended_by = (enum sp_limit)i;
        }
    if (array == SP_JSON_NONE || sp_json_type(j, array) != SP_JSON_ARRAY)
        return;
    sp_json_each(j, array, token) {
        struct sp_limit_hit hit = {0};

        if (ret->count < SP_LIMIT_COUNT && read_hit(j, token, &hit))
            ret->items[ret->count++] = hit;
    }
}

/* "512 MiB", "1.5", "10 s" */
static void write_value(const struct sp_limit_hit *h, char *text, size_t size)
{
    static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    const struct unit *units = units_of(h->limit);
    uint64_t n = h->value;
    unsigned i = 0;

    if (units == bytes_units) {
        for (; i < 4 && n >= 1024 && n % 1024 == 0; i++)
            n /= 1024;
        (void)snprintf(text, size, "%" PRIu64 " %s", n, names[i]);
    } else if (units == time_units || units == cpus_units) {
        (void)snprintf(text, size, "%g%s", (double)n / 1000, units == time_units ? " s" : "");
    } else {
        (void)snprintf(text, size, "%" PRIu64, n);
    }
}

bool sp_limits_add_text(struct sp_buf *out, const struct sp_limit_hit *h)
{
    static const char *const whose[SP_LIMIT_LEVELS] = {"", " of the session", " of the server"};
    const bool is_one = h->count == 1;
    char value[40];

    write_value(h, value, sizeof value);
    if (!sp_buf_printf(out, "%s limit %s%s", sp_limit_kinds[h->limit].name, value, whose[h->level]))
        return false;
    if (h->limit == SP_LIMIT_MEMORY)
        return sp_buf_printf(out, " reached: %" PRIu64 " process%s killed%s", h->count,
                             is_one ? " was" : "es were",
                             !h->leader ? ""
                             : is_one   ? " (the command itself)"
                                        : " (the command itself among them)");
    if (h->limit == SP_LIMIT_PIDS)
        return sp_buf_printf(out, ": %" PRIu64 " fork%s refused", h->count,
                             is_one ? " was" : "s were");
    /* A command that writes its last output at once ends before the cell can kill it. */
    return sp_buf_printf(out, " reached: %s",
                         h->leader                     ? "the command was killed"
                         : h->limit == SP_LIMIT_OUTPUT ? "the command had ended before"
                                                       : "a process was killed");
}
