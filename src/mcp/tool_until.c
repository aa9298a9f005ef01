/* SPDX-License-Identifier: Apache-2.0 */
/* `until`: what a wait ends by, as a model says it and as it is told back. */
#include <inttypes.h>

#include "base/ere.h"
#include "mcp/number.h"
#include "mcp/tool_priv.h"

/* ---- read ---- */

static int take_number(const struct sp_json *j, uint32_t token, const char *name, uint64_t max,
                       uint64_t *ret, struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(j, token);
    struct sp_number n = {0};
    const bool is_number = type == SP_JSON_INT || type == SP_JSON_UINT || type == SP_JSON_REAL;

    if (!is_number || sp_number_read(sp_json_raw(j, token), &n) != SP_NUMBER_WHOLE ||
        n.is_negative || n.magnitude == 0 || n.magnitude > max)
        return sp_fail(e, SP_E_INVALID, 0, "`until`: `%s` is a number from 1 to %" PRIu64, name,
                       max);
    *ret = n.magnitude;
    return 0;
}

/* The pattern is looked at before anything is started for it. */
static int take_pattern(struct sp_json *j, uint32_t token, struct sp_until *ret, struct sp_err *e)
{
    struct sp_ere *x = NULL;

    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_fail(e, SP_E_INVALID, 0, "`until`: `pattern` is a regular expression, a string");
    ret->kind = SP_UNTIL_PATTERN;
    ret->pattern = sp_json_str(j, token);
    const int r = sp_ere_new(ret->pattern, &x, e);
    sp_ere_free(x);
    return r < 0 ? sp_wrap(e, "`until`: `pattern`") : 0;
}

/* 1: it is one. 0: the member means nothing here. */
static int take_member(struct sp_json *j, uint32_t key, struct sp_until *ret, struct sp_err *e)
{
    const struct sp_str name = sp_json_str(j, key);
    const uint32_t value = key + 1;
    uint64_t port = 0;
    int r = 0;

    if (sp_json_type(j, value) == SP_JSON_NULL)
        return 0;
    if (sp_str_eq(name, SP_STR("exit"))) {
        if (sp_json_type(j, value) != SP_JSON_TRUE)
            return sp_fail(e, SP_E_INVALID, 0, "`until`: `exit` is true, or left out");
        ret->kind = SP_UNTIL_EXIT;
    } else if (sp_str_eq(name, SP_STR("pattern"))) {
        r = take_pattern(j, value, ret, e);
    } else if (sp_str_eq(name, SP_STR("quiet_ms"))) {
        ret->kind = SP_UNTIL_QUIET;
        r = take_number(j, value, "quiet_ms", INT32_MAX, &ret->quiet_ms, e);
    } else if (sp_str_eq(name, SP_STR("port"))) {
        ret->kind = SP_UNTIL_PORT;
        r = take_number(j, value, "port", UINT16_MAX, &port, e);
        ret->port = (uint16_t)port;
    } else {
        return 0;
    }
    return r < 0 ? r : 1;
}

/* Each member is a condition. */
static int take_object(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret,
                       struct sp_err *e)
{
    const uint32_t before = ret->count;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`until` is an object");
    for (uint32_t key = sp_json_first(j, token); key != SP_JSON_NONE;
         key = sp_json_next(j, token, key)) {
        struct sp_until one = {0};
        const int r = take_member(j, key, &one, e);

        if (r < 0)
            return r;
        if (r == 0)
            continue;
        if (ret->count == SP_UNTIL_COUNT_MAX)
            return sp_fail(e, SP_E_INVALID, 0, "`until` has at most %d conditions",
                           SP_UNTIL_COUNT_MAX);
        ret->items[ret->count++] = one;
    }
    if (ret->count == before)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`until` has one or more of {\"exit\":true}, {\"pattern\":\"ERE\"}, "
                       "{\"quiet_ms\":2000}, {\"port\":3000}");
    return 0;
}

int sp_mcp_until_read(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret, struct sp_err *e)
{
    int r = 0;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_ARRAY)
        return take_object(j, token, ret, e);
    /* The schema does not say so, because some hosts refuse unions: a list of objects will do. */
    for (uint32_t t = sp_json_first(j, token); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, token, t))
        r = take_object(j, t, ret, e);
    return r;
}

/* ---- told ---- */

/* NULL: the deadline was it. */
static const struct sp_until *find(const struct sp_mcp_until *u, int woken_by, bool has_exited)
{
    static const struct sp_until end = {.kind = SP_UNTIL_EXIT};

    if (woken_by >= 0 && (uint32_t)woken_by < u->count)
        return &u->items[woken_by];
    return has_exited ? &end : NULL;
}

bool sp_mcp_until_add_text(struct sp_buf *out, const struct sp_mcp_until *u, int woken_by,
                           bool has_exited)
{
    const struct sp_until *by = find(u, woken_by, has_exited);

    if (by == NULL)
        return sp_buf_add_str(out, SP_STR("deadline"));
    switch (by->kind) {
    case SP_UNTIL_EXIT:
        return sp_buf_add_str(out, SP_STR("exit"));
    case SP_UNTIL_PATTERN:
        return sp_buf_add_str(out, SP_STR("pattern ")) && sp_json_add_str(out, by->pattern);
    case SP_UNTIL_QUIET:
        return sp_buf_printf(out, "quiet_ms %" PRIu64, by->quiet_ms);
    case SP_UNTIL_PORT:
        return sp_buf_printf(out, "port %u", by->port);
    }
    return false;
}

bool sp_mcp_until_add_json(struct sp_buf *out, const struct sp_mcp_until *u, int woken_by,
                           bool has_exited)
{
    const struct sp_until *by = find(u, woken_by, has_exited);

    if (by == NULL)
        return sp_buf_add_str(out, SP_STR("{\"deadline\":true}"));
    switch (by->kind) {
    case SP_UNTIL_EXIT:
        return sp_buf_add_str(out, SP_STR("{\"exit\":true}"));
    case SP_UNTIL_PATTERN:
        return sp_buf_add_str(out, SP_STR("{\"pattern\":")) && sp_json_add_str(out, by->pattern) &&
               sp_buf_add(out, "}", 1);
    case SP_UNTIL_QUIET:
        return sp_buf_printf(out, "{\"quiet_ms\":%" PRIu64 "}", by->quiet_ms);
    case SP_UNTIL_PORT:
        return sp_buf_printf(out, "{\"port\":%u}", by->port);
    }
    return false;
}
