/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: what the configuration says about the manager of a conversation's processes
 * (unified-exec.md 14.2).
 */
#ifndef SP_CONFIG_CONFIG_MANAGER_H
#define SP_CONFIG_CONFIG_MANAGER_H

#include "config/config.h"
#include "engine/manager.h"

/* Sets what the configuration has; everything else of *ret stays as it is. */
void sp_config_manager(const struct sp_config *c, struct sp_manager_options *ret);

#endif
