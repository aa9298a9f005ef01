/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Of a processor without the instruction: half a byte at a time, reflected. */
static uint32_t update_slowly(uint32_t crc, const uint8_t *p, size_t n)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.2")))

static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

TARGET static inline uint32_t update_word(uint32_t crc, uint64_t word)
{
    return (uint32_t)__builtin_ia32_crc32di(crc, word);
}

TARGET static inline uint32_t update_byte(uint32_t crc, uint8_t byte)
{
    return __builtin_ia32_crc32qi(crc, byte);
}
#elif defined(__aarch64__)
#define HAS_CRC32 (1UL << 7) /* HWCAP_CRC32 */
#if defined(__clang__)
#define TARGET  __attribute__((target("crc")))
#define CRC32CX __builtin_arm_crc32cd
#define CRC32CB __builtin_arm_crc32cb
#else
#define TARGET  __attribute__((target("+crc")))
#define CRC32CX __builtin_aarch64_crc32cx
#define CRC32CB __builtin_aarch64_crc32cb
#endif

static bool has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}

TARGET static inline uint32_t update_word(uint32_t crc, uint64_t word)
{
    return CRC32CX(crc, word);
}

TARGET static inline uint32_t update_byte(uint32_t crc, uint8_t byte)
{
    return CRC32CB(crc, byte);
}
#endif

#if defined(TARGET)
TARGET static uint32_t update_fast(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= sizeof(uint64_t); p += sizeof(uint64_t), n -= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, p, sizeof word);
        crc = update_word(crc, word);
    }
    for (size_t i = 0; i < n; i++)
        crc = update_byte(crc, p[i]);
    return crc;
}
#endif

uint32_t sp_crc32c(uint32_t crc, const void *bytes, size_t size)
{
#if defined(TARGET)
    if (has_instruction())
        return ~update_fast(~crc, bytes, size);
#endif
    return ~update_slowly(~crc, bytes, size);
}
