/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk: the names below a directory, breadth first, each directory's sorted bytewise, within limits
 * (exec-server-protocol.md 4.4).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/uri.h"
#include "cell/file/file_priv.h"

#define HIGHEST_DEPTH       64
#define HIGHEST_DIRECTORIES 10000
#define HIGHEST_ENTRIES     50000
#define ERROR_TEXT          40 /* about what the words for an errno take */

struct directory {
    struct directory *next;
    uint32_t depth;
    bool is_link;
    char path[];
};

struct seen {
    dev_t dev;
    ino_t ino;
};

struct name {
    const char *text;
    unsigned char type;
};

/* The names of one directory; the texts are in one block, as offsets until it stands still. */
struct names {
    struct name *items;
    size_t count, cap;
    bool is_cut; /* there are more */
    struct sp_buf text;
};

struct walk {
    const struct sp_file_walk *limits;
    bool hides_placeholders;
    struct sp_room room;
    int root; /* where links are not followed, everything is opened below it */
    size_t root_len;
    struct sp_buf uri, path;
    uint64_t cost;
    uint32_t counted, queued;
    struct directory *first, *last;
    struct seen *seen; /* with links followed: sorted by nothing, looked through by hash */
    size_t seen_cap;
    size_t seen_count;
    bool is_cut, is_over;
};

/* ---- directories that were seen ---- */

static size_t place_of(const struct seen *table, size_t cap, const struct seen *s)
{
    size_t i = (size_t)((uint64_t)s->ino * 0x9e3779b97f4a7c15U ^ (uint64_t)s->dev) & (cap - 1);

    while (table[i].ino != 0 && (table[i].ino != s->ino || table[i].dev != s->dev))
        i = (i + 1) & (cap - 1);
    return i;
}

static bool grow_seen(struct walk *w)
{
    const size_t cap = w->seen_cap == 0 ? 64 : w->seen_cap * 2;
    struct seen *table = calloc(cap, sizeof *table);

    if (table == NULL)
        return false;
    for (size_t i = 0; i < w->seen_cap; i++)
        if (w->seen[i].ino != 0)
            table[place_of(table, cap, &w->seen[i])] = w->seen[i];
    free(w->seen);
    w->seen = table;
    w->seen_cap = cap;
    return true;
}

/* 1: new; 0: it was there. */
static int note_seen(struct walk *w, const struct stat *st)
{
    const struct seen s = {st->st_dev, st->st_ino};

    if ((w->seen_count + 1) * 2 > w->seen_cap && !grow_seen(w))
        return -ENOMEM;
    struct seen *at = &w->seen[place_of(w->seen, w->seen_cap, &s)];
    if (at->ino != 0)
        return 0;
    *at = s;
    w->seen_count++;
    return 1;
}

/* ---- what is told ---- */

static int tell(struct walk *w, enum sp_file_entry_kind kind, int err, struct sp_str path)
{
    w->uri.len = 0;
    if (!sp_uri_add(&w->uri, path))
        return -ENOMEM;
    w->cost += w->uri.len + SP_FILE_WALK_ITEM + (err != 0 ? ERROR_TEXT : 0);
    if (w->cost > SP_FILE_MAX_WALK) {
        w->is_cut = w->is_over = true;
        return 0;
    }
    return sp_look_add_entry(&w->room, kind, err, path.p, path.n);
}

/* The whole path of a name, in w->path. */
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

/* ---- names of a directory ---- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int add_name(struct names *n, const struct dirent *d)
{
    if (n->count == n->cap) {
        const size_t cap = n->cap == 0 ? 64 : n->cap * 2;
        struct name *items = realloc(n->items, cap * sizeof *items);

        if (items == NULL)
            return -ENOMEM;
        n->items = items;
        n->cap = cap;
    }
    n->items[n->count++] = (struct name){(const char *)(uintptr_t)n->text.len, d->d_type};
    return sp_buf_add_str(&n->text, (struct sp_str){d->d_name, strlen(d->d_name) + 1}) ? 0
                                                                                       : -ENOMEM;
}

/* More than can ever be told are not kept. */
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

static void names_done(struct names *n)
{
    free(n->items);
    sp_buf_done(&n->text);
}

/* ---- the walk ---- */

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

static unsigned char type_of(mode_t mode)
{
    return S_ISREG(mode) ? DT_REG : S_ISDIR(mode) ? DT_DIR : S_ISLNK(mode) ? DT_LNK : DT_FIFO;
}

/* A directory was met: queued if the limits and what was seen before allow. */
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
            return join(w, in->path, n->text) ? tell(w, SP_FILE_ENTRY_ERROR, errno, joined(w))
                                              : -ENOMEM;
        type = type_of(st.st_mode);
    }
    if (w->hides_placeholders && type == DT_DIR && sp_look_is_placeholder(dir, n->text, n->text))
        return 0;
    const bool is_link = type == DT_LNK;
    if (is_link && fstatat(dir, n->text, &st, 0) < 0)
        return 0; /* leads nowhere: does not count */
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
        tell(w, type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY, 0, joined(w));
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
        fd = sp_place_open_dir(w->root, d->path + w->root_len);
    }
    if (fd < 0)
        return TAKE_FD(fd);
    *ret = fdopendir(fd);
    if (*ret == NULL)
        return -errno;
    (void)TAKE_FD(fd); /* the directory's */
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
        r = tell(w, SP_FILE_ENTRY_ERROR, -r, sp_str_of(d->path));
    for (size_t i = 0; i < names.count && r == 0 && !w->is_over; i++)
        r = visit(w, d, dirfd(dir), &names.items[i]);
    w->is_cut = w->is_cut || names.is_cut;
    names_done(&names);
    if (dir != NULL)
        (void)closedir(dir);
    return r;
}

static int visit_all(struct walk *w)
{
    int r = 0;

    while (w->first != NULL) {
        struct directory *d = w->first;

        if (r == 0 && !w->is_over)
            r = visit_directory(w, d);
        w->first = d->next;
        free(d);
    }
    return r;
}

/* 1: there is something to walk. */
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

static bool are_limits_fine(const struct sp_file_walk *l, struct sp_file_answer *a)
{
    if (l->max_directories == 0 || l->max_entries == 0)
        a->refusal = SP_FILE_WALK_LIMITS_ZERO;
    else if (l->max_depth > HIGHEST_DEPTH || l->max_directories > HIGHEST_DIRECTORIES ||
             l->max_entries > HIGHEST_ENTRIES)
        a->refusal = SP_FILE_WALK_LIMITS_HIGH;
    return a->refusal == SP_FILE_NOT_REFUSED;
}

int sp_walk(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct walk w = {.limits = &ask->walk,
                     .hides_placeholders = ask->hides_placeholders,
                     .root = -1,
                     .room = {.answer = a}};

    if (!are_limits_fine(&ask->walk, a))
        return 0;
    auto_free char *path = strdup(ask->path);
    if (path == NULL)
        return -ENOMEM;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    int r = enter_root(&w, path);
    if (r > 0)
        r = visit_all(&w);
    if (r == 0)
        r = sp_room_done(&w.room);
    a->is_cut = w.is_cut;
    if (w.root >= 0)
        (void)close(w.root);
    free(w.seen);
    sp_buf_done(&w.uri);
    sp_buf_done(&w.path);
    return r;
}
