/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion of command lines in bash, zsh and fish. The scripts (completion/ of the source) are
 * short and constant: they call `sallyport complete SHELL -- WORD...` with the words that are typed
 * behind `sallyport`, the last one up to the cursor, and get `CANDIDATE TAB DESCRIPTION` lines.
 *
 * All candidates come from the tables of options; what an argument can be follows from its name.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/completion_scripts.h"
#include "cli/escape_text.h"
#include "cli/observe.h"
#include "sandbox/profile.h"
#include "server/net/own_sockets.h"

#define MAX_CANDIDATES 200
#define MAX_DESCRIBED  60  /* bytes of a description */
#define WAIT_MS        200 /* for all servers */

struct completion {
    const char *word; /* up to the cursor */
    /* What stands in front of each candidate: "--sandbox=" while `word` is "--sandbox=:wo". */
    struct sp_str before;
    unsigned count;
    struct sp_buf out;
};

/* Offers "begin" + "rest" if it begins with what is typed. */
static void offer_joined(struct completion *c, struct sp_str begin, const char *rest,
                         const char *about)
{
    auto_buf struct sp_buf whole = {0};
    const size_t typed = strlen(c->word);
    struct sp_str text = sp_str_of(about);

    if (c->count == MAX_CANDIDATES || !sp_buf_add_str(&whole, c->before) ||
        !sp_buf_add_str(&whole, begin) || !sp_buf_add(&whole, rest, strlen(rest) + 1) ||
        strncmp(whole.data, c->word, typed) != 0)
        return;
    /* Names of files and processes may hold any byte; a shell gets none that it could obey. */
    for (const char *at = whole.data; *at != 0; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            return;
    text.n = strcspn(about, ";(");
    const bool is_cut = text.n > MAX_DESCRIBED;
    if (is_cut)
        for (text.n = MAX_DESCRIBED; text.n > 0 && text.p[text.n] != ' ';)
            text.n--;
    while (text.n > 0 && strchr(" :,", text.p[text.n - 1]) != NULL)
        text.n--;
    c->count++;
    (void)(sp_buf_add(&c->out, whole.data, whole.len - 1) && sp_buf_add(&c->out, "\t", 1) &&
           sp_plain_add(&c->out, text) && (!is_cut || sp_buf_add_str(&c->out, SP_STR(" ..."))) &&
           sp_buf_add(&c->out, "\n", 1)); /* or fewer of them */
}

static void offer(struct completion *c, const char *candidate, const char *about)
{
    offer_joined(c, SP_STR(""), candidate, about);
}

static void offer_words(struct completion *c, const char *const *words)
{
    for (; *words != NULL; words++)
        offer(c, *words, "");
}

/* ---- values ---- */

/* The entries of the directory of the word; for a program, only those that can be run. */
static void offer_files(struct completion *c, bool only_directories, bool only_programs)
{
    const struct sp_str typed = {c->word + c->before.n, strlen(c->word) - c->before.n};
    const struct sp_str base = sp_base_name(typed);
    const struct sp_str begin = {typed.p, typed.n - base.n};
    const char *home = getenv("HOME");
    auto_buf struct sp_buf path = {0};
    const struct dirent *entry;
    struct stat st;
    bool ok = true;

    if (begin.n >= 2 && begin.p[0] == '~' && begin.p[1] == '/' && home != NULL)
        ok = sp_buf_printf(&path, "%s%.*s", home, (int)begin.n - 1, begin.p + 1);
    else
        ok = sp_buf_printf(&path, "%.*s", (int)begin.n, begin.n == 0 ? "" : begin.p);
    DIR *d = ok ? opendir(path.len == 0 ? "." : path.data) : NULL;
    while (d != NULL && c->count < MAX_CANDIDATES && (entry = readdir(d)) != NULL) {
        auto_buf struct sp_buf name = {0};

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (entry->d_name[0] == '.' && base.n == 0) ||
            fstatat(dirfd(d), entry->d_name, &st, 0) < 0)
            continue;
        const bool is_directory = S_ISDIR(st.st_mode);
        if ((only_directories && !is_directory) ||
            (only_programs && !is_directory && faccessat(dirfd(d), entry->d_name, X_OK, 0) < 0))
            continue;
        if (sp_buf_printf(&name, "%s%s", entry->d_name, is_directory ? "/" : ""))
            offer_joined(c, begin, name.data, "");
    }
    if (d != NULL)
        (void)closedir(d);
}

