/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/http1.h"

#include "base/hostname.h"
#include "proxy/http1_priv.h"

#define HTTP_PORT 80

/* ---- characters and lines ---- */

static bool is_alnum(char c)
{
    const char low = (char)(c | 0x20);

    return (c >= '0' && c <= '9') || (low >= 'a' && low <= 'z');
}

static bool is_visible(char c) /* in ASCII */
{
    return (unsigned char)c > 0x20 && (unsigned char)c < 0x7f;
}

static bool is_token(struct sp_str s)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < s.n; i++)
        if (!is_alnum(s.p[i]) && memchr(marks, s.p[i], sizeof marks - 1) == NULL)
            return false;
    return s.n != 0;
}

static struct sp_str behind(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p + n, s.n - n};
}

static bool has(struct sp_str s, char c)
{
    return s.n != 0 && memchr(s.p, c, s.n) != NULL;
}

static bool refuse(struct sp_http1_refusal *why, int status, const char *text)
{
    *why = (struct sp_http1_refusal){status, text};
    return false;
}

/* Cuts the first line off, without its CR LF. false: a bare CR or LF, or another control character
 * in it, or it has no end. */
static bool cut_line(struct sp_str *rest, struct sp_str *ret)
{
    const char *lf = rest->n == 0 ? NULL : memchr(rest->p, '\n', rest->n);

    if (lf == NULL || lf == rest->p || lf[-1] != '\r')
        return false;
    const struct sp_str line = {rest->p, (size_t)(lf - rest->p) - 1};
    for (size_t i = 0; i < line.n; i++)
        if (!sp_http1_is_text(line.p[i]))
            return false;
    *rest = behind(*rest, line.n + 2);
    *ret = line;
    return true;
}

size_t sp_http1_head_length(struct sp_str bytes, size_t *scanned)
{
    for (size_t i = *scanned; i < bytes.n; i++) {
        if (i == SP_HTTP1_HEAD_MAX || sp_http1_is_stray(bytes, i))
            return i + 1;
        if (bytes.p[i] == '\n' && (i < 2 || bytes.p[i - 2] == '\n'))
            return i + 1;
    }
    *scanned = bytes.n;
    return 0;
}

/* ---- fields ---- */

/* What the fields say about the message itself. */
struct summary {
    struct sp_str host, length, coding, upgrade;
    unsigned host_count, length_count, coding_count, upgrade_count;
    unsigned option_count;
    bool has_close, has_keep_alive, has_upgrade; /* options of Connection */
    bool has_expect;
};

static void note_options(struct sp_str list, struct summary *s)
{
    while (list.n != 0) {
        const struct sp_str option = sp_str_trim(sp_str_cut(&list, ','));

        s->option_count += option.n != 0;
        s->has_close |= sp_str_eq_nocase(option, SP_STR("close"));
        s->has_keep_alive |= sp_str_eq_nocase(option, SP_STR("keep-alive"));
        s->has_upgrade |= sp_str_eq_nocase(option, SP_STR("upgrade"));
    }
}

static void note_field(const struct sp_http1_field *f, struct summary *s)
{
    if (sp_str_eq_nocase(f->name, SP_STR("Host"))) {
        s->host = f->value;
        s->host_count++;
    } else if (sp_str_eq_nocase(f->name, SP_STR("Content-Length"))) {
        s->length = f->value;
        s->length_count++;
    } else if (sp_str_eq_nocase(f->name, SP_STR("Transfer-Encoding"))) {
        s->coding = f->value;
        s->coding_count++;
    } else if (sp_str_eq_nocase(f->name, SP_STR("Upgrade"))) {
        s->upgrade = f->value;
        s->upgrade_count++;
    } else if (sp_str_eq_nocase(f->name, SP_STR("Connection"))) {
        note_options(f->value, s);
    } else if (sp_str_eq_nocase(f->name, SP_STR("Expect"))) {
        s->has_expect |= sp_str_eq_nocase(f->value, SP_STR("100-continue"));
    }
}

