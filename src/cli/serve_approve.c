/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_approve.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/network.h"
#include "approve/program.h"
#include "approve/run_plan.h"
#include "approve/script/script.h"
#include "base/auto.h"
#include "base/list.h"
#include "base/log.h"
#include "cli/approval_records.h"
#include "core/proc_receipt.h"
#include "core/session.h"
#include "engine/console.h"
#include "os/remote_mounts.h"
#include "sandbox/policy_json.h"
#include "server/rpc/ask.h"
#include "server/rpc/conn.h"

#define TOO_MANY \
    "approval required, but too many questions of this session are open; wait for some answers"

/* The client of a session as an approver: it gets `approval/request` on its own connection. */
struct client_approver {
    struct sp_approver approver;
    struct sp_conn *conn;   /* of the start that is being judged */
    bool is_able;           /* its `initialize` said that it answers */
    struct sp_list queries; /* struct client_query, not answered yet */
};

struct client_query {
    struct sp_list link;
    struct client_approver *by;
    struct sp_ask ask;
    uint64_t question;
    sp_approver_fn *done;
    void *user;
};

/* What one session of a client has: its own memory of approvals, and its own chain of approvers. */
struct approval_session {
    struct sp_list link;
    struct sp_serve_approve *by;
    uint64_t session;
    struct sp_approval_records records;
    struct sp_approvals *approvals;
    struct client_approver *client; /* NULL: the client is not among those who answer */
    struct sp_approver *console;
    struct sp_approver *approver; /* the chain; NULL: none answers */
    unsigned open;                /* questions; at most SP_SERVE_MAX_QUESTIONS */
};

/* The variables of a client that choose which program runs, or make a program run others. */
struct steering_env {
    struct sp_words words; /* env NAME=VALUE ...; count 0: no such variable */
    struct sp_str path;    /* the client's PATH; n 0: none */
    struct sp_str *items;  /* of words; freed with this */
};

/* A process/start that is being judged. */
struct pending_start {
    struct sp_start_gate_case *judged;
    struct approval_session *session;
    struct sp_run_plan plan;
    struct sp_buf key; /* the variables and the sandbox that an approval is for */
    struct steering_env env;
    struct sp_deferred later; /* reports the decision from the loop, not from within the plan */
    bool is_beginning;        /* within sp_run_plan_begin */
    bool is_open;             /* counted in session->open */
    char failure[sizeof(struct sp_err) + 128];
};

/* ---- the client as an approver ---- */

static void free_query(struct client_query *q)
{
    sp_ask_withdraw(&q->ask);
    sp_list_remove(&q->link);
    free(q);
}

static void on_query_answered(struct sp_ask *a, struct sp_str result)
{
    struct client_query *q = SP_CONTAINER(a, struct client_query, ask);
    struct sp_decision_text d = {0}; /* a denial, also for an answer that is too long */

    if (result.p == NULL) /* an error: the client cannot answer */
        d.decision =
            (struct sp_decision){.kind = SP_DECISION_FAILED, .rejection = SP_STR(SP_NO_APPROVER)};
    else if (result.n <= SP_APPROVER_CLIENT_ANSWER_MAX)
        sp_decision_read(result, false, &d);
    if (result.p != NULL)
        d.decision.by = SP_DECIDER_USER;
    q->done(q->user, q->question, &d.decision);
    sp_decision_text_done(&d);
    free_query(q);
}

