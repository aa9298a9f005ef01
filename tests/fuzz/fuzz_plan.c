/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is the memory in which a cell looks for its plan. What it takes keeps the bounds, and
 * can be put in words.
 */
#include "../unit/plan_fixture.h"
#include "fuzz.h"
#include "sandbox/compile.h"

static void check_words(const struct sp_plan *p)
{
    auto_buf struct sp_buf words = {0};
    size_t lines = 0;

    CHECK(sp_plan_print(p, &words) && words.len > 0 && words.data[words.len - 1] == '\n');
    CHECK(memchr(words.data, 0, words.len) == NULL);
    for (size_t i = 0; i < words.len; i++)
        lines += words.data[i] == '\n';
    for (uint32_t i = 0; i < p->op_count; i++)
        lines -= p->ops[i].op != SP_OP_NOTHING;
    CHECK(lines < SIZE_MAX / 2); /* at least one each */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *memory = fuzz_copy(data, size); /* aligned, and not a byte more */
    const struct sp_plan *p = sp_plan_check(memory, size);

    if (p != NULL) {
        CHECK((const void *)p == memory && plan_flaw(memory, size) == NULL);
        check_words(p);
    }
    free(memory);
    return 0;
}
