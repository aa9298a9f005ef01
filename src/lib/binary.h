/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binary: finds the sallyport program, which runs commands for the library.
 */
#ifndef SP_LIB_BINARY_H
#define SP_LIB_BINARY_H

#include "base/error.h"

/*
 * The option `program`, else $SALLYPORT_PROGRAM, else the installed one. PATH is not searched, so
 * that no other program is run by accident. It is executable and of this library's version. The
 * caller frees *ret.
 */
int sp_binary_find(const char *asked, char **ret, struct sp_err *e);

#endif
