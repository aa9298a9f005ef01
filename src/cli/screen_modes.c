/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen_modes.h"

#include <stdbool.h>

enum { ESC = 0x1b };

/* By bit. A terminal begins with all of them off, but for the cursor, which `l` hides. */
static const struct mode {
    uint16_t number; /* of CSI ? NUMBER h */
    bool is_inverted;
} modes[] = {
    {1049, false}, {1047, false}, {47, false},   {25, true},    {1, false},
    {1000, false}, {1002, false}, {1003, false}, {1004, false}, {1005, false},
    {1006, false}, {1015, false}, {2004, false},
};
#define MODES      (sizeof modes / sizeof *modes)
#define KEYPAD     (1U << MODES) /* ESC =, off by ESC > */
#define ALTERNATE  7U            /* the first three: another screen */
#define MAX_NUMBER 9999

static void set_modes(struct sp_screen_modes *m, bool is_high)
{
    for (unsigned i = 0; i < m->count; i++)
        for (unsigned k = 0; k < MODES; k++) {
            if (modes[k].number != m->numbers[i])
                continue;
            if (is_high != modes[k].is_inverted)
                m->on |= 1U << k;
            else
                m->on &= ~(1U << k);
            if (!is_high && (ALTERNATE & 1U << k) != 0)
                m->on &= ~ALTERNATE; /* each of the three leaves it */
        }
}

bool sp_screen_is_alternate(const struct sp_screen_modes *m)
{
    return (m->on & ALTERNATE) != 0;
}

static void take_after_escape(struct sp_screen_modes *m, char c)
{
    m->first = c == '[' || c == ESC ? c : 0;
    m->mark = 0;
    m->count = 0;
    if (c == '=')
        m->on |= KEYPAD;
    else if (c == '>')
        m->on &= ~KEYPAD;
    else if (c == 'c') /* full reset */
        m->on = 0;
}

static void take_in_sequence(struct sp_screen_modes *m, char c)
{
    if (c >= '0' && c <= '9') {
        if (m->count == 0)
            m->numbers[m->count++] = 0;
        uint16_t *n = &m->numbers[m->count - 1];

        *n = (uint16_t)(*n > MAX_NUMBER / 10 ? MAX_NUMBER : *n * 10 + (c - '0'));
    } else if (c == ';') {
        if (m->count == 0)
            m->numbers[m->count++] = 0;
        if (m->count < SP_SCREEN_NUMBERS)
            m->numbers[m->count++] = 0;
    } else if (c >= ' ' && c < '@') { /* ? before the numbers, or a byte of another sequence */
        m->mark = m->mark == 0 && m->count == 0 ? c : '!';
    } else if (c == ESC) {
        m->first = ESC;
    } else if (c >= '@') {
        if (m->mark == '?' && (c == 'h' || c == 'l'))
            set_modes(m, c == 'h');
        m->first = 0;
    } /* control characters are carried out in the middle of a sequence */
}

void sp_screen_feed(struct sp_screen_modes *m, struct sp_str bytes)
{
    for (size_t i = 0; i < bytes.n; i++) {
        const char c = bytes.p[i];

        if (m->first == '[')
            take_in_sequence(m, c);
        else if (m->first == ESC)
            take_after_escape(m, c);
        else if (c == ESC)
            m->first = ESC;
    }
}

bool sp_screen_add(struct sp_buf *out, const struct sp_screen_modes *m, bool enters)
{
    const bool is_alternate = (m->on & ALTERNATE) != 0;
    bool ok = true;

    if (enters && is_alternate)
        ok = sp_buf_printf(out, "\x1b[?1049h\x1b[2J\x1b[H");
    for (unsigned k = 0; ok && k < MODES; k++)
        if ((m->on & ~ALTERNATE & 1U << k) != 0)
            ok = sp_buf_printf(out, "\x1b[?%u%c", modes[k].number,
                               enters != modes[k].is_inverted ? 'h' : 'l');
    if (ok && (m->on & KEYPAD) != 0)
        ok = sp_buf_printf(out, "\x1b%c", enters ? '=' : '>');
    if (ok && !enters && is_alternate)
        ok = sp_buf_printf(out, "\x1b[0m\x1b[?1049l");
    return ok;
}
