/* SPDX-License-Identifier: Apache-2.0 */
/* Strings as JSON. */
#include "base/json.h"
#include "base/json_scan.h"
#include "base/utf8.h"

static bool add_escape(struct sp_buf *out, char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char meant[] = "\"\\bfnrt";
    const char *known = c != 0 ? strchr(plain, c) : NULL;

    if (known != NULL)
        return sp_buf_add(out, (const char[2]){'\\', meant[known - plain]}, 2);
    return sp_buf_printf(out, "\\u%04x", (unsigned)c);
}

bool sp_json_add_str(struct sp_buf *out, struct sp_str s)
{
    const size_t mark = out->len;
    const char *end = s.n != 0 ? s.p + s.n : s.p; /* NULL is empty, and nothing is added to it */
    bool has_room = sp_buf_add(out, "\"", 1);

    while (has_room && s.p < end) {
        unsigned high = 0;
        const char *stop = sp_json_skip_plain(s.p, end, &high);
        const struct sp_str run = {s.p, (size_t)(stop - s.p)};

        has_room = high != 0 ? sp_utf8_add_lossy(out, run) : sp_buf_add_str(out, run);
        if (has_room && stop < end)
            has_room = add_escape(out, *stop++);
        s.p = stop;
    }
    has_room = has_room && sp_buf_add(out, "\"", 1);
    if (!has_room)
        out->len = mark;
    return has_room;
}
