/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/marks.h"

#define LOOK_MS      5   /* the first look at the kernel's queue */
#define LOOK_MS_MAX  80  /* each further look waits twice as long, up to this */
#define LOOK_MS_LATE 250 /* a pong is late, and the kernel has unacknowledged bytes */

void sp_marks_make(struct sp_marks *m, bool pings, uint64_t offset, uint64_t now_ms,
                   uint8_t *ret_payload)
{
    const uint64_t number = ++m->made;

    m->is_wanted = false;
    m->of[number % SP_MARKS_MAX].offset = offset;
    m->of[number % SP_MARKS_MAX].made_ms = now_ms;
    for (unsigned i = 0; i < SP_MARKS_BYTES; i++)
        ret_payload[i] = (uint8_t)(number >> (8 * (SP_MARKS_BYTES - 1 - i)));
    if (m->look_ms == 0)
        m->look_ms = now_ms + (pings && !m->is_deaf ? SP_MARKS_PONG_MS : LOOK_MS);
    m->pause_ms = LOOK_MS;
}

bool sp_marks_look(struct sp_marks *m, bool pings, uint64_t taken, uint64_t now_ms)
{
    const uint64_t before = m->confirmed;
    const bool was_timed = m->look_ms != 0 && now_ms >= m->look_ms;

    while (sp_marks_are_under_way(m) && m->of[(m->confirmed + 1) % SP_MARKS_MAX].offset <= taken &&
           (!pings || m->is_deaf || now_ms - sp_marks_oldest_ms(m) >= SP_MARKS_PONG_MS))
        m->confirmed++;
    const bool has_grown = m->confirmed != before;
    if (has_grown && pings && !m->has_ponged)
        m->is_deaf = true;
    if (!sp_marks_are_under_way(m)) {
        m->look_ms = 0;
    } else if (!pings || m->is_deaf) {
        if (has_grown)
            m->pause_ms = LOOK_MS;
        else if (was_timed && m->pause_ms < LOOK_MS_MAX)
            m->pause_ms *= 2;
        if (has_grown || was_timed)
            m->look_ms = now_ms + m->pause_ms;
    } else {
        const uint64_t due = sp_marks_oldest_ms(m) + SP_MARKS_PONG_MS;

        m->look_ms = due > now_ms ? due : now_ms + LOOK_MS_LATE;
    }
    return has_grown;
}
