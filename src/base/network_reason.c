/* SPDX-License-Identifier: Apache-2.0 */
#include "base/network_reason.h"

const struct sp_network_reason_text *sp_network_reason_text(unsigned reason)
{
    static const struct sp_network_reason_text texts[] = {
#define X(name, wire, field, message, sentence) \
    [SP_NETWORK_REASON_##name] = {wire, field, message, sentence},
        SP_NETWORK_REASONS(X)
#undef X
    };

    return &texts[reason < SP_NETWORK_REASON_MAX ? reason : SP_NETWORK_REASON_OTHER];
}
