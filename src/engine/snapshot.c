/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot: the captures of login shells, and their files. */
#include "engine/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "engine/run.h"

#define PREFIX     "snapshot-"
#define SUFFIX     ".sh"
#define TRIES      4
#define MAX_FILE   ((size_t)512 * 1024)
#define MAX_VALUE  ((size_t)60 * 1024)
#define AGE_S      259200                   /* three days */
#define NONCE      16                       /* hex digits */
#define MAX_SCRIPT ((size_t)128 * 1024 - 1) /* longest argument of a program, MAX_ARG_STRLEN */
#define COMMAND    "__sallyport_command"    /* holds the command in the script */

/*
 * ---- the captured text ----
 *
 * The shell prints its state in parts. Variables come from the environment of a program that it
 * starts, NUL-separated, and are quoted here. Options are validated names. Functions and aliases
 * are taken as the shell prints them, in a form it can read again.
 *
 * In the file, options that affect the parsing of functions come first, and options that could
 * break the rest, such as errexit, last.
 */

enum part { OPTIONS, EARLY, FUNCTIONS, ALIASES, VARIABLES, END, PART_MAX };

static const char *const part_names[PART_MAX] = {
    [OPTIONS] = "options", [EARLY] = "early",         [FUNCTIONS] = "functions",
    [ALIASES] = "aliases", [VARIABLES] = "variables", [END] = "end",
};

/* The commands that print each part. OPTIONS also resets options of the profile that would end the
 * capture. */
static const struct teller {
    const char *word; /* prefix that bypasses functions and aliases of the profile */
    const char *commands[PART_MAX];
} tellers[SP_SHELL_MAX] = {
    [SP_SHELL_BASH] = {"builtin",
                       {[OPTIONS] = "\\builtin set +o\n\\builtin set +eux\n",
                        [EARLY] = "\\builtin shopt -p\n",
                        [FUNCTIONS] = "\\builtin declare -f\n",
                        [ALIASES] = "\\builtin alias -p\n"}},
    [SP_SHELL_ZSH] = {"builtin",
                      {[OPTIONS] = "\\builtin setopt\n\\builtin set +eux\n",
                       [FUNCTIONS] = "\\builtin typeset -f\n",
                       [ALIASES] = "\\builtin alias -L\n"}},
    [SP_SHELL_SH] = {"command",
                     {[OPTIONS] = "\\command set +o\n\\command set +eux\n",
                      [FUNCTIONS] =
                          "\\command typeset -f 2>/dev/null\n", /* dash cannot print functions */
                      [ALIASES] = "\\command alias\n"}},
};

static bool add_text(struct sp_buf *out, const char *text)
{
    return sp_buf_add_str(out, sp_str_of(text));
}

static bool add_quoted(struct sp_buf *out, struct sp_str s)
{
    bool ok = sp_buf_add(out, "'", 1);

    while (ok && s.n != 0) {
        const char *quote = memchr(s.p, '\'', s.n);
        const size_t n = quote != NULL ? (size_t)(quote - s.p) : s.n;

        ok = sp_buf_add(out, s.p, n) && (quote == NULL || add_text(out, "'\\''"));
        s = (struct sp_str){s.p + n + (quote != NULL), s.n - n - (quote != NULL)};
    }
    return ok && sp_buf_add(out, "'", 1);
}

static bool add_capture(struct sp_buf *out, enum sp_shell_type type, const char *nonce)
{
    const struct teller *t = &tellers[type];
    bool ok = t->word != NULL;

    for (int i = 0; ok && i < PART_MAX; i++) {
        const char *command = t->commands[i] != NULL ? t->commands[i] : "";

        if (i == VARIABLES)
            command = "\\command /bin/cat /proc/self/environ\n";
        ok = sp_buf_printf(out, "\\%s printf '\\n# %s %s\\n'\n%s", t->word, nonce, part_names[i],
                           command);
    }
    return ok && add_text(out, "\\exit 0\n");
}

/* ---- the printed parts ---- */

static bool next_piece(struct sp_str *rest, char separator, struct sp_str *ret)
{
    if (rest->n == 0)
        return false;
    const char *at = memchr(rest->p, separator, rest->n);
    const size_t n = at != NULL ? (size_t)(at - rest->p) : rest->n;
    *ret = (struct sp_str){rest->p, n};
    *rest = (struct sp_str){rest->p + n + (at != NULL), rest->n - n - (at != NULL)};
    return true;
}

