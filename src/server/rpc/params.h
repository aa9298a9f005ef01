/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params: reads the members of a JSON object one by one.
 *
 * The first failure stays in *err and turns every later read into a no-op, so that a method reads
 * all members in the order in which the protocol checks them and looks at the error once. *err must
 * be zero at the start. What a failed or skipped read leaves in *ret is its old value.
 */
#ifndef SP_SERVER_RPC_PARAMS_H
#define SP_SERVER_RPC_PARAMS_H

#include "base/json.h"

struct sp_params {
    struct sp_json *json;
    uint32_t object;
    struct sp_err *err;
};

static inline bool sp_params_ok(const struct sp_params *p)
{
    return p->err->code == SP_E_NONE;
}

/* 0, or the code of the first failure as fallible functions return it. */
static inline int sp_params_result(const struct sp_params *p)
{
    return -(int)p->err->code;
}

/* need_* of base/json.h: the member must be there and must not be null. */
static inline void sp_params_str(const struct sp_params *p, const char *key, struct sp_str *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_need_str(p->json, p->object, key, ret, p->err);
}

static inline void sp_params_bool(const struct sp_params *p, const char *key, bool *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_need_bool(p->json, p->object, key, ret, p->err);
}

static inline void sp_params_u64(const struct sp_params *p, const char *key, uint64_t max,
                                 uint64_t *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_need_u64(p->json, p->object, key, max, ret, p->err);
}

static inline void sp_params_object(const struct sp_params *p, const char *key, uint32_t *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_need_object(p->json, p->object, key, ret, p->err);
}

static inline void sp_params_array(const struct sp_params *p, const char *key, uint32_t *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_need_array(p->json, p->object, key, ret, p->err);
}

/* opt_*: absent and null leave *ret as it is. */
static inline void sp_params_opt_str(const struct sp_params *p, const char *key, struct sp_str *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_opt_str(p->json, p->object, key, ret, p->err);
}

static inline void sp_params_opt_bool(const struct sp_params *p, const char *key, bool *ret)
{
    const uint32_t t = sp_params_ok(p) ? sp_json_get(p->json, p->object, key) : SP_JSON_NONE;

    if (t != SP_JSON_NONE && sp_json_type(p->json, t) != SP_JSON_NULL)
        sp_params_bool(p, key, ret);
}

static inline void sp_params_opt_u64(const struct sp_params *p, const char *key, uint64_t max,
                                     uint64_t *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_opt_u64(p->json, p->object, key, max, ret, p->err);
}

static inline void sp_params_opt_object(const struct sp_params *p, const char *key, uint32_t *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_opt_object(p->json, p->object, key, ret, p->err);
}

/* The children of an array or object, up to the first failure. None if `parent` is SP_JSON_NONE. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define sp_params_each(p, parent, child)                              \
    for (uint32_t child = sp_params_ok(p) && (parent) != SP_JSON_NONE \
                              ? sp_json_first((p)->json, parent)      \
                              : SP_JSON_NONE;                         \
         sp_params_ok(p) && child != SP_JSON_NONE; child = sp_json_next((p)->json, parent, child))
/* NOLINTEND(bugprone-macro-parentheses) */

/* def_*: absent leaves *ret as it is, null is refused. */
static inline void sp_params_def_bool(const struct sp_params *p, const char *key, bool *ret)
{
    if (sp_params_ok(p))
        (void)sp_json_def_bool(p->json, p->object, key, ret, p->err);
}

static inline void sp_params_def_str(const struct sp_params *p, const char *key, struct sp_str *ret)
{
    if (sp_params_ok(p) && sp_json_get(p->json, p->object, key) != SP_JSON_NONE)
        sp_params_str(p, key, ret);
}

#endif
