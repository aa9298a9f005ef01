/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading builds one canonical text, segment by segment. All decisions (is it foreign, does it hold
 * a NUL) are made on that text or on the path decoded from it, never on the input, so that two
 * spellings of one URI cannot be judged differently.
 *
 * A path that looks like a drive (/C:/x) would read back as a Windows path. Such a path is written
 * in an "opaque" form, which no ordinary path has because it begins with a NUL.
 */
#include "base/uri.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"

#ifdef __APPLE__
#define HOST_OS "macos"
#else
#define HOST_OS "linux"
#endif

#define PREFIX      "file://"
#define PREFIX_LEN  (sizeof(PREFIX) - 1)
#define OPAQUE      "/%00/bad/path/"
#define OPAQUE_LEN  (sizeof(OPAQUE) - 1)
#define SHOWN_BYTES 300 /* of a URI in a message */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

static struct sp_str from(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p + n, s.n - n};
}

static struct sp_str until(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p, n};
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read URI");
}

/* ---- percent encoding ---- */

static bool add_percent(struct sp_buf *out, char c)
{
    static const char digit[] = "0123456789ABCDEF";
    const unsigned char byte = (unsigned char)c;

    return sp_buf_add(out, (const char[3]){'%', digit[byte >> 4], digit[byte & 15]}, 3);
}

/* Bytes that the standard does not encode in a path. '%' begins an escape or stands for itself. */
static bool is_kept_when_read(char c)
{
    return c > ' ' && c < 0x7F && strchr("\"#<>?`{}", c) == NULL;
}

static bool is_kept_when_written(char c)
{
    return is_kept_when_read(c) && c != '%' && c != '\\';
}

/* Appends s with the bytes that is_kept refuses percent-encoded. */
static bool add_encoded(struct sp_buf *out, struct sp_str s, bool (*is_kept)(char))
{
    while (s.n != 0) {
        size_t run = 0;

        while (run < s.n && is_kept(s.p[run]))
            run++;
        if (!sp_buf_add(out, s.p, run))
            return false;
        if (run < s.n && !add_percent(out, s.p[run++]))
            return false;
        s = from(s, run);
    }
    return true;
}

/* Decodes percent escapes into out, which has room for s.n bytes. Returns the length. */
static size_t decode_percent(char *out, struct sp_str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        const int high = s.p[i] == '%' && s.n - i > 2 ? sp_hex_digit(s.p[i + 1]) : -1;
        const int low = high >= 0 ? sp_hex_digit(s.p[i + 2]) : -1;

        if (low >= 0) {
            out[n++] = (char)(high << 4 | low);
            i += 2;
        } else {
            out[n++] = s.p[i];
        }
    }
    return n;
}

/* ---- drives ---- */

/* The drive letter, if the first non-empty component of the path is a letter and a colon. */
static const char *find_drive(struct sp_str path)
{
    while (path.n != 0 && path.p[0] == '/')
        path = from(path, 1);
    if (path.n < 2 || !is_letter(path.p[0]) || path.p[1] != ':')
        return NULL;
    return path.n == 2 || path.p[2] == '/' ? path.p : NULL;
}

/* In a URI, `|` is as good as the colon. */
static bool is_drive_segment(struct sp_str s)
{
    return s.n == 2 && is_letter(s.p[0]) && (s.p[1] == ':' || s.p[1] == '|');
}

/* ---- reading ---- */

/* Drops white space around the text, and tabs and line breaks within it. */
static int drop_space(struct sp_str *text, char **ret_copy, struct sp_err *e)
{
    struct sp_str s = *text;

    while (s.n != 0 && (unsigned char)s.p[0] <= ' ')
        s = from(s, 1);
    while (s.n != 0 && (unsigned char)s.p[s.n - 1] <= ' ')
        s.n--;
    if (s.n != 0 && (memchr(s.p, '\t', s.n) || memchr(s.p, '\n', s.n) || memchr(s.p, '\r', s.n))) {
        char *copy = malloc(s.n);
        size_t n = 0;

        if (copy == NULL)
            return no_memory(e);
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i] != '\t' && s.p[i] != '\n' && s.p[i] != '\r')
                copy[n++] = s.p[i];
        *ret_copy = copy;
        s = (struct sp_str){copy, n};
    }
    *text = s;
    return 0;
}

/*
 * Appends a host in lower case, or nothing for "localhost". A host with letters beyond ASCII is
 * refused: its canonical form would need the tables of IDNA, and it is never this host.
 */