/* ---- options ---- */

/* Options that describe the shell or belong to interactive ones: not set by the snapshot. */
static const char *const fixed_options[] = {"login_shell",
                                            "restricted_shell",
                                            "expand_aliases",
                                            "interactive",
                                            "stdin",
                                            "privileged",
                                            "restricted",
                                            "noexec",
                                            "monitor",
                                            "login",
                                            "shinstdin",
                                            "singlecommand",
                                            "zle",
                                            "nointeractive",
                                            "nomonitor",
                                            "nozle",
                                            "noshinstdin",
                                            "nologin",
                                            "nosinglecommand"};

static bool is_one_of(struct sp_str name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (sp_str_eq(name, sp_str_of(list[i])))
            return true;
    return false;
}

static bool is_option_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", s.p[i]) == NULL || s.p[i] == 0)
            return false;
    return s.n != 0 && s.p[0] != '-';
}

static bool take_prefix(struct sp_str *s, const char *prefix)
{
    const size_t n = strlen(prefix);

    if (s->n < n || memcmp(s->p, prefix, n) != 0)
        return false;
    *s = (struct sp_str){s->p + n, s->n - n};
    return true;
}

/* Adds lines of the form ON NAME or OFF NAME with a valid name. */
static bool add_options(struct sp_buf *out, struct sp_str part, const char *on, const char *off,
                        const char *command)
{
    struct sp_str line;
    bool ok = true;

    while (ok && next_piece(&part, '\n', &line)) {
        struct sp_str name = line;

        if ((take_prefix(&name, on) || take_prefix(&name, off)) && is_option_name(name) &&
            !is_one_of(name, fixed_options, sizeof fixed_options / sizeof fixed_options[0]))
            ok = add_text(out, command) && sp_buf_add_str(out, line) && sp_buf_add(out, "\n", 1);
    }
    return ok;
}

/* ---- aliases ---- */

/* End of the alias definition that begins at `at`: the first newline outside of quotes. */
static size_t end_of_alias(struct sp_str part, size_t at)
{
    char quote = 0;

    for (; at < part.n; at++) {
        const char c = part.p[at];

        if (c == '\\' && quote != '\'')
            at++;
        else if (quote == 0 && c == '\n')
            return at;
        else if (quote == 0 && (c == '\'' || c == '"'))
            quote = c;
        else if (c == quote)
            quote = 0;
    }
    return part.n;
}

/* Some shells print "alias " before each definition. */
static bool add_aliases(struct sp_buf *out, struct sp_str part)
{
    bool ok = true;

    for (size_t at = 0; ok && at < part.n;) {
        const size_t end = end_of_alias(part, at);
        struct sp_str one = {part.p + at, end - at};

        (void)take_prefix(&one, "alias ");
        if (one.n != 0)
            ok = add_text(out, "\\alias ") && sp_buf_add_str(out, one) && sp_buf_add(out, "\n", 1);
        at = end + 1;
    }
    return ok;
}

/* ---- variables ---- */

/* Variables of the shell itself, of the moment, or of our script. */
static const char *const own_variables[] = {
    "PWD",       "OLDPWD",        "_",   "SHLVL", "UID",  "EUID", "PPID", "BASHOPTS",
    "SHELLOPTS", "BASH_VERSINFO", "GID", "EGID",  COMMAND};

static bool is_own(enum sp_shell_type type, struct sp_str name)
{
    /* In zsh, setting USERNAME changes the user. */
    return is_one_of(name, own_variables, sizeof own_variables / sizeof own_variables[0]) ||
           (type == SP_SHELL_ZSH && sp_str_eq(name, SP_STR("USERNAME")));
}

static bool is_variable_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!is_letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return s.n != 0;
}

static bool split_pair(struct sp_str string, struct sp_str *ret_name, struct sp_str *ret_value)
{
    const char *equals = string.n == 0 ? NULL : memchr(string.p, '=', string.n);

    if (equals == NULL)
        return false;
    const size_t n = (size_t)(equals - string.p);
    *ret_name = (struct sp_str){string.p, n};
    *ret_value = (struct sp_str){equals + 1, string.n - n - 1};
    return true;
}