/* Every way out calls `done`, or leaves a query that on_query_answered() ends. */
static void ask_client(struct sp_approver *a, const struct sp_approval_question *question,
                       sp_approver_fn *done, void *user)
{
    static const struct sp_decision unable = {.kind = SP_DECISION_FAILED,
                                              .rejection = SP_STR(SP_NO_APPROVER)};
    static const struct sp_decision failed = {
        .kind = SP_DECISION_FAILED,
        .rejection = SP_STR("the question could not be sent to the client")};
    struct client_approver *by = SP_CONTAINER(a, struct client_approver, approver);
    auto_buf struct sp_buf text = {.max = SP_APPROVER_CLIENT_QUESTION_MAX};

    if (!by->is_able) {
        done(user, question->id, &unable);
        return;
    }
    struct client_query *q = calloc(1, sizeof *q);
    if (q != NULL) {
        *q = (struct client_query){.by = by, .question = question->id, .done = done, .user = user};
        sp_list_prepend(&by->queries, &q->link);
        if (by->conn != NULL && sp_question_add_json(&text, question) &&
            sp_ask_send(&q->ask, by->conn, "approval/request", sp_buf_str(&text),
                        on_query_answered))
            return;
        free_query(q);
    }
    done(user, question->id, &failed);
}

static void withdraw_from_client(struct sp_approver *a, uint64_t question, void *user)
{
    struct client_approver *by = SP_CONTAINER(a, struct client_approver, approver);

    sp_list_each(i, &by->queries) {
        struct client_query *q = SP_CONTAINER(i, struct client_query, link);

        if (q->question == question && q->user == user) {
            free_query(q);
            return;
        }
    }
}

static void free_client_approver(struct sp_approver *a)
{
    struct client_approver *by = SP_CONTAINER(a, struct client_approver, approver);

    sp_list_each_safe(i, &by->queries)
        free_query(SP_CONTAINER(i, struct client_query, link));
    free(by);
}

static const struct sp_approver_ops client_ops = {
    .ask = ask_client, .withdraw = withdraw_from_client, .free = free_client_approver};

/* ---- sessions ---- */

static void free_session(struct approval_session *s)
{
    sp_list_remove(&s->link);
    sp_approvals_free(s->approvals);
    sp_approver_free(s->approver);
    if (s->client != NULL)
        sp_approver_free(&s->client->approver);
    sp_approver_free(s->console);
    free(s);
}

