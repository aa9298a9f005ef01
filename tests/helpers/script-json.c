/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script-json: scripts on standard input, each after a line with its length in bytes; for each one
 * a line of JSON on standard output: {"plain": SEGMENTS or null, "literals": SEGMENTS}, each
 * segment a list of words.
 */
#include <stdio.h>
#include <stdlib.h>

#include "approve/script/script.h"
#include "base/auto.h"
#include "base/json.h"

#define MAX_TEXT (16 << 20)

static void need(bool is_good)
{
    if (!is_good) {
        (void)fputs("script-json: no memory\n", stderr);
        exit(2);
    }
}

static void add_segments(struct sp_buf *out, const struct sp_segments *s)
{
    need(sp_buf_add(out, "[", 1));
    for (uint32_t i = 0; i < s->count; i++) {
        need(sp_buf_add(out, ",", i != 0) && sp_buf_add(out, "[", 1));
        for (uint32_t k = 0; k < s->items[i].count; k++)
            need(sp_buf_add(out, ",", k != 0) && sp_json_add_str(out, s->items[i].items[k]));
        need(sp_buf_add(out, "]", 1));
    }
    need(sp_buf_add(out, "]", 1));
}

static void answer(struct sp_str script)
{
    const struct sp_str argv[] = {SP_STR("/bin/bash"), SP_STR("-c"), script};
    auto_segments struct sp_segments plain = {0};
    auto_segments struct sp_segments literals = {0};
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};

    need(sp_segments_read(&plain, (struct sp_words){argv, 3}, &e) == 0);
    need(sp_script_literals(&literals, script, &e) == 0);
    need(sp_buf_add_str(&out, SP_STR("{\"plain\":")));
    if (plain.is_opaque)
        need(sp_buf_add_str(&out, SP_STR("null")));
    else
        add_segments(&out, &plain);
    need(sp_buf_add_str(&out, SP_STR(",\"literals\":")));
    add_segments(&out, &literals);
    need(sp_buf_add(&out, "}\n", 2));
    (void)fwrite(out.data, 1, out.len, stdout);
}

int main(void)
{
    char line[32];

    while (fgets(line, sizeof line, stdin) != NULL) {
        char *end;
        const unsigned long n = strtoul(line, &end, 10);

        if (end == line || *end != '\n' || n > MAX_TEXT)
            return 2;
        auto_free char *text = malloc(n == 0 ? 1 : n);
        need(text != NULL);
        if (fread(text, 1, n, stdin) != n)
            return 2;
        answer((struct sp_str){text, n});
    }
    return 0;
}
