/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modes: what the escape program does besides attempts: victims, bombs, and a swapper of names.
 */
#ifndef ESCAPE_MODES_H
#define ESCAPE_MODES_H

/* The exit status. */
int run_mode(const char *verb, char **args);

#endif