static bool add_export(struct sp_buf *out, struct sp_str name, struct sp_str value)
{
    return add_text(out, "\\export ") && sp_buf_add_str(out, name) && sp_buf_add(out, "=", 1) &&
           add_quoted(out, value) && sp_buf_add(out, "\n", 1);
}

static bool add_variables(struct sp_buf *out, enum sp_shell_type type, struct sp_str part)
{
    struct sp_str string, name, value;
    bool ok = true;

    while (ok && next_piece(&part, 0, &string))
        if (split_pair(string, &name, &value) && is_variable_name(name) && !is_own(type, name) &&
            value.n <= MAX_VALUE)
            ok = add_export(out, name, value);
    return ok;
}

/* ---- file and script ---- */

bool sp_snapshot_compose(struct sp_buf *out, enum sp_shell_type type, const char *nonce,
                         struct sp_str printed)
{
    struct sp_str parts[PART_MAX];
    const bool expands = type == SP_SHELL_BASH; /* non-interactive bash needs expand_aliases */

    /* All parts have to be there, in order. Text before the first is output of the profile. */
    const char *end = printed.p + printed.n;

    for (int i = 0; i < PART_MAX; i++) {
        char mark[64];
        const int n = snprintf(mark, sizeof mark, "\n# %s %s\n", nonce, part_names[i]);
        const char *at = printed.n == 0 ? NULL : memmem(printed.p, printed.n, mark, (size_t)n);

        if (at == NULL)
            return false;
        if (i != 0)
            parts[i - 1].n = (size_t)(at - parts[i - 1].p);
        printed = (struct sp_str){at + n, (size_t)(end - at - n)};
        parts[i] = printed;
    }
    out->max = MAX_FILE;
    return add_text(out, "# Snapshot file\n") &&
           add_options(out, parts[EARLY], "shopt -s ", "shopt -u ", "\\") &&
           sp_buf_add_str(out, parts[FUNCTIONS]) && sp_buf_add(out, "\n", 1) &&
           add_aliases(out, parts[ALIASES]) && add_variables(out, type, parts[VARIABLES]) &&
           (type == SP_SHELL_ZSH ? add_options(out, parts[OPTIONS], "", "", "\\setopt ")
                                 : add_options(out, parts[OPTIONS], "set -o ", "set +o ", "\\")) &&
           (!expands || add_text(out, "\\shopt -s expand_aliases\n")) && add_text(out, ":\n");
}

/* The variable keeps its value from `made`, or is unset. */
static bool add_restored(struct sp_buf *out, struct sp_str made, struct sp_str wanted)
{
    struct sp_str string, name, value;

    if (!is_variable_name(wanted) || sp_str_eq(wanted, SP_STR(COMMAND)))
        return true; /* not a shell variable, or our own */
    while (next_piece(&made, 0, &string))
        if (split_pair(string, &name, &value) && sp_str_eq(name, wanted))
            return add_export(out, name, value);
    return add_text(out, "\\unset ") && sp_buf_add_str(out, wanted) && sp_buf_add(out, "\n", 1);
}

/* eval, because another shell would not know the functions; the helper variable is unset first. If
 * the snapshot cannot be sourced, the script executes the original command line. */
bool sp_snapshot_script(struct sp_buf *out, const struct sp_shell *shell, const char *path,
                        struct sp_str cmd, struct sp_str made, const struct sp_str *restored,
                        uint32_t restored_count)
{
    const size_t mark = out->len;
    bool ok = add_text(out, COMMAND "=") && add_quoted(out, cmd) && add_text(out, "\nif [ -r ") &&
              add_quoted(out, sp_str_of(path)) && add_text(out, " ] && ") &&
              add_text(out, shell->type == SP_SHELL_ZSH ? ". " : "command . ") &&
              add_quoted(out, sp_str_of(path)) &&
              add_text(out, " </dev/null >/dev/null 2>&1; then :; else exec ") &&
              add_quoted(out, sp_str_of(shell->path)) &&
              add_text(out, " -lc \"$" COMMAND "\"; fi\n");

    for (uint32_t i = 0; ok && i < restored_count; i++)
        ok = add_restored(out, made, restored[i]);
    ok = ok && add_text(out, "\\eval \"\\\\unset " COMMAND "; $" COMMAND "\"\n") &&
         out->len - mark <= MAX_SCRIPT;
    if (!ok)
        out->len = mark;
    return ok;
}

