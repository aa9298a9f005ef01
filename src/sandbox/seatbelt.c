/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/seatbelt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/seatbelt_text.h"

struct making {
    const struct sp_resolved *r;
    char **paths; /* of each fact, as macOS sees it */
    struct sp_seatbelt out;
    char **ancestors; /* of carve-outs, below their roots; each once */
    size_t ancestor_count, ancestor_cap;
    struct sp_err *e;
};

void sp_seatbelt_done(struct sp_seatbelt *s)
{
    sp_buf_done(&s->text);
    sp_buf_done(&s->params);
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a seatbelt profile");
}

/* ---- paths ---- */

/* Resolves the top-level symlinks that every macOS has. */
static char *to_mac(const char *path)
{
    static const char *const aliases[] = {"/tmp", "/var", "/etc"};
    char *full = NULL;

    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (sp_path_is_in(path, aliases[i]))
            return asprintf(&full, "/private%s", path) < 0 ? NULL : full;
    return strdup(path);
}

/* A symlink as the first component belongs to the system; a command could repoint any other. */
static int check_root(const char *path, struct sp_err *e)
{
    auto_free char *part = strdup(path);

    if (part == NULL)
        return no_memory(e);
    char *at = strchr(part + 1, '/');
    while (at != NULL) {
        struct stat st;
        char *next = strchr(at + 1, '/');

        if (next != NULL)
            *next = 0;
        if (lstat(part, &st) == 0 && S_ISLNK(st.st_mode))
            return sp_fail(e, SP_E_INVALID, 0,
                           "writable root %s contains symlink component %s; symlinked writable "
                           "roots are not supported",
                           path, part);
        if (next != NULL)
            *next = '/';
        at = next;
    }
    return 0;
}

/* ---- text ---- */

#define ADD(m, ...) sp_buf_printf(&(m)->out.text, __VA_ARGS__)

static bool add_param(struct making *m, const char *key, const char *path)
{
    return sp_buf_printf(&m->out.params, "-D%s=%s", key, path) && sp_buf_add(&m->out.params, "", 1);
}

/* Quoted for a regular expression between #" and ". */
static bool add_quoted(struct sp_buf *out, const char *text, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = (strchr("\\.^$|()[]{}*+?\"", text[i]) == NULL || sp_buf_add(out, "\\", 1)) &&
             sp_buf_add(out, text + i, 1);
    return ok;
}

/* ---- patterns ---- */

/* The length of the class at `[`; 0: not closed. */
static size_t class_length(const char *glob)
{
    size_t n = 1;

    if (glob[n] == '!' || glob[n] == '^')
        n++;
    if (glob[n] == ']')
        n++;
    while (glob[n] != 0 && glob[n] != ']')
        n++;
    return glob[n] == ']' ? n + 1 : 0;
}

static bool add_class(struct sp_buf *out, const char *glob, size_t n)
{
    const bool is_not = glob[1] == '!' || glob[1] == '^';
    /* A negated class must not match a slash. */
    bool ok = sp_buf_printf(out, is_not ? "[^/" : "[");

    for (size_t i = is_not ? 2 : 1; ok && i + 1 < n; i++)
        ok = (strchr("\\[]^\"", glob[i]) == NULL || sp_buf_add(out, "\\", 1)) &&
             sp_buf_add(out, glob + i, 1);
    return ok && sp_buf_add(out, "]", 1);
}

/* One element of the pattern; *ret_n: its length there. */
static bool add_element(struct sp_buf *out, const char *g, int *depth, size_t *ret_n)
{
    const size_t class = g[0] == '[' ? class_length(g) : 0;

    *ret_n = 1;
    if (class != 0) {
        *ret_n = class;
        return add_class(out, g, class);
    }
    if (strncmp(g, "**/", 3) == 0) {
        *ret_n = 3;
        return sp_buf_printf(out, "(.*/)?");
    }
    if (strncmp(g, "**", 2) == 0) {
        *ret_n = 2;
        return sp_buf_printf(out, ".*");
    }
    switch (g[0]) {
    case '*':
        return sp_buf_printf(out, "[^/]*");
    case '?':
        return sp_buf_printf(out, "[^/]");
    case '{':
        if (strchr(g, '}') == NULL)
            break;
        ++*depth;
        return sp_buf_printf(out, "(");
    case '}':
        if (*depth == 0)
            break;
        --*depth;
        return sp_buf_printf(out, ")");
    case ',':
        return *depth > 0 ? sp_buf_printf(out, "|") : add_quoted(out, g, 1);
    case '\\':
        if (g[1] == 0)
            break;
        *ret_n = 2;
        return add_quoted(out, g + 1, 1);
    default:
        break;
    }
    return add_quoted(out, g, 1);
}

