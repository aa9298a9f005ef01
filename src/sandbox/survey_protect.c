/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protects the names that a command must not plant below a writable root (.git, .codex, ...), and
 * the directories that a .git leads to: its gitdir, the common directory, and submodules.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/grow.h"
#include "base/str.h"
#include "sandbox/survey_priv.h"

/* ==== files that name a directory ==== */

#define BLANKS " \t\n\v\f\r"

static struct sp_str trim(struct sp_str s)
{
    while (s.n != 0 && strchr(BLANKS, s.p[0]) != NULL) {
        s.p++;
        s.n--;
    }
    while (s.n != 0 && strchr(BLANKS, s.p[s.n - 1]) != NULL)
        s.n--;
    return s;
}

/* ---- core.worktree ---- */

/* Copies the value after `=` without quotes, escapes and comment; `out` has room for s.n bytes. */
static size_t read_value(struct sp_str s, char *out)
{
    bool is_quoted = false;
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && (s.p[i] == '#' || s.p[i] == ';'))
            break;
        else if (s.p[i] == '\\' && i + 1 < s.n)
            out[n++] = s.p[++i];
        else
            out[n++] = s.p[i];
    }
    return trim((struct sp_str){out, n}).n;
}

/* The last value of core.worktree counts, as in Git. false: there is none. */
static bool find_worktree(const char *text, char *out, size_t *ret)
{
    bool is_core = false;
    bool is_found = false;

    for (struct sp_str rest = sp_str_of(text); rest.n != 0;) {
        const struct sp_str line = trim(sp_str_cut(&rest, '\n'));
        const char *is = line.n == 0 ? NULL : memchr(line.p, '=', line.n);
        const size_t key = is == NULL ? 0 : (size_t)(is - line.p);

        if (line.n != 0 && line.p[0] == '[')
            is_core = sp_str_eq_nocase(line, SP_STR("[core]"));
        else if (is_core && is != NULL &&
                 sp_str_eq_nocase(trim((struct sp_str){line.p, key}), SP_STR("worktree"))) {
            *ret = read_value(trim((struct sp_str){is + 1, line.n - key - 1}), out);
            is_found = true;
        }
    }
    return is_found;
}

char *sp_gitdir_parse(const char *text, enum sp_gitdir_file file, const char *base)
{
    struct sp_str named = trim(sp_str_of(text));
    auto_free char *value = file == SP_GITDIR_WORKTREE ? malloc(strlen(text) + 1) : NULL;
    char *path = NULL;

    errno = 0;
    if (file == SP_GITDIR_WORKTREE) {
        size_t n = 0;

        if (value == NULL) {
            errno = ENOMEM;
            return NULL;
        }
        if (!find_worktree(text, value, &n))
            return NULL;
        named = (struct sp_str){value, n};
    }
    if (file == SP_GITDIR_DOT_GIT) {
        const char *colon = memchr(named.p, ':', named.n);
        const size_t n = colon == NULL ? 0 : (size_t)(colon - named.p);

        if (!sp_str_eq(trim((struct sp_str){named.p, n}), SP_STR("gitdir")))
            return NULL;
        named = trim((struct sp_str){colon + 1, named.n - n - 1});
    }
    if (named.n == 0)
        return NULL;
    const bool is_absolute = named.p[0] == '/';
    if (asprintf(&path, "%s%s%.*s", is_absolute ? "" : base, is_absolute ? "" : "/", (int)named.n,
                 named.p) < 0) {
        errno = ENOMEM;
        return NULL;
    }
    return path;
}