const char *sp_http1_read_field(struct sp_str line, struct sp_http1_field *ret)
{
    struct sp_str value = line;

    if (line.p[0] == ' ' || line.p[0] == '\t')
        return "folded header line";
    if (!has(line, ':'))
        return "header line without a colon";
    const struct sp_str name = sp_str_cut(&value, ':');
    if (name.n != 0 && (name.p[name.n - 1] == ' ' || name.p[name.n - 1] == '\t'))
        return "blank before the colon of a header";
    if (!is_token(name))
        return "malformed header name";
    *ret = (struct sp_http1_field){name, sp_str_trim(value)};
    return NULL;
}

static bool read_fields(struct sp_str rest, struct sp_http1_head *ret, struct summary *s,
                        struct sp_http1_refusal *why)
{
    struct sp_str line;

    for (;;) {
        if (!cut_line(&rest, &line))
            return refuse(why, 400, "header line with a control character or without CR LF");
        if (line.n == 0)
            break;
        if (ret->field_count == SP_HTTP1_FIELDS_MAX)
            return refuse(why, 431, "more than 256 header fields");
        struct sp_http1_field *f = &ret->fields[ret->field_count];
        const char *wrong = sp_http1_read_field(line, f);
        if (wrong != NULL)
            return refuse(why, 400, wrong);
        note_field(f, s);
        ret->field_count++;
    }
    if (rest.n != 0)
        return refuse(why, 400, "bytes behind the head");
    if (s->option_count > SP_HTTP1_OPTIONS_MAX)
        return refuse(why, 400, "too many options in Connection");
    return true;
}

static void read_connection(const struct summary *s, struct sp_http1_head *ret)
{
    ret->keeps_alive = !s->has_close && (ret->minor == 1 || s->has_keep_alive);
}

/* NULL, or the error text. Two readers that disagree about the end of a body disagree about where
 * the next message begins, so whatever can be read in two ways is refused. */
static const char *read_framing(const struct summary *s, struct sp_http1_head *ret)
{
    if (s->coding_count != 0) {
        if (s->length_count != 0)
            return "Content-Length with Transfer-Encoding";
        if (s->coding_count != 1 || !sp_str_eq_nocase(s->coding, SP_STR("chunked")))
            return "Transfer-Encoding other than chunked";
        if (ret->minor == 0)
            return "Transfer-Encoding in HTTP/1.0";
        ret->body = SP_HTTP1_CHUNKED;
        return NULL;
    }
    if (s->length_count > 1)
        return "more than one Content-Length";
    if (s->length_count == 1 && !sp_str_to_u64(s->length, INT64_MAX, &ret->length))
        return "malformed Content-Length";
    ret->body = s->length_count == 1 ? SP_HTTP1_LENGTH : SP_HTTP1_NO_BODY;
    return NULL;
}

/* ---- the target ---- */

struct authority {
    struct sp_str host; /* without brackets */
    uint16_t port;
    struct sp_hostname name;
};

/* HOST or HOST:PORT. usual: the port if there is none; 0: there must be one. */
static bool read_authority(struct sp_str text, uint16_t usual, struct authority *ret)
{
    struct sp_str rest = text;
    uint64_t port = usual;

    for (size_t i = 0; i < text.n; i++)
        if (!is_visible(text.p[i]))
            return false;
    if (text.n != 0 && text.p[0] == '[')
        (void)sp_str_cut(&rest, ']');
    else
        rest = behind(text, sp_str_cut(&rest, ':').n);
    const struct sp_str host = {text.p, text.n - rest.n};
    if (rest.n != 0 && (rest.p[0] != ':' || !sp_str_to_u64(behind(rest, 1), UINT16_MAX, &port)))
        return false;
    if (port == 0 || sp_hostname_read(host, &ret->name) != NULL)
        return false;
    ret->port = (uint16_t)port;
    ret->host = host.p[0] == '[' ? (struct sp_str){host.p + 1, host.n - 2} : host;
    return true;
}

static bool is_scheme(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_alnum(s.p[i]) && s.p[i] != '+' && s.p[i] != '-' && s.p[i] != '.')
            return false;
    return s.n != 0 && (s.p[0] < '0' || s.p[0] > '9');
}

static bool read_absolute(struct sp_str target, struct sp_http1_head *ret, struct authority *where,
                          struct sp_http1_refusal *why)
{
    struct sp_str rest = target;
    const struct sp_str scheme = sp_str_cut(&rest, ':');
    size_t n = 0;

