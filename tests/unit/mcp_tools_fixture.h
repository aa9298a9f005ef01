/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_tools_fixture: a server with real cells and one caller, whose tools are called by name; and a
 * small checker that holds every structured result against the schema of its tool.
 */
#ifndef SP_MCP_TOOLS_FIXTURE_H
#define SP_MCP_TOOLS_FIXTURE_H

#include <stdio.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/json.h"
#include "engine/local.h"
#include "mcp/caller.h"
#include "mcp/tool.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static struct sp_backend *backend;
static struct sp_mcp *mcp;
static struct sp_mcp_caller *caller;
static struct sp_manager_options manager_options;
static struct sp_mcp_options mcp_options;
static struct sp_environment_spec place;
static int fds_before;
static char *listed;     /* what tools/list says */
static bool is_starving; /* no memory for the checker either */

struct called {
    struct sp_mcp_run *run; /* NULL: it is over */
    const char *tool;
    bool is_there, is_error;
    int session_id;
    unsigned questions;
    char *text, *note, *json;
};

/* ---- a checker of schemas ---- */

struct checker {
    struct sp_json schema, value;
    char *schema_text, *value_text;
};

static inline bool is_of_type(const struct sp_json *j, uint32_t t, struct sp_str type)
{
    switch (sp_json_type(j, t)) {
    case SP_JSON_NULL:
        return sp_str_eq(type, SP_STR("null"));
    case SP_JSON_FALSE:
    case SP_JSON_TRUE:
        return sp_str_eq(type, SP_STR("boolean"));
    case SP_JSON_INT:
    case SP_JSON_UINT:
        return sp_str_eq(type, SP_STR("integer")) || sp_str_eq(type, SP_STR("number"));
    case SP_JSON_REAL:
        return sp_str_eq(type, SP_STR("number"));
    case SP_JSON_STRING:
        return sp_str_eq(type, SP_STR("string"));
    case SP_JSON_ARRAY:
        return sp_str_eq(type, SP_STR("array"));
    case SP_JSON_OBJECT:
        return sp_str_eq(type, SP_STR("object"));
    }
    return false;
}

static inline void check_value(struct checker *c, uint32_t schema, uint32_t value);

static inline uint32_t find_member(struct sp_json *j, uint32_t object, struct sp_str name)
{
    for (uint32_t k = sp_json_first(j, object); k != SP_JSON_NONE; k = sp_json_next(j, object, k))
        if (sp_str_eq(sp_json_str(j, k), name))
            return k + 1;
    return SP_JSON_NONE;
}

static inline void check_members(struct checker *c, uint32_t schema, uint32_t value)
{
    struct sp_json *s = &c->schema;
    struct sp_json *v = &c->value;
    const uint32_t properties = sp_json_get(s, schema, "properties");
    const uint32_t required = sp_json_get(s, schema, "required");
    const uint32_t others = sp_json_get(s, schema, "additionalProperties");

    for (uint32_t k = sp_json_first(v, value); k != SP_JSON_NONE; k = sp_json_next(v, value, k)) {
        const struct sp_str name = sp_json_str(v, k);
        const uint32_t known =
            properties == SP_JSON_NONE ? SP_JSON_NONE : find_member(s, properties, name);

        if (known != SP_JSON_NONE)
            check_value(c, known, k + 1);
        else if (others != SP_JSON_NONE && sp_json_type(s, others) == SP_JSON_FALSE)
            fail_msg("member `%.*s` is not in the schema", (int)name.n, name.p);
    }
    for (uint32_t t = required == SP_JSON_NONE ? SP_JSON_NONE : sp_json_first(s, required);
         t != SP_JSON_NONE; t = sp_json_next(s, required, t)) {
        const struct sp_str name = sp_json_str(s, t);

        if (find_member(v, value, name) == SP_JSON_NONE)
            fail_msg("member `%.*s` is missing", (int)name.n, name.p);
    }
}

static inline void check_enum(struct checker *c, uint32_t list, uint32_t value)
{
    const struct sp_str got = sp_json_str(&c->value, value);

    for (uint32_t t = sp_json_first(&c->schema, list); t != SP_JSON_NONE;
         t = sp_json_next(&c->schema, list, t))
        if (sp_str_eq(sp_json_str(&c->schema, t), got))
            return;
    fail_msg("`%.*s` is not among the values", (int)got.n, got.p);
}

