/* SPDX-License-Identifier: Apache-2.0 */
#include "base/receipt.h"

#include <stdio.h>
#include <string.h>

#define NUMBERS_ROOM 1024U  /* all names and numbers */
#define RAW_MAX      65536U /* bytes of `sandbox` and of `network` of another server */

_Static_assert(SP_RECEIPT_ITEMS *(20 + 20 + 4) + 16 <= NUMBERS_ROOM,
               "the longest name has 20 bytes");

const char *sp_end_reason_name(enum sp_end_reason r)
{
    static const char *const names[SP_END_REASONS] = {
        [SP_END_NONE] = NULL,
        [SP_END_EXIT] = "exit",
        [SP_END_SIGNAL] = "signal",
        [SP_END_TERMINATED] = "terminated",
        [SP_END_SESSION] = "session_end",
        [SP_END_MEMORY_LIMIT] = "memory_limit",
        [SP_END_CPU_LIMIT] = "cpu_limit",
        [SP_END_WALL_LIMIT] = "wall_limit",
        [SP_END_OUTPUT_LIMIT] = "output_limit",
        [SP_END_LOST] = "lost",
        [SP_END_TIMEOUT] = "timeout",
        [SP_END_PRUNED] = "pruned",
        [SP_END_IDLE] = "idle_ttl",
    };

    return (unsigned)r < SP_END_REASONS ? names[r] : NULL;
}

static const struct {
    const char *camel, *snake;
} items[SP_RECEIPT_ITEMS] = {
    [SP_RECEIPT_WALL_MS] = {"wallMs", "wall_ms"},
    [SP_RECEIPT_USER_MS] = {"userMs", "user_ms"},
    [SP_RECEIPT_SYSTEM_MS] = {"systemMs", "system_ms"},
    [SP_RECEIPT_MAX_RSS] = {"maxRssBytes", "max_rss_bytes"},
    [SP_RECEIPT_PEAK_MEMORY] = {"peakMemoryBytes", "peak_memory_bytes"},
    [SP_RECEIPT_PEAK_PROCESSES] = {"peakProcesses", "peak_processes"},
    [SP_RECEIPT_READ] = {"readBytes", "read_bytes"},
    [SP_RECEIPT_WRITTEN] = {"writtenBytes", "written_bytes"},
    [SP_RECEIPT_VOLUNTARY] = {"voluntarySwitches", "voluntary_switches"},
    [SP_RECEIPT_INVOLUNTARY] = {"involuntarySwitches", "involuntary_switches"},
    [SP_RECEIPT_MAJOR_FAULTS] = {"majorFaults", "major_faults"},
    [SP_RECEIPT_STDOUT] = {"stdout", "stdout"},
    [SP_RECEIPT_STDERR] = {"stderr", "stderr"},
    [SP_RECEIPT_PTY] = {"pty", "pty"},
    [SP_RECEIPT_DROPPED] = {"dropped", "dropped"},
};

/* A receipt is written for every command, so its numbers do without printf. */
static char *put_number(char *o, const char *name, uint64_t n)
{
    const size_t len = strlen(name);
    char digits[20];
    size_t i = sizeof digits;

    *o++ = '"';
    memcpy(o, name, len);
    o += len;
    *o++ = '"';
    *o++ = ':';
    do
        digits[--i] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    memcpy(o, digits + i, sizeof digits - i);
    o += sizeof digits - i;
    *o++ = ',';
    return o;
}

/* Puts the known numbers of [from, to) as members, each with a comma behind it. */
static char *put_numbers(char *o, const struct sp_command_receipt *r, int from, int to,
                         enum sp_receipt_style style)
{
    for (int i = from; i < to; i++)
        if (sp_receipt_knows(r, (enum sp_receipt_item)i))
            /* JSON numbers that every reader takes; a hostile cell may claim more. */
            o = put_number(o, style == SP_RECEIPT_CAMEL ? items[i].camel : items[i].snake,
                           r->numbers[i] > INT64_MAX ? INT64_MAX : r->numbers[i]);
    return o;
}

void sp_receipt_write_size(uint64_t bytes, char ret[SP_RECEIPT_SIZE])
{
    static const char units[][4] = {"B", "KiB", "MiB", "GiB", "TiB"};
    uint64_t tenths = bytes * 10;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(ret, SP_RECEIPT_SIZE, "%u B", (unsigned)bytes);
        return;
    }
    if (bytes > UINT64_MAX / 10)
        tenths = UINT64_MAX;
    while (tenths >= 10240 && unit + 1 < sizeof units / sizeof units[0]) {
        tenths /= 1024;
        unit++;
    }
    /* printf's %f would use the decimal point of the locale. */
    (void)snprintf(ret, SP_RECEIPT_SIZE, "%u.%u %s", (unsigned)(tenths / 10),
                   (unsigned)(tenths % 10), units[unit]);
}

static bool add_raw(struct sp_buf *out, const char *name, struct sp_str value)
{
    return value.n == 0 || (sp_json_add_key(out, name) && sp_buf_add_str(out, value));
}

