/* SPDX-License-Identifier: Apache-2.0 */
#include "base/receipt.h"

#include <string.h>

#define NUMBERS_ROOM 1024U /* all names and numbers */

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
    return (reason == NULL || sp_json_add_member(out, "reason", sp_str_of(reason))) &&
           add_raw(out, "sandbox", r->sandbox) && add_raw(out, "network", r->network) &&
           sp_buf_add(out, "}", 1);
}
