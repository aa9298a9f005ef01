/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport approvals`: the open questions of all running fronts, and answers to them. An answer
 * carries the digest of the question as it was shown here, so that it is for what was seen.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/escape_text.h"
#include "cli/observe.h"

struct approvals_options {
    bool watches, for_session, always, is_json;
    const char *reason;
    struct sp_observe_options server;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct approvals_options, watches, "watch",
                "go on with the questions that come, also of what starts later, until interrupted",
                .short_name = 'f'),
    SP_OPT_FLAG(struct approvals_options, for_session, "session",
                "allow: for this session, not only once"),
    SP_OPT_FLAG(struct approvals_options, always, "always", "allow: and keep the rule"),
    SP_OPT_STRING(struct approvals_options, reason, "reason", "TEXT", "deny: tell the caller why"),
    SP_OPT_FLAG(struct approvals_options, is_json, "json", "print one JSON object a line"),
    SP_OPT_TABLE(struct approvals_options, server, sp_observe_options),
    SP_OPT_END,
};

#define DIGEST_SHOWN 8 /* characters of a digest: nobody guesses them */

/* An open question. */
struct asked {
    struct sp_observe *server;
    uint64_t number;
    char *digest, *text, *rest,
        *rule; /* text and rest escaped; rule: JSON; NULL: none is offered */
    char *json;
    bool is_free, leaves_sandbox; /* leaves_sandbox: a patch that writes outside of it */
};

struct approvals {
    const struct approvals_options *options;
    const char *verb, *number;
    struct sp_observe *server; /* whose answer is read */
    struct asked *items;
    size_t count;
    int failed;
    int write_error; /* errno */
};

/* ---- reading ---- */

static char *copy_lines(struct sp_str text)
{
    struct sp_buf out = {0};
    bool ok = true;

    while (ok && text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        const struct sp_str line = sp_str_cut(&text, '\n');

        ok = sp_plain_add(&out, line) && (end == NULL || sp_buf_add(&out, "\n", 1));
    }
    if (ok && sp_buf_add(&out, "", 1))
        return out.data;
    sp_buf_done(&out);
    return NULL;
}

static bool read_rule(struct sp_json *j, uint32_t question, char **ret)
{
    uint32_t decisions = SP_JSON_NONE;

    if (sp_json_need_array(j, question, "decisions", &decisions, NULL) < 0)
        return false;
    for (uint32_t t = sp_json_first(j, decisions); t != SP_JSON_NONE;
         t = sp_json_next(j, decisions, t))
        if (sp_json_type(j, t) == SP_JSON_OBJECT && *ret == NULL) {
            const struct sp_str raw = sp_json_raw(j, t);

            *ret = strndup(raw.p, raw.n);
        }
    return true;
}

static void add_asked(struct approvals *a, struct sp_observe *server, struct sp_json *j, uint32_t t)
{
    struct sp_str digest = {0};
    struct sp_str text = {0};
    struct sp_str rest = {0};
    struct sp_str sandbox = {0};
    uint32_t effect = SP_JSON_NONE;
    uint32_t outside = SP_JSON_NONE;
    struct asked *items = realloc(a->items, (a->count + 1) * sizeof *items);

    if (items == NULL || sp_json_type(j, t) != SP_JSON_OBJECT) {
        a->items = items != NULL ? items : a->items;
        a->failed = 1;
        return;
    }
    a->items = items;
    struct asked *q = &a->items[a->count];
    const struct sp_str raw = sp_json_raw(j, t);
    *q = (struct asked){.server = server, .json = strndup(raw.p, raw.n)};
    a->count++;
    if (!read_rule(j, t, &q->rule) || sp_json_need_object(j, t, "effect", &effect, NULL) < 0 ||
        sp_json_need_u64(j, t, "number", UINT64_MAX, &q->number, NULL) < 0 ||
        sp_json_need_str(j, t, "digest", &digest, NULL) < 0 ||
        sp_json_need_str(j, t, "text", &text, NULL) < 0 ||
        sp_json_need_str(j, t, "rest", &rest, NULL) < 0 ||
        sp_json_opt_str(j, effect, "sandbox", &sandbox, NULL) < 0 ||
        sp_json_opt_array(j, effect, "outside", &outside, NULL) < 0)
        a->failed = 1;
    q->is_free = sandbox.n == 0;
    q->leaves_sandbox = outside != SP_JSON_NONE;
    q->digest = copy_lines(digest);
    q->text = copy_lines(text);
    q->rest = copy_lines(rest);
    if (q->digest == NULL || q->text == NULL || q->rest == NULL || q->json == NULL)
        a->failed = 1;
}

static void on_open(void *user, struct sp_json *j, uint32_t result)
{
    struct approvals *a = user;
    uint32_t all = SP_JSON_NONE;

    if (sp_json_type(j, result) != SP_JSON_OBJECT ||
        sp_json_need_array(j, result, "open", &all, NULL) < 0) {
        a->failed = 1;
        return;
    }
    for (uint32_t t = sp_json_first(j, all); t != SP_JSON_NONE; t = sp_json_next(j, all, t))
        add_asked(a, a->server, j, t);
}

/* ---- showing ---- */

static void print_asked(const struct approvals *a, const struct asked *q, bool is_whole)
{
    if (a->options->is_json) {
        (void)printf("%s\n", q->json);
        return;
    }
    (void)printf("%" PRIu64 "  %s/%d%s", q->number, q->server->kind, (int)q->server->pid, q->text);
    if (is_whole) /* the digest comes last: whoever has it has had all of it printed */
        (void)printf("%s  to allow it: sallyport approvals allow %" PRIu64 "-%.*s\n", q->rest,
                     q->number, DIGEST_SHOWN, q->digest);
    else if (q->rest[0] != 0 || q->is_free || q->leaves_sandbox)
        (void)printf("  to allow it: see `sallyport approvals show %" PRIu64 "`\n", q->number);
    (void)putchar('\n');
}

/* ---- answering ---- */

static bool has_number(const struct asked *q, const char *word)
{
    char number[32];
    const size_t n = strcspn(word, "-");

    (void)snprintf(number, sizeof number, "%" PRIu64, q->number);
    return strlen(number) == n && strncmp(number, word, n) == 0;
}

/* NUMBER, or NUMBER-DIGEST with at least the part of the digest that is shown. */
static bool is_meant(const struct asked *q, const char *word)
{
    struct sp_str digest = sp_str_of(q->digest);
    const char *dash = strchr(word, '-');

    return has_number(q, word) &&
           (dash == NULL ||
            (strlen(dash + 1) >= DIGEST_SHOWN && sp_str_skip_prefix(&digest, sp_str_of(dash + 1))));
}

/* NULL: none, or several. */
static const struct asked *find_asked(const struct approvals *a, struct sp_err *e)
{
    const struct asked *found = NULL;
    bool is_other_digest = false;
    unsigned count = 0;

    for (size_t i = 0; i < a->count; i++) {
        if (is_meant(&a->items[i], a->number) && count++ == 0)
            found = &a->items[i];
        is_other_digest |= has_number(&a->items[i], a->number);
    }
    if (count == 1)
        return found;
    if (count == 0 && is_other_digest)
        (void)sp_fail(e, SP_E_NOT_FOUND, 0,
                      "%.40s: the question with this number has another digest; read "
                      "`sallyport approvals show %.*s`",
                      a->number, (int)strcspn(a->number, "-"), a->number);
    else if (count == 0)
        (void)sp_fail(e, SP_E_NOT_FOUND, 0, "no such question: %.40s (see `sallyport approvals`)",
                      a->number);
    else
        (void)sp_fail(e, SP_E_INVALID, 0,
                      "%.40s means %u questions; say which with its digest, which "
                      "`sallyport approvals show %.20s` prints",
                      a->number, count, a->number);
    return NULL;
}

/* Of several programs that ask with one number, all questions. */
static int show(const struct approvals *a, struct sp_err *e)
{
    unsigned count = 0;

    for (size_t i = 0; i < a->count; i++)
        if (is_meant(&a->items[i], a->number)) {
            print_asked(a, &a->items[i], true);
            count++;
        }
    if (count == 0) {
        (void)find_asked(a, e);
        return -(int)e->code;
    }
    return fflush(stdout) == 0 ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "write the question");
}

static bool add_decision(struct sp_buf *b, const struct approvals *a, const struct asked *q)
{
    const struct approvals_options *o = a->options;

    if (strcmp(a->verb, "deny") == 0)
        return o->reason == NULL
                   ? sp_buf_printf(b, "\"denied\"")
                   : sp_buf_printf(b, "{\"denied\":{\"rejection\":") &&
                         sp_json_add_str(b, sp_str_of(o->reason)) && sp_buf_printf(b, "}}");
    if (o->always)
        return sp_buf_add_str(b, sp_str_of(q->rule));
    return sp_buf_printf(b, o->for_session ? "\"approved_for_session\"" : "\"approved\"");
}

static void on_decided(void *user, struct sp_json *j, uint32_t result)
{
    struct approvals *a = user;
    struct sp_str status = {0};
    struct sp_str outcome = SP_STR("?");

    if (sp_json_type(j, result) == SP_JSON_OBJECT) {
        (void)sp_json_opt_str(j, result, "status", &status, NULL);
        (void)sp_json_opt_str(j, result, "outcome", &outcome, NULL);
    }
    if (sp_str_eq(status, SP_STR("accepted")))
        return;
    (void)fputs("sallyport: it was answered before: ", stderr);
    sp_plain_print(stderr, outcome);
    (void)fputc('\n', stderr);
    a->failed = 1;
}

static int answer(struct approvals *a, struct sp_err *e)
{
    const struct asked *q = find_asked(a, e);
    auto_buf struct sp_buf params = {0};
    const bool allows = strcmp(a->verb, "allow") == 0;

    if (q == NULL)
        return -(int)e->code;
    if (allows && a->options->always && q->rule == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "--always: this question offers no rule");
    /* Only `show` prints the digest, behind the whole question: it proves that a wide answer, or
     * one to a question that the list shortens, was given to what was seen. */
    if (allows && strchr(a->number, '-') == NULL &&
        (q->rest[0] != 0 || q->is_free || q->leaves_sandbox || a->options->always))
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: read `sallyport approvals show %" PRIu64 "`, then allow it as "
                       "%" PRIu64 "-DIGEST, as its last line says",
                       q->rest[0] != 0     ? "this question is longer than the list shows"
                       : q->is_free        ? "this runs without a sandbox"
                       : q->leaves_sandbox ? "this writes outside of what the sandbox allows"
                                           : "--always keeps a rule for later commands",
                       q->number, q->number);
    if (!sp_buf_printf(&params, "{\"number\":%" PRIu64 ",\"digest\":", q->number) ||
        !sp_json_add_str(&params, sp_str_of(q->digest)) ||
        !sp_buf_printf(&params, ",\"decision\":") || !add_decision(&params, a, q) ||
        !sp_buf_add(&params, "}", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "answer");
    return sp_observe_ask(q->server, "approval/decide", sp_buf_str(&params), on_decided, a, e);
}

/* ---- following ---- */

static void drop_questions(struct approvals *a)
{
    for (size_t i = 0; i < a->count; i++) {
        free(a->items[i].digest);
        free(a->items[i].text);
        free(a->items[i].rest);
        free(a->items[i].rule);
        free(a->items[i].json);
    }
    a->count = 0;
}

/* Prints the questions that were read, and forgets them. After a reconnect a server lists open
 * questions again; its numbers only grow. */
static void print_new(struct approvals *a, struct sp_observe *o)
{
    if (a->failed != 0)
        (void)fprintf(stderr, "sallyport: a question of %s/%d cannot be read\n", o->kind,
                      (int)o->pid);
    for (size_t i = 0; i < a->count && a->failed == 0; i++)
        if (a->items[i].number > o->last_shown) {
            print_asked(a, &a->items[i], false);
            o->last_shown = a->items[i].number;
        }
    a->failed = 0;
    drop_questions(a);
    if (fflush(stdout) != 0) {
        a->write_error = errno;
        o->all->is_over = true;
        sp_loop_stop(o->all->loop);
    }
}

static void on_told(void *user, const struct sp_observe *o, struct sp_str method, struct sp_json *j,
                    uint32_t params)
{
    struct approvals *a = user;

    if (params == SP_JSON_NONE || !sp_str_eq(method, SP_STR("approval/opened")))
        return;
    a->server = &o->all->servers[o - o->all->servers];
    add_asked(a, a->server, j, params);
    print_new(a, a->server);
}

static void on_listed(void *user, struct sp_observe *o, struct sp_json *j, uint32_t result)
{
    struct approvals *a = user;

    a->server = o;
    on_open(a, j, result);
    print_new(a, o);
}

/* At a terminal silence looks like a command that hangs, or that has found no server. */
static void say_at_terminal(const char *text)
{
    if (isatty(STDERR_FILENO))
        sp_cli_warn(NULL, text);
}

static int follow(struct sp_observe_all *all, struct approvals *a, struct sp_err *e)
{
    static const struct sp_observe_ops ops = {.notified_by = on_told};

    all->ops = &ops;
    all->user = a;
    say_at_terminal("waiting for questions; Ctrl-C ends");
    const int r = sp_observe_follow(all, "approval/watch", on_listed, a, e);
    if (r == 0 && a->write_error != 0)
        return sp_fail(e, SP_E_SYSTEM, a->write_error, "write the questions");
    return r;
}

static int run_all(struct sp_observe_all *all, void *user, struct sp_err *e)
{
    struct approvals *a = user;
    int r = 0;

    if (all->follows)
        return follow(all, a, e);
    for (size_t i = 0; i < all->order_count; i++) {
        a->server = all->order[i];
        if (a->server->can_watch)
            (void)sp_observe_ask(a->server, "approval/watch", SP_STR("{}"), on_open, a, NULL);
    }
    if (a->failed != 0)
        return sp_fail(e, SP_E_FAILED, 0, "a list of questions cannot be read");
    if (a->verb != NULL) {
        r = strcmp(a->verb, "show") == 0 ? show(a, e) : answer(a, e);
        return r < 0 ? r : a->failed;
    }
    if (a->count == 0)
        say_at_terminal("no question is open");
    for (size_t i = 0; i < a->count; i++)
        print_asked(a, &a->items[i], false);
    return fflush(stdout) == 0 ? SP_EXIT_OK : sp_fail(e, SP_E_SYSTEM, errno, "write the questions");
}

static int misuse_verb(const char *verb)
{
    struct sp_nearest near = sp_nearest_to(sp_str_of(verb));
    char text[200];

    sp_nearest_offer(&near, "show");
    sp_nearest_offer(&near, "allow");
    sp_nearest_offer(&near, "deny");
    (void)snprintf(text, sizeof text, "`%.80s` is not show, allow or deny%s%s%s", verb,
                   near.best != NULL ? "; did you mean `" : "", near.best != NULL ? near.best : "",
                   near.best != NULL ? "`?" : "");
    return sp_command_misused(&sp_command_approvals, text);
}

