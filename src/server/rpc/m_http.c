/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/request: what is asked for, in the order in which it is looked at: the params, the state of
 * the connection, the name of the stream, method, URL, headers.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/env.h"
#include "base/utf8.h"
#include "core/http_url.h"
#include "server/rpc/http_relay.h"
#include "server/rpc/methods.h"

struct ask {
    struct sp_str method, url, id;
    uint32_t headers; /* array, or SP_JSON_NONE */
    struct sp_web_ask http;
    bool is_stream;
    struct sp_web_url address;
    struct sp_buf fields;
};

static void ask_done(struct ask *a)
{
    sp_web_url_done(&a->address);
    sp_buf_done(&a->fields);
}

/* ---- params ---- */

static int read_policy(struct sp_rpc_call *c, bool *ret_follows, struct sp_err *e)
{
    struct sp_str policy = SP_STR("follow");
    const uint32_t t = sp_json_get(c->json, c->params, "redirectPolicy");
    const int r =
        t == SP_JSON_NONE ? 0 : sp_json_need_str(c->json, c->params, "redirectPolicy", &policy, e);

    *ret_follows = sp_str_eq(policy, SP_STR("follow"));
    if (r < 0 || *ret_follows || sp_str_eq(policy, SP_STR("stop")))
        return r;
    return sp_fail(e, SP_E_INVALID, 0,
                   "unknown variant `" SP_STR_FMT "`, expected `follow` or `stop`",
                   SP_STR_ARG(policy));
}

struct header {
    struct sp_str name, value, variable;
};

static int read_header(struct sp_json *j, uint32_t t, struct header *h, struct sp_err *e)
{
    int r =
        sp_json_type(j, t) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, t, "struct HttpHeader", e);

    *h = (struct header){0};
    if (r == 0)
        r = sp_json_need_str(j, t, "name", &h->name, e);
    if (r == 0)
        r = sp_json_need_str(j, t, "value", &h->value, e);
    if (r == 0)
        r = sp_json_opt_str(j, t, "valueEnvVar", &h->variable, e);
    return r;
}

static int check_headers(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    struct header h;
    int r = 0;

    a->headers = sp_json_get(c->json, c->params, "headers");
    if (a->headers == SP_JSON_NONE)
        return 0;
    r = sp_json_need_array(c->json, c->params, "headers", &a->headers, e);
    if (r < 0)
        return r;
    for (uint32_t t = sp_json_first(c->json, a->headers); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(c->json, a->headers, t))
        r = read_header(c->json, t, &h, e);
    return r;
}

static int read_body(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    struct sp_str text = {0};
    size_t n = 0;
    int r = sp_json_opt_str(c->json, c->params, "bodyBase64", &text, e);

    if (r < 0 || text.n == 0)
        return r;
    /* In place: the message is ours to write in. */
    r = sp_base64_decode(text, (char *)(uintptr_t)text.p, &n, e);
    a->http.body = (struct sp_str){text.p, n};
    return r;
}

static int read_params(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "method", &a->method, e);
    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "url", &a->url, e);
    if (r == 0)
        r = check_headers(c, a, e);
    if (r == 0)
        r = read_body(c, a, e);
    if (r == 0)
        r = sp_json_opt_u64(c->json, c->params, "timeoutMs", UINT64_MAX, &a->http.timeout_ms, e);
    if (r == 0)
        r = read_policy(c, &a->http.follows, e);
    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "requestId", &a->id, e);
    if (r == 0)
        r = sp_json_def_bool(c->json, c->params, "streamResponse", &a->is_stream, e);
    return r;
}

/* ---- headers ---- */

/* No header says these, whoever asks. */
static const char *const private_variables[] = {
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
};

static bool is_private(struct sp_str name)
{
    for (size_t i = 0; i < sizeof private_variables / sizeof private_variables[0]; i++)
        if (sp_str_eq_nocase(name, sp_str_of(private_variables[i])))
            return true;
    return sp_env_is_private(name);
}

static bool find_variable(char *const *environ, struct sp_str name, struct sp_str *ret)
{
    if (name.n == 0 || sp_str_has_nul(name) || memchr(name.p, '=', name.n) != NULL)
        return false;
    for (size_t i = 0; environ[i] != NULL; i++)
        if (strncmp(environ[i], name.p, name.n) == 0 && environ[i][name.n] == '=') {
            *ret = sp_str_of(environ[i] + name.n + 1);
            return sp_utf8_is_valid(*ret);
        }
    return false;
}

static int add_variable(struct sp_rpc_call *c, const struct header *h, struct sp_buf *value,
                        struct sp_err *e)
{
    struct sp_str found = {0};

