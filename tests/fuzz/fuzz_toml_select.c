/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of paths (keys after dots, paths after commas), then TOML. What is selected and written is
 * TOML again, the same when it is selected and written once more, and no more than there was.
 */
#include "base/auto.h"
#include "base/toml.h"
#include "fuzz.h"

#define MAX_PATHS 64
#define MAX_KEYS  256
#define MAX_TEXT  (8 << 20)

struct paths {
    struct sp_toml_path items[MAX_PATHS];
    struct sp_str keys[MAX_KEYS];
    uint32_t count, key_count;
};

static void read_paths(struct paths *p, struct sp_str line)
{
    const char *from = line.p;

    for (size_t i = 0; i <= line.n && p->count < MAX_PATHS && p->key_count < MAX_KEYS; i++) {
        if (i < line.n && line.p[i] != '.' && line.p[i] != ',')
            continue;
        struct sp_toml_path *path = &p->items[p->count];
        if (path->count == 0)
            path->keys = &p->keys[p->key_count];
        p->keys[p->key_count++] = (struct sp_str){from, (size_t)(line.p + i - from)};
        path->count++;
        from = line.p + i + 1;
        if (i == line.n || line.p[i] == ',')
            p->count++;
    }
    if (p->count < MAX_PATHS && p->items[p->count].count != 0)
        p->count++;
}

static bool select_and_write(struct sp_str text, struct paths *p, struct sp_buf *out)
{
    auto_toml struct sp_toml t = {0};
    struct sp_err e = {0};

    if (sp_toml_parse(&t, "x", text, &e) < 0)
        return false;
    const uint32_t before = t.root->count;
    const bool is_left = sp_toml_select(t.root, p->items, p->count);
    CHECK(t.root->count <= before && is_left == (t.root->count != 0));
    CHECK((t.root->first == NULL) == (t.root->count == 0));
    return sp_toml_write(out, t.root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    const size_t line = end == NULL ? size : (size_t)(end - data);
    const size_t rest = end == NULL ? 0 : size - line - 1;
    auto_free char *keys = fuzz_copy(data, line);
    auto_free char *text = fuzz_copy(rest == 0 ? (const uint8_t *)"" : data + line + 1, rest);
    auto_buf struct sp_buf once = {.max = MAX_TEXT};
    auto_buf struct sp_buf twice = {.max = MAX_TEXT};
    struct paths p = {0};

    read_paths(&p, (struct sp_str){keys, line});
    if (!select_and_write((struct sp_str){text, rest}, &p, &once) || once.len > SP_TOML_MAX_BYTES)
        return 0;
    CHECK(select_and_write((struct sp_str){once.data, once.len}, &p, &twice));
    CHECK(once.len == twice.len && (once.len == 0 || memcmp(once.data, twice.data, once.len) == 0));
    return 0;
}
