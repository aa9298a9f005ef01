/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c: the CRC-32C of bytes (Castagnoli), with the processor's instruction if there is one.
 *
 * It finds accidents, not forgeries.
 */
#ifndef SP_BASE_CRC32C_H
#define SP_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* `crc` is 0, or the result for the bytes in front of these. */
uint32_t sp_crc32c(uint32_t crc, const void *bytes, size_t size);

#endif
