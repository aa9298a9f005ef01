/* SPDX-License-Identifier: Apache-2.0 */
/* What a terminal sends when a key is pressed; xterm's, in its normal mode. */
#include <errno.h>

#include "mcp/tool_priv.h"

static const struct {
    struct sp_str name, sends;
} known[] = {
    {SP_STR("Enter"), SP_STR("\r")},         {SP_STR("Tab"), SP_STR("\t")},
    {SP_STR("Escape"), SP_STR("\033")},      {SP_STR("Backspace"), SP_STR("\177")},
    {SP_STR("Delete"), SP_STR("\033[3~")},   {SP_STR("Up"), SP_STR("\033[A")},
    {SP_STR("Down"), SP_STR("\033[B")},      {SP_STR("Right"), SP_STR("\033[C")},
    {SP_STR("Left"), SP_STR("\033[D")},      {SP_STR("Home"), SP_STR("\033[H")},
    {SP_STR("End"), SP_STR("\033[F")},       {SP_STR("PageUp"), SP_STR("\033[5~")},
    {SP_STR("PageDown"), SP_STR("\033[6~")}, {SP_STR("F1"), SP_STR("\033OP")},
    {SP_STR("F2"), SP_STR("\033OQ")},        {SP_STR("F3"), SP_STR("\033OR")},
    {SP_STR("F4"), SP_STR("\033OS")},        {SP_STR("F5"), SP_STR("\033[15~")},
    {SP_STR("F6"), SP_STR("\033[17~")},      {SP_STR("F7"), SP_STR("\033[18~")},
    {SP_STR("F8"), SP_STR("\033[19~")},      {SP_STR("F9"), SP_STR("\033[20~")},
    {SP_STR("F10"), SP_STR("\033[21~")},     {SP_STR("F11"), SP_STR("\033[23~")},
    {SP_STR("F12"), SP_STR("\033[24~")},
};

/* C-a to C-z: 0 if it is none. */
static char control_of(struct sp_str name)
{
    const bool is_one =
        name.n == 3 && name.p[0] == 'C' && name.p[1] == '-' && name.p[2] >= 'a' && name.p[2] <= 'z';

    return is_one ? (char)(name.p[2] - 'a' + 1) : 0;
}

static int add_key(struct sp_buf *out, struct sp_str name, struct sp_err *e)
{
    const char control = control_of(name);
    struct sp_str sends = {&control, control != 0};

    for (size_t i = 0; sends.n == 0 && i < sizeof known / sizeof known[0]; i++)
        if (sp_str_eq(name, known[i].name))
            sends = known[i].sends;
    if (sends.n == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unknown key `%.*s`, expected one of Enter, Tab, Escape, Backspace, Delete, "
                       "Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F12, C-a to C-z",
                       (int)(name.n > 40 ? 40 : name.n), name.p);
    return sp_buf_add_str(out, sends) ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "type a key");
}

/* Names with blanks between them. */
static int add_names(struct sp_buf *out, struct sp_str s, struct sp_err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < s.n;) {
        size_t end = i;

        while (end < s.n && s.p[end] != ' ')
            end++;
        if (end != i)
            r = add_key(out, (struct sp_str){s.p + i, end - i}, e);
        i = end + 1;
    }
    return r;
}

int sp_mcp_keys_add(struct sp_buf *out, struct sp_json *j, uint32_t token, struct sp_err *e)
{
    int r = 0;

    if (sp_json_type(j, token) == SP_JSON_STRING)
        return add_names(out, sp_json_str(j, token), e);
    if (sp_json_type(j, token) != SP_JSON_ARRAY)
        return sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    for (uint32_t t = sp_json_first(j, token); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, token, t))
        r = sp_json_type(j, t) == SP_JSON_STRING
                ? add_key(out, sp_json_str(j, t), e)
                : sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    return r;
}
