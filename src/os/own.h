/* SPDX-License-Identifier: Apache-2.0 */
/* own: moved to os/tree.h. */
#ifndef SP_OS_OWN_H
#define SP_OS_OWN_H

#include "os/tree.h"

#endif
