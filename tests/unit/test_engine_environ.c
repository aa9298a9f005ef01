/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of a command that a model runs, and the cases 143 and 145 to 147. */
#include "engine/command_env.h"
#include "memory_fixture.h"
#include "test.h"

#define TEN                                                                         \
    "CODEX_CI=1 COLORTERM= GH_PAGER=cat GIT_PAGER=cat LANG=C.UTF-8 LC_ALL=C.UTF-8 " \
    "LC_CTYPE=C.UTF-8 NO_COLOR=1 PAGER=cat "

#define OWN(...) ((char *const[]){__VA_ARGS__, NULL})
#define S(text)  ((char *)(uintptr_t)(text))
#define V(name, value)                 \
    {                                  \
        {(name), sizeof(name) - 1},    \
        {                              \
            (value), sizeof(value) - 1 \
        }                              \
    }
#define VARS(...) (struct sp_env_vars) VARS_OF(((const struct sp_env_var[]){__VA_ARGS__}))
#define VARS_OF(array)                                     \
    {                                                      \
        (array), sizeof(array) / sizeof(struct sp_env_var) \
    }

static char *const nothing[] = {NULL};

/* Inherit all, ignore the default excludes: the policy when none is configured. */
static struct sp_env_request usual(char *const *own)
{
    return (struct sp_env_request){
        .own = own, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
}

typedef int make_fn(const struct sp_env_request *ask, struct sp_buf *out, uint32_t *ret_count,
                    struct sp_err *e);

/* Pairs with a blank behind each. */
static void is_line(const struct sp_buf *out, uint32_t count, const char *want)
{
    char line[4096];
    uint32_t strings = 0;

    assert_true(out->len < sizeof line);
    for (size_t i = 0; i < out->len; i++) {
        line[i] = out->data[i] != 0 ? out->data[i] : ' ';
        strings += out->data[i] == 0;
    }
    line[out->len] = 0;
    assert_string_equal(line, want);
    assert_int_equal(count, strings);
}

static void makes_by(make_fn *make, const struct sp_env_request *ask, const char *want)
{
    struct sp_err e = {0};
    auto_buf struct sp_buf out = {0};
    uint32_t count = 0;

    if (make(ask, &out, &count, &e) < 0)
        fail_msg("%s", e.msg);
    is_line(&out, count, want);
}

static void makes(const struct sp_env_request *ask, const char *want)
{
    makes_by(sp_env_make, ask, want);
}

/* ---- 9.1 ---- */

/* Case 143. */
static void test_an_empty_base_becomes_the_ten_and_our_own(void **state)
{
    struct sp_env_request ask = usual(nothing);

    (void)state;
    ask.plain = sp_env_plain;
    makes(&ask, TEN "SALLYPORT=1 TERM=dumb ");
    assert_int_equal(sp_env_plain.count, 11);
}

static void test_the_ten_overwrite_what_was_there_and_keep_the_rest(void **state)
{
    struct sp_env_request ask = usual(OWN(S("NO_COLOR=0"), S("PATH=/usr/bin")));

    (void)state;
    ask.plain = sp_env_plain;
    makes(&ask, "CODEX_CI=1 COLORTERM= GH_PAGER=cat GIT_PAGER=cat LANG=C.UTF-8 LC_ALL=C.UTF-8 "
                "LC_CTYPE=C.UTF-8 NO_COLOR=1 PAGER=cat PATH=/usr/bin SALLYPORT=1 TERM=dumb ");
}

static void test_the_ten_overwrite_what_the_policy_sets(void **state)
{
    struct sp_env_request ask = usual(OWN(S("TERM=xterm")));

    (void)state;
    ask.set = VARS(V("TERM", "vt100"), V("PAGER", "less"), V("COLORTERM", "truecolor"));
    ask.plain = sp_env_plain;
    makes(&ask, TEN "SALLYPORT=1 TERM=dumb ");
}

static void test_one_shot_runs_do_not_get_the_ten(void **state)
{
    struct sp_env_request ask = usual(OWN(S("TERM=xterm"), S("LANG=de_DE.UTF-8")));

    (void)state;
    makes(&ask, "LANG=de_DE.UTF-8 TERM=xterm ");
}

static void test_the_ten_can_be_others(void **state)
{
    struct sp_env_request ask = usual(OWN(S("A=1"), S("B=1")));

    (void)state;
    ask.plain = VARS(V("B", "2"));
    makes(&ask, "A=1 B=2 ");
}

static void test_who_runs_it_is_told(void **state)
{
    struct sp_env_request ask =
        usual(OWN(S("CODEX_THREAD_ID=old"), S("CODEX_SESSION_ID=old"), S("CODEX_TOOL_CALL_ID=old"),
                  S("CODEX_PERMISSION_PROFILE=old")));

    (void)state;
    ask.set = VARS(V("CODEX_THREAD_ID", "set"), V("CODEX_TOOL_CALL_ID", "set"));
    ask.thread_id = SP_STR("t-1");
    ask.session_id = SP_STR("s-1");
    ask.call_id = SP_STR("c-1");
    ask.permission_profile = SP_STR(":workspace");
    makes(&ask, "CODEX_PERMISSION_PROFILE=:workspace CODEX_SESSION_ID=s-1 CODEX_THREAD_ID=t-1 "
                "CODEX_TOOL_CALL_ID=c-1 ");
}

static void test_without_an_active_profile_none_is_named(void **state)
{
    struct sp_env_request ask = usual(OWN(S("CODEX_PERMISSION_PROFILE=outer"), S("A=1")));

    (void)state;
    ask.set = VARS(V("CODEX_PERMISSION_PROFILE", "set"));
    makes(&ask, "A=1 ");
}

static void test_marks_are_those_of_this_attempt(void **state)
{
    char *const outer[] = {S("CODEX_SANDBOX=seatbelt"), S("CODEX_SANDBOX_NETWORK_DISABLED=1"),
                           S("SALLYPORT_SANDBOX=linux"), S("A=1"), NULL};
    struct sp_env_request ask = usual(outer);

    (void)state;
    makes(&ask, "A=1 "); /* an attempt without a sandbox */
    ask.marks = VARS(V("CODEX_SANDBOX_NETWORK_DISABLED", "1"), V("HTTP_PROXY", "p"));
    makes(&ask, "A=1 CODEX_SANDBOX_NETWORK_DISABLED=1 HTTP_PROXY=p ");
}

static void test_marks_come_last(void **state)
{
    struct sp_env_request ask = usual(OWN(S("A=own")));

    (void)state;
    ask.set = VARS(V("A", "set"));
    ask.plain = VARS(V("A", "plain"), V("CODEX_SESSION_ID", "plain"));
    ask.session_id = SP_STR("s-1");
    makes(&ask, "A=plain CODEX_SESSION_ID=plain ");
    ask.marks = VARS(V("A", "mark"));
    makes(&ask, "A=mark CODEX_SESSION_ID=plain ");
}

/* Case 146, and the same for every layer. */
static void test_some_names_no_command_sees(void **state)
{
    char *const own[] = {S("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN=1"),
                         S("NODE_REPL_AUTH_TOKEN=1"),
                         S("OPENAI_FEDERATION_RULE_ID=1"),
                         S("OPENAI_IDENTITY_TOKEN_FILE=1"),
                         S("OPENAI_WORKLOAD_IDENTITY_CONTEXT=1"),
                         S("SALLYPORT_TOKEN_FILE=1"),
                         S("Node_Repl_Auth_Token=1"),
                         S("MINE=1"),
                         S("A=1"),
                         NULL};
    const struct sp_str mine[] = {SP_STR("Mine")};
    struct sp_env_request ask = usual(own);

    (void)state;
    ask.never_seen = mine;
    ask.never_seen_count = 1;
    ask.set = VARS(V("OPENAI_IDENTITY_TOKEN_FILE", "2"), V("openai_identity_token_file", "2"),
                   V("Codex_Exec_Server_Noise_Auth_Token", "2"), V("mine", "2"),
                   V("sallyport_token_file", "2"));
    ask.plain = VARS(V("NODE_REPL_AUTH_TOKEN", "3"), V("MINE", "3"));
    ask.marks = VARS(V("OPENAI_FEDERATION_RULE_ID", "4"), V("miNe", "4"));
    makes(&ask, "A=1 ");
}

/* ---- 9.2 ---- */

static void test_all_core_or_nothing_is_inherited(void **state)
{
    char *const own[] = {
        S("PATH=1"),     S("SHELL=1"), S("TMPDIR=1"), S("TEMP=1"),    S("TMP=1"),
        S("HOME=1"),     S("LANG=1"),  S("LC_ALL=1"), S("USER=1"),    S("LOGNAME=1"),
        S("LC_CTYPE=1"), S("Path=1"),  S("EDITOR=1"), S("LC_TIME=1"), NULL};
    struct sp_env_request ask = usual(own);

    (void)state;
    makes(&ask, "EDITOR=1 HOME=1 LANG=1 LC_ALL=1 LC_CTYPE=1 LC_TIME=1 LOGNAME=1 PATH=1 Path=1 "
                "SHELL=1 TEMP=1 TMP=1 TMPDIR=1 USER=1 ");
    ask.policy.inherit = SP_ENV_CORE;
    makes(&ask, "HOME=1 LANG=1 LC_ALL=1 LC_CTYPE=1 LOGNAME=1 PATH=1 Path=1 SHELL=1 TEMP=1 TMP=1 "
                "TMPDIR=1 USER=1 ");
    ask.policy.inherit = SP_ENV_NONE;
    makes(&ask, "");
}

static void test_default_excludes_hold_unless_ignored(void **state)
{
    struct sp_env_request ask =
        usual(OWN(S("API_KEY=1"), S("monkey=1"), S("MY_SECRETS=1"), S("TOKENS=1"), S("A=1")));

    (void)state;
    makes(&ask, "A=1 API_KEY=1 MY_SECRETS=1 TOKENS=1 monkey=1 ");
    ask.policy.ignores_default_excludes = false;
    makes(&ask, "A=1 ");
    ask.set = VARS(V("API_KEY", "2")); /* set comes after the excludes */
    makes(&ask, "A=1 API_KEY=2 ");
}

static void test_exclude_drops_what_is_inherited_but_not_what_is_set(void **state)
{
    const struct sp_str patterns[] = {SP_STR("aws_*"), SP_STR("B?")};
    struct sp_env_request ask = usual(OWN(S("AWS_ID=1"), S("BC=1"), S("BCD=1")));

    (void)state;
    ask.policy.exclude = patterns;
    ask.policy.exclude_count = 2;
    makes(&ask, "BCD=1 ");
    ask.set = VARS(V("AWS_ID", "2"));
    makes(&ask, "AWS_ID=2 BCD=1 ");
}

/* Case 145. */
static void test_include_only_filters_what_is_set_too(void **state)
{
    const struct sp_str keep[] = {SP_STR("KEEP")};
    struct sp_env_request ask = usual(OWN(S("OWNER_ONLY=1"), S("KEEP=owner")));

    (void)state;
    ask.policy.inherit = SP_ENV_NONE;
    ask.policy.include_only = keep;
    ask.policy.include_only_count = 1;
    ask.set = VARS(V("KEEP", "preserved"), V("DROP", "1"));
    makes(&ask, "KEEP=preserved ");
}

static void test_the_thread_id_and_the_ten_survive_include_only(void **state)
{
    const struct sp_str keep[] = {SP_STR("k*")};
    struct sp_env_request ask = usual(OWN(S("A=1"), S("KEEP=1")));

    (void)state;
    ask.policy.include_only = keep;
    ask.policy.include_only_count = 1;
    ask.thread_id = SP_STR("t-1");
    ask.plain = VARS(V("TERM", "dumb"));
    makes(&ask, "CODEX_THREAD_ID=t-1 KEEP=1 TERM=dumb ");
}

static void test_the_policy_alone_knows_nothing_of_the_call(void **state)
{
    struct sp_env_request ask = usual(OWN(S("A=1"), S("TERM=xterm"), S("NODE_REPL_AUTH_TOKEN=1")));

    (void)state;
    ask.set = VARS(V("B", "2"));
    ask.thread_id = ask.session_id = ask.call_id = ask.permission_profile = SP_STR("x");
    ask.plain = sp_env_plain;
    ask.marks = VARS(V("CODEX_SANDBOX", "seatbelt"));
    makes_by(sp_env_of_policy, &ask, "A=1 B=2 TERM=xterm ");
}

/* ---- what cannot be said ---- */

static void is_refused(const struct sp_env_request *ask, enum sp_code code, const char *text)
{
    struct sp_err e = {0};
    auto_buf struct sp_buf out = {0};
    uint32_t count = 42;

    assert_int_equal(sp_env_make(ask, &out, &count, &e), -(int)code);
    assert_string_equal(e.msg, text);
    assert_int_equal(count, 42);
    assert_int_equal(out.len, 0);
}

static void test_names_and_values_must_be_tellable(void **state)
{
    struct sp_env_request ask = usual(nothing);

    (void)state;
    ask.set = VARS(V("", "1"));
    is_refused(&ask, SP_E_INVALID, "`` cannot name an environment variable");
    ask.set = VARS(V("NODE_REPL_AUTH_TOKEN=x", "1"));
    is_refused(&ask, SP_E_INVALID, "`NODE_REPL_AUTH_TOKEN=x` cannot name an environment variable");
    ask.set = VARS(V("A\0B", "1"));
    is_refused(&ask, SP_E_FAILED, "data provided contains a nul byte");
    ask.set = VARS(V("A", "1\0"));
    is_refused(&ask, SP_E_FAILED, "data provided contains a nul byte");
    ask.set = (struct sp_env_vars){0};
    ask.call_id = SP_STR("c\0d");
    is_refused(&ask, SP_E_FAILED, "data provided contains a nul byte");
}

static void test_memory_may_end_anywhere(void **state)
{
    struct sp_env_request ask = usual(OWN(S("A=1")));

    (void)state;
    ask.set = VARS(V("B", "2"));
    ask.thread_id = SP_STR("t");
    ask.plain = sp_env_plain;
    for (long n = 1;; n++) {
        struct sp_err e = {0};
        auto_buf struct sp_buf out = {0};
        uint32_t count = 0;

        end_memory_at(n);
        const int r = sp_env_make(&ask, &out, &count, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 2);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_string_equal(e.msg, "make environment");
    }
}

/* ---- overlay ---- */

static void overlays(struct sp_str of_policy, struct sp_str made, bool leaves_path,
                     const char *want)
{
    auto_buf struct sp_buf out = {0};
    uint32_t count = 0;

    assert_true(sp_env_overlay(of_policy, made, leaves_path, &out, &count));
    is_line(&out, count, want);
}

/* As it is written: each string ends in a NUL. */
#define ENV(text) ((struct sp_str){(text), sizeof(text)})

/* Case 147. */
static void test_the_overlay_is_what_differs(void **state)
{
    (void)state;
    overlays(ENV("HOME=/h\0PATH=/p\0S=x"), ENV("HOME=/h\0PATH=/q\0S=x\0T=1"), false,
             "PATH=/q T=1 ");
    overlays(ENV("A=1"), ENV("A=1"), false, "");
    overlays((struct sp_str){0}, ENV("A=1"), false, "A=1 ");
    overlays(ENV("A=1"), (struct sp_str){0}, false, "");
    overlays(ENV("A=12"), ENV("A=1"), false, "A=1 ");
    overlays(ENV("A="), ENV("A=1"), false, "A=1 ");
    overlays(ENV("A=1"), ENV("A="), false, "A= ");
    overlays(ENV("AA=1"), ENV("A=1"), false, "A=1 ");
}

static void test_the_profile_is_always_in_the_overlay(void **state)
{
    (void)state;
    overlays(ENV("CODEX_PERMISSION_PROFILE=p\0Z=1"), ENV("CODEX_PERMISSION_PROFILE=p\0Z=1"), false,
             "CODEX_PERMISSION_PROFILE=p ");
}

static void test_a_snapshot_brings_its_own_path(void **state)
{
    (void)state;
    overlays(ENV("PATH=/p"), ENV("PATH=/q\0PATHS=1"), true, "PATHS=1 ");
    overlays(ENV("PATH=/p"), ENV("PATH=/q\0PATHS=1"), false, "PATH=/q PATHS=1 ");
}

static void test_the_overlay_of_a_made_environment(void **state)
{
    struct sp_env_request ask = usual(OWN(S("HOME=/h"), S("TERM=xterm"), S("LANG=C.UTF-8")));
    auto_buf struct sp_buf of_policy = {0};
    auto_buf struct sp_buf made = {0};
    uint32_t count = 0;

    (void)state;
    ask.thread_id = SP_STR("t-1");
    ask.plain = sp_env_plain;
    assert_int_equal(sp_env_of_policy(&ask, &of_policy, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_int_equal(sp_env_make(&ask, &made, &count, NULL), 0);
    assert_int_equal(count, 13);
    overlays((struct sp_str){of_policy.data, of_policy.len}, (struct sp_str){made.data, made.len},
             false,
             "CODEX_CI=1 CODEX_THREAD_ID=t-1 COLORTERM= GH_PAGER=cat GIT_PAGER=cat "
             "LC_ALL=C.UTF-8 LC_CTYPE=C.UTF-8 NO_COLOR=1 PAGER=cat SALLYPORT=1 TERM=dumb ");
}

static void test_an_overlay_without_memory_says_so(void **state)
{
    auto_buf struct sp_buf out = {.max = 4};
    uint32_t count = 42;

    (void)state;
    assert_false(sp_env_overlay((struct sp_str){0}, ENV("A=1\0B=2"), false, &out, &count));
    assert_int_equal(count, 42);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_empty_base_becomes_the_ten_and_our_own),
    cmocka_unit_test(test_the_ten_overwrite_what_was_there_and_keep_the_rest),
    cmocka_unit_test(test_the_ten_overwrite_what_the_policy_sets),
    cmocka_unit_test(test_one_shot_runs_do_not_get_the_ten),
    cmocka_unit_test(test_the_ten_can_be_others),
    cmocka_unit_test(test_who_runs_it_is_told),
    cmocka_unit_test(test_without_an_active_profile_none_is_named),
    cmocka_unit_test(test_marks_are_those_of_this_attempt),
    cmocka_unit_test(test_marks_come_last),
    cmocka_unit_test(test_some_names_no_command_sees),
    cmocka_unit_test(test_all_core_or_nothing_is_inherited),
    cmocka_unit_test(test_default_excludes_hold_unless_ignored),
    cmocka_unit_test(test_exclude_drops_what_is_inherited_but_not_what_is_set),
    cmocka_unit_test(test_include_only_filters_what_is_set_too),
    cmocka_unit_test(test_the_thread_id_and_the_ten_survive_include_only),
    cmocka_unit_test(test_the_policy_alone_knows_nothing_of_the_call),
    cmocka_unit_test(test_names_and_values_must_be_tellable),
    cmocka_unit_test(test_memory_may_end_anywhere),
    cmocka_unit_test(test_the_overlay_is_what_differs),
    cmocka_unit_test(test_the_profile_is_always_in_the_overlay),
    cmocka_unit_test(test_a_snapshot_brings_its_own_path),
    cmocka_unit_test(test_the_overlay_of_a_made_environment),
    cmocka_unit_test(test_an_overlay_without_memory_says_so),
};

TEST_MAIN(tests)