static bool add_glob(struct sp_buf *out, const char *glob)
{
    size_t used = 1;
    int depth = 0;
    bool ok = true;

    for (; ok && *glob != 0; glob += used)
        ok = add_element(out, glob, &depth, &used);
    while (ok && depth-- > 0) /* the pattern ends inside of braces */
        ok = sp_buf_printf(out, ")");
    return ok;
}

bool sp_seatbelt_add_regex(struct sp_buf *out, const char *glob)
{
    /* The match may be a directory: deny everything below it. */
    return sp_buf_add(out, "^", 1) && add_glob(out, glob) && sp_buf_printf(out, "(/.*)?$");
}

/* Ancestors of matches must not be renamed: the match would get a path that is not denied. */
static bool add_glob_ancestors(struct making *m, const char *glob)
{
    bool ok = true;

    for (size_t i = 1; ok && glob[i] != 0; i++) {
        auto_free char *dir = glob[i] == '/' ? strndup(glob, i) : NULL;

        if (glob[i] != '/')
            continue;
        ok = dir != NULL &&
             ADD(m, "(deny file-write-unlink (require-all (vnode-type DIRECTORY) (regex #\"^") &&
             add_glob(&m->out.text, dir) && ADD(m, "$\")))\n");
    }
    return ok;
}

/* ---- roots and their carve-outs ---- */

static bool is_root(const struct making *m, size_t i, enum sp_access least)
{
    if (m->r->facts[i].is_minimal || m->r->facts[i].access < least)
        return false;
    for (size_t k = 0; k < m->r->count; k++) {
        const enum sp_access other = m->r->facts[k].access;

        /* A path that occurs twice is one root, or none if one occurrence denies it. */
        if (k != i && !m->r->facts[k].is_minimal && strcmp(m->paths[k], m->paths[i]) == 0 &&
            (other == SP_ACCESS_DENY || (k < i && other >= least)))
            return false;
    }
    return true;
}

static bool note_ancestors(struct making *m, const char *path, const char *root)
{
    const size_t top = strcmp(root, "/") == 0 ? 0 : strlen(root);

    for (size_t n = strlen(path); n > top;) {
        while (n > top && path[n - 1] != '/')
            n--;
        n = n > 0 ? n - 1 : 0; /* the slash */
        if (n <= top)
            break;
        auto_free char *ancestor = strndup(path, n);
        if (ancestor == NULL || !SP_GROW(m->ancestors, m->ancestor_count, m->ancestor_cap))
            return false;
        bool is_known = false;
        for (size_t i = 0; i < m->ancestor_count && !is_known; i++)
            is_known = strcmp(m->ancestors[i], ancestor) == 0;
        if (!is_known)
            m->ancestors[m->ancestor_count++] = TAKE_PTR(ancestor);
    }
    return true;
}

/* `literal` is needed, too: it also matches the creation of a missing path. */
static bool add_exclusion(struct making *m, const char *key, const char *path)
{
    return add_param(m, key, path) &&
           ADD(m, " (require-not (literal (param \"%s\"))) (require-not (subpath (param \"%s\")))",
               key, key);
}