/* Reads up to `max` bytes and adds a NUL. Returns the length or minus errno. */
static ssize_t read_start(int fd, char *text, size_t max)
{
    size_t len = 0;

    while (len < max) {
        const ssize_t n = read(fd, text + len, max - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    text[len] = 0;
    return (ssize_t)len;
}

int sp_gitdir_read(const char *path, enum sp_gitdir_file file, const char *base,
                   struct sp_identity *who, char **ret_path, struct sp_err *e)
{
    /* O_NONBLOCK: a command may have put a FIFO there. */
    auto_close int fd = sp_open_strictly(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    char text[SP_GITDIR_MAX + 1] = "";
    struct sp_identity now;

    *ret_path = NULL;
    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return 0;
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %.300s", path);
    int err = sp_identity_get(fd, "", false, &now);
    if (err == 0 && (!S_ISREG(now.mode) || !sp_identity_equal(&now, who)))
        return sp_fail(e, SP_E_STATE, 0, "%.300s changed while it was looked at", path);
    *who = now; /* taken before the read: a concurrent write changes it, so the mark notices */
    const ssize_t n = err != 0 ? -err : read_start(fd, text, SP_GITDIR_MAX);
    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, (int)-n, "read %.300s", path);
    *ret_path = sp_gitdir_parse(text, file, base);
    if (*ret_path == NULL && errno == ENOMEM)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %.300s", path);
    return 0;
}

/* ==== the survey ==== */

/* A .git to be read after the protected names of all roots are known. */
struct repository {
    char *root; /* canonical */
    struct sp_identity dot_git;
    size_t entry;
};

struct protecting {
    struct sp_making *m;
    struct sp_spots granted; /* each path that an entry names or resolves to, with its access */
    struct repository *repositories;
    size_t count, cap;
    unsigned modules; /* submodules so far */
};

/* dir/name; NULL: no memory. */
static char *join(const char *dir, const char *name)
{
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir[1] == 0 ? "" : dir, name) < 0 ? NULL : path;
}

/* ---- protected names that entries reopen ---- */

static bool grants(const struct protecting *p, const char *path)
{
    const struct sp_spot *s = sp_spots_over(&p->granted, path, strlen(path));

    return s != NULL && s->access == SP_ACCESS_WRITE && strcmp(s->path, path) == 0;
}

static int find_grants(struct protecting *p)
{
    const struct sp_spot write = {.access = SP_ACCESS_WRITE};
    struct sp_making *m = p->m;
    int r = 0;

    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];
        const struct sp_spot spot = {.access = v->fact->access};

        if (v->fact->is_minimal)
            continue;
        if (!sp_spots_add(&p->granted, v->fact->path, &spot) ||
            (v->at.way == SP_WAY_FOUND && !sp_spots_add(&p->granted, v->at.path, &spot)))
            return sp_making_no_memory(m);
    }
    r = sp_spots_settle(&p->granted, NULL, m->e);
    for (size_t i = 0; r == 0 && i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];

        if (v->fact->access != SP_ACCESS_WRITE || v->at.way != SP_WAY_FOUND ||
            !S_ISDIR(v->at.who.mode))
            continue;
        /* An entry may name root/.git through a symlink to the root: then root/.git is reopened
         * under its real path as well. */
        for (size_t k = 0; k < SP_PROTECTED_COUNT; k++) {
            auto_free char *as_written = join(v->fact->path, sp_protected_names[k]);
            auto_free char *canonical = join(v->at.path, sp_protected_names[k]);

            if (as_written == NULL || canonical == NULL ||
                (grants(p, as_written) && !sp_spots_add(&p->granted, canonical, &write)))
                return sp_making_no_memory(m);
        }
    }
    return r < 0 ? r : sp_spots_settle(&p->granted, NULL, m->e);
}

/* ---- names ---- */

/* The name belongs to another user, in a sticky directory like /tmp. */
static bool belongs_to_another(int dir, const char *name)
{
    struct stat parent;
    struct stat st;

    return fstat(dir, &parent) == 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (parent.st_mode & S_ISVTX) != 0 && parent.st_uid != geteuid() && st.st_uid != geteuid();
}

static int protect_name(struct protecting *p, int dir, const struct sp_identity *root_who,
                        const char *root, const char *name, size_t entry)
{
    struct sp_making *m = p->m;
    auto_free char *path = join(root, name);
    struct sp_identity who;

    if (path == NULL)
        return sp_making_no_memory(m);
    if (strlen(path) >= PATH_MAX)
        return sp_fail(m->e, SP_E_INVALID, ENAMETOOLONG, "look at %.300s", path);
    if (grants(p, path))
        return 0;
    const int err = sp_identity_get(dir, name, false, &who);
    if (err != 0 && err != ENOENT)
        return sp_fail(m->e, SP_E_SYSTEM, err, "look at %.300s", path);
    int r = sp_making_mark(m, path, false, false, err == 0 ? &who : NULL);
    if (r < 0)
        return r;
    if (err == ENOENT)
        return sp_making_add_missing(m, path, root_who, SP_ACCESS_READ, SP_WHY_PROTECTED, entry);
    if (S_ISLNK(who.mode) && belongs_to_another(dir, name))
        return 0; /* a command of this user cannot remove or rename it */
    if (S_ISLNK(who.mode))
        return sp_making_refuse_link(m, path, path, SP_ACCESS_READ);
    if ((r = sp_making_add(m, path, &who, SP_ACCESS_READ, SP_WHY_PROTECTED, entry)) < 0)
        return r;
    if (strcmp(name, ".git") != 0)
        return 0;
    char *copy = SP_GROW(p->repositories, p->count, p->cap) ? strdup(root) : NULL;
    if (copy == NULL)
        return sp_making_no_memory(m);
    p->repositories[p->count++] = (struct repository){.root = copy, .dot_git = who, .entry = entry};
    return 0;
}

