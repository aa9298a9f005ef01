/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_text: the normal form of paths, so that equal ones compare equal.
 */
#include "approve/rules/rules_priv.h"

struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs)
{
    size_t n = 0;

    *ret_climbs = false;
    for (size_t i = 0; i < s.n;) {
        while (i < s.n && s.p[i] == '/')
            i++;
        const char *end = i < s.n ? memchr(s.p + i, '/', s.n - i) : NULL;
        const struct sp_str part = {s.p + i, end == NULL ? s.n - i : (size_t)(end - s.p) - i};

        i += part.n;
        if (part.n == 0 || sp_str_eq(part, SP_STR(".")))
            continue;
        if (sp_str_eq(part, SP_STR(".."))) {
            *ret_climbs = true;
            while (n > 0 && out[--n] != '/')
                ;
            continue;
        }
        out[n++] = '/';
        memcpy(out + n, part.p, part.n);
        n += part.n;
    }
    if (n == 0)
        out[n++] = '/';
    return (struct sp_str){out, n};
}