static bool add_exclusions(struct making *m, size_t root, enum sp_access least, const char *key)
{
    const struct sp_resolved *r = m->r;
    size_t n = 0;
    bool ok = true;

    for (size_t i = 0; ok && i < r->count; i++) {
        char name[96];

        if (r->facts[i].is_minimal || r->facts[i].access >= least ||
            strcmp(m->paths[i], m->paths[root]) == 0 || !sp_path_is_in(m->paths[i], m->paths[root]))
            continue;
        (void)snprintf(name, sizeof name, "%s_EXCLUDED_%zu", key, n++);
        ok = add_exclusion(m, name, m->paths[i]) &&
             (least != SP_ACCESS_WRITE || note_ancestors(m, m->paths[i], m->paths[root]));
        auto_free char *real = ok ? realpath(r->facts[i].path, NULL) : NULL;
        if (real != NULL && strcmp(real, r->facts[i].path) != 0) {
            auto_free char *mac = to_mac(real);

            (void)snprintf(name, sizeof name, "%s_EXCLUDED_%zu_RESOLVED", key, n - 1);
            ok = mac != NULL && add_exclusion(m, name, mac);
        }
    }
    return ok;
}

/* Excludes the protected names of this root and of the writable roots inside of it. An entry that
 * reopens a name is a root with a rule of its own. */
static bool add_protected(struct making *m, size_t root)
{
    bool ok = true;

    for (size_t i = 0; ok && i < m->r->count; i++) {
        const char *path = m->paths[i];

        if (!is_root(m, i, SP_ACCESS_WRITE) || !sp_path_is_in(path, m->paths[root]))
            continue;
        for (size_t k = 0; ok && k < SP_PROTECTED_COUNT; k++) {
            const char *name = sp_protected_names[k];

            ok = ADD(m, " (require-not (regex #\"^") &&
                 add_quoted(&m->out.text, path, strcmp(path, "/") == 0 ? 0 : strlen(path)) &&
                 ADD(m, "/") && add_quoted(&m->out.text, name, strlen(name)) &&
                 ADD(m, "(/.*)?$\"))");
        }
    }
    return ok;
}

static bool add_root(struct making *m, const char *what, size_t i, enum sp_access least, size_t n)
{
    const bool is_write = least == SP_ACCESS_WRITE;
    struct stat st;
    const bool is_plain = is_write && stat(m->r->facts[i].path, &st) == 0 && !S_ISDIR(st.st_mode);
    char key[64];

    (void)snprintf(key, sizeof key, is_write ? "WRITABLE_ROOT_%zu" : "READABLE_ROOT_%zu", n);
    return add_param(m, key, m->paths[i]) &&
           ADD(m, "(allow %s (require-all (%s (param \"%s\"))", what,
               is_plain ? "literal" : "subpath", key) &&
           add_exclusions(m, i, least, key) && (!is_write || is_plain || add_protected(m, i)) &&
           ADD(m, "))\n");
}

static bool add_roots(struct making *m, const char *what, enum sp_access least)
{
    size_t n = 0;
    bool ok = true;

    for (size_t i = 0; ok && i < m->r->count; i++)
        if (is_root(m, i, least))
            ok = add_root(m, what, i, least, n++);
    /* The last matching rule decides, so these come after the rules of all roots. */
    for (size_t i = 0; ok && least == SP_ACCESS_WRITE && i < n; i++)
        ok = ADD(m, "(deny file-write-unlink (literal (param \"WRITABLE_ROOT_%zu\")))\n", i);
    return ok;
}

/* ---- the whole ---- */

