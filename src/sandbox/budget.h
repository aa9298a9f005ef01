/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget: how long a look at the disk may take.
 *
 * Policies come from clients, and the trees that they name are shaped by commands: whoever looks at
 * them in the only thread there is stops in time. One budget at a time.
 */
#ifndef SP_SANDBOX_BUDGET_H
#define SP_SANDBOX_BUDGET_H

#include <stdbool.h>

#include "base/error.h"

#define SP_SURVEY_MS 1000 /* a survey, or a look whether one still holds */

void sp_budget_begin(unsigned ms);
/* Cheap: the clock is read now and then. */
bool sp_budget_is_spent(void);
/* The refusal that goes with it. */
int sp_budget_refuse(struct sp_err *e);

#endif