/* Works on a descriptor of the root, after checking that it still is the inode that was seen. */
static int protect_root(struct protecting *p, const char *root, const struct sp_spot *seen)
{
    struct sp_making *m = p->m;
    auto_close int dir = sp_open_strictly(AT_FDCWD, root, O_PATH | O_DIRECTORY);
    struct sp_identity who;

    if (dir < 0 || sp_identity_get(dir, "", false, &who) != 0 ||
        !sp_identity_equal(&who, &seen->who))
        return sp_making_changed(m, root);
    int r = 0;
    for (size_t i = 0; r == 0 && i < SP_PROTECTED_COUNT; i++)
        r = protect_name(p, dir, &who, root, sp_protected_names[i], seen->entry);
    return r;
}

static int protect_names(struct protecting *p)
{
    struct sp_making *m = p->m;
    const size_t count = m->spots.settled;

    for (size_t i = 0; i < count; i++) {
        const struct sp_spot root = m->spots.items[i]; /* a copy: the table is reallocated */

        if (root.access != SP_ACCESS_WRITE || root.kind != SP_SPOT_DIR)
            continue;
        const int r = protect_root(p, root.path, &root);
        if (r < 0)
            return r;
    }
    return sp_spots_settle(&m->spots, m->policy, m->e);
}

/* ---- directories that a .git leads to ---- */

/* Makes a part of a repository read-only, unless an entry names exactly that place. */
static int protect_part(struct protecting *p, const char *path, const struct sp_canonical *at,
                        size_t entry)
{
    struct sp_making *m = p->m;
    int r = sp_making_mark_way(m, path, at);

    if (r == 0)
        r = sp_making_check_links(m, path, at, SP_ACCESS_READ);
    if (r < 0 || at->way != SP_WAY_FOUND)
        return r;
    const struct sp_spot *over = sp_spots_over(&m->spots, at->path, strlen(at->path));
    if (over == NULL || over->access != SP_ACCESS_WRITE || strcmp(over->path, at->path) == 0)
        return 0;
    r = sp_making_add(m, at->path, &at->who, SP_ACCESS_READ, SP_WHY_GITDIR, entry);
    return r < 0 ? r
                 : sp_spots_settle(&m->spots, m->policy,
                                   m->e); /* later parts may lie inside of this spot */
}

/* Resolves and protects a path that a file of the repository names. */
static int protect_named(struct protecting *p, const char *path, size_t entry,
                         struct sp_canonical *ret)
{
    const int r = sp_canonical_find(path, ret, p->m->e);

    return r < 0 ? r : protect_part(p, path, ret, entry);
}

static int protect_common(struct protecting *p, const char *git_dir, size_t entry)
{
    struct sp_making *m = p->m;
    auto_free char *file = join(git_dir, "commondir");
    auto_free char *named = NULL;
    auto_canonical struct sp_canonical at = {0};
    auto_canonical struct sp_canonical common = {0};

    if (file == NULL)
        return sp_making_no_memory(m);
    int r = protect_named(p, file, entry, &at);
    if (r < 0 || at.way != SP_WAY_FOUND || !S_ISREG(at.who.mode))
        return r;
    r = sp_gitdir_read(at.path, SP_GITDIR_COMMONDIR, git_dir, &at.who, &named, m->e);
    if (r == 0)
        r = sp_making_mark(m, at.path, false, true, &at.who);
    return r < 0 || named == NULL ? r : protect_named(p, named, entry, &common);
}

/* ---- submodules ---- */

#define MAX_MODULES 1024
#define MAX_DEPTH   16 /* directories below .git/modules, submodules of submodules included */

static int walk_modules(struct protecting *p, const char *dir, unsigned depth, size_t entry);

/*
 * The `.git` file in the working directory of a submodule names its repository. If a command could
 * replace it, the repository could have the command's settings, and a `git status` of the user in
 * the outer repository would execute them.
 */