static int run_approvals(void *values, char **operands)
{
    struct approvals a = {.options = values, .verb = operands[0]};
    const struct passwd *me = getpwuid(geteuid());
    auto_buf struct sp_buf console = {0};

    if (a.verb != NULL && strcmp(a.verb, "list") == 0 && operands[1] == NULL)
        a.verb = NULL; /* a habit from elsewhere */
    if (a.verb != NULL && strcmp(a.verb, "show") != 0 && strcmp(a.verb, "allow") != 0 &&
        strcmp(a.verb, "deny") != 0)
        return misuse_verb(a.verb);
    if (a.verb != NULL && (a.number = operands[1]) == NULL)
        return sp_command_misused(&sp_command_approvals, "which question?");
    if ((a.options->for_session || a.options->always) &&
        (a.verb == NULL || strcmp(a.verb, "allow") != 0))
        return sp_command_misused(&sp_command_approvals, "--session and --always are for allow");
    if (a.options->for_session && a.options->always)
        return sp_command_misused(&sp_command_approvals,
                                  "--session and --always: give one of them");
    if (a.options->reason != NULL && (a.verb == NULL || strcmp(a.verb, "deny") != 0))
        return sp_command_misused(&sp_command_approvals, "--reason is for deny");
    if (!sp_buf_printf(&console, "{\"who\":") ||
        !sp_json_add_str(&console, sp_str_of(me == NULL ? "?" : me->pw_name)) ||
        !sp_buf_printf(&console, ",\"roles\":[\"approver\"],\"via\":\"sallyport approvals\"}") ||
        !sp_buf_add(&console, "", 1))
        return SP_EXIT_FAILED;
    struct sp_observe_options server = a.options->server;
    server.follows = a.options->watches && a.verb == NULL;
    const int status = sp_observe_run(&server, console.data, run_all, &a);
    drop_questions(&a);
    free(a.items);
    return status;
}

const struct sp_cli_command sp_command_approvals = {
    .name = "approvals",
    .summary = "list and answer the questions of running commands and agents",
    .usage = "sallyport approvals [OPTIONS] [show N | allow N | deny N]\n"
             "\n"
             "Lists what every running mcp, exec and serve of this user asks a person, and answers "
             "it. N is the number of a question, or NUMBER-DIGEST as `show` prints it, which is "
             "needed to allow a long question, a command without a sandbox, or --always. The first "
             "answer counts, also one that is given elsewhere.\n",
    .notes =
        "Exit status: 0; 1 if it failed, there is no such question, or it was answered before; "
        "2 for a wrong command line; 123 if no server runs. -f waits for servers, and ends with "
        "123 when the one of --on has ended.\n"
        "Example: sallyport approvals allow 102 --session\n",
    .options = options,
    .max_operands = 2,
    .values_size = sizeof(struct approvals_options),
    .run = run_approvals,
};
