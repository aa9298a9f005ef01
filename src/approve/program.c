/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/script/script_priv.h"
#include "base/auto.h"
#include "base/env.h"

#define SHEBANG_BYTES 256 /* as in the kernel */
#define MAX_SCRIPTS   5   /* interpreters that are scripts; as in the kernel */
#define NO_PROGRAMS   "/nonexistent"

void sp_program_done(struct sp_program *p)
{
    free(p->path);
    free(p->search_path);
    *p = (struct sp_program){0};
}

/* ---- PATH ---- */

/* Takes the next entry off *rest; false: there is none. As in a shell, an empty PATH has one empty
 * entry. */
static bool next_entry(struct sp_str *rest, struct sp_str *ret)
{
    if (rest->p == NULL)
        return false;
    const char *colon = rest->n == 0 ? NULL : memchr(rest->p, ':', rest->n);
    *ret = (struct sp_str){rest->p, colon == NULL ? rest->n : (size_t)(colon - rest->p)};
    *rest =
        colon == NULL ? (struct sp_str){NULL, 0} : (struct sp_str){colon + 1, rest->n - ret->n - 1};
    return true;
}

static bool is_absolute(struct sp_str s)
{
    return s.n != 0 && s.p[0] == '/';
}

bool sp_path_is_relative(struct sp_str path)
{
    struct sp_str entry;

    while (next_entry(&path, &entry))
        if (!is_absolute(entry))
            return true;
    return false;
}

/* Whether no command can change what is found by this entry. (zsh reads `%` in an entry as an
 * option.) */
static bool does_entry_stay(const struct sp_writable *w, struct sp_str entry)
{
    auto_free char *path = strndup(entry.p, entry.n);
    auto_canonical struct sp_canonical at = {0};

    return path != NULL && is_absolute(entry) && memchr(entry.p, '%', entry.n) == NULL &&
           sp_writable_stays(w, path, &at);
}

/* PATH without the entries that commands may write; *ret NULL: unchanged. Never empty, which would
 * mean the working directory. false: no memory. */
static bool keep_entries(const struct sp_writable *w, struct sp_str path, char **ret)
{
    auto_buf struct sp_buf kept = {0};
    struct sp_str rest = path;
    struct sp_str entry;
    bool ok = true;

    *ret = NULL;
    while (ok && next_entry(&rest, &entry))
        if (does_entry_stay(w, entry))
            ok = (kept.len == 0 || sp_buf_add(&kept, ":", 1)) && sp_buf_add_str(&kept, entry);
    if (!ok)
        return false;
    if (kept.len == path.n && kept.len != 0)
        return true;
    if (!sp_buf_add(&kept, "", 1))
        return false;
    *ret = strdup(kept.len == 1 ? NO_PROGRAMS : kept.data);
    return *ret != NULL;
}

/* ---- files ---- */

/* Whether the file is a program that no command can replace. */
static bool does_stay(const struct sp_writable *w, const char *path, unsigned scripts,
                      struct sp_program *ret)
{
    auto_canonical struct sp_canonical at = {0};
    char begin[SHEBANG_BYTES + 1] = "";

    if (scripts > MAX_SCRIPTS || !sp_writable_stays(w, path, &at) || at.way != SP_WAY_FOUND ||
        !S_ISREG(at.who.mode) || access(path, X_OK) < 0)
        return false;
    auto_close int fd = open(at.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    /* An unreadable program is no script: its interpreter could not read it. */
    if (fd >= 0 && read(fd, begin, SHEBANG_BYTES) < 0)
        return false;
    if (begin[0] == '#' && begin[1] == '!') {
        struct sp_program interpreter = {0};
        char *name = begin + 2 + strspn(begin + 2, " \t");

        name[strcspn(name, " \t\n")] = 0;
        const bool stays = does_stay(w, name, scripts + 1, &interpreter);
        sp_program_done(&interpreter);
        if (!stays)
            return false;
    }
    *ret = (struct sp_program){.path = strdup(path), .dev = at.who.dev, .ino = at.who.ino};
    return ret->path != NULL;
}

enum found { FOUND, NOT_HERE, NOT_SURE };

static enum found find_in_entry(const struct sp_writable *w, struct sp_str entry,
                                struct sp_str name, struct sp_program *ret)
{
    auto_free char *path = NULL;
    auto_canonical struct sp_canonical at = {0};

    if (!does_entry_stay(w, entry) ||
        asprintf(&path, SP_STR_FMT "/" SP_STR_FMT, SP_STR_ARG(entry), SP_STR_ARG(name)) < 0 ||
        !sp_writable_stays(w, path, &at))
        return NOT_SURE;
    if (at.way != SP_WAY_FOUND || !S_ISREG(at.who.mode) || access(path, X_OK) < 0)
        return NOT_HERE;
    return does_stay(w, path, 0, ret) ? FOUND : NOT_SURE;
}

/* Like execvp and shells: the first entry that has an executable file of this name. */
static bool find_program(const struct sp_writable *w, struct sp_str word, struct sp_str path,
                         struct sp_program *ret)
{
    enum found found = NOT_HERE;
    struct sp_str entry;

