/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing: metadata of one path, the names in a directory, and the names below one.
 *
 * A walk goes breadth first, each directory's names sorted bytewise, within the limits of the ask.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/grow.h"
#include "base/uri.h"
#include "cell/file/file_priv.h"

#define MAX_COUNTED 10000000 /* names of one directory, in case it has no end */
#define WANTED      (STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME | STATX_BTIME)

#define HIGHEST_DEPTH       64
#define HIGHEST_DIRECTORIES 10000
#define HIGHEST_ENTRIES     50000
#define ERROR_TEXT          40 /* bytes counted for the message of an errno */

/* ---- one path ---- */

static int64_t to_ms(const struct statx_timestamp *t)
{
    return t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

static void fill_stat(const struct statx *sx, bool is_link, struct sp_file_stat *ret)
{
    *ret = (struct sp_file_stat){
        .is_directory = S_ISDIR(sx->stx_mode),
        .is_file = S_ISREG(sx->stx_mode),
        .is_link = is_link,
        .size = sx->stx_size,
        .created_ms = (sx->stx_mask & STATX_BTIME) != 0 ? to_ms(&sx->stx_btime) : 0,
        .modified_ms = (sx->stx_mask & STATX_MTIME) != 0 ? to_ms(&sx->stx_mtime) : 0,
    };
}

/* With its trailing slashes. */
static const char *last_component(const char *path)
{
    const char *end = path + strlen(path);

    while (end > path && end[-1] == '/')
        end--;
    while (end > path && end[-1] != '/')
        end--;
    return end;
}

static int stat_without_links(const char *path, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    struct statx sx;
    const char *name;
    const int r = sp_file_open_parent(AT_FDCWD, path, &dir, &name);

    if (r < 0)
        return r;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, WANTED, &sx) < 0)
        return -errno;
    if (S_ISLNK(sx.stx_mode))
        a->refusal = SP_FILE_HAS_LINK;
    else
        fill_stat(&sx, false, &a->stat);
    return 0;
}

int sp_file_op_stat(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct statx sx;

    if (ask->hides_placeholders &&
        sp_file_is_placeholder(AT_FDCWD, ask->path, last_component(ask->path)))
        return -ENOENT;
    if (!ask->follows)
        return stat_without_links(ask->path, a);
    if (statx(AT_FDCWD, ask->path, AT_SYMLINK_NOFOLLOW, WANTED, &sx) < 0)
        return -errno;
    const bool is_link = S_ISLNK(sx.stx_mode);
    if (is_link && statx(AT_FDCWD, ask->path, 0, WANTED, &sx) < 0)
        return -errno;
    fill_stat(&sx, is_link, &a->stat);
    return 0;
}

int sp_file_op_canonical(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct sp_file_out out = {.answer = a};
    char path[PATH_MAX];

    if (realpath(ask->path, path) == NULL)
        return -errno;
    const int r = sp_file_out_add(&out, path, strlen(path));
    return r < 0 ? r : sp_file_out_done(&out);
}

/* ---- one directory ---- */

static int add_entry(struct sp_file_out *o, enum sp_file_entry_kind kind, int err, const char *name,
                     size_t name_len)
{
    const struct sp_file_entry entry = {
        .name_len = (uint32_t)name_len, .kind = (uint16_t)kind, .err = (int16_t)err};
    const int failed = sp_file_out_add(o, &entry, sizeof entry);

    return failed < 0 ? failed : sp_file_out_add(o, name, name_len);
}

/* Follows symlinks. false: a dangling symlink, or the name is gone. */
static bool kind_of(int dir, const struct dirent *d, enum sp_file_entry_kind *ret)
{
    struct stat st;

    *ret = SP_FILE_ENTRY_OTHER;
    if (d->d_type == DT_REG || d->d_type == DT_DIR) {
        *ret = d->d_type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY;
        return true;
    }
    if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
        return true;
    if (fstatat(dir, d->d_name, &st, 0) < 0)
        return errno != ENOENT && errno != ELOOP && errno != ENOTDIR;
    if (S_ISREG(st.st_mode))
        *ret = SP_FILE_ENTRY_FILE;
    else if (S_ISDIR(st.st_mode))
        *ret = SP_FILE_ENTRY_DIRECTORY;
    return true;
}

