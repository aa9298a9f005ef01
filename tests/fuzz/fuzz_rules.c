/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read answers for any command, and the strictest match is what check tells; what is
 * refused says where, and leaves nothing behind. The words of a rule match the rule.
 */
#include "approve/rules/rules.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "fuzz.h"

static void check_refusal(const struct sp_err *e, int r)
{
    CHECK(r == -SP_E_INVALID && sp_utf8_is_valid(sp_str_of(e->msg)));
    CHECK(strncmp(e->msg, "x:", 2) == 0 && e->msg[2] >= '1' && e->msg[2] <= '9');
}

static void check_matches(const struct sp_rules *r, struct sp_words command)
{
    struct sp_rule_matches m = {0};
    auto_buf struct sp_buf out = {0};

    CHECK(sp_rules_match(r, command, true, &m));
    for (uint32_t i = 0; i < m.count; i++) {
        const struct sp_words prefix = m.items[i].prefix;

        CHECK(prefix.count > 0 && prefix.count <= command.count);
        for (uint32_t w = 1; w < prefix.count; w++)
            CHECK(sp_str_eq(prefix.items[w], command.items[w]));
        CHECK((m.items[i].resolved_program.p == NULL) ==
              sp_str_eq(prefix.items[0], command.items[0]));
        if (m.items[i].resolved_program.p != NULL)
            CHECK(command.items[0].p[0] == '/');
    }
    CHECK(sp_rule_matches_add_json(&out, &m, SP_MATCHES_CHECK));
    CHECK(sp_utf8_is_valid((struct sp_str){out.data, out.len}));
    sp_rule_matches_done(&m);
}

/* The words of the text itself: some of them are those of its rules. */
static void ask(const struct sp_rules *r, struct sp_str text)
{
    struct sp_str items[4];
    uint32_t count = 0;

    for (size_t i = 0; i < text.n && i < 2000; i++) {
        size_t n = i;

        while (n < text.n && strchr("\"'[](), \n", text.p[n]) == NULL)
            n++;
        if (n > i) {
            items[count++] = (struct sp_str){text.p + i, n - i};
            check_matches(r, (struct sp_words){items + count - 1, 1});
        }
        if (count == 4) {
            check_matches(r, (struct sp_words){items, count});
            count = 0;
        }
        i = n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};
    struct sp_rules_file file;

    CHECK(m != NULL);
    const int result = sp_rules_add_text(m, "x", (struct sp_str){text, size}, NULL, NULL, &e);
    struct sp_rules *r = sp_rules_make(m);
    CHECK(r != NULL);
    if (result < 0) {
        check_refusal(&e, result);
        CHECK(!sp_rules_file(r, 0, &file));
    } else {
        ask(r, (struct sp_str){text, size});
    }
    sp_rules_unref(r);
    sp_rules_maker_free(m);
    return 0;
}
