/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run is doing, in a line; and what a call asks for, from its arguments alone.
 *
 * The kernel is asked what a process is doing when somebody wants to know, and the answer is there
 * when they want to know again: nothing waits for it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/json.h"
#include "mcp/mcp_priv.h"
#include "mcp/output.h"

#define LINE_MAX_BYTES 200
#define TAIL_BYTES     4096 /* of output: its last line is looked for in these */
#define CUT            "\xe2\x80\xa6"

/* ---- what it is doing ---- */

/* On its way to the manager and back; the run may have ended by then. */
struct sp_mcp_looking {
    struct sp_mcp_caller *caller;
    struct sp_mcp_looking *prev, *next;
    struct sp_mcp_run *run; /* NULL: it has */
};

static const char *words_for(const struct sp_look *look)
{
    static const char *const words[SP_DOING_MAX] = {
        [SP_DOING_UNKNOWN] = "running",
        [SP_DOING_RUNNING] = "running",
        [SP_DOING_SLEEPING] = "sleeping",
        [SP_DOING_READING_TERMINAL] = "blocked reading its terminal",
        [SP_DOING_READING_STDIN] = "blocked reading its stdin",
        [SP_DOING_WAITING_FOR_CHILD] = "waiting for a child process",
        [SP_DOING_STOPPED] = "stopped",
    };

    return look != NULL && (unsigned)look->doing < SP_DOING_MAX ? words[look->doing] : "running";
}

static void free_looking(struct sp_mcp_looking *l)
{
    *(l->prev != NULL ? &l->prev->next : &l->caller->lookings) = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    if (l->run != NULL)
        l->run->looking = NULL;
    free(l);
}

void sp_mcp_lookings_free(struct sp_mcp_caller *c)
{
    while (c->lookings != NULL)
        free_looking(c->lookings);
}

void sp_mcp_run_forget_looking(struct sp_mcp_run *r)
{
    if (r->looking != NULL)
        r->looking->run = NULL;
    r->looking = NULL;
}

static void on_look(void *user, const struct sp_look *look)
{
    struct sp_mcp_looking *l = user;

    if (l->run != NULL)
        l->run->doing = words_for(look);
    free_looking(l);
}

static void look(struct sp_mcp_run *r)
{
    struct sp_mcp_caller *c = r->caller;
    struct sp_mcp_looking *l = r->looking != NULL ? NULL : calloc(1, sizeof *l);

    if (l == NULL)
        return; /* asked already, or not this time */
    *l = (struct sp_mcp_looking){.caller = c, .next = c->lookings, .run = r};
    if (l->next != NULL)
        l->next->prev = l;
    c->lookings = l;
    r->looking = l;
    sp_manager_look(c->manager, r->session_id, on_look, l);
}

/* ---- its last line ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A carriage return begins a line anew: what it overwrites is not seen either. */
static struct sp_str last_line(struct sp_str s)
{
    size_t from;

    while (s.n != 0 && is_blank(s.p[s.n - 1]))
        s.n--;
    for (from = s.n; from != 0 && s.p[from - 1] != '\n' && s.p[from - 1] != '\r'; from--)
        ;
    while (from < s.n && is_blank(s.p[from]))
        from++;
    return (struct sp_str){s.p + from, s.n - from};
}

/* The last bytes of what is kept. */
static bool add_tail(struct sp_buf *out, const struct sp_manager_view *v)
{
    const struct sp_str pieces[] = {v->head, v->tail[0], v->tail[1]};
    const size_t count = sizeof pieces / sizeof pieces[0];
    size_t left = TAIL_BYTES;
    size_t i = count;
    size_t skip = 0;
    struct sp_mcp_plain plain = {0};
    bool ok = true;

    while (i > 0 && left != 0) { /* back to where they begin */
        const size_t n = pieces[--i].n;

        skip = n > left ? n - left : 0;
        left -= n - skip;
    }
    for (; ok && i < count; i++, skip = 0)
        if (pieces[i].n != skip)
            ok = sp_mcp_plain_add(&plain, out,
                                  (struct sp_str){pieces[i].p + skip, pieces[i].n - skip});
    return ok;
}

static bool is_inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static bool add_short(struct sp_buf *out, struct sp_str line)
{
    auto_buf struct sp_buf visible = {0};
    size_t n = LINE_MAX_BYTES - (sizeof CUT - 1);

    if (!sp_question_add_visible(&visible, line, false))
        return false;
    if (visible.len <= LINE_MAX_BYTES)
        return sp_buf_add(out, visible.data, visible.len);
    while (n > 0 && is_inside_character(visible.data[n]))
        n--;
    return sp_buf_add(out, visible.data, n) && sp_buf_add(out, CUT, sizeof CUT - 1);
}

static const char *state_of(struct sp_mcp_run *r)
{
    if (r->question != 0)
        return "waiting for approval";
    if (r->session_id == 0)
        return r->engine_call != 0 ? "starting" : "running";
    const char *doing = r->doing;
    look(r);
    return doing != NULL ? doing : "running";
}

bool sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out)
{
    auto_buf struct sp_buf tail = {0};
    struct sp_manager_view v = {0};
    struct sp_str line = {0};

    if (r->question == 0 && r->session_id != 0 &&
        sp_manager_view(r->caller->manager, r->session_id, &v)) {
        if (!add_tail(&tail, &v))
            return false;
        line = last_line((struct sp_str){tail.len == 0 ? "" : tail.data, tail.len});
    }
    return line.n != 0 ? add_short(out, line) : sp_buf_add_str(out, sp_str_of(state_of(r)));
}

/* ---- what it asks for ---- */

static bool is_exit_alone(struct sp_json *j, uint32_t until)
{
    if (until == SP_JSON_NONE || sp_json_type(j, until) != SP_JSON_OBJECT ||
        j->tokens[until].children != 1)
        return false;
    const uint32_t exit = sp_json_get(j, until, "exit");
    return exit != SP_JSON_NONE && sp_json_type(j, exit) == SP_JSON_TRUE;
}

bool sp_mcp_run_is_to_completion(struct sp_str tool, struct sp_str arguments)
{
    auto_buf struct sp_buf text = {0};
    struct sp_json j = {0};
    bool is_it = false;

    if (!sp_str_eq(tool, SP_STR("exec_command")) || arguments.n == 0 ||
        memmem(arguments.p, arguments.n, "until", 5) == NULL) /* most say nothing of it */
        return false;
    if (!sp_buf_add_str(&text, arguments) || !sp_buf_add(&text, "", 1))
        return false;
    if (sp_json_parse(&j, text.data, arguments.n, NULL) == 0 &&
        sp_json_type(&j, 0) == SP_JSON_OBJECT) {
        const uint32_t yield = sp_json_get(&j, 0, "yield_time_ms");

        is_it = (yield == SP_JSON_NONE || sp_json_type(&j, yield) == SP_JSON_NULL) &&
                is_exit_alone(&j, sp_json_get(&j, 0, "until"));
    }
    sp_json_done(&j);
    return is_it;
}