    if (!is_scheme(scheme) || !sp_str_skip_prefix(&rest, SP_STR("//")))
        return refuse(why, 400, "malformed request target");
    if (!sp_str_eq_nocase(scheme, SP_STR("http")))
        return refuse(why, 501, "use CONNECT");
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
        n++;
    const struct sp_str authority = {rest.p, n};
    if (has(authority, '@'))
        return refuse(why, 400, "userinfo in the request target");
    if (!read_authority(authority, HTTP_PORT, where))
        return refuse(why, 400, "malformed host in the request target");
    const bool is_about_server = sp_str_eq(ret->method, SP_STR("OPTIONS"));
    ret->form = SP_HTTP1_ABSOLUTE;
    ret->path = n < rest.n ? behind(rest, n) : is_about_server ? SP_STR("*") : SP_STR("/");
    return true;
}

/* Reads the target; *where is its authority, if the form has one. */
static bool read_target(struct sp_str target, struct sp_http1_head *ret, struct authority *where,
                        struct sp_http1_refusal *why)
{
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] == '\t' || target.p[i] == '#')
            return refuse(why, 400, "blank or fragment in the request target");
    ret->path = target;
    if (sp_str_eq(ret->method, SP_STR("CONNECT"))) {
        ret->form = SP_HTTP1_AUTHORITY;
        if (has(target, '@'))
            return refuse(why, 400, "userinfo in the request target");
        return read_authority(target, 0, where) ||
               refuse(why, 400, "CONNECT needs a target of the form HOST:PORT");
    }
    ret->form = target.n != 0 && target.p[0] == '/' ? SP_HTTP1_ORIGIN : SP_HTTP1_ASTERISK;
    if (ret->form == SP_HTTP1_ORIGIN)
        return true;
    if (sp_str_eq(target, SP_STR("*")) && sp_str_eq(ret->method, SP_STR("OPTIONS")))
        return true;
    return read_absolute(target, ret, where, why);
}

/* Host against the target, or in its place. The port of a CONNECT's Host is often left out. */
static bool read_host(const struct summary *s, struct sp_http1_head *ret, struct authority *where,
                      struct sp_http1_refusal *why)
{
    static const char differs[] = "Host header does not match request target";
    const bool has_target = ret->form == SP_HTTP1_ABSOLUTE || ret->form == SP_HTTP1_AUTHORITY;
    const bool is_connect = ret->form == SP_HTTP1_AUTHORITY;
    struct authority field = {.port = HTTP_PORT};

    if (s->host_count > 1 || (s->host_count == 0 && ret->minor == 1 && !is_connect))
        return refuse(why, 400, differs);
    if (s->host_count == 1) {
        if (!read_authority(s->host, HTTP_PORT, &field))
            return refuse(why, 400, has_target ? differs : "malformed Host header");
        if (has_target && (strcmp(field.name.text, where->name.text) != 0 ||
                           (field.port != where->port && !is_connect)))
            return refuse(why, 400, differs);
    }
    ret->host = has_target ? where->host : field.host;
    ret->port = has_target ? where->port : field.port;
    return true;
}

/* ---- heads ---- */

/* "HTTP/1.0" or "HTTP/1.1". 0, or the status of the refusal. */
static int read_version(struct sp_str s, int *ret_minor)
{
    if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || s.p[6] != '.' || s.p[5] < '0' || s.p[5] > '9' ||
        s.p[7] < '0' || s.p[7] > '9')
        return 400;
    if (s.p[5] != '1' || s.p[7] > '1')
        return 505;
    *ret_minor = s.p[7] - '0';
    return 0;
}

static bool read_request_line(struct sp_str line, struct sp_http1_head *ret,
                              struct sp_str *ret_target, struct sp_http1_refusal *why)
{
    ret->method = sp_str_cut(&line, ' ');
    *ret_target = sp_str_cut(&line, ' ');
    if (!is_token(ret->method) || ret->method.n > SP_HTTP1_METHOD_MAX || ret_target->n == 0)
        return refuse(why, 400, "malformed request line");
    const int status = read_version(line, &ret->minor);
    if (status == 400)
        return refuse(why, 400, "malformed request line");
    if (status != 0 && sp_str_eq(ret->method, SP_STR("PRI")))
        return refuse(why, 400, "HTTP/2 is not spoken here");
    return status == 0 || refuse(why, status, "HTTP version other than 1.0 and 1.1");
}

