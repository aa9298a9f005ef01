/* SPDX-License-Identifier: Apache-2.0 */
/*
 * public: include/sallyport.h, next to the headers of the house.
 *
 * Some structs of the library have the names of structs in here that mean nearly the same: an
 * event, an answer, an error. A tag is no part of what a compiled C program calls (functions are
 * found by name, members by their place), so in this directory those of the library are called
 * sp_public_*, and both can be seen side by side. Constants and functions have names of their own.
 */
#ifndef SP_LIB_PUBLIC_H
#define SP_LIB_PUBLIC_H

#define sp_answer   sp_public_answer
#define sp_error    sp_public_error
#define sp_event    sp_public_event
#define sp_question sp_public_question
#include "../../include/sallyport.h"
#undef sp_answer
#undef sp_error
#undef sp_event
#undef sp_question

#endif