static int add_host(struct sp_buf *canon, struct sp_str host, struct sp_err *e)
{
    auto_free char *name = malloc(host.n + 1);

    if (name == NULL)
        return no_memory(e);
    const bool is_ipv6 = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
    const size_t n = decode_percent(name, host);
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];

        if (is_ipv6 && i != 0 && i != n - 1 && sp_hex_digit(c) < 0 && c != ':' && c != '.')
            return sp_fail(e, SP_E_INVALID, 0, "invalid URI: invalid IPv6 address");
        if (!is_ipv6 && (c <= ' ' || c >= 0x7F || strchr("#/:<>?@[\\]^|%", c) != NULL))
            return sp_fail(e, SP_E_INVALID, 0, "invalid URI: invalid international domain name");
        if (c >= 'A' && c <= 'Z')
            name[i] = (char)(c + 32);
    }
    if (!sp_str_eq((struct sp_str){name, n}, SP_STR("localhost")) && !sp_buf_add(canon, name, n))
        return no_memory(e);
    return 0;
}

/* 1 for ".", 2 for "..", where %2e is a dot as well; 0 for other segments. */
static int dots_of(struct sp_str segment)
{
    int dots = 0;

    while (segment.n != 0) {
        const size_t len = segment.p[0] == '.' ? 1 : 3;

        if (len == 3 && !(segment.n >= 3 && sp_str_eq_nocase(until(segment, 3), SP_STR("%2e"))))
            return 0;
        if (++dots > 2)
            return 0;
        segment = from(segment, len);
    }
    return dots;
}

static int add_path(struct sp_buf *canon, struct sp_str path, struct sp_err *e)
{
    const size_t start = canon->len;

    if (path.n != 0 && is_slash(path.p[0]))
        path = from(path, 1);
    for (bool is_last = false; !is_last;) {
        size_t n = 0;

        while (n < path.n && !is_slash(path.p[n]))
            n++;
        is_last = n == path.n;
        struct sp_str segment = until(path, n);
        const int dots = dots_of(segment);

        /* ".." drops a segment, but never a drive */
        const struct sp_str above = {canon->data + start, canon->len - start};
        if (dots == 2 && (above.n != 3 || find_drive(above) == NULL))
            while (canon->len > start && canon->data[--canon->len] != '/')
                ;
        if (dots != 0)
            segment.n = 0; /* a final "." or ".." leaves a slash */
        if (canon->len == start && is_drive_segment(segment)) {
            if (!sp_buf_add(canon, (const char[3]){'/', segment.p[0], ':'}, 3))
                return no_memory(e);
        } else if (dots == 0 || is_last) {
            if (!sp_buf_add(canon, "/", 1) || !add_encoded(canon, segment, is_kept_when_read))
                return no_memory(e);
        }
        path = from(path, is_last ? n : n + 1);
    }
    return 0;
}

/* The part behind "file:", without query and fragment, in canonical form with a NUL behind it. */
static int canonicalize(struct sp_str s, struct sp_buf *canon, size_t *ret_path, struct sp_err *e)
{
    if (!sp_buf_add(canon, PREFIX, PREFIX_LEN))
        return no_memory(e);
    if (s.n >= 2 && is_slash(s.p[0]) && is_slash(s.p[1])) {
        size_t n = 2;

        while (n < s.n && !is_slash(s.p[n]))
            n++;
        const struct sp_str host = {s.p + 2, n - 2};
        const bool is_drive = is_drive_segment(host);
        const int r = is_drive ? 0 : add_host(canon, host, e);

        if (r < 0)
            return r;
        s = from(s, is_drive ? 2 : n);
    }

    const size_t start = canon->len;
    if (add_path(canon, s, e) < 0 || !sp_buf_add(canon, "", 1))
        return no_memory(e);
    canon->len--;

    const char *drive = find_drive((struct sp_str){canon->data + start, canon->len - start});
    if (drive != NULL)
        canon->data[drive - canon->data] &= (char)~0x20; /* upper case */
    *ret_path = start;
    return 0;
}

static int not_of_this_host(const struct sp_buf *canon, struct sp_err *e)
{
    const bool is_cut = canon->len > SHOWN_BYTES;

    return sp_fail(e, SP_E_INVALID, 0, "'%.*s%s' is invalid on '" HOST_OS "'", SHOWN_BYTES,
                   canon->data, is_cut ? "…" : "");
}

/*
 * Decodes the path of an opaque URI from base64url without padding. false: malformed, or a path
 * that has an ordinary form and must use that. out has room for code.n + 4 bytes.
 */
static bool decode_opaque(struct sp_str code, char *out, size_t *ret_len)
{
    for (size_t i = 0; i < code.n; i++) {
        const char c = code.p[i];

        if (!is_letter(c) && !is_digit(c) && c != '-' && c != '_')
            return false;
        out[i] = (char)(c == '-' ? '+' : c == '_' ? '/' : c);
    }
    size_t n = code.n;
    while (n % 4 != 0)
        out[n++] = '=';
    if (sp_base64_decode((struct sp_str){out, n}, out, &n, NULL) < 0)
        return false;
    *ret_len = n;
    const struct sp_str path = {out, n};
    return n != 0 && out[0] == '/' && !sp_str_has_nul(path) && find_drive(path) != NULL;
}