/* Clients that offer h2c also speak HTTP/1.1, which stays readable: that offer is dropped. */
static bool wants_upgrade(const struct summary *s, int minor)
{
    return minor == 1 && s->has_upgrade && s->upgrade_count != 0 &&
           !(s->upgrade_count == 1 && sp_str_eq_nocase(s->upgrade, SP_STR("h2c")));
}

bool sp_http1_read_request(struct sp_str head, struct sp_http1_head *ret,
                           struct sp_http1_refusal *why)
{
    struct authority where = {0};
    struct summary s = {0};
    struct sp_str target;
    struct sp_str line;

    *ret = (struct sp_http1_head){0};
    if (head.n > SP_HTTP1_HEAD_MAX)
        return refuse(why, 431, "head of more than 64 KiB");
    if (!cut_line(&head, &line))
        return refuse(why, 400, "request line with a control character or without CR LF");
    if (!read_request_line(line, ret, &target, why) || !read_fields(head, ret, &s, why) ||
        !read_target(target, ret, &where, why) || !read_host(&s, ret, &where, why))
        return false;
    const char *wrong = read_framing(&s, ret);
    if (wrong != NULL)
        return refuse(why, 400, wrong);
    if (ret->form == SP_HTTP1_AUTHORITY) {
        /* The bytes behind the head belong to the tunnel; a body would be read as both. */
        if (ret->body == SP_HTTP1_CHUNKED || ret->length != 0)
            return refuse(why, 400, "CONNECT with a body");
        ret->body = SP_HTTP1_NO_BODY;
    }
    read_connection(&s, ret);
    ret->is_upgrade = ret->form != SP_HTTP1_AUTHORITY && wants_upgrade(&s, ret->minor);
    ret->expects_continue = s.has_expect && ret->minor == 1;
    return true;
}

/* VERSION STATUS or VERSION STATUS REASON. */
static bool read_status_line(struct sp_str line, struct sp_http1_head *ret)
{
    const struct sp_str version = sp_str_cut(&line, ' ');
    const struct sp_str digits = sp_str_cut(&line, ' ');
    uint64_t status = 0;

    if (read_version(version, &ret->minor) != 0 || digits.n != 3 ||
        !sp_str_to_u64(digits, 999, &status) || status < 100)
        return false;
    ret->status = (int)status;
    ret->reason = line;
    return true;
}

/* Some responses have no body, whatever their fields say. false: an interim one that promises a
 * body. */
static bool read_body_kind(struct sp_str method, struct sp_http1_head *ret)
{
    const bool is_tunnel = ret->status / 100 == 2 && sp_str_eq(method, SP_STR("CONNECT"));
    const bool never_has_one = ret->status < 200 || ret->status == 204;
    const bool promises = ret->body == SP_HTTP1_CHUNKED || ret->length != 0;

    if (!is_tunnel && !never_has_one && ret->status != 304 && !sp_str_eq(method, SP_STR("HEAD"))) {
        if (ret->body == SP_HTTP1_NO_BODY) {
            ret->body = SP_HTTP1_UNTIL_CLOSE;
            ret->keeps_alive = false;
        }
        return true;
    }
    ret->body = SP_HTTP1_NO_BODY;
    if (ret->status == 204 && promises)
        ret->keeps_alive = false; /* the server may send it all the same */
    return ret->status >= 200 || !promises;
}

bool sp_http1_read_response(struct sp_str head, struct sp_str method, struct sp_http1_head *ret,
                            struct sp_http1_refusal *why)
{
    struct summary s = {0};
    struct sp_str line;

    *ret = (struct sp_http1_head){0};
    if (head.n > SP_HTTP1_HEAD_MAX)
        return refuse(why, 502, "response head of more than 64 KiB");
    if (!cut_line(&head, &line) || !read_status_line(line, ret))
        return refuse(why, 502, "malformed status line");
    const bool is_read = read_fields(head, ret, &s, why);
    const char *wrong = is_read ? read_framing(&s, ret) : why->text;
    if (wrong != NULL)
        return refuse(why, 502, wrong);
    read_connection(&s, ret);
    if (!read_body_kind(method, ret))
        return refuse(why, 502, "interim response with a body");
    ret->is_upgrade = ret->status == 101;
    return true;
}