/* A command of PATH, or a file. */
static void offer_programs(struct completion *c)
{
    const char *path = getenv("PATH");
    struct sp_str rest = sp_str_of(path != NULL ? path : "");
    const struct dirent *entry;

    if (strchr(c->word, '/') != NULL || c->word[0] == 0)
        offer_files(c, false, true);
    while (rest.n > 0 && c->word[0] != 0 && strchr(c->word, '/') == NULL) {
        auto_free char *name = sp_str_dup(sp_str_cut(&rest, ':'));
        DIR *d = name != NULL && name[0] == '/' ? opendir(name) : NULL;

        while (d != NULL && c->count < MAX_CANDIDATES && (entry = readdir(d)) != NULL)
            if (strncmp(entry->d_name, c->word, strlen(c->word)) == 0 &&
                faccessat(dirfd(d), entry->d_name, X_OK, 0) == 0)
                offer(c, entry->d_name, "");
        if (d != NULL)
            (void)closedir(d);
    }
}

static void offer_policies(struct completion *c)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_err e = {0};

    offer(c, ":read-only", "everything may be read and nothing written");
    offer(c, ":workspace", "the working directory may be written");
    offer(c, ":danger-full-access", "no sandbox");
    for (int m = SP_MODE_FULL_ACCESS; m <= SP_MODE_EXTERNAL; m++)
        offer(c, sp_mode_name((enum sp_mode)m), "a mode");
    if (sp_cli_load_config(NULL, NULL, &config, &e) == 0)
        for (size_t i = 0; i < config.profile_count; i++)
            offer(c, config.profiles[i].name, "a profile of the configuration");
}

static void offer_environments(struct completion *c)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    struct sp_err e = {0};

    offer(c, "local", "this host");
    if (sp_cli_load_config(NULL, NULL, &config, &e) == 0)
        for (size_t i = 0; i < config.environment_count; i++)
            offer(c, config.environments[i].name, "an environment of the configuration");
    offer(c, "ws://", "a server");
    offer(c, "unix:///", "a server");
}

static void offer_servers(struct completion *c)
{
    auto_free struct sp_own_socket *found = calloc(SP_OWN_SOCKETS_MAX, sizeof *found);
    const unsigned count = found == NULL ? 0 : sp_own_sockets_find(found);

    for (unsigned i = 0; i < count; i++)
        offer(c, found[i].name, "a server of this user");
}

static int offer_listed(struct sp_observe_all *a, void *user, struct sp_err *e)
{
    const int r = sp_observe_list(a, e);

    for (size_t i = 0; r == 0 && i < a->all.count; i++) {
        const struct sp_listed *p = &a->all.items[i];
        auto_buf struct sp_buf name = {0};

        if (p->name != NULL ? sp_buf_printf(&name, "%s", p->name)
                            : sp_plain_add(&name, (struct sp_str){p->id, p->id_len}) &&
                                  sp_buf_add(&name, "", 1))
            offer(user, name.data, p->command);
    }
    return r;
}

/* In a child: offers the processes of one server, a write for each, or dies when the time is over.
 */
static _Noreturn void offer_of_server(const struct completion *c, const char *url, int out)
{
    static const struct itimerval wait = {.it_value = {.tv_usec = WAIT_MS * 1000}};
    struct completion own = {.word = c->word, .before = c->before};

    (void)signal(SIGALRM, SIG_DFL);
    (void)setitimer(ITIMER_REAL, &wait, NULL);
    (void)sp_observe_run(&(struct sp_observe_options){.server = url}, NULL, offer_listed, &own);
    for (struct sp_str rest = sp_buf_str(&own.out); rest.n > 0;) {
        const struct sp_str line = sp_str_cut(&rest, '\n');

        if (sp_write_all(out, line.p, line.n + 1) != 0)
            break;
    }
    _exit(SP_EXIT_OK);
}