bool sp_receipt_add(struct sp_buf *out, const struct sp_command_receipt *r,
                    enum sp_receipt_style style)
{
    const char *reason = sp_end_reason_name(r->reason);
    char *const room = sp_buf_room(out, NUMBERS_ROOM);
    char *o = room;

    if (room == NULL)
        return false;
    *o++ = '{';
    o = put_numbers(o, r, 0, SP_RECEIPT_STDOUT, style);
    if (r->known >> SP_RECEIPT_STDOUT != 0) {
        memcpy(o, "\"output\":{", 10);
        o = put_numbers(o + 10, r, SP_RECEIPT_STDOUT, SP_RECEIPT_ITEMS, style);
        memcpy(o - 1, "},", 2);
        o++;
    }
    out->len += (size_t)(o - room) - (o[-1] == ','); /* sp_json_add_key puts commas itself */
    const char *const scope = style == SP_RECEIPT_CAMEL ? "cpuScope" : "cpu_scope";

    return (!r->is_cpu_of_tree || sp_json_add_member(out, scope, SP_STR("tree"))) &&
           (reason == NULL || sp_json_add_member(out, "reason", sp_str_of(reason))) &&
           (r->limits.count == 0 ||
            (sp_json_add_key(out, style == SP_RECEIPT_CAMEL ? "limitsHit" : "limits_hit") &&
             sp_limits_add_hits(out, &r->limits))) &&
           add_raw(out, "sandbox", r->sandbox) && add_raw(out, "network", r->network) &&
           sp_buf_add(out, "}", 1);
}

static void read_numbers(struct sp_json *j, uint32_t object, int from, int to,
                         struct sp_command_receipt *ret)
{
    for (int i = from; i < to; i++) {
        const uint32_t token = sp_json_get(j, object, items[i].camel);
        int64_t n = 0;

        if (token != SP_JSON_NONE && sp_json_i64(j, token, &n) && n >= 0)
            sp_receipt_set(ret, (enum sp_receipt_item)i, (uint64_t)n);
    }
}

static uint32_t get_object(struct sp_json *j, uint32_t object, const char *key)
{
    const uint32_t token = sp_json_get(j, object, key);

    return token != SP_JSON_NONE && sp_json_type(j, token) == SP_JSON_OBJECT ? token : SP_JSON_NONE;
}

/* Another server's text goes into lines and messages of ours: it must be one line, and short. */
static struct sp_str raw_object(struct sp_json *j, uint32_t object, const char *key)
{
    const uint32_t token = get_object(j, object, key);
    const struct sp_str none = {0};
    const struct sp_str raw = token == SP_JSON_NONE ? none : sp_json_raw(j, token);

    for (size_t i = 0; i < raw.n; i++)
        if ((unsigned char)raw.p[i] < ' ')
            return none;
    return raw.n > RAW_MAX ? none : raw;
}

enum sp_end_reason sp_receipt_read_reason(struct sp_json *j, uint32_t object)
{
    const uint32_t reason = sp_json_get(j, object, "reason");

    if (reason == SP_JSON_NONE || sp_json_type(j, reason) != SP_JSON_STRING)
        return SP_END_NONE;
    for (int i = SP_END_NONE + 1; i < SP_END_REASONS; i++)
        if (sp_str_eq(sp_json_str(j, reason), sp_str_of(sp_end_reason_name((enum sp_end_reason)i))))
            return (enum sp_end_reason)i;
    return SP_END_NONE;
}

void sp_receipt_read(struct sp_json *j, uint32_t object, struct sp_command_receipt *ret)
{
    const uint32_t output = get_object(j, object, "output");

    *ret = (struct sp_command_receipt){0};
    read_numbers(j, object, 0, SP_RECEIPT_STDOUT, ret);
    if (output != SP_JSON_NONE)
        read_numbers(j, output, SP_RECEIPT_STDOUT, SP_RECEIPT_ITEMS, ret);
    const uint32_t scope = sp_json_get(j, object, "cpuScope");
    ret->is_cpu_of_tree = scope != SP_JSON_NONE && sp_json_type(j, scope) == SP_JSON_STRING &&
                          sp_str_eq(sp_json_str(j, scope), SP_STR("tree"));
    ret->sandbox = raw_object(j, object, "sandbox");
    ret->network = raw_object(j, object, "network");
    ret->reason = sp_receipt_read_reason(j, object);
    sp_limits_read_hits(j, sp_json_get(j, object, "limitsHit"), ret->reason, &ret->limits);
}

void sp_receipt_keep(struct sp_kept_receipt *to, const struct sp_command_receipt *from)
{
    to->is_known = true;
    to->is = *from;
    to->text.len = 0;
    if (!sp_buf_add_str(&to->text, from->sandbox) || !sp_buf_add_str(&to->text, from->network)) {
        to->is.sandbox = to->is.network = (struct sp_str){0};
        return;
    }
    to->is.sandbox = (struct sp_str){to->text.data, from->sandbox.n};
    to->is.network = (struct sp_str){to->text.data + from->sandbox.n, from->network.n};
}