static bool add_all(struct making *m, bool has_network)
{
    const struct sp_resolved *r = m->r;
    bool ok =
        ADD(m, "%s", SP_SEATBELT_BASE) && (!r->wants_minimal || ADD(m, "%s", SP_SEATBELT_MINIMAL));
    size_t denied = 0;

    /* Before the rules of the roots, which therefore decide: places inside of the platform's
     * defaults that the policy denies or opens are denied or open. */
    for (size_t i = 0; ok && r->wants_minimal && i < r->count; i++) {
        char key[64];

        if (r->facts[i].access != SP_ACCESS_DENY)
            continue;
        (void)snprintf(key, sizeof key, "DENIED_%zu", denied++);
        ok = add_param(m, key, m->paths[i]) &&
             ADD(m, "(deny file-read* file-write* (subpath (param \"%s\")))\n", key);
    }
    ok = ok &&
         (r->is_full_read ? ADD(m, "(allow file-read*)\n")
                          : add_roots(m, "file-read*", SP_ACCESS_READ)) &&
         (r->is_full_write ? ADD(m, "(allow file-write* (regex #\"^/\"))\n")
                           : add_roots(m, "file-write*", SP_ACCESS_WRITE)) &&
         (!has_network || ADD(m, "%s", SP_SEATBELT_NETWORK)) &&
         (!r->is_full_read || ADD(m, "%s", SP_SEATBELT_PREFERENCES));

    for (size_t i = 0; ok && i < r->glob_count; i++) {
        auto_free char *mac = to_mac(r->globs[i]);

        ok = mac != NULL && ADD(m, "(deny file-read* file-write* (regex #\"") &&
             sp_seatbelt_add_regex(&m->out.text, mac) && ADD(m, "\"))\n") &&
             add_glob_ancestors(m, mac);
    }
    for (size_t i = 0; ok && i < m->ancestor_count; i++) {
        char key[64];

        (void)snprintf(key, sizeof key, "PROTECTED_ANCESTOR_%zu", i);
        ok = add_param(m, key, m->ancestors[i]) &&
             ADD(m, "(deny file-write-unlink (literal (param \"%s\")))\n", key);
    }
    return ok;
}

static int find_paths(struct making *m)
{
    const struct sp_resolved *r = m->r;

    m->paths = calloc(r->count + 1, sizeof *m->paths);
    if (m->paths == NULL)
        return no_memory(m->e);
    for (size_t i = 0; i < r->count; i++) {
        const int bad =
            r->facts[i].access == SP_ACCESS_WRITE ? check_root(r->facts[i].path, m->e) : 0;

        if (bad < 0)
            return bad;
        m->paths[i] = to_mac(r->facts[i].path);
        if (m->paths[i] == NULL)
            return no_memory(m->e);
    }
    return 0;
}

int sp_seatbelt_make(const struct sp_policy *p, struct sp_seatbelt *ret, struct sp_err *e)
{
    struct sp_resolved resolved __attribute__((cleanup(sp_resolved_done))) = {0};
    struct making m = {.r = &resolved, .e = e};
    int r = sp_resolve(p, &resolved, e);

    if (r == 0)
        r = find_paths(&m);
    if (r == 0 && !add_all(&m, p->profile.has_network))
        r = no_memory(e);
    for (size_t i = 0; m.paths != NULL && i < resolved.count; i++)
        free(m.paths[i]);
    free(m.paths);
    for (size_t i = 0; i < m.ancestor_count; i++)
        free(m.ancestors[i]);
    free(m.ancestors);
    if (r < 0)
        sp_seatbelt_done(&m.out);
    else
        *ret = m.out;
    return r;
}

/* Escapes control characters: a file name must not send sequences to the terminal. */
static bool print_text(struct sp_buf *out, const char *text, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = ((unsigned char)text[i] < 0x20 && text[i] != '\n') || text[i] == 0x7f
                 ? sp_buf_printf(out, "\\x%02x", (unsigned char)text[i])
                 : sp_buf_add(out, text + i, 1);
    return ok;
}

bool sp_seatbelt_print(const struct sp_seatbelt *s, bool has_network, struct sp_buf *out)
{
    bool ok =
        sp_buf_printf(out,
                      "program: %s\nenvironment: CODEX_SANDBOX=seatbelt%s\narguments:\n  "
                      "-p POLICY\n",
                      SP_SEATBELT_PROGRAM, has_network ? "" : " CODEX_SANDBOX_NETWORK_DISABLED=1");

    for (size_t i = 0; ok && i < s->params.len; i += strlen(s->params.data + i) + 1)
        ok = sp_buf_printf(out, "  ") &&
             print_text(out, s->params.data + i, strlen(s->params.data + i)) &&
             sp_buf_printf(out, "\n");
    return ok && sp_buf_printf(out, "  -- COMMAND ...\npolicy:\n") &&
           print_text(out, s->text.data, s->text.len);
}