static inline void check_value(struct checker *c, uint32_t schema, uint32_t value)
{
    const uint32_t type = sp_json_get(&c->schema, schema, "type");
    const uint32_t list = sp_json_get(&c->schema, schema, "enum");
    const uint32_t items = sp_json_get(&c->schema, schema, "items");

    assert_int_not_equal(type, SP_JSON_NONE);
    if (!is_of_type(&c->value, value, sp_json_str(&c->schema, type)))
        fail_msg("a value is no %.*s", (int)sp_json_str(&c->schema, type).n,
                 sp_json_str(&c->schema, type).p);
    if (list != SP_JSON_NONE)
        check_enum(c, list, value);
    if (sp_json_type(&c->value, value) == SP_JSON_OBJECT)
        check_members(c, schema, value);
    if (sp_json_type(&c->value, value) == SP_JSON_ARRAY && items != SP_JSON_NONE)
        for (uint32_t t = sp_json_first(&c->value, value); t != SP_JSON_NONE;
             t = sp_json_next(&c->value, value, t))
            check_value(c, items, t);
}

static inline void parse(struct sp_json *j, char *text)
{
    struct sp_err e = {0};

    if (sp_json_parse(j, text, strlen(text), &e) < 0)
        fail_msg("%s in %s", e.msg, text);
}

static inline uint32_t find_listed(struct sp_json *j, const char *tool)
{
    for (uint32_t t = sp_json_first(j, 0); t != SP_JSON_NONE; t = sp_json_next(j, 0, t))
        if (sp_str_eq(sp_json_str(j, sp_json_get(j, t, "name")), sp_str_of(tool)))
            return t;
    fail_msg("no tool %s", tool);
    return SP_JSON_NONE;
}

/* A tool that has an output schema always has a structured result, and it fits. */
static inline void check_result(const struct called *c)
{
    struct checker k = {.schema_text = strdup(listed), .value_text = strdup(c->json)};

    parse(&k.schema, k.schema_text);
    const uint32_t schema = sp_json_get(&k.schema, find_listed(&k.schema, c->tool), "outputSchema");
    assert_int_equal(schema != SP_JSON_NONE, c->json[0] != 0);
    if (schema != SP_JSON_NONE) {
        parse(&k.value, k.value_text);
        check_value(&k, schema, 0);
    }
    sp_json_done(&k.schema);
    sp_json_done(&k.value);
    free(k.schema_text);
    free(k.value_text);
}

/* ---- calls ---- */

/* Not with the wrapped ones: a test may have let the memory end. */
static inline char *text_of(struct sp_str s)
{
    char *text = NULL;

    if (asprintf(&text, "%.*s", (int)s.n, s.n == 0 ? "" : s.p) < 0)
        fail_msg("no memory for a test");
    return text;
}

static inline void on_done(void *user, const struct sp_mcp_result *r)
{
    struct called *c = user;

    assert_false(c->is_there);
    c->is_there = true;
    c->run = NULL;
    c->is_error = r->is_error;
    c->text = text_of(r->text);
    c->note = text_of(r->note);
    c->json = text_of(r->structured);
    if (!r->is_error && !is_starving)
        check_result(c);
    if (r->is_error)
        assert_int_equal(r->structured.n, 0);
    sp_loop_stop(loop);
}

static inline void on_question(void *user)
{
    ((struct called *)user)->questions++;
    sp_loop_stop(loop);
}

static inline void on_withdrawn(void *user)
{
    (void)user;
}

static inline void on_started(void *user, int session_id)
{
    ((struct called *)user)->session_id = session_id;
    sp_loop_stop(loop);
}

static const struct sp_mcp_run_ops run_ops = {
    .done = on_done, .question = on_question, .withdrawn = on_withdrawn, .started = on_started};

static inline int try_call(struct called *c, const char *tool, const char *arguments,
                           struct sp_err *e)
{
    const struct sp_str text = arguments[0] == 0 ? SP_STR("{}") : sp_str_of(arguments);
    auto_arguments struct sp_arguments parsed = {0};
    const struct sp_mcp_run_request ask = {
        .tool = sp_str_of(tool), .arguments = &parsed, .repeats_output = true};