    if (is_private(h->variable))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header " SP_STR_FMT
                       " cannot use executor environment variable " SP_STR_FMT,
                       SP_STR_ARG(h->name), SP_STR_ARG(h->variable));
    if (!find_variable(c->conn->rpc->environ, h->variable, &found))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header " SP_STR_FMT
                       " requires executor environment variable " SP_STR_FMT,
                       SP_STR_ARG(h->name), SP_STR_ARG(h->variable));
    if (found.n == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header " SP_STR_FMT
                       " requires a non-empty executor environment variable " SP_STR_FMT,
                       SP_STR_ARG(h->name), SP_STR_ARG(h->variable));
    return sp_buf_add_str(value, found) ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the headers");
}

static int add_header(struct sp_rpc_call *c, struct ask *a, const struct header *h,
                      struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};
    auto_buf struct sp_buf value = {0};
    bool ok = true;

    if (!sp_web_is_token(h->name))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header name is invalid: invalid HTTP header name");
    ok = sp_buf_add_str(&value, h->value);
    const int r = ok && h->variable.p != NULL ? add_variable(c, h, &value, e) : 0;
    if (r < 0)
        return r;
    const struct sp_str whole = {value.data, value.len};
    if (!sp_web_is_value(whole))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header value is invalid for " SP_STR_FMT
                       ": failed to parse header value",
                       SP_STR_ARG(h->name));
    ok = ok && sp_web_add_lower(&name, h->name) &&
         sp_web_field_put(&a->fields, &(struct sp_web_field){.name = {name.data, name.len},
                                                             .value = whole,
                                                             .is_private = h->variable.p != NULL});
    if (ok)
        return 0;
    return sp_fail(e, SP_E_LIMIT, 0, "http/request failed: the headers are larger than %u bytes",
                   SP_WEB_MAX_FIELDS);
}

static bool has_field(const struct sp_buf *fields, struct sp_str wanted)
{
    struct sp_str rest = {fields->data, fields->len};
    struct sp_str name;
    struct sp_str value;

    while (sp_web_field_next(&rest, &name, &value))
        if (sp_str_eq(name, wanted))
            return true;
    return false;
}

/* A user in the URL becomes a header, unless there is one. */
static int add_user(struct ask *a, struct sp_err *e)
{
    static const char basic[] = "Basic ";
    const struct sp_buf *user = &a->address.userinfo;
    auto_buf struct sp_buf value = {0};

    if (!a->address.has_userinfo || has_field(&a->fields, SP_STR("authorization")))
        return 0;
    char *room = sp_buf_room(&value, sizeof basic + SP_BASE64_LEN(user->len));
    if (room != NULL) {
        memcpy(room, basic, sizeof basic - 1);
        value.len =
            (size_t)(sp_base64_encode(room + sizeof basic - 1, user->data, user->len) - value.data);
    }
    return room != NULL && sp_web_field_add(&a->fields, SP_STR("authorization"),
                                            (struct sp_str){value.data, value.len})
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the URL");
}

static int read_headers(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    struct header h;
    int r = 0;

    a->fields.max = SP_WEB_MAX_FIELDS;
    if (a->headers == SP_JSON_NONE)
        return add_user(a, e);
    for (uint32_t t = sp_json_first(c->json, a->headers); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(c->json, a->headers, t)) {
        r = read_header(c->json, t, &h, e);
        if (r == 0)
            r = add_header(c, a, &h, e);
    }
    return r == 0 ? add_user(a, e) : r;
}

/* ---- the method ---- */

static int check_target(struct ask *a, struct sp_err *e)
{
    if (!sp_web_is_token(a->method))
        return sp_fail(e, SP_E_INVALID, 0, "http/request method is invalid: invalid HTTP method");
    if (sp_str_eq(a->method, SP_STR("CONNECT")))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request method is invalid: CONNECT makes a tunnel, which no reply "
                       "can carry");
    if (sp_web_url_read(a->url, &a->address, e) < 0)
        return sp_wrap(e, "http/request url is invalid");
    if (!sp_web_url_is_http(&a->address))
        return sp_fail(
            e, SP_E_INVALID, 0, "http/request only supports http and https URLs, got " SP_STR_FMT,
            SP_STR_ARG(((struct sp_str){a->address.scheme.data, a->address.scheme.len})));
    return 0;
}

static int begin(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    int r = read_params(c, a, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0 && a->is_stream && sp_web_is_active(c->conn, a->id))
        r = sp_fail(e, SP_E_INVALID, 0,
                    "http/request streamResponse requestId `" SP_STR_FMT "` is already active",
                    SP_STR_ARG(a->id));
    if (r == 0)
        r = check_target(a, e);
    if (r == 0)
        r = read_headers(c, a, e);
    if (r < 0)
        return r;
    a->http.method = a->method;
    a->http.url = (struct sp_str){a->address.text.data, a->address.text.len};
    a->http.fields = (struct sp_str){a->fields.data, a->fields.len};
    return sp_web_begin(c, &a->http, a->id, a->is_stream, e);
}

int sp_m_http_request(struct sp_rpc_call *c, struct sp_err *e)
{
    struct ask a = {.headers = SP_JSON_NONE, .http.timeout_ms = SP_WEB_NO_TIMEOUT};
    const int r = begin(c, &a, e);

    ask_done(&a);
    return r;
}