/* Reads the candidates of the children for at most WAIT_MS. */
static void collect_offers(struct completion *c, int in)
{
    const uint64_t until = sp_clock_ms() + WAIT_MS;
    auto_buf struct sp_buf text = {0};
    char piece[4096];
    ssize_t n = 1;

    for (uint64_t now = sp_clock_ms(); n > 0 && now < until; now = sp_clock_ms()) {
        struct pollfd p = {.fd = in, .events = POLLIN};

        if (poll(&p, 1, (int)(until - now)) > 0 && (n = read(in, piece, sizeof piece)) > 0 &&
            !sp_buf_add(&text, piece, (size_t)n))
            break;
    }
    for (struct sp_str rest = sp_buf_str(&text); rest.n > 0 && c->count < MAX_CANDIDATES;) {
        const struct sp_str line = sp_str_cut(&rest, '\n');

        if (line.p + line.n == text.data + text.len) /* the line is incomplete */
            return;
        c->count++;
        (void)(sp_buf_add_str(&c->out, line) && sp_buf_add(&c->out, "\n", 1));
    }
}

/* Only the servers of this user are asked, and no longer than a person waits for a Tab: all at
 * once, so that one that does not answer hides no other. */
static void offer_processes(struct completion *c)
{
    auto_free struct sp_own_socket *found = calloc(SP_OWN_SOCKETS_MAX, sizeof *found);
    const unsigned count = found == NULL ? 0 : sp_own_sockets_find(found);
    pid_t children[SP_OWN_SOCKETS_MAX];
    int ends[2];

    if (count == 0 || pipe2(ends, O_CLOEXEC) < 0)
        return;
    for (unsigned i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0)
            offer_of_server(c, found[i].url, ends[1]);
    }
    (void)close(ends[1]);
    collect_offers(c, ends[0]);
    (void)close(ends[0]);
    for (unsigned i = 0; i < count; i++)
        if (children[i] > 0) {
            (void)kill(children[i], SIGKILL);
            (void)waitpid(children[i], NULL, 0);
        }
}

static void offer_urls(struct completion *c)
{
    static const char *const urls[] = {"ws://127.0.0.1:0", "unix:///", "stdio", NULL};

    offer_words(c, urls);
}

static void offer_variables(struct completion *c)
{
    for (char **v = environ; *v != NULL; v++) {
        auto_buf struct sp_buf name = {0};

        if (sp_buf_printf(&name, "%.*s=", (int)strcspn(*v, "="), *v))
            offer(c, name.data, "");
    }
}

static void offer_commands(struct completion *c)
{
    for (size_t i = 0; sp_verbs[i] != NULL; i++)
        if (sp_verbs[i]->summary != NULL)
            offer(c, sp_verbs[i]->name, sp_verbs[i]->summary);
}

static void offer_limits(struct completion *c)
{
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        offer_joined(c, sp_str_of(sp_limit_kinds[i].name), "=", "");
}

static const char *const approvals[] = {"untrusted", "on-failure", "on-request", "never", NULL};
static const char *const approvers[] = {"terminal", "console", "deny", "program:/", NULL};
static const char *const signals[] = {"TERM", "INT",  "HUP",  "KILL", "QUIT",
                                      "STOP", "CONT", "USR1", "USR2", NULL};
static const char *const shells[] = {"bash", "zsh", "fish", NULL};

/* The names of arguments, in options and of operands, and what they are. Any other is a text. */
static const struct {
    const char *name;
    enum {
        FILE_NAME,
        DIRECTORY,
        PROGRAM,
        SANDBOX,
        SERVER,
        PROCESS,
        URL,
        VARIABLE,
        VERB,
        LIMIT,
        WORDS
    } kind;
    const char *const *words;
} arguments[] = {
    {"FILE", FILE_NAME, NULL},  {"DIR", DIRECTORY, NULL},     {"PROGRAM", PROGRAM, NULL},
    {"MODE", SANDBOX, NULL},    {"NAME|URL", SERVER, NULL},   {"SERVER", SERVER, NULL},
    {"PROC", PROCESS, NULL},    {"URL", URL, NULL},           {"NAME=VALUE", VARIABLE, NULL},
    {"COMMAND", VERB, NULL},    {"POLICY", WORDS, approvals}, {"WHO", WORDS, approvers},
    {"SIGNAL", WORDS, signals}, {"SHELL", WORDS, shells},     {"[LEVEL:]NAME=VALUE", LIMIT, NULL},
};