/* Names above SP_FILE_MAX_ENTRIES are counted, not listed. */
static int list(const struct sp_file_ask *ask, DIR *dir, struct sp_file_out *out,
                uint64_t *ret_count)
{
    enum sp_file_entry_kind kind;
    const struct dirent *d;

    while ((errno = 0, d = readdir(dir)) != NULL && *ret_count < MAX_COUNTED) {
        if (sp_is_dots(d->d_name) || !kind_of(dirfd(dir), d, &kind) ||
            (ask->hides_placeholders && kind == SP_FILE_ENTRY_DIRECTORY &&
             sp_file_is_placeholder(dirfd(dir), d->d_name, d->d_name)) ||
            ++*ret_count > SP_FILE_MAX_ENTRIES)
            continue;
        const int r = add_entry(out, kind, 0, d->d_name, strlen(d->d_name));
        if (r < 0)
            return r;
    }
    return -errno;
}

int sp_file_op_list(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct sp_file_out out = {.answer = a};
    uint64_t count = 0;
    DIR *dir = opendir(ask->path);

    if (dir == NULL)
        return -errno;
    int r = list(ask, dir, &out, &count);
    (void)closedir(dir);
    if (r == 0)
        r = sp_file_out_done(&out);
    if (r == 0 && count > SP_FILE_MAX_ENTRIES) {
        a->refusal = SP_FILE_TOO_MANY;
        a->number = count;
    }
    return r;
}

/* ---- a walk ---- */

/* A directory in the queue. */
struct directory {
    struct directory *next;
    uint32_t depth;
    bool is_link;
    char path[];
};

struct seen {
    dev_t dev;
    ino_t ino; /* 0: the slot is free */
};

struct name {
    const char *text;
    unsigned char type;
};

/* The names of one directory. While the list grows, text is an offset into the buffer, which may
 * still move. */
struct names {
    struct name *items;
    size_t count, cap;
    bool is_cut; /* the directory has more */
    struct sp_buf text;
};

struct walk {
    const struct sp_file_walk *limits;
    bool hides_placeholders;
    struct sp_file_out out;
    int root; /* where symlinks are not followed, everything is opened below it */
    size_t root_len;
    struct sp_buf uri, path;
    uint64_t cost; /* bytes of the JSON answer, about */
    uint32_t counted, queued;
    struct directory *first, *last;
    struct seen *seen; /* directories that were queued: a hash table with linear probing */
    size_t seen_cap;   /* a power of two */
    size_t seen_count;
    bool is_cut, is_over;
};

static size_t slot_of(const struct seen *table, size_t cap, const struct seen *s)
{
    size_t i = (size_t)((uint64_t)s->ino * 0x9e3779b97f4a7c15U ^ (uint64_t)s->dev) & (cap - 1);

    while (table[i].ino != 0 && (table[i].ino != s->ino || table[i].dev != s->dev))
        i = (i + 1) & (cap - 1);
    return i;
}

/* 1: new; 0: seen before. */
static int note_seen(struct walk *w, const struct stat *st)
{
    const struct seen s = {st->st_dev, st->st_ino};

    if ((w->seen_count + 1) * 2 > w->seen_cap) {
        const size_t cap = w->seen_cap == 0 ? 64 : w->seen_cap * 2;
        struct seen *table = calloc(cap, sizeof *table);

        if (table == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < w->seen_cap; i++)
            if (w->seen[i].ino != 0)
                table[slot_of(table, cap, &w->seen[i])] = w->seen[i];
        free(w->seen);
        w->seen = table;
        w->seen_cap = cap;
    }
    struct seen *at = &w->seen[slot_of(w->seen, w->seen_cap, &s)];
    if (at->ino != 0)
        return 0;
    *at = s;
    w->seen_count++;
    return 1;
}

