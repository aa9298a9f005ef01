/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

int part3(void)
{
    return 11;
}
