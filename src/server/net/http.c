/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/http.h"

#include <arpa/inet.h>

/*
 * METHOD -SP-> TARGET -SP-> VERSION -CR-> VERSION_LF -LF-> LINE -CR-> LAST_LF -LF-> END
 *                                                         |  ^
 *                                                       token '-----LF----.
 *                                                         v               |
 *                                                       NAME -:-> VALUE -CR-> VALUE_LF
 */
enum state {
    METHOD,
    TARGET,
    VERSION,
    VERSION_LF,
    LINE,
    NAME,
    VALUE,
    VALUE_LF,
    LAST_LF,
    END,
    WRONG
};

static bool is_visible(unsigned char c)
{
    return c > 0x20 && c < 0x7F;
}

/* "HTTP/1.0" or "HTTP/1.1", then CR. */
static enum state in_version(struct sp_http_parser *p, unsigned char c)
{
    static const char spelling[] = "HTTP/1.";
    const unsigned i = p->version_at++;

    if (i < sizeof spelling - 1)
        return c == (unsigned char)spelling[i] ? VERSION : WRONG;
    if (i == sizeof spelling - 1) {
        p->minor = c == '1';
        return c == '0' || c == '1' ? VERSION : WRONG;
    }
    return c == '\r' ? VERSION_LF : WRONG;
}

static enum state step(struct sp_http_parser *p, unsigned char c)
{
    switch ((enum state)p->state) {
    case METHOD:
        if (c == ' ' && p->at != 0) {
            p->method_len = p->at;
            return TARGET;
        }
        return sp_http_is_token(c) ? METHOD : WRONG;
    case TARGET:
        if (c == ' ' && p->at > p->method_len + 1) {
            p->target_end = p->at;
            return VERSION;
        }
        return is_visible(c) ? TARGET : WRONG;
    case VERSION:
        return in_version(p, c);
    case VERSION_LF:
        p->headers_at = (uint16_t)(p->at + 1);
        return c == '\n' ? LINE : WRONG;
    case LINE: /* a space or tab here would be a folded line */
        return c == '\r' ? LAST_LF : sp_http_is_token(c) ? NAME : WRONG;
    case NAME:
        return c == ':' ? VALUE : sp_http_is_token(c) ? NAME : WRONG;
    case VALUE:
        if (c == '\r')
            return VALUE_LF;
        return is_visible(c) || c == ' ' || c == '\t' || c >= 0x80 ? VALUE : WRONG;
    case VALUE_LF:
        return c == '\n' ? LINE : WRONG;
    case LAST_LF:
        return c == '\n' ? END : WRONG;
    case END:
    case WRONG:
        break;
    }
    return WRONG;
}

enum sp_http_result sp_http_parse(struct sp_http_parser *p, const char *bytes, size_t n,
                                  struct sp_http_request *ret)
{
    while (p->at < n && p->state < END) {
        if (p->at == SP_HTTP_MAX_HEAD)
            return SP_HTTP_TOO_BIG;
        const enum state was = (enum state)p->state;
        const enum state next = step(p, (unsigned char)bytes[p->at]);

        if (was == LINE && next == NAME && p->headers++ == SP_HTTP_MAX_HEADERS)
            return SP_HTTP_TOO_BIG;
        p->state = (uint8_t)next;
        p->at++;
    }
    if (p->state == WRONG)
        return SP_HTTP_BAD;
    if (p->state != END)
        return SP_HTTP_MORE;
    const size_t target_at = p->method_len + 1U;
    *ret = (struct sp_http_request){
        .method = {bytes, p->method_len},
        .target = {bytes + target_at, p->target_end - target_at},
        .lines = {bytes + p->headers_at, p->at - 2U - p->headers_at},
        .is_1_0 = p->minor == 0,
        .head_len = p->at,
    };
    const char *query = memchr(ret->target.p, '?', ret->target.n);
    ret->path = ret->target;
    if (query != NULL)
        ret->path.n = (size_t)(query - ret->target.p);
    return SP_HTTP_DONE;
}

/* The next header of this name in *rest. */
static bool next_of(struct sp_str *rest, struct sp_str name, struct sp_str *ret_value)
{
    while (rest->n != 0) {
        struct sp_str line = sp_str_cut(rest, '\n');

        line.n--; /* its CR */
        if (sp_str_eq_nocase(sp_str_cut(&line, ':'), name)) {
            *ret_value = sp_str_trim(line);
            return true;
        }
    }
    return false;
}

unsigned sp_http_header(const struct sp_http_request *r, const char *name, struct sp_str *ret_first)
{
    struct sp_str rest = r->lines;
    struct sp_str value;
    unsigned count = 0;

    while (next_of(&rest, sp_str_of(name), &value))
        if (count++ == 0)
            *ret_first = value;
    return count;
}

bool sp_http_has_word(const struct sp_http_request *r, const char *name, const char *word)
{
    struct sp_str rest = r->lines;
    struct sp_str value;

    while (next_of(&rest, sp_str_of(name), &value))
        while (value.n != 0)
            if (sp_str_eq_nocase(sp_str_trim(sp_str_cut(&value, ',')), sp_str_of(word)))
                return true;
    return false;
}

const char *sp_http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
    };

    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Error";
}

bool sp_http_write(struct sp_buf *out, const struct sp_http_answer *a)
{
    const char *type = a->type != NULL ? a->type : "text/plain; charset=utf-8";

    return sp_buf_printf(out, "HTTP/1.1 %u %s\r\nconnection: close\r\ncontent-length: %zu\r\n",
                         a->status, sp_http_reason(a->status), a->body.n) &&
           (a->header == NULL || sp_buf_add_str(out, sp_str_of(a->header))) &&
           (a->body.n == 0 || sp_buf_printf(out, "content-type: %s\r\n", type)) &&
           sp_buf_add_str(out, SP_STR("\r\n")) && sp_buf_add_str(out, a->body);
}

/* ---- Host ---- */

static bool is_ip(int family, struct sp_str s)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr any;

    if (s.n >= sizeof text || sp_str_has_nul(s))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    return inet_pton(family, text, &any) == 1;
}

bool sp_http_is_host_ours(const struct sp_http_request *r, const char *const *hosts)
{
    struct sp_str host = {"", 0};
    const unsigned count = sp_http_header(r, "host", &host);
    uint64_t port;

    if (count == 0 && r->is_1_0)
        return true;
    if (count != 1 || host.n == 0)
        return false;
    const bool is_literal = host.p[0] == '['; /* of IPv6, which has colons itself */
    const char *end = memchr(host.p, is_literal ? ']' : ':', host.n);
    if (is_literal && end == NULL)
        return false;
    const struct sp_str name = {
        host.p, end == NULL ? host.n : (size_t)(end - host.p) + (is_literal ? 1 : 0)};
    if (name.n != host.n &&
        (host.p[name.n] != ':' ||
         !sp_str_to_u64((struct sp_str){host.p + name.n + 1, host.n - name.n - 1}, UINT16_MAX,
                        &port)))
        return false;
    if (is_literal)
        return is_ip(AF_INET6, (struct sp_str){name.p + 1, name.n - 2});
    if (is_ip(AF_INET, name) || sp_str_eq_nocase(name, SP_STR("localhost")))
        return true;
    for (; hosts != NULL && *hosts != NULL; hosts++)
        if (sp_str_eq_nocase(name, sp_str_of(*hosts)))
            return true;
    return false;
}
