/* SPDX-License-Identifier: Apache-2.0 */
/* Members of an object by type, each refusal naming what it misses. */
#include "base/json.h"

enum presence {
    NEED, /* must be there and must not be null */
    OPT,  /* may be absent or null */
    DEF,  /* may be absent, must not be null */
};

/* *ret_token is SP_JSON_NONE where that is allowed. */
static int find(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                uint32_t *ret_token, struct sp_err *e)
{
    uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE && presence == NEED)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", key);
    if (t != SP_JSON_NONE && presence == OPT && sp_json_type(j, t) == SP_JSON_NULL)
        t = SP_JSON_NONE;
    *ret_token = t;
    return 0;
}

static int read_str(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    struct sp_str *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != SP_JSON_STRING)
        return sp_json_wrong_type(j, t, "a string", e);
    *ret = sp_json_str(j, t);
    return 0;
}

static int read_bool(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                     bool *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != SP_JSON_TRUE && sp_json_type(j, t) != SP_JSON_FALSE)
        return sp_json_wrong_type(j, t, "a boolean", e);
    *ret = sp_json_type(j, t) == SP_JSON_TRUE;
    return 0;
}

static int read_u64(struct sp_json *j, uint32_t object, const char *key, enum presence presence,
                    uint64_t max, uint64_t *ret, struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    const enum sp_json_type type = sp_json_type(j, t);
    if (type != SP_JSON_INT && type != SP_JSON_UINT && type != SP_JSON_REAL)
        return sp_json_wrong_type(j, t, "u64", e);
    /* Digits and nothing else: a sign, a fraction and an exponent end here, even "-0" and "1.0". */
    if (!sp_str_to_u64(sp_json_raw(j, t), max, ret))
        return sp_fail(e, SP_E_INVALID, 0, "invalid number");
    return 0;
}

static int read_container(struct sp_json *j, uint32_t object, const char *key,
                          enum presence presence, enum sp_json_type type, uint32_t *ret,
                          struct sp_err *e)
{
    uint32_t t = SP_JSON_NONE;
    const int r = find(j, object, key, presence, &t, e);

    if (r < 0 || t == SP_JSON_NONE)
        return r;
    if (sp_json_type(j, t) != type)
        return sp_json_wrong_type(j, t, type == SP_JSON_OBJECT ? "a map" : "a sequence", e);
    *ret = t;
    return 0;
}

int sp_json_need_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                     struct sp_err *e)
{
    return read_str(j, object, key, NEED, ret, e);
}

int sp_json_opt_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                    struct sp_err *e)
{
    return read_str(j, object, key, OPT, ret, e);
}

int sp_json_need_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                      struct sp_err *e)
{
    return read_bool(j, object, key, NEED, ret, e);
}

int sp_json_def_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                     struct sp_err *e)
{
    return read_bool(j, object, key, DEF, ret, e);
}

int sp_json_opt_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                    uint64_t *ret, struct sp_err *e)
{
    return read_u64(j, object, key, OPT, max, ret, e);
}

int sp_json_need_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                     uint64_t *ret, struct sp_err *e)
{
    return read_u64(j, object, key, NEED, max, ret, e);
}

int sp_json_need_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                        struct sp_err *e)
{
    return read_container(j, object, key, NEED, SP_JSON_OBJECT, ret, e);
}

int sp_json_need_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e)
{
    return read_container(j, object, key, NEED, SP_JSON_ARRAY, ret, e);
}

int sp_json_opt_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e)
{
    return read_container(j, object, key, OPT, SP_JSON_OBJECT, ret, e);
}

int sp_json_opt_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                      struct sp_err *e)
{
    return read_container(j, object, key, OPT, SP_JSON_ARRAY, ret, e);
}