static void offer_argument(struct completion *c, const char *name)
{
    size_t i = 0;

    while (i < sizeof arguments / sizeof arguments[0] && strcmp(arguments[i].name, name) != 0)
        i++;
    if (i == sizeof arguments / sizeof arguments[0])
        return;
    switch (arguments[i].kind) {
    case FILE_NAME:
    case DIRECTORY:
        offer_files(c, arguments[i].kind == DIRECTORY, false);
        break;
    case PROGRAM:
        offer_programs(c);
        break;
    case SANDBOX:
        offer_policies(c);
        break;
    case SERVER:
        offer_environments(c);
        offer_servers(c);
        break;
    case PROCESS:
        offer_processes(c);
        break;
    case URL:
        offer_urls(c);
        break;
    case VARIABLE:
        offer_variables(c);
        break;
    case VERB:
        offer_commands(c);
        break;
    case WORDS:
        offer_words(c, arguments[i].words);
        break;
    case LIMIT:
        offer_limits(c);
        break;
    }
}

static void offer_value(struct completion *c, const struct sp_option *o)
{
    if (o->choices != NULL)
        offer_words(c, o->choices);
    else
        offer_argument(c, o->argument);
}

/* ---- options ---- */

/* The option of the table, or of one that it includes, with this long or short name. */
static const struct sp_option *find_option(const struct sp_option *table, struct sp_str name,
                                           char short_name)
{
    for (const struct sp_option *o = table; o != NULL && o->kind != SP_OPTION_END; o++) {
        if (o->kind == SP_OPTION_TABLE) {
            const struct sp_option *found = find_option(o->table, name, short_name);

            if (found != NULL)
                return found;
        } else if (o->kind != SP_OPTION_HEADING &&
                   (short_name != 0 ? o->short_name == short_name
                                    : sp_str_eq(sp_str_of(o->name), name))) {
            return o;
        }
    }
    return NULL;
}

static void offer_options(struct completion *c, const struct sp_option *table)
{
    for (const struct sp_option *o = table; o != NULL && o->kind != SP_OPTION_END; o++) {
        char text[80];

        if (o->kind == SP_OPTION_TABLE)
            offer_options(c, o->table);
        if (o->kind == SP_OPTION_TABLE || o->kind == SP_OPTION_HEADING || o->is_hidden)
            continue;
        (void)snprintf(text, sizeof text, "--%s", o->name);
        offer(c, text, o->help);
        (void)snprintf(text, sizeof text, "-%c", o->short_name);
        if (o->short_name != 0)
            offer(c, text, o->help);
    }
}

/* What a word in front of the cursor says about those behind it. */
struct position {
    const struct sp_option *pending; /* its argument comes next */
    bool is_over;                    /* `--`, or the program to run: no options any more */
    unsigned operands;
};

static void pass_word(struct position *p, const struct sp_cli_command *v, const char *word)
{
    const struct sp_option *o = NULL;

    if (p->pending != NULL && !(p->pending->bare != NULL && word[0] == '-')) {
        p->pending = NULL;
        return;
    }
    p->pending = NULL;
    if (p->is_over || word[0] != '-' || word[1] == 0) {
        p->operands++;
        p->is_over = p->is_over || v->runs_program;
    } else if (strcmp(word, "--") == 0) {
        p->is_over = true;
    } else if (word[1] == '-') {
        if (strchr(word, '=') == NULL)
            o = find_option(v->options, sp_str_of(word + 2), 0);
    } else {
        size_t i = 1;

        do
            o = find_option(v->options, SP_STR(""), word[i++]);
        while (word[i] != 0 && (o == NULL || o->argument == NULL));
        o = word[i] == 0 ? o : NULL; /* -n5 */
    }
    p->pending = o != NULL && o->argument != NULL ? o : NULL;
}

/* ---- the word at the cursor ---- */