static int add_path(struct walk *w, enum sp_file_entry_kind kind, int err, struct sp_str path)
{
    w->uri.len = 0;
    if (!sp_uri_add(&w->uri, path))
        return -ENOMEM;
    w->cost += w->uri.len + SP_FILE_WALK_ITEM + (err != 0 ? ERROR_TEXT : 0);
    if (w->cost > SP_FILE_MAX_WALK) {
        w->is_cut = w->is_over = true;
        return 0;
    }
    return add_entry(&w->out, kind, err, path.p, path.n);
}

/* dir/name in w->path. */
static bool join(struct walk *w, const char *dir, const char *name)
{
    w->path.len = 0;
    return sp_buf_add_str(&w->path, sp_str_of(dir)) &&
           (dir[1] == 0 || sp_buf_add_str(&w->path, SP_STR("/"))) &&
           sp_buf_add_str(&w->path, sp_str_of(name));
}

static struct sp_str joined(const struct walk *w)
{
    return (struct sp_str){w->path.data, w->path.len};
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int add_name(struct names *n, const struct dirent *d)
{
    if (!SP_GROW(n->items, n->count, n->cap))
        return -ENOMEM;
    n->items[n->count++] = (struct name){(const char *)(uintptr_t)n->text.len, d->d_type};
    return sp_buf_add(&n->text, d->d_name, strlen(d->d_name) + 1) ? 0 : -ENOMEM;
}

/* Keeps no more names than any answer may have. */
static int read_names(DIR *dir, struct names *n)
{
    const struct dirent *d;
    int r = 0;

    while (r == 0 && n->count <= HIGHEST_ENTRIES && (errno = 0, d = readdir(dir)) != NULL)
        if (!sp_is_dots(d->d_name))
            r = add_name(n, d);
    n->is_cut = n->count > HIGHEST_ENTRIES;
    if (r == 0 && !n->is_cut)
        r = -errno;
    for (size_t i = 0; i < n->count; i++)
        n->items[i].text = n->text.data + (uintptr_t)n->items[i].text;
    if (n->count > 1)
        qsort(n->items, n->count, sizeof *n->items, by_bytes);
    return r;
}

static int enqueue(struct walk *w, uint32_t depth, bool is_link, struct sp_str path)
{
    if (w->queued >= w->limits->max_directories) {
        w->is_cut = true;
        return 0;
    }
    struct directory *d = malloc(sizeof *d + path.n + 1);
    if (d == NULL)
        return -ENOMEM;
    *d = (struct directory){.depth = depth, .is_link = is_link};
    memcpy(d->path, path.p, path.n);
    d->path[path.n] = 0;
    *(w->first == NULL ? &w->first : &w->last->next) = d;
    w->last = d;
    w->queued++;
    return 0;
}

/* Queues the directory w->path unless a limit or an earlier visit forbids. */
static int meet_directory(struct walk *w, const struct directory *in, int dir, const char *name,
                          bool is_link)
{
    struct stat st;

    if (in->depth >= w->limits->max_depth || (w->limits->prunes_hidden && name[0] == '.'))
        return 0;
    if (w->limits->follows_directories) {
        if (fstatat(dir, name, &st, 0) < 0)
            return 0; /* gone meanwhile */
        const int r = note_seen(w, &st);
        if (r <= 0)
            return r;
    }
    return enqueue(w, in->depth + 1, is_link, joined(w));
}

static int visit(struct walk *w, const struct directory *in, int dir, const struct name *n)
{
    unsigned char type = n->type;
    struct stat st;

    if (type == DT_UNKNOWN) {
        if (fstatat(dir, n->text, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return join(w, in->path, n->text) ? add_path(w, SP_FILE_ENTRY_ERROR, errno, joined(w))
                                              : -ENOMEM;
        type = S_ISREG(st.st_mode)   ? DT_REG
               : S_ISDIR(st.st_mode) ? DT_DIR
               : S_ISLNK(st.st_mode) ? DT_LNK
                                     : DT_FIFO;
    }
    if (w->hides_placeholders && type == DT_DIR && sp_file_is_placeholder(dir, n->text, n->text))
        return 0;
    const bool is_link = type == DT_LNK;
    if (is_link && fstatat(dir, n->text, &st, 0) < 0)
        return 0; /* a dangling symlink does not count */
    if (w->counted == w->limits->max_entries) {
        w->is_cut = w->is_over = true;
        return 0;
    }
    w->counted++;
    if (is_link && (!w->limits->follows_directories || !S_ISDIR(st.st_mode)))
        return 0;
    if (is_link)
        type = DT_DIR;
    if (type != DT_REG && type != DT_DIR)
        return 0;
    if (!join(w, in->path, n->text))
        return -ENOMEM;
    const int r =
        add_path(w, type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY, 0, joined(w));
    return r < 0 || w->is_over || type == DT_REG ? r : meet_directory(w, in, dir, n->text, is_link);
}

static int open_directory(const struct walk *w, const struct directory *d, DIR **ret)
{
    auto_close int fd = -1;

    if (w->limits->follows_directories) {
        fd = open(d->path,
                  O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (d->is_link ? 0 : O_NOFOLLOW));
        fd = fd < 0 ? -errno : fd;
    } else {
        fd = sp_file_open_dir(w->root, d->path + w->root_len);
    }
    if (fd < 0)
        return TAKE_FD(fd);
    *ret = fdopendir(fd);
    if (*ret == NULL)
        return -errno;
    (void)TAKE_FD(fd); /* closedir closes it */
    return 0;
}

static int visit_directory(struct walk *w, const struct directory *d)
{
    struct names names = {0};
    DIR *dir = NULL;
    int r = open_directory(w, d, &dir);

    if (r == 0)
        r = read_names(dir, &names);
    if (r < 0 && r != -ENOMEM)
        r = add_path(w, SP_FILE_ENTRY_ERROR, -r, sp_str_of(d->path));
    for (size_t i = 0; i < names.count && r == 0 && !w->is_over; i++)
        r = visit(w, d, dirfd(dir), &names.items[i]);
    w->is_cut = w->is_cut || names.is_cut;
    free(names.items);
    sp_buf_done(&names.text);
    if (dir != NULL)
        (void)closedir(dir);
    return r;
}

/* 1: the root is queued; 0: there is nothing to walk. */
static int enter_root(struct walk *w, const char *path)
{
    struct stat st;
    struct stat itself;

    if (lstat(path, &itself) < 0 || stat(path, &st) < 0)
        return -errno;
    const bool is_link = S_ISLNK(itself.st_mode);
    if (!S_ISDIR(st.st_mode) || (is_link && !w->limits->follows_directories))
        return 0;
    w->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | (is_link ? 0 : O_NOFOLLOW));
    if (w->root < 0)
        return -errno;
    w->root_len = strlen(path);
    int r = note_seen(w, &st);
    if (r > 0)
        r = enqueue(w, 0, is_link, sp_str_of(path));
    return r < 0 ? r : 1;
}

int sp_file_op_walk(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    const struct sp_file_walk *limits = &ask->walk;
    struct walk w = {.limits = limits,
                     .hides_placeholders = ask->hides_placeholders,
                     .root = -1,
                     .out = {.answer = a}};

    if (limits->max_directories == 0 || limits->max_entries == 0) {
        a->refusal = SP_FILE_WALK_LIMITS_ZERO;
        return 0;
    }
    if (limits->max_depth > HIGHEST_DEPTH || limits->max_directories > HIGHEST_DIRECTORIES ||
        limits->max_entries > HIGHEST_ENTRIES) {
        a->refusal = SP_FILE_WALK_LIMITS_HIGH;
        return 0;
    }
    auto_free char *path = strdup(ask->path);
    if (path == NULL)
        return -ENOMEM;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    int r = enter_root(&w, path);
    if (r > 0)
        r = 0;
    while (w.first != NULL) {
        struct directory *d = w.first;

        if (r == 0 && !w.is_over)
            r = visit_directory(&w, d);
        w.first = d->next;
        free(d);
    }
    if (r == 0)
        r = sp_file_out_done(&w.out);
    a->is_cut = w.is_cut;
    if (w.root >= 0)
        (void)close(w.root);
    free(w.seen);
    sp_buf_done(&w.uri);
    sp_buf_done(&w.path);
    return r;
}
