/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_message.h"

#include <string.h>

static bool is_front_message(const struct sp_web_message *m, bool has_fd)
{
    const struct sp_web_order *o = (const struct sp_web_order *)m;

    switch (m->op) {
    case SP_WEB_ASK:
        return m->len == sizeof *o - sizeof *m && has_fd &&
               (m->value & ~(uint64_t)SP_WEB_FOLLOWS) == 0 && o->method_len > 0 &&
               o->method_len <= SP_WEB_MAX_METHOD && o->url_len > 0 &&
               o->url_len <= SP_WEB_MAX_URL && o->fields_len <= SP_WEB_MAX_FIELDS &&
               o->body_len <= SP_WEB_MAX_SENT;
    case SP_WEB_TAKE:
        return !has_fd && m->len == 0 && m->value > 0 && m->value <= SP_WEB_WINDOW;
    case SP_WEB_DROP:
    case SP_WEB_PING:
        return !has_fd && m->len == 0;
    default:
        return false;
    }
}

static bool is_worker_message(const struct sp_web_message *m)
{
    switch (m->op) {
    case SP_WEB_FIELDS:
    case SP_WEB_BODY:
        return m->len > 0;
    case SP_WEB_HEAD:
        return m->len == 0 && m->value >= 100 && m->value <= 999;
    case SP_WEB_DONE:
        return m->len <= SP_WEB_MAX_WHY && m->value <= 1 && (m->value == 0) == (m->len == 0);
    case SP_WEB_UNABLE:
        return m->len > 0 && m->len <= SP_WEB_MAX_WHY;
    case SP_WEB_PONG:
        return m->len == 0;
    default:
        return false;
    }
}

bool sp_web_check(const void *bytes, size_t n, bool is_from_worker, bool has_fd)
{
    const struct sp_web_message *m = bytes;

    if (n < sizeof *m || m->version != SP_WEB_VERSION || m->len > SP_WEB_PIECE ||
        m->len != n - sizeof *m)
        return false;
    return is_from_worker ? !has_fd && is_worker_message(m) : is_front_message(m, has_fd);
}

/* ---- fields ---- */

#define PRIVATE (1U << 31) /* a flag in the length of the name, which is never that long */

struct lengths {
    uint32_t name, value;
};

bool sp_web_field_put(struct sp_buf *fields, const struct sp_web_field *field)
{
    const struct sp_str name = field->name;
    const struct sp_str value = field->value;
    const struct lengths l = {(uint32_t)name.n | (field->is_private ? PRIVATE : 0U),
                              (uint32_t)value.n};

    if (name.n > SP_WEB_MAX_FIELDS || value.n > SP_WEB_MAX_FIELDS ||
        sp_buf_room(fields, sizeof l + name.n + value.n) == NULL)
        return false;
    return sp_buf_add(fields, &l, sizeof l) && sp_buf_add_str(fields, name) &&
           sp_buf_add_str(fields, value);
}

bool sp_web_field_add(struct sp_buf *fields, struct sp_str name, struct sp_str value)
{
    return sp_web_field_put(fields, &(struct sp_web_field){.name = name, .value = value});
}

bool sp_web_field_next(struct sp_str *rest, struct sp_web_field *ret)
{
    struct lengths l;

    if (rest->n < sizeof l)
        return false;
    memcpy(&l, rest->p, sizeof l);
    const uint32_t name = l.name & ~PRIVATE;
    if ((uint64_t)name + l.value > rest->n - sizeof l)
        return false;
    *ret = (struct sp_web_field){.name = {rest->p + sizeof l, name},
                                 .value = {rest->p + sizeof l + name, l.value},
                                 .is_private = (l.name & PRIVATE) != 0};
    rest->p = ret->value.p + l.value;
    rest->n -= sizeof l + name + l.value;
    return true;
}

bool sp_web_fields_are_whole(struct sp_str fields)
{
    struct sp_web_field f;

    while (sp_web_field_next(&fields, &f))
        if (!sp_web_is_token(f.name) || !sp_web_is_value(f.value))
            return false;
    return fields.n == 0;
}

/* ---- syntax ---- */

bool sp_web_add_lower(struct sp_buf *b, struct sp_str s)
{
    char *room = sp_buf_room(b, s.n);

    if (room == NULL)
        return s.n == 0;
    for (size_t i = 0; i < s.n; i++)
        room[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] + 32) : s.p[i];
    b->len += s.n;
    return true;
}

bool sp_web_is_token(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];
        const char l = (char)(c | 0x20);

        if ((l < 'a' || l > 'z') && (c < '0' || c > '9') &&
            (c == 0 || strchr("!#$%&'*+-.^_`|~", c) == NULL))
            return false;
    }
    return s.n > 0;
}

bool sp_web_is_value(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const unsigned char c = (unsigned char)s.p[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}
