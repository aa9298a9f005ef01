/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is taken as the arguments of each tool. What is read points into what was copied; what
 * is refused says why and where, and every text is one that a model can be shown.
 */
#include "base/auto.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "mcp/arguments.h"

static void check_refusal(int r, const struct sp_err *e)
{
    CHECK(r == -SP_E_INVALID || r == -SP_E_MALFORMED);
    CHECK(e->msg[0] != 0 && sp_utf8_is_valid(sp_str_of(e->msg)));
}

static void check_inside(const struct sp_arguments *a, size_t size, struct sp_str s)
{
    CHECK(s.p == NULL || (s.p >= a->text && s.p + s.n <= a->text + size));
    CHECK(sp_utf8_is_valid(s));
}

static void check_words(const struct sp_arguments *a, size_t size, const struct sp_str *words,
                        uint32_t count)
{
    CHECK(count == 0 || words != NULL);
    for (uint32_t i = 0; i < count; i++)
        check_inside(a, size, words[i]);
}

static void read_exec(struct sp_str text, const struct sp_tools_options *o)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_exec_request ask = {0};
    struct sp_err e = {0};
    int r = sp_arguments_parse(&a, text, &e);

    if (r == 0)
        r = sp_arguments_exec(&a, o, SP_SLOTS_CODEX, &ask, &e);
    if (r < 0) {
        check_refusal(r, &e);
        return;
    }
    CHECK(ask.cmd.p != NULL && ask.argc == 0);
    check_inside(&a, text.n, ask.cmd);
    check_inside(&a, text.n, ask.workdir);
    check_inside(&a, text.n, ask.shell);
    check_inside(&a, text.n, ask.environment_id);
    check_inside(&a, text.n, ask.justification);
    check_words(&a, text.n, ask.prefix_rule, ask.prefix_rule_count);
    CHECK(ask.additional == NULL || ask.additional == &a.grant);
    CHECK(!o->has_fixed_shell || ask.shell.p == NULL);
}

static void read_write(struct sp_str text, const struct sp_tools_options *o)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_write_request ask = {0};
    struct sp_err e = {0};
    int r = sp_arguments_parse(&a, text, &e);

    if (r == 0)
        r = sp_arguments_write(&a, o, SP_SLOTS_CODEX, &ask, &e);
    if (r < 0) {
        check_refusal(r, &e);
        return;
    }
    check_inside(&a, text.n, ask.chars);
    CHECK(o->has_no_timeout || !ask.no_timeout);
}

static void read_compat(struct sp_str text)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_compat_request ask = {0};
    struct sp_err e = {0};
    size_t given = 0;
    int r = sp_arguments_parse(&a, text, &e);

    if (r == 0)
        r = sp_arguments_compat(&a, &ask, &e);
    if (r < 0) {
        check_refusal(r == -SP_E_NOT_FOUND ? -SP_E_INVALID : r, &e); /* a bad session_id */
        return;
    }
    check_inside(&a, text.n, ask.session_id);
    check_words(&a, text.n, ask.input, ask.input_count);
    CHECK(sp_utf8_is_valid(ask.chars));
    for (uint32_t i = 0; i < ask.input_count; i++)
        given += ask.input[i].n;
    CHECK(ask.chars.n >= given && ask.chars.n <= given + ask.input_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sp_tools_options few = {.has_fixed_shell = true};
    static const struct sp_tools_options all = {.has_login = true, .has_no_timeout = true};
    auto_free char *copy = fuzz_copy(data, size);
    const struct sp_str text = {copy, size};

    read_exec(text, &few);
    read_exec(text, &all);
    read_write(text, &few);
    read_write(text, &all);
    read_compat(text);
    CHECK(size == 0 || memcmp(copy, data, size) == 0);
    return 0;
}