    *c = (struct called){.tool = tool};
    int r = sp_arguments_parse(&parsed, text, e);
    if (r == 0)
        r = sp_mcp_run_start(caller, &ask, &run_ops, c, &c->run, e);
    assert_false(c->is_there);
    return r;
}

static inline void begin_call(struct called *c, const char *tool, const char *arguments)
{
    struct sp_err e = {0};

    if (try_call(c, tool, arguments, &e) < 0)
        fail_msg("%s: %s", tool, e.msg);
}

static inline void end_call(struct called *c)
{
    if (c->run != NULL)
        sp_mcp_run_cancel(c->run);
    free(c->text);
    free(c->note);
    free(c->json);
    *c = (struct called){0};
}
#define auto_called __attribute__((cleanup(end_call)))

static inline void on_nap(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static inline void run_for(uint64_t ms)
{
    const uint64_t end = test_now_ms() + ms;

    do {
        struct sp_timer t = {0};

        assert_true(sp_loop_timer(loop, &t, end, on_nap));
        assert_int_equal(sp_loop_run(loop, NULL), 0);
        sp_loop_cancel(loop, &t);
    } while (test_now_ms() < end);
}

#define await(condition)                                   \
    do {                                                   \
        const uint64_t end_ = test_now_ms() + DEADLINE_MS; \
        while (!(condition)) {                             \
            run_for(2);                                    \
            if (test_now_ms() >= end_)                     \
                fail_msg("%s never came", #condition);     \
        }                                                  \
    } while (0)

static inline void call(struct called *c, const char *tool, const char *arguments)
{
    end_call(c);
    begin_call(c, tool, arguments);
    await(c->is_there);
}

SP_PRINTF(3, 4)
static inline void callf(struct called *c, const char *tool, const char *fmt, ...)
{
    char arguments[4096];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    call(c, tool, arguments);
}

static inline void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("`%s` is not in `%s`", part, text);
}

static inline void assert_hasnt(const char *text, const char *part)
{
    if (strstr(text, part) != NULL)
        fail_msg("`%s` is in `%s`", part, text);
}

static inline void assert_fails(struct called *c, const char *tool, const char *arguments,
                                const char *why)
{
    call(c, tool, arguments);
    assert_true(c->is_error);
    assert_has(c->text, why);
}

/* A number in the structured result. */
static inline long number_of(const struct called *c, const char *name)
{
    char key[64];

    (void)snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(c->json, key);
    if (at == NULL)
        fail_msg("no %s in %s", name, c->json);
    return at == NULL ? 0 : strtol(at + strlen(key), NULL, 10);
}

/* ---- the server ---- */

static inline void make_server(void)
{
    static const struct sp_mcp_tool_words words = {true, true};
    auto_buf struct sp_buf list = {0};
    struct sp_err e = {0};

    if (sp_mcp_new(&mcp_options, &mcp, &e) < 0 ||
        sp_mcp_caller_hold(mcp, SP_STR("test"), &caller, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(sp_mcp_tools_add_list(&list, mcp, words) && sp_buf_add(&list, "", 1));
    listed = strdup(list.data);
}

static inline void end_server(void)
{
    sp_mcp_caller_release(caller);
    sp_mcp_free(mcp);
    free(listed);
    listed = NULL;
    mcp = NULL;
}

static inline int begin_at(const char *cwd)
{
    const struct sp_local_options o = {.program = getenv("SALLYPORT"), .cwd = cwd};
    struct sp_err e = {0};

    fds_before = open_fds();
    if (sp_loop_new(&loop, &e) < 0 || sp_local_new(loop, &o, &backend, &e) < 0)
        return -1;
    place = (struct sp_environment_spec){.id = "local", .backend = backend, .cwd = cwd};
    manager_options = (struct sp_manager_options){.loop = loop,
                                                  .environments = &place,
                                                  .environment_count = 1,
                                                  .has_deterministic_ids = true,
                                                  .exited_ttl_ms = 600000,
                                                  .approvals.policy.kind = SP_APPROVAL_NEVER};
    mcp_options = (struct sp_mcp_options){
        .loop = loop, .manager = &manager_options, .tools.has_login = true, .cwd = cwd};
    return 0;
}

static inline int begin(void **state)
{
    (void)state;
    if (begin_at("/") < 0)
        return -1;
    make_server();
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    end_server();
    sp_backend_free(backend);
    sp_loop_free(loop);
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

#define tools_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

#endif
