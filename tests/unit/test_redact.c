/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/redact.h"
#include "test.h"

static void shows(const char *url, const char *want)
{
    char *text = sp_redact_url(url);
    char small[12];

    assert_string_equal(text, want);
    free(text);
    (void)sp_redact_url_to(url, small, sizeof small);
    assert_memory_equal(small, want, strlen(small));
}

static void test_a_url_loses_its_query(void **state)
{
    (void)state;
    shows("ws://127.0.0.1:1/?token=abc", "ws://127.0.0.1:1/?...");
    shows("ws://h:1?token=abc", "ws://h:1?...");
    shows("ws://h:1/path?a?b=c", "ws://h:1/path?...");
    shows("ws://h:1/", "ws://h:1/");
    shows("unix:///run/socket", "unix:///run/socket");
    shows("", "");
    shows("?", "?...");
}

static void becomes(const char *text, const char *want)
{
    char copy[128];

    (void)snprintf(copy, sizeof copy, "%s", text);
    assert_int_equal(sp_redact_is_needed(text), strcmp(text, want) != 0);
    sp_redact_in_place(copy);
    assert_string_equal(copy, want);
}

static void test_words_are_overwritten(void **state)
{
    (void)state;
    becomes("ws://h:1/?token=abc", "ws://h:1/?*********");
    becomes("--on=wss://h/?token=abc", "--on=wss://h/?*********");
    becomes("server=\"ws://h/?t=abc\" # ?", "server=\"ws://h/?*****\" # ?");
    becomes("ws://a/?b=c ws://d/?e=f ws://g", "ws://a/?*** ws://d/?*** ws://g");
    becomes("http://h/?a=b ws://h/?c", "http://h/?a=b ws://h/?*");
    becomes("http://h/?a=b", "http://h/?a=b");
    becomes("ws://h/", "ws://h/");
    becomes("://?a", "://?a");
    becomes("ws:/", "ws:/");
    becomes("what?", "what?");
    becomes("", "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_url_loses_its_query),
    cmocka_unit_test(test_words_are_overwritten),
};

TEST_MAIN(tests)
