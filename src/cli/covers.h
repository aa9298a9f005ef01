/* SPDX-License-Identifier: Apache-2.0 */
/*
 * covers: see core/covers.h.
 */
#ifndef SP_CLI_COVERS_H
#define SP_CLI_COVERS_H

#include "core/covers.h"

#endif
