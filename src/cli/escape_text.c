/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/escape_text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/auto.h"
#include "base/utf8.h"

/* The first character of valid UTF-8, and its length. */
static uint32_t decode_utf8(struct sp_str s, size_t *ret_len)
{
    const unsigned char *b = (const unsigned char *)s.p;

    *ret_len = b[0] < 0x80 ? 1 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    uint32_t c = *ret_len == 1 ? b[0] : b[0] & (0xFFU >> (*ret_len + 1));
    for (size_t i = 1; i < *ret_len; i++)
        c = c << 6 | (b[i] & 0x3FU);
    return c;
}

/* Not a control character, nor one that is invisible or reverses the text around it, so that it
 * reads as something else. */
static bool is_harmless(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7F && c < 0xA0) && c != 0x00AD && c != 0x061C && c != 0x180E &&
           !(c >= 0x200B && c <= 0x200F) && !(c >= 0x2028 && c <= 0x202E) &&
           !(c >= 0x2060 && c <= 0x206F) && c != 0xFEFF;
}

static bool add_escape(struct sp_buf *out, uint32_t c)
{
    if (c == '\n' || c == '\r' || c == '\t')
        return sp_buf_printf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    return sp_buf_printf(out, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c);
}

bool sp_plain_add(struct sp_buf *out, struct sp_str text)
{
    bool ok = true;

    while (ok && text.n > 0) {
        size_t len = 1;

        if ((unsigned char)text.p[0] >= 0x80 &&
            sp_utf8_valid_prefix((struct sp_str){text.p, text.n < 4 ? text.n : 4}) == 0) {
            ok = add_escape(out, (unsigned char)text.p[0]);
        } else {
            const uint32_t c = decode_utf8(text, &len);

            ok = is_harmless(c) ? sp_buf_add(out, text.p, len) : add_escape(out, c);
        }
        text = (struct sp_str){text.p + len, text.n - len};
    }
    return ok;
}

/* The length of an unfinished character or of a CR at the end: the next piece decides about it. */
static size_t unfinished_end(struct sp_str s)
{
    if (s.n > 0 && s.p[s.n - 1] == '\r')
        return 1;
    for (size_t k = 1; k <= 3 && k <= s.n; k++) {
        const unsigned char c = (unsigned char)s.p[s.n - k];

        if (c < 0x80)
            return 0;
        if (c >= 0xC0)
            return c >= (k == 1 ? 0xC2 : k == 2 ? 0xE0 : 0xF0) && c <= 0xF4 ? k : 0;
    }
    return 0;
}

bool sp_plain_add_output(struct sp_buf *out, struct sp_str piece, bool is_end,
                         struct sp_plain_rest *rest)
{
    auto_buf struct sp_buf all = {0};
    bool ok = true;

    if (rest->n > 0) {
        if (!sp_buf_add(&all, rest->bytes, rest->n) || !sp_buf_add_str(&all, piece))
            return false;
        piece = sp_buf_str(&all);
    }
    rest->n = is_end ? 0 : unfinished_end(piece);
    if (rest->n > 0)
        memcpy(rest->bytes, piece.p + piece.n - rest->n, rest->n);
    piece.n -= rest->n;
    /* Line feeds and tabs stay; CR LF becomes LF. */
    for (size_t from = 0; ok && from < piece.n;) {
        size_t at = from;

        while (at < piece.n && piece.p[at] != '\n' && piece.p[at] != '\t')
            at++;
        const bool has_cr =
            at < piece.n && piece.p[at] == '\n' && at > from && piece.p[at - 1] == '\r';
        ok = sp_plain_add(out, (struct sp_str){piece.p + from, at - from - has_cr}) &&
             (at == piece.n || sp_buf_add(out, piece.p + at, 1));
        from = at + 1;
    }
    return ok;
}

bool sp_plain_add_word(struct sp_buf *out, struct sp_str word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "%+,-./:=@_";
    size_t n = 0;

    while (n < word.n && word.p[n] != 0 && strchr(safe, word.p[n]) != NULL)
        n++;
    if (n == word.n && n > 0)
        return sp_buf_add_str(out, word);
    bool ok = sp_buf_add(out, "'", 1);
    while (ok && word.n > 0) {
        const char *quote = memchr(word.p, '\'', word.n);

        ok = sp_plain_add(out, sp_str_cut(&word, '\'')) &&
             (quote == NULL || sp_buf_printf(out, "'\\''"));
    }
    return ok && sp_buf_add(out, "'", 1);
}

void sp_plain_print(FILE *to, struct sp_str text)
{
    auto_buf struct sp_buf plain = {0};

    (void)sp_plain_add(&plain, text); /* out of memory: the beginning of it */
    (void)fwrite(sp_buf_str(&plain).p, 1, plain.len, to);
}

void sp_plain_say(const char *before, const char *text)
{
    auto_buf struct sp_buf line = {0};
    bool ok = sp_buf_printf(&line, "%s: ", before);

    for (;;) {
        const size_t n = strcspn(text, "\n");

        ok = ok && sp_plain_add(&line, (struct sp_str){text, n}) && sp_buf_add(&line, "\n", 1);
        if (text[n] == 0)
            break;
        text += n + 1;
    }
    if (ok)
        (void)fwrite(line.data, 1, line.len, stderr);
    else
        (void)fprintf(stderr, "%s: out of memory for an error message\n", before);
}

/* The columns of the character at the beginning of s, which is not empty. */
static size_t read_columns(struct sp_str s, size_t *ret_bytes)
{
    mbstate_t state = {0};
    wchar_t c;
    size_t n = mbrtowc(&c, s.p, s.n, &state);
    const bool is_known = n > 0 && n <= s.n;
    const int columns = is_known ? wcwidth(c) : 1;

    if (!is_known) /* the locale is not UTF-8, or these bytes are not */
        for (n = 1; n < s.n && ((unsigned char)s.p[n] & 0xC0) == 0x80;)
            n++;
    *ret_bytes = n;
    return columns < 0 ? 1 : (size_t)columns;
}

struct sp_str sp_plain_cut(struct sp_str plain, size_t width)
{
    size_t at = 0;
    size_t bytes;

    while (at < plain.n) {
        const size_t columns = read_columns((struct sp_str){plain.p + at, plain.n - at}, &bytes);

        if (columns > width)
            break;
        width -= columns;
        at += bytes;
    }
    return (struct sp_str){plain.p, at};
}

size_t sp_plain_width(struct sp_str plain)
{
    size_t width = 0;
    size_t bytes;

    for (size_t at = 0; at < plain.n; at += bytes)
        width += read_columns((struct sp_str){plain.p + at, plain.n - at}, &bytes);
    return width;
}

bool sp_plain_has_color(int fd)
{
    const char *kind = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");

    return (no_color == NULL || no_color[0] == 0) && kind != NULL && kind[0] != 0 &&
           strcmp(kind, "dumb") != 0 && isatty(fd);
}
