/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binary: the sallyport binary that runs commands for a library.
 */
#ifndef SP_LIB_BINARY_H
#define SP_LIB_BINARY_H

#include "base/error.h"

/*
 * What was asked for, else $SALLYPORT_PROGRAM, else where it was installed; nowhere else, for a
 * library that looks around runs what somebody has put there. It is there, can be executed and is
 * of our version. To be freed.
 */
int sp_binary_find(const char *asked, char **ret, struct sp_err *e);

#endif
