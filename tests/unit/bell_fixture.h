/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BELL_FIXTURE_H
#define BELL_FIXTURE_H

#include "cell/bell.h"

static inline void ring_bell(struct sp_bell *b, uint32_t slot)
{
    sp_bell_mark(b, slot);
    sp_bell_wake(b);
}

#endif