static void complete_in(struct completion *c, const struct sp_cli_command *v, char **words)
{
    struct position p = {0};

    for (; words[1] != NULL; words++)
        pass_word(&p, v, words[0]);
    const char *equals = strchr(c->word, '=');
    if (p.pending != NULL) {
        offer_value(c, p.pending);
        if (p.pending->bare == NULL || c->word[0] != '-')
            return;
    }
    if (!p.is_over && strncmp(c->word, "--", 2) == 0 && equals != NULL) {
        const struct sp_option *o = find_option(
            v->options, (struct sp_str){c->word + 2, (size_t)(equals - c->word) - 2}, 0);

        c->before = (struct sp_str){c->word, (size_t)(equals - c->word) + 1};
        if (o != NULL && o->argument != NULL)
            offer_value(c, o);
        return;
    }
    if (!p.is_over && (c->word[0] == '-' || (v->max_operands == 0 && c->word[0] == 0))) {
        offer_options(c, v->options);
        offer(c, "--help", "show the help of this command");
    } else if (v->runs_program && p.operands == 0) {
        offer_programs(c);
    } else if (v->runs_program) {
        offer_files(c, false, false);
    } else if (v->operand != NULL && p.operands < v->max_operands) {
        offer_argument(c, v->operand);
    }
}

/* words: those behind `sallyport`, the last one being completed. */
static void complete_words(struct completion *c, int count, char **words)
{
    if (count == 1) {
        offer_commands(c);
        offer(c, "--help", "show the list of commands");
        offer(c, "--version", "print the version");
        return;
    }
    const struct sp_cli_command *v = sp_verb_find(words[0]);
    for (words++; v != NULL && v->subcommands != NULL; words++) {
        const struct sp_cli_command *const *s = v->subcommands;
        const size_t n = strlen(v->name) + 1;

        for (; words[1] == NULL && *s != NULL; s++)
            offer(c, (*s)->name + n, (*s)->summary);
        if (words[1] == NULL)
            return;
        while (*s != NULL && strcmp((*s)->name + n, words[0]) != 0)
            s++;
        v = *s;
    }
    if (v != NULL && v->summary != NULL)
        complete_in(c, v, words);
}

/* ---- the commands ---- */

static int complete_main(int argc, char **argv)
{
    struct completion c = {0};
    struct sp_err e = {0};

    if (argc < 3 || strcmp(argv[1], "--") != 0)
        return SP_EXIT_USAGE; /* a script of ours never does that, and others read no messages */
    if (freopen("/dev/null", "w", stderr) == NULL) /* a message would be part of the line */
        return SP_EXIT_FAILED;
    c.word = argv[argc - 1];
    complete_words(&c, argc - 2, argv + 2);
    const int r = sp_cli_print(sp_buf_str(&c.out), &e);
    sp_buf_done(&c.out);
    return r < 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}

static int run_completion(void *values, char **operands);

static const struct sp_option no_options[] = {SP_OPT_END};

const struct sp_cli_command sp_command_completion = {
    .name = "completion",
    .summary = "print the completion script of a shell",
    .usage =
        "sallyport completion bash|zsh|fish\n"
        "\n"
        "Prints the script that makes a shell complete command lines of sallyport. Packages and "
        "`meson install` put it where the shell finds it; else source it.\n",
    .notes = "Example: source <(sallyport completion bash)\n",
    .options = no_options,
    .operand = "SHELL",
    .missing = "which shell: bash, zsh or fish?",
    .max_operands = 1,
    .run = run_completion,
};

const struct sp_cli_command sp_command_complete = {.name = "complete", .main = complete_main};

static int run_completion(void *values, char **operands)
{
    const char *shell = operands[0];
    const char *script = strcmp(shell, "bash") == 0   ? SP_COMPLETION_BASH
                         : strcmp(shell, "zsh") == 0  ? SP_COMPLETION_ZSH
                         : strcmp(shell, "fish") == 0 ? SP_COMPLETION_FISH
                                                      : NULL;
    struct sp_err e = {0};

    (void)values;
    if (script == NULL)
        return sp_command_misused(&sp_command_completion, "the shells are bash, zsh and fish");
    return sp_cli_print(sp_str_of(script), &e) < 0 ? sp_cli_complain(&e) : SP_EXIT_OK;
}
