/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read is a whole and consistent tree within the bounds, and keys of one table differ; what
 * is refused says where. Merged over itself a tree stays what it is.
 */
#include "base/auto.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "fuzz.h"

static size_t check(const struct sp_toml *t, const struct sp_toml_value *v, uint32_t depth)
{
    size_t values = 1;
    uint32_t children = 0;

    CHECK(v->doc == t && v->at <= t->text.n && v->key_at <= t->text.n);
    CHECK(v->key.p == NULL || (sp_utf8_is_valid(v->key) && v->key.p[v->key.n] == 0));
    if (v->type == SP_TOML_STRING)
        CHECK(sp_utf8_is_valid(v->text) && v->text.p[v->text.n] == 0);
    if (v->type != SP_TOML_ARRAY && v->type != SP_TOML_TABLE)
        return values;
    CHECK(depth <= SP_TOML_MAX_DEPTH && (v->first == NULL) == (v->last == NULL));
    for (const struct sp_toml_value *c = v->first; c != NULL; c = c->next) {
        CHECK((c->key.p != NULL) == (v->type == SP_TOML_TABLE));
        CHECK(c->next != NULL || c == v->last);
        if (v->type == SP_TOML_TABLE && children < 200) /* looking up is linear */
            CHECK(sp_toml_get(v, c->key) == c);
        values += check(t, c, depth + 1);
        children++;
    }
    CHECK(children == v->count);
    return values;
}

static void check_refusal(const struct sp_err *e, int r, size_t size)
{
    CHECK(r == -SP_E_INVALID && sp_utf8_is_valid(sp_str_of(e->msg)));
    CHECK(strncmp(e->msg, size > SP_TOML_MAX_BYTES ? "x: more than" : "x: line ",
                  strlen("x: line ")) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_toml struct sp_toml t = {0};
    auto_toml struct sp_toml over = {0};
    struct sp_err e = {0};
    const int r = sp_toml_parse(&t, "x", (struct sp_str){text, size}, &e);

    if (r < 0) {
        check_refusal(&e, r, size);
        CHECK(t.root == NULL);
        return 0;
    }
    const size_t values = check(&t, t.root, 0);
    CHECK(values <= SP_TOML_MAX_VALUES + 1);
    if (values > 2000)
        return 0; /* merging looks keys up */
    CHECK(sp_toml_parse(&over, "x", (struct sp_str){text, size}, &e) == 0);
    const uint32_t count = t.root->count;
    sp_toml_merge(t.root, over.root);
    CHECK(t.root->count == count && over.root->count == 0);
    return 0;
}