    if (word.n == 0)
        return false;
    if (memchr(word.p, '/', word.n) != NULL) {
        auto_free char *copy = strndup(word.p, word.n);

        return copy != NULL && does_stay(w, copy, 0, ret);
    }
    while (found == NOT_HERE && next_entry(&path, &entry))
        found = find_in_entry(w, entry, word, ret);
    return found == FOUND;
}

/* ---- scripts ---- */

/* A shell prefers a builtin to any file. These only print or change the directory, which does not
 * affect absolute entries of PATH. The others can run anything (`eval`, `.`, `command`), change
 * what the next name means (`alias`, `hash`, `read PATH`, `printf -v PATH`), or compute (`test -v`,
 * `let`). */
static bool is_harmless(struct sp_str name)
{
    static const char *const names[] = {":", "cd", "echo", "false", "pwd", "true", NULL};

    return sp_str_is_any_of(name, names);
}

static bool is_builtin(struct sp_str name)
{
    static const char *const names[] = {
        ".",         "[",        "alias",      "autoload", "bg",         "bind",    "break",
        "builtin",   "bye",      "caller",     "chdir",    "command",    "compgen", "complete",
        "compopt",   "continue", "dirs",       "disable",  "disown",     "echotc",  "echoti",
        "emulate",   "enable",   "eval",       "exec",     "exit",       "fc",      "fg",
        "functions", "getln",    "getopts",    "hash",     "help",       "history", "jobs",
        "kill",      "let",      "limit",      "log",      "logout",     "mapfile", "noglob",
        "popd",      "print",    "printf",     "pushd",    "pushln",     "r",       "read",
        "readarray", "rehash",   "return",     "sched",    "set",        "setopt",  "shift",
        "shopt",     "source",   "suspend",    "test",     "times",      "trap",    "ttyctl",
        "type",      "ulimit",   "umask",      "unalias",  "unfunction", "unhash",  "unlimit",
        "unsetopt",  "vared",    "wait",       "whence",   "where",      "which",   "zcompile",
        "zle",       "zmodload", "zparseopts", "zstyle",   "-",          NULL};

    return sp_str_is_any_of(name, names);
}

static bool do_segments_stay(const struct sp_writable *w, const struct sp_segments *s,
                             struct sp_str path)
{
    if (!s->is_wrapper || s->is_opaque)
        return true; /* one command, and find_program checked argv[0] */
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sp_str name = s->items[i].items[0];

