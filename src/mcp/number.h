/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number: whole numbers however JSON spells them: 1000, 1000.0, 1e3. Exact, and the same under
 * every locale.
 */
#ifndef SP_MCP_NUMBER_H
#define SP_MCP_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum sp_number_kind {
    SP_NUMBER_WHOLE,
    SP_NUMBER_TOO_BIG,  /* whole, but its magnitude is above u64 */
    SP_NUMBER_FRACTION, /* not whole */
};

struct sp_number {
    bool is_negative;
    uint64_t magnitude; /* if WHOLE */
};

/* `text` is a number of JSON's grammar. */
enum sp_number_kind sp_number_read(struct sp_str text, struct sp_number *ret);

#endif
