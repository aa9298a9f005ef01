/* SPDX-License-Identifier: Apache-2.0 */
/*
 * public: include/sallyport.h, next to internal headers.
 */
#ifndef SP_LIB_PUBLIC_H
#define SP_LIB_PUBLIC_H

#include "../../include/sallyport.h"

#endif