/* ---- names ---- */

static bool random_name(char ret[NONCE + 1])
{
    uint64_t bits;

    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return false;
    (void)snprintf(ret, NONCE + 1, "%016llx", (unsigned long long)bits);
    return true;
}

/* ---- the directory ---- */

/* Creates the directory if necessary. It must be private to our user. */
static int open_directory(const char *path, int *ret_fd, struct sp_err *e)
{
    auto_close int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the directory of shell snapshots %s", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open the directory of shell snapshots %s", path);
    /* A writer of this directory could make our shells run anything. */
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "the directory of shell snapshots %s must be ours alone: owner %u, mode 0700", path,
            (unsigned)geteuid());
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static bool is_our_name(const char *name)
{
    const size_t prefix = sizeof PREFIX - 1;

    if (strncmp(name, PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < NONCE; i++)
        if (name[prefix + i] == 0 || strchr("0123456789abcdef", name[prefix + i]) == NULL)
            return false;
    return strcmp(name + prefix + NONCE, SUFFIX) == 0;
}

/* Removes files of earlier runs that were not used for AGE_S. */
static void remove_leftovers(int directory)
{
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct stat st;

    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (is_our_name(entry->d_name) &&
            fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_uid == geteuid() && time(NULL) - st.st_mtime > AGE_S)
            (void)unlinkat(directory, entry->d_name, 0); /* otherwise the next run removes it */
    (void)closedir(d);
}

/* ---- one file ---- */

/* O_EXCL with a random name: a planted link is not followed. */
static int create_file(int directory, char *name, size_t size)
{
    for (int i = 0; i < TRIES; i++) {
        char random[NONCE + 1];

        if (!random_name(random))
            return -1;
        (void)snprintf(name, size, PREFIX "%s" SUFFIX, random);
        const int fd =
            openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

enum state { UNUSED, CAPTURING, CHECKING, READY, NONE };

struct entry {
    struct sp_snapshots *owner;
    enum state state;
    struct sp_shell shell; /* owned */
    char *cwd;
    char *name, *path; /* of the file; NULL: none */
    char nonce[NONCE + 1];
    struct sp_buf environment; /* variables of capture and check: NAME=VALUE, NUL-terminated */
    uint64_t used;             /* order of use */
    bool is_telling;           /* a callback has its path */
    struct sp_run *run;
    struct sp_list waits; /* struct sp_snapshot_wait */
    struct sp_deferred tell;
};

struct sp_snapshots {
    struct sp_backend *backend;
    const struct sp_policy *policy;
    char *path;
    int directory;
    uint64_t uses;
    struct entry entries[SP_SNAPSHOT_MAX];
    struct entry refused; /* for unsupported shells and a full table: always NONE */
};

/* ---- waiting ---- */

static bool is_settled(const struct entry *n)
{
    return n->state == READY || n->state == NONE;
}

/* No wait and no callback uses its path. */
static bool is_free(const struct entry *n)
{
    return sp_list_is_empty(&n->waits) && !n->is_telling;
}

/* Waits that are added by the callbacks are called back in the next turn. */
static void on_tell(struct sp_deferred *d)
{
    struct entry *n = SP_CONTAINER(d, struct entry, tell);
    const struct sp_list *last = sp_list_last(&n->waits);
    struct sp_list *i = NULL;

    n->is_telling = true;
    while (i != last && (i = sp_list_first(&n->waits)) != NULL) {
        struct sp_snapshot_wait *w = SP_CONTAINER(i, struct sp_snapshot_wait, link);

        sp_list_remove(i);
        w->fn(w, n->state == READY ? n->path : NULL);
    }
    n->is_telling = false;
    if (!sp_list_is_empty(&n->waits))
        sp_loop_again(n->owner->backend->loop, d, on_tell);
}

static void tell_later(struct entry *n)
{
    sp_loop_defer(n->owner->backend->loop, &n->tell, on_tell);
}

static void settle_entry(struct entry *n, enum state state)
{
    n->state = state;
    sp_buf_done(&n->environment);
    tell_later(n);
}

/* ---- capturing ---- */

static void remove_file(struct entry *n)
{
    if (n->name != NULL)
        (void)unlinkat(n->owner->directory, n->name, 0); /* otherwise a later run removes it */
    free(n->name);
    free(n->path);
    n->name = n->path = NULL;
}

static void give_up(struct entry *n)
{
    remove_file(n);
    settle_entry(n, NONE);
}

/* The variables as sp_env_request wants them; borrowed from the entry. The list is to be freed. */
static char **list_of(const struct sp_buf *made)
{
    size_t count = 0;

    for (size_t i = 0; i < made->len; i++)
        count += made->data[i] == 0;
    char **list = calloc(count + 1, sizeof *list);
    size_t at = 0;
    for (size_t i = 0; list != NULL && i < count; i++) {
        list[i] = made->data + at;
        at += strlen(list[i]) + 1;
    }
    return list;
}

static int run_shell(struct entry *n, const char *flag, const struct sp_buf *script, sp_run_fn *fn)
{
    const struct sp_str argv[] = {
        sp_str_of(n->shell.path), sp_str_of(flag), {script->data, script->len}};
    auto_free char **own = list_of(&n->environment);
    const struct sp_env_request environment = {
        .own = own, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    const struct sp_run_request request = {
        .launch = {.label = SP_STR("snapshot"),
                   .cwd = sp_str_of(n->cwd),
                   .argv = argv,
                   .argc = 3,
                   .environ = &environment,
                   .is_unrecorded = true, /* its output is the environment, secrets included */
                   .policy = n->owner->policy},
        .timeout_ms = SP_SNAPSHOT_LIMIT_MS,
    };
    struct sp_err e;

    if (own == NULL)
        return -SP_E_SYSTEM;
    return sp_run_start(n->owner->backend, &request, fn, n, &n->run, &e);
}

static bool is_success(const struct sp_run_result *r)
{
    return r->kind == SP_RUN_EXITED && r->exit_code == 0 && !r->has_lost_output &&
           r->out_total == r->out.n;
}

static void on_checked(void *user, const struct sp_run_result *r)
{
    struct entry *n = user;

    n->run = NULL;
    if (is_success(r))
        settle_entry(n, READY);
    else
        give_up(n);
}

static bool write_file(struct entry *n, struct sp_str printed)
{
    const int directory = n->owner->directory;
    char name[sizeof PREFIX + NONCE + sizeof SUFFIX];
    auto_buf struct sp_buf text = {0};

    if (!sp_snapshot_compose(&text, n->shell.type, n->nonce, printed))
        return false;
    auto_close int fd = create_file(directory, name, sizeof name);
    if (fd < 0)
        return false;
    n->name = strdup(name);
    if (n->name == NULL || sp_write_all(fd, text.data, text.len) != 0) {
        (void)unlinkat(directory, name, 0); /* no incomplete files */
        return false;
    }
    if (asprintf(&n->path, "%s/%s", n->owner->path, n->name) >= 0)
        return true;
    n->path = NULL; /* unspecified after a failure, and freed with the entry */
    return false;
}

static void on_captured(void *user, const struct sp_run_result *r)
{
    struct entry *n = user;
    auto_buf struct sp_buf script = {0};

    n->run = NULL;
    n->state = CHECKING;
    if (!is_success(r) || !write_file(n, r->out) || !add_text(&script, "set -e\n. ") ||
        !add_quoted(&script, sp_str_of(n->path)) || !add_text(&script, "\n") ||
        run_shell(n, "-c", &script, on_checked) != 0)
        give_up(n);
}

/* ---- entries ---- */

static void clear_entry(struct entry *n)
{
    struct sp_snapshots *owner = n->owner;

    sp_run_free(n->run);
    sp_loop_undefer(owner->backend->loop, &n->tell);
    while (sp_list_take_first(&n->waits) != NULL)
        ;
    remove_file(n);
    sp_shell_done(&n->shell);
    free(n->cwd);
    sp_buf_done(&n->environment);
    *n = (struct entry){.owner = owner};
    sp_list_init(&n->waits);
}

static struct entry *find_entry(struct sp_snapshots *s, const struct sp_shell *shell,
                                struct sp_str cwd)
{
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        struct entry *n = &s->entries[i];

        if (n->state != UNUSED && strcmp(n->shell.path, shell->path) == 0 &&
            sp_str_eq(sp_str_of(n->cwd), cwd))
            return n;
    }
    return NULL;
}

/* An unused entry, or the least recently used one, cleared. NULL: all are in use. */
static struct entry *make_room(struct sp_snapshots *s)
{
    struct entry *oldest = NULL;

    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        struct entry *n = &s->entries[i];

        if (n->state == UNUSED)
            return n;
        if (is_settled(n) && is_free(n) && (oldest == NULL || n->used < oldest->used))
            oldest = n;
    }
    if (oldest != NULL)
        clear_entry(oldest);
    return oldest;
}

/* Starts the capture, without the variables of a single call or attempt. false: no memory. */
static bool begin_entry(struct entry *n, const struct sp_shell *shell, struct sp_str cwd,
                        const struct sp_env_request *environ)
{
    auto_buf struct sp_buf script = {0};
    struct sp_env_request request = *environ;
    uint32_t count;
    struct sp_err e;

    n->shell = (struct sp_shell){.type = shell->type, .path = strdup(shell->path)};
    n->cwd = sp_str_dup(cwd);
    if (n->shell.path == NULL || n->cwd == NULL) {
        clear_entry(n);
        return false;
    }
    request.thread_id = request.session_id = request.call_id = request.permission_profile =
        (struct sp_str){0};
    request.marks = (struct sp_env_vars){0};
    request.policy.hides_secrets = request.is_confined;
    request.is_confined = request.has_no_network = false;
    request.plain = sp_env_plain; /* without the call's own variables */
    n->state = CAPTURING;
    if (sp_env_make(&request, &n->environment, &count, &e) < 0 || !random_name(n->nonce) ||
        !add_capture(&script, n->shell.type, n->nonce) ||
        run_shell(n, "-lc", &script, on_captured) != 0)
        give_up(n);
    return true;
}

static struct entry *entry_for(struct sp_snapshots *s, const struct sp_shell *shell,
                               struct sp_str cwd, const struct sp_env_request *environ)
{
    if ((shell->type != SP_SHELL_BASH && shell->type != SP_SHELL_ZSH &&
         shell->type != SP_SHELL_SH) ||
        cwd.n == 0 || sp_str_has_nul(cwd))
        return &s->refused;
    struct entry *n = find_entry(s, shell, cwd);
    /* Marks the file as used; a file that was removed is captured anew. */
    if (n != NULL && n->state == READY && is_free(n) &&
        utimensat(s->directory, n->name, NULL, AT_SYMLINK_NOFOLLOW) < 0) {
        clear_entry(n);
        n = NULL;
    }
    if (n != NULL)
        return n;
    n = make_room(s);
    return n != NULL && begin_entry(n, shell, cwd, environ) ? n : &s->refused;
}

void sp_snapshots_get(struct sp_snapshots *s, const struct sp_shell *shell, struct sp_str cwd,
                      const struct sp_env_request *environ, struct sp_snapshot_wait *w)
{
    struct entry *n = entry_for(s, shell, cwd, environ);

    n->used = ++s->uses;
    sp_list_append(&n->waits, &w->link);
    if (is_settled(n))
        tell_later(n);
}

/* ---- creation ---- */

int sp_snapshots_new(const struct sp_snapshots_options *o, struct sp_snapshots **ret,
                     struct sp_err *e)
{
    if (o->directory[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "the directory of shell snapshots must be absolute: %s",
                       o->directory);
    struct sp_snapshots *s = calloc(1, sizeof *s);
    char *path = strdup(o->directory);
    if (s == NULL || path == NULL) {
        free(s);
        free(path);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep shell snapshots");
    }
    s->backend = o->backend;
    s->policy = o->policy;
    s->path = path;
    s->directory = -1;
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++) {
        s->entries[i].owner = s;
        sp_list_init(&s->entries[i].waits);
    }
    s->refused = (struct entry){.owner = s, .state = NONE};
    sp_list_init(&s->refused.waits);
    const int r = open_directory(path, &s->directory, e);
    if (r < 0) {
        sp_snapshots_free(s);
        return r;
    }
    remove_leftovers(s->directory);
    *ret = s;
    return 0;
}

void sp_snapshots_free(struct sp_snapshots *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < SP_SNAPSHOT_MAX; i++)
        clear_entry(&s->entries[i]);
    clear_entry(&s->refused);
    if (s->directory >= 0)
        (void)close(s->directory);
    free(s->path);
    free(s);
}