static int protect_module(struct protecting *p, const char *git_dir, unsigned depth, size_t entry)
{
    struct sp_making *m = p->m;
    auto_free char *config = join(git_dir, "config");
    auto_free char *modules = join(git_dir, "modules");
    auto_free char *worktree = NULL;
    auto_free char *dot_git = NULL;
    auto_canonical struct sp_canonical at = {0};
    auto_canonical struct sp_canonical link = {0};

    if (config == NULL || modules == NULL)
        return sp_making_no_memory(m);
    if (++p->modules > MAX_MODULES)
        return sp_fail(m->e, SP_E_LIMIT, 0, "%.200s: more than %d submodules to protect", git_dir,
                       MAX_MODULES);
    int r = sp_canonical_find(config, &at, m->e);
    if (r == 0 && at.way == SP_WAY_FOUND && S_ISREG(at.who.mode)) {
        r = sp_gitdir_read(at.path, SP_GITDIR_WORKTREE, git_dir, &at.who, &worktree, m->e);
        if (r == 0)
            r = sp_making_mark(m, at.path, false, true, &at.who);
    }
    if (r == 0 && worktree != NULL) {
        dot_git = join(worktree, ".git");
        r = dot_git == NULL ? sp_making_no_memory(m) : protect_named(p, dot_git, entry, &link);
    }
    return r < 0 ? r : walk_modules(p, modules, depth, entry);
}

static int walk_modules(struct protecting *p, const char *path, unsigned depth, size_t entry)
{
    struct sp_making *m = p->m;
    const int fd = sp_open_strictly(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    struct sp_identity who;
    int r = 0;

    if (fd < 0)
        return errno == ENOENT ? sp_making_mark(m, path, false, false, NULL) : 0;
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return sp_making_no_memory(m);
    }
    if (depth > MAX_DEPTH || sp_identity_get(fd, "", false, &who) != 0)
        r = sp_making_changed(m, path);
    else
        r = sp_making_mark(m, path, false, true, &who);
    for (const struct dirent *d; r == 0 && (d = readdir(dir)) != NULL;) {
        struct stat st;

        if (sp_budget_is_spent()) {
            r = sp_budget_refuse(m->e);
            break;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        auto_free char *below = join(path, d->d_name);
        auto_free char *head = join(d->d_name, "HEAD");
        if (below == NULL || head == NULL)
            r = sp_making_no_memory(m);
        else if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            /* Names of submodules may contain slashes: a directory without HEAD is searched, too.
             */
            r = fstatat(fd, head, &st, AT_SYMLINK_NOFOLLOW) == 0
                    ? protect_module(p, below, depth + 1, entry)
                    : walk_modules(p, below, depth + 1, entry);
    }
    (void)closedir(dir);
    return r;
}

/* The common directory and the submodules. */
static int protect_git_dir(struct protecting *p, const char *git_dir, size_t entry)
{
    auto_free char *modules = join(git_dir, "modules");
    const int r = protect_common(p, git_dir, entry);

    if (r < 0)
        return r;
    return modules == NULL ? sp_making_no_memory(p->m) : walk_modules(p, modules, 0, entry);
}

/* ---- repositories ---- */

static int protect_repository(struct protecting *p, struct repository *repo)
{
    struct sp_making *m = p->m;
    auto_free char *dot_git = join(repo->root, ".git");
    auto_free char *named = NULL;
    auto_canonical struct sp_canonical at = {0};

    if (dot_git == NULL)
        return sp_making_no_memory(m);
    if (S_ISDIR(repo->dot_git.mode))
        return protect_git_dir(p, dot_git, repo->entry);
    if (!S_ISREG(repo->dot_git.mode))
        return 0;
    int r = sp_gitdir_read(dot_git, SP_GITDIR_DOT_GIT, repo->root, &repo->dot_git, &named, m->e);
    if (r == 0)
        r = sp_making_mark(m, dot_git, false, true, &repo->dot_git);
    if (r < 0 || named == NULL)
        return r;
    r = protect_named(p, named, repo->entry, &at);
    if (r < 0 || at.way != SP_WAY_FOUND || !S_ISDIR(at.who.mode))
        return r;
    return protect_git_dir(p, at.path, repo->entry);
}

int sp_making_protect(struct sp_making *m)
{
    struct protecting p = {.m = m};

    if (m->resolved->is_full_write)
        return 0;
    int r = find_grants(&p);
    if (r == 0)
        r = protect_names(&p);
    for (size_t i = 0; r == 0 && i < p.count; i++)
        r = protect_repository(&p, &p.repositories[i]);
    for (size_t i = 0; i < p.count; i++)
        free(p.repositories[i].root);
    free(p.repositories);
    sp_spots_done(&p.granted);
    return r;
}
