/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of names, as a proxy that was taken over leaves it. The input is poked into a table of
 * a few names: (entry, offset, byte) after a first number of bytes for its head. What the next
 * proxy takes over is a table like any other: canonical names, addresses of the range, each once.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "base/hostname.h"
#include "fuzz.h"
#include "proxy/names.h"

#define NAMES_BEFORE 24U
#define HEAD_BYTES   8U

static struct sp_names *open_table(int memory)
{
    struct sp_names *n = NULL;
    struct sp_err e;

    CHECK(sp_names_open(memory, &n, &e) == 0);
    return n;
}

static uint32_t give(struct sp_names *n, unsigned i)
{
    char text[40];

    (void)snprintf(text, sizeof text, "n%u.example", i);
    return sp_names_address(n, sp_str_of(text), i % 3 == 0);
}

static void corrupt(int memory, const uint8_t *data, size_t size)
{
    const size_t entry = (sp_names_bytes() - HEAD_BYTES) / SP_NAMES_MAX;
    const size_t head = size < HEAD_BYTES ? size : HEAD_BYTES;

    for (size_t i = 0; i < head; i++) /* 0: unchanged, so that most inputs keep the version */
        if (data[i] != 0)
            CHECK(pwrite(memory, &data[i], 1, (off_t)i) == 1);
    for (size_t i = head; i + 4 <= size; i += 4) {
        const size_t which = data[i] % (NAMES_BEFORE + 8);
        const size_t at = ((size_t)data[i + 1] << 8 | data[i + 2]) % entry;

        CHECK(pwrite(memory, &data[i + 3], 1, (off_t)(HEAD_BYTES + which * entry + at)) == 1);
    }
}

static void check_live(struct sp_names *n, uint32_t address)
{
    const char *text = sp_names_find(n, address);
    struct sp_hostname h;

    if (text == NULL)
        return;
    CHECK(address >= SP_NAMES_FIRST && address <= SP_NAMES_LAST);
    CHECK(sp_hostname_read(sp_str_of(text), &h) == NULL && !h.is_address);
    CHECK(strcmp(h.text, text) == 0);
    CHECK(sp_names_address(n, sp_str_of(h.text), false) == address);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int memory = memfd_create("names", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(memory >= 0 && ftruncate(memory, (off_t)sp_names_bytes()) == 0);
    struct sp_names *n = open_table(memory);
    for (unsigned i = 0; i < NAMES_BEFORE; i++)
        CHECK(give(n, i) == SP_NAMES_FIRST + i);
    sp_names_close(n);

    corrupt(memory, data, size);
    n = open_table(memory);
    const uint32_t count = sp_names_count(n);
    CHECK(count <= NAMES_BEFORE + 8);
    for (uint32_t i = 0; i < 256; i++)
        check_live(n, SP_NAMES_FIRST + i);
    CHECK(sp_names_count(n) == count); /* asking for live names makes no new ones */
    uint32_t last = 0;
    for (unsigned i = 100; i < 110; i++) { /* new names get addresses that no name has */
        const uint32_t a = give(n, i);

        CHECK(a == 0 || (a > last && a <= SP_NAMES_LAST));
        last = a;
    }
    const uint32_t after = sp_names_count(n);
    sp_names_close(n);
    n = open_table(memory); /* what was written back is valid as it is */
    CHECK(sp_names_count(n) == after);
    CHECK(give(n, 109) == last);
    sp_names_close(n);
    (void)close(memory);
    return 0;
}