/* NULL: e says why. */
static struct approval_session *make_session(struct sp_serve_approve *a,
                                             const struct sp_start_gate_case *c, struct sp_err *e)
{
    struct approval_session *s = calloc(1, sizeof *s);
    struct sp_approvals_options o = a->setup.found.options;
    const bool has_client = sp_approvers_has_client(a->setup.approvers);
    int r = 0;

    if (s == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
        return NULL;
    }
    s->by = a;
    s->session = c->session;
    sp_list_prepend(&a->sessions, &s->link);
    if (has_client && (s->client = calloc(1, sizeof *s->client)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare an approver");
    if (s->client != NULL) {
        s->client->approver.ops = &client_ops;
        sp_list_init(&s->client->queries);
    }
    if (r == 0)
        r = sp_console_approver_new(a->console,
                                    &(struct sp_console_options){
                                        .session = c->conn->session->id,
                                        .client_name = c->conn->session->client_name,
                                        .user_dir = o.user_dir,
                                    },
                                    &s->console, e);
    if (r == 0 && a->setup.approvers != NULL)
        r = sp_approvers_chain(a->setup.approvers, s->client == NULL ? NULL : &s->client->approver,
                               s->console, &s->approver, e);
    o.approver = s->approver;
    s->records = (struct sp_approval_records){.ledger = a->ledger,
                                              .session = c->session,
                                              .fingerprint = &a->setup.found.options.fingerprint};
    o.store = sp_approval_records_store(&s->records);
    if (r == 0)
        r = sp_approvals_new(&o, &s->approvals, e);
    if (r == 0) {
        sp_approval_records_restore(&s->records, s->approvals);
        return s;
    }
    free_session(s);
    return NULL;
}

static struct approval_session *find_session(const struct sp_serve_approve *a, uint64_t session)
{
    sp_list_each(i, &a->sessions) {
        struct approval_session *s = SP_CONTAINER(i, struct approval_session, link);

        if (s->session == session)
            return s;
    }
    return NULL;
}

/* NULL: e says why. */
static struct approval_session *get_session(struct sp_serve_approve *a,
                                            const struct sp_start_gate_case *c, struct sp_err *e)
{
    struct approval_session *s = find_session(a, c->session);

    if (s == NULL)
        s = make_session(a, c, e);
    if (s == NULL)
        return NULL;
    sp_list_remove(&s->link);
    sp_list_prepend(&a->sessions, &s->link);
    if (s->client != NULL) {
        s->client->conn = c->conn;
        s->client->is_able = c->takes_approvals;
        sp_approvals_set_no_approver(
            s->approvals, !c->takes_approvals && !sp_approvers_has_others(a->setup.approvers));
    }
    return s;
}

/* For sp_start_gate_ops. */
static void note_closed(struct sp_start_gate *g, const struct sp_proc *p)
{
    const struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct sp_kept_receipt r __attribute__((cleanup(sp_receipt_drop))) = {0};
    const struct approval_session *s = find_session(a, p->session->number);

    if (s != NULL && a->setup.found.options.audits_receipts && sp_proc_receipt(p, &r))
        sp_approvals_note_end(s->approvals, p->id, SP_STR("local"), &r.is);
}

/* For sp_start_gate_ops. */
static void forget_session(struct sp_start_gate *g, uint64_t session)
{
    struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct approval_session *s = find_session(a, session);

    if (s != NULL)
        free_session(s);
    else
        sp_approval_records_forget(a->ledger, session);
}

bool sp_serve_approve_forbids_host(const struct sp_serve_approve *a, const struct sp_hostname *host)
{
    return sp_network_is_denied_by_rules(a->setup.found.options.rules, host);
}

/* The files of rules have changed: new rules for all sessions, from the next start on. */
static bool set_rules(void *user, struct sp_rules *rules, struct sp_str fingerprint)
{
    struct sp_serve_approve *a = user;
    struct sp_approvals_options *o = &a->setup.found.options;
    struct sp_rules *before = o->rules;
    bool ok = true;

    o->rules = sp_rules_ref(rules);
    o->fingerprint = fingerprint; /* owned by the watch, valid until the next change */
    sp_rules_unref(before);
    sp_list_each(i, &a->sessions) {
        struct approval_session *s = SP_CONTAINER(i, struct approval_session, link);

        ok = sp_approvals_set_rules(s->approvals, rules, fingerprint) && ok;
    }
    return ok;
}

/* ---- variables that choose what runs ---- */

/*
 * `ls` may be known to be safe while `PATH=/site/evil ls` is not. A script with such an assignment
 * is not judged by its words; a client must not get further by setting the variable itself. So the
 * variables are put in front of the command as `env NAME=VALUE ...`, and judged and shown with it.
 */

/* Variables that choose which code a program loads, which files a shell reads first, or which
 * program another one starts. The lists cannot be complete: they have the common ones. */
static bool is_steering(struct sp_str name, struct sp_str value)
{
    struct sp_str families =
        SP_STR("LD_ BASH_FUNC_ GCONV_ GIT_ PYTHON PERL RUBY NODE_ RUSTC CARGO_ LUA_INIT LUA_PATH "
               "LUA_CPATH OPENSSL_");
    struct sp_str names =
        SP_STR("BASH_ENV ENV SHELLOPTS BASHOPTS IFS PS4 HOME ZDOTDIR XDG_CONFIG_HOME "
               "GLIBC_TUNABLES EDITOR VISUAL LESSOPEN LESSCLOSE BROWSER SHELL MAKEFLAGS "
               "_JAVA_OPTIONS MAKEFILES JAVA_TOOL_OPTIONS PHPRC CDPATH SSH_ASKPASS SUDO_ASKPASS "
               "RIPGREP_CONFIG_PATH GNUMAKEFLAGS GOFLAGS PHP_INI_SCAN_DIR KUBECONFIG "
               "DOTNET_STARTUP_HOOKS DOCKER_CONFIG CURL_HOME FPATH RUSTFLAGS PROMPT_COMMAND "
               "TAR_OPTIONS RSYNC_RSH MFLAGS GOENV WGETRC");
    static const char npm[] = "npm_config_"; /* in any case */
    const struct sp_str pager =
        SP_STR("PAGER"); /* agents set PAGER=cat to get all output at once */

    if (name.n >= pager.n && memcmp(name.p + name.n - pager.n, pager.p, pager.n) == 0)
        return value.n != 0 && !sp_str_eq(value, SP_STR("cat"));
    while (families.n != 0) {
        struct sp_str rest = name;

        if (sp_str_skip_prefix(&rest, sp_str_cut(&families, ' ')))
            return true;
    }
    while (names.n != 0)
        if (sp_str_eq(name, sp_str_cut(&names, ' ')))
            return true;
    return name.n >= sizeof npm - 1 && strncasecmp(name.p, npm, sizeof npm - 1) == 0;
}

enum found { FOUND, NOT_FOUND, NOT_KNOWN };

/* The program that this PATH finds. Relative entries are skipped: a PATH that has one is judged
 * with the command anyway. NOT_KNOWN: an earlier entry may be on a network file system, where
 * stat() could block the front, or has "..", "." or "//", so that its mount is not known. */
static enum found find_program(const struct sp_remote_mounts *remote, struct sp_str path,
                               struct sp_str name, struct stat *ret)
{
    char file[PATH_MAX];

    for (;;) {
        const char *colon = path.n == 0 ? NULL : memchr(path.p, ':', path.n);
        const struct sp_str entry = {path.p, colon == NULL ? path.n : (size_t)(colon - path.p)};
        struct sp_str dir = entry;

        while (dir.n > 1 && dir.p[dir.n - 1] == '/')
            dir.n--;
        const int n = snprintf(file, sizeof file, SP_STR_FMT "/" SP_STR_FMT, SP_STR_ARG(dir),
                               SP_STR_ARG(name));

        if (n > 0 && (size_t)n < sizeof file && file[0] == '/') {
            if (strstr(file, "//") != NULL || strstr(file, "/../") != NULL ||
                strstr(file, "/./") != NULL || sp_remote_mounts_have(remote, file))
                return NOT_KNOWN;
            if (stat(file, ret) == 0 && S_ISREG(ret->st_mode) && access(file, X_OK) == 0)
                return FOUND;
        }
        if (colon == NULL)
            return NOT_FOUND;
        path = (struct sp_str){colon + 1, path.n - entry.n - 1};
    }
}

/* Whether the client's PATH finds, or may find, another program than ours does. */
static bool is_other_program(const struct sp_remote_mounts *remote, struct sp_str name,
                             struct sp_str path, const char *ours)
{
    struct stat its;
    struct stat usual;

    if (name.n == 0 || memchr(name.p, '/', name.n) != NULL || sp_str_eq(path, sp_str_of(ours)))
        return false;
    const enum found found = find_program(remote, path, name, &its);
    if (found != FOUND)
        return found == NOT_KNOWN;
    return find_program(remote, sp_str_of(ours), name, &usual) != FOUND ||
           its.st_ino != usual.st_ino || its.st_dev != usual.st_dev;
}

/* Checks the program itself, and those that a script starts. */
static int is_path_steering(const struct sp_start_gate_case *c, struct sp_str path,
                            char *const *ours, bool *ret, struct sp_err *e)
{
    auto_segments struct sp_segments s = {0};
    struct sp_remote_mounts remote;
    const char *our_path = "";
    const int r = sp_segments_read(&s, (struct sp_words){c->start->argv, c->start->argc}, e);

    if (r < 0)
        return r;
    for (; our_path[0] == 0 && ours != NULL && *ours != NULL; ours++)
        if (strncmp(*ours, "PATH=", 5) == 0)
            our_path = *ours + 5;
    sp_remote_mounts_open(&remote);
    *ret = c->start->argc != 0 && is_other_program(&remote, c->start->argv[0], path, our_path);
    for (uint32_t i = 0; i < s.count && !*ret; i++)
        *ret =
            s.items[i].count != 0 && is_other_program(&remote, s.items[i].items[0], path, our_path);
    sp_remote_mounts_close(&remote);
    return 0;
}

/* For sp_network_policy_variables: false if *user is this variable. */
static bool is_other_variable(void *user, const char *name, const char *value)
{
    const struct sp_str *word = user;
    struct sp_str rest = *word;

    return value == NULL || !sp_str_skip_prefix(&rest, sp_str_of(name)) ||
           !sp_str_skip_prefix(&rest, SP_STR("=")) || !sp_str_eq(rest, sp_str_of(value));
}

/* Whether we have set the variable for the proxy of a managed network. */
static bool is_of_network(const struct sp_start *start, struct sp_str word)
{
    const struct sp_network_policy *managed =
        start->policy == NULL ? NULL : sp_profile_managed(&start->policy->profile);

    return managed != NULL && !sp_network_policy_variables(managed, is_other_variable, &word);
}

/* Adds each NAME=VALUE that steers and is not the server's own. The words point into c->start->env.
 */
static int read_steering_env(struct steering_env *ret, const struct sp_start_gate_case *c,
                             char *const *ours, struct sp_err *e)
{
    const char *at = c->start->env->data;
    int r = 0;

    *ret = (struct steering_env){.items = calloc(c->start->envc + (size_t)1, sizeof *ret->items)};
    if (ret->items == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "judge a command");
    ret->words.items = ret->items;
    ret->items[ret->words.count++] = SP_STR("env");
    for (uint32_t i = 0; i < c->start->envc && r == 0; i++) {
        const struct sp_str word = sp_str_of(at);
        struct sp_str value = word;
        const struct sp_str name = sp_str_cut(&value, '=');
        bool counts = is_steering(name, value);
        bool is_relative = false;
        bool is_ours = false;

        for (char *const *own = ours; own != NULL && *own != NULL; own++)
            is_ours |= sp_str_eq(word, sp_str_of(*own));
        is_ours = is_ours || (counts && is_of_network(c->start, word));
        if (sp_str_eq(name, SP_STR("PATH"))) {
            ret->path = value;
            /* Which program a name means changes with every `cd` of a script. */
            is_relative = sp_path_is_relative(value);
            r = is_path_steering(c, value, ours, &counts, e);
        }
        if (r == 0 && (is_relative || (counts && !is_ours)))
            ret->items[ret->words.count++] = word;
        at += word.n + 1;
    }
    if (ret->words.count == 1)
        ret->words.count = 0;
    return r;
}

/* ---- one start ---- */

static bool add_counted(struct sp_buf *out, struct sp_str s)
{
    return sp_buf_printf(out, "%zu:", s.n) && sp_buf_add_str(out, s);
}

/* PATH, the variables that choose what runs, and the sandbox, in a canonical form: an approval for
 * the session is for these only. */
static int add_key(struct sp_buf *out, const struct steering_env *v, const struct sp_policy *p,
                   struct sp_err *e)
{
    bool ok = add_counted(out, v->path) && sp_buf_printf(out, "%u,", v->words.count);

    for (uint32_t i = 0; ok && i < v->words.count; i++)
        ok = add_counted(out, v->words.items[i]);
    if (ok && p != NULL) {
        const int r = sp_profile_write(out, &p->profile, SP_PATH_URI, e);
        if (r < 0)
            return r;
        ok = sp_buf_printf(out, "%c%s%c%s%c%s%c%d", 0, p->cwd == NULL ? "" : p->cwd, 0,
                           p->tmpdir == NULL ? "" : p->tmpdir, 0, p->home == NULL ? "" : p->home, 0,
                           p->cwd_is_root);
        if (ok && sp_profile_managed(&p->profile) != NULL)
            ok = sp_network_policy_add_key(sp_profile_managed(&p->profile), out);
        for (size_t i = 0; ok && i < p->root_count; i++)
            ok = sp_buf_printf(out, "%c%s", 0, p->roots[i]);
        if (sp_profile_managed(&p->profile) != NULL)
            ok = ok && sp_buf_add(out, "", 1) &&
                 sp_network_policy_add_key(sp_profile_managed(&p->profile), out);
    }
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "judge a command");
}

static void refuse_start(struct pending_start *t, enum sp_code code, struct sp_str reason)
{
    t->judged->answer = SP_START_GATE_NO;
    t->judged->code = code;
    t->judged->reason = reason;
}

static void fail_start(struct pending_start *t, const struct sp_err *e)
{
    refuse_start(t, e->code, sp_str_of(sp_error_text(e, t->failure, sizeof t->failure)));
}

/* Fills in the answer of the gate from the state of the plan. */
static void take_decision(struct pending_start *t)
{
    const struct sp_run_plan *p = &t->plan;
    const struct sp_str reason = sp_buf_str(&p->reason);

    switch (p->state) {
    case SP_RUN_PLAN_GO:
        t->judged->answer = SP_START_GATE_YES;
        return;
    case SP_RUN_PLAN_ASKING:
        t->judged->answer = SP_START_GATE_ASKING;
        return;
    case SP_RUN_PLAN_FAILED:
        fail_start(t, &p->error);
        return;
    case SP_RUN_PLAN_REFUSED:
        refuse_start(t,
                     p->request.cannot_ask.n != 0 && sp_str_eq(reason, p->request.cannot_ask)
                         ? SP_E_LIMIT
                         : SP_E_STATE,
                     reason);
        return;
    case SP_RUN_PLAN_NEW:
        break;
    }
    refuse_start(t, SP_E_FAILED, SP_STR("the command was not judged"));
}

static void close_question(struct pending_start *t)
{
    if (!t->is_open)
        return;
    t->session->open--;
    t->is_open = false;
}

static void report_decision(struct sp_deferred *d)
{
    struct pending_start *t = SP_CONTAINER(d, struct pending_start, later);

    take_decision(t);
    t->judged->decided(t->judged);
}

static void on_plan_decided(struct sp_run_plan *p)
{
    struct pending_start *t = SP_CONTAINER(p, struct pending_start, plan);

    if (t->is_beginning) /* decided at once: judge_start takes it */
        return;
    close_question(t);
    sp_loop_defer(t->session->by->loop, &t->later, report_decision);
}

/* For sp_start_gate_ops. The answer is in *c at return, or is ASKING and c->decided is called
 * later.
 * */
static void judge_start(struct sp_start_gate *g, struct sp_start_gate_case *c)
{
    struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct pending_start *t = calloc(1, sizeof *t);
    struct sp_err e = {0};

    c->impl = t;
    c->answer = SP_START_GATE_NO;
    c->code = SP_E_SYSTEM;
    c->reason = SP_STR("judge a command: out of memory");
    if (t == NULL)
        return;
    t->judged = c;
    t->session = get_session(a, c, &e);
    if (t->session == NULL || read_steering_env(&t->env, c, a->environ, &e) < 0 ||
        add_key(&t->key, &t->env, c->start->policy, &e) < 0) {
        fail_start(t, &e);
        return;
    }
    /* At most SP_SERVE_MAX_QUESTIONS of a session are with hooks, the reviewer or approvers. */
    const bool is_one_too_many = t->session->open >= SP_SERVE_MAX_QUESTIONS;
    const struct sp_run_plan_request ask = {
        .call_id = c->start->id,
        .environment = SP_STR("local"),
        .argv = {c->start->argv, c->start->argc},
        .cwd = c->start->cwd,
        .is_tty = c->start->is_tty,
        .policy = c->start->policy,
        .keeps_policy = true,
        .key_more = sp_buf_str(&t->key),
        .shell = a->shell,
        .environ = {c->start->envc == 0 ? "" : c->start->env->data, c->start->env->len},
        .preface = t->env.words,
        .cannot_ask = is_one_too_many ? SP_STR(TOO_MANY) : (struct sp_str){0},
    };
    t->is_beginning = true;
    sp_run_plan_begin(&t->plan, t->session->approvals, &ask, on_plan_decided);
    t->is_beginning = false;
    t->is_open = t->plan.state == SP_RUN_PLAN_ASKING;
    t->session->open += t->is_open;
    take_decision(t);
}

/* For sp_start_gate_ops: the start is decided, or its connection is gone. */
static void end_start(struct sp_start_gate *g, struct sp_start_gate_case *c)
{
    struct sp_serve_approve *a = SP_CONTAINER(g, struct sp_serve_approve, gate);
    struct pending_start *t = c->impl;

    if (t == NULL)
        return;
    sp_loop_undefer(a->loop, &t->later);
    close_question(t);
    sp_run_plan_done(&t->plan);
    sp_buf_done(&t->key);
    free(t->env.items);
    free(t);
}

/* ---- beginning and end ---- */

static void log_warning(void *user, const char *text)
{
    (void)user;
    sp_log(SP_LOG_WARN, "%s", text);
}

/* Clients get the error of their own start; the one who can make room reads the log of the server.
 */
static void log_audit(void *user, const char *failure)
{
    struct sp_serve_approve *a = user;

    if (failure != NULL && !a->cannot_audit)
        sp_log(SP_LOG_ERROR, "audit log: %s; no command starts until it can be written", failure);
    if (failure == NULL && a->cannot_audit)
        sp_log(SP_LOG_WARN, "audit log: it is written again, and commands start");
    a->cannot_audit = failure != NULL;
}

int sp_serve_approve_new(const struct sp_serve_approve_options *ask, struct sp_serve_approve **ret,
                         struct sp_err *e)
{
    static const struct sp_start_gate_ops ops = {
        .judge = judge_start, .done = end_start, .closed = note_closed, .ended = forget_session};
    struct sp_serve_approve *a = calloc(1, sizeof *a);

    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    a->gate.ops = &ops;
    sp_list_init(&a->sessions);
    a->loop = ask->loop;
    a->shell = ask->shell;
    a->environ = ask->environ;
    a->console = ask->console;
    a->ledger = ask->ledger;
    const struct sp_config_request config = {.env = ask->environ, .kept = ask->kept_config};
    const struct sp_cli_approval_options setup = {
        .loop = ask->loop,
        .config = &a->config,
        .flags = ask->flags,
        .warn = log_warning,
        .changed = set_rules,
        .user = a,
        .who =
            {.choices = "deny, program:PATH, client or console",
             .has_console = true,
             .has_client = true,
             .no_terminal =
                 "a server asks nobody at a terminal: give deny, program:PATH, client or console"},
    };
    int r = sp_config_load(&config, &a->config, e);
    for (char *const *w = r < 0 ? NULL : a->config.warnings; w != NULL && *w != NULL; w++)
        log_warning(NULL, *w);
    if (r == 0)
        r = sp_cli_approval_open(&setup, &a->setup, e);
    a->setup.found.options.audited = log_audit;
    if (r < 0) {
        sp_serve_approve_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void sp_serve_approve_free(struct sp_serve_approve *a)
{
    if (a == NULL)
        return;
    sp_list_each_safe(i, &a->sessions)
        free_session(SP_CONTAINER(i, struct approval_session, link));
    sp_cli_approval_done(&a->setup);
    sp_config_done(&a->config);
    free(a);
}
