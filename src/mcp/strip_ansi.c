/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain: text as it reads without a terminal.
 *
 * What begins with ESC goes, as far as ECMA-48 says it reaches, and so do the controls that are not
 * a tab or a line feed. A sequence ends early at a byte that cannot be part of it, which then
 * counts as text: half a sequence does not swallow what follows. Titles and links (OSC) end with
 * their line at the latest. Carriage returns are line feeds, any number of them with the line feed
 * that may follow one together: what was written over stays readable, line by line.
 */
#include "mcp/output.h"

#define ESC 0x1B

enum state {
    TEXT,
    ESCAPE,  /* behind ESC */
    CHARSET, /* ESC and an intermediate byte: the final one is to come */
    SHIFT,   /* SS2, SS3: one character */
    CONTROL, /* CSI: parameters, then a final byte */
    TITLE,   /* OSC: up to BEL or ST */
    STRING,  /* DCS, SOS, PM, APC: up to ST */
};

static enum state behind_escape(unsigned char c)
{
    switch (c) {
    case '[':
        return CONTROL;
    case ']':
        return TITLE;
    case 'P':
    case 'X':
    case '^':
    case '_':
        return STRING;
    case 'N':
    case 'O':
        return SHIFT;
    default:
        return c < 0x30 ? CHARSET : TEXT;
    }
}

static bool is_string_end(enum state state, unsigned char c)
{
    if (c == 0x18 || c == 0x1A) /* CAN, SUB */
        return true;
    return state == TITLE && c == 0x07;
}

/* true: c was part of a sequence; false: it is text. */
static bool take(struct sp_mcp_plain *p, unsigned char c)
{
    const bool is_graphic = c >= 0x20 && c < 0x7F;

    if (c == ESC) { /* also the ESC of the ST that ends a string: ESC \ is then one of two bytes */
        p->state = ESCAPE;
        return true;
    }
    switch ((enum state)p->state) {
    case TEXT:
        return false;
    case TITLE:
    case STRING:
        if (p->state == TITLE && c == '\n')
            break;
        if (is_string_end((enum state)p->state, c))
            p->state = TEXT;
        return true;
    case ESCAPE:
        if (!is_graphic)
            break;
        p->state = (uint8_t)behind_escape(c);
        return true;
    case CHARSET:
        if (!is_graphic)
            break;
        p->state = c < 0x30 ? CHARSET : TEXT;
        return true;
    case SHIFT:
        if (!is_graphic)
            break;
        p->state = TEXT;
        return true;
    case CONTROL:
        if (!is_graphic)
            break;
        p->state = c < 0x40 ? CONTROL : TEXT;
        return true;
    }
    p->state = TEXT;
    return false;
}

/* What is written for a byte of text; 0: nothing. */
static char shown(struct sp_mcp_plain *p, unsigned char c)
{
    const bool had_cr = p->has_cr;

    if (c == '\r') {
        p->has_cr = true;
        return had_cr ? 0 : '\n';
    }
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
        return 0;
    p->has_cr = false;
    return c == '\n' && had_cr ? 0 : (char)c;
}

bool sp_mcp_plain_add(struct sp_mcp_plain *p, struct sp_buf *out, struct sp_str bytes)
{
    char *to = sp_buf_room(out, bytes.n);

    if (to == NULL && bytes.n != 0)
        return false;
    for (size_t i = 0; i < bytes.n; i++) {
        const unsigned char c = (unsigned char)bytes.p[i];

        if (take(p, c))
            continue;
        const char text = shown(p, c);
        if (text != 0)
            out->data[out->len++] = text;
    }
    return true;
}
