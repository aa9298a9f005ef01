/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob_match: one pattern without braces against one path.
 */
#ifndef SP_SANDBOX_GLOB_MATCH_H
#define SP_SANDBOX_GLOB_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Both relative, components divided by single slashes. */
bool sp_glob_form_matches(const char *form, const char *path);

/* The length of the class that text begins with, from its [ to its ], within one component; 0: it
 * is not closed. */
size_t sp_glob_class_length(const char *text);
/* Whether every range in a closed class runs forwards. */
bool sp_glob_class_is_sane(const char *text, size_t n);

#endif
