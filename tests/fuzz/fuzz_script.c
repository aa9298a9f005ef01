/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain script has commands with names and no more bytes than it had, and the other reader finds
 * the very same ones. Whatever is not plain is the whole command. Words that are quoted are split
 * into themselves. A plain script that is written again is read as it was.
 */
#include "approve/judge.h"
#include "approve/script/script.h"
#include "base/auto.h"
#include "fuzz.h"

static size_t bytes_of(const struct sp_segments *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->items[i].count; k++)
            n += s->items[i].items[k].n;
    return n;
}

static void check_same(const struct sp_segments *a, const struct sp_segments *b)
{
    CHECK(a->count == b->count);
    for (uint32_t i = 0; i < a->count; i++)
        CHECK(sp_words_equal(a->items[i], b->items[i]));
}

static void check_quoted(struct sp_words words)
{
    auto_buf struct sp_buf text = {0};
    auto_segments struct sp_segments again = {0};
    struct sp_err e = {0};

    for (uint32_t i = 0; i < words.count; i++)
        if (sp_str_has_nul(words.items[i]))
            return;
    CHECK(sp_words_add_quoted(&text, words));
    CHECK(sp_words_split(&again, (struct sp_str){text.data, text.len}, &e) == 0);
    CHECK(again.count == 1 && sp_words_equal(again.items[0], words));
}

/* In single quotes, but for those, which are in double ones. */
static void add_word(struct sp_buf *out, struct sp_str word)
{
    CHECK(sp_buf_add(out, " '", 2));
    for (size_t i = 0; i < word.n; i++)
        CHECK(word.p[i] == '\'' ? sp_buf_add_str(out, SP_STR("'\"'\"'"))
                                : sp_buf_add(out, word.p + i, 1));
    CHECK(sp_buf_add(out, "'", 1));
}

static void check_written_again(const struct sp_segments *s)
{
    auto_buf struct sp_buf text = {0};
    auto_segments struct sp_segments again = {0};
    struct sp_err e = {0};

    for (uint32_t i = 0; i < s->count; i++) {
        CHECK(sp_buf_add_str(&text, s->items[i].items[0]));
        for (uint32_t k = 1; k < s->items[i].count; k++)
            add_word(&text, s->items[i].items[k]);
        CHECK(sp_buf_add(&text, i % 2 == 0 ? "\n" : ";", 1));
    }
    const struct sp_str argv[] = {SP_STR("zsh"), SP_STR("-c"), {text.data, text.len}};
    CHECK(sp_segments_read(&again, (struct sp_words){argv, 3}, &e) == 0 && !again.is_opaque);
    check_same(s, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    const struct sp_str script = {text, size};
    const struct sp_str argv[] = {SP_STR("/bin/sh"), SP_STR("-c"), script};
    const struct sp_words command = {argv, 3};
    auto_segments struct sp_segments s = {0};
    auto_segments struct sp_segments literals = {0};
    auto_segments struct sp_segments words = {0};
    enum sp_danger danger;
    struct sp_err e = {0};

    CHECK(sp_segments_read(&s, command, &e) == 0 && s.is_wrapper && s.count != 0);
    CHECK(sp_script_literals(&literals, script, &e) == 0);
    CHECK(bytes_of(&literals) <= size);
    for (uint32_t i = 0; i < literals.count; i++)
        CHECK(literals.items[i].count != 0);
    if (s.is_opaque) {
        CHECK(s.count == 1 && sp_words_equal(s.items[0], command));
    } else {
        CHECK(bytes_of(&s) <= size);
        check_same(&s, &literals);
        check_written_again(&s);
    }
    check_quoted(s.items[0]);
    if (sp_words_split(&words, script, &e) == 0)
        check_quoted(words.items[0]);
    CHECK(sp_judge_danger(command, &danger, &e) == 0);
    return 0;
}