/* The POSIX path of the canonical text; a URI without one sets *is_foreign instead. */
static int decode_path(const struct sp_buf *canon, size_t start, char **ret, bool *is_foreign,
                       struct sp_err *e)
{
    const struct sp_str raw = {canon->data + start, canon->len - start};
    auto_free char *path = malloc(raw.n + 1);

    if (path == NULL)
        return no_memory(e);
    size_t n = decode_percent(path, raw);
    bool is_usable = start == PREFIX_LEN && find_drive((struct sp_str){path, n}) == NULL;
    if (memchr(path, 0, n) != NULL) {
        if (start != PREFIX_LEN || raw.n < OPAQUE_LEN || memcmp(raw.p, OPAQUE, OPAQUE_LEN) != 0 ||
            !decode_opaque(from(raw, OPAQUE_LEN), path, &n))
            return not_of_this_host(canon, e);
        is_usable = true;
    }
    path[n] = 0;
    *is_foreign = !is_usable;
    *ret = is_usable ? TAKE_PTR(path) : NULL;
    return 0;
}

int sp_uri_read(struct sp_str text, struct sp_uri *ret, struct sp_err *e)
{
    auto_free char *copy = NULL;
    auto_buf struct sp_buf canon = {0};
    struct sp_uri u = {0};
    size_t start = 0;
    size_t n = 0;
    int r = drop_space(&text, &copy, e);

    if (r < 0)
        return r;
    while (n < text.n &&
           (is_letter(text.p[n]) || (n != 0 && (is_digit(text.p[n]) || text.p[n] == '+' ||
                                                text.p[n] == '-' || text.p[n] == '.'))))
        n++;
    if (n == 0 || n == text.n || text.p[n] != ':')
        return sp_fail(e, SP_E_INVALID, 0, "invalid URI: relative URL without a base");
    if (!sp_str_eq_nocase(until(text, n), SP_STR("file"))) {
        char shown[100];
        const size_t len = n < sizeof shown ? n : sizeof shown;

        for (size_t i = 0; i < len; i++)
            shown[i] = (char)(text.p[i] >= 'A' && text.p[i] <= 'Z' ? text.p[i] + 32 : text.p[i]);
        return sp_fail(e, SP_E_INVALID, 0, "unsupported path URI scheme `%.*s`", (int)len, shown);
    }
    text = from(text, n + 1);

    n = 0;
    while (n < text.n && text.p[n] != '?' && text.p[n] != '#')
        n++;
    r = canonicalize(until(text, n), &canon, &start, e);
    if (r < 0)
        return r;
    if (n < text.n)
        return sp_fail(e, SP_E_INVALID, 0, "%s are not allowed in path URIs",
                       text.p[n] == '?' ? "query parameters" : "fragments");
    r = decode_path(&canon, start, &u.path, &u.is_foreign, e);
    if (r < 0)
        return r;
    u.text = TAKE_PTR(canon.data);
    *ret = u;
    return 0;
}

void sp_uri_done(struct sp_uri *u)
{
    free(u->text);
    free(u->path);
    *u = (struct sp_uri){0};
}

/* ---- writing ---- */

static bool add_opaque(struct sp_buf *out, struct sp_str path)
{
    char *room = sp_buf_add(out, PREFIX OPAQUE, PREFIX_LEN + OPAQUE_LEN)
                     ? sp_buf_room(out, SP_BASE64_LEN(path.n))
                     : NULL;

    if (room == NULL)
        return false;
    char *end = sp_base64_encode(room, path.p, path.n);
    while (end[-1] == '=')
        end--;
    for (char *c = room; c < end; c++)
        *c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c);
    out->len += (size_t)(end - room);
    return true;
}

static bool add_ordinary(struct sp_buf *out, struct sp_str path)
{
    if (!sp_buf_add(out, PREFIX, PREFIX_LEN))
        return false;
    /* "/C|" would read back as "/C:". */
    if (path.n >= 3 && is_letter(path.p[1]) && path.p[2] == '|' &&
        (path.n == 3 || path.p[3] == '/')) {
        if (!sp_buf_add(out, path.p, 2) || !add_percent(out, '|'))
            return false;
        path = from(path, 3);
    }
    return add_encoded(out, path, is_kept_when_written);
}

bool sp_uri_add(struct sp_buf *out, struct sp_str path)
{
    const size_t mark = out->len;

    assert(path.n != 0 && path.p[0] == '/');
    if (find_drive(path) != NULL ? add_opaque(out, path) : add_ordinary(out, path))
        return true;
    out->len = mark;
    return false;
}