        if (is_harmless(name))
            continue;
        struct sp_program program = {0};
        const bool ok = !is_builtin(name) && find_program(w, name, path, &program);
        sp_program_done(&program);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- the environment ---- */

/* Variables with lists of paths to code: what the loader loads, what a shell reads before its
 * script, and where interpreters find modules first. */
static const char *const code_variables[] = {
    "LD_PRELOAD",        "LD_LIBRARY_PATH",   "LD_AUDIT",
    "GCONV_PATH",        "BASH_ENV",          "ENV",
    "PYTHONPATH",        "PYTHONHOME",        "PERL5LIB",
    "PERLLIB",           "RUBYLIB",           "NODE_PATH",
    "CLASSPATH",         "GIT_EXEC_PATH",     "GIT_TEMPLATE_DIR",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
};
#define CODE_VARIABLES (sizeof code_variables / sizeof *code_variables)

/* The loader also accepts blanks and semicolons as separators, so an entry with one does not
 * count. */
static bool does_list_stay(const struct sp_writable *w, struct sp_str list)
{
    struct sp_str entry;

    if (list.n == 0)
        return true;
    while (next_entry(&list, &entry))
        if (memchr(entry.p, ' ', entry.n) != NULL || memchr(entry.p, ';', entry.n) != NULL ||
            !does_entry_stay(w, entry))
            return false;
    return true;
}

static bool does_code_stay(const struct sp_writable *w, struct sp_str environ)
{
    static const char *const places[] = {"/etc", "/lib", "/lib64", "/usr"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (sp_writable_has(w, places[i]))
            return false;
    for (size_t i = 0; i < CODE_VARIABLES; i++)
        if (!does_list_stay(w, sp_env_value(environ, code_variables[i])))
            return false;
    return true;
}

/* Whether NAME=VALUE leads to code that commands may write. */
static bool leads_to_writable(const struct sp_writable *w, const char *word)
{
    for (size_t i = 0; i < CODE_VARIABLES; i++) {
        const size_t n = strlen(code_variables[i]);

        if (strncmp(word, code_variables[i], n) == 0 && word[n] == '=')
            return !does_list_stay(w, sp_str_of(word + n + 1));
    }
    return false;
}

char **sp_decider_environ(const struct sp_policy *policy, char *const *own)
{
    auto_writable struct sp_writable w = {0};
    auto_free char *kept = NULL;
    const char *path = NULL;
    size_t count = 0;

    while (own[count] != NULL)
        if (strncmp(own[count++], "PATH=", 5) == 0 && path == NULL)
            path = own[count - 1] + 5;
    sp_writable_find(policy, &w);
    if (path != NULL && !keep_entries(&w, sp_str_of(path), &kept))
        return NULL;
    if (kept != NULL)
        path = kept;
    /* The new PATH is behind the array. */
    const size_t room = path == NULL ? 0 : strlen("PATH=") + strlen(path) + 1;
    char **ret = malloc((count + 1) * sizeof *ret + room);
    if (ret == NULL)
        return NULL;
    char *new_path = (char *)(ret + count + 1);
    bool has_path = false;
    count = 0;
    for (; *own != NULL; own++) {
        const bool is_path = strncmp(*own, "PATH=", 5) == 0;

        if (leads_to_writable(&w, *own) || (is_path && has_path))
            continue;
        if (is_path)
            (void)snprintf(new_path, room, "PATH=%s", path);
        has_path = has_path || is_path;
        ret[count++] = is_path ? new_path : *own;
    }
    ret[count] = NULL;
    return ret;
}

bool sp_startup_is_writable(const struct sp_policy *policy, struct sp_str environ)
{
    static const char *const files[] = {".bash_profile", ".bash_login", ".profile", ".bashrc",
                                        ".zshenv",       ".zprofile",   ".zshrc",   ".zlogin"};
    static const char *const homes[] = {"HOME", "ZDOTDIR"};
    auto_writable struct sp_writable w = {0};

    sp_writable_find(policy, &w);
    if (!does_code_stay(&w, environ))
        return true;
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        const struct sp_str home = sp_env_value(environ, homes[i]);

        for (size_t k = 0; home.n != 0 && k < sizeof files / sizeof *files; k++) {
            auto_canonical struct sp_canonical at = {0};
            auto_free char *path = NULL;

            if (asprintf(&path, SP_STR_FMT "/%s", SP_STR_ARG(home), files[k]) < 0 ||
                !sp_writable_stays(&w, path, &at))
                return true;
        }
    }
    return false;
}

/* ---- a command ---- */

/* A shell that is not given a script reads startup files of the user. (With a script,
 * run_plan.c avoids them.) */
static bool reads_startup(const struct sp_program_request *request)
{
    static const char *const shells[] = {"bash", "dash", "fish", "ksh", "sh", "zsh", NULL};

    return sp_str_is_any_of(sp_base_name(request->argv.items[0]), shells) &&
           !request->judged->segments.is_wrapper &&
           sp_startup_is_writable(request->policy, request->environ);
}

/* Whether the path leads to the file that PATH has under its base name. */
static bool is_same_file(struct sp_str program, struct sp_str path)
{
    struct sp_writable none;
    struct sp_program by_path = {0};
    struct sp_program by_name = {0};

    sp_writable_find(NULL, &none);
    const bool is_same = find_program(&none, program, path, &by_path) &&
                         find_program(&none, sp_base_name(program), path, &by_name) &&
                         by_path.dev == by_name.dev && by_path.ino == by_name.ino;

    sp_program_done(&by_path);
    sp_program_done(&by_name);
    return is_same;
}

/* Without a sandbox: whether the names that rules allow mean the expected files. A path that
 * matched by its last component has to lead to the file that PATH has under that name. */
static bool is_named(const struct sp_program_request *request)
{
    const struct sp_rule_matches *all = &request->judged->matches;
    struct sp_str path = sp_env_value(request->environ, "PATH");

    if (path.p == NULL && request->environ.p != NULL)
        path = SP_STR("/bin:/usr/bin"); /* the default of os/spawn.h */
    for (uint32_t i = 0; i < all->count; i++) {
        const struct sp_rule_match *m = &all->items[i];
        const struct sp_str name = m->prefix.items[0];

        if (m->verdict != SP_VERDICT_ALLOW)
            continue;
        if (m->resolved_program.p != NULL ? !is_same_file(m->resolved_program, path)
                                          : memchr(name.p, '/', name.n) == NULL && path.p != NULL &&
                                                sp_path_is_relative(path))
            return false;
    }
    return true;
}

bool sp_program_find(const struct sp_program_request *request, struct sp_program *ret)
{
    const struct sp_str path = sp_env_value(request->environ, "PATH");
    auto_writable struct sp_writable w = {0};
    struct sp_program program = {0};

    *ret = program;
    if (request->policy == NULL)
        return is_named(request);
    if (request->environ.p == NULL || path.p == NULL || request->argv.count == 0)
        return false;
    sp_writable_find(request->policy, &w);
    if (!reads_startup(request) && find_program(&w, request->argv.items[0], path, &program) &&
        does_code_stay(&w, request->environ) &&
        do_segments_stay(&w, &request->judged->segments, path) &&
        keep_entries(&w, path, &program.search_path)) {
        *ret = program;
        return true;
    }
    sp_program_done(&program);
    return false;
}
